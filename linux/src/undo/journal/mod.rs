//! The journal: what evenly has changed, in a file that outlives it (promise P4).
//!
//! One file for each evenly process, `<state directory>/<pid>-<start>.journal`, mapped into memory:
//! recording a change is a few stores, no system call, and what was stored survives SIGKILL,
//! because the pages belong to the kernel. Nothing is synced to the medium, for a mask does not
//! outlive the boot either; a journal of another boot is only removed.
//!
//! Invariant: before a mask is set it is in the file, together with the mask that it replaces.
//! Whatever the instruction at which evenly dies, the thread's mask is one of the two newest of
//! its record, or the original one, or the program's own wish. The same holds for how a thread is
//! scheduled (nice value, class, slice); and before a control group is made, the group in which it is
//! made is in the file.
//!
//! # Layout
//! The file is an array of 64-bit words in the machine's own byte order.
//!
//! | words | content |
//! |---|---|
//! | 0, 1 | magic, version |
//! | 2, 3 | header length, record length, in bytes |
//! | 4 | words of a mask, w: the kernel's mask size |
//! | 5 | capacity: records that the file holds |
//! | 6, 7 | boot id |
//! | 8 | inode of the process id name space |
//! | 9, 10 | evenly: process id, start time |
//! | 11, 12 | program: process id (0: none), start time |
//! | 13 | 1 once everything is undone |
//! | 14 | heartbeat, nanoseconds of CLOCK_MONOTONIC |
//! | 15 | longest balancing period in use, nanoseconds |
//! | 16 | generation of releases: see [`Journal::released_generation`] |
//! | 17, 18, 19 | what others are told of the program's need of CPUs ([`Demand`]): threads, in thousandths; nanoseconds of CPU time that it has given; CLOCK_MONOTONIC until when that holds |
//! | 20-23 | zero |
//! | then 16w | for each CPU a 16-bit count of threads placed there |
//! | then 4 times 128 | a directory in which groups were made: its kind (and 256 where a controller was switched on for it); length of its path in bytes; the path |
//! | then the records | kind (0 masks, 1 scheduling) times 256, and state; tid and tgid; start time; number n of values set; the original value; two set values, of which number (n - 1) mod 2 is the newest |
//!
//! A mask takes w words. How a thread is scheduled takes two: policy, nice value + 20, real-time
//! priority and "reset on fork", a byte each from the lowest on, then 2^63; and the slice in
//! nanoseconds. A record has 4 + max(3w, 6) words.
//!
//! A journal of another version is refused.

mod demand;
mod file;
mod layout;
mod live;
mod places;
mod read;
mod state_dir;
#[cfg(test)]
mod tests;
mod write;

use crate::proc::{Proc, Stat};
use evenly_model::Pid;
use layout::VERSION;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

pub use demand::Demand;
pub(crate) use layout::{MAX_MASK_WORDS, PARENT_PATH_LIMIT};
pub(crate) use live::{LiveJournal, is_watched, patience};
pub use live::{Other, others};
pub use places::{Kind, Parent};
pub use read::{Header, JournalView, Record, RecordState, SchedulingRecord};
pub use state_dir::StateDir;
pub use write::{Journal, Slot};

/// The most threads that one journal records.
pub const RECORD_LIMIT: usize = 131_072;

/// Why a journal cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The state directory is not one that can be trusted.
    #[error(
        "state directory {}: {found}; needed is a directory that belongs to user {uid} and that no other user can write to: mend it, or set EVENLY_STATE_DIR to another",
        path.display()
    )]
    Directory {
        /// The directory that is refused.
        path: PathBuf,
        /// What is wrong with it, in words.
        found: String,
        /// The effective user, to whom it must belong.
        uid: u32,
    },
    /// A system call on the file or its directory failed.
    #[error("journal {}: cannot {what}: {source}; set EVENLY_STATE_DIR to a directory that can be written", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What could not be done, as it follows "cannot" in the message.
        what: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
    /// This process keeps a journal there already.
    #[error("journal {}: it exists already; a process keeps one journal in a state directory", path.display())]
    Exists {
        /// The journal that is there already.
        path: PathBuf,
    },
    /// There are more threads than a journal holds.
    #[error("journal {}: it is full with {RECORD_LIMIT} threads; further threads are left alone", path.display())]
    Full {
        /// The journal that has no room left.
        path: PathBuf,
    },
    /// The file is not a journal, or was damaged.
    #[error("journal {}: {why}; nothing was changed: remove the file if it is not needed", path.display())]
    Malformed {
        /// The file that was read.
        path: PathBuf,
        /// What is wrong with it.
        why: Malformed,
    },
}

/// What is wrong with the bytes of a journal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Fewer bytes than the header or the records take.
    #[error("it holds {found} bytes where {needed} are needed")]
    Short {
        /// How many bytes there are.
        found: usize,
        /// How many bytes the header or the records take.
        needed: usize,
    },
    /// Not a journal of this machine.
    #[error("it does not begin as a journal does")]
    Magic,
    /// Written by another version.
    #[error("its version is {found}, this evenly reads version {VERSION}")]
    Version {
        /// The version that the header names.
        found: u64,
    },
    /// A header field has a value that is not possible.
    #[error("its field '{field}' is {found}, needed is {needed}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// The value that stands in the header.
        found: u64,
        /// The values that are possible: one number, or a range such as "1 to 16".
        needed: String,
    },
    /// A directory of groups has a value that is not possible.
    #[error("its directory of groups {index} has {what}")]
    Parent {
        /// Number of the directory.
        index: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A record has a value that is not possible.
    #[error("its record {index} has {what}")]
    Record {
        /// Number of the record.
        index: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Identity of a process: its id with its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its process id, which the kernel may give to another process later.
    pub pid: Pid,
    /// Start time, clock ticks since boot.
    pub start: u64,
}

impl Process {
    /// The process that has this id now. None where there is none (or it cannot be seen).
    #[must_use]
    pub fn find(proc: &Proc, pid: Pid) -> Option<Self> {
        proc.process_stat(pid).map(|s| Self { pid, start: s.start })
    }

    /// The identity of the calling process.
    #[must_use]
    pub fn own() -> Self {
        let pid = Pid(rustix::process::getpid().as_raw_nonzero().get());
        // /proc may be missing in a container; the id alone is then the identity.
        Self::find(&Proc::default(), pid).unwrap_or(Self { pid, start: 0 })
    }

    /// Whether it still exists, stopped or not. A zombie has ended.
    #[must_use]
    pub fn is_alive(self, proc: &Proc) -> bool {
        self.stat_if_alive(proc).is_some()
    }

    /// Its `stat`; None where it does not exist any more.
    fn stat_if_alive(self, proc: &Proc) -> Option<Stat> {
        // The leader of a process may have ended alone, with pthread_exit: other threads remain.
        proc.process_stat(self.pid).filter(|s| {
            s.start == self.start
                && (!matches!(s.state, b'Z' | b'X' | b'x') || proc.threads(self.pid).len() > 1)
        })
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pid.fmt(f)
    }
}

/// Removes a journal; one that is gone already is no error.
pub(crate) fn remove(path: &Path) -> Result<(), JournalError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(JournalError::Io { path: path.to_owned(), what: "remove it", source: e })
        }
        _ => Ok(()),
    }
}

/// The id of this boot; 0 where /proc does not show it.
fn boot_id() -> u128 {
    // It stays as it is: read once, and not for each journal that is looked at.
    static ID: OnceLock<u128> = OnceLock::new();
    *ID.get_or_init(|| {
        fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .ok()
            .and_then(|t| u128::from_str_radix(&t.trim().replace('-', ""), 16).ok())
            .unwrap_or(0)
    })
}

/// Inode of the process id name space; 0 where /proc does not show it.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

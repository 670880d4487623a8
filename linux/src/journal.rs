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
//! scheduled (nice value, class, slice) and for settings of CPUs; and before a control group is made,
//! the group in which it is made is in the file.
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
//! | 17-23 | zero |
//! | then 16w | for each CPU a 16-bit count of threads placed there |
//! | then 4 times 128 | a directory in which groups were made: its kind (and 256 where a controller was switched on for it); length of its path in bytes; the path |
//! | then the records | kind (0 masks, 1 scheduling, 2 setting of a CPU) times 256, and state; tid and tgid; start time; number n of values set; the original value; two set values, of which number (n - 1) mod 2 is the newest |
//!
//! A mask takes w words. How a thread is scheduled takes two: policy, nice value + 20, real-time
//! priority and "reset on fork", a byte each from the lowest on, then 2^63; and the slice in
//! nanoseconds. A setting of a CPU takes one word; which it is stands in place of the tid, the CPU in
//! place of the tgid. A record has 4 + max(3w, 6) words.
//!
//! Version 1, which is still read, had masks only: no directories, and 4 + 3w words in a record.

use crate::clock::now;
use crate::guardian;
use crate::proc::{Proc, Stat};
use crate::share::groups::{self, Parent};
use crate::share::knobs::Setting;
use crate::share::sched::Scheduling;
use evenly_engine::RunState;
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId, Tid};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// The most threads that one journal records.
pub const RECORD_LIMIT: usize = 131_072;

const MAGIC: u64 = u64::from_ne_bytes(*b"evenly-J");
const VERSION: u64 = 2;
/// The oldest version that is read.
const OLDEST_VERSION: u64 = 1;
/// Directories in which groups are made: that of the program, and a few more where its processes are in
/// several.
pub(crate) const PARENT_LIMIT: usize = 4;
const PARENT_WORDS: usize = 128;
/// The longest path of such a directory.
pub(crate) const PARENT_PATH_LIMIT: usize = (PARENT_WORDS - 2) * WORD;
/// In the first word of such a directory: a controller was switched on for its groups.
const SWITCHED_ON: u64 = 1 << 8;
const FIRST_CAPACITY: usize = 256;
/// 16,384 CPUs: above every kernel that is built today.
pub(crate) const MAX_MASK_WORDS: usize = 256;
const WORD: usize = size_of::<u64>();

/// Numbers of the header's words.
mod at {
    pub(super) const MAGIC: usize = 0;
    pub(super) const VERSION: usize = 1;
    pub(super) const HEADER_BYTES: usize = 2;
    pub(super) const RECORD_BYTES: usize = 3;
    pub(super) const MASK_WORDS: usize = 4;
    pub(super) const CAPACITY: usize = 5;
    pub(super) const BOOT_ID: usize = 6;
    pub(super) const PID_NAMESPACE: usize = 8;
    pub(super) const WRITER_PID: usize = 9;
    pub(super) const WRITER_START: usize = 10;
    pub(super) const PROGRAM_PID: usize = 11;
    pub(super) const PROGRAM_START: usize = 12;
    pub(super) const CLEAN: usize = 13;
    pub(super) const HEARTBEAT: usize = 14;
    pub(super) const PERIOD: usize = 15;
    pub(super) const RELEASED: usize = 16;
    pub(super) const COUNTS: usize = 24;
}

/// Numbers of a record's words.
mod field {
    pub(super) const STATE: usize = 0;
    pub(super) const IDS: usize = 1;
    pub(super) const START: usize = 2;
    pub(super) const SETS: usize = 3;
    pub(super) const MASKS: usize = 4;
    /// Values that are no masks begin there, too.
    pub(super) const VALUES: usize = MASKS;
}

/// What a record is about: in its first word, above the state.
mod kind {
    pub(super) const MASKS: u64 = 0;
    pub(super) const SCHEDULING: u64 = 1;
    pub(super) const SETTING: u64 = 2;
    pub(super) const SHIFT: u32 = 8;
}

/// Why a journal cannot be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The state directory is not one that can be trusted.
    #[error(
        "state directory {}: {found}; needed is a directory that belongs to user {uid} and that nobody else can write: mend it, or set EVENLY_STATE_DIR to another",
        path.display()
    )]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What was found.
        found: String,
        /// Effective user.
        uid: u32,
    },
    /// The system refused.
    #[error("journal {}: cannot {what}: {source}; set EVENLY_STATE_DIR to a directory that can be written", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// This process keeps a journal there already.
    #[error("journal {}: it exists already; a process keeps one journal in a state directory", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// There are more threads than a journal holds.
    #[error("journal {}: it is full with {RECORD_LIMIT} threads; further threads are left alone", path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file is not a journal, or was damaged.
    #[error("journal {}: {why}; nothing was changed: remove the file if it is not needed", path.display())]
    Malformed {
        /// The file.
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
        /// Bytes found.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Not a journal of this machine.
    #[error("it does not begin as a journal does")]
    Magic,
    /// Written by another version.
    #[error("its version is {found}, this evenly reads {OLDEST_VERSION} to {VERSION}")]
    Version {
        /// Version found.
        found: u64,
    },
    /// A header field that cannot be.
    #[error("its field '{field}' is {found}, needed is {needed}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value found.
        found: u64,
        /// What would do.
        needed: String,
    },
    /// A directory of groups that cannot be.
    #[error("its directory of groups {index} has {what}")]
    Parent {
        /// Number of the directory.
        index: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A record that cannot be.
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
    /// Process id.
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

    /// The calling process.
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

/// The directory of the journals of one user.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
}

impl StateDir {
    /// The directory to use: `$EVENLY_STATE_DIR`; else, for root, `/run/evenly`; else the first of
    /// `$XDG_RUNTIME_DIR/evenly`, `/run/user/UID/evenly` that can be had; else
    /// `/tmp/evenly-UID`. It is made where it is missing.
    ///
    /// # Errors
    /// [`JournalError`] where none can be written and trusted; that of `$EVENLY_STATE_DIR` where
    /// it is set, because a user who names a directory means that one.
    pub fn find() -> Result<Self, JournalError> {
        if let Some(dir) = std::env::var_os("EVENLY_STATE_DIR").filter(|d| !d.is_empty()) {
            return Self::at(Path::new(&dir));
        }
        let uid = rustix::process::geteuid().as_raw();
        // Root's XDG_RUNTIME_DIR may be that of the user who became root.
        let runtime = if uid == 0 {
            vec![PathBuf::from("/run")]
        } else {
            std::env::var_os("XDG_RUNTIME_DIR")
                .map(PathBuf::from)
                .into_iter()
                .chain([PathBuf::from(format!("/run/user/{uid}"))])
                .collect()
        };
        runtime
            .iter()
            .filter(|parent| parent.is_absolute() && parent.is_dir())
            .find_map(|parent| Self::at(&parent.join("evenly")).ok())
            .map_or_else(|| Self::at(Path::new(&format!("/tmp/evenly-{uid}"))), Ok)
    }

    /// Makes a relative `$EVENLY_STATE_DIR` absolute for this process and all that it starts: an
    /// evenly inside a program that has changed its working directory must find the same journals.
    /// To be called first of all; it does nothing once there are several threads.
    pub fn settle() {
        let Some(dir) = std::env::var_os("EVENLY_STATE_DIR").filter(|d| !d.is_empty()) else {
            return;
        };
        let alone = fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
        if alone
            && Path::new(&dir).is_relative()
            && let Ok(absolute) = std::path::absolute(&dir)
        {
            // SAFETY: this is the only thread, so nobody else reads or writes the environment.
            unsafe { std::env::set_var("EVENLY_STATE_DIR", absolute) };
        }
    }

    /// A directory of the caller's choice. It is made, with mode 0700, where it is missing.
    ///
    /// # Errors
    /// [`JournalError`] where it cannot be made, is a symbolic link, belongs to somebody else, or
    /// can be written by others: their files would decide what evenly does to threads.
    pub fn at(path: &Path) -> Result<Self, JournalError> {
        let io = |what| move |source| JournalError::Io { path: path.to_owned(), what, source };
        let path = std::path::absolute(path).map_err(io("find the directory"))?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
            .map_err(|source| JournalError::Io {
                path: path.clone(),
                what: "make the directory",
                source,
            })?;
        let uid = rustix::process::geteuid().as_raw();
        let found = |found| JournalError::Directory { path: path.clone(), found, uid };
        // Not followed: in /tmp anybody could have put a link there.
        let meta = fs::symlink_metadata(&path).map_err(|source| JournalError::Io {
            path: path.clone(),
            what: "look at the directory",
            source,
        })?;
        if !meta.is_dir() {
            return Err(found("it is not a directory".to_owned()));
        }
        if meta.uid() != uid {
            return Err(found(format!("it belongs to user {}", meta.uid())));
        }
        if meta.mode() & 0o022 != 0 {
            return Err(found(format!(
                "others can write it, its mode is {:o}",
                meta.mode() & 0o7777
            )));
        }
        Ok(Self { path })
    }

    /// Where it is: an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Paths of all journals in it, in order.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the directory cannot be read.
    pub fn journals(&self) -> Result<Vec<PathBuf>, JournalError> {
        let entries = fs::read_dir(&self.path).map_err(|source| JournalError::Io {
            path: self.path.clone(),
            what: "list the directory",
            source,
        })?;
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|e| Some(e.ok()?.path()))
            .filter(|p| p.extension().is_some_and(|x| x == "journal"))
            .collect();
        paths.sort();
        Ok(paths)
    }
}

/// Shapes that follow from the version and the width of a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    version: u64,
    mask_words: usize,
}

impl Layout {
    const fn newest(mask_words: usize) -> Self {
        Self { version: VERSION, mask_words }
    }

    /// Four 16-bit counts in a word, 64 CPUs in a word of a mask.
    const fn first_parent(self) -> usize {
        at::COUNTS + 16 * self.mask_words
    }

    const fn parents(self) -> usize {
        if self.version < 2 { 0 } else { PARENT_LIMIT }
    }

    const fn header_words(self) -> usize {
        self.first_parent() + self.parents() * PARENT_WORDS
    }

    const fn record_words(self) -> usize {
        let masks = 3 * self.mask_words;
        let least = if self.version < 2 { 0 } else { 3 * Scheduling::WORDS };
        field::MASKS + if masks > least { masks } else { least }
    }

    const fn file_bytes(self, records: usize) -> usize {
        (self.header_words() + records * self.record_words()) * WORD
    }

    const fn record(self, index: usize) -> usize {
        self.header_words() + index * self.record_words()
    }

    /// Number of the first word of the original mask (0) or of a set mask (1, 2) in a record.
    const fn mask(self, record: usize, which: usize) -> usize {
        record + field::MASKS + which * self.mask_words
    }

    /// The same for a value of so many words.
    const fn value(record: usize, which: usize, words: usize) -> usize {
        record + field::VALUES + which * words
    }
}

/// A shared mapping of a file, as words.
struct Mapping {
    base: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: the mapping is memory that is only reached through atomics, and it is unmapped only when
// its one owner is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("bytes", &self.bytes).finish()
    }
}

impl Mapping {
    fn new(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the place, so nothing that exists is replaced.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < self.bytes / WORD, "word {number} of {} bytes", self.bytes);
        // SAFETY: inside the mapping by the assertion, aligned because a mapping starts on a page,
        // live as long as self; every access by any process is an aligned atomic one.
        unsafe { self.base.add(number).as_ref() }
    }

    fn count(&self, cpu: CpuId, layout: Layout) -> Option<&AtomicU16> {
        let cpu = cpu.0 as usize;
        if cpu >= layout.mask_words * 64 {
            return None;
        }
        let first: *const AtomicU16 = std::ptr::from_ref(self.word(at::COUNTS)).cast();
        assert!(layout.first_parent() * WORD <= self.bytes);
        // SAFETY: the counts take 16 * mask_words words from at::COUNTS on, all of them inside the
        // mapping by the assertion; they are never accessed as words.
        Some(unsafe { &*first.add(cpu) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and no reference into it outlives self.
        // It cannot fail for a range that was mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// A record of the journal, owned by the balancer that met the thread. It cannot be copied: two
/// owners would overwrite each other's masks.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot(usize);

/// Which records are free. Only here a lock is taken.
#[derive(Debug)]
struct Allocation {
    capacity: usize,
    never_used: usize,
    /// Oldest first: the masks of threads that ended are evidence for threads that inherited them,
    /// so they are kept as long as possible.
    freed: VecDeque<usize>,
}

/// The journal that this process writes.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: OwnedFd,
    /// As long as the file can ever become. Only what is inside the file is touched; so the file
    /// grows without being mapped anew, and no balancer ever waits for another.
    map: Mapping,
    layout: Layout,
    allocation: Mutex<Allocation>,
}

impl Journal {
    /// Makes the journal of this process. `program` is what is balanced, where it is known.
    ///
    /// # Errors
    /// [`JournalError`]: balancing must then not start (promise P8).
    pub fn create(dir: &StateDir, program: Option<Process>) -> Result<Self, JournalError> {
        let writer = Process::own();
        let path = dir.path().join(format!("{}-{}.journal", writer.pid, writer.start));
        let io = |what| {
            let path = path.clone();
            move |e: Errno| JournalError::Io { path, what, source: e.into() }
        };
        // A name that nobody reads, until the header is whole.
        let unfinished = path.with_extension("new");
        let _ = fs::remove_file(&unfinished);
        let file = rustix::fs::open(
            &unfinished,
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(io("make it"))?;
        let layout = Layout::newest(kernel_mask_words());
        let journal = Self {
            map: Mapping::new(&file, layout.file_bytes(RECORD_LIMIT)).map_err(|source| {
                JournalError::Io { path: path.clone(), what: "map it into memory", source }
            })?,
            file,
            layout,
            allocation: Mutex::new(Allocation {
                capacity: 0,
                never_used: 0,
                freed: VecDeque::new(),
            }),
            path,
        };
        let placed =
            journal.fill_header(writer, program).and_then(|()| journal.take_name(&unfinished));
        if placed.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        placed.map(|()| journal)
    }

    fn fill_header(&self, writer: Process, program: Option<Process>) -> Result<(), JournalError> {
        self.grow(&mut self.lock(), FIRST_CAPACITY)?;
        let boot = boot_id();
        for (word, value) in [
            (at::MAGIC, MAGIC),
            (at::VERSION, VERSION),
            (at::HEADER_BYTES, (self.layout.header_words() * WORD) as u64),
            (at::RECORD_BYTES, (self.layout.record_words() * WORD) as u64),
            (at::MASK_WORDS, self.layout.mask_words as u64),
            (at::BOOT_ID, (boot >> 64) as u64),
            (at::BOOT_ID + 1, boot as u64),
            (at::PID_NAMESPACE, pid_namespace()),
            (at::WRITER_PID, u64::from(writer.pid.0.unsigned_abs())),
            (at::WRITER_START, writer.start),
            (at::HEARTBEAT, now().0),
        ] {
            self.map.word(word).store(value, Ordering::Relaxed);
        }
        if let Some(program) = program {
            self.set_program(program);
        }
        Ok(())
    }

    /// Gives the file its name. Processes with the same id and start time are the same process,
    /// except across a boot: a journal that is there already is then an old one.
    fn take_name(&self, unfinished: &Path) -> Result<(), JournalError> {
        let old = Header::open(&self.path).map(|h| h.is_of_this_boot());
        if matches!(old, Ok(false)) {
            let _ = fs::remove_file(&self.path);
        }
        let flags = rustix::fs::RenameFlags::NOREPLACE;
        let cwd = rustix::fs::CWD;
        match rustix::fs::renameat_with(cwd, unfinished, cwd, &self.path, flags) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(JournalError::Exists { path: self.path.clone() }),
            Err(e) => Err(JournalError::Io {
                path: self.path.clone(),
                what: "give it its name",
                source: e.into(),
            }),
        }
    }

    /// Where the file is: an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory in which it is: looked at already, so not again.
    #[must_use]
    pub(crate) fn dir(&self) -> StateDir {
        StateDir { path: self.path.parent().unwrap_or(Path::new("/")).to_owned() }
    }

    /// Tells readers which program is balanced.
    pub fn set_program(&self, program: Process) {
        self.map.word(at::PROGRAM_START).store(program.start, Ordering::Relaxed);
        // Release: whoever sees the id sees the start time that belongs to it.
        let pid = u64::from(program.pid.0.unsigned_abs());
        self.map.word(at::PROGRAM_PID).store(pid, Ordering::Release);
    }

    /// Tells the guardian the longest balancing period now in use; its patience is 20 of them, and
    /// at least 2 s.
    pub fn set_period(&self, period: Nanos) {
        self.map.word(at::PERIOD).store(period.0, Ordering::Relaxed);
    }

    /// Records a thread with the mask that it had before evenly came. For a thread that inherited
    /// one of our masks that is its creator's original mask; its present mask is then to be
    /// recorded right after, with [`Journal::about_to_set`].
    ///
    /// Threads that evenly leaves alone because their mask is the program's wish should be met as
    /// well: a thread that is recorded with the mask that it has is never taken for one that
    /// inherited a mask of ours.
    ///
    /// Meet the new threads of a scan before forgetting those that ended: a new one may have
    /// inherited the mask of one that ended.
    ///
    /// # Errors
    /// [`JournalError::Full`] at [`RECORD_LIMIT`] threads, [`JournalError::Io`] where the file
    /// cannot grow. The thread must then be left alone.
    pub fn meet(&self, id: ThreadId, tgid: Pid, original: &CpuSet) -> Result<Slot, JournalError> {
        let ids = [id.tid.0 as u32, tgid.0 as u32];
        self.fill(kind::MASKS, ids, id.start, |record| self.store_mask(record, 0, original))
    }

    /// Records a thread with the way in which it was scheduled before evenly came; for one that
    /// inherited what we set, that of its creator.
    ///
    /// # Errors
    /// As [`Journal::meet`].
    pub fn meet_scheduling(
        &self,
        id: ThreadId,
        tgid: Pid,
        original: &Scheduling,
    ) -> Result<Slot, JournalError> {
        let ids = [id.tid.0 as u32, tgid.0 as u32];
        let store = |record| self.store_words(Layout::value(record, 0, 2), &original.to_words());
        self.fill(kind::SCHEDULING, ids, id.start, store)
    }

    /// As [`Journal::about_to_set`], for how a thread is going to be scheduled.
    pub fn about_to_schedule(&self, slot: &mut Slot, value: &Scheduling) {
        self.about_to_store(slot, &value.to_words());
    }

    /// Records a setting of a CPU with the value that it had.
    ///
    /// # Errors
    /// As [`Journal::meet`].
    pub fn meet_setting(
        &self,
        setting: Setting,
        cpu: CpuId,
        original: u64,
    ) -> Result<Slot, JournalError> {
        let store = |record| self.store_words(Layout::value(record, 0, 1), &[original]);
        self.fill(kind::SETTING, [setting as u32, cpu.0], 0, store)
    }

    /// As [`Journal::about_to_set`], for the value that a setting of a CPU is going to have.
    pub fn about_to_write(&self, slot: &mut Slot, value: u64) {
        self.about_to_store(slot, &[value]);
    }

    /// Records a directory in which groups are going to be made. To be called before the first is made.
    ///
    /// # Errors
    /// [`JournalError::Full`] where there is no room for another directory, or for one with so long a
    /// path.
    pub fn about_to_make_groups(&self, parent: &Parent) -> Result<(), JournalError> {
        let full = || JournalError::Full { path: self.path.clone() };
        let path = parent.path.as_os_str().as_bytes();
        if path.len() > PARENT_PATH_LIMIT {
            return Err(full());
        }
        // Held so that two callers do not take the same place.
        let _held = self.lock();
        let first = (0..PARENT_LIMIT)
            .map(|i| self.layout.first_parent() + i * PARENT_WORDS)
            .find(|&first| self.map.word(first).load(Ordering::Relaxed) == 0)
            .ok_or_else(full)?;
        self.map.word(first + 1).store(path.len() as u64, Ordering::Relaxed);
        for (i, bytes) in path.chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word[..bytes.len()].copy_from_slice(bytes);
            self.map.word(first + 2 + i).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        let switched_on = if parent.switched_on { SWITCHED_ON } else { 0 };
        // Release: who sees the kind sees the path. The directory is made by a system call after this.
        self.map.word(first).store(parent.kind as u64 | switched_on, Ordering::Release);
        Ok(())
    }

    fn fill(
        &self,
        kind: u64,
        ids: [u32; 2],
        start: u64,
        store: impl FnOnce(usize),
    ) -> Result<Slot, JournalError> {
        let slot = self.allocate()?;
        let record = self.layout.record(slot.0);
        let word = |n: usize| self.map.word(record + n);
        word(field::STATE).store(State::Blank as u64, Ordering::Relaxed);
        // Release, so that no store below passes the blanking above: a record that is being
        // written is a blank one, whenever we die.
        std::sync::atomic::fence(Ordering::Release);
        word(field::IDS).store((u64::from(ids[0]) << 32) | u64::from(ids[1]), Ordering::Relaxed);
        word(field::START).store(start, Ordering::Relaxed);
        word(field::SETS).store(0, Ordering::Relaxed);
        store(record);
        // Release: a reader who sees the record as live sees all of it.
        word(field::STATE).store(kind << kind::SHIFT | State::Live as u64, Ordering::Release);
        Ok(slot)
    }

    /// [`Journal::about_to_set`] for a value that is no mask; the argument is the same.
    fn about_to_store(&self, slot: &mut Slot, value: &[u64]) {
        let record = self.layout.record(slot.0);
        let sets = self.map.word(record + field::SETS);
        let n = sets.load(Ordering::Relaxed);
        self.store_words(Layout::value(record, 1 + (n % 2) as usize, value.len()), value);
        // Release, as for masks. Calls that change how a thread is scheduled release a lock of the
        // thread, too; writing a file of the kernel's is a system call like them.
        sets.store(n + 1, Ordering::Release);
    }

    fn store_words(&self, first: usize, words: &[u64]) {
        for (i, word) in words.iter().enumerate() {
            self.map.word(first + i).store(*word, Ordering::Relaxed);
        }
    }

    /// Records that `mask` is going to be set on the thread. To be called before the system call;
    /// where that fails, [`Journal::not_set`] must follow.
    pub fn about_to_set(&self, slot: &mut Slot, mask: &CpuSet) {
        let record = self.layout.record(slot.0);
        let sets = self.map.word(record + field::SETS);
        let n = sets.load(Ordering::Relaxed);
        // The mask in force is number n - 1; this one goes over the one before it. Dying among
        // these stores is harmless: the mask in force is still recorded as the newest.
        self.store_mask(record, 1 + (n % 2) as usize, mask);
        // Release: a reader who sees n + 1 sees the whole mask. Dying after this and before the
        // system call leaves the mask in force as the second newest, which is ours as well. The
        // system call cannot overtake the store as seen by the guardian: sched_setaffinity
        // releases a lock of the thread that the guardian's sched_getaffinity takes, and a reader
        // after our death is ordered by it.
        sets.store(n + 1, Ordering::Release);
    }

    /// Takes the newest [`Journal::about_to_set`] back, because the mask could not be set.
    /// Otherwise the next one would overwrite the mask that is in force.
    pub fn not_set(&self, slot: &mut Slot) {
        let sets = self.map.word(self.layout.record(slot.0) + field::SETS);
        let n = sets.load(Ordering::Relaxed);
        sets.store(n.saturating_sub(1), Ordering::Release);
    }

    /// Whether a mask that the thread was found with is one of the two newest that were set.
    #[must_use]
    pub fn is_ours(&self, slot: &Slot, mask: &CpuSet) -> bool {
        let record = self.layout.record(slot.0);
        let n = self.map.word(record + field::SETS).load(Ordering::Relaxed);
        (0..n.min(2)).any(|back| {
            let first = self.layout.mask(record, 1 + ((n - 1 - back) % 2) as usize);
            (0..self.layout.mask_words.max(mask.words().len())).all(|i| {
                let stored = if i < self.layout.mask_words {
                    self.map.word(first + i).load(Ordering::Relaxed)
                } else {
                    0
                };
                stored == mask.words().get(i).copied().unwrap_or(0)
            })
        })
    }

    /// Records that the thread now has a mask of the program's choice, which nobody is to undo. To
    /// balance the thread again, forget it and meet it anew.
    pub fn leave_alone(&self, slot: &mut Slot) {
        let state = self.map.word(self.layout.record(slot.0) + field::STATE);
        let kind = state.load(Ordering::Relaxed) >> kind::SHIFT << kind::SHIFT;
        state.store(kind | State::LeftAlone as u64, Ordering::Release);
    }

    /// Frees the record of a thread that ended, or that has its original mask back.
    #[expect(clippy::needless_pass_by_value, reason = "the slot must not be used again")]
    pub fn forget(&self, slot: Slot) {
        let state = self.map.word(self.layout.record(slot.0) + field::STATE);
        let kind = state.load(Ordering::Relaxed) >> kind::SHIFT << kind::SHIFT;
        state.store(kind | State::Ended as u64, Ordering::Release);
        self.lock().freed.push_back(slot.0);
    }

    /// Says that the balancers are at work. Where this stops for longer than the guardian's
    /// patience, the guardian gives all threads their original masks.
    pub fn heartbeat(&self, now: Nanos) {
        self.map.word(at::HEARTBEAT).store(now.0, Ordering::Relaxed);
    }

    /// Says how many threads this balancer places on these CPUs, for another evenly to see.
    pub fn publish_counts(&self, counts: &[(CpuId, u16)]) {
        for &(cpu, threads) in counts {
            if let Some(count) = self.map.count(cpu, self.layout) {
                count.store(threads, Ordering::Relaxed);
            }
        }
    }

    /// Changes whenever somebody gave threads their original masks while this process was
    /// stopped: once before the first mask and once after the last. To tell such a mask from a
    /// wish of the program, read the thread's mask first and this after it.
    #[must_use]
    pub fn released_generation(&self) -> u64 {
        // Acquire, with the read of the mask before it: sched_getaffinity takes the lock that the
        // guardian's sched_setaffinity released after the generation was raised.
        self.map.word(at::RELEASED).load(Ordering::Acquire)
    }

    /// Says that every mask is given back, and removes the file. The guardian then ends without
    /// doing anything.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the file cannot be removed; it is harmless then.
    pub fn finish(&self) -> Result<(), JournalError> {
        self.map.word(at::CLEAN).store(1, Ordering::Release);
        remove(&self.path)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Allocation> {
        // A panic under the lock leaves the allocation whole: each step is one assignment.
        self.allocation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocate(&self) -> Result<Slot, JournalError> {
        let mut a = self.lock();
        if a.never_used == a.capacity && a.freed.is_empty() {
            if a.capacity >= RECORD_LIMIT {
                return Err(JournalError::Full { path: self.path.clone() });
            }
            let capacity = (a.capacity * 2).min(RECORD_LIMIT);
            self.grow(&mut a, capacity)?;
        }
        // Never-used records first: freed ones keep evidence.
        if a.never_used < a.capacity {
            a.never_used += 1;
            return Ok(Slot(a.never_used - 1));
        }
        a.freed.pop_front().map(Slot).ok_or_else(|| JournalError::Full { path: self.path.clone() })
    }

    /// Makes room in the file, and on the medium: a store into a hole of a full file system would
    /// be answered with SIGBUS.
    fn grow(&self, a: &mut Allocation, capacity: usize) -> Result<(), JournalError> {
        let bytes = self.layout.file_bytes(capacity) as u64;
        let grown = match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(a.capacity, bytes),
            other => other,
        };
        grown.map_err(|e| JournalError::Io {
            path: self.path.clone(),
            what: "make room in it",
            source: e.into(),
        })?;
        // Release: a reader who believes the new capacity finds the file as long.
        self.map.word(at::CAPACITY).store(capacity as u64, Ordering::Release);
        a.capacity = capacity;
        Ok(())
    }

    fn write_zeros(&self, old_capacity: usize, bytes: u64) -> Result<(), Errno> {
        let zeros = [0u8; 4096];
        let mut from =
            if old_capacity == 0 { 0 } else { self.layout.file_bytes(old_capacity) as u64 };
        while from < bytes {
            let n = usize::try_from(bytes - from).unwrap_or(usize::MAX).min(zeros.len());
            from += rustix::io::pwrite(&self.file, &zeros[..n], from)? as u64;
        }
        Ok(())
    }

    fn store_mask(&self, record: usize, which: usize, mask: &CpuSet) {
        let first = self.layout.mask(record, which);
        for i in 0..self.layout.mask_words {
            let value = mask.words().get(i).copied().unwrap_or(0);
            self.map.word(first + i).store(value, Ordering::Relaxed);
        }
    }
}

/// What a record says of its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// Nothing: never used, or being written when the writer died.
    Blank = 0,
    /// The thread is balanced.
    Live = 1,
    /// The thread has ended, or has its original mask back. The masks are evidence for threads
    /// that inherited them.
    Ended = 2,
    /// The thread has a mask that the program chose.
    LeftAlone = 3,
}

/// One record, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The thread.
    pub id: ThreadId,
    /// Its process.
    pub tgid: Pid,
    /// What it says.
    pub state: State,
    /// The mask that the thread had when it was met.
    pub original: CpuSet,
    /// The masks that were set last, newest first; at most two.
    pub set: Vec<CpuSet>,
}

/// How a thread was and is scheduled, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulingRecord {
    /// The thread.
    pub id: ThreadId,
    /// Its process.
    pub tgid: Pid,
    /// What it says.
    pub state: State,
    /// How the thread was scheduled when it was met.
    pub original: Scheduling,
    /// What was set last, newest first; at most two.
    pub set: Vec<Scheduling>,
}

/// A setting of a CPU, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingRecord {
    /// Which.
    pub setting: Setting,
    /// Of which CPU.
    pub cpu: CpuId,
    /// What it says.
    pub state: State,
    /// The value before evenly came.
    pub original: u64,
    /// What was written last, newest first; at most two.
    pub set: Vec<u64>,
}

/// Any record, as read.
enum AnyRecord {
    Masks(Record),
    Scheduling(SchedulingRecord),
    Setting(SettingRecord),
}

/// The header of a journal, as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Which boot it is of.
    pub boot_id: u128,
    /// Inode of the process id name space in which its ids mean something; 0 where unknown.
    pub pid_namespace: u64,
    /// The evenly that wrote it.
    pub writer: Process,
    /// The program that is balanced, where it is known.
    pub program: Option<Process>,
    /// Whether everything is undone.
    pub clean: bool,
    /// When the writer was last at work: CLOCK_MONOTONIC.
    pub heartbeat: Nanos,
    /// Its longest balancing period.
    pub period: Nanos,
    /// Generation of releases.
    pub released: u64,
    /// How many threads it places on each CPU, where that is not 0.
    pub counts: Vec<(CpuId, u16)>,
    /// Directories in which groups were made.
    pub parents: Vec<Parent>,
    capacity: usize,
    layout: Layout,
}

impl Header {
    /// The most bytes that a header takes.
    const MAX_BYTES: usize = Layout::newest(MAX_MASK_WORDS).header_words() * WORD;

    /// Reads the header of a file.
    ///
    /// # Errors
    /// [`JournalError`] where the file cannot be read or is not a journal.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let bytes = read_file(path, Self::MAX_BYTES as u64)?;
        Self::parse(&bytes).map_err(|why| JournalError::Malformed { path: path.to_owned(), why })
    }

    /// Whether its evenly stands still: stopped by a signal or by a debugger, or not at work for so
    /// long that its guardian gives all masks back. None where it lives no more.
    #[must_use]
    pub fn stands_still(&self, proc: &Proc) -> Option<bool> {
        let stopped = self.writer.stat_if_alive(proc)?.run_state() == RunState::Stopped;
        Some(stopped || now() >= self.heartbeat + guardian::patience(self.period))
    }

    /// Whether its ids can still mean anything.
    #[must_use]
    pub fn is_of_this_boot(&self) -> bool {
        self.boot_id == boot_id()
    }

    /// Whether its ids mean the same processes for the caller.
    #[must_use]
    pub fn is_of_this_pid_namespace(&self) -> bool {
        let own = pid_namespace();
        own == 0 || self.pid_namespace == 0 || own == self.pid_namespace
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong with the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let short = |words: usize| Malformed::Short { found: bytes.len(), needed: words * WORD };
        let word = |n: usize| word_at(bytes, n).ok_or_else(|| short(at::COUNTS));
        if word(at::MAGIC)? != MAGIC {
            return Err(Malformed::Magic);
        }
        let version = word(at::VERSION)?;
        if !(OLDEST_VERSION..=VERSION).contains(&version) {
            return Err(Malformed::Version { found: version });
        }
        let ranged = |n: usize, field: &'static str, least: u64, most: u64| {
            let found = word(n)?;
            if (least..=most).contains(&found) {
                Ok(found)
            } else {
                let needed =
                    if least == most { least.to_string() } else { format!("{least} to {most}") };
                Err(Malformed::Field { field, found, needed })
            }
        };
        let mask_words = ranged(at::MASK_WORDS, "mask words", 1, MAX_MASK_WORDS as u64)? as usize;
        let layout = Layout { version, mask_words };
        let (header, record) = (layout.header_words() * WORD, layout.record_words() * WORD);
        ranged(at::HEADER_BYTES, "header length", header as u64, header as u64)?;
        ranged(at::RECORD_BYTES, "record length", record as u64, record as u64)?;
        let capacity = ranged(at::CAPACITY, "capacity", 0, RECORD_LIMIT as u64)? as usize;
        let largest = i32::MAX as u64;
        let writer_pid = ranged(at::WRITER_PID, "process id of evenly", 1, largest)?;
        let program_pid = ranged(at::PROGRAM_PID, "process id of the program", 0, largest)?;
        let clean = ranged(at::CLEAN, "clean", 0, 1)? == 1;
        let counts = bytes
            .get(..header)
            .and_then(|h| h.get(at::COUNTS * WORD..layout.first_parent() * WORD))
            .ok_or_else(|| short(layout.header_words()))?
            .chunks_exact(2)
            .zip(0u32..)
            .map(|(c, cpu)| (CpuId(cpu), u16::from_ne_bytes([c[0], c[1]])))
            .filter(|&(_, threads)| threads > 0)
            .collect();
        let parents = (0..layout.parents())
            .filter_map(|i| parse_parent(bytes, layout, i).transpose())
            .collect::<Result<_, _>>()?;
        Ok(Self {
            boot_id: (u128::from(word(at::BOOT_ID)?) << 64) | u128::from(word(at::BOOT_ID + 1)?),
            pid_namespace: word(at::PID_NAMESPACE)?,
            writer: Process { pid: Pid(writer_pid as i32), start: word(at::WRITER_START)? },
            program: (program_pid != 0).then_some(Process {
                pid: Pid(program_pid as i32),
                start: word(at::PROGRAM_START)?,
            }),
            clean,
            heartbeat: Nanos(word(at::HEARTBEAT)?),
            period: Nanos(word(at::PERIOD)?),
            released: word(at::RELEASED)?,
            counts,
            parents,
            capacity,
            layout,
        })
    }
}

/// A journal, as read: a copy, so that nothing that happens to the file meanwhile matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalView {
    /// Its header.
    pub header: Header,
    /// Its records of masks, without the blank ones.
    pub records: Vec<Record>,
    /// Its records of how threads are scheduled.
    pub scheduling: Vec<SchedulingRecord>,
    /// Its records of settings of CPUs.
    pub settings: Vec<SettingRecord>,
}

impl JournalView {
    /// Reads a file.
    ///
    /// # Errors
    /// [`JournalError`] where the file cannot be read or is not a whole journal.
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        let limit = Layout::newest(MAX_MASK_WORDS).file_bytes(RECORD_LIMIT) as u64;
        let bytes = read_file(path, limit)?;
        Self::parse(&bytes).map_err(|why| JournalError::Malformed { path: path.to_owned(), why })
    }

    /// Reads a journal from its bytes.
    ///
    /// # Errors
    /// [`Malformed`] says what is wrong with the bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let header = Header::parse(bytes)?;
        let needed = header.layout.file_bytes(header.capacity);
        if bytes.len() < needed {
            return Err(Malformed::Short { found: bytes.len(), needed });
        }
        let (mut records, mut scheduling, mut settings) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..header.capacity {
            match parse_record(bytes, header.layout, index)? {
                Some(AnyRecord::Masks(r)) => records.push(r),
                Some(AnyRecord::Scheduling(r)) => scheduling.push(r),
                Some(AnyRecord::Setting(r)) => settings.push(r),
                None => {}
            }
        }
        Ok(Self { header, records, scheduling, settings })
    }
}

/// None where the place is free.
fn parse_parent(bytes: &[u8], layout: Layout, index: usize) -> Result<Option<Parent>, Malformed> {
    let bad = |what| Malformed::Parent { index, what };
    let first = layout.first_parent() + index * PARENT_WORDS;
    let word = |n: usize| word_at(bytes, first + n).ok_or_else(|| bad("no end"));
    let state = word(0)?;
    if state == 0 {
        return Ok(None);
    }
    let kind = groups::Kind::from_number(state & !SWITCHED_ON)
        .ok_or_else(|| bad("a kind that does not exist"))?;
    let length = usize::try_from(word(1)?).ok().filter(|n| (1..=PARENT_PATH_LIMIT).contains(n));
    let length = length.ok_or_else(|| bad("a path of a length that cannot be"))?;
    let start = (first + 2) * WORD;
    let path = bytes.get(start..start + length).ok_or_else(|| bad("no end"))?;
    // What it says decides which directories are removed.
    let path = PathBuf::from(OsStr::from_bytes(path));
    let plain = path.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain {
        return Err(bad("a path that is not absolute and plain"));
    }
    Ok(Some(Parent { kind, path, switched_on: state & SWITCHED_ON != 0 }))
}

fn parse_record(
    bytes: &[u8],
    layout: Layout,
    index: usize,
) -> Result<Option<AnyRecord>, Malformed> {
    let bad = |what| Malformed::Record { index, what };
    let first = layout.record(index);
    let word = |n: usize| word_at(bytes, first + n).ok_or_else(|| bad("no end"));
    let tag = word(field::STATE)?;
    if tag == State::Blank as u64 {
        return Ok(None);
    }
    let state = match tag & ((1 << kind::SHIFT) - 1) {
        s if s == State::Live as u64 => State::Live,
        s if s == State::Ended as u64 => State::Ended,
        s if s == State::LeftAlone as u64 => State::LeftAlone,
        _ => return Err(bad("a state that does not exist")),
    };
    let ids = word(field::IDS)?;
    let (tid, tgid) = ((ids >> 32) as u32 as i32, ids as u32 as i32);
    let n = word(field::SETS)?;
    // Where the values stand that were set last, newest first.
    let newest = (0..n.min(2)).map(|back| 1 + ((n - 1 - back) % 2) as usize);
    let of_thread = || {
        if tid <= 0 || tgid <= 0 {
            return Err(bad("a thread or process id that cannot be"));
        }
        Ok((ThreadId { tid: Tid(tid), start: word(field::START)? }, Pid(tgid)))
    };
    match tag >> kind::SHIFT {
        kind::MASKS => {
            let (id, tgid) = of_thread()?;
            let (original, set) = parse_masks(bytes, layout, index, newest)?;
            Ok(Some(AnyRecord::Masks(Record { id, tgid, state, original, set })))
        }
        kind::SCHEDULING if layout.version >= 2 => {
            let (id, tgid) = of_thread()?;
            let value = |which| -> Result<Option<Scheduling>, Malformed> {
                let at = Layout::value(0, which, Scheduling::WORDS);
                Ok(Scheduling::from_words([word(at)?, word(at + 1)?]))
            };
            let bad = || bad("a way of scheduling that cannot be");
            let original = value(0)?.ok_or_else(bad)?;
            let mut set = Vec::new();
            for (back, which) in newest.enumerate() {
                match value(which)? {
                    Some(v) => set.push(v),
                    // The older one may be half overwritten.
                    None if back > 0 => {}
                    None => return Err(bad()),
                }
            }
            Ok(Some(AnyRecord::Scheduling(SchedulingRecord { id, tgid, state, original, set })))
        }
        kind::SETTING if layout.version >= 2 => {
            let setting = Setting::from_number(ids >> 32)
                .ok_or_else(|| bad("a setting that does not exist"))?;
            let value = |which| word(Layout::value(0, which, 1));
            let set = newest.map(value).collect::<Result<_, _>>()?;
            let (cpu, original) = (CpuId(ids as u32), value(0)?);
            Ok(Some(AnyRecord::Setting(SettingRecord { setting, cpu, state, original, set })))
        }
        _ => Err(bad("a kind that does not exist")),
    }
}

/// The original mask of a record, and those that were set, newest first.
fn parse_masks(
    bytes: &[u8],
    layout: Layout,
    index: usize,
    newest: impl Iterator<Item = usize>,
) -> Result<(CpuSet, Vec<CpuSet>), Malformed> {
    let bad = |what| Malformed::Record { index, what };
    let first = layout.record(index);
    let mask = |which: usize| -> Result<CpuSet, Malformed> {
        let start = layout.mask(first, which);
        (start..start + layout.mask_words)
            .map(|n| word_at(bytes, n).ok_or_else(|| bad("no end")))
            .collect::<Result<Vec<u64>, _>>()
            .map(|words| CpuSet::from_words(&words))
    };
    let original = mask(0)?;
    if original.is_empty() {
        return Err(bad("an empty original mask"));
    }
    let mut set = Vec::new();
    for (back, which) in newest.enumerate() {
        let m = mask(which)?;
        if !m.is_empty() {
            set.push(m);
        } else if back == 0 {
            return Err(bad("an empty set mask"));
        }
        // The older mask may be half overwritten by one that was never set: it is then no mask of
        // any thread, and an empty one says nothing.
    }
    Ok((original, set))
}

/// A running evenly, as its journal shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// The evenly.
    pub evenly: Process,
    /// The program that it balances, where that is known.
    pub program: Option<Process>,
    /// How many threads it places on each CPU, where that is not 0.
    pub counts: Vec<(CpuId, u16)>,
    /// Whether it is stopped (by a signal or a debugger), or has not been at work for so long that
    /// its guardian gives all masks back.
    pub stands_still: bool,
}

impl Other {
    /// The CPUs on which it places threads.
    #[must_use]
    pub fn cpus(&self) -> CpuSet {
        self.counts.iter().map(|&(cpu, _)| cpu).collect()
    }
}

/// Other evenly processes of the same user that are running now. Journals that cannot be read are
/// passed over: they are not at work.
///
/// # Errors
/// [`JournalError::Io`] where the directory cannot be read.
pub fn others(dir: &StateDir, proc: &Proc) -> Result<Vec<Other>, JournalError> {
    let own = Process::own();
    Ok(dir
        .journals()?
        .iter()
        .filter_map(|path| Header::open(path).ok())
        .filter(|h| {
            !h.clean && h.writer != own && h.is_of_this_boot() && h.is_of_this_pid_namespace()
        })
        .filter_map(|h| {
            Some(Other {
                stands_still: h.stands_still(proc)?,
                evenly: h.writer,
                program: h.program,
                counts: h.counts,
            })
        })
        .collect())
}

/// The header of a journal that somebody else writes, as it is now: for the guardian.
#[derive(Debug)]
pub(crate) struct LiveHeader {
    map: Mapping,
}

impl LiveHeader {
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        // Whole and of this version, before any word of it is believed.
        Header::open(path)?;
        let io = |what, source| JournalError::Io { path: path.to_owned(), what, source };
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file =
            rustix::fs::open(path, flags, Mode::empty()).map_err(|e| io("open it", e.into()))?;
        let map =
            Mapping::new(&file, at::COUNTS * WORD).map_err(|e| io("map it into memory", e))?;
        Ok(Self { map })
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.map.word(at::CLEAN).load(Ordering::Acquire) == 1
    }

    pub(crate) fn heartbeat(&self) -> Nanos {
        Nanos(self.map.word(at::HEARTBEAT).load(Ordering::Relaxed))
    }

    pub(crate) fn period(&self) -> Nanos {
        Nanos(self.map.word(at::PERIOD).load(Ordering::Relaxed))
    }

    /// Raises the generation of releases. Done before the first mask is given back, so that a
    /// writer that is continued in the middle does not take a mask for the program's wish, and
    /// after the last, so that it places again what it placed meanwhile.
    pub(crate) fn raise_released(&self) {
        // AcqRel: masks are set after the first raise and before the second.
        self.map.word(at::RELEASED).fetch_add(1, Ordering::AcqRel);
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

fn word_at(bytes: &[u8], number: usize) -> Option<u64> {
    let start = number.checked_mul(WORD)?;
    let word = bytes.get(start..start.checked_add(WORD)?)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

/// Reads a journal file: a regular one, not through a link, of this user or of root.
fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, JournalError> {
    let io = |what| move |source| JournalError::Io { path: path.to_owned(), what, source };
    // NONBLOCK: a fifo in its place must not hold the caller.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::open(path, flags, Mode::empty())
        .map_err(io::Error::from)
        .map_err(io("open it"))?;
    let file = File::from(file);
    let meta = file.metadata().map_err(io("look at it"))?;
    let uid = rustix::process::geteuid().as_raw();
    if !meta.is_file() || (meta.uid() != uid && meta.uid() != 0) {
        let found = if meta.is_file() { "another user's file" } else { "no regular file" };
        return Err(io("trust it")(io::Error::other(format!("it is {found}"))));
    }
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(io("read it"))?;
    Ok(bytes)
}

/// Words of the kernel's own masks.
fn kernel_mask_words() -> usize {
    let mut words = [0u64; MAX_MASK_WORDS];
    // SAFETY: the kernel writes at most the given number of bytes into the array, which is live
    // and large enough, and returns the size of its masks.
    let n = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&words), words.as_mut_ptr())
    };
    // It fails only where masks are wider than the array; the widest is then used.
    usize::try_from(n).map_or(MAX_MASK_WORDS, |bytes| bytes.div_ceil(WORD).max(1))
}

/// The id of this boot; 0 where /proc does not tell.
fn boot_id() -> u128 {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .ok()
        .and_then(|t| u128::from_str_radix(&t.trim().replace('-', ""), 16).ok())
        .unwrap_or(0)
}

/// Inode of the process id name space; 0 where /proc does not tell.
fn pid_namespace() -> u64 {
    fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn thread(tid: i32) -> ThreadId {
        ThreadId { tid: Tid(tid), start: 1_000 + tid as u64 }
    }

    fn fresh() -> (tempfile::TempDir, StateDir, Journal) {
        let tmp = tempfile::tempdir().unwrap();
        let dir = StateDir::at(&tmp.path().join("state")).unwrap();
        let journal = Journal::create(&dir, None).unwrap();
        (tmp, dir, journal)
    }

    fn read(journal: &Journal) -> JournalView {
        JournalView::open(journal.path()).unwrap()
    }

    #[test]
    fn what_is_recorded_is_read() {
        let (_tmp, _dir, journal) = fresh();
        let program = Process { pid: Pid(77), start: 5 };
        journal.set_program(program);
        journal.set_period(Nanos::from_millis(20));
        journal.heartbeat(Nanos(123));
        journal.publish_counts(&[(CpuId(1), 3), (CpuId(0), 0), (CpuId(u32::MAX), 9)]);
        let mut slot = journal.meet(thread(78), Pid(77), &cpus("0-1")).unwrap();
        journal.about_to_set(&mut slot, &cpus("1"));
        journal.about_to_set(&mut slot, &cpus("0"));
        let view = read(&journal);
        assert_eq!(view.header.writer, Process::own());
        assert_eq!(view.header.program, Some(program));
        assert_eq!((view.header.heartbeat, view.header.period), (Nanos(123), Nanos(20_000_000)));
        assert_eq!(view.header.counts, [(CpuId(1), 3)]);
        assert!(view.header.is_of_this_boot() && view.header.is_of_this_pid_namespace());
        assert!(!view.header.clean);
        let record = Record {
            id: thread(78),
            tgid: Pid(77),
            state: State::Live,
            original: cpus("0-1"),
            set: vec![cpus("0"), cpus("1")],
        };
        assert_eq!(view.records, [record]);
    }

    #[test]
    fn the_two_newest_masks_are_ours() {
        let (_tmp, _dir, journal) = fresh();
        let mut slot = journal.meet(thread(5), Pid(5), &cpus("0-3")).unwrap();
        assert!(!journal.is_ours(&slot, &cpus("0-3")));
        journal.about_to_set(&mut slot, &cpus("1"));
        assert!(journal.is_ours(&slot, &cpus("1")));
        journal.about_to_set(&mut slot, &cpus("2"));
        journal.about_to_set(&mut slot, &cpus("3"));
        let ours: Vec<bool> =
            ["1", "2", "3"].iter().map(|c| journal.is_ours(&slot, &cpus(c))).collect();
        assert_eq!(ours, [false, true, true]);
        assert!(!journal.is_ours(&slot, &cpus("3,16000")));
    }

    #[test]
    fn a_mask_that_could_not_be_set_does_not_push_out_the_one_in_force() {
        let (_tmp, _dir, journal) = fresh();
        let mut slot = journal.meet(thread(5), Pid(5), &cpus("0-3")).unwrap();
        journal.about_to_set(&mut slot, &cpus("1"));
        for refused in ["2", "3", "0"] {
            journal.about_to_set(&mut slot, &cpus(refused));
            journal.not_set(&mut slot);
        }
        // Dying between the record and the call: the mask in force must still be known.
        journal.about_to_set(&mut slot, &cpus("2"));
        assert_eq!(read(&journal).records[0].set, [cpus("2"), cpus("1")]);
    }

    #[test]
    fn freed_records_are_used_again_and_the_oldest_first() {
        let (_tmp, _dir, journal) = fresh();
        let slots: Vec<Slot> = (1..=FIRST_CAPACITY as i32)
            .map(|tid| journal.meet(thread(tid), Pid(1), &cpus("0")).unwrap())
            .collect();
        for slot in slots.into_iter().take(2) {
            journal.forget(slot);
        }
        assert_eq!(read(&journal).records[0].state, State::Ended);
        assert_eq!(journal.meet(thread(9_001), Pid(1), &cpus("0")).unwrap(), Slot(0));
        let records = read(&journal).records;
        assert_eq!((records[0].id, records[0].state), (thread(9_001), State::Live));
        assert_eq!((records[1].id, records[1].state), (thread(2), State::Ended));
        assert_eq!(records.len(), FIRST_CAPACITY);
    }

    #[test]
    fn it_grows_to_its_limit_and_then_says_that_it_is_full() {
        let (_tmp, _dir, journal) = fresh();
        let mut last = None;
        for tid in 1..=RECORD_LIMIT as i32 {
            last = Some(journal.meet(thread(tid), Pid(1), &cpus("0-1")).unwrap());
        }
        let full = journal.meet(thread(i32::MAX), Pid(1), &cpus("0-1")).unwrap_err();
        assert!(matches!(full, JournalError::Full { .. }), "{full}");
        let view = read(&journal);
        assert_eq!(view.records.len(), RECORD_LIMIT);
        assert_eq!(view.records[RECORD_LIMIT - 1].id, thread(RECORD_LIMIT as i32));
        journal.forget(last.unwrap());
        journal.meet(thread(i32::MAX), Pid(1), &cpus("0-1")).unwrap();
    }

    #[test]
    fn a_record_that_is_being_written_is_none_and_a_torn_older_mask_is_harmless() {
        let (_tmp, _dir, journal) = fresh();
        let mut slot = journal.meet(thread(5), Pid(5), &cpus("0-3")).unwrap();
        journal.about_to_set(&mut slot, &cpus("1"));
        let second = journal.meet(thread(6), Pid(5), &cpus("0-3")).unwrap();
        let (first, w) = (journal.layout.record(slot.0), journal.layout.mask_words);
        // Died in the middle of meeting: the state is not yet stored.
        let state = journal.map.word(journal.layout.record(second.0));
        state.store(State::Blank as u64, Ordering::Relaxed);
        // Died in the middle of recording a mask: all its words are zero, or half of them stored.
        for torn in [0, 0b100] {
            journal.map.word(first + field::MASKS + 2 * w).store(torn, Ordering::Relaxed);
            let records = read(&journal).records;
            assert_eq!(records.len(), 1);
            assert_eq!(records[0].set, [cpus("1")]);
        }
    }

    #[test]
    fn balancers_use_it_at_the_same_time() {
        let (_tmp, _dir, journal) = fresh();
        std::thread::scope(|s| {
            for balancer in 0..4 {
                let journal = &journal;
                s.spawn(move || {
                    let mut kept = Vec::new();
                    for i in 1..=2_000 {
                        let tid = balancer * 10_000 + i;
                        let mut slot = journal.meet(thread(tid), Pid(1), &cpus("0-63")).unwrap();
                        journal.about_to_set(&mut slot, &CpuSet::single(CpuId((tid % 64) as u32)));
                        if i % 2 == 0 {
                            journal.forget(slot);
                        } else {
                            kept.push(slot);
                        }
                    }
                    kept
                });
            }
        });
        let mut live: Vec<Record> =
            read(&journal).records.into_iter().filter(|r| r.state == State::Live).collect();
        live.sort_by_key(|r| r.id);
        let expected: Vec<i32> =
            (0..4).flat_map(|b| (1..=2_000).step_by(2).map(move |i| b * 10_000 + i)).collect();
        assert_eq!(live.iter().map(|r| r.id.tid.0).collect::<Vec<_>>(), expected);
        for r in live {
            assert_eq!(r.id, thread(r.id.tid.0));
            assert_eq!(r.set, [CpuSet::single(CpuId((r.id.tid.0 % 64) as u32))]);
        }
    }

    #[test]
    fn finishing_removes_the_file_and_tells_the_guardian() {
        let (_tmp, _dir, journal) = fresh();
        let live = LiveHeader::open(journal.path()).unwrap();
        assert!(!live.is_clean());
        let generation = journal.released_generation();
        live.raise_released();
        assert_eq!(journal.released_generation(), generation + 1);
        journal.finish().unwrap();
        assert!(live.is_clean() && !journal.path().exists());
        journal.finish().unwrap();
    }

    #[test]
    fn a_process_keeps_one_journal_but_replaces_that_of_another_boot() {
        let (_tmp, dir, journal) = fresh();
        assert!(matches!(Journal::create(&dir, None), Err(JournalError::Exists { .. })));
        assert_eq!(dir.journals().unwrap(), [journal.path()]);
        journal.map.word(at::BOOT_ID).fetch_xor(1, Ordering::Relaxed);
        let second = Journal::create(&dir, None).unwrap();
        assert!(Header::open(second.path()).unwrap().is_of_this_boot());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn directories_that_others_could_write_are_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let tmp = tempfile::tempdir().unwrap();
        let made = StateDir::at(&tmp.path().join("a/b")).unwrap();
        assert_eq!(fs::metadata(made.path()).unwrap().mode() & 0o777, 0o700);
        let link = tmp.path().join("link");
        symlink(made.path(), &link).unwrap();
        let e = StateDir::at(&link).unwrap_err().to_string();
        assert!(e.contains("not a directory") && e.contains("EVENLY_STATE_DIR"), "{e}");
        fs::set_permissions(made.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let e = StateDir::at(made.path()).unwrap_err().to_string();
        assert!(e.contains("its mode is 777"), "{e}");
        let file = tmp.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(StateDir::at(&file).is_err());
        assert!(StateDir::at(&file.join("below")).is_err());
    }

    #[test]
    fn a_journal_that_cannot_be_written_is_an_error_that_names_it() {
        let (_tmp, dir, journal) = fresh();
        drop(journal);
        fs::remove_dir_all(dir.path()).unwrap();
        let e = Journal::create(&dir, None).unwrap_err().to_string();
        assert!(e.contains(dir.path().to_str().unwrap()) && e.contains("EVENLY_STATE_DIR"), "{e}");
    }

    #[test]
    fn links_fifos_and_directories_are_not_read() {
        use std::os::unix::fs::symlink;
        let (_tmp, dir, journal) = fresh();
        let link = dir.path().join("1-1.journal");
        symlink(journal.path(), &link).unwrap();
        assert!(JournalView::open(&link).is_err());
        let fifo = dir.path().join("2-2.journal");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        assert!(JournalView::open(&fifo).is_err());
        assert!(JournalView::open(dir.path()).is_err());
    }

    /// The bytes of a journal with three threads.
    fn sample() -> Vec<u8> {
        let (_tmp, _dir, journal) = fresh();
        for tid in 1..=3 {
            let mut slot = journal.meet(thread(tid), Pid(1), &cpus("0-1")).unwrap();
            journal.about_to_set(&mut slot, &cpus("1"));
        }
        fs::read(journal.path()).unwrap()
    }

    fn with_word(bytes: &[u8], number: usize, value: u64) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        bytes[number * WORD..][..WORD].copy_from_slice(&value.to_ne_bytes());
        bytes
    }

    #[test]
    fn malformed_journals_are_refused_by_name_of_the_field() {
        let good = sample();
        let why = |number, value| JournalView::parse(&with_word(&good, number, value)).unwrap_err();
        assert_eq!(why(at::MAGIC, 0), Malformed::Magic);
        assert_eq!(why(at::VERSION, 99), Malformed::Version { found: 99 });
        for (number, value, field) in [
            (at::MASK_WORDS, 0, "mask words"),
            (at::MASK_WORDS, u64::MAX, "mask words"),
            (at::HEADER_BYTES, 8, "header length"),
            (at::RECORD_BYTES, 7, "record length"),
            (at::CAPACITY, u64::MAX, "capacity"),
            (at::WRITER_PID, 0, "process id of evenly"),
            (at::PROGRAM_PID, 1 << 40, "process id of the program"),
            (at::CLEAN, 2, "clean"),
        ] {
            match why(number, value) {
                Malformed::Field { field: found, .. } => assert_eq!(found, field),
                other => panic!("{field}: {other}"),
            }
        }
        assert!(matches!(why(at::CAPACITY, 1_000), Malformed::Short { .. }));
        let layout = Layout::newest(kernel_mask_words());
        let record = layout.record(1);
        for (number, value) in [
            (record + field::STATE, 4),
            (record + field::STATE, 3 << kind::SHIFT | 1),
            (record + field::STATE, kind::SCHEDULING << kind::SHIFT | 1),
            (record + field::IDS, 0),
            (record + field::IDS, u64::MAX),
            (layout.mask(record, 0), 0),
            (layout.mask(record, 1), 0),
        ] {
            let e = why(number, value);
            assert!(matches!(e, Malformed::Record { index: 1, .. }), "{e}");
        }
    }

    /// `tools/fuzz/seeds/journal/two-threads` was written by evenly when journals had version 1.
    #[test]
    fn a_journal_of_the_first_version_is_read() {
        let bytes = include_bytes!("../../tools/fuzz/seeds/journal/two-threads");
        let view = JournalView::parse(bytes).unwrap();
        assert_eq!(word_at(bytes, at::VERSION), Some(1));
        assert_eq!((view.header.layout.record_words(), view.header.parents.len()), (16, 0));
        assert_eq!(view.records.len(), 2);
        assert_eq!((view.scheduling.len(), view.settings.len()), (0, 0));
        let masks = view.records.iter().map(|r| (r.id.tid.0, r.original.clone(), r.set.clone()));
        assert_eq!(
            masks.collect::<Vec<_>>(),
            [(77, cpus("0-1"), vec![cpus("1")]), (78, cpus("0-1"), vec![])]
        );
        // Records of a later kind are none of it.
        let layout = view.header.layout;
        let tagged = with_word(bytes, layout.record(0), kind::SCHEDULING << kind::SHIFT | 1);
        assert!(matches!(
            JournalView::parse(&tagged),
            Err(Malformed::Record { index: 0, what: "a kind that does not exist" })
        ));
    }

    fn scheduled(nice: i8) -> Scheduling {
        Scheduling { policy: 0, nice, priority: 0, reset_on_fork: false, slice: Nanos(3_000_000) }
    }

    #[test]
    fn scheduling_settings_and_directories_are_read_back() {
        let (_tmp, _dir, journal) = fresh();
        let mut slot = journal.meet_scheduling(thread(5), Pid(4), &scheduled(0)).unwrap();
        for nice in [3, 4, 5] {
            journal.about_to_schedule(&mut slot, &scheduled(nice));
        }
        journal.about_to_schedule(&mut slot, &scheduled(9));
        journal.not_set(&mut slot);
        let highest = Setting::HighestFrequency;
        let mut knob = journal.meet_setting(highest, CpuId(1), 3_000_000).unwrap();
        journal.about_to_write(&mut knob, 2_000_000);
        let parents = [groups::Kind::Shares, groups::Kind::Weight].map(|kind| Parent {
            kind,
            path: PathBuf::from(format!("/sys/fs/cgroup/a{}", "b".repeat(kind as usize * 9))),
            switched_on: kind == groups::Kind::Weight,
        });
        for parent in &parents {
            journal.about_to_make_groups(parent).unwrap();
        }
        let view = read(&journal);
        assert_eq!(view.header.parents, parents);
        let [s] = &view.scheduling[..] else { panic!("{view:?}") };
        assert_eq!((s.id, s.tgid, s.state), (thread(5), Pid(4), State::Live));
        // What was refused is not the newest; it may stand in place of the one before.
        assert_eq!((s.original, s.set[0]), (scheduled(0), scheduled(5)));
        let [k] = &view.settings[..] else { panic!("{view:?}") };
        assert_eq!((k.setting, k.cpu, k.original), (highest, CpuId(1), 3_000_000));
        assert_eq!((k.state, &k.set[..]), (State::Live, &[2_000_000][..]));
        assert!(view.records.is_empty());
        // A freed record keeps its kind, and may become one of another.
        journal.forget(slot);
        assert_eq!(read(&journal).scheduling[0].state, State::Ended);
        // No room: for a fifth directory, and for a path that is too long.
        let long = PathBuf::from(format!("/{}", "x".repeat(PARENT_PATH_LIMIT)));
        assert!(
            journal.about_to_make_groups(&Parent { path: long, ..parents[0].clone() }).is_err()
        );
        journal.about_to_make_groups(&parents[0]).unwrap();
        journal.about_to_make_groups(&parents[0]).unwrap();
        assert!(journal.about_to_make_groups(&parents[0]).is_err());
    }

    #[test]
    fn directories_that_could_lead_elsewhere_are_refused() {
        let (_tmp, _dir, journal) = fresh();
        let path = PathBuf::from("/sys/fs/cgroup/one");
        let kind = groups::Kind::Shares;
        journal.about_to_make_groups(&Parent { kind, path, switched_on: false }).unwrap();
        let good = fs::read(journal.path()).unwrap();
        let first = journal.layout.first_parent();
        let damage = |word, value| JournalView::parse(&with_word(&good, first + word, value));
        for (word, value) in [
            (0, 9),
            (1, 0),
            (1, 9_999),
            (2, u64::from_ne_bytes(*b"/a/../bc")),
            (2, u64::from_ne_bytes(*b"sys/fs/c")),
        ] {
            let e = damage(word, value).unwrap_err();
            assert!(matches!(e, Malformed::Parent { index: 0, .. }), "{e}");
        }
    }

    #[test]
    fn a_cut_journal_is_refused_at_any_length() {
        let good = sample();
        assert!(JournalView::parse(&good).is_ok());
        for end in (0..good.len()).step_by(7) {
            assert!(JournalView::parse(&good[..end]).is_err(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(JournalView::parse(&bytes).is_err());
        }

        #[test]
        fn damage_never_panics(
            changes in proptest::collection::vec((0usize..64, any::<u64>(), any::<bool>()), 1..6),
            cut in any::<proptest::sample::Index>(),
        ) {
            use std::sync::OnceLock;
            static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
            let mut bytes = SAMPLE.get_or_init(sample).clone();
            for (number, value, small) in changes {
                bytes = with_word(&bytes, number, if small { value % 5 } else { value });
            }
            bytes.truncate(cut.index(bytes.len()) + 1);
            let _ = JournalView::parse(&bytes);
        }

        #[test]
        fn any_history_of_masks_is_read_back(
            history in proptest::collection::vec((0u32..64, any::<bool>()), 1..30),
        ) {
            let (_tmp, _dir, journal) = fresh();
            let mut slot = journal.meet(thread(7), Pid(7), &cpus("0-63")).unwrap();
            // What is in force, and what is recorded before a call that may fail.
            let mut in_force: Option<CpuSet> = None;
            for (cpu, succeeds) in history {
                let mask = CpuSet::single(CpuId(cpu));
                journal.about_to_set(&mut slot, &mask);
                if succeeds {
                    in_force = Some(mask);
                } else {
                    journal.not_set(&mut slot);
                }
                let set = &read(&journal).records[0].set;
                prop_assert_eq!(set.first(), in_force.as_ref());
            }
        }
    }
}

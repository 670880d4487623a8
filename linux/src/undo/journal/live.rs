//! The journal of an evenly that is at work, seen by others.

use super::file::leads_to;
use super::layout::{Mapping, WORD, at};
use super::{Demand, Header, JournalError, JournalView, Process, StateDir, remove};
use crate::proc::Proc;
use evenly_model::{CpuId, CpuSet, Nanos};
use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// The least time without a heartbeat after which the guardian acts.
const LEAST_PATIENCE: Nanos = Nanos::from_millis(2_000);
/// The same, in balancing periods.
const PATIENCE_PERIODS: f64 = 20.0;

/// A running evenly, as its journal shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// The evenly process that writes the journal.
    pub evenly: Process,
    /// The program that it balances, where that is known.
    pub program: Option<Process>,
    /// How many threads it places on each CPU, where that is not 0.
    pub counts: Vec<(CpuId, u16)>,
    /// What it says of the program's need of CPUs.
    pub demand: Demand,
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
                demand: h.demand,
            })
        })
        .collect())
}

/// How long the guardian waits for a heartbeat.
pub(crate) fn patience(period: Nanos) -> Nanos {
    LEAST_PATIENCE.max(period.scale(PATIENCE_PERIODS))
}

/// Whether a process is the guardian of this journal, as [`Guardian`](crate::guardian::Guardian) starts
/// one. The journal may have been made anew in another directory since: the name of its file says whose
/// it is.
pub(crate) fn is_watched(proc: &Proc, journal: &Path) -> bool {
    let is_mark = |words: &[OsString]| {
        words[0] == "guardian"
            && words[1] == "--journal"
            && Path::new(&words[2]).file_name() == journal.file_name()
    };
    proc.processes().into_iter().any(|pid| proc.command_line(pid).windows(3).any(is_mark))
}

/// A journal that another process writes, as it is now: for the guardian. It holds the file, so that what
/// becomes of the name does not matter.
#[derive(Debug)]
pub(crate) struct LiveJournal {
    path: PathBuf,
    file: OwnedFd,
    /// The first words of the header.
    map: Mapping,
}

impl LiveJournal {
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        // Whole and of this version, before any word of it is believed.
        Header::open(path)?;
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| JournalError::Io {
            path: path.to_owned(),
            what: "open it",
            source: e.into(),
        })?;
        Self::of(file, path.to_owned())
    }

    /// One that its writer has handed over, with the name that it had then.
    pub(crate) fn of(file: OwnedFd, path: PathBuf) -> Result<Self, JournalError> {
        JournalView::read(file.as_fd(), &path)?;
        let map = Mapping::new(&file, at::COUNTS * WORD).map_err(|source| JournalError::Io {
            path: path.clone(),
            what: "map it into memory",
            source,
        })?;
        Ok(Self { path, file, map })
    }

    pub(crate) fn view(&self) -> Result<JournalView, JournalError> {
        JournalView::read(self.file.as_fd(), &self.path)
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

    /// Takes the place of an older one of which it is a copy. Where threads were released by the older one
    /// while it was copied, its writer learns of it here.
    pub(crate) fn follows(&self, older: &Self) {
        let released = |of: &Self| of.map.word(at::RELEASED).load(Ordering::Acquire);
        if released(self) < released(older) {
            self.raise_released();
        }
    }

    /// Says that everything is undone, of one whose writer is dead, and removes its name.
    pub(crate) fn finish(&self) -> Result<(), JournalError> {
        // Another name may lead to it, or the same one later: file systems can be mounted again.
        self.map.word(at::CLEAN).store(1, Ordering::Release);
        if leads_to(&self.path, self.file.as_fd()) { remove(&self.path) } else { Ok(()) }
    }
}

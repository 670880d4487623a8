//! Giving threads the masks back that they had, from a journal: what the guardian does when
//! evenly is gone, what `evenly restore` does when both are, and what evenly does itself at the
//! end. Shares of the machine that were changed are undone with them (`share_undo`).
//!
//! Invariant: only a mask that is still ours is changed (promise P4), and it is only ever changed
//! to one that holds it.
//!
//! # Whose mask is it?
//! - A thread with a record, alive with the recorded start time: ours if its mask is one of the two
//!   that were set last. Any other mask is the program's own.
//! - A thread without a record, in a recorded process or a descendant of one: ours if its mask was
//!   set on an older thread of its process or of an ancestor, and narrowed that thread: it was
//!   inherited between two scans.
//! - A process whose leader carries a mask that was set on another thread which is gone now: that
//!   thread has called exec and has taken the leader's id and start time (execve(2)).
//!
//! A cpuset or an offline CPU trims masks: ours is also what the trimming leaves of one that was
//! set, or all CPUs that can be used where it leaves none.
//!
//! # Known gaps
//! A process whose parent has ended is no longer seen to descend from it, and a mask that was
//! inherited more than two settings ago is no longer known. Both need a thread that was created
//! since the last scan before evenly died.

mod journals;
mod masks;

use crate::affinity;
use crate::journal::{self, JournalView};
use crate::limits::Limits;
use crate::proc::Proc;
use crate::share_undo::{self, ShareReport};
use evenly_model::{CpuSet, Pid, ThreadId, Tid};
use std::io;

pub use journals::{Fate, Left, Living, end, left, restore_all};
pub(crate) use journals::{finish, holds, release_living};
pub(crate) use masks::is_left_of;
pub use masks::restore;

/// What restoring needs of a machine.
pub trait Affinity {
    /// The mask of a thread.
    ///
    /// # Errors
    /// As [`affinity::get`].
    fn get(&mut self, tid: Tid) -> io::Result<CpuSet>;

    /// Sets the mask of a thread.
    ///
    /// # Errors
    /// As [`affinity::set`].
    fn set(&mut self, tid: Tid, mask: &CpuSet) -> io::Result<()>;

    /// The CPUs that a process can use now: online and in its cpuset. None where that is
    /// unknown.
    fn usable(&mut self, process: Pid) -> Option<CpuSet>;
}

/// The machine on which this runs, by system calls.
#[derive(Debug, Default)]
pub struct System {
    limits: Limits,
}

impl Affinity for System {
    fn get(&mut self, tid: Tid) -> io::Result<CpuSet> {
        affinity::get(tid)
    }

    fn set(&mut self, tid: Tid, mask: &CpuSet) -> io::Result<()> {
        affinity::set(tid, mask)
    }

    fn usable(&mut self, process: Pid) -> Option<CpuSet> {
        self.limits.cpuset(process).ok()
    }
}

/// Gives one thread its original mask back.
///
/// A thread that could use everything is made free again, as it was: since kernel 6.2 a mask that
/// was set is remembered as requested and cuts every later cpuset, so a thread with a mask of all CPUs
/// of today would not follow its cpuset when that grows.
///
/// # Errors
/// As [`Affinity::set`].
pub fn give_back(
    machine: &mut dyn Affinity,
    tid: Tid,
    original: &CpuSet,
    usable: Option<&CpuSet>,
) -> io::Result<()> {
    if usable == Some(original) {
        machine.set(tid, &CpuSet::from_words(&[u64::MAX; journal::MAX_MASK_WORDS]))
    } else {
        machine.set(tid, original)
    }
}

/// A thread whose mask is ours and could not be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The thread that still has the mask.
    pub id: ThreadId,
    /// The mask that it should have.
    pub wanted: CpuSet,
    /// Why it does not have that mask.
    pub reason: String,
}

/// What restoring did. Each thread is counted once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestoreReport {
    /// Threads that have their original mask again, because it was set now.
    pub restored: usize,
    /// Threads whose mask is the program's own, and was left.
    pub foreign: usize,
    /// Recorded threads that had their original mask already.
    pub unchanged: usize,
    /// Recorded threads that have ended.
    pub gone: usize,
    /// Threads whose mask is ours and could not be given back.
    pub failed: Vec<Failure>,
    /// What was given back besides masks.
    pub shares: ShareReport,
}

impl RestoreReport {
    /// Whether nothing is left that should have been given back.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.failed.is_empty() && self.shares.failed.is_empty()
    }

    /// How much could not be given back, and the first of it.
    #[must_use]
    pub fn failures(&self) -> Option<(usize, String)> {
        let mask = self.failed.first().map(|f| format!("{}: {}", f.id, f.reason));
        let first = mask.or_else(|| self.shares.failed.first().cloned())?;
        Some((self.failed.len() + self.shares.failed.len(), first))
    }
}

/// [`restore`], and everything else that the journal says.
fn restore_everything(view: &JournalView, proc: &Proc) -> RestoreReport {
    let mut report = restore(view, proc, &mut System::default());
    report.shares = share_undo::undo(view, proc);
    report
}

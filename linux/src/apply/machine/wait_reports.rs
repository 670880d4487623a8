//! What threads report of their own waiting, from inside their program.
//!
//! Invariant: a report counts for the thread that made it, never for a later one with the same id.

use crate::clock::now;
use evenly_engine::Waiting;
use evenly_model::{Nanos, ThreadId, Tid};
use std::collections::HashMap;

/// What a thread reports of its own waiting, from inside its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Testimony {
    /// Which thread.
    pub tid: Tid,
    /// When it said so first, since the host was started: it is older than that. One that is younger is
    /// another with the same number.
    pub since: Nanos,
    /// How it has waited.
    pub waiting: Waiting,
}

/// Reads what all threads of a program report at this moment. Nothing is added where nothing
/// can be read any more.
pub type Testimonies = Box<dyn FnMut(Nanos, &mut Vec<Testimony>) + Send>;

/// The last reports of all threads that report their waiting.
pub(crate) struct WaitReports {
    read: Testimonies,
    all: Vec<Testimony>,
    by_tid: HashMap<Tid, usize>,
    ticks_per_second: u64,
}

impl WaitReports {
    pub(crate) fn new(read: Testimonies) -> Self {
        let ticks_per_second = rustix::param::clock_ticks_per_second().max(1);
        Self { read, all: Vec::new(), by_tid: HashMap::new(), ticks_per_second }
    }

    /// Reads the reports as they are now.
    pub(crate) fn refresh(&mut self) {
        self.all.clear();
        (self.read)(now(), &mut self.all);
        self.by_tid.clear();
        self.by_tid.extend(self.all.iter().enumerate().map(|(at, t)| (t.tid, at)));
    }

    /// The report of this thread.
    pub(crate) fn of(&self, id: ThreadId) -> Option<Waiting> {
        let said = self.all.get(*self.by_tid.get(&id.tid)?)?;
        // Rounded down, as the kernel does.
        let per_second = u128::from(self.ticks_per_second);
        let started = u128::from(id.start) * 1_000_000_000 / per_second;
        (started <= u128::from(said.since.0)).then_some(said.waiting)
    }
}

impl std::fmt::Debug for WaitReports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitReports").field("all", &self.all).finish_non_exhaustive()
    }
}

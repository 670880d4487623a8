//! What threads report of their own waiting, from inside their program.
//!
//! Invariant: a report counts for the thread that made it, never for a later one with the same id.

use crate::clock::{now, ticks_per_second};
use evenly_engine::Waiting;
use evenly_model::{Nanos, ThreadId, Tid};
use std::collections::HashMap;

/// What a thread reports of its own waiting, from inside its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReportedWait {
    /// The id of the thread that reports.
    pub tid: Tid,
    /// When it reported first, since the host was started. A thread that started later is another one with
    /// the same id.
    pub since: Nanos,
    /// How it has waited.
    pub waiting: Waiting,
}

/// Reads what all threads of a program report at this moment. Nothing is added where nothing
/// can be read any more.
pub type ReadWaitReports = Box<dyn FnMut(Nanos, &mut Vec<ReportedWait>) + Send>;

/// The last reports of all threads that report their waiting.
pub(crate) struct WaitReports {
    read: ReadWaitReports,
    all: Vec<ReportedWait>,
    by_tid: HashMap<Tid, usize>,
    ticks_per_second: u64,
}

impl WaitReports {
    pub(crate) fn new(read: ReadWaitReports) -> Self {
        let ticks_per_second = ticks_per_second();
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
        let report = self.all.get(*self.by_tid.get(&id.tid)?)?;
        // Rounded down, as the kernel does.
        let per_second = u128::from(self.ticks_per_second);
        let started = u128::from(id.start) * 1_000_000_000 / per_second;
        (started <= u128::from(report.since.0)).then_some(report.waiting)
    }
}

impl std::fmt::Debug for WaitReports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitReports").field("all", &self.all).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(tid: i32, start: u64) -> ThreadId {
        ThreadId { tid: Tid(tid), start }
    }

    /// Would catch: waiting that is booked for a thread which only has the id of the one that reported, and
    /// reports that outlive their thread.
    #[test]
    fn a_report_counts_for_the_thread_that_made_it_and_as_long_as_it_is_there() {
        let ticks = ticks_per_second();
        let mut there = true;
        let since = Nanos::from_millis(10_000);
        let mut reports = WaitReports::new(Box::new(move |_, out| {
            if std::mem::take(&mut there) {
                out.push(ReportedWait { tid: Tid(7), since, waiting: Waiting::default() });
            }
        }));
        assert_eq!(reports.of(id(7, 1)), None);
        reports.refresh();
        assert!(reports.of(id(7, 1)).is_some() && reports.of(id(7, 10 * ticks)).is_some());
        assert_eq!(reports.of(id(7, 10 * ticks + 1)), None, "it started after the report");
        assert_eq!(reports.of(id(8, 1)), None);
        reports.refresh();
        assert_eq!(reports.of(id(7, 1)), None);
    }
}

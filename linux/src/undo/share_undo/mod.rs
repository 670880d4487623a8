//! Giving back what was changed of shares, from a journal: for the guardian, `evenly restore` and the end
//! of a run.
//!
//! Invariant: only what is still ours is changed. Of how a thread is scheduled each part (nice value,
//! slice, class) is judged on its own: it is ours where it is one of the two that were set last and
//! differs from the original one.
//!
//! A thread without a record, in a recorded process or a descendant of one, has inherited its part from
//! an older thread where it is one that was set on that. Control groups need no such thoughts: whatever
//! is found in a group of ours goes to the group above.

pub(crate) mod groups;

use crate::descent::{Tree, is_alive, tree};
use crate::journal::{JournalView, RecordState, SchedulingRecord};
use crate::proc::Proc;
use crate::sched::{self, Scheduling};
use evenly_model::{Nanos, Pid, ThreadId};
use std::collections::{BTreeMap, BTreeSet};

/// The most passes over all threads, as many as for masks.
const PASSES: usize = 5;

/// What undoing shares did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShareReport {
    /// Threads that are scheduled as before, because that was set now.
    pub restored: usize,
    /// Threads in whose scheduling something is as the program chose, and was left.
    pub foreign: usize,
    /// Control groups that were removed, their threads back in the group above.
    pub groups: usize,
    /// What could not be given back, and why.
    pub failed: Vec<String>,
}

/// Undoes what a journal says of shares, on this machine.
pub(crate) fn undo(view: &JournalView, proc: &Proc) -> ShareReport {
    let mut report = ShareReport::default();
    if !view.scheduling.is_empty() {
        scheduling(view, proc, false, &mut report);
    }
    for parent in &view.header.parents {
        let done = groups::remove_all(parent, view.header.writer);
        report.groups += done.removed;
        report.failed.extend(done.failed);
    }
    report
}

/// What [`undo`] would do now. Nothing is changed.
pub(crate) fn left(view: &JournalView, proc: &Proc) -> ShareReport {
    let mut report = ShareReport::default();
    if !view.scheduling.is_empty() {
        scheduling(view, proc, true, &mut report);
    }
    let writer = view.header.writer;
    report.groups = view.header.parents.iter().map(|parent| groups::count(parent, writer)).sum();
    report
}

fn scheduling(view: &JournalView, proc: &Proc, only_looks: bool, report: &mut ShareReport) {
    let records = &view.scheduling;
    let base = if records.iter().any(|r| r.set.iter().any(|s| s.slice != r.original.slice)) {
        sched::base_slice()
    } else {
        None
    };
    let work = Work { records, proc, base: base.unwrap_or(Nanos::ZERO), only_looks };
    let (mut done, mut foreign) = (BTreeSet::new(), BTreeSet::new());
    let mut failed = BTreeMap::new();
    // Threads are created while others are restored, and inherit.
    for _ in 0..PASSES {
        let before = done.len();
        work.pass(&mut done, &mut foreign, &mut failed);
        if done.len() == before {
            break;
        }
    }
    report.restored += done.len();
    report.foreign += foreign.len();
    report.failed.extend(failed.into_values());
}

struct Work<'a> {
    records: &'a [SchedulingRecord],
    proc: &'a Proc,
    base: Nanos,
    /// Whether nothing is to be set.
    only_looks: bool,
}

impl Work<'_> {
    fn pass(
        &self,
        done: &mut BTreeSet<ThreadId>,
        foreign: &mut BTreeSet<ThreadId>,
        failed: &mut BTreeMap<ThreadId, String>,
    ) {
        let mut first_starts: BTreeMap<Pid, u64> = BTreeMap::new();
        for r in self.records {
            let start = first_starts.entry(r.tgid).or_insert(u64::MAX);
            *start = r.id.start.min(*start);
        }
        let tree = tree(self.proc, &first_starts);
        // Several mechanisms have a record each of one thread.
        let mut by_thread: BTreeMap<ThreadId, Vec<&SchedulingRecord>> = BTreeMap::new();
        for r in self.records.iter().filter(|r| r.state != RecordState::Ended) {
            by_thread.entry(r.id).or_default().push(r);
        }
        for (id, records) in by_thread {
            if !is_alive(self.proc, id) || done.contains(&id) {
                continue;
            }
            let Ok(found) = sched::get(id.tid) else { continue };
            let ours = records.iter().copied().filter(|r| r.state == RecordState::Live);
            // A thread that called exec has become the leader.
            let leader =
                records.iter().find(|r| id.tid.0 == r.tgid.0 && r.state == RecordState::Live);
            let to = back(&found, ours).or_else(|| self.of_gone(leader?, &found));
            let after = to.unwrap_or(found);
            if records.iter().any(|r| is_foreign(&after, r)) {
                foreign.insert(id);
            }
            if let Some(to) = to {
                self.set(id, &found, &to, done, failed);
            }
        }
        self.inherited(&tree, done, failed);
    }

    /// What a leader has that took the place of a thread which is gone now.
    fn of_gone(&self, leader: &SchedulingRecord, found: &Scheduling) -> Option<Scheduling> {
        let gone = self
            .records
            .iter()
            .filter(|r| r.tgid == leader.tgid && r.id != leader.id && !is_alive(self.proc, r.id));
        back(found, gone)
    }

    fn inherited(
        &self,
        tree: &Tree,
        done: &mut BTreeSet<ThreadId>,
        failed: &mut BTreeMap<ThreadId, String>,
    ) {
        let live = self.records.iter().filter(|r| r.state != RecordState::Ended);
        let recorded: BTreeSet<ThreadId> = live.map(|r| r.id).collect();
        for (&process, ancestors) in tree {
            for tid in self.proc.threads(process) {
                let Some(stat) = self.proc.thread_stat(tid) else { continue };
                let id = ThreadId { tid, start: stat.start };
                if recorded.contains(&id) || done.contains(&id) {
                    continue;
                }
                let Ok(found) = sched::get(tid) else { continue };
                let mut older = self.records.iter().filter(|r| {
                    ancestors.contains(&r.tgid)
                        && r.id != id
                        && (r.id.start <= id.start || tid.0 == process.0)
                });
                let to = back(&found, older.clone());
                if let Some(to) = to.or_else(|| older.find_map(|r| before_reset(&found, r))) {
                    self.set(id, &found, &to, done, failed);
                }
            }
        }
    }

    fn set(
        &self,
        id: ThreadId,
        found: &Scheduling,
        to: &Scheduling,
        done: &mut BTreeSet<ThreadId>,
        failed: &mut BTreeMap<ThreadId, String>,
    ) {
        let done_now =
            if self.only_looks { Ok(()) } else { sched::change(id.tid, found, to, self.base) };
        match done_now {
            Ok(()) => {
                done.insert(id);
                failed.remove(&id);
            }
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
            Err(e) => {
                let why = format!(
                    "thread {id} is scheduled as {found} and should be as {to}: {e}; run evenly restore as root"
                );
                failed.insert(id, why);
            }
        }
    }
}

/// Whether the program has changed what a record says that was set.
fn is_foreign(now: &Scheduling, r: &SchedulingRecord) -> bool {
    let class = |s: &Scheduling| (s.policy, s.priority);
    let was = &r.original;
    r.set.iter().any(|s| {
        (s.nice != was.nice && now.nice != was.nice)
            || (class(s) != class(was) && class(now) != class(was))
            || (s.slice != was.slice && s.is_fair() && now.is_fair() && now.slice != was.slice)
    })
}

/// How a thread is to be scheduled so that nothing is left of what these records say was set. None where
/// nothing is.
fn back<'r>(
    found: &Scheduling,
    records: impl Iterator<Item = &'r SchedulingRecord>,
) -> Option<Scheduling> {
    let mut to = *found;
    for r in records {
        let (was, sets) = (&r.original, &r.set);
        if sets.iter().any(|s| s.nice == found.nice && s.nice != was.nice) && to.nice == found.nice
        {
            to.nice = was.nice;
        }
        let class = |s: &Scheduling| (s.policy, s.priority);
        if sets.iter().any(|s| class(s) == class(found) && class(s) != class(was))
            && class(&to) == class(found)
        {
            (to.policy, to.priority, to.reset_on_fork) =
                (was.policy, was.priority, was.reset_on_fork);
            // The kernel reports no slice of real-time threads.
            if !found.is_fair() {
                to.slice = was.slice;
            }
        }
        if sets.iter().any(|s| s.slice == found.slice && s.slice != was.slice)
            && to.slice == found.slice
            && found.is_fair()
        {
            to.slice = was.slice;
        }
    }
    (to != *found).then_some(to)
}

/// How a thread is to be scheduled that has the nice value 0 because the kernel gives it to those that a thread
/// creates which was raised (SCHED_RESET_ON_FORK). None where that cannot be, or where 0 is the lower one: that a
/// program may have chosen without privileges.
fn before_reset(found: &Scheduling, r: &SchedulingRecord) -> Option<Scheduling> {
    let raised = r.set.iter().any(|s| s.reset_on_fork && !s.is_fair()) && r.original.is_fair();
    let reset = found.is_fair() && found.nice == 0 && r.original.nice > 0;
    (raised && reset).then_some(Scheduling { nice: r.original.nice, ..*found })
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::Tid;

    fn normal(nice: i8) -> Scheduling {
        Scheduling {
            policy: sched::OTHER,
            nice,
            priority: 0,
            reset_on_fork: false,
            slice: Nanos(3_000_000),
        }
    }

    fn record(original: Scheduling, set: &[Scheduling]) -> SchedulingRecord {
        let id = ThreadId { tid: Tid(7), start: 1 };
        SchedulingRecord { id, tgid: Pid(7), state: RecordState::Live, original, set: set.to_vec() }
    }

    fn of(found: Scheduling, r: &SchedulingRecord) -> Option<Scheduling> {
        back(&found, std::iter::once(r))
    }

    #[test]
    fn each_part_is_ours_or_not_on_its_own() {
        let r = record(normal(0), &[normal(5), normal(3)]);
        assert_eq!(of(normal(5), &r), Some(normal(0)));
        // The second newest: dying between the journal and the call.
        assert_eq!(of(normal(3), &r), Some(normal(0)));
        assert_eq!(of(normal(4), &r), None);
        assert_eq!(of(normal(0), &r), None);
        // The program made it a batch thread meanwhile; that stays.
        let batch = |nice| Scheduling { policy: sched::BATCH, ..normal(nice) };
        assert_eq!(of(batch(5), &r), Some(batch(0)));
        assert_eq!(of(batch(1), &r), None);
        let idle = Scheduling { policy: sched::IDLE, ..normal(0) };
        let r = record(normal(0), &[idle]);
        assert_eq!(of(Scheduling { nice: 9, ..idle }, &r), Some(normal(9)));
        let long = Scheduling { slice: Nanos(9_000_000), ..normal(0) };
        assert_eq!(
            of(Scheduling { nice: 2, ..long }, &record(normal(0), &[long])),
            Some(normal(2))
        );
    }

    #[test]
    fn a_raised_thread_gets_class_and_slice_back_and_what_was_set_to_the_original_is_not_undone() {
        let raised = Scheduling {
            policy: sched::ROUND_ROBIN,
            priority: 1,
            reset_on_fork: true,
            slice: Nanos::ZERO,
            ..normal(2)
        };
        assert_eq!(of(raised, &record(normal(2), &[raised])), Some(normal(2)));
        assert_eq!(of(normal(2), &record(normal(2), &[normal(2), raised])), None);
    }

    #[test]
    fn what_a_raised_thread_creates_gets_the_nice_value_that_the_kernel_took_from_it() {
        let raised = |nice| Scheduling {
            policy: sched::ROUND_ROBIN,
            priority: 1,
            reset_on_fork: true,
            ..normal(nice)
        };
        let of_raised = |found, nice| before_reset(&found, &record(normal(nice), &[raised(nice)]));
        assert_eq!(of_raised(normal(0), 10), Some(normal(10)));
        let batch = |nice| Scheduling { policy: sched::BATCH, ..normal(nice) };
        assert_eq!(of_raised(batch(0), 10), Some(batch(10)));
        // What the program set, or may have set.
        assert_eq!(of_raised(normal(3), 10), None);
        assert_eq!(of_raised(normal(0), -10), None);
        assert_eq!(of_raised(normal(0), 0), None);
        assert_eq!(of_raised(raised(0), 10), None);
        // None was raised.
        assert_eq!(before_reset(&normal(0), &record(normal(10), &[batch(10)])), None);
    }
}

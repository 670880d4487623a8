//! What was found against what was set: threads whose masks are no longer ours, CPUs that can no longer be
//! used, threads that the system does not let us move or weigh.
//!
//! It is the first step of a point, and looks at what failed in the one before. A thread that has ended
//! needs nothing here: its next reading says so.
//!
//! Invariant: a thread that cannot be moved is left alone from then on; a CPU that cannot be used is asked
//! for again at this point.

use crate::machine::Failure;
use crate::membership::Membership;
use crate::notes::Notes;
use crate::{ApplyError, Observer};
use evenly_model::{Nanos, Pid};

/// Draws the consequences. `unweighed` is a thread that did not get its weight. Returns whether CPUs are to be
/// asked for again.
pub(crate) fn verify(
    failures: &mut Vec<Failure>,
    unweighed: Option<Failure>,
    membership: &mut Membership,
    notes: &mut Notes,
    now: Nanos,
    observers: &mut [Box<dyn Observer>],
) -> bool {
    if let Some(failure) = unweighed {
        notes.not_weighed(now, &failure, observers);
    }
    let mut asks_for_cpus = false;
    for failure in failures.drain(..) {
        if !failure.is_final() {
            asks_for_cpus |= matches!(failure.error, ApplyError::Unusable { .. });
            continue;
        }
        // One that has left is alone already.
        let id = failure.thread;
        if let Some(t) = membership.threads.iter_mut().find(|t| t.meta.id == id) {
            t.place.movable = false;
            t.place.foreign = matches!(failure.error, ApplyError::Foreign { .. });
            notes.left_alone(now, &failure, observers);
        }
    }
    asks_for_cpus
}

/// The processes in which somebody else has set the mask of a thread.
pub(crate) fn bound_by_others(
    failures: &[Failure],
    membership: &Membership,
) -> impl Iterator<Item = Pid> {
    let foreign = failures.iter().filter(|f| matches!(f.error, ApplyError::Foreign { .. }));
    foreign.filter_map(|f| {
        membership.threads.iter().find(|t| t.meta.id == f.thread).map(|t| t.meta.pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Listener, cpus, id, threads};
    use std::sync::{Arc, Mutex};

    #[test]
    fn who_cannot_be_moved_is_left_alone_and_the_report_names_one() {
        let (mut membership, _) = threads(&[0, 0, 1, 1], 2);
        let (mut notes, texts) = (Notes::new(Nanos::ZERO), Arc::new(Mutex::new(Vec::new())));
        let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(Listener(texts.clone()))];
        let fails = |tid: usize, error: ApplyError| Failure { thread: id(tid), error };
        let mut failures = vec![
            fails(0, ApplyError::Foreign { found: cpus("0") }),
            fails(1, ApplyError::Refused(String::from("no"))),
            // It has left meanwhile.
            fails(9, ApplyError::Refused(String::from("no"))),
            fails(2, ApplyError::Gone),
        ];
        let asks =
            verify(&mut failures, None, &mut membership, &mut notes, Nanos::ZERO, &mut observers);
        assert!(!asks && failures.is_empty());
        let of =
            |t: usize| (membership.threads[t].place.movable, membership.threads[t].place.foreign);
        assert_eq!(
            [of(0), of(1), of(2), of(3)],
            [(false, true), (false, false), (true, false), (true, false)]
        );
        assert_eq!(
            notes.kept(),
            ["thread 0 is left alone: the program has set its own affinity mask, 0"]
        );
        assert_eq!(texts.lock().unwrap().len(), 2);
    }

    #[test]
    fn a_weight_that_is_refused_is_reported_once_and_the_thread_still_moved() {
        let (mut membership, _) = threads(&[0, 0], 2);
        let mut notes = Notes::new(Nanos::ZERO);
        for tid in [1, 0] {
            let error = ApplyError::Refused(String::from("no"));
            let refused = Some(Failure { thread: id(tid), error });
            let now = Nanos::ZERO;
            assert!(!verify(&mut vec![], refused, &mut membership, &mut notes, now, &mut []));
        }
        assert_eq!(notes.kept(), ["thread 1 keeps its share of a CPU: no"]);
        assert!(membership.threads.iter().all(|t| t.place.movable));
    }

    #[test]
    fn a_cpu_that_cannot_be_used_is_asked_for_again() {
        let (mut membership, _) = threads(&[0], 2);
        let mut notes = Notes::new(Nanos::ZERO);
        let mut failures =
            vec![Failure { thread: id(0), error: ApplyError::Unusable { wanted: cpus("1") } }];
        assert!(verify(&mut failures, None, &mut membership, &mut notes, Nanos::ZERO, &mut []));
        assert!(membership.threads[0].place.movable && notes.kept().is_empty());
    }
}

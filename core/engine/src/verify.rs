//! What was found against what was set: threads whose masks are no longer ours, CPUs that can no longer be
//! used, threads that the system does not let us move.
//!
//! It is the first step of a point, and looks at what failed in the one before. A thread that has ended
//! needs nothing here: its next reading says so.
//!
//! Invariant: a thread that cannot be moved is left alone from then on; a CPU that cannot be used is asked
//! for again at this point.

use crate::membership::Membership;
use crate::notes::Notes;
use crate::{ApplyError, Observer};
use evenly_model::{Nanos, ThreadId};

/// Something that could not be done to a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) thread: ThreadId,
    pub(crate) error: ApplyError,
}

impl Failure {
    /// Whether it is of no use to try again.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.error, ApplyError::Foreign { .. } | ApplyError::Refused(_))
    }
}

/// Draws the consequences. Returns whether CPUs are to be asked for again.
pub(crate) fn verify(
    failures: &mut Vec<Failure>,
    membership: &mut Membership,
    notes: &mut Notes,
    now: Nanos,
    observers: &mut [Box<dyn Observer>],
) -> bool {
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

//! What a thread looks at while it sleeps: who is missing, and whether the others begin loops in another order than it does. Whoever
//! does not sleep does not look.
//!
//! Invariant: nothing is said to be wrong that may be right. A thread that has not come may be about to; that is told once, after a
//! while, and waited for all the same.

use crate::gate::SLEEP;
use std::io::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

/// After so long it is told who has not come, and who has not come to the end: an iteration may take its time. Counted in sleeps: by a
/// clock, a process that was stopped meanwhile would be told so at once.
pub(crate) const LATE: Duration = Duration::from_secs(5);
pub(crate) const STAYS: Duration = Duration::from_secs(10);
/// So many loops that a thread has begun are known.
const KNOWN: u32 = 8;
/// So many threads are named.
const NAMED: usize = 4;

/// The loops that a thread has begun last, by their numbers. Written by itself.
#[derive(Debug, Default)]
pub(crate) struct Order([AtomicU64; KNOWN as usize]);

impl Order {
    /// The loop that it begins at this place, counted from 1.
    pub(crate) fn add(&self, place: u32, number: u32) {
        // Whoever sees it sees what its thread has done before.
        self.0[(place % KNOWN) as usize].store(u64::from(place) << 32 | u64::from(number), Release);
    }

    fn at(&self, place: u32) -> Option<u32> {
        let word = self.0[(place % KNOWN) as usize].load(Acquire);
        ((word >> 32) as u32 == place).then_some(word as u32)
    }

    /// The first place at which both have begun different loops, as far as that is known, up to the last of this one.
    pub(crate) fn differs(&self, last: u32, other: &Self) -> Option<(u32, u32, u32)> {
        (last.saturating_sub(KNOWN - 1)..=last).find_map(|place| {
            let (own, others) = (self.at(place)?, other.at(place)?);
            (own != others).then_some((place, own, others))
        })
    }
}

/// Why a thread has not come to where it is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It has begun no loop of the team.
    Never,
    /// It has ended.
    Ended,
    /// That is not known.
    Late,
}

/// How often a thread has slept that has waited for so long.
pub(crate) fn sleeps_of(time: Duration) -> u32 {
    (time.as_millis() / SLEEP.as_millis()) as u32
}

/// Tells who is missing, of so many threads; `what` has waited for so long, and they have not done `this`.
pub(crate) fn tell(
    what: &str,
    waited: Duration,
    this: &str,
    missing: &[(usize, Missing)],
    threads: usize,
) {
    // Where it cannot be said, nobody hears of it.
    let words = words(what, waited, this, missing, threads);
    let _ = writeln!(std::io::stderr(), "evenly: {words}");
}

fn words(
    what: &str,
    waited: Duration,
    this: &str,
    missing: &[(usize, Missing)],
    threads: usize,
) -> String {
    let names: Vec<String> = missing.iter().take(NAMED).map(|(who, _)| who.to_string()).collect();
    let (who, have) = match names.split_last() {
        Some((last, [])) => (format!("thread {last}"), "has"),
        Some((last, rest)) if missing.len() <= NAMED => {
            (format!("threads {} and {last}", rest.join(", ")), "have")
        }
        _ => (format!("{} threads ({}, ...)", missing.len(), names.join(", ")), "have"),
    };
    let all = |how| missing.iter().all(|(_, found)| *found == how);
    let why = if all(Missing::Never) {
        format!("{have} begun no loop of this team so far: have so many threads been started?")
    } else if all(Missing::Ended) {
        format!("{have} ended")
    } else {
        format!("{have} not {this}")
    };
    let seconds = waited.as_secs();
    format!("{what} has waited {seconds} s for {who} of a team of {threads}, which {why}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_is_said_in_words() {
        let said = |missing: &[_]| words("loop 'sweep'", LATE, "begun it", missing, 9);
        let waits = "loop 'sweep' has waited 5 s for";
        assert_eq!(
            said(&[(2, Missing::Never)]),
            format!(
                "{waits} thread 2 of a team of 9, which has begun no loop of this team so far: have so many threads been started?"
            )
        );
        assert_eq!(
            said(&[(0, Missing::Late), (2, Missing::Never), (3, Missing::Ended)]),
            format!("{waits} threads 0, 2 and 3 of a team of 9, which have not begun it")
        );
        let five: Vec<_> = (1..6).map(|thread| (thread, Missing::Ended)).collect();
        assert_eq!(
            said(&five),
            format!("{waits} 5 threads (1, 2, 3, 4, ...) of a team of 9, which have ended")
        );
    }

    #[test]
    fn orders_are_compared_as_far_as_both_are_known() {
        let (one, other) = (Order::default(), Order::default());
        assert_eq!(one.differs(0, &other), None);
        for place in 1..=20 {
            one.add(place, 1 + place % 2);
        }
        // One that has not come so far has left out nothing.
        for place in 1..=14 {
            other.add(place, 1 + place % 2);
            assert_eq!(one.differs(20, &other), None);
        }
        other.add(15, 7);
        assert_eq!(one.differs(20, &other), Some((15, 2, 7)));
        assert_eq!(other.differs(15, &one), Some((15, 7, 2)));
    }
}

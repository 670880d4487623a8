//! What the threads of a team give each other after a loop.
//!
//! Invariant: each loop has its own, so that a thread which leaves one out mixes up nothing that is given after others.

use crate::gate::Gate;
use crate::team::Shared;
use crate::watch::LATE;
use crossbeam_utils::CachePadded;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// How often a thread has gathered, and what it gave, this time and the time before.
#[derive(Debug, Default)]
struct Lane {
    times: AtomicU32,
    given: [AtomicU64; 2],
}

/// One for each loop and team.
#[derive(Debug)]
pub(crate) struct Gathering {
    lanes: Box<[CachePadded<Lane>]>,
    came: AtomicU32,
    all: Gate,
}

impl Gathering {
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            lanes: (0..threads).map(|_| CachePadded::default()).collect(),
            came: AtomicU32::new(0),
            all: Gate::default(),
        }
    }

    /// Gives each thread what all gave, in their order. All have to come, equally often. None where somebody does not: one that has
    /// ended after it has begun, or has gone on to another loop, or all others in a child of the process; or `gives_up` says so.
    /// Then the caller gives the loop up, after which nobody gathers here.
    pub(crate) fn gather(
        &self,
        team: &Shared,
        thread: usize,
        given: u64,
        name: &str,
        has_begun: impl Fn(usize) -> bool,
        gives_up: impl Fn() -> bool,
    ) -> Option<impl Iterator<Item = u64> + '_> {
        let lane = &self.lanes[thread];
        let time = lane.times.load(Relaxed).wrapping_add(1);
        lane.times.store(time, Relaxed);
        // What was given the time before may still be read by others; what was before that not: they have come since.
        let place = time as usize % 2;
        lane.given[place].store(given, Relaxed);
        let is_behind =
            |other: usize| (self.lanes[other].times.load(Relaxed).wrapping_sub(time) as i32) < 0;
        let begun = team.begun(thread);
        // Whoever sees that another one went on sees how often that one had gathered before.
        let left = |other| {
            (team.went_on(other, begun) || team.waits_for(other, thread)) && is_behind(other)
        };
        let is_gone = |other| is_behind(other) && has_begun(other) && team.is_gone(other);
        let misses = |sleeps| {
            let what = || format!("a reduction after loop '{name}'");
            team.misses(sleeps, LATE, what, "come to it", |other| !is_behind(other));
            false
        };
        if self.came.fetch_add(1, AcqRel) + 1 == self.lanes.len() as u32 {
            self.came.store(0, Relaxed);
            self.all.set(time);
        } else {
            self.all.wait(time, team.patience(None), |sleeps| {
                team.is_forked()
                    || gives_up()
                    || (0..self.lanes.len()).any(|other| left(other) || is_gone(other))
                    || misses(sleeps)
            });
        }
        self.all
            .has_reached(time)
            .then(|| self.lanes.iter().map(move |lane| lane.given[place].load(Relaxed)))
    }

    /// The loop was given up: whoever waits looks at that.
    pub(crate) fn wake(&self) {
        self.all.wake();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::{Acquire, Release};

    /// Would catch: a loop that is given up, as a thread that is late has the number of one that has ended.
    #[test]
    fn whoever_ended_before_it_began_is_waited_for() {
        let (team, all) = (Shared::new(2).unwrap(), Gathering::new(2));
        team.enter(0, 1).unwrap();
        team.ends(1);
        let has_begun = AtomicBool::new(false);
        let (asked, was_asked) = std::sync::mpsc::channel();
        let gathered = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let has_begun = |other| {
                    let _ = asked.send(());
                    other == 0 || has_begun.load(Acquire)
                };
                all.gather(&team, 0, 5, "a", has_begun, || false).map(Iterator::collect::<Vec<u64>>)
            });
            was_asked.recv().unwrap();
            team.enter(1, 1).unwrap();
            has_begun.store(true, Release);
            let second =
                all.gather(&team, 1, 7, "a", |_| true, || false).map(Iterator::collect::<Vec<u64>>);
            [first.join().unwrap(), second]
        });
        assert_eq!(gathered, [Some(vec![5, 7]), Some(vec![5, 7])]);
        // One that ended within is not.
        team.ends(1);
        assert!(all.gather(&team, 0, 5, "a", |_| true, || false).is_none());
    }
}

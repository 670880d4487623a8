//! How often the threads of a program meet, by what they report of their waiting, whatever they wait at.
//!
//! Threads that count the same barriers and collective calls meet at these. Ranks that hardly meet, or do not count the same, may
//! wait for each other's messages: then it is how often they do so, which the program determines. Of threads of one process it is
//! not taken, as how often they wait may depend on which of them is ahead.

use crate::agents::Epochs;
use crate::managed::ManagedThread;
use evenly_model::{Nanos, Pid, ThreadId};

/// Barriers by which threads may be apart that meet: those that wait have reached the next one, and as some are asked earlier than
/// others they may be one more ahead. And for so many points they may be further apart.
const APART: u32 = 2;
const PATIENCE: u32 = 32;
/// Ranks that wait more often than so many times a barrier are measured by their waits, until they wait half as often.
const SELDOM: u64 = 4;
/// So many waits are taken for an epoch, as an iteration may have several, and it is not known when it ends.
const WAITS_OF_AN_EPOCH: u64 = 2;
/// [`Epochs::of`] of waits.
const WAITS: u32 = 1;

/// What the threads of a domain have reported.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    /// The threads, and how often each had waited by the last point.
    threads: Vec<(ThreadId, u32)>,
    /// Waits of all of them since they are these.
    waits: u64,
    /// Barriers of all by then, at the beginning.
    first: Option<u32>,
    /// Whether each thread is of a process of its own.
    are_ranks: bool,
    by_waits: bool,
    /// Points at which they were too far apart, one after the other.
    apart: u32,
    /// What was known last, and when that was another.
    known: Option<(u32, u32)>,
    met_at: Nanos,
}

impl Meetings {
    /// Whether these are counted by waits.
    pub(crate) fn are_waits(epochs: Epochs) -> bool {
        epochs.of == WAITS
    }

    /// When threads met last, as far as that was seen.
    pub(crate) fn met_at(&self) -> Nanos {
        self.met_at
    }

    /// A balancing point. None where it is not known how often threads meet.
    pub(crate) fn point(&mut self, now: Nanos, threads: &[ManagedThread]) -> Option<Epochs> {
        let epochs = self.look(now, threads);
        let known = epochs.map(|e| (e.count, e.of));
        if known.is_some() && known != self.known {
            (self.known, self.met_at) = (known, now);
        }
        epochs
    }

    fn look(&mut self, now: Nanos, threads: &[ManagedThread]) -> Option<Epochs> {
        let same = self.threads.iter().map(|(id, _)| *id).eq(threads.iter().map(|t| t.meta.id));
        if !same || threads.len() < 2 {
            let waits = threads
                .iter()
                .map(|t| (t.meta.id, t.account.report.last().map_or(0, |said| said.waits)));
            *self = Self {
                threads: waits.collect(),
                are_ranks: are_ranks(threads),
                met_at: self.met_at,
                ..Self::default()
            };
        }
        let (mut least, mut most, mut left_at) = (u32::MAX, 0, now);
        for ((_, before), t) in self.threads.iter_mut().zip(threads) {
            let said = t.account.report.last()?;
            (least, most) = (least.min(said.phases), most.max(said.phases));
            left_at = left_at.min(said.computes_since.unwrap_or(now));
            // Those of another program, which the thread has become by exec, begin at 0.
            let waits = std::mem::replace(before, said.waits);
            self.waits += u64::from(said.waits.saturating_sub(waits));
        }
        if threads.len() < 2 {
            return None;
        }
        let mean = self.waits / threads.len() as u64;
        let together = least > 0 && most - least <= APART;
        self.apart = if together { 0 } else { self.apart + 1 };
        let met = together.then(|| u64::from(least.wrapping_sub(*self.first.get_or_insert(least))));
        if self.are_ranks {
            self.by_waits = match met {
                Some(met) => {
                    let seldom = if self.by_waits { SELDOM / 2 } else { SELDOM };
                    mean / seldom > met.max(1)
                }
                None => self.by_waits || self.apart > PATIENCE,
            };
        }
        if self.by_waits {
            let count = (mean / WAITS_OF_AN_EPOCH) as u32;
            return Some(Epochs { count, at: now, of: WAITS, worth: 0 });
        }
        together.then_some(Epochs { count: least, at: left_at, of: 0, worth: 0 })
    }
}

/// Whether each is of a process of its own.
fn are_ranks(threads: &[ManagedThread]) -> bool {
    let mut pids: Vec<Pid> = threads.iter().map(|t| t.meta.pid).collect();
    pids.sort_unstable();
    pids.windows(2).all(|p| p[0] != p[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Waiting;
    use crate::scripted::threads;

    const MS: Nanos = Nanos::from_millis(10);

    /// Four threads, of a process each or of one, of which is said at each point how many barriers and waits each has begun; what
    /// is found at each.
    fn found(ranks: bool, points: &[[(u32, u32); 4]]) -> Vec<Option<(u32, u32)>> {
        let (mut members, _) = threads(&[0, 0, 1, 1], 2);
        let mut meetings = Meetings::default();
        let mut now = Nanos::ZERO;
        let mut after = |said: &[(u32, u32); 4]| {
            now += MS;
            for (i, (t, &(phases, waits))) in members.threads.iter_mut().zip(said).enumerate() {
                t.meta.pid = Pid(if ranks { 100 + i as i32 } else { 100 });
                t.account.report.update(Some(Waiting { phases, waits, ..Waiting::default() }));
            }
            meetings.point(now, &members.threads).map(|e| (e.count, e.of))
        };
        points.iter().map(&mut after).collect()
    }

    #[test]
    fn barriers_count_where_all_count_the_same() {
        let points =
            [[(5, 5); 4], [(6, 6), (5, 5), (6, 6), (6, 6)], [(9, 9), (9, 9), (2, 9), (9, 9)]];
        for ranks in [true, false] {
            assert_eq!(found(ranks, &points), [Some((5, 0)), Some((5, 0)), None]);
        }
    }

    /// Would catch: an epoch that is of barriers at one point and of waits at the next; threads whose waits say nothing.
    #[test]
    fn ranks_that_hardly_meet_are_counted_by_their_waits() {
        // Eight waits to a barrier.
        let often: Vec<_> = (1..=40).map(|i| [(1 + i / 8, 10 * i); 4]).collect();
        let of = |found: &[Option<(u32, u32)>]| -> Vec<u32> {
            found.iter().flatten().map(|f| f.1).collect()
        };
        let ranks = found(true, &often);
        assert_eq!(ranks[39], Some((195, WAITS)));
        let changes = of(&ranks).windows(2).filter(|p| p[0] != p[1]).count();
        assert_eq!(changes, 1, "{ranks:?}");
        assert_eq!(of(&found(false, &often)), [0; 40]);
        // No barrier at all: it is waited for a while.
        let none: Vec<_> = (1..=40).map(|i| [(0, 4 * i); 4]).collect();
        let ranks = found(true, &none);
        assert!(ranks[20].is_none() && ranks[39].is_some_and(|(_, of)| of == WAITS), "{ranks:?}");
        assert!(found(false, &none)[39].is_none());
    }

    /// Would catch: waits that go back to 0, or exceed 32 bits in their sum, taken for billions.
    #[test]
    fn waits_of_another_program_are_its_own() {
        let mut points: Vec<_> = (1..=40).map(|i| [(0, 1_500_000_000 + 4 * i); 4]).collect();
        points.push([(0, 3); 4]);
        points.push([(0, 7); 4]);
        let counts: Vec<u32> = found(true, &points).iter().flatten().map(|f| f.0).collect();
        assert!(
            counts.windows(2).all(|p| p[0] <= p[1]) && counts[counts.len() - 1] < 100,
            "{counts:?}"
        );
    }
}

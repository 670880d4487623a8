//! Pauses, in which the program runs as without us: to see what balancing is worth ([`crate::guard`]), for a while where that
//! is nothing, and for good where it is less.
//!
//! Invariant: while paused or stood down nothing is moved, and no mask of ours is in force but the one that
//! the user asked for.

use crate::agents::Work;
use crate::guard::Guard;
use crate::managed::ManagedThread;
use crate::notes::Notes;
use crate::{GuardOptions, Observer};
use evenly_model::Nanos;

/// What becomes of balancing at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It goes on, or stays paused.
    None,
    /// A pause begins: threads are given their masks back.
    Pause,
    /// A pause has ended.
    Resume,
}

/// The guard, and whether balancing is paused.
#[derive(Debug)]
pub(crate) struct Pauses {
    pub(crate) guard: Guard,
    paused: bool,
}

impl Pauses {
    pub(crate) fn new(options: GuardOptions, now: Nanos) -> Self {
        Self { guard: Guard::new(options, now), paused: false }
    }

    /// Whether balancing is paused, since the last point.
    pub(crate) fn paused(&self) -> bool {
        self.paused
    }

    /// A balancing point at which agents that lead by epochs are to do this.
    pub(crate) fn follow(&mut self, work: Work) -> Change {
        self.change(work != Work::Move)
    }

    /// A balancing point, after a period of this length and before one of that.
    pub(crate) fn point(
        &mut self,
        now: Nanos,
        (elapsed, period): (Nanos, Nanos),
        threads: &[ManagedThread],
        notes: &mut Notes,
        observers: &mut [Box<dyn Observer>],
    ) -> Change {
        let before = self.guard.stood_down();
        if elapsed > Nanos::ZERO {
            let accounts = threads.iter().map(|t| &t.account);
            let rates = accounts.map(|a| (a.gained, a.period.blocked + a.period.spinning));
            self.guard.point(now, elapsed, period, rates);
        }
        let down = self.guard.stood_down();
        if down && !before {
            let v = self.guard.verdict();
            let text = format!(
                "balancing stands down: with it the program progressed at {:.3} of the rate \
                 without it (95 % interval {:.3} to {:.3}, {} comparisons)",
                v.ratio, v.low, v.high, v.pairs
            );
            notes.note(now, text, observers);
        }
        self.change(self.guard.paused() || self.guard.rests())
    }

    fn change(&mut self, paused: bool) -> Change {
        match (std::mem::replace(&mut self.paused, paused), paused) {
            (false, true) => Change::Pause,
            (true, false) => Change::Resume,
            _ => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::threads;

    /// Points of 20 ms, with threads that progress at this rate while balanced and at that while paused.
    /// When pauses begin and end, and whether balancing stands down in the end.
    fn changes(rates: (f64, f64), seconds: u64) -> (Vec<(u64, Change)>, Pauses, Notes) {
        let period = Nanos::from_millis(20);
        let (mut members, _) = threads(&[0, 1], 2);
        let mut pauses = Pauses::new(GuardOptions::default(), Nanos::ZERO);
        let (mut notes, mut seen) = (Notes::new(Nanos::ZERO), Vec::new());
        for point in 1..=seconds * 50 {
            let rate = if pauses.paused() { rates.1 } else { rates.0 };
            for a in members.threads.iter_mut().map(|t| &mut t.account) {
                (a.gained, a.period.blocked) = (period.scale(rate), period.scale(0.1));
            }
            let now = Nanos(period.0 * point);
            let change = pauses.point(now, (period, period), &members.threads, &mut notes, &mut []);
            if change != Change::None {
                seen.push((point, change));
            }
        }
        (seen, pauses, notes)
    }

    #[test]
    fn pauses_begin_and_end_in_turns() {
        let (seen, pauses, notes) = changes((0.7, 0.6), 60);
        // A second, as threads block, and a stretch to compare with.
        assert_eq!(seen[..2], [(58, Change::Pause), (66, Change::Resume)]);
        let in_turns = seen.chunks(2).all(|c| c[0].1 == Change::Pause);
        assert!(in_turns && seen.len() % 2 == 0 && !pauses.paused(), "{seen:?}");
        assert!(notes.kept().is_empty());
    }

    #[test]
    fn who_stands_down_stays_paused_and_says_so() {
        let (seen, pauses, notes) = changes((0.6, 0.7), 120);
        assert!(pauses.paused() && pauses.guard.stood_down());
        // Before that it rested.
        assert_eq!(seen.last().map(|s| s.1), Some(Change::Pause));
        assert!(notes.kept()[0].starts_with("balancing stands down"), "{:?}", notes.kept());
    }
}

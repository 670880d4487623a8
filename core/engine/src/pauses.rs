//! Pauses, in which the program runs as without us: to see what balancing is worth ([`crate::guard`]), and for
//! good where that is less than nothing.
//!
//! Invariant: while paused or stood down nothing is moved, and no mask of ours is in force but the one that
//! the user asked for.

use crate::managed::ManagedThread;
use crate::notes::Notes;
use crate::{Guard, GuardOptions, Observer};
use evenly_model::Nanos;

/// What becomes of balancing at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It goes on, or stays paused.
    None,
    /// A pause begins.
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
        let paused = self.guard.paused() || down;
        match (std::mem::replace(&mut self.paused, paused), paused) {
            (false, true) => Change::Pause,
            (true, false) => Change::Resume,
            _ => Change::None,
        }
    }
}

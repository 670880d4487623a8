//! What a helper may cost.
//!
//! A program opens its barriers as often as it likes, and each opening can wake a helper. So a helper has an account in
//! CPU time. It is paid a part of the user's budget, whatever it does. A move is paid from what it gains: by that the
//! phase is shorter, on all CPUs of the team. What is in the account is spent first; who has nothing left rests, and the
//! program does not wake it.
//!
//! ```text
//!   in: rate * time + for each phase with a move what its plan gains, at most for_gains * time
//!   out: all CPU time of the helper
//! ```
//!
//! Invariant: over any time T a helper takes at most `rate * T`, a [`BURST`] and what it takes for one opening, where it
//! gains nothing; and at most `for_gains` of T more, whatever the program says that there is to gain.

use evenly_model::Nanos;

/// The part of what balancing may cost that all helpers share, where they gain nothing.
pub const HELPERS_SHARE: f64 = 0.25;

/// What an account has at first, and at most: phases in which a move costs more than usual, or fails, are no reason to rest.
const BURST: Nanos = Nanos::from_millis(2);
/// A helper that has rested has so much again: enough for a phase or two, in which it shows that it gains something.
const RESTED: Nanos = Nanos::from_micros(100);
/// What a helper may take of its CPU for gains, in budgets: programs can say of any phase that it gains much.
const BUDGETS: f64 = 10.0;
/// And however large the budget is.
const MOST: f64 = 0.1;

/// The account of one helper.
#[derive(Debug)]
pub struct Allowance {
    /// CPU time for each second, in seconds.
    rate: f64,
    /// Beside that, for gains.
    for_gains: f64,
    /// In ns; less than nothing where the last opening took more than there was.
    left: f64,
    at: Nanos,
}

impl Allowance {
    /// Of a helper that may take `rate` of a CPU where it gains nothing; what it may take for gains goes by the whole
    /// `budget` of evenly, as a part of one CPU.
    #[must_use]
    pub fn new(rate: f64, budget: f64, now: Nanos) -> Self {
        Self { rate, for_gains: (BUDGETS * budget).min(MOST), left: BURST.0 as f64, at: now }
    }

    /// The helper has taken so much CPU time since this was asked last; `gain` is what the moves that it made then gain.
    /// Until when it has to rest; None where it need not.
    pub fn spend(&mut self, now: Nanos, cpu: Nanos, gain: Nanos) -> Option<Nanos> {
        let time = (now - self.at).0 as f64;
        self.at = self.at.max(now);
        let gained = (gain.0 as f64).min(self.for_gains * time);
        let all = (self.left + self.rate * time + gained).min(BURST.0 as f64);
        self.left = all - cpu.0 as f64;
        let lacks = RESTED.0 as f64 - self.left;
        (self.left <= 0.0).then(|| now + Nanos((lacks / self.rate) as u64))
    }
}

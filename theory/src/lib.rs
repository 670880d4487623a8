//! The analysis of the Juggle paper (Hofmeyr and others, HPDC 2011, sections 3 and 6): what static,
//! reactive and proactive balancing can reach. The tool is judged by it, and predicts with it.
//!
//! n identical threads on m CPUs; a thread needs e of CPU time for one computation phase and then
//! blocks at a barrier; balancing happens every lambda. Scheduling on a CPU is perfectly fair and
//! balancing costs nothing.
//!
//! | equation | what | here |
//! |---|---|---|
//! | 1 | static distribution | [`static_time`] |
//! | 2 | lower bound from the lag of the slowest, e near lambda | [`lag_bound`] |
//! | 3, 7, 11, Lemma 1 | how far threads can be apart | [`lag`] |
//! | 14 | continuous balancing | [`continuous_time`] |
//! | 15 | the same over many phases | [`phases_bound`] |
//! | 16 | many phases, lambda < e ceil(n/m) | [`phases_time`] |
//! | 17 | many phases, lambda >= e ceil(n/m) | [`rarely_balanced_time`], [`expected_single_balance`] |
//! | 18 | the same where one balancing point cannot help | [`unbalanced_time`] |
//! | 19, 20, 21 | reactive balancing, 1 < n/m < 2 | [`reactive_after`], [`reactive_fast_threads`], [`reactive_time`] |
//! | UB(RelativeSpeedup), section 4 | | [`upper_bound`], [`speedup_bound`] |
//! | section 6, two jobs | | [`share`] |
//!
//! Beyond the paper, each derived where it stands: [`proactive_limit`] (what the ideal algorithm
//! never exceeds), [`reactive_time_anywhere`], [`Speeds`] (CPUs of unequal speed), [`locked_time`] (one planned
//! move in each phase), [`predict`].
//!
//! Invariant: arithmetic is exact ([`ExactTime`]); it becomes floating point only where a caller
//! asks for it. An equation outside the range for which it was derived gives an [`OutOfRange`], not
//! a number. Where the paper's print has a slip the derived equation is here, and says so.

#![forbid(unsafe_code)]

mod exact;
mod locked;
mod phases;
mod prediction;
mod reactive;
mod shape;
mod sharing;
mod speeds;

pub use exact::ExactTime;
pub use locked::{locked_phases_time, locked_time};
pub use phases::{
    SingleBalance, balanced_phases, continuous_time, domains_time, expected_single_balance, lag,
    lag_bound, lower_bound, phases_bound, phases_time, proactive_limit, rarely_balanced_time,
    single_balance_time, speedup_bound, static_time, unbalanced_time,
};
pub use prediction::{Advice, Prediction, Question, Range, Regime, predict};
pub use reactive::{
    reactive_after, reactive_fast_threads, reactive_rounds, reactive_time, reactive_time_anywhere,
};
pub use shape::{OutOfRange, Shape, ShapeError};
pub use sharing::{Job, ShareError, Shared, share};
pub use speeds::{Speeds, SpeedsError};

/// Makespan under static distribution, Eq. 1: e * ceil(n/m). `m` must be at least 1.
/// [`static_time`] is the exact form.
#[must_use]
pub fn static_makespan(n: u32, m: u32, e: f64) -> f64 {
    e * f64::from(n.div_ceil(m.max(1)))
}

/// Lower bound of the makespan under perfect continuous balancing, Eq. 14: e * n/m; never less
/// than e, which one thread alone needs. [`continuous_time`] is the exact form.
#[must_use]
pub fn ideal_makespan(n: u32, m: u32, e: f64) -> f64 {
    e * (f64::from(n) / f64::from(m.max(1))).max(1.0)
}

/// Upper bound of the relative speedup of balancing over static distribution:
/// UB = ceil(n/m) / (n/m), 1 where n <= m. [`speedup_bound`] takes the period into account.
#[must_use]
pub fn upper_bound(n: u32, m: u32) -> f64 {
    if n == 0 {
        return 1.0;
    }
    static_makespan(n, m, 1.0) / ideal_makespan(n, m, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_known_cases() {
        assert_eq!(static_makespan(3, 2, 3.0), 6.0);
        assert_eq!(ideal_makespan(3, 2, 3.0), 4.5);
        assert!((upper_bound(8, 7) - 1.75).abs() < 1e-12);
        assert!((upper_bound(16, 12) - 1.5).abs() < 1e-12);
        assert_eq!(upper_bound(16, 8), 1.0);
        assert_eq!(upper_bound(2, 4), 1.0);
        assert_eq!(upper_bound(0, 4), 1.0);
    }
}

//! One computation phase and many: Juggle, sections 3.1 and 3.2.
//!
//! Notation in the comments: f = floor(n/m), c = ceil(n/m), so that c = f + 1 where slots differ.

use crate::exact::ratio;
use crate::{ExactTime, OutOfRange, Shape};
use evenly_model::Nanos;
use num_rational::BigRational;
use num_traits::{One, ToPrimitive};

fn n_over_m(s: Shape) -> BigRational {
    ratio(s.n(), s.m()).max(BigRational::one())
}

/// lambda < e c: the limit above which no phase is ever balanced (start of section 3.1).
fn balanced_within(s: Shape, e: Nanos, lambda: Nanos) -> bool {
    ExactTime::from(lambda) < static_time(s, e)
}

/// Eq. 1: completion time of one phase under static distribution, e ceil(n/m).
#[must_use]
pub fn static_time(s: Shape, e: Nanos) -> ExactTime {
    ExactTime::from(e).times(u64::from(s.ceil()), 1)
}

/// The difference of Lemma 1 (Eq. 3, 7, 11): at a balancing point of the ideal algorithm two
/// threads are equal or lambda / (f c) apart.
///
/// In some prints of the paper both factors of the denominator look like the floor; lambda/f -
/// lambda/c = lambda / (f c) since c - f = 1.
///
/// # Errors
/// [`OutOfRange::EqualSlots`] where all slots are equal.
pub fn lag(s: Shape, lambda: Nanos) -> Result<ExactTime, OutOfRange> {
    s.check_uneven()?;
    let slots = u64::from(s.floor()) * u64::from(s.ceil());
    Ok(ExactTime::from(lambda).times(1, slots))
}

/// Eq. 2: lower bound of one phase, e f + lambda / (f c). When a thread that had run fast
/// throughout would have finished, some thread lags by the difference of Lemma 1, and needs at
/// least that long on a CPU of its own. Good where lambda is about e.
///
/// The proof takes a balancing point before e f for granted. Without one, e f <= lambda < e c, the
/// last thread ends at e + lambda f / c or later, which is no less: the difference is
/// (f - 1) (lambda / f - e).
///
/// # Errors
/// [`OutOfRange::EqualSlots`] where all slots are equal, [`OutOfRange::LongPeriod`] where
/// lambda >= e c.
pub fn lag_bound(s: Shape, e: Nanos, lambda: Nanos) -> Result<ExactTime, OutOfRange> {
    let lag = lag(s, lambda)?;
    if !balanced_within(s, e, lambda) {
        return Err(OutOfRange::LongPeriod);
    }
    Ok(ExactTime::from(e).times(u64::from(s.floor()), 1) + lag)
}

/// Eq. 14: one phase under continuous balancing, e n/m; a lower bound whatever the period. Where
/// there are fewer threads than CPUs (the paper has n > m throughout) it is e.
#[must_use]
pub fn continuous_time(s: Shape, e: Nanos) -> ExactTime {
    ExactTime::from(e).by(&n_over_m(s))
}

/// Eq. 14 where threads stay in their domain (section 4.1): each domain is balanced on its own and
/// the slowest ends last. Zero where there are no domains.
#[must_use]
pub fn domains_time(domains: &[Shape], e: Nanos) -> ExactTime {
    domains.iter().map(|&s| continuous_time(s, e)).max().unwrap_or_else(ExactTime::zero)
}

/// The greatest lower bound that the paper gives for one phase: the larger of Eq. 2 and Eq. 14;
/// Eq. 1 where nothing is balanced.
#[must_use]
pub fn lower_bound(s: Shape, e: Nanos, lambda: Nanos) -> ExactTime {
    match lag_bound(s, e, lambda) {
        Ok(bound) => bound.max(continuous_time(s, e)),
        Err(_) => static_time(s, e),
    }
}

/// What the ideal algorithm never exceeds in one phase: e n/m + (1 + c - n/m) lambda / f, and
/// never Eq. 1. Beyond the paper, which gives lower bounds only.
///
/// Until the first thread ends all CPUs are busy, so that mean progress at a balancing point t is
/// t m/n, and by Lemma 1 the slowest is at most d = lambda / (f c) below the fastest. (That holds
/// from whatever moment of a phase the first balancing point is, since a fast slot gives at most d
/// more than a slow one, and the lowest get the fast ones.) Let t be the last point before a thread
/// ends. The fastest needs at most lambda / f more, thus the slowest x <= lambda / f + d, and mean
/// progress is at most e - x + d. From there a thread runs at 1/c at least:
/// t + c x <= (n/m) (e - x + d) + c x, which grows with x, and x at its greatest gives the bound.
#[must_use]
pub fn proactive_limit(s: Shape, e: Nanos, lambda: Nanos) -> ExactTime {
    let without = static_time(s, e);
    if !s.uneven() || !balanced_within(s, e, lambda) {
        return without;
    }
    let factor = (ratio(1 + u64::from(s.ceil()), 1) - n_over_m(s)) / ratio(s.floor(), 1);
    (continuous_time(s, e) + ExactTime::from(lambda).by(&factor)).min(without)
}

/// UB(RelativeSpeedup) of section 4 for this period: Eq. 1 over the greatest lower bound.
#[must_use]
pub fn speedup_bound(s: Shape, e: Nanos, lambda: Nanos) -> f64 {
    static_time(s, e).over(&lower_bound(s, e, lambda))
}

/// Eq. 15: lower bound of `phases` phases, the number times e n/m.
#[must_use]
pub fn phases_bound(s: Shape, phases: u64, e: Nanos) -> ExactTime {
    continuous_time(s, e).times(phases, 1)
}

/// Eq. 16: approximation for `phases` phases where lambda < e c, the number times one phase.
///
/// The paper names Eq. 2 alone for the phase. That falls below Eq. 14, and thus below Eq. 15, as
/// lambda becomes small; here it is the larger of the two.
///
/// # Errors
/// [`OutOfRange::EqualSlots`] where all slots are equal, [`OutOfRange::LongPeriod`] where
/// lambda >= e c.
pub fn phases_time(
    s: Shape,
    phases: u64,
    e: Nanos,
    lambda: Nanos,
) -> Result<ExactTime, OutOfRange> {
    let bound = lag_bound(s, e, lambda)?;
    Ok(bound.max(continuous_time(s, e)).times(phases, 1))
}

/// eta of Eq. 17: how many of the phases can have a balancing point, floor(phases e c / lambda).
/// Where lambda divides the whole the last point falls on the very end and does not count (the
/// paper leaves this case out).
#[must_use]
pub fn balanced_phases(s: Shape, phases: u64, e: Nanos, lambda: Nanos) -> u64 {
    if lambda == Nanos::ZERO {
        return phases;
    }
    let (whole, lambda) = (unbalanced_time(s, phases, e), ExactTime::from(lambda));
    let points = whole.fits(&lambda).to_u64().unwrap_or(u64::MAX);
    points.saturating_sub(u64::from(whole.is_multiple_of(&lambda))).min(phases)
}

/// CT^q of section 3.2: one phase with a single balancing point after the fraction q = `num / den`
/// of it, e max(q c + (1 - q) f, q f + (1 - q) c): the slow become fast, the fast become slow.
///
/// The paper takes q as the part of its work that a thread has done, the same for slow and fast
/// threads, though slow ones have done less by then. See [`expected_single_balance`].
///
/// # Errors
/// [`OutOfRange::EqualSlots`] where all slots are equal. `den` must not be 0, nor `num` exceed it.
pub fn single_balance_time(
    s: Shape,
    e: Nanos,
    num: u64,
    den: u64,
) -> Result<ExactTime, OutOfRange> {
    s.check_uneven()?;
    let (q, rest) = (ratio(num, den), ratio(den - num, den));
    let (f, c) = (ratio(s.floor(), 1), ratio(s.ceil(), 1));
    let risen = &q * &c + &rest * &f;
    let fallen = q * f + rest * c;
    Ok(ExactTime::from(e).by(&risen.max(fallen)))
}

/// The expected completion time of a phase with one balancing point, by case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SingleBalance {
    /// n_fast >= n_slow: all slow threads become fast.
    Helps(ExactTime),
    /// n_fast < n_slow: some thread is slow before and after, and nothing is gained (Eq. 18).
    TooFewFastSlots(ExactTime),
}

impl SingleBalance {
    /// The time, whichever case.
    #[must_use]
    pub fn time(&self) -> &ExactTime {
        match self {
            Self::Helps(t) | Self::TooFewFastSlots(t) => t,
        }
    }
}

/// The expected completion time of a phase with a single balancing point anywhere in it: the mean
/// of [`single_balance_time`] over all q, e (c - 1/4), where n_fast >= n_slow; else e c.
///
/// The paper prints c - 1/4 without e. It is an approximation on the safe side: with the point
/// anywhere in *time*, the ideal algorithm needs 5/3 e on average where 1 < n/m < 2 and all slow
/// threads find a CPU each, against 7/4 e here, and gains a little even where n_fast < n_slow if the
/// point comes after the fast threads have ended.
///
/// # Errors
/// [`OutOfRange::EqualSlots`] where all slots are equal.
pub fn expected_single_balance(s: Shape, e: Nanos) -> Result<SingleBalance, OutOfRange> {
    s.check_uneven()?;
    let without = static_time(s, e);
    Ok(if s.fast_slots() < s.slow_slots() {
        SingleBalance::TooFewFastSlots(without)
    } else {
        SingleBalance::Helps(without - ExactTime::from(e).times(1, 4))
    })
}

/// Eq. 17, and Eq. 18 where one balancing point cannot help: approximation for `phases` phases
/// where lambda >= e c, so that a phase has one balancing point or none.
///
/// # Errors
/// [`OutOfRange::EqualSlots`] where all slots are equal, [`OutOfRange::ShortPeriod`] where
/// lambda < e c.
pub fn rarely_balanced_time(
    s: Shape,
    phases: u64,
    e: Nanos,
    lambda: Nanos,
) -> Result<ExactTime, OutOfRange> {
    let once = expected_single_balance(s, e)?;
    if balanced_within(s, e, lambda) {
        return Err(OutOfRange::ShortPeriod);
    }
    let eta = balanced_phases(s, phases, e, lambda);
    Ok(static_time(s, e).times(phases - eta, 1) + once.time().times(eta, 1))
}

/// Eq. 18: `phases` phases that balancing cannot shorten, the number times e ceil(n/m). (Where the
/// paper describes Figure 11, n = 8 and m = 7, it names Eq. 18 for lambda >= e c; since
/// n_fast > n_slow there, Eq. 17 is meant.)
#[must_use]
pub fn unbalanced_time(s: Shape, phases: u64, e: Nanos) -> ExactTime {
    static_time(s, e).times(phases, 1)
}

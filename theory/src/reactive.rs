//! Ideal reactive balancing: threads are redistributed at the moment when some of them block, and
//! at no other (Juggle, section 3.3). The kernel's own balancer is the nearest to it in practice,
//! where threads sleep at barriers.
//!
//! Two slips in the print, found by deriving it and by running the algorithm: the number of fast
//! threads at the start is floor(n/m) (m - n mod m) = 2m - n, not ceil(n/m) (n mod m); and all
//! threads end at the first k with n_f(k) >= m, not <= m, so that k = -floor(log2(2 - n/m)) and
//! Eq. 21 has a floor where the print has a ceiling. Eq. 19 and 21 are in units of e.
//!
//! The paper's remark that n = 16 on m = 12 is the same for reactive and proactive balancing does
//! not follow: Eq. 21 gives 1.5 e, Eq. 14 gives 1.33 e. They agree where 2 - n/m is a power of 2,
//! such as 12 on 8.

use crate::{ExactTime, OutOfRange, Shape};
use evenly_model::Nanos;

/// Eq. 19: the time after which all threads have ended, if the balancer was called `k` times:
/// e (2 - 2^-k).
#[must_use]
pub fn reactive_after(k: u32, e: Nanos) -> ExactTime {
    let e = ExactTime::from(e);
    e.times(2, 1) - e.halved(k)
}

fn check(s: Shape) -> Result<(), OutOfRange> {
    if s.between_one_and_two() && s.uneven() {
        Ok(())
    } else {
        Err(OutOfRange::NotBetweenOneAndTwo)
    }
}

/// Eq. 20: the number of fast threads after balancing point `i`, (2m - n) 2^i, as long as there are
/// that many threads. Saturates.
///
/// # Errors
/// [`OutOfRange::NotBetweenOneAndTwo`] unless 1 < n/m < 2.
pub fn reactive_fast_threads(s: Shape, i: u32) -> Result<u64, OutOfRange> {
    check(s)?;
    let first = 2 * u64::from(s.m()) - u64::from(s.n());
    let doubled = 1_u64.checked_shl(i).and_then(|d| first.checked_mul(d));
    Ok(doubled.unwrap_or(u64::MAX))
}

/// k of Eq. 19 and 21: the least for which n_f(k) >= m, that is -floor(log2(2 - n/m)).
///
/// # Errors
/// [`OutOfRange::NotBetweenOneAndTwo`] unless 1 < n/m < 2.
pub fn reactive_rounds(s: Shape) -> Result<u32, OutOfRange> {
    let mut k = 0;
    while reactive_fast_threads(s, k)? < u64::from(s.m()) {
        k += 1;
    }
    Ok(k)
}

/// Eq. 21: one phase under ideal reactive balancing, e (2 - 2^floor(log2(2 - n/m))).
///
/// # Errors
/// [`OutOfRange::NotBetweenOneAndTwo`] unless 1 < n/m < 2; [`reactive_time_anywhere`] is for the
/// rest.
pub fn reactive_time(s: Shape, e: Nanos) -> Result<ExactTime, OutOfRange> {
    Ok(reactive_after(reactive_rounds(s)?, e))
}

/// One phase under ideal reactive balancing for any n and m, beyond the paper. Equal to
/// [`reactive_time`] where that is defined.
///
/// All threads start equal. After e f the fast ones end together, and the slow ones have e f/c
/// behind them and e/c to go: again equal threads, fewer of them, with less to do. So
/// R(n, e) = e f + R(n_slow, e/c), and e n/m or e where all slots are equal.
#[must_use]
pub fn reactive_time_anywhere(s: Shape, e: Nanos) -> ExactTime {
    let (mut s, mut left, mut time) = (s, ExactTime::from(e), ExactTime::zero());
    while s.uneven() {
        time = time + left.times(u64::from(s.floor()), 1);
        left = left.times(1, u64::from(s.ceil()));
        match Shape::new(s.slow_slots(), s.m()) {
            Ok(rest) => s = rest,
            Err(_) => return time,
        }
    }
    time + left.times(u64::from(s.ceil()), 1)
}

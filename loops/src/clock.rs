//! Clocks of the system.

use evenly_model::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// What this one shows.
pub(crate) fn time(clock: ClockId) -> Nanos {
    let t = clock_gettime(clock);
    Nanos((t.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64))
}

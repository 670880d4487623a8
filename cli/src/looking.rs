//! How often threads of evenly's own look at a program: the more rarely, the more it costs.

use evenly_model::Nanos;
use std::time::Duration;

/// How often it is looked whether threads crowd their CPUs.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
/// How long samples may wait until they are looked at.
pub(crate) const SAMPLES: Duration = Duration::from_millis(300);
/// The part of a CPU that looking may take, and where nothing has been found to do.
const SHARE: f64 = 0.003;
const SMALL_SHARE: f64 = 0.0005;
/// It is looked again after so long, whatever that costs; and where nothing has been found to do, unless it costs much.
const LONGEST: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_millis(250);

/// When it is looked again after a look that took so much CPU time.
pub(crate) fn pause_after(cost: Nanos) -> Duration {
    pause_of(cost, SHARE).clamp(INTERVAL, LONGEST)
}

/// The same where there has been nothing to do for a while. What is then found comes as a surprise, and not much later.
pub(crate) fn long_pause_after(cost: Nanos) -> Duration {
    pause_after(cost).max(pause_of(cost, SMALL_SHARE).clamp(INTERVAL, LONG))
}

fn pause_of(cost: Nanos, share: f64) -> Duration {
    Duration::from_nanos(cost.scale(1.0 / share).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch: ten thousand threads that are looked at as often as ten.
    #[test]
    fn what_costs_more_is_done_more_rarely() {
        assert_eq!(pause_after(Nanos::from_micros(10)), INTERVAL);
        assert_eq!(pause_after(Nanos::from_millis(3)), Duration::from_secs(1));
        assert_eq!(pause_after(Nanos::from_millis(500)), LONGEST);
        assert_eq!(long_pause_after(Nanos::from_micros(50)), Duration::from_millis(100));
        assert_eq!(long_pause_after(Nanos::from_micros(300)), LONG);
        assert_eq!(long_pause_after(Nanos::from_millis(3)), Duration::from_secs(1));
    }
}

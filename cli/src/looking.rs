//! How often threads of evenly's own look at a program: the more rarely, the more it costs.

use evenly_model::Nanos;
use std::time::Duration;

/// How often it is looked whether threads crowd their CPUs.
pub(crate) const INTERVAL: Duration = Duration::from_millis(20);
/// The part of a CPU that looking may take.
const SHARE: f64 = 0.003;
/// It is looked again after so long, whatever that costs.
const LONGEST: Duration = Duration::from_secs(10);

/// When it is looked again after a look that took so much CPU time.
pub(crate) fn pause_after(cost: Nanos) -> Duration {
    Duration::from_nanos(cost.scale(1.0 / SHARE).0).clamp(INTERVAL, LONGEST)
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
    }
}

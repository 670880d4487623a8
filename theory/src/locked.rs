//! One planned move of a thread in each phase: what the policy `phase` can reach.
//!
//! McNaughton's wrap-around (Scheduling with deadlines and loss functions, 1959, Theorem 3.1) does the work of a
//! phase in the time that no schedule can beat, with at most one cut between two CPUs. Here a cut is a move, and
//! a move has a cost. For equal threads on CPUs of any speed that limit is Eq. 14, which [`crate::continuous_time`]
//! and [`Speeds::continuous_time`] have exactly.
//!
//! Invariant: nothing is promised below the limit, and never more time than without moves.

use crate::{ExactTime, Shape, Speeds, continuous_time, static_time};
use evenly_model::Nanos;

/// One phase with planned moves, each of which delays its thread by `cost`. A thread that stays on a CPU for less
/// than twice that is not worth a move, and neither is a phase that a move shortens by less than its cost.
#[must_use]
pub fn locked_time(s: Shape, speeds: Option<&Speeds>, e: Nanos, cost: Nanos) -> ExactTime {
    let cost = ExactTime::from(cost);
    // The CPU that is done first where nothing is moved.
    let first = ExactTime::from(e).times(u64::from(s.floor()), 1);
    let (unmoved, limit, first) = match speeds {
        None => (static_time(s, e), continuous_time(s, e), first),
        Some(speeds) => {
            let fastest = speeds.iter().next().unwrap_or(1.0);
            let millionths = ((fastest * 1e6).round() as u64).max(1);
            let (n, first) = (s.n(), first.times(1_000_000, millionths));
            (speeds.static_time(n, e), speeds.continuous_time(n, e), first)
        }
    };
    let planned = limit.max(first + cost.times(2, 1)) + cost.clone();
    if planned < unmoved { planned } else { unmoved }
}

/// So many phases: the first one is only watched.
#[must_use]
pub fn locked_phases_time(
    s: Shape,
    speeds: Option<&Speeds>,
    (phases, e): (u64, Nanos),
    cost: Nanos,
) -> ExactTime {
    let unmoved = speeds.map_or_else(|| static_time(s, e), |speeds| speeds.static_time(s.n(), e));
    unmoved + locked_time(s, speeds, e, cost).times(phases.saturating_sub(1), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::shortest_makespan;

    const COST: Nanos = Nanos::from_micros(50);

    fn one(n: u32, m: u32, e_us: u64) -> f64 {
        locked_time(Shape::new(n, m).unwrap(), None, Nanos::from_micros(e_us), COST).nanos() / 1e3
    }

    #[test]
    fn phases_that_can_be_done_by_hand() {
        // 3 e / 2 and one move.
        assert_eq!(one(3, 2, 1_000), 1_550.0);
        assert_eq!(one(5, 2, 600), 1_550.0);
        // The limit is 250 us; the thread that moves has to stay for 2 * 50 us after 200 us.
        assert_eq!(one(5, 4, 200), 350.0);
        // A move gains 50 us, which is what it costs.
        assert_eq!(one(3, 2, 100), 200.0);
        // Nothing to move.
        assert_eq!(one(4, 2, 1_000), 2_000.0);
        assert_eq!(one(2, 4, 1_000), 1_000.0);
        let ten = locked_phases_time(
            Shape::new(3, 2).unwrap(),
            None,
            (10, Nanos::from_micros(1_000)),
            COST,
        );
        assert_eq!(ten.nanos() / 1e3, 2_000.0 + 9.0 * 1_550.0);
    }

    /// Would catch: a limit that is another than the one by which the policy plans.
    #[test]
    fn the_limit_is_that_of_the_policy() {
        let e = Nanos::from_millis(100);
        for list in ["1,1", "1,0.5", "4x1,4x0.5", "2,1,1,0.25"] {
            let speeds: Speeds = list.parse().unwrap();
            let all: Vec<f64> = speeds.iter().collect();
            for n in 1..20_u32 {
                let shape = speeds.shape(n).unwrap();
                let planned = locked_time(shape, Some(&speeds), e, Nanos::ZERO).nanos();
                let least = shortest_makespan(&vec![1e8; n as usize], &all);
                let unmoved = speeds.static_time(n, e).nanos();
                assert!(planned >= least * (1.0 - 1e-12) && planned <= unmoved, "{n} on {list}");
                if u64::from(shape.floor()) as f64 * 1e8 / all[0] <= least {
                    assert!((planned / least.min(unmoved) - 1.0).abs() < 1e-9, "{n} on {list}");
                }
            }
        }
    }
}

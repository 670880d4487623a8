//! How soon work can be done that threads may take from CPU to CPU: the limit of every plan for one phase.

/// The least time in which CPUs of these speeds can do this work, each thread on one CPU at a time, and moved
/// at no cost (Horvath, Lam, Sethi: A level algorithm for preemptive scheduling, 1977, Theorem 1). For CPUs
/// of speed 1 it is the longest work or the mean, whichever is more (McNaughton: Scheduling with deadlines
/// and loss functions, 1959, Theorem 3.1), which at most m - 1 moves reach.
///
/// `works` are in time on a CPU of speed 1. The result is in the same unit: 0 where there is nothing to do,
/// infinite where no CPU has a speed above 0. What is negative or no number counts as 0.
#[must_use]
pub fn shortest_makespan(works: &[f64], speeds: &[f64]) -> f64 {
    let descending = |values: &[f64]| {
        let mut sorted: Vec<f64> = values.iter().map(|v| v.max(0.0)).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        sorted
    };
    let (works, speeds) = (descending(works), descending(speeds));
    let (all, capacity) = (works.iter().sum::<f64>(), speeds.iter().sum::<f64>());
    if all == 0.0 {
        return 0.0;
    }
    // The k longest cannot end before the k fastest CPUs have done them.
    let sums = works.iter().zip(&speeds).scan((0.0, 0.0), |sum, (work, speed)| {
        *sum = (sum.0 + work, sum.1 + speed);
        Some(sum.0 / sum.1)
    });
    sums.fold(all / capacity, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Would catch: a bound that is not the one of the papers.
    #[test]
    fn limits_that_can_be_found_by_hand() {
        let is = |works: &[f64], speeds: &[f64], limit: f64| {
            let found = shortest_makespan(works, speeds);
            assert!((found - limit).abs() < 1e-12, "{works:?} on {speeds:?}: {found}");
        };
        is(&[1.0, 1.0, 1.0], &[1.0, 1.0], 1.5);
        is(&[4.0, 1.0, 1.0], &[1.0, 1.0], 4.0);
        is(&[3.0, 1.0, 3.0, 1.0], &[1.0, 1.0], 4.0);
        is(&[1.0; 8], &[1.0; 7], 8.0 / 7.0);
        // The fast CPU takes the long one at first; both are done at 1.
        is(&[2.0, 1.0], &[2.0, 1.0], 1.0);
        // Two that need the fast CPU take turns on it.
        is(&[2.0, 2.0], &[3.0, 1.0], 1.0);
        is(&[1.0], &[0.5, 0.25], 2.0);
        is(&[], &[1.0], 0.0);
        is(&[0.0, f64::NAN, -1.0], &[], 0.0);
        assert!(shortest_makespan(&[1.0], &[0.0]).is_infinite());
        assert!(shortest_makespan(&[1.0], &[]).is_infinite());
    }
}

//! When to stop looking: the secretary problem with cardinal payoff (Yun: Application of secretary
//! algorithm to dynamic load balancing, 2013, "OSLB", section 3.1; the theory is that of Bearden, A
//! new secretary problem with rank-based selection and cardinal payoffs, 2006).
//!
//! n candidates come one after the other in random order. Each is taken at once or never. The value
//! of the one that is taken counts (in the classical problem only whether it is the best). The best
//! rule of its kind lets a number of candidates pass, and takes the first that is better than all
//! before it; if none is, the last. How many should pass depends on how values are distributed:
//! sqrt(n) - 1 where that is uniform (section 3.1). Where it is Gaussian more would pass, as there the best
//! stand out (section 6): a fifth more threads are read then, and they become no more equal (256 threads on 192 CPUs,
//! simulated).
//!
//! Invariant: everything here is a function of its arguments.

/// Watches candidates pass, and says which one to take.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    skip: usize,
    seen: usize,
    best: f64,
}

impl Rule {
    /// Lets the first `skip` candidates pass.
    #[must_use]
    pub fn new(skip: usize) -> Self {
        Self { skip, seen: 0, best: f64::NEG_INFINITY }
    }

    /// Whether to take this candidate. One of value negative infinity is never taken.
    ///
    /// As good as the best is good enough: for the continuous values of the theory that makes no
    /// difference, but speeds are often equal, and then the best that passed would never be beaten.
    pub fn take(&mut self, value: f64) -> bool {
        self.seen += 1;
        let good = value >= self.best && value > f64::NEG_INFINITY;
        self.best = self.best.max(value);
        good && self.seen > self.skip
    }

    /// How many candidates it has seen.
    #[must_use]
    pub fn seen(&self) -> usize {
        self.seen
    }
}

/// How many of n candidates pass where values are uniform: sqrt(n) - 1, rounded.
#[must_use]
pub fn uniform_skip(n: usize) -> usize {
    ((n as f64).sqrt().round() as usize).saturating_sub(1)
}

/// Expected value of the one taken of n candidates, uniform in [0, 1], when `skip` pass. With
/// [`uniform_skip`] this is the curve of OSLB's Figure 2. NaN where no candidate is left.
#[must_use]
pub fn uniform_payoff(n: usize, skip: usize) -> f64 {
    if skip >= n {
        return f64::NAN;
    }
    // Bearden (2006), with c = skip + 1, the first that may be taken.
    let (n, c) = (n as f64, (skip + 1) as f64);
    (2.0 * c * n - c * c + c - n) / (2.0 * c * n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::stats::Random;

    /// Mean value of the one taken, by trying.
    fn tried(
        n: usize,
        skip: usize,
        times: usize,
        mut value: impl FnMut(&mut Random) -> f64,
    ) -> f64 {
        let mut random = Random::new(n as u64);
        let mut sum = 0.0;
        for _ in 0..times {
            let mut rule = Rule::new(skip);
            sum += (0..n)
                .map(|i| (i, value(&mut random)))
                .find(|&(i, v)| rule.take(v) || i + 1 == n)
                .unwrap()
                .1;
        }
        sum / times as f64
    }

    /// OSLB, section 3.1: ".73 fairly quickly at the small number n = 10, .90 at n = 100, and .95 at
    /// n = 500".
    #[test]
    fn figure_2() {
        for (n, least) in [(10, 0.73), (100, 0.90), (500, 0.95)] {
            let payoff = uniform_payoff(n, uniform_skip(n));
            assert!((least..least + 0.01).contains(&payoff), "n={n}: {payoff}");
        }
        // The whole curve is what the rule yields, and it rises.
        let mut last = 0.0;
        for n in [1, 2, 3, 5, 10, 20, 50, 100, 200] {
            let payoff = uniform_payoff(n, uniform_skip(n));
            let tried = tried(n, uniform_skip(n), 20_000, Random::unit);
            assert!((payoff - tried).abs() < 0.01, "n={n}: {payoff}, tried {tried}");
            assert!(payoff >= last, "n={n}");
            last = payoff;
        }
    }

    #[test]
    fn no_other_number_is_better_where_values_are_uniform() {
        for n in 1..600 {
            let best = (0..n).map(|s| uniform_payoff(n, s)).fold(0.0, f64::max);
            let ours = uniform_payoff(n, uniform_skip(n));
            assert!(best - ours < 1e-9, "n={n}: {ours}, best {best}");
        }
    }

    #[test]
    fn the_rule_takes_equals_and_never_what_is_worth_nothing() {
        let mut rule = Rule::new(2);
        let values = [f64::NEG_INFINITY, 1.0, f64::NEG_INFINITY, 0.5, 1.0, 2.0];
        assert_eq!(values.map(|v| rule.take(v)), [false, false, false, false, true, true]);
        assert_eq!(rule.seen(), 6);
        assert!(!Rule::new(0).take(f64::NEG_INFINITY));
    }
}

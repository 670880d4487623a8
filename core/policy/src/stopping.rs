//! When to stop looking: the secretary problem with cardinal payoff (Yun: Application of secretary
//! algorithm to dynamic load balancing, 2013, "OSLB", section 3.1; the theory is that of Bearden, A
//! new secretary problem with rank-based selection and cardinal payoffs, 2006).
//!
//! n candidates come one after the other in random order. Each is taken at once or never. The value
//! of the one that is taken counts (in the classical problem only whether it is the best). The best
//! rule of its kind lets a number of candidates pass, and takes the first that is better than all
//! before it; if none is, the last. How many should pass depends on how values are distributed:
//! sqrt(n) - 1 where that is uniform, more where it is Gaussian, because there the best stand out.
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

/// Which distribution of values the number that passes is the best for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CutOff {
    /// Uniform: sqrt(n) - 1 pass (OSLB, section 3.1).
    #[default]
    Uniform,
    /// Gaussian; OSLB leaves this open (its section 6).
    Gaussian,
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

/// The same for values from a standard normal distribution.
///
/// The one taken is the t-th if it is the best of the first t and the best of the first t - 1 is
/// among those that passed, which has probability skip / (t (t - 1)). Its value is then that of the
/// best of t, mu(t). If the best of the first n - 1 passed (probability skip / (n - 1)), the last is
/// taken, whatever it is, and its expected value is 0.
#[derive(Debug, Clone)]
pub struct Gaussian {
    /// mu(k) / (k (k - 1)), summed over k = 2 to the index.
    sums: Vec<f64>,
    /// The distribution function at equal steps, and its highest power so far.
    at: Vec<f64>,
    power: Vec<f64>,
    known: Option<(usize, usize)>,
}

/// Where the normal distribution is evaluated: at -REACH to REACH, in so many steps for each unit.
const REACH: i32 = 8;
const STEPS: i32 = 40;

impl Default for Gaussian {
    fn default() -> Self {
        let h = 1.0 / f64::from(STEPS);
        let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let mut sum = 0.0;
        let mut at = Vec::with_capacity((2 * REACH * STEPS) as usize);
        // Simpson's rule, one step at a time.
        for i in -REACH * STEPS..REACH * STEPS {
            at.push(sum);
            let x = f64::from(i) * h;
            sum += h / 6.0 * (density(x) + 4.0 * density(x + h / 2.0) + density(x + h));
        }
        at.push(sum);
        Self { sums: vec![0.0, 0.0], power: at.clone(), at, known: None }
    }
}

impl Gaussian {
    /// Expected value of the best of k standard normal values, for the next k.
    fn next_best(&mut self) -> f64 {
        let h = 1.0 / f64::from(STEPS);
        let zero = (REACH * STEPS) as usize;
        let mut mean = 0.0;
        for (i, (p, f)) in self.power.iter_mut().zip(&self.at).enumerate() {
            *p *= f;
            mean += if i < zero { -*p } else { 1.0 - *p };
        }
        // The trapezoidal rule: at 0, where the two integrals meet, each has half of its end, which
        // is (1 - P) / 2 - P / 2 instead of 1 - P.
        h * (mean - 0.5)
    }

    fn extend(&mut self, n: usize) {
        while self.sums.len() <= n {
            let k = self.sums.len() as f64;
            let last = self.sums.last().copied().unwrap_or_default();
            let best = self.next_best();
            self.sums.push(last + best / (k * (k - 1.0)));
        }
    }

    /// Expected value, in standard deviations from the mean, of the one taken of n candidates when
    /// `skip` pass.
    pub fn payoff(&mut self, n: usize, skip: usize) -> f64 {
        self.extend(n);
        self.payoff_known(n, skip)
    }

    fn payoff_known(&self, n: usize, skip: usize) -> f64 {
        // If none passes the first is taken; if only the last is left, that one.
        if skip == 0 || skip + 1 >= n {
            return 0.0;
        }
        skip as f64 * (self.sums[n - 1] - self.sums[skip])
    }

    /// How many of n should pass.
    pub fn skip(&mut self, n: usize) -> usize {
        if let Some((of, skip)) = self.known
            && of == n
        {
            return skip;
        }
        self.extend(n);
        let payoff = |&a: &usize, &b: &usize| {
            self.payoff_known(n, a).total_cmp(&self.payoff_known(n, b)).then(b.cmp(&a))
        };
        let skip = (0..n.max(1)).max_by(payoff).unwrap_or(0);
        self.known = Some((n, skip));
        skip
    }
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

    fn normal(random: &mut Random) -> f64 {
        let (a, b) = (1.0 - random.unit(), random.unit());
        (-2.0 * a.ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
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
    fn expected_best_of_normal_values() {
        let mut g = Gaussian::default();
        // mu(2) = 1 / sqrt(pi); the others are from tables of normal order statistics.
        for (k, mu) in [(2, 0.564_19), (3, 0.846_28), (10, 1.538_75), (100, 2.507_59)] {
            g.extend(k);
            let found = (g.sums[k] - g.sums[k - 1]) * (k * (k - 1)) as f64;
            assert!((found - mu).abs() < 1e-4, "k={k}: {found}, not {mu}");
        }
    }

    #[test]
    fn gaussian_cut_off_is_better_where_values_are_gaussian() {
        let mut g = Gaussian::default();
        for n in [10, 30, 100, 1_000, 4_096] {
            let skip = g.skip(n);
            assert!(skip >= uniform_skip(n) && skip < n, "n={n}: {skip}");
            assert!(g.payoff(n, skip) >= g.payoff(n, uniform_skip(n)), "n={n}");
            assert!(g.payoff(n, skip) >= g.payoff(n, skip + 1), "n={n}");
        }
        for n in [10, 30, 100] {
            let skip = g.skip(n);
            let tried = tried(n, skip, 20_000, normal);
            assert!((g.payoff(n, skip) - tried).abs() < 0.03, "n={n}: tried {tried}");
        }
        let (best, of_uniform) = (g.skip(4_096), uniform_skip(4_096));
        assert!(g.payoff(4_096, best) > g.payoff(4_096, of_uniform) + 0.05);
        assert_eq!((g.skip(0), g.skip(1)), (0, 0));
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

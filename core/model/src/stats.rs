//! Statistics for noisy machines: medians and bootstrap intervals, ratios of two samples, and a mean
//! whose interval may be looked at after each value.
//!
//! Invariant: everything is a function of its input and a seed, so that a report can be repeated.

/// A small, seeded, well-mixed generator (SplitMix64: Steele, Lea, Flood, 2014).
///
/// It serves jitter, shuffles and resampling, where speed and repeatability count and no secret
/// depends on it.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Seeded; equal seeds give equal sequences.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in 0..n; 0 where n is 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((self.unit() * n as f64) as usize).min(n.saturating_sub(1))
    }

    /// Brings a slice into random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

/// Median; None where there is no value. Not-a-number counts as greatest.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    let mut v = values.to_vec();
    v.sort_by(f64::total_cmp);
    let n = v.len();
    match n {
        0 => None,
        _ if n % 2 == 1 => Some(v[n / 2]),
        _ => Some((v[n / 2 - 1] + v[n / 2]) / 2.0),
    }
}

/// How often a bootstrap draws.
const DRAWS: usize = 4_000;

fn interval(mut draws: Vec<f64>) -> (f64, f64) {
    draws.sort_by(f64::total_cmp);
    let at = |q: f64| draws[((draws.len() - 1) as f64 * q).round() as usize];
    (at(0.025), at(0.975))
}

fn resample(values: &[f64], random: &mut Random, scratch: &mut Vec<f64>) -> f64 {
    scratch.clear();
    scratch.extend((0..values.len()).map(|_| values[random.below(values.len())]));
    median(scratch).unwrap_or(f64::NAN)
}

/// 95 % percentile-bootstrap interval of the median. With one value the interval is that value;
/// None where there is no value.
#[must_use]
pub fn median_interval(values: &[f64], seed: u64) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let mut random = Random::new(seed);
    let mut scratch = Vec::with_capacity(values.len());
    Some(interval((0..DRAWS).map(|_| resample(values, &mut random, &mut scratch)).collect()))
}

/// Ratio of two medians with its 95 % bootstrap interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The median of the first sample over that of the second.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Ratio {
    /// Whether the interval excludes 1, with at least three runs on each side being up to the
    /// caller.
    #[must_use]
    pub fn differs_from_one(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// Ratio of the medians of two independent samples; None where one is empty or b's median is 0.
#[must_use]
pub fn ratio_of_medians(a: &[f64], b: &[f64], seed: u64) -> Option<Ratio> {
    let value = median(a)? / median(b)?;
    if !value.is_finite() {
        return None;
    }
    let mut random = Random::new(seed);
    let mut scratch = Vec::with_capacity(a.len().max(b.len()));
    let draws = (0..DRAWS)
        .map(|_| resample(a, &mut random, &mut scratch) / resample(b, &mut random, &mut scratch))
        .collect();
    let (low, high) = interval(draws);
    Some(Ratio { value, low, high })
}

/// Error rate of [`RunningMean::half_width`], over all looks together.
const ALPHA: f64 = 0.05;
/// Variance of the effects, in standard deviations of a value, for which [`RunningMean::half_width`]
/// is narrowest. Another choice changes the width and not the error rate.
const EFFECT_VARIANCE: f64 = 4.0;

/// The mean of values that come one at a time, with an interval that may be looked at after each.
///
/// A Student interval holds its level for one look. Looking after each value and stopping when
/// the interval excludes a mean excludes the true one sooner or later. This interval is a confidence
/// sequence: that it ever excludes the true mean, whenever one looks and however often, has a
/// probability of at most 5 %. It inverts the Bayes factor of the t statistic for effects drawn from a
/// normal distribution, which is a martingale under the null hypothesis (Lai, Annals of Statistics 4,
/// 1976; Wang and Ramdas, arXiv:2310.03722). The level holds for independent normal values, and in
/// simulations for heavy tails too; values of which each resembles the one before exceed it.
#[derive(Debug, Clone, Copy, Default)]
pub struct RunningMean {
    count: u32,
    mean: f64,
    /// Sum of squared deviations (Welford, Technometrics 4, 1962).
    squares: f64,
}

impl RunningMean {
    /// Takes a value in.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / f64::from(self.count);
        self.squares += before * (value - self.mean);
    }

    /// How many values have been added.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Their mean; 0 where there is none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The standard error of the mean; infinite where there are fewer than two values.
    #[must_use]
    pub fn standard_error(&self) -> f64 {
        let n = f64::from(self.count);
        if self.count < 2 { f64::INFINITY } else { (self.squares / (n - 1.0) / n).sqrt() }
    }

    /// Half the width of the interval around the mean; infinite where the values are too few.
    #[must_use]
    pub fn half_width(&self) -> f64 {
        let n = f64::from(self.count);
        let shrinkage = 1.0 + n * EFFECT_VARIANCE;
        // The Bayes factor reaches 1/ALPHA where t^2 = (n - 1) (bound - 1) / (1 - bound / shrinkage).
        let bound = (shrinkage.sqrt() / ALPHA).powf(2.0 / n);
        if self.count < 2 || bound >= shrinkage {
            return f64::INFINITY;
        }
        (self.squares / n * (bound - 1.0) / (1.0 - bound / shrinkage)).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn a_running_mean_is_the_mean_and_its_interval_narrows() {
        let mut mean = RunningMean::default();
        assert_eq!((mean.count(), mean.half_width()), (0, f64::INFINITY));
        let mut widths = Vec::new();
        for i in 0..1_000_u32 {
            mean.add(3.0 + f64::from(i % 2));
            widths.push(mean.half_width());
        }
        assert!((mean.mean() - 3.5).abs() < 1e-12 && mean.count() == 1_000);
        assert_eq!(widths[0], f64::INFINITY);
        // Wider than Student's 0.031 for one look at a thousand values of deviation 0.5.
        assert!(widths[9] > widths[99] && widths[99] > widths[999], "{widths:?}");
        assert!((0.04..0.08).contains(&widths[999]), "{}", widths[999]);
    }

    #[test]
    fn five_values_give_the_interval_that_the_formula_gives() {
        let mut mean = RunningMean::default();
        [1.0, 2.0, 3.0, 4.0, 5.0].into_iter().for_each(|x| mean.add(x));
        // t at which the Bayes factor for effects of variance 4 is 20, found from its definition.
        let factor = |t: f64| {
            let r: f64 = 1.0 + 5.0 * 4.0;
            ((1.0 + t * t / 4.0) / (1.0 + t * t / (4.0 * r))).powf(2.5) / r.sqrt()
        };
        let t = mean.half_width() / (2.5_f64 / 5.0).sqrt();
        assert!((factor(t) - 20.0).abs() < 1e-9, "{t} gives {}", factor(t));
    }

    /// Part of the runs in which the interval ever excluded the true mean, looked at after each value.
    fn error_rate(runs: u32, looks: u32, seed: u64, value: impl Fn(&mut Random) -> f64) -> f64 {
        let mut random = Random::new(seed);
        let excluded = (0..runs).filter(|_| {
            let mut mean = RunningMean::default();
            (0..looks).any(|_| {
                mean.add(value(&mut random));
                mean.mean().abs() > mean.half_width()
            })
        });
        f64::from(u32::try_from(excluded.count()).unwrap()) / f64::from(runs)
    }

    #[test]
    fn looking_after_each_value_keeps_the_level() {
        let normal = |r: &mut Random| {
            (-2.0 * (1.0 - r.unit()).ln()).sqrt() * (std::f64::consts::TAU * r.unit()).cos()
        };
        // Student's distribution with 2 degrees of freedom: its variance is infinite.
        let heavy = |r: &mut Random| {
            let u = 2.0 * r.unit() - 1.0;
            u * (2.0 / (1.0 - u * u).max(1e-12)).sqrt()
        };
        let rates = [error_rate(4_000, 500, 1, normal), error_rate(4_000, 500, 2, heavy)];
        assert!(rates.iter().all(|&rate| rate > 0.0 && rate <= 0.05), "{rates:?}");
    }

    #[test]
    fn interval_holds_the_median_and_narrows() {
        let mut r = Random::new(7);
        let few: Vec<f64> = (0..10).map(|_| 10.0 + r.unit()).collect();
        let many: Vec<f64> = (0..400).map(|_| 10.0 + r.unit()).collect();
        let (a, b) = median_interval(&few, 1).unwrap();
        let (c, d) = median_interval(&many, 1).unwrap();
        assert!(a <= median(&few).unwrap() && median(&few).unwrap() <= b);
        assert!(d - c < b - a);
        assert_eq!(median_interval(&[5.0], 1), Some((5.0, 5.0)));
    }

    #[test]
    fn the_interval_covers_the_true_median_about_as_often_as_it_says() {
        let mut r = Random::new(42);
        let covered = (0..300)
            .filter(|&i| {
                let v: Vec<f64> = (0..15).map(|_| r.unit()).collect();
                let (low, high) = median_interval(&v, i).unwrap();
                low <= 0.5 && 0.5 <= high
            })
            .count();
        assert!((270..=297).contains(&covered), "{covered} of 300");
    }

    #[test]
    fn ratios() {
        let a = [2.0, 2.1, 1.9, 2.0, 2.05];
        let b = [1.0, 1.01, 0.99, 1.0, 1.02];
        let r = ratio_of_medians(&a, &b, 3).unwrap();
        assert!((r.value - 2.0).abs() < 0.05 && r.differs_from_one());
        assert!(!ratio_of_medians(&a, &a, 3).unwrap().differs_from_one());
        assert_eq!(ratio_of_medians(&a, &[], 3), None);
        assert_eq!(ratio_of_medians(&a, &[0.0], 3), None);
    }

    #[test]
    fn shuffles_keep_all_and_seeds_repeat() {
        let mut a: Vec<u32> = (0..50).collect();
        let mut b = a.clone();
        Random::new(9).shuffle(&mut a);
        Random::new(9).shuffle(&mut b);
        assert_eq!(a, b);
        a.sort_unstable();
        assert_eq!(a, (0..50).collect::<Vec<_>>());
    }
}

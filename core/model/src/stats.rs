//! Statistics for noisy machines: medians and bootstrap intervals, and ratios of two samples.
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
    /// median(a) / median(b).
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

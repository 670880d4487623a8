//! The comparison of two samples of run times.
//!
//! The interval of the ratio is a percentile bootstrap of the medians. From five runs per arm on it
//! claims a difference between equal arms in 2 to 5 % of cases, as it should; with three runs it
//! does so in about 10 % and with four in 6 to 8 % (simulated for normal, exponential, two-valued
//! and log-normal times), because so few values cannot reach further apart than their extremes.
//! With fewer than five runs Welch's t test of the logarithms (Welch, Biometrika 34, 1947) must
//! therefore agree at the 5 % level; both together stay under 5 %.
//!
//! Invariant: what is said of a pair does not depend on which of the two is named first.

use evenly_model::stats::{Ratio, ratio_of_medians};

/// With fewer runs per arm no interval is given and no difference is claimed.
pub(crate) const MIN_RUNS: usize = 3;
/// From this many runs per arm on the bootstrap interval decides alone.
pub(crate) const SOUND_RUNS: usize = 5;

/// Two-sided 5 % points of Student's t for 1 to 8 degrees of freedom.
const STUDENT_T: [f64; 8] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306];

/// How two samples relate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Relation {
    /// Second median over first median, so more than 1 where the first is faster.
    pub(crate) ratio: Ratio,
    /// Runs of the arm that has fewer.
    pub(crate) runs: usize,
    /// Whether the runs show a difference.
    pub(crate) differs: bool,
}

impl Relation {
    /// None where one has no runs.
    pub(crate) fn of(first: &[f64], second: &[f64], seed: u64) -> Option<Self> {
        let ratio = ratio_of_medians(second, first, seed)?;
        let runs = first.len().min(second.len());
        let differs = runs >= MIN_RUNS
            && ratio.differs_from_one()
            && (runs >= SOUND_RUNS || welch_differs(first, second));
        Some(Self { ratio, runs, differs })
    }

    /// Seen from the other side.
    pub(crate) fn inverse(self) -> Self {
        let Ratio { value, low, high } = self.ratio;
        let ratio = Ratio { value: value.recip(), low: high.recip(), high: low.recip() };
        Self { ratio, ..self }
    }

    /// The interval, where there are runs enough for one.
    pub(crate) fn interval(&self) -> Option<[f64; 2]> {
        (self.runs >= MIN_RUNS).then_some([self.ratio.low, self.ratio.high])
    }
}

/// Welch's test of the logarithms at the 5 % level; both samples have at least two values. The
/// degrees of freedom are rounded down and cut at the table's end, which errs towards "no".
fn welch_differs(first: &[f64], second: &[f64]) -> bool {
    let moments = |sample: &[f64]| {
        let n = sample.len() as f64;
        let mean = sample.iter().map(|x| x.ln()).sum::<f64>() / n;
        let squares = sample.iter().map(|x| (x.ln() - mean).powi(2)).sum::<f64>();
        (mean, squares / (n - 1.0) / n, n - 1.0)
    };
    let (mean_a, a, free_a) = moments(first);
    let (mean_b, b, free_b) = moments(second);
    let distance = (mean_a - mean_b).abs();
    if a + b == 0.0 {
        return distance > 0.0;
    }
    let freedom = (a + b).powi(2) / (a * a / free_a + b * b / free_b);
    // Equal variances give a whole number, which must not be rounded to the one below it.
    let row = ((freedom + 1e-6).floor() as usize).clamp(1, STUDENT_T.len()) - 1;
    distance > STUDENT_T[row] * (a + b).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn welch_agrees_with_a_worked_example() {
        // Logarithms 0, 0.1, 0.2 against 0.3, 0.4, 0.5: t = 3.674 with 4 degrees of freedom.
        let logs = |values: [f64; 3]| values.map(f64::exp);
        assert!(welch_differs(&logs([0.0, 0.1, 0.2]), &logs([0.3, 0.4, 0.5])));
        // t = 2.694, under the 2.776 of 4 degrees.
        assert!(!welch_differs(&logs([0.0, 0.1, 0.2]), &logs([0.22, 0.32, 0.42])));
        // t = 2.788, just over.
        assert!(welch_differs(&logs([0.0, 0.1, 0.2]), &logs([0.2277, 0.3277, 0.4277])));
        assert!(!welch_differs(&[2.0; 3], &[2.0; 3]));
    }

    #[test]
    fn the_other_side_is_the_reciprocal() {
        let r = Relation::of(&[1.0, 1.1, 1.2, 1.0, 1.1], &[2.0, 2.1, 2.2, 2.0, 2.1], 1).unwrap();
        let i = r.inverse();
        assert!((r.ratio.value * i.ratio.value - 1.0).abs() < 1e-12);
        assert!(i.ratio.low <= i.ratio.value && i.ratio.value <= i.ratio.high);
        assert!(r.differs && i.differs && r.ratio.low > 1.0 && i.ratio.high < 1.0);
    }

    #[test]
    fn two_runs_claim_nothing() {
        let r = Relation::of(&[1.0, 1.0], &[9.0, 9.0], 1).unwrap();
        assert!(!r.differs && r.interval().is_none());
        assert_eq!(Relation::of(&[], &[1.0], 1), None);
    }
}

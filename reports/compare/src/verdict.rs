//! What the runs show, in plain words.
//!
//! Invariant: the words "times as fast" appear only where [`Finding::Faster`] is.

use crate::statistics::{MIN_RUNS, Relation, SOUND_RUNS};
use serde::Serialize;

/// What can be said of two policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// The first is faster.
    Faster,
    /// These runs show no difference; there may be a small one.
    NoDifference,
    /// There are too few runs to say anything.
    TooFewRuns,
}

/// A sentence on two policies.
///
/// A difference is claimed where each arm has at least three runs and the 95 % bootstrap interval
/// of the ratio of medians excludes 1; with three or four runs Welch's t test of the logarithms
/// must agree, as so few runs make the interval too narrow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The two; the faster one first where a difference is claimed.
    pub policies: [String; 2],
    /// What was found, for programs that read it.
    pub finding: Finding,
    /// The same as a sentence.
    pub text: String,
}

impl Verdict {
    /// On `first` and `second`; `relation` is `first`'s to `second`.
    pub(crate) fn new(first: &str, second: &str, relation: Relation) -> Self {
        if relation.differs && relation.ratio.value < 1.0 {
            return Self::new(second, first, relation.inverse());
        }
        let (low, high, runs) = (relation.ratio.low, relation.ratio.high, relation.runs);
        let digits = digits(&relation);
        let (finding, text) = if relation.differs {
            let value = relation.ratio.value;
            let text = format!(
                "{first} is {value:.digits$} times as fast as {second} (95 % interval \
                 {low:.digits$} to {high:.digits$})"
            );
            (Finding::Faster, text)
        } else if runs < MIN_RUNS {
            let text = format!(
                "{first} and {second}: too few runs to say anything ({runs} where {MIN_RUNS} are \
                 the least; try --runs {SOUND_RUNS})"
            );
            (Finding::TooFewRuns, text)
        } else {
            let doubt = if relation.ratio.differs_from_one() {
                format!("; with {runs} runs chance alone reaches as far, try --runs {SOUND_RUNS}")
            } else {
                String::new()
            };
            let text = format!(
                "{first} and {second}: no sure difference in these runs ({first} was {low:.digits$} to \
                 {high:.digits$} times as fast{doubt})"
            );
            (Finding::NoDifference, text)
        };
        Self { policies: [first.to_owned(), second.to_owned()], finding, text }
    }
}

/// As few digits as show the interval's width and, in a claim, that it excludes 1.
fn digits(relation: &Relation) -> usize {
    let ratio = relation.ratio;
    (2..4)
        .find(|&digits| {
            let unit = 10f64.powi(-(digits as i32));
            ratio.high - ratio.low >= 2.0 * unit
                && (!relation.differs || (ratio.low - 1.0).abs() >= unit)
        })
        .unwrap_or(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::stats::Ratio;

    fn text(value: f64, low: f64, high: f64, runs: usize, differs: bool) -> String {
        let relation = Relation { ratio: Ratio { value, low, high }, runs, differs };
        Verdict::new("hybrid", "kernel", relation).text
    }

    #[test]
    fn sentences() {
        assert_eq!(
            text(1.31, 1.29, 1.33, 10, true),
            "hybrid is 1.31 times as fast as kernel (95 % interval 1.29 to 1.33)"
        );
        assert_eq!(
            text(0.5, 0.4, 0.625, 10, true),
            "kernel is 2.00 times as fast as hybrid (95 % interval 1.60 to 2.50)"
        );
        assert_eq!(
            text(1.0, 0.98, 1.03, 10, false),
            "hybrid and kernel: no sure difference in these runs (hybrid was 0.98 to 1.03 times as fast)"
        );
        assert_eq!(
            text(1.1, 1.02, 1.2, 3, false),
            "hybrid and kernel: no sure difference in these runs (hybrid was 1.02 to 1.20 times as fast; \
             with 3 runs chance alone reaches as far, try --runs 5)"
        );
        assert_eq!(
            text(2.0, 2.0, 2.0, 1, false),
            "hybrid and kernel: too few runs to say anything (1 where 3 are the least; try --runs \
             5)"
        );
    }

    #[test]
    fn digits_show_what_is_claimed() {
        assert!(text(1.02, 1.004, 1.04, 10, true).contains("1.020 times"));
        assert!(text(1.02, 1.004, 1.04, 10, true).contains("1.004 to 1.040"));
        assert!(text(1.0, 0.999, 1.0015, 10, false).contains("0.999 to 1.002"));
        assert!(text(1.5, 1.5, 1.5, 10, true).contains("1.5000 times"));
    }
}

//! What makes the figures less certain than they look, and the flag that mends it.
//!
//! Invariant: a warning changes no figure and no verdict.

use crate::metric::Metric;
use crate::statistics::SOUND_RUNS;
use evenly_model::stats::median;
use serde::Serialize;

/// Below this, start-up and the kernel's ticks weigh as much as balancing.
const SHORT_RUN_S: f64 = 0.1;
/// A run is an outlier this many median absolute deviations from the median (as in hyperfine: ten
/// standard deviations of normal noise).
const OUTLIER_DEVIATIONS: f64 = 14.826;
/// Least deviation that is assumed, as a part of the median, so that very steady runs have no
/// outliers a percent away.
const LEAST_DEVIATION: f64 = 0.005;
/// How much slower than all others a first run must be to be called slow, as a part of the median.
const SLOW_FIRST: f64 = 0.05;
/// A bound may be missed to the good side by so much before it is doubted.
const BOUND_SLACK: f64 = 1.02;

/// The kinds of warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// The comparison was interrupted.
    Interrupted,
    /// So few runs that intervals are rough.
    TooFewRuns,
    /// Runs of less than a tenth of a second.
    ShortRuns,
    /// Runs far from the others.
    Outliers,
    /// The first run is slower than all later ones.
    SlowFirstRun,
    /// Faster than the given bound.
    BeyondBound,
    /// evenly was there and never began to balance.
    NotBalanced,
    /// Others used the CPUs.
    Others,
}

/// A warning, with the remedy in its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// What the warning is about.
    pub kind: WarningKind,
    /// The policy concerned; None where it is all of them.
    pub policy: Option<String>,
    /// What was found and what to try.
    pub text: String,
}

/// Other programs may take this part of the CPUs before it is reported.
const MUCH_BY_OTHERS: f64 = 0.05;

/// The warning where others took much of the CPUs in a run: their shares, one a run.
#[must_use]
pub fn on_others(shares: &[f64], cpus: &str) -> Option<Warning> {
    let most = shares.iter().copied().fold(0.0, f64::max);
    let middle = median(shares)?;
    (most > MUCH_BY_OTHERS).then(|| Warning {
        kind: WarningKind::Others,
        policy: None,
        text: format!(
            "others took up to {:.0} % of CPUs {cpus} during a run, {:.0} % in the median: their time \
             is in these figures; compare on an idle machine, or with more --runs",
            100.0 * most,
            100.0 * middle
        ),
    })
}

/// Warnings on the whole: `done` and `asked` runs per arm, `done` that of the arm with the fewest.
pub(crate) fn on_all(done: usize, asked: usize, incomplete: bool) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if incomplete {
        warnings.push(Warning {
            kind: WarningKind::Interrupted,
            policy: None,
            text: format!("interrupted: only {done} of {asked} rounds are complete"),
        });
    }
    if done < SOUND_RUNS {
        warnings.push(Warning {
            kind: WarningKind::TooFewRuns,
            policy: None,
            text: match done {
                1 => format!("1 run per policy shows no interval; try --runs {SOUND_RUNS} or more"),
                _ => format!(
                    "{done} runs per policy make rough intervals; try --runs {SOUND_RUNS} or more"
                ),
            },
        });
    }
    warnings
}

/// Warnings on one arm.
pub(crate) fn on_arm(
    policy: &str,
    seconds: &[f64],
    metric: &Metric,
    warmup: usize,
    bound_s: Option<f64>,
) -> Vec<Warning> {
    let Some(median_s) = median(seconds) else { return Vec::new() };
    let mut warnings = Vec::new();
    let mut warn = |kind, text| {
        warnings.push(Warning { kind, policy: Some(policy.to_owned()), text });
    };
    if median_s < SHORT_RUN_S {
        let remedy = match metric {
            Metric::WallTime => "a larger problem, or --metric with a time that the program prints",
            Metric::Field(_) => "a larger problem",
        };
        let text = format!("{policy}: runs take {:.1} ms; try {remedy}", median_s * 1e3);
        warn(WarningKind::ShortRuns, text);
    }
    let slow_first = slow_first(seconds, median_s);
    if slow_first {
        let text = format!(
            "{policy}: the first run took {:.3} s, longer than all that followed; try --warmup {}",
            seconds[0],
            warmup + 1
        );
        warn(WarningKind::SlowFirstRun, text);
    }
    let outliers = outliers(&seconds[usize::from(slow_first)..], median_s);
    if outliers > 0 {
        let text = format!(
            "{policy}: {outliers} of {} runs lie far from the others; something else ran on this \
             machine, try again when it is quiet or with more --runs",
            seconds.len()
        );
        warn(WarningKind::Outliers, text);
    }
    if let Some(bound) = bound_s.filter(|bound| median_s * BOUND_SLACK < *bound) {
        let text = format!(
            "{policy}: the median of {median_s:.3} s is below the bound of {bound:.3} s, which is \
             therefore wrong for this machine; measure the bound again"
        );
        warn(WarningKind::BeyondBound, text);
    }
    warnings
}

/// Warns where evenly balanced nothing in `idle` of `runs` runs of an arm: they show what its
/// presence costs, and not what it is worth.
pub(crate) fn on_idle_runs(policy: &str, idle: usize, runs: usize) -> Option<Warning> {
    (idle > 0).then(|| Warning {
        kind: WarningKind::NotBalanced,
        policy: Some(policy.to_owned()),
        text: format!(
            "{policy}: balancing never began in {idle} of {runs} runs; see why with: evenly run \
             --policy {policy} -- COMMAND"
        ),
    })
}

/// Whether the first run stands apart from all others by more than they do from each other.
fn slow_first(seconds: &[f64], median_s: f64) -> bool {
    let [first, others @ ..] = seconds else { return false };
    if others.len() < 2 {
        return false;
    }
    let slowest = others.iter().copied().fold(f64::MIN, f64::max);
    let fastest = others.iter().copied().fold(f64::MAX, f64::min);
    first - slowest > (slowest - fastest).max(SLOW_FIRST * median_s)
}

fn outliers(seconds: &[f64], median_s: f64) -> usize {
    if seconds.len() < SOUND_RUNS {
        return 0;
    }
    let distances: Vec<f64> = seconds.iter().map(|s| (s - median_s).abs()).collect();
    let deviation = median(&distances).unwrap_or(0.0).max(LEAST_DEVIATION * median_s);
    distances.iter().filter(|d| **d > OUTLIER_DEVIATIONS * deviation).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(seconds: &[f64]) -> Vec<WarningKind> {
        let all = on_arm("kernel", seconds, &Metric::WallTime, 0, Some(1.0));
        all.iter().map(|w| w.kind).collect()
    }

    #[test]
    fn other_load_is_reported_where_it_took_much() {
        assert_eq!(on_others(&[], "0-1"), None);
        assert_eq!(on_others(&[0.0, 0.05, 0.01], "0-1"), None);
        let warning = on_others(&[0.0, 0.302, 0.01], "0-1").unwrap();
        assert_eq!(warning.kind, WarningKind::Others);
        assert!(warning.text.contains("up to 30 % of CPUs 0-1"), "{}", warning.text);
        assert!(warning.text.contains("1 % in the median"), "{}", warning.text);
    }

    #[test]
    fn steady_runs_have_none() {
        assert_eq!(kinds(&[1.0, 1.01, 1.0, 0.99, 1.02]), []);
        assert_eq!(kinds(&[1.05, 1.05, 1.0, 1.0, 1.0]), []);
        assert_eq!(kinds(&[]), []);
        assert_eq!(on_all(5, 5, false), []);
    }

    #[test]
    fn runs_without_balancing_are_reported() {
        assert_eq!(on_idle_runs("juggle", 0, 5), None);
        let warning = on_idle_runs("juggle", 2, 5).unwrap();
        assert_eq!(warning.kind, WarningKind::NotBalanced);
        assert!(warning.text.contains("in 2 of 5 runs"), "{}", warning.text);
    }

    #[test]
    fn each_kind() {
        assert_eq!(kinds(&[0.02, 0.021]), [WarningKind::ShortRuns, WarningKind::BeyondBound]);
        assert_eq!(kinds(&[1.2, 1.0, 1.01, 1.0]), [WarningKind::SlowFirstRun]);
        assert_eq!(kinds(&[1.0, 1.01, 1.3, 1.0, 0.99]), [WarningKind::Outliers]);
        assert!(on_all(1, 1, false)[0].text.starts_with("1 run per policy shows no interval"));
        assert_eq!(
            on_all(2, 7, true).iter().map(|w| w.kind).collect::<Vec<_>>(),
            [WarningKind::Interrupted, WarningKind::TooFewRuns]
        );
    }

    #[test]
    fn the_remedy_is_a_flag() {
        let all = on_arm("static", &[0.05, 0.02, 0.02], &Metric::WallTime, 1, None);
        assert!(all[0].text.contains("--metric"), "{}", all[0].text);
        assert!(all[1].text.ends_with("try --warmup 2"), "{}", all[1].text);
    }
}

//! The result of a comparison, in the form of the JSON schema `evenly.compare/1`.
//!
//! Invariant: what is written here is what `docs/schemas/evenly.compare-1.json` describes; a field
//! is never renamed or re-used.

use crate::executor::Arm;
use crate::options::Options;
use crate::statistics::{MIN_RUNS, Relation};
use crate::verdict::Verdict;
use crate::warning::{self, Warning};
use evenly_model::stats::{median, median_interval};
use serde::Serialize;
use std::collections::BTreeMap;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "evenly.compare/1";

/// What the runs of one arm gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples {
    pub(crate) seconds: Vec<f64>,
    pub(crate) reports: Vec<serde_json::Value>,
    /// Runs under evenly in which balancing never began.
    pub(crate) idle: usize,
}

/// How much faster one policy is than another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Speedup {
    /// The other's median over this one's: more than 1 where this one is faster.
    pub ratio: f64,
    /// 95 % bootstrap interval; None with fewer than three runs.
    pub ci95: Option<[f64; 2]>,
}

/// The runs of one policy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmResult {
    /// The policy of the arm, or `kernel`.
    pub policy: String,
    /// The metric of every measured run, in their order, in seconds.
    pub seconds: Vec<f64>,
    /// Median; None where no run was completed.
    pub median_s: Option<f64>,
    /// 95 % bootstrap interval of the median; None with fewer than three runs.
    pub ci95_s: Option<[f64; 2]>,
    /// The fastest run, in seconds.
    pub min_s: Option<f64>,
    /// The slowest run, in seconds.
    pub max_s: Option<f64>,
    /// Bound over median, in percent: 100 is the best that theory allows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_percent: Option<f64>,
    /// Against every other policy that has runs.
    pub speedup_vs: BTreeMap<String, Speedup>,
    /// The report of every run, where they are kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<serde_json::Value>,
}

/// An arm, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recommended {
    /// Its name, as it was given.
    pub policy: String,
    /// Why this one, in a sentence.
    pub reason: String,
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Name and version of the form, [`SCHEMA`].
    pub schema: &'static str,
    /// The command that was compared.
    pub command: Vec<String>,
    /// Runs asked for per policy.
    pub runs: usize,
    /// Discarded rounds before them.
    pub warmup: usize,
    /// Seed of the orders and of the bootstrap.
    pub seed: u64,
    /// `wall_time_s`, or the program's own field.
    pub metric: String,
    /// Whether it was interrupted, so that policies may have fewer runs than asked for.
    pub incomplete: bool,
    /// SHA-256 of the output that all runs share, where that was demanded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_sha256: Option<String>,
    /// The least time that theory allows, in seconds, where given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_s: Option<f64>,
    /// One per policy, in the order in which they were given.
    pub results: Vec<ArmResult>,
    /// One per pair of policies that have runs.
    pub verdicts: Vec<Verdict>,
    /// The arm to run the program with; None before that is asked for, and where runs are too few.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommended: Option<Recommended>,
    /// What makes the figures less certain.
    pub warnings: Vec<Warning>,
}

impl Comparison {
    pub(crate) fn new(
        arms: &[Arm],
        samples: Vec<Samples>,
        options: &Options,
        incomplete: bool,
        output_sha256: Option<String>,
    ) -> Self {
        let fewest = samples.iter().map(|s| s.seconds.len()).min().unwrap_or(0);
        let mut warnings = warning::on_all(fewest, options.runs, incomplete);
        for (arm, sample) in arms.iter().zip(&samples) {
            let (metric, warmup, bound) = (&options.metric, options.warmup, options.bound_s);
            warnings.extend(warning::on_arm(&arm.name, &sample.seconds, metric, warmup, bound));
            let runs = sample.seconds.len();
            warnings.extend(warning::on_idle_runs(&arm.name, sample.idle, runs));
        }
        let mut results: Vec<ArmResult> = arms
            .iter()
            .zip(samples)
            .map(|(arm, sample)| arm_result(&arm.name, sample, options))
            .collect();
        let mut verdicts = Vec::new();
        for second in 1..results.len() {
            for first in 0..second {
                let seed = options.seed.wrapping_add(1 + verdicts.len() as u64);
                let (a, b) = (&results[first], &results[second]);
                let Some(relation) = Relation::of(&a.seconds, &b.seconds, seed) else { continue };
                verdicts.push(Verdict::new(&a.policy, &b.policy, relation));
                let (a, b) = (a.policy.clone(), b.policy.clone());
                results[first].speedup_vs.insert(b, speedup(relation));
                results[second].speedup_vs.insert(a, speedup(relation.inverse()));
            }
        }
        Self {
            schema: SCHEMA,
            command: options.command.clone(),
            runs: options.runs,
            warmup: options.warmup,
            seed: options.seed,
            metric: options.metric.to_string(),
            incomplete,
            output_sha256,
            bound_s: options.bound_s,
            results,
            verdicts,
            recommended: None,
            warnings,
        }
    }
}

fn speedup(relation: Relation) -> Speedup {
    Speedup { ratio: relation.ratio.value, ci95: relation.interval() }
}

fn arm_result(policy: &str, sample: Samples, options: &Options) -> ArmResult {
    let Samples { seconds, reports, .. } = sample;
    let median_s = median(&seconds);
    ArmResult {
        policy: policy.to_owned(),
        median_s,
        ci95_s: median_interval(&seconds, options.seed)
            .filter(|_| seconds.len() >= MIN_RUNS)
            .map(|(low, high)| [low, high]),
        min_s: seconds.iter().copied().min_by(f64::total_cmp),
        max_s: seconds.iter().copied().max_by(f64::total_cmp),
        bound_percent: options.bound_s.zip(median_s).map(|(bound, median)| 100.0 * bound / median),
        speedup_vs: BTreeMap::new(),
        seconds,
        reports,
    }
}

//! A case under several arms, beside the paper: what `evenly simulate --power5` says (`evenly.power5/1`).
//!
//! Invariants: a field is never renamed or re-used; all arms run the same program.

use super::{Arm, ByShare, Case, Latency, Run, Speeds, run};
use evenly_model::hpc::{Heuristic, Parameter, Parameters};
use serde::Serialize;
use std::collections::BTreeMap;

/// Name and version of the schema.
pub const POWER5_SCHEMA: &str = "evenly.power5/1";

/// The arm in which all priorities are equal.
const BASELINE: &str = "baseline";
/// Those that the paper's authors have set by hand.
const STATIC: &str = "static";

/// There is no such arm.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no arm '{found}' of {case}; there are {known}")]
pub struct NoArm {
    found: String,
    case: &'static str,
    known: String,
}

/// What an arm came to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmReport {
    /// `baseline`, `static`, or a heuristic.
    pub arm: &'static str,
    /// When the last process had ended.
    pub time_s: f64,
    /// What part of the baseline's time it does not take, in percent.
    pub faster_percent: f64,
    /// What part of the time each process computed, in percent.
    pub computing_percent: Vec<f64>,
    /// How often a priority was changed.
    pub changes: usize,
    /// Iterations in which a rank computes for less than HIGH_UTIL.
    pub uneven_iterations: usize,
    /// The time with the speeds that follow from decode shares by one function for all programs.
    pub by_share_time_s: f64,
    /// What each process computed then.
    pub by_share_computing_percent: Vec<f64>,
    /// The paper's time; none where it has no such arm.
    pub paper_time_s: Option<f64>,
    /// What processes computed there.
    pub paper_computing_percent: Option<[f64; 4]>,
}

/// A case under several arms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Name and version of the form, [`POWER5_SCHEMA`].
    pub schema: &'static str,
    /// The case that was run.
    pub case: &'static str,
    /// The number of its table in the paper.
    pub table: &'static str,
    /// Iterations, the initialisation left out.
    pub iterations: usize,
    /// The seed of its loads.
    pub seed: u64,
    /// How long a woken task waits for its CPU under CFS.
    pub latency_s: f64,
    /// The parameters of the heuristics.
    pub parameters: BTreeMap<&'static str, f64>,
    /// How fast tasks are: fitted on this program.
    pub speeds: Speeds,
    /// The parameters of speed as one function of the decode share, for all programs.
    pub by_share: ByShare,
    /// How fast tasks are by that.
    pub by_share_speeds: Speeds,
    /// The arms, baseline first.
    pub arms: Vec<ArmReport>,
}

/// The names of all arms that some case has.
#[must_use]
pub fn arm_names() -> Vec<&'static str> {
    let heuristics = Heuristic::ALL.map(Heuristic::name);
    [BASELINE, STATIC].into_iter().chain(heuristics).collect()
}

impl Case {
    /// Its arms with their names: baseline, fixed priorities where the paper has them, the heuristics.
    #[must_use]
    pub fn arms(&self, parameters: &Parameters) -> Vec<(&'static str, Arm)> {
        let mut all = vec![(BASELINE, Arm::Baseline)];
        all.extend(self.fixed.map(|f| (STATIC, Arm::Static(f.to_vec()))));
        all.extend(Heuristic::ALL.map(|h| (h.name(), Arm::Balanced(h, parameters.clone()))));
        all
    }

    /// Runs the baseline and one arm, or all of them.
    ///
    /// # Errors
    /// [`NoArm`] where the case has none of that name.
    pub fn compare(
        &self,
        arm: Option<&str>,
        parameters: &Parameters,
        latency: Latency,
        seed: u64,
    ) -> Result<Comparison, NoArm> {
        let mut arms = self.arms(parameters);
        if let Some(wanted) = arm {
            if arms.iter().all(|a| a.0 != wanted) {
                let known = arms.iter().map(|a| a.0).collect::<Vec<_>>().join(", ");
                return Err(NoArm { found: wanted.to_owned(), case: self.id, known });
            }
            arms.retain(|a| a.0 == BASELINE || a.0 == wanted);
        }
        let program = self.program(seed);
        let by_share_speeds = Speeds::by_share(ByShare::FITTED);
        let other = self.with_speeds(by_share_speeds).program(seed);
        let runs: Vec<(&'static str, Run, Run)> = (arms.into_iter())
            .map(|(name, arm)| (name, run(&program, &arm, latency), run(&other, &arm, latency)))
            .collect();
        let baseline_s = runs.first().map_or(f64::NAN, |r| r.1.time_s);
        let computing = |r: &Run| (0..r.did.len()).map(|i| r.computing_percent(i)).collect();
        let report = |(name, r, by_share): &(&'static str, Run, Run)| {
            let paper = self.paper.iter().find(|p| p.arm == *name);
            let iterations = 0..r.did.iter().map(Vec::len).min().unwrap_or(0);
            ArmReport {
                arm: name,
                time_s: r.time_s,
                faster_percent: 100.0 * (1.0 - r.time_s / baseline_s),
                computing_percent: computing(r),
                changes: r.changes,
                uneven_iterations: iterations
                    .filter(|&i| r.least_utilisation(i) < parameters.high())
                    .count(),
                by_share_time_s: by_share.time_s,
                by_share_computing_percent: computing(by_share),
                paper_time_s: paper.map(|p| p.time_s),
                paper_computing_percent: paper.map(|p| p.computing_percent),
            }
        };
        Ok(Comparison {
            schema: POWER5_SCHEMA,
            case: self.id,
            table: self.table,
            iterations: self.iterations,
            seed,
            latency_s: latency.normal_s,
            parameters: Parameter::ALL.map(|p| (p.name(), parameters.get(p))).into(),
            speeds: self.speeds,
            by_share: ByShare::FITTED,
            by_share_speeds,
            arms: runs.iter().map(report).collect(),
        })
    }
}

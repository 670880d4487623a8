//! The comparison itself: rounds in random order, checks after every run, results at the end.
//!
//! Invariant: a failing run ends the comparison with an error, never with figures; an interrupt
//! ends it with the figures so far, marked incomplete.

use crate::comparison::{Comparison, Samples};
use crate::executor::{Arm, Executor, RunError, RunOutcome, Status};
use crate::metric::MetricError;
use crate::options::Options;
use crate::output::{Difference, Output};
use evenly_model::stats::Random;
use std::collections::BTreeSet;
use std::fmt;
use std::io;

/// Most runs per arm.
const MAX_RUNS: usize = 10_000;
/// The most arms that are compared at once.
const MAX_ARMS: usize = 64;

/// One round: every arm once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// A round that is discarded, counted from 1.
    WarmUp(usize),
    /// A measured round, counted from 1.
    Measured(usize),
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WarmUp(round) => write!(f, "warm-up {round}"),
            Self::Measured(round) => write!(f, "run {round}"),
        }
    }
}

/// Called with what happens; every method does nothing unless it is given.
pub trait Progress {
    /// Before the first run: how many runs there will be in all, warm-up included.
    fn planned(&mut self, runs: usize) {
        let _ = runs;
    }
    /// A run of this arm starts.
    fn started(&mut self, arm: &Arm, round: Round) {
        let _ = (arm, round);
    }
    /// It has ended well, with this value of the metric in seconds. A warm-up run's value is what
    /// it took.
    fn finished(&mut self, arm: &Arm, round: Round, seconds: f64) {
        let _ = (arm, round, seconds);
    }
    /// The user interrupted; no run follows.
    fn interrupted(&mut self) {}
}

/// Progress that is not shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}

/// Why there is no comparison. The program ends with status 125 for each of them.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// What was asked for cannot be done.
    #[error("{0}")]
    Asked(String),
    /// A run could not be made or gave no outcome.
    #[error("{arm}, {round}: {source}")]
    Run {
        /// The arm whose run could not be made.
        arm: String,
        /// Which of its runs.
        round: Round,
        /// Why it could not be made.
        source: RunError,
    },
    /// A run ended with a failure.
    #[error("{arm}, {round}: the program {status}{}; a comparison needs runs that succeed",
        quoted(.stderr_tail))]
    Failed {
        /// The arm whose run failed.
        arm: String,
        /// Which of its runs.
        round: Round,
        /// How its run ended.
        status: Status,
        /// The end of its standard error.
        stderr_tail: String,
    },
    /// A run under evenly says that evenly could not balance.
    #[error("{arm}, {round}: evenly could not balance, so there is nothing to compare: {reason}")]
    NotBalanced {
        /// The arm that was not balanced.
        arm: String,
        /// Which of its runs.
        round: Round,
        /// What evenly said about it.
        reason: String,
    },
    /// A run has no value of the metric.
    #[error("{arm}, {round}: the program {source}")]
    Metric {
        /// The arm whose run has no such number.
        arm: String,
        /// Which of its runs.
        round: Round,
        /// What its output lacks.
        source: MetricError,
    },
    /// Two runs wrote different outputs.
    #[error(
        "outputs differ from byte {} (line {}) on: {} ({}) has {}, {} ({}) has {}; if the output \
         may vary from run to run, leave out --same-output",
        difference.byte, difference.line, reference.0, reference.1, difference.first, arm, round,
        difference.second
    )]
    OutputsDiffer {
        /// Arm and round that all others are held against.
        reference: Box<(String, Round)>,
        /// The arm that differs.
        arm: String,
        /// Which of its runs.
        round: Round,
        /// Where, the reference first.
        difference: Box<Difference>,
    },
    /// Outputs could not be compared.
    #[error("cannot read the output of a run again: {0}")]
    Output(#[source] io::Error),
}

fn quoted(stderr_tail: &str) -> String {
    match stderr_tail.trim() {
        "" => " and wrote nothing to standard error".to_owned(),
        tail => format!("; the end of its standard error: {}", tail.replace('\n', " | ")),
    }
}

fn check(arms: &[Arm], options: &Options) -> Result<(), CompareError> {
    let asked = |text: String| Err(CompareError::Asked(text));
    if !(2..=MAX_ARMS).contains(&arms.len()) {
        return asked(format!(
            "a comparison needs 2 to {MAX_ARMS} policies and has {}; name them with --policies",
            arms.len()
        ));
    }
    let mut names = BTreeSet::new();
    if let Some(twice) = arms.iter().find(|arm| !names.insert(&arm.name)) {
        return asked(format!("policy `{}` is named twice; name it once", twice.name));
    }
    if !(1..=MAX_RUNS).contains(&options.runs) {
        return asked(format!("--runs is {}, and 1 to {MAX_RUNS} are possible", options.runs));
    }
    if options.warmup > MAX_RUNS {
        return asked(format!("--warmup is {}, and 0 to {MAX_RUNS} are possible", options.warmup));
    }
    match options.bound_s {
        Some(bound) if !(bound.is_finite() && bound > 0.0) => {
            asked(format!("the bound is {bound} s, and must be greater than 0"))
        }
        _ => Ok(()),
    }
}

/// Compares the arms.
///
/// # Errors
/// Where the options make no sense, a run fails, has no value of the metric, or writes other output
/// than the first one. An interrupt is no error: see [`Comparison::incomplete`].
pub fn compare<E, P>(
    arms: &[Arm],
    options: &Options,
    executor: &mut E,
    progress: &mut P,
) -> Result<Comparison, CompareError>
where
    E: Executor + ?Sized,
    P: Progress + ?Sized,
{
    check(arms, options)?;
    progress.planned(arms.len() * (options.warmup + options.runs));
    let mut samples = vec![Samples::default(); arms.len()];
    let mut reference = None;
    let mut incomplete = false;
    for (index, (round, position)) in order(arms.len(), options).into_iter().enumerate() {
        let arm = &arms[position];
        progress.started(arm, round);
        let outcome = match executor.run(arm, index) {
            Ok(outcome) => outcome,
            Err(RunError::Interrupted) => {
                progress.interrupted();
                incomplete = true;
                break;
            }
            Err(source) => {
                return Err(CompareError::Run { arm: arm.name.clone(), round, source });
            }
        };
        let (seconds, report) = judge(arm, round, outcome, options, &mut reference)?;
        progress.finished(arm, round, seconds);
        if matches!(round, Round::Measured(_)) {
            samples[position].seconds.push(seconds);
            samples[position].idle +=
                usize::from(report.as_ref().is_some_and(|r| r["started"] == false));
            samples[position].reports.extend(report.filter(|_| options.keep_reports));
        }
    }
    let sha256 = reference.map(|(_, output): Reference| output.sha256().to_owned());
    Ok(Comparison::new(arms, samples, options, incomplete, sha256))
}

/// Every run in its order: rounds one after the other, the arms of each in an order of its own.
fn order(arms: usize, options: &Options) -> Vec<(Round, usize)> {
    let mut random = Random::new(options.seed);
    let rounds =
        (1..=options.warmup).map(Round::WarmUp).chain((1..=options.runs).map(Round::Measured));
    rounds
        .flat_map(|round| {
            let mut positions: Vec<usize> = (0..arms).collect();
            random.shuffle(&mut positions);
            positions.into_iter().map(move |position| (round, position))
        })
        .collect()
}

/// The run that all outputs are held against.
type Reference = ((String, Round), Output);

fn judge(
    arm: &Arm,
    round: Round,
    outcome: RunOutcome,
    options: &Options,
    reference: &mut Option<Reference>,
) -> Result<(f64, Option<serde_json::Value>), CompareError> {
    let name = || arm.name.clone();
    if !outcome.status.success() {
        return Err(CompareError::Failed {
            arm: name(),
            round,
            status: outcome.status,
            stderr_tail: outcome.stderr_tail,
        });
    }
    if let Some(reason) = outcome.report.as_ref().and_then(|r| r["failure"].as_str()) {
        return Err(CompareError::NotBalanced { arm: name(), round, reason: reason.to_owned() });
    }
    let seconds = options.metric.of(&outcome).map_err(|source| CompareError::Metric {
        arm: name(),
        round,
        source,
    })?;
    if options.same_output {
        match reference {
            None => *reference = Some(((name(), round), outcome.output)),
            Some((by, first)) => {
                if let Some(difference) =
                    first.difference(&outcome.output).map_err(CompareError::Output)?
                {
                    return Err(CompareError::OutputsDiffer {
                        reference: Box::new(by.clone()),
                        arm: name(),
                        round,
                        difference: Box::new(difference),
                    });
                }
            }
        }
    }
    Ok((seconds, outcome.report))
}

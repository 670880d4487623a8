//! How figures run the simulator.
//!
//! Invariant: runs that are compared have the same machine, programs and seed.

use crate::FigureError;
use evenly_engine::{Event, Observer};
use evenly_model::{CpuId, CpuSet, Nanos};
use evenly_policies::by_name;
use evenly_policy::PolicyInfo;
use evenly_sim::{
    Barrier, DriverOptions, Outcome, RunError, Scenario, Sim, Simple, simulate, simulate_seen_by,
};
use evenly_theory::{self as theory, Shape};
use std::sync::{Arc, Mutex, PoisonError};

/// e of the Juggle paper's EP (sections 4.1 and 4.2).
pub(crate) const EP: Nanos = Nanos::from_millis(30_000);

/// So many milliseconds.
pub(crate) const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// So much of a time.
pub(crate) fn part(of: Nanos, factor: f64) -> Nanos {
    of.scale(factor)
}

/// CPUs `from` to `to - 1`.
pub(crate) fn cpus(from: u32, to: u32) -> CpuSet {
    (from..to).map(CpuId).collect()
}

/// The paper's analysis of one phase: equal threads, fair sharing, nothing costs anything.
pub(crate) fn analysed(s: Shape, phase: Nanos, period: Nanos) -> Simple {
    Simple { shape: s, phase, period, phases: 1, barrier: Barrier::Block, jitter: false, seed: 1 }
}

/// Relative speedup of phases of `e`: by Eq. 16 below e ceil(n/m), by Eq. 17 from there on, over Eq. 18.
pub(crate) fn approximation(
    s: Shape,
    phases: u64,
    e: Nanos,
    lambda: Nanos,
) -> Result<f64, FigureError> {
    let time = match theory::phases_time(s, phases, e, lambda) {
        Ok(time) => time,
        Err(_) => theory::rarely_balanced_time(s, phases, e, lambda)?,
    };
    Ok(theory::unbalanced_time(s, phases, e).over(&time))
}

/// The policy of that name.
pub(crate) fn named(policy: &str) -> Result<&'static PolicyInfo, FigureError> {
    by_name(policy).ok_or_else(|| FigureError::Policy(policy.to_owned()))
}

/// A run that ends.
pub(crate) struct Run {
    pub(crate) outcome: Outcome,
    /// When the last thread ended, in seconds.
    pub(crate) makespan: f64,
}

/// Runs a scenario; `expected` is about how long it may take.
pub(crate) fn run(
    scenario: &Scenario,
    policy: &str,
    options: &DriverOptions,
    expected: Nanos,
) -> Result<Run, FigureError> {
    let limit = Nanos(expected.0.saturating_mul(30));
    let policy = named(policy)?;
    let outcome = simulate(Sim::new(scenario.clone()), policy, &options.for_policy(policy), limit);
    let makespan = outcome.makespan.ok_or(RunError::NoEnd { limit })?.as_secs_f64();
    Ok(Run { outcome, makespan })
}

#[derive(Clone, Default)]
struct Watcher(Arc<Mutex<Vec<Event>>>);

impl Observer for Watcher {
    fn event(&mut self, event: &Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event.clone());
    }
}

/// Runs a scenario up to `limit`, and keeps what happened.
pub(crate) fn watch(
    scenario: &Scenario,
    policy: &str,
    options: &DriverOptions,
    limit: Nanos,
) -> Result<Vec<Event>, FigureError> {
    let watcher = Watcher::default();
    let mut observers: Vec<Box<dyn Observer>> = vec![Box::new(watcher.clone())];
    simulate_seen_by(Sim::new(scenario.clone()), named(policy)?, options, limit, &mut observers);
    let events = watcher.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(events)
}

/// The mean; NaN of nothing.
pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The variance of a sample (divided by one less than their number).
pub(crate) fn variance(values: &[f64]) -> f64 {
    let m = mean(values);
    values.iter().map(|v| (v - m) * (v - m)).sum::<f64>() / (values.len() as f64 - 1.0)
}

/// The least and the greatest.
pub(crate) fn range(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let start = (f64::INFINITY, f64::NEG_INFINITY);
    values.into_iter().fold(start, |(a, b), v| (a.min(v), b.max(v)))
}

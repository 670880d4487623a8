//! Runs with a fixed period, for tests against the papers.
#![allow(clippy::unwrap_used)]

use evenly_model::Nanos;
use evenly_policies::by_name;
use evenly_sim::{DriverOptions, Outcome, Scenario, Sim, simulate};

/// No run takes longer.
pub(crate) const LIMIT: Nanos = Nanos::from_millis(3_600_000);

pub(crate) fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

pub(crate) fn run(scenario: &Scenario, policy: &str, period: Nanos) -> Outcome {
    simulate(
        Sim::new(scenario.clone()),
        by_name(policy).unwrap(),
        &DriverOptions::fixed(period, 3),
        LIMIT,
    )
}

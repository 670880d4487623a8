//! What a simulated run came to, as it is printed and written as JSON (`evenly.simulate/1`,
//! described in `docs/simulate.md`).
//!
//! Invariant: a field is never renamed or re-used.

use serde::Serialize;

/// Name and version of the schema.
pub const SCHEMA: &str = "evenly.simulate/1";

/// How far the threads were at one balancing point, in seconds of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Sample {
    /// Time since the start.
    pub at_s: f64,
    /// The thread that had received least.
    pub least_s: f64,
    /// The mean progress of all threads, in seconds.
    pub mean_s: f64,
    /// The thread that had received most.
    pub most_s: f64,
}

/// A run and what it is compared with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name and version of the form, [`SCHEMA`].
    pub schema: &'static str,
    /// The policy that decided.
    pub policy: String,
    /// Where the scenario came from: a file, or the flags.
    pub scenario: String,
    /// Threads that were balanced.
    pub threads: usize,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Period of balancing, in seconds; what was asked for, without jitter.
    pub period_s: f64,
    /// Seed of all that is random.
    pub seed: u64,
    /// When the last thread ended.
    pub makespan_s: f64,
    /// When each program ended, in the order of the scenario.
    pub programs_s: Vec<f64>,
    /// The makespan under the policy `static` on the same machine.
    pub static_s: f64,
    /// `static_s / makespan_s`: how many times as fast as without balancing.
    pub relative_speedup: f64,
    /// The greatest relative speedup that theory allows (Juggle, section 4: Eq. 1 over the greater
    /// of Eq. 2 and 14). None where theory has no bound: interference, several programs.
    pub bound_speedup: Option<f64>,
    /// Threads moved by the policy.
    pub migrations: u64,
    /// Threads moved by the model of the kernel.
    pub kernel_migrations: u64,
    /// Whether the guard ended balancing, in one domain at least, as the program was faster without.
    pub stood_down: bool,
    /// How many balancing points there were.
    pub balancing_points: u64,
    /// Readings of a thread's times by the balancer.
    pub readings: u64,
    /// Searches for a thread to swap with; 0 where the policy does not search.
    pub searches: u64,
    /// Readings that were made in searches, of threads on other CPUs.
    pub observations: u64,
    /// The most in one search.
    pub observations_most: u64,
    /// Progress at balancing points; thinned evenly where there are more than [`MOST_SAMPLES`].
    pub progress: Vec<Sample>,
}

/// The most samples that a report holds.
pub const MOST_SAMPLES: usize = 1_000;

/// Keeps [`MOST_SAMPLES`] of the samples at most, evenly spaced, the last one included.
#[must_use]
pub fn thinned(samples: &[Sample]) -> Vec<Sample> {
    let every = samples.len().div_ceil(MOST_SAMPLES).max(1);
    let mut kept: Vec<Sample> = samples.iter().rev().step_by(every).copied().collect();
    kept.reverse();
    kept
}

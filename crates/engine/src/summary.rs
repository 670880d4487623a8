//! What a run of the cycle amounted to, in numbers.
//!
//! Invariant: everything here was measured in the run; nothing is taken from a formula that
//! assumes what the machine did.

use crate::Verdict;
use evenly_model::metrics::Level;
use evenly_model::{CpuSet, DomainId, Nanos, Pid, ThreadId};
use serde::Serialize;

/// Where the time of the balancing points went (wall time, summed over points).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CostBreakdown {
    /// Reading thread times and places.
    #[serde(rename = "read_ns")]
    pub read: Nanos,
    /// Classifying and planning.
    #[serde(rename = "decide_ns")]
    pub decide: Nanos,
    /// Setting masks.
    #[serde(rename = "apply_ns")]
    pub apply: Nanos,
    /// Telling observers.
    #[serde(rename = "record_ns")]
    pub record: Nanos,
}

/// One thread over the whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ThreadSummary {
    /// Which thread.
    pub id: ThreadId,
    /// Its process.
    pub pid: Pid,
    /// Its name.
    pub name: String,
    /// CPU time while it was balanced, in seconds.
    pub ran_s: f64,
    /// Waiting for a CPU, in seconds.
    pub waited_s: f64,
    /// Blocked, in seconds.
    pub blocked_s: f64,
    /// Moves made by evenly.
    pub migrations: u64,
    /// Minor page faults since the thread started.
    pub minor_faults: u64,
    /// Major page faults since the thread started.
    pub major_faults: u64,
    /// For how long it was balanced, in seconds.
    pub present_s: f64,
}

/// One domain over the whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DomainSummary {
    /// Which domain.
    pub id: DomainId,
    /// Its CPUs at the end.
    pub cpus: CpuSet,
    /// Balancing points.
    pub points: u64,
    /// Moves.
    pub migrations: u64,
    /// Moves that could not be carried out, vanished threads not counted.
    pub failed: u64,
    /// CPU time of its balancer, in seconds.
    pub cpu_s: f64,
    /// Mean length of a period, in seconds.
    pub period_s: f64,
    /// Where the time went.
    pub cost: CostBreakdown,
    /// Greatest number of threads that were balanced at one time.
    pub threads: u32,
    /// Progress of the slowest thread over that of one left in the slowest slot throughout, both
    /// measured; None where nothing was measured.
    pub estimated_gain: Option<f64>,
    /// What pausing has shown.
    #[serde(skip)]
    pub verdict: Verdict,
    /// Whether balancing stood down.
    pub stood_down: bool,
    /// Part of the threads' time that was waiting for a CPU.
    pub wait_share: f64,
    /// Part of the threads' time that was blocked.
    pub blocked_share: f64,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Summary {
    /// The domains.
    pub domains: Vec<DomainSummary>,
    /// The threads, in the order in which they joined.
    pub threads: Vec<ThreadSummary>,
    /// Notes in the order in which they were made.
    pub notes: Vec<String>,
}

impl Summary {
    /// Progress (CPU time per second present) of the threads that were there for most of the run.
    #[must_use]
    pub fn progress_level(&self) -> Option<Level> {
        let longest = self.threads.iter().map(|t| t.present_s).fold(0.0, f64::max);
        Level::of(
            self.threads
                .iter()
                .filter(|t| t.present_s > 0.5 * longest && t.present_s > 0.0)
                .map(|t| t.ran_s / t.present_s),
        )
    }
}

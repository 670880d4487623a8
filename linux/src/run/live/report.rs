//! What a live run amounted to.
//!
//! Invariant: a report is plain values, which outlive the run.

use crate::limits::Quota;
use evenly_engine::{Placed, Summary};
use evenly_model::{CpuSet, Nanos};

/// What a live run amounted to.
#[derive(Debug, Clone, Default)]
pub struct LiveReport {
    /// What the cycle did.
    pub summary: Summary,
    /// How long there was something to balance.
    pub balanced_s: f64,
    /// CPU time of evenly as a whole, in seconds.
    pub overhead_s: f64,
    /// Greatest number of threads that the program was seen with.
    pub threads: usize,
    /// Greatest number of processes that it was seen with.
    pub processes: usize,
    /// Threads of a real-time or deadline class, which are left alone.
    pub realtime_threads: usize,
    /// Whether balancing ever began.
    pub started: bool,
    /// The CPU quota of the program, if it has one.
    pub quota: Quota,
    /// The period that was aimed at.
    pub period: Nanos,
    /// Where thread times came from, as `--source` has it; None where balancing never began.
    pub source: Option<&'static str>,
    /// What became of the mapping, where there was one and balancing began.
    pub mapping: Option<Placed>,
    /// The CPUs that the program could use when balancing began: no more than what the masks of the
    /// threads that were balanced allowed to any of them.
    pub cpus: CpuSet,
}

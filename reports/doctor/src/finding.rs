//! One cause that makes a program slow.

use evenly_model::CpuSet;
use serde::Serialize;

/// A cause that makes a program slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A CPU quota holds it back.
    Quota,
    /// Its mask allows fewer CPUs than it has threads, and fewer than there are.
    NarrowMask,
    /// Threads are pinned to one CPU while another has room.
    PinnedTogether,
    /// Other programs use its CPUs.
    Neighbour,
    /// A CPU is slower than others, or the host of the virtual machine takes it away.
    SlowCpu,
    /// One thread has more work than the others, which wait for it.
    UnevenWork,
    /// Threads do not divide evenly among CPUs.
    UnevenDivision,
    /// Threads spin while others of the program wait for their CPUs.
    Spinning,
    /// More MPI ranks than CPUs, and ranks wait by polling.
    MpiOversubscribed,
    /// OpenMP is set to start more threads than there are CPUs.
    TooManyThreads,
    /// OpenMP is set to start fewer threads than there are CPUs.
    TooFewThreads,
    /// Threads wait for a disk.
    BlockedIo,
    /// Memory is on other NUMA nodes than the threads.
    RemoteMemory,
}

/// One cause, with its cost and a remedy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The kind of cause.
    pub kind: Kind,
    /// One sentence with the cause.
    pub sentence: String,
    /// The share of the threads' time that it costs, from 0 to 1; None where that is unknown.
    pub cost: Option<f64>,
    /// Whether the cost is an upper bound.
    pub at_most: bool,
    /// What was measured, in sentences.
    pub evidence: Vec<String>,
    /// What to do, in words.
    pub remedy: String,
    /// A line to paste, where one helps.
    pub paste: Option<String>,
    /// Ids of the threads that are concerned.
    pub threads: Vec<i32>,
    /// The CPUs that are concerned.
    pub cpus: CpuSet,
}

impl Finding {
    /// With a measured cost, and without a remedy.
    pub(crate) fn new(kind: Kind, cost: f64, sentence: String) -> Self {
        Self {
            kind,
            sentence,
            cost: Some(cost.clamp(0.0, 1.0)),
            at_most: false,
            evidence: Vec::new(),
            remedy: String::new(),
            paste: None,
            threads: Vec::new(),
            cpus: CpuSet::new(),
        }
    }
}

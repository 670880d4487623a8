//! A program of parallel loops, each of which ends at a barrier.

use evenly_iterations::{ArrayId, Bounds, Region};
use evenly_model::Nanos;
use std::ops::Range;

/// Data that each node needs which carries out any of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Everywhere {
    /// The array.
    pub array: ArrayId,
    /// Its bytes that are needed.
    pub bytes: Range<u64>,
    /// From step to step they are so many bytes further on.
    pub moves: u64,
}

/// After its iterations, each processor writes to the elements of an array one after the other, from that of its first iteration
/// on: half of all, and as many as it had iterations. Each has a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updates {
    /// The array.
    pub array: ArrayId,
    /// Bytes of an element, of which there are as many as iterations.
    pub element_bytes: u64,
    /// How long a lock is held, without what the memory takes.
    pub hold: Nanos,
}

/// A parallel loop.
#[derive(Debug, Clone, PartialEq)]
pub struct ParallelLoop {
    /// Its name.
    pub name: String,
    /// What is declared of it.
    pub region: Region,
    /// Its iterations in the first step.
    pub bounds: Bounds,
    /// CPU time of an iteration in the first step.
    pub work: Nanos,
    /// In each step there is an iteration less at the begin, and all others have so much less to do.
    pub shrinks: bool,
    /// What all need.
    pub everywhere: Vec<Everywhere>,
    /// What is written under locks.
    pub updates: Option<Updates>,
    /// CPU time of what one processor does after it, that of its first iteration, while all others wait at a further barrier.
    pub alone: Option<Nanos>,
}

impl ParallelLoop {
    /// Its iterations in a step.
    pub(super) fn bounds(&self, step: u64) -> Bounds {
        let less = if self.shrinks { i64::try_from(step).unwrap_or(i64::MAX) } else { 0 };
        Bounds { lower: self.bounds.lower.saturating_add(less), ..self.bounds }
    }

    /// CPU time of an iteration in a step.
    pub(super) fn work_ns(&self, step: u64) -> f64 {
        let count = |bounds: Bounds| bounds.count().unwrap_or(0).max(1) as f64;
        self.work.0 as f64 * count(self.bounds(step)) / count(self.bounds)
    }
}

/// A program: its loops in order, again and again.
#[derive(Debug, Clone, PartialEq)]
pub struct LoopProgram {
    /// Bytes of each array.
    pub arrays: Vec<u64>,
    /// What is done in a step.
    pub loops: Vec<ParallelLoop>,
    /// How often.
    pub steps: u64,
}

/// Why loops cannot be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{object}: {found}; needed {needed}")]
pub struct LoopError {
    /// What is wrong.
    pub object: String,
    /// What was found.
    pub found: String,
    /// What was needed.
    pub needed: String,
}

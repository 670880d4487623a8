//! A program of parallel loops, each of which ends at a barrier.

use super::cluster::Cluster;
use super::pages::MOST_NODES;
use evenly_iterations::{ArrayId, Bounds, Region};
use evenly_model::Nanos;
use std::ops::Range;

/// The most that a run may be asked for: instances, processors, pages, and tasks in all instances.
const MOST_INSTANCES: u64 = 1_000_000;
const MOST_PROCESSORS: usize = 1_024;
const MOST_PAGES: u64 = 10_000_000;
const MOST_ITERATIONS: u64 = 100_000_000;

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

fn within(object: &str, found: u64, most: u64) -> Result<(), LoopError> {
    if (1..=most).contains(&found) {
        return Ok(());
    }
    Err(LoopError {
        object: object.into(),
        found: format!("there are {found}"),
        needed: format!("from 1 to {most}"),
    })
}

impl LoopProgram {
    /// Whether it can be run there, within the limits of a run.
    ///
    /// # Errors
    /// [`LoopError`].
    pub fn check(&self, cluster: &Cluster) -> Result<(), LoopError> {
        let processors = cluster.memory.processors();
        within("processors", processors as u64, MOST_PROCESSORS as u64)?;
        let nodes = cluster.memory.nodes.iter().max().map_or(0, |last| last + 1);
        within("nodes", nodes as u64, MOST_NODES as u64)?;
        let loads = cluster.loads.iter().find(|load| !(0.0..=0.99).contains(*load));
        if let Some(load) = loads {
            let (object, found) = ("load".into(), format!("it is {load}"));
            return Err(LoopError { object, found, needed: "from 0 to 0.99".into() });
        }
        within("loads of processors", cluster.loads.len() as u64, processors as u64)?;
        let page = cluster.memory.unit_bytes.max(1);
        let pages =
            self.arrays.iter().map(|bytes| bytes.div_ceil(page)).fold(0, u64::saturating_add);
        within("pages of all arrays", pages.max(1), MOST_PAGES)?;
        within("instances", self.steps.saturating_mul(self.loops.len() as u64), MOST_INSTANCES)?;
        let iterations = self.loops.iter().map(|l| l.bounds.count().unwrap_or(0).max(1));
        for count in iterations {
            within("iterations of a loop", count, MOST_ITERATIONS)?;
        }
        Ok(())
    }
}

//! How one instance of a region is handed out, and what became of it.

use crate::Processor;
use crate::chunks::Chunks;
use crate::division::Owners;
use crate::powers::Measured;
use crate::tasks::Tasks;
use evenly_model::Nanos;

/// Who takes which tasks of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandsOut {
    /// Each has its own.
    Owned {
        /// Of each task.
        owners: Owners,
        /// Whoever has finished takes from the others.
        steals: bool,
    },
    /// Whoever comes next takes some, in order.
    Next(Chunks),
}

/// An instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Its tasks.
    pub tasks: Tasks,
    /// Who takes them.
    pub hands_out: HandsOut,
}

impl Plan {
    /// The owner of each task; none where nobody owns any.
    #[must_use]
    pub fn owners(&self) -> &[Processor] {
        match &self.hands_out {
            HandsOut::Owned { owners, .. } => owners,
            HandsOut::Next(_) => &[],
        }
    }
}

/// What became of an instance.
#[derive(Debug, Clone, Copy)]
pub struct Outcome<'a> {
    /// By processor.
    pub measured: &'a [Measured],
    /// From the release to the end of all.
    pub makespan: Nanos,
    /// Who carried out each task, where some were stolen.
    pub carried_out: Option<&'a [usize]>,
}

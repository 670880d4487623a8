//! What the loops of a program have in common.

use crate::partitions::Partitions;
use crate::powers::Powers;

/// How fast the processors are, and how arrays are divided among them.
#[derive(Debug, Clone, PartialEq)]
pub struct Common {
    /// The power of each processor.
    pub powers: Powers,
    /// How arrays are divided.
    pub partitions: Partitions,
    regions: u32,
}

impl Common {
    /// Of so many processors nothing is known.
    #[must_use]
    pub fn new(processors: usize) -> Self {
        Self { powers: Powers::new(processors), partitions: Partitions::default(), regions: 0 }
    }

    /// The number of a region that is new.
    pub(crate) fn number(&mut self) -> u32 {
        self.regions += 1;
        self.regions
    }
}

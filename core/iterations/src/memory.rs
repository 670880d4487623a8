//! Where processors are, and what it takes to move data between them.

use crate::Processor;
use evenly_model::Nanos;

/// The memory of the processors that carry out a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Bytes that move together: a cache line within a machine, a page between machines.
    pub unit_bytes: u64,
    /// The node of each processor. Data move between nodes; within one they need not.
    pub nodes: Vec<usize>,
    /// How long it takes to move a unit from one node to another.
    pub fetch: Nanos,
}

impl Memory {
    /// So many processors on one node.
    #[must_use]
    pub fn of_one_node(processors: usize, unit_bytes: u64) -> Self {
        Self { unit_bytes, nodes: vec![0; processors], fetch: Nanos::ZERO }
    }

    /// How many processors there are.
    #[must_use]
    pub fn processors(&self) -> usize {
        self.nodes.len()
    }

    /// Whether no data have to move.
    #[must_use]
    pub fn is_one_node(&self) -> bool {
        self.fetch == Nanos::ZERO
    }

    /// The node of all of these processors; None where they are on several.
    #[must_use]
    pub fn node(&self, processors: impl IntoIterator<Item = Processor>) -> Option<usize> {
        let mut nodes = processors.into_iter().filter_map(|p| self.nodes.get(p).copied());
        let first = nodes.next()?;
        nodes.all(|node| node == first).then_some(first)
    }

    /// How long it takes to move so many bytes.
    #[must_use]
    pub fn moving(&self, bytes: u64) -> Nanos {
        Nanos(self.fetch.0.saturating_mul(bytes.div_ceil(self.unit_bytes.max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_on_nodes() {
        let fetch = Nanos::from_micros(220);
        let memory = Memory { unit_bytes: 8_192, nodes: vec![0, 0, 1, 1], fetch };
        assert_eq!(memory.processors(), 4);
        assert_eq!(
            (memory.node([2, 3]), memory.node([1, 2]), memory.node([])),
            (Some(1), None, None)
        );
        assert_eq!(memory.moving(8_193), Nanos::from_micros(440));
        assert_eq!(Memory::of_one_node(2, 64).moving(4_096), Nanos::ZERO);
    }
}

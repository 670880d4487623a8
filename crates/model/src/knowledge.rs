//! What is known of a machine and of a program beside what is observed: for policies that place
//! threads by load, communication and memory.

use crate::{CpuId, CpuSet, NodeIndex, TaskGraph};

/// The NUMA nodes of a machine, what they cost each other, and what was recorded of the program.
#[derive(Debug, Clone)]
pub struct Knowledge {
    /// The nodes: their numbers on the system, and their CPUs. CPUs of none are taken to be of the
    /// first.
    pub nodes: Vec<(u32, CpuSet)>,
    /// NUCO factors, row by row: from (i, j) the latency of node i reading from node j, over that of
    /// i reading its own memory (NucoLB, section III-A); as many as nodes times nodes.
    pub factors: Vec<f64>,
    /// Bytes a second from node i to node j, row by row, where that is known.
    pub bandwidths: Option<Vec<f64>>,
    /// Loads and messages of the program's ranks (or threads) in an earlier run, by their numbers,
    /// where there is such a record.
    pub profile: Option<TaskGraph>,
    /// After how many periods threads are placed anew.
    pub every: u32,
}

impl Knowledge {
    /// After how many periods threads are placed anew, unless told otherwise: so many that the tick
    /// does not show in loads, and that what a migration costs is small beside what it saves.
    pub const USUAL_EVERY: u32 = 50;

    /// A machine whose nodes all cost each other the same, of a program of which nothing is known.
    #[must_use]
    pub fn even(nodes: Vec<(u32, CpuSet)>, factor: f64) -> Self {
        let n = nodes.len();
        let factors = (0..n * n).map(|k| if k / n == k % n { 1.0 } else { factor }).collect();
        Self { nodes, factors, bandwidths: None, profile: None, every: Self::USUAL_EVERY }
    }

    /// The node of a CPU.
    #[must_use]
    pub fn node_of(&self, cpu: CpuId) -> NodeIndex {
        self.nodes.iter().position(|(_, cpus)| cpus.contains(cpu)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_on_their_nodes() {
        let cpus = |list: &str| list.parse().unwrap();
        let k = Knowledge::even(vec![(0, cpus("0-1")), (2, cpus("2-3"))], 1.5);
        assert_eq!([0, 1, 2, 3, 9].map(|c| k.node_of(CpuId(c))), [0, 0, 1, 1, 0]);
        assert_eq!(k.factors, [1.0, 1.5, 1.5, 1.0]);
    }
}

//! What is known of a machine and of a program beside what is observed: for policies that place
//! threads by load, communication and memory.

use crate::hpc::{Levels, Parameters, Parts};
use crate::{CpuId, CpuSet, TaskGraph};
use serde::Serialize;
use std::sync::Arc;

/// A NUMA node by its place in [`Knowledge::nodes`], or in those of the machine that tasks are mapped onto.
pub type NodeIndex = usize;

/// A level of caches that cores of one node share.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CacheLevel {
    /// What the level is called, such as L3.
    pub name: String,
    /// Latency between two cores that share it, over the latency of local memory.
    pub factor: f64,
}

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
    /// Levels of caches that CPUs share, from the innermost: for each the CPUs of each cache. CPUs of none
    /// share nothing there.
    pub caches: Vec<(CacheLevel, Vec<CpuSet>)>,
    /// Loads and messages of the program's ranks (or threads) in an earlier run, by their numbers,
    /// where there is such a record.
    pub profile: Option<TaskGraph>,
    /// After how many periods threads are placed anew.
    pub every: u32,
}

impl Knowledge {
    /// After how many periods threads are placed anew by default: so many that the tick
    /// does not show in loads, and that what a migration costs is small beside what it saves.
    pub const USUAL_EVERY: u32 = 50;

    /// A machine whose nodes all cost each other the same, of a program of which nothing is known.
    #[must_use]
    pub fn even(nodes: Vec<(u32, CpuSet)>, factor: f64) -> Self {
        let n = nodes.len();
        let factors = (0..n * n).map(|k| if k / n == k % n { 1.0 } else { factor }).collect();
        let (bandwidths, profile, caches) = (None, None, Vec::new());
        Self { nodes, factors, bandwidths, caches, profile, every: Self::USUAL_EVERY }
    }

    /// The node of a CPU.
    #[must_use]
    pub fn node_of(&self, cpu: CpuId) -> NodeIndex {
        self.nodes.iter().position(|(_, cpus)| cpus.contains(cpu)).unwrap_or(0)
    }

    /// Which cache a CPU has at each level: CPUs with the same number share it.
    #[must_use]
    pub fn caches_of(&self, cpu: CpuId) -> Vec<u32> {
        let number = |caches: &Vec<CpuSet>| {
            let at = caches.iter().position(|cpus| cpus.contains(cpu));
            // One that lacks a level does not share it.
            at.and_then(|at| u32::try_from(at).ok()).unwrap_or(u32::MAX - cpu.0)
        };
        self.caches.iter().map(|(_, caches)| number(caches)).collect()
    }
}

/// What a policy is to know beside what is observed: of the machine, of the program, and of what its user
/// wants. The same from point to point, until it is changed.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// What is known of machine and program, for policies that place threads by load.
    pub knowledge: Option<Arc<Knowledge>>,
    /// The parts that the machine has, level by level from the outermost on. Empty where they are not known.
    pub levels: Levels,
    /// What the parts that a policy gives are made of.
    pub parts: Parts,
    /// What policies that give parts go by.
    pub tuning: Parameters,
}

impl PartialEq for Environment {
    /// Knowledge is the same where it is one and the same: it may be large.
    fn eq(&self, other: &Self) -> bool {
        self.knowledge.as_ref().map(Arc::as_ptr) == other.knowledge.as_ref().map(Arc::as_ptr)
            && (&self.levels, self.parts, &self.tuning)
                == (&other.levels, other.parts, &other.tuning)
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
        let level = CacheLevel { name: String::from("L2"), factor: 0.15 };
        let k = Knowledge { caches: vec![(level, vec![cpus("0-1"), cpus("2")])], ..k };
        let of = |cpu| k.caches_of(CpuId(cpu));
        assert!(of(0) == of(1) && of(1) != of(2) && of(2) != of(3) && of(3) != of(4));
    }
}

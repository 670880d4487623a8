//! A processor that the program has for itself, in strict turns, or in turns of a scheduler that cooperates.

use super::cluster::{Cluster, Shared};
use super::cooperate::Cooperating;

#[derive(Debug)]
pub(super) enum Cpu {
    Own,
    Turns(Shared),
    Cooperates(Box<Cooperating>),
}

impl Cpu {
    /// A processor of the cluster; `seed` is that of its turns.
    pub(super) fn new(cluster: &Cluster, processor: usize, seed: u64) -> Self {
        let load = cluster.loads.get(processor).copied().unwrap_or(0.0);
        match cluster.cooperates {
            // There is nobody to yield to.
            _ if load <= 0.0 => Self::Own,
            None => Self::Turns(Shared::new(cluster.quantum, load, seed)),
            Some(costs) => Self::Cooperates(Box::new(Cooperating::new(cluster, costs, load, seed))),
        }
    }

    /// When the program has it, from `at` on, which never goes back.
    pub(super) fn on(&mut self, at: u64) -> u64 {
        match self {
            Self::Own => at,
            Self::Turns(shared) => shared.on(at),
            Self::Cooperates(cpu) => cpu.on(at),
        }
    }

    /// When the program has had it for so long, from `at` on.
    pub(super) fn computes(&mut self, at: u64, work: u64) -> u64 {
        match self {
            Self::Own => at + work,
            Self::Turns(shared) => shared.computes(at, work),
            Self::Cooperates(cpu) => cpu.computes(at, work),
        }
    }

    /// For how long others have had it until `at`, when the program ends.
    pub(super) fn others(&mut self, at: u64) -> u64 {
        match self {
            Self::Own => 0,
            Self::Turns(shared) => shared.others(at),
            Self::Cooperates(cpu) => cpu.others(at),
        }
    }
}

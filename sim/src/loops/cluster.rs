//! Nodes of several processors each, and how these are shared with others.

use super::cooperate::Cooperation;
use evenly_iterations::Memory;
use evenly_model::Nanos;
use evenly_model::stats::Random;
use std::collections::BTreeSet;

/// Turns differ by so much of their length: those of two processors would keep their distance for ever otherwise, and what a run
/// takes would depend on it.
pub(super) const JITTER: f64 = 0.1;

/// What memory and messages take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClusterCosts {
    /// A page on the wire of the node that it comes from, which sends one at a time.
    pub wire: Nanos,
    /// To copy a page before it is written to that another node writes to as well.
    pub twin: Nanos,
    /// To find out what was written to such a page.
    pub diff: Nanos,
    /// A word, from node to node.
    pub message: Nanos,
    /// A barrier, from the arrival of the last.
    pub barrier: Nanos,
}

/// Nodes of processors.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// The node of each processor, and what moves between nodes.
    pub memory: Memory,
    /// What memory and messages take.
    pub costs: ClusterCosts,
    /// How long a processor is the program's in turn, where somebody else uses it.
    pub quantum: Nanos,
    /// The part of each processor that others use, from 0 to 0.99.
    pub loads: Vec<f64>,
    /// Whether the processors that others use are given away while the program waits, and given back when it need not wait any
    /// more.
    pub cooperates: Option<Cooperation>,
}

impl Cluster {
    /// The paper's, of `nodes` nodes with `each` processors (there 4 and 4). `loads` are those of the first processors; all
    /// others are free.
    #[must_use]
    pub fn of_paper(nodes: usize, each: usize, loads: &[f64]) -> Self {
        LoopMachine { nodes, processors: nodes * each, ..LoopMachine::default() }.cluster(loads)
    }

    /// The same, and its processors cooperate, as in the paper.
    #[must_use]
    pub fn cooperating(&self) -> Self {
        let round_trip = self.costs.message + self.costs.message;
        Self { cooperates: Some(Cooperation::of_paper(round_trip)), ..self.clone() }
    }

    /// The processors that nobody else uses; None where these are all or none.
    #[must_use]
    pub fn unloaded(&self) -> Option<Self> {
        let free = self.free();
        if free.is_empty() || free.len() == self.memory.processors() {
            return None;
        }
        // Nodes without any are left out.
        let of: Vec<usize> = free.iter().map(|&p| self.memory.nodes[p]).collect();
        let kept: BTreeSet<usize> = of.iter().copied().collect();
        let nodes = of.iter().map(|node| kept.range(..node).count()).collect();
        // On one node nothing is fetched.
        let fetch = if kept.len() > 1 { self.memory.fetch } else { Nanos::ZERO };
        Some(Self {
            memory: Memory { nodes, fetch, ..self.memory.clone() },
            loads: vec![0.0; free.len()],
            ..self.clone()
        })
    }

    /// Those that nobody else uses.
    pub(super) fn free(&self) -> Vec<usize> {
        let is_free = |p: &usize| self.loads.get(*p).is_none_or(|load| *load <= 0.0);
        (0..self.memory.processors()).filter(is_free).collect()
    }
}

/// A cluster whose nodes all have the same number of processors, whoever uses these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopMachine {
    /// How many nodes there are.
    pub nodes: usize,
    /// Processors of all nodes together.
    pub processors: usize,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// How long it takes to fetch a page from another node.
    pub fetch: Nanos,
    /// What else memory and messages take.
    pub costs: ClusterCosts,
    /// How long a processor is the program's in turn, where somebody else uses it.
    pub quantum: Nanos,
}

impl Default for LoopMachine {
    /// The paper's: 4 AlphaServers of 4 processors, with pages of 8 KiB, and Memory Channel with 83 MB/s.
    ///
    /// The paper says what page fetches, twins and words take, and 100 to 245 us for a diff, of which this is the middle. It does
    /// not say what a barrier takes.
    fn default() -> Self {
        let us = Nanos::from_micros;
        Self {
            nodes: 4,
            processors: 16,
            page_bytes: 8_192,
            fetch: us(220),
            costs: ClusterCosts {
                wire: us(99),
                twin: us(68),
                diff: us(172),
                message: Nanos(3_300),
                barrier: us(30),
            },
            quantum: Nanos::from_millis(10),
        }
    }
}

impl LoopMachine {
    /// Processors of each node. The last node may have fewer.
    #[must_use]
    pub fn each(&self) -> usize {
        self.processors.div_ceil(self.nodes.max(1)).max(1)
    }

    /// The cluster, of which others use these parts of the first processors; all others are free.
    #[must_use]
    pub fn cluster(&self, loads: &[f64]) -> Cluster {
        let nodes = (0..self.processors).map(|p| p / self.each()).collect();
        // On one node nothing is fetched, and policies that ask for it see that no data have to move.
        let fetch = if self.nodes > 1 { self.fetch } else { Nanos::ZERO };
        let all = loads.iter().copied().chain(std::iter::repeat(0.0)).take(self.processors);
        Cluster {
            memory: Memory { unit_bytes: self.page_bytes, nodes, fetch },
            costs: self.costs,
            quantum: self.quantum,
            loads: all.collect(),
            cooperates: None,
        }
    }
}

/// A processor that the program has in turns.
#[derive(Debug)]
pub(super) struct Shared {
    random: Random,
    quantum_ns: f64,
    load: f64,
    /// The present turn of the program.
    from: u64,
    until: u64,
    /// What others had before it.
    others_ns: u64,
}

impl Shared {
    pub(super) fn new(quantum: Nanos, load: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let whole = quantum.0 as f64 / (1.0 - load);
        let from = (random.unit() * whole) as u64;
        Self { random, quantum_ns: quantum.0 as f64, load, from, until: from, others_ns: from }
    }

    fn turn(&mut self, length_ns: f64) -> u64 {
        let by = 1.0 + JITTER * (2.0 * self.random.unit() - 1.0);
        (length_ns * by).max(1.0) as u64
    }

    /// When the program has it, from `at` on, which never goes back.
    pub(super) fn on(&mut self, at: u64) -> u64 {
        while self.until <= at {
            let others = self.turn(self.quantum_ns * self.load / (1.0 - self.load));
            self.others_ns += others;
            self.from = self.until + others;
            self.until = self.from + self.turn(self.quantum_ns);
        }
        at.max(self.from)
    }

    /// When the program has had it for so long, from `at` on.
    pub(super) fn computes(&mut self, at: u64, mut work: u64) -> u64 {
        let mut at = self.on(at);
        while work > self.until - at {
            work -= self.until - at;
            at = self.on(self.until);
        }
        at + work
    }

    /// For how long others have had it until `at`.
    pub(super) fn others(&mut self, at: u64) -> u64 {
        self.on(at);
        self.others_ns - self.from.saturating_sub(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_is_shared_by_the_part_that_is_said() {
        for load in [0.25, 0.5, 0.9] {
            let mut shared = Shared::new(Nanos::from_millis(10), load, 7);
            let work = 100_000_000_000;
            let at = shared.on(3);
            let took = shared.computes(at, work) - at;
            let expected = work as f64 / (1.0 - load);
            assert!((took as f64 / expected - 1.0).abs() < 0.01, "{load}: {took}");
            let end = at + took;
            let others = shared.others(end) as f64 / end as f64;
            assert!((others / load - 1.0).abs() < 0.02, "{load}: {others}");
        }
    }

    #[test]
    fn work_in_parts_takes_as_long_as_in_one() {
        let new = || Shared::new(Nanos::from_millis(10), 0.5, 3);
        let (mut one, mut parts) = (new(), new());
        let end = one.computes(0, 1_000_000_000);
        let in_parts = (0..1_000).fold(0, |at, _| parts.computes(at, 1_000_000));
        assert_eq!(in_parts, end);
    }
}

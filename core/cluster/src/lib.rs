//! The machine that communicating tasks are mapped onto: cores in NUMA nodes on hosts, and what it
//! costs to reach from one node to another.
//!
//! Invariant: every core is on a node that is there, every factor and speed is one of [`RATIOS`], every
//! bandwidth one of [`BANDWIDTHS`], and a factor is 1 from a node to itself; so what is made of them and of
//! the amounts of a task graph stays a number.

#![forbid(unsafe_code)]

use evenly_model::{CacheLevel, NodeIndex, short};
use serde::Serialize;
use std::fmt;
use std::ops::RangeInclusive;

/// What a factor may be, over the latency of local memory, and a speed, over that of the fastest cores.
/// Anything real is far within: 1e9 times the latency of memory is more than a minute. Sums of millions of
/// loads and messages ([`MOST_OF_ANYTHING`](evenly_model::MOST_OF_ANYTHING)) times or over these are numbers
/// still.
pub const RATIOS: RangeInclusive<f64> = 1e-9..=1e9;
/// In words, for errors.
pub const RATIO_NEEDED: &str = "a number above 0, from 1e-9 to 1e9,";
/// What a bandwidth may be, in bytes a second; for the same reason.
pub const BANDWIDTHS: RangeInclusive<f64> = 1.0..=1e18;
/// In words, for errors.
pub const BANDWIDTH_NEEDED: &str = "a number above 0, from 1 to 1e18 bytes a second,";

/// A core by its place in [`Cluster::cores`].
pub type CoreIndex = usize;

/// A core that runs tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Core {
    /// Its number outside: of a CPU, or of a processing element of a runtime.
    pub id: u32,
    /// The number that the system of its host has for it, or for the first of its hardware threads:
    /// where launchers are to put what runs on it.
    pub cpu: u32,
    /// The NUMA node that the core is on.
    pub node: NodeIndex,
    /// How fast it computes; 1 is the fastest kind.
    pub speed: f64,
    /// Which cache it has at each of [`Cluster::caches`]: cores with the same number share it.
    pub caches: Vec<u32>,
}

/// A NUMA node: which cores it has, and what it costs to reach others from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its number on its host.
    pub id: u32,
    /// The host, from 0.
    pub host: u32,
}

/// Why there is no such machine.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClusterError {
    /// There is no core.
    #[error("the machine has no core; at least one is needed")]
    Empty,
    /// Two cores have the same number.
    #[error("core {id} is there twice; every core needs a number of its own")]
    Twice {
        /// The number that two cores have.
        id: u32,
    },
    /// A core on no node.
    #[error("core {id} is on node {node}; there are {nodes} nodes, numbered from 0")]
    Node {
        /// The core whose node does not exist.
        id: u32,
        /// The node that is not there.
        node: NodeIndex,
        /// How many nodes the machine has.
        nodes: usize,
    },
    /// A core whose speed or caches are none.
    #[error("core {id}: {what}")]
    Core {
        /// The core of which something makes no sense.
        id: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A matrix of another size.
    #[error("{what}: {found} numbers were found; for {nodes} nodes {nodes} x {nodes} are needed")]
    Size {
        /// The matrix of latencies or that of bandwidths, in words.
        what: &'static str,
        /// How many numbers it has.
        found: usize,
        /// How many nodes the machine has: their square is needed.
        nodes: usize,
    },
    /// A value of a matrix that is none.
    #[error("{what} from node {from} to node {to} is {}; {needed} is needed", short(*found))]
    Value {
        /// The matrix of latencies or that of bandwidths, in words.
        what: &'static str,
        /// The row: from which node.
        from: NodeIndex,
        /// The column: to which node.
        to: NodeIndex,
        /// The number that stands there.
        found: f64,
        /// What a number there has to be, in words.
        needed: &'static str,
    },
}

/// Cores, nodes and the costs between them.
#[derive(Clone, PartialEq, Serialize)]
pub struct Cluster {
    cores: Vec<Core>,
    nodes: Vec<Node>,
    caches: Vec<CacheLevel>,
    factors: Vec<f64>,
    bandwidths: Option<Vec<f64>>,
}

impl Cluster {
    /// `factors` is the matrix of NUCO factors, row by row: from (i, j) the latency of node i reading
    /// from node j, over that of i reading its own memory (NucoLB, section III-A). `caches` are from
    /// the innermost to the outermost.
    ///
    /// # Errors
    /// Where a core or a factor is none.
    pub fn new(
        cores: Vec<Core>,
        nodes: Vec<Node>,
        caches: Vec<CacheLevel>,
        factors: Vec<f64>,
    ) -> Result<Self, ClusterError> {
        if cores.is_empty() {
            return Err(ClusterError::Empty);
        }
        let mut ids: Vec<u32> = cores.iter().map(|c| c.id).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|p| p[0] == p[1]) {
            return Err(ClusterError::Twice { id: pair[0] });
        }
        for c in &cores {
            let Core { id, node, .. } = *c;
            if node >= nodes.len() {
                return Err(ClusterError::Node { id, node, nodes: nodes.len() });
            }
            check_speed(c)?;
            if c.caches.len() != caches.len() {
                return Err(ClusterError::Core { id, what: "it needs a cache of every level" });
            }
        }
        check("the factors", &factors, nodes.len(), (RATIOS, RATIO_NEEDED))?;
        let itself = (0..nodes.len()).find(|k| factors[k * nodes.len() + k] != 1.0);
        if let Some(k) = itself {
            let (what, found) = ("the factors", factors[k * nodes.len() + k]);
            return Err(ClusterError::Value { what, from: k, to: k, found, needed: "1" });
        }
        Ok(Self { cores, nodes, caches, factors, bandwidths: None })
    }

    /// With other speeds of its cores, in their order.
    ///
    /// # Errors
    /// Where one is none of [`RATIOS`].
    pub fn with_speeds(mut self, speeds: &[f64]) -> Result<Self, ClusterError> {
        for (c, speed) in self.cores.iter_mut().zip(speeds) {
            c.speed = *speed;
            check_speed(c)?;
        }
        Ok(self)
    }

    /// With bandwidths between nodes, row by row, in bytes a second: what a task that is moved is
    /// copied with.
    ///
    /// # Errors
    /// Where one is none of [`BANDWIDTHS`].
    pub fn with_bandwidths(mut self, bandwidths: Vec<f64>) -> Result<Self, ClusterError> {
        let usual = (BANDWIDTHS, BANDWIDTH_NEEDED);
        check("the bandwidths", &bandwidths, self.nodes.len(), usual)?;
        self.bandwidths = Some(bandwidths);
        Ok(self)
    }

    /// Nodes of one host with so many cores each, numbered through; all factors between different
    /// nodes are the same.
    ///
    /// # Errors
    /// Where there is no core, or the factor is none.
    pub fn even(nodes: u32, cores_per_node: u32, factor: f64) -> Result<Self, ClusterError> {
        let count = u64::from(nodes) * u64::from(cores_per_node);
        let cores = (0..u32::try_from(count).unwrap_or(u32::MAX))
            .map(|id| Core {
                id,
                cpu: id,
                node: (id / cores_per_node) as usize,
                speed: 1.0,
                caches: Vec::new(),
            })
            .collect();
        let n = nodes as usize;
        let factors = (0..n * n).map(|k| if k / n == k % n { 1.0 } else { factor }).collect();
        let nodes = (0..nodes).map(|id| Node { id, host: 0 }).collect();
        Self::new(cores, nodes, Vec::new(), factors)
    }

    /// All cores, in the order of their indices.
    #[must_use]
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// All NUMA nodes, in the order of their indices.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Levels of caches that are looked at, from the innermost.
    #[must_use]
    pub fn caches(&self) -> &[CacheLevel] {
        &self.caches
    }

    /// The place of a core by its number.
    #[must_use]
    pub fn find(&self, id: u32) -> Option<CoreIndex> {
        // Numbers mostly are places.
        match self.cores.get(id as usize) {
            Some(c) if c.id == id => Some(id as usize),
            _ => self.cores.iter().position(|c| c.id == id),
        }
    }

    /// NUCO_FACTOR(i, j): what it costs node `to` to read from node `from`, over what its own memory
    /// costs.
    #[must_use]
    pub fn factor(&self, to: NodeIndex, from: NodeIndex) -> f64 {
        self.factors[to * self.nodes.len() + from]
    }

    /// The matrix of factors, row by row.
    #[must_use]
    pub fn factors(&self) -> &[f64] {
        &self.factors
    }

    /// Bytes a second from one node to another, where that is known.
    #[must_use]
    pub fn bandwidth(&self, from: NodeIndex, to: NodeIndex) -> Option<f64> {
        self.bandwidths.as_ref().map(|b| b[from * self.nodes.len() + to])
    }

    /// The innermost level of caches that two different cores share; None where they share none.
    #[must_use]
    pub fn shared_cache(&self, a: CoreIndex, b: CoreIndex) -> Option<usize> {
        let (a, b) = (&self.cores[a], &self.cores[b]);
        let shares = || a.caches.iter().zip(&b.caches).position(|(x, y)| x == y);
        if a.node == b.node { shares() } else { None }
    }

    /// What a message from one core to another costs, over the latency of local memory: nothing on the
    /// same core, the factor of the innermost cache that they share, 1 on the same node, else the
    /// NUCO factor.
    #[must_use]
    pub fn cost(&self, to: CoreIndex, from: CoreIndex) -> f64 {
        if to == from {
            return 0.0;
        }
        match self.shared_cache(to, from) {
            Some(level) => self.caches[level].factor,
            None => self.factor(self.cores[to].node, self.cores[from].node),
        }
    }

    /// What a byte from one core to another costs, over one read from the memory of the reader's node:
    /// as a message ([`Self::cost`]), but between nodes of which bandwidths are known in the ratio of
    /// these. A network takes thousands of times as long as memory to begin, and not for each byte.
    #[must_use]
    pub fn byte_cost(&self, to: CoreIndex, from: CoreIndex) -> f64 {
        let (reader, writer) = (self.cores[to].node, self.cores[from].node);
        match (self.bandwidth(reader, reader), self.bandwidth(writer, reader)) {
            (Some(own), Some(between)) if reader != writer => own / between,
            _ => self.cost(to, from),
        }
    }

    /// Hops between two cores, for hop-bytes: 0 on the same core, 1 within a node, 2 between nodes of
    /// a host, 3 between hosts.
    #[must_use]
    pub fn hops(&self, a: CoreIndex, b: CoreIndex) -> u32 {
        let (x, y) = (self.cores[a].node, self.cores[b].node);
        match () {
            () if a == b => 0,
            () if x == y => 1,
            () if self.nodes[x].host == self.nodes[y].host => 2,
            () => 3,
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({} cores, {} nodes)", self.cores.len(), self.nodes.len())
    }
}

fn check_speed(core: &Core) -> Result<(), ClusterError> {
    if RATIOS.contains(&core.speed) {
        return Ok(());
    }
    let what = "its speed must be above 0, from 1e-9 to 1e9";
    Err(ClusterError::Core { id: core.id, what })
}

/// Whether a matrix has the right size, and values that it may have.
fn check(
    what: &'static str,
    matrix: &[f64],
    nodes: usize,
    (range, needed): (RangeInclusive<f64>, &'static str),
) -> Result<(), ClusterError> {
    if Some(matrix.len()) != nodes.checked_mul(nodes) {
        return Err(ClusterError::Size { what, found: matrix.len(), nodes });
    }
    for (k, &found) in matrix.iter().enumerate() {
        let (from, to) = (k / nodes, k % nodes);
        if !range.contains(&found) {
            return Err(ClusterError::Value { what, from, to, found, needed });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core(id: u32, node: NodeIndex, caches: &[u32]) -> Core {
        Core { id, cpu: id, node, speed: 1.0, caches: caches.to_vec() }
    }

    #[test]
    fn costs_grow_with_distance() {
        let cores = vec![
            core(0, 0, &[0, 0]),
            core(1, 0, &[0, 0]),
            core(2, 0, &[1, 0]),
            core(3, 1, &[2, 1]),
            core(9, 2, &[3, 2]),
        ];
        let nodes = vec![Node { id: 0, host: 0 }, Node { id: 1, host: 0 }, Node { id: 0, host: 1 }];
        let level = |name: &str, factor| CacheLevel { name: name.into(), factor };
        let factors = vec![1.0, 1.5, 3.4, 1.6, 1.0, 3.4, 3.4, 3.4, 1.0];
        let c =
            Cluster::new(cores, nodes, vec![level("L2", 0.2), level("L3", 0.4)], factors).unwrap();
        assert_eq!([0, 1, 2, 3, 4].map(|k| c.cost(0, k)), [0.0, 0.2, 0.4, 1.5, 3.4]);
        assert_eq!((c.cost(3, 0), c.find(9), c.find(4)), (1.6, Some(4), None));
        assert_eq!([0, 1, 2, 3, 4].map(|k| c.hops(0, k)), [0, 1, 1, 2, 3]);
        assert_eq!(c.bandwidth(0, 1), None);
        let c = c.with_bandwidths(vec![1e9; 9]).unwrap();
        assert_eq!(c.bandwidth(0, 1), Some(1e9));
    }

    #[test]
    fn what_is_no_machine_is_named() {
        let said = |c: Result<Cluster, ClusterError>| c.unwrap_err().to_string();
        assert!(said(Cluster::even(0, 4, 2.0)).starts_with("the machine has no core"));
        assert!(
            said(Cluster::even(2, 1, f64::NAN))
                .starts_with("the factors from node 0 to node 1 is NaN")
        );
        let one = || vec![Node { id: 0, host: 0 }];
        let with = |cores, factors| said(Cluster::new(cores, one(), vec![], factors));
        assert!(
            with(vec![core(1, 0, &[]), core(1, 0, &[])], vec![1.0])
                .starts_with("core 1 is there twice")
        );
        assert!(with(vec![core(1, 1, &[])], vec![1.0]).starts_with("core 1 is on node 1"));
        assert!(with(vec![core(1, 0, &[3])], vec![1.0]).starts_with("core 1: it needs a cache"));
        assert!(with(vec![core(1, 0, &[])], vec![2.0]).contains("1 is needed"));
        assert!(with(vec![core(1, 0, &[])], vec![]).contains("0 numbers were found"));
        for far in [1e308, 1e10, 1e-10, f64::INFINITY, 0.0, -1.0] {
            let said = said(Cluster::even(2, 1, far));
            assert!(said.contains("a number above 0, from 1e-9 to 1e9, is needed"), "{said}");
            let slow = Core { speed: far, ..core(1, 0, &[]) };
            assert!(with(vec![slow], vec![1.0]).starts_with("core 1: its speed must be above 0"));
        }
        let two = || Cluster::even(2, 1, 1e9).unwrap();
        assert!(said(two().with_speeds(&[1.0, 0.0])).starts_with("core 1: its speed"));
        assert_eq!(two().with_speeds(&[1.0, 0.5]).unwrap().cores()[1].speed, 0.5);
        for far in [1e19, 0.5, f64::NAN] {
            let said = two().with_bandwidths(vec![far; 4]).unwrap_err().to_string();
            assert!(said.contains("from 1 to 1e18 bytes a second, is needed"), "{said}");
        }
        assert!(two().with_bandwidths(vec![1e18; 4]).is_ok());
    }
}

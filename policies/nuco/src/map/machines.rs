//! The machines of the paper's section V-A and Table II.
//!
//! Invariant: numbers are the paper's where it has them; what it does not have is written down
//! here.
//!
//! The paper gives the least and the greatest NUMA factor of each machine, not the matrix. So here:
//!
//! | machine | cores | factors |
//! |---|---|---|
//! | NUMA32 | 4 nodes (sockets) of 8 | 1.36 to 3.6: nodes in a square, neighbours along one side 1.36, along the other 2.48 (the middle), across 3.6 |
//! | NUMA48 | 8 nodes of 6, two in a socket | 1.10 to 2.8: in a socket 1.10, to the like node of another socket 1.95 (the middle), to the other one 2.8 |
//! | 20xNUMA4 | 20 hosts of 2 nodes of 2 | 1.52 in a host (the paper: 1.52 to 1.53); 3.4 between hosts, over a bus, so all the same (section II, Figure 1) |
//!
//! Bandwidths, with which tasks are copied: the memory bandwidth of Table II shared by the nodes of
//! a host (35.54, 75.19 and 6.6 GB/s), between nodes divided by their factor; between hosts Gigabit
//! Ethernet, 125 MB/s. Caches are left out: the paper has no factors for them (they are its future
//! work).

use evenly_cluster::{Cluster, ClusterError, Core, Node};
use evenly_model::NodeIndex;

/// A machine of the paper.
#[derive(Debug, Clone, Copy)]
pub struct PaperMachine {
    /// Name, as the paper has it.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Builds the nodes of the machine and the links between them.
    pub make: fn() -> Result<Cluster, ClusterError>,
}

/// All three, in the order of Table II.
pub const MACHINES: [PaperMachine; 3] = [NUMA32, NUMA48, NUMA4X20];

/// One host of four nodes.
pub const NUMA32: PaperMachine =
    PaperMachine { name: "NUMA32", about: "4 eight-core Xeon X7560", make: numa32 };
/// One host of eight nodes.
pub const NUMA48: PaperMachine = PaperMachine {
    name: "NUMA48",
    about: "4 twelve-core Opterons of two nodes each",
    make: numa48,
};
/// Twenty hosts of two nodes each.
pub const NUMA4X20: PaperMachine = PaperMachine {
    name: "20xNUMA4",
    about: "20 hosts of 2 dual-core Opteron 2218",
    make: numa4x20,
};

/// NUMA32: a host of four nodes of eight cores.
///
/// # Errors
/// Never: its numbers are factors and bandwidths.
pub fn numa32() -> Result<Cluster, ClusterError> {
    machine(1, 4, 8, 35.54e9, |i, j| match i ^ j {
        1 => 1.36,
        2 => 2.48,
        _ => 3.6,
    })
}

/// NUMA48: a host of eight nodes of six cores.
///
/// # Errors
/// Never: its numbers are factors and bandwidths.
pub fn numa48() -> Result<Cluster, ClusterError> {
    machine(1, 8, 6, 75.19e9, |i, j| match i ^ j {
        1 => 1.10,
        x if x % 2 == 0 => 1.95,
        _ => 2.8,
    })
}

/// 20xNUMA4: twenty hosts of two nodes of two cores.
///
/// # Errors
/// Never: its numbers are factors and bandwidths.
pub fn numa4x20() -> Result<Cluster, ClusterError> {
    machine(20, 2, 2, 6.6e9, |_, _| 1.52)
}

/// Latency between hosts over that of local memory (Figure 1).
const NETWORK: f64 = 3.4;
/// Bytes a second of Gigabit Ethernet.
const ETHERNET: f64 = 125e6;

fn machine(
    hosts: u32,
    nodes: u32,
    cores: u32,
    bandwidth: f64,
    factor: impl Fn(u32, u32) -> f64,
) -> Result<Cluster, ClusterError> {
    let all = hosts * nodes;
    let core =
        |id| Core { id, cpu: id, node: (id / cores) as NodeIndex, speed: 1.0, caches: Vec::new() };
    // Of two nodes, numbered through.
    let value = |k: u32| {
        let (i, j) = (k / all, k % all);
        match () {
            () if i == j => (1.0, bandwidth / f64::from(nodes)),
            () if i / nodes == j / nodes => {
                let f = factor(i % nodes, j % nodes);
                (f, bandwidth / f64::from(nodes) / f)
            }
            () => (NETWORK, ETHERNET),
        }
    };
    let (factors, bandwidths) = (0..all * all).map(value).unzip();
    let nodes = (0..all).map(|n| Node { id: n % nodes, host: n / nodes }).collect();
    Cluster::new((0..all * cores).map(core).collect(), nodes, Vec::new(), factors)?
        .with_bandwidths(bandwidths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_of_the_table() {
        let table = [
            ("NUMA32", 32, 4, 1.36, 3.6),
            ("NUMA48", 48, 8, 1.1, 2.8),
            ("20xNUMA4", 80, 40, 1.52, 3.4),
        ];
        for (m, (name, cores, nodes, least, most)) in MACHINES.iter().zip(table) {
            let c = (m.make)().unwrap();
            assert_eq!((m.name, c.cores().len(), c.nodes().len()), (name, cores, nodes));
            let remote = || c.factors().iter().copied().filter(|&f| f != 1.0);
            assert_eq!((remote().fold(9.0, f64::min), remote().fold(0.0, f64::max)), (least, most));
            for i in 0..nodes {
                for j in 0..nodes {
                    assert_eq!(c.factor(i, j), c.factor(j, i), "{name}: {i} and {j}");
                }
            }
        }
        let cluster = numa4x20().unwrap();
        assert_eq!([1, 2, 4].map(|c| cluster.hops(0, c)), [1, 2, 3]);
        assert_eq!(cluster.bandwidth(0, 0), Some(3.3e9));
        assert_eq!(cluster.bandwidth(0, 2), Some(125e6));
    }
}

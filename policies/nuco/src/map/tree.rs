//! The machine as a tree: hosts, nodes, caches from the outermost to the innermost, cores.
//!
//! Invariant: the children of a vertex are disjoint, come in the order of the cores' places, and
//! have all of its cores together.

use evenly_cluster::{Cluster, CoreIndex};
use std::collections::BTreeMap;

/// How many levels there are below the machine.
pub(super) fn depth(cluster: &Cluster) -> usize {
    cluster.caches().len() + 3
}

/// What the cores of one child at a level (from 0) have in common.
fn key(cluster: &Cluster, core: CoreIndex, level: usize) -> usize {
    let c = &cluster.cores()[core];
    let caches = c.caches.len();
    match level {
        0 => cluster.nodes()[c.node].host as usize,
        1 => c.node,
        l if l < caches + 2 => c.caches[caches + 1 - l] as usize,
        _ => core,
    }
}

/// The cores of a vertex, by child.
pub(super) fn children(
    cluster: &Cluster,
    cores: &[CoreIndex],
    level: usize,
) -> Vec<Vec<CoreIndex>> {
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    let mut children: Vec<Vec<CoreIndex>> = Vec::new();
    for &core in cores {
        let place = *places.entry(key(cluster, core, level)).or_insert(children.len());
        if place == children.len() {
            children.push(Vec::new());
        }
        children[place].push(core);
    }
    children
}

/// All cores so that those that are close in the tree are close in the order.
pub(super) fn compact(cluster: &Cluster) -> Vec<CoreIndex> {
    order(cluster, (0..cluster.cores().len()).collect(), 0, &|lists| lists.concat())
}

/// All cores so that those that are close in the tree are far in the order: one of each host in
/// turn, of a host one of each node, and so on.
pub(super) fn scatter(cluster: &Cluster) -> Vec<CoreIndex> {
    order(cluster, (0..cluster.cores().len()).collect(), 0, &|lists| {
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        (0..longest).flat_map(|i| lists.iter().filter_map(move |l| l.get(i).copied())).collect()
    })
}

fn order(
    cluster: &Cluster,
    cores: Vec<CoreIndex>,
    level: usize,
    join: &dyn Fn(&[Vec<CoreIndex>]) -> Vec<CoreIndex>,
) -> Vec<CoreIndex> {
    if level == depth(cluster) {
        return cores;
    }
    let below: Vec<_> = children(cluster, &cores, level)
        .into_iter()
        .map(|child| order(cluster, child, level + 1, join))
        .collect();
    join(&below)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_cluster::{Core, Node};
    use evenly_model::CacheLevel;

    #[test]
    fn near_and_far() {
        // Two hosts of two nodes; on each node two pairs of cores that share an L2. Numbered so
        // that neighbours in number are on different hosts.
        let core = |id: u32| {
            let (host, node, cache) = (id % 2, id / 2 % 2, id / 4 % 2);
            Core {
                id,
                cpu: id,
                node: (2 * host + node) as usize,
                speed: 1.0,
                caches: vec![id % 8, cache],
            }
        };
        let nodes = (0..4).map(|n| Node { id: n % 2, host: n / 2 }).collect();
        let level = |name: &str, factor| CacheLevel { name: name.into(), factor };
        let factors = (0..16).map(|k| if k / 4 == k % 4 { 1.0 } else { 2.0 }).collect();
        let caches = vec![level("L1", 0.1), level("L2", 0.3)];
        let c = Cluster::new((0..16).map(core).collect(), nodes, caches, factors).unwrap();
        assert_eq!(compact(&c), [0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15]);
        assert_eq!(scatter(&c), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    }
}

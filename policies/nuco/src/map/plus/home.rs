//! Groups on those cores that most of their tasks are on at present.

use super::model::Model;
use evenly_cluster::CoreIndex;
use std::collections::BTreeMap;

/// The same groups on other cores, so that more tasks are where they are at present: whole nodes
/// change places with nodes of as many cores, and then cores with cores of their node and speed. A
/// core with a task that may not be moved keeps its group, and so does its node.
pub(super) fn at_home(model: &Model<'_>, mapping: &[CoreIndex]) -> Vec<CoreIndex> {
    let cluster = model.cluster;
    let node = |c: CoreIndex| cluster.cores()[c].node;
    let mut of_node: Vec<Vec<CoreIndex>> = vec![Vec::new(); cluster.nodes().len()];
    for c in 0..cluster.cores().len() {
        of_node[node(c)].push(c);
    }
    let fixed = |keep: &dyn Fn(CoreIndex) -> usize, count: usize| {
        let mut fixed = vec![false; count];
        for (t, _) in model.graph.tasks().iter().enumerate().filter(|(_, t)| !t.movable) {
            fixed[keep(model.present[t])] = true;
        }
        fixed
    };
    // Speeds of a node's cores in order, so that a node is exchanged with its like only.
    let kind = |n: usize| -> Vec<u64> {
        of_node[n].iter().map(|&c| cluster.cores()[c].speed.to_bits()).collect()
    };
    let kinds: Vec<Vec<u64>> = (0..of_node.len()).map(kind).collect();
    let fixed_nodes = fixed(&node, of_node.len());
    let pairs = mapping.iter().zip(model.present).map(|(&c, &p)| (node(c), node(p)));
    let to_node = exchange(pairs, of_node.len(), |a, b| {
        kinds[a] == kinds[b] && !fixed_nodes[a] && !fixed_nodes[b]
    });
    let mut place = vec![0; cluster.cores().len()];
    for cores in &of_node {
        for (i, &c) in cores.iter().enumerate() {
            place[c] = i;
        }
    }
    let nodes_home: Vec<CoreIndex> =
        mapping.iter().map(|&c| of_node[to_node[node(c)]][place[c]]).collect();

    let fixed_cores = fixed(&|c| c, cluster.cores().len());
    let pairs = nodes_home.iter().copied().zip(model.present.iter().copied());
    let to_core = exchange(pairs, cluster.cores().len(), |a, b| {
        let (x, y) = (&cluster.cores()[a], &cluster.cores()[b]);
        x.node == y.node && x.speed == y.speed && !fixed_cores[a] && !fixed_cores[b]
    });
    let movable = model.graph.tasks().iter().map(|t| t.movable);
    let home = nodes_home.iter().zip(movable).zip(model.present);
    home.map(|((&c, movable), &p)| if movable { to_core[c] } else { p }).collect()
}

/// Which of 0..count takes which place, so that many of the pairs (from, to) go from a to the place
/// of a: the most frequent pair first, where `like` allows it. What is left keeps to its like too.
fn exchange(
    pairs: impl Iterator<Item = (usize, usize)>,
    count: usize,
    like: impl Fn(usize, usize) -> bool,
) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let mut counts: BTreeMap<(usize, usize), usize> = BTreeMap::new();
    for pair in pairs {
        *counts.entry(pair).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().filter(|&((a, b), _)| like(a, b)).collect();
    counts.sort_by_key(|&(pair, n)| (std::cmp::Reverse(n), pair));
    let mut to = vec![NONE; count];
    let mut taken = vec![false; count];
    for ((a, b), _) in counts {
        if to[a] == NONE && !taken[b] {
            (to[a], taken[b]) = (b, true);
        }
    }
    // Likeness is an equivalence, so there is a place left for each; those that are like none, not
    // even themselves, stay.
    for (a, (to, taken)) in to.iter_mut().zip(&mut taken).enumerate() {
        if *to == NONE && !*taken {
            (*to, *taken) = (a, true);
        }
    }
    for (a, to) in to.iter_mut().enumerate().filter(|(_, to)| **to == NONE) {
        if let Some(b) = (0..count).find(|&b| !taken[b] && like(a, b)) {
            (*to, taken[b]) = (b, true);
        }
    }
    to
}

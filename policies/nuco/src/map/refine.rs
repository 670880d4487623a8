//! `refine`: few migrations that take every core below a bound (after Charm++'s RefineLB). It goes by a
//! rule and does not search: fewer may do.
//!
//! Invariant: only tasks of cores above the bound are moved, each once, and never onto a core that
//! they would take above it. The bound is 1 + tolerance times the mean load; where that cannot be
//! reached so, it is the least that can, found by bisection between it and the present makespan.
//!
//! The core that is furthest above the bound gives first. It gives the lightest task that takes it
//! below the bound alone, if one fits anywhere; else the heaviest that fits; to the core with the
//! most room.
//!
//! Time: O(n log n + moves x log (m n)) for each of at most 24 bounds. Where it is to stop it takes
//! the best bound that it has found works.

use super::{Effort, Hurry, MapperInfo, Request, core_loads, mean_load_s, movable, order_of};
use evenly_cluster::CoreIndex;
use evenly_model::TaskIndex;
use std::collections::BTreeSet;

/// `refine`: moves tasks from overloaded cores, and leaves all others.
pub(super) const REFINE: MapperInfo = MapperInfo {
    name: "refine",
    about: "few migrations from overloaded cores, until within a tolerance of the mean",
    effort: Effort::EveryTask,
    map: |r: &Request<'_>| {
        let mean = mean_load_s(r.graph, r.cluster);
        refine(r, mean * (1.0 + r.options.tolerance.max(0.0)))
    },
};

/// How often the bound is bisected.
const BISECTIONS: usize = 23;

/// Takes the makespan to `bound_s`, or as near to it as it can.
pub(super) fn refine(request: &Request<'_>, bound_s: f64) -> Vec<CoreIndex> {
    let Request { graph, cluster, present, stop, .. } = *request;
    let hurry = Hurry::new(stop);
    if let Some(mapping) = below(request, bound_s, &hurry) {
        return mapping;
    }
    let makespan = core_loads(graph, cluster, present).into_iter().fold(0.0, f64::max);
    let (mut fails, mut works, mut best) = (bound_s, makespan, present.to_vec());
    for _ in 0..BISECTIONS {
        let middle = (fails + works) / 2.0;
        match below(request, middle, &hurry) {
            Some(mapping) => (works, best) = (middle, mapping),
            None => fails = middle,
        }
        if hurry.after(0) {
            break;
        }
    }
    best
}

/// A mapping with every core at the bound or below it; None where moves as described find none, or
/// there is no time for them.
fn below(request: &Request<'_>, bound_s: f64, hurry: &Hurry<'_>) -> Option<Vec<CoreIndex>> {
    let Request { graph, cluster, present, .. } = *request;
    let speed = |c: CoreIndex| cluster.cores()[c].speed;
    let mut mapping = present.to_vec();
    let mut loads = core_loads(graph, cluster, present);
    let mut givers: Vec<CoreIndex> = (0..loads.len()).filter(|&c| loads[c] > bound_s).collect();
    if givers.is_empty() {
        return Some(mapping);
    }
    givers.sort_by(|&a, &b| loads[b].total_cmp(&loads[a]));
    let load_of = |t: TaskIndex| graph.tasks()[t].load_s;
    let mut tasks: Vec<Vec<(u64, TaskIndex)>> = vec![Vec::new(); loads.len()];
    for t in movable(graph).into_iter().filter(|&t| loads[present[t]] > bound_s) {
        tasks[present[t]].push((order_of(load_of(t)), t));
    }
    // Room below the bound in seconds of load: numbers that are not negative are in the order of
    // their bits. Of equal ones the lowest place is last, and is taken.
    let room = |c: CoreIndex, load: f64| ((bound_s - load).max(0.0) * speed(c)).to_bits();
    let last = loads.len();
    let mut rooms: BTreeSet<(u64, usize)> = (0..loads.len())
        .filter(|&c| loads[c] < bound_s)
        .map(|c| (room(c, loads[c]), last - c))
        .collect();
    for giver in givers {
        // The lightest first; of equal ones the first.
        let mut list: BTreeSet<(u64, TaskIndex)> =
            std::mem::take(&mut tasks[giver]).into_iter().collect();
        if hurry.after(list.len()) {
            return None;
        }
        while loads[giver] > bound_s {
            if hurry.after(16) {
                return None;
            }
            let &(most, place) = rooms.last()?;
            let to = last - place;
            let excess = (loads[giver] - bound_s) * speed(giver);
            let alone = list.range((order_of(excess), 0)..).next().filter(|alone| alone.0 <= most);
            let fits = || list.range(..=(most, TaskIndex::MAX)).next_back();
            let chosen = *alone.or_else(fits)?;
            list.remove(&chosen);
            let t = chosen.1;
            // A task that takes nothing away brings nothing.
            if load_of(t) <= 0.0 {
                return None;
            }
            rooms.remove(&(most, place));
            loads[giver] -= load_of(t) / speed(giver);
            loads[to] += load_of(t) / speed(to);
            if loads[to] < bound_s {
                rooms.insert((room(to, loads[to]), place));
            }
            mapping[t] = to;
        }
    }
    Some(mapping)
}

#[cfg(test)]
mod tests {
    use super::super::{Options, objectives};
    use super::*;
    use evenly_cluster::Cluster;
    use evenly_model::{Task, TaskGraph};

    fn refine(
        graph: &TaskGraph,
        cluster: &Cluster,
        present: &[CoreIndex],
        bound_s: f64,
    ) -> Vec<CoreIndex> {
        let options = Options::default();
        super::refine(&Request::timeless(graph, cluster, present, &options), bound_s)
    }

    fn graph(loads: &[f64]) -> TaskGraph {
        let task = |(id, &load_s)| Task { id, load_s, size_bytes: 0.0, core: None, movable: true };
        TaskGraph::new((0..).zip(loads).map(task).collect(), &[]).unwrap()
    }

    #[test]
    fn one_task_is_moved_where_one_is_enough() {
        let g = graph(&[1.0, 2.0, 3.0, 4.0, 5.0, 1.0]);
        let c = Cluster::even(1, 2, 1.0).unwrap();
        // Core 0 has 10 and core 1 has 6; mean 8. Moving the 2 alone does.
        assert_eq!(refine(&g, &c, &[0, 0, 0, 0, 1, 1], 8.0), [0, 1, 0, 0, 1, 1]);
        // Within the tolerance nothing is moved.
        assert_eq!(refine(&g, &c, &[0, 0, 0, 0, 1, 1], 10.0), [0, 0, 0, 0, 1, 1]);
    }

    /// All tasks on one core: each bound takes as many moves as there are tasks.
    #[test]
    fn many_tasks_on_one_core_are_no_more_work_each() {
        let n = 100_000;
        let g = graph(&vec![1.0; n]);
        let c = Cluster::even(1, 4, 1.0).unwrap();
        let at = refine(&g, &c, &vec![0; n], n as f64 / 4.0);
        assert_eq!(objectives(&g, &c, &vec![0; n], &at).imbalance, 0.0);
    }

    #[test]
    fn where_the_bound_cannot_be_reached_it_comes_near() {
        let g = graph(&[3.0, 3.0, 3.0]);
        let c = Cluster::even(1, 2, 1.0).unwrap();
        let at = refine(&g, &c, &[0, 0, 0], 4.5);
        assert_eq!(objectives(&g, &c, &[0, 0, 0], &at).makespan_s, 6.0);
        assert_eq!(objectives(&g, &c, &[0, 0, 0], &at).migrations, 1);
    }
}

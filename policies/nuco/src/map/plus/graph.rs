//! Graphs that get coarser: pairs of vertices become one, again and again (Hendrickson and Leland, "A multilevel
//! algorithm for partitioning graphs", 1995; Karypis and Kumar, "A fast and high quality multilevel scheme for
//! partitioning irregular graphs", 1998).
//!
//! Invariant: a vertex of a coarser graph has the loads of those that it is made of, and a link of it what theirs
//! have; what is between two that became one is left out.

use super::model::Model;
use evenly_model::Link;
use evenly_model::stats::Random;

/// Stands where there is no vertex, or no place that one must be in.
pub(super) const NONE: u32 = u32::MAX;

/// Which vertices may become one.
pub(super) struct Pairing<'a> {
    /// The heaviest that may be made.
    pub(super) heaviest: f64,
    /// Whether what two have to do with each other counts more than the load of the other.
    pub(super) is_squared: bool,
    pub(super) may: &'a dyn Fn(usize, usize) -> bool,
}

/// Vertices with weights and the links between them, by the place of each.
pub(super) struct Graph {
    pub(super) loads: Vec<f64>,
    /// The core, or the half, that a vertex must be in, or [`NONE`].
    pub(super) fixed: Vec<u32>,
    /// Where the links of each begin in `links`, and where those of the last end.
    pub(super) first: Vec<u32>,
    pub(super) links: Vec<(u32, f64)>,
}

impl Graph {
    /// The tasks, and what they have to do with each other, in seconds at factor 1. A task without load counts for
    /// `least`, so that such tasks are shared out too.
    pub(super) fn of(model: &Model<'_>, least: f64) -> Self {
        let tasks = model.graph.tasks();
        let mut graph = Self::with_capacity(tasks.len(), 2 * model.graph.pairs());
        for (t, task) in tasks.iter().enumerate() {
            let weight = |l: &Link| {
                let of = [l.received + l.sent, l.received_bytes + l.sent_bytes];
                (l.with as u32, model.costs.one.of(of[0], of[1]))
            };
            graph.links.extend(model.graph.links(t).iter().map(weight));
            let fixed = if task.movable { NONE } else { model.present[t] as u32 };
            graph.end_vertex(model.computes_s[t].max(least), fixed);
        }
        graph
    }

    pub(super) fn with_capacity(vertices: usize, links: usize) -> Self {
        let mut first = Vec::with_capacity(vertices + 1);
        first.push(0);
        Self {
            loads: Vec::with_capacity(vertices),
            fixed: Vec::with_capacity(vertices),
            first,
            links: Vec::with_capacity(links),
        }
    }

    /// The links that were added since the last one are those of a vertex.
    pub(super) fn end_vertex(&mut self, load: f64, fixed: u32) {
        self.loads.push(load);
        self.fixed.push(fixed);
        self.first.push(self.links.len() as u32);
    }

    pub(super) fn len(&self) -> usize {
        self.loads.len()
    }

    pub(super) fn links(&self, v: usize) -> &[(u32, f64)] {
        &self.links[self.first[v] as usize..self.first[v + 1] as usize]
    }

    /// What a pass over all of it looks at.
    pub(super) fn looks(&self) -> usize {
        self.len() + self.links.len()
    }

    /// Pairs become one: each vertex and the one that it has most to do with, for their loads; and of those
    /// that are left, two that have most to do with the same one, as of a hub and its many partners one only
    /// would find another. The vertex of the coarser graph that each has become.
    pub(super) fn coarsen(&self, random: &mut Random, pairing: &Pairing<'_>) -> (Self, Vec<u32>) {
        let (vertex_of, members) = self.pairs(random, pairing);
        let mut coarse = Self::with_capacity(members.len(), self.links.len());
        // Where in `links` the present vertex has its link to another, as long as that is behind its first.
        let mut place = vec![0_usize; members.len()];
        for (made, all) in members.iter().enumerate() {
            let begin = coarse.links.len();
            let mut load = 0.0;
            for &v in all.iter().filter(|&&v| v != NONE) {
                load += self.loads[v as usize];
                for &(u, weight) in self.links(v as usize) {
                    let with = vertex_of[u as usize];
                    if with as usize == made {
                        continue;
                    }
                    let at = place[with as usize];
                    if at >= begin && at < coarse.links.len() && coarse.links[at].0 == with {
                        coarse.links[at].1 += weight;
                    } else {
                        place[with as usize] = coarse.links.len();
                        coarse.links.push((with, weight));
                    }
                }
            }
            coarse.end_vertex(load, self.fixed[all[0] as usize]);
        }
        (coarse, vertex_of)
    }

    /// Which vertices become one, and which each becomes.
    fn pairs(&self, random: &mut Random, pairing: &Pairing<'_>) -> (Vec<u32>, Vec<[u32; 2]>) {
        let n = self.len();
        let may = |v: u32, u: u32| {
            let (v, u) = (v as usize, u as usize);
            let is_light = self.loads[v] + self.loads[u] <= pairing.heaviest;
            is_light && self.fixed[v] == self.fixed[u] && (pairing.may)(v, u)
        };
        let mut order: Vec<u32> = (0..n as u32).collect();
        random.shuffle(&mut order);
        let mut vertex_of = vec![NONE; n];
        let mut members: Vec<[u32; 2]> = Vec::with_capacity(n * 2 / 3);
        let mut alone: Vec<u32> = Vec::new();
        let mut join = |v: u32, u: u32, vertex_of: &mut [u32]| {
            vertex_of[v as usize] = members.len() as u32;
            if u != NONE {
                vertex_of[u as usize] = members.len() as u32;
            }
            members.push([v, u]);
        };
        for &v in &order {
            if vertex_of[v as usize] != NONE {
                continue;
            }
            let mut partner: Option<(f64, u32)> = None;
            for &(u, weight) in self.links(v as usize) {
                let counts = if pairing.is_squared { weight * weight } else { weight };
                let rate = counts / self.loads[u as usize];
                let free = vertex_of[u as usize] == NONE && u != v;
                if free && partner.is_none_or(|p| rate > p.0) && may(v, u) {
                    partner = Some((rate, u));
                }
            }
            match partner {
                None => alone.push(v),
                Some((_, u)) => join(v, u, &mut vertex_of),
            }
        }
        // Which one waits at each for another that communicates most with it.
        let mut waits = vec![NONE; n];
        for &v in &alone {
            if vertex_of[v as usize] != NONE {
                continue;
            }
            let links = self.links(v as usize).iter();
            let Some(&(hub, _)) = links.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            let waiting = waits[hub as usize];
            if waiting != NONE && may(v, waiting) {
                join(v, waiting, &mut vertex_of);
                waits[hub as usize] = NONE;
            } else {
                waits[hub as usize] = v;
            }
        }
        for &v in &alone {
            if vertex_of[v as usize] == NONE {
                join(v, NONE, &mut vertex_of);
            }
        }
        (vertex_of, members)
    }
}

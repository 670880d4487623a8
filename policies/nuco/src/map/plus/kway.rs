//! Groups by communication for all cores at once, within a bound on loads: the multilevel scheme of Karypis and Kumar
//! ("Multilevel k-way partitioning scheme for irregular graphs", 1998).
//!
//! ```text
//! pairs of tasks that have most to do with each other become one, until some are left for each core;
//! these are parted by halving (`multilevel`), down the tree of the machine;
//! what is in the same part becomes one still, until fewer are left for each core;
//! and each step back is followed by searches at the borders between cores (`border`)
//! ```
//!
//! Halving alone looks at every task as often as cores are halved, and cannot undo a first half that was cut badly;
//! here it is for few vertices, and tasks are looked at as often as there are borders.
//!
//! Groups that are there are made better in the same way: only what is on one core becomes one then, and nothing is
//! parted (Walshaw, "Multilevel refinement for combinatorial optimisation problems", 2004).
//!
//! Invariant: memory is linear in tasks and links. A migration counts as one to the other end of the machine, and
//! nothing for a vertex whose tasks are on several cores at present.

use super::border::{Borders, Home};
use super::buckets::Spent;
use super::distances::Distances;
use super::graph::{Graph, NONE, Pairing};
use super::model::Model;
use super::multilevel::{self, Care};
use evenly_cluster::CoreIndex;
use evenly_model::stats::Random;

/// Vertices for each core that halving starts from, and that groups which are there are coarsened to.
const PER_CORE: usize = 30;
const PER_CORE_AGAIN: usize = 10;
/// The heaviest vertex that is made, over the mean of those that halving starts from.
const HEAVIEST: f64 = 1.5;
/// How far a core may be above the bound as long as vertices are made of many tasks: by one of them, but no more than
/// this part of the mean. The more, the better the cut, and the worse what evening out costs.
const MEANWHILE: f64 = 0.02;
/// What halving looks at of each link for each time that cores are halved, and what the searches look at.
const HALVING_LOOKS: f64 = 3.5;
const CAREFUL_HALVING_LOOKS: f64 = 6.0;
const BORDER_LOOKS: f64 = 12.0;
/// What going on from groups that are there must be able to look at of each link: with less, it ends at graphs that are
/// coarse, above the bound, and what takes them below it costs more than it gained.
const AGAIN_LOOKS: f64 = 6.0;
/// The part of what communication costs that going on from groups that are there must save to be done again.
const LEAST_GAIN: f64 = 2e-3;

/// How carefully there is time to part, of so much that may be looked at. None where there is no time at all.
pub(super) fn affordable(model: &Model<'_>, looks: f64) -> Option<Care> {
    let (tasks, cores) = (model.graph.len(), model.cluster.cores().len());
    let links = (tasks + 2 * model.graph.pairs()) as f64;
    let coarse = links * ((PER_CORE * cores) as f64 / tasks as f64).min(1.0);
    let takes = |each: f64| each * multilevel::halvings(cores) * coarse + BORDER_LOOKS * links;
    let is_affordable = |each: f64| takes(each) <= looks;
    let careful = is_affordable(CAREFUL_HALVING_LOOKS).then_some(Care::THOROUGH);
    careful.or_else(|| is_affordable(HALVING_LOOKS).then_some(Care::ROUGH))
}

/// What makes groups.
pub(super) struct Kway<'x, 'm, 's> {
    model: &'x Model<'m>,
    distances: Distances,
    /// How far a core may be above the mean.
    most: f64,
    random: &'x mut Random,
    spent: &'x mut Spent<'s>,
}

/// A graph, and how it comes from the finer one.
struct Level {
    graph: Graph,
    homes: Vec<Home>,
    /// The vertex that each of the finer graph has become.
    vertex_of: Vec<u32>,
}

impl<'x, 'm, 's> Kway<'x, 'm, 's> {
    pub(super) fn new(
        model: &'x Model<'m>,
        most: f64,
        random: &'x mut Random,
        spent: &'x mut Spent<'s>,
    ) -> Self {
        Self { model, distances: Distances::new(model), most, random, spent }
    }

    /// New groups. None where what may be spent was not enough.
    pub(super) fn groups(&mut self, care: Care) -> Option<Vec<CoreIndex>> {
        let mut levels = vec![self.tasks()];
        while self.is_fine(&levels, PER_CORE)? {
            let Some(level) = self.coarser(&levels, PER_CORE, &|_, _| true) else { break };
            levels.push(level);
        }
        let coarsest = &levels.last()?.graph;
        let Self { model, most, random, spent, .. } = self;
        let at = multilevel::groups(coarsest, model.cluster, Some(*most), care, random, spent)?;
        // What is in the same group becomes one as well: searches begin with few vertices, which is cheap.
        let at = self.coarsen_within(&mut levels, at)?;
        Some(self.back(levels, at))
    }

    /// These groups, made better as long as that gains something and there is as much left as it took last. `take`
    /// is given each and says what communication costs then.
    pub(super) fn again(&mut self, from: &[CoreIndex], mut take: impl FnMut(&[CoreIndex]) -> f64) {
        let links = self.model.graph.len() + 2 * self.model.graph.pairs();
        if self.spent.looks as f64 + AGAIN_LOOKS * links as f64 > self.spent.limit as f64 {
            return;
        }
        let mut at = from.to_vec();
        let mut cost_s = take(&at);
        loop {
            let before = self.spent.looks;
            let Some(made) = self.once_more(&at) else { return };
            let now_s = take(&made);
            let took = self.spent.looks - before;
            let is_worth = now_s < cost_s * (1.0 - LEAST_GAIN);
            if !is_worth || self.spent.looks + took > self.spent.limit {
                return;
            }
            (at, cost_s) = (made, now_s);
        }
    }

    fn once_more(&mut self, from: &[CoreIndex]) -> Option<Vec<CoreIndex>> {
        let mut levels = vec![self.tasks()];
        let from = from.iter().map(|&c| c as u32).collect();
        let at = self.coarsen_within(&mut levels, from)?;
        Some(self.back(levels, at))
    }

    /// The graph of the tasks themselves.
    fn tasks(&self) -> Level {
        let graph = Graph::of(self.model, multilevel::least_load(self.model));
        Level { graph, homes: self.homes(), vertex_of: Vec::new() }
    }

    /// Adds graphs that get coarser, in which only what is in the same group becomes one; the groups of the coarsest.
    /// None where what may be spent was not enough.
    fn coarsen_within(&mut self, levels: &mut Vec<Level>, groups: Vec<u32>) -> Option<Vec<u32>> {
        let mut at = groups;
        while let Some(Level { homes, .. }) = levels.last()
            && self.is_fine(levels, PER_CORE_AGAIN)?
        {
            let may = |v: usize, u: usize| at[v] == at[u] && homes[v].0 == homes[u].0;
            let Some(level) = self.coarser(levels, PER_CORE_AGAIN, &may) else { break };
            at = of_vertices(&at, &level);
            levels.push(level);
        }
        Some(at)
    }

    /// Whether the coarsest graph has more vertices than so many for each core. None where what may be spent was not
    /// enough to make a coarser one.
    fn is_fine(&self, levels: &[Level], per_core: usize) -> Option<bool> {
        let few = per_core * self.model.cluster.cores().len();
        let is_fine = levels.last().is_some_and(|l| l.graph.len() > few);
        (!is_fine || !self.spent.all()).then_some(is_fine)
    }

    /// What the coarsest graph becomes, where that is coarser by enough.
    fn coarser(
        &mut self,
        levels: &[Level],
        per_core: usize,
        may: &dyn Fn(usize, usize) -> bool,
    ) -> Option<Level> {
        let Level { graph, homes, .. } = levels.last()?;
        let few = per_core * self.model.cluster.cores().len();
        let heaviest = HEAVIEST * graph.loads.iter().sum::<f64>() / few as f64;
        let pairing = Pairing { heaviest, is_squared: true, may };
        let (coarse, vertex_of) = graph.coarsen(self.random, &pairing);
        self.spent.looks += 2 * graph.looks();
        if coarse.len() * 20 > graph.len() * 19 {
            return None;
        }
        let homes = joined(homes, &vertex_of, coarse.len());
        Some(Level { graph: coarse, homes, vertex_of })
    }

    fn homes(&self) -> Vec<Home> {
        let m = self.model;
        let cores = m.cluster.cores().len();
        let home = |(t, &core): (usize, &CoreIndex)| {
            let leaves_s = m.migration_s(t, (core + cores.div_ceil(2)) % cores);
            if leaves_s > 0.0 { (core as u32, leaves_s) } else { (NONE, 0.0) }
        };
        m.present.iter().enumerate().map(home).collect()
    }

    /// From the coarsest graph to the tasks, with searches at each.
    fn back(&mut self, mut levels: Vec<Level>, mut at: Vec<u32>) -> Vec<CoreIndex> {
        while let Some(Level { graph, homes, vertex_of }) = levels.pop() {
            let is_tasks = levels.is_empty();
            if is_tasks || !self.spent.all() {
                let bound_s = self.bound_s(&graph, is_tasks);
                let of = (self.model, &self.distances);
                let mut borders = Borders::new(of, (&graph, &homes), at, bound_s);
                borders.even_out(self.spent);
                borders.improve(self.random, self.spent);
                at = borders.at;
            }
            if !is_tasks {
                at = vertex_of.iter().map(|&made| at[made as usize]).collect();
            }
        }
        at.into_iter().map(|c| c as CoreIndex).collect()
    }

    fn bound_s(&self, graph: &Graph, is_tasks: bool) -> f64 {
        let all: f64 = graph.loads.iter().sum();
        let mean_s = all / self.model.cluster.cores().iter().map(|c| c.speed).sum::<f64>();
        let vertex = if is_tasks { 0.0 } else { all / graph.len() as f64 };
        // Rounding must not take it above the bound.
        mean_s * (1.0 + self.most) * (1.0 - 1e-12) + vertex.min(MEANWHILE * mean_s)
    }
}

/// Of each vertex of a level what those that it is made of have, which is the same for all.
fn of_vertices(of_finer: &[u32], level: &Level) -> Vec<u32> {
    let mut of = vec![0; level.graph.len()];
    for (&finer, &made) in of_finer.iter().zip(&level.vertex_of) {
        of[made as usize] = finer;
    }
    of
}

/// Where vertices are at home that became one: where both are, or nowhere.
fn joined(homes: &[Home], vertex_of: &[u32], vertices: usize) -> Vec<Home> {
    let mut all: Vec<Option<Home>> = vec![None; vertices];
    for (&(core, leaves_s), &made) in homes.iter().zip(vertex_of) {
        let so_far = &mut all[made as usize];
        *so_far = Some(match *so_far {
            None => (core, leaves_s),
            Some((same, other_s)) if same == core => (core, leaves_s + other_s),
            Some(_) => (NONE, 0.0),
        });
    }
    all.into_iter().map(|home| home.unwrap_or((NONE, 0.0))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::{Options, Request};
    use super::*;
    use evenly_cluster::Cluster;
    use evenly_model::{Edge, Task, TaskGraph};

    /// A square grid of tasks with unequal loads, of which every so many may not be moved.
    fn grid(side: u64, fixed: Option<u64>) -> TaskGraph {
        let mut random = Random::new(5);
        let mut task = |id: u64| {
            let movable = fixed.is_none_or(|each| !id.is_multiple_of(each));
            Task { id, load_s: 0.8 + 0.4 * random.unit(), size_bytes: 0.0, core: None, movable }
        };
        let tasks = (0..side * side).map(&mut task).collect();
        let edge = |from, to| Edge { from, to, messages: 1.0, bytes: 0.0 };
        let right = (0..side * side).filter(|t| t % side != 0).map(|t| edge(t, t - 1));
        let below = (side..side * side).map(|t| edge(t, t - side));
        TaskGraph::new(tasks, &right.chain(below).collect::<Vec<_>>()).unwrap()
    }

    struct Made {
        cut: f64,
        /// The greatest load of a core over the mean.
        most: f64,
        moved: usize,
        to: Vec<CoreIndex>,
    }

    /// What becomes of tasks that are there, by new groups or by better ones, and what was looked at.
    fn made(
        graph: &TaskGraph,
        present: &[CoreIndex],
        options: &Options,
        is_again: bool,
        limit: usize,
    ) -> (Option<Made>, usize) {
        let cluster = Cluster::even(8, 8, 1.0).unwrap();
        let request = Request::timeless(graph, &cluster, present, options);
        let model = Model::new(&request);
        let mut random = Random::new(1);
        let mut spent = Spent { looks: 0, limit, late: &|| false };
        let mut kway = Kway::new(&model, 0.05, &mut random, &mut spent);
        let to = if is_again { kway.once_more(present) } else { kway.groups(Care::ROUGH) };
        let made = to.map(|to| {
            let between = |t: usize| graph.links(t).iter().filter(|l| to[l.with] != to[t]).count();
            let mut loads = vec![0.0; 64];
            to.iter().zip(graph.tasks()).for_each(|(&c, t)| loads[c] += t.load_s);
            Made {
                cut: (0..to.len()).map(between).sum::<usize>() as f64 / 2.0,
                most: loads.into_iter().fold(0.0, f64::max) * 64.0 / graph.load_s(),
                moved: to.iter().zip(present).filter(|(a, b)| a != b).count(),
                to,
            }
        });
        (made, spent.looks)
    }

    fn free() -> Options {
        Options {
            max_imbalance: Some(0.05),
            migration_worth_s: Some(0.0),
            received_in_loads: false,
            ..Options::default()
        }
    }

    /// Of 6,400 tasks on 64 cores squares of ten by ten are the best there is.
    #[test]
    fn groups_are_nearly_squares_within_the_bound() {
        let graph = grid(80, None);
        let squares = 2.0 * 7.0 * 80.0;
        let (new, looks) = made(&graph, &[0; 6400], &free(), false, usize::MAX);
        let new = new.unwrap();
        assert!(new.cut < 1.25 * squares, "{} between cores, {squares} of squares", new.cut);
        assert!(new.most < 1.05, "{}", new.most);
        let links = 6_400 + 2 * 12_640;
        assert!(looks < 60 * links, "each link was looked at {} times", looks / links);
        let (again, _) = made(&graph, &new.to, &free(), true, usize::MAX);
        let again = again.unwrap();
        assert!(again.cut < 0.99 * new.cut && again.most < 1.05, "{}, {}", again.cut, again.most);
    }

    #[test]
    fn what_is_not_movable_stays() {
        let graph = grid(40, Some(9));
        let present: Vec<CoreIndex> = (0..1600).map(|t| t * 7 % 64).collect();
        for is_again in [false, true] {
            let to = made(&graph, &present, &free(), is_again, usize::MAX).0.unwrap().to;
            let stays = |t: usize| graph.tasks()[t].movable || to[t] == present[t];
            assert!((0..1600).all(stays), "again: {is_again}");
        }
    }

    /// What a migration costs keeps tasks where they are.
    #[test]
    fn dear_migrations_are_few() {
        let graph = grid(80, None);
        let present = made(&graph, &[0; 6400], &free(), false, usize::MAX).0.unwrap().to;
        let moved = |worth_s| {
            let options = Options { migration_worth_s: Some(worth_s), ..free() };
            made(&graph, &present, &options, true, usize::MAX).0.unwrap().moved
        };
        let (free, dear) = (moved(0.0), moved(1.0));
        assert!(free > 50 && dear == 0, "{free} where they cost nothing, {dear} where they do");
    }

    #[test]
    fn it_ends_when_all_that_may_be_spent_is() {
        let graph = grid(80, None);
        let (new, looks) = made(&graph, &[0; 6400], &free(), false, 100_000);
        assert!(new.is_none() && looks < 200_000, "{looks}");
    }
}

//! `nuco+`: makespan, communication and migrations together, by search.
//!
//! # The objective
//! In seconds, of a mapping M of n tasks onto m cores:
//!
//! ```text
//! J(M) = greatest over cores c of ( computes(c) + alpha' x C(c) + beta' x B(c) )
//!      + a tenth of ( alpha' x C(all) + beta' x B(all) ) / m
//!      + sum over migrated tasks t of ( worth + size(t) / bandwidth ) / windows
//! ```
//!
//! - computes(c): what the tasks on c compute, over its speed: the load of each, less what it received
//!   where it is at present (below), but at least half of its load. What a task takes includes the
//!   time in which it communicates (section IV); counted once more, it is levelled twice. So J of the
//!   present mapping is its makespan, but for the tenth, as long as no task receives for more than half
//!   of its load. Where imbalance is bounded, or loads
//!   are without it ([`super::Options::received_in_loads`]), the load;
//! - C(c): messages that tasks on c receive, each times [`Cluster::cost`]: nothing on a core (or
//!   [`super::Options::same_core`], where tasks have to take turns there), the factor
//!   of the innermost cache that both cores share (the paper's future work, section VIII), 1 within a
//!   node, else the NUCO factor of the receiver's node reading from the sender's. A core that receives
//!   computes meanwhile for nobody, as the paper's cost(c, t) has it;
//! - B(c): their bytes, each times [`Cluster::byte_cost`]: the same, but between nodes of which
//!   bandwidths are known the ratio of these;
//! - a tenth of the mean of all cores counts besides, because memory and network are shared, and so that
//!   of mappings that end at the same time the one with less communication is better;
//! - alpha', beta': those of the options, both less by the same factor where all messages and bytes
//!   at factor 1 would cost more than all load, of which they are a part. The fixed 1e-5 exceeds that
//!   where windows are long and messages many. With [`Alpha::Auto`] they cost a tenth of it;
//! - worth: [`super::Options::worth_s`], the seconds of makespan that a migration must save to be worth
//!   it; size over bandwidth is added where the cluster's bandwidths are known, within a node only with
//!   [`super::Options::copied_within_nodes`];
//! - windows: [`super::Options::windows`], for how many windows the mapping will hold.
//!
//! **The trade-off** between the three is the user's: `migration_worth_s` prices migrations,
//! `alpha` communication. [`super::Options::max_migrations`] and [`super::Options::max_imbalance`]
//! are bounds instead of prices: a mapping that keeps them is better than any that does not, and of
//! two that do not, the one that exceeds them by less (imbalance, and migrations as a share of the
//! tasks). What has a bound has no price within it: worth is not charged where migrations are
//! bounded; where imbalance is, a makespan (of loads alone) below its bound counts as the bound, and
//! communication as the mean of the cores. So with both bounds it is communication alone that is made
//! small, and of mappings with equal J the one with less imbalance and fewer migrations is taken.
//!
//! # The search
//! Invariant: the mapping returned is the best of all that were looked at, and the present one is
//! among them: it is never worse than that under the model, whenever the search is ended. Those of
//! other mappers are among them, too, as far as they fit into half of the time limit: that of `nuco-auto`
//! first, and then the quickest.
//!
//! It starts from the present mapping, from what every other mapper makes of it and from groups by
//! communication of its own (`multilevel`: halves of halves, down the tree of the machine; not where imbalance
//! is bounded, and where there is little time only if the present mapping and `treematch` have not found such
//! groups), each also with its
//! groups given the cores that most of their tasks are on. The slowest core is not searched for
//! but bounded (the epsilon-constraint method of multi-objective optimisation): below a bound the mean
//! of communication and what migrations cost are reduced. Three things do that:
//!
//! - **passes by gain** (`buckets`): moves and exchanges of tasks kept in buckets by what they gain, losses
//!   among them, of which the best moment is kept. From the best start and from groups by communication,
//!   below bounds nearer and nearer to what each core would take if all took the same; and then from
//!   places near the best, where some tasks were moved by lot;
//! - **simulated annealing** (`search`) for each of several bounds, or the one that the options give, where
//!   there is the time: what exceeds the bound is charged for, at a price that rises while there is
//!   some and falls while there is none; passes by gain end it;
//! - and passes by gain from places near the best with what is left of the time.
//!
//! **Lower bound**: [`lower_bound_s`]. **Time**: what the other mappers look at and the number of
//! sweeps, of which one is O(n + e + m), follow from the sizes and the time limit by a fixed rate,
//! not from the clock, so that the result is the same on every machine on which the limit is not
//! hit. Where it is hit, it is kept: other mappers are stopped on their way
//! ([`Request::stop`]), and what judging a mapping takes is measured at the beginning and kept in
//! reserve. Only that first judging, O(n + e), is done whatever the limit.

mod buckets;
mod multilevel;
mod search;

use super::nuco::NUCO_AUTO;
use super::refine::refine;
use super::{
    AUTO_SHARE, Alpha, Effort, MAPPERS, MapperInfo, PAPER_ALPHA, Request, movable, treematch,
};
use buckets::Spent;
use evenly_model::stats::Random;
use evenly_model::{Cluster, CoreIndex, Link, NodeIndex, Task, TaskGraph, TaskIndex};
use search::{Best, State};
use std::collections::BTreeMap;

/// `nuco+`.
pub(super) const NUCO_PLUS: MapperInfo = MapperInfo {
    name: "nuco+",
    about: "least makespan, communication and migration together, by search within a time limit",
    effort: Effort::Search,
    map: nuco_plus,
};

/// Looks at a link that a second of the time limit stands for. Real machines do more.
const LOOKS_PER_SECOND: f64 = 60e6;
/// What trying a task costs beside looking at its links, in looks.
const LOOKS_PER_TRIAL: usize = 10;
/// Sweeps that a second of the time limit stands for at most: small graphs need no more.
const SWEEPS_PER_SECOND: f64 = 10_000.0;
/// The part of the time limit that other mappers may take.
const OTHERS: f64 = 0.5;
/// The part of what may be looked at that halving may take.
const HALVING: f64 = 0.65;
/// What halving looks at of each task and link, in looks.
const HALVING_LOOKS: f64 = 6.0;
/// What the present mapping communicates over what one by lot would, from where on it is not grouped.
const SCATTERED: f64 = 0.6;
/// Cores whose distances are looked at for that, at most.
const MOST_JUDGED: usize = 128;
/// How often a start is levelled where its bounds are not kept after it.
const LEVELLINGS: usize = 4;
/// Fewer sweeps than these are not worth a start of their own.
const LEAST_SWEEPS: usize = 40;
/// Bounds of the slowest core that are searched below where the options give none, as a share above
/// what each would take if all took the same.
const BOUNDS: [f64; 4] = [0.03, 0.01, 0.12, 0.5];
/// What part of a task's load is computing at least.
const LEAST_COMPUTING: f64 = 0.5;
/// What communication counts for that is not on the slowest core: memory and network are shared.
const SHARED: f64 = 0.1;

/// J of a mapping, in seconds (see the module), for the options of the request. What exceeds their
/// bounds is not in it.
#[must_use]
pub fn objective_s(request: &Request<'_>, mapping: &[CoreIndex]) -> f64 {
    Model::new(request).value(mapping).objective_s
}

/// What J of no mapping is below, in seconds: no makespan is less than the mean load, than the
/// heaviest task on the fastest core, and than what is not movable; and no communication or
/// migration costs less than nothing. Where the makespan is bounded, the bound if that is more.
#[must_use]
pub fn lower_bound_s(request: &Request<'_>) -> f64 {
    let model = Model::new(request);
    model.least_s(|t| model.computes_s[t]).max(model.floor_s)
}

/// What a mapping is worth: smaller is better, what exceeds the bounds first.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
struct Value {
    excess: f64,
    objective_s: f64,
    /// Imbalance and the share of tasks that are migrated: where all else is equal.
    rest: f64,
}

/// The objective, with what it needs at hand.
struct Model<'a> {
    graph: &'a TaskGraph,
    cluster: &'a Cluster,
    present: &'a [CoreIndex],
    costs: Costs<'a>,
    /// What each task computes, in seconds at speed 1: its load without what it received at present.
    computes_s: Vec<f64>,
    /// 1 over the number of cores.
    per_core: f64,
    /// Whether each core's communication counts in what it takes; else that of all, over the cores.
    communication_on_cores: bool,
    worth_s: f64,
    windows: f64,
    copied_within_nodes: bool,
    mean_s: f64,
    /// What a makespan counts as at least.
    floor_s: f64,
    max_imbalance: f64,
    max_migrations: usize,
}

impl<'a> Model<'a> {
    fn new(request: &Request<'a>) -> Self {
        let Request { graph, cluster, present, options, .. } = *request;
        let at_least_0 = |x: f64| if x.is_finite() && x > 0.0 { x } else { 0.0 };
        let beta = options.byte_s(cluster);
        let (alpha, beta) = match options.alpha {
            Alpha::Fixed(_) => {
                let alpha = options.alpha.seconds(graph);
                let less = share(graph, 1.0, alpha, beta).map_or(1.0, |s| s.min(1.0));
                (alpha * less, beta * less)
            }
            Alpha::Auto => {
                let scale = share(graph, AUTO_SHARE, PAPER_ALPHA, beta).unwrap_or(1.0);
                (PAPER_ALPHA * scale, beta * scale)
            }
        };
        let cores = cluster.cores();
        let costs = Costs::new(cluster, [alpha, beta], at_least_0(options.same_core));
        let communication_on_cores = options.max_imbalance.is_none();
        let is_in_loads = communication_on_cores && options.received_in_loads;
        let received = is_in_loads.then_some(&costs);
        let computes_s = computing_s(graph, cluster, present, received);
        let speeds: f64 = cores.iter().map(|c| c.speed).sum();
        let mean_s = computes_s.iter().sum::<f64>() / speeds;
        let (worth_s, max_migrations) = match options.max_migrations {
            Some(most) => (0.0, most),
            None => (options.worth_s(present), usize::MAX),
        };
        let (floor_s, max_imbalance) = match options.max_imbalance.map(at_least_0) {
            Some(most) => (mean_s * (1.0 + most), most),
            None => (0.0, f64::INFINITY),
        };
        Self {
            graph,
            cluster,
            present,
            costs,
            computes_s,
            per_core: 1.0 / cores.len() as f64,
            communication_on_cores,
            worth_s,
            windows: Some(at_least_0(options.windows)).filter(|w| *w > 0.0).unwrap_or(1.0),
            copied_within_nodes: options.copied_within_nodes,
            mean_s,
            floor_s,
            max_imbalance,
            max_migrations,
        }
    }

    /// What it costs to have a task on a core instead of where it is at present.
    fn migration_s(&self, t: TaskIndex, to: CoreIndex) -> f64 {
        let from = self.present[t];
        if to == from {
            return 0.0;
        }
        let node = |c: CoreIndex| self.cluster.cores()[c].node;
        let is_copied = node(from) != node(to) || self.copied_within_nodes;
        let copying = self.cluster.bandwidth(node(from), node(to)).filter(|_| is_copied);
        let copying_s = copying.map_or(0.0, |b| self.graph.tasks()[t].size_bytes / b);
        (self.worth_s + copying_s) / self.windows
    }

    /// What no makespan is below, if tasks take so long: the mean, the heaviest, and what is not movable.
    fn least_s(&self, takes_s: impl Fn(TaskIndex) -> f64) -> f64 {
        let cores = self.cluster.cores();
        let (mut all_s, mut heaviest_s) = (0.0, 0.0_f64);
        let mut fixed_s = vec![0.0; cores.len()];
        for (t, task) in self.graph.tasks().iter().enumerate() {
            let takes_s = takes_s(t);
            all_s += takes_s;
            if task.movable {
                heaviest_s = heaviest_s.max(takes_s);
            } else {
                let c = self.present[t];
                fixed_s[c] += takes_s / cores[c].speed;
            }
        }
        let speeds = || cores.iter().map(|c| c.speed);
        let fixed_s = fixed_s.into_iter().fold(0.0, f64::max);
        let fastest = speeds().fold(0.0, f64::max);
        (all_s / speeds().sum::<f64>()).max(heaviest_s / fastest).max(fixed_s)
    }

    /// What each core computes, over its speed.
    fn computing_s(&self, mapping: &[CoreIndex]) -> Vec<f64> {
        let cores = self.cluster.cores();
        let mut time_s = vec![0.0; cores.len()];
        for (computes_s, &c) in self.computes_s.iter().zip(mapping) {
            time_s[c] += computes_s / cores[c].speed;
        }
        time_s
    }

    fn imbalance(&self, makespan_s: f64) -> f64 {
        if self.mean_s > 0.0 { makespan_s / self.mean_s - 1.0 } else { 0.0 }
    }

    /// What exceeds the bounds of the options.
    fn excess(&self, makespan_s: f64, migrations: usize) -> f64 {
        let imbalance = (self.imbalance(makespan_s) - self.max_imbalance).max(0.0);
        let migrations = migrations.saturating_sub(self.max_migrations);
        imbalance + migrations as f64 / self.graph.len() as f64
    }

    /// Adds to each core's time what its tasks receive, if it counts there; what all receive, in
    /// seconds of the cores that do.
    fn receive(&self, mapping: &[CoreIndex], time_s: &mut [f64]) -> f64 {
        let mut all_s = 0.0;
        for (t, &to) in mapping.iter().enumerate() {
            let links = self.graph.links(t).iter();
            let cost =
                |l: &Link| self.costs.between(to, mapping[l.with]).of(l.received, l.received_bytes);
            let received_s: f64 = links.map(cost).sum();
            all_s += received_s;
            if self.communication_on_cores {
                time_s[to] += received_s;
            }
        }
        all_s
    }

    fn value(&self, mapping: &[CoreIndex]) -> Value {
        self.judge(mapping).value
    }

    fn judge(&self, mapping: &[CoreIndex]) -> Judged {
        let mut time_s = self.computing_s(mapping);
        let greatest = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        let makespan_s = greatest(&time_s);
        let communication_s = self.receive(mapping, &mut time_s) * self.per_core;
        let slowest_s = greatest(&time_s);
        let tasks = || mapping.iter().enumerate();
        let migrations = tasks().filter(|&(t, &c)| c != self.present[t]).count();
        let moving_s = tasks().map(|(t, &c)| self.migration_s(t, c)).sum();
        let value = self.value_of(makespan_s, slowest_s, communication_s, moving_s, migrations);
        Judged { value, communication_s, slowest_s }
    }

    fn value_of(
        &self,
        makespan_s: f64,
        slowest_s: f64,
        communication_s: f64,
        moving_s: f64,
        migrations: usize,
    ) -> Value {
        let share = migrations as f64 / self.graph.len() as f64;
        let working_s = if self.communication_on_cores {
            slowest_s + SHARED * communication_s
        } else {
            makespan_s.max(self.floor_s) + communication_s
        };
        Value {
            excess: self.excess(makespan_s, migrations),
            objective_s: working_s + moving_s,
            rest: self.imbalance(makespan_s) + share,
        }
    }
}

/// What tasks compute: their loads, and where costs are given, less what they received where they were,
/// as what a task takes includes that; but at least half of it.
fn computing_s(
    graph: &TaskGraph,
    cluster: &Cluster,
    present: &[CoreIndex],
    costs: Option<&Costs<'_>>,
) -> Vec<f64> {
    let computes = |(t, task): (TaskIndex, &Task)| {
        let Some(costs) = costs else { return task.load_s };
        let here = present[t];
        let cost = |l: &Link| costs.between(here, present[l.with]).of(l.received, l.received_bytes);
        let received_s: f64 = graph.links(t).iter().map(cost).sum();
        (task.load_s - received_s * cluster.cores()[here].speed).max(LEAST_COMPUTING * task.load_s)
    };
    graph.tasks().iter().enumerate().map(computes).collect()
}

/// A mapping's value, what all its communication costs over the cores, and when its slowest core ends.
struct Judged {
    value: Value,
    communication_s: f64,
    slowest_s: f64,
}

/// What messages and bytes have to be multiplied by, so that all of them at factor 1 cost this part
/// of all load. None where that is no number: there is nothing of one of them.
fn share(graph: &TaskGraph, part: f64, alpha: f64, beta: f64) -> Option<f64> {
    let factor = part * graph.load_s() / (alpha * graph.messages() + beta * graph.bytes());
    (factor.is_finite() && factor > 0.0).then_some(factor)
}

/// What a message and a byte are between two cores, in seconds of J.
#[derive(Debug, Clone, Copy)]
struct Cost {
    message_s: f64,
    byte_s: f64,
}

impl Cost {
    fn of(self, messages: f64, bytes: f64) -> f64 {
        messages * self.message_s + bytes * self.byte_s
    }

    fn less(self, other: Self) -> Self {
        Self { message_s: self.message_s - other.message_s, byte_s: self.byte_s - other.byte_s }
    }
}

/// [`Cluster::cost`] and [`Cluster::byte_cost`], quickly, in seconds of the core that receives.
struct Costs<'a> {
    cluster: &'a Cluster,
    /// At factor 1.
    one: Cost,
    /// On the same core.
    same: Cost,
    known: Known,
}

/// What has been worked out beforehand.
enum Known {
    /// The cost of every pair of cores, row by row.
    Cores(Vec<Cost>, usize),
    /// The cost of every pair of nodes, where it is that of their cores: each core's node, and how
    /// many there are.
    Nodes(Vec<Cost>, Vec<NodeIndex>, usize),
    /// There are too many.
    Nothing,
}

impl<'a> Costs<'a> {
    /// A table that stays in the CPU's cache.
    const FEW: usize = 128;
    const MOST: usize = 512;

    fn new(cluster: &'a Cluster, [message_s, byte_s]: [f64; 2], same_core: f64) -> Self {
        let (cores, nodes) = (cluster.cores().len(), cluster.nodes().len());
        let one = Cost { message_s, byte_s };
        let same = Cost { message_s: message_s * same_core, byte_s: 0.0 };
        let mut costs = Self { cluster, one, same, known: Known::Nothing };
        let table = |n: usize, of: &dyn Fn(usize, usize) -> Cost| -> Vec<Cost> {
            (0..n * n).map(|k| of(k / n, k % n)).collect()
        };
        costs.known = if cores <= Self::FEW {
            Known::Cores(table(cores, &|to, from| costs.work_out(to, from)), cores)
        } else if cluster.caches().is_empty() && nodes <= Self::MOST {
            let node = cluster.cores().iter().map(|c| c.node).collect();
            // Any two different cores of theirs; what is between cores of one node is 1.
            let mut core_of = vec![None; nodes];
            for (c, core) in cluster.cores().iter().enumerate() {
                core_of[core.node].get_or_insert(c);
            }
            let of = |to: usize, from: usize| match (core_of[to], core_of[from]) {
                (Some(a), Some(b)) if a != b => costs.work_out(a, b),
                _ => one,
            };
            Known::Nodes(table(nodes, &of), node, nodes)
        } else if cores <= Self::MOST {
            Known::Cores(table(cores, &|to, from| costs.work_out(to, from)), cores)
        } else {
            Known::Nothing
        };
        costs
    }

    fn work_out(&self, to: CoreIndex, from: CoreIndex) -> Cost {
        if to == from {
            return self.same;
        }
        Cost {
            message_s: self.one.message_s * self.cluster.cost(to, from),
            byte_s: self.one.byte_s * self.cluster.byte_cost(to, from),
        }
    }

    fn between(&self, to: CoreIndex, from: CoreIndex) -> Cost {
        match &self.known {
            Known::Cores(table, cores) => table[to * cores + from],
            Known::Nodes(..) if to == from => self.same,
            Known::Nodes(table, node, nodes) => table[node[to] * nodes + node[from]],
            Known::Nothing => self.work_out(to, from),
        }
    }
}

fn nuco_plus(request: &Request<'_>) -> Vec<CoreIndex> {
    let Request { graph, cluster, present, options, clock, stop } = *request;
    let began = clock();
    let spent = || clock() - began;
    let model = Model::new(request);
    let mut best = Best::new(&model, present);
    let tasks = movable(graph);
    if tasks.is_empty() || cluster.cores().len() == 1 {
        return best.mapping;
    }
    // Whoever is late sums up and judges once more.
    let judging = spent();
    let limit = options.time_limit;
    let has_time_for = |judgings: f64| !stop() && spent() + judging.scale(judgings) < limit;
    let late = || !has_time_for(2.0);
    let mut random = Random::new(options.seed);

    // Bounds of the slowest core, of loads alone and with communication.
    let least = model.least_s(|t| model.computes_s[t]);
    let least_load_s = model.least_s(|t| graph.tasks()[t].load_s);
    let bounds = if options.max_imbalance.is_some() { &[0.0][..] } else { &BOUNDS };
    let load_bound_s = |bound: f64| match options.max_imbalance {
        // A core that nothing is moved to or from may be at the bound, if it is taken from another
        // mapping; rounding must not make it exceed it.
        Some(_) => model.floor_s * (1.0 + 1e-12),
        None => least_load_s * (1.0 + bound),
    };
    // What each core would take if all took the same, as far as is known.
    let level_s = |best: &Best| least.max(model.mean_s + best.communication_s);
    let bound_s = |best: &Best, bound: f64| match options.max_imbalance {
        Some(_) => load_bound_s(bound),
        None => level_s(best) * (1.0 + bound),
    };

    // Starts that do not depend on the bound: what others make of it, the quickest first; before all that
    // of `nuco-auto`, which mostly is the best of them.
    let looks = options.time_limit.as_secs_f64() * LOOKS_PER_SECOND;
    let sizes = (graph.len(), cluster.cores().len(), graph.pairs());
    let mut others: Vec<(f64, &MapperInfo)> = MAPPERS
        .iter()
        .filter(|m| !m.effort.searches())
        .map(|m| (m.effort.looks(sizes.0, sizes.1, sizes.2), m))
        .collect();
    let is_later = |m: &MapperInfo| m.name != NUCO_AUTO.name;
    others.sort_by(|a, b| is_later(a.1).cmp(&is_later(b.1)).then(a.0.total_cmp(&b.0)));
    let all_may_move = model.max_migrations >= tasks.len() / 2;
    // Where imbalance is bounded, halves keep the bound no better than `treematch`'s groups.
    let may_halve = all_may_move && options.max_imbalance.is_none();
    let halving = if may_halve { halving_looks(&model, looks) } else { None };
    let most_of_others = OTHERS * (looks - halving.map_or(0.0, |h| h.looks));
    let mut looks_of_others = 0.0;
    let mut grouped = Vec::new();
    // The cheapest of all by far, and what there is time for where there are millions of tasks.
    let stop = || late() || spent() >= limit.scale(OTHERS);
    for &bound in bounds {
        if !has_time_for(16.0) || stop() {
            break;
        }
        best.offer(&refine(&Request { stop: &stop, ..*request }, load_bound_s(bound)));
    }
    for (its_looks, other) in others {
        // Orders and copies of all tasks are made before one can stop.
        if !has_time_for(16.0) || stop() {
            break;
        }
        if looks_of_others + its_looks > most_of_others {
            continue;
        }
        // Its looks go along the cores in order, and take a fraction of what others do; none of the search
        // is given up for it.
        if is_later(other) {
            looks_of_others += its_looks;
        }
        let mapping = (other.map)(&Request { stop: &stop, ..*request });
        let there = best.offer(&mapping);
        if !has_time_for(12.0) {
            break;
        }
        let home = at_home(&model, &mapping);
        let is_better_at_home = best.offer(&home) < there;
        if other.name == treematch::TREEMATCH.name {
            grouped = if is_better_at_home { home } else { mapping };
        }
    }
    let mut looks_of_halving = 0.0;
    let mut is_halved = false;
    if has_time_for(32.0)
        && let Some(halving) = halving
        && (!halving.is_dear || grouped.is_empty() || is_scattered(&model, &grouped))
    {
        // A step of it may take some judgings, and what it made is judged thrice.
        let hurry = || !has_time_for(20.0);
        let mut spent = Spent { looks: 0, limit: (HALVING * looks) as usize, late: &hurry };
        // Lots of its own, so that the rest is the same with it and without.
        let made = multilevel::groups(&model, &mut Random::new(!options.seed), &mut spent);
        looks_of_halving = spent.looks as f64;
        if let Some(mapping) = made.filter(|_| has_time_for(12.0)) {
            let there = best.offer(&mapping);
            let home = at_home(&model, &mapping);
            let then = best.offer(&home);
            let (halves, value) = if then < there { (home, then) } else { (mapping, there) };
            // Where there is time to anneal groups, those of `treematch` do as well.
            let is_better = || !halving.is_cheap && value < model.value(&grouped);
            if grouped.is_empty() || is_better() {
                grouped = halves;
                is_halved = true;
            }
        }
    }
    let best_is_halved = is_halved && best.mapping == grouped;

    let links: usize = tasks.iter().map(|&t| graph.links(t).len()).sum();
    let sweep = (tasks.len() * LOOKS_PER_TRIAL + links * 3 / 2) as f64;
    let most_sweeps = options.time_limit.as_secs_f64() * SWEEPS_PER_SECOND;
    let all_sweeps = ((looks - looks_of_others - looks_of_halving) / sweep).min(most_sweeps);
    // Passes by gain of what is there, and at the end of what was found; the rest is annealed.
    let part = |part: f64| (all_sweeps * part * sweep) as usize;
    let (first, last, sweeps) = if all_sweeps < 3.0 * LEAST_SWEEPS as f64 {
        // No time to anneal anything.
        (part(0.5), part(0.5), 0)
    } else {
        (part(FIRST), part(LAST), (all_sweeps * (1.0 - FIRST - LAST)) as usize)
    };

    let mut runs: Vec<(f64, Start)> = Vec::new();
    for &bound in bounds {
        runs.push((bound, Start::Refined));
        if options.max_imbalance.is_some() {
            runs.push((bound, Start::Levelled));
        }
        if all_may_move {
            runs.push((bound, Start::Grouped));
            runs.push((bound, Start::Molten));
        }
    }
    runs.truncate((sweeps / LEAST_SWEEPS).saturating_sub(1));
    // Where there is no time for others, all of it is for what was found.
    let polish = if runs.is_empty() { sweeps / 2 } else { sweeps / 8 };
    let each = (sweeps - 2 * polish.min(sweeps / 2)) / runs.len().max(1);

    // Passes below nearer and nearer bounds, and then from places near the best. Where what it starts from
    // comes from such passes (halves do), one below no bound gains little and takes long.
    let squeeze = |from: &[CoreIndex],
                   is_passed: bool,
                   looks: usize,
                   best: &mut Best,
                   random: &mut Random| {
        let mut state = State::new(&model, &tasks, from, load_bound_s(0.0));
        let mut spent = Spent { looks: 0, limit: looks, late: &late };
        let scale_s = state.scale_s(random);
        let mut scratch = state.scratch(if scale_s > 0.0 { scale_s } else { model.mean_s });
        let slides = options.max_imbalance.is_none();
        if slides {
            state.bind(state.slowest_s());
        }
        if !is_passed || !slides {
            state.pass_by_gain(&mut scratch, &mut spent);
            state.claim(best);
        }
        let (mut part, mut rounds) = (0.5, 0);
        while !spent.all() {
            let slowest_s = state.slowest_s();
            if slides {
                let level_s = least.max(model.mean_s + state.sums.communication_s);
                state.bind(slowest_s - (slowest_s - level_s).max(0.0) * part);
                state.pass_of_slow_cores(&mut scratch, &mut spent);
                state.claim(best);
            }
            for _ in 0..KICKS {
                if spent.all() {
                    break;
                }
                state.kick(random, &mut scratch, &mut spent);
            }
            state.claim(best);
            rounds += 1;
            if slides && state.slowest_s() >= slowest_s {
                part = if part < 0.02 { 0.5 } else { part / 2.0 };
            }
            // Sums drift by rounding, and a state may have gone astray.
            if rounds % 32 == 0 && !late() {
                state = State::new(&model, &tasks, &best.mapping, best.slowest_s);
            }
        }
    };
    let run = |run: Run<'_>, best: &mut Best, random: &mut Random| {
        let mut state = State::new(&model, &tasks, run.from, run.bound_s);
        let mut sweeps = run.sweeps;
        if run.level_first {
            sweeps -= run.sweeps / 2;
            for left in (0..LEVELLINGS).rev() {
                state.level(run.sweeps / 2, random, &late);
                if late() {
                    return state.claim(best);
                }
                best.offer(&state.at);
                if state.is_level() || left == 0 {
                    break;
                }
                // By other lots.
                state = State::new(&model, &tasks, run.from, run.bound_s);
            }
        }
        state.anneal(sweeps, run.heat, random, best, &late);
        if late() {
            return state.claim(best);
        }
        let looks = run.sweeps.saturating_mul(sweep as usize);
        let scale_s = state.scale_s(random);
        let mut scratch = state.scratch(if scale_s > 0.0 { scale_s } else { model.mean_s });
        state.pass_by_gain(&mut scratch, &mut Spent { looks: 0, limit: looks, late: &late });
        best.offer(&state.at);
    };
    let own_bound_s = |best: &Best| match options.max_imbalance {
        Some(_) => load_bound_s(0.0),
        None => best.slowest_s,
    };
    let polished = |best: &mut Best, random: &mut Random| {
        if has_time_for(8.0) && polish > 0 {
            let (from, bound_s) = (best.mapping.clone(), own_bound_s(best));
            let how = Run { from: &from, bound_s, sweeps: polish, heat: COOL, level_first: false };
            run(how, best, random);
        }
    };
    // The best start first: what it gives is there early.
    if first > 0 && has_time_for(8.0) {
        let from = best.mapping.clone();
        let its = if best_is_halved { first } else { first / 2 };
        squeeze(&from, best_is_halved, its, &mut best, &mut random);
        if !best_is_halved && all_may_move && !grouped.is_empty() && has_time_for(8.0) {
            squeeze(&grouped, is_halved, first / 2, &mut best, &mut random);
        }
    }
    polished(&mut best, &mut random);
    for (bound, start) in runs {
        if !has_time_for(12.0) {
            break;
        }
        let refined = refine(&Request { stop: &late, ..*request }, load_bound_s(bound));
        best.offer(&refined);
        let (from, heat) = match start {
            Start::Refined | Start::Levelled => (&refined, WARM),
            Start::Grouped => (&grouped, WARM),
            Start::Molten => (&refined, HOT),
        };
        if !from.is_empty() && has_time_for(8.0) {
            let level_first = start == Start::Levelled;
            let bound_s = bound_s(&best, bound);
            let how = Run { from, bound_s, sweeps: each, heat, level_first };
            run(how, &mut best, &mut random);
        }
    }
    polished(&mut best, &mut random);
    if last > 0 && has_time_for(8.0) {
        let from = best.mapping.clone();
        squeeze(&from, is_halved, last, &mut best, &mut random);
    }
    best.mapping
}

/// What halving takes.
#[derive(Debug, Clone, Copy)]
struct Halving {
    looks: f64,
    /// Hardly anything of what there is.
    is_cheap: bool,
    /// So much of it that it is left out where another mapper has found groups.
    is_dear: bool,
}

/// What halving takes, where there is so much: always where it is little; where it is much, as long as the
/// present mapping has not been made with an eye to who talks to whom.
fn halving_looks(model: &Model<'_>, looks: f64) -> Option<Halving> {
    let halvings = (model.cluster.cores().len() as f64).log2().ceil();
    let links = model.graph.len() + 2 * model.graph.pairs();
    let takes = HALVING_LOOKS * halvings * links as f64;
    let part = takes / looks;
    let is_cheap = part <= HALVING / 10.0;
    let is_worth = is_cheap || part <= HALVING && is_scattered(model, model.present);
    is_worth.then_some(Halving { looks: takes, is_cheap, is_dear: part > HALVING / 2.0 })
}

/// Whether a mapping communicates hardly less than one by lot.
fn is_scattered(model: &Model<'_>, mapping: &[CoreIndex]) -> bool {
    let cores = model.cluster.cores().len();
    // Of many cores some, evenly spread, stand for all.
    let some = cores.min(MOST_JUDGED);
    let core = |i: usize| i * cores / some;
    let pairs = (0..some * some).map(|k| model.costs.between(core(k / some), core(k % some)));
    let all_s: f64 = pairs.map(|c| c.of(model.graph.messages(), model.graph.bytes())).sum();
    let by_lot_s = all_s / (some * some) as f64;
    model.receive(mapping, &mut vec![0.0; cores]) > SCATTERED * by_lot_s
}

/// A search.
struct Run<'a> {
    from: &'a [CoreIndex],
    bound_s: f64,
    sweeps: usize,
    heat: f64,
    /// Whether half of the sweeps go to the bounds alone.
    level_first: bool,
}

/// What a search starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    /// What `refine` makes of the present mapping below the bound.
    Refined,
    /// The same, and then what is above the bounds is annealed alone.
    Levelled,
    /// Groups by communication.
    Grouped,
    /// Nothing in particular.
    Molten,
}

/// How hot a search starts, over what a random move costs or gains: little of the start is lost.
const COOL: f64 = 0.01;
/// What is good in the start remains.
const WARM: f64 = 0.1;
/// Nothing of the start remains.
const HOT: f64 = 1.0;
/// The parts of the search that are passes by gain, before annealing and after it.
const FIRST: f64 = 0.1;
const LAST: f64 = 0.3;
/// How often a pass begins with steps by lot before the bound is looked at.
const KICKS: usize = 16;

/// The same groups on other cores, so that more tasks are where they are at present: whole nodes
/// change places with nodes of as many cores, and then cores with cores of their node and speed. A
/// core with a task that may not be moved keeps its group, and so does its node.
fn at_home(model: &Model<'_>, mapping: &[CoreIndex]) -> Vec<CoreIndex> {
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

/// Who of 0..count takes whose place, so that many of the pairs (from, to) go from a to the place
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

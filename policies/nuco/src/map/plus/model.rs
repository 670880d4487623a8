//! What `nuco+` makes small: the objective.
//!
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
//!   time in which it communicates (section IV), which must not be counted twice. So J of the
//!   present mapping is its makespan, but for the tenth, as long as no task receives for more than half
//!   of its load. Where imbalance is bounded, or loads
//!   are without it ([`crate::map::Options::received_in_loads`]), the load;
//! - C(c): messages that tasks on c receive, each times [`Cluster::cost`]: nothing on a core (or
//!   [`crate::map::Options::same_core`], where tasks have to take turns there), the factor
//!   of the innermost cache that both cores share (the paper's future work, section VIII), 1 within a
//!   node, else the NUCO factor of the receiver's node reading from the sender's. A core that receives
//!   computes nothing meanwhile, as the paper's cost(c, t) has it;
//! - B(c): their bytes, each times [`Cluster::byte_cost`]: the same, but between nodes of which
//!   bandwidths are known the ratio of these;
//! - a tenth of the mean of all cores counts besides, because memory and network are shared, and so that
//!   of mappings that end at the same time the one with less communication is better;
//! - alpha', beta': those of the options, both less by the same factor where all messages and bytes
//!   at factor 1 would cost more than all load, of which they are a part. The fixed 1e-5 exceeds that
//!   where windows are long and messages many. With [`Alpha::Auto`] they cost a tenth of it;
//! - worth: [`crate::map::Options::worth_s`], the seconds of makespan that a migration must save to be worth
//!   it; size over bandwidth is added where the cluster's bandwidths are known, within a node only with
//!   [`crate::map::Options::copied_within_nodes`];
//! - windows: [`crate::map::Options::windows`], for how many windows the mapping will hold.
//!
//! **The trade-off** between the three is the user's: `migration_worth_s` prices migrations,
//! `alpha` communication. [`crate::map::Options::max_migrations`] and [`crate::map::Options::max_imbalance`]
//! are bounds instead of prices: a mapping that keeps them is better than any that does not. Migrations are
//! the harder bound, as it can always be kept: of two that do not keep both, the one with fewer migrations
//! too many is better, and then the one that exceeds the bound on imbalance by less. What has a bound has no price within it: worth is not charged where migrations are
//! bounded; where imbalance is, a makespan (of loads alone) below its bound counts as the bound, and
//! communication as the mean of the cores. So with both bounds it is communication alone that is made
//! small, and of mappings with equal J the one with less imbalance and fewer migrations is taken.

use super::super::{AUTO_SHARE, Alpha, PAPER_ALPHA, Request};
use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::{Link, NodeIndex, Task, TaskGraph, TaskIndex};

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
pub(super) struct Value {
    /// Migrations above their bound.
    too_many: usize,
    /// Imbalance above its bound.
    excess: f64,
    objective_s: f64,
    /// Imbalance and the share of tasks that are migrated: where all else is equal.
    rest: f64,
}

/// The objective, with what it needs at hand.
pub(super) struct Model<'a> {
    pub(super) graph: &'a TaskGraph,
    pub(super) cluster: &'a Cluster,
    pub(super) present: &'a [CoreIndex],
    pub(super) costs: Costs<'a>,
    /// What each task computes, in seconds at speed 1: its load without what it received at present.
    pub(super) computes_s: Vec<f64>,
    /// 1 over the number of cores.
    pub(super) per_core: f64,
    /// Whether each core's communication counts in what it takes; else that of all, over the cores.
    pub(super) communication_on_cores: bool,
    pub(super) worth_s: f64,
    pub(super) windows: f64,
    pub(super) copied_within_nodes: bool,
    pub(super) mean_s: f64,
    /// What a makespan counts as at least.
    pub(super) floor_s: f64,
    pub(super) max_imbalance: f64,
    pub(super) max_migrations: usize,
}

impl<'a> Model<'a> {
    pub(super) fn new(request: &Request<'a>) -> Self {
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
    pub(super) fn migration_s(&self, t: TaskIndex, to: CoreIndex) -> f64 {
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
    pub(super) fn least_s(&self, takes_s: impl Fn(TaskIndex) -> f64) -> f64 {
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
    pub(super) fn computing_s(&self, mapping: &[CoreIndex]) -> Vec<f64> {
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

    /// Adds to each core's time what its tasks receive, if it counts there; what all receive, in
    /// seconds of the cores that do.
    pub(super) fn receive(&self, mapping: &[CoreIndex], time_s: &mut [f64]) -> f64 {
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

    /// Whether a mapping is within the bounds, but for rounding.
    pub(super) fn keeps_bounds(&self, mapping: &[CoreIndex]) -> bool {
        let value = self.value(mapping);
        value.too_many == 0 && value.excess <= 1e-12
    }

    pub(super) fn value(&self, mapping: &[CoreIndex]) -> Value {
        self.judge(mapping).value
    }

    pub(super) fn judge(&self, mapping: &[CoreIndex]) -> Judged {
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

    pub(super) fn value_of(
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
            too_many: migrations.saturating_sub(self.max_migrations),
            excess: (self.imbalance(makespan_s) - self.max_imbalance).max(0.0),
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
pub(super) struct Judged {
    pub(super) value: Value,
    pub(super) communication_s: f64,
    pub(super) slowest_s: f64,
}

/// What messages and bytes have to be multiplied by, so that all of them at factor 1 cost this part
/// of all load. None where that is no number: there is nothing of one of them.
fn share(graph: &TaskGraph, part: f64, alpha: f64, beta: f64) -> Option<f64> {
    let factor = part * graph.load_s() / (alpha * graph.messages() + beta * graph.bytes());
    (factor.is_finite() && factor > 0.0).then_some(factor)
}

/// What a message and a byte are between two cores, in seconds of J.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) message_s: f64,
    pub(super) byte_s: f64,
}

impl Cost {
    pub(super) fn of(self, messages: f64, bytes: f64) -> f64 {
        messages * self.message_s + bytes * self.byte_s
    }

    pub(super) fn less(self, other: Self) -> Self {
        Self { message_s: self.message_s - other.message_s, byte_s: self.byte_s - other.byte_s }
    }
}

/// [`Cluster::cost`] and [`Cluster::byte_cost`], quickly, in seconds of the core that receives.
pub(super) struct Costs<'a> {
    cluster: &'a Cluster,
    /// What a message costs at a distance of factor 1.
    pub(super) one: Cost,
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

    pub(super) fn new(cluster: &'a Cluster, [message_s, byte_s]: [f64; 2], same_core: f64) -> Self {
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

    pub(super) fn between(&self, to: CoreIndex, from: CoreIndex) -> Cost {
        match &self.known {
            Known::Cores(table, cores) => table[to * cores + from],
            Known::Nodes(..) if to == from => self.same,
            Known::Nodes(table, node, nodes) => table[node[to] * nodes + node[from]],
            Known::Nothing => self.work_out(to, from),
        }
    }
}

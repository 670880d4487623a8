//! Mapping: where each of many communicating tasks is to run (NucoLB: Pilla et al., "A Hierarchical
//! Approach for Load Balancing on Parallel Multi-core Systems", 2012, and what it is held against).
//!
//! Invariant: a mapper is a pure, deterministic function of its [`Request`]: the same graph,
//! cluster, present mapping, options and seed give the same mapping (those that work within a time
//! limit: as long as it is not hit). Every task is put on a core that exists, and a task that is
//! not movable stays where it is.
//!
//! To add one: write its module here, with what is to be known of it as a [`MapperInfo`], and add
//! one line to [`MAPPERS`].

pub mod apps;
mod greedy;
mod greedy_comm;
pub mod machines;
mod nuco;
mod objectives;
pub mod plus;
mod refine;
mod simple;
mod tree;
mod treematch;

use evenly_cluster::{Cluster, Core, CoreIndex};
use evenly_model::{Nanos, TaskGraph, TaskIndex};
use std::cell::Cell;
use std::cmp::Reverse;

pub use greedy_comm::CommCost;
pub use objectives::{Objectives, is_within, objectives};

/// What a mapper may use.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The tasks and their communication.
    pub graph: &'a TaskGraph,
    /// The machine that tasks are mapped onto.
    pub cluster: &'a Cluster,
    /// Where each task is now, by the task's place. As long as there are tasks, and every core is
    /// one of the cluster's; else mappers panic.
    pub present: &'a [CoreIndex],
    /// What the user can choose.
    pub options: &'a Options,
    /// Time since some moment; for those that work within a time limit.
    pub clock: &'a dyn Fn() -> Nanos,
    /// Whether to stop where one is: asked now and then by those that take long. The tasks that have
    /// not been placed by then stay where they are. [`no_stop`] where there is no hurry.
    pub stop: &'a dyn Fn() -> bool,
}

impl<'a> Request<'a> {
    /// Without a clock, and never to be stopped: the answer depends on what is given alone, and a
    /// time limit is only what the amount of search follows from.
    #[must_use]
    pub fn timeless(
        graph: &'a TaskGraph,
        cluster: &'a Cluster,
        present: &'a [CoreIndex],
        options: &'a Options,
    ) -> Self {
        const CLOCK: fn() -> Nanos = || Nanos::ZERO;
        Self { graph, cluster, present, options, clock: &CLOCK, stop: &no_stop }
    }
}

/// Never: what [`Request::stop`] mostly is.
#[must_use]
pub fn no_stop() -> bool {
    false
}

/// What the user can choose of a mapper. Construct it with `..Options::default()`.
#[derive(Debug, Clone)]
pub struct Options {
    /// What a message costs beside computing time (section III-A). Default: the paper's 1e-5.
    pub alpha: Alpha,
    /// `nuco+`: what a byte costs beside computing time, in seconds; the paper counts messages only.
    /// None, the default: what the machine says ([`Options::byte_s`]). With [`Alpha::Auto`] a byte
    /// keeps its proportion to a message that costs 1e-5. Less than 0 and not-a-number are 0.
    pub beta: Option<f64>,
    /// Seed of those that draw random numbers. Default 1.
    pub seed: u64,
    /// How long those that search may search. Default 1 s.
    pub time_limit: Nanos,
    /// `nuco+`: seconds of makespan that a migration must save to be worth it, beside the time to
    /// copy the task where that is known. None, the default: what [`Options::worth_s`] says.
    pub migration_worth_s: Option<f64>,
    /// `nuco+`: for how many windows, each as long as the one whose loads and messages these are, the
    /// mapping will hold: a migration's cost is spread over them. Default 1. What is not above 0 is 1.
    pub windows: f64,
    /// `nuco+`: whether a task has to be copied to go to another core of its node, where bandwidths are
    /// known. Default true: objects of a runtime are; threads are not.
    pub copied_within_nodes: bool,
    /// `nuco+`: whether what a task took includes what it received, as where a runtime measures it. Default
    /// true; where loads are CPU time outside of communication it is false.
    pub received_in_loads: bool,
    /// `nuco+`: what a message between tasks of one core costs, over one from another core of its node.
    /// Default 0: objects of a runtime call each other. Processes have to take turns there.
    pub same_core: f64,
    /// `nuco+`: no more migrations than that, and a migration costs nothing but the time to copy
    /// it.
    pub max_migrations: Option<usize>,
    /// `nuco+`: no more imbalance than that, as [`Objectives::imbalance`] counts it: 0.05 is a
    /// makespan of 1.05 times the mean load. Less is not worth anything then. Where both bounds
    /// cannot be kept, what exceeds them is the least that was found.
    pub max_imbalance: Option<f64>,
    /// `greedy-comm`: what messages between cores take, which is not [`Self::alpha`]. Default: as Charm++'s.
    pub greedy_comm: CommCost,
    /// `refine`: how far above the mean a core may be loaded, as a share of the mean. Default 0.05.
    pub tolerance: f64,
    /// How long a mapper may take that is a program of others, before it is ended. Default 10 min.
    pub program_limit: Nanos,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            alpha: Alpha::Fixed(PAPER_ALPHA),
            beta: None,
            seed: 1,
            time_limit: Nanos::from_millis(1_000),
            migration_worth_s: None,
            windows: 1.0,
            copied_within_nodes: true,
            received_in_loads: true,
            same_core: 0.0,
            max_migrations: None,
            max_imbalance: None,
            greedy_comm: CommCost::default(),
            tolerance: 0.05,
            program_limit: Nanos::from_millis(600_000),
        }
    }
}

impl Options {
    /// What a byte costs, in seconds: beta, or where that is not given, what a core reads its node's
    /// memory at while all others do: cores over bandwidth, on the average of the nodes. Where
    /// bandwidths are not known, 5e-10, which is 2 GB/s a core: the nodes of the paper's machines
    /// have 1.1 to 1.7, and 20 kB cost as much then as the paper's message.
    #[must_use]
    pub fn byte_s(&self, cluster: &Cluster) -> f64 {
        let sound = |x: f64| if x.is_finite() && x > 0.0 { x } else { 0.0 };
        self.beta.map_or_else(|| byte_s_of(cluster).unwrap_or(UNKNOWN_BYTE_S), sound)
    }
}

impl Options {
    /// What a migration must save of the makespan, in seconds: what was given, or a millisecond over the
    /// number of cores that tasks are on at present. The paper's migrations cost 0.6 ms (lb_test: 9 ms
    /// for 14), 1.3 ms (kNeighbor: 150 ms for 116) and 2.1 ms (stencil4D: 100 ms for 47; section VI-A),
    /// and cores take leave of their tasks side by side, as they compute.
    #[must_use]
    pub fn worth_s(&self, present: &[CoreIndex]) -> f64 {
        if let Some(given) = self.migration_worth_s {
            return if given.is_finite() && given > 0.0 { given } else { 0.0 };
        }
        let mut used = vec![false; present.iter().max().map_or(0, |&most| most + 1)];
        for &c in present {
            used[c] = true;
        }
        MIGRATION_S / used.iter().filter(|u| **u).count().max(1) as f64
    }
}

/// CPU time of a migration.
const MIGRATION_S: f64 = 1e-3;

/// Seconds a byte, where bandwidths are not known.
const UNKNOWN_BYTE_S: f64 = 5e-10;

fn byte_s_of(cluster: &Cluster) -> Option<f64> {
    // Of each core its node's bandwidth, so that a node with n cores counts n times.
    let of_core = |c: &Core| cluster.bandwidth(c.node, c.node).map(|b| 1.0 / b);
    let sum: f64 = cluster.cores().iter().map(of_core).sum::<Option<f64>>()?;
    let with_cores =
        (0..cluster.nodes().len()).filter(|&n| cluster.cores().iter().any(|c| c.node == n)).count();
    Some(sum / with_cores as f64)
}

/// The alpha of the paper's experiments (section V-C), in seconds a message.
pub const PAPER_ALPHA: f64 = 1e-5;

/// What share of all load all messages are worth with [`Alpha::Auto`].
const AUTO_SHARE: f64 = 0.1;

/// The weight of communication beside load, alpha in cost(c, t) (section III-A): seconds a message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Alpha {
    /// So many seconds a message, whatever the window that was observed. Less than 0 and
    /// not-a-number are 0.
    Fixed(f64),
    /// Scaled to the graph: all messages at factor 1 are together worth a tenth of all load,
    /// alpha = 0.1 x load / messages. A task that communicates as much as others do then weighs its
    /// messages as a tenth of its load, however long the window was and however small the messages
    /// are. Where there is no load or no message, the paper's 1e-5.
    Auto,
}

impl Alpha {
    /// In seconds a message, for this graph.
    #[must_use]
    pub fn seconds(self, graph: &TaskGraph) -> f64 {
        match self {
            Self::Fixed(alpha) if alpha.is_finite() && alpha > 0.0 => alpha,
            Self::Fixed(_) => 0.0,
            Self::Auto => {
                let alpha = AUTO_SHARE * graph.load_s() / graph.messages();
                if alpha.is_finite() && alpha > 0.0 { alpha } else { PAPER_ALPHA }
            }
        }
    }
}

/// What a mapper has to do: for guesses of how long it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// It puts tasks in order and places each.
    EveryTask,
    /// It looks at every core for every task.
    EveryCore,
    /// It judges mappings, some before it looks at its time and some after, and meanwhile searches for
    /// as long as it may ([`Options::time_limit`]).
    Search,
}

impl Effort {
    /// Tasks, cores and pairs that are looked at, about and from above, but for what is looked at
    /// within the time limit.
    #[must_use]
    pub fn looks(self, tasks: usize, cores: usize, pairs: usize) -> f64 {
        let [n, m, e] = [tasks, cores, pairs].map(|x| x as f64);
        match self {
            Self::EveryTask => n * (n + m).log2().max(1.0) + e,
            Self::EveryCore => n * m + e,
            Self::Search => 4.0 * (n + m + e),
        }
    }

    /// Whether it searches until its time is up.
    #[must_use]
    pub fn searches(self) -> bool {
        self == Self::Search
    }
}

/// An entry of the registry: all that the rest of evenly has to know of a mapper.
#[derive(Debug, Clone, Copy)]
pub struct MapperInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for the help.
    pub about: &'static str,
    /// What it has to do.
    pub effort: Effort,
    /// Maps: for each task, by its place, the place of its core.
    pub map: fn(&Request<'_>) -> Vec<CoreIndex>,
}

/// All mappers, in the order of the help.
pub const MAPPERS: &[MapperInfo] = &[
    plus::NUCO_PLUS,
    nuco::NUCO,
    nuco::NUCO_AUTO,
    greedy::GREEDY,
    greedy_comm::GREEDY_COMM,
    refine::REFINE,
    treematch::TREEMATCH,
    simple::ROUND_ROBIN,
    simple::COMPACT,
    simple::SCATTER,
    simple::RANDOM,
];

/// The mapper of that name.
#[must_use]
pub fn mapper(name: &str) -> Option<&'static MapperInfo> {
    MAPPERS.iter().find(|m| m.name == name)
}

/// What each core has to compute, in seconds on that core: the loads of its tasks over its speed.
fn core_loads(graph: &TaskGraph, cluster: &Cluster, mapping: &[CoreIndex]) -> Vec<f64> {
    let cores = cluster.cores();
    let mut loads = vec![0.0; cores.len()];
    for (t, &c) in graph.tasks().iter().zip(mapping) {
        loads[c] += t.load_s / cores[c].speed;
    }
    loads
}

/// What every core would have to compute, in seconds, if all had to compute equally long.
fn mean_load_s(graph: &TaskGraph, cluster: &Cluster) -> f64 {
    graph.load_s() / cluster.cores().iter().map(|c| c.speed).sum::<f64>()
}

/// The tasks that may be moved, in the order of their places.
fn movable(graph: &TaskGraph) -> Vec<TaskIndex> {
    (0..graph.len()).filter(|&t| graph.tasks()[t].movable).collect()
}

/// The tasks that may be moved, the heaviest first; of equal ones the first.
fn heaviest_first(graph: &TaskGraph) -> Vec<TaskIndex> {
    let tasks = movable(graph).into_iter();
    let mut keyed: Vec<(Reverse<u64>, TaskIndex)> =
        tasks.map(|t| (Reverse(order_of(graph.tasks()[t].load_s)), t)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, t)| t).collect()
}

/// A number by which amounts, which are not negative, are in order.
fn order_of(amount: f64) -> u64 {
    // That of -0 would be the greatest.
    (amount + 0.0).to_bits()
}

/// Asks whether to stop now and then: not so often that it costs much, nor so seldom that it comes
/// late.
struct Hurry<'a> {
    stop: &'a dyn Fn() -> bool,
    looks: Cell<usize>,
    stopped: Cell<bool>,
}

impl<'a> Hurry<'a> {
    /// Looks between two questions: some tenths of a millisecond.
    const LOOKS: usize = 1 << 14;

    fn new(stop: &'a dyn Fn() -> bool) -> Self {
        // The first look asks.
        Self { stop, looks: Cell::new(Self::LOOKS), stopped: Cell::new(false) }
    }

    /// Whether to stop, after so many looks more at a task, a core or a link. Once said, it stays so.
    fn after(&self, looks: usize) -> bool {
        let sum = self.looks.get() + looks;
        if sum < Self::LOOKS || self.stopped.get() {
            self.looks.set(sum);
        } else {
            self.looks.set(0);
            self.stopped.set((self.stop)());
        }
        self.stopped.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::{Edge, Task};

    #[test]
    fn names_are_unique() {
        for m in MAPPERS {
            assert_eq!(mapper(m.name).map(|found| found.about), Some(m.about));
        }
        assert!(mapper("none of them").is_none());
    }

    #[test]
    fn who_is_in_a_hurry_is_asked_now_and_then() {
        let asked = Cell::new(0);
        let stop = || {
            asked.set(asked.get() + 1);
            asked.get() > 3
        };
        let hurry = Hurry::new(&stop);
        let looks = (0..).take_while(|_| !hurry.after(1)).count();
        assert_eq!((looks, asked.get()), (3 * Hurry::LOOKS, 4));
        assert!(hurry.after(1) && hurry.after(1 << 20));
        assert_eq!(asked.get(), 4);
    }

    #[test]
    fn the_heaviest_is_first_and_of_equal_ones_the_first() {
        let task = |(id, &load_s): (usize, &f64)| Task {
            id: id as u64,
            load_s,
            size_bytes: 0.0,
            core: None,
            movable: id != 1,
        };
        let loads = [0.0, 9.0, 2.0, -0.0, 3.0, 2.0];
        let graph = TaskGraph::new(loads.iter().enumerate().map(task).collect(), &[]).unwrap();
        assert_eq!(heaviest_first(&graph), [4, 2, 5, 0, 3]);
    }

    #[test]
    fn a_byte_costs_what_the_machine_says() {
        let even = Cluster::even(2, 4, 2.0).unwrap();
        let beta = |beta| Options { beta, ..Options::default() };
        assert_eq!(beta(None).byte_s(&even), UNKNOWN_BYTE_S);
        // Four cores share 8 bytes a second, four others 2.
        let cluster = even.with_bandwidths(vec![8.0, 1.0, 1.0, 2.0]).unwrap();
        assert_eq!(beta(None).byte_s(&cluster), (0.5 + 2.0) / 2.0);
        let given = [Some(3.0), Some(0.0), Some(-1.0), Some(f64::NAN)];
        assert_eq!(given.map(|b| beta(b).byte_s(&cluster)), [3.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn alpha_follows_the_load_and_the_messages() {
        let graph = |load_s, messages| {
            let task = |id| Task { id, load_s, size_bytes: 0.0, core: None, movable: true };
            let edge = Edge { from: 1, to: 2, messages, bytes: 0.0 };
            TaskGraph::new(vec![task(1), task(2)], &[edge]).unwrap()
        };
        let auto = |load, messages| Alpha::Auto.seconds(&graph(load, messages));
        // A tenth of 2 x 3 s, over 100 messages.
        assert!((auto(3.0, 100.0) - 0.006).abs() < 1e-15);
        assert_eq!((auto(0.0, 100.0), auto(3.0, 0.0)), (PAPER_ALPHA, PAPER_ALPHA));
        let fixed = |alpha| Alpha::Fixed(alpha).seconds(&graph(1.0, 1.0));
        assert_eq!((fixed(0.5), fixed(-1.0), fixed(f64::NAN)), (0.5, 0.0, 0.0));
    }
}

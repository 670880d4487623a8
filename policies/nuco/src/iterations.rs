//! Programs of communicating tasks, iteration after iteration, on a machine with NUMA nodes and
//! hosts: the experiments of NucoLB (Pilla et al. 2012, sections V and VI) in virtual time.
//!
//! # The model
//! An iteration starts on all cores at once. Each core runs its tasks one after the other, in the
//! order of their places. It ends when the last core has ended and every message has arrived. A
//! task t on a core of node i takes
//!
//! ```text
//! load(t) / speed x [1 + memory_share x (F(i, home(t)) - 1)] x (1 +- jitter)
//!   + sum over messages received, from a node j: (message_s + bytes / rate(j)) x (F(i, j) - 1)
//!   + network_s for each message to or from another host
//! ```
//!
//! - **load(t)** is what the task takes where its memory and all of its partners are on its own
//!   node: it includes reading its messages there, as the loads that Charm++ measures do (section
//!   IV). What a placement adds is what reading takes longer.
//! - **F(i, j)** is the NUCO factor: what node i takes to read from node j, over what it takes to
//!   read its own memory. It is the NUMA factor within a host and the NETWORK factor between hosts.
//!   A message lies in the memory of its sender's node.
//! - **rate(j)** is the bandwidth of the memory of node j over its cores: all read at the same time.
//!   Where a cluster has no bandwidths, bytes cost nothing.
//! - **home(t)** is the node that the memory of t is on. It goes where the task goes (migrating it
//!   is copying it), unless [`Parameters::memory_follows`] is false.
//! - **A message between hosts** is sent when its sender ends. It arrives after `flight_s` and its
//!   bytes over the bandwidth; and as hosts share one network (20xNUMA4 has a bus), an iteration
//!   takes at least as long as all these messages one after the other.
//!
//! After every window of iterations the balancer is called, but not after the last. It sees what
//! each task took in the window, all costs included, and how much each sent to each. A call takes
//!
//! ```text
//! tasks x gather_s + looks x look_s                       (its time limit, if it searches)
//!   + the longest, over hosts, of: sum over tasks that leave a core there: migration_s + size / bandwidth
//! ```
//!
//! where what it looks at is [`Effort::looks`], and meanwhile nothing else happens. The balancer's own time is
//! modelled, never measured, so that a run is the same on every machine.
//!
//! Invariants: equal arguments give equal runs; no clock is read. What cores compute and idle adds
//! up to their number times the time of the iterations.
//!
//! Known gaps: no caches; no contention but that of [rate](Parameters); loads that stay what they are from
//! window to window, unless [`Parameters::drift`] says otherwise; a barrier after every iteration, which LeanMD
//! does not have.

use crate::map::apps::App;
use crate::map::{Effort, MapperInfo, Options, Request, no_stop, objectives};
use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::stats::Random;
use evenly_model::{GraphError, Nanos, NodeIndex, TaskGraph, TaskIndex};

/// What things cost, beside what the tasks and the [`Cluster`] say: the parameters of the model, all
/// of them. The default is what the figures of docs/figures.md are drawn with, and says for each
/// where it is from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Share of a task's load that is access to its own memory. Default 0.2: chosen; it counts only
    /// where memory does not follow.
    pub memory_share: f64,
    /// Whether the memory of a task goes with it. Default true: Charm++ copies a task that migrates.
    pub memory_follows: bool,
    /// Reading a message on the sender's node, apart from its bytes, in seconds. Default 1e-5: what
    /// the paper's alpha says that a message weighs (section V-C).
    pub message_s: f64,
    /// CPU time for a message to another host, at the sender as at the receiver, in seconds. Default
    /// 100 us: with it LeanMD takes the paper's 115 ms an iteration on 20xNUMA4 before balancing
    /// (Table VI).
    pub network_s: f64,
    /// From a sender to a receiver on another host, in seconds. Default 50 us: chosen, as Gigabit
    /// Ethernet has it.
    pub flight_s: f64,
    /// How much the time that a task computes varies from one iteration to the next, either way, as
    /// a share. Default 0.02: chosen; the paper's runs are within 5 % (section V-C).
    pub jitter: f64,
    /// How much what a task computes changes from one window to the next, either way, as a share of what it
    /// was, each task by itself. Below 1. Default none: the paper gives no loads over time. It is what makes a
    /// balancer move tasks in later calls, too.
    pub drift: f64,
    /// What a call of the balancer takes for each task before it decides, in seconds: collecting what
    /// was measured. Default 45 us: 9 ms for the 200 tasks of lb_test on NUMA32 (section VI-A).
    pub gather_s: f64,
    /// What a balancer takes for what it looks at ([`Effort::looks`]), in seconds. Default 60 ns: what
    /// `evenly map` says that its algorithms may take at most.
    pub look_s: f64,
    /// A migration, apart from copying, in seconds. Default 15 us: SCOTCHLB takes 3 ms more than
    /// NUCOLB on lb_test, for 181 migrations more (section VI-A).
    pub migration_s: f64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            memory_share: 0.2,
            memory_follows: true,
            message_s: 10e-6,
            network_s: 100e-6,
            flight_s: 50e-6,
            jitter: 0.02,
            drift: 0.0,
            gather_s: 45e-6,
            look_s: 60e-9,
            migration_s: 15e-6,
        }
    }
}

/// A program in iterations: its tasks, and how often the balancer is called.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// Its tasks; loads and messages are those of one window.
    pub graph: &'a TaskGraph,
    /// Iterations between two calls of the balancer; at least 1.
    pub window: u32,
    /// Iterations in all; at least 1.
    pub iterations: u32,
    /// Where its tasks are at first, by the place of each. As long as there are tasks.
    pub start: &'a [CoreIndex],
}

impl<'a> Program<'a> {
    /// An application of the paper, of which this is the graph, starting here.
    #[must_use]
    pub fn of(app: &App, graph: &'a TaskGraph, start: &'a [CoreIndex]) -> Self {
        Self { graph, window: app.window, iterations: app.iterations, start }
    }
}

/// The balancer that is called between iterations.
#[derive(Clone, Copy)]
pub struct Remapper<'a> {
    /// The mapper that it calls.
    pub map: &'a dyn Fn(&Request<'_>) -> Vec<CoreIndex>,
    /// How long deciding takes, by tasks and cores.
    pub effort: Effort,
    /// The options of the mapper.
    pub options: &'a Options,
}

impl<'a> Remapper<'a> {
    /// A mapper of evenly.
    #[must_use]
    pub fn of(mapper: &'a MapperInfo, options: &'a Options) -> Self {
        Self { map: &mapper.map, effort: mapper.effort, options }
    }
}

impl std::fmt::Debug for Remapper<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Balancer").field("effort", &self.effort).finish_non_exhaustive()
    }
}

/// A call of the balancer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Call {
    /// What it took, in seconds.
    pub took_s: f64,
    /// Tasks that were moved.
    pub migrations: usize,
    /// Their sizes together, in bytes.
    pub migrated_bytes: f64,
}

/// What a run amounted to.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// All of it, in seconds: iterations and balancing.
    pub makespan_s: f64,
    /// What each iteration took, in seconds.
    pub iterations_s: Vec<f64>,
    /// What each core was at work in each iteration, in seconds.
    pub busy_s: Vec<Vec<f64>>,
    /// The calls of the balancer.
    pub calls: Vec<Call>,
    /// Where the tasks are in each window, by the place of each.
    pub mappings: Vec<Vec<CoreIndex>>,
    /// Iterations before the first call; all where there was none.
    pub before: usize,
    cores: usize,
}

impl Run {
    /// What an iteration takes on the average after the first balancing, in seconds; over all where
    /// nothing was balanced. The paper's average iteration time (section VI).
    #[must_use]
    pub fn iteration_s(&self) -> f64 {
        mean(self.iterations_s[self.after()..].iter().copied())
    }

    /// What a call takes on the average, in seconds; 0 where there was none. The paper's load
    /// balancing time.
    #[must_use]
    pub fn balancing_s(&self) -> f64 {
        if self.calls.is_empty() { 0.0 } else { mean(self.calls.iter().map(|c| c.took_s)) }
    }

    /// Tasks moved in a call, on the average; 0 where there was none.
    #[must_use]
    pub fn migrations(&self) -> f64 {
        let moved = self.calls.iter().map(|c| c.migrations as f64);
        if self.calls.is_empty() { 0.0 } else { mean(moved) }
    }

    /// What part of the time the cores idle in the iterations after the first balancing; in all
    /// where nothing was balanced.
    #[must_use]
    pub fn idle(&self) -> f64 {
        let from = self.after();
        let all: f64 = self.iterations_s[from..].iter().sum();
        1.0 - self.busy_s[from..].iter().flatten().sum::<f64>() / (all * self.cores as f64)
    }

    fn after(&self) -> usize {
        if self.calls.is_empty() { 0 } else { self.before }
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let n = values.len();
    values.sum::<f64>() / n as f64
}

/// Runs a program; `seed` is that of jitter and drift.
///
/// # Errors
/// Where the parameters make loads that are none.
///
/// # Panics
/// Where a window or the number of iterations is 0, or a task starts on no core.
pub fn run(
    program: &Program<'_>,
    cluster: &Cluster,
    parameters: &Parameters,
    balancer: Option<Remapper<'_>>,
    seed: u64,
) -> Result<Run, GraphError> {
    let Program { graph, window, iterations, start } = *program;
    assert!(window > 0 && iterations > 0, "there is at least an iteration");
    assert!(start.len() == graph.len(), "a core for each task");
    let mut random = Random::new(seed);
    // Of its own, so that a task drifts in the same way whatever is decided, and jitter stays as it is.
    let (mut drifting, mut drifted) = (Random::new(seed ^ 0xd81f), graph.clone());
    let mut home: Vec<NodeIndex> = start.iter().map(|&c| cluster.cores()[c].node).collect();
    let mut run = Run {
        makespan_s: 0.0,
        iterations_s: Vec::new(),
        busy_s: Vec::new(),
        calls: Vec::new(),
        mappings: Vec::new(),
        before: iterations.min(window) as usize,
        cores: cluster.cores().len(),
    };
    let mut left = iterations;
    let mut mapping = start.to_vec();
    loop {
        run.mappings.push(mapping.clone());
        let program = Program { graph: &drifted, ..*program };
        let placed = Placed::new(&program, cluster, parameters, &mapping, &home);
        let mut took = vec![0.0; graph.len()];
        for _ in 0..left.min(window) {
            let (iteration_s, busy_s) = placed.iteration(parameters, &mut random, &mut took);
            run.iterations_s.push(iteration_s);
            run.busy_s.push(busy_s);
        }
        left -= left.min(window);
        if parameters.drift > 0.0 {
            let mut around = || 1.0 + parameters.drift * (2.0 * drifting.unit() - 1.0);
            let loads: Vec<f64> = drifted.tasks().iter().map(|t| t.load_s * around()).collect();
            drifted = drifted.with_loads(|t| loads[t])?;
        }
        let Some(balancer) = balancer.filter(|_| left > 0) else {
            if left == 0 {
                break;
            }
            continue;
        };
        let seen = graph.clone().with_loads(|t| took[t])?;
        let (to, call) = balance(&seen, cluster, parameters, balancer, &mapping);
        if parameters.memory_follows {
            home = to.iter().map(|&c| cluster.cores()[c].node).collect();
        }
        mapping = to;
        run.calls.push(call);
    }
    run.makespan_s =
        run.iterations_s.iter().sum::<f64>() + run.calls.iter().map(|c| c.took_s).sum::<f64>();
    Ok(run)
}

fn balance(
    graph: &TaskGraph,
    cluster: &Cluster,
    parameters: &Parameters,
    balancer: Remapper<'_>,
    present: &[CoreIndex],
) -> (Vec<CoreIndex>, Call) {
    let Remapper { map, effort, options } = balancer;
    // No search is late in virtual time: it does all the work that its limit stands for.
    let clock = || Nanos::ZERO;
    let to = map(&Request { graph, cluster, present, options, clock: &clock, stop: &no_stop });
    let looks = effort.looks(graph.len(), cluster.cores().len(), graph.pairs());
    let searching_s = if effort.searches() { options.time_limit.as_secs_f64() } else { 0.0 };
    let deciding_s = searching_s.max(looks * parameters.look_s);
    let node = |c: CoreIndex| cluster.cores()[c].node;
    let hosts = cluster.nodes().iter().map(|n| n.host as usize + 1).max().unwrap_or(1);
    let mut moving_s = vec![0.0; hosts];
    for (t, task) in graph.tasks().iter().enumerate().filter(|&(t, _)| to[t] != present[t]) {
        let (from, to) = (node(present[t]), node(to[t]));
        let copying_s = cluster.bandwidth(from, to).map_or(0.0, |b| task.size_bytes / b);
        moving_s[cluster.nodes()[from].host as usize] += parameters.migration_s + copying_s;
    }
    let moving_s = moving_s.into_iter().fold(0.0, f64::max);
    let took_s = graph.len() as f64 * parameters.gather_s + deciding_s + moving_s;
    let o = objectives(graph, cluster, present, &to);
    (to, Call { took_s, migrations: o.migrations, migrated_bytes: o.migrated_bytes })
}

/// A mapping, and what does not change from one iteration to the next while it lasts. All of one
/// iteration.
struct Placed {
    /// The tasks of each core.
    of_core: Vec<Vec<TaskIndex>>,
    /// What each task computes, in seconds, but for jitter.
    computes_s: Vec<f64>,
    /// What its messages take besides.
    messages_s: Vec<f64>,
    /// How long its last message to another host takes to arrive after it has ended; None where it
    /// sends none.
    arrives_s: Vec<Option<f64>>,
    /// All messages between hosts, one after the other.
    network_s: f64,
}

impl Placed {
    fn new(
        program: &Program<'_>,
        cluster: &Cluster,
        parameters: &Parameters,
        mapping: &[CoreIndex],
        home: &[NodeIndex],
    ) -> Self {
        let cores = cluster.cores();
        let window = f64::from(program.window);
        let mut on_node = vec![0.0; cluster.nodes().len()];
        for c in cores {
            on_node[c.node] += 1.0;
        }
        let host = |n: NodeIndex| cluster.nodes()[n].host;
        // Bytes between two nodes, in seconds a byte.
        let byte_s = |from: NodeIndex, to: NodeIndex, shared_by: f64| {
            cluster.bandwidth(from, to).map_or(0.0, |b| shared_by / b)
        };
        let n = program.graph.len();
        let mut placed = Self {
            of_core: vec![Vec::new(); cores.len()],
            computes_s: vec![0.0; n],
            messages_s: vec![0.0; n],
            arrives_s: vec![None; n],
            network_s: 0.0,
        };
        for (t, task) in program.graph.tasks().iter().enumerate() {
            let core = &cores[mapping[t]];
            let here = core.node;
            placed.of_core[mapping[t]].push(t);
            let farther = cluster.factor(here, home[t]) - 1.0;
            placed.computes_s[t] =
                task.load_s / window / core.speed * (1.0 + parameters.memory_share * farther);
            for link in program.graph.links(t) {
                let there = cores[mapping[link.with]].node;
                let farther = cluster.factor(here, there) - 1.0;
                let (received, sent) = (link.received / window, link.sent / window);
                let read_s = received * parameters.message_s
                    + link.received_bytes / window * byte_s(there, there, on_node[there]);
                placed.messages_s[t] += read_s * farther;
                if host(here) == host(there) {
                    continue;
                }
                placed.messages_s[t] += (received + sent) * parameters.network_s;
                if sent > 0.0 {
                    let wire_s = link.sent_bytes / window * byte_s(here, there, 1.0);
                    placed.network_s += wire_s;
                    let arrives_s = parameters.flight_s + wire_s;
                    let last = placed.arrives_s[t].map_or(arrives_s, |l| l.max(arrives_s));
                    placed.arrives_s[t] = Some(last);
                }
            }
        }
        placed
    }

    /// How long an iteration takes and how long each core is at work in it; what each task took is
    /// added to `took`.
    fn iteration(&self, p: &Parameters, random: &mut Random, took: &mut [f64]) -> (f64, Vec<f64>) {
        // Drawn in the order of tasks, so that a task varies in the same way wherever it is.
        let takes = |t: TaskIndex, unit: f64| {
            self.computes_s[t] * (1.0 + p.jitter * (2.0 * unit - 1.0)) + self.messages_s[t]
        };
        let takes: Vec<f64> = (0..took.len()).map(|t| takes(t, random.unit())).collect();
        for (took, takes) in took.iter_mut().zip(&takes) {
            *took += takes;
        }
        let (mut end, mut busy) = (self.network_s, Vec::with_capacity(self.of_core.len()));
        for tasks in &self.of_core {
            let mut at = 0.0;
            for &t in tasks {
                at += takes[t];
                end = self.arrives_s[t].map_or(end, |arrives_s| end.max(at + arrives_s));
            }
            end = end.max(at);
            busy.push(at);
        }
        (end, busy)
    }
}

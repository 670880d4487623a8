//! `nuco`: threads or ranks placed anew every k periods by load, communication and the distance of
//! memory, with the mappers of [`crate::map`].
//!
//! NucoLB (Pilla and others, 2012) is called by a runtime that knows its tasks' loads and messages.
//! Here the tasks are threads. A load is what a thread has computed in the window of the last k periods, as
//! it tells itself ([`TaskView::computed`](evenly_model::TaskView::computed)), or else its progress. Messages
//! are those of a record of an earlier run ([`Knowledge::profile`]), scaled to the load that is seen; without
//! one those that the program counted in the window ([`Snapshot::links`]); else nothing is known of them, and
//! load alone counts.
//!
//! ```text
//! k periods observed -> TaskGraph -> nuco+ (its starts: nuco, greedy, treematch ...) -> better than
//! the present under the model, migrations counted? -> moves -> memory that pays to follow
//! ```
//!
//! **What a plan must save.** Migrations cost at once, and what they save is saved for as long as the
//! program goes on as it is. That is taken to be as long as it has run already, and at least a
//! window: loads and messages are scaled to that horizon before they are held against the costs of
//! migration. A plan is made for the mean loads and messages of two windows, and is taken only if it lowers
//! the model's objective by more than [`LEAST_GAIN`] under those of each of them: what differs from
//! window to window is noise to a plan, and would have threads moved to and fro. So a program that changes
//! its pattern is followed two windows later.
//!
//! **Threads that go to and fro.** What threads compute depends on where they are: ranks that wait for one that
//! shares its CPU with others compute less, and their CPU looks free for these. So a plan can come of the one
//! before and undo it, again and again. Each that puts a thread back to where it was before has to wait for
//! twice as many windows as the last one did, up to [`LONGEST_REST`].
//!
//! **Memory** is where it is read to be ([`Snapshot::memory`]), at the start and at the ends of windows.
//! Of a process of which that cannot be read it is taken to be where it first computed: the kernel
//! gives pages on the node of the thread that touches them first. When all threads of a process are on
//! another node than a part of its memory, reading that part from there costs [`MEMORY_SHARE`] of
//! their load, in proportion to the part, times the factor less 1, over the horizon; copying it costs
//! its bytes over the bandwidth between the nodes. Memory follows where copying is less. Both
//! constants are assumptions, not measured.
//!
//! Invariants:
//! - No plan that the policy makes at the end of a window is worse than staying, under the model.
//! - A thread that may not use all CPUs stays where it is: mappers know no masks.
//! - Where threads are at least as many as CPUs, every CPU that some may use has one (promise P2).
//!
//! What it does not see: which CPU is slow because others use it (that is what `juggle` is for).
//! Threads are not drawn to where their memory is: plans know what memory costs to move, not what it
//! costs to be far from.

use crate::map::plus::objective_s;
use crate::map::{Options, Request, mapper};
use crate::{Mechanism, Policy, PolicyInfo, Spreader};
use evenly_model::{
    Cluster, Core, CoreIndex, CpuId, CpuIndex, CpuView, Edge, FULL_CAPACITY, Knowledge, MemoryMove,
    MemoryView, Nanos, Node, NodeIndex, Pid, Plan, Reason, Snapshot, Task, TaskGraph, TaskView,
    ThreadId, ThreadIndex, ThreadView,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

pub(crate) const NUCO: PolicyInfo = PolicyInfo {
    name: "nuco",
    about: "place threads anew every 50 periods by load, communication and memory (NucoLB)",
    mechanism: Mechanism::Pin,
    at_blocking: false,
    is_reference: false,
    places_load: true,
    gives_weights: false,
    make: || Box::new(Remap::default()),
    decentral: None,
};

/// What a plan must save, of the makespan that the present placement has.
const LEAST_GAIN: f64 = 0.01;
/// The part of a thread's CPU time in which it waits for memory, if that is near. Assumed.
const MEMORY_SHARE: f64 = 0.1;
/// Bytes a second at which memory is copied at most, page by page. Assumed.
const COPIES_AT_MOST: f64 = 2e9;
/// A smaller part of a process's memory than this is not worth a move: some pages always stay.
const REMNANT: f64 = 0.05;
/// Memory that stayed is left for a window, then for two, and so on, but for no more than this; so are threads
/// that would be put back.
const LONGEST_REST: u64 = 64;
/// What a migration must save of the makespan: what NucoLB's took, one after the other.
const MIGRATION_S: f64 = 1e-3;
/// How long the mapper may search, as its module counts: some thousand looks, so that a point stays
/// short.
const SEARCH: Nanos = Nanos::from_millis(2);

/// The policy.
#[derive(Debug, Clone, Default)]
pub struct Remap {
    knowledge: Option<Arc<Knowledge>>,
    spreader: Spreader,
    /// When the first window began.
    began: Option<Nanos>,
    /// When the present window began, and how many points it has had.
    window: Nanos,
    points: u32,
    /// The progress that threads had then.
    progress: HashMap<ThreadId, i64>,
    /// What they had computed then, where they tell.
    computed: HashMap<ThreadId, Nanos>,
    /// Messages that had been sent then, where the program counts them.
    sent: Option<HashMap<(ThreadId, ThreadId), Traffic>>,
    /// The loads of the window before, as parts of a CPU.
    before: HashMap<ThreadId, f64>,
    /// Its messages, a second.
    traffic: Option<HashMap<(ThreadId, ThreadId), Traffic>>,
    /// Threads have been distributed once; from then on only loads count.
    distributed: bool,
    /// Where the memory of each process is.
    homes: BTreeMap<Pid, Home>,
    /// Windows that have ended.
    windows: u64,
    /// The CPU that each thread was on before it was placed anew.
    left: HashMap<ThreadId, CpuId>,
    /// For how many windows nobody was put back after the last time, and in which that is possible again.
    returns: (u64, u64),
    /// Processes whose memory stayed where it was to be moved: how often, and until which window they
    /// are left alone.
    stayed: BTreeMap<Pid, (u32, u64)>,
    /// Threads on each CPU, and where each thread is.
    counts: Vec<u32>,
    at: Vec<CpuIndex>,
}

/// What one thread has sent to another.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Traffic {
    messages: f64,
    bytes: f64,
}

impl Traffic {
    fn scale(self, by: f64) -> Self {
        Self { messages: self.messages * by, bytes: self.bytes * by }
    }

    fn and(self, other: Self) -> Self {
        let Self { messages, bytes } = other;
        Self { messages: self.messages + messages, bytes: self.bytes + bytes }
    }

    /// What has come since then.
    fn since(self, then: Self) -> Self {
        let messages = (self.messages - then.messages).max(0.0);
        Self { messages, bytes: (self.bytes - then.bytes).max(0.0) }
    }
}

/// What each thread of a snapshot has sent to each other.
type Links = BTreeMap<(ThreadIndex, ThreadIndex), Traffic>;

/// Loads as parts of a CPU, by threads, and messages a second, where the program counts them: what a plan
/// is made for.
#[derive(Debug, Clone)]
struct Demand {
    rates: Vec<f64>,
    links: Option<Links>,
}

impl Demand {
    /// Half of each.
    fn mean(&self, other: &Self) -> Self {
        let rates = self.rates.iter().zip(&other.rates).map(|(a, b)| (a + b) / 2.0).collect();
        let links = match (&self.links, &other.links) {
            (Some(a), Some(b)) => {
                let mut sum: Links = Links::new();
                for (&pair, &traffic) in a.iter().chain(b) {
                    let all = sum.entry(pair).or_default();
                    *all = all.and(traffic.scale(0.5));
                }
                Some(sum)
            }
            (one, other) => one.clone().or_else(|| other.clone()),
        };
        Self { rates, links }
    }
}

/// Where the memory of a process is.
#[derive(Debug, Clone, PartialEq)]
enum Home {
    /// So many bytes on each node, and in all, as they were read; what was moved since then is taken
    /// to be where it was to go.
    Read { on: Vec<f64>, all: f64 },
    /// It could not be read: all of it is taken to be on this node.
    Guessed(NodeIndex),
}

impl Home {
    fn read(view: &MemoryView) -> Self {
        Self::Read { on: view.on.clone(), all: view.on.iter().sum::<f64>() + view.elsewhere }
    }

    /// What is on each of so many nodes, and all there is; `bytes` where that was not read.
    fn bytes(&self, nodes: usize, bytes: f64) -> (Vec<f64>, f64) {
        match self {
            Self::Read { on, all } => (on.clone(), *all),
            Self::Guessed(node) => {
                ((0..nodes).map(|i| if i == *node { bytes } else { 0.0 }).collect(), bytes)
            }
        }
    }

    fn moved(&mut self, from: NodeIndex, to: NodeIndex) {
        match self {
            Self::Read { on, .. } => {
                let bytes = on.get_mut(from).map(std::mem::take).unwrap_or_default();
                if let Some(there) = on.get_mut(to) {
                    *there += bytes;
                }
            }
            Self::Guessed(node) => *node = to,
        }
    }
}

impl Policy for Remap {
    fn decide(&mut self, s: &Snapshot, plan: &mut Plan) {
        self.knowledge.clone_from(&s.environment.knowledge);
        s.stayed.iter().for_each(|m| self.memory_stayed(*m));
        self.place(s, plan);
        // At the end of a window.
        plan.asks = !self.distributed || self.points + 1 >= self.every();
    }
}

impl Remap {
    fn place(&mut self, s: &Snapshot, plan: &mut Plan) {
        if !self.distributed && s.point == 0 {
            // Before anything is moved: where nothing can be read, memory is taken to be where
            // threads were that touched it.
            self.see(s);
            if let Some(knowledge) = self.knowledge.clone() {
                self.find_homes(s, &knowledge);
            }
            self.spreader.spread(s, plan);
            self.distributed = true;
            self.open_window(s);
            return;
        }
        if self.began.is_none() {
            self.open_window(s);
        }
        self.points += 1;
        let done = self.points >= self.every();
        self.see(s);
        // Whoever has no CPU needs one now.
        if s.threads.iter().any(|t| t.cpu >= s.cpus.len()) || !done || !self.remap(s, plan) {
            self.house(s, plan);
        }
        if done {
            self.windows += 1;
            self.open_window(s);
        }
    }
}

/// The threads as tasks of a machine.
struct Case {
    graph: TaskGraph,
    cluster: Cluster,
    present: Vec<CoreIndex>,
    options: Options,
}

impl Case {
    fn request(&self) -> Request<'_> {
        Request::timeless(&self.graph, &self.cluster, &self.present, &self.options)
    }
}

impl Remap {
    fn memory_stayed(&mut self, planned: MemoryMove) {
        // What was read is read again, but a guess has to be mended here.
        if let Some(Home::Guessed(node)) = self.homes.get_mut(&planned.process) {
            *node = planned.from;
        }
        let (times, until) = self.stayed.entry(planned.process).or_default();
        let rest = 1u64.checked_shl(*times).map_or(LONGEST_REST, |r| r.min(LONGEST_REST));
        *until = self.windows + rest;
        *times += 1;
    }

    fn every(&self) -> u32 {
        self.knowledge.as_ref().map_or(Knowledge::USUAL_EVERY, |k| k.every).max(1)
    }

    fn open_window(&mut self, s: &Snapshot) {
        self.began.get_or_insert(s.now);
        (self.window, self.points) = (s.now, 0);
        self.progress.clear();
        self.progress.extend(s.threads.iter().map(|t| (t.id, t.progress)));
        let told = |(t, task): (&ThreadView, &TaskView)| Some((t.id, task.computed?));
        self.computed.clear();
        self.computed.extend(s.threads.iter().zip(&s.tasks).filter_map(told));
        self.sent = s.links.as_ref().map(|_| {
            let of = |t: ThreadIndex| s.threads[t].id;
            links_of(s).into_iter().map(|((from, to), all)| ((of(from), of(to)), all)).collect()
        });
        if s.tasks.len() == s.threads.len() {
            let here: BTreeSet<Pid> = s.tasks.iter().map(|t| t.process).collect();
            self.homes.retain(|p, _| here.contains(p));
            self.stayed.retain(|p, _| here.contains(p));
        }
    }

    /// Where threads are.
    fn see(&mut self, s: &Snapshot) {
        self.at.clear();
        self.at.extend(s.threads.iter().map(|t| t.cpu));
        self.counts.clear();
        self.counts.resize(s.cpus.len(), 0);
        for &c in &self.at {
            if let Some(count) = self.counts.get_mut(c) {
                *count += 1;
            }
        }
    }

    /// Gives a CPU to threads that have none, and a thread to CPUs that have none, as far as there are
    /// others to give: the CPU with fewest threads, and a thread from the CPU with most.
    fn house(&mut self, s: &Snapshot, plan: &mut Plan) {
        for (t, thread) in s.threads.iter().enumerate() {
            if thread.cpu < s.cpus.len() || !thread.movable {
                continue;
            }
            let free = (0..s.cpus.len()).filter(|&c| s.allows(t, c));
            if let Some(to) = free.min_by_key(|&c| self.counts[c]) {
                self.put(t, to);
                plan.push(t, to, Reason::Evicted);
            }
        }
        while let Some((t, to)) = self.to_fill(s) {
            self.put(t, to);
            plan.push(t, to, Reason::Spread);
        }
    }

    fn put(&mut self, t: ThreadIndex, to: CpuIndex) {
        if let Some(count) = self.counts.get_mut(self.at[t]) {
            *count -= 1;
        }
        self.counts[to] += 1;
        self.at[t] = to;
    }

    /// A thread that may go to a CPU that has none, from one that has others: that which ran least of
    /// those on the CPU with most. A thread is asked once, so that the plan has it once.
    fn to_fill(&self, s: &Snapshot) -> Option<(ThreadIndex, CpuIndex)> {
        let empty = (0..s.cpus.len()).filter(|&c| self.counts[c] == 0);
        let donor = |to: CpuIndex| {
            let others = |t: &ThreadIndex| {
                let thread = &s.threads[*t];
                let stays = thread.cpu == self.at[*t] && thread.cpu < s.cpus.len();
                thread.movable && stays && self.counts[thread.cpu] > 1 && s.allows(*t, to)
            };
            let least = |&t: &ThreadIndex| {
                let thread = &s.threads[t];
                (std::cmp::Reverse(self.counts[thread.cpu]), thread.ran, t)
            };
            (0..s.threads.len()).filter(others).min_by_key(least)
        };
        empty.filter_map(|to| Some((donor(to)?, to))).next()
    }

    /// Places threads anew where that pays. Returns whether it did.
    fn remap(&mut self, s: &Snapshot, plan: &mut Plan) -> bool {
        let Some(knowledge) = self.knowledge.clone().or_else(|| Self::nothing_known(s)) else {
            return false;
        };
        self.find_homes(s, &knowledge);
        let now = Demand { rates: self.rates(s), links: self.links(s) };
        let known = !self.before.is_empty();
        let before = self.demand_before(s, &now);
        self.before.clear();
        self.before.extend(s.threads.iter().zip(&now.rates).map(|(t, rate)| (t.id, *rate)));
        let of = |t: ThreadIndex| s.threads[t].id;
        let traffic = |links: &Links| -> HashMap<_, _> {
            links.iter().map(|((from, to), all)| ((of(*from), of(*to)), *all)).collect()
        };
        self.traffic = now.links.as_ref().map(traffic);
        if !known {
            return false;
        }
        let mean = now.mean(&before);
        let Some(case) = self.case(s, &knowledge, &mean) else { return false };
        let Some(nuco) = mapper("nuco+") else { return false };
        let mapping = (nuco.map)(&case.request());
        // No CPU is left to nobody, whatever the mapper thinks of it.
        let mut counts = vec![0u32; s.cpus.len()];
        mapping.iter().for_each(|&c| counts[c] += 1);
        let emptied = |c: usize| counts[c] == 0 && self.counts[c] > 0;
        let leaves_one = s.threads.len() >= s.cpus.len() && (0..s.cpus.len()).any(emptied);
        let pays = |case: &Case| {
            let request = case.request();
            let now = objective_s(&request, &case.present);
            objective_s(&request, &mapping) < (1.0 - LEAST_GAIN) * now
        };
        let under = |demand: &Demand| self.case(s, &knowledge, demand).is_some_and(|c| pays(&c));
        let returns = mapping.iter().zip(&s.threads).any(|(&to, t)| {
            to != t.cpu && s.cpus.get(to).is_some_and(|to| self.left.get(&t.id) == Some(&to.id))
        });
        let too_soon = returns && self.windows < self.returns.1;
        if leaves_one || too_soon || !pays(&case) || !under(&now) || !under(&before) {
            self.follow(s, &knowledge, &case, &case.present, plan);
            return false;
        }
        let (rest, until) = self.returns;
        if returns {
            let rest = (2 * rest).clamp(2, LONGEST_REST);
            self.returns = (rest, self.windows + rest);
        } else if self.windows > until + LONGEST_REST {
            self.returns = (0, until);
        }
        let here: HashSet<ThreadId> = s.threads.iter().map(|t| t.id).collect();
        self.left.retain(|id, _| here.contains(id));
        for (t, &to) in mapping.iter().enumerate() {
            let thread = &s.threads[t];
            if to != thread.cpu {
                plan.push(t, to, Reason::Mapped);
                if let Some(from) = s.cpus.get(thread.cpu) {
                    self.left.insert(thread.id, from.id);
                }
            }
        }
        self.follow(s, &knowledge, &case, &mapping, plan);
        true
    }

    /// One node, where nobody has said what the machine is.
    fn nothing_known(s: &Snapshot) -> Option<Arc<Knowledge>> {
        (!s.cpus.is_empty()).then(|| Arc::new(Knowledge::even(vec![(0, s.cpu_set())], 1.0)))
    }

    /// Memory is where it was read to be just now. That of a process of which nothing was ever read is
    /// where it computes when it is new, if that is one node.
    fn find_homes(&mut self, s: &Snapshot, knowledge: &Knowledge) {
        for view in s.memory.iter().filter(|view| view.on.len() == knowledge.nodes.len()) {
            self.homes.insert(view.process, Home::read(view));
        }
        for (process, node) in nodes_of_processes(s, knowledge, &self.at) {
            if let Some(node) = node {
                self.homes.entry(process).or_insert(Home::Guessed(node));
            }
        }
    }

    /// What it was in the window before; of what was not there then, as it is now.
    fn demand_before(&self, s: &Snapshot, now: &Demand) -> Demand {
        let rate =
            |(t, rate): (&ThreadView, &f64)| self.before.get(&t.id).copied().unwrap_or(*rate);
        let rates = s.threads.iter().zip(&now.rates).map(rate).collect();
        let Some(traffic) = &self.traffic else {
            return Demand { rates, links: now.links.clone() };
        };
        let place: HashMap<ThreadId, ThreadIndex> =
            s.threads.iter().enumerate().map(|(i, t)| (t.id, i)).collect();
        let then = traffic
            .iter()
            .filter_map(|((from, to), all)| Some(((*place.get(from)?, *place.get(to)?), *all)));
        let mut links: Links = then.collect();
        for (&pair, &all) in now.links.iter().flatten() {
            let new = [pair.0, pair.1].iter().any(|&t| !self.before.contains_key(&s.threads[t].id));
            if new {
                links.insert(pair, all);
            }
        }
        Demand { rates, links: Some(links) }
    }

    /// Messages a second in the window. None where the program does not count them, or has only just
    /// begun to.
    fn links(&self, s: &Snapshot) -> Option<Links> {
        let (then, _) = (self.sent.as_ref()?, s.links.as_ref()?);
        let window = (s.now - self.window).as_secs_f64();
        if window <= 0.0 {
            return None;
        }
        let of = |t: ThreadIndex| s.threads[t].id;
        let gained = |((from, to), all): ((ThreadIndex, ThreadIndex), Traffic)| {
            // What one has counted that did not tell then may be of long before.
            let told = [from, to].iter().all(|&t| self.computed.contains_key(&of(t)));
            let before =
                told.then(|| then.get(&(of(from), of(to))).copied().unwrap_or_default())?;
            let gained = all.since(before).scale(1.0 / window);
            (gained.messages > 0.0).then_some(((from, to), gained))
        };
        Some(links_of(s).into_iter().filter_map(gained).collect())
    }

    /// What part of a CPU, one of the fastest, each thread used in the window.
    fn rates(&self, s: &Snapshot) -> Vec<f64> {
        let window = (s.now - self.window).0 as f64;
        let every = f64::from(self.points.max(1));
        let fastest = s.cpus.iter().map(|c| c.capacity).max().unwrap_or(FULL_CAPACITY);
        let full = f64::from(fastest) / f64::from(FULL_CAPACITY);
        let told = |i: ThreadIndex| {
            let t = &s.threads[i];
            let computed = s.tasks.get(i)?.computed? - *self.computed.get(&t.id)?;
            // In the unit of progress. It was on this CPU, as threads are moved when windows end.
            Some(computed.0 as f64 * s.cpus.get(t.cpu).map_or(1.0, CpuView::weight))
        };
        let rate = |(i, t): (ThreadIndex, &ThreadView)| {
            let gained = told(i).unwrap_or_else(|| match self.progress.get(&t.id) {
                Some(then) => (t.progress - then).max(0) as f64,
                // It came meanwhile: as it computed last.
                None => (t.ran - t.spun()).0 as f64 * every,
            });
            if window > 0.0 { gained / full / window } else { 0.0 }
        };
        s.threads.iter().enumerate().map(rate).collect()
    }

    /// The threads as tasks with these loads, in seconds up to the horizon; None where they have none.
    fn case(&self, s: &Snapshot, knowledge: &Knowledge, demand: &Demand) -> Option<Case> {
        let horizon = (s.now - self.began.unwrap_or(s.now)).max(s.now - self.window);
        let fastest = s.cpus.iter().map(|c| c.capacity).max()?;
        let bytes = |i: ThreadIndex| s.tasks.get(i).map_or(0.0, |t| t.process_bytes);
        let mut threads_of: HashMap<Pid, f64> = HashMap::new();
        for t in &s.tasks {
            *threads_of.entry(t.process).or_default() += 1.0;
        }
        let everywhere: Vec<bool> = s.masks.iter().map(|m| m.iter().all(|may| *may)).collect();
        let tasks = (0..s.threads.len()).map(|i| {
            let sharing = s.tasks.get(i).and_then(|t| threads_of.get(&t.process)).unwrap_or(&1.0);
            let t = &s.threads[i];
            Task {
                id: i as u64,
                load_s: demand.rates[i] * horizon.as_secs_f64(),
                size_bytes: bytes(i) / sharing,
                core: None,
                movable: t.movable && everywhere.get(t.mask).copied().unwrap_or(false),
            }
        });
        let tasks: Vec<Task> = tasks.collect();
        let all_load_s: f64 = tasks.iter().map(|t| t.load_s).sum();
        if all_load_s <= 0.0 {
            return None;
        }
        let edges = match (&knowledge.profile, &demand.links) {
            (Some(profile), _) => edges(s, profile, all_load_s),
            (None, Some(links)) => edges_of(links, horizon),
            (None, None) => Vec::new(),
        };
        let graph = TaskGraph::new(tasks, &edges).ok()?;
        let cores = s.cpus.iter().map(|c| Core {
            id: c.id.0,
            cpu: c.id.0,
            node: knowledge.node_of(c.id),
            speed: f64::from(c.capacity) / f64::from(fastest),
            caches: knowledge.caches_of(c.id),
        });
        let caches = knowledge.caches.iter().map(|(level, _)| level.clone()).collect();
        let nodes = knowledge.nodes.iter().map(|(id, _)| Node { id: *id, host: 0 }).collect();
        let mut cluster =
            Cluster::new(cores.collect(), nodes, caches, knowledge.factors.clone()).ok()?;
        if let Some(bandwidths) = &knowledge.bandwidths {
            cluster = cluster.with_bandwidths(bandwidths.clone()).ok()?;
        }
        let options = Options {
            time_limit: SEARCH,
            migration_worth_s: Some(MIGRATION_S),
            copied_within_nodes: false,
            // CPU time outside of MPI, or less what was spun.
            received_in_loads: false,
            ..Options::default()
        };
        Some(Case { graph, cluster, present: self.at.clone(), options })
    }

    /// Memory that pays to be moved to where its threads are.
    fn follow(
        &mut self,
        s: &Snapshot,
        knowledge: &Knowledge,
        case: &Case,
        mapping: &[CoreIndex],
        plan: &mut Plan,
    ) {
        let n = knowledge.nodes.len();
        for (process, node) in nodes_of_processes(s, knowledge, mapping) {
            let (Some(to), Some(home)) = (node, self.homes.get_mut(&process)) else { continue };
            if self.stayed.get(&process).is_some_and(|(_, until)| self.windows < *until) {
                continue;
            }
            let of_it = || (0..s.tasks.len()).filter(|&i| s.tasks[i].process == process);
            let size: f64 = of_it().map(|i| case.graph.tasks()[i].size_bytes).sum();
            let load_s: f64 = of_it().map(|i| case.graph.tasks()[i].load_s).sum();
            let (on, all) = home.bytes(n, size);
            let away = |(from, bytes): &(NodeIndex, f64)| {
                *from != to && *bytes > 0.0 && *bytes >= REMNANT * all
            };
            for (from, bytes) in on.into_iter().enumerate().filter(away) {
                let farther = case.cluster.factor(to, from) - 1.0;
                let bandwidth =
                    knowledge.bandwidths.as_ref().map_or(f64::INFINITY, |b| b[from * n + to]);
                let copying_s = bytes / bandwidth.min(COPIES_AT_MOST);
                if MEMORY_SHARE * load_s * (bytes / all) * farther > copying_s {
                    plan.memory.push(MemoryMove { process, from, to });
                    home.moved(from, to);
                }
            }
        }
    }
}

/// Each process with the node that all its threads are on; None where they are on several.
fn nodes_of_processes(
    s: &Snapshot,
    knowledge: &Knowledge,
    at: &[CpuIndex],
) -> BTreeMap<Pid, Option<NodeIndex>> {
    let mut found: BTreeMap<Pid, Option<NodeIndex>> = BTreeMap::new();
    for (task, &c) in s.tasks.iter().zip(at) {
        let node = s.cpus.get(c).map(|c| knowledge.node_of(c.id));
        let all = found.entry(task.process).or_insert(node);
        if *all != node {
            *all = None;
        }
    }
    found
}

/// What was sent so far between the threads of a snapshot.
fn links_of(s: &Snapshot) -> Links {
    let mut links = Links::new();
    let here = |t: ThreadIndex| t < s.threads.len();
    for l in s.links.iter().flatten().filter(|l| here(l.from) && here(l.to)) {
        let all = links.entry((l.from, l.to)).or_default();
        *all = all.and(Traffic { messages: l.messages, bytes: l.bytes });
    }
    links
}

/// Messages between threads, as they were counted, up to the horizon.
fn edges_of(links: &Links, horizon: Nanos) -> Vec<Edge> {
    let edge = |(&(from, to), all): (&(ThreadIndex, ThreadIndex), &Traffic)| {
        let Traffic { messages, bytes } = all.scale(horizon.as_secs_f64());
        Edge { from: from as u64, to: to as u64, messages, bytes }
    };
    links.iter().map(edge).collect()
}

/// Messages between threads, as the profile has them for as much load as there is here. A rank's are
/// those of its first thread.
fn edges(s: &Snapshot, profile: &TaskGraph, all_load_s: f64) -> Vec<Edge> {
    let mut of_number: HashMap<u64, usize> = HashMap::new();
    for (i, t) in s.tasks.iter().enumerate() {
        if let Some(number) = t.number {
            let first = of_number.entry(number).or_insert(i);
            let created = |i: usize| (s.threads[i].id.start, s.threads[i].id.tid.0);
            if created(i) < created(*first) {
                *first = i;
            }
        }
    }
    let scale = if profile.load_s() > 0.0 { all_load_s / profile.load_s() } else { 1.0 };
    let mut edges = Vec::new();
    for (t, task) in profile.tasks().iter().enumerate() {
        let Some(&to) = of_number.get(&task.id) else { continue };
        for link in profile.links(t).iter().filter(|l| l.received > 0.0) {
            let with = profile.tasks()[link.with].id;
            if let Some(&from) = of_number.get(&with) {
                edges.push(Edge {
                    from: from as u64,
                    to: to as u64,
                    messages: link.received * scale,
                    bytes: link.received_bytes * scale,
                });
            }
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::Environment;
    use evenly_model::{CacheLevel, CpuSet, LinkView, Tid};

    const PERIOD: Nanos = Nanos::from_millis(20);

    /// Threads of processes of their own on four CPUs in two nodes: (CPU, part of its time that each
    /// ran).
    #[derive(Clone)]
    struct Machine {
        at: Vec<CpuIndex>,
        shares: Vec<f64>,
        bytes: f64,
        /// Where the memory of processes is, if that can be read.
        on: BTreeMap<i32, Vec<f64>>,
        masks: Vec<Vec<bool>>,
        point: u64,
        /// What threads tell: the part of the time for which each computes, and messages a second.
        computes: Option<Vec<f64>>,
        talk: Vec<(ThreadIndex, ThreadIndex, f64)>,
        sent: BTreeMap<(ThreadIndex, ThreadIndex), f64>,
    }

    impl Machine {
        fn new(threads: &[(CpuIndex, f64)]) -> Self {
            Self {
                at: threads.iter().map(|t| t.0).collect(),
                shares: threads.iter().map(|t| t.1).collect(),
                bytes: 0.0,
                on: BTreeMap::new(),
                masks: vec![vec![true; 4]],
                point: 0,
                computes: None,
                talk: Vec::new(),
                sent: BTreeMap::new(),
            }
        }

        fn snapshot(&self) -> Snapshot {
            let threads = self.at.iter().zip(&self.shares).enumerate();
            let thread = |(i, (&cpu, &share)): (usize, (&CpuIndex, &f64))| ThreadView {
                id: ThreadId { tid: Tid(i as i32), start: 0 },
                cpu,
                progress: (share * (PERIOD.0 * self.point) as f64) as i64,
                ran: PERIOD.scale(share),
                waited: Nanos::ZERO,
                blocked: PERIOD.scale(1.0 - share),
                spinning: Nanos::ZERO,
                turns: None,
                movable: true,
                mask: i.min(self.masks.len() - 1),
            };
            let threads: Vec<ThreadView> = threads.map(thread).collect();
            let cpu = |c: u32| CpuView {
                id: CpuId(c),
                capacity: FULL_CAPACITY,
                threads: threads.iter().filter(|t| t.cpu == c as usize).count() as u32,
                speed: None,
                paper_speed: None,
            };
            let task = |i: usize| TaskView {
                process: Pid(i as i32),
                number: Some(i as u64),
                process_bytes: self.bytes,
                computed: None,
            };
            Snapshot {
                point: self.point,
                now: Nanos(PERIOD.0 * self.point),
                elapsed: PERIOD,
                cpus: (0..4).map(cpu).collect(),
                masks: self.masks.clone(),
                tasks: (0..threads.len()).map(task).collect(),
                threads,
                ..Snapshot::default()
            }
        }

        /// What threads tell of themselves, if they do.
        fn tell(&self, s: &mut Snapshot) {
            let Some(computes) = &self.computes else { return };
            for (task, share) in s.tasks.iter_mut().zip(computes) {
                task.computed = Some(s.now.scale(*share));
            }
            let link = |(&(from, to), &messages): (&(usize, usize), &f64)| LinkView {
                from,
                to,
                messages,
                bytes: 8.0 * messages,
            };
            s.links = Some(self.sent.iter().map(link).collect());
        }

        /// So many points; the plans that were not empty.
        fn run(&mut self, nuco: &mut Nuco, points: u64) -> Vec<Plan> {
            let mut plans = Vec::new();
            for _ in 0..points {
                let mut plan = Plan::default();
                let mut snapshot = self.snapshot();
                snapshot.environment = nuco.environment.clone();
                if nuco.asked {
                    let view = |(&p, on): (&i32, &Vec<f64>)| MemoryView {
                        process: Pid(p),
                        on: on.clone(),
                        elsewhere: 0.0,
                    };
                    snapshot.memory = self.on.iter().map(view).collect();
                    self.tell(&mut snapshot);
                }
                for &(from, to, rate) in &self.talk {
                    *self.sent.entry((from, to)).or_default() += rate * PERIOD.as_secs_f64();
                }
                snapshot.stayed = std::mem::take(&mut nuco.stayed);
                nuco.policy.decide(&snapshot, &mut plan);
                nuco.asked = plan.asks;
                plan.moves.iter().for_each(|m| self.at[m.thread] = m.to);
                self.point += 1;
                if !plan.moves.is_empty() || !plan.memory.is_empty() {
                    plans.push(plan);
                }
            }
            plans
        }
    }

    /// The policy, with what it is to know and what it wants to be told.
    struct Nuco {
        policy: Remap,
        environment: Arc<Environment>,
        asked: bool,
        stayed: Vec<MemoryMove>,
    }

    impl Nuco {
        fn that_knows(knowledge: Knowledge) -> Self {
            let knowledge = Some(Arc::new(knowledge));
            let environment = Arc::new(Environment { knowledge, ..Environment::default() });
            Self { policy: Remap::default(), environment, asked: true, stayed: Vec::new() }
        }
    }

    fn policy(every: u32, factor: f64, profile: Option<TaskGraph>) -> Nuco {
        let cpus = |list: &str| -> CpuSet { list.parse().unwrap() };
        let nodes = vec![(0, cpus("0-1")), (1, cpus("2-3"))];
        Nuco::that_knows(Knowledge { every, profile, ..Knowledge::even(nodes, factor) })
    }

    fn heaviest(m: &Machine) -> f64 {
        let load = |c| -> f64 {
            m.at.iter().zip(&m.shares).filter(|(at, _)| **at == c).map(|(_, s)| s).sum()
        };
        (0..4).map(load).fold(0.0, f64::max)
    }

    #[test]
    fn loads_are_levelled_at_the_end_of_a_window_and_then_left() {
        // Two heavy ones on CPU 0, light ones elsewhere.
        let mut m = Machine::new(&[
            (0, 0.45),
            (0, 0.45),
            (1, 0.1),
            (1, 0.1),
            (2, 0.1),
            (2, 0.1),
            (3, 0.1),
            (3, 0.1),
        ]);
        let mut nuco = policy(10, 1.5, None);
        assert!(m.run(&mut nuco, 20).is_empty(), "within the first two windows");
        let plans = m.run(&mut nuco, 1);
        assert_eq!(plans.len(), 1);
        assert!(plans[0].moves.iter().all(|m| m.reason == Reason::Mapped));
        assert!(heaviest(&m) <= 0.5, "{:?}", m.at);
        assert!(m.run(&mut nuco, 100).is_empty(), "nothing more to gain");
    }

    /// Of two windows in which different threads were the busy ones, neither decides.
    #[test]
    fn what_changes_from_window_to_window_is_not_followed() {
        let mut m = Machine::new(&[(0, 0.4), (0, 0.4), (1, 0.1), (2, 0.1), (3, 0.1), (3, 0.1)]);
        let mut nuco = policy(10, 1.5, None);
        // Progress counts from the beginning, so each window's is added to it.
        let mut progress = [0i64; 6];
        let mut moved = 0;
        for point in 0..400u64 {
            let mut s = m.snapshot();
            let busy = if point.saturating_sub(1) / 10 % 2 == 0 { [0, 1] } else { [4, 5] };
            for (i, t) in s.threads.iter_mut().enumerate() {
                progress[i] += if busy.contains(&i) { 8_000_000 } else { 1_000_000 };
                t.progress = progress[i];
            }
            s.environment = nuco.environment.clone();
            let mut plan = Plan::default();
            nuco.policy.decide(&s, &mut plan);
            plan.moves.iter().for_each(|x| m.at[x.thread] = x.to);
            moved += plan.moves.len();
            m.point += 1;
        }
        // At most once, when it is best for both.
        assert!(moved <= 4, "{moved}: {:?}", m.at);
    }

    /// A light one beside either of two heavy ones: the other is alone, and waits for its partner among those that
    /// share a CPU, so that its CPU looks free. The light one goes to and fro ever more rarely.
    #[test]
    fn a_plan_that_comes_of_the_one_before_is_put_off() {
        let mut m = Machine::new(&[(0, 0.5), (1, 0.3), (0, 0.15), (2, 0.5), (3, 0.5)]);
        let mut nuco = policy(10, 1.5, None);
        let mut progress = [0i64; 5];
        let mut flights: Vec<u64> = Vec::new();
        for point in 0..4_000 {
            let mut s = m.snapshot();
            let with = m.at[2];
            let rates = if with == 0 { [0.5, 0.3] } else { [0.3, 0.5] };
            for (i, t) in s.threads.iter_mut().enumerate() {
                let rate = rates.get(i).copied().unwrap_or(m.shares[i]);
                progress[i] += PERIOD.scale(rate).0 as i64;
                t.progress = progress[i];
            }
            s.environment = nuco.environment.clone();
            let mut plan = Plan::default();
            nuco.policy.decide(&s, &mut plan);
            plan.moves.iter().for_each(|x| m.at[x.thread] = x.to);
            if !plan.moves.is_empty() {
                assert_eq!(m.at, [0, 1, 1 - with, 2, 3]);
                flights.push(point / 10);
            }
            m.point += 1;
        }
        let between: Vec<u64> = flights.windows(2).map(|f| f[1] - f[0]).collect();
        assert_eq!(between[..6], [2, 2, 4, 8, 16, 32], "{flights:?}");
        assert!(between[6..].iter().all(|n| *n == LONGEST_REST), "{flights:?}");
    }

    #[test]
    fn nothing_is_moved_for_less_than_it_costs() {
        // 2 ms of work in a window of 200 ms, which no move of 1 ms can pay for.
        let mut m = Machine::new(&[(0, 0.006), (0, 0.004), (1, 0.0), (2, 0.0), (3, 0.0)]);
        assert!(m.run(&mut policy(10, 1.5, None), 12).is_empty());
        // A program that goes on for ever.
        let plans = m.run(&mut policy(10, 1.5, None), 5_000);
        assert!(!plans.is_empty() && heaviest(&m) < 0.0061, "{:?}", m.at);
    }

    #[test]
    fn threads_with_masks_stay_and_no_cpu_is_left_to_nobody() {
        let mut m = Machine::new(&[(0, 0.4), (0, 0.4), (1, 0.0), (2, 0.0), (3, 0.0)]);
        m.masks = vec![vec![true, false, false, false]; 2];
        m.masks.push(vec![true; 4]);
        let mut nuco = policy(5, 1.5, None);
        m.run(&mut nuco, 50);
        assert_eq!(m.at[..2], [0, 0]);
        m.masks = vec![vec![true; 4]];
        m.run(&mut nuco, 50);
        let used: std::collections::BTreeSet<usize> = m.at.iter().copied().collect();
        assert_eq!(used.len(), 4, "{:?}", m.at);
    }

    #[test]
    fn a_thread_whose_cpu_has_gone_gets_another_at_once() {
        let mut m = Machine::new(&[(0, 0.4), (1, 0.4), (2, 0.4), (3, 0.4), (3, 0.1)]);
        let mut nuco = policy(50, 1.5, None);
        m.run(&mut nuco, 3);
        m.at[4] = usize::MAX;
        let plans = m.run(&mut nuco, 1);
        assert_eq!(plans[0].moves.len(), 1);
        assert_eq!((plans[0].moves[0].thread, plans[0].moves[0].reason), (4, Reason::Evicted));
        // And a CPU that has nobody gets a thread.
        m.at = vec![0, 0, 2, 3, 3];
        let plans = m.run(&mut nuco, 1);
        assert_eq!((plans[0].moves.len(), plans[0].moves[0].to), (1, 1));
    }

    /// Of ranks that talk, as a profile says, partners come to one node.
    #[test]
    fn partners_are_brought_to_one_node() {
        let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true };
        let edge = |from, to| Edge { from, to, messages: 50_000.0, bytes: 0.0 };
        let edges = [edge(0, 2), edge(2, 0), edge(1, 3), edge(3, 1)];
        let profile = TaskGraph::new((0..4).map(task).collect(), &edges).unwrap();
        // 0 and 1 on node 0; 2 and 3, to whom they talk, on node 1.
        let mut m = Machine::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
        m.run(&mut policy(10, 3.0, Some(profile)), 200);
        let node = |t: usize| m.at[t] / 2;
        assert!(node(0) == node(2) && node(1) == node(3), "{:?}", m.at);
        // Without it nothing is known.
        let mut m = Machine::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
        assert!(m.run(&mut policy(10, 3.0, None), 200).is_empty());
    }

    /// On one node partners come to CPUs that share a cache; where nothing is known of caches all are alike.
    #[test]
    fn partners_are_brought_to_one_cache() {
        let cpus = |list: &str| -> CpuSet { list.parse().unwrap() };
        let both = |i, j| [(i, j, 20_000.0), (j, i, 20_000.0)];
        let start = Machine {
            computes: Some(vec![0.5; 4]),
            talk: [both(0, 2), both(1, 3)].concat(),
            ..Machine::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)])
        };
        let level = CacheLevel { name: String::from("L2"), factor: 0.15 };
        let caches = vec![(level, vec![cpus("0-1"), cpus("2-3")])];
        for caches in [caches, Vec::new()] {
            let known = !caches.is_empty();
            let node = vec![(0, cpus("0-3"))];
            let knowledge = Knowledge { every: 10, caches, ..Knowledge::even(node, 1.0) };
            let mut nuco = Nuco::that_knows(knowledge);
            let mut m = start.clone();
            let moved = !m.run(&mut nuco, 200).is_empty();
            let together = |i: usize, j: usize| m.at[i] / 2 == m.at[j] / 2;
            assert_eq!(moved, known, "{:?}", m.at);
            assert!(!known || (together(0, 2) && together(1, 3)), "{:?}", m.at);
        }
    }

    /// Ranks that say to whom they talk, and then talk to others: partners come to one node, both times. What a
    /// profile says of them counts more than what they say.
    #[test]
    fn partners_are_found_while_the_program_runs() {
        let pairs = |a: [usize; 2], b: [usize; 2]| {
            let both = |[i, j]: [usize; 2]| [(i, j, 20_000.0), (j, i, 20_000.0)];
            [both(a), both(b)].concat()
        };
        let start = Machine {
            computes: Some(vec![0.5; 4]),
            talk: pairs([0, 2], [1, 3]),
            ..Machine::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)])
        };
        let (mut m, mut nuco) = (start.clone(), policy(10, 3.0, None));
        let together = |m: &Machine, i: usize, j: usize| m.at[i] / 2 == m.at[j] / 2;
        assert!(m.run(&mut nuco, 20).is_empty(), "within the first two windows");
        m.run(&mut nuco, 100);
        assert!(together(&m, 0, 2) && together(&m, 1, 3), "{:?}", m.at);
        assert!(m.run(&mut nuco, 100).is_empty(), "nothing more to gain");
        m.talk = pairs([0, 1], [2, 3]);
        m.run(&mut nuco, 100);
        assert!(together(&m, 0, 1) && together(&m, 2, 3), "{:?}", m.at);
        let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true };
        let edge = |from, to| Edge { from, to, messages: 50_000.0, bytes: 0.0 };
        let edges = [edge(0, 3), edge(3, 0), edge(1, 2), edge(2, 1)];
        let profile = TaskGraph::new((0..4).map(task).collect(), &edges).unwrap();
        let mut m = start;
        m.run(&mut policy(10, 3.0, Some(profile)), 200);
        assert!(together(&m, 0, 3) && together(&m, 1, 2), "{:?}", m.at);
    }

    /// A pattern that lasts for no longer than a window moves nobody.
    #[test]
    fn talk_that_changes_from_window_to_window_is_not_followed() {
        let mut m = Machine {
            computes: Some(vec![0.5; 4]),
            ..Machine::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)])
        };
        let mut nuco = policy(10, 3.0, None);
        let mut moves = 0;
        for window in 0..40 {
            let partner = |i: usize| i ^ if window % 2 == 0 { 1 } else { 2 };
            m.talk = (0..4).map(|i| (i, partner(i), 20_000.0)).collect();
            moves += m.run(&mut nuco, 10).iter().map(|p| p.moves.len()).sum::<usize>();
        }
        assert_eq!(moves, 0, "{:?}", m.at);
    }

    /// All are equally busy, as those that wait spin; who computes is what they say.
    #[test]
    fn those_that_spin_while_they_wait_are_light() {
        let threads =
            [(0, 0.5), (0, 0.5), (1, 0.5), (1, 0.5), (2, 0.5), (2, 0.5), (3, 0.5), (3, 0.5)];
        let computes = vec![0.45, 0.45, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1];
        let mut m = Machine { computes: Some(computes.clone()), ..Machine::new(&threads) };
        m.run(&mut policy(10, 1.5, None), 100);
        m.shares = computes;
        assert!(heaviest(&m) <= 0.5, "{:?}", m.at);
        let mut m = Machine::new(&threads);
        assert!(m.run(&mut policy(10, 1.5, None), 100).is_empty(), "nobody knows better");
    }

    /// A rank that was not asked before has counted from its beginning: that is nothing of the window.
    #[test]
    fn what_was_sent_long_ago_is_not_of_the_window() {
        let m = Machine {
            computes: Some(vec![0.5; 4]),
            sent: BTreeMap::from([((0, 2), 1e9), ((1, 3), 1e3)]),
            ..Machine::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)])
        };
        let mut nuco = policy(10, 3.0, None);
        let told = |point: u64, silent: Option<usize>| {
            let mut s = Machine { point, ..m.clone() }.snapshot();
            m.tell(&mut s);
            if let Some(i) = silent {
                s.tasks[i].computed = None;
                s.links.as_mut().unwrap().retain(|l| l.from != i && l.to != i);
            }
            s
        };
        nuco.policy.open_window(&told(1, Some(0)));
        assert_eq!(nuco.policy.links(&told(11, None)), Some(Links::new()));
        nuco.policy.open_window(&told(1, None));
        assert_eq!(nuco.policy.links(&told(11, None)), Some(Links::new()));
        let mut s = told(11, None);
        s.links.as_mut().unwrap()[1].messages += 20.0;
        let found = nuco.policy.links(&s).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), [&(1, 3)]);
        assert!((found[&(1, 3)].messages - 100.0).abs() < 1e-9);
        s.links = None;
        assert_eq!(nuco.policy.links(&s), None);
    }

    /// Where bandwidths are known, too: a thread is not copied to go to another CPU of its node, however
    /// much memory it has, and bytes count by the bandwidths of the machine.
    #[test]
    fn known_bandwidths_do_not_keep_threads_from_their_own_node() {
        let mut m = Machine::new(&[(0, 0.45), (0, 0.45), (1, 0.05), (2, 0.4), (3, 0.4)]);
        m.bytes = 1e12;
        let known = policy(10, 1.5, None).environment.knowledge.clone().unwrap();
        let bandwidths = Some(vec![2e10, 1e10, 1e10, 2e10]);
        let known = Knowledge { bandwidths, ..(*known).clone() };
        let mut nuco = Nuco::that_knows(known.clone());
        let request = {
            let s = m.snapshot();
            nuco.policy.see(&s);
            nuco.policy.window = Nanos::ZERO;
            let s = Snapshot { now: Nanos::from_millis(1_000), ..s };
            nuco.policy.case(&s, &known, &Demand { rates: m.shares.clone(), links: None }).unwrap()
        };
        // Two cores at 20 GB/s.
        assert_eq!(request.options.byte_s(&request.cluster), 1e-10);
        assert_eq!(request.cluster.byte_cost(0, 2), 2.0);
        let plans = m.run(&mut nuco, 60);
        assert!(!plans.is_empty() && heaviest(&m) <= 0.5, "{:?}", m.at);
        assert!(m.at[..3].iter().all(|c| *c < 2) && m.at[3..].iter().all(|c| *c >= 2));
    }

    #[test]
    fn memory_follows_where_that_pays() {
        let start = [(0, 0.45), (0, 0.45), (1, 0.4), (2, 0.1), (2, 0.05), (3, 0.1)];
        let moved = |bytes: f64, factor: f64| {
            let mut m = Machine::new(&start);
            m.bytes = bytes;
            let plans = m.run(&mut policy(10, factor, None), 2_000);
            let memory: Vec<MemoryMove> = plans.iter().flat_map(|p| p.memory.clone()).collect();
            for (t, at) in m.at.iter().enumerate() {
                let last = memory.iter().rfind(|x| x.process.0 == t as i32);
                assert!(last.is_none_or(|x| x.to == at / 2), "{t} on {at}: {memory:?}");
            }
            assert!(heaviest(&m) < 0.6, "{:?}", m.at);
            memory.len()
        };
        assert!(moved(1e6, 2.0) > 0);
        // Nothing to move; nothing to gain; not in any time.
        assert_eq!((moved(0.0, 2.0), moved(1e6, 1.0), moved(1e15, 2.0)), (0, 0, 0));
    }

    /// The kernel has moved threads before they are seen: nobody is to be moved, but memory is.
    #[test]
    fn memory_that_was_left_behind_follows() {
        let mut m = Machine::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
        m.bytes = 1e7;
        // Of 0 all is where it computes, of 1 none, of 2 half, of 3 nearly all.
        m.on = BTreeMap::from([
            (0, vec![1e7, 0.0]),
            (1, vec![0.0, 1e7]),
            (2, vec![5e6, 5e6]),
            (3, vec![1e5, 9.9e6]),
        ]);
        let moves = |m: &mut Machine, nuco: &mut Nuco| -> Vec<MemoryMove> {
            let plans = m.run(nuco, 60);
            assert!(plans.iter().all(|p| p.moves.is_empty()), "{plans:?}");
            plans.into_iter().flat_map(|p| p.memory).collect()
        };
        let followed = |process, from| MemoryMove { process: Pid(process), from, to: 1 - from };
        let mut nuco = policy(10, 2.0, None);
        // What was read was true at first, and is read again and again: as if nothing had been moved.
        let first = moves(&mut m.clone(), &mut nuco);
        assert_eq!(first[..2], [followed(1, 1), followed(2, 0)]);
        m.on = BTreeMap::from([(1, vec![1e7, 0.0]), (2, vec![0.0, 1e7])]);
        assert_eq!(moves(&mut m, &mut nuco), []);
        // Where reading from afar costs nothing it stays; and where nothing is read it is not known.
        m.on = BTreeMap::from([(1, vec![0.0, 1e7])]);
        assert_eq!(moves(&mut m.clone(), &mut policy(10, 1.0, None)), []);
        m.on = BTreeMap::new();
        assert_eq!(moves(&mut m, &mut policy(10, 2.0, None)), []);
    }

    /// Of a process with 1 MB beside the one node and 50 GB elsewhere, only the part that is far counts.
    #[test]
    fn a_part_of_memory_counts_for_a_part_of_the_load() {
        let run = |bytes: f64, elsewhere: f64| {
            let m = Machine::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
            let mut nuco = policy(10, 2.0, None);
            let mut plans = Vec::new();
            for point in 0..=40 {
                let mut s = Machine { point, ..m.clone() }.snapshot();
                s.memory = vec![MemoryView { process: Pid(0), on: vec![0.0, bytes], elsewhere }];
                s.environment = nuco.environment.clone();
                let mut plan = Plan::default();
                nuco.policy.decide(&s, &mut plan);
                plans.extend(plan.memory);
            }
            plans.len()
        };
        // 0.5 of 0.8 s, a tenth of it waiting: 40 ms, in which 80 MB are copied.
        assert!(run(7e7, 0.0) > 0);
        assert_eq!(run(1e9, 0.0), 0);
        // Half the gain, for half the bytes.
        assert!(run(3.5e7, 3.5e7) > 0);
        // A remnant.
        assert_eq!(run(3e6, 6.7e7), 0);
    }

    #[test]
    fn memory_that_stays_is_tried_ever_more_rarely() {
        let mut m = Machine::new(&[(0, 0.5), (1, 0.5), (2, 0.5), (3, 0.5)]);
        m.on = BTreeMap::from([(0, vec![0.0, 1e6])]);
        let mut nuco = policy(10, 2.0, None);
        // Windows in which it was tried: between two of them are those in which it was left.
        let mut tried = Vec::new();
        for window in 0..200 {
            for planned in m.run(&mut nuco, 10).into_iter().flat_map(|p| p.memory) {
                nuco.stayed.push(planned);
                tried.push(window);
            }
        }
        let apart: Vec<i32> = tried.windows(2).map(|w| w[1] - w[0]).collect();
        assert!(apart.starts_with(&[2, 3, 5, 9, 17, 33, 65]), "{tried:?}");
        assert!(apart.iter().skip(7).all(|a| *a == 65), "{tried:?}");
    }

    #[test]
    fn memory_that_stayed_is_tried_again() {
        let mut m = Machine::new(&[(0, 0.45), (0, 0.45), (1, 0.4), (2, 0.1), (2, 0.05), (3, 0.1)]);
        m.bytes = 1e6;
        let mut nuco = policy(10, 2.0, None);
        let first = m.run(&mut nuco, 500).into_iter().flat_map(|p| p.memory).next().unwrap();
        nuco.stayed.push(first);
        let again = m.run(&mut nuco, 500).into_iter().flat_map(|p| p.memory).next();
        assert_eq!(again, Some(first));
    }
}

//! `nuco`: threads or ranks placed anew every k periods by load, communication and the distance of
//! memory, with the mappers of [`crate::map`].
//!
//! NucoLB (Pilla and others, 2012) is called by a runtime that knows its tasks' loads and messages.
//! Here the tasks are threads. The load of a thread is the time that it has computed in the window of the last
//! k periods, as the probe counts it ([`TaskView::computed`](evenly_model::TaskView::computed)), or else its
//! progress. Messages come from the record of an earlier run ([`Knowledge::profile`]), scaled to the observed
//! load. Without a record they are those that the probe counted in the window ([`Snapshot::links`]). Without
//! either, load alone counts.
//!
//! ```text
//! k periods observed -> TaskGraph -> nuco+ (its starts: nuco, greedy, treematch ...) -> better than
//! the present under the model, migrations counted? -> moves -> memory that pays to follow
//! ```
//!
//! **What a plan must save.** Migrations cost at once, and what they save is saved for as long as the
//! program goes on as it is. That is taken to be as long as it has run already, and at least a
//! window: loads and messages are scaled to that horizon before they are held against the costs of
//! migration. A plan is made for the mean loads and messages of two windows. It is taken only if it lowers the
//! model's objective by more than [`LEAST_GAIN`] under those of each of the two: differences between windows are
//! noise, and would move threads back and forth. So a program that changes its pattern is followed two windows
//! later.
//!
//! **Oscillation.** The load of a thread depends on its place: ranks that wait for a rank on a shared CPU compute
//! less, and their CPUs look free. So a plan can undo the one before, again and again. A plan that returns a
//! thread to its former CPU has to wait twice as many windows as the last such plan, up to [`LONGEST_REST`].
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
use evenly_cluster::{Cluster, Core, CoreIndex, Node};
use evenly_model::{
    CpuId, CpuIndex, CpuView, Edge, FULL_CAPACITY, Knowledge, MemoryMove, MemoryView, Nanos,
    NodeIndex, Pid, Plan, Reason, Snapshot, Task, TaskGraph, TaskView, ThreadId, ThreadIndex,
    ThreadView,
};
use evenly_policy::{Acts, Mechanism, Needs, Policy, PolicyInfo, Spreader};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// `nuco`: places the threads of a running program.
pub const NUCO: PolicyInfo = PolicyInfo {
    name: "nuco",
    about: "place threads anew every 50 periods by load, communication and memory (NucoLB)",
    needs: Needs::Load,
    acts: Acts::AtPoints(Mechanism::Pin),
    make: || Box::new(Remap::default()),
    arms: &[],
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

/// The policy `nuco` at work, with the windows that it has seen.
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
    /// What they had computed then, where the probe counts it.
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
    /// How many windows had to pass after the last plan that returned threads to their former CPUs, and the
    /// window from which on that is possible again.
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
    /// The mean of both windows, thread by thread.
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
        // A thread that has no CPU needs one now.
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
        let computed = |(t, task): (&ThreadView, &TaskView)| Some((t.id, task.computed?));
        self.computed.clear();
        self.computed.extend(s.threads.iter().zip(&s.tasks).filter_map(computed));
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

    /// Takes in where threads are now.
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
        // No CPU is left without a thread, whatever the mapper says.
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

    /// One node, where the machine is not known.
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
            // A thread that was not counted then may have sent all this long before.
            let known = [from, to].iter().all(|&t| self.computed.contains_key(&of(t)));
            let before =
                known.then(|| then.get(&(of(from), of(to))).copied().unwrap_or_default())?;
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
        let computed = |i: ThreadIndex| {
            let t = &s.threads[i];
            let computed = s.tasks.get(i)?.computed? - *self.computed.get(&t.id)?;
            // In the unit of progress. It was on this CPU, as threads are moved when windows end.
            Some(computed.0 as f64 * s.cpus.get(t.cpu).map_or(1.0, CpuView::weight))
        };
        let rate = |(i, t): (ThreadIndex, &ThreadView)| {
            let gained = computed(i).unwrap_or_else(|| match self.progress.get(&t.id) {
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
mod tests;

//! Runs the real tracker, balancer and period control over a simulated machine.
//!
//! Where there are agents, each wakes at times of its own, and what it does takes time in which others can do something:
//! their steps are interleaved in virtual time.
//!
//! Invariant: nothing of the engine or of a policy is replaced here; only time is virtual.

use crate::Sim;
use crate::machine::Reports;
use crate::report::Sample;
use evenly_engine::{
    Agent, Balancer, BalancerOptions, Candidate, Event, GuardOptions, Manner, Next, Observer,
    Period, PeriodControl, PeriodOptions, Reader, SearchSummary, Selection, Sensors, Summary,
    Tracker, TrackerOptions,
};
use evenly_model::{CpuSet, DomainId, Environment, Knowledge, Nanos, ThreadId};
use evenly_phase::{HELPERS_SHARE, Openings};
use evenly_policies::Setting;
use evenly_policy::{Mechanism, PolicyInfo};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError};

/// When balancing begins, of a run in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At time zero, with all threads that are there: as in the paper, whose tool is given how many
    /// threads to expect. Threads that come later join at the next balancing point.
    AtOnce,
    /// When the tracker has recognised the threads that compute, as it happens live.
    Recognised,
}

/// Which programs a balancer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The first program; the others are left to the kernel.
    First,
    /// Each program has an evenly of its own, which knows nothing of the others.
    Each,
    /// All programs are balanced as if they were one.
    Together,
}

/// How a simulated run is balanced.
#[derive(Debug, Clone)]
pub struct DriverOptions {
    /// How long periods are.
    pub period: PeriodOptions,
    /// Whether the period varies by a tenth, as live (paper, section 4.2).
    pub jitter: bool,
    /// A balancing point also whenever a thread of the program blocks or ends.
    pub at_blocking: bool,
    /// Whether, and how often, it is looked at what balancing gains.
    pub guard: GuardOptions,
    /// Whether balancing begins at time zero, or once threads are recognised.
    pub start: Start,
    /// Begin as soon as this many threads compute; None waits for them to stand still. Only with
    /// [`Start::Recognised`].
    pub expected: Option<u32>,
    /// For how long they must stand still.
    pub settle: Nanos,
    /// The CPUs that may be used; None for all.
    pub cpus: Option<CpuSet>,
    /// CPUs that are balanced on their own, each set apart from the others; empty for one domain of
    /// all CPUs.
    pub domains: Vec<CpuSet>,
    /// Which programs are balanced.
    pub scope: Scope,
    /// What is known of machine and program, for a policy that places threads by load. None: that
    /// the domains are its nodes, equally far from each other, and no more.
    pub knowledge: Option<Arc<Knowledge>>,
}

impl DriverOptions {
    /// A fixed period, no guard, the usual settling.
    #[must_use]
    pub fn fixed(period: Nanos, seed: u64) -> Self {
        Self {
            period: PeriodOptions {
                period: Period::Fixed(period),
                budget: 0.01,
                slice: Nanos::from_millis(4),
                seed,
            },
            jitter: true,
            at_blocking: false,
            guard: GuardOptions { enabled: false, ..GuardOptions::default() },
            start: Start::Recognised,
            expected: None,
            settle: Nanos::from_millis(60),
            cpus: None,
            domains: Vec::new(),
            scope: Scope::First,
            knowledge: None,
        }
    }

    /// The same as this policy needs it: one that reacts is called whenever a thread blocks.
    #[must_use]
    pub fn for_policy(&self, policy: &PolicyInfo) -> Self {
        Self { at_blocking: self.at_blocking || policy.is_reactive(), ..self.clone() }
    }

    /// As the paper's analysis has it (section 3): a fixed period without jitter, balancing from
    /// the first moment, no limit to what it may cost.
    #[must_use]
    pub fn as_analysed(period: Nanos, seed: u64) -> Self {
        let fixed = Self::fixed(period, seed);
        Self {
            period: PeriodOptions { budget: 1.0, ..fixed.period },
            jitter: false,
            start: Start::AtOnce,
            ..fixed
        }
    }
}

/// What a simulated run amounted to.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// When the last thread ended; None where the limit came first.
    pub makespan: Option<Nanos>,
    /// When each program ended.
    pub programs: Vec<Option<Nanos>>,
    /// Moves by the policy.
    pub migrations: u64,
    /// Balancing points, one for each domain and program that is balanced on its own.
    pub points: u64,
    /// Readings of a thread's times.
    pub readings: u64,
    /// What searches for threads have cost.
    pub search: SearchSummary,
    /// Moves by the model of the kernel.
    pub kernel_migrations: u64,
    /// CPU time that each thread received.
    pub progress: Vec<Nanos>,
    /// The engine's own account.
    pub summary: Summary,
}

/// The balancers of one program, or of all.
struct Group {
    /// None for all programs.
    program: Option<usize>,
    tracker: Tracker,
    /// One for each domain.
    balancers: Vec<Balancer>,
    control: PeriodControl,
    next: Nanos,
    /// The next point may be as early as this, where an agent calls.
    called_at: Nanos,
    /// All threads, as seen last.
    candidates: Vec<Candidate>,
    /// Threads that have been selected, with [`Start::AtOnce`].
    selected: Vec<ThreadId>,
    /// What acts between points.
    agents: Vec<Acting>,
    /// What the program reports of its phases, where agents go by it.
    reports: Option<Arc<Reports>>,
    /// Agents that are to be woken when they are called.
    resting: Vec<usize>,
}

/// An agent, with whether it takes time from threads on the CPU that it serves.
struct Acting {
    agent: Box<dyn Agent>,
    on_its_cpu: bool,
}

impl Acting {
    fn new(agent: Box<dyn Agent>) -> Self {
        Self { on_its_cpu: matches!(agent.manner(), Manner::OnItsCpu(_)), agent }
    }
}

/// When an agent goes on.
#[derive(Debug)]
struct Due {
    at: Nanos,
    /// In which order equal times were given.
    number: u64,
    group: usize,
    agent: usize,
    how: GoesOn,
}

/// How an agent goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GoesOn {
    /// It is woken, by its own time or by a call.
    Wakes,
    /// It has looked, and goes on at once.
    Next,
    /// It wanted to act.
    Acts,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// A simulated machine with balancers at work on it.
pub struct Driver {
    /// The machine that is balanced.
    pub sim: Sim,
    groups: Vec<Group>,
    /// What the balancers of CPUs are to do, the first on top.
    due: BinaryHeap<Reverse<Due>>,
    given: u64,
    mechanism: Mechanism,
    start: Start,
    jitter: bool,
    at_blocking: bool,
}

impl Driver {
    /// Makes balancers with this policy.
    #[must_use]
    pub fn new(mut sim: Sim, info: &'static PolicyInfo, options: &DriverOptions) -> Self {
        let all = options.cpus.clone().unwrap_or_else(|| sim.all_cpus());
        let sets = || options.domains.iter().map(|d| d.and(&all)).filter(|d| !d.is_empty());
        let one = info.is_on_each_cpu() || info.places_load() || options.domains.is_empty();
        let domains: Vec<CpuSet> = if one { vec![all.clone()] } else { sets().collect() };
        let knowledge = info.places_load().then(|| {
            let even = || {
                let nodes: Vec<(u32, CpuSet)> = (0..).zip(sets()).collect();
                let nodes = if nodes.is_empty() { vec![(0, all.clone())] } else { nodes };
                Arc::new(Knowledge::even(nodes, 1.0))
            };
            options.knowledge.clone().unwrap_or_else(even)
        });
        // What are domains elsewhere are the nodes of one.
        let nodes: Vec<CpuSet> = if info.is_on_each_cpu() { sets().collect() } else { Vec::new() };
        let programs: Vec<Option<usize>> = match options.scope {
            Scope::First => vec![Some(0)],
            Scope::Each => (0..sim.programs()).map(Some).collect(),
            Scope::Together => vec![None],
        };
        let jitter = options.jitter;
        let group = |(i, program): (usize, Option<usize>)| {
            let seed = options.period.seed.wrapping_add(i as u64);
            // Without a limit each balancer may take all of the CPU that it is on.
            let hands =
                if info.is_on_each_cpu() && options.period.budget >= 1.0 { all.len() } else { 1 };
            let budget = options.period.budget * hands.max(1) as f64;
            let mut control = PeriodControl::new(PeriodOptions { seed, budget, ..options.period });
            // A team meets across domains, and no domain alone can plan for it.
            let meets = program.filter(|_| info.moves_within_phases() && domains.len() == 1);
            let reports = meets.and_then(|program| sim.report_phases(program));
            let began = sim.now();
            let mut agents = Vec::new();
            let mut balancer = |(d, cpus): (usize, &CpuSet)| {
                let (period, usable) = (options.period, sim.online(cpus));
                let options = BalancerOptions {
                    wanted: options.cpus.clone(),
                    domain: DomainId(d as u32),
                    cpus: cpus.clone(),
                    policy: info,
                    environment: Environment {
                        knowledge: knowledge.clone(),
                        ..Environment::default()
                    },
                    guard: GuardOptions {
                        enabled: options.guard.enabled && info.is_guarded(),
                        arms: domains.len() == 1,
                        ..options.guard
                    },
                };
                let setting = Setting {
                    usable: &usable,
                    nodes: &nodes,
                    period: control.current(),
                    jitter,
                    seed,
                    budget: period.budget,
                    of_agents: period.budget * HELPERS_SHARE,
                    openings: reports.clone().map(|r| -> Arc<dyn Openings> { r }),
                    now: began,
                };
                let (caretaker, more) = evenly_policies::balancer(options, &setting);
                agents.extend(more);
                caretaker
            };
            let balancers: Vec<Balancer> = domains.iter().enumerate().map(&mut balancer).collect();
            let first = next_period(&mut control, options.jitter);
            let resting = (0..agents.len()).collect();
            Group {
                program,
                tracker: Tracker::new(TrackerOptions {
                    expected: options.expected,
                    settle: options.settle,
                    eligible: None,
                }),
                balancers,
                agents: agents.into_iter().map(Acting::new).collect(),
                reports,
                called_at: sim.now(),
                control,
                next: match options.start {
                    Start::AtOnce => sim.now(),
                    Start::Recognised => sim.now() + first,
                },
                candidates: Vec::new(),
                selected: Vec::new(),
                resting,
            }
        };
        let groups: Vec<Group> = programs.into_iter().enumerate().map(group).collect();
        Self {
            sim,
            groups,
            due: BinaryHeap::new(),
            given: 0,
            mechanism: info.mechanism(),
            start: options.start,
            jitter: options.jitter,
            at_blocking: options.at_blocking,
        }
    }

    /// Wakes the agents of a group that rest and are called.
    fn wake_called(&mut self, group: usize) {
        let now = self.sim.now();
        let g = &mut self.groups[group];
        let agents = &g.agents;
        let (called, resting): (Vec<usize>, _) =
            g.resting.iter().partition(|&&a| agents[a].agent.is_called());
        g.resting = resting;
        for agent in called {
            self.give(now, group, agent, GoesOn::Next);
        }
    }

    fn give(&mut self, at: Nanos, group: usize, agent: usize, how: GoesOn) {
        self.given += 1;
        self.due.push(Reverse(Due { at, number: self.given, group, agent, how }));
    }

    /// How moves are carried out.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The balancer of the first program and domain.
    #[must_use]
    pub fn balancer(&self) -> &Balancer {
        &self.groups[0].balancers[0]
    }

    fn balancers(&self) -> impl Iterator<Item = &Balancer> {
        self.groups.iter().flat_map(|g| &g.balancers)
    }

    /// Moves by the policy so far.
    #[must_use]
    pub fn migrations(&self) -> u64 {
        self.balancers().map(|b| b.summary(self.sim.now()).0.migrations).sum()
    }

    /// Runs the machine to the next balancing point, and carries that out. False once all programs
    /// have ended.
    pub fn step(&mut self, observers: &mut [Box<dyn Observer>]) -> bool {
        let Some((due, next)) =
            self.groups.iter().map(|g| g.next).enumerate().min_by_key(|&(i, next)| (next, i))
        else {
            return false;
        };
        if self.due.peek().is_some_and(|d| d.0.at < next) {
            return self.step_of_agents(next);
        }
        let mut due = due..due + 1;
        if self.at_blocking {
            if self.sim.run_until_one_blocks(next) {
                due = 0..self.groups.len();
            }
        } else if !self.run_until(next) {
            return true;
        }
        if self.sim.makespan().is_some() {
            return false;
        }
        for g in due {
            self.point(g, observers);
        }
        true
    }

    /// Runs the machine until then. False where it stands before, because barriers have opened for which agents are woken.
    fn run_until(&mut self, time: Nanos) -> bool {
        let arrived = !self.sim.run_until_called(time);
        self.wake_at_openings();
        arrived
    }

    /// Wakes the agents that the barriers of their programs call.
    fn wake_at_openings(&mut self) {
        for group in 0..self.groups.len() {
            let Some(called) = self.groups[group].reports.as_ref().map(|r| r.take_called()) else {
                continue;
            };
            for cpu in called {
                let g = &mut self.groups[group];
                let (agents, resting) = (&g.agents, &mut g.resting);
                let Some(at) = resting.iter().position(|&a| agents[a].agent.cpu() == cpu) else {
                    continue;
                };
                let agent = resting.remove(at);
                let at = self.sim.now() + self.sim.lateness();
                self.give(at, group, agent, GoesOn::Wakes);
            }
        }
    }

    /// Carries out the steps of agents that are due before `end`. False once all programs have ended.
    fn step_of_agents(&mut self, end: Nanos) -> bool {
        while self.due.peek().is_some_and(|d| d.0.at < end) {
            let Some(at) = self.due.peek().map(|d| d.0.at) else { break };
            // Others may be due before.
            if !self.run_until(at) {
                continue;
            }
            if self.sim.makespan().is_some() {
                return false;
            }
            let Some(Reverse(Due { group: g, agent: a, how, .. })) = self.due.pop() else { break };
            let (next, spent) = self.goes_on(g, a, how);
            let now = self.sim.now();
            match next {
                Next::Sleep(until) => {
                    let at = until.max(now + spent).max(now + Nanos(1)) + self.sim.lateness();
                    self.give(at, g, a, GoesOn::Wakes);
                }
                Next::Again => self.give(now + spent, g, a, GoesOn::Next),
                Next::Act => self.give(now + spent, g, a, GoesOn::Acts),
                // Called meanwhile.
                Next::Rest if self.groups[g].agents[a].agent.is_called() => {
                    self.give(now + spent.max(Nanos(1)), g, a, GoesOn::Next);
                }
                Next::Rest => self.groups[g].resting.push(a),
            }
            self.wake_at_openings();
            let group = &mut self.groups[g];
            if group.agents[a].agent.calls() {
                group.next = group.next.min(group.called_at.max(now + Nanos(1)));
                break;
            }
        }
        true
    }

    /// One step of an agent, and those after it that take no time: nothing is interleaved with them. What comes next, and
    /// how long it took.
    fn goes_on(&mut self, group: usize, agent: usize, mut how: GoesOn) -> (Next, Nanos) {
        let Acting { agent, on_its_cpu } = &mut self.groups[group].agents[agent];
        let (cpu, sim) = (agent.cpu().0 as usize, &mut self.sim);
        let before = sim.own_cpu_time();
        if how == GoesOn::Wakes && (*on_its_cpu || agent.is_called()) {
            sim.stall_cpus(cpu..cpu + 1);
        }
        let (mut next, mut spent) = (Next::Again, Nanos::ZERO);
        while spent == Nanos::ZERO {
            if how == GoesOn::Acts {
                ((), spent) = sim.beside(|sim| agent.act(sim));
                (next, how) = (Next::Again, GoesOn::Next);
                continue;
            }
            (next, spent) = sim.beside(|sim| agent.next(sim));
            how = match next {
                Next::Again => GoesOn::Next,
                Next::Act => GoesOn::Acts,
                Next::Sleep(_) | Next::Rest => break,
            };
        }
        if *on_its_cpu {
            sim.hold_cpu(cpu, spent);
        }
        agent.took(sim.own_cpu_time() - before);
        (next, spent)
    }

    fn point(&mut self, g: usize, observers: &mut [Box<dyn Observer>]) {
        // Where each CPU has a balancer of its own there is none that all wait for.
        let one = self.groups[g].agents.iter().all(|a| a.on_its_cpu);
        let stalled = if one { self.sim.stall() } else { Nanos::ZERO };
        let (sim, group) = (&mut self.sim, &mut self.groups[g]);
        let now = sim.now();
        let selected = match self.start {
            Start::Recognised => {
                sim.refresh(group.program, &mut group.candidates);
                group.tracker.listen(sim);
                group.tracker.look(now, &group.candidates)
            }
            Start::AtOnce => group.newcomers(sim),
        };
        for selection in selected {
            if let Some(mask) = sim.original_mask(selection.thread.id) {
                let domain = group.domain_for(&mask);
                group.balancers[domain].join(sim, selection, &mask, observers);
            }
        }
        if self.start == Start::AtOnce || group.tracker.started() {
            let period = group.control.current();
            let mut cost = stalled;
            for b in &mut group.balancers {
                for (id, times) in b.point(sim, period, observers) {
                    group.tracker.idle(id, times, now);
                    group.selected.retain(|&m| m != id);
                }
                cost += b.period_cost();
            }
            group.control.cost(cost);
            // The domain in which most threads share a CPU needs the longest turns.
            let together = group.balancers.iter().map(Balancer::taking_turns).max();
            group.control.shared_by(together.unwrap_or(0));
            group.control.calm(group.balancers.iter().all(Balancer::is_calm));
            group.control.blocking(group.balancers.iter().all(Balancer::blocks_often));
            group.control.resting(group.balancers.iter().all(Balancer::is_resting));
        }
        let period = next_period(&mut group.control, self.jitter);
        let first = group.balancers.first().filter(|b| !b.is_empty());
        let apart = first.map_or(1.0, Balancer::periods_between_points);
        group.called_at = sim.now() + period;
        group.next = sim.now() + period.scale(apart);
        self.wake_called(g);
    }

    /// Ends balancing and gives the account.
    pub fn finish(&mut self) -> Outcome {
        let mut summary = Summary { domains: Vec::new(), threads: Vec::new(), notes: Vec::new() };
        for b in self.groups.iter_mut().flat_map(|g| &mut g.balancers) {
            b.finish(&mut self.sim);
            summary.add(b.summary(self.sim.now()));
        }
        Outcome {
            makespan: self.sim.makespan(),
            programs: self.sim.program_ends(),
            migrations: summary.domains.iter().map(|d| d.migrations).sum(),
            points: summary.domains.iter().map(|d| d.points).sum(),
            readings: self.sim.readings(),
            search: summary.domains.iter().fold(SearchSummary::default(), |a, d| a.and(&d.search)),
            kernel_migrations: self.sim.kernel_moves(),
            progress: self.sim.progress(),
            summary,
        }
    }
}

fn next_period(control: &mut PeriodControl, jitter: bool) -> Nanos {
    if jitter { control.next_period() } else { control.current() }
}

impl Group {
    /// Threads that were not there at the last balancing point, or that computed no longer and are
    /// runnable again.
    fn newcomers(&mut self, sim: &Sim) -> Vec<Selection> {
        if self.selected.len() == sim.living_of(self.program) {
            return Vec::new();
        }
        sim.refresh(self.program, &mut self.candidates);
        self.selected.retain(|id| self.candidates.binary_search_by_key(id, |c| c.id).is_ok());
        self.selected.sort_unstable();
        let mut new = Vec::new();
        for c in &self.candidates {
            if self.selected.binary_search(&c.id).is_err()
                && c.state == evenly_engine::RunState::Runnable
            {
                new.push(Selection { baseline: c.times, thread: c.clone() });
            }
        }
        self.selected.extend(new.iter().map(|s| s.thread.id));
        new
    }

    /// The domain with the fewest threads for its CPUs, of those where the thread may run.
    fn domain_for(&self, mask: &CpuSet) -> usize {
        let load = |b: &Balancer| {
            let cpus = b.cpus().and(mask).len();
            (cpus > 0).then(|| (b.len() + 1) as f64 / cpus as f64)
        };
        let loads = self.balancers.iter().enumerate().filter_map(|(d, b)| Some((load(b)?, d)));
        loads.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, d)| d)
    }
}

/// Keeps how far threads were at each point.
#[derive(Debug, Clone, Default)]
pub struct Samples(Arc<Mutex<Vec<Sample>>>);

impl Samples {
    /// What was seen so far.
    #[must_use]
    pub fn taken(&self) -> Vec<Sample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Samples {
    fn event(&mut self, event: &Event) {
        let Event::Point(p) = event else { return };
        let seconds = |ns: i64| ns as f64 / 1e9;
        let all = || p.threads.iter().map(|t| t.progress);
        let (Some(least), Some(most)) = (all().min(), all().max()) else { return };
        let sum: f64 = all().map(seconds).sum();
        let sample = Sample {
            at_s: p.at.as_secs_f64(),
            least_s: seconds(least),
            mean_s: sum / p.threads.len() as f64,
            most_s: seconds(most),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
    }
}

/// Runs programs under a policy until they end, or until `limit`.
#[must_use]
pub fn simulate(
    sim: Sim,
    policy: &'static PolicyInfo,
    options: &DriverOptions,
    limit: Nanos,
) -> Outcome {
    simulate_seen_by(sim, policy, options, limit, &mut [])
}

/// As [`simulate`], with observers.
pub fn simulate_seen_by(
    sim: Sim,
    policy: &'static PolicyInfo,
    options: &DriverOptions,
    limit: Nanos,
    observers: &mut [Box<dyn Observer>],
) -> Outcome {
    let mut driver = Driver::new(sim, policy, options);
    while driver.sim.now() < limit && driver.step(observers) {}
    driver.finish()
}

//! Runs the real tracker, balancer and period control over a simulated machine.
//!
//! Where each CPU has a balancer of its own, each wakes at times of its own, and what it does takes
//! time in which others can do something: their steps are interleaved in virtual time.
//!
//! Invariant: nothing of the engine or of a policy is replaced here; only time is virtual.

use crate::Sim;
use crate::report::Sample;
use evenly_decentral::{CARE, Decentral, Step};
use evenly_engine::{
    Balancer, BalancerOptions, Candidate, Event, GuardOptions, Observer, Period, PeriodControl,
    PeriodOptions, SearchSummary, Selection, Sensors, Summary, Tracker, TrackerOptions,
};
use evenly_model::{CpuSet, DomainId, Environment, Knowledge, Nanos, ThreadId};
use evenly_policy::{Mechanism, PolicyInfo};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, PoisonError};

/// When balancing begins.
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
    /// The period.
    pub period: PeriodOptions,
    /// Whether the period varies by a tenth, as live (paper, section 4.2).
    pub jitter: bool,
    /// A balancing point also whenever a thread of the program blocks or ends.
    pub at_blocking: bool,
    /// The regression guard.
    pub guard: GuardOptions,
    /// When balancing begins.
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
        Self { at_blocking: self.at_blocking || policy.at_blocking, ..self.clone() }
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
    /// The next point may be as early as this, where a balancer of a CPU calls.
    called_at: Nanos,
    /// All threads, as seen last.
    candidates: Vec<Candidate>,
    /// Threads that have been selected, with [`Start::AtOnce`].
    selected: Vec<ThreadId>,
    /// The balancers of CPUs, where each CPU has one.
    decentral: Option<Decentral>,
    /// Those that are to be woken when the board is active.
    parked: Vec<usize>,
}

/// What a balancer of a CPU is to do: its next step, or a swap.
#[derive(Debug)]
struct Due {
    at: Nanos,
    /// In which order equal times were given.
    number: u64,
    group: usize,
    balancer: usize,
    step: Step,
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
    /// The machine.
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
    pub fn new(sim: Sim, info: &'static PolicyInfo, options: &DriverOptions) -> Self {
        let all = options.cpus.clone().unwrap_or_else(|| sim.all_cpus());
        let sets = || options.domains.iter().map(|d| d.and(&all)).filter(|d| !d.is_empty());
        let one = info.decentral || info.places_load || options.domains.is_empty();
        let domains: Vec<CpuSet> = if one { vec![all.clone()] } else { sets().collect() };
        let knowledge = info.places_load.then(|| {
            let even = || {
                let nodes: Vec<(u32, CpuSet)> = (0..).zip(sets()).collect();
                let nodes = if nodes.is_empty() { vec![(0, all.clone())] } else { nodes };
                Arc::new(Knowledge::even(nodes, 1.0))
            };
            options.knowledge.clone().unwrap_or_else(even)
        });
        // What are domains elsewhere are the nodes of one.
        let nodes: Vec<CpuSet> = if info.decentral { sets().collect() } else { Vec::new() };
        let programs: Vec<Option<usize>> = match options.scope {
            Scope::First => vec![Some(0)],
            Scope::Each => (0..sim.programs()).map(Some).collect(),
            Scope::Together => vec![None],
        };
        let group = |(i, program): (usize, Option<usize>)| {
            let seed = options.period.seed.wrapping_add(i as u64);
            // Without a limit each balancer may take all of the CPU that it is on.
            let hands = if info.decentral && options.period.budget >= 1.0 { all.len() } else { 1 };
            let budget = options.period.budget * hands.max(1) as f64;
            let mut control = PeriodControl::new(PeriodOptions { seed, budget, ..options.period });
            let mut decentral = None;
            let mut balancer = |(d, cpus): (usize, &CpuSet)| {
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
                        ..options.guard
                    },
                };
                if !info.decentral {
                    return Balancer::new(options, sim.now());
                }
                let lambda = control.current();
                let (caretaker, all) =
                    Decentral::with_caretaker(options, &nodes, lambda, seed, sim.now());
                decentral = Some(all);
                caretaker
            };
            let balancers: Vec<Balancer> = domains.iter().enumerate().map(&mut balancer).collect();
            let first = next_period(&mut control, options.jitter);
            let parked = (0..decentral.as_ref().map_or(0, |d| d.balancers.len())).collect();
            Group {
                program,
                tracker: Tracker::new(TrackerOptions {
                    expected: options.expected,
                    settle: options.settle,
                    eligible: None,
                }),
                balancers,
                decentral,
                called_at: sim.now(),
                control,
                next: match options.start {
                    Start::AtOnce => sim.now(),
                    Start::Recognised => sim.now() + first,
                },
                candidates: Vec::new(),
                selected: Vec::new(),
                parked,
            }
        };
        let groups: Vec<Group> = programs.into_iter().enumerate().map(group).collect();
        Self {
            sim,
            groups,
            due: BinaryHeap::new(),
            given: 0,
            mechanism: info.mechanism,
            start: options.start,
            jitter: options.jitter,
            at_blocking: options.at_blocking,
        }
    }

    /// First wake-ups.
    fn wake_parked(&mut self, group: usize) {
        let g = &mut self.groups[group];
        let Some(all) = g.decentral.as_mut().filter(|all| all.board.active()) else { return };
        let (now, lambda) = (self.sim.now(), all.board.interval());
        let woken = std::mem::take(&mut g.parked).into_iter();
        let woken: Vec<(Nanos, usize)> =
            woken.map(|b| (all.balancers[b].first_wake(now, lambda), b)).collect();
        for (at, b) in woken {
            self.give(at, group, b, Step::Again);
        }
    }

    fn give(&mut self, at: Nanos, group: usize, balancer: usize, step: Step) {
        self.given += 1;
        self.due.push(Reverse(Due { at, number: self.given, group, balancer, step }));
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
            return self.step_of_a_cpu(next);
        }
        let mut due = due..due + 1;
        if self.at_blocking {
            if self.sim.run_until_one_blocks(next) {
                due = 0..self.groups.len();
            }
        } else {
            self.sim.run_until(next);
        }
        if self.sim.makespan().is_some() {
            return false;
        }
        for g in due {
            self.point(g, observers);
        }
        true
    }

    /// Carries out the steps of the balancers of CPUs that are due before `end`. False once all
    /// programs have ended.
    fn step_of_a_cpu(&mut self, end: Nanos) -> bool {
        while self.due.peek().is_some_and(|d| d.0.at < end)
            && let Some(Reverse(Due { at, group: g, balancer: b, step, .. })) = self.due.pop()
        {
            self.sim.run_until(at);
            if self.sim.makespan().is_some() {
                return false;
            }
            let group = &mut self.groups[g];
            let Some(Decentral { board, balancers }) = &mut group.decentral else { continue };
            let (board, balancer) = (board.clone(), &mut balancers[b]);
            if balancer.is_asleep() && !board.active() {
                group.parked.push(b);
                continue;
            }
            let before = self.sim.own_cpu_time();
            let mut next = step;
            let mut spent = Nanos::ZERO;
            // What takes no time is not interleaved with anything.
            while spent == Nanos::ZERO {
                (next, spent) = match next {
                    Step::Again => {
                        if balancer.is_asleep() {
                            let cpu = balancer.cpu(&board).0 as usize;
                            self.sim.stall_cpus(cpu..cpu + 1);
                        }
                        self.sim.beside(|sim| balancer.step(&board, sim))
                    }
                    Step::Swap(swap) => self.sim.beside(|sim| {
                        board.swap(&swap, sim);
                        Step::Sleep
                    }),
                    Step::Sleep => break,
                };
            }
            board.took(self.sim.own_cpu_time() - before);
            let now = self.sim.now();
            let (at, next) = match next {
                Step::Sleep => {
                    let wake = balancer.next_wake(board.interval(), self.jitter);
                    (wake.max(now + spent).max(now + Nanos(1)), Step::Again)
                }
                again => (now + spent, again),
            };
            let called = board.called();
            if called {
                group.next = group.next.min(group.called_at.max(now + Nanos(1)));
            }
            self.give(at, g, b, next);
            if called {
                break;
            }
        }
        true
    }

    fn point(&mut self, g: usize, observers: &mut [Box<dyn Observer>]) {
        let one = self.groups[g].decentral.is_none();
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
            group.control.resting(group.balancers.iter().all(Balancer::is_resting));
        }
        let period = next_period(&mut group.control, self.jitter);
        let many = group.decentral.is_some() && !group.balancers[0].is_empty();
        group.called_at = sim.now() + period;
        group.next = sim.now() + period.scale(if many { CARE } else { 1.0 });
        self.wake_parked(g);
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

//! One domain's balancing cycle: observe, decide, apply, verify, record.
//!
//! Each call of [`Balancer::point`] is one balancing point. It reads the times of all threads of
//! the domain, works out speeds and progress, asks the policy, carries the plan out, and tells the
//! observers. Between points it holds the state that makes them cheap: buffers that are re-used,
//! and where each thread was put.
//!
//! Where each CPU has a balancer of its own ([`crate::decentral`]) this is the caretaker of them all: it
//! knows who is there, spreads threads and keeps the account, with what those balancers have read.
//!
//! Invariants:
//! - A thread is moved only to a CPU of its own mask and of the domain (P1).
//! - A thread that vanished, at any moment, is dropped without a word: it is data.
//! - While paused or stood down nothing is moved, and no mask of ours is in force but the one that
//!   the user asked for.
//! - No call to the machine takes the last thread off a CPU that one is to have again at the end of the
//!   point ([`crate::handover`], P2).

use crate::decentral::{Account, Board, CARE, Complaint, CpuBalancer, Decentral, Member};
use crate::handover::{Act, Handover};
use crate::phases::{InPhase, Participant, Phases};
use crate::ranks::links;
use crate::rates::Rates;
use crate::speed::{LEAST_WANTED, OnCpu};
use crate::waiting::Told;
use crate::{
    ApplyError, Candidate, CostBreakdown, CpuRecord, DomainSummary, Event, Guard, GuardOptions,
    Located, Machine, MemoryUnknown, MoveRecord, Observer, PointRecord, Reading, RunState,
    SearchSummary, Selection, ThreadMeta, ThreadRecord, ThreadSummary, Times, Waiting, Wanted,
};
use evenly_model::hpc::Parameters;
use evenly_model::{
    CpuId, CpuSet, CpuView, DomainId, Effort, Environment, Knowledge, MemoryMove, MemoryView,
    Nanos, Pid, Plan, Snapshot, TaskView, ThreadId, ThreadView, Turns,
};
use evenly_policy::stopping::CutOff;
use evenly_policy::{Mechanism, Policy, PolicyInfo, Spreader, Spreading};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// Settings of a balancer.
#[derive(Debug, Clone)]
pub struct BalancerOptions {
    /// Which domain.
    pub domain: DomainId,
    /// Its CPUs; those that can be used are asked for again and again.
    pub cpus: CpuSet,
    /// The CPUs that the user wants the program to use; None for all. Threads stay within them
    /// even while balancing is paused.
    pub wanted: Option<CpuSet>,
    /// The policy. Where each CPU has a balancer of its own, it is they who follow it.
    pub policy: &'static PolicyInfo,
    /// What it is to know of machine and program. A policy that places threads by load is told more at each
    /// point where there is [`Environment::knowledge`].
    pub environment: Environment,
    /// The regression guard.
    pub guard: GuardOptions,
}

/// A thread in the domain.
#[derive(Debug)]
struct Entity {
    meta: ThreadMeta,
    last: Times,
    /// Instructions when `last` was read, where they are counted.
    retired: Option<u64>,
    /// Instructions since it was read before that.
    newly_retired: Option<u64>,
    /// What it tells of its own waiting.
    told: Told,
    /// What it does from barrier to barrier, where it tells of them.
    phase: InPhase,
    /// What it is to have of its CPU, relative to what it had when it was met.
    weight: Option<f64>,
    /// What it has been given of that.
    weighs: Option<f64>,
    /// When `last` was read.
    read_at: Nanos,
    /// P of the paper, section 2.1.
    progress: i64,
    cpu: Option<CpuId>,
    movable: bool,
    /// The program has set its mask while it was balanced.
    foreign: bool,
    mask: usize,
    /// Where it may run while balancing is paused.
    base: CpuSet,
    quiet: Nanos,
    /// What it had done when [`Balancer::nobody_gives_up`] looked last, or when it joined.
    window: Window,
    /// How much of the time since it was last seen to have run is not explained: it may be waiting
    /// still, which the kernel books when that ends.
    unexplained: Nanos,
    /// For how long it has not run at all.
    not_run_for: Nanos,
    /// It was seen runnable, and has not run since.
    waits: bool,
    /// It has run for nearly all of the last period, and was given no CPU anew in it: so it is where
    /// it was.
    ran_on: bool,
    /// Where it was seen at this point, if it was looked at.
    seen: Option<Located>,
    migrations: u64,
    joined: Nanos,
    ran: Nanos,
    waited: Nanos,
    blocked: Nanos,
    /// Of `ran` and `waited`, the time in which it only waited for others, as it tells.
    spinning: Nanos,
    /// What was booked beyond the time that went by: waiting is booked when it ends, and until then
    /// looks like blocking, which it is not.
    overbooked: Nanos,
    /// Waiting that was seen and booked, and that the kernel will tell when it ends.
    ahead_of_kernel: Nanos,
    /// Its progress in the last period.
    gained: Nanos,
    total_ran: Nanos,
    total_waited: Nanos,
    total_blocked: Nanos,
    total_spun: Nanos,
    /// What it had counted of its computing when that was heard last, of a rank that counts it.
    counted: Option<Counted>,
    minor_faults: u64,
    major_faults: u64,
    /// As the balancers of CPUs see it, where there are such.
    member: Option<Arc<Member>>,
    /// Which task of the program it is, where that is known.
    number: Option<u64>,
}

impl Entity {
    /// Moves by all hands.
    fn all_migrations(&self) -> u64 {
        self.migrations + self.member.as_ref().map_or(0, |m| m.migrations())
    }

    /// Adds what it did to its account; what it spun is progress only where that is said. Returns
    /// whether it is busy.
    fn book(&mut self, s: &Stretch, first: bool, spins_progress: bool) -> bool {
        let booked = s.ran + s.waiting_booked + self.overbooked;
        let blocked = s.elapsed - booked;
        self.overbooked = booked - s.elapsed;
        let spins = self.told.book(s.elapsed, blocked);
        let gained = s.gained - s.gained.scale(spins);
        self.progress += if spins_progress { s.gained } else { gained }.0 as i64;
        self.phase.add(gained);
        self.total_spun += s.ran.scale(spins);
        self.total_ran += s.ran;
        self.total_waited += s.waiting_booked;
        self.total_blocked += blocked;
        // Before the first point there was no period.
        if !first {
            (self.ran, self.waited, self.blocked) = (s.ran, s.waited, blocked);
            self.spinning = (s.ran + s.waited).scale(spins);
            self.gained = gained;
        }
        let (wanted, elapsed) = ((s.ran + s.waited).0 as f64, s.elapsed.0 as f64);
        if wanted < LEAST_WANTED * elapsed {
            self.quiet += s.elapsed;
        } else {
            self.quiet = Nanos::ZERO;
        }
        wanted > 5.0 * LEAST_WANTED * elapsed
    }

    /// Takes over how much of its CPU time it has computed for by its own count, which is exact: what it
    /// spun since it told that last is what is left. The estimate ([`crate::waiting`]) counts for the time
    /// after that, and for how what was computed before the first count is divided by the moment when the
    /// thread was met.
    fn agree(&mut self, computed: Nanos) {
        let ran = self.last.ran;
        self.total_spun = match self.counted {
            Some(before) => before.spun + ((ran - before.ran) - (computed - before.computed)),
            None => {
                let before_met = ran - self.total_ran;
                let least = self.total_ran - computed;
                self.total_spun.clamp(least, self.total_ran - (computed - before_met))
            }
        };
        self.counted = Some(Counted { ran, computed, spun: self.total_spun });
    }

    /// Takes over where the thread was found. A thread that ended a moment ago stays where it
    /// was; the next reading tells.
    fn found(&mut self, located: Option<Located>) {
        if let Some(l) = located {
            self.cpu = Some(l.cpu);
            (self.minor_faults, self.major_faults) = (l.minor_faults, l.major_faults);
        }
    }
}

/// What a rank had counted of itself at a moment.
#[derive(Debug, Clone, Copy)]
struct Counted {
    /// All of its CPU time.
    ran: Nanos,
    /// That in which it computed.
    computed: Nanos,
    /// What it had spun since it was met.
    spun: Nanos,
}

/// Why a thread leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parting {
    /// It has ended.
    Ended,
    /// It no longer computes.
    Idle,
    /// It goes to another domain.
    To(DomainId),
}

/// From when on, and from which times, blocking of a thread is judged.
#[derive(Debug, Clone, Copy)]
struct Window {
    began: Nanos,
    times: Times,
    /// What was not explained at its beginning, and so was not judged before it.
    unexplained: Nanos,
}

/// What a thread did since it was read last.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    index: usize,
    elapsed: Nanos,
    ran: Nanos,
    /// At most what went by beside running.
    waited: Nanos,
    /// As the kernel books it, when it ends: some of it may belong to earlier stretches.
    waiting_booked: Nanos,
    /// What its instructions take on the fastest CPUs, or CPU time by the capacity of the CPU that it was
    /// on: progress, with what it spun.
    gained: Nanos,
}

/// A thread that waits for its CPU for no more than this part of its time shares it with nobody.
const CALM: f64 = 0.05;
/// A thread that stopped computing for this long is given back.
const QUIET: Nanos = Nanos::from_millis(1_000);
/// Readings that fail for so long are told.
const UNKNOWN: Nanos = Nanos::from_millis(1_000);
/// How long nobody must have given up a CPU before moved threads are held where they were put.
const HOLD_AFTER: Nanos = Nanos::from_millis(1_000);
/// Blocking is judged over this long: waiting is booked when it ends, and against that noise short
/// stretches at barriers show only when they have added up.
const GIVE_UP_WINDOW: Nanos = Nanos::from_millis(1_000);
/// Part of the threads' time in such a window that must be blocked to count.
const GIVE_UP_BLOCKED: f64 = 0.01;
/// A thread that is given a CPU more often than this yields, or blocks for very short times.
const GIVE_UP_SLICES_PER_S: f64 = 1_000.0;
/// Of so many threads one is looked at at each point, where nobody gives up a CPU.
const THREADS_PER_LOOK: usize = 16;
/// How often usable CPUs are asked for.
const LOOK_AT_CPUS: Nanos = Nanos::from_millis(200);
/// How often other balancers are looked for.
const LOOK_AT_NEIGHBOURS: Nanos = Nanos::from_millis(1_000);
/// How often pinned threads are looked at.
const LOOK_AT_ALL: Nanos = Nanos::from_millis(1_000);
/// The part of a CPU that it may take to find out where processes have their memory, over any time
/// but the beginning.
const MEMORY_LOOKS: f64 = 0.001;
/// At one point no further process is looked at after this: a process with much memory takes
/// milliseconds.
const MEMORY_LOOKS_AT_ONCE: Nanos = Nanos::from_millis(5);
/// A thread that no balancer of a CPU has read for so many periods is read by the caretaker.
const UNREAD: f64 = 3.0;

/// Whether pinned threads leave no CPU to nobody (promise P2): each that one of them may use has
/// one. Where there are fewer threads than CPUs, or most of them may use the same few CPUs, they
/// cannot; then they are not pinned.
#[derive(Default)]
struct Cover {
    spreader: Spreader,
    plan: Plan,
    /// For each mask, whether a thread has it.
    used: Vec<bool>,
    /// For each CPU, whether a thread may use it, and whether one is there.
    wanted: Vec<bool>,
    held: Vec<bool>,
    /// Where each thread would be.
    at: Vec<usize>,
}

impl Cover {
    /// Whether it would be so once the threads are distributed, which is what every policy begins
    /// with. The most even distribution has threads on as many CPUs as can have one at all (see
    /// [`Spreader`]), so that none but this one need be looked at.
    ///
    /// O(n + m * masks) where all threads may use the same CPUs, else that of [`Spreader::spread`].
    fn is_possible(&mut self, s: &Snapshot) -> bool {
        self.find_wanted(s);
        let wanted = self.wanted.iter().filter(|w| **w).count();
        if s.threads.is_empty() || s.threads.len() < wanted {
            return false;
        }
        let all = |mask: &[bool]| mask.iter().zip(&self.wanted).all(|(may, w)| may == w);
        let alike = s.masks.iter().zip(&self.used).all(|(mask, used)| !used || all(mask));
        if alike && s.threads.iter().all(|t| t.movable) {
            return true;
        }
        self.plan.clear();
        self.spreader.spread(s, &mut self.plan);
        self.is_with(s, true)
    }

    /// Whether it is so with the threads where they are.
    fn is_there(&mut self, s: &Snapshot) -> bool {
        self.is_with(s, false)
    }

    fn is_with(&mut self, s: &Snapshot, plan: bool) -> bool {
        self.at.clear();
        self.at.extend(s.threads.iter().map(|t| t.cpu));
        if plan {
            self.plan.moves.iter().for_each(|m| self.at[m.thread] = m.to);
        }
        self.held.clear();
        self.held.resize(s.cpus.len(), false);
        for &c in &self.at {
            if let Some(held) = self.held.get_mut(c) {
                *held = true;
            }
        }
        self.wanted.iter().zip(&self.held).all(|(wanted, held)| !wanted || *held)
    }

    fn find_wanted(&mut self, s: &Snapshot) {
        self.used.clear();
        self.used.resize(s.masks.len(), false);
        for t in &s.threads {
            self.used[t.mask] = true;
        }
        self.wanted.clear();
        self.wanted.resize(s.cpus.len(), false);
        for (mask, _) in s.masks.iter().zip(&self.used).filter(|(_, used)| **used) {
            for (wanted, may) in self.wanted.iter_mut().zip(mask) {
                *wanted |= may;
            }
        }
    }
}

/// Which processes are looked at for where they have their memory, and when.
#[derive(Debug, Default)]
struct MemoryLooks {
    /// Those that are to be, in this order.
    due: VecDeque<Pid>,
    /// Those that are or have been.
    known: BTreeSet<Pid>,
    /// When all of them may be again.
    again: Nanos,
    /// One that cannot be read has been told.
    told: bool,
}

impl MemoryLooks {
    /// All of these are due if it is time; else those that are new.
    fn begin(&mut self, here: &BTreeSet<Pid>, now: Nanos) {
        self.known.retain(|p| here.contains(p));
        if self.due.is_empty() && now >= self.again {
            self.known.clear();
        }
        self.due.retain(|p| here.contains(p));
        for &process in here {
            if self.known.insert(process) {
                self.due.push_back(process);
            }
        }
    }

    /// So much was spent on it.
    fn spent(&mut self, cost: Nanos, now: Nanos) {
        self.again = self.again.max(now) + cost.scale(1.0 / MEMORY_LOOKS);
    }
}

/// The cycle of one domain.
pub struct Balancer {
    options: BalancerOptions,
    policy: Box<dyn Policy>,
    guard: Guard,
    began: Nanos,
    entities: Vec<Entity>,
    ids: Vec<ThreadId>,
    readings: Vec<Reading>,
    /// When each of them was made, where that was not just now.
    read_at: Vec<Nanos>,
    /// Threads for much of whose time there is no account at this point.
    unclear: Vec<Stretch>,
    /// Since when there has been a thread at each point that could not be read.
    unknown_since: Option<Nanos>,
    told_of_unknown: bool,
    /// Instructions of the threads in `ids`; empty where none are counted.
    retired: Vec<Option<u64>>,
    rates: Rates,
    /// What the threads in `ids` tell of their waiting; empty where none can.
    waiting: Vec<Option<Waiting>>,
    phases: Phases,
    /// Phases are so short that what threads spin is taken for progress.
    short_phases: bool,
    /// How often weights were given.
    weighings: u64,
    /// The least and the most that was given last, and how.
    weighed: Option<(f64, f64)>,
    weighed_by: Option<&'static str>,
    /// They are to be given again, because a pause has ended or somebody has joined.
    weigh_anew: bool,
    told_of_weights: bool,
    /// When they were given last.
    weighed_at: Nanos,
    masks: Vec<CpuSet>,
    usable: CpuSet,
    looked_at_cpus: Option<Nanos>,
    looked_at_all: Nanos,
    looked_at_neighbours: Option<Nanos>,
    neighbours_known: Vec<Pid>,
    snapshot: Snapshot,
    on_cpu: Vec<OnCpu>,
    plan: Plan,
    last_at: Option<Nanos>,
    placed: bool,
    was_paused: bool,
    /// Threads may leave the domain's CPUs, because there are CPUs that would be left to nobody else.
    open: bool,
    /// Threads stay pinned to where they are put.
    pinning: bool,
    cover: Cover,
    handover: Handover,
    gave_up_at: Nanos,
    window_began: Nanos,
    points: u64,
    migrations: u64,
    failed: u64,
    cost: CostBreakdown,
    period_cost: Nanos,
    /// What the balancers of CPUs had cost up to the last point.
    paid: Nanos,
    cpu_time: Nanos,
    balanced_for: Nanos,
    slowest_slot: f64,
    /// CPU time in which CPUs had no thread to run while threads waited for others.
    idle: Nanos,
    most_threads: u32,
    /// With the index of its mask, as for an entity.
    finished: Vec<(ThreadSummary, usize)>,
    notes: Vec<String>,
    complained: bool,
    /// What the balancers of CPUs share, where there are such.
    board: Option<Arc<Board>>,
    /// Threads have come or gone since these were told.
    members_changed: bool,
    /// The policy asks for what is costly to find out.
    asks: bool,
    /// What its searches have cost.
    effort: Effort,
    /// Memory that is on its way.
    moving: Vec<MemoryMove>,
    memory_looks: MemoryLooks,
}

impl Balancer {
    /// A balancer for a domain that holds no thread yet.
    #[must_use]
    pub fn new(options: BalancerOptions, now: Nanos) -> Self {
        let policy = (options.policy.make)();
        let environment = Arc::new(options.environment.clone());
        Self {
            guard: Guard::new(options.guard, now),
            policy,
            began: now,
            entities: Vec::new(),
            ids: Vec::new(),
            readings: Vec::new(),
            read_at: Vec::new(),
            unclear: Vec::new(),
            unknown_since: None,
            told_of_unknown: false,
            retired: Vec::new(),
            rates: Rates::default(),
            waiting: Vec::new(),
            phases: Phases::default(),
            short_phases: false,
            weighings: 0,
            weighed: None,
            weighed_by: None,
            weigh_anew: false,
            told_of_weights: false,
            weighed_at: Nanos::ZERO,
            masks: Vec::new(),
            usable: CpuSet::new(),
            looked_at_cpus: None,
            looked_at_all: Nanos::ZERO,
            looked_at_neighbours: None,
            neighbours_known: Vec::new(),
            snapshot: Snapshot { environment, ..Snapshot::default() },
            on_cpu: Vec::new(),
            plan: Plan::default(),
            last_at: None,
            placed: false,
            was_paused: false,
            open: false,
            pinning: false,
            cover: Cover::default(),
            handover: Handover::default(),
            gave_up_at: now,
            window_began: now,
            points: 0,
            migrations: 0,
            failed: 0,
            cost: CostBreakdown::default(),
            period_cost: Nanos::ZERO,
            paid: Nanos::ZERO,
            cpu_time: Nanos::ZERO,
            balanced_for: Nanos::ZERO,
            slowest_slot: 0.0,
            idle: Nanos::ZERO,
            most_threads: 0,
            finished: Vec::new(),
            notes: Vec::new(),
            complained: false,
            board: None,
            members_changed: false,
            asks: true,
            effort: Effort::default(),
            moving: Vec::new(),
            memory_looks: MemoryLooks::default(),
            options,
        }
    }

    /// Changes what policies that give threads parts of CPUs go by.
    pub fn tune(&mut self, parameters: &Parameters) {
        Arc::make_mut(&mut self.snapshot.environment).tuning = parameters.clone();
    }

    /// Which task of the program a thread of the domain is.
    pub fn number(&mut self, id: ThreadId, number: u64) {
        if let Some(e) = self.entities.iter_mut().find(|e| e.meta.id == id) {
            e.number = Some(number);
        }
    }

    /// A balancer for each CPU of the domain, and their caretaker. Its points are [`CARE`] periods
    /// apart. Threads go from one of `nodes` to another only while few are moved; without nodes all
    /// CPUs are of one. `interval` is lambda at first, `cut_off` how balancers search.
    #[must_use]
    pub fn decentral(
        options: BalancerOptions,
        cut_off: CutOff,
        nodes: &[CpuSet],
        interval: Nanos,
        seed: u64,
        now: Nanos,
    ) -> (Self, Decentral) {
        let board = Arc::new(Board::new(&options.cpus, nodes, interval));
        let balancers =
            (0..board.seats()).map(|seat| CpuBalancer::new(seat, cut_off, seed, now)).collect();
        let caretaker = Self {
            board: Some(board.clone()),
            policy: Box::new(Spreading::default()),
            ..Self::new(options, now)
        };
        (caretaker, Decentral { board, balancers })
    }

    fn knowledge(&self) -> Option<Arc<Knowledge>> {
        self.snapshot.environment.knowledge.clone()
    }

    /// Which domain this is.
    #[must_use]
    pub fn domain(&self) -> DomainId {
        self.options.domain
    }

    /// The CPUs of the domain.
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.options.cpus
    }

    /// The threads that it holds, each with the CPUs of this domain that it may use.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, &CpuSet)> {
        self.entities.iter().map(|e| (e.meta.id, &self.masks[e.mask]))
    }

    /// How many threads it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entities.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entities.is_empty()
    }

    /// How many of its CPUs could be used when last looked at.
    #[must_use]
    pub fn usable_cpus(&self) -> usize {
        self.snapshot.cpus.len()
    }

    /// CPU time that balancing cost in the period that the last point ended. With a balancer for each
    /// CPU that is the mean over the periods since the caretaker's point before, of what all of them
    /// took and of its own.
    #[must_use]
    pub fn period_cost(&self) -> Nanos {
        self.period_cost
    }

    /// Threads per CPU of the domain, as last seen.
    pub fn counts(&self) -> impl Iterator<Item = (CpuId, u32)> + '_ {
        self.snapshot.cpus.iter().map(|c| (c.id, c.threads))
    }

    /// Takes a thread in. `original` is the mask that it had when it was met.
    pub fn join(
        &mut self,
        machine: &mut dyn Machine,
        selection: Selection,
        original: &CpuSet,
        observers: &mut [Box<dyn Observer>],
    ) {
        let now = machine.now();
        let thread = selection.thread;
        let within = original.and(&self.options.cpus);
        let mask = self.masks.iter().position(|m| *m == within).unwrap_or_else(|| {
            self.masks.push(within.clone());
            self.masks.len() - 1
        });
        let base = match &self.options.wanted {
            Some(wanted) => original.and(wanted),
            None => original.clone(),
        };
        let mut movable = !within.is_empty();
        let mut foreign = false;
        let wanted = if self.was_paused || self.open { &base } else { &within };
        if movable && wanted != original && self.options.policy.mechanism != Mechanism::Nothing {
            match machine.confine(thread.id, wanted) {
                // What cannot be used now is asked for again when the thread is placed.
                Ok(()) | Err(ApplyError::Unusable { .. }) => {}
                Err(ApplyError::Gone) => return,
                Err(e) => {
                    movable = false;
                    foreign = matches!(e, ApplyError::Foreign { .. });
                    self.complain(now, thread.id, &e, observers);
                }
            }
        }
        let since_baseline = (thread.times.ran - selection.baseline.ran).0 as i64;
        // A thread that joins others at work starts level with them: its past is not theirs.
        let first = self.points == 0 || self.entities.is_empty();
        let member = self.board.as_ref().map(|board| {
            let (times, at) = (thread.times, thread.read_at);
            board.join(thread.id, within, times, at, first.then_some(since_baseline))
        });
        let progress = match &member {
            Some(member) => member.account().progress,
            None if first => since_baseline,
            None => {
                (self.entities.iter().map(|e| e.progress as i128).sum::<i128>()
                    / self.entities.len() as i128) as i64
            }
        };
        self.members_changed = true;
        let meta = ThreadMeta { id: thread.id, pid: thread.pid, name: thread.name };
        for o in observers.iter_mut() {
            o.event(&Event::Joined {
                at: now - self.began,
                domain: self.options.domain,
                thread: meta.clone(),
            });
        }
        self.entities.push(Entity {
            meta,
            last: thread.times,
            retired: None,
            newly_retired: None,
            told: Told::new(now),
            weight: None,
            weighs: None,
            phase: InPhase::default(),
            read_at: thread.read_at,
            progress,
            cpu: None,
            movable,
            foreign,
            mask,
            base,
            quiet: Nanos::ZERO,
            window: Window { began: thread.read_at, times: thread.times, unexplained: Nanos::ZERO },
            unexplained: Nanos::ZERO,
            not_run_for: Nanos::ZERO,
            waits: false,
            ran_on: false,
            seen: None,
            migrations: 0,
            joined: thread.read_at,
            ran: Nanos::ZERO,
            waited: Nanos::ZERO,
            blocked: Nanos::ZERO,
            spinning: Nanos::ZERO,
            overbooked: Nanos::ZERO,
            ahead_of_kernel: Nanos::ZERO,
            gained: Nanos::ZERO,
            total_ran: Nanos::ZERO,
            total_waited: Nanos::ZERO,
            total_blocked: Nanos::ZERO,
            total_spun: Nanos::ZERO,
            counted: None,
            minor_faults: 0,
            major_faults: 0,
            member,
            number: None,
        });
        self.most_threads = self.most_threads.max(self.entities.len() as u32);
        self.placed = false;
        self.guard.disturbed(now);
    }

    /// Takes CPUs in that were not there when the domain was made. They are used from the next point
    /// on, and threads that are not pinned may go there at once.
    pub fn adopt(
        &mut self,
        machine: &mut dyn Machine,
        cpus: &CpuSet,
        observers: &mut [Box<dyn Observer>],
    ) {
        let now = machine.now();
        self.options.cpus = self.options.cpus.or(cpus);
        self.looked_at_cpus = None;
        // Threads that shared a mask may now differ; those that have left keep their number.
        let mut widened = vec![false; self.masks.len()];
        for i in 0..self.entities.len() {
            let within = self.entities[i].base.and(&self.options.cpus);
            let old = self.entities[i].mask;
            if !widened[old] {
                (widened[old], self.masks[old]) = (true, within);
            } else if self.masks[old] != within {
                let same = self.masks.iter().position(|m| *m == within);
                self.entities[i].mask = same.unwrap_or_else(|| {
                    self.masks.push(within);
                    widened.push(true);
                    self.masks.len() - 1
                });
            }
            let e = &self.entities[i];
            // Paused, or open, it has more already; pinned, it is placed anew.
            let roams = !(self.was_paused || self.open || self.pinning);
            if roams && e.movable && self.options.policy.mechanism != Mechanism::Nothing {
                let (id, mask) = (e.meta.id, self.masks[e.mask].clone());
                match machine.confine(id, &mask) {
                    Ok(()) | Err(ApplyError::Gone | ApplyError::Unusable { .. }) => {}
                    Err(error) => self.leave_alone(i, now, &error, observers),
                }
            }
        }
        let text = format!(
            "CPUs {cpus} were not there before, and belong to domain {} now",
            self.domain()
        );
        self.note(now, text, observers);
    }

    /// Gives a thread up, with its original mask, so that it can join the domain `to`. Its account
    /// here is closed with the last point; what it did since is counted there. None where it is not here
    /// or cannot be moved: then it stays as it is.
    pub fn release(
        &mut self,
        machine: &mut dyn Machine,
        id: ThreadId,
        to: DomainId,
        observers: &mut [Box<dyn Observer>],
    ) -> Option<Selection> {
        let index = self.entities.iter().position(|e| e.meta.id == id)?;
        let pid = self.entities[index].meta.pid;
        if self.entities[index].weighs.take().is_some() {
            machine.unweigh(pid, id);
        }
        if !self.entities[index].movable || !machine.release(id) {
            return None;
        }
        let e = &self.entities[index];
        let (meta, times, read_at) = (e.meta.clone(), e.last, e.read_at);
        self.drop_entity(index, machine.now(), Parting::To(to), observers);
        let thread = Candidate {
            id,
            pid: meta.pid,
            name: meta.name,
            first: meta.pid.0 == id.tid.0,
            fair: true,
            times,
            state: RunState::Runnable,
            read_at,
        };
        Some(Selection { thread, baseline: times })
    }

    /// Drops a thread that is no longer what it was (it has become another program), so that it is
    /// watched elsewhere until it computes. Returns its times; None where it is not here. Its mask
    /// is for the caller to give back.
    pub fn let_go(
        &mut self,
        machine: &mut dyn Machine,
        id: ThreadId,
        now: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) -> Option<Times> {
        let index = self.entities.iter().position(|e| e.meta.id == id)?;
        let e = &self.entities[index];
        let times = e.last;
        if e.weighs.is_some() {
            machine.unweigh(e.meta.pid, id);
        }
        self.drop_entity(index, now, Parting::Idle, observers);
        Some(times)
    }

    /// One balancing point. Returns threads that no longer compute, with their times: they are to
    /// be watched elsewhere until they do again.
    pub fn point(
        &mut self,
        machine: &mut dyn Machine,
        period: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) -> Vec<(ThreadId, Times)> {
        let cpu_before = machine.own_cpu_time();
        let now = machine.now();
        let elapsed = self.last_at.map_or(Nanos::ZERO, |l| now - l);
        let since = now - self.last_at.unwrap_or(self.began);
        self.last_at = Some(now);

        let mut moves = self.hear(now, period, observers);
        // What is done once a point is done so much more rarely.
        let period = if self.board.is_some() { period.scale(CARE) } else { period };
        self.look_at_cpus(machine, now, observers);
        self.look_at_neighbours(machine, now, observers);
        // Who places threads by load asks for no turns.
        self.short_phases = self.knowledge().is_none() && self.phases.are_short(period);
        let left = self.observe(machine, now, elapsed == Nanos::ZERO, observers);
        self.locate(machine, now);
        self.fill_snapshot(machine, now, elapsed);
        self.pin_or_release(machine, now);
        self.snapshot.held = self.pinning;
        let observed = machine.now();

        let paused = self.pause(machine, now, elapsed, period, observers);
        self.plan.clear();
        // One thread is enough: where it is pinned beside a stranger, only we can free it.
        let enough = !self.snapshot.threads.is_empty() && !self.snapshot.cpus.is_empty();
        let mut asking = Nanos::ZERO;
        if enough && !paused && self.options.policy.mechanism != Mechanism::Nothing {
            if self.knowledge().is_some() {
                let before = machine.now();
                self.fill_tasks(machine, now, observers);
                asking = machine.now() - before;
            }
            // What cannot be known yet is not acted on: the first point only distributes.
            self.policy.decide(&self.snapshot, &mut self.plan);
            self.snapshot.stayed.clear();
            self.asks = self.plan.asks;
            self.effort.add(self.plan.effort);
        }
        let decided = machine.now();

        moves.extend(self.apply(machine, now, observers));
        self.move_memory(machine, now, observers);
        self.tell(now, paused);
        let applied = machine.now();

        self.estimate(elapsed, paused);
        if observers.iter().any(|o| o.wants_points()) {
            let cost = machine.own_cpu_time() - cpu_before;
            // Where nothing is ever moved there is nothing to pause.
            let paused = paused && self.options.policy.mechanism != Mechanism::Nothing;
            let record = self.record(now, elapsed, paused, cost, moves);
            for o in observers.iter_mut() {
                o.event(&record);
            }
        }
        self.points += 1;
        self.cost.read += observed - now + asking;
        self.cost.decide += decided - observed - asking;
        self.cost.apply += applied - decided;
        self.cost.record += machine.now() - applied;
        let cost = machine.own_cpu_time() - cpu_before;
        self.cpu_time += cost;
        self.period_cost = self.board.as_ref().map_or(cost, |board| {
            let all = board.cpu_time();
            let others = all - std::mem::replace(&mut self.paid, all);
            (cost + others).scale(1.0 / board.periods(since))
        });
        left
    }

    /// Hears from the balancers of CPUs where threads are by now. Returns the moves that they have
    /// made, if anybody wants them.
    fn hear(
        &mut self,
        now: Nanos,
        period: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) -> Vec<MoveRecord> {
        let Some(board) = self.board.clone() else { return Vec::new() };
        board.set_interval(period);
        board.heard();
        for e in &mut self.entities {
            if let Some(seat) = e.member.as_ref().and_then(|m| m.seat()) {
                e.cpu = Some(board.cpu(seat));
            }
        }
        for Complaint { id, error } in board.take_complaints() {
            if matches!(error, ApplyError::Unusable { .. }) {
                self.looked_at_cpus = None;
                continue;
            }
            // One that has left is alone already.
            if let Some(i) = self.entities.iter().position(|e| e.meta.id == id) {
                self.leave_alone(i, now, &error, observers);
            }
        }
        board.keep_log(observers.iter().any(|o| o.wants_points()));
        board.take_log()
    }

    /// Tells the balancers of CPUs who is where, and whether they may move threads.
    fn tell(&mut self, now: Nanos, paused: bool) {
        let Some(board) = &self.board else { return };
        for e in &self.entities {
            if let Some(member) = &e.member {
                board.put(member, e.cpu);
                member.set_movable(e.movable);
            }
        }
        board.set_cpus(&self.snapshot.cpus);
        if std::mem::take(&mut self.members_changed) {
            board.set_members(self.entities.iter().filter_map(|e| e.member.clone()));
        }
        let active = self.placed && self.pinning && !paused && !self.open;
        if active && !self.entities.is_empty() {
            // Progress so far, at the rate of threads that share the CPUs evenly: so that from the
            // first moment on rates hardly change by themselves.
            let (n, m) = (self.entities.len() as f64, self.usable.len() as f64);
            let progress = self.entities.iter().map(|e| e.progress.max(0) as f64).sum::<f64>() / n;
            board.begin(now - Nanos((progress / (m / n).min(1.0)) as u64));
        }
        board.set_active(active);
    }

    fn look_at_cpus(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) {
        if self.looked_at_cpus.is_some_and(|t| now - t < LOOK_AT_CPUS) {
            return;
        }
        self.looked_at_cpus = Some(now);
        let usable = machine.usable(&self.options.cpus);
        if usable == self.usable {
            return;
        }
        self.usable = usable;
        self.placed = false;
        self.guard.disturbed(now);
        for e in &mut self.entities {
            if e.cpu.is_some_and(|c| !self.usable.contains(c)) {
                e.cpu = None;
            }
        }
        self.snapshot.cpus.clear();
        self.snapshot.cpus.extend(self.usable.iter().map(|id| CpuView {
            id,
            capacity: machine.capacity(id),
            threads: 0,
            speed: None,
            paper_speed: None,
        }));
        for o in observers {
            o.event(&Event::Domain {
                at: now - self.began,
                domain: self.options.domain,
                cpus: self.usable.clone(),
            });
        }
    }

    /// Others that balance on the same CPUs: that they are there is said once, and threads are
    /// placed where those have fewer that were there first.
    fn look_at_neighbours(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) {
        if self.options.policy.mechanism == Mechanism::Nothing
            || self.looked_at_neighbours.is_some_and(|t| now - t < LOOK_AT_NEIGHBOURS)
        {
            return;
        }
        self.looked_at_neighbours = Some(now);
        let neighbours = machine.neighbours();
        for n in &neighbours {
            let here = n.threads.iter().any(|(c, _)| self.usable.contains(*c));
            if here && !self.neighbours_known.contains(&n.pid) {
                self.neighbours_known.push(n.pid);
                let text = format!("another evenly (process {}) balances on the same CPUs", n.pid);
                self.note(now, text, observers);
            }
        }
        let on = |cpu: CpuId| -> u32 {
            let first = neighbours.iter().filter(|n| n.was_first);
            first
                .flat_map(|n| &n.threads)
                .filter(|(c, _)| *c == cpu)
                .map(|(_, k)| u32::from(*k))
                .sum()
        };
        let mut taken: Vec<u32> = self.snapshot.cpus.iter().map(|c| on(c.id)).collect();
        if taken.iter().all(|&k| k == 0) {
            taken.clear();
        }
        if taken != self.snapshot.taken {
            self.snapshot.taken = taken;
            // Threads that the kernel moves as well are not worth placing anew.
            if self.pinning {
                self.placed = false;
            }
        }
    }

    fn observe(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        first: bool,
        observers: &mut [Box<dyn Observer>],
    ) -> Vec<(ThreadId, Times)> {
        self.ids.clear();
        self.ids.extend(self.entities.iter().map(|e| e.meta.id));
        self.unclear.clear();
        match self.board.clone() {
            Some(board) => self.read_what_is_unread(&board, machine, now),
            None => {
                machine.read(&self.ids, &mut self.readings);
                self.count_instructions(machine);
            }
        }
        self.ask_the_ended(machine);
        machine.waiting(&self.ids, &mut self.waiting);
        for (e, said) in self.entities.iter_mut().zip(&self.waiting) {
            e.told.hear(*said);
        }
        let short = self.short_phases;
        let mut left = Vec::new();
        let mut i = 0;
        let mut busy = false;
        let mut unknown = 0;
        for k in 0..self.ids.len() {
            let reading = self.readings.get(k).copied().unwrap_or_default();
            let times = match reading {
                Reading::Times(times) => times,
                Reading::Gone => {
                    // What it was given may outlive it, as control groups do.
                    let e = &self.entities[i];
                    if e.weighs.is_some() {
                        machine.unweigh(e.meta.pid, e.meta.id);
                    }
                    self.drop_entity(i, now, Parting::Ended, observers);
                    continue;
                }
                Reading::Unknown => {
                    let e = &mut self.entities[i];
                    (e.seen, e.ran_on) = (None, false);
                    unknown += 1;
                    i += 1;
                    continue;
                }
            };
            let e = &mut self.entities[i];
            let read_at = self.read_at.get(k).copied().unwrap_or(now);
            // A thread that has just joined was not here for the whole period, or was read last in
            // another domain, at another time.
            let elapsed = read_at - e.read_at;
            e.read_at = read_at;
            if times.ran < e.last.ran {
                // The thread's counters were replaced: a thread that is not the leader called
                // exec and took over this id. What it did before is not known here.
                e.last = times;
                e.window = Window { began: read_at, times, unexplained: Nanos::ZERO };
                e.unexplained = Nanos::ZERO;
            }
            let ran = times.ran - e.last.ran;
            let told = times.waited - e.last.waited;
            let waiting_booked = told - e.ahead_of_kernel;
            e.ahead_of_kernel = e.ahead_of_kernel - told;
            e.ran_on = times.slices == e.last.slices && ran.0 * 4 >= elapsed.0 * 3;
            e.last = times;
            e.seen = None;
            let missing = elapsed - ran;
            let waited = told.min(missing);
            if ran > Nanos::ZERO {
                (e.not_run_for, e.waits) = (Nanos::ZERO, false);
                e.unexplained = missing - waited;
            } else {
                e.not_run_for += elapsed;
                e.unexplained += missing - waited;
            }
            if elapsed > Nanos::ZERO {
                let cpus = &self.snapshot.cpus;
                let on = e.cpu.and_then(|c| cpus.binary_search_by_key(&c, |v| v.id).ok());
                let by_time = || ran.scale(on.map_or(1.0, |c| cpus[c].weight()));
                let counted = e.newly_retired.and_then(|k| self.rates.time(k));
                let gained = counted.unwrap_or_else(by_time);
                let period = Stretch { index: i, elapsed, ran, waited, waiting_booked, gained };
                if (ran + waited).0 * 4 < elapsed.0 * 3 {
                    self.unclear.push(period);
                } else {
                    busy |= e.book(&period, first, short);
                }
            }
            i += 1;
        }
        self.tell_of_unknown(unknown, now, observers);
        busy |= self.clear_up(machine, now, first);
        for e in &mut self.entities {
            // Theirs knows on which CPU it was when.
            if let Some(member) = &e.member {
                e.progress = member.account().progress;
            }
        }
        self.level_at_barriers(now);
        // While nobody computes (all wait for input, say), nobody is given back: the program as a
        // whole rests.
        if busy {
            let mut i = 0;
            while i < self.entities.len() {
                if self.entities[i].quiet >= QUIET {
                    let e = &self.entities[i];
                    left.push((e.meta.id, e.last));
                    machine.restore(e.meta.id);
                    if e.weighs.is_some() {
                        machine.unweigh(e.meta.pid, e.meta.id);
                    }
                    self.drop_entity(i, now, Parting::Idle, observers);
                } else {
                    i += 1;
                }
            }
        }
        left
    }

    /// Counts leads from the last barrier on, where all threads tell of those that they reach.
    fn level_at_barriers(&mut self, now: Nanos) {
        // Where each CPU has a balancer, that knows progress; and to who places threads by load, what they
        // compute is load and not a lead.
        if self.waiting.is_empty() || self.board.is_some() || self.knowledge().is_some() {
            return;
        }
        let elapsed = now - self.snapshot.now;
        let mut all: Vec<Participant<'_>> = Vec::with_capacity(self.entities.len());
        for e in &mut self.entities {
            let Some(told) = e.told.last() else {
                self.phases = Phases::default();
                return;
            };
            let (progress, phase) = (&mut e.progress, &mut e.phase);
            all.push(Participant { told, gained: e.gained, progress, phase });
        }
        self.phases.point(now, elapsed, &mut all);
    }

    /// For how many threads that share a CPU the period is to have turns ([`crate::PeriodControl`]). Where
    /// threads tell that they have unequal work, what counts is how soon it is seen who waits, and not
    /// whether shares are fair yet: then two, however many there are.
    #[must_use]
    pub fn taking_turns(&self) -> usize {
        if self.phases.are_uneven() { 2 } else { self.len().div_ceil(self.usable_cpus().max(1)) }
    }

    /// Whether nothing is to be done until somebody comes: in the last period no thread shared its CPU with
    /// another, with work of ours or of others, none was moved, and none tells of unequal work.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let s = &self.snapshot;
        let alone = |waited: Nanos| waited.0 as f64 <= CALM * s.elapsed.0 as f64;
        self.taking_turns() <= 1
            && !self.phases.are_uneven()
            // Who only watches is to see what happens.
            && self.options.policy.mechanism != Mechanism::Nothing
            && self.plan.moves.is_empty()
            && s.elapsed > Nanos::ZERO
            && s.threads.iter().all(|t| alone(t.waited))
    }

    /// How long the phases of the program last, on average over the last ones, where its threads tell.
    #[must_use]
    pub fn phase_length(&self) -> Option<Nanos> {
        self.phases.length()
    }

    /// Says once that threads cannot be read for long.
    fn tell_of_unknown(&mut self, threads: usize, now: Nanos, observers: &mut [Box<dyn Observer>]) {
        let Some(since) = (threads > 0).then(|| *self.unknown_since.get_or_insert(now)) else {
            self.unknown_since = None;
            return;
        };
        if now - since >= UNKNOWN && !self.told_of_unknown {
            self.told_of_unknown = true;
            let text = format!(
                "the times of {threads} threads could not be read for {UNKNOWN}; they are balanced by \
                 what is known of them"
            );
            self.note(now, text, observers);
        }
    }

    /// What the balancers of CPUs have read, and the times of threads that none of them has read for
    /// a while: those on no CPU of the domain.
    fn read_what_is_unread(&mut self, board: &Board, machine: &mut dyn Machine, now: Nanos) {
        let long = board.interval().scale(UNREAD);
        self.readings.clear();
        self.read_at.clear();
        for e in &self.entities {
            let mut known = e.member.as_ref().map(|m| m.account()).unwrap_or_default();
            if !known.gone && now - known.at >= long {
                let read = e.member.as_ref().and_then(|m| m.read(board, machine));
                known = read.unwrap_or(Account { gone: true, ..known });
            }
            // The machine through which masks are set must know as well that a thread has ended.
            let reading = if known.gone && machine.read_one(e.meta.id) == Reading::Gone {
                Reading::Gone
            } else if now - known.at >= long {
                Reading::Unknown
            } else {
                Reading::Times(known.times)
            };
            self.readings.push(reading);
            self.read_at.push(known.at);
        }
    }

    /// Asks how many instructions the threads have retired, where they are counted, and finds out how
    /// fast CPUs are from it.
    fn count_instructions(&mut self, machine: &mut dyn Machine) {
        machine.retired(&self.ids, &mut self.retired);
        if self.retired.is_empty() {
            return;
        }
        for (i, e) in self.entities.iter_mut().enumerate() {
            e.newly_retired = None;
            if !matches!(self.readings.get(i), Some(Reading::Times(_))) {
                // Both are of the same period, or neither is known.
                continue;
            }
            let before = std::mem::replace(&mut e.retired, self.retired.get(i).copied().flatten());
            e.newly_retired = match (before, e.retired) {
                (Some(before), Some(now)) => now.checked_sub(before),
                _ => None,
            };
            if let (Some(newly), Some(Reading::Times(times)), Some(cpu)) =
                (e.newly_retired, self.readings.get(i), e.cpu)
                && times.ran > e.last.ran
                // What is retired while one spins says nothing of the CPU.
                && e.spinning.0 * 2 <= (e.ran + e.waited).0
            {
                self.rates.add(cpu, newly, times.ran - e.last.ran);
            }
        }
        self.rates.settle();
    }

    /// Books the periods of threads for much of whose time there is no account yet. Either such a
    /// thread waits for its CPU at this moment, which is booked when it gets it, or it has given its
    /// CPU up: that is to be seen in its state, which costs ten times as much as its times.
    ///
    /// A thread that was seen runnable, and has not run since, still waits: it would have to run in
    /// order to block. Where nobody has given up a CPU for a while, the others are taken to wait as
    /// well, and only some are looked at, those first that have not run for longest: they have
    /// either waited longest or blocked.
    fn clear_up(&mut self, machine: &mut dyn Machine, now: Nanos, first: bool) -> bool {
        let mut unclear = std::mem::take(&mut self.unclear);
        let mut unseen = self.entities.len().div_ceil(THREADS_PER_LOOK);
        unclear.sort_unstable_by_key(|s| std::cmp::Reverse(self.entities[s.index].not_run_for));
        let mut busy = false;
        for s in &mut unclear {
            let steady = self.nobody_gave_up(now);
            let e = &mut self.entities[s.index];
            let waits = if e.waits {
                true
            } else if steady && unseen == 0 {
                // Not remembered: it is not known.
                true
            } else {
                unseen = unseen.saturating_sub(1);
                e.seen = machine.locate(e.meta.id);
                let state = e.seen.map(|l| l.state);
                if state == Some(RunState::Blocked) {
                    self.gave_up_at = now;
                }
                e.waits = state == Some(RunState::Runnable);
                e.waits
            };
            if waits && (s.ran + s.waited).0 * 4 < s.elapsed.0 {
                s.waited = s.elapsed - s.ran;
                e.ahead_of_kernel += s.waited - s.waiting_booked;
                s.waiting_booked = s.waiting_booked.max(s.waited);
            }
            busy |= e.book(s, first, self.short_phases);
        }
        self.unclear = unclear;
        busy
    }

    fn drop_entity(
        &mut self,
        index: usize,
        now: Nanos,
        why: Parting,
        observers: &mut [Box<dyn Observer>],
    ) {
        let e = self.entities.remove(index);
        if let Some(member) = &e.member {
            member.set_movable(false);
        }
        self.members_changed = true;
        let to = match why {
            Parting::To(domain) => Some(domain),
            Parting::Ended | Parting::Idle => None,
        };
        let ended = why == Parting::Ended;
        for o in observers {
            o.event(&Event::Left { at: now - self.began, id: e.meta.id, ended, to });
        }
        self.guard.disturbed(now);
        let summary = summary_of(&e, if to.is_some() { e.read_at } else { now });
        self.finished.push((summary, e.mask));
    }

    /// Finds where threads are. A pinned thread is where it was put, and one that has kept its CPU
    /// is where it was: a thread that is moved is given a CPU anew. Those are looked at only now and
    /// then, for their page faults; the others must be looked for, which costs ten times as much as
    /// reading their times.
    fn locate(&mut self, machine: &mut dyn Machine, now: Nanos) {
        let fixed = self.pinning && self.placed && !self.guard.paused() && !self.guard.stood_down();
        let all = now - self.looked_at_all > LOOK_AT_ALL;
        if all {
            self.looked_at_all = now;
        }
        for e in &mut self.entities {
            let stays = e.ran_on || (fixed && e.movable);
            if all || e.cpu.is_none() || !stays {
                let seen = e.seen.take();
                // One that was moved a moment ago, by the balancer of a CPU, may not have run there
                // yet.
                let put = e.cpu.filter(|_| fixed && e.movable && e.member.is_some());
                e.found(seen.or_else(|| machine.locate(e.meta.id)));
                e.cpu = put.or(e.cpu);
            }
        }
    }

    fn fill_snapshot(&mut self, machine: &mut dyn Machine, now: Nanos, elapsed: Nanos) {
        let s = &mut self.snapshot;
        s.point = if self.placed { self.points.max(1) } else { 0 };
        s.now = now;
        s.elapsed = elapsed;
        s.resolution = machine.resolution();
        s.masks.resize_with(self.masks.len(), Vec::new);
        for (flags, mask) in s.masks.iter_mut().zip(&self.masks) {
            flags.clear();
            flags.extend(s.cpus.iter().map(|c| mask.contains(c.id)));
        }
        s.threads.clear();
        for e in &self.entities {
            // A thread on a CPU outside the domain (its CPU went away, or the kernel had it
            // there) is counted nowhere until it has been brought in.
            let cpu = e
                .cpu
                .and_then(|c| s.cpus.binary_search_by_key(&c, |v| v.id).ok())
                .unwrap_or(usize::MAX);
            s.threads.push(ThreadView {
                id: e.meta.id,
                cpu,
                progress: e.progress,
                ran: e.ran,
                waited: e.waited,
                blocked: e.blocked,
                spinning: if self.short_phases { Nanos::ZERO } else { e.spinning },
                turns: e.told.turns(now).map(|t| Turns {
                    computed: e.total_ran - e.total_spun,
                    spun: e.total_spun,
                    ..t
                }),
                movable: e.movable,
                mask: e.mask,
            });
        }
        // One pass over the threads: a pass for each CPU would be threads times CPUs.
        self.on_cpu.clear();
        self.on_cpu.resize(s.cpus.len(), OnCpu::default());
        for t in &s.threads {
            if let Some(on) = self.on_cpu.get_mut(t.cpu) {
                on.add(t);
            }
        }
        for (cpu, on) in s.cpus.iter_mut().zip(&self.on_cpu) {
            cpu.threads = on.threads();
            if !self.retired.is_empty() {
                // A CPU on which nothing was counted keeps what the kernel says.
                cpu.capacity = self.rates.capacity(cpu.id).unwrap_or(cpu.capacity);
            }
            cpu.speed = on.speed(elapsed);
            cpu.paper_speed = on.paper_speed(elapsed);
            if let Some(board) = &self.board {
                // Threads have been on several CPUs since the last point.
                cpu.speed = board.speed(cpu.id);
            }
        }
    }

    /// What threads are in their program, for a policy that asks.
    fn fill_tasks(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) {
        self.snapshot.tasks.clear();
        self.snapshot.memory.clear();
        let sizes = self.asks;
        let mut last: Option<(Pid, f64)> = None;
        for e in &self.entities {
            let pid = e.meta.pid;
            // Threads of a process mostly stand side by side.
            let bytes = match last {
                Some((of, bytes)) if of == pid => bytes,
                _ if sizes => machine.memory_of(pid).map_or(0.0, |b| b as f64),
                _ => 0.0,
            };
            last = Some((pid, bytes));
            let number = e.number;
            let task = TaskView { process: pid, number, process_bytes: bytes, computed: None };
            self.snapshot.tasks.push(task);
        }
        self.snapshot.links = None;
        if sizes {
            self.look_at_memory(machine, now, observers);
            self.ask_ranks(machine);
        }
    }

    /// What ranks have computed and sent, where they tell.
    fn ask_ranks(&mut self, machine: &mut dyn Machine) {
        let threads: Vec<(ThreadId, Nanos)> =
            self.entities.iter().map(|e| (e.meta.id, e.last.ran)).collect();
        let mut told = Vec::with_capacity(threads.len());
        if !machine.ranks(&threads, &mut told) {
            return;
        }
        for ((task, e), told) in self.snapshot.tasks.iter_mut().zip(&mut self.entities).zip(&told) {
            task.computed = told.as_ref().map(|t| t.computed);
            if let Some(computed) = task.computed {
                e.agree(computed);
            }
        }
        self.snapshot.links = Some(links(&told));
    }

    /// What ranks that have ended had counted in the end. Before they are dropped.
    fn ask_the_ended(&mut self, machine: &mut dyn Machine) {
        let is_gone = |k: &usize| matches!(self.readings.get(*k), Some(Reading::Gone));
        let gone: Vec<usize> = (0..self.entities.len()).filter(is_gone).collect();
        if gone.is_empty() {
            return;
        }
        let threads: Vec<(ThreadId, Nanos)> = gone
            .iter()
            .filter_map(|&k| self.entities.get(k).map(|e| (e.meta.id, e.last.ran)))
            .collect();
        let mut told = Vec::with_capacity(threads.len());
        if machine.ranks(&threads, &mut told) {
            for (k, told) in gone.into_iter().zip(told) {
                if let (Some(e), Some(told)) = (self.entities.get_mut(k), told) {
                    e.agree(told.computed);
                }
            }
        }
    }

    /// Where processes have their memory, as far as that may be looked at now.
    fn look_at_memory(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) {
        let Some(knowledge) = self.knowledge().filter(|k| k.nodes.len() > 1) else { return };
        let here: BTreeSet<Pid> = self.entities.iter().map(|e| e.meta.pid).collect();
        self.memory_looks.begin(&here, now);
        let before = machine.own_cpu_time();
        let mut spent = Nanos::ZERO;
        while spent < MEMORY_LOOKS_AT_ONCE
            && let Some(process) = self.memory_looks.due.pop_front()
        {
            // What is on its way is neither here nor there.
            if self.moving.iter().any(|m| m.process == process) {
                continue;
            }
            match machine.memory_on_nodes(process) {
                Ok(found) => {
                    let mut view = MemoryView {
                        process,
                        on: vec![0.0; knowledge.nodes.len()],
                        elsewhere: 0.0,
                    };
                    for (number, bytes) in found {
                        let at = knowledge.nodes.iter().position(|(n, _)| *n == number);
                        *at.map_or(&mut view.elsewhere, |at| &mut view.on[at]) += bytes as f64;
                    }
                    self.snapshot.memory.push(view);
                }
                Err(MemoryUnknown::Gone) => {}
                Err(MemoryUnknown::Unreadable(why)) => {
                    if !std::mem::replace(&mut self.memory_looks.told, true) {
                        let text = format!(
                            "the memory of process {process} cannot be read; as for all such processes, it is taken \
                             to be where the process was first seen computing: {why}"
                        );
                        self.note(now, text, observers);
                    }
                }
            }
            spent = machine.own_cpu_time() - before;
        }
        self.memory_looks.spent(spent, now);
    }

    /// Begins to move the memory that is in the plan, and goes on with what is on its way.
    fn move_memory(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) {
        let Some(knowledge) = self.knowledge() else { return };
        let number = |node: usize| knowledge.nodes.get(node).map_or(0, |(number, _)| *number);
        for m in std::mem::take(&mut self.plan.memory) {
            if machine.move_memory(m.process, number(m.from), number(m.to)) {
                self.moving.push(m);
            } else {
                self.snapshot.stayed.push(m);
            }
        }
        if self.moving.is_empty() {
            return;
        }
        let Some(done) = machine.go_on_moving() else { return };
        let of = |m: &MemoryMove| {
            (m.process, number(m.from), number(m.to)) == (done.pid, done.from, done.to)
        };
        if let Some(at) = self.moving.iter().position(of) {
            let planned = self.moving.remove(at);
            if done.bytes < done.stayed || done.error.is_some() {
                self.snapshot.stayed.push(planned);
            }
        }
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let mut text = format!(
            "memory of process {} moved from node {} to node {}: {:.1} MiB",
            done.pid,
            done.from,
            done.to,
            mib(done.bytes)
        );
        if done.stayed > 0 {
            text.push_str(&format!(", {:.1} MiB stayed", mib(done.stayed)));
        }
        if let Some(error) = &done.error {
            text.push_str(&format!("; then: {error}"));
        }
        self.note(now, text, observers);
    }

    /// Pins all threads where they are, or releases all, where that has become right.
    fn pin_or_release(&mut self, machine: &mut dyn Machine, now: Nanos) {
        let nobody_gives_up = self.nobody_gives_up(now);
        let hold = match self.options.policy.mechanism {
            Mechanism::Nothing => return,
            Mechanism::Pin => true,
            Mechanism::Nudge => nobody_gives_up,
        };
        let pin = hold && !self.open && self.cover.is_possible(&self.snapshot);
        if pin && self.pinning {
            // The kernel does not even out what is pinned, so there is no point in waiting for it to
            // do so: the policy is to distribute as at the first time.
            if self.options.policy.mechanism == Mechanism::Nudge
                && !self.cover.is_there(&self.snapshot)
            {
                self.snapshot.point = 0;
            }
            return;
        }
        if pin == self.pinning {
            return;
        }
        self.pinning = pin;
        if pin {
            // Those that are not moved now are pinned where they are: after this distribution.
            self.placed = false;
            self.snapshot.point = 0;
            return;
        }
        self.let_roam(machine);
    }

    /// Where a thread may run that is not pinned.
    fn roaming_mask<'a>(&'a self, e: &'a Entity) -> &'a CpuSet {
        if self.open { &e.base } else { &self.masks[e.mask] }
    }

    /// Opens the domain where threads that are confined to their domains leave CPUs to nobody
    /// ([`crate::left_to_nobody`], promise P2), and closes it when that is over.
    pub fn open(&mut self, machine: &mut dyn Machine, open: bool) {
        if open == self.open {
            return;
        }
        self.open = open;
        if let Some(board) = &self.board {
            // The next point lets them, if that is still right.
            board.set_active(false);
        }
        if self.was_paused || self.pinning || self.options.policy.mechanism == Mechanism::Nothing {
            // The next point releases what is pinned.
            return;
        }
        for e in self.entities.iter().filter(|e| e.movable && self.masks[e.mask] != e.base) {
            // One that cannot be moved now is moved at the next point.
            let _ = machine.confine(e.meta.id, self.roaming_mask(e));
        }
    }

    /// Whether every thread has kept its CPU busy for a while: then moved threads are held where
    /// they were put, also where the mechanism is to release them.
    ///
    /// A thread is released so that the kernel can pull it to a CPU that falls idle. Where nobody
    /// gives up its CPU none falls idle, and all that the kernel does with released threads is to
    /// undo the balance: its own balancing evens out numbers of threads, not progress. So as long as
    /// every thread computes (or spins) without a break, moved threads are held; as soon as one
    /// blocks or yields all are released.
    fn nobody_gives_up(&mut self, now: Nanos) -> bool {
        let window = now - self.window_began;
        if window >= GIVE_UP_WINDOW {
            let (mut blocked, mut length, mut slices) = (0.0, 0.0, 0.0f64);
            for e in &mut self.entities {
                let next = Window { began: e.read_at, times: e.last, unexplained: e.unexplained };
                let last = std::mem::replace(&mut e.window, next);
                // One that joined meanwhile is judged from then on.
                let own = (next.began - last.began).0 as f64;
                if own <= 0.0 {
                    continue;
                }
                let wanted =
                    (next.times.ran - last.times.ran) + (next.times.waited - last.times.waited);
                // What is not explained yet is judged in the next window; one that waits for ever, or
                // is blocked, is looked at.
                let open = last.unexplained.0 as f64 - next.unexplained.0 as f64;
                // Below zero where more was booked than fits, because some of it belongs to before:
                // it is lacking in the accounts of others, whose waiting has not ended yet.
                blocked += own + open - wanted.0 as f64;
                length += own;
                let given = next.times.slices.saturating_sub(last.times.slices);
                slices = slices.max(given as f64 / own * 1e9);
            }
            self.window_began = now;
            if blocked > GIVE_UP_BLOCKED * length || slices > GIVE_UP_SLICES_PER_S {
                self.gave_up_at = now;
            }
        }
        self.nobody_gave_up(now)
    }

    fn nobody_gave_up(&self, now: Nanos) -> bool {
        now - self.gave_up_at >= HOLD_AFTER
    }

    /// Runs the guard, and enters or leaves a pause. Returns whether nothing may be moved.
    fn pause(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        elapsed: Nanos,
        period: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) -> bool {
        if self.options.policy.mechanism == Mechanism::Nothing {
            return true;
        }
        let before = self.guard.stood_down();
        if elapsed > Nanos::ZERO {
            let threads = self.entities.iter().map(|e| (e.gained, e.blocked + e.spinning));
            self.guard.point(now, elapsed, period, threads);
        }
        let down = self.guard.stood_down();
        if down && !before {
            let v = self.guard.verdict();
            let text = format!(
                "balancing stands down: with it the program progressed at {:.3} of the rate \
                 without it (95 % interval {:.3} to {:.3}, {} comparisons)",
                v.ratio, v.low, v.high, v.pairs
            );
            self.note(now, text, observers);
        }
        let paused = self.guard.paused() || down;
        if paused && !self.was_paused {
            self.level_weights(machine);
            for e in self.entities.iter().filter(|e| e.movable) {
                // One that cannot be released now is released when balancing ends.
                let _ = machine.confine(e.meta.id, &e.base);
            }
        }
        if !paused && self.was_paused {
            self.placed = false;
            self.weigh_anew = true;
            for e in self.entities.iter().filter(|e| e.movable && self.masks[e.mask] != e.base) {
                // As above: the thread runs in a wider domain until it is moved.
                let _ = machine.confine(e.meta.id, self.roaming_mask(e));
            }
        }
        self.was_paused = paused;
        paused
    }

    fn apply(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) -> Vec<MoveRecord> {
        let mut done = Vec::new();
        let first = !self.placed && !self.was_paused;
        let plan = std::mem::take(&mut self.plan);
        if !plan.moves.is_empty() || first {
            done = self.carry_out(machine, now, &plan, first, observers);
            let is_weighed = || self.entities.iter().any(|e| e.weighs.is_some());
            self.weigh_anew |= machine.weighs_cpus() && is_weighed();
        }
        self.weigh(machine, now, &plan, observers);
        self.plan = plan;
        done
    }

    /// Gives threads the weights that are planned, or after a pause those that they had before it.
    fn weigh(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        plan: &Plan,
        observers: &mut [Box<dyn Observer>],
    ) {
        self.weigh_anew |= self.remember_weights(plan);
        let ends = machine.weighs_for().is_some_and(|l| now - self.weighed_at >= Nanos(l.0 / 2))
            && self.entities.iter().any(|e| e.weighs.is_some());
        // What is planned in a pause is given when it is over.
        if self.was_paused || !(self.weigh_anew || ends) {
            return;
        }
        let are_others = std::mem::take(&mut self.weigh_anew);
        self.weighed_at = now;
        let wanted: Vec<Wanted> = self
            .entities
            .iter()
            .enumerate()
            .filter_map(|(i, e)| {
                let (weight, view) = (e.weight?, self.snapshot.threads.get(i));
                let turns = view.filter(|v| v.id == e.meta.id).and_then(|v| v.turns);
                Some(Wanted { process: e.meta.pid, thread: e.meta.id, weight, turns })
            })
            .collect();
        let given = machine.weigh(&wanted);
        self.weighed_by = machine.weighs_by();
        let mut refused = None;
        for (e, given) in self.entities.iter_mut().filter(|e| e.weight.is_some()).zip(given) {
            match given {
                Ok(weight) => e.weighs = Some(weight),
                Err(ApplyError::Gone) => {}
                Err(error) => refused = Some((e.meta.id, error)),
            }
        }
        if let Some((id, error)) = refused
            && !std::mem::replace(&mut self.told_of_weights, true)
        {
            self.note(now, format!("thread {id} keeps its share of a CPU: {error}"), observers);
        }
        let of = |e: &Entity| Some((e.meta.id, e.weighs?));
        let weights: Vec<_> = self.entities.iter().filter_map(of).collect();
        if weights.is_empty() || !are_others {
            return;
        }
        self.weighings += 1;
        let least = weights.iter().map(|w| w.1).fold(f64::INFINITY, f64::min);
        self.weighed = Some((least, weights.iter().map(|w| w.1).fold(0.0, f64::max)));
        if observers.is_empty() {
            return;
        }
        let list: Vec<String> =
            weights.iter().map(|(id, weight)| format!("{id} {weight:.2}")).collect();
        let text = format!("parts of CPUs, by thread: {}", list.join(", "));
        for o in observers {
            o.event(&Event::Note { at: now - self.began, text: text.clone() });
        }
    }

    /// Whether there are any in the plan.
    fn remember_weights(&mut self, plan: &Plan) -> bool {
        for w in &plan.weights {
            if let Some(e) = self.entities.get_mut(w.thread) {
                e.weight = Some(w.weight);
            }
        }
        !plan.weights.is_empty()
    }

    /// Threads have again what they had when they were met.
    fn level_weights(&mut self, machine: &mut dyn Machine) {
        for e in &mut self.entities {
            if e.weighs.take().is_some() {
                machine.unweigh(e.meta.pid, e.meta.id);
            }
        }
    }

    fn carry_out(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        plan: &Plan,
        first: bool,
        observers: &mut [Box<dyn Observer>],
    ) -> Vec<MoveRecord> {
        let pins = self.pinning;
        let mut done = Vec::with_capacity(plan.moves.len());
        let mut handover = std::mem::take(&mut self.handover);
        handover.begin(&self.snapshot, plan, pins);
        let (mut again, mut missed) = (false, false);
        while let Some(act) = handover.next() {
            let Some(m) = plan.moves.get(act.number()) else { continue };
            let (Some(cpu), Some(e)) =
                (self.snapshot.cpus.get(m.to).map(|c| c.id), self.entities.get_mut(m.thread))
            else {
                continue;
            };
            let roaming = if self.open { &e.base } else { &self.masks[e.mask] };
            let id = e.meta.id;
            let from = e.cpu.unwrap_or(cpu);
            let result = match act {
                Act::Move(_) => machine.place(id, cpu, (!pins).then_some(roaming)),
                Act::Free(_) => machine.confine(id, roaming),
                Act::Stay(_) => machine.place(id, from, None),
            };
            let failed = result.is_err();
            missed |= failed;
            let mut error = None;
            match result {
                Ok(()) => match act {
                    Act::Move(_) => {
                        e.cpu = Some(cpu);
                        e.migrations += 1;
                        self.migrations += 1;
                    }
                    // A thread that stays was not tried to be moved: the other one was.
                    Act::Free(_) | Act::Stay(_) => continue,
                },
                Err(ApplyError::Gone) => {
                    handover.failed(act, true);
                    continue;
                }
                Err(ApplyError::Unusable { .. }) => {
                    self.looked_at_cpus = None;
                    error = Some(String::from("the CPU can no longer be used"));
                    self.failed += 1;
                }
                Err(e) => {
                    error = Some(e.to_string());
                    self.failed += 1;
                    self.leave_alone(m.thread, now, &e, observers);
                }
            }
            if failed {
                // One that was let off its CPU is pinned again with the next distribution.
                again |= handover.failed(act, false);
            }
            done.push(MoveRecord { id, from, to: cpu, reason: m.reason, error });
        }
        self.handover = handover;
        if first && pins && missed {
            // Pinned where they are, the others might leave a CPU to nobody that was to be filled.
            self.let_roam(machine);
            return done;
        }
        if first {
            self.placed = true;
            if pins && !self.snapshot.cpus.is_empty() {
                self.pin_the_rest(machine, now, plan, observers);
            }
        }
        self.placed &= !again;
        done
    }

    /// Threads that are pinned are no longer. One that cannot be released keeps its place until the
    /// next try.
    fn let_roam(&self, machine: &mut dyn Machine) {
        for e in self.entities.iter().filter(|e| e.movable) {
            let _ = machine.confine(e.meta.id, self.roaming_mask(e));
        }
    }

    /// Threads that need not move are pinned where they are.
    fn pin_the_rest(
        &mut self,
        machine: &mut dyn Machine,
        now: Nanos,
        plan: &Plan,
        observers: &mut [Box<dyn Observer>],
    ) {
        for i in 0..self.entities.len() {
            let e = &self.entities[i];
            let inside = e.cpu.is_some_and(|c| self.usable.contains(c));
            if e.movable
                && inside
                && let Some(cpu) = e.cpu
                && !plan.moves.iter().any(|m| m.thread == i)
                && let Err(error @ (ApplyError::Foreign { .. } | ApplyError::Refused(_))) =
                    machine.place(e.meta.id, cpu, None)
            {
                self.leave_alone(i, now, &error, observers);
            }
        }
    }

    /// A thread that cannot be moved is not tried again.
    fn leave_alone(
        &mut self,
        index: usize,
        now: Nanos,
        error: &ApplyError,
        observers: &mut [Box<dyn Observer>],
    ) {
        let e = &mut self.entities[index];
        e.movable = false;
        e.foreign = matches!(error, ApplyError::Foreign { .. });
        let id = e.meta.id;
        self.complain(now, id, error, observers);
    }

    fn complain(
        &mut self,
        now: Nanos,
        id: ThreadId,
        error: &ApplyError,
        observers: &mut [Box<dyn Observer>],
    ) {
        let text = format!("thread {id} is left alone: {error}");
        if self.complained {
            for o in observers {
                o.event(&Event::Note { at: now - self.began, text: text.clone() });
            }
        } else {
            self.complained = true;
            self.note(now, text, observers);
        }
    }

    /// Notes something in words, for the report and the observers.
    pub fn note(&mut self, now: Nanos, text: String, observers: &mut [Box<dyn Observer>]) {
        for o in observers {
            o.event(&Event::Note { at: now - self.began, text: text.clone() });
        }
        self.notes.push(text);
    }

    /// Adds to the estimates of what a thread in the slowest slot would have received, and of how long
    /// CPUs were idle although threads waited.
    fn estimate(&mut self, elapsed: Nanos, paused: bool) {
        if paused || !self.placed || self.points == 0 {
            return;
        }
        let threads = &self.snapshot.threads;
        let ran: u64 = threads.iter().map(|t| t.ran.0).sum();
        let waited: u64 = threads.iter().map(|t| t.waited.0).sum();
        let all = elapsed.0.saturating_mul(self.snapshot.cpus.len() as u64);
        self.idle += Nanos(all.saturating_sub(ran).min(waited));
        let slowest =
            self.snapshot.cpus.iter().filter_map(|c| c.speed).fold(f64::INFINITY, f64::min);
        if slowest.is_finite() {
            let blocked =
                self.entities.iter().map(|e| (e.blocked + e.spinning).0).min().unwrap_or(0);
            self.slowest_slot += slowest * (elapsed.0.saturating_sub(blocked)) as f64;
            self.balanced_for += elapsed;
        }
    }

    fn record(
        &self,
        now: Nanos,
        elapsed: Nanos,
        paused: bool,
        cost: Nanos,
        moves: Vec<MoveRecord>,
    ) -> Event {
        Event::Point(PointRecord {
            domain: self.options.domain,
            point: self.points,
            at: now - self.began,
            elapsed,
            paused,
            held: self.snapshot.held,
            spins_progress: self.short_phases,
            cost,
            threads: self
                .entities
                .iter()
                .zip(&self.snapshot.threads)
                .map(|(e, seen)| ThreadRecord {
                    id: e.meta.id,
                    // Where it was in the period that ended, not where it has just been moved.
                    cpu: self
                        .snapshot
                        .cpus
                        .get(seen.cpu)
                        .map(|c| c.id)
                        .or(e.cpu)
                        .unwrap_or_default(),
                    progress: e.progress,
                    ran: e.ran,
                    waited: e.waited,
                    blocked: e.blocked,
                    spinning: e.told.is_known().then_some(e.spinning),
                    turns: seen.turns,
                    minor_faults: e.minor_faults,
                    major_faults: e.major_faults,
                })
                .collect(),
            cpus: self
                .snapshot
                .cpus
                .iter()
                .map(|c| CpuRecord { id: c.id, threads: c.threads, speed: c.speed })
                .collect(),
            moves,
            weights: (self.plan.weights.iter())
                .filter_map(|w| Some((self.snapshot.threads.get(w.thread)?.id, w.weight)))
                .collect(),
        })
    }

    /// Ends balancing: every mask goes back to what it was.
    pub fn finish(&mut self, machine: &mut dyn Machine) {
        if let Some(board) = &self.board {
            board.set_active(false);
        }
        self.level_weights(machine);
        for e in &self.entities {
            machine.restore(e.meta.id);
        }
    }

    /// Another has restored the masks (the guardian did, because the balancer had been stopped):
    /// all threads are to be placed anew.
    pub fn masks_were_restored(&mut self) {
        self.placed = false;
        if let Some(board) = &self.board {
            board.set_active(false);
        }
    }

    fn equal_cpus(&self) -> bool {
        self.snapshot.cpus.windows(2).all(|c| c[0].capacity == c[1].capacity)
    }

    /// What the policy's searches have cost so far.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.board.as_ref().map_or(self.effort, |b| b.effort())
    }

    /// What this domain amounted to, and its threads.
    #[must_use]
    pub fn summary(&self, now: Nanos) -> (DomainSummary, Vec<ThreadSummary>, Vec<String>) {
        let allowed = self.masks.iter().fold(CpuSet::new(), |all, m| all.or(m));
        let narrow: Vec<bool> = self.masks.iter().map(|m| *m != allowed).collect();
        let mut threads = self.finished.clone();
        threads.extend(self.entities.iter().map(|e| (summary_of(e, now), e.mask)));
        let threads: Vec<ThreadSummary> = threads
            .into_iter()
            .map(|(t, mask)| ThreadSummary { own_mask: t.own_mask || narrow[mask], ..t })
            .collect();
        let total: f64 = threads.iter().map(|t| t.ran_s + t.waited_s + t.blocked_s).sum();
        let part = |f: fn(&ThreadSummary) -> f64| {
            if total > 0.0 { threads.iter().map(f).sum::<f64>() / total } else { 0.0 }
        };
        let longest = threads.iter().map(|t| t.present_s).fold(0.0, f64::max);
        let least = threads
            .iter()
            .filter(|t| t.present_s > 0.9 * longest)
            .map(|t| t.computed_s() / t.present_s)
            .fold(f64::INFINITY, f64::min);
        let slot = self.slowest_slot / (self.balanced_for.0 as f64).max(1.0);
        let board = self.board.as_deref();
        let migrations = self.migrations + board.map_or(0, Board::migrations);
        let acted = migrations > 0 && self.options.policy.mechanism != Mechanism::Nothing;
        // A balancing point is a wake-up of one CPU's balancer, where each has one.
        let points = board.map_or(self.points, Board::wakes);
        let at_once = if board.is_some() { self.usable.len().max(1) as f64 } else { 1.0 };
        let effort = self.effort();
        let cpu_time = self.cpu_time + board.map_or(Nanos::ZERO, Board::cpu_time);
        let domain = DomainSummary {
            id: self.options.domain,
            cpus: self.usable.clone(),
            allowed,
            points,
            migrations,
            weighings: self.weighings,
            failed: self.failed + board.map_or(0, Board::failed),
            cpu_s: cpu_time.as_secs_f64(),
            period_s: (now - self.began).as_secs_f64() / points.max(1) as f64 * at_once,
            cost: board.map_or(self.cost, |b| self.cost.and(&b.cost())),
            search: SearchSummary::from(effort),
            threads: self.most_threads,
            // CPU time tells of progress only where all CPUs are equally fast.
            estimated_gain: (acted && slot > 0.0 && least.is_finite() && self.equal_cpus())
                .then(|| (least / slot).max(1.0)),
            verdict: self.guard.verdict(),
            stood_down: self.guard.stood_down(),
            idle_s: board.is_none().then(|| self.idle.as_secs_f64()),
            wait_share: part(|t| t.waited_s),
            blocked_share: part(|t| t.blocked_s),
        };
        let mut notes = self.notes.clone();
        if self.options.policy.at_blocking {
            notes.push(format!(
                "CPUs did none of the program's work for {:.2} s of their time, while its threads \
                 waited for others: that is what reacting costs, and what others took",
                self.idle.as_secs_f64()
            ));
        }
        if let Some((least, most)) = self.weighed {
            notes.push(format!(
                "threads were given parts of the CPUs that they share {} times ({}), at the end from \
                 {least:.2} to {most:.2} of an even part",
                self.weighings,
                self.weighed_by.unwrap_or("by weights")
            ));
        }
        if effort.searches > 0 {
            let each = |sum: u64| sum as f64 / effort.searches as f64;
            notes.push(format!(
                "{} searches read the speeds of {:.1} threads each, of {:.1} that there were",
                effort.searches,
                each(effort.readings),
                each(effort.threads)
            ));
        }
        (domain, threads, notes)
    }
}

fn summary_of(e: &Entity, now: Nanos) -> ThreadSummary {
    ThreadSummary {
        id: e.meta.id,
        pid: e.meta.pid,
        name: e.meta.name.clone(),
        ran_s: e.total_ran.as_secs_f64(),
        spun_s: e.told.is_known().then(|| e.total_spun.as_secs_f64()),
        waited_s: e.total_waited.as_secs_f64(),
        blocked_s: e.total_blocked.as_secs_f64(),
        migrations: e.all_migrations(),
        minor_faults: e.minor_faults,
        major_faults: e.major_faults,
        present_s: (now - e.joined).as_secs_f64(),
        own_mask: e.foreign,
        span: (e.joined, now),
    }
}

//! One domain's balancing cycle: verify, observe, decide, actuate, record.
//!
//! Each call of [`Balancer::point`] is one balancing point. It looks at what became of the one before
//! ([`crate::verify`]), reads the threads of the domain ([`crate::observe`]), asks the policy, carries out
//! what is to be done ([`crate::actuate`]), and informs the observers. Threads come and go between points
//! ([`crate::admission`]).
//!
//! Where others move threads between points ([`crate::Agents`], for example a balancer for each CPU) this
//! is their caretaker: it knows the threads, spreads them and keeps the account, with what those have read.
//!
//! Invariants:
//! - A thread is moved only to a CPU of its own mask and of the domain (P1).
//! - A thread that vanished, at any moment, is dropped without a word: it is data.
//! - While paused or stood down nothing is moved ([`crate::pauses`]).
//! - No call to the machine takes the last thread off a CPU that one is to have again at the end of the
//!   point ([`crate::handover`], P2).

use crate::actuate::{self, Action, Manner, Mover};
use crate::agents::{Agents, Work};
use crate::arms::Arms;
use crate::lead::{Lead, Turn};
use crate::ledger::Ledger;
use crate::machine::Failure;
use crate::managed::ManagedThread;
use crate::membership::{Leaving, Membership};
use crate::memory::Memory;
use crate::notes::Notes;
use crate::observe::{self, Observation};
use crate::others::Others;
use crate::pauses::{Change, Pauses};
use crate::period::unstretched;
use crate::placement::Placement;
use crate::surroundings::Surroundings;
use crate::verify::{bound_by_others, verify};
use crate::weights::{self, Weights};
use crate::{
    CostBreakdown, CpuRecord, Event, GuardOptions, Machine, MoveRecord, Observer, PointRecord,
    Sensors, ThreadRecord, Times,
};
use evenly_model::hpc::Parameters;
use evenly_model::{
    CpuId, CpuSet, DomainId, Effort, Environment, Knowledge, Nanos, Plan, Snapshot, ThreadId,
};
use evenly_policy::{Mechanism, Policy, PolicyInfo, Spreading};
use std::sync::Arc;

/// A thread that waits for its CPU for no more than this part of its time does not share it.
const CALM: f64 = 0.05;
/// A thread that stopped computing for this long is given back.
const QUIET: Nanos = Nanos::from_millis(1_000);

/// Settings of a balancer.
#[derive(Debug, Clone)]
pub struct BalancerOptions {
    /// Its number among the domains of the run.
    pub domain: DomainId,
    /// Its CPUs; those that can be used are asked for again and again.
    pub cpus: CpuSet,
    /// The CPUs that the user wants the program to use; None for all. Threads stay within them
    /// even while balancing is paused.
    pub wanted: Option<CpuSet>,
    /// The policy. Where there are agents, it is they who follow it.
    pub policy: &'static PolicyInfo,
    /// What it is to know of machine and program. A policy that places threads by load is given more at each
    /// point where there is [`Environment::knowledge`].
    pub environment: Environment,
    /// Whether, and how often, it is looked at what balancing gains.
    pub guard: GuardOptions,
}

/// The cycle of one domain.
pub struct Balancer {
    pub(crate) options: BalancerOptions,
    pub(crate) arms: Arms,
    /// The policy asks for what is costly to find out.
    asks: bool,
    pub(crate) began: Nanos,
    last_at: Option<Nanos>,
    pub(crate) snapshot: Snapshot,
    plan: Plan,
    /// What is to be done beside the plan.
    pub(crate) actions: Vec<Action>,
    /// What could not be done, for the next point.
    pub(crate) failures: Vec<Failure>,
    mover: Mover,
    pub(crate) membership: Membership,
    observation: Observation,
    pub(crate) surroundings: Surroundings,
    pub(crate) others: Others,
    /// Threads are held so that they and those of others divide evenly among the CPUs.
    pub(crate) beside: bool,
    /// Where the scheduler is to look often who runs.
    pub(crate) beats: CpuSet,
    pub(crate) placement: Placement,
    pub(crate) pauses: Pauses,
    pub(crate) weights: Weights,
    memory: Memory,
    pub(crate) ledger: Ledger,
    pub(crate) notes: Notes,
    /// What moves threads between points, if anything does.
    pub(crate) agents: Option<Box<dyn Agents>>,
    /// What spreads threads while agents move them.
    spreading: Spreading,
    pub(crate) lead: Lead,
}

impl Balancer {
    /// A balancer for a domain that holds no thread yet.
    #[must_use]
    pub fn new(options: BalancerOptions, now: Nanos) -> Self {
        let environment = Arc::new(options.environment.clone());
        Self {
            arms: Arms::new(options.policy),
            asks: true,
            began: now,
            last_at: None,
            snapshot: Snapshot { environment, ..Snapshot::default() },
            plan: Plan::default(),
            actions: Vec::new(),
            failures: Vec::new(),
            mover: Mover::default(),
            membership: Membership::default(),
            observation: Observation::default(),
            surroundings: Surroundings::default(),
            others: Others::default(),
            beside: false,
            beats: CpuSet::default(),
            placement: Placement::new(now),
            pauses: Pauses::new(options.guard, now),
            weights: Weights::default(),
            memory: Memory::default(),
            ledger: Ledger::default(),
            notes: Notes::new(now),
            agents: None,
            spreading: Spreading::default(),
            lead: Lead::new(None, options.guard.enabled),
            options,
        }
    }

    /// The caretaker of agents: while they lead it spreads threads, and leaves all other moves to them.
    #[must_use]
    pub fn with_agents(options: BalancerOptions, agents: Box<dyn Agents>, now: Nanos) -> Self {
        Self {
            lead: Lead::new(Some(&*agents), options.guard.enabled),
            agents: Some(agents),
            ..Self::new(options, now)
        }
    }

    /// How threads are moved now.
    pub(crate) fn mechanism(&self) -> Mechanism {
        if self.lead.by_agents() { Mechanism::Pin } else { self.arms.acting().mechanism() }
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
        if self.is_resting() {
            self.ledger.rested += elapsed;
        }

        // Verify: what was set at the point before, or by agents since.
        let mut moves = self.ask_agents(period, observers);
        self.verify(now, observers);
        self.choose_lead(now);

        // Observe.
        let (period, periods) = match &self.agents {
            None => (period, 1.0),
            // What is done once a point is done so much more rarely.
            Some(agents) => (
                period.scale(agents.periods_between_points()),
                (since.0 as f64 / period.0.max(1) as f64).max(1.0),
            ),
        };
        self.look_around(machine, now, observers);
        let left = self.observe(machine, (now, elapsed, period), observers);
        self.choose_arm(now, observers);
        self.show(machine, now, elapsed);
        self.pin_or_release();
        let observed = machine.now();

        // Decide.
        let lengths = (elapsed, if self.blocks_often() { unstretched(period) } else { period });
        let paused = self.pause(now, lengths, observers);
        self.beat(paused);
        let asking = self.decide(machine, paused, observers);
        let decided = machine.now();

        // Actuate.
        // A thread that is only moved is on a single CPU for a moment, too.
        self.hold(true);
        self.actuate(machine);
        moves.extend(self.carry_out(machine));
        self.weigh(machine, observers);
        self.move_memory(machine, observers);
        self.instruct_agents(paused);
        self.hold(self.placement.pinning && !paused && !self.placement.open);
        let applied = machine.now();

        // Record.
        if !paused && self.placement.placed {
            self.ledger.estimate(&self.snapshot, &self.membership.threads);
        }
        if observers.iter().any(|o| o.wants_points()) {
            let cost = machine.own_cpu_time() - cpu_before;
            // Where nothing is ever moved there is nothing to pause.
            let record = self.record(paused && self.moves_threads(), cost, moves);
            observers.iter_mut().for_each(|o| o.event(&record));
        }
        self.ledger.cost = self.ledger.cost.and(&CostBreakdown {
            read: observed - now + asking,
            decide: decided - observed - asking,
            apply: applied - decided,
            record: machine.now() - applied,
        });
        let by_period = self.agents.as_ref().filter(|d| d.cost_by_period());
        let agents = by_period.map_or(Nanos::ZERO, |d| d.account().cpu_time);
        self.ledger.took(machine.own_cpu_time() - cpu_before, agents, periods);
        left
    }

    /// How long it takes until the next point: `usual`, or less while it is measured what moves within short phases are
    /// worth.
    #[must_use]
    pub fn until_next_point(&self, usual: Nanos) -> Nanos {
        if self.arms.compares() { self.arms.period(usual) } else { self.lead.period(usual) }
    }

    /// Whether the policy ever moves a thread.
    pub(crate) fn moves_threads(&self) -> bool {
        self.options.policy.mechanism() != Mechanism::Nothing
    }

    /// Asks the agents where threads are by now, and what they could not do. Returns the moves that they
    /// have made, if an observer wants them.
    fn ask_agents(
        &mut self,
        period: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) -> Vec<MoveRecord> {
        let Some(agents) = &mut self.agents else { return Vec::new() };
        let done = agents.begin_point(period, observers.iter().any(|o| o.wants_points()));
        for t in &mut self.membership.threads {
            t.place.cpu = agents.place(t.meta.id).or(t.place.cpu);
        }
        self.failures.extend(done.failures);
        done.moves
    }

    /// Whether agents move the threads from now on, or the policy.
    fn choose_lead(&mut self, now: Nanos) {
        let Some(agents) = &self.agents else { return };
        // While another arm acts, or is compared with, the last answer holds.
        if self.lead.turn != Turn::Usual {
            return;
        }
        let disturbed = self.membership.changed;
        if self.lead.point(now, agents.rhythm(), disturbed) {
            // What the guard was measuring no longer compares.
            self.pauses.guard.disturbed(now);
        }
    }

    fn verify(&mut self, now: Nanos, observers: &mut [Box<dyn Observer>]) {
        if let Some(agents) = &self.agents {
            let bound = bound_by_others(&self.failures, &self.membership);
            bound.for_each(|process| agents.show_masks(process));
        }
        let (failures, mut unweighed) = (&mut self.failures, self.weights.refused.take());
        if let Some(failure) = unweighed.take_if(|_| self.arms.act()) {
            self.arms.cannot_weigh(&failure.error);
            self.notes.tell(now, &failure.keeps_its_share(), observers);
        }
        let (members, notes) = (&mut self.membership, &mut self.notes);
        if verify(failures, unweighed, members, notes, now, observers) {
            self.surroundings.ask_for_cpus();
        }
    }

    /// Which CPUs can be used, and who else balances on them.
    fn look_around(
        &mut self,
        machine: &mut dyn Sensors,
        now: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) {
        let domain = (self.options.domain, &self.options.cpus);
        let (around, snapshot) = (&mut self.surroundings, &mut self.snapshot);
        if around.look_at_cpus(machine, domain, (now, now - self.began), snapshot, observers) {
            self.placement.placed = false;
            self.pauses.guard.disturbed(now);
            self.lead.cpus_changed();
            for t in &mut self.membership.threads {
                t.place.cpu = t.place.cpu.filter(|c| self.surroundings.usable().contains(*c));
            }
        }
        let (around, snapshot) = (&mut self.surroundings, &mut self.snapshot);
        if self.options.policy.mechanism() != Mechanism::Nothing
            && around.look_at_neighbours(machine, now, snapshot, &mut self.notes, observers)
            // Threads that the kernel moves as well are not worth placing anew.
            && self.placement.pinning
        {
            self.placement.placed = false;
        }
        self.look_for_others(machine, now);
    }

    /// Reads the threads and books what they did. Those that have ended, or no longer compute, leave.
    fn observe(
        &mut self,
        machine: &mut dyn Sensors,
        (now, elapsed, period): (Nanos, Nanos, Nanos),
        observers: &mut [Box<dyn Observer>],
    ) -> Vec<(ThreadId, Times)> {
        let agents = self.agents.as_deref().filter(|_| self.lead.by_agents());
        let has_knowledge = self.snapshot.environment.knowledge.is_some();
        let observation = &mut self.observation;
        // A policy that places threads by load asks for no turns.
        observation.short_phases = !has_knowledge && observation.phases.are_short(period);
        observation.read(machine, agents, &mut self.membership.threads, now);
        let ended = self.observation.take_ended();
        // What they were given may outlive them, as control groups do.
        ended.iter().for_each(|&ended| self.unweigh(ended));
        self.unregister(&ended, now, Leaving::Ended, observers);
        let first = elapsed == Nanos::ZERO;
        let agents = self.agents.as_deref().filter(|_| self.lead.by_agents());
        let (busy, unknown) = self.observation.book(
            machine,
            &mut self.membership.threads,
            (&self.snapshot.cpus, agents),
            &mut self.placement,
            (now, first),
        );
        if let Some(text) = self.observation.note_of_unknown(unknown, now) {
            self.notes.note(now, text, observers);
        }
        // Agents know progress; and for a policy that places threads by load, what they compute is load and
        // not a lead.
        if !self.lead.by_agents() && !has_knowledge {
            let times = (now, now - self.snapshot.now);
            self.observation.restart_leads_at_barriers(&mut self.membership.threads, times);
        }
        // While no thread computes (all wait for input, say), none is given back: the program as a
        // whole rests.
        let mut left = Vec::new();
        let is_quiet = |t: &ManagedThread| busy && t.account.quiet >= QUIET;
        let each = self.membership.threads.iter().enumerate();
        let idle: Vec<usize> = each.filter(|(_, t)| is_quiet(t)).map(|(i, _)| i).collect();
        for &idle in &idle {
            let t = &self.membership.threads[idle];
            let thread = t.meta.id;
            left.push((thread, t.account.last));
            self.actions.push(Action::Restore { thread });
            self.unweigh(idle);
        }
        self.unregister(&idle, now, Leaving::Idle, observers);
        left
    }

    /// Finds where threads are, and shows all in the snapshot.
    fn show(&mut self, machine: &mut dyn Sensors, now: Nanos, elapsed: Nanos) {
        let p = &self.placement;
        let is_free = match self.lead.work() {
            None if self.lead.turn == Turn::Usual => {
                self.pauses.guard.paused() || self.pauses.guard.rests()
            }
            _ => self.pauses.paused(),
        };
        let fixed = p.pinning && p.placed && !is_free;
        let how = (fixed, self.lead.by_agents());
        self.observation.locate(machine, &mut self.membership.threads, now, how);
        let s = &mut self.snapshot;
        s.point = if p.placed { self.ledger.points.max(1) } else { 0 };
        (s.now, s.elapsed, s.resolution) = (now, elapsed, machine.resolution());
        let Membership { threads, masks, .. } = &self.membership;
        let agents = self.agents.as_deref().filter(|_| self.lead.by_agents());
        self.observation.show(threads, masks, agents, s);
    }

    /// Pins all threads where they are put, or releases all, where that has become right.
    fn pin_or_release(&mut self) {
        let mechanism = self.mechanism();
        let (threads, snapshot) = (&mut self.membership.threads, &mut self.snapshot);
        if self.placement.pin_or_release((mechanism, self.beside), threads, snapshot) {
            self.confine_all(|t| t.place.movable);
        }
        self.snapshot.held = self.placement.pinning;
    }

    /// Threads that are not pinned may run where they may roam.
    pub(crate) fn confine_all(&mut self, which: impl Fn(&ManagedThread) -> bool) {
        for (i, t) in self.membership.threads.iter().enumerate().filter(|(_, t)| which(t)) {
            if let Some(within) = self.membership.roaming(i, self.placement.open) {
                self.actions.push(Action::Confine { thread: t.meta.id, within });
            }
        }
    }

    /// Runs the guard, and enters or leaves a pause. Returns whether nothing may be moved.
    fn pause(
        &mut self,
        now: Nanos,
        lengths: (Nanos, Nanos),
        observers: &mut [Box<dyn Observer>],
    ) -> bool {
        if !self.moves_threads() {
            return true;
        }
        let threads = &mut self.membership.threads;
        let change = match self.lead.work() {
            Some(work) => self.pauses.follow(work),
            None if self.lead.turn != Turn::Usual => {
                let rests = self.lead.turn == Turn::Compared && self.pauses.guard.rests();
                self.pauses.follow(if rests { Work::Rest } else { Work::Move })
            }
            None => self.pauses.point(now, lengths, threads, &mut self.notes, observers),
        };
        match change {
            Change::None => {}
            Change::Pause => {
                weights::take_back(threads, &mut self.actions);
                let confine = |t: &ManagedThread| Action::Confine {
                    thread: t.meta.id,
                    within: t.place.whole.clone(),
                };
                self.actions.extend(threads.iter().filter(|t| t.place.movable).map(confine));
            }
            Change::Resume => {
                self.placement.placed = false;
                self.weights.anew = true;
                self.confine_narrowed();
            }
        }
        self.pauses.paused()
    }

    /// Threads whose domain is less than what they may use are confined to it, or let out of it. A thread of
    /// which that cannot be done now runs in a wider domain until it is moved.
    pub(crate) fn confine_narrowed(&mut self) {
        let masks = self.membership.masks.clone();
        self.confine_all(|t| t.place.movable && *masks[t.place.mask] != *t.place.whole);
    }

    /// Asks the policy, unless nothing may be moved. Returns what it took to find out what it asks for.
    fn decide(
        &mut self,
        machine: &mut dyn Sensors,
        paused: bool,
        observers: &mut [Box<dyn Observer>],
    ) -> Nanos {
        self.plan.clear();
        // One thread is enough: where it is pinned beside a stranger, only we can free it.
        let enough = !self.snapshot.threads.is_empty() && !self.snapshot.cpus.is_empty();
        if !enough || paused || !self.moves_threads() {
            return Nanos::ZERO;
        }
        let mut asking = Nanos::ZERO;
        if let Some(knowledge) = self.knowledge().cloned() {
            let before = machine.now();
            let (threads, s) = (&mut self.membership.threads, &mut self.snapshot);
            observe::show_tasks(machine, threads, self.asks, s);
            if self.asks {
                self.memory.look(machine, &knowledge, threads, s, &mut self.notes, observers);
                observe::show_ranks(machine, threads, s);
            }
            asking = machine.now() - before;
        }
        // What cannot be known yet is not acted on: the first point only distributes.
        if self.lead.by_agents() {
            self.spreading.decide(&self.snapshot, &mut self.plan);
        } else {
            self.arms.policy().decide(&self.snapshot, &mut self.plan);
        }
        self.snapshot.stayed.clear();
        self.asks = self.plan.asks;
        self.ledger.effort.add(self.plan.effort);
        asking
    }

    /// Does what is to be done beside the plan.
    pub(crate) fn actuate(&mut self, machine: &mut dyn Machine) {
        actuate::perform_all(machine, &mut self.actions);
    }

    /// Carries out the moves of the plan; at a distribution all threads are pinned.
    fn carry_out(&mut self, machine: &mut dyn Machine) -> Vec<MoveRecord> {
        let p = &mut self.placement;
        let distributes = !p.placed && !self.pauses.paused();
        if self.plan.moves.is_empty() && !distributes {
            return Vec::new();
        }
        let manner = Manner { pins: p.pinning, open: p.open, distributes };
        let (plan, members, failures) = (&self.plan, &mut self.membership, &mut self.failures);
        let done = self.mover.carry_out(machine, &self.snapshot, plan, members, manner, failures);
        p.placed = (p.placed || done.distributed) && !done.again;
        self.ledger.moved(&done.moves);
        done.moves
    }

    fn weigh(&mut self, machine: &mut dyn Machine, observers: &mut [Box<dyn Observer>]) {
        let without = self.pauses.paused() || !self.arms.acting().gives_weights();
        let when = (self.snapshot.now, without);
        let threads = (&mut self.membership.threads[..], &self.snapshot);
        self.weights.give(machine, when, &self.plan, threads, &mut self.notes, observers);
    }

    fn move_memory(&mut self, machine: &mut dyn Machine, observers: &mut [Box<dyn Observer>]) {
        let Some(knowledge) = self.knowledge().cloned() else { return };
        let (plan, s) = (&mut self.plan, &mut self.snapshot);
        self.memory.move_on(machine, &knowledge, plan, s, &mut self.notes, observers);
    }

    /// Passes on to the agents where threads are, and whether they may move them.
    fn instruct_agents(&mut self, paused: bool) {
        let Some(agents) = &mut self.agents else { return };
        let members = &mut self.membership;
        for t in &members.threads {
            // One that was refused just now is verified at the next point.
            let is_refused = self.failures.iter().any(|f| f.is_final() && f.thread == t.meta.id);
            agents.put(t.meta.id, t.place.cpu, t.place.movable && !is_refused);
        }
        agents.set_cpus(&self.snapshot.cpus);
        if std::mem::take(&mut members.changed) {
            agents.set_threads(&mut members.threads.iter().map(|t| t.meta.id));
        }
        let p = &self.placement;
        let active = self.lead.by_agents() && p.placed && p.pinning && !paused && !p.open;
        if active && !members.threads.is_empty() {
            // Progress so far, at the rate of threads that share the CPUs evenly: so that from the
            // first moment on rates hardly change by themselves.
            let n = members.threads.len() as f64;
            let m = self.surroundings.usable().len() as f64;
            let progress =
                members.threads.iter().map(|t| t.account.progress.max(0) as f64).sum::<f64>() / n;
            let ago = Nanos((progress / (m / n).min(1.0)) as u64);
            agents.begin(self.snapshot.now - ago);
        }
        // Whether threads meet is to be known before agents lead.
        let other = match self.lead.turn {
            // What they know of phases is to be right when it is their turn again.
            Turn::Others if self.arms.is_settled() => Some(Work::Rest),
            Turn::Others => Some(Work::Count),
            _ if self.lead.by_agents() => self.lead.work(),
            _ => Some(Work::Count),
        };
        agents.set_work(match other {
            _ if active => Work::Move,
            Some(Work::Rest) => Work::Rest,
            _ => Work::Count,
        });
    }

    fn record(&self, paused: bool, cost: Nanos, moves: Vec<MoveRecord>) -> Event {
        let s = &self.snapshot;
        let threads = self.membership.threads.iter().zip(&s.threads).map(|(t, seen)| {
            let (a, period) = (&t.account, &t.account.period);
            ThreadRecord {
                id: t.meta.id,
                // Where it was in the period that ended, not where it has just been moved.
                cpu: s.cpus.get(seen.cpu).map(|c| c.id).or(t.place.cpu).unwrap_or_default(),
                progress: a.progress,
                ran: period.ran,
                waited: period.waited,
                blocked: period.blocked,
                spinning: a.report.is_known().then_some(period.spinning),
                turns: seen.turns,
                minor_faults: a.minor_faults,
                major_faults: a.major_faults,
            }
        });
        let cpu =
            |c: &evenly_model::CpuView| CpuRecord { id: c.id, threads: c.threads, speed: c.speed };
        let weights = self.plan.weights.iter();
        Event::Point(PointRecord {
            domain: self.options.domain,
            point: self.ledger.points,
            at: s.now - self.began,
            elapsed: s.elapsed,
            paused,
            held: s.held,
            spins_progress: self.observation.short_phases,
            agents: self.lead.work().is_some(),
            others: s.others.clone(),
            arm: self.arms.act().then(|| self.arms.acting().name.to_owned()),
            cost,
            threads: threads.collect(),
            cpus: s.cpus.iter().map(cpu).collect(),
            moves,
            weights: weights
                .filter_map(|w| Some((s.threads.get(w.thread)?.id, w.weight)))
                .collect(),
        })
    }

    /// Ends balancing: every mask goes back to what it was.
    pub fn finish(&mut self, machine: &mut dyn Machine) {
        // There is no next point.
        self.verify(machine.now(), &mut []);
        self.stop_agents();
        weights::take_back(&mut self.membership.threads, &mut self.actions);
        let threads = self.membership.threads.iter();
        self.actions.extend(threads.map(|t| Action::Restore { thread: t.meta.id }));
        self.beside = false;
        self.beat(true);
        self.actuate(machine);
        self.hold(false);
    }

    /// Another has restored the masks (the guardian did, because the balancer had been stopped):
    /// all threads are to be placed anew.
    pub fn masks_were_restored(&mut self) {
        self.placement.placed = false;
        self.stop_agents();
    }

    /// Tells agents whether threads are kept on single CPUs.
    fn hold(&self, held: bool) {
        if let Some(agents) = &self.agents {
            agents.hold(held);
        }
    }

    fn stop_agents(&self) {
        if let Some(agents) = &self.agents {
            agents.set_work(Work::Count);
        }
    }

    /// Opens the domain where threads that are confined to their domains leave CPUs unused
    /// ([`crate::left_unused`], promise P2), and closes it when that is over.
    pub fn open(&mut self, machine: &mut dyn Machine, open: bool) {
        if open == self.placement.open {
            return;
        }
        self.placement.open = open;
        // The next point lets them, if that is still right.
        self.stop_agents();
        // The next point releases what is pinned.
        if !self.pauses.paused() && !self.placement.pinning && self.moves_threads() {
            self.confine_narrowed();
            self.actuate(machine);
        }
    }

    /// Changes what policies that give threads parts of CPUs go by.
    pub fn tune(&mut self, parameters: &Parameters) {
        Arc::make_mut(&mut self.snapshot.environment).tuning = parameters.clone();
    }

    /// Notes something in words, for the report and the observers.
    pub fn note(&mut self, now: Nanos, text: String, observers: &mut [Box<dyn Observer>]) {
        self.notes.note(now, text, observers);
    }

    fn knowledge(&self) -> Option<&Arc<Knowledge>> {
        self.snapshot.environment.knowledge.as_ref()
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
        let Membership { threads, masks, .. } = &self.membership;
        threads.iter().map(|t| (t.meta.id, &*masks[t.place.mask]))
    }

    /// How many threads it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.membership.threads.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.membership.threads.is_empty()
    }

    /// How many of its CPUs could be used when last looked at.
    #[must_use]
    pub fn usable_cpus(&self) -> usize {
        self.snapshot.cpus.len()
    }

    /// CPU time that balancing cost in the period that the last point ended. With agents that is the mean
    /// over their periods since the point before, of what all of them took and of its own.
    #[must_use]
    pub fn period_cost(&self) -> Nanos {
        self.ledger.period_cost
    }

    /// Threads per CPU of the domain, as last seen.
    pub fn counts(&self) -> impl Iterator<Item = (CpuId, u32)> + '_ {
        self.snapshot.cpus.iter().map(|c| (c.id, c.threads))
    }

    /// For how many threads that share a CPU the period is to have turns ([`crate::PeriodControl`]). Where
    /// threads report unequal work, what counts is how soon it is seen which threads wait, and not
    /// whether shares are fair yet: then two, however many there are.
    #[must_use]
    pub fn taking_turns(&self) -> usize {
        let uneven = self.observation.phases.are_uneven();
        if uneven { 2 } else { self.len().div_ceil(self.usable_cpus().max(1)) }
    }

    /// How many periods its points are apart.
    #[must_use]
    pub fn periods_between_points(&self) -> f64 {
        self.agents.as_ref().map_or(1.0, |agents| agents.periods_between_points())
    }

    /// Whether an agent asks for a point before the next is due.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.agents.as_ref().is_some_and(|agents| agents.calls())
    }

    /// How often agents have been put to work.
    #[must_use]
    pub fn activations(&self) -> u64 {
        self.agents.as_ref().map_or(0, |agents| agents.activations())
    }

    /// Whether threads are moved at the openings of barriers, and not by this balancer.
    #[must_use]
    pub fn moves_within_phases(&self) -> bool {
        self.lead.by_agents() && self.options.policy.moves_within_phases()
    }

    /// Whether nothing is to be done until a thread comes: in the last period no thread shared its CPU with
    /// another, with work of ours or of others, none was moved, and none reports unequal work.
    #[must_use]
    pub fn is_calm(&self) -> bool {
        let s = &self.snapshot;
        let alone = |waited: Nanos| waited.0 as f64 <= CALM * s.elapsed.0 as f64;
        self.taking_turns() <= 1
            && !self.observation.phases.are_uneven()
            // A policy that only watches is to see what happens.
            && self.moves_threads()
            && self.plan.moves.is_empty()
            && s.elapsed > Nanos::ZERO
            && s.threads.iter().all(|t| alone(t.waited))
    }

    /// Whether threads block many times in a period, so that what each receives in one hardly differs from what it receives in a
    /// longer one; and nothing else is known of their phases.
    #[must_use]
    pub fn blocks_often(&self) -> bool {
        let is_known = self.observation.phases.length().is_some();
        self.placement.blocks_often() && !is_known && !self.lead.by_agents()
    }

    /// Whether nothing is moved because that was found to gain nothing.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        let rests = || self.pauses.guard.rests();
        self.lead.turn != Turn::Others
            && self.moves_threads()
            && self.lead.work().map_or_else(rests, |work| work == Work::Rest)
    }

    /// What the policy's searches have cost so far.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.agents.as_ref().map_or(self.ledger.effort, |d| d.account().effort)
    }
}

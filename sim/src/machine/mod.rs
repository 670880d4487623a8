//! The machine itself: an event queue, CPUs with their tasks, and the accounts of each task.
//!
//! Accounts are settled per CPU and only when something changes on it, so that a run costs as much
//! as there is happening, not as much as time passes. Invariant: a task is in the queue of the CPU
//! `Task::cpu` exactly if it is runnable.

mod balanced;
mod kernel;
mod lengths;
mod program;
mod reports;
mod sharing;

pub(crate) use reports::Reports;

use crate::Scenario;
use evenly_engine::{Candidate, Times};
use evenly_model::stats::Random;
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId, Tid};
use lengths::Lengths;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

/// Work is counted in thousandths of a nanosecond at speed 1.
const UNITS: u64 = 1000;
/// The first thread's tid; the others follow.
const FIRST_TID: i32 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A phase or a slice may end on a CPU, if nothing has changed there since this version.
    Cpu(usize, u64),
    Start(usize),
    End(usize),
    Toggle(usize),
    Hotplug(usize),
    Rotate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskState {
    NotStarted,
    Runnable,
    Blocked,
    Ended,
}

/// A thread of the program, or a stranger.
#[derive(Debug, Clone)]
struct Task {
    state: TaskState,
    cpu: usize,
    mask: CpuSet,
    /// Whether the mask has more than one CPU.
    roams: bool,
    original: CpuSet,
    /// Which program; None for strangers.
    program: Option<usize>,
    /// Work left in this phase; None while it waits at a barrier, and for strangers.
    left: Option<u64>,
    /// It waits at a barrier and lets others run before it.
    yields: bool,
    phase: u32,
    /// What it counts beside others on its CPU, in thousandths.
    weight: u64,
    /// Since when it waits at a barrier, if it does, and for how long it has in all before that.
    waits_since: Option<u64>,
    waited_for: u64,
    /// When it began this phase.
    computes_since: u64,
    ran: u64,
    /// CPU time by the speed that the CPU had, in the unit of work.
    done: u64,
    waited: u64,
    /// What of the waiting has been booked: that which ended.
    booked_wait: u64,
    /// How often it was given a CPU; under fluid sharing, how often it became runnable.
    slices: u64,
    ended: Option<Nanos>,
    moves: u64,
}

#[derive(Debug, Clone, Default)]
struct Queue {
    online: bool,
    /// Speed in thousandths while its sibling is busy, or where it has none.
    base_speed: u64,
    /// Speed at this moment.
    speed: u64,
    /// Runnable tasks; under slices the first one runs.
    tasks: VecDeque<usize>,
    /// Up to when the accounts are settled.
    settled: u64,
    version: u64,
    slice_end: u64,
    /// For how long nothing has run on it, up to then.
    idle: u64,
    /// Whose turn it is to receive what cannot be shared in whole nanoseconds.
    turn: u64,
}

/// A machine in virtual time.
#[derive(Debug, Clone)]
pub struct Sim {
    scenario: Scenario,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    queues: Vec<Queue>,
    lengths: Lengths,
    /// The program's threads, then the strangers.
    tasks: Vec<Task>,
    programs: Vec<Program>,
    /// Threads of programs that have not ended.
    left: usize,
    /// Those of them whose masks have more than one CPU.
    roaming: usize,
    last_end: u64,
    /// A thread of a program has blocked or ended since this was last asked.
    one_blocked: bool,
    random: Random,
    /// What readings show, so that one that is stale can be repeated.
    shown: Vec<Times>,
    reading_errors: Random,
    lateness: Random,
    readings: u64,
    own: u64,
    /// What balancers spend while this is Some is added up here, and the machine does not run on
    /// meanwhile.
    deferred: Option<u64>,
    kernel_moves: u64,
    refuses_weights: bool,
    /// Bytes that every process has in memory.
    process_bytes: u64,
    /// Whose memory is on which node, where that can be read.
    memory: BTreeMap<Pid, u32>,
    /// How often that was read.
    memory_readings: u64,
    /// Memory that was moved: whose, from which node, to which.
    memory_moves: Vec<(Pid, u32, u32)>,
    /// Of these, how many have been reported.
    reported_moves: usize,
}

/// A program at a barrier.
#[derive(Debug, Clone, Default)]
struct Program {
    threads: Vec<usize>,
    arrived: usize,
    alive: usize,
    /// Some of its threads wait for some others only.
    has_partners: bool,
    /// All have arrived, and the first thread wakes this one next, by its place in `threads`; it goes on itself
    /// when it comes to that.
    waking: Option<usize>,
    /// What it reports of its phases, where somebody asks for that.
    reports: Option<Arc<Reports>>,
    ended: Option<Nanos>,
}

impl Sim {
    /// A machine at time zero.
    #[must_use]
    pub fn new(scenario: Scenario) -> Self {
        let queue = |speed: u32| {
            let speed = u64::from(speed.max(1));
            Queue { online: true, base_speed: speed, speed, ..Queue::default() }
        };
        let task = |mask: &CpuSet, program, left| Task {
            state: TaskState::NotStarted,
            cpu: mask.first().map_or(0, |c| c.0 as usize),
            mask: mask.clone(),
            roams: mask.len() > 1,
            original: mask.clone(),
            program,
            left,
            yields: false,
            phase: 0,
            weight: sharing::USUAL_WEIGHT,
            waits_since: None,
            waited_for: 0,
            computes_since: 0,
            ran: 0,
            done: 0,
            waited: 0,
            booked_wait: 0,
            slices: 0,
            ended: None,
            moves: 0,
        };
        let threads = scenario.threads.iter();
        let threads = threads.map(|t| task(&t.mask, Some(t.program), Some(0)));
        let strangers = scenario.strangers.iter();
        let strangers = strangers.map(|s| task(&CpuSet::single(s.cpu), None, None));
        let mut programs = vec![Program::default(); 1 + scenario.others.len()];
        for (i, t) in scenario.threads.iter().enumerate() {
            let last = programs.len() - 1;
            let p = &mut programs[t.program.min(last)];
            p.threads.push(i);
            p.has_partners |= !t.partners.is_empty();
            p.alive += 1;
        }
        let mut sim = Self {
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            lengths: Lengths::new(scenario.cpus.len()),
            queues: scenario.cpus.iter().map(|c| queue(c.speed_permille)).collect(),
            tasks: threads.chain(strangers).collect(),
            programs,
            left: scenario.threads.len(),
            roaming: scenario.threads.iter().filter(|t| t.mask.len() > 1).count(),
            last_end: 0,
            one_blocked: false,
            random: Random::new(scenario.seed),
            shown: vec![Times::default(); scenario.threads.len()],
            reading_errors: Random::new(scenario.seed ^ 0x5eed),
            lateness: Random::new(scenario.seed ^ 0x1a7e),
            readings: 0,
            own: 0,
            deferred: None,
            kernel_moves: 0,
            refuses_weights: false,
            process_bytes: 0,
            memory: BTreeMap::new(),
            memory_readings: 0,
            memory_moves: Vec::new(),
            reported_moves: 0,
            scenario,
        };
        for t in 0..sim.threads() {
            sim.tasks[t].left = Some(sim.work(t));
        }
        for cpu in 0..sim.queues.len() {
            sim.adjust_speed(cpu);
        }
        for i in 0..sim.scenario.hotplug.len() {
            sim.at(sim.scenario.hotplug[i].at.0, Event::Hotplug(i));
        }
        for i in 0..sim.scenario.strangers.len() {
            let s = &sim.scenario.strangers[i];
            let from = s.from.0
                + if s.busy.is_some() { sim.between(sim.scenario.strangers[i].sleep) } else { 0 };
            sim.at(from, Event::Toggle(i));
        }
        for i in 0..sim.threads() {
            sim.at(sim.scenario.threads[i].start.0, Event::Start(i));
            if let Some(end) = sim.scenario.threads[i].end {
                sim.at(end.0, Event::End(i));
            }
        }
        if let Some(every) = sim.scenario.kernel.rotate {
            sim.at(every.0, Event::Rotate);
        }
        sim
    }

    /// Number of threads of the program, started or not.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.scenario.threads.len()
    }

    /// All CPUs of the machine, online or not.
    #[must_use]
    pub fn all_cpus(&self) -> CpuSet {
        (0..self.queues.len() as u32).map(CpuId).collect()
    }

    /// How many programs the scenario has.
    #[must_use]
    pub fn programs(&self) -> usize {
        self.programs.len()
    }

    /// When the last thread of all programs ended; None while one is left.
    #[must_use]
    pub fn makespan(&self) -> Option<Nanos> {
        (self.left == 0).then_some(Nanos(self.last_end))
    }

    /// When each program ended.
    #[must_use]
    pub fn program_ends(&self) -> Vec<Option<Nanos>> {
        self.programs.iter().map(|p| p.ended).collect()
    }

    /// How often the times of a thread were read through [`Reader::read`].
    ///
    /// [`Reader::read`]: evenly_engine::Reader::read
    #[must_use]
    pub fn readings(&self) -> u64 {
        self.readings
    }

    /// How many events were scheduled so far: what a run costs, on whatever machine it is run.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.sequence
    }

    /// CPU time that each thread of the program has received, exact.
    #[must_use]
    pub fn progress(&self) -> Vec<Nanos> {
        (0..self.threads()).map(|t| Nanos(self.account(t, self.now).0)).collect()
    }

    /// How many phases each thread has finished.
    #[must_use]
    pub fn phases(&self) -> Vec<u32> {
        self.tasks[..self.threads()].iter().map(|t| t.phase).collect()
    }

    /// Living threads of the program per online CPU, runnable or blocked.
    #[must_use]
    pub fn counts(&self) -> Vec<(CpuId, usize)> {
        let mut counts = vec![0; self.queues.len()];
        for t in self.tasks[..self.threads()].iter().filter(|t| t.alive()) {
            counts[t.cpu] += 1;
        }
        let online = |(c, _): &(usize, usize)| self.queues[*c].online;
        counts.into_iter().enumerate().filter(online).map(|(c, k)| (CpuId(c as u32), k)).collect()
    }

    /// Threads of the program that are on a CPU outside the mask they started with, which happens
    /// only where none of its CPUs is online.
    #[must_use]
    pub fn outside_their_masks(&self) -> Vec<ThreadId> {
        (0..self.threads())
            .filter(|&t| {
                let task = &self.tasks[t];
                task.alive() && !task.original.contains(CpuId(task.cpu as u32))
            })
            .map(id_of)
            .collect()
    }

    /// Living threads whose mask is not the one that they started with.
    #[must_use]
    pub fn changed_masks(&self) -> Vec<ThreadId> {
        (0..self.threads())
            .filter(|&t| self.tasks[t].alive() && self.tasks[t].mask != self.tasks[t].original)
            .map(id_of)
            .collect()
    }

    /// The mask in force of each thread.
    #[must_use]
    pub fn masks(&self) -> Vec<CpuSet> {
        self.tasks[..self.threads()].iter().map(|t| t.mask.clone()).collect()
    }

    /// Moves per thread, by evenly and by the kernel.
    #[must_use]
    pub fn moves(&self) -> Vec<u64> {
        self.tasks[..self.threads()].iter().map(|t| t.moves).collect()
    }

    /// Moves that the kernel model made.
    #[must_use]
    pub fn kernel_moves(&self) -> u64 {
        self.kernel_moves
    }

    /// The same machine, on which every process has so many bytes in memory. That costs nothing and
    /// slows nothing: what is simulated is what a policy decides about it.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.process_bytes = bytes;
        self
    }

    /// The same machine, on which it can be read where memory is: that of each program on this node.
    #[must_use]
    pub fn with_memory_on(mut self, nodes: &[u32]) -> Self {
        let process = |(program, &node): (usize, &u32)| Some((self.process(program)?, node));
        self.memory = nodes.iter().enumerate().filter_map(process).collect();
        self
    }

    /// The same machine, on which nobody may give threads parts of CPUs.
    #[must_use]
    pub fn without_weights(mut self) -> Self {
        self.refuses_weights = true;
        self
    }

    /// How often it was read where the memory of a process is.
    #[must_use]
    pub fn memory_readings(&self) -> u64 {
        self.memory_readings
    }

    /// Memory that was moved so far: of which process, from which node, to which.
    #[must_use]
    pub fn memory_moves(&self) -> &[(Pid, u32, u32)] {
        &self.memory_moves
    }

    /// The threads of all programs as a scan of the system would show them.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        self.candidates_of(None)
    }

    /// Those of one program, or of all.
    #[must_use]
    pub fn candidates_of(&self, program: Option<usize>) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        self.refresh(program, &mut candidates);
        candidates
    }

    /// Brings a list from [`Sim::candidates_of`] up to date. Of a thread that was in it only what may
    /// have changed is new, as where a system is scanned again and again.
    pub fn refresh(&self, program: Option<usize>, candidates: &mut Vec<Candidate>) {
        let process = |t: usize| self.process(self.scenario.threads[t].program);
        let mut known = std::mem::take(candidates).into_iter().peekable();
        candidates.extend(self.of(program).map(|t| {
            let id = id_of(t);
            // Both are in the order of ids: these have ended.
            while known.next_if(|c| c.id < id).is_some() {}
            let (times, state, read_at) = (self.times(t), self.run_state(t), Nanos(self.now));
            match known.next_if(|c| c.id == id) {
                Some(c) => Candidate { times, state, read_at, ..c },
                None => {
                    let own = self.scenario.ranks.then_some(Pid(id.tid.0));
                    let pid = own.or_else(|| process(t)).unwrap_or(Pid(FIRST_TID));
                    Candidate {
                        id,
                        pid,
                        name: format!("thread-{t}"),
                        first: id.tid.0 == pid.0,
                        fair: true,
                        times,
                        state,
                        read_at,
                    }
                }
            }
        }));
    }

    /// The process that a program is: it has the number of its first thread.
    fn process(&self, program: usize) -> Option<Pid> {
        let first = *self.programs.get(program)?.threads.first()?;
        Some(Pid(FIRST_TID + first as i32))
    }

    /// How many threads of one program, or of all, have started and not ended.
    #[must_use]
    pub fn living_of(&self, program: Option<usize>) -> usize {
        self.of(program).count()
    }

    fn of(&self, program: Option<usize>) -> impl Iterator<Item = usize> + '_ {
        (0..self.threads()).filter(move |&t| {
            let task = &self.tasks[t];
            task.alive() && (program.is_none() || task.program == program)
        })
    }

    /// Lets the machine run until `time`; does nothing where that has passed.
    pub fn run_until(&mut self, time: Nanos) {
        while self.next_event(time) {}
        self.now = self.now.max(time.0);
    }

    /// Lets the machine run until `time`, or until a thread of a program blocks or ends, whichever
    /// comes first. All that happens at that moment has happened. Returns whether one did.
    pub fn run_until_one_blocks(&mut self, time: Nanos) -> bool {
        self.one_blocked = false;
        while !self.one_blocked && self.next_event(time) {}
        if !self.one_blocked {
            self.now = self.now.max(time.0);
            return false;
        }
        let moment = Nanos(self.now);
        while self.next_event(moment) {}
        true
    }

    /// Handles the next event, if there is one up to `time`.
    fn next_event(&mut self, time: Nanos) -> bool {
        let Some(&Reverse((at, _, event))) = self.events.peek() else { return false };
        if at > time.0 {
            return false;
        }
        self.events.pop();
        self.now = self.now.max(at);
        self.happen(event);
        true
    }

    /// Does what a balancer does that works beside others, and returns how long that takes: the
    /// machine has not run on meanwhile, so that others can do something at the same time.
    pub(crate) fn beside<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> (T, Nanos) {
        self.deferred = Some(0);
        let out = act(self);
        (out, Nanos(self.deferred.take().unwrap_or_default()))
    }

    /// A thread has another mask from now on.
    fn remask(&mut self, t: usize, mask: CpuSet) {
        let roams = mask.len() > 1;
        let task = &mut self.tasks[t];
        self.roaming = self.roaming + usize::from(roams) - usize::from(task.roams);
        (task.mask, task.roams) = (mask, roams);
    }

    fn at(&mut self, time: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((time.max(self.now), self.sequence, event)));
    }

    fn between(&mut self, (least, most): (Nanos, Nanos)) -> u64 {
        least.0 + ((most - least).0 as f64 * self.random.unit()) as u64
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Cpu(cpu, version) => {
                if self.queues[cpu].version == version {
                    self.cpu_event(cpu);
                }
            }
            Event::Start(t) => {
                if self.tasks[t].state == TaskState::NotStarted {
                    let cpu = self.starting_cpu(t);
                    self.tasks[t].cpu = cpu;
                    self.enqueue(t);
                }
            }
            Event::End(t) => self.end(t),
            Event::Toggle(s) => self.toggle(s),
            Event::Hotplug(h) => self.plug(h),
            Event::Rotate => self.rotate(),
        }
    }
}

impl Task {
    fn alive(&self) -> bool {
        matches!(self.state, TaskState::Runnable | TaskState::Blocked)
    }
}

fn id_of(t: usize) -> ThreadId {
    ThreadId { tid: Tid(FIRST_TID + t as i32), start: 1 }
}

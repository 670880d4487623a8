//! The machine itself: an event queue, CPUs with their tasks, and the accounts of each task.
//!
//! Accounts are settled per CPU and only when something changes on it, so that a run costs as much
//! as there is happening, not as much as time passes. Invariant: a task is in the queue of the CPU
//! `Task::cpu` exactly if it is runnable.

use crate::{Barrier, Placement, Scenario, Sharing};
use evenly_engine::{ApplyError, Candidate, Located, Machine, Reading, RunState, Times};
use evenly_model::stats::Random;
use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, Nanos, Pid, ThreadId, Tid};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

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
enum State {
    NotStarted,
    Runnable,
    Blocked,
    Ended,
}

/// A thread of the program, or a stranger.
#[derive(Debug, Clone)]
struct Task {
    state: State,
    cpu: usize,
    mask: CpuSet,
    original: CpuSet,
    /// Work left in this phase; None while it spins, and for strangers.
    left: Option<u64>,
    phase: u32,
    ran: u64,
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
    speed: u64,
    /// Runnable tasks; under slices the first one runs.
    tasks: VecDeque<usize>,
    /// Up to when the accounts are settled.
    settled: u64,
    version: u64,
    slice_end: u64,
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
    /// The program's threads, then the strangers.
    tasks: Vec<Task>,
    arrived: usize,
    alive: usize,
    random: Random,
    own: u64,
    kernel_moves: u64,
}

impl Sim {
    /// A machine at time zero.
    #[must_use]
    pub fn new(scenario: Scenario) -> Self {
        let queues = scenario
            .cpus
            .iter()
            .map(|c| Queue {
                online: true,
                speed: u64::from(c.speed_permille.max(1)),
                ..Queue::default()
            })
            .collect();
        let task = |mask: &CpuSet, left| Task {
            state: State::NotStarted,
            cpu: mask.first().map_or(0, |c| c.0 as usize),
            mask: mask.clone(),
            original: mask.clone(),
            left,
            phase: 0,
            ran: 0,
            waited: 0,
            booked_wait: 0,
            slices: 0,
            ended: None,
            moves: 0,
        };
        let threads = scenario.threads.iter().map(|t| task(&t.mask, Some(t.work.0 * UNITS)));
        let strangers = scenario.strangers.iter().map(|s| task(&CpuSet::single(s.cpu), None));
        let mut sim = Self {
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            queues,
            tasks: threads.chain(strangers).collect(),
            arrived: 0,
            alive: scenario.threads.len(),
            random: Random::new(scenario.seed),
            own: 0,
            kernel_moves: 0,
            scenario,
        };
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

    /// When the last thread of the program ended; None while one is left.
    #[must_use]
    pub fn makespan(&self) -> Option<Nanos> {
        self.tasks[..self.threads()]
            .iter()
            .map(|t| t.ended)
            .collect::<Option<Vec<_>>>()
            .map(|ends| ends.into_iter().max().unwrap_or_default())
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

    /// Moves per thread, whoever made them.
    #[must_use]
    pub fn moves(&self) -> Vec<u64> {
        self.tasks[..self.threads()].iter().map(|t| t.moves).collect()
    }

    /// Moves that the kernel model made.
    #[must_use]
    pub fn kernel_moves(&self) -> u64 {
        self.kernel_moves
    }

    /// The program's threads as a scan of the system would show them.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        (0..self.threads())
            .filter(|&t| self.tasks[t].alive())
            .map(|t| Candidate {
                id: id_of(t),
                pid: Pid(FIRST_TID),
                name: format!("thread-{t}"),
                first: t == 0,
                fair: true,
                times: self.times(t),
                state: self.run_state(t),
            })
            .collect()
    }

    /// Lets the machine run until `time`; does nothing where that has passed.
    pub fn run_until(&mut self, time: Nanos) {
        while let Some(&Reverse((at, _, event))) = self.events.peek() {
            if at > time.0 {
                break;
            }
            self.events.pop();
            self.now = self.now.max(at);
            self.happen(event);
        }
        self.now = self.now.max(time.0);
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
                if self.tasks[t].state == State::NotStarted {
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

    /// What a task has at `time`: CPU time and waiting. `time` is not before the settled moment.
    fn account(&self, t: usize, time: u64) -> (u64, u64) {
        let task = &self.tasks[t];
        if task.state != State::Runnable {
            return (task.ran, task.waited);
        }
        let q = &self.queues[task.cpu];
        let delta = time.saturating_sub(q.settled);
        let position = q.tasks.iter().position(|&x| x == t).unwrap_or(0);
        let share = self.share(q, position, delta);
        (task.ran + share, task.waited + delta - share)
    }

    fn share(&self, q: &Queue, position: usize, delta: u64) -> u64 {
        match self.scenario.sharing {
            Sharing::Fluid => {
                let k = q.tasks.len() as u64;
                let extra = (position as u64 + k - q.turn % k) % k < delta % k;
                delta / k + u64::from(extra)
            }
            Sharing::Slices(_) => {
                if position == 0 {
                    delta
                } else {
                    0
                }
            }
        }
    }

    /// What the kernel would show: the time of a running thread is booked at ticks and when
    /// something changes on its CPU, waiting when it ends.
    fn times(&self, t: usize) -> Times {
        let task = &self.tasks[t];
        let tick = self.scenario.tick.0;
        let seen = match self.now.checked_div(tick) {
            None => self.now,
            Some(ticks) => (ticks * tick).max(self.queues[task.cpu].settled),
        };
        let (ran, mut waited) = self.account(t, seen);
        if tick > 0 && matches!(self.scenario.sharing, Sharing::Slices(_)) {
            waited = task.booked_wait;
        }
        Times { ran: Nanos(ran), waited: Nanos(waited), slices: task.slices }
    }

    fn run_state(&self, t: usize) -> RunState {
        match self.tasks[t].state {
            State::Runnable => RunState::Runnable,
            State::Blocked => RunState::Blocked,
            State::NotStarted | State::Ended => RunState::Dead,
        }
    }

    /// Brings the accounts of all tasks on a CPU up to now.
    fn settle(&mut self, cpu: usize) {
        let delta = self.now - self.queues[cpu].settled;
        self.queues[cpu].settled = self.now;
        if delta == 0 || self.queues[cpu].tasks.is_empty() {
            return;
        }
        for position in 0..self.queues[cpu].tasks.len() {
            let share = self.share(&self.queues[cpu], position, delta);
            let speed = self.queues[cpu].speed;
            let task = &mut self.tasks[self.queues[cpu].tasks[position]];
            task.ran += share;
            task.waited += delta - share;
            task.left = task.left.map(|w| w.saturating_sub(share * speed));
        }
        let q = &mut self.queues[cpu];
        q.turn = (q.turn + delta) % q.tasks.len() as u64;
    }

    /// Plans the next event of a CPU whose tasks have changed. Its accounts are settled.
    fn plan(&mut self, cpu: usize) {
        let q = &mut self.queues[cpu];
        q.version += 1;
        let needed = |&t: &usize| self.tasks[t].left.map(|w| w.div_ceil(q.speed));
        let next = match self.scenario.sharing {
            Sharing::Fluid => {
                let k = q.tasks.len() as u64;
                q.tasks.iter().filter_map(needed).min().map(|w| self.now + w * k)
            }
            Sharing::Slices(_) => {
                let end = q.tasks.front().and_then(needed).map(|w| self.now + w);
                let slice = (q.tasks.len() > 1).then_some(q.slice_end);
                end.into_iter().chain(slice).min()
            }
        };
        let version = q.version;
        if let Some(time) = next {
            self.at(time, Event::Cpu(cpu, version));
        }
    }

    /// The task at the head of the queue begins to run.
    fn head_begins(&mut self, cpu: usize) {
        if let Sharing::Slices(slice) = self.scenario.sharing {
            let q = &mut self.queues[cpu];
            q.slice_end = self.now + slice.0.max(1);
            if let Some(&t) = q.tasks.front() {
                self.tasks[t].booked_wait = self.tasks[t].waited;
                self.tasks[t].slices += 1;
            }
        }
    }

    fn enqueue(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        self.settle(cpu);
        self.tasks[t].state = State::Runnable;
        self.tasks[t].slices += u64::from(self.scenario.sharing == Sharing::Fluid);
        self.queues[cpu].tasks.push_back(t);
        match (self.queues[cpu].tasks.len(), self.scenario.sharing) {
            (1, _) => self.head_begins(cpu),
            (2, Sharing::Slices(s)) => self.queues[cpu].slice_end = self.now + s.0.max(1),
            _ => {}
        }
        self.plan(cpu);
    }

    /// Takes a runnable task off its CPU; the CPU stays idle if it was the last.
    fn dequeue(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        self.settle(cpu);
        let q = &mut self.queues[cpu];
        if let Some(position) = q.tasks.iter().position(|&x| x == t) {
            q.tasks.remove(position);
            if position == 0 {
                self.head_begins(cpu);
            }
        }
        self.plan(cpu);
    }

    fn cpu_event(&mut self, cpu: usize) {
        self.settle(cpu);
        let done: Vec<usize> = self.queues[cpu]
            .tasks
            .iter()
            .copied()
            .filter(|&t| self.tasks[t].left == Some(0))
            .collect();
        for t in done {
            self.phase_ends(t);
        }
        let q = &mut self.queues[cpu];
        let sliced = matches!(self.scenario.sharing, Sharing::Slices(_));
        if sliced && q.tasks.len() > 1 && q.slice_end <= self.now {
            q.tasks.rotate_left(1);
            self.head_begins(cpu);
        }
        self.plan(cpu);
    }

    fn phase_ends(&mut self, t: usize) {
        self.tasks[t].phase += 1;
        if self.tasks[t].phase >= self.scenario.phases {
            self.end(t);
            return;
        }
        if self.scenario.barrier == Barrier::None {
            self.next_phase(t);
            return;
        }
        self.arrived += 1;
        self.tasks[t].left = None;
        if !self.release() && self.scenario.barrier == Barrier::Block {
            self.dequeue(t);
            self.tasks[t].state = State::Blocked;
            self.fell_idle(self.tasks[t].cpu);
        }
    }

    fn next_phase(&mut self, t: usize) {
        self.tasks[t].left = Some(self.scenario.threads[t].work.0 * UNITS);
        let cpu = self.tasks[t].cpu;
        self.settle(cpu);
        self.plan(cpu);
    }

    /// Opens the barrier if all living threads have arrived.
    fn release(&mut self) -> bool {
        if self.arrived == 0 || self.arrived < self.alive {
            return false;
        }
        self.arrived = 0;
        for t in 0..self.threads() {
            if self.tasks[t].left.is_some() || !self.tasks[t].alive() {
                continue;
            }
            if self.tasks[t].state == State::Blocked {
                self.tasks[t].left = Some(self.scenario.threads[t].work.0 * UNITS);
                self.wake(t);
            } else {
                self.settle(self.tasks[t].cpu);
                self.next_phase(t);
            }
        }
        true
    }

    fn wake(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        if self.scenario.kernel.reactive && !self.queues[cpu].tasks.is_empty() {
            let idle = (0..self.queues.len()).find(|&c| {
                let q = &self.queues[c];
                q.online && q.tasks.is_empty() && self.tasks[t].mask.contains(CpuId(c as u32))
            });
            if let Some(idle) = idle {
                self.tasks[t].cpu = idle;
                self.moved(t, true);
            }
        }
        self.enqueue(t);
    }

    fn end(&mut self, t: usize) {
        let state = self.tasks[t].state;
        if state == State::Ended {
            return;
        }
        if state == State::Runnable {
            self.dequeue(t);
        }
        let waited_at_barrier = self.tasks[t].left.is_none();
        self.tasks[t].state = State::Ended;
        self.tasks[t].ended = Some(Nanos(self.now));
        self.alive -= 1;
        self.arrived -= usize::from(waited_at_barrier);
        if state == State::Runnable {
            self.fell_idle(self.tasks[t].cpu);
        }
        self.release();
    }

    /// Reactive balancing: an idle CPU pulls a thread from the one with most.
    fn fell_idle(&mut self, cpu: usize) {
        if !self.scenario.kernel.reactive
            || !self.queues[cpu].online
            || !self.queues[cpu].tasks.is_empty()
        {
            return;
        }
        let here = CpuId(cpu as u32);
        // What runs at this moment is not pulled; under fluid sharing any may be.
        let waiting = |q: &Queue| {
            let first = usize::from(matches!(self.scenario.sharing, Sharing::Slices(_)));
            q.tasks
                .iter()
                .skip(first)
                .rev()
                .copied()
                .find(|&t| t < self.scenario.threads.len() && self.tasks[t].mask.contains(here))
        };
        let pulled = self
            .queues
            .iter()
            .filter(|q| q.tasks.len() >= 2)
            .filter_map(|q| waiting(q).map(|t| (q.tasks.len(), Reverse(self.tasks[t].cpu), t)))
            .max();
        if let Some((_, _, t)) = pulled {
            self.shift(t, cpu, true);
        }
    }

    fn moved(&mut self, t: usize, by_kernel: bool) {
        let refill = self.scenario.costs.refill.0 * UNITS;
        let task = &mut self.tasks[t];
        task.left = task.left.map(|w| w + refill);
        task.moves += 1;
        self.kernel_moves += u64::from(by_kernel);
    }

    /// Moves a thread to another CPU.
    fn shift(&mut self, t: usize, to: usize, by_kernel: bool) {
        let from = self.tasks[t].cpu;
        if from == to {
            return;
        }
        let runnable = self.tasks[t].state == State::Runnable;
        if runnable {
            self.dequeue(t);
        }
        self.tasks[t].cpu = to;
        self.moved(t, by_kernel);
        if runnable {
            self.enqueue(t);
            self.fell_idle(from);
        }
    }

    fn starting_cpu(&mut self, t: usize) -> usize {
        let allowed = self.online_of(&self.tasks[t].mask);
        match self.scenario.placement {
            Placement::Random if !allowed.is_empty() => allowed[self.random.below(allowed.len())],
            _ => self.emptiest(&allowed),
        }
    }

    fn online_of(&self, mask: &CpuSet) -> Vec<usize> {
        (0..self.queues.len())
            .filter(|&c| self.queues[c].online && mask.contains(CpuId(c as u32)))
            .collect()
    }

    fn emptiest(&self, among: &[usize]) -> usize {
        among.iter().copied().min_by_key(|&c| self.queues[c].tasks.len()).unwrap_or(0)
    }

    fn toggle(&mut self, s: usize) {
        let t = self.threads() + s;
        let stranger = self.scenario.strangers[s].clone();
        let over = stranger.until.is_some_and(|u| self.now >= u.0);
        if self.tasks[t].state == State::Runnable {
            self.dequeue(t);
            self.tasks[t].state = State::Blocked;
            self.fell_idle(self.tasks[t].cpu);
            if !over {
                let sleep = self.between(stranger.sleep);
                self.at(self.now + sleep, Event::Toggle(s));
            }
        } else if !over {
            if self.queues[self.tasks[t].cpu].online {
                self.enqueue(t);
            }
            let end = stranger.busy.map(|b| self.now + self.between(b));
            let stop = end.into_iter().chain(stranger.until.map(|u| u.0)).min();
            if let Some(stop) = stop {
                self.at(stop, Event::Toggle(s));
            }
        }
    }

    fn plug(&mut self, h: usize) {
        let Some(&crate::Hotplug { cpu, online, .. }) = self.scenario.hotplug.get(h) else {
            return;
        };
        let cpu = cpu.0 as usize;
        if self.queues[cpu].online == online {
            return;
        }
        self.queues[cpu].online = online;
        if online {
            self.queues[cpu].settled = self.now;
            self.fell_idle(cpu);
            return;
        }
        for t in 0..self.tasks.len() {
            if self.tasks[t].cpu != cpu || !self.tasks[t].alive() {
                continue;
            }
            // As the kernel does: the mask, if one of its CPUs is left; else the original one;
            // else any CPU.
            if self.online_of(&self.tasks[t].mask).is_empty() {
                self.tasks[t].mask = self.tasks[t].original.clone();
            }
            let mut to = self.online_of(&self.tasks[t].mask);
            if to.is_empty() {
                to = (0..self.queues.len()).filter(|&c| self.queues[c].online).collect();
            }
            let to = self.emptiest(&to);
            self.shift(t, to, true);
        }
    }

    fn rotate(&mut self) {
        if let Some(every) = self.scenario.kernel.rotate {
            self.at(self.now + every.0.max(1), Event::Rotate);
        }
        let (t, to) = (self.random.below(self.threads()), self.random.below(self.queues.len()));
        let task = &self.tasks[t];
        if task.state == State::Runnable
            && self.queues[to].online
            && task.mask.contains(CpuId(to as u32))
            && self.queues[to].tasks.len() < self.queues[task.cpu].tasks.len()
        {
            self.shift(t, to, true);
        }
    }

    fn spend(&mut self, cost: Nanos) {
        self.own += cost.0;
        if cost > Nanos::ZERO {
            self.run_until(Nanos(self.now) + cost);
        }
    }

    fn living(&self, id: ThreadId) -> Option<usize> {
        let t = usize::try_from(id.tid.0 - FIRST_TID).ok()?;
        (t < self.threads() && self.tasks[t].alive() && id == id_of(t)).then_some(t)
    }

    fn set_mask(&mut self, id: ThreadId, mask: &CpuSet) -> Result<usize, ApplyError> {
        self.spend(self.scenario.costs.place);
        let t = self.living(id).ok_or(ApplyError::Gone)?;
        if self.scenario.threads[t].own_mask {
            return Err(ApplyError::Foreign { found: self.tasks[t].mask.clone() });
        }
        assert!(
            mask.is_subset(&self.tasks[t].original),
            "P1: thread {id} was to get mask {mask}, outside its own {}",
            self.tasks[t].original
        );
        if self.online_of(mask).is_empty() {
            return Err(ApplyError::Unusable { wanted: mask.clone() });
        }
        self.tasks[t].mask = mask.clone();
        Ok(t)
    }
}

impl Task {
    fn alive(&self) -> bool {
        matches!(self.state, State::Runnable | State::Blocked)
    }
}

fn id_of(t: usize) -> ThreadId {
    ThreadId { tid: Tid(FIRST_TID + t as i32), start: 1 }
}

impl Machine for Sim {
    fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    fn own_cpu_time(&self) -> Nanos {
        Nanos(self.own)
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.clear();
        for &id in ids {
            self.spend(self.scenario.costs.read);
            out.push(self.living(id).map_or(Reading::Gone, |t| Reading::Times(self.times(t))));
        }
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        self.spend(self.scenario.costs.read);
        let t = self.living(id)?;
        Some(Located {
            cpu: CpuId(self.tasks[t].cpu as u32),
            state: self.run_state(t),
            minor_faults: 0,
            major_faults: 0,
        })
    }

    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        self.online_of(within).into_iter().map(|c| CpuId(c as u32)).collect()
    }

    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet> {
        self.living(id).map(|t| self.tasks[t].original.clone())
    }

    fn place(
        &mut self,
        id: ThreadId,
        cpu: CpuId,
        release: Option<&CpuSet>,
    ) -> Result<(), ApplyError> {
        let t = self.set_mask(id, &CpuSet::single(cpu))?;
        self.shift(t, cpu.0 as usize, false);
        if let Some(mask) = release {
            self.set_mask(id, mask)?;
        }
        Ok(())
    }

    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        let t = self.set_mask(id, mask)?;
        if !mask.contains(CpuId(self.tasks[t].cpu as u32)) {
            let to = self.emptiest(&self.online_of(mask));
            self.shift(t, to, false);
        }
        Ok(())
    }

    fn restore(&mut self, id: ThreadId) {
        self.spend(self.scenario.costs.place);
        if let Some(t) = self.living(id)
            && !self.scenario.threads[t].own_mask
        {
            self.tasks[t].mask = self.tasks[t].original.clone();
        }
    }

    fn capacity(&self, cpu: CpuId) -> u32 {
        let speed = self.queues.get(cpu.0 as usize).map_or(1000, |q| q.speed);
        u32::try_from(speed * u64::from(FULL_CAPACITY) / 1000).unwrap_or(u32::MAX).max(1)
    }

    fn resolution(&self) -> Nanos {
        self.scenario.tick
    }
}

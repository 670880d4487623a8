//! How the tasks on a CPU share it, and the accounts that follow from it.
//!
//! Invariant: what is added to the accounts of the tasks on a busy CPU in a span is that span,
//! except while the CPU stands still.

use super::{Event, Queue, Sim, TaskState};
use crate::Sharing;
use evenly_engine::{RunState, Times};
use evenly_model::Nanos;

/// What a task counts beside others that share its CPU, by default.
pub(super) const USUAL_WEIGHT: u64 = 1000;

/// `of` times a ratio, rounded down.
fn part(of: u64, ratio: u64, to: u64) -> u64 {
    let part = u128::from(of) * u128::from(ratio) / u128::from(to.max(1));
    u64::try_from(part).unwrap_or(u64::MAX)
}

/// How long it takes to receive `wanted` with this part of all weights: rounded up, as what is received
/// is rounded down, and an event that comes too early would never be the last.
fn time_for(wanted: u64, weight: u64, all: u64) -> u64 {
    let time = (u128::from(wanted) * u128::from(all)).div_ceil(u128::from(weight.max(1)));
    u64::try_from(time).unwrap_or(u64::MAX)
}

impl Sim {
    /// What a task has at `time`: CPU time and waiting. `time` is not before the settled moment.
    pub(super) fn account(&self, t: usize, time: u64) -> (u64, u64) {
        let task = &self.tasks[t];
        if task.state != TaskState::Runnable {
            return (task.ran, task.waited);
        }
        let q = &self.queues[task.cpu];
        let delta = time.saturating_sub(q.settled);
        let position = q.tasks.iter().position(|&x| x == t).unwrap_or(0);
        let share = self.share(q, position, delta);
        (task.ran + share, task.waited + delta - share)
    }

    /// Work that a task has done by now, with what it did while it waited at barriers by spinning, in
    /// thousandths of a nanosecond at speed 1.
    pub(super) fn done(&self, t: usize) -> u64 {
        let task = &self.tasks[t];
        let (ran, _) = self.account(t, self.now);
        task.done + (ran - task.ran) * self.queues[task.cpu].speed
    }

    /// What the task at this position of the queue received in `delta`.
    fn share(&self, q: &Queue, position: usize, delta: u64) -> u64 {
        match self.scenario.sharing {
            Sharing::Fluid => {
                let all_yield = self.all_yield(q);
                let counts = |&t: &usize| all_yield || !self.tasks[t].yields;
                if !q.tasks.get(position).is_some_and(counts) {
                    return 0;
                }
                if self.has_weights(q) {
                    // In whole nanoseconds, of which none is lost: from one border to the next.
                    let upto = |n| self.weights(q.tasks.iter().take(n).filter(|t| counts(t)));
                    let all = self.weights(q.tasks.iter().filter(|t| counts(t)));
                    let border = |weights| part(delta, weights, all);
                    return border(upto(position + 1)) - border(upto(position));
                }
                let k = q.tasks.iter().filter(|t| counts(t)).count() as u64;
                let position = q.tasks.iter().take(position).filter(|t| counts(t)).count() as u64;
                let extra = (position + k - q.turn % k) % k < delta % k;
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

    fn weights<'a>(&self, tasks: impl Iterator<Item = &'a usize>) -> u64 {
        tasks.map(|&t| self.tasks[t].weight).sum()
    }

    fn has_weights(&self, q: &Queue) -> bool {
        q.tasks.iter().any(|&t| self.tasks[t].weight != USUAL_WEIGHT)
    }

    /// The slice of the task that begins to run.
    fn slice_of_head(&self, q: &Queue, slice: Nanos) -> u64 {
        let weight = q.tasks.front().map_or(USUAL_WEIGHT, |&t| self.tasks[t].weight);
        part(slice.0, weight, USUAL_WEIGHT).max(1)
    }

    fn all_yield(&self, q: &Queue) -> bool {
        q.tasks.iter().all(|&t| self.tasks[t].yields)
    }

    /// How many tasks share the CPU.
    fn sharing(&self, q: &Queue) -> u64 {
        let yielding = q.tasks.iter().filter(|&&t| self.tasks[t].yields).count();
        let all = q.tasks.len();
        (if yielding == all { all } else { all - yielding }) as u64
    }

    /// What the kernel would show: the time of a running thread is booked at ticks and when
    /// something changes on its CPU, waiting when it ends.
    pub(super) fn times(&self, t: usize) -> Times {
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

    pub(super) fn run_state(&self, t: usize) -> RunState {
        match self.tasks[t].state {
            TaskState::Runnable => RunState::Runnable,
            TaskState::Blocked => RunState::Blocked,
            TaskState::NotStarted | TaskState::Ended => RunState::Dead,
        }
    }

    /// Brings the accounts of all tasks on a CPU up to now.
    pub(super) fn settle(&mut self, cpu: usize) {
        // A CPU that stands still is settled ahead of time.
        let delta = self.now.saturating_sub(self.queues[cpu].settled);
        self.queues[cpu].settled = self.queues[cpu].settled.max(self.now);
        if self.queues[cpu].tasks.is_empty() {
            self.queues[cpu].idle += delta;
            return;
        }
        if delta == 0 {
            return;
        }
        for position in 0..self.queues[cpu].tasks.len() {
            // Shares do not depend on what is left.
            let share = self.share(&self.queues[cpu], position, delta);
            let speed = self.queues[cpu].speed;
            let task = &mut self.tasks[self.queues[cpu].tasks[position]];
            task.ran += share;
            task.done += share * speed;
            task.waited += delta - share;
            task.left = task.left.map(|w| w.saturating_sub(share * speed));
        }
        let k = self.sharing(&self.queues[cpu]);
        let q = &mut self.queues[cpu];
        q.turn = (q.turn + delta) % k;
    }

    /// Plans the next event of a CPU whose tasks have changed. Its accounts are settled.
    pub(super) fn plan(&mut self, cpu: usize) {
        let k = self.sharing(&self.queues[cpu]);
        let has_weights = self.has_weights(&self.queues[cpu]);
        let all_yield = self.all_yield(&self.queues[cpu]);
        let counts = |t: &usize| all_yield || !self.tasks[*t].yields;
        let all = self.weights(self.queues[cpu].tasks.iter().filter(|t| counts(t)));
        let q = &mut self.queues[cpu];
        q.version += 1;
        let from = q.settled.max(self.now);
        let needed = |&t: &usize| self.tasks[t].left.map(|w| w.div_ceil(q.speed));
        let next = match self.scenario.sharing {
            Sharing::Fluid if has_weights => q
                .tasks
                .iter()
                .filter(|t| counts(t))
                .filter_map(|t| Some(time_for(needed(t)?, self.tasks[*t].weight, all)))
                .min()
                .map(|w| from.saturating_add(w)),
            Sharing::Fluid => q
                .tasks
                .iter()
                .filter_map(needed)
                .min()
                .map(|w| from.saturating_add(w.saturating_mul(k))),
            Sharing::Slices(_) => {
                let end = q.tasks.front().and_then(needed).map(|w| from.saturating_add(w));
                let slice = (q.tasks.len() > 1).then_some(q.slice_end);
                end.into_iter().chain(slice).min()
            }
        };
        let version = q.version;
        if let Some(time) = next {
            self.at(time, Event::Cpu(cpu, version));
        }
    }

    /// The task at the head of the queue begins to run. One that yields goes to the end while
    /// another has work.
    fn head_begins(&mut self, cpu: usize) {
        if let Sharing::Slices(slice) = self.scenario.sharing {
            let yielding = self.queues[cpu].tasks.iter();
            let first = yielding.take_while(|&&t| self.tasks[t].yields).count();
            let q = &mut self.queues[cpu];
            if first < q.tasks.len() {
                for &t in q.tasks.iter().take(first) {
                    self.tasks[t].slices += 1;
                }
                q.tasks.rotate_left(first);
            }
            let from = self.now.max(q.settled);
            let length = self.slice_of_head(&self.queues[cpu], slice);
            let q = &mut self.queues[cpu];
            q.slice_end = from + length;
            if let Some(&t) = q.tasks.front() {
                self.tasks[t].booked_wait = self.tasks[t].waited;
                self.tasks[t].slices += 1;
            }
        }
    }

    /// A thread has come to a barrier at which it yields.
    pub(super) fn lets_others_run(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        self.settle(cpu);
        self.tasks[t].yields = true;
        if self.queues[cpu].tasks.front() == Some(&t) {
            self.head_begins(cpu);
        }
        self.plan(cpu);
    }

    /// Gives a task another part of the CPU that it shares.
    pub(super) fn weigh_task(&mut self, t: usize, weight: u64) {
        let cpu = self.tasks[t].cpu;
        self.settle(cpu);
        self.tasks[t].weight = weight;
        self.plan(cpu);
    }

    /// The speed of a CPU as it follows from what its sibling does.
    pub(super) fn adjust_speed(&mut self, cpu: usize) {
        let of = &self.scenario.cpus[cpu];
        let alone = of.sibling.is_some_and(|s| {
            self.queues.get(s.0 as usize).is_some_and(|q| q.tasks.is_empty() || !q.online)
        });
        let gain = if alone { u64::from(of.alone_permille) } else { 0 };
        let speed = self.queues[cpu].base_speed * (1000 + gain) / 1000;
        if speed != self.queues[cpu].speed {
            self.settle(cpu);
            self.queues[cpu].speed = speed;
            self.plan(cpu);
        }
    }

    /// The CPU has become busy or idle.
    fn tell_sibling(&mut self, cpu: usize) {
        if let Some(s) = self.scenario.cpus[cpu].sibling
            && (s.0 as usize) < self.queues.len()
        {
            self.adjust_speed(s.0 as usize);
        }
    }

    /// Takes all CPUs away from all tasks for the time that a balancing point costs. Returns it.
    pub(crate) fn stall(&mut self) -> Nanos {
        self.stall_cpus(0..self.queues.len())
    }

    /// Takes some CPUs away for as long.
    pub(crate) fn stall_cpus(&mut self, cpus: std::ops::Range<usize>) -> Nanos {
        let cost = self.scenario.costs.point;
        if cost > Nanos::ZERO {
            self.own = self.own.saturating_add(cost.0);
            cpus.for_each(|cpu| self.hold_cpu(cpu, cost));
        }
        cost
    }

    /// Takes a CPU away from its tasks for so long.
    pub(crate) fn hold_cpu(&mut self, cpu: usize, time: Nanos) {
        if time == Nanos::ZERO {
            return;
        }
        self.settle(cpu);
        let q = &mut self.queues[cpu];
        q.settled = q.settled.saturating_add(time.0);
        q.slice_end = q.slice_end.saturating_add(time.0);
        for &t in &q.tasks {
            let waited = &mut self.tasks[t].waited;
            *waited = waited.saturating_add(time.0);
        }
        self.plan(cpu);
    }

    pub(super) fn enqueue(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        self.settle(cpu);
        self.tasks[t].state = TaskState::Runnable;
        self.tasks[t].slices += u64::from(self.scenario.sharing == Sharing::Fluid);
        let head_yields = self.queues[cpu].tasks.front().is_some_and(|&h| self.tasks[h].yields);
        self.queues[cpu].tasks.push_back(t);
        let length = self.queues[cpu].tasks.len();
        self.lengths.change(cpu, length - 1, length);
        match (self.queues[cpu].tasks.len(), self.scenario.sharing) {
            (1, _) => {
                self.head_begins(cpu);
                self.tell_sibling(cpu);
            }
            (_, Sharing::Slices(_)) if head_yields => self.head_begins(cpu),
            (2, Sharing::Slices(s)) => {
                let from = self.now.max(self.queues[cpu].settled);
                self.queues[cpu].slice_end = from + self.slice_of_head(&self.queues[cpu], s);
            }
            _ => {}
        }
        self.plan(cpu);
    }

    /// Takes a runnable task off its CPU; the CPU stays idle if it was the last.
    pub(super) fn dequeue(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        self.settle(cpu);
        let q = &mut self.queues[cpu];
        if let Some(position) = q.tasks.iter().position(|&x| x == t) {
            q.tasks.remove(position);
            self.lengths.change(cpu, q.tasks.len() + 1, q.tasks.len());
            if position == 0 {
                self.head_begins(cpu);
            }
            if self.queues[cpu].tasks.is_empty() {
                self.tell_sibling(cpu);
            }
        }
        self.plan(cpu);
    }

    pub(super) fn cpu_event(&mut self, cpu: usize) {
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
}

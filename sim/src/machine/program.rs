//! Phases and barriers.
//!
//! Invariant: a program's barrier opens at the moment when all of its threads that have not ended have arrived;
//! where waking costs something, for one after the other as the first has worked for it. A thread with partners
//! goes on at the moment when each of these has finished as many phases as itself, or has ended.

use super::{Sim, TaskState, UNITS};
use crate::Barrier;
use evenly_model::stats::Random;
use evenly_model::{CpuId, Nanos};

impl Sim {
    /// How many phases the program has, and what is between them.
    pub(super) fn course(&self, program: usize) -> (u32, Barrier) {
        match program.checked_sub(1).and_then(|p| self.scenario.others.get(p)) {
            Some(other) => (other.phases, other.barrier),
            None => (self.scenario.phases, self.scenario.barrier),
        }
    }

    pub(super) fn phase_ends(&mut self, t: usize) {
        let Some(program) = self.tasks[t].program else { return };
        if self.programs[program].waking.is_some() && self.wakes(program) == Some(t) {
            self.one_is_woken(t, program);
            return;
        }
        let (phases, barrier) = self.course(program);
        self.tasks[t].phase += 1;
        if self.tasks[t].phase >= phases {
            self.end(t);
            return;
        }
        if barrier == Barrier::None {
            self.goes_on_with(t, self.work(t));
            return;
        }
        self.programs[program].arrived += 1;
        self.tell_arrival(t, program);
        self.tasks[t].left = None;
        self.tasks[t].waits_since = Some(self.now);
        self.release(program, Some(t));
        if self.tasks[t].left.is_some() {
            return;
        }
        match barrier {
            Barrier::None | Barrier::Spin => {}
            Barrier::Yield => self.lets_others_run(t),
            Barrier::Block => {
                self.dequeue(t);
                self.tasks[t].state = TaskState::Blocked;
                self.one_blocked = true;
                self.fell_idle(self.tasks[t].cpu);
            }
        }
    }

    /// What the phase that a thread is in needs.
    pub(super) fn work(&self, t: usize) -> u64 {
        let phase = self.tasks[t].phase;
        let work = self.scenario.threads[t].work_of(phase).0 * UNITS;
        match self.scenario.threads[t].noise_permille {
            0 => work,
            noise => {
                // By thread and phase, so that it is the same whatever happens in which order.
                let name = (t as u64) << 32 | u64::from(phase);
                let seed = self.scenario.seed ^ name.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let off = f64::from(noise) / 1000.0 * (2.0 * Random::new(seed).unit() - 1.0);
                (work as f64 * (1.0 + off)) as u64
            }
        }
    }

    /// Whether those that a thread waits for have finished as many phases.
    fn are_there(&self, t: usize, program: usize) -> bool {
        let own = self.tasks[t].phase;
        let is_there = |&other: &usize| {
            self.tasks.get(other).is_none_or(|o| o.phase >= own || o.state == TaskState::Ended)
        };
        match self.scenario.threads[t].partners.as_slice() {
            [] => self.programs[program].threads.iter().all(is_there),
            partners => partners.iter().all(is_there),
        }
    }

    /// Opens the barrier if all living threads have arrived, `last` just now if it is one; where threads have partners, for those
    /// whose partners have.
    fn release(&mut self, program: usize, last: Option<usize>) {
        let p = &self.programs[program];
        let by_partners = p.has_partners;
        if p.waking.is_some() || p.arrived == 0 || p.arrived < p.alive && !by_partners {
            return;
        }
        self.tell_opening(last, program);
        if let Some(first) = self.wakes(program) {
            self.programs[program].waking = Some(self.programs[program].threads.len() - 1);
            self.goes_on_with(first, self.scenario.costs.wake.0 * UNITS);
            return;
        }
        for i in 0..self.programs[program].threads.len() {
            let t = self.programs[program].threads[i];
            if self.tasks[t].left.is_some() || !self.tasks[t].alive() {
                continue;
            }
            if by_partners && !self.are_there(t, program) {
                continue;
            }
            self.waits_no_more(t, program);
        }
    }

    fn waits_no_more(&mut self, t: usize, program: usize) {
        self.programs[program].arrived -= 1;
        let since = self.tasks[t].waits_since.take().unwrap_or(self.now);
        self.tasks[t].waited_for += self.now - since;
        self.tasks[t].computes_since = self.now;
        self.tell_beginning(t, program);
        self.goes_on_with(t, self.work(t));
    }

    fn goes_on_with(&mut self, t: usize, work: u64) {
        if self.tasks[t].state == TaskState::Blocked {
            self.tasks[t].left = Some(work);
            self.wake(t);
        } else {
            let cpu = self.tasks[t].cpu;
            self.settle(cpu);
            self.tasks[t].left = Some(work);
            self.tasks[t].yields = false;
            self.plan(cpu);
        }
    }

    /// The thread that wakes the others; none where that costs nothing.
    fn wakes(&self, program: usize) -> Option<usize> {
        let p = &self.programs[program];
        let first = p.threads.first().copied().filter(|t| self.tasks[*t].alive())?;
        (self.scenario.costs.wake > Nanos::ZERO && !p.has_partners).then_some(first)
    }

    /// The first thread has done what it takes to wake another.
    fn one_is_woken(&mut self, first: usize, program: usize) {
        let next = self.programs[program].waking.take().unwrap_or(0);
        let sleeping = |i: &usize| {
            let t = self.programs[program].threads[*i];
            self.tasks[t].alive() && self.tasks[t].left.is_none()
        };
        let mut those = (1..=next).rev().filter(sleeping);
        let (woken, more) = (those.next(), those.next());
        if let Some(i) = woken {
            self.waits_no_more(self.programs[program].threads[i], program);
        }
        if more.is_some() {
            self.programs[program].waking = more;
            self.goes_on_with(first, self.scenario.costs.wake.0 * UNITS);
            return;
        }
        self.waits_no_more(first, program);
    }

    fn wake(&mut self, t: usize) {
        let cpu = self.tasks[t].cpu;
        let may_go = self.tasks[t].roams && self.scenario.kernel.reactive;
        if may_go && !self.queues[cpu].tasks.is_empty() {
            let mask = &self.tasks[t].mask;
            let may = |&c: &usize| self.queues[c].online && mask.contains(CpuId(c as u32));
            let idle = self.lengths.empty().find(may);
            if let Some(idle) = idle {
                self.tasks[t].cpu = idle;
                self.moved(t, true);
            }
        }
        self.enqueue(t);
    }

    pub(super) fn end(&mut self, t: usize) {
        let state = self.tasks[t].state;
        if state == TaskState::Ended {
            return;
        }
        if state == TaskState::Runnable {
            self.dequeue(t);
        }
        let waited_at_barrier = self.tasks[t].left.is_none();
        self.tasks[t].state = TaskState::Ended;
        self.tasks[t].ended = Some(Nanos(self.now));
        (self.left, self.last_end, self.one_blocked) = (self.left - 1, self.now, true);
        let Some(program) = self.tasks[t].program else { return };
        self.roaming -= usize::from(std::mem::take(&mut self.tasks[t].roams));
        let p = &mut self.programs[program];
        p.alive -= 1;
        p.arrived -= usize::from(waited_at_barrier);
        if p.threads.first() == Some(&t) {
            // No thread is woken by it any more.
            p.waking = None;
        }
        if p.alive == 0 {
            p.ended = Some(Nanos(self.now));
        }
        if state == TaskState::Runnable {
            self.fell_idle(self.tasks[t].cpu);
        }
        self.release(program, None);
    }
}

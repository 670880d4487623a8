//! What the kernel does by itself, and what happens to the machine: pulling, rotating, hotplug,
//! strangers that come and go.
//!
//! Invariant: nothing here takes a thread out of its mask while a CPU of it is online.

use super::{Event, Queue, Sim, TaskState, UNITS};
use crate::{Placement, Sharing};
use evenly_model::{CpuId, CpuSet};

impl Sim {
    /// Reactive balancing: an idle CPU pulls a thread from the one with most.
    pub(super) fn fell_idle(&mut self, cpu: usize) {
        // Threads that are pinned are where they are pinned.
        if !self.scenario.kernel.reactive
            || self.roaming == 0
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
        let pulled = self.lengths.crowded().find_map(|c| waiting(&self.queues[c]));
        if let Some(t) = pulled {
            self.shift(t, cpu, true);
        }
    }

    pub(super) fn moved(&mut self, t: usize, by_kernel: bool) {
        let refill = self.scenario.costs.refill.0 * UNITS;
        let task = &mut self.tasks[t];
        task.left = task.left.map(|w| w.saturating_add(refill));
        task.moves += 1;
        self.kernel_moves += u64::from(by_kernel);
    }

    /// Moves a thread to another CPU.
    pub(super) fn shift(&mut self, t: usize, to: usize, by_kernel: bool) {
        let from = self.tasks[t].cpu;
        if from == to {
            return;
        }
        let runnable = self.tasks[t].state == TaskState::Runnable;
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

    pub(super) fn starting_cpu(&mut self, t: usize) -> usize {
        let mask = &self.tasks[t].mask;
        if self.scenario.placement == Placement::Random {
            let allowed = self.online_of(mask);
            if !allowed.is_empty() {
                return allowed[self.random.below(allowed.len())];
            }
        }
        self.emptiest_in(mask)
    }

    /// A thread has the mask again that it started with; a stranger's is the same throughout.
    fn widen(&mut self, t: usize) {
        if t < self.threads() {
            self.remask(t, self.tasks[t].original.clone());
        }
    }

    pub(super) fn online_in<'a>(&'a self, mask: &'a CpuSet) -> impl Iterator<Item = usize> + 'a {
        (0..self.queues.len()).filter(|&c| self.queues[c].online && mask.contains(CpuId(c as u32)))
    }

    pub(super) fn online_of(&self, mask: &CpuSet) -> Vec<usize> {
        self.online_in(mask).collect()
    }

    /// The first of a set's CPUs that have fewest, of those that are online; the first of all where none is.
    pub(super) fn emptiest_in(&self, mask: &CpuSet) -> usize {
        let may = |&c: &usize| self.queues[c].online && mask.contains(CpuId(c as u32));
        self.lengths.ascending().find(may).unwrap_or(0)
    }

    /// The first of those that have fewest; nobody is looked at after one that has none.
    pub(super) fn emptiest(&self, among: impl IntoIterator<Item = usize>) -> usize {
        let (mut best, mut fewest) = (0, usize::MAX);
        for c in among {
            let tasks = self.queues[c].tasks.len();
            if tasks < fewest {
                (best, fewest) = (c, tasks);
            }
            if fewest == 0 {
                break;
            }
        }
        best
    }

    pub(super) fn toggle(&mut self, s: usize) {
        let t = self.threads() + s;
        let stranger = self.scenario.strangers[s].clone();
        let over = stranger.until.is_some_and(|u| self.now >= u.0);
        if self.tasks[t].state == TaskState::Runnable {
            self.dequeue(t);
            self.tasks[t].state = TaskState::Blocked;
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

    pub(super) fn plug(&mut self, h: usize) {
        let Some(&crate::Hotplug { cpu, online, .. }) = self.scenario.hotplug.get(h) else {
            return;
        };
        let cpu = cpu.0 as usize;
        if self.queues[cpu].online == online {
            return;
        }
        self.queues[cpu].online = online;
        if let Some(s) = self.scenario.cpus[cpu].sibling
            && (s.0 as usize) < self.queues.len()
        {
            self.adjust_speed(s.0 as usize);
        }
        if online {
            self.queues[cpu].settled = self.queues[cpu].settled.max(self.now);
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
                self.widen(t);
            }
            let mut to = self.online_of(&self.tasks[t].mask);
            if to.is_empty() {
                to = (0..self.queues.len()).filter(|&c| self.queues[c].online).collect();
            }
            let to = self.emptiest(to);
            self.shift(t, to, true);
        }
    }

    pub(super) fn rotate(&mut self) {
        if let Some(every) = self.scenario.kernel.rotate {
            self.at(self.now + every.0.max(1), Event::Rotate);
        }
        let (t, to) = (self.random.below(self.threads()), self.random.below(self.queues.len()));
        let task = &self.tasks[t];
        if task.state == TaskState::Runnable
            && self.queues[to].online
            && task.mask.contains(CpuId(to as u32))
            && self.queues[to].tasks.len() < self.queues[task.cpu].tasks.len()
        {
            self.shift(t, to, true);
        }
    }
}

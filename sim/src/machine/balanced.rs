//! The machine as the engine sees it.
//!
//! Invariant: promise P1 is checked here. A mask outside the thread's original one is refused with
//! a panic.

use super::sharing::USUAL_WEIGHT;
use super::{FIRST_TID, Sim, UNITS, id_of};
use crate::Counters;
use evenly_engine::{
    Actuator, ApplyError, Located, MemoryMoved, MemoryUnknown, Reader, Reading, Sensors, Times,
    Waiting, Wanted,
};
use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, Nanos, Pid, ThreadId};

impl Sim {
    fn spend(&mut self, cost: Nanos) {
        self.own = self.own.saturating_add(cost.0);
        if let Some(deferred) = &mut self.deferred {
            *deferred = deferred.saturating_add(cost.0);
            return;
        }
        if cost > Nanos::ZERO {
            self.run_until(Nanos(self.now) + cost);
        }
    }

    /// What a reading shows: what the kernel has booked, with the errors of the scenario. A time
    /// never goes back.
    fn observed(&mut self, t: usize) -> Times {
        let (noise, stale) = (self.scenario.readings.noise, self.scenario.readings.stale_permille);
        let last = self.shown[t];
        if stale > 0 && self.reading_errors.below(1000) < stale as usize {
            return last;
        }
        let mut times = self.times(t);
        if noise > Nanos::ZERO {
            let late = noise.scale(self.reading_errors.unit());
            times.ran = (times.ran - late).max(last.ran);
        }
        self.shown[t] = times;
        times
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
        if !mask.iter().any(|c| self.queues.get(c.0 as usize).is_some_and(|q| q.online)) {
            return Err(ApplyError::Unusable { wanted: mask.clone() });
        }
        self.remask(t, mask.clone());
        Ok(t)
    }
}

impl Reader for Sim {
    fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    fn own_cpu_time(&self) -> Nanos {
        Nanos(self.own)
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.clear();
        for &id in ids {
            let reading = self.read_one(id);
            out.push(reading);
        }
    }

    fn read_one(&mut self, id: ThreadId) -> Reading {
        self.spend(self.scenario.costs.read);
        self.readings += 1;
        match self.living(id) {
            Some(t) => Reading::Times(self.observed(t)),
            None => Reading::Gone,
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

    fn idle(&mut self, cpus: &[CpuId]) -> Vec<Nanos> {
        let idle = |cpu: &CpuId| {
            let q = self.queues.get(cpu.0 as usize)?;
            let since = if q.tasks.is_empty() { self.now.saturating_sub(q.settled) } else { 0 };
            Some(Nanos(q.idle + since))
        };
        cpus.iter().map(idle).collect::<Option<_>>().unwrap_or_default()
    }

    fn busy(&mut self, cpus: &[CpuId]) -> Vec<Nanos> {
        let now = Nanos(self.now);
        self.idle(cpus).into_iter().map(|idle| now - idle).collect()
    }

    fn resolution(&self) -> Nanos {
        self.scenario.tick
    }
}

impl Sensors for Sim {
    fn retired(&mut self, ids: &[ThreadId], out: &mut Vec<Option<u64>>) {
        out.clear();
        if self.scenario.counters == Counters::Instructions {
            out.extend(ids.iter().map(|&id| self.living(id).map(|t| self.done(t) / UNITS)));
        }
    }

    fn waiting(&mut self, ids: &[ThreadId], out: &mut Vec<Option<Waiting>>) {
        out.clear();
        if self.scenario.probe {
            out.extend(ids.iter().map(|&id| {
                let t = self.living(id)?;
                let task = &self.tasks[t];
                let lasts = task.waits_since.map_or(0, |since| self.now - since);
                let waited = Nanos(task.waited_for + lasts);
                let waits = task.phase;
                // Waiting for some is no barrier.
                let is_barrier = self.scenario.threads[t].partners.is_empty();
                let phases = if is_barrier { waits } else { 0 };
                let computes = task.waits_since.is_none();
                (waits > 0).then_some(Waiting {
                    waited,
                    outside: Nanos::ZERO,
                    phases,
                    waits,
                    computes_since: computes.then_some(Nanos(task.computes_since)),
                })
            }));
        }
    }

    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        self.online_of(within).into_iter().map(|c| CpuId(c as u32)).collect()
    }

    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet> {
        self.living(id).map(|t| self.tasks[t].original.clone())
    }

    fn memory_of(&mut self, _pid: Pid) -> Option<u64> {
        Some(self.process_bytes)
    }

    fn memory_on_nodes(&mut self, pid: Pid) -> Result<Vec<(u32, u64)>, MemoryUnknown> {
        self.spend(self.scenario.costs.read);
        self.memory_readings += 1;
        if self.process_bytes == 0 {
            return Ok(Vec::new());
        }
        let unknown = || MemoryUnknown::Unreadable(String::from("the scenario does not tell"));
        self.memory.get(&pid).map(|&node| vec![(node, self.process_bytes)]).ok_or_else(unknown)
    }

    /// What the kernel would say: it knows nothing of what a sibling does.
    fn capacity(&self, cpu: CpuId) -> u32 {
        if self.scenario.counters != Counters::Capacity {
            return FULL_CAPACITY;
        }
        let speed = self.queues.get(cpu.0 as usize).map_or(1000, |q| q.base_speed);
        u32::try_from(speed * u64::from(FULL_CAPACITY) / 1000).unwrap_or(u32::MAX).max(1)
    }
}

impl Actuator for Sim {
    fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ApplyError>> {
        let mut give = |w: &Wanted| {
            let t = self.living(w.thread).ok_or(ApplyError::Gone)?;
            if self.refuses_weights {
                return Err(ApplyError::Refused(String::from("no privileges")));
            }
            self.weigh_task(t, ((w.weight * 1000.0).round() as u64).clamp(1, 1_000_000));
            Ok(w.weight)
        };
        wanted.iter().map(&mut give).collect()
    }

    fn unweigh(&mut self, _process: Pid, thread: ThreadId) {
        if let Some(t) = self.living(thread) {
            self.weigh_task(t, USUAL_WEIGHT);
        }
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
            let to = self.emptiest_in(mask);
            self.shift(t, to, false);
        }
        Ok(())
    }

    fn restore(&mut self, id: ThreadId) {
        self.spend(self.scenario.costs.place);
        if let Some(t) = self.living(id)
            && !self.scenario.threads[t].own_mask
        {
            self.remask(t, self.tasks[t].original.clone());
        }
    }

    fn move_memory(&mut self, pid: Pid, from: u32, to: u32) -> bool {
        self.memory_moves.push((pid, from, to));
        true
    }

    fn go_on_moving(&mut self) -> Option<MemoryMoved> {
        let &(pid, from, to) = self.memory_moves.get(self.reported_moves)?;
        self.reported_moves += 1;
        if let Some(node) = self.memory.get_mut(&pid).filter(|node| **node == from) {
            *node = to;
        }
        Some(MemoryMoved { pid, from, to, bytes: self.process_bytes, stayed: 0, error: None })
    }
}

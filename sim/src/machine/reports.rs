//! What a program reports of its phases, as the probe does live: when its barrier opens, and what each thread is expected to
//! compute until the next one.
//!
//! What is expected is the mean of what the thread took last and what had been expected then. Phases that begin at one
//! barrier are alike, and a program whose works repeat ([`crate::Thread::works`]) has a barrier for each of them.
//!
//! Invariant: nothing that happens on the machine depends on what is here.

use super::Sim;
use crate::Barrier;
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId};
use evenly_phase::{Measured, Opening, Openings, Reported};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The reports of one program.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    measured: Measured,
    opening: Opening,
    threads: BTreeMap<ThreadId, Thread>,
    /// Agents of these CPUs are woken when the barrier opens, if the one that opens it is expected to compute for longer than
    /// this in the next phase, or this is zero.
    armed: (Vec<CpuId>, Nanos),
    /// CPUs whose agents have been called since this was looked at last.
    called: BTreeSet<CpuId>,
}

/// What a thread reports.
#[derive(Debug, Default)]
struct Thread {
    /// What it took in phases that began at each barrier, lately.
    usual: BTreeMap<usize, Nanos>,
    /// The barrier at which this phase began.
    began: usize,
    /// Whether this phase is measured from its beginning.
    measured: bool,
    reported: Reported,
}

impl Reports {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The CPUs whose agents have been called.
    pub(crate) fn take_called(&self) -> BTreeSet<CpuId> {
        std::mem::take(&mut self.told().called)
    }

    /// A thread with this CPU time has finished a phase; the next begins at the barrier `next`.
    fn finishes(&self, thread: ThreadId, ran: Nanos, next: usize) {
        let mut told = self.told();
        if told.measured == Measured::Nothing {
            return;
        }
        let timed = told.measured == Measured::Phases;
        let t = told.threads.entry(thread).or_default();
        if std::mem::take(&mut t.measured) {
            let took = ran - t.reported.base;
            let usual = t.usual.entry(t.began).or_insert(took);
            *usual = Nanos(usual.0 / 2 + took.0 / 2);
        }
        t.began = next;
        if timed {
            let expected = t.usual.get(&next).copied().unwrap_or_default();
            t.reported = Reported { expected, base: ran, finished: true };
        }
    }

    /// The barrier opens, as the last thread has come.
    fn opens(&self, last: ThreadId, now: Nanos) {
        let mut told = self.told();
        if told.measured == Measured::Nothing {
            return;
        }
        told.opening = Opening { phase: told.opening.phase.wrapping_add(1), at: now };
        let expected = told.threads.get(&last).map_or(Nanos::ZERO, |t| t.reported.expected);
        for t in told.threads.values_mut() {
            t.reported.finished = false;
        }
        if told.armed.1 == Nanos::ZERO || expected > told.armed.1 {
            let armed = told.armed.0.clone();
            told.called.extend(armed);
        }
    }

    /// A thread with this CPU time goes on.
    fn goes_on(&self, thread: ThreadId, ran: Nanos) {
        let mut told = self.told();
        if told.measured == Measured::Phases {
            let t = told.threads.entry(thread).or_default();
            (t.measured, t.reported.base) = (true, ran);
        }
    }
}

impl Openings for Reports {
    fn follow(&self, threads: &[ThreadId]) -> Option<u32> {
        (threads.len() > 1).then_some(0)
    }

    fn measure(&self, what: Measured) {
        let mut told = self.told();
        told.measured = what;
        if what != Measured::Phases {
            told.threads.values_mut().for_each(|t| t.measured = false);
        }
    }

    fn hold(&self, _held: bool) {}

    fn show_masks(&self, _process: Pid) {}

    fn arm(&self, cpus: &[CpuId], least: Nanos) {
        self.told().armed = (cpus.to_vec(), least);
    }

    /// In virtual time nobody waits: agents are woken by what they are called for.
    fn wait(&self, _cpu: CpuId, seen: Opening) -> Option<Opening> {
        Some(self.last()).filter(|last| *last != seen)
    }

    fn call(&self, cpu: CpuId) {
        self.told().called.insert(cpu);
    }

    fn last(&self) -> Opening {
        self.told().opening
    }

    /// Not known: phases are counted.
    fn worth(&self) -> u32 {
        0
    }

    fn reported(&self, thread: ThreadId) -> Option<Reported> {
        self.told().threads.get(&thread).map(|t| t.reported)
    }

    fn put(&self, _thread: ThreadId, _cpu: Option<CpuId>) {}
}

impl Sim {
    /// From now on a program reports its phases. None of one that has no barrier at which all of its threads meet.
    pub(crate) fn report_phases(&mut self, program: usize) -> Option<Arc<Reports>> {
        let (_, barrier) = self.course(program);
        let p = self.programs.get_mut(program)?;
        if barrier == Barrier::None || p.has_partners {
            return None;
        }
        Some(p.reports.get_or_insert_default().clone())
    }

    /// Lets the machine run until `time`, or until a barrier opens for which an agent is woken, whichever comes first. Returns
    /// whether one does.
    pub(crate) fn run_until_called(&mut self, time: Nanos) -> bool {
        let is_called = |sim: &Self| {
            let mut reports = sim.programs.iter().filter_map(|p| p.reports.as_ref());
            reports.any(|r| !r.told().called.is_empty())
        };
        if self.programs.iter().all(|p| p.reports.is_none()) {
            self.run_until(time);
            return false;
        }
        while !is_called(self) {
            if !self.next_event(time) {
                self.now = self.now.max(time.0);
                return false;
            }
        }
        let moment = Nanos(self.now);
        while self.next_event(moment) {}
        true
    }

    /// How late an agent wakes this time.
    pub(crate) fn lateness(&mut self) -> Nanos {
        let most = self.scenario.costs.late;
        if most == Nanos::ZERO { most } else { most.scale(self.lateness.unit()) }
    }

    /// The CPUs of a set that are online.
    pub(crate) fn online(&self, of: &CpuSet) -> CpuSet {
        self.online_of(of).into_iter().map(|c| CpuId(c as u32)).collect()
    }

    /// A thread comes to the barrier of its program.
    pub(super) fn tell_arrival(&self, t: usize, program: usize) {
        if let Some(reports) = &self.programs[program].reports {
            let barriers = self.scenario.threads[t].works.len().max(1);
            let next = self.tasks[t].phase as usize % barriers;
            reports.finishes(super::id_of(t), Nanos(self.account(t, self.now).0), next);
        }
    }

    /// All have come, the last of them `t`.
    pub(super) fn tell_opening(&self, t: Option<usize>, program: usize) {
        if let (Some(reports), Some(t)) = (&self.programs[program].reports, t) {
            reports.opens(super::id_of(t), Nanos(self.now));
        }
    }

    /// A thread goes on from the barrier.
    pub(super) fn tell_beginning(&self, t: usize, program: usize) {
        if let Some(reports) = &self.programs[program].reports {
            reports.goes_on(super::id_of(t), Nanos(self.account(t, self.now).0));
        }
    }
}

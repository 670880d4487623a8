//! A machine for tests of single parts: it follows a script, and records what it is asked.

use crate::account::ThreadAccount;
use crate::managed::{ManagedThread, Place, ThreadWeight};
use crate::membership::Membership;
use crate::{
    Actuator, ApplyError, Balancer, BalancerOptions, Candidate, Event, GuardOptions, Located,
    Neighbour, Observer, Reader, Reading, RunState, Selection, Sensors, ThreadMeta, Times, Wanted,
};
use evenly_model::{
    CpuId, CpuSet, CpuView, DomainId, Environment, FULL_CAPACITY, Nanos, Pid, Snapshot, ThreadId,
    ThreadView, Tid,
};
use evenly_policies::by_name;
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Scripted {
    /// What was asked for.
    pub(crate) calls: Vec<String>,
    /// Threads that cannot be moved, and why.
    pub(crate) fails: Vec<(ThreadId, ApplyError)>,
    /// Threads that cannot be released.
    pub(crate) keeps: Vec<ThreadId>,
    /// The CPUs that can be used; None for all.
    pub(crate) cpuset: Option<CpuSet>,
    /// What it becomes once it has been asked for: who asked knows only what it was.
    pub(crate) then: Option<CpuSet>,
    pub(crate) now: Nanos,
    /// For how long each CPU has run something.
    pub(crate) busy: Vec<Nanos>,
    pub(crate) neighbours: Vec<Neighbour>,
    /// For which part of the time each thread runs, and waits for a CPU.
    pub(crate) spends: [f64; 2],
    /// What each thread has had until then, where it is not that.
    pub(crate) has_had: Option<fn(ThreadId, Nanos) -> Times>,
    /// Where each thread is, by its number, at moments at which it does not want that CPU.
    pub(crate) at: Vec<CpuId>,
}

impl Scripted {
    fn ask(&mut self, id: ThreadId, call: String) -> Result<(), ApplyError> {
        self.calls.push(format!("{} {call}", id.tid.0));
        let failure = self.fails.iter().find(|(thread, _)| *thread == id);
        failure.map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// The kernel refuses a mask none of whose CPUs is in the cpuset.
    fn set(&mut self, id: ThreadId, mask: &CpuSet, call: String) -> Result<(), ApplyError> {
        self.ask(id, call)?;
        let wanted = || ApplyError::Unusable { wanted: mask.clone() };
        let is_outside = self.cpuset.as_ref().is_some_and(|c| c.and(mask).is_empty());
        if is_outside { Err(wanted()) } else { Ok(()) }
    }
}

impl Actuator for Scripted {
    fn place(&mut self, id: ThreadId, cpu: CpuId, to: Option<&CpuSet>) -> Result<(), ApplyError> {
        let then = to.map(|to| format!(", then {to}")).unwrap_or_default();
        if let Some(at) = self.at.get_mut(id.tid.0 as usize) {
            *at = cpu;
        }
        self.set(id, &CpuSet::single(cpu), format!("on {cpu}{then}"))
    }

    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        self.set(id, mask, format!("in {mask}"))
    }

    fn restore(&mut self, id: ThreadId) {
        let _ = self.ask(id, String::from("restored"));
    }

    fn release(&mut self, id: ThreadId) -> bool {
        self.restore(id);
        !self.keeps.contains(&id)
    }

    fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ApplyError>> {
        let give =
            |w: &Wanted| self.ask(w.thread, format!("weighs {}", w.weight)).map(|()| w.weight);
        wanted.iter().map(give).collect()
    }

    fn beat(&mut self, cpus: &CpuSet) {
        self.calls.push(format!("beats on {cpus}"));
    }

    fn unweigh(&mut self, _: Pid, thread: ThreadId) {
        let _ = self.ask(thread, String::from("unweighed"));
    }
}

impl Reader for Scripted {
    fn now(&self) -> Nanos {
        self.now
    }

    fn own_cpu_time(&self) -> Nanos {
        Nanos::ZERO
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.clear();
        let [ran, waited] = self.spends.map(|part| self.now.scale(part));
        let times = Times { ran, waited, ..Times::default() };
        let had = |id: &ThreadId| self.has_had.map_or(times, |had| had(*id, self.now));
        out.extend(ids.iter().map(|id| Reading::Times(had(id))));
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        let cpu = *self.at.get(id.tid.0 as usize)?;
        Some(Located { cpu, state: RunState::Blocked, minor_faults: 0, major_faults: 0 })
    }

    fn busy(&mut self, cpus: &[CpuId]) -> Vec<Nanos> {
        cpus.iter().filter_map(|c| self.busy.get(c.0 as usize).copied()).collect()
    }

    fn resolution(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl Sensors for Scripted {
    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        let usable = self.cpuset.as_ref().map_or_else(|| within.clone(), |c| c.and(within));
        if self.then.is_some() {
            self.cpuset = self.then.take();
        }
        usable
    }

    fn original_mask(&mut self, _: ThreadId) -> Option<CpuSet> {
        None
    }

    fn neighbours(&mut self) -> Vec<Neighbour> {
        self.neighbours.clone()
    }
}

/// Keeps events as text.
pub(crate) struct Listener(pub(crate) Arc<Mutex<Vec<String>>>);

impl Observer for Listener {
    fn event(&mut self, event: &Event) {
        if let Event::Note { text, .. } = event
            && let Ok(mut texts) = self.0.lock()
        {
            texts.push(text.clone());
        }
    }
}

pub(crate) fn id(tid: usize) -> ThreadId {
    ThreadId { tid: Tid(tid as i32), start: 1 }
}

pub(crate) fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap_or_default()
}

/// A balancer for CPUs 0 and 1.
pub(crate) fn balancer(policy: &str) -> Balancer {
    let options = BalancerOptions {
        domain: DomainId(0),
        cpus: cpus("0-1"),
        wanted: None,
        policy: by_name(policy).unwrap(),
        environment: Environment::default(),
        guard: GuardOptions { enabled: false, ..GuardOptions::default() },
    };
    Balancer::new(options, Nanos::ZERO)
}

/// A thread with this mask joins.
pub(crate) fn join(b: &mut Balancer, machine: &mut Scripted, tid: usize, original: &str) {
    let thread = Candidate {
        id: id(tid),
        pid: Pid(1),
        name: String::new(),
        first: false,
        fair: true,
        times: Times::default(),
        state: RunState::Runnable,
        read_at: Nanos::ZERO,
    };
    let selection = Selection { baseline: thread.times, thread };
    b.join(machine, selection, &cpus(original), &mut []);
}

/// Threads on these CPUs of a domain of so many, that may use all of it and two more.
pub(crate) fn threads(at: &[u32], m: u32) -> (Membership, Snapshot) {
    let mut membership = Membership::default();
    let domain: CpuSet = (0..m).map(CpuId).collect();
    let whole: Arc<CpuSet> = Arc::new((0..m + 2).map(CpuId).collect());
    let mask = membership.number_of_mask(domain);
    for (i, &cpu) in at.iter().enumerate() {
        let thread = ManagedThread {
            meta: ThreadMeta { id: id(i), pid: Pid(1), name: String::new() },
            number: None,
            joined: Nanos::ZERO,
            place: Place {
                cpu: Some(CpuId(cpu)),
                seen: None,
                movable: true,
                foreign: false,
                mask,
                whole: whole.clone(),
                migrations: 0,
            },
            account: ThreadAccount::new(Times::default(), Nanos::ZERO, 0, Nanos::ZERO),
            weight: ThreadWeight::default(),
        };
        membership.register(thread, DomainId(0), Nanos::ZERO, &mut []);
    }
    let view = |(i, &cpu): (usize, &u32)| ThreadView {
        id: id(i),
        cpu: cpu as usize,
        progress: 0,
        ran: Nanos::ZERO,
        waited: Nanos::ZERO,
        blocked: Nanos::ZERO,
        spinning: Nanos::ZERO,
        turns: None,
        movable: true,
        mask,
    };
    let cpu = |c| CpuView { id: CpuId(c), capacity: FULL_CAPACITY, threads: 0, speed: None };
    let snapshot = Snapshot {
        threads: at.iter().enumerate().map(view).collect(),
        cpus: (0..m).map(cpu).collect(),
        masks: vec![vec![true; m as usize]],
        ..Snapshot::default()
    };
    (membership, snapshot)
}

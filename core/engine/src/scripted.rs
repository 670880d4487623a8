//! A machine for tests of single parts: it follows a script, and records what it is asked.

use crate::account::ThreadAccount;
use crate::managed::{ManagedThread, Place, ThreadWeight};
use crate::membership::Membership;
use crate::{
    Actuator, ApplyError, Event, Located, Observer, Reading, Sensors, ThreadMeta, Times, Wanted,
};
use evenly_model::{
    CpuId, CpuSet, CpuView, DomainId, FULL_CAPACITY, Nanos, Pid, Snapshot, ThreadId, ThreadView,
    Tid,
};
use std::sync::{Arc, Mutex};

#[derive(Debug, Default)]
pub(crate) struct Scripted {
    /// What was asked for.
    pub(crate) calls: Vec<String>,
    /// Threads that cannot be moved, and why.
    pub(crate) fails: Vec<(ThreadId, ApplyError)>,
    /// Threads that cannot be released.
    pub(crate) keeps: Vec<ThreadId>,
    pub(crate) now: Nanos,
}

impl Scripted {
    fn ask(&mut self, id: ThreadId, call: String) -> Result<(), ApplyError> {
        self.calls.push(format!("{} {call}", id.tid.0));
        let failure = self.fails.iter().find(|(thread, _)| *thread == id);
        failure.map_or(Ok(()), |(_, error)| Err(error.clone()))
    }
}

impl Actuator for Scripted {
    fn place(&mut self, id: ThreadId, cpu: CpuId, to: Option<&CpuSet>) -> Result<(), ApplyError> {
        let then = to.map(|to| format!(", then {to}")).unwrap_or_default();
        self.ask(id, format!("on {cpu}{then}"))
    }

    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        self.ask(id, format!("in {mask}"))
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

    fn unweigh(&mut self, _: Pid, thread: ThreadId) {
        let _ = self.ask(thread, String::from("unweighed"));
    }
}

impl Sensors for Scripted {
    fn now(&self) -> Nanos {
        self.now
    }

    fn own_cpu_time(&self) -> Nanos {
        Nanos::ZERO
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        out.clear();
        out.extend(ids.iter().map(|_| Reading::Times(Times::default())));
    }

    fn locate(&mut self, _: ThreadId) -> Option<Located> {
        None
    }

    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        within.clone()
    }

    fn original_mask(&mut self, _: ThreadId) -> Option<CpuSet> {
        None
    }

    fn resolution(&self) -> Nanos {
        Nanos::ZERO
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

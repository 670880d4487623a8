//! The helpers of `phase` at work, and who watches them.
//!
//! A helper can have real-time priority, so an error in it must not hold a CPU. Three things see to that. A helper that
//! does not sleep leaves the real-time class by itself ([`crate::real_time`]). The watcher, a normal thread, looks
//! at each now and then, and makes one that spins a normal thread from outside; helpers are not used any more then. One
//! that is stuck gets only what is left over of a CPU, and balancing ends.
//!
//! Invariants: the watcher waits for nothing that a helper can hold. A helper that does not end is left behind, for
//! evenly itself ends.

use crate::agents::{One, OwnThread};
use crate::clock::{now, thread_cpu_time_of};
use crate::control::Control;
use crate::proc::{Proc, status_number};
use crate::real_time;
use crate::sched;
use evenly_engine::Remote;
use evenly_model::{CpuId, Nanos, Tid};
use evenly_phase::{Pulse, PulseWatch};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// How often the helpers are looked at.
const LOOKS: Nanos = Nanos::from_millis(50);
/// How long helpers may take to end. Each sleeps for a fraction of it at most.
const ENDING: Nanos = Nanos::from_millis(5_000);

/// The helpers at work.
pub(crate) struct Helpers {
    threads: Vec<JoinHandle<()>>,
    found: Arc<Found>,
    wakers: Vec<(CpuId, Arc<dyn Remote>, Arc<OwnThread>)>,
}

/// What the watcher has found.
#[derive(Default)]
struct Found {
    notes: Mutex<Vec<String>>,
    stuck: Mutex<Option<CpuId>>,
}

/// One that is watched.
struct Watched {
    cpu: CpuId,
    remote: Arc<dyn Remote>,
    thread: Arc<OwnThread>,
    watch: PulseWatch,
    /// What has been done about it.
    worst: Pulse,
}

impl Helpers {
    /// Starts all of them, and their watcher.
    pub(crate) fn start(helpers: Vec<One>, control: &Control) -> io::Result<Self> {
        let found = Arc::new(Found::default());
        let mut all = Self { threads: Vec::new(), found: found.clone(), wakers: Vec::new() };
        let mut watched = Vec::new();
        for helper in helpers {
            let (cpu, remote, thread) =
                (helper.cpu(), helper.remote.clone(), helper.thread.clone());
            let name = format!("phases-{cpu}");
            let control = control.clone();
            all.threads.push(Builder::new().name(name).spawn(move || helper.run(&control))?);
            all.wakers.push((cpu, remote.clone(), thread.clone()));
            let watch = PulseWatch::default();
            watched.push(Watched { cpu, remote, thread, watch, worst: Pulse::Beats });
        }
        if !watched.is_empty() {
            let control = control.clone();
            let watch = move || watch(watched, &found, &control);
            all.threads.push(Builder::new().name(String::from("phases-watch")).spawn(watch)?);
        }
        Ok(all)
    }

    /// What there is to say.
    pub(crate) fn notes(&self) -> Vec<String> {
        std::mem::take(&mut self.found.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for the end of all, which has been asked for. The CPU of one that does not end.
    pub(crate) fn end(self) -> Result<(), CpuId> {
        let until = now() + ENDING;
        let stuck = || *self.found.stuck.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(left) = self.threads.iter().position(|t| !t.is_finished()) {
            if let Some(cpu) = stuck() {
                return Err(cpu);
            }
            if now() > until {
                return Err(self.wakers.get(left).map_or(CpuId(0), |(cpu, ..)| *cpu));
            }
            // Again and again: a call is not heard by one that is about to wait.
            for (_, remote, thread) in &self.wakers {
                thread.wake();
                remote.call();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        stuck().map_or(Ok(()), Err)
    }
}

impl Watched {
    /// Who it is, and how it is, where it runs.
    fn look(&mut self) -> Option<(Tid, Pulse)> {
        let tid = self.thread.tid()?;
        let cpu = thread_cpu_time_of(tid)?;
        Some((tid, self.watch.look(cpu, || sleeps_of(tid))))
    }
}

/// How often a thread of this process has gone to sleep: the kernel counts when it gives its CPU away by itself, so that no
/// sleep is counted that was none.
fn sleeps_of(tid: Tid) -> u64 {
    let status = Proc::default().thread_status(tid).unwrap_or_default();
    status_number(&status, "voluntary_ctxt_switches").unwrap_or_default()
}

/// Looks at all helpers now and then, until balancing ends.
fn watch(mut all: Vec<Watched>, found: &Found, control: &Control) {
    while !control.sleep_until(now() + LOOKS, || false) {
        for helper in &mut all {
            let Some((tid, pulse)) = helper.look() else { continue };
            if pulse == Pulse::Beats || pulse <= helper.worst {
                continue;
            }
            if helper.worst == Pulse::Beats {
                // What cannot be set has ended, or left the class before.
                let _ = real_time::leave(tid, sched::OTHER);
                helper.remote.switch_off();
                let note = format!(
                    "threads are not moved within phases any more, as the helper of CPU {} did not sleep",
                    helper.cpu
                );
                found.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
            }
            helper.worst = pulse;
            if pulse == Pulse::Stuck {
                // It gets what nobody else wants of a CPU.
                let _ = real_time::leave(tid, sched::IDLE);
                *found.stuck.lock().unwrap_or_else(PoisonError::into_inner) = Some(helper.cpu);
                control.end();
            }
        }
    }
}

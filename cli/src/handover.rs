//! `--cooperate`: threads that spin hand over their CPU. The library that does so in the program, and the thread that says
//! when.
//!
//! Invariant (promise P8): where it cannot be loaded the program runs without, and a note says why.

use crate::looking::{INTERVAL, SAMPLES, long_pause_after, pause_after};
use crate::probe::sanitizers;
use evenly_linux::beside::Beside;
use evenly_linux::clock::{now, thread_cpu_time};
use evenly_linux::handover::{Again, HandOver, Where};
use evenly_linux::limits::Limits;
use evenly_linux::modules::named;
use evenly_linux::proc::Proc;
use evenly_linux::supervise::Threads;
use evenly_model::{CpuSet, Nanos, Pid};
use evenly_probe::handover::Table;
use evenly_probe::load::{handover, preload};
use evenly_report::HandedOver;
use evenly_spins::Handed;
use evenly_topology::cache_dir;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// For a program that is to be started: all but the thread.
pub(crate) struct Prepared(HandOver<Table>);

/// In a program that runs.
pub(crate) struct HandingOver {
    keeper: Arc<Mutex<HandOver<Table>>>,
    /// Those with which it cooperates, until the next look.
    others: Arc<Mutex<Option<Beside>>>,
}

impl Prepared {
    /// The library for a program that may use these CPUs, and no more than the quota of this process gives it; and variables
    /// with which it has to be started. `before` is what `LD_PRELOAD` would be without. None where it cannot be loaded, which
    /// is noted.
    pub(crate) fn new(
        before: Option<&OsStr>,
        cpus: &CpuSet,
        notes: &mut Vec<String>,
    ) -> Option<(Self, Vec<(OsString, OsString)>)> {
        let made = || -> anyhow::Result<_> {
            let dir = cache_dir("probe").ok_or_else(|| {
                anyhow::anyhow!("it has no place: neither XDG_CACHE_HOME nor HOME is set")
            })?;
            let value = preload(&handover(&dir)?, before)?;
            Ok((value, Table::new()?))
        };
        match made() {
            Ok((value, table)) => {
                let env = vec![("LD_PRELOAD".into(), value), table.variable(), sanitizers()];
                let (limits, own) = (Limits::new(Path::new("/")), Pid(std::process::id() as i32));
                let time = limits.whole_cpus(own, cpus).max(1.0);
                let keeper = HandOver::new(Proc::default(), table, (cpus.clone(), time), now());
                Some((Self(keeper), env))
            }
            Err(e) => {
                let why = evenly_errors::said(&e);
                notes.push(format!("--cooperate: threads that spin keep their CPU: {why}"));
                None
            }
        }
    }

    /// Looks from now on, again and again.
    pub(crate) fn start(self, threads: Threads, notes: &mut Vec<String>) -> HandingOver {
        let keeper = Arc::new(Mutex::new(self.0));
        let others: Arc<Mutex<Option<Beside>>> = Arc::default();
        let (watched, given) = (Arc::downgrade(&keeper), others.clone());
        if let Err(e) = threads.start("handover", move || look(&watched, &given)) {
            notes.push(format!(
                "--cooperate: threads that spin keep their CPU: no thread to look at them: {e}"
            ));
        }
        HandingOver { keeper, others }
    }
}

impl HandingOver {
    /// CPUs are handed over to other programs as well, from the next look on.
    pub(crate) fn cooperate_with(&self, others: Beside) {
        // Not waiting for the one that looks, which may go through files.
        *self.others.lock().unwrap_or_else(PoisonError::into_inner) = Some(others);
    }

    /// Why nothing was handed over although threads crowded their CPUs; None where there was no such reason.
    pub(crate) fn note(&self) -> Option<String> {
        let keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        let why = keeper.refused()?;
        Some(format!("--cooperate: threads keep their CPU if they spin: {why}"))
    }

    /// What has come of it; None where no thread came to a breakpoint. From here on nobody hands over.
    pub(crate) fn report(&self) -> Option<HandedOver> {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        keeper.end();
        let (Handed { traps, given, slept }, most) = keeper.handed();
        let place = most.and_then(|most| match most {
            Where::Code(file, offset) => named(file, offset),
            Where::Mpi => Some("calls of MPI".into()),
            Where::Yields => Some("sched_yield".into()),
        });
        let (given_s, slept_s) = (given.as_secs_f64(), slept.as_secs_f64());
        let (cpus_without, cpus_with) = keeper.worth().unzip();
        (traps > 0).then_some(HandedOver {
            asked: traps,
            given_s,
            slept_s,
            place,
            cpus_without,
            cpus_with,
        })
    }
}

/// Looks until nobody has a use for it.
fn look(keeper: &Weak<Mutex<HandOver<Table>>>, others: &Mutex<Option<Beside>>) {
    let mut pause = INTERVAL;
    loop {
        std::thread::sleep(pause);
        let Some(keeper) = keeper.upgrade() else { return };
        let before = thread_cpu_time();
        let mut keeper = keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(others) = others.lock().unwrap_or_else(PoisonError::into_inner).take() {
            keeper.cooperate_with(others);
        }
        let again = keeper.look(now());
        let cost = thread_cpu_time() - before;
        pause = match again {
            Again::Soon => INTERVAL,
            Again::AsUsual => pause_after(cost),
            Again::Sampling => pause_after(cost).min(SAMPLES),
            Again::Rarely => long_pause_after(cost),
        };
        keeper.looks_again(now() + Nanos::from(pause));
    }
}

//! The threads that run the agents of a domain: its balancers of CPUs (`secretary`), and the helpers that move threads
//! within phases (`phase`).
//!
//! Agents that are run [`Manner::Together`] are dealt to a few threads round-robin. OSLB has a thread for each CPU; but a
//! wake-up takes some ten microseconds of every lambda, and all wake-ups together are kept within a part of one CPU
//! ([`evenly_engine::PeriodControl`]), so the threads sleep nearly all of the time, however many CPUs there are:
//! thousands of them would only add stacks, and descriptors, of which each needs its own to read threads. Up to [`MOST`]
//! CPUs each has a thread for itself, as in the paper. They are not bound to their CPUs: those compute.
//!
//! One that is run [`Manner::OnItsCpu`] has a thread to itself that runs there. It asks for no slack of its timers, and to
//! run before threads that compute: as a real-time thread where that is permitted ([`crate::real_time`]), else by a short
//! slice. By its slice alone it is late in some phases: the kernel lets a thread finish a slice of which less is left, and
//! notices its end only at the next tick.
//!
//! Threads are read without a lock, each runner through files of its own. Masks are changed through the one machine that
//! has the records in the journal. A runner of many that finds it busy (the caretaker is at its point, or another runner
//! swaps) gives up what it wanted; one of a single agent waits.
//!
//! Known gap: two swaps in one domain do not go on at the same time, though they could. One is two
//! changes of a mask, or three where both threads have their CPUs to themselves, some 20 us each.

use crate::affinity;
use crate::clock::{now, thread_cpu_time, timespec};
use crate::control::Control;
use crate::machine::LinuxMachine;
use crate::real_time;
use crate::sched::{self, Scheduling};
use crate::threads::ThreadReader;
use evenly_engine::{Agent, Manner, Next, Remote};
use evenly_model::{CpuId, CpuSet, Nanos, Tid};
use rustix::thread::{futex, gettid, set_current_timer_slack};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// The most threads that serve agents which are run together.
const MOST: usize = 8;
/// For how long a thread sleeps where there is nothing to do.
const LONG: Nanos = Nanos::from_millis(3_600_000);
/// For how long the thread of a single agent sleeps before it looks whether balancing goes on.
const NAP: Nanos = Nanos::from_millis(100);
/// How soon it is tried again to have the machine, which is usually kept for some microseconds.
const AGAIN: Duration = Duration::from_micros(100);
/// For how long the thread of a single agent asks to run at a stretch: the least that the kernel grants.
const SLICE: Nanos = Nanos::from_micros(100);

/// The machine behind a lock. A thread that panicked while it held it has left what it did in the
/// journal.
pub(crate) fn lock(machine: &Mutex<LinuxMachine>) -> MutexGuard<'_, LinuxMachine> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`]; None where it `gives_up` before: who has the machine may be stuck.
pub(crate) fn lock_unless(
    machine: &Mutex<LinuxMachine>,
    gives_up: impl Fn() -> bool,
) -> Option<MutexGuard<'_, LinuxMachine>> {
    loop {
        match machine.try_lock() {
            Ok(machine) => return Some(machine),
            Err(TryLockError::Poisoned(e)) => return Some(e.into_inner()),
            Err(TryLockError::WouldBlock) if gives_up() => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(AGAIN),
        }
    }
}

/// What runs one agent or several, in a thread of its own.
pub(crate) enum Runner {
    /// Several, wherever the thread runs.
    Together(Many),
    /// One, on its CPU.
    OnItsCpu(One),
}

/// How many threads run the agents of so many CPUs.
pub(crate) fn threads(cpus: usize, on_their_cpus: bool) -> usize {
    if on_their_cpus { cpus } else { cpus.clamp(1, MOST) }
}

/// Deals agents to runners. `usable` is the number of CPUs that can be used now. `hands` is where masks are changed, `eyes`
/// makes what a runner reads threads through.
pub(crate) fn runners<E>(
    agents: Vec<Box<dyn Agent>>,
    usable: usize,
    hands: &Arc<Mutex<LinuxMachine>>,
    eyes: impl Fn() -> Result<ThreadReader, E>,
) -> Result<Vec<Runner>, E> {
    let (mut ones, mut together) = (Vec::new(), Vec::new());
    for agent in agents {
        match agent.manner() {
            Manner::Together => together.push(agent),
            Manner::OnItsCpu(remote) => {
                let (eyes, hands) = (eyes()?, hands.clone());
                ones.push(One { agent, remote, eyes, hands, thread: Arc::default() });
            }
        }
    }
    let mut many = Vec::new();
    if !together.is_empty() {
        for _ in 0..threads(usable, false) {
            many.push(Many { agents: Vec::new(), eyes: eyes()?, hands: hands.clone() });
        }
        let count = many.len();
        for (i, agent) in together.into_iter().enumerate() {
            many[i % count].agents.push(agent);
        }
    }
    let ones = ones.into_iter().map(Runner::OnItsCpu);
    Ok(many.into_iter().map(Runner::Together).chain(ones).collect())
}

/// Lets an agent go on until it sleeps or rests: the time until which, if any. `hands` locks the machine through which masks
/// are changed, where that can be had. `cpu` is the CPU time of this thread that has been told to agents.
fn serve<'a>(
    agent: &mut dyn Agent,
    eyes: &mut ThreadReader,
    hands: impl Fn() -> Option<MutexGuard<'a, LinuxMachine>>,
    cpu: &mut Nanos,
) -> Option<Nanos> {
    loop {
        let next = agent.next(eyes);
        if next == Next::Act
            && let Some(mut machine) = hands()
        {
            agent.act(&mut *machine);
        }
        let before = std::mem::replace(cpu, thread_cpu_time());
        agent.took(*cpu - before);
        match next {
            Next::Again | Next::Act => {}
            Next::Sleep(until) => return Some(until),
            Next::Rest => return None,
        }
    }
}

/// Several agents, of which each is woken when it wants to.
pub(crate) struct Many {
    agents: Vec<Box<dyn Agent>>,
    eyes: ThreadReader,
    hands: Arc<Mutex<LinuxMachine>>,
}

impl Many {
    /// Runs its agents until balancing ends. Whoever calls one of them wakes `control`.
    pub(crate) fn run(mut self, control: &Control) {
        let began = now();
        // When each is woken next, or that it rests.
        let mut due: BinaryHeap<Reverse<(Nanos, usize)>> =
            (0..self.agents.len()).map(|i| Reverse((began, i))).collect();
        let mut resting: Vec<usize> = Vec::new();
        loop {
            let is_called = || resting.iter().any(|&i| self.agents[i].is_called());
            let until = due.peek().map_or_else(|| now() + LONG, |next| next.0.0);
            if control.sleep_until(until, is_called) {
                return;
            }
            let time = now();
            resting.retain(|&i| {
                let called = self.agents[i].is_called();
                if called {
                    due.push(Reverse((time, i)));
                }
                !called
            });
            while let Some(&Reverse((at, i))) = due.peek().filter(|next| next.0.0 <= time) {
                due.pop();
                let (agent, mut cpu) = (&mut self.agents[i], thread_cpu_time());
                let hands = || lock_unless(&self.hands, || true);
                match serve(&mut **agent, &mut self.eyes, hands, &mut cpu) {
                    // One that is late has missed what it has missed.
                    Some(until) => due.push(Reverse((until.max(at).max(time), i))),
                    None => resting.push(i),
                }
                if agent.calls() {
                    control.wake();
                }
            }
        }
    }
}

/// A single agent on its CPU.
pub(crate) struct One {
    agent: Box<dyn Agent>,
    pub(crate) remote: Arc<dyn Remote>,
    eyes: ThreadReader,
    hands: Arc<Mutex<LinuxMachine>>,
    pub(crate) thread: Arc<OwnThread>,
}

impl One {
    /// The CPU that it serves.
    pub(crate) fn cpu(&self) -> CpuId {
        self.agent.cpu()
    }

    /// Runs its agent until balancing ends.
    pub(crate) fn run(mut self, control: &Control) {
        let _running = Running::new(&self.thread);
        settle(self.agent.cpu());
        let mut cpu = thread_cpu_time();
        loop {
            let hands = || Some(lock(&self.hands));
            let until = serve(&mut *self.agent, &mut self.eyes, hands, &mut cpu);
            loop {
                let goes_on = match until {
                    Some(until) => {
                        self.thread.sleep_until(until.min(now() + NAP));
                        now() >= until
                    }
                    None => self.agent.wait(),
                };
                if control.has_ended() {
                    return;
                }
                if goes_on {
                    break;
                }
            }
        }
    }
}

/// The thread of a single agent, for whoever watches it.
#[derive(Debug, Default)]
pub(crate) struct OwnThread {
    /// Its number while it runs, else 0.
    tid: AtomicI32,
    /// Where it sleeps: no longer 0 once it is to end.
    ends: AtomicU32,
}

impl OwnThread {
    pub(crate) fn tid(&self) -> Option<Tid> {
        Some(Tid(self.tid.load(Relaxed))).filter(|tid| tid.0 != 0)
    }

    /// Wakes it for good, as it is to end.
    pub(crate) fn wake(&self) {
        self.ends.store(1, Release);
        // It may be awake.
        let _ = futex::wake(&self.ends, futex::Flags::PRIVATE, 1);
    }

    /// Sleeps until a time, or less.
    fn sleep_until(&self, time: Nanos) {
        let (flags, all) = (futex::Flags::PRIVATE, NonZeroU32::MAX);
        // A signal or a call: whoever sleeps looks why it is awake.
        let _ = futex::wait_bitset(&self.ends, flags, 0, Some(&timespec(time)), all);
    }
}

/// From the start of a thread to its end.
struct Running(Arc<OwnThread>);

impl Running {
    fn new(thread: &Arc<OwnThread>) -> Self {
        thread.tid.store(gettid().as_raw_nonzero().get(), Relaxed);
        Self(thread.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.tid.store(0, Relaxed);
    }
}

/// Puts this thread on its CPU, ready to wake in time. What cannot be had makes it later.
fn settle(cpu: CpuId) {
    let own = Tid(gettid().as_raw_nonzero().get());
    // A CPU that is gone by now has no agent that works.
    let _ = affinity::set(own, &CpuSet::single(cpu));
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    if real_time::enter().is_err()
        && let Ok(found) = sched::get(own)
    {
        let _ = sched::set(own, &Scheduling { slice: SLICE, ..found });
    }
}

#[cfg(test)]
mod tests {
    use super::OwnThread;
    use crate::clock::now;
    use evenly_model::Nanos;

    /// Would catch: evenly ending long after its program, since a helper sleeps through a long phase.
    #[test]
    fn an_agent_that_is_to_end_is_woken() {
        let until = now() + Nanos::from_millis(600_000);
        let thread = OwnThread::default();
        std::thread::scope(|scope| {
            let helper = scope.spawn(|| thread.sleep_until(until));
            thread.wake();
            helper.join().unwrap();
            assert!(now() < until);
        });
    }
}

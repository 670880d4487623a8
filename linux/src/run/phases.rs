//! The helpers that move threads within phases: for each CPU of a domain a thread that sleeps until a barrier
//! opens and its CPU has too much to do, and then until one of its threads is to move.
//!
//! A helper runs on its CPU. When it wakes there no thread of the program runs, so that the kernel has just
//! booked what each has run, to the nanosecond; from another CPU a reading may be a tick old. It asks for no slack of
//! its timers, and to run before threads that compute: as a real-time thread where that is permitted
//! ([`crate::real_time`]), else by a short slice. By its slice alone it is late in some phases: the kernel lets a thread finish a slice of which less is left,
//! and notices its end only at the next tick.
//!
//! Invariants: masks are changed through the machine that has the records in the journal; a helper that finds
//! the caretaker at its point waits for it, and looks again whether the phase goes on. A helper sleeps for a [`NAP`]
//! at most before it looks whether it is still needed, and less where it is told to end ([`OwnThread::wake`]).

use crate::affinity;
use crate::clock::{now, thread_cpu_time, timespec};
use crate::control::Control;
use crate::machine::LinuxMachine;
use crate::real_time;
use crate::sched::{self, Scheduling};
use crate::workers::lock;
use evenly_engine::{Reading, Sensors};
use evenly_model::{CpuId, CpuSet, Nanos, ThreadId, Tid};
use evenly_phases::timetable::{Left, Step};
use evenly_phases::{Allowance, Crowded, Foresight, NAP, Opening, Phases};
use rustix::thread::{futex, gettid, set_current_timer_slack};
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicU32};
use std::sync::{Arc, Mutex};

/// How much earlier than it wants to be awake a helper lets itself be woken.
const WAKING: Nanos = Nanos::from_micros(3);
/// For how long a helper sleeps at least, at first; twice as long after each further look. Each look lets the kernel
/// choose anew who runs, and that need not be the one that the helper waits for.
const LEAST: Nanos = Nanos::from_micros(10);
/// A helper looks at its CPU at most so often in a phase.
const LOOKS: usize = 24;
/// For how long a helper asks to run at a stretch: the least that the kernel grants.
const SLICE: Nanos = Nanos::from_micros(100);

/// The helper of one CPU.
pub(crate) struct Helper {
    pub(crate) cpu: CpuId,
    pub(crate) phases: Arc<Phases>,
    /// What it reads threads through.
    pub(crate) eyes: LinuxMachine,
    /// What masks are changed through.
    pub(crate) hands: Arc<Mutex<LinuxMachine>>,
    pub(crate) allowance: Allowance,
    pub(crate) thread: Arc<OwnThread>,
}

/// The thread of a helper, for whoever watches it.
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

/// From the start of a helper to its end.
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

/// A thread was moved.
struct Moved {
    /// When the helper should have been awake for that.
    due: Nanos,
    /// By how much the phase is shorter.
    gain: Nanos,
}

impl Helper {
    /// Waits for barriers to open, and serves its CPU, until balancing ends.
    pub(crate) fn run(mut self, control: &Control) {
        let _running = Running::new(&self.thread);
        settle(self.cpu);
        let (mut seen, mut foresight) = (Opening::default(), Foresight::default());
        // When this is needed next, where that is foreseen.
        let mut needed = None;
        let mut cpu = thread_cpu_time();
        while !control.has_ended() {
            let opening = match needed {
                Some(time) => {
                    if !self.sleep_until(time - WAKING, || control.has_ended()) {
                        return;
                    }
                    Some(self.phases.openings().last()).filter(|last| *last != seen)
                }
                None => self.phases.openings().wait(self.cpu, seen),
            };
            let moved = opening.and_then(|opening| {
                seen = opening;
                self.serve(opening, needed.is_some(), control)
            });
            if needed.is_some() {
                foresight.was_right(moved.is_some());
            }
            let gain = moved.as_ref().map_or(Nanos::ZERO, |m| m.gain);
            needed = moved.and_then(|m| foresight.moved(seen, m.due));
            let before = std::mem::replace(&mut cpu, thread_cpu_time());
            let spent = cpu - before;
            self.phases.took(spent);
            let rests = self.allowance.spend(now(), spent, gain);
            self.phases.waits(self.cpu, needed.is_none() && rests.is_none());
            if let Some(until) = rests {
                if control.sleep_until(until, || false) {
                    return;
                }
                (needed, seen) = (None, self.phases.openings().last());
                self.phases.waits(self.cpu, true);
            }
        }
    }

    /// From the opening of a barrier until nothing is left to do about this CPU.
    fn serve(&mut self, opening: Opening, late: bool, control: &Control) -> Option<Moved> {
        let Crowded { cpu: index, mut here, gain } =
            self.phases.begins(self.cpu, opening, now())?;
        let due = match self.phases.next(index, opening.at, &here, 0) {
            Step::Sleep(until) => until,
            _ => opening.at,
        };
        let mut moved = None;
        for look in 0..LOOKS {
            // At the opening nothing is done, and nothing need be read.
            if late || look > 0 {
                self.look(&mut here);
            }
            let time = now();
            match self.phases.next(index, time, &here, look) {
                Step::Rest => break,
                Step::Sleep(until) => {
                    let is_over =
                        || control.has_ended() || self.phases.openings().last() != opening;
                    if !self.sleep_until((until - WAKING).max(time + least(look)), is_over) {
                        break;
                    }
                }
                Step::Move(thread, to) => {
                    let left = here.iter().position(|l| l.thread == thread).map(|i| here.remove(i));
                    let mut hands = lock(&self.hands);
                    if let Some(left) = left
                        && self.phases.openings().last() == opening
                        && self.phases.carry_out(&mut *hands, left, (index, to), now())
                    {
                        moved = Some(Moved { due, gain });
                    }
                }
            }
            if self.phases.openings().last() != opening {
                break;
            }
        }
        moved
    }

    /// Sleeps until a time; false where it `is_over` before. Looks at least once a [`NAP`] whether it is.
    fn sleep_until(&self, time: Nanos, is_over: impl Fn() -> bool) -> bool {
        loop {
            self.thread.sleep_until(time.min(now() + NAP));
            if is_over() {
                return false;
            }
            if now() >= time {
                return true;
            }
        }
    }

    fn look(&mut self, here: &mut Vec<Left<ThreadId>>) {
        here.retain_mut(|left| match self.eyes.read_one(left.thread) {
            Reading::Times(times) => {
                left.work = self.phases.left(left.thread, times.ran);
                true
            }
            _ => false,
        });
    }
}

/// For how long a helper sleeps at least after a look.
fn least(look: usize) -> Nanos {
    Nanos(LEAST.0 << look.saturating_sub(1).min(5))
}

/// Puts this thread on its CPU, ready to wake in time. What cannot be had makes it later.
fn settle(cpu: CpuId) {
    let own = Tid(gettid().as_raw_nonzero().get());
    // A CPU that is gone by now has no helper that works.
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
    fn a_helper_that_is_to_end_is_woken() {
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

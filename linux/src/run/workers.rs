//! The threads that take the balancers of CPUs from wake-up to wake-up.
//!
//! OSLB has a thread for each CPU. Here a few threads serve all: each has the timers of every so-manyth
//! CPU. A wake-up takes some ten microseconds of every lambda, and all wake-ups together are kept within
//! a part of one CPU ([`evenly_engine::PeriodControl`]), so the threads sleep nearly all of the time,
//! however many CPUs there are: thousands of them would only add stacks, and descriptors, of which each
//! needs its own to read threads. Up to [`MOST`] CPUs each has a thread for itself, as in the paper.
//! They are not bound to their CPUs: those compute.
//!
//! Threads are read without a lock, each worker through files of its own. Masks are changed through the
//! one machine that has the records in the journal, and a worker that finds it busy (the caretaker is at
//! its point, or another worker swaps) gives its swap up, until its next wake-up, instead of waiting.
//!
//! Known gap: two swaps in one domain do not go on at the same time, though they could. One is two
//! changes of a mask, or three where both threads have their CPUs to themselves, some 20 us each.
//!
//! Invariant: no thread waits here for anything but time.

use crate::clock::{now, thread_cpu_time};
use crate::control::Control;
use crate::machine::LinuxMachine;
use evenly_decentral::{Board, CpuBalancer, Decentral, Step};
use evenly_model::Nanos;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// The most threads that serve the balancers of CPUs.
const MOST: usize = 8;

/// For how long a worker sleeps where there is nothing to do.
const LONG: Nanos = Nanos::from_millis(3_600_000);

/// How soon it is tried again to have the machine, which is usually kept for some microseconds.
const AGAIN: Duration = Duration::from_micros(100);

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

/// All workers of a program, before their threads are started.
pub(crate) struct Workers(Vec<Worker>);

impl Workers {
    /// How many threads serve so many CPUs.
    pub(crate) fn number(cpus: usize) -> usize {
        cpus.clamp(1, MOST)
    }

    /// For the balancers of all CPUs, of which `usable` can be used now. `hands` is where masks are
    /// changed, `eyes` makes what a worker reads threads through.
    pub(crate) fn new<E>(
        all: Decentral,
        usable: usize,
        hands: Arc<Mutex<LinuxMachine>>,
        eyes: impl Fn() -> Result<LinuxMachine, E>,
    ) -> Result<Self, E> {
        let mut workers = Vec::new();
        for _ in 0..Self::number(usable) {
            workers.push(Worker {
                board: all.board.clone(),
                balancers: Vec::new(),
                due: BinaryHeap::new(),
                eyes: eyes()?,
                hands: hands.clone(),
            });
        }
        let count = workers.len();
        for (i, balancer) in all.balancers.into_iter().enumerate() {
            workers[i % count].balancers.push(balancer);
        }
        Ok(Self(workers))
    }

    /// One after the other, to be run in threads of their own.
    pub(crate) fn each(self) -> impl Iterator<Item = Worker> {
        self.0.into_iter()
    }
}

/// What one thread takes from wake-up to wake-up: the balancers of every so-manyth CPU.
pub(crate) struct Worker {
    board: Arc<Board>,
    balancers: Vec<CpuBalancer>,
    /// When each wakes next.
    due: BinaryHeap<Reverse<(Nanos, usize)>>,
    eyes: LinuxMachine,
    hands: Arc<Mutex<LinuxMachine>>,
}

impl Worker {
    /// Serves its balancers until balancing ends.
    pub(crate) fn run(mut self, control: &Control) {
        loop {
            if !self.board.active() {
                // The caretaker wakes it when that changes.
                if control.sleep_until(now() + LONG, || self.board.active()) {
                    return;
                }
                self.due.clear();
                let (now, interval) = (now(), self.board.interval());
                for (i, balancer) in self.balancers.iter_mut().enumerate() {
                    self.due.push(Reverse((balancer.first_wake(now, interval), i)));
                }
                continue;
            }
            let Some(&Reverse((at, i))) = self.due.peek() else { return };
            if control.sleep_until(at, || false) {
                return;
            }
            self.due.pop();
            let cpu = thread_cpu_time();
            self.wake(i);
            self.board.took(thread_cpu_time() - cpu);
            let next = self.balancers[i].next_wake(self.board.interval(), true);
            // One that is late has missed what it has missed.
            self.due.push(Reverse((next.max(now()), i)));
            if self.board.called() {
                control.wake();
            }
        }
    }

    /// From a wake-up to the next sleep.
    fn wake(&mut self, i: usize) {
        let balancer = &mut self.balancers[i];
        loop {
            match balancer.step(&self.board, &mut self.eyes) {
                Step::Again => {}
                Step::Sleep => return,
                Step::Swap(swap) => {
                    if let Some(mut hands) = lock_unless(&self.hands, || true) {
                        self.board.swap(&swap, &mut *hands);
                    }
                    return;
                }
            }
        }
    }
}

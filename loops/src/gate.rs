//! Where threads wait until a number is reached: they spin for a moment, as the number is mostly reached at once, and then sleep,
//! so that another thread has the CPU.

use evenly_model::Nanos;
#[cfg(loom)]
use loom::sync::atomic::AtomicU32;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::Duration;
#[cfg(not(loom))]
use std::time::Instant;

/// How often a thread looks before it looks at the clock.
#[cfg(not(loom))]
const LOOKS: u32 = 32;

/// The longest sleep.
#[cfg(not(loom))]
pub(crate) const SLEEP: Duration = Duration::from_millis(50);

/// What a thread does before it sleeps.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// It looks for so long.
    pub spins: Duration,
    /// Whoever shares its CPU has that meanwhile, if the thread would be kept from it within so much CPU time.
    pub yields: Option<Nanos>,
}

/// A number that grows, and begins anew after 2^32.
#[derive(Debug, Default)]
pub struct Gate {
    number: AtomicU32,
    sleepers: AtomicU32,
}

/// Whether a number is another one, or comes after it.
fn reaches(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) as i32 >= 0
}

impl Gate {
    /// Whether it is reached.
    pub fn has_reached(&self, number: u32) -> bool {
        reaches(self.reached(), number)
    }

    /// The number that is reached.
    pub fn reached(&self) -> u32 {
        self.number.load(Acquire)
    }

    /// Sets the number, and wakes up those who wait for it.
    pub fn set(&self, number: u32) {
        // Either whoever goes to sleep sees the number, or it is seen here.
        self.number.store(number, SeqCst);
        if self.sleepers.load(SeqCst) > 0 {
            self.wake();
        }
    }

    /// Sets the number, where nobody waits for it.
    pub fn pass(&self, number: u32) {
        self.number.store(number, Release);
    }

    /// Wakes up all, so that they look whether to give up.
    pub fn wake(&self) {
        #[cfg(not(loom))]
        // It fails for no word that is there.
        let _ = rustix::thread::futex::wake(
            &self.number,
            rustix::thread::futex::Flags::PRIVATE,
            i32::MAX as u32,
        );
    }

    /// Waits until a number is reached, or `gives_up` says so, which is asked before each sleep, and told how many whole ones there
    /// have been.
    pub fn wait(&self, number: u32, patience: Patience, gives_up: impl Fn(u32) -> bool) {
        if self.spins(number, patience) {
            return;
        }
        self.sleepers.fetch_add(1, SeqCst);
        let mut sleeps = 0_u32;
        loop {
            let now = self.number.load(SeqCst);
            if reaches(now, number) || gives_up(sleeps) {
                break;
            }
            sleeps = sleeps.saturating_add(self.sleep(now).into());
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }

    /// Whether it is reached before the thread has to sleep. How long it takes to look depends on the machine: by a factor of ten.
    #[cfg(not(loom))]
    fn spins(&self, number: u32, patience: Patience) -> bool {
        let (mut since, mut yields) = (None, patience.yields);
        loop {
            for _ in 0..LOOKS {
                if self.has_reached(number) {
                    return true;
                }
                std::hint::spin_loop();
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= patience.spins {
                return self.has_reached(number);
            }
            if let Some(next) = yields.take() {
                crate::slice::yield_before(next);
            }
        }
    }

    #[cfg(loom)]
    fn spins(&self, number: u32, _: Patience) -> bool {
        self.has_reached(number)
    }

    /// Whether nothing but its length has ended the sleep.
    #[cfg(not(loom))]
    fn sleep(&self, now: u32) -> bool {
        use rustix::thread::{Timespec, futex};
        // Nobody wakes up a thread whose region was given up between its look and its sleep, so that no sleep is for ever.
        const LONGEST: Timespec =
            Timespec { tv_sec: 0, tv_nsec: SLEEP.subsec_nanos() as std::ffi::c_long };
        // Whatever ends it: it is looked again.
        let ended = futex::wait(&self.number, futex::Flags::PRIVATE, now, Some(&LONGEST));
        ended == Err(rustix::io::Errno::TIMEDOUT)
    }

    #[cfg(loom)]
    fn sleep(&self, _: u32) -> bool {
        loom::thread::yield_now();
        false
    }
}

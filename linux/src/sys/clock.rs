//! The clocks.
//!
//! Invariant: all times that are compared with each other come from the same clock here.

use evenly_model::{Nanos, Tid};
use rustix::time::{ClockId, Timespec, clock_gettime};

/// Monotonic time: that of balancing points, and of the heartbeat in the journal.
#[must_use]
pub fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu_time() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

/// CPU time of another thread of this process. None where it has ended.
#[must_use]
pub fn thread_cpu_time_of(tid: Tid) -> Option<Nanos> {
    // As clock_getres(2) has it: the number, inverted, of a thread's own clock, by the scheduler.
    let clock = (!tid.0 << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec into a live variable of that type.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| result == 0)?;
    Some(Nanos(seconds.saturating_mul(1_000_000_000) + u64::try_from(time.tv_nsec).ok()?))
}

/// CPU time of this process.
#[must_use]
pub fn process_cpu_time() -> Nanos {
    read(ClockId::ProcessCPUTime)
}

/// Time since boot, that spent asleep included: what `/proc` counts start times in.
#[must_use]
pub fn since_boot() -> Nanos {
    read(ClockId::Boottime)
}

/// How many of the kernel's clock ticks, in which it counts start times, there are in a second; at least 1.
#[must_use]
pub fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

/// As system calls want it.
pub(crate) fn timespec(time: Nanos) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.0 / 1_000_000_000).unwrap_or(i64::MAX),
        tv_nsec: (time.0 % 1_000_000_000) as _,
    }
}

fn read(clock: ClockId) -> Nanos {
    let t = clock_gettime(clock);
    Nanos(t.tv_sec.cast_unsigned().saturating_mul(1_000_000_000) + t.tv_nsec.cast_unsigned())
}

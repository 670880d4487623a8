//! The tick, and the slice of time that the scheduler gives a thread.

use crate::sched;
use evenly_model::{Nanos, Tid};

/// How finely the scheduler shares a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The tick: a running thread's time is accounted for at least this often.
    pub tick: Nanos,
    /// How long a thread runs, at the least, before another of the same weight takes its place.
    pub slice: Nanos,
}

/// Tick and slice for the calling thread. See [`slice_of`].
#[must_use]
pub fn slice() -> Slice {
    slice_of(Tid(0))
}

/// Tick and slice for a thread: from sched_getattr(2) (kernels from 6.12 on report it there), else
/// from sched_rr_get_interval(2), else the tick. A thread that is not scheduled fairly has no such
/// slice: then it is the tick, too.
#[must_use]
pub fn slice_of(tid: Tid) -> Slice {
    let tick = tick();
    let slice = fair_slice(tid).filter(|&s| s >= Nanos::from_micros(100)).unwrap_or(tick);
    Slice { tick, slice }
}

fn tick() -> Nanos {
    let r = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    let nanos = u64::try_from(r.tv_nsec).unwrap_or(0);
    let seconds = u64::try_from(r.tv_sec).unwrap_or(0);
    Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

fn fair_slice(tid: Tid) -> Option<Nanos> {
    let found = sched::get(tid).ok().filter(|s| s.is_fair() || s.policy == sched::EXT)?;
    if found.slice > Nanos::ZERO {
        return Some(found.slice);
    }
    let mut interval = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec, which is live.
    let r = unsafe { libc::sched_rr_get_interval(tid.0, &raw mut interval) };
    let nanos = u64::try_from(interval.tv_nsec).ok()?;
    let seconds = u64::try_from(interval.tv_sec).ok()?;
    (r == 0).then(|| Nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)))
}

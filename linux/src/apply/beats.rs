//! Threads of evenly's own that wake up again and again, each on its CPU: the kernel then looks who is to run there.
//!
//! Invariant: nothing of a program is changed by it.

use crate::affinity::set;
use crate::clock::{now, thread_cpu_time_of};
use crate::sched::{self, Scheduling};
use evenly_model::{CpuId, CpuSet, Nanos, Tid};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The shortest slice that the kernel gives.
const SLICE: Nanos = Nanos::from_micros(100);

/// Threads that wake up, each on its CPU.
#[derive(Debug)]
pub(crate) struct Beats {
    since: Nanos,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The time from one beat to the next, in nanoseconds; 0 where there is none any more.
    every: AtomicU64,
    threads: Mutex<Vec<Tid>>,
}

impl Beats {
    /// On each of these CPUs, so long after one another; each at once, or when the kernel thinks it right.
    pub(crate) fn start(cpus: &CpuSet, beat: Nanos, at_once: bool) -> Self {
        let shared = Arc::new(Shared { every: AtomicU64::new(beat.0), threads: Mutex::default() });
        for cpu in cpus.iter() {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("metronome".into());
            // Where there can be no thread there are no beats: that shows in what comes of it. None is waited for: it may
            // never run again, if a real-time thread keeps its CPU.
            drop(thread.spawn(move || make_beats(cpu, &shared, at_once)));
        }
        Self { since: now(), shared }
    }

    /// They are so long after one another from now on.
    pub(crate) fn change(&self, beat: Nanos) {
        self.shared.every.store(beat.0, Ordering::Relaxed);
    }

    /// For how long there were beats, and their CPU time.
    pub(crate) fn end(self) -> (Nanos, Nanos) {
        let threads = self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let cpu = threads.iter().filter_map(|&tid| thread_cpu_time_of(tid));
        (now() - self.since, cpu.fold(Nanos::ZERO, |all, cpu| all + cpu))
    }
}

impl Drop for Beats {
    fn drop(&mut self) {
        self.change(Nanos::ZERO);
    }
}

/// Wakes up on this CPU until it is to end.
fn make_beats(cpu: CpuId, shared: &Shared, at_once: bool) {
    // Elsewhere it would wake up for nothing.
    if set(Tid(0), &CpuSet::single(cpu)).is_err() {
        return;
    }
    // Without, the kernel puts beats off by 0.05 ms.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    // Who asks for a short slice displaces at once who has a long one.
    if at_once && let Ok(usual) = sched::get(Tid(0)) {
        let _ = sched::set(Tid(0), &Scheduling { slice: SLICE, ..usual });
    }
    let own = Tid(rustix::thread::gettid().as_raw_nonzero().get());
    shared.threads.lock().unwrap_or_else(PoisonError::into_inner).push(own);
    loop {
        let beat = shared.every.load(Ordering::Relaxed);
        if beat == 0 {
            return;
        }
        std::thread::sleep(Duration::from_nanos(beat));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::affinity;
    use std::time::Instant;

    /// Would catch: beats that come when the scheduler's clock ticks, because who makes them displaces nobody; threads that go on
    /// for ever.
    #[test]
    fn beats_are_made_on_their_cpu_with_a_short_slice_until_they_end() {
        let cpu = affinity::get(Tid(0)).unwrap().first().unwrap();
        let beats = Beats::start(&CpuSet::single(cpu), Nanos::from_micros(200), true);
        let shared = beats.shared.clone();
        let limit = Instant::now() + Duration::from_secs(20);
        let until = |met: &mut dyn FnMut() -> bool| {
            while !met() {
                assert!(Instant::now() < limit);
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let made_by = || shared.threads.lock().unwrap().first().copied();
        until(&mut || made_by().and_then(thread_cpu_time_of) > Some(Nanos::from_micros(100)));
        let thread = made_by().unwrap();
        assert_eq!(affinity::get(thread).unwrap(), CpuSet::single(cpu));
        let slice = sched::get(thread).unwrap().slice;
        assert!(slice == SLICE || slice == Nanos::ZERO, "{slice:?}");
        assert!(beats.end().1 > Nanos::ZERO);
        until(&mut || affinity::get(thread).is_err());
    }
}

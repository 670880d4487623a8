//! Whether a team has more threads than CPUs: then whoever is waited for may need the CPU of the one that waits.

use evenly_model::{CpuId, CpuSet};
use rustix::thread::{CpuSet as Mask, sched_getaffinity};

/// CPUs that threads of a team may use, as far as these have come.
///
/// Each thread is asked for its own. By those of whoever makes the team, which OpenMP may have bound to one of them by then, each
/// team would be a crowd.
#[derive(Debug, Default)]
pub(crate) struct Crowd {
    /// Of all threads that have come.
    cpus: CpuSet,
    /// CPU time that the program has in a time, in CPUs, if a quota says so to a thread that may use more of them.
    quota: Option<usize>,
    came: Vec<usize>,
}

impl Crowd {
    /// The calling thread is that of this number. Whether all of so many have come, and are more than their CPUs.
    pub(crate) fn add(&mut self, thread: usize, threads: usize) -> bool {
        if self.came.contains(&thread) {
            return self.is_one(threads);
        }
        // Where it cannot be found out the threads will be as many as somebody wanted.
        let own = allowed().unwrap_or_else(|| (0..threads as u32).map(CpuId).collect());
        let usable = std::thread::available_parallelism().map_or(threads, std::num::NonZero::get);
        self.note(thread, &own, usable);
        self.is_one(threads)
    }

    fn note(&mut self, thread: usize, own: &CpuSet, usable: usize) {
        if usable < own.len() {
            self.quota = Some(usable);
        }
        self.cpus = self.cpus.or(own);
        self.came.push(thread);
    }

    fn is_one(&self, threads: usize) -> bool {
        let cpus = self.quota.unwrap_or(usize::MAX).min(self.cpus.len());
        self.came.len() >= threads && cpus < threads
    }
}

/// The CPUs of the calling thread; None where there are more of them than the mask has bits.
fn allowed() -> Option<CpuSet> {
    let mask = sched_getaffinity(None).ok()?;
    Some((0..Mask::MAX_CPU).filter(|cpu| mask.is_set(*cpu)).map(|cpu| CpuId(cpu as u32)).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn crowd(threads: &[(&str, usize)]) -> bool {
        let mut crowd = Crowd::default();
        for (thread, (cpus, usable)) in threads.iter().enumerate() {
            crowd.note(thread, &cpus.parse().unwrap(), *usable);
        }
        crowd.is_one(threads.len())
    }

    /// Would catch: a team of bound threads that sleep at once, as the one that has made it may use one CPU.
    #[test]
    fn bound_threads_are_no_crowd_if_each_has_a_cpu() {
        assert!(!crowd(&[("0", 1), ("1", 1)]));
        assert!(!crowd(&[("0-1", 2), ("0-1", 2)]));
        assert!(crowd(&[("0", 1), ("0", 1)]));
        assert!(crowd(&[("0-1", 2), ("0-1", 2), ("0-1", 2)]));
        // A quota of one CPU.
        assert!(crowd(&[("0-3", 1), ("0-3", 1)]));
    }

    /// The first of them, bound to its CPU, says nothing of the others.
    #[test]
    fn those_that_have_not_come_are_waited_for() {
        let mut crowd = Crowd::default();
        crowd.note(0, &"0".parse().unwrap(), 1);
        assert!(!crowd.is_one(2));
        crowd.note(1, &"0".parse().unwrap(), 1);
        assert!(crowd.is_one(2));
    }
}

//! How fast each CPU computes, for whatever reason: one that shares its core with a busy hyperthread, that is
//! too hot, or that the host of a virtual machine gives to others without saying so. No file shows it, so the same
//! short work is done on one CPU after the other, and the CPU time that it takes is measured.
//!
//! Invariant: nothing is changed but the affinity of a thread of this very process; its work takes well under a
//! hundredth of one CPU. What was measured on a CPU that idles says little, as its clock is low then: callers
//! have to leave that out.

use crate::{affinity, clock};
use evenly_model::{CpuId, CpuSet, Tid};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Steps of one piece of work: a tenth of a millisecond on CPUs of today. Each depends on the one before.
const STEPS: u64 = 80_000;
/// The time between two pieces.
const INTERVAL: Duration = Duration::from_millis(25);
/// Fewer pieces are too few to judge a CPU.
const LEAST: u64 = 6;

/// What the work took on one CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Pieces {
    count: u64,
    mean: f64,
    /// Sum of the squared differences from the mean (Welford).
    squares: f64,
}

impl Pieces {
    fn add(&mut self, ns: f64) {
        self.count += 1;
        let off = ns - self.mean;
        self.mean += off / self.count as f64;
        self.squares += off * (ns - self.mean);
    }

    /// Mean and standard error.
    fn known(&self) -> Option<(f64, f64)> {
        let n = self.count as f64;
        (self.count >= LEAST).then(|| (self.mean, (self.squares / (n - 1.0) / n).sqrt()))
    }
}

#[derive(Debug, Default)]
struct Shared {
    over: AtomicBool,
    pieces: Mutex<BTreeMap<CpuId, Pieces>>,
}

/// Measures until it is dropped.
#[derive(Debug)]
pub struct Pace {
    shared: Arc<Shared>,
}

impl Pace {
    /// On these CPUs, as far as this process may use them. Without a thread to do it nothing is known.
    #[must_use]
    pub fn of(cpus: CpuSet) -> Self {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        // Never waited for: on a CPU that a real-time thread holds it may not come to its end.
        let started = std::thread::Builder::new().name(String::from("pace"));
        let _ = started.spawn(move || own.measure(&cpus));
        Self { shared }
    }

    /// What a piece of work takes on each CPU in ns, and the standard error of that; those on which it was done
    /// too seldom are left out.
    #[must_use]
    pub fn known(&self) -> BTreeMap<CpuId, (f64, f64)> {
        let pieces = self.shared.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        pieces.iter().filter_map(|(cpu, p)| Some((*cpu, p.known()?))).collect()
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        // Relaxed: nothing else depends on when it is seen.
        self.shared.over.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn measure(&self, cpus: &CpuSet) {
        loop {
            let mut any = false;
            for cpu in cpus.iter() {
                if self.over.load(Ordering::Relaxed) {
                    return;
                }
                // One that is offline, or not ours to use.
                if affinity::set(Tid(0), &CpuSet::single(cpu)).is_err() {
                    continue;
                }
                any = true;
                let ns = piece();
                let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
                pieces.entry(cpu).or_default().add(ns);
                drop(pieces);
                std::thread::sleep(INTERVAL);
            }
            if !any {
                return;
            }
        }
    }
}

/// Does the work once, and returns the CPU time that it took.
fn piece() -> f64 {
    let began = clock::thread_cpu_time();
    let mut x = black_box(1_u64);
    for _ in 0..STEPS {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    }
    black_box(x);
    (clock::thread_cpu_time() - began).0 as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_error_are_those_of_statistics() {
        let mut p = Pieces::default();
        for (i, ns) in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter().enumerate() {
            assert_eq!(p.known().is_some(), i as u64 >= LEAST);
            p.add(ns);
        }
        let (mean, error) = p.known().unwrap();
        assert!((mean - 5.0).abs() < 1e-9);
        // Of a variance of 32 / 7.
        assert!((error - (32.0_f64 / 7.0 / 8.0).sqrt()).abs() < 1e-9, "{error}");
    }

    #[test]
    fn each_cpu_is_measured_and_no_mask_is_changed() {
        let mine = affinity::get(Tid(0)).unwrap();
        let pace = Pace::of(mine.or(&CpuSet::single(CpuId(9_999))));
        let known = evenly_testing::wait_for("all are measured", || {
            let known = pace.known();
            (known.len() == mine.len()).then_some(known)
        });
        assert!(known.values().all(|(mean, _)| *mean > 1_000.0));
        assert_eq!(affinity::get(Tid(0)).unwrap(), mine);
    }
}

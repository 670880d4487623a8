//! The idealised algorithm over all shapes and periods of Figure 10: n = 3 to 64 threads, all
//! m < n CPUs, lambda / e from 0.01 to 5.
//!
//! Invariant: rows come in order of n, m and lambda, however many cores worked on them.

use crate::{IdealOptions, ideal};
use evenly_model::Nanos;
use evenly_theory::{Shape, static_time};
use rayon::prelude::*;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which shapes and periods are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Numbers of threads; each with all numbers of CPUs from 2 to one less.
    pub threads: RangeInclusive<u32>,
    /// lambda in hundredths of e.
    pub periods: RangeInclusive<u32>,
}

impl Default for Sweep {
    /// The shapes and periods of Figure 10.
    fn default() -> Self {
        Self { threads: 3..=64, periods: 1..=500 }
    }
}

/// What one run of a sweep came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SweepRow {
    /// n: the number of threads.
    pub threads: u32,
    /// m: the number of CPUs.
    pub cpus: u32,
    /// lambda in hundredths of e.
    pub period: u32,
    /// Makespan in units of e.
    pub makespan: f64,
    /// Eq. 1 over the makespan.
    pub relative_speedup: f64,
    /// How many threads were moved.
    pub migrations: u64,
    /// How many balancing points there were.
    pub points: u64,
    /// Whether nothing was rounded.
    pub exact: bool,
}

impl Sweep {
    /// The shapes, in order.
    fn shapes(&self) -> Vec<Shape> {
        let pairs = self.threads.clone().flat_map(|n| (2..n).map(move |m| (n, m)));
        pairs.filter_map(|(n, m)| Shape::new(n, m).ok()).collect()
    }

    /// How many runs there are.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.shapes().len() as u64 * self.periods.clone().count() as u64
    }

    /// Runs them all, on all cores. `done` is called with the number of runs that have just ended, from any thread.
    /// None where `stop` became true.
    #[must_use]
    pub fn run(&self, done: impl Fn(u64) + Sync, stop: &AtomicBool) -> Option<Vec<SweepRow>> {
        let of_one_shape = |shape: Shape| {
            if stop.load(Ordering::Relaxed) {
                return Vec::new();
            }
            let rows: Vec<SweepRow> = self.periods.clone().map(|p| row(shape, p)).collect();
            done(rows.len() as u64);
            rows
        };
        let rows: Vec<Vec<SweepRow>> = self.shapes().into_par_iter().map(of_one_shape).collect();
        // Relaxed is enough: the flag orders nothing but itself.
        (!stop.load(Ordering::Relaxed)).then(|| rows.into_iter().flatten().collect())
    }
}

/// e, of which a hundredth is whole.
const PHASE: Nanos = Nanos::from_millis(1_000);

fn row(shape: Shape, period: u32) -> SweepRow {
    let run = ideal(&IdealOptions::new(shape, PHASE, Nanos(PHASE.0 / 100 * u64::from(period))));
    let makespan = run.makespan();
    SweepRow {
        threads: shape.n(),
        cpus: shape.m(),
        period,
        makespan: makespan.over(&PHASE.into()),
        relative_speedup: static_time(shape, PHASE).over(&makespan),
        migrations: run.migrations,
        points: run.points,
        exact: run.exact,
    }
}

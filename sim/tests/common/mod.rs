//! The automatic period against fixed ones, over the ranges of the paper's Figures 8, 9, 11 and 17,
//! on a machine as real ones are: slices, ticks, points and moves that cost something.
#![allow(clippy::unwrap_used, dead_code)]

use evenly_engine::{Period, PeriodOptions};
use evenly_model::Nanos;
use evenly_policies::by_name;
use evenly_sim::{Barrier, Costs, DriverOptions, Kernel, Scenario, Sharing, Sim, Start, simulate};

/// One row of the table.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) figure: &'static str,
    pub(crate) threads: usize,
    pub(crate) cpus: usize,
    pub(crate) phase: Nanos,
    pub(crate) phases: u32,
    pub(crate) barrier: Barrier,
    pub(crate) slice: Nanos,
    pub(crate) point: Nanos,
}

/// What came of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    /// Mean makespan with the automatic period over that with the best fixed one.
    pub(crate) over_best: f64,
    /// The best fixed period.
    pub(crate) best: Nanos,
    /// Mean automatic period over the runs.
    pub(crate) auto: Nanos,
    /// Mean makespan with the automatic period over Eq. 14.
    pub(crate) over_limit: f64,
}

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// Fixed periods in tenths of milliseconds.
pub(crate) const FIXED: [u64; 13] =
    [25, 50, 70, 100, 140, 200, 280, 400, 570, 800, 1_130, 1_600, 3_200];

impl Case {
    fn scenario(&self, seed: u64) -> Scenario {
        Scenario {
            sharing: Sharing::Slices(self.slice),
            tick: ms(4).min(self.slice),
            kernel: Kernel { reactive: true, rotate: None },
            costs: Costs { point: self.point, refill: Nanos::from_micros(30), ..Costs::default() },
            phases: self.phases,
            barrier: self.barrier,
            seed,
            ..Scenario::new(self.threads, self.cpus, self.phase)
        }
    }

    /// Mean makespan over the seeds, and mean period.
    pub(crate) fn run(&self, policy: &str, period: Period, seeds: u64) -> (f64, Nanos) {
        let (mut sum, mut lambda) = (0.0, 0.0);
        for seed in 1..=seeds {
            let options = DriverOptions {
                period: PeriodOptions {
                    period,
                    // What the fixed ones cost is to be seen.
                    budget: if period == Period::Auto { 0.01 } else { 1.0 },
                    slice: self.slice,
                    seed,
                },
                start: Start::AtOnce,
                ..DriverOptions::fixed(ms(20), seed)
            };
            let sim = Sim::new(self.scenario(seed));
            let out = simulate(sim, by_name(policy).unwrap(), &options, ms(10_000_000));
            let makespan = out.makespan.unwrap().as_secs_f64();
            sum += makespan;
            lambda += makespan / out.points.max(1) as f64;
        }
        (sum / seeds as f64, Nanos::from_secs_f64(lambda / seeds as f64))
    }

    pub(crate) fn find(&self, policy: &str, seeds: u64) -> Found {
        let fixed = FIXED.map(|t| Nanos::from_micros(100 * t));
        let (best, least) = fixed
            .into_iter()
            .map(|p| (p, self.run(policy, Period::Fixed(p), seeds).0))
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap();
        let (took, auto) = self.run(policy, Period::Auto, seeds);
        let limit = self.phase.as_secs_f64() * f64::from(self.phases) * self.threads as f64
            / self.cpus as f64;
        Found { over_best: took / least - 1.0, best, auto, over_limit: took / limit - 1.0 }
    }
}

/// The cases. `total` is the work of a thread in those with many phases, and the length of the one
/// phase is 30 s as in the paper, or less.
pub(crate) fn cases(one: Nanos, total: Nanos) -> Vec<Case> {
    let usual = Case {
        figure: "8",
        threads: 8,
        cpus: 7,
        phase: one,
        phases: 1,
        barrier: Barrier::Block,
        slice: ms(4),
        point: Nanos::from_micros(50),
    };
    let mut all = Vec::new();
    for (figure, threads, cpus) in [
        ("8", 8, 7),
        ("8", 9, 8),
        ("8", 11, 8),
        ("8", 15, 8),
        ("9", 10, 4),
        ("9", 15, 7),
        ("9", 17, 8),
        ("9", 22, 7),
        ("9", 31, 8),
    ] {
        all.push(Case { figure, threads, cpus, ..usual.clone() });
    }
    for (threads, cpus) in [(8, 7), (3, 2)] {
        for barrier in [Barrier::Block, Barrier::Yield, Barrier::Spin] {
            for phase in [5, 10, 20, 50, 100, 200, 500, 1_000, 2_000] {
                let phase = ms(phase);
                let phases = (total.0 / phase.0).max(3) as u32;
                let figure = "11";
                all.push(Case { figure, threads, cpus, phase, phases, barrier, ..usual.clone() });
            }
        }
    }
    for slice in [ms(1), ms(3), ms(10)] {
        for point in [Nanos::from_micros(20), Nanos::from_micros(100)] {
            all.push(Case { figure: "17", slice, point, ..usual.clone() });
        }
    }
    all
}

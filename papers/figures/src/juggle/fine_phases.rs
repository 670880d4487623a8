//! Beside Figure 17: phases too short for a balancer that looks once a period, and what one planned move in each of them
//! makes of it (the policy `phase`, which is ours).
//!
//! Two series are measured, not simulated: `MEASURED` is a record, so that the figure is the same on every machine.

use crate::{Agrees, Drawing, FigureError, Finding, Made, Panel};
use evenly_draw::{Axis, Chart, Look, Series};
use evenly_engine::GuardOptions;
use evenly_model::Nanos;
use evenly_policies::by_name;
use evenly_sim::{Barrier, Costs, DriverOptions, Kernel, Scenario, Sharing, Sim, simulate};
use evenly_theory::upper_bound;
use rayon::prelude::*;

const THREADS: usize = 3;
const CPUS: usize = 2;
/// What all phases of a run need of one thread.
const WORK: Nanos = Nanos::from_millis(3_000);
/// Lengths of a phase, in microseconds.
const PHASES: [u64; 14] = [
    20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000,
];

/// Length of a phase in ms, and makespan of the kernel alone and under `phase`, over that of all work on both CPUs.
/// `workloads/omp_spmd.c` with libgomp, 3 threads on 2 CPUs (Linux 6.18), as many phases as are simulated here; medians of
/// 3 interleaved runs; e from runs of two threads in between.
const MEASURED: [(f64, f64, f64); PHASES.len()] = [
    (0.02, 1.700, 1.723),
    (0.05, 1.488, 1.494),
    (0.1, 1.417, 1.443),
    (0.2, 1.362, 1.232),
    (0.5, 1.349, 1.139),
    (1.0, 1.333, 1.112),
    (2.0, 1.321, 1.059),
    (5.0, 1.317, 1.077),
    (10.0, 1.289, 1.062),
    (20.0, 1.160, 1.055),
    (50.0, 1.041, 1.056),
    (100.0, 1.041, 1.028),
    (200.0, 1.059, 1.013),
    (1000.0, 1.033, 1.005),
];

/// Costs as they were measured on a machine like that of `MEASURED`; slice and tick are that of its kernel.
fn scenario(phase: Nanos) -> Scenario {
    let us = Nanos::from_micros;
    let costs = Costs {
        point: us(20),
        read: us(1),
        place: us(17),
        refill: us(10),
        wake: us(5),
        late: us(20),
    };
    let mut scenario = Scenario {
        sharing: Sharing::Slices(us(2_800)),
        tick: Nanos::from_millis(4),
        kernel: Kernel { reactive: true, rotate: None },
        costs,
        phases: (WORK.0 / phase.0).max(5) as u32,
        barrier: Barrier::Block,
        ..Scenario::new(THREADS, CPUS, phase)
    };
    scenario.threads.iter_mut().for_each(|t| t.noise_permille = 10);
    scenario
}

/// How many times as fast as under static distribution (Eq. 1) it is.
fn simulated(phase: Nanos, policy: &str) -> Result<f64, FigureError> {
    let info = by_name(policy).ok_or_else(|| FigureError::Policy(policy.to_owned()))?;
    let scenario = scenario(phase);
    let options = DriverOptions {
        guard: GuardOptions::default(),
        expected: Some(THREADS as u32),
        ..DriverOptions::fixed(Nanos::from_millis(14), 1)
    };
    let fixed = phase.as_secs_f64() * 2.0 * f64::from(scenario.phases);
    let limit = Nanos::from_secs_f64(20.0 * fixed);
    let out = simulate(Sim::new(scenario), info, &options, limit);
    Ok(fixed / out.makespan.unwrap_or(limit).as_secs_f64())
}

pub(crate) fn figure() -> Result<Made, FigureError> {
    let limit = upper_bound(THREADS as u32, CPUS as u32);
    let of = |policy: &str| {
        PHASES
            .par_iter()
            .map(|&e| Ok((e as f64 / 1e3, simulated(Nanos::from_micros(e), policy)?)))
            .collect::<Result<Vec<_>, FigureError>>()
    };
    let measured = |of: fn(&(f64, f64, f64)) -> f64| -> Vec<(f64, f64)> {
        MEASURED.iter().map(|row| (row.0, limit / of(row))).collect()
    };
    let ends = [PHASES[0] as f64 / 1e3, PHASES[PHASES.len() - 1] as f64 / 1e3];
    let series = vec![
        Series::new("limit; Eq. 14", 7, Look::Dashed, ends.map(|x| (x, limit)).to_vec()),
        Series::new("static", 6, Look::Joined, of("static")?),
        Series::new("measured kernel", 5, Look::Joined, measured(|row| row.1)),
        Series::new("juggle", 0, Look::Joined, of("juggle")?),
        Series::new("hybrid", 1, Look::Joined, of("hybrid")?),
        Series::new("phase", 2, Look::Joined, of("phase")?),
        Series::new("measured phase", 3, Look::Joined, measured(|row| row.2)),
    ];
    let (juggle, phase, live) = (&series[3], &series[5], &series[6]);
    let apart = |x: f64| (phase.at(x) / live.at(x) - 1.0).abs() * 100.0;
    let most_apart = [0.2, 0.5, 1.0, 2.0, 5.0].map(apart).into_iter().fold(0.0, f64::max);
    let findings = vec![
        Finding {
            paper: "proactive balancing does not suit phases shorter than about 10 ms (section 4.6)",
            here: format!(
                "`juggle` with periods of 14 ms: {:.2} at phases of 1 ms, {:.2} at 10 ms, {:.2} at 100 ms, of {limit:.2} \
                 that can be had",
                juggle.at(1.0),
                juggle.at(10.0),
                juggle.at(100.0)
            ),
            agrees: Agrees::when(
                juggle.at(1.0) < 1.05 && juggle.at(100.0) > 1.2,
                juggle.at(1.0) < juggle.at(100.0),
            ),
        },
        Finding {
            paper: "(not of the paper: one planned move in each phase)",
            here: format!(
                "`phase` {:.2} at 0.2 ms, {:.2} at 1 ms, {:.2} at 10 ms; measured {:.2}, {:.2} and {:.2}. From 0.2 to 5 ms \
                 simulation and measurement differ by {most_apart:.0} % at most",
                phase.at(0.2),
                phase.at(1.0),
                phase.at(10.0),
                live.at(0.2),
                live.at(1.0),
                live.at(10.0)
            ),
            agrees: Agrees::when(phase.at(1.0) > 1.2 && most_apart < 5.0, phase.at(1.0) > 1.1),
        },
    ];
    Ok(Made {
        tables: Vec::new(),
        setting: String::from(
            "Simulated: n = 3, m = 2, phases of 20 us to 1 s, 3 s of CPU time for each thread (at least 5 phases), barriers \
             at which threads block, a kernel with slices of 2.8 ms that pulls threads to idle CPUs, phases that vary by \
             1 %; periods of 14 ms, balancing begins when three threads are seen to compute, with the guard. A balancing point or a wake-up of a helper \
             costs 20 us, a mask 17 us, caches 10 us, waking a thread 5 us, a reading 1 us; helpers are up to 20 us late. \
             Measured: `omp_spmd` with libgomp, 3 threads on 2 CPUs, Linux 6.18, medians of 3 interleaved runs.",
        ),
        panels: vec![Panel {
            name: String::from("juggle-17-phases"),
            title: String::from("Short phases, 3 threads on 2 CPUs"),
            drawing: Drawing::Chart(Chart {
                x: Axis::log("phase_ms", "length of a phase, ms"),
                y: Axis::linear("relative_speedup", "relative speedup").showing(1.0),
                series,
            }),
        }],
        findings,
    })
}

//! What stands for OSLB's machine and its benchmarks.
//!
//! The paper ran nine OpenMP programs of the NAS suite with 12 threads each on 12 cores. It gives
//! neither how long their phases are nor how they wait. Here nine programs differ in the length of
//! their phases only.
//!
//! Invariant: all programs need the same CPU time.

use crate::FigureError;
use crate::runs::run;
use evenly_model::{CpuId, Nanos};
use evenly_sim::{
    Barrier, Costs, DriverOptions, Kernel, Placement, Program, Scenario, Scope, Sharing, Stranger,
};

/// CPUs, and threads of each program.
pub(crate) const CPUS: u32 = 12;
/// Length of a phase, in milliseconds: the last has one phase only, like EP.
pub(crate) const PHASES: [u64; 9] = [5, 10, 20, 40, 80, 160, 320, 640, 1_280];
/// CPU time of each thread.
pub(crate) const WORK: u64 = 1_280;

/// Names of the programs, by their phases.
pub(crate) fn names() -> Vec<String> {
    PHASES.iter().map(|p| format!("{p} ms")).collect()
}

/// Phases of this length in so much work, in milliseconds; at least one, which is then shorter.
fn phases(length: u64, work: u64) -> (u64, u32) {
    (length.min(work), u32::try_from(work / length).unwrap_or(1).max(1))
}

/// The machine with one program.
pub(crate) fn one(length: u64, barrier: Barrier, seed: u64) -> Scenario {
    of(phases(length, WORK), barrier, seed)
}

fn of((length, phases): (u64, u32), barrier: Barrier, seed: u64) -> Scenario {
    Scenario {
        sharing: Sharing::Slices(Nanos::from_millis(4)),
        kernel: Kernel { reactive: true, rotate: None },
        placement: Placement::Even,
        phases,
        barrier,
        seed,
        ..Scenario::new(CPUS as usize, CPUS as usize, Nanos::from_millis(length))
    }
}

/// The machine with all programs at once, whose threads start on random CPUs. The kernel pulls
/// threads to idle CPUs; where it `balances` it also moves a random one, every 16 ms, to a random CPU
/// if that holds fewer. `work` is the CPU time of each thread, in milliseconds.
pub(crate) fn all(work: u64, barrier: Barrier, balances: bool, seed: u64) -> Scenario {
    let mut s = of(phases(PHASES[0], work), barrier, seed);
    let pattern = s.threads[0].clone();
    for (i, &length) in PHASES.iter().enumerate().skip(1) {
        let (length, phases) = phases(length, work);
        let work = Nanos::from_millis(length);
        s.threads.extend((0..CPUS).map(|_| evenly_sim::Thread {
            program: i,
            work,
            ..pattern.clone()
        }));
        s.others.push(Program { phases, barrier });
    }
    s.placement = Placement::Random;
    s.kernel.rotate = balances.then(|| Nanos::from_millis(16));
    s
}

/// The operating system's own short work, on every CPU (20 to 200 us, every 1 to 20 ms).
pub(crate) fn jitter() -> Vec<Stranger> {
    let us = Nanos::from_micros;
    (0..CPUS)
        .map(|c| Stranger {
            busy: Some((us(20), us(200))),
            sleep: (us(1_000), us(20_000)),
            ..Stranger::always(CpuId(c))
        })
        .collect()
}

/// A process that computes and sleeps for a moment now and then, on CPU 3.
pub(crate) fn hog() -> Stranger {
    let ms = Nanos::from_millis;
    Stranger { busy: Some((ms(80), ms(120))), sleep: (ms(5), ms(15)), ..Stranger::always(CpuId(3)) }
}

/// Balanced as OSLB does: every interval, each program by a balancer of its own.
pub(crate) fn options(interval: Nanos, seed: u64) -> DriverOptions {
    DriverOptions { jitter: true, scope: Scope::Each, ..DriverOptions::as_analysed(interval, seed) }
}

/// Time that a balancing point takes from every CPU: what the Juggle paper measured (section 4.5);
/// OSLB gives none.
pub(crate) const POINT: Nanos = Nanos::from_micros(100);

/// What balances the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Balancing {
    /// The kernel alone does.
    Kernel,
    /// OSLB with this interval.
    Oslb(Nanos),
}

/// Runs a scenario; when each program ended, in seconds.
pub(crate) fn ends(scenario: &Scenario, balancing: Balancing) -> Result<Vec<f64>, FigureError> {
    let (policy, interval, point) = match balancing {
        Balancing::Kernel => ("observe", Nanos::from_millis(100), Nanos::ZERO),
        Balancing::Oslb(interval) => ("secretary", interval, POINT),
    };
    let scenario = Scenario { costs: Costs { point, ..Costs::default() }, ..scenario.clone() };
    let work: u64 = WORK * 1_000_000 * (1 + scenario.others.len() as u64);
    let r = run(&scenario, policy, &options(interval, scenario.seed), Nanos(4 * work))?;
    Ok(r.outcome.programs.into_iter().flatten().map(Nanos::as_secs_f64).collect())
}

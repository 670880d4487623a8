//! What the simulator says that an arm should take, to be set beside what it took.
//!
//! The simulated run has the same threads, CPUs, phases, barrier, slice, tick, period and policy, and
//! begins and guards as evenly does live. The length of a phase is that which was measured in this
//! call: with all CPUs busy where there is an arm for that, because busy CPUs slow each other down,
//! else the lone thread's. Evenly's own CPU time, as its reports give it, is taken from the CPUs.
//!
//! Invariant: nothing is fitted. What the simulator does not model makes a difference, which is
//! shown; tools/bench/README.md says what is not modelled.

use crate::suite::{Benchmark, Habit, Program, Way};
use evenly_engine::{GuardOptions, PeriodOptions};
use evenly_linux::limits::Slice;
use evenly_model::stats::median;
use evenly_model::{CpuId, CpuSet, Nanos};
use evenly_sim::{Barrier, DriverOptions, Kernel, Scenario, Sharing, Sim, Stranger, simulate};

/// Seeds of the simulated runs, of which the median counts.
const SEEDS: u64 = 5;
/// A simulated run that is this many times as long as all of its work is given up.
const LIMIT: f64 = 20.0;

/// How finely guests share a CPU: 250 ticks a second.
pub(crate) const GUEST: Slice = Slice { slice: Nanos::from_millis(4), tick: Nanos::from_millis(4) };

/// What was measured, and goes into the simulation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measurements {
    /// Time of the arm's program with one thread, in seconds.
    pub(crate) alone_s: f64,
    /// How many times longer a thread takes while all CPUs are busy.
    pub(crate) full_over_alone: Option<f64>,
    /// Mean period of the arm, in milliseconds; none where evenly was not there.
    pub(crate) period_ms: Option<f64>,
    /// CPU time of evenly as a part of one CPU.
    pub(crate) overhead: f64,
}

/// Number of phases, and what is between them.
fn course(program: Program) -> (u32, Barrier) {
    match program {
        Program::Spmd { phases, barrier, .. } => (
            phases,
            match barrier {
                "spin" => Barrier::Spin,
                "yield" => Barrier::Yield,
                // spinblock spins for much less than a period, and then blocks.
                _ => Barrier::Block,
            },
        ),
        Program::OmpSpmd { runtime, phases, .. } | Program::OmpRegions { runtime, phases, .. } => {
            (phases, barrier_of(runtime))
        }
        Program::Ep { runtime, .. } => (1, barrier_of(runtime)),
        Program::Jacobi { runtime, sweeps, .. } => (sweeps, barrier_of(runtime)),
    }
}

/// With more threads than CPUs libgomp spins for microseconds and blocks, libomp yields.
fn barrier_of(runtime: &str) -> Barrier {
    if runtime == crate::suite::SPINS {
        return Barrier::Spin;
    }
    if runtime == "omp" { Barrier::Yield } else { Barrier::Block }
}

/// The neighbours, where the simulator has such: on a CPU, of the same weight, without chance.
fn strangers(benchmark: &Benchmark) -> Option<Vec<Stranger>> {
    let stranger = |n: &crate::suite::Neighbour| match (n.cpu, n.nice, n.habit) {
        (Some(cpu), 0, Habit::Always) => Some(Stranger::always(CpuId(cpu as u32))),
        _ => None,
    };
    benchmark.neighbours.iter().map(stranger).collect()
}

/// The makespan that the simulator gives for an arm, in seconds. None for the arms that only measure,
/// and for what the simulator does not have.
pub(crate) fn makespan_s(
    benchmark: &Benchmark,
    way: Way,
    clockwork: Slice,
    measured: Measurements,
) -> Option<f64> {
    let (policy, options) = match way {
        Way::Alone | Way::Full => return None,
        Way::Static => (evenly_policies::reference().name, [].as_slice()),
        Way::Kernel => (evenly_policies::watching().name, [].as_slice()),
        Way::Evenly { policy, options, .. } => (policy, options),
    };
    let info = evenly_policies::by_name(policy)?;
    let (n, m) = (benchmark.threads, benchmark.cpus);
    let (phases, barrier) = course(benchmark.program);
    let parts = if benchmark.program.work_is_per_thread() { 1.0 } else { n as f64 };
    let all_busy = measured.full_over_alone.unwrap_or(1.0).max(1.0);
    let work = measured.alone_s * all_busy / parts / f64::from(phases);
    let strangers = strangers(benchmark)?;
    let period = measured.period_ms.map_or(Nanos::from_millis(20), |ms| Nanos((ms * 1e6) as u64));
    let run = |seed: u64| {
        let scenario = Scenario {
            sharing: Sharing::Slices(clockwork.slice),
            tick: clockwork.tick,
            kernel: Kernel { reactive: true, rotate: None },
            phases,
            barrier,
            probe: options.contains(&"--probe"),
            strangers: strangers.clone(),
            seed,
            ..Scenario::new(n, m, Nanos::from_secs_f64(work))
        };
        let fixed = DriverOptions::fixed(period.max(Nanos::from_micros(100)), seed);
        let slice = clockwork.slice.max(clockwork.tick);
        let options = DriverOptions {
            period: PeriodOptions { budget: 1.0, slice, ..fixed.period },
            guard: GuardOptions::default(),
            domains: domains(benchmark, options),
            ..fixed
        };
        let limit = Nanos::from_secs_f64(LIMIT * work * n as f64 * f64::from(phases) + 1.0);
        simulate(Sim::new(scenario), info, &options, limit).makespan
    };
    let all: Vec<f64> = (1..=SEEDS).filter_map(run).map(Nanos::as_secs_f64).collect();
    Some(median(&all)? / (1.0 - (measured.overhead / m as f64).min(0.9)))
}

/// The nodes of the emulated machine, where the arm balances each on its own; else one domain.
fn domains(benchmark: &Benchmark, options: &[&str]) -> Vec<CpuSet> {
    let Some([cpus, nodes]) = benchmark.lab.filter(|_| options.contains(&"numa")) else {
        return Vec::new();
    };
    let each = cpus.div_ceil(nodes.max(1)).max(1);
    (0..nodes)
        .map(|d| (d * each..((d + 1) * each).min(benchmark.cpus as u32)).map(CpuId).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{self, HYBRID};

    fn benchmark(name: &str) -> Benchmark {
        let all = suite::host(true).into_iter().chain(suite::lab(true));
        all.into_iter().find(|b| b.name == name).unwrap()
    }

    fn simulated(name: &str, way: Way, of: Measurements) -> Option<f64> {
        makespan_s(&benchmark(name), way, GUEST, of)
    }

    const PLAIN: Measurements =
        Measurements { alone_s: 1.5, full_over_alone: None, period_ms: Some(20.0), overhead: 0.0 };

    #[test]
    fn one_phase_is_what_theory_says() {
        let near = |found: Option<f64>, expected: f64| {
            let found = found.unwrap();
            assert!((found / expected - 1.0).abs() < 0.05, "{found}, not {expected}");
        };
        near(simulated("one-phase-3-on-2", Way::Static, PLAIN), 3.0);
        near(simulated("one-phase-3-on-2", HYBRID, PLAIN), 2.25);
        near(simulated("one-phase-5-on-2", HYBRID, PLAIN), 3.75);
        assert_eq!(simulated("one-phase-3-on-2", Way::Alone, PLAIN), None);
        // Busy CPUs are slower, and evenly takes its part.
        let slower = Measurements { full_over_alone: Some(1.1), overhead: 0.02, ..PLAIN };
        near(simulated("one-phase-3-on-2", HYBRID, slower), 2.25 * 1.1 / 0.99);
        // The work of EP is shared.
        near(simulated("ep-gomp-3-on-2", HYBRID, PLAIN), 0.75);
        near(simulated("neighbour-2-on-2", HYBRID, PLAIN), 2.0);
    }

    #[test]
    fn what_is_left_to_chance_is_not_simulated() {
        assert_eq!(simulated("random-neighbours-1-3-on-2", HYBRID, PLAIN), None);
    }

    #[test]
    fn each_node_by_itself_takes_longer() {
        let b = benchmark("two-domains-9-on-8");
        let of = |name: &str| {
            let way = b.ways.iter().find(|w| w.name() == name).copied().unwrap();
            let long = Measurements { alone_s: 4.0, period_ms: Some(100.0), ..PLAIN };
            makespan_s(&b, way, GUEST, long).unwrap()
        };
        // 5 threads on 4 CPUs, 9 on 8.
        let (apart, together) = (of("per node"), of("machine"));
        assert!(apart > 1.02 * together, "{apart} {together}");
    }
}

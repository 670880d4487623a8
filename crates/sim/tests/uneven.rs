//! Threads of unequal work that wait for each other, as in MetBench of the HPCSched paper, on CPUs that two
//! of them share: what placement and weights together make of it.
#![allow(clippy::unwrap_used)]

use evenly_model::Nanos;
use evenly_sim::{Barrier, DriverOptions, Scenario, Sharing, Sim, simulate};

const UNIT: Nanos = Nanos::from_millis(50);
const HPC: [&str; 3] = ["hpc-auto", "hpc-uniform", "hpc-adaptive"];

/// Four threads on two CPUs; the kernel has put those with most work on one, by chance.
fn scenario(loads: [u64; 4], barrier: Barrier, sharing: Sharing) -> Scenario {
    let mut s = Scenario { sharing, phases: 80, barrier, probe: true, ..Scenario::new(4, 2, UNIT) };
    for (thread, load) in s.threads.iter_mut().zip(loads) {
        thread.work = Nanos(UNIT.0 * load);
    }
    s
}

/// What an iteration takes on the average, in units of work.
fn iteration(scenario: &Scenario, policy: &str) -> f64 {
    let options = DriverOptions::fixed(Nanos::from_millis(20), 1);
    let out =
        simulate(Sim::new(scenario.clone()), policy, &options, Nanos::from_millis(10_000_000));
    out.unwrap().makespan.unwrap().as_secs_f64() / UNIT.as_secs_f64() / 80.0
}

#[test]
fn heavy_threads_come_beside_light_ones() {
    let uneven = scenario([4, 1, 4, 1], Barrier::Yield, Sharing::Fluid);
    let fixed = iteration(&uneven, "static");
    assert!((7.9..8.1).contains(&fixed), "{fixed}");
    for policy in HPC {
        // All work over all CPUs takes 5.
        let took = iteration(&uneven, policy);
        assert!((5.0..5.3).contains(&took), "{policy}: {took}");
    }
}

#[test]
fn threads_that_spin_do_not_eat_the_time_of_those_that_compute() {
    for sharing in [Sharing::Fluid, Sharing::Slices(Nanos::from_millis(4))] {
        let uneven = scenario([4, 1, 4, 1], Barrier::Spin, sharing);
        // Whoever is where: half a CPU for all of the longest work.
        let fixed = iteration(&uneven, "static");
        assert!((7.9..8.1).contains(&fixed), "{fixed}");
        // All work over all CPUs takes 5.
        let took = iteration(&uneven, "hpc-auto");
        assert!((5.0..5.4).contains(&took), "{sharing:?}: {took}");
        // Priorities that are right for a POWER5 are too much or too little here, but never worse than
        // none.
        for policy in &HPC[1..] {
            let took = iteration(&uneven, policy);
            assert!(took < 8.0, "{policy}, {sharing:?}: {took}");
        }
    }
}

#[test]
fn what_is_even_stays_so() {
    for barrier in [Barrier::Block, Barrier::Yield, Barrier::Spin] {
        for sharing in [Sharing::Fluid, Sharing::Slices(Nanos::from_millis(4))] {
            let even = scenario([2, 2, 2, 2], barrier, sharing);
            let fixed = iteration(&even, "static");
            for policy in HPC {
                let took = iteration(&even, policy);
                let what = format!("{policy}, {barrier:?}, {sharing:?}");
                assert!(took < 1.005 * fixed, "{what}: {took} after {fixed}");
            }
        }
    }
}

#[test]
fn without_being_told_nothing_is_weighed() {
    let mut uneven = scenario([4, 1, 4, 1], Barrier::Spin, Sharing::Fluid);
    uneven.probe = false;
    for policy in HPC {
        let took = iteration(&uneven, policy);
        assert!((7.9..8.1).contains(&took), "{policy}: {took}");
    }
}

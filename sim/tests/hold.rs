//! When `hybrid` holds the threads that it moved, and when it lets them go.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::Nanos;
use evenly_policies::by_name;
use evenly_sim::{Barrier, Driver, DriverOptions, Kernel, Scenario, Sharing, Sim, simulate};

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// n threads on m CPUs with slices, ticks and a kernel that pulls and rotates, as real ones do.
fn scenario(n: usize, m: usize, work: Nanos, phases: u32, barrier: Barrier) -> Scenario {
    Scenario {
        sharing: Sharing::Slices(ms(4)),
        tick: ms(4),
        kernel: Kernel { reactive: true, rotate: Some(ms(64)) },
        phases,
        barrier,
        ..Scenario::new(n, m, work)
    }
}

fn driver(s: Scenario) -> Driver {
    Driver::new(Sim::new(s), by_name("hybrid").unwrap(), &DriverOptions::fixed(ms(20), 3))
}

fn pinned(d: &Driver) -> usize {
    d.sim.masks().iter().filter(|m| m.len() == 1).count()
}

#[test]
fn spinning_threads_are_held_and_blocking_ones_never() {
    let mut held = 0;
    let mut d = driver(scenario(3, 2, ms(100), 40, Barrier::Spin));
    while d.step(&mut []) {
        held = held.max(pinned(&d));
    }
    assert_eq!(held, 3);
    assert!(d.finish().makespan.is_some() && d.sim.changed_masks().is_empty());

    let mut d = driver(scenario(3, 2, ms(100), 40, Barrier::Block));
    while d.step(&mut []) {
        assert_eq!(pinned(&d), 0, "at {}", evenly_engine::Reader::now(&d.sim));
    }
}

#[test]
fn those_that_are_held_are_let_go_when_one_blocks() {
    // One phase so long that all are held; one thread is done early, and blocks at the barrier.
    let mut s = scenario(5, 2, ms(3_000), 2, Barrier::Block);
    s.threads[0].work = ms(2_000);
    let mut d = driver(s);
    let (mut held, mut let_go, mut blocks_since) = (false, false, None);
    while d.step(&mut []) {
        let now = evenly_engine::Reader::now(&d.sim);
        let blocked =
            d.sim.candidates().iter().any(|c| c.state == evenly_engine::RunState::Blocked);
        held |= pinned(&d) == 5;
        blocks_since = if blocked && held { blocks_since.or(Some(now)) } else { None };
        // It looks at the last second.
        if blocks_since.is_some_and(|since| now >= since + ms(1_100)) {
            let_go = true;
            assert_eq!(pinned(&d), 0, "at {now}");
        }
    }
    assert!(held && let_go);
}

#[test]
fn holding_wins_where_the_kernel_would_undo_the_balance() {
    let run = |policy: &str, seed: u64| {
        let s = Scenario { seed, ..scenario(8, 7, ms(1_000), 5, Barrier::Spin) };
        let outcome = simulate(
            Sim::new(s),
            by_name(policy).unwrap(),
            &DriverOptions::fixed(ms(20), seed),
            ms(60_000),
        );
        outcome.makespan.unwrap().as_secs_f64()
    };
    for seed in 1..4 {
        let (kernel, hybrid, juggle) =
            (run("observe", seed), run("hybrid", seed), run("juggle", seed));
        assert!(hybrid < 0.95 * kernel, "{hybrid} against {kernel} of the kernel");
        // It begins to hold after half a second.
        assert!(hybrid < 1.1 * juggle, "{hybrid} against {juggle} of juggle");
    }
}

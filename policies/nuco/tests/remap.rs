//! `nuco` on a simulated machine of two domains, through the whole cycle: threads of unequal work that
//! wait for each other at barriers, and processes whose memory is to follow them.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::{CpuSet, Knowledge, Nanos};
use evenly_nuco::NUCO;
use evenly_policies::reference;
use evenly_policy::PolicyInfo;
use evenly_sim::{Barrier, Driver, DriverOptions, Program, Scenario, Scope, Sim, Start, simulate};
use std::sync::Arc;

const LIMIT: Nanos = Nanos::from_millis(3_600_000);
const PERIOD: Nanos = Nanos::from_millis(20);

fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

fn options(every: u32, factor: f64) -> DriverOptions {
    let domains = vec![cpus("0-1"), cpus("2-3")];
    let nodes = (0..).zip(domains.clone()).collect();
    let knowledge = Knowledge { every, ..Knowledge::even(nodes, factor) };
    DriverOptions {
        domains,
        knowledge: Some(Arc::new(knowledge)),
        ..DriverOptions::fixed(PERIOD, 1)
    }
}

/// Eight threads of unequal work on four CPUs, placed so that CPU 0 has the two heaviest.
fn uneven(phases: u32) -> Scenario {
    let mut s = Scenario::new(8, 4, ms(10));
    for (t, work) in s.threads.iter_mut().zip([40, 10, 10, 10, 40, 10, 10, 10]) {
        t.work = ms(work);
    }
    (s.phases, s.barrier) = (phases, Barrier::Block);
    s
}

/// Every phase takes 80 ms as the threads are placed, 40 ms as they should be: the heavy ones alone,
/// three light ones on each of the others. Policies that even out numbers or progress leave them, or mix them.
#[test]
fn threads_of_unequal_work_are_placed_by_load() {
    let (phases, ideal) = (1_000, ms(40 * 1_000));
    let run = |policy: &'static PolicyInfo, options: &DriverOptions| {
        simulate(Sim::new(uneven(phases)), policy, options, LIMIT)
    };
    // All of them from the first moment, also those that compute little; and for static as one
    // domain, so that they are not handed from one to the other.
    let start = Start::AtOnce;
    let fixed = run(reference(), &DriverOptions { start, ..DriverOptions::fixed(PERIOD, 1) });
    let placed = run(&NUCO, &DriverOptions { start, ..options(50, 1.0) });
    let (placed_s, fixed_s) =
        (placed.makespan.unwrap().as_secs_f64(), fixed.makespan.unwrap().as_secs_f64());
    assert!((fixed_s - 80.0).abs() < 0.5, "{fixed_s}");
    // The first window, a second and a half with what comes before it, is as static.
    assert!(placed_s < 1.03 * ideal.as_secs_f64() && placed_s >= ideal.as_secs_f64(), "{placed_s}");
    assert!((1..=6).contains(&placed.migrations), "{}", placed.migrations);
}

/// Where loads are even nothing is moved, however long it runs.
#[test]
fn even_loads_are_left_alone() {
    let mut s = Scenario::new(8, 4, ms(20));
    (s.phases, s.barrier) = (1_000, Barrier::Block);
    let out = simulate(Sim::new(s), &NUCO, &options(10, 2.0), LIMIT);
    assert_eq!(out.migrations, 0);
    // Two threads a CPU, one after the other.
    let makespan = out.makespan.unwrap().as_secs_f64();
    assert!((makespan - 40.0).abs() < 0.5, "{makespan}");
}

/// Processes of a thread each: one that has to leave its node takes its memory with it, where copying
/// it costs less than reading it from afar.
#[test]
fn memory_follows_its_process_where_that_pays() {
    let moves = |bytes: u64, factor: f64| {
        let mut s = Scenario::new(8, 4, ms(200_000));
        // Those on the CPUs of node 1 end soon, and node 0 has all that are left.
        for (i, t) in s.threads.iter_mut().enumerate() {
            t.program = i;
            if i % 4 >= 2 {
                t.work = ms(400);
            }
        }
        s.others = vec![Program { phases: 1, barrier: Barrier::None }; 7];
        let options = DriverOptions { scope: Scope::Together, ..options(20, factor) };
        let mut driver = Driver::new(Sim::new(s).with_memory(bytes), &NUCO, &options);
        let mut observers = Vec::new();
        while driver.sim.makespan().is_none() && driver.step(&mut observers) {}
        // Four threads, four CPUs: each has one for itself.
        let makespan = driver.sim.makespan().unwrap().as_secs_f64();
        assert!(makespan < 206.0, "{makespan}");
        driver.sim.memory_moves().to_vec()
    };
    let followed = moves(100_000_000, 2.0);
    assert_eq!(followed.len(), 2, "{followed:?}");
    assert!(followed.iter().all(|&(_, from, to)| (from, to) == (0, 1)), "{followed:?}");
    assert!(followed[0].0 != followed[1].0, "{followed:?}");
    assert_eq!(moves(0, 2.0), []);
    assert_eq!(moves(100_000_000, 1.0), []);
}

/// Four processes that stay where they are, two of them with memory on the other node: where it can be
/// read, that memory comes to them, once; reading costs what a reading costs.
#[test]
fn memory_that_was_left_behind_follows() {
    let run = |homes: Option<&[u32]>, factor: f64| {
        let mut s = Scenario::new(4, 4, ms(60_000));
        for (i, t) in s.threads.iter_mut().enumerate() {
            t.program = i;
        }
        s.others = vec![Program { phases: 1, barrier: Barrier::None }; 3];
        let options = DriverOptions { scope: Scope::Together, ..options(20, factor) };
        let mut sim = Sim::new(s).with_memory(100_000_000);
        if let Some(homes) = homes {
            sim = sim.with_memory_on(homes);
        }
        let mut driver = Driver::new(sim, &NUCO, &options);
        let mut observers = Vec::new();
        while driver.sim.makespan().is_none() && driver.step(&mut observers) {}
        assert!(driver.sim.makespan().unwrap() < ms(60_500), "{:?}", driver.sim.makespan());
        let (_, _, notes) = driver.balancer().summary(ms(60_000));
        let notes = notes.iter().filter(|n| n.contains("first seen computing")).count();
        (driver.sim.memory_moves().to_vec(), driver.sim.memory_readings(), notes)
    };
    let (followed, readings, notes) = run(Some(&[1, 0, 0, 1]), 2.0);
    let moves: Vec<(u32, u32)> = followed.iter().map(|&(_, from, to)| (from, to)).collect();
    assert_eq!(moves, [(1, 0), (0, 1)], "{followed:?}");
    // At the start and at the ends of windows, of which there are 150, but not at every point.
    assert!((8..=4 * 151).contains(&readings) && notes == 0, "{readings}");
    assert_eq!(run(Some(&[1, 0, 0, 1]), 1.0).0, []);
    assert_eq!(run(Some(&[0, 0, 1, 1]), 2.0).0, []);
    // Unreadable, which a note says once: it is taken to be where they compute.
    let (followed, readings, notes) = run(None, 2.0);
    assert!(followed.is_empty() && readings > 0 && notes == 1, "{readings} {notes}");
}

/// On one node it moves no memory, and evens out loads all the same.
#[test]
fn one_node_will_do() {
    let options = DriverOptions::fixed(PERIOD, 1);
    let sim = Sim::new(uneven(200)).with_memory(1 << 30);
    let mut driver = Driver::new(sim, &NUCO, &options);
    let mut observers = Vec::new();
    while driver.sim.makespan().is_none() && driver.step(&mut observers) {}
    assert!(driver.sim.makespan().unwrap() < ms(200 * 48), "{:?}", driver.sim.makespan());
    assert!(driver.sim.memory_moves().is_empty() && driver.migrations() > 0);
    assert_eq!(driver.sim.memory_readings(), 0);
}

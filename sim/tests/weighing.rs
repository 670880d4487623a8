//! What a policy that gives weights does to threads, call by call.
#![allow(missing_docs, clippy::unwrap_used)]

mod watched;

use evenly_engine::{Balancer, Reader};
use evenly_model::Nanos;
use evenly_sim::{Barrier, Scenario, Sharing};
use watched::Watched;

const PERIOD: Nanos = Nanos::from_millis(20);

/// Threads with these loads that meet in a barrier and spin there, or sleep, on two CPUs in slices of 4 ms.
fn start(policy: &str, loads_ms: [u64; 4], barrier: Barrier) -> (Watched, Balancer) {
    let work = Nanos::from_millis(10);
    let sharing = Sharing::Slices(Nanos::from_millis(4));
    let mut s =
        Scenario { sharing, phases: 10_000, barrier, probe: true, ..Scenario::new(4, 2, work) };
    for (thread, load) in s.threads.iter_mut().zip(loads_ms) {
        thread.work = Nanos::from_millis(load);
    }
    watched::start(policy, s)
}

fn points(machine: &mut Watched, balancer: &mut Balancer, count: u64) {
    for _ in 0..count {
        machine.sim.run_until(machine.now() + PERIOD);
        balancer.point(machine, PERIOD, &mut []);
    }
}

/// Once threads have their places, a balanced program is looked at and nothing is done to it, however it waits.
#[test]
fn a_balanced_program_is_only_looked_at() {
    for policy in ["hpc-auto", "hpc-uniform", "hpc-adaptive"] {
        for barrier in [Barrier::Block, Barrier::Yield, Barrier::Spin] {
            let (mut machine, mut balancer) = start(policy, [20; 4], barrier);
            points(&mut machine, &mut balancer, 50);
            machine.acts = 0;
            points(&mut machine, &mut balancer, 1_000);
            assert_eq!(machine.acts, 0, "{policy}, {barrier:?}");
            assert!(machine.weights.is_empty(), "{policy}, {barrier:?}: {:?}", machine.weights);
        }
    }
}

/// Of a thread that has ended nothing is left to be undone.
#[test]
fn what_one_was_given_ends_with_it() {
    let (mut machine, mut balancer) = start("hpc-auto", [40, 10, 40, 10], Barrier::Spin);
    points(&mut machine, &mut balancer, 40);
    assert_eq!(machine.weights.len(), 4);
    let ended = *machine.weights.keys().next().unwrap();
    machine.ended = Some(ended);
    points(&mut machine, &mut balancer, 1);
    assert!(!machine.weights.contains_key(&ended), "{:?}", machine.weights);
    assert_eq!(machine.weights.len(), 3);
}

/// Threads that sleep leave their CPU to the others: parts would gain nothing, and cost the one that wakes the
/// others.
#[test]
fn those_that_sleep_at_a_triangular_loop_are_only_placed() {
    let (mut machine, mut balancer) = start("hpc-auto", [30, 10, 50, 70], Barrier::Block);
    points(&mut machine, &mut balancer, 500);
    assert!(machine.weights.is_empty(), "{:?}", machine.weights);
    let (mut machine, mut balancer) = start("hpc-auto", [30, 10, 50, 70], Barrier::Spin);
    points(&mut machine, &mut balancer, 500);
    assert_eq!(machine.weights.len(), 4);
}

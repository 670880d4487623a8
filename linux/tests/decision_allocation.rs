//! What every policy decides again and again allocates nothing in the steady state. (The test is
//! here because counting allocations needs `unsafe`, which the crate of the policies forbids.)

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod counting;

use counting::allocations;
use evenly_model::hpc::Levels;
use evenly_model::{CpuId, Environment, Nanos, Plan, Snapshot, Turns};
use evenly_policies::POLICIES;
use evenly_policy::Policy;
use evenly_testing::snapshots;
use std::sync::Arc;

/// 200 threads on 150 CPUs, placed by `at`; every tenth thread rests.
fn snapshot(at: impl Fn(usize) -> usize, masks: Vec<Vec<bool>>) -> Snapshot {
    let s = snapshots::snapshot(200, 150, at, |i, t| {
        t.progress = (i as i64 * 7_919 % 200) * 1_000_000;
        t.mask = i % masks.len();
        if i % 10 == 9 {
            (t.ran, t.waited, t.blocked) = (Nanos::ZERO, Nanos::ZERO, snapshots::PERIOD);
        }
    });
    Snapshot { masks, ..s }
}

#[test]
fn the_count_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0);
}

/// Allocations at 20 points of a snapshot after 20 others, with a look at the plan of each point.
fn allocations_of(mut policy: Box<dyn Policy>, s: &Snapshot, look: impl Fn(&Plan)) -> usize {
    let (mut plan, mut s) = (Plan::default(), s.clone());
    let mut point = || {
        // Time goes on, as it does live.
        s.point += 1;
        s.now += s.elapsed;
        plan.clear();
        policy.decide(&s, &mut plan);
        look(&plan);
    };
    (0..20).for_each(|_| point());
    allocations(|| (0..20).for_each(|_| point()))
}

#[test]
fn deciding_the_same_again_allocates_nothing() {
    let all = vec![vec![true; 150]];
    // The second half of the CPUs is not for everybody, so that counts never become even.
    let half = vec![vec![true; 150], (0..150).map(|c| c < 20).collect()];
    let snapshots = [
        ("uneven", snapshot(|i| i % 150, all.clone())),
        ("piled up", snapshot(|i| i % 10, all)),
        ("masked", snapshot(|i| if i % 2 == 1 { i % 20 } else { i % 150 }, half)),
    ];
    for info in evenly_policies::POLICIES.iter() {
        for (name, s) in &snapshots {
            let times = allocations_of((info.make)(), s, |_| {});
            assert_eq!(times, 0, "{}, {name}", info.name);
        }
    }
}

/// 15 parts of 10 CPUs, and cores of two.
fn levels() -> Levels {
    let of =
        |each: u32| (0..150 / each).map(move |i| (i * each..(i + 1) * each).map(CpuId).collect());
    vec![of(10).collect(), of(2).collect()]
}

/// Those that give weights know a machine's levels, and threads report their turns to them.
#[test]
fn deciding_by_levels_and_turns_allocates_nothing_between_rounds() {
    // Of 200 threads three or four are on each two CPUs next to each other, 13 or 14 in each part.
    let even = |i: usize| if i < 150 { i } else { (i - 150) * 3 };
    let quiet = snapshots::snapshot(200, 150, even, |_, _| {});
    let mut reporting = quiet.clone();
    for t in &mut reporting.threads {
        t.turns = Some(Turns { phases: 7, waits: 7, ..Turns::default() });
    }
    for info in POLICIES.iter().filter(|p| p.gives_weights()) {
        for (name, s) in [("quiet", &quiet), ("reporting", &reporting)] {
            let environment = Environment { levels: levels(), ..Environment::default() };
            let s = Snapshot { environment: Arc::new(environment), ..s.clone() };
            let times = allocations_of((info.make)(), &s, |plan| {
                assert!(plan.moves.is_empty(), "{}, {name}: {:?}", info.name, plan.moves);
            });
            assert_eq!(times, 0, "{}, {name}", info.name);
        }
    }
}

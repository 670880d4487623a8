//! What every policy decides again and again allocates nothing in the steady state. (The test is
//! here because counting allocations needs `unsafe`, which the crate of the policies forbids.)

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod counting;

use counting::allocations;
use evenly_model::{
    CpuId, CpuView, FULL_CAPACITY, Nanos, Plan, Snapshot, ThreadId, ThreadView, Tid,
};
use evenly_policy::POLICIES;

/// 200 threads on 150 CPUs, placed by `at`; every tenth thread rests.
fn snapshot(at: impl Fn(usize) -> usize, masks: Vec<Vec<bool>>) -> Snapshot {
    let period = Nanos::from_millis(20);
    let mut counts = vec![0u32; 150];
    (0..200).for_each(|i| counts[at(i)] += 1);
    let threads = (0..200)
        .map(|i| {
            let ran = if i % 10 == 9 { 0 } else { period.0 / u64::from(counts[at(i)]) };
            ThreadView {
                id: ThreadId { tid: Tid(i as i32), start: 0 },
                cpu: at(i),
                progress: (i as i64 * 7_919 % 200) * 1_000_000,
                ran: Nanos(ran),
                waited: if ran == 0 { Nanos::ZERO } else { period - Nanos(ran) },
                blocked: if ran == 0 { period } else { Nanos::ZERO },
                movable: true,
                mask: i % masks.len(),
            }
        })
        .collect();
    let cpus = counts.iter().enumerate().map(|(c, &k)| CpuView {
        id: CpuId(c as u32),
        capacity: FULL_CAPACITY,
        threads: k,
        speed: (k > 0).then(|| 1.0 / f64::from(k)),
        paper_speed: None,
    });
    Snapshot {
        point: 5,
        now: Nanos::from_millis(100),
        elapsed: period,
        cpus: cpus.collect(),
        threads,
        masks,
        ..Snapshot::default()
    }
}

#[test]
fn the_count_counts() {
    assert!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))) > 0);
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
    for info in POLICIES {
        for (name, s) in &snapshots {
            let (mut policy, mut plan) = ((info.make)(), Plan::default());
            let mut s = s.clone();
            let mut point = || {
                // Time goes on, as it does live.
                s.point += 1;
                s.now += s.elapsed;
                plan.clear();
                policy.decide(&s, &mut plan);
            };
            (0..20).for_each(|_| point());
            let times = allocations(|| (0..20).for_each(|_| point()));
            assert_eq!(times, 0, "{}, {name}", info.name);
        }
    }
}

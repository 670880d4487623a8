//! What a run costs grows with the number of threads, and not with its square.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::Nanos;
use evenly_policies::by_name;
use evenly_sim::{Barrier, RunError, Simple};
use evenly_theory::Shape;

/// CPU time of this thread, so that what else runs on the machine does not count.
fn spent() -> Nanos {
    let of_thread = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Nanos(of_thread.split(' ').next().unwrap().parse().unwrap())
}

/// So many threads on so many CPUs, about eleven points.
fn takes(threads: u32, cpus: u32, policy: &str) -> Nanos {
    let turns = u64::from(threads / cpus);
    let simple = Simple {
        shape: Shape::new(threads, cpus).unwrap(),
        phase: Nanos::from_millis(1_000),
        period: Nanos::from_millis(100 * turns),
        phases: 1,
        barrier: Barrier::Block,
        jitter: false,
        seed: 1,
    };
    let began = spent();
    let report = simple.run(by_name(policy).unwrap()).unwrap();
    assert!(report.balancing_points >= 8 && report.threads == threads as usize);
    spent() - began
}

/// Threads that end between two points leave together: each by itself would move all behind it. And whoever looks for an
/// empty CPU, or for the one with most, does not look at all of them.
#[test]
fn four_times_as_many_threads_take_far_less_than_sixteen_times_as_long() {
    // Fourteen threads for each CPU, and five for four.
    for (threads, cpus) in [(14, 1), (5, 4)] {
        for policy in ["juggle", "hybrid"] {
            let takes = |n| takes(n, n * cpus / threads, policy);
            let [few, many] = [6_000, 24_000].map(|n| (0..2).map(|_| takes(n)).min().unwrap());
            println!("{policy}, {threads} threads for {cpus} CPUs: {few} and {many}");
            assert!(many < few.scale(12.0), "{policy}: {few} and {many}");
        }
    }
}

/// The idealised algorithm has no masks; all others have as many threads as their masks allow.
#[test]
fn a_million_cpus_are_simulated() {
    let on_a_million = |threads| Simple {
        shape: Shape::new(threads, 1_000_000).unwrap(),
        phase: Nanos::from_millis(1_000),
        period: Nanos::from_millis(500),
        phases: 1,
        barrier: Barrier::Block,
        jitter: false,
        seed: 1,
    };
    let report = on_a_million(1_000_001).run_ideal().unwrap();
    assert!((report.relative_speedup - 1.6).abs() < 1e-5, "{}", report.relative_speedup);
    let refused = on_a_million(1_639).run(by_name("juggle").unwrap());
    assert!(matches!(refused, Err(RunError::TooMany { most: 1_638, .. })), "{refused:?}");
}

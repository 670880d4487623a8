//! Cost of one decision against the number of threads (the target: under 1 ms for 4,096 threads on
//! 3,000 CPUs). What it is for each thread is what `growth` shows.
#![allow(missing_docs, clippy::unwrap_used)]

mod cases;

use cases::{CASES, SIZES, snapshot};
use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use evenly_model::Plan;
use evenly_policies::by_name;

fn decide(c: &mut Criterion) {
    for (name, kind, by) in CASES {
        let mut group = c.benchmark_group(format!("{by}/{name}"));
        for (n, m) in SIZES {
            let mut s = snapshot(n, m, kind);
            let mut policy = (by_name(by).unwrap().make)();
            let mut plan = Plan::default();
            group.bench_function(BenchmarkId::from_parameter(format!("{n}-on-{m}")), |b| {
                b.iter(|| {
                    plan.clear();
                    // Of a moment that has passed `secretary` has nothing more to decide.
                    s.now += s.elapsed;
                    policy.decide(&s, &mut plan);
                    plan.moves.len()
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, decide);
criterion_main!(benches);

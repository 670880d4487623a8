//! Cost of one decision against the number of threads (the target: under 1 ms for 4,096 threads on
//! 3,000 CPUs).
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use evenly_model::stats::Random;
use evenly_model::{
    CpuId, CpuView, FULL_CAPACITY, Nanos, Plan, Snapshot, ThreadId, ThreadView, Tid,
};
use evenly_policy::by_name;

#[derive(Clone, Copy)]
enum Kind {
    /// As many threads as fit the CPUs unevenly: each slow CPU has threads that are behind.
    Uneven,
    /// Nothing to be done but to find that out.
    Level,
    /// All threads on an eighth of the CPUs.
    Piled,
    /// All threads on one CPU, as where a program starts.
    OnOne,
    /// As `Uneven`, but nobody leads by enough.
    NoLead,
}

fn snapshot(n: usize, m: usize, kind: Kind) -> Snapshot {
    let period = Nanos::from_millis(20);
    let mut random = Random::new(7);
    let threads: Vec<ThreadView> = (0..n)
        .map(|i| {
            let cpu = match kind {
                Kind::Piled => i % m.div_ceil(8),
                Kind::OnOne => 0,
                _ => i % m,
            };
            let k = match kind {
                Kind::Level => 1,
                _ => (n / m + usize::from(i % m < n % m)).max(1) as u64,
            };
            let progress = match kind {
                Kind::NoLead => 0,
                _ => random.below(100_000_000) as i64,
            };
            ThreadView {
                id: ThreadId { tid: Tid(i as i32), start: 0 },
                cpu,
                progress,
                ran: Nanos(period.0 / k),
                waited: period - Nanos(period.0 / k),
                blocked: Nanos::ZERO,
                movable: true,
                mask: 0,
            }
        })
        .collect();
    let mut cpus: Vec<CpuView> = (0..m)
        .map(|c| CpuView {
            id: CpuId(c as u32),
            capacity: FULL_CAPACITY,
            threads: 0,
            speed: None,
            paper_speed: None,
        })
        .collect();
    let mut sums = vec![(0u64, 0u64); m];
    for t in &threads {
        cpus[t.cpu].threads += 1;
        sums[t.cpu].0 += t.ran.0;
        sums[t.cpu].1 += t.demand().0;
    }
    for (cpu, (ran, wanted)) in cpus.iter_mut().zip(sums) {
        cpu.speed = (wanted > 0).then(|| ran as f64 / wanted as f64);
    }
    Snapshot {
        point: 5,
        now: Nanos::from_millis(100),
        elapsed: period,
        resolution: Nanos::ZERO,
        threads,
        cpus,
        masks: vec![vec![true; m]],
        taken: Vec::new(),
    }
}

/// Threads and CPUs, in a constant ratio, so that growth shows.
const SIZES: [(usize, usize); 8] = [
    (16, 12),
    (64, 47),
    (256, 188),
    (512, 375),
    (1_024, 750),
    (2_048, 1_500),
    (4_096, 3_000),
    (8_192, 6_000),
];

fn decide(c: &mut Criterion) {
    for (name, kind, by) in [
        ("uneven", Kind::Uneven, "juggle"),
        ("level", Kind::Level, "juggle"),
        ("piled", Kind::Piled, "juggle"),
        ("on-one", Kind::OnOne, "juggle"),
        ("no-lead", Kind::NoLead, "juggle"),
        // The decisions of all CPUs together, which balancers of their own would make apart.
        ("uneven", Kind::Uneven, "secretary"),
    ] {
        let mut group = c.benchmark_group(format!("{by}/{name}"));
        for (n, m) in SIZES {
            let s = snapshot(n, m, kind);
            let mut policy = (by_name(by).unwrap().make)();
            let mut plan = Plan::default();
            group.bench_function(BenchmarkId::from_parameter(format!("{n}-on-{m}")), |b| {
                b.iter(|| {
                    plan.clear();
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

//! What decisions are measured on: snapshots as balancing points see them, in growing sizes.

use evenly_model::stats::Random;
use evenly_model::{Nanos, Snapshot};
use evenly_testing::snapshots;

#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// As many threads as fit the CPUs unevenly: each slow CPU has threads that are behind.
    Uneven,
    /// Nothing to be done but to find that out.
    Balanced,
    /// All threads on an eighth of the CPUs.
    Piled,
    /// All threads on one CPU, as where a program starts.
    OnOne,
    /// As `Uneven`, but no thread leads by enough.
    NoLead,
}

/// n threads on m CPUs.
pub(crate) fn snapshot(n: usize, m: usize, kind: Kind) -> Snapshot {
    let mut random = Random::new(7);
    let progress: Vec<i64> = (0..n).map(|_| random.below(100_000_000) as i64).collect();
    let at = |i| match kind {
        Kind::Piled => i % m.div_ceil(8),
        Kind::OnOne => 0,
        _ => i % m,
    };
    snapshots::snapshot(n, m, at, |i, t| match kind {
        Kind::NoLead => {}
        Kind::Balanced => {
            (t.ran, t.waited, t.progress) = (snapshots::PERIOD, Nanos::ZERO, progress[i]);
        }
        Kind::Uneven | Kind::Piled | Kind::OnOne => t.progress = progress[i],
    })
}

/// Threads and CPUs, in a constant ratio, so that growth shows.
pub(crate) const SIZES: [(usize, usize); 8] = [
    (16, 12),
    (64, 47),
    (256, 188),
    (512, 375),
    (1_024, 750),
    (2_048, 1_500),
    (4_096, 3_000),
    (8_192, 6_000),
];

/// What is measured: a name, what the snapshot is like, and the policy.
pub(crate) const CASES: [(&str, Kind, &str); 7] = [
    ("uneven", Kind::Uneven, "juggle"),
    ("balanced", Kind::Balanced, "juggle"),
    ("piled", Kind::Piled, "juggle"),
    ("on-one", Kind::OnOne, "juggle"),
    ("no-lead", Kind::NoLead, "juggle"),
    ("uneven", Kind::Uneven, "hybrid"),
    // The decisions of all CPUs together, which balancers of their own would make apart.
    ("uneven", Kind::Uneven, "secretary"),
];

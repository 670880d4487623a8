//! Whether the cost of a decision grows in proportion to the number of threads: nanoseconds for each
//! thread, in growing sizes, as a table. Where they stay the same it does.
//!
//! `cargo bench -p evenly-policy --bench growth`. What else the machine does makes times longer and never
//! shorter, so that of many batches the fastest counts.
#![allow(missing_docs, clippy::unwrap_used)]

mod cases;

use cases::{CASES, SIZES, snapshot};
use evenly_model::Plan;
use evenly_policies::by_name;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Sizes from here on: below, what does not depend on the number of threads counts for much.
const LEAST: usize = 256;
const BATCHES: usize = 40;
/// A batch is about this long.
const BATCH: Duration = Duration::from_millis(4);

fn main() {
    // Run as a test it shows only that it runs.
    let batches = if std::env::args().any(|a| a == "--bench") { BATCHES } else { 1 };
    let sizes = || SIZES.into_iter().filter(|(n, _)| *n >= LEAST);
    print!("| ns for each thread |");
    sizes().for_each(|(n, m)| print!(" {n} on {m} |"));
    print!("\n|---|");
    sizes().for_each(|_| print!("---|"));
    println!();
    for (name, kind, by) in CASES {
        print!("| `{by}`, {name} |");
        for (n, m) in sizes() {
            let mut s = snapshot(n, m, kind);
            let mut policy = (by_name(by).unwrap().make)();
            let mut plan = Plan::default();
            let mut decide = || {
                plan.clear();
                // As in `decide`.
                s.now += s.elapsed;
                policy.decide(black_box(&s), &mut plan);
                black_box(plan.moves.len());
            };
            let mut batch = |times: u32| {
                let began = Instant::now();
                (0..times).for_each(|_| decide());
                began.elapsed() / times
            };
            // The first one makes room.
            batch(1);
            let one = batch(3).max(Duration::from_nanos(100));
            let times = (BATCH.as_nanos() / one.as_nanos()).clamp(1, 100_000) as u32;
            let least = (0..batches).map(|_| batch(times)).min().unwrap();
            print!(" {:.1} |", least.as_nanos() as f64 / n as f64);
        }
        println!();
    }
}

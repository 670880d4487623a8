//! The automatic period against the best fixed one, as a table (docs/simulate.md):
//! `cargo run --release -p evenly-sim --example period`
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use evenly_model::Nanos;
use rayon::prelude::*;

fn main() {
    let policy = std::env::args().nth(1).unwrap_or_else(|| String::from("juggle"));
    println!(
        "| figure | n, m | phase | barrier | slice | point | auto | best fixed | auto over best | over Eq. 14 |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    let cases = common::cases(Nanos::from_millis(30_000), Nanos::from_millis(10_000));
    let rows: Vec<String> = cases
        .par_iter()
        .map(|c| {
            let f = c.find(&policy, 3);
            format!(
                "| {} | {}, {} | {} | {:?} | {} | {} | {:.1} ms | {} | {:+.2} % | {:+.2} % |",
                c.figure,
                c.threads,
                c.cpus,
                c.phase,
                c.barrier,
                c.slice,
                c.point,
                f.auto.as_millis_f64(),
                f.best,
                100.0 * f.over_best,
                100.0 * f.over_limit
            )
        })
        .collect();
    println!("{}", rows.join("\n"));
}

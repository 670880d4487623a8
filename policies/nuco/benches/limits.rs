//! How long `nuco+` should search between two windows: the applications of the NucoLB paper on its machines,
//! with several limits, against every other mapper, run by run. Simulated, so that it is the same wherever
//! it is called.
//!
//! `cargo bench -p evenly-nuco --bench limits`; another first seed than 1: `-- 11`
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::Nanos;
use evenly_nuco::iterations::{Parameters, Program, Remapper, run};
use evenly_nuco::map::apps::{App, K_NEIGHBOR, LB_TEST, LEAN_MD, STENCIL_4D};
use evenly_nuco::map::machines::{NUMA4X20, NUMA32, NUMA48, PaperMachine};
use evenly_nuco::map::{MAPPERS, MapperInfo, Options, mapper};
use rayon::prelude::*;

/// Those of the figures are 21 to 40.
const SEEDS: u64 = 10;
const LIMITS_MS: [u64; 3] = [5, 10, 20];
const AUTO: &str = "nuco-auto";

/// Iterations and balancing, in seconds.
fn total_s(app: &App, machine: &PaperMachine, m: &MapperInfo, limit: Nanos, seed: u64) -> f64 {
    let cluster = (machine.make)().unwrap();
    let graph = app.graph(seed).unwrap();
    let start = app.start(&graph, &cluster);
    let program = Program::of(app, &graph, &start);
    let options = Options { seed, time_limit: limit, ..Options::default() };
    let balancer = Remapper::of(m, &options);
    run(&program, &cluster, &Parameters::default(), Some(balancer), seed).unwrap().makespan_s
}

fn main() {
    // Cargo says --bench besides.
    let first: u64 = std::env::args().find_map(|a| a.parse().ok()).unwrap_or(1);
    let seeds = first..first + SEEDS;
    println!(
        "application  machine   limit   longer with {AUTO}, %: mean, least   \
         with the best of the others in each run, %: mean, least (which)   runs that are slower"
    );
    let both = [NUMA32, NUMA48];
    let all = [NUMA32, NUMA48, NUMA4X20];
    let cases: [(App, &[PaperMachine]); 4] =
        [(LB_TEST, &both), (K_NEIGHBOR, &both), (STENCIL_4D, &both), (LEAN_MD, &all)];
    let searcher = mapper("nuco+").unwrap();
    for (app, machines) in cases {
        for machine in machines {
            let theirs: Vec<Vec<(&str, f64)>> = seeds
                .clone()
                .into_par_iter()
                .map(|seed| {
                    let others = MAPPERS.iter().filter(|m| !m.effort.searches());
                    let total = |m: &MapperInfo| total_s(&app, machine, m, Nanos::ZERO, seed);
                    others.map(|m| (m.name, total(m))).collect()
                })
                .collect();
            for ms in LIMITS_MS {
                let limit = Nanos::from_millis(ms);
                let total = |seed| total_s(&app, machine, searcher, limit, seed);
                let ours: Vec<f64> = seeds.clone().into_par_iter().map(total).collect();
                let longer = |theirs_s: f64, ours_s: f64| 100.0 * (theirs_s / ours_s - 1.0);
                let runs = || theirs.iter().zip(&ours);
                let auto: Vec<f64> = runs()
                    .map(|(t, &o)| longer(t.iter().find(|t| t.0 == AUTO).unwrap().1, o))
                    .collect();
                let best: Vec<(f64, &str)> = runs()
                    .map(|(t, &o)| {
                        let (name, s) = t.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
                        (longer(*s, o), *name)
                    })
                    .collect();
                let mean = |of: &mut dyn Iterator<Item = f64>| of.sum::<f64>() / SEEDS as f64;
                let least = best.iter().min_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
                println!(
                    "{:12} {:9} {ms:2} ms   {:6.2} {:6.2}   {:6.2} {:6.2} ({})   {}",
                    app.name,
                    machine.name,
                    mean(&mut auto.iter().copied()),
                    auto.iter().copied().fold(f64::INFINITY, f64::min),
                    mean(&mut best.iter().map(|b| b.0)),
                    least.0,
                    least.1,
                    best.iter().filter(|b| b.0 < 0.0).count()
                );
            }
        }
    }
}

//! Time of the mappers for 10,000 tasks on 1,000 cores with 100,000 edges (the target: `nuco` under
//! 0.5 s), and how long `nuco+` goes on without a look at the clock.
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::stats::Random;
use evenly_model::{Edge, Nanos, Task, TaskGraph};
use evenly_nuco::map::{MAPPERS, Options, Request, objectives};
use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

const TASKS: u64 = 10_000;
const NODES: u32 = 125;
const CORES_PER_NODE: u32 = 8;
const EDGES: usize = 100_000;

fn map(c: &mut Criterion) {
    let mut random = Random::new(7);
    let mut task = |id| {
        let load_s = 0.05 + 0.15 * random.unit();
        Task { id, load_s, size_bytes: 1e6, core: None, movable: true }
    };
    let tasks: Vec<Task> = (0..TASKS).map(&mut task).collect();
    // Nine of ten partners are near in number, as in meshes.
    let mut edge = || {
        let from = random.below(TASKS as usize) as u64;
        let near = (from + 1 + random.below(30) as u64) % TASKS;
        let far = random.below(TASKS as usize) as u64;
        let to = if random.below(10) > 0 { near } else { far };
        Edge { from, to, messages: 1.0 + random.below(100) as f64, bytes: 1e4 }
    };
    let edges: Vec<Edge> = (0..EDGES).map(|_| edge()).collect();
    let graph = TaskGraph::new(tasks, &edges).unwrap();
    let cluster = Cluster::even(NODES, CORES_PER_NODE, 2.0).unwrap();
    let present: Vec<CoreIndex> =
        (0..graph.len()).map(|_| random.below(cluster.cores().len())).collect();
    let options = Options { time_limit: Nanos::from_millis(1_000), ..Options::default() };

    let mut group = c.benchmark_group("map/10000-on-1000");
    group.sample_size(10);
    for mapper in MAPPERS {
        group.bench_function(mapper.name, |b| {
            b.iter(|| {
                let start = Instant::now();
                let clock = || Nanos(start.elapsed().as_nanos() as u64);
                let request = Request::timeless(&graph, &cluster, &present, &options);
                (mapper.map)(&Request { clock: &clock, ..request })
            });
        });
    }
    group.finish();
}

/// The longest that `nuco+` computes between two looks at the clock, for 50,000 tasks on 64 cores: so much later
/// than its time limit it may end. The unit is what it takes to judge one mapping, which is the least between
/// two looks.
fn looks(_: &mut Criterion) {
    const N: u64 = 50_000;
    let mut random = Random::new(3);
    let task =
        |id| Task { id, load_s: 1.0 + (id % 7) as f64, size_bytes: 0.0, core: None, movable: true };
    let edge = |from, to| Edge { from, to, messages: 1.0, bytes: 100.0 };
    let edges: Vec<Edge> = (0..N)
        .flat_map(|from| [(from + 1) % N, random.below(N as usize) as u64].map(|to| edge(from, to)))
        .collect();
    let graph = TaskGraph::new((0..N).map(task).collect(), &edges).unwrap();
    let cluster = Cluster::even(8, 8, 2.0).unwrap();
    let options = Options { time_limit: Nanos::from_millis(400), ..Options::default() };
    let mapper = MAPPERS.iter().find(|mapper| mapper.name == "nuco+").unwrap();
    let scattered = (0..N as usize).map(|t| (t % 64) as CoreIndex).collect();
    for (name, present) in [("one-core", vec![0; N as usize]), ("scattered", scattered)] {
        let start = Instant::now();
        let now = || Nanos(start.elapsed().as_nanos() as u64);
        let judge = || {
            let began = now();
            black_box(objectives(&graph, &cluster, &present, &present));
            now() - began
        };
        let judging = (0..5).map(|_| judge()).min().unwrap();
        let mut longest: Vec<Nanos> = (0..9)
            .map(|_| {
                let (last, longest) = (Cell::new(now()), Cell::new(Nanos::ZERO));
                let began = now();
                let clock = || {
                    let now = now();
                    longest.set(longest.get().max(now - last.replace(now)));
                    now - began
                };
                let request = Request::timeless(&graph, &cluster, &present, &options);
                black_box((mapper.map)(&Request { clock: &clock, ..request }));
                longest.get().max(now() - last.get())
            })
            .collect();
        longest.sort_unstable();
        println!(
            "map/looks/{name}: longest without a look {} [{}, {}], limit {}, judging takes {judging}",
            longest[4], longest[0], longest[8], options.time_limit
        );
    }
}

criterion_group!(benches, map, looks);
criterion_main!(benches);

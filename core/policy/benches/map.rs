//! Time of the mappers for 10,000 tasks on 1,000 cores with 100,000 edges (the target: `nuco` under
//! 0.5 s).
#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, criterion_group, criterion_main};
use evenly_model::stats::Random;
use evenly_model::{Cluster, CoreIndex, Edge, Nanos, Task, TaskGraph};
use evenly_policy::map::{MAPPERS, Options, Request};
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

criterion_group!(benches, map);
criterion_main!(benches);

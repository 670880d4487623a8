//! What one reading of a thread's times costs: `schedstat` through a descriptor that is kept open,
//! and taskstats one thread at a time and in batches. Read more than one thread, because the cost
//! of a batch is shared. `cargo bench -p evenly-linux --bench reading`

use criterion::{BenchmarkId, Criterion, Throughput};
use evenly_linux::limits::Limits;
use evenly_linux::proc::parse_schedstat;
use evenly_linux::taskstats::TaskStats;
use evenly_model::{Pid, Tid};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;

/// Threads that sleep until they are dropped.
struct Sleepers {
    tids: Vec<Tid>,
    _alive: Vec<mpsc::Sender<()>>,
}

impl Sleepers {
    fn new(count: usize) -> Self {
        let (sender, tids) = mpsc::channel();
        let alive = (0..count)
            .map(|_| {
                let (alive, end) = mpsc::channel::<()>();
                let sender = sender.clone();
                std::thread::spawn(move || {
                    let _ = sender.send(rustix::thread::gettid().as_raw_nonzero().get());
                    let _ = end.recv();
                });
                alive
            })
            .collect();
        Self { tids: tids.iter().take(count).map(Tid).collect(), _alive: alive }
    }
}

fn reading(c: &mut Criterion) {
    let mut group = c.benchmark_group("reading");
    for count in [1, 16, 256] {
        let sleepers = Sleepers::new(count);
        group.throughput(Throughput::Elements(count as u64));
        let files: Vec<File> = sleepers
            .tids
            .iter()
            .filter_map(|t| File::open(format!("/proc/self/task/{t}/schedstat")).ok())
            .collect();
        assert_eq!(files.len(), count);
        group.bench_function(BenchmarkId::new("schedstat", count), |b| {
            b.iter(|| {
                for file in &files {
                    let mut text = [0; 64];
                    let n = file.read_at(&mut text, 0).unwrap_or(0);
                    black_box(parse_schedstat(&text[..n]));
                }
            });
        });
        let mut stats = match TaskStats::open() {
            Ok(stats) => stats,
            Err(e) => {
                println!("taskstats is not measured: {e}");
                continue;
            }
        };
        group.bench_function(BenchmarkId::new("taskstats one by one", count), |b| {
            b.iter(|| {
                for tid in &sleepers.tids {
                    black_box(stats.read(*tid).ok());
                }
            });
        });
        group.bench_function(BenchmarkId::new("taskstats in batches", count), |b| {
            b.iter(|| stats.read_many(&sleepers.tids, |_, t| _ = black_box(t)).ok());
        });
    }
    group.finish();
}

fn watching(c: &mut Criterion) {
    let mut watch = Limits::default().watch(Pid(std::process::id().cast_signed()));
    c.bench_function("watching the limits of one process", |b| b.iter(|| watch.changed()));
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    reading(&mut criterion);
    watching(&mut criterion);
    criterion.final_summary();
}

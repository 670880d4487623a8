//! Measures what the memory of each NUMA node costs the CPUs of each: latency by dependent loads,
//! bandwidth by reading one word after the other.
//!
//! For each node with memory a buffer well past the last cache is bound to it, in huge pages where the
//! kernel gives them, and it is looked up where the pages are. Then, for each node with CPUs: first all
//! its cores read the whole buffer, the second half last (bandwidth, by the clock on the wall), which
//! leaves that half in the caches; then one thread, bound to the node's CPUs, walks lines of the first
//! half in random order (latency, in CPU time of the thread, so that others on the CPU do not count).
//!
//! Then, for each level of caches that cores share, two cores that share it and nothing nearer hand a line
//! to each other, by the clock on the wall, in samples that are short against a turn on a CPU: a program that
//! takes one of the two CPUs away spoils the sample that he is in, and not the median.
//!
//! Invariant: nothing is measured on memory of which it is known that it is elsewhere. What of this
//! could be computed is computed in [`chase`] and [`measured`](crate::measured).

use crate::chase;
use crate::declared::{free_memory, parse_huge};
use crate::machine::{MachineTopology, Origin, Place};
use crate::measured::{Binding, CachePair, Meanwhile, Measurement, Pair, Spread};
use crate::pages::Pages;
use crate::text::bytes;
use crate::tree::Kind;
use evenly_linux::affinity;
use evenly_linux::limits::Limits;
use evenly_linux::usage::Usage;
use evenly_model::{CpuId, CpuSet, Pid, Tid};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::hint::{black_box, spin_loop};
use std::io;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the bandwidth is measured.
const BANDWIDTH_REPETITIONS: usize = 5;
/// CPU time of one repetition of the latency, in nanoseconds.
const REPETITION_NS: f64 = 4e7;
/// Steps that show how long a step takes.
const FIRST_STEPS: u64 = 10_000;
/// Round trips of a line in one sample: some 50 us.
const ROUND_TRIPS: u32 = 500;
/// Samples of a level of caches.
const CACHE_SAMPLES: usize = 101;
/// Samples without which there is no median.
const LEAST_CACHE_SAMPLES: usize = 11;
/// How long a level of caches may take: others may have its CPUs.
const CACHE_PATIENCE: Duration = Duration::from_secs(2);
/// Pages of which it is looked up where they are.
const SAMPLES: usize = 256;

/// How it is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasureOptions {
    /// How often each latency is measured; at least once.
    pub repetitions: usize,
    /// Size of the buffers; None: by last cache and free memory.
    pub buffer_bytes: Option<u64>,
    /// Of the order in which memory is walked.
    pub seed: u64,
}

impl Default for MeasureOptions {
    fn default() -> Self {
        Self { repetitions: 11, buffer_bytes: None, seed: 1 }
    }
}

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// It is another machine than the one that evenly runs on.
    #[error("{machine} cannot be measured; only the machine that evenly runs on can")]
    NotHere {
        /// The machine that was asked for.
        machine: String,
    },
    /// Too little memory is free.
    #[error(
        "NUMA node {node} has {} of free memory that may be used, and {} are needed: buffers past the \
         last cache in a quarter of it", bytes(*free), bytes(*needed)
    )]
    Memory {
        /// The NUMA node that this is about.
        node: u32,
        /// Bytes that are free.
        free: u64,
        /// Bytes that would have to be.
        needed: u64,
    },
    /// Memory cannot be bound.
    #[error(
        "memory cannot be bound to NUMA node {node}: {source}; needed: the system call mbind (in a \
         container: --cap-add SYS_NICE), and the node in the cpuset"
    )]
    Bind {
        /// The NUMA node that this is about.
        node: u32,
        /// What the system says.
        source: io::Error,
    },
    /// Memory is not where it should be.
    #[error("memory that was bound to NUMA node {node} is on node {found}")]
    Elsewhere {
        /// The NUMA node that memory was to be on.
        node: u32,
        /// The NUMA node that it is on.
        found: u32,
    },
    /// There is not enough memory.
    #[error("{} of memory are not available: {source}", bytes(*needed))]
    Map {
        /// Bytes that were wanted.
        needed: u64,
        /// What the system says.
        source: io::Error,
    },
    /// A thread cannot be bound.
    #[error("no thread can be bound to CPUs {cpus}: {source}")]
    Thread {
        /// The CPUs that cannot be used.
        cpus: CpuSet,
        /// What the system says.
        source: io::Error,
    },
    /// The system does not say how much memory is free.
    #[error(
        "the free memory of NUMA node {node} is unknown; it is in its meminfo in \
             /sys/devices/system/node"
    )]
    Free {
        /// The NUMA node that this is about.
        node: u32,
    },
    /// A clock that stands still.
    #[error("NUMA node {node}: the clock did not advance while its memory was read")]
    Clock {
        /// The NUMA node that this is about.
        node: u32,
    },
}

/// A node that reads.
struct Reader {
    node: u32,
    /// All its CPUs that may be used.
    cpus: CpuSet,
    /// One CPU of each of its cores.
    cores: Vec<CpuId>,
}

/// Measures every pair of a node with CPUs and a node with memory. Memory that has no CPUs of its own
/// and cannot be measured is left out and noted; `said` gets what is measured next.
///
/// # Errors
/// Where the memory of a node that has CPUs cannot be measured: there would be no factors.
pub fn measure(
    machine: &MachineTopology,
    options: &MeasureOptions,
    said: &mut dyn FnMut(&str),
) -> Result<Measurement, MeasureError> {
    if *machine.origin() != Origin::Here {
        return Err(MeasureError::NotHere { machine: machine.title() });
    }
    let start = Instant::now();
    let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let places = machine.places();
    let readers: Vec<Reader> = machine
        .homes()
        .iter()
        .map(|home| {
            let own = || places.iter().filter(|p| p.home == home.index);
            Reader {
                node: home.shown(),
                cpus: own().fold(CpuSet::new(), |all, p| all.or(&p.cpus)),
                cores: own().filter_map(|p| p.cpus.first()).collect(),
            }
        })
        .collect();
    let nodes = machine.root().of(Kind::Node);
    let memories: Vec<u32> =
        nodes.iter().filter(|n| n.bytes.is_some_and(|b| b > 0)).map(|n| n.shown()).collect();
    let caches = machine.root().all().filter(|o| o.kind.is_cache());
    let last_cache = caches.filter_map(|o| o.bytes).max().unwrap_or(0);
    let (mut pairs, mut notes) = (Vec::new(), Vec::new());
    let cpus = readers.iter().fold(CpuSet::new(), |all, r| all.or(&r.cpus));
    let before = Usage::now(&cpus).ok();
    for &memory in &memories {
        said(&format!("reading the memory of NUMA node {memory}"));
        let only = memories.len() == 1;
        match of_memory(memory, only, last_cache, &readers, options) {
            Ok(found) => pairs.extend(found),
            Err(e) if readers.iter().any(|r| r.node == memory) => return Err(e),
            Err(e) => notes.push(format!("the memory of node {memory} was not measured: {e}")),
        }
    }
    let home = |index: u32| machine.homes().iter().find(|h| h.index == index).map(|h| h.shown());
    let mut caches = Vec::new();
    for (level, a, b) in sharing(&places) {
        let (Some(x), Some(y), Some(node)) = (a.cpus.first(), b.cpus.first(), home(a.home)) else {
            continue;
        };
        let level = level.name().to_owned();
        said(&format!("handing a line of the {level} from CPU {x} to CPU {y}"));
        let why = match hand_over([x, y]) {
            Ok(all) if all.len() >= LEAST_CACHE_SAMPLES => match Spread::of(all) {
                Some(latency_ns) => {
                    caches.push(CachePair { level, cpus: [x.0, y.0], node, latency_ns });
                    continue;
                }
                None => String::from("the clock did not advance"),
            },
            Ok(_) => format!("they did not run beside each other for {CACHE_PATIENCE:?}"),
            Err(e) => format!("no thread can be bound to them: {e}"),
        };
        notes.push(format!("CPUs {x} and {y}, which share an {level}, were not measured: {why}"));
    }
    let seconds = start.elapsed().as_secs_f64();
    let load = before.zip(Usage::now(&cpus).ok()).map(|(before, after)| {
        let load = after.since(&before, cpus.len());
        Meanwhile { others: load.others, stolen: load.stolen }
    });
    Ok(Measurement { unix_s, seconds, pairs, caches, notes, load })
}

/// For each level of caches that cores share, the first two for which it is the innermost that they share.
fn sharing(places: &[Place]) -> Vec<(Kind, &Place, &Place)> {
    let innermost = |a: &Place, b: &Place| {
        let shares =
            |level: &Kind| a.caches.get(level).is_some_and(|c| b.caches.get(level) == Some(c));
        Kind::CACHES.into_iter().find(shares).filter(|_| a.home == b.home)
    };
    let pairs = || {
        let rest = |(i, a)| places[i + 1..].iter().map(move |b| (a, b));
        places.iter().enumerate().flat_map(rest)
    };
    let first = |level: Kind| {
        let (a, b) = pairs().find(|(a, b)| innermost(a, b) == Some(level))?;
        Some((level, a, b))
    };
    Kind::CACHES.into_iter().filter_map(first).collect()
}

/// A word with no other beside it. Two lines: prefetchers bring the neighbour along.
#[repr(align(128))]
struct Line(AtomicU64);

/// Nanoseconds that a line takes from one CPU to another, each time; fewer times than are wanted where
/// the CPUs are busy. The first sample, in which the line and the code come to their CPUs, is none.
fn hand_over([asks, answers]: [CpuId; 2]) -> io::Result<Vec<f64>> {
    const END: u64 = u64::MAX;
    const NOT_YET: u64 = END - 1;
    let line = Line(AtomicU64::new(NOT_YET));
    // Relaxed throughout: the word itself is all that is handed over, and of one word all threads see
    // the same order of writes.
    let answer = || {
        let bound = affinity::set(Tid(0), &CpuSet::single(answers));
        line.0.store(if bound.is_ok() { 0 } else { END }, Ordering::Relaxed);
        let mut awaited = 1;
        loop {
            match line.0.load(Ordering::Relaxed) {
                END => return bound,
                n if n == awaited => {
                    line.0.store(n + 1, Ordering::Relaxed);
                    awaited = n + 2;
                }
                _ => spin_loop(),
            }
        }
    };
    let ask = || {
        let bound = affinity::set(Tid(0), &CpuSet::single(asks));
        while line.0.load(Ordering::Relaxed) == NOT_YET {
            spin_loop();
        }
        let both = bound.is_ok() && line.0.load(Ordering::Relaxed) != END;
        let (begun, mut n, mut samples) = (Instant::now(), 0, Vec::new());
        while both && samples.len() <= CACHE_SAMPLES && begun.elapsed() < CACHE_PATIENCE {
            let start = Instant::now();
            for _ in 0..ROUND_TRIPS {
                line.0.store(n + 1, Ordering::Relaxed);
                n += 2;
                while line.0.load(Ordering::Relaxed) != n {
                    spin_loop();
                }
            }
            samples.push(start.elapsed().as_secs_f64() * 1e9 / f64::from(2 * ROUND_TRIPS));
        }
        line.0.store(END, Ordering::Relaxed);
        bound.map(|()| samples.into_iter().skip(1).collect())
    };
    thread::scope(|s| {
        let answering = s.spawn(answer);
        let asked = s.spawn(ask).join().unwrap_or_else(|p| std::panic::resume_unwind(p));
        answering.join().unwrap_or_else(|p| std::panic::resume_unwind(p))?;
        asked
    })
}

fn of_memory(
    memory: u32,
    only: bool,
    last_cache: u64,
    readers: &[Reader],
    options: &MeasureOptions,
) -> Result<Vec<Pair>, MeasureError> {
    let size = match options.buffer_bytes {
        Some(size) => size,
        None => {
            let free = free_memory(Path::new("/"), memory);
            let free = free.ok_or(MeasureError::Free { node: memory })?;
            let left =
                Limits::new(Path::new("/")).memory_left(Pid(std::process::id().cast_signed()));
            let free = left.map_or(free, |left| free.min(left));
            chase::buffer(last_cache, free).map_err(|needed| MeasureError::Memory {
                node: memory,
                free,
                needed,
            })?
        }
    };
    let map = |source| MeasureError::Map { needed: size, source };
    let mut pages = Pages::new(size).map_err(map)?;
    let bound = match pages.bind(memory) {
        Ok(()) => true,
        Err(_) if only => false,
        Err(source) => return Err(MeasureError::Bind { node: memory, source }),
    };
    chase::lay(pages.words_mut(), options.seed);
    let binding = match (bound, pages.nodes(SAMPLES)) {
        (false, _) => Binding::OnlyNode,
        (true, Ok(found)) if !found.is_empty() => {
            if let Some(&found) = found.iter().find(|&&n| n != memory) {
                return Err(MeasureError::Elsewhere { node: memory, found });
            }
            Binding::Checked
        }
        (true, _) => Binding::Bound,
    };
    let huge = fs::read("/proc/self/smaps").ok().and_then(|t| parse_huge(&t, pages.address()));
    let huge_share = huge.map(|h| (h as f64 / pages.bytes() as f64).min(1.0));
    let mut at = 0;
    let mut pairs = Vec::new();
    for reader in readers {
        let bind = |source| MeasureError::Thread { cpus: reader.cpus.clone(), source };
        let bandwidth = bandwidth(pages.words(), &reader.cores).map_err(bind)?;
        let (latency, end) =
            latency(pages.words(), &reader.cpus, at, options.repetitions.max(1)).map_err(bind)?;
        at = end;
        pairs.push(Pair {
            reader: reader.node,
            memory,
            latency_ns: Spread::of(latency).ok_or(MeasureError::Clock { node: memory })?,
            read_bytes_per_s: Spread::of(bandwidth),
            readers: reader.cores.len() as u32,
            buffer_bytes: pages.bytes() as u64,
            huge_share,
            binding,
        });
    }
    Ok(pairs)
}

/// CPU time of this thread, in nanoseconds.
fn cpu_ns() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 * 1e9 + t.tv_nsec as f64
}

/// Nanoseconds of a step, each time, by a thread that is bound to these CPUs, and the word that the
/// walk has come to.
fn latency(
    words: &[u64],
    cpus: &CpuSet,
    start: u64,
    repetitions: usize,
) -> io::Result<(Vec<f64>, u64)> {
    let blocks = chase::blocks(words.len());
    let walk = || -> io::Result<(Vec<f64>, u64)> {
        affinity::set(Tid(0), cpus)?;
        let mut at = start;
        let mut timed = |steps: u64| {
            let before = cpu_ns();
            at = black_box(chase::walk(words, black_box(at), steps));
            (cpu_ns() - before) / steps as f64
        };
        let first = timed(chase::steps(blocks, repetitions, FIRST_STEPS as f64, 1.0));
        let steps = chase::steps(blocks, repetitions, REPETITION_NS, first);
        let found = (0..repetitions).map(|_| timed(steps)).collect();
        Ok((found, at))
    };
    thread::scope(|s| s.spawn(walk).join()).unwrap_or_else(|p| std::panic::resume_unwind(p))
}

/// Bytes a second, each time, at which threads on these CPUs together read all words: first the first
/// half of them, then the second.
fn bandwidth(words: &[u64], cpus: &[CpuId]) -> io::Result<Vec<f64>> {
    let (first, second) = words.split_at(words.len() / 2);
    let part = |half: usize| half.div_ceil(cpus.len().max(1)).max(1);
    let chunks = first.chunks(part(first.len())).zip(second.chunks(part(second.len())));
    let together = Barrier::new(chunks.len());
    let read = |cpu: CpuId, a: &[u64], b: &[u64]| {
        let bound = affinity::set(Tid(0), &CpuSet::single(cpu));
        let times: Vec<(Instant, Instant)> = (0..BANDWIDTH_REPETITIONS)
            .map(|_| {
                together.wait();
                let start = Instant::now();
                black_box(chase::sum(black_box(a)));
                black_box(chase::sum(black_box(b)));
                (start, Instant::now())
            })
            .collect();
        // A thread that cannot be bound takes part all the same: the others wait for it.
        bound.map(|()| times)
    };
    let read = &read;
    let all: io::Result<Vec<Vec<(Instant, Instant)>>> = thread::scope(|s| {
        let threads: Vec<_> = cpus
            .iter()
            .zip(chunks)
            .map(|(&cpu, (a, b))| s.spawn(move || read(cpu, a, b)))
            .collect();
        let ended = threads.into_iter().map(|t| t.join());
        ended.map(|r| r.unwrap_or_else(|p| std::panic::resume_unwind(p))).collect()
    });
    let all = all?;
    let of = |i: usize| {
        let start = all.iter().map(|t| t[i].0).min()?;
        let end = all.iter().map(|t| t[i].1).max()?;
        Some(size_of_val(words) as f64 / end.duration_since(start).as_secs_f64())
    };
    Ok((0..BANDWIDTH_REPETITIONS).filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{synthetic, this_machine_kept_in};

    #[test]
    fn this_machine_is_measured() {
        let machine = this_machine_kept_in(None).unwrap();
        let options = MeasureOptions { repetitions: 3, buffer_bytes: Some(8 << 20), seed: 3 };
        let mut said = Vec::new();
        let m = match measure(&machine, &options, &mut |t| said.push(t.to_owned())) {
            Err(MeasureError::Bind { source, .. }) => {
                return evenly_testing::skip("mbind", format!("mbind: {source}"));
            }
            m => m.unwrap(),
        };
        assert!(!said.is_empty());
        let homes: Vec<u32> = machine.homes().iter().map(|h| h.shown()).collect();
        assert!(m.factors(&homes).is_some(), "{m:?}");
        for p in &m.pairs {
            assert_eq!((p.latency_ns.values.len(), p.buffer_bytes), (3, 8 << 20));
            // A load takes a part of a nanosecond at least, and memory is slow, but not that slow.
            assert!(p.latency_ns.low > 0.1 && p.latency_ns.median < 1e6, "{p:?}");
            assert!(p.read_bytes_per_s.as_ref().is_some_and(|b| b.low > 1e6), "{p:?}");
            assert!(p.huge_share.is_none_or(|s| (0.0..=1.0).contains(&s)));
        }
        assert!(m.is_sound());
        // Every level that is shared was measured, or it is said why not.
        let shared = sharing(&machine.places()).len();
        assert_eq!(m.caches.len() + m.notes.len(), shared, "{m:?}");
        for c in &m.caches {
            assert!(c.latency_ns.values.len() >= LEAST_CACHE_SAMPLES && c.cpus[0] != c.cpus[1]);
            assert!(c.latency_ns.low > 0.1 && m.cache_factor(&c.level).unwrap() <= 1.0, "{c:?}");
        }
        let level = machine.cluster(None).unwrap().caches().iter().map(|l| l.factor).next();
        let with = machine.with_measurement(m.clone());
        if let (Some(level), false) = (level, m.caches.is_empty()) {
            assert_ne!(with.cluster(None).unwrap().caches()[0].factor, level);
        }
    }

    #[test]
    fn of_each_level_two_cores_that_share_nothing_nearer() {
        let machine = synthetic("numa:2 l3:2 l2:2 l1:1 core:2 pu:2").unwrap();
        let places = machine.places();
        let found: Vec<(Kind, String, String)> = sharing(&places)
            .iter()
            .map(|(level, a, b)| (*level, a.cpus.to_string(), b.cpus.to_string()))
            .collect();
        let cpus = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        let of = |level, (a, b)| (level, a, b);
        assert_eq!(
            found,
            [of(Kind::L1, cpus("0-1", "2-3")), of(Kind::L3, cpus("0-1", "4-5"))],
            "two cores share an L1 and with it the L2"
        );
        assert!(sharing(&synthetic("core:4 pu:2").unwrap().places()).is_empty());
    }

    /// No machine has this CPU.
    #[test]
    fn cpus_that_are_not_there_hand_nothing_over() {
        let cpu = affinity::get(Tid(0)).unwrap().first().unwrap();
        assert!(hand_over([cpu, CpuId(8191)]).is_err() && hand_over([CpuId(8191), cpu]).is_err());
    }

    /// A program on each CPU that never sleeps has a part of them, however fast they are.
    #[test]
    fn others_are_noticed() {
        struct Spinner(std::process::Child);
        impl Drop for Spinner {
            fn drop(&mut self) {
                let _ = self.0.kill();
                let _ = self.0.wait();
            }
        }
        let machine = this_machine_kept_in(None).unwrap();
        let spin = || {
            let mut c = std::process::Command::new("sh");
            Spinner(c.args(["-c", "while :; do :; done"]).spawn().unwrap())
        };
        let all: Vec<Spinner> = (0..machine.allowed().len()).map(|_| spin()).collect();
        let options = MeasureOptions { repetitions: 3, buffer_bytes: Some(8 << 20), seed: 3 };
        let m = match measure(&machine, &options, &mut |_| {}) {
            Err(MeasureError::Bind { source, .. }) => {
                return evenly_testing::skip("mbind", format!("mbind: {source}"));
            }
            m => m.unwrap(),
        };
        drop(all);
        assert!(m.load.is_some_and(|l| l.others > 0.1), "{:?}", m.load);
    }

    /// No machine has this node.
    const NO_NODE: u32 = 1023;

    #[test]
    fn memory_that_cannot_be_bound_is_measured_only_where_there_is_no_other() {
        let cpus = affinity::get(Tid(0)).unwrap();
        let reader = Reader { node: 0, cores: cpus.first().into_iter().collect(), cpus };
        let options = MeasureOptions { repetitions: 1, buffer_bytes: Some(4 << 20), seed: 1 };
        let e = of_memory(NO_NODE, false, 0, &[], &options).unwrap_err();
        assert!(e.to_string().contains("mbind") && matches!(e, MeasureError::Bind { .. }), "{e}");
        let pairs = of_memory(NO_NODE, true, 0, &[reader], &options).unwrap();
        assert_eq!((pairs.len(), pairs[0].binding), (1, Binding::OnlyNode));
    }

    #[test]
    fn others_cannot_be_measured() {
        let machine = synthetic("core:2").unwrap();
        let e = measure(&machine, &MeasureOptions::default(), &mut |_| {}).unwrap_err();
        assert!(e.to_string().contains("\"core:2\" cannot be measured"), "{e}");
    }

    #[test]
    fn a_buffer_for_which_there_is_no_memory() {
        let machine = this_machine_kept_in(None).unwrap();
        let options = MeasureOptions { buffer_bytes: Some(u64::MAX), ..MeasureOptions::default() };
        let e = measure(&machine, &options, &mut |_| {}).unwrap_err();
        assert!(matches!(e, MeasureError::Map { .. }), "{e}");
    }
}

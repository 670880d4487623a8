//! Every seed of every fuzz target, and what was captured for other tests, replayed over the
//! targets: as it is, cut short anywhere, and with bytes changed. The fuzzer itself, which finds
//! such changes by coverage, needs a nightly compiler; this does not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use evenly_cluster::Cluster;
use evenly_compare::{Metric, specs};
use evenly_fuzz_targets::{TARGETS, Target};
use evenly_linux::journal::JournalView;
use evenly_linux::limits::{
    Cache, parse_cfs_quota, parse_cgroup, parse_cpu_max, parse_cpu_stat, parse_memory,
    parse_mountinfo,
};
use evenly_linux::memory::{parse_maps, parse_nodes, parse_numa_maps};
use evenly_linux::proc::{
    Stat, parse_cpu_ticks, parse_rank, parse_schedstat, parse_used_ticks, status_field,
};
use evenly_linux::share::parse_nice_limit;
use evenly_linux::taskstats::{TaskTimes, parse_answer};
use evenly_linux::tuning::parse_tuning;
use evenly_map::{
    Monitoring, read_assignment, read_edges, read_factors, read_mapping, read_matrix,
    read_monitoring, read_objects, read_pairs, read_parts, read_procs, read_profile, read_tasks,
};
use evenly_model::stats::Random;
use evenly_model::{CpuId, CpuSet, Nanos, Task, TaskGraph, filled, parse_duration};
use evenly_report::LoopsReport;
use evenly_theory::Speeds;
use evenly_topology::{parse_free, parse_hmat, parse_huge, parse_kept, parse_slit, parse_xml};
use evenly_trace::Recording;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

/// Ways in which each input is cut short, and in which it is changed.
const CUTS: usize = 150;
const CHANGES: usize = 300;
/// Bytes that mean something to one parser or another.
const LOADED: &[u8] = b"\0\n 09-,:()\"{}\xff";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of a directory, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    entries
        .map(|e| e.unwrap())
        .filter(|e| e.file_type().unwrap().is_file())
        .map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap()))
        .collect()
}

fn seeds(target: &str) -> BTreeMap<String, Vec<u8>> {
    files(&repository().join("tools/fuzz/seeds").join(target))
}

/// Runs a target; a panic names the input.
fn run(name: &str, target: Target, from: &str, what: &str, bytes: &[u8]) {
    if std::panic::catch_unwind(|| target(bytes)).is_err() {
        panic!("{name}, from {from}, {what}: {:?}", bytes.escape_ascii().to_string());
    }
}

fn replay(name: &str, target: Target, from: &str, bytes: &[u8]) {
    run(name, target, from, "as it is", bytes);
    for i in 0..CUTS.min(bytes.len()) {
        let cut = i * bytes.len() / CUTS.min(bytes.len());
        run(name, target, from, &format!("cut at {cut}"), &bytes[..cut]);
    }
    // Of a machine that contradicts itself hwloc ends the program, where it is built for debugging.
    if name == "hwloc_xml" {
        return;
    }
    // The same changes every time.
    let mut random = Random::new(1);
    let mut changed = bytes.to_vec();
    for change in 0..CHANGES {
        if changed.is_empty() || change % 10 == 0 {
            changed = bytes.to_vec();
        }
        if changed.is_empty() {
            break;
        }
        let at = random.below(changed.len());
        match random.below(4) {
            0 => changed[at] ^= 1 << random.below(8),
            1 => changed[at] = LOADED[random.below(LOADED.len())],
            2 => _ = changed.remove(at),
            _ => {
                let end = changed.len().min(at + 1 + random.below(16));
                changed.extend_from_within(at..end);
            }
        }
        run(name, target, from, &format!("change {change}"), &changed);
    }
}

/// On all CPUs: it is by far the longest of these tests.
#[test]
fn every_seed_is_replayed() {
    let mut inputs = Vec::new();
    for (name, target) in TARGETS {
        let seeds = seeds(name);
        assert!(!seeds.is_empty(), "{name} has no seed");
        inputs.extend(seeds.into_iter().map(|(file, bytes)| (name, target, file, bytes)));
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((name, target, file, bytes)) = inputs.get(next.fetch_add(1, Relaxed)) {
            replay(name, *target, &format!("tools/fuzz/seeds/{name}/{file}"), bytes);
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..thread::available_parallelism().map_or(1, NonZero::get))
            .map(|_| scope.spawn(work))
            .collect();
        for worker in workers {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// The list of targets, what the fuzzer builds, and the seeds are the same.
#[test]
fn every_target_is_built_and_has_seeds() {
    let fuzz = repository().join("tools/fuzz");
    let listed: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let dirs = fs::read_dir(fuzz.join("seeds")).unwrap();
    let seeded: BTreeSet<String> =
        dirs.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(seeded, listed);
    let manifest: toml::Value =
        toml::from_str(&fs::read_to_string(fuzz.join("Cargo.toml")).unwrap()).unwrap();
    let built: BTreeSet<String> = manifest["bin"]
        .as_array()
        .unwrap()
        .iter()
        .map(|b| b["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(built, listed);
    for name in listed {
        let source = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(source.contains(&format!("evenly_fuzz_targets::{name}(")), "{name}: {source}");
    }
}

/// Seeds are small samples of the real thing: at least one of each target is read as such, so that
/// a parser that refuses everything is noticed here, too.
#[test]
fn the_seeds_are_what_they_stand_for() {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let lines = |bytes: &[u8]| -> Vec<Vec<u8>> {
        bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect()
    };
    let read = |name: &str, bytes: &[u8]| match name {
        "answer" => {
            let pairs = read_pairs(&text(bytes), 4, 3).is_ok();
            pairs || read_parts(&text(bytes), 4, 3).is_ok()
        }
        "assignment" => read_assignment(bytes, "f").is_ok_and(|a| a.places.len() > 1),
        "cache" => {
            lines(bytes).chunks_exact(3).any(|l| Cache::parse(&l[0], &l[1], &l[2]).is_some())
        }
        "cgroup" => !parse_cgroup(bytes).is_empty(),
        "cpulist" => text(bytes).trim().parse::<CpuSet>().is_ok_and(|s| !s.is_empty()),
        "edges" => read_edges(bytes, "f", &|_| true).is_ok_and(|e| !e.list.is_empty()),
        "environ" => parse_rank(bytes).is_some(),
        "factors" => read_factors(bytes, "f").is_ok_and(|f| f.len() > 1),
        "mapping" => {
            let task = |id| Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true };
            let graph = TaskGraph::new((0..4).map(task).collect(), &[]).unwrap();
            read_mapping(bytes, "f", &graph, &Cluster::even(2, 2, 2.0).unwrap()).is_ok()
        }
        "procs" => {
            let procs = read_procs(bytes, "f", &Cluster::even(2, 2, 2.0).unwrap());
            procs.is_ok_and(|p| p.iter().any(|p| p.background_s > 0.0))
        }
        "maps" => {
            let mappings = !parse_maps(bytes).is_empty() && !parse_numa_maps(bytes, 0).is_empty();
            mappings && parse_nodes(bytes).contains_key(&0)
        }
        "matrix" => read_matrix(bytes, "f", &|_| true).is_ok_and(|m| !m.edges.list.is_empty()),
        "module" => evenly_spins::Module::of(bytes).is_ok_and(|m| m.spins.len() == 1),
        "monitoring" => {
            let mut all = Monitoring::default();
            read_monitoring(bytes, "f", &|_| true, &mut all).is_ok() && all.ranks > 1
        }
        "objects" => read_objects(bytes, "f").is_ok_and(|t| t.len() > 1),
        "tasks" => read_tasks(bytes, "f").is_ok_and(|(t, e, _)| t.len() > 1 && !e.list.is_empty()),
        "duration" => parse_duration(text(bytes).trim()).is_ok(),
        "hmat" => parse_hmat(bytes).is_some(),
        "hwloc_xml" => parse_xml(bytes, Path::new("f")).is_ok(),
        "kept" => parse_kept(bytes).is_some_and(|m| !m.pairs.is_empty()),
        // Each of what it reads has a seed.
        "lab" => {
            let each = seeds(name).into_values().map(|bytes| evenly_lab::exercise(&bytes));
            let any = each.fold(evenly_lab::Read::default(), |a, b| evenly_lab::Read {
                hierarchy: a.hierarchy | b.hierarchy,
                speeds: a.speeds | b.speeds,
                libraries: a.libraries | b.libraries,
                loader: a.loader | b.loader,
                kernels: a.kernels | b.kernels,
                image: a.image | b.image,
                cpus: a.cpus | b.cpus,
            });
            let evenly_lab::Read { hierarchy, speeds, libraries, loader, kernels, image, cpus } =
                any;
            hierarchy && speeds && libraries && loader && kernels && image && cpus
        }
        "mpi" => {
            let each: Vec<_> =
                seeds(name).into_values().map(|b| evenly_probe::exercise(&b)).collect();
            each.iter().any(|t| t.by_file.is_some())
                && each.iter().any(|t| t.by_launcher.is_some())
                && each.iter().any(|t| t.by_compiler.is_some())
                && each.iter().any(|t| t.by_ranks.iter().any(|r| !r.sent.is_empty()))
        }
        "names" => filled(&text(bytes), &mut |c| "hpr".contains(c).then(String::new)).is_ok(),
        "policies" => specs(&text(bytes), &|name| name == "hybrid").len() > 2,
        "synthetic" => evenly_topology::synthetic(&text(bytes)).is_ok(),
        "ticks" => {
            let cpus = [CpuId(0)].into_iter().collect();
            parse_cpu_ticks(bytes, &cpus).is_some() || parse_used_ticks(bytes).is_some()
        }
        "journal" => {
            // Of both versions, and with every kind of record.
            let all: Vec<JournalView> =
                seeds(name).into_values().filter_map(|b| JournalView::parse(&b).ok()).collect();
            all.iter().any(|j| !j.records.is_empty() && j.header.parents.is_empty())
                && all.iter().any(|j| !j.scheduling.is_empty() && !j.header.parents.is_empty())
        }
        "memory" => {
            parse_free(bytes).is_some()
                || parse_huge(bytes, 0x7f00_0020_0000).is_some()
                || parse_memory(bytes).is_some()
        }
        "metric" => Metric::Field("makespan_s".to_owned()).in_output(bytes).is_ok(),
        "mountinfo" => !parse_mountinfo(bytes).is_empty(),
        "proc_schedstat" => parse_schedstat(bytes).is_some(),
        "proc_stat" => Stat::parse(bytes).is_some(),
        "proc_status" => status_field(bytes, "Cpus_allowed_list").is_some(),
        // Each of what it reads has a seed.
        "peers" => {
            let each: Vec<_> =
                seeds(name).into_values().map(|b| evenly_peers::exercise(&b)).collect();
            each.iter().any(|r| r.directives)
                && each.iter().any(|r| r.driver)
                && each.iter().any(|r| r.script)
                && each.iter().any(|r| r.commands)
        }
        "pingpong" => evenly_topology::read_ping_pong(bytes, 0, 1.0).is_ok(),
        "profile" => read_profile(bytes, "f").is_ok_and(|p| p.rank < p.ranks),
        "quota" => {
            let l = lines(bytes);
            parse_cpu_max(bytes).is_some()
                || (l.len() > 1 && parse_cfs_quota(&l[0], &l[1]).is_some())
                || parse_cpu_stat(bytes).times > 0
        }
        "recording" => Recording::parse(bytes).is_ok_and(|r| !r.events.is_empty()),
        "scenario" => evenly_sim::parse(&text(bytes)).is_ok(),
        "loops" => evenly_sim::parse_loops(&text(bytes)).is_ok_and(|d| {
            let cluster = d.machine.cluster(&vec![0.5; d.machine.processors]);
            d.program.operations(&cluster) < 2e5
        }),
        // Each of what it reads has a seed.
        "shares" => parse_nice_limit(bytes).is_some(),
        "slit" => parse_slit(bytes).is_some(),
        "speeds" => text(bytes).trim().parse::<Speeds>().is_ok(),
        "taskstats" => parse_answer(bytes).is_some() || TaskTimes::parse(bytes).is_some(),
        "told" => {
            let lines = bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec);
            let told = LoopsReport::read(lines, Nanos::ZERO);
            told.is_some_and(|t| !t.loops[0].divided.is_empty() && t.loops[0].totals.is_some())
        }
        "tuning" => parse_tuning(bytes).is_ok(),
        other => panic!("{other} is not known here"),
    };
    for (name, _) in TARGETS {
        let seeds = seeds(name);
        assert!(seeds.values().any(|bytes| read(name, bytes)), "{name}: no seed is read");
    }
}

/// Files of captured machines, each over the target that reads such files.
#[test]
fn captured_machines_are_replayed() {
    let target = |name: &str| TARGETS.iter().find(|(n, _)| *n == name).unwrap().1;
    let mut replayed: BTreeMap<&str, usize> = BTreeMap::new();
    for (machine, bytes) in files(&repository().join("linux/tests/captured")) {
        let mut tree: BTreeMap<String, String> = BTreeMap::new();
        for line in String::from_utf8(bytes).unwrap().lines() {
            // The README has no such lines.
            let Some((path, content)) = line.split_once(':') else { continue };
            let file = tree.entry(path.to_owned()).or_default();
            file.push_str(content);
            file.push('\n');
        }
        for (path, content) in tree {
            let file = path.rsplit('/').next().unwrap();
            let name = match file {
                "cgroup" => "cgroup",
                "mountinfo" => "mountinfo",
                "cpulist" | "online" | "shared_cpu_list" | "cpus" => "cpulist",
                f if f.starts_with("cpuset.") => "cpulist",
                "cpu.max" | "cpu.stat" | "cpu.cfs_quota_us" => "quota",
                "stat" if path == "proc/stat" => "cache",
                _ => continue,
            };
            replay(name, target(name), &format!("{machine}: {path}"), content.as_bytes());
            *replayed.entry(name).or_default() += 1;
        }
    }
    let names: Vec<&str> = replayed.keys().copied().collect();
    assert_eq!(names, ["cache", "cgroup", "cpulist", "mountinfo", "quota"], "{replayed:?}");
    for (file, bytes) in files(&repository().join("docs/scenarios")) {
        let name = if file == "loops.toml" { "loops" } else { "scenario" };
        replay(name, target(name), &file, &bytes);
    }
    for (file, bytes) in files(&repository().join("mapping/topology/tests/captured")) {
        replay("hwloc_xml", target("hwloc_xml"), &file, &bytes);
    }
}

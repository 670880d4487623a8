//! What the fuzz targets in `tools/fuzz/` do with their bytes: one function for each parser of text or
//! bytes from outside.
//!
//! They stand here and not beside the fuzzer, so that an ordinary test can replay the seeds over the
//! same functions with a stable compiler (`tests/replay.rs`).
//!
//! Invariant: whatever the bytes are, a function here returns. One that panics has found a fault.

#![forbid(unsafe_code)]

use evenly_cluster::{Cluster, RATIOS};
use evenly_compare::{Metric, specs};
use evenly_doctor::Diagnosis;
use evenly_evidence::Evidence;
use evenly_linux::journal::JournalView;
use evenly_linux::limits::{
    Cache, last_cache, parse_cfs_quota, parse_cgroup, parse_cpu_max, parse_cpu_stat, parse_memory,
    parse_mountinfo, parse_stat_cpus, partition,
};
use evenly_linux::memory::{parse_maps, parse_nodes, parse_numa_maps};
use evenly_linux::modules::parse_code;
use evenly_linux::proc::{
    Stat, parse_cpu_ticks, parse_file_call, parse_last_number, parse_rank, parse_schedstat,
    parse_ticks_of_each, parse_used_ticks, status_field, status_number,
};
use evenly_linux::share::parse_nice_limit;
use evenly_linux::taskstats::{TaskTimes, parse_answer};
use evenly_linux::tuning::parse_tuning;
use evenly_map::{
    Background, Edges, InputError, Monitoring, join, read_assignment, read_edges, read_factors,
    read_mapping, read_matrix, read_monitoring, read_objects, read_pairs, read_parts, read_procs,
    read_profile, read_tasks, with_speeds,
};
use evenly_model::{CpuSet, Nanos, Task, TaskGraph, filled, parse_duration};
use evenly_theory::Speeds;
use evenly_topology::{
    MachineTopology, TopologyError, parse_free, parse_hmat, parse_huge, parse_kept, parse_slit,
    parse_xml, read_ping_pong,
};
use std::path::{Component, Path};

/// A fuzz target: it reads any bytes, and must not panic.
pub type Target = fn(&[u8]);

/// All targets, by the names that they have in `tools/fuzz/`.
pub const TARGETS: [(&str, Target); 46] = [
    ("answer", answer),
    ("assignment", assignment),
    ("cache", cache),
    ("cgroup", cgroup),
    ("cpulist", cpulist),
    ("duration", duration),
    ("edges", edges),
    ("environ", environ),
    ("factors", factors),
    ("hmat", hmat),
    ("hwloc_xml", hwloc_xml),
    ("journal", journal),
    ("kept", kept),
    ("lab", lab),
    ("loops", loops),
    ("mapping", mapping),
    ("maps", maps),
    ("matrix", matrix),
    ("memory", memory),
    ("metric", metric),
    ("module", module),
    ("monitoring", monitoring),
    ("mountinfo", mountinfo),
    ("mpi", mpi),
    ("names", names),
    ("objects", objects),
    ("peers", peers),
    ("pingpong", pingpong),
    ("policies", policies),
    ("proc_schedstat", proc_schedstat),
    ("proc_stat", proc_stat),
    ("proc_status", proc_status),
    ("procs", procs),
    ("profile", profile),
    ("quota", quota),
    ("recording", recording),
    ("scenario", scenario),
    ("shares", shares),
    ("slit", slit),
    ("speeds", speeds),
    ("synthetic", synthetic),
    ("tasks", tasks),
    ("taskstats", taskstats),
    ("ticks", ticks),
    ("told", told),
    ("tuning", tuning),
];

/// Mappings that are carried out, as JSON or CSV: every task has a CPU.
///
/// # Panics
/// Where one has none.
pub fn assignment(bytes: &[u8]) {
    if let Some(found) = read(read_assignment(bytes, "file")) {
        assert!(!found.places.is_empty() && found.places.values().all(|cpus| !cpus.is_empty()));
    }
}

/// Caches of CPUs (three lines each: level, type, CPUs), the `cpuN` lines of `/proc/stat`, and the
/// division into domains: nothing is lost, and nothing is in two.
///
/// # Panics
/// Where that is not so.
pub fn cache(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|&b| b == b'\n').collect();
    let caches: Vec<Cache> =
        lines.chunks_exact(3).filter_map(|l| Cache::parse(l[0], l[1], l[2])).collect();
    if let Some(cpus) = last_cache(&caches) {
        assert!(!cpus.is_empty());
    }
    let within = parse_stat_cpus(bytes);
    let parts = partition(caches.into_iter().map(|c| c.cpus), &within);
    assert_eq!(parts.iter().map(CpuSet::len).sum::<usize>(), within.len());
    assert_eq!(parts.iter().fold(CpuSet::new(), |all, p| all.or(p)), within);
}

/// `/proc/<pid>/cgroup`: every path is absolute.
///
/// # Panics
/// Where one is not.
pub fn cgroup(bytes: &[u8]) {
    assert!(parse_cgroup(bytes).iter().all(|line| line.path.is_absolute()));
}

/// Lists of CPUs: what is printed is read as the same set.
///
/// # Panics
/// Where it is not.
pub fn cpulist(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<CpuSet>() {
        Ok(set) => assert_eq!(set.to_string().parse(), Ok(set)),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// Something that was read, or one line that says why it was not.
fn read<T>(result: Result<T, InputError>) -> Option<T> {
    match result {
        Ok(found) => Some(found),
        Err(e) => {
            let said = e.to_string();
            assert!(said.starts_with("file") && said.lines().count() == 1, "{said:?}");
            None
        }
    }
}

/// Edges lead somewhere else, and their amounts are some.
fn check_edges(edges: &Edges) {
    for e in &edges.list {
        assert!(e.from != e.to && e.messages.is_finite() && e.messages >= 0.0);
        assert!(e.bytes.is_finite() && e.bytes >= 0.0);
    }
}

/// A task of which nothing matters but its number.
fn task(id: u64) -> Task {
    Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true }
}

/// Edges between tasks as CSV: between those that are known.
///
/// # Panics
/// Where one is not.
pub fn edges(bytes: &[u8]) {
    let known = |id: u64| id < 100;
    if let Some(edges) = read(read_edges(bytes, "file", &known)) {
        check_edges(&edges);
        assert!(edges.list.iter().all(|e| known(e.from) && known(e.to)));
    }
}

/// `/proc/<pid>/environ`: a rank is one that is written there.
///
/// # Panics
/// Where it is not.
pub fn environ(bytes: &[u8]) {
    if let Some((name, rank)) = parse_rank(bytes) {
        let text = String::from_utf8_lossy(bytes);
        assert!(text.contains(name) && text.contains(&rank.to_string()));
    }
}

/// NUCO factors as CSV: a square of positive numbers with ones in its diagonal.
///
/// # Panics
/// Where they are none.
pub fn factors(bytes: &[u8]) {
    if let Some(factors) = read(read_factors(bytes, "file")) {
        let n = factors.len().isqrt();
        assert!(n > 0 && n * n == factors.len());
        assert!(factors.iter().all(|f| RATIOS.contains(f)));
        assert!((0..n).all(|k| factors[k * n + k] == 1.0));
    }
}

/// A mapping of four tasks onto four cores as CSV: all of them, on cores that are there.
///
/// # Panics
/// Where one is not.
#[allow(clippy::expect_used, reason = "a panic is what a fuzz target answers with")]
pub fn mapping(bytes: &[u8]) {
    let graph = TaskGraph::new((0..4).map(task).collect(), &[]).expect("a graph");
    let cluster = Cluster::even(2, 2, 2.0).expect("a machine");
    if let Some(mapping) = read(read_mapping(bytes, "file", &graph, &cluster)) {
        assert!(mapping.len() == 4 && mapping.iter().all(|core| *core < 4));
    }
}

/// Background load and speed of each core, as CSV: each of four cores once, and a machine with
/// these speeds.
///
/// # Panics
/// Where that is not so.
#[allow(clippy::expect_used, reason = "a panic is what a fuzz target answers with")]
pub fn procs(bytes: &[u8]) {
    let cluster = Cluster::even(2, 2, 2.0).expect("a machine");
    let Some(procs) = read(read_procs(bytes, "file", &cluster)) else { return };
    assert!(procs.len() <= 4 && procs.iter().all(|p| p.core < 4));
    let Ok(cluster) = with_speeds(cluster, &procs) else { return };
    let graph = TaskGraph::new((0..4).map(task).collect(), &[]).expect("a graph");
    let background = Background::of(&graph, &cluster, &procs).expect("loads of cores");
    assert_eq!(background.is_some(), procs.iter().any(|p| p.background_s > 0.0));
}

/// `/proc/<pid>/maps` and `/proc/<pid>/numa_maps`: no mapping is empty, and none is counted without a
/// page; a node has at least what any mapping has on it.
///
/// # Panics
/// Where that is not so.
pub fn maps(bytes: &[u8]) {
    assert!(parse_maps(bytes).iter().all(|range| range.start < range.end));
    for code in parse_code(bytes) {
        assert_eq!(code.address(code.offset).is_some(), !code.addresses.is_empty());
    }
    let nodes = parse_nodes(bytes);
    assert!(nodes.values().all(|pages| *pages > 0));
    for node in [0, 1] {
        let all = nodes.get(&node).copied().unwrap_or(0);
        assert!(parse_numa_maps(bytes, node).values().all(|pages| *pages > 0 && *pages <= all));
    }
}

/// Matrix Market files: entries are within the matrix.
///
/// # Panics
/// Where one is not.
pub fn matrix(bytes: &[u8]) {
    if let Some(matrix) = read(read_matrix(bytes, "file", &|_| true)) {
        check_edges(&matrix.edges);
        let inside = |id: u64| id < matrix.tasks as u64;
        assert!(matrix.edges.list.iter().all(|e| inside(e.from) && inside(e.to)));
    }
}

/// Open MPI's monitoring: ranks are below their number.
///
/// # Panics
/// Where one is not.
pub fn monitoring(bytes: &[u8]) {
    let mut all = Monitoring::default();
    if read(read_monitoring(bytes, "file", &|_| true, &mut all)).is_some() {
        let ranks = all.ranks as u64;
        assert!(all.notes().iter().all(|note| note.lines().count() == 1));
        let edges = all.into_edges();
        check_edges(&edges);
        assert!(edges.list.iter().all(|e| e.from < ranks && e.to < ranks));
    }
}

/// Tasks as CSV: at least one, and what makes a graph.
///
/// # Panics
/// Where it does not.
pub fn objects(bytes: &[u8]) {
    if let Some(tasks) = read(read_objects(bytes, "file")) {
        assert!(TaskGraph::new(tasks, &[]).is_ok());
    }
}

/// Tasks and edges as JSON: what makes a graph, unless there is no task or one twice.
///
/// # Panics
/// Where it does not.
pub fn tasks(bytes: &[u8]) {
    if let Some((tasks, edges, _)) = read(read_tasks(bytes, "file")) {
        check_edges(&edges);
        if let Err(e) = TaskGraph::new(tasks, &edges.list) {
            assert_eq!(e.to_string().lines().count(), 1);
        }
    }
}

/// What the ping-pong between hosts wrote: a network with factors between all of its hosts, or a line.
pub fn pingpong(bytes: &[u8]) {
    match read_ping_pong(bytes, 0, 1.0) {
        Ok(network) => {
            let hosts = network.hosts.len();
            assert!(hosts >= 2);
            // A latency may be so large that its factor is none, which is an error.
            if let Ok(factors) = network.factors(&vec![100.0; hosts]) {
                assert_eq!(factors.hosts(), hosts);
            }
        }
        Err(e) => assert_eq!(e.to_string().lines().count(), 1),
    }
}

/// The profile of a rank: its ranks are those that there are, and alone it is a program or is not.
///
/// # Panics
/// Where one is not.
pub fn profile(bytes: &[u8]) {
    if let Some(found) = read(read_profile(bytes, "file")) {
        let ranks = found.ranks;
        match join(vec![found]) {
            Ok(all) => assert!(ranks == 1 && all.tasks.len() == 1 && all.edges.list.is_empty()),
            Err(e) => assert!(ranks > 1 && e.to_string().lines().count() == 1),
        }
    }
}

/// Durations as users write them: bounded, or refused in words.
///
/// # Panics
/// Where neither is so.
pub fn duration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match parse_duration(text) {
        Ok(d) => assert!(d <= Nanos(1_000_000_000_000_000)),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// Numbers of the firmware's HMAT, as sysfs shows them: none of them is 0.
///
/// # Panics
/// Where one is.
pub fn hmat(bytes: &[u8]) {
    assert_ne!(parse_hmat(bytes), Some(0));
}

/// The journal of changed masks.
///
/// # Panics
/// Where it gives more records than there are bytes, or an error without words.
pub fn journal(bytes: &[u8]) {
    match JournalView::parse(bytes) {
        Ok(view) => assert!(view.records.len() <= bytes.len()),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// Free memory of a node, huge pages of a mapping (the one that holds the address in the first bytes)
/// and limits of groups: whole kilobytes, or bytes.
///
/// # Panics
/// Where they are not.
pub fn memory(bytes: &[u8]) {
    assert!(parse_free(bytes).is_none_or(|free| free.is_multiple_of(1024)));
    let mut address = [0; 8];
    address.iter_mut().zip(bytes).for_each(|(a, b)| *a = *b);
    for address in [u64::from_le_bytes(address), 0x7f00_0020_0000] {
        assert!(parse_huge(bytes, address).is_none_or(|huge| huge.is_multiple_of(1024)));
    }
    let _ = parse_memory(bytes);
}

/// What programs print, searched for a figure: a value is a number of seconds, or it is said why
/// there is none.
///
/// # Panics
/// Where neither is so.
pub fn metric(bytes: &[u8]) {
    match Metric::Field("makespan_s".to_owned()).in_output(bytes) {
        Ok(seconds) => assert!(seconds.is_finite() && seconds > 0.0),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// `/proc/self/mountinfo`: a group's directory never leaves its mount point.
///
/// # Panics
/// Where one does.
pub fn mountinfo(bytes: &[u8]) {
    let mounts = parse_mountinfo(bytes);
    let groups = mounts.iter().flat_map(|m| [m.point.as_path(), m.root.as_path()]);
    for group in groups.chain([Path::new("/"), Path::new("/../a")]) {
        for mount in &mounts {
            if let Some(below) = mount.relative(group) {
                let leaves = |c| matches!(c, Component::ParentDir | Component::RootDir);
                assert!(!below.components().any(leaves));
            }
        }
    }
}

/// `schedstat`, which is read by hand for speed: it agrees with the plain way of reading it.
///
/// # Panics
/// Where it does not.
#[allow(clippy::expect_used, reason = "a panic is what a fuzz target answers with")]
pub fn proc_schedstat(bytes: &[u8]) {
    let Some(times) = parse_schedstat(bytes) else { return };
    let text: Vec<u64> = bytes
        .split(|b| !b.is_ascii_digit())
        .take(3)
        .map(|n| std::str::from_utf8(n).expect("digits").parse().expect("a number"))
        .collect();
    assert_eq!((times.ran.0, times.waited.0), (text[0], text[1]));
}

/// `/proc/<pid>/stat`: any bytes, and a line with any name is read as that name.
///
/// # Panics
/// Where it is read as another.
#[allow(clippy::expect_used, reason = "a panic is what a fuzz target answers with")]
pub fn proc_stat(bytes: &[u8]) {
    if let Some(stat) = Stat::parse(bytes) {
        let _ = (stat.name(), stat.is_fair(), stat.run_state());
    }
    let mut line = b"7 (".to_vec();
    line.extend(bytes);
    line.extend(
        b") R 1 7 7 0 -1 0 12 0 34 0 0 0 0 0 20 0 3 0 4242 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 5 0 0",
    );
    let stat = Stat::parse(&line).expect("a line with any name");
    assert_eq!((stat.id, stat.comm.as_slice(), stat.state), (7, bytes, b'R'));
    assert_eq!((stat.minor_faults, stat.major_faults, stat.start), (12, 34, 4242));
}

/// `/proc/<pid>/status`: what has a number has a field; and `/proc/<pid>/syscall`.
///
/// # Panics
/// Where that is not so.
pub fn proc_status(bytes: &[u8]) {
    for key in ["Tgid", "SigIgn", "Cpus_allowed_list", "voluntary_ctxt_switches"] {
        let field = status_field(bytes, key);
        assert!(status_number(bytes, key).is_none() || field.is_some());
    }
    let _ = parse_file_call(bytes);
}

/// `cpu.max`, `cpu.cfs_quota_us` with `cpu.cfs_period_us`, and `cpu.stat`: a quota is a positive
/// number of CPUs.
///
/// # Panics
/// Where it is not.
pub fn quota(bytes: &[u8]) {
    let half = bytes.iter().position(|&b| b == b'\n').unwrap_or(bytes.len());
    let (quota, period) = bytes.split_at(half);
    for cpus in
        [parse_cpu_max(bytes), parse_cfs_quota(quota, period)].into_iter().flatten().flatten()
    {
        assert!(cpus > 0.0 && cpus.is_finite());
    }
    let _ = parse_cpu_stat(bytes);
}

/// What mechanisms for shares read: `/proc/<pid>/limits`.
pub fn shares(bytes: &[u8]) {
    let _ = parse_nice_limit(bytes);
}

/// Recordings, and everything that is made of them.
///
/// # Panics
/// Where a diagnosis costs less than nothing or more than all.
pub fn recording(bytes: &[u8]) {
    evenly_trace::exercise(bytes);
    // What the doctor recorded is at the end of one.
    let last = bytes.split(|&b| b == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    let end: serde_json::Value = serde_json::from_slice(last).unwrap_or_default();
    if let Some(Ok(evidence)) = Evidence::of_json(&end["summary"]) {
        let diagnosis = Diagnosis::of(&evidence, Vec::new());
        assert!(diagnosis.text().ends_with('\n'));
        assert!(diagnosis.findings.iter().all(|f| f.cost.is_none_or(|c| (0.0..=1.0).contains(&c))));
    }
}

/// Scenario files of `evenly simulate`: something to run, or one line that says what is wrong.
///
/// # Panics
/// Where neither is so.
pub fn scenario(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match evenly_sim::parse(text) {
        Ok(d) => {
            assert!(!d.scenario.threads.is_empty() && !d.scenario.cpus.is_empty());
            assert!(d.scenario.threads.iter().all(|t| !t.mask.is_empty()));
        }
        Err(e) => assert_eq!(e.to_string().lines().count(), 1, "{e}"),
    }
}

/// A line of the firmware's SLIT, as sysfs shows it: no distance is 0.
///
/// # Panics
/// Where one is.
pub fn slit(bytes: &[u8]) {
    assert!(parse_slit(bytes).is_none_or(|row| !row.is_empty() && !row.contains(&0)));
}

/// Lists of CPU speeds as users write them, and what is computed from them: no way of balancing is
/// slower than a worse one.
///
/// # Panics
/// Where one is.
pub fn speeds(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match text.parse::<Speeds>() {
        Ok(s) => {
            assert!(s.cpus() > 0 && s.cpus() as usize <= Speeds::MOST);
            let e = Nanos::from_millis(1_000);
            let n = s.cpus().min(1_000) + 1;
            assert!(s.continuous_time(n, e) <= s.best_static_time(n, e));
            assert!(s.best_static_time(n, e) <= s.static_time(n, e));
        }
        Err(e) => assert!(!e.to_string().is_empty()),
    }
}

/// Netlink messages of the taskstats family, and the structure in them.
pub fn taskstats(bytes: &[u8]) {
    let _ = parse_answer(bytes);
    let _ = TaskTimes::parse(bytes);
}

/// What SCOTCH and METIS answer: a core that there is for each of four tasks, or a line that says what
/// is wrong.
///
/// # Panics
/// Where it is neither.
pub fn answer(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for read in [read_pairs, read_parts] {
        match read(text, 4, 3) {
            Ok(cores) => assert!(cores.len() == 4 && cores.iter().all(|core| *core < 3)),
            Err(what) => assert_eq!(what.lines().count(), 1, "{what:?}"),
        }
    }
}

/// A machine that may be used, and everything that is made of it; or a line that says why not.
fn machine(found: Result<MachineTopology, TopologyError>) {
    match found {
        Ok(machine) => {
            assert!(!machine.allowed().is_empty());
            let _ = (machine.describe(), evenly_topology::svg(&machine), machine.to_xml());
            if let Ok(cluster) = machine.cluster(None) {
                assert!(!cluster.cores().is_empty() && !cluster.nodes().is_empty());
            }
        }
        Err(e) => assert_eq!(e.to_string().lines().count(), 1, "{e}"),
    }
}

/// XML of hwloc.
///
/// # Panics
/// Where a machine has no CPU that may be used, or an error has not one line.
pub fn hwloc_xml(bytes: &[u8]) {
    machine(parse_xml(bytes, Path::new("file.xml")));
}

/// Synthetic descriptions of machines, as users write them. Small ones: building one of thousands of
/// CPUs takes long, and shows nothing more.
///
/// # Panics
/// As [`hwloc_xml`].
pub fn synthetic(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
    let large = numbers.filter_map(|n| n.parse().ok()).fold(1_u64, u64::saturating_mul);
    // Beyond what is accepted it is refused, before anything is built.
    if !(1_024..u64::from(u32::MAX)).contains(&large) && !text.contains('\n') {
        machine(evenly_topology::synthetic(text));
    }
}

/// Measurements that were kept: latencies that are some, and factors that are 1 where a node reads its
/// own memory.
///
/// # Panics
/// Where they are not.
pub fn kept(bytes: &[u8]) {
    let Some(found) = parse_kept(bytes) else { return };
    assert!(found.pairs.iter().all(|p| p.latency_ns.median > 0.0));
    let nodes: Vec<u32> = found.pairs.iter().map(|p| p.reader).take(8).collect();
    for &node in &nodes {
        assert!(found.factor(node, node).is_none_or(|f| f.value == 1.0));
    }
    let _ = found.factors(&nodes);
}

/// What the lab reads.
pub fn lab(bytes: &[u8]) {
    let _ = evenly_lab::exercise(bytes);
}

/// Files of loops for the simulator: what is accepted is run, where that takes little time, and each loop is carried out.
///
/// # Panics
/// Where it is not.
pub fn loops(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match evenly_sim::parse_loops(text) {
        Ok(d) => {
            let loads = vec![0.5; d.machine.processors];
            let cluster = d.machine.cluster(&loads);
            if d.program.operations(&cluster) < 2e5 {
                for divides in evenly_sim::Divides::all() {
                    let run = evenly_sim::run_loops(&cluster, &d.program, divides, 1);
                    assert!(run.is_ok_and(|run| run.loops.len() == d.program.loops.len()));
                }
            }
        }
        Err(e) => assert_eq!(e.to_string().lines().count(), 1, "{e}"),
    }
}

/// What loops have told of themselves: there are no more loops than lines, and all of them can be written.
///
/// # Panics
/// Where that is not so.
pub fn told(bytes: &[u8]) {
    let lines: Vec<Vec<u8>> = bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
    let count = lines.len();
    if let Some(told) = evenly_report::LoopsReport::read(lines.into_iter(), Nanos::ZERO) {
        assert!(told.loops.len() <= count && serde_json::to_string(&told).is_ok());
    }
}

/// Files of test suites of others.
pub fn peers(bytes: &[u8]) {
    let _ = evenly_peers::exercise(bytes);
}

/// Programs and libraries: whoever waits in them does so at a `pause`, or jumps back.
///
/// # Panics
/// Where that is not so.
pub fn module(bytes: &[u8]) {
    let found = evenly_spins::Module::of(bytes).unwrap_or_default();
    let is_place = |s: &evenly_spins::Spin| {
        let at = s.offset as usize;
        let is_there = bytes.get(at..at + s.bytes.len()) == Some(&*s.bytes);
        let waits = match *s.bytes {
            [0xf3, 0x90] | [0x70..=0x7f | 0xe9 | 0xeb, _] | [0x0f, 0x80..=0x8f] => true,
            // yield, wfe, isb; b, b.c; cbz, tbz.
            [0x3f | 0x5f, 0x20, 3, 0xd5] | [0xdf, 0x3f, 3, 0xd5] => true,
            [_, _, _, 0x14..=0x17 | 0x54 | 0x34..=0x37 | 0xb4..=0xb7] => true,
            _ => false,
        };
        is_there && waits && s.turn.contains(&s.offset)
    };
    assert!(found.spins.iter().all(|s| is_place(s) && found.spin_at(s.offset).is_some()));
    // What may wait elsewhere, around places in any function.
    let places: Vec<u64> = (0..bytes.len() as u64).step_by(256).take(256).collect();
    let doubtful = evenly_spins::Module::doubtful(bytes, &places).unwrap_or_default();
    assert!(doubtful.iter().all(is_place));
}

/// Programs, launchers and compilers of MPIs.
pub fn mpi(bytes: &[u8]) {
    let _ = evenly_probe::exercise(bytes);
}

/// Letters in names of files: all are replaced, or one is named that stands for nothing.
///
/// # Panics
/// Where neither is so.
pub fn names(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut value = |letter| matches!(letter, 'h' | 'p' | 'r').then(|| String::from("x"));
    match filled(text, &mut value) {
        Ok(name) => assert_eq!(name.matches('%').count(), text.matches("%%").count()),
        Err(letter) => assert!(letter.starts_with('%') && text.contains(&letter)),
    }
}

/// Lists of `evenly compare --policies`: nothing of a list is lost, and every part has a policy.
///
/// # Panics
/// Where that is not so.
pub fn policies(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parts = specs(text, &|name| ["kernel", "juggle", "hybrid"].contains(&name));
    let all: Vec<&str> = parts.iter().map(|part| part.text).collect();
    assert_eq!(all.join(","), text);
    for part in parts {
        assert!(part.text.starts_with(part.policy) && !part.policy.contains(':'));
        let words = part.options.unwrap_or_default().split_whitespace().count();
        assert_eq!(part.variables().count() + part.words().count(), words);
    }
}

/// CPU time by `/proc/stat` and by a process's `stat`: read, or not.
pub fn ticks(bytes: &[u8]) {
    let cpus = [0, 1].map(evenly_model::CpuId);
    let _ = (parse_cpu_ticks(bytes, &cpus.into_iter().collect()), parse_used_ticks(bytes));
    assert!(parse_last_number(bytes).is_none_or(|last| last.0 > 0));
    let each = parse_ticks_of_each(bytes, &cpus);
    assert!(each.is_none_or(|each| each.len() == cpus.len()));
}

/// What a balancer goes by: what is read is in range and in order, and is read again as it is written.
///
/// # Panics
/// Where it is not, or a refusal is no single line.
pub fn tuning(bytes: &[u8]) {
    match parse_tuning(bytes) {
        Ok(found) => {
            let p = found.parameters;
            assert!(p.low() < p.high() && p.least() <= p.most());
            let again = format!("policy={}\n{}", found.policy.name(), p.text());
            assert_eq!(parse_tuning(again.as_bytes()).map(|t| t.parameters), Ok(p));
        }
        Err(why) => assert!(!why.is_empty() && why.lines().count() == 1, "{why:?}"),
    }
}

//! evenly on a machine with more CPUs than one has at hand: eight, in two NUMA nodes, and twelve.
//!
//! These are tests of right and wrong, not of speed: which CPUs the threads may use and use, that
//! all of them take turns, that changes of the machine are followed, and that every mask is in the
//! end what it was. Nothing here depends on how fast the guest is: what has to have happened is
//! waited for, and shares of CPU time are compared among threads of the same run.
//!
//! Skipped unless `EVENLY_LAB=1`. `EVENLY_BIN_DIR` names a directory that holds an optimized build of
//! evenly; without it one is built. `EVENLY_LAB_CASE` names the one case on eight CPUs that is wanted,
//! and `EVENLY_LAB_ROUNDS` how often: for one that fails now and then.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "common/builds.rs"]
mod builds;
mod common;

use builds::{evenly, succeed, target};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use evenly_lab::{GuestFile, Include, Lab, LabError, LabOptions, Output};
use serde_json::Value;

/// No case needs a tenth of this, unless the host stands still.
const PATIENCE: Duration = Duration::from_secs(180);
const FUNCTIONS: &[u8] = include_bytes!("../guest/test-functions");
const MASKS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/masks"));
/// Periods are 100 ms. One of this length is taken for a standstill of the whole guest, which
/// happens on a busy host; a balancer that was stuck would look the same, so runs are repeated a
/// few times only, and each is told.
const STANDSTILL: Duration = Duration::from_secs(3);
/// The most that the shares of CPU time of threads that take turns may differ, as greatest over
/// least less one. Without taking turns it is about 1, where one CPU has two of them; emulated CPUs
/// that are not equally fast at all times, on a busy host, account for some 0.3.
const LEVEL: f64 = 0.4;

/// Integration tests of the other crates that mean more on eight CPUs in two nodes than on two CPUs:
/// the test programs, and of each these tests. They run there as they run here, but for where they
/// find evenly and the workloads.
const SHARED: [(&str, &[&str]); 4] = [
    (
        "harmless_end",
        &[
            "a_killed_balancer_is_cleaned_up_after_by_the_guardian",
            "a_new_balancer_undoes_what_a_killed_one_left",
            "masks_are_free_while_evenly_is_stopped_and_ours_again_after",
        ],
    ),
    (
        "journal",
        &[
            "a_killed_balancer_is_undone_by_its_guardian",
            "masks_that_the_program_chose_are_left",
            "when_both_are_killed_restore_undoes_it",
        ],
    ),
    // Hosts may not let limits of nice values be raised.
    ("lowered", &["who_may_take_nice_values_back_has_the_others_lowered_and_given_back"]),
    // All of them, in control groups of several kinds.
    ("shares", &[]),
];

type Case = fn(&mut Lab);

#[test]
fn eight_cpus_in_two_nodes() {
    let _one = common::one_lab();
    if !common::wanted() {
        return;
    }
    let cases: [(&str, Case); 13] = [
        ("domains are nodes", domains_are_nodes),
        ("hybrid stays within nodes", hybrid_stays_within_nodes),
        ("domains are caches", domains_are_caches),
        ("one domain on request", one_domain_on_request),
        ("pinned threads do not take turns", pinned_threads_do_not_take_turns),
        ("eight threads on seven CPUs", eight_threads_on_seven_cpus),
        ("the program's own mask", a_program_confined_by_its_mask),
        ("hotplug", a_cpu_goes_and_comes_back),
        ("a CPU offline at the start", a_cpu_is_offline_at_the_start),
        ("an offline CPU in the program's own mask", a_mask_holds_a_cpu_that_is_offline),
        ("cpuset and quota", cpuset_and_quota_change),
        ("the guardian", the_guardian_restores),
        ("a program from start to end", a_program_from_start_to_end),
    ];
    let wanted = std::env::var("EVENLY_LAB_CASE").ok();
    let rounds = std::env::var("EVENLY_LAB_ROUNDS").ok().map_or(1, |n| n.parse().unwrap());
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    let chosen: Vec<_> = cases.into_iter().filter(|(name, _)| is_wanted(name)).collect();
    assert!(!chosen.is_empty() && rounds > 0, "no case {wanted:?}, {rounds} rounds");
    common::in_a_lab(boot(8), |lab| {
        for (name, case) in chosen.repeat(rounds) {
            let start = Instant::now();
            eprintln!("{name}");
            case(lab);
            eprintln!("{name}: {:.1} s", start.elapsed().as_secs_f64());
        }
    });
}

#[test]
fn integration_tests_of_other_crates() {
    let _one = common::one_lab();
    if !common::wanted() {
        return;
    }
    let programs = shared_programs();
    common::in_a_lab(boot_with(8, programs), |lab| {
        // Users without privileges have files, too.
        text(lab, "chmod 1777 /tmp");
        for (program, tests) in SHARED {
            for test in tests {
                let start = Instant::now();
                let command = format!(
                    "export PATH=/tests:$PATH EVENLY_PROGRAMS=/usr/bin EVENLY_NO_SKIP=1 \
                     EVENLY_MAY_SKIP=clang; /tests/{program} --exact {test}"
                );
                let output = common::run(lab, &command, PATIENCE);
                let said = String::from_utf8_lossy(&output.stderr);
                let told = output.text();
                assert_eq!(output.status, 0, "{program}: {told}\n{said}");
                // One by another name would be none.
                assert!(told.contains(" 1 passed; 0 failed;"), "{program}: {told}");
                eprintln!("{program}: {test}: {:.1} s", start.elapsed().as_secs_f64());
            }
        }
        shares_in_groups_of_version_two(lab);
    });
}

/// What is given of shares and undone, where control groups are of version 2 (the host's may not be): in
/// the topmost group, in one that has processes of its own, and in one that is delegated to a user
/// without privileges, who may then change nice values as far as RLIMIT_NICE allows it.
fn shares_in_groups_of_version_two(lab: &mut Lab) {
    let group = "/sys/fs/cgroup/shares";
    let files = [".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];
    let files = files.map(|f| format!("{group}/{f}")).join(" ");
    text(lab, &format!("mkdir {group}; chown 65534:65534 {files}"));
    let nobody = "/tests/setpriv --reuid 65534 --regid 65534 --clear-groups";
    for (inside, user, lacks) in [
        ("", "", ""),
        (group, "", ""),
        (group, nobody, "privileged-nice"),
        (group, &format!("ulimit -e 20; {nobody}"), ""),
    ] {
        let start = Instant::now();
        let enter = match inside {
            "" => String::new(),
            group => format!("echo $$ >{group}/cgroup.procs; "),
        };
        let command = format!(
            "export EVENLY_NO_SKIP=1 EVENLY_MAY_SKIP={lacks} EVENLY_TEST_ONLY=nice,idle,cpu.weight; \
             {enter}{user} /tests/shares --test-threads=1"
        );
        let output = common::run(lab, &command, PATIENCE);
        let said = String::from_utf8_lossy(&output.stderr);
        let told = output.text();
        assert!(output.status == 0 && told.contains(" 7 passed;"), "{command}: {told}\n{said}");
        // As it was: no group is left, no controller on, no threaded subtree.
        let left = format!(
            "cat {group}/cgroup.type {group}/cgroup.subtree_control; ls {group} | grep evenly"
        );
        assert_eq!(text(lab, &format!("{left}; true")), "domain", "{command}");
        eprintln!("{command}: {:.1} s", start.elapsed().as_secs_f64());
    }
    text(lab, &format!("rmdir {group}"));
}

/// Two nodes with a CPU each, twice as far as the own one: ranks that talk are brought together, and
/// their memory goes with them. Where the nodes are measured to be equally far it stays. Wherever the
/// kernel has the ranks when evenly comes, two of them end on another node than their memory was on.
#[test]
fn memory_follows_ranks_where_that_pays() {
    let _one = common::one_lab();
    if !common::wanted() {
        return;
    }
    common::in_a_lab(boot(2), |lab| {
        let start = Instant::now();
        let told = |what: &str| eprintln!("{what}: {:.1} s", start.elapsed().as_secs_f64());
        // The kernel moves memory, too, where it sees who reads it.
        text(lab, "echo 0 >/proc/sys/kernel/numa_balancing");
        let ranks = Ranks::of(lab, "await 'memory beside the ranks' have_memory_beside_them");
        ranks.assert_paired();
        for (rank, after) in ranks.after.iter().enumerate() {
            let (here, all) = (after.pages[after.node()], after.pages[0] + after.pages[1]);
            assert!(here * 10 > all * 9, "rank {rank}: {ranks:?}");
        }
        let is_move =
            |line: &&str| line.starts_with("evenly: ") && line.contains(" moved from node ");
        assert!(ranks.said.lines().filter(is_move).count() >= 2, "{ranks:?}");
        told("far");

        every_pair_of_nodes_is_measured(lab);
        told("measured");
        equally_far(lab);
        let ranks = Ranks::of(lab, "await 'the ranks in pairs' are_paired; more 10");
        ranks.assert_paired();
        assert!(!ranks.said.contains("moved from node"), "{}", ranks.said);
        for rank in ranks.moved() {
            let (before, after) = (&ranks.before[rank], &ranks.after[rank]);
            let there = 1 - after.node();
            assert!(after.pages[there] * 10 > before.pages[there] * 9, "rank {rank}: {ranks:?}");
        }
        told("equally far");
    });
}

/// The file in which evenly keeps what it has measured.
fn kept(lab: &mut Lab) -> String {
    let kept = text(lab, "echo ~/.cache/evenly/topology/*.json");
    assert!(kept.ends_with(".json") && !kept.contains(' ') && !kept.contains('*'), "{kept}");
    kept
}

/// On two nodes, each with a CPU and memory of its own: every pair is measured on memory that was looked
/// up, each figure has its spread, what the firmware declares stands beside it, and all of it is kept and
/// exported. How far the nodes are from each other is not looked at: under emulation it is noise.
fn every_pair_of_nodes_is_measured(lab: &mut Lab) {
    let command = "evenly topology --measure --export /tmp/measured.xml --json -";
    let output = common::run(lab, command, PATIENCE);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status, 0, "{said}");
    let found: Value = serde_json::from_str(&output.text()).unwrap();
    let measured = &found["measured"];
    let pairs = measured["pairs"].as_array().unwrap();
    let who: Vec<_> = pairs.iter().map(|p| (p["reader"].as_u64(), p["memory"].as_u64())).collect();
    let all = [(0, 0), (1, 0), (0, 1), (1, 1)].map(|(r, m)| (Some(r), Some(m)));
    assert_eq!(who, all, "{found:#}");
    let spread = |s: &Value, values: usize| {
        let [low, median, high] = ["low", "median", "high"].map(|k| s[k].as_f64().unwrap());
        assert!(0.0 < low && low <= median && median <= high, "{s:#}");
        assert_eq!(s["values"].as_array().unwrap().len(), values);
        median
    };
    let mut latencies = BTreeMap::new();
    for pair in pairs {
        assert_eq!(
            (&pair["binding"], &pair["readers"]),
            (&"checked".into(), &1.into()),
            "{pair:#}"
        );
        assert!(pair["buffer_bytes"].as_u64().unwrap() >= 64 << 20, "{pair:#}");
        spread(&pair["read_bytes_per_s"], 5);
        let place = |of: &str| pair[of].as_u64().unwrap() as usize;
        latencies.insert((place("reader"), place("memory")), spread(&pair["latency_ns"], 11));
    }
    let factors = &found["factors"];
    assert_eq!((&factors["source"], &factors["nodes"]), (&"measured".into(), &vec![0, 1].into()));
    let of = |matrix: &str, i: usize, j: usize| factors[matrix][i][j].as_f64().unwrap();
    for (&(i, j), latency) in &latencies {
        let expected = latency / latencies[&(i, i)];
        assert!((of("matrix", i, j) - expected).abs() < 1e-9, "{found:#}");
        assert!(of("low", i, j) <= expected && expected <= of("high", i, j), "{found:#}");
    }
    assert_eq!(found["declared"]["slit"], serde_json::json!([[10, 21], [21, 10]]));
    // The same for people, in the words that name them.
    assert_eq!(said.matches(", pages checked)").count(), 4, "{said}");
    assert!(said.contains("declared distances (SLIT): 10 21 / 21 10"), "{said}");
    let path = kept(lab);
    let file: Value = serde_json::from_str(&text(lab, &format!("cat {path}"))).unwrap();
    assert_eq!(&file["measured"], measured);
    // In the XML they are distances, in thousandths.
    let again = text(lab, "evenly topology --xml /tmp/measured.xml --json - 2>/dev/null");
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!(again["factors"]["source"], "xml");
    for &(i, j) in latencies.keys() {
        let exported = again["factors"]["matrix"][i][j].as_f64().unwrap();
        assert!((exported - of("matrix", i, j)).abs() <= 0.0005, "{again:#}");
    }
}

/// A measurement that says so, where evenly keeps its own: under emulation every node is as far as any
/// other, but for noise.
fn equally_far(lab: &mut Lab) {
    let kept = kept(lab);
    let pair = |k: u32| {
        let latency =
            serde_json::json!({ "median": 100.0, "low": 100.0, "high": 100.0, "values": [100.0] });
        serde_json::json!({
            "reader": k / 2, "memory": k % 2, "latency_ns": latency, "read_bytes_per_s": null,
            "readers": 1, "buffer_bytes": 1, "huge_share": null, "binding": "checked",
        })
    };
    let pairs: Vec<Value> = (0..4).map(pair).collect();
    let measured = serde_json::json!({ "unix_s": 0, "seconds": 0.0, "pairs": pairs, "notes": [] });
    let file = serde_json::json!({ "schema": "evenly.factors/1", "measured": measured });
    text(lab, &format!("echo '{file}' >{kept}"));
}

/// A rank, as `look_at_ranks` prints it.
#[derive(Debug)]
struct Rank {
    /// On node 0 and on node 1.
    pages: [u64; 2],
    /// What its threads may use: as many sets as differ.
    masks: Vec<BTreeSet<u32>>,
}

impl Rank {
    /// The node that it is pinned to; node k has CPU k.
    fn node(&self) -> usize {
        // The first thread may only wait for the one that computes.
        let pinned: Vec<_> = self.masks.iter().filter(|mask| mask.len() == 1).flatten().collect();
        let [cpu] = pinned[..] else { panic!("{self:?}") };
        *cpu as usize
    }
}

/// Four ranks, before they were placed and when they were.
#[derive(Debug)]
struct Ranks {
    before: Vec<Rank>,
    after: Vec<Rank>,
    said: String,
}

impl Ranks {
    fn of(lab: &mut Lab, meanwhile: &str) -> Ranks {
        let output = run_script(lab, &format!("meanwhile() {{ {meanwhile}; }}; pair meanwhile"));
        let text = output.text();
        assert!(text.starts_with("status 0\n"), "{text}");
        let parts = parts(&text);
        let ranks = |part: &str| -> Vec<Rank> {
            let rank = |line: &str| {
                let mut words = line.split_ascii_whitespace();
                let mut number = || words.next().unwrap().parse().unwrap();
                let pages = [number(), number()];
                Rank { pages, masks: words.map(cpus).collect() }
            };
            parts[part].lines().map(rank).collect()
        };
        // Nobody is left pinned.
        for free in ranks("free") {
            assert_eq!(free.masks, [cpus("0-1")], "{text}");
        }
        let ranks =
            Ranks { before: ranks("before"), after: ranks("after"), said: parts["said"].clone() };
        assert_eq!((ranks.before.len(), ranks.after.len()), (4, 4), "{text}");
        ranks
    }

    fn assert_paired(&self) {
        let node = |rank: usize| self.after[rank].node();
        assert!(node(0) == node(2) && node(1) == node(3) && node(0) != node(1), "{self:?}");
        assert_eq!(self.moved().len(), 2, "{self:?}");
        // Nothing was guessed.
        assert!(!self.said.contains("first seen computing"), "{}", self.said);
    }

    /// Those on another node than most of their memory was.
    fn moved(&self) -> Vec<usize> {
        let moved = |&rank: &usize| {
            let [a, b] = self.before[rank].pages;
            self.after[rank].node() != usize::from(b > a)
        };
        (0..4).filter(moved).collect()
    }
}

#[test]
fn twelve_cpus_in_two_nodes() {
    let _one = common::one_lab();
    if !common::wanted() {
        return;
    }
    common::in_a_lab(boot(12), |lab| {
        for options in ["--policy juggle --domain machine", "--policy hybrid"] {
            let run = observe(lab, 16, options, "more 45");
            run.restored();
            let homes = run.homes();
            if options.contains("machine") {
                assert_eq!(homes.len(), 1);
                run.assert_counts_even();
            } else {
                assert_eq!(homes.values().map(BTreeSet::len).collect::<Vec<_>>(), [8, 8]);
            }
            run.assert_moves_stay_inside();
            for threads in homes.values() {
                run.assert_taking_turns(threads);
            }
        }
    });
}

/// Nine threads on two nodes of four CPUs: five and four, each node balanced on its own.
fn domains_are_nodes(lab: &mut Lab) {
    let run = observe(lab, 9, "--policy juggle", "more 20; watch_masks 1; more 20");
    run.restored();
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    assert_eq!(run.threads_per_domain(), [4, 5]);
    run.assert_moves_stay_inside();
    run.assert_masks_inside_domains();
    run.assert_counts_even();
    for threads in run.homes().values() {
        run.assert_level(threads);
        if threads.len() == 5 {
            run.assert_taking_turns(threads);
        }
    }
}

/// Eight threads on eight CPUs need no turns; their masks are those of their nodes, or single CPUs.
fn hybrid_stays_within_nodes(lab: &mut Lab) {
    let run = observe(lab, 8, "--policy hybrid", "more 15; watch_masks 1");
    run.restored();
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    assert_eq!(run.threads_per_domain(), [4, 4]);
    run.assert_moves_stay_inside();
    run.assert_masks_inside_domains();
    let run = observe(lab, 10, "--policy hybrid", "more 20; watch_masks 1; more 25");
    run.restored();
    assert_eq!(run.threads_per_domain(), [5, 5]);
    run.assert_moves_stay_inside();
    run.assert_masks_inside_domains();
    for threads in run.homes().values() {
        run.assert_taking_turns(threads);
    }
}

/// The guest's sockets have a last cache each, and are its nodes.
fn domains_are_caches(lab: &mut Lab) {
    let shared = text(lab, "cat /sys/devices/system/cpu/cpu[05]/cache/index3/shared_cpu_list");
    assert_eq!(shared, "0-3\n4-7");
    let run = observe(lab, 5, "--policy juggle --domain llc", "more 10");
    run.restored();
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    assert_eq!(run.threads_per_domain(), [2, 3]);
}

fn one_domain_on_request(lab: &mut Lab) {
    let run = observe(lab, 9, "--policy juggle --domain machine", "more 35");
    run.restored();
    assert_eq!(run.domain_cpus(), ["0-7"]);
    assert_eq!(run.threads_per_domain(), [9]);
    run.assert_counts_even();
    run.assert_taking_turns(&run.all());
}

/// What the other cases would look like if nobody took turns.
fn pinned_threads_do_not_take_turns(lab: &mut Lab) {
    let run = observe(lab, 8, "--policy static --domain machine --cpus 0-6", "more 12");
    run.restored();
    run.assert_counts_even();
    let spread = run.spread(&run.all());
    assert!(spread > LEVEL, "{spread}: {}", run.said);
}

fn eight_threads_on_seven_cpus(lab: &mut Lab) {
    for policy in ["juggle", "hybrid"] {
        let options = format!("--policy {policy} --domain machine --cpus 0-6");
        let run = observe(lab, 8, &options, "more 25; watch_masks 1; more 5");
        run.restored();
        assert_eq!(run.domain_cpus(), ["0-6"]);
        let allowed = cpus("0-6");
        for tid in run.all() {
            assert!(run.seen[&tid].iter().all(|mask| mask.is_subset(&allowed)), "{:?}", run.seen);
        }
        if policy == "juggle" {
            run.assert_counts_even();
        }
        run.assert_taking_turns(&run.all());
    }
}

/// The same by the program's own mask, which is what it has again in the end.
fn a_program_confined_by_its_mask(lab: &mut Lab) {
    let script = "begin 8 taskset 7f; balance --policy hybrid; more 15; watch_masks 1; more 25";
    let run = Run::of(lab, script);
    run.restored();
    assert!(run.before.values().all(|mask| *mask == cpus("0-6")), "{:?}", run.before);
    // More room on the node with four CPUs: 4 + 1 on four, 3 on three, or 4 on four and 3 + 1 on
    // three.
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    let inside = |mask: &BTreeSet<u32>| mask.is_subset(&cpus("0-6"));
    assert!(run.seen.values().flatten().all(inside), "{:?}", run.seen);
    run.assert_moves_stay_inside();
    for move_ in run.moves() {
        assert_ne!(move_.to, 7);
    }
    let homes = run.homes();
    assert_eq!(homes.values().map(BTreeSet::len).sum::<usize>(), 8);
    for (domain, threads) in homes {
        let room = if domain == 0 { 4 } else { 3 };
        if threads.len() > room {
            run.assert_taking_turns(&threads);
        }
    }
}

/// A CPU goes offline: its threads go elsewhere in its node, and where that is fuller than the
/// other one, one goes there. The CPU comes back and is used again.
fn a_cpu_goes_and_comes_back(lab: &mut Lab) {
    let online = "/sys/devices/system/cpu/cpu3/online";
    let run = observe(
        lab,
        8,
        "--policy juggle",
        &format!(
            "more 10; echo 0 >{online}; await gone domain_is 0 0-2; await 'one to leave' hold 3 5; \
             more 10; masks $P >seen; \
             echo 1 >{online}; await back domain_is 0 0-3; await 'one to return' hold 4 4; more 15"
        ),
    );
    run.restored();
    run.assert_nothing_foreign();
    let history: Vec<_> = run.domain_events(0).into_iter().map(|(_, cpus)| cpus).collect();
    assert_eq!(history, ["0-3", "0-2", "0-3"]);
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    assert_eq!(run.threads_per_domain(), [4, 4]);
    // Not to the CPU that was offline.
    run.assert_pinned_within(|cpu| cpu != 3);
    run.assert_moves_stay_inside();
    let times: Vec<u64> = run.domain_events(0).into_iter().map(|(at, _)| at).collect();
    let evicted: Vec<_> = run.moves().into_iter().filter(|m| m.at >= times[1]).collect();
    assert!(evicted.iter().any(|m| m.domain == 0 && m.at < times[2]), "{}", run.record());
    assert!(evicted.iter().all(|m| m.to != 3 || m.at >= times[2]), "{}", run.record());
    run.assert_counts_even();
    assert_eq!(run.last_counts(), BTreeMap::from_iter((0..8).map(|cpu| (cpu, 1))));
}

/// A CPU that is offline when evenly comes, and online later, is used then, in its own node, which
/// has room for one more thread with it.
fn a_cpu_is_offline_at_the_start(lab: &mut Lab) {
    let online = "/sys/devices/system/cpu/cpu5/online";
    let run = Run::of(
        lab,
        &format!(
            "echo 0 >{online}; begin 8; balance --policy juggle; await 'less where it is' hold 5 3; \
             more 10; masks $P >seen; \
             echo 1 >{online}; await 'the CPU that came' domain_is 1 4-7; \
             await 'one to follow it' hold 4 4; more 15"
        ),
    );
    run.restored();
    run.assert_nothing_foreign();
    assert_eq!(run.domain_cpus(), ["0-3", "4-7"]);
    for tid in run.all() {
        assert!(run.seen[&tid].iter().all(|mask| !mask.contains(&5)), "{:?}", run.seen);
    }
    assert_eq!(run.threads_per_domain(), [4, 4]);
    run.assert_moves_stay_inside();
    run.assert_counts_even();
    assert_eq!(run.last_counts(), BTreeMap::from_iter((0..8).map(|cpu| (cpu, 1))));
}

/// A program's own mask holds a CPU that has gone offline, which it has again in the end, and uses
/// when it comes online. (A mask that is set while the CPU is offline does not get it.)
fn a_mask_holds_a_cpu_that_is_offline(lab: &mut Lab) {
    let online = "/sys/devices/system/cpu/cpu5/online";
    let run = Run::of(
        lab,
        &format!(
            "begin 3 taskset f0; echo 0 >{online}; balance --policy juggle; more 5; \
             masks $P >seen; echo 1 >{online}; await 'the CPU that came' domain_is 1 4-7; more 10"
        ),
    );
    run.restored();
    run.assert_nothing_foreign();
    assert!(run.before.values().all(|mask| *mask == cpus("4-7")), "{:?}", run.before);
    // Inside of its own mask and to no CPU that is offline; the one that waits is not.
    run.assert_pinned_within(|cpu| cpus("4,6-7").contains(&cpu));
    assert_eq!(run.homes().into_keys().collect::<Vec<_>>(), [1], "{}", run.record());
    run.assert_moves_stay_inside();
    let of = run.domain_events(1).into_iter().map(|(_, cpus)| cpus).collect::<Vec<_>>();
    assert_eq!(of, ["4,6-7", "4-7"]);
}

/// The cpuset shrinks and grows, and a quota comes, while the program runs. The nodes hold as many
/// threads as they have CPUs left for.
fn cpuset_and_quota_change(lab: &mut Lab) {
    let run = Run::of(
        lab,
        "G=/sys/fs/cgroup/part; mkdir -p $G; echo 0-5 >$G/cpuset.cpus; trap 'usleep 300000; rmdir $G' EXIT; \
         begin 8 sh -c \"echo \\$\\$ >$G/cgroup.procs; exec \\\"\\$@\\\"\" sh; \
         balance --policy juggle; more 8; \
         echo 0-2,4 >$G/cpuset.cpus; await shrunk domain_is 1 4; \
         await 'three to one' hold 6 2; more 8; masks $P >seen; \
         echo '200000 100000' >$G/cpu.max; await quota is_recorded 'quota is now 2.00 CPUs'; \
         echo 0-7 >$G/cpuset.cpus; await grown domain_is 1 4-7; await 'equal parts' hold 4 4; more 8; \
         echo 0-5 >$G/cpuset.cpus; await 'the first cpuset' domain_is 1 4-5; \
         await 'as much as that has' hold 5 3; more 8",
    );
    run.restored();
    run.assert_nothing_foreign();
    assert!(run.before.values().all(|mask| *mask == cpus("0-5")), "{:?}", run.before);
    assert_eq!(run.domain_cpus(), ["0-3", "4-5"]);
    let small = cpus("0-2,4");
    for masks in run.seen.values() {
        assert!(masks.iter().all(|mask| mask.is_subset(&small)), "{:?}", run.seen);
    }
    assert_eq!(run.json["quota_cpus"], 2.0, "{}", run.json);
    assert!(run.said.contains("quota"), "{}", run.said);
    run.assert_moves_stay_inside();
}

/// A balancer that is killed leaves masks that its guardian gives back.
fn the_guardian_restores(lab: &mut Lab) {
    let output = run_script(
        lab,
        "begin 9; balance --policy juggle; more 10; masks $P >seen; kill -9 $E; wait $E; \
         await 'masks given back' is_restored; \
         for part in before seen; do echo \"== $part\"; cat $part; done; kill $P",
    );
    let parts = parts(&output.text());
    let (before, seen) = (masks_of(&parts["before"]), masks_of(&parts["seen"]));
    assert!(before.values().flatten().all(|mask| *mask == cpus("0-7")), "{before:?}");
    let pinned = seen.values().flatten().filter(|mask| mask.len() == 1).count();
    // All nine, but for those that are just being swapped.
    assert!(pinned > 4, "nothing was to be given back: {seen:?}");
}

/// `evenly run`: the program's own output and exit status, and the report.
fn a_program_from_start_to_end(lab: &mut Lab) {
    // Seconds on any host: evenly itself takes one to two to start on an emulated CPU.
    let work = "spmd --threads 9 --phases 30 --iters 3000000";
    let output = run_script(
        lab,
        &format!(
            "{work} >alone; evenly run --period 100ms --budget 100 --threads 9 --json json \
             --policy hybrid -- sh -c '{work}; exit 3' >balanced 2>said; echo \"status $?\"; \
             for part in alone balanced said json; do echo \"== $part\"; cat $part; done"
        ),
    );
    let text = output.text();
    assert!(text.starts_with("status 3\n"), "{text}");
    let parts = parts(&text);
    let checksum =
        |part: &str| serde_json::from_str::<Value>(&parts[part]).unwrap()["checksum"].clone();
    assert!(!checksum("alone").is_null());
    assert_eq!(checksum("alone"), checksum("balanced"));
    let json: Value = serde_json::from_str(&parts["json"]).unwrap();
    assert_eq!(json["ended"]["exit"], 3, "{json}");
    assert_eq!(json["domains"].as_array().unwrap().len(), 2, "{json}");
    let mut threads: Vec<u64> = json["domains"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["threads"].as_u64().unwrap())
        .collect();
    threads.sort_unstable();
    assert_eq!(threads, [4, 5], "{json}");
}

/// A guest with evenly and the workloads. None where there is none to be had.
fn boot(cpus: u32) -> impl Fn() -> Result<Lab, LabError> {
    boot_with(cpus, Vec::new())
}

/// The same with more.
fn boot_with(cpus: u32, mut more: Vec<Include>) -> impl Fn() -> Result<Lab, LabError> {
    let evenly = evenly();
    let workloads = workloads();
    let include = |host: PathBuf, name: &str| Include { host, guest: format!("/usr/bin/{name}") };
    let file = |guest: &str, content: &[u8]| GuestFile {
        guest: guest.into(),
        content: content.into(),
        mode: 0o755,
    };
    more.push(include(evenly, "evenly"));
    more.extend(["churn", "odd", "spmd"].map(|name| include(workloads.join(name), name)));
    more.push(include(workloads.join("jacobi-gomp"), "jacobi"));
    let options = LabOptions {
        cpus,
        include: more,
        files: vec![file("/usr/bin/masks", MASKS), file("/lab/test-functions", FUNCTIONS)],
        ..LabOptions::default()
    };
    move || {
        let start = Instant::now();
        let lab = Lab::boot(options.clone());
        eprintln!("boot: {:.1} s", start.elapsed().as_secs_f64());
        lab
    }
}

/// The test programs of [`SHARED`]. Built with all the others, so that after `cargo test` of the
/// workspace nothing is left to be built.
fn shared_programs() -> Vec<Include> {
    let target = target();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = succeed(
        Command::new(cargo)
            .args(["test", "--quiet", "--workspace", "--exclude", "evenly-lab", "--locked"])
            .args(["--no-run", "--message-format", "json", "--target-dir"])
            .arg(&target),
    );
    let artifacts: Vec<Value> =
        built.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let stripped = target.join("tests-stripped");
    std::fs::create_dir_all(&stripped).unwrap();
    let include = |(name, _)| {
        let of_name = |a: &&Value| a["target"]["name"] == name && a["target"]["kind"][0] == "test";
        let found: Vec<&Value> = artifacts.iter().filter(of_name).collect();
        let [artifact] = found[..] else { panic!("test programs of this name: {found:?}") };
        // What is for debuggers is most of it, and would take long to unpack in the guest.
        let host = stripped.join(name);
        let program = artifact["executable"].as_str().unwrap();
        succeed(Command::new("strip").arg("--strip-debug").arg("-o").arg(&host).arg(program));
        Include { host, guest: format!("/tests/{name}") }
    };
    // busybox has one that knows no users, and no prlimit.
    let tool = |name| Include {
        host: PathBuf::from("/usr/bin").join(name),
        guest: format!("/tests/{name}"),
    };
    let mut all: Vec<Include> = SHARED.map(include).into();
    all.extend(["setpriv", "prlimit"].map(tool));
    // The probe is loaded into none that is static.
    let out = target.join("workloads");
    succeed(
        Command::new("make")
            .args(["-s", "-C", concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads")])
            .arg(format!("OUT={}", out.display())),
    );
    let loop_of_clang = out.join("triangle-omp");
    if loop_of_clang.exists() {
        let guest = String::from("/usr/bin/triangle-omp");
        all.push(Include { host: loop_of_clang, guest });
    }
    all
}

fn workloads() -> PathBuf {
    let out = target().join("workloads-static");
    succeed(
        Command::new("make")
            .args(["-s", "-C", concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads"), "STATIC=1"])
            .arg(format!("OUT={}", out.display())),
    );
    out
}

/// What it printed.
fn text(lab: &mut Lab, command: &str) -> String {
    let output = common::run(lab, command, PATIENCE);
    assert_eq!(output.status, 0, "{command}: {}", String::from_utf8_lossy(&output.stderr));
    output.text()
}

fn run_script(lab: &mut Lab, script: &str) -> Output {
    let output = common::run(lab, &format!(". /lab/test-functions; {script}"), PATIENCE);
    if output.status != 0 {
        let rest = common::run(lab, "cd /tmp; tail -c 3000 said record", PATIENCE);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        panic!("{script}\n{}\n{said}\n{}\n{}", output.status, output.text(), rest.text());
    }
    output
}

/// `threads` equal threads, balanced while `during` happens.
fn observe(lab: &mut Lab, threads: u32, options: &str, during: &str) -> Run {
    Run::of(lab, &format!("begin {threads}; balance {options}; {during}"))
}

fn cpus(list: &str) -> BTreeSet<u32> {
    let mut set = BTreeSet::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        set.extend(first.parse::<u32>().unwrap()..=last.parse().unwrap());
    }
    set
}

/// Text in parts, each begun by a line `== NAME`.
fn parts(text: &str) -> BTreeMap<String, String> {
    let mut parts = BTreeMap::new();
    for part in format!("\n{text}").split("\n== ").skip(1) {
        let (name, content) = part.split_once('\n').unwrap_or((part, ""));
        parts.insert(name.to_owned(), content.to_owned());
    }
    parts
}

type Masks = BTreeMap<u32, Vec<BTreeSet<u32>>>;

/// What `masks` prints.
fn masks_of(text: &str) -> Masks {
    let mut masks = Masks::new();
    for line in text.lines() {
        let (tid, list) = line.split_once(' ').unwrap();
        masks.entry(tid.parse().unwrap()).or_default().push(cpus(list));
    }
    masks
}

struct Move {
    domain: u64,
    at: u64,
    from: u32,
    to: u32,
    reason: String,
}

/// One program with an evenly attached to it for a while.
struct Run {
    /// The masks before evenly came, and after it had gone.
    before: BTreeMap<u32, BTreeSet<u32>>,
    after: BTreeMap<u32, BTreeSet<u32>>,
    /// The masks that were seen while it was there.
    seen: Masks,
    said: String,
    json: Value,
    events: Vec<Value>,
}

impl Run {
    /// Where the guest stands still while its clock goes on, all that time is counted to whoever
    /// held a CPU. The shares of such a run say nothing, and it is made again.
    fn of(lab: &mut Lab, script: &str) -> Run {
        for _ in 0..4 {
            let run = Run::once(lab, script);
            let longest = run.kind("point").map(|p| number(&p["elapsed"])).max().unwrap_or(0);
            let longest = Duration::from_nanos(longest);
            if longest < STANDSTILL {
                return run;
            }
            eprintln!("nothing was balanced for {longest:?}: once more");
        }
        panic!("nothing was balanced for {STANDSTILL:?} again and again")
    }

    fn once(lab: &mut Lab, script: &str) -> Run {
        let output = run_script(lab, &format!("{script}; finish"));
        let text = output.text();
        assert!(text.starts_with("status 0\n"), "{script}: {text}");
        let parts = parts(&text);
        let single = |part: &str| -> BTreeMap<u32, BTreeSet<u32>> {
            masks_of(&parts[part]).into_iter().map(|(tid, masks)| (tid, masks[0].clone())).collect()
        };
        let parse = |line: &str| serde_json::from_str::<Value>(line).unwrap();
        Run {
            before: single("before"),
            after: single("after"),
            seen: masks_of(&parts["seen"]),
            said: parts["said"].clone(),
            json: parse(&parts["json"]),
            events: parts["record"].lines().map(parse).collect(),
        }
    }

    /// What every case ends with: each thread's mask is the one that it had.
    fn restored(&self) {
        assert!(!self.before.is_empty());
        assert_eq!(self.before, self.after, "{}", self.said);
    }

    fn assert_nothing_foreign(&self) {
        assert!(!self.said.contains("left alone"), "{}", self.said);
    }

    fn list<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Value> {
        self.json[name].as_array().unwrap().iter()
    }

    fn domain_cpus(&self) -> Vec<&str> {
        self.list("domains").map(|d| d["cpus"].as_str().unwrap()).collect()
    }

    /// At the end, in ascending order: which domain has the odd thread is open.
    fn threads_per_domain(&self) -> Vec<usize> {
        let mut threads: Vec<usize> = self.homes().values().map(BTreeSet::len).collect();
        threads.sort_unstable();
        threads
    }

    /// Threads on each CPU at the last balancing points.
    fn last_counts(&self) -> BTreeMap<u64, u64> {
        let mut last = BTreeMap::new();
        for point in self.kind("point") {
            last.insert(number(&point["domain"]), &point["cpus"]);
        }
        let rows = last.into_values().flat_map(|cpus| cpus.as_array().unwrap());
        rows.map(|row| (number(&row[0]), number(&row[1]))).collect()
    }

    fn all(&self) -> BTreeSet<u32> {
        self.homes().into_values().flatten().collect()
    }

    fn kind<'a>(&'a self, kind: &'static str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |e| e["event"] == kind)
    }

    /// The threads of each domain, at the end.
    fn homes(&self) -> BTreeMap<u64, BTreeSet<u32>> {
        let tids: BTreeMap<u64, u32> = self
            .kind("thread")
            .map(|e| (number(&e["thread"]), number(&e["tid"]).try_into().unwrap()))
            .collect();
        let of = |e: &Value| (tids[&number(&e["thread"])], number(&e["domain"]));
        let last: BTreeMap<u32, u64> = self.kind("joined").map(of).collect();
        let mut homes: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for (tid, domain) in last {
            homes.entry(domain).or_default().insert(tid);
        }
        homes
    }

    /// When the CPUs of a domain changed, and to what.
    fn domain_events(&self, domain: u64) -> Vec<(u64, &str)> {
        let of = self.kind("domain").filter(|e| number(&e["domain"]) == domain);
        of.map(|e| (number(&e["at"]), e["cpus"].as_str().unwrap())).collect()
    }

    fn moves(&self) -> Vec<Move> {
        let mut moves = Vec::new();
        for point in self.kind("point") {
            for row in point["moves"].as_array().into_iter().flatten() {
                // A fifth element says why it could not be done.
                if row[4].is_null() {
                    moves.push(Move {
                        domain: number(&point["domain"]),
                        at: number(&point["at"]),
                        from: number(&row[1]).try_into().unwrap(),
                        to: number(&row[2]).try_into().unwrap(),
                        reason: row[3].as_str().unwrap().to_owned(),
                    });
                }
            }
        }
        moves
    }

    /// The whole node of a domain, or all CPUs where there is one domain.
    fn bounds(&self, domain: u64) -> BTreeSet<u32> {
        let all = self.before.values().flatten().copied().max().unwrap_or(0).max(7) + 1;
        match self.list("domains").count() {
            1 => (0..all).collect(),
            _ if domain == 0 => (0..all / 2).collect(),
            _ => (all / 2..all).collect(),
        }
    }

    /// Once a thread has been brought into its domain it never leaves it.
    fn assert_moves_stay_inside(&self) {
        for m in self.moves() {
            let bounds = self.bounds(m.domain);
            assert!(bounds.contains(&m.to), "to CPU {} in domain {}", m.to, m.domain);
            let swap = ["behind", "ahead"].contains(&m.reason.as_str());
            assert!(
                !swap || bounds.contains(&m.from),
                "from CPU {} in domain {}",
                m.from,
                m.domain
            );
        }
    }

    fn assert_masks_inside_domains(&self) {
        for (domain, threads) in self.homes() {
            let bounds = self.bounds(domain);
            for tid in threads {
                let masks = &self.seen[&tid];
                assert!(masks.iter().all(|mask| mask.is_subset(&bounds)), "{tid}: {masks:?}");
            }
        }
    }

    /// The threads that are balanced are pinned, to such CPUs. Those that are just being swapped may
    /// be on their way, with the mask of their domain, at the moment at which masks are read.
    fn assert_pinned_within(&self, usable: impl Fn(u32) -> bool) {
        let (mut pinned, all) = (0, self.all());
        for tid in &all {
            let mask = self.seen[tid].last().unwrap();
            if mask.len() == 1 {
                pinned += 1;
                assert!(mask.iter().all(|&cpu| usable(cpu)), "{tid}: {mask:?}");
            }
        }
        assert!(pinned * 2 >= all.len(), "{:?}: {}", self.seen, self.record());
    }

    /// Once threads have been spread, the CPUs of a domain hold numbers of them that differ by at
    /// most one. Threads roam between a change of the CPUs of a domain and the first distribution
    /// after it, and go where the kernel lets them go.
    fn assert_counts_even(&self) {
        for domain in self.homes().into_keys() {
            let spread = |reason: &str| ["spread", "evicted"].contains(&reason);
            let spread = self.moves().into_iter().filter(|m| spread(&m.reason));
            let spread = spread.filter(|m| m.domain == domain).map(|m| m.at);
            let of = |e: &&Value| number(&e["domain"]) == domain;
            let came = self.kind("joined").filter(of).map(|e| number(&e["at"]));
            let changed = self.domain_events(domain).into_iter().map(|(at, _)| at);
            let last = spread.chain(came).chain(changed).max().unwrap_or(0);
            let later = |p: &&Value| of(p) && number(&p["at"]) > last;
            let mut checked = 0;
            for point in self.kind("point").filter(later).skip(2) {
                let counts: Vec<u64> =
                    point["cpus"].as_array().unwrap().iter().map(|row| number(&row[1])).collect();
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                let record = || self.record();
                assert!(most - least <= 1, "{counts:?} at {}: {}", point["at"], record());
                checked += 1;
            }
            assert!(checked > 0, "domain {domain}: spread until the end: {}", self.record());
        }
    }

    fn thread(&self, tid: u32) -> &Value {
        self.list("threads").find(|t| t["id"]["tid"] == tid).unwrap()
    }

    /// By how much the shares of CPU time of these threads differ: greatest over least less one.
    fn spread(&self, threads: &BTreeSet<u32>) -> f64 {
        let share = |&tid: &u32| {
            let t = self.thread(tid);
            t["ran_s"].as_f64().unwrap() / t["present_s"].as_f64().unwrap()
        };
        let least = threads.iter().map(share).fold(f64::INFINITY, f64::min);
        threads.iter().map(share).fold(0.0, f64::max) / least - 1.0
    }

    fn assert_level(&self, threads: &BTreeSet<u32>) {
        let spread = self.spread(threads);
        assert!(spread < LEVEL, "{spread}: {}\n{}", self.said, self.json);
    }

    /// All of these, more than there are CPUs for them, have been moved and got the same.
    fn assert_taking_turns(&self, threads: &BTreeSet<u32>) {
        for &tid in threads {
            let t = self.thread(tid);
            assert!(number(&t["migrations"]) > 0, "{t} was never moved: {}", self.said);
        }
        self.assert_level(threads);
    }

    /// The recording without what happened at each point but moves.
    fn record(&self) -> String {
        let lines = self.events.iter().filter(|e| e["event"] != "point" || !e["moves"].is_null());
        lines.map(|e| format!("{e}\n")).collect()
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a number: {value}"))
}

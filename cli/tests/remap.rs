//! `evenly run --policy nuco` on real programs: threads of unequal work are placed by their load,
//! within what they may use, and everything is given back.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::limits::Limits;
use evenly_linux::proc::Proc;
use evenly_linux::share::{Choice, Real, sched, weight_of_nice};
use evenly_model::{CpuId, CpuSet, Pid, Tid};
use std::collections::BTreeMap;
use std::fs;

const PLACED: &str = "placed anew by load and communication";
/// Threads that stay where they are for so many windows were put there: others come to it by accident.
const STEADY_WINDOWS: usize = 15;

/// Five threads on two CPUs, of which two have three parts of work between barriers and the others two:
/// best is each kind on a CPU.
#[test]
fn threads_of_unequal_work_are_placed_by_load() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let spmd = workload("spmd");
    let command = [&spmd, "--threads", "5", "--phases", "1000000", "--iters", "4000000"];
    let command = [
        &command[..],
        &["--imbalance", "3,2,3,2,2", "--barrier", "block", "--name-prefix", "rank"],
    ]
    .concat();
    let (cpus, record) = (whole.to_string(), state.sign("record"));
    let options = ["--every", "20", "--cpus", &cpus, "--record", &record];
    let mut evenly = state.run_with("nuco", 5, &options, &command);
    let program = evenly.program();
    // And to stay there. Where the kernel had them so there is nothing to move, and they are pinned to where
    // they are.
    let mut since = 0;
    wait_until("each kind of threads to have a CPU of its own", || {
        assert!(evenly.is_alive(), "{}", evenly.stderr());
        let masks = masks(program);
        for mask in masks.values() {
            assert!(mask.is_subset(&whole), "{mask}");
        }
        let at = |number: usize| {
            let name = format!("rank{number}");
            let tid = masks.keys().find(|tid| common::name(**tid) == name)?;
            Some(&masks[tid]).filter(|mask| mask.len() == 1)
        };
        let (heavy, light) = ([0, 2].map(at), [1, 3, 4].map(at));
        let together = |all: &[Option<&CpuSet>]| all.iter().all(|m| m.is_some() && *m == all[0]);
        let apart = together(&heavy) && together(&light) && heavy[0] != light[0];
        let points = points_so_far(&record);
        if !apart {
            since = points;
        }
        apart && points >= since + STEADY_WINDOWS * 20
    });
    evenly.kill(Signal::TERM);
    evenly.wait();
    let report = evenly.report();
    schema::valid(&report);
    let notes = report["notes"].to_string();
    assert!(notes.contains("nuco: nothing is known of messages (--profile, --edges"), "{notes}");
    assert_eq!(state.journals().len(), 0);
}

/// A profile names ranks or threads by their numbers; what is no profile is bad input.
#[test]
fn profiles_are_read_before_anything_is_started() {
    let state = State::new();
    let file = |name: &str, text: &str| {
        let path = state.sign(name);
        fs::write(&path, text).unwrap();
        path
    };
    let good = file(
        "good",
        r#"{"schema": "evenly.tasks/1", "tasks": [{"id": 0, "load_s": 1}, {"id": 1, "load_s": 1}],
            "edges": [{"from": 0, "to": 1, "messages": 100}]}"#,
    );
    let bad = file("bad", r#"{"schema": "evenly.tasks/1", "tasks": [{"id": 0, "load_s": -1}]}"#);
    let edges = file("edges", "from,to,messages\n0,1,100\n1,0,100\n");
    let (dangling, alone) =
        (file("dangling", "from,to,messages\n0,7,1\n"), file("alone", "from,to,messages\n1,1,1\n"));
    let negative = file("negative", "from,to,messages\n0,1,-1\n");
    for (args, words) in [
        (vec!["--policy", "nuco", "--profile", "/nowhere"], "--profile: /nowhere cannot be read"),
        (vec!["--policy", "nuco", "--profile", &bad], "a number that is not negative is needed"),
        (vec!["--profile", &good], "--profile: the policy auto does not look at it"),
        (vec!["--edges", &edges], "--edges: the policy auto does not look at it"),
        (vec!["--policy", "nuco", "--edges", "/nowhere"], "--edges: /nowhere cannot be read"),
        (vec!["--policy", "nuco", "--profile", &good, "--edges", &dangling], "there is no task 7"),
        (vec!["--policy", "nuco", "--edges", &alone], "has no edge between two tasks"),
        (vec!["--policy", "nuco", "--edges", &negative], "line 2"),
        (vec!["--policy", "juggle", "--every", "9"], "--every: the policy juggle does not look"),
    ] {
        let command = ["--", "sh", "-c", "echo started >&2"];
        let (status, said) = state.output(&[&["run"], &args[..], &command].concat());
        assert_eq!(status, Some(125), "{args:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains(words), "{args:?}: {said}");
    }
    let args = ["run", "--policy", "nuco", "--profile", &good, "--", "true"];
    let (status, said) = state.output(&args);
    assert!(status == Some(0) && !said.contains("without --profile"), "{said}");
    // The messages of the one with the loads of the other, or each task the same.
    for with in [&["--profile", good.as_str()][..], &[]] {
        let json = state.sign("report.json");
        let args = ["run", "--policy", "nuco", "--edges", &edges, "--json", &json];
        let (status, said) = state.output(&[&args[..], with, &["--", "true"]].concat());
        assert_eq!(status, Some(0), "{said}");
        let report: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        let assumed = report["notes"].to_string().contains("each of its tasks counts as 1 s");
        assert_eq!(assumed, with.is_empty(), "{report:#}");
    }
}

/// Killed in between, it leaves nothing.
#[test]
fn masks_are_given_back() {
    let Some(whole): Option<CpuSet> = whole() else { return };
    let state = State::new();
    let n = whole.len() + 1;
    let program = Running::computing(n as u32);
    let evenly = state.attach("nuco", n as u32, program.pid());
    wait_until_narrowed(program.pid(), &whole, n);
    evenly.kill(Signal::KILL);
    wait_until_restored(program.pid(), &whole);
}

/// How the threads of a program, and those that it started, are scheduled: nice values and control groups.
fn scheduled(program: Pid) -> Vec<(String, String)> {
    let of = |pid: Pid| -> Vec<(String, String)> {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
        let thread = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).ok()?;
            let nice = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(16)?.to_owned();
            Some((nice, fs::read_to_string(task.path().join("cgroup")).ok()?))
        };
        tasks.flatten().filter_map(thread).collect()
    };
    [program].into_iter().chain(descendants(program)).flat_map(of).collect()
}

/// MPI as it waits by itself: it spins.
fn spinning() -> Vec<(&'static str, &'static str)> {
    let yields = "OMPI_MCA_mpi_yield_when_idle";
    let others = mpi::ENVIRONMENT.into_iter().filter(|(name, _)| *name != yields);
    others.chain([(yields, "0")]).collect()
}

/// A policy that has no weights for a mechanism is bad input.
#[test]
fn turns_that_a_policy_does_not_give_are_refused_in_one_line() {
    let state = State::new();
    for (args, words) in [
        (["--policy", "juggle", "--shares", "slice"], "add --policy hpc-adaptive, or leave it out"),
        (
            ["--policy", "hpc-auto", "--shares", "round-robin"],
            "the policy hpc-auto gives weights only to threads that spin",
        ),
        (["--policy", "hybrid", "--shares", "slice"], "gives no weights to threads; add --policy"),
        (["--policy", "hpc-auto", "--shares", "resctrl"], "invalid value 'resctrl' for '--shares"),
    ] {
        let command = ["--", "sh", "-c", "echo started >&2"];
        let (status, said) = state.output(&[&["run"], &args[..], &command].concat());
        assert_eq!(status, Some(125), "{args:?}: {said}");
        assert!(said.contains(words) && !said.contains("started"), "{args:?}: {said}");
    }
}

/// What a thread has of a CPU beside others: by its nice value, or by the control group that evenly has made
/// for it.
fn weight(thread: Tid) -> Option<f64> {
    let (group, v2) = Limits::default().own_group(Pid(thread.0), "cpu")?;
    if !group.file_name()?.to_str()?.starts_with("evenly-") {
        return Some(weight_of_nice(i32::from(sched::get(thread).ok()?.nice)) / weight_of_nice(0));
    }
    let (file, normal) = if v2 { ("cpu.weight", 100.0) } else { ("cpu.shares", 1024.0) };
    let weight: f64 = fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()?;
    Some(weight / normal)
}

/// How many times as much of a CPU each rank with a load of 4 has as each with a load of 1, at least.
fn heavy_to_light(launcher: Pid) -> Option<f64> {
    let ranks = ranks(launcher);
    let weight = |rank| weight(Tid(ranks.get(&rank)?.0));
    let (light, heavy) = ((weight(0)?, weight(2)?), (weight(1)?, weight(3)?));
    Some(heavy.0.min(heavy.1) / light.0.max(light.1))
}

/// Ranks with more work are given more of their CPUs; killed in between, evenly leaves nothing of that. They spin
/// while they wait: those that hand their CPUs over sleep as well, and who sleeps gets even parts.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn parts_of_cpus_are_given_and_taken_back() {
    let Some(whole) = whole() else { return };
    let two: CpuSet = whole.iter().take(2).collect();
    for mpi in mpi::here() {
        let state = State::new();
        let program = mpi.program("metbench");
        let long = ["--iterations", "1000000", "--iters", "10000000"];
        let command = mpi.launch(&[&[program.as_str()][..], &long].concat());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let cpus = two.to_string();
        let options = ["--cooperate", "off", "--cpus", cpus.as_str()];
        let evenly = state.run_in(&spinning(), "hpc-auto", 4, &options, &command);
        let launcher = evenly.program();
        let met = scheduled(launcher).pop().unwrap();
        let given = || scheduled(launcher).into_iter().any(|now| now != met);
        let is_right = || heavy_to_light(launcher).is_some_and(|ratio| ratio > 2.0);
        wait_until("those with 4 times the work to have most of their CPUs", || {
            is_right() || evenly.decisions("keeps its share of a CPU") > 0
        });
        if evenly.decisions("keeps its share of a CPU") > 0 {
            return evenly_testing::skip("privileged-nice", evenly.stderr());
        }
        evenly.kill(Signal::KILL);
        wait_until("them to be taken back", || !given());
        // All who compute are there still.
        assert!(scheduled(launcher).len() > 4);
        for pid in [launcher].into_iter().chain(descendants(launcher)) {
            signal(pid, Signal::KILL);
        }
    }
}

/// It computes the same, the report says what was done, and that fits the schema.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn unequal_work_is_levelled_and_told() {
    let Some(whole) = whole() else { return };
    let two: CpuSet = whole.iter().take(2).collect();
    for mpi in mpi::here() {
        let state = State::new();
        let program = mpi.program("metbench");
        let cpus = two.to_string();
        let work = ["--iterations", "240", "--iters", "5000000", "--reverse", "30"];
        let command = mpi.launch(&[&[program.as_str()][..], &work].concat());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let options = ["--cooperate", "off", "--cpus", &cpus];
        let mut evenly = state.run_in(&spinning(), "hpc-auto", 4, &options, &command);
        assert!(evenly.wait().success(), "{}", evenly.stderr());
        let said: serde_json::Value = serde_json::from_str(&evenly.stdout()).unwrap();
        // The same for both.
        assert_eq!(said["checksum"], CHECKSUM, "{}", mpi.said);
        let report = evenly.report();
        schema::valid(&report);
        assert_eq!(state.journals().len(), 0);
        if evenly.decisions("keeps its share of a CPU") > 0 {
            evenly_testing::skip("privileged-nice", evenly.stderr());
            continue;
        }
        assert!(report["domains"][0]["weighings"].as_u64() > Some(0), "{report:#}");
        let notes = report["notes"].to_string();
        assert!(notes.contains("shares of threads that share a CPU were set"), "{notes}");
    }
}

/// A loop over a triangle, divided into equal blocks of rows, on two CPUs.
fn triangle(runtime: &str) -> Option<Vec<String>> {
    let program = workload(&format!("triangle-{runtime}"));
    if !evenly_testing::is_built(&program) {
        return None;
    }
    let work = ["--threads", "4", "--rows", "240", "--sweeps", "1000000", "--iters", "2000"];
    Some([program].into_iter().chain(work.map(String::from)).collect())
}

/// The first thread of the loop has least to compute, a seventh of what the last has.
#[test]
#[ignore = "needs clang: ./dev test --all"]
fn threads_of_a_triangular_loop_have_parts_as_they_compute() {
    let Some(whole) = whole() else { return };
    let Some(command) = triangle("omp") else { return };
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let state = State::new();
    let cpus = whole.iter().take(2).collect::<CpuSet>().to_string();
    let spins =
        [("OMP_WAIT_POLICY", "active"), ("KMP_LIBRARY", "turnaround"), ("KMP_USE_YIELD", "0")];
    let evenly = state.run_in(&spins, "hpc-auto", 4, &["--cpus", &cpus], &command);
    let program = evenly.program();
    let is_right = || {
        let threads = Proc::default().threads(program);
        let others = threads.into_iter().filter(|t| t.0 != program.0).filter_map(weight);
        let others: Vec<f64> = others.collect();
        let Some(first) = weight(Tid(program.0)) else { return false };
        let most = others.iter().copied().fold(0.0, f64::max);
        others.len() >= 3 && most > 3.0 * first && others.iter().all(|w| *w >= first)
    };
    let keeps = || evenly.decisions("keeps its share of a CPU") > 0;
    wait_until("the first thread to have least of its CPU", || is_right() || keeps());
    if keeps() {
        return evenly_testing::skip("privileged-nice", evenly.stderr());
    }
    evenly.kill(Signal::KILL);
    let even = || {
        let threads = Proc::default().threads(program);
        threads.into_iter().all(|t| weight(t) == Some(1.0))
    };
    wait_until("all to have even parts again", even);
    signal(program, Signal::KILL);
}

/// Of how many weights the greatest and the least were given last, and what that is as a ratio, as the log says
/// it.
fn last_ratio(evenly: &Evenly) -> f64 {
    let said = evenly.stderr();
    let Some(line) = said.lines().rfind(|l| l.contains("shares of CPUs, by thread: ")) else {
        return 1.0;
    };
    let list = line.rsplit_once("by thread: ").unwrap().1;
    let weights = list.split(", ").map(|part| {
        let weight = part.split_whitespace().last().unwrap();
        weight.parse::<f64>().unwrap()
    });
    let weights: Vec<f64> = weights.collect();
    let most = weights.iter().copied().fold(0.0, f64::max);
    most / weights.iter().copied().fold(f64::INFINITY, f64::min)
}

/// HPCSched's parameters, changed while ranks are balanced by its priorities: these follow.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn priorities_follow_what_is_tuned() {
    let Some(whole) = whole() else { return };
    let cpus = whole.iter().take(2).collect::<CpuSet>().to_string();
    let Some(mpi) = mpi::here().into_iter().next() else { return };
    let state = State::new();
    let program = mpi.program("metbench");
    let long = ["--iterations", "1000000", "--iters", "10000000"];
    let command = mpi.launch(&[&[program.as_str()][..], &long].concat());
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let evenly = state.run_in(&spinning(), "hpc-adaptive", 4, &["--cpus", &cpus], &command);
    let (launcher, pid) = (evenly.program(), evenly.pid().to_string());
    let keeps = || evenly.decisions("keeps its share of a CPU") > 0;
    // Priorities 6 and 4 are 2 to 1, 5 and 4 are 1.41 to 1; of nice values the nearest.
    wait_until("priorities 6 and 4", || last_ratio(&evenly) > 1.8 || keeps());
    if keeps() {
        return evenly_testing::skip("privileged-nice", evenly.stderr());
    }
    let tune = |values: &[&str], told: &str| {
        let args = [&["tune", pid.as_str()], values].concat();
        let (status, said) = state.output(&args);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains(told), "{said}");
        wait_until("the balancer to go by it", || evenly.decisions(&format!("tuned: {told}")) > 0);
    };
    tune(&["L=0.5", "MAX_PRIO=5"], "global-weight 0.5 (was 0.1), max-prio 5 (was 6)");
    wait_until("priorities 5 and 4", || (1.2..1.7).contains(&last_ratio(&evenly)));
    tune(&["MAX_PRIO=6"], "max-prio 6 (was 5)");
    wait_until("priorities 6 and 4 again", || last_ratio(&evenly) > 1.8);
    for pid in [launcher].into_iter().chain(descendants(launcher)) {
        signal(pid, Signal::KILL);
    }
}

/// Classes and slices of all threads of a program that differ from what a new one has.
fn given_turns(program: Pid, usual: &sched::Scheduling) -> usize {
    let threads = Proc::default().threads(program).into_iter();
    let all = threads.filter_map(|t| sched::get(t).ok());
    all.filter(|s| (s.policy, s.slice) != (usual.policy, usual.slice)).count()
}

/// Threads that sleep while they wait are raised above others, or run for longer at a stretch, by what they
/// compute; killed in between, evenly leaves nothing of that.
#[test]
fn turns_are_given_and_taken_back() {
    let Some(whole) = whole() else { return };
    let cpus = whole.iter().take(2).collect::<CpuSet>().to_string();
    let Some(command) = triangle("gomp") else { return };
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    for (choice, name, key) in
        [(Choice::Slice, "slice", "sched-slice"), (Choice::RoundRobin, "round-robin", "realtime")]
    {
        if let Some(missing) = choice.missing(&Real::default()) {
            evenly_testing::skip(key, missing.why);
            continue;
        }
        let state = State::new();
        let options = ["--cpus", &cpus, "--shares", name];
        let sleeps = [("OMP_WAIT_POLICY", "passive")];
        let evenly = state.run_in(&sleeps, "hpc-adaptive", 4, &options, &command);
        let program = evenly.program();
        let usual = sched::get(Tid(0)).unwrap();
        wait_until("turns to be given", || {
            let refused = evenly.decisions("keeps its share of a CPU");
            assert_eq!(refused, 0, "{}", evenly.stderr());
            given_turns(program, &usual) > 0
        });
        evenly.kill(Signal::KILL);
        wait_until("them to be taken back", || given_turns(program, &usual) == 0);
        signal(program, Signal::KILL);
    }
}

/// Whoever spins would do so above those that it waits for.
#[test]
fn who_is_told_to_spin_is_not_raised_above_others() {
    let state = State::new();
    let args = ["run", "--policy", "hpc-adaptive", "--shares", "round-robin", "--"];
    let command = ["sh", "-c", "echo started >&2"];
    let mut told = state.command(&[&args[..], &command].concat());
    let output = told.env("OMP_WAIT_POLICY", "ACTIVE").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(said.contains("with OMP_WAIT_POLICY=active threads spin"), "{said}");
}

/// Nobody tells MPICH to spin; it does.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn who_is_seen_to_spin_is_not_raised_above_others() {
    let Some(whole) = whole() else { return };
    if let Some(missing) = Choice::RoundRobin.missing(&Real::default()) {
        return evenly_testing::skip("realtime", missing.why);
    }
    let cpus = whole.iter().take(2).collect::<CpuSet>().to_string();
    let state = State::new();
    let Some(mpi) = mpi::here().into_iter().find(|mpi| mpi.name == "mpich") else { return };
    let program = mpi.program("metbench");
    let long = ["--iterations", "1000000", "--iters", "10000000"];
    let command = mpi.launch(&[&[program.as_str()][..], &long].concat());
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let options = ["--cpus", &cpus, "--shares", "round-robin"];
    let evenly = state.run_in(&mpi::ENVIRONMENT, "hpc-adaptive", 4, &options, &command);
    let launcher = evenly.program();
    let usual = sched::get(Tid(0)).unwrap();
    wait_until("it to be refused", || {
        let raised = ranks(launcher).into_values().map(|p| given_turns(p, &usual)).sum::<usize>();
        assert_eq!(raised, 0, "{}", evenly.stderr());
        evenly.decisions("round-robin: threads spin while they wait") > 0
    });
    for pid in [launcher].into_iter().chain(descendants(launcher)) {
        signal(pid, Signal::KILL);
    }
}

/// Ranks of equal work that spin have nothing to gain from parts of CPUs, and get none. Iterations are long beside
/// periods, also on a busy machine, so that what points cut off them is little.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn equal_work_is_left_alone() {
    let Some(whole) = whole() else { return };
    let two: CpuSet = whole.iter().take(2).collect();
    for mpi in mpi::here() {
        let state = State::new();
        let program = mpi.program("metbench");
        let work = ["--iterations", "12", "--iters", "80000000", "--loads", "1"];
        let command = mpi.launch(&[&[program.as_str()][..], &work].concat());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let options = ["--cpus", &two.to_string()];
        let mut evenly = state.run_in(&spinning(), "hpc-auto", 4, &options, &command);
        assert!(evenly.wait().success(), "{}", evenly.stderr());
        let report = evenly.report();
        assert!(report["started"] == true, "{report:#}");
        assert_eq!(report["domains"][0]["weighings"], 0, "{report:#}");
    }
}

/// Of these iterations, by a run without evenly.
const CHECKSUM: &str = "d0802d1720ac0488";

/// Who talks to whom, as pairs of ranks: in one of these three ways at most they share CPUs by accident.
const PAIRS: [[(u64, u64); 2]; 3] = [[(0, 1), (2, 3)], [(0, 2), (1, 3)], [(0, 3), (1, 2)]];

/// A file for --edges in which these talk to each other a lot.
fn edges(state: &State, pairs: [(u64, u64); 2]) -> String {
    let path = state.sign("edges.csv");
    let line = |(a, b)| format!("{a},{b},1000000,8000000\n{b},{a},1000000,8000000\n");
    let text = format!("from,to,messages,bytes\n{}", pairs.map(line).concat());
    fs::write(&path, text).unwrap();
    path
}

/// The processes of an MPI program by their ranks.
fn ranks(launcher: Pid) -> BTreeMap<u64, Pid> {
    let proc = Proc::default();
    let rank = |p: Pid| Some((proc.rank(p)?.1, p));
    descendants(launcher).into_iter().filter_map(rank).collect()
}

/// The CPU that the computing thread of a process is pinned to.
fn pinned(p: Pid) -> Option<CpuSet> {
    masks(p).into_values().find(|mask| mask.len() == 1)
}

/// A stencil over four ranks with blocks of unequal height, on two CPUs: evenly finds the ranks, measures
/// their loads, brings those to one CPU that `--edges` says talk to each other, gives all masks back, and
/// the program computes what it would without. Ranks that are so from the start stay there: where they start
/// is up to the kernel.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ranks_of_real_mpi_programs_are_brought_together_and_compute_the_same() {
    let Some(whole) = whole() else { return };
    let two: CpuSet = whole.iter().take(2).collect();
    let cpus = two.to_string();
    let pairs = PAIRS[1];
    for mpi in mpi::here() {
        let state = State::new();
        let (edges, out, end) = (edges(&state, pairs), state.sign("out.json"), state.sign("end"));
        let program = mpi.program("stencil");
        // For as long as it takes.
        let long = ["--size", "160", "--sweeps", "1000000", "--end-on", &end, "--output", &out];
        let command = mpi.launch(&[&[program.as_str()][..], &long].concat());
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let record = state.sign("record");
        let options = ["--every", "10", "--cpus", &cpus, "--edges", &edges, "--record", &record];
        let mut evenly = state.run_in(&mpi::ENVIRONMENT, "nuco", 4, &options, &command);
        let launcher = evenly.program();
        // Open MPI binds ranks, too, while it starts: they have to stay together.
        let mut since = 0;
        wait_until("those who talk to each other to share a CPU, pinned to it", || {
            assert!(evenly.is_alive(), "{}: {}", mpi.said, evenly.stderr());
            let at = |(rank, p)| Some((rank, pinned(p)?));
            let at: BTreeMap<u64, CpuSet> = ranks(launcher).into_iter().filter_map(at).collect();
            let together = |&(a, b): &(u64, u64)| at.get(&a) == at.get(&b);
            let all = at.len() == 4 && pairs.iter().all(together);
            let points = points_so_far(&record);
            if !all {
                since = points;
            }
            all && (evenly.decisions(PLACED) > 0 || points >= since + STEADY_WINDOWS * 10)
        });
        state.give("end");
        let (status, report) = (evenly.wait(), evenly.report());
        schema::valid(&report);
        assert!(status.success(), "{}: {}", mpi.said, evenly.stderr());
        let answer: serde_json::Value =
            serde_json::from_str(&fs::read_to_string(&out).unwrap()).unwrap();
        assert!(answer["verified"] == true && answer["ranks"] == 4, "{answer:#}");
        assert_eq!(state.journals().len(), 0, "{}", mpi.said);
        let notes = report["notes"].to_string();
        let all = "of the 4 ranks that are recorded to communicate 4 were there";
        assert!(notes.contains(all), "{notes}");
        let threads = report["threads"].as_array().unwrap();
        let ran = |t: &&serde_json::Value| t["ran_s"].as_f64().unwrap() > 0.0;
        assert!(threads.iter().filter(ran).count() >= 4, "{report:#}");
        // Never within the first two windows, and at the end of a window.
        let points = moves_at_points(&record);
        assert!(points.iter().all(|p| *p >= 20 && p % 10 == 0), "{points:?}");
    }
}

/// Nobody tells evenly who talks to whom: that is counted while the program runs, and moves ranks. Four
/// ranks that compute equally are paired anew twice; each time the new pairs are apart, as each CPU holds a
/// pair of before, and level loads are no reason to move anybody.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ranks_are_brought_together_by_the_messages_that_were_counted() {
    let Some(whole) = whole() else { return };
    let two: CpuSet = whole.iter().take(2).collect();
    let cpus = two.to_string();
    let cache = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache");
    for mpi in mpi::here() {
        let state = State::new();
        let partner = state.sign("partner");
        fs::write(&partner, "1").unwrap();
        let command = mpi.launch(&[&mpi.program("partners"), &partner, "20", "1000"]);
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let options = ["--probe", "on", "--every", "60", "--cpus", &cpus];
        let variables = [&mpi::ENVIRONMENT[..], &[("XDG_CACHE_HOME", cache.to_str().unwrap())]];
        let mut evenly = state.run_in(&variables.concat(), "nuco", 4, &options, &command);
        let launcher = evenly.program();
        for with in 1..=3 {
            let placed = evenly.decisions(PLACED);
            fs::write(&partner, with.to_string()).unwrap();
            evenly_testing::wait_for_ok("those who talk to each other to share a CPU", || {
                assert!(evenly.is_alive(), "{}: {}", mpi.said, evenly.stderr());
                let at = |(rank, p)| Some((rank, pinned(p)?));
                let at: BTreeMap<u64, CpuSet> =
                    ranks(launcher).into_iter().filter_map(at).collect();
                // Who talk to each other, and nobody else with them: Open MPI binds ranks, too, to one CPU
                // after the other while it starts. They may be so from the start.
                let together = |of| at.iter().all(|(rank, cpu)| at.get(&(rank ^ of)) == Some(cpu));
                let now = evenly.decisions(PLACED);
                let found = at.len() == 4
                    && (with == 1 || now > placed)
                    && (1..4).all(|of| together(of) == (of == with));
                found.then_some(()).ok_or_else(|| {
                    format!("{}: with {with}, {placed} then {now} decisions: {at:?}", mpi.said)
                })
            });
        }
        fs::write(&partner, "0").unwrap();
        let (status, report) = (evenly.wait(), evenly.report_of_moves());
        assert!(status.success(), "{}: {}", mpi.said, evenly.stderr());
        assert!(evenly.decisions(PLACED) >= 2, "{}: {}", mpi.said, evenly.stderr());
        assert_eq!(report["messages"]["decided"], true, "{report:#}");
        assert_eq!(state.journals().len(), 0);
    }
}

/// Open MPI binds two ranks to a core each unless it is told not to: under `nuco`, or with a mapping, it is, where
/// the user has not said how they are to be bound.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ranks_that_their_launcher_would_bind_are_placed() {
    const WHERE: &str = "grep Cpus_allowed_list /proc/self/status; sleep 0.3";
    const POLICY: &str = "OMPI_MCA_hwloc_base_binding_policy";
    let Some(whole) = whole() else { return };
    // Where ranks may share cores nothing is bound either.
    let usual =
        |(name, _): &(&str, &str)| ![POLICY, "OMPI_MCA_rmaps_base_oversubscribe"].contains(name);
    let usual: Vec<(&str, &str)> = mpi::ENVIRONMENT.into_iter().filter(usual).collect();
    let state = State::new();
    let map = state.sign("map.csv");
    let last = whole.iter().last().unwrap().0;
    fs::write(&map, format!("id,pe\n0,{last}\n1,{last}\n")).unwrap();
    // The masks with which ranks begin, and what was said.
    let begin = |command: &mut std::process::Command, set: &[(&str, &str)]| {
        let output =
            command.envs(usual.iter().copied()).envs(set.iter().copied()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (masks, said) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{said}");
        let masks = masks.lines().filter_map(|l| l.split_once(':')?.1.trim().parse().ok());
        (masks.collect::<Vec<CpuSet>>(), said)
    };
    for mpi in mpi::here() {
        let open_mpi = mpi.name == "openmpi";
        let launcher = &mpi.tool("mpirun");
        let ranks = ["-n", "2", "sh", "-c", WHERE];
        let under = |options: &[&str], bound: &[&str], set: &[(&str, &str)]| {
            let command = [&["--", launcher][..], bound, &ranks].concat();
            let (masks, said) =
                begin(&mut state.command(&[&["run"], options, &command].concat()), set);
            assert_eq!(masks.len(), 2, "{}: {said}", mpi.said);
            (masks, said.contains(&format!("evenly: sets {POLICY}=none")))
        };
        if open_mpi {
            let mut alone = std::process::Command::new(launcher);
            let (masks, said) = begin(alone.args(ranks), &[]);
            if masks.contains(&whole) {
                let why = format!("two ranks are not bound to cores of their own: {said}");
                evenly_testing::skip("two-cores", why);
                continue;
            }
        }
        let free = vec![whole.clone(); 2];
        assert_eq!(under(&["--policy", "nuco"], &[], &[]), (free.clone(), open_mpi));
        assert_eq!(under(&["--policy", "nuco", "--quiet"], &[], &[]), (free.clone(), false));
        if !open_mpi {
            continue;
        }
        let (masks, said) = under(&["--map", &map], &[], &[]);
        assert!(said && masks == free, "{masks:?}");
        for (options, bound, set) in [
            ("nuco", &["--bind-to", "core"][..], &[][..]),
            ("nuco", &[][..], &[(POLICY, "core")][..]),
            ("hybrid", &[][..], &[][..]),
        ] {
            let (masks, said) = under(&["--policy", options], bound, set);
            assert!(!said && !masks.contains(&whole), "{options} {bound:?} {set:?}: {masks:?}");
        }
        // Ranks that compute are brought to the one CPU of the mapping, which no launcher would do.
        let (program, end) = (mpi.program("stencil"), state.sign("end"));
        let long = ["--size", "160", "--sweeps", "1000000", "--end-on", &end];
        let options = ["run", "--map", &map, "--period", "10ms", "--budget", "50", "--"];
        let command = [&options[..], &[launcher, "-n", "2", &program], &long].concat();
        let mut evenly = state.start_in(&self::evenly(), &command, &usual);
        let (process, last) = (evenly.program(), CpuSet::single(CpuId(last)));
        wait_until("both ranks to be where the mapping has them", || {
            assert!(evenly.is_alive(), "{}", evenly.stderr());
            let at = self::ranks(process).into_values().filter_map(pinned);
            at.filter(|cpu| *cpu == last).count() == 2
        });
        state.give("end");
        assert!(evenly.wait().success(), "{}", evenly.stderr());
        let report = evenly.report();
        schema::valid(&report);
        assert!(report["notes"].to_string().contains("sets OMPI_MCA_hwloc"), "{report:#}");
    }
}

/// The points of a recording at which threads were placed anew.
fn moves_at_points(record: &str) -> Vec<u64> {
    points(record)
        .iter()
        .filter(|p| {
            p["moves"].as_array().is_some_and(|m| m.iter().any(|m| m["reason"] == "mapped"))
        })
        .map(|p| p["point"].as_u64().unwrap())
        .collect()
}

/// How many points have been recorded by now; the last line may be written only in part.
fn points_so_far(record: &str) -> usize {
    fs::read_to_string(record).map_or(0, |text| text.matches("\"event\":\"point\"").count())
}

fn points(record: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(record).unwrap();
    let lines = text.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    lines.filter(|l| l["event"] == "point").collect()
}

/// Attached to a program that runs, and ended while it goes on: no rank is left pinned.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ranks_are_let_go_while_they_compute() {
    let Some(whole) = whole() else { return };
    let two: CpuSet = whole.iter().take(2).collect();
    for mpi in mpi::here() {
        let state = State::new();
        let edges = edges(&state, PAIRS[0]);
        let command =
            mpi.launch(&[&mpi.program("stencil"), "--size", "160", "--sweeps", "1000000"]);
        let mut c = std::process::Command::new(&command[0]);
        c.args(&command[1..]).envs(mpi::ENVIRONMENT);
        c.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        let launcher = Running(c.spawn().unwrap());
        // Open MPI binds each rank to one CPU after the other while it starts.
        let mut steady = 0;
        wait_until("four ranks that have started", || {
            let of_all: Vec<CpuSet> =
                ranks(launcher.pid()).into_values().flat_map(|p| masks(p).into_values()).collect();
            let free = of_all.len() >= 4 && of_all.iter().all(|mask| *mask == whole);
            steady = if free { steady + 1 } else { 0 };
            steady > 100
        });
        let pid = launcher.pid().to_string();
        let cpus = two.to_string();
        let args =
            ["attach", "--policy", "nuco", "--period", "10ms", "--budget", "50", "--no-guard"];
        let more = ["--threads", "4", "--every", "10", "--cpus", &cpus, "--edges", &edges, &pid];
        let mut evenly = state.start(&[&args[..], &more].concat());
        let all_pinned = || ranks(launcher.pid()).into_values().all(|p| pinned(p).is_some());
        wait_until("all ranks to be pinned", all_pinned);
        evenly.kill(Signal::TERM);
        assert!(evenly.wait().success(), "{}", evenly.stderr());
        for (rank, p) in ranks(launcher.pid()) {
            assert!(masks(p).values().all(|mask| *mask == whole), "{}, rank {rank}", mpi.said);
        }
        assert_eq!(state.journals().len(), 0);
    }
}

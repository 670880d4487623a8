//! `evenly run --map` and `evenly attach --map`: what `evenly map` writes is what threads and ranks of
//! a real program get, and nothing of it is left at the end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::affinity;
use evenly_linux::proc::Proc;
use evenly_model::{CpuSet, Pid, Tid};
use std::collections::BTreeMap;
use std::fs;

/// Masks of threads as a file of `evenly map --format masks` has them, read in the plainest way.
fn masks_in(file: &str) -> BTreeMap<u64, CpuSet> {
    let text = fs::read_to_string(file).unwrap();
    let row = |line: &str| {
        let (id, mask) = line.split_once(',').unwrap();
        let mask = u64::from_str_radix(mask.strip_prefix("0x").unwrap(), 16).unwrap();
        (id.parse().unwrap(), CpuSet::from_words(&[mask]))
    };
    text.lines().skip(1).map(row).collect()
}

/// Threads that compute are named like this in `churn`.
fn workers(pid: Pid) -> Vec<i32> {
    let threads = Proc::default().threads(pid);
    let mut workers: Vec<i32> = threads.iter().map(|t| t.0).filter(|t| *t != pid.0).collect();
    workers.sort_unstable();
    workers
}

const CHURN: [&str; 4] = ["--workers", "3", "--duration-s", "300"];

fn churn() -> Vec<String> {
    let mut command = vec![workload("churn")];
    command.extend(CHURN.map(str::to_owned));
    command
}

/// Whether the workers have the CPUs of the mapping, in the order in which they were created.
fn in_place(pid: Pid, expected: &BTreeMap<u64, CpuSet>) -> bool {
    let workers = workers(pid);
    workers.len() == expected.len()
        && workers.iter().zip(expected.values()).all(|(t, cpus)| mask(*t).as_ref() == Some(cpus))
}

/// Where three tasks should run of which the first computes as much as the two others, all of them now
/// on one CPU; as `evenly map` writes it with these options.
fn mapped(state: &State, options: &[&str]) -> String {
    let (objects, current) = (state.sign("objects.csv"), state.sign("current.csv"));
    let out = state.sign(options[0].trim_matches('-'));
    fs::write(&objects, "id,load_s\n0,0.5\n1,0.3\n2,0.2\n").unwrap();
    let first = affinity::get(Tid(0)).unwrap().first().unwrap();
    fs::write(&current, format!("id,pe\n0,{first}\n1,{first}\n2,{first}\n")).unwrap();
    let args = ["map", "-q", "--objects", &objects, "--topology", "this", "--current", &current];
    let (status, said) = state.output(&[&args[..], options, &[&out]].concat());
    assert_eq!(status, Some(0), "{said}");
    out
}

fn masks_file(state: &State) -> String {
    mapped(state, &["--format", "masks", "--out"])
}

/// Each form that can be read, under policies that pin and one that does not.
fn run_where_the_map_says(policy: &str, map: impl Fn(&State, &str) -> String) {
    let Some(_) = whole() else { return };
    let state = State::new();
    let masks = masks_file(&state);
    let expected = masks_in(&masks);
    assert!(expected.len() == 3 && expected[&0] != expected[&1], "{expected:?}");
    let command = churn();
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let map = map(&state, &masks);
    let mut evenly = state.run_with(policy, 3, &["--map", &map], &command);
    let program = evenly.program();
    wait_until("the threads to have their places", || in_place(program, &expected));
    for _ in 0..100 {
        assert!(in_place(program, &expected), "{policy}: {:?}", common::masks(program));
    }
    evenly.kill(Signal::TERM);
    evenly.wait();
    let report = evenly.report();
    schema::valid(&report);
    assert!(report["threads"].as_array().unwrap().iter().all(|t| t["own_mask"] == false));
    assert_eq!(report["mapping"]["placed"], 3);
    let verdict = report["verdict"].as_str().unwrap();
    assert!(verdict.starts_with("3 threads were placed where the mapping says"), "{verdict}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("of the 3 threads in the mapping 3 had their place"), "{notes}");
    assert!(!notes.contains("does not name") && !notes.contains("did not have"), "{notes}");
    assert_eq!(state.journals().len(), 0);
}

#[test]
fn threads_run_where_evenly_map_says_in_json() {
    run_where_the_map_says("hybrid", |state, _| mapped(state, &["--json"]));
}

#[test]
fn threads_run_where_evenly_map_says_in_csv() {
    run_where_the_map_says("juggle", |state, _| mapped(state, &["--out"]));
}

#[test]
fn threads_run_where_evenly_map_says_in_masks() {
    run_where_the_map_says("secretary", |_, masks| masks.to_owned());
}

fn are_given_back(end: Signal) {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let masks = masks_file(&state);
    let expected = masks_in(&masks);
    let program = Running::computing(3);
    let pid = program.pid().to_string();
    let options = ["attach", "--threads", "3", "--period", "10ms", "--budget", "50"];
    let mut evenly = state.start(&[&options[..], &["--map", &masks, &pid]].concat());
    wait_until("the threads to have their places", || in_place(program.pid(), &expected));
    // A thread that the program places itself stays there; the program's wish wins.
    let own = workers(program.pid())[0];
    let wish = expected.values().find(|cpus| **cpus != expected[&0]).unwrap();
    affinity::set(Tid(own), wish).unwrap();
    evenly.kill(end);
    evenly.wait();
    wait_until("the masks to be given back", || {
        workers(program.pid())
            .into_iter()
            .all(|t| mask(t).as_ref() == Some(if t == own { wish } else { &whole }))
    });
}

#[test]
fn places_are_given_back_when_evenly_is_ended() {
    are_given_back(Signal::TERM);
}

#[test]
fn places_are_given_back_when_evenly_is_killed() {
    are_given_back(Signal::KILL);
}

#[test]
fn ranks_are_told_by_their_environment() {
    let Some(whole) = whole() else { return };
    let (first, last) = (whole.first().unwrap(), whole.iter().last().unwrap());
    let state = State::new();
    let map = state.sign("ranks.csv");
    fs::write(&map, format!("id,pe\n0,{first}\n1,{last}\n5,{last}\n")).unwrap();
    let spmd = format!("{} --threads 1 --iters 1000000000000", workload("spmd"));
    // The second to be created is rank 0, and one is no rank.
    let script = format!(
        "OMPI_COMM_WORLD_RANK=1 SLURM_PROCID=0 {spmd} >/dev/null & PMI_RANK=0 {spmd} >/dev/null & \
         {spmd} >/dev/null & wait"
    );
    let mut evenly = state.run_with("juggle", 3, &["--map", &map], &["sh", "-c", &script]);
    let program = evenly.program();
    let rank_and_mask = || -> Vec<(Option<u64>, CpuSet)> {
        let proc = Proc::default();
        let processes = descendants(program).into_iter();
        let mut all: Vec<(Option<u64>, CpuSet)> = processes
            .filter(|p| proc.process_stat(*p).is_some_and(|s| s.name() == "spmd"))
            .filter_map(|p| {
                let rank = proc.rank(p).map(|(_, rank)| rank);
                let union = masks(p).into_values().reduce(|a, b| a.and(&b))?;
                Some((rank, union))
            })
            .collect();
        all.sort_by_key(|(rank, _)| *rank);
        all
    };
    let (one, other) = (CpuSet::single(first), CpuSet::single(last));
    wait_until("the ranks to have their places", || {
        let found = rank_and_mask();
        found.len() == 3 && found[1..] == [(Some(0), one.clone()), (Some(1), other.clone())]
    });
    for p in descendants(program) {
        signal(p, Signal::KILL);
    }
    evenly.wait();
    let notes = evenly.report()["notes"].to_string();
    for said in [
        "of the 3 ranks in the mapping 2 had their place",
        "names rank 5, which the program did not have",
        "1 thread in processes without a rank",
    ] {
        assert!(notes.contains(said), "{said}: {notes}");
    }
}

/// Slurm tells its rank to a batch script, and with it to everything that the script starts.
#[test]
fn a_rank_that_evenly_has_itself_tells_nothing_apart() {
    let Some(_) = whole() else { return };
    let state = State::new();
    let masks = masks_file(&state);
    let expected = masks_in(&masks);
    let command = churn();
    let args = ["run", "--threads", "3", "--map", &masks, "--"];
    let args: Vec<&str> = args.into_iter().chain(command.iter().map(String::as_str)).collect();
    let mut c = state.command(&args);
    let running =
        Running(c.env("SLURM_PROCID", "0").stderr(std::process::Stdio::null()).spawn().unwrap());
    wait_until("the threads to have their places", || {
        let named = |p: &Pid| Proc::default().process_stat(*p).is_some_and(|s| s.name() == "churn");
        descendants(running.pid()).iter().filter(|p| named(p)).any(|p| in_place(*p, &expected))
    });
}

#[test]
fn mappings_that_cannot_be_are_refused_before_anything_is_started() {
    let state = State::new();
    let file = |name: &str, text: &str| {
        let path = state.sign(name);
        fs::write(&path, text).unwrap();
        path
    };
    let (empty, far) = (file("empty", ""), file("far", "id,pe\n0,16000\n"));
    let (twice, fine) = (file("twice", "id,pe\n0,0\n0,0\n"), file("fine", "id,mask\n0,ffffffff\n"));
    for (args, words) in [
        (vec!["--map", "/nowhere/at/all"], "cannot be read"),
        (vec!["--map", &empty], "it is empty"),
        (vec!["--map", &far], "none of these is among them"),
        (vec!["--map", &twice], "line 3: task 0 is there twice"),
        (vec!["--map", &fine, "--policy", "observe"], "the policy observe moves nothing"),
    ] {
        let command = ["--", "sh", "-c", "echo started >&2"];
        let (status, said) = state.output(&[&["run"], &args[..], &command].concat());
        assert_eq!(status, Some(125), "{args:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains(words), "{args:?}: {said}");
        assert!(!said.contains("started") && said.contains("--map"), "{said}");
    }
}

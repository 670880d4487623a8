//! `evenly doctor` where it is alone: on a machine with four CPUs in two nodes and control groups of
//! version 2, on which nobody else computes. What ails a program because of the machine can be made there:
//! memory on the other node, a quota, a neighbour on a CPU of its own, CPUs that idle.
//! Each of these has a program beside it that it does not ail.
//!
//! Verdicts only, and no figures of speed. Skipped unless `EVENLY_LAB=1`; see `evenly.rs` for the variables.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "common/builds.rs"]
mod builds;
mod common;

use builds::{evenly, succeed, target};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use evenly_lab::{Include, Lab, LabOptions};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(180);
/// A busy host makes emulated CPUs unequal, and threads of equal work late.
const TRIES: u32 = 3;
/// What that makes of a program that nothing ails.
const OF_THE_HOST: [&str; 2] = ["slow_cpu", "uneven_work"];

/// A program in the guest.
struct Patient {
    name: &'static str,
    command: String,
    /// What is started before it, and ended behind it.
    before: &'static str,
    /// The finding, and the CPUs that it has to name; none for a healthy one.
    ails: Option<(&'static str, &'static str)>,
    /// What the line to paste or the evidence has to contain.
    told: &'static str,
}

const fn ailing(
    name: &'static str,
    kind: &'static str,
    cpus: &'static str,
    told: &'static str,
    command: String,
) -> Patient {
    Patient { name, command, before: "", ails: Some((kind, cpus)), told }
}

const fn healthy(name: &'static str, command: String) -> Patient {
    Patient { name, command, before: "", ails: None, told: "" }
}

/// One to four seconds of an emulated CPU for each thread, as fast as the host is.
fn spmd(threads: u32, options: &str) -> String {
    format!("spmd --threads {threads} --phases 16 --iters 2500000 {options}")
}

/// The same work in shorter phases: turns are too long to let threads share CPUs within one, and a CPU that a busy
/// host makes slow for a while is one for all.
fn short(threads: u32) -> String {
    format!("spmd --threads {threads} --phases 132 --iters 300000")
}

/// Another program, which computes on one CPU as long as this one runs.
const HOG: &str = "noise --always --cpu 1 >/dev/null & N=$!";

/// Two of the four CPUs are left: last of all, as the others stay away.
const TWO_CPUS: &str = "for c in 2 3; do echo 0 >/sys/devices/system/cpu/cpu$c/online; done";

#[test]
fn what_the_machine_does_to_a_program_is_told() {
    let _one = common::one_lab();
    if !common::wanted() {
        return;
    }
    let options = options();
    common::in_a_lab(
        || Lab::boot(options.clone()),
        |lab| {
            let mut table = String::new();
            let mut wrong = String::new();
            let mut see = |lab: &mut Lab, p: &Patient| {
                let (mut row, mut fault) = verdict(lab, p);
                for _ in 1..TRIES {
                    if fault.is_empty() {
                        break;
                    }
                    eprintln!("once more: {fault}");
                    (row, fault) = verdict(lab, p);
                }
                eprint!("{row}");
                table.push_str(&row);
                wrong.push_str(&fault);
            };
            let group = "/sys/fs/cgroup/quota";
            let within = |quota: &str, command: String| {
                format!(
                    "sh -c 'mkdir -p {group}; echo {quota} 100000 >{group}/cpu.max; \
                     echo $$ >{group}/cgroup.procs; exec {command}'"
                )
            };
            let on_node_1 = |memory: u32| {
                let work = "--kind memory --working-set 24M --phases 16 --iters 400000";
                format!("odd memory-on {memory} taskset c spmd --threads 2 {work}")
            };
            let openmp =
                |n| format!("env OMP_NUM_THREADS={n} omp_spmd --phases 16 --iters 2500000");
            for p in [
                ailing("5 threads on 4 CPUs", "uneven_division", "0-3", "idle", short(5)),
                healthy("4 threads on 4 CPUs", spmd(4, "")),
                ailing(
                    "OMP_NUM_THREADS=2 on 4 CPUs",
                    "too_few_threads",
                    "",
                    "OMP_NUM_THREADS=4",
                    openmp(2),
                ),
                healthy("OMP_NUM_THREADS=4 on 4 CPUs", openmp(4)),
                ailing(
                    "4 threads, quota of 0.8 CPUs (version 2)",
                    "quota",
                    "",
                    "/sys/fs/cgroup/quota/cpu.max",
                    within("80000", spmd(4, "")),
                ),
                healthy("4 threads, quota of 8 CPUs (version 2)", within("800000", spmd(4, ""))),
                ailing(
                    "8 threads, quota of 2 CPUs (version 2)",
                    "quota",
                    "",
                    "/sys/fs/cgroup/quota/cpu.max",
                    within("200000", spmd(8, "")),
                ),
                healthy("2 threads, quota of 2 CPUs (version 2)", within("200000", spmd(2, ""))),
                ailing(
                    "threads on node 1, memory on node 0",
                    "remote_memory",
                    "0-1",
                    "numactl",
                    on_node_1(0),
                ),
                healthy("threads on node 1, memory there", on_node_1(1)),
                Patient {
                    before: HOG,
                    ..ailing("4 threads, a hog on CPU 1", "neighbour", "1", "noise", spmd(4, ""))
                },
                Patient {
                    before: HOG,
                    ..healthy(
                        "2 threads on CPUs 2-3, a hog on CPU 1",
                        format!("taskset c {}", spmd(2, "")),
                    )
                },
                Patient {
                    before: TWO_CPUS,
                    ..ailing("3 threads on 2 CPUs", "uneven_division", "0-1", "idle", short(3))
                },
                Patient { before: TWO_CPUS, ..healthy("4 threads on 2 CPUs", spmd(4, "")) },
            ] {
                see(lab, &p);
            }
            eprintln!("\n| program | what ails it | verdict |\n|---|---|---|\n{table}");
            assert!(wrong.is_empty(), "{wrong}");
        },
    );
}

/// A row of the table, and what is wrong with it.
fn verdict(lab: &mut Lab, p: &Patient) -> (String, String) {
    let script = format!(
        "cd /tmp; rm -f d.json; {}\nevenly doctor --json d.json -- {} >out 2>said; S=$?; \
         [ -z \"$N\" ] || kill $N; echo status $S; cat d.json",
        p.before, p.command
    );
    let output = common::run(lab, &script, PATIENCE);
    let said = common::run(lab, "cat /tmp/said /tmp/out", PATIENCE).text();
    let text = output.text();
    let Some(json) = text.strip_prefix("status 0\n") else {
        return (String::new(), format!("{}: {text}\n{said}\n", p.name));
    };
    let value: Value = serde_json::from_str(json).unwrap();
    let all = value["findings"].as_array().unwrap();
    let kinds: Vec<&str> = all.iter().map(|f| f["kind"].as_str().unwrap()).collect();
    // Where nothing was seen nothing could be told.
    let seen = value["threads"].as_u64().unwrap() > 0 && value["seconds"].as_f64().unwrap() > 0.3;
    // What a busy host does to CPUs aside, the first has to be the ailment.
    let of_the_host = |k: &str| OF_THE_HOST.contains(&k);
    let first = all.iter().find(|f| !of_the_host(f["kind"].as_str().unwrap()));
    let right = seen
        && match p.ails {
            Some((kind, cpus)) => first.is_some_and(|f| {
                let evidence = f["evidence"].to_string() + &f["paste"].to_string();
                let told = evidence.clone() + &f["sentence"].to_string();
                let place = cpus.is_empty() || f["cpus"] == cpus;
                f["kind"] == kind && place && told.contains(p.told)
            }),
            None => kinds.iter().all(|k| of_the_host(k)),
        };
    let kinds: Vec<&str> =
        kinds.into_iter().filter(|k| p.ails.is_some() || !of_the_host(k)).collect();
    let found = if kinds.is_empty() { String::from("none") } else { kinds.join(", ") };
    let row = format!("| {} | {} | {found} |\n", p.name, p.ails.map_or("nothing", |a| a.0));
    let mut fault = String::new();
    if !right {
        let _ = writeln!(fault, "{} is not {:?}:\n{said}", p.name, p.ails);
    }
    (row, fault)
}

fn options() -> LabOptions {
    let (fixed, linked) = (workloads("workloads-static", true), workloads("workloads", false));
    let include = |host: PathBuf, name: &str| Include { host, guest: format!("/usr/bin/{name}") };
    let mut all = vec![include(evenly(), "evenly")];
    all.extend(["spmd", "noise", "odd"].map(|name| include(fixed.join(name), name)));
    // One with a runtime that can be seen to be loaded.
    all.push(include(linked.join("omp_spmd-gomp"), "omp_spmd"));
    LabOptions { cpus: 4, numa: 2, include: all, ..LabOptions::default() }
}

fn workloads(name: &str, fixed: bool) -> PathBuf {
    let out = target().join(name);
    let mut make = Command::new("make");
    make.args(["-s", "-C", concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads")]);
    make.args(fixed.then_some("STATIC=1")).arg(format!("OUT={}", out.display()));
    succeed(&mut make);
    out
}

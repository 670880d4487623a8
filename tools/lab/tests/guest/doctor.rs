//! `evenly doctor` where it is alone: on a machine with four CPUs in two nodes and control groups of
//! version 2, on which nothing else computes. What ails a program because of the machine can be made there:
//! memory on the other node, a quota, a neighbour on a CPU of its own, CPUs that idle.
//! Each of these has a program beside it that it does not ail.
//!
//! Verdicts only, and no figures of speed.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;

use evenly_lab::{Include, Lab, LabOptions};
use serde_json::Value;

use crate::builds::{evenly, workloads};
use crate::guests::text;

/// What a busy host makes of a program that nothing ails: emulated CPUs are unequal then, and threads of equal
/// work late.
const OF_THE_HOST: [&str; 2] = ["slow_cpu", "uneven_work"];

/// A program in the guest.
pub(crate) struct Patient {
    pub(crate) name: &'static str,
    command: String,
    /// What is done before it, and undone behind it.
    before: &'static str,
    after: &'static str,
    /// The finding, and the CPUs that it has to name; none for a healthy one.
    ails: Option<(&'static str, &'static str)>,
    /// What the line to paste or the evidence has to contain.
    contains: &'static str,
}

const fn ailing(
    name: &'static str,
    kind: &'static str,
    cpus: &'static str,
    contains: &'static str,
    command: String,
) -> Patient {
    Patient { name, command, before: "", after: "", ails: Some((kind, cpus)), contains }
}

const fn healthy(name: &'static str, command: String) -> Patient {
    Patient { name, command, before: "", after: "", ails: None, contains: "" }
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

/// Two of the four CPUs are left.
const TWO_CPUS: &str = "for c in 2 3; do echo 0 >/sys/devices/system/cpu/cpu$c/online; done";
const FOUR_CPUS: &str = "for c in 2 3; do echo 1 >/sys/devices/system/cpu/cpu$c/online; done";

pub(crate) fn patients() -> Vec<Patient> {
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
    let openmp = |n| format!("env OMP_NUM_THREADS={n} omp_spmd --phases 16 --iters 2500000");
    vec![
        ailing("doctor::five_threads_on_four_cpus", "uneven_division", "0-3", "idle", short(5)),
        healthy("doctor::four_threads_on_four_cpus", spmd(4, "")),
        ailing(
            "doctor::omp_num_threads_2_on_four_cpus",
            "too_few_threads",
            "",
            "OMP_NUM_THREADS=4",
            openmp(2),
        ),
        healthy("doctor::omp_num_threads_4_on_four_cpus", openmp(4)),
        ailing(
            "doctor::four_threads_with_a_quota_of_0_8_cpus",
            "quota",
            "",
            "/sys/fs/cgroup/quota/cpu.max",
            within("80000", spmd(4, "")),
        ),
        healthy("doctor::four_threads_with_a_quota_of_8_cpus", within("800000", spmd(4, ""))),
        ailing(
            "doctor::eight_threads_with_a_quota_of_2_cpus",
            "quota",
            "",
            "/sys/fs/cgroup/quota/cpu.max",
            within("200000", spmd(8, "")),
        ),
        healthy("doctor::two_threads_with_a_quota_of_2_cpus", within("200000", spmd(2, ""))),
        ailing(
            "doctor::threads_on_node_1_with_memory_on_node_0",
            "remote_memory",
            "0-1",
            "numactl",
            on_node_1(0),
        ),
        healthy("doctor::threads_on_node_1_with_memory_there", on_node_1(1)),
        Patient {
            before: HOG,
            after: "kill $N",
            ..ailing(
                "doctor::four_threads_beside_a_hog_on_one_of_four_cpus",
                "neighbour",
                "1",
                "noise",
                spmd(4, ""),
            )
        },
        Patient {
            before: HOG,
            after: "kill $N",
            ..healthy(
                "doctor::two_threads_on_other_cpus_than_a_hog",
                format!("taskset c {}", spmd(2, "")),
            )
        },
        Patient {
            before: TWO_CPUS,
            after: FOUR_CPUS,
            ..ailing(
                "doctor::three_threads_on_two_cpus",
                "uneven_division",
                "0-1",
                "idle",
                short(3),
            )
        },
        Patient {
            before: TWO_CPUS,
            after: FOUR_CPUS,
            ..healthy("doctor::four_threads_on_two_cpus", spmd(4, ""))
        },
    ]
}

impl Patient {
    /// The first finding is what ails it, what a busy host does to CPUs aside; a healthy one has none.
    pub(crate) fn see(&self, lab: &mut Lab) {
        let script = format!(
            "cd /tmp; rm -f d.json; {}\nevenly doctor --json d.json -- {} >out 2>said; S=$?; \
             {}\necho status $S; cat d.json",
            self.before, self.command, self.after
        );
        let output = text(lab, &script);
        let said = text(lab, "cat /tmp/said /tmp/out");
        let Some(json) = output.strip_prefix("status 0\n") else { panic!("{output}\n{said}") };
        let value: Value = serde_json::from_str(json).unwrap();
        // Where nothing was seen nothing could be reported.
        let seen =
            value["threads"].as_u64().unwrap() > 0 && value["seconds"].as_f64().unwrap() > 0.3;
        assert!(seen, "{said}");
        let all = value["findings"].as_array().unwrap().iter();
        let of_the_host = |f: &&Value| OF_THE_HOST.contains(&f["kind"].as_str().unwrap());
        let mut own = all.filter(|f| !of_the_host(f));
        let Some((kind, cpus)) = self.ails else {
            assert_eq!(own.next(), None, "{said}");
            return;
        };
        let first = own.next().unwrap_or_else(|| panic!("{said}"));
        assert_eq!(first["kind"], kind, "{said}");
        assert!(cpus.is_empty() || first["cpus"] == cpus, "{said}");
        let text = ["evidence", "paste", "sentence"].map(|key| first[key].to_string()).concat();
        assert!(text.contains(self.contains), "{said}");
    }
}

pub(crate) fn options() -> LabOptions {
    let (fixed, linked) = (workloads("workloads-static", true), workloads("workloads", false));
    let include = |host: PathBuf, name: &str| Include { host, guest: format!("/usr/bin/{name}") };
    let mut all = vec![include(evenly(), "evenly")];
    all.extend(["spmd", "noise", "odd"].map(|name| include(fixed.join(name), name)));
    // One with a runtime that can be seen to be loaded.
    all.push(include(linked.join("omp_spmd-gomp"), "omp_spmd"));
    LabOptions { cpus: 4, numa: 2, include: all, ..LabOptions::default() }
}

//! Threads that spin hand over their CPU.

use crate::support::{Tool, text, workload};
use evenly_linux::affinity;
use evenly_model::{CpuSet, Tid};
use std::process::Stdio;

/// Two threads that meet so often at a spinning barrier of their own.
fn two_that_spin<'a>(spmd: &'a str, phases: &'a str) -> [&'a str; 9] {
    [spmd, "--threads", "2", "--barrier", "spin", "--iters", "50000", "--phases", phases]
}

/// Two threads on one CPU that meet at a spinning barrier of their own. Each meeting costs a slice of the kernel where
/// nobody hands over, so that it takes half a minute instead of half a second.
#[test]
fn threads_at_a_barrier_of_their_own_hand_over_their_cpu() {
    let tool = Tool::new();
    let cpu: CpuSet = affinity::get(Tid(0)).unwrap().iter().take(1).collect();
    let spmd = workload("spmd");
    let run = |options: &str, phases: &str| {
        let program = two_that_spin(&spmd, phases);
        let (output, report) = tool.json(&format!("-q --cpus {cpu} {options}"), &program);
        assert!(output.status.success(), "{report:#}");
        let made: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        let handed = report["handed_over"].clone();
        (made["checksum"].to_string(), handed)
    };
    let (_, handed) = run("", "5000");
    assert!(
        handed["asked"].as_u64() > Some(1000) && handed["given_s"].as_f64() > Some(0.0),
        "{handed}"
    );
    assert!(handed["place"].as_str().unwrap().contains("barrier.c:"), "{handed}");
    // It computes the same without, and nobody is asked.
    let (alone, handed) = run("--cooperate off", "100");
    assert!(handed.is_null(), "{handed}");
    assert_eq!(run("", "100").0, alone);
}

/// Two programs of two threads each, on the same two CPUs, that spin in each other's way. Would catch: programs that hand over
/// nothing to each other, or do although they are told not to.
#[test]
fn programs_beside_each_other_hand_over_their_cpus() {
    let cpus: CpuSet = affinity::get(Tid(0)).unwrap().iter().take(2).collect();
    if cpus.len() < 2 {
        return evenly_testing::skip("two-cpus", "only one CPU can be used");
    }
    let tool = Tool::new();
    let spmd = workload("spmd");
    let both = |options: &str, phases: &str| -> Vec<serde_json::Value> {
        let program = two_that_spin(&spmd, phases);
        let run = |name: &str| {
            let path = tool.path(name);
            let options = format!("-q --cpus {cpus} --json {} {options}", path.display());
            let started = tool.run(&options, &program).stdout(Stdio::null()).spawn();
            (started.unwrap(), path)
        };
        let started = ["first.json", "second.json"].map(run);
        let report = |(mut child, path): (std::process::Child, std::path::PathBuf)| {
            assert!(child.wait().unwrap().success());
            let report: serde_json::Value =
                serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
            report["handed_over"].clone()
        };
        started.map(report).to_vec()
    };
    for handed in both("", "20000") {
        assert!(handed["given_s"].as_f64() > Some(0.0), "{handed}");
    }
    for handed in both("--cooperate program", "200") {
        assert!(handed.is_null(), "{handed}");
    }
}

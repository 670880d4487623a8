//! Which threads are found, when balancing begins (promise P3), and when there is nothing to do.

use crate::support::{Tool, json, stderr, text, wait_until, workload};
use std::collections::BTreeSet;

/// Fields of the only line that a workload prints.
fn printed(stdout: &[u8]) -> serde_json::Value {
    serde_json::from_str(text(stdout).lines().last().unwrap()).unwrap()
}

/// A workload that uses this OpenMP runtime starts its threads under each of these policies as it does alone.
fn starts_as_many_threads_as_without_evenly(program: &str) {
    let tool = Tool::new();
    let program = workload(program);
    let threads = |output: std::process::Output| {
        assert!(output.status.success(), "{}", stderr(&output));
        printed(&output.stdout)["threads"].clone()
    };
    let args = ["--class", "S"];
    let bare = threads(tool.by(&program).args(args).output().unwrap());
    for policy in ["juggle", "hybrid"] {
        let options = format!("-q --policy {policy} --period 5ms");
        let wrapped = tool.run(&options, &[&program, args[0], args[1]]).output().unwrap();
        assert_eq!(bare, threads(wrapped), "{policy}");
    }
}

#[test]
fn programs_of_libgomp_start_as_many_threads_as_without_evenly() {
    starts_as_many_threads_as_without_evenly("ep-gomp");
}

#[test]
fn programs_of_libomp_start_as_many_threads_as_without_evenly() {
    if !std::path::Path::new(&workload("ep-omp")).exists() {
        return evenly_testing::skip("clang", "there is no ep-omp");
    }
    starts_as_many_threads_as_without_evenly("ep-omp");
}

#[test]
fn children_of_a_launcher_are_balanced_together() {
    let tool = Tool::new();
    let spmd = workload("spmd");
    let script = format!(
        "for i in 1 2 3; do {spmd} --threads 1 --iters 1500000000 --name-prefix rank >/dev/null & done; wait"
    );
    let file = tool.path("endless.json");
    let options = format!("-v --threads 3 --json {}", file.display());
    // Its children end with it.
    let endless = format!(
        "for i in 1 2 3; do {spmd} --threads 1 --iters 1000000000000 >/dev/null & all=\"$all $!\"; done; \
         trap 'trap - TERM; kill $all $$' TERM; wait"
    );
    let run = tool.start(&options, &["sh", "-c", &endless]);
    wait_until("all are balanced", || run.said().matches(" joins domain ").count() == 3);
    run.end();
    let report = json(&file);
    let pids: BTreeSet<i64> =
        report["threads"].as_array().unwrap().iter().filter_map(|t| t["pid"].as_i64()).collect();
    assert_eq!(pids.len(), 3, "{report:#}");
    assert!(report["processes"].as_u64() >= Some(4), "{report:#}");

    let (_, report) = tool.json("--only nobody*", &["sh", "-c", &script]);
    assert_eq!((&report["started"], &report["filtered"]), (&false.into(), &true.into()));
    let (_, report) = tool.json("--only rank*", &["sh", "-c", &script]);
    assert_eq!(report["threads"].as_array().unwrap().len(), 3, "{report:#}");
}

/// Others are held against `static`: a pause would let the kernel mix the threads, and they would
/// be placed anew, in another way. juggle shows that a run of this length has pauses.
#[test]
fn a_static_placement_stays() {
    let tool = Tool::new();
    let churn = workload("churn");
    let paused = |policy: &str| {
        let record = tool.path(policy);
        let options = format!("--policy {policy} --record {}", record.display());
        let (output, report) =
            tool.json(&options, &[&churn, "--workers", "3", "--duration-s", "12"]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(report["started"], true, "{report:#}");
        let text = std::fs::read_to_string(record).unwrap();
        let points: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|event: &serde_json::Value| event["event"] == "point")
            .collect();
        assert!(points.len() > 10);
        points.iter().filter(|p| p["paused"] == true).count()
    };
    assert_eq!(paused("static"), 0);
    assert_ne!(paused("juggle"), 0);
}

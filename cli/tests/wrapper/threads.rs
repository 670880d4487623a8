//! Which threads are found, when balancing begins (promise P3), and when there is nothing to do.

use crate::support::{Started, Tool, json, recorded, stderr, text, wait_until, workload};
use serde_json::Value;
use std::collections::BTreeSet;

/// Fields of the only line that a workload prints.
fn printed(stdout: &[u8]) -> Value {
    serde_json::from_str(text(stdout).lines().last().unwrap()).unwrap()
}

/// A workload that uses an OpenMP runtime starts as many threads under this policy as it does alone.
fn starts_as_many_threads_as_without_evenly(workload_name: &str, policy: &str) {
    let tool = Tool::new();
    let program = workload(workload_name);
    if !evenly_testing::is_built(&program) {
        return;
    }
    let threads = |output: std::process::Output| {
        assert!(output.status.success(), "{}", stderr(&output));
        printed(&output.stdout)["threads"].clone()
    };
    let args = ["--class", "S"];
    let bare = threads(tool.by(&program).args(args).output().unwrap());
    let options = format!("-q --policy {policy} --period 5ms");
    let wrapped = tool.run(&options, &[&program, args[0], args[1]]).output().unwrap();
    assert_eq!(bare, threads(wrapped));
}

#[test]
fn libgomp_under_juggle_starts_as_many_threads_as_without_evenly() {
    starts_as_many_threads_as_without_evenly("ep-gomp", "juggle");
}

#[test]
fn libgomp_under_hybrid_starts_as_many_threads_as_without_evenly() {
    starts_as_many_threads_as_without_evenly("ep-gomp", "hybrid");
}

#[test]
fn libomp_under_juggle_starts_as_many_threads_as_without_evenly() {
    starts_as_many_threads_as_without_evenly("ep-omp", "juggle");
}

#[test]
fn libomp_under_hybrid_starts_as_many_threads_as_without_evenly() {
    starts_as_many_threads_as_without_evenly("ep-omp", "hybrid");
}

/// The report on a launcher with three children of a thread each, which end with it, once this was waited for.
fn of_three_children(tool: &Tool, options: &str, until: impl Fn(&Started)) -> Value {
    let spmd = workload("spmd");
    let work = "--threads 1 --iters 1000000000000 --name-prefix rank";
    let script = format!(
        "for i in 1 2 3; do {spmd} {work} >/dev/null & all=\"$all $!\"; done; \
         trap 'trap - TERM; kill $all $$' TERM; wait"
    );
    let file = tool.path("report.json");
    let options = format!("-v {options} --json {}", file.display());
    let run = tool.start(&options, &["sh", "-c", &script]);
    until(&run);
    run.end();
    json(&file)
}

#[test]
fn children_of_a_launcher_are_balanced_together() {
    let tool = Tool::new();
    let report = of_three_children(&tool, "--threads 3", |run| {
        wait_until("all are balanced", || run.said().matches(" joins domain ").count() == 3);
    });
    let pids: BTreeSet<i64> =
        report["threads"].as_array().unwrap().iter().filter_map(|t| t["pid"].as_i64()).collect();
    assert_eq!(pids.len(), 3, "{report:#}");
    assert!(report["processes"].as_u64() >= Some(4), "{report:#}");
}

#[test]
fn children_of_a_launcher_are_balanced_where_the_filter_leaves_them() {
    let tool = Tool::new();
    let report = of_three_children(&tool, "--only rank*", |run| {
        wait_until("all are balanced", || run.said().matches(" joins domain ").count() == 3);
    });
    assert_eq!(report["threads"].as_array().unwrap().len(), 3, "{report:#}");
}

#[test]
fn children_of_a_launcher_are_not_balanced_where_the_filter_leaves_none() {
    let tool = Tool::new();
    let report = of_three_children(&tool, "--only nobody*", Started::wait_until_looked);
    assert_eq!((&report["started"], &report["filtered"]), (&false.into(), &true.into()));
}

/// Others are held against `static`: a pause would let the kernel mix the threads, and they would
/// be placed anew, in another way. When a run has a pause juggle shows.
#[test]
fn a_static_placement_stays() {
    let tool = Tool::new();
    let churn = workload("churn");
    // Ends a run once this is true of the points that are recorded, and returns these.
    let points_until = |policy: &str, is_enough: &dyn Fn(&[Value]) -> bool| {
        let (record, file) = (tool.path(policy), tool.path(&format!("{policy}.json")));
        let options = format!(
            "--policy {policy} --threads 3 --record {} --json {}",
            record.display(),
            file.display()
        );
        let points = || {
            let mut events = recorded(&record);
            events.retain(|e| e["event"] == "point");
            events
        };
        let run = tool.start(&options, &[&churn, "--workers", "3", "--duration-s", "300"]);
        wait_until("the points that are wanted are recorded", || is_enough(&points()));
        run.end();
        assert_eq!(json(&file)["started"], true);
        points()
    };
    let is_paused = |p: &&Value| p["paused"] == true;
    let at = |p: &Value| p["at"].as_u64().unwrap();
    let juggled = points_until("juggle", &|points| points.iter().any(|p| is_paused(&p)));
    let pause = at(juggled.iter().find(is_paused).unwrap());
    // In twice the time there would have been one.
    let fixed = points_until("static", &|points| points.last().is_some_and(|p| at(p) > 2 * pause));
    assert_eq!(fixed.iter().find(is_paused), None);
}

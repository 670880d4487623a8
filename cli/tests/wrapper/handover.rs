//! Threads that spin hand over their CPU.

use crate::support::{Tool, text, workload};
use evenly_linux::affinity;
use evenly_model::{CpuSet, Tid};

/// Two threads on one CPU that meet at a spinning barrier of their own. Each meeting costs a slice of the kernel where
/// nobody hands over, so that it takes half a minute instead of half a second.
#[test]
fn threads_at_a_barrier_of_their_own_hand_over_their_cpu() {
    let tool = Tool::new();
    let cpu: CpuSet = affinity::get(Tid(0)).unwrap().iter().take(1).collect();
    let spmd = workload("spmd");
    let run = |options: &str, phases: &str| {
        let two = [spmd.as_str(), "--threads", "2", "--barrier", "spin", "--iters", "50000"];
        let program = [&two[..], &["--phases", phases]].concat();
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

//! A program that is level is left as it is. Alone in its file, because tests of one file run beside
//! each other, and what they take from these threads is rightly balanced.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use serde_json::Value;

#[test]
fn where_no_benefit_is_possible_nothing_is_moved() {
    let Some(whole) = whole() else { return };
    let spmd = workload("spmd");
    let threads = whole.len().to_string();
    for policy in ["juggle", "hybrid"] {
        let mut waited = Vec::new();
        // Other work on this machine takes CPU time from the threads, which is then balanced.
        let shown = (0..6).any(|_| {
            let state = State::new();
            let json = state.sign("json");
            let mut args = vec!["run", "-q", "--no-guard", "--policy", policy, "--json", &json];
            args.extend(["--", &spmd, "--threads", &threads, "--iters", "1200000000"]);
            assert_eq!(state.output(&args).0, Some(0));
            let report: Value =
                serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
            let domain = &report["domains"][0];
            waited.push(domain["wait_share"].as_f64().unwrap());
            let quiet = report["started"] == true && *waited.last().unwrap() < 0.005;
            // Spreading the threads over the CPUs may take a move for each.
            let moves = domain["migrations"].as_u64().unwrap();
            assert!(!quiet || moves < whole.len() as u64, "{policy}: {report:#}");
            quiet
        });
        if !shown {
            let why = format!("{policy}: the machine is too busy; threads waited {waited:.3?}");
            return evenly_testing::skip("quiet", why);
        }
    }
}

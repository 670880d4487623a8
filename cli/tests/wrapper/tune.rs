//! `evenly tune` on a balancer that is at work.

use crate::schema::valid;
use crate::support::{Child, Tool, json, stderr, text, wait_until, workload};
use std::fs;
use std::process::Stdio;

#[test]
fn what_a_policy_goes_by_is_changed_while_it_is_at_work() {
    let tool = Tool::new();
    let churn = workload("churn");
    let log = tool.path("log");
    let options = "-v --policy hpc-auto --set weight-step=20";
    let program = [churn.as_str(), "--workers", "2", "--rate", "0", "--duration-s", "300"];
    let evenly = Child::spawn(
        tool.run(options, &program).stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap()),
    );
    let pid = evenly.id();
    wait_until("it can be tuned", || {
        tool.evenly(["tune", &pid]).output().unwrap().status.success()
    });
    let shown = text(&tool.evenly(["tune", &pid]).output().unwrap().stdout);
    let row = |name: &str| {
        let line = shown.lines().find(|l| l.trim_start().starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert!(shown.starts_with("hpc-auto\n") && !shown.contains("high-util"), "{shown}");
    assert_eq!((row("weight-step"), row("most-ratio")), ("20".into(), "8".into()));

    // What cannot be is one line, and changes nothing.
    for (value, words) in [
        ("most-ratio=0", "most-ratio cannot be 0: it must be a number from 1 to 1000"),
        ("most-ratio=x", "'x' is no number"),
        ("high-util=90", "hpc-auto does not look at high-util; it looks at patience"),
        ("ratio=4", "there is no parameter 'ratio'"),
    ] {
        let output = tool.evenly(["tune", &pid, "place-gain=7", value]).output().unwrap();
        let said = stderr(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let file = tool.path("tune.json");
    let given = ["most-ratio=4", "place-gain=10", "--json", file.to_str().unwrap()];
    let output = tool.evenly(["tune", &pid].iter().chain(&given)).output().unwrap();
    let changes = "place-gain 10 (was 5), most-ratio 4 (was 8)";
    assert_eq!(stderr(&output), format!("evenly: hpc-auto of process {pid}: {changes}\n"));
    let value = json(&file);
    valid(&value);
    let find = |name: &str| {
        let all = value["parameters"].as_array().unwrap();
        all.iter().find(|p| p["name"] == name).unwrap()["value"].as_f64()
    };
    assert_eq!((find("most-ratio"), find("weight-step")), (Some(4.0), Some(20.0)));
    // The balancer has seen it.
    let told = format!("tuned: {changes}");
    wait_until("the balancer goes by it", || fs::read_to_string(&log).unwrap().contains(&told));
    assert!(!fs::read_to_string(&log).unwrap().contains("place-gain 7"));
}

#[test]
fn what_cannot_be_tuned_is_told() {
    let tool = Tool::new();
    let churn = workload("churn");
    let program = [churn.as_str(), "--workers", "2", "--rate", "0", "--duration-s", "300"];
    let refused = |args: &[&str], words: &str| {
        let output = tool.evenly(args).output().unwrap();
        let said = stderr(&output);
        assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
        assert!(said.contains(words), "{said}");
    };
    refused(&["tune", "1"], "no evenly of this user is, or balances, process 1: none is running");
    refused(&["run", "--set", "weight-step=9", "--", "true"], "the policy auto has nothing");
    let wrong = ["run", "--policy", "hpc-uniform", "--set", "weight-step=9", "--", "true"];
    refused(&wrong, "hpc-uniform does not look at weight-step");
    let evenly = Child::spawn(tool.run("-q", &program).stdout(Stdio::null()));
    let pid = evenly.id();
    wait_until("it is at work", || {
        let output = tool.evenly(["tune", &pid]).output().unwrap();
        stderr(&output).contains("has a policy without parameters")
    });
}

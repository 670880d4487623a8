//! What the tests of `evenly doctor` share: how a program is diagnosed, and a control group with a quota.

#![allow(dead_code, unreachable_pub, reason = "shared by several tests")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::{State, schema};
use evenly_testing::groups::{Group, KEY};
use serde_json::Value;
use std::fs;

/// Settings of runtimes that may be in the environment of the tests.
const SETTINGS: [&str; 7] = [
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "KMP_LIBRARY",
];

/// Runs a command under `evenly doctor`, and returns what that reports, as JSON and as text.
pub fn diagnose(
    state: &State,
    command: &[impl AsRef<str>],
    environment: &[(String, String)],
) -> (Value, String) {
    let json = state.sign("diagnosis.json");
    let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    let args = [&["doctor", "--json", &json, "--"], &command[..]].concat();
    let mut evenly = state.command(&args);
    for name in SETTINGS {
        evenly.env_remove(name);
    }
    let output = evenly.envs(environment.iter().map(|(k, v)| (k, v))).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    schema::valid(&value);
    assert!(said.lines().count() <= 30, "more than a screen: {said}");
    (value, said)
}

/// The kinds of all findings, in their order.
pub fn kinds(diagnosis: &Value) -> Vec<String> {
    let all = diagnosis["findings"].as_array().unwrap();
    all.iter().map(|f| f["kind"].as_str().unwrap().to_owned()).collect()
}

/// A group with a quota in each 50 ms, and a script that runs its arguments in it. None, a skip, where none can
/// be made.
pub fn limited(name: &str, quota_us: u64) -> Option<(Group, String)> {
    let group = match Group::new("cpu", name) {
        Ok(group) => group,
        Err(e) => {
            evenly_testing::skip(KEY, format!("cannot make a control group: {e}"));
            return None;
        }
    };
    group.set_quota(Some(quota_us), 50_000).unwrap();
    let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.path().display());
    Some((group, script))
}

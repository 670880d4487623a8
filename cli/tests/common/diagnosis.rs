//! What the tests of `evenly doctor` share: a program, and what the doctor says of it.

#![allow(dead_code, unreachable_pub, reason = "shared by several tests")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use super::{State, schema};
use evenly_testing::groups::{Group, KEY};
use serde_json::Value;
use std::fs;

/// What runtimes heed, and a user may have set.
pub const SETTINGS: [&str; 7] = [
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "KMP_LIBRARY",
];

/// A program, and what ails it.
pub struct Patient {
    pub name: &'static str,
    pub command: Vec<String>,
    pub variables: Vec<(&'static str, String)>,
    /// The first finding; none for a healthy one.
    pub ails: Option<&'static str>,
    /// Whether the line to paste is tried, and has to mend it.
    pub mended: bool,
    /// Whether it is seen by idle CPUs, which others take on a busy machine: that is to be said then.
    pub by_idle: bool,
}

pub fn patient(name: &'static str, ails: &'static str, command: &[&str]) -> Patient {
    let command = command.iter().map(|w| (*w).to_owned()).collect();
    let ails = (ails != "healthy").then_some(ails);
    Patient { name, command, variables: Vec::new(), ails, mended: false, by_idle: false }
}

impl Patient {
    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// The line to paste mends it.
    pub fn mended(mut self) -> Self {
        self.mended = true;
        self
    }

    /// What ails it is seen by CPUs that are idle.
    pub fn by_idle(mut self) -> Self {
        self.by_idle = true;
        self
    }

    /// The same after the user has pasted what was proposed.
    pub fn pasted(&self, line: &str) -> Self {
        let command = ["sh", "-c", line].map(str::to_owned).into();
        Self { name: self.name, command, variables: self.variables.clone(), ..*self }
    }

    /// What the doctor says, as JSON and as text.
    pub fn see(&self, state: &State) -> (Value, String) {
        let json = state.sign("diagnosis.json");
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let args = [&["doctor", "--json", &json, "--"], &command[..]].concat();
        let mut evenly = state.command(&args);
        for name in SETTINGS {
            evenly.env_remove(name);
        }
        let output = evenly.envs(self.variables.iter().map(|(k, v)| (k, v))).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {said}", self.name);
        let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        schema::valid(&value);
        assert!(said.lines().count() <= 30, "{}: more than a screen: {said}", self.name);
        (value, said)
    }
}

pub fn kinds(diagnosis: &Value) -> Vec<String> {
    let all = diagnosis["findings"].as_array().unwrap();
    all.iter().map(|f| f["kind"].as_str().unwrap().to_owned()).collect()
}

/// A group with a quota, and a shell that runs a program in it.
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

//! The pure crates depend on nothing impure: `cargo metadata` is read, and a crate that has come
//! to depend on the system, at any remove, fails here by name.
#![allow(missing_docs, clippy::unwrap_used)]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Crates without system calls, clocks, files.
const PURE: [&str; 5] =
    ["evenly-model", "evenly-policy", "evenly-engine", "evenly-sim", "evenly-doctor"];

/// What makes a crate impure: ours that talk to the world, and doors to the system.
const IMPURE: [&str; 22] = [
    "evenly-linux",
    "evenly-map",
    "evenly-probe",
    "evenly-topology",
    "evenly-trace",
    "evenly-compare",
    "evenly-report",
    "evenly-top",
    "evenly-figures",
    "evenly-capi",
    "evenly-errors",
    "evenly-cli",
    "evenly-lab",
    "evenly",
    "libc",
    "rustix",
    "nix",
    "tokio",
    "mio",
    "linux-raw-sys",
    "windows-sys",
    "getrandom",
];

/// What is built elsewhere does not matter, and need not be downloaded to be looked at.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// Names of all that each package needs to run: normal dependencies, those of tests left out.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--filter-platform", PLATFORM])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let name_of: BTreeMap<&str, &str> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| (p["id"].as_str().unwrap(), p["name"].as_str().unwrap()))
        .collect();
    let normal =
        |dep: &&Value| dep["dep_kinds"].as_array().unwrap().iter().any(|k| k["kind"].is_null());
    let mut direct: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let deps = node["deps"].as_array().unwrap().iter().filter(normal);
        direct
            .entry(name_of[node["id"].as_str().unwrap()].to_owned())
            .or_default()
            .extend(deps.map(|d| name_of[d["pkg"].as_str().unwrap()].to_owned()));
    }
    direct
}

fn all_of(package: &str, direct: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![package.to_owned()];
    while let Some(name) = open.pop() {
        for dep in direct.get(&name).into_iter().flatten() {
            if found.insert(dep.clone()) {
                open.push(dep.clone());
            }
        }
    }
    found
}

#[test]
fn pure_crates_depend_on_nothing_impure() {
    let direct = dependencies();
    for pure in PURE {
        assert!(direct.contains_key(pure), "{pure} is not in the workspace");
        let all = all_of(pure, &direct);
        let bad: Vec<_> = all.iter().filter(|d| IMPURE.contains(&d.as_str())).collect();
        assert!(bad.is_empty(), "{pure} depends on {bad:?}, and is to be pure");
    }
}

/// That the test above can fail: a crate that does talk to the kernel is recognised.
#[test]
fn an_impure_crate_is_recognised() {
    let all = all_of("evenly-linux", &dependencies());
    assert!(all.iter().any(|d| IMPURE.contains(&d.as_str())), "{all:?}");
}

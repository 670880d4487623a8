//! The graph of rooms: arrows point down only, and the pure crates depend on nothing impure. `cargo
//! metadata` is read, and a crate that has come to depend on a room above its own, or on the system, at
//! any remove, fails here by name.
#![allow(missing_docs, clippy::unwrap_used)]

mod workspace;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The rooms, each with the folders in it, from the lowest up. A crate may depend on crates of its own
/// room and of rooms below it. Rooms side by side do not know each other.
const ROOMS: [&[&str]; 6] = [
    &["core"],
    &["policies", "theory"],
    &["linux", "loops", "probe", "reports", "sim"],
    &["mapping"],
    &["papers"],
    &["tools", "cli"],
];

/// What a room beside or above may be used for all the same, and why.
const EXCEPTIONS: [(&str, &str, &str); 1] =
    [("evenly-cli", "evenly-errors", "errors in one line, as the tools print them")];

/// Rooms of which all crates are without system calls, clocks, files.
const PURE_ROOMS: [&str; 4] = ["core", "policies", "theory", "sim"];

/// Crates of other rooms that are so.
const PURE: [&str; 3] = ["evenly-doctor", "evenly-draw", "evenly-power5"];

/// What makes a crate impure: ours that talk to the world, and doors to the system.
const IMPURE: [&str; 23] = [
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
    "evenly-loops",
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

fn metadata() -> Value {
    workspace::metadata(&["--filter-platform", PLATFORM])
}

/// Names of all that each package needs to run: normal dependencies, those of tests left out.
fn dependencies(metadata: &Value) -> BTreeMap<String, BTreeSet<String>> {
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

/// The folder of the workspace in which each of its packages is.
fn rooms(metadata: &Value) -> BTreeMap<String, String> {
    let root = metadata["workspace_root"].as_str().unwrap();
    let members: BTreeSet<&str> = metadata["workspace_members"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|p| members.contains(p["id"].as_str().unwrap()))
        .map(|p| {
            let path = p["manifest_path"].as_str().unwrap();
            let inside = path.strip_prefix(root).unwrap().trim_start_matches('/');
            let room = inside.split('/').next().unwrap();
            (p["name"].as_str().unwrap().to_owned(), room.to_owned())
        })
        .collect()
}

/// Arrows that do not point down, as sentences.
fn wrong_arrows(
    direct: &BTreeMap<String, BTreeSet<String>>,
    rooms: &BTreeMap<String, String>,
) -> Vec<String> {
    let height = |room: &str| {
        ROOMS.iter().position(|r| r.contains(&room)).unwrap_or_else(|| panic!("no room {room}"))
    };
    let mut wrong = Vec::new();
    for (package, room) in rooms {
        for needed in direct.get(package).into_iter().flatten() {
            let Some(other) = rooms.get(needed) else { continue };
            let excepted =
                EXCEPTIONS.iter().any(|(a, b, _)| (a, b) == (&package.as_str(), &needed.as_str()));
            if room != other && height(other) >= height(room) && !excepted {
                wrong.push(format!("{package} in {room}/ depends on {needed} in {other}/"));
            }
        }
    }
    wrong
}

#[test]
fn arrows_between_rooms_point_down() {
    let metadata = metadata();
    let rooms = rooms(&metadata);
    assert!(rooms.len() > 15, "{rooms:?}");
    let wrong = wrong_arrows(&dependencies(&metadata), &rooms);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// That the test above can fail.
#[test]
fn an_arrow_that_points_up_is_recognised() {
    let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    let direct =
        BTreeMap::from([(String::from("a"), set(&["b"])), (String::from("b"), set(&["c"]))]);
    let rooms = [("a", "core"), ("b", "linux"), ("c", "probe")];
    let rooms = rooms.map(|(p, r)| (p.to_owned(), r.to_owned())).into();
    let wrong = wrong_arrows(&direct, &rooms);
    assert_eq!(wrong, ["a in core/ depends on b in linux/", "b in linux/ depends on c in probe/"]);
}

#[test]
fn pure_crates_depend_on_nothing_impure() {
    let metadata = metadata();
    let (direct, rooms) = (dependencies(&metadata), rooms(&metadata));
    let of_rooms = rooms.iter().filter(|(_, room)| PURE_ROOMS.contains(&room.as_str()));
    for pure in of_rooms.map(|(name, _)| name.as_str()).chain(PURE) {
        assert!(direct.contains_key(pure), "{pure} is not in the workspace");
        let all = all_of(pure, &direct);
        let bad: Vec<_> = all.iter().filter(|d| IMPURE.contains(&d.as_str())).collect();
        assert!(bad.is_empty(), "{pure} depends on {bad:?}, and is to be pure");
    }
}

/// That the test above can fail: a crate that does talk to the kernel is recognised.
#[test]
fn an_impure_crate_is_recognised() {
    let all = all_of("evenly-linux", &dependencies(&metadata()));
    assert!(all.iter().any(|d| IMPURE.contains(&d.as_str())), "{all:?}");
}

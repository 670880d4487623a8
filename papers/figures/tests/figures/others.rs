//! What SCOTCH and METIS make of the applications is what is recorded, where they are installed. (KaHIP is no
//! package of Debian, and not held to its record.)
//!
//! To record it anew: `EVENLY_BLESS=1 cargo test --release -p evenly-figures --test figures others`, and then
//! bless the figures (committed.rs).

use crate::blessing;
use evenly_figures::others::{RECORD, record};
use evenly_map::{Job, PROGRAMS};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Of SCOTCH; that of METIS is 5.1.0.
const VERSION: &str = "7.0.3";

#[test]
fn others_are_recorded_as_they_are() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = &evenly_figures::others::PROGRAMS[..];
    let wanted = if blessing() { all } else { &["scotch", "metis"] };
    let is_missing = |name: &&&str| {
        let program = PROGRAMS.iter().find(|p| p.name == **name);
        program.is_none_or(|p| p.find(&path).is_none())
    };
    if let Some(missing) = wanted.iter().find(is_missing) {
        assert!(!blessing(), "{missing} is not installed; nothing can be recorded");
        println!("skipped: {missing} is not installed");
        return;
    }
    // Another version may map in another way.
    let said = Command::new("scotch_gmap").arg("-V").output().unwrap();
    let says = |stream: &[u8]| String::from_utf8_lossy(stream).contains(VERSION);
    // On which of the two it says so depends on the version.
    if !says(&said.stdout) && !says(&said.stderr) && !blessing() {
        println!("skipped: another SCOTCH than {VERSION}");
        return;
    }
    let runs_of_each = if blessing() { usize::MAX } else { 1 };
    let made = record(wanted, runs_of_each, &|name, r| {
        let program = PROGRAMS.iter().find(|p| p.name == name).unwrap();
        let job =
            Job { graph: r.graph, cluster: r.cluster, present: r.present, options: r.options };
        // One that fails must not be taken for one that moves nothing.
        program.map(&path, &job).unwrap()
    })
    .unwrap();
    if blessing() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/nuco/others.csv");
        fs::write(file, made).unwrap();
        return;
    }
    for line in made.lines() {
        assert!(RECORD.lines().any(|l| l == line), "not what is recorded: {line}");
    }
}

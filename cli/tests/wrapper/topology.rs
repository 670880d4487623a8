//! `evenly topology` where memory cannot be measured: what is declared is shown, and named as that.

use crate::schema::valid;
use crate::support::{Tool, stderr, text};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Distances that the firmware declares (SLIT), as hwloc writes them: kind 5 is of the system.
const SLIT: &str = r#"<distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
<indexes length="4">0 1 </indexes><u64values length="12">10 21 31 10 </u64values></distances2></topology>"#;

/// A program that runs others for which mbind fails.
fn refuse(tool: &Tool) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/refuse.c");
    let program = tool.path("refuse");
    let built = Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(source).status();
    assert!(built.unwrap().success());
    program
}

#[test]
fn where_memory_cannot_be_bound_there_is_the_slit_and_it_is_named() {
    let tool = Tool::new();
    let xml = tool.path("two.xml");
    let described = ["topology", "--synthetic", "numa:2 core:1", "--export", xml.to_str().unwrap()];
    assert!(tool.evenly(described).output().unwrap().status.success());
    let two = fs::read_to_string(&xml).unwrap().replace("</topology>", SLIT);
    fs::write(&xml, two).unwrap();
    let cache = tool.path("cache");
    let run = |args: &[&str]| {
        let mut c = Command::new(refuse(&tool));
        // hwloc takes this machine for that of the XML.
        c.env("HWLOC_XMLFILE", &xml).env("HWLOC_THISSYSTEM", "1").env("XDG_CACHE_HOME", &cache);
        c.args([tool.exe(), "topology", "--measure"]).args(args).output().unwrap()
    };
    let output = run(&["--json", "-"]);
    if output.status.code() == Some(77) {
        return evenly_testing::skip("seccomp", stderr(&output));
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    valid(&found);
    assert_eq!((&found["source"], &found["nodes"]), (&json!("here"), &json!(2)));
    let factors = &found["factors"];
    assert_eq!(factors["source"], "slit", "{found:#}");
    assert_eq!(factors["matrix"], json!([[1.0, 2.1], [3.1, 1.0]]));
    assert!(factors["low"].is_null() && factors["high"].is_null() && found["measured"].is_null());
    let [note] = &found["notes"].as_array().unwrap()[..] else { panic!("{found:#}") };
    let note = note.as_str().unwrap();
    let why = "not measured: memory cannot be bound to NUMA node 0: Operation not permitted";
    assert!(note.starts_with(why), "{note}");
    assert!(
        note.ends_with("; the factors: declared by the firmware (SLIT), not measured"),
        "{note}"
    );
    let said = text(&run(&[]).stdout);
    let head =
        "latency over that of the own memory (declared by the firmware (SLIT), not measured):";
    assert!(said.contains(head) && said.contains(note), "{said}");
    // Nothing is kept as if it had been measured.
    assert!(!cache.join("evenly/topology").exists());
}

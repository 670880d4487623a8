//! One module changes a machine: `actuate`. The sources of the engine and of its agents are read.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::{Path, PathBuf};

/// All that an `Actuator` has.
const WRITES: [&str; 9] = [
    "place",
    "confine",
    "restore",
    "release",
    "weigh",
    "unweigh",
    "beat",
    "move_memory",
    "go_on_moving",
];

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    entries.flat_map(|p| if p.is_dir() { sources(&p) } else { vec![p] }).collect()
}

/// Without tests, comments and white space.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().filter(|l| !l.trim_start().starts_with("//"));
    lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect()
}

#[test]
fn no_module_but_actuate_calls_an_actuator() {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR"));
    let src = engine.join("src");
    let trait_is = std::fs::read_to_string(src.join("machine.rs")).unwrap();
    let of_trait = trait_is.split("pub trait Actuator {").nth(1).unwrap();
    let of_trait = of_trait.split("\n}\n").next().unwrap();
    assert_eq!(of_trait.matches("\n    fn ").count(), WRITES.len(), "a call is not in the list");
    let mut in_actuate = 0;
    let policies = sources(&engine.join("../../policies"));
    let policies: Vec<PathBuf> = (policies.into_iter())
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .filter(|path| path.components().any(|c| c.as_os_str() == "src"))
        .collect();
    for agent in ["secretary", "phase"] {
        assert!(policies.iter().any(|path| path.to_string_lossy().contains(agent)), "{agent}");
    }
    for path in sources(&src).into_iter().chain(policies) {
        let (name, code) = (path.file_name().unwrap().to_str().unwrap(), code(&path));
        // Machines have one name, so that it can be looked for.
        for machine in ["dynMachine", "dynActuator"] {
            for (at, _) in code.match_indices(machine) {
                assert!(code[..at].ends_with("machine:&mut"), "{name}: {}", &code[at - 20..at]);
            }
        }
        let mut found = WRITES.to_vec();
        found.retain(|write| code.contains(&format!("machine.{write}(")));
        if name == "actuate.rs" {
            in_actuate = found.len();
        } else {
            assert!(found.is_empty(), "{name} calls {found:?}");
        }
    }
    assert_eq!(in_actuate, WRITES.len());
}

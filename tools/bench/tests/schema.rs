//! A benchmark, made for good, writes JSON as its schema says. What it measures does not matter here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
}

/// The program evenly, beside the benchmarks; built where this package is tested alone.
fn evenly(bench: &Path) -> PathBuf {
    let evenly = bench.with_file_name("evenly");
    if !evenly.exists() {
        let target = bench.parent().and_then(Path::parent).unwrap();
        succeed(
            Command::new(env!("CARGO"))
                .args(["build", "--quiet", "--locked", "--package", "evenly-cli", "--target-dir"])
                .arg(target),
        );
    }
    evenly
}

/// What stands in this file: as its own schema, the one that it names, says.
#[track_caller]
fn valid(file: &Path) -> Value {
    let value: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let name = value["schema"].as_str().unwrap().replace('/', "-");
    let schemas = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    let schema = std::fs::read_to_string(schemas.join(format!("{name}.json"))).unwrap();
    let validator = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path)).collect();
    assert!(errors.is_empty(), "{errors:?}\n{value:#}");
    value
}

#[test]
fn a_comparison_of_balancers_writes_what_the_schema_describes() {
    let room = tempfile::tempdir().unwrap();
    let json = room.path().join("secretary.json");
    succeed(
        Command::new(env!("CARGO_BIN_EXE_evenly-bench"))
            .args(["secretary", "--cpus", "8", "--runs", "1", "--phase-ms", "500", "--json"])
            .arg(&json),
    );
    let value = valid(&json);
    assert_eq!(value["schema"], "evenly.bench-secretary/1");
    // Without costs, and with them.
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|r| r["costs"] == true).collect::<Vec<_>>(), [false, true]);
    // The schema knows what must be there.
    let schema = include_str!("../../../docs/schemas/evenly.bench-secretary-1.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    for member in ["rows", "crossover_cpus", "period_s"] {
        let mut without = value.clone();
        without.as_object_mut().unwrap().remove(member);
        assert!(!validator.is_valid(&without), "{member} may be missing");
    }
}

#[test]
#[ignore = "takes long: ./dev test --all"]
fn a_real_benchmark_writes_what_the_schema_describes() {
    let bench = Path::new(env!("CARGO_BIN_EXE_evenly-bench"));
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return evenly_testing::skip("two-cpus", "fewer than two CPUs");
    }
    let room = tempfile::tempdir().unwrap();
    let workloads = room.path().join("workloads");
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads");
    let out = format!("OUT={}", workloads.display());
    succeed(Command::new("make").args(["-s", "-C", sources, &out]));
    let json = room.path().join("bench.json");
    succeed(
        Command::new(bench)
            .args(["run", "--quick", "--only", "balanced-2-on-2", "--runs", "1", "--evenly"])
            .arg(evenly(bench))
            .arg("--workloads")
            .arg(&workloads)
            .arg("--json")
            .arg(&json)
            .env("EVENLY_STATE_DIR", room.path().join("state")),
    );
    // Unequal work: a loop of OpenMP, which needs no MPI and no clang.
    let uneven = room.path().join("uneven.json");
    let one = ["uneven", "--only", "triangle-gomp-3-passive", "--runs", "1", "--longer", "0.1"];
    succeed(
        Command::new(bench)
            .args(one)
            .arg("--evenly")
            .arg(evenly(bench))
            .arg("--workloads")
            .arg(&workloads)
            .arg("--json")
            .arg(&uneven)
            .env("EVENLY_STATE_DIR", room.path().join("state")),
    );
    let value = valid(&uneven);
    let arms = value["cases"][0]["arms"].as_array().unwrap();
    assert!(arms.len() == 7 && arms.iter().all(|a| a["seconds"].as_array().unwrap().len() == 1));
    assert_eq!(arms.iter().filter(|a| !a["own"].is_null()).count(), 5, "{value:#}");
    let value = valid(&json);
    // It is not empty: one benchmark with a run of each arm, and the reports of evenly's three.
    assert_eq!(value["benchmarks"].as_array().unwrap().len(), 1, "{value:#}");
    let arms = value["benchmarks"][0]["arms"].as_array().unwrap();
    assert!(arms.iter().all(|a| a["seconds"].as_array().unwrap().len() == 1), "{value:#}");
    assert_eq!(arms.iter().filter(|a| !a["own"].is_null()).count(), 3, "{value:#}");
}

/// MetBench over a real MPI: ranks print where their time went, and how soon parts followed work that turned
/// round. The values are not checked here.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ranks_tell_what_makespans_do_not() {
    let bench = Path::new(env!("CARGO_BIN_EXE_evenly-bench"));
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return evenly_testing::skip("two-cpus", "fewer than two CPUs");
    }
    if !Command::new("mpicc.openmpi").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return evenly_testing::skip("openmpi", "mpicc.openmpi is not installed");
    }
    let room = tempfile::tempdir().unwrap();
    let workloads = room.path().join("workloads");
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads");
    let out = format!("OUT={}", workloads.display());
    succeed(Command::new("make").args(["-s", "-C", sources, &out]));
    let json = room.path().join("uneven.json");
    // As short as work can be that turns round once.
    let chosen =
        ["--only", "metbench-var-openmpi-yield", "--only", "metbench-2-on-2-openmpi-yield"];
    succeed(
        Command::new(bench)
            .args(["uneven", "--runs", "1", "--longer", "0.5", "--policy", "hpc-auto"])
            .args(chosen)
            .arg("--evenly")
            .arg(evenly(bench))
            .arg("--workloads")
            .arg(&workloads)
            .arg("--json")
            .arg(&json)
            .env("EVENLY_STATE_DIR", room.path().join("state")),
    );
    let value = valid(&json);
    let arms = |case: usize| value["cases"][case]["arms"].as_array().unwrap();
    let names = |case| arms(case).iter().map(|a| a["name"].as_str().unwrap()).collect::<Vec<_>>();
    for case in [0, 1] {
        assert_eq!(names(case), ["limit", "kernel", "hpc-auto"]);
    }
    for arm in &arms(0)[1..] {
        // 23 iterations, of which the 15th is the first with other loads.
        let turning = &arm["turning"];
        assert_eq!((&turning["reversals"], &arm["balanced"]), (&1.into(), &Value::Null), "{arm:#}");
        assert_eq!(turning["each"][0][0]["iteration"], 15, "{turning:#}");
    }
    // No policy gives parts there.
    assert_eq!(arms(0)[1]["turning"]["parts_never"], 1, "{value:#}");
    for arm in &arms(1)[1..] {
        let part = |name: &str| arm["balanced"][name]["value"].as_f64().unwrap();
        assert!((0.0..100.0).contains(&part("lost_percent")), "{arm:#}");
        // The clocks of CPU time and of time need not agree to the last tick.
        assert!((-5.0..100.0).contains(&part("taken_percent")), "{arm:#}");
        let held = arm["balanced"]["held_percent"]["value"].as_f64();
        assert!(held.is_none_or(|p| (0.0..100.0).contains(&p)), "{arm:#}");
        assert_eq!(arm["turning"], Value::Null);
    }
    let own = arms(1)[2]["balanced"]["own_percent"]["value"].as_f64().unwrap();
    assert!(own > 0.0 && own < 100.0, "{value:#}");
}

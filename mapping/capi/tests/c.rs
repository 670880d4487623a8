//! A program in C, built against the header and each form of the library: it gets the same answers as
//! `evenly map`, and nothing that it can do wrong ends in anything but a status.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_map::{Case, Files, machine, present, write};
use evenly_mapper::{EvenlyMapObjectives, EvenlyMapOptions, EvenlyMapProblem};
use evenly_model::Nanos;
use evenly_nuco::map::{MAPPERS, Options};
use evenly_testing::compiled::{Library, code_behind, run};
use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

const FACTORS: &str = "1,1.36,2.48,3.6\n1.36,1,3.6,2.48\n2.48,3.6,1,1.36\n3.6,2.48,1.36,1\n";

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Builds a program, linked with the shared or with the static library.
fn build(file: &Path, shared: bool) -> PathBuf {
    let (include, into) = (source("include"), Path::new(env!("CARGO_TARGET_TMPDIR")));
    Library { name: "evenly_mapper", include: &include, flags: &[], into }.build(file, shared)
}

fn programs() -> &'static [PathBuf; 2] {
    static BUILT: OnceLock<[PathBuf; 2]> = OnceLock::new();
    BUILT.get_or_init(|| [true, false].map(|shared| build(&source("tests/map.c"), shared)))
}

/// The example of the manual, as it stands there, prints what stands there.
#[test]
fn the_manuals_example_works() {
    let manual = fs::read_to_string(source("../../docs/map.md")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("strategy.c");
    fs::write(&file, code_behind(&manual, "C example")).unwrap();
    let output = run(&mut Command::new(build(&file, true)));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.trim_end(), code_behind(&manual, "its output").trim_end());
}

/// As `./dev install` lays it out, by what pkg-config says of it.
#[test]
fn what_is_installed_is_found_by_pkg_config() {
    let prefix = tempfile::tempdir().unwrap();
    let at = |path: &str| prefix.path().join(path);
    for dir in ["include", "lib/pkgconfig"] {
        fs::create_dir_all(at(dir)).unwrap();
    }
    let own = std::env::current_exe().unwrap();
    let library = "libevenly_mapper.so";
    fs::copy(own.with_file_name(library), at("lib").join(library)).unwrap();
    fs::copy(source("include/evenly_mapper.h"), at("include/evenly_mapper.h")).unwrap();
    let form = fs::read_to_string(source("evenly_mapper.pc.in")).unwrap();
    let described = form
        .replace("@prefix@", prefix.path().to_str().unwrap())
        .replace("@version@", env!("CARGO_PKG_VERSION"));
    fs::write(at("lib/pkgconfig/evenly_mapper.pc"), described).unwrap();
    let output = run(Command::new("pkg-config")
        .env("PKG_CONFIG_PATH", at("lib/pkgconfig"))
        .args(["--cflags", "--libs", "evenly_mapper >= 0.1"]));
    let flags = String::from_utf8(output.stdout).unwrap();
    let program = at("map");
    run(Command::new("cc")
        .arg(source("tests/map.c"))
        .args(flags.split_whitespace())
        .arg(format!("-Wl,-rpath,{}", at("lib").display()))
        .arg("-o")
        .arg(&program));
    assert!(!run(Command::new(&program).arg("layout")).stdout.is_empty());
}

#[test]
fn the_structures_are_those_of_the_header() {
    type P = EvenlyMapProblem;
    type O = EvenlyMapOptions;
    type V = EvenlyMapObjectives;
    let expected = [
        ("problem", size_of::<P>()),
        ("loads_s", offset_of!(P, loads_s)),
        ("movable", offset_of!(P, movable)),
        ("present", offset_of!(P, present)),
        ("edges", offset_of!(P, edges)),
        ("edge_bytes", offset_of!(P, edge_bytes)),
        ("cores", offset_of!(P, cores)),
        ("core_speed", offset_of!(P, core_speed)),
        ("nodes", offset_of!(P, nodes)),
        ("bandwidths", offset_of!(P, bandwidths)),
        ("cache_levels", offset_of!(P, cache_levels)),
        ("core_caches", offset_of!(P, core_caches)),
        ("options", size_of::<O>()),
        ("alpha", offset_of!(O, alpha)),
        ("seed", offset_of!(O, seed)),
        ("max_migrations", offset_of!(O, max_migrations)),
        ("tolerance", offset_of!(O, tolerance)),
        ("beta", offset_of!(O, beta)),
        ("windows", offset_of!(O, windows)),
        ("objectives", size_of::<V>()),
        ("hop_bytes", offset_of!(V, hop_bytes)),
        ("migrations", offset_of!(V, migrations)),
        ("migrated_bytes", offset_of!(V, migrated_bytes)),
    ];
    let expected: String = expected.map(|(name, at)| format!("{name} {at}\n")).concat();
    let output = run(Command::new(&programs()[0]).arg("layout"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn what_is_wrong_is_refused_with_a_line() {
    for program in programs() {
        let output = run(Command::new(program).arg("wrong"));
        let said = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines.len(), 20, "{said}");
        for (line, words) in lines.iter().zip([
            "problem: struct_size is 8;",
            "tasks is 0; 1 to 4000000 is needed",
            "tasks is 18446744073709551615;",
            "loads_s is NULL; 2 elements are needed",
            "present is not aligned",
            "edge_to is NULL; 1 elements are needed",
            "edge from 0 to 2: there is no task 2;",
            "task 1: the load is -1;",
            "the factors from node 0 to node 1 is 1e308; a number above 0, from 1e-9 to 1e9,",
            "the bandwidths from node 0 to node 0 is 1e308;",
            "core 1: its speed must be above 0,",
            "edge from 0 to 1: the number of messages is 1e308;",
            "there is no algorithm 'best'; there are nuco+,",
            "tolerance is -1;",
            "windows is 0; a number above 0, from 1e-9 to 1e9, is needed",
            "beta is NaN;",
            "alpha is 1e308; a number that is at most 1e18 is needed",
            "options: struct_size is 96; 72 or 88 is needed",
            "cache_levels is 17; 0 to 16 is needed",
            "core_caches is NULL; 2 elements are needed",
        ]) {
            assert!(line.starts_with(words), "{line}, not: {words}");
        }
    }
}

/// What a byte counts for and how long an assignment holds; and programs built before one could say so.
#[test]
fn choices_of_nuco_plus_are_made() {
    for program in programs() {
        run(Command::new(program).arg("choices"));
    }
}

/// A bound that is not reached is told, and by the function to whoever asks.
#[test]
fn a_bound_that_is_not_reached_is_told() {
    for program in programs() {
        run(Command::new(program).arg("bounds"));
    }
}

/// Cores of unequal speed, nodes of two hosts, bandwidths, and problems of before there were caches.
#[test]
fn machines_are_as_they_are_said_to_be() {
    for program in programs() {
        run(Command::new(program).arg("machines"));
    }
}

/// Charm++ is C++.
#[test]
#[ignore = "needs clang: ./dev test --all"]
fn the_header_is_for_cpp_too() {
    if !Command::new("clang").arg("--version").output().is_ok_and(|o| o.status.success()) {
        return evenly_testing::skip("clang", "clang is not installed");
    }
    let own = std::env::current_exe().unwrap();
    let libraries = own.parent().unwrap();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("map-cpp");
    // Without its library, which is not needed.
    run(Command::new("clang")
        .args(["-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(source("include"))
        .arg(source("tests/map.cpp"))
        .arg("-L")
        .arg(libraries)
        .arg("-levenly_mapper")
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .arg("-o")
        .arg(&program));
    run(&mut Command::new(&program));
}

/// The same dumps, machine and options for the C program and for what `evenly map` is made of; a machine
/// without caches that cores share, and one with.
#[test]
fn the_answers_are_those_of_evenly_map() {
    let dir = tempfile::tempdir().unwrap();
    let factors = dir.path().join("factors.csv");
    fs::write(&factors, FACTORS).unwrap();
    let options = Options { time_limit: Nanos::ZERO, ..Options::default() };
    let machines = ["numa:4 core:8", "numa:4 l3:2 core:4"];
    for (topology, dump) in
        machines.into_iter().flat_map(|m| ["lb_test_p32", "kneighbor_p32"].map(|dump| (m, dump)))
    {
        let described = machine(topology, Some(&factors)).unwrap();
        let caches: Vec<String> =
            described.cluster.caches().iter().map(|level| level.factor.to_string()).collect();
        assert_eq!(caches.len(), usize::from(topology.contains("l3")));
        let file =
            |kind: &str| source(&format!("../../policies/nuco/tests/data/charm/{dump}.{kind}.csv"));
        let (objects, edges) = (file("objects"), file("edges"));
        let files = Files {
            objects: Some(objects.clone()),
            edges: Some(edges.clone()),
            ..Files::default()
        };
        let input = files.read().unwrap();
        let cluster = described.cluster.clone();
        let (now, from) = present(&input, &cluster, None).unwrap();
        let (factors_from, caches_from) = (described.factors_from, described.caches_from);
        let topology = topology.to_owned();
        let background = None;
        let case = Case {
            input,
            cluster,
            topology,
            factors_from,
            caches_from,
            present: now,
            from,
            background,
            by_work: false,
        };
        for mapper in MAPPERS {
            let mapped = case.map(mapper, &options);
            let csv = evenly_map::format("csv").unwrap();
            let expected = {
                let (graph, cluster) = (&case.input.graph, &case.cluster);
                write(csv, graph, cluster, &case.present, &mapped.mapping, &[]).unwrap()
            };
            let worth = mapped.objectives;
            for program in programs() {
                let mut c = Command::new(program);
                c.args([&objects, &edges, &factors]).args(["4", "32", mapper.name]).args(&caches);
                let output = run(&mut c);
                let found = String::from_utf8(output.stdout).unwrap();
                assert!(found == expected, "{dump}, {}: not the same mapping", mapper.name);
                let said = String::from_utf8(output.stderr).unwrap();
                let said: Vec<f64> = said.split_whitespace().map(|w| w.parse().unwrap()).collect();
                let migrations = worth.migrations as f64;
                assert_eq!(said, [worth.makespan_s, worth.nuco_messages, migrations], "{dump}");
            }
        }
    }
}

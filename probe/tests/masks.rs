//! Masks by which evenly moves threads are hidden from the program, and those that it sets itself are not.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::built;
use evenly_model::{CpuSet, Nanos};
use evenly_phase::Openings;
use evenly_probe::load::{Calls, keep, preload};
use evenly_probe::waiting::Mapping;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The CPUs of this process; None of one: no mask can be narrowed.
fn whole() -> Option<CpuSet> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap();
    let whole: CpuSet = list.trim().parse().unwrap();
    if whole.len() < 2 {
        evenly_testing::skip("two-cpus", "one CPU: no mask can be narrowed");
        return None;
    }
    Some(whole)
}

/// `masks`, with the library and this mapping.
fn masks(mapping: &Mapping) -> Command {
    let library = keep(Calls::None, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let (name, value) = mapping.variable();
    let mut command = Command::new("timeout");
    command.arg("60").arg(built("masks", "gcc", &[])).env(name, value);
    for variable in ["OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"] {
        command.env_remove(variable);
    }
    command.env("LD_PRELOAD", preload(&library, None).unwrap());
    command
}

/// What `masks` prints, while threads are kept on single CPUs or not; and how many CPUs there are.
fn seen(pins: bool, base: impl Fn(&CpuSet) -> CpuSet) -> Option<(String, usize)> {
    let whole = whole()?;
    let mapping = Mapping::new().unwrap();
    mapping.set_base(&base(&whole)).unwrap();
    mapping.openings().unwrap().hold(pins);
    let output = masks(&mapping).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some((String::from_utf8(output.stdout).unwrap(), whole.len()))
}

/// Would catch: a pool that a runtime sizes by the one CPU on which its thread was put; a child that stays there; a
/// binding of the program's own that is hidden or undone.
#[test]
fn masks_of_evenly_are_hidden_and_those_of_the_program_are_not() {
    let Some((seen, n)) = seen(true, CpuSet::clone) else { return };
    let expected = format!(
        "put: {n}\nthread: {n}\nfork: {n}\ncommand: {n} of {n}\nbound: 1 of 1\npast: {n} of 1\n\
         set: 1\nthread: 1\nown: 1 of 1\nbelow: 1 of 1\ndeeper: 1 of 1\n"
    );
    assert_eq!(seen, expected);
}

#[test]
fn masks_are_shown_as_they_are_while_evenly_sets_none() {
    let Some((seen, _)) = seen(false, CpuSet::clone) else { return };
    let expected = "put: 1\nthread: 1\nfork: 1\ncommand: 1 of 1\nbound: 1 of 1\npast: 1 of 1\n\
                    set: 1\nthread: 1\nown: 1 of 1\nbelow: 1 of 1\ndeeper: 1 of 1\n";
    assert_eq!(seen, expected);
}

/// Would catch: a mask that a program has written into the mapping, and that others are shown or put on.
#[test]
fn a_mask_without_the_cpu_on_which_a_thread_is_is_not_believed() {
    let Some((seen, _)) = seen(true, |_| CpuSet::default()) else { return };
    assert!(seen.starts_with("put: 1\nthread: 1\nfork: 1\ncommand: 1 of 1\n"), "{seen}");
}

/// Would catch: a mask that somebody sets from outside while threads are pinned, and that new threads and programs do not
/// keep, as it is taken for one of evenly's.
#[test]
fn masks_are_shown_as_they_are_once_somebody_else_has_set_one() {
    let Some(whole) = whole() else { return };
    let mapping = Mapping::new().unwrap();
    mapping.set_base(&whole).unwrap();
    let barriers = mapping.openings().unwrap();
    barriers.hold(true);
    let mut command = masks(&mapping);
    command.arg("told").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, format!("put: {}\n", whole.len()));
    let mut seen = Vec::new();
    mapping.reader().unwrap().read(Nanos::ZERO, &mut seen).unwrap();
    let [masks] = &seen[..] else { panic!("one thread has waited: {seen:?}") };
    barriers.show_masks(masks.pid);
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(rest, "told: 1\nthread: 1\ncommand: 1 of 1\ndeeper: 1 of 1\n");
}

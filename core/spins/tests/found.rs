//! What is found in code that a compiler made, and in bytes that none did.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(target_arch = "x86_64")]

mod common;

use common::{functions, spins};
use evenly_spins::{Machine, Module, is_go, place};
use object::{Object, ObjectSegment, ObjectSymbol};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;

fn library(dir: &Path, flags: &[&str]) -> Vec<u8> {
    common::library(dir, "cc", "waits.c", flags)
}

/// The functions in which something was found.
fn found_in(bytes: &[u8]) -> Vec<String> {
    let (found, all) = (Module::of(bytes).unwrap().spins, functions(bytes));
    let name =
        |offset: u64| all.iter().find(|(_, within)| within.contains(&offset)).unwrap().0.clone();
    let mut names: Vec<String> = found.iter().map(|spin| name(spin.offset)).collect();
    for (spin, name) in found.iter().zip(&names) {
        // With delays it is the jump back.
        assert_eq!(spin.bytes == [0xf3, 0x90], !name.starts_with("back_off"), "{name} {spin:?}");
        assert_eq!(bytes[spin.offset as usize..][..2], spin.bytes);
    }
    names.sort();
    names.dedup();
    names
}

const WAITS: [&str; 8] = [
    "back_off",
    "back_off_and_try",
    "back_off_through",
    "barrier",
    "bounded",
    "calls",
    "test_and_set",
    "ticket",
];

#[test]
fn loops_that_wait_are_found_and_delays_are_not() {
    let dir = tempfile::tempdir().unwrap();
    for flags in [&["-O2"][..], &["-O3"], &["-Os"], &["-O1", "-fno-reorder-blocks"]] {
        assert_eq!(found_in(&library(dir.path(), flags)), WAITS, "{flags:?}");
    }
}

/// Without optimising, the counter of a delay is in memory, on the thread's own stack.
#[test]
fn delays_are_none_without_optimising_either() {
    let dir = tempfile::tempdir().unwrap();
    // Of those that back off: registers count and point in turns.
    let waits = &WAITS[3..];
    assert_eq!(found_in(&library(dir.path(), &["-O0"])), waits);
    assert_eq!(found_in(&library(dir.path(), &["-O0", "-fomit-frame-pointer"])), waits);
}

/// A place within a loop is of that loop; where loops are nested, of the inner one. Elsewhere nobody waits.
#[test]
fn places_are_of_the_loop_around_them() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = library(dir.path(), &["-O2", "-g"]);
    let (module, all) = (Module::of(&bytes).unwrap(), functions(&bytes));
    assert!(!module.spins.is_empty());
    for spin in &module.spins {
        assert!(spin.turn.contains(&spin.offset), "{spin:?}");
        for at in spin.turn.clone() {
            let found = module.spin_at(at).unwrap();
            assert!(found.turn.contains(&at));
            assert!(found.turn.end - found.turn.start <= spin.turn.end - spin.turn.start);
        }
    }
    let (_, work) = all.iter().find(|(name, _)| name == "delay").unwrap();
    assert!(work.clone().all(|at| module.spin_at(at).is_none()));
}

/// Of a loop that calls a function it is not known whether it waits; what it stores says that it does not.
#[test]
fn loops_that_may_wait_are_found_around_places() {
    let dir = tempfile::tempdir().unwrap();
    for flags in [["-O2"], ["-Os"], ["-O0"]] {
        let bytes = common::library(dir.path(), "cc", "doubt.c", &flags);
        assert_eq!(Module::of(&bytes).unwrap().spins, []);
        for (name, within) in functions(&bytes) {
            let places: Vec<u64> = within.clone().collect();
            let found = Module::doubtful(&bytes, &places).unwrap();
            let expected = usize::from(name.starts_with("may_"));
            assert_eq!(found.len(), expected, "{name} {flags:?}: {found:?}");
            assert!(found.iter().all(|s| within.contains(&s.offset) && s.turn.contains(&s.offset)));
            let outside = [within.start.wrapping_sub(1), within.end];
            let of_this = |s: &evenly_spins::Spin| within.contains(&s.offset);
            assert!(!Module::doubtful(&bytes, &outside).unwrap().iter().any(of_this));
        }
    }
}

/// The name of a place is its function, with the line where the file has been compiled with it.
#[test]
fn places_have_the_names_of_the_source() {
    let source = include_str!("waits.c");
    let line = 1 + source.lines().position(|l| l.contains("void barrier(")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let name = |flags: &[&str]| {
        let bytes = library(dir.path(), flags);
        // The first that waits.
        let at = Module::of(&bytes).unwrap().spins[0].offset;
        (place(&bytes, at, "made.so"), place(&bytes, u64::MAX, "made.so"))
    };
    let (with_lines, outside) = name(&["-O2", "-g"]);
    let with_lines = with_lines.unwrap();
    let at = with_lines.strip_prefix("barrier (waits.c:").and_then(|l| l.strip_suffix(')'));
    let at: usize = at.unwrap_or_else(|| panic!("{with_lines}")).parse().unwrap();
    assert!((line..line + 8).contains(&at), "{at} is not behind {line}");
    assert_eq!(outside, None);
    assert_eq!(name(&["-O2"]).0.as_deref(), Some("barrier"));
    assert_eq!(place(b"#!/bin/sh", 0, "made.so"), None);
}

/// Would catch: the name of the last exported function in front of a place, as in a stripped libomp.
#[test]
fn a_function_without_a_name_does_not_have_that_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let names = |flags: &[&str]| -> Vec<String> {
        let bytes = library(dir.path(), flags);
        let spins = Module::of(&bytes).unwrap().spins;
        spins.iter().map(|spin| place(&bytes, spin.offset, "made.so").unwrap()).collect()
    };
    let mut known = names(&["-O2", "-s"]);
    known.iter_mut().filter(|name| *name == "ticket").for_each(|name| *name = "made.so".into());
    let hidden = "-Dticket=__attribute__((visibility(\"hidden\"))) ticket";
    assert_eq!(names(&["-O2", "-s", hidden]), known);
    assert!(known.iter().any(|name| name == "made.so") && known.iter().any(|n| n == "barrier"));
}

/// Go's runtime handles signals past the C library.
#[test]
fn a_program_of_go_is_known_by_its_sections() {
    let dir = tempfile::tempdir().unwrap();
    let plain = library(dir.path(), &["-O2"]);
    let (made, go) = (dir.path().join("made.so"), dir.path().join("go.so"));
    for section in [".gopclntab", ".go.buildinfo", ".note.go.buildid"] {
        let mut copy = std::process::Command::new("objcopy");
        copy.arg("--add-section").arg(format!("{section}={}", made.display()));
        assert!(copy.arg(&made).arg(&go).status().unwrap().success());
        assert!(is_go(std::fs::File::open(&go).unwrap()), "{section}");
    }
    assert!(!is_go(std::io::Cursor::new(&plain)));
}

/// A jump with a prefix that means nothing begins with that, which the handler would not carry out.
#[test]
fn a_jump_with_a_prefix_is_no_place() {
    // L: call +0; test eax, eax; je L; ret
    let plain = [0xe8, 0, 0, 0, 0, 0x85, 0xc0, 0x74, 0xf7, 0xc3];
    let at =
        |code: &[u8]| Machine::X86.loops(code, &[0], &[]).iter().map(|w| w.at).collect::<Vec<_>>();
    assert_eq!(at(&plain), [7]);
    for prefix in [0x2e, 0x3e, 0xf2] {
        let hinted = [0xe8, 0, 0, 0, 0, 0x85, 0xc0, prefix, 0x74, 0xf6, 0xc3];
        assert_eq!(at(&hinted), [0; 0], "{prefix:x}");
    }
}

/// What stands for the allocator is called while all signals are blocked.
#[test]
fn an_allocator_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let with_free = library(dir.path(), &["-O2", "-Dwork=free"]);
    assert_eq!(Module::of(&with_free).unwrap().spins.len(), WAITS.len(), "it calls one");
    let is_one = library(dir.path(), &["-O2", "-Dbarrier=free", "-fno-builtin"]);
    assert_eq!(Module::of(&is_one).unwrap().spins, []);
}

/// Of the C library it is the lock that programs spin for, and nothing else.
#[test]
fn of_the_c_library_it_is_the_spin_lock() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = maps.split_whitespace().find(|word| word.contains("/libc.so.6")).unwrap();
    let bytes = std::fs::read(path).unwrap();
    let found = Module::of(&bytes).unwrap().spins;
    assert_eq!(found.iter().map(|s| &s.bytes[..]).collect::<Vec<_>>(), [[0xf3, 0x90]]);
    let file = object::File::parse(&*bytes).unwrap();
    let lock = file.dynamic_symbols().find(|s| s.name() == Ok("pthread_spin_lock")).unwrap();
    let segment =
        file.segments().find(|s| (s.address()..s.address() + s.size()).contains(&lock.address()));
    let at =
        found[0].offset - segment.as_ref().unwrap().file_range().0 + segment.unwrap().address();
    assert!((lock.address()..lock.address() + 32).contains(&at));
}

/// Would catch: functions that are taken from the table of symbols.
#[test]
fn a_stripped_library_has_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let whole = Module::of(&library(dir.path(), &["-O2"])).unwrap();
    let stripped = Module::of(&library(dir.path(), &["-O2", "-s"])).unwrap();
    assert_eq!(stripped.spins.len(), whole.spins.len());
}

#[test]
fn a_pause_is_found_only_where_an_instruction_begins() {
    // mov eax, 0x90f3; mov eax, [rdi]; jmp to the second byte of the first, which is the pause: never decoded so.
    let within = [0xb8, 0xf3, 0x90, 0x00, 0x00, 0x8b, 0x07, 0xeb, 0xf8];
    assert_eq!(spins(&within), [0; 0]);
    // pause; cmp dword [rdi], 0; je -7
    let waits = [0xf3, 0x90, 0x83, 0x3f, 0x00, 0x74, 0xf9, 0xc3];
    assert_eq!(spins(&waits), [0]);
    // pause; dec ecx; jne -6
    let delays = [0xf3, 0x90, 0xff, 0xc9, 0x75, 0xfa, 0xc3];
    assert_eq!(spins(&delays), [0; 0]);
    // A byte that is no instruction, and a pause behind it.
    let broken = [0x06, 0xf3, 0x90, 0x83, 0x3f, 0x00, 0x74, 0xf9];
    assert_eq!(spins(&broken), [0; 0]);
}

#[test]
fn files_that_are_no_modules_are_named() {
    let said = |bytes: &[u8]| Module::of(bytes).unwrap_err().to_string();
    assert!(said(b"#!/bin/sh\n\xf3\x90").starts_with("no module: "));
    assert!(said(b"").starts_with("no module: "));
}

#[test]
fn damaged_modules_are_no_reason_to_panic() {
    let dir = tempfile::tempdir().unwrap();
    let whole = library(dir.path(), &["-O2"]);
    proptest!(ProptestConfig::with_cases(300), |(changes in vec((0..whole.len(), any::<u8>()), 1..40), cut in 0..whole.len())| {
        let mut bytes = whole.clone();
        for (at, to) in changes {
            bytes[at] = to;
        }
        let _ = Module::of(&bytes);
        let _ = Module::of(&bytes[..cut]);
    });
}

proptest! {
    #[test]
    fn any_bytes_are_decoded(bytes in vec(prop_oneof![Just(0xf3), Just(0x90), Just(0x74), any::<u8>()], 0..200)) {
        for at in spins(&bytes) {
            prop_assert!(matches!(bytes[at], 0xf3 | 0x70..=0x7f | 0x0f | 0xe9 | 0xeb));
        }
    }
}

/// Calls of several lengths, and what is none.
#[test]
fn it_is_known_whether_code_ends_in_a_call() {
    let calls: [&[u8]; 6] = [
        &[0x90, 0xe8, 1, 2, 3, 4],
        &[0xff, 0xd0],
        &[0x41, 0xff, 0xd4],
        &[0xff, 0x14, 0xc5, 1, 2, 3, 4],
        &[0x66, 0xff, 0x15, 1, 2, 3, 4],
        &[0xcc, 0xcc, 0xff, 0x50, 0x18],
    ];
    assert!(calls.iter().all(|code| Machine::X86.end_in_call(code)));
    let others: [&[u8]; 5] =
        [&[], &[0xe8], &[0xe9, 1, 2, 3, 4], &[0xe8, 1, 2, 3, 4, 0x90], &[0x48, 0x89, 0xc7]];
    assert!(!others.iter().any(|code| Machine::X86.end_in_call(code)));
    // bl, blr x9; b, ret, and half a call.
    assert!(Machine::Arm.end_in_call(&[0, 0, 0x02, 0, 0, 0x94]));
    assert!(Machine::Arm.end_in_call(&0xd63f_0120_u32.to_le_bytes()));
    for other in [0x1400_0002_u32, 0xd65f_03c0] {
        assert!(!Machine::Arm.end_in_call(&other.to_le_bytes()));
    }
    assert!(!Machine::Arm.end_in_call(&[0, 0, 0x94]));
}

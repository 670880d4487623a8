//! Loops without `pause` of which a turn leaves nothing behind, and loops that look like them.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(target_arch = "x86_64")]

mod common;

use common::{functions, library};
use evenly_spins::spins;
use std::collections::BTreeSet;

/// Those of a library in which something was found, and those that it has.
fn found(bytes: &[u8]) -> (BTreeSet<String>, BTreeSet<String>) {
    let places = evenly_spins::Module::of(bytes).unwrap().spins;
    let is_back = |bytes: [u8; 2]| match bytes[0] {
        0x0f => bytes[1] & 0xf0 == 0x80,
        opcode => matches!(opcode, 0x70..=0x7f | 0xe9 | 0xeb),
    };
    let all = functions(bytes);
    let of = |offset| all.iter().find(|(_, range)| range.contains(&offset)).unwrap().0.clone();
    let found = places.iter().map(|spin| {
        assert!(is_back(spin.bytes), "{spin:?}");
        of(spin.offset)
    });
    let names = all.iter().map(|(name, _)| name.clone());
    (found.collect(), names.filter(|n| n.starts_with("wait_") || n.starts_with("work_")).collect())
}

#[test]
fn turns_that_leave_nothing_behind_are_waits_and_no_others_are() {
    let dir = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang"] {
        for level in ["-O1", "-O2", "-O3", "-Os", "-Og"] {
            let library = library(dir.path(), compiler, "turns.c", &[level]);
            let (found, all) = found(&library);
            // What is carried there is always the same, or the loop is begun in the middle.
            let waits = all.iter().filter(|name| name.starts_with("wait_"));
            let of_gcc = compiler == "gcc" && !matches!(level, "-O1" | "-Og");
            let waits = waits.filter(|name| of_gcc || *name != "wait_all");
            let missed: Vec<&String> = waits.filter(|name| !found.contains(*name)).collect();
            let wrong: Vec<&String> = found.iter().filter(|n| n.starts_with("work_")).collect();
            assert!(
                missed.is_empty() && wrong.is_empty(),
                "{compiler} {level}: {missed:?} {wrong:?}"
            );
        }
    }
}

/// Without optimising, each value is on the stack as well: a store there may be read by a pointer.
#[test]
fn values_on_the_stack_are_followed_where_nothing_is_optimised() {
    let dir = tempfile::tempdir().unwrap();
    for compiler in ["gcc", "clang"] {
        let (found, _) = found(&library(dir.path(), compiler, "turns.c", &["-O0"]));
        let wrong: Vec<&String> = found.iter().filter(|n| n.starts_with("work_")).collect();
        assert!(wrong.is_empty(), "{compiler}: {wrong:?}");
        for name in ["flag", "pointed_to", "index", "ticket", "either", "both", "fence", "level"] {
            assert!(found.contains(&format!("wait_{name}")), "{compiler}: {name}");
        }
    }
}

/// What stands behind an immediate value is no jump, and a loop that others enter in the middle has to wait there, too.
#[test]
fn a_jump_is_one_only_where_an_instruction_begins() {
    // L: cmp dword [rdi], 0; je L; ret
    assert_eq!(spins(&[0x83, 0x3f, 0x00, 0x74, 0xfb, 0xc3]), [3]);
    // mov eax, 0xfb740000; the same bytes as the jump.
    assert_eq!(spins(&[0x83, 0x3f, 0x00, 0xb8, 0x74, 0xf9, 0x00, 0x00, 0xc3]), [0; 0]);
    // The beginning is within an instruction: mov eax, 0x003f83f3; je 1
    assert_eq!(spins(&[0xb8, 0x90, 0x83, 0x3f, 0x00, 0x74, 0xfb, 0xc3]), [0; 0]);
    // jmp M; L: mov eax, [rdi]; M: test eax, eax; je L: at M it may be any value, but only the first time.
    let entered = [0xeb, 0x02, 0x8b, 0x07, 0x85, 0xc0, 0x74, 0xfa, 0xc3];
    assert_eq!(spins(&entered), [0; 0]);
    // jmp M; L: nop; nop; M: cmp dword [rdi], 0; je L
    let checked_last = [0xeb, 0x02, 0x90, 0x90, 0x83, 0x3f, 0x00, 0x74, 0xf9, 0xc3];
    assert_eq!(spins(&checked_last), [7]);
}

/// A lock that is tried again only when it was seen to be free is not waited for there.
#[test]
fn a_lock_is_waited_for_where_it_is_read() {
    // L: mov eax, 1; xchg [rdi], eax; test eax, eax; je out; M: cmp dword [rdi], 0; jne M; jmp L; out: ret
    let code = [
        0xb8, 1, 0, 0, 0, 0x87, 0x07, 0x85, 0xc0, 0x74, 0x07, 0x83, 0x3f, 0x00, 0x75, 0xfb, 0xeb,
        0xee, 0xc3,
    ];
    assert_eq!(spins(&code), [14]);
    // The same with a pause in the inner loop.
    let code = [
        0xb8, 1, 0, 0, 0, 0x87, 0x07, 0x85, 0xc0, 0x74, 0x09, 0xf3, 0x90, 0x83, 0x3f, 0x00, 0x75,
        0xf9, 0xeb, 0xec, 0xc3,
    ];
    assert_eq!(spins(&code), [11]);
}

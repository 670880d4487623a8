//! Loops without `pause` of which a turn leaves nothing behind, and loops that look like them.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(target_arch = "x86_64")]

mod common;

use common::{functions, library, spins};
use evenly_testing::is_installed;
use std::collections::BTreeSet;

/// Those of a library in which something was found, and those that it has.
fn found(bytes: &[u8]) -> (BTreeSet<String>, BTreeSet<String>) {
    let mut places = evenly_spins::Module::of(bytes).unwrap().spins;
    // Those with a `pause` are looked at in `found.rs`.
    places.retain(|spin| spin.bytes != [0xf3, 0x90]);
    let is_back = |bytes: &[u8]| match bytes[0] {
        0x0f => bytes[1] & 0xf0 == 0x80,
        opcode => matches!(opcode, 0x70..=0x7f | 0xe9 | 0xeb),
    };
    let all = functions(bytes);
    let of = |offset| all.iter().find(|(_, range)| range.contains(&offset)).unwrap().0.clone();
    let found = places.iter().map(|spin| {
        assert!(is_back(&spin.bytes), "{spin:?}");
        of(spin.offset)
    });
    let names = all.iter().map(|(name, _)| name.clone());
    (found.collect(), names.filter(|n| n.starts_with("wait_") || n.starts_with("work_")).collect())
}

fn compilers() -> impl Iterator<Item = &'static str> {
    std::iter::once("gcc").chain(is_installed("clang", "clang").then_some("clang"))
}

#[test]
fn turns_that_leave_nothing_behind_are_waits_and_no_others_are() {
    let dir = tempfile::tempdir().unwrap();
    for compiler in compilers() {
        for level in ["-O1", "-O2", "-O3", "-Os", "-Og"] {
            let library = library(dir.path(), compiler, "turns.c", &[level]);
            let (found, all) = found(&library);
            // What is carried there is always the same, or the loop is begun in the middle.
            let waits = all.iter().filter(|name| name.starts_with("wait_"));
            let of_gcc = compiler == "gcc" && !matches!(level, "-O1" | "-Og");
            let waits = waits.filter(|name| of_gcc || *name != "wait_all");
            // Where it is laid out otherwise, other waits stand within it, or it within their loops.
            let is_apart = matches!(level, "-O2" | "-O3");
            let waits = waits.filter(|name| is_apart || *name != "wait_among_others");
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
    for compiler in compilers() {
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

/// Loops that work, each of which one rule alone keeps from being taken for a wait.
#[test]
fn loops_that_work_by_themselves_are_none() {
    let loops: [(&str, &[u8]); 6] = [
        // do { i = 0; while (a[i]) i++; xchg(&a[i], 1); } while (i != n)
        (
            "marks one slot a turn",
            &[
                0x31, 0xc0, 0x83, 0x3c, 0x87, 0x00, 0x74, 0x04, 0xff, 0xc0, 0xeb, 0xf6, 0xb9, 1, 0,
                0, 0, 0x87, 0x0c, 0x87, 0x39, 0xf0, 0x75, 0xe8, 0xc3,
            ],
        ),
        // while (!done) if (n) n--, where that is done behind the loop
        (
            "is left and entered again",
            &[0x83, 0x3f, 0, 0x75, 6, 0x83, 0x3e, 0, 0x74, 0xf6, 0xc3, 0xff, 0x0f, 0xeb, 0xf6],
        ),
        // mov rax, [rdi]; mov rax, [rax]; mov [rsp-8], rax; test rax, rax; jne: rdi may be rsp-8
        (
            "walks a list on its stack",
            &[
                0x48, 0x8b, 0x07, 0x48, 0x8b, 0x00, 0x48, 0x89, 0x44, 0x24, 0xf8, 0x48, 0x85, 0xc0,
                0x75, 0xf0, 0xc3,
            ],
        ),
        // mov eax, [rdi]; add eax, 0x100; mov al, 1; xchg [rdi], eax; cmp eax, esi; jb
        (
            "counts in a part of a register",
            &[0x8b, 0x07, 0x05, 0, 1, 0, 0, 0xb0, 1, 0x87, 0x07, 0x39, 0xf0, 0x72, 0xf1, 0xc3],
        ),
        // L: rdtsc; cmp eax, esi; jb L
        ("looks at the clock alone", &[0x0f, 0x31, 0x39, 0xf0, 0x72, 0xfa, 0xc3]),
        ("jumps to itself too often", &[0xeb, 0xfe].repeat(2_000)),
    ];
    for (what, code) in loops {
        assert_eq!(spins(code), [0; 0], "{what}");
    }
    // mov eax, [rdi]; or eax, [rsi]; je: it waits for one of two.
    assert_eq!(spins(&[0x8b, 0x07, 0x0b, 0x06, 0x74, 0xfa, 0xc3]), [4]);
}

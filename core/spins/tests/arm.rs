//! Loops in code of aarch64, as compilers make them.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_spins::{Machine, Module};
use evenly_testing::is_installed;
use object::{Object, ObjectSection, ObjectSymbol, SectionKind};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The functions of a source, by name, as clang compiles them for aarch64.
fn functions(source: &str, flags: &[&str]) -> BTreeMap<String, Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let made = dir.path().join("made.o");
    let mut compile = Command::new("clang");
    compile.args(["--target=aarch64-linux-gnu", "-ffreestanding", "-fPIC", "-c"]).args(flags);
    assert!(compile.arg("-o").arg(&made).arg(source).status().unwrap().success());
    let bytes = std::fs::read(made).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let text = file.sections().find(|s| s.kind() == SectionKind::Text && s.name() == Ok(".text"));
    let code = text.unwrap().data().unwrap().to_vec();
    let of = |s: object::Symbol<'_, '_>| {
        let begin = s.address() as usize;
        (s.name().unwrap().to_owned(), code[begin..begin + s.size() as usize].to_vec())
    };
    let functions =
        file.symbols().filter(|s| s.kind() == object::SymbolKind::Text && s.size() > 0).map(of);
    functions.collect()
}

fn word(code: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(code[at..at + 4].try_into().unwrap())
}

#[test]
fn loops_with_a_hint_are_found_and_delays_are_not() {
    if !is_installed("clang", "clang") {
        return;
    }
    for (hint, bits) in [("yield", 0xd503_203f), ("isb", 0xd503_3fdf), ("wfe", 0xd503_205f)] {
        let hint = format!("-DHINT=\"{hint}\"");
        for level in ["-O1", "-O2", "-O3", "-Os", "-O0"] {
            let all = functions("waits.c", &[&hint, level]);
            let found: Vec<&str> = all
                .iter()
                .filter(|(name, code)| {
                    let waits = Machine::Arm.waits(code);
                    // With delays it is the jump back.
                    let is_pause = !name.starts_with("back_off");
                    let is_right = |at| (word(code, at) == bits) == is_pause;
                    let here = waits.iter().all(|w| w.turn.contains(&w.at) && is_right(w.at));
                    assert!(here, "{name} {waits:?}");
                    !waits.is_empty()
                })
                .map(|(name, _)| name.as_str())
                .collect();
            let mut waits =
                vec!["back_off", "barrier", "bounded", "calls", "test_and_set", "ticket"];
            // Without optimising, the shortest way in the one is never taken, and registers of the other count and point in turns.
            waits.retain(|name| level != "-O0" || !["back_off", "bounded"].contains(name));
            assert_eq!(found, waits, "{level} {hint}");
        }
    }
}

#[test]
fn turns_that_leave_nothing_behind_are_waits_and_no_others_are() {
    if !is_installed("clang", "clang") {
        return;
    }
    for level in ["-O1", "-O2", "-O3", "-Os", "-O0"] {
        for lock in ["-march=armv8-a+lse", "-march=armv8-a"] {
            for (name, code) in functions("turns.c", &[level, lock]) {
                let waits = Machine::Arm.waits(&code);
                assert!(waits.is_empty() || !name.starts_with("work_"), "{name} {level} {waits:?}");
                // What stores is not proved, nor what is on the stack, nor looks at nothing.
                let stores = matches!(&*name, "wait_exchange" | "wait_compare" | "wait_all");
                let stores = stores || name == "wait_for_ever";
                let is_expected = name.starts_with("wait_") && !stores && level != "-O0";
                assert!(!waits.is_empty() || !is_expected, "{name} {level}");
            }
        }
    }
}

/// Where functions are called: what stores says that it does not wait.
#[test]
fn loops_that_may_wait_are_found_around_places() {
    if !is_installed("clang", "clang") {
        return;
    }
    for level in ["-O2", "-Os", "-O0"] {
        for (name, code) in functions("doubt.c", &[level]) {
            let places: Vec<usize> = (0..code.len()).step_by(4).collect();
            assert_eq!(Machine::Arm.waits(&code), [], "{name} {level}");
            let found = Machine::Arm.loops(&code, &places, &[]);
            assert_eq!(
                found.len(),
                usize::from(name.starts_with("may_")),
                "{name} {level} {found:?}"
            );
            assert!(Machine::Arm.loops(&code, &[code.len()], &[]).is_empty());
        }
    }
}

/// The rules, one by one.
#[test]
fn a_loop_is_one_only_by_all_of_the_rules() {
    let waits = |words: &[u32]| {
        let code: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        Machine::Arm.waits(&code).into_iter().map(|w| w.at).collect::<Vec<_>>()
    };
    const LDR_W1_X0: u32 = 0xb940_0001;
    const CBZ_W1_BACK_1: u32 = 0x34ff_ffe1;
    const RET: u32 = 0xd65f_03c0;
    const NOP: u32 = 0xd503_201f;
    assert_eq!(waits(&[LDR_W1_X0, CBZ_W1_BACK_1, RET]), [4]);
    // ldr w1, [x0], #4
    assert_eq!(waits(&[0xb840_4401, CBZ_W1_BACK_1, RET]), [0; 0]);
    // cbz w1, .: a constant, or for ever
    assert_eq!(waits(&[0x3400_0001, RET]), [0; 0]);
    // L: ldaxr w5, [x1]; cbnz w5, L; stxr w5, w0, [x1]; cbnz w5, L: the store fails after a trap.
    assert_eq!(waits(&[0x885f_fc25, 0x35ff_ffe5, 0x8805_7c20, 0x35ff_ffa5, RET]), [0; 0]);
    // isb; ldr w1, [x0]; cbz w1, -2, and with mrs x2, cntvct_el0: then it has to be proved, as when it calls (bl).
    assert_eq!(waits(&[0xd503_3fdf, LDR_W1_X0, 0x34ff_ffc1, RET]), [0]);
    assert_eq!(waits(&[0xd503_3fdf, 0xd53b_e042, LDR_W1_X0, 0x34ff_ffa1, RET]), [12]);
    assert_eq!(waits(&[0xd503_3fdf, 0xd53b_e042, 0x9400_0100, 0x34ff_ffa1, RET]), [0; 0]);
    assert_eq!(waits(&[0xd503_3fdf, NOP, 0x9400_0100, 0x34ff_ffa1, RET]), [0]);
    // ldr w1, .+8; cbz w1, -1; ret: a constant
    assert_eq!(waits(&[0x1800_0041, CBZ_W1_BACK_1, RET]), [0; 0]);
    // str w1, [x2] in the middle; add x0, x0, #4; ldadd w3, w4, [x0]; a word that is no instruction; svc #0
    for other in [0xb900_0041, 0x9100_1000, 0xb823_0004, 0x0000_0001, 0xd400_0001] {
        let cbz_back_2 = 0x34ff_ffc1;
        assert_eq!(waits(&[LDR_W1_X0, NOP, cbz_back_2, RET]), [8]);
        assert_eq!(waits(&[LDR_W1_X0, other, cbz_back_2, RET]), [0; 0], "{other:x}");
    }
    // b +2; L: ldr w1, [x0]; cbz w1, L: the first time it may be any value.
    assert_eq!(waits(&[0x1400_0002, LDR_W1_X0, CBZ_W1_BACK_1, RET]), [0; 0]);
    // b +2; L: nop; ldr w1, [x0]; cbz w1, L
    assert_eq!(waits(&[0x1400_0002, NOP, LDR_W1_X0, 0x34ff_ffc1, RET]), [12]);
    // What comes back from behind may have done some work: ldr; nop; cbz -2; ret; b -3
    assert_eq!(waits(&[LDR_W1_X0, NOP, 0x34ff_ffc1, RET, 0x17ff_fffd]), [0; 0]);
    // mrs x1, cntvct_el0; cmp x1, x2; b.lo -2, alone and with ldr w3, [x0]; cbnz w3, out
    let (clock, compare) = (0xd53b_e041, 0xeb02_003f);
    assert_eq!(waits(&[clock, compare, 0x54ff_ffc3, RET]), [0; 0]);
    assert_eq!(waits(&[0xb940_0003, 0x3500_0083, clock, compare, 0x54ff_ff83, RET]), [16]);
}

/// A test of a module needs a linker; here it is one of aarch64 without code.
#[test]
fn modules_of_other_machines_have_nothing() {
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(Module::of(&own).unwrap().machine, Machine::HOST);
    let mut other = own;
    // e_machine, of aarch64 and of none.
    for (number, machine) in [(183u16, Some(Machine::Arm)), (62, Some(Machine::X86)), (8, None)] {
        other[18..20].copy_from_slice(&number.to_le_bytes());
        assert_eq!(Module::of(&other).unwrap().machine, machine);
    }
}

proptest! {
    #[test]
    fn any_words_are_decoded(words in proptest::collection::vec(any::<u32>(), 0..100)) {
        let code: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        for wait in Machine::Arm.waits(&code) {
            prop_assert!(wait.turn.contains(&wait.at) && wait.turn.end <= code.len());
        }
    }
}

//! Loops that wait with a delay between two looks, as those do that back off: `while (!free) for (i = 0; i < n; i++) pause`.
//!
//! A `pause` that is executed again and again before the loop looks only takes time. To hold a thread up at each would make
//! its delay a thousand times as long; so the place is the jump back of the loop around. The delay itself may change from turn
//! to turn, and so may what is on the thread's own stack; whatever else is written is a lock that is tried. It looks at the same
//! place in each turn, as far as no address is counted up, and not at the clock.

use super::decoded::{is_own, is_read, is_written};
use super::doubt::back;
use super::turns::{is_clock, may_store};
use super::{Function, looks};
use crate::wait::{Wait, around_delays};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use std::collections::BTreeSet;
use std::ops::Range;

/// The loops around delays at these places of a function, but those around waits that are `known`.
pub(super) fn around(function: &Function, delays: &[usize], known: &[Wait]) -> Vec<Wait> {
    let all = &function.instructions;
    let mut factory = InstructionInfoFactory::new();
    let loops: Vec<Wait> = all.iter().filter_map(|x| back(x, all)).collect();
    around_delays(&loops, delays, known, |wait| waits(function, &wait.turn, &mut factory))
}

/// Whether a turn looks at what others can change, always at the same place, and does nothing but that and to try.
fn waits(function: &Function, turn: &Range<usize>, factory: &mut InstructionInfoFactory) -> bool {
    let begin = function.instructions.partition_point(|x| x.ip() < turn.start as u64);
    let turn = function.instructions[begin..].iter().take_while(|x| x.ip() < turn.end as u64);
    let turn: Vec<Instruction> = turn.copied().collect();
    let counted = counted(&turn, factory);
    turn.iter().all(|x| leaves_nothing(x, factory))
        && turn.iter().any(looks)
        && (0..turn.len())
            .filter(|&i| looks(&turn[i]))
            .all(|i| reads_the_same_place(&turn, i, &counted, factory))
}

/// Whether the address that this instruction reads is the same in each turn: nothing is counted up in its registers, or they were
/// loaded just before, from such an address, by whoever comes here; not from what the turn may have changed.
fn reads_the_same_place(
    turn: &[Instruction],
    at: usize,
    counted: &BTreeSet<Register>,
    factory: &mut InstructionInfoFactory,
) -> bool {
    let registers = [turn[at].memory_base(), turn[at].memory_index()];
    registers.into_iter().map(Register::full_register).filter(|r| counted.contains(r)).all(|r| {
        let mut writes = |x: &Instruction| {
            let used = factory.info(x).used_registers();
            used.iter().any(|u| is_written(u.access()) && u.register().full_register() == r)
        };
        let Some(loaded) = (0..at).rev().find(|&i| writes(&turn[i])) else { return false };
        let x = &turn[loaded];
        let is_load = !turn.iter().any(may_store)
            && x.mnemonic() == Mnemonic::Mov
            && x.op1_kind() == OpKind::Memory
            && x.op0_register() == r
            && !factory.info(x).used_memory().iter().any(is_own);
        let between = x.ip() + 1..=turn[at].ip();
        let is_entered = turn.iter().any(|x| between.contains(&x.near_branch_target()));
        is_load && !is_entered && reads_the_same_place(turn, loaded, counted, factory)
    })
}

/// Registers that are made of what they were before, and those made of such ones.
fn counted(turn: &[Instruction], factory: &mut InstructionInfoFactory) -> BTreeSet<Register> {
    let mut all = BTreeSet::new();
    loop {
        let before = all.len();
        for x in turn {
            let used = factory.info(x).used_registers();
            let reads: Vec<Register> = used
                .iter()
                .filter(|r| is_read(r.access()))
                .map(|r| r.register().full_register())
                .collect();
            let written = used.iter().filter(|r| is_written(r.access()));
            let written = written.map(|r| r.register().full_register());
            let is_counted =
                |r: &Register| reads.contains(r) || reads.iter().any(|r| all.contains(r));
            let more: Vec<Register> =
                written.filter(|r| *r != Register::RSP && is_counted(r)).collect();
            all.extend(more);
        }
        if all.len() == before {
            return all;
        }
    }
}

fn leaves_nothing(x: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    use FlowControl::{ConditionalBranch, Next, Return, UnconditionalBranch};
    let goes_on =
        matches!(x.flow_control(), Next | ConditionalBranch | UnconditionalBranch | Return);
    let written = factory.info(x).used_memory().iter().filter(|m| is_written(m.access()));
    let stays = |m: &iced_x86::UsedMemory| is_own(m) && m.index() == Register::None;
    goes_on && !is_clock(x) && (may_store(x) || written.into_iter().all(stays))
}

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
        && turn.iter().enumerate().filter(|(_, x)| looks(x)).all(|(i, x)| {
            [x.memory_base(), x.memory_index()]
                .into_iter()
                .all(|r| is_same(&turn, i, r, &counted, factory))
        })
}

/// Whether an address is the same in each turn that this instruction takes from a register: nothing is counted up in it, or it was
/// loaded just before, from such an address, by whoever comes here; not from the own stack, which the turn may have changed.
fn is_same(
    turn: &[Instruction],
    at: usize,
    register: Register,
    counted: &BTreeSet<Register>,
    factory: &mut InstructionInfoFactory,
) -> bool {
    let full = register.full_register();
    if !counted.contains(&full) {
        return true;
    }
    let mut writes = |x: &Instruction| {
        let used = factory.info(x).used_registers();
        used.iter().any(|r| is_written(r.access()) && r.register().full_register() == full)
    };
    let Some(loaded) = (0..at).rev().find(|&i| writes(&turn[i])) else { return false };
    let x = &turn[loaded];
    // What is loaded from what the turn writes may be another one each time.
    let writes_none = !turn.iter().any(may_store);
    let is_load = writes_none
        && x.mnemonic() == Mnemonic::Mov
        && x.op1_kind() == OpKind::Memory
        && x.op0_register() == full
        && !factory.info(x).used_memory().iter().any(is_own);
    let between = turn[loaded].ip() + 1..=turn[at].ip();
    let is_entered = turn.iter().any(|x| between.contains(&x.near_branch_target()));
    is_load
        && !is_entered
        && [x.memory_base(), x.memory_index()]
            .into_iter()
            .all(|r| is_same(turn, loaded, r, counted, factory))
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

//! Loops that may wait, of which it cannot be proved: those that call functions, and those with instructions that are not
//! understood.
//!
//! Whether they wait is seen when threads run there (`probe/c/handover_doubt.h`): who comes again and again with the same
//! registers carries nothing from turn to turn, unless in memory. So loops that store outside of their stack are left out.

use super::decoded::{decode, is_own, is_read, is_written};
use crate::wait::{Wait, around};
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, UsedMemory};
use std::ops::Range;

/// The longest loop that is looked at, in bytes.
const LONGEST: usize = 512;

/// Loops around these places of a function that may wait, and in which there is none of the waits that are `known`.
pub(crate) fn loops(code: &[u8], places: &[usize], known: &[Wait]) -> Vec<Wait> {
    if code.len() > super::LONGEST {
        return Vec::new();
    }
    let function: Vec<Instruction> = decode(code).take_while(|x| !x.is_invalid()).collect();
    let mut factory = InstructionInfoFactory::new();
    let loops = function.iter().filter_map(|x| back(x, &function)).collect();
    around(loops, places, known, |wait| may_wait(&function, &wait.turn, &mut factory))
}

/// The loop that this jump ends, if it goes back to where an instruction begins.
pub(super) fn back(x: &Instruction, function: &[Instruction]) -> Option<Wait> {
    let plain = match () {
        () if x.is_jcc_short() || x.is_jmp_short() => 2,
        () if x.is_jmp_near() => 5,
        () if x.is_jcc_near() => 6,
        () => return None,
    };
    // Of one with a prefix that means nothing the first byte is that.
    if x.len() != plain {
        return None;
    }
    let (begin, at, end) = (x.near_branch_target(), x.ip() as usize, x.next_ip() as usize);
    let is_back = begin <= x.ip() && end - begin as usize <= LONGEST;
    (is_back && function.binary_search_by_key(&begin, Instruction::ip).is_ok())
        .then_some(Wait { at, turn: begin as usize..end })
}

/// Whether it leaves nothing behind but on its own stack, and there no count.
fn may_wait(
    function: &[Instruction],
    turn: &Range<usize>,
    factory: &mut InstructionInfoFactory,
) -> bool {
    let mut read = Vec::new();
    let begin = function.partition_point(|x| x.ip() < turn.start as u64);
    function[begin..].iter().take_while(|x| x.ip() < turn.end as u64).all(|x| {
        let calls_system = x.flow_control() == FlowControl::Call && x.mnemonic() != Mnemonic::Call
            || matches!(x.flow_control(), FlowControl::Interrupt | FlowControl::XbeginXabortXend);
        let stores_plainly =
            matches!(x.mnemonic(), Mnemonic::Mov | Mnemonic::Push | Mnemonic::Call);
        let used = factory.info(x).used_memory();
        let at = |m: &UsedMemory| (m.base(), m.index(), m.displacement());
        read.extend(used.iter().filter(|m| is_read(m.access()) && is_own(m)).map(at));
        // What was read before is made into something else.
        let stores = |m: &UsedMemory| stores_plainly && is_own(m) && !read.contains(&at(m));
        !calls_system && used.iter().filter(|m| is_written(m.access())).all(stores)
    })
}

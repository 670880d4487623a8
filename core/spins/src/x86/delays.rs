//! Loops that wait with a delay between two looks, as those do that back off: `while (!free) for (i = 0; i < n; i++) pause`.
//!
//! A `pause` that is executed again and again before the loop looks only takes time. To hold a thread up at each would make
//! its delay a thousand times as long; so the place is the jump back of the loop around. The delay itself may change from turn to turn,
//! and so may what is on the thread's own stack; whatever else is written is a lock that is tried.

use super::decoded::{is_own, is_written};
use super::doubt::back;
use super::turns::may_store;
use super::{Function, looks};
use crate::wait::Wait;
use iced_x86::{FlowControl, Instruction, InstructionInfoFactory};
use std::ops::Range;

/// The loops around delays at these places of a function. Where several jumps go back to the same place, they are all of one.
pub(super) fn around(function: &Function, delays: &[usize]) -> Vec<Wait> {
    let all = &function.instructions;
    let mut factory = InstructionInfoFactory::new();
    let loops: Vec<Wait> = all.iter().filter_map(|x| back(x, all)).collect();
    let mut found: Vec<Wait> = Vec::new();
    for &delay in delays {
        let around = loops.iter().filter(|wait| wait.turn.contains(&delay));
        let waits = around.filter(|wait| waits(function, &wait.turn, &mut factory));
        let waits: Vec<&Wait> = waits.collect();
        let Some(begin) = waits.iter().min_by_key(|w| w.turn.len()).map(|w| w.turn.start) else {
            continue;
        };
        let of_it = waits.into_iter().filter(|w| w.turn.start == begin);
        found.extend(of_it.cloned());
    }
    found.sort_unstable_by_key(|wait| wait.at);
    found.dedup();
    found
}

/// Whether a turn looks at what others can change, and does nothing but that and to try.
fn waits(function: &Function, turn: &Range<usize>, factory: &mut InstructionInfoFactory) -> bool {
    let begin = function.instructions.partition_point(|x| x.ip() < turn.start as u64);
    let turn = function.instructions[begin..].iter().take_while(|x| x.ip() < turn.end as u64);
    turn.clone().all(|x| leaves_nothing(x, factory)) && turn.clone().any(looks)
}

fn leaves_nothing(x: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    use FlowControl::{ConditionalBranch, Next, Return, UnconditionalBranch};
    let goes_on =
        matches!(x.flow_control(), Next | ConditionalBranch | UnconditionalBranch | Return);
    let mut written =
        factory.info(x).used_memory().iter().filter(|m| is_written(m.access())).peekable();
    goes_on && (written.peek().is_none() || may_store(x) || written.all(is_own))
}

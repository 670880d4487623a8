//! Where threads wait in code of x86-64: the control flow around `pause` instructions, and loops without.

mod decoded;
mod delays;
mod doubt;
mod turns;

use crate::wait::{Wait, way_back};
use decoded::{decode, is_own, is_read};
pub(crate) use doubt::loops;
use iced_x86::{Code, FlowControl, Instruction, InstructionInfoFactory, OpKind};
use std::collections::HashMap;
use std::ops::Range;
use turns::jumps;

/// The bytes of `pause`.
const PAUSE: [u8; 2] = [0xf3, 0x90];
/// A function that is longer is not looked at: decoding takes 20 ns an instruction.
const LONGEST: usize = 1 << 20;

/// The loops in the code of a function in which threads wait.
pub(crate) fn waits(code: &[u8]) -> Vec<Wait> {
    if code.len() > LONGEST {
        return Vec::new();
    }
    let (mut all, with_delays) = pauses(code);
    let without = jumps(code, &all);
    all.extend(without);
    all.extend(with_delays);
    all
}

/// Whether the last bytes of this code are a call.
pub(crate) fn end_in_call(code: &[u8]) -> bool {
    let is_last = |from: usize| {
        let call = decode(&code[from..]).next().filter(is_call);
        call.is_some_and(|call| from + call.len() == code.len())
    };
    (0..code.len()).any(is_last)
}

fn is_call(x: &Instruction) -> bool {
    matches!(x.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
}

/// Those with a `pause` once a turn, and those with many.
fn pauses(code: &[u8]) -> (Vec<Wait>, Vec<Wait>) {
    if !code.windows(PAUSE.len()).any(|bytes| bytes == PAUSE) {
        return (Vec::new(), Vec::new());
    }
    let function = Function::decode(code);
    let (mut once, mut delays) = (Vec::new(), Vec::new());
    let each = function.instructions.iter().enumerate().filter(|(_, x)| is_pause(x));
    for (i, x) in each {
        let at = x.ip() as usize;
        match function.turn(i) {
            Some(turn) => once.push(Wait { at, turn }),
            None => delays.push(at),
        }
    }
    let with_delays =
        if delays.is_empty() { Vec::new() } else { delays::around(&function, &delays, &once) };
    (once, with_delays)
}

/// Without prefixes that mean nothing, so that it is known what its first byte is.
fn is_pause(x: &Instruction) -> bool {
    x.code() == Code::Pause && x.len() == PAUSE.len()
}

struct Function {
    instructions: Vec<Instruction>,
    /// Index of the instruction at an address.
    by_address: HashMap<u64, usize>,
}

impl Function {
    fn decode(code: &[u8]) -> Self {
        // What follows a byte that is no instruction cannot be trusted to begin where one begins.
        let instructions: Vec<Instruction> = decode(code).take_while(|i| !i.is_invalid()).collect();
        let by_address = instructions.iter().enumerate().map(|(i, x)| (x.ip(), i)).collect();
        Self { instructions, by_address }
    }

    /// What can be executed next after this one, within the function.
    fn next(&self, i: usize) -> impl Iterator<Item = usize> {
        let x = &self.instructions[i];
        let (falls, jumps) = match x.flow_control() {
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => (true, false),
            FlowControl::ConditionalBranch => (true, true),
            FlowControl::UnconditionalBranch => (false, true),
            _ => (false, false),
        };
        let falls = falls.then_some(i + 1).filter(|&n| n < self.instructions.len());
        let jumps = jumps.then(|| self.by_address.get(&x.near_branch_target()).copied()).flatten();
        falls.into_iter().chain(jumps)
    }

    /// Whether the jump back of what seems to be a loop can come after itself: others only leave, where the way out stands before.
    fn goes_round(&self, wait: &Wait) -> bool {
        let is_within = |n: &usize| wait.turn.contains(&(self.instructions[*n].ip() as usize));
        let next = |i: usize| self.next(i).filter(is_within);
        self.by_address.get(&(wait.at as u64)).is_some_and(|&at| way_back(at, next).is_some())
    }

    /// The shortest way from this `pause` back to it, if it looks at something that another thread can change.
    fn turn(&self, pause: usize) -> Option<Range<usize>> {
        let turn = way_back(pause, |i| self.next(i))?;
        let turn: Vec<&Instruction> = turn.into_iter().map(|i| &self.instructions[i]).collect();
        let begin = turn.iter().map(|x| x.ip()).min()?;
        let end = turn.iter().map(|x| x.next_ip()).max()?;
        turn.iter().any(|x| looks(x)).then_some(begin as usize..end as usize)
    }
}

/// Whether it reads memory that others can write, or calls what may.
fn looks(x: &Instruction) -> bool {
    let of_memory = |i: u32| x.op_kind(i) == OpKind::Memory;
    let mut factory = InstructionInfoFactory::new();
    is_call(x)
        || (0..x.op_count()).any(of_memory)
            && factory.info(x).used_memory().iter().any(|m| is_read(m.access()) && !is_own(m))
}

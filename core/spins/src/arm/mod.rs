//! Where threads wait in code of aarch64.
//!
//! Compilers put `yield`, `isb` or `wfe` into loops that wait, where a program asks for it. Others are proved to wait, as on
//! x86-64 ([`crate::x86`]), but that nothing may be stored, and no lock be tried.

mod decoded;
mod turns;

use crate::wait::{Wait, around, around_delays, way_back};
use decoded::{Effect, Step, decode};

/// A function that is longer is not looked at.
const LONGEST: usize = 1 << 20;

/// The loops in the code of a function in which threads wait.
pub(crate) fn waits(code: &[u8]) -> Vec<Wait> {
    if code.len() > LONGEST {
        return Vec::new();
    }
    let function = decode(code);
    let pause = |i: usize| {
        let turn = function[i].is_pause.then(|| turn(&function, i)).flatten()?;
        let (begin, end) = (turn.iter().min()?, turn.iter().max()?);
        Some(Wait { at: 4 * i, turn: 4 * begin..4 * (end + 1) })
    };
    let mut all: Vec<Wait> = (0..function.len()).filter_map(pause).collect();
    let without = turns::jumps(&function, &all);
    let is_found = |i: usize| all.iter().any(|w| w.at == 4 * i);
    let is_within = |i: usize| without.iter().any(|w| w.turn.contains(&(4 * i)));
    let is_delay = |&i: &usize| function[i].is_pause && !is_found(i) && !is_within(i);
    let delays: Vec<usize> = (0..function.len()).filter(is_delay).collect();
    let with_delays = if delays.is_empty() {
        Vec::new()
    } else {
        let looks = |wait: &Wait| turns::looks_after_delays(steps(&function, wait));
        let delays: Vec<usize> = delays.into_iter().map(|i| 4 * i).collect();
        around_delays(&back(&function), &delays, &all, looks)
    };
    all.extend(without.into_iter().chain(with_delays));
    all
}

/// Loops around these places of a function that may wait, and in which there is none of the waits that are `known`.
pub(crate) fn loops(code: &[u8], places: &[usize], known: &[Wait]) -> Vec<Wait> {
    if code.len() > LONGEST {
        return Vec::new();
    }
    let function = decode(code);
    around(back(&function), places, known, |wait| turns::may_wait(steps(&function, wait)))
}

/// Whether the last bytes of this code are a call.
pub(crate) fn end_in_call(code: &[u8]) -> bool {
    let last = code.len().checked_sub(4).map(|from| decode(&code[from..]));
    last.is_some_and(|last| last.iter().all(|step| step.effect == Effect::Calls))
}

/// The loops of a function that go back.
fn back(function: &[Step]) -> Vec<Wait> {
    turns::back(function).map(turns::wait).collect()
}

/// The instructions of a loop.
fn steps<'a>(function: &'a [Step], wait: &Wait) -> &'a [Step] {
    &function[wait.turn.start / 4..wait.turn.end / 4]
}

/// The shortest way from this instruction back to it, if it looks at something that another thread can change.
fn turn(function: &[Step], at: usize) -> Option<Vec<usize>> {
    let turn = way_back(at, |i| function[i].next(i, function.len()))?;
    let looks = |&i: &usize| matches!(function[i].effect, Effect::Looks | Effect::Calls);
    // An `isb` also stands where the clock is read at the right moment.
    let measures = |&i: &usize| function[at].is_order && function[i].effect == Effect::Clock;
    (turn.iter().any(looks) && !turn.iter().any(measures)).then_some(turn)
}

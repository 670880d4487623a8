//! Loops of aarch64 that wait without saying so, and those that may.

use super::decoded::{Effect, FLAGS, Registers, Step};
use crate::wait::{Wait, holds};
use std::ops::Range;

/// The longest loop that is looked at, in instructions.
const LONGEST: usize = 128;
/// So many loops of one function are looked at: each is looked for among all of its instructions.
const MOST: usize = 1_000;

/// The loops of a function that go back: the numbers of their instructions, of which the last is the jump.
pub(super) fn back(function: &[Step]) -> impl Iterator<Item = Range<usize>> {
    let range = |(i, step): (usize, &Step)| {
        let begin = step.target? / 4;
        (begin <= i && i - begin < LONGEST).then_some(begin..i + 1)
    };
    function.iter().enumerate().filter_map(range)
}

/// One of those in bytes.
pub(super) fn wait(turn: Range<usize>) -> Wait {
    Wait { at: 4 * (turn.end - 1), turn: 4 * turn.start..4 * turn.end }
}

/// The loops of a function that wait without a pause. `pauses` are those that wait with.
pub(super) fn jumps(function: &[Step], pauses: &[Wait]) -> Vec<Wait> {
    let jump = |(i, step): (usize, &Step)| Some((i, step.target? / 4));
    let entries: Vec<(usize, usize)> = function.iter().enumerate().filter_map(jump).collect();
    let is_wait = |turn: &Range<usize>| {
        let at = 4 * turn.start..4 * turn.end;
        !pauses.iter().any(|p| at.contains(&p.at)) && waits(function, turn, &entries)
    };
    back(function).take(MOST).filter(is_wait).map(wait).collect()
}

/// Whether a turn leaves nothing behind, also where it is begun in the middle. `entries` are the jumps of the function.
fn waits(function: &[Step], turn: &Range<usize>, entries: &[(usize, usize)]) -> bool {
    let steps = &function[turn.clone()];
    let middle = turn.start + 1..turn.end;
    // Also what is no code at all, but a constant among it, can look like a jump to itself.
    let looks = steps.iter().any(|s| s.effect == Effect::Looks);
    let is_understood = |s: &Step| {
        matches!(s.effect, Effect::None | Effect::Own(..) | Effect::Looks | Effect::Clock)
    };
    if !looks || !steps.iter().all(is_understood) {
        return false;
    }
    waits_from(steps, turn.start, 0)
        && entries.iter().filter(|(from, to)| !turn.contains(from) && middle.contains(to)).all(
            // From behind, a turn that was left may come back, and have done some work meanwhile.
            |(from, to)| *from < turn.start && waits_from(steps, turn.start, to - turn.start),
        )
}

/// Whether it looks at places that are counted up from turn to turn: by registers that are made of what they were before.
fn looks_further(steps: &[Step]) -> bool {
    let mut counted: Registers = 0;
    loop {
        let before = counted;
        for s in steps {
            let (reads, writes) = (s.reads & !FLAGS, s.writes & !FLAGS);
            if reads & (writes | counted) != 0 {
                counted |= writes;
            }
        }
        if counted == before {
            return steps.iter().any(|s| s.effect == Effect::Looks && s.reads & counted != 0);
        }
    }
}

/// Whether a turn looks once after many pauses, as on x86-64 (`crate::x86::delays`).
pub(super) fn looks_after_delays(turn: &[Step]) -> bool {
    // One that reads the clock may measure.
    let leaves_nothing =
        |s: &Step| !matches!(s.effect, Effect::Calls | Effect::Clock | Effect::Other);
    turn.iter().all(leaves_nothing)
        && turn.iter().any(|s| s.effect == Effect::Looks)
        && !looks_further(turn)
}

/// Whether turns that begin here read no register that the turn before has changed. `first` is the number of the first step.
fn waits_from(steps: &[Step], first: usize, begin: usize) -> bool {
    let changed = steps.iter().fold(0, |all, s| all | s.writes);
    let after = |i: usize, written: Registers| {
        let step = &steps[i];
        (step.reads & changed & !written == 0).then_some(written | step.writes)
    };
    let next = |i: usize| {
        let all = steps[i].next(first + i, usize::MAX);
        all.filter_map(|n| n.checked_sub(first).filter(|&n| n < steps.len()))
    };
    holds(steps.len(), begin, after, next, |a, b| a & b)
}

/// Whether a turn leaves nothing behind but on the stack, and there nothing that it has read before.
pub(super) fn may_wait(turn: &[Step]) -> bool {
    let mut read = Vec::new();
    turn.iter().all(|step| match step.effect {
        Effect::Other => false,
        Effect::Own(base, at) => {
            // Also where two are loaded.
            read.extend([0, 4, 8].map(|behind| (base, at + behind)));
            true
        }
        Effect::Stores(base, at) => !read.contains(&(base, at)),
        _ => true,
    })
}

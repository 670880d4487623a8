//! A wait in the code of a function, and ways through that code.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// A loop in the code of a function in which threads wait for what others do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Where an instruction is that is executed once a turn.
    pub at: usize,
    /// Where the bytes of a turn are.
    pub turn: Range<usize>,
}

/// The shortest way from an instruction back to it, both ends included once; None where there is none. Instructions are
/// numbered, and `next` says which can be executed after one.
pub(crate) fn way_back<N: IntoIterator<Item = usize>>(
    from: usize,
    next: impl Fn(usize) -> N,
) -> Option<Vec<usize>> {
    let mut before: HashMap<usize, usize> = HashMap::new();
    let mut queue = VecDeque::from([from]);
    while let Some(i) = queue.pop_front() {
        for n in next(i) {
            if n == from {
                return Some(std::iter::successors(Some(i), |i| before.get(i).copied()).collect());
            }
            if let Entry::Vacant(unseen) = before.entry(n) {
                unseen.insert(i);
                queue.push_back(n);
            }
        }
    }
    None
}

/// So many loops around a place, the smallest first.
const NESTED: usize = 3;

/// Of these loops those around the places that may wait, and in which there is none of the waits that are `known`.
pub(crate) fn around(
    mut loops: Vec<Wait>,
    places: &[usize],
    known: &[Wait],
    mut may_wait: impl FnMut(&Wait) -> bool,
) -> Vec<Wait> {
    loops.sort_by_key(|wait| wait.turn.len());
    let mut found: Vec<Wait> = Vec::new();
    for &at in places {
        for wait in loops.iter().filter(|w| w.turn.contains(&at)).take(NESTED) {
            let is_known = known.iter().any(|k| wait.turn.contains(&k.at));
            if !is_known && !found.contains(wait) && may_wait(wait) {
                found.push(wait.clone());
            }
        }
    }
    found
}

/// Of these loops the smallest around each delay that waits, but none around one that is `known`. Where several jumps go back to
/// the same place, they are all of one.
pub(crate) fn around_delays(
    loops: &[Wait],
    delays: &[usize],
    known: &[Wait],
    mut waits: impl FnMut(&Wait) -> bool,
) -> Vec<Wait> {
    let is_known = |wait: &Wait| known.iter().any(|k| wait.turn.contains(&k.at));
    let mut found: Vec<Wait> = Vec::new();
    for delay in delays {
        let around = loops.iter().filter(|wait| wait.turn.contains(delay) && !is_known(wait));
        let around: Vec<&Wait> = around.filter(|wait| waits(wait)).collect();
        let begin = around.iter().min_by_key(|wait| wait.turn.len()).map(|wait| wait.turn.start);
        let of_it = around.into_iter().filter(|wait| Some(wait.turn.start) == begin);
        found.extend(of_it.cloned());
    }
    found.sort_unstable_by_key(|wait| wait.at);
    found.dedup();
    found
}

/// Follows the steps of a turn on all ways, from the one with number `begin` on, of which nothing is known before, until no more
/// is learned. `after` is what is known after a step, by what is known before it; `next` are those that can come next; where
/// two ways meet, `and` is what is known on both. Whether there is always something, and the last step of so many is reached.
pub(crate) fn holds<K: Clone + PartialEq + Default, N: IntoIterator<Item = usize>>(
    steps: usize,
    begin: usize,
    after: impl Fn(usize, K) -> Option<K>,
    next: impl Fn(usize) -> N,
    and: impl Fn(&K, &K) -> K,
) -> bool {
    let mut before: Vec<Option<K>> = vec![None; steps];
    before[begin] = Some(K::default());
    let mut open = vec![begin];
    while let Some(i) = open.pop() {
        let Some(known) = before[i].clone() else { continue };
        let Some(after) = after(i, known) else { return false };
        for n in next(i).into_iter().filter(|&n| n != begin) {
            let joined = before[n].as_ref().map_or_else(|| after.clone(), |b| and(b, &after));
            if before[n].as_ref() != Some(&joined) {
                before[n] = Some(joined);
                open.push(n);
            }
        }
    }
    before.last().is_some_and(Option::is_some)
}

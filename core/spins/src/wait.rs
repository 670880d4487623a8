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

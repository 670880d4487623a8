//! What has called the functions in which a thread is: addresses on its stack that are in code.
//!
//! A thread that waits in a loop that calls a function is mostly seen in that function. The stack is read a while after the sample
//! was taken, and not unwound: what is below the loop is there as long as the thread waits, and what stands there by chance, or since
//! long, is not there each time, or calls nothing.

use crate::proc::Proc;
use evenly_model::Pid;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// How much of a stack is looked through, in bytes.
const DEPTH: usize = 4 << 10;
/// What stood there this often, and each so many times that it was looked, may be what called.
const OFTEN: u64 = 3;
const EACH: u64 = 12;

/// A place in a file of a certain number.
type Place = (usize, u64);

/// What stood on a thread's stack.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    looks: u64,
    seen: HashMap<Place, u64>,
}

impl Callers {
    /// At one look there were these places, each once for each time that it stood there.
    pub(crate) fn add(&mut self, places: impl Iterator<Item = Place>) {
        self.looks += 1;
        let places: HashSet<Place> = places.collect();
        for place in places {
            *self.seen.entry(place).or_default() += 1;
        }
    }

    /// Those that were there often.
    pub(crate) fn often(&self) -> impl Iterator<Item = Place> {
        let is_often = |n: u64| n >= OFTEN && EACH * n >= self.looks;
        self.seen.iter().filter(move |&(_, &n)| is_often(n)).map(|(&place, _)| place)
    }
}

/// The words on a stack, from this address up; none where it cannot be read.
pub(crate) fn words(proc: &Proc, pid: Pid, from: u64) -> Vec<u64> {
    let mut bytes = vec![0; DEPTH];
    let memory = File::open(proc.process_file(pid, "mem"));
    // A stack may be shorter.
    let read = memory.and_then(|memory| memory.read_at(&mut bytes, from)).unwrap_or(0);
    let words = bytes[..read].as_chunks().0.iter();
    words.map(|word| u64::from_ne_bytes(*word)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn what_stands_on_a_stack_often_has_called() {
        let mut callers = Callers::default();
        // Twice each time; each second time; three times at first.
        for n in 0..40 {
            let seen = [(0, 7), (0, 7), (0, 8), (1, 9)];
            let is_there = |&(_, at): &Place| at == 7 || at == 8 && n % 2 == 0 || at == 9 && n < 3;
            callers.add(seen.into_iter().filter(is_there));
            let mut often: Vec<Place> = callers.often().collect();
            often.sort_unstable();
            let expected: &[Place] = match n {
                0 | 1 => &[],
                2 | 3 => &[(0, 7), (1, 9)],
                4..=35 => &[(0, 7), (0, 8), (1, 9)],
                _ => &[(0, 7), (0, 8)],
            };
            assert_eq!(often, expected, "{n}");
        }
    }

    #[test]
    fn a_stack_is_read_up_to_its_end() {
        let pid = Pid(std::process::id() as i32);
        let stands_there = [7_u64, 11, 13];
        let found = words(&Proc::default(), pid, stands_there.as_ptr() as u64);
        assert!(found.starts_with(&stands_there) && 8 * found.len() <= DEPTH);
        assert!(words(&Proc::default(), pid, 0).is_empty());
        // Nothing is behind the last page of a mapping.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let stack = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let end = stack.split(['-', ' ']).nth(1).unwrap();
        let end = u64::from_str_radix(end, 16).unwrap();
        assert_eq!(words(&Proc::default(), pid, end - 64).len(), 8);
    }
}

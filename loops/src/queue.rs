//! Tasks that are taken: from a processor's own queue, by itself from the head and by others from the tail; or from what all have
//! in common.
//!
//! Each word has the number of the instance in it, so that whoever is late, and still believes to be in an earlier one, takes
//! nothing: its exchange fails. A number comes again after 2^32 instances.
//!
//! Memory ordering: who takes a task reads what was written about it before the word was set (`Release`, `Acquire`).

#[cfg(loom)]
use loom::sync::atomic::AtomicU64;
#[cfg(not(loom))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// Most tasks of a queue.
pub const MOST_TASKS: usize = u16::MAX as usize;

/// The tasks of a processor, by their place in its list.
#[derive(Debug, Default)]
pub struct Queue(AtomicU64);

fn packed(instance: u32, head: u16, tail: u16) -> u64 {
    u64::from(instance) << 32 | u64::from(head) << 16 | u64::from(tail)
}

fn unpacked(word: u64) -> (u32, u16, u16) {
    ((word >> 32) as u32, (word >> 16) as u16, word as u16)
}

impl Queue {
    /// So many tasks, of this instance.
    pub fn set(&self, instance: u32, tasks: u16) {
        self.0.store(packed(instance, 0, tasks), Release);
    }

    /// How many are left.
    pub fn left(&self, instance: u32) -> u16 {
        let (of, head, tail) = unpacked(self.0.load(Acquire));
        if of == instance { tail - head } else { 0 }
    }

    /// Takes the first, and as many after it as `together` says, which is told the first place and the end of the queue.
    pub fn take_own(
        &self,
        instance: u32,
        together: impl Fn(u16, u16) -> u16,
    ) -> Option<(u16, u16)> {
        self.take(instance, |head, tail| {
            let end = together(head, tail).clamp(head + 1, tail);
            ((head, end), (end, tail))
        })
    }

    /// Takes the last one.
    pub fn steal(&self, instance: u32) -> Option<u16> {
        self.take(instance, |head, tail| (tail - 1, (head, tail - 1)))
    }

    fn take<T>(&self, instance: u32, what: impl Fn(u16, u16) -> (T, (u16, u16))) -> Option<T> {
        let mut word = self.0.load(Acquire);
        loop {
            let (of, head, tail) = unpacked(word);
            if of != instance || head >= tail {
                return None;
            }
            let (taken, (head, tail)) = what(head, tail);
            match self.0.compare_exchange(word, packed(instance, head, tail), AcqRel, Acquire) {
                Ok(_) => return Some(taken),
                Err(now) => word = now,
            }
        }
    }
}

/// What is taken in order, by whoever comes next.
#[derive(Debug, Default)]
pub struct Common(AtomicU64);

impl Common {
    /// Nothing of this instance is taken.
    pub fn set(&self, instance: u32) {
        self.0.store(u64::from(instance) << 32, Release);
    }

    /// Takes as many as `size` says of what has been taken so far: from where on, and how many.
    pub fn take(&self, instance: u32, mut size: impl FnMut(u32) -> u32) -> Option<(u32, u32)> {
        let mut word = self.0.load(Acquire);
        loop {
            let taken = word as u32;
            if (word >> 32) as u32 != instance {
                return None;
            }
            let more = size(taken);
            if more == 0 {
                return None;
            }
            let new = word & !u64::from(u32::MAX) | u64::from(taken.saturating_add(more));
            match self.0.compare_exchange(word, new, AcqRel, Acquire) {
                Ok(_) => return Some((taken, more)),
                Err(now) => word = now,
            }
        }
    }
}

//! What the threads of a team share while they carry out an instance of a loop.
//!
//! ```text
//!   all done with k-1 --first claims k--> set up --ready--> tasks are taken --last of the threads ends--> summed up --done--> ...
//! ```
//!
//! Invariants (`tests/loom.rs` tries all interleavings):
//! - One thread sets an instance up, and one sums it up: the first that begins it, and the last that ends it.
//! - While one of both does so no other thread takes tasks.
//! - No thread leaves an instance before each task of it was carried out.

use crate::error::LoopsError;
use crate::gate::Gate;
use crate::queue::{Common, Queue};
use crossbeam_utils::CachePadded;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32};

/// One for each loop and team.
#[derive(Debug)]
pub struct Board {
    claimed: CachePadded<AtomicU32>,
    ready: CachePadded<Gate>,
    done: CachePadded<Gate>,
    /// Threads that have not ended this instance.
    within: CachePadded<AtomicU32>,
    given_up: AtomicBool,
    why: OnceLock<LoopsError>,
    /// The tasks of each processor.
    pub queues: Box<[CachePadded<Queue>]>,
    /// Tasks that all have in common.
    pub common: CachePadded<Common>,
}

impl Board {
    /// For so many threads, before the first instance, which is 1.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self {
            claimed: CachePadded::default(),
            ready: CachePadded::default(),
            done: CachePadded::default(),
            within: CachePadded::default(),
            given_up: AtomicBool::new(false),
            why: OnceLock::new(),
            queues: (0..threads).map(|_| CachePadded::default()).collect(),
            common: CachePadded::default(),
        }
    }

    /// Begins an instance, which is set up by the first. False where the loop was given up.
    pub fn begin(
        &self,
        instance: u32,
        spins: u32,
        set_up: impl FnOnce(),
        gives_up: impl Fn() -> bool,
    ) -> bool {
        // Others may still be in the instance before.
        if self.is_given_up() {
            return false;
        }
        let before = instance.wrapping_sub(1);
        // A thread that comes here has ended the instance before, so all have.
        if self.claimed.compare_exchange(before, instance, AcqRel, Acquire).is_ok() {
            set_up();
            self.within.store(self.queues.len() as u32, Release);
            self.ready.set(instance);
        } else {
            self.ready.wait(instance, spins, || self.is_given_up() || gives_up());
        }
        self.ready.has_reached(instance) && !self.is_given_up()
    }

    /// Ends an instance, in which the thread has found no further task: the last one sums up, the others wait for that. False
    /// where the loop was given up.
    pub fn end(
        &self,
        instance: u32,
        spins: u32,
        sum_up: impl FnOnce(),
        gives_up: impl Fn() -> bool,
    ) -> bool {
        if self.within.fetch_sub(1, AcqRel) == 1 {
            sum_up();
            self.done.set(instance);
        } else {
            self.done.wait(instance, spins, || self.is_given_up() || gives_up());
        }
        self.done.has_reached(instance)
    }

    /// Takes the last task of whoever has most left: whose it was, and its place there.
    pub fn steal(&self, instance: u32) -> Option<(usize, u16)> {
        loop {
            let left = self.queues.iter().map(|queue| queue.left(instance)).enumerate();
            let (victim, _) = left.filter(|(_, left)| *left > 0).max_by_key(|(_, left)| *left)?;
            if let Some(place) = self.queues[victim].steal(instance) {
                return Some((victim, place));
            }
        }
    }

    /// Nobody waits for this loop any longer. The first reason counts.
    pub fn give_up(&self, why: LoopsError) {
        let _ = self.why.set(why);
        self.given_up.store(true, Release);
        self.ready.wake();
        self.done.wake();
    }

    /// Why that was done.
    pub fn why(&self) -> Option<&LoopsError> {
        self.why.get()
    }

    /// Whether that was done.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Acquire)
    }
}

//! What the threads of a team share while they carry out an instance of a loop.
//!
//! ```text
//!   k-1 is done --first claims k--> set up --ready--> tasks are taken --nothing is left to do--> summed up --done--> ...
//! ```
//!
//! What is left to do is counted: that each thread finds no further task; or, where threads overtake each other, the tasks. Then
//! whoever comes when all tasks have been carried out is late, and has no part in the instance.
//!
//! Invariants (`tests/loom.rs` tries interleavings, with a bound on preemptions):
//! - One thread sets an instance up, and one sums it up: the first that begins it, and the last that has done something.
//! - While one of both does so no other thread takes tasks.
//! - No thread leaves an instance before each task of it was carried out.

use crate::error::{LoopsError, Reason};
use crate::gate::{Gate, Patience};
use crate::queue::{Common, Queue};
use crossbeam_utils::CachePadded;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::sync::{Arc, OnceLock};

/// How a thread has begun an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// It has a part in it, and is to complete so much when it has found no further task.
    Within(u32),
    /// The others have carried out all of it.
    Late,
    /// The loop was given up.
    GivenUp,
}

/// One for each loop and team.
#[derive(Debug)]
pub struct Board {
    claimed: CachePadded<AtomicU32>,
    ready: CachePadded<Gate>,
    done: CachePadded<Gate>,
    /// What is left to do in this instance.
    left: CachePadded<AtomicU32>,
    /// Threads overtake each other.
    overtakes: bool,
    given_up: AtomicBool,
    why: OnceLock<Arc<Reason>>,
    /// The tasks of each processor.
    pub queues: Box<[CachePadded<Queue>]>,
    /// Tasks that all have in common.
    pub common: CachePadded<Common>,
}

impl Board {
    /// For so many threads, before the first instance, which is 1.
    #[must_use]
    pub fn new(threads: usize, overtakes: bool) -> Self {
        Self {
            claimed: CachePadded::default(),
            ready: CachePadded::default(),
            done: CachePadded::default(),
            left: CachePadded::default(),
            overtakes,
            given_up: AtomicBool::new(false),
            why: OnceLock::new(),
            queues: (0..threads).map(|_| CachePadded::default()).collect(),
            common: CachePadded::default(),
        }
    }

    /// Whether threads overtake each other.
    pub fn overtakes(&self) -> bool {
        self.overtakes
    }

    /// Begins an instance. The first thread sets it up, and says how many tasks it has.
    pub fn begin(
        &self,
        instance: u32,
        patience: Patience,
        set_up: impl FnOnce() -> u32,
        gives_up: impl Fn() -> bool,
    ) -> Begun {
        // Others may still be in the instance before.
        if self.is_given_up() {
            return Begun::GivenUp;
        }
        let before = instance.wrapping_sub(1);
        let mut completes = u32::from(!self.overtakes);
        // A thread that comes here has seen the end of the instance before.
        if self.claimed.compare_exchange(before, instance, AcqRel, Acquire).is_ok() {
            // Whoever reads what is written from here on sees that it is of this instance.
            fence(Release);
            let tasks = set_up();
            if self.overtakes {
                // Somebody has to end what is empty.
                completes = u32::from(tasks == 0);
                self.left.store(tasks.max(1), Release);
            } else {
                self.left.store(self.queues.len() as u32, Release);
            }
            self.ready.set(instance);
        } else {
            self.ready.wait(instance, patience, |_| self.is_given_up() || gives_up());
        }
        if !self.ready.has_reached(instance) || self.is_given_up() {
            Begun::GivenUp
        } else if self.done.has_reached(instance) {
            Begun::Late
        } else {
            Begun::Within(completes)
        }
    }

    /// Whether what was read of this instance is of no later one: for whoever may be late. If it is not, all that others wrote in
    /// this instance is seen from now on.
    pub fn is_at(&self, instance: u32) -> bool {
        fence(Acquire);
        self.claimed.load(Acquire) == instance
    }

    /// So much of an instance is done. Whoever does the last of it sums up.
    pub fn complete(&self, instance: u32, done: u32, sum_up: impl FnOnce()) {
        if done > 0 && self.left.fetch_sub(done, AcqRel) == done {
            sum_up();
            self.done.set(instance);
        }
    }

    /// Waits until an instance is done, in which the thread has found no further task. False where the loop was given up, as
    /// `gives_up` may say, which is told how many whole sleeps there were.
    pub fn end(&self, instance: u32, patience: Patience, gives_up: impl Fn(u32) -> bool) -> bool {
        self.done.wait(instance, patience, |sleeps| self.is_given_up() || gives_up(sleeps));
        self.done.has_reached(instance)
    }

    /// Whether no instance has begun that is not done.
    pub fn is_done(&self) -> bool {
        self.done.has_reached(self.claimed.load(Acquire))
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
    pub fn give_up(&self, why: Arc<Reason>) {
        let _ = self.why.set(why);
        self.given_up.store(true, Release);
        self.ready.wake();
        self.done.wake();
    }

    /// Why that was done.
    pub fn why(&self) -> Option<&LoopsError> {
        self.why.get().map(|why| why.error())
    }

    /// Whether somebody was told that, as is the caller.
    pub fn was_told(&self) -> bool {
        self.why.get().is_some_and(|why| why.was_told())
    }

    /// Whether that was done.
    pub fn is_given_up(&self) -> bool {
        self.given_up.load(Acquire)
    }
}

//! What the threads of a team share while they carry out an instance of a loop.
//!
//! ```text
//!   k-1 is done --first claims k--> set up --ready--> tasks are taken --nothing is left to do--> summed up --done--> ...
//!       \---- the same bounds as before: k was set up ahead ---------^
//! ```
//!
//! What is left to do is counted: that each thread finds no further task; or, where threads overtake each other, the tasks. Then
//! whoever comes when all tasks have been carried out is late, and has no part in the instance.
//!
//! Whoever sums an instance up also sets up the next one, as long as bounds are the same from instance to instance: then threads
//! meet once in each, and not twice. A thread that comes with other bounds claims the instance, and takes back what was set up.
//! Whoever has begun by it says so before it looks whether that was done (`Board::begun`), and whoever takes it back looks
//! afterwards who has: one of both sees the other.
//!
//! What such an instance costs is the way of cache lines from CPU to CPU, and three of them go: the entrance to whoever comes last,
//! where others were before; the exit, at which others look, to the same thread; and back to them. The first is asked for while the
//! thread is still busy. All else that a thread writes stays with it (`crate::pending`), and where tasks are not stolen nothing is
//! written about them.
//!
//! Invariants (`tests/loom.rs` tries interleavings, with a bound on preemptions):
//! - One thread sets an instance up, and one sums it up: the first that begins it, or whoever summed up the one before; and the
//!   last that has done something.
//! - While one of both does so no other thread takes tasks.
//! - No thread leaves an instance before each task of it was carried out.
//! - No thread carries out an instance by what was set up ahead while another one sets it up anew.

use crate::error::{LoopsError, Reason};
use crate::gate::{Gate, Patience};
use crate::queue::{Common, Queue};
use crossbeam_utils::CachePadded;
#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU32, fence};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
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
    /// Others have begun it by what was set up ahead, which is not what this thread wants.
    Disagrees,
    /// The loop was given up.
    GivenUp,
}

/// What a thread writes when it has done something, and whoever has done the last of it when it ends the instance: in a cache line
/// of which nobody waits for anything where the next instance is set up ahead.
#[derive(Debug, Default)]
struct Entrance {
    /// What is left to do in this instance.
    left: AtomicU32,
    /// The last instance that a thread sets up as the first that begins it, or that is over.
    claimed: AtomicU32,
    ready: Gate,
}

/// In one cache line, at which threads look while they wait: whoever ends an instance writes to all of it at the end, and whoever
/// begins the next one reads it.
#[derive(Debug, Default)]
struct Exit {
    /// The instance that was set up last, in either way.
    set_up: AtomicU32,
    /// The one that was set up before anybody came, if that is the next one.
    ahead: AtomicU32,
    done: Gate,
}

/// One for each loop and team.
#[derive(Debug)]
pub struct Board {
    entrance: CachePadded<Entrance>,
    exit: CachePadded<Exit>,
    /// The instance that each thread has begun last.
    begun: Box<[CachePadded<AtomicU32>]>,
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
            entrance: CachePadded::default(),
            exit: CachePadded::default(),
            begun: (0..threads).map(|_| CachePadded::default()).collect(),
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

    /// Begins an instance. The first thread sets it up, and says how many tasks it has; unless that was done ahead, and `is_same`
    /// says that it is as this thread would.
    pub fn begin(
        &self,
        thread: usize,
        instance: u32,
        patience: Patience,
        is_same: impl FnOnce() -> bool,
        set_up: impl FnOnce() -> u32,
        gives_up: impl Fn() -> bool,
    ) -> Begun {
        // Others may still be in the instance before.
        if self.is_given_up() {
            return Begun::GivenUp;
        }
        let (entrance, exit) = (&*self.entrance, &*self.exit);
        let mut completes = u32::from(!self.overtakes);
        // A thread that comes here has seen the end of the instance before, and so what was set up by then.
        if exit.ahead.load(Acquire) == instance && is_same() {
            self.begun[thread].store(instance, Relaxed);
            // Either this is seen by whoever takes back what was set up, or that is seen here.
            fence(SeqCst);
            if exit.ahead.load(Acquire) == instance {
                crate::hint::writes_soon(entrance);
                return self.has_begun(instance, completes);
            }
        }
        // What was read by `is_same` may be of a later instance: then this one is claimed.
        fence(Acquire);
        let before = instance.wrapping_sub(1);
        if entrance.claimed.compare_exchange(before, instance, AcqRel, Acquire).is_ok() {
            if exit.ahead.load(Acquire) == instance {
                exit.ahead.store(before, Relaxed);
                fence(SeqCst);
                let has = |(other, begun): (usize, &CachePadded<AtomicU32>)| {
                    other != thread && begun.load(Relaxed) == instance
                };
                if self.begun.iter().enumerate().any(has) {
                    return Begun::Disagrees;
                }
            }
            completes = self.set(instance, set_up).unwrap_or(1);
            entrance.ready.set(instance);
        } else {
            entrance.ready.wait(instance, patience, |_| self.is_given_up() || gives_up());
        }
        if !entrance.ready.has_reached(instance) {
            return Begun::GivenUp;
        }
        self.begun[thread].store(instance, Release);
        self.has_begun(instance, completes)
    }

    fn has_begun(&self, instance: u32, completes: u32) -> Begun {
        if self.is_given_up() {
            Begun::GivenUp
        } else if self.exit.done.has_reached(instance) {
            Begun::Late
        } else {
            Begun::Within(completes)
        }
    }

    /// Sets an instance up. What each thread is to complete when it has found no further task; None where nobody would complete
    /// it, as it is empty.
    fn set(&self, instance: u32, set_up: impl FnOnce() -> u32) -> Option<u32> {
        self.exit.set_up.store(instance, Relaxed);
        // Whoever reads what is written from here on sees that it is of this instance.
        fence(Release);
        let tasks = set_up();
        let left = if self.overtakes { tasks.max(1) } else { self.queues.len() as u32 };
        self.entrance.left.store(left, Release);
        (!self.overtakes || tasks > 0).then_some(u32::from(!self.overtakes))
    }

    /// Whether what was read of this instance is of no later one: for whoever may be late. If it is not, all that others wrote in
    /// this instance is seen from now on.
    pub fn is_at(&self, instance: u32) -> bool {
        fence(Acquire);
        self.exit.set_up.load(Acquire) == instance
    }

    /// So much of an instance is done. Whoever does the last of it sums up, and says whether the next one is to be set up ahead;
    /// and does that.
    pub fn complete(
        &self,
        instance: u32,
        done: u32,
        sum_up: impl FnOnce() -> bool,
        set_up: impl FnOnce() -> u32,
    ) {
        if done == 0 || self.entrance.left.fetch_sub(done, AcqRel) != done {
            return;
        }
        let (entrance, exit) = (&*self.entrance, &*self.exit);
        // Where it was set up ahead that was not said so far. Nobody waits for it to be ready.
        let was_ahead = !entrance.ready.has_reached(instance);
        entrance.ready.pass(instance);
        let before = instance.wrapping_sub(1);
        if was_ahead
            && entrance.claimed.compare_exchange(before, instance, AcqRel, Acquire).is_err()
        {
            // Claimed by one that wants something else, which finds that it was begun, and gives up.
            return;
        }
        if sum_up() && !self.is_given_up() {
            let next = instance.wrapping_add(1);
            if self.set(next, set_up).is_some() {
                exit.ahead.store(next, Release);
            }
        }
        exit.done.set(instance);
    }

    /// Waits until an instance is done, in which the thread has found no further task. False where the loop was given up, as
    /// `gives_up` may say, which is told how many whole sleeps there were.
    pub fn end(&self, instance: u32, patience: Patience, gives_up: impl Fn(u32) -> bool) -> bool {
        let done = &self.exit.done;
        done.wait(instance, patience, |sleeps| self.is_given_up() || gives_up(sleeps));
        done.has_reached(instance)
    }

    /// Whether the instance is done that this thread has begun last.
    pub fn is_done(&self, thread: usize) -> bool {
        self.exit.done.has_reached(self.begun[thread].load(Acquire))
    }

    /// The last instance that is done.
    pub fn done(&self) -> u32 {
        self.exit.done.reached()
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
        self.entrance.ready.wake();
        self.exit.done.wake();
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

//! What a program can do wrong.

use evenly_iterations::Extent;
use std::borrow::Cow;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Why a loop was given up. Several may be, for one reason.
#[derive(Debug)]
pub struct Reason {
    error: LoopsError,
    was_told: AtomicBool,
}

impl Reason {
    /// The reason itself.
    #[must_use]
    pub fn error(&self) -> &LoopsError {
        &self.error
    }

    /// Whether this was asked before.
    #[must_use]
    pub fn was_told(&self) -> bool {
        self.was_told.swap(true, Relaxed)
    }
}

impl From<LoopsError> for Reason {
    fn from(error: LoopsError) -> Self {
        Self { error, was_told: AtomicBool::new(false) }
    }
}

/// Why a loop was not carried out, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoopsError {
    /// There is no team of so many.
    #[error("a team has from 1 to {most} threads, not {threads}", most = crate::MOST_THREADS)]
    Threads {
        /// What was asked for.
        threads: usize,
    },
    /// An array that cannot be there.
    #[error(
        "an array has one dimension or more, and less than 2^63 bytes, and not {sizes:?} elements of {element_bytes} bytes"
    )]
    Array {
        /// Of each dimension.
        sizes: Vec<usize>,
        /// Of an element.
        element_bytes: u64,
    },
    /// A loop would use what is not in its array.
    #[error(
        "loop '{region}' uses element {element} of the array at {address:#x} in iteration {iteration}, and it has {extent} elements \
         (counted from 0)"
    )]
    Leaves {
        /// The loop.
        region: String,
        /// The variable of the loop, where it is the first to do so.
        iteration: i64,
        /// The element that is not there.
        element: i128,
        /// Where the array begins.
        address: u64,
        /// Its dimensions.
        extent: Extent,
    },
    /// A thread gave a number that none of the team has.
    #[error(
        "loop '{region}' was begun by thread {thread} of a team of {threads}; they are counted from 0"
    )]
    NoSuchThread {
        /// The loop.
        region: String,
        /// What it gave.
        thread: usize,
        /// Of the team.
        threads: usize,
    },
    /// Its variable would never reach its end.
    #[error("loop '{region}' has a stride of 0")]
    Stride {
        /// The loop.
        region: String,
    },
    /// Threads that carry out a loop together disagree about it.
    #[error(
        "thread {thread} began loop '{region}' from {found}, others of the team from {needed}: all threads of a team have to \
         begin the same loops, in the same order"
    )]
    Disagrees {
        /// The loop.
        region: String,
        /// Who.
        thread: usize,
        /// Its bounds.
        found: String,
        /// Those of the others.
        needed: String,
    },
    /// Threads begin loops in different orders, or one of them leaves out a loop.
    #[error(
        "thread {thread} began loop '{region}' where thread {other} began loop '{instead}' (loop {place} of each): all threads of \
         a team have to begin the same loops, in the same order"
    )]
    Order {
        /// The loop that a thread has begun.
        region: String,
        /// Who.
        thread: usize,
        /// The one that another thread has begun.
        instead: String,
        /// Who that is.
        other: usize,
        /// How many loops of the team each had begun, with this one.
        place: u32,
    },
    /// A thread that has not ended a loop begins one.
    #[error(
        "thread {thread} began loop '{region}' within loop '{within}' of the same team: loops that are nested need teams of their \
         own, and a loop has to go on until there is no further task (no break, goto, longjmp or return)"
    )]
    Nested {
        /// The loop.
        region: String,
        /// Who.
        thread: usize,
        /// What it has not ended.
        within: String,
    },
    /// Two threads say that they are the same.
    #[error("two threads of the program begin loop '{region}' as thread {thread} of one team")]
    Twice {
        /// The loop.
        region: String,
        /// Who they say they are.
        thread: usize,
    },
    /// A child process has only one of the team's threads.
    #[error(
        "loop '{region}' belongs to the process before its fork, and so does its team; a child makes its own"
    )]
    Forked {
        /// The loop.
        region: String,
    },
    /// Another thread did not go on.
    #[error("loop '{region}' was given up: {why}")]
    GivenUp {
        /// The loop.
        region: String,
        /// By whom.
        why: Cow<'static, str>,
    },
}

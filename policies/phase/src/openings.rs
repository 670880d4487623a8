//! What the program reports of its phases, and what it is told.
//!
//! Invariant: programs can report anything. [`crate::Phases`] makes no use of an opening that cannot be
//! ([`Opening::is_possible`]), and what it takes from reports is at most [`LONGEST`].

use evenly_model::{CpuId, Nanos, Pid, ThreadId};

/// Nothing that a program reports of a phase is taken for longer.
pub const LONGEST: Nanos = Nanos::from_millis(10_000);

/// For how long a helper sleeps at most before it looks whether it is still needed.
pub const NAP: Nanos = Nanos::from_millis(100);

/// A barrier has opened: a phase has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opening {
    /// How many there were before, modulo 2^32.
    pub phase: u32,
    /// When it opened, by the monotonic clock.
    pub at: Nanos,
}

impl Opening {
    /// Whether it has been, and not so long ago that its phase is over in any case.
    #[must_use]
    pub fn is_possible(self, now: Nanos) -> bool {
        self.at <= now && now - self.at <= LONGEST
    }
}

/// What a thread reports of the phase that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reported {
    /// The CPU time that it is expected to take.
    pub expected: Nanos,
    /// Its CPU time when it began.
    pub base: Nanos,
    /// Whether it has finished it.
    pub finished: bool,
}

/// What a program reports of its phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Measured {
    /// The program reports nothing of its barriers.
    #[default]
    Nothing,
    /// It is reported when barriers open.
    Openings,
    /// And what threads compute in between.
    Phases,
}

/// The threads that meet at one barrier again and again.
pub trait Openings: Send + Sync {
    /// Finds the barrier at which most of these threads meet, and its number. None where no two do, or none reports it.
    fn follow(&self, threads: &[ThreadId]) -> Option<u32>;

    /// What the program reports of that barrier from now on.
    fn measure(&self, what: Measured);

    /// From now on threads are kept on single CPUs, or not: so that the program is shown the masks it would have without.
    fn hold(&self, held: bool);

    /// Somebody else has set the mask of a thread of this process: it is shown masks as they are from now on.
    fn show_masks(&self, process: Pid);

    /// From now on the helpers of these CPUs are woken when the barrier opens, and no others; and only where the thread that
    /// opens it expects to compute for longer than `least` until the next, unless that is zero.
    fn arm(&self, cpus: &[CpuId], least: Nanos);

    /// Waits until the barrier opens after the opening that was `seen`, the helper of this CPU is called, or another
    /// barrier is followed: at most for a [`NAP`]. None where no opening is known then.
    fn wait(&self, cpu: CpuId, seen: Opening) -> Option<Opening>;

    /// Calls the helper of a CPU.
    fn call(&self, cpu: CpuId);

    /// The last opening that was reported.
    fn last(&self) -> Opening;

    /// What the phases that have ended while they were counted have been worth, modulo 2^32: phases differ in length, and
    /// one is worth what the first ones that began at the same barrier took. By this amounts of work compare.
    fn worth(&self) -> u32;

    /// What a thread reports; None of one that does not meet the others.
    fn reported(&self, thread: ThreadId) -> Option<Reported>;

    /// Tells the program where a thread has been put, None if it may run anywhere: so that others know when
    /// they keep it from its CPU.
    fn put(&self, thread: ThreadId, cpu: Option<CpuId>);
}

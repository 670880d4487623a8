//! The table of places where threads hand over their CPU, as evenly sees it.
//!
//! Invariant: a place that was given is never another one.

use evenly_model::{Nanos, Pid};
use std::io;

/// A process that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taking {
    /// The process.
    pub pid: Pid,
    /// That of its addresses, which processes that were forked share.
    pub space: u32,
    /// Nothing is to be changed in it, as it is about to filter system calls.
    pub is_left_alone: bool,
}

impl Taking {
    /// What it is known by.
    #[must_use]
    pub fn key(&self) -> (Pid, u32) {
        (self.pid, self.space)
    }
}

/// A place where threads hand over, in the table that is shared with programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(pub u32);

impl Place {
    /// No instruction, but the calls by which ranks of MPI wait.
    pub const MPI: Self = Self(u32::MAX);
    /// No instruction, but calls of `sched_yield` beside other programs.
    pub const YIELDS: Self = Self(u32::MAX - 1);
}

/// What has come of a place, or of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Handed {
    /// How often threads came to it.
    pub traps: u64,
    /// For how long others ran meanwhile.
    pub given: Nanos,
    /// For how long threads slept there.
    pub slept: Nanos,
}

/// The table that is shared with programs.
pub trait Places: Send {
    /// Processes that take part; those that have ended may be among them.
    fn taking(&self) -> Vec<Taking>;
    /// The place of an address, at which there is an instruction that begins with this, and of which it is doubted
    /// or not that threads wait there. It is the same whenever it is asked for; None where there is no room, or there was another
    /// instruction before.
    fn place(&mut self, space: u32, at: u64, hidden: u32, is_doubted: bool) -> Option<Place>;
    /// Threads do not wait there.
    ///
    /// # Errors
    /// Where the table cannot be written.
    fn refute(&mut self, place: Place) -> io::Result<()>;
    /// Whether it has turned out that threads do not wait there.
    fn is_refuted(&self, place: Place) -> bool;
    /// Says that the instruction there is changed from outside, or no longer. False where the program changes it: then it is to
    /// be left as it is.
    fn changes(&mut self, place: Place, changes: bool) -> bool;
    /// Whether threads hand over there.
    ///
    /// # Errors
    /// Where the table cannot be written.
    fn want(&mut self, place: Place, wanted: bool) -> io::Result<()>;
    /// Until which second of `CLOCK_MONOTONIC` they do; 0 for not any longer.
    ///
    /// # Errors
    /// Where the table cannot be written.
    fn until(&mut self, second: u32) -> io::Result<()>;
    /// Until which second of `CLOCK_MONOTONIC` other programs compute on the CPUs; 0 for none.
    ///
    /// # Errors
    /// Where the table cannot be written.
    fn others(&mut self, second: u32) -> io::Result<()>;
    /// The places that were given, [`Place::MPI`] and [`Place::YIELDS`], with what has come of each.
    fn handed(&self) -> Vec<(Place, Handed)>;
}

//! A balancer for each CPU, and no cycle that all have in common (Yun: Application of secretary
//! algorithm to dynamic load balancing, 2013, "OSLB", sections 3.1 to 3.3).
//!
//! ```text
//!   CpuBalancer (one for each CPU)                         Balancer (one for all: the caretaker)
//!   wakes on its own, every lambda +- 10 %                 every CARE lambda
//!     read the threads of its CPU                            threads that join, end, rest; CPUs that come
//!     publish speed of CPU, speeds of threads                and go; other balancers; pauses of the
//!     if fast: while searching                               guard; spread where counts differ; the
//!       draw a thread at random; if it is a candidate,       account for reports and recordings
//!       read it                                              (reads what was not read lately)
//!     swap                                                        |
//!          |                                                      |
//!          +------------------- Board: atomics -------------------+
//! ```
//!
//! No balancer waits for another: what they share is in [`Board`], most of it in single atomic words
//! ([`shared`]). A lock is held only for as long as it takes to read one thread (each thread has its own)
//! or to add one to the list of a CPU (each CPU has its own).
//!
//! A balancer works in steps ([`CpuBalancer::step`]), each with one reading at most of a
//! thread that is not its own. In the simulator the steps of all balancers are interleaved in virtual
//! time, so that what one has observed may no longer hold when it wants to swap; live one worker thread
//! takes a balancer from one wake-up to the next sleep.
//!
//! A swap is a step of its own ([`Board::swap`]), because masks are changed through another machine
//! than threads are read through: live there is one for each domain, under a lock, with the journal
//! behind it.
//!
//! Invariants:
//! - A thread is moved by a balancer only while the board is active, with both threads claimed, to a
//!   CPU of its own mask.
//! - The caretaker moves threads only while it alone can change masks.
//! - Of two threads that swap CPUs which each has to itself, one is unpinned first, so that no CPU is
//!   unused in between (promise P2).
//!
//! Where this departs from the paper:
//! - Membership is not the business of each balancer: the caretaker finds threads and spreads them, and does
//!   nothing else.
//! - "The migration rate is high" (3.2) is not defined there. Here it is where more than a quarter of the
//!   threads were moved within lambda ([`HIGH_RATE`]).
//! - What is said in [`decision`] of speeds and candidates.

#![forbid(unsafe_code)]

mod agent;
mod board;
mod care;
mod cpu;
pub mod decision;
pub mod shared;
pub mod stopping;

pub use board::{Board, HIGH_RATE, Swap};
pub use cpu::{CpuBalancer, Step};
pub use decision::{SECRETARY, Secretary};

/// The caretaker's points are this many periods apart.
pub const CARE: f64 = 5.0;

/// The balancers of all CPUs, and what they share.
pub struct Decentral {
    /// What the balancers share.
    pub board: std::sync::Arc<Board>,
    /// One for each CPU, in the order of their numbers.
    pub balancers: Vec<CpuBalancer>,
}

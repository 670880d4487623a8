//! Balancing inside the phases of a program: between two barriers, one planned move for each CPU with too
//! much to do.
//!
//! Juggle looks at the threads once a period, and needs many periods in a phase (its section 4.6: not below
//! 10 ms). But phases repeat. What each thread will compute until the next barrier is known from the phases
//! before, so that one move at the right moment is enough, and a phase may be as short as some moves.
//!
//! ```text
//!   program, with the probe            helper of a CPU                       Balancer (the caretaker)
//!   arrives: CPU time, expected time                                         every period
//!   last to arrive opens the barrier ---> wakes, where its CPU has too         threads that join, end, rest; CPUs
//!   computes                              much to do; sleeps until the         that come and go; pauses of the guard;
//!                                         move is due; moves one thread        spreads; the account
//! ```
//!
//! What is decided is in [`timetable`], when a helper is needed next in [`Foresight`], and what it may cost in
//! [`Allowance`]; all are pure.
//! [`Phases`] is what the helpers and the caretaker share; to the engine it is
//! all of its agents. [`Openings`] is how barriers that open become known; the system is behind it.
//!
//! Invariants: a thread is moved only while the caretaker lets helpers work, to a CPU of its own mask, and
//! from a CPU that has another thread (promise P2). Helpers wait for the caretaker at most as long as its
//! point takes, and never for each other but to change the account.

#![forbid(unsafe_code)]

mod allowance;
mod foresight;
mod helper;
mod info;
mod openings;
mod others;
mod pulse;
mod shared;
pub mod timetable;

pub use allowance::{Allowance, HELPERS_SHARE};
pub use foresight::Foresight;
pub use helper::Helper;
pub use info::PHASE;
pub use openings::{LONGEST, Measured, NAP, Opening, Openings, Reported};
pub use pulse::{Pulse, PulseWatch};
pub use shared::{COST, Crowded, Phases};

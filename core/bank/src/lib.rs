//! The protocol of cooperative scheduling (Rencuzogullari, Dwarkadas: *Dynamic Adaptation to Available Resources*, PPoPP 2001,
//! section 2.5): a process that waits gives its CPU away, puts the rest of its quantum by, and has that much back as soon as what
//! it waits for is there.
//!
//! ```text
//!   waits --> spins --> yields, the rest of the quantum is charged and goes to the bank --> descheduled
//!               ^                                                                               |
//!               +-- runs on the bank, not charged again <-- honoured <-- a peer sends a wake request
//! ```
//!
//! [`Bank`] is the account, [`Words`] are what processes share with whoever schedules them, and [`Spin`] says how long it is spun.
//! None of them runs anything: a scheduler that does is in the simulator.
//!
//! Invariant: all that was charged is all time that was used, and what is in the bank, which is never more than a quantum.

#![forbid(unsafe_code)]

mod account;
mod spin;
mod words;

pub use account::Bank;
pub use spin::Spin;
pub use words::Words;

//! What is read: threads and their times, instructions, memory, and what limits a program.
//!
//! Invariant: the modules of this room need no journal, for no program runs differently because of them
//! when they are done. Two of them do change something: [`memory`] moves pages on request, which
//! no mask or share depends on, and [`pace`] binds threads of its own.

pub(crate) mod callers;
pub mod counters;
pub mod foreign;
pub mod functions;
pub mod limits;
pub mod memory;
pub mod modules;
pub mod pace;
pub(crate) mod program_cpus;
pub mod samples;
pub mod scan;
pub mod spinning;
pub mod taskstats;
pub mod threads;
pub mod usage;
pub mod wait_reports;

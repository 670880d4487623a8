//! Placing communicating tasks and threads by load, communication and the distance of memory (NucoLB: Pilla et
//! al., 2012).
//!
//! - [`map`]: the mappers. Each is a pure function from tasks, messages and a machine to a core for each task.
//! - [`NUCO`]: the policy `nuco`, which places the threads of a running program with them.
//! - [`iterations`]: the paper's experiments in virtual time.
//!
//! Invariant: the crate is pure. It reads no clock, no file and no random numbers but seeded ones.

#![forbid(unsafe_code)]

pub mod iterations;
pub mod map;
mod remap;

pub use remap::{NUCO, Remap};

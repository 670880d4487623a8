//! The kernel's interfaces as they are: `/proc`, masks, scheduling attributes, clocks, privileges.
//!
//! Invariant: nothing here decides, and nothing here is remembered.

pub mod affinity;
pub mod clock;
pub mod privilege;
pub mod proc;
pub mod real;
pub mod real_time;
pub mod sched;

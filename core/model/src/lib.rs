//! The vocabulary of evenly: identifiers, units, CPU sets, what is observed ([`Snapshot`]), what
//! is decided ([`Plan`]), and how far values are spread ([`metrics`]).
//!
//! Invariant of the crate: it is pure. Nothing in it reads a clock, a file or a random number, so
//! the same types carry a live run, a simulated one and a recording.

#![forbid(unsafe_code)]

mod cpuset;
pub mod efficiency;
pub mod hpc;
mod ids;
mod knowledge;
mod makespan;
pub mod metrics;
mod plan;
mod printable;
mod snapshot;
pub mod stats;
mod tasks;
mod time;
mod words;

pub use cpuset::{CpuListError, CpuSet};
pub use ids::{CpuId, DomainId, Pid, ThreadId, Tid};
pub use knowledge::{CacheLevel, Environment, Knowledge, NodeIndex};
pub use makespan::shortest_makespan;
pub use plan::{Effort, Move, Plan, Reason, Weight};
pub use printable::{Printable, is_printable, printable, shell_quoted};
pub use snapshot::{
    CpuIndex, CpuView, FULL_CAPACITY, LinkView, MemoryMove, MemoryView, Snapshot, TaskView,
    ThreadIndex, ThreadView, Turns, spun,
};
pub use tasks::{Edge, GraphError, Link, MOST_OF_ANYTHING, Task, TaskGraph, TaskIndex};
pub use time::{DurationError, Nanos, parse_duration};
pub use words::{counted, filled, or_meant, short};

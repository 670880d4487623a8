//! Who carries out which iterations of a parallel loop: divides them by how fast each processor gets on, and keeps them where
//! their data are (Rencuzogullari, Dwarkadas: *Dynamic Adaptation to Available Resources*, PPoPP 2001, sections 2.3 and 2.4).
//!
//! ```text
//!   a region begins --> first assignment, by relative power --> tasks are carried out
//!        ^                                                          |
//!        +-- tasks go to faster processors <-- powers changed <-- times, from the release to each one's finish
//! ```
//!
//! A *processor* is whoever carries out iterations: a thread, or a rank. A *task* is a number of consecutive iterations; all
//! tasks of a loop have about the same.
//!
//! Invariant: each iteration is in one task, and each task has one owner.

#![forbid(unsafe_code)]

mod auto;
mod bounds;
mod chunks;
mod common;
mod division;
mod extent;
mod memory;
mod partitions;
mod plan;
mod policy;
mod powers;
mod region;
mod scheduler;
mod tasks;

pub use auto::Auto;
pub use bounds::Bounds;
pub use chunks::{Chunks, Sizes, weight};
pub use common::Common;
pub use division::{Owners, divide, redivide};
pub use extent::{Extent, Outside};
pub use memory::Memory;
pub use partitions::Partitions;
pub use plan::{HandsOut, Outcome, Plan};
pub use policy::{Policy, UnknownPolicy};
pub use powers::{Measured, Powers};
pub use region::{Access, ArrayId, Load, Region, Section, Use};
pub use scheduler::Scheduler;
pub use tasks::{TASK_WORDS, TASKS_PER_PROCESSOR, Tasks, lead, smallest_task};

/// A thread or rank by its place among those that carry out a loop.
pub type Processor = usize;

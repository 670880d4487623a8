//! The machine that is Linux: threads and their times, affinity masks, cpusets and quotas, the
//! journal and the guardian that undo what a killed balancer left, and the program that is run.
//!
//! Invariant: this is the only crate that changes anything outside the process, and every change
//! of a mask or of a share is in the [`journal`] before it is made (promise P4).

pub mod affinity;
pub mod bpf;
pub mod clock;
mod control;
pub mod counters;
mod descent;
pub mod files;
pub mod foreign;
pub mod guardian;
pub mod journal;
pub mod limits;
pub mod live;
pub mod machine;
pub mod memory;
pub mod pace;
pub mod privilege;
pub mod proc;
pub mod real;
pub mod restore;
pub mod scan;
pub mod sched;
pub mod share;
mod share_undo;
pub mod supervise;
pub mod taskstats;
pub mod tuning;
pub mod usage;
pub mod witness;
mod workers;

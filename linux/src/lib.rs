//! The machine that is Linux: threads and their times, affinity masks, cpusets and quotas, the
//! journal and the guardian that undo what a killed balancer left, and the program that is run.
//!
//! Invariant: this is the only crate that changes anything outside the process, and every change
//! of a mask or of a share is in the [`journal`] before it is made (promise P4).
//!
//! # Rooms
//! Each folder is a room, and a room uses only those below it:
//!
//! | room | what it does | modules |
//! |---|---|---|
//! | `run` | a run as a whole | [`beside`], [`handover`], [`live`], [`mapping`], [`metronome`], [`supervise`], [`tuning`], [`witness`] |
//! | `apply` | changes masks, shares and code | [`breakpoints`], [`machine`], [`share`] |
//! | `undo` | records changes and undoes them | [`journal`], [`guardian`], [`restore`] |
//! | `read` | reads threads and what limits them | [`counters`], [`foreign`], [`functions`], [`limits`], [`memory`], [`modules`], [`pace`], [`samples`], [`scan`], [`spinning`], [`taskstats`], [`threads`], [`usage`], [`wait_reports`] |
//! | `sys` | the kernel's interfaces, as they are | [`affinity`], [`clock`], [`privilege`], [`proc`], [`real`], [`real_time`], [`sched`] |
//!
//! So a module that changes something depends on the journal, and the journal on no such module. Nor do modules
//! depend on each other in a circle. Modules are named without their room: `crate::journal`, not
//! `crate::undo::journal`.

mod apply;
mod read;
mod run;
mod sys;
mod undo;

pub(crate) use apply::beats;
pub use apply::{breakpoints, machine, share};
pub(crate) use read::{callers, program_cpus};
pub use read::{
    counters, foreign, functions, limits, memory, modules, pace, samples, scan, spinning,
    taskstats, threads, usage, wait_reports,
};
pub(crate) use run::{agents, control, crowd, doubts, others, refused, watcher};
pub use run::{beside, handover, live, mapping, metronome, supervise, tuning, witness};
pub use sys::{affinity, clock, privilege, proc, real, real_time, sched};
pub(crate) use undo::{descent, share_undo};
pub use undo::{guardian, journal, restore};

//! A machine in virtual time: CPUs that threads share, programs with phases and barriers,
//! neighbours, a model of the kernel's own balancing, CPUs that come and go.
//!
//! It implements [`evenly_engine::Machine`], so that the cycle and the policies run on it as they
//! run on Linux, and what theory says of them can be tested to the nanosecond.
//!
//! Invariants:
//! - The crate is pure: virtual time, seeded randomness, no clock, no file. Equal scenarios give
//!   equal runs.
//! - CPU time is conserved: what the tasks on a busy CPU receive in a span is exactly that span.
//!   All accounts are whole nanoseconds.
//! - A mask outside the thread's original one is refused with a panic: promise P1 is broken by
//!   the caller.
//!
//! Rounding. Under fluid sharing, a span that k tasks cannot share in whole nanoseconds leaves a
//! remainder of less than k ns, which goes to the tasks in turn. A thread ends a phase at the first
//! nanosecond at which its share suffices, rounded up to a whole share for all, so at most k ns
//! late. Work is counted in thousandths of a nanosecond of a CPU of speed 1, so that a CPU of any
//! whole per-mille speed adds no further error than the last nanosecond of a phase.
//!
//! Known gaps: no caches but a fixed cost of a move, no priorities.

#![forbid(unsafe_code)]

mod driver;
mod file;
mod ideal;
mod loops;
mod machine;
mod replay;
mod report;
mod run;
mod scenario;
mod sweep;
mod text;

pub use driver::{
    Driver, DriverOptions, Outcome, Samples, Scope, Start, simulate, simulate_seen_by,
};
pub use file::{Described, parse, parse_seeded};
pub use ideal::{IdealOptions, IdealRun, ideal};
pub use loops::{
    Cluster, ClusterCosts, Cooperation, DescribedLoops, Divides, Everywhere, LOOP_KERNELS, LoopArm,
    LoopComparison, LoopError, LoopKernel, LoopMachine, LoopProgram, LoopRun, OfLoop, ParallelLoop,
    Updates, compare_loops, loop_kernel, parse_loops, run_loops,
};
pub use machine::Sim;
pub use replay::{Replay, ReplayMove, ReplayPoint, replay};
pub use report::{MOST_SAMPLES, Report, SCHEMA, Sample, thinned};
pub use run::{IDEAL, MOST_CPUS, MOST_THREADS, RunError, Simple, dear_cost, run};
pub use scenario::{
    Barrier, Costs, Counters, Cpu, Hotplug, Kernel, Placement, Program, Readings, Scenario,
    Sharing, Stranger, Thread,
};
pub use sweep::{Sweep, SweepRow};
pub use text::{FileError, MOST_BYTES};

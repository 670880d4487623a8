//! Parallel loops on nodes that share memory by pages, some of whose processors somebody else uses, in virtual time: the machine
//! of *Adaptive loops* (PPoPP 2001, section 3.1), with any other numbers.
//!
//! [`evenly_iterations::Scheduler`] hands iterations out, as it does in the runtime.
//!
//! What is modelled: processors that are shared in turns; page fetches, twins and diffs, a node at a time on the wire; home nodes
//! that follow whoever writes; barriers, at which all spin; locks; tasks that are stolen within a node. What is not: caches,
//! buses, faults of further processes on a node that has the page, the time of write notices and directories. A processor that
//! waits spins: its CPU goes to the others only when its turn is over, or, where the cluster cooperates, by the paper's section 2.5.
//!
//! Invariant: equal clusters, programs and seeds give equal runs.

mod cluster;
mod compare;
mod cooperate;
mod cpu;
mod file;
mod instance;
mod kernels;
mod limits;
mod pages;
mod program;
mod run;

pub use cluster::{Cluster, ClusterCosts, LoopMachine};
pub use compare::{LoopArm, LoopComparison, compare_loops};
pub use cooperate::Cooperation;
pub use file::{DescribedLoops, parse_loops};
pub use kernels::{LOOP_KERNELS, LoopKernel, loop_kernel};
pub use program::{Everywhere, LoopError, LoopProgram, ParallelLoop, Updates};
pub use run::{Divides, LoopRun, OfLoop, run_loops};

//! The figures of HPCSched (Boneti and others: A dynamic scheduler for balancing HPC applications, SC 2008).
//!
//! Invariant: all arms run the same program, drawn from the same seed, on the same machine; nothing is
//! fitted on a row of a heuristic (`evenly_power5` says what is, and on what).

mod bt_mz;
mod experiment;
mod metbench;
mod metbench_var;
mod siesta;

pub(crate) use bt_mz::figure as bt_mz;
pub(crate) use metbench::figure as metbench;
pub(crate) use metbench_var::figure as metbench_var;
pub(crate) use siesta::figure as siesta;

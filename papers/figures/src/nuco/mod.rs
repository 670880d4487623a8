//! The figures and tables of NucoLB (Pilla and others: A hierarchical approach for load balancing on
//! parallel multi-core systems, 2012), section VI.
//!
//! Invariant: what is compared has the same tasks, machine, start and seed.

mod execution;
mod experiment;
mod k_neighbor;
mod lb_test;
mod lean_md;
mod messages;
pub mod others;
mod stencil;

pub(crate) use execution::figure as execution;
pub(crate) use k_neighbor::figure as k_neighbor;
pub(crate) use lb_test::figure as lb_test;
pub(crate) use lean_md::figure as lean_md;
pub(crate) use messages::figure as messages;
pub(crate) use stencil::figure as stencil;

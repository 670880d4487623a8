//! The figures of *Adaptive loops* (Rencuzogullari, Dwarkadas: Dynamic Adaptation to Available Resources, PPoPP 2001).
//!
//! Invariant: what divides iterations is the code of the runtime, `evenly_iterations::Scheduler`.

mod bars;
mod cooperation;
mod dedicated;
mod execution;

pub(crate) use dedicated::figure as dedicated;
pub(crate) use execution::figure as execution;

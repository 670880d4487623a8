//! The figures of OSLB (Yun: Application of secretary algorithm to dynamic load balancing in
//! user-space on multicore systems, 2013).
//!
//! Invariant: the kernel and OSLB are compared on the same machine with the same programs and seed.

mod alone;
mod interval;
mod payoff;
mod programs;
mod together;

pub(crate) use alone::figure as alone;
pub(crate) use interval::figure as interval;
pub(crate) use payoff::figure as payoff;
pub(crate) use together::figure as together;

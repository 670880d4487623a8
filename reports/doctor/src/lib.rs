//! Why a parallel program is slow: evidence in, findings out.
//!
//! [`Evidence`](evenly_evidence::Evidence) is what was observed of a program: how its threads spent their time, which other processes used
//! its CPUs, its quota, masks and runtime settings. [`Diagnosis::of`] makes [`Finding`]s of it, those that cost
//! most first. A rule fires only on what was measured; what no rule can decide is in [`Diagnosis::unknown`]
//! instead.
//!
//! The order of the rules matters, because one cause hides another: threads that a quota holds back wait for
//! CPUs as well, and threads that share one CPU because of their mask are not too many threads. Each rule
//! leaves out what an earlier one explains.
//!
//! Invariant: pure. Where evidence comes from (a live program, a recording, a test) is not known here.

#![forbid(unsafe_code)]

mod case;
mod diagnosis;
mod finding;
mod paste;
mod prospect;
mod recommend;
mod rules;
mod settings;
mod spinning;
mod text;

pub use diagnosis::{Diagnosis, Prospect, SCHEMA};
pub use finding::{Finding, Kind};
pub use recommend::Recommended;
pub use settings::{Setting, settings};

#[cfg(test)]
mod tests;

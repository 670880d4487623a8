//! What HPCSched's policies (Boneti and others, SC 2008) are given: heuristics, priorities and what they can be
//! tuned by. Plain data; what they do with it stands in the policies.
//!
//! Invariant: values are in range from the moment when they are set.

mod parameters;
mod parts;

pub use parameters::{Parameter, ParameterError, Parameters};
pub use parts::Parts;

use crate::CpuSet;
use std::fmt;

/// The groups of CPUs of a level of the machine (nodes, caches, cores); levels from the outermost on.
pub type Levels = Vec<Vec<CpuSet>>;

/// How much of the machine a thread is to have, beside others; more is more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u8);

impl Priority {
    /// What all threads have at first.
    pub const NORMAL: Self = Self(4);
    /// The highest that an operating system may give on a POWER5 (Table II).
    pub const MOST: Self = Self(6);
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How priorities are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Heuristic {
    /// By utilisation since the beginning: steady, and the slower the longer a program runs.
    Uniform,
    /// By that of the last iteration, mostly: quick, and misled by noise.
    Adaptive,
    /// By trying and measuring.
    Auto,
}

impl Heuristic {
    /// All heuristics, in the order of the help.
    pub const ALL: [Self; 3] = [Self::Uniform, Self::Adaptive, Self::Auto];

    /// Its name as a policy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Uniform => "hpc-uniform",
            Self::Adaptive => "hpc-adaptive",
            Self::Auto => "hpc-auto",
        }
    }

    /// The one of that name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|h| h.name() == name)
    }
}

//! What the parts of a plan are made of: all that a policy must know of the mechanism that gives them.
//!
//! Invariant: the weight of a priority is positive, grows with it, and is 1 for the normal one.

use super::{Parameters, Priority};

/// What a mechanism makes of the weights of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Parts {
    /// Parts of the time of a CPU that threads share. Any ratio can be had, and what it gives is known: so much of
    /// the time. A thread that spins while it waits uses up its part.
    #[default]
    Time,
    /// A few steps between threads that have contexts of their own on a core, as the priorities of POWER. What a
    /// step is in speed no formula gives, as it depends on the program; a thread that waits sleeps, and leaves
    /// the core to the other.
    Steps {
        /// What a step is in weight.
        ratio: f64,
    },
}

impl Parts {
    /// Priorities of POWER5: 7:1 decode cycles at a difference of 2, and 2.6:1 for the 3:1 of a difference of 1
    /// (Table I of HPCSched).
    pub const POWER: Self = Self::Steps { ratio: 2.645_751_311 };

    /// The weight of a priority relative to the normal one (1.0).
    #[must_use]
    pub fn weight(self, priority: Priority, parameters: &Parameters) -> f64 {
        match self {
            Self::Time => parameters.weight(priority),
            Self::Steps { ratio } => {
                ratio.powi(i32::from(priority.0) - i32::from(Priority::NORMAL.0))
            }
        }
    }
}

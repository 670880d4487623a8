//! One planned move in each phase. What decides about it is above this crate, as it decides at moments, not at points;
//! at points threads are only spread.

use crate::juggle::JUGGLE;
use crate::{PolicyInfo, Spreading};

pub(crate) const PHASE: PolicyInfo = PolicyInfo {
    name: "phase",
    about: "move one thread at the right moment between two barriers (OpenMP, POSIX barriers; phases from 0.1 ms; loads the probe)",
    make: || Box::new(Spreading::default()),
    in_phases: true,
    ..JUGGLE
};

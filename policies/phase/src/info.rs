//! One planned move in each phase, while threads meet often; else Juggle's decisions, as `hybrid` has them. What decides
//! about moves within phases is above this crate, as it decides at moments, not at points.

use evenly_juggle::Juggle;
use evenly_policy::{Acts, Mechanism, Needs, PolicyInfo};

/// `phase`: one planned move in each phase.
pub const PHASE: PolicyInfo = PolicyInfo {
    name: "phase",
    about: "where threads meet often at barriers of OpenMP, POSIX threads or MPI, move one at the right moment in \
            between, which needs the probe of evenly run; else as hybrid",
    needs: Needs::Progress,
    acts: Acts::WithinPhases(Mechanism::Nudge),
    make: || Box::new(Juggle::hybrid()),
    arms: &[],
};

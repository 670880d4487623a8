//! All policies by their names, and the agents through which they act.
//!
//! A policy that is in this list is in `run`, `attach`, `compare`, `simulate`, the help of these and the completions, and in
//! the tests of what no policy may do. The engine, the machines and the reports know none by its name; defaults, hints in
//! messages, benchmarks and figures name theirs.

#![forbid(unsafe_code)]

mod agents;

use evenly_policy::PolicyInfo;

/// `auto`: what is measured to be best.
pub const AUTO: PolicyInfo = PolicyInfo {
    name: "auto",
    about: "as phase; where threads have unequal work, hpc-auto is compared with it, and the faster one kept",
    arms: &[evenly_hpc::AUTO],
    ..evenly_phase::PHASE
};

pub use agents::{Setting, balancer};

/// All policies, in the order of the help.
pub const POLICIES: &[PolicyInfo] = &[
    AUTO,
    evenly_juggle::HYBRID,
    evenly_juggle::JUGGLE,
    evenly_secretary::SECRETARY,
    evenly_baselines::REACTIVE,
    evenly_phase::PHASE,
    evenly_nuco::NUCO,
    evenly_hpc::AUTO,
    evenly_hpc::UNIFORM,
    evenly_hpc::ADAPTIVE,
    evenly_baselines::STATIC,
    evenly_baselines::OBSERVE,
];

/// The policy of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static PolicyInfo> {
    POLICIES.iter().find(|p| p.name == name)
}

/// The policy that others are compared with.
#[must_use]
pub fn reference() -> &'static PolicyInfo {
    &evenly_baselines::STATIC
}

/// The policy that only watches.
#[must_use]
pub fn watching() -> &'static PolicyInfo {
    &evenly_baselines::OBSERVE
}

/// The names of all policies, as messages list them.
#[must_use]
pub fn names() -> String {
    POLICIES.iter().map(|p| p.name).collect::<Vec<_>>().join(", ")
}

/// ` (did you mean hybrid?)` for a name that is none of these, where it is nearly one; else nothing.
#[must_use]
pub fn meant(name: &str) -> String {
    evenly_model::or_meant(name, POLICIES.iter().map(|p| p.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_one_policy_is_the_reference() {
        for (i, p) in POLICIES.iter().enumerate() {
            assert!(POLICIES[..i].iter().all(|other| other.name != p.name), "{}", p.name);
            assert_eq!(by_name(p.name).map(|found| found.about), Some(p.about));
            assert!(!p.is_reactive() || p.is_guarded(), "{}", p.name);
        }
        let names = |of: fn(&PolicyInfo) -> bool| -> Vec<&str> {
            POLICIES.iter().filter(|p| of(p)).map(|p| p.name).collect()
        };
        assert_eq!(names(PolicyInfo::is_reference), [reference().name]);
        assert_eq!(names(PolicyInfo::only_watches), [watching().name]);
        assert_eq!(names(|p| !p.is_guarded()), ["static", "observe"]);
    }
}

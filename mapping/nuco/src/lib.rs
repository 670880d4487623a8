//! Placing communicating tasks and threads by load, communication and the distance of memory (NucoLB: Pilla et
//! al., 2012).
//!
//! - [`map`]: the mappers. Each is a pure function from tasks, messages and a machine to a core for each task.
//! - [`NUCO`]: the policy `nuco`, which places the threads of a running program with them.
//! - [`iterations`]: the paper's experiments in virtual time.
//! - [`policies`]: all policies. The core lists its own and does not know this crate. Programs take the names
//!   that they offer from here.
//!
//! Invariant: the crate is pure. It reads no clock, no file and no random numbers but seeded ones.

#![forbid(unsafe_code)]

pub mod iterations;
pub mod map;
mod remap;

use evenly_policy::{POLICIES, PolicyInfo};

pub use remap::{NUCO, Remap};

/// All policies, those of the core and `nuco`, in the order of the help: `nuco` before those that give weights.
pub fn policies() -> impl Iterator<Item = &'static PolicyInfo> {
    let at = POLICIES.iter().position(|p| p.gives_weights()).unwrap_or(POLICIES.len());
    let (before, after) = POLICIES.split_at(at);
    before.iter().chain([&NUCO]).chain(after)
}

/// The policy of that name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static PolicyInfo> {
    policies().find(|p| p.name == name)
}

/// The names of all policies, as messages list them.
#[must_use]
pub fn names() -> String {
    policies().map(|p| p.name).collect::<Vec<_>>().join(", ")
}

/// ` (did you mean hybrid?)` for a name that is none of these, where it is nearly one; else nothing.
#[must_use]
pub fn meant(name: &str) -> String {
    evenly_model::or_meant(name, policies().map(|p| p.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_policies_are_listed_once() {
        let names: Vec<&str> = policies().map(|p| p.name).collect();
        let mut unique = names.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(names.len(), unique.len(), "{names:?}");
        assert_eq!(names.len(), POLICIES.len() + 1, "{names:?}");
        for p in policies() {
            assert_eq!(by_name(p.name).map(|found| found.about), Some(p.about));
        }
    }
}

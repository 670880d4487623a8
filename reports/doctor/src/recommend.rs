//! Which policy to run the program with, by the model by which `auto` chooses what it tries ([`evenly_engine::Seen`]).
//!
//! Invariant: a policy is recommended only where balancing promises something.

use crate::case::Case;
use crate::{Finding, Kind};
use evenly_engine::{Promise, Seen, is_unequal};
use evenly_model::Nanos;
use serde::Serialize;

/// The policy where nothing else is named.
const USUAL: &str = "auto";
/// What gives threads parts of CPUs by what they compute.
const OF_PARTS: &str = "hpc-auto";

/// A policy, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recommended {
    /// Its name, as `evenly run --policy` takes it.
    pub policy: &'static str,
    /// Why this one, in a sentence.
    pub reason: String,
}

impl Case<'_> {
    /// What parts of CPUs promise where work is `uneven`, by the rule for that.
    pub(crate) fn promise(&self, uneven: bool) -> Promise {
        Seen {
            threads: self.n(),
            cpus: self.m(),
            unequal: uneven && is_unequal(self.threads.iter().map(|t| self.work(t))),
            epoch: self.epoch(),
        }
        .promise()
    }

    /// How long it takes until threads meet again. Those of a runtime that the probe knows tell that when they are balanced.
    fn epoch(&self) -> Option<Nanos> {
        let seen = self.e.phase.filter(|(_, phases)| *phases > 0);
        let seen = seen.map(|(_, phases)| Nanos::from_secs_f64(self.time / phases as f64));
        seen.or_else(|| (self.open_mp() || self.mpi().is_some()).then_some(Nanos::ZERO))
    }

    /// Whether only that policy divides CPUs by what threads compute: `auto` would not try it.
    pub(crate) fn wants_parts(&self, uneven: bool) -> bool {
        matches!(self.promise(uneven), Promise::Unmeasured | Promise::Long)
    }

    /// The policy to balance the program with; None where nothing is promised.
    pub(crate) fn recommended(
        &self,
        findings: &[Finding],
        gain_at_most: Option<f64>,
    ) -> Option<Recommended> {
        gain_at_most.filter(|gain| *gain > 1.0)?;
        let uneven = findings.iter().any(|f| f.kind == Kind::UnevenWork);
        let unequal = "the threads have unequal work and share CPUs";
        let (policy, reason) = match self.promise(uneven) {
            Promise::Gain => (
                USUAL,
                format!("{unequal}, so it compares {OF_PARTS} with moves and keeps the faster one"),
            ),
            Promise::Unmeasured => (
                OF_PARTS,
                format!(
                    "{unequal}; {USUAL} tries it only where it sees how often they wait for each other"
                ),
            ),
            Promise::Long => {
                (OF_PARTS, format!("{unequal}; they meet so seldom that {USUAL} does not try it"))
            }
            Promise::Equal | Promise::Apart if self.meets_every().is_some() => (
                USUAL,
                String::from("no unequal work was seen, so it moves threads between barriers"),
            ),
            Promise::Equal | Promise::Apart => (
                USUAL,
                String::from("no unequal work was seen, so it moves threads by their progress"),
            ),
        };
        Some(Recommended { policy, reason })
    }
}

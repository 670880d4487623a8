//! Which policy to run the program with: the one that was surely the fastest; and what was not compared although it promises
//! something, by the model by which `auto` chooses what it tries ([`evenly_engine::Seen`]).
//!
//! Invariant: what runs do not show is never recommended for them.

use crate::comparison::{ArmResult, Comparison, Recommended};
use crate::verdict::{Finding, Verdict};
use evenly_engine::{Promise, Seen, is_unequal};
use evenly_model::Nanos;
use serde_json::Value;
use std::collections::BTreeMap;

/// The program without evenly, the policy where nothing else is named, and what gives threads parts of CPUs.
const KERNEL: &str = "kernel";
const USUAL: &str = "auto";
const OF_PARTS: &str = "hpc-auto";

/// What parts of CPUs promise to a program, by the report of a run that was balanced; None where that does not say it.
#[must_use]
pub fn promise_of(report: &Value) -> Option<Promise> {
    let threads = report["threads"].as_array()?;
    let computed = threads.iter().map(|t| {
        // Without a report of what it spun, nobody knows what it computed.
        Some((t["ran_s"].as_f64()? - t["spun_s"].as_f64()?).max(0.0))
    });
    let computed: Vec<f64> = computed.collect::<Option<_>>()?;
    let cpus: evenly_model::CpuSet = report["cpus"].as_str()?.parse().ok()?;
    let of_probe = report["probe"]["threads"].as_array().into_iter().flatten();
    let phases = of_probe.filter_map(|t| t["phases"].as_u64()).max().filter(|n| *n > 0);
    let seconds = report["balanced_s"].as_f64()?;
    // The list has also those that have left: where others came for them, nobody knows who computed beside whom.
    let domains = report["domains"].as_array()?.iter();
    let at_once = domains.map(|d| d["threads"].as_u64()).sum::<Option<u64>>()?;
    if (at_once as usize) < computed.len() {
        return None;
    }
    let seen = Seen {
        threads: computed.len(),
        cpus: cpus.len(),
        unequal: is_unequal(computed.iter().copied()),
        epoch: phases.map(|phases| Nanos::from_secs_f64(seconds / phases as f64)),
    };
    Some(seen.promise())
}

impl Comparison {
    /// Recommends one of the arms. `promises` are those of parts of CPUs, by arm, where they are known.
    pub fn recommend(&mut self, promises: &BTreeMap<String, Promise>) {
        self.recommended = self.best().map(|(policy, mut reason)| {
            // The kernel tells nothing of its threads.
            let promise = promises.get(&policy).or_else(|| promises.get(USUAL));
            reason.extend(self.untried(&policy, promise.copied()));
            Recommended { policy, reason }
        });
    }

    /// The arm that was surely the fastest; the usual policy where it was not surely slower, and the kernel where nothing was
    /// surely faster.
    fn best(&self) -> Option<(String, String)> {
        let has_enough = |v: &Verdict| v.finding != Finding::TooFewRuns;
        if self.verdicts.is_empty() || !self.verdicts.iter().all(has_enough) {
            return None;
        }
        let named = |name: &str| self.results.iter().find(|r| r.policy == name);
        let base = named(KERNEL).or(named(USUAL)).or(self.results.first())?;
        let better: Vec<&ArmResult> =
            self.results.iter().filter(|r| self.shown(r, base).is_some()).collect();
        let median = |r: &ArmResult| r.median_s.unwrap_or(f64::INFINITY);
        let fastest = better.iter().min_by(|a, b| median(a).total_cmp(&median(b)));
        let Some(fastest) = fastest else {
            return Some((base.policy.clone(), String::from("no other was surely faster")));
        };
        let usual = better.iter().find(|r| r.policy == USUAL);
        let best = usual.filter(|usual| self.shown(fastest, usual).is_none()).unwrap_or(fastest);
        Some((best.policy.clone(), self.shown(best, base)?.to_owned()))
    }

    /// The sentence that one is faster than another, where these runs show that.
    fn shown(&self, faster: &ArmResult, than: &ArmResult) -> Option<&str> {
        let pair = [&faster.policy, &than.policy];
        let is_it = |v: &&Verdict| v.finding == Finding::Faster && v.policies.iter().eq(pair);
        self.verdicts.iter().find(is_it).map(|v| v.text.as_str())
    }

    /// What is to be said of arms that promise something to threads of unequal work.
    fn untried(&self, best: &str, promise: Option<Promise>) -> Option<String> {
        // With options it is still that policy.
        let has =
            |name: &str| self.results.iter().any(|r| r.policy.split(':').next() == Some(name));
        let unequal = "the threads have unequal work and share CPUs";
        match promise? {
            Promise::Gain if best.split(':').next() == Some(USUAL) => {
                Some(format!("; {unequal}, so that it tried {OF_PARTS} as well"))
            }
            Promise::Gain if !has(USUAL) && !has(OF_PARTS) => {
                Some(format!("; {unequal}: compare {USUAL}, which tries {OF_PARTS} then"))
            }
            Promise::Long | Promise::Unmeasured if !has(OF_PARTS) => Some(format!(
                "; {unequal}, and {USUAL} tries {OF_PARTS} only where it sees them meet within seconds: compare that"
            )),
            _ => None,
        }
    }
}

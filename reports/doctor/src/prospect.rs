//! What no rule can decide, and what evenly could gain by theory and by the evidence.
//!
//! Invariant: a gain is an upper bound.

use crate::case::{ASLEEP, Case, LEAST, LEAST_GAIN};
use crate::rules::{heavy, idle_beside_waiting, perhaps_slow};
use crate::settings::binding;
use crate::{Finding, Kind, Prospect};
use evenly_evidence::ThreadUse;
use evenly_model::Nanos;
use evenly_theory as theory;

impl Case<'_> {
    /// Whether threads may spin while they wait, for all that is known: they outnumber the CPUs, and none ever
    /// sleeps.
    pub(crate) fn may_spin(&self) -> bool {
        self.n() > self.m() && !self.spin_is_known() && self.sleeps() < ASLEEP
    }

    /// What no rule can decide.
    pub(crate) fn unknown(&self, findings: &[Finding]) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(found) = heavy(self)
            && let Some((cpu, took, least)) = perhaps_slow(self, found.thread)
        {
            all.push(format!(
                "whether CPU {cpu} is slow or {} has more work than others: the same short work took \
                 {:.0} us there and {:.0} us on the fastest CPU, measured too seldom to be sure; watch it \
                 for longer",
                found.thread.label(),
                took / 1e3,
                least / 1e3
            ));
        }
        let spinning = findings.iter().any(|f| f.kind == Kind::Spinning);
        if !self.spin_is_known() && !spinning && self.n() > 1 && self.sleeps() < ASLEEP {
            let (n, m) = (self.n(), self.m());
            let more = match n > m {
                false => String::new(),
                true if n.is_multiple_of(m) => {
                    format!("; if they do, {m} threads are faster than {n}")
                }
                true => format!(
                    "; if they do, evenly may gain more than the kernel, and {m} threads are faster than {n}"
                ),
            };
            all.push(format!(
                "whether threads spin while they wait: none ever sleeps, and spinning looks like \
                 computing{more}"
            ));
        }
        all
    }

    /// What evenly could gain, by theory and by the evidence.
    pub(crate) fn prospect(&self, findings: &[Finding]) -> Prospect {
        let (n, m) = (self.n(), self.m());
        let none = |why: &str| Prospect {
            gain_at_most: Some(1.0),
            reason: format!("no benefit here: {why}"),
        };
        let has = |kind: Kind| findings.iter().any(|f| f.kind == kind);
        if has(Kind::Quota) {
            return none("a quota limits all threads together, wherever they run");
        }
        if has(Kind::NarrowMask) {
            return none("evenly never moves a thread out of its mask; change the mask first");
        }
        if has(Kind::PinnedTogether) || self.is_bound() {
            let by = binding(&self.e.environment).filter(|_| self.open_mp());
            let by = by.map_or_else(String::new, |setting| format!(" by {setting}"));
            return none(&format!("threads are bound{by}, and evenly does not move bound threads"));
        }
        if n < 2 || m < 2 {
            return none("it takes two threads and two CPUs");
        }
        if has(Kind::BlockedIo) && self.waits() < LEAST {
            return none("its threads wait for a disk, not for CPUs");
        }
        // No thread ends before its own work is done, and not all end before the CPUs have done all work.
        let most = self.threads.iter().map(|t| t.computed_s()).fold(0.0, f64::max);
        let least = most.max(self.sum(ThreadUse::computed_s) / m as f64);
        if has(Kind::Spinning) && self.spin_is_known() && n > m {
            let gain = (self.time / least.max(1e-9)).max(1.0);
            return Prospect {
                gain_at_most: Some(gain),
                reason: format!(
                    "at most {gain:.2} times as fast, if no thread spins on a CPU that another one needs: \
                     under evenly run they hand it over"
                ),
            };
        }
        let (speeds, unequal) = self.speeds();
        let (few, count) = (n as u32, u32::try_from(m).unwrap_or(u32::MAX));
        let bound = match &speeds {
            Some(s) if unequal => s.upper_bound(few),
            _ => theory::upper_bound(few, count),
        };
        if has(Kind::UnevenWork) {
            if n <= m {
                return none("each thread has a CPU, and moving them does not divide the work");
            }
            let gain = (self.time / least.max(1e-9)).min(bound.max(1.0) * 2.0).max(1.0);
            return Prospect {
                gain_at_most: Some(gain),
                reason: format!(
                    "at most {gain:.2} times as fast, if the busiest thread never waits for a CPU"
                ),
            };
        }
        if bound < LEAST_GAIN {
            if unequal {
                return none(&format!(
                    "{n} threads can share {m} CPUs as unequal as these are so that each gets about as much"
                ));
            }
            if n <= m {
                return none(
                    "each thread has a CPU to itself, and no CPU is much slower than another",
                );
            }
            // Spinning can cost many times the work, and is not seen.
            if self.may_spin() && !has(Kind::Spinning) && !has(Kind::MpiOversubscribed) {
                return Prospect {
                    gain_at_most: None,
                    reason: format!(
                        "moving threads gains nothing, as {n} divide evenly among {m} CPUs; but none ever \
                         sleeps: if they spin while they wait, {m} threads take less time, otherwise about as long"
                    ),
                };
            }
            let spin = if has(Kind::Spinning) {
                "; what they lose by spinning is not among it"
            } else {
                ""
            };
            return none(&format!(
                "{n} threads divide evenly among {m} CPUs, and no CPU is much slower than another{spin}"
            ));
        }
        if self.waits() < ASLEEP && !unequal {
            return none("the threads hardly wait for CPUs");
        }
        // Threads that sleep while they wait leave CPUs idle, and no more than these can be gained.
        let idle = idle_beside_waiting(self);
        let known = self.sleeps() >= ASLEEP && !unequal && !self.e.cpus.is_empty();
        let gain = if known { bound.min(1.0 / (1.0 - idle).max(0.1)) } else { bound };
        if gain < LEAST_GAIN {
            return none("the kernel already keeps the CPUs busy");
        }
        let short = match (self.meets_every(), self.e.phase) {
            (Some(every), _) => {
                let every = Nanos::from_secs_f64(every);
                format!("; they meet every {every}")
            }
            (None, Some((length, _))) if length < 0.07 => {
                String::from("; its phases are short, which leaves little of that")
            }
            _ => String::new(),
        };
        let against = if known {
            "as it is"
        } else {
            "as threads that stay where they are; the kernel may reach much of that"
        };
        Prospect {
            gain_at_most: Some(gain),
            reason: format!("at most {gain:.2} times as fast {against}{short}"),
        }
    }
}

//! A managed thread: which one it is, where it is, what it has done, and what it has of its CPU.

use crate::account::ThreadAccount;
use crate::{Located, ThreadMeta, ThreadSummary};
use evenly_model::{CpuId, CpuSet, Nanos};
use std::sync::Arc;

/// A thread that is balanced.
#[derive(Debug)]
pub(crate) struct ManagedThread {
    pub(crate) meta: ThreadMeta,
    /// Which task of the program it is, where that is known.
    pub(crate) number: Option<u64>,
    pub(crate) joined: Nanos,
    pub(crate) place: Place,
    pub(crate) account: ThreadAccount,
    pub(crate) weight: ThreadWeight,
}

/// Where a thread is, and may be.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) cpu: Option<CpuId>,
    /// Where it was seen at this point, if it was looked at.
    pub(crate) seen: Option<Located>,
    pub(crate) movable: bool,
    /// The program has set its mask while it was balanced.
    pub(crate) foreign: bool,
    /// Where it may run in the domain: the number of the mask among those of the membership.
    pub(crate) mask: usize,
    /// Where it may run while balancing is paused.
    pub(crate) whole: Arc<CpuSet>,
    pub(crate) migrations: u64,
}

/// What a thread is to have of its CPU, relative to what it had when it was admitted.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadWeight {
    pub(crate) wanted: Option<f64>,
    /// What it has been given of that.
    pub(crate) given: Option<f64>,
}

impl ManagedThread {
    /// Takes over where the thread was found. A thread that ended a moment ago stays where it
    /// was; the next reading shows it.
    pub(crate) fn found(&mut self, located: Option<Located>) {
        if let Some(l) = located {
            self.place.cpu = Some(l.cpu);
            (self.account.minor_faults, self.account.major_faults) =
                (l.minor_faults, l.major_faults);
        }
    }

    pub(crate) fn summary(&self, now: Nanos) -> ThreadSummary {
        let (all, a) = (&self.account.total, &self.account);
        ThreadSummary {
            id: self.meta.id,
            pid: self.meta.pid,
            name: self.meta.name.clone(),
            ran_s: all.ran.as_secs_f64(),
            spun_s: a.report.is_known().then(|| all.spinning.as_secs_f64()),
            waited_s: all.waited.as_secs_f64(),
            blocked_s: all.blocked.as_secs_f64(),
            migrations: self.place.migrations,
            minor_faults: a.minor_faults,
            major_faults: a.major_faults,
            present_s: (now - self.joined).as_secs_f64(),
            own_mask: self.place.foreign,
            span: (self.joined, now),
        }
    }
}

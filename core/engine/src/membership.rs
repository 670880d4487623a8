//! Which threads are balanced in a domain, and where each may run.
//!
//! Invariant: masks keep their numbers, also when the last thread that has one leaves.

use crate::managed::ManagedThread;
use crate::{Event, Observer, ThreadSummary};
use evenly_model::{CpuSet, DomainId, Nanos, ThreadId};
use std::sync::Arc;

/// Why a thread leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It has ended.
    Ended,
    /// It no longer computes.
    Idle,
    /// It goes to another domain.
    To(DomainId),
}

/// The threads of a domain.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    pub(crate) threads: Vec<ManagedThread>,
    /// The distinct sets of CPUs of the domain on which threads may run.
    pub(crate) masks: Vec<Arc<CpuSet>>,
    /// Those that have left, with the numbers of their masks.
    finished: Vec<(ThreadSummary, usize)>,
    most: u32,
    /// Threads have come or gone since the balancers of CPUs were told.
    pub(crate) changed: bool,
}

impl Membership {
    /// The number of a mask.
    pub(crate) fn number_of_mask(&mut self, mask: CpuSet) -> usize {
        self.masks.iter().position(|m| **m == mask).unwrap_or_else(|| {
            self.masks.push(Arc::new(mask));
            self.masks.len() - 1
        })
    }

    /// Its place among the threads.
    pub(crate) fn position(&self, id: ThreadId) -> Option<usize> {
        self.threads.iter().position(|t| t.meta.id == id)
    }

    /// Where a thread may run that is not pinned: in its domain, or where that is open wherever the user
    /// wants it.
    pub(crate) fn roaming(&self, index: usize, open: bool) -> Option<Arc<CpuSet>> {
        let place = &self.threads.get(index)?.place;
        if open { Some(place.whole.clone()) } else { self.masks.get(place.mask).cloned() }
    }

    /// Progress of a thread that joins these at work: its past is not theirs.
    pub(crate) fn mean_progress(&self) -> i64 {
        let sum: i128 = self.threads.iter().map(|t| i128::from(t.account.progress)).sum();
        (sum / self.threads.len().max(1) as i128) as i64
    }

    /// Takes a thread in.
    pub(crate) fn register(
        &mut self,
        thread: ManagedThread,
        domain: DomainId,
        at: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) {
        self.changed = true;
        for o in observers {
            o.event(&Event::Joined { at, domain, thread: thread.meta.clone() });
        }
        self.threads.push(thread);
        self.most = self.most.max(self.threads.len() as u32);
    }

    /// Drops a thread, and keeps its summary. `at` is the time since balancing began.
    pub(crate) fn unregister(
        &mut self,
        index: usize,
        now: Nanos,
        at: Nanos,
        why: Leaving,
        observers: &mut [Box<dyn Observer>],
    ) {
        let t = self.threads.remove(index);
        if let Some(member) = &t.member {
            member.set_movable(false);
        }
        self.changed = true;
        let to = match why {
            Leaving::To(domain) => Some(domain),
            Leaving::Ended | Leaving::Idle => None,
        };
        let ended = why == Leaving::Ended;
        for o in observers {
            o.event(&Event::Left { at, id: t.meta.id, ended, to });
        }
        let until = if to.is_some() { t.account.read_at } else { now };
        self.finished.push((t.summary(until), t.place.mask));
    }

    /// The domain has other CPUs: threads that shared a mask may now differ.
    pub(crate) fn widen(&mut self, cpus: &CpuSet) {
        let mut widened = vec![false; self.masks.len()];
        for i in 0..self.threads.len() {
            let place = &self.threads[i].place;
            let (within, old) = (place.whole.and(cpus), place.mask);
            if !widened[old] {
                (widened[old], self.masks[old]) = (true, Arc::new(within));
            } else if *self.masks[old] != within {
                self.threads[i].place.mask = self.number_of_mask(within);
                widened.resize(self.masks.len(), true);
            }
        }
    }

    /// All CPUs of the domain that any thread may use or might have used.
    pub(crate) fn allowed(&self) -> CpuSet {
        self.masks.iter().fold(CpuSet::new(), |all, m| all.or(m))
    }

    /// The most threads that there were at once.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// All threads that there are and were.
    pub(crate) fn summaries(&self, now: Nanos) -> Vec<ThreadSummary> {
        let allowed = self.allowed();
        let is_narrow = |mask: usize| self.masks.get(mask).is_some_and(|m| **m != allowed);
        let finished = self.finished.iter().cloned();
        let here = self.threads.iter().map(|t| (t.summary(now), t.place.mask));
        let all = finished.chain(here);
        all.map(|(t, mask)| ThreadSummary { own_mask: t.own_mask || is_narrow(mask), ..t })
            .collect()
    }
}

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
    /// The thread has ended.
    Ended,
    /// It no longer computes.
    Idle,
    /// It goes to another domain.
    To(DomainId),
}

/// Takes what is at these places, which are in order, out of a list.
pub(crate) fn drop_places<T>(list: &mut Vec<T>, places: &[usize]) {
    let (mut places, mut at) = (places.iter().copied().peekable(), 0..);
    if places.peek().is_some() {
        list.retain(|_| at.next().is_some_and(|at| places.next_if_eq(&at).is_none()));
    }
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
    /// Threads have come or gone since the agents were informed.
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

    /// Drops the threads at these places, which are in order, and keeps their summaries. `at` is the time since
    /// balancing began. O(n), however many they are.
    pub(crate) fn unregister(
        &mut self,
        places: &[usize],
        now: Nanos,
        at: Nanos,
        why: Leaving,
        observers: &mut [Box<dyn Observer>],
    ) {
        self.changed |= !places.is_empty();
        let to = match why {
            Leaving::To(domain) => Some(domain),
            Leaving::Ended | Leaving::Idle => None,
        };
        let ended = why == Leaving::Ended;
        for &place in places {
            let t = &self.threads[place];
            for o in observers.iter_mut() {
                o.event(&Event::Left { at, id: t.meta.id, ended, to });
            }
            let until = if to.is_some() { t.account.read_at } else { now };
            self.finished.push((t.summary(until), t.place.mask));
        }
        drop_places(&mut self.threads, places);
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

    /// All threads that there are and were. `moved` is how often agents have moved one that is there.
    pub(crate) fn summaries(
        &self,
        now: Nanos,
        moved: impl Fn(ThreadId) -> u64,
    ) -> Vec<ThreadSummary> {
        let allowed = self.allowed();
        let is_narrow = |mask: usize| self.masks.get(mask).is_some_and(|m| **m != allowed);
        let finished = self.finished.iter().cloned();
        let here = self.threads.iter().map(|t| {
            let summary = t.summary(now);
            let migrations = summary.migrations + moved(t.meta.id);
            (ThreadSummary { migrations, ..summary }, t.place.mask)
        });
        let all = finished.chain(here);
        all.map(|(t, mask)| ThreadSummary { own_mask: t.own_mask || is_narrow(mask), ..t })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{cpus, id, threads};

    #[test]
    fn a_thread_that_leaves_keeps_its_summary_and_its_mask() {
        let (mut m, _) = threads(&[0, 1], 2);
        m.threads[0].place.mask = m.number_of_mask(cpus("0"));
        m.threads[0].account.read_at = Nanos(70);
        m.unregister(&[0], Nanos(100), Nanos(90), Leaving::To(DomainId(1)), &mut []);
        assert_eq!((m.position(id(0)), m.position(id(1)), m.most()), (None, Some(0), 2));
        let all = m.summaries(Nanos(100), |_| 0);
        // Its account ends with its last reading here; it could not use all that others could.
        assert_eq!(all.iter().map(|t| t.present_s).collect::<Vec<_>>(), [7e-8, 1e-7]);
        assert_eq!(all.iter().map(|t| t.own_mask).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn those_that_leave_together_leave_the_others_in_order() {
        let (mut m, _) = threads(&[0, 1, 0, 1, 0], 2);
        m.changed = false;
        m.unregister(&[], Nanos(1), Nanos(1), Leaving::Ended, &mut []);
        assert!(!m.changed && m.threads.len() == 5);
        m.unregister(&[0, 3, 4], Nanos(1), Nanos(1), Leaving::Ended, &mut []);
        let left: Vec<_> = m.threads.iter().map(|t| t.meta.id).collect();
        assert_eq!((left, m.changed), (vec![id(1), id(2)], true));
        let gone: Vec<_> = m.finished.iter().map(|(t, _)| t.id).collect();
        assert_eq!(gone, [id(0), id(3), id(4)]);
    }

    #[test]
    fn threads_roam_in_their_domain_or_where_it_is_open_in_all_that_they_may_use() {
        let (m, _) = threads(&[0], 2);
        let roams = |open| m.roaming(0, open).map(|mask| mask.to_string());
        assert_eq!(roams(false).as_deref(), Some("0-1"));
        assert_eq!(roams(true).as_deref(), Some("0-3"));
        assert_eq!(m.roaming(1, false), None);
    }

    /// Two that shared a mask as long as there was only CPU 0 differ once there are more.
    #[test]
    fn threads_have_masks_of_their_own_when_their_domain_grows() {
        let (mut m, _) = threads(&[0, 0, 0], 2);
        let whole = ["0-3", "0,2", "0-1"];
        let within = ["0", "0", "0-1"];
        for (i, t) in [2, 1, 0].into_iter().zip(0..) {
            m.threads[t].place.whole = Arc::new(cpus(whole[i]));
            m.threads[t].place.mask = m.number_of_mask(cpus(within[i]));
        }
        m.widen(&cpus("0-3"));
        for t in &m.threads {
            let mask = &m.masks[t.place.mask];
            assert_eq!(**mask, *t.place.whole);
        }
    }

    #[test]
    fn who_joins_others_begins_at_their_mean() {
        let (mut m, _) = threads(&[0, 0, 0], 2);
        for (t, progress) in m.threads.iter_mut().zip([i64::MAX, i64::MAX, 2]) {
            t.account.progress = progress;
        }
        assert_eq!(m.mean_progress(), i64::MAX / 3 * 2 + 1);
        assert_eq!(Membership::default().mean_progress(), 0);
    }
}

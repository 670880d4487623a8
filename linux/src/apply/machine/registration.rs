//! Which threads may be changed: a thread is registered with the mask that it had before, and with a record
//! in the journal. Threads that inherited a mask of ours are found here and get back what they should have.
//!
//! Invariant: a thread that is registered has a record in the journal with its original mask (P4).

use super::LinuxMachine;
use super::managed::Managed;
use crate::affinity;
use crate::proc::{status_field, status_number};
use crate::restore::is_left_of;
use evenly_engine::{Actuator, ApplyError};
use evenly_model::{CpuSet, Nanos, Pid, ThreadId, Tid};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

impl LinuxMachine {
    /// The process of a thread, the mask that it had before evenly came, and the one it has now.
    /// `/proc` shows the whole mask, with CPUs that are offline at the moment, where
    /// sched_getaffinity leaves them out.
    fn look(&self, id: ThreadId) -> Option<(Pid, CpuSet, CpuSet)> {
        let status = self.proc.thread_status(id.tid).ok()?;
        let pid = Pid(status_number(&status, "Tgid").and_then(|n| i32::try_from(n).ok())?);
        let found = whole_mask(&status)?;
        // Read after the status: that was of this thread, and not of one with its id.
        self.proc.thread_stat(id.tid).filter(|s| s.start == id.start)?;
        if self.masks.can_be_inherited(&found) {
            let ancestors = self.ancestors(pid);
            let inherited = self.masks.inherited(id, pid, &ancestors, &found, &self.proc);
            if let Some(original) = inherited {
                return Some((pid, original, found));
            }
        }
        let is_whole = found == *self.cpus.cpuset();
        let original = if is_whole { found.or(self.cpus.possible()) } else { found.clone() };
        Some((pid, original, found))
    }

    /// A process and those that it descends from, up to the first of the program. Where that cannot
    /// be followed, because one of them has ended, all of the program's processes come into
    /// question.
    fn ancestors(&self, pid: Pid) -> Vec<Pid> {
        let mut chain: Vec<Pid> = self.proc.lineage(pid).collect();
        match chain.iter().position(|&p| p == self.cpus.root()) {
            Some(root) => {
                chain.truncate(root + 1);
                chain
            }
            None => self.masks.processes(),
        }
    }

    /// The mask that a thread had before evenly came. None where it has ended.
    #[must_use]
    pub fn mask_before_evenly(&self, id: ThreadId) -> Option<CpuSet> {
        self.look(id).map(|(_, original, _)| original)
    }

    /// Looks at a thread that has just appeared. If it inherited a mask of ours it gets back what
    /// the thread had that created it: it may be a program of its own, or start threads itself.
    pub fn restore_inherited(&mut self, id: ThreadId) {
        // One system call for nearly all threads.
        if !self.masks.narrowed_any.load(Ordering::Relaxed)
            || self.managed.contains_key(&id)
            || !affinity::get(id.tid).is_ok_and(|found| self.masks.can_be_inherited(&found))
        {
            return;
        }
        if self.look(id).is_some_and(|(_, original, found)| original != found)
            && self.register(id).is_ok()
        {
            self.restore(id);
            // Should it compute it is registered again, with the mask that it has then.
            self.unregister(id);
        }
    }

    /// [`LinuxMachine::restore_inherited`] for threads of which nothing is known yet but that they are there.
    pub fn restore_inherited_all(&mut self, newcomers: &[Tid]) {
        if !self.masks.narrowed_any.load(Ordering::Relaxed) {
            return;
        }
        for &tid in newcomers {
            if affinity::get(tid).is_ok_and(|found| self.masks.can_be_inherited(&found))
                && let Some(stat) = self.proc.thread_stat(tid)
            {
                self.restore_inherited(ThreadId { tid, start: stat.start });
            }
        }
    }

    /// First threads of processes that have become another program by exec while they had a mask
    /// of ours. To be called at each look over the threads.
    #[must_use]
    pub fn look_for_exec(&self) -> SmallVec<[ThreadId; 4]> {
        self.masks.look_for_exec(&self.proc)
    }

    /// Gives the thread back the mask that it had when it was registered, or that it inherited one of ours
    /// instead of, and forgets it: it has become another program, which must see all its CPUs
    /// (promise P3).
    pub fn reclaim(&mut self, id: ThreadId) {
        if self.release(id) {
            self.restore_inherited(id);
        }
    }

    /// Whether a thread that has been bound, as far as we know, by the program or by the one that started
    /// it, may use all of `whole` by now. `within` is what we know of one whose mask was never changed, if
    /// anything.
    #[must_use]
    pub fn is_unbound(&self, id: ThreadId, within: Option<&CpuSet>, whole: &CpuSet) -> bool {
        let bound = match self.managed.get(&id) {
            Some(m) => m.left_alone || !whole.is_subset(&m.original),
            None => within.is_some_and(|within| !whole.is_subset(within)),
        };
        bound && affinity::get(id.tid).is_ok_and(|found| whole.is_subset(&found))
    }

    /// Registers a thread: from now on its mask may be changed.
    ///
    /// # Errors
    /// [`ApplyError::Gone`] where it has ended, [`ApplyError::Refused`] where the journal has no
    /// room for it.
    pub(super) fn register(&mut self, id: ThreadId) -> Result<&mut Managed, ApplyError> {
        if !self.managed.contains_key(&id) {
            let (pid, original, found) = self.look(id).ok_or(ApplyError::Gone)?;
            let journal = &self.masks.journal;
            let mut slot = journal
                .register(id, pid, &original)
                .map_err(|e| ApplyError::Refused(e.to_string()))?;
            let inherited = !is_left_of(&found, &original, Some(self.cpus.cpuset()));
            if inherited {
                // It is ours to undo from the start.
                self.masks.journal.about_to_set(&mut slot, &found);
                self.masks.remember(id, pid, &found, &original, &self.proc);
            }
            let managed = Managed {
                pid,
                set: if inherited { found } else { original.clone() },
                noted: CpuSet::new(),
                original,
                slot,
                cpuset_changes: self.cpus.changes(),
                fair_at: Nanos::ZERO,
                suspect: None,
                left_alone: false,
            };
            self.managed.insert(id, managed);
        }
        self.managed.get_mut(&id).ok_or(ApplyError::Gone)
    }

    /// Forgets a thread that has ended or has its original mask, or one that is not ours: it can be
    /// registered anew.
    pub fn unregister(&mut self, id: ThreadId) {
        if let Some(m) = self.managed.remove(&id) {
            self.masks.ended(id, m.pid);
            self.masks.journal.forget(m.slot);
        }
    }
}

/// The mask of a thread in its `/proc` status: the whole one, with CPUs that are offline.
pub(super) fn whole_mask(status: &[u8]) -> Option<CpuSet> {
    let list = status_field(status, "Cpus_allowed_list")?;
    std::str::from_utf8(list).ok()?.parse().ok()
}

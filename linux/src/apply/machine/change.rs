//! Changes masks: checks whose mask it is that a thread has, sets the wanted one, and gives the original one
//! back.
//!
//! Invariant: no mask is set outside the original one (P1), nor before it is in the journal (P4), nor on a
//! thread whose mask is found to be the program's own.

use super::LinuxMachine;
use super::registration::whole_mask;
use crate::affinity;
use crate::beats::Beats;
use crate::clock::now;
use crate::proc::status_number;
use crate::share::ShareError;
use evenly_engine::{Actuator, ApplyError, MemoryMoved, Wanted};
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId};

/// The time from one beat to the next: threads that meet every 0.2 ms gain most by it, and a CPU loses 2 to 5 %.
const BEAT: Nanos = Nanos::from_micros(200);

impl LinuxMachine {
    /// Whether the mask that the thread has now is explained by what we know. That the thread is
    /// there must be known.
    fn check(&mut self, id: ThreadId) -> Result<(), ApplyError> {
        let found = mask_of(id)?;
        let changes = self.cpus.changes();
        let m = self.managed.get_mut(&id).ok_or(ApplyError::Gone)?;
        if m.explains(&found, self.cpus.cpuset(), changes) {
            m.suspect = None;
            return self.take_charge(id);
        }
        // The cpuset may have changed since it was read; and a process may have one of its own.
        let fresh = self.cpus.of_process(m.pid);
        let found = mask_of(id)?;
        let moved_on = changes + u64::from(fresh != *self.cpus.cpuset());
        if m.explains(&found, &fresh, moved_on) {
            m.suspect = None;
            return self.take_charge(id);
        }
        // A CPU that goes offline is taken from masks as they are reported before it is taken from the
        // CPUs that are online, and a thread that may use no other gets all of them: the whole mask
        // shows that.
        let status = self.proc.thread_status(id.tid).ok();
        if let Some(whole) = status.as_deref().and_then(whole_mask)
            && whole != found
            && m.explains(&whole, &fresh, moved_on)
        {
            m.suspect = None;
            return self.take_charge(id);
        }
        let pid = m.pid;
        let took_over = id.tid.0 == pid.0
            && self.masks.inherited(id, pid, &[pid], &found, &self.proc).is_some();
        let m = self.managed.get_mut(&id).ok_or(ApplyError::Gone)?;
        if took_over && !m.left_alone {
            // A thread that is not the leader called exec and became the leader: it brought the
            // mask that it had from us.
            m.suspect = None;
            self.masks.journal.about_to_set(&mut m.slot, &found);
            m.set = found;
            return Ok(());
        }
        if m.suspect.as_ref() == Some(&found) || m.left_alone {
            m.left_alone = true;
            self.masks.journal.leave_alone(&mut m.slot);
            return Err(ApplyError::Foreign { found });
        }
        m.suspect = Some(found);
        Err(ApplyError::Unusable { wanted: m.set.clone() })
    }

    /// A thread that the program has given its original mask back is ours to balance again: with a
    /// record of its own, because the old one says that it is not.
    fn take_charge(&mut self, id: ThreadId) -> Result<(), ApplyError> {
        if self.managed.get(&id).is_some_and(|m| m.left_alone) {
            self.unregister(id);
            self.register(id)?;
        }
        Ok(())
    }

    /// [`LinuxMachine::check`] before a thread is narrowed: one that has become a real-time thread
    /// gets its mask back.
    fn check_before_narrowing(&mut self, id: ThreadId) -> Result<(), ApplyError> {
        let time = now();
        if self.managed.get(&id).is_some_and(|m| time - m.fair_at < self.looks_again) {
            return self.check(id);
        }
        // The mask is read last, so that hardly any time is left in which the program can set it.
        let is_raised = self.shares.as_ref().is_some_and(|s| s.raises(id));
        if self.threads.stat(id).ok_or(ApplyError::Gone)?.is_fair() || is_raised {
            if let Some(m) = self.managed.get_mut(&id) {
                m.fair_at = time;
            }
            return self.check(id);
        }
        self.restore(id);
        Err(ApplyError::Refused(String::from("it is a real-time or deadline thread by now")))
    }

    fn set(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        let m = self.managed.get_mut(&id).ok_or(ApplyError::Gone)?;
        if m.noted != *mask {
            self.masks.remember(id, m.pid, mask, &m.original, &self.proc);
            m.noted.clone_from(mask);
        }
        self.masks.journal.about_to_set(&mut m.slot, mask);
        let result = affinity::set(id.tid, mask);
        if result.is_err() {
            self.masks.journal.not_set(&mut m.slot);
        }
        match result {
            Ok(()) => {
                m.set.clone_from(mask);
                m.cpuset_changes = self.cpus.changes();
                Ok(())
            }
            Err(e) if affinity::is_gone(&e) => Err(ApplyError::Gone),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                Err(ApplyError::Unusable { wanted: mask.clone() })
            }
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => {
                Err(ApplyError::Refused(self.not_permitted(id)))
            }
            Err(e) => Err(ApplyError::Refused(format!(
                "the kernel refuses to set its affinity mask to {mask}: {e}"
            ))),
        }
    }

    fn not_permitted(&self, id: ThreadId) -> String {
        let own = rustix::process::geteuid().as_raw();
        let owner = (self.proc.thread_status(id.tid).ok())
            .and_then(|s| status_number(&s, "Uid"))
            .map_or_else(|| String::from("another user"), |uid| format!("user {uid}"));
        format!(
            "it belongs to {owner}, and evenly runs as user {own}; setting its affinity mask needs \
             the same user, or CAP_SYS_NICE (sudo evenly)"
        )
    }
}

fn mask_of(id: ThreadId) -> Result<CpuSet, ApplyError> {
    affinity::get(id.tid).map_err(|e| {
        if affinity::is_gone(&e) { ApplyError::Gone } else { ApplyError::Refused(e.to_string()) }
    })
}

impl Actuator for LinuxMachine {
    fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ApplyError>> {
        let Some(shares) = &mut self.shares else {
            let why = || ApplyError::Refused(String::from("shares of CPUs cannot be set here"));
            return wanted.iter().map(|_| Err(why())).collect();
        };
        let refused = |e| match e {
            ShareError::Gone => ApplyError::Gone,
            e => ApplyError::Refused(e.to_string()),
        };
        shares.weigh(wanted).into_iter().map(|given| given.map_err(refused)).collect()
    }

    fn unweigh(&mut self, process: Pid, thread: ThreadId) {
        if let Some(shares) = &mut self.shares {
            shares.restore(process, thread);
        }
    }

    fn place(
        &mut self,
        id: ThreadId,
        cpu: CpuId,
        release: Option<&CpuSet>,
    ) -> Result<(), ApplyError> {
        self.register(id)?;
        self.check_before_narrowing(id)?;
        let one = CpuSet::single(cpu);
        let m = self.managed.get(&id).ok_or(ApplyError::Gone)?;
        if !one.is_subset(&m.original) {
            return Err(ApplyError::Unusable { wanted: one });
        }
        if m.set != one {
            self.set(id, &one)?;
        }
        let Some(release) = release else { return Ok(()) };
        self.set(id, release).or_else(|_| {
            let original = self.managed.get(&id).map(|m| m.original.clone()).unwrap_or_default();
            self.set(id, &original)
        })
    }

    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        self.register(id)?;
        self.check_before_narrowing(id)?;
        let m = self.managed.get(&id).ok_or(ApplyError::Gone)?;
        if !mask.is_subset(&m.original) {
            return Err(ApplyError::Unusable { wanted: mask.clone() });
        }
        if m.set == *mask { Ok(()) } else { self.set(id, mask) }
    }

    fn restore(&mut self, id: ThreadId) {
        // A mask that cannot be explained at the first look may be explained at the second.
        for _ in 0..2 {
            let Some(m) = self.managed.get(&id) else { return };
            if m.left_alone || self.threads.stat(id).is_none() {
                return;
            }
            match self.check(id) {
                Ok(()) => break,
                Err(ApplyError::Unusable { .. }) => {}
                Err(_) => return,
            }
        }
        if let Some(m) = self.managed.get(&id)
            && m.set != m.original
        {
            let original = m.original.clone();
            // Where the original mask cannot be set (its CPUs are gone) there is nothing better to
            // give back.
            let _ = self.set(id, &original);
        }
    }

    fn release(&mut self, id: ThreadId) -> bool {
        self.restore(id);
        // Another domain registers it with the mask that it has: nothing of ours may be left.
        let free = (self.managed.get(&id)).is_none_or(|m| !m.left_alone && m.set == m.original);
        if free {
            self.unregister(id);
        }
        free
    }

    fn beat(&mut self, cpus: &CpuSet) {
        self.beats = (self.may_beat && !cpus.is_empty()).then(|| Beats::start(cpus, BEAT, true));
    }

    fn move_memory(&mut self, pid: Pid, from: u32, to: u32) -> bool {
        self.mover.add(&self.proc, pid, from, to);
        true
    }

    fn go_on_moving(&mut self) -> Option<MemoryMoved> {
        self.mover.go_on(&self.proc)
    }
}

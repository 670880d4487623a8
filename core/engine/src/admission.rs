//! Threads and CPUs that come to a domain, and threads that leave it.

use crate::account::ThreadAccount;
use crate::actuate::{self, Action, perform};
use crate::managed::{ManagedThread, Place, ThreadWeight};
use crate::membership::Leaving;
use crate::verify::Failure;
use crate::{
    ApplyError, Balancer, Candidate, Machine, Observer, RunState, Selection, ThreadMeta, Times,
};
use evenly_model::{CpuSet, DomainId, Nanos, ThreadId};
use std::sync::Arc;

impl Balancer {
    /// Which task of the program a thread of the domain is.
    pub fn number(&mut self, id: ThreadId, number: u64) {
        if let Some(at) = self.membership.position(id) {
            self.membership.threads[at].number = Some(number);
        }
    }

    /// Admits a thread. `original` is the mask that it had when it was found.
    pub fn join(
        &mut self,
        machine: &mut dyn Machine,
        selection: Selection,
        original: &CpuSet,
        observers: &mut [Box<dyn Observer>],
    ) {
        let now = machine.now();
        let thread = selection.thread;
        let (id, times, read_at) = (thread.id, thread.times, thread.read_at);
        let mask = self.membership.number_of_mask(original.and(&self.options.cpus));
        let within = self.membership.masks[mask].clone();
        let whole = Arc::new(match &self.options.wanted {
            Some(wanted) => original.and(wanted),
            None => original.clone(),
        });
        let mut movable = !within.is_empty();
        let mut foreign = false;
        let is_wide = self.pauses.paused() || self.placement.open;
        let roaming = if is_wide { whole.clone() } else { within.clone() };
        if movable && *roaming != *original && self.moves_threads() {
            match perform(machine, &Action::Confine { thread: id, within: roaming }) {
                // What cannot be used now is asked for again when the thread is placed.
                Ok(()) | Err(ApplyError::Unusable { .. }) => {}
                Err(ApplyError::Gone) => return,
                Err(error) => {
                    movable = false;
                    foreign = matches!(error, ApplyError::Foreign { .. });
                    self.notes.left_alone(now, &Failure { thread: id, error }, observers);
                }
            }
        }
        let since_baseline = (times.ran - selection.baseline.ran).0 as i64;
        // A thread that joins others at work starts level with them: its past is not theirs.
        let first = self.ledger.points == 0 || self.membership.threads.is_empty();
        let member = self.board.as_ref().map(|board| {
            let progress = first.then_some(since_baseline);
            board.join(id, within, times, read_at, progress)
        });
        let progress = match &member {
            Some(member) => member.account().progress,
            None if first => since_baseline,
            None => self.membership.mean_progress(),
        };
        let managed = ManagedThread {
            meta: ThreadMeta { id, pid: thread.pid, name: thread.name },
            number: None,
            joined: read_at,
            member,
            place: Place { cpu: None, seen: None, movable, foreign, mask, whole, migrations: 0 },
            account: ThreadAccount::new(times, read_at, progress, now),
            weight: ThreadWeight::default(),
        };
        let domain = self.options.domain;
        self.membership.register(managed, domain, now - self.began, observers);
        self.placement.placed = false;
        self.pauses.guard.disturbed(now);
    }

    /// Confines a thread to those of these CPUs that are in the domain: where a mapping has it.
    ///
    /// # Errors
    /// [`ApplyError`] as for [`crate::Actuator::confine`].
    pub fn confine(
        &self,
        machine: &mut dyn Machine,
        thread: ThreadId,
        cpus: &CpuSet,
    ) -> Result<(), ApplyError> {
        let within = Arc::new(cpus.and(&self.options.cpus));
        perform(machine, &Action::Confine { thread, within })
    }

    /// Takes CPUs in that were not there when the domain was made. They are used from the next point
    /// on, and threads that are not pinned may go there at once.
    pub fn adopt(
        &mut self,
        machine: &mut dyn Machine,
        cpus: &CpuSet,
        observers: &mut [Box<dyn Observer>],
    ) {
        let now = machine.now();
        self.options.cpus = self.options.cpus.or(cpus);
        self.surroundings.ask_for_cpus();
        self.membership.widen(&self.options.cpus);
        // Paused, or open, threads have more already; pinned, they are placed anew.
        let p = &self.placement;
        if !(self.pauses.paused() || p.open || p.pinning) && self.moves_threads() {
            self.confine_all(|t| t.place.movable);
            for action in std::mem::take(&mut self.actions) {
                let Action::Confine { thread, .. } = &action else { continue };
                if let Err(error) = perform(machine, &action) {
                    let failure = Failure { thread: *thread, error };
                    self.failures.extend(Some(failure).filter(Failure::is_final));
                }
            }
        }
        let text = format!(
            "CPUs {cpus} were not there before, and belong to domain {} now",
            self.domain()
        );
        self.note(now, text, observers);
    }

    /// Gives a thread up, with its original mask, so that it can join the domain `to`. Its account
    /// here is closed with the last point; what it did since is counted there. None where it is not here
    /// or cannot be moved: then it stays as it is.
    pub fn release(
        &mut self,
        machine: &mut dyn Machine,
        id: ThreadId,
        to: DomainId,
        observers: &mut [Box<dyn Observer>],
    ) -> Option<Selection> {
        let index = self.membership.position(id)?;
        self.unweigh(index);
        self.actuate(machine);
        if !self.membership.threads[index].place.movable || !actuate::release(machine, id) {
            return None;
        }
        let t = &self.membership.threads[index];
        let (meta, times, read_at) = (t.meta.clone(), t.account.last, t.account.read_at);
        self.unregister(index, machine.now(), Leaving::To(to), observers);
        let thread = Candidate {
            id,
            pid: meta.pid,
            name: meta.name,
            first: meta.pid.0 == id.tid.0,
            fair: true,
            times,
            state: RunState::Runnable,
            read_at,
        };
        Some(Selection { thread, baseline: times })
    }

    /// Drops a thread that is no longer what it was (it has become another program), so that it is
    /// watched elsewhere until it computes. Returns its times; None where it is not here. Its mask
    /// is for the caller to give back.
    pub fn let_go(
        &mut self,
        machine: &mut dyn Machine,
        id: ThreadId,
        now: Nanos,
        observers: &mut [Box<dyn Observer>],
    ) -> Option<Times> {
        let index = self.membership.position(id)?;
        let times = self.membership.threads[index].account.last;
        self.unweigh(index);
        self.actuate(machine);
        self.unregister(index, now, Leaving::Idle, observers);
        Some(times)
    }

    /// A thread is to have again the part of its CPU that it had at first.
    pub(crate) fn unweigh(&mut self, index: usize) {
        let t = &mut self.membership.threads[index];
        if t.weight.given.take().is_some() {
            self.actions.push(Action::Unweigh { process: t.meta.pid, thread: t.meta.id });
        }
    }

    pub(crate) fn unregister(
        &mut self,
        index: usize,
        now: Nanos,
        why: Leaving,
        observers: &mut [Box<dyn Observer>],
    ) {
        self.membership.unregister(index, now, now - self.began, why, observers);
        self.pauses.guard.disturbed(now);
    }
}

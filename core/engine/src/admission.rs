//! Threads and CPUs that come to a domain, and threads that leave it.

use crate::account::ThreadAccount;
use crate::actuate::{Action, perform};
use crate::machine::Failure;
use crate::managed::{ManagedThread, Place, ThreadWeight};
use crate::membership::Leaving;
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
                Ok(_) | Err(ApplyError::Unusable { .. }) => {}
                Err(ApplyError::Gone) => return,
                Err(error) => {
                    movable = false;
                    foreign = matches!(error, ApplyError::Foreign { .. });
                    self.failures.push(Failure { thread: id, error });
                }
            }
        }
        let since_baseline = (times.ran - selection.baseline.ran).0 as i64;
        // A thread that joins others at work starts with their mean progress: its past is not theirs.
        let first = self.ledger.points == 0 || self.membership.threads.is_empty();
        let progress = match &mut self.agents {
            Some(agents) => {
                let progress = first.then_some(since_baseline);
                agents.join(id, within, times, read_at, progress)
            }
            None if first => since_baseline,
            None => self.membership.mean_progress(),
        };
        let managed = ManagedThread {
            meta: ThreadMeta { id, pid: thread.pid, name: thread.name },
            number: None,
            joined: read_at,
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
        perform(machine, &Action::Confine { thread, within }).map(drop)
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
        let is_movable = self.membership.threads[index].place.movable;
        if !is_movable || perform(machine, &Action::Release { thread: id }).is_err() {
            return None;
        }
        let t = &self.membership.threads[index];
        let (meta, times, read_at) = (t.meta.clone(), t.account.last, t.account.read_at);
        self.unregister(&[index], machine.now(), Leaving::To(to), observers);
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
        self.unregister(&[index], now, Leaving::Idle, observers);
        Some(times)
    }

    /// A thread is to have again the part of its CPU that it had at first.
    pub(crate) fn unweigh(&mut self, index: usize) {
        let t = &mut self.membership.threads[index];
        if t.weight.given.take().is_some() {
            self.actions.push(Action::Unweigh { process: t.meta.pid, thread: t.meta.id });
        }
    }

    /// Drops the threads at these places, which are in order.
    pub(crate) fn unregister(
        &mut self,
        places: &[usize],
        now: Nanos,
        why: Leaving,
        observers: &mut [Box<dyn Observer>],
    ) {
        if places.is_empty() {
            return;
        }
        if let Some(agents) = &mut self.agents {
            for &place in places {
                let t = &mut self.membership.threads[place];
                t.place.migrations += agents.leave(t.meta.id);
            }
        }
        self.membership.unregister(places, now, now - self.began, why, observers);
        self.pauses.guard.disturbed(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Scripted, balancer, cpus, id, join};

    #[test]
    fn threads_that_may_use_more_than_the_domain_are_confined_to_it() {
        let (mut b, mut machine) = (balancer("juggle"), Scripted::default());
        for (tid, original) in [(0, "0-3"), (1, "0-1"), (2, "1,3"), (3, "2-3")] {
            join(&mut b, &mut machine, tid, original);
        }
        // The last one may use no CPU of it, and is left where it is.
        assert_eq!(machine.calls, ["0 in 0-1", "2 in 1"]);
        let movable: Vec<bool> = b.membership.threads.iter().map(|t| t.place.movable).collect();
        assert_eq!(movable, [true, true, true, false]);
        // Who only watches changes nothing.
        let mut machine = Scripted::default();
        join(&mut balancer("observe"), &mut machine, 0, "0-3");
        assert!(machine.calls.is_empty());
    }

    #[test]
    fn who_cannot_be_confined_is_left_alone_and_who_has_ended_not_admitted() {
        let (mut b, mut machine) = (balancer("juggle"), Scripted::default());
        let unusable = ApplyError::Unusable { wanted: cpus("0-1") };
        let foreign = ApplyError::Foreign { found: cpus("3") };
        machine.fails = vec![(id(0), ApplyError::Gone), (id(1), foreign), (id(2), unusable)];
        (0..3).for_each(|tid| join(&mut b, &mut machine, tid, "0-3"));
        let of = |t: &ManagedThread| (t.meta.id, t.place.movable, t.place.foreign);
        let all: Vec<_> = b.membership.threads.iter().map(of).collect();
        assert_eq!(all, [(id(1), false, true), (id(2), true, false)]);
        // The next point notes it.
        assert_eq!((b.failures.len(), b.notes.kept().len()), (1, 0));
    }

    #[test]
    fn who_cannot_be_moved_does_not_leave_for_another_domain() {
        let (mut b, mut machine) = (balancer("juggle"), Scripted::default());
        (0..2).for_each(|tid| join(&mut b, &mut machine, tid, "0-1"));
        b.membership.threads[0].place.movable = false;
        b.membership.threads[0].weight.given = Some(2.0);
        b.membership.threads[1].weight.given = Some(0.5);
        let mut leave = |tid| b.release(&mut machine, id(tid), DomainId(1), &mut []);
        assert!(leave(0).is_none() && leave(1).is_some() && leave(9).is_none());
        // Both have their part of a CPU back.
        assert_eq!(machine.calls, ["0 unweighed", "1 unweighed", "1 restored"]);
        assert_eq!(b.len(), 1);
    }

    #[test]
    fn threads_may_use_cpus_that_a_domain_adopts_unless_they_are_pinned() {
        for (pinning, calls) in [(false, vec!["0 in 0-2"]), (true, vec![])] {
            let (mut b, mut machine) = (balancer("juggle"), Scripted::default());
            join(&mut b, &mut machine, 0, "0-3");
            b.placement.pinning = pinning;
            machine.calls.clear();
            b.adopt(&mut machine, &cpus("2"), &mut []);
            assert_eq!(machine.calls, calls);
            assert_eq!(b.threads().map(|t| t.1.to_string()).collect::<Vec<_>>(), ["0-2"]);
        }
    }
}

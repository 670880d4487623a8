//! One domain: its balancer with its points, and the threads that come to it and leave it.
//!
//! Invariant: the masks of a domain's threads are changed through its own machine, and no thread is
//! handed to another domain before its mask has been given back.

use super::mailbox::{Joining, Mailbox, Together, put, take};
use crate::agents::lock_unless;
use crate::clock::{now, thread_cpu_time};
use crate::control::Control;
use crate::journal::Journal;
use crate::machine::LinuxMachine;
use crate::tuning::TuningReader;
use evenly_engine::{ApplyError, Balancer, Observer, PeriodControl};
use evenly_model::{CpuId, CpuSet, Nanos, ThreadId};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// How often it is looked whether threads that are bound still are.
pub(super) const UNBOUND_LOOKS: Nanos = Nanos::from_millis(1_000);
/// The least period of a domain that has one CPU or no thread: it only waits for that to change.
const REST: Nanos = Nanos::from_millis(250);

/// One domain with all that it needs.
pub(super) struct Domain {
    pub(super) together: Arc<Together>,
    pub(super) balancer: Balancer,
    /// Agents change masks through it as well, where there are such.
    pub(super) machine: Arc<Mutex<LinuxMachine>>,
    /// The next point may be as early as this, where one of them calls.
    pub(super) called_at: Nanos,
    pub(super) period: PeriodControl,
    /// CPU time of this thread when the last point was measured, and what of it since then is charged
    /// to other work.
    pub(super) measured: Option<Nanos>,
    pub(super) paid: Nanos,
    pub(super) observers: Vec<Box<dyn Observer>>,
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) journal: Arc<Journal>,
    pub(super) due: Nanos,
    pub(super) generation: u64,
    /// Whether the period is ours to choose, and threads are moved at all.
    pub(super) may_rest: bool,
    /// Threads that join with less than they might use, because a mapping says so.
    pub(super) mapped: Option<Vec<Mapped>>,
    /// The CPUs that the program could use when balancing began.
    pub(super) whole: CpuSet,
    /// When it is looked next whether threads are bound no longer.
    pub(super) next_unbound: Nanos,
    pub(super) unbound_noted: bool,
    /// What the policy goes by, where that may change; one of the domains notes it.
    pub(super) tuning: Option<TuningReader>,
    pub(super) notes_tuning: bool,
}

/// A thread that has a place in a mapping.
pub(super) struct Mapped {
    pub(super) id: ThreadId,
    /// The CPUs that the mapping gives it.
    pub(super) cpus: CpuSet,
    /// It has been put there.
    pub(super) done: bool,
}

/// For how long masks are given back later because another thread has the machine.
const PATIENCE: Nanos = Nanos::from_millis(1_000);

impl Domain {
    /// One balancing point, and the time of the next. There is none where the end is asked for while another thread
    /// has the machine.
    pub(super) fn point(&mut self, control: &Control) {
        let machine = self.machine.clone();
        if let Some(mut machine) = lock_unless(&machine, || control.has_ended()) {
            self.point_of(&mut machine);
        }
    }

    /// All masks are as they were, unless another thread keeps the machine: then the journal says what is left to undo.
    pub(super) fn finish(&mut self) {
        let (machine, until) = (self.machine.clone(), now() + PATIENCE);
        if let Some(mut machine) = lock_unless(&machine, || now() > until) {
            self.balancer.finish(&mut *machine);
        }
    }

    fn point_of(&mut self, machine: &mut LinuxMachine) {
        let generation = self.journal.released_generation();
        if generation != self.generation {
            self.generation = generation;
            self.balancer.masks_were_restored();
            self.mapped.iter_mut().flatten().for_each(|m| m.done = false);
        }
        self.take_in_and_hand_on(machine);
        self.look_for_unbound(machine);
        self.look_at_tuning();
        self.put_in_place(machine);
        // Relaxed: a domain that reads an old value reads the new one at its next point.
        self.balancer.open(machine, self.together.vacant.load(Ordering::Relaxed));
        self.period.share_budget(self.together.at_work.load(Ordering::Relaxed));
        let around = self.around();
        if !self.balancer.is_empty() {
            let left = self.balancer.point(machine, self.period.current(), &mut self.observers);
            self.measured = Some(thread_cpu_time());
            if !left.is_empty() {
                for (id, _) in &left {
                    self.forget_place(*id);
                }
                put(&self.mailbox.leaving, left);
            }
            self.period.shared_by(self.balancer.taking_turns());
            self.period.calm(self.balancer.is_calm());
            self.period.blocking(self.balancer.blocks_often());
            self.period.resting(self.balancer.is_resting());
            self.period.cost(
                self.balancer.period_cost()
                    + around.scale(1.0 / self.balancer.periods_between_points()),
            );
            // What moves within phases costs is on another account, and longer periods spare none of it.
            if !self.balancer.moves_within_phases()
                && let Some(text) = self.period.newly_stretched()
            {
                self.balancer.note(now(), text, &mut self.observers);
            }
            let apart = self.balancer.periods_between_points();
            self.journal.set_period(self.period.current().scale(apart));
            let mut counts = [(CpuId(0), 0u16); 64];
            let mut n = 0;
            for (cpu, threads) in self.balancer.counts() {
                counts[n] = (cpu, u16::try_from(threads).unwrap_or(u16::MAX));
                n += 1;
                if n == counts.len() {
                    self.journal.publish_counts(&counts);
                    n = 0;
                }
            }
            self.journal.publish_counts(&counts[..n]);
        }
        let time = now();
        self.journal.heartbeat(time);
        let period = self.balancer.until_next_point(self.period.next_period());
        let busy = !self.may_rest || self.balancer.usable_cpus() > 1;
        self.called_at = time + period;
        let period = period.scale(self.balancer.periods_between_points());
        self.due = time + if busy && !self.balancer.is_empty() { period } else { period.max(REST) };
    }

    /// What has been spent since the last point was measured: waking up and going to sleep, and all that is done
    /// beside it.
    fn around(&mut self) -> Nanos {
        let cpu = thread_cpu_time();
        let spent = self.measured.replace(cpu).map_or(Nanos::ZERO, |before| cpu - before);
        spent - std::mem::take(&mut self.paid)
    }

    /// Whether an agent asks for a point before the next one is due.
    pub(super) fn is_called(&self) -> bool {
        self.due > self.called_at && self.balancer.is_called()
    }

    fn take_in_and_hand_on(&mut self, machine: &mut LinuxMachine) {
        for id in take(&self.mailbox.replaced) {
            // First of all: the program may be about to size its pool of threads.
            machine.reclaim(id);
            self.let_go(machine, id);
        }
        let adopted: CpuSet = take(&self.mailbox.adopted).into_iter().collect();
        if !adopted.is_empty() {
            machine.look_at_cpuset();
            self.balancer.adopt(machine, &adopted, &mut self.observers);
        }
        let joining = take(&self.mailbox.joining);
        if !joining.is_empty() {
            machine.look_at_cpuset();
        }
        for j in joining {
            let id = j.selection.thread.id;
            if let Some(mapped) = &mut self.mapped {
                mapped.push(Mapped { id, cpus: j.original.clone(), done: false });
            }
            self.balancer.join(machine, j.selection, &j.original, &mut self.observers);
            if let Some(number) = j.number {
                self.balancer.number(id, number);
            }
            if j.from_another {
                put(&self.mailbox.changed, [(id, true)]);
            }
        }
        for d in take(&self.mailbox.departing) {
            let released = self.balancer.release(machine, d.id, d.to, &mut self.observers);
            match released {
                Some(selection) => {
                    self.forget_place(d.id);
                    put(
                        &d.mailbox.joining,
                        [Joining {
                            selection,
                            original: d.original,
                            from_another: true,
                            number: None,
                        }],
                    );
                }
                None => put(&self.mailbox.changed, [(d.id, false)]),
            }
        }
    }

    /// A thread that bound itself, and may use all that the program could by now, is not bound any more:
    /// it is let go, and registered anew with the mask that it has as soon as it is seen to compute. Libraries
    /// do so when they look around a machine: Open MPI binds each rank to one CPU after the other while
    /// it starts.
    fn look_for_unbound(&mut self, machine: &mut LinuxMachine) {
        let time = now();
        if time < self.next_unbound {
            return;
        }
        self.next_unbound = time + UNBOUND_LOOKS;
        let whole = self.whole.and(self.balancer.cpus());
        if whole.is_empty() {
            return;
        }
        let unbound: Vec<ThreadId> = self
            .balancer
            .threads()
            .filter(|(id, within)| {
                // What a mapping leaves to a thread is less than what it may use.
                let known = self.mapped.is_none().then_some(*within);
                machine.is_unbound(*id, known, &whole)
            })
            .map(|(id, _)| id)
            .collect();
        for id in unbound {
            if !std::mem::replace(&mut self.unbound_noted, true) {
                let text =
                    format!("thread {id} may use all CPUs again, and is balanced like others");
                self.balancer.note(time, text, &mut self.observers);
            }
            machine.unregister(id);
            self.let_go(machine, id);
        }
    }

    fn look_at_tuning(&mut self) {
        let time = now();
        let Some(found) = self.tuning.as_mut().and_then(|t| t.look(time)) else { return };
        let text = match found {
            Ok((parameters, changes)) => {
                self.balancer.tune(&parameters);
                format!("tuned: {changes}")
            }
            Err(why) => why,
        };
        if self.notes_tuning {
            self.balancer.note(time, text, &mut self.observers);
        }
    }

    /// Hands a thread back to be watched until it computes (again).
    fn let_go(&mut self, machine: &mut LinuxMachine, id: ThreadId) {
        let times = self.balancer.let_go(machine, id, now(), &mut self.observers);
        self.forget_place(id);
        put(&self.mailbox.leaving, times.map(|t| (id, t)));
    }

    /// Puts threads where the mapping says that have not been put there yet. The balancer confines
    /// threads only where their domain is less than what they may use, and knows no more than that.
    fn put_in_place(&mut self, machine: &mut LinuxMachine) {
        let Some(mapped) = &mut self.mapped else { return };
        let mut refused = Vec::new();
        mapped.retain_mut(|m| {
            if m.done {
                return true;
            }
            match self.balancer.confine(machine, m.id, &m.cpus) {
                Ok(()) => m.done = true,
                // Asked for again at the next point.
                Err(ApplyError::Unusable { .. }) => {}
                Err(ApplyError::Gone) => return false,
                Err(e) => {
                    refused.push((m.id, e));
                    return false;
                }
            }
            true
        });
        for (id, e) in refused {
            let text = format!("thread {id} is not where the mapping has it: {e}");
            self.balancer.note(now(), text, &mut self.observers);
        }
    }

    fn forget_place(&mut self, id: ThreadId) {
        if let Some(mapped) = &mut self.mapped {
            mapped.retain(|m| m.id != id);
        }
    }

    pub(super) fn run(mut self, control: &Control) -> Self {
        while !control.sleep_until(self.due, || self.mailbox.is_urgent()) {
            self.point(control);
        }
        self.finish();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::mailbox::Departing;
    use super::super::tests::{Scene, join, scene, within_a_minute};
    use super::*;
    use crate::affinity;
    use crate::journal::LiveJournal;
    use crate::machine::tests::Worker;
    use crate::mapping::Mapping;

    /// The thread is to go from the one domain to the other.
    fn send(worker: &Worker, original: &CpuSet, from: &Domain, to: &Domain) {
        let (id, original) = (worker.id, original.clone());
        let (to, mailbox) = (to.balancer.domain(), to.mailbox.clone());
        put(&from.mailbox.departing, [Departing { id, original, to, mailbox }]);
    }

    fn domains(scene: &mut Scene) -> Vec<Domain> {
        scene.set_up().domains
    }

    /// Would catch: a mask that is left behind when a domain ends (promise P5).
    #[test]
    fn a_thread_is_confined_while_its_domain_runs_and_has_its_mask_back_afterwards() {
        let Some(mut s) = scene() else { return };
        let mut all = domains(&mut s);
        let worker = Worker::new();
        join(&all[1], &worker, &s.whole);
        assert!(all[1].mailbox.is_urgent());
        all[1].point(&Control::default());
        assert!(!all[1].mailbox.is_urgent());
        assert_eq!(worker.mask(), CpuSet::single(s.b));
        let control = Control::default();
        control.end();
        all.remove(1).run(&control);
        assert_eq!(worker.mask(), s.whole);
    }

    /// Would catch: a thread that arrives with the mask of the domain that it left, and would then be taken
    /// for one that bound itself.
    #[test]
    fn a_thread_goes_to_another_domain_with_its_original_mask() {
        let Some(mut s) = scene() else { return };
        let mut all = domains(&mut s);
        let worker = Worker::new();
        join(&all[0], &worker, &s.whole);
        all[0].point(&Control::default());
        assert_eq!(worker.mask(), CpuSet::single(s.a));
        send(&worker, &s.whole, &all[0], &all[1]);
        all[0].point(&Control::default());
        assert_eq!(worker.mask(), s.whole);
        assert!(all[0].balancer.is_empty() && all[1].mailbox.is_urgent());
        all[1].point(&Control::default());
        assert_eq!(worker.mask(), CpuSet::single(s.b));
        assert_eq!(take(&all[1].mailbox.changed), [(worker.id, true)]);
    }

    /// Would catch: a thread whose own mask is overridden by a change of domain (promise P1), or that is in
    /// two domains.
    #[test]
    fn a_thread_that_bound_itself_is_not_handed_over() {
        let Some(mut s) = scene() else { return };
        let mut all = domains(&mut s);
        let worker = Worker::new();
        join(&all[0], &worker, &s.whole);
        all[0].point(&Control::default());
        worker.pin_itself(&CpuSet::single(s.b));
        send(&worker, &s.whole, &all[0], &all[1]);
        all[0].point(&Control::default());
        assert_eq!(take(&all[0].mailbox.changed), [(worker.id, false)]);
        assert!(take(&all[1].mailbox.joining).is_empty());
        assert_eq!((all[0].balancer.len(), worker.mask()), (1, CpuSet::single(s.b)));
    }

    /// Would catch: a new program that starts with a mask of ours (promise P3).
    #[test]
    fn a_thread_that_became_another_program_gets_its_mask_and_is_handed_back() {
        let Some(mut s) = scene() else { return };
        let mut all = domains(&mut s);
        let worker = Worker::new();
        join(&all[0], &worker, &s.whole);
        all[0].point(&Control::default());
        put(&all[0].mailbox.replaced, [worker.id]);
        assert!(all[0].mailbox.is_urgent());
        all[0].point(&Control::default());
        assert_eq!(worker.mask(), s.whole);
        assert!(all[0].balancer.is_empty());
        let leaving = take(&all[0].mailbox.leaving);
        assert_eq!(leaving.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [worker.id]);
    }

    /// Would catch: points that come as often where there is nothing to balance, and a period that is not
    /// the one that was asked for.
    #[test]
    fn the_next_point_is_a_period_away_and_further_where_there_is_nothing_to_balance() {
        let Some(mut s) = scene() else { return };
        let mut domain = domains(&mut s).remove(0);
        let point = |domain: &mut Domain| {
            let before = now();
            domain.point(&Control::default());
            (domain.due - now(), domain.due - before)
        };
        let (_, most) = point(&mut domain);
        assert!(most >= REST, "{most}");
        let worker = Worker::new();
        join(&domain, &worker, &s.whole);
        let (least, most) = point(&mut domain);
        // Periods vary by a tenth.
        let period = Nanos::from_millis(50);
        assert!(most >= period.scale(0.9) && least <= period.scale(1.1), "{least} {most}");
        // With one CPU there is nothing to choose from, and the period is not asked for.
        domain.may_rest = true;
        let (_, most) = point(&mut domain);
        assert!(most >= REST, "{most}");
    }

    /// Would catch: a mapping that is lost when the guardian gave masks back while evenly was stopped, and
    /// one that is enforced at each point.
    #[test]
    fn a_mapped_thread_is_put_in_its_place_once_and_again_after_masks_were_restored() {
        let Some(s) = scene() else { return };
        let mut s = s.one_domain().watched();
        s.live.options.mapping = Some(Mapping::new([(0, CpuSet::single(s.b))].into()));
        let mut domain = domains(&mut s).remove(0);
        let worker = Worker::new();
        join(&domain, &worker, &CpuSet::single(s.b));
        domain.point(&Control::default());
        assert_eq!(worker.mask(), CpuSet::single(s.b));
        affinity::set(worker.id.tid, &s.whole).unwrap();
        domain.point(&Control::default());
        assert_eq!(worker.mask(), s.whole);
        LiveJournal::open(&domain.journal.path()).unwrap().raise_released();
        domain.point(&Control::default());
        assert_eq!(worker.mask(), CpuSet::single(s.b));
        drop(worker);
        domain.mapped.iter_mut().flatten().for_each(|m| m.done = false);
        domain.point(&Control::default());
        assert!(domain.mapped.as_ref().is_some_and(Vec::is_empty), "it has ended");
    }

    /// Would catch: threads that a library bound for a moment, and that are never balanced; and one note for
    /// each of them.
    #[test]
    fn threads_that_are_bound_no_longer_are_handed_back_with_one_note() {
        let Some(s) = scene() else { return };
        let mut s = s.one_domain().watched();
        let mut domain = domains(&mut s).remove(0);
        let workers = [Worker::new(), Worker::new()];
        for worker in &workers {
            worker.pin_itself(&CpuSet::single(s.a));
            join(&domain, worker, &CpuSet::single(s.a));
        }
        domain.next_unbound = Nanos::ZERO;
        domain.point(&Control::default());
        assert_eq!((domain.balancer.len(), s.log.notes().len()), (2, 0));
        workers.iter().for_each(|w| w.pin_itself(&s.whole));
        domain.point(&Control::default());
        assert_eq!(domain.balancer.len(), 2, "it is too early to look again");
        domain.next_unbound = Nanos::ZERO;
        domain.point(&Control::default());
        assert!(domain.balancer.is_empty());
        assert_eq!(take(&domain.mailbox.leaving).len(), 2);
        let notes = s.log.notes();
        assert!(notes.len() == 1 && notes[0].contains("may use all CPUs again"), "{notes:?}");
    }

    /// Would catch: a rank that its launcher bound for a moment, and that is never put where the mapping has it; and one
    /// that is there and is handed back, because it may use less than the program.
    #[test]
    fn under_a_mapping_only_threads_that_were_bound_when_they_joined_are_handed_back() {
        let Some(s) = scene() else { return };
        let mut s = s.one_domain().watched();
        let mut domain = domains(&mut s).remove(0);
        domain.mapped = Some(Vec::new());
        let [bound, placed] = [Worker::new(), Worker::new()];
        bound.pin_itself(&CpuSet::single(s.a));
        join(&domain, &bound, &CpuSet::single(s.a));
        join(&domain, &placed, &CpuSet::single(s.b));
        domain.point(&Control::default());
        assert_eq!(placed.mask(), CpuSet::single(s.b));
        bound.pin_itself(&s.whole);
        domain.next_unbound = Nanos::ZERO;
        domain.point(&Control::default());
        let left: Vec<ThreadId> =
            take(&domain.mailbox.leaving).into_iter().map(|(id, _)| id).collect();
        assert_eq!(left, [bound.id]);
        assert_eq!(placed.mask(), CpuSet::single(s.b));
    }

    /// Would catch: points that the guardian does not notice, so that it gives masks back.
    #[test]
    fn each_point_leaves_a_heartbeat() {
        let Some(mut s) = scene() else { return };
        let mut domain = domains(&mut s).remove(0);
        let heartbeat =
            |d: &Domain| crate::journal::Header::open(&d.journal.path()).unwrap().heartbeat;
        for _ in 0..2 {
            let before = now();
            domain.point(&Control::default());
            assert!(heartbeat(&domain) >= before);
        }
    }

    /// Would catch: a run that does not end because a helper is stuck while it moves a thread.
    #[test]
    fn what_keeps_the_machine_keeps_no_domain_from_its_end() {
        let Some(mut s) = scene() else { return };
        let Some(mut domain) = domains(&mut s).into_iter().next() else { return };
        let machine = domain.machine.clone();
        let kept = machine.lock().unwrap();
        let control = Control::default();
        within_a_minute(&control, || {
            std::thread::scope(|scope| {
                let ends = scope.spawn(|| domain.point(&control));
                control.end();
                ends.join().unwrap();
            });
            domain.finish();
        });
        drop(kept);
    }
}

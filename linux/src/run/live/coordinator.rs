//! The coordinator: finds the threads of the program, gives those that compute to the domains, and looks
//! after what limits and what undoes a run.
//!
//! Invariant: a thread is a member of one domain at a time, and is on its way between at most two.

use super::LiveError;
use super::mailbox::{Departing, Joining, Mailbox, Together, put, take};
use super::schedule::{Allowance, Job, Kind, WAKING, due_job};
use crate::clock::{now, process_cpu_time, thread_cpu_time};
use crate::guardian::Guardian;
use crate::journal::Process;
use crate::limits::{DomainKind, Limits, Quota};
use crate::machine::LinuxMachine;
use crate::mapping::{MapBy, Mapping, Newcomer, Numbering};
use crate::proc::Proc;
use crate::scan::Scanner;
use evenly_engine::{
    DomainSpread, DomainThread, Reader, Selection, Sensors, Tracker, home_of_newcomer, left_unused,
    roomiest,
};
use evenly_model::{CpuSet, DomainId, Knowledge, Nanos, Pid, ThreadId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often the CPU quota is looked at.
pub(super) const QUOTA_LOOKS: Nanos = Nanos::from_millis(1_000);
/// How often it is looked whether the guardian lives, and whether the journal's name leads to it.
pub(super) const GUARDIAN_LOOKS: Nanos = Nanos::from_millis(500);

/// A domain as the coordinator sees it.
pub(super) struct Home {
    pub(super) cpus: CpuSet,
    pub(super) mailbox: Arc<Mailbox>,
}

/// A thread of a domain, as the coordinator sees it.
pub(super) struct Member {
    id: ThreadId,
    home: usize,
    /// The domain that it has been sent to, and has not joined yet.
    sent_to: Option<usize>,
    /// Its domain could not give it up.
    stays: bool,
    /// The mask that it had when it was admitted, as an index.
    mask: usize,
}

/// Finds threads and gives them to domains.
pub(super) struct Coordinator {
    pub(super) together: Arc<Together>,
    pub(super) tracker: Tracker,
    pub(super) scanner: Scanner,
    pub(super) homes: Vec<Home>,
    pub(super) allowance: Allowance,
    /// CPU time that other threads of evenly have had.
    pub(super) others: Nanos,
    /// What scanning may use once there are balancers at work.
    pub(super) scan_share: f64,
    pub(super) jobs: [Job; 3],
    /// How many threads have come, gone, or begun to want a CPU, and how many are in domains; since when that, and what threads do,
    /// has been the same.
    pub(super) there: (u64, usize),
    pub(super) changed_at: Nanos,
    /// All processes of the machine have been gone over once.
    pub(super) found_processes: bool,
    pub(super) started_at: Option<Nanos>,
    /// Which thread is in which domain.
    pub(super) members: Vec<Member>,
    /// Threads that have become another program and are to get their masks back.
    pub(super) replaced: Vec<ThreadId>,
    /// The masks that members had when they were admitted, each once.
    pub(super) masks: Vec<CpuSet>,
    /// Equalises the numbers of threads per domain.
    pub(super) spread: Option<DomainSpread>,
    /// CPUs that belong to no domain, because they are not there yet.
    pub(super) homeless: CpuSet,
    /// What the domains are.
    pub(super) kind: DomainKind,
    /// The program has no process any more.
    pub(super) vanished: bool,
    pub(super) most_threads: usize,
    pub(super) most_processes: usize,
    pub(super) realtime_threads: usize,
    pub(super) limits: Limits,
    pub(super) root: Pid,
    /// The CPU quota as last seen.
    pub(super) quota: Quota,
    pub(super) next_quota: Nanos,
    pub(super) guardian: Option<Arc<Guardian>>,
    pub(super) next_guardian: Nanos,
    /// Why masks would no longer be restored if evenly died.
    pub(super) unguarded: Option<LiveError>,
    /// That the journal was made anew has been noted, which happens once.
    pub(super) journal_noted: bool,
    /// Where threads are to run.
    pub(super) mapping: Option<Mapping>,
    /// Which task a thread is, for the mapping and for a policy that asks.
    pub(super) numbering: Option<Numbering>,
    /// Notes for the report and the decision log.
    pub(super) notes: Vec<String>,
}

impl Coordinator {
    /// Whether something may be done now.
    pub(super) fn has_work(&self, now: Nanos) -> bool {
        self.jobs.iter().any(|j| j.is_due(now))
    }

    /// When something has to be done. Where the balancer it shares its thread with has threads, whose points come by themselves,
    /// what can wait for one of these does: each time that the thread wakes takes time from the program.
    pub(super) fn due(&self, has_points: bool) -> Nanos {
        let at = |j: &Job| if has_points { j.at_latest() } else { j.next };
        let work = self.jobs.iter().map(at).min().unwrap_or_default();
        let late = if has_points { GUARDIAN_LOOKS } else { Nanos::ZERO };
        if self.guardian.is_some() { work.min(self.next_guardian + late) } else { work }
    }

    /// Until there are balancers at work, which have a part of the budget, all that evenly does is paid from this one.
    fn pay_for_others(&mut self, own: Nanos) {
        let others = process_cpu_time() - own;
        let spent = others - std::mem::replace(&mut self.others, others);
        if self.started_at.is_none() {
            self.allowance.spend(spent);
        }
    }

    /// Does one piece of the work that is most overdue, if it can be afforded. Returns whether there
    /// is mail for a domain that cannot wait.
    pub(super) fn work(&mut self, machine: &mut LinuxMachine) -> bool {
        let (cpu, begin) = (thread_cpu_time(), now());
        self.allowance.refill(begin);
        self.pay_for_others(cpu);
        let Some(i) = due_job(&mut self.jobs, &self.allowance, begin) else { return false };
        let kind = self.jobs[i].kind;
        let (done, mail) = match kind {
            Kind::Processes => (self.find_processes(begin), false),
            Kind::Search => {
                let done = self.scanner.search(begin);
                machine.restore_inherited_all(&self.scanner.take_newcomers());
                (done, false)
            }
            Kind::Look => {
                let done = self.scanner.look(begin);
                (done, done && self.look(machine, begin))
            }
        };
        let there = (self.scanner.changes(), self.members.len());
        if std::mem::replace(&mut self.there, there) != there {
            self.changes(begin);
        }
        let steady = self.tracker.started().then_some(begin - self.changed_at);
        let interval = kind.interval(steady, self.scanner.threads());
        let cost = thread_cpu_time() - cpu + WAKING;
        self.jobs[i].did(begin, cost, done, interval, &mut self.allowance);
        mail
    }

    /// A thread has come, gone, or begun to compute: for a while it is scanned as often as usual.
    fn changes(&mut self, now: Nanos) {
        self.changed_at = now;
        for job in &mut self.jobs {
            job.hurry(now);
        }
    }

    fn find_processes(&mut self, now: Nanos) -> bool {
        let done = self.scanner.find_processes(now);
        self.found_processes |= done;
        if done && self.scanner.has_new_processes() {
            // A process that was started by a pinned thread waits for its mask.
            for job in self.jobs.iter_mut().filter(|j| j.kind == Kind::Search) {
                job.next = job.next.min(now);
            }
        }
        done
    }

    /// What follows when all threads that have wanted a CPU have been read. Returns whether there is
    /// mail for a domain that cannot wait.
    fn look(&mut self, machine: &mut LinuxMachine, begin: Nanos) -> bool {
        self.read_mail(begin);
        self.scanner.look_at_root();
        self.vanished = self.found_processes && self.scanner.processes() == 0;
        let replaced = self.look_for_exec(machine);
        self.most_threads = self.most_threads.max(self.scanner.threads());
        self.most_processes = self.most_processes.max(self.scanner.processes());
        let realtime = self.scanner.candidates().iter().filter(|c| !c.fair).count();
        self.realtime_threads = self.realtime_threads.max(realtime);
        if begin >= self.next_quota && !self.vanished {
            self.next_quota = begin + QUOTA_LOOKS;
            self.look_at_quota();
            self.adopt();
        }
        self.tracker.listen(machine);
        let (threads, found) = (self.scanner.threads(), self.scanner.candidates());
        let chosen = self.tracker.look_among(threads, begin, found);
        let joined = !chosen.is_empty();
        if self.tracker.is_choosing() {
            self.changes(begin);
        }
        if !self.members.is_empty() {
            self.members.retain(|m| self.tracker.knows(m.id));
        }
        self.give(machine, chosen);
        self.spread(machine, begin);
        if joined && self.started_at.is_none() {
            self.started_at = Some(begin);
            self.allowance.share = self.scan_share;
        }
        joined || replaced
    }

    /// Takes in what the domains report of their threads.
    fn read_mail(&mut self, begin: Nanos) {
        for home in 0..self.homes.len() {
            for (id, times) in take(&self.homes[home].mailbox.leaving) {
                self.tracker.idle(id, times, begin);
                self.members.retain(|m| m.id != id);
            }
            for (id, changed) in take(&self.homes[home].mailbox.changed) {
                if let Some(m) = self.members.iter_mut().find(|m| m.id == id) {
                    m.home = if changed { m.sent_to.unwrap_or(m.home) } else { m.home };
                    m.stays |= !changed;
                    m.sent_to = None;
                }
            }
        }
    }

    /// Gives threads that have become another program their masks back, or has the domains do it.
    /// Returns whether there is such mail for a domain.
    fn look_for_exec(&mut self, machine: &mut LinuxMachine) -> bool {
        self.replaced.extend(machine.look_for_exec());
        let mut mail = false;
        let (members, homes) = (&self.members, &self.homes);
        self.replaced.retain(|&id| match members.iter().find(|m| m.id == id) {
            // Between two domains: when it has arrived.
            Some(m) if m.sent_to.is_some() => true,
            Some(m) => {
                put(&homes[m.home].mailbox.replaced, [id]);
                mail = true;
                false
            }
            None => {
                machine.reclaim(id);
                false
            }
        });
        mail
    }

    /// Looks after the guardian and the journal now and then: a guardian that was killed is replaced, and a
    /// journal that was removed is made anew. False where that cannot be.
    pub(super) fn is_guarded(&mut self) -> bool {
        let time = now();
        if time >= self.next_guardian
            && let Some(guardian) = self.guardian.clone()
        {
            self.next_guardian = time + GUARDIAN_LOOKS;
            self.unguarded = self.look_after(&guardian).err();
        }
        self.unguarded.is_none()
    }

    fn look_after(&mut self, guardian: &Guardian) -> Result<(), LiveError> {
        if let Some(path) = guardian.keep_journal()?
            && !std::mem::replace(&mut self.journal_noted, true)
        {
            self.notes.push(format!(
                "the journal was removed, and has been made anew: {}",
                path.display()
            ));
        }
        if guardian.renew()? {
            self.notes.push(String::from("the guardian was killed, and has been started again"));
        }
        Ok(())
    }

    /// Gives CPUs that have come to the domains that they belong to.
    fn adopt(&mut self) {
        if self.homeless.is_empty() {
            return;
        }
        // What cannot be read now is looked at again.
        let Ok(online) = self.limits.online() else { return };
        let newcomers = self.homeless.and(&online);
        if newcomers.is_empty() {
            return;
        }
        let Ok(groups) = self.limits.domains(self.kind, &online) else { return };
        for cpu in newcomers.iter() {
            let domains: Vec<CpuSet> = self.homes.iter().map(|h| h.cpus.clone()).collect();
            let Some(home) = home_of_newcomer(&domains, &groups, cpu) else { return };
            self.homes[home].cpus.insert(cpu);
            put(&self.homes[home].mailbox.adopted, [cpu]);
        }
        self.homeless = self.homeless.minus(&newcomers);
    }

    /// The CPU quota may change while the program runs.
    fn look_at_quota(&mut self) {
        // The first process may have ended, or wait to be reaped, which puts it into the topmost
        // group: what was seen last holds.
        if Proc::default().process_stat(self.root).is_none_or(|s| matches!(s.state, b'Z' | b'X')) {
            return;
        }
        let Ok(quota) = self.limits.quota(self.root) else { return };
        if quota.cpus != self.quota.cpus {
            let text = |cpus: Option<f64>| {
                cpus.map_or_else(|| String::from("none"), |c| format!("{c:.2} CPUs"))
            };
            self.notes.push(format!(
                "the CPU quota is now {} (it was {})",
                text(quota.cpus),
                text(self.quota.cpus)
            ));
        }
        self.quota = quota;
    }

    /// Gives each new thread to the domain where it finds most room, and where rooms are equal, to
    /// the one where it runs now: so threads are spread to within one of each other (paper,
    /// section 2.4).
    pub(super) fn give(&mut self, machine: &mut LinuxMachine, chosen: Vec<Selection>) {
        if chosen.is_empty() {
            return;
        }
        machine.look_at_cpuset();
        let mut admitted: Vec<(Selection, CpuSet)> = chosen
            .into_iter()
            .filter_map(|s| machine.mask_before_evenly(s.thread.id).map(|original| (s, original)))
            .collect();
        let tasks = self.map(&mut admitted);
        let masks: Vec<usize> = admitted.iter().map(|(_, original)| self.mask(original)).collect();
        let (rooms, allowed) = self.rooms(&self.usable(machine), &masks);
        let mut counts = vec![0; self.homes.len()];
        for m in &self.members {
            counts[m.sent_to.unwrap_or(m.home)] += 1;
        }
        for (((selection, original), mask), number) in admitted.into_iter().zip(masks).zip(tasks) {
            let id = selection.thread.id;
            let here = machine
                .locate(id)
                .and_then(|l| self.homes.iter().position(|h| h.cpus.contains(l.cpu)));
            let Some(home) = roomiest(&rooms, &counts, &allowed[mask], here) else { continue };
            counts[home] += 1;
            self.members.push(Member { id, home, sent_to: None, stays: false, mask });
            put(
                &self.homes[home].mailbox.joining,
                [Joining { selection, original, from_another: false, number }],
            );
        }
    }

    /// Narrows what threads may use to what the mapping says, if there is one. Which tasks they are.
    fn map(&mut self, admitted: &mut [(Selection, CpuSet)]) -> Vec<Option<u64>> {
        let Some(numbering) = &mut self.numbering else { return vec![None; admitted.len()] };
        let proc = Proc::default();
        // What evenly has as well distinguishes no process: it was set for the one that started it.
        let own = proc.rank(Process::own().pid);
        let mut ranks: HashMap<Pid, Option<u64>> = HashMap::new();
        for (s, _) in admitted.iter() {
            ranks.entry(s.thread.pid).or_insert_with(|| {
                proc.rank(s.thread.pid).filter(|found| own != Some(*found)).map(|(_, rank)| rank)
            });
        }
        let balanced = self.homes.iter().fold(CpuSet::new(), |all, h| all.or(&h.cpus));
        let may_use: Vec<CpuSet> =
            admitted.iter().map(|(_, original)| original.and(&balanced)).collect();
        let found: Vec<Newcomer<'_>> = (admitted.iter().zip(&may_use))
            .map(|((s, _), may_use)| Newcomer {
                id: s.thread.id,
                pid: s.thread.pid,
                rank: ranks.get(&s.thread.pid).copied().flatten(),
                may_use,
            })
            .collect();
        let tasks = numbering.numbers(&found);
        let narrowed = self.mapping.as_mut().map(|m| m.narrow(&found, &tasks)).unwrap_or_default();
        for ((_, original), cpus) in admitted.iter_mut().zip(narrowed) {
            if let Some(cpus) = cpus {
                *original = cpus;
            }
        }
        tasks
    }

    /// Sends threads to other domains where CPUs or threads have come or gone, so that the domains
    /// stay balanced.
    fn spread(&mut self, machine: &mut LinuxMachine, now: Nanos) {
        let mut threads = vec![0; self.homes.len()];
        for m in &self.members {
            threads[m.sent_to.unwrap_or(m.home)] += 1;
        }
        let at_work = threads.iter().filter(|n| **n > 0).count();
        self.together.at_work.store(at_work, Ordering::Relaxed);
        // What is on its way would be counted wrongly, or sent twice.
        if self.homes.len() < 2 || self.members.iter().any(|m| m.sent_to.is_some()) {
            return;
        }
        let usable = self.usable(machine);
        let (rooms, allowed) = self.rooms(&usable, &[]);
        let more_room = self.spread.as_ref().is_some_and(|s| s.rooms() != rooms);
        if more_room {
            for m in &mut self.members {
                m.stays = false;
            }
        }
        let threads: Vec<DomainThread> = self
            .members
            .iter()
            .map(|m| DomainThread { domain: m.home, class: m.mask, movable: !m.stays })
            .collect();
        let domains: Vec<CpuSet> = self.homes.iter().map(|h| h.cpus.clone()).collect();
        let left = left_unused(&domains, &usable, &self.masks, &threads);
        self.together.vacant.store(!left.is_empty(), Ordering::Relaxed);
        let Some(spread) = &mut self.spread else { return };
        for t in spread.look(now, &rooms, &allowed, &threads) {
            let member = &mut self.members[t.thread];
            member.sent_to = Some(t.to);
            let departing = Departing {
                id: member.id,
                original: self.masks[member.mask].clone(),
                to: DomainId(t.to as u32),
                mailbox: self.homes[t.to].mailbox.clone(),
            };
            put(&self.homes[member.home].mailbox.departing, [departing]);
        }
    }

    fn mask(&mut self, original: &CpuSet) -> usize {
        self.masks.iter().position(|m| m == original).unwrap_or_else(|| {
            self.masks.push(original.clone());
            self.masks.len() - 1
        })
    }

    /// The CPUs of all domains that can be used now.
    fn usable(&self, machine: &mut LinuxMachine) -> CpuSet {
        machine.usable(&self.homes.iter().fold(CpuSet::new(), |all, h| all.or(&h.cpus)))
    }

    /// How many of these CPUs of each domain the members, and threads with these masks, may use; and
    /// for each mask in which domains it holds such CPUs.
    fn rooms(&self, usable: &CpuSet, more_masks: &[usize]) -> (Vec<usize>, Vec<Vec<bool>>) {
        let mut used = vec![false; self.masks.len()];
        for mask in self.members.iter().map(|m| m.mask).chain(more_masks.iter().copied()) {
            used[mask] = true;
        }
        let wanted = (self.masks.iter().zip(&used).filter(|(_, used)| **used))
            .fold(CpuSet::new(), |all, (mask, _)| all.or(mask));
        let rooms = self.homes.iter().map(|h| h.cpus.and(usable).and(&wanted).len()).collect();
        let allowed = self.masks.iter().map(|mask| {
            let can_use = mask.and(usable);
            self.homes.iter().map(|h| !h.cpus.and(&can_use).is_empty()).collect()
        });
        (rooms, allowed.collect())
    }
}

/// Numbers threads where a mapping or what is known of communication names them by numbers.
pub(super) fn numbering(
    by: MapBy,
    mapping: Option<&Mapping>,
    knowledge: Option<&Knowledge>,
) -> Option<Numbering> {
    if mapping.is_none() && knowledge.is_none() {
        return None;
    }
    let recorded = knowledge.iter().flat_map(|k| &k.profile).flat_map(|p| p.tasks());
    let recorded = recorded.map(|t| t.id.saturating_add(1)).max().unwrap_or(0);
    Some(Numbering::new(by, recorded.max(mapping.map_or(0, Mapping::numbers))))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Scene, cpus, scene, selection};
    use super::*;
    use crate::agents::lock;
    use crate::machine::tests::Worker;

    const SECOND: Nanos = Nanos::from_millis(1_000);

    fn member(worker: &Worker, home: usize) -> Member {
        Member { id: worker.id, home, sent_to: None, stays: false, mask: 0 }
    }

    /// How many threads are on their way to each domain.
    fn joining(coordinator: &Coordinator) -> Vec<usize> {
        coordinator.homes.iter().map(|h| h.mailbox.joining.lock().unwrap().len()).collect()
    }

    /// Would catch: all threads in the domain where they run now, or in the first one.
    #[test]
    fn new_threads_go_to_the_domains_that_have_most_room() {
        let Some(mut s) = scene() else { return };
        let mut set_up = s.set_up();
        let workers: Vec<Worker> = (0..4).map(|_| Worker::new()).collect();
        let c = &mut set_up.coordinator;
        c.give(&mut lock(&set_up.domains[0].machine), workers.iter().map(selection).collect());
        assert_eq!(joining(c), [2, 2]);
        assert_eq!(c.members.len(), 4);
    }

    /// Would catch: a thread in a domain in which it may not run (promise P1).
    #[test]
    fn a_thread_goes_only_where_its_mask_lets_it() {
        let Some(mut s) = scene() else { return };
        let mut set_up = s.set_up();
        let workers: Vec<Worker> = (0..3).map(|_| Worker::new()).collect();
        workers.iter().for_each(|w| w.pin_itself(&CpuSet::single(s.b)));
        let c = &mut set_up.coordinator;
        c.give(&mut lock(&set_up.domains[0].machine), workers.iter().map(selection).collect());
        assert_eq!(joining(c), [0, 3]);
        let joining = take(&c.homes[1].mailbox.joining);
        assert!(joining.iter().all(|j| j.original == CpuSet::single(s.b)));
    }

    /// Would catch: a thread that ended between two looks and stays a member for ever.
    #[test]
    fn a_thread_that_has_ended_is_not_admitted() {
        let Some(mut s) = scene() else { return };
        let mut set_up = s.set_up();
        let chosen = selection(&Worker::new());
        let c = &mut set_up.coordinator;
        c.give(&mut lock(&set_up.domains[0].machine), vec![chosen]);
        assert!(c.members.is_empty());
        assert_eq!(joining(c), [0, 0]);
    }

    /// Would catch: a move on the first sight of unequal domains, two moves of one thread, and threads that
    /// go to and fro.
    #[test]
    fn one_thread_moves_where_domains_have_been_unequal_for_a_while() {
        let Some(mut s) = scene() else { return };
        let mut set_up = s.set_up();
        let workers: Vec<Worker> = (0..4).map(|_| Worker::new()).collect();
        let c = &mut set_up.coordinator;
        c.masks.push(s.whole.clone());
        c.members.extend(workers.iter().enumerate().map(|(i, w)| member(w, usize::from(i == 3))));
        let machine = &mut lock(&set_up.domains[0].machine);
        let departing = |c: &Coordinator| c.homes[0].mailbox.departing.lock().unwrap().len();
        let mut t = SECOND;
        c.spread(machine, t);
        assert_eq!(departing(c), 0);
        t += SECOND.scale(60.0);
        c.spread(machine, t);
        assert_eq!(departing(c), 1);
        assert_eq!(c.together.at_work.load(Ordering::Relaxed), 2);
        for _ in 0..3 {
            t += SECOND.scale(60.0);
            c.spread(machine, t);
        }
        assert_eq!(departing(c), 1, "while one is on its way none follows");
        let sent = c.members.iter().find(|m| m.sent_to == Some(1)).unwrap().id;
        put(&c.homes[1].mailbox.changed, [(sent, true)]);
        c.read_mail(t);
        for _ in 0..3 {
            t += SECOND.scale(60.0);
            c.spread(machine, t);
        }
        assert_eq!(departing(c), 1);
        assert_eq!(c.members.iter().filter(|m| m.home == 0).count(), 2);
    }

    /// Would catch: threads that stay confined to their domain while the CPUs of another one idle.
    #[test]
    fn cpus_that_confined_threads_leave_unused_are_reported_to_the_domains() {
        let Some(mut s) = scene() else { return };
        let mut set_up = s.set_up();
        let workers = [Worker::new(), Worker::new()];
        let c = &mut set_up.coordinator;
        c.masks.push(s.whole.clone());
        let machine = &mut lock(&set_up.domains[0].machine);
        for (home, vacant) in [(0, true), (1, false)] {
            c.members.push(member(&workers[home], home));
            c.spread(machine, SECOND);
            assert_eq!(c.together.vacant.load(Ordering::Relaxed), vacant);
        }
    }

    /// Would catch: a thread that is counted in a domain that it never left, or that is asked to leave again
    /// and again.
    #[test]
    fn a_domain_that_cannot_give_a_thread_up_keeps_it() {
        let Some(mut s) = scene() else { return };
        let mut set_up = s.set_up();
        let workers = [Worker::new(), Worker::new(), Worker::new()];
        let c = &mut set_up.coordinator;
        c.members.extend(workers.iter().map(|w| member(w, 0)));
        c.members[0].sent_to = Some(1);
        c.members[1].sent_to = Some(1);
        put(&c.homes[0].mailbox.changed, [(workers[0].id, false)]);
        put(&c.homes[1].mailbox.changed, [(workers[1].id, true)]);
        put(&c.homes[0].mailbox.leaving, [(workers[2].id, Default::default())]);
        c.read_mail(SECOND);
        let members: Vec<_> = c.members.iter().map(|m| (m.home, m.sent_to, m.stays)).collect();
        assert_eq!(members, [(0, None, true), (1, None, false)]);
    }

    /// Would catch: a request that goes to the domain which a thread is just leaving, and is lost there.
    #[test]
    fn a_thread_between_two_domains_is_replaced_when_it_has_arrived() {
        let Some(mut s) = scene() else { return };
        let mut set_up = s.set_up();
        let worker = Worker::new();
        let c = &mut set_up.coordinator;
        c.members.push(member(&worker, 0));
        c.members[0].sent_to = Some(1);
        c.replaced.push(worker.id);
        let machine = &mut lock(&set_up.domains[0].machine);
        assert!(!c.look_for_exec(machine));
        assert_eq!(c.replaced, [worker.id]);
        put(&c.homes[1].mailbox.changed, [(worker.id, true)]);
        c.read_mail(SECOND);
        assert!(c.look_for_exec(machine));
        assert!(c.replaced.is_empty());
        assert_eq!(take(&c.homes[1].mailbox.replaced), [worker.id]);
    }

    /// Two CPUs that are not there at first, and the scene's own two, each a node.
    fn with_two_to_come(s: &Scene) -> CpuSet {
        let last = s.whole.iter().map(|c| c.0).max().unwrap();
        let to_come = cpus(&format!("{}-{}", last + 1, last + 2));
        s.write("sys/devices/system/cpu/possible", &s.both().or(&to_come).to_string());
        to_come
    }

    /// Would catch: CPUs that come online and are used by no domain, or by the wrong one.
    #[test]
    fn cpus_that_come_online_go_to_the_domain_of_their_node() {
        let Some(mut s) = scene() else { return };
        let to_come = with_two_to_come(&s);
        let mut set_up = s.set_up();
        let c = &mut set_up.coordinator;
        assert_eq!(c.homeless, to_come);
        c.adopt();
        assert_eq!(c.homeless, to_come, "they are not online yet");
        s.write("sys/devices/system/cpu/online", &s.both().or(&to_come).to_string());
        let second = CpuSet::single(s.b).or(&to_come);
        s.write("sys/devices/system/node/node1/cpulist", &second.to_string());
        c.adopt();
        assert!(c.homeless.is_empty());
        assert_eq!((&c.homes[0].cpus, &c.homes[1].cpus), (&CpuSet::single(s.a), &second));
        let adopted: CpuSet = take(&c.homes[1].mailbox.adopted).into_iter().collect();
        assert_eq!(adopted, to_come);
    }

    /// Would catch: a note at each look, none at all, and a quota that is forgotten when it cannot be read.
    #[test]
    fn a_quota_that_changes_is_noted_once() {
        let Some(mut s) = scene() else { return };
        s.write(&format!("proc/{}/cgroup", std::process::id()), "0::/g\n");
        let mount = "30 20 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n";
        s.write("proc/self/mountinfo", mount);
        s.write("sys/fs/cgroup/g/cpu.max", "max 100000\n");
        let mut set_up = s.set_up();
        let c = &mut set_up.coordinator;
        let mut notes = |text: &str| {
            s.write("sys/fs/cgroup/g/cpu.max", text);
            c.look_at_quota();
            c.look_at_quota();
            (std::mem::take(&mut c.notes), c.quota.cpus)
        };
        assert_eq!(notes("max 100000\n"), (vec![], None));
        let text = String::from("the CPU quota is now 1.50 CPUs (it was none)");
        assert_eq!(notes("150000 100000\n"), (vec![text], Some(1.5)));
        assert_eq!(notes("unreadable\n"), (vec![], Some(1.5)));
        let text = String::from("the CPU quota is now none (it was 1.50 CPUs)");
        assert_eq!(notes("max 100000\n"), (vec![text], None));
    }
}

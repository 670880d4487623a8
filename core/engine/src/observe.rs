//! Reads the threads of a domain, books what they did, and shows it as a snapshot.
//!
//! Times are read for all threads at once. Where a thread is, and whether it waits or is blocked, costs ten
//! times as much to find out: that is looked at only where times leave it open.
//!
//! Invariant: nothing is changed here; only [`Sensors`] are used.

use crate::account::Stretch;
use crate::agents::Agents;
use crate::managed::ManagedThread;
use crate::membership::drop_places;
use crate::phases::{Participant, Phases};
use crate::placement::Placement;
use crate::ranks::links;
use crate::rates::Rates;
use crate::speed::OnCpu;
use crate::{RankActivity, Reading, RunState, Sensors, Waiting};
use evenly_model::{CpuSet, CpuView, Nanos, Pid, Snapshot, TaskView, ThreadId, ThreadView, Turns};
use std::sync::Arc;

/// Readings that fail for so long are reported.
const UNKNOWN: Nanos = Nanos::from_millis(1_000);
/// Of so many threads one is looked at at each point, where no thread gives up a CPU.
const THREADS_PER_LOOK: usize = 16;
/// How often pinned threads are looked at.
const LOOK_AT_ALL: Nanos = Nanos::from_millis(1_000);

/// What was read, with the work space for it.
#[derive(Default)]
pub(crate) struct Observation {
    ids: Vec<ThreadId>,
    readings: Vec<Reading>,
    /// When each of them was made, where that was not just now.
    read_at: Vec<Nanos>,
    /// Threads for much of whose time there is no account at this point.
    unclear: Vec<Stretch>,
    /// Since when there has been a thread at each point that could not be read.
    unknown_since: Option<Nanos>,
    noted_unknown: bool,
    /// Instructions of the threads; empty where none are counted.
    retired: Vec<Option<u64>>,
    rates: Rates,
    /// What the threads report of their waiting; empty where none can.
    waiting: Vec<Option<Waiting>>,
    pub(crate) phases: Phases,
    /// Phases are so short that what threads spin is taken for progress.
    pub(crate) short_phases: bool,
    looked_at_all: Nanos,
    on_cpu: Vec<OnCpu>,
}

impl Observation {
    /// Reads times, instructions and wait reports of all threads: what the agents have read, where there
    /// are such.
    pub(crate) fn read(
        &mut self,
        machine: &mut dyn Sensors,
        agents: Option<&dyn Agents>,
        threads: &mut [ManagedThread],
        now: Nanos,
    ) {
        self.ids.clear();
        self.ids.extend(threads.iter().map(|t| t.meta.id));
        // All are read now, unless agents say when they have read.
        self.read_at.clear();
        if let Some(agents) = agents {
            self.readings.clear();
            for id in &self.ids {
                let (reading, at) = agents.read(machine, *id, now);
                self.readings.push(reading);
                self.read_at.push(at);
            }
        } else {
            machine.read(&self.ids, &mut self.readings);
            self.count_instructions(machine, threads);
        }
        self.ask_the_ended(machine, threads);
        machine.waiting(&self.ids, &mut self.waiting);
        for (t, report) in threads.iter_mut().zip(&self.waiting) {
            t.account.report.update(*report);
        }
    }

    /// The threads that have ended, by their places, in order; they are no longer among the readings then.
    pub(crate) fn take_ended(&mut self) -> Vec<usize> {
        let gone = |(at, r): (usize, &Reading)| (*r == Reading::Gone).then_some(at);
        let ended: Vec<usize> = self.readings.iter().enumerate().filter_map(gone).collect();
        drop_places(&mut self.readings, &ended);
        drop_places(&mut self.read_at, &ended);
        ended
    }

    /// Asks how many instructions the threads have retired, where they are counted, and finds out how
    /// fast CPUs are from it.
    fn count_instructions(&mut self, machine: &mut dyn Sensors, threads: &mut [ManagedThread]) {
        machine.retired(&self.ids, &mut self.retired);
        if self.retired.is_empty() {
            return;
        }
        for (i, t) in threads.iter_mut().enumerate() {
            let a = &mut t.account;
            a.newly_retired = None;
            let Some(Reading::Times(times)) = self.readings.get(i) else {
                // Both are of the same period, or neither is known.
                continue;
            };
            let before = std::mem::replace(&mut a.retired, self.retired.get(i).copied().flatten());
            a.newly_retired = match (before, a.retired) {
                (Some(before), Some(now)) => now.checked_sub(before),
                _ => None,
            };
            if let (Some(newly), Some(cpu)) = (a.newly_retired, t.place.cpu)
                && times.ran > a.last.ran
                // What is retired while one spins says nothing of the CPU.
                && a.period.spinning.0 * 2 <= (a.period.ran + a.period.waited).0
            {
                self.rates.add(cpu, newly, times.ran - a.last.ran);
            }
        }
        self.rates.settle();
    }

    /// What ranks that have ended had counted in the end. Before they are dropped.
    fn ask_the_ended(&self, machine: &mut dyn Sensors, threads: &mut [ManagedThread]) {
        let ended = threads.iter_mut().zip(&self.readings).filter(|(_, r)| **r == Reading::Gone);
        let mut ended: Vec<&mut ManagedThread> = ended.map(|(t, _)| t).collect();
        if ended.is_empty() {
            return;
        }
        let ids: Vec<_> = ended.iter().map(|t| (t.meta.id, t.account.last.ran)).collect();
        let mut ranks = Vec::with_capacity(ids.len());
        if machine.ranks(&ids, &mut ranks) {
            for (t, rank) in ended.iter_mut().zip(ranks) {
                rank.into_iter().for_each(|rank| t.account.set_computed(rank.computed));
            }
        }
    }

    /// Books what the threads that were read did, on these CPUs. Returns whether any is busy, and how many
    /// could not be read.
    pub(crate) fn book(
        &mut self,
        machine: &mut dyn Sensors,
        threads: &mut [ManagedThread],
        (cpus, agents): (&[CpuView], Option<&dyn Agents>),
        placement: &mut Placement,
        (now, first): (Nanos, bool),
    ) -> (bool, usize) {
        self.unclear.clear();
        let (mut busy, mut unknown) = (false, 0);
        for (i, t) in threads.iter_mut().enumerate() {
            t.place.seen = None;
            let Some(Reading::Times(times)) = self.readings.get(i).copied() else {
                t.account.ran_on = false;
                unknown += 1;
                continue;
            };
            let on = t.place.cpu.and_then(|c| cpus.binary_search_by_key(&c, |v| v.id).ok());
            let rates = &self.rates;
            let gains = |retired: Option<u64>, ran: Nanos| {
                let by_time = || ran.scale(on.map_or(1.0, |c| cpus[c].weight()));
                retired.and_then(|k| rates.time(k)).unwrap_or_else(by_time)
            };
            let read_at = self.read_at.get(i).copied().unwrap_or(now);
            let Some(stretch) = t.account.advance(i, times, read_at, gains) else { continue };
            if (stretch.ran + stretch.waited).0 * 4 < stretch.elapsed.0 * 3 {
                self.unclear.push(stretch);
            } else {
                busy |= t.account.book(&stretch, first, self.short_phases);
            }
        }
        busy |= self.book_unclear(machine, threads, placement, (now, first));
        for t in threads {
            // Agents know on which CPU it was when.
            if let Some(progress) = agents.and_then(|d| d.progress(t.meta.id)) {
                t.account.progress = progress;
            }
        }
        (busy, unknown)
    }

    /// Books the periods of threads for much of whose time there is no account yet. Either such a
    /// thread waits for its CPU at this moment, which is booked when it gets it, or it has given its
    /// CPU up: that is to be seen in its state.
    ///
    /// A thread that was seen runnable, and has not run since, still waits: it would have to run in
    /// order to block. Where no thread has given up a CPU for a while, the others are taken to wait as
    /// well, and only some are looked at, those first that have not run for longest: they have
    /// either waited longest or blocked.
    fn book_unclear(
        &mut self,
        machine: &mut dyn Sensors,
        threads: &mut [ManagedThread],
        placement: &mut Placement,
        (now, first): (Nanos, bool),
    ) -> bool {
        let mut unclear = std::mem::take(&mut self.unclear);
        let mut unseen = threads.len().div_ceil(THREADS_PER_LOOK);
        unclear.sort_unstable_by_key(|s| std::cmp::Reverse(threads[s.index].account.not_run_for));
        let mut busy = false;
        for s in &mut unclear {
            let steady = placement.is_steady(now);
            let t = &mut threads[s.index];
            let waits = if t.account.waits {
                true
            } else if steady && unseen == 0 {
                // Not remembered: it is not known.
                true
            } else {
                unseen = unseen.saturating_sub(1);
                t.place.seen = machine.locate(t.meta.id);
                let state = t.place.seen.map(|l| l.state);
                if state == Some(RunState::Blocked) {
                    placement.gave_up_at = now;
                }
                t.account.waits = state == Some(RunState::Runnable);
                t.account.waits
            };
            if waits && (s.ran + s.waited).0 * 4 < s.elapsed.0 {
                t.account.book_ahead(s);
            }
            busy |= t.account.book(s, first, self.short_phases);
        }
        self.unclear = unclear;
        busy
    }

    /// Says once that threads cannot be read for long.
    pub(crate) fn note_of_unknown(&mut self, threads: usize, now: Nanos) -> Option<String> {
        if threads == 0 {
            self.unknown_since = None;
            return None;
        }
        let since = *self.unknown_since.get_or_insert(now);
        if now - since < UNKNOWN || std::mem::replace(&mut self.noted_unknown, true) {
            return None;
        }
        Some(format!(
            "the times of {threads} threads could not be read for {UNKNOWN}; they are balanced by \
             their last known times"
        ))
    }

    /// Counts leads from the last barrier on, where all threads report those that they reach.
    pub(crate) fn restart_leads_at_barriers(
        &mut self,
        threads: &mut [ManagedThread],
        (now, elapsed): (Nanos, Nanos),
    ) {
        if self.waiting.is_empty() {
            return;
        }
        let mut all: Vec<Participant<'_>> = Vec::with_capacity(threads.len());
        for a in threads.iter_mut().map(|t| &mut t.account) {
            let Some(report) = a.report.last() else {
                self.phases = Phases::default();
                return;
            };
            let (progress, phase) = (&mut a.progress, &mut a.phase);
            all.push(Participant { report, gained: a.gained, progress, phase });
        }
        self.phases.point(now, elapsed, &mut all);
    }

    /// Finds where threads are. A pinned thread is where it was put, and one that has kept its CPU
    /// is where it was: a thread that is moved is given a CPU anew. Those are looked at only now and
    /// then, for their page faults; the others must be looked for. Threads are `fixed` where they are
    /// pinned, and `by_agents` where agents move them.
    pub(crate) fn locate(
        &mut self,
        machine: &mut dyn Sensors,
        threads: &mut [ManagedThread],
        now: Nanos,
        (fixed, by_agents): (bool, bool),
    ) {
        let all = now - self.looked_at_all > LOOK_AT_ALL;
        if all {
            self.looked_at_all = now;
        }
        for t in threads {
            let stays = t.account.ran_on || (fixed && t.place.movable);
            if all || t.place.cpu.is_none() || !stays {
                let seen = t.place.seen.take();
                // One that an agent moved a moment ago may not have run there yet.
                let is_put = fixed && t.place.movable && by_agents;
                let put = t.place.cpu.filter(|_| is_put);
                t.found(seen.or_else(|| machine.locate(t.meta.id)));
                t.place.cpu = put.or(t.place.cpu);
            }
        }
    }

    /// Shows threads, masks and CPUs in the snapshot.
    pub(crate) fn show(
        &mut self,
        threads: &[ManagedThread],
        masks: &[Arc<CpuSet>],
        agents: Option<&dyn Agents>,
        s: &mut Snapshot,
    ) {
        let (now, elapsed) = (s.now, s.elapsed);
        s.masks.resize_with(masks.len(), Vec::new);
        for (flags, mask) in s.masks.iter_mut().zip(masks) {
            flags.clear();
            flags.extend(s.cpus.iter().map(|c| mask.contains(c.id)));
        }
        s.threads.clear();
        for t in threads {
            let (place, a) = (&t.place, &t.account);
            // A thread on a CPU outside the domain (its CPU went away, or the kernel had it
            // there) is counted nowhere until it has been brought in.
            let cpu = place
                .cpu
                .and_then(|c| s.cpus.binary_search_by_key(&c, |v| v.id).ok())
                .unwrap_or(usize::MAX);
            s.threads.push(ThreadView {
                id: t.meta.id,
                cpu,
                progress: a.progress,
                ran: a.period.ran,
                waited: a.period.waited,
                blocked: a.period.blocked,
                spinning: if self.short_phases { Nanos::ZERO } else { a.period.spinning },
                turns: a.report.turns(now).map(|turns| Turns {
                    computed: a.total.ran - a.total.spinning,
                    spun: a.total.spinning,
                    ..turns
                }),
                movable: place.movable,
                mask: place.mask,
            });
        }
        // One pass over the threads: a pass for each CPU would be threads times CPUs.
        self.on_cpu.clear();
        self.on_cpu.resize(s.cpus.len(), OnCpu::default());
        for t in &s.threads {
            if let Some(on) = self.on_cpu.get_mut(t.cpu) {
                on.add(t);
            }
        }
        for (cpu, on) in s.cpus.iter_mut().zip(&self.on_cpu) {
            cpu.threads = on.threads();
            if !self.retired.is_empty() {
                // A CPU on which nothing was counted keeps what the kernel says.
                cpu.capacity = self.rates.capacity(cpu.id).unwrap_or(cpu.capacity);
            }
            cpu.speed = on.speed(elapsed);
            if let Some(agents) = agents {
                // Threads have been on several CPUs since the last point.
                cpu.speed = agents.speed(cpu.id);
            }
        }
    }
}

/// Shows what threads are in their program; with the sizes of processes only where that is asked for.
pub(crate) fn show_tasks(
    machine: &mut dyn Sensors,
    threads: &[ManagedThread],
    sizes: bool,
    s: &mut Snapshot,
) {
    s.tasks.clear();
    s.memory.clear();
    s.links = None;
    let mut last: Option<(Pid, f64)> = None;
    for t in threads {
        let process = t.meta.pid;
        // Threads of a process mostly stand side by side.
        let process_bytes = match last {
            Some((of, bytes)) if of == process => bytes,
            _ if sizes => machine.memory_of(process).map_or(0.0, |b| b as f64),
            _ => 0.0,
        };
        last = Some((process, process_bytes));
        s.tasks.push(TaskView { process, number: t.number, process_bytes, computed: None });
    }
}

/// Shows what ranks have computed and sent, where they report it.
pub(crate) fn show_ranks(
    machine: &mut dyn Sensors,
    threads: &mut [ManagedThread],
    s: &mut Snapshot,
) {
    let ids: Vec<_> = threads.iter().map(|t| (t.meta.id, t.account.last.ran)).collect();
    let mut ranks: Vec<Option<RankActivity>> = Vec::with_capacity(ids.len());
    if !machine.ranks(&ids, &mut ranks) {
        return;
    }
    for ((task, t), rank) in s.tasks.iter_mut().zip(threads).zip(&ranks) {
        task.computed = rank.as_ref().map(|r| r.computed);
        if let Some(computed) = task.computed {
            t.account.set_computed(computed);
        }
    }
    s.links = Some(links(&ranks));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Scripted, threads};

    /// Would catch: threads that seem to stand still once agents no longer read them.
    #[test]
    fn who_takes_over_from_agents_reads_threads_as_of_now() {
        let (mut members, _) = threads(&[0, 1], 2);
        let mut observation =
            Observation { read_at: vec![Nanos::from_millis(7); 2], ..Observation::default() };
        let now = Nanos::from_millis(20);
        observation.read(&mut Scripted::default(), None, &mut members.threads, now);
        assert!(observation.read_at.is_empty());
    }
}

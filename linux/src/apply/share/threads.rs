//! More or less for a thread by how it is scheduled: nice value, slice, or class.
//!
//! Invariant: what is changed is in the journal before (promise P4); a value that the program has set
//! itself is left alone; and nothing is changed that this user could not change back. A user without
//! privileges may lower a nice value but not raise it again, unless RLIMIT_NICE says so (sched(7)): it is
//! refused then.
//!
//! # Known gaps
//! Between reading how a thread is scheduled and setting it the program may set it itself; that is
//! then overwritten. A nice value is set by a call of its own that touches nothing else.
//!
//! What a raised thread creates meanwhile gets the nice value 0 from the kernel, where the program has a higher one.
//! The guardian and `evenly restore` give it back; when the time of the raised thread is over it stays.

use super::weights::{
    Bounds, ShareError, ShareMechanism, Steps, Target, nice_of_weight, weight_of_nice,
};
use super::{ROUND_ROBIN_PRIORITY, RR_LEASE, Real};
use crate::journal::{Journal, Slot};
use crate::proc::Proc;
use crate::sched::{self, Scheduling};
use evenly_model::{Nanos, Pid, ThreadId, Tid};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// The kernel's bounds of a slice, in microseconds.
const SLICES_US: (f64, f64) = (100.0, 100_000.0);

/// What of a thread's scheduling is changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    /// Its nice value: a share.
    Nice,
    /// Its slice: for how long it runs at a stretch, but no share.
    Slice,
    /// Round robin, above all normal threads, for a time only. The most that it gets, to one of others.
    RoundRobin(f64),
}

/// The part of how a thread is scheduled that a [`Way`] changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Nice(i8),
    Slice(Nanos),
    Class(u8, u8, bool),
}

impl Way {
    /// The name of the mechanism, for messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nice => "nice",
            Self::Slice => "slice",
            Self::RoundRobin(_) => "round-robin",
        }
    }

    fn part(self, of: &Scheduling) -> Part {
        match self {
            Self::Nice => Part::Nice(of.nice),
            Self::Slice => Part::Slice(of.slice),
            _ => Part::Class(of.policy, of.priority, of.reset_on_fork),
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Nice => "nice value",
            Self::Slice => "slice",
            _ => "scheduling class",
        }
    }
}

/// What may be done to the threads of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leave {
    /// Whether the calling user may set any nice value and class.
    pub any: bool,
    /// The least nice value to which threads of the process may go back by themselves (RLIMIT_NICE).
    pub least_nice: i32,
}

impl Leave {
    /// What this user may do to the threads of this process.
    #[must_use]
    pub fn of(proc: &Proc, pid: Pid) -> Self {
        let limits = crate::proc::read_all(&proc.process_file(pid, "limits")).unwrap_or_default();
        let allowed = super::parse_nice_limit(&limits).unwrap_or(0);
        Self {
            any: super::may_all(proc),
            least_nice: 20 - i32::try_from(allowed).unwrap_or(40).min(40),
        }
    }

    /// Whether a thread with this nice value can get it back after it was lowered.
    #[must_use]
    pub fn can_undo(self, nice: i8) -> bool {
        self.any || i32::from(nice) >= self.least_nice
    }

    /// Why a lowered thread could not get its nice value back, and what would mend that.
    #[must_use]
    pub fn refusal(self, pid: Option<Pid>, nice: i8) -> String {
        let whom = pid.map_or_else(|| String::from("$$"), |p| p.to_string());
        format!(
            "a lowered nice value could not be restored: the limit RLIMIT_NICE (ulimit -e) is {}, needed is {}, or CAP_SYS_NICE; sudo prlimit --pid {whom} --nice={}",
            20 - self.least_nice,
            20 - i32::from(nice),
            20 - i32::from(nice)
        )
    }
}

#[derive(Debug)]
struct Managed {
    process: Pid,
    slot: Slot,
    original: Scheduling,
    /// What was set last; what it was found with before.
    set: Scheduling,
    left_alone: bool,
    /// Until when it is given, where that is for a time only.
    until: Option<Nanos>,
}

/// Shares by how threads are scheduled.
#[derive(Debug)]
pub struct ThreadShares {
    way: Way,
    journal: Arc<Journal>,
    proc: Proc,
    /// The slice that the kernel chooses by itself; zero where it does not report one.
    base: Nanos,
    managed: HashMap<ThreadId, Managed>,
}

impl ThreadShares {
    /// A mechanism that writes to this journal.
    #[must_use]
    pub fn new(way: Way, journal: Arc<Journal>) -> Self {
        let base = sched::base_slice().unwrap_or(Nanos::ZERO);
        Self { way, journal, proc: Proc::default(), base, managed: HashMap::new() }
    }

    /// Threads of a target, the leader of a process first.
    fn threads(&self, target: Target) -> Result<Vec<(Pid, ThreadId)>, ShareError> {
        match target {
            Target::Thread { process, id } => {
                let alive = self.proc.thread_stat(id.tid).is_some_and(|s| s.start == id.start);
                if alive { Ok(vec![(process, id)]) } else { Err(ShareError::Gone) }
            }
            Target::Process { process, start } => {
                if self.proc.process_stat(process).is_none_or(|s| s.start != start) {
                    return Err(ShareError::Gone);
                }
                let mut tids = self.proc.threads(process);
                tids.sort_unstable();
                tids.sort_by_key(|t| t.0 != process.0);
                let id = |tid: Tid| {
                    Some((process, ThreadId { tid, start: self.proc.thread_stat(tid)?.start }))
                };
                let threads: Vec<_> = tids.into_iter().filter_map(id).collect();
                if threads.is_empty() { Err(ShareError::Gone) } else { Ok(threads) }
            }
        }
    }

    /// How a thread was scheduled before evenly came, and how it is now.
    fn look(&self, process: Pid, id: ThreadId) -> Result<(Scheduling, Scheduling), ShareError> {
        let found = sched::get(id.tid).map_err(|e| self.failed(process, id, &e))?;
        if let Some(m) = self.managed.get(&id) {
            return Ok((m.original, found));
        }
        // What a thread of the same process was given is inherited by those that it creates.
        let part = self.way.part(&found);
        let creator = self.managed.iter().find(|(older, m)| {
            m.process == process
                && older.start <= id.start
                && self.way.part(&m.set) == part
                && self.way.part(&m.original) != part
        });
        Ok((creator.map_or(found, |(_, m)| with(found, self.way.part(&m.original))), found))
    }

    fn thread_bounds(&self, process: Pid, id: ThreadId) -> Result<Bounds, ShareError> {
        let (original, found) = self.look(process, id)?;
        if !original.is_fair() || original.policy == sched::IDLE {
            return Err(ShareError::Foreign { what: "scheduling class", found: found.to_string() });
        }
        let original_by_nice = weight_of_nice(i32::from(original.nice));
        match self.way {
            Way::Nice => {
                let leave = Leave::of(&self.proc, process);
                if !leave.can_undo(original.nice) {
                    let why = leave.refusal(Some(process), original.nice);
                    return Err(ShareError::Refused(why));
                }
                let least_nice = if leave.any { -20 } else { leave.least_nice };
                Ok(Bounds {
                    original: original_by_nice,
                    least: weight_of_nice(19),
                    most: weight_of_nice(least_nice),
                })
            }
            Way::Slice if self.base == Nanos::ZERO => Err(ShareError::Refused(String::from(
                "this kernel gives threads no slice of their own; Linux 6.12 or newer does",
            ))),
            Way::Slice => {
                let slice = (original.slice.0 as f64 / 1e3).clamp(SLICES_US.0, SLICES_US.1);
                Ok(Bounds { original: slice, least: SLICES_US.0, most: SLICES_US.1 })
            }
            Way::RoundRobin(most) => Ok(Bounds { original: 1.0, least: 1.0, most }),
        }
    }

    /// How a thread is to be scheduled, where its share is to be so many times that which it had.
    fn wanted(&self, original: &Scheduling, weight: f64) -> Scheduling {
        let mut to = *original;
        match self.way {
            Way::Nice => {
                let units = weight * weight_of_nice(i32::from(original.nice));
                to.nice = nice_of_weight(units) as i8;
            }
            Way::Slice => {
                let us = (original.slice.0 as f64 / 1e3 * weight).clamp(SLICES_US.0, SLICES_US.1);
                // As it was where that is what is wanted: rounding would make it another.
                if (weight - 1.0).abs() > 1e-3 {
                    to.slice = Nanos((us * 1e3) as u64);
                }
            }
            Way::RoundRobin(_) if weight > 1.0 => {
                to.policy = sched::ROUND_ROBIN;
                to.priority = ROUND_ROBIN_PRIORITY;
                // Its children are not to be above others as well.
                to.reset_on_fork = true;
            }
            Way::RoundRobin(_) => {}
        }
        to
    }

    fn change(&mut self, process: Pid, id: ThreadId, to: &Scheduling) -> Result<(), ShareError> {
        let way = self.way;
        let (original, found) = self.look(process, id)?;
        let (part, wanted) = (way.part(&found), way.part(to));
        if !self.managed.contains_key(&id) {
            if part == wanted {
                return Ok(());
            }
            let mut slot = self
                .journal
                .register_scheduling(id, process, &original)
                .map_err(|e| ShareError::Refused(e.to_string()))?;
            if part != way.part(&original) {
                self.journal.about_to_schedule(&mut slot, &found);
            }
            let m = Managed { process, slot, original, set: found, left_alone: false, until: None };
            self.managed.insert(id, m);
        }
        let base = self.base;
        let m = self.managed.get_mut(&id).ok_or(ShareError::Gone)?;
        if m.left_alone || (part != way.part(&m.set) && part != way.part(&m.original)) {
            m.left_alone = true;
            self.journal.leave_alone(&mut m.slot);
            return Err(ShareError::Foreign { what: way.what(), found: found.to_string() });
        }
        if part != wanted {
            let next = with(found, wanted);
            self.journal.about_to_schedule(&mut m.slot, &next);
            if let Err(e) = sched::change(id.tid, &found, &next, base) {
                self.journal.not_set(&mut m.slot);
                return Err(self.failed(process, id, &e));
            }
            m.set = next;
        }
        m.until = matches!(wanted, Part::Class(sched::ROUND_ROBIN, ..))
            .then(|| crate::clock::now() + RR_LEASE);
        Ok(())
    }

    fn undo(&mut self, id: ThreadId) -> Result<(), ShareError> {
        let Some(m) = self.managed.get(&id) else { return Ok(()) };
        let (process, original, left_alone) = (m.process, m.original, m.left_alone);
        let alive = self.proc.thread_stat(id.tid).is_some_and(|s| s.start == id.start);
        if alive && !left_alone {
            match self.change(process, id, &original) {
                Ok(()) | Err(ShareError::Gone | ShareError::Foreign { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        if let Some(m) = self.managed.remove(&id) {
            self.journal.forget(m.slot);
        }
        Ok(())
    }

    fn failed(&self, process: Pid, id: ThreadId, e: &io::Error) -> ShareError {
        match e.raw_os_error() {
            Some(libc::ESRCH) => ShareError::Gone,
            Some(libc::EPERM | libc::EACCES) => ShareError::Refused(format!(
                "{} of thread {id} of process {process} may not be changed: {e}; run evenly as the user of the process, or as root",
                self.way.what()
            )),
            _ => ShareError::Refused(format!(
                "the kernel refuses to change the {} of thread {id}: {e}",
                self.way.what()
            )),
        }
    }
}

/// One way of scheduling with a part of another.
fn with(mut of: Scheduling, part: Part) -> Scheduling {
    match part {
        Part::Nice(nice) => of.nice = nice,
        Part::Slice(slice) => of.slice = slice,
        Part::Class(policy, priority, reset) => {
            (of.policy, of.priority, of.reset_on_fork) = (policy, priority, reset);
        }
    }
    of
}

impl ShareMechanism for ThreadShares {
    fn name(&self) -> &'static str {
        self.way.name()
    }

    fn steps(&self) -> Steps {
        match self.way {
            Way::Nice => Steps::nice(),
            Way::Slice => Steps::Whole(SLICES_US.0, SLICES_US.1),
            Way::RoundRobin(most) => Steps::Table(vec![1.0, most]),
        }
    }

    /// Of a process: the bounds of its first thread, narrowed so that every thread can follow.
    fn bounds(&mut self, target: Target) -> Result<Bounds, ShareError> {
        let mut all: Option<Bounds> = None;
        for (process, id) in self.threads(target)? {
            match (self.thread_bounds(process, id), &mut all) {
                (Ok(b), None) => all = Some(b),
                (Ok(b), Some(a)) => {
                    a.least = a.least.max(b.least / b.original * a.original);
                    a.most = a.most.min(b.most / b.original * a.original).max(a.least);
                }
                // A thread of its own class does not keep the others from being given anything.
                (Err(ShareError::Gone | ShareError::Foreign { .. }), Some(_)) => {}
                (Err(e), _) => return Err(e),
            }
        }
        all.ok_or(ShareError::Gone)
    }

    fn give(&mut self, target: Target, units: f64) -> Result<f64, ShareError> {
        let weight = units / self.bounds(target)?.original;
        if let Way::RoundRobin(_) = self.way
            && weight > 1.0
        {
            // It may have been switched off since.
            super::realtime_share(&Real::default()).map_err(ShareError::Refused)?;
        }
        let mut first = None;
        for (process, id) in self.threads(target)? {
            let (original, _) = match self.look(process, id) {
                Err(ShareError::Gone) => continue,
                other => other?,
            };
            let to = self.wanted(&original, weight);
            match self.change(process, id, &to) {
                Ok(()) => {
                    first.get_or_insert(match self.way {
                        Way::Nice => weight_of_nice(i32::from(to.nice)),
                        Way::Slice => to.slice.0 as f64 / 1e3,
                        _ => units,
                    });
                }
                Err(ShareError::Gone) => {}
                Err(ShareError::Foreign { .. }) if first.is_some() => {}
                Err(e) => return Err(e),
            }
        }
        first.ok_or(ShareError::Gone)
    }

    fn restore(&mut self, target: Target) -> Result<(), ShareError> {
        let of_entity: Vec<ThreadId> = match target {
            Target::Thread { id, .. } => vec![id],
            // Those that were created since have inherited what their creators had.
            Target::Process { process, .. } => {
                if let Ok(threads) = self.threads(target) {
                    for (process, id) in threads {
                        let Ok((original, found)) = self.look(process, id) else { continue };
                        if !self.managed.contains_key(&id) && original != found {
                            self.change(process, id, &original)?;
                        }
                    }
                }
                let of_it = self.managed.iter().filter(|(_, m)| m.process == process);
                of_it.map(|(id, _)| *id).collect()
            }
        };
        let mut result = Ok(());
        for id in of_entity {
            result = result.and(self.undo(id));
        }
        result
    }

    fn tick(&mut self, now: Nanos) {
        let over: Vec<ThreadId> = self
            .managed
            .iter()
            .filter(|(_, m)| m.until.is_some_and(|until| now >= until))
            .map(|(id, _)| *id)
            .collect();
        for id in over {
            // Where it fails the record stays, and the guardian tries again.
            let _ = self.undo(id);
        }
    }
}

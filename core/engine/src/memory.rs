//! Where processes have their memory, and memory that is on its way, for policies that place threads by load.

use crate::actuate::{Action, go_on_moving, perform};
use crate::managed::ManagedThread;
use crate::notes::Notes;
use crate::{Machine, MemoryMoved, MemoryUnknown, Observer, Sensors};
use evenly_model::{Knowledge, MemoryMove, MemoryView, Nanos, Pid, Plan, Snapshot};
use std::collections::{BTreeSet, VecDeque};

/// The part of a CPU that it may take to find out where processes have their memory, over any time
/// but the beginning.
const LOOKS: f64 = 0.001;
/// At one point no further process is looked at after this: a process with much memory takes
/// milliseconds.
const LOOKS_AT_ONCE: Nanos = Nanos::from_millis(5);

/// Which processes are looked at, and when; and what is on its way.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// Those that are to be, in this order.
    due: VecDeque<Pid>,
    /// Those that are or have been.
    known: BTreeSet<Pid>,
    /// When all of them may be again.
    again: Nanos,
    /// One that cannot be read has been reported.
    noted_unreadable: bool,
    /// Memory that is on its way.
    moving: Vec<MemoryMove>,
}

impl Memory {
    /// All of these are due if it is time; else those that are new.
    fn begin(&mut self, here: &BTreeSet<Pid>, now: Nanos) {
        self.known.retain(|p| here.contains(p));
        if self.due.is_empty() && now >= self.again {
            self.known.clear();
        }
        self.due.retain(|p| here.contains(p));
        for &process in here {
            if self.known.insert(process) {
                self.due.push_back(process);
            }
        }
    }

    /// Where processes have their memory, as far as that may be looked at now.
    pub(crate) fn look(
        &mut self,
        machine: &mut dyn Sensors,
        knowledge: &Knowledge,
        threads: &[ManagedThread],
        snapshot: &mut Snapshot,
        notes: &mut Notes,
        observers: &mut [Box<dyn Observer>],
    ) {
        if knowledge.nodes.len() <= 1 {
            return;
        }
        let now = snapshot.now;
        let here: BTreeSet<Pid> = threads.iter().map(|t| t.meta.pid).collect();
        self.begin(&here, now);
        let before = machine.own_cpu_time();
        let mut spent = Nanos::ZERO;
        while spent < LOOKS_AT_ONCE
            && let Some(process) = self.due.pop_front()
        {
            // What is on its way is neither here nor there.
            if self.moving.iter().any(|m| m.process == process) {
                continue;
            }
            match machine.memory_on_nodes(process) {
                Ok(found) => {
                    let mut view = MemoryView {
                        process,
                        on: vec![0.0; knowledge.nodes.len()],
                        elsewhere: 0.0,
                    };
                    for (number, bytes) in found {
                        let at = knowledge.nodes.iter().position(|(n, _)| *n == number);
                        *at.map_or(&mut view.elsewhere, |at| &mut view.on[at]) += bytes as f64;
                    }
                    snapshot.memory.push(view);
                }
                Err(MemoryUnknown::Gone) => {}
                Err(MemoryUnknown::Unreadable(why)) => {
                    if !std::mem::replace(&mut self.noted_unreadable, true) {
                        let text = format!(
                            "memory of process {process}, and of others of which it is as little \
                             known, is taken to be where it was first seen computing: {why}"
                        );
                        notes.note(now, text, observers);
                    }
                }
            }
            spent = machine.own_cpu_time() - before;
        }
        self.again = self.again.max(now) + spent.scale(1.0 / LOOKS);
    }

    /// Begins to move the memory that is in the plan, and goes on with what is on its way. What stays where
    /// it is comes with the next snapshot.
    pub(crate) fn move_on(
        &mut self,
        machine: &mut dyn Machine,
        knowledge: &Knowledge,
        plan: &mut Plan,
        snapshot: &mut Snapshot,
        notes: &mut Notes,
        observers: &mut [Box<dyn Observer>],
    ) {
        let number = |node: usize| knowledge.nodes.get(node).map_or(0, |(number, _)| *number);
        for m in plan.memory.drain(..) {
            let (process, from, to) = (m.process, number(m.from), number(m.to));
            if perform(machine, &Action::MoveMemory { process, from, to }).is_ok() {
                self.moving.push(m);
            } else {
                snapshot.stayed.push(m);
            }
        }
        if self.moving.is_empty() {
            return;
        }
        let Some(done) = go_on_moving(machine) else { return };
        let of = |m: &MemoryMove| {
            (m.process, number(m.from), number(m.to)) == (done.pid, done.from, done.to)
        };
        if let Some(at) = self.moving.iter().position(of) {
            let planned = self.moving.remove(at);
            if done.bytes < done.stayed || done.error.is_some() {
                snapshot.stayed.push(planned);
            }
        }
        notes.note(snapshot.now, text(&done), observers);
    }
}

fn text(done: &MemoryMoved) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut text = format!(
        "memory of process {} moved from node {} to node {}: {:.1} MiB",
        done.pid,
        done.from,
        done.to,
        mib(done.bytes)
    );
    if done.stayed > 0 {
        text.push_str(&format!(", {:.1} MiB stayed", mib(done.stayed)));
    }
    if let Some(error) = &done.error {
        text.push_str(&format!("; then: {error}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Scripted, cpus, threads};

    #[test]
    fn memory_that_cannot_be_read_is_reported_once() {
        let (members, mut s) = threads(&[0, 1], 2);
        let knowledge = Knowledge::even(vec![(0, cpus("0")), (1, cpus("1"))], 2.0);
        let (mut memory, mut notes) = (Memory::default(), Notes::new(Nanos::ZERO));
        let mut machine = Scripted::default();
        for second in 0..3 {
            s.now = Nanos::from_millis(1_000 * second);
            let threads = &members.threads;
            memory.look(&mut machine, &knowledge, threads, &mut s, &mut notes, &mut []);
        }
        let [text] = notes.kept() else { panic!("{:?}", notes.kept()) };
        assert!(
            text.ends_with("this machine does not report it") && !text.contains("  "),
            "{text}"
        );
        assert!(s.memory.is_empty());
    }
}

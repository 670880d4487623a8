//! A simulated machine that writes down what is asked of it, and on which things go wrong.

use evenly_engine::{
    Actuator, ApplyError, Located, MemoryMoved, MemoryUnknown, Neighbour, RankActivity, Reader,
    Reading, Sensors, Tally, Times, Waiting, Wanted,
};
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId};
use evenly_sim::Sim;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};

/// From a moment until another.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span(pub(crate) Nanos, pub(crate) Nanos);

impl Span {
    fn has(self, now: Nanos) -> bool {
        self.0 <= now && now < self.1
    }
}

/// What goes wrong, and what the machine reports. Threads by their numbers in the scenario.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    /// The program sets the thread's mask.
    pub(crate) foreign: Vec<(usize, Span)>,
    pub(crate) refused: Vec<(usize, Span)>,
    /// It has ended when it is to be moved, and not yet when it is read.
    pub(crate) ends: Vec<(usize, Span)>,
    /// The cpuset lacks the CPU.
    pub(crate) without: Vec<(CpuId, Span)>,
    pub(crate) unreadable: Vec<(usize, Span)>,
    /// It has become another program, with other counters.
    pub(crate) exec: Vec<(usize, Nanos)>,
    /// Threads with masks of ours have less than they seem to: a fifth of the time.
    pub(crate) harmed: bool,
    /// Another balancer on this CPU.
    pub(crate) neighbour: Option<(CpuId, bool, Span)>,
    pub(crate) kept: Vec<usize>,
    pub(crate) weight_refused: Vec<usize>,
    pub(crate) weights_last: Option<Nanos>,
    pub(crate) memory_refused: bool,
    pub(crate) memory_stays: bool,
    pub(crate) ranks: bool,
}

/// A simulated machine, with a record of all calls made to it.
pub(crate) struct Recorded {
    pub(crate) sim: Sim,
    pub(crate) conditions: Conditions,
    pub(crate) calls: String,
    pub(crate) kinds: BTreeMap<&'static str, usize>,
    /// What was taken from the readings of each thread, and shown of it last.
    stolen: BTreeMap<ThreadId, (Nanos, Times)>,
    /// Counters when the thread became another program.
    replaced: BTreeMap<usize, Times>,
    holds: bool,
    stole_at: Nanos,
    memory: u64,
    went_on: u64,
}

/// Without the names of structures: what is recorded is not to depend on them.
pub(crate) fn nameless(text: &str) -> String {
    let mut parts: Vec<&str> = text.split(" {").collect();
    let last = parts.pop().unwrap_or_default();
    let is_name = |c: char| c.is_ascii_alphanumeric();
    parts.iter().map(|p| format!("{} {{", p.trim_end_matches(is_name))).collect::<String>() + last
}

fn number(id: ThreadId) -> usize {
    (id.tid.0 - 1000) as usize
}

impl Recorded {
    pub(crate) fn new(sim: Sim, conditions: Conditions) -> Self {
        Self {
            sim,
            conditions,
            calls: String::new(),
            kinds: BTreeMap::new(),
            stolen: BTreeMap::new(),
            replaced: BTreeMap::new(),
            holds: false,
            stole_at: Nanos::ZERO,
            memory: 0,
            went_on: 0,
        }
    }

    fn count(&mut self, kind: &'static str) {
        *self.kinds.entry(kind).or_default() += 1;
    }

    fn note(&mut self, kind: &'static str, asked: impl Debug, found: impl Debug) {
        self.count(kind);
        let now = self.sim.now().0;
        let text = nameless(&format!("{now} {kind} {asked:.6?} -> {found:.6?}"));
        writeln!(self.calls, "{text}").unwrap();
    }

    fn is(&self, which: &[(usize, Span)], id: ThreadId) -> bool {
        which.iter().any(|(t, span)| *t == number(id) && span.has(self.sim.now()))
    }

    fn without(&self) -> CpuSet {
        let now = self.sim.now();
        let gone = self.conditions.without.iter().filter(|(_, span)| span.has(now));
        gone.map(|(cpu, _)| *cpu).collect()
    }

    /// Why the mask cannot be set, if it cannot.
    fn fails(&self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        let c = &self.conditions;
        if self.is(&c.ends, id) {
            return Err(ApplyError::Gone);
        }
        if self.is(&c.foreign, id) {
            return Err(ApplyError::Foreign { found: CpuSet::single(CpuId(0)) });
        }
        if self.is(&c.refused, id) {
            return Err(ApplyError::Refused(String::from("the system does not want to")));
        }
        if mask.minus(&self.without()).is_empty() {
            return Err(ApplyError::Unusable { wanted: mask.clone() });
        }
        Ok(())
    }

    fn shown(&mut self, id: ThreadId, reading: Reading) -> Reading {
        if self.is(&self.conditions.unreadable, id) {
            return Reading::Unknown;
        }
        let Reading::Times(mut times) = reading else { return reading };
        let now = self.sim.now();
        if self.conditions.exec.iter().any(|(t, at)| *t == number(id) && *at <= now) {
            let before = *self.replaced.entry(number(id)).or_insert(times);
            times.ran = times.ran - before.ran;
            times.waited = times.waited - before.waited;
            times.slices -= before.slices;
        }
        if self.conditions.harmed {
            let (taken, before) = self.stolen.entry(id).or_default();
            times.ran = (times.ran - *taken).max(before.ran);
            *before = times;
        }
        Reading::Times(times)
    }

    /// Takes a fifth of the time since the last point off the CPU time shown. Call before each point.
    pub(crate) fn steal(&mut self) {
        let now = self.sim.now();
        if self.conditions.harmed && self.holds {
            let fifth = (now - self.stole_at).scale(0.2);
            self.stolen.values_mut().for_each(|(taken, _)| *taken += fifth);
        }
        self.stole_at = now;
    }

    fn acted(&mut self, holds: bool) {
        self.holds = holds;
    }
}

fn kind_of<T>(result: &Result<T, ApplyError>, kinds: [&'static str; 5]) -> &'static str {
    match result {
        Ok(_) => kinds[0],
        Err(ApplyError::Gone) => kinds[1],
        Err(ApplyError::Foreign { .. }) => kinds[2],
        Err(ApplyError::Unusable { .. }) => kinds[3],
        Err(ApplyError::Refused(_)) => kinds[4],
    }
}

impl Reader for Recorded {
    fn now(&self) -> Nanos {
        self.sim.now()
    }

    fn own_cpu_time(&self) -> Nanos {
        self.sim.own_cpu_time()
    }

    fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
        self.sim.read(ids, out);
        for (id, reading) in ids.iter().zip(out.iter_mut()) {
            *reading = self.shown(*id, *reading);
        }
        if out.contains(&Reading::Gone) {
            self.count("?read gone");
        }
        if out.contains(&Reading::Unknown) {
            self.count("?read unknown");
        }
        self.note("?read", ids, out);
    }

    fn read_one(&mut self, id: ThreadId) -> Reading {
        let reading = self.sim.read_one(id);
        let reading = self.shown(id, reading);
        let kind = match reading {
            Reading::Times(_) => "?times",
            Reading::Gone => "?times gone",
            Reading::Unknown => "?times unknown",
        };
        self.note(kind, id, reading);
        reading
    }

    fn locate(&mut self, id: ThreadId) -> Option<Located> {
        let located = self.sim.locate(id);
        self.note("?locate", id, located);
        located
    }

    fn resolution(&self) -> Nanos {
        self.sim.resolution()
    }
}

impl Sensors for Recorded {
    fn usable(&mut self, within: &CpuSet) -> CpuSet {
        let usable = self.sim.usable(within).minus(&self.without());
        self.note("?usable", within, &usable);
        usable
    }

    fn original_mask(&mut self, id: ThreadId) -> Option<CpuSet> {
        let mask = self.sim.original_mask(id);
        self.note("?mask", id, &mask);
        mask
    }

    fn neighbours(&mut self) -> Vec<Neighbour> {
        let now = self.sim.now();
        let there = self.conditions.neighbour.filter(|(.., span)| span.has(now));
        let all: Vec<Neighbour> = there
            .into_iter()
            .map(|(cpu, was_first, _)| Neighbour {
                pid: Pid(77),
                threads: vec![(cpu, 2)],
                was_first,
            })
            .collect();
        self.note(if all.is_empty() { "?neighbours" } else { "?neighbours some" }, (), &all);
        all
    }

    fn retired(&mut self, ids: &[ThreadId], out: &mut Vec<Option<u64>>) {
        self.sim.retired(ids, out);
        self.note("?retired", ids, out);
    }

    fn waiting(&mut self, ids: &[ThreadId], out: &mut Vec<Option<Waiting>>) {
        self.sim.waiting(ids, out);
        // The tracker asks in no order.
        let mut found: Vec<_> = ids.iter().zip(out.iter()).collect();
        found.sort_by_key(|(id, _)| **id);
        self.note("?waiting", ids.len(), found);
    }

    fn weighs_by(&self) -> Option<&'static str> {
        Some("by what is simulated")
    }

    fn weighs_for(&self) -> Option<Nanos> {
        self.conditions.weights_last
    }

    fn memory_of(&mut self, pid: Pid) -> Option<u64> {
        let bytes = self.sim.memory_of(pid);
        self.note("?process", pid, bytes);
        bytes
    }

    fn memory_on_nodes(&mut self, pid: Pid) -> Result<Vec<(u32, u64)>, MemoryUnknown> {
        let found = self.sim.memory_on_nodes(pid);
        self.note(if found.is_ok() { "?memory" } else { "?memory unknown" }, pid, &found);
        found
    }

    fn ranks(
        &mut self,
        threads: &[(ThreadId, Nanos)],
        out: &mut Vec<Option<RankActivity>>,
    ) -> bool {
        if !self.conditions.ranks {
            self.note("?ranks none", threads, ());
            return false;
        }
        let ranks = self.sim.threads() as u64;
        // Each sends to the one after the next.
        out.extend(threads.iter().map(|(id, ran)| {
            let rank = number(*id) as u64;
            let messages = ran.0 / 1_000_000;
            let tally = Tally { with: (rank + 2) % ranks, messages, bytes: 4096 * messages };
            let computed = ran.scale(if rank.is_multiple_of(2) { 0.5 } else { 1.0 });
            Some(RankActivity { rank, ranks, computed, sent: vec![tally], fetched: Vec::new() })
        }));
        self.note("?ranks", threads, out);
        true
    }

    fn capacity(&self, cpu: CpuId) -> u32 {
        self.sim.capacity(cpu)
    }
}

impl Actuator for Recorded {
    fn place(&mut self, id: ThreadId, cpu: CpuId, to: Option<&CpuSet>) -> Result<(), ApplyError> {
        let result =
            self.fails(id, &CpuSet::single(cpu)).and_then(|()| self.sim.place(id, cpu, to));
        let kinds = ["place", "place gone", "place foreign", "place unusable", "place refused"];
        self.acted(true);
        self.note(kind_of(&result, kinds), (id, cpu, to), &result);
        result
    }

    fn confine(&mut self, id: ThreadId, mask: &CpuSet) -> Result<(), ApplyError> {
        let result = self.fails(id, mask).and_then(|()| self.sim.confine(id, mask));
        let kinds =
            ["confine", "confine gone", "confine foreign", "confine unusable", "confine refused"];
        self.acted(false);
        self.note(kind_of(&result, kinds), (id, mask), &result);
        result
    }

    fn restore(&mut self, id: ThreadId) {
        self.sim.restore(id);
        self.note("restore", id, ());
    }

    fn release(&mut self, id: ThreadId) -> bool {
        let released = !self.conditions.kept.contains(&number(id));
        if released {
            self.sim.restore(id);
        }
        self.note(if released { "release" } else { "release, no" }, id, released);
        released
    }

    fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ApplyError>> {
        let given: Vec<Result<f64, ApplyError>> = wanted
            .iter()
            .map(|w| {
                if self.conditions.weight_refused.contains(&number(w.thread)) {
                    return Err(ApplyError::Refused(String::from("weights are not given")));
                }
                self.sim.weigh(std::slice::from_ref(w)).remove(0)
            })
            .collect();
        if given.iter().any(Result::is_err) {
            self.count("weigh refused");
        }
        self.note("weigh", wanted, &given);
        given
    }

    fn unweigh(&mut self, process: Pid, thread: ThreadId) {
        self.sim.unweigh(process, thread);
        self.note("unweigh", (process, thread), ());
    }

    fn move_memory(&mut self, pid: Pid, from: u32, to: u32) -> bool {
        self.memory += 1;
        let moves = !(self.conditions.memory_refused && self.memory % 2 == 1)
            && self.sim.move_memory(pid, from, to);
        self.note(if moves { "move memory" } else { "move memory, no" }, (pid, from, to), moves);
        moves
    }

    fn go_on_moving(&mut self) -> Option<MemoryMoved> {
        // Not at the first time of each.
        self.went_on += 1;
        let mut moved = self.went_on.is_multiple_of(2).then(|| self.sim.go_on_moving()).flatten();
        if let Some(m) = moved.as_mut().filter(|_| self.conditions.memory_stays) {
            (m.stayed, m.bytes) = (m.bytes, m.bytes / 4);
            m.error = (m.stayed % 3 == 0).then(|| String::from("no room"));
        }
        self.note(if moved.is_some() { "go on" } else { "go on, nothing" }, (), &moved);
        moved
    }
}

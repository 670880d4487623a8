//! One instance of a loop: each processor takes tasks until there are none, in the order of time.

use super::cluster::Cluster;
use super::cpu::Cpu;
use super::pages::{Access, Pages};
use super::program::{LoopProgram, ParallelLoop, Updates};
use evenly_iterations::{HandsOut, Measured, Plan, Section, Sizes, Use, weight};
use evenly_model::Nanos;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::ops::Range;

/// The processors, the pages and the wires of a cluster, at present.
#[derive(Debug)]
pub(super) struct Machine<'c> {
    pub(super) cluster: &'c Cluster,
    pub(super) cpus: Vec<Cpu>,
    pages: Pages,
    /// When each node has sent what it was asked for.
    wires: Vec<u64>,
    pub(super) transfers: u64,
    pub(super) diffs: u64,
    pub(super) messages: u64,
}

impl<'c> Machine<'c> {
    pub(super) fn new(cluster: &'c Cluster, program: &LoopProgram, seed: u64) -> Self {
        let nodes = cluster.memory.nodes.iter().max().map_or(1, |last| last + 1);
        let cpu =
            |p: usize| Cpu::new(cluster, p, seed.wrapping_mul(0x10_0001).wrapping_add(p as u64));
        Self {
            cluster,
            cpus: (0..cluster.memory.processors()).map(cpu).collect(),
            pages: Pages::new(&program.arrays, cluster.memory.unit_bytes.max(1), nodes),
            wires: vec![0; nodes],
            transfers: 0,
            diffs: 0,
            messages: 0,
        }
    }

    fn node(&self, processor: usize) -> usize {
        self.cluster.memory.nodes[processor]
    }

    pub(super) fn nodes(&self) -> usize {
        self.wires.len()
    }

    /// The processor has what it waited for at `at`, or when it is the program's again.
    fn access(&mut self, processor: usize, at: u64, access: Access) -> u64 {
        let mut at = at;
        if let Some(from) = access.fetched_from {
            let costs = &self.cluster.costs;
            let begin = at.max(self.wires[from]);
            self.wires[from] = begin + costs.wire.0;
            at = self.cpus[processor].on(begin + self.cluster.memory.fetch.0);
            self.transfers += 1;
            self.messages += 2;
        }
        if access.twin {
            at = self.cpus[processor].computes(at, self.cluster.costs.twin.0);
        }
        at
    }

    /// A word for another node and back.
    fn round_trip(&mut self, processor: usize, at: u64) -> u64 {
        if self.nodes() < 2 {
            return at;
        }
        self.messages += 2;
        self.cpus[processor].on(at + 2 * self.cluster.costs.message.0)
    }

    /// A barrier at which all have arrived at `at`: when they go on, if they are not kept.
    pub(super) fn barrier(&mut self, at: u64) -> u64 {
        self.pages.barrier();
        self.messages += 2 * (self.nodes() as u64 - 1);
        at + self.cluster.costs.barrier.0
    }
}

/// What a processor does in an instance.
#[derive(Debug, Clone, Default)]
struct Lane {
    own: VecDeque<usize>,
    /// The first of its iterations.
    first: Option<u64>,
    iterations: u64,
    had: bool,
    stolen: bool,
    /// It has found no more tasks then.
    finish: u64,
    twins: u64,
    /// Pages that it still needs before it computes, the last one first, and for how long it does then.
    needs: Vec<(usize, Use)>,
    computes: Option<u64>,
    /// Elements that it has still to write under their locks, and the next one.
    updates: Option<(u64, u64)>,
}

/// Who has a lock, or had it last.
#[derive(Debug, Clone, Copy, Default)]
struct Lock {
    free_at: u64,
    node: Option<usize>,
}

/// Iterations and time of each processor in all instances, for policies that weigh by it.
pub(super) type Done = [(u64, u64)];

/// What came of an instance.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) measured: Vec<Measured>,
    pub(super) carried_out: Option<Vec<usize>>,
    /// When each came to the barrier.
    pub(super) arrived: Vec<u64>,
}

/// An instance that is carried out.
#[derive(Debug)]
pub(super) struct Instance<'a, 'c> {
    machine: &'a mut Machine<'c>,
    of: &'a ParallelLoop,
    plan: &'a Plan,
    /// What it uses, by its iterations counted from 0.
    sections: Vec<(Section, i128)>,
    everywhere: Vec<(usize, Range<u64>)>,
    work_ns: f64,
    lanes: Vec<Lane>,
    /// Nodes that have what all need.
    provided: Vec<bool>,
    locks: Vec<Lock>,
    carried_out: Vec<usize>,
    taken: u32,
    done: &'a Done,
}

impl<'a, 'c> Instance<'a, 'c> {
    pub(super) fn new(
        machine: &'a mut Machine<'c>,
        of: &'a ParallelLoop,
        step: u64,
        plan: &'a Plan,
        done: &'a Done,
    ) -> Self {
        let bounds = of.bounds(step);
        let sections = of.region.sections.iter().map(|s| bounds.section(s));
        let moved = |e: &super::Everywhere| {
            let by = e.moves.saturating_mul(step);
            (e.array.0 as usize, e.bytes.start + by..e.bytes.end + by)
        };
        let mut lanes = vec![Lane::default(); machine.cpus.len()];
        for (task, &p) in plan.owners().iter().enumerate() {
            lanes[p].own.push_back(task);
            lanes[p].had = true;
        }
        let elements = if of.updates.is_some() { plan.tasks.iterations() as usize } else { 0 };
        Self {
            sections: merged(sections),
            everywhere: of.everywhere.iter().map(moved).collect(),
            work_ns: of.work_ns(step),
            provided: vec![false; machine.nodes()],
            locks: vec![Lock::default(); elements],
            done,
            machine,
            of,
            plan,
            lanes,
            carried_out: plan.owners().to_vec(),
            taken: 0,
        }
    }

    /// Carries it out, from the release on.
    pub(super) fn carry_out(mut self, release: u64) -> Ended {
        let mut turns = BinaryHeap::new();
        for p in 0..self.lanes.len() {
            turns.push(Reverse((self.machine.cpus[p].on(release), p)));
        }
        let mut arrived = vec![release; self.lanes.len()];
        while let Some(Reverse((at, p))) = turns.pop() {
            match self.next(p, at) {
                Some(then) => turns.push(Reverse((then, p))),
                None => arrived[p] = self.flush(p, at),
            }
        }
        let measured = |lane: &Lane| {
            let time = lane.finish.saturating_sub(release).max(1);
            let time = if lane.iterations > 0 || lane.had { Nanos(time) } else { Nanos::ZERO };
            Measured { time, iterations: lane.iterations }
        };
        let stolen = self.lanes.iter().any(|lane| lane.stolen);
        Ended {
            measured: self.lanes.iter().map(measured).collect(),
            carried_out: stolen.then_some(self.carried_out),
            arrived,
        }
    }

    /// What a processor does next, from `at` on, and when it is done with it; None at the end. Each page is fetched by itself, as
    /// others use the same wires meanwhile.
    fn next(&mut self, p: usize, at: u64) -> Option<u64> {
        if let Some((left, next)) = self.lanes[p].updates {
            return self.update(p, at, left, next);
        }
        let node = self.machine.node(p);
        while let Some((page, used)) = self.lanes[p].needs.pop() {
            let access = match used {
                Use::Reads => self.machine.pages.read(page, node),
                Use::Writes => self.machine.pages.write(page, node),
            };
            self.lanes[p].twins += u64::from(access.twin);
            if access != Access::default() {
                return Some(self.machine.access(p, at, access));
            }
        }
        if let Some(work) = self.lanes[p].computes.take() {
            return Some(self.machine.cpus[p].computes(at, work));
        }
        let (at, iterations) = self.take(p, at);
        if let Some(iterations) = iterations {
            self.begin(p, iterations);
            return Some(at);
        }
        let all = self.plan.tasks.iterations();
        let lane = &mut self.lanes[p];
        lane.finish = at;
        let first = lane.first.filter(|_| self.of.updates.is_some())?;
        let updates = ((all / 2 + lane.iterations).min(all), first);
        lane.updates = Some(updates);
        self.update(p, at, updates.0, updates.1)
    }

    /// Iterations that are the processor's from now on.
    fn take(&mut self, p: usize, at: u64) -> (u64, Option<Range<u64>>) {
        let bounds = |task: usize| self.plan.tasks.bounds(task);
        match &self.plan.hands_out {
            HandsOut::Owned { steals, .. } => {
                if let Some(task) = self.lanes[p].own.pop_front() {
                    return (at, Some(bounds(task)));
                }
                let node = self.machine.node(p);
                let beside = |&other: &usize| self.machine.node(other) == node;
                let victim = (0..self.lanes.len())
                    .filter(|_| *steals)
                    .filter(beside)
                    .max_by_key(|&other| (self.lanes[other].own.len(), Reverse(other)));
                let Some(task) = victim.and_then(|other| self.lanes[other].own.pop_back()) else {
                    return (at, None);
                };
                self.carried_out[task] = p;
                self.lanes[p].stolen = true;
                (at, Some(bounds(task)))
            }
            HandsOut::Next(chunks) => {
                let weight = match chunks.sizes {
                    Sizes::Weighted => weight(self.done.iter().copied(), p),
                    Sizes::Guided | Sizes::Factoring => 1.0,
                };
                let more = chunks.size(self.taken, weight);
                let first = self.taken;
                self.taken += more;
                let at = self.machine.round_trip(p, at);
                if more == 0 {
                    return (at, None);
                }
                (at, Some(self.plan.tasks.between(first as usize, (first + more) as usize)))
            }
        }
    }

    /// The processor is to carry these iterations out.
    fn begin(&mut self, p: usize, iterations: Range<u64>) {
        let node = self.machine.node(p);
        let mut needs = std::mem::take(&mut self.lanes[p].needs);
        for (section, more) in self.sections.iter().rev() {
            let bytes = section.bytes(&iterations);
            let [start, end] =
                [bytes.start, bytes.end + more].map(|b| u64::try_from(b).unwrap_or(0));
            let pages = self.machine.pages.of(section.array.0 as usize, start..end);
            needs.extend(pages.rev().map(|page| (page, section.used)));
        }
        if !std::mem::replace(&mut self.provided[node], true) {
            for (array, bytes) in self.everywhere.iter().rev() {
                let pages = self.machine.pages.of(*array, bytes.clone());
                needs.extend(pages.rev().map(|page| (page, Use::Reads)));
            }
        }
        let count = iterations.end - iterations.start;
        let lane = &mut self.lanes[p];
        lane.needs = needs;
        lane.computes = Some((self.work_ns * count as f64) as u64);
        lane.iterations += count;
        lane.first = Some(lane.first.map_or(iterations.start, |first| first.min(iterations.start)));
    }

    /// When the processor has written the next element, under its lock.
    fn update(&mut self, p: usize, at: u64, left: u64, next: u64) -> Option<u64> {
        let updates = self.of.updates.as_ref().filter(|_| left > 0)?;
        let Updates { array, element_bytes, hold } = *updates;
        let node = self.machine.node(p);
        let Lock { free_at, node: last } = self.locks[next as usize];
        let mut then = self.machine.cpus[p].on(at.max(free_at));
        if last.is_some_and(|last| last != node) {
            then = self.machine.round_trip(p, then);
        }
        let begin = next * element_bytes;
        for page in self.machine.pages.of(array.0 as usize, begin..begin + element_bytes) {
            let access = self.machine.pages.write_locked(page, node);
            then = self.machine.access(p, then, access);
        }
        then = self.machine.cpus[p].computes(then, hold.0);
        self.locks[next as usize] = Lock { free_at: then, node: Some(node) };
        self.lanes[p].updates = Some((left - 1, (next + 1) % self.locks.len() as u64));
        Some(then)
    }

    /// When the processor has told what it wrote to pages of which it made twins.
    fn flush(&mut self, p: usize, at: u64) -> u64 {
        let twins = self.lanes[p].twins;
        self.machine.diffs += twins;
        self.machine.cpus[p].computes(at, twins * self.machine.cluster.costs.diff.0)
    }
}

/// Those that are parts of one array beside each other as one: the first of them, and how many bytes further the last one goes.
fn merged(sections: impl Iterator<Item = Section>) -> Vec<(Section, i128)> {
    let mut all: Vec<(Section, i128)> = Vec::new();
    for s in sections {
        let is_beside = |(o, _): &&mut (Section, i128)| {
            (o.array, o.used, o.element_bytes, o.coefficient)
                == (s.array, s.used, s.element_bytes, s.coefficient)
                && o.constant.abs_diff(s.constant) <= 2 * s.coefficient.unsigned_abs()
        };
        if let Some((first, more)) = all.iter_mut().find(is_beside) {
            let apart =
                (i128::from(s.constant) - i128::from(first.constant)) * i128::from(s.element_bytes);
            *more = (*more).max(apart) - apart.min(0);
            first.constant = first.constant.min(s.constant);
        } else {
            all.push((s, 0));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_iterations::ArrayId;

    #[test]
    fn rows_beside_each_other_are_one_part() {
        let of = |array, used, constant| Section {
            array: ArrayId(array),
            used,
            element_bytes: 8,
            coefficient: 10,
            constant,
        };
        let (reads, writes) = (|c| of(0, Use::Reads, c), of(1, Use::Writes, 0));
        let expected = vec![(reads(-10), 160), (writes, 0), (reads(990), 0)];
        for order in [[-10, 0, 10], [10, 0, -10], [0, -10, 10], [0, 10, -10]] {
            let all = order.map(reads).into_iter().chain([writes, reads(990)]);
            assert_eq!(merged(all), expected, "{order:?}");
        }
    }
}

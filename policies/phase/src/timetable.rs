//! One phase: what each thread has to compute, which CPU has too much of it, and which thread moves when.
//!
//! The wrap-around of McNaughton (1959) cuts the work of all threads into as many pieces of the same length
//! as there are CPUs; a thread whose work lies on a cut runs on two of them, one after the other. Which
//! thread that is need not be known before: on a CPU with too much work the kernel picks one to run first.
//! When what is left of that one is as much as there is too much, it moves, and those that stay have just
//! enough time. Where it goes there may be too much now: then the same is done there, with less left. Each
//! CPU but one is left by a thread at most once, so there are at most m - 1 moves.
//!
//! ```text
//!   3 threads of work e on 2 CPUs, done at 1.5 e:
//!   CPU 0  |    A, e     | X, e/2 |
//!   CPU 1  | X, e/2 |     Y, e     |       X is whichever ran first; in the next phase CPU 0 has two threads
//! ```
//!
//! Invariants: a thread moves from a CPU that has others only, so no CPU becomes unused (promise P2). It
//! moves only where the work of the phase ends sooner by more than what a move costs, as far as known. Where
//! works are not as expected, moves are missing or late, and the phase takes at most what it takes without
//! them, but for the cost of those that were made.

use evenly_model::{CpuIndex, Nanos, shortest_makespan};

/// How much too early, in ns, a thread may be moved at the first look. A helper that looks again lets the kernel choose
/// anew who runs, and that may be the other one; then the first never comes closer to its moment. So twice as much is
/// allowed at each further look.
const EARLY: f64 = 20_000.0;

/// What is left to do of a thread's work on the CPU that is looked at.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Left<T> {
    /// The thread that has it left.
    pub thread: T,
    /// CPU time until it has done what it is expected to do.
    pub work: Nanos,
}

/// What a CPU's helper does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<T> {
    /// Nothing in this phase.
    Rest,
    /// Look again at that time.
    Sleep(Nanos),
    /// This thread moves there now.
    Move(T, CpuIndex),
}

/// A thread that may leave its CPU.
struct Candidate<T> {
    thread: T,
    /// What is left of its work, in ns.
    left: f64,
    to: CpuIndex,
}

/// The one with most left to do.
fn most<'a, T>(candidates: impl Iterator<Item = &'a Candidate<T>>) -> Option<&'a Candidate<T>>
where
    T: 'a,
{
    candidates.max_by(|a, b| a.left.total_cmp(&b.left))
}

/// A phase, from the opening of a barrier to the next.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timetable {
    /// The time at which the phase began.
    opened: Nanos,
    /// When all CPUs can be done, in ns since then.
    bound: f64,
    /// When each would be done with what is on it, in ns since then.
    done: Vec<f64>,
    speeds: Vec<f64>,
    /// What a move has to gain, in ns.
    cost: f64,
}

impl Timetable {
    /// For a phase that began at `opened`. `works` are the CPU times that threads are expected to take on a
    /// CPU of speed 1, each with the CPU where the thread is; `cost` is what a move costs.
    #[must_use]
    pub fn new(opened: Nanos, works: &[(CpuIndex, Nanos)], speeds: &[f64], cost: Nanos) -> Self {
        let mut done = vec![0.0; speeds.len()];
        for &(cpu, work) in works {
            if let (Some(done), Some(speed)) = (done.get_mut(cpu), speeds.get(cpu)) {
                *done += work.0 as f64 / speed;
            }
        }
        let times: Vec<f64> = works.iter().map(|w| w.1.0 as f64).collect();
        let cost = cost.0 as f64;
        // A thread that stays on a CPU for less than it costs to get there is of no use: where there are many
        // CPUs, and it would go from one to the other so, the phase takes longer, and it stays longer on
        // each.
        let least = done.iter().copied().fold(f64::INFINITY, f64::min);
        let bound = shortest_makespan(&times, speeds).max(least + 2.0 * cost);
        Self { opened, bound, done, speeds: speeds.to_vec(), cost }
    }

    /// When it can be over, since it began.
    #[must_use]
    pub fn bound(&self) -> Nanos {
        Nanos(self.bound as u64)
    }

    /// By how much more time a CPU needs than there is.
    #[must_use]
    pub fn excess(&self, cpu: CpuIndex) -> Nanos {
        Nanos(self.excess_ns(cpu) as u64)
    }

    fn excess_ns(&self, cpu: CpuIndex) -> f64 {
        self.done.get(cpu).map_or(0.0, |done| done - self.bound)
    }

    /// Whether a CPU has more to do than there is time for, by more than what a move costs.
    #[must_use]
    pub fn is_crowded(&self, cpu: CpuIndex) -> bool {
        self.excess_ns(cpu) > self.cost
    }

    /// What is done next about a CPU, by what is left of the threads on it, from which one is chosen that may
    /// go to a CPU with time to spare. `looks` is how often its helper has looked since the phase began.
    pub fn next<T: Copy>(
        &self,
        cpu: CpuIndex,
        now: Nanos,
        here: &[Left<T>],
        looks: usize,
        allowed: impl Fn(T, CpuIndex) -> bool,
    ) -> Step<T> {
        let Some(speed) = self.speeds.get(cpu) else { return Step::Rest };
        if here.len() < 2 || !self.is_crowded(cpu) {
            return Step::Rest;
        }
        // In CPU time of this CPU's threads.
        let excess = self.excess_ns(cpu) * speed;
        let elapsed = (now - self.opened).0 as f64;
        // When each other CPU is done; it can have been idle.
        let free = |other: CpuIndex| self.bound - self.done[other].max(elapsed);
        let target = |thread: T| {
            let others = (0..self.done.len()).filter(|&to| to != cpu && allowed(thread, to));
            others.max_by(|&a, &b| free(a).total_cmp(&free(b))).filter(|&to| free(to) > self.cost)
        };
        let candidate = |left: &Left<T>| {
            let (thread, left) = (left.thread, left.work.0 as f64);
            let to = target(thread).filter(|_| left > self.cost)?;
            Some(Candidate { thread, left, to })
        };
        let candidates: Vec<_> = here.iter().filter_map(candidate).collect();
        // Of those that have no more left than there is too much, the one with most.
        // Not so much that the CPU to which it goes has too much to do then, and gives it back.
        let early = (EARLY * f64::from(1 << looks.clamp(1, 8) >> 1)).min(self.cost.max(EARLY));
        let ready = candidates.iter().filter(|c| c.left - excess <= early);
        if let Some(c) = most(ready) {
            return Step::Move(c.thread, c.to);
        }
        // Else the one that is there first, after it has run for so much longer.
        let Some(first) = candidates.iter().min_by(|a, b| a.left.total_cmp(&b.left)) else {
            return Step::Rest;
        };
        let longer = (first.left - excess) / speed;
        // A CPU that falls idle before waits for it in vain: it gets a thread at once that it can finish in time.
        let idle = self.done[first.to];
        if idle > elapsed + self.cost {
            return Step::Sleep(now + Nanos(longer.min(idle - elapsed) as u64));
        }
        match most(candidates.iter().filter(|c| c.left <= free(c.to) * self.speeds[c.to])) {
            Some(c) => Step::Move(c.thread, c.to),
            None => Step::Sleep(now + Nanos(longer as u64)),
        }
    }

    /// A thread was moved with so much left to do.
    pub fn moved(&mut self, from: CpuIndex, to: CpuIndex, left: Nanos, now: Nanos) {
        let (elapsed, left) = ((now - self.opened).0 as f64, left.0 as f64);
        if let (Some(done), Some(speed)) = (self.done.get_mut(from), self.speeds.get(from)) {
            *done -= left / speed;
        }
        if let (Some(done), Some(speed)) = (self.done.get_mut(to), self.speeds.get(to)) {
            *done = done.max(elapsed) + left / speed;
        }
    }
}

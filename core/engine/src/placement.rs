//! How threads are held where they are put: pinned, or free to roam in their domain.
//!
//! Moved threads are pinned, or are released after they were moved ([`Mechanism::Nudge`]) so that the kernel
//! can pull them to a CPU that falls idle. Where no thread gives up its CPU none falls idle, and all that the
//! kernel does with released threads is to undo the balance: its own balancing evens out numbers of threads,
//! not progress. So as long as every thread computes (or spins) without a break, moved threads are held; as
//! soon as one blocks or yields all are released.
//!
//! Beside others they are held as well where threads and those of others divide evenly among the CPUs, or nearly so
//! ([`crate::beside`]). The kernel divides CPUs by how long a thread wants one, and one that blocks for a moment wants less
//! than one that computes: three threads that meet often, and one of others on two CPUs, are put on one of them.
//!
//! Invariant: threads are pinned only where each CPU that one of them may use has one (promise P2).

use crate::account::Window;
use crate::managed::ManagedThread;
use evenly_model::{Nanos, Plan, Snapshot};
use evenly_policy::{Mechanism, Spreader};

/// For how long no thread may have given up a CPU before moved threads are held where they were put.
const HOLD_AFTER: Nanos = Nanos::from_millis(1_000);
/// Blocking is judged over this long: waiting is booked when it ends, and against that noise short
/// stretches at barriers show only when they have added up.
const GIVE_UP_WINDOW: Nanos = Nanos::from_millis(1_000);
/// Part of the threads' time in such a window that must be blocked to count.
pub(crate) const GIVE_UP_BLOCKED: f64 = 0.01;
/// A thread that is given a CPU more often than this yields, or blocks for very short times.
pub(crate) const GIVE_UP_SLICES_PER_S: f64 = 1_000.0;
/// A thread blocks often that is given a CPU more often than this, many times in a balancing period and more often than by the clock of
/// the scheduler alone, and is blocked for this part of the time.
const OFTEN_SLICES_PER_S: f64 = 400.0;
const OFTEN_BLOCKED: f64 = 0.05;
/// That is asked of all threads that compute for this part of the time at least, in so many windows in succession.
const OFTEN_COMPUTES: f64 = 0.05;
const OFTEN_WINDOWS: u32 = 2;

/// How threads of a domain are held.
pub(crate) struct Placement {
    /// Threads are where a distribution has put them.
    pub(crate) placed: bool,
    /// Threads may leave the domain's CPUs, because CPUs would be unused otherwise.
    pub(crate) open: bool,
    /// Threads stay pinned to where they are put.
    pub(crate) pinning: bool,
    /// How many times a second the thread is given a CPU that is given one most often, in the last window, whether threads were
    /// pinned or not. None before one has ended.
    pub(crate) slices_per_s: Option<f64>,
    /// In how many windows in succession all threads that compute have blocked often.
    often: u32,
    cover: Cover,
    pub(crate) gave_up_at: Nanos,
    window_began: Nanos,
}

impl Placement {
    pub(crate) fn new(now: Nanos) -> Self {
        Self {
            placed: false,
            open: false,
            pinning: false,
            slices_per_s: None,
            often: 0,
            cover: Cover::default(),
            gave_up_at: now,
            window_began: now,
        }
    }

    /// Whether threads are to be pinned, or free, where that has become right: `divides` if they and those of others divide
    /// evenly. Returns whether those that are pinned are to be released.
    pub(crate) fn pin_or_release(
        &mut self,
        (mechanism, divides): (Mechanism, bool),
        threads: &mut [ManagedThread],
        snapshot: &mut Snapshot,
    ) -> bool {
        let is_steady = self.judge_steadiness(threads, snapshot.now);
        let hold = match mechanism {
            Mechanism::Nothing => return false,
            Mechanism::Pin => true,
            Mechanism::Nudge => is_steady || divides,
        };
        let pin = hold && !self.open && self.cover.is_possible(snapshot);
        let was_pinned = std::mem::replace(&mut self.pinning, pin);
        if pin && was_pinned {
            // The kernel does not even out what is pinned, so there is no point in waiting for it to
            // do so: the policy is to distribute as at the first time.
            if mechanism == Mechanism::Nudge && !self.cover.is_there(snapshot) {
                snapshot.point = 0;
            }
        } else if pin {
            // Those that are not moved now are pinned where they are: after this distribution.
            self.placed = false;
            snapshot.point = 0;
        }
        was_pinned && !pin
    }

    /// Whether every thread has kept its CPU busy for a while.
    fn judge_steadiness(&mut self, threads: &mut [ManagedThread], now: Nanos) -> bool {
        if now - self.window_began < GIVE_UP_WINDOW {
            return self.is_steady(now);
        }
        let (mut blocked, mut length, mut slices) = (0.0, 0.0, 0.0f64);
        let mut all_often = None;
        for a in threads.iter_mut().map(|t| &mut t.account) {
            let next = Window { began: a.read_at, times: a.last, unexplained: a.unexplained };
            let last = std::mem::replace(&mut a.window, next);
            // One that joined meanwhile is judged from then on.
            let own = (next.began - last.began).0 as f64;
            if own <= 0.0 {
                continue;
            }
            let wanted =
                (next.times.ran - last.times.ran) + (next.times.waited - last.times.waited);
            // What is not explained yet is judged in the next window; one that waits for ever, or
            // is blocked, is looked at.
            let open = last.unexplained.0 as f64 - next.unexplained.0 as f64;
            // Below zero where more was booked than fits, because some of it belongs to before:
            // it is lacking in the accounts of others, whose waiting has not ended yet.
            let own_blocked = own + open - wanted.0 as f64;
            blocked += own_blocked;
            length += own;
            let given = next.times.slices.saturating_sub(last.times.slices) as f64 / own * 1e9;
            slices = slices.max(given);
            if (next.times.ran - last.times.ran).0 as f64 >= OFTEN_COMPUTES * own {
                let is_often = given > OFTEN_SLICES_PER_S && own_blocked > OFTEN_BLOCKED * own;
                all_often = Some(all_often.unwrap_or(true) && is_often);
            }
        }
        self.window_began = now;
        self.slices_per_s = Some(slices);
        self.often = if all_often == Some(true) { self.often + 1 } else { 0 };
        if blocked > GIVE_UP_BLOCKED * length || self.gives_up_often() {
            self.gave_up_at = now;
        }
        self.is_steady(now)
    }

    /// Whether a thread gives up its CPU so often that the clock of the scheduler is too slow for it.
    pub(crate) fn gives_up_often(&self) -> bool {
        self.slices_per_s.is_some_and(|per_s| per_s > GIVE_UP_SLICES_PER_S)
    }

    /// Whether threads block many times in a balancing period.
    pub(crate) fn blocks_often(&self) -> bool {
        self.often >= OFTEN_WINDOWS
    }

    pub(crate) fn is_steady(&self, now: Nanos) -> bool {
        now - self.gave_up_at >= HOLD_AFTER
    }
}

/// Whether pinned threads leave no CPU unused (promise P2): each that one of them may use has
/// one. Where there are fewer threads than CPUs, or most of them may use the same few CPUs, they
/// cannot; then they are not pinned.
#[derive(Default)]
struct Cover {
    spreader: Spreader,
    plan: Plan,
    /// For each mask, whether a thread has it.
    used: Vec<bool>,
    /// For each CPU, whether a thread may use it, and whether one is there.
    wanted: Vec<bool>,
    held: Vec<bool>,
    /// Where each thread would be.
    at: Vec<usize>,
}

impl Cover {
    /// Whether it would be so once the threads are distributed, which is what every policy begins
    /// with. The most even distribution has threads on as many CPUs as can have one at all (see
    /// [`Spreader`]), so that none but this one need be looked at.
    ///
    /// O(n + m * masks) where all threads may use the same CPUs, else that of [`Spreader::spread`].
    fn is_possible(&mut self, s: &Snapshot) -> bool {
        self.find_wanted(s);
        let wanted = self.wanted.iter().filter(|w| **w).count();
        if s.threads.is_empty() || s.threads.len() < wanted {
            return false;
        }
        let all = |mask: &[bool]| mask.iter().zip(&self.wanted).all(|(may, w)| may == w);
        let alike = s.masks.iter().zip(&self.used).all(|(mask, used)| !used || all(mask));
        if alike && s.threads.iter().all(|t| t.movable) {
            return true;
        }
        self.plan.clear();
        self.spreader.spread(s, &mut self.plan);
        self.is_with(s, true)
    }

    /// Whether it is so with the threads where they are.
    fn is_there(&mut self, s: &Snapshot) -> bool {
        self.is_with(s, false)
    }

    fn is_with(&mut self, s: &Snapshot, plan: bool) -> bool {
        self.at.clear();
        self.at.extend(s.threads.iter().map(|t| t.cpu));
        if plan {
            self.plan.moves.iter().for_each(|m| self.at[m.thread] = m.to);
        }
        self.held.clear();
        self.held.resize(s.cpus.len(), false);
        for &c in &self.at {
            if let Some(held) = self.held.get_mut(c) {
                *held = true;
            }
        }
        self.wanted.iter().zip(&self.held).all(|(wanted, held)| !wanted || *held)
    }

    fn find_wanted(&mut self, s: &Snapshot) {
        self.used.clear();
        self.used.resize(s.masks.len(), false);
        for t in &s.threads {
            self.used[t.mask] = true;
        }
        self.wanted.clear();
        self.wanted.resize(s.cpus.len(), false);
        for (mask, _) in s.masks.iter().zip(&self.used).filter(|(_, used)| **used) {
            for (wanted, may) in self.wanted.iter_mut().zip(mask) {
                *wanted |= may;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::ManagedThread;
    use crate::scripted::threads;

    const S: Nanos = Nanos::from_millis(1_000);

    /// A second of so many milliseconds of CPU time and slices for each.
    fn run(threads: &mut [ManagedThread], ran_ms: u64, slices: u64) {
        for a in threads.iter_mut().map(|t| &mut t.account) {
            a.last.ran += Nanos::from_millis(ran_ms);
            a.last.slices += slices;
            a.read_at += S;
        }
    }

    /// Seconds in which threads do so; whether they are pinned after each, and released.
    fn hold(mechanism: Mechanism, at: &[u32], seconds: &[(u64, u64)]) -> Vec<(bool, bool)> {
        let (mut members, mut s) = threads(at, 2);
        let mut p = Placement::new(Nanos::ZERO);
        p.placed = true;
        let each = seconds.iter().map(|&(ran_ms, slices)| {
            run(&mut members.threads, ran_ms, slices);
            s.now += S;
            let released = p.pin_or_release((mechanism, false), &mut members.threads, &mut s);
            (p.pinning, released)
        });
        each.collect()
    }

    #[test]
    fn threads_are_held_while_none_gives_up_its_cpu() {
        let seconds = [(1_000, 10), (1_000, 10), (900, 10), (1_000, 10), (1_000, 10)];
        let held = hold(Mechanism::Nudge, &[0, 1], &seconds);
        let wanted = [(true, false), (true, false), (false, true), (true, false), (true, false)];
        assert_eq!(held, wanted);
        // One that yields is given a CPU again and again.
        let held = hold(Mechanism::Nudge, &[0, 1], &[(1_000, 10), (1_000, 2_000)]);
        assert_eq!(held, [(true, false), (false, true)]);
        // A policy that pins does so whatever they do, one that only watches never.
        assert_eq!(hold(Mechanism::Pin, &[0, 1], &[(0, 0)]), [(true, false)]);
        assert_eq!(hold(Mechanism::Nothing, &[0, 1], &[(1_000, 1)]), [(false, false)]);
    }

    /// Would catch: threads that block, and are left to the kernel with a program that has a CPU for itself then.
    #[test]
    fn threads_that_divide_evenly_with_those_of_others_are_held_though_they_block() {
        let (mut members, mut s) = threads(&[0, 0, 1], 2);
        let mut p = Placement::new(Nanos::ZERO);
        let mut after = |divides, slices| {
            run(&mut members.threads, 400, slices);
            s.now += S;
            let how = (Mechanism::Nudge, divides);
            let released = p.pin_or_release(how, &mut members.threads, &mut s);
            (p.pinning, released, p.gives_up_often())
        };
        assert_eq!(after(false, 100), (false, false, false));
        assert_eq!(after(true, 4_000), (true, false, true));
        assert_eq!(after(true, 100), (true, false, false));
        assert_eq!(after(false, 100), (false, true, false));
    }

    /// Would catch: periods that are long beside one thread that writes a log; ones that change each second; threads that compute and lose
    /// their CPUs often, and are taken for such that block.
    #[test]
    fn threads_block_often_where_all_that_compute_do() {
        let (mut members, mut s) = threads(&[0, 0, 1], 2);
        let mut p = Placement::new(Nanos::ZERO);
        let mut after = |first: (u64, u64), others: (u64, u64)| {
            run(&mut members.threads[..1], first.0, first.1);
            run(&mut members.threads[1..], others.0, others.1);
            s.now += S;
            p.pin_or_release((Mechanism::Nudge, false), &mut members.threads, &mut s);
            p.blocks_often()
        };
        let (often, computes, idle) = ((600, 500), (600, 40), (1, 500));
        assert_eq!([after(often, often), after(often, often)], [false, true]);
        assert_eq!([after(computes, often), after(often, often)], [false, false]);
        assert_eq!([after(idle, often), after((980, 900), (980, 900))], [true, false]);
        assert!(!after(idle, idle));
    }

    #[test]
    fn fewer_threads_than_cpus_are_not_pinned() {
        assert_eq!(hold(Mechanism::Pin, &[0], &[(1_000, 10)]), [(false, false)]);
    }

    #[test]
    fn where_threads_begin_to_be_pinned_all_are_distributed_anew() {
        let (mut members, mut s) = threads(&[0, 1], 2);
        let mut p = Placement::new(Nanos::ZERO);
        (p.placed, s.point, s.now) = (true, 7, S);
        assert!(!p.pin_or_release((Mechanism::Pin, false), &mut members.threads, &mut s));
        assert_eq!((p.placed, s.point), (false, 0));
        // An open domain releases them.
        p.open = true;
        assert!(
            p.pin_or_release((Mechanism::Pin, false), &mut members.threads, &mut s) && !p.pinning
        );
    }
}

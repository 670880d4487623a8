//! Which CPUs of a domain programs without evenly compute on.
//!
//! What a CPU did, less what threads of the program had there, is what others had. A thread that may roam counts where it
//! was seen at each point.
//!
//! Invariant: as many as are there have been there for two windows in succession, and so has who is gone; and who is known to be
//! there has been at another place for as long, too.

use crate::Sensors;
use crate::managed::ManagedThread;
use crate::placement::{GIVE_UP_BLOCKED, GIVE_UP_SLICES_PER_S};
use evenly_model::{CpuId, CpuView, Nanos};

/// For how long it is counted, and how many times as long as to read it takes.
const WINDOW: Nanos = Nanos::from_millis(125);
const TIMES_READING: u64 = 1_000;
/// A stretch that is shorter says nothing; those of the guard's pauses are longer.
const SHORTEST: Nanos = Nanos::from_millis(100);
/// Others compute where they have this part of a CPU, all together; evenly itself has less.
const PART: f64 = 0.4;
/// Threads share their CPUs that wait for them for this part of the time, all together.
const SHARES: f64 = 0.05;
/// How many times a second a thread is given a CPU at most, on average, that can share one with others: in phases of less than about
/// 0.1 ms a CPU that changes hands comes back too late.
const MOST_SLICES_PER_S: f64 = 5_000.0;
/// And at least, where they meet so often that the kernel cannot divide phases into slices: every 2 ms or so.
pub(crate) const MEET_SLICES_PER_S: f64 = 250.0;

/// What is known of them.
#[derive(Debug, Default)]
pub(crate) struct Others {
    window: Nanos,
    since: Nanos,
    /// For how long each CPU had run something when the window began; empty where that is not known.
    busy: Vec<Nanos>,
    /// The CPUs, and what the program's threads had on each since then, and for how long they waited for one.
    cpus: Vec<CpuId>,
    own: Vec<Nanos>,
    waited: Nanos,
    stretch: Stretch,
    /// How often a thread was given a CPU, of the last two stretches in which threads were not pinned; None where they did not
    /// give theirs up. Who spins, and hands over, does that later than it begins, and more often when it is pinned.
    given_per_s: [Option<f64>; 2],
    /// Where one of others computed in the last window, and in two in succession.
    seen: Vec<CpuId>,
    on: Vec<CpuId>,
}

/// A time in which threads are pinned, or are not.
#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    since: Nanos,
    pinned: bool,
    /// How many threads there were, and how often they had been given a CPU when it began, all together.
    threads: usize,
    slices: u64,
    /// For how long they have been blocked, all together.
    blocked: Nanos,
}

impl Stretch {
    fn from(now: Nanos, threads: &[ManagedThread], pinned: bool) -> Self {
        let slices = threads.iter().map(|t| t.account.last.slices).sum();
        Self { since: now, pinned, threads: threads.len(), slices, blocked: Nanos::ZERO }
    }

    /// How often a thread was given a CPU in each second until then; None where threads did not give theirs up.
    fn given_per_s(&self, until: &Self) -> Option<f64> {
        let time = (until.since - self.since).as_secs_f64() * self.threads as f64;
        let given = until.slices.saturating_sub(self.slices) as f64 / time;
        (self.blocked.as_secs_f64() > GIVE_UP_BLOCKED * time).then_some(given)
    }
}

impl Others {
    /// The CPUs on which a thread of others computes, at most one on each.
    pub(crate) fn on(&self) -> &[CpuId] {
        &self.on
    }

    /// Whether threads give up their CPUs, and not so often that they are better off without others.
    pub(crate) fn may_share_cpus(&self) -> bool {
        self.given_per_s.iter().all(|given| given.is_some_and(|per_s| per_s < MOST_SLICES_PER_S))
    }

    /// Whether they are given CPUs as often as who meets in short phases.
    pub(crate) fn meet_often(&self) -> bool {
        self.are_given_more_than(MEET_SLICES_PER_S)
    }

    /// Whether the clock of the scheduler is too slow for them.
    pub(crate) fn give_up_often(&self) -> bool {
        self.are_given_more_than(GIVE_UP_SLICES_PER_S)
    }

    fn are_given_more_than(&self, slices_per_s: f64) -> bool {
        self.given_per_s.iter().all(|given| given.is_some_and(|per_s| per_s > slices_per_s))
    }

    /// A point, after threads had run where they are now, and whether they were pinned meanwhile.
    pub(crate) fn look(
        &mut self,
        machine: &mut dyn Sensors,
        cpus: &[CpuView],
        (threads, pinned): (&[ManagedThread], bool),
        now: Nanos,
    ) {
        let ids = cpus.iter().map(|c| c.id);
        if !self.cpus.iter().copied().eq(ids.clone()) || self.stretch.threads != threads.len() {
            let own = vec![Nanos::ZERO; cpus.len()];
            let stretch = Stretch::from(now, threads, pinned);
            *self = Self { cpus: ids.collect(), own, since: now, stretch, ..Self::default() };
        }
        for t in threads {
            let spent = &t.account.period;
            self.waited += spent.waited;
            self.stretch.blocked += spent.blocked;
            let here = t.place.cpu.and_then(|cpu| cpus.binary_search_by_key(&cpu, |c| c.id).ok());
            if let Some(own) = here.and_then(|c| self.own.get_mut(c)) {
                *own += spent.ran;
            }
        }
        self.look_how_often(threads, pinned, now);
        let elapsed = now - self.since;
        if elapsed < self.window.max(WINDOW) {
            return;
        }
        // While all have a CPU when they want one nobody is in their way.
        let shared = self.waited > elapsed.scale(SHARES);
        let busy = if shared { read(machine, cpus, &mut self.window) } else { Vec::new() };
        let seen = if busy.len() == cpus.len() && self.busy.len() == cpus.len() {
            self.who(cpus, &busy, elapsed)
        } else {
            Vec::new()
        };
        // The kernel may move them from one window to the next, and where each has half of a CPU it is chance.
        let as_many = seen.len() == self.seen.len() && seen.len() != self.on.len();
        if seen == self.seen || as_many {
            self.on.clone_from(&seen);
        }
        self.begin(now, busy, seen);
    }

    /// A point at which nobody is to be looked for: what was done until then says nothing.
    pub(crate) fn skip(&mut self, now: Nanos) {
        self.begin(now, Vec::new(), Vec::new());
    }

    /// Begins a window: for how long each CPU had run something by then, and where others were in the one before.
    fn begin(&mut self, now: Nanos, busy: Vec<Nanos>, seen: Vec<CpuId>) {
        (self.since, self.busy, self.seen, self.waited) = (now, busy, seen, Nanos::ZERO);
        self.own.fill(Nanos::ZERO);
    }

    /// Ends a stretch that is long enough, or in which threads were pinned and now are not, or the other way round.
    fn look_how_often(&mut self, threads: &[ManagedThread], pinned: bool, now: Nanos) {
        let (length, changed) = (now - self.stretch.since, self.stretch.pinned != pinned);
        if length < WINDOW && !changed {
            return;
        }
        let next = Stretch::from(now, threads, pinned);
        if !self.stretch.pinned && length >= SHORTEST {
            self.given_per_s = [self.given_per_s[1], self.stretch.given_per_s(&next)];
        }
        self.stretch = next;
    }

    /// As many as had a CPU each, on those CPUs on which they had most.
    fn who(&self, cpus: &[CpuView], busy: &[Nanos], elapsed: Nanos) -> Vec<CpuId> {
        let part = |c: usize| {
            // Where threads roam, what one had elsewhere is lacking there.
            let busy = (busy[c] - self.busy[c]).0 as f64;
            (busy - self.own[c].0 as f64) / elapsed.0 as f64
        };
        let mut parts: Vec<(f64, CpuId)> = (0..cpus.len()).map(|c| (part(c), cpus[c].id)).collect();
        let all: f64 = parts.iter().map(|(part, _)| part).sum();
        let threads = if all >= PART { all.round().max(1.0) as usize } else { 0 };
        parts.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut on: Vec<CpuId> = parts.iter().take(threads).map(|(_, cpu)| *cpu).collect();
        on.sort_unstable();
        on
    }
}

/// Reads for how long each CPU ran something; sets how long the next window is.
fn read(machine: &mut dyn Sensors, cpus: &[CpuView], window: &mut Nanos) -> Vec<Nanos> {
    let ids: Vec<CpuId> = cpus.iter().map(|c| c.id).collect();
    let before = machine.now();
    let busy = machine.busy(&ids);
    *window = Nanos((machine.now() - before).0.saturating_mul(TIMES_READING));
    busy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{Scripted, threads};

    /// What is seen after each of these windows, in which others had so many hundredths of each CPU, and threads of the
    /// program, two on CPU 0 and one on CPU 1, the rest; each of them waits for so many hundredths.
    fn seen(windows: &[([i64; 2], u64)]) -> Vec<Vec<u32>> {
        let (mut members, snapshot) = threads(&[0, 0, 1], 2);
        let mut machine = Scripted { busy: vec![Nanos::ZERO; 2], ..Scripted::default() };
        let mut others = Others::default();
        let step = WINDOW.scale(0.1);
        let mut after = |(had, waits): ([i64; 2], u64)| {
            for _ in 0..10 {
                machine.now += step;
                for (i, t) in members.threads.iter_mut().enumerate() {
                    let had = had[usize::from(i == 2)] as f64 / 100.0;
                    // A tenth of each CPU is idle.
                    let ran = step.scale((0.9 - had) / if i == 2 { 1.0 } else { 2.0 });
                    t.account.period.ran = ran;
                    t.account.period.waited = step.scale(waits as f64 / 100.0);
                }
                machine.busy.iter_mut().for_each(|busy| *busy += step.scale(0.9));
                let now = machine.now;
                let threads = (&members.threads[..], false);
                others.look(&mut machine, &snapshot.cpus, threads, now);
            }
            others.on().iter().map(|c| c.0).collect()
        };
        windows.iter().map(|&window| after(window)).collect()
    }

    /// Would catch: threads that are held because of a moment, or let go for one; a program of others that is not seen
    /// because it has half of a CPU; evenly itself that is taken for one.
    #[test]
    fn who_computes_for_two_windows_is_there() {
        let hog = ([0, 50], 20);
        let none = ([3, 4], 20);
        // A window is judged in the next one.
        let at = seen(&[none, none, hog, hog, none, hog, hog, none, none, none]);
        let wanted: Vec<Vec<u32>> =
            (0..10).map(|i| if (4..9).contains(&i) { vec![1] } else { vec![] }).collect();
        assert_eq!(at, wanted);
        // As many as had a CPU each, where they had most.
        let both = [([85, 89], 20), ([89, 85], 20), none];
        assert_eq!(seen(&[none, both[0], both[1], none])[3], [0, 1]);
        assert_eq!(seen(&[none, ([60, 20], 20), ([60, 20], 20), none])[3], [0]);
        // The kernel has moved it; and where it is then it is for two windows, too.
        let moved = ([50, 0], 20);
        let at = seen(&[none, hog, moved, hog, moved, moved, moved]);
        assert_eq!(at[3..], [[0], [0], [0], [0]]);
        assert_eq!(
            seen(&[none, hog, hog, moved, hog, moved, moved, none])[3..],
            [[1], [1], [1], [1], [0]]
        );
    }

    /// Would catch: threads of the program that are taken for others, as they are not where they were seen.
    #[test]
    fn who_roams_is_nobody_else() {
        // CPU 0 is busy for 0.9 of the time, with half of which the program's threads are booked on CPU 1.
        assert_eq!(seen(&[([45, 0], 20); 5])[4], [0]);
        assert_eq!(seen(&[([45, -45], 20); 5])[4], Vec::<u32>::new());
    }

    /// Would catch: files that are read although nobody is in the way.
    #[test]
    fn who_shares_no_cpu_looks_for_nobody() {
        let alone = ([0, 50], 0);
        assert_eq!(seen(&[alone, alone, alone, alone]), vec![Vec::<u32>::new(); 4]);
    }

    /// Windows in which three threads are blocked for such a part, and given a CPU so often a second, pinned or not; whether they may
    /// share their CPUs after each.
    fn may_share(windows: &[(f64, u64, bool)]) -> Vec<bool> {
        let (mut members, snapshot) = threads(&[0, 0, 1], 2);
        let (mut machine, mut others) = (Scripted::default(), Others::default());
        let mut after = |&(blocked, per_s, pinned): &(f64, u64, bool)| {
            for _ in 0..10 {
                let step = WINDOW.scale(0.1);
                for t in &mut members.threads {
                    t.account.last.slices += per_s / 80;
                    t.account.period.blocked = step.scale(blocked);
                }
                machine.now += step;
                let now = machine.now;
                others.look(&mut machine, &snapshot.cpus, (&members.threads, pinned), now);
            }
            others.may_share_cpus()
        };
        windows.iter().map(&mut after).collect()
    }

    /// Would catch: threads that meet every 15 us, and wait for a CPU that others have half of the time.
    #[test]
    fn who_meets_too_often_shares_no_cpu() {
        let (spins, often, seldom) = ((0.0, 40, false), (0.3, 12_000, false), (0.3, 1_320, false));
        // A window is judged in the next one. One in which threads began to hand over says little.
        let begins = (0.1, 4_000, false);
        assert_eq!(may_share(&[spins, spins, begins, often, often, often]), [false; 6]);
        let at = may_share(&[spins, begins, seldom, often, seldom, seldom, seldom]);
        assert_eq!(at, [false, false, false, true, false, false, true]);
        // What is seen while they are pinned changes nothing, but what is in a pause does.
        let pinned = (0.3, 12_000, true);
        let held = [spins, seldom, seldom, seldom, pinned, pinned];
        assert_eq!(may_share(&held)[3..], [true; 3]);
        assert!(!may_share(&[&held[..], &[often, often]].concat())[7]);
    }
}

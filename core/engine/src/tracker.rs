//! Which threads compute, and when balancing may begin.
//!
//! Threads are recognised by what they do: one that wants a CPU for a good part of the time
//! computes; a launcher that waits for others, a helper that wakes now and then, do not, and are
//! left alone. Nor is one judged that has never run. One that reports barriers belongs to those
//! that wait there, also where it has little to do and sleeps until the others have come; and so
//! does one that waits for others, where no thread reports barriers.
//!
//! Invariant (promise P3): no thread is handed over before the number of threads of the program
//! has stood still for a while, or before the number that the user expects is there, because
//! threads that are created later inherit masks, and runtimes size their pools by them.

use crate::{RunState, Sensors, Times, Waiting};
use evenly_model::{Nanos, Pid, ThreadId};
use std::collections::HashMap;

/// A thread as the system shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The thread, by its id and start time.
    pub id: ThreadId,
    /// The process that it belongs to.
    pub pid: Pid,
    /// Its name, as the program has set it.
    pub name: String,
    /// Whether it is the first thread of its process.
    pub first: bool,
    /// Whether it is scheduled fairly; real-time and deadline threads are left alone.
    pub fair: bool,
    /// Its times, as they were read last.
    pub times: Times,
    /// Whether it wanted a CPU when it was read.
    pub state: RunState,
    /// When its times were read: once it is balanced, what it does from then on is counted.
    pub read_at: Nanos,
}

/// Whether a thread may be balanced.
pub type Eligible = Box<dyn Fn(&Candidate) -> bool + Send>;

/// What the user says about threads.
#[derive(Default)]
pub struct TrackerOptions {
    /// Begin as soon as this many threads compute.
    pub expected: Option<u32>,
    /// How long the threads must stand still before balancing begins where `expected` is None.
    pub settle: Nanos,
    /// Threads for which this is false are not balanced. Asked at each look, because threads name
    /// themselves after they have started.
    pub eligible: Option<Eligible>,
}

/// A thread that is to be balanced from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The thread, as it was seen when it was selected.
    pub thread: Candidate,
    /// Its times at the moment from which its progress counts.
    pub baseline: Times,
}

#[derive(Debug, Clone)]
struct Known {
    seen: u64,
    times: Times,
    since: Nanos,
    busy_in_a_row: u32,
    baseline: Times,
    eligible: bool,
    selected: bool,
    /// Where its turns began that have not been judged yet: how many it had taken by then, its
    /// times, and when.
    turns: Option<(u32, Times, Nanos)>,
    /// It computed in the turns before.
    takes_part: bool,
}

impl Known {
    fn is_unclear(&self) -> bool {
        !self.selected && self.busy_in_a_row < LOOKS
    }

    fn computes(&self) -> bool {
        self.busy_in_a_row >= LOOKS || self.takes_part
    }

    /// Takes in how many turns it had taken about when its times were read.
    fn took(&mut self, turns: u32) {
        let (before, then, since) = *self.turns.get_or_insert((turns, self.times, self.since));
        let elapsed = self.since - since;
        if turns < before {
            // Another program, by exec; or they are counted otherwise from now on.
            self.turns = None;
        } else if turns - before >= TURNS && elapsed >= LEAST_GAP {
            let wanted = (self.times.ran - then.ran) + (self.times.waited - then.waited);
            self.takes_part = wanted.0 as f64 >= WAITS * elapsed.0 as f64;
            self.turns = Some((turns, self.times, self.since));
        }
    }
}

/// A thread computes if it wanted a CPU for at least this part of the time between two looks.
const COMPUTES: f64 = 0.25;
/// Or if it is runnable, and wanted one for at least this part as far as is booked.
const WAITS: f64 = 0.05;
/// And does so at this many looks in a row.
const LOOKS: u32 = 2;
/// Or if it reports its turns, and wanted one for at least [`WAITS`] of the time that so many took: between
/// two looks it may sleep all the time.
const TURNS: u32 = 2;
/// Looks closer together than this say nothing: the kernel's counters move once a tick.
const LEAST_GAP: Nanos = Nanos::from_millis(8);

/// The number of compute threads need not wait for that of all threads to stand still once it has
/// done so itself for this many times the settling time.
const LONG: f64 = 8.0;

/// Recognises the threads of a program that compute, among all that it has.
#[derive(Default)]
pub struct Tracker {
    options: TrackerOptions,
    known: HashMap<ThreadId, Known>,
    look: u64,
    still_since: Option<Nanos>,
    busy_since: Nanos,
    most: usize,
    busy: usize,
    started: bool,
    /// Which threads are asked, and what they report: kept between looks.
    asked: Vec<ThreadId>,
    said: Vec<Option<Waiting>>,
}

impl Tracker {
    /// A tracker that has seen no thread yet.
    #[must_use]
    pub fn new(options: TrackerOptions) -> Self {
        Self { options, ..Self::default() }
    }

    /// Whether balancing has begun.
    #[must_use]
    pub fn started(&self) -> bool {
        self.started
    }

    /// Threads of the program, computing or not.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.known.len()
    }

    /// Whether the thread has been seen before.
    #[must_use]
    pub fn knows(&self, id: ThreadId) -> bool {
        self.known.contains_key(&id)
    }

    /// Asks those whose times do not show that they compute what they report of themselves, before a look.
    pub fn listen(&mut self, machine: &mut dyn Sensors) {
        self.asked.clear();
        self.asked.extend(self.known.iter().filter(|(_, k)| k.is_unclear()).map(|(&id, _)| id));
        if self.asked.is_empty() {
            return;
        }
        machine.waiting(&self.asked, &mut self.said);
        let reports = |w: &Option<Waiting>| w.is_some_and(|w| w.waits > 0);
        if !self.said.iter().any(reports) {
            return;
        }
        self.asked.clear();
        self.asked.extend(self.known.keys());
        machine.waiting(&self.asked, &mut self.said);
        self.take_in();
    }

    /// What all that were asked have reported.
    fn take_in(&mut self) {
        // Where some report barriers, one that only waits for something else is a helper of theirs.
        let by_barriers = self.said.iter().flatten().any(|w| w.phases > 0);
        for (id, said) in self.asked.iter().zip(&self.said) {
            if let (Some(k), Some(said)) = (self.known.get_mut(id), said)
                && k.is_unclear()
            {
                k.took(if by_barriers { said.phases } else { said.waits });
            }
        }
    }

    /// Takes a look at all threads of the program, and returns those that are to be balanced from
    /// now on.
    pub fn look(&mut self, now: Nanos, threads: &[Candidate]) -> Vec<Selection> {
        self.look_among(threads.len(), now, threads)
    }

    /// As [`Tracker::look`], where only those of `total` threads are shown that have ever wanted
    /// a CPU. They may have been read at different times, as where they are many.
    pub fn look_among(
        &mut self,
        total: usize,
        now: Nanos,
        threads: &[Candidate],
    ) -> Vec<Selection> {
        self.look += 1;
        for c in threads {
            let known = self.known.entry(c.id).or_insert_with(|| Known {
                seen: 0,
                times: c.times,
                since: c.read_at,
                busy_in_a_row: 0,
                baseline: c.times,
                eligible: false,
                selected: false,
                turns: None,
                takes_part: false,
            });
            known.seen = self.look;
            if !known.selected {
                known.eligible = c.fair && self.options.eligible.as_ref().is_none_or(|e| e(c));
            }
            let gap = c.read_at - known.since;
            if gap >= LEAST_GAP {
                let wanted =
                    (c.times.ran - known.times.ran) + (c.times.waited - known.times.waited);
                let share = wanted.0 as f64 / gap.0 as f64;
                // Waiting is booked when it ends: a thread that is runnable now, and has run a
                // little or not at all since the last look, has been waiting for the rest.
                let waiting =
                    c.state == RunState::Runnable && (wanted == Nanos::ZERO || share >= WAITS);
                // One that has never run has shown nothing yet: it may be a helper that goes to sleep
                // as soon as it gets its first CPU.
                let has_run = c.times.ran > Nanos::ZERO;
                if has_run && (waiting || share >= COMPUTES) {
                    known.busy_in_a_row += 1;
                } else {
                    known.busy_in_a_row = 0;
                }
                (known.times, known.since) = (c.times, c.read_at);
            }
        }
        let look = self.look;
        self.known.retain(|_, k| k.seen == look);
        if !self.may_start(total, now) {
            // Progress counts from the moment when the last of the threads was there.
            return Vec::new();
        }
        let mut chosen = Vec::new();
        for c in threads {
            if let Some(k) = self.known.get_mut(&c.id)
                && !k.selected
                && k.eligible
                && k.computes()
                && c.state != RunState::Dead
            {
                k.selected = true;
                chosen.push(Selection { thread: c.clone(), baseline: k.baseline });
            }
        }
        self.started |= !chosen.is_empty();
        chosen
    }

    /// Whether a thread has been seen to compute, and it is to be seen whether it goes on.
    #[must_use]
    pub fn is_choosing(&self) -> bool {
        self.known.values().any(|k| k.eligible && !k.selected && k.busy_in_a_row > 0)
    }

    /// The balancer has given the thread back because it no longer computes.
    pub fn idle(&mut self, id: ThreadId, times: Times, now: Nanos) {
        if let Some(k) = self.known.get_mut(&id) {
            *k = Known {
                times,
                since: now,
                busy_in_a_row: 0,
                baseline: times,
                selected: false,
                turns: None,
                takes_part: false,
                ..*k
            };
        }
    }

    fn may_start(&mut self, total: usize, now: Nanos) -> bool {
        if self.started {
            return true;
        }
        let busy = |k: &&Known| k.eligible && k.computes();
        let busy = self.known.values().filter(busy).count();
        // Threads that end, and others that take their place, are no sign that more are to come:
        // some programs start and end threads all the time. And where compute threads have stood
        // still for long, they are all there, whatever the others do.
        let grew = total > self.most;
        if busy != self.busy {
            self.busy_since = now;
        }
        if grew {
            for k in self.known.values_mut() {
                k.baseline = k.times;
            }
        }
        if busy != self.busy || (grew && now - self.busy_since < self.options.settle.scale(LONG)) {
            self.busy = busy;
            self.still_since = Some(now);
        }
        self.most = self.most.max(total);
        match self.options.expected {
            Some(n) => busy >= n as usize,
            None => busy >= 2 && self.still_since.is_some_and(|t| now - t >= self.options.settle),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::Tid;

    fn candidate(tid: i32, ran_ms: u64, state: RunState) -> Candidate {
        Candidate {
            id: ThreadId { tid: Tid(tid), start: 1 },
            pid: Pid(1),
            name: format!("t{tid}"),
            first: tid == 1,
            fair: tid != 99,
            times: Times { ran: Nanos::from_millis(ran_ms), waited: Nanos::ZERO, slices: 0 },
            state,
            read_at: Nanos::ZERO,
        }
    }

    /// All of them read at this moment.
    fn read(ms: u64, threads: &[Candidate]) -> Vec<Candidate> {
        threads.iter().map(|c| Candidate { read_at: at(ms), ..c.clone() }).collect()
    }

    fn at(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    fn tracker(expected: Option<u32>) -> Tracker {
        Tracker::new(TrackerOptions { expected, settle: at(60), eligible: None })
    }

    /// A launcher (1), computing threads (2 to 4) and a helper (5).
    fn program(ms: u64) -> Vec<Candidate> {
        let mut v =
            vec![candidate(1, 5, RunState::Blocked), candidate(5, ms / 50, RunState::Blocked)];
        v.extend((2..=4).map(|t| candidate(t, ms * 2 / 3, RunState::Runnable)));
        v
    }

    /// Thread 2 computes all the time, 3 and 4 an eighth of it, 5 as seldom as a helper. Of each is said how many
    /// barriers it reaches in that time, and how often it waits.
    fn joined(said: [Option<(u32, u32)>; 4]) -> Vec<i32> {
        let mut t = tracker(None);
        let mut chosen = Vec::new();
        for ms in (0..6_000).step_by(50) {
            let (turns, into) = (ms / 80, ms % 80);
            let light = turns * 10 + into.min(10);
            let ran = [ms, light, light, ms / 50];
            let threads: Vec<Candidate> =
                (2..).zip(ran).map(|(tid, ran)| candidate(tid, ran, RunState::Blocked)).collect();
            t.asked = threads.iter().map(|c| c.id).collect();
            t.said = said
                .iter()
                .map(|s| {
                    let times = |n: u32| n * turns as u32;
                    s.map(|(phases, waits)| Waiting {
                        phases: times(phases),
                        waits: times(waits),
                        ..Waiting::default()
                    })
                })
                .collect();
            t.take_in();
            chosen.extend(t.look(at(ms), &read(ms, &threads)));
        }
        let mut tids: Vec<i32> = chosen.iter().map(|s| s.thread.id.tid.0).collect();
        tids.sort_unstable();
        tids
    }

    #[test]
    fn who_sleeps_most_of_its_turns_is_known_by_the_barriers_that_it_reaches() {
        assert_eq!(joined([Some((1, 1)); 4]), [2, 3, 4]);
        // Where none has barriers, by its waits.
        assert_eq!(joined([Some((0, 3)); 4]), [2, 3, 4]);
        // Where others have some, one that has none is a helper.
        assert_eq!(joined([Some((1, 1)), Some((1, 1)), Some((0, 9)), None]), [2, 3]);
    }

    #[test]
    fn computing_threads_are_distinguished_from_idle_ones() {
        let mut t = tracker(None);
        let mut chosen = Vec::new();
        for ms in (0..400).step_by(20) {
            chosen.extend(t.look(at(ms), &read(ms, &program(ms))));
        }
        let mut tids: Vec<i32> = chosen.iter().map(|s| s.thread.id.tid.0).collect();
        tids.sort_unstable();
        assert_eq!(tids, [2, 3, 4]);
    }

    #[test]
    fn nothing_is_chosen_while_threads_are_still_being_started() {
        let mut t = tracker(None);
        for ms in (0..400u64).step_by(20) {
            let n = 2 + (ms / 40) as i32;
            let all: Vec<_> = (2..=n).map(|i| candidate(i, ms, RunState::Runnable)).collect();
            assert!(t.look(at(ms), &read(ms, &all)).is_empty(), "at {ms} ms");
        }
        assert!(!t.started());
    }

    #[test]
    fn helpers_that_come_and_go_do_not_hold_up_the_start() {
        let compute = |ms: u64| -> Vec<Candidate> {
            (2..=4).map(|i| candidate(i, ms, RunState::Runnable)).collect()
        };
        // Now more, now fewer.
        let mut t = tracker(None);
        let begins = (0..2_000u64).step_by(20).find(|&ms| {
            let total = 100 + (ms as usize / 20 * 7) % 13;
            !t.look_among(total, at(ms), &read(ms, &compute(ms))).is_empty()
        });
        assert!(begins.is_some_and(|ms| ms <= 600), "{begins:?}");
        // More and more without end.
        let mut t = tracker(None);
        let begins = (0..2_000u64)
            .step_by(20)
            .find(|&ms| !t.look_among(3 + ms as usize, at(ms), &read(ms, &compute(ms))).is_empty());
        assert!(begins.is_some_and(|ms| ms <= 600), "{begins:?}");
    }

    #[test]
    fn the_expected_number_starts_at_once() {
        let mut t = tracker(Some(3));
        let chosen: Vec<usize> =
            (0..6).map(|i| t.look(at(i * 20), &read(i * 20, &program(i * 20))).len()).collect();
        assert_eq!(chosen, [0, 0, 3, 0, 0, 0]);
        let mut t = tracker(Some(4));
        assert!((0..50).all(|i| t.look(at(i * 20), &read(i * 20, &program(i * 20))).is_empty()));
    }

    #[test]
    fn progress_counts_from_when_the_last_thread_was_there() {
        let mut t = tracker(None);
        let mut chosen = Vec::new();
        for ms in (0..600u64).step_by(20) {
            // The first thread has worked alone for 200 ms.
            let mut all = vec![candidate(1, ms, RunState::Runnable)];
            if ms >= 200 {
                all.push(candidate(2, ms - 200, RunState::Runnable));
            }
            chosen.extend(t.look(at(ms), &read(ms, &all)));
        }
        let base: HashMap<i32, u64> =
            chosen.iter().map(|s| (s.thread.id.tid.0, s.baseline.ran.0 / 1_000_000)).collect();
        assert_eq!(base, HashMap::from([(1, 200), (2, 0)]));
    }

    #[test]
    fn real_time_threads_and_re_used_ids() {
        let mut t = tracker(Some(2));
        for ms in (0..200).step_by(20) {
            let all = [99, 2].map(|i| candidate(i, ms, RunState::Runnable));
            assert!(t.look(at(ms), &read(ms, &all)).is_empty());
        }
        // The same tid with another start time is a new thread, with nothing of the old one.
        let mut reused = candidate(2, 0, RunState::Runnable);
        reused.id.start = 2;
        t.look(at(220), &read(220, std::slice::from_ref(&reused)));
        assert!(t.knows(reused.id) && t.threads() == 1);
    }

    #[test]
    fn a_starving_thread_computes_once_it_has_run() {
        let chosen = |ran: u64| -> usize {
            let mut t = tracker(Some(2));
            let looks = (0..100).step_by(20).map(|ms| {
                let starving = candidate(2, ran, RunState::Runnable);
                let all = [starving, candidate(3, ms, RunState::Runnable)];
                t.look(at(ms), &read(ms, &all)).len()
            });
            looks.sum()
        };
        assert_eq!(chosen(1), 2);
        // It has been created, and it is not known what it will do.
        assert_eq!(chosen(0), 0);
    }

    #[test]
    fn a_thread_given_back_is_chosen_again_when_it_computes_again() {
        let mut t = tracker(Some(3));
        for ms in (0..100).step_by(20) {
            t.look(at(ms), &read(ms, &program(ms)));
        }
        let id = candidate(2, 0, RunState::Runnable).id;
        t.idle(id, candidate(2, 60, RunState::Blocked).times, at(100));
        assert!(t.look(at(120), &read(120, &program(90))).is_empty());
        let again: Vec<_> =
            (7..10).flat_map(|i| t.look(at(i * 20), &read(i * 20, &program(i * 20)))).collect();
        assert_eq!(again.len(), 1);
        assert_eq!(again[0].thread.id, id);
    }
}

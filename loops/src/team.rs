//! Threads that carry out loops together.

use crate::MOST_THREADS;
use crate::board::Board;
use crate::crowd::Crowd;
use crate::error::LoopsError;
use crate::gate::{Gate, Patience};
use crossbeam_utils::CachePadded;
use evenly_iterations::Common;
use evenly_model::Nanos;
use std::cell::Cell;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// A thread that waits looks for so long before it sleeps: about what it takes to wake one up.
const SPINS: Duration = Duration::from_micros(50);
/// The same where the team has more threads than there are CPUs: whoever is waited for may need this one.
const SPINS_IN_A_CROWD: Duration = Duration::from_nanos(500);
/// Whoever yields may be without its CPU for a slice of somebody else, which all wait for that has to begin the next loop: of short
/// ones that would be many times what they take. What it gains is that the slice is not in the middle of a task.
const LONG: Nanos = Nanos::from_millis(2);

thread_local! {
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

/// A number of this thread that no other has or had.
pub(crate) fn this_thread() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    THREAD.with(|own| {
        if own.get() == 0 {
            own.set(LAST.fetch_add(1, Relaxed) + 1);
        }
        own.get()
    })
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind it is whole at every step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread of the team has for itself.
#[derive(Debug, Default)]
struct Member {
    /// The loop that it has begun and not ended; 0 is none.
    within: AtomicU32,
    /// Which thread of the program that was.
    thread: AtomicU64,
    /// That thread has ended.
    gone: AtomicBool,
    /// How often it has gathered, and what it gave, this time and the time before.
    gathered: AtomicU32,
    given: [AtomicU64; 2],
}

/// So many threads of the program, which it makes itself: each has a number, from 0 on.
#[derive(Debug)]
pub(crate) struct Shared {
    members: Box<[CachePadded<Member>]>,
    loops: Mutex<Vec<(String, Weak<Board>)>>,
    pub(crate) common: Mutex<Common>,
    arrays: Mutex<Vec<u64>>,
    came: AtomicU32,
    gathered: Gate,
    /// Somebody did not come, and so what others gather is not told apart any longer.
    scattered: AtomicBool,
    crowd: Mutex<Crowd>,
    /// There are more threads than CPUs.
    is_crowd: AtomicBool,
    start: Instant,
    process: u32,
}

impl Drop for Shared {
    fn drop(&mut self) {
        crate::telling::sum_up();
    }
}

impl Shared {
    pub(crate) fn new(threads: usize) -> Result<Self, LoopsError> {
        if !(1..=MOST_THREADS).contains(&threads) {
            return Err(LoopsError::Threads { threads });
        }
        Ok(Self {
            members: (0..threads).map(|_| CachePadded::default()).collect(),
            loops: Mutex::default(),
            common: Mutex::new(Common::new(threads)),
            arrays: Mutex::default(),
            came: AtomicU32::new(0),
            gathered: Gate::default(),
            scattered: AtomicBool::new(false),
            crowd: Mutex::default(),
            is_crowd: AtomicBool::new(false),
            start: Instant::now(),
            process: std::process::id(),
        })
    }

    pub(crate) fn threads(&self) -> usize {
        self.members.len()
    }

    /// What its threads do before they sleep; where they may yield, in a loop whose instances take so long, and in which they
    /// overtake each other or not.
    pub(crate) fn patience(&self, may_yield: Option<(Nanos, bool)>) -> Patience {
        let spins = if self.is_crowd.load(Relaxed) { SPINS_IN_A_CROWD } else { SPINS };
        let yields = may_yield.is_some_and(|(took, overtakes)| overtakes || took >= LONG);
        Patience { spins, yields }
    }

    /// Since the team was made.
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Whether this is a child of the process that made it, and the other threads are not there.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// The number of the array that begins at this address.
    pub(crate) fn array(&self, address: u64) -> u32 {
        let mut arrays = lock(&self.arrays);
        let known = arrays.iter().position(|known| *known == address);
        known.unwrap_or_else(|| {
            arrays.push(address);
            arrays.len() - 1
        }) as u32
    }

    /// The number of a loop: from 1 on, and again that of one which is no more.
    pub(crate) fn add_loop(&self, name: &str, board: &Arc<Board>) -> u32 {
        let mut loops = lock(&self.loops);
        let new = (name.to_owned(), Arc::downgrade(board));
        let free = loops.iter().position(|(_, board)| board.strong_count() == 0);
        match free {
            Some(at) => {
                loops[at] = new;
                at as u32 + 1
            }
            None => {
                loops.push(new);
                loops.len() as u32
            }
        }
    }

    fn name(&self, number: u32) -> String {
        lock(&self.loops)
            .get(number as usize - 1)
            .map_or_else(String::new, |(name, _)| name.clone())
    }

    fn give_up(&self, number: u32, why: &LoopsError) {
        let board =
            lock(&self.loops).get(number as usize - 1).and_then(|(_, board)| board.upgrade());
        if let Some(board) = board {
            board.give_up(why.clone());
        }
    }

    /// Notes that a thread begins a loop. Where it cannot, the loop is given up, and so is the one that it has not ended: others
    /// would wait for it.
    pub(crate) fn enter(&self, thread: usize, number: u32) -> Result<(), LoopsError> {
        let entered = self.note(thread, number);
        if let Err((error, within)) = &entered {
            [Some(number), *within].into_iter().flatten().for_each(|n| self.give_up(n, error));
        }
        entered.map_err(|(error, _)| error)
    }

    fn note(&self, thread: usize, number: u32) -> Result<(), (LoopsError, Option<u32>)> {
        let Some(member) = self.members.get(thread) else {
            let (region, threads) = (self.name(number), self.threads());
            return Err((LoopsError::NoSuchThread { region, thread, threads }, None));
        };
        let own = this_thread();
        if let Err(within) = member.within.compare_exchange(0, number, AcqRel, Acquire) {
            let region = self.name(number);
            let error = if member.thread.load(Acquire) == own {
                LoopsError::Nested { region, thread, within: self.name(within) }
            } else {
                LoopsError::Twice { region, thread }
            };
            return Err((error, Some(within)));
        }
        // Nobody else writes to it meanwhile.
        if member.thread.load(Relaxed) != own {
            member.thread.store(own, Release);
            let is_crowd = lock(&self.crowd).add(thread, self.threads());
            self.is_crowd.store(is_crowd, Relaxed);
        }
        member.gone.store(false, Release);
        Ok(())
    }

    /// Whether that is the thread of the program which this number belongs to.
    pub(crate) fn is(&self, thread: usize, token: u64) -> bool {
        self.members[thread].thread.load(Acquire) == token
    }

    /// The thread of the program which this number belongs to has ended.
    pub(crate) fn ends(&self, thread: usize) {
        self.members[thread].gone.store(true, Release);
    }

    /// It has ended it.
    pub(crate) fn leave(&self, thread: usize) {
        self.members[thread].within.store(0, Release);
    }

    /// Gives each thread what all gave, in their order. All have to come, equally often. None where somebody does not: one that has
    /// ended after it has begun, or all others in a child of the process; or `gives_up` says so.
    pub(crate) fn gather(
        &self,
        thread: usize,
        given: u64,
        has_begun: impl Fn(usize) -> bool,
        gives_up: impl Fn() -> bool,
    ) -> Option<impl Iterator<Item = u64> + '_> {
        let member = &self.members[thread];
        let time = member.gathered.load(Relaxed).wrapping_add(1);
        member.gathered.store(time, Relaxed);
        // What was given the time before may still be read by others; what was before that not: they have come since.
        let place = time as usize % 2;
        member.given[place].store(given, Relaxed);
        let is_gone = |(number, other): (usize, &CachePadded<Member>)| {
            let is_behind = (other.gathered.load(Relaxed).wrapping_sub(time) as i32) < 0;
            is_behind && has_begun(number) && other.gone.load(Acquire)
        };
        if self.came.fetch_add(1, AcqRel) + 1 == self.threads() as u32 {
            self.came.store(0, Relaxed);
            self.gathered.set(time);
        } else {
            self.gathered.wait(time, self.patience(None), || {
                self.scattered.load(Acquire)
                    || self.is_forked()
                    || gives_up()
                    || self.members.iter().enumerate().any(is_gone)
            });
        }
        if !self.gathered.has_reached(time) || self.scattered.load(Acquire) {
            self.scattered.store(true, Release);
            self.gathered.wake();
            return None;
        }
        Some(self.members.iter().map(move |member| member.given[place].load(Relaxed)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// Would catch: a loop that is given up, as a thread that is late has the number of one that has ended.
    #[test]
    fn whoever_ended_before_it_began_is_waited_for() {
        let team = Shared::new(2).unwrap();
        team.ends(1);
        let has_begun = AtomicBool::new(false);
        let (asked, was_asked) = std::sync::mpsc::channel();
        let gathered = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let has_begun = |other| {
                    let _ = asked.send(());
                    other == 0 || has_begun.load(Acquire)
                };
                team.gather(0, 5, has_begun, || false).map(Iterator::collect::<Vec<u64>>)
            });
            was_asked.recv().unwrap();
            team.enter(1, 1).unwrap();
            has_begun.store(true, Release);
            let second = team.gather(1, 7, |_| true, || false).map(Iterator::collect::<Vec<u64>>);
            [first.join().unwrap(), second]
        });
        assert_eq!(gathered, [Some(vec![5, 7]), Some(vec![5, 7])]);
        // One that ended within is not.
        team.ends(1);
        assert!(team.gather(0, 5, |_| true, || false).is_none());
    }
}

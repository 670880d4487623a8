//! Threads that carry out loops together.

use crate::MOST_THREADS;
use crate::board::Board;
use crate::crowd::Crowd;
use crate::ends::HasThreads;
use crate::error::{LoopsError, Reason};
use crate::gate::Patience;
use crate::process;
use crate::watch::{Missing, Order, sleeps_of, tell};
use crossbeam_utils::CachePadded;
use evenly_iterations::{Common, Extent};
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
    /// How many loops it has begun, and which ones last.
    begun: AtomicU32,
    order: Order,
}

/// So many threads of the program, which it makes itself: each has a number, from 0 on.
#[derive(Debug)]
pub(crate) struct Shared {
    members: Box<[CachePadded<Member>]>,
    loops: Mutex<Vec<(String, Weak<Board>)>>,
    pub(crate) common: CachePadded<Mutex<Common>>,
    arrays: Mutex<Vec<(u64, Option<Extent>)>>,
    crowd: Mutex<Crowd>,
    /// There are more threads than CPUs.
    is_crowd: AtomicBool,
    /// No loop was given up so far: after that threads may go on by ways of their own.
    in_order: AtomicBool,
    /// It was told who is missing.
    was_told: AtomicBool,
    start: Instant,
    process: u32,
    forks: u32,
}

impl HasThreads for Shared {
    fn thread_ends(&self, thread: usize) {
        if self.is(thread, this_thread()) {
            self.ends(thread);
        }
    }
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
        process::count_forks();
        Ok(Self {
            members: (0..threads).map(|_| CachePadded::default()).collect(),
            loops: Mutex::default(),
            common: CachePadded::new(Mutex::new(Common::new(threads))),
            arrays: Mutex::default(),
            crowd: Mutex::default(),
            is_crowd: AtomicBool::new(false),
            in_order: AtomicBool::new(true),
            was_told: AtomicBool::new(false),
            start: Instant::now(),
            process: std::process::id(),
            forks: process::forks(),
        })
    }

    pub(crate) fn threads(&self) -> usize {
        self.members.len()
    }

    /// What its threads do before they sleep; where they may yield, in a loop whose instances take so long, and in which they
    /// overtake each other or not.
    pub(crate) fn patience(&self, may_yield: Option<(Nanos, bool)>) -> Patience {
        let spins = if self.is_crowd.load(Relaxed) { SPINS_IN_A_CROWD } else { SPINS };
        let yields = may_yield.filter(|(took, overtakes)| *overtakes || *took >= LONG);
        Patience { spins, yields: yields.map(|(took, _)| took) }
    }

    /// Since the team was made.
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Whether this is a child of the process that made it, and the other threads are not there. By a system call, for whoever
    /// waits.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// The same where C's library knows of it, which takes no time. A team of one thread is there as a whole.
    pub(crate) fn is_known_to_be_forked(&self) -> bool {
        self.forks != process::forks() && self.threads() > 1
    }

    /// The number of the array that begins at this address.
    pub(crate) fn array(&self, address: u64) -> u32 {
        let mut arrays = lock(&self.arrays);
        let known = arrays.iter().position(|(known, _)| *known == address);
        known.unwrap_or_else(|| {
            arrays.push((address, None));
            arrays.len() - 1
        }) as u32
    }

    /// How large an array is from now on, for loops that are made then; None where nobody knows.
    pub(crate) fn set_extent(&self, array: u32, extent: Option<Extent>) {
        if let Some((_, known)) = lock(&self.arrays).get_mut(array as usize) {
            *known = extent;
        }
    }

    /// How large it is.
    pub(crate) fn extent(&self, array: u32) -> Option<Extent> {
        lock(&self.arrays).get(array as usize).and_then(|(_, extent)| extent.clone())
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

    fn board(&self, number: u32) -> Option<Arc<Board>> {
        lock(&self.loops).get(number as usize - 1).and_then(|(_, board)| board.upgrade())
    }

    /// Gives loops up, for the same reason.
    fn give_up(&self, numbers: &[u32], why: &Arc<Reason>) {
        self.loses_order();
        for number in numbers.iter().filter(|number| **number > 0) {
            if let Some(board) = self.board(*number) {
                board.give_up(Arc::clone(why));
            }
        }
    }

    /// A loop is about to be given up.
    pub(crate) fn loses_order(&self) {
        self.in_order.store(false, Release);
    }

    /// Notes that a thread begins a loop; whether the number was not its own before. Where it cannot, the loop is given up, and so
    /// is the one that it has not ended: others would wait for it.
    pub(crate) fn enter(&self, thread: usize, number: u32) -> Result<bool, LoopsError> {
        let entered = self.note(thread, number);
        if let Err((error, within)) = &entered {
            let why = Arc::new(Reason::from(error.clone()));
            self.give_up(&[number, within.unwrap_or(0)], &why);
        }
        entered.map_err(|(error, _)| error)
    }

    fn note(&self, thread: usize, number: u32) -> Result<bool, (LoopsError, Option<u32>)> {
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
        let is_new = member.thread.load(Relaxed) != own;
        if is_new {
            member.thread.store(own, Release);
            let is_crowd = lock(&self.crowd).add(thread, self.threads());
            self.is_crowd.store(is_crowd, Relaxed);
        }
        member.gone.store(false, Release);
        let place = member.begun.load(Relaxed).wrapping_add(1);
        member.order.add(place, number);
        // Whoever sees it sees how often the thread has gathered before.
        member.begun.store(place, Release);
        Ok(is_new)
    }

    /// By a thread that sleeps within a loop: gives up the loops of all where another thread begins them in another order.
    pub(crate) fn keeps_order(&self, thread: usize) {
        let own = &self.members[thread];
        let last = own.begun.load(Relaxed);
        let differs = |(other, member): (usize, &CachePadded<Member>)| {
            own.order.differs(last, &member.order).map(|found| (other, found))
        };
        let found = self.members.iter().enumerate().find_map(differs);
        let Some((other, (place, number, instead))) = found else { return };
        // What was given up before is seen by whoever sees what was begun after it.
        if !self.in_order.load(Acquire) {
            return;
        }
        let both = [number, instead];
        let [region, instead] = both.map(|number| self.name(number));
        let error = LoopsError::Order { region, thread, instead, other, place };
        let all = self.members.iter().map(|member| member.within.load(Acquire));
        self.give_up(&all.chain(both).collect::<Vec<_>>(), &Arc::new(error.into()));
    }

    /// By a thread that has slept so often in `what`: tells once, after so long, of threads that have not done `this`.
    pub(crate) fn misses(
        &self,
        sleeps: u32,
        after: Duration,
        what: impl Fn() -> String,
        this: &str,
        has: impl Fn(usize) -> bool,
    ) {
        if sleeps < sleeps_of(after) || self.was_told.load(Relaxed) {
            return;
        }
        let how = |thread: usize| {
            let member = &self.members[thread];
            if member.begun.load(Acquire) == 0 {
                Missing::Never
            } else if member.gone.load(Acquire) {
                Missing::Ended
            } else {
                Missing::Late
            }
        };
        let absent = (0..self.threads()).filter(|thread| !has(*thread));
        let missing: Vec<_> = absent.map(|thread| (thread, how(thread))).collect();
        if !missing.is_empty() && !self.was_told.swap(true, Relaxed) {
            tell(&what(), after, this, &missing, self.threads());
        }
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

    /// How many loops a thread has begun.
    pub(crate) fn begun(&self, thread: usize) -> u32 {
        self.members[thread].begun.load(Acquire)
    }

    /// Whether a thread has begun a loop after so many, while threads begin loops in the same order.
    pub(crate) fn went_on(&self, thread: usize, begun: u32) -> bool {
        (self.begun(thread).wrapping_sub(begun) as i32) > 0 && self.in_order.load(Acquire)
    }

    /// Whether a thread is in a loop that cannot end before another one begins it, which is in none.
    pub(crate) fn waits_for(&self, thread: usize, other: usize) -> bool {
        let [within, of_other] = [thread, other].map(|i| self.members[i].within.load(Acquire));
        within > 0
            && of_other == 0
            && self.board(within).is_some_and(|board| {
                !(board.overtakes() || board.is_given_up() || board.is_done(thread))
            })
    }

    /// Whether the thread of the program that began a loop last by this number has ended.
    pub(crate) fn is_gone(&self, thread: usize) -> bool {
        self.members[thread].gone.load(Acquire)
    }
}

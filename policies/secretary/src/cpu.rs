//! The balancer of one CPU.
//!
//! Invariant: it reads the threads of its own CPU, once for each wake-up, and others one at a time,
//! each only after it was drawn and found to be a candidate.

use crate::board::{Board, LastReading, Member, Swap};
use crate::decision::{self, Hunt, JITTER, LEAD, is_faster, margin};
use crate::shared::{Published, Share};
use evenly_engine::{LEAST_WANTED, Reader, RunState, Times};
use evenly_model::stats::Random;
use evenly_model::{Nanos, ThreadId};
use evenly_policy::speed::{RESTS, averaged};
use std::sync::Arc;

/// What a balancer wants next.
#[derive(Debug, Clone)]
pub enum Step {
    /// To sleep until its next wake-up.
    Sleep,
    /// To go on with another step at once.
    Again,
    /// This pair to be swapped, by [`Board::swap`]; then to sleep.
    Swap(Swap),
}

/// A thread on its CPU.
#[derive(Debug)]
struct Own {
    member: Arc<Member>,
    last: Times,
    at: Nanos,
    progress: i64,
    rate: f64,
    /// It wanted hardly any of the CPU.
    rests: bool,
}

/// A search under way.
#[derive(Debug)]
struct Search {
    hunt: Hunt,
    ahead: Arc<Member>,
    progress: i64,
    rests: bool,
    /// Speed of the CPU, and by what part it may be wrong.
    speed: (f64, f64),
    /// Mean number of threads on a CPU.
    k: f64,
    /// Part of a thread's time in an interval by which readings may be wrong.
    off: f64,
    /// Threads of other nodes are candidates.
    across: bool,
}

/// Speeds that differ by less than this part are equal: they are published in whole units.
const EQUAL: f64 = 1e-6;
/// How often it is looked whether a CPU that cannot be used can be again.
const UNUSABLE: Nanos = Nanos::from_millis(1_000);
/// With less than this part of an interval observed, what was published last is not replaced.
const LEAST_OBSERVED: f64 = 0.25;

/// The balancer of one CPU.
#[derive(Debug)]
pub struct CpuBalancer {
    seat: usize,
    own: Vec<Own>,
    arrived: Vec<Arc<Member>>,
    members: Arc<[Arc<Member>]>,
    version: u64,
    searcher: decision::Searcher,
    jitter: Random,
    woke: Nanos,
    published: Published,
    speed: Share,
    rates: Share,
    search: Option<Search>,
    is_unusable: bool,
}

impl CpuBalancer {
    pub(crate) fn new(seat: usize, seed: u64, now: Nanos) -> Self {
        let mut seeds = Random::new(seed ^ (seat as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
        Self {
            seat,
            own: Vec::new(),
            arrived: Vec::new(),
            members: Arc::from([]),
            version: 0,
            searcher: decision::Searcher::new(seeds.next_u64()),
            jitter: Random::new(seeds.next_u64()),
            woke: now,
            published: Published::default(),
            speed: Share::default(),
            rates: Share::default(),
            search: None,
            is_unusable: false,
        }
    }

    /// The number of its CPU.
    #[must_use]
    pub fn cpu(&self, board: &Board) -> evenly_model::CpuId {
        board.cpu(self.seat)
    }

    /// When it wakes first, and first again after the board was not active: anywhere in an interval, so
    /// that balancers are spread over it.
    pub fn first_wake(&mut self, now: Nanos, interval: Nanos) -> Nanos {
        self.woke = now;
        now + interval.scale(self.jitter.unit())
    }

    /// When it wakes next, an interval after the last time; with jitter a tenth more or less. Where the
    /// CPU cannot be used, later: a machine can have many that are not there.
    pub fn next_wake(&mut self, interval: Nanos, jitter: bool) -> Nanos {
        let off = if jitter { JITTER * (2.0 * self.jitter.unit() - 1.0) } else { 0.0 };
        let interval = match self.is_unusable {
            false => interval,
            true => interval.max(UNUSABLE),
        };
        self.woke + interval.scale(1.0 + off)
    }

    /// Whether its next step is a wake-up, and not one of a search.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.search.is_none()
    }

    /// One step. After a wake-up that is lines 1 to 4 of OSLB's Figure 3, with the readings of its own
    /// threads; each further one reads one thread of another CPU.
    pub fn step(&mut self, board: &Board, machine: &mut dyn Reader) -> Step {
        let began = machine.now();
        let step = match self.search.take() {
            None => self.wake(board, machine, began),
            Some(search) => self.observe(search, board, machine, began),
        };
        board.took_to_read(machine.now() - began);
        step
    }

    fn wake(&mut self, board: &Board, machine: &mut dyn Reader, now: Nanos) -> Step {
        let interval = board.interval();
        let elapsed = (now - self.woke).0.max(1) as f64;
        self.woke = now;
        board.woke();
        if let Some(members) = board.members_since(&mut self.version) {
            self.members = members;
        }
        self.take_in(board);
        let seen = self.read_own(board, machine);
        self.is_unusable = !board.is_usable(self.seat);
        if self.is_unusable || self.own.is_empty() {
            self.publish_nothing(board);
            return Step::Sleep;
        }
        let rates = Share::many(self.own.iter().map(|o| o.rate));
        board.rates.replace(&mut self.rates, rates);
        let cpus = board.speeds.count().max(1);
        let k = (board.rates.count() as f64 / cpus as f64).max(1.0);
        let off = machine.resolution().0 as f64 / elapsed.min(interval.0 as f64).max(1.0);
        self.publish(board, &seen, k * off);
        let Some((mean_speed, _)) = board.speeds.get() else { return Step::Sleep };
        if !board.active()
            || self.published.speed <= mean_speed * (1.0 + EQUAL)
            || board.on_slow() == 0
        {
            return Step::Sleep;
        }
        self.begin_search(board, now, k, off).map_or(Step::Sleep, |search| {
            self.search = Some(search);
            Step::Again
        })
    }

    /// Adds threads that have come to the CPU, and drops those that have left it.
    fn take_in(&mut self, board: &Board) {
        let (seat, own) = (self.seat, &mut self.own);
        own.retain(|o| o.member.seat() == Some(seat));
        board.arrivals(seat, &mut self.arrived);
        for member in self.arrived.drain(..) {
            // It may have left again, and have come again.
            let known = own.iter().any(|o| Arc::ptr_eq(&o.member, &member));
            if known || member.seat() != Some(seat) {
                continue;
            }
            let LastReading { times, at, progress, gone } = member.account();
            if !gone {
                own.push(Own { member, last: times, at, progress, rate: 0.0, rests: false });
            }
        }
    }

    /// Reads all of its own threads.
    fn read_own(&mut self, board: &Board, machine: &mut dyn Reader) -> Seen {
        let mut seen = Seen::default();
        self.own.retain_mut(|o| {
            let Some(a) = o.member.read(board, machine) else { return false };
            let elapsed = a.at - o.at;
            let ran = Nanos(a.times.ran.0.saturating_sub(o.last.ran.0)).min(elapsed);
            let waited = Nanos(a.times.waited.0.saturating_sub(o.last.waited.0));
            // The kernel books waiting when it ends: some may belong to earlier, and of a thread that
            // waits at this moment some is not booked yet.
            let mut waited = waited.min(elapsed - ran);
            if (ran + waited).0 * 4 < elapsed.0 && is_runnable(machine, o.member.id) {
                waited = elapsed - ran;
            }
            seen.ran += ran;
            seen.wanted += ran + waited;
            seen.longest = seen.longest.max(elapsed);
            o.rests = ((ran + waited).0 as f64) < RESTS * elapsed.0 as f64;
            (o.last, o.at, o.progress, o.rate) = (a.times, a.at, a.progress, board.rate(&a));
            true
        });
        seen
    }

    /// Lines 1 and 2 of Figure 3.
    fn publish(&mut self, board: &Board, seen: &Seen, noise: f64) {
        let threads = self.own.len() as u32;
        let before = self.published;
        let enough = seen.longest.0 as f64 >= LEAST_OBSERVED * board.interval().0 as f64;
        let (mut speed, mut taken) = (before.speed, before.samples);
        if enough || before.threads == 0 {
            let wanted = seen.wanted.0 as f64 > LEAST_WANTED * seen.longest.0 as f64;
            // One whose threads all rest has room.
            let now = if wanted { seen.ran.0 as f64 / seen.wanted.0 as f64 } else { 1.0 };
            let now = now * board.weight(self.seat);
            let of_these = if before.threads == threads { before.samples } else { 0 };
            (speed, taken) = averaged((before.speed, of_these), now, noise);
        }
        board.speeds.replace(&mut self.speed, Share::one(speed));
        let mean = board.speeds.get().map_or(speed, |(mean, _)| mean);
        let slow = speed < mean * (1.0 - EQUAL);
        let new = Published { speed, threads, samples: taken, slow };
        board.publish(self.seat, &mut self.published, new);
    }

    fn publish_nothing(&mut self, board: &Board) {
        if self.published.threads > 0 {
            board.speeds.replace(&mut self.speed, Share::default());
            board.rates.replace(&mut self.rates, Share::default());
            board.publish(self.seat, &mut self.published, Published::default());
        }
    }

    /// Lines 3 and 4 of Figure 3.
    fn begin_search(&mut self, board: &Board, now: Nanos, k: f64, off: f64) -> Option<Search> {
        let (mean, _) = board.rates.get()?;
        let stay = board.stay();
        let may = |o: &&Own| o.member.may_move(now, stay);
        // A thread that rests loses nothing if it leaves.
        let ahead = self.own.iter().filter(may).max_by_key(|o| (o.rests, o.progress))?;
        if !ahead.rests && ahead.rate <= mean {
            return None;
        }
        let candidates = board.on_slow() as usize;
        let hunt = self.searcher.begin(ahead.rate.max(mean), mean, self.members.len(), candidates);
        Some(Search {
            hunt,
            ahead: ahead.member.clone(),
            progress: ahead.progress,
            rests: ahead.rests,
            speed: (self.published.speed, off / f64::from(self.published.samples.max(1))),
            k,
            off,
            across: board.may_cross(now),
        })
    }

    /// Line 5: draws threads until one is a candidate, and reads it.
    fn observe(
        &mut self,
        mut search: Search,
        board: &Board,
        machine: &mut dyn Reader,
        now: Nanos,
    ) -> Step {
        let members = self.members.clone();
        while let Some(drawn) = search.hunt.draw() {
            let Some(member) = members.get(drawn) else { continue };
            if !self.is_candidate(&search, member, board, now) {
                continue;
            }
            let Some(account) = member.read(board, machine) else { continue };
            board.observed();
            search.hunt.saw(drawn, board.rate(&account));
            self.search = Some(search);
            return Step::Again;
        }
        self.decide(&search, board, machine)
    }

    /// Whether a thread may be what is looked for, as far as is known without reading it.
    fn is_candidate(&self, search: &Search, member: &Member, board: &Board, now: Nanos) -> bool {
        let Some(there) = member.seat().filter(|&s| s != self.seat) else { return false };
        let of = board.published(there);
        let known = board.capacity(self.seat) > board.capacity(there);
        let other = (of.speed, search.off / f64::from(of.samples.max(1)));
        of.threads > 0
            && is_faster(search.speed, other, margin(search.k, known))
            && (search.across || board.same_node(self.seat, there))
            && member.may_move(now, board.stay())
            && member.allows(board.cpu(self.seat))
            && search.ahead.allows(board.cpu(there))
    }

    /// Line 6, where a thread was found that it pays to swap with.
    fn decide(&self, search: &Search, board: &Board, machine: &dyn Reader) -> Step {
        let outcome = search.hunt.outcome();
        board.searched(outcome.readings as u64, self.members.len() as u64);
        let Some(behind) = outcome.found.and_then(|t| self.members.get(t)) else {
            return Step::Sleep;
        };
        let lead = search.progress - behind.account().progress;
        let least = (LEAD * machine.resolution().0 as f64) as i64;
        let Some(there) = behind.seat().filter(|&s| s != self.seat) else { return Step::Sleep };
        if !search.rests && lead <= least {
            return Step::Sleep;
        }
        Step::Swap(Swap {
            ahead: search.ahead.clone(),
            behind: behind.clone(),
            here: self.seat,
            there,
        })
    }
}

/// What the threads of a CPU did since they were read last.
#[derive(Debug, Default)]
struct Seen {
    ran: Nanos,
    wanted: Nanos,
    longest: Nanos,
}

fn is_runnable(machine: &mut dyn Reader, id: ThreadId) -> bool {
    machine.locate(id).is_some_and(|l| l.state == RunState::Runnable)
}

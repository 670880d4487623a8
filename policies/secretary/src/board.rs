//! What the balancers of all CPUs share.
//!
//! Invariant: a lock here is held for one reading of one thread, or for as long as it takes to push or
//! take a list; never while another is waited for.

use crate::decision::SETTLED;
use crate::shared::{Claim, Mean, MoveRate, Published, PublishedCell, ThreadCell};
use evenly_engine::{
    Action, Actuator, ApplyError, CostBreakdown, Failure, Machine, MoveRecord, Reader, Reading,
    Times, perform,
};
use evenly_model::Effort;
use evenly_model::{CpuId, CpuSet, CpuView, FULL_CAPACITY, Nanos, Reason, ThreadId};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The migration rate is high while more than this part of the threads was moved within a period: then
/// no thread goes from one node to another (OSLB, section 3.2).
pub const HIGH_RATE: f64 = 0.25;

/// A thread that is on none of the CPUs.
const NOWHERE: u32 = u32::MAX;
/// Balancing has not begun.
const NEVER: u64 = u64::MAX;

fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What is known of a thread's times from their last reading.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LastReading {
    pub(crate) times: Times,
    /// When they were read.
    pub(crate) at: Nanos,
    /// P of the paper (Juggle, section 2.1).
    pub(crate) progress: i64,
    pub(crate) gone: bool,
}

/// A thread, as balancers see it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: ThreadId,
    /// Where it may run.
    mask: Arc<CpuSet>,
    cell: ThreadCell,
    movable: AtomicBool,
    migrations: AtomicU64,
    account: Mutex<LastReading>,
}

impl Member {
    pub(crate) fn account(&self) -> LastReading {
        *locked(&self.account)
    }

    /// Its CPU, as the number of a seat; None where it is on none of them.
    pub(crate) fn seat(&self) -> Option<usize> {
        let place = self.cell.place();
        (place != NOWHERE).then_some(place as usize)
    }

    pub(crate) fn set_movable(&self, movable: bool) {
        self.movable.store(movable, Relaxed);
    }

    pub(crate) fn migrations(&self) -> u64 {
        self.migrations.load(Relaxed)
    }

    /// Reads its times and books them. None where it has ended; what was known where it cannot be
    /// read this time.
    pub(crate) fn read(&self, board: &Board, machine: &mut dyn Reader) -> Option<LastReading> {
        let mut a = locked(&self.account);
        let times = match machine.read_one(self.id) {
            Reading::Times(times) => times,
            // What is known of it is what was read last.
            Reading::Unknown => return Some(*a),
            Reading::Gone => {
                a.gone = true;
                board.call();
                return None;
            }
        };
        // Where counters went back, another thread has taken over this id by exec.
        let ran = if times.ran < a.times.ran { Nanos::ZERO } else { times.ran - a.times.ran };
        let weight = self.seat().map_or(1.0, |s| board.weight(s));
        a.progress += ran.scale(weight).0 as i64;
        (a.times, a.at) = (times, machine.now());
        Some(*a)
    }

    /// Whether a balancer may move it now, as far as is known.
    pub(crate) fn may_move(&self, now: Nanos, stay: Nanos) -> bool {
        self.movable.load(Relaxed) && self.cell.may_be_claimed(now, stay)
    }

    pub(crate) fn allows(&self, cpu: CpuId) -> bool {
        self.mask.contains(cpu)
    }
}

/// A CPU and what its balancer has published.
#[derive(Debug)]
struct Seat {
    cpu: CpuId,
    /// Which node it belongs to.
    node: u32,
    usable: AtomicBool,
    capacity: AtomicU32,
    published: PublishedCell,
    /// Threads that have come since its balancer last looked.
    arrivals: Mutex<Vec<Arc<Member>>>,
}

/// A pair to be swapped, as one balancer has chosen it.
#[derive(Debug, Clone)]
pub struct Swap {
    pub(crate) ahead: Arc<Member>,
    pub(crate) behind: Arc<Member>,
    /// The seats that they were seen on.
    pub(crate) here: usize,
    pub(crate) there: usize,
}

/// One of the two threads of a swap.
struct Half<'a> {
    member: &'a Arc<Member>,
    claim: Claim<'a>,
    from: usize,
    to: usize,
    reason: Reason,
}

impl Half<'_> {
    /// It is let off its CPU.
    fn freed(&self) -> Action {
        Action::Confine { thread: self.member.id, within: self.member.mask.clone() }
    }
}

/// What the searches have cost, counted by all balancers.
#[derive(Debug, Default)]
struct Counts {
    wakes: AtomicU64,
    searches: AtomicU64,
    observations: AtomicU64,
    threads: AtomicU64,
    most: AtomicU64,
    migrations: AtomicU64,
    failed: AtomicU64,
    read_ns: AtomicU64,
    apply_ns: AtomicU64,
    cpu_ns: AtomicU64,
}

/// What the balancers of all CPUs share.
pub struct Board {
    seats: Vec<Seat>,
    several_nodes: bool,
    /// Speeds of CPUs: the global core speed.
    pub(crate) speeds: Mean,
    /// Progress of threads over the time since balancing began.
    pub(crate) rates: Mean,
    /// Threads on CPUs that are slower than the mean.
    on_slow: AtomicU64,
    moves: MoveRate,
    active: AtomicBool,
    activations: AtomicU64,
    began: AtomicU64,
    interval: AtomicU64,
    /// All threads, as a list that is replaced as a whole.
    members: Mutex<Arc<[Arc<Member>]>>,
    version: AtomicU64,
    /// Something has happened that the caretaker should look at.
    called: AtomicBool,
    counts: Counts,
    logs: AtomicBool,
    log: Mutex<Vec<MoveRecord>>,
    failures: Mutex<Vec<Failure>>,
}

impl Board {
    /// For these CPUs; those of one node are balanced among each other also while many threads move.
    /// Without nodes all are of one.
    #[must_use]
    pub(crate) fn new(cpus: &CpuSet, nodes: &[CpuSet], interval: Nanos) -> Self {
        let node = |cpu| nodes.iter().position(|n| n.contains(cpu)).map_or(0, |n| n as u32 + 1);
        let seats: Vec<Seat> = cpus
            .iter()
            .map(|cpu| Seat {
                cpu,
                node: node(cpu),
                usable: AtomicBool::new(false),
                capacity: AtomicU32::new(FULL_CAPACITY),
                published: PublishedCell::default(),
                arrivals: Mutex::default(),
            })
            .collect();
        Self {
            several_nodes: seats.iter().any(|s| s.node != seats[0].node),
            seats,
            speeds: Mean::default(),
            rates: Mean::default(),
            on_slow: AtomicU64::new(0),
            moves: MoveRate::default(),
            active: AtomicBool::new(false),
            activations: AtomicU64::new(0),
            began: AtomicU64::new(NEVER),
            interval: AtomicU64::new(interval.0),
            members: Mutex::new(Arc::from([])),
            version: AtomicU64::new(0),
            called: AtomicBool::new(false),
            counts: Counts::default(),
            logs: AtomicBool::new(false),
            log: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// The present lambda: the time between two wake-ups of a balancer.
    #[must_use]
    pub fn interval(&self) -> Nanos {
        Nanos(self.interval.load(Relaxed))
    }

    /// Lambda from now on.
    pub fn set_interval(&self, interval: Nanos) {
        self.interval.store(interval.0.max(1), Relaxed);
    }

    /// Whether balancers swap threads now. While they do not they need not be woken: the caretaker reads
    /// what they do not.
    #[must_use]
    pub fn active(&self) -> bool {
        self.active.load(Acquire)
    }

    /// How often it has become active. What wakes balancers goes by this: one that looked while the
    /// board was not active, if only for a moment within a point of the caretaker, sleeps until woken.
    #[must_use]
    pub fn activations(&self) -> u64 {
        self.activations.load(Relaxed)
    }

    /// What the searches have cost so far.
    #[must_use]
    pub fn effort(&self) -> Effort {
        let c = &self.counts;
        Effort {
            searches: c.searches.load(Relaxed),
            readings: c.observations.load(Relaxed),
            threads: c.threads.load(Relaxed),
            most: c.most.load(Relaxed),
        }
    }

    /// Wake-ups of all balancers.
    #[must_use]
    pub fn wakes(&self) -> u64 {
        self.counts.wakes.load(Relaxed)
    }

    /// Threads moved by balancers.
    #[must_use]
    pub fn migrations(&self) -> u64 {
        self.counts.migrations.load(Relaxed)
    }

    /// Whether the caretaker has been called since its last point: a thread has ended, or could not be
    /// moved.
    #[must_use]
    pub fn called(&self) -> bool {
        self.called.load(Relaxed)
    }

    pub(crate) fn answered(&self) {
        self.called.store(false, Relaxed);
    }

    pub(crate) fn call(&self) {
        self.called.store(true, Relaxed);
    }

    /// Adds the CPU time that balancers took.
    pub fn took(&self, cpu: Nanos) {
        self.counts.cpu_ns.fetch_add(cpu.0, Relaxed);
    }

    /// CPU time that balancers took so far.
    pub(crate) fn cpu_time(&self) -> Nanos {
        Nanos(self.counts.cpu_ns.load(Relaxed))
    }

    pub(crate) fn cost(&self) -> CostBreakdown {
        CostBreakdown {
            read: Nanos(self.counts.read_ns.load(Relaxed)),
            apply: Nanos(self.counts.apply_ns.load(Relaxed)),
            ..CostBreakdown::default()
        }
    }

    pub(crate) fn failed(&self) -> u64 {
        self.counts.failed.load(Relaxed)
    }

    // For the balancers of CPUs.

    pub(crate) fn seats(&self) -> usize {
        self.seats.len()
    }

    pub(crate) fn cpu(&self, seat: usize) -> CpuId {
        self.seats[seat].cpu
    }

    pub(crate) fn is_usable(&self, seat: usize) -> bool {
        self.seats[seat].usable.load(Relaxed)
    }

    pub(crate) fn weight(&self, seat: usize) -> f64 {
        f64::from(self.capacity(seat)) / f64::from(FULL_CAPACITY)
    }

    pub(crate) fn capacity(&self, seat: usize) -> u32 {
        self.seats[seat].capacity.load(Relaxed)
    }

    pub(crate) fn published(&self, seat: usize) -> Published {
        self.seats[seat].published.get()
    }

    /// Publishes what is known of a CPU, where `before` was published last.
    pub(crate) fn publish(&self, seat: usize, before: &mut Published, new: Published) {
        let on_slow = |p: &Published| if p.slow { u64::from(p.threads) } else { 0 };
        // A difference, as in `Mean`.
        self.on_slow.fetch_add(on_slow(&new).wrapping_sub(on_slow(before)), Relaxed);
        self.seats[seat].published.set(new);
        *before = new;
    }

    pub(crate) fn on_slow(&self) -> u64 {
        self.on_slow.load(Relaxed)
    }

    /// A thread that was moved stays for this long.
    pub(crate) fn stay(&self) -> Nanos {
        self.interval().scale(SETTLED)
    }

    /// Progress over the time since balancing began.
    pub(crate) fn rate(&self, a: &LastReading) -> f64 {
        let began = self.began.load(Relaxed);
        if began == NEVER {
            return 0.0;
        }
        a.progress.max(0) as f64 / (a.at - Nanos(began)).0.max(1) as f64
    }

    /// Whether threads may go to another node: not while many move (3.2).
    pub(crate) fn may_cross(&self, now: Nanos) -> bool {
        let most = HIGH_RATE * self.rates.count() as f64;
        self.moves.recent(now, self.interval()) as f64 <= most
    }

    pub(crate) fn same_node(&self, a: usize, b: usize) -> bool {
        !self.several_nodes || self.seats[a].node == self.seats[b].node
    }

    pub(crate) fn arrivals(&self, seat: usize, into: &mut Vec<Arc<Member>>) {
        into.append(&mut locked(&self.seats[seat].arrivals));
    }

    /// The list of all threads, if it is another than that of this version.
    pub(crate) fn members_since(&self, version: &mut u64) -> Option<Arc<[Arc<Member>]>> {
        let newest = self.version.load(Acquire);
        if newest == *version {
            return None;
        }
        *version = newest;
        Some(locked(&self.members).clone())
    }

    pub(crate) fn woke(&self) {
        self.counts.wakes.fetch_add(1, Relaxed);
    }

    pub(crate) fn observed(&self) {
        self.counts.observations.fetch_add(1, Relaxed);
    }

    pub(crate) fn searched(&self, readings: u64, threads: u64) {
        let c = &self.counts;
        c.searches.fetch_add(1, Relaxed);
        c.threads.fetch_add(threads, Relaxed);
        c.most.fetch_max(readings, Relaxed);
    }

    pub(crate) fn took_to_read(&self, time: Nanos) {
        self.counts.read_ns.fetch_add(time.0, Relaxed);
    }

    /// Swaps two threads, if that is still possible: no other balancer has claimed or moved either of them,
    /// and both are where they were seen. `machine` is the one through which masks are changed; no
    /// other may change them meanwhile. Returns whether they were swapped.
    pub fn swap(&self, swap: &Swap, machine: &mut dyn Machine) -> bool {
        let began = machine.now();
        let done = self.try_swap(swap, machine, began);
        self.counts.apply_ns.fetch_add((machine.now() - began).0, Relaxed);
        done
    }

    fn try_swap(&self, swap: &Swap, machine: &mut dyn Machine, now: Nanos) -> bool {
        let Swap { ahead, behind, here, there } = swap;
        let stay = self.stay();
        // Claimed before it is asked whether the board is active: the one that makes it inactive has the
        // machine, as we have it now.
        let Some(behind_claim) = behind.cell.claim(now, stay) else { return false };
        let Some(ahead_claim) = ahead.cell.claim(now, stay) else { return false };
        let as_seen = behind.seat() == Some(*there) && ahead.seat() == Some(*here);
        let movable = |m: &Member| m.movable.load(Relaxed);
        if !self.active() || !as_seen || !movable(ahead) || !movable(behind) {
            return false;
        }
        let behind = Half {
            member: behind,
            claim: behind_claim,
            from: *there,
            to: *here,
            reason: Reason::Behind,
        };
        let ahead = Half {
            member: ahead,
            claim: ahead_claim,
            from: *here,
            to: *there,
            reason: Reason::Ahead,
        };
        // No CPU is to be unused in between (promise P2). A thread that shares its CPU goes first.
        // Where both are alone, one is let off its CPU before: it stays where it is until it is moved,
        // and may use the other's as well.
        let (shared_here, shared_there) = (self.shares(*here), self.shares(*there));
        let (first, second) =
            if shared_here && !shared_there { (ahead, behind) } else { (behind, ahead) };
        let free = !shared_here && !shared_there;
        if free && let Err(e) = perform(machine, &second.freed()) {
            self.failed_to_move(second.member, e);
            return false;
        }
        if let Err(e) = self.place(machine, first.member, first.from, first.to, first.reason) {
            self.failed_to_move(first.member, e);
            if free {
                self.stays(machine, &second);
            }
            return false;
        }
        match self.place(machine, second.member, second.from, second.to, second.reason) {
            Ok(()) => {
                self.arrives(first, now);
                self.arrives(second, now);
                self.moves.note(now, self.interval(), 2);
                true
            }
            Err(e) => {
                // The other goes back. Where that cannot be either, or one has ended, numbers of
                // threads are no longer even, and the caretaker spreads them.
                let alone = e == ApplyError::Gone;
                self.failed_to_move(second.member, e);
                if alone || self.back(machine, &first).is_err() {
                    self.arrives(first, now);
                }
                if free && !alone {
                    self.stays(machine, &second);
                }
                false
            }
        }
    }

    fn back(&self, machine: &mut dyn Actuator, half: &Half<'_>) -> Result<(), ApplyError> {
        self.place(machine, half.member, half.to, half.from, Reason::Spread)
    }

    /// Whether its CPU has more than one thread now. Threads are counted and not what its balancer has published:
    /// that is as old as its last wake-up, and swaps that half failed have changed numbers since. One that has
    /// ended and was not read since still counts.
    fn shares(&self, seat: usize) -> bool {
        let members = locked(&self.members).clone();
        let mut there = members.iter().filter(|m| m.seat() == Some(seat) && !m.account().gone);
        there.nth(1).is_some()
    }

    /// A thread that was let off its CPU is pinned there again. Where that cannot be, it roams until it
    /// is moved next.
    fn stays(&self, machine: &mut dyn Actuator, half: &Half<'_>) {
        let _ = perform(machine, &self.pin(half.member, half.from));
    }

    /// The thread is on its new CPU now.
    fn arrives(&self, half: Half<'_>, now: Nanos) {
        half.claim.moved(now, half.to as u32);
        self.arrive(half.member, half.to);
    }

    fn pin(&self, member: &Member, seat: usize) -> Action {
        Action::Pin { thread: member.id, cpu: self.cpu(seat) }
    }

    fn place(
        &self,
        machine: &mut dyn Actuator,
        member: &Member,
        from: usize,
        to: usize,
        reason: Reason,
    ) -> Result<(), ApplyError> {
        let result = perform(machine, &self.pin(member, to)).map(drop);
        if result == Err(ApplyError::Gone) {
            return result;
        }
        match &result {
            Ok(()) => {
                member.migrations.fetch_add(1, Relaxed);
                self.counts.migrations.fetch_add(1, Relaxed);
            }
            Err(_) => {
                self.counts.failed.fetch_add(1, Relaxed);
            }
        }
        if self.logs.load(Relaxed) {
            let error = result.as_ref().err().map(ToString::to_string);
            let (from, to) = (self.cpu(from), self.cpu(to));
            locked(&self.log).push(MoveRecord { id: member.id, from, to, reason, error });
        }
        result
    }

    fn failed_to_move(&self, member: &Member, error: ApplyError) {
        self.call();
        if matches!(error, ApplyError::Foreign { .. } | ApplyError::Refused(_)) {
            member.set_movable(false);
        }
        if error != ApplyError::Gone {
            locked(&self.failures).push(Failure { thread: member.id, error });
        }
    }

    fn arrive(&self, member: &Arc<Member>, seat: usize) {
        locked(&self.seats[seat].arrivals).push(member.clone());
    }

    // For the caretaker.

    /// A thread that joins, with its mask within the domain, its times and when they were read. With
    /// no progress given it begins at the mean of the others.
    pub(crate) fn join(
        &self,
        id: ThreadId,
        mask: Arc<CpuSet>,
        times: Times,
        at: Nanos,
        progress: Option<i64>,
    ) -> Arc<Member> {
        let began = self.began.load(Relaxed);
        let level = || {
            let age = if began == NEVER { Nanos::ZERO } else { at - Nanos(began) };
            let rate = self.rates.get().map_or(0.0, |(mean, _)| mean);
            age.scale(rate).0 as i64
        };
        let progress = progress.unwrap_or_else(level);
        Arc::new(Member {
            id,
            mask,
            cell: ThreadCell::new(NOWHERE),
            movable: AtomicBool::new(false),
            migrations: AtomicU64::new(0),
            account: Mutex::new(LastReading { times, at, progress, gone: false }),
        })
    }

    /// The threads from now on.
    pub(crate) fn set_members(&self, members: impl Iterator<Item = Arc<Member>>) {
        *locked(&self.members) = members.collect();
        self.version.fetch_add(1, Release);
    }

    /// The thread is there now: the caretaker or the kernel has moved it.
    pub(crate) fn put(&self, member: &Arc<Member>, cpu: Option<CpuId>) {
        let seat = cpu.and_then(|c| self.seats.binary_search_by_key(&c, |s| s.cpu).ok());
        if seat == member.seat() {
            return;
        }
        member.cell.set_place(seat.map_or(NOWHERE, |s| s as u32));
        if let Some(seat) = seat {
            self.arrive(member, seat);
        }
    }

    /// The CPUs that can be used from now on, sorted. Of the others it stands what was known of their
    /// capacity.
    pub(crate) fn set_cpus(&self, usable: &[CpuView]) {
        for s in &self.seats {
            let found = usable.binary_search_by_key(&s.cpu, |c| c.id);
            s.usable.store(found.is_ok(), Relaxed);
            if let Ok(c) = found {
                s.capacity.store(usable[c].capacity, Relaxed);
            }
        }
    }

    /// The speed that a CPU's balancer has published, from 0 to 1 whatever its capacity.
    pub(crate) fn speed(&self, cpu: CpuId) -> Option<f64> {
        let seat = self.seats.binary_search_by_key(&cpu, |s| s.cpu).ok()?;
        let p = self.published(seat);
        (p.threads > 0).then(|| p.speed / self.weight(seat))
    }

    /// Lets balancers swap threads, or not. For the one that has the machine that changes masks.
    pub(crate) fn set_active(&self, active: bool) {
        if !self.active.swap(active, Release) && active {
            self.activations.fetch_add(1, Relaxed);
        }
    }

    /// Balancing begins: progress is looked at over the time since `began`.
    pub(crate) fn begin(&self, began: Nanos) {
        // Only the first time.
        let _ = self.began.compare_exchange(NEVER, began.0, Relaxed, Relaxed);
    }

    /// Whether moves are to be kept for [`Board::take_log`].
    pub(crate) fn keep_log(&self, keep: bool) {
        self.logs.store(keep, Relaxed);
    }

    pub(crate) fn take_log(&self) -> Vec<MoveRecord> {
        std::mem::take(&mut *locked(&self.log))
    }

    pub(crate) fn take_failures(&self) -> Vec<Failure> {
        std::mem::take(&mut *locked(&self.failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_it_becomes_active_is_counted() {
        let board = Board::new(&CpuSet::from_iter([CpuId(0)]), &[], Nanos::from_millis(10));
        let counts = [false, true, true, false, true].map(|active| {
            board.set_active(active);
            board.activations()
        });
        assert_eq!(counts, [0, 1, 1, 1, 2]);
    }
}

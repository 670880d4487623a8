//! A loop, and the part of a thread in an instance of it.

use crate::board::{Begun, Board};
use crate::ends;
use crate::error::LoopsError;
use crate::gate::Patience;
use crate::gathering::Gathering;
use crate::pending::{Marks, Pending, SHORT, Seen, TOGETHER, makespan};
use crate::shown::{How, Shown};
use crate::team::{Shared, lock};
use crate::telling::Teller;
use crate::watch::{LATE, STAYS};
use crossbeam_utils::CachePadded;
use evenly_iterations::{
    ArrayId, Bounds, Common, Extent, Measured, Memory, Outside, Policy, Region as Declared,
    Scheduler, Section, Tasks,
};
use evenly_model::Nanos;
use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex};

/// A thread takes so many of its tasks at once, as others may take theirs from it, that they are about so long: each time it asks
/// takes some ten ns.
const PIECE: Nanos = Nanos::from_micros(10);

/// Bytes of a cache line: so many are moved between CPUs together.
pub const LINE_BYTES: u64 = 64;

/// What a thread has done in a loop. Written by itself.
#[derive(Debug, Default)]
struct Lane {
    instance: AtomicU32,
    /// In all instances: iterations, and the time that they took.
    all: AtomicU64,
    busy_ns: AtomicU64,
    marks: Marks,
}

/// What all threads read in each instance, and is seldom written.
#[derive(Debug, Default)]
struct Seldom {
    /// The last two instances had the same bounds.
    repeats: AtomicBool,
    /// About what instances take if no thread is kept from its CPU, or less.
    took_ns: AtomicU64,
    /// The last instance that the scheduler was told of, and the last in which tasks were stolen.
    told: AtomicU32,
    stolen: AtomicU32,
}

/// A parallel loop, of which the threads of a team carry out instance after instance.
#[derive(Debug)]
pub struct Region {
    name: String,
    number: u32,
    team: Arc<Shared>,
    board: Arc<Board>,
    shown: Shown,
    lanes: Box<[CachePadded<Lane>]>,
    gathering: Gathering,
    scheduler: CachePadded<Mutex<Scheduler>>,
    /// Where the array is by which iterations are placed.
    address: u64,
    /// What it uses of arrays whose size is known: each with where the array is, and its size.
    within: Box<[(Section, u64, Extent)]>,
    seldom: CachePadded<Seldom>,
    pending: CachePadded<Mutex<Pending>>,
    teller: Option<Teller>,
}

impl Region {
    pub(crate) fn new(
        team: Arc<Shared>,
        name: &str,
        declared: Declared,
        policy: Policy,
        overtakes: bool,
        addresses: &[(ArrayId, u64)],
    ) -> Self {
        let threads = team.threads();
        let board = Arc::new(Board::new(threads, overtakes));
        let main = declared.main().map(|section: &Section| section.array);
        let address_of = |of: ArrayId| addresses.iter().find(|(array, _)| *array == of);
        let address_of = |array| address_of(array).map_or(0, |(_, address)| *address);
        let sized = |s: &Section| Some((*s, address_of(s.array), team.extent(s.array.0)?));
        Self {
            name: name.to_owned(),
            number: team.add_loop(name, &board),
            board,
            shown: Shown::new(threads),
            lanes: (0..threads).map(|_| CachePadded::default()).collect(),
            gathering: Gathering::new(threads),
            address: main.map_or(0, address_of),
            within: declared.sections.iter().filter_map(sized).collect(),
            scheduler: CachePadded::new(Mutex::new(Scheduler::new(
                declared,
                policy,
                Memory::of_one_node(threads, LINE_BYTES),
            ))),
            team,
            seldom: CachePadded::default(),
            pending: CachePadded::default(),
            teller: Teller::new(name, threads),
        }
    }

    /// As it was declared.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Begins an instance. All threads of the team do so, with the same bounds.
    ///
    /// # Errors
    /// See [`LoopsError`]. The loop is given up, for all threads, where they disagree about its bounds.
    pub fn begin(&self, thread: usize, bounds: Bounds) -> Result<Turn<'_>, LoopsError> {
        self.enter(thread, bounds).map(|state| Turn { region: self, state })
    }

    pub(crate) fn enter(&self, thread: usize, bounds: Bounds) -> Result<State, LoopsError> {
        // No lock is taken before, which a thread may have that is not there.
        if self.team.is_known_to_be_forked() {
            return Err(self.why_not());
        }
        if bounds.stride == 0 {
            let error = LoopsError::Stride { region: self.name.clone() };
            self.give_up(error.clone());
            return Err(error);
        }
        if self.team.enter(thread, self.number)? {
            ends::joins(Arc::<Shared>::downgrade(&self.team), thread);
        }
        let lane = &self.lanes[thread];
        let instance = lane.instance.load(Relaxed).wrapping_add(1);
        lane.marks.begin(instance, self.team.now_ns());
        lane.instance.store(instance, Release);
        let set_up = || self.set_up(instance, bounds);
        let forked = || self.team.is_forked();
        let (patience, is_same) = (self.patience(None), || self.shown.bounds() == bounds);
        let completes = match self.board.begin(thread, instance, patience, is_same, set_up, forked)
        {
            Begun::Within(completes) => completes,
            Begun::Late => return Ok(self.late(thread, instance, bounds)),
            Begun::Disagrees => return Err(self.disagrees(thread, bounds, self.shown.bounds())),
            Begun::GivenUp => {
                self.team.leave(thread);
                return Err(self.why_not());
            }
        };
        let all = self.shown.bounds();
        let (tasks, hands_out) = (self.shown.tasks(), self.shown.hands_out());
        let (piece, own) = (self.piece(thread), 0..self.shown.length(thread));
        if !self.board.is_at(instance) {
            // All of it was carried out, and somebody is about to say so.
            let gives_up = |_| forked() || self.board.is_given_up();
            self.board.end(instance, self.patience(None), gives_up);
            return Ok(self.late(thread, instance, bounds));
        }
        if all != bounds {
            return Err(self.disagrees(thread, bounds, all));
        }
        Ok(State {
            tasks,
            hands_out,
            own,
            piece,
            completes,
            ..State::new(thread, instance, bounds)
        })
    }

    #[cold]
    fn disagrees(&self, thread: usize, found: Bounds, needed: Bounds) -> LoopsError {
        let (region, found, needed) = (self.name.clone(), written(found), written(needed));
        let error = LoopsError::Disagrees { region, thread, found, needed };
        self.team.leave(thread);
        self.give_up(error.clone());
        error
    }

    /// How many of its own tasks a thread takes at once.
    fn piece(&self, thread: usize) -> u16 {
        let took = self.seldom.took_ns.load(Relaxed);
        if took == 0 {
            return 1;
        }
        let own = self.shown.length(thread);
        (PIECE.0.saturating_mul(own.into()) / took).clamp(1, own.max(1).into()) as u16
    }

    /// How a thread waits that has nothing to do, in an instance that is handed out so.
    fn patience(&self, hands_out: Option<How>) -> Patience {
        // What is its own in the next instance nobody else would carry out while it is without its CPU.
        let may_yield = matches!(hands_out, Some(How::Owned { steals: true } | How::Next(_)));
        let took = Nanos(self.seldom.took_ns.load(Relaxed));
        self.team.patience(may_yield.then_some((took, self.board.overtakes())))
    }

    /// What the thread has begun is over.
    fn late(&self, thread: usize, instance: u32, bounds: Bounds) -> State {
        self.team.leave(thread);
        State { ended: true, ..State::new(thread, instance, bounds) }
    }

    /// By the first thread of the team, or whoever has summed up the instance before: how many tasks there are.
    fn set_up(&self, instance: u32, bounds: Bounds) -> u32 {
        let repeats = self.shown.bounds() == bounds;
        if self.seldom.repeats.load(Relaxed) != repeats {
            self.seldom.repeats.store(repeats, Relaxed);
        }
        let mut scheduler = lock(&self.scheduler);
        let mut common = lock(&self.team.common);
        self.tell(instance.wrapping_sub(1), &mut scheduler, &mut common, None);
        let (plan, changed) = scheduler.begin(&mut common, bounds, self.address);
        if changed {
            if let Err(error) = self.stays_within(bounds) {
                self.give_up(error);
                return 0;
            }
            self.shown.set(bounds, plan);
        }
        if let Some(teller) = &self.teller {
            teller.begins(scheduler.policy(), &common.powers, scheduler.divisions());
        }
        self.hand_out(instance)
    }

    /// By what is planned: how many tasks there are.
    fn hand_out(&self, instance: u32) -> u32 {
        match self.shown.hands_out() {
            // Each thread takes its own, of which it knows how many they are.
            How::Owned { steals: false } => {}
            How::Owned { steals: true } => {
                for (queue, tasks) in self.board.queues.iter().zip(self.shown.lengths()) {
                    queue.set(instance, tasks);
                }
            }
            How::Next(_) => self.board.common.set(instance),
        }
        self.shown.tasks().count() as u32
    }

    /// Whether all that iterations use is in its array, as far as arrays have sizes.
    fn stays_within(&self, bounds: Bounds) -> Result<(), LoopsError> {
        for (section, address, extent) in &self.within {
            if let Some(outside) = extent.leaves(&bounds, section) {
                let (region, extent) = (self.name.clone(), extent.clone());
                let Outside { iteration, element } = outside;
                return Err(LoopsError::Leaves {
                    region,
                    iteration,
                    element,
                    address: *address,
                    extent,
                });
            }
        }
        Ok(())
    }

    /// By the thread that has done the last of the instance. Whether the next one is to be set up ahead, and how: where nothing was
    /// learnt, as this one.
    fn sum_up(&self, thread: usize, instance: u32) -> (bool, bool) {
        let seldom = &*self.seldom;
        // Whoever stole has said so before it had done it.
        let stolen = seldom.stolen.load(Relaxed) == instance;
        let ahead = seldom.repeats.load(Relaxed) && !stolen && self.teller.is_none();
        let waits = ahead && instance.wrapping_sub(seldom.told.load(Relaxed)) < TOGETHER;
        // What others have marked is looked at if own marks do not say it.
        if waits
            && (self.lanes[thread].marks.at_most(instance) < SHORT
                || makespan(self.seen(instance)).1 < SHORT)
        {
            return (true, true);
        }
        let carried_out = stolen.then(|| self.shown.take_carried_out());
        let (mut scheduler, mut common) = (lock(&self.scheduler), lock(&self.team.common));
        let makespan = self.tell(instance, &mut scheduler, &mut common, carried_out.as_deref());
        // Of each instance, as none waits where somebody wants to be told.
        if let Some(teller) = &self.teller {
            let pending = lock(&self.pending);
            teller.ends(&pending.measured, makespan, scheduler.policy(), &common.powers);
        }
        // To set up a longer one ahead gains nothing, and other loops tell something until it begins.
        (ahead && makespan < SHORT, false)
    }

    /// Tells of all instances up to this one; of it, who carried out its tasks, if some were stolen. How long it took.
    fn tell(
        &self,
        instance: u32,
        scheduler: &mut Scheduler,
        common: &mut Common,
        carried_out: Option<&[usize]>,
    ) -> Nanos {
        let (mut pending, mut took) = (lock(&self.pending), Nanos::ZERO);
        let told = self.seldom.told.load(Relaxed);
        for i in 1..=instance.wrapping_sub(told) {
            let at = told.wrapping_add(i);
            let (release, makespan) = makespan(self.seen(at));
            let of = |(seen, had): (Seen, u16)| {
                // Whoever had nothing to do shows nothing; whoever was overtaken finishes when all do.
                let finish = seen.times.map_or(0, |(_, finish)| finish).saturating_sub(release);
                let time = match (seen.iterations, had) {
                    (0, 0) => Nanos::ZERO,
                    (0, _) if self.board.overtakes() => makespan,
                    _ => Nanos(finish.max(1)),
                };
                Measured { time, iterations: seen.iterations }
            };
            let measured = self.seen(at).zip(self.shown.lengths()).map(of);
            let carried_out = carried_out.filter(|_| at == instance);
            pending.tell(scheduler, common, (measured, makespan), carried_out);
            self.takes(makespan);
            took = makespan;
        }
        if told != instance {
            self.seldom.told.store(instance, Relaxed);
        }
        took
    }

    /// What each thread did in an instance.
    fn seen(&self, instance: u32) -> impl Iterator<Item = Seen> {
        self.lanes.iter().map(move |lane| lane.marks.seen(instance))
    }

    /// An instance has taken so long.
    fn takes(&self, makespan: Nanos) {
        let before = self.seldom.took_ns.load(Relaxed);
        // Of one in which a thread was kept from its CPU it would be longer.
        let most = if before == 0 { u64::MAX } else { before + before / 8 + 1_000 };
        let now = makespan.0.clamp(1, most);
        // All threads read it.
        if now.abs_diff(before) > before / 16 {
            self.seldom.took_ns.store(now, Relaxed);
        }
    }

    /// So much of it is done.
    fn complete(&self, state: &State, done: u32) {
        let (instance, bounds) = (state.instance, state.bounds);
        let (next, as_before) = (instance.wrapping_add(1), Cell::new(false));
        let sum_up = || {
            let (repeats, same) = self.sum_up(state.thread, instance);
            as_before.set(same);
            repeats
        };
        let set_up =
            || if as_before.get() { self.hand_out(next) } else { self.set_up(next, bounds) };
        self.board.complete(instance, done, sum_up, set_up);
    }

    /// The next part of an instance that this thread is to carry out; None at the end, when all threads have carried out theirs.
    pub(crate) fn next_task(&self, state: &mut State) -> Result<Option<Bounds>, LoopsError> {
        if state.ended {
            return Ok(None);
        }
        if self.board.is_given_up() || self.team.is_known_to_be_forked() {
            self.leave(state);
            return Err(self.why_not());
        }
        self.carried_out(state);
        if let Some((iterations, tasks)) = self.take(state) {
            state.held = iterations.end - iterations.start;
            state.tasks_held = tasks;
            return Ok(Some(state.bounds.part(iterations)));
        }
        if !self.board.overtakes() {
            self.lanes[state.thread].marks.finish(state.instance, self.team.now_ns());
        }
        let instance = state.instance;
        self.complete(state, state.completes);
        let gives_up = |sleeps| {
            if sleeps > 0 {
                self.looks(state.thread, instance, sleeps);
            }
            self.team.is_forked() || self.board.is_given_up()
        };
        let all = self.board.end(instance, self.patience(Some(state.hands_out)), gives_up);
        self.leave(state);
        if all { Ok(None) } else { Err(self.why_not()) }
    }

    /// By a thread that waits for the end of an instance, and has slept so often.
    #[cold]
    fn looks(&self, thread: usize, instance: u32, sleeps: u32) {
        self.team.keeps_order(thread);
        let what = || format!("loop '{}'", self.name);
        self.team.misses(sleeps, LATE, what, "begun it", |other| self.has_begun(other, instance));
        if !self.board.overtakes() {
            let has_finished = |other: usize| self.lanes[other].marks.has_finished(instance);
            let this = "come to its end: does it compute, or has it left the loop (break, return)?";
            self.team.misses(sleeps, STAYS, what, this, has_finished);
        }
    }

    fn has_begun(&self, thread: usize, instance: u32) -> bool {
        self.lanes[thread].instance.load(Acquire).wrapping_sub(instance) as i32 >= 0
    }

    /// Notes what the thread has held.
    fn carried_out(&self, state: &mut State) {
        let lane = &self.lanes[state.thread];
        let held = std::mem::take(&mut state.held);
        lane.marks.add(state.instance, held);
        lane.all.store(lane.all.load(Relaxed) + held, Relaxed);
        if state.is_weighted() {
            let now = self.team.now_ns();
            if held > 0 {
                lane.busy_ns.store(
                    lane.busy_ns.load(Relaxed) + now.saturating_sub(state.since_ns),
                    Relaxed,
                );
            }
            state.since_ns = now;
        }
        let tasks = std::mem::take(&mut state.tasks_held);
        if self.board.overtakes() && tasks > 0 {
            lane.marks.finish(state.instance, self.team.now_ns());
            self.complete(state, tasks);
        }
    }

    /// Iterations that are the thread's from now on, and how many tasks these are.
    fn take(&self, state: &mut State) -> Option<(std::ops::Range<u64>, u32)> {
        let (instance, own) = (state.instance, state.thread);
        match state.hands_out {
            // An instance that has tasks of a thread is not over without it: nobody takes them meanwhile.
            How::Owned { steals: false } => {
                let std::ops::Range { start, end } = state.own;
                if start >= end {
                    return None;
                }
                state.own.start = self.shown.consecutive(own, start, end);
                Some(self.owned(state, start, state.own.start))
            }
            How::Owned { steals: true } => {
                let together = |from: u16, to: u16| {
                    self.shown.consecutive(own, from, to.min(from.saturating_add(state.piece)))
                };
                if let Some((from, to)) = self.board.queues[own].take_own(instance, together) {
                    return Some(self.owned(state, from, to));
                }
                let (victim, place) = self.board.steal(instance)?;
                let task = self.shown.task(victim, place);
                self.shown.carries_out(task, own);
                if self.seldom.stolen.load(Relaxed) != instance {
                    self.seldom.stolen.store(instance, Relaxed);
                }
                Some((state.tasks.bounds(task), 1))
            }
            How::Next(chunks) => {
                let size = |taken| {
                    let batch = chunks.batch(taken).0;
                    let is_known = state.batch.is_some_and(|(known, _)| known == batch);
                    if state.is_weighted() && !is_known {
                        state.batch = Some((batch, self.weight(own)));
                    }
                    chunks.size(taken, state.batch.map_or(1.0, |(_, weight)| weight))
                };
                let (first, more) = self.board.common.take(instance, size)?;
                Some((state.tasks.between(first as usize, (first + more) as usize), more))
            }
        }
    }

    /// The iterations of its tasks at these places, which follow one another, and how many tasks these are.
    fn owned(&self, state: &State, from: u16, to: u16) -> (std::ops::Range<u64>, u32) {
        let [first, last] = [from, to - 1].map(|place| self.shown.task(state.thread, place));
        (state.tasks.between(first, last + 1), u32::from(to - from))
    }

    /// How fast a thread got on so far, over the mean of all.
    fn weight(&self, thread: usize) -> f64 {
        let done = |lane: &CachePadded<Lane>| (lane.all.load(Relaxed), lane.busy_ns.load(Relaxed));
        evenly_iterations::weight(self.lanes.iter().map(done), thread)
    }

    fn leave(&self, state: &mut State) {
        if !std::mem::replace(&mut state.ended, true) {
            self.team.leave(state.thread);
        }
    }

    /// A thread has left it before its end, and so nobody can say that all of it was carried out.
    pub(crate) fn abandon(&self, state: &mut State, how: &str) {
        if !state.ended {
            let why = format!("thread {} {how}", state.thread).into();
            self.give_up(LoopsError::GivenUp { region: self.name.clone(), why });
            self.leave(state);
        }
    }

    fn give_up(&self, why: LoopsError) {
        self.team.loses_order();
        self.board.give_up(Arc::new(why.into()));
    }

    /// Whether somebody was told why it was given up, as is the caller.
    pub(crate) fn was_told(&self) -> bool {
        self.board.was_told()
    }

    /// Why it was given up. Where it was not, and threads have gone on all the same, the others are those of another process.
    fn why_not(&self) -> LoopsError {
        let forked = || LoopsError::Forked { region: self.name.clone() };
        if !self.board.is_given_up() {
            self.give_up(forked());
        }
        self.board.why().cloned().unwrap_or_else(forked)
    }

    /// Gives each thread what all gave, in their order; after the end of an instance.
    pub(crate) fn gather(
        &self,
        thread: usize,
        given: u64,
    ) -> Result<impl Iterator<Item = u64>, LoopsError> {
        if self.board.is_given_up() || self.team.is_known_to_be_forked() {
            return Err(self.why_not());
        }
        // Who has not begun the instance is late, and no other thread that has ended.
        let instance = self.lanes[thread].instance.load(Relaxed);
        let has_begun = move |other| self.has_begun(other, instance);
        let gives_up = || self.board.is_given_up();
        let gathered =
            self.gathering.gather(&self.team, thread, given, &self.name, has_begun, gives_up);
        gathered.ok_or_else(|| {
            if !self.team.is_forked() {
                let why =
                    "a thread ended, or went on to another loop, before it had reduced".into();
                self.give_up(LoopsError::GivenUp { region: self.name.clone(), why });
            }
            self.gathering.wake();
            self.why_not()
        })
    }

    pub(crate) fn is_given_up(&self) -> bool {
        self.board.is_given_up()
    }

    /// Whether that is the thread of the program which this number belongs to.
    pub(crate) fn is(&self, thread: usize, token: u64) -> bool {
        self.team.is(thread, token)
    }

    /// What came of it so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let (scheduler, common) = (lock(&self.scheduler), lock(&self.team.common));
        let told = (lock(&self.pending).told, self.seldom.told.load(Relaxed));
        Report {
            policy: scheduler.policy(),
            powers: common.powers.get().to_vec(),
            divisions: scheduler.divisions(),
            // What the last ones have shown is not told yet.
            instances: told.0 + (self.board.done().wrapping_sub(told.1) as i32).max(0) as u64,
            iterations: self.lanes.iter().map(|lane| lane.all.load(Relaxed)).collect(),
        }
    }
}

fn written(Bounds { lower, upper, stride }: Bounds) -> String {
    format!("{lower} to {upper} by {stride}")
}

/// What came of a loop.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// How iterations are handed out at present.
    pub policy: Policy,
    /// The power of each thread.
    pub powers: Vec<f64>,
    /// How often they were divided anew because powers had changed.
    pub divisions: u64,
    /// Instances that have ended.
    pub instances: u64,
    /// Iterations that each thread has carried out, in all instances.
    pub iterations: Vec<u64>,
}

/// Where a thread is in an instance.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) thread: usize,
    instance: u32,
    bounds: Bounds,
    tasks: Tasks,
    hands_out: How,
    /// The places of its tasks that it has not taken, where nobody else may take any.
    own: std::ops::Range<u16>,
    /// So many of its own tasks it takes at once, where others may take some.
    piece: u16,
    /// What it is to complete when it finds no further task.
    completes: u32,
    /// Iterations that it was given last, and how many tasks these are.
    held: u64,
    tasks_held: u32,
    since_ns: u64,
    /// The batch of which it took last, and its weight there.
    batch: Option<(u32, f64)>,
    pub(crate) ended: bool,
}

impl State {
    fn new(thread: usize, instance: u32, bounds: Bounds) -> Self {
        Self {
            thread,
            instance,
            bounds,
            tasks: Tasks::new(0, 1, 0, 1),
            hands_out: How::Owned { steals: false },
            own: 0..0,
            piece: 1,
            completes: 0,
            held: 0,
            tasks_held: 0,
            since_ns: 0,
            batch: None,
            ended: false,
        }
    }

    fn is_weighted(&self) -> bool {
        matches!(self.hands_out, How::Next(chunks) if chunks.sizes == evenly_iterations::Sizes::Weighted)
    }
}

/// A thread's part in an instance of a loop. Where it is dropped before its end the loop is given up, for all threads.
#[derive(Debug)]
pub struct Turn<'r> {
    region: &'r Region,
    state: State,
}

impl Turn<'_> {
    /// What the thread is to carry out next; None when all threads have carried out all of theirs.
    ///
    /// # Errors
    /// [`LoopsError::GivenUp`] where another thread has left the loop before its end.
    pub fn next_task(&mut self) -> Result<Option<Bounds>, LoopsError> {
        self.region.next_task(&mut self.state)
    }

    /// What all threads give here, put together in the order of their numbers: each gets the same.
    /// To be called by all threads, after the last task.
    ///
    /// # Errors
    /// [`LoopsError::GivenUp`] where there are tasks left.
    pub fn reduce(
        &mut self,
        given: f64,
        together: impl Fn(f64, f64) -> f64,
    ) -> Result<f64, LoopsError> {
        if !self.state.ended {
            self.region
                .abandon(&mut self.state, "reduced before it had carried out all of its tasks");
        }
        let all = self.region.gather(self.state.thread, given.to_bits())?;
        Ok(all.map(f64::from_bits).reduce(together).unwrap_or(given))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let how =
            if std::thread::panicking() { "panicked in it" } else { "left it before its end" };
        self.region.abandon(&mut self.state, how);
    }
}

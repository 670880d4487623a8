//! What the helpers of the CPUs and the caretaker of a domain share.
//!
//! Invariant: a lock is held for no longer than it takes to compute, never while a mask is changed.

use crate::openings::{LONGEST, Measured, Opening, Openings};
use crate::others::Others;
use crate::timetable::{Left, Step, Timetable};
use evenly_engine::agents::{AgentTotals, Agents, Done, Epochs, Rhythm, Work};
use evenly_engine::{
    Action, Actuator, ApplyError, Balancer, BalancerOptions, Failure, Reader, Reading, Times,
    perform,
};
use evenly_model::{CpuId, CpuIndex, CpuSet, CpuView, Nanos, Pid, ThreadId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a move costs, with the two wake-ups of a helper: what is to be gained by it at least.
pub const COST: Nanos = Nanos::from_micros(50);

/// After so many phases in which no CPU had too much to do helpers are woken for longer ones only.
const FRUITLESS: u32 = 16;
/// By how much longer: what is expected varies.
const LONGER: f64 = 1.25;

/// The helpers of a domain's CPUs, and what they do.
pub struct Phases {
    openings: Arc<dyn Openings>,
    state: Mutex<HelpersState>,
    /// Helpers are not used any more.
    off: AtomicBool,
}

#[derive(Default)]
struct HelpersState {
    cpus: Vec<CpuId>,
    /// The speed of each CPU, by its capacity.
    speeds: Vec<f64>,
    others: Others,
    members: BTreeMap<ThreadId, Member>,
    active: bool,
    /// The number of the barrier at which these threads meet, if it is known.
    follows: Option<u32>,
    /// CPUs whose helpers wait for no opening: they know when they are needed, or rest.
    away: BTreeSet<CpuId>,
    /// The phase that the timetable is for.
    opening: Opening,
    timetable: Timetable,
    /// Since the caretaker's last point.
    patience: Patience,
    account: AgentTotals,
    failures: Vec<Failure>,
}

/// For which phases helpers are woken: short ones may come in hundreds, and one that is worth it after them.
#[derive(Default)]
struct Patience {
    /// Phases since the last one in which a CPU had too much to do, and the most that a thread was expected to compute
    /// in them.
    fruitless: u32,
    longest: Nanos,
    /// Helpers are woken for phases that are expected to be longer.
    least: Nanos,
}

impl Patience {
    /// A phase was planned in which no thread was expected to compute for longer. Whether helpers are woken for others
    /// from now on.
    fn planned(&mut self, crowded: bool, longest: Nanos) -> bool {
        let since = if crowded { 0 } else { self.fruitless + 1 };
        let longest = if crowded { Nanos::ZERO } else { self.longest.max(longest) };
        (self.fruitless, self.longest) = (since, longest);
        if since < FRUITLESS {
            return false;
        }
        // Nothing is known of phases that are expected to take no time.
        let least = self.least.max(longest.scale(LONGER)).max(Nanos(1));
        *self = Self { least, ..Self::default() };
        true
    }
}

struct Member {
    cpu: Option<CpuIndex>,
    movable: bool,
    mask: Arc<CpuSet>,
    migrations: u64,
    /// What its progress is above its CPU time.
    ahead: i64,
    times: Times,
    /// Its CPU time up to which it has been counted for the CPUs that it was on.
    booked: Nanos,
}

/// A CPU that has too much to do in a phase.
#[derive(Debug)]
pub struct Crowded {
    /// Its place in the domain.
    pub cpu: CpuIndex,
    /// The threads on it, with what they have to do.
    pub here: Vec<Left<ThreadId>>,
    /// By how much longer the phase takes where none of them moves.
    pub gain: Nanos,
}

impl HelpersState {
    fn at(&self, cpu: CpuIndex) -> impl Iterator<Item = (&ThreadId, &Member)> {
        self.members.iter().filter(move |(_, m)| m.cpu == Some(cpu))
    }

    /// A thread has had so much CPU time by now: what is new of it was on the CPU where the thread is.
    fn book(&mut self, thread: ThreadId, ran: Nanos) {
        let Some(m) = self.members.get_mut(&thread) else { return };
        let since = ran - std::mem::replace(&mut m.booked, ran);
        if let Some(cpu) = m.cpu {
            self.others.ran(cpu, since);
        }
    }

    fn index(&self, cpu: CpuId) -> Option<CpuIndex> {
        self.cpus.iter().position(|c| *c == cpu)
    }
}

impl Phases {
    /// For a domain, with the caretaker. `openings` are those of the program's barriers.
    #[must_use]
    pub fn with_caretaker(
        options: BalancerOptions,
        openings: Arc<dyn Openings>,
        now: Nanos,
    ) -> (Balancer, Arc<Self>) {
        let phases =
            Arc::new(Self { openings, state: Mutex::default(), off: AtomicBool::new(false) });
        let care = Box::new(Care(phases.clone()));
        (Balancer::with_agents(options, care, now), phases)
    }

    /// How openings become known.
    #[must_use]
    pub fn openings(&self) -> &dyn Openings {
        &*self.openings
    }

    fn state(&self) -> MutexGuard<'_, HelpersState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a CPU has too much to do in the phase that began with an opening; None where there is nothing to do about
    /// it. Called by the helper of the CPU when it wakes.
    pub fn begins(&self, cpu: CpuId, opening: Opening, now: Nanos) -> Option<Crowded> {
        let mut s = self.state();
        s.account.points += 1;
        if !s.active || s.follows.is_none() || self.is_off() || !opening.is_possible(now) {
            return None;
        }
        if s.opening != opening {
            self.plan(&mut s, opening);
        }
        let index = s.index(cpu).filter(|index| s.timetable.is_crowded(*index))?;
        let left = |id: &ThreadId| Left { thread: *id, work: self.expected(*id) };
        let here = s.at(index).filter(|(_, m)| m.movable).map(|(id, _)| left(id)).collect();
        Some(Crowded { cpu: index, here, gain: s.timetable.excess(index) })
    }

    fn expected(&self, thread: ThreadId) -> Nanos {
        self.openings.reported(thread).map_or(Nanos::ZERO, |r| r.expected.min(LONGEST))
    }

    /// The timetable of a phase, and whose helpers the next one like it needs.
    fn plan(&self, s: &mut HelpersState, opening: Opening) {
        let works: Vec<(CpuIndex, Nanos)> =
            s.members.iter().filter_map(|(id, m)| Some((m.cpu?, self.expected(*id)))).collect();
        let speeds = s.speeds.iter().enumerate().map(|(cpu, speed)| speed * s.others.left(cpu));
        let speeds: Vec<f64> = speeds.collect();
        s.opening = opening;
        s.timetable = Timetable::new(opening.at, &works, &speeds, COST);
        let longest = works.iter().map(|w| w.1).max().unwrap_or_default();
        let crowded = (0..s.cpus.len()).any(|cpu| s.timetable.is_crowded(cpu));
        if s.patience.planned(crowded, longest) {
            self.arm(s);
        }
    }

    fn arm(&self, s: &HelpersState) {
        let busy = |cpu: &CpuIndex| s.at(*cpu).filter(|(_, m)| m.movable).count() > 1;
        let works = s.active && s.follows.is_some();
        let busy = (0..s.cpus.len()).filter(|cpu| works && busy(cpu)).map(|cpu| s.cpus[cpu]);
        let busy: Vec<CpuId> = busy.filter(|cpu| !s.away.contains(cpu)).collect();
        self.openings.arm(&busy, s.patience.least);
    }

    /// Whether the helper of a CPU waits for openings from now on: not where it knows when it is needed, or rests.
    pub fn waits(&self, cpu: CpuId, waits: bool) {
        let mut s = self.state();
        let changed = if waits { s.away.remove(&cpu) } else { s.away.insert(cpu) };
        if changed {
            self.arm(&s);
        }
    }

    /// What is left of the work of a thread in this phase, by its CPU time, which was read just now.
    #[must_use]
    pub fn left(&self, thread: ThreadId, ran: Nanos) -> Nanos {
        self.state().book(thread, ran);
        match self.openings.reported(thread) {
            Some(r) if !r.finished => r.expected.min(LONGEST) - (ran - r.base),
            _ => Nanos::ZERO,
        }
    }

    /// What the helper of a CPU does next, by what is left of the threads on it.
    /// `looks` is how often the helper has looked since the phase began. It sleeps for [`LONGEST`] at most.
    pub fn next(
        &self,
        cpu: CpuIndex,
        now: Nanos,
        here: &[Left<ThreadId>],
        looks: usize,
    ) -> Step<ThreadId> {
        let s = self.state();
        if !s.active {
            return Step::Rest;
        }
        let allowed = |thread: ThreadId, to: CpuIndex| {
            s.members.get(&thread).is_some_and(|m| m.mask.contains(s.cpus[to]))
        };
        match s.timetable.next(cpu, now, here, looks, allowed) {
            Step::Sleep(until) => Step::Sleep(until.min(now + LONGEST)),
            step => step,
        }
    }

    /// Moves a thread from the CPU of a helper. `machine` is what the caretaker changes masks through, so
    /// that it cannot be at work now. Whether it was moved.
    pub fn carry_out(
        &self,
        machine: &mut dyn Actuator,
        Left { thread, work: left }: Left<ThreadId>,
        (from, to): (CpuIndex, CpuIndex),
        now: Nanos,
    ) -> bool {
        let s = self.state();
        // All may be different since it was decided.
        let here = |m: &&Member| m.cpu == Some(from) && m.movable;
        let is_here = s.members.get(&thread).filter(here).is_some();
        let Some(&cpu) = s.cpus.get(to).filter(|_| s.active && is_here && s.at(from).count() > 1)
        else {
            return false;
        };
        drop(s);
        let result = perform(machine, &Action::Pin { thread, cpu }).map(drop);
        let mut s = self.state();
        match result {
            Ok(()) => {
                if let Some(m) = s.members.get_mut(&thread) {
                    (m.cpu, m.migrations) = (Some(to), m.migrations + 1);
                }
                s.timetable.moved(from, to, left, now);
                s.account.migrations += 1;
                self.openings.put(thread, Some(cpu));
                self.arm(&s);
                if s.timetable.is_crowded(to) {
                    self.openings.call(cpu);
                }
                return true;
            }
            Err(ApplyError::Gone) => {}
            Err(error) => {
                s.account.failed += 1;
                let refused = matches!(error, ApplyError::Foreign { .. } | ApplyError::Refused(_));
                if let Some(m) = s.members.get_mut(&thread).filter(|_| refused) {
                    m.movable = false;
                }
                s.failures.push(Failure { thread, error });
            }
        }
        false
    }

    /// Helpers are not used from now on: threads stay where they are, and the caretaker spreads them as before. From its
    /// next point on nobody wakes helpers. Waits for nothing that a helper can hold.
    pub fn switch_off(&self) {
        // Relaxed: a helper that sees it late moves a thread once more.
        self.off.store(true, Relaxed);
    }

    fn is_off(&self) -> bool {
        self.off.load(Relaxed)
    }

    /// A helper has taken so much CPU time. It is not the caretaker's: it keeps an [`crate::Allowance`] of its own.
    pub fn took(&self, time: Nanos) {
        self.state().account.cpu_time += time;
    }
}

/// All of it, as the engine sees it.
struct Care(Arc<Phases>);

impl Agents for Care {
    fn periods_between_points(&self) -> f64 {
        1.0
    }

    fn cost_by_period(&self) -> bool {
        false
    }

    /// There may be thousands of moves a second, so they are counted, not listed.
    fn begin_point(&mut self, _period: Nanos, _keep_moves: bool) -> Done {
        Done { moves: Vec::new(), failures: std::mem::take(&mut self.0.state().failures) }
    }

    fn place(&self, thread: ThreadId) -> Option<CpuId> {
        let s = self.0.state();
        s.members.get(&thread)?.cpu.and_then(|cpu| s.cpus.get(cpu).copied())
    }

    fn read(&self, machine: &mut dyn Reader, thread: ThreadId, now: Nanos) -> (Reading, Nanos) {
        let reading = machine.read_one(thread);
        let mut s = self.0.state();
        if let Reading::Times(times) = reading {
            s.book(thread, times.ran);
            if let Some(m) = s.members.get_mut(&thread) {
                m.times = times;
            }
        }
        if s.active && s.others.is_due(now) {
            let cpus = s.cpus.clone();
            drop(s);
            let idle = machine.idle(&cpus);
            self.0.state().others.look(now, idle);
        }
        (reading, now)
    }

    fn progress(&self, thread: ThreadId) -> Option<i64> {
        self.0.state().members.get(&thread).map(|m| m.ahead + m.times.ran.0 as i64)
    }

    fn expected(&self, thread: ThreadId) -> Option<Nanos> {
        Some(self.0.expected(thread)).filter(|work| *work > Nanos::ZERO)
    }

    fn migrations(&self, thread: ThreadId) -> u64 {
        self.0.state().members.get(&thread).map_or(0, |m| m.migrations)
    }

    fn speed(&self, _cpu: CpuId) -> Option<f64> {
        None
    }

    fn join(
        &mut self,
        thread: ThreadId,
        mask: Arc<CpuSet>,
        times: Times,
        _at: Nanos,
        progress: Option<i64>,
    ) -> i64 {
        let mut s = self.0.state();
        let all = s.members.values().map(|m| m.ahead + m.times.ran.0 as i64);
        let mean = || all.clone().sum::<i64>() / (s.members.len().max(1) as i64);
        let progress = progress.unwrap_or_else(mean);
        let ahead = progress - times.ran.0 as i64;
        let booked = times.ran;
        let member =
            Member { cpu: None, movable: false, mask, migrations: 0, ahead, times, booked };
        s.members.insert(thread, member);
        progress
    }

    fn leave(&mut self, thread: ThreadId) -> u64 {
        self.0.openings.put(thread, None);
        self.0.state().members.remove(&thread).map_or(0, |m| m.migrations)
    }

    fn put(&mut self, thread: ThreadId, cpu: Option<CpuId>, movable: bool) {
        let mut s = self.0.state();
        let at = cpu.and_then(|cpu| s.index(cpu));
        if let Some(m) = s.members.get_mut(&thread) {
            (m.cpu, m.movable) = (at, movable);
        }
    }

    fn set_cpus(&mut self, usable: &[CpuView]) {
        let s = &mut *self.0.state();
        if s.cpus.iter().copied().eq(usable.iter().map(|c| c.id)) {
            return;
        }
        let index = |before: &CpuId| usable.iter().position(|c| c.id == *before);
        for m in s.members.values_mut() {
            m.cpu = m.cpu.and_then(|cpu| index(s.cpus.get(cpu)?));
        }
        s.cpus = usable.iter().map(|c| c.id).collect();
        s.speeds = usable.iter().map(CpuView::weight).collect();
        s.others.reset(usable.len());
        // No timetable is for these.
        s.timetable = Timetable::default();
    }

    /// They are known by joining and leaving, and looked up where work begins, at the end of each point.
    fn set_threads(&mut self, _threads: &mut dyn Iterator<Item = ThreadId>) {}

    fn begin(&mut self, _began: Nanos) {}

    fn set_work(&self, work: Work) {
        let work = if self.0.is_off() { Work::Rest } else { work };
        let mut s = self.0.state();
        let threads: Vec<ThreadId> = s.members.keys().copied().collect();
        let active = work == Work::Move;
        // They may meet at another barrier by now, or have begun to.
        if work != Work::Rest {
            s.follows = self.0.openings.follow(&threads);
        }
        self.0.openings.measure(match work {
            Work::Rest => Measured::Nothing,
            Work::Count => Measured::Openings,
            Work::Move => Measured::Phases,
        });
        (s.active, s.patience) = (active, Patience::default());
        if !active {
            s.others.pause();
        }
        for (id, m) in &s.members {
            let cpu =
                m.cpu.filter(|_| active && m.movable).and_then(|cpu| s.cpus.get(cpu).copied());
            self.0.openings.put(*id, cpu);
        }
        self.0.arm(&s);
    }

    fn hold(&self, held: bool) {
        self.0.openings.hold(held);
    }

    fn show_masks(&self, process: Pid) {
        self.0.openings.show_masks(process);
    }

    fn rhythm(&self) -> Rhythm {
        let follows = self.0.state().follows.filter(|_| !self.0.is_off());
        let Some(of) = follows else { return Rhythm::Unknown };
        let Opening { phase: count, at } = self.0.openings.last();
        Rhythm::Epochs(Epochs { count, at, of, worth: self.0.openings.worth() })
    }

    fn account(&self) -> AgentTotals {
        self.0.state().account
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Foresight, Reported};
    use evenly_engine::{GuardOptions, Located, Sensors};
    use evenly_model::{DomainId, Environment, FULL_CAPACITY, Tid};
    use proptest::prelude::*;

    /// A program that reports this, and hears which phases are worth a helper.
    struct Says(Mutex<Reported>, Mutex<Nanos>);

    impl Says {
        fn new(reported: Reported) -> Arc<Self> {
            Arc::new(Self(Mutex::new(reported), Mutex::default()))
        }
    }

    impl Openings for Says {
        fn follow(&self, _: &[ThreadId]) -> Option<u32> {
            Some(0)
        }

        fn measure(&self, _: Measured) {}

        fn hold(&self, _: bool) {}
        fn show_masks(&self, _: Pid) {}

        fn arm(&self, _: &[CpuId], least: Nanos) {
            *self.1.lock().unwrap() = least;
        }

        fn wait(&self, _: CpuId, _: Opening) -> Option<Opening> {
            None
        }

        fn call(&self, _: CpuId) {}

        fn last(&self) -> Opening {
            Opening::default()
        }

        fn worth(&self) -> u32 {
            0
        }

        fn reported(&self, _: ThreadId) -> Option<Reported> {
            Some(*self.0.lock().unwrap())
        }

        fn put(&self, _: ThreadId, _: Option<CpuId>) {}
    }

    fn thread(tid: i32) -> ThreadId {
        ThreadId { tid: Tid(tid), start: 0 }
    }

    /// Three threads on two CPUs, of which the first has two.
    fn three_on_two(says: Reported) -> Arc<Phases> {
        three_of(Says::new(says))
    }

    fn three_of(says: Arc<Says>) -> Arc<Phases> {
        let phases = Arc::new(Phases {
            openings: says,
            state: Mutex::default(),
            off: AtomicBool::default(),
        });
        let mut care = Care(phases.clone());
        let cpus = [0, 1].map(|id| CpuView {
            id: CpuId(id),
            capacity: FULL_CAPACITY,
            threads: 0,
            speed: None,
        });
        care.set_cpus(&cpus);
        let mask: Arc<CpuSet> = Arc::new(cpus.iter().map(|c| c.id).collect());
        for (tid, cpu) in [(1, 0), (2, 0), (3, 1)] {
            care.join(thread(tid), mask.clone(), Times::default(), Nanos::ZERO, None);
            care.put(thread(tid), Some(CpuId(cpu)), true);
        }
        care.set_work(Work::Move);
        phases
    }

    /// Any time, and those near a limit.
    fn time() -> impl Strategy<Value = Nanos> {
        let year = 31_557_600_000_000_000;
        prop_oneof![
            any::<u64>(),
            0..1000u64,
            (u64::MAX - 1000)..=u64::MAX,
            (0..100u64).prop_map(move |n| n * year),
            0..20_000_000_000u64,
        ]
        .prop_map(Nanos)
    }

    proptest! {
        /// Would catch: a helper that sleeps for years because a program says so, or that panics.
        #[test]
        fn nonsense_keeps_no_helper_asleep(
            (expected, base, ran) in (time(), time(), time()),
            openings in prop::collection::vec((any::<u32>(), time()), 1..5),
            now in time(),
            looks in 0usize..30,
        ) {
            let phases = three_on_two(Reported { expected, base, finished: false });
            let mut foresight = Foresight::default();
            for (phase, at) in openings {
                let opening = Opening { phase, at };
                let Some(crowded) = phases.begins(CpuId(0), opening, now) else { continue };
                let Crowded { cpu: index, mut here, gain } = crowded;
                prop_assert!(gain <= LONGEST);
                prop_assert!(opening.is_possible(now));
                for look in looks..looks + 3 {
                    match phases.next(index, now, &here, look) {
                        Step::Rest => break,
                        Step::Sleep(until) => prop_assert!(until - now <= LONGEST),
                        Step::Move(thread, _) => here.retain(|l| l.thread != thread),
                    }
                    for left in &mut here {
                        left.work = phases.left(left.thread, ran);
                        prop_assert!(left.work <= LONGEST);
                    }
                }
                if let Some(needed) = foresight.moved(opening, now) {
                    prop_assert!(needed - now <= LONGEST);
                }
            }
        }
    }

    /// Would catch: a rule that leaves nothing over.
    #[test]
    fn an_opening_that_can_be_is_served() {
        let now = Nanos::from_millis(5_000);
        let says = Reported { expected: Nanos::from_millis(1), ..Reported::default() };
        let phases = three_on_two(says);
        let begins =
            |at| phases.begins(CpuId(0), Opening { phase: 1, at: Nanos(at) }, now).is_some();
        assert!(begins(now.0 - 1) && begins(now.0));
        assert!(!begins(now.0 + 1) && !begins(u64::MAX));
        let later = now + LONGEST + Nanos(1);
        assert!(phases.begins(CpuId(0), Opening { phase: 2, at: now }, later).is_none());
        // There it has too little to do.
        assert!(phases.begins(CpuId(1), Opening { phase: 3, at: now }, now).is_none());
    }

    /// A machine whose calls cost nothing and whose CPUs are never idle, with what threads have run.
    #[derive(Default)]
    struct Free(BTreeMap<ThreadId, Nanos>);

    impl Reader for Free {
        fn now(&self) -> Nanos {
            Nanos::ZERO
        }

        fn own_cpu_time(&self) -> Nanos {
            Nanos::ZERO
        }

        fn read(&mut self, ids: &[ThreadId], out: &mut Vec<Reading>) {
            out.clear();
            out.extend(ids.iter().map(|id| match self.0.get(id) {
                Some(&ran) => Reading::Times(Times { ran, ..Times::default() }),
                None => Reading::Gone,
            }));
        }

        fn idle(&mut self, cpus: &[CpuId]) -> Vec<Nanos> {
            vec![Nanos::ZERO; cpus.len()]
        }

        fn locate(&mut self, _: ThreadId) -> Option<Located> {
            None
        }

        fn resolution(&self) -> Nanos {
            Nanos::ZERO
        }
    }

    impl Sensors for Free {
        fn usable(&mut self, within: &CpuSet) -> CpuSet {
            within.clone()
        }

        fn original_mask(&mut self, _: ThreadId) -> Option<CpuSet> {
            None
        }
    }

    impl Actuator for Free {
        fn place(&mut self, _: ThreadId, _: CpuId, _: Option<&CpuSet>) -> Result<(), ApplyError> {
            Ok(())
        }

        fn confine(&mut self, _: ThreadId, _: &CpuSet) -> Result<(), ApplyError> {
            Ok(())
        }

        fn restore(&mut self, _: ThreadId) {}
    }

    /// Would catch: a caretaker that comes more rarely because helpers cost much, which makes them no cheaper.
    #[test]
    fn helpers_do_not_lengthen_the_period_of_the_caretaker() {
        let options = BalancerOptions {
            domain: DomainId(0),
            cpus: [CpuId(0), CpuId(1)].into_iter().collect(),
            wanted: None,
            policy: &crate::PHASE,
            environment: Environment::default(),
            guard: GuardOptions::default(),
        };
        let openings = Says::new(Reported::default());
        let (mut balancer, phases) = Phases::with_caretaker(options, openings, Nanos::ZERO);
        let period = Nanos::from_millis(10);
        balancer.point(&mut Free::default(), period, &mut []);
        phases.took(Nanos::from_millis(500));
        balancer.point(&mut Free::default(), period, &mut []);
        assert_eq!(balancer.period_cost(), Nanos::ZERO);
        // It is in the report nevertheless.
        assert!((balancer.summary(Nanos::ZERO).0.cpu_s - 0.5).abs() < 1e-9);
    }

    /// Would catch: long phases without moves because many short ones came before them; short ones that wake helpers for
    /// nothing.
    #[test]
    fn after_many_short_phases_long_ones_are_served() {
        let says = Says::new(Reported::default());
        let phases = three_of(says.clone());
        let now = Nanos::from_millis(5_000);
        let mut phase = 0;
        let mut serves = |expected: Nanos| {
            phase += 1;
            *says.0.lock().unwrap() = Reported { expected, ..Reported::default() };
            let crowded = phases.begins(CpuId(0), Opening { phase, at: now }, now).is_some();
            (crowded, *says.1.lock().unwrap())
        };
        let (short, long) = (Nanos::from_micros(80), Nanos::from_millis(10));
        for _ in 1..FRUITLESS {
            assert_eq!(serves(short), (false, Nanos::ZERO));
        }
        let least = short.scale(LONGER);
        assert_eq!(serves(short), (false, least));
        assert_eq!(serves(long), (true, least));
        // Those that are longer, and not worth it either.
        let longer = Nanos::from_micros(100);
        for _ in 1..FRUITLESS {
            assert_eq!(serves(longer), (false, least));
        }
        assert_eq!(serves(longer), (false, longer.scale(LONGER)));
        // The caretaker's next point.
        Care(phases.clone()).set_work(Work::Move);
        assert_eq!(serves(short), (false, Nanos::ZERO));
    }

    /// Would catch: a thread that is moved to where others have half of the CPU, and is slower there than where it was.
    #[test]
    fn others_on_a_cpu_are_reckoned_with() {
        let says = Reported { expected: Nanos::from_millis(10), ..Reported::default() };
        let phases = three_on_two(says);
        let care = Care(phases.clone());
        let mut machine = Free::default();
        let mut now = Nanos::from_millis(5_000);
        // All that is run in 100 ms: two threads share the first CPU, and one has so much of the second.
        let mut crowded = |third: u64| {
            for _ in 0..8 {
                for (tid, ms) in [(1, 50), (2, 50), (3, third)] {
                    *machine.0.entry(thread(tid)).or_default() += Nanos::from_millis(ms);
                }
                now += Nanos::from_millis(100);
                for tid in 1..=3 {
                    care.read(&mut machine, thread(tid), now);
                }
            }
            let opening = Opening { phase: now.0 as u32, at: now };
            phases.begins(CpuId(0), opening, now).is_some()
        };
        assert!(crowded(100));
        assert!(!crowded(50));
        assert!(crowded(95));
    }

    /// Would catch: helpers that are switched on again by the caretaker.
    #[test]
    fn helpers_that_are_switched_off_stay_so() {
        let now = Nanos::from_millis(5_000);
        let says = Reported { expected: Nanos::from_millis(1), ..Reported::default() };
        let phases = three_on_two(says);
        phases.switch_off();
        for phase in 0..3 {
            Care(phases.clone()).set_work(Work::Move);
            let opening = Opening { phase, at: now };
            assert!(phases.begins(CpuId(0), opening, now).is_none());
        }
    }
}

//! The runs: what each policy is given to do, drawn from a seed.

use crate::machine::{Conditions, Recorded, Span, nameless};
use evenly_engine::{
    Actuator, Balancer, BalancerOptions, DomainSpread, DomainThread, Event, GuardOptions, Observer,
    Reader, RunState, Selection, Sensors, Tracker, TrackerOptions, roomiest,
};
use evenly_model::hpc::{Parameters, Parts};
use evenly_model::stats::Random;
use evenly_model::{CpuId, CpuSet, DomainId, Environment, Knowledge, Nanos, ThreadId};
use evenly_policy::PolicyInfo;
use evenly_secretary::{CARE, CpuBalancer, Decentral, Step};
use evenly_sim::{
    Barrier, Costs, Counters, Cpu, Hotplug, Kernel, Placement, Program, Readings, Scenario,
    Sharing, Sim, Stranger,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write;
use std::sync::{Arc, Mutex};

/// Runs of each policy.
const EACH: u64 = 91;

const fn ms(ms: u64) -> Nanos {
    Nanos::from_millis(ms)
}

/// What came of a run.
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) calls: String,
    pub(crate) events: String,
    pub(crate) kinds: BTreeMap<&'static str, usize>,
}

/// A run of one policy, in conditions that are drawn from the seed.
pub(crate) struct Case {
    pub(crate) name: String,
    info: &'static PolicyInfo,
    seed: u64,
}

/// The runs of all policies, [`EACH`] of each.
pub(crate) fn runs() -> Vec<Case> {
    let of = |info: &'static PolicyInfo| {
        (1..=EACH).map(move |seed| Case { name: format!("{} {seed}", info.name), info, seed })
    };
    evenly_policies::POLICIES.iter().flat_map(of).collect()
}

struct Log(Arc<Mutex<String>>);

impl Observer for Log {
    fn event(&mut self, event: &Event) {
        let text = nameless(&format!("{event:.6?}"));
        writeln!(self.0.lock().unwrap(), "{text}").unwrap();
    }
}

/// Draws the conditions of a run at random.
pub(crate) struct Draw(pub(crate) Random);

impl Draw {
    /// Once in so many times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.0.below(n) == 0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.below(n)
    }

    pub(crate) fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.0.below(values.len())]
    }

    fn span(&mut self, end: Nanos) -> Span {
        let from = end.scale(0.8 * self.0.unit());
        Span(from, from + end.scale(0.05 + 0.4 * self.0.unit()))
    }

    /// Spans of some of so many threads.
    fn some(&mut self, threads: usize, end: Nanos) -> Vec<(usize, Span)> {
        (0..1 + self.0.below(2)).map(|_| (self.0.below(threads), self.span(end))).collect()
    }
}

fn scenario(draw: &mut Draw, info: &PolicyInfo, m: usize, end: Nanos) -> Scenario {
    let n = match draw.0.below(4) {
        0 => 1 + draw.0.below(m + 1),
        _ => m + 1 + draw.0.below(2 * m),
    };
    let barrier = draw.of(&[Barrier::None, Barrier::Block, Barrier::Spin, Barrier::Yield]);
    let work = draw.of(&[ms(7), ms(20), ms(60), ms(200), ms(100_000)]);
    let mut s = Scenario {
        sharing: draw.of(&[Sharing::Fluid, Sharing::Slices(ms(4)), Sharing::Slices(ms(3))]),
        tick: draw.of(&[Nanos::ZERO, ms(1), ms(4)]),
        kernel: Kernel { reactive: draw.once_in(2), rotate: draw.once_in(4).then_some(ms(150)) },
        phases: 100_000,
        barrier,
        probe: info.gives_weights() || draw.once_in(3),
        placement: draw.of(&[Placement::Even, Placement::Random]),
        seed: draw.0.next_u64(),
        ..Scenario::new(n, m, work)
    };
    if draw.once_in(5) {
        let costs = Costs { read: Nanos::from_micros(1), place: Nanos::from_micros(4), ..s.costs };
        s.costs = costs;
    }
    if draw.once_in(6) {
        s.costs.refill = ms(1);
    }
    if draw.once_in(6) {
        s.readings = Readings { noise: ms(2), stale_permille: 20 };
    }
    if draw.once_in(5) {
        s.counters = draw.of(&[Counters::Instructions, Counters::Nothing, Counters::Capacity]);
        for (i, cpu) in s.cpus.iter_mut().enumerate() {
            *cpu = Cpu { speed_permille: if i % 2 == 0 { 1000 } else { 600 }, ..Cpu::default() };
        }
    }
    if info.gives_weights() || draw.once_in(4) {
        for (i, t) in s.threads.iter_mut().enumerate() {
            t.work = work.scale(0.5 + (i * 7 % 5) as f64 / 2.0);
        }
    }
    if draw.once_in(5) {
        let then = s.threads.iter().map(|t| t.work.scale(2.0)).collect::<Vec<_>>();
        for (t, then) in s.threads.iter_mut().zip(then) {
            t.works = vec![t.work; 12].into_iter().chain(vec![then; 12]).collect();
        }
    }
    if info.places_load() && !draw.once_in(3) {
        // A program for each two threads.
        s.threads.iter_mut().enumerate().for_each(|(i, t)| t.program = i / 2);
        s.others = vec![Program { phases: s.phases, barrier }; n.div_ceil(2) - 1];
    }
    for _ in 0..draw.0.below(3) {
        let cpu = CpuId(draw.0.below(m) as u32);
        let until = draw.once_in(2).then(|| end.scale(draw.0.unit()));
        let busy = draw.once_in(2).then_some((ms(50), ms(200)));
        s.strangers.push(Stranger {
            until,
            busy,
            sleep: (ms(20), ms(300)),
            ..Stranger::always(cpu)
        });
    }
    if draw.once_in(3) && m > 1 {
        let (cpu, Span(at, back)) = (CpuId(draw.0.below(m) as u32), draw.span(end));
        s.hotplug.push(Hotplug { at, cpu, online: false });
        s.hotplug.push(Hotplug { at: back, cpu, online: true });
    }
    if draw.once_in(3) {
        for t in &mut s.threads {
            if draw.once_in(3) {
                let few = 1 + draw.0.below(m);
                t.mask = (0..few as u32).map(CpuId).collect();
            }
        }
    }
    for t in &mut s.threads {
        t.own_mask = draw.once_in(30);
        if draw.once_in(8) {
            t.start = end.scale(0.7 * draw.0.unit());
        }
        if draw.once_in(8) {
            t.end = Some(t.start + end.scale(0.1 + 0.6 * draw.0.unit()));
        }
    }
    s
}

fn conditions(draw: &mut Draw, n: usize, m: usize, end: Nanos) -> Conditions {
    let mut c = Conditions::default();
    if draw.once_in(4) {
        c.foreign = draw.some(n, end);
    }
    if draw.once_in(5) {
        c.refused = draw.some(n, end);
    }
    if draw.once_in(4) {
        c.ends = draw.some(n, end);
    }
    if draw.once_in(4) && m > 1 {
        c.without = vec![(CpuId(draw.0.below(m) as u32), draw.span(end))];
    }
    if draw.once_in(20) {
        // All of them for a while.
        let span = draw.span(end);
        c.without = (0..m as u32).map(|cpu| (CpuId(cpu), span)).collect();
    }
    if draw.once_in(5) {
        c.unreadable = draw.some(n, end.scale(1.5));
    }
    if draw.once_in(6) {
        c.exec = vec![(draw.0.below(n), end.scale(draw.0.unit()))];
    }
    c.harmed = draw.once_in(4);
    if draw.once_in(5) {
        c.neighbour =
            Some((CpuId(draw.0.below(m) as u32), draw.once_in(2), draw.span(end.scale(2.0))));
    }
    if draw.once_in(3) {
        c.kept = vec![draw.0.below(n)];
    }
    if draw.once_in(6) {
        c.weight_refused = vec![draw.0.below(n)];
    }
    c.weights_last = draw.once_in(4).then_some(ms(400));
    // What was drawn here is gone; without it all further draws would be others.
    draw.once_in(4);
    c.memory_refused = draw.once_in(3);
    c.memory_stays = draw.once_in(3);
    c.ranks = draw.once_in(2);
    c
}

/// A balancer of a CPU that is to do something: when, in which order, which, and what.
struct Due(Nanos, u64, usize, Step);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// The balancers of CPUs.
struct Many {
    all: Decentral,
    due: BinaryHeap<Reverse<Due>>,
    parked: Vec<usize>,
    given: u64,
}

impl Many {
    fn give(&mut self, at: Nanos, which: usize, step: Step) {
        self.given += 1;
        self.due.push(Reverse(Due(at, self.given, which, step)));
    }

    fn wake(&mut self, now: Nanos) {
        let lambda = self.all.board.interval();
        if self.all.board.active() {
            for which in std::mem::take(&mut self.parked) {
                let at = self.all.balancers[which].first_wake(now, lambda);
                self.give(at, which, Step::Again);
            }
        }
    }

    /// Their steps up to `end`, of which each takes a moment; earlier where the caretaker is called.
    fn run(&mut self, machine: &mut Recorded, end: Nanos) {
        let moment = Nanos::from_micros(30);
        while self.due.peek().is_some_and(|d| d.0.0 < end)
            && let Some(Reverse(Due(at, _, which, step))) = self.due.pop()
        {
            machine.sim.run_until(at);
            let board = self.all.board.clone();
            let balancer: &mut CpuBalancer = &mut self.all.balancers[which];
            if balancer.is_asleep() && !board.active() {
                self.parked.push(which);
                continue;
            }
            let next = match step {
                Step::Again => balancer.step(&board, machine),
                Step::Swap(swap) => {
                    board.swap(&swap, machine);
                    Step::Sleep
                }
                Step::Sleep => Step::Sleep,
            };
            board.took(Nanos(500));
            let now = machine.sim.now();
            match next {
                Step::Sleep => {
                    let at = balancer.next_wake(board.interval(), true).max(now + Nanos(1));
                    self.give(at, which, Step::Again);
                }
                again => self.give(now + moment, which, again),
            }
            if board.called() {
                return;
            }
        }
    }
}

/// A program that is balanced.
struct Session {
    machine: Recorded,
    balancers: Vec<Balancer>,
    sets: Vec<CpuSet>,
    many: Option<Many>,
    tracker: Option<Tracker>,
    members: Vec<(ThreadId, usize)>,
    observers: Vec<Box<dyn Observer>>,
    spread: Option<DomainSpread>,
    draw: Draw,
    open: bool,
}

impl Case {
    pub(crate) fn run(self) -> Run {
        let mut draw = Draw(Random::new(self.seed * 7919 + self.info.name.len() as u64));
        let end = draw.of(&[ms(1_500), ms(2_500), ms(4_000)]);
        let m = 1 + draw.0.below(6);
        let scenario = scenario(&mut draw, self.info, m, end);
        let conditions = conditions(&mut draw, scenario.threads.len(), m, end);
        let log = Arc::new(Mutex::new(String::new()));
        let mut session = self.begin(draw, scenario, conditions, m);
        session.observers.push(Box::new(Log(log.clone())));
        session.balance(self.info, end);
        let mut events = std::mem::take(&mut *log.lock().unwrap());
        for b in &mut session.balancers {
            b.finish(&mut session.machine);
            let summary = format!("{:.6?}", b.summary(session.machine.sim.now()));
            writeln!(events, "{}", nameless(&summary)).unwrap();
        }
        let Recorded { calls, kinds, .. } = session.machine;
        Run { name: self.name, calls, events, kinds }
    }

    fn begin(&self, mut draw: Draw, s: Scenario, conditions: Conditions, m: usize) -> Session {
        let info = self.info;
        let all: CpuSet = (0..m as u32).map(CpuId).collect();
        let wanted = (m > 2 && draw.once_in(6)).then(|| (1..m as u32).map(CpuId).collect());
        let cpus: CpuSet = wanted.clone().unwrap_or(all);
        let of = |odd: bool| -> CpuSet { cpus.iter().filter(|c| (c.0 % 2 == 1) == odd).collect() };
        let halves: Vec<CpuSet> =
            [of(false), of(true)].into_iter().filter(|h| !h.is_empty()).collect();
        let one = info.is_on_each_cpu() || info.places_load() || draw.once_in(2);
        let sets = if one { vec![cpus.clone()] } else { halves.clone() };
        let nodes = if draw.once_in(3) { Vec::new() } else { halves };
        let guard = draw.once_in(2);
        let guard = GuardOptions {
            enabled: guard && info.is_guarded(),
            share: 0.5,
            warm_up: ms(200),
            early: ms(200),
            periods: 2.0,
            shortest: ms(40),
            arms: true,
        };
        let mut sim = Sim::new(s);
        if info.places_load() {
            sim = sim.with_memory(draw.of(&[1 << 10, 1 << 20]));
            if draw.once_in(2) {
                let on: Vec<u32> = (0..sim.programs()).map(|_| draw.of(&[0, 1, 7])).collect();
                sim = sim.with_memory_on(&on);
            }
        }
        let machine = Recorded::new(sim, conditions);
        let mut many = None;
        let mut balancer = |(d, cpus): (usize, &CpuSet)| {
            let mut environment = Environment::default();
            if info.places_load() {
                let nodes = nodes.iter().cloned().enumerate().map(|(i, n)| (i as u32, n)).collect();
                let every = draw.of(&[5, 10, 20]);
                let knowledge = Knowledge { every, ..Knowledge::even(nodes, 3.0) };
                environment.knowledge = Some(Arc::new(knowledge));
            }
            if info.gives_weights() {
                environment.levels = if draw.once_in(2) { vec![nodes.clone()] } else { Vec::new() };
                environment.parts = if draw.once_in(3) { Parts::POWER } else { Parts::Time };
            }
            let options = BalancerOptions {
                domain: DomainId(d as u32),
                cpus: cpus.clone(),
                wanted: wanted.clone(),
                policy: info,
                environment,
                guard,
            };
            if info.is_on_each_cpu() {
                let (caretaker, all) =
                    Decentral::with_caretaker(options, &nodes, ms(20), self.seed, Nanos::ZERO);
                let parked = (0..all.balancers.len()).collect();
                many = Some(Many { all, due: BinaryHeap::new(), parked, given: 0 });
                return caretaker;
            }
            Balancer::new(options, Nanos::ZERO)
        };
        let balancers: Vec<Balancer> = sets.iter().enumerate().map(&mut balancer).collect();
        let tracker = draw.once_in(2).then(|| {
            Tracker::new(TrackerOptions { expected: None, settle: ms(60), eligible: None })
        });
        let spread = (sets.len() > 1).then(|| DomainSpread::new(info.is_reference()));
        Session {
            machine,
            balancers,
            sets,
            many,
            tracker,
            members: Vec::new(),
            observers: Vec::new(),
            spread,
            draw,
            open: false,
        }
    }
}

impl Session {
    fn balance(&mut self, info: &PolicyInfo, end: Nanos) {
        let period = self.draw.of(&[ms(20), ms(35), ms(100)]);
        // As when a CPU is not there when balancing begins, and belongs to a domain later.
        let adopts = (self.sets.len() > 1 || self.draw.once_in(4)).then(|| end.scale(0.5));
        let mut adopts = adopts.filter(|_| self.draw.once_in(3));
        let mut exec = self.machine.conditions.exec.first().copied();
        let mut point = 0;
        while self.machine.sim.now() < end && self.machine.sim.makespan().is_none() {
            let pause = period.scale(0.9 + 0.2 * self.draw.0.unit());
            let care = if self.many.is_some() { CARE } else { 1.0 };
            let next = self.machine.sim.now() + pause.scale(care);
            if let Some(many) = &mut self.many {
                many.run(&mut self.machine, next);
            }
            // A caretaker that was called comes after a period, at the earliest.
            let called = self.many.as_ref().is_some_and(|m| m.all.board.called());
            let next = if called { self.machine.sim.now() + Nanos(1) } else { next };
            self.machine.sim.run_until(next);
            self.machine.steal();
            let now = self.machine.sim.now();
            if exec.is_some_and(|(_, at)| at <= now) {
                self.becomes_another(exec.take().map(|(t, _)| t));
            }
            if adopts.is_some_and(|at| at <= now) {
                adopts = None;
                let cpu = CpuSet::single(CpuId(0));
                self.balancers[0].adopt(&mut self.machine, &cpu, &mut self.observers);
                self.sets[0].insert(CpuId(0));
            }
            self.take_in();
            self.spread();
            if point % 16 == 9 && self.balancers.len() > 1 {
                self.open = !self.open;
                let open = self.open;
                self.balancers.iter_mut().for_each(|b| b.open(&mut self.machine, open));
            }
            if point == 23 && self.draw.once_in(6) {
                self.machine.sim.candidates().iter().for_each(|c| self.machine.sim.restore(c.id));
                self.balancers.iter_mut().for_each(Balancer::masks_were_restored);
            }
            if point == 30 && info.gives_weights() {
                let parameters = Parameters::from_text("most-ratio=3").unwrap();
                self.balancers.iter_mut().for_each(|b| b.tune(&parameters));
            }
            self.points(period);
            if let Some(many) = &mut self.many {
                many.wake(self.machine.sim.now());
            }
            point += 1;
        }
    }

    fn points(&mut self, period: Nanos) {
        for d in 0..self.balancers.len() {
            let left = self.balancers[d].point(&mut self.machine, period, &mut self.observers);
            let now = self.machine.sim.now();
            for (id, times) in left {
                writeln!(self.machine.calls, "{id} no longer computes: {times:?}").unwrap();
                self.members.retain(|m| m.0 != id);
                if let Some(tracker) = &mut self.tracker {
                    tracker.idle(id, times, now);
                }
            }
            let b = &self.balancers[d];
            let of = (b.taking_turns(), b.is_calm(), b.period_cost(), b.len());
            writeln!(self.machine.calls, "{of:?} {:?}", b.counts().collect::<Vec<_>>()).unwrap();
        }
    }

    /// Threads that begin to compute join.
    fn take_in(&mut self) {
        let now = self.machine.sim.now();
        let all = self.machine.sim.candidates();
        self.members.retain(|(id, _)| all.iter().any(|c| c.id == *id));
        let chosen: Vec<Selection> = match &mut self.tracker {
            Some(tracker) => {
                tracker.listen(&mut self.machine);
                tracker.look(now, &all)
            }
            None => {
                let is_new = |id| !self.members.iter().any(|m| m.0 == id);
                let new = all.into_iter().filter(|c| is_new(c.id) && c.state == RunState::Runnable);
                new.map(|thread| Selection { baseline: thread.times, thread }).collect()
            }
        };
        for selection in chosen {
            let id = selection.thread.id;
            let Some(mask) = self.machine.original_mask(id) else { continue };
            let rooms = self.rooms();
            let counts: Vec<usize> = self.balancers.iter().map(Balancer::len).collect();
            let allowed: Vec<bool> = self.sets.iter().map(|s| !s.and(&mask).is_empty()).collect();
            let d = roomiest(&rooms, &counts, &allowed, None).unwrap_or(0);
            self.balancers[d].join(&mut self.machine, selection, &mask, &mut self.observers);
            self.balancers[d].number(id, (id.tid.0 - 1000) as u64);
            self.members.push((id, d));
        }
    }

    fn rooms(&mut self) -> Vec<usize> {
        let sets = self.sets.clone();
        sets.iter().map(|set| self.machine.usable(set).len()).collect()
    }

    /// Threads go from domain to domain.
    fn spread(&mut self) {
        let Some(mut spread) = self.spread.take() else { return };
        let rooms = self.rooms();
        let threads: Vec<DomainThread> = (0..self.members.len())
            .map(|class| DomainThread { domain: self.members[class].1, class, movable: true })
            .collect();
        let allowed: Vec<Vec<bool>> = (self.members.iter())
            .map(|(id, _)| {
                let mask = self.machine.sim.original_mask(*id).unwrap();
                self.sets.iter().map(|set| !set.and(&mask).is_empty()).collect()
            })
            .collect();
        for t in spread.look(self.machine.sim.now(), &rooms, &allowed, &threads) {
            let (id, from) = self.members[t.thread];
            let Some(mask) = self.machine.original_mask(id) else { continue };
            let to = DomainId(t.to as u32);
            let released =
                self.balancers[from].release(&mut self.machine, id, to, &mut self.observers);
            if let Some(selection) = released {
                let to = &mut self.balancers[t.to];
                to.join(&mut self.machine, selection, &mask, &mut self.observers);
                self.members[t.thread].1 = t.to;
            }
        }
        self.spread = Some(spread);
    }

    /// A thread becomes another program: it is let go, and comes back once it computes.
    fn becomes_another(&mut self, thread: Option<usize>) {
        // Some are seen to have done so only by their counters.
        if self.draw.once_in(2) {
            return;
        }
        let found =
            self.members.iter().position(|(id, _)| Some((id.tid.0 - 1000) as usize) == thread);
        let Some((id, d)) = found.map(|at| self.members.remove(at)) else { return };
        let now = self.machine.sim.now();
        self.machine.restore(id);
        let times = self.balancers[d].let_go(&mut self.machine, id, now, &mut self.observers);
        if let (Some(tracker), Some(times)) = (&mut self.tracker, times) {
            tracker.idle(id, times, now);
        }
    }
}

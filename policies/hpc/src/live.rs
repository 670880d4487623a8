//! The heuristics of HPCSched at work: `hpc-uniform`, `hpc-adaptive`, `hpc-auto`.
//!
//! Two things level a program whose threads have unequal work. *Placement* (section IV-A): each CPU has as many
//! threads as any other, and so has each core, cache and node; heavy ones are beside light ones; threads change
//! places where the CPU with the most work has less of it then. *Weights* are what threads have of the CPU that
//! they share; they matter where those that wait spin, and eat the time of those that compute.
//!
//! `hpc-uniform` and `hpc-adaptive` give weights by the paper's priorities, which [`Detector`] finds. These
//! were made for the contexts of a core, of which one that waits sleeps. Where CPUs are shared in time and
//! waiting is spinning, too much is as bad as nothing: a thread that is done early spins with its large
//! weight. So `hpc-auto` gives threads that share a CPU weights in proportion to what they computed in the
//! last rounds: then they are done at the same time, none spins, and no weights are better with these
//! places.
//!
//! What a thread computes in an iteration (its *load*) is only known from balancing points, which come
//! somewhere in iterations: of one round it may be wrong by a third. What one round has too much the next has
//! too little, so loads are means over the rounds since work last changed, what is known from few rounds must
//! differ by more to count ([`UNSURE`]), and a mean in which the last rounds count most shows when work has
//! changed ([`CHANGED`]): then the last round is all that is known. Weights go by a single round only where the
//! round before says the same; of the first one, in which threads are registered, only the end is seen, but that is
//! enough for this. So weights follow what work is after two iterations, at the beginning and after a change of
//! 3:1 and more (one time in 20 or 30 after three); smaller ones may take one more to differ from noise. Giving
//! weights costs a millisecond, and weights that follow the noise are worse than those that stay.
//!
//! Weights that are the wrong way round after a change are worse than none: the thread that has most to do now
//! has least of its CPU. So where a thread computes for much longer than is known, those on its CPU that wait get
//! as little as may be until the round is over, and that round alone shows what work is.
//!
//! All this is of parts of a CPU's time. Where parts are steps between the contexts of a core ([`Parts::Steps`]),
//! one that waits sleeps on a context of its own, and no formula gives what a step is in speed, so proportions
//! mean nothing. There the steps themselves are tried: `hpc-auto` gives the priorities of [`Detector`]'s `auto`,
//! which measures what iterations take. Which of the two holds is known from the mechanism, the same way live and
//! in the simulator.
//!
//! Threads that sleep while they wait leave their CPU to those that compute, and every CPU is busy until all on it
//! are done: parts of CPUs gain nothing then, and lose where one that is lowered is the one that wakes the others.
//! So these are placed, and have even parts ([`SLEEPS`]). Of those that spin it is tried whether other parts are
//! better, where CPUs do not compute as much as they could ([`Trial`]).
//!
//! As programs begin and end they wait for each other without working in between: MPI_Init, MPI_Finalize, a
//! result that is gathered. Where CPUs are busy each such meeting is a round of its own, in which one has a
//! multiple of nearly nothing to do. So rounds with far less work than usual do not count ([`TINY`]) unless
//! there are more and more of them, and loads count once they stand for some work ([`LEAST_KNOWN_S`]).
//!
//! Both need to know when an iteration ends and how long threads wait, which they report themselves
//! ([`evenly_model::Turns`]; the probe). Threads that report nothing are spread evenly, and nothing else.
//!
//! Invariants: counts of threads differ by no more than one, as far as masks permit, and no part of the
//! machine has more than another while moving one would change that; weights are in
//! every plan in which one of them is another than before, those of all threads together.

use super::levels::EvenCounts;
use super::trial::{Arm, Done, Trial};
use super::{Counters, Detector, DetectorState, Heuristic, Parameter, Parameters, Parts, shares};
use evenly_model::{
    CpuIndex, Environment, FULL_CAPACITY, Nanos, Plan, Reason, Snapshot, ThreadId, ThreadIndex,
    ThreadView, Turns, Weight,
};
use evenly_policy::{Acts, Mechanism, Needs, Policy, PolicyInfo, Spreader};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Rounds between two changes of places, and before the first: of the first round no load is known.
const ROUNDS_BETWEEN: u64 = 2;
/// Rounds that a load is the mean of, at most.
const MOST_ROUNDS: u32 = 16;
/// With fewer, weights are given by it only where the round before the last says the same.
const ENOUGH_ROUNDS: u32 = 2;
/// What a load of a single round may be wrong by; the mean of some by so many times less.
const UNSURE: f64 = 0.25;
/// Rounds with a smaller part of the usual work are none of the program's iterations,
const TINY: f64 = 0.1;
/// unless so many come one after the other.
const MOST_TINY: u32 = 8;
/// CPU time that all threads together must have computed since work last changed, for weights to be given by it.
const LEAST_KNOWN_S: f64 = 0.02;
/// By what part the last rounds must differ from the mean for work to have changed.
const CHANGED: f64 = 0.4;
/// What is less than this part of the mean load of all is not looked at for that.
const SMALL: f64 = 0.25;
/// Below this part of all CPU time spinning is not worth any weights.
const LEAST_SPINNING: f64 = 0.02;
/// Threads sleep while they wait where they are blocked for more than this part of their waiting, and no longer
/// where that is less than the other.
const SLEEPS: [f64; 2] = [0.6, 0.4];
/// What the last round counts there.
const LAST_WAITING: f64 = 0.5;
/// Weights are damped to this ratio: two levels of HPCSched's priorities.
const DAMPED: f64 = 2.0;
/// Without a barrier or collective of any thread for so long, but with other waiting, iterations end with any
/// waiting.
const WITHOUT_PHASES: Nanos = Nanos::from_millis(2_000);

const fn info(
    name: &'static str,
    about: &'static str,
    make: fn() -> Box<dyn Policy>,
) -> PolicyInfo {
    PolicyInfo {
        name,
        about,
        needs: Needs::Turns,
        acts: Acts::AtPoints(Mechanism::Pin),
        make,
        arms: &[],
    }
}

/// `hpc-auto`: parts of CPUs by what threads computed.
pub const AUTO: PolicyInfo = info(
    "hpc-auto",
    "unequal work: CPU shares by what threads compute, heavy ones beside light ones",
    || Box::new(Hpc::new(Heuristic::Auto)),
);
/// `hpc-uniform`: priorities by utilisation since the program began.
pub const UNIFORM: PolicyInfo =
    info("hpc-uniform", "the same by HPCSched's priorities: by utilisation since it began", || {
        Box::new(Hpc::new(Heuristic::Uniform))
    });
/// `hpc-adaptive`: priorities mostly by utilisation in the last iteration.
pub const ADAPTIVE: PolicyInfo = info(
    "hpc-adaptive",
    "the same by HPCSched's priorities: mostly by utilisation in the last iteration",
    || Box::new(Hpc::new(Heuristic::Adaptive)),
);

/// What is known of a thread's work.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    /// CPU time in which it computed and in which it spun until the last round, since it was registered; and its
    /// iterations.
    computed: Nanos,
    spun: Nanos,
    iterations: u64,
    /// The times until the last point.
    seen: (Nanos, Nanos),
    /// It hardly computed from one point to the next, but spun.
    waits: bool,
    /// What it spun in the last round.
    spun_s: f64,
    /// For how long it had waited until the last round, and was blocked since.
    waited: Nanos,
    blocked: Nanos,
    /// The same in a round: the mean of all since work changed. None until it has had one.
    load_s: Option<f64>,
    /// And with the last ones counting most.
    recent_s: f64,
    /// In the last one, and in the one before; the first may be the end of a round only.
    done_s: Option<f64>,
    before_s: Option<f64>,
}

/// The policies `hpc-*`: a heuristic at work in one domain.
#[derive(Debug, Clone)]
pub struct Hpc {
    heuristic: Heuristic,
    detector: Detector<ThreadId>,
    spreader: Spreader,
    work: HashMap<ThreadId, Work>,
    counters: Vec<Counters<ThreadId>>,
    /// Weights as they were planned last.
    weights: HashMap<ThreadId, f64>,
    /// Iterations end at barriers and collectives, or else with any waiting.
    by_phases: bool,
    /// When a thread reached one last, and how many all had reached.
    last_phase: Option<(Nanos, u64)>,
    placed_at: u64,
    /// Rounds that loads are the means of.
    alike: u32,
    even_counts: EvenCounts,
    environment: Arc<Environment>,
    /// What all have computed in these, and in any before since work last changed.
    known_s: f64,
    /// Rounds without work, up to the last one.
    tiny: u32,
    /// In this round a thread computes for much longer than was known.
    overran: bool,
    /// For how many seconds all have waited in the last rounds, and been blocked then; and what that makes them.
    waited_s: f64,
    blocked_s: f64,
    sleep: bool,
    trial: Trial,
    /// When the last round was over.
    round_at: Option<Nanos>,
    at: Vec<CpuIndex>,
    loads: Vec<f64>,
}

impl Hpc {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new(heuristic: Heuristic) -> Self {
        Self {
            heuristic,
            detector: Detector::new(heuristic, Parameters::default()),
            spreader: Spreader::default(),
            work: HashMap::new(),
            counters: Vec::new(),
            weights: HashMap::new(),
            by_phases: true,
            last_phase: None,
            placed_at: 0,
            alike: 0,
            even_counts: EvenCounts::default(),
            environment: Arc::default(),
            known_s: 0.0,
            tiny: 0,
            overran: false,
            waited_s: 0.0,
            blocked_s: 0.0,
            sleep: false,
            trial: Trial::new(),
            round_at: None,
            at: Vec::new(),
            loads: Vec::new(),
        }
    }

    /// Takes over what has changed of what is known and set.
    fn look_at(&mut self, environment: &Arc<Environment>) {
        if Arc::ptr_eq(&self.environment, environment) {
            return;
        }
        if self.environment.tuning != environment.tuning {
            self.trial.forget();
            self.detector.tune(&environment.tuning);
        }
        if self.environment.levels != environment.levels {
            self.even_counts.forget();
        }
        self.environment = environment.clone();
    }

    /// Reads what threads report. False where one of them reports nothing.
    fn read(&mut self, s: &Snapshot) -> bool {
        if self.work.len().max(self.weights.len()) > s.threads.len() {
            let here: HashSet<ThreadId> = s.threads.iter().map(|t| t.id).collect();
            self.work.retain(|id, _| here.contains(id));
            self.weights.retain(|id, _| here.contains(id));
        }
        let phases: u64 = s.threads.iter().filter_map(|t| t.turns).map(|t| t.phases).sum();
        match &mut self.last_phase {
            Some((_, before)) if *before == phases => {}
            last => *last = Some((s.now, phases)),
        }
        let all_tell = s.threads.iter().all(|t| t.turns.is_some());
        let is_silent = self.last_phase.is_some_and(|(at, _)| s.now - at > WITHOUT_PHASES);
        if self.by_phases && all_tell && is_silent {
            self.by_phases = false;
        }
        all_tell
    }

    fn counters(&mut self, s: &Snapshot) {
        let by_phases = self.by_phases;
        self.counters.clear();
        self.counters.extend(s.threads.iter().filter_map(|thread| {
            let t = thread.turns?;
            Some(Counters {
                thread: thread.id,
                iterations: iterations(&t, by_phases),
                computed: t.runnable,
                waited: t.waited,
            })
        }));
    }

    /// What threads have computed until they are registered is of no round. And which ones wait just now.
    fn register(&mut self, s: &Snapshot) {
        for t in &s.threads {
            let Some(turns) = t.turns else { continue };
            let Turns { computed, spun, waited, .. } = turns;
            let iterations = iterations(&turns, self.by_phases);
            let seen = (computed, spun);
            let new = || Work { computed, spun, iterations, seen, waited, ..Work::default() };
            let work = self.work.entry(t.id).or_insert_with(new);
            work.blocked += t.blocked;
            let newly = (computed - work.seen.0, spun - work.seen.1);
            work.waits = newly.1.0 > 9 * newly.0.0;
            work.seen = seen;
        }
    }

    /// Whether weights are computed from work, rather than from priorities.
    fn goes_by_work(&self) -> bool {
        self.heuristic == Heuristic::Auto && self.environment.parts == Parts::Time
    }

    fn parameter(&self, parameter: Parameter) -> f64 {
        self.detector.parameters().get(parameter)
    }

    /// A round has ended: what each thread has computed in it.
    fn book(&mut self, s: &Snapshot) {
        let weight = self.parameter(Parameter::LastWeight);
        let mut is_known = false;
        if self.is_tiny(s) {
            return;
        }
        let (mut waited, mut blocked) = (Nanos::ZERO, Nanos::ZERO);
        for t in &s.threads {
            let (Some(turns), Some(work)) = (t.turns, self.work.get_mut(&t.id)) else { continue };
            let done_s = (turns.computed - work.computed).as_secs_f64();
            work.before_s = work.done_s.replace(done_s);
            work.spun_s = (turns.spun - work.spun).as_secs_f64();
            (work.computed, work.spun) = (turns.computed, turns.spun);
            let newly = turns.waited - work.waited;
            waited += newly;
            blocked += std::mem::take(&mut work.blocked).min(newly);
            work.waited = turns.waited;
            work.iterations = iterations(&turns, self.by_phases);
            // Of the round in which it was registered only the end was seen.
            if work.before_s.is_none() {
                continue;
            }
            is_known = true;
            match work.load_s {
                Some(_) => work.recent_s += weight * (done_s - work.recent_s),
                None => (work.load_s, work.recent_s) = (Some(done_s), done_s),
            }
        }
        if !is_known {
            return;
        }
        self.note_waiting(waited, blocked);
        let known = self.work.values().filter(|w| w.load_s.is_some());
        let done: f64 = known.filter_map(|w| w.done_s).sum();
        if self.has_changed() {
            (self.alike, self.known_s) = (1, done);
        } else {
            self.alike = (self.alike + 1).min(MOST_ROUNDS);
            self.known_s += done;
        }
        for work in self.work.values_mut() {
            let (Some(load), Some(done_s)) = (&mut work.load_s, work.done_s) else { continue };
            *load += (done_s - *load) / f64::from(self.alike);
            if self.alike == 1 {
                work.recent_s = done_s;
            }
        }
    }

    /// What all have waited in a round, and for how long they were blocked then.
    fn note_waiting(&mut self, waited: Nanos, blocked: Nanos) {
        for (all, newly) in [(&mut self.waited_s, waited), (&mut self.blocked_s, blocked)] {
            *all += newly.as_secs_f64() - LAST_WAITING * *all;
        }
        let sleep = self.blocked_s > SLEEPS[usize::from(self.sleep)] * self.waited_s;
        if sleep != self.sleep {
            self.sleep = sleep;
            self.trial.forget();
        }
    }

    /// How parts are made of work where nothing has been tried.
    fn usual(&self) -> Arm {
        if self.sleep { Arm::Even } else { Arm::Work }
    }

    /// A round has ended, and has been booked: whether other parts are to be tried.
    fn try_others(&mut self, s: &Snapshot, plan: &Plan) {
        let since = self.round_at.replace(s.now);
        let is_same = self.alike > 1 && self.tiny == 0 && !self.overran && plan.moves.is_empty();
        let (true, false, Some(since)) = (is_same, self.sleep, since) else {
            self.trial.interrupt();
            return;
        };
        self.loads.clear();
        self.loads.resize(s.cpus.len(), 0.0);
        for t in &s.threads {
            let done = self.work.get(&t.id).and_then(|w| w.done_s);
            if let (Some(load), Some(done)) = (self.loads.get_mut(t.cpu), done) {
                *load += done;
            }
        }
        let done = Done {
            elapsed_s: (s.now - since).as_secs_f64(),
            computed_s: self.loads.iter().sum(),
            fullest_s: self.loads.iter().copied().fold(0.0, f64::max),
        };
        let mut trial = std::mem::replace(&mut self.trial, Trial::new());
        let step = self.parameter(Parameter::WeightStep) / 100.0 + self.unsure();
        trial.round(done, self.usual(), |arm, round_s| {
            let Some(weights) = self.in_proportion(s, plan, arm, |w| w.load_s) else {
                return false;
            };
            let is_other = self.off(s, &weights).iter().any(|off| off.abs() > step);
            // With even ones those that spin cost most; others are tried even so, as threads may yield.
            is_other && (arm != Arm::Even || self.least_round_s(s, &weights) < round_s)
        });
        self.trial = trial;
    }

    /// How long a round takes with these weights where those that wait spin, and nothing is done in between.
    fn least_round_s(&self, s: &Snapshot, weights: &[f64]) -> f64 {
        let threads = || s.threads.iter().zip(weights);
        let mut sums = vec![0.0; s.cpus.len()];
        for (t, weight) in threads() {
            if let Some(sum) = sums.get_mut(t.cpu) {
                *sum += weight;
            }
        }
        let took = |(t, weight): (&ThreadView, &f64)| {
            let load = self.work.get(&t.id)?.load_s?;
            Some(load * sums.get(t.cpu)? / weight)
        };
        threads().filter_map(took).fold(0.0, f64::max)
    }

    /// Whether the round that has ended was without work; what little there was is booked with the next.
    fn is_tiny(&mut self, s: &Snapshot) -> bool {
        let (mut done, mut usual) = (0.0, 0.0);
        for t in &s.threads {
            let (Some(turns), Some(work)) = (t.turns, self.work.get(&t.id)) else { continue };
            let Some(load) = work.load_s else { continue };
            done += (turns.computed - work.computed).as_secs_f64();
            usual += load;
        }
        let is_tiny = done < TINY * usual && self.tiny < MOST_TINY;
        self.tiny = if is_tiny { self.tiny + 1 } else { 0 };
        is_tiny
    }

    /// Whether the last rounds of a thread are clearly not like those before.
    fn has_changed(&self) -> bool {
        // A single round may be partly of the work before: then the next one alone is not like it.
        let recent = |w: &Work| if self.alike == 1 { w.done_s } else { Some(w.recent_s) };
        let known = || self.work.values().filter_map(|w| Some((w.load_s?, recent(w)?)));
        let small = self.small();
        let differs = |(load, recent): (f64, f64)| {
            (recent - load).abs() > CHANGED * load.max(recent).max(small)
        };
        known().any(differs)
    }

    /// Loads below this are all the same.
    fn small(&self) -> f64 {
        let known = || self.work.values().filter_map(|w| w.load_s);
        SMALL * known().sum::<f64>() / known().count().max(1) as f64
    }

    /// What is known from few rounds must differ by this much more.
    fn unsure(&self) -> f64 {
        UNSURE / f64::from(self.alike.max(1))
    }

    /// Threads that change places, so that the CPU with the most work has less.
    fn place(&mut self, s: &Snapshot, plan: &mut Plan) {
        let m = s.cpus.len();
        let load = |work: &HashMap<ThreadId, Work>, t: ThreadIndex| {
            work.get(&s.threads[t].id).and_then(|w| w.load_s).unwrap_or(0.0)
        };
        self.at.clear();
        self.at.extend(s.threads.iter().map(|t| t.cpu));
        self.loads.clear();
        self.loads.resize(m, 0.0);
        for (t, &cpu) in self.at.iter().enumerate() {
            if let Some(l) = self.loads.get_mut(cpu) {
                *l += load(&self.work, t);
            }
        }
        let time = |load: f64, cpu: CpuIndex| {
            load * f64::from(FULL_CAPACITY) / f64::from(s.cpus[cpu].capacity.max(1))
        };
        let longest = |loads: &[f64]| (0..m).map(|c| time(loads[c], c)).fold(0.0, f64::max);
        let before = longest(&self.loads);
        let may = |t: ThreadIndex, cpu: CpuIndex| {
            let thread = &s.threads[t];
            let mask = s.masks.get(thread.mask);
            thread.movable && mask.and_then(|m| m.get(cpu)).copied().unwrap_or(false)
        };
        // Each exchange makes the longest CPU shorter, or it is the last.
        for _ in 0..s.threads.len() {
            let Some(full) =
                (0..m).max_by(|&a, &b| time(self.loads[a], a).total_cmp(&time(self.loads[b], b)))
            else {
                return;
            };
            let now = time(self.loads[full], full);
            let mut best: Option<(f64, ThreadIndex, ThreadIndex)> = None;
            for (a, _) in self.at.iter().enumerate().filter(|(_, cpu)| **cpu == full) {
                for (b, &other) in self.at.iter().enumerate() {
                    if other == full || other >= m || !may(a, other) || !may(b, full) {
                        continue;
                    }
                    let less = load(&self.work, a) - load(&self.work, b);
                    let after = time(self.loads[full] - less, full)
                        .max(time(self.loads[other] + less, other));
                    if after < now && best.is_none_or(|(least, ..)| after < least) {
                        best = Some((after, a, b));
                    }
                }
            }
            let Some((_, a, b)) = best else { break };
            let less = load(&self.work, a) - load(&self.work, b);
            let (from, to) = (self.at[a], self.at[b]);
            self.loads[from] -= less;
            self.loads[to] += less;
            self.at.swap(a, b);
        }
        let gain = self.parameter(Parameter::PlaceGain) / 100.0 + self.unsure();
        if longest(&self.loads) < before * (1.0 - gain) {
            for (t, (thread, &to)) in s.threads.iter().zip(&self.at).enumerate() {
                if thread.cpu != to {
                    plan.push(t, to, Reason::Paired);
                }
            }
        }
    }

    /// Weights that are wrong are worse than none. Where a thread computes for much longer than is known, those that
    /// wait for it on its CPU get as little as may be until the round is over. It then shows what work is now.
    fn stand_back(&mut self, s: &Snapshot, plan: &mut Plan) {
        if !self.goes_by_work() || self.weights.values().all(|w| *w == 1.0) {
            return;
        }
        let (small, part) = (self.small(), 1.0 + CHANGED + self.unsure());
        let (work, by_phases) = (&self.work, self.by_phases);
        let overruns = |t: &ThreadView| {
            let (turns, work) = (t.turns?, work.get(&t.id)?);
            let longest = work.load_s?.max(small) * part + s.elapsed.as_secs_f64();
            let is_in_it = iterations(&turns, by_phases) == work.iterations;
            Some(is_in_it && (turns.computed - work.computed).as_secs_f64() > longest)
        };
        if !s.threads.iter().any(|t| overruns(t).unwrap_or(false)) {
            return;
        }
        let waits = |t: &ThreadView| work.get(&t.id).is_some_and(|w| w.waits);
        let least = 1.0 / self.parameter(Parameter::MostRatio);
        let needs = |t: &ThreadView| if waits(t) { least } else { 1.0 };
        let has = |t: &ThreadView| self.weights.get(&t.id).copied().unwrap_or(1.0);
        let mut weights: Vec<f64> = s.threads.iter().map(has).collect();
        for cpu in 0..s.cpus.len() {
            let on = || s.threads.iter().enumerate().filter(|(_, t)| t.cpu == cpu);
            let waiting = on().filter(|(_, t)| waits(t)).count();
            // All of them, or none: no thread can give way.
            if waiting == 0 || waiting == on().count() {
                continue;
            }
            let needs: Vec<f64> = on().map(|(_, t)| needs(t)).collect();
            for ((i, _), weight) in on().zip(shares(&needs, 1.0 / least)) {
                weights[i] = weight;
            }
        }
        self.overran = true;
        let step = self.parameter(Parameter::WeightStep) / 100.0;
        if s.threads.iter().zip(&weights).any(|(t, w)| (w / has(t) - 1.0).abs() > step) {
            self.plan_weights(s, weights, plan);
        }
    }

    /// Weights by such loads among threads that share a CPU once they are where the plan has them; none where the
    /// load of one is not known.
    fn in_proportion(
        &self,
        s: &Snapshot,
        plan: &Plan,
        arm: Arm,
        load: impl Fn(&Work) -> Option<f64>,
    ) -> Option<Vec<f64>> {
        let loads = s.threads.iter().map(|t| self.work.get(&t.id).and_then(&load));
        let loads: Vec<f64> = loads.collect::<Option<_>>()?;
        let mut on: Vec<Vec<ThreadIndex>> = vec![Vec::new(); s.cpus.len()];
        let mut at: Vec<CpuIndex> = s.threads.iter().map(|t| t.cpu).collect();
        plan.moves.iter().for_each(|m| at[m.thread] = m.to);
        for (i, cpu) in at.into_iter().enumerate() {
            on.get_mut(cpu)?.push(i);
        }
        let most = self.parameter(Parameter::MostRatio);
        let most = match arm {
            Arm::Work => most,
            Arm::Damped => most.min(DAMPED),
            Arm::Even => 1.0,
        };
        let mut weights = vec![1.0; loads.len()];
        for together in &on {
            let needs: Vec<f64> = together.iter().map(|&i| loads[i]).collect();
            for (&i, weight) in together.iter().zip(shares(&needs, most)) {
                weights[i] = weight;
            }
        }
        Some(weights)
    }

    /// By how much weights are other ones than threads have.
    fn off(&self, s: &Snapshot, weights: &[f64]) -> Vec<f64> {
        let has = |t: &ThreadView| self.weights.get(&t.id).copied().unwrap_or(1.0);
        s.threads.iter().zip(weights).map(|(t, weight)| weight / has(t) - 1.0).collect()
    }

    /// By work, where parts gain something and are other ones than those that threads have.
    fn by_work(&mut self, s: &Snapshot, plan: &Plan) -> Option<Vec<f64>> {
        let arm = self.trial.arm(self.usual());
        let weights = self.in_proportion(s, plan, arm, |w| w.load_s)?;
        if self.known_s < LEAST_KNOWN_S {
            return None;
        }
        let sum = |of: fn(&Work) -> f64| -> f64 {
            s.threads.iter().filter_map(|t| self.work.get(&t.id)).map(of).sum()
        };
        let (spun, load) = (sum(|w| w.spun_s), sum(|w| w.load_s.unwrap_or(0.0)));
        let is_set = s.threads.iter().any(|t| self.weights.contains_key(&t.id));
        if spun < LEAST_SPINNING * (spun + load) && !is_set {
            return None;
        }
        let (least, now) = (self.parameter(Parameter::WeightStep) / 100.0, self.off(s, &weights));
        let step = least + self.unsure();
        let is_off = |off: &f64| off.abs() > step;
        if !now.iter().any(is_off) {
            return None;
        }
        if self.alike < ENOUGH_ROUNDS && !self.overran {
            // A single round may be no iteration: programs wait for each other as they begin and end, too.
            let before = self.in_proportion(s, plan, arm, |w| w.before_s)?;
            let before = self.off(s, &before);
            let says_the_same = |(now, before): (&f64, &f64)| before * now.signum() > least;
            if !now.iter().zip(&before).filter(|(now, _)| is_off(now)).all(says_the_same) {
                return None;
            }
        }
        Some(weights)
    }

    /// The weights of all, where one has changed.
    fn weigh(&mut self, s: &Snapshot, plan: &mut Plan) {
        let stood_down = matches!(self.detector.state(), DetectorState::StoodDown(_));
        let weights: Vec<f64> = if stood_down {
            vec![1.0; s.threads.len()]
        } else if self.goes_by_work() {
            match self.by_work(s, plan) {
                Some(weights) => weights,
                None => return,
            }
        } else {
            let (parts, parameters) = (self.environment.parts, self.detector.parameters());
            let of = |t: &ThreadView| parts.weight(self.detector.priority(&t.id), parameters);
            s.threads.iter().map(of).collect()
        };
        let is_new = s.threads.iter().zip(&weights).any(|(t, weight)| {
            let before = self.weights.get(&t.id).copied().unwrap_or(1.0);
            (before - weight).abs() > f64::EPSILON
        });
        if is_new {
            self.plan_weights(s, weights, plan);
        }
    }

    fn plan_weights(&mut self, s: &Snapshot, weights: Vec<f64>, plan: &mut Plan) {
        let planned = weights.iter().enumerate();
        plan.weights.extend(planned.map(|(thread, &weight)| Weight { thread, weight }));
        self.weights = s.threads.iter().map(|t| t.id).zip(weights).collect();
    }
}

/// Those that a thread has begun.
fn iterations(turns: &Turns, by_phases: bool) -> u64 {
    if by_phases { turns.phases } else { turns.waits }
}

impl Policy for Hpc {
    fn decide(&mut self, s: &Snapshot, plan: &mut Plan) {
        self.look_at(&s.environment);
        let all_tell = self.read(s);
        let spread = self.spreader.spread(s, plan);
        self.even_counts.even_out(s, &self.environment.levels, plan);
        if spread || !plan.moves.is_empty() {
            // Loads count again once all have places.
            self.placed_at = self.detector.rounds();
        }
        if !all_tell || s.threads.is_empty() {
            return;
        }
        self.counters(s);
        self.register(s);
        let rounds = self.detector.rounds();
        let decided = self.detector.observe(s.now, &self.counters).is_some();
        let is_over = self.detector.rounds() > rounds;
        if is_over {
            self.book(s);
            if plan.moves.is_empty() && self.detector.rounds() >= self.placed_at + ROUNDS_BETWEEN {
                self.place(s, plan);
                if !plan.moves.is_empty() {
                    self.placed_at = self.detector.rounds();
                }
            }
            if self.goes_by_work() {
                self.try_others(s, plan);
            }
        }
        if decided {
            self.weigh(s, plan);
        }
        if is_over {
            self.overran = false;
        } else {
            self.stand_back(s, plan);
        }
    }
}

#[cfg(test)]
mod tests;

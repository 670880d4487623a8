//! Balancing programs that compute and wait in turns: HPCSched (Boneti and others, A dynamic scheduler
//! for balancing HPC applications, SC 2008).
//!
//! A *thread* here is an MPI rank or a thread of OpenMP or POSIX. It computes for t_R and then waits for t_W; the two are an
//! *iteration*. Its utilisation is U = t_R / (t_R + t_W), its global one sum t_R / sum t. One that waits has
//! more of the machine than it needs, one that does not has less than it could use. So there are priorities
//! (section IV-B), from `MIN_PRIO` 4, which is normal, to `MAX_PRIO` 6; what a priority is made of is the
//! matter of a mechanism: decode cycles on a POWER5, elsewhere a share of a CPU
//! ([`Parameters::weight`], and [`shares()`] where more is known).
//!
//! ```text
//! iterations, or counters -> rounds -> load imbalance detector -> heuristic -> priorities, and why
//! ```
//!
//! The detector ([`Detector`]) decides when a heuristic is asked:
//!
//! - A *round* is over when all have finished an iteration. One that hardly computes at all, as the master
//!   of MetBench, is not balanced and holds no other up.
//! - A round is *balanced* when no utilisation is below `HIGH_UTIL`. A balanced program is in a *stable
//!   state*, as is one that the heuristic has nothing more to do for, once history says the same as the
//!   last round. It only watches then, until a utilisation differs from what it was by more
//!   than `tolerance`.
//! - Where none finishes an iteration for long, or there is none to wait for, it *stands down*: all
//!   priorities are normal.
//!
//! Heuristics are [`Heuristic`]; what the paper leaves open, and how it is read here, stands in the
//! module of each. `auto` has a detector of its own, as it compares what iterations took; what becomes of its
//! priorities depends on what parts are made of ([`Parts`]).
//!
//! # How it is called
//! By the policies `hpc-*` ([`Hpc`]), live and in both simulators, at every balancing point with counters as the
//! probe has them ([`Detector::observe`]); or by a caller that sees iterations end, with [`Detector::finished`]:
//!
//! - `iterations`: waits that were begun, less the one that it is in (`waits` of `probe/c/waiting.h`), so
//!   that an iteration counts when its waiting is over;
//! - `waited`: the probe's, until now;
//! - `computed`: the rest of the time since the thread was first seen, less what it was outside of
//!   parallel regions. It includes waiting for a CPU, as the paper's: a computing phase is one in which
//!   the process is runnable.
//!
//! What an iteration that goes on has computed so far is booked with the one before; that evens out,
//! and is small where points come often.
//!
//! Invariants: priorities are always between `MIN_PRIO` and `MAX_PRIO`; equal input gives equal answers;
//! it does not matter in which order threads come; in a stable state no priority is changed.

#![forbid(unsafe_code)]

mod auto;
mod detector;
mod heuristics;
mod levels;
mod live;
mod shares;
#[cfg(test)]
mod tests;
mod trial;

pub use detector::{Counters, Iteration};
pub use evenly_model::hpc::{
    Heuristic, Levels, Parameter, ParameterError, Parameters, Parts, Priority,
};
pub use live::{ADAPTIVE, AUTO, Hpc, UNIFORM};
pub use shares::shares;

use auto::{Auto, Outcome};
use detector::{Accounts, Round};
use evenly_model::Nanos;
use heuristics::Targets;
use std::collections::BTreeMap;

/// Why nothing is balanced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandDown {
    /// None finishes an iteration any more, or ever did.
    NoIterations,
    /// There is no other to wait for.
    Alone,
}

/// What the detector makes of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetectorState {
    /// No round is over yet.
    Learning,
    /// Priorities are being found.
    Balancing,
    /// It is as balanced as it gets; it is only watched.
    Stable,
    /// All have the normal priority.
    StoodDown(StandDown),
}

/// Why a thread has the priority that it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Too little is known yet.
    Learning,
    /// It computed for longer than others: it has a higher one than before.
    Raised,
    /// It waited for others: it has a lower one.
    Lowered,
    /// The heuristic leaves it as it is.
    Kept,
    /// The program's behaviour has changed; this one is left as it is.
    Changed,
    /// The program is in a stable state.
    Stable,
    /// The detector stands down.
    StoodDown,
}

impl Why {
    /// The reason in words, for reports.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Learning => "learning",
            Self::Raised => "raised",
            Self::Lowered => "lowered",
            Self::Kept => "kept",
            Self::Changed => "changed",
            Self::Stable => "stable",
            Self::StoodDown => "stood down",
        }
    }
}

/// What a thread is to have from now on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision<T> {
    /// The thread whose priority this is.
    pub thread: T,
    /// What it has had.
    pub before: Priority,
    /// What it is to have.
    pub priority: Priority,
    /// Why it has this priority.
    pub why: Why,
    /// U_l of the round that has ended; none where nothing is known of it.
    pub utilisation: Option<f64>,
    /// The weight of the priority relative to the normal one, for mechanisms that share out a CPU.
    pub weight: f64,
}

/// When rounds were over, as given to `observe`.
#[derive(Debug, Clone, Copy)]
struct Clock {
    last: Nanos,
    longest: Nanos,
}

/// Of the longest round, what counts as "for long".
const LONG: f64 = 8.0;

/// The load imbalance detector, with a heuristic. One for a set of threads that wait for each other.
#[derive(Debug, Clone)]
pub struct Detector<T> {
    heuristic: Heuristic,
    parameters: Parameters,
    accounts: Accounts<T>,
    priorities: BTreeMap<T, Priority>,
    state: DetectorState,
    decisions: Vec<Decision<T>>,
    /// What utilisations were when the stable state was found. Of uniform and adaptive.
    profile: BTreeMap<T, f64>,
    auto: Auto<T>,
    clock: Option<Clock>,
    rounds: u64,
}

impl<T: Copy + Ord> Detector<T> {
    /// One that knows no thread yet.
    #[must_use]
    pub fn new(heuristic: Heuristic, parameters: Parameters) -> Self {
        Self {
            heuristic,
            parameters,
            accounts: Accounts::new(),
            priorities: BTreeMap::new(),
            state: DetectorState::Learning,
            decisions: Vec::new(),
            profile: BTreeMap::new(),
            auto: Auto::new(),
            clock: None,
            rounds: 0,
        }
    }

    /// What it makes of the program.
    #[must_use]
    pub fn state(&self) -> DetectorState {
        self.state
    }

    /// Rounds that are over.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The parameters by which it decides.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The priority of a thread; the normal one where it is not known.
    #[must_use]
    pub fn priority(&self, thread: &T) -> Priority {
        self.priorities.get(thread).copied().unwrap_or(Priority::NORMAL)
    }

    /// What was decided last, in the order of threads.
    #[must_use]
    pub fn decisions(&self) -> &[Decision<T>] {
        &self.decisions
    }

    /// Changes a parameter. It counts from the next round on; priorities that are out of range now are
    /// brought into it at once, and a stable state is looked at again.
    ///
    /// # Errors
    /// [`ParameterError`]; nothing is changed then.
    pub fn set(&mut self, parameter: Parameter, value: f64) -> Result<(), ParameterError> {
        let mut parameters = self.parameters.clone();
        parameters.set(parameter, value)?;
        self.tune(&parameters);
        Ok(())
    }

    /// The same for all of them. Those that are as they were are nothing to look at again.
    pub fn tune(&mut self, parameters: &Parameters) {
        if self.parameters == *parameters {
            return;
        }
        self.parameters = parameters.clone();
        let (least, most) = (self.parameters.least(), self.parameters.most());
        for p in self.priorities.values_mut() {
            *p = (*p).clamp(least, most);
        }
        self.look_again();
    }

    /// One joins, with the normal priority.
    pub fn join(&mut self, thread: T) {
        if self.accounts.join(thread) {
            self.priorities.insert(thread, Priority::NORMAL);
            self.look_again();
        }
    }

    /// A thread has left: nothing waits for it any more.
    pub fn leave(&mut self, thread: T) {
        if self.accounts.leave(thread) {
            self.priorities.remove(&thread);
            self.look_again();
        }
    }

    /// Iterations have ended. An unknown one joins. What is decided, where a round is over.
    pub fn finished(&mut self, iterations: &[Iteration<T>]) -> Option<&[Decision<T>]> {
        for i in iterations {
            self.join(i.thread);
            self.accounts.finished(i);
        }
        self.close().then_some(self.decisions.as_slice())
    }

    /// Counters of all were read, one for each, at this moment of any clock that goes on. An unknown one joins,
    /// one that is not among them has left. What is decided, where a round is over, or none has been
    /// for too long.
    pub fn observe(&mut self, now: Nanos, counters: &[Counters<T>]) -> Option<&[Decision<T>]> {
        for e in self.accounts.keep(counters) {
            self.priorities.remove(&e);
            self.look_again();
        }
        for c in counters {
            self.join(c.thread);
            self.accounts.read(c);
        }
        let clock = self.clock.get_or_insert(Clock { last: now, longest: Nanos::ZERO });
        let since = now - clock.last;
        let patience = Nanos::from_secs_f64(self.parameters.get(Parameter::Patience));
        let waits_too_long = since > patience.max(clock.longest.scale(LONG));
        if self.close() {
            if let Some(clock) = &mut self.clock {
                // A time without iterations is no round.
                if !waits_too_long {
                    clock.longest = clock.longest.max(since);
                }
                clock.last = now;
            }
            return Some(&self.decisions);
        }
        let state = DetectorState::StoodDown(StandDown::NoIterations);
        if waits_too_long && self.state != state && !self.priorities.is_empty() {
            self.stand_down(StandDown::NoIterations, &Round::new());
            return Some(&self.decisions);
        }
        None
    }

    /// What was known of a stable state does not hold any more.
    fn look_again(&mut self) {
        self.profile.clear();
        self.auto = Auto::new();
        if self.state == DetectorState::Stable {
            self.state = DetectorState::Balancing;
        }
    }

    fn close(&mut self) -> bool {
        let priorities = &self.priorities;
        let priority = |e: &T| priorities.get(e).copied().unwrap_or(Priority::NORMAL);
        let Some(round) = self.accounts.close(priority) else { return false };
        self.rounds += 1;
        if round.len() < 2 {
            self.stand_down(StandDown::Alone, &round);
            return true;
        }
        if matches!(self.state, DetectorState::StoodDown(_)) {
            self.look_again();
        }
        match self.heuristic {
            Heuristic::Uniform => self.decide(&round, heuristics::uniform),
            Heuristic::Adaptive => self.decide(&round, heuristics::adaptive),
            Heuristic::Auto => match self.auto.round(&round, &self.parameters) {
                Outcome::Gathering => {
                    self.state = DetectorState::Balancing;
                    self.hold(&round, Why::Learning);
                }
                Outcome::Stable => {
                    self.state = DetectorState::Stable;
                    self.hold(&round, Why::Stable);
                }
                Outcome::To(targets, changed) => {
                    self.state = DetectorState::Balancing;
                    self.go(&round, &targets, if changed { Why::Changed } else { Why::Kept });
                }
            },
        }
        true
    }

    /// The detector of uniform and adaptive.
    fn decide(&mut self, round: &Round<T>, heuristic: fn(&Round<T>, &Parameters) -> Targets<T>) {
        let mut parties = round.clone();
        parties.retain(|_, v| v.takes_part());
        let local: BTreeMap<T, f64> =
            parties.iter().filter_map(|(e, v)| Some((*e, v.local?))).collect();
        let tolerance = self.parameters.get(Parameter::Tolerance) / 100.0;
        let was_stable = self.state == DetectorState::Stable;
        if was_stable {
            let as_before = |(e, u): (&T, &f64)| {
                self.profile.get(e).is_some_and(|p| (p - u).abs() <= tolerance)
            };
            if local.iter().all(as_before) {
                self.hold(round, Why::Stable);
                return;
            }
        }
        if local.is_empty() || local.values().all(|u| *u >= self.parameters.high()) {
            self.state = DetectorState::Stable;
            self.profile = local;
            self.hold(round, Why::Stable);
            return;
        }
        let targets = heuristic(&parties, &self.parameters);
        self.state = DetectorState::Balancing;
        self.go(round, &targets, if was_stable { Why::Changed } else { Why::Kept });
        // It has nothing more to do, and history will not come to another result.
        let is_settled = |v: &detector::View| {
            v.local.zip(v.global).is_none_or(|(l, g)| (l - g).abs() <= tolerance)
        };
        let at_rest = self.decisions.iter().all(|d| d.priority == d.before);
        if at_rest && parties.values().all(is_settled) {
            self.state = DetectorState::Stable;
            self.profile = local;
        }
    }

    fn stand_down(&mut self, why: StandDown, round: &Round<T>) {
        self.state = DetectorState::StoodDown(why);
        let before = self.priorities.clone();
        for p in self.priorities.values_mut() {
            *p = Priority::NORMAL;
        }
        self.report(&before, round, |_| Why::StoodDown);
    }

    fn hold(&mut self, round: &Round<T>, why: Why) {
        let before = self.priorities.clone();
        self.report(&before, round, |_| why);
    }

    fn go(&mut self, round: &Round<T>, targets: &Targets<T>, where_kept: Why) {
        let before = self.priorities.clone();
        let (least, most) = (self.parameters.least(), self.parameters.most());
        for (e, p) in &mut self.priorities {
            *p = targets.get(e).copied().unwrap_or(*p).clamp(least, most);
        }
        self.report(&before, round, |(was, is)| match is.cmp(&was) {
            std::cmp::Ordering::Greater => Why::Raised,
            std::cmp::Ordering::Less => Why::Lowered,
            std::cmp::Ordering::Equal => where_kept,
        });
    }

    fn report(
        &mut self,
        before: &BTreeMap<T, Priority>,
        round: &Round<T>,
        why: impl Fn((Priority, Priority)) -> Why,
    ) {
        let decision = |(e, priority): (&T, &Priority)| {
            let was = before.get(e).copied().unwrap_or(*priority);
            Decision {
                thread: *e,
                before: was,
                priority: *priority,
                why: why((was, *priority)),
                utilisation: round.get(e).and_then(|v| v.local),
                weight: self.parameters.weight(*priority),
            }
        };
        self.decisions = self.priorities.iter().map(decision).collect();
    }
}

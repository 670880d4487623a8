//! The helper of a CPU: an agent that waits until a barrier opens and its CPU has too much to do, then until one of its
//! threads is to move, and moves it.
//!
//! ```text
//!   Waits --opens--> Serves --too early--> sleeps, looks again --now--> Moves --> Serves
//!     ^                | nothing left to do, or the next phase has begun
//!     |                v
//!     +------------- Ends ---- it is foreseen when it is needed ---> Foresees --at that time--> Serves
//!     |                +------ its allowance is spent -------------> Pauses --+
//!     +-----------------------------------------------------------------------+
//! ```
//!
//! Whoever runs it does so on its CPU: when it wakes there no thread of the program runs, so that the kernel has just
//! booked what each has run, to the nanosecond; from another CPU a reading may be a tick old.
//!
//! Invariant: it sleeps for a [`NAP`] at most before it looks whether the phase goes on, and does nothing about a phase
//! that is over.

use crate::timetable::{Left, Step};
use crate::{Allowance, Crowded, Foresight, NAP, Opening, Phases};
use evenly_engine::{Agent, Machine, Manner, Next, Reader, Reading, Remote};
use evenly_model::{CpuId, CpuIndex, Nanos, ThreadId};
use std::sync::Arc;

/// How much earlier than it wants to be awake a helper lets itself be woken.
const WAKING: Nanos = Nanos::from_micros(3);
/// For how long a helper sleeps at least, at first; twice as long after each further look. Each look lets the kernel
/// choose anew who runs, and that need not be the one that the helper waits for.
const LEAST: Nanos = Nanos::from_micros(10);
/// A helper looks at its CPU at most so often in a phase.
const LOOKS: usize = 24;

/// The helper of one CPU.
pub struct Helper {
    cpu: CpuId,
    phases: Arc<Phases>,
    allowance: Allowance,
    foresight: Foresight,
    /// The last opening that it has done something about, or nothing.
    seen: Opening,
    /// When it is needed next, where that is foreseen.
    needed: Option<Nanos>,
    /// CPU time since its allowance was asked last.
    spent: Nanos,
    state: HelperState,
}

/// What a helper is about.
enum HelperState {
    /// For an opening, or a call.
    Waits,
    /// For when it is needed.
    Foresees,
    /// For its allowance, or to begin.
    Pauses,
    Serves(Serving),
    /// A thread is to go there.
    Moves(Serving, Left<ThreadId>, CpuIndex),
    /// There is nothing more to do in this phase.
    Ends(Option<Moved>),
}

/// A phase in which a CPU has too much to do.
struct Serving {
    opening: Opening,
    crowded: Crowded,
    /// When the helper should be awake for the first move.
    due: Nanos,
    /// Until when there is nothing to look for.
    until: Nanos,
    look: usize,
    /// What is left of the threads has to be read.
    reads: bool,
    moved: bool,
}

/// A thread was moved.
struct Moved {
    /// When the helper should have been awake for that.
    due: Nanos,
    /// By how much the phase is shorter.
    gain: Nanos,
}

impl Helper {
    /// The helper of a CPU, with what it may cost.
    #[must_use]
    pub fn new(cpu: CpuId, phases: Arc<Phases>, allowance: Allowance) -> Self {
        Self {
            cpu,
            phases,
            allowance,
            foresight: Foresight::default(),
            seen: Opening::default(),
            needed: None,
            spent: Nanos::ZERO,
            state: HelperState::Pauses,
        }
    }

    /// Whether the phase that began with this opening goes on.
    fn goes_on(&self, opening: Opening) -> bool {
        self.phases.openings().last() == opening
    }

    /// A barrier has opened, or is said to have.
    fn begins(&mut self, opening: Opening, now: Nanos) -> HelperState {
        self.seen = opening;
        let Some(crowded) = self.phases.begins(self.cpu, opening, now) else {
            return HelperState::Ends(None);
        };
        let due = match self.phases.next(crowded.cpu, opening.at, &crowded.here, 0) {
            Step::Sleep(until) => until,
            _ => opening.at,
        };
        // At the opening nothing is done, and nothing need be read. One that is called later, because a thread has come to
        // its CPU, has to.
        let reads = now - opening.at > LEAST;
        let (until, look, moved) = (Nanos::ZERO, 0, false);
        HelperState::Serves(Serving { opening, crowded, due, until, look, reads, moved })
    }

    /// One look at the CPU.
    fn look(&mut self, mut s: Serving, machine: &mut dyn Reader) -> (HelperState, Next) {
        let now = machine.now();
        if !self.goes_on(s.opening) || s.look >= LOOKS {
            return (s.ends(), Next::Again);
        }
        if now < s.until {
            return s.sleeps(now);
        }
        if std::mem::replace(&mut s.reads, true) {
            let phases = &self.phases;
            s.crowded.here.retain_mut(|left| match machine.read_one(left.thread) {
                Reading::Times(times) => {
                    left.work = phases.left(left.thread, times.ran);
                    true
                }
                _ => false,
            });
        }
        let now = machine.now();
        let look = s.look;
        s.look += 1;
        match self.phases.next(s.crowded.cpu, now, &s.crowded.here, look) {
            Step::Rest => (s.ends(), Next::Again),
            Step::Sleep(until) => {
                s.until = (until - WAKING).max(now + least(look));
                s.sleeps(now)
            }
            Step::Move(thread, to) => {
                let here = &mut s.crowded.here;
                match here.iter().position(|l| l.thread == thread).map(|i| here.remove(i)) {
                    Some(left) => (HelperState::Moves(s, left, to), Next::Act),
                    None => (s.ends(), Next::Again),
                }
            }
        }
    }

    /// The phase is done with: what it has cost, and what is next.
    fn ends(&mut self, moved: Option<Moved>, now: Nanos) -> (HelperState, Next) {
        if self.needed.is_some() {
            self.foresight.was_right(moved.is_some());
        }
        let gain = moved.as_ref().map_or(Nanos::ZERO, |m| m.gain);
        self.needed = moved.and_then(|m| self.foresight.moved(self.seen, m.due));
        let spent = std::mem::take(&mut self.spent);
        self.phases.took(spent);
        let pauses = self.allowance.spend(now, spent, gain);
        self.phases.waits(self.cpu, self.needed.is_none() && pauses.is_none());
        match (pauses, self.needed) {
            (Some(until), _) => (HelperState::Pauses, Next::Sleep(until)),
            (None, Some(needed)) => (HelperState::Foresees, Next::Sleep(needed - WAKING)),
            (None, None) => (HelperState::Waits, Next::Rest),
        }
    }
}

impl Serving {
    fn sleeps(self, now: Nanos) -> (HelperState, Next) {
        let until = self.until.min(now + NAP);
        (HelperState::Serves(self), Next::Sleep(until))
    }

    fn ends(self) -> HelperState {
        let moved = Moved { due: self.due, gain: self.crowded.gain };
        HelperState::Ends(self.moved.then_some(moved))
    }
}

impl Agent for Helper {
    fn cpu(&self) -> CpuId {
        self.cpu
    }

    fn next(&mut self, machine: &mut dyn Reader) -> Next {
        let now = machine.now();
        let last = self.phases.openings().last();
        let (state, next) = match std::mem::replace(&mut self.state, HelperState::Waits) {
            HelperState::Waits => (self.begins(last, now), Next::Again),
            HelperState::Foresees if last == self.seen => (HelperState::Ends(None), Next::Again),
            HelperState::Foresees => (self.begins(last, now), Next::Again),
            HelperState::Pauses => {
                (self.needed, self.seen) = (None, last);
                self.phases.waits(self.cpu, true);
                (HelperState::Waits, Next::Rest)
            }
            HelperState::Serves(serving) => self.look(serving, machine),
            // It was not done.
            HelperState::Moves(serving, ..) => (HelperState::Serves(serving), Next::Again),
            HelperState::Ends(moved) => self.ends(moved, now),
        };
        self.state = state;
        next
    }

    fn act(&mut self, machine: &mut dyn Machine) {
        match std::mem::replace(&mut self.state, HelperState::Waits) {
            HelperState::Moves(mut s, left, to) => {
                let (from, now) = (s.crowded.cpu, machine.now());
                let done = self.goes_on(s.opening)
                    && self.phases.carry_out(machine, left, (from, to), now);
                s.moved |= done;
                self.state = HelperState::Serves(s);
            }
            state => self.state = state,
        }
    }

    fn took(&mut self, time: Nanos) {
        self.spent += time;
    }

    fn is_called(&self) -> bool {
        self.phases.openings().last() != self.seen
    }

    fn wait(&self) -> bool {
        self.phases.openings().wait(self.cpu, self.seen).is_some()
    }

    fn manner(&self) -> Manner {
        Manner::OnItsCpu(Arc::new(Of { cpu: self.cpu, phases: self.phases.clone() }))
    }
}

/// A helper, seen from other threads.
struct Of {
    cpu: CpuId,
    phases: Arc<Phases>,
}

impl Remote for Of {
    fn call(&self) {
        self.phases.openings().call(self.cpu);
    }

    fn switch_off(&self) {
        self.phases.switch_off();
    }
}

/// For how long a helper sleeps at least after a look.
fn least(look: usize) -> Nanos {
    Nanos(LEAST.0 << look.saturating_sub(1).min(5))
}

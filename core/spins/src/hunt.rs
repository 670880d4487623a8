//! Whether threads that crowd their CPUs spin: looks at samples of them, before anything in their program is changed.
//!
//! ```text
//!   Waits --they crowd the CPUs--> Looks --LOOK, or they clearly spin--> Rests --they do for HELPLESS, and nothing helps--> Looks
//! ```
//!
//! It rests longer each time. Once they no longer crowd the CPUs it begins anew: at once where they were seen to spin, else when that
//! has been so for the longest rest.

use crate::seen::Seen;
use evenly_model::Nanos;

/// For how long is looked: two CPUs give 120 samples.
const LOOK: Nanos = Nanos::from_millis(300);
/// Threads spin where this part of the samples is in loops that wait. Those that wait for a moment before they sleep
/// spin for less.
const PART: f64 = 0.08;
/// So many samples say it at once where that part is so great.
const CLEAR: [(u64, f64); 2] = [(12, 0.7), (30, 0.3)];
/// When it is looked again where they do not, the first time and at most; each time so many times as late.
const RESTS: [Nanos; 2] = [Nanos::from_millis(500), Nanos::from_millis(16_000)];
const LONGER: u64 = 4;
/// And after so long at the latest where another program has begun.
const ANOTHER: Nanos = Nanos::from_millis(4_000);
/// It is looked for other loops where nothing was handed over for so long.
const HELPLESS: Nanos = Nanos::from_millis(300);
/// Where CPUs are handed over before it was looked, as by ranks of MPI, that is not done before this has passed: to take samples
/// costs CPU time.
const LATER: Nanos = Nanos::from_millis(2_000);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    Looks { until: Nanos },
    Rests { until: Nanos },
}

/// What threads did in some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doing {
    /// More of them wanted to run than there are CPUs.
    pub crowded: bool,
    /// They handed over CPUs.
    pub handed: bool,
    /// Samples of them since it is looked.
    pub seen: Seen,
}

/// What follows from a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Samples are to be taken until the next step.
    pub looks: bool,
    /// Threads were seen to spin, since they crowd their CPUs.
    pub spins: bool,
    /// Samples have just been taken, and were not in loops that are known to wait.
    pub elsewhere: bool,
}

/// Whether threads spin.
#[derive(Debug)]
pub struct Hunt {
    state: State,
    rest: Nanos,
    at: Nanos,
    helpless: Nanos,
    /// Since when CPUs have been handed over and it was not looked.
    helped: Option<Nanos>,
    spins: bool,
}

impl Default for Hunt {
    fn default() -> Self {
        let (state, at) = (State::Waits, Nanos::ZERO);
        Self { state, rest: RESTS[0], at, helpless: Nanos::ZERO, helped: None, spins: false }
    }
}

impl Hunt {
    /// Whether threads that crowd their CPUs were found not to spin, and it is not looked again yet.
    #[must_use]
    pub fn rests(&self, now: Nanos) -> bool {
        !self.spins && matches!(self.state, State::Rests { until } if now < until)
    }

    /// Whether no look has ended yet since it began.
    #[must_use]
    pub fn is_first(&self) -> bool {
        self.rest == RESTS[0]
    }

    /// A program has begun, which may do something else than those before: it is looked soon.
    pub fn meets_another(&mut self, now: Nanos) {
        if let State::Rests { until } = &mut self.state {
            *until = (*until).min(now + ANOTHER);
        }
    }

    /// It begins anew: samples cannot be taken yet.
    fn waits(&mut self) {
        self.state = State::Waits;
    }

    /// Goes on. `is_needed` is whether CPUs have to be handed over; where samples cannot be taken, `doing` is None.
    pub fn step(&mut self, now: Nanos, is_needed: bool, doing: Option<Doing>) -> Found {
        let elapsed = now - std::mem::replace(&mut self.at, now);
        let mut elsewhere = false;
        let Some(doing) = doing.filter(|_| is_needed) else {
            if !is_needed {
                // Who crowds CPUs every few seconds, and spins never, is not looked at each time.
                self.state = match self.state {
                    State::Rests { until } if !self.spins && now < until + RESTS[1] => self.state,
                    // What was seen until now says nothing.
                    State::Looks { .. } if !self.spins => State::Rests { until: now },
                    _ => State::Waits,
                };
                if self.state == State::Waits {
                    self.rest = RESTS[0];
                }
                (self.spins, self.helped, self.helpless) = (false, None, Nanos::ZERO);
            } else if matches!(self.state, State::Looks { .. }) {
                // What was seen until now says nothing.
                self.waits();
            }
            return Found { looks: false, spins: self.spins, elsewhere };
        };
        self.helpless =
            if doing.crowded && !doing.handed { self.helpless + elapsed } else { Nanos::ZERO };
        let looks = State::Looks { until: now + LOOK };
        self.state = match self.state {
            State::Waits if doing.handed && now - *self.helped.get_or_insert(now) < LATER => {
                self.state
            }
            State::Waits => looks,
            State::Rests { until } if now >= until && self.helpless >= HELPLESS => looks,
            State::Rests { .. } => self.state,
            State::Looks { until } => {
                let seen = doing.seen;
                let part = |part| seen.waiting as f64 >= part * seen.all as f64;
                let is_clear = CLEAR.iter().any(|&(all, most)| seen.all >= all && part(most));
                if now < until && !is_clear {
                    self.state
                } else {
                    // Of threads that crowd their CPUs something is seen, unless samples cannot be taken.
                    let spins = part(PART);
                    (self.spins, elsewhere) = (self.spins || spins, !spins);
                    let until = now + self.rest;
                    (self.rest, self.helpless) =
                        (Nanos(LONGER * self.rest.0).min(RESTS[1]), Nanos::ZERO);
                    State::Rests { until }
                }
            }
        };
        Found { looks: matches!(self.state, State::Looks { .. }), spins: self.spins, elsewhere }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Nanos = Nanos::from_millis(20);
    const IDLE: Doing = Doing {
        crowded: true,
        handed: false,
        seen: Seen { all: 0, waiting: 0, time: Nanos::ZERO },
    };

    struct Program {
        hunt: Hunt,
        now: Nanos,
        /// Since it looks.
        seen: Seen,
    }

    impl Program {
        fn new() -> Self {
            Self { hunt: Hunt::default(), now: Nanos::from_millis(5_000), seen: Seen::default() }
        }

        /// After a step in which so many samples were taken, and so many of them in loops that wait.
        fn passes(&mut self, all: u64, waiting: u64, handed: bool) -> Found {
            self.now += STEP;
            if !matches!(self.hunt.state, State::Looks { .. }) {
                self.seen = Seen::default();
            } else {
                self.seen.add(Seen { all, waiting, time: Nanos::ZERO });
            }
            self.hunt.step(self.now, true, Some(Doing { seen: self.seen, handed, ..IDLE }))
        }

        /// No CPU is needed for so long.
        fn idles(&mut self, time: Nanos) {
            for _ in 0..time.0 / STEP.0 {
                self.now += STEP;
                assert!(!self.hunt.step(self.now, false, Some(IDLE)).looks);
            }
        }

        /// How many steps it looks from the next on, and what was found.
        fn looks(&mut self, all: u64, waiting: u64) -> (usize, Found) {
            for n in 0.. {
                let found = self.passes(all, waiting, false);
                if !found.looks {
                    return (n, found);
                }
            }
            unreachable!()
        }
    }

    #[test]
    fn threads_spin_where_a_part_of_the_samples_is_in_loops_that_wait() {
        let mut p = Program::new();
        // As many as 20 ms of two CPUs give.
        let (steps, found) = p.looks(8, 4);
        assert_eq!((steps, found), (4, Found { looks: false, spins: true, elsewhere: false }));
        assert_eq!(Program::new().looks(8, 6), (2, found));
        // It does not look again while it helps.
        assert!((0..1_000).all(|_| !p.passes(0, 0, true).looks));
        // Somebody else computes, and it takes its time.
        let (steps, found) = Program::new().looks(1, 1);
        assert_eq!((steps as u64, found.spins), (CLEAR[0].0, true));
        // A part of the time.
        let (steps, found) = Program::new().looks(8, 1);
        assert_eq!((steps as u64, found.spins), (LOOK.0.div_ceil(STEP.0), true));
        // Those that spin for a moment before they sleep.
        let (_, found) = Program::new().looks(25, 1);
        assert_eq!(found, Found { looks: false, spins: false, elsewhere: true });
        // Nothing was seen, though they run.
        assert!(Program::new().looks(0, 0).1.spins);
    }

    /// Would catch: a search that takes CPUs from ranks that hand them over already; one that is never made.
    #[test]
    fn where_ranks_hand_over_it_is_looked_later() {
        let mut p = Program::new();
        let waits = (0..).take_while(|_| !p.passes(0, 0, true).looks).count() as u64;
        assert!((LATER.0..LATER.0 + 3 * STEP.0).contains(&(waits * STEP.0)), "{waits} steps");
        assert!(p.looks(8, 8).1.spins);
        let mut stops = Program::new();
        assert!(!stops.passes(0, 0, true).looks && stops.passes(0, 0, false).looks);
    }

    #[test]
    fn it_is_looked_again_where_nothing_helps_and_ever_more_seldom() {
        let mut p = Program::new();
        p.looks(8, 0);
        let rests: Vec<usize> = (0..7)
            .map(|_| {
                let rest = (0..).take_while(|_| !p.passes(0, 0, false).looks).count();
                p.looks(8, 0);
                rest
            })
            .collect();
        assert!(rests[0] >= 23 && rests.is_sorted() && rests[6] == rests[5], "{rests:?}");
        assert!(rests[6] as u64 * STEP.0 <= RESTS[1].0);
        // What helps for a moment lets it wait for as long again.
        let rest = (0..).take_while(|&n| !p.passes(0, 0, n % 10 == 0).looks && n < 2_000).count();
        assert_eq!(rest, 2_000);
        // What does not crowd the CPUs for longer than that begins anew.
        p.idles(Nanos(3 * RESTS[1].0));
        assert!(p.passes(0, 0, false).looks);
        // So does at once what was seen to spin.
        assert!(p.looks(8, 8).1.spins);
        p.idles(STEP);
        assert!(p.passes(0, 0, false).looks);
    }

    /// Would catch: a program that nobody looks at for long because the one before it did not spin.
    #[test]
    fn where_another_program_begins_it_is_looked_soon() {
        let mut p = Program::new();
        for _ in 0..5 {
            while !p.passes(0, 0, false).looks {}
            p.looks(8, 0);
        }
        p.hunt.meets_another(p.now);
        let rest = (0..).take_while(|_| !p.passes(0, 0, false).looks).count() as u64;
        assert!((190..=210).contains(&rest), "{rest} steps");
    }

    /// Would catch: a program that is looked at again and again as it crowds its CPUs now and then; one that is never looked at again.
    #[test]
    fn who_crowds_cpus_now_and_then_is_looked_at_ever_more_seldom() {
        let mut p = Program::new();
        let mut looks = 0;
        // For a second in three of two minutes.
        for _ in 0..40 {
            for _ in 0..50 {
                looks += usize::from(p.passes(8, 0, false).looks);
            }
            p.idles(Nanos::from_millis(2_000));
        }
        let ends = LOOK.0.div_ceil(STEP.0) as usize;
        assert!((5 * ends..=11 * ends).contains(&looks), "{looks} looks");
    }

    #[test]
    fn what_cannot_be_seen_stays_as_it_is() {
        let mut p = Program::new();
        p.looks(8, 8);
        p.now += STEP;
        let found = p.hunt.step(p.now, true, None);
        assert_eq!(found, Found { looks: false, spins: true, elsewhere: false });
        // What was interrupted begins anew.
        let mut other = Program::new();
        assert!(other.passes(0, 0, false).looks && other.passes(8, 0, false).looks);
        other.now += Nanos::from_millis(1_000);
        let found = other.hunt.step(other.now, true, None);
        assert_eq!(found, Found { looks: false, spins: false, elsewhere: false });
        assert!(other.passes(0, 0, false).looks && !other.looks(8, 0).1.spins);
        p.now += STEP;
        assert!(!p.hunt.step(p.now, false, None).spins);
    }
}

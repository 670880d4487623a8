//! When CPUs are to change hands often, because threads that spin crowd them: decides by samples of where threads are, and
//! compares what they compute with and without.
//!
//! ```text
//!   Rests --crowded--> Looks --threads spin--> Beats --STRETCH--> Looks ...
//!     ^                  |                       |
//!     +--they do not-----+------does not help----+      twice as long each time
//! ```
//!
//! While threads spin for much of their CPU time nevertheless, beats that follow sooner are tried, and kept where they help.
//! Each stretch begins with slower ones than the last.

use crate::patience::Patience;
use crate::seen::Seen;
use evenly_model::Nanos;

/// So many samples say what threads do; with so many beats help, or do not.
const ENOUGH: [u64; 2] = [100, 300];
/// If there are none for so long, threads cannot be seen.
const UNSEEN: Nanos = Nanos::from_millis(5_000);
/// Threads spin if they do so in this part of the samples.
const SPINS: f64 = 0.3;
/// It helps if threads compute for so many times the time, in each second, for which they did before.
const WORTH: f64 = 1.1;
/// The time from one beat to the next; the first is tried first.
const BEATS: [Nanos; 3] =
    [Nanos::from_micros(200), Nanos::from_micros(100), Nanos::from_micros(50)];
/// Nothing more is tried where threads compute for this part of their CPU time.
const GOOD: f64 = 0.7;
/// Nothing crowds the CPUs any longer if nothing did for so long.
const HOLD: Nanos = Nanos::from_millis(2_000);
/// After so long it is compared again.
const STRETCH: Nanos = Nanos::from_millis(30_000);

/// What is to be done until the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Nothing.
    Rest,
    /// Samples are taken.
    Look,
    /// Samples are taken, and CPUs change hands, one time after the other after so long.
    Beat(Nanos),
}

#[derive(Debug, Clone, Copy)]
enum State {
    Rests {
        until: Nanos,
    },
    Looks {
        since: Nanos,
        seen: Seen,
    },
    /// With these beats since then; what was seen with the slower ones before, or without.
    Beats {
        level: usize,
        since: Nanos,
        before: Seen,
        seen: Seen,
        judged: bool,
    },
}

/// What is wished, and what came of it.
#[derive(Debug)]
pub struct Tempo {
    state: State,
    at: Nanos,
    /// When threads crowded their CPUs last.
    crowded_at: Option<Nanos>,
    patience: Patience,
    /// The beats that help most, as far as that is known.
    level: usize,
    without: Seen,
    with: Seen,
}

impl Default for Tempo {
    fn default() -> Self {
        Self {
            state: State::Rests { until: Nanos::ZERO },
            at: Nanos::ZERO,
            crowded_at: None,
            patience: Patience::default(),
            level: 0,
            without: Seen::default(),
            with: Seen::default(),
        }
    }
}

impl Tempo {
    /// Goes on. `crowded` is whether more threads wanted to run than there are CPUs, and `new` what was seen, both since the
    /// last step.
    pub fn step(&mut self, now: Nanos, crowded: bool, new: Seen) -> Wish {
        let time = now - std::mem::replace(&mut self.at, now);
        let new = Seen { time, ..new };
        if crowded {
            self.crowded_at = Some(now);
        }
        let needed = self.crowded_at.is_some_and(|at| now - at < HOLD);
        match &mut self.state {
            // What threads do while none crowds the CPUs is not compared.
            State::Rests { .. } => {}
            _ if !crowded => {}
            State::Beats { seen, .. } => {
                seen.add(new);
                self.with.add(new);
            }
            State::Looks { seen, .. } => seen.add(new),
        }
        self.state = match self.state {
            State::Rests { until } if needed && now >= until => {
                State::Looks { since: now, seen: Seen::default() }
            }
            State::Looks { .. } | State::Beats { .. } if !needed => {
                State::Rests { until: Nanos::ZERO }
            }
            State::Looks { seen, .. } if seen.all >= ENOUGH[0] => {
                if seen.waiting as f64 >= SPINS * seen.all as f64 {
                    self.without.add(seen);
                    // Slower beats may do by now.
                    self.begins(now, self.level.saturating_sub(1), seen)
                } else {
                    self.rests(now)
                }
            }
            State::Looks { since, .. } if now - since >= UNSEEN => self.rests(now),
            State::Beats { level, since, before, seen, judged: false } if seen.all >= ENOUGH[1] => {
                let helps = seen.exceeds(&before, WORTH);
                if helps {
                    (self.level, self.patience) = (level, Patience::default());
                }
                let faster = level + 1;
                if helps && faster < BEATS.len() && seen.part() < Some(GOOD) {
                    self.begins(now, faster, seen)
                } else if helps || level > self.level {
                    // Slower ones help.
                    State::Beats { level: self.level, since, before, seen, judged: true }
                } else {
                    self.rests(now)
                }
            }
            State::Beats { since, .. } if now - since >= STRETCH => {
                State::Looks { since: now, seen: Seen::default() }
            }
            stays => stays,
        };
        match self.state {
            State::Rests { .. } => Wish::Rest,
            State::Looks { .. } => Wish::Look,
            State::Beats { level, .. } => Wish::Beat(BEATS[level]),
        }
    }

    /// What happens from the last step to this moment is not looked at.
    pub fn skip(&mut self, now: Nanos) {
        self.at = now;
    }

    /// The beats that help most, as far as that is known.
    #[must_use]
    pub fn beat(&self) -> Nanos {
        BEATS[self.level]
    }

    /// What was seen just before CPUs changed hands often, and meanwhile.
    #[must_use]
    pub fn compared(&self) -> (Seen, Seen) {
        (self.without, self.with)
    }

    fn begins(&self, now: Nanos, level: usize, before: Seen) -> State {
        State::Beats { level, since: now, before, seen: Seen::default(), judged: false }
    }

    fn rests(&mut self, now: Nanos) -> State {
        self.level = 0;
        State::Rests { until: self.patience.rest(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Nanos = Nanos::from_millis(20);

    /// A program whose threads compute for one part of their CPU time without, and for others with the beats.
    struct Program {
        tempo: Tempo,
        now: Nanos,
        wish: Wish,
        crowded: bool,
        /// Samples in a step.
        samples: u64,
        computes: [f64; 4],
    }

    impl Program {
        fn new([without, with]: [f64; 2]) -> Self {
            let (tempo, wish) = (Tempo::default(), Wish::Rest);
            let now = Nanos::from_millis(5_000);
            let computes = [without, with, with, with];
            Self { tempo, now, wish, crowded: true, samples: 10, computes }
        }

        /// In what part of so many seconds there were beats, and in what part samples without.
        fn runs(&mut self, seconds: f64) -> [f64; 2] {
            let steps = (seconds / STEP.as_secs_f64()) as u64;
            let mut parts = [0.0; 2];
            for _ in 0..steps {
                let beat = BEATS.iter().position(|&beat| self.wish == Wish::Beat(beat));
                let part = self.computes[beat.map_or(0, |level| level + 1)];
                let waiting = (self.samples as f64 * (1.0 - part)).round() as u64;
                let is_seen = self.wish != Wish::Rest;
                let new = Seen { all: self.samples, waiting, time: Nanos::ZERO };
                self.now += STEP;
                let new = if is_seen { new } else { Seen::default() };
                self.wish = self.tempo.step(self.now, self.crowded, new);
                parts[0] += f64::from(u8::from(matches!(self.wish, Wish::Beat(_)))) / steps as f64;
                parts[1] += f64::from(u8::from(self.wish == Wish::Look)) / steps as f64;
            }
            parts
        }
    }

    #[test]
    fn threads_that_spin_are_given_beats_nearly_all_the_time() {
        let mut p = Program::new([0.1, 0.8]);
        let [beats, looks] = p.runs(300.0);
        assert!(beats > 0.98 && looks > 0.003, "{beats} {looks}");
        let (without, with) = p.tempo.compared();
        assert_eq!((without.part(), with.part()), (Some(0.1), Some(0.8)));
    }

    #[test]
    fn a_program_that_computes_or_is_alone_has_none() {
        let [beats, looks] = Program::new([0.9, 0.9]).runs(300.0);
        assert!(beats == 0.0 && looks < 0.01, "{beats} {looks}");
        let mut alone = Program { crowded: false, ..Program::new([0.1, 0.8]) };
        assert_eq!(alone.runs(60.0), [0.0, 0.0]);
        // It ends when others go, and begins again.
        let mut p = Program::new([0.1, 0.8]);
        p.runs(5.0);
        assert_eq!(p.wish, Wish::Beat(BEATS[0]));
        p.crowded = false;
        p.runs(HOLD.as_secs_f64() + 0.1);
        assert_eq!(p.wish, Wish::Rest);
        p.crowded = true;
        p.runs(1.0);
        assert_eq!(p.wish, Wish::Beat(BEATS[0]));
    }

    /// Would catch: beats that go on although nobody has anything of them.
    #[test]
    fn where_it_does_not_help_it_is_tried_more_and_more_rarely() {
        let mut p = Program::new([0.3, 0.3]);
        let [beats, _] = p.runs(60.0);
        assert!(beats > 0.0 && beats < 0.04, "{beats}");
        let [beats, _] = p.runs(3_600.0);
        assert!(beats > 0.0 && beats < 0.003, "{beats}");
        // As soon as it does, that is forgotten.
        p.computes = [0.3, 0.9, 0.9, 0.9];
        p.runs(Patience::LONGEST.as_secs_f64());
        assert!(p.runs(60.0)[0] > 0.9);
        assert_eq!(p.tempo.patience, Patience::default());
    }

    #[test]
    fn beats_are_as_fast_as_helps() {
        for (computes, best) in [
            ([0.05, 0.2, 0.4, 0.65], 2),
            ([0.05, 0.4, 0.6, 0.62], 1),
            ([0.05, 0.4, 0.3, 0.9], 0),
            ([0.05, 0.75, 0.9, 0.9], 0),
        ] {
            let mut p = Program { computes, samples: 100, ..Program::new([0.0, 0.0]) };
            for seconds in [5.0, 100.0] {
                p.runs(seconds);
                assert_eq!(p.tempo.beat(), BEATS[best], "{computes:?}");
            }
            // Others are tried for moments only.
            let seen = p.tempo.compared().1;
            let part = seen.part().unwrap();
            assert!((part - computes[best + 1]).abs() < 0.02, "{computes:?}: {part}");
        }
    }

    /// Would catch: beats that go on because samples err, here by as much as they do.
    #[test]
    fn what_samples_err_by_is_no_help() {
        let mut state = 1_u64;
        let mut random = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        for computes in [0.0, 0.1, 0.3, 0.6] {
            let (mut tempo, mut now, mut beats) = (Tempo::default(), STEP, 0);
            let steps = 200_000;
            for _ in 0..steps {
                let waiting = (0..8).filter(|_| random() >= computes).count() as u64;
                now += STEP;
                let new = Seen { all: 8, waiting, time: Nanos::ZERO };
                beats += u64::from(matches!(tempo.step(now, true, new), Wish::Beat(_)));
            }
            assert!(beats < steps / 20, "{computes}: {beats}");
        }
    }

    #[test]
    fn what_cannot_be_seen_is_left_alone() {
        let mut p = Program { samples: 0, ..Program::new([0.1, 0.8]) };
        let [beats, looks] = p.runs(600.0);
        assert!(beats == 0.0 && looks < 0.1, "{beats} {looks}");
    }

    /// Would catch: time in which the program is asleep that counts as time in which it does not compute.
    #[test]
    fn what_threads_do_while_none_crowds_the_cpus_is_not_compared() {
        let mut p = Program::new([0.3, 0.9]);
        let mut beats = 0;
        for _ in 0..200 {
            p.crowded = true;
            p.runs(1.0);
            beats += u64::from(matches!(p.wish, Wish::Beat(_)));
            (p.crowded, p.samples) = (false, 0);
            p.runs(1.0);
            p.samples = 10;
        }
        assert!(beats > 190, "{beats}");
        let seen = p.tempo.compared().1;
        assert!(seen.rate() > Some(0.85 * 10.0 / STEP.as_secs_f64()), "{seen:?}");
    }

    /// Would catch: a verdict on a handful of samples.
    #[test]
    fn few_samples_say_nothing() {
        let mut p = Program { samples: 1, ..Program::new([0.0, 1.0]) };
        p.runs(ENOUGH[0] as f64 * STEP.as_secs_f64());
        assert_eq!(p.wish, Wish::Look);
        p.runs(3.0 * STEP.as_secs_f64());
        assert_eq!(p.wish, Wish::Beat(BEATS[0]));
    }
}

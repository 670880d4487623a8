//! Whether it is worth something that threads hand over their CPUs: pauses now and then, and compares how much they compute.
//!
//! ```text
//!   Hands over --FIRST, then each AGAIN--> Looks --> Pauses --pays--> Hands over
//!       ^                                              |
//!       +------------ Rests <-------------loses--------+      twice as long each time
//! ```
//!
//! Once it also looks SOON after threads began to hand over, and pauses only where they do not compute more than before.

use crate::patience::Patience;
use crate::seen::Seen;
use evenly_model::Nanos;

/// So many samples say what threads do while they hand over, and in a pause, in which fewer than the last say nothing.
const ENOUGH: [u64; 3] = [100, 60, 20];
/// It pauses for the first time after so long: a program that waits a hundred times as long in a pause loses 2 % by it.
const FIRST: Nanos = Nanos::from_millis(8_000);
/// What threads do while they hand over is compared with what was seen before they did after so long.
const SOON: Nanos = Nanos::from_millis(500);
/// What was seen so long ago is not compared.
const OLD: Nanos = Nanos::from_millis(5_000);
/// And again after so long.
const AGAIN: Nanos = Nanos::from_millis(60_000);
/// For how long it is looked at least and at most while CPUs are handed over.
const LOOK: [Nanos; 2] = [Nanos::from_millis(250), Nanos::from_millis(3_000)];
/// For how long it pauses at most.
const PAUSE: Nanos = Nanos::from_millis(300);

/// What is to be done until the next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    /// CPUs are handed over.
    pub hands: bool,
    /// Samples are taken.
    pub looks: bool,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Hands,
    Looks { seen: Seen },
    Pauses { with: Seen, seen: Seen },
    Rests { until: Nanos },
}

/// What is done, and what came of it.
#[derive(Debug)]
pub struct Worth {
    state: State,
    at: Nanos,
    /// When it is compared; None before the first step.
    next: Option<Nanos>,
    patience: Patience,
    without: Seen,
    with: Seen,
    /// The last few comparisons: what was seen without and with.
    last: [Seen; 2],
    /// What was seen before threads handed over, until it is compared with what they do then; and both.
    before: Option<(Nanos, Seen)>,
    at_first: Option<(Seen, Seen)>,
    /// It has paused as they did not seem to compute more.
    paused_soon: bool,
}

impl Default for Worth {
    fn default() -> Self {
        Self {
            state: State::Hands,
            at: Nanos::ZERO,
            next: None,
            patience: Patience::default(),
            without: Seen::default(),
            with: Seen::default(),
            last: [Seen::default(); 2],
            before: None,
            at_first: None,
            paused_soon: false,
        }
    }
}

impl Worth {
    /// Goes on. `shows` is whether CPUs have to be handed over, and samples can show what that is worth; `new` is what was seen
    /// since the last step.
    pub fn step(&mut self, now: Nanos, shows: bool, new: Seen) -> Act {
        let time = now - std::mem::replace(&mut self.at, now);
        let new = Seen { time, ..new };
        let next = *self.next.get_or_insert(now + FIRST);
        self.state = match self.state {
            State::Rests { until } if now < until => self.state,
            State::Rests { .. } => self.hands(now + FIRST),
            State::Pauses { .. } if !shows => self.hands(now + FIRST),
            _ if !shows => State::Hands,
            State::Hands if now < next => State::Hands,
            State::Hands if self.before.is_some_and(|(at, _)| now - at > OLD) => {
                self.before = None;
                self.hands(now + FIRST)
            }
            State::Hands => State::Looks { seen: Seen::default() },
            State::Looks { mut seen } => {
                seen.add(new);
                if seen.all >= ENOUGH[0] && seen.time >= LOOK[0] {
                    self.compare(now, seen)
                } else if seen.time >= LOOK[1] {
                    self.before = None;
                    self.hands(now + AGAIN)
                } else {
                    State::Looks { seen }
                }
            }
            State::Pauses { with, mut seen } => {
                seen.add(new);
                if seen.all >= ENOUGH[1] || seen.time >= PAUSE {
                    self.judge(now, with, seen)
                } else {
                    State::Pauses { with, seen }
                }
            }
        };
        match self.state {
            State::Hands => Act { hands: true, looks: false },
            State::Looks { .. } => Act { hands: true, looks: true },
            State::Pauses { .. } => Act { hands: false, looks: true },
            State::Rests { .. } => Act { hands: false, looks: false },
        }
    }

    /// Whether CPUs are handed over where they have to be, as far as is known.
    #[must_use]
    pub fn hands_over(&self) -> bool {
        matches!(self.state, State::Hands | State::Looks { .. })
    }

    /// Threads hand over from now on, and did this before. What they do then is looked at soon, once.
    pub fn begins(&mut self, now: Nanos, before: Seen) {
        if self.at_first.is_none() && !self.paused_soon && matches!(self.state, State::Hands) {
            self.before = Some((now, before));
            self.next = Some(now + SOON);
        }
    }

    /// What was seen in pauses, and just before them. Until there was one, what was seen before threads handed over, and soon
    /// after.
    #[must_use]
    pub fn compared(&self) -> (Seen, Seen) {
        let paused = (self.without, self.with);
        if self.with.all > 0 { paused } else { self.at_first.unwrap_or(paused) }
    }

    fn hands(&mut self, next: Nanos) -> State {
        self.next = Some(next);
        State::Hands
    }

    /// Compares what was seen with what was before threads handed over, where that is known, and pauses: that it does not help only
    /// a pause shows, as the program may do something else by now.
    fn compare(&mut self, now: Nanos, seen: Seen) -> State {
        if let Some((_, before)) = self.before.take() {
            self.at_first = seen.exceeds(&before, 1.0).then_some((before, seen));
            if seen.rate() > before.rate() {
                return self.hands(now + FIRST);
            }
            self.paused_soon = true;
        }
        State::Pauses { with: seen, seen: Seen::default() }
    }

    fn judge(&mut self, now: Nanos, with: Seen, without: Seen) -> State {
        if without.all < ENOUGH[2] {
            return self.hands(now + AGAIN);
        }
        self.with.add(with);
        self.without.add(without);
        for (last, new) in self.last.iter_mut().zip([without, with]) {
            last.fade();
            last.add(new);
        }
        let [without, with] = self.last;
        if without.exceeds(&with, 1.0) {
            State::Rests { until: self.patience.rest(now) }
        } else {
            self.patience = Patience::default();
            self.hands(now + AGAIN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Nanos = Nanos::from_millis(20);

    /// A program that is seen so often in a step, and in what part of the samples computing: without and with.
    struct Program {
        worth: Worth,
        now: Nanos,
        act: Act,
        shows: bool,
        samples: [u64; 2],
        computes: [f64; 2],
    }

    impl Program {
        fn new(computes: [f64; 2]) -> Self {
            Self {
                worth: Worth::default(),
                now: Nanos::from_millis(5_000),
                act: Act { hands: true, looks: false },
                shows: true,
                samples: [8, 8],
                computes,
            }
        }

        /// For how many of so many seconds CPUs are not handed over, and for how many samples are taken.
        fn runs(&mut self, seconds: f64) -> [f64; 2] {
            let (mut rests, mut looks) = (0, 0);
            for _ in 0..(seconds / STEP.as_secs_f64()) as u64 {
                let which = usize::from(self.act.hands);
                let all = if self.act.looks { self.samples[which] } else { 0 };
                let waiting = (all as f64 * (1.0 - self.computes[which])).round() as u64;
                self.now += STEP;
                let new = Seen { all, waiting, time: Nanos::ZERO };
                self.act = self.worth.step(self.now, self.shows, new);
                rests += u64::from(!self.act.hands);
                looks += u64::from(self.act.looks);
            }
            [rests, looks].map(|steps| steps as f64 * STEP.as_secs_f64())
        }
    }

    #[test]
    fn what_pays_pauses_for_less_than_half_a_percent() {
        let mut p = Program::new([0.05, 0.95]);
        let [rests, looks] = p.runs(600.0);
        assert!(rests > 1.0 && rests < 2.0, "{rests}");
        assert!(looks < 6.0, "{looks}");
        let (without, with) = p.worth.compared();
        let [without, with] = [without, with].map(|seen| seen.rate().unwrap());
        assert!(with > 15.0 * without, "{with} {without}");
        // Nothing is compared in the first seconds, and 2 % are lost at most.
        assert_eq!(Program::new([0.05, 0.95]).runs(7.9), [0.0, 0.0]);
        assert!(Program::new([0.05, 0.95]).runs(10.0)[0] < 0.2);
    }

    #[test]
    fn what_loses_ends_and_is_tried_more_and_more_rarely() {
        let mut p = Program::new([0.9, 0.6]);
        let [rests, _] = p.runs(3_600.0);
        assert!(rests > 3_400.0, "{rests}");
        // It is forgotten when it pays.
        p.computes = [0.1, 0.9];
        p.runs(2.0 * Patience::LONGEST.as_secs_f64());
        assert!(p.runs(60.0)[0] < 0.5);
        // Samples err by this much.
        assert!(Program::new([0.75, 0.65]).runs(60.0)[0] < 1.0);
        // Time in which nothing has to be handed over is not compared.
        let mut p = Program::new([0.1, 0.9]);
        while !p.act.looks {
            p.runs(STEP.as_secs_f64());
        }
        p.shows = false;
        p.runs(100.0);
        assert!(!p.act.looks);
        p.shows = true;
        assert!(p.runs(60.0)[0] < 1.0);
    }

    /// Would catch: a report of a run of some seconds that does not say what came of it.
    #[test]
    fn what_was_seen_before_is_compared_without_a_pause() {
        let mut p = Program::new([0.05, 0.95]);
        p.runs(1.0);
        let before = Seen { all: 100, waiting: 95, time: Nanos::from_millis(300) };
        p.worth.begins(p.now, before);
        let [rests, looks] = p.runs(3.0);
        assert!(rests == 0.0 && looks < 0.4, "{rests} {looks}");
        let (without, with) = p.worth.compared();
        assert!(without == before && with.exceeds(&before, 10.0), "{with:?}");
        // Once; and what a pause shows counts for more.
        p.worth.begins(p.now, before);
        assert!(p.runs(5.0) == [0.0, 0.0] && p.runs(5.0)[0] > 0.0);
        let (paused, _) = p.worth.compared();
        assert!(paused != before);
    }

    /// Would catch: a program that takes longer than before, until it is compared after eight seconds.
    #[test]
    fn what_does_not_help_soon_pauses_at_once() {
        let mut p = Program::new([0.9, 0.3]);
        p.runs(1.0);
        let before = Seen { all: 100, waiting: 40, time: Nanos::from_millis(250) };
        p.worth.begins(p.now, before);
        assert!(p.runs(0.7)[0] == 0.0 && p.runs(1.0)[0] > 0.8);
        // Where it helps all the same, as the program has changed, it is a moment, and once.
        let mut p = Program::new([0.1, 0.3]);
        p.runs(1.0);
        p.worth.begins(p.now, before);
        let rests = p.runs(2.0)[0];
        assert!(rests > 0.0 && rests < 0.3, "{rests}");
        for _ in 0..10 {
            p.worth.begins(p.now, before);
            assert_eq!(p.runs(3.0)[0], 0.0);
        }
    }

    /// Would catch: a pause after each look that was too short to show a gain.
    #[test]
    fn what_seems_to_help_is_not_paused_soon() {
        let mut p = Program::new([0.1, 1.0]);
        p.runs(1.0);
        let before = Seen { all: 30, waiting: 9, time: Nanos::from_millis(75) };
        p.worth.begins(p.now, before);
        assert_eq!(p.runs(7.5), [0.0, 0.26]);
    }

    /// Threads that sleep instead of spinning are seen less often, and all the more in what they compute.
    #[test]
    fn what_counts_is_computing_in_a_time_and_not_its_part_of_cpu_time() {
        let mut p = Program { samples: [8, 4], ..Program::new([0.5, 1.0]) };
        assert!(p.runs(60.0)[0] < 1.0);
        let mut p = Program { samples: [8, 2], ..Program::new([0.5, 1.0]) };
        assert!(p.runs(60.0)[0] > 25.0);
    }

    #[test]
    fn where_samples_show_nothing_it_never_pauses_for_long() {
        let mut unseen = Program { shows: false, ..Program::new([0.9, 0.1]) };
        assert_eq!(unseen.runs(600.0), [0.0, 0.0]);
        let mut rarely = Program { samples: [0, 8], ..Program::new([0.9, 0.9]) };
        assert!(rarely.runs(600.0)[0] < 4.0);
        assert_eq!(rarely.worth.compared().0, Seen::default());
        let mut asleep = Program { samples: [8, 0], ..Program::new([0.9, 0.9]) };
        assert_eq!(asleep.runs(600.0)[0], 0.0);
        // It may come to be so in the middle of a pause.
        let mut p = Program::new([0.05, 0.95]);
        while p.act.hands {
            p.runs(STEP.as_secs_f64());
        }
        p.shows = false;
        p.runs(STEP.as_secs_f64());
        assert!(p.act.hands);
    }
}

//! The balancing period lambda: its length, its jitter, and the budget that it must keep.
//!
//! An automatic period is about two turns of the threads that share a CPU: one slice for each. Below
//! that the shares of threads are not yet fair, and the policy would act on that alone (Juggle, section
//! 4.5, Figure 17). It need not know the phases of the program. At the end of a phase that takes T the
//! threads are up to lambda / (floor(n/m) ceil(n/m)) apart (Lemma 1, Eq. 2), and a point costs c, so that
//!
//! ```text
//! lambda / (floor ceil T) + c / lambda
//! ```
//!
//! is lost. A longer lambda pays only where T is above lambda^2 / (c floor ceil), several seconds, and what
//! it saves is less than c / lambda, which the budget bounds. Over the ranges of Figures 8, 9, 11 and 17
//! the automatic period is within 1.2 % of the best fixed one, but for phases that are no longer than
//! the period (docs/simulate.md has the table).
//!
//! Where each thread has had a CPU to itself for a while there is nothing to do but to watch for others that
//! come: then the period is twice as long, and costs half; after as many points again four times. In a program that waits for all at
//! barriers the time that a point takes from one thread is lost for all of them, so that even the budget
//! would be much.
//!
//! So is it four times as long where threads block many times in a period: the kernel places them anew each time, what each receives is
//! about the same in a longer one, and all of them wait for the one that a point takes time from.
//!
//! While balancing rests, because it was found to gain nothing, points only look whether that has changed and
//! count what the report says: then the period is even longer.
//!
//! Where threads report their phases, and have unequal work, it is two turns of two threads, however
//! many share a CPU ([`crate::Balancer::taking_turns`]): then it must be seen soon which ones wait.
//!
//! Invariant: the period is never shorter than what keeps the CPU time of balancing within the
//! budget (promise P6), whatever the user asked for.

use evenly_model::Nanos;
use evenly_model::stats::Random;

/// What a period would be if threads did not block often: for what takes so many periods.
pub(crate) fn unstretched(period: Nanos) -> Nanos {
    period.scale(1.0 / BLOCKING)
}

/// How the user wants the period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Period {
    /// As short as budget and scheduler allow.
    #[default]
    Auto,
    /// Fixed, unless the budget forbids it.
    Fixed(Nanos),
}

/// The CPU time that evenly may use beside its part of one CPU, however short the run is: half of it
/// for finding the threads, half for its own start and end.
pub const ADVANCE: Nanos = Nanos::from_millis(100);

/// What the period depends on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeriodOptions {
    /// What the user asked for.
    pub period: Period,
    /// The part of one CPU that balancing may use.
    pub budget: f64,
    /// For how long the scheduler lets a thread run when others wait: its slice, or the tick,
    /// whichever is longer. Within a few of these the share of each thread is not yet fair, and a
    /// shorter period would see (and act on) that alone (paper, section 4.5, Figure 17).
    pub slice: Nanos,
    /// Seed of the jitter.
    pub seed: u64,
}

/// How many turns of all threads that share a CPU an automatic period has, where they are two and
/// where they are more. Measured in the simulator: half a turn less loses more than it wins, and a turn
/// more costs up to a quarter of the makespan where phases are about as long as the period.
const TURNS: [f64; 2] = [1.75, 2.0];
/// After so many calm points in a row an automatic period is twice as long, until one is not; after as many again twice as
/// long as that. So often.
const CALM: u32 = 32;
const MOST_TIMES: u32 = 2;
/// So many times as long is it where threads block often.
const BLOCKING: f64 = 4.0;
/// Automatic periods stay within these.
const SHORTEST: Nanos = Nanos::from_millis(5);
const LONGEST: Nanos = Nanos::from_millis(100);
/// While balancing rests.
const RESTING: Nanos = Nanos::from_millis(200);
/// Half width of the jitter, as part of the period (paper, section 4.2).
const JITTER: f64 = 0.1;
/// That the budget has made it so many times as long is worth a line.
const STRETCHED: f64 = 3.0;
/// After so many points the mean cost is one.
const SETTLED: u64 = 30;
/// Weight of the newest cost in the running mean.
const NEWEST: f64 = 0.1;

/// Chooses the length of each period.
#[derive(Debug, Clone)]
pub struct PeriodControl {
    options: PeriodOptions,
    /// Threads that share a CPU, at least 2.
    together: usize,
    /// Calm points since the last other.
    calm: u32,
    /// Whether threads block many times in a period.
    blocking: bool,
    /// Whether nothing is moved because it was found to gain nothing.
    resting: bool,
    cost_ns: f64,
    random: Random,
    /// The period that was last reported to be longer than wanted.
    reported: Nanos,
    points: u64,
    /// Balancers that share the budget.
    sharers: usize,
}

impl PeriodControl {
    /// Starts with the wanted period, before any cost is known, for CPUs that two threads share.
    #[must_use]
    pub fn new(options: PeriodOptions) -> Self {
        let random = Random::new(options.seed);
        Self {
            options,
            together: 2,
            calm: 0,
            blocking: false,
            resting: false,
            cost_ns: 0.0,
            random,
            reported: Nanos::ZERO,
            points: 0,
            sharers: 1,
        }
    }

    /// Learns how many threads share a CPU. An automatic period is as long as it takes each of them
    /// to have a few turns.
    pub fn shared_by(&mut self, threads: usize) {
        self.together = threads.max(2);
    }

    /// Learns whether anything was to be done at a point ([`crate::Balancer::is_calm`]).
    pub fn calm(&mut self, calm: bool) {
        self.calm = if calm { self.calm.saturating_add(1) } else { 0 };
    }

    /// Learns whether threads block many times in a period ([`crate::Balancer::blocks_often`]).
    pub fn blocking(&mut self, often: bool) {
        self.blocking = often;
    }

    /// Learns whether balancing rests ([`crate::Balancer::is_resting`]).
    pub fn resting(&mut self, resting: bool) {
        self.resting = resting;
    }

    /// Learns how many balancers share the budget: one for each domain that has threads.
    pub fn share_budget(&mut self, balancers: usize) {
        self.sharers = balancers.max(1);
    }

    /// Learns what a balancing point cost. The first ones, which open files and place threads,
    /// count no more than others: the mean starts at nothing.
    pub fn cost(&mut self, cost: Nanos) {
        self.cost_ns += NEWEST * (cost.0 as f64 - self.cost_ns);
        self.points += 1;
    }

    /// The period now, without jitter.
    #[must_use]
    pub fn current(&self) -> Nanos {
        let budget = self.options.budget / self.sharers as f64;
        let least = Nanos((self.cost_ns / budget.max(1e-9)) as u64);
        self.wanted().max(least)
    }

    /// The length of the next period, with jitter, so that periods and phases never lock in step.
    pub fn next_period(&mut self) -> Nanos {
        let factor = 1.0 + JITTER * (2.0 * self.random.unit() - 1.0);
        self.current().scale(factor)
    }

    /// The message that the budget has made the period much longer than wanted, and twice as long as when there was one
    /// last: often enough to be reported, not more. It says how things are at this moment, in words that stay true when it
    /// has passed.
    pub fn newly_stretched(&mut self) -> Option<String> {
        let current = self.current();
        let least = self.wanted().scale(STRETCHED).max(self.reported.scale(2.0));
        if self.points < SETTLED || current <= least {
            return None;
        }
        let before = self.wanted().max(std::mem::replace(&mut self.reported, current));
        Some(format!(
            "the balancing period was raised from {before} to {current} after {} periods to stay within the \
             overhead budget: evenly used {} of CPU time in a period, on average",
            self.points,
            Nanos(self.cost_ns as u64),
        ))
    }

    /// What is wanted, whatever the budget says.
    #[must_use]
    pub fn wanted(&self) -> Nanos {
        if let Period::Fixed(period) = self.options.period {
            return period;
        }
        if self.resting {
            return RESTING;
        }
        let turn = self.options.slice.scale(self.together as f64);
        let calmer = f64::from(1_u32 << (self.calm / CALM).min(MOST_TIMES));
        let longer = if self.blocking { BLOCKING } else { calmer };
        turn.scale(TURNS[usize::from(self.together > 2)] * longer).clamp(SHORTEST, LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(period: Period) -> PeriodControl {
        PeriodControl::new(PeriodOptions {
            period,
            budget: 0.01,
            slice: Nanos::from_millis(4),
            seed: 1,
        })
    }

    #[test]
    fn auto_follows_the_slice() {
        assert_eq!(control(Period::Auto).current(), Nanos::from_millis(14));
    }

    #[test]
    fn auto_gives_each_thread_its_turns() {
        let mut c = control(Period::Auto);
        let with = |c: &mut PeriodControl, threads| {
            c.shared_by(threads);
            c.current().as_millis_f64()
        };
        assert_eq!([1, 2, 3, 8, 50].map(|k| with(&mut c, k)), [14.0, 14.0, 24.0, 64.0, 100.0]);
        let mut fixed = control(Period::Fixed(Nanos::from_millis(7)));
        assert_eq!(with(&mut fixed, 8), 7.0);
    }

    #[test]
    fn it_is_longer_while_nothing_is_to_be_done() {
        let mut c = control(Period::Auto);
        let mut after = |calm: &[bool]| {
            calm.iter().for_each(|calm| c.calm(*calm));
            c.current().as_millis_f64()
        };
        assert_eq!([after(&[true; 31]), after(&[true]), after(&[true; 31])], [14.0, 28.0, 28.0]);
        assert_eq!([after(&[true]), after(&[true; 32]), after(&[true; 999])], [56.0, 56.0, 56.0]);
        assert_eq!([after(&[false]), after(&[true; 31]), after(&[true])], [14.0, 14.0, 28.0]);
        let mut fixed = control(Period::Fixed(Nanos::from_millis(7)));
        (0..50).for_each(|_| fixed.calm(true));
        assert_eq!(fixed.current().as_millis_f64(), 7.0);
    }

    /// Would catch: points that take time from all threads that wait at the next barrier, and see no more than fewer would.
    #[test]
    fn it_is_longer_where_threads_block_often() {
        let mut c = control(Period::Auto);
        let mut with = |often| {
            c.blocking(often);
            c.current().as_millis_f64()
        };
        assert_eq!([with(true), with(false)], [56.0, 14.0]);
        c.blocking(true);
        (0..999).for_each(|_| c.calm(true));
        assert_eq!(c.current().as_millis_f64(), 56.0);
    }

    /// Would catch: points that go on taking time from a program in which they have nothing to do.
    #[test]
    fn it_is_the_longest_while_balancing_rests() {
        let mut c = control(Period::Auto);
        let mut with = |resting| {
            c.resting(resting);
            c.current().as_millis_f64()
        };
        assert_eq!([with(true), with(false)], [200.0, 14.0]);
        let mut fixed = control(Period::Fixed(Nanos::from_millis(7)));
        fixed.resting(true);
        assert_eq!(fixed.current().as_millis_f64(), 7.0);
    }

    #[test]
    fn one_dear_point_does_not_stretch_the_period_for_long() {
        let mut c = control(Period::Auto);
        c.cost(Nanos::from_micros(1_500));
        assert!(c.current() <= Nanos::from_millis(15));
        assert_eq!(c.newly_stretched(), None);
    }

    #[test]
    fn jitter_stays_within_a_tenth_and_averages_out() {
        let mut c = control(Period::Fixed(Nanos::from_millis(50)));
        let periods: Vec<f64> = (0..2000).map(|_| c.next_period().as_millis_f64()).collect();
        assert!(periods.iter().all(|p| (45.0..=55.0).contains(p)));
        let mean = periods.iter().sum::<f64>() / 2000.0;
        assert!((49.5..50.5).contains(&mean), "{mean}");
    }

    #[test]
    fn the_budget_wins_over_the_wanted_period_and_is_reported_once() {
        let mut c = control(Period::Fixed(Nanos::from_millis(10)));
        assert_eq!(c.newly_stretched(), None);
        for _ in 0..100 {
            c.cost(Nanos::from_millis(1));
        }
        assert_eq!(c.current().as_millis_f64().round(), 100.0);
        // The message is consistent: the cost over the budget is the period.
        assert_eq!(
            c.newly_stretched().unwrap(),
            "the balancing period was raised from 10.0 ms to 100.0 ms after 100 periods to stay within \
             the overhead budget: evenly used 1000.0 us of CPU time in a period, on average"
        );
        assert_eq!(c.newly_stretched(), None);
        // It goes on from there.
        (0..100).for_each(|_| c.cost(Nanos::from_millis(3)));
        let again = c.newly_stretched().unwrap();
        assert!(again.contains("raised from 100.0 ms to 300.0 ms"), "{again}");
    }

    #[test]
    fn balancers_share_one_budget() {
        let mut c = control(Period::Fixed(Nanos::from_millis(10)));
        for _ in 0..100 {
            c.cost(Nanos::from_millis(1));
        }
        let with = |c: &mut PeriodControl, balancers| {
            c.share_budget(balancers);
            c.current().as_millis_f64().round()
        };
        assert_eq!([0, 1, 2, 8].map(|n| with(&mut c, n)), [100.0, 100.0, 200.0, 800.0]);
    }
}

//! What balancing can reach for a program, and whether it is worth trying.
//!
//! Invariant: every time is that of an ideal: no costs, fair CPUs, identical threads, nothing else
//! on the machine. What is promised is never more than a bound permits.

use crate::{
    ExactTime, OutOfRange, Shape, SingleBalance, Speeds, balanced_phases, continuous_time,
    expected_single_balance, lag_bound, locked_phases_time, locked_time, phases_bound, phases_time,
    proactive_limit, rarely_balanced_time, reactive_time, reactive_time_anywhere, static_time,
    unbalanced_time,
};
use evenly_model::{Nanos, counted};

/// A program and its machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// How many threads and CPUs there are.
    pub shape: Shape,
    /// Speeds of the CPUs where they differ. Looked at only if there are as many as CPUs.
    pub speeds: Option<Speeds>,
    /// e: CPU time of one thread for one phase.
    pub phase: Nanos,
    /// How many phases. At least 1.
    pub phases: u64,
    /// lambda: the balancing period.
    pub period: Nanos,
    /// For how long the scheduler lets a thread run while others wait.
    pub slice: Nanos,
    /// What it costs to move a thread within a phase, by the policy `phase`.
    pub move_cost: Nanos,
}

/// Which part of the analysis applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Regime {
    /// All slots are equal: nothing can be gained.
    NoBenefit,
    /// The period is at most a tenth of a phase.
    ShortPeriod,
    /// The period is comparable with a phase.
    ComparablePeriod,
    /// The period is at least a phase under static distribution: a phase is balanced once or not
    /// at all.
    SingleBalance,
    /// The program ends before the first balancing point.
    NeverBalanced,
}

impl Regime {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoBenefit => "no_benefit",
            Self::ShortPeriod => "short_period",
            Self::ComparablePeriod => "comparable_period",
            Self::SingleBalance => "single_balance",
            Self::NeverBalanced => "never_balanced",
        }
    }
}

/// Whether to use evenly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Balancing is worth trying.
    Worth,
    /// There is a gain, but less than two per cent, or most of what the equations give is lost.
    Hardly,
    /// Not with this period, but with a shorter one.
    ShorterPeriod,
    /// Balancing is not worth it.
    No,
}

impl Advice {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Worth => "worth_trying",
            Self::Hardly => "hardly",
            Self::ShorterPeriod => "shorter_period",
            Self::No => "no",
        }
    }
}

/// Completion times of ideal proactive balancing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// It cannot take less.
    pub at_least: ExactTime,
    /// What the equation that applies gives.
    pub expected: ExactTime,
    /// The ideal algorithm never takes more; none where no bound is known.
    pub at_most: Option<ExactTime>,
    /// Where the expected time comes from.
    pub equation: &'static str,
}

/// The answer to a [`Question`]. Times are of the whole program.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Which part of the analysis applies.
    pub regime: Regime,
    /// Static distribution, Eq. 1.
    pub static_time: ExactTime,
    /// Where speeds differ: the best static distribution, with as many threads on a CPU as its
    /// speed deserves.
    pub best_static: Option<ExactTime>,
    /// Ideal reactive balancing; none where speeds differ.
    pub reactive: Option<ExactTime>,
    /// Whether that is Eq. 21; else it is derived beyond the paper.
    pub reactive_of_paper: bool,
    /// What ideal proactive balancing takes.
    pub proactive: Range,
    /// One planned move in each phase ([`crate::locked_time`]), the policy `phase`; none where all slots are equal.
    pub locked: Option<ExactTime>,
    /// Continuous balancing, Eq. 15: what no balancer can beat.
    pub continuous: ExactTime,
    /// Relative speedup over static distribution that this period permits, at most.
    pub gain: f64,
    /// The same with a period that is as short as one likes: UB.
    pub upper_bound: f64,
    /// Over ideal reactive balancing, at most.
    pub gain_over_reactive: Option<f64>,
    /// What is recommended, by all of this.
    pub advice: Advice,
    /// The recommendation in words, with its reason.
    pub reason: String,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

/// A gain below this is not worth the trouble.
const LEAST_GAIN: f64 = 1.02;
/// The period is short if a phase has this many at least.
const SHORT: u64 = 10;
/// Programs that end sooner gain nothing: their threads have first to be recognised.
const LEAST_RUN_S: f64 = 0.5;

/// What static, reactive and proactive balancing can reach.
#[must_use]
pub fn predict(q: &Question) -> Prediction {
    let speeds = speeds_of(q);
    let mut p = match speeds {
        Some(speeds) => unequal(q, speeds),
        None => equal(q),
    };
    p.locked = (p.regime != Regime::NoBenefit)
        .then(|| locked_phases_time(q.shape, speeds, (q.phases, q.phase), q.move_cost));
    (p.advice, p.reason) = advise(q, &p);
    p.notes = notes(q, &p);
    p
}

/// The speeds, where they differ.
fn speeds_of(q: &Question) -> Option<&Speeds> {
    q.speeds.as_ref().filter(|s| s.cpus() == q.shape.m() && !s.unit())
}

fn regime(q: &Question, one_static: &ExactTime, even: bool) -> Regime {
    let period = ExactTime::from(q.period);
    if even {
        Regime::NoBenefit
    } else if period >= one_static.times(q.phases, 1) {
        Regime::NeverBalanced
    } else if period >= *one_static {
        Regime::SingleBalance
    } else if period.times(SHORT, 1) <= ExactTime::from(q.phase) {
        Regime::ShortPeriod
    } else {
        Regime::ComparablePeriod
    }
}

fn equal(q: &Question) -> Prediction {
    let (s, e, phases, lambda) = (q.shape, q.phase, q.phases, q.period);
    let whole = unbalanced_time(s, phases, e);
    let continuous = phases_bound(s, phases, e);
    let regime = regime(q, &static_time(s, e), !s.uneven());
    let unchanged = |equation| Range {
        at_least: whole.clone(),
        expected: whole.clone(),
        at_most: Some(whole.clone()),
        equation,
    };
    let often = |bound: ExactTime| Range {
        at_least: bound.clone(),
        expected: bound,
        at_most: Some(proactive_limit(s, e, lambda).times(phases, 1)),
        equation: match lag_bound(s, e, lambda) {
            Ok(lag) if lag > continuous_time(s, e) => "Eq. 2 and 16",
            _ => "Eq. 14 and 16",
        },
    };
    let rarely = |expected: ExactTime| {
        // A phase without a balancing point takes as long as ever.
        let eta = balanced_phases(s, phases, e, lambda);
        Range {
            at_least: static_time(s, e).times(phases - eta, 1) + phases_bound(s, eta, e),
            expected,
            at_most: Some(whole.clone()),
            equation: match expected_single_balance(s, e) {
                Ok(SingleBalance::Helps(_)) => "Eq. 17",
                _ => "Eq. 18",
            },
        }
    };
    let proactive = match regime {
        Regime::NoBenefit | Regime::NeverBalanced => unchanged("Eq. 1"),
        _ => match phases_time(s, phases, e, lambda) {
            Ok(bound) => often(bound),
            Err(OutOfRange::LongPeriod) => match rarely_balanced_time(s, phases, e, lambda) {
                Ok(expected) => rarely(expected),
                Err(_) => unchanged("Eq. 1"),
            },
            Err(_) => unchanged("Eq. 1"),
        },
    };
    let of_paper = reactive_time(s, e);
    let reactive_of_paper = of_paper.is_ok();
    let reactive = of_paper.unwrap_or_else(|_| reactive_time_anywhere(s, e)).times(phases, 1);
    complete(regime, whole, None, Some(reactive), reactive_of_paper, proactive, continuous)
}

fn unequal(q: &Question, speeds: &Speeds) -> Prediction {
    let (n, e) = (q.shape.n(), q.phase);
    let one = speeds.static_time(n, e);
    let whole = one.times(q.phases, 1);
    let continuous = speeds.continuous_time(n, e).times(q.phases, 1);
    let best = speeds.best_static_time(n, e).times(q.phases, 1);
    let regime = regime(q, &one, whole == continuous);
    let proactive = match regime {
        Regime::ShortPeriod | Regime::ComparablePeriod => Range {
            at_least: continuous.clone(),
            expected: continuous.clone(),
            at_most: None,
            equation: "Eq. 14 and 16, sum of speeds for m",
        },
        Regime::SingleBalance => Range {
            at_least: continuous.clone(),
            expected: whole.clone(),
            at_most: None,
            equation: "Eq. 1; for one balancing point a phase and unequal speeds there is no \
                       equation",
        },
        Regime::NoBenefit | Regime::NeverBalanced => Range {
            at_least: whole.clone(),
            expected: whole.clone(),
            at_most: Some(whole.clone()),
            equation: "Eq. 1",
        },
    };
    complete(regime, whole, Some(best), None, false, proactive, continuous)
}

fn complete(
    regime: Regime,
    static_time: ExactTime,
    best_static: Option<ExactTime>,
    reactive: Option<ExactTime>,
    reactive_of_paper: bool,
    proactive: Range,
    continuous: ExactTime,
) -> Prediction {
    Prediction {
        gain: static_time.over(&proactive.expected),
        upper_bound: static_time.over(&continuous),
        gain_over_reactive: reactive.as_ref().map(|r| r.over(&proactive.expected)),
        regime,
        static_time,
        best_static,
        reactive,
        reactive_of_paper,
        proactive,
        locked: None,
        continuous,
        advice: Advice::No,
        reason: String::new(),
        notes: Vec::new(),
    }
}

/// One turn of the threads that share a CPU: below this, shares are not fair (Figure 17).
fn turn(q: &Question) -> Nanos {
    Nanos(q.slice.0.saturating_mul(u64::from(q.shape.ceil())))
}

/// Of phases that are too short for periods: what one planned move in each gains over static distribution, where that
/// is worth it.
fn within_phases(q: &Question, p: &Prediction) -> Option<(Advice, String)> {
    let at = "threads meet at barriers of OpenMP, POSIX threads or MPI";
    let locked = p.locked.as_ref()?;
    let gain = p.static_time.over(locked);
    if gain >= LEAST_GAIN && p.static_time.seconds() >= LEAST_RUN_S {
        let words = format!(
            "evenly run is worth trying where {at}: it moves a thread at the right moment of each phase, up to \
             {gain:.2} times as fast as static distribution ({locked} instead of {}). At other barriers it \
             gains little: their phases would have to be longer than five periods. Threads that spin while they wait are another \
             matter: evenly run lets them hand over their CPUs, which is not predicted",
            p.static_time
        );
        return Some((Advice::Worth, words));
    }
    let one = locked_time(q.shape, speeds_of(q), q.phase, q.move_cost);
    let gain = p.static_time.times(1, q.phases).over(&one);
    let words = || {
        format!(
            "no benefit to be expected: the program ends too soon, as its threads have to be recognised first. With \
             more phases like this, where {at}, up to {gain:.2} times as fast"
        )
    };
    (gain >= LEAST_GAIN).then(|| (Advice::No, words()))
}

/// Whether there are many phases that are shorter than five periods, and than five of those that
/// `--period auto` takes, 1.75 turns: measured, there is little left of what the equations promise
/// (docs/measured.md, phases of 20 ms), because waiting at a barrier looks like work, or has ended before the next
/// balancing point.
fn short_phases(q: &Question) -> bool {
    q.phases > 1 && q.phase < q.period.scale(5.0) && q.phase < turn(q).scale(5.0 * 1.75)
}

fn advise(q: &Question, p: &Prediction) -> (Advice, String) {
    let (n, m) = (q.shape.n(), q.shape.m());
    let here = format!("{} on {}", counted(n, "thread"), counted(m, "CPU"));
    // The longest period that is short against a phase.
    let shorter = Nanos(q.phase.0 / SHORT);
    let possible = p.upper_bound;
    let with_shorter = || {
        if shorter >= turn(q) {
            let words =
                format!("With a period of at most {shorter} up to {possible:.2} times as fast");
            return (Advice::ShorterPeriod, words);
        }
        let mut words = format!(
            "Its phases are too short for periods: one would have to be at most {shorter}, and the \
             scheduler needs {} to give each thread its turn",
            turn(q)
        );
        if let Some(r) = p.reactive.as_ref().map(|r| p.static_time.over(r))
            && r >= LEAST_GAIN
        {
            words += &format!(
                ". Where its threads block at barriers, ideal reactive balancing, which is the \
                 kernel's part, makes it up to {r:.2} times as fast"
            );
        }
        (Advice::No, words)
    };
    let few_points = matches!(p.regime, Regime::NeverBalanced | Regime::SingleBalance);
    let too_short = few_points && shorter < turn(q) || short_phases(q);
    if too_short
        && p.regime != Regime::NoBenefit
        && possible >= LEAST_GAIN
        && let Some(advice) = within_phases(q, p)
    {
        return advice;
    }
    match p.regime {
        Regime::NoBenefit => {
            let why = match (p.best_static.is_some(), q.shape.floor(), q.shape.slow_cpus()) {
                (true, ..) => String::from("the even distribution uses all speeds fully"),
                (false, 0, _) | (false, 1, 0) => String::from("each thread has a CPU of its own"),
                (false, k, _) => format!("each CPU holds {k} threads, and all progress alike"),
            };
            let what = format!("{here}, {why}; balancing helps only if others use these CPUs");
            let words = if n > m {
                format!(
                    "nothing to gain unless threads spin: {what}. If they spin while they wait for each other, \
                     {m} threads with the same work in all take less time than {n}"
                )
            } else {
                format!("no benefit possible: {what}")
            };
            (Advice::No, words)
        }
        _ if possible < LEAST_GAIN => {
            let words = format!(
                "little to gain: {here} can become at most {possible:.3} times as fast, whatever \
                 the period"
            );
            (Advice::Hardly, words)
        }
        Regime::NeverBalanced => {
            let (advice, then) = with_shorter();
            let words = format!(
                "no benefit with this period: the program ends before the first balancing point. \
                 {then}"
            );
            (advice, words)
        }
        Regime::SingleBalance if p.gain < LEAST_GAIN => {
            let (advice, then) = with_shorter();
            let why = if p.best_static.is_some() {
                "there is at most one balancing point a phase"
            } else if q.shape.fast_slots() < q.shape.slow_slots() {
                "there is at most one balancing point a phase, and there are fewer fast slots than \
                 slow ones, so that some thread is slow to the end"
            } else {
                "there is a balancing point in few of the phases only"
            };
            (advice, format!("no benefit to be expected with this period: {why}. {then}"))
        }
        Regime::SingleBalance => {
            let (advice, then) = with_shorter();
            let gain = p.gain;
            let words = format!(
                "little to be expected with this period: about {gain:.2} times as fast, as a phase \
                 has at most one balancing point. {then}"
            );
            (advice, words)
        }
        _ if p.gain < LEAST_GAIN => {
            let (advice, then) = with_shorter();
            let words = format!(
                "little to gain with this period: at most {:.3} times as fast. {then}",
                p.gain
            );
            (if advice == Advice::No { Advice::Hardly } else { advice }, words)
        }
        Regime::ShortPeriod | Regime::ComparablePeriod if p.static_time.seconds() < LEAST_RUN_S => {
            let words = format!(
                "no benefit to be expected: the program ends within half a second, and its threads \
                 have to be recognised first (if it had more phases, up to {:.2} times as fast)",
                p.gain
            );
            (Advice::No, words)
        }
        Regime::ShortPeriod | Regime::ComparablePeriod if short_phases(q) => {
            let words = format!(
                "little to be expected of periods: up to {:.2} times as fast as static distribution in \
                 theory, but a phase has fewer than five periods; where threads spin at barriers most of \
                 it is lost, because waiting looks like work, and where they block the kernel does much \
                 of it; evenly compare measures it",
                p.gain
            );
            (Advice::Hardly, words)
        }
        Regime::ShortPeriod | Regime::ComparablePeriod => {
            let mut words = format!(
                "evenly run is worth trying: up to {:.2} times as fast as static distribution \
                 ({} instead of {})",
                p.gain, p.proactive.expected, p.static_time
            );
            match p.gain_over_reactive {
                Some(r) if r < LEAST_GAIN => {
                    words += ". Where its threads block at barriers, ideal reactive balancing \
                              does as well; evenly pays where they spin or yield there, or where \
                              the kernel reacts late";
                }
                Some(r) => {
                    words += &format!(
                        ", and up to {r:.2} times as fast as ideal reactive balancing, the best \
                         that a kernel can do where threads block"
                    );
                }
                None => {}
            }
            if p.regime == Regime::ComparablePeriod
                && shorter >= turn(q)
                && possible > p.gain * LEAST_GAIN
            {
                words += &format!(". With a period of at most {shorter} up to {possible:.2} times");
            }
            (Advice::Worth, words)
        }
    }
}

fn notes(q: &Question, p: &Prediction) -> Vec<String> {
    let mut notes = Vec::new();
    if p.regime != Regime::NoBenefit && q.period < turn(q) {
        notes.push(format!(
            "the period is shorter than {}, a slice of {} for each thread of a CPU: shares are not \
             fair within it, and less is gained than stands here (paper, Figure 17)",
            turn(q),
            q.slice
        ));
    }
    if p.best_static.is_some() && p.regime != Regime::NoBenefit {
        notes.push(String::from(
            "for CPUs of unequal speed this holds where progress is counted by work; where CPU time \
             alone is balanced, less is gained",
        ));
    }
    if p.static_time.seconds() < LEAST_RUN_S && p.advice != Advice::No {
        notes.push(String::from(
            "the program ends within half a second, and its threads have to be recognised first: \
             nothing will be gained",
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(n: u32, m: u32, phase_ms: u64, period_ms: u64) -> Question {
        Question {
            shape: Shape::new(n, m).unwrap(),
            speeds: None,
            phase: Nanos::from_millis(phase_ms),
            phases: 1,
            period: Nanos::from_millis(period_ms),
            slice: Nanos::from_millis(4),
            move_cost: Nanos::from_micros(50),
        }
    }

    #[test]
    fn eight_on_seven() {
        let p = predict(&question(8, 7, 30_000, 100));
        assert_eq!((p.regime, p.advice), (Regime::ShortPeriod, Advice::Worth));
        assert!((p.gain - 1.75).abs() < 1e-12 && (p.upper_bound - 1.75).abs() < 1e-12);
        assert_eq!(p.gain_over_reactive.map(|r| format!("{r:.3}")), Some(String::from("1.312")));
        assert!(p.reason.contains("up to 1.75 times"), "{}", p.reason);
        assert!(p.notes.is_empty());
    }

    #[test]
    fn regimes_follow_the_period() {
        let regime = |phases, period| {
            let q = Question { phases, ..question(8, 7, 1_000, period) };
            predict(&q).regime
        };
        assert_eq!(regime(10, 100), Regime::ShortPeriod);
        assert_eq!(regime(10, 101), Regime::ComparablePeriod);
        assert_eq!(regime(10, 1_999), Regime::ComparablePeriod);
        assert_eq!(regime(10, 2_000), Regime::SingleBalance);
        assert_eq!(regime(10, 19_999), Regime::SingleBalance);
        assert_eq!(regime(10, 20_000), Regime::NeverBalanced);
        assert_eq!(regime(1, 2_000), Regime::NeverBalanced);
    }

    #[test]
    fn no_benefit_says_why() {
        for (n, m, why) in [
            (16, 8, "each CPU holds 2 threads"),
            (8, 8, "a CPU of its own"),
            (2, 4, "a CPU of its own"),
            (5, 1, "each CPU holds 5 threads"),
        ] {
            let p = predict(&question(n, m, 1_000, 20));
            assert_eq!((p.regime, p.advice), (Regime::NoBenefit, Advice::No), "n={n} m={m}");
            // Threads that spin and outnumber the CPUs could be fewer.
            let says =
                if n > m { "nothing to gain unless threads spin" } else { "no benefit possible" };
            assert!(p.reason.starts_with(says) && p.reason.contains(why), "{}", p.reason);
            assert_eq!((p.gain, p.upper_bound), (1.0, 1.0));
            assert_eq!(p.proactive.expected, p.static_time);
        }
    }

    #[test]
    fn a_period_that_is_too_long_is_reported() {
        let p = predict(&question(8, 7, 30_000, 60_000));
        assert_eq!((p.regime, p.advice), (Regime::NeverBalanced, Advice::ShorterPeriod));
        assert!(p.reason.contains("at most 3.00 s") && p.reason.contains("1.75"), "{}", p.reason);
        // 13 on 7: one fast thread, twelve slow ones.
        let q = Question { phases: 20, ..question(13, 7, 1_000, 2_500) };
        let p = predict(&q);
        assert_eq!((p.regime, p.advice), (Regime::SingleBalance, Advice::ShorterPeriod));
        assert_eq!(p.proactive.equation, "Eq. 18");
    }

    #[test]
    fn phases_too_short_for_any_period() {
        let q = Question { phases: 1_000, ..question(3, 2, 20, 50) };
        let p = predict(&q);
        assert_eq!((p.regime, p.advice), (Regime::SingleBalance, Advice::Worth));
        assert!(p.reason.starts_with("evenly run is worth trying where threads"), "{}", p.reason);
        assert!(
            p.reason.contains(
                "up to 1.33 times as fast as static distribution (30.06 s instead of 40.00 s)"
            ),
            "{}",
            p.reason
        );
        // So short that no policy is.
        let p = predict(&Question { phase: Nanos::from_micros(100), ..q });
        assert_eq!((p.regime, p.advice), (Regime::SingleBalance, Advice::No));
        assert!(p.reason.contains("too short for periods"), "{}", p.reason);
        // Over before anything is known of it.
        let p = predict(&question(3, 2, 1, 14));
        assert_eq!((p.regime, p.advice), (Regime::NeverBalanced, Advice::No));
        assert!(p.reason.contains("With more phases like this, where threads"), "{}", p.reason);
    }

    #[test]
    fn a_recommendation_does_not_promise_what_measurements_deny() {
        // Twenty milliseconds are too short for five periods, whatever the period.
        for period in [8, 14] {
            let p = predict(&Question { phases: 100, ..question(3, 2, 20, period) });
            assert_eq!(p.advice, Advice::Worth, "{}", p.reason);
            assert!(p.reason.contains("longer than five periods"), "{}", p.reason);
            assert!(p.reason.contains("it moves a thread at the right moment"), "{}", p.reason);
        }
        let p = predict(&Question { phases: 20, ..question(3, 2, 100, 14) });
        assert_eq!(p.advice, Advice::Worth, "{}", p.reason);
        // Over before its threads are known: said once, and not contradicted.
        let p = predict(&question(3, 2, 100, 14));
        assert_eq!((p.advice, p.notes.len()), (Advice::No, 0));
        assert!(p.reason.contains("within half a second"), "{}", p.reason);
    }

    #[test]
    fn the_expected_time_lies_between_the_bounds() {
        for n in 1..24 {
            for m in 1..12 {
                for (phases, period) in [1_u64, 3, 50].into_iter().flat_map(|l| {
                    [1_u64, 10, 90, 300, 700, 1_000, 1_700, 2_500, 9_000].map(|p| (l, p))
                }) {
                    let q = Question { phases, ..question(n, m, 1_000, period) };
                    let p = predict(&q);
                    let r = &p.proactive;
                    assert!(r.at_least <= r.expected && r.at_least >= p.continuous, "{q:?}");
                    assert!(r.at_most.as_ref().is_some_and(|u| r.expected <= *u), "{q:?} {p:?}");
                    assert!(r.expected <= p.static_time && p.gain <= p.upper_bound + 1e-12);
                    assert!(p.locked.is_none_or(|l| p.continuous <= l && l <= p.static_time));
                    let reactive = p.reactive.unwrap();
                    assert!(p.continuous <= reactive && reactive <= p.static_time, "{q:?}");
                    assert!(!p.reason.is_empty());
                }
            }
        }
    }

    #[test]
    fn unequal_speeds() {
        let q =
            Question { speeds: Some("2x1,2x0.5".parse().unwrap()), ..question(4, 4, 3_000, 20) };
        let p = predict(&q);
        // Static: the slow CPUs need 6 s; balanced: 4 threads with 3 CPUs' worth of speed, 4 s.
        assert_eq!(p.static_time.seconds(), 6.0);
        assert_eq!(p.continuous.seconds(), 4.0);
        assert_eq!((p.regime, p.advice), (Regime::ShortPeriod, Advice::Worth));
        assert!(p.reactive.is_none() && p.proactive.at_most.is_none());
        // A list of other length is not of this machine.
        let other = Question { speeds: Some("1,0.5".parse().unwrap()), ..q.clone() };
        assert_eq!(predict(&other).regime, Regime::NoBenefit);
        let same = Question { speeds: Some("4x1".parse().unwrap()), ..q };
        assert_eq!(predict(&same).regime, Regime::NoBenefit);
    }

    #[test]
    fn huge_numbers_are_only_numbers() {
        let q = Question {
            phases: u64::MAX,
            phase: Nanos(u64::MAX),
            period: Nanos(1),
            ..question(u32::MAX, u32::MAX - 1, 1, 1)
        };
        let p = predict(&q);
        assert!(p.static_time.seconds().is_finite() && (p.gain - 2.0).abs() < 1e-6);
    }
}

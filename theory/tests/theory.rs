//! The equations against the algorithm that they describe, run directly in exact arithmetic: sort
//! the threads by progress, fill the fast slots cyclically, share each CPU fairly (Juggle, section
//! 3). And the numbers that the paper prints.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_model::Nanos;
use evenly_theory::*;
use num_rational::Ratio;

type R = Ratio<i128>;

/// e in nanoseconds: divisible by much.
const E: Nanos = Nanos(720_720_000);

fn r(num: u64, den: u64) -> R {
    R::new(i128::from(num), i128::from(den))
}

fn exact(t: R) -> ExactTime {
    ExactTime::from(Nanos(1))
        .times(u64::try_from(*t.numer()).unwrap(), 1)
        .times(1, u64::try_from(*t.denom()).unwrap())
}

fn shape(n: usize, m: usize) -> Shape {
    Shape::new(n as u32, m as u32).unwrap()
}

/// n > m where m does not divide n.
fn uneven(most: usize) -> impl Iterator<Item = (usize, usize)> {
    (3..=most).flat_map(|n| (2..n).map(move |m| (n, m))).filter(|(n, m)| n % m != 0)
}

/// Periods, as parts of e.
const PARTS: [(u64, u64); 14] = [
    (1, 50),
    (1, 20),
    (1, 11),
    (1, 7),
    (1, 5),
    (2, 7),
    (1, 3),
    (1, 2),
    (3, 4),
    (1, 1),
    (4, 3),
    (3, 2),
    (2, 1),
    (5, 2),
];

fn part((num, den): (u64, u64)) -> Nanos {
    Nanos(E.0 * num / den)
}

/// The ideal algorithm in one phase.
struct Ideal {
    progress: Vec<R>,
    cpu: Vec<usize>,
    speed: Vec<R>,
    now: R,
}

impl Ideal {
    fn new(n: usize, m: usize) -> Self {
        Self::with(n, vec![r(1, 1); m])
    }

    fn with(n: usize, speed: Vec<R>) -> Self {
        let mut ideal = Self { progress: vec![r(0, 1); n], cpu: vec![0; n], speed, now: r(0, 1) };
        ideal.balance();
        ideal
    }

    fn e() -> R {
        r(E.0, 1)
    }

    /// Those that have not reached the barrier, the least progress first.
    fn behind(&self) -> Vec<usize> {
        let mut alive: Vec<usize> =
            (0..self.progress.len()).filter(|&t| self.progress[t] < Self::e()).collect();
        alive.sort_by_key(|&t| self.progress[t]);
        alive
    }

    fn balance(&mut self) {
        let (alive, m) = (self.behind(), self.speed.len());
        let k = alive.len();
        if self.speed.iter().any(|&s| s != r(1, 1)) {
            return self.balance_by_speed(&alive);
        }
        let (slow, fast) = (k % m, m - k % m);
        let fast_slots = (k / m) * fast;
        for (i, &t) in alive.iter().enumerate() {
            self.cpu[t] = if i < fast_slots { i % fast } else { fast + (i - fast_slots) % slow };
        }
    }

    /// Counts within one, the larger on the faster CPUs; the least progress on the fastest slot.
    fn balance_by_speed(&mut self, alive: &[usize]) {
        let m = self.speed.len();
        let mut by_speed: Vec<usize> = (0..m).collect();
        by_speed.sort_by_key(|&c| -self.speed[c]);
        let mut slots = Vec::new();
        for (rank, &c) in by_speed.iter().enumerate() {
            let count = alive.len() / m + usize::from(rank < alive.len() % m);
            slots.extend((0..count).map(|_| (-self.speed[c] / R::from(count as i128), c)));
        }
        slots.sort();
        for (&t, (_, c)) in alive.iter().zip(slots) {
            self.cpu[t] = c;
        }
    }

    /// Until `until`, or (with none) until the next thread ends. False where all have ended.
    fn advance(&mut self, until: Option<R>) -> bool {
        loop {
            let alive = self.behind();
            if alive.is_empty() {
                return false;
            }
            let mut count = vec![0_i128; self.speed.len()];
            alive.iter().for_each(|&t| count[self.cpu[t]] += 1);
            let rate = |t: usize| self.speed[self.cpu[t]] / R::from(count[self.cpu[t]]);
            let first =
                alive.iter().map(|&t| (Self::e() - self.progress[t]) / rate(t)).min().unwrap();
            let step = until.map_or(first, |u| first.min(u - self.now));
            let rates: Vec<R> = alive.iter().map(|&t| rate(t)).collect();
            for (&t, rate) in alive.iter().zip(rates) {
                self.progress[t] += rate * step;
            }
            self.now += step;
            if until.is_none_or(|u| self.now == u) {
                return !self.behind().is_empty();
            }
        }
    }

    /// Runs the phase with balancing points at `first`, `first` + lambda, ...
    fn run(&mut self, first: R, lambda: R) -> R {
        let mut point = first;
        while self.advance(Some(point)) {
            self.balance();
            point += lambda;
        }
        self.now
    }
}

fn ideal_time(n: usize, m: usize, first: R, lambda: R) -> ExactTime {
    exact(Ideal::new(n, m).run(first, lambda))
}

fn whole(n: Nanos) -> R {
    r(n.0, 1)
}

#[test]
fn equation_1_is_what_happens_without_balancing() {
    for n in 1..20 {
        for m in 1..12 {
            let never = r(E.0 * 1_000, 1);
            assert_eq!(ideal_time(n, m, never, never), static_time(shape(n, m), E), "n={n} m={m}");
        }
    }
}

/// Lemma 1 and Theorem 1, at every balancing point until the first thread ends.
#[test]
fn lemma_1_and_theorem_1() {
    let mut points = 0;
    for (n, m) in uneven(12) {
        for p in PARTS {
            let (s, lambda) = (shape(n, m), part(p));
            let difference = lag(s, lambda).unwrap();
            let imaginary = r(u64::from(s.floor()), 1);
            let mut ideal = Ideal::new(n, m);
            let mut point = whole(lambda);
            while ideal.advance(Some(point)) && ideal.behind().len() == n {
                let (least, most) =
                    (ideal.progress.iter().min().unwrap(), ideal.progress.iter().max().unwrap());
                for &p in &ideal.progress {
                    let apart = exact(p - least);
                    let known = apart == ExactTime::zero() || apart == difference;
                    assert!(known, "n={n} m={m} lambda={lambda}");
                }
                assert!(most <= &(point / imaginary));
                assert!(exact(point / imaginary - least) >= difference);
                ideal.balance();
                point += whole(lambda);
                points += 1;
            }
        }
    }
    assert!(points > 1_000, "{points}");
}

#[test]
fn equations_2_and_14_are_lower_bounds_and_the_limit_holds() {
    let mut tight = 0;
    for (n, m) in uneven(12) {
        for p in PARTS {
            let (s, lambda) = (shape(n, m), part(p));
            let time = ideal_time(n, m, whole(lambda), whole(lambda));
            let words = format!("n={n} m={m} lambda={lambda}: {time:?}");
            assert!(time >= continuous_time(s, E), "{words}");
            assert!(time >= lower_bound(s, E, lambda), "{words}");
            assert!(time <= static_time(s, E), "{words}");
            assert!(time <= proactive_limit(s, E, lambda), "{words}");
            match lag_bound(s, E, lambda) {
                Ok(bound) => assert!(time >= bound, "{words}"),
                Err(why) => {
                    assert_eq!(why, OutOfRange::LongPeriod);
                    assert_eq!(time, static_time(s, E), "{words}");
                }
            }
            tight += u32::from(time == lower_bound(s, E, lambda) && time < static_time(s, E));
        }
    }
    // The bounds are reached exactly again and again: they could not be much greater.
    assert!(tight > 50, "{tight}");
}

/// The limit holds from wherever in a phase the first balancing point is; so does Eq. 14.
#[test]
fn the_limit_holds_for_phases_that_begin_within_a_period() {
    for (n, m) in uneven(9) {
        for p in PARTS {
            for at in [(1, 5), (1, 2), (9, 10)] {
                let (s, lambda) = (shape(n, m), part(p));
                let time = ideal_time(n, m, whole(lambda) * r(at.0, at.1), whole(lambda));
                let words = format!("n={n} m={m} lambda={lambda} first at {at:?}: {time:?}");
                assert!(time >= continuous_time(s, E), "{words}");
                if ExactTime::from(lambda) < static_time(s, E) {
                    assert!(time <= proactive_limit(s, E, lambda), "{words}");
                }
            }
        }
    }
}

#[test]
fn equation_14_is_reached_as_the_period_becomes_short() {
    for (n, m) in [(3, 2), (5, 2), (5, 3), (8, 7), (9, 8), (7, 3), (10, 4)] {
        let s = shape(n, m);
        let at = |parts: u64| {
            let lambda = r(E.0, parts);
            ideal_time(n, m, lambda, lambda).over(&continuous_time(s, E)) - 1.0
        };
        let (coarse, fine) = (at(100), at(1_000));
        assert!(fine < 0.002 && coarse < 0.02, "n={n} m={m}: {coarse} {fine}");
    }
}

/// Sections 4.1, 4.3 and 6, and Table 1.
#[test]
fn numbers_of_the_paper() {
    let second = Nanos(1_000_000_000);
    let rounded = |x: f64, digits: usize| format!("{x:.digits$}");
    assert_eq!(rounded(continuous_time(shape(8, 7), second).seconds(), 3), "1.143");
    // Two NUMA domains: 4 threads on 4 CPUs and 4 on 3.
    let domains = [shape(4, 4), shape(4, 3)];
    assert_eq!(rounded(domains_time(&domains, second).seconds(), 3), "1.333");
    for (n, m, ub) in [(16, 12, "1.50"), (13, 12, "1.85"), (25, 24, "1.92"), (8, 7, "1.75")] {
        assert_eq!(rounded(upper_bound(n, m), 2), ub);
        let s = shape(n as usize, m as usize);
        let short = speedup_bound(s, Nanos::from_millis(30_000), Nanos::from_millis(100));
        assert_eq!(rounded(short, 2), ub);
    }
    // Table 1: e is 68 s with 8 threads, half with 16, a quarter with 32.
    for (n, e, time) in [(8, 68, 136.0), (16, 34, 102.0), (32, 17, 85.0)] {
        assert_eq!(static_time(shape(n, 7), Nanos(e * 1_000_000_000)).seconds(), time);
    }
    // Reactive: 16 on 12 is 1.5 e, not what proactive balancing reaches; 12 on 8 is the same.
    assert_eq!(reactive_time(shape(16, 12), second).unwrap().seconds(), 1.5);
    let both = reactive_time(shape(12, 8), second).unwrap();
    assert_eq!(both, continuous_time(shape(12, 8), second));
    // Figure 1: three threads on two CPUs, a period of 1 s: equal after each third period.
    let mut figure = Ideal::new(3, 2);
    let tick = r(E.0 / 100, 1);
    for k in 1..=30_u64 {
        assert!(figure.advance(Some(tick * r(k, 1))));
        figure.balance();
        let equal = figure.progress.iter().all(|p| *p == figure.progress[0]);
        assert_eq!(equal, k % 3 == 0, "period {k}");
        if equal {
            assert_eq!(figure.progress[0], tick * r(2 * k, 3));
        }
    }
}

/// Reactive balancing, run: redistribute whenever a thread ends.
fn reactive(n: usize, m: usize) -> ExactTime {
    let mut ideal = Ideal::new(n, m);
    while ideal.advance(None) {
        ideal.balance();
    }
    exact(ideal.now)
}

#[test]
fn equation_21_is_reactive_balancing() {
    for m in 2..=64_usize {
        for n in m + 1..2 * m {
            let s = shape(n, m);
            let time = reactive_time(s, E).unwrap();
            assert_eq!(time, reactive(n, m), "n={n} m={m}");
            assert_eq!(time, reactive_time_anywhere(s, E), "n={n} m={m}");
            let printed = (2.0 - n as f64 / m as f64).log2().floor().exp2();
            assert!((time.over(&ExactTime::from(E)) - (2.0 - printed)).abs() < 1e-9);
            assert!(time >= continuous_time(s, E) && time <= static_time(s, E));
        }
    }
}

/// Eq. 19 and 20: after each call of the balancer.
#[test]
fn equations_19_and_20_round_by_round() {
    for m in 2..=20_usize {
        for n in m + 1..2 * m {
            let s = shape(n, m);
            let last = reactive_rounds(s).unwrap();
            let mut ideal = Ideal::new(n, m);
            for k in 0..=last {
                let alive = ideal.behind().len() as u64;
                let fast = reactive_fast_threads(s, k).unwrap();
                // Above m threads those that share no CPU are fast; else all are.
                let counted = if alive > m as u64 { 2 * m as u64 - alive } else { m as u64 };
                assert!(fast >= counted, "n={n} m={m} k={k}");
                assert!(alive <= m as u64 || fast == counted, "n={n} m={m} k={k}");
                ideal.advance(None);
                ideal.balance();
                assert_eq!(exact(ideal.now), reactive_after(k, E), "n={n} m={m} k={k}");
            }
            assert!(ideal.behind().is_empty());
        }
    }
}

#[test]
fn reactive_balancing_outside_the_papers_range() {
    for n in 1..=40 {
        for m in 1..=20 {
            let s = shape(n, m);
            assert_eq!(reactive_time_anywhere(s, E), reactive(n, m), "n={n} m={m}");
            let within = n > m && n < 2 * m;
            assert_eq!(reactive_time(s, E).is_ok(), within, "n={n} m={m}");
            if !within {
                assert_eq!(reactive_time(s, E), Err(OutOfRange::NotBetweenOneAndTwo));
                assert!(reactive_fast_threads(s, 0).is_err() && reactive_rounds(s).is_err());
            }
        }
    }
    assert_eq!(reactive_fast_threads(shape(3, 2), 200), Ok(u64::MAX));
}

#[test]
fn a_single_balance_by_its_definition() {
    // e = 1: after half of the work, slow and fast take the mean.
    let s = shape(8, 7);
    let at = |num, den| single_balance_time(s, E, num, den).unwrap();
    assert_eq!(at(1, 2), ExactTime::from(E).times(3, 2));
    assert_eq!(at(0, 1), static_time(s, E));
    assert_eq!(at(1, 1), static_time(s, E));
    for (n, m) in uneven(12) {
        let s = shape(n, m);
        let k = 1_000;
        let mean = (1..k)
            .map(|q| single_balance_time(s, E, q, k).unwrap())
            .fold(ExactTime::zero(), |a, b| a + b)
            .times(1, k - 1);
        match expected_single_balance(s, E).unwrap() {
            SingleBalance::Helps(t) => {
                assert!(s.fast_slots() >= s.slow_slots());
                assert!((mean.over(&t) - 1.0).abs() < 1e-3, "n={n} m={m}");
            }
            SingleBalance::TooFewFastSlots(t) => {
                assert!(s.fast_slots() < s.slow_slots());
                assert_eq!(t, static_time(s, E), "n={n} m={m}");
            }
        }
        // The halves mirror each other.
        let at = |q| single_balance_time(s, E, q, k).unwrap();
        assert!((1..k).all(|q| at(q) == at(k - q)));
    }
}

/// The mean of the ideal algorithm over all places of a single balancing point.
fn mean_over_places(n: usize, m: usize, places: u64) -> f64 {
    let s = shape(n, m);
    let length = r(E.0 * u64::from(s.ceil()), 1);
    let never = r(E.0 * 1_000, 1);
    let sum: f64 = (0..places)
        .map(|i| ideal_time(n, m, length * r(2 * i + 1, 2 * places), never))
        .map(|t| t.over(&ExactTime::from(E)))
        .sum();
    sum / places as f64
}

/// What the approximation leaves out, as its documentation says.
#[test]
fn the_expected_single_balance_is_on_the_safe_side() {
    for (n, m) in uneven(12) {
        let s = shape(n, m);
        let expected = expected_single_balance(s, E).unwrap();
        let paper = expected.time().over(&ExactTime::from(E));
        let real = mean_over_places(n, m, 40);
        assert!(real <= paper + 1e-3, "n={n} m={m}: {real} {paper}");
        assert!(real >= 0.85 * paper, "n={n} m={m}: {real} {paper}");
        if s.floor() == 1 && s.slow_slots() <= s.fast_slots() {
            assert!((real - 5.0 / 3.0).abs() < 1e-3, "n={n} m={m}: {real}");
        }
    }
    // Eq. 18 is exact where the slow threads crowd all CPUs even at the end.
    assert_eq!(mean_over_places(5, 3, 40), 2.0);
    // Not where they find a CPU each once the fast ones have ended: four of seven, on five CPUs.
    assert!(mean_over_places(7, 5, 40) < 1.9);
}

/// Many phases, each beginning with an even distribution; balancing goes on regardless of phases.
/// The first balancing point of a phase is at a whole nanosecond of it, which no bound depends on.
fn sequence(n: usize, m: usize, phases: u64, lambda: Nanos) -> ExactTime {
    let (mut total, mut first) = (ExactTime::zero(), whole(lambda));
    for _ in 0..phases {
        let time = Ideal::new(n, m).run(first, whole(lambda));
        while first <= time {
            first += whole(lambda);
        }
        first = (first - time).ceil();
        total = total + exact(time);
    }
    total
}

#[test]
fn equations_15_to_18_over_many_phases() {
    let phases = 40;
    let mut worst: f64 = 0.0;
    for (n, m) in uneven(10) {
        let s = shape(n, m);
        for p in [(1, 37), (3, 19), (23, 17), (41, 19), (79, 23), (137, 31), (997, 41)] {
            let lambda = part(p);
            let real = sequence(n, m, phases, lambda);
            assert!(real >= phases_bound(s, phases, E), "Eq. 15, n={n} m={m} {p:?}");
            assert!(real <= unbalanced_time(s, phases, E), "Eq. 18, n={n} m={m} {p:?}");
            let rarely = rarely_balanced_time(s, phases, E, lambda);
            match phases_time(s, phases, E, lambda) {
                Ok(often) => {
                    assert_eq!(rarely, Err(OutOfRange::ShortPeriod));
                    let limit = proactive_limit(s, E, lambda).times(phases, 1);
                    assert!(real <= limit, "n={n} m={m} {p:?}");
                    if p.0 * 30 <= p.1 {
                        let off = (real.over(&often) - 1.0).abs();
                        assert!(off < 0.05, "Eq. 16, n={n} m={m} {p:?}: {off}");
                    }
                }
                Err(why) => {
                    assert_eq!(why, OutOfRange::LongPeriod);
                    let off = (real.over(&rarely.unwrap()) - 1.0).abs();
                    worst = worst.max(off);
                    assert!(off < 0.12, "Eq. 17 or 18, n={n} m={m} {p:?}: {off}");
                }
            }
        }
    }
    println!("Eq. 17 and 18 are off by at most {worst}");
}

#[test]
fn phases_that_can_have_a_balancing_point() {
    let s = shape(8, 7);
    // 10 phases of 2 e are 20 e long.
    let eta = |num, den| balanced_phases(s, 10, E, part((num, den)));
    assert_eq!(eta(3, 1), 6);
    // At 5, 10 and 15 e; that at 20 e is the end.
    assert_eq!(eta(5, 1), 3);
    assert_eq!((eta(20, 1), eta(21, 1), eta(1, 10)), (0, 0, 10));
    assert_eq!(balanced_phases(s, 10, E, Nanos::ZERO), 10);
    let time = rarely_balanced_time(s, 10, E, part((3, 1))).unwrap();
    assert_eq!(time, ExactTime::from(E).times(4 * 8 + 6 * 7, 4));
    // n_fast < n_slow.
    let time = rarely_balanced_time(shape(13, 7), 10, E, part((3, 1))).unwrap();
    assert_eq!(time, ExactTime::from(E).times(20, 1));
}

#[test]
fn what_is_out_of_range_says_so() {
    for (n, m) in [(4, 2), (2, 2), (1, 3), (9, 3)] {
        let s = shape(n, m);
        let l = Nanos(E.0 / 10);
        assert_eq!(lag(s, l), Err(OutOfRange::EqualSlots));
        assert_eq!(lag_bound(s, E, l), Err(OutOfRange::EqualSlots));
        assert_eq!(phases_time(s, 3, E, l), Err(OutOfRange::EqualSlots));
        assert_eq!(rarely_balanced_time(s, 3, E, l), Err(OutOfRange::EqualSlots));
        assert_eq!(single_balance_time(s, E, 1, 2), Err(OutOfRange::EqualSlots));
        assert_eq!(expected_single_balance(s, E), Err(OutOfRange::EqualSlots));
        assert_eq!(lower_bound(s, E, l), static_time(s, E));
        assert_eq!(proactive_limit(s, E, l), static_time(s, E));
        assert_eq!(speedup_bound(s, E, l), 1.0);
    }
}

/// Progress by the work that a CPU of unequal speed does: the sum of speeds takes the place of m.
#[test]
fn unequal_speeds_reach_the_sum_of_speeds() {
    for (text, n) in [
        ("1,0.5", 3),
        ("1,0.5", 2),
        ("2x1,2x0.5", 4),
        ("2x1,2x0.5", 7),
        ("1,1,0.25", 5),
        ("2,1,1", 4),
        ("1,0.9,0.8,0.1", 9),
    ] {
        let speeds: Speeds = text.parse().unwrap();
        let list: Vec<R> = speeds.iter().map(|s| r((s * 20.0).round() as u64, 20)).collect();
        let bound = speeds.continuous_time(n, E);
        let mut last = f64::INFINITY;
        for parts in [20, 200] {
            let lambda = r(E.0, parts);
            let time = exact(Ideal::with(n as usize, list.clone()).run(lambda, lambda));
            assert!(time >= bound, "{text} n={n}");
            last = time.over(&bound) - 1.0;
        }
        assert!(last < 0.02, "{text} n={n}: {last}");
        // Without balancing.
        let never = r(E.0 * 1_000, 1);
        let fixed = exact(Ideal::with(n as usize, list).run(never, never));
        assert_eq!(fixed, speeds.static_time(n, E), "{text} n={n}");
    }
}

//! How soon parts of CPUs, and times of iterations, follow work that turns round: MetBenchVar, by what its
//! ranks saw themselves.
//!
//! Ranks note, as each iteration begins, the weight that the kernel has for them and the CPU that they are
//! on. So nothing here depends on what a balancer says of itself.
//!
//! - *Parts are in order* when no CPU has two more of the ranks with most work than another, and each of
//!   them has more weight than any rank with less work beside it.
//! - After a reversal *parts have turned* after n iterations where the n-th after it (from 0 on) and the next
//!   one begin in the new order, and n is the least such number: n iterations were begun with wrong parts.
//! - *Times are back* after n iterations where the n-th and the next one take no longer than the settled level
//!   and 10 % of it. That level is the median of the second half until work turns round again.
//! - Where single iterations differ by more than 10 % for other reasons, that is by chance. So the same is said
//!   of the *profile*, the median over all reversals of each iteration after them in units of its settled
//!   level, where one is enough. What all iterations until the next reversal take beyond the settled level, in
//!   such units, is what a reversal *costs*.
//!
//! Pure: from what was seen to numbers of iterations.

use evenly_model::stats::median;
use serde::Serialize;
use std::collections::BTreeMap;

/// Times are back within this part of the settled level.
const BACK: f64 = 0.1;
/// With fewer iterations between two reversals nothing can settle.
const LEAST: usize = 4;

/// What a run printed of its iterations.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Seen {
    /// What each iteration took, in seconds.
    pub(crate) took_s: Vec<f64>,
    /// Of each rank the weight with which it began each iteration,
    pub(crate) weights: Vec<Vec<f64>>,
    /// and the CPU on which.
    pub(crate) cpus: Vec<Vec<f64>>,
}

impl Seen {
    /// From what metbench prints with `--parts`.
    pub(crate) fn in_output(text: &str) -> Option<Self> {
        let object: serde_json::Value = serde_json::from_str(text.trim()).ok()?;
        let list = |v: &serde_json::Value| -> Option<Vec<f64>> {
            v.as_array()?.iter().map(serde_json::Value::as_f64).collect()
        };
        let lists = |name: &str| -> Option<Vec<Vec<f64>>> {
            object.get(name)?.as_array()?.iter().map(list).collect()
        };
        let took_s = list(object.get("iteration_s")?)?;
        let (weights, cpus) = (lists("weights")?, lists("cpus")?);
        let whole = |all: &[Vec<f64>]| all.iter().all(|of| of.len() == took_s.len());
        let fits = weights.len() == cpus.len() && whole(&weights) && whole(&cpus);
        fits.then_some(Self { took_s, weights, cpus })
    }

    /// Whether ranks ever had different weights.
    fn weighed(&self) -> bool {
        let first = self.weights.first().and_then(|of| of.first());
        self.weights.iter().flatten().any(|w| Some(w) != first)
    }

    /// Whether parts are in order for these loads as an iteration begins.
    fn in_order(&self, loads: &[f64], iteration: usize) -> bool {
        let most = loads.iter().copied().fold(0.0, f64::max);
        // Of each CPU: how many ranks with most work, the least weight of these, the greatest of others.
        let mut cpus: BTreeMap<u64, (usize, f64, f64)> = BTreeMap::new();
        for ((load, weights), on) in loads.iter().zip(&self.weights).zip(&self.cpus) {
            let (Some(weight), Some(cpu)) = (weights.get(iteration), on.get(iteration)) else {
                return false;
            };
            let (heavy, least, greatest) =
                cpus.entry(cpu.to_bits()).or_insert((0, f64::INFINITY, 0.0));
            if *load >= most {
                *heavy += 1;
                *least = least.min(*weight);
            } else {
                *greatest = greatest.max(*weight);
            }
        }
        let counts = || cpus.values().map(|(heavy, _, _)| *heavy);
        let level = counts().max().unwrap_or(0) <= counts().min().unwrap_or(0) + 1;
        level && cpus.values().all(|(_, least, greatest)| least > greatest)
    }
}

/// What followed one reversal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Reversal {
    /// The first iteration with other loads, from 0 on.
    pub(crate) iteration: usize,
    /// After how many iterations parts had turned; none where they did not until the next reversal, or no
    /// parts were given.
    pub(crate) parts_after: Option<usize>,
    /// How many of the later iterations began in another order all the same.
    pub(crate) lost_later: usize,
    /// After how many iterations times were back; none where they were not.
    pub(crate) times_after: Option<usize>,
    /// The settled level, in seconds.
    pub(crate) settled_s: f64,
    /// What the iterations until the next reversal took.
    pub(crate) took_s: Vec<f64>,
}

impl Reversal {
    /// By how many settled iterations all were longer than that.
    fn cost(&self) -> f64 {
        self.took_s.iter().map(|t| t / self.settled_s - 1.0).sum()
    }
}

/// All reversals of a run in which loads turn round after every `every` iterations; `loads` are those of each
/// rank in the beginning.
pub(crate) fn reversals(seen: &Seen, loads: &[f64], every: usize) -> Vec<Reversal> {
    if every < LEAST || loads.len() != seen.weights.len() {
        return Vec::new();
    }
    let back: Vec<f64> = loads.iter().rev().copied().collect();
    let weighed = seen.weighed();
    let blocks = seen.took_s.chunks(every).enumerate().skip(1);
    let of = |(block, took): (usize, &[f64])| {
        let iteration = block * every;
        let loads = if block % 2 == 0 { loads } else { &back };
        let order: Vec<bool> =
            (0..took.len()).map(|i| seen.in_order(loads, iteration + i)).collect();
        let settled_s = median(took.get(took.len() / 2..)?)?;
        let quick: Vec<bool> = took.iter().map(|t| *t <= settled_s * (1.0 + BACK)).collect();
        let parts_after = lasting(&order).filter(|_| weighed);
        let later = parts_after.and_then(|n| order.get(n..)).unwrap_or_default();
        Some(Reversal {
            iteration,
            parts_after,
            lost_later: later.iter().filter(|good| !**good).count(),
            times_after: lasting(&quick),
            settled_s,
            took_s: took.to_vec(),
        })
    };
    // What is left at the end may be too short for anything to settle.
    blocks.filter(|(_, took)| took.len() >= LEAST).filter_map(of).collect()
}

/// The first that is good and not alone in it.
fn lasting(good: &[bool]) -> Option<usize> {
    good.windows(2).position(|two| two == [true, true])
}

/// What followed the reversals of all runs of an arm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Turning {
    /// How many there were.
    pub(crate) reversals: usize,
    /// After how many iterations parts had turned, in the median and at most, of those reversals after which
    /// they had.
    pub(crate) parts_median: Option<f64>,
    pub(crate) parts_most: Option<usize>,
    /// Reversals after which they had not until the next one.
    pub(crate) parts_never: usize,
    /// Iterations that began in another order after parts had turned.
    pub(crate) parts_lost_later: usize,
    /// After how many iterations times were back, in the median and at most, and how often they were not.
    pub(crate) times_median: Option<f64>,
    pub(crate) times_most: Option<usize>,
    pub(crate) times_never: usize,
    /// The settled level of an iteration, in the median, in seconds.
    pub(crate) settled_s: Option<f64>,
    /// The median of each iteration after a reversal, in settled ones, and the first that is back.
    pub(crate) profile: Vec<f64>,
    pub(crate) profile_after: Option<usize>,
    /// By how many settled iterations a reversal makes the program longer, in the median.
    pub(crate) cost_iterations: Option<f64>,
    /// Each of them, by runs.
    pub(crate) each: Vec<Vec<Reversal>>,
}

impl Turning {
    /// Of these runs; none where there was no reversal.
    pub(crate) fn of(runs: Vec<Vec<Reversal>>) -> Option<Self> {
        let all: Vec<&Reversal> = runs.iter().flatten().collect();
        let numbers = |of: &dyn Fn(&Reversal) -> Option<usize>| {
            let known: Vec<usize> = all.iter().filter_map(|r| of(r)).collect();
            let values: Vec<f64> = known.iter().map(|n| *n as f64).collect();
            (median(&values), known.iter().max().copied(), all.len() - known.len())
        };
        let (parts_median, parts_most, parts_never) = numbers(&|r| r.parts_after);
        let (times_median, times_most, times_never) = numbers(&|r| r.times_after);
        let settled: Vec<f64> = all.iter().map(|r| r.settled_s).collect();
        let costs: Vec<f64> = all.iter().map(|r| r.cost()).collect();
        let longest = all.iter().map(|r| r.took_s.len()).max()?;
        let nth = |n: usize| {
            let of = all.iter().filter_map(|r| Some(r.took_s.get(n)? / r.settled_s));
            median(&of.collect::<Vec<f64>>())
        };
        let profile: Vec<f64> = (0..longest).filter_map(nth).collect();
        Some(Self {
            reversals: all.len(),
            parts_median,
            parts_most,
            parts_never,
            parts_lost_later: all.iter().map(|r| r.lost_later).sum(),
            times_median,
            times_most,
            times_never,
            settled_s: median(&settled),
            profile_after: profile.iter().position(|part| *part <= 1.0 + BACK),
            profile,
            cost_iterations: median(&costs),
            each: runs,
        })
    }

    /// In words: parts, and times.
    pub(crate) fn words(&self) -> [String; 2] {
        let words = |median: Option<f64>, most: Option<usize>, never: usize| {
            let mut text = match (median, most) {
                (Some(median), Some(most)) => format!("{median} (at most {most})"),
                _ => return String::from("never"),
            };
            if never > 0 {
                text.push_str(&format!(", not in {never} of {}", self.reversals));
            }
            text
        };
        [
            words(self.parts_median, self.parts_most, self.parts_never),
            words(self.times_median, self.times_most, self.times_never),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADS: [f64; 4] = [1.0, 4.0, 1.0, 4.0];

    /// Four ranks, two on each CPU, of which one with either load; `high` says of each iteration whether ranks
    /// 1 and 3 have more weight.
    fn seen(took_s: &[f64], high: &[bool]) -> Seen {
        let weight = |rank: usize| {
            let of = |up: &bool| if *up == (rank % 2 == 1) { 1.6 } else { 0.4 };
            high.iter().map(of).collect()
        };
        Seen {
            took_s: took_s.to_vec(),
            weights: (0..4).map(weight).collect(),
            cpus: (0..4).map(|rank| vec![f64::from(rank / 2); high.len()]).collect(),
        }
    }

    fn with(mut seen: Seen, change: impl Fn(&mut Seen)) -> Seen {
        change(&mut seen);
        seen
    }

    #[test]
    fn parts_that_turn_after_two_iterations() {
        // Loads turn round at 5 and at 10. Three iterations are slow after the first, none after the second.
        let took: Vec<f64> =
            [1.0; 5].into_iter().chain([2.0, 1.8, 1.3, 1.0, 1.0]).chain([1.05; 5]).collect();
        let high: Vec<bool> = [true; 7].into_iter().chain([false; 4]).chain([true; 4]).collect();
        let all = reversals(&seen(&took, &high), &LOADS, 5);
        let [first, second] = &all[..] else { panic!("{all:?}") };
        assert_eq!((first.iteration, first.parts_after, first.times_after), (5, Some(2), Some(3)));
        assert_eq!(
            (second.iteration, second.parts_after, second.times_after),
            (10, Some(1), Some(0))
        );
        assert_eq!((first.settled_s, second.settled_s), (1.0, 1.05));
        assert_eq!((first.lost_later, second.lost_later), (0, 0));
        // The first costs 1 + 0.8 + 0.3 of its settled iterations, the second none.
        assert!((first.cost() - 2.1).abs() < 1e-9 && second.cost().abs() < 1e-9);
        let turning = Turning::of(vec![all.clone(), all.clone()]).unwrap();
        let profile = [1.5, 1.4, 1.15, 1.0, 1.0];
        let near = turning.profile.iter().zip(profile).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(near && turning.profile.len() == 5, "{:?}", turning.profile);
        assert_eq!(turning.profile_after, Some(3));
        assert!(turning.cost_iterations.is_some_and(|cost| (cost - 1.05).abs() < 1e-9));
        assert_eq!(
            (turning.reversals, turning.parts_median, turning.parts_most),
            (4, Some(1.5), Some(2))
        );
        assert_eq!((turning.times_median, turning.times_most), (Some(1.5), Some(3)));
        assert_eq!(turning.words(), ["1.5 (at most 2)", "1.5 (at most 3)"]);
    }

    #[test]
    fn one_good_iteration_between_bad_ones_is_not_enough() {
        let high = [true, true, true, true, true, false, true, false, false, true];
        let took = [1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 3.0, 1.0, 1.0];
        let [only] = &reversals(&seen(&took, &high), &LOADS, 5)[..] else { panic!() };
        assert_eq!((only.parts_after, only.lost_later, only.times_after), (Some(2), 1, Some(3)));
    }

    #[test]
    fn parts_that_never_turn() {
        let [only] = &reversals(&seen(&[1.0; 10], &[true; 10]), &LOADS, 5)[..] else { panic!() };
        assert_eq!((only.parts_after, only.times_after), (None, Some(0)));
        let turning = Turning::of(vec![vec![only.clone()]]).unwrap();
        assert_eq!((turning.parts_never, turning.parts_most), (1, None));
        assert_eq!(turning.words(), ["never", "0 (at most 0)"]);
        let mut two = turning.each[0].clone();
        two.push(Reversal { parts_after: Some(1), ..only.clone() });
        let turning = Turning::of(vec![two]).unwrap();
        assert_eq!(turning.words()[0], "1 (at most 1), not in 1 of 2");
    }

    #[test]
    fn without_parts_or_reversals_nothing_turns() {
        let even = with(seen(&[1.0; 10], &[true; 10]), |s| {
            s.weights.iter_mut().flatten().for_each(|w| *w = 1.0);
        });
        let [only] = &reversals(&even, &LOADS, 5)[..] else { panic!() };
        assert_eq!(only.parts_after, None);
        assert_eq!(Turning::of(vec![Vec::new(), Vec::new()]), None);
        let whole = seen(&[1.0; 10], &[true; 10]);
        assert_eq!(reversals(&whole, &LOADS, 0), []);
        assert_eq!(reversals(&whole, &LOADS, 10), []);
        assert_eq!(reversals(&whole, &LOADS[..2], 5), [], "other ranks");
        // What is left at the end is too short.
        assert_eq!(reversals(&whole, &LOADS, 8), []);
    }

    #[test]
    fn places_are_part_of_the_order() {
        let at = |cpus: [f64; 4]| {
            let s = with(seen(&[1.0; 2], &[true; 2]), |s| {
                s.cpus = cpus.iter().map(|cpu| vec![*cpu; 2]).collect();
            });
            s.in_order(&LOADS, 0)
        };
        assert!(at([0.0, 0.0, 1.0, 1.0]) && at([0.0, 1.0, 1.0, 0.0]));
        assert!(!at([0.0, 1.0, 0.0, 1.0]), "both heavy ranks on one CPU");
        assert!(at([0.0; 4]), "on one CPU weights alone decide");
        // Even weights are in no order.
        let even = with(seen(&[1.0; 2], &[true; 2]), |s| s.weights[1] = vec![0.4; 2]);
        assert!(!even.in_order(&LOADS, 0));
        assert!(!even.in_order(&LOADS, 9), "there is no such iteration");
    }

    #[test]
    fn what_metbench_prints() {
        let text = "{\"workload\":\"metbench\",\"iteration_s\":[0.5,0.25],\"weights\":[[1,0.64],[1,1.5625]],\
                    \"cpus\":[[0,0],[1,0]]}\n";
        let seen = Seen::in_output(text).unwrap();
        assert_eq!(seen.took_s, [0.5, 0.25]);
        assert_eq!(seen.weights, [[1.0, 0.64], [1.0, 1.5625]]);
        assert_eq!(seen.cpus, [[0.0, 0.0], [1.0, 0.0]]);
        assert!(seen.weighed());
        assert_eq!(Seen::in_output(&text.replace("[1,0.64]", "[1]")), None);
        assert_eq!(Seen::in_output(&text.replace("\"cpus\"", "\"other\"")), None);
        assert_eq!(Seen::in_output("nothing"), None);
    }
}

//! CPUs of unequal speed. The paper assumes equal ones and names this as what is missing (section
//! 6); here the number of CPUs becomes the sum of their speeds.
//!
//! Invariant: there is at least one CPU, each speed is above zero, the fastest stands first.

use crate::exact::ratio;
use crate::{ExactTime, Shape};
use evenly_model::Nanos;
use num_bigint::BigInt;
use num_rational::BigRational;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::str::FromStr;

/// Speeds of the CPUs. Speed 1 is that of a CPU on which a phase takes e of its time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Speeds {
    /// The speeds in millionths, fastest first.
    millionths: Vec<u64>,
}

/// Why a list of speeds is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpeedsError {
    /// Not a number, or not above zero, or absurd.
    #[error(
        "speed '{0}' must be a number from 0.000001 to 1000000, several equal ones as in 4x0.5"
    )]
    Speed(String),
    /// A count that is none.
    #[error("'{0}' must be COUNTxSPEED with a count of at least 1, for example 4x0.5")]
    Count(String),
    /// There are more speeds than can be.
    #[error("there are more than {} speeds", Speeds::MOST)]
    TooMany,
}

impl Speeds {
    /// The greatest number of CPUs.
    pub const MOST: usize = 1 << 20;

    /// How many CPUs have a speed.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        // At most MOST.
        self.millionths.len() as u32
    }

    /// The speeds, the fastest first.
    pub fn iter(&self) -> impl Iterator<Item = f64> {
        self.millionths.iter().map(|&s| s as f64 / 1e6)
    }

    /// Whether all are 1: a machine as the paper has it.
    #[must_use]
    pub fn unit(&self) -> bool {
        self.millionths.iter().all(|&s| s == 1_000_000)
    }

    /// Sum of the `k` fastest.
    #[must_use]
    pub fn total(&self, k: usize) -> f64 {
        self.sum(k) as f64 / 1e6
    }

    fn sum(&self, k: usize) -> u128 {
        self.millionths.iter().take(k).map(|&s| u128::from(s)).sum()
    }

    /// n threads on these CPUs; none where n is 0.
    #[must_use]
    pub fn shape(&self, n: u32) -> Option<Shape> {
        Shape::new(n, self.cpus()).ok()
    }

    /// `count / speed` phases of length e.
    fn time(count: u64, millionths: u64, e: Nanos) -> ExactTime {
        ExactTime::from(e).by(&per_speed(count, millionths))
    }

    /// Eq. 14 for unequal speeds: e n / S with S the sum of the speeds, under which all threads
    /// progress at the same rate S/n. With fewer threads than CPUs, S is the sum of the n fastest:
    /// a thread runs on one CPU at a time.
    #[must_use]
    pub fn continuous_time(&self, n: u32, e: Nanos) -> ExactTime {
        let used = n.min(self.cpus()) as usize;
        ExactTime::from(e).by(&ratio(BigInt::from(n) * 1_000_000, self.sum(used).max(1)))
    }

    /// Eq. 1 for unequal speeds: as many threads on each CPU, within one, the larger numbers on the
    /// faster CPUs. A distribution that is blind to speed can only be slower.
    #[must_use]
    pub fn static_time(&self, n: u32, e: Nanos) -> ExactTime {
        let (floor, more) = (n / self.cpus(), (n % self.cpus()) as usize);
        let slowest = |upto: usize| self.millionths.get(upto.wrapping_sub(1)).copied();
        let of = |count: u32, speed: Option<u64>| match speed {
            Some(s) => Self::time(u64::from(count), s, e),
            None => ExactTime::zero(),
        };
        let crowded = of(floor + 1, slowest(more));
        of(floor, slowest(self.millionths.len())).max(crowded)
    }

    /// The best that any fixed distribution can do, with as many threads on a CPU as its speed
    /// deserves: the least T such that the CPUs can finish n threads in it.
    #[must_use]
    pub fn best_static_time(&self, n: u32, e: Nanos) -> ExactTime {
        let total = self.sum(self.millionths.len()).max(1);
        // Under n/S no T is possible, and what fits in n/S belongs to every solution. Fewer than m
        // threads are left, and each goes where it ends first.
        let mut filled: Vec<Filled> = self
            .millionths
            .iter()
            .map(|&speed| Filled {
                count: (u128::from(n) * u128::from(speed) / total) as u64,
                speed,
            })
            .collect();
        let placed: u64 = filled.iter().map(|f| f.count).sum();
        let mut next: BinaryHeap<_> =
            filled.iter().enumerate().map(|(cpu, f)| Reverse((f.one_more(), cpu))).collect();
        for _ in placed..u64::from(n) {
            if let Some(Reverse((taken, cpu))) = next.pop() {
                filled[cpu] = taken;
                next.push(Reverse((taken.one_more(), cpu)));
            }
        }
        let last = filled.into_iter().max();
        last.map_or_else(ExactTime::zero, |f| Self::time(f.count, f.speed, e))
    }

    /// UB of section 4 for unequal speeds: the even distribution over the bound.
    #[must_use]
    pub fn upper_bound(&self, n: u32) -> f64 {
        let e = Nanos(1);
        if n == 0 { 1.0 } else { self.static_time(n, e).over(&self.continuous_time(n, e)) }
    }
}

/// A CPU with so many threads; the greater, the later it ends.
#[derive(Debug, Clone, Copy)]
struct Filled {
    count: u64,
    speed: u64,
}

impl Filled {
    fn one_more(self) -> Self {
        Self { count: self.count + 1, ..self }
    }
}

impl Ord for Filled {
    fn cmp(&self, other: &Self) -> Ordering {
        let ends = |a: &Self, b: &Self| u128::from(a.count) * u128::from(b.speed);
        ends(self, other).cmp(&ends(other, self))
    }
}

impl PartialOrd for Filled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Filled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Filled {}

fn per_speed(count: u64, millionths: u64) -> BigRational {
    ratio(BigInt::from(count) * 1_000_000, millionths.max(1))
}

impl FromStr for Speeds {
    type Err = SpeedsError;

    /// From `1,1,0.5` or, the same, `2x1,0.5`.
    fn from_str(text: &str) -> Result<Self, SpeedsError> {
        let mut millionths: Vec<u64> = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (count, speed) = match part.split_once('x') {
                Some((count, speed)) => match count.parse::<usize>() {
                    Ok(count) if count > 0 => (count, speed),
                    _ => return Err(SpeedsError::Count(part.to_owned())),
                },
                None => (1, part),
            };
            let one = match speed.parse::<f64>() {
                Ok(s) if (1e-6..=1e6).contains(&s) => (s * 1e6).round() as u64,
                _ => return Err(SpeedsError::Speed(speed.to_owned())),
            };
            if count > Self::MOST - millionths.len() {
                return Err(SpeedsError::TooMany);
            }
            millionths.extend(std::iter::repeat_n(one, count));
        }
        millionths.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Self { millionths })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const E: Nanos = Nanos(1_000_000_000);

    fn speeds(text: &str) -> Speeds {
        text.parse().unwrap()
    }

    #[test]
    fn equal_speeds_are_the_papers_equations() {
        for m in 1..12 {
            let all = speeds(&format!("{m}x1"));
            assert!(all.unit());
            for n in 1..40 {
                let s = all.shape(n).unwrap();
                assert_eq!(all.continuous_time(n, E), crate::continuous_time(s, E));
                assert_eq!(all.static_time(n, E), crate::static_time(s, E));
                assert_eq!(all.best_static_time(n, E), crate::static_time(s, E));
                assert!((all.upper_bound(n) - crate::upper_bound(n, m)).abs() < 1e-12);
            }
        }
    }

    /// Every distribution of the threads, tried.
    fn brute_force(n: u32, s: &[u64]) -> (BigRational, BigRational) {
        fn go(left: u32, s: &[u64], counts: &mut Vec<u32>, seen: &mut impl FnMut(&[u32])) {
            if counts.len() + 1 == s.len() {
                counts.push(left);
                seen(counts);
                counts.pop();
                return;
            }
            for k in 0..=left {
                counts.push(k);
                go(left - k, s, counts, seen);
                counts.pop();
            }
        }
        let (mut best, mut even) = (None::<BigRational>, None::<BigRational>);
        go(n, s, &mut Vec::new(), &mut |counts| {
            let ends = counts.iter().zip(s).map(|(&k, &s)| per_speed(u64::from(k), s));
            let end = ends.max().unwrap();
            let least = |b: &Option<BigRational>| b.as_ref().is_none_or(|b| end < *b);
            if least(&best) {
                best = Some(end.clone());
            }
            let (lo, hi) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            if hi - lo <= 1 && least(&even) {
                even = Some(end.clone());
            }
        });
        (best.unwrap(), even.unwrap())
    }

    #[test]
    fn static_distributions_against_all_there_are() {
        for text in ["1,0.5", "1,1,0.25", "2,1,1", "3,1", "1,0.9,0.8,0.1", "0.5,0.5,0.5"] {
            let s = speeds(text);
            for n in 1..10 {
                let (best, even) = brute_force(n, &s.millionths);
                let e = ExactTime::from(E);
                assert_eq!(s.best_static_time(n, E), e.by(&best), "{text} n={n}");
                assert_eq!(s.static_time(n, E), e.by(&even), "{text} n={n}");
                assert!(s.continuous_time(n, E) <= e.by(&best), "{text} n={n}");
            }
        }
    }

    #[test]
    fn lists_of_speeds() {
        assert_eq!(speeds("0.5,4x1"), speeds("4x1,0.5"));
        assert_eq!(speeds("4x1,0.5").cpus(), 5);
        assert_eq!(speeds("2x1,0.25").total(3), 2.25);
        assert_eq!(speeds("2x1,0.25").iter().collect::<Vec<_>>(), [1.0, 1.0, 0.25]);
        for bad in ["", "0", "-1", "x", "0x1", "1x", "nan", "inf", "1e9", "1,,1", "99999999x1"] {
            assert!(bad.parse::<Speeds>().is_err(), "{bad}");
        }
    }
}

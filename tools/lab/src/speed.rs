//! The check that the virtual CPUs are equally fast, whether their neighbours
//! are busy or not; without it, a balancing result from the lab means nothing.
//!
//! Invariant: a deviation is judged with its interval. A shared host gets faster
//! and slower by a tenth within seconds; each turn is therefore taken relative to
//! its own lone runs, and what the turns cannot show either way is not called
//! equal.

use std::fmt;

use evenly_model::stats::{median, median_interval};

use crate::error::{LabError, Result};

/// Any will do; the same times give the same interval.
const SEED: u64 = 1;

/// The time of a CPU for the same work, relative to one thread alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Deviation {
    /// The CPU, by its number in the guest.
    pub cpu: u32,
    /// Whether all CPUs were busy, or this one alone.
    pub all_busy: bool,
    /// Median over the turns, as a fraction: 0.01 is 1 % slower.
    pub median: f64,
    /// Its 95 % bootstrap interval.
    pub interval: (f64, f64),
}

/// The same work, timed by one thread alone on some CPUs and by one thread on
/// each CPU at once.
#[derive(Debug, Clone, PartialEq)]
pub struct EqualSpeed {
    /// Mean seconds of one thread alone.
    pub alone_s: f64,
    /// Of each CPU tried alone, and of each with all of them busy.
    pub deviations: Vec<Deviation>,
    /// The largest deviation allowed, as a fraction (0.05 for 5 %).
    pub limit: f64,
    /// What each CPU took, relative to the mean of one thread alone in the same
    /// turn: as many for each as there were turns.
    samples: Vec<Samples>,
}

/// What a CPU took, turn by turn.
#[derive(Debug, Clone, PartialEq)]
struct Samples {
    cpu: u32,
    all_busy: bool,
    relative: Vec<f64>,
}

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// No CPU deviates by more than the limit, and none can deviate by twice as
    /// much; the one that deviates most.
    Equal(Deviation),
    /// This CPU deviates by more than the limit.
    Unequal(Deviation),
    /// The turns differ too much to say: the interval of this CPU reaches beyond
    /// twice the limit.
    Unclear(Deviation),
}

impl EqualSpeed {
    /// The largest deviation, as medians go; and whether the figures count.
    pub fn verdict(&self) -> Verdict {
        let farthest = |d: &Deviation| d.interval.0.abs().max(d.interval.1.abs());
        let most = |by: &dyn Fn(&Deviation) -> f64| {
            self.deviations.iter().copied().max_by(|a, b| by(a).total_cmp(&by(b)))
        };
        let none = Deviation { cpu: 0, all_busy: false, median: 0.0, interval: (0.0, 0.0) };
        let worst = most(&|d| d.median.abs()).unwrap_or(none);
        if worst.median.abs() > self.limit {
            return Verdict::Unequal(worst);
        }
        if let Some(d) = most(&farthest).filter(|d| farthest(d) > 2.0 * self.limit) {
            return Verdict::Unclear(d);
        }
        Verdict::Equal(worst)
    }

    /// Whether the CPUs are equal; if not, the figures of this session are void.
    pub fn ok(&self) -> bool {
        matches!(self.verdict(), Verdict::Equal(_))
    }

    /// Mean deviation with all CPUs busy: what idle neighbours are worth.
    pub fn all_busy_mean(&self) -> f64 {
        let all: Vec<f64> =
            self.deviations.iter().filter(|d| d.all_busy).map(|d| d.median).collect();
        all.iter().sum::<f64>() / all.len() as f64
    }

    pub(crate) fn parse(text: &str, limit: f64) -> Result<EqualSpeed> {
        let unexpected =
            || LabError::Protocol { from: "the busy program", answer: text.to_owned() };
        let (mut alone, mut all) = (Vec::new(), Vec::new());
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let list = match words.next() {
                Some("alone") => &mut alone,
                Some("all") => &mut all,
                _ => return Err(unexpected()),
            };
            let cpu: u32 = words.next().and_then(|w| w.parse().ok()).ok_or_else(unexpected)?;
            let seconds: Option<Vec<f64>> =
                words.map(|w| w.parse().ok().filter(|s: &f64| *s > 0.0)).collect();
            list.push((cpu, seconds.ok_or_else(unexpected)?));
        }
        let turns = alone.first().map_or(0, |(_, seconds)| seconds.len());
        let uneven = alone.iter().chain(&all).any(|(_, seconds)| seconds.len() != turns);
        if turns == 0 || all.is_empty() || uneven {
            return Err(unexpected());
        }
        let base: Vec<f64> = (0..turns)
            .map(|t| alone.iter().map(|(_, s)| s[t]).sum::<f64>() / alone.len() as f64)
            .collect();
        let relative = |all_busy: bool, (cpu, seconds): &(u32, Vec<f64>)| Samples {
            cpu: *cpu,
            all_busy,
            relative: seconds.iter().zip(&base).map(|(s, b)| s / b - 1.0).collect(),
        };
        let lone = alone.iter().map(|c| relative(false, c));
        let samples: Vec<Samples> = lone.chain(all.iter().map(|c| relative(true, c))).collect();
        let deviations = deviations(&samples).ok_or_else(unexpected)?;
        let alone_s = base.iter().sum::<f64>() / turns as f64;
        Ok(EqualSpeed { alone_s, deviations, limit, samples })
    }

    /// Turns that were taken.
    pub fn turns(&self) -> usize {
        self.samples.first().map_or(0, |s| s.relative.len())
    }

    /// Adds the turns of another check of the same machine.
    pub(crate) fn add(&mut self, other: &EqualSpeed) -> Result<()> {
        let same = |(a, b): (&Samples, &Samples)| a.cpu == b.cpu && a.all_busy == b.all_busy;
        let unexpected = || LabError::Protocol {
            from: "the busy program",
            answer: "other CPUs than in the turns before".to_owned(),
        };
        if self.samples.len() != other.samples.len()
            || !self.samples.iter().zip(&other.samples).all(same)
        {
            return Err(unexpected());
        }
        let (mine, theirs) = (self.turns() as f64, other.turns() as f64);
        for (mine, theirs) in self.samples.iter_mut().zip(&other.samples) {
            mine.relative.extend_from_slice(&theirs.relative);
        }
        self.deviations = deviations(&self.samples).ok_or_else(unexpected)?;
        self.alone_s = (self.alone_s * mine + other.alone_s * theirs) / (mine + theirs);
        Ok(())
    }
}

/// Median and interval of each CPU; none where there was no turn.
fn deviations(samples: &[Samples]) -> Option<Vec<Deviation>> {
    let deviation = |s: &Samples| {
        Some(Deviation {
            cpu: s.cpu,
            all_busy: s.all_busy,
            median: median(&s.relative)?,
            interval: median_interval(&s.relative, SEED)?,
        })
    };
    samples.iter().map(deviation).collect()
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.interval;
        write!(
            f,
            "CPU {} {:+.1} % [{:+.1}, {:+.1}]",
            self.cpu,
            self.median * 100.0,
            low * 100.0,
            high * 100.0
        )
    }
}

impl fmt::Display for EqualSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.deviations.iter().filter(|d| d.all_busy).count();
        let mean = self.all_busy_mean() * 100.0;
        write!(
            f,
            "equal-speed check: {} turns, alone {:.3} s, all {all} in the mean {mean:+.1} %, ",
            self.turns(),
            self.alone_s
        )?;
        let limit = self.limit * 100.0;
        match self.verdict() {
            Verdict::Equal(d) => write!(f, "most {d}: ok"),
            Verdict::Unequal(d) => write!(
                f,
                "most {d}: FAILED: limit {limit:.1} %; the figures of this session are void"
            ),
            Verdict::Unclear(d) => write!(
                f,
                "widest {d}: FAILED: the turns differ too much to show {limit:.1} %; the \
                 figures of this session are void"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> EqualSpeed {
        EqualSpeed::parse(text, 0.05).unwrap()
    }

    #[test]
    fn equal_cpus_pass() {
        let c = check("alone 0 1.00 1.00\nalone 3 1.00 1.00\nall 0 1.01 1.01\nall 1 1.02 1.02\n");
        assert!(c.ok());
        assert_eq!(
            c.to_string(),
            "equal-speed check: 2 turns, alone 1.000 s, all 2 in the mean +1.5 %, most CPU 1 +2.0 % \
             [+2.0, +2.0]: ok"
        );
    }

    #[test]
    fn a_host_that_gets_slower_for_a_turn_is_no_deviation() {
        assert!(check("alone 0 1.0 1.3 1.0\nall 0 1.0 1.31 1.0\nall 1 1.01 1.3 1.0\n").ok());
    }

    #[test]
    fn a_cpu_that_is_faster_alone_fails() {
        let c = check("alone 0 0.5 0.5\nall 0 0.98 0.98\nall 1 1.0 1.0\n");
        assert!(matches!(c.verdict(), Verdict::Unequal(d) if d.cpu == 1 && d.all_busy));
        assert!(c.to_string().contains("void"));
    }

    #[test]
    fn one_uneven_cpu_fails_even_if_it_is_the_fast_one() {
        let c = check("alone 0 1.0\nall 0 1.0\nall 1 0.8\n");
        assert!(matches!(c.verdict(), Verdict::Unequal(d) if d.cpu == 1));
    }

    #[test]
    fn a_median_beyond_the_limit_fails_whatever_its_interval() {
        let c = check("alone 0 1.00 1.00 1.00\nall 0 1.045 1.06 1.09\n");
        assert!(matches!(c.verdict(), Verdict::Unequal(d) if d.interval.0 < 0.05));
    }

    #[test]
    fn turns_that_say_nothing_do_not_pass() {
        let c = check("alone 0 1.0 1.0 1.0\nall 0 1.0 1.3 0.8\nall 1 1.0 1.0 1.0\n");
        assert!(matches!(c.verdict(), Verdict::Unclear(d) if d.cpu == 0));
        assert!(!c.ok() && c.to_string().contains("void"));
    }

    #[test]
    fn more_turns_can_show_what_few_cannot() {
        let mut c = check("alone 0 1.0 1.0 1.0\nall 0 1.0 1.3 0.8\n");
        assert!(matches!(c.verdict(), Verdict::Unclear(_)));
        let more = ["1.0"; 30].join(" ");
        c.add(&check(&format!("alone 0 {more}\nall 0 {more}\n"))).unwrap();
        assert!(c.ok() && c.turns() == 33, "{c}");
        let other = check("alone 0 1.0\nall 0 1.0\nall 1 1.0\n");
        assert!(c.add(&other).is_err());
    }

    #[test]
    fn anything_else_is_an_error() {
        let bad = ["", "alone 0 1.0\n", "alone x 1.0\nall 0 1.0\n", "alone 0\nall 0\n"];
        for text in bad.into_iter().chain(["alone 0 1.0 1.0\nall 0 1.0\n", "alone 0 0\nall 0 1\n"])
        {
            assert!(EqualSpeed::parse(text, 0.05).is_err(), "{text:?}");
        }
    }
}

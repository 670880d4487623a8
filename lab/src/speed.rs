//! The check that the virtual CPUs are equally fast, whether their neighbours
//! are busy or not; without it, a balancing result from the lab means nothing.

use std::fmt;

use crate::error::{LabError, Result};

/// The same work, timed by one thread alone on some CPUs and by one thread on
/// each CPU at once.
#[derive(Debug, Clone, PartialEq)]
pub struct EqualSpeed {
    /// Seconds of one thread alone, per CPU tried; the median of some turns.
    pub alone_s: Vec<(u32, f64)>,
    /// Seconds of each CPU with all of them busy; the median of some turns.
    pub all_s: Vec<(u32, f64)>,
    /// The largest deviation allowed, as a fraction (0.05 for 5 %).
    pub limit: f64,
}

impl EqualSpeed {
    /// Mean time of a thread alone, in seconds.
    pub fn alone_mean_s(&self) -> f64 {
        self.alone_s.iter().map(|(_, seconds)| seconds).sum::<f64>() / self.alone_s.len() as f64
    }

    /// The CPU whose time deviates most from the mean of one thread alone:
    /// its number and its deviation as a fraction, alone or with all busy.
    pub fn worst(&self) -> (u32, f64) {
        let mean = self.alone_mean_s();
        self.alone_s
            .iter()
            .chain(&self.all_s)
            .map(|(cpu, seconds)| (*cpu, seconds / mean - 1.0))
            .max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))
            .unwrap_or((0, 0.0))
    }

    /// Whether every CPU is within the limit; if not, the figures of this
    /// session are void.
    pub fn ok(&self) -> bool {
        self.worst().1.abs() <= self.limit
    }

    pub(crate) fn parse(text: &str, limit: f64) -> Result<EqualSpeed> {
        let unexpected =
            || LabError::Protocol { from: "the busy program", answer: text.to_owned() };
        let mut result = EqualSpeed { alone_s: Vec::new(), all_s: Vec::new(), limit };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let list = match words.next() {
                Some("alone") => &mut result.alone_s,
                Some("all") => &mut result.all_s,
                _ => return Err(unexpected()),
            };
            let cpu = words.next().and_then(|word| word.parse().ok()).ok_or_else(unexpected)?;
            let seconds = words.next().and_then(|word| word.parse().ok()).ok_or_else(unexpected)?;
            list.push((cpu, seconds));
        }
        if result.alone_s.is_empty() || result.all_s.is_empty() {
            return Err(unexpected());
        }
        Ok(result)
    }
}

impl fmt::Display for EqualSpeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alone = self.alone_mean_s();
        let slowest = self.all_s.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
        write!(
            f,
            "equal-speed check: alone {alone:.3} s, all {}: {slowest:.3} s ({:+.1} %): ",
            self.all_s.len(),
            (slowest / alone - 1.0) * 100.0
        )?;
        let (cpu, deviation) = self.worst();
        if self.ok() {
            write!(f, "ok")
        } else {
            write!(
                f,
                "FAILED: CPU {cpu} deviates by {:+.1} %, limit {:.1} %; the figures of this \
                 session are void",
                deviation * 100.0,
                self.limit * 100.0
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_cpus_pass() {
        let text = "alone 0 1.000\nalone 3 1.010\nall 0 1.012\nall 1 1.020\n";
        let check = EqualSpeed::parse(text, 0.05).unwrap();
        assert!(check.ok());
        assert_eq!(
            check.to_string(),
            "equal-speed check: alone 1.005 s, all 2: 1.020 s (+1.5 %): ok"
        );
    }

    #[test]
    fn a_cpu_that_is_faster_alone_fails() {
        let check = EqualSpeed::parse("alone 0 0.5\nall 0 0.98\nall 1 1.0\n", 0.05).unwrap();
        assert!(!check.ok());
        assert_eq!(check.worst().0, 1);
        assert!(check.to_string().contains("void"));
    }

    #[test]
    fn one_uneven_cpu_fails_even_if_it_is_the_fast_one() {
        let check = EqualSpeed::parse("alone 0 1.0\nall 0 1.0\nall 1 0.8\n", 0.05).unwrap();
        assert!(!check.ok());
        assert_eq!(check.worst().0, 1);
    }

    #[test]
    fn anything_else_is_an_error() {
        assert!(EqualSpeed::parse("", 0.05).is_err());
        assert!(EqualSpeed::parse("alone 0 1.0\n", 0.05).is_err());
        assert!(EqualSpeed::parse("alone x 1.0\nall 0 1.0\n", 0.05).is_err());
    }
}

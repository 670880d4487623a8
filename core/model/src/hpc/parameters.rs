//! What can be tuned, while it runs.
//!
//! Invariant: values that are held are in range and in order; one that is not is refused with what
//! was found, what was needed and what to do, and changes nothing.

use super::{Heuristic, Priority};
use crate::or_meant;
use std::fmt;
use std::str::FromStr;

/// Something that can be tuned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Parameter {
    /// `LOW_UTIL`: below it a thread counts as one of low utilisation. Percent.
    LowUtil,
    /// `HIGH_UTIL`: from it on a thread counts as one of high utilisation. Percent.
    HighUtil,
    /// G: what the history counts in the adaptive heuristic; the last iteration counts L = 1 - G.
    GlobalWeight,
    /// `MIN_PRIO`: the lowest priority that is given.
    MinPrio,
    /// `MAX_PRIO`: the highest priority that is given.
    MaxPrio,
    /// By how much a thread's utilisation may differ from what it was when a stable state was found.
    /// Percentage points.
    Tolerance,
    /// By what part a thread must compute shorter or longer than before for `auto` to see a change.
    /// Percent.
    Change,
    /// For how long no thread may finish an iteration before it counts as a program without any. Seconds.
    Patience,
    /// What one level of priority is in weight, where priorities are shares of a CPU.
    LevelRatio,
    /// What the CPU with the most work must have less of it, for threads to change places. Percent.
    PlaceGain,
    /// What the last round counts, beside those before, where it is seen whether work has changed.
    LastWeight,
    /// How many times as much of a CPU one may have as another, where weights are by work: a thread that
    /// has too little after a change of behaviour must get on all the same.
    MostRatio,
    /// By what part a weight must be off to be changed, where weights are by work. Percent.
    WeightStep,
}

/// What is known of a parameter.
struct Known {
    name: &'static str,
    about: &'static str,
    usual: f64,
    range: (f64, f64),
    whole: bool,
    /// Which policies of programs that run look at it; in the simulator's POWER5 others do.
    by: &'static [Heuristic],
}

const ALL: &[Heuristic] = &Heuristic::ALL;
const AUTO: &[Heuristic] = &[Heuristic::Auto];
const ADAPTIVE: &[Heuristic] = &[Heuristic::Adaptive];
const UNIFORM: &[Heuristic] = &[Heuristic::Uniform];
/// Those of the paper.
const PAPER: &[Heuristic] = &[Heuristic::Uniform, Heuristic::Adaptive];

/// 2:1 at the greatest difference of priorities; see [`Parameters::weight`].
const USUAL_LEVEL_RATIO: f64 = std::f64::consts::SQRT_2;

fn known(parameter: Parameter) -> Known {
    let of = |name, about, usual, range, by| Known { name, about, usual, range, whole: false, by };
    let whole = |known: Known| Known { whole: true, ..known };
    let normal = f64::from(Priority::NORMAL.0);
    let most = f64::from(Priority::MOST.0);
    match parameter {
        Parameter::LowUtil => {
            of("low-util", "below it a thread waits a lot, percent", 65.0, (0.0, 100.0), UNIFORM)
        }
        Parameter::HighUtil => {
            of("high-util", "from it on a thread hardly waits, percent", 85.0, (0.0, 100.0), PAPER)
        }
        Parameter::GlobalWeight => {
            of("global-weight", "what history counts in hpc-adaptive", 0.1, (0.0, 1.0), ADAPTIVE)
        }
        Parameter::MinPrio => {
            whole(of("min-prio", "lowest priority given", normal, (1.0, normal), PAPER))
        }
        Parameter::MaxPrio => {
            whole(of("max-prio", "highest priority given", most, (normal, most), PAPER))
        }
        Parameter::Tolerance => of(
            "tolerance",
            "utilisation that a stable state may vary by, percentage points",
            10.0,
            (0.1, 100.0),
            PAPER,
        ),
        Parameter::Change => of(
            "change",
            "part by which computing must differ to be a change for hpc-auto, percent",
            25.0,
            (1.0, 100.0),
            &[],
        ),
        Parameter::Patience => of(
            "patience",
            "time without a finished iteration after which all have even parts again, s",
            10.0,
            (0.001, 1e6),
            ALL,
        ),
        Parameter::LevelRatio => of(
            "level-ratio",
            "weight of one level of priority, where they are shares of a CPU",
            USUAL_LEVEL_RATIO,
            (1.0, 100.0),
            PAPER,
        ),
        Parameter::PlaceGain => of(
            "place-gain",
            "what the fullest CPU must have less of for threads to change places, percent",
            5.0,
            (0.0, 100.0),
            ALL,
        ),
        Parameter::LastWeight => of(
            "last-weight",
            "what the last iterations count where it is seen whether work has changed",
            0.5,
            (0.01, 1.0),
            ALL,
        ),
        Parameter::MostRatio => of(
            "most-ratio",
            "how many times as much of a CPU one may have as another",
            8.0,
            (1.0, 1_000.0),
            AUTO,
        ),
        Parameter::WeightStep => of(
            "weight-step",
            "by how much the part of one must be off for all to be changed, percent",
            15.0,
            (0.0, 100.0),
            AUTO,
        ),
    }
}

impl Parameter {
    /// All parameters, in the order of the help.
    pub const ALL: [Self; 13] = [
        Self::LowUtil,
        Self::HighUtil,
        Self::GlobalWeight,
        Self::MinPrio,
        Self::MaxPrio,
        Self::Tolerance,
        Self::Change,
        Self::Patience,
        Self::LevelRatio,
        Self::PlaceGain,
        Self::LastWeight,
        Self::MostRatio,
        Self::WeightStep,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        known(self).name
    }

    /// One line for the help.
    #[must_use]
    pub fn about(self) -> &'static str {
        known(self).about
    }

    /// What it is by default: the paper's values where it has one.
    #[must_use]
    pub fn usual(self) -> f64 {
        known(self).usual
    }

    /// The least and the most that it can be.
    #[must_use]
    pub fn range(self) -> (f64, f64) {
        known(self).range
    }

    /// Whether a policy looks at it where it balances a program that runs.
    #[must_use]
    pub fn counts_for(self, heuristic: Heuristic) -> bool {
        known(self).by.contains(&heuristic)
    }

    /// A value that is given: `high-util=90`. The paper's names will do as well: `HIGH_UTIL`, `G`, and `L`,
    /// which is 1 - G.
    ///
    /// # Errors
    /// [`ParameterError`] where that names no parameter or has no number. Whether the number is in range is
    /// seen when it is set.
    pub fn given(text: &str) -> Result<(Self, f64), ParameterError> {
        let malformed = || ParameterError::Malformed { found: text.trim().to_owned() };
        let (name, value) = text.split_once('=').ok_or_else(malformed)?;
        let (name, value) = (name.trim(), value.trim());
        let number: f64 =
            value.parse().map_err(|_| ParameterError::Number { found: value.to_owned() })?;
        match name {
            "L" => Ok((Self::GlobalWeight, 1.0 - number)),
            "G" => Ok((Self::GlobalWeight, number)),
            _ => Ok((name.to_lowercase().replace('_', "-").parse()?, number)),
        }
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Parameter {
    type Err = ParameterError;

    fn from_str(name: &str) -> Result<Self, ParameterError> {
        let found = Self::ALL.into_iter().find(|p| p.name() == name);
        found.ok_or_else(|| ParameterError::Unknown { found: name.to_owned() })
    }
}

/// Why a parameter is not changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ParameterError {
    /// There is none of that name.
    #[error("there is no parameter '{found}'{}; there are {known}", meant(.found), known = names())]
    Unknown {
        /// The name that was given.
        found: String,
    },
    /// What was given is no value of a parameter.
    #[error("'{found}': it must be a name and a number, as in high-util=90")]
    Malformed {
        /// The text that was given.
        found: String,
    },
    /// What was given has no number.
    #[error("'{found}' is no number")]
    Number {
        /// The text that was given.
        found: String,
    },
    /// It cannot be that.
    #[error(
        "{parameter} cannot be {found}: it must be {kind} from {least} to {most}; it is {usual} where \
         nothing is said",
        usual = parameter.usual()
    )]
    Range {
        /// The parameter whose value is out of range.
        parameter: Parameter,
        /// The value that was given.
        found: f64,
        /// `a number` or `a whole number`.
        kind: &'static str,
        /// The least that it can be.
        least: f64,
        /// The greatest value that it may have.
        most: f64,
    },
    /// The limits of utilisation would be in the wrong order.
    #[error(
        "{parameter} cannot be {found}: low-util ({low}) must be below high-util ({high}); change the \
         other one with it"
    )]
    Order {
        /// The parameter that was to be changed.
        parameter: Parameter,
        /// The value that was given.
        found: f64,
        /// What low-util would be.
        low: f64,
        /// What high-util would be.
        high: f64,
    },
}

fn meant(found: &str) -> String {
    or_meant(found, Parameter::ALL.map(Parameter::name))
}

fn names() -> String {
    Parameter::ALL.map(Parameter::name).join(", ")
}

/// The values of all parameters.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters {
    values: [f64; Parameter::ALL.len()],
}

impl Default for Parameters {
    fn default() -> Self {
        Self { values: Parameter::ALL.map(Parameter::usual) }
    }
}

impl Parameters {
    /// The value that a parameter has.
    #[must_use]
    pub fn get(&self, parameter: Parameter) -> f64 {
        self.values[parameter as usize]
    }

    /// Changes one.
    ///
    /// # Errors
    /// [`ParameterError`] where it is out of range or out of order; nothing is changed then.
    pub fn set(&mut self, parameter: Parameter, value: f64) -> Result<(), ParameterError> {
        self.set_all(&[(parameter, value)])
    }

    /// Changes several together: it is what comes of all of them that must be in order.
    ///
    /// # Errors
    /// As [`Parameters::set`]; nothing is changed then.
    pub fn set_all(&mut self, values: &[(Parameter, f64)]) -> Result<(), ParameterError> {
        let mut next = self.clone();
        for &(parameter, value) in values {
            let Known { range: (least, most), whole, .. } = known(parameter);
            // Not-a-number is in no range.
            if !(least..=most).contains(&value) || whole && value.fract() != 0.0 {
                let kind = if whole { "a whole number" } else { "a number" };
                return Err(ParameterError::Range { parameter, found: value, kind, least, most });
            }
            next.values[parameter as usize] = value;
        }
        let (low, high) = (next.get(Parameter::LowUtil), next.get(Parameter::HighUtil));
        if low >= high {
            let is_one = |p: &Parameter| matches!(p, Parameter::LowUtil | Parameter::HighUtil);
            let parameter = values.iter().map(|v| v.0).find(is_one).unwrap_or(Parameter::LowUtil);
            return Err(ParameterError::Order { parameter, found: next.get(parameter), low, high });
        }
        *self = next;
        Ok(())
    }

    /// All of them as text, a line each, as [`Parameters::from_text`] reads them.
    #[must_use]
    pub fn text(&self) -> String {
        Parameter::ALL.map(|p| format!("{p}={}\n", self.get(p))).concat()
    }

    /// What stands in such a text; what it does not name is as usual. Empty lines count for nothing.
    ///
    /// # Errors
    /// [`ParameterError`] of the first line that is wrong.
    pub fn from_text(text: &str) -> Result<Self, ParameterError> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        let values = lines.map(Parameter::given).collect::<Result<Vec<_>, _>>()?;
        let mut all = Self::default();
        all.set_all(&values)?;
        Ok(all)
    }

    /// Those that differ: what, from what, to what.
    pub fn changes(&self, to: &Self) -> impl Iterator<Item = (Parameter, f64, f64)> {
        let pairs = Parameter::ALL.map(|p| (p, self.get(p), to.get(p)));
        pairs.into_iter().filter(|(_, from, to)| from != to)
    }

    /// `LOW_UTIL` as a part.
    #[must_use]
    pub fn low(&self) -> f64 {
        self.get(Parameter::LowUtil) / 100.0
    }

    /// `HIGH_UTIL` as a part.
    #[must_use]
    pub fn high(&self) -> f64 {
        self.get(Parameter::HighUtil) / 100.0
    }

    /// `MIN_PRIO`: the normal priority, and the lowest.
    #[must_use]
    pub fn least(&self) -> Priority {
        Priority(self.get(Parameter::MinPrio) as u8)
    }

    /// `MAX_PRIO`: the highest priority that is given.
    #[must_use]
    pub fn most(&self) -> Priority {
        Priority(self.get(Parameter::MaxPrio) as u8)
    }

    /// The weight of a priority relative to the normal one (1.0), for mechanisms that share out the
    /// time of a CPU: `level-ratio` to the power of its distance.
    ///
    /// A level-ratio of the root of 7 would have the decode ratio of Table I, 7:1 at a difference of 2.
    /// But on a POWER5 a rank that waits sleeps and leaves the core to the other one; where ranks share
    /// the time of a CPU and spin while they wait, a ratio of weights above that of the loads makes the
    /// light one the one that all wait for. With 7:1 that takes uniform and adaptive up to twice as
    /// long as with equal weights, where loads are 1.2 to 2:1; with 2:1 it takes them nowhere longer. A test
    /// has the numbers. `auto` finds out what is too much. Where the CPU time that an iteration needs
    /// is known, `policy::hpc::shares` is better than levels. Where waiting ranks sleep, the sum of
    /// the loads on a CPU counts, and weights gain nothing.
    #[must_use]
    pub fn weight(&self, priority: Priority) -> f64 {
        let levels = i32::from(priority.0) - i32::from(Priority::NORMAL.0);
        self.get(Parameter::LevelRatio).powi(levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_and_a_value_that_is_allowed() {
        for (i, p) in Parameter::ALL.into_iter().enumerate() {
            assert_eq!(p as usize, i);
            assert_eq!(p.name().parse::<Parameter>(), Ok(p));
            let mut all = Parameters::default();
            all.set(p, p.usual()).unwrap();
            assert_eq!(all, Parameters::default(), "{p}: {}", p.about());
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let mut p = Parameters::default();
        let mut refused = |parameter, value: f64, words: &[&str]| {
            let error = p.set(parameter, value).unwrap_err().to_string();
            for word in words {
                assert!(error.contains(word), "{error}");
            }
            assert_eq!(p, Parameters::default());
        };
        refused(Parameter::HighUtil, 101.0, &["high-util", "101", "0 to 100", "85"]);
        refused(Parameter::HighUtil, f64::NAN, &["NaN"]);
        refused(Parameter::HighUtil, f64::INFINITY, &["inf"]);
        refused(Parameter::HighUtil, 65.0, &["high-util cannot be 65", "low-util (65)"]);
        refused(Parameter::LowUtil, 90.0, &["low-util cannot be 90", "below high-util (85)"]);
        refused(Parameter::MaxPrio, 7.0, &["max-prio", "whole number from 4 to 6"]);
        refused(Parameter::MinPrio, 3.5, &["min-prio", "whole number from 1 to 4"]);
        refused(Parameter::GlobalWeight, -0.1, &["global-weight", "0 to 1"]);
        let error = "high".parse::<Parameter>().unwrap_err().to_string();
        assert!(error.contains("'high'") && error.contains("low-util, high-util"), "{error}");
    }

    #[test]
    fn several_are_changed_together_or_not_at_all() {
        let mut p = Parameters::default();
        let both = [(Parameter::LowUtil, 88.0), (Parameter::HighUtil, 95.0)];
        p.set_all(&both).unwrap();
        assert_eq!((p.get(Parameter::LowUtil), p.get(Parameter::HighUtil)), (88.0, 95.0));
        let before = p.clone();
        let wrong = [(Parameter::GlobalWeight, 0.5), (Parameter::MaxPrio, 9.0)];
        assert!(p.set_all(&wrong).is_err());
        assert!(p.set_all(&[(Parameter::Tolerance, 3.0), (Parameter::HighUtil, 50.0)]).is_err());
        assert_eq!(p, before);
        let changes: Vec<_> = Parameters::default().changes(&p).collect();
        assert_eq!(changes, [(Parameter::LowUtil, 65.0, 88.0), (Parameter::HighUtil, 85.0, 95.0)]);
    }

    #[test]
    fn values_as_text() {
        assert_eq!(Parameter::given(" high-util = 90 "), Ok((Parameter::HighUtil, 90.0)));
        assert_eq!(Parameter::given("HIGH_UTIL=90"), Ok((Parameter::HighUtil, 90.0)));
        assert_eq!(Parameter::given("G=0.25"), Ok((Parameter::GlobalWeight, 0.25)));
        assert_eq!(Parameter::given("L=0.75"), Ok((Parameter::GlobalWeight, 0.25)));
        for (wrong, words) in [
            ("high-util", "as in high-util=90"),
            ("high-util=x", "'x' is no number"),
            ("x=1", "no parameter 'x'"),
        ] {
            let error = Parameter::given(wrong).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let mut p = Parameters::default();
        p.set_all(&[(Parameter::LowUtil, 86.5), (Parameter::HighUtil, 95.0)]).unwrap();
        assert_eq!(Parameters::from_text(&p.text()), Ok(p));
        assert_eq!(Parameters::from_text("\n"), Ok(Parameters::default()));
        assert!(Parameters::from_text("low-util=90\n").is_err());
        // Each policy looks at some, and each is looked at by one, but for that of the simulator alone.
        let of = |h| Parameter::ALL.into_iter().filter(move |p| p.counts_for(h)).count();
        assert_eq!(Heuristic::ALL.map(of), [9, 9, 5]);
    }

    #[test]
    fn weights() {
        let mut p = Parameters::default();
        let ratio = |p: &Parameters, a, b| p.weight(Priority(a)) / p.weight(Priority(b));
        assert!((p.weight(Priority::NORMAL) - 1.0).abs() < 1e-12);
        assert!((ratio(&p, 6, 4) - 2.0).abs() < 1e-9);
        // Those of Table I; there, a difference of 1 is 3:1.
        p.set(Parameter::LevelRatio, 7f64.sqrt()).unwrap();
        assert!((ratio(&p, 6, 4) - 7.0).abs() < 1e-9);
        assert!((ratio(&p, 5, 4) - 3.0).abs() < 0.4);
    }
}

//! What is measured of a run: its wall time, or a figure that the program itself prints.
//!
//! Invariant: a value is finite, positive and in seconds, and smaller is better.

use crate::executor::RunOutcome;
use serde_json::Value;
use std::fmt;
use std::io::{self, Read};

/// Output longer than this is not searched for a figure.
const LIMIT_BYTES: u64 = 64 << 20;

/// The figure that is compared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Metric {
    /// Wall time of the run, start-up included.
    #[default]
    WallTime,
    /// A top-level numeric field, in seconds, of the last JSON object that begins a line of the
    /// program's standard output.
    Field(String),
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WallTime => "wall_time_s",
            Self::Field(name) => name,
        })
    }
}

/// Why a run has no value of the metric.
#[derive(Debug, thiserror::Error)]
pub enum MetricError {
    /// The output cannot be read again.
    #[error("cannot read the program's output: {0}")]
    Read(#[from] io::Error),
    /// Too much output to search.
    #[error("printed {bytes} bytes; --metric searches at most {LIMIT_BYTES}")]
    TooLong {
        /// Length of the output.
        bytes: u64,
    },
    /// The output is no JSON object.
    #[error(
        "printed no JSON object at the beginning of a line, so --metric {name} has no value; \
         without --metric the wall time is compared"
    )]
    NoObject {
        /// The field looked for.
        name: String,
    },
    /// The object has no such number.
    #[error(
        "printed {found} as --metric {name}, which needs a number of seconds greater than 0; the \
         last JSON object has the numbers {numbers}"
    )]
    NoNumber {
        /// The field looked for.
        name: String,
        /// What stands in the place of the number.
        found: String,
        /// Numeric fields that the object has.
        numbers: String,
    },
}

impl Metric {
    /// The value for one run, in seconds.
    ///
    /// # Errors
    /// Where the program did not print the figure.
    pub fn of(&self, outcome: &RunOutcome) -> Result<f64, MetricError> {
        if *self == Self::WallTime {
            return Ok(outcome.seconds);
        }
        if outcome.output.bytes() > LIMIT_BYTES {
            return Err(MetricError::TooLong { bytes: outcome.output.bytes() });
        }
        let mut text = Vec::new();
        outcome.output.reader().read_to_end(&mut text)?;
        self.in_output(&text)
    }

    /// The value in what a program has printed, in seconds. Wall time is in no output.
    ///
    /// # Errors
    /// Where the figure is not in it.
    pub fn in_output(&self, text: &[u8]) -> Result<f64, MetricError> {
        let name = &self.to_string();
        let object =
            last_object(text).ok_or_else(|| MetricError::NoObject { name: name.clone() })?;
        let value = object.get(name);
        value.and_then(Value::as_f64).filter(|v| v.is_finite() && *v > 0.0).ok_or_else(|| {
            let numbers: Vec<&str> =
                object.iter().filter(|(_, v)| v.is_number()).map(|(k, _)| k.as_str()).collect();
            MetricError::NoNumber {
                name: name.clone(),
                found: value.map_or_else(|| "nothing".to_owned(), Value::to_string),
                numbers: if numbers.is_empty() { "(none)".to_owned() } else { numbers.join(", ") },
            }
        })
    }
}

/// The last JSON object that begins a line. Objects inside an object do not count, though they
/// begin lines when it is printed over several.
fn last_object(text: &[u8]) -> Option<serde_json::Map<String, Value>> {
    let mut found = None;
    let mut at = 0;
    while at < text.len() {
        let line = &text[at..];
        let blank = line.iter().take_while(|c| matches!(c, b' ' | b'\t' | b'\r')).count();
        if line.get(blank) == Some(&b'{') {
            let mut values =
                serde_json::Deserializer::from_slice(&line[blank..]).into_iter::<Value>();
            if let Some(Ok(Value::Object(object))) = values.next() {
                found = Some(object);
                at += blank + values.byte_offset();
            }
        }
        at += text[at..].iter().position(|&c| c == b'\n').map_or(text.len(), |n| n + 1);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::Status;
    use crate::output::Output;

    fn value(text: &str) -> Result<f64, MetricError> {
        Metric::Field("makespan_s".into()).of(&RunOutcome {
            seconds: 9.0,
            status: Status::Exited(0),
            output: Output::of_bytes(text.as_bytes()).unwrap(),
            stderr_tail: String::new(),
            report: None,
        })
    }

    #[test]
    fn takes_the_last_object() {
        let text = "start\n{\"makespan_s\": 1}\nset {3}\n  {\"makespan_s\": 2.5, \"n\": 3}\nend";
        assert_eq!(value(text).unwrap(), 2.5);
    }

    #[test]
    fn takes_an_object_over_several_lines_and_nothing_inside_it() {
        let text = "{\n  \"makespan_s\": 4,\n  \"threads\": [\n    {\"makespan_s\": 1}\n  ]\n}\n";
        assert_eq!(value(text).unwrap(), 4.0);
    }

    #[test]
    fn says_what_is_missing() {
        assert!(matches!(value("makespan 3\n{oops\n"), Err(MetricError::NoObject { .. })));
        let message = value("{\"makespan_s\": \"3\", \"phases\": 2}").unwrap_err().to_string();
        assert!(message.contains("printed \"3\" as --metric makespan_s"), "{message}");
        assert!(message.ends_with("the numbers phases"), "{message}");
        for bad in ["{}", "{\"makespan_s\": 0}", "{\"makespan_s\": -1}", "{\"makespan_s\": null}"] {
            assert!(matches!(value(bad), Err(MetricError::NoNumber { .. })), "{bad}");
        }
    }

    #[test]
    fn seeds_of_the_fuzzer() {
        let metric = Metric::Field("makespan_s".into());
        let seed = include_bytes!("../../../tools/fuzz/seeds/metric/two-objects");
        assert_eq!(metric.in_output(seed).unwrap(), 2.5);
        let seed = include_bytes!("../../../tools/fuzz/seeds/metric/several-lines");
        assert_eq!(metric.in_output(seed).unwrap(), 0.4);
    }

    #[test]
    fn hostile_nesting_ends() {
        assert!(value(&"{\"a\":\n".repeat(50_000)).is_err());
        assert!(value(&"{".repeat(100_000)).is_err());
    }
}

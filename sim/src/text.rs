//! The keys of a scenario file, as serde reads them.
//!
//! Invariant: a key that is not known is an error, and each has its default here.

use evenly_model::{Nanos, parse_duration};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// The longest scenario file that is read, in bytes.
pub const MOST_BYTES: usize = 1 << 20;

/// Why a scenario file cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The text is not TOML.
    #[error("line {line}: {problem}")]
    Syntax {
        /// Number of the line, from 1.
        line: usize,
        /// What the parser says about it.
        problem: String,
    },
    /// A value that makes no sense.
    #[error("{key}: {problem}")]
    Key {
        /// Which key, with its table: `program[0].phase`.
        key: String,
        /// What was found, and what is needed.
        problem: String,
    },
    /// More than is read.
    #[error("the file has more than {MOST_BYTES} bytes, the most that are read")]
    TooLong,
}

/// A duration as users write it, zero (`0s`) included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span(pub(crate) Nanos);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = String::deserialize(d)?;
        if ["0", "0s", "0ms", "0us", "0ns"].contains(&text.trim()) {
            return Ok(Self(Nanos::ZERO));
        }
        parse_duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Text {
    pub(crate) seed: Option<u64>,
    pub(crate) machine: MachineText,
    #[serde(default)]
    pub(crate) program: Vec<ProgramText>,
    #[serde(default)]
    pub(crate) interference: Vec<InterferenceText>,
    #[serde(default)]
    pub(crate) costs: CostsText,
    #[serde(default)]
    pub(crate) readings: ReadingsText,
    #[serde(default)]
    pub(crate) balancing: BalancingText,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MachineText {
    pub(crate) cpus: Option<u32>,
    pub(crate) speeds: Option<Vec<f64>>,
    #[serde(default)]
    pub(crate) numa: Vec<String>,
    #[serde(default)]
    pub(crate) smt: Vec<[u32; 2]>,
    #[serde(default = "paper_gain")]
    pub(crate) smt_gain: f64,
    pub(crate) slice: Option<Span>,
    #[serde(default)]
    pub(crate) tick: Span,
    #[serde(default = "yes")]
    pub(crate) pull: bool,
    pub(crate) rotate: Option<Span>,
    #[serde(default = "capacity")]
    pub(crate) counters: String,
    #[serde(default)]
    pub(crate) hotplug: Vec<HotplugText>,
}

/// Section 4.3 of the paper: 35 % faster while the other hardware thread is idle.
fn paper_gain() -> f64 {
    0.35
}

fn capacity() -> String {
    String::from("capacity")
}

fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct HotplugText {
    pub(crate) cpu: u32,
    pub(crate) at: Span,
    pub(crate) online: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProgramText {
    pub(crate) threads: u32,
    pub(crate) phase: Span,
    #[serde(default = "one")]
    pub(crate) phases: u32,
    #[serde(default = "block")]
    pub(crate) barrier: String,
    #[serde(default)]
    pub(crate) imbalance: f64,
    #[serde(default)]
    pub(crate) noise: f64,
    pub(crate) factors: Option<Vec<f64>>,
    #[serde(default)]
    pub(crate) start: Span,
    pub(crate) cpus: Option<String>,
}

fn one() -> u32 {
    1
}

fn block() -> String {
    String::from("block")
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InterferenceText {
    pub(crate) kind: String,
    pub(crate) cpus: String,
    pub(crate) busy: Option<[Span; 2]>,
    pub(crate) sleep: Option<[Span; 2]>,
    #[serde(default)]
    pub(crate) from: Span,
    pub(crate) until: Option<Span>,
    #[serde(default = "one")]
    pub(crate) tasks: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CostsText {
    pub(crate) point: Span,
    pub(crate) read: Span,
    pub(crate) place: Span,
    pub(crate) refill: Span,
    pub(crate) wake: Span,
    pub(crate) late: Span,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReadingsText {
    pub(crate) noise: Span,
    pub(crate) stale: f64,
    pub(crate) probe: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BalancingText {
    pub(crate) policy: Option<String>,
    pub(crate) period: String,
    pub(crate) jitter: bool,
    pub(crate) recognise: bool,
    pub(crate) guard: bool,
    pub(crate) budget: f64,
    pub(crate) domains: String,
    pub(crate) programs: String,
}

impl Default for BalancingText {
    fn default() -> Self {
        Self {
            policy: None,
            period: String::from("100ms"),
            jitter: true,
            recognise: false,
            // As live.
            guard: true,
            budget: 100.0,
            domains: String::from("machine"),
            programs: String::from("first"),
        }
    }
}

/// Reads the text; nothing but its form is checked.
pub(crate) fn parse_text<T: DeserializeOwned>(text: &str) -> Result<T, FileError> {
    if text.len() > MOST_BYTES {
        return Err(FileError::TooLong);
    }
    let syntax = |e: &toml::de::Error| {
        let before = text.get(..e.span().map_or(0, |s| s.start)).unwrap_or_default();
        let line = 1 + before.bytes().filter(|&b| b == b'\n').count();
        FileError::Syntax { line, problem: one_line(e.message()) }
    };
    let tree = toml::Deserializer::parse(text).map_err(|e| syntax(&e))?;
    serde_path_to_error::deserialize(tree).map_err(|e| {
        let key = e.path().to_string();
        if key == "." {
            syntax(e.inner())
        } else {
            FileError::Key { key, problem: one_line(e.inner().message()) }
        }
    })
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}

//! Test suites of others, plain and under evenly.
//!
//! A folder is searched for tests ([`suites`]): how each kind of suite marks its tests is known
//! ([`dejagnu`], [`lit`], [`posix`], [`commands`]), no particular test is. Each is built once and run plain and
//! under every arm ([`judge`]), in a process group and a scratch directory of its own and with a time limit
//! ([`exec`]). What passes plain and fails under an arm is listed ([`outcome`]).
//!
//! Invariant: whether a test passes never depends on how fast it is. Only one that exceeds ten times its
//! plain time and 20 s fails by time, and only if it does so twice.

#![forbid(unsafe_code)]

pub mod commands;
pub mod dejagnu;
pub mod exec;
mod expression;
pub mod judge;
pub mod lit;
pub mod outcome;
pub mod posix;
pub mod shell;
pub mod suites;

pub use suites::{Case, Compiler, Offers, Passes};

/// What of the bytes was something to one of the parsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Read {
    /// Directives of DejaGnu, which say how a test is built and run.
    pub directives: bool,
    /// A driver of DejaGnu: flags and folders.
    pub driver: bool,
    /// RUN lines of lit.
    pub script: bool,
    /// A list of commands.
    pub commands: bool,
}

/// Reads arbitrary bytes as every file of a suite that is read, for fuzzing. Whatever the bytes are, it
/// returns.
#[must_use]
pub fn exercise(bytes: &[u8]) -> Read {
    let text = String::from_utf8_lossy(bytes);
    let known = |word: &str| word.starts_with('x');
    let header = dejagnu::Header::parse(&text, &known);
    let marks = lit::Marks::parse(&text);
    let _ = marks.reason_to_leave_out(&known);
    if let Some(script) = lit::Script::of(&marks) {
        let _ = lit::unknown(&script.build).or_else(|| lit::unknown(&script.run));
    }
    Read {
        directives: header != dejagnu::Header::default(),
        driver: !dejagnu::Driver::parse(&text).flags.is_empty(),
        script: !marks.run.is_empty(),
        commands: commands::lines(&text).next().is_some(),
    }
}

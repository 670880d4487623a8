//! What is run and what came of it: arms, outcomes, and the trait that stands between the
//! comparison and the machine.
//!
//! Invariant: an [`Executor`] reports what happened and judges nothing; a non-zero exit is an
//! outcome here and becomes an error in the comparison.

use crate::output::Output;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// One way to run the command: a policy or the kernel alone, perhaps with other variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arm {
    /// Name of the policy, unique within a comparison.
    pub name: String,
    /// The program, and its arguments after it.
    pub argv: Vec<OsString>,
    /// Variables set in addition to the inherited environment.
    pub env: Vec<(OsString, OsString)>,
    /// JSON file that this arm writes in every run, if it writes one.
    pub report: Option<PathBuf>,
}

impl Arm {
    /// An arm without extra environment and without a report.
    pub fn new<A: Into<OsString>>(
        name: impl Into<String>,
        argv: impl IntoIterator<Item = A>,
    ) -> Self {
        Self {
            name: name.into(),
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            report: None,
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// With this exit status.
    Exited(i32),
    /// It was ended by this signal.
    Signalled(i32),
}

impl Status {
    /// Whether it ended with exit status 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Exited(0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = match *self {
            Self::Exited(code) => return write!(f, "exited with status {code}"),
            Self::Signalled(signal) => signal,
        };
        let name = match signal {
            1 => "SIGHUP",
            2 => "SIGINT",
            3 => "SIGQUIT",
            4 => "SIGILL",
            6 => "SIGABRT",
            8 => "SIGFPE",
            9 => "SIGKILL",
            11 => "SIGSEGV",
            13 => "SIGPIPE",
            15 => "SIGTERM",
            _ => return write!(f, "was ended by signal {signal}"),
        };
        write!(f, "was ended by signal {signal} ({name})")
    }
}

/// What one run gave.
#[derive(Debug)]
pub struct RunOutcome {
    /// Wall time from before the start to after the end was seen, in seconds.
    pub seconds: f64,
    /// How the program ended.
    pub status: Status,
    /// What it wrote to standard output.
    pub output: Output,
    /// The end of what it wrote to standard error.
    pub stderr_tail: String,
    /// The content of [`Arm::report`] after the run.
    pub report: Option<serde_json::Value>,
}

/// Why a run has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The arm has no program.
    #[error("there is no command to run; give one after `--`")]
    NoCommand,
    /// The program could not be started.
    #[error("cannot start `{program}`: {source}; name a program that exists and is executable")]
    Start {
        /// First word of the command.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// The file for standard input could not be opened.
    #[error("cannot read standard input from {}: {source}", path.display())]
    Input {
        /// The file that was to be read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Standard output or error could not be kept.
    #[error(
        "cannot keep the program's output in a temporary file: {0}; set TMPDIR to a directory \
         with room"
    )]
    Capture(#[source] io::Error),
    /// The end of the process could not be waited for.
    #[error("cannot wait for the program's end: {0}")]
    Wait(#[source] io::Error),
    /// The time allowed for one run went by.
    #[error(
        "was still running after {} s and was {}; allow more with --timeout",
        limit.as_secs_f64(),
        if *killed { "killed, as SIGTERM did not end it" } else { "ended with SIGTERM" }
    )]
    TimedOut {
        /// How long a run may take.
        limit: Duration,
        /// Whether it needed SIGKILL.
        killed: bool,
    },
    /// The arm's report is missing or is not JSON.
    #[error("left no readable report in {}: {reason}", path.display())]
    Report {
        /// The file that could not be read.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The user asked to stop. Not a failure: the comparison ends with what it has.
    #[error("interrupted")]
    Interrupted,
}

/// Runs an arm once. The comparison knows nothing else of the machine.
pub trait Executor {
    /// Runs `arm`; `index` counts all runs of the comparison from 0, warm-up included.
    ///
    /// # Errors
    /// Where the run could not be made, did not end in time, or was interrupted. A run that ended
    /// with a failure is an outcome.
    fn run(&mut self, arm: &Arm, index: usize) -> Result<RunOutcome, RunError>;
}

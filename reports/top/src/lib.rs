//! The live view: what `evenly top` shows.
//!
//! Events of the balancing cycle come in through a [`Feed`], which never makes a balancer wait;
//! [`View`] keeps what is shown, purely; [`render()`] draws it, purely; [`run_terminal`],
//! [`run_plain`] and [`run_json`] are the only parts that do input and output.
//!
//! Invariant of the crate: nothing here changes the program that is shown.

#![forbid(unsafe_code)]

mod feed;
mod json;
mod plain;
mod render;
mod state;
pub mod synthetic;
mod terminal;
mod ui;

use evenly_model::{Nanos, Pid};
use std::env;
use std::io::{self, IsTerminal};

pub use feed::Feed;
pub use json::{SCHEMA, run_json};
pub use plain::run_plain;
pub use render::render;
pub use state::{
    CpuState, DomainState, Happened, Pace, RECENT, Rates, Recent, Row, Shares, Sort, Standing,
    ThreadState, View, WINDOW,
};
pub use terminal::run_terminal;
pub use ui::{Action, Ui};

/// The program that is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The process of evenly that is watched.
    pub pid: Pid,
    /// Its command line; made fit for a screen here.
    pub command: String,
    /// Name of the policy that feeds this view; `observe` moves nothing.
    pub policy: String,
}

impl Header {
    /// Whether the events come from a cycle that moves nothing.
    #[must_use]
    pub fn observes(&self) -> bool {
        self.policy == evenly_policies::watching().name
    }
}

/// Another evenly that balances the program that is shown, or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherEvenly {
    /// The process of evenly that is watched.
    pub pid: Pid,
    /// What it does now.
    pub state: OtherState,
    /// CPU time that the program has handed over so far.
    pub given: Nanos,
}

/// What a balancer does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherState {
    /// It balances a program.
    Working,
    /// It is stopped, or has not answered for so long that its guardian restores all masks.
    Stopped,
    /// The process has ended.
    Gone,
}

impl OtherState {
    /// Its name in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Stopped => "stopped",
            Self::Gone => "gone",
        }
    }
}

/// What is checked again and again while the program is shown.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// Whether no more events will come.
    pub ended: &'a (dyn Fn() -> bool + Sync),
    /// The other evenly that balances the program now, if there is one.
    pub balancer: &'a (dyn Fn() -> Option<OtherEvenly> + Sync),
}

impl<'a> World<'a> {
    /// One without another balancer.
    #[must_use]
    pub fn alone(ended: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Self { ended, balancer: &|| None }
    }
}

/// What the terminal can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Look {
    /// Colours may be used.
    pub color: bool,
    /// Only ASCII may be used.
    pub ascii: bool,
}

impl Look {
    /// As the environment asks: `NO_COLOR` set to anything but the empty text means no
    /// colours; a locale that is not UTF-8 means ASCII.
    #[must_use]
    pub fn from_env() -> Self {
        let value = |name| env::var(name).ok().filter(|v| !v.is_empty());
        let locale = value("LC_ALL").or_else(|| value("LC_CTYPE")).or_else(|| value("LANG"));
        Self {
            color: env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
            ascii: !locale.is_some_and(|l| {
                let l = l.to_ascii_lowercase();
                l.contains("utf-8") || l.contains("utf8")
            }),
        }
    }
}

/// Why a view ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The user has quit.
    Quit,
    /// No more events will come.
    Ended,
    /// The reader closed the output.
    Closed,
    /// This signal has arrived.
    Signal(i32),
}

/// Whether the standard output is a terminal that [`run_terminal`] can draw on.
#[must_use]
pub fn has_terminal() -> bool {
    let dumb = env::var_os("TERM").is_none_or(|t| t.is_empty() || t == "dumb");
    !dumb && io::stdout().is_terminal()
}

//! How far a comparison is, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// A bar over the runs of a comparison, on standard error where that is a terminal; nothing elsewhere.
#[derive(Debug)]
pub struct Bar(ProgressBar);

impl Bar {
    /// One that is drawn anew this often, on the CPUs on which the runs are.
    #[must_use]
    pub fn drawn_every(time: Duration) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::hidden();
        }
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} (eta {eta})") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(time);
        Self(bar)
    }

    /// One that is not shown.
    #[must_use]
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// There will be so many runs.
    pub fn planned(&self, runs: usize) {
        self.0.set_length(runs as u64);
    }

    /// Shows which run has begun.
    pub fn started(&self, what: String) {
        self.0.set_message(what);
    }

    /// One more run has ended.
    pub fn finished(&self) {
        self.0.inc(1);
    }

    /// It goes away; what follows is a table.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}

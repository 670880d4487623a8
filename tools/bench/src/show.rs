//! What is shown: progress while runs are made, tables after them.

use anyhow::Context;
use evenly_compare::{Arm, Bar, Progress, Round};
use evenly_model::Printable;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) use evenly_errors::tell;

/// The same while a bar may be drawn: the line takes its place, and it is drawn anew below.
pub(crate) fn tell_above(line: &str) {
    if io::stderr().is_terminal() {
        // A reader that has gone away is no failure.
        let _ = io::stderr().write_all(b"\r\x1b[2K");
    }
    tell(line);
}

/// Text on standard output.
///
/// # Errors
/// Where it cannot be written; a pipe whose reader has gone away is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match write!(Printable::text(io::stdout()), "{text}").and_then(|()| io::stdout().flush()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => {
            Err(e).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// A flag that SIGINT and SIGTERM set.
///
/// # Errors
/// Where signals cannot be received.
pub(crate) fn interrupts() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, flag.clone()).context("cannot receive signals")?;
    }
    Ok(flag)
}

/// Progress: a bar on a terminal, a line for each run elsewhere.
pub(crate) struct Shown {
    what: String,
    pub(crate) bar: Bar,
    lines: bool,
}

impl Shown {
    /// A bar that shows how far `what` is.
    pub(crate) fn new(what: &str) -> Self {
        // Rarely, for the bar is drawn on the CPUs that are being measured.
        let bar = Bar::drawn_every(Duration::from_secs(1));
        Self { what: what.to_owned(), bar, lines: !io::stderr().is_terminal() }
    }
}

impl Progress for Shown {
    fn planned(&mut self, runs: usize) {
        self.bar.planned(runs);
        if self.lines {
            tell(&format!("{}: {runs} runs", self.what));
        }
    }

    fn started(&mut self, arm: &Arm, round: Round) {
        self.bar.started(format!("{}: {}, {round}", self.what, arm.name));
    }

    fn finished(&mut self, arm: &Arm, round: Round, seconds: f64) {
        self.bar.finished();
        if self.lines {
            tell(&format!("{}: {}, {round}: {seconds:.3} s", self.what, arm.name));
        }
    }

    fn interrupted(&mut self) {
        tell("evenly-bench: interrupted; the figures are those of the runs so far");
    }
}

/// A table: the first column to the left, the others to the right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|c| rows.iter().filter_map(|r| r.get(c)).map(|t| t.chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::from(" ");
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = if i == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
            line.push(' ');
            line.push_str(&cell);
            line.push(' ');
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows =
            [vec!["arm".to_owned(), "s".to_owned()], vec!["a".to_owned(), "1.25".to_owned()]];
        assert_eq!(table(&rows), "  arm     s\n  a    1.25\n");
        assert_eq!(table(&[]), "");
    }
}

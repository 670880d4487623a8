//! The comparison as text for a terminal.
//!
//! Invariant: without colour the text has no control characters but line feeds, whatever the names
//! hold; with and without colour it has the same visible characters.

use crate::comparison::{ArmResult, Comparison};
use crate::statistics::{MIN_RUNS, SOUND_RUNS};
use crate::verdict::{Finding, Verdict};
use crate::warning::{Warning, WarningKind};
use evenly_model::printable;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The control sequences that a table has, where it has colours.
pub const STYLES: &[&str] = &[BOLD, YELLOW, PLAIN];

const BOLD: &str = "\x1b[1m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

/// Table, verdicts and warnings, each line ended by a line feed. The caller decides on `colour`
/// (a terminal, and no `NO_COLOR`).
#[must_use]
pub fn table(comparison: &Comparison, colour: bool) -> String {
    let (bold, yellow, plain) = if colour { (BOLD, YELLOW, PLAIN) } else { ("", "", "") };
    let rows = rows(comparison);
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        let line = line.trim_end();
        let _ = match index {
            0 => writeln!(text, "{bold}{line}{plain}"),
            _ => writeln!(text, "{line}"),
        };
    }
    if comparison.verdicts.iter().any(|verdict| verdict.finding == Finding::Faster) {
        text.push_str("* a difference that these runs show\n");
    }
    if !comparison.verdicts.is_empty() {
        text.push('\n');
    }
    let few: Vec<&Verdict> =
        comparison.verdicts.iter().filter(|v| v.finding == Finding::TooFewRuns).collect();
    // The reason is the same for all pairs.
    let once = few.len() > 1;
    if once {
        let _ = writeln!(text, "{}", printable(&all_too_few(comparison)));
    }
    for verdict in &comparison.verdicts {
        let _ = match verdict.finding {
            Finding::TooFewRuns if once => continue,
            Finding::Faster => writeln!(text, "{bold}{}{plain}", printable(&verdict.text)),
            _ => writeln!(text, "{}", printable(&verdict.text)),
        };
    }
    if let Some(r) = &comparison.recommended {
        let line = format!("recommended: {}, as {}", r.policy, r.reason);
        let _ = writeln!(text, "{}", printable(&line));
    }
    // And is not said again below.
    let said = |w: &&Warning| few.is_empty() || w.kind != WarningKind::TooFewRuns;
    if comparison.warnings.iter().any(|w| said(&w)) {
        text.push('\n');
    }
    for warning in comparison.warnings.iter().filter(said) {
        let _ = writeln!(text, "{yellow}warning:{plain} {}", printable(&warning.text));
    }
    text
}

/// One sentence for all pairs that have too few runs.
fn all_too_few(comparison: &Comparison) -> String {
    let names: BTreeSet<&str> = comparison
        .verdicts
        .iter()
        .filter(|v| v.finding == Finding::TooFewRuns)
        .flat_map(|v| v.policies.iter().map(String::as_str))
        .collect();
    let concerned = comparison.results.iter().filter(|r| names.contains(r.policy.as_str()));
    let least = concerned.clone().map(|r| r.seconds.len()).min().unwrap_or(0);
    let names: Vec<&str> = concerned.map(|r| r.policy.as_str()).collect();
    format!(
        "{}: too few runs to say anything ({least} where {MIN_RUNS} are the least; try --runs \
         {SOUND_RUNS})",
        names.join(", ")
    )
}

/// Heading and one row per policy.
fn rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let longest = comparison.results.iter().filter_map(|r| r.max_s).fold(0.0, f64::max);
    let (unit, factor) = if longest < 1.0 { ("ms", 1e3) } else { ("s", 1.0) };
    let time = |value: Option<f64>| value.map_or_else(dash, |v| format!("{:.3}", v * factor));
    let mut heading: Vec<String> = ["policy", "runs"].map(str::to_owned).to_vec();
    heading.extend(["median", "95 % interval", "min", "max"].map(|h| format!("{h} {unit}")));
    if comparison.bound_s.is_some() {
        heading.push("% of bound".to_owned());
    }
    heading.extend(comparison.results.iter().map(|r| format!("vs {} ", printable(&r.policy))));
    let mut rows = vec![heading];
    for result in &comparison.results {
        let interval = result
            .ci95_s
            .map_or_else(dash, |[low, high]| format!("{:.3} - {:.3}", low * factor, high * factor));
        let mut row = vec![
            printable(&result.policy).into_owned(),
            result.seconds.len().to_string(),
            time(result.median_s),
            interval,
            time(result.min_s),
            time(result.max_s),
        ];
        if comparison.bound_s.is_some() {
            row.push(result.bound_percent.map_or_else(dash, |percent| format!("{percent:.1}")));
        }
        row.extend(comparison.results.iter().map(|other| against(comparison, result, other)));
        rows.push(row);
    }
    rows
}

/// The speedup of one policy over another, starred where the runs show a difference.
fn against(comparison: &Comparison, result: &ArmResult, other: &ArmResult) -> String {
    let Some(speedup) = result.speedup_vs.get(&other.policy) else { return dash() + " " };
    let pair = [&result.policy, &other.policy];
    let shown = comparison.verdicts.iter().any(|verdict| {
        verdict.finding == Finding::Faster && pair.iter().all(|p| verdict.policies.contains(p))
    });
    format!("{:.3}{}", speedup.ratio, if shown { "*" } else { " " })
}

fn dash() -> String {
    "-".to_owned()
}

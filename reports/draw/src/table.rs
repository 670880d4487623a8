//! Numbers as text, and tables of them.
//!
//! Invariant: a number reads the same on every machine: a fixed number of decimals, no exponent.

use std::fmt::Write;

/// A table, of which page and CSV have the same cells.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Name of its file, without ending.
    pub name: String,
    /// Its columns: the name in the CSV, and on the page.
    pub columns: Vec<(&'static str, &'static str)>,
    /// Its rows, as long as there are columns. A cell without text: there is no such number.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The data. Cells have no commas.
    #[must_use]
    pub fn csv(&self) -> String {
        let head: Vec<&str> = self.columns.iter().map(|c| c.0).collect();
        let rows = self.rows.iter().map(|r| r.join(",") + "\n");
        std::iter::once(head.join(",") + "\n").chain(rows).collect()
    }

    /// As Markdown, numbers to the right.
    #[must_use]
    pub fn markdown(&self) -> String {
        let head: Vec<&str> = self.columns.iter().map(|c| c.1).collect();
        let numbers =
            |c: usize| self.rows.iter().all(|r| r[c].parse::<f64>().is_ok() || r[c].is_empty());
        let rule: Vec<&str> =
            (0..head.len()).map(|c| if numbers(c) { "---:" } else { "---" }).collect();
        let mut t = format!("| {} |\n|{}|\n", head.join(" | "), rule.join("|"));
        for row in &self.rows {
            let _ = writeln!(t, "| {} |", row.join(" | "));
        }
        t
    }
}

/// With so many decimals; never -0.
#[must_use]
pub fn decimals(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let zero = text.bytes().all(|b| matches!(b, b'-' | b'0' | b'.'));
    if zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// With at most six decimals, and no zeros at the end.
#[must_use]
pub fn number(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { String::from("0") } else { text.to_owned() }
}

/// Without decimals; never -0.
#[must_use]
pub fn whole(value: f64) -> String {
    number(value.round())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables() {
        let row = |a: &str, b: &str, c: &str| [a, b, c].map(str::to_owned).to_vec();
        let t = Table {
            name: String::from("t"),
            columns: vec![("who", "who"), ("time_s", "time s"), ("more", "more")],
            rows: vec![row("a", "1.5", ""), row("b", "", "x")],
        };
        assert_eq!(t.csv(), "who,time_s,more\na,1.5,\nb,,x\n");
        let page = "| who | time s | more |\n|---|---:|---|\n| a | 1.5 |  |\n| b |  | x |\n";
        assert_eq!(t.markdown(), page);
        assert_eq!([-0.001, -0.5, 12.347].map(|v| decimals(v, 2)), ["0.00", "-0.50", "12.35"]);
    }

    #[test]
    fn numbers() {
        let all = [0.0, -1e-9, 1.0, 10.0, 0.25, 2.0 / 3.0, 1_000_000.0].map(number);
        assert_eq!(all, ["0", "0", "1", "10", "0.25", "0.666667", "1000000"]);
    }
}

//! Which ranks computed and which waited, over time: traces of ranks as the HPCSched paper draws them, runs below
//! each other on one axis.
//!
//! Invariant: what is drawn is what stands in the CSV: one row for each iteration of a rank that begins
//! in the time that is shown.

use evenly_draw::{self as draw, number};
use evenly_power5::{Did, Run};
use std::fmt::Write;

/// Runs, and what is shown of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Traces {
    runs: Vec<(String, Vec<Vec<Did>>)>,
    from_s: f64,
    to_s: f64,
}

const WIDTH: f64 = 720.0;
const LEFT: f64 = 48.0;
const RIGHT: f64 = 16.0;
const ROW: f64 = 12.0;
const BAR: f64 = 10.0;
/// What is shorter on the picture is not drawn as a gap.
const GAP: f64 = 0.3;
/// The colours of the priorities 4, 5 and 6.
const COLOURS: [(u8, usize); 3] = [(4, 0), (5, 2), (6, 1)];

impl Traces {
    /// Of runs with their labels, from one moment to another.
    pub(crate) fn new<'a>(
        runs: impl Iterator<Item = (&'a str, &'a Run)>,
        from_s: f64,
        to_s: f64,
    ) -> Self {
        let shown = |d: &&Did| (from_s..to_s).contains(&d.from_s);
        let of = |r: &Run| {
            let ranks = r.did.iter();
            ranks.map(|did| did.iter().filter(shown).copied().collect()).collect()
        };
        let runs = runs.map(|(label, r)| (label.to_owned(), of(r))).collect();
        Self { runs, from_s, to_s }
    }

    pub(crate) fn csv(&self) -> String {
        let mut out = String::from("run,process,from_s,computed_s,waited_s,priority\n");
        for (label, ranks) in &self.runs {
            for (i, did) in ranks.iter().enumerate() {
                for d in did {
                    let [from, computed, waited] = [d.from_s, d.computed_s, d.waited_s].map(number);
                    let _ = writeln!(
                        out,
                        "{label},P{},{from},{computed},{waited},{}",
                        i + 1,
                        d.priority
                    );
                }
            }
        }
        out
    }

    fn x(&self, at: f64) -> f64 {
        let part = (at - self.from_s) / (self.to_s - self.from_s).max(1e-9);
        LEFT + part.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    pub(crate) fn svg(&self, title: &str) -> String {
        let mut body = String::new();
        let _ = write!(body, r#"<text class="title" x="16" y="26">{}</text>"#, draw::escape(title));
        let mut x = LEFT;
        for (priority, colour) in COLOURS {
            let text = format!("computing, priority {priority}");
            x = key(&mut body, x, &format!("c{colour}"), &text);
        }
        key(&mut body, x, "row", "waiting");
        let mut y = 62.0;
        let top = y;
        let mut rows = String::new();
        for (label, ranks) in &self.runs {
            y += 14.0;
            let _ = write!(
                rows,
                r#"<text class="head" x="{LEFT}" y="{y:.0}">{}</text>"#,
                draw::escape(label)
            );
            y += 5.0;
            for (i, did) in ranks.iter().enumerate() {
                self.rank(&mut rows, i, did, y);
                y += ROW;
            }
            self.bars(&mut rows, ranks, y - ROW * ranks.len() as f64);
            y += 4.0;
        }
        let step = draw::step(self.to_s - self.from_s, 7.0);
        let (unit, factor) = if self.to_s - self.from_s < 0.1 { ("ms", 1e3) } else { ("s", 1.0) };
        let decimals = (-(step * factor * 1.001).log10().floor()).clamp(0.0, 6.0) as usize;
        let first = (self.from_s / step).ceil() as u64;
        let ticks = (first..first + 20).map(|k| k as f64 * step);
        for at in ticks.take_while(|at| *at <= self.to_s) {
            let x = self.x(at);
            let _ = write!(
                body,
                r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{top}" y2="{y:.0}"/><text class="dim" text-anchor="middle" x="{x:.1}" y="{:.0}">{:.decimals$} {unit}</text>"#,
                y + 15.0,
                at * factor
            );
        }
        body.push_str(&rows);
        draw::document(WIDTH, y + 24.0, &body)
    }

    /// The name of a rank and the time that it was there: what is not covered later it waited.
    fn rank(&self, out: &mut String, i: usize, did: &[Did], y: f64) {
        let end = |d: &Did| d.from_s + d.computed_s + d.waited_s;
        let (from, to) = match (did.first(), did.last()) {
            (Some(first), Some(last)) => (self.x(first.from_s), self.x(end(last))),
            _ => return,
        };
        let _ = write!(
            out,
            r#"<text class="dim" text-anchor="end" x="{:.0}" y="{:.0}">P{}</text><rect class="row" x="{from:.1}" y="{y:.0}" width="{:.1}" height="{BAR}"/>"#,
            LEFT - 8.0,
            y + 9.0,
            i + 1,
            to - from
        );
    }

    /// The computing of all ranks: one path for each colour.
    fn bars(&self, out: &mut String, ranks: &[Vec<Did>], top: f64) {
        for (priority, colour) in COLOURS {
            let mut path = String::new();
            for (i, did) in ranks.iter().enumerate() {
                let y = top + ROW * i as f64;
                let mut open: Option<(f64, f64)> = None;
                let of = did.iter().filter(|d| d.priority == priority);
                let pieces = of.map(|d| (self.x(d.from_s), self.x(d.from_s + d.computed_s)));
                for (from, to) in pieces {
                    match &mut open {
                        Some(o) if from - o.1 < GAP => o.1 = to,
                        _ => {
                            bar(&mut path, open, y);
                            open = Some((from, to));
                        }
                    }
                }
                bar(&mut path, open, y);
            }
            if !path.is_empty() {
                let _ = write!(out, r#"<path class="c{colour}" d="{path}"/>"#);
            }
        }
    }
}

fn bar(path: &mut String, piece: Option<(f64, f64)>, y: f64) {
    let Some((from, to)) = piece else { return };
    let _ = write!(path, "M{from:.1} {y:.0}H{to:.1}v{BAR}H{from:.1}z");
}

/// A field of the legend; where the next one begins.
fn key(out: &mut String, x: f64, class: &str, text: &str) -> f64 {
    let _ = write!(
        out,
        r#"<rect class="{class}" x="{x:.0}" y="38" width="11" height="11"/><text x="{:.0}" y="48">{text}</text>"#,
        x + 15.0
    );
    x + 28.0 + 6.4 * text.chars().count() as f64
}

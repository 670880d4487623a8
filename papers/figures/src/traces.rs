//! Which ranks computed and which waited, over time: traces of ranks as the HPCSched paper draws them, runs below
//! each other on one axis.
//!
//! Invariant: what is drawn is what stands in the CSV: one row for each iteration of a rank that begins
//! in the time that is shown.

use evenly_draw::{self as draw, Anchor, Canvas, Paint, Path, number};
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
        let mut body = Canvas::default();
        body.text("title", Anchor::Start, (16.0, 26.0), title);
        let mut x = LEFT;
        for (priority, colour) in COLOURS {
            let text = format!("computing, priority {priority}");
            x = key(&mut body, x, Paint::fill(colour), &text);
        }
        key(&mut body, x, "row".into(), "waiting");
        let mut y = 62.0;
        let top = y;
        let mut rows = Canvas::default();
        for (label, ranks) in &self.runs {
            y += 14.0;
            rows.text("head", Anchor::Start, (LEFT, y), label);
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
        for (at, text) in draw::ticks(self.from_s, self.to_s, step, factor, unit) {
            let x = self.x(at);
            body.line("grid", (x, top), (x, y));
            body.text("dim", Anchor::Middle, (x, y + 15.0), &text);
        }
        body.add(&rows);
        body.document(WIDTH, y + 24.0, "")
    }

    /// The name of a rank and the time that it was there: what is not covered later it waited.
    fn rank(&self, out: &mut Canvas, i: usize, did: &[Did], y: f64) {
        let end = |d: &Did| d.from_s + d.computed_s + d.waited_s;
        let (from, to) = match (did.first(), did.last()) {
            (Some(first), Some(last)) => (self.x(first.from_s), self.x(end(last))),
            _ => return,
        };
        out.text("dim", Anchor::End, (LEFT - 8.0, y + 9.0), &format!("P{}", i + 1));
        out.rect("row", (from, y), (to - from, BAR));
    }

    /// The computing of all ranks: one path for each colour.
    fn bars(&self, out: &mut Canvas, ranks: &[Vec<Did>], top: f64) {
        for (priority, colour) in COLOURS {
            let mut path = Path::default();
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
                out.path(Paint::fill(colour), &path);
            }
        }
    }
}

fn bar(path: &mut Path, piece: Option<(f64, f64)>, y: f64) {
    if let Some((from, to)) = piece {
        path.bar((from, y), to, BAR);
    }
}

/// A field of the legend; where the next one begins.
fn key(out: &mut Canvas, x: f64, paint: Paint<'_>, text: &str) -> f64 {
    out.rect(paint, (x, 38.0), (11.0, 11.0));
    out.text("", Anchor::Start, (x + 15.0, 48.0), text);
    x + 28.0 + 6.4 * text.chars().count() as f64
}

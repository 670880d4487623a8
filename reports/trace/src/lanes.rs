//! The time line that pages and pictures share: its axis, its rows, its legend.
//!
//! Invariant: no text from a recording gets into a document but through [`escape`].

use crate::timeline::{Cast, Span, Timeline};
use evenly_draw::{COLOURS, escape, step};
use evenly_model::{CpuId, Nanos};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Threads that a legend names.
const LEGEND: usize = 24;

/// Most rows that a time line draws.
pub(crate) const MAX_ROWS: usize = 256;

/// Left of the time axis, for the names of the rows.
pub(crate) const LEFT: f64 = 64.0;
/// Right of it.
pub(crate) const RIGHT: f64 = 16.0;

/// Where times fall on a drawing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeAxis {
    /// The time at its right end, in nanoseconds; at least 1.
    pub(crate) end: u64,
    /// Width of the whole drawing.
    pub(crate) width: f64,
}

impl TimeAxis {
    pub(crate) fn x(&self, at: u64) -> f64 {
        LEFT + (at as f64 / self.end.max(1) as f64).min(1.0) * (self.width - LEFT - RIGHT)
    }

    /// Ticks with their texts.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let seconds = self.end.max(1) as f64 / 1e9;
        let step = step(seconds, (self.width / 110.0).clamp(2.0, 12.0));
        let (unit, factor) = if seconds < 1e-4 {
            ("us", 1e6)
        } else if seconds < 0.1 {
            ("ms", 1e3)
        } else {
            ("s", 1.0)
        };
        let decimals = (-(step * factor * 1.001).log10().floor()).clamp(0.0, 6.0) as usize;
        (0..=20)
            .map(|i| f64::from(i) * step)
            .take_while(|t| *t <= seconds * 1.000_001)
            .map(|t| (self.x((t * 1e9) as u64), format!("{:.decimals$} {unit}", t * factor)))
            .collect()
    }

    /// Vertical lines from `top` to `bottom`, with texts below if wanted.
    pub(crate) fn draw(&self, out: &mut String, top: f64, bottom: f64, texts: bool) {
        for (x, text) in self.ticks() {
            let _ = write!(
                out,
                r#"<line class="grid" x1="{x:.1}" x2="{x:.1}" y1="{top:.1}" y2="{bottom:.1}"/>"#
            );
            if texts {
                let _ = write!(
                    out,
                    r#"<text class="dim" text-anchor="middle" x="{x:.1}" y="{:.1}">{text}</text>"#,
                    bottom + 15.0
                );
            }
        }
    }
}

/// Height of a row, by how many there are.
fn row_height(rows: usize) -> f64 {
    (560.0 / rows.max(1) as f64).clamp(7.0, 34.0)
}

/// How a panel came out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Panel {
    pub(crate) height: f64,
    /// Whether spans were summed up, and rows left out.
    pub(crate) summed: bool,
    pub(crate) rows_left_out: usize,
}

/// Draws the rows of one recording from `top` down.
pub(crate) fn panel(
    out: &mut String,
    timeline: &Timeline,
    cast: &Cast,
    axis: TimeAxis,
    top: f64,
    most_spans: usize,
    tooltips: bool,
) -> Panel {
    let (rows, summed) = timeline.reduced(most_spans);
    let shown: BTreeMap<CpuId, Vec<Span>> = rows.into_iter().take(MAX_ROWS).collect();
    let rows_left_out = timeline.rows.len() - shown.len();
    let height = row_height(shown.len());
    let gap = if height > 12.0 { 4.0 } else { 1.0 };
    let mut y = top;
    for &(start, end) in merged_pauses(timeline, most_spans).iter() {
        let (x, w) = (axis.x(start), (axis.x(end) - axis.x(start)).max(0.5));
        let _ = write!(
            out,
            r#"<rect class="pause" x="{x:.2}" y="{:.1}" width="{w:.2}" height="3"><title>balancing paused, to measure its effect: {}</title></rect>"#,
            y - 4.5,
            stretch(start, end)
        );
    }
    let name_every = (14.0 / height).ceil().max(1.0) as usize;
    for (i, (cpu, spans)) in shown.iter().enumerate() {
        let inner = height - gap;
        let _ = write!(
            out,
            r#"<rect class="row" x="{:.1}" y="{y:.1}" width="{:.1}" height="{inner:.1}"/>"#,
            axis.x(0),
            axis.x(timeline.end) - axis.x(0)
        );
        if i % name_every == 0 {
            let _ = write!(
                out,
                r#"<text text-anchor="end" x="{:.1}" y="{:.1}">CPU {cpu}</text>"#,
                LEFT - 8.0,
                y + inner / 2.0 + 4.0
            );
        }
        for span in spans {
            draw_span(out, span, cast, *cpu, axis, y, inner, tooltips);
        }
        y += height;
    }
    Panel { height: y - top, summed, rows_left_out }
}

/// Pauses, of which a long recording has more than can be seen.
fn merged_pauses(timeline: &Timeline, most: usize) -> Vec<(u64, u64)> {
    let closest = timeline.end / most.max(1) as u64;
    let mut out: Vec<(u64, u64)> = Vec::new();
    for &(start, end) in &timeline.paused {
        match out.last_mut() {
            Some(last) if start.saturating_sub(last.1) <= closest => last.1 = end.max(last.1),
            _ => out.push((start, end)),
        }
    }
    out
}

#[expect(clippy::too_many_arguments, reason = "a drawing routine: all are coordinates or context")]
fn draw_span(
    out: &mut String,
    span: &Span,
    cast: &Cast,
    cpu: CpuId,
    axis: TimeAxis,
    top: f64,
    height: f64,
    tooltips: bool,
) {
    let (x, w) = (axis.x(span.start), axis.x(span.end) - axis.x(span.start));
    let mut y = top;
    for (thread, share) in span.shares() {
        let h = share * height;
        let _ = write!(
            out,
            r#"<rect class="c{}" x="{x:.2}" y="{y:.2}" width="{w:.2}" height="{h:.2}""#,
            thread % COLOURS
        );
        if tooltips {
            let name = cast.actors.get(thread).map(|a| a.label()).unwrap_or_default();
            let _ = write!(
                out,
                "><title>{}: {:.0} % of CPU {cpu}, {}</title></rect>",
                escape(&name),
                share * 100.0,
                stretch(span.start, span.end)
            );
        } else {
            out.push_str("/>");
        }
        y += h;
    }
}

/// `1.250 s to 1.260 s`.
pub(crate) fn stretch(start: u64, end: u64) -> String {
    format!("{} to {}", seconds(start), seconds(end))
}

/// A time with milliseconds, or finer where the whole is short.
pub(crate) fn seconds(at: u64) -> String {
    if at < 10_000_000 && at > 0 {
        return Nanos(at).to_string();
    }
    format!("{:.3} s", Nanos(at).as_secs_f64())
}

/// Draws the names of the threads with their colours, from `top` down. Its height.
pub(crate) fn legend(out: &mut String, names: &[String], width: f64, top: f64) -> f64 {
    let (mut x, mut y) = (LEFT, top);
    let more = names.len().saturating_sub(LEGEND);
    let mut entry = |class: Option<usize>, text: &str| {
        let shown: String = text.chars().take(32).collect();
        let w = 22.0 + 7.2 * shown.chars().count() as f64;
        if x + w > width - RIGHT && x > LEFT {
            x = LEFT;
            y += 18.0;
        }
        if let Some(i) = class {
            let _ = write!(
                out,
                r#"<rect class="c{i}" x="{x:.1}" y="{:.1}" width="11" height="11"/>"#,
                y - 10.0
            );
        }
        let _ = write!(out, r#"<text x="{:.1}" y="{y:.1}">{}</text>"#, x + 15.0, escape(&shown));
        x += w;
    };
    for (i, name) in names.iter().take(LEGEND).enumerate() {
        entry(Some(i % COLOURS), name);
    }
    if more > 0 {
        entry(None, &format!("and {more} more, in the same colours"));
    }
    y - top + 18.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        let texts = |end| {
            TimeAxis { end, width: 1000.0 }.ticks().into_iter().map(|t| t.1).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(4_000_000_000),
            ["0.0 s", "0.5 s", "1.0 s", "1.5 s", "2.0 s", "2.5 s", "3.0 s", "3.5 s", "4.0 s"]
        );
        assert_eq!(texts(50_000_000), ["0 ms", "10 ms", "20 ms", "30 ms", "40 ms", "50 ms"]);
        assert!(!texts(0).is_empty());
    }

    proptest! {
        #[test]
        fn axes_are_finite_and_few(end in any::<u64>(), at in any::<u64>()) {
            let axis = TimeAxis { end, width: 1000.0 };
            prop_assert!((LEFT..=1000.0).contains(&axis.x(at)));
            prop_assert!(axis.ticks().len() <= 21);
        }
    }
}

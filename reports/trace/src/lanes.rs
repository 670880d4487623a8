//! The time line that pages and pictures share: its axis, its rows, its legend.

use crate::timeline::{Cast, Span, Timeline};
use evenly_draw::{Anchor, Canvas, Paint, step, ticks};
use evenly_model::{CpuId, Nanos};
use std::collections::BTreeMap;

/// Threads that a legend names.
const LEGEND: usize = 24;

/// Most rows that a time line draws.
pub(crate) const MAX_ROWS: usize = 256;

/// Left of the time axis, for the names of the rows.
pub(crate) const LEFT: f64 = 64.0;
/// What is left free at the right.
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
        let all = ticks(0.0, seconds, step, factor, unit).into_iter();
        all.map(|(t, text)| (self.x((t * 1e9) as u64), text)).collect()
    }

    /// Vertical lines from `top` to `bottom`, and their texts below.
    pub(crate) fn draw(&self, out: &mut Canvas, top: f64, bottom: f64) {
        for (x, text) in self.ticks() {
            out.line("grid", (x, top), (x, bottom));
            out.text("dim", Anchor::Middle, (x, bottom + 15.0), &text);
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
    out: &mut Canvas,
    timeline: &Timeline,
    cast: &Cast,
    axis: TimeAxis,
    top: f64,
    most_spans: usize,
) -> Panel {
    let (rows, summed) = timeline.reduced(most_spans);
    let shown: BTreeMap<CpuId, Vec<Span>> = rows.into_iter().take(MAX_ROWS).collect();
    let rows_left_out = timeline.rows.len() - shown.len();
    let height = row_height(shown.len());
    let gap = if height > 12.0 { 4.0 } else { 1.0 };
    let mut y = top;
    for &(start, end) in merged_pauses(timeline, most_spans).iter() {
        let (x, w) = (axis.x(start), (axis.x(end) - axis.x(start)).max(0.5));
        let when = stretch(start, end);
        let what = format!("balancing paused, to measure its effect: {when}");
        out.rect(Paint::from("pause").titled(what), (x, y - 4.5), (w, 3.0));
    }
    let name_every = (14.0 / height).ceil().max(1.0) as usize;
    for (i, (cpu, spans)) in shown.iter().enumerate() {
        let inner = height - gap;
        out.rect("row", (axis.x(0), y), (axis.x(timeline.end) - axis.x(0), inner));
        if i % name_every == 0 {
            let at = (LEFT - 8.0, y + inner / 2.0 + 4.0);
            out.text("", Anchor::End, at, &format!("CPU {cpu}"));
        }
        for span in spans {
            draw_span(out, span, cast, *cpu, axis, y, inner);
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

fn draw_span(
    out: &mut Canvas,
    span: &Span,
    cast: &Cast,
    cpu: CpuId,
    axis: TimeAxis,
    top: f64,
    height: f64,
) {
    let (x, w) = (axis.x(span.start), axis.x(span.end) - axis.x(span.start));
    let mut y = top;
    for (thread, share) in span.shares() {
        let h = share * height;
        let name = cast.actors.get(thread).map(|a| a.label()).unwrap_or_default();
        let (percent, when) = (share * 100.0, stretch(span.start, span.end));
        let what = format!("{name}: {percent:.0} % of CPU {cpu}, {when}");
        out.rect(Paint::fill(thread).titled(what), (x, y), (w, h));
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
pub(crate) fn legend(out: &mut Canvas, names: &[String], width: f64, top: f64) -> f64 {
    let (mut x, mut y) = (LEFT, top);
    let more = names.len().saturating_sub(LEGEND);
    let mut entry = |colour: Option<usize>, text: &str| {
        let shown: String = text.chars().take(32).collect();
        let w = 22.0 + 7.2 * shown.chars().count() as f64;
        if x + w > width - RIGHT && x > LEFT {
            x = LEFT;
            y += 18.0;
        }
        if let Some(colour) = colour {
            out.rect(Paint::fill(colour), (x, y - 10.0), (11.0, 11.0));
        }
        out.text("", Anchor::Start, (x + 15.0, y), &shown);
        x += w;
    };
    for (i, name) in names.iter().take(LEGEND).enumerate() {
        entry(Some(i), name);
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

//! What pages and pictures share: escaping, colours, axes, the time line itself.
//!
//! Invariant: no text from a recording gets into a document but through [`escape`], and no number
//! but through formatting that yields a finite one.

use crate::timeline::{Cast, Span, Timeline};
use evenly_model::{CpuId, Nanos};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Colours that people with any of the common colour blindnesses can tell apart (Okabe and Ito).
const HUES: [(u8, u8, u8); 8] = [
    (0x00, 0x72, 0xb2),
    (0xe6, 0x9f, 0x00),
    (0x00, 0x9e, 0x73),
    (0xcc, 0x79, 0xa7),
    (0x56, 0xb4, 0xe9),
    (0xd5, 0x5e, 0x00),
    (0xf0, 0xe4, 0x42),
    (0x8a, 0x8a, 0x8a),
];

/// How many colours there are; more threads than that share them.
pub const COLOURS: usize = HUES.len() * 3;

/// Threads that a legend names.
const LEGEND: usize = 24;

/// Most rows that a time line draws.
pub(crate) const MAX_ROWS: usize = 256;

/// Left of the time axis, for the names of the rows.
pub(crate) const LEFT: f64 = 64.0;
/// Right of it.
pub(crate) const RIGHT: f64 = 16.0;

/// The text for use between tags and in quoted attributes of XML and HTML. Characters that XML does
/// not allow are replaced.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' | '\r' => out.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                out.push(char::REPLACEMENT_CHARACTER);
            }
            c => out.push(c),
        }
    }
    out
}

/// Colour number `i` as CSS.
fn colour(i: usize) -> String {
    let (r, g, b) = HUES[i % HUES.len()];
    let mix = |v: u8| -> u8 {
        let v = u32::from(v);
        let mixed = match i / HUES.len() % 3 {
            0 => v,
            1 => v * 55 / 100,
            _ => (v * 45 + 255 * 55) / 100,
        };
        mixed.min(255) as u8
    };
    format!("#{:02x}{:02x}{:02x}", mix(r), mix(g), mix(b))
}

/// A whole picture around its content.
#[must_use]
pub fn document(width: f64, height: f64, body: &str) -> String {
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}"><style>{}</style><rect class="bg" width="{width:.0}" height="{height:.0}"/>{body}</svg>
"#,
        style()
    )
}

/// The style sheet of every drawing. `media` can limit the dark variant to those who ask for it.
#[must_use]
pub fn style() -> String {
    let mut css = String::from(
        "text{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#222}\
         .head{font-weight:600;font-size:13px}.title{font-weight:600;font-size:16px}\
         .dim{fill:#666}.bg{fill:#fff}.row{fill:#eef0f2}.grid{stroke:#c8ccd0;stroke-width:.6}\
         .pause{fill:#b00;opacity:.75}.mark{stroke:#222;stroke-width:1.4}\
         .line{fill:none;stroke-width:1.3}.band{fill:#0072b2;opacity:.35}",
    );
    for i in 0..COLOURS {
        let c = colour(i);
        let _ = write!(css, ".c{i}{{fill:{c}}}.l{i}{{stroke:{c}}}");
    }
    css.push_str(
        "@media(prefers-color-scheme:dark){text{fill:#e4e6e8}.dim{fill:#9aa0a6}.bg{fill:#15181b}\
         .row{fill:#24292e}.grid{stroke:#454b52}.pause{fill:#ff6b6b}.mark{stroke:#e4e6e8}\
         .l0{stroke:#3d9bd6}.c0{fill:#2a86c4}}",
    );
    css
}

/// Steps of 1, 2 or 5 such that `span` has about `about` of them; never more than 20.
#[must_use]
pub fn step(span: f64, about: f64) -> f64 {
    let raw = (span / about).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let unit = raw / power;
    power
        * if unit <= 1.0 {
            1.0
        } else if unit <= 2.0 {
            2.0
        } else if unit <= 5.0 {
            5.0
        } else {
            10.0
        }
}

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
            r#"<rect class="pause" x="{x:.2}" y="{:.1}" width="{w:.2}" height="3"><title>balancing paused, to measure what it is worth: {}</title></rect>"#,
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
    fn text_is_harmless() {
        assert_eq!(
            escape("a<b>&\"'\n\0\u{1b}[1m\u{ffff}"),
            "a&lt;b&gt;&amp;&quot;&#39; \u{fffd}\u{fffd}[1m\u{fffd}"
        );
    }

    #[test]
    fn colours_differ() {
        let all: std::collections::BTreeSet<String> = (0..COLOURS).map(colour).collect();
        assert_eq!(all.len(), COLOURS);
        assert_eq!(colour(0), colour(COLOURS));
    }

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

//! What all pictures share: escaping, colours, shapes; charts, heat maps and tables that are made from data.
//!
//! Invariant: no text from outside gets into a document but through [`escape`]. The elements of pictures are
//! written by [`Canvas`] only.

#![forbid(unsafe_code)]

mod chart;
mod heat;
mod matrix;
mod shapes;
mod table;

pub use chart::{Axis, Chart, Look, Scale, Series, value_at};
pub use heat::{Field, HeatMap, LEVELS, heat_colours};
pub use matrix::{Matrix, Named, Tile};
pub use shapes::{Anchor, Canvas, Paint, Path};
pub use table::{Table, decimals, number, whole};

use evenly_model::is_printable;
use std::fmt::Write;

/// Colours that people with any of the common colour blindnesses can distinguish (Okabe and Ito).
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

/// The text for use between tags and in quoted attributes of XML and HTML. Characters that XML does
/// not allow are replaced, and so are those that are invisible or turn the direction of text.
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
            c if !is_printable(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
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

/// The style sheet of every drawing. `media` can limit the dark variant to pages that ask for it.
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

/// The multiples of `step` between two values, 21 at most, and their texts: the value times `factor`, with the
/// decimals that the step needs, and the unit.
#[must_use]
pub fn ticks(from: f64, to: f64, step: f64, factor: f64, unit: &str) -> Vec<(f64, String)> {
    let decimals = (-(step * factor * 1.001).log10().floor()).clamp(0.0, 6.0) as usize;
    let space = if unit.is_empty() { "" } else { " " };
    let first = (from / step - 1e-6).ceil();
    // Adding zero makes a negative zero positive.
    (0..=20)
        .map(|i| (first + f64::from(i)) * step + 0.0)
        .take_while(|value| *value <= to + step * 1e-6)
        .map(|value| (value, format!("{:.decimals$}{space}{unit}", value * factor)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_harmless() {
        assert_eq!(
            escape("a<b>&\"'\n\0\u{1b}[1m\u{ffff}"),
            "a&lt;b&gt;&amp;&quot;&#39; \u{fffd}\u{fffd}[1m\u{fffd}"
        );
    }

    #[test]
    fn ticks_are_round() {
        let texts = |from, to, step| -> Vec<String> {
            ticks(from, to, step, 1e3, "ms").into_iter().map(|t| t.1).collect()
        };
        assert_eq!(texts(-0.001, 0.001, 0.001), ["-1 ms", "0 ms", "1 ms"]);
        assert_eq!(texts(0.0003, 0.0011, 0.0005), ["0.5 ms", "1.0 ms"]);
        assert_eq!(texts(0.0, 1e9, 1.0).len(), 21);
    }

    #[test]
    fn colours_differ() {
        let all: std::collections::BTreeSet<String> = (0..COLOURS).map(colour).collect();
        assert_eq!(all.len(), COLOURS);
        assert_eq!(colour(0), colour(COLOURS));
    }
}

//! Heat maps.
//!
//! Invariant: what is drawn is what stands in the CSV, rounded to a level of colour.

use crate::{self as draw, Anchor, Axis, Canvas, Paint, Path, number};
use std::fmt::Write;

/// One field of a heat map.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    /// From left, from 0.
    pub column: usize,
    /// From below, from 0.
    pub row: usize,
    /// What is shown: the mean of all runs that fall here.
    pub mean: f64,
    /// The greatest of them.
    pub most: f64,
    /// How many they are.
    pub runs: u64,
}

/// Values over a grid.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The column of the CSV with the value.
    pub column: &'static str,
    /// What the value is.
    pub label: &'static str,
    /// Left edge of the first column, and the width of a column.
    pub columns: (f64, f64),
    /// Lower edge of the first row, and the height of a row.
    pub rows: (f64, f64),
    /// How many columns and rows there are.
    pub size: (usize, usize),
    /// The value of the first level of colour, and the step from one to the next.
    pub levels: (f64, f64),
    /// The fields, by column and row.
    pub fields: Vec<Field>,
}

/// How many levels of colour there are.
pub const LEVELS: usize = 20;

const LEFT: f64 = 60.0;
const TOP: f64 = 52.0;
const PLOT: (f64, f64) = (560.0, 300.0);
const WIDTH: f64 = 720.0;

/// From dark to bright, so that it reads without colour as well (after matplotlib's viridis).
const RAMP: [(f64, f64, f64); 6] = [
    (68.0, 1.0, 84.0),
    (65.0, 68.0, 135.0),
    (42.0, 120.0, 142.0),
    (34.0, 168.0, 132.0),
    (122.0, 209.0, 81.0),
    (253.0, 231.0, 37.0),
];

fn colour(level: usize) -> String {
    let at = level.min(LEVELS - 1) as f64 / (LEVELS - 1) as f64 * (RAMP.len() - 1) as f64;
    let i = (at as usize).min(RAMP.len() - 2);
    let part = at - i as f64;
    let (a, b) = (RAMP[i], RAMP[i + 1]);
    let mix = |x: f64, y: f64| (x + (y - x) * part).round() as u8;
    format!("#{:02x}{:02x}{:02x}", mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// The colours of all levels, as CSS.
#[must_use]
pub fn heat_colours() -> Vec<String> {
    (0..LEVELS).map(colour).collect()
}

impl HeatMap {
    /// The level of colour of a value.
    #[must_use]
    pub fn level(&self, value: f64) -> usize {
        (((value - self.levels.0) / self.levels.1).max(0.0) as usize).min(LEVELS - 1)
    }

    /// The data of the map as CSV.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out =
            format!("{},{},{},greatest,runs\n", self.x.column, self.y.column, self.column);
        for f in &self.fields {
            let _ = writeln!(
                out,
                "{},{},{},{},{}",
                number(self.columns.0 + f.column as f64 * self.columns.1),
                number(self.rows.0 + f.row as f64 * self.rows.1),
                number(f.mean),
                number(f.most),
                f.runs
            );
        }
        out
    }

    /// One path a level, in units of fields: `M column row v rows` for each stretch of a column.
    /// Rows count from above in it.
    fn paths(&self) -> Vec<Path> {
        let mut level = vec![None; self.size.0 * self.size.1];
        for f in self.fields.iter().filter(|f| f.column < self.size.0 && f.row < self.size.1) {
            let from_above = self.size.1 - 1 - f.row;
            level[f.column * self.size.1 + from_above] = Some(self.level(f.mean));
        }
        let mut paths = vec![Path::default(); LEVELS];
        for column in 0..self.size.0 {
            let of = &level[column * self.size.1..][..self.size.1];
            let mut row = 0;
            while row < of.len() {
                let long = of[row..].iter().take_while(|&&l| l == of[row]).count();
                if let Some(l) = of[row] {
                    paths[l].down((column as f64, row as f64), long as f64);
                }
                row += long;
            }
        }
        paths
    }

    /// The picture, with this title.
    #[must_use]
    pub fn svg(&self, title: &str) -> String {
        let mut body = Canvas::default();
        let bottom = TOP + PLOT.1;
        body.text("head", Anchor::Start, (LEFT, 20.0), title);
        body.text("dim", Anchor::Start, (LEFT, 40.0), self.y.label);
        let scale = (PLOT.0 / self.size.0 as f64, PLOT.1 / self.size.1 as f64);
        let mut fields = Canvas::default();
        for (level, path) in self.paths().iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            fields.path(Paint::default().with(&[("stroke", &colour(level))]), path);
        }
        let strokes = Paint::default().with(&[("fill", "none"), ("stroke-width", "1.04")]);
        // Half a field to the right: a stroke as wide as a field lies around its line.
        body.grown(strokes, (LEFT + scale.0 / 2.0, TOP), scale, &fields);
        let most = |(from, step): (f64, f64), n: usize| from + step * n as f64;
        ticks(self.columns.0, most(self.columns, self.size.0), 8.0, |part, text| {
            body.text("dim", Anchor::Middle, (LEFT + part * PLOT.0, bottom + 16.0), text);
        });
        ticks(self.rows.0, most(self.rows, self.size.1), 6.0, |part, text| {
            body.text("dim", Anchor::End, (LEFT - 6.0, bottom - part * PLOT.1 + 4.0), text);
        });
        let below = (LEFT + PLOT.0 / 2.0, bottom + 34.0);
        body.text("dim", Anchor::Middle, below, self.x.label);
        self.key(&mut body);
        body.document(WIDTH, bottom + 48.0, "")
    }

    /// Which colour is which value.
    fn key(&self, out: &mut Canvas) {
        let (x, step) = (LEFT + PLOT.0 + 24.0, PLOT.1 / LEVELS as f64);
        for level in 0..LEVELS {
            let y = TOP + PLOT.1 - step * (level + 1) as f64;
            let paint = [("fill", &*colour(level))];
            out.rect(Paint::default().with(&paint), (x, y), (16.0, step + 0.2));
            if level % 4 == 0 {
                let value = number(self.levels.0 + self.levels.1 * level as f64);
                out.text("dim", Anchor::Start, (x + 20.0, y + step + 4.0), &value);
            }
        }
        out.text("dim", Anchor::End, (WIDTH - 12.0, 40.0), self.label);
    }
}

fn ticks(from: f64, to: f64, about: f64, mut tick: impl FnMut(f64, &str)) {
    let step = draw::step(to - from, about);
    let mut value = (from / step).ceil() * step;
    while value <= to + 1e-9 {
        tick((value - from) / (to - from), &number(value));
        value += step;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_they_belong() {
        let field = |column, row, mean| Field { column, row, mean, most: mean, runs: 1 };
        let map = HeatMap {
            x: Axis::linear("n_over_m", "n/m"),
            y: Axis::linear("period", "period"),
            column: "speedup",
            label: "speedup",
            columns: (1.0, 0.5),
            rows: (0.0, 0.1),
            size: (2, 3),
            levels: (1.0, 0.05),
            fields: vec![field(0, 0, 1.0), field(0, 1, 1.01), field(1, 2, 9.0), field(2, 0, 1.5)],
        };
        let paths = map.paths();
        // Rows 0 and 1 from below are 2 and 1 from above; what is outside is not drawn.
        let drawn: Vec<usize> = (0..LEVELS).filter(|l| !paths[*l].is_empty()).collect();
        assert_eq!(drawn, [0, LEVELS - 1]);
        assert!(map.csv().ends_with("2,0,1.5,1.5,1\n"), "{}", map.csv());
        let svg = map.svg("t");
        assert!(svg.contains(r#"d="M0 1v2""#) && svg.contains(r#"d="M1 0v1""#), "{svg}");
        assert_eq!((colour(0), colour(LEVELS - 1)), ("#440154".into(), "#fde725".into()));
    }
}

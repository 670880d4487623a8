//! Charts: lines, marks and bars over two axes, from one description to the picture and to the CSV.
//!
//! Invariant: what is drawn is what stands in the CSV; a picture has no other number.

use crate::{self as draw, Anchor, Canvas, Paint, Path, number};
use std::fmt::Write;

/// How values lie on an axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Scale {
    /// Equal steps are equally long.
    Linear,
    /// Equal factors; values must be positive.
    Log,
    /// Values 0, 1, 2, ... with these names.
    Names(Vec<String>),
}

/// An axis, with what stands at it.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The name of its column in the CSV.
    pub column: &'static str,
    /// What is written beside it, with the unit.
    pub label: &'static str,
    /// How values lie on it.
    pub scale: Scale,
    /// A value that it reaches down to at least.
    pub shows: Option<f64>,
}

impl Axis {
    /// An axis on which equal steps are equally long.
    #[must_use]
    pub fn linear(column: &'static str, label: &'static str) -> Self {
        Self { column, label, scale: Scale::Linear, shows: None }
    }

    /// An axis on which equal factors are equally long.
    #[must_use]
    pub fn log(column: &'static str, label: &'static str) -> Self {
        Self { scale: Scale::Log, ..Self::linear(column, label) }
    }

    /// The same, and this value is on it.
    #[must_use]
    pub fn showing(self, value: f64) -> Self {
        Self { shows: Some(value), ..self }
    }

    /// A value as the CSV has it.
    fn cell(&self, value: f64) -> String {
        match &self.scale {
            Scale::Names(names) => {
                names.get(value as usize).cloned().unwrap_or_else(|| number(value))
            }
            _ => number(value),
        }
    }
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// A line through the points.
    Line,
    /// A dashed line: what theory says.
    Dashed,
    /// A thin dotted line: a bound.
    Dotted,
    /// A mark at each point: what was simulated.
    Marks,
    /// A cross at each point: what is compared with the marks.
    Crosses,
    /// Marks, and a thin line through them.
    Joined,
    /// A bar at each name.
    Bars,
}

/// Values that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend and in the CSV.
    pub name: String,
    /// Number of its colour.
    pub colour: usize,
    /// How it is drawn.
    pub look: Look,
    /// The points, in order of x.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// Points in this look.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        colour: usize,
        look: Look,
        points: Vec<(f64, f64)>,
    ) -> Self {
        Self { name: name.into(), colour, look, points }
    }

    /// The value at this x; NaN where there is none.
    #[must_use]
    pub fn at(&self, x: f64) -> f64 {
        value_at(&self.points, x)
    }

    /// The values of all points.
    pub fn values(&self) -> impl Iterator<Item = f64> + '_ {
        self.points.iter().map(|p| p.1)
    }
}

/// The value at this x; NaN where there is none.
pub fn value_at(points: &[(f64, f64)], x: f64) -> f64 {
    points.iter().find(|p| (p.0 - x).abs() < 1e-9).map_or(f64::NAN, |p| p.1)
}

/// A chart of several series over the same axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series that are shown.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 20.0;
/// Above the plot: the title and what the vertical axis is.
const TOP: f64 = 52.0;
/// Width of a letter of a legend, about.
const LETTER: f64 = 6.4;

/// Where values fall on a side of the plot.
struct Side {
    from: f64,
    to: f64,
    log: bool,
    named: bool,
    ticks: Vec<(f64, String)>,
}

impl Side {
    /// From 0 to 1.
    fn part(&self, value: f64) -> f64 {
        let on = |v: f64| if self.log { v.log10() } else { v };
        (on(value) - on(self.from)) / (on(self.to) - on(self.from))
    }

    /// Room for a second row of names, where they are too long for one.
    fn second_row(&self) -> f64 {
        let room = (WIDTH - LEFT - RIGHT) / self.ticks.len().max(1) as f64;
        let longest = self.ticks.iter().map(|t| t.1.chars().count()).max().unwrap_or(0);
        if self.named && LETTER * longest as f64 > room { 14.0 } else { 0.0 }
    }

    fn of(axis: &Axis, values: impl Iterator<Item = f64>, room: bool) -> Self {
        let mut side = Self::with_all_digits(axis, values, room);
        if !side.named {
            let short = |(value, text)| (value, in_short(value, text));
            side.ticks = side.ticks.into_iter().map(short).collect();
        }
        side
    }

    fn with_all_digits(axis: &Axis, values: impl Iterator<Item = f64>, room: bool) -> Self {
        let all = values.chain(axis.shows).filter(|v| v.is_finite());
        let (mut least, mut most) =
            all.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), v| (a.min(v), b.max(v)));
        if least > most {
            (least, most) = (0.0, 1.0);
        }
        match &axis.scale {
            Scale::Names(names) => Self {
                from: -0.5,
                to: names.len() as f64 - 0.5,
                log: false,
                named: true,
                ticks: names.iter().enumerate().map(|(i, n)| (i as f64, n.clone())).collect(),
            },
            Scale::Log => {
                let (from, to) = (least / 1.08, most * 1.08);
                Self { from, to, log: true, named: false, ticks: decades(from, to) }
            }
            Scale::Linear => {
                let step = draw::step((most - least).max(1e-6), if room { 8.0 } else { 6.0 });
                let (from, to) = ((least / step).floor() * step, (most / step).ceil() * step);
                let to = if to > from { to } else { from + step };
                let ticks = draw::ticks(from, to, step, 1.0, "");
                Self { from, to, log: false, named: false, ticks }
            }
        }
    }
}

/// 1, 2 and 5 times the powers of ten; the powers alone where that is a lot, and all of them from 1 to 9 times where it
/// is too little to read a value from.
fn decades(from: f64, to: f64) -> Vec<(f64, String)> {
    let first = from.log10().floor() as i32;
    let with = |factors: &'static [f64]| -> Vec<(f64, String)> {
        (first..first + 30)
            .flat_map(|p| factors.iter().map(move |f| f * 10f64.powi(p)))
            .filter(|v| (from..=to).contains(v))
            .map(|v| (v, number(v)))
            .collect()
    };
    if (to / from).log10() > 4.0 {
        return with(&[1.0]);
    }
    let some = with(&[1.0, 2.0, 5.0]);
    if some.len() > 2 { some } else { with(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]) }
}

/// A number at an axis, where there is no room for many digits.
fn in_short(value: f64, text: String) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{} G", number(value / 1e9)),
        v if v >= 1e6 => format!("{} M", number(value / 1e6)),
        _ => text,
    }
}

impl Chart {
    /// The series of this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|s| s.name == name)
    }

    /// The data of the chart as CSV.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = format!("series,{},{}\n", self.x.column, self.y.column);
        for s in &self.series {
            for &(x, y) in &s.points {
                let _ = writeln!(out, "{},{},{}", s.name, self.x.cell(x), self.y.cell(y));
            }
        }
        out
    }

    /// The picture, with this title.
    #[must_use]
    pub fn svg(&self, title: &str) -> String {
        let all = || self.series.iter().flat_map(|s| &s.points);
        let x = Side::of(&self.x, all().map(|p| p.0), true);
        let y = Side::of(&self.y, all().map(|p| p.1), false);
        let at_x = |v: f64| LEFT + x.part(v) * (WIDTH - LEFT - RIGHT);
        let at_y = |v: f64| TOP + (1.0 - y.part(v)) * HEIGHT;
        let mut body = Canvas::default();
        axes(&mut body, title, [&self.x, &self.y], &x, &y);
        let bars = self.series.iter().filter(|s| s.look == Look::Bars).count();
        let mut bar = 0;
        for s in &self.series {
            let points: Vec<(f64, f64)> =
                s.points.iter().map(|&(a, b)| (at_x(a), at_y(b))).collect();
            if s.look == Look::Bars {
                draw_bars(&mut body, s.colour, &points, at_x(1.0) - at_x(0.0), bar, bars);
                bar += 1;
            } else {
                draw_series(&mut body, s, &points);
            }
        }
        let height = TOP + HEIGHT + 46.0 + x.second_row();
        let height = height + self.legend(&mut body, height);
        body.document(WIDTH, height, "")
    }

    fn legend(&self, out: &mut Canvas, top: f64) -> f64 {
        let (mut x, mut y) = (LEFT, top + 12.0);
        for s in &self.series {
            let w = 44.0 + LETTER * s.name.chars().count() as f64;
            if x + w > WIDTH - RIGHT && x > LEFT {
                (x, y) = (LEFT, y + 18.0);
            }
            if s.look == Look::Bars {
                out.rect(Paint::fill(s.colour), (x + 6.0, y - 10.0), (12.0, 11.0));
            } else {
                let at = [(x, y - 4.0), (x + 24.0, y - 4.0)];
                let mark = [(x + 12.0, y - 4.0)];
                match s.look {
                    Look::Marks | Look::Crosses => draw_series(out, s, &mark),
                    Look::Joined => {
                        line(out, s.colour, THIN, &at);
                        marks(out, s.colour, &mark);
                    }
                    _ => draw_series(out, s, &at),
                }
            }
            out.text("", Anchor::Start, (x + 30.0, y), &s.name);
            x += w;
        }
        y - top + 10.0
    }
}

/// Title, grid, and what the axes say.
fn axes(out: &mut Canvas, title: &str, axes: [&Axis; 2], x: &Side, y: &Side) {
    let (right, bottom) = (WIDTH - RIGHT, TOP + HEIGHT);
    out.text("head", Anchor::Start, (LEFT, 20.0), title);
    out.text("dim", Anchor::Start, (LEFT, 40.0), axes[1].label);
    for (value, text) in &y.ticks {
        let at = TOP + (1.0 - y.part(*value)) * HEIGHT;
        out.line("grid", (LEFT, at), (right, at));
        out.text("dim", Anchor::End, (LEFT - 6.0, at + 4.0), text);
    }
    let second_row = x.second_row();
    for (i, (value, text)) in x.ticks.iter().enumerate() {
        let lower = if i % 2 == 1 { second_row } else { 0.0 };
        let at = LEFT + x.part(*value) * (right - LEFT);
        out.line("grid", (at, TOP), (at, bottom));
        out.text("dim", Anchor::Middle, (at, bottom + 16.0 + lower), text);
    }
    let below = ((LEFT + right) / 2.0, bottom + 34.0 + second_row);
    out.text("dim", Anchor::Middle, below, axes[0].label);
}

/// What sets the line through marks back behind them.
const THIN: &[(&str, &str)] = &[("stroke-opacity", ".45")];

fn line(out: &mut Canvas, colour: usize, more: &[(&str, &str)], points: &[(f64, f64)]) {
    let mut path = Path::default();
    path.line(points.iter().copied());
    out.path(Paint::line(colour).with(more), &path);
}

/// From the middle of a cross to its ends.
const CROSS: f64 = 3.5;

/// A round dot at each point.
fn marks(out: &mut Canvas, colour: usize, points: &[(f64, f64)]) {
    let mut path = Path::default();
    points.iter().for_each(|at| path.dot(*at));
    let round = [("stroke-width", "6"), ("stroke-linecap", "round")];
    out.path(Paint::stroke(colour).with(&round), &path);
}

fn crosses(out: &mut Canvas, colour: usize, points: &[(f64, f64)]) {
    let mut path = Path::default();
    for &(x, y) in points {
        path.line([(x - CROSS, y - CROSS), (x + CROSS, y + CROSS)]);
        path.line([(x - CROSS, y + CROSS), (x + CROSS, y - CROSS)]);
    }
    out.path(Paint::line(colour).with(&[("stroke-width", "2")]), &path);
}

fn draw_series(out: &mut Canvas, series: &Series, points: &[(f64, f64)]) {
    let colour = series.colour;
    match series.look {
        Look::Line => line(out, colour, &[], points),
        Look::Dashed => line(out, colour, &[("stroke-dasharray", "7 4")], points),
        Look::Dotted => line(out, colour, &[("stroke-dasharray", "2 3")], points),
        Look::Marks => marks(out, colour, points),
        Look::Crosses => crosses(out, colour, points),
        Look::Joined => {
            line(out, colour, THIN, points);
            marks(out, colour, points);
        }
        Look::Bars => {}
    }
}

/// Bar number `index` of `count` at each name.
fn draw_bars(
    out: &mut Canvas,
    colour: usize,
    points: &[(f64, f64)],
    room: f64,
    index: usize,
    count: usize,
) {
    let width = 0.8 * room / count.max(1) as f64;
    let left = -0.4 * room + index as f64 * width;
    for &(x, y) in points {
        let height = (TOP + HEIGHT - y).max(0.0);
        out.rect(Paint::fill(colour), (x + left, y), (width - 1.0, height));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(x: Axis, points: Vec<(f64, f64)>) -> Chart {
        let y = Axis::linear("speedup", "relative speedup").showing(1.0);
        Chart { x, y, series: vec![Series::new("a<b>", 2, Look::Joined, points)] }
    }

    #[test]
    fn the_csv_has_what_is_drawn() {
        let c = chart(Axis::log("period_ms", "ms"), vec![(0.5, 1.2), (100.0, 1.75)]);
        assert_eq!(c.csv(), "series,period_ms,speedup\na<b>,0.5,1.2\na<b>,100,1.75\n");
        let svg = c.svg("t & u");
        assert!(svg.contains("t &amp; u") && svg.contains("a&lt;b&gt;") && !svg.contains("<b>"));
        // Two marks, and the one of the legend.
        assert_eq!(svg.matches("h.01").count(), 3);
        let names = Scale::Names(vec!["ep".into(), "cg".into()]);
        let axis = Axis { scale: names, ..Axis::linear("program", "program") };
        let c = chart(axis, vec![(0.0, 1.0), (1.0, 1.5)]);
        assert_eq!(c.csv(), "series,program,speedup\na<b>,ep,1\na<b>,cg,1.5\n");
    }

    #[test]
    fn crosses_are_two_lines_each() {
        let mut c = chart(Axis::linear("x", "x"), vec![(1.0, 1.0), (2.0, 3.0)]);
        c.series[0].look = Look::Crosses;
        let svg = c.svg("t");
        // Two points, and the one of the legend.
        let path = |of: &str| svg.split("<path").skip(1).filter(|p| p.contains(of)).count();
        assert_eq!(path("stroke-width=\"2\""), 2, "{svg}");
        let drawn: usize = svg
            .split(" d=\"")
            .skip(1)
            .map(|p| p[..p.find('"').unwrap()].matches('M').count())
            .sum();
        assert_eq!(drawn, 6, "{svg}");
    }

    #[test]
    fn points_are_inside_and_ticks_are_round() {
        let side = Side::of(&Axis::linear("x", "x"), [0.97, 1.83].into_iter(), false);
        assert_eq!((side.from, side.to), (0.8, 2.0));
        assert_eq!(side.ticks[1].1, "1.0");
        let side = Side::of(&Axis::log("x", "x"), [0.3, 120.0].into_iter(), true);
        let texts: Vec<&str> = side.ticks.iter().map(|t| t.1.as_str()).collect();
        assert_eq!(texts, ["0.5", "1", "2", "5", "10", "20", "50", "100"]);
        assert!([0.3, 1.0, 120.0].iter().all(|&v| (0.0..=1.0).contains(&side.part(v))));
        let side = Side::of(&Axis::log("x", "x"), [4e5, 2.4e7].into_iter(), false);
        let texts: Vec<&str> = side.ticks.iter().map(|t| t.1.as_str()).collect();
        assert_eq!(texts, ["500000", "1 M", "2 M", "5 M", "10 M", "20 M"]);
        let side = Side::of(&Axis::log("x", "x"), [2_900.0, 5_900.0].into_iter(), false);
        let texts: Vec<&str> = side.ticks.iter().map(|t| t.1.as_str()).collect();
        assert_eq!(texts, ["3000", "4000", "5000", "6000"]);
        // One value, or none, is a chart as well.
        for points in [vec![], vec![(1.0, 1.0)]] {
            let svg = chart(Axis::linear("x", "x"), points).svg("t");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}

//! Shapes: the elements of a picture, one after another.
//!
//! Invariant: text gets into a picture through [`escape`] only, and a number is finite, with a fixed number of
//! decimals at most. No other code writes an element.

use crate::{COLOURS, escape, style};
use std::borrow::Cow;
use std::fmt::{self, Display, Write};

/// Decimals of a place on a picture.
const PLACE: usize = 1;
/// Those of a rectangle: what lies side by side touches.
const EDGE: usize = 2;
/// Those of a group: what is inside grows with it.
const SCALE: usize = 4;

/// A number with so many decimals at most.
struct Short(f64, usize);

impl Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = if self.0.is_finite() { self.0 } else { 0.0 };
        let text = format!("{value:.*}", self.1);
        let short = match text.contains('.') {
            true => text.trim_end_matches('0').trim_end_matches('.'),
            false => &text,
        };
        f.write_str(if short == "-0" { "0" } else { short })
    }
}

/// How a shape looks: its class in the style sheet, attributes beside that, and the text that a page shows
/// where one points at it.
#[derive(Debug, Clone, Default)]
pub struct Paint<'a> {
    class: Cow<'a, str>,
    more: &'a [(&'a str, &'a str)],
    title: Cow<'a, str>,
}

impl<'a> From<&'a str> for Paint<'a> {
    fn from(class: &'a str) -> Self {
        Self { class: class.into(), ..Self::default() }
    }
}

impl<'a> Paint<'a> {
    fn numbered(class: &str, colour: usize) -> Self {
        Self { class: format!("{class}{}", colour % COLOURS).into(), ..Self::default() }
    }

    /// Filled with the colour of this number.
    #[must_use]
    pub fn fill(colour: usize) -> Self {
        Self::numbered("c", colour)
    }

    /// A stroke in the colour of this number.
    #[must_use]
    pub fn stroke(colour: usize) -> Self {
        Self::numbered("l", colour)
    }

    /// A line in the colour of this number: a thin stroke, and nothing filled.
    #[must_use]
    pub fn line(colour: usize) -> Self {
        Self::numbered("line l", colour)
    }

    /// Adds these attributes to it.
    #[must_use]
    pub fn with(self, more: &'a [(&'a str, &'a str)]) -> Self {
        Self { more, ..self }
    }

    /// With this text where one points at it.
    #[must_use]
    pub fn titled(self, title: impl Into<Cow<'a, str>>) -> Self {
        Self { title: title.into(), ..self }
    }
}

/// Which part of a text is at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins at the point.
    Start,
    /// The middle of the text is at the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// Lines, and outlines that are filled.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// Whether there is nothing to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, command: char, (x, y): (f64, f64)) {
        let _ = write!(self.0, "{command}{} {}", Short(x, PLACE), Short(y, PLACE));
    }

    /// A line through these points.
    pub fn line(&mut self, points: impl IntoIterator<Item = (f64, f64)>) {
        for (i, at) in points.into_iter().enumerate() {
            self.add(if i == 0 { 'M' } else { 'L' }, at);
        }
    }

    /// A line without length: a dot, where lines have round ends.
    pub fn dot(&mut self, at: (f64, f64)) {
        self.add('M', at);
        self.0.push_str("h.01");
    }

    /// A line from here straight down.
    pub fn down(&mut self, at: (f64, f64), length: f64) {
        self.add('M', at);
        let _ = write!(self.0, "v{}", Short(length, PLACE));
    }

    /// A rectangle from its upper left corner to this x, so high.
    pub fn bar(&mut self, from: (f64, f64), to: f64, height: f64) {
        self.add('M', from);
        let [left, right, height] = [from.0, to, height].map(|v| Short(v, PLACE));
        let _ = write!(self.0, "H{right}v{height}H{left}z");
    }
}

/// A picture, or a part of one.
#[derive(Debug, Clone, Default)]
pub struct Canvas(String);

impl Display for Canvas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Canvas {
    /// An element; `inside` is SVG.
    fn element(&mut self, name: &str, paint: &Paint<'_>, place: fmt::Arguments<'_>, inside: &str) {
        let _ = write!(self.0, "<{name}");
        let class = [("class", &*paint.class)];
        for (name, value) in class.iter().filter(|c| !c.1.is_empty()).chain(paint.more) {
            let _ = write!(self.0, r#" {name}="{}""#, escape(value));
        }
        let _ = self.0.write_fmt(place);
        if inside.is_empty() && paint.title.is_empty() {
            self.0.push_str("/>");
            return;
        }
        self.0.push('>');
        if !paint.title.is_empty() {
            let _ = write!(self.0, "<title>{}</title>", escape(&paint.title));
        }
        let _ = write!(self.0, "{inside}</{name}>");
    }

    /// A rectangle from its upper left corner.
    pub fn rect<'a>(&mut self, paint: impl Into<Paint<'a>>, at: (f64, f64), size: (f64, f64)) {
        let [x, y, width, height] = [at.0, at.1, size.0, size.1].map(|v| Short(v, EDGE));
        let place = format_args!(r#" x="{x}" y="{y}" width="{width}" height="{height}""#);
        self.element("rect", &paint.into(), place, "");
    }

    /// Draws a line from one point to another.
    pub fn line<'a>(&mut self, paint: impl Into<Paint<'a>>, from: (f64, f64), to: (f64, f64)) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(|v| Short(v, PLACE));
        let place = format_args!(r#" x1="{x1}" x2="{x2}" y1="{y1}" y2="{y2}""#);
        self.element("line", &paint.into(), place, "");
    }

    /// Draws a path.
    pub fn path<'a>(&mut self, paint: impl Into<Paint<'a>>, path: &Path) {
        self.element("path", &paint.into(), format_args!(r#" d="{}""#, path.0), "");
    }

    /// A text in one line, left of, around or right of its place.
    pub fn text(&mut self, class: &str, anchor: Anchor, at: (f64, f64), text: &str) {
        let anchor: &[_] = match anchor {
            Anchor::Start => &[],
            Anchor::Middle => &[("text-anchor", "middle")],
            Anchor::End => &[("text-anchor", "end")],
        };
        self.texts(&Paint::from(class).with(anchor), at, &escape(text));
    }

    /// A text, and after it one of another class.
    pub fn two_texts(&mut self, at: (f64, f64), first: (&str, &str), second: (&str, &str)) {
        let mut inside = Self::default();
        inside.element("tspan", &first.0.into(), format_args!(""), &escape(first.1));
        inside.element("tspan", &second.0.into(), format_args!(r#" dx="10""#), &escape(second.1));
        self.texts(&Paint::default(), at, &inside.0);
    }

    fn texts(&mut self, paint: &Paint<'_>, at: (f64, f64), inside: &str) {
        let (x, y) = (Short(at.0, PLACE), Short(at.1, PLACE));
        self.element("text", paint, format_args!(r#" x="{x}" y="{y}""#), inside);
    }

    /// What was drawn elsewhere, after the rest.
    pub fn add(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// What was drawn at its own origin, moved here.
    pub fn group(&mut self, at: (f64, f64), inside: &Self) {
        let (x, y) = (Short(at.0, SCALE), Short(at.1, SCALE));
        let place = format_args!(r#" transform="translate({x} {y})""#);
        self.element("g", &Paint::default(), place, &inside.0);
    }

    /// The same, and grown by these factors.
    pub fn grown(&mut self, paint: Paint<'_>, at: (f64, f64), by: (f64, f64), inside: &Self) {
        let [x, y, sx, sy] = [at.0, at.1, by.0, by.1].map(|v| Short(v, SCALE));
        let place = format_args!(r#" transform="translate({x} {y}) scale({sx} {sy})""#);
        self.element("g", &paint, place, &inside.0);
    }

    /// The whole picture. `rules` are added to the style sheet that all pictures have.
    #[must_use]
    pub fn document(&self, width: f64, height: f64, rules: &str) -> String {
        let (w, h) = (Short(width, 0), Short(height, 0));
        let mut whole = Self::default();
        whole.element("style", &Paint::default(), format_args!(""), &(style() + rules));
        whole.rect("bg", (0.0, 0.0), (width.round(), height.round()));
        whole.add(self);
        let place = format_args!(
            r#" xmlns="http://www.w3.org/2000/svg" width="{w}" height="{h}" viewBox="0 0 {w} {h}""#
        );
        let mut out = Self::default();
        out.element("svg", &Paint::default(), place, &whole.0);
        out.0 + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_finite_and_short() {
        let all = [1.0, 0.25, -0.01, 100.0, 60.04, f64::NAN, f64::INFINITY];
        assert_eq!(all.map(|v| Short(v, 1).to_string()), ["1", "0.2", "0", "100", "60", "0", "0"]);
        assert_eq!(Short(100.0, 0).to_string(), "100");
    }

    #[test]
    fn text_in_shapes_is_harmless() {
        let mut canvas = Canvas::default();
        canvas.text("a\"b", Anchor::End, (1.0, 2.5), "<x>");
        canvas.rect(Paint::fill(COLOURS + 1).titled("a & b"), (0.0, 0.0), (1.0, 2.0));
        assert_eq!(
            canvas.to_string(),
            concat!(
                r#"<text class="a&quot;b" text-anchor="end" x="1" y="2.5">&lt;x&gt;</text>"#,
                r#"<rect class="c1" x="0" y="0" width="1" height="2"><title>a &amp; b</title></rect>"#
            )
        );
    }
}

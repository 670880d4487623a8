//! Heat maps of named rows and columns, each field with its figure in it.
//!
//! What matters is on which side of 1 a value is, and how far: orange below, violet above, white around it, which people with
//! any of the common colour blindnesses can distinguish (ColorBrewer's PuOr). The colours are light enough, or the text on
//! them bright enough, to read each figure.
//!
//! Invariant: a row or a column without any field is not drawn, and a field that is not known is empty.

use crate::{Anchor, Canvas, Paint};

/// From which value on a field has this colour, the class of the text on it, and what it means.
const BANDS: [(f64, &str, &str, &str); 7] = [
    (0.0, "#b35806", "paper", "below 0.80"),
    (0.8, "#f1a340", "ink", "0.80 to 0.90"),
    (0.9, "#fee0b6", "ink", "0.90 to 0.97"),
    (0.97, "#f7f7f7", "ink", "0.97 to 1.03"),
    (1.03, "#d8daeb", "ink", "1.03 to 1.10"),
    (1.1, "#998ec3", "ink", "1.10 to 1.30"),
    (1.3, "#542788", "paper", "1.30 and more"),
];
/// On a field the text is the same in the dark.
const RULES: &str = "text.ink{fill:#222;font-size:11px}text.paper{fill:#fff;font-size:11px}\
                     text.small{font-size:10px}";

const MARGIN: f64 = 12.0;
const GROUP: f64 = 84.0;
const NAMES: f64 = 118.0;
const LINE: f64 = 17.0;
const FIELD: (f64, f64) = (38.0, 20.0);
/// Between groups of rows, or of columns.
const GAP: f64 = 7.0;
const NARROWEST: f64 = 720.0;

/// The name of a row or a column, and of the group that it belongs to; those of a group follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The group.
    pub group: String,
    /// The row or the column in it.
    pub name: String,
}

/// One field.
#[derive(Debug, Clone, PartialEq)]
pub struct Tile {
    /// What gives it its colour, and is written into it.
    pub value: f64,
    /// What a page shows where one points at it.
    pub told: String,
}

/// Values over rows and columns that have names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Matrix {
    /// What it shows: the result.
    pub title: String,
    /// Lines below the title.
    pub notes: Vec<String>,
    /// The columns, from left.
    pub columns: Vec<Named>,
    /// The rows, from above.
    pub rows: Vec<Named>,
    /// The fields, by row and column.
    pub tiles: Vec<Vec<Option<Tile>>>,
}

/// Where rows or columns are that are drawn: which, and how far from the first.
fn places(names: &[Named], drawn: impl Fn(usize) -> bool, size: f64) -> Vec<(usize, f64)> {
    let mut all: Vec<(usize, f64)> = Vec::new();
    for (i, named) in names.iter().enumerate().filter(|(i, _)| drawn(*i)) {
        let at = all.last().map_or(0.0, |(before, at)| {
            at + size + if names[*before].group == named.group { 0.0 } else { GAP }
        });
        all.push((i, at));
    }
    all
}

/// The first of each group, and how far from it the last one ends.
fn groups<'a>(names: &'a [Named], places: &[(usize, f64)], size: f64) -> Vec<(&'a str, f64, f64)> {
    let mut all: Vec<(&str, f64, f64)> = Vec::new();
    for (i, at) in places {
        match all.last_mut() {
            Some(last) if last.0 == names[*i].group => last.2 = at + size,
            _ => all.push((&names[*i].group, *at, at + size)),
        }
    }
    all
}

/// The colour of a field, and the class of the text on it; of what is written in it.
fn band(value: f64) -> (&'static str, &'static str) {
    let written = (value * 100.0).round() / 100.0;
    let found = BANDS.iter().rev().find(|band| written >= band.0).unwrap_or(&BANDS[0]);
    (found.1, found.2)
}

impl Matrix {
    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let tile = |row: usize, column: usize| self.tiles.get(row)?.get(column)?.as_ref();
        let columns = places(
            &self.columns,
            |column| (0..self.rows.len()).any(|row| tile(row, column).is_some()),
            FIELD.0,
        );
        let rows = places(
            &self.rows,
            |row| (0..self.columns.len()).any(|column| tile(row, column).is_some()),
            FIELD.1,
        );
        let mut out = Canvas::default();
        out.text("title", Anchor::Start, (MARGIN, 26.0), &self.title);
        for (i, note) in self.notes.iter().enumerate() {
            out.text("dim", Anchor::Start, (MARGIN, 46.0 + LINE * i as f64), note);
        }
        let left = MARGIN + GROUP + NAMES;
        let top = 46.0 + LINE * self.notes.len() as f64 + 2.0 * LINE + 6.0;
        for (name, from, to) in groups(&self.columns, &columns, FIELD.0) {
            let middle = left + (from + to) / 2.0;
            out.text("head", Anchor::Middle, (middle, top - LINE - 6.0), name);
        }
        for (column, x) in &columns {
            let at = (left + x + FIELD.0 / 2.0, top - 6.0);
            out.text("dim small", Anchor::Middle, at, &self.columns[*column].name);
        }
        for (name, from, _) in groups(&self.rows, &rows, FIELD.1) {
            out.text("head", Anchor::Start, (MARGIN, top + from + 14.0), name);
        }
        for (row, y) in &rows {
            out.text("dim", Anchor::End, (left - 8.0, top + y + 14.0), &self.rows[*row].name);
            for (column, x) in &columns {
                if let Some(tile) = tile(*row, *column) {
                    draw(&mut out, (left + x, top + y), tile);
                }
            }
        }
        let last = |places: &[(usize, f64)], size: f64| places.last().map_or(0.0, |p| p.1 + size);
        let bottom = top + last(&rows, FIELD.1) + 16.0;
        key(&mut out, bottom);
        let width = (left + last(&columns, FIELD.0) + MARGIN).max(NARROWEST);
        out.document(width, bottom + 26.0, RULES)
    }
}

fn filled(colour: &str) -> [(&str, &str); 3] {
    [("fill", colour), ("stroke", "#c8ccd0"), ("stroke-width", ".6")]
}

fn draw(out: &mut Canvas, at: (f64, f64), tile: &Tile) {
    let (colour, class) = band(tile.value);
    out.rect(Paint::default().with(&filled(colour)).titled(&*tile.told), at, FIELD);
    let middle = (at.0 + FIELD.0 / 2.0, at.1 + 14.0);
    out.text(class, Anchor::Middle, middle, &format!("{:.2}", tile.value));
}

/// Which colour is which value.
fn key(out: &mut Canvas, y: f64) {
    for (i, (_, colour, _, meaning)) in BANDS.iter().enumerate() {
        let x = MARGIN + 100.0 * i as f64;
        out.rect(Paint::default().with(&filled(colour)), (x, y), (14.0, 12.0));
        out.text("dim", Anchor::Start, (x + 18.0, y + 10.0), meaning);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(group: &str, name: &str) -> Named {
        Named { group: group.into(), name: name.into() }
    }

    #[test]
    fn what_is_not_known_is_not_drawn() {
        let tile = |value| Some(Tile { value, told: format!("<{value}>") });
        let matrix = Matrix {
            title: "a result".into(),
            notes: vec!["a note".into()],
            columns: vec![named("2 threads", "2 ms"), named("3 threads", "2 ms")],
            rows: vec![named("block", "alone"), named("block", "hog"), named("spin", "alone")],
            tiles: vec![vec![None, tile(0.896)], vec![None, None], vec![None, tile(1.5)]],
        };
        let svg = matrix.svg();
        for drawn in [">a result<", ">a note<", ">3 threads<", ">spin<", ">0.90<", ">1.50<"] {
            assert!(svg.contains(drawn), "{drawn}: {svg}");
        }
        assert!(!svg.contains("2 threads") && !svg.contains("hog"), "{svg}");
        assert!(svg.contains("<title>&lt;0.896&gt;</title>"), "{svg}");
    }

    /// Would catch: a figure in a colour of which the legend says something else.
    #[test]
    fn each_band_begins_where_the_one_before_ends() {
        for (value, colour) in
            [(0.0, 0), (0.794, 0), (0.796, 1), (0.8, 1), (0.97, 3), (1.03, 4), (9.0, 6)]
        {
            assert_eq!(band(value).0, BANDS[colour].1, "{value}");
        }
        assert_eq!(band(f64::NAN).0, BANDS[0].1);
    }

    #[test]
    fn groups_stand_apart() {
        let names = [named("a", "1"), named("a", "2"), named("b", "1")];
        let at = places(&names, |_| true, 10.0);
        assert_eq!(at, [(0, 0.0), (1, 10.0), (2, 20.0 + GAP)]);
        assert_eq!(groups(&names, &at, 10.0), [("a", 0.0, 20.0), ("b", 20.0 + GAP, 30.0 + GAP)]);
        assert_eq!(places(&names, |i| i == 2, 10.0), [(2, 0.0)]);
    }
}

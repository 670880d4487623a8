//! A front of three objectives, drawn: migrations to the right, imbalance or messages upwards, and the third as
//! colour.
//!
//! Invariant: what of `nuco+` is drawn is on the front, each point once, in the colour of its quarter of the
//! third objective; mappings of others are crosses, by name.

use crate::case::Mapped;
use crate::front::{Front, Point};
use evenly_draw::{Axis, Chart, Look, Scale, Series};
use evenly_nuco::map::Objectives;

/// Colours by the third objective, from the least to the most.
const QUARTERS: [usize; 4] = [0, 4, 1, 5];
/// The colour of the line of what is best.
const LINE: usize = 7;
/// What no imbalance is drawn below, in percent.
const LEAST_PERCENT: f64 = 0.01;

/// A chart of the front, and the name of its files.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// Name of its files, without ending.
    pub name: String,
    title: String,
    chart: Chart,
}

impl Picture {
    /// The picture as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        self.chart.svg(&self.title)
    }

    /// The data of the picture as CSV.
    #[must_use]
    pub fn csv(&self) -> String {
        self.chart.csv()
    }
}

/// An objective that is drawn.
struct Objective<'a> {
    axis: Axis,
    of: &'a dyn Fn(&Objectives) -> f64,
    /// A value, as the legend has it.
    said: &'a dyn Fn(f64) -> String,
}

impl Front {
    /// Imbalance over migrations, and NUCO messages over migrations; `title` says of what.
    #[must_use]
    pub fn pictures(&self, title: &str) -> [Picture; 2] {
        let drawn = self.best().map(|p| &p.mapped).chain(&self.judged);
        let log = drawn.map(|m| m.objectives.nuco_messages).all(|v| v > 0.0);
        let axis =
            Axis::linear("nuco_messages", "messages between cores, weighted by NUCO factors");
        let messages = Objective {
            axis: if log { Axis { scale: Scale::Log, ..axis } } else { axis },
            of: &|o| o.nuco_messages,
            said: &|messages| format!("{} messages", in_short(messages)),
        };
        let imbalance = Objective {
            axis: Axis::log("imbalance_percent", "imbalance, %"),
            of: &|o| (100.0 * o.imbalance).max(LEAST_PERCENT),
            said: &|percent| format!("{} % imbalance", in_short(percent)),
        };
        [
            self.picture("imbalance", format!("{title}: imbalance"), &imbalance, &messages),
            self.picture("messages", format!("{title}: communication"), &messages, &imbalance),
        ]
    }

    fn picture(
        &self,
        name: &str,
        title: String,
        up: &Objective<'_>,
        colour: &Objective<'_>,
    ) -> Picture {
        let at = |m: &Mapped| (m.objectives.migrations as f64, (up.of)(&m.objectives));
        let mut best: Vec<&Point> = self.best().collect();
        let third = |p: &&Point| (colour.of)(&p.mapped.objectives);
        best.sort_by(|a, b| third(a).total_cmp(&third(b)));
        let line = steps(best.iter().map(|p| at(&p.mapped)).collect());
        let mut series =
            vec![Series::new("least for so many migrations", LINE, Look::Dotted, line)];
        let quarter = best.len().div_ceil(QUARTERS.len()).max(1);
        for (points, hue) in best.chunks(quarter).zip(QUARTERS) {
            let Some(most) = points.last().map(third) else { continue };
            let mut places: Vec<(f64, f64)> = points.iter().map(|p| at(&p.mapped)).collect();
            places.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
            let name = format!("nuco+, up to {}", (colour.said)(most));
            series.push(Series::new(name, hue, Look::Marks, places));
        }
        // Colours of their own: not those of the others.
        let colours = [2, 3, 6].into_iter().chain(8..24).cycle();
        for (m, colour) in self.judged.iter().zip(colours) {
            series.push(Series::new(m.name.as_str(), colour, Look::Crosses, vec![at(m)]));
        }
        let x = Axis::linear("migrations", "migrations").showing(0.0);
        let chart = Chart { x, y: up.axis.clone(), series };
        Picture { name: name.to_owned(), title, chart }
    }
}

/// The least that there is up to each place, as a line in steps.
fn steps(mut places: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    places.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut line: Vec<(f64, f64)> = Vec::new();
    for &(x, y) in &places {
        match line.last() {
            None => line.push((x, y)),
            Some(&(_, least)) if y < least => line.extend([(x, least), (x, y)]),
            Some(_) => {}
        }
    }
    // To the end of what is drawn.
    if let (Some(&(_, least)), Some(&(end, _))) = (line.last(), places.last()) {
        line.push((end, least));
    }
    line
}

/// With three digits, and thousands or millions in letters.
fn in_short(x: f64) -> String {
    let (x, unit) = match x {
        x if x >= 1e9 => (x / 1e9, " G"),
        x if x >= 1e6 => (x / 1e6, " M"),
        x if x >= 1e4 => (x / 1e3, " k"),
        x => (x, ""),
    };
    let decimals = if x >= 100.0 || x == 0.0 {
        0
    } else if x >= 10.0 {
        1
    } else {
        2
    };
    format!("{x:.decimals$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::tests::{front, mapped};

    #[test]
    fn every_point_of_the_front_is_drawn_once_in_the_colour_of_the_third() {
        let points = [
            (0.5, 10.0, 0),
            (0.4, 40.0, 5),
            (0.3, 30.0, 6),
            (0.2, 20.0, 9),
            // The same again, and one that is beaten.
            (0.2, 20.0, 9),
            (0.5, 50.0, 9),
        ];
        let f = front(&points, vec![mapped("a", 0.1, 110.0, 6)]);
        let [imbalance, messages] = f.pictures("x");
        let marks = |p: &Picture| -> Vec<(String, Vec<(f64, f64)>)> {
            let looks = [Look::Marks, Look::Crosses];
            let marked = p.chart.series.iter().filter(|s| looks.contains(&s.look));
            marked.map(|s| (s.name.clone(), s.points.clone())).collect()
        };
        let one = |name: &str, x: f64, y: f64| (name.to_owned(), vec![(x, y)]);
        let found = marks(&imbalance);
        let wanted = [
            one("nuco+, up to 10.0 messages", 0.0, 50.0),
            one("nuco+, up to 20.0 messages", 9.0, 20.0),
            one("nuco+, up to 30.0 messages", 6.0, 30.0),
            one("nuco+, up to 40.0 messages", 5.0, 40.0),
            one("a", 6.0, 10.0),
        ];
        assert_eq!(found, wanted);
        let colours: Vec<usize> = imbalance.chart.series.iter().map(|s| s.colour).collect();
        let mut different = colours.clone();
        different.sort_unstable();
        different.dedup();
        assert_eq!(different.len(), colours.len(), "{colours:?}");
        assert_eq!(marks(&messages)[0], one("nuco+, up to 20.0 % imbalance", 9.0, 20.0));
        // The line goes down only.
        let line = &imbalance.chart.series[0];
        let wanted = [
            (0.0, 50.0),
            (5.0, 50.0),
            (5.0, 40.0),
            (6.0, 40.0),
            (6.0, 30.0),
            (9.0, 30.0),
            (9.0, 20.0),
        ];
        assert_eq!(line.points[..7], wanted);
    }

    #[test]
    fn pictures_can_be_drawn_of_anything() {
        for points in [&[][..], &[(0.0, 0.0, 3)], &[(0.0, 0.0, 3), (0.5, 10.0, 0)]] {
            let f = front(points, vec![mapped("a", 0.1, 110.0, 6)]);
            for p in f.pictures("x") {
                let svg = p.svg();
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                assert!(p.csv().contains("a,6,"), "{}", p.csv());
            }
        }
    }

    #[test]
    fn amounts_are_short() {
        let said = [0.0, 0.214, 9.5, 43.21, 999.4, 12_345.0, 4_445_280.0, 2.5e9].map(in_short);
        assert_eq!(said, ["0", "0.21", "9.50", "43.2", "999", "12.3 k", "4.45 M", "2.50 G"]);
    }
}

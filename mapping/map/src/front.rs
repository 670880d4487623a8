//! Mapping quality against number of migrations (Pareto front): `nuco+` at one price of a migration after the other, as a
//! picture to choose from.
//!
//! Invariant: a point is *on the front* where no other is at least as good in imbalance, NUCO messages
//! and migrations, and better in one. Mappings that others made are judged, and are never on it.

use crate::case::{Case, Mapped};
use evenly_draw::{Axis, Chart, Look, Scale, Series};
use evenly_model::{counted, short};
use evenly_nuco::map::{MAPPERS, Objectives, Options};
use std::cmp::Ordering;
use std::fmt::Write;

/// Prices of a migration that are tried: nothing, and from a part of the makespan up to all of it,
/// where no migration is worth it.
const PRICES: u32 = 16;
/// The least price above nothing, as a part of the makespan.
const LEAST: f64 = 1e-5;
/// What no imbalance is drawn below, in percent.
const LEAST_PERCENT: f64 = 0.01;

/// A mapping among those that are compared.
#[derive(Debug, Clone)]
pub struct Point {
    /// How it came about, in words.
    pub how: String,
    /// The mapping and what it is worth.
    pub mapped: Mapped,
    /// Whether it is on the front.
    pub on_front: bool,
}

/// All that was found.
#[derive(Debug, Clone)]
pub struct Front {
    /// `nuco+` at one price after the other, from the lowest.
    pub prices: Vec<Point>,
    /// `nuco+` with the migrations and the imbalance of each mapping that others made as bounds.
    pub bounded: Vec<Point>,
    /// The mappings that others made.
    pub judged: Vec<Mapped>,
}

impl Case {
    /// Searches for the front; `done` is called after each run, with how many there are.
    pub fn front(
        &self,
        options: &Options,
        judged: Vec<Mapped>,
        mut done: impl FnMut(usize, usize),
    ) -> Front {
        let mut front = Front { prices: Vec::new(), bounded: Vec::new(), judged };
        let Some(searcher) = MAPPERS.iter().find(|m| m.effort.searches()) else { return front };
        let all = PRICES as usize + 1 + front.judged.len();
        let makespan_s = self.before().objectives.makespan_s;
        let step = |k: u32| makespan_s * LEAST.powf(1.0 - f64::from(k) / f64::from(PRICES - 1));
        let prices = std::iter::once(0.0).chain((0..PRICES).map(step));
        for worth_s in prices {
            let options = Options { migration_worth_s: Some(worth_s), ..options.clone() };
            let mapped = self.map(searcher, &options);
            let how = format!("a migration must save {} s", three_digits(worth_s));
            front.prices.push(Point { how, mapped, on_front: false });
            done(front.prices.len(), all);
        }
        for m in &front.judged {
            let options = Options {
                max_migrations: Some(m.objectives.migrations),
                max_imbalance: Some(m.objectives.imbalance),
                ..options.clone()
            };
            let mapped = self.map(searcher, &options);
            let how = format!("within the bounds of {}", m.name);
            front.bounded.push(Point { how, mapped, on_front: false });
            done(front.prices.len() + front.bounded.len(), all);
        }
        front.mark();
        front
    }
}

/// As `--migration-worth` takes it, and no longer than need be.
fn three_digits(seconds: f64) -> String {
    short(format!("{seconds:.2e}").parse().unwrap_or(seconds))
}

/// Imbalance, NUCO messages, migrations: what is compared.
fn three(o: &Objectives) -> [f64; 3] {
    [o.imbalance, o.nuco_messages, o.migrations as f64]
}

/// Whether the first is no worse in all three, and better in one.
fn dominates(a: &Objectives, b: &Objectives) -> bool {
    let (a, b) = (three(a), three(b));
    a.iter().zip(&b).all(|(x, y)| x <= y) && a != b
}

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

impl Front {
    /// All that `nuco+` made.
    pub fn points(&self) -> impl Iterator<Item = &Point> {
        self.prices.iter().chain(&self.bounded)
    }

    fn mark(&mut self) {
        let all: Vec<Objectives> = self.points().map(|p| p.mapped.objectives).collect();
        for p in self.prices.iter_mut().chain(&mut self.bounded) {
            p.on_front = !all.iter().any(|o| dominates(o, &p.mapped.objectives));
        }
    }

    /// The first point of `nuco+` that dominates this mapping, or equals it where there is none.
    #[must_use]
    pub fn better_than(&self, judged: &Mapped) -> Option<&Point> {
        let o = &judged.objectives;
        let better = self.points().find(|p| dominates(&p.mapped.objectives, o));
        better.or_else(|| self.points().find(|p| three(&p.mapped.objectives) == three(o)))
    }

    /// All points and mappings.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut t =
            String::from("mapping,how,migrations,imbalance_percent,nuco_messages,on_front\n");
        let mut row = |mapping: &str, how: &str, o: &Objectives, on_front: &str| {
            // A name of a file may have anything in it.
            let plain = |s: &str| s.replace(['"', ',', '\n', '\r'], " ");
            let _ = writeln!(
                t,
                "{},{},{},{:.4},{:.0},{on_front}",
                plain(mapping),
                plain(how),
                o.migrations,
                100.0 * o.imbalance,
                o.nuco_messages
            );
        };
        for p in self.points() {
            let on_front = if p.on_front { "1" } else { "0" };
            row(&p.mapped.name, &p.how, &p.mapped.objectives, on_front);
        }
        for m in &self.judged {
            row(&m.name, "read", &m.objectives, "");
        }
        t
    }

    /// Imbalance over migrations, and NUCO messages over migrations; `title` says of what.
    #[must_use]
    pub fn pictures(&self, title: &str) -> [Picture; 2] {
        let imbalance = |o: &Objectives| (100.0 * o.imbalance).max(LEAST_PERCENT);
        let messages = |o: &Objectives| o.nuco_messages;
        let positive = self.points().map(|p| &p.mapped).chain(&self.judged);
        let log = positive.map(|m| messages(&m.objectives)).all(|v| v > 0.0);
        let y = Axis::linear("nuco_messages", "messages between cores, weighted by NUCO factors");
        let y = if log { Axis { scale: Scale::Log, ..y } } else { y };
        let percent = Axis::log("imbalance_percent", "imbalance, %");
        [
            self.picture("imbalance", &format!("{title}: imbalance"), percent, &imbalance),
            self.picture("messages", &format!("{title}: communication"), y, &messages),
        ]
    }

    fn picture(
        &self,
        name: &str,
        title: &str,
        y: Axis,
        of: &dyn Fn(&Objectives) -> f64,
    ) -> Picture {
        let at = |m: &Mapped| (m.objectives.migrations as f64, of(&m.objectives));
        let sorted = |points: &[Point]| {
            let mut all: Vec<(f64, f64)> = points.iter().map(|p| at(&p.mapped)).collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
            all
        };
        let mut series = vec![Series::new(
            "nuco+ by the price of a migration",
            0,
            Look::Joined,
            sorted(&self.prices),
        )];
        if !self.bounded.is_empty() {
            let within = sorted(&self.bounded);
            series.push(Series::new("nuco+ within the bounds of each", 4, Look::Marks, within));
        }
        // Colours of their own: not those of the two before.
        let colours = [1, 2, 3, 5, 6, 7].into_iter().chain(8..24).cycle();
        for (m, colour) in self.judged.iter().zip(colours) {
            series.push(Series::new(m.name.as_str(), colour, Look::Marks, vec![at(m)]));
        }
        let x = Axis::linear("migrations", "migrations").showing(0.0);
        let chart = Chart { x, y, series };
        Picture { name: name.to_owned(), title: title.to_owned(), chart }
    }

    /// What there is to say: how each mapping compares.
    #[must_use]
    pub fn table(&self) -> String {
        let mut t = String::new();
        // Several prices may lead to the same.
        let different = |of: &dyn Fn(&Point) -> bool| {
            let mut all: Vec<[f64; 3]> =
                self.points().filter(|p| of(p)).map(|p| three(&p.mapped.objectives)).collect();
            let order = |a: &[f64; 3], b: &[f64; 3]| a.partial_cmp(b).unwrap_or(Ordering::Equal);
            all.sort_by(order);
            all.dedup();
            all.len()
        };
        let _ = writeln!(
            t,
            "nuco+: {} runs with {} between them, {} of which no other beats in imbalance, NUCO messages \
             and migrations together",
            self.points().count(),
            counted(different(&|_| true), "different result"),
            different(&|p| p.on_front),
        );
        let one = |o: &Objectives| {
            format!(
                "{} migrations, {:.2} %, {:.0} messages",
                o.migrations,
                100.0 * o.imbalance,
                o.nuco_messages
            )
        };
        for m in &self.judged {
            let o = &m.objectives;
            let against = match self.better_than(m) {
                Some(p) if dominates(&p.mapped.objectives, o) => {
                    format!("nuco+ is better: {} ({})", one(&p.mapped.objectives), p.how)
                }
                Some(p) => format!("nuco+ has the same ({})", p.how),
                None => String::from("none of nuco+ is at least as good in all three"),
            };
            let _ = writeln!(t, "{}: {}; {against}", m.name, one(o));
        }
        t
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(name: &str, imbalance: f64, nuco_messages: f64, migrations: usize) -> Mapped {
        let objectives = Objectives {
            makespan_s: 1.0,
            mean_load_s: 1.0,
            imbalance,
            hop_bytes: 0.0,
            nuco_messages,
            remote_messages: 0.0,
            remote_share: 0.0,
            migrations,
            migrated_bytes: 0.0,
        };
        Mapped { name: name.to_owned(), mapping: Vec::new(), objectives, seconds: None }
    }

    fn front(points: &[(f64, f64, usize)], judged: Vec<Mapped>) -> Front {
        let point = |&(imbalance, messages, migrations): &(f64, f64, usize)| Point {
            how: format!("at {migrations}"),
            mapped: mapped("nuco+", imbalance, messages, migrations),
            on_front: false,
        };
        let prices = points.iter().map(point).collect();
        let mut front = Front { prices, bounded: Vec::new(), judged };
        front.mark();
        front
    }

    #[test]
    fn a_point_is_on_the_front_where_none_beats_it() {
        let f = front(
            &[(0.5, 100.0, 0), (0.1, 120.0, 5), (0.1, 110.0, 5), (0.1, 110.0, 5), (0.2, 90.0, 6)],
            vec![
                mapped("a", 0.1, 110.0, 6),
                mapped("b", 0.05, 200.0, 9),
                mapped("c", 0.5, 100.0, 0),
            ],
        );
        let on: Vec<bool> = f.points().map(|p| p.on_front).collect();
        // Two that are the same are both on it.
        assert_eq!(on, [true, false, true, true, true]);
        let better = |k: usize| f.better_than(&f.judged[k]).map(|p| p.how.as_str());
        assert_eq!((better(0), better(1), better(2)), (Some("at 5"), None, Some("at 0")));
        let said = f.table();
        // In the table they are one.
        let begins = "nuco+: 5 runs with 4 different results between them, 3 of which no other";
        assert!(said.starts_with(begins), "{said}");
        assert!(
            said.contains("a: 6 migrations, 10.00 %, 110 messages; nuco+ is better: 5 "),
            "{said}"
        );
        assert!(said.contains("b: 9 migrations, 5.00 %, 200 messages; none of nuco+"), "{said}");
        assert!(
            said.contains("c: 0 migrations, 50.00 %, 100 messages; nuco+ has the same"),
            "{said}"
        );
    }

    #[test]
    fn prices_are_short() {
        let said = [0.0, 1.234_56e-5, 0.5, 7.506_7, 3e-9].map(three_digits);
        assert_eq!(said, ["0", "0.0000123", "0.5", "7.51", "3e-9"]);
    }

    #[test]
    fn pictures_and_data_have_all_of_them() {
        let f = front(&[(0.0, 0.0, 3), (0.5, 10.0, 0)], vec![mapped("a,b\n", 0.1, 110.0, 6)]);
        assert_eq!(
            f.csv(),
            "mapping,how,migrations,imbalance_percent,nuco_messages,on_front\n\
             nuco+,at 3,3,0.0000,0,1\nnuco+,at 0,0,50.0000,10,1\na b ,read,6,10.0000,110,\n"
        );
        let f = front(&[(0.0, 0.0, 3), (0.5, 10.0, 0)], vec![mapped("a", 0.1, 110.0, 6)]);
        for p in f.pictures("x") {
            let svg = p.svg();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
            assert_eq!(p.csv().lines().count(), 4, "{}", p.csv());
        }
    }
}

//! What there is to choose from (Pareto front): imbalance, NUCO messages and migrations of what `nuco+` finds at
//! one price of a migration after the other, and within one pair of bounds after the other.
//!
//! ```text
//! prices of a migration, from nothing to all of the makespan   -> both ends
//! bounds on imbalance, from none on                            -> how little there can be
//! and from the least that there is                             -> what balance costs
//! bounds on migrations in the widest gaps between all these,
//!     in turn with the least imbalance, with more and with any -> what is between
//! the bounds of each mapping that others made                  -> whether that can be beaten
//! ```
//!
//! Invariants: a point is *on the front* where no other is at least as good in imbalance, NUCO messages
//! and migrations, and better in one. No two points are the same in all three. Mappings that others made are
//! judged, and are never on it.

use crate::case::{Case, Mapped};
use evenly_model::{counted, short};
use evenly_nuco::map::{MAPPERS, MapperInfo, Objectives, Options};
use std::collections::HashSet;
use std::fmt::Write;

/// Prices of a migration that are tried: nothing, and from a part of the makespan up to all of it,
/// where no migration is worth it.
const PRICES: u32 = 8;
/// The least price above nothing, as a part of the makespan.
const LEAST: f64 = 1e-5;
/// Bounds on imbalance that are tried to see how little there can be. Where none at all is out of reach, a search that
/// is short comes nearer to it with a bound that it can keep.
const SMALL: [f64; 4] = [0.0, 1e-3, 2e-3, 5e-3];
/// Bounds on imbalance that are tried from that up to the present imbalance.
const LEVELS: u32 = 7;
/// The least imbalance above none that is a bound.
const LEAST_IMBALANCE: f64 = 1e-3;
/// Bounds on migrations that are tried in gaps.
const GAPS: usize = 24;

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
#[derive(Debug, Clone, Default)]
pub struct Front {
    /// What `nuco+` found, each once: of the runs that found the same the first.
    pub points: Vec<Point>,
    /// How often it was run.
    pub runs: usize,
    /// The mappings that others made.
    pub judged: Vec<Mapped>,
}

impl Case {
    /// Searches for the front; `done` is called after each run, with how many there were and will be.
    pub fn front(
        &self,
        options: &Options,
        judged: Vec<Mapped>,
        mut done: impl FnMut(usize, usize),
    ) -> Front {
        let front = Front { judged, ..Front::default() };
        let Some(searcher) = MAPPERS.iter().find(|m| m.effort.searches()) else { return front };
        let all = (PRICES + 1 + LEVELS) as usize + SMALL.len() + GAPS + front.judged.len();
        let mut told = |steps| done(steps, all);
        let mut search = Search { case: self, searcher, options, front, steps: 0, done: &mut told };
        search.prices();
        search.levels();
        search.gaps();
        search.as_others();
        let mut front = search.front;
        front.mark();
        front
    }
}

/// The search for a front.
struct Search<'a> {
    case: &'a Case,
    searcher: &'a MapperInfo,
    /// What is not varied.
    options: &'a Options,
    front: Front,
    /// Runs that were made, or turned out not to be needed.
    steps: usize,
    done: &'a mut dyn FnMut(usize),
}

impl Search<'_> {
    fn run(&mut self, options: &Options, how: String) {
        let mapped = self.case.map(self.searcher, options);
        self.front.add(how, mapped);
        self.step();
    }

    fn step(&mut self) {
        self.steps += 1;
        (self.done)(self.steps);
    }

    fn prices(&mut self) {
        let makespan_s = self.case.before().objectives.makespan_s;
        let step = |k: u32| makespan_s * LEAST.powf(1.0 - f64::from(k) / f64::from(PRICES - 1));
        for worth_s in std::iter::once(0.0).chain((0..PRICES).map(step)) {
            let options = Options { migration_worth_s: Some(worth_s), ..self.options.clone() };
            self.run(&options, format!("a migration must save {} s", three_digits(worth_s)));
        }
    }

    fn levels(&mut self) {
        let present = self.case.before().objectives.imbalance;
        for bound in SMALL {
            self.within(None, Some(bound));
        }
        let least = self.front.least_imbalance(usize::MAX).max(LEAST_IMBALANCE);
        let step = (present / least).max(1.0);
        for k in 1..=LEVELS {
            let level = least * step.powf(f64::from(k) / f64::from(LEVELS + 1));
            self.within(None, Some(level));
        }
    }

    fn gaps(&mut self) {
        let present = self.case.before().objectives.imbalance;
        let mut tried = HashSet::new();
        for k in 0..GAPS {
            let Some(middle) = self.front.widest_gap(|m| !tried.contains(&(m, k % 3))) else {
                // Nothing is between any two.
                self.step();
                continue;
            };
            tried.insert((middle, k % 3));
            let least = self.front.least_imbalance(middle).max(LEAST_IMBALANCE);
            let imbalance = match k % 3 {
                // As little as there can be with so many.
                0 => Some(0.0),
                1 => Some((least * present).sqrt()),
                _ => None,
            };
            self.within(Some(middle), imbalance);
        }
    }

    /// With the migrations and the imbalance of each mapping that others made as bounds.
    fn as_others(&mut self) {
        for m in self.front.judged.clone() {
            let options = Options {
                max_migrations: Some(m.objectives.migrations),
                max_imbalance: Some(m.objectives.imbalance),
                ..self.options.clone()
            };
            self.run(&options, format!("within the bounds of {}", m.name));
        }
    }

    fn within(&mut self, max_migrations: Option<usize>, max_imbalance: Option<f64>) {
        let options = Options { max_migrations, max_imbalance, ..self.options.clone() };
        let migrations = max_migrations.map(|most| format!("{most} migrations"));
        let imbalance = max_imbalance.map(|most| format!("{:.2} % imbalance", 100.0 * most));
        let bounds: Vec<String> = migrations.into_iter().chain(imbalance).collect();
        self.run(&options, format!("at most {}", bounds.join(" and ")));
    }
}

/// As `--migration-worth` takes it, and no longer than need be.
fn three_digits(seconds: f64) -> String {
    short(format!("{seconds:.2e}").parse().unwrap_or(seconds))
}

/// Imbalance, NUCO messages, migrations: what is compared.
pub(crate) fn three(o: &Objectives) -> [f64; 3] {
    [o.imbalance, o.nuco_messages, o.migrations as f64]
}

/// Whether the first is no worse in all three, and better in one.
fn dominates(a: &Objectives, b: &Objectives) -> bool {
    let (a, b) = (three(a), three(b));
    a.iter().zip(&b).all(|(x, y)| x <= y) && a != b
}

impl Front {
    /// Adds what a run has found, unless that is there already.
    fn add(&mut self, how: String, mapped: Mapped) {
        self.runs += 1;
        let found = three(&mapped.objectives);
        if self.points.iter().all(|p| three(&p.mapped.objectives) != found) {
            self.points.push(Point { how, mapped, on_front: false });
        }
    }

    fn mark(&mut self) {
        let all: Vec<Objectives> = self.points.iter().map(|p| p.mapped.objectives).collect();
        for p in &mut self.points {
            p.on_front = !all.iter().any(|o| dominates(o, &p.mapped.objectives));
        }
    }

    /// The points that no other beats.
    pub fn best(&self) -> impl Iterator<Item = &Point> {
        self.points.iter().filter(|p| p.on_front)
    }

    /// The least imbalance that was found with so many migrations.
    fn least_imbalance(&self, migrations: usize) -> f64 {
        let all = self.points.iter().map(|p| &p.mapped.objectives);
        let within = all.filter(|o| o.migrations <= migrations);
        within.map(|o| o.imbalance).fold(f64::INFINITY, f64::min)
    }

    /// The middle of the widest gap between two numbers of migrations that were found, of those whose middle is
    /// open.
    fn widest_gap(&self, is_open: impl Fn(usize) -> bool) -> Option<usize> {
        let mut all: Vec<usize> =
            self.points.iter().map(|p| p.mapped.objectives.migrations).collect();
        all.push(0);
        all.sort_unstable();
        let gaps = all.windows(2).map(|w| (w[1] - w[0], w[0] + (w[1] - w[0]) / 2));
        let open = gaps.filter(|&(width, middle)| width > 1 && is_open(middle));
        // Of equal ones that with fewer migrations.
        open.min_by_key(|&(width, _)| std::cmp::Reverse(width)).map(|g| g.1)
    }

    /// The first point of `nuco+` that dominates this mapping, or equals it where there is none.
    #[must_use]
    pub fn better_than(&self, judged: &Mapped) -> Option<&Point> {
        let o = &judged.objectives;
        let better = self.points.iter().find(|p| dominates(&p.mapped.objectives, o));
        better.or_else(|| self.points.iter().find(|p| three(&p.mapped.objectives) == three(o)))
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
        for p in &self.points {
            let on_front = if p.on_front { "1" } else { "0" };
            row(&p.mapped.name, &p.how, &p.mapped.objectives, on_front);
        }
        for m in &self.judged {
            row(&m.name, "read", &m.objectives, "");
        }
        t
    }

    /// What there is to say: how each mapping compares.
    #[must_use]
    pub fn table(&self) -> String {
        let mut t = String::new();
        let _ = writeln!(
            t,
            "nuco+: {} runs with {} between them, {} of which no other beats in imbalance, NUCO messages \
             and migrations together",
            self.runs,
            counted(self.points.len(), "different result"),
            self.best().count(),
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
pub(crate) mod tests {
    use super::*;

    pub(crate) fn mapped(
        name: &str,
        imbalance: f64,
        nuco_messages: f64,
        migrations: usize,
    ) -> Mapped {
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
        Mapped {
            name: name.to_owned(),
            mapping: Vec::new(),
            objectives,
            seconds: None,
            unreached: None,
        }
    }

    pub(crate) fn front(points: &[(f64, f64, usize)], judged: Vec<Mapped>) -> Front {
        let mut front = Front { judged, ..Front::default() };
        for &(imbalance, messages, migrations) in points {
            let found = mapped("nuco+", imbalance, messages, migrations);
            front.add(format!("at {migrations}"), found);
        }
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
        let on: Vec<bool> = f.points.iter().map(|p| p.on_front).collect();
        // Two that are the same are one.
        assert_eq!(on, [true, false, true, true]);
        let better = |k: usize| f.better_than(&f.judged[k]).map(|p| p.how.as_str());
        assert_eq!((better(0), better(1), better(2)), (Some("at 5"), None, Some("at 0")));
        let said = f.table();
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
    fn the_widest_gap_is_found_once() {
        let f = front(&[(0.5, 1.0, 10), (0.4, 1.0, 40), (0.3, 1.0, 41), (0.2, 1.0, 61)], vec![]);
        assert_eq!(f.widest_gap(|_| true), Some(25));
        assert_eq!(f.widest_gap(|m| m != 25), Some(51));
        assert_eq!(f.widest_gap(|m| m == 5), Some(5), "from the present mapping on");
        assert_eq!(f.widest_gap(|_| false), None);
        assert_eq!(f.least_imbalance(40), 0.4);
        assert_eq!(front(&[(0.5, 1.0, 0), (0.4, 1.0, 1)], vec![]).widest_gap(|_| true), None);
    }

    #[test]
    fn prices_are_short() {
        let said = [0.0, 1.234_56e-5, 0.5, 7.506_7, 3e-9].map(three_digits);
        assert_eq!(said, ["0", "0.0000123", "0.5", "7.51", "3e-9"]);
    }

    #[test]
    fn data_has_all_of_them() {
        let f = front(&[(0.0, 0.0, 3), (0.5, 10.0, 0)], vec![mapped("a,b\n", 0.1, 110.0, 6)]);
        assert_eq!(
            f.csv(),
            "mapping,how,migrations,imbalance_percent,nuco_messages,on_front\n\
             nuco+,at 3,3,0.0000,0,1\nnuco+,at 0,0,50.0000,10,1\na b ,read,6,10.0000,110,\n"
        );
    }
}

//! A program of the paper under all arms.

use crate::traces::Traces;
use crate::{Agrees, Drawing, Finding, Panel};
use evenly_draw::Table;
use evenly_draw::decimals;
use evenly_model::hpc::{Heuristic, Parameters};
use evenly_power5::{Arm, ByShare, Case, Latency, PaperRow, Program, Run, Speeds, run};

pub(super) const BASELINE: &str = "baseline";
pub(super) const STATIC: &str = "static";
pub(super) const UNIFORM: &str = "hpc-uniform";
pub(super) const ADAPTIVE: &str = "hpc-adaptive";
pub(super) const AUTO: &str = "hpc-auto";

/// The seed of what is shown.
pub(super) const SEED: u64 = 1;
/// From here on no rank waits for long: HIGH_UTIL.
const HIGH: f64 = 0.85;

/// An arm with the values that are usual.
pub(super) fn balanced(h: Heuristic) -> Arm {
    Arm::Balanced(h, Parameters::default())
}

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) run: Run,
    paper: Option<PaperRow>,
}

pub(super) struct Experiment {
    pub(super) case: Case,
    pub(super) program: Program,
    latency: Latency,
    rows: Vec<Row>,
}

/// With speeds by one function of the decode share: what is to be set beside the fitted ones.
pub(super) struct Shared {
    pub(super) table: Table,
    pub(super) finding: Finding,
}

/// How far times and parts of computing are from the paper's, where it has them.
#[derive(Clone, Copy)]
struct Off {
    time_percent: f64,
    /// The most that any process is off, in percentage points.
    points: f64,
}

impl Off {
    fn of(run: &Run, paper: &PaperRow) -> Self {
        let points =
            |rank: usize| (run.computing_percent(rank) - paper.computing_percent[rank]).abs();
        Self {
            time_percent: 100.0 * (run.time_s / paper.time_s - 1.0),
            points: (0..4).map(points).fold(0.0, f64::max),
        }
    }

    /// The most of several.
    fn most(all: impl Iterator<Item = Self>) -> Self {
        let none = Self { time_percent: 0.0, points: 0.0 };
        all.fold(none, |most, o| Self {
            time_percent: most.time_percent.max(o.time_percent.abs()),
            points: most.points.max(o.points),
        })
    }
}

impl Experiment {
    pub(super) fn new(case: Case, latency: Latency) -> Self {
        let arms = case.arms(&Parameters::default());
        let program = case.program(SEED);
        let row = |(name, arm): (&'static str, Arm)| Row {
            name,
            run: run(&program, &arm, latency),
            paper: case.paper.iter().find(|p| p.arm == name).copied(),
        };
        let rows = arms.into_iter().map(row).collect();
        Self { case, program, latency, rows }
    }

    /// The run of an arm. Baseline where there is none of that name: there always is.
    pub(super) fn of(&self, name: &str) -> &Run {
        &self.rows.iter().find(|r| r.name == name).unwrap_or(&self.rows[0]).run
    }

    pub(super) fn time_s(&self, name: &str) -> f64 {
        self.of(name).time_s
    }

    /// By how much an arm is faster than the baseline, in percent of that.
    pub(super) fn gain(&self, name: &str) -> f64 {
        100.0 * (1.0 - self.time_s(name) / self.time_s(BASELINE))
    }

    fn paper_s(&self, name: &str) -> Option<f64> {
        Some(self.rows.iter().find(|r| r.name == name)?.paper?.time_s)
    }

    /// The same in the paper.
    pub(super) fn paper_gain(&self, name: &str) -> f64 {
        match (self.paper_s(name), self.paper_s(BASELINE)) {
            (Some(s), Some(all)) => 100.0 * (1.0 - s / all),
            _ => f64::NAN,
        }
    }

    /// Whether both heuristics gain what they do in the paper, within so many percentage points.
    pub(super) fn gains_agree(&self, points: f64) -> bool {
        [UNIFORM, ADAPTIVE].iter().all(|n| (self.gain(n) - self.paper_gain(n)).abs() <= points)
    }

    /// Times and gains of the heuristics, in words.
    pub(super) fn times(&self) -> String {
        let one = |name: &str| {
            format!("`{name}` {:.2} s ({:.1} % faster)", self.time_s(name), self.gain(name))
        };
        format!(
            "{:.2} s without balancing; {}, {}, {}",
            self.time_s(BASELINE),
            one(UNIFORM),
            one(ADAPTIVE),
            one(AUTO)
        )
    }

    /// How many iterations in a row from this one on are uneven.
    pub(super) fn uneven_from(&self, name: &str, iteration: usize) -> usize {
        let r = self.of(name);
        let first = self.program.initial + iteration;
        (first..r.did[0].len()).take_while(|&i| r.least_utilisation(i) < HIGH).count()
    }

    /// Whether auto is at least as fast as the faster of the two, within a part in a thousand.
    pub(super) fn auto_is_best(&self) -> bool {
        let better = self.time_s(UNIFORM).min(self.time_s(ADAPTIVE));
        self.time_s(AUTO) <= better * 1.001
    }

    pub(super) fn traces(&self, id: &str, title: &str, from_s: f64, to_s: f64) -> Panel {
        let runs = self.rows.iter().map(|r| (r.name, &r.run));
        Panel {
            name: id.to_owned(),
            title: title.to_owned(),
            drawing: Drawing::Traces(Traces::new(runs, from_s, to_s)),
        }
    }

    /// The paper's table beside ours.
    pub(super) fn table(&self, name: &str) -> Table {
        let row = |r: &Row| {
            let mut cells = vec![r.name.to_owned()];
            for rank in 0..4 {
                cells.push(decimals(r.run.computing_percent(rank), 2));
                let paper = |p: PaperRow| decimals(p.computing_percent[rank], 2);
                cells.push(r.paper.map(paper).unwrap_or_default());
            }
            cells.push(decimals(r.run.time_s, 2));
            cells.push(r.paper.map(|p| decimals(p.time_s, 2)).unwrap_or_default());
            cells.push(decimals(self.gain(r.name), 1));
            let gain = r.paper.map(|_| decimals(self.paper_gain(r.name), 1));
            cells.push(gain.unwrap_or_default());
            cells
        };
        Table {
            name: name.to_owned(),
            columns: vec![
                ("arm", "arm"),
                ("p1_percent", "P1 computing %"),
                ("p1_paper", "paper"),
                ("p2_percent", "P2 computing %"),
                ("p2_paper", "paper"),
                ("p3_percent", "P3 computing %"),
                ("p3_paper", "paper"),
                ("p4_percent", "P4 computing %"),
                ("p4_paper", "paper"),
                ("time_s", "time s"),
                ("time_paper_s", "paper"),
                ("gain_percent", "faster by %"),
                ("gain_paper_percent", "paper"),
            ],
            rows: self.rows.iter().map(row).collect(),
        }
    }

    /// All arms once more, with speeds by one function of the decode share.
    pub(super) fn shared(&self, name: &str) -> Shared {
        let by = ByShare::FITTED;
        let other = Self::new(self.case.with_speeds(Speeds::by_share(by)), self.latency);
        let off = |r: &Row| r.paper.map(|p| Off::of(&r.run, &p));
        let row = |(r, fitted): (&Row, &Row)| {
            let mut cells = vec![r.name.to_owned()];
            cells.extend((0..4).map(|rank| decimals(r.run.computing_percent(rank), 2)));
            cells.push(decimals(r.run.time_s, 2));
            cells.push(r.paper.map(|p| decimals(p.time_s, 2)).unwrap_or_default());
            for off in [off(r), off(fitted)] {
                cells.push(off.map(|o| decimals(o.time_percent, 1)).unwrap_or_default());
                cells.push(off.map(|o| decimals(o.points, 1)).unwrap_or_default());
            }
            cells
        };
        let (here, fitted) = (
            Off::most(other.rows.iter().filter_map(off)),
            Off::most(self.rows.iter().filter_map(off)),
        );
        Shared {
            table: Table {
                name: name.to_owned(),
                columns: vec![
                    ("arm", "one speed by decode share"),
                    ("p1_percent", "P1 computing %"),
                    ("p2_percent", "P2 computing %"),
                    ("p3_percent", "P3 computing %"),
                    ("p4_percent", "P4 computing %"),
                    ("time_s", "time s"),
                    ("time_paper_s", "paper"),
                    ("off_percent", "time off by %"),
                    ("off_points", "computing off by points, at most"),
                    ("fitted_off_percent", "with fitted speeds: time off by %"),
                    ("fitted_off_points", "computing off by points, at most"),
                ],
                rows: other.rows.iter().zip(&self.rows).map(row).collect(),
            },
            finding: Finding {
                paper: "no speeds are given; asked here is whether the table follows if speed is a function of the \
                        decode share of Table I alone, the same for all programs",
                here: format!(
                    "with one speed for a decode share s for all programs and ranks, (2 s)^{}, and a share of {} \
                     for one whose neighbour waits (both fitted on the rows baseline and static of Tables III to V \
                     together), times are off the paper's by {:.1} % at most and parts of computing by {:.1} \
                     points; with the speeds fitted to each program by {:.1} % and {:.1} points. The same \
                     decode share is another speed in another program",
                    by.exponent,
                    by.alone_share,
                    here.time_percent,
                    here.points,
                    fitted.time_percent,
                    fitted.points
                ),
                agrees: Agrees::when(
                    here.time_percent <= 1.5 && here.points <= 5.0,
                    here.time_percent <= 5.0,
                ),
            },
        }
    }

    /// What was run, in words; speeds are fitted.
    pub(super) fn setting(&self, more: &str) -> String {
        let s = &self.case.speeds;
        let speeds = format!(
            "one whose neighbour waits has {}, with a priority higher by 1 and 2 {} and {}, lower {} and \
             {}: fitted on the rows baseline and static, as were the loads, and on no other row. So speed \
             is a fitted table by the difference of priorities; it is a function of the decode share (Table I) \
             only where no row says it: with a priority higher by 1 on MetBench, and beyond a difference of \
             2, to which no heuristic goes",
            s.alone, s.high[0], s.high[1], s.low[0], s.low[1]
        );
        self.setting_with(&speeds, more)
    }

    /// The same, with what is to be said of speeds.
    pub(super) fn setting_with(&self, speeds: &str, more: &str) -> String {
        format!(
            "Simulated: one POWER5, two cores of two contexts, a rank on each; {}, {} iterations. Two \
             tasks on a core with equal priorities have the speed 1; {speeds}. Under CFS, which baseline \
             and static have, a woken rank waits 0.25 ms for its CPU (assumed), in the class of HPC tasks \
             not at all. Loads vary with the seed, the same for all arms. {more}",
            self.case.name, self.case.iterations
        )
    }
}

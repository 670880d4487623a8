//! The figures of the papers that evenly implements, drawn from its own theory, policies and
//! simulator, so that a reader can hold the tool against the literature.
//!
//! A figure is computed by one function of a module of its own ([`FIGURES`] lists them): its panels
//! as data, and findings, each of which sets what the paper says beside what came out here. Pictures
//! (SVG), CSV and the page of docs/figures.md are made of these data by functions that all figures
//! share ([`Chart`], [`HeatMap`], [`Lanes`], [`Traces`], [`page()`]).
//!
//! Nothing here measures a real machine. What the papers measured on hardware is simulated, and each
//! figure says with which parameters; what was measured once is a record in the sources.
//!
//! Invariant: equal code gives equal figures, byte for byte: virtual time, seeded randomness, no
//! clock. Whether a finding agrees with the paper is computed from the data, never stated.

#![forbid(unsafe_code)]

mod hpc;
mod juggle;
mod lanes;
mod nuco;
mod oslb;
mod page;
mod runs;
mod traces;

pub use juggle::sweep_map;
pub use lanes::Lanes;
pub use nuco::others;
pub use page::{page, section};
pub use traces::Traces;

use evenly_cluster::ClusterError;
use evenly_draw::{Chart, HeatMap, Table};
use evenly_model::GraphError;
use evenly_sim::RunError;
use evenly_theory::{OutOfRange, ShapeError};
use rayon::prelude::*;
use serde::Serialize;

/// Name and version of the schema of [`Figure::json`].
pub const SCHEMA: &str = "evenly.figures/1";

/// The paper that a figure is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Paper {
    /// Hofmeyr and others: Juggle: proactive load balancing on multicore computers, HPDC 2011.
    Juggle,
    /// Yun: Application of secretary algorithm to dynamic load balancing in user-space on multicore
    /// systems, 2013.
    Oslb,
    /// Pilla and others: A hierarchical approach for load balancing on parallel multi-core systems
    /// (NucoLB), 2012.
    Nuco,
    /// Boneti and others: A dynamic scheduler for balancing HPC applications (HPCSched), SC 2008.
    Hpc,
}

impl Paper {
    /// As it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Juggle => "Juggle",
            Self::Oslb => "OSLB",
            Self::Nuco => "NucoLB",
            Self::Hpc => "HPCSched",
        }
    }
}

/// Why there is no figure.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FigureError {
    /// No figure is called so.
    #[error("there is no figure '{found}'; there are {known}", known = ids())]
    Unknown {
        /// The name that was given.
        found: String,
    },
    /// No policy is called so.
    #[error("there is no policy '{0}'")]
    Policy(String),
    /// A run came to nothing.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Theory says nothing there.
    #[error(transparent)]
    Theory(#[from] OutOfRange),
    /// No threads or no CPUs.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// An application has no tasks.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A machine cannot be made.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
}

fn ids() -> String {
    FIGURES.iter().map(|f| f.id).collect::<Vec<_>>().join(", ")
}

/// Whether what came out here is what the paper says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Agrees {
    /// What the paper says is so here.
    Yes,
    /// In kind, not in size.
    Partly,
    /// What the paper says is not so here.
    No,
}

impl Agrees {
    /// Yes where the first holds, partly where the second does, else no.
    #[must_use]
    pub fn when(yes: bool, partly: bool) -> Self {
        match (yes, partly) {
            (true, _) => Self::Yes,
            (_, true) => Self::Partly,
            _ => Self::No,
        }
    }

    /// The answer in a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::No => "no",
        }
    }
}

/// A statement of the paper, and what came out here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What the paper says, in our words.
    pub paper: &'static str,
    /// What came out here, and why where it differs.
    pub here: String,
    /// Whether that is the same.
    pub agrees: Agrees,
}

/// How a panel is drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Drawing {
    /// A chart over two axes.
    Chart(Chart),
    /// A map over a grid.
    Heat(HeatMap),
    /// Which thread ran where.
    Lanes(Lanes),
    /// Which ranks computed and which waited.
    Traces(Traces),
}

/// One picture of a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Name of its files, without ending.
    pub name: String,
    /// The title above the picture.
    pub title: String,
    /// What is in it.
    pub drawing: Drawing,
}

impl Panel {
    /// The picture as SVG.
    #[must_use]
    pub fn svg(&self) -> String {
        match &self.drawing {
            Drawing::Chart(c) => c.svg(&self.title),
            Drawing::Heat(h) => h.svg(&self.title),
            Drawing::Lanes(l) => l.svg(&self.title),
            Drawing::Traces(t) => t.svg(&self.title),
        }
    }

    /// The data of the picture as CSV.
    #[must_use]
    pub fn csv(&self) -> String {
        match &self.drawing {
            Drawing::Chart(c) => c.csv(),
            Drawing::Heat(h) => h.csv(),
            Drawing::Lanes(l) => l.csv(),
            Drawing::Traces(t) => t.csv(),
        }
    }
}

/// A figure with its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// What is known of the figure before it is computed.
    pub info: &'static Info,
    /// What was run, with all parameters.
    pub setting: String,
    /// The pictures of the figure.
    pub panels: Vec<Panel>,
    /// The tables of the figure.
    pub tables: Vec<Table>,
    /// What the figure shows, beside what the paper says.
    pub findings: Vec<Finding>,
}

/// The form that [`Figure::json`] gives.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary<'a> {
    /// The name of the figure here.
    pub id: &'a str,
    /// The paper that it is of.
    pub paper: Paper,
    /// Its number in the paper.
    pub number: &'a str,
    /// What it is about.
    pub title: &'a str,
    /// What was run, in words.
    pub setting: &'a str,
    /// Names of its files.
    pub files: Vec<String>,
    /// What the figure shows, beside what the paper says.
    pub findings: &'a [Finding],
}

impl Figure {
    /// As an element of `figures` in `evenly.figures/1`.
    #[must_use]
    pub fn json(&self) -> Summary<'_> {
        let files = |p: &Panel| [format!("{}.svg", p.name), format!("{}.csv", p.name)];
        let tables = self.tables.iter().map(|t| format!("{}.csv", t.name));
        Summary {
            id: self.info.id,
            paper: self.info.paper,
            number: self.info.number,
            title: self.info.title,
            setting: &self.setting,
            files: self.panels.iter().flat_map(files).chain(tables).collect(),
            findings: &self.findings,
        }
    }

    /// The panel of this name.
    #[must_use]
    pub fn panel(&self, name: &str) -> Option<&Panel> {
        self.panels.iter().find(|p| p.name == name)
    }
}

/// What a figure's module computes.
pub(crate) struct Made {
    pub(crate) setting: String,
    pub(crate) panels: Vec<Panel>,
    pub(crate) tables: Vec<Table>,
    pub(crate) findings: Vec<Finding>,
}

/// An entry of the list of figures.
#[derive(Clone, Copy)]
pub struct Info {
    /// The name of the figure here.
    pub id: &'static str,
    /// The paper that it is of.
    pub paper: Paper,
    /// Its number in the paper.
    pub number: &'static str,
    /// What it is about.
    pub title: &'static str,
    make: fn() -> Result<Made, FigureError>,
}

impl std::fmt::Debug for Info {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.id)
    }
}

impl PartialEq for Info {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Info {
    /// Computes it.
    ///
    /// # Errors
    /// [`FigureError`] where a run comes to nothing.
    pub fn make(&'static self) -> Result<Figure, FigureError> {
        let Made { setting, panels, tables, findings } = (self.make)()?;
        Ok(Figure { info: self, setting, panels, tables, findings })
    }
}

/// All figures, in the order of the papers.
pub const FIGURES: &[Info] = &[
    Info {
        id: "juggle-1",
        paper: Paper::Juggle,
        number: "1",
        title: "three threads on two CPUs",
        make: juggle::three_on_two,
    },
    Info {
        id: "juggle-6",
        paper: Paper::Juggle,
        number: "6",
        title: "proactive, reactive and per-domain balancing of 8 to 16 threads on 8 CPUs",
        make: juggle::shapes,
    },
    Info {
        id: "juggle-7",
        paper: Paper::Juggle,
        number: "7",
        title: "ideal relative speedup as floor(n/m) grows",
        make: juggle::oversubscription,
    },
    Info {
        id: "juggle-8",
        paper: Paper::Juggle,
        number: "8",
        title: "the period, one thread on a fast CPU",
        make: juggle::period_one,
    },
    Info {
        id: "juggle-9",
        paper: Paper::Juggle,
        number: "9",
        title: "the period, several threads on each CPU",
        make: juggle::period_many,
    },
    Info {
        id: "juggle-10",
        paper: Paper::Juggle,
        number: "10",
        title: "the idealised algorithm everywhere",
        make: juggle::everywhere,
    },
    Info {
        id: "juggle-11",
        paper: Paper::Juggle,
        number: "11",
        title: "many phases, with and without jitter of the period",
        make: juggle::phases,
    },
    Info {
        id: "juggle-13",
        paper: Paper::Juggle,
        number: "13",
        title: "lambda / e on three machines",
        make: juggle::machines,
    },
    Info {
        id: "juggle-15",
        paper: Paper::Juggle,
        number: "15",
        title: "two neighbours",
        make: juggle::neighbours,
    },
    Info {
        id: "juggle-16",
        paper: Paper::Juggle,
        number: "16",
        title: "migrations",
        make: juggle::migrations,
    },
    Info {
        id: "juggle-17",
        paper: Paper::Juggle,
        number: "17",
        title: "periods near the scheduler's slice",
        make: juggle::short_periods,
    },
    Info {
        id: "juggle-17-phases",
        paper: Paper::Juggle,
        number: "17, phases",
        title: "phases that are too short to balance by progress",
        make: juggle::fine_phases,
    },
    Info {
        id: "oslb-2",
        paper: Paper::Oslb,
        number: "2",
        title: "expected payoff of the selected candidate",
        make: oslb::payoff,
    },
    Info {
        id: "oslb-4",
        paper: Paper::Oslb,
        number: "4",
        title: "the balancing interval, many programs at once",
        make: oslb::interval,
    },
    Info {
        id: "oslb-5-6",
        paper: Paper::Oslb,
        number: "5 and 6",
        title: "one program at a time: with jitter of the system only, and beside a process that computes",
        make: oslb::alone,
    },
    Info {
        id: "oslb-7-8",
        paper: Paper::Oslb,
        number: "7, 8 and Table 2",
        title: "nine programs at once",
        make: oslb::together,
    },
    Info {
        id: "nuco-2",
        paper: Paper::Nuco,
        number: "2",
        title: "lb_test before and after NucoLB, on four cores",
        make: nuco::execution,
    },
    Info {
        id: "nuco-table-4",
        paper: Paper::Nuco,
        number: "Table IV",
        title: "lb_test, 200 uneven tasks that hardly communicate",
        make: nuco::lb_test,
    },
    Info {
        id: "nuco-3",
        paper: Paper::Nuco,
        number: "3",
        title: "kNeighbor, 400 equal tasks that communicate a lot",
        make: nuco::k_neighbor,
    },
    Info {
        id: "nuco-4",
        paper: Paper::Nuco,
        number: "4 and Table V",
        title: "stencil4D, 256 large and uneven tasks",
        make: nuco::stencil,
    },
    Info {
        id: "nuco-5",
        paper: Paper::Nuco,
        number: "5",
        title: "messages that each core receives, stencil4D before and after NucoLB",
        make: nuco::messages,
    },
    Info {
        id: "nuco-6",
        paper: Paper::Nuco,
        number: "6 and Table VI",
        title: "LeanMD, 1,875 small tasks, also on a cluster",
        make: nuco::lean_md,
    },
    Info {
        id: "hpc-3",
        paper: Paper::Hpc,
        number: "3 and Table III",
        title: "MetBench, whose ranks have unequal loads",
        make: hpc::metbench,
    },
    Info {
        id: "hpc-4",
        paper: Paper::Hpc,
        number: "4 and Table IV",
        title: "MetBenchVar, whose loads are reversed twice",
        make: hpc::metbench_var,
    },
    Info {
        id: "hpc-5",
        paper: Paper::Hpc,
        number: "5 and Table V",
        title: "BT-MZ, whose ranks wait for neighbours only",
        make: hpc::bt_mz,
    },
    Info {
        id: "hpc-6",
        paper: Paper::Hpc,
        number: "6 and Table VI",
        title: "a program like SIESTA, with many short and irregular phases",
        make: hpc::siesta,
    },
];

/// The figures of a paper, or of all, or those that are named.
///
/// # Errors
/// [`FigureError::Unknown`].
pub fn select(paper: Option<Paper>, only: &[String]) -> Result<Vec<&'static Info>, FigureError> {
    if let Some(found) = only.iter().find(|o| FIGURES.iter().all(|f| f.id != o.as_str())) {
        return Err(FigureError::Unknown { found: found.clone() });
    }
    let wanted = |f: &&Info| {
        paper.is_none_or(|p| f.paper == p) && (only.is_empty() || only.iter().any(|o| o == f.id))
    };
    Ok(FIGURES.iter().filter(wanted).collect())
}

/// Computes figures on all cores; `done` is called with each, from any thread.
///
/// # Errors
/// [`FigureError`], of the first that comes to nothing.
pub fn make(
    figures: &[&'static Info],
    done: impl Fn(&Info) + Sync,
) -> Result<Vec<Figure>, FigureError> {
    let one = |info: &&'static Info| {
        let figure = info.make();
        done(info);
        figure
    };
    figures.par_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_paper_and_name() {
        let ids = |paper, only: &[&str]| -> Vec<&str> {
            let only: Vec<String> = only.iter().map(|&o| o.to_owned()).collect();
            select(paper, &only).unwrap().iter().map(|f| f.id).collect()
        };
        assert_eq!(ids(None, &[]).len(), FIGURES.len());
        assert_eq!(ids(None, &["oslb-2", "juggle-9"]), ["juggle-9", "oslb-2"]);
        assert!(ids(Some(Paper::Oslb), &[]).iter().all(|id| id.starts_with("oslb-")));
        assert!(ids(Some(Paper::Oslb), &["juggle-9"]).is_empty());
        let error = select(None, &[String::from("juggle-99")]).unwrap_err().to_string();
        assert!(error.contains("juggle-99") && error.contains("juggle-9, "), "{error}");
    }
}

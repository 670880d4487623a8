//! A figure as data: what it is of, its pictures and tables, and what came out beside what the paper says.

use crate::{Lanes, Traces};
use evenly_cluster::ClusterError;
use evenly_draw::{Chart, HeatMap, Table};
use evenly_model::GraphError;
use evenly_sim::{LoopError, RunError};
use evenly_theory::{OutOfRange, ShapeError};
use serde::Serialize;

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
    /// Rencuzogullari and Dwarkadas: Dynamic adaptation to available resources for parallel computing in an autonomous network of
    /// workstations (*Adaptive loops*), PPoPP 2001.
    Loops,
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
            Self::Loops => "Adaptive loops",
        }
    }
}

/// Why there is no figure.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FigureError {
    /// No figure is called so.
    #[error("there is no figure '{found}'; there are {known}")]
    Unknown {
        /// The name that was given.
        found: String,
        /// The names that there are.
        known: String,
    },
    /// No policy is called so.
    #[error("there is no policy '{0}'")]
    Policy(String),
    /// A run came to nothing.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Loops cannot be run there.
    #[error(transparent)]
    Loops(#[from] LoopError),
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
    pub(crate) make: fn() -> Result<Made, FigureError>,
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

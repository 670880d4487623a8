//! What is to be mapped, the mappers called on it, and what came out, as text and JSON.
//!
//! Invariant: what is written here as JSON is what `docs/schemas/evenly.map-1.json` and
//! `evenly.map-comparison-1.json` describe; a field is never renamed or re-used.

use crate::bounds::{Found, Maker, Unreached, within};
use crate::input::Input;
use crate::machine::ASSUMED;
use crate::present::PresentFrom;
use crate::procs::Background;
use crate::programs::{Job, PROGRAMS, Program, ProgramError};
use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::{CacheLevel, CpuId, CpuSet, Nanos, TaskGraph, counted, printable};
use evenly_nuco::map::{
    Alpha, MAPPERS, MapperInfo, Objectives, Options, Request, mapper, no_stop, objectives, plus,
};
use serde::Serialize;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Instant;

/// Name and version of the JSON form of a mapping.
pub const SCHEMA: &str = "evenly.map/1";
/// Name and version of the JSON form of several mappings of the same tasks.
pub const SCHEMA_COMPARISON: &str = "evenly.map-comparison/1";

/// Tasks, machine, and where the tasks are.
#[derive(Debug, Clone)]
pub struct Case {
    /// The tasks, and what was said about them.
    pub input: Input,
    /// The machine that tasks are mapped onto.
    pub cluster: Cluster,
    /// The machine, as it was asked for.
    pub topology: String,
    /// Where its factors come from, in words.
    pub factors_from: &'static str,
    /// The same of the factors of caches that cores share, where they share some: measured or assumed.
    pub caches_from: Option<&'static str>,
    /// Where each task is, by its place.
    pub present: Vec<CoreIndex>,
    /// Where that comes from.
    pub from: PresentFrom,
    /// Background load of the cores, where they have any.
    pub background: Option<Background>,
    /// Whether searches end by the work that their time limit stands for alone, and not by the clock, so that
    /// they find the same however fast the machine is and whatever else it does.
    pub by_work: bool,
}

/// A mapping, and what it is worth.
#[derive(Debug, Clone)]
pub struct Mapped {
    /// Which algorithm made it, or where it was read from.
    pub name: String,
    /// The core of each task, by the task's place.
    pub mapping: Vec<CoreIndex>,
    /// What it is worth.
    pub objectives: Objectives,
    /// How long the algorithm took; None where none was called.
    pub seconds: Option<f64>,
    /// What of the bounds that it was searched for within it does not keep.
    pub unreached: Option<Unreached>,
}

/// What decides: a mapper of evenly, or a program of others.
#[derive(Debug, Clone, Copy)]
pub enum Algorithm {
    /// A mapper of evenly.
    Own(&'static MapperInfo),
    /// A program of others.
    Program(&'static Program),
}

impl Algorithm {
    /// All that there are, in the order of the help; also programs that are not installed.
    pub fn all() -> impl Iterator<Item = Self> {
        MAPPERS.iter().map(Self::Own).chain(PROGRAMS.iter().map(Self::Program))
    }

    /// The one of this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::all().find(|a| a.name() == name)
    }

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Own(m) => m.name,
            Self::Program(p) => p.name,
        }
    }

    /// One line about it.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Own(m) => m.about,
            Self::Program(p) => p.about,
        }
    }
}

#[derive(Serialize)]
struct Assigned {
    id: u64,
    core: u32,
}

impl Case {
    /// The tasks, with the background load of the cores.
    fn graph(&self) -> &TaskGraph {
        self.background.as_ref().map_or(&self.input.graph, |b| &b.graph)
    }

    /// A mapping of the tasks as one of [`Self::graph`].
    fn with_background<'a>(&self, mapping: &'a [CoreIndex]) -> Cow<'a, [CoreIndex]> {
        match &self.background {
            Some(background) => [mapping, &background.cores].concat().into(),
            None => mapping.into(),
        }
    }

    /// The mapping without the tasks that stand for background load.
    fn without_background(&self, mut mapping: Vec<CoreIndex>) -> Vec<CoreIndex> {
        mapping.truncate(self.input.graph.len());
        mapping
    }

    /// `present` is that of [`Self::graph`].
    fn request<'a>(
        &'a self,
        present: &'a [CoreIndex],
        options: &'a Options,
        clock: &'a dyn Fn() -> Nanos,
    ) -> Request<'a> {
        let (graph, cluster) = (self.graph(), &self.cluster);
        Request { graph, cluster, present, options, clock, stop: &no_stop }
    }

    /// Calls a mapper, and gives the core of each task. One that searches does so within the bounds of the
    /// options, as far as they can be kept ([`Mapped::unreached`]).
    #[must_use]
    pub fn map(&self, mapper: &MapperInfo, options: &Options) -> Mapped {
        let began = Instant::now();
        let clock = || if self.by_work { Nanos::ZERO } else { Nanos::from(began.elapsed()) };
        let present = self.with_background(&self.present);
        let calls = Calls { case: self, mapper, present: &present, options, clock: &clock };
        let searches = mapper.effort.searches();
        // With other bounds a mapper has what it needs, and its mapping need not be judged twice.
        let mapping = match options.max_migrations {
            Some(_) if searches => within(&calls, options),
            _ => calls.call(mapper, options),
        };
        let seconds = Some(began.elapsed().as_secs_f64());
        let mapping = self.without_background(mapping);
        let mapped = self.judge(mapper.name.to_owned(), mapping);
        let unreached = Unreached::of(&mapped.objectives, options).filter(|_| searches);
        Mapped { seconds, unreached, ..mapped }
    }

    /// Calls whatever decides; programs are looked for in the directories of PATH.
    ///
    /// # Errors
    /// Where a program is not there, fails, or answers with no mapping.
    pub fn decide(&self, algorithm: Algorithm, options: &Options) -> Result<Mapped, ProgramError> {
        let program = match algorithm {
            Algorithm::Own(mapper) => return Ok(self.map(mapper, options)),
            Algorithm::Program(program) => program,
        };
        let (graph, cluster) = (self.graph(), &self.cluster);
        let present = &self.with_background(&self.present);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let began = Instant::now();
        let mapping = program.map(&path, &Job { graph, cluster, present, options })?;
        let seconds = Some(began.elapsed().as_secs_f64());
        let mapping = self.without_background(mapping);
        Ok(Mapped { seconds, ..self.judge(program.name.to_owned(), mapping) })
    }

    /// What a mapping of another program is worth.
    #[must_use]
    pub fn judge(&self, name: String, mapping: Vec<CoreIndex>) -> Mapped {
        let [present, after] = [&self.present, &mapping].map(|m| self.with_background(m));
        let objectives = objectives(self.graph(), &self.cluster, &present, &after);
        Mapped { name, mapping, objectives, seconds: None, unreached: None }
    }

    /// What `nuco+` makes small, J, in seconds, of a mapping with these options, and what it is not
    /// below with any ([`plus::objective_s`], [`plus::lower_bound_s`]).
    #[must_use]
    pub fn objective_s(&self, mapping: &[CoreIndex], options: &Options) -> (f64, f64) {
        let clock = || Nanos::ZERO;
        let present = self.with_background(&self.present);
        let request = self.request(&present, options, &clock);
        (plus::objective_s(&request, &self.with_background(mapping)), plus::lower_bound_s(&request))
    }

    /// What the present mapping is worth.
    #[must_use]
    pub fn before(&self) -> Mapped {
        self.judge(String::from("present"), self.present.clone())
    }

    /// What there is to say besides: what was left out, what was assumed, what is moved that is said
    /// not to be movable.
    #[must_use]
    pub fn notes(&self, mapped: &[Mapped]) -> Vec<String> {
        let mut notes = self.input.notes.clone();
        if self.cluster.nodes().len() > 1 && self.cluster.factors().iter().all(|f| *f == 1.0) {
            notes.push(format!(
                "no NUMA node is farther than another; factors: {} (--factors)",
                self.factors_from
            ));
        }
        if let Some(background) = &self.background {
            notes.push(format!(
                "{:.2} s of load that is of no task on {} (--procs): it stays, and is in all figures",
                background.load_s,
                counted(background.cores.len(), "core"),
            ));
        }
        if self.caches_from == Some(ASSUMED) {
            let level = |l: &CacheLevel| format!("{} {}", l.name, l.factor);
            let levels: Vec<String> = self.cluster.caches().iter().map(level).collect();
            notes.push(format!(
                "what cores pay that share a cache is assumed, over local memory: {}; `evenly topology \
                 --measure` measures it, for --topology this",
                levels.join(", ")
            ));
        }
        let nature = self.input.nature;
        if !nature.loads_are_said && self.input.graph.pairs() > 0 {
            let (assumed, other) = if nature.received_in_loads {
                ("to include what tasks received", "computing")
            } else {
                ("to be computing alone, without what tasks received", "with-receiving")
            };
            notes.push(format!(
                "loads are assumed {assumed}; --loads says what they are (otherwise {other})"
            ));
        }
        for m in mapped {
            notes.extend(m.unreached.map(|unreached| format!("{}: {unreached}", m.name)));
            let tasks = self.input.graph.tasks().iter().zip(&self.present).zip(&m.mapping);
            let moved = tasks.filter(|((t, now), then)| !t.movable && now != then).count();
            if moved > 0 {
                notes.push(format!("{} moves {moved} tasks that are not movable", m.name));
            }
        }
        notes
    }

    /// The mappings in a table, the present one first, below a line that says what was mapped.
    #[must_use]
    pub fn table(&self, mapped: &[Mapped], options: &Options) -> String {
        let Self { input, cluster, .. } = self;
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{} and {} that communicate, on {} of {} ({}); they are {}",
            counted(input.graph.len(), "task"),
            counted(input.graph.pairs(), "pair"),
            counted(cluster.cores().len(), "core"),
            counted(cluster.nodes().len(), "NUMA node"),
            self.topology,
            self.from.words(),
        );
        let head = [
            "mapping",
            "makespan s",
            "imbalance %",
            "NUCO messages",
            "remote %",
            "hop-bytes",
            "migrations",
            "moved bytes",
            "J s",
            "took s",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let j = |m: &Mapped| self.objective_s(&m.mapping, options).0;
        rows.extend(std::iter::once(&self.before()).chain(mapped).map(|m| row(m, j(m))));
        let widths: Vec<usize> = (0..head.len())
            .map(|c| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0))
            .collect();
        for row in rows {
            let mut line = format!("{:<width$}", row[0], width = widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                let _ = write!(line, "  {cell:>width$}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// A mapping that an algorithm made, as `evenly.map/1`.
    #[must_use]
    pub fn json(&self, mapped: &Mapped, options: &Options) -> Value {
        let mut value = self.common(options, &self.notes(std::slice::from_ref(mapped)));
        value["schema"] = SCHEMA.into();
        value["algorithm"] = mapped.name.as_str().into();
        value["objectives"] =
            json!({ "before": self.before().objectives, "after": mapped.objectives });
        let (before, bound) = self.objective_s(&self.present, options);
        let (after, _) = self.objective_s(&mapped.mapping, options);
        value["objective_s"] = json!({ "before": before, "after": after, "lower_bound": bound });
        value["migrations"] = mapped.objectives.migrations.into();
        value["bounds_kept"] = json!(keeps(mapped, options));
        value["seconds"] = mapped.seconds.into();
        value["assignment"] = json!(self.assignment(&mapped.mapping));
        value
    }

    /// Several mappings, as `evenly.map-comparison/1`.
    #[must_use]
    pub fn comparison_json(&self, mapped: &[Mapped], options: &Options) -> Value {
        let mut value = self.common(options, &self.notes(mapped));
        value["schema"] = SCHEMA_COMPARISON.into();
        value["before"] = json!(self.before().objectives);
        let (before, bound) = self.objective_s(&self.present, options);
        value["objective_s"] = json!({ "before": before, "lower_bound": bound });
        let result = |m: &Mapped| {
            json!({
                "name": m.name,
                "by": if m.seconds.is_some() { "algorithm" } else { "file" },
                "objectives": m.objectives,
                "objective_s": self.objective_s(&m.mapping, options).0,
                "migrations": m.objectives.migrations,
                "bounds_kept": keeps(m, options),
                "seconds": m.seconds,
            })
        };
        value["results"] = mapped.iter().map(result).collect();
        value
    }

    /// What both forms have.
    fn common(&self, options: &Options, notes: &[String]) -> Value {
        let Self { input, cluster, .. } = self;
        let cpus: CpuSet = cluster.cores().iter().map(|c| CpuId(c.id)).collect();
        let alpha = match options.alpha {
            Alpha::Fixed(alpha) => json!(alpha),
            Alpha::Auto => json!("auto"),
        };
        let factors: Vec<&[f64]> = cluster.factors().chunks(cluster.nodes().len().max(1)).collect();
        json!({
            "evenly": env!("CARGO_PKG_VERSION"),
            "tasks": input.graph.len(),
            "pairs": input.graph.pairs(),
            "load_s": input.graph.load_s(),
            "background_s": self.background.as_ref().map_or(0.0, |b| b.load_s),
            "messages": input.graph.messages(),
            "bytes": input.graph.bytes(),
            "machine": {
                "topology": self.topology,
                "cores": cluster.cores().len(),
                "core_ids": cpus.to_string(),
                "nodes": cluster.nodes().len(),
                "factors": factors,
                "factors_from": self.factors_from,
                "caches": cluster.caches(),
                "caches_from": self.caches_from,
            },
            "present": self.from.words(),
            "options": {
                "alpha": alpha,
                "beta": options.byte_s(cluster),
                "seed": options.seed,
                "time_limit_s": options.time_limit.as_secs_f64(),
                "effort": self.by_work.then(|| options.time_limit.as_secs_f64()),
                "migration_worth_s": options.worth_s(&self.present),
                "windows": options.windows,
                "max_migrations": options.max_migrations,
                "max_imbalance": options.max_imbalance,
                "tolerance": options.tolerance,
                "received_in_loads": options.received_in_loads,
                "received_in_loads_assumed": !input.nature.loads_are_said,
                "same_core": options.same_core,
            },
            "notes": notes,
        })
    }

    fn assignment(&self, mapping: &[CoreIndex]) -> Vec<Assigned> {
        let tasks: &TaskGraph = &self.input.graph;
        let of = |(t, core): (&evenly_model::Task, &CoreIndex)| Assigned {
            id: t.id,
            core: self.cluster.cores()[*core].id,
        };
        tasks.tasks().iter().zip(mapping).map(of).collect()
    }
}

/// Calls of mappers for one case, on the tasks with the background load of the cores.
struct Calls<'a> {
    case: &'a Case,
    /// The one that searches.
    mapper: &'a MapperInfo,
    present: &'a [CoreIndex],
    options: &'a Options,
    /// Since the first call.
    clock: &'a dyn Fn() -> Nanos,
}

impl Calls<'_> {
    /// The part of the time limit after which nothing is refined any more.
    const REFINING: f64 = 0.25;

    fn call(&self, mapper: &MapperInfo, options: &Options) -> Vec<CoreIndex> {
        (mapper.map)(&self.case.request(self.present, options, self.clock))
    }

    fn found(&self, mapping: Vec<CoreIndex>) -> Found {
        let worth = objectives(self.case.graph(), &self.case.cluster, self.present, &mapping);
        let Objectives { imbalance, migrations, .. } = worth;
        Found { mapping, imbalance, migrations }
    }
}

impl Maker for Calls<'_> {
    fn present(&self) -> Found {
        self.found(self.present.to_vec())
    }

    fn refined(&self, imbalance: f64) -> Option<Found> {
        if (self.clock)() > self.options.time_limit.scale(Self::REFINING) {
            return None;
        }
        let options = Options { tolerance: imbalance, ..self.options.clone() };
        Some(self.found(self.call(mapper("refine")?, &options)))
    }

    fn searched(&self, options: &Options) -> Found {
        self.found(self.call(self.mapper, options))
    }
}

/// Whether a mapping keeps the bounds of the options; None where there are none.
fn keeps(mapped: &Mapped, options: &Options) -> Option<bool> {
    let migrations = options.max_migrations.map(|most| mapped.objectives.migrations <= most);
    let imbalance =
        options.max_imbalance.map(|_| Unreached::of(&mapped.objectives, options).is_none());
    match (migrations, imbalance) {
        (None, None) => None,
        (migrations, imbalance) => Some(migrations.unwrap_or(true) && imbalance.unwrap_or(true)),
    }
}

/// A line of the table.
fn row(m: &Mapped, objective_s: f64) -> Vec<String> {
    let o = &m.objectives;
    vec![
        printable(&m.name).into_owned(),
        format!("{:.4}", o.makespan_s),
        format!("{:.1}", 100.0 * o.imbalance),
        amount(o.nuco_messages),
        format!("{:.1}", 100.0 * o.remote_share),
        amount(o.hop_bytes),
        o.migrations.to_string(),
        amount(o.migrated_bytes),
        format!("{objective_s:.4}"),
        m.seconds.map_or_else(String::new, |s| format!("{s:.3}")),
    ]
}

/// A number that may be great: whole, or with four digits and a power of ten.
fn amount(x: f64) -> String {
    if x < 1e7 { format!("{x:.0}") } else { format!("{x:.3e}") }
}

/// What a mapper takes for each that it looks at ([`evenly_nuco::map::Effort::looks`]), in seconds.
/// Measured once, on a machine that had other work too: `nuco` 15 to 25 ns and `treematch` 25 to 60 ns
/// for a task and a core, with 10,000 and 100,000 tasks on 1,000 cores.
const LOOK_S: f64 = 60e-9;

/// How long it may take to say what so many mappings are worth, in seconds: a rough guess from above.
#[must_use]
pub fn judging_s(mappings: usize, tasks: usize, pairs: usize) -> f64 {
    // Objectives and J, of the present mapping twice.
    LOOK_S * (2 + mappings) as f64 * 2.0 * (tasks as f64 + 2.0 * pairs as f64)
}

/// How long a mapper may take, but for the time that it searches, in seconds: a rough guess from above.
#[must_use]
pub fn expected_s(mapper: &MapperInfo, tasks: usize, cores: usize, pairs: usize) -> f64 {
    LOOK_S * mapper.effort.looks(tasks, cores, pairs)
}

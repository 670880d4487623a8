//! What a runtime knows of its processing elements, as CSV: how fast each is, and what else it has to do.
//!
//! Invariant: what a core has to do besides is a task of that core, which is never moved and sends no
//! messages; it is in every sum and in no answer.

use crate::error::{InputError, name_of};
use crate::objects::core_index;
use crate::table::Table;
use evenly_cluster::{Cluster, CoreIndex, RATIO_NEEDED, RATIOS};
use evenly_model::{Task, TaskGraph};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// What is said of a core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Proc {
    /// The core that the line is about.
    pub core: CoreIndex,
    /// How fast it computes, where that is said; in any unit.
    pub speed: Option<f64>,
    /// What it had to do besides the tasks, in seconds of its time.
    pub background_s: f64,
}

/// Loads of cores that are of no task, and the tasks with them.
#[derive(Debug, Clone)]
pub struct Background {
    /// The tasks that are mapped, and behind them one of each core that has such a load.
    pub(crate) graph: TaskGraph,
    /// The cores of the latter.
    pub(crate) cores: Vec<CoreIndex>,
    /// Their loads together, in seconds on the fastest cores.
    pub(crate) load_s: f64,
}

/// Reads columns `pe` and where they are there `speed` and `background_s`; other columns of Charm++'s dumps
/// (`total_s`, `idle_s`, `n_objs`) are not looked at. Cores that are not named are taken to have nothing
/// else to do; where speeds are given they are for every core.
///
/// # Errors
/// The first thing that is wrong, with its line where there is one.
pub fn read_procs(
    input: impl Read,
    file: &str,
    cluster: &Cluster,
) -> Result<Vec<Proc>, InputError> {
    let mut table = Table::open(file, input)?;
    let pe = table.needed("pe")?;
    let (speed, background) = (table.column("speed")?, table.column("background_s")?);
    let mut procs: Vec<Option<Proc>> = vec![None; cluster.cores().len()];
    while let Some(row) = table.next()? {
        let Some(id) = row.core(pe)? else {
            return Err(row.wrong("pe is empty; the number of a core is needed"));
        };
        let core =
            core_index(cluster, id).map_err(|what| row.wrong(format!("pe is {id}; {what}")))?;
        let proc = Proc {
            core,
            speed: speed.map(|c| row.ratio(c)).transpose()?,
            background_s: background.map_or(Ok(0.0), |c| row.amount(c))?,
        };
        if procs[core].replace(proc).is_some() {
            return Err(row.wrong(format!("core {id} is there twice; once is needed")));
        }
    }
    let missing = procs.iter().position(Option::is_none).filter(|_| speed.is_some());
    if let Some(id) = missing.map(|core| cluster.cores()[core].id) {
        let what = format!("core {id} is not there; the speed of every core is needed");
        return Err(InputError::new(file, what));
    }
    Ok(procs.into_iter().flatten().collect())
}

/// As [`read_procs`], of a file.
///
/// # Errors
/// As [`read_procs`].
pub fn procs_file(path: &Path, cluster: &Cluster) -> Result<Vec<Proc>, InputError> {
    let name = name_of(path);
    let file = File::open(path).map_err(|e| InputError::unreadable(&name, &e))?;
    read_procs(file, &name, cluster)
}

/// The machine with their speeds, the fastest of which is 1; as it is where none are given.
///
/// # Errors
/// In words, where one is so much slower than another that it is no speed.
pub fn with_speeds(cluster: Cluster, procs: &[Proc]) -> Result<Cluster, String> {
    let mut speeds: Vec<f64> = cluster.cores().iter().map(|c| c.speed).collect();
    let fastest = procs.iter().filter_map(|p| p.speed).fold(0.0, f64::max);
    for p in procs {
        if let Some(speed) = p.speed {
            speeds[p.core] = speed / fastest;
        }
    }
    if let Some(core) = speeds.iter().position(|s| !RATIOS.contains(s)) {
        let (id, speed) = (cluster.cores()[core].id, speeds[core]);
        return Err(format!(
            "core {id} is {speed:e} times as fast as the fastest; {RATIO_NEEDED} is needed"
        ));
    }
    cluster.with_speeds(&speeds).map_err(|e| e.to_string())
}

impl Background {
    /// Of these tasks on this machine, which has its speeds already; None where no core has anything else
    /// to do.
    ///
    /// # Errors
    /// In words, where they are no tasks.
    pub fn of(
        graph: &TaskGraph,
        cluster: &Cluster,
        procs: &[Proc],
    ) -> Result<Option<Self>, String> {
        let busy: Vec<&Proc> = procs.iter().filter(|p| p.background_s > 0.0).collect();
        if busy.is_empty() {
            return Ok(None);
        }
        // Numbers that no task has; they are not shown.
        let free = (0..).filter(|id| graph.find(*id).is_none());
        let task = |(p, id): (&&Proc, u64)| Task {
            id,
            // Loads are of the fastest cores.
            load_s: p.background_s * cluster.cores()[p.core].speed,
            size_bytes: 0.0,
            core: Some(cluster.cores()[p.core].id),
            movable: false,
        };
        let tasks: Vec<Task> = busy.iter().zip(free).map(task).collect();
        let load_s = tasks.iter().map(|t| t.load_s).sum();
        let cores = busy.iter().map(|p| p.core).collect();
        let graph = graph.clone().with_silent(tasks).map_err(|e| e.to_string())?;
        Ok(Some(Self { graph, cores, load_s }))
    }
}

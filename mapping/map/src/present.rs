//! Where the tasks are before anything is moved.

use crate::error::{InputError, name_of};
use crate::input::Input;
use crate::objects::{core_of, read_mapping};
use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::TaskGraph;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Where tasks are, where their file does not say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Current {
    /// Task i on core i modulo the number of cores.
    RoundRobin,
    /// As many neighbouring tasks on each core.
    Compact,
    /// As this mapping (CSV, id and pe) says.
    File(PathBuf),
}

/// Where it comes from that tasks are where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresentFrom {
    /// The file of the tasks.
    Tasks,
    /// What was asked for.
    Given(Current),
    /// Compact, because nothing says otherwise.
    Assumed,
}

impl PresentFrom {
    /// Where the placement comes from, in words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Tasks => String::from("as in the input"),
            Self::Given(Current::RoundRobin) => String::from("round-robin"),
            Self::Given(Current::Compact) => String::from("compact"),
            Self::Given(Current::File(path)) => format!("as in {}", name_of(path)),
            Self::Assumed => String::from("compact, which is assumed (--current)"),
        }
    }
}

/// Reads the file of a mapping ([`read_mapping`]).
///
/// # Errors
/// The first thing that is wrong, with its line where there is one.
pub fn mapping_file(
    path: &Path,
    graph: &TaskGraph,
    cluster: &Cluster,
) -> Result<Vec<CoreIndex>, InputError> {
    let name = name_of(path);
    let file = File::open(path).map_err(|e| InputError::unreadable(&name, &e))?;
    read_mapping(file, &name, graph, cluster)
}

/// Where each task is, by its place. `current` counts more than what the tasks themselves say.
///
/// # Errors
/// Where a core is not there, or only some tasks are on one.
pub fn present(
    input: &Input,
    cluster: &Cluster,
    current: Option<&Current>,
) -> Result<(Vec<CoreIndex>, PresentFrom), InputError> {
    let (n, m) = (input.graph.len(), cluster.cores().len());
    let compact = || (0..n).map(|t| t * m / n).collect();
    if let Some(current) = current {
        let mapping = match current {
            Current::RoundRobin => (0..n).map(|t| t % m).collect(),
            Current::Compact => compact(),
            Current::File(path) => mapping_file(path, &input.graph, cluster)?,
        };
        return Ok((mapping, PresentFrom::Given(current.clone())));
    }
    let tasks = input.graph.tasks();
    if tasks.iter().all(|t| t.core.is_none()) {
        return Ok((compact(), PresentFrom::Assumed));
    }
    let mapping = tasks.iter().map(|t| match t.core {
        Some(core) => core_of(cluster, t.id, core),
        None => Err(format!(
            "task {} is on no core, others are on one; all are needed, or --current",
            t.id
        )),
    });
    let mapping: Result<Vec<CoreIndex>, String> = mapping.collect();
    Ok((mapping.map_err(|what| InputError::new(&input.tasks_file, what))?, PresentFrom::Tasks))
}

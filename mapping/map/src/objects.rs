//! CSV as in load-balancing dumps: a file of tasks, a file of edges, a file of a mapping.
//!
//! Columns are found by their names, in any order; columns with other names are not looked at.

use crate::edges::{Edges, MOST_TASKS};
use crate::error::InputError;
use crate::table::Table;
use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::{CpuId, CpuSet, Edge, Task, TaskGraph};
use std::collections::HashSet;
use std::io::Read;

/// The place of a core in the machine.
pub(crate) fn core_index(cluster: &Cluster, core: u32) -> Result<CoreIndex, String> {
    cluster.find(core).ok_or_else(|| {
        let ids: CpuSet = cluster.cores().iter().map(|c| CpuId(c.id)).collect();
        format!("the machine has {} cores: {ids}", cluster.cores().len())
    })
}

/// The place of the core that a task is on.
pub(crate) fn core_of(cluster: &Cluster, task: u64, core: u32) -> Result<CoreIndex, String> {
    core_index(cluster, core).map_err(|has| format!("task {task} is on core {core}; {has}"))
}

/// Tasks: columns `id`, `load_s` (seconds), and where it is known `pe` (the core that it is on),
/// `migratable` (1 or 0; else 1), `size_bytes` or `size`.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn read_objects(input: impl Read, file: &str) -> Result<Vec<Task>, InputError> {
    let mut table = Table::open(file, input)?;
    let (id, load) = (table.needed("id")?, table.needed("load_s")?);
    let (pe, movable) = (table.column("pe")?, table.column("migratable")?);
    let size = match table.column("size_bytes")? {
        Some(column) => Some(column),
        None => table.column("size")?,
    };
    let mut tasks = Vec::new();
    let mut ids = HashSet::new();
    while let Some(row) = table.next()? {
        if tasks.len() == MOST_TASKS {
            return Err(row
                .wrong(format!("there are more than {MOST_TASKS} tasks, the most that are read")));
        }
        let task = Task {
            id: row.id(id)?,
            load_s: row.amount(load)?,
            size_bytes: size.map_or(Ok(0.0), |c| row.amount(c))?,
            core: pe.map_or(Ok(None), |c| row.core(c))?,
            movable: movable.map_or(Ok(true), |c| row.flag(c))?,
        };
        if !ids.insert(task.id) {
            let what =
                format!("task {} is there twice; every task needs a number of its own", task.id);
            return Err(row.wrong(what));
        }
        tasks.push(task);
    }
    if tasks.is_empty() {
        return Err(InputError::new(
            file,
            "it has no tasks, only names of columns; at least one is needed",
        ));
    }
    Ok(tasks)
}

/// Edges: columns `from`, `to`, `messages`, and where it is known `bytes` (of all messages
/// together). `known` says whether there is such a task.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn read_edges(
    input: impl Read,
    file: &str,
    known: &dyn Fn(u64) -> bool,
) -> Result<Edges, InputError> {
    let mut table = Table::open(file, input)?;
    let (from, to) = (table.needed("from")?, table.needed("to")?);
    let (messages, bytes) = (table.needed("messages")?, table.column("bytes")?);
    let mut edges = Edges::default();
    while let Some(row) = table.next()? {
        let edge = Edge {
            from: row.id(from)?,
            to: row.id(to)?,
            messages: row.amount(messages)?,
            bytes: bytes.map_or(Ok(0.0), |c| row.amount(c))?,
        };
        edges.add(edge, known).map_err(|what| row.wrong(what))?;
    }
    Ok(edges)
}

/// A mapping: columns `id` and `pe`, every task once.
///
/// # Errors
/// The first thing that is wrong, with its line where there is one.
pub fn read_mapping(
    input: impl Read,
    file: &str,
    graph: &TaskGraph,
    cluster: &Cluster,
) -> Result<Vec<CoreIndex>, InputError> {
    let mut table = Table::open(file, input)?;
    let (id, pe) = (table.needed("id")?, table.needed("pe")?);
    let mut mapping: Vec<Option<CoreIndex>> = vec![None; graph.len()];
    while let Some(row) = table.next()? {
        let number = row.id(id)?;
        let Some(task) = graph.find(number) else {
            return Err(row.wrong(format!("there is no task {number}")));
        };
        let Some(core) = row.core(pe)? else {
            return Err(
                row.wrong(format!("task {number} has no pe; a mapping needs one for every task"))
            );
        };
        let core = core_of(cluster, number, core).map_err(|what| row.wrong(what))?;
        if mapping[task].replace(core).is_some() {
            return Err(row.wrong(format!("task {number} is there twice; once is needed")));
        }
    }
    let missing = mapping.iter().position(Option::is_none);
    if let Some(task) = missing.map(|m| graph.tasks()[m].id) {
        let what = format!("task {task} is not there; a mapping needs every task");
        return Err(InputError::new(file, what));
    }
    Ok(mapping.into_iter().flatten().collect())
}

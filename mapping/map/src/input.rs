//! What is given, put together: tasks from one file, and their communication from another.

use crate::edges::Edges;
use crate::error::{InputError, name_of};
use crate::json::{Nature, read_tasks};
use crate::market::read_matrix;
use crate::monitoring::{Monitoring, read_monitoring};
use crate::objects::{read_edges, read_objects};
use evenly_model::{Edge, Task, TaskGraph};
use std::collections::HashSet;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The files with the loads of tasks and their communication. Either `tasks`, or `objects`
/// with at most one kind of the others, or one of the others alone.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Files {
    /// The file of tasks, as CSV.
    pub objects: Option<PathBuf>,
    /// Edges as CSV; needs `objects`.
    pub edges: Option<PathBuf>,
    /// Tasks and edges as JSON.
    pub tasks: Option<PathBuf>,
    /// Messages as Matrix Market file.
    pub matrix: Option<PathBuf>,
    /// Bytes, in the same way; needs `matrix`.
    pub bytes_matrix: Option<PathBuf>,
    /// Output of Open MPI's monitoring, all of it in one file or a file of each rank.
    pub monitoring: Vec<PathBuf>,
}

/// What the files say of tasks and messages.
#[derive(Debug, Clone)]
pub struct Input {
    /// The tasks, and the messages between them.
    pub graph: TaskGraph,
    /// What the tasks are.
    pub nature: Nature,
    /// The file that says where tasks are, for messages.
    pub tasks_file: String,
    /// What was left out or assumed.
    pub notes: Vec<String>,
}

impl Files {
    /// All files that are read.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        let single = [&self.objects, &self.edges, &self.tasks, &self.matrix, &self.bytes_matrix];
        single.into_iter().flatten().chain(&self.monitoring).map(PathBuf::as_path)
    }

    /// Reads them.
    ///
    /// # Errors
    /// The first thing that is wrong, with file and line.
    pub fn read(&self) -> Result<Input, InputError> {
        let mut notes = Vec::new();
        if let Some(path) = &self.tasks {
            let file = name_of(path);
            let (tasks, edges, nature) = read_tasks(open(path, &file)?, &file)?;
            return Ok(Input { nature, ..finish(tasks, edges, file, notes)? });
        }
        let mut tasks = Vec::new();
        let mut file = String::new();
        if let Some(path) = &self.objects {
            file = name_of(path);
            tasks = read_objects(open(path, &file)?, &file)?;
        }
        let ids: HashSet<u64> = tasks.iter().map(|t| t.id).collect();
        let (edges, ranks) = self.communication(&ids, &mut notes)?;
        if self.matrix.is_some() && !ids.is_empty() && ranks != ids.len() {
            notes.push(format!(
                "the matrix has {ranks} rows for {} tasks: row i is of task i - 1",
                ids.len()
            ));
        }
        let mut nature = Nature::default();
        if tasks.is_empty() {
            // There is nothing in them but that.
            nature.loads_are_said = true;
            file = self.all().next().map(name_of).unwrap_or_default();
            tasks = (0..ranks as u64).map(of_load_one).collect();
            notes.push(String::from("no loads are given: every task counts as 1 s (--objects)"));
        } else if edges.list.is_empty() {
            notes.push(String::from("no task sends anything to another"));
        }
        Ok(Input { nature, ..finish(tasks, edges, file, notes)? })
    }

    /// Edges, and how many tasks they are between where there is no other file that says so. `ids` are
    /// those of the tasks; none where nothing says which there are.
    fn communication(
        &self,
        ids: &HashSet<u64>,
        notes: &mut Vec<String>,
    ) -> Result<(Edges, usize), InputError> {
        let known: &dyn Fn(u64) -> bool = &|id| ids.is_empty() || ids.contains(&id);
        if let Some(path) = &self.edges {
            let file = name_of(path);
            return Ok((read_edges(open(path, &file)?, &file, known)?, 0));
        }
        if let Some(path) = &self.matrix {
            let file = name_of(path);
            let mut matrix = read_matrix(open(path, &file)?, &file, known)?;
            notes.extend(said_again(&file, matrix.again));
            match &self.bytes_matrix {
                Some(path) => {
                    let name = name_of(path);
                    let bytes = read_matrix(open(path, &name)?, &name, known)?;
                    if bytes.tasks != matrix.tasks {
                        let what = format!(
                            "it has {} rows; as many as in {file}, {}, are needed",
                            bytes.tasks, matrix.tasks
                        );
                        return Err(InputError::new(&name, what));
                    }
                    notes.extend(said_again(&name, bytes.again));
                    let edges = bytes.edges.list.into_iter();
                    matrix.edges.list.extend(edges.map(|e| Edge {
                        bytes: e.messages,
                        messages: 0.0,
                        ..e
                    }));
                }
                None => notes
                    .push(String::from("bytes are not known (--bytes-matrix): hop-bytes are 0")),
            }
            return Ok((matrix.edges, matrix.tasks));
        }
        let mut all = Monitoring::default();
        for path in &self.monitoring {
            let file = name_of(path);
            read_monitoring(open(path, &file)?, &file, known, &mut all)?;
        }
        let mut ids: Vec<u64> = ids.iter().copied().collect();
        if ids.is_empty() {
            ids.extend(0..all.ranks as u64);
        }
        ids.sort_unstable();
        all.whole(ids.into_iter()).map_err(|what| InputError::new("--monitoring", what))?;
        notes.extend(all.notes());
        let ranks = all.ranks;
        Ok((all.into_edges(), ranks))
    }
}

/// What is said of a matrix that has more than one entry for a row and column.
fn said_again(file: &str, again: usize) -> Option<String> {
    let entries = match again {
        0 => return None,
        1 => String::from("an entry stands"),
        n => format!("{n} entries stand"),
    };
    Some(format!("{file}: {entries} in a row and column that had one before: all are added up"))
}

/// A task of which nothing is known.
fn of_load_one(id: u64) -> Task {
    Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true }
}

fn open(path: &Path, file: &str) -> Result<File, InputError> {
    File::open(path).map_err(|e| InputError::unreadable(file, &e))
}

fn finish(
    tasks: Vec<Task>,
    edges: Edges,
    tasks_file: String,
    mut notes: Vec<String>,
) -> Result<Input, InputError> {
    if edges.to_itself > 0 {
        notes.push(format!(
            "{} from a task to itself left out: {}",
            if edges.to_itself == 1 {
                "an edge".to_owned()
            } else {
                format!("{} edges", edges.to_itself)
            },
            "it costs the same everywhere"
        ));
    }
    let graph = TaskGraph::new(tasks, &edges.list).map_err(|e| InputError::new(&tasks_file, e))?;
    Ok(Input { graph, nature: Nature::default(), tasks_file, notes })
}

//! The open format for tasks and edges: JSON, `evenly.tasks/1`
//! (`docs/schemas/evenly.tasks-1.json`).

use crate::edges::{Edges, MOST_TASKS};
use crate::error::{InputError, quoted};
use crate::lines::Bounded;
use evenly_model::{Edge, MOST_OF_ANYTHING, Task, printable};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::HashSet;
use std::fmt;
use std::io::{BufReader, Read};
use std::marker::PhantomData;

/// Name and version of the format.
pub const SCHEMA_TASKS: &str = "evenly.tasks/1";

/// The file. Fields that it does not know are refused: one that is misspelt would else be taken for
/// one that is not given.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TasksFile {
    schema: String,
    #[serde(default)]
    received_in_loads: Option<bool>,
    #[serde(default)]
    processes: bool,
    #[serde(default)]
    mpi: Option<Mpi>,
    tasks: Vec<Object<TaskEntry>>,
    #[serde(default)]
    edges: Vec<Object<EdgeEntry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskEntry {
    id: u64,
    load_s: Amount,
    #[serde(default)]
    size_bytes: Amount,
    #[serde(default)]
    core: Option<u32>,
    #[serde(default = "yes")]
    movable: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeEntry {
    from: u64,
    to: u64,
    messages: Amount,
    #[serde(default)]
    bytes: Amount,
}

/// A family of MPI libraries, by the name that the file has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mpi {
    /// Open MPI, of any version.
    #[serde(rename = "openmpi")]
    OpenMpi,
    /// MPICH and its kin.
    #[serde(rename = "mpich")]
    Mpich,
}

impl fmt::Display for Mpi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        })
    }
}

/// What tasks are, and how their loads were taken. Default: objects of a runtime, of which nothing says what
/// is in their loads, so that these are what they compute.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Nature {
    /// Whether what a task took includes what it received, as where a runtime measures it.
    pub received_in_loads: bool,
    /// Whether that was said, and is not assumed.
    pub loads_are_said: bool,
    /// Whether each is a process: those on one core have to take turns there to answer each other, and
    /// one that is started elsewhere has not migrated.
    pub processes: bool,
    /// The MPI that they were ranks of, where that is known.
    pub mpi: Option<Mpi>,
}

/// What an object of the file has in it, for errors.
trait Described {
    const IS: &'static str;
}

impl Described for TasksFile {
    const IS: &'static str = "an object with schema, tasks and edges";
}

impl Described for TaskEntry {
    const IS: &'static str = "a task: an object with id and load_s";
}

impl Described for EdgeEntry {
    const IS: &'static str = "an edge: an object with from, to and messages";
}

/// Of a JSON object, and of nothing else: serde would take a list for one, its elements by their order.
struct Object<T>(T);

impl<'de, T: Deserialize<'de> + Described> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + Described> Visitor<'de> for Members<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::IS)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// Finite and not negative.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct Amount(f64);

impl TryFrom<f64> for Amount {
    type Error = String;
    fn try_from(x: f64) -> Result<Self, String> {
        if (0.0..=MOST_OF_ANYTHING).contains(&x) {
            Ok(Self(x))
        } else if x > 0.0 {
            Err(format!("{x:e} was found; at most {MOST_OF_ANYTHING:e} can be"))
        } else {
            Err(format!("{x} was found; a number that is not negative is needed"))
        }
    }
}

fn yes() -> bool {
    true
}

/// Reads such a file.
///
/// # Errors
/// The first thing that is wrong, with its line where it is one of form.
pub fn read_tasks(input: impl Read, file: &str) -> Result<(Vec<Task>, Edges, Nature), InputError> {
    let reader = BufReader::with_capacity(1 << 16, Bounded::new(input));
    let Object(found) = serde_json::from_reader::<_, Object<TasksFile>>(reader)
        .map_err(|e| wrong(file, SCHEMA_TASKS, &e))?;
    if found.schema != SCHEMA_TASKS {
        let what = format!("its schema is {}; {SCHEMA_TASKS} is needed", quoted(&found.schema));
        return Err(InputError::new(file, what));
    }
    if found.tasks.len() > MOST_TASKS {
        let what = format!("there are more than {MOST_TASKS} tasks, the most that are read");
        return Err(InputError::new(file, what));
    }
    let TasksFile { received_in_loads, processes, mpi, .. } = found;
    let loads_are_said = received_in_loads.is_some();
    // What the format says of files that do not have the field.
    let received_in_loads = received_in_loads.unwrap_or(true);
    let nature = Nature { received_in_loads, loads_are_said, processes, mpi };
    let ids: HashSet<u64> = found.tasks.iter().map(|t| t.0.id).collect();
    let mut edges = Edges::default();
    for Object(e) in found.edges {
        let EdgeEntry { from, to, messages: Amount(messages), bytes: Amount(bytes) } = e;
        edges
            .add(Edge { from, to, messages, bytes }, &|id| ids.contains(&id))
            .map_err(|what| InputError::new(file, what))?;
    }
    let tasks = found.tasks.into_iter().map(|Object(t)| Task {
        id: t.id,
        load_s: t.load_s.0,
        size_bytes: t.size_bytes.0,
        core: t.core,
        movable: t.movable,
    });
    Ok((tasks.collect(), edges, nature))
}

/// What serde says, with our way of naming the line.
pub(crate) fn wrong(file: &str, schema: &str, e: &serde_json::Error) -> InputError {
    if e.is_io() {
        return InputError::new(file, format_args!("cannot be read: {e}"));
    }
    if e.is_eof() && e.line() <= 1 && e.column() == 0 {
        let what = format!("it is empty; a JSON object with schema {schema} is needed");
        return InputError::new(file, what);
    }
    let text = e.to_string();
    let end = format!(" at line {} column {}", e.line(), e.column());
    let said: String =
        printable(text.strip_suffix(&end).unwrap_or(&text)).chars().take(300).collect();
    InputError::at(file, e.line() as u64, said)
}

//! Files that describe loops (TOML, described in `docs/simulate.md`): from text to a program that can be run.
//!
//! Invariant: what [`parse_loops`] returns runs on its machine, half of whose processors' time others may take, without a panic,
//! and ends. Each message is one line that names the key, what was found, and what is needed.

use super::cluster::{ClusterCosts, LoopMachine};
use super::program::{Everywhere, LoopProgram, ParallelLoop};
use crate::file::wrong;
use crate::text::{FileError, Span, parse_text};
use evenly_iterations::{Access, ArrayId, Bounds, Load, Region, Section, Use};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The most arrays, loops, nodes and processors that a file may have.
const MOST_ARRAYS: usize = 64;
const MOST_LOOPS: usize = 64;
const MOST_NODES: usize = 64;
const MOST_PROCESSORS: usize = 1_024;
/// Letters of a name, so that tables stay readable.
const MOST_LETTERS: usize = 40;
/// Bytes of a page: from a cache line to the largest page of usual machines.
const PAGE: [u64; 2] = [64, 1 << 30];
/// The most rows of an array, and bytes of a row.
const MOST_ROWS: u64 = 1 << 40;

/// A file of loops, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct DescribedLoops {
    /// What is run.
    pub program: LoopProgram,
    /// Where; the usual machine, as far as the file says nothing of it.
    pub machine: LoopMachine,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    steps: u64,
    #[serde(default)]
    machine: MachineText,
    #[serde(default)]
    array: Vec<ArrayText>,
    #[serde(default, rename = "loop")]
    loops: Vec<LoopText>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MachineText {
    nodes: usize,
    processors: usize,
    page: u64,
    fetch: Span,
    wire: Span,
    twin: Span,
    diff: Span,
    message: Span,
    barrier: Span,
    quantum: Span,
}

impl Default for MachineText {
    fn default() -> Self {
        let LoopMachine { nodes, processors, page_bytes, fetch, costs, quantum } =
            LoopMachine::default();
        Self {
            nodes,
            processors,
            page: page_bytes,
            fetch: Span(fetch),
            wire: Span(costs.wire),
            twin: Span(costs.twin),
            diff: Span(costs.diff),
            message: Span(costs.message),
            barrier: Span(costs.barrier),
            quantum: Span(quantum),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrayText {
    name: String,
    rows: u64,
    row_bytes: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LoopText {
    name: String,
    iterations: Option<u64>,
    work: Span,
    #[serde(default = "fixed")]
    load: String,
    #[serde(default = "unknown")]
    access: String,
    #[serde(default)]
    reads: Vec<String>,
    #[serde(default)]
    writes: Vec<String>,
    #[serde(default)]
    everywhere: Vec<String>,
    #[serde(default)]
    shrinks: bool,
}

fn fixed() -> String {
    String::from("fixed")
}

fn unknown() -> String {
    String::from("unknown")
}

/// Reads a file that describes loops.
///
/// # Errors
/// [`FileError`].
pub fn parse_loops(text: &str) -> Result<DescribedLoops, FileError> {
    let text: Text = parse_text(text)?;
    let machine = machine(&text.machine)?;
    let arrays = arrays(&text.array)?;
    if text.loops.is_empty() || text.loops.len() > MOST_LOOPS {
        let found = text.loops.len();
        return wrong("loop", format!("there are {found}; 1 to {MOST_LOOPS} [[loop]] are needed"));
    }
    if text.steps == 0 {
        return wrong("steps", "it must be at least 1");
    }
    let mut loops = Vec::new();
    let mut names = BTreeSet::new();
    for (i, of) in text.loops.iter().enumerate() {
        name(&format!("loop[{i}].name"), &of.name, &mut names)?;
        loops.push(parallel_loop(i, of, &text.array)?);
    }
    let program = LoopProgram { arrays, loops, steps: text.steps };
    // Whoever asks for a higher load is told by the run itself where that is too much.
    program.check(&machine.cluster(&vec![0.5; machine.processors])).or_else(|e| {
        let problem = format!("{}; needed {}", e.found, e.needed);
        wrong(e.object, problem)
    })?;
    Ok(DescribedLoops { program, machine })
}

fn machine(m: &MachineText) -> Result<LoopMachine, FileError> {
    for (name, found, most) in
        [("nodes", m.nodes, MOST_NODES), ("processors", m.processors, MOST_PROCESSORS)]
    {
        if !(1..=most).contains(&found) {
            return wrong(format!("machine.{name}"), format!("{found} must be from 1 to {most}"));
        }
    }
    if !m.processors.is_multiple_of(m.nodes) {
        let (found, nodes) = (m.processors, m.nodes);
        return wrong("machine.processors", format!("{found} must be a multiple of {nodes} nodes"));
    }
    let [least, most] = PAGE;
    if !(least..=most).contains(&m.page) {
        let found = m.page;
        return wrong("machine.page", format!("{found} must be from {least} to {most} bytes"));
    }
    if m.quantum.0.0 < 10_000 {
        return wrong("machine.quantum", "it must be at least 10us");
    }
    Ok(LoopMachine {
        nodes: m.nodes,
        processors: m.processors,
        page_bytes: m.page,
        fetch: m.fetch.0,
        costs: ClusterCosts {
            wire: m.wire.0,
            twin: m.twin.0,
            diff: m.diff.0,
            message: m.message.0,
            barrier: m.barrier.0,
        },
        quantum: m.quantum.0,
    })
}

fn name(key: &str, found: &str, before: &mut BTreeSet<String>) -> Result<(), FileError> {
    let letters = found.chars().count();
    if !(1..=MOST_LETTERS).contains(&letters) || found.chars().any(char::is_control) {
        return wrong(key, format!("it must have 1 to {MOST_LETTERS} letters that can be printed"));
    }
    if !before.insert(found.to_owned()) {
        return wrong(key, format!("'{found}' is the name of another one already"));
    }
    Ok(())
}

/// Bytes of each.
fn arrays(all: &[ArrayText]) -> Result<Vec<u64>, FileError> {
    if all.len() > MOST_ARRAYS {
        return wrong("array", format!("there are {}; at most {MOST_ARRAYS} are read", all.len()));
    }
    let mut names = BTreeSet::new();
    let mut bytes = Vec::new();
    for (i, a) in all.iter().enumerate() {
        let key = |name: &str| format!("array[{i}].{name}");
        name(&key("name"), &a.name, &mut names)?;
        for (name, found) in [("rows", a.rows), ("row_bytes", a.row_bytes)] {
            if !(1..=MOST_ROWS).contains(&found) {
                return wrong(key(name), format!("{found} must be from 1 to {MOST_ROWS}"));
            }
        }
        bytes.push(a.rows.saturating_mul(a.row_bytes));
    }
    Ok(bytes)
}

/// The arrays of these names, by their places.
fn named(key: &str, names: &[String], arrays: &[ArrayText]) -> Result<Vec<usize>, FileError> {
    let mut places = Vec::new();
    for name in names {
        let Some(place) = arrays.iter().position(|a| a.name == *name) else {
            let all: Vec<&str> = arrays.iter().map(|a| a.name.as_str()).collect();
            let there = if all.is_empty() { String::from("none") } else { all.join(", ") };
            return wrong(key, format!("there is no array '{name}'; there are {there}"));
        };
        if places.contains(&place) {
            return wrong(key, format!("'{name}' must be there once only"));
        }
        places.push(place);
    }
    Ok(places)
}

fn parallel_loop(i: usize, l: &LoopText, arrays: &[ArrayText]) -> Result<ParallelLoop, FileError> {
    let key = |name: &str| format!("loop[{i}].{name}");
    let load = match l.load.as_str() {
        "fixed" => Load::Fixed,
        "variable" => Load::Variable,
        other => {
            return wrong(key("load"), format!("'{other}' is unknown; there are fixed, variable"));
        }
    };
    let access = match l.access.as_str() {
        "independent" => Access::Independent,
        "stencil" => Access::Stencil,
        "unknown" => Access::Unknown,
        other => {
            let there = "there are independent, stencil, unknown";
            return wrong(key("access"), format!("'{other}' is unknown; {there}"));
        }
    };
    if l.work.0.0 == 0 {
        return wrong(key("work"), "it must be longer than 0");
    }
    let writes = named(&key("writes"), &l.writes, arrays)?;
    let reads = named(&key("reads"), &l.reads, arrays)?;
    let everywhere = named(&key("everywhere"), &l.everywhere, arrays)?;
    let count = iterations(&key("iterations"), l, &[&writes[..], &reads].concat(), arrays)?;
    // An array of which each node has everything is the same, whatever an iteration reads.
    let neighbours: &[i64] = if access == Access::Stencil { &[-1, 0, 1] } else { &[0] };
    let mut sections: Vec<Section> =
        writes.iter().map(|&a| section(a, arrays, Use::Writes, 0)).collect();
    for &array in &reads {
        sections.extend(neighbours.iter().map(|&row| section(array, arrays, Use::Reads, row)));
    }
    let all_of = |&array: &usize| Everywhere {
        array: ArrayId(array as u32),
        bytes: 0..arrays[array].rows.saturating_mul(arrays[array].row_bytes),
        moves: 0,
    };
    Ok(ParallelLoop {
        name: l.name.clone(),
        region: Region { load, access, sections },
        bounds: Bounds { lower: 0, upper: count, stride: 1 },
        work: l.work.0,
        shrinks: l.shrinks,
        everywhere: everywhere.iter().map(all_of).collect(),
        updates: None,
        alone: None,
    })
}

/// Row `i`, and this one from there.
fn section(array: usize, arrays: &[ArrayText], used: Use, row: i64) -> Section {
    let element_bytes = arrays[array].row_bytes;
    Section { array: ArrayId(array as u32), used, element_bytes, coefficient: 1, constant: row }
}

/// How many there are; each has a row in all arrays that it uses.
fn iterations(
    key: &str,
    l: &LoopText,
    used: &[usize],
    arrays: &[ArrayText],
) -> Result<i64, FileError> {
    let Some(count) = l.iterations.or_else(|| used.first().map(|&a| arrays[a].rows)) else {
        return wrong(key, "it must be given where a loop neither writes nor reads rows");
    };
    if count == 0 {
        return wrong(key, "there must be at least 1");
    }
    if let Some(array) = used.iter().map(|&a| &arrays[a]).find(|a| a.rows < count) {
        let (rows, name) = (array.rows, &array.name);
        return wrong(key, format!("{count} are more than the {rows} rows of '{name}'"));
    }
    i64::try_from(count).or_else(|_| wrong(key, format!("{count} are too many")))
}

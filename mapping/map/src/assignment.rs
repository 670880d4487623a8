//! A mapping read back to be carried out on a running program: which CPUs each task is to
//! use, without the tasks and the machine that it was made from.
//!
//! Three of the forms that evenly writes: `evenly.map/1`, CSV with columns `id` and `pe`, and CSV with
//! columns `id` and `mask`. Core numbers are CPU numbers of the machine that it is carried out on,
//! as they are where it was made for that machine (`--topology this`).

use crate::edges::MOST_TASKS;
use crate::error::{InputError, name_of, quoted};
use crate::lines::Bounded;
use crate::table::{Row, Table};
use evenly_model::{CpuId, CpuSet};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// The highest CPU number, exclusive, that a mapping may name.
const MOST_CPUS: u32 = 16_384;

/// Which CPUs each task is to use; a task at least, and at least one CPU each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// The CPUs, by the number of the task.
    pub places: BTreeMap<u64, CpuSet>,
    /// The machine that it was made for, as it was asked for, where the file says so.
    pub made_for: Option<String>,
}

/// What is needed of `evenly.map/1`.
#[derive(Debug, Deserialize)]
struct MapFile {
    schema: String,
    #[serde(default)]
    machine: Option<MadeFor>,
    #[serde(default)]
    assignment: Vec<Assigned>,
}

#[derive(Debug, Deserialize)]
struct MadeFor {
    topology: String,
}

#[derive(Debug, Deserialize)]
struct Assigned {
    id: u64,
    core: u32,
}

/// Reads such a file by its name.
///
/// # Errors
/// As [`read_assignment`], or where it cannot be opened.
pub fn assignment_file(path: &Path) -> Result<Assignment, InputError> {
    let name = name_of(path);
    let file = File::open(path).map_err(|e| InputError::unreadable(&name, &e))?;
    read_assignment(file, &name)
}

/// Reads a mapping: JSON where it begins with a brace, else CSV.
///
/// # Errors
/// The first thing that is wrong, with its line where there is one.
pub fn read_assignment(input: impl Read, file: &str) -> Result<Assignment, InputError> {
    let mut reader = BufReader::with_capacity(1 << 16, Bounded::new(input));
    let start = reader.fill_buf().map_err(|e| InputError::unreadable(file, &e))?;
    let first = start.iter().find(|b| !b.is_ascii_whitespace());
    let found = if first == Some(&b'{') { json(reader, file)? } else { csv(reader, file)? };
    if found.places.is_empty() {
        return Err(InputError::new(file, "it maps no task; at least one is needed"));
    }
    Ok(found)
}

fn json(reader: impl Read, file: &str) -> Result<Assignment, InputError> {
    let found: MapFile =
        serde_json::from_reader(reader).map_err(|e| crate::json::wrong(file, crate::SCHEMA, &e))?;
    if found.schema != crate::SCHEMA {
        let what = format!("its schema is {}; {} is needed", quoted(&found.schema), crate::SCHEMA);
        return Err(InputError::new(file, what));
    }
    let mut places = BTreeMap::new();
    for Assigned { id, core } in found.assignment {
        let cpus = one(core).map_err(|what| InputError::new(file, what))?;
        add(&mut places, id, cpus).map_err(|what| InputError::new(file, what))?;
    }
    Ok(Assignment { places, made_for: found.machine.map(|m| m.topology) })
}

fn csv(reader: impl Read, file: &str) -> Result<Assignment, InputError> {
    let mut table = Table::open(file, reader)?;
    let id = table.needed("id")?;
    let (mask, pe) = (table.column("mask")?, table.column("pe")?);
    if mask.is_none() && pe.is_none() {
        let what = "there is no column pe and no column mask; one of them is needed";
        return Err(InputError::at(file, 1, what));
    }
    let mut places = BTreeMap::new();
    while let Some(row) = table.next()? {
        let number = row.id(id)?;
        let cpus = match (mask, pe) {
            (Some(column), _) => parse_mask(row.text(column)),
            (None, Some(column)) => match row.core(column)? {
                Some(core) => one(core),
                None => Err(format!("task {number} has no pe")),
            },
            (None, None) => Ok(CpuSet::new()),
        };
        place(&mut places, &row, number, cpus)?;
    }
    Ok(Assignment { places, made_for: None })
}

fn place(
    places: &mut BTreeMap<u64, CpuSet>,
    row: &Row<'_>,
    id: u64,
    cpus: Result<CpuSet, String>,
) -> Result<(), InputError> {
    let added = cpus.and_then(|cpus| add(places, id, cpus));
    added.map_err(|what| row.wrong(what))
}

fn add(places: &mut BTreeMap<u64, CpuSet>, id: u64, cpus: CpuSet) -> Result<(), String> {
    if places.len() == MOST_TASKS {
        return Err(format!("there are more than {MOST_TASKS} tasks, the most that are read"));
    }
    match places.insert(id, cpus) {
        Some(_) => Err(format!("task {id} is there twice; once is needed")),
        None => Ok(()),
    }
}

fn one(core: u32) -> Result<CpuSet, String> {
    if core >= MOST_CPUS {
        return Err(format!(
            "core {core} is beyond {}, the highest CPU that is read",
            MOST_CPUS - 1
        ));
    }
    Ok(CpuSet::single(CpuId(core)))
}

/// A mask as `taskset` takes it: hexadecimal digits, with or without `0x`.
fn parse_mask(text: &str) -> Result<CpuSet, String> {
    let needed = || format!("the mask is {}; hexadecimal digits are needed, as 0x5", quoted(text));
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    if digits.is_empty() || digits.len() > (MOST_CPUS / 4) as usize {
        return Err(needed());
    }
    let mut cpus = CpuSet::new();
    for (at, digit) in (0u32..).zip(digits.chars().rev()) {
        let bits = digit.to_digit(16).ok_or_else(needed)?;
        (0..4).filter(|bit| bits >> bit & 1 == 1).for_each(|bit| cpus.insert(CpuId(4 * at + bit)));
    }
    if cpus.is_empty() {
        return Err(format!("the mask is {}, no CPU at all; one is needed", quoted(text)));
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(u64, String)>, String> {
        let found = read_assignment(text.as_bytes(), "f").map_err(|e| e.to_string())?;
        Ok(found.places.into_iter().map(|(id, cpus)| (id, cpus.to_string())).collect())
    }

    #[test]
    fn three_forms_are_read() {
        let expected = Ok(vec![(0, String::from("65")), (7, String::from("0"))]);
        assert_eq!(read("id,pe\n7,0\n0,65\n"), expected);
        assert_eq!(read("mask,id\n0x1,7\n20000000000000000,0\n"), expected);
        let json = r#" {"schema": "evenly.map/1", "machine": {"topology": "this", "cores": 2},
            "assignment": [{"id": 0, "core": 65}, {"id": 7, "core": 0}]}"#;
        assert_eq!(read(json), expected);
        assert_eq!(
            read_assignment(json.as_bytes(), "f").unwrap().made_for.as_deref(),
            Some("this")
        );
        assert_eq!(read("id,mask\n1,0xF5\n"), Ok(vec![(1, String::from("0,2,4-7"))]));
    }

    #[test]
    fn what_is_no_mapping_is_refused_in_one_line() {
        for (text, said) in [
            ("", "f: it is empty"),
            ("id,pe\n", "f: it maps no task"),
            ("id,core\n1,2\n", "f, line 1: there is no column pe and no column mask"),
            ("id,pe\n1,0\n1,1\n", "f, line 3: task 1 is there twice"),
            ("id,pe\n1,\n", "f, line 2: task 1 has no pe"),
            ("id,pe\n1,16384\n", "f, line 2: core 16384 is beyond 16383"),
            ("id,mask\n1,0x0\n", "f, line 2: the mask is '0x0', no CPU at all"),
            ("id,mask\n1,0xg\n", "f, line 2: the mask is '0xg'"),
            ("id,mask\n1,\n", "f, line 2: the mask is ''"),
            ("{}", "f, line 1: missing field `schema`"),
            ("{\"schema\": \"evenly.map/2\"}", "f: its schema is 'evenly.map/2'"),
            ("{\"schema\": \"evenly.map/1\"}", "f: it maps no task"),
        ] {
            let found = read(text).unwrap_err();
            assert!(found.starts_with(said) && found.lines().count() == 1, "{text}: {found}");
        }
        let long = format!("id,mask\n1,0x{}\n", "1".repeat(5000));
        assert!(read(&long).unwrap_err().starts_with("f, line 2: the mask is '0x111"));
    }
}

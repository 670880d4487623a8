//! What was measured of a cell, and the file in which it is kept: a line of JSON for each cell, so that a run of hours can be
//! stopped at any time and goes on where it was.

use super::cells::{Cell, cells};
use crate::commands::KERNEL;
use crate::measured::Measured;
use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::Path;

/// Name and version of the form of a line.
const SCHEMA: &str = "evenly.bench-grid/1";
/// Name of the arm as evenly is by default.
pub(super) const AUTO: &str = "auto";

/// The runs of an arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Runs {
    pub(super) name: String,
    pub(super) seconds: Vec<f64>,
    /// A run was ended because it took too long: its seconds are how long it was given, and there is none after it.
    pub(super) late: bool,
}

/// What came of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measurement {
    schema: String,
    pub(super) cell: String,
    /// In virtual time.
    pub(super) simulated: bool,
    /// How long the program takes with as many threads as CPUs.
    pub(super) asked_s: u32,
    pub(super) arms: Vec<Runs>,
}

impl Measurement {
    pub(super) fn new(cell: &Cell, simulated: bool, asked_s: u32, arms: Vec<Runs>) -> Self {
        Self { schema: SCHEMA.to_owned(), cell: cell.name(), simulated, asked_s, arms }
    }

    fn arm(&self, name: &str) -> Option<&Runs> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    /// The speed of an arm over that of another. Where one of them took too long, a bound; None where both did, as nothing is known
    /// then.
    pub(super) fn over(&self, arm: &str, other: &str, seed: u64) -> Option<Measured> {
        let (of, by) = (self.arm(arm)?, self.arm(other)?);
        (!of.late || !by.late).then(|| Measured::ratio(&by.seconds, &of.seconds, seed)).flatten()
    }

    /// Nothing is known, as no arm came to its end.
    pub(super) fn is_open(&self) -> bool {
        self.arms.iter().all(|arm| arm.late)
    }

    /// The speed of the default over that of the best other arm, and which that is.
    pub(super) fn of_best(&self, seed: u64) -> Option<(Measured, &str)> {
        let others = self.arms.iter().map(|arm| &*arm.name).filter(|name| *name != AUTO);
        let all = others.filter_map(|name| Some((self.over(AUTO, name, seed)?, name)));
        all.min_by(|a, b| a.0.value.total_cmp(&b.0.value))
    }

    /// The speed of the default over that of the kernel, and a better arm where there is one.
    pub(super) fn text(&self, seed: u64) -> String {
        let Some(own) = self.over(AUTO, KERNEL, seed) else { return "-".into() };
        match self.of_best(seed) {
            Some((part, best)) if best != KERNEL && part.value < 1.0 => {
                format!("{} ({best}, {:.2})", own.text(2), part.value)
            }
            _ => own.text(2),
        }
    }
}

/// The one in which the default is farthest behind its best arm, the part that it reaches, and that arm.
pub(super) fn worst(all: &[Measurement], seed: u64) -> Option<(&Measurement, Measured, &str)> {
    let parts = all.iter().filter_map(|m| m.of_best(seed).map(|(part, arm)| (m, part, arm)));
    parts.min_by(|a, b| a.1.value.total_cmp(&b.1.value))
}

/// What is in a file, in the order of cells; nothing where there is none. A line that was not written to its end is left out: that
/// cell is measured again.
///
/// # Errors
/// Where it cannot be read, or is of something else.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<Measurement>> {
    let text = match fs::read_to_string(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    let known: Vec<String> = cells().iter().map(Cell::name).collect();
    let place = |m: &Measurement| known.iter().position(|name| *name == m.cell);
    let mut all: Vec<Measurement> = Vec::new();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let told = || format!("{}: not a cell of the grid: {}", file.display(), line.trim_end());
        let one: Measurement = serde_json::from_str(line).with_context(told)?;
        anyhow::ensure!(one.schema == SCHEMA && place(&one).is_some(), told());
        // The last one counts.
        all.retain(|before| before.cell != one.cell);
        all.push(one);
    }
    all.sort_by_key(place);
    Ok(all)
}

/// Adds one to a file.
///
/// # Errors
/// Where it cannot be written.
pub(super) fn append(file: &Path, one: &Measurement) -> anyhow::Result<()> {
    let told = || format!("cannot write {}", file.display());
    let before = match fs::read(file) {
        Err(e) if e.kind() == ErrorKind::NotFound => Vec::new(),
        before => before.with_context(told)?,
    };
    let line = serde_json::to_string(one)? + "\n";
    let whole = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut out = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(file)
        .with_context(told)?;
    if whole < before.len() {
        // What a run that was ended has begun.
        out.set_len(whole as u64).with_context(told)?;
    }
    out.seek(SeekFrom::End(0)).with_context(told)?;
    out.write_all(line.as_bytes()).with_context(told)
}

/// A cell with one run of each of these arms.
#[cfg(test)]
pub(super) fn measured(name: &str, arms: &[(&str, f64)]) -> Measurement {
    let cell = cells().into_iter().find(|cell| cell.name() == name).unwrap();
    let runs = |&(name, seconds): &(&str, f64)| Runs {
        name: name.into(),
        seconds: vec![seconds],
        late: false,
    };
    Measurement::new(&cell, false, 2, arms.iter().map(runs).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_arm_is_named_where_it_is_not_the_default() {
        let of = |[kernel, auto, fixed]: [f64; 3]| {
            measured("block-2-20us", &[(KERNEL, kernel), (AUTO, auto), ("static", fixed)])
        };
        assert_eq!(of([2.0, 1.0, 1.5]).text(1), "2.00");
        assert_eq!(of([2.0, 1.0, 0.5]).text(1), "2.00 (static, 0.50)");
        assert_eq!(of([1.0, 2.0, 1.5]).text(1), "0.50");
        let all = [of([2.0, 1.0, 1.5]), of([1.0, 2.0, 1.5])];
        let (_, part, arm) = worst(&all, 1).unwrap();
        assert_eq!((part.value, arm), (0.5, KERNEL));
        // Where neither came to its end nothing is known; where one did, a bound.
        let late = |arms: &[&str]| {
            let mut all = of([2.0, 2.0, 1.0]);
            all.arms.iter_mut().for_each(|arm| arm.late = arms.contains(&&*arm.name));
            (all.of_best(1).map(|(part, _)| part.value), all.is_open())
        };
        assert_eq!(late(&[KERNEL, AUTO, "static"]), (None, true));
        assert_eq!(late(&[KERNEL, AUTO]), (Some(0.5), false));
        assert_eq!(late(&["static", AUTO]), (Some(1.0), false));
        // Ahead of all others is more than 1.
        assert_eq!(all[0].of_best(1).unwrap().0.value, 1.5);
    }

    /// Would catch: a cell that is measured again, or lost, because a run was stopped while it wrote a line.
    #[test]
    fn a_file_goes_on_where_it_stopped() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("grid.jsonl");
        assert_eq!(read(&file).unwrap(), []);
        let [late, early] =
            ["spin-3-2ms", "block-3-2ms"].map(|name| measured(name, &[(KERNEL, 2.0), (AUTO, 1.0)]));
        append(&file, &late).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, format!("{text}{}", &text[..40])).unwrap();
        assert_eq!(read(&file).unwrap(), std::slice::from_ref(&late));
        append(&file, &early).unwrap();
        assert_eq!(read(&file).unwrap(), [early.clone(), late.clone()]);
        let again = measured("spin-3-2ms", &[(KERNEL, 3.0)]);
        append(&file, &again).unwrap();
        assert_eq!(read(&file).unwrap(), [early, again]);
        fs::write(&file, text.replace("spin-3-2ms", "spin-9")).unwrap();
        assert!(read(&file).unwrap_err().to_string().contains("not a cell of the grid"));
    }

    #[test]
    fn a_line_is_what_the_schema_says() {
        let schema = include_str!("../../../../docs/schemas/evenly.bench-grid-1.json");
        let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
        let mut line = serde_json::to_value(measured("block-2-20us", &[(KERNEL, 2.0)])).unwrap();
        assert!(validator.is_valid(&line), "{line:#}");
        line.as_object_mut().unwrap().remove("arms");
        assert!(!validator.is_valid(&line));
    }
}

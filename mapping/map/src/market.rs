//! Communication as a matrix in a Matrix Market file.
//!
//! The format: R. Boisvert, R. Pozo, K. Remington, "The Matrix Market Exchange Formats: Initial
//! Design", NISTIR 5935, 1996. Read are coordinate files, `real`, `integer` or `pattern`, `general` or
//! `symmetric`. The entry in row i, column j is how many messages task i-1 sends to task j-1 (rows
//! count from 1, tasks from 0); 1 in a pattern. In a symmetric file entries stand on or below the
//! diagonal, and each stands for both directions.

use crate::edges::{Edges, MOST_EDGES, MOST_TASKS};
use crate::error::{InputError, amount, quoted};
use crate::lines::Lines;
use evenly_model::Edge;
use std::io::Read;

/// A communication matrix, as it stands in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// Rows, which are as many as columns: tasks 0 to so many less one.
    pub tasks: usize,
    /// Its entries as messages.
    pub edges: Edges,
    /// Entries in a row and column that had one before: they are added up.
    pub again: usize,
}

/// What the first line says.
struct Kind {
    pattern: bool,
    symmetric: bool,
}

/// Reads such a file. `known` says whether there is such a task.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn read_matrix(
    input: impl Read,
    file: &str,
    known: &dyn Fn(u64) -> bool,
) -> Result<Matrix, InputError> {
    let mut lines = Lines::new(file, input);
    let Some((_, first)) = lines.next()? else {
        return Err(InputError::new(
            file,
            "it is empty; a first line such as %%MatrixMarket matrix coordinate real general is needed",
        ));
    };
    let kind = kind(first).map_err(|what| lines.wrong(what))?;
    let (tasks, entries) = loop {
        match lines.next()? {
            None => {
                return Err(lines.wrong("it ends before the line with rows, columns and entries"));
            }
            Some((_, text)) if text.is_empty() || text.starts_with('%') => {}
            Some((_, text)) => break size(text).map_err(|what| lines.wrong(what))?,
        }
    };
    let mut edges = Edges::default();
    let mut found = 0_usize;
    let mut places: Vec<u64> = Vec::new();
    while let Some((_, text)) = lines.next()? {
        if text.is_empty() || text.starts_with('%') {
            continue;
        }
        if found == entries {
            return Err(lines
                .wrong(format!("there are more entries than the {entries} that are announced")));
        }
        found += 1;
        let added = entry(text, &kind, tasks).and_then(|(from, to, messages)| {
            // Tasks are far fewer than 2^32.
            places.push(from << 32 | to);
            let edge = Edge { from, to, messages, bytes: 0.0 };
            edges.add(edge, known)?;
            if kind.symmetric && from != to {
                edges.add(Edge { from: to, to: from, ..edge }, known)?;
            }
            Ok(())
        });
        added.map_err(|what| lines.wrong(what))?;
    }
    if found < entries {
        let what = format!("there are {found} entries; {entries} are announced");
        return Err(InputError::new(file, what));
    }
    places.sort_unstable();
    let again = places.windows(2).filter(|two| two[0] == two[1]).count();
    Ok(Matrix { tasks, edges, again })
}

/// Reads the first line, which says what kind of matrix follows.
fn kind(line: &str) -> Result<Kind, String> {
    const FORM: &str = "%%MatrixMarket matrix coordinate real|integer|pattern general|symmetric";
    let lower = line.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let bad = |what: &str| Err(format!("{what}; {FORM} is needed"));
    let ["%%matrixmarket", object, form, field, symmetry] = words[..] else {
        return bad(&format!("the first line is {}", quoted(line)));
    };
    if object != "matrix" || form != "coordinate" {
        return bad(&format!("this is a file of kind {}", quoted(&format!("{object} {form}"))));
    }
    let pattern = match field {
        "real" | "integer" => false,
        "pattern" => true,
        other => return bad(&format!("its entries are {}", quoted(other))),
    };
    let symmetric = match symmetry {
        "general" => false,
        "symmetric" => true,
        other => return bad(&format!("its symmetry is {}", quoted(other))),
    };
    Ok(Kind { pattern, symmetric })
}

/// Rows (as many as columns) and entries.
fn size(line: &str) -> Result<(usize, usize), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let numbers: Vec<usize> = words.iter().filter_map(|w| w.parse().ok()).collect();
    let ([rows, columns, entries], 3) = (&numbers[..], words.len()) else {
        return Err(format!("{} was found; rows, columns and entries are needed", quoted(line)));
    };
    if rows != columns {
        return Err(format!(
            "there are {rows} rows and {columns} columns; as many of both are needed, one for each task"
        ));
    }
    if *rows == 0 {
        return Err(String::from("there are no rows; at least one task is needed"));
    }
    if *rows > MOST_TASKS {
        return Err(format!("there are {rows} rows; the most that are read are {MOST_TASKS}"));
    }
    if *entries > MOST_EDGES {
        return Err(format!(
            "there are {entries} entries; the most that are read are {MOST_EDGES}"
        ));
    }
    Ok((*rows, *entries))
}

/// Sender, receiver and messages of an entry.
fn entry(line: &str, kind: &Kind, tasks: usize) -> Result<(u64, u64, f64), String> {
    let mut words = line.split_whitespace();
    let mut index = |what: &str| -> Result<u64, String> {
        let word = words.next().unwrap_or_default();
        match word.parse::<u64>() {
            Ok(i) if i >= 1 && i <= tasks as u64 => Ok(i - 1),
            _ => {
                Err(format!("the {what} is {}; a number from 1 to {tasks} is needed", quoted(word)))
            }
        }
    };
    let (row, column) = (index("row")?, index("column")?);
    let messages = match (kind.pattern, words.next()) {
        (true, None) => 1.0,
        (true, Some(more)) => {
            return Err(format!(
                "{} follows row and column; a pattern has no values",
                quoted(more)
            ));
        }
        (false, None) => {
            return Err(String::from("there is no value; row, column and value are needed"));
        }
        (false, Some(value)) => amount(value, "the value")?,
    };
    if let Some(more) = words.next() {
        return Err(format!(
            "{} follows the value; row, column and value are needed",
            quoted(more)
        ));
    }
    if kind.symmetric && column > row {
        return Err(format!(
            "the entry in row {}, column {} is above the diagonal; the first line says symmetric, \
             where entries stand on or below it",
            row + 1,
            column + 1
        ));
    }
    Ok((row, column, messages))
}

//! NUCO factors that a user gives: a square of numbers as CSV.

use crate::error::{InputError, quoted};
use crate::lines::Clean;
use crate::table::wrong;
use csv::{ReaderBuilder, StringRecord, Trim};
use evenly_cluster::{RATIO_NEEDED, RATIOS};
use std::io::Read;

/// Most rows that are read.
const MOST_ROWS: usize = 4_096;

/// Reads n rows of n numbers, separated by commas, without names: from row i, column j the latency of
/// node i reading from node j over that of i reading its own memory. The diagonal is 1, all others
/// are some of [`RATIOS`]. Lines that begin with `#` are comments. The numbers are given back row by row.
///
/// # Errors
/// The first thing that is wrong, with its line.
pub fn read_factors(input: impl Read, file: &str) -> Result<Vec<f64>, InputError> {
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .trim(Trim::All)
        .from_reader(Clean::new(input));
    let mut factors: Vec<f64> = Vec::new();
    let mut record = StringRecord::new();
    let (mut columns, mut rows) = (0, 0);
    loop {
        let read = reader.read_record(&mut record);
        let line = reader.position().line().saturating_sub(1);
        if !read.map_err(|e| wrong(file, &e, line))? {
            break;
        }
        let refuse = |what: String| Err(InputError::at(file, line, what));
        if rows == 0 {
            columns = record.len();
            if columns > MOST_ROWS {
                return refuse(format!(
                    "there are {columns} numbers; the most that are read are {MOST_ROWS}"
                ));
            }
        }
        if record.len() != columns {
            return refuse(format!(
                "there are {} numbers; as many as in the first line, {columns}, are needed",
                record.len()
            ));
        }
        if rows == columns {
            return refuse(format!(
                "there are more lines than the {columns} numbers in each; a square is needed"
            ));
        }
        for (column, text) in record.iter().enumerate() {
            match text.parse::<f64>() {
                Ok(f) if column == rows && f == 1.0 => factors.push(f),
                _ if column == rows => {
                    return refuse(format!(
                        "the factor of node {rows} to itself is {}; 1 is needed",
                        quoted(text)
                    ));
                }
                Ok(f) if RATIOS.contains(&f) => factors.push(f),
                _ => {
                    return refuse(format!(
                        "the factor of node {rows} to node {column} is {}; {RATIO_NEEDED} is needed",
                        quoted(text)
                    ));
                }
            }
        }
        rows += 1;
    }
    if rows == 0 {
        return Err(InputError::new(
            file,
            "it is empty; a line of numbers for each node is needed",
        ));
    }
    if rows < columns {
        let what = format!("there are {rows} lines of {columns} numbers; a square is needed");
        return Err(InputError::new(file, what));
    }
    Ok(factors)
}

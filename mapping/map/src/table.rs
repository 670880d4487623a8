//! CSV files whose columns are found by their names in the first line.

use crate::error::{InputError, amount, id, quoted};
use crate::lines::Clean;
use csv::{ErrorKind, ReaderBuilder, StringRecord, Trim};
use evenly_cluster::{RATIO_NEEDED, RATIOS};
use std::fmt::Display;
use std::io::Read;

/// Most names of columns that an error lists.
const MOST_NAMES: usize = 12;

/// A CSV file with names in its first line.
pub(crate) struct Table<'a, R> {
    file: &'a str,
    reader: csv::Reader<Clean<R>>,
    record: StringRecord,
    names: Vec<String>,
}

/// A line of it.
pub(crate) struct Row<'a> {
    file: &'a str,
    record: &'a StringRecord,
    /// The number of the line, from 1.
    pub(crate) line: u64,
}

/// A column that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    at: usize,
    name: &'static str,
}

impl<'a, R: Read> Table<'a, R> {
    /// Reads the first line.
    pub(crate) fn open(file: &'a str, input: R) -> Result<Self, InputError> {
        let mut reader = ReaderBuilder::new().trim(Trim::All).from_reader(Clean::new(input));
        let names: Vec<String> = match reader.headers() {
            Ok(names) => {
                names.iter().map(|n| n.trim_start_matches('\u{feff}').to_owned()).collect()
            }
            Err(e) => return Err(wrong(file, &e, 1)),
        };
        if names.is_empty() {
            return Err(InputError::new(
                file,
                "it is empty; a first line with the names of columns is needed",
            ));
        }
        Ok(Self { file, reader, record: StringRecord::new(), names })
    }

    /// A column that need not be there.
    pub(crate) fn column(&self, name: &'static str) -> Result<Option<Column>, InputError> {
        let mut found = self.names.iter().enumerate().filter(|(_, n)| n.as_str() == name);
        let column = found.next().map(|(at, _)| Column { at, name });
        match found.next() {
            Some(_) => {
                let what = format!("the column {name} is there twice; one is needed");
                Err(InputError::at(self.file, 1, what))
            }
            None => Ok(column),
        }
    }

    /// A column that must be there.
    pub(crate) fn needed(&self, name: &'static str) -> Result<Column, InputError> {
        self.column(name)?.ok_or_else(|| {
            let mut found: Vec<String> =
                self.names.iter().take(MOST_NAMES).map(|n| quoted(n)).collect();
            if self.names.len() > MOST_NAMES {
                found.push("...".to_owned());
            }
            let found = found.join(", ");
            let what = format!("there is no column {name}, which is needed; there are {found}");
            InputError::at(self.file, 1, what)
        })
    }

    /// The next line; None at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Row<'_>>, InputError> {
        let read = self.reader.read_record(&mut self.record);
        let line = self.reader.position().line().saturating_sub(1);
        match read {
            Ok(false) => Ok(None),
            Ok(true) => Ok(Some(Row { file: self.file, record: &self.record, line })),
            Err(e) => Err(wrong(self.file, &e, line)),
        }
    }
}

impl Row<'_> {
    /// What stands in a column.
    pub(crate) fn text(&self, column: Column) -> &str {
        self.record.get(column.at).unwrap_or_default()
    }

    /// An amount of something.
    pub(crate) fn amount(&self, column: Column) -> Result<f64, InputError> {
        amount(self.text(column), column.name).map_err(|what| self.wrong(what))
    }

    /// How much of something there is, over something else.
    pub(crate) fn ratio(&self, column: Column) -> Result<f64, InputError> {
        let text = self.text(column);
        match text.parse() {
            Ok(x) if RATIOS.contains(&x) => Ok(x),
            _ => {
                let found = quoted(text);
                Err(self.wrong(format!("{} is {found}; {RATIO_NEEDED} is needed", column.name)))
            }
        }
    }

    /// The number of a task.
    pub(crate) fn id(&self, column: Column) -> Result<u64, InputError> {
        id(self.text(column), column.name).map_err(|what| self.wrong(what))
    }

    /// The number of a core; None where nothing stands there.
    pub(crate) fn core(&self, column: Column) -> Result<Option<u32>, InputError> {
        match self.text(column) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                let found = quoted(text);
                self.wrong(format!("{} is {found}; the number of a core is needed", column.name))
            }),
        }
    }

    /// A column in which stands yes or no.
    pub(crate) fn flag(&self, column: Column) -> Result<bool, InputError> {
        match self.text(column) {
            "1" | "true" => Ok(true),
            "0" | "false" => Ok(false),
            text => {
                let found = quoted(text);
                Err(self.wrong(format!("{} is {found}; 1 or 0 is needed", column.name)))
            }
        }
    }

    /// Something is wrong with this line.
    pub(crate) fn wrong(&self, what: impl Display) -> InputError {
        InputError::at(self.file, self.line, what)
    }
}

/// What the CSV reader says, in our words.
pub(crate) fn wrong(file: &str, e: &csv::Error, line: u64) -> InputError {
    match e.kind() {
        ErrorKind::Io(e) => InputError::unreadable(file, e),
        ErrorKind::Utf8 { .. } => InputError::at(file, line.max(1), "this is no text in UTF-8"),
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let what = format!(
                "there are {len} values; as many as in the first line, {expected_len}, are needed"
            );
            InputError::at(file, line, what)
        }
        _ => InputError::at(file, line, quoted(&e.to_string())),
    }
}

//! What is wrong with an input, in one line.

use evenly_model::{MOST_OF_ANYTHING, printable};
use std::fmt;
use std::path::Path;

/// Most characters of a file that are shown in an error.
const MOST_SHOWN: usize = 40;

/// What is wrong with a file: where, what was found, what is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputError {
    file: String,
    line: Option<u64>,
    what: String,
}

impl InputError {
    /// About a file as a whole.
    #[must_use]
    pub fn new(file: &str, what: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: None, what: what.to_string() }
    }

    /// About a line, counted from 1.
    #[must_use]
    pub fn at(file: &str, line: u64, what: impl fmt::Display) -> Self {
        Self { file: file.to_owned(), line: Some(line), what: what.to_string() }
    }

    /// The system does not let us read it.
    #[must_use]
    pub fn unreadable(file: &str, e: &std::io::Error) -> Self {
        Self::new(file, format_args!("cannot be read: {e}"))
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.what)
    }
}

impl std::error::Error for InputError {}

/// A name for messages: without what would break a line.
pub(crate) fn name_of(path: &Path) -> String {
    printable(&path.display().to_string()).into_owned()
}

/// Something from a file as it is shown in an error: on one line, and not too long.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(MOST_SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(MOST_SHOWN).is_some() {
        shown.push_str("...");
    }
    format!("'{shown}'")
}

/// A number that is an amount of something: finite and not negative.
pub(crate) fn amount(text: &str, what: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (0.0..=MOST_OF_ANYTHING).contains(&x) => Ok(x),
        Ok(x) if x.is_finite() && x > 0.0 => {
            Err(format!("{what} is {}; at most {MOST_OF_ANYTHING:e} can be", quoted(text)))
        }
        _ => Err(format!("{what} is {}; a number that is not negative is needed", quoted(text))),
    }
}

/// A whole number that is a number of a task.
pub(crate) fn id(text: &str, what: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!("{what} is {}; a whole number that is not negative is needed", quoted(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_is_shown_stays_on_one_line() {
        assert_eq!(quoted("a\nb\u{1b}"), "'a\\nb\\u{1b}'");
        assert_eq!(quoted(&"x".repeat(50)), format!("'{}...'", "x".repeat(40)));
        assert_eq!(name_of(Path::new("a\nb")), "a\u{fffd}b");
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        assert_eq!(amount("1.5e3", "bytes"), Ok(1500.0));
        for bad in ["-1", "NaN", "inf", "1e999", "", "0x1", "1,5"] {
            let said = amount(bad, "bytes").unwrap_err();
            assert_eq!(
                said,
                format!("bytes is '{bad}'; a number that is not negative is needed"),
                "{bad}"
            );
        }
        assert!(id("-1", "id").is_err() && id("1.0", "id").is_err() && id("", "id").is_err());
    }
}

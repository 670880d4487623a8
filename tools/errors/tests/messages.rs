//! What all sources of the workspace have in common in what they say.

#![allow(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::fs;
use std::path::{Path, PathBuf};

/// Columns of a table are at most this far apart.
const COLUMN_GAP: usize = 8;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        if path.is_dir() {
            if path.file_name().is_some_and(|n| n != "target") {
                sources(&path, found);
            }
        } else if path.extension().is_some_and(|x| x == "rs") {
            found.push(path);
        }
    }
}

/// Whether two words of a line are further apart than columns are. The indentation of the line does
/// not count, nor do comments.
fn has_a_gap(line: &str) -> bool {
    let line = line.trim();
    let is_word = |c: char| c.is_ascii_lowercase() || c == ',';
    !line.starts_with("//")
        && line.match_indices(&" ".repeat(COLUMN_GAP + 1)).any(|(at, gap)| {
            let (before, after) = (&line[..at], line[at + gap.len()..].trim_start());
            before.ends_with(is_word) && after.starts_with(|c: char| c.is_ascii_lowercase())
        })
}

/// A string that once was broken over two lines keeps the indentation of the second when they are
/// joined without care, and prints it.
#[test]
fn no_message_has_an_indentation_inside() {
    assert!(has_a_gap(&format!("\"as little{}known\"", " ".repeat(30))));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = Vec::new();
    for part in ["cli", "core", "linux", "mapping", "papers", "probe", "reports", "tools"] {
        sources(&root.join(part), &mut all);
    }
    assert!(all.len() > 100, "{} sources", all.len());
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        for (line, number) in text.lines().zip(1..) {
            assert!(!has_a_gap(line), "{}:{number}: {}", path.display(), line.trim());
        }
    }
}

//! Trees of other machines, written out (`tests/captured/README.md` has the format).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Writes a tree out below a temporary directory.
pub(crate) fn captured(name: &str) -> tempfile::TempDir {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured").join(name);
    let text = fs::read_to_string(file).unwrap();
    let mut files = BTreeMap::<&str, String>::new();
    for (path, line) in text.lines().map(|l| l.split_once(':').unwrap()) {
        *files.entry(path).or_default() += &format!("{line}\n");
    }
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let to = dir.path().join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::write(&to, &text).unwrap();
    }
    dir
}

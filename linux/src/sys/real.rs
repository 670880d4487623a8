//! Which machine is meant: the one on which this runs, or a tree of files that was captured elsewhere.
//!
//! Invariant: nothing here changes anything.

use crate::proc::read_all;
use std::path::{Path, PathBuf};

/// A machine as its files show it: a file system that has `proc` and `sys`, the machine's own or a captured
/// tree.
#[derive(Debug, Clone)]
pub struct Real {
    root: PathBuf,
}

impl Default for Real {
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

impl Real {
    /// A tree somewhere else.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directory below which its files are; `/` for the machine on which this runs.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The number that is all of a file.
    pub(crate) fn number(&self, file: &str) -> Option<i64> {
        std::str::from_utf8(&read_all(&self.root.join(file)).ok()?).ok()?.trim().parse().ok()
    }
}

//! Which machine is meant: the one on which this runs, or a tree of files that was captured elsewhere.
//!
//! Invariant: nothing here changes anything.

use crate::files::{Files, System};
use crate::proc::read_all;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A machine as its files show it: a file system that has `proc` and `sys`, the machine's own or a captured
/// tree, and the architecture of the processors.
#[derive(Debug, Clone)]
pub struct Real {
    root: PathBuf,
    architecture: &'static str,
    files: Arc<dyn Files>,
}

impl Default for Real {
    fn default() -> Self {
        Self::at(Path::new("/"))
    }
}

impl Real {
    /// A tree somewhere else, of a machine with the processors that evenly was built for.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        let (architecture, files) = (std::env::consts::ARCH, Arc::new(System));
        Self { root: root.to_owned(), architecture, files }
    }

    /// The same with another architecture, by the names of [`std::env::consts::ARCH`].
    #[must_use]
    pub fn of_architecture(mut self, architecture: &'static str) -> Self {
        self.architecture = architecture;
        self
    }

    /// The same where the kernel's directories behave as given.
    #[must_use]
    pub fn with_files(mut self, files: Arc<dyn Files>) -> Self {
        self.files = files;
        self
    }

    /// Its directories that are a kernel's.
    pub(crate) fn files(&self) -> &dyn Files {
        &*self.files
    }

    /// The architecture of its processors.
    pub(crate) fn architecture(&self) -> &'static str {
        self.architecture
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

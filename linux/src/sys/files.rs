//! Directories that are a kernel's: making one makes files, writing a thread's id moves it, and
//! removing one needs no emptying.
//!
//! Invariant: a seam for tests alone; the real one, [`System`], is the system calls and nothing else.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What mechanisms do with such directories.
pub trait Files: fmt::Debug + Send + Sync {
    /// What stands in a file.
    ///
    /// # Errors
    /// As of the system call; so for all.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Writes to a file.
    ///
    /// # Errors
    /// As of the system call.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
    /// Makes a directory, with the files that the kernel puts there.
    ///
    /// # Errors
    /// As of the system call.
    fn make_dir(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory, with those files.
    ///
    /// # Errors
    /// As of the system call.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Its directories.
    ///
    /// # Errors
    /// As of the system call.
    fn dirs(&self, path: &Path) -> io::Result<Vec<PathBuf>>;
    /// Whether a file may be written.
    ///
    /// # Errors
    /// As of the system call.
    fn may_write(&self, path: &Path) -> io::Result<()>;
}

/// The directories of the running kernel, by system calls.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl Files for System {
    fn read(&self, path: &Path) -> io::Result<String> {
        fs::read_to_string(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        fs::write(path, text)
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn dirs(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let entries = fs::read_dir(path)?.flatten();
        Ok(entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect())
    }

    fn may_write(&self, path: &Path) -> io::Result<()> {
        rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(Into::into)
    }
}

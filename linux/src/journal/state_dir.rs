//! Where journals are.

use super::JournalError;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory of the journals of one user.
#[derive(Debug, Clone)]
pub struct StateDir {
    pub(super) path: PathBuf,
}

impl StateDir {
    /// The directory to use: `$EVENLY_STATE_DIR`; else, for root, `/run/evenly`; else the first of
    /// `$XDG_RUNTIME_DIR/evenly`, `/run/user/UID/evenly` that can be had; else
    /// `/tmp/evenly-UID`. It is made where it is missing.
    ///
    /// # Errors
    /// [`JournalError`] where none can be written and trusted; that of `$EVENLY_STATE_DIR` where
    /// it is set, because a user who names a directory means that one.
    pub fn find() -> Result<Self, JournalError> {
        if let Some(dir) = std::env::var_os("EVENLY_STATE_DIR").filter(|d| !d.is_empty()) {
            return Self::at(Path::new(&dir));
        }
        let uid = rustix::process::geteuid().as_raw();
        // Root's XDG_RUNTIME_DIR may be that of the user who became root.
        let runtime = if uid == 0 {
            vec![PathBuf::from("/run")]
        } else {
            std::env::var_os("XDG_RUNTIME_DIR")
                .map(PathBuf::from)
                .into_iter()
                .chain([PathBuf::from(format!("/run/user/{uid}"))])
                .collect()
        };
        runtime
            .iter()
            .filter(|parent| parent.is_absolute() && parent.is_dir())
            .find_map(|parent| Self::at(&parent.join("evenly")).ok())
            .map_or_else(|| Self::at(Path::new(&format!("/tmp/evenly-{uid}"))), Ok)
    }

    /// Makes a relative `$EVENLY_STATE_DIR` absolute for this process and all that it starts: an
    /// evenly inside a program that has changed its working directory must find the same journals.
    /// To be called first of all; it does nothing once there are several threads.
    pub fn settle() {
        let Some(dir) = std::env::var_os("EVENLY_STATE_DIR").filter(|d| !d.is_empty()) else {
            return;
        };
        let alone = fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
        if alone
            && Path::new(&dir).is_relative()
            && let Ok(absolute) = std::path::absolute(&dir)
        {
            // SAFETY: this is the only thread, so nobody else reads or writes the environment.
            unsafe { std::env::set_var("EVENLY_STATE_DIR", absolute) };
        }
    }

    /// A directory of the caller's choice. It is made, with mode 0700, where it is missing.
    ///
    /// # Errors
    /// [`JournalError`] where it cannot be made, is a symbolic link, belongs to somebody else, or
    /// can be written by others: their files would decide what evenly does to threads.
    pub fn at(path: &Path) -> Result<Self, JournalError> {
        let io = |what| move |source| JournalError::Io { path: path.to_owned(), what, source };
        let path = std::path::absolute(path).map_err(io("find the directory"))?;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
            .map_err(|source| JournalError::Io {
                path: path.clone(),
                what: "make the directory",
                source,
            })?;
        let uid = rustix::process::geteuid().as_raw();
        let found = |found| JournalError::Directory { path: path.clone(), found, uid };
        // Not followed: in /tmp anybody could have put a link there.
        let meta = fs::symlink_metadata(&path).map_err(|source| JournalError::Io {
            path: path.clone(),
            what: "look at the directory",
            source,
        })?;
        if !meta.is_dir() {
            return Err(found("it is not a directory".to_owned()));
        }
        if meta.uid() != uid {
            return Err(found(format!("it belongs to user {}", meta.uid())));
        }
        if meta.mode() & 0o022 != 0 {
            return Err(found(format!(
                "others can write it, its mode is {:o}",
                meta.mode() & 0o7777
            )));
        }
        Ok(Self { path })
    }

    /// Where it is: an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Paths of all journals in it, in order.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the directory cannot be read.
    pub fn journals(&self) -> Result<Vec<PathBuf>, JournalError> {
        let entries = fs::read_dir(&self.path).map_err(|source| JournalError::Io {
            path: self.path.clone(),
            what: "list the directory",
            source,
        })?;
        let mut paths: Vec<PathBuf> = entries
            .filter_map(|e| Some(e.ok()?.path()))
            .filter(|p| p.extension().is_some_and(|x| x == "journal"))
            .collect();
        paths.sort();
        Ok(paths)
    }
}

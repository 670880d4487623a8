//! Limits that change while a program runs.

use super::Limits;
use crate::proc::read_all;
use evenly_model::{Nanos, Pid};
use std::ffi::CString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Notices when the limits of a process change: CPUs going on- and offline, its cpuset, its quota,
/// and being moved to another group.
///
/// A check reads a few small files through descriptors that are kept open, and allocates nothing
/// while nothing changes. How often to check is the caller's to decide; [`Watch::INTERVAL`] is
/// enough for people and managers that change limits.
pub struct Watch {
    limits: Limits,
    pid: Pid,
    files: Vec<Watched>,
    /// Files that were not there, but would take precedence if they came.
    missing: Vec<CString>,
}

struct Watched {
    file: File,
    last: Vec<u8>,
}

impl Watched {
    /// Whether the content is still what it was.
    fn is_same(&self) -> bool {
        let mut chunk = [0u8; 512];
        let mut at = 0;
        loop {
            match self.file.read_at(&mut chunk, at as u64) {
                Ok(0) => return at == self.last.len(),
                Ok(n) if self.last.get(at..at + n) == Some(&chunk[..n]) => at += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A removed group or an ended process is a change too.
                Ok(_) | Err(_) => return false,
            }
        }
    }
}

impl Limits {
    /// Watches the limits of a process for changes.
    #[must_use]
    pub fn watch(&self, pid: Pid) -> Watch {
        let mut watch = Watch { limits: self.clone(), pid, files: Vec::new(), missing: Vec::new() };
        watch.open();
        watch
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("pid", &self.pid).field("files", &self.files.len()).finish()
    }
}

impl Watch {
    /// A sensible time between two checks.
    pub const INTERVAL: Nanos = Nanos::from_millis(250);

    /// Whether anything has changed since the last call, or since the watch was made. What it is
    /// now is to be asked of [`Limits`]. The end of the process is reported as one change.
    pub fn changed(&mut self) -> bool {
        let same = self.files.iter().all(Watched::is_same)
            && !self
                .missing
                .iter()
                .any(|p| rustix::fs::access(p.as_c_str(), rustix::fs::Access::EXISTS).is_ok());
        if !same {
            self.open();
        }
        !same
    }

    fn open(&mut self) {
        self.files.clear();
        self.missing.clear();
        self.add(&self.limits.path("sys/devices/system/cpu/online"));
        self.add(&self.limits.path(format!("proc/{}/cgroup", self.pid)));
        if let Some(group) = self.limits.group(self.pid, "cpuset") {
            // Up to the nearest that is there, as in reading it.
            let files = group.cpuset_files();
            for path in group.levels.iter().flat_map(|l| files.iter().map(move |f| l.join(f))) {
                if self.add(&path) {
                    break;
                }
            }
        }
        if let Some(group) = self.limits.group(self.pid, "cpu") {
            for level in &group.levels {
                for file in group.quota_files() {
                    self.add(&level.join(file));
                }
            }
        }
    }

    /// Watches a file; says whether it is there.
    fn add(&mut self, path: &Path) -> bool {
        let opened = File::open(path).ok().and_then(|file| {
            let last = read_all(path).ok()?;
            Some(Watched { file, last })
        });
        match opened {
            Some(w) => self.files.push(w),
            None => {
                // A path with a zero byte inside cannot come into being.
                self.missing.extend(CString::new(path.as_os_str().as_bytes()));
                return false;
            }
        }
        true
    }
}

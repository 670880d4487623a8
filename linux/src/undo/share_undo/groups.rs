//! Groups that an evenly made, emptied and removed.
//!
//! Invariant: every thread that is found in a group of ours goes to the group above, also those that the
//! program has created there.

use crate::journal::{Kind, Parent, Process};
use evenly_model::ThreadId;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Threads are created while a group is emptied.
const PASSES: usize = 50;

/// What the names of all groups of an evenly begin with.
#[must_use]
pub(crate) fn prefix(writer: Process) -> String {
    format!("evenly-{}-{}-", writer.pid, writer.start)
}

/// What removing groups did.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    pub(crate) removed: usize,
    pub(crate) failed: Vec<String>,
}

/// The groups in a directory: those that an evenly made, and the others. None where the directory is gone, which
/// has taken ours with it.
fn find(parent: &Parent, writer: Process) -> Option<(Vec<PathBuf>, Vec<PathBuf>)> {
    let prefix = prefix(writer);
    let is_ours = |d: &PathBuf| {
        d.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(&prefix))
    };
    let entries = fs::read_dir(&parent.path).ok()?.flatten();
    let groups = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path());
    Some(groups.partition(is_ours))
}

/// How many groups that an evenly made are in a directory.
pub(crate) fn count(parent: &Parent, writer: Process) -> usize {
    find(parent, writer).map_or(0, |(ours, _)| ours.len())
}

/// Removes all groups that an evenly made in a directory, and gives their threads to the directory.
pub(crate) fn remove_all(parent: &Parent, writer: Process) -> Removed {
    let mut done = Removed::default();
    let Some((ours, others)) = find(parent, writer) else { return done };
    let above = &parent.path;
    for group in &ours {
        match remove(parent.kind, above, group) {
            Ok(()) => done.removed += 1,
            Err(e) => done.failed.push(format!(
                "{}: cannot empty and remove it: {e}; run evenly restore as root",
                group.display()
            )),
        }
    }
    if parent.switched_on && others.is_empty() && done.failed.is_empty() {
        // Where it is refused another user of it exists by now.
        let _ = fs::write(above.join("cgroup.subtree_control"), "-cpu");
    }
    done
}

/// Gives the threads of a group to the one above, and removes it.
pub(crate) fn remove(kind: Kind, above: &Path, group: &Path) -> io::Result<()> {
    let mut last = Ok(());
    for _ in 0..PASSES {
        let empty = empty(kind, above, group, None);
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Why its threads could not leave says more than that it is busy.
            Err(e) => last = empty.and(Err(e)),
        }
        // A thread that is about to end is listed no more, but holds the group for a moment.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    last
}

/// Gives threads of a group to the one above: all, but one that is to stay.
pub(crate) fn empty(
    kind: Kind,
    above: &Path,
    group: &Path,
    stays: Option<ThreadId>,
) -> io::Result<()> {
    let listed = match fs::read_to_string(group.join(kind.threads_file())) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for tid in listed.lines().filter_map(|l| l.trim().parse::<i32>().ok()) {
        if stays.is_none_or(|id| id.tid.0 != tid) {
            match fs::write(above.join(kind.threads_file()), tid.to_string()) {
                // It has ended.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => {}
                other => other?,
            }
        }
    }
    Ok(())
}

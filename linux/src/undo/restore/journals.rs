//! Restoring from whole journals: one's own at the end, that of an evenly that is gone, and all of a
//! directory.

use super::{Affinity, RestoreReport, System, restore, restore_everything};
use crate::affinity;
use crate::descent::is_alive;
use crate::journal::{
    self, Header, Journal, JournalError, JournalView, LiveJournal, Process, Record, RecordState,
    StateDir,
};
use crate::proc::Proc;
use crate::share_undo;
use evenly_model::{CpuSet, Pid, Tid};
use std::io;
use std::path::{Path, PathBuf};

/// The end of a balancer that gave all masks back itself: looks at every thread once more, for
/// those that inherited a mask since the last scan and those of a balancer that broke off, and then
/// finishes the journal. Where a mask could not be given back the journal is not finished: letting
/// the guardian go makes it try again.
///
/// # Errors
/// [`JournalError`] where the journal cannot be read or removed.
pub fn end(journal: &Journal) -> Result<RestoreReport, JournalError> {
    let view = journal.view()?;
    let report = restore_everything(&view, &Proc::default());
    if report.is_complete() {
        journal.finish()?;
    }
    Ok(report)
}

/// An evenly that lives, so that its threads are left to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Living {
    /// The evenly process that writes the journal.
    pub evenly: Process,
    /// The program that it balances, where that is known.
    pub program: Option<Process>,
    /// Whether it is stopped, or not at work for another reason: its guardian restores then.
    pub stands_still: bool,
    /// Threads that have a mask of its making at this moment.
    pub held: usize,
}

/// What became of one journal.
#[derive(Debug)]
pub enum Fate {
    /// Its threads were restored. The file is removed unless a thread failed, or its evenly lives.
    Restored(RestoreReport),
    /// Its evenly is at work, or stopped: nothing was done. `--force` releases its threads.
    Alive(Living),
    /// It was of another boot, or everything was undone already; it is removed.
    Stale,
    /// Its ids mean nothing here: it is in a directory that hosts share, and not of this boot, so it is that of
    /// another host, or of a former boot of this one.
    OtherHost,
    /// Its ids mean nothing here: it was written in another process id name space.
    OtherNamespace,
    /// It could not be read or removed; nothing was changed where it could not be read.
    Failed(JournalError),
}

/// Restores from the journals of a directory whose evenly is dead; of living ones only with
/// `force`. With `only`, from those journals alone that belong to this evenly or to this program.
///
/// # Errors
/// [`JournalError::Io`] where the directory cannot be read.
pub fn restore_all(
    dir: &StateDir,
    only: Option<Pid>,
    force: bool,
) -> Result<Vec<(PathBuf, Fate)>, JournalError> {
    let proc = Proc::default();
    let mut fates = Vec::new();
    for path in dir.journals()? {
        let fate = match JournalView::open(&path) {
            Ok(view) if only.is_some_and(|pid| !concerns(&view, pid)) => continue,
            Ok(view) => restore_one(&path, &view, &proc, force),
            // Removed between listing and reading: its guardian was at work.
            Err(_) if !path.exists() => continue,
            Err(e) => Fate::Failed(e),
        };
        fates.push((path, fate));
    }
    Ok(fates)
}

fn concerns(view: &JournalView, pid: Pid) -> bool {
    view.header.writer.pid == pid
        || view.header.program.is_some_and(|p| p.pid == pid)
        || view.records.iter().any(|r| r.tgid == pid)
        || view.scheduling.iter().any(|r| r.tgid == pid)
}

fn restore_one(path: &Path, view: &JournalView, proc: &Proc, force: bool) -> Fate {
    let header: &Header = &view.header;
    if header.clean || header.is_of_former_boot(path) {
        return journal::remove(path).map_or_else(Fate::Failed, |()| Fate::Stale);
    }
    if !header.is_of_this_boot() {
        return Fate::OtherHost;
    }
    if !header.is_of_this_pid_namespace() {
        return Fate::OtherNamespace;
    }
    match header.stands_still(proc) {
        Some(_) if force => release(path),
        Some(stands_still) => Fate::Alive(Living {
            evenly: header.writer,
            program: header.program,
            stands_still,
            held: held(view, proc),
        }),
        None => LiveJournal::open(path)
            .and_then(|journal| finish(&journal, proc))
            .map_or_else(Fate::Failed, Fate::Restored),
    }
}

/// How many threads have a mask now that the evenly of a journal set.
fn held(view: &JournalView, proc: &Proc) -> usize {
    let is_held = |r: &&Record| {
        r.state == RecordState::Live
            && is_alive(proc, r.id)
            && affinity::get(r.id.tid).is_ok_and(|mask| mask != r.original && r.set.contains(&mask))
    };
    view.records.iter().filter(is_held).count()
}

fn release(path: &Path) -> Fate {
    match LiveJournal::open(path).and_then(|live| release_living(&live)) {
        Ok(report) => Fate::Restored(report),
        Err(e) => Fate::Failed(e),
    }
}

/// Restores the threads of an evenly that lives but does not work, and notifies it.
pub(crate) fn release_living(live: &LiveJournal) -> Result<RestoreReport, JournalError> {
    let view = live.view()?;
    live.raise_released();
    let report = restore_everything(&view, &Proc::default());
    live.raise_released();
    Ok(report)
}

/// Whether a thread has a mask now that the evenly of this journal set; so as well where the journal cannot be read.
pub(crate) fn holds(live: &LiveJournal) -> bool {
    live.view().map_or(true, |view| held(&view, &Proc::default()) > 0)
}

/// Restores the threads of an evenly that is dead, and removes its journal if nothing is left to
/// do. The journal is read anew: it no longer changes.
pub(crate) fn finish(live: &LiveJournal, proc: &Proc) -> Result<RestoreReport, JournalError> {
    let report = restore_everything(&live.view()?, proc);
    if report.is_complete() {
        live.finish()?;
    }
    Ok(report)
}

/// What an evenly that is dead, as its guardian is, has left: it waits for [`restore_all`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The evenly process that wrote the journal.
    pub evenly: Process,
    /// What would be given back now.
    pub report: RestoreReport,
}

/// The real machine, of which nothing is changed.
struct Looked(System);

impl Affinity for Looked {
    fn get(&mut self, tid: Tid) -> io::Result<CpuSet> {
        self.0.get(tid)
    }

    fn set(&mut self, _: Tid, _: &CpuSet) -> io::Result<()> {
        Ok(())
    }

    fn usable(&mut self, process: Pid) -> Option<CpuSet> {
        self.0.usable(process)
    }
}

/// What [`restore_all`] would give back now of those that are dead. Nothing is changed, and a journal whose
/// guardian is at work is passed over: the guardian undoes it.
#[must_use]
pub fn left(dir: &StateDir) -> Vec<Left> {
    let proc = Proc::default();
    let dead = |path: &PathBuf| {
        let header = Header::open(path).ok()?;
        let ours = !header.clean && header.is_of_this_boot() && header.is_of_this_pid_namespace();
        (ours && header.stands_still(&proc).is_none()).then_some(header.writer)
    };
    let mut all = Vec::new();
    for path in dir.journals().unwrap_or_default() {
        let Some(evenly) = dead(&path) else { continue };
        if journal::is_watched(&proc, &path) {
            continue;
        }
        // A guardian that ended this moment has removed it.
        let Ok(view) = JournalView::open(&path) else { continue };
        let mut report = restore(&view, &proc, &mut Looked(System::default()));
        report.shares = share_undo::left(&view, &proc);
        let shares = &report.shares;
        if report.restored + shares.restored + shares.groups > 0 {
            all.push(Left { evenly, report });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenly_model::ThreadId;

    #[test]
    fn a_thread_is_held_from_the_moment_its_mask_is_set_until_it_is_given_back() {
        let tid = Tid(rustix::thread::gettid().as_raw_nonzero().get());
        let whole = affinity::get(tid).unwrap();
        if whole.len() < 2 {
            return evenly_testing::skip("two-cpus", format!("this test may run on {whole} only"));
        }
        let one = CpuSet::single(whole.iter().next().unwrap());
        let id = ThreadId { tid, start: Proc::default().thread_stat(tid).unwrap().start };
        let tmp = tempfile::tempdir().unwrap();
        let journal = Journal::create(&StateDir::at(&tmp.path().join("state")).unwrap(), None);
        let journal = journal.unwrap();
        let live = LiveJournal::open(&journal.path()).unwrap();
        let mut slot = journal.register(id, Process::own().pid, &whole).unwrap();
        journal.about_to_set(&mut slot, &one);
        assert!(!holds(&live), "it is only about to be set");
        affinity::set(tid, &one).unwrap();
        assert!(holds(&live));
        release_living(&live).unwrap();
        assert_eq!(affinity::get(tid).unwrap(), whole);
        assert!(!holds(&live));
    }
}

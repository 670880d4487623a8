//! The journal that this process writes.

use super::file::JournalFile;
use super::layout::{
    FIRST_CAPACITY, Layout, Mapping, PARENT_LIMIT, PARENT_PATH_LIMIT, PARENT_WORDS, SWITCHED_ON,
    WORD, at, field, kernel_mask_words, kind,
};
use super::places::Parent;
use super::{JournalError, JournalView, Process, RECORD_LIMIT, RecordState, StateDir};
use crate::sched::Scheduling;
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard};

/// A record of the journal, owned by the balancer that registered the thread. It cannot be copied: two
/// owners would overwrite each other's masks.
#[derive(Debug, PartialEq, Eq)]
pub struct Slot(pub(super) usize);

/// Which records are free. Only here a lock is taken.
#[derive(Debug)]
struct Allocation {
    capacity: usize,
    never_used: usize,
    /// Oldest first: the masks of threads that ended are evidence for threads that inherited them,
    /// so they are kept as long as possible.
    freed: VecDeque<usize>,
}

/// The journal that this process writes.
#[derive(Debug)]
pub struct Journal {
    /// Locked for reading while a change is recorded, and while a system call may still follow from what is recorded.
    /// Written only by [`Journal::make_anew`], so a record is either copied or made in the new file.
    /// Taken after `allocation` where both are needed, and by one thread once at a time.
    file: RwLock<JournalFile>,
    pub(super) layout: Layout,
    allocation: Mutex<Allocation>,
}

impl Journal {
    /// Makes the journal of this process, in the directory or, unless the user has named it, in another
    /// place of the user where it cannot be made there. `program` is what is balanced, where it is known.
    ///
    /// # Errors
    /// [`JournalError`]: balancing must then not start (promise P8).
    pub fn create(dir: &StateDir, program: Option<Process>) -> Result<Self, JournalError> {
        let writer = Process::own();
        let layout = Layout { mask_words: kernel_mask_words() };
        let file = dir.try_each(|dir| {
            JournalFile::make(dir, writer, layout, |file| {
                file.reserve(layout, 0, FIRST_CAPACITY)?;
                file.fill_header(layout, writer, program);
                file.take_name()
            })
        })?;
        let allocation =
            Allocation { capacity: FIRST_CAPACITY, never_used: 0, freed: VecDeque::new() };
        Ok(Self { file: RwLock::new(file), layout, allocation: Mutex::new(allocation) })
    }

    /// Makes the journal anew, with all that is in it, where its name no longer leads to it: its
    /// directory was removed, or another was mounted in its place. Before it is used, the new file has its name
    /// and `hand_over` has been called with it, for the holder of the old one; until then nothing is
    /// recorded. Returns where it is now, and None where its name leads to it.
    ///
    /// # Errors
    /// [`JournalError`] where it can be made nowhere: `evenly restore` would not find it, so all must be
    /// given back.
    pub fn make_anew(
        &self,
        hand_over: impl FnOnce(BorrowedFd<'_>, &Path),
    ) -> Result<Option<PathBuf>, JournalError> {
        if self.file().is_in_place() {
            return Ok(None);
        }
        let allocation = self.lock();
        let mut file = self.file.write().unwrap_or_else(PoisonError::into_inner);
        let (writer, layout) = (Process::own(), self.layout);
        let new = file.dir.try_each(|dir| {
            JournalFile::make(dir, writer, layout, |new| {
                new.reserve(layout, 0, allocation.capacity)?;
                new.copy(&file, layout.file_bytes(allocation.capacity))?;
                new.take_name()
            })
        })?;
        hand_over(new.file.as_fd(), &new.path);
        let path = new.path.clone();
        let old = std::mem::replace(&mut *file, new);
        // Should a name still lead to it, say because its directory was only moved, it must not be
        // undone.
        old.map.word(at::CLEAN).store(1, Ordering::Release);
        Ok(Some(path))
    }

    pub(super) fn file(&self) -> RwLockReadGuard<'_, JournalFile> {
        // A panic under the lock leaves a whole file: it is replaced by one assignment.
        self.file.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the file is: an absolute path. It changes where the journal is made anew.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.file().path.clone()
    }

    /// The directory in which it is: looked at already, so not again.
    #[must_use]
    pub(crate) fn dir(&self) -> StateDir {
        self.file().dir.clone()
    }

    /// What it says, whatever became of its name.
    ///
    /// # Errors
    /// [`JournalError`] where it cannot be read.
    pub(crate) fn view(&self) -> Result<JournalView, JournalError> {
        let file = self.file();
        JournalView::read(file.file.as_fd(), &file.path)
    }

    /// Does this with the file, for [`Guardian`](crate::guardian::Guardian).
    pub(crate) fn with_file<T>(&self, work: impl FnOnce(BorrowedFd<'_>, &Path) -> T) -> T {
        let file = self.file();
        work(file.file.as_fd(), &file.path)
    }

    /// Publishes which program is balanced.
    pub fn set_program(&self, program: Process) {
        self.file().set_program(program);
    }

    /// Publishes the longest balancing period now in use, for the guardian; its patience is 20 of them, and
    /// at least 2 s.
    pub fn set_period(&self, period: Nanos) {
        self.file().map.word(at::PERIOD).store(period.0, Ordering::Relaxed);
    }

    /// Records a thread with the mask that it had before evenly came. For a thread that inherited
    /// one of our masks that is its creator's original mask; its present mask is then to be
    /// recorded right after, with [`Journal::about_to_set`].
    ///
    /// Threads that evenly leaves alone because their mask is the program's wish should be registered
    /// as well: a thread that is recorded with the mask that it has is never taken for one that
    /// inherited a mask of ours.
    ///
    /// Register the new threads of a scan before forgetting those that ended: a new one may have
    /// inherited the mask of one that ended.
    ///
    /// # Errors
    /// [`JournalError::Full`] at [`RECORD_LIMIT`] threads, [`JournalError::Io`] where the file
    /// cannot grow. The thread must then be left alone.
    pub fn register(
        &self,
        id: ThreadId,
        tgid: Pid,
        original: &CpuSet,
    ) -> Result<Slot, JournalError> {
        let ids = [id.tid.0 as u32, tgid.0 as u32];
        self.fill(kind::MASKS, ids, id.start, |map, record| {
            self.layout.store_mask(map, record, 0, original);
        })
    }

    /// Records a thread with the way in which it was scheduled before evenly came; for one that
    /// inherited what we set, that of its creator.
    ///
    /// # Errors
    /// As [`Journal::register`].
    pub fn register_scheduling(
        &self,
        id: ThreadId,
        tgid: Pid,
        original: &Scheduling,
    ) -> Result<Slot, JournalError> {
        let ids = [id.tid.0 as u32, tgid.0 as u32];
        let store = |map: &Mapping, record| {
            store_words(map, Layout::value(record, 0, 2), &original.to_words());
        };
        self.fill(kind::SCHEDULING, ids, id.start, store)
    }

    /// As [`Journal::about_to_set`], for how a thread is going to be scheduled.
    pub fn about_to_schedule(&self, slot: &mut Slot, value: &Scheduling) {
        self.about_to_store(slot, &value.to_words());
    }

    /// Records a directory in which groups are going to be made. To be called before the first is made.
    ///
    /// # Errors
    /// [`JournalError::Full`] where there is no room for another directory, or for one with so long a
    /// path.
    pub fn about_to_make_groups(&self, parent: &Parent) -> Result<(), JournalError> {
        let full = || JournalError::Full { path: self.path() };
        let path = parent.path.as_os_str().as_bytes();
        if path.len() > PARENT_PATH_LIMIT {
            return Err(full());
        }
        // Held so that two callers do not take the same place.
        let _held = self.lock();
        let file = self.file();
        let map = &file.map;
        let Some(first) = (0..PARENT_LIMIT)
            .map(|i| self.layout.first_parent() + i * PARENT_WORDS)
            .find(|&first| map.word(first).load(Ordering::Relaxed) == 0)
        else {
            return Err(JournalError::Full { path: file.path.clone() });
        };
        map.word(first + 1).store(path.len() as u64, Ordering::Relaxed);
        for (i, bytes) in path.chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word[..bytes.len()].copy_from_slice(bytes);
            map.word(first + 2 + i).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        let switched_on = if parent.switched_on { SWITCHED_ON } else { 0 };
        // Release: who sees the kind sees the path. The directory is made by a system call after this.
        map.word(first).store(parent.kind as u64 | switched_on, Ordering::Release);
        Ok(())
    }

    fn fill(
        &self,
        kind: u64,
        ids: [u32; 2],
        start: u64,
        store: impl FnOnce(&Mapping, usize),
    ) -> Result<Slot, JournalError> {
        let slot = self.allocate()?;
        let record = self.layout.record(slot.0);
        let file = self.file();
        let word = |n: usize| file.map.word(record + n);
        word(field::STATE).store(RecordState::Blank as u64, Ordering::Relaxed);
        // Release, so that no store below passes the blanking above: a record that is being
        // written is a blank one, whenever we die.
        std::sync::atomic::fence(Ordering::Release);
        word(field::IDS).store((u64::from(ids[0]) << 32) | u64::from(ids[1]), Ordering::Relaxed);
        word(field::START).store(start, Ordering::Relaxed);
        word(field::SETS).store(0, Ordering::Relaxed);
        store(&file.map, record);
        // Release: a reader who sees the record as live sees all of it.
        word(field::STATE).store(kind << kind::SHIFT | RecordState::Live as u64, Ordering::Release);
        Ok(slot)
    }

    /// [`Journal::about_to_set`] for a value that is no mask; the argument is the same.
    fn about_to_store(&self, slot: &mut Slot, value: &[u64]) {
        let record = self.layout.record(slot.0);
        let file = self.file();
        let sets = file.map.word(record + field::SETS);
        let n = sets.load(Ordering::Relaxed);
        store_words(&file.map, Layout::value(record, 1 + (n % 2) as usize, value.len()), value);
        // Release, as for masks. Calls that change how a thread is scheduled release a lock of the
        // thread, too; writing a file of the kernel's is a system call like them.
        sets.store(n + 1, Ordering::Release);
    }

    /// Records that `mask` is going to be set on the thread. To be called before the system call;
    /// where that fails, [`Journal::not_set`] must follow.
    pub fn about_to_set(&self, slot: &mut Slot, mask: &CpuSet) {
        let record = self.layout.record(slot.0);
        let file = self.file();
        let sets = file.map.word(record + field::SETS);
        let n = sets.load(Ordering::Relaxed);
        // The mask in force is number n - 1; this one goes over the one before it. Dying among
        // these stores is harmless: the mask in force is still recorded as the newest.
        self.layout.store_mask(&file.map, record, 1 + (n % 2) as usize, mask);
        // Release: a reader who sees n + 1 sees the whole mask. Dying after this and before the
        // system call leaves the mask in force as the second newest, which is ours as well. The
        // system call cannot overtake the store as seen by the guardian: sched_setaffinity
        // releases a lock of the thread that the guardian's sched_getaffinity takes, and a reader
        // after our death is ordered by it.
        sets.store(n + 1, Ordering::Release);
    }

    /// Takes the newest [`Journal::about_to_set`] back, because the mask could not be set.
    /// Otherwise the next one would overwrite the mask that is in force.
    pub fn not_set(&self, slot: &mut Slot) {
        let file = self.file();
        let sets = file.map.word(self.layout.record(slot.0) + field::SETS);
        let n = sets.load(Ordering::Relaxed);
        sets.store(n.saturating_sub(1), Ordering::Release);
    }

    /// Whether a mask that the thread was found with is one of the two newest that were set.
    #[must_use]
    pub fn is_ours(&self, slot: &Slot, mask: &CpuSet) -> bool {
        let record = self.layout.record(slot.0);
        let file = self.file();
        let n = file.map.word(record + field::SETS).load(Ordering::Relaxed);
        (0..n.min(2)).any(|back| {
            let first = self.layout.mask(record, 1 + ((n - 1 - back) % 2) as usize);
            (0..self.layout.mask_words.max(mask.words().len())).all(|i| {
                let stored = if i < self.layout.mask_words {
                    file.map.word(first + i).load(Ordering::Relaxed)
                } else {
                    0
                };
                stored == mask.words().get(i).copied().unwrap_or(0)
            })
        })
    }

    /// Records that the thread now has a mask of the program's choice, which must not be undone.
    /// To balance the thread again, forget it and register it anew.
    pub fn leave_alone(&self, slot: &mut Slot) {
        let file = self.file();
        let state = file.map.word(self.layout.record(slot.0) + field::STATE);
        let kind = state.load(Ordering::Relaxed) >> kind::SHIFT << kind::SHIFT;
        state.store(kind | RecordState::LeftAlone as u64, Ordering::Release);
    }

    /// Frees the record of a thread that ended, or that has its original mask back.
    #[expect(clippy::needless_pass_by_value, reason = "the slot must not be used again")]
    pub fn forget(&self, slot: Slot) {
        let file = self.file();
        let state = file.map.word(self.layout.record(slot.0) + field::STATE);
        let kind = state.load(Ordering::Relaxed) >> kind::SHIFT << kind::SHIFT;
        state.store(kind | RecordState::Ended as u64, Ordering::Release);
        // The other lock comes first where both are held.
        drop(file);
        self.lock().freed.push_back(slot.0);
    }

    /// Says that the balancers are at work. Where this stops for longer than the guardian's
    /// patience, the guardian gives all threads their original masks.
    pub fn heartbeat(&self, now: Nanos) {
        self.file().map.word(at::HEARTBEAT).store(now.0, Ordering::Relaxed);
    }

    /// Says how many threads this balancer places on these CPUs, for another evenly to see.
    pub fn publish_counts(&self, counts: &[(CpuId, u16)]) {
        let file = self.file();
        for &(cpu, threads) in counts {
            if let Some(count) = file.map.count(cpu, self.layout) {
                count.store(threads, Ordering::Relaxed);
            }
        }
    }

    /// Changes whenever another process gave threads their original masks while this process was
    /// stopped: once before the first mask and once after the last. To distinguish such a mask
    /// from one that the program set, read the thread's mask first and this after it.
    #[must_use]
    pub fn released_generation(&self) -> u64 {
        // Acquire, with the read of the mask before it: sched_getaffinity takes the lock that the
        // guardian's sched_setaffinity released after the generation was raised.
        self.file().map.word(at::RELEASED).load(Ordering::Acquire)
    }

    /// Says that every mask is given back, and removes the file. The guardian then ends without
    /// doing anything.
    ///
    /// # Errors
    /// [`JournalError::Io`] where the file cannot be removed; it is harmless then.
    pub fn finish(&self) -> Result<(), JournalError> {
        let file = self.file();
        file.map.word(at::CLEAN).store(1, Ordering::Release);
        file.remove()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Allocation> {
        // A panic under the lock leaves the allocation whole: each step is one assignment.
        self.allocation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn allocate(&self) -> Result<Slot, JournalError> {
        let mut a = self.lock();
        if a.never_used == a.capacity && a.freed.is_empty() {
            if a.capacity >= RECORD_LIMIT {
                return Err(JournalError::Full { path: self.path() });
            }
            let capacity = (a.capacity * 2).min(RECORD_LIMIT);
            self.file().reserve(self.layout, a.capacity, capacity)?;
            a.capacity = capacity;
        }
        // Never-used records first: freed ones keep evidence.
        if a.never_used < a.capacity {
            a.never_used += 1;
            return Ok(Slot(a.never_used - 1));
        }
        a.freed.pop_front().map(Slot).ok_or_else(|| JournalError::Full { path: self.path() })
    }
}

impl Layout {
    fn store_mask(self, map: &Mapping, record: usize, which: usize, mask: &CpuSet) {
        let first = self.mask(record, which);
        for i in 0..self.mask_words {
            let value = mask.words().get(i).copied().unwrap_or(0);
            map.word(first + i).store(value, Ordering::Relaxed);
        }
    }
}

fn store_words(map: &Mapping, first: usize, words: &[u64]) {
    for (i, word) in words.iter().enumerate() {
        map.word(first + i).store(*word, Ordering::Relaxed);
    }
}

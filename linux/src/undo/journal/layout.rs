//! The shapes of the file, and the file as words in memory.

use crate::sched::Scheduling;
use evenly_model::CpuId;
use rustix::mm::{MapFlags, ProtFlags};
use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU64};

pub(super) const MAGIC: u64 = u64::from_ne_bytes(*b"evenly-J");
pub(super) const VERSION: u64 = 2;
/// Directories in which groups are made: that of the program, and a few more where its processes are in
/// several.
pub(crate) const PARENT_LIMIT: usize = 4;
pub(super) const PARENT_WORDS: usize = 128;
/// The longest path of such a directory.
pub(crate) const PARENT_PATH_LIMIT: usize = (PARENT_WORDS - 2) * WORD;
/// In the first word of such a directory: a controller was switched on for its groups.
pub(super) const SWITCHED_ON: u64 = 1 << 8;
pub(super) const FIRST_CAPACITY: usize = 256;
/// 16,384 CPUs: above every kernel that is built today.
pub(crate) const MAX_MASK_WORDS: usize = 256;
pub(super) const WORD: usize = size_of::<u64>();

/// Numbers of the header's words.
pub(super) mod at {
    pub(in crate::undo::journal) const MAGIC: usize = 0;
    pub(in crate::undo::journal) const VERSION: usize = 1;
    pub(in crate::undo::journal) const HEADER_BYTES: usize = 2;
    pub(in crate::undo::journal) const RECORD_BYTES: usize = 3;
    pub(in crate::undo::journal) const MASK_WORDS: usize = 4;
    pub(in crate::undo::journal) const CAPACITY: usize = 5;
    pub(in crate::undo::journal) const BOOT_ID: usize = 6;
    pub(in crate::undo::journal) const PID_NAMESPACE: usize = 8;
    pub(in crate::undo::journal) const WRITER_PID: usize = 9;
    pub(in crate::undo::journal) const WRITER_START: usize = 10;
    pub(in crate::undo::journal) const PROGRAM_PID: usize = 11;
    pub(in crate::undo::journal) const PROGRAM_START: usize = 12;
    pub(in crate::undo::journal) const CLEAN: usize = 13;
    pub(in crate::undo::journal) const HEARTBEAT: usize = 14;
    pub(in crate::undo::journal) const PERIOD: usize = 15;
    pub(in crate::undo::journal) const RELEASED: usize = 16;
    pub(in crate::undo::journal) const WANTED: usize = 17;
    pub(in crate::undo::journal) const GIVEN: usize = 18;
    pub(in crate::undo::journal) const SAID_UNTIL: usize = 19;
    pub(in crate::undo::journal) const COUNTS: usize = 24;
}

/// Numbers of a record's words.
pub(super) mod field {
    pub(in crate::undo::journal) const STATE: usize = 0;
    pub(in crate::undo::journal) const IDS: usize = 1;
    pub(in crate::undo::journal) const START: usize = 2;
    pub(in crate::undo::journal) const SETS: usize = 3;
    pub(in crate::undo::journal) const MASKS: usize = 4;
    /// Values that are no masks begin there, too.
    pub(in crate::undo::journal) const VALUES: usize = MASKS;
}

/// What a record is about: in its first word, above the state.
pub(super) mod kind {
    pub(in crate::undo::journal) const MASKS: u64 = 0;
    pub(in crate::undo::journal) const SCHEDULING: u64 = 1;
    pub(in crate::undo::journal) const SHIFT: u32 = 8;
}

/// Shapes that follow from the width of a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) mask_words: usize,
}

impl Layout {
    pub(super) const WIDEST: Self = Self { mask_words: MAX_MASK_WORDS };

    /// Four 16-bit counts in a word, 64 CPUs in a word of a mask.
    pub(super) const fn first_parent(self) -> usize {
        at::COUNTS + 16 * self.mask_words
    }

    pub(super) const fn header_words(self) -> usize {
        self.first_parent() + PARENT_LIMIT * PARENT_WORDS
    }

    pub(super) const fn record_words(self) -> usize {
        let (masks, scheduling) = (3 * self.mask_words, 3 * Scheduling::WORDS);
        field::MASKS + if masks > scheduling { masks } else { scheduling }
    }

    pub(super) const fn file_bytes(self, records: usize) -> usize {
        (self.header_words() + records * self.record_words()) * WORD
    }

    pub(super) const fn record(self, index: usize) -> usize {
        self.header_words() + index * self.record_words()
    }

    /// Number of the first word of the original mask (0) or of a set mask (1, 2) in a record.
    pub(super) const fn mask(self, record: usize, which: usize) -> usize {
        record + field::MASKS + which * self.mask_words
    }

    /// The same for a value of so many words.
    pub(super) const fn value(record: usize, which: usize, words: usize) -> usize {
        record + field::VALUES + which * words
    }
}

/// A shared mapping of a file, as words.
pub(super) struct Mapping {
    base: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: the mapping is memory that is only reached through atomics, and it is unmapped only when
// its one owner is dropped.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapping").field("bytes", &self.bytes).finish()
    }
}

impl Mapping {
    pub(super) fn new(file: impl AsFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the place, so nothing that exists is replaced.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                file,
                0,
            )?
        };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, bytes })
    }

    pub(super) fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < self.bytes / WORD, "word {number} of {} bytes", self.bytes);
        // SAFETY: inside the mapping by the assertion, aligned because a mapping starts on a page,
        // live as long as self; every access by any process is an aligned atomic one.
        unsafe { self.base.add(number).as_ref() }
    }

    pub(super) fn count(&self, cpu: CpuId, layout: Layout) -> Option<&AtomicU16> {
        let cpu = cpu.0 as usize;
        if cpu >= layout.mask_words * 64 {
            return None;
        }
        let first: *const AtomicU16 = std::ptr::from_ref(self.word(at::COUNTS)).cast();
        assert!(layout.first_parent() * WORD <= self.bytes);
        // SAFETY: the counts take 16 * mask_words words from at::COUNTS on, all of them inside the
        // mapping by the assertion; they are never accessed as words.
        Some(unsafe { &*first.add(cpu) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and no reference into it outlives self.
        // It cannot fail for a range that was mapped.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

pub(super) fn word_at(bytes: &[u8], number: usize) -> Option<u64> {
    let start = number.checked_mul(WORD)?;
    let word = bytes.get(start..start.checked_add(WORD)?)?;
    Some(u64::from_ne_bytes(word.try_into().ok()?))
}

/// Words of the kernel's own masks.
pub(super) fn kernel_mask_words() -> usize {
    let mut words = [0u64; MAX_MASK_WORDS];
    // SAFETY: the kernel writes at most the given number of bytes into the array, which is live
    // and large enough, and returns the size of its masks.
    let n = unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&words), words.as_mut_ptr())
    };
    // It fails only where masks are wider than the array; the widest is then used.
    usize::try_from(n).map_or(MAX_MASK_WORDS, |bytes| bytes.div_ceil(WORD).max(1))
}

//! The file of the journal that this process writes: made, named, copied and removed.

use super::layout::{Layout, MAGIC, Mapping, VERSION, WORD, at};
use super::{
    Header, JournalError, Process, RECORD_LIMIT, StateDir, boot_id, pid_namespace, remove,
};
use crate::clock::now;
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// A journal's file, mapped into memory.
#[derive(Debug)]
pub(super) struct JournalFile {
    pub(super) dir: StateDir,
    /// Its name; whether it leads there is what [`JournalFile::is_in_place`] says.
    pub(super) path: PathBuf,
    pub(super) file: OwnedFd,
    /// As long as the file can ever become. Only what is inside the file is touched; so the file
    /// grows without being mapped anew.
    pub(super) map: Mapping,
}

impl JournalFile {
    /// Makes the file of this process in a directory, with a name that no reader looks for; `finish` fills it and
    /// gives it its name.
    pub(super) fn make(
        dir: StateDir,
        writer: Process,
        layout: Layout,
        finish: impl FnOnce(&Self) -> Result<(), JournalError>,
    ) -> Result<Self, JournalError> {
        let path = dir.path().join(format!("{}-{}.journal", writer.pid, writer.start));
        let unfinished = unfinished(&path);
        let _ = fs::remove_file(&unfinished);
        let file = rustix::fs::open(
            &unfinished,
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(|e| JournalError::Io {
            path: path.clone(),
            what: "make it",
            source: e.into(),
        })?;
        let made = Mapping::new(&file, layout.file_bytes(RECORD_LIMIT))
            .map_err(|source| JournalError::Io {
                path: path.clone(),
                what: "map it into memory",
                source,
            })
            .map(|map| Self { dir, path, file, map })
            .and_then(|made| finish(&made).map(|()| made));
        if made.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        made
    }

    pub(super) fn fill_header(&self, layout: Layout, writer: Process, program: Option<Process>) {
        let boot = boot_id();
        for (word, value) in [
            (at::MAGIC, MAGIC),
            (at::VERSION, VERSION),
            (at::HEADER_BYTES, (layout.header_words() * WORD) as u64),
            (at::RECORD_BYTES, (layout.record_words() * WORD) as u64),
            (at::MASK_WORDS, layout.mask_words as u64),
            (at::BOOT_ID, (boot >> 64) as u64),
            (at::BOOT_ID + 1, boot as u64),
            (at::PID_NAMESPACE, pid_namespace()),
            (at::WRITER_PID, u64::from(writer.pid.0.unsigned_abs())),
            (at::WRITER_START, writer.start),
            (at::HEARTBEAT, now().0),
        ] {
            self.map.word(word).store(value, Ordering::Relaxed);
        }
        if let Some(program) = program {
            self.set_program(program);
        }
    }

    pub(super) fn set_program(&self, program: Process) {
        self.map.word(at::PROGRAM_START).store(program.start, Ordering::Relaxed);
        // Release: a reader that sees the id sees the start time that belongs to it.
        let pid = u64::from(program.pid.0.unsigned_abs());
        self.map.word(at::PROGRAM_PID).store(pid, Ordering::Release);
    }

    /// Gives the file its name, which is that of this process: a journal that has it was left by another
    /// boot, or by this process where the directory came back that had gone away.
    pub(super) fn take_name(&self) -> Result<(), JournalError> {
        if let Ok(old) = Header::open(&self.path) {
            let was_ours = old.is_of_this_boot() && old.is_of_this_pid_namespace() && old.clean;
            if was_ours || old.is_of_former_boot(&self.path) {
                let _ = fs::remove_file(&self.path);
            }
        }
        let (cwd, from) = (rustix::fs::CWD, unfinished(&self.path));
        match rustix::fs::renameat_with(cwd, &from, cwd, &self.path, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(JournalError::Exists { path: self.path.clone() }),
            Err(e) => Err(self.cannot("give it its name", e)),
        }
    }

    /// Whether its name leads to it.
    pub(super) fn is_in_place(&self) -> bool {
        leads_to(&self.path, self.file.as_fd())
    }

    /// Removes the name, where it leads to this file.
    pub(super) fn remove(&self) -> Result<(), JournalError> {
        if self.is_in_place() { remove(&self.path) } else { Ok(()) }
    }

    /// Makes it as another file is, up to this length.
    pub(super) fn copy(&self, other: &Self, bytes: usize) -> Result<(), JournalError> {
        let mut piece = vec![0u8; bytes.min(1 << 16)];
        let mut from = 0;
        while from < bytes {
            let most = piece.len().min(bytes - from);
            let n = rustix::io::pread(&other.file, &mut piece[..most], from as u64)
                .and_then(|n| if n == 0 { Err(Errno::IO) } else { Ok(n) })
                .map_err(|e| other.cannot("read it", e))?;
            self.write(&piece[..n], from as u64).map_err(|e| self.cannot("write it", e))?;
            from += n;
        }
        Ok(())
    }

    fn write(&self, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let n = rustix::io::pwrite(&self.file, bytes, at)?;
            (bytes, at) = (&bytes[n..], at + n as u64);
        }
        Ok(())
    }

    /// Makes room in the file, and on the medium: a store into a hole of a full file system would
    /// be answered with SIGBUS.
    pub(super) fn reserve(
        &self,
        layout: Layout,
        old_capacity: usize,
        capacity: usize,
    ) -> Result<(), JournalError> {
        let bytes = layout.file_bytes(capacity) as u64;
        let grown = match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_zeros(layout, old_capacity, bytes),
            other => other,
        };
        grown.map_err(|e| self.cannot("make room in it", e))?;
        // Release: a reader who believes the new capacity finds the file as long.
        self.map.word(at::CAPACITY).store(capacity as u64, Ordering::Release);
        Ok(())
    }

    fn write_zeros(&self, layout: Layout, old_capacity: usize, bytes: u64) -> Result<(), Errno> {
        let zeros = [0u8; 4096];
        let mut from = if old_capacity == 0 { 0 } else { layout.file_bytes(old_capacity) as u64 };
        while from < bytes {
            let n = usize::try_from(bytes - from).unwrap_or(usize::MAX).min(zeros.len());
            self.write(&zeros[..n], from)?;
            from += n as u64;
        }
        Ok(())
    }

    fn cannot(&self, what: &'static str, e: Errno) -> JournalError {
        JournalError::Io { path: self.path.clone(), what, source: e.into() }
    }
}

/// The name of a file that is not whole yet: no reader looks at it.
fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("journal-new")
}

/// Whether a name leads to this file, by device and inode, and not by a link.
pub(super) fn leads_to(path: &Path, file: BorrowedFd<'_>) -> bool {
    let named = rustix::fs::statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    matches!(
        (named, rustix::fs::fstat(file)),
        (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino)
    )
}

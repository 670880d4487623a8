//! Where libraries and programs are kept that evenly loads into a program, or starts.
//!
//! A user who can write such a file, or rename it or a directory above it, has code run as the user of evenly. The
//! directory comes from the environment: with `sudo -E` it is one of the user who called sudo.
//!
//! Invariant: a file is used only where only the user of this process and root can change or replace it.

use crate::ProbeError;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::process::geteuid;
use std::env;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Bits of a mode: those who are neither the owner nor root can write.
const OTHERS_WRITE: u32 = 0o022;
/// Only the owner of an entry of the directory, or of the directory, can rename the entry.
const STICKY: u32 = 0o1000;

/// For root, where others cannot reach the usual directory.
const FOR_ALL: &str = "/var/cache/evenly/probe";

/// Where a library is kept that children load. What root starts may go on as another user (`su`, a daemon): whose loader
/// complains in each program where that user cannot reach the library, as below `/root`. A directory that was chosen stays.
pub(crate) fn reached_by_all(usual: &Path) -> &Path {
    let chosen = env::var_os("XDG_CACHE_HOME").is_some();
    if geteuid().is_root() && !chosen && !all_reach(usual) { Path::new(FOR_ALL) } else { usual }
}

/// Whether every user can open files in a directory, as far as it is there.
fn all_reach(dir: &Path) -> bool {
    let mut there = dir.ancestors().filter_map(|part| part.metadata().ok());
    there.all(|meta| meta.mode() & 0o001 != 0)
}

/// The directory to keep files in, made where it is missing: `preferred`, or, where others could replace what is
/// in it or it cannot be made, one in the directory for temporary files.
///
/// # Errors
/// Where there is no such directory.
pub(crate) fn directory(preferred: &Path) -> Result<PathBuf, ProbeError> {
    directory_or(preferred, &[env::temp_dir(), PathBuf::from("/tmp")])
}

fn directory_or(preferred: &Path, temporary: &[PathBuf]) -> Result<PathBuf, ProbeError> {
    let source = match made(preferred) {
        Ok(dir) => return Ok(dir),
        Err(e) => e,
    };
    // It stays, with the same name for the next time: children of a program can outlive evenly, and the loader
    // complains in each of them where the library is gone.
    let name = format!("evenly-probe-{}", geteuid().as_raw());
    for parent in temporary {
        if let Ok(dir) = made(&parent.join(&name)) {
            return Ok(dir);
        }
        // Another user may have taken that name.
        let own = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(parent);
        if let Ok(own) = own
            && let Ok(dir) = checked(own.path())
        {
            // Its path is in the answer.
            let _ = own.keep();
            return Ok(dir);
        }
    }
    Err(ProbeError::Cache { dir: preferred.to_owned(), source })
}

/// The canonical path of this directory, which is made where it is missing.
fn made(dir: &Path) -> io::Result<PathBuf> {
    // Nothing is made in a directory of another user: what root made there would be in that user's way.
    let there = dir.ancestors().find(|above| above.symlink_metadata().is_ok());
    let there = there.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    canonical(there, there != dir)?;
    DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
    checked(dir)
}

/// As [`canonical`], for a directory that files are to be kept in.
fn checked(dir: &Path) -> io::Result<PathBuf> {
    let dir = canonical(dir, false)?;
    if rustix::fs::statvfs(&dir)?.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(io::Error::other("no program can be loaded from there (it is mounted noexec)"));
    }
    Ok(dir)
}

/// The canonical path of a directory in which and above which only this user and root can rename anything.
/// Its parts are no symbolic links, so no other user can let it lead elsewhere later. With `shared` others may make
/// entries of their own in it, as in `/tmp`.
fn canonical(dir: &Path, shared: bool) -> io::Result<PathBuf> {
    let dir = fs::canonicalize(dir)?;
    let unmapped = unmapped();
    let refused = |part: &Path, found: String| {
        let (part, user) = (part.display(), geteuid());
        io::Error::other(format!(
            "{part} {found}; needed is a directory that only user {user} and root can write, \
             set XDG_CACHE_HOME to one"
        ))
    };
    for part in dir.ancestors() {
        let meta = part.symlink_metadata()?;
        let shared = shared || part != dir;
        if !(is_ours(meta.uid()) || shared && Some(meta.uid()) == unmapped) {
            return Err(refused(part, format!("belongs to user {}", meta.uid())));
        }
        if meta.mode() & OTHERS_WRITE != 0 && !(shared && meta.mode() & STICKY != 0) {
            return Err(refused(part, format!("has mode {:o}", meta.mode() & 0o7777)));
        }
    }
    Ok(dir)
}

fn is_ours(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// As whose the files of all users appear that have no number in this user namespace: in a container without
/// privileges `/` and `/tmp` are theirs. None in the first namespace, where all have one.
fn unmapped() -> Option<u32> {
    let map = fs::read_to_string("/proc/self/uid_map").ok()?;
    if map.split_ascii_whitespace().eq(["0", "0", "4294967295"]) {
        return None;
    }
    fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?.trim().parse().ok()
}

/// The file of this name in a directory that [`directory`] gave, where it is one that only this user and root can
/// write.
pub(crate) fn kept(file: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(file, flags, Mode::empty()).ok()?);
    let meta = file.metadata().ok()?;
    let good = meta.is_file() && is_ours(meta.uid()) && meta.mode() & OTHERS_WRITE == 0;
    good.then_some(file)
}

/// Whether a file holds these bytes and no others.
pub(crate) fn holds(file: File, bytes: &[u8]) -> bool {
    let mut found = Vec::with_capacity(bytes.len() + 1);
    // One byte more than expected: the file is longer.
    file.take(bytes.len() as u64 + 1).read_to_end(&mut found).is_ok() && found == bytes
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};

    const OTHER: u32 = 12_345;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// Why it is not used, and that another one is.
    #[track_caller]
    fn refused(dir: &Path, why: &str) {
        let said = directory_or(dir, &[]).unwrap_err().to_string();
        assert!(said.contains(why) && said.lines().count() == 1, "{said}");
        let temporary = tempfile::tempdir().unwrap();
        mode(temporary.path(), 0o1777);
        let private = directory_or(dir, &[temporary.path().to_owned()]).unwrap();
        assert_eq!(directory_or(dir, &[temporary.path().to_owned()]).unwrap(), private);
        assert_eq!(private.parent(), Some(fs::canonicalize(temporary.path()).unwrap().as_path()));
        assert_eq!(private.metadata().unwrap().mode() & 0o7777, 0o755);
    }

    /// Would catch: "cannot be preloaded" in each program that `su` starts.
    #[test]
    fn a_directory_below_a_private_one_is_not_reached_by_all() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("evenly/probe");
        mode(room.path(), 0o700);
        assert!(!all_reach(&dir));
        mode(room.path(), 0o755);
        assert!(all_reach(&dir));
    }

    #[test]
    fn a_directory_of_ones_own_is_used() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("a/b");
        let canonical = fs::canonicalize(room.path()).unwrap().join("a/b");
        assert_eq!(directory(&dir).unwrap(), canonical);
        assert_eq!(directory(&dir).unwrap(), canonical);
        assert_eq!(dir.metadata().unwrap().mode() & OTHERS_WRITE, 0);
        // A link of one's own leads to what is checked.
        let link = room.path().join("link");
        symlink(room.path().join("a"), &link).unwrap();
        assert_eq!(directory(&link.join("b")).unwrap(), canonical);
    }

    #[test]
    fn directories_that_others_can_write_are_not_used() {
        let room = tempfile::tempdir().unwrap();
        let dir = room.path().join("a/b");
        fs::create_dir_all(&dir).unwrap();
        for bits in [0o775, 0o757, 0o1777] {
            mode(&dir, bits);
            refused(&dir, &format!("has mode {bits:o}; needed is a directory that only user"));
        }
        mode(&dir, 0o755);
        directory_or(&dir, &[]).unwrap();
        // They could put another in its place.
        mode(dir.parent().unwrap(), 0o775);
        refused(&dir, "has mode 775");
        refused(&dir.join("new"), "has mode 775");
        assert!(!dir.join("new").exists());
        // Not where only owners rename, as in /tmp.
        mode(dir.parent().unwrap(), 0o1777);
        directory_or(&dir, &[]).unwrap();
    }

    #[test]
    fn directories_of_others_are_not_used() {
        if !geteuid().is_root() {
            return evenly_testing::skip("root", "only root can give directories to other users");
        }
        let room = tempfile::tempdir().unwrap();
        let (home, dir) = (room.path().join("home"), room.path().join("home/cache"));
        fs::create_dir_all(&dir).unwrap();
        chown(&dir, Some(OTHER), None).unwrap();
        refused(&dir, "belongs to user 12345");
        chown(&home, Some(OTHER), None).unwrap();
        chown(&dir, Some(0), None).unwrap();
        refused(&dir, "belongs to user 12345");
        refused(&home.join("new"), "belongs to user 12345");
        assert!(!home.join("new").exists());
        // Not through a link either.
        let link = room.path().join("link");
        symlink(&dir, &link).unwrap();
        refused(&link, "belongs to user 12345");
        // Nor one that another user put in place of the one for temporary files.
        let temporary = room.path().join("tmp");
        fs::create_dir(&temporary).unwrap();
        mode(&temporary, 0o1777);
        let taken = temporary.join("evenly-probe-0");
        fs::create_dir(&taken).unwrap();
        chown(&taken, Some(OTHER), None).unwrap();
        let own = directory_or(&dir, std::slice::from_ref(&temporary)).unwrap();
        assert!(own != taken && own.metadata().unwrap().uid() == 0, "{}", own.display());
        fs::remove_dir(&taken).unwrap();
        symlink(&home, &taken).unwrap();
        let own = directory_or(&dir, &[temporary]).unwrap();
        assert!(own.starts_with(room.path().join("tmp")) && own != taken, "{}", own.display());
    }

    #[test]
    fn what_cannot_be_made() {
        refused(Path::new("/proc/none"), "cannot keep the probe in /proc/none: ");
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("file");
        fs::write(&file, "").unwrap();
        refused(&file, "cannot keep the probe in ");
        refused(&file.join("below"), "cannot keep the probe in ");
        // Where that leads can change.
        symlink(room.path().join("none"), room.path().join("dangling")).unwrap();
        refused(&room.path().join("dangling"), "cannot keep the probe in ");
    }

    fn is_good(file: &Path) -> bool {
        kept(file).is_some_and(|f| holds(f, b"bytes"))
    }

    #[test]
    fn a_file_is_used_by_its_content_and_mode() {
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("file");
        let good = || is_good(&file);
        assert!(!good());
        for (content, is) in [(&b"bytes"[..], true), (b"other", false), (b"byte", false)] {
            fs::write(&file, content).unwrap();
            assert_eq!(good(), is);
        }
        fs::write(&file, "bytes and more").unwrap();
        assert!(!good());
        fs::write(&file, "bytes").unwrap();
        for (bits, is) in [(0o755, true), (0o775, false), (0o757, false)] {
            mode(&file, bits);
            assert_eq!(good(), is, "{bits:o}");
        }
        mode(&file, 0o755);
        let moved = room.path().join("moved");
        fs::rename(&file, &moved).unwrap();
        symlink(&moved, &file).unwrap();
        assert!(!good());
    }

    #[test]
    fn a_file_of_another_user_is_not_used() {
        if !geteuid().is_root() {
            return evenly_testing::skip("root", "only root can give files to other users");
        }
        let room = tempfile::tempdir().unwrap();
        let file = room.path().join("file");
        fs::write(&file, "bytes").unwrap();
        mode(&file, 0o755);
        assert!(is_good(&file));
        chown(&file, Some(OTHER), None).unwrap();
        assert!(!is_good(&file));
    }
}

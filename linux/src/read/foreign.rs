//! Opens files that another process has named or could have put there.
//!
//! To open a file can have effects before anything is read: a FIFO blocks, a device acts, a terminal becomes the
//! controlling one. A symbolic link leads to whatever its owner chose last. So each file is first opened with
//! `O_PATH`, which does none of that; what it is gets checked on that descriptor; and that very file is then
//! opened for reading, through `/proc/self/fd`.
//!
//! Invariant: no file is opened for reading that is not a regular one, of the user that the caller expects, of
//! this process's user or of root.

use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, fstatfs, open};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The type of the file system in which the kernel keeps files in memory (`TMPFS_MAGIC` in `linux/magic.h`).
const TMPFS: i128 = 0x0102_1994;

/// Why a file was not opened.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// A system call on the file failed.
    #[error("cannot {what} {}: {source}", .path.display())]
    Io {
        /// The path of the file, as it was given.
        path: PathBuf,
        /// What could not be done with it, as it follows "cannot" in the message.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// It is not what was expected.
    #[error("{} is not opened: it {found}; needed is {needed}", .path.display())]
    Other {
        /// The path of the file, as it was given.
        path: PathBuf,
        /// What the file is or has, as it follows "it" in the message.
        found: String,
        /// The kind of file that would be opened.
        needed: String,
    },
}

/// Opens a file that memfd_create(2) made with this `name` and that has exactly `bytes` bytes, for reading.
/// `path` has to be that of a descriptor, `/proc/PID/fd/N`, as other processes name such a file.
///
/// # Errors
/// [`ForeignError`], also where it belongs neither to `user`, nor to this process's user, nor to root.
pub fn open_memory(path: &Path, name: &str, bytes: u64, user: u32) -> Result<File, ForeignError> {
    let needed = format!("a file in memory named {name}, of {bytes} bytes");
    let other = |found: String| {
        let needed = needed.clone();
        Err(ForeignError::Other { path: path.to_owned(), found, needed })
    };
    if !is_descriptor(path) {
        return other(String::from("has another form than /proc/PID/fd/N"));
    }
    // The link of a descriptor is followed to its file by the kernel, without a look at any name.
    let file = opened(path, OFlags::PATH)?;
    let stat = regular(path, &file, &owners(user))?;
    let io = |what| move |e| ForeignError::Io { path: path.to_owned(), what, source: e };
    let kind = fstatfs(&file).map_err(|e| io("look at the file system of")(e.into()))?.f_type;
    if i128::from(kind) != TMPFS {
        return other(format!("is in a file system of type {kind:#x}"));
    }
    if stat.st_nlink != 0 {
        return other(format!("has {} names in a directory", stat.st_nlink));
    }
    let own = through(&file);
    let called = fs::read_link(&own).map_err(io("read the name of"))?;
    if called != Path::new(&format!("/memfd:{name} (deleted)")) {
        return other(format!("is called {}", called.display()));
    }
    if u64::try_from(stat.st_size) != Ok(bytes) {
        return other(format!("has {} bytes", stat.st_size));
    }
    reopened(path, &own)
}

/// Opens a regular file of a directory into which other processes write, for reading: not through a symbolic
/// link, and with no other name than this.
///
/// # Errors
/// [`ForeignError`], also where it belongs neither to `user`, nor to this process's user, nor to root.
pub fn open_file(path: &Path, user: u32) -> Result<File, ForeignError> {
    let file = opened(path, OFlags::PATH | OFlags::NOFOLLOW)?;
    let stat = regular(path, &file, &owners(user))?;
    if stat.st_nlink != 1 {
        return Err(ForeignError::Other {
            path: path.to_owned(),
            found: format!("has {} names", stat.st_nlink),
            needed: String::from("a file with one name"),
        });
    }
    reopened(path, &through(&file))
}

/// Which users may own a file that is expected to be of this user.
fn owners(user: u32) -> [u32; 3] {
    [user, geteuid().as_raw(), 0]
}

/// Whether this is `/proc/PID/fd/N` with two numbers.
fn is_descriptor(path: &Path) -> bool {
    let number =
        |text: &str| (1..=10).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    path.to_str()
        .and_then(|path| path.strip_prefix("/proc/")?.split_once("/fd/"))
        .is_some_and(|(pid, fd)| number(pid) && number(fd))
}

fn opened(path: &Path, flags: OFlags) -> Result<OwnedFd, ForeignError> {
    open(path, flags | OFlags::CLOEXEC, Mode::empty()).map_err(|e| ForeignError::Io {
        path: path.to_owned(),
        what: "open",
        source: e.into(),
    })
}

/// The status of a file, which has to be a regular one of one of these users.
fn regular(path: &Path, file: &OwnedFd, owners: &[u32]) -> Result<Stat, ForeignError> {
    let stat = fstat(file).map_err(|e| ForeignError::Io {
        path: path.to_owned(),
        what: "look at",
        source: e.into(),
    })?;
    let other = |found: String, needed: String| ForeignError::Other {
        path: path.to_owned(),
        found,
        needed,
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        let found = match kind {
            FileType::Fifo => "is a FIFO",
            FileType::Symlink => "is a symbolic link",
            FileType::Directory => "is a directory",
            FileType::CharacterDevice | FileType::BlockDevice => "is a device",
            FileType::Socket => "is a socket",
            _ => "is of an unknown type",
        };
        return Err(other(found.to_owned(), String::from("a regular file")));
    }
    if !owners.contains(&stat.st_uid) {
        let needed = format!("a file of one of the users {owners:?}");
        return Err(other(format!("belongs to user {}", stat.st_uid), needed));
    }
    Ok(stat)
}

fn through(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn reopened(path: &Path, own: &Path) -> Result<File, ForeignError> {
    // Opening what was checked does not block; a lease that its owner holds would make it.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    open(own, flags, Mode::empty()).map(File::from).map_err(|e| ForeignError::Io {
        path: path.to_owned(),
        what: "read",
        source: e.into(),
    })
}

impl From<ForeignError> for io::Error {
    fn from(e: ForeignError) -> Self {
        match e {
            ForeignError::Io { source, .. } => source,
            e @ ForeignError::Other { .. } => Self::other(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, MemfdFlags, SealFlags, memfd_create, mkfifoat};
    use std::io::Read;
    use std::os::unix::fs::{chown, symlink};

    const NAME: &str = "evenly-test";

    fn me() -> u32 {
        geteuid().as_raw()
    }

    fn path_of(file: &impl AsRawFd) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()))
    }

    fn memory(name: &str, bytes: u64) -> File {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        let file = File::from(file);
        file.set_len(bytes).unwrap();
        file
    }

    /// Why it is not opened as a memory file of 100 bytes.
    #[track_caller]
    fn refused(path: &Path, why: &str) {
        let said = open_memory(path, NAME, 100, me()).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }

    #[test]
    fn a_file_in_memory_is_opened() {
        let file = memory(NAME, 100);
        let mut bytes = Vec::new();
        open_memory(&path_of(&file), NAME, 100, me()).unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 100]);
        // Sealed, too.
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW;
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        open_memory(&path_of(&file), NAME, 100, me()).unwrap();
    }

    #[test]
    fn other_files_of_descriptors_are_not_opened() {
        refused(&path_of(&memory("other", 100)), "is called /memfd:other (deleted)");
        for bytes in [0, 99, 101, 1 << 40] {
            refused(&path_of(&memory(NAME, bytes)), &format!("has {bytes} bytes"));
        }
        let dir = tempfile::tempdir().unwrap();
        refused(&path_of(&File::open(dir.path()).unwrap()), "is a directory");
        refused(&path_of(&File::open("/dev/null").unwrap()), "is a device");
        // Named as such a file is.
        let at = dir.path().join(format!("memfd:{NAME}"));
        mkfifoat(CWD, &at, Mode::RWXU).unwrap();
        refused(&path_of(&opened(&at, OFlags::PATH).unwrap()), "is a FIFO");
        symlink("/etc/passwd", dir.path().join("link")).unwrap();
        let link = opened(&dir.path().join("link"), OFlags::PATH | OFlags::NOFOLLOW).unwrap();
        refused(&path_of(&link), "is a symbolic link");
        refused(&path_of(&File::open("/proc/self/stat").unwrap()), "file system of type 0x9fa0");
        let shared = tempfile::tempdir_in("/dev/shm").unwrap();
        let plain = shared.path().join("plain");
        let file = File::create(&plain).unwrap();
        file.set_len(100).unwrap();
        refused(&path_of(&file), "has 1 names in a directory");
        fs::remove_file(&plain).unwrap();
        refused(&path_of(&file), "is called /dev/shm/");
    }

    #[test]
    fn a_path_of_another_form_is_not_looked_at() {
        let file = memory(NAME, 100);
        let (pid, fd) = (std::process::id(), file.as_raw_fd());
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink(path_of(&file), &link).unwrap();
        let long = format!("/proc/{pid}/fd/{:0>5000}", fd);
        for path in [
            link.to_str().unwrap(),
            &format!("/proc/self/fd/{fd}"),
            &format!("/proc/{pid}/root/proc/{pid}/fd/{fd}"),
            &format!("/proc/{pid}/fd/../fd/{fd}"),
            &format!("/proc/{pid}/fd/{fd}/"),
            &format!("/proc/{pid}/task/{pid}/fd/{fd}"),
            &format!("proc/{pid}/fd/{fd}"),
            "/proc//fd/",
            "",
            &long,
        ] {
            refused(Path::new(path), "has another form than /proc/PID/fd/N");
        }
        let closed = open_memory(Path::new("/proc/1/fd/4294967295"), NAME, 100, me());
        assert!(closed.unwrap_err().to_string().starts_with("cannot open /proc/1/fd/"));
    }

    #[test]
    fn what_belongs_to_another_user_is_not_opened() {
        let file = memory(NAME, 100);
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("plain");
        fs::write(&plain, "x").unwrap();
        let said = |path: &Path, owners: &[u32]| {
            let file = opened(path, OFlags::PATH).unwrap();
            regular(path, &file, owners).map(drop).map_err(|e| e.to_string())
        };
        assert_eq!(said(&plain, &[me()]), Ok(()));
        let other = said(&plain, &[me() + 1, me() + 2]).unwrap_err();
        assert!(other.contains(&format!("belongs to user {}; needed", me())), "{other}");
        if me() != 0 {
            return evenly_testing::skip("root", "only root can give files to other users");
        }
        chown(&plain, Some(12_345), None).unwrap();
        rustix::fs::fchown(&file, Some(rustix::fs::Uid::from_raw(12_345)), None).unwrap();
        refused(&path_of(&file), "belongs to user 12345");
        assert!(open_file(&plain, 0).unwrap_err().to_string().contains("belongs to user 12345"));
        open_memory(&path_of(&file), NAME, 100, 12_345).unwrap();
        open_file(&plain, 12_345).unwrap();
    }

    #[test]
    fn of_a_directory_plain_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let said = |name: &str| open_file(&at(name), me()).unwrap_err().to_string();
        fs::write(at("plain"), "text").unwrap();
        let mut text = String::new();
        open_file(&at("plain"), me()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        mkfifoat(CWD, at("fifo"), Mode::RWXU).unwrap();
        symlink(at("plain"), at("link")).unwrap();
        fs::create_dir(at("directory")).unwrap();
        for (name, why) in [
            ("fifo", "is a FIFO"),
            ("link", "is a symbolic link"),
            ("directory", "is a directory"),
            ("none", "cannot open"),
        ] {
            assert!(said(name).contains(why), "{}", said(name));
        }
        fs::hard_link(at("plain"), at("second")).unwrap();
        assert!(said("second").contains("has 2 names; needed is a file with one name"));
        assert!(open_file(Path::new("/dev/null"), 0).unwrap_err().to_string().contains("device"));
    }
}

//! Where journals are.
//!
//! A journal is needed when evenly and its guardian are dead, so it should outlive the session in
//! which evenly was started, and it must be found by `evenly restore` from any other session of the
//! same user. Invariant: journals are written to, and believed in, only in directories that belong to
//! the effective user and that no other user can write to.
//!
//! `EVENLY_STATE_DIR` names the one directory that is used. Without it, a new journal goes to the first
//! of these places that can be had:
//!
//! | user | place | why not that one alone |
//! |---|---|---|
//! | root | `/run/evenly` | a container may have no `/run` that can be written |
//! | others | `$XDG_STATE_HOME/evenly`, else `~/.local/state/evenly` | the home may be on a network |
//! | all | `/tmp/evenly-UID` | anybody can make a directory of that name first |
//! | others | `$XDG_RUNTIME_DIR/evenly`, `/run/user/UID/evenly` | it goes away at logout |
//! | all | `/tmp/evenly-UID-XXXXXX`, with a name that cannot be guessed | only the last choice |
//!
//! A home counts only on a local file system. On a network file system a page of the mapped journal can
//! become unreadable, which kills any process that touches it, and several hosts would share the directory. Process
//! ids mean nothing on another host, whose journals look as if they were of another boot; so those are
//! removed only from local file systems ([`is_local`]).
//!
//! A search for journals covers all of these places: environments differ, and places that were
//! preferred once may hold journals still.

use super::JournalError;
use rustix::fs::statfs;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The directory in which a user's new journals are made, and others in which there may be some.
#[derive(Debug, Clone)]
pub struct StateDir {
    path: PathBuf,
    /// None where the user has named the directory: there is no other then.
    places: Option<Places>,
}

impl StateDir {
    /// The directory for a new journal. It is made where it is missing.
    ///
    /// # Errors
    /// [`JournalError`] where none can be written and trusted; that of `$EVENLY_STATE_DIR` where
    /// it is set, because a user who names a directory means that one.
    pub fn find() -> Result<Self, JournalError> {
        match named() {
            Some(dir) => Self::at(&dir),
            None => Places::of_this_user().try_each(Ok),
        }
    }

    /// The same for who only looks for journals: of the places that are not named none is made.
    ///
    /// # Errors
    /// As [`StateDir::at`] where `$EVENLY_STATE_DIR` is set.
    pub fn look() -> Result<Self, JournalError> {
        match named() {
            Some(dir) => Self::at(&dir),
            None => Ok(Places::of_this_user().seen()),
        }
    }

    /// Makes a relative `$EVENLY_STATE_DIR` absolute for this process and all that it starts: an
    /// evenly inside a program that has changed its working directory must find the same journals.
    /// To be called first of all; it does nothing once there are several threads.
    pub fn settle() {
        let Some(dir) = named() else { return };
        let alone = fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1);
        if alone
            && dir.is_relative()
            && let Ok(absolute) = std::path::absolute(&dir)
        {
            // SAFETY: this is the only thread, so no other reads or writes the environment.
            unsafe { std::env::set_var("EVENLY_STATE_DIR", absolute) };
        }
    }

    /// A directory of the caller's choice. It is made, with mode 0700, where it is missing.
    ///
    /// # Errors
    /// [`JournalError`] where it cannot be made, is a symbolic link, belongs to another user, or
    /// can be written by others: their files would decide what evenly does to threads.
    pub fn at(path: &Path) -> Result<Self, JournalError> {
        let path = std::path::absolute(path).map_err(|source| JournalError::Io {
            path: path.to_owned(),
            what: "find the directory",
            source,
        })?;
        make(&path)?;
        Ok(Self { path, places: None })
    }

    /// Does this with the first directory with which it can be done: with the one that the user named, or
    /// else with each place in order of preference.
    ///
    /// # Errors
    /// Why it could not be done with the last of them.
    pub(super) fn try_each<T>(
        &self,
        mut attempt: impl FnMut(Self) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        match &self.places {
            None => make(&self.path).and_then(|()| attempt(self.clone())),
            Some(places) => places.try_each(attempt),
        }
    }

    /// Where new journals are made: an absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All directories in which there may be journals, this one first.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        let others = self.places.iter().flat_map(Places::all).filter(|p| *p != self.path);
        std::iter::once(self.path.clone()).chain(others).collect()
    }

    /// Paths of all journals in it, in order, and of those in other places of this user.
    ///
    /// # Errors
    /// [`JournalError`] where a directory of this user cannot be read, or can be written by others, so that
    /// what is in it must not be believed.
    pub fn journals(&self) -> Result<Vec<PathBuf>, JournalError> {
        let named = self.places.is_none();
        let mut paths = Vec::new();
        for place in self.places() {
            if !named && !is_ours(&place)? {
                continue;
            }
            let entries = match fs::read_dir(&place) {
                // Removed this moment.
                Err(e) if !named && e.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(|source| JournalError::Io {
                    path: place.clone(),
                    what: "list the directory",
                    source,
                })?,
            };
            let from = paths.len();
            paths.extend(
                entries
                    .filter_map(|e| Some(e.ok()?.path()))
                    .filter(|p| p.extension().is_some_and(|x| x == "journal")),
            );
            paths[from..].sort();
        }
        Ok(paths)
    }
}

/// What the user named.
fn named() -> Option<PathBuf> {
    std::env::var_os("EVENLY_STATE_DIR").filter(|d| !d.is_empty()).map(PathBuf::from)
}

/// Makes a directory where it is missing, and looks whether it can be trusted.
fn make(path: &Path) -> Result<(), JournalError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .or_else(|e| if e.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(e) })
        .map_err(|source| JournalError::Io {
            path: path.to_owned(),
            what: "make the directory",
            source,
        })?;
    check(path)
}

/// Whether a directory belongs to the effective user, and to no other that can write it.
fn check(path: &Path) -> Result<(), JournalError> {
    let uid = rustix::process::geteuid().as_raw();
    let found = |found| JournalError::Directory { path: path.to_owned(), found, uid };
    // Not followed: in /tmp anybody could have put a link there.
    let meta = fs::symlink_metadata(path).map_err(|source| JournalError::Io {
        path: path.to_owned(),
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
        return Err(found(format!("others can write it, its mode is {:o}", meta.mode() & 0o7777)));
    }
    Ok(())
}

/// Whether a place is a directory of this user. One of another user's, or none, is not.
///
/// # Errors
/// [`JournalError::Directory`] where it is, and can be written by others: it cannot be passed over in
/// silence, because journals may be in it.
fn is_ours(place: &Path) -> Result<bool, JournalError> {
    let uid = rustix::process::geteuid().as_raw();
    match fs::symlink_metadata(place) {
        Ok(meta) if meta.is_dir() && meta.uid() == uid => check(place).map(|()| true),
        _ => Ok(false),
    }
}

/// Magic numbers (statfs(2)) of file systems that belong to one host. What is not listed counts as
/// shared with others.
const LOCAL: [u64; 8] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
    0x0102_1994, // tmpfs
    0xF2F5_2010, // f2fs
    0x2FC1_2FC1, // zfs
    0xCA45_1A4E, // bcachefs
    0x794C_7630, // overlayfs
];

/// Whether a path, or the nearest directory above it that exists, is on a file system of this host alone.
#[must_use]
pub(crate) fn is_local(path: &Path) -> bool {
    let nearest = path.ancestors().find_map(|p| statfs(p).ok());
    // The kernel's type is signed on some machines, and as wide as a word.
    nearest.is_some_and(|fs| LOCAL.contains(&(fs.f_type as u64 & 0xFFFF_FFFF)))
}

/// The places of a user's journals, but not one that the user names.
#[derive(Debug, Clone)]
struct Places {
    uid: u32,
    /// Made with all that is missing above them, where this belongs to the user.
    home: Option<PathBuf>,
    /// Where others have made the directory above.
    runtime: Vec<PathBuf>,
    /// Where anybody can make directories, which others cannot remove or rename.
    tmp: PathBuf,
    /// Directories of this user in it whose names could not be guessed.
    random: Vec<PathBuf>,
}

impl Places {
    fn of_this_user() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self::new(uid, |name| std::env::var_os(name).map(PathBuf::from), Path::new("/"))
    }

    /// With these variables, below this root of a file system.
    fn new(uid: u32, variable: impl Fn(&str) -> Option<PathBuf>, root: &Path) -> Self {
        let absolute = |name: &str| variable(name).filter(|dir| dir.is_absolute());
        // Root's variables may be those of the user who became root.
        let (home, runtime) = if uid == 0 {
            (None, vec![root.join("run/evenly")])
        } else {
            let state = absolute("XDG_STATE_HOME")
                .or_else(|| absolute("HOME").map(|home| home.join(".local/state")));
            let runtime = absolute("XDG_RUNTIME_DIR").into_iter();
            let runtime = runtime.chain([root.join(format!("run/user/{uid}"))]);
            (state.map(|dir| dir.join("evenly")), runtime.map(|dir| dir.join("evenly")).collect())
        };
        let mut places = Self { uid, home, runtime, tmp: root.join("tmp"), random: Vec::new() };
        places.random = places.find_random();
        places
    }

    fn dir(&self, path: PathBuf) -> StateDir {
        StateDir { path, places: Some(self.clone()) }
    }

    /// The most preferred one that exists, or else that would be made first.
    fn seen(&self) -> StateDir {
        let all = self.all();
        let seen = all.iter().find(|path| check(path).is_ok()).or(all.first());
        self.dir(seen.cloned().unwrap_or_else(|| self.in_tmp()))
    }

    fn in_tmp(&self) -> PathBuf {
        self.tmp.join(format!("evenly-{}", self.uid))
    }

    /// What the names of directories begin with that no other user can make first.
    fn random_prefix(&self) -> String {
        format!("evenly-{}-", self.uid)
    }

    /// Directories of this user with such names.
    fn find_random(&self) -> Vec<PathBuf> {
        let prefix = self.random_prefix();
        let entries = fs::read_dir(&self.tmp).into_iter().flatten().flatten();
        let mut found: Vec<PathBuf> = entries
            .filter(|e| e.file_name().to_string_lossy().starts_with(&prefix))
            .map(|e| e.path())
            .filter(|path| check(path).is_ok())
            .collect();
        found.sort();
        found
    }

    /// All that have a fixed name, in order of preference.
    fn fixed(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = self.home.iter().cloned().chain([self.in_tmp()]).collect();
        let at = if self.uid == 0 { 0 } else { all.len() };
        all.splice(at..at, self.runtime.iter().cloned());
        all
    }

    /// All, in order of preference.
    fn all(&self) -> Vec<PathBuf> {
        self.fixed().into_iter().chain(self.random.iter().cloned()).collect()
    }

    /// Does this with the first place with which it can be done, as [`StateDir::try_each`] says.
    fn try_each<T>(
        &self,
        mut attempt: impl FnMut(StateDir) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        for path in self.fixed().into_iter().filter(|path| self.may_be_made(path)) {
            match make(&path).and_then(|()| attempt(self.dir(path))) {
                // Not made twice: somewhere else it would be another journal of the same process.
                Err(e) if !matches!(e, JournalError::Exists { .. }) => {}
                done => return done,
            }
        }
        self.make_random().and_then(|path| attempt(self.dir(path)))
    }

    fn may_be_made(&self, path: &Path) -> bool {
        if self.home.as_deref() != Some(path) {
            return path.parent().is_some_and(Path::is_dir);
        }
        // HOME may be another user's, and does not exist for some.
        let nearest = path.ancestors().find_map(|p| fs::metadata(p).ok());
        let own = rustix::process::geteuid().as_raw();
        nearest.is_some_and(|meta| meta.uid() == own) && is_local(path)
    }

    fn make_random(&self) -> Result<PathBuf, JournalError> {
        if let Some(found) = self.find_random().into_iter().next() {
            return Ok(found);
        }
        let made = tempfile::Builder::new()
            .prefix(&self.random_prefix())
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(&self.tmp);
        made.map(tempfile::TempDir::keep).map_err(|source| JournalError::Io {
            path: self.in_tmp(),
            what: "make a directory beside it",
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::chown;

    const NOBODY: u32 = 65_534;

    /// The places of a user with this number whose only place is below this root: the files are those of
    /// who runs the test.
    fn without_home(root: &Path) -> Places {
        Places::new(1234, |_| None, root)
    }

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("tmp")).unwrap();
        root
    }

    #[test]
    fn what_outlives_the_session_is_preferred() {
        let of = |uid, variables: &[(&str, &str)]| {
            let variable = |name: &str| {
                variables.iter().find(|(n, _)| *n == name).map(|(_, dir)| PathBuf::from(dir))
            };
            let fixed = Places::new(uid, variable, Path::new("/none")).fixed();
            fixed.iter().map(|p| p.display().to_string()).collect::<Vec<_>>()
        };
        let home = ("HOME", "/home/a");
        assert_eq!(
            of(7, &[home, ("XDG_RUNTIME_DIR", "/r")]),
            [
                "/home/a/.local/state/evenly",
                "/none/tmp/evenly-7",
                "/r/evenly",
                "/none/run/user/7/evenly"
            ]
        );
        assert_eq!(of(7, &[home, ("XDG_STATE_HOME", "/s")])[0], "/s/evenly");
        // A relative one is none, as the specification of these variables says.
        assert_eq!(of(7, &[home, ("XDG_STATE_HOME", "s")])[0], "/home/a/.local/state/evenly");
        // Root's variables may be another user's.
        assert_eq!(of(0, &[home]), ["/none/run/evenly", "/none/tmp/evenly-0"]);
    }

    #[test]
    fn a_home_that_hosts_may_share_is_passed_over() {
        assert!(!is_local(Path::new("/proc/nothing/there")));
        let root = root();
        let places =
            Places::new(1234, |n| (n == "HOME").then(|| PathBuf::from("/proc/self")), root.path());
        let made = places.try_each(Ok).unwrap();
        assert_eq!(made.path(), root.path().join("tmp/evenly-1234"));
    }

    /// Whichever user has taken the name, the next place is used, found again, and looked into.
    fn falls_back(root: &Path) {
        let taken = root.join("tmp/evenly-1234");
        let made = without_home(root).try_each(Ok).unwrap();
        assert!(made.path() != taken && check(made.path()).is_ok(), "{made:?}");
        let name = made.path().file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("evenly-1234-") && name.len() > 15, "{name}");
        fs::write(made.path().join("1-1.journal"), "").unwrap();
        let again = without_home(root).try_each(Ok).unwrap();
        assert_eq!(again.path(), made.path());
        let seen = without_home(root).seen();
        assert_eq!(seen.journals().unwrap(), [made.path().join("1-1.journal")]);
        assert_eq!(fs::metadata(made.path()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_file_in_place_of_the_directory() {
        let root = root();
        fs::write(root.path().join("tmp/evenly-1234"), "").unwrap();
        falls_back(root.path());
    }

    #[test]
    fn a_link_in_place_of_the_directory() {
        let root = root();
        std::os::unix::fs::symlink("/etc", root.path().join("tmp/evenly-1234")).unwrap();
        falls_back(root.path());
    }

    #[test]
    fn a_directory_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            return evenly_testing::skip("other-user", "no file can be given to another user");
        }
        let root = root();
        for name in ["evenly-1234", "evenly-1234-guessed"] {
            let theirs = root.path().join("tmp").join(name);
            fs::create_dir(&theirs).unwrap();
            // What stands in it must not be believed.
            fs::write(theirs.join("2-2.journal"), "").unwrap();
            chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        falls_back(root.path());
    }

    #[test]
    fn journals_where_others_could_write_are_no_reason_to_be_silent() {
        let root = root();
        let made = without_home(root.path()).try_each(Ok).unwrap();
        assert_eq!(made.journals().unwrap().len(), 0);
        fs::set_permissions(made.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let e = without_home(root.path()).seen().journals().unwrap_err().to_string();
        assert!(e.contains("others can write it"), "{e}");
        // A new one goes elsewhere.
        assert!(without_home(root.path()).try_each(Ok).is_ok_and(|d| d.path() != made.path()));
    }

    #[test]
    fn who_only_looks_makes_nothing() {
        let root = root();
        let seen = without_home(root.path()).seen();
        assert_eq!(seen.path(), root.path().join("tmp/evenly-1234"));
        assert_eq!(seen.journals().unwrap().len(), 0);
        assert_eq!(fs::read_dir(root.path().join("tmp")).unwrap().count(), 0);
    }

    #[test]
    fn what_fails_in_one_place_is_tried_in_the_next() {
        let root = root();
        let first = root.path().join("tmp/evenly-1234");
        let full = |dir: StateDir| {
            if dir.path() != first {
                return Ok(dir);
            }
            let path = dir.path().to_owned();
            Err(JournalError::Io {
                path,
                what: "make it",
                source: io::ErrorKind::StorageFull.into(),
            })
        };
        assert!(without_home(root.path()).try_each(full).is_ok());
        // But not what is there already: it would be made twice.
        let twice = |dir: StateDir| -> Result<(), _> {
            Err(JournalError::Exists { path: dir.path().to_owned() })
        };
        let e = without_home(root.path()).try_each(twice).unwrap_err();
        assert!(matches!(&e, JournalError::Exists { path } if *path == first), "{e}");
    }
}

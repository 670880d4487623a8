//! The waiting probe, loaded into a program: kept as a file, named to the loader, and what the
//! loader would not load it into.
//!
//! Invariant: it is named to no loader that would end the program, or complain, because of it.

use crate::mpi::{Flavour, Used, found};
use crate::{ProbeError, cache};
use object::Endianness;
use object::elf::{DF_1_PIE, DT_FLAGS_1, ET_DYN, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, ReadRef};
use rustix::fs::StatVfsMountFlags;
use rustix::process::{getegid, geteuid};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The library for programs without MPI.
const PLAIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/waiting.so"));
/// That by which threads that spin hand over their CPU.
const HANDOVER: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/handover.so"));
/// That for programs with MPI, of either kind.
const MPI: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/waiting-mpi.so"));
/// That for programs with MPICH: it has the calls of MPI-4 with large counts, too.
const MPI_LARGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/waiting-mpi-large.so"));
/// The loader that it was built for.
const LOADER: &str = if cfg!(target_arch = "aarch64") {
    "/lib/ld-linux-aarch64.so.1"
} else {
    "/lib64/ld-linux-x86-64.so.2"
};

/// Why a program would run without the probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unseen {
    /// It has no loader.
    Static,
    /// It runs with other rights than the user who starts it, so the loader ignores LD_PRELOAD.
    Privileged(&'static str),
    /// It is for another kind of processor than the probe.
    Other,
    /// It has the loader of another C library.
    Loader(PathBuf),
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => f.write_str("it is linked statically; link it dynamically to be seen"),
            Self::Privileged(what) => {
                write!(f, "it {what}, and such a program takes no libraries from others")
            }
            Self::Other => f.write_str("it is not a program for 64-bit processors of this kind"),
            Self::Loader(loader) => {
                write!(f, "its loader is {}, and the probe is for {LOADER}", loader.display())
            }
        }
    }
}

impl Unseen {
    /// Whether the loader complains, or ends the program, when LD_PRELOAD names the probe.
    #[must_use]
    pub const fn harms(&self) -> bool {
        matches!(self, Self::Other | Self::Loader(_))
    }

    /// Of each program among the words of a command into which the probe is not loaded, with the word: the
    /// program may stand behind others that start it (`mpirun`, `env`, `sh -c`). Empty where it is loaded into
    /// all, as far as is known.
    #[must_use]
    pub fn of(command: &[OsString]) -> Vec<(OsString, Self)> {
        let mut all: Vec<(OsString, Self)> = Vec::new();
        for (word, program) in programs(command) {
            if !all.iter().any(|(known, _)| *known == word)
                && let Some(why) = Self::of_file(&program)
            {
                all.push((word, why));
            }
        }
        all
    }

    fn of_file(program: &Path) -> Option<Self> {
        let mut start = [0; 256];
        let mut file = File::open(program).ok()?;
        let read = file.read(&mut start).ok()?;
        if let Some(interpreter) = start[..read].strip_prefix(b"#!") {
            // The kernel gives scripts no other rights. One more step, as the kernel allows few.
            let line = interpreter.split(|&b| b == b'\n').next()?;
            let name = line.trim_ascii().split(|b| b.is_ascii_whitespace()).next()?;
            let interpreter = PathBuf::from(OsString::from_vec(name.to_vec()));
            return if interpreter == program { None } else { Self::of_program(&interpreter) };
        }
        Self::of_program(program)
    }

    fn of_program(program: &Path) -> Option<Self> {
        let file = File::open(program).ok()?;
        let metadata = file.metadata().ok()?;
        let unseen = Self::of_elf(&ReadCache::new(file))?;
        if unseen != Seen::Loaded {
            return unseen.into();
        }
        let mode = metadata.mode();
        if gives_no_rights(program) {
            return None;
        }
        if mode & 0o4000 != 0 && metadata.uid() != geteuid().as_raw() {
            Some(Self::Privileged("runs as its owner (setuid)"))
        } else if mode & 0o2010 == 0o2010 && metadata.gid() != getegid().as_raw() {
            Some(Self::Privileged("runs as its group (setgid)"))
        } else if !geteuid().is_root()
            && rustix::fs::getxattr(program, "security.capability", &mut [0u8; 64]).is_ok()
        {
            Some(Self::Privileged("has capabilities of its own"))
        } else {
            None
        }
    }

    /// By what the program's file holds; None where it is none.
    fn of_elf<'d>(file: impl ReadRef<'d>) -> Option<Seen> {
        let start = file.read_bytes_at(0, 5).ok()?;
        if !start.starts_with(b"\x7fELF") {
            return None;
        }
        let Ok(elf) = FileHeader64::<Endianness>::parse(file) else {
            return Some(Seen::Not(Self::Other));
        };
        let endian = elf.endian().ok()?;
        let headers = elf.program_headers(endian, file).ok()?;
        let interpreter = headers.iter().find(|h| h.p_type(endian) == PT_INTERP);
        if interpreter.is_none() && is_library(elf, endian, file) {
            return None;
        }
        let mine = if cfg!(target_arch = "aarch64") {
            object::elf::EM_AARCH64
        } else {
            object::elf::EM_X86_64
        };
        if elf.e_machine(endian) != mine {
            return Some(Seen::Not(Self::Other));
        }
        let Some(header) = interpreter else {
            return Some(Seen::Not(Self::Static));
        };
        let name = header.data(endian, file).ok()?;
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        if name == LOADER.as_bytes() {
            return Some(Seen::Loaded);
        }
        Some(Seen::Not(Self::Loader(PathBuf::from(OsStr::from_bytes(name)))))
    }
}

/// Whether a file without an interpreter is a shared object, or a loader. What distinguishes a static program
/// that can be loaded anywhere is a flag.
fn is_library<'d>(
    elf: &FileHeader64<Endianness>,
    endian: Endianness,
    file: impl ReadRef<'d>,
) -> bool {
    let is_pie = || -> Option<bool> {
        let headers = elf.program_headers(endian, file).ok()?;
        let entries = headers.iter().find_map(|h| h.dynamic(endian, file).ok().flatten())?;
        let mut flags = entries.iter().filter(|d| d.tag32(endian) == Some(DT_FLAGS_1));
        Some(flags.any(|d| d.val32(endian).is_some_and(|val| val & DF_1_PIE != 0)))
    };
    elf.e_type(endian) == ET_DYN && is_pie() == Some(false)
}

/// Programs that start the one which is named behind them.
const STARTERS: [&str; 31] = [
    "bash",
    "catchsegv",
    "chrt",
    "command",
    "dash",
    "doas",
    "env",
    "evenly",
    "exec",
    "flock",
    "gdb",
    "ionice",
    "ksh",
    "ltrace",
    "nice",
    "nohup",
    "numactl",
    "perf",
    "prlimit",
    "setarch",
    "setsid",
    "sh",
    "srun",
    "stdbuf",
    "strace",
    "sudo",
    "taskset",
    "time",
    "timeout",
    "valgrind",
    "zsh",
];
/// The same of MPI; their names may go on, as mpirun.openmpi.
const LAUNCHERS: [&str; 4] = ["mpirun", "mpiexec", "orterun", "prterun"];
/// Shells, of which a word behind `-c` is a script.
const SHELLS: [&str; 5] = ["bash", "dash", "ksh", "sh", "zsh"];

/// The words of a command that are programs which it starts, with their files: the first one, those behind it
/// while only programs stand before them that start others, and whatever is named with its directory.
pub(crate) fn programs(command: &[OsString]) -> Vec<(OsString, PathBuf)> {
    let mut all = Vec::new();
    let (mut before, mut seeks, mut script) = (None, true, false);
    for word in command {
        let bytes = word.as_bytes();
        if std::mem::take(&mut script) {
            for part in commands(bytes) {
                all.extend(programs(&part));
            }
            continue;
        }
        if let Some(options) = bytes.strip_prefix(b"-") {
            let of_shell = before.as_deref().is_some_and(|b| SHELLS.contains(&b));
            script = of_shell && !options.starts_with(b"-") && options.ends_with(b"c");
            continue;
        }
        // Launchers of MPI have another command behind this.
        seeks |= bytes == b":";
        if !seeks && !bytes.contains(&b'/') {
            continue;
        }
        let is_program = |p: &PathBuf| p.metadata().is_ok_and(|m| m.mode() & 0o111 != 0);
        let Some(program) = found(word).filter(is_program) else { continue };
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        seeks = STARTERS.contains(&name.as_str()) || LAUNCHERS.iter().any(|l| name.starts_with(l));
        before = Some(name);
        all.push((word.clone(), program));
    }
    all
}

/// The commands of a script, as far as they are plain words.
fn commands(script: &[u8]) -> Vec<Vec<OsString>> {
    let words = |part: &[u8]| -> Vec<OsString> {
        part.split(|b| b.is_ascii_whitespace() || b"\"'`${}<>".contains(b))
            .filter(|word| !word.is_empty())
            .map(|word| OsString::from_vec(word.to_vec()))
            .collect()
    };
    script.split(|b| b";&|()\n".contains(b)).map(words).collect()
}

/// Whether no program gets other rights here: those of this file system, or any that this process starts.
fn gives_no_rights(program: &Path) -> bool {
    let mounted = rustix::fs::statvfs(program);
    mounted.is_ok_and(|m| m.f_flag.contains(StatVfsMountFlags::NOSUID))
        || rustix::thread::no_new_privs().unwrap_or(false)
}

/// What a program's file says.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Loaded,
    Not(Unseen),
}

impl From<Seen> for Option<Unseen> {
    fn from(seen: Seen) -> Self {
        match seen {
            Seen::Loaded => None,
            Seen::Not(why) => Some(why),
        }
    }
}

/// Which calls of MPI the library stands before. One that stands before calls that the program's MPI does not
/// have makes programs believe that there are such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// None: the program has no MPI.
    None,
    /// Those that every MPI has.
    Mpi,
    /// Those with large counts, too.
    Large,
}

impl Calls {
    /// Of an MPI. Open MPI has no calls with large counts before its version 6.
    #[must_use]
    pub const fn of(mpi: Flavour) -> Self {
        match mpi {
            Flavour::OpenMpi => Self::Mpi,
            Flavour::Mpich => Self::Large,
        }
    }

    /// Of the MPI that a command uses, as far as its words show. What is wrong with a launcher is its own
    /// business here.
    fn used(command: &[OsString]) -> Self {
        match Used::of(command) {
            Ok(used) => used.flavour().map_or(Self::None, Self::of),
            Err(_) => Self::Mpi,
        }
    }

    /// The library, and what its name begins with where it is kept.
    const fn library(self) -> (&'static str, &'static [u8]) {
        match self {
            Self::None => ("waiting", PLAIN),
            Self::Mpi => ("waiting-mpi", MPI),
            Self::Large => ("waiting-mpi-large", MPI_LARGE),
        }
    }
}

/// The library for this command, kept in `dir`, or elsewhere where others can write that, or cannot reach it.
///
/// # Errors
/// Where it cannot be kept there, or LD_PRELOAD cannot hold its name.
pub fn library(command: &[OsString], dir: &Path) -> Result<PathBuf, ProbeError> {
    keep(Calls::used(command), cache::reached_by_all(dir))
}

/// The library that hands over CPUs, kept as [`library`] is.
///
/// # Errors
/// As [`library`].
pub fn handover(dir: &Path) -> Result<PathBuf, ProbeError> {
    keep_bytes("handover", HANDOVER, cache::reached_by_all(dir))
}

/// The library with wrappers for these calls of MPI, kept in `dir`, or elsewhere where others can write that.
///
/// # Errors
/// As [`library`].
pub fn keep(calls: Calls, dir: &Path) -> Result<PathBuf, ProbeError> {
    let (name, bytes) = calls.library();
    keep_bytes(name, bytes, dir)
}

fn keep_bytes(name: &str, bytes: &[u8], dir: &Path) -> Result<PathBuf, ProbeError> {
    let dir = cache::directory(dir)?;
    let hex = Sha256::digest(bytes).iter().take(6).fold(String::new(), |mut hex, byte| {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    let file = dir.join(format!("{name}-{hex}.so"));
    // One that was cut short by a full disk, or is another, is written anew.
    if cache::kept(&file).is_some_and(|kept| cache::holds(kept, bytes)) {
        return Ok(file);
    }
    let cannot_keep = |source| ProbeError::Cache { dir: dir.clone(), source };
    let mut made = tempfile::Builder::new()
        .prefix(".probe-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempfile_in(&dir)
        .map_err(cannot_keep)?;
    made.write_all(bytes).map_err(cannot_keep)?;
    made.persist(&file).map_err(|e| cannot_keep(e.error))?;
    Ok(file)
}

/// The value of `LD_PRELOAD` with this library before what is there.
///
/// # Errors
/// Where LD_PRELOAD cannot hold its name.
pub fn preload(library: &Path, before: Option<&OsStr>) -> Result<OsString, ProbeError> {
    if library.as_os_str().as_bytes().iter().any(|b| b" \t\n:".contains(b)) {
        return Err(ProbeError::Name(library.to_owned()));
    }
    let mut value = library.as_os_str().to_owned();
    if let Some(before) = before.filter(|b| !b.is_empty()) {
        value.push(":");
        value.push(before);
    }
    Ok(value)
}

/// A variable with which programs that gcc built with `-fsanitize=address` accept a library that is loaded before theirs:
/// they refuse to run else. `before` is what it would be without; what it says already is kept.
#[must_use]
pub fn for_sanitizers(before: Option<&OsStr>) -> (OsString, OsString) {
    const ORDER: &str = "verify_asan_link_order";
    let mut options = before.unwrap_or_default().to_owned();
    if !options.as_bytes().windows(ORDER.len()).any(|w| w == ORDER.as_bytes()) {
        options.push(if options.is_empty() { "" } else { ":" });
        options.push(format!("{ORDER}=0"));
    }
    ("ASAN_OPTIONS".into(), options)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn options_of_sanitizers_are_kept() {
        let with = |before: Option<&str>| for_sanitizers(before.map(OsStr::new)).1;
        assert_eq!(with(None), "verify_asan_link_order=0");
        assert_eq!(with(Some("halt_on_error=0")), "halt_on_error=0:verify_asan_link_order=0");
        assert_eq!(with(Some("verify_asan_link_order=1")), "verify_asan_link_order=1");
    }

    fn built(dir: &Path, name: &str, options: &[&str]) -> PathBuf {
        let (source, program) = (dir.join("x.c"), dir.join(name));
        fs::write(&source, "int main(void){return 0;}").unwrap();
        let status =
            Command::new("cc").args(options).arg(&source).arg("-o").arg(&program).status().unwrap();
        assert!(status.success());
        program
    }

    #[test]
    fn what_it_is_not_loaded_into() {
        let dir = tempfile::tempdir().unwrap();
        let of = |program: &Path| Unseen::of(&[program.into()]).pop().map(|found| found.1);
        let usual = built(dir.path(), "usual", &[]);
        assert_eq!(of(&usual), None);
        let alone = built(dir.path(), "static", &["-static"]);
        assert_eq!(of(&alone), Some(Unseen::Static));
        let anywhere = built(dir.path(), "static-pie", &["-static-pie"]);
        assert_eq!(of(&anywhere), Some(Unseen::Static));
        let other = built(dir.path(), "other", &["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"]);
        let found = of(&other).unwrap();
        assert_eq!(found, Unseen::Loader("/lib/ld-musl-x86_64.so.1".into()));
        assert!(found.harms() && found.to_string().contains("its loader is /lib/ld-musl"));
        // Of a script it is the interpreter.
        let script = dir.path().join("script");
        fs::write(&script, format!("#! {} -x\n", alone.display())).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(of(&script), Some(Unseen::Static));
        // A number in the header says which kind of processor.
        let mut bytes = fs::read(&usual).unwrap();
        bytes[18] = 8;
        fs::write(&other, &bytes).unwrap();
        assert_eq!(of(&other), Some(Unseen::Other));
        bytes[4] = 1;
        fs::write(&other, &bytes).unwrap();
        assert_eq!(of(&other), Some(Unseen::Other));
        fs::write(&other, "echo\n").unwrap();
        assert_eq!((of(&other), of(dir.path()), Unseen::of(&[])), (None, None, Vec::new()));
    }

    /// What starts the program is seen, but not the program.
    #[test]
    fn programs_behind_others() {
        let dir = tempfile::tempdir().unwrap();
        let (usual, fixed) =
            (built(dir.path(), "usual", &[]), built(dir.path(), "fixed", &["-static"]));
        let (usual, fixed) = (usual.to_str().unwrap(), fixed.to_str().unwrap());
        let of = |words: &[&str]| -> Vec<String> {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let found = Unseen::of(&words).into_iter();
            found
                .map(|(word, why)| {
                    assert_eq!(why, Unseen::Static);
                    word.into_string().unwrap()
                })
                .collect()
        };
        let mpirun = dir.path().join("mpirun.any");
        fs::write(&mpirun, "#!/bin/sh\nexec \"$@\"\n").unwrap();
        fs::set_permissions(&mpirun, fs::Permissions::from_mode(0o755)).unwrap();
        let mpirun = mpirun.to_str().unwrap();
        for command in [
            &[fixed][..],
            &[mpirun, "-n", "2", fixed, "--size", "5"],
            &["env", "-i", "A=b", fixed],
            &["taskset", "-c", "0", "nice", "-n", "3", fixed],
            &[mpirun, "-n", "1", usual, ":", "-n", "1", fixed],
            &["sh", "-c", &format!("cd /tmp && A=b exec {fixed} --threads 4 >out; echo $?")],
            &["bash", "-ec", &format!("({fixed}&{fixed}); wait")],
        ] {
            assert_eq!(of(command), [fixed], "{command:?}");
        }
        for command in [
            &[usual][..],
            &[mpirun, "-n", "2", usual],
            &["sh", "-c", "echo fixed"],
            &["sh", "-c"],
            &["sh", "--c"],
        ] {
            assert!(of(command).is_empty(), "{command:?}");
        }
        // What is no program, and words of programs that start no others.
        let data = dir.path().join("data");
        fs::write(&data, fs::read(fixed).unwrap()).unwrap();
        assert!(of(&[usual, data.to_str().unwrap()]).is_empty());
        let library = built(dir.path(), "library.so", &["-shared", "-fPIC"]);
        assert!(of(&[usual, library.to_str().unwrap()]).is_empty());
        assert!(of(&[LOADER, usual]).is_empty());
        let bare: Vec<OsString> = [usual, "sh", "true"].iter().map(OsString::from).collect();
        let names: Vec<OsString> = programs(&bare).into_iter().map(|p| p.0).collect();
        assert_eq!(names, [usual]);
    }

    #[test]
    fn rights_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let program = built(dir.path(), "program", &[]);
        let set = |mode| fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        set(0o4755);
        // One's own gives no other rights.
        assert_eq!(Unseen::of_file(&program), None);
        if !geteuid().is_root() || gives_no_rights(&program) {
            let why =
                "root has to give a program rights, and its file system and this process to let it";
            return evenly_testing::skip("setuid", why);
        }
        std::os::unix::fs::chown(&program, Some(12345), Some(12346)).unwrap();
        // Giving it away has taken the bits.
        assert_eq!(Unseen::of_file(&program), None);
        set(0o4755);
        let found = Unseen::of_file(&program).unwrap();
        assert_eq!(found, Unseen::Privileged("runs as its owner (setuid)"));
        assert!(!found.harms() && found.to_string().contains("takes no libraries"));
        set(0o2755);
        let found = Unseen::of_file(&program).unwrap();
        assert_eq!(found, Unseen::Privileged("runs as its group (setgid)"));
        set(0o2745);
        assert_eq!(Unseen::of_file(&program), None);
    }

    #[test]
    fn it_is_kept_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("a/b");
        let plain = keep(Calls::None, &cache).unwrap();
        assert_eq!(fs::read(&plain).unwrap(), PLAIN);
        assert_eq!(keep(Calls::None, &cache).unwrap(), plain);
        let mpi = keep(Calls::Mpi, &cache).unwrap();
        assert!(mpi != plain && fs::read(&mpi).unwrap() == MPI);
        let large = keep(Calls::Large, &cache).unwrap();
        assert!(large != mpi && fs::read(&large).unwrap() == MPI_LARGE);
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 3);
        fs::write(&plain, &PLAIN[..100]).unwrap();
        keep(Calls::None, &cache).unwrap();
        assert_eq!(fs::read(&plain).unwrap(), PLAIN);
        assert_eq!(preload(&plain, None).unwrap(), plain.as_os_str());
        let both = preload(Path::new("/p.so"), Some(OsStr::new("/x.so /y.so"))).unwrap();
        assert_eq!(both, "/p.so:/x.so /y.so");
        assert!(preload(Path::new("/a b.so"), None).is_err());
    }

    #[test]
    fn one_that_somebody_else_has_put_there_is_not_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let plain = keep(Calls::None, dir.path()).unwrap();
        // As long, and with the same name.
        let mut planted = PLAIN.to_vec();
        planted[PLAIN.len() / 2] ^= 1;
        fs::write(&plain, &planted).unwrap();
        assert_eq!(keep(Calls::None, dir.path()).unwrap(), plain);
        assert_eq!(fs::read(&plain).unwrap(), PLAIN);
        // With the right bytes for now.
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o777)).unwrap();
        keep(Calls::None, dir.path()).unwrap();
        assert_eq!(fs::metadata(&plain).unwrap().mode() & 0o022, 0);
        // A link to one that can be changed later.
        let theirs = dir.path().join("theirs");
        fs::rename(&plain, &theirs).unwrap();
        std::os::unix::fs::symlink(&theirs, &plain).unwrap();
        keep(Calls::None, dir.path()).unwrap();
        assert!(fs::symlink_metadata(&plain).unwrap().is_file());
    }
}

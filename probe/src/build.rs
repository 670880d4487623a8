//! What evenly has written in C for MPI, built by the compiler of an MPI and kept for the next time.

use crate::mpi::{Flavour, Used, found};
use crate::{ProbeError, cache};
use sha2::{Digest, Sha256};
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A part that is written in C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The C source, as the compiler reads it from its standard input.
    pub source: &'static str,
    /// How it is compiled.
    flags: &'static [&'static str],
    /// What its name begins with where it is kept.
    prefix: &'static str,
    /// What it ends with.
    suffix: &'static str,
}

/// The library that counts what an MPI program sends: it has no reference to the MPI library, so that
/// it can be loaded into anything.
pub const PROBE: Part = Part {
    // What it includes comes first, and the calls last, as nothing else is there to include.
    source: concat!(
        "#define EVENLY_MPI_CALLS_FOLLOW\n",
        include_str!("../c/messages.h"),
        include_str!("../c/clock.h"),
        include_str!("../c/next.h"),
        include_str!("../c/shared.h"),
        include_str!("../c/mpi_library.h"),
        include_str!("../c/mpi_time.h"),
        include_str!("../c/mpi_members.h"),
        include_str!("../c/mpi_counts.h"),
        include_str!("../c/mpi_profile.h"),
        include_str!("../c/words.h"),
        include_str!("../c/mpi_wrap.h"),
        include_str!("../c/mpi.c"),
        include_str!("../c/mpi_calls.h")
    ),
    flags: &["-std=gnu11", "-O2", "-Wall", "-Wextra", "-fPIC", "-shared", "-Wl,--as-needed"],
    prefix: "",
    suffix: ".so",
};

/// The program that measures how long messages take between hosts.
pub const PING_PONG: Part = Part {
    source: include_str!("../c/pingpong.c"),
    flags: &["-std=gnu11", "-O2", "-Wall", "-Wextra"],
    prefix: "pingpong-",
    suffix: "",
};

/// What a compiler is asked to find out which MPI it is for.
const QUESTION: &str = "#include <mpi.h>
#if defined(OPEN_MPI)
evenly_openmpi OMPI_MAJOR_VERSION OMPI_MINOR_VERSION OMPI_RELEASE_VERSION
#elif defined(MPICH_VERSION)
evenly_mpich MPICH_VERSION
#elif defined(I_MPI_VERSION)
evenly_mpich I_MPI_VERSION
#else
evenly_other
#endif
";

/// The MPI and its version, of what a compiler answers to [`QUESTION`].
pub(crate) fn answer(text: &str) -> Option<(Flavour, String)> {
    let (name, version) =
        text.lines().find_map(|line| line.trim().strip_prefix("evenly_"))?.split_once(' ')?;
    let flavour = match name {
        "openmpi" => Flavour::OpenMpi,
        "mpich" => Flavour::Mpich,
        _ => return None,
    };
    Some((flavour, version.trim().trim_matches('"').replace(' ', ".")))
}

/// A compiler of an MPI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiler {
    /// How it is called.
    pub path: PathBuf,
    /// The MPI that it compiles for.
    pub flavour: Flavour,
    /// The version of that.
    pub version: String,
}

impl Compiler {
    /// The compiler for a command: the one that is named, or one of the MPI that the command uses, first
    /// beside its launcher, then by PATH.
    ///
    /// # Errors
    /// Where there is none, or the one that is named is of another MPI.
    pub fn of(used: &Used, named: Option<&OsStr>) -> Result<Self, ProbeError> {
        let wanted = used.flavour();
        if let Some(name) = named {
            let refused =
                |what| ProbeError::NoMpi { name: name.to_string_lossy().into_owned(), what };
            let compiler = Self::ask(Path::new(name)).map_err(refused)?;
            return match wanted {
                Some(flavour) if flavour != compiler.flavour => Err(refused(format!(
                    "it is of {}, and the program uses {flavour}",
                    compiler.flavour
                ))),
                _ => Ok(compiler),
            };
        }
        let names: Vec<String> = match wanted {
            Some(flavour) => vec![format!("mpicc.{}", flavour.suffix()), String::from("mpicc")],
            None => vec![String::from("mpicc")],
        };
        let beside = used.beside.iter().flat_map(|dir| names.iter().map(|n| dir.join(n)));
        let by_path = names.iter().filter_map(|n| found(OsStr::new(n)));
        let mut broken = None;
        for path in beside.filter(|path| path.is_file()).chain(by_path) {
            match Self::ask(&path) {
                Ok(compiler) if wanted.is_none_or(|w| w == compiler.flavour) => {
                    return Ok(compiler);
                }
                Ok(_) => {}
                Err(what) => broken = Some((path, what)),
            }
        }
        if let Some((path, what)) = broken {
            return Err(ProbeError::Build { compiler: path.display().to_string(), what });
        }
        Err(ProbeError::NoCompiler {
            mpi: wanted.map_or_else(|| String::from("an MPI"), |flavour| flavour.to_string()),
            tried: names.join(", "),
            package: wanted.unwrap_or(Flavour::OpenMpi).package(),
        })
    }

    /// Asks a compiler which MPI it is for; what is wrong with it otherwise.
    fn ask(path: &Path) -> Result<Self, String> {
        let mut command = Command::new(path);
        command.args(["-E", "-P", "-x", "c", "-"]);
        let output = fed(&mut command, QUESTION).map_err(|e| format!("it cannot be run: {e}"))?;
        if !output.status.success() {
            return Err(first_line(&output));
        }
        let answered = answer(&String::from_utf8_lossy(&output.stdout));
        let (flavour, version) =
            answered.ok_or_else(|| String::from("it knows neither of them"))?;
        Ok(Self { path: path.to_owned(), flavour, version })
    }

    /// The name under which a part is kept: MPI, version, and a number that is another for another
    /// source, compiler or way to compile.
    fn file(&self, part: &Part) -> String {
        let mut digest = Sha256::new();
        // A name may stand for another compiler tomorrow.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        for text in [part.source, &part.flags.join(" "), &path.to_string_lossy()] {
            digest.update(text.as_bytes());
            digest.update([0]);
        }
        let hex = digest.finalize().iter().take(6).fold(String::new(), |mut hex, byte| {
            // Writing to a string cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let version: String = self.version.chars().map(plain).collect();
        let Part { prefix, suffix, .. } = part;
        format!("{prefix}{}-{version}-{hex}{suffix}", self.flavour.suffix())
    }
}

/// A part that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Where the built part is kept.
    pub file: PathBuf,
    /// Whether it was built just now.
    pub new: bool,
}

/// A part for this compiler's MPI, from `dir`, or from elsewhere where others can write that; it is built where it
/// is not there.
///
/// # Errors
/// Where it cannot be built, or not be kept.
pub fn build(part: &Part, compiler: &Compiler, dir: &Path) -> Result<Built, ProbeError> {
    let dir = cache::directory(dir)?;
    let file = dir.join(compiler.file(part));
    // Its content is the compiler's, but no other user can have written it.
    if cache::kept(&file).is_some() {
        return Ok(Built { file, new: false });
    }
    let cannot_keep = |source| ProbeError::Cache { dir: dir.clone(), source };
    let made = tempfile::Builder::new()
        .prefix(".probe-")
        .suffix(part.suffix)
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempfile_in(&dir)
        .map_err(cannot_keep)?
        .into_temp_path();
    let mut command = Command::new(&compiler.path);
    command.args(part.flags).args([OsString::from("-o"), made.as_os_str().to_owned()]);
    command.args(["-x", "c", "-", "-pthread", "-ldl"]);
    let failed =
        |what: String| ProbeError::Build { compiler: compiler.path.display().to_string(), what };
    let output = fed(&mut command, part.source).map_err(|e| failed(e.to_string()))?;
    if !output.status.success() {
        return Err(failed(first_line(&output)));
    }
    made.persist(&file).map_err(|e| cannot_keep(e.error))?;
    Ok(Built { file, new: true })
}

/// Runs a command with this text on its standard input.
fn fed(command: &mut Command, text: &str) -> io::Result<Output> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Messages that can be searched for.
        .env("LC_ALL", "C")
        .spawn()?;
    // One that ends before it has read all of it says why on standard error.
    let written = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(text.as_bytes()));
    let output = child.wait_with_output()?;
    match written {
        Err(e) if output.status.success() => Err(e),
        _ => Ok(output),
    }
}

/// The first line of what a compiler said, or how it ended.
fn first_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = || text.lines().map(str::trim).filter(|l| !l.is_empty());
    let line = lines().find(|l| l.contains("error")).or_else(|| lines().next());
    line.map_or_else(|| output.status.to_string(), str::to_owned)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A compiler that is a script; it says what it was asked to.
    fn script(dir: &Path, name: &str, body: &str) -> PathBuf {
        let path = dir.join(name);
        evenly_testing::script(&path, &format!("#!/bin/sh\n{body}\n"));
        path
    }

    /// Answers as mpicc does; what is built is whatever was asked for.
    fn mpicc(dir: &Path, name: &str, answer: &str) -> PathBuf {
        let body = format!(
            "cat >{}/source; [ \"$1\" = -E ] && {{ printf '%s\\n' 'int x;' '{answer}'; exit; }}
             while [ $# -gt 0 ]; do [ \"$1\" = -o ] && echo built >>\"$2\"; shift; done",
            dir.display()
        );
        script(dir, name, &body)
    }

    fn used(flavour: Option<Flavour>, beside: &Path) -> Used {
        Used { program: None, launcher: flavour, beside: Some(beside.to_owned()) }
    }

    #[test]
    fn the_compiler_of_the_mpi_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        mpicc(dir.path(), "mpicc", "evenly_openmpi 4 1 4");
        mpicc(dir.path(), "mpicc.mpich", "evenly_mpich \"4.0.2\"");
        for (flavour, name, version) in
            [(Flavour::OpenMpi, "mpicc", "4.1.4"), (Flavour::Mpich, "mpicc.mpich", "4.0.2")]
        {
            let found = Compiler::of(&used(Some(flavour), dir.path()), None).unwrap();
            let path = dir.path().join(name);
            assert_eq!(found, Compiler { path, flavour, version: version.to_owned() });
        }
        let mpich = dir.path().join("mpicc.mpich");
        let named = |flavour| Compiler::of(&used(flavour, dir.path()), Some(mpich.as_os_str()));
        assert_eq!(named(None).unwrap().flavour, Flavour::Mpich);
        let error = named(Some(Flavour::OpenMpi)).unwrap_err().to_string();
        assert!(error.contains("it is of MPICH, and the program uses Open MPI"), "{error}");
    }

    #[test]
    fn what_is_no_compiler_of_an_mpi() {
        let dir = tempfile::tempdir().unwrap();
        let none = Used::default();
        for (body, said) in [
            ("cat >/dev/null; echo 'x.c:1: fatal error: no mpi.h' >&2; exit 1", "no mpi.h"),
            ("cat >/dev/null; echo evenly_other", "it knows neither of them"),
            ("exit 3", "exit status: 3"),
        ] {
            let path = script(dir.path(), "cc", body);
            let error = Compiler::of(&none, Some(path.as_os_str())).unwrap_err().to_string();
            assert!(error.contains(said) && error.lines().count() == 1, "{error}");
        }
        let error = Compiler::of(&none, Some(OsStr::new("/no/mpicc"))).unwrap_err().to_string();
        assert!(error.contains("/no/mpicc: it cannot be run: No such file"), "{error}");
    }

    #[test]
    fn a_probe_is_built_once() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("a/b");
        let path = mpicc(dir.path(), "mpicc", "evenly_openmpi 4 1 4");
        let compiler = Compiler::of(&Used::default(), Some(path.as_os_str())).unwrap();
        let first = build(&PROBE, &compiler, &cache).unwrap();
        assert!(first.new && first.file.starts_with(&cache));
        assert!(first.file.file_name().unwrap().to_str().unwrap().starts_with("openmpi-4.1.4-"));
        assert_eq!(fs::read_to_string(dir.path().join("source")).unwrap(), PROBE.source);
        assert_eq!(
            build(&PROBE, &compiler, &cache).unwrap(),
            Built { new: false, ..first.clone() }
        );
        // Nothing else is left there.
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(&first.file).unwrap(), "built\n");
        let other = build(&PING_PONG, &compiler, &cache).unwrap();
        assert!(other.new && other.file != first.file);
        assert_eq!(fs::read_to_string(dir.path().join("source")).unwrap(), PING_PONG.source);
        let newer = Compiler { version: "5.0.1".to_owned(), ..compiler };
        assert_ne!(newer.file(&PROBE), first.file.file_name().unwrap().to_str().unwrap());
    }

    /// A library that was built, and what builds it again.
    fn built_in(dir: &Path) -> (Built, impl Fn() -> Built) {
        let cache = dir.join("cache");
        let path = mpicc(dir, "mpicc", "evenly_openmpi 4 1 4");
        let compiler = Compiler::of(&Used::default(), Some(path.as_os_str())).unwrap();
        let again = move || build(&PROBE, &compiler, &cache).unwrap();
        (again(), again)
    }

    fn plant(at: &Path, mode: u32) {
        fs::write(at, "planted").unwrap();
        fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn one_that_others_can_write_is_built_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (first, again) = built_in(dir.path());
        plant(&first.file, 0o775);
        assert_eq!(again(), first);
        assert_eq!(fs::read_to_string(&first.file).unwrap(), "built\n");
    }

    #[test]
    fn one_that_belongs_to_another_user_is_built_anew() {
        if !rustix::process::geteuid().is_root() {
            return evenly_testing::skip("root", "only root can give files to other users");
        }
        let dir = tempfile::tempdir().unwrap();
        let (first, again) = built_in(dir.path());
        plant(&first.file, 0o755);
        std::os::unix::fs::chown(&first.file, Some(12_345), None).unwrap();
        assert!(again().new);
        assert_eq!(fs::read_to_string(&first.file).unwrap(), "built\n");
    }

    #[test]
    fn one_that_fails_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "mpicc", "cat >/dev/null; echo 'ld: error: no' >&2; exit 1");
        let compiler = Compiler { path, flavour: Flavour::Mpich, version: "4".to_owned() };
        let cache = dir.path().join("cache");
        let error = build(&PROBE, &compiler, &cache).unwrap_err().to_string();
        assert!(error.ends_with("cannot build the MPI probe: ld: error: no"), "{error}");
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    }
}

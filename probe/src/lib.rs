//! The MPI probe, which `evenly map --profile` loads into a program (`probe/c/mpi.c`): which MPI the
//! program uses ([`mod@mpi`]), the probe built for it and kept ([`build`]), and the environment in which
//! the program has to be started ([`Loaded`]). In the same way `evenly topology --network` has its
//! ping-pong between hosts (`probe/c/pingpong.c`). `evenly run --probe on` loads the probe, too, and reads while
//! the program runs what it counts ([`messages`]).
//!
//! The other probe publishes who computes and who waits while a program runs (`probe/c/waiting.c`): it is built
//! with evenly, as it needs to know no MPI; [`load`] loads it into a program, [`waiting`] makes and reads the mapping into which it writes.
//!
//! Invariants: what is in the cache was built from this very source by that very compiler; a file there
//! is replaced as a whole or not at all, and only the user and root can write it; nothing is started here but compilers and `LAUNCHER --version`.
//! The crate prints nothing.

#![deny(unsafe_code)]

pub mod binding;
pub mod build;
mod cache;
pub mod late;
#[cfg(test)]
mod layout;
pub mod load;
pub mod messages;
pub mod mpi;
mod shared;
pub mod waiting;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

/// What is found out of the MPI of programs, launchers and compilers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// The MPI that a program's file is linked against.
    pub by_file: Option<mpi::Flavour>,
    /// The MPI whose launcher gives such a version.
    pub by_launcher: Option<mpi::Flavour>,
    /// The MPI and its version, by the answer of a compiler.
    pub by_compiler: Option<(mpi::Flavour, String)>,
    /// The lines of a mapping, and who is seen in it.
    pub by_mapping: (Option<u32>, Vec<waiting::Observed>),
    /// Ranks that count messages.
    pub by_ranks: Vec<messages::Rank>,
}

/// Reads arbitrary bytes as each of these. For fuzzing: whatever the bytes are, it returns.
#[must_use]
pub fn exercise(bytes: &[u8]) -> Found {
    let text = String::from_utf8_lossy(bytes);
    Found {
        by_file: mpi::linked(bytes),
        by_launcher: mpi::Flavour::of_version(&text),
        by_compiler: build::answer(&text),
        by_mapping: waiting::exercise(bytes),
        by_ranks: messages::exercise(bytes),
    }
}

/// Why a program cannot be profiled.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// Launcher and program do not belong together.
    #[error(
        "'{program}' is linked against {of_program}, and '{launcher}' starts programs of {of_launcher}; \
         start it with the launcher of {of_program}"
    )]
    Mixed {
        /// The name of the program, as it was given.
        program: String,
        /// The MPI that it is linked against.
        of_program: mpi::Flavour,
        /// What should start it.
        launcher: String,
        /// The MPI whose programs the launcher starts.
        of_launcher: mpi::Flavour,
    },
    /// There is no compiler of the MPI.
    #[error(
        "no compiler of {mpi} was found (tried {tried}); it is needed once, to build the probe: \
         apt-get install {package}, or name it with --mpicc"
    )]
    NoCompiler {
        /// The name of the MPI, or "an MPI" where any would do.
        mpi: String,
        /// The names that were tried.
        tried: String,
        /// The Debian package that contains such a compiler.
        package: &'static str,
    },
    /// What was named is no compiler of an MPI that the probe is for.
    #[error("--mpicc {name}: {what}; a compiler of Open MPI or MPICH is needed, such as mpicc")]
    NoMpi {
        /// The name as given.
        name: String,
        /// What is wrong with it.
        what: String,
    },
    /// The probe could not be built.
    #[error("'{compiler}' cannot build the MPI probe: {what}")]
    Build {
        /// The path of the compiler that was run.
        compiler: String,
        /// The first line of what it said.
        what: String,
    },
    /// Where the probe is kept cannot be used.
    #[error("cannot keep the probe in {}: {source}", .dir.display())]
    Cache {
        /// The directory in which the probe is to be kept.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The name of the library cannot be put into `LD_PRELOAD`.
    #[error(
        "the probe is kept as {}, and LD_PRELOAD takes no names with spaces or colons; set \
         XDG_CACHE_HOME to a directory without",
        .0.display()
    )]
    Name(PathBuf),
}

/// A command line and variables with which a program runs with the probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The command; Open MPI's launcher has options to pass the variables to other hosts.
    pub command: Vec<OsString>,
    /// Variables to be set.
    pub env: Vec<(OsString, OsString)>,
}

/// How `command` has to be started so that `library` is loaded into each rank and writes into `dir`.
/// `before` is what `LD_PRELOAD` is now.
///
/// # Errors
/// Where the library's name cannot be given.
pub fn loaded(
    command: &[OsString],
    launcher: Option<mpi::Flavour>,
    library: &Path,
    dir: &Path,
    before: Option<&OsStr>,
) -> Result<Loaded, ProbeError> {
    let preload = load::preload(library, before)?;
    let mut command = command.to_vec();
    if launcher == Some(mpi::Flavour::OpenMpi) {
        // It passes on the variables that are named, MPICH's passes on all.
        let words = ["-x", PRELOAD, "-x", DIRECTORY].map(OsString::from);
        command.splice(1..1, words);
    }
    let env = vec![(PRELOAD.into(), preload), (DIRECTORY.into(), dir.as_os_str().to_owned())];
    Ok(Loaded { command, env })
}

/// What makes the loader load a library before all others.
const PRELOAD: &str = "LD_PRELOAD";
/// Where the probe writes to.
const DIRECTORY: &str = "EVENLY_PROFILE_DIR";

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
mod tests {
    use super::*;
    use mpi::Flavour;

    fn words(of: &[&str]) -> Vec<OsString> {
        of.iter().map(OsString::from).collect()
    }

    #[test]
    fn how_it_is_loaded() {
        let command = words(&["mpirun", "-n", "2", "./a"]);
        let (library, dir) = (Path::new("/c/p.so"), Path::new("/d"));
        let found = loaded(&command, Some(Flavour::OpenMpi), library, dir, None).unwrap();
        let told = ["mpirun", "-x", "LD_PRELOAD", "-x", "EVENLY_PROFILE_DIR", "-n", "2", "./a"];
        assert_eq!(found.command, words(&told));
        assert_eq!(
            found.env,
            [("LD_PRELOAD", "/c/p.so"), ("EVENLY_PROFILE_DIR", "/d")]
                .map(|(n, v)| (n.into(), v.into()))
        );
        // What was there before stays.
        let before = Some(OsStr::new("/x.so"));
        let found = loaded(&command, Some(Flavour::Mpich), library, dir, before).unwrap();
        assert_eq!((&found.command, &found.env[0].1), (&command, &"/c/p.so:/x.so".into()));
        let found = loaded(&command, None, library, dir, Some(OsStr::new(""))).unwrap();
        assert_eq!((&found.command, &found.env[0].1), (&command, &"/c/p.so".into()));
        for bad in ["/a b/p.so", "/a:b/p.so"] {
            let error = loaded(&command, None, Path::new(bad), dir, None).unwrap_err();
            assert!(error.to_string().contains("no names with spaces or colons"));
        }
    }
}

//! The MPI probe, which `evenly map --profile` loads into a program (`probe/c/mpi.c`): which MPI the
//! program uses ([`mod@mpi`]), the probe built for it and kept ([`build`]), and the environment in which
//! the program has to be started ([`Loaded`]). In the same way `evenly topology --network` has its
//! ping-pong between hosts (`probe/c/pingpong.c`). `evenly run --probe on` loads the probe, too, and reads while
//! the program runs what it counts ([`messages`]).
//!
//! The other probe publishes who computes and who waits while a program runs (`probe/c/waiting.c`): it is built
//! with evenly, as it needs to know no MPI; [`load`] loads it into a program, [`waiting`] makes and reads the mapping into which it writes.
//! A third library hands over the CPUs of threads that spin (`probe/c/handover.c`); [`handover`] is the table that it shares with evenly.
//! What loops of `libevenly_loops` tell comes through a file of [`loops`].
//!
//! Invariants: what is in the cache was built from this very source by that very compiler; a file there
//! is replaced as a whole or not at all, and only the user and root can write it; nothing is started here but compilers and `LAUNCHER --version`.
//! The crate prints nothing.

#![deny(unsafe_code)]

pub mod binding;
pub mod build;
mod cache;
mod error;
mod flavour;
pub mod handover;
#[cfg(test)]
mod header;
pub mod late;
pub mod layout;
pub mod load;
pub mod loops;
pub mod messages;
pub mod mpi;
mod shared;
pub mod waiting;

pub use error::ProbeError;

use std::ffi::{OsStr, OsString};
use std::path::Path;

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

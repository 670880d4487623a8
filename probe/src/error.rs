//! Why the MPI probe cannot be had.

use crate::flavour::Flavour;
use std::io;
use std::path::PathBuf;

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
        of_program: Flavour,
        /// What should start it.
        launcher: String,
        /// The MPI whose programs the launcher starts.
        of_launcher: Flavour,
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

//! The MPI probe: built when it is needed first, and kept.

use crate::tell;
use anyhow::Context;
use evenly_probe::build::{Built, Compiler, PROBE, build};
use evenly_probe::mpi::{Flavour, Used};
use evenly_topology::cache_dir;
use std::ffi::OsStr;
use std::path::PathBuf;

/// A directory of the cache; what is in it is made when it is needed first.
pub(crate) fn cache_for_probe(part: &str) -> anyhow::Result<PathBuf> {
    cache_dir(part).context(
        "the MPI probe has no place: neither XDG_CACHE_HOME nor HOME is set; set one of them",
    )
}

/// The MPI probe for a program, built if it does not exist yet, which is reported; and which MPI it is for.
pub(crate) fn built_probe(
    used: &Used,
    mpicc: Option<&OsStr>,
    quiet: bool,
) -> anyhow::Result<(Built, Flavour)> {
    let dir = cache_for_probe("probe")?;
    let compiler = Compiler::of(used, mpicc)?;
    let built = build(&PROBE, &compiler, &dir)?;
    if built.new && !quiet {
        tell(&format!(
            "evenly: built the MPI probe for {} {} with {}, into {}",
            compiler.flavour,
            compiler.version,
            compiler.path.display(),
            built.file.display()
        ));
    }
    Ok((built, compiler.flavour))
}

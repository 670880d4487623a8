//! The two MPIs, as Debian has them beside each other, for benchmarks that run programs of both.

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The family of MPI libraries: `--mpi`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MpiArg {
    /// Open MPI
    Openmpi,
    /// MPICH
    Mpich,
}

impl MpiArg {
    /// Its name behind those of its programs.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Openmpi => "openmpi",
            Self::Mpich => "mpich",
        }
    }

    /// Its name in texts.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Openmpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// A program of it.
    pub(crate) fn tool(self, name: &str) -> String {
        format!("{name}.{}", self.name())
    }

    /// Builds a program from sources, the first of which has `main`; their names are those by which they
    /// include each other.
    ///
    /// # Errors
    /// Where its compiler is not there, or fails.
    pub(crate) fn build(self, sources: &[(&str, &str)], program: &Path) -> anyhow::Result<()> {
        let dir = tempfile::tempdir().context("cannot make a directory")?;
        for (name, text) in sources {
            fs::write(dir.path().join(name), text).context("cannot write a source")?;
        }
        let compiler = self.tool("mpicc");
        let compiled = sources.iter().map(|(name, _)| *name).filter(|name| name.ends_with(".c"));
        let status = Command::new(&compiler)
            .args(["-O2", "-std=c11", "-D_GNU_SOURCE", "-o"])
            .arg(program)
            .args(compiled)
            .arg("-lm")
            .current_dir(dir.path())
            .status()
            .with_context(|| format!("cannot start {compiler}; install it with `./dev setup`"))?;
        let name = sources.first().map_or("nothing", |(name, _)| *name);
        anyhow::ensure!(status.success(), "{compiler} cannot build {name}: {status}");
        Ok(())
    }
}

/// The sources of MetBench.
pub(crate) const METBENCH: [(&str, &str); 5] = [
    ("metbench.c", include_str!("../../../workloads/metbench.c")),
    ("common.c", include_str!("../../../workloads/common.c")),
    ("common.h", include_str!("../../../workloads/common.h")),
    ("kernel.c", include_str!("../../../workloads/kernel.c")),
    ("kernel.h", include_str!("../../../workloads/kernel.h")),
];

/// Lets Open MPI's launcher start programs as root, and leaves it to the kernel where they run.
pub(crate) const ENVIRONMENT: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("OMPI_MCA_hwloc_base_binding_policy", "none"),
];

//! The programs that benchmarks run: evenly and the workloads.
//!
//! Invariant: a [`Tools`] names programs that were there when it was made.

use anyhow::Context;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the programs are.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    /// The program `evenly` that is measured.
    pub(crate) evenly: PathBuf,
    workloads: PathBuf,
}

/// What the benchmarks need; the OpenMP programs are looked for when they are used.
pub(crate) const NEEDED: [&str; 3] = ["spmd", "noise", "churn"];
/// What the demo needs.
pub(crate) const DEMO: [&str; 3] = ["spmd", "noise", "omp_spmd-gomp"];

impl Tools {
    /// Finds evenly (beside this program by default) and the workloads that are needed.
    ///
    /// # Errors
    /// Where one is missing, with the command that makes it.
    pub(crate) fn find(
        evenly: Option<&Path>,
        workloads: &Path,
        needed: &[&str],
    ) -> anyhow::Result<Self> {
        let evenly = match evenly {
            Some(path) => path.to_owned(),
            None => std::env::current_exe()
                .context("cannot find this program's own file")?
                .with_file_name("evenly"),
        };
        let evenly = evenly.canonicalize().with_context(|| {
            format!(
                "there is no {}; build it with `cargo build --release -p evenly-cli`, or name it \
                 with --evenly",
                evenly.display()
            )
        })?;
        let tools = Self { evenly, workloads: workloads.to_owned() };
        for name in needed {
            tools.path(name)?;
        }
        Ok(Self { workloads: workloads.canonicalize()?, ..tools })
    }

    /// Tools at these places, in another machine.
    pub(crate) fn at(evenly: &str, workloads: &str) -> Self {
        Self { evenly: evenly.into(), workloads: workloads.into() }
    }

    /// A workload, without a look whether it is there.
    pub(crate) fn workload(&self, name: &str) -> PathBuf {
        self.workloads.join(name)
    }

    /// A workload that is there.
    ///
    /// # Errors
    /// Where it is missing.
    pub(crate) fn path(&self, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.workload(name);
        anyhow::ensure!(
            path.is_file(),
            "there is no {}; build it with `make -C workloads`, or name another directory with \
             --workloads",
            path.display()
        );
        Ok(path)
    }

    /// Iterations of spmd's kernel in one millisecond of a free CPU. It decides how much work the
    /// runs get and nothing else: what the work takes is measured by the runs.
    ///
    /// # Errors
    /// Where spmd does not say.
    pub(crate) fn iterations_per_ms(&self) -> anyhow::Result<u64> {
        let path = self.path("spmd")?;
        let output = Command::new(&path)
            .arg("--calibrate")
            .output()
            .with_context(|| format!("cannot start {}", path.display()))?;
        parse_calibration(&String::from_utf8_lossy(&output.stdout)).with_context(|| {
            format!("{} --calibrate printed no number of iterations", path.display())
        })
    }
}

/// What `spmd --calibrate` prints.
pub(crate) fn parse_calibration(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|n| *n > 0)
}

/// Words of a command as text, for the record.
pub(crate) fn words(argv: &[OsString]) -> Vec<String> {
    argv.iter().map(|a| a.to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration() {
        assert_eq!(parse_calibration("812345\n"), Some(812_345));
        for bad in ["", "0", "-3", "12 iterations"] {
            assert_eq!(parse_calibration(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_error_of_a_missing_program_has_its_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let e = Tools::find(Some(&dir.path().join("evenly")), dir.path(), &DEMO).unwrap_err();
        assert!(e.to_string().contains("cargo build --release -p evenly-cli"), "{e}");
        std::fs::write(dir.path().join("evenly"), "").unwrap();
        let e = Tools::find(Some(&dir.path().join("evenly")), dir.path(), &DEMO).unwrap_err();
        assert!(e.to_string().contains("make -C workloads"), "{e}");
    }
}

//! The commands of what is run in front of others, or beside them: workloads, ranks of MPI, NumPy.
//!
//! Invariant: whatever a command needs was there, or was built, when its [`Ready`] was made.

use crate::args::Programs;
use crate::mpi::{ENVIRONMENT, METBENCH, MpiArg};
use crate::tools::Tools;
use anyhow::Context;
use std::ffi::OsString;
use std::process::{Command, Stdio};

/// The product of matrices again and again, which OpenBLAS computes by as many threads as there are CPUs.
pub(crate) const PRODUCTS: &str = "
import json, sys, time
import numpy
random = numpy.random.default_rng(1)
a, b = random.random((300, 300)), random.random((300, 300)) / 150
a = a @ b
begin = time.perf_counter()
for _ in range(int(sys.argv[1])):
    a = a @ b
print(json.dumps({'makespan_s': time.perf_counter() - begin, 'checksum': '%.9e' % a.sum()}))
";

/// Name of the arm without evenly.
pub(crate) const KERNEL: &str = "kernel";
pub(crate) const SPINNING_RANKS: &[(&str, &str)] = &[("OMPI_MCA_mpi_yield_when_idle", "0")];
pub(crate) const ACTIVE_GOMP: &[(&str, &str)] =
    &[("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", "infinite")];

/// What is run: of the words of the command the first is its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Workload,
    /// `metbench` of this MPI, with ranks in place of threads.
    Ranks(MpiArg),
    /// A script that multiplies as many matrices as the next word says.
    NumPy,
}

/// Words and variables of a command.
pub(crate) struct Words {
    pub(crate) words: Vec<OsString>,
    pub(crate) environment: Vec<(&'static str, &'static str)>,
}

/// Programs that can be started.
pub(crate) struct Ready {
    pub(crate) tools: Tools,
    /// Where programs of MPI are.
    room: tempfile::TempDir,
    /// A Python that has NumPy; none where nobody needs it.
    python: Option<&'static str>,
}

impl Ready {
    /// Finds, or builds, what is needed for these, each with the words of a command. Also what measures work, and what computes
    /// beside others.
    ///
    /// # Errors
    /// Where something is missing, with the command that makes or installs it.
    pub(crate) fn find(
        places: &Programs,
        needed: impl Iterator<Item = (Program, Vec<String>)>,
    ) -> anyhow::Result<Self> {
        let needed: Vec<(Program, Vec<String>)> = needed.collect();
        let workloads = needed.iter().filter(|(program, _)| *program == Program::Workload);
        let workloads = workloads.map(|(_, words)| words[0].as_str());
        let tools =
            places.find(&["spmd", "noise"].into_iter().chain(workloads).collect::<Vec<_>>())?;
        let room = tempfile::tempdir().context("cannot make a directory")?;
        let runs = |program| needed.iter().any(|(p, _)| *p == program);
        for mpi in [MpiArg::Openmpi, MpiArg::Mpich] {
            if runs(Program::Ranks(mpi)) {
                mpi.build(&METBENCH, &room.path().join(mpi.tool("metbench")))?;
            }
        }
        let python = if runs(Program::NumPy) { Some(python_with_numpy()?) } else { None };
        Ok(Self { tools, room, python })
    }

    /// The command of a program with so many threads or ranks, and these words, of which the first is its name.
    ///
    /// # Errors
    /// Where it is none of those that this was made for.
    pub(crate) fn command(
        &self,
        program: Program,
        threads: u32,
        words: &[String],
    ) -> anyhow::Result<Words> {
        let mut argv: Vec<OsString> = Vec::new();
        let mut environment = Vec::new();
        match program {
            Program::Workload => argv.push(self.tools.workload(&words[0]).into()),
            Program::Ranks(mpi) => {
                environment.extend(ENVIRONMENT);
                let ranks = [mpi.tool("mpirun"), "-n".into(), threads.to_string()];
                argv.extend(ranks.map(OsString::from));
                argv.push(self.room.path().join(mpi.tool("metbench")).into());
            }
            Program::NumPy => {
                let python = self.python.context("no python3 with NumPy")?;
                argv.extend([python, "-c", PRODUCTS].map(OsString::from));
            }
        }
        argv.extend(words[1..].iter().map(OsString::from));
        Ok(Words { words: argv, environment })
    }
}

/// A barrier of its own with phases of so many microseconds.
pub(crate) fn spmd(barrier: &str, threads: u32, phases: u64, iterations: u64) -> Vec<String> {
    let words = format!(
        "spmd --threads {threads} --phases {phases} --iters {iterations} --barrier {barrier}"
    );
    words.split(' ').map(str::to_owned).collect()
}

/// A workload in OpenMP, with its runtime: `omp_spmd-gomp`, or `tasks-omp`, whose phases are trees of 2,046 tasks, of which 1,024 compute.
pub(crate) fn openmp(program: &str, threads: u32, phases: u64, iterations: u64) -> Vec<String> {
    let words = format!("{program} --threads {threads} --phases {phases} --iters {iterations}");
    words.split(' ').map(str::to_owned).collect()
}

pub(crate) fn metbench(sync: &str, phases: u64, iterations: u64) -> Vec<String> {
    let words =
        format!("metbench --iterations {phases} --iters {iterations} --loads 1 --sync {sync}");
    words.split(' ').map(str::to_owned).collect()
}

/// Debian's, or the first of the path.
pub(crate) fn python_with_numpy() -> anyhow::Result<&'static str> {
    let has = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import numpy"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = ["/usr/bin/python3", "python3"].into_iter().find(has);
    found.context("no python3 with NumPy: apt-get install python3-numpy")
}

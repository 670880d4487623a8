//! The commands of what is run in front of others, or beside them: workloads, ranks of MPI, NumPy.
//!
//! Invariant: whatever a command needs was there, or was built, when its [`Ready`] was made.

use crate::mpi::{ENVIRONMENT, METBENCH, MpiArg};
use crate::tools::Tools;
use anyhow::Context;
use std::ffi::OsString;
use std::process::{Command, Stdio};

/// The product of matrices again and again, which OpenBLAS computes by as many threads as there are CPUs.
const PRODUCTS: &str = "
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

pub(crate) const SPINNING_RANKS: &[(&str, &str)] = &[("OMPI_MCA_mpi_yield_when_idle", "0")];
pub(crate) const YIELDING_RANKS: &[(&str, &str)] = &[("OMPI_MCA_mpi_yield_when_idle", "1")];
pub(crate) const ACTIVE_GOMP: &[(&str, &str)] =
    &[("OMP_WAIT_POLICY", "active"), ("GOMP_SPINCOUNT", "infinite")];
pub(crate) const ACTIVE_OMP: &[(&str, &str)] =
    &[("KMP_BLOCKTIME", "infinite"), ("KMP_LIBRARY", "turnaround"), ("KMP_USE_YIELD", "0")];

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
    /// Builds, or looks for, what is needed for these.
    ///
    /// # Errors
    /// Where that is missing, with the command that installs it.
    pub(crate) fn new(
        tools: Tools,
        programs: impl Iterator<Item = Program> + Clone,
    ) -> anyhow::Result<Self> {
        let room = tempfile::tempdir().context("cannot make a directory")?;
        let runs = |program| programs.clone().any(|p| p == program);
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

pub(crate) fn openmp(runtime: &str, threads: u32, phases: u64, iterations: u64) -> Vec<String> {
    let words =
        format!("omp_spmd-{runtime} --threads {threads} --phases {phases} --iters {iterations}");
    words.split(' ').map(str::to_owned).collect()
}

/// A pattern of `collapse`; or of `collapse-bare` and `collapse-calls`: the same in loops without `pause`, and in loops
/// without that call a function.
pub(crate) fn pattern(of: [&str; 2], threads: u32, phases: u64, sizes: [u64; 2]) -> Vec<String> {
    let ([program, pattern], [iterations, held]) = (of, sizes);
    let words = format!(
        "{program} --pattern {pattern} --threads {threads} --phases {phases} --iters {iterations} --held {held}"
    );
    words.split(' ').map(str::to_owned).collect()
}

pub(crate) fn metbench(sync: &str, phases: u64, iterations: u64) -> Vec<String> {
    let words =
        format!("metbench --iterations {phases} --iters {iterations} --loads 1 --sync {sync}");
    words.split(' ').map(str::to_owned).collect()
}

/// Debian's, or the first of the path.
fn python_with_numpy() -> anyhow::Result<&'static str> {
    let has = |python: &&str| {
        let mut command = Command::new(python);
        command.args(["-c", "import numpy"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let found = ["/usr/bin/python3", "python3"].into_iter().find(has);
    found.context("no python3 with NumPy: apt-get install python3-numpy")
}

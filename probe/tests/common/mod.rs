//! Programs for tests of the probes: which MPIs are here, and how programs of each are built and started.
#![allow(dead_code, unreachable_pub, reason = "shared by several tests")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub mod watched;

use evenly_probe::load::Calls;
use evenly_probe::mpi::Flavour;
use evenly_testing::is_installed;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Where programs find the headers of the library of which they test a part by itself.
pub const HEADERS: &str = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/c");

/// A program of `tests/programs`, built once by this compiler with these options.
pub fn built(source: &str, compiler: &str, options: &[&str]) -> PathBuf {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let name = format!("{source}-{compiler}{}", options.concat().replace('/', "_"));
    let mut built = BUILT.lock().unwrap();
    built
        .get_or_insert_default()
        .entry(name.clone())
        .or_insert_with(|| {
            let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
            // Other test programs build them, too.
            let part = out.with_file_name(format!("{name}.{}", std::process::id()));
            // Fortran is named with its ending.
            let ending = if source.contains('.') { "" } else { ".c" };
            let input = sources().join(format!("{source}{ending}"));
            let mut command = Command::new(compiler);
            command.args(["-O1", "-g", "-Wall", "-Wextra"]).args(options).arg(input);
            let output = command.args(["-pthread", "-ldl", "-o"]).arg(&part).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            fs::rename(&part, &out).unwrap();
            out
        })
        .clone()
}

pub fn has(compiler: &str) -> bool {
    is_installed(compiler, compiler.strip_prefix("mpicc.").unwrap_or(compiler))
}

/// The MPIs that are installed, as Debian names their programs.
pub fn mpis() -> impl Iterator<Item = &'static str> {
    ["openmpi", "mpich"].into_iter().filter(|mpi| has(&format!("mpicc.{mpi}")))
}

/// A test for each MPI of a function that is given its name; where it is not installed that is a skip.
#[allow(unused_macros, reason = "shared by several tests")]
macro_rules! each_mpi {
    ($($test:ident),+ $(,)?) => {
        $(mod $test {
            #[test]
            #[ignore = "needs MPI: ./dev test --all"]
            fn openmpi() {
                crate::common::with("openmpi", super::$test);
            }

            #[test]
            #[ignore = "needs MPI: ./dev test --all"]
            fn mpich() {
                crate::common::with("mpich", super::$test);
            }
        })+
    };
}

/// Calls the function with the name of the MPI if that is installed.
pub fn with(mpi: &str, test: impl Fn(&str)) {
    if has(&format!("mpicc.{mpi}")) {
        test(mpi);
    }
}

/// A launcher where tests run.
pub fn as_root(command: &mut Command) -> &mut Command {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command.env("OMPI_MCA_mpi_yield_when_idle", "1")
}

/// By the name of an MPI, or of its launcher.
pub fn calls_of(mpi: &str) -> Calls {
    Calls::of(if mpi.ends_with("mpich") { Flavour::Mpich } else { Flavour::OpenMpi })
}

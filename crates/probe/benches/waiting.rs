//! What the probe that tells who waits adds to a call: `cargo bench -p evenly-probe`. The program
//! `tests/programs/cost.c` with the probe and without, in turns; the median of the runs of each.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use evenly_probe::load::{keep, preload};
use evenly_probe::waiting::Mapping;
use std::path::Path;
use std::process::Command;

/// Runs of each.
const RUNS: usize = 9;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/cost.c");
    // What issue and design allow, in ns.
    for (what, compiler, mpi, limit) in [
        ("pthread_barrier_wait", "gcc", false, 50.0),
        ("Open MPI, MPI_Iprobe", "mpicc.openmpi", true, 100.0),
        ("MPICH, MPI_Iprobe", "mpicc.mpich", true, 100.0),
    ] {
        let program = dir.path().join(compiler);
        let mut build = Command::new(compiler);
        build.args(["-O2", "-pthread"]).args(mpi.then_some("-DWITH_MPI"));
        if !build.arg(&source).arg("-o").arg(&program).status().is_ok_and(|s| s.success()) {
            println!("{what}: {compiler} is not here, or cannot build it");
            continue;
        }
        let library = keep(mpi, dir.path()).unwrap();
        let run = |probed: bool| -> f64 {
            let mapping = Mapping::new().unwrap();
            let mut command = Command::new(&program);
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            if probed {
                let (name, value) = mapping.variable();
                command.env(name, value).env("LD_PRELOAD", preload(&library, None).unwrap());
            }
            let output = command.output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
        };
        let (mut plain, mut probed): (Vec<f64>, Vec<f64>) =
            (0..RUNS).map(|_| (run(false), run(true))).unzip();
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[RUNS / 2]
        };
        let (plain, probed) = (median(&mut plain), median(&mut probed));
        println!(
            "{what}: {plain:.1} ns without, {probed:.1} ns with the probe: {:.1} ns added (at most \
             {limit} are allowed)",
            probed - plain
        );
    }
}

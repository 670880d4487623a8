//! What the waiting probe adds to a call: `cargo bench -p evenly-probe`. The program
//! `tests/programs/cost.c` with the probe and without, in turns; the median of the runs of each.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use evenly_probe::load::{Calls, keep, preload};
use evenly_probe::waiting::Mapping;
use std::path::Path;
use std::process::Command;

/// How often each program is run with the probe, and as often without.
const RUNS: usize = 9;

fn main() {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/cost.c");
    let (plain, ranks): (&[&str], &[&str]) = (&[], &["-DWITH_MPI"]);
    let region: &[&str] = &["-fopenmp", "-DWITH_OPENMP"];
    let barrier: &[&str] = &["-fopenmp", "-DBARRIERS"];
    let all: &[&str] = &["-DWITH_MPI", "-DCALL=MPI_Barrier(MPI_COMM_SELF)"];
    let to_self: &[&str] = &[
        "-DWITH_MPI",
        "-DCALL=MPI_Sendrecv(&found,1,MPI_INT,0,1,&all,1,MPI_INT,0,1,MPI_COMM_SELF,MPI_STATUS_IGNORE)",
    ];
    let mut over = 0;
    // What may be added at most, in ns, and the threads of a region. No limit is set for what a region may take
    // anything: it has a beginning and an end, each of which could be a barrier. With two threads both are
    // needed on CPUs of their own, and it is the runtime's own turns that vary most.
    for (what, compiler, options, calls, limit, threads) in [
        ("pthread_barrier_wait", "gcc", plain, Calls::None, Some(50.0), "1"),
        ("Open MPI, MPI_Iprobe", "mpicc.openmpi", ranks, Calls::Mpi, Some(100.0), "1"),
        ("MPICH, MPI_Iprobe", "mpicc.mpich", ranks, Calls::Large, Some(100.0), "1"),
        ("Open MPI, MPI_Barrier", "mpicc.openmpi", all, Calls::Mpi, Some(100.0), "1"),
        ("MPICH, MPI_Barrier", "mpicc.mpich", all, Calls::Large, Some(100.0), "1"),
        ("Open MPI, MPI_Sendrecv", "mpicc.openmpi", to_self, Calls::Mpi, Some(100.0), "1"),
        ("MPICH, MPI_Sendrecv", "mpicc.mpich", to_self, Calls::Large, Some(100.0), "1"),
        ("libgomp, barrier", "gcc", barrier, Calls::None, Some(50.0), "1"),
        ("libomp, barrier", "clang", barrier, Calls::None, Some(50.0), "1"),
        ("libgomp, parallel region of 1 thread", "gcc", region, Calls::None, None, "1"),
        ("libgomp, parallel region of 2 threads", "gcc", region, Calls::None, None, "2"),
        ("libomp, parallel region of 1 thread", "clang", region, Calls::None, None, "1"),
        ("libomp, parallel region of 2 threads", "clang", region, Calls::None, None, "2"),
    ] {
        let program = dir.path().join("cost");
        let mut build = Command::new(compiler);
        build.args(["-O2", "-pthread"]).args(options);
        if !build.arg(&source).arg("-o").arg(&program).status().is_ok_and(|s| s.success()) {
            println!("{what}: {compiler} is not here, or cannot build it");
            continue;
        }
        let library = keep(calls, dir.path()).unwrap();
        let run = |probed: bool| -> f64 {
            let mapping = Mapping::new().unwrap();
            let mut command = Command::new(&program);
            command.arg(threads).env("OMP_WAIT_POLICY", "active");
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
        let allowed =
            limit.map_or_else(String::new, |l: f64| format!(" (at most {l} are allowed)"));
        over += u32::from(limit.is_some_and(|l| probed - plain > l));
        println!(
            "{what}: {plain:.1} ns without, {probed:.1} ns with the probe: {:.1} ns added{allowed}",
            probed - plain
        );
    }
    assert_eq!(over, 0, "calls cost more than they may");
}

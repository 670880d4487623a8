//! The programs: ailing ones with their verdicts, and healthy ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use crate::common::diagnosis::{Patient, patient};
use crate::common::{mpi, workload};
use std::path::{Path, PathBuf};

/// MPI ranks, so many.
fn ranks(
    mpi: mpi::Mpi,
    names: [&'static str; 2],
    ails: &'static str,
    n: u32,
    program: &[&str],
) -> Patient {
    let name = names[usize::from(mpi.name != "mpich")];
    let (launcher, n) = (mpi.tool("mpirun"), n.to_string());
    let mut patient = patient(name, ails, &[&[launcher.as_str(), "-n", &n], program].concat());
    patient.variables = mpi::ENVIRONMENT.map(|(k, v)| (k, v.to_owned())).into();
    patient
}

/// A file that programs write to.
pub(crate) fn scratch() -> PathBuf {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    here.join(format!("doctor-{}", std::process::id()))
}

/// Phases that are shorter than the kernel's turns: threads do not share CPUs within one.
const SHORT: [&str; 4] = ["--phases", "1000", "--iters", "800000"];

pub(crate) fn ailing(limited: Option<&str>) -> Vec<Patient> {
    let (spmd, gomp, omp) = (workload("spmd"), workload("omp_spmd-gomp"), workload("omp_spmd-omp"));
    let phases = ["--phases", "40", "--iters", "8000000"];
    let eight = ["--threads", "8", "--iters", "20000000"];
    let file = format!("of={}", scratch().display());
    // As many writes as there is time for: how long one takes is the disk's affair.
    let writes = format!(
        "timeout 2 dd if=/dev/zero {file} bs=4k count=1000000 oflag=dsync status=none; true"
    );
    let two = format!("{gomp} --threads 2 --phases 40 --iters 8000000");
    let one = format!("{gomp} --threads 1 --phases 40 --iters 8000000");
    let both = format!("taskset -c 0 {spmd} --threads 1 --main-works 1 --iters 200000000");
    let mut all = vec![
        patient(
            "4 threads under taskset -c 0",
            "narrow_mask",
            &[&["taskset", "-c", "0", &spmd, "--threads", "4"], &phases[..]].concat(),
        )
        .mended(),
        patient(
            "2 processes pinned to CPU 0",
            "pinned_together",
            &["sh", "-c", &format!("{both} & {both}; wait")],
        ),
        patient(
            "OpenMP, OMP_PLACES={0}",
            "narrow_mask",
            &[&[gomp.as_str(), "--threads", "2"], &phases[..]].concat(),
        )
        .with("OMP_PLACES", "{0}")
        .mended(),
        // Each binds its first thread to the first place, and knows nothing of the other.
        patient(
            "OpenMP, 2 processes with 1 thread on 2 CPUs, OMP_PROC_BIND=true",
            "pinned_together",
            &["sh", "-c", &format!("{one} & {one}; wait")],
        )
        .with("OMP_PROC_BIND", "true")
        .mended(),
        patient(
            "4 threads on 2 CPUs, barriers with sched_yield",
            "spinning",
            &[
                &[
                    spmd.as_str(),
                    "--threads",
                    "4",
                    "--barrier",
                    "yield",
                    "--imbalance",
                    "0.4,1,1,1.6",
                ],
                &phases[..],
            ]
            .concat(),
        ),
        patient(
            "OpenMP, 4 threads on 2 CPUs, OMP_WAIT_POLICY=active",
            "spinning",
            &[&[omp.as_str(), "--threads", "4"], &phases[..]].concat(),
        )
        .with("OMP_WAIT_POLICY", "active")
        .mended(),
        // It does not see that another process has as many, and spins without end.
        patient(
            "OpenMP (gcc), 2 processes with 2 threads on 2 CPUs, GOMP_SPINCOUNT=infinity",
            "spinning",
            &["sh", "-c", &format!("{two} & {two}; wait")],
        )
        .with("GOMP_SPINCOUNT", "infinity"),
        patient(
            "OpenMP (clang), 4 threads on 2 CPUs, KMP_BLOCKTIME=infinite",
            "spinning",
            &[&[omp.as_str(), "--threads", "4"], &phases[..]].concat(),
        )
        .with("KMP_BLOCKTIME", "infinite"),
        // Without yielding: nobody sees that but the probe.
        patient(
            "OpenMP (clang), 4 threads on 2 CPUs, KMP_LIBRARY=turnaround, KMP_USE_YIELD=0",
            "spinning",
            &[&[omp.as_str(), "--threads", "4"], &phases[..]].concat(),
        )
        .with("KMP_LIBRARY", "turnaround")
        .with("KMP_USE_YIELD", "0"),
        patient(
            "work of 1 and 3",
            "uneven_work",
            &[
                spmd.as_str(),
                "--threads",
                "2",
                "--imbalance",
                "0.5,1.5",
                "--phases",
                "60",
                "--iters",
                "15000000",
            ],
        ),
        patient(
            "work of 1, 1 and 4 on 2 CPUs",
            "uneven_work",
            &[
                spmd.as_str(),
                "--threads",
                "3",
                "--imbalance",
                "0.5,0.5,2",
                "--phases",
                "40",
                "--iters",
                "15000000",
            ],
        ),
        patient(
            "OpenMP, OMP_NUM_THREADS=8 on 2 CPUs",
            "too_many_threads",
            &[&[gomp.as_str()], &phases[..]].concat(),
        )
        .with("OMP_NUM_THREADS", "8")
        .mended(),
        patient("writes that wait for the disk", "blocked_io", &["sh", "-c", &writes]),
        patient(
            "3 threads on 2 CPUs",
            "uneven_division",
            &[&[spmd.as_str(), "--threads", "3"], &SHORT[..]].concat(),
        )
        .by_idle(),
    ];
    if let Some(script) = limited {
        let shell = ["sh", "-c", script, "limited"];
        all.push(patient(
            "8 threads, quota of a fifth of a CPU",
            "quota",
            &[&shell[..], &[&spmd], &eight].concat(),
        ));
        all.push(patient(
            "OpenMP, 2 threads, quota of a fifth of a CPU",
            "quota",
            &[&shell[..], &[&gomp, "--threads", "2"], &phases].concat(),
        ));
    }
    for mpi in mpi::here() {
        let (stencil, metbench) = (mpi.program("stencil"), mpi.program("metbench"));
        let names = ["4 MPI ranks on 2 CPUs (MPICH)", "4 MPI ranks on 2 CPUs (Open MPI)"];
        let work = [stencil.as_str(), "--size", "1200", "--sweeps", "200"];
        all.push(ranks(mpi, names, "mpi_oversubscribed", 4, &work).with(YIELDS, "0"));
        let names =
            ["2 MPI ranks, work of 1 and 4 (MPICH)", "2 MPI ranks, work of 1 and 4 (Open MPI)"];
        let work =
            [metbench.as_str(), "--loads", "1,4", "--iterations", "20", "--iters", "4000000"];
        all.push(ranks(mpi, names, "uneven_work", 2, &work));
    }
    all
}

/// Whether ranks of Open MPI yield while they wait.
const YIELDS: &str = "OMPI_MCA_mpi_yield_when_idle";

pub(crate) fn healthy(limited: Option<&str>) -> Vec<Patient> {
    let (spmd, gomp, omp) = (workload("spmd"), workload("omp_spmd-gomp"), workload("omp_spmd-omp"));
    let phases = ["--phases", "40", "--iters", "10000000"];
    let writes =
        format!("timeout 1 sh -c 'while :; do echo x; done' >{}; true", scratch().display());
    let of = |name, program: &str, options: &[&str]| {
        patient(name, "healthy", &[&[program], options, &phases].concat())
    };
    let mut all = vec![
        of("1 thread", &spmd, &["--threads", "1"]),
        of("2 threads, blocking barriers", &spmd, &["--threads", "2"]),
        of("2 threads, spinning barriers", &spmd, &["--threads", "2", "--barrier", "spin"]),
        of(
            "2 threads, barriers with sched_yield",
            &spmd,
            &["--threads", "2", "--barrier", "yield"],
        ),
        of("4 threads, blocking barriers", &spmd, &["--threads", "4"]),
        of("2 threads, each pinned to a CPU", &spmd, &["--threads", "2", "--pin", "static"]),
        of("OpenMP (gcc), 2 threads", &gomp, &["--threads", "2"]),
        of("OpenMP (clang), 2 threads", &omp, &["--threads", "2"]),
        of("OpenMP, 2 threads, OMP_WAIT_POLICY=active", &omp, &["--threads", "2"])
            .with("OMP_WAIT_POLICY", "active"),
        of("OpenMP, 2 threads, OMP_PROC_BIND=true", &gomp, &["--threads", "2"])
            .with("OMP_PROC_BIND", "true"),
        patient(
            "100 threads that sleep",
            "healthy",
            &[&workload("churn"), "--threads", "100", "--workers", "2", "--duration-s", "1"],
        ),
        patient("a program that sleeps", "healthy", &["sleep", "0.7"]),
        of("OpenMP, OMP_NUM_THREADS=2 on 2 CPUs", &gomp, &[]).with("OMP_NUM_THREADS", "2"),
        of(
            "OpenMP (gcc), 4 threads on 2 CPUs, GOMP_SPINCOUNT=infinity",
            &gomp,
            &["--threads", "4"],
        )
        .with("GOMP_SPINCOUNT", "infinity"),
        of("OpenMP (clang), 2 threads, KMP_LIBRARY=turnaround", &omp, &["--threads", "2"])
            .with("KMP_LIBRARY", "turnaround"),
        patient(
            "1 thread under taskset -c 0",
            "healthy",
            &[&["taskset", "-c", "0", &spmd, "--threads", "1"], &phases[..]].concat(),
        ),
        patient("writes that nobody waits for", "healthy", &["sh", "-c", &writes]),
        patient(
            "4 threads on 2 CPUs",
            "healthy",
            &[&[spmd.as_str(), "--threads", "4"], &SHORT[..]].concat(),
        ),
    ];
    for mpi in mpi::here() {
        let metbench = mpi.program("metbench");
        let work = [metbench.as_str(), "--loads", "1", "--iterations", "20", "--iters", "8000000"];
        let names = ["2 MPI ranks on 2 CPUs (MPICH)", "2 MPI ranks on 2 CPUs (Open MPI)"];
        all.push(ranks(mpi, names, "healthy", 2, &work));
        // MPICH knows no yielding.
        if mpi.name != "mpich" {
            let name = "4 MPI ranks on 2 CPUs that yield (Open MPI)";
            all.push(ranks(mpi, [name; 2], "healthy", 4, &work).with(YIELDS, "1"));
        }
    }
    if let Some(script) = limited {
        let shell = ["sh", "-c", script, "limited", &spmd, "--threads", "2"];
        all.push(patient(
            "2 threads, a quota of 8 CPUs",
            "healthy",
            &[&shell[..], &phases].concat(),
        ));
    }
    all
}

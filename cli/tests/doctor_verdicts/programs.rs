//! The programs, each with the finding that the doctor has to report for it.
//!
//! Invariant: nothing is built or started before its test runs, so that tests can be listed anywhere.

use crate::common::mpi::{MPICH, Mpi, OPEN_MPI};

/// A program, and what the doctor has to find.
pub(crate) struct Program {
    pub(crate) name: String,
    /// The kind of the first finding; None where there is none.
    pub(crate) finding: Option<&'static str>,
    /// Words between blanks. One that starts with `@` names a workload.
    pub(crate) command: &'static str,
    pub(crate) environment: Vec<(&'static str, &'static str)>,
    /// CPU time in us that a control group allows in each 50 ms.
    pub(crate) quota_us: Option<u64>,
    /// The MPI with which it is started, and the number of ranks.
    pub(crate) ranks: Option<(Mpi, u32)>,
    /// Whether the command is a script for `sh`.
    pub(crate) is_script: bool,
    /// Whether the line to paste is run as well, and has to remove the cause.
    pub(crate) pasted: bool,
    /// Whether idle CPUs show the cause: programs that take these CPUs hide it.
    pub(crate) shown_by_idle_cpus: bool,
    /// Whether samples show the cause.
    pub(crate) shown_by_samples: bool,
}

fn program(name: &str, finding: Option<&'static str>, command: &'static str) -> Program {
    Program {
        name: format!("{}::{name}", finding.unwrap_or("no_finding")),
        finding,
        command,
        environment: Vec::new(),
        quota_us: None,
        ranks: None,
        is_script: false,
        pasted: false,
        shown_by_idle_cpus: false,
        shown_by_samples: false,
    }
}

fn found(name: &str, finding: &'static str, command: &'static str) -> Program {
    program(name, Some(finding), command)
}

fn healthy(name: &str, command: &'static str) -> Program {
    program(name, None, command)
}

impl Program {
    fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.environment.push((name, value));
        self
    }

    fn within(self, quota_us: u64) -> Self {
        Self { quota_us: Some(quota_us), ..self }
    }

    fn ranks(self, mpi: Mpi, ranks: u32) -> Self {
        let name = format!("{}_{}", self.name, mpi.name);
        Self { name, ranks: Some((mpi, ranks)), ..self }
    }

    fn script(self) -> Self {
        Self { is_script: true, ..self }
    }

    fn pasted(self) -> Self {
        Self { pasted: true, ..self }
    }

    fn shown_by_idle_cpus(self) -> Self {
        Self { shown_by_idle_cpus: true, ..self }
    }

    fn shown_by_samples(self) -> Self {
        Self { shown_by_samples: true, ..self }
    }
}

/// Whether ranks of Open MPI yield while they wait.
const YIELDS: &str = "OMPI_MCA_mpi_yield_when_idle";

/// All, in the order of the table in `docs/doctor.md`. `--phases 1000` stands for phases that are shorter than
/// the time slices of the kernel: within one, threads do not share a CPU.
pub(crate) fn all() -> Vec<Program> {
    let mut all = with_findings();
    all.extend(without_findings());
    all
}

fn with_findings() -> Vec<Program> {
    let mut all = vec![
        found(
            "four_threads_under_taskset",
            "narrow_mask",
            "taskset -c 0 @spmd --threads 4 --phases 40 --iters 8000000",
        )
        .pasted(),
        found(
            "two_processes_pinned_to_a_cpu",
            "pinned_together",
            "taskset -c 0 @spmd --threads 1 --main-works 1 --iters 200000000 & \
             taskset -c 0 @spmd --threads 1 --main-works 1 --iters 200000000 ; wait",
        )
        .script(),
        found(
            "openmp_with_one_place",
            "narrow_mask",
            "@omp_spmd-gomp --threads 2 --phases 40 --iters 8000000",
        )
        .with("OMP_PLACES", "{0}")
        .pasted(),
        // Each process binds its first thread to the first place, without regard to the other.
        found(
            "openmp_two_bound_processes",
            "pinned_together",
            "@omp_spmd-gomp --threads 1 --phases 40 --iters 8000000 & \
             @omp_spmd-gomp --threads 1 --phases 40 --iters 8000000 ; wait",
        )
        .script()
        .with("OMP_PROC_BIND", "true")
        .pasted(),
        found(
            "four_threads_at_barriers_with_sched_yield",
            "spinning",
            "@spmd --threads 4 --barrier yield --imbalance 0.4,1,1,1.6 --phases 40 --iters 8000000",
        ),
        found(
            "three_threads_at_spinning_barriers_of_their_own",
            "spinning",
            "@spmd --threads 3 --barrier spin --phases 300 --iters 300000",
        )
        .shown_by_samples(),
        found(
            "openmp_with_active_waiting",
            "spinning",
            "@omp_spmd-omp --threads 4 --phases 40 --iters 8000000",
        )
        .with("OMP_WAIT_POLICY", "active")
        .pasted(),
        // Each process assumes that both CPUs are its own, and spins without end.
        found(
            "gcc_openmp_two_processes_with_infinite_spin_count",
            "spinning",
            "@omp_spmd-gomp --threads 2 --phases 40 --iters 8000000 & \
             @omp_spmd-gomp --threads 2 --phases 40 --iters 8000000 ; wait",
        )
        .script()
        .with("GOMP_SPINCOUNT", "infinity"),
        found(
            "clang_openmp_with_infinite_blocktime",
            "spinning",
            "@omp_spmd-omp --threads 4 --phases 40 --iters 8000000",
        )
        .with("KMP_BLOCKTIME", "infinite"),
        // Only the probe sees threads that spin without yielding.
        found(
            "clang_openmp_turnaround_without_yielding",
            "spinning",
            "@omp_spmd-omp --threads 4 --phases 40 --iters 8000000",
        )
        .with("KMP_LIBRARY", "turnaround")
        .with("KMP_USE_YIELD", "0"),
        found(
            "two_threads_with_work_of_1_and_3",
            "uneven_work",
            "@spmd --threads 2 --imbalance 0.5,1.5 --phases 60 --iters 15000000",
        ),
        found(
            "three_threads_with_work_of_1_1_and_4",
            "uneven_work",
            "@spmd --threads 3 --imbalance 0.5,0.5,2 --phases 40 --iters 15000000",
        ),
        found(
            "openmp_with_eight_threads",
            "too_many_threads",
            "@omp_spmd-gomp --phases 40 --iters 8000000",
        )
        .with("OMP_NUM_THREADS", "8")
        .pasted(),
        // As many writes as there is time for: how long one takes depends on the disk.
        found(
            "writes_that_wait_for_the_disk",
            "blocked_io",
            "timeout 2 dd if=/dev/zero of=\"$SCRATCH\" bs=4k count=1000000 oflag=dsync status=none; true",
        )
        .script(),
        found(
            "three_threads",
            "uneven_division",
            "@spmd --threads 3 --phases 1000 --iters 800000",
        )
        .shown_by_idle_cpus(),
        found(
            "eight_threads_with_a_fifth_of_a_cpu",
            "quota",
            "@spmd --threads 8 --iters 20000000",
        )
        .within(10_000),
        found(
            "openmp_with_a_fifth_of_a_cpu",
            "quota",
            "@omp_spmd-gomp --threads 2 --phases 40 --iters 8000000",
        )
        .within(10_000),
    ];
    for mpi in [OPEN_MPI, MPICH] {
        all.push(
            found("four_ranks", "mpi_oversubscribed", "@stencil --size 1200 --sweeps 200")
                .ranks(mpi, 4)
                .with(YIELDS, "0"),
        );
        all.push(
            found(
                "two_ranks_with_work_of_1_and_4",
                "uneven_work",
                "@metbench --loads 1,4 --iterations 20 --iters 4000000",
            )
            .ranks(mpi, 2),
        );
    }
    all
}

fn without_findings() -> Vec<Program> {
    let mut all = vec![
        healthy("one_thread", "@spmd --threads 1 --phases 40 --iters 10000000"),
        healthy(
            "two_threads_at_blocking_barriers",
            "@spmd --threads 2 --phases 40 --iters 10000000",
        ),
        healthy(
            "two_threads_at_spinning_barriers",
            "@spmd --threads 2 --barrier spin --phases 40 --iters 10000000",
        ),
        healthy(
            "two_threads_at_barriers_with_sched_yield",
            "@spmd --threads 2 --barrier yield --phases 40 --iters 10000000",
        ),
        healthy(
            "four_threads_at_blocking_barriers",
            "@spmd --threads 4 --phases 40 --iters 10000000",
        ),
        healthy(
            "two_threads_each_pinned_to_a_cpu",
            "@spmd --threads 2 --pin static --phases 40 --iters 10000000",
        ),
        healthy(
            "gcc_openmp_two_threads",
            "@omp_spmd-gomp --threads 2 --phases 40 --iters 10000000",
        ),
        healthy(
            "clang_openmp_two_threads",
            "@omp_spmd-omp --threads 2 --phases 40 --iters 10000000",
        ),
        healthy(
            "openmp_two_threads_with_active_waiting",
            "@omp_spmd-omp --threads 2 --phases 40 --iters 10000000",
        )
        .with("OMP_WAIT_POLICY", "active"),
        healthy(
            "openmp_two_bound_threads",
            "@omp_spmd-gomp --threads 2 --phases 40 --iters 10000000",
        )
        .with("OMP_PROC_BIND", "true"),
        healthy("a_hundred_threads_that_sleep", "@churn --threads 100 --workers 2 --duration-s 1"),
        healthy("a_program_that_sleeps", "sleep 0.7"),
        healthy("openmp_with_two_threads", "@omp_spmd-gomp --phases 40 --iters 10000000")
            .with("OMP_NUM_THREADS", "2"),
        healthy(
            "gcc_openmp_four_threads_with_infinite_spin_count",
            "@omp_spmd-gomp --threads 4 --phases 40 --iters 10000000",
        )
        .with("GOMP_SPINCOUNT", "infinity"),
        healthy(
            "clang_openmp_two_threads_turnaround",
            "@omp_spmd-omp --threads 2 --phases 40 --iters 10000000",
        )
        .with("KMP_LIBRARY", "turnaround"),
        healthy(
            "one_thread_under_taskset",
            "taskset -c 0 @spmd --threads 1 --phases 40 --iters 10000000",
        ),
        healthy(
            "writes_that_do_not_wait",
            "timeout 1 sh -c 'while :; do echo x; done' >\"$SCRATCH\"; true",
        )
        .script(),
        healthy("four_threads_in_short_phases", "@spmd --threads 4 --phases 1000 --iters 800000"),
        healthy(
            "two_threads_with_a_quota_of_eight_cpus",
            "@spmd --threads 2 --phases 40 --iters 10000000",
        )
        .within(400_000),
    ];
    let metbench = "@metbench --loads 1 --iterations 20 --iters 8000000";
    for mpi in [OPEN_MPI, MPICH] {
        all.push(healthy("two_ranks", metbench).ranks(mpi, 2));
    }
    // MPICH has no setting for it.
    let yielding = healthy("four_ranks_that_yield", metbench).ranks(OPEN_MPI, 4);
    all.push(yielding.with(YIELDS, "1"));
    all
}

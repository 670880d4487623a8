//! The kinds of the museum: how each waits, what it has to do, and beside whom.

use crate::beside::{Beside, Bound};
use crate::commands::{ACTIVE_GOMP, Program, SPINNING_RANKS, metbench, openmp, spmd};
use crate::mpi::MpiArg;

/// One way to wait.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Phases of a run, and how many times as many those of the kernel have less.
    pub(super) phases: u64,
    pub(super) shorter: u64,
    pub(super) bound: Bound,
    /// The words of a command with so many threads and phases, and iterations in a millisecond.
    pub(super) command: fn(u32, u64, u64) -> Vec<String>,
    pub(super) environment: &'static [(&'static str, &'static str)],
    pub(super) threads: &'static [u32],
    /// What takes CPUs from it, except in the arm of two threads.
    pub(super) beside: Beside,
    pub(super) program: Program,
    /// Whether evenly is tried without its library: who waits by `sched_yield`, in calls of MPI, or in loops that call
    /// functions, takes as long then as under the kernel.
    pub(super) outside: bool,
    /// The best setting that there is for it: words, or variables, in place of the usual ones.
    pub(super) tuned: Option<Tuned>,
}

#[derive(Clone, Copy)]
pub(super) enum Tuned {
    Words(&'static str, &'static str),
    Variables(&'static [(&'static str, &'static str)]),
}

/// A pattern of `collapse`; or of `collapse-bare` and `collapse-calls`: the same in loops without `pause`, and in loops
/// without that call a function; or of `collapse-yields`, which calls `sched_yield`.
fn pattern(of: [&str; 2], threads: u32, phases: u64, sizes: [u64; 2]) -> Vec<String> {
    let ([program, pattern], [iterations, held]) = (of, sizes);
    let words = format!(
        "{program} --pattern {pattern} --threads {threads} --phases {phases} --iters {iterations} --held {held}"
    );
    words.split(' ').map(str::to_owned).collect()
}

const YIELDING_RANKS: &[(&str, &str)] = &[("OMPI_MCA_mpi_yield_when_idle", "1")];
const YIELDS: Option<Tuned> = Some(Tuned::Words("spin", "yield"));
const CALLS_YIELD: Option<Tuned> = Some(Tuned::Words("collapse", "collapse-yields"));
const PASSIVE: Option<Tuned> = Some(Tuned::Variables(&[("OMP_WAIT_POLICY", "passive")]));
const ACTIVE_OMP: &[(&str, &str)] =
    &[("KMP_BLOCKTIME", "infinite"), ("KMP_LIBRARY", "turnaround"), ("KMP_USE_YIELD", "0")];

impl Kind {
    /// The words of the best setting that there is for it; the usual ones where that is no matter of words.
    pub(super) fn tuned_words(&self, mut words: Vec<String>) -> Vec<String> {
        if let Some(Tuned::Words(from, to)) = self.tuned {
            words.iter_mut().filter(|w| *w == from).for_each(|w| to.clone_into(w));
        }
        words
    }
}

pub(super) fn kinds() -> Vec<Kind> {
    let kind = |name, what, phases, bound, command| Kind {
        name,
        what,
        phases,
        shorter: 20,
        bound,
        command,
        environment: &[],
        threads: &[3, 4],
        beside: Beside::Nobody,
        program: Program::Workload,
        outside: true,
        tuned: None,
    };
    vec![
        // Where there is nothing to gain, nothing may be lost.
        Kind {
            threads: &[2],
            shorter: 1,
            ..kind(
                "fits-15us",
                "barrier of C11 atomics, 15 us",
                60_000,
                Bound::Phases,
                |n, p, ms| spmd("spin", n, p, ms * 15 / 1_000),
            )
        },
        Kind {
            tuned: YIELDS,
            ..kind(
                "c11-0.2ms",
                "barrier of C11 atomics, 0.2 ms",
                5_000,
                Bound::Phases,
                |n, p, ms| spmd("spin", n, p, ms / 5),
            )
        },
        Kind {
            tuned: YIELDS,
            ..kind(
                "c11-15us",
                "barrier of C11 atomics, 15 us",
                60_000,
                Bound::Phases,
                |n, p, ms| spmd("spin", n, p, ms * 15 / 1000),
            )
        },
        kind(
            "backoff-0.2ms",
            "barrier that backs off, 0.2 ms",
            5_000,
            Bound::Phases,
            |n, p, ms| spmd("backoff", n, p, ms / 5),
        ),
        Kind {
            tuned: YIELDS,
            ..kind("rust-0.2ms", "barrier in Rust, 0.2 ms", 5_000, Bound::Phases, |n, p, ms| {
                let words = ["spin_barrier", &n.to_string(), &p.to_string(), &(ms / 5).to_string()];
                [&words[..], &["spin"]].concat().into_iter().map(str::to_owned).collect()
            })
        },
        Kind {
            outside: false,
            ..kind(
                "yield-15us",
                "barrier with sched_yield, 15 us",
                60_000,
                Bound::Phases,
                |n, p, ms| spmd("yield", n, p, ms * 15 / 1000),
            )
        },
        Kind {
            tuned: CALLS_YIELD,
            ..kind(
                "ticket-50us",
                "ticket lock held for 9 of 63 us",
                20_000,
                Bound::Work,
                |n, p, ms| pattern(["collapse", "ticket"], n, p, [ms * 54 / 1000, ms * 9 / 1000]),
            )
        },
        Kind {
            shorter: 1,
            tuned: CALLS_YIELD,
            ..kind(
                "ttas-50us",
                "test-and-test-and-set, 9 of 63 us",
                20_000,
                Bound::Work,
                |n, p, ms| pattern(["collapse", "ttas"], n, p, [ms * 54 / 1000, ms * 9 / 1000]),
            )
        },
        Kind {
            shorter: 1,
            ..kind(
                "spinlock-50us",
                "pthread_spin_lock, 9 of 63 us",
                20_000,
                Bound::Work,
                |n, p, ms| pattern(["collapse", "spinlock"], n, p, [ms * 54 / 1000, ms * 9 / 1000]),
            )
        },
        kind("ticket-bare", "ticket lock without pause", 20_000, Bound::Work, |n, p, ms| {
            pattern(["collapse-bare", "ticket"], n, p, [ms * 54 / 1000, ms * 9 / 1000])
        }),
        kind("pipeline-bare", "pipeline without pause, 20 us", 60_000, Bound::Work, |n, p, ms| {
            pattern(["collapse-bare", "pipeline"], n, p, [ms * 20 / 1000, 1])
        }),
        Kind {
            outside: false,
            ..kind(
                "ticket-calls",
                "ticket lock, a function looks",
                20_000,
                Bound::Work,
                |n, p, ms| {
                    pattern(["collapse-calls", "ticket"], n, p, [ms * 54 / 1000, ms * 9 / 1000])
                },
            )
        },
        Kind {
            outside: false,
            ..kind(
                "pipeline-calls",
                "pipeline, a function looks",
                60_000,
                Bound::Work,
                |n, p, ms| pattern(["collapse-calls", "pipeline"], n, p, [ms * 20 / 1000, 1]),
            )
        },
        Kind {
            outside: false,
            ..kind("queues-calls", "queues, a function looks", 60_000, Bound::Work, |n, p, ms| {
                pattern(["collapse-calls", "queues"], n, p, [ms * 20 / 1000, 1])
            })
        },
        Kind {
            tuned: CALLS_YIELD,
            ..kind(
                "pipeline-20us",
                "pipeline over flags, 20 us",
                60_000,
                Bound::Work,
                |n, p, ms| pattern(["collapse", "pipeline"], n, p, [ms * 20 / 1000, 1]),
            )
        },
        Kind {
            shorter: 1,
            tuned: CALLS_YIELD,
            ..kind("pool-0.2ms", "pool whose idle workers spin", 5_000, Bound::Fixed, |n, p, ms| {
                pattern(["collapse", "pool"], n, p, [ms * 400 / 64 / 1000, 1])
            })
        },
        Kind {
            environment: ACTIVE_GOMP,
            tuned: PASSIVE,
            ..kind("libgomp-active", "libgomp, active, 0.2 ms", 5_000, Bound::Phases, |n, p, ms| {
                openmp("omp_spmd-gomp", n, p, ms / 5)
            })
        },
        Kind {
            environment: ACTIVE_OMP,
            tuned: Some(Tuned::Variables(&[("KMP_LIBRARY", "throughput")])),
            ..kind("libomp-active", "libomp, active, 0.2 ms", 5_000, Bound::Phases, |n, p, ms| {
                openmp("omp_spmd-omp", n, p, ms / 5)
            })
        },
        // What yields is what has executed a task, and what looks for one does not.
        Kind {
            shorter: 1,
            outside: false,
            ..kind("libomp-tasks-6us", "libomp, tasks of 6 us", 600, Bound::Fixed, |n, p, ms| {
                openmp("tasks-omp", n, p, ms * 6 / 1_000)
            })
        },
        Kind {
            shorter: 1,
            outside: false,
            ..kind(
                "libomp-tasks-0.5us",
                "libomp, tasks of 0.5 us",
                2_000,
                Bound::Fixed,
                |n, p, ms| openmp("tasks-omp", n, p, ms / 2_000),
            )
        },
        // Where there are no more threads than CPUs, these spin whoever else runs.
        Kind {
            threads: &[2, 3],
            shorter: 1,
            environment: &[("GOMP_SPINCOUNT", "infinity")],
            tuned: Some(Tuned::Variables(&[("GOMP_SPINCOUNT", "0")])),
            ..kind(
                "gomp-spincount",
                "GOMP_SPINCOUNT=infinity, 0.2 ms",
                5_000,
                Bound::Phases,
                |n, p, ms| openmp("omp_spmd-gomp", n, p, ms / 5),
            )
        },
        Kind {
            threads: &[2, 3],
            shorter: 1,
            environment: &[("KMP_BLOCKTIME", "infinite")],
            tuned: Some(Tuned::Variables(&[("KMP_BLOCKTIME", "0")])),
            ..kind(
                "kmp-blocktime",
                "KMP_BLOCKTIME=infinite, 0.2 ms",
                5_000,
                Bound::Phases,
                |n, p, ms| openmp("omp_spmd-omp", n, p, ms / 5),
            )
        },
        Kind {
            environment: SPINNING_RANKS,
            program: Program::Ranks(MpiArg::Openmpi),
            tuned: Some(Tuned::Variables(YIELDING_RANKS)),
            ..kind(
                "openmpi-0.2ms",
                "Open MPI, barrier, 0.2 ms",
                5_000,
                Bound::Phases,
                |_, p, ms| metbench("barrier", p, ms / 5),
            )
        },
        Kind {
            program: Program::Ranks(MpiArg::Mpich),
            ..kind("mpich-0.2ms", "MPICH, barrier, 0.2 ms", 5_000, Bound::Phases, |_, p, ms| {
                metbench("barrier", p, ms / 5)
            })
        },
        Kind {
            program: Program::Ranks(MpiArg::Mpich),
            ..kind("mpich-ring", "MPICH, messages, 0.2 ms", 5_000, Bound::Phases, |_, p, ms| {
                metbench("neighbours", p, ms / 5)
            })
        },
        Kind {
            beside: Beside::Hog,
            tuned: YIELDS,
            ..kind("c11-hog", "barrier of C11 atomics, 0.2 ms", 5_000, Bound::Phases, |n, p, ms| {
                spmd("spin", n, p, ms / 5)
            })
        },
        Kind {
            outside: false,
            beside: Beside::Hog,
            ..kind(
                "yield-hog",
                "barrier with sched_yield, 15 us",
                60_000,
                Bound::Phases,
                |n, p, ms| spmd("yield", n, p, ms * 15 / 1000),
            )
        },
        Kind {
            program: Program::NumPy,
            beside: Beside::Hog,
            threads: &[2],
            shorter: 1,
            tuned: Some(Tuned::Variables(&[("OPENBLAS_NUM_THREADS", "1")])),
            ..kind("numpy", "NumPy, OpenBLAS", 2_000, Bound::Fixed, |_, p, _| {
                vec!["python3".into(), p.to_string()]
            })
        },
        Kind {
            beside: Beside::Copy,
            tuned: YIELDS,
            ..kind(
                "c11-copies",
                "barrier of C11 atomics, 0.2 ms",
                5_000,
                Bound::Phases,
                |n, p, ms| spmd("spin", n, p, ms / 5),
            )
        },
        Kind {
            beside: Beside::Quota,
            tuned: YIELDS,
            ..kind(
                "c11-quota",
                "barrier of C11 atomics, 0.2 ms",
                5_000,
                Bound::Phases,
                |n, p, ms| spmd("spin", n, p, ms / 5),
            )
        },
        Kind {
            beside: Beside::Quota,
            shorter: 1,
            environment: ACTIVE_GOMP,
            tuned: PASSIVE,
            ..kind("libgomp-quota", "libgomp, active, 0.2 ms", 5_000, Bound::Phases, |n, p, ms| {
                openmp("omp_spmd-gomp", n, p, ms / 5)
            })
        },
        // Nobody spins, so that nothing may be lost, either.
        Kind {
            shorter: 1,
            outside: false,
            ..kind("block-0.2ms", "blocks, 0.2 ms", 10_000, Bound::Phases, |n, p, ms| {
                spmd("block", n, p, ms / 5)
            })
        },
        Kind {
            shorter: 1,
            outside: false,
            ..kind("block-2ms", "blocks, 2 ms", 1_000, Bound::Phases, |n, p, ms| {
                spmd("block", n, p, ms * 2)
            })
        },
        Kind {
            threads: &[3],
            shorter: 1,
            outside: false,
            ..kind("work-calls", "work that calls functions", 1_000, Bound::Work, |n, p, ms| {
                pattern(["collapse-calls", "ttas"], n, p, [ms * 2, 1])
            })
        },
    ]
}

//! The benchmarks: which program, with how many threads on how many CPUs, beside which neighbours,
//! under which policies. They are data, so that this machine and emulated ones run the same.

use crate::tools::Tools;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// Name of the benchmark of costs, which has no arms ([`crate::cost`]).
pub(crate) const COST: &str = "cost";

/// The program of a benchmark, with its work.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "name")]
pub(crate) enum Program {
    /// POSIX threads with a barrier after each phase. The work is per thread.
    Spmd { phases: u32, phase_ms: f64, barrier: &'static str },
    /// The same work in OpenMP; with the runtime [`SPINS`], libomp whose threads spin at barriers.
    OmpSpmd { runtime: &'static str, phases: u32, phase_ms: f64 },
    /// The same work in OpenMP, each phase a parallel region.
    OmpRegions { runtime: &'static str, phases: u32, phase_ms: f64 },
    /// The EP kernel. The work is shared by the threads.
    Ep { runtime: &'static str, class: &'static str },
    /// Jacobi sweeps. The work is shared by the threads.
    Jacobi { runtime: &'static str, size: u32, sweeps: u32 },
}

/// The runtime of programs whose threads spin at the barriers of libomp, without yielding: there the probe
/// sees them, as it does not at barriers of a program's own.
pub(crate) const SPINS: &str = "omp-spin";
/// What makes them do so, also where there are more threads than CPUs.
const SETTINGS_THAT_SPIN: [&str; 3] =
    ["OMP_WAIT_POLICY=active", "KMP_LIBRARY=turnaround", "KMP_USE_YIELD=0"];

impl Program {
    /// The command that runs the program.
    pub(crate) fn argv(
        self,
        tools: &Tools,
        threads: usize,
        iterations_per_ms: u64,
    ) -> Vec<OsString> {
        let n = threads.to_string();
        let iters = |ms: f64| ((ms * iterations_per_ms as f64) as u64).max(1).to_string();
        let (file, arguments): (String, Vec<String>) = match self {
            Self::Spmd { phases, phase_ms, barrier } => {
                let phases = phases.to_string();
                let list = ["--phases", &phases, "--iters", &iters(phase_ms), "--barrier", barrier];
                ("spmd".into(), list.map(str::to_owned).into())
            }
            Self::OmpSpmd { runtime, phases, phase_ms }
            | Self::OmpRegions { runtime, phases, phase_ms } => {
                let list = ["--phases", &phases.to_string(), "--iters", &iters(phase_ms)];
                let mut list = list.map(str::to_owned).to_vec();
                if matches!(self, Self::OmpRegions { .. }) {
                    list.push("--regions".into());
                }
                let runtime = if runtime == SPINS { "omp" } else { runtime };
                (format!("omp_spmd-{runtime}"), list)
            }
            Self::Ep { runtime, class } => {
                (format!("ep-{runtime}"), ["--class", class].map(str::to_owned).into())
            }
            Self::Jacobi { runtime, size, sweeps } => {
                let list = ["--size", &size.to_string(), "--sweeps", &sweeps.to_string()];
                (format!("jacobi-{runtime}"), list.map(str::to_owned).into())
            }
        };
        let mut argv: Vec<OsString> = Vec::new();
        if matches!(self, Self::OmpSpmd { runtime: SPINS, .. }) {
            argv.push("env".into());
            argv.extend(SETTINGS_THAT_SPIN.map(OsString::from));
        }
        argv.extend([tools.workload(&file).into_os_string(), "--threads".into(), n.into()]);
        argv.extend(arguments.into_iter().map(OsString::from));
        argv
    }

    /// For how much of the work one thread alone stands: all of it, or one thread's part.
    pub(crate) fn work_is_per_thread(self) -> bool {
        matches!(self, Self::Spmd { .. } | Self::OmpSpmd { .. } | Self::OmpRegions { .. })
    }

    fn words(self) -> String {
        match self {
            Self::Spmd { phases: 1, phase_ms, .. } => format!("spmd, one phase of {phase_ms} ms"),
            Self::Spmd { phases, phase_ms, barrier } => {
                format!("spmd, {phases} phases of {phase_ms} ms, barrier {barrier}")
            }
            Self::OmpSpmd { runtime, phases, phase_ms } => {
                format!("OpenMP spmd ({runtime}), {phases} phases of {phase_ms} ms")
            }
            Self::OmpRegions { runtime, phases, phase_ms } => {
                format!("OpenMP spmd ({runtime}), {phases} regions of {phase_ms} ms")
            }
            Self::Ep { runtime, class } => format!("OpenMP EP ({runtime}), class {class}"),
            Self::Jacobi { runtime, size, sweeps } => {
                format!("OpenMP Jacobi ({runtime}), {sweeps} sweeps of {size} x {size}")
            }
        }
    }
}

/// A neighbour that computes beside the program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Neighbour {
    /// The CPU that it stays on, counted among those of the benchmark; none for wherever it likes.
    pub(crate) cpu: Option<usize>,
    /// The nice level of the neighbour.
    pub(crate) nice: i32,
    /// When the neighbour computes.
    pub(crate) habit: Habit,
}

/// What a neighbour does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Habit {
    /// Computes all the time.
    Always,
    /// Sleeps and computes in random turns (paper, section 4.4).
    Turns { sleep_ms: [u32; 2], busy_ms: [u32; 2], seed: u64 },
}

/// A way to run the program.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Way {
    /// One thread, no neighbour: what its work takes, e.
    Alone,
    /// As many threads as CPUs, no neighbour: whether CPUs slow each other down.
    Full,
    /// Pinned: by the program itself where it can, else by evenly's static policy.
    Static,
    /// As the kernel balances it.
    Kernel,
    /// Under evenly, with this policy and these further options.
    Evenly { name: &'static str, policy: &'static str, options: &'static [&'static str] },
}

impl Way {
    /// Name of the arm.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Full => "full",
            Self::Static => "static",
            Self::Kernel => "kernel",
            Self::Evenly { name, .. } => name,
        }
    }

    /// Whether the arm is there to measure the limit.
    pub(crate) const fn is_reference(self) -> bool {
        matches!(self, Self::Alone | Self::Full)
    }
}

/// Juggle as in the paper.
pub(crate) const JUGGLE: Way = Way::Evenly { name: "juggle", policy: "juggle", options: &[] };
/// The default of `evenly run`.
pub(crate) const DEFAULT: Way = Way::Evenly { name: "evenly", policy: "auto", options: &[] };
/// What the default does where it sees no barriers.
pub(crate) const HYBRID: Way = Way::Evenly { name: "hybrid", policy: "hybrid", options: &[] };
/// A balancer for each CPU, as in the OSLB paper.
const SECRETARY: Way = Way::Evenly { name: "secretary", policy: "secretary", options: &[] };
/// The same, where the probe shows when threads wait.
const HYBRID_PROBE: Way =
    Way::Evenly { name: "hybrid+probe", policy: "hybrid", options: &["--probe", "on"] };
/// With the probe, always pinned.
const JUGGLE_PROBE: Way =
    Way::Evenly { name: "juggle+probe", policy: "juggle", options: &["--probe", "on"] };
const WITH_PROBE: &[Way] =
    &[Way::Alone, Way::Full, Way::Static, Way::Kernel, JUGGLE, HYBRID, JUGGLE_PROBE, HYBRID_PROBE];
const WITH_SECRETARY: &[Way] =
    &[Way::Alone, Way::Full, Way::Static, Way::Kernel, JUGGLE, HYBRID, SECRETARY];
/// What the default does at barriers of a runtime.
const WITH_DEFAULT: &[Way] = &[Way::Alone, Way::Full, Way::Kernel, HYBRID, DEFAULT];
const ALL: &[Way] = &[Way::Alone, Way::Full, Way::Static, Way::Kernel, JUGGLE, HYBRID, DEFAULT];
const BESIDE_NEIGHBOURS: &[Way] = &[Way::Alone, Way::Static, Way::Kernel, JUGGLE, HYBRID, DEFAULT];
/// In a guest evenly, too, runs on CPUs that are some fifty times slower than the host's; under the
/// usual budget it would do nothing but look for threads. The period is the paper's.
macro_rules! emulated {
    ($name:literal, $policy:literal $(, $option:literal)*) => {
        Way::Evenly {
            name: $name,
            policy: $policy,
            options: &["--budget", "100", "--period", "100ms" $(, $option)*],
        }
    };
}
const EMULATED: &[Way] = &[
    Way::Alone,
    Way::Full,
    Way::Static,
    Way::Kernel,
    emulated!("juggle", "juggle"),
    emulated!("hybrid", "hybrid"),
];
const IN_DOMAINS: &[Way] = &[
    Way::Alone,
    Way::Full,
    Way::Static,
    Way::Kernel,
    emulated!("per node", "hybrid", "--domain", "numa"),
    emulated!("machine", "hybrid", "--domain", "machine"),
];

/// A program, on so many CPUs, in several arms.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Benchmark {
    /// Short and unique, to choose by.
    pub(crate) name: String,
    /// n: the number of threads.
    pub(crate) threads: usize,
    /// m: the number of CPUs.
    pub(crate) cpus: usize,
    /// The program and its work.
    pub(crate) program: Program,
    /// What computes beside it.
    pub(crate) neighbours: Vec<Neighbour>,
    /// The arms in which it is run.
    pub(crate) ways: Vec<Way>,
    /// Runs of each arm.
    pub(crate) runs: usize,
    /// CPUs and NUMA nodes of the emulated machine, where it needs one.
    pub(crate) lab: Option<[u32; 2]>,
}

impl Benchmark {
    /// Whether there is nothing to balance: each thread has a CPU for itself, in one phase.
    pub(crate) fn is_balanced(&self) -> bool {
        let one_phase = matches!(self.program, Program::Spmd { phases: 1, .. });
        one_phase && self.threads == self.cpus && self.neighbours.is_empty()
    }

    /// The benchmark in words.
    pub(crate) fn what(&self) -> String {
        let mut text =
            format!("{} threads on {} CPUs, {}", self.threads, self.cpus, self.program.words());
        for n in &self.neighbours {
            let place = n.cpu.map_or_else(|| "anywhere".to_owned(), |c| format!("on CPU {c}"));
            let habit = match n.habit {
                Habit::Always => "computes always".to_owned(),
                Habit::Turns { sleep_ms: [a, b], busy_ms: [c, d], seed } => {
                    format!("sleeps {a}-{b} ms, computes {c}-{d} ms (seed {seed})")
                }
            };
            let nice = if n.nice == 0 { String::new() } else { format!(", nice {}", n.nice) };
            text.push_str(&format!("; a neighbour {place} {habit}{nice}"));
        }
        if let Some([cpus, nodes]) = self.lab {
            text.push_str(&format!("; emulated: {cpus} CPUs, {nodes} nodes"));
        }
        text
    }
}

/// The benchmarks of this machine, all on two CPUs.
pub(crate) fn host(quick: bool) -> Vec<Benchmark> {
    let pick = |short: u32, long: u32| if quick { short } else { long };
    let runs = |short: usize, long: usize| if quick { short } else { long };
    let mut all = Vec::new();
    let mut add = |name: String, threads: usize, program: Program, ways: &[Way], runs| {
        let (neighbours, cpus, lab, ways) = (Vec::new(), 2, None, ways.to_vec());
        all.push(Benchmark { name, threads, cpus, program, neighbours, ways, runs, lab });
    };
    for n in [3, 5] {
        let program =
            Program::Spmd { phases: 1, phase_ms: pick(1_500, 4_000).into(), barrier: "block" };
        add(format!("one-phase-{n}-on-2"), n, program, ALL, runs(3, 7));
        add(format!("secretary-{n}-on-2"), n, program, WITH_SECRETARY, runs(3, 7));
    }
    for (phase_ms, phases) in [(100, pick(8, 20)), (20, pick(40, 100))] {
        for (n, barriers) in
            [(3, &["block", "spin", "yield", "spinblock"][..]), (5, &["block", "spin"])]
        {
            for &barrier in barriers {
                let program = Program::Spmd { phases, phase_ms: phase_ms.into(), barrier };
                let name = format!("phases-{phase_ms}ms-{barrier}-{n}-on-2");
                add(name, n, program, ALL, runs(3, 5));
            }
        }
    }
    for (phase_ms, phases) in [(100, pick(8, 20)), (20, pick(40, 100))] {
        for n in [3, 5] {
            let program = Program::OmpSpmd { runtime: SPINS, phases, phase_ms: phase_ms.into() };
            add(format!("probe-{phase_ms}ms-spin-{n}-on-2"), n, program, WITH_PROBE, runs(3, 5));
        }
    }
    for runtime in ["gomp", "omp"] {
        for (name, n, phase_ms, phases) in [
            ("3.3ms", 3, 3.3, pick(300, 900)),
            ("1ms", 3, 1.0, pick(1_000, 3_000)),
            ("0.33ms", 3, 0.33, pick(3_000, 9_000)),
            ("0.17ms", 3, 0.17, pick(6_000, 18_000)),
            ("0.05ms", 2, 0.05, pick(20_000, 60_000)),
        ] {
            let program = Program::OmpSpmd { runtime, phases, phase_ms };
            add(format!("default-{name}-{runtime}-{n}-on-2"), n, program, WITH_DEFAULT, runs(3, 5));
        }
    }
    for (name, phase_ms, phases) in [
        ("1ms", 1.0, pick(1_000, 3_000)),
        ("0.33ms", 0.33, pick(3_000, 9_000)),
        ("0.05ms", 0.05, pick(20_000, 60_000)),
    ] {
        let program = Program::OmpRegions { runtime: "gomp", phases, phase_ms };
        add(format!("default-regions-{name}-gomp-3-on-2"), 3, program, WITH_DEFAULT, runs(3, 5));
    }
    for runtime in ["gomp", "omp"] {
        let programs = [
            ("omp-spmd", Program::OmpSpmd { runtime, phases: pick(8, 20), phase_ms: 100.0 }),
            ("ep", Program::Ep { runtime, class: if quick { "W" } else { "A" } }),
            ("jacobi", Program::Jacobi { runtime, size: 1_000, sweeps: pick(200, 500) }),
        ];
        for (name, program) in programs {
            add(format!("{name}-{runtime}-3-on-2"), 3, program, ALL, runs(3, 5));
        }
    }
    // In the long form long enough for the guard's first pause, after three seconds.
    let balanced =
        Program::Spmd { phases: 1, phase_ms: pick(1_000, 4_000).into(), barrier: "block" };
    let ways = [Way::Alone, Way::Kernel, JUGGLE, HYBRID, DEFAULT];
    add("balanced-2-on-2".into(), 2, balanced, &ways, runs(20, 40));

    let beside = |name: String, threads, phase_ms: u32, neighbours, runs| Benchmark {
        name,
        threads,
        cpus: 2,
        program: Program::Spmd { phases: 1, phase_ms: phase_ms.into(), barrier: "block" },
        neighbours,
        ways: BESIDE_NEIGHBOURS.to_vec(),
        runs,
        lab: None,
    };
    let always = Neighbour { cpu: Some(1), nice: 0, habit: Habit::Always };
    all.push(beside("neighbour-2-on-2".into(), 2, pick(1_500, 3_000), vec![always], runs(3, 5)));
    let short = Program::OmpSpmd { runtime: "gomp", phases: pick(1_500, 6_000), phase_ms: 0.5 };
    all.push(Benchmark {
        program: short,
        ways: vec![Way::Alone, Way::Kernel, HYBRID, DEFAULT],
        ..beside("default-neighbour-0.5ms-gomp-2-on-2".into(), 2, 1, vec![always], runs(3, 5))
    });
    for seed in [1, 2] {
        // The paper's turns take 5 to 15 s each; in the quick form all is a fifth as long.
        let habit = |seed| Habit::Turns {
            sleep_ms: [0, pick(1_000, 5_000)],
            busy_ms: [pick(1_000, 5_000), pick(2_000, 10_000)],
            seed,
        };
        let neighbours = vec![
            Neighbour { cpu: None, nice: 0, habit: habit(seed) },
            Neighbour { cpu: None, nice: -3, habit: habit(seed + 100) },
        ];
        let name = format!("random-neighbours-{seed}-3-on-2");
        all.push(beside(name, 3, pick(2_000, 12_000), neighbours, runs(2, 3)));
    }
    all
}

/// The benchmarks that need more than two CPUs. Phases are in milliseconds of an emulated CPU.
pub(crate) fn lab(quick: bool) -> Vec<Benchmark> {
    let (runs, long_ms) = if quick { (3, 4_000.0) } else { (5, 6_000.0) };
    let long = Program::Spmd { phases: 1, phase_ms: long_ms, barrier: "block" };
    let spinning = Program::Spmd { phases: 20, phase_ms: 100.0, barrier: "spin" };
    let mut all = Vec::new();
    for (threads, cpus, of) in [(8, 7, 8), (9, 8, 8), (16, 12, 12)] {
        for (name, program) in [("one-phase", long), ("phases-100ms-spin", spinning)] {
            if quick && program == spinning {
                continue;
            }
            all.push(Benchmark {
                name: format!("{name}-{threads}-on-{cpus}"),
                threads,
                cpus,
                program,
                neighbours: Vec::new(),
                ways: EMULATED.to_vec(),
                runs,
                lab: Some([of, 1]),
            });
        }
    }
    all.push(Benchmark {
        name: "two-domains-9-on-8".into(),
        threads: 9,
        cpus: 8,
        program: long,
        neighbours: Vec::new(),
        ways: IN_DOMAINS.to_vec(),
        runs,
        lab: Some([8, 2]),
    });
    all
}

/// Whether a benchmark of this name is asked for.
pub(crate) fn is_asked(name: &str, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))
}

/// Those whose name contains one of `only`, with these arms and this number of runs where some are given.
/// `others` are benchmarks that have no arms of this kind.
///
/// # Errors
/// Where nothing is left, of the others either.
pub(crate) fn chosen(
    all: Vec<Benchmark>,
    others: &[&str],
    (only, arms): (&[String], &[String]),
    runs: Option<u32>,
) -> anyhow::Result<Vec<Benchmark>> {
    let known: BTreeSet<&str> = all.iter().flat_map(|b| &b.ways).map(|w| w.name()).collect();
    if let Some(arm) = arms.iter().find(|arm| !known.contains(arm.as_str())) {
        let known: Vec<&str> = known.into_iter().collect();
        anyhow::bail!("--arm {arm}: no such arm; there are {}", known.join(", "));
    }
    let names = all.iter().map(|b| b.name.as_str()).chain(others.iter().copied());
    let names = names.collect::<Vec<_>>().join(", ");
    let mut chosen: Vec<Benchmark> = all.into_iter().filter(|b| is_asked(&b.name, only)).collect();
    anyhow::ensure!(
        !chosen.is_empty() || others.iter().any(|name| is_asked(name, only)),
        "--only {}: no benchmark has that in its name; there are {names}",
        only.join(", ")
    );
    for b in &mut chosen {
        let is_asked = |way: &Way| arms.iter().any(|arm| arm == way.name());
        b.ways.retain(|way| arms.is_empty() || *way == Way::Alone || is_asked(way));
        b.runs = runs.map_or(b.runs, |r| r as usize);
    }
    Ok(chosen)
}

/// The names of all benchmarks, each with what it is.
pub(crate) fn listing(benchmarks: &[Benchmark]) -> String {
    let line = |b: &Benchmark| listed(&b.name, &format!("{}, {} runs of each", b.what(), b.runs));
    benchmarks.iter().map(line).collect()
}

/// A line of it.
pub(crate) fn listed(name: &str, what: &str) -> String {
    format!("{name:<32} {what}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arms_are_unique_and_policies_exist() {
        for quick in [true, false] {
            let all: Vec<Benchmark> = host(quick).into_iter().chain(lab(quick)).collect();
            let names: BTreeSet<&str> = all.iter().map(|b| b.name.as_str()).collect();
            assert_eq!(names.len(), all.len());
            for b in &all {
                let arms: BTreeSet<&str> = b.ways.iter().map(|w| w.name()).collect();
                assert_eq!(arms.len(), b.ways.len(), "{}", b.name);
                assert!(b.ways.contains(&Way::Alone), "{} has no limit", b.name);
                for way in &b.ways {
                    if let Way::Evenly { policy, .. } = way {
                        assert!(evenly_policies::by_name(policy).is_some(), "{policy}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_command_is_the_same_work_whatever_the_number_of_threads() {
        let tools = Tools::at("/e", "/w");
        let program = Program::Spmd { phases: 8, phase_ms: 100.0, barrier: "spin" };
        let argv = |n| crate::tools::words(&program.argv(&tools, n, 1_000));
        assert_eq!(
            argv(3).join(" "),
            "/w/spmd --threads 3 --phases 8 --iters 100000 --barrier spin"
        );
        assert_eq!(argv(1)[3..], argv(3)[3..]);
        let program = Program::OmpSpmd { runtime: SPINS, phases: 8, phase_ms: 100.0 };
        let words = crate::tools::words(&program.argv(&tools, 3, 1_000)).join(" ");
        assert!(words.starts_with("env OMP_WAIT_POLICY=active "), "{words}");
        assert!(words.contains(" /w/omp_spmd-omp --threads 3 --phases 8 "), "{words}");
    }

    #[test]
    fn choosing() {
        let choose = |only: &str, arms: &[&str], runs| {
            let arms: Vec<String> = arms.iter().map(|arm| (*arm).to_owned()).collect();
            chosen(host(true), &[COST], (&[only.to_owned()], &arms), runs)
        };
        let some = choose("one-phase", &[], Some(9)).unwrap();
        assert!(some.len() == 2 && some.iter().all(|b| b.runs == 9 && b.ways == ALL));
        let two = choose("one-phase", &["kernel", "evenly"], None).unwrap();
        assert!(two.iter().all(|b| b.ways == [Way::Alone, Way::Kernel, DEFAULT]));
        let e = choose("nonsense", &[], None).unwrap_err().to_string();
        assert!(e.contains("one-phase-3-on-2") && e.ends_with(", cost"), "{e}");
        let e = choose("one-phase", &["nobody"], None).unwrap_err().to_string();
        assert!(e.contains("juggle"), "{e}");
        assert!(choose("cost", &[], None).unwrap().is_empty());
        assert!(chosen(host(true), &[], (&["cost".to_owned()], &[]), None).is_err());
    }
}

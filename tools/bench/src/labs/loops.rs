//! Parallel loops in an emulated machine with eight CPUs, two of which carry a load as well: Jacobi and Gauss of
//! `workloads/loops`, by OpenMP and by evenly.
//!
//! An emulated CPU is a thread of the host that may run for a part of each quota period. In the mean all are equally fast, and a
//! CPU that idles makes no other one faster, so that times over times of the same machine are what they would be on eight slow
//! CPUs. What differs from such CPUs is measured here and stands beside the figures:
//! - Within a quota period a CPU runs at full speed and then not at all. All threads wait for the one whose CPU comes last, at
//!   each end of a loop: what one, four and eight threads take with nothing beside them tells how much that is.
//! - The host may give less than the quota: each run notes what part of its share the busiest CPU got.
//! - The guest's scheduler counts time, not work: what the loaded CPUs gave to the program is what the load did not get.
//!
//! Invariant: all runs of a kernel have the same checksum, whoever hands out iterations and however many threads there are.

use super::{Asked, MARK, boot, command, equal_speed, say_void, split};
use crate::figures::Report;
use crate::measure::{MAKESPAN, outcome};
use crate::measured::Measured;
use crate::show::{Shown, print, table};
use crate::suite::{is_asked, listed};
use crate::tools::Tools;
use anyhow::Context;
use evenly_compare::{Arm, Executor, Metric, Options, RunError, RunOutcome, compare};
use evenly_lab::{Lab, LabError, LabOptions, Share};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Longest time for one run.
const LIMIT: Duration = Duration::from_secs(300);
/// CPUs of the machine, and threads of the program.
const CPUS: usize = 8;
/// The last of them carry a load as well.
const LOADED: usize = 2;
/// What a CPU has of one of the host: half of what two host CPUs could give, so that they give it also beside other programs.
const SHARE: f64 = 0.1;
/// A run whose busiest CPU got less than this part of its share is called disturbed.
const HELD: f64 = 0.95;

/// A kernel with its work. A step takes some quota periods, as in less time there are no eight CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Case {
    /// The name of the benchmark.
    pub(crate) name: &'static str,
    kernel: &'static str,
    size: u32,
    steps: u32,
    runs: usize,
}

/// All kernels.
pub(crate) fn cases(quick: bool, runs: Option<u32>) -> [Case; 2] {
    let runs = runs.map_or(if quick { 3 } else { 5 }, |r| r as usize);
    [
        Case { name: "loops-jacobi-8", kernel: "jacobi", size: 1536, steps: 60, runs },
        Case { name: "loops-gauss-8", kernel: "gauss", size: 1536, steps: 60, runs },
    ]
}

/// Those that are asked for.
pub(crate) fn chosen(all: [Case; 2], only: &[String]) -> Vec<Case> {
    all.into_iter().filter(|case| is_asked(case.name, only)).collect()
}

impl Case {
    /// The benchmark in words.
    pub(crate) fn what(&self) -> String {
        let Self { kernel, size, steps, .. } = self;
        format!(
            "{kernel}, {steps} steps of {size} squared, {CPUS} threads bound to {CPUS} CPUs, {LOADED} of which \
             carry a load of 100 %"
        )
    }

    /// A line of the list of benchmarks.
    pub(crate) fn listed(&self) -> String {
        listed(self.name, &format!("{}, {} runs of each", self.what(), self.runs))
    }
}

/// Who hands out iterations: the name of the arm, and what the program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// OpenMP, by this schedule.
    OpenMp(&'static str),
    /// evenly, by this policy; `evenly` is the one that it has by default.
    Evenly(&'static str),
}

const STATIC: By = By::OpenMp("static");
const DEFAULT: By = By::Evenly("evenly");
/// All of them run beside the load.
const ARMS: [By; 6] = [
    STATIC,
    By::OpenMp("dynamic"),
    By::OpenMp("guided"),
    DEFAULT,
    By::Evenly("rp"),
    By::Evenly("rp-steal"),
];
/// With nothing beside them: what loads cost, and what evenly costs where it has nothing to do.
const UNLOADED: [By; 2] = [STATIC, DEFAULT];
/// Threads that tell, with nothing beside them, how the machine distorts.
const THREADS: [usize; 3] = [1, 4, CPUS];

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::OpenMp(name) => name,
            DEFAULT => "auto",
            Self::Evenly(name) => name,
        }
    }
}

/// One way to run a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    name: String,
    by: By,
    threads: usize,
    loaded: bool,
}

impl Run {
    fn of(by: By, loaded: bool) -> Self {
        let name = format!("{}{}", by.name(), if loaded { "" } else { ", unloaded" });
        Self { name, by, threads: CPUS, loaded }
    }

    /// OpenMP's static loops by so many threads.
    fn of_threads(threads: usize) -> Self {
        let run = Self::of(STATIC, false);
        if threads == CPUS {
            return run;
        }
        Self { name: format!("{threads} threads, unloaded"), threads, ..run }
    }

    /// All runs of a kernel.
    fn all() -> Vec<Self> {
        let loaded = ARMS.iter().map(|by| Self::of(*by, true));
        let unloaded = UNLOADED.iter().map(|by| Self::of(*by, false));
        let fewer = THREADS.iter().filter(|threads| **threads < CPUS);
        let fewer = fewer.map(|threads| Self::of_threads(*threads));
        loaded.chain(unloaded).chain(fewer).collect()
    }

    /// As a script: the loads begin before the program and end after it, and tell what they got.
    fn arm(&self, case: &Case) -> Arm {
        let (schedule, by) = match self.by {
            By::OpenMp(schedule) => (schedule, "omp"),
            By::Evenly(policy) => ("static", policy),
        };
        let Case { kernel, size, steps, .. } = case;
        let threads = self.threads;
        let program = format!(
            "OMP_PROC_BIND=true OMP_SCHEDULE={schedule} loops-gomp {kernel} {threads} {by} {size} {steps}"
        );
        let script = if self.loaded {
            let cpus: Vec<String> = (CPUS - LOADED..CPUS).map(|cpu| cpu.to_string()).collect();
            format!(
                "for cpu in {}; do noise --cpu $cpu --always >/tmp/load-$cpu & loads=\"$loads $!\"; done; \
                 {program}; status=$?; kill $loads; wait $loads; echo {MARK}; cat /tmp/load-*; exit $status",
                cpus.join(" ")
            )
        } else {
            program
        };
        Arm::new(&self.name, ["sh", "-c", &script])
    }
}

/// What the kernel prints.
#[derive(Debug, Deserialize)]
struct Printed {
    makespan_s: f64,
    checksum: String,
    /// Iterations that each thread has carried out; of evenly's loops only.
    loop0: Option<Vec<u64>>,
}

/// What a load prints.
#[derive(Debug, Deserialize)]
struct Load {
    elapsed_s: f64,
    cpu_s: f64,
}

/// What a run told beside its time. Each is a part of one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Told {
    /// What each loaded CPU gave to the program, in the mean.
    gave: Option<f64>,
    /// What a thread on a loaded CPU had of all iterations, in the mean.
    had: Option<f64>,
    /// What the busiest CPU got of its share.
    held: f64,
}

/// Reads what program and loads have printed.
fn told(printed: &Printed, loads: &[u8], held: f64) -> anyhow::Result<Told> {
    let mean = |parts: Vec<f64>| {
        (!parts.is_empty()).then(|| parts.iter().sum::<f64>() / parts.len() as f64)
    };
    let loads: Vec<Load> = serde_json::Deserializer::from_slice(loads.trim_ascii())
        .into_iter()
        .collect::<Result<_, _>>()
        .context("a load printed no times")?;
    // While the program computes in parallel; for the rest of the time nobody else is on these CPUs.
    let gave = |load: &Load| (load.elapsed_s - load.cpu_s) / printed.makespan_s;
    let had = printed.loop0.as_ref().map(|iterations| {
        let all = iterations.iter().sum::<u64>() as f64;
        iterations.iter().skip(CPUS - LOADED).map(|own| *own as f64 / all).collect()
    });
    Ok(Told { gave: mean(loads.iter().map(gave).collect()), had: had.and_then(mean), held })
}

/// Runs kernels in a guest.
struct GuestLoops<'a> {
    lab: &'a mut Lab,
    interrupted: &'a AtomicBool,
    checksum: Option<String>,
    told: BTreeMap<String, Vec<Told>>,
}

/// All answers have the checksum of the first one.
fn same_answer(first: &mut Option<String>, checksum: &str) -> anyhow::Result<()> {
    let first = first.get_or_insert_with(|| checksum.to_owned());
    anyhow::ensure!(first == checksum, "checksum {checksum} instead of {first}");
    Ok(())
}

impl GuestLoops<'_> {
    fn note(&mut self, name: &str, stdout: &[u8], loads: &[u8], held: f64) -> anyhow::Result<()> {
        let printed: Printed = serde_json::from_slice(stdout).context("it printed no result")?;
        same_answer(&mut self.checksum, &printed.checksum)?;
        self.told.entry(name.to_owned()).or_default().push(told(&printed, loads, held)?);
        Ok(())
    }
}

impl Executor for GuestLoops<'_> {
    fn run(&mut self, arm: &Arm, _index: usize) -> Result<RunOutcome, RunError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(RunError::Interrupted);
        }
        let broken = |e: LabError| RunError::Wait(io::Error::other(e.to_string()));
        let before = self.lab.cpu_times().map_err(broken)?;
        let output = self.lab.run(&command(arm), LIMIT).map_err(broken)?;
        if output.timed_out {
            return Err(RunError::TimedOut { limit: LIMIT, killed: true });
        }
        let after = self.lab.cpu_times().map_err(broken)?;
        let busiest = before.iter().zip(&after).map(|(a, b)| b.saturating_sub(*a)).max();
        let due = output.elapsed.mul_f64(self.lab.share().unwrap_or(1.0));
        let held = busiest.unwrap_or_default().as_secs_f64() / due.as_secs_f64();
        let (stdout, loads) = split(&output.stdout);
        // What a runtime does not know, such as a place to bind a thread to, it says and ignores.
        if output.status == 0 && !output.stderr.is_empty() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(RunError::Wait(io::Error::other(format!("it said {}", said.trim()))));
        }
        if output.status == 0 {
            self.note(&arm.name, stdout, loads, held)
                .map_err(|e| RunError::Wait(io::Error::other(format!("{e:#}"))))?;
        }
        outcome(output.elapsed.as_secs_f64(), output.status, stdout, &output.stderr)
    }
}

/// What one who hands out iterations amounts to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ArmFigures {
    arm: String,
    /// Whether the load was beside it.
    loaded: bool,
    /// In the order of the runs.
    seconds: Vec<f64>,
    /// Median over that of OpenMP's static loops, beside the same.
    over_static: Option<Measured>,
    /// Median over that of OpenMP's static loops with nothing beside them.
    over_unloaded: Option<Measured>,
    /// What each loaded CPU gave to the program, in percent of its time.
    gave_percent: Option<Measured>,
    /// What a thread on a loaded CPU had of all iterations, in percent.
    had_percent: Option<Measured>,
}

/// OpenMP's static loops by some threads, with nothing beside them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Distortion {
    threads: usize,
    seconds: Vec<f64>,
    /// What one thread takes over what all of these take together, in percent: 100 on CPUs that are steady at any moment.
    efficiency_percent: Option<Measured>,
}

/// What the runs of a kernel amount to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct LoopsFigures {
    name: &'static str,
    what: String,
    /// The least that can be had: what one thread takes with nothing beside it over the CPUs' worth that the loads leave,
    /// in seconds.
    limit_s: Option<Measured>,
    /// The same over OpenMP's static loops with nothing beside them.
    limit_over_unloaded: Option<Measured>,
    /// The same over OpenMP's static loops beside the load.
    limit_over_static: Option<Measured>,
    /// What OpenMP's static loops take with nothing beside them, times their CPUs over the CPUs' worth that the loads leave, over
    /// what they take beside the load: what is to be had where all threads wait for each other as long as there.
    as_distorted_over_static: Option<Measured>,
    arms: Vec<ArmFigures>,
    distortion: Vec<Distortion>,
    /// The least part of its share that the busiest CPU got in a run, in percent.
    held_least_percent: f64,
    /// Runs in which that was less than 95 %; they are in the figures.
    disturbed: usize,
    runs: usize,
    incomplete: bool,
    /// Why the figures are void, if they are.
    void: Option<String>,
}

/// CPUs' worth that the loads leave: of each loaded one a half.
const LEFT: f64 = CPUS as f64 - LOADED as f64 / 2.0;

impl LoopsFigures {
    fn new(
        case: &Case,
        seconds: &BTreeMap<String, Vec<f64>>,
        told: &BTreeMap<String, Vec<Told>>,
        incomplete: bool,
        seed: u64,
    ) -> Self {
        let of = |run: &Run| seconds.get(&run.name).cloned().unwrap_or_default();
        let percent = |run: &Run, part: fn(&Told) -> Option<f64>| {
            let parts: Vec<f64> =
                told.get(&run.name).into_iter().flatten().filter_map(part).collect();
            Measured::median(&parts, seed).map(|m| m.scaled(100.0))
        };
        let bases = [false, true].map(|loaded| of(&Run::of(STATIC, loaded)));
        let arm = |(by, loaded): (&By, bool)| {
            let run = Run::of(*by, loaded);
            let seconds = of(&run);
            ArmFigures {
                arm: by.name().to_owned(),
                loaded,
                over_static: Measured::ratio(&seconds, &bases[usize::from(loaded)], seed),
                over_unloaded: Measured::ratio(&seconds, &bases[0], seed),
                gave_percent: percent(&run, |t| t.gave),
                had_percent: percent(&run, |t| t.had),
                seconds,
            }
        };
        let alone = of(&Run::of_threads(1));
        let least: Vec<f64> = alone.iter().map(|seconds| seconds / LEFT).collect();
        let distortion = |threads: &usize| {
            let seconds = of(&Run::of_threads(*threads));
            let ratio = Measured::ratio(&alone, &seconds, seed);
            let efficiency_percent = ratio.map(|r| r.scaled(100.0 / *threads as f64));
            Distortion { threads: *threads, seconds, efficiency_percent }
        };
        let held = || told.values().flatten().map(|t| t.held);
        Self {
            name: case.name,
            what: case.what(),
            limit_s: Measured::median(&least, seed),
            limit_over_unloaded: Measured::ratio(&least, &bases[0], seed),
            limit_over_static: Measured::ratio(&least, &bases[1], seed),
            as_distorted_over_static: Measured::ratio(&bases[0], &bases[1], seed)
                .map(|r| r.scaled(CPUS as f64 / LEFT)),
            arms: ARMS
                .iter()
                .map(|by| (by, true))
                .chain(UNLOADED.iter().map(|by| (by, false)))
                .map(arm)
                .collect(),
            distortion: THREADS.iter().map(distortion).collect(),
            held_least_percent: held().reduce(f64::min).unwrap_or(0.0) * 100.0,
            disturbed: held().filter(|part| *part < HELD).count(),
            runs: held().count(),
            incomplete,
            void: None,
        }
    }

    /// As tables.
    fn text(&self) -> String {
        let shown =
            |m: &Option<Measured>, decimals| m.map_or_else(|| "-".to_owned(), |m| m.text(decimals));
        let head = [
            "",
            "s",
            "over static",
            "over unloaded static",
            "loaded CPUs gave %",
            "a loaded thread had %",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        let row = |arm: &ArmFigures| {
            vec![
                format!("{}{}", arm.arm, if arm.loaded { "" } else { ", no load" }),
                shown(&Measured::median(&arm.seconds, 1), 2),
                shown(&arm.over_static.filter(|_| arm.loaded), 2),
                shown(&arm.over_unloaded, 2),
                shown(&arm.gave_percent, 1),
                shown(&arm.had_percent, 1),
            ]
        };
        rows.extend(self.arms.iter().map(row));
        let nothing = || "-".to_owned();
        rows.push(vec![
            "limit".to_owned(),
            shown(&self.limit_s, 2),
            shown(&self.limit_over_static, 2),
            shown(&self.limit_over_unloaded, 2),
            "50.0".to_owned(),
            format!("{:.1}", 50.0 / LEFT),
        ]);
        rows.push(vec![
            "static, no load, times 8/7".to_owned(),
            nothing(),
            shown(&self.as_distorted_over_static, 2),
            format!("{:.2}", CPUS as f64 / LEFT),
            nothing(),
            nothing(),
        ]);
        let mut distortion = vec![
            ["static, no load", "s", "of CPUs that are steady at any moment %"]
                .map(str::to_owned)
                .to_vec(),
        ];
        distortion.extend(self.distortion.iter().map(|d| {
            vec![
                format!("{} thread{}", d.threads, if d.threads == 1 { "" } else { "s" }),
                shown(&Measured::median(&d.seconds, 1), 2),
                shown(&d.efficiency_percent, 1),
            ]
        }));
        format!(
            "\n{}: {}\n{}{}  In {} of {} runs the busiest CPU got less than {:.0} % of its share of the host, at least {:.1} %.\n",
            self.name,
            self.what,
            table(&rows),
            table(&distortion),
            self.disturbed,
            self.runs,
            HELD * 100.0,
            self.held_least_percent
        )
    }
}

/// Runs one kernel in all ways, in turn.
fn measure(
    lab: &mut Lab,
    case: &Case,
    interrupted: &AtomicBool,
    seed: u64,
) -> anyhow::Result<LoopsFigures> {
    let runs = Run::all();
    let arms: Vec<Arm> = runs.iter().map(|run| run.arm(case)).collect();
    let options = Options {
        command: vec!["loops-gomp".to_owned(), case.kernel.to_owned()],
        runs: case.runs,
        warmup: 0,
        seed,
        metric: Metric::Field(MAKESPAN.to_owned()),
        same_output: false,
        bound_s: None,
        keep_reports: false,
    };
    let mut executor = GuestLoops { lab, interrupted, checksum: None, told: BTreeMap::new() };
    let mut shown = Shown::new(case.name);
    let result = compare(&arms, &options, &mut executor, &mut shown);
    shown.bar.clear();
    let result = result.with_context(|| format!("benchmark {}", case.name))?;
    let told = executor.told;
    let seconds = result.results.into_iter().map(|arm| (arm.policy, arm.seconds)).collect();
    Ok(LoopsFigures::new(case, &seconds, &told, result.incomplete, seed))
}

/// Boots the machine, and runs all kernels that are asked for.
///
/// # Errors
/// Where it does not boot or breaks, or a program is missing. A kernel that fails is noted, and the others go on.
pub(super) fn guest(
    tools: &Tools,
    asked: &Asked<'_>,
    interrupted: &AtomicBool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let program = |name| tools.path(name).context("./dev bench lab builds it");
    let programs = [(program("loops-gomp")?, "loops-gomp"), (program("noise")?, "noise")];
    let machine = asked.machine([CPUS as u32, 1], &programs);
    let options = LabOptions { share: Share::Fraction(SHARE), ..machine };
    let (mut lab, mut void) = boot(&options, interrupted)?;
    let first = report.loops.len();
    for case in asked.loops {
        match measure(&mut lab, case, interrupted, asked.seed) {
            Ok(figures) => {
                print(&figures.text())?;
                report.interrupted |= figures.incomplete;
                report.loops.push(serde_json::to_value(&figures).context("figures as JSON")?);
            }
            Err(e) => report.failed(case.name, &e),
        }
        if report.interrupted {
            break;
        }
    }
    void = equal_speed(&mut lab, "after")?.or(void);
    if let Some(why) = void {
        say_void(&why)?;
        for figures in &mut report.loops[first..] {
            figures["void"] = why.clone().into();
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn case() -> Case {
        cases(true, Some(3))[0]
    }

    /// Of runs that each take as long as on eight steady CPUs; evenly comes within 5 % of the limit.
    pub(crate) fn sample() -> LoopsFigures {
        let case = case();
        let mut seconds = BTreeMap::new();
        let mut told = BTreeMap::new();
        for run in Run::all() {
            let took = match (run.threads, run.loaded, run.by) {
                (CPUS, true, STATIC) => 14.0,
                (CPUS, true, _) => 8.4,
                (threads, ..) => 56.0 / threads as f64,
            };
            seconds.insert(run.name.clone(), vec![took; 3]);
            let had = (run.by == DEFAULT).then_some(0.07);
            let gave = run.loaded.then_some(0.5);
            told.insert(
                run.name,
                vec![Told { gave, had, held: if run.loaded { 0.9 } else { 1.0 } }; 3],
            );
        }
        LoopsFigures::new(&case, &seconds, &told, false, 1)
    }

    #[test]
    fn times_stand_beside_the_limit_and_the_distortion() {
        let figures = sample();
        // Seven CPUs' worth, where static takes twice as long.
        let value = |m: Option<Measured>| (m.unwrap().value * 1e3).round() / 1e3;
        assert_eq!(value(figures.limit_over_static), 0.571);
        let auto = figures.arms.iter().find(|a| a.arm == "auto" && a.loaded).unwrap();
        assert_eq!((value(auto.over_static), value(auto.over_unloaded)), (0.6, 1.2));
        assert_eq!(value(auto.had_percent), 7.0);
        let efficiency: Vec<f64> =
            figures.distortion.iter().map(|d| value(d.efficiency_percent)).collect();
        assert_eq!(efficiency, [100.0; 3]);
        let text = figures.text();
        let line = |begin: &str| {
            text.lines().find(|l| l.trim_start().starts_with(begin)).unwrap().to_owned()
        };
        let words = |begin: &str| {
            line(begin).split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            words("limit"),
            "limit 8.00 [8.00, 8.00] 0.57 [0.57, 0.57] 1.14 [1.14, 1.14] 50.0 7.1"
        );
        let distorted = "static, no load, times 8/7 - 0.57 [0.57, 0.57] 1.14 - -";
        assert_eq!(words("static, no load, times"), distorted);
        assert_eq!(
            words("auto "),
            "auto 8.40 [8.40, 8.40] 0.60 [0.60, 0.60] 1.20 [1.20, 1.20] 50.0 [50.0, 50.0] 7.0 [7.0, 7.0]"
        );
        assert_eq!(words("1 thread"), "1 thread 56.00 [56.00, 56.00] 100.0 [100.0, 100.0]");
        assert!(text.contains("In 18 of 30 runs the busiest CPU got less than 95 %"), "{text}");
    }

    #[test]
    fn loads_and_iterations_are_read() {
        let printed = |text: &str| serde_json::from_str::<Printed>(text).unwrap();
        let evenly =
            printed("{\"makespan_s\":10.0,\"checksum\":\"ab\",\"loop0\":[30,30,30,30,30,30,12,8]}");
        // One had all of its CPU for two seconds and half of it for ten, the other one four tenths more.
        let loads = b"\n{\"elapsed_s\":12.0,\"cpu_s\":7.0}\n{\"elapsed_s\":12.0,\"cpu_s\":11.0}\n";
        let all = told(&evenly, loads, 0.98).unwrap();
        assert_eq!((all.gave, all.had, all.held), (Some(0.3), Some(0.05), 0.98));
        let openmp = printed("{\"makespan_s\":10.0,\"checksum\":\"ab\"}");
        assert_eq!(told(&openmp, b"", 1.0).unwrap(), Told { gave: None, had: None, held: 1.0 });
        assert!(told(&openmp, b"{\"elapsed_s\":12.0}", 1.0).is_err());
    }

    #[test]
    fn another_answer_is_an_error() {
        let mut first = None;
        same_answer(&mut first, "ab").unwrap();
        same_answer(&mut first, "ab").unwrap();
        let e = same_answer(&mut first, "cd").unwrap_err().to_string();
        assert_eq!(e, "checksum cd instead of ab");
    }

    #[test]
    fn each_run_has_a_name_and_the_script_of_its_load() {
        let case = case();
        let runs = Run::all();
        let names: std::collections::BTreeSet<&str> =
            runs.iter().map(|r| r.name.as_str()).collect();
        assert_eq!((names.len(), runs.len()), (10, 10));
        let script = |name: &str| {
            let arm = runs.iter().find(|r| r.name == name).unwrap().arm(&case);
            crate::tools::words(&arm.argv)[2].clone()
        };
        let free = "OMP_PROC_BIND=true OMP_SCHEDULE=static loops-gomp jacobi 8 evenly 1536 60";
        assert_eq!(script("auto, unloaded"), free);
        let loaded = script("auto");
        assert!(loaded.starts_with("for cpu in 6 7; do noise --cpu $cpu --always "), "{loaded}");
        assert!(loaded.contains(free) && loaded.contains(MARK), "{loaded}");
        assert!(script("4 threads, unloaded").ends_with("loops-gomp jacobi 4 omp 1536 60"));
    }

    #[test]
    fn kernels_are_chosen_by_name() {
        let names = |only: &str| {
            let chosen = chosen(cases(false, None), &[only.to_owned()]);
            chosen.iter().map(|c| c.name).collect::<Vec<_>>()
        };
        assert_eq!(names("loops"), ["loops-jacobi-8", "loops-gauss-8"]);
        assert_eq!((names("gauss"), names("one-phase")), (vec!["loops-gauss-8"], vec![]));
    }
}

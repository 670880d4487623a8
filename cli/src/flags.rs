//! The one definition of the command line: help, man pages and completions all come from it.
//!
//! Invariant: parsing makes no system call.

mod mapping;
mod simulate;
mod values;

use clap::builder::{NonEmptyStringValueParser, PathBufValueParser, PossibleValue};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueEnum};
use evenly_model::hpc::{Parameter, ParameterError};
use evenly_model::{CpuSet, Nanos, parse_duration};
use evenly_policy::PolicyInfo;
use evenly_theory::Speeds;
pub(crate) use mapping::{AlphaArg, MapArgs, TopologyArgs};
pub(crate) use simulate::{BarrierArg, LoopsArg, SimulateArgs};
use std::ffi::OsString;
use std::path::PathBuf;
pub(crate) use values::{
    CooperateArg, DomainArg, MapByArg, PeriodArg, ProbeArg, ProgressArg, SharesArg, SourceArg,
    policy_without_probe,
};
use values::{
    DEFAULT, OF_ATTACH, compared_help, cpu_list, default_policy, percent, period, policy,
    policy_help, policy_list, positive,
};

/// Balance the threads of a program across CPUs at run time, so that none holds up the others at a
/// barrier.
#[derive(Debug, Parser)]
#[command(
    name = "evenly",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = "Examples:\n  evenly run -- ./solver --threads 3       # balance its threads\n  \
        evenly compare -- ./solver --threads 3   # measure whether it is faster\n\n\
        `evenly COMMAND --help` has the options of a command."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program and balance its threads across CPUs
    #[command(
        after_help = "Examples:\n  evenly run -- ./solver --threads 3\n  evenly run -v -- ./solver \
        --threads 3      # every decision, and the whole report\n\nThe program runs as without \
        evenly: same input and output, signals and exit status. Exit status 125: evenly itself \
        failed; 126, 127: the program cannot be run."
    )]
    Run(RunArgs),
    /// Balance the threads of a running program
    #[command(
        after_help = "Example:\n  evenly attach 4711\n\nCtrl-C ends balancing; the program runs \
        on with its former affinity masks.",
        mut_arg("asked_policy", |arg| arg.help(policy_list(OF_ATTACH)).long_help(policy_help(OF_ATTACH)))
    )]
    Attach(AttachArgs),
    /// Run a program under several policies in turn, and compare the run times
    #[command(
        after_help = "Examples:\n  evenly compare --runs 10 -- ./solver --threads 3\n  evenly compare \
        --policies kernel,kernel:OMP_WAIT_POLICY=passive -- ./solver\n\n`kernel` is the program as it is, \
        without evenly."
    )]
    Compare(CompareArgs),
    /// Compute what balancing can gain for a program, without running it
    #[command(
        after_help = "Examples:\n  evenly predict --threads 8 --cpus 7 --phase 30s --period \
        100ms\n  evenly run --record run.evenly -- ./solver && evenly predict --from \
        run.evenly\n\nThe analysis is that of the Juggle paper (Hofmeyr and others, HPDC 2011, \
        section 3): identical threads, an ideal scheduler, balancing without costs."
    )]
    Predict(PredictArgs),
    /// Run a policy on a simulated machine, in virtual time
    #[command(
        after_help = "Examples:\n  evenly simulate --threads 8 --cpus 7 --phase 1s --period \
        100ms\n  evenly simulate --scenario machine.toml\n  evenly simulate --sweep \
        --out figure-10.csv\n  evenly simulate --power5 metbench-var\n  evenly simulate --loops jacobi\n\nThe policies and the balancing cycle \
        are those of `evenly run`; only the machine is simulated. Without --scenario it is that of \
        the Juggle paper's analysis (section 3): equal threads, perfectly fair sharing, nothing costs anything."
    )]
    Simulate(SimulateArgs),
    /// Compute where communicating tasks or ranks should run on a NUMA machine
    #[command(
        after_help = "Examples:\n  evenly map --objects O.csv --edges E.csv --topology 'numa:4 core:8' \
        --factors F.csv --out MAP.csv\n  evenly map --monitoring ranks.prof --format rankfile --out \
        ranks.txt\n  evenly map --tasks T.json --compare\n  evenly map --profile --format rankfile \
        --hosts localhost --out ranks.txt -- mpirun -n 4 ./app\n\nThe cost model and the algorithm nuco are those of \
        NucoLB (Pilla and others, 2012)."
    )]
    Map(Box<MapArgs>),
    /// Draw the papers' figures from evenly's own theory, policies and simulator
    #[command(
        after_help = "Examples:\n  evenly figures --out figures\n  evenly figures --only juggle-9 \
        --only juggle-17 --out figures\n\nIt writes each figure as SVG and CSV, and a page, \
        figures.md, with what the paper says beside what came out here. Nothing is measured on this \
        machine; all of it takes less than a minute on two cores."
    )]
    Figures(FiguresArgs),
    /// Restore the affinity masks of threads after a balancer was killed
    #[command(
        after_help = "Example:\n  evenly restore\n\nThe guardian process restores masks when a balancer \
        is killed. Use this command if the guardian was killed too. It names programs whose balancer is \
        alive, and does not touch them.\n\nExit status 0: everything that killed balancers left is \
        restored. 125: a mask could not be restored, or the balancer of PID is alive and --force was \
        not given."
    )]
    Restore(RestoreArgs),
    /// Diagnose why a program is slow, and what to change
    #[command(
        override_usage = "evenly doctor [OPTIONS] <PID | --from RECORDING | --mechanisms | -- CMD...>",
        after_help = "Examples:\n  evenly doctor -- ./solver --threads 3\n  evenly doctor 4711 --for \
        10s\n  evenly run --record run.evenly -- ./solver && evenly doctor --from run.evenly\n\nIt \
        watches the program and changes nothing, except for the variables that --fix-env sets. \
        Exit status: that of the program that it runs; \
        125: evenly itself failed."
    )]
    Doctor(DoctorArgs),
    /// Turn a recording into a Perfetto trace, an HTML page or a picture
    #[command(
        after_help = "Example:\n  evenly run --record run.evenly -- ./solver\n  evenly report \
        run.evenly          # writes run.html and run.perfetto-trace\n\nIt writes the \
        files that are named. If none is named, it writes the page and the trace beside the recording."
    )]
    Report(ReportArgs),
    /// Show the threads of a program live
    #[command(
        after_help = "Example:\n  evenly top 4711\n\nWithout a process id it shows the program that \
        another evenly balances."
    )]
    Top(TopArgs),
    /// Change parameters of hpc-auto, hpc-uniform and hpc-adaptive while they balance a program
    #[command(
        after_help = "Examples:\n  evenly tune 4711                                # all parameters and \
        their values\n  evenly tune 4711 most-ratio=4\n\nAn invalid value is refused, and nothing \
        changes. New values take effect with the next iterations. evenly run --set sets values at the \
        start."
    )]
    Tune(TuneArgs),
    /// Show the topology of this machine, and measure memory latency and bandwidth
    #[command(
        after_help = "Examples:\n  evenly topology                       # this machine\n  evenly \
        topology --measure             # and the latency between its NUMA nodes\n  evenly topology \
        --synthetic \"numa:2 core:4 pu:2\" --svg machine.svg\n  evenly topology --measure --network \
        --export cluster.xml -- mpirun -host a,b -n 2\n\nThe user's cache directory keeps the \
        measurements; --again repeats them. Measuring takes some seconds for each NUMA node; do it on \
        an idle machine."
    )]
    Topology(TopologyArgs),
    /// Print the completion script of a shell
    #[command(after_help = "Example:\n  evenly completions bash > \
        ~/.local/share/bash-completion/completions/evenly")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a directory
    #[command(after_help = "Example:\n  evenly manpages target/man")]
    Manpages {
        /// The directory; it is made where it is missing
        dir: PathBuf,
    },
    /// Restores masks when the balancer dies; started by evenly itself
    #[command(hide = true)]
    Guardian {
        /// Shown in lists of processes: the guardian is given the journal itself over its connection
        #[arg(long)]
        journal: PathBuf,
        #[arg(long)]
        fd: i32,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) balance: BalanceArgs,
    /// Load a library into the program that reports when its threads wait for each other, so that
    /// spinning does not count as progress
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) probe: ProbeArg,
    /// Let threads that wait for each other hand their CPUs over
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) cooperate: CooperateArg,
    /// With --probe on and --policy nuco: the compiler of the program's MPI, which builds what counts its
    /// messages when that is needed first [default: the mpicc of the MPI that program and launcher belong to]
    #[arg(long, value_name = "MPICC", requires = "probe",
        value_parser = PathBufValueParser::new().map(PathBuf::into_os_string))]
    pub(crate) mpicc: Option<OsString>,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// What is run, behind the options.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "CMD"
    )]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) balance: BalanceArgs,
    /// Let threads that spin while they wait for each other hand their CPUs over
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) cooperate: CooperateArg,
    /// Process id of the program
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,
}

/// How to balance, and what to report.
#[derive(Debug, Args)]
pub(crate) struct BalanceArgs {
    /// The balancing policy
    #[arg(long = "policy", value_parser = policy(), value_name = "NAME",
        hide_possible_values = true, help = policy_list(DEFAULT), long_help = policy_help(DEFAULT))]
    pub(crate) asked_policy: Option<&'static PolicyInfo>,
    /// Balancing period: auto, or a duration such as 20ms
    #[arg(long, default_value = "auto", value_name = "DURATION",
        allow_hyphen_values = true, value_parser = period)]
    pub(crate) period: PeriodArg,
    /// Begin when this many threads compute, instead of when their number is stable
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threads: Option<u32>,
    /// Use only these CPUs, for example 0-3,8; a program that is run starts on them, as under taskset
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, value_parser = cpu_list)]
    pub(crate) cpus: Option<CpuSet>,
    /// Run each thread or rank where this mapping says, and balance within it: a file of evenly map,
    /// as its --json or --format masks or csv writes it
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,
    /// What the tasks of --map, --profile and --edges are
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) map_by: MapByArg,
    /// hpc-auto, hpc-uniform, hpc-adaptive: the mechanism that divides a CPU among its threads, or, for
    /// the latter two, that makes threads or CPUs faster or slower (evenly doctor --mechanisms)
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) shares: SharesArg,
    /// hpc-auto, hpc-uniform, hpc-adaptive: a parameter of the policy, for example weight-step=10; evenly
    /// tune lists all of them, and changes them while the program runs (may be given more than once)
    #[arg(long, value_name = "NAME=VALUE", value_parser = hpc_parameter)]
    pub(crate) set: Vec<(Parameter, f64)>,
    /// nuco: loads and messages of the program's ranks or threads, recorded in an earlier run (JSON,
    /// evenly.tasks/1); without it messages are unknown
    #[arg(long, value_name = "FILE")]
    pub(crate) profile: Option<PathBuf>,
    /// nuco: messages between ranks or threads, by their numbers, instead of the messages of
    /// --profile: CSV with columns from, to, messages, and where known bytes. Without --profile all
    /// tasks are taken to compute for 1 s meanwhile
    #[arg(long, value_name = "FILE")]
    pub(crate) edges: Option<PathBuf>,
    /// nuco: place threads anew after this many periods [default: 50]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) every: Option<u32>,
    /// Which sets of CPUs are balanced separately [default: numa where there is more than one]
    #[arg(long, value_enum)]
    pub(crate) domain: Option<DomainArg>,
    /// Do not balance this thread: `first` (of each process), or a thread name
    #[arg(long, value_name = "WHICH")]
    pub(crate) idle_thread: Option<String>,
    /// Balance only threads whose name matches (may be given more than once)
    #[arg(long, value_name = "GLOB")]
    pub(crate) only: Vec<String>,
    /// Do not balance threads whose name matches (may be given more than once)
    #[arg(long, value_name = "GLOB")]
    pub(crate) skip: Vec<String>,
    /// Where thread times come from
    #[arg(long, value_enum, default_value = "schedstat")]
    pub(crate) source: SourceArg,
    /// What the progress of a thread is
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) progress: ProgressArg,
    /// CPU time that evenly may use, in percent of one CPU; moves within phases may take up to ten
    /// times as much of each CPU, at most 10 %, where that is less than they gain. To have CPUs change hands more often
    /// (--cooperate) takes 2 to 11 % of each CPU in addition, where that is less than it gains
    #[arg(long, default_value = "1", value_name = "PERCENT", value_parser = percent)]
    pub(crate) budget: f64,
    /// Never pause to measure the effect of balancing
    #[arg(long)]
    pub(crate) no_guard: bool,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// No report at the end
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Print every decision with its reason (moves within phases are only counted), and the whole report instead of at
    /// most eight lines
    #[arg(short, long, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Write everything to FILE as JSON (evenly.run/1); %h, %p and %r in its name stand for host,
    /// process id and MPI rank
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Record snapshots and plans for `evenly report`; %h, %p and %r as for --json
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,
    /// Largest size of the recording in MiB; when it is near, points are thinned out
    #[arg(long, value_name = "MIB", default_value_t = 64,
        value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub(crate) record_limit: u64,
}

impl BalanceArgs {
    /// The balancing policy: the one that was asked for, or the default.
    pub(crate) fn policy(&self) -> &'static PolicyInfo {
        self.asked_policy.unwrap_or_else(default_policy)
    }
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// What to compare.
    #[arg(long, value_name = "LIST", help = compared_help())]
    pub(crate) policies: Vec<String>,
    /// Measured runs of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,
    /// Rounds before them that are discarded
    #[arg(long, value_name = "N", default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub(crate) warmup: u32,
    /// Fail unless all runs print the same
    #[arg(long)]
    pub(crate) same_output: bool,
    /// Compare this number of seconds from the last JSON object that the program prints, instead of
    /// wall time
    #[arg(long, value_name = "FIELD", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) metric: Option<String>,
    /// The least time that is possible, in seconds: shown beside the results
    #[arg(long, value_name = "SECONDS", value_parser = positive)]
    pub(crate) bound: Option<f64>,
    /// Longest time for one run, for example 5min
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = parse_duration)]
    pub(crate) timeout: Option<Nanos>,
    /// Seed of the order of runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write the results to FILE as JSON (evenly.compare/1); with - to standard output, and the
    /// table to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// No progress, no table
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PredictArgs {
    /// Number of threads that compute
    #[arg(long, value_name = "N", required_unless_present = "from",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) threads: Option<u32>,
    /// Number of CPUs
    #[arg(long, value_name = "M", required_unless_present_any = ["from", "speeds"],
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) cpus: Option<u32>,
    /// CPU time that a thread needs from one barrier to the next, for example 30s
    #[arg(long, required_unless_present = "from",
        allow_hyphen_values = true, value_parser = parse_duration)]
    pub(crate) phase: Option<Nanos>,
    /// Number of phases [default: 1, or what --from shows]
    #[arg(long, value_name = "K",
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) phases: Option<u64>,
    /// Balancing period: auto, or a duration such as 20ms [default: auto, or what --from shows]
    #[arg(long, allow_hyphen_values = true, value_parser = period)]
    pub(crate) period: Option<PeriodArg>,
    /// For how long the scheduler lets a thread run while others wait [default: 4ms]
    #[arg(long, allow_hyphen_values = true, value_parser = parse_duration)]
    pub(crate) slice: Option<Nanos>,
    /// Speeds of the CPUs where they differ, for example 4x1,4x0.6; --phase is for speed 1
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub(crate) speeds: Option<Speeds>,
    /// Take what is not given from this recording of `evenly run --record`
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Write the prediction to FILE as JSON (evenly.predict/1); with - to standard output, and the
    /// words to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct FiguresArgs {
    /// Only those of this paper
    #[arg(long, value_enum)]
    pub(crate) paper: Option<PaperArg>,
    /// Only this figure (may be given more than once)
    #[arg(long, value_name = "FIGURE", value_parser = figure_names())]
    pub(crate) only: Vec<String>,
    /// Write into this directory; it is made where it is missing
    #[arg(long, value_name = "DIR", default_value = "figures")]
    pub(crate) out: PathBuf,
    /// Write what came out to FILE as JSON (evenly.figures/1); with - to standard output, and the
    /// words to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

fn figure_names() -> PossibleValuesParser {
    let figures = evenly_figures::FIGURES.iter();
    PossibleValuesParser::new(figures.map(|f| PossibleValue::new(f.id).help(f.title)))
}

/// `--paper`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum PaperArg {
    /// Hofmeyr and others: Juggle, HPDC 2011
    Juggle,
    /// Yun: secretary algorithm for load balancing, 2013
    Oslb,
    /// Pilla and others: NucoLB, 2012
    Nuco,
    /// Boneti and others: HPCSched, 2008
    Hpc,
    /// Rencuzogullari and Dwarkadas: adaptive loops, PPoPP 2001
    Loops,
}

impl From<PaperArg> for evenly_figures::Paper {
    fn from(p: PaperArg) -> Self {
        match p {
            PaperArg::Juggle => Self::Juggle,
            PaperArg::Oslb => Self::Oslb,
            PaperArg::Nuco => Self::Nuco,
            PaperArg::Hpc => Self::Hpc,
            PaperArg::Loops => Self::Loops,
        }
    }
}

/// Reads a parameter of a policy with its value, such as `high-util=90`.
fn hpc_parameter(text: &str) -> Result<(Parameter, f64), ParameterError> {
    Parameter::given(text)
}

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// Process id of the program that is balanced, or of the evenly that balances it
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: i32,
    /// Parameters to change, for example high-util=90; several are changed together. Without any, all
    /// are shown
    #[arg(value_name = "NAME=VALUE", value_parser = hpc_parameter)]
    pub(crate) values: Vec<(Parameter, f64)>,
    /// Write all parameters to FILE as JSON (evenly.tune/1); - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// Restore only what the balancer with this process id left, or the balancer of this program
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,
    /// Restore threads of a balancer that is alive, too; if it still works, it sets masks again
    #[arg(long)]
    pub(crate) force: bool,
    /// Write what was done to FILE as JSON (evenly.restore/1); - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The recording
    #[arg(value_name = "RECORDING")]
    pub(crate) file: PathBuf,
    /// Write the HTML page to FILE; - is standard output, here and below
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the Perfetto trace to FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) perfetto: Option<PathBuf>,
    /// Write a picture of who ran where to FILE (SVG)
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Further recordings to be shown below it in the picture
    #[arg(long, value_name = "RECORDING", requires = "svg")]
    pub(crate) with: Vec<PathBuf>,
    /// Write what it holds, in figures, to FILE as JSON (evenly.report/1)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Process id of the program; its children are included
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,
    /// Print lines instead of a screen
    #[arg(long)]
    pub(crate) plain: bool,
    /// How often threads are read
    #[arg(long, default_value = "100ms", value_name = "DURATION",
        allow_hyphen_values = true, value_parser = parse_duration)]
    pub(crate) period: Nanos,
    /// Write the state to FILE as JSON, a line a second (evenly.top/1); with - to standard output,
    /// instead of the screen
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("patient").required(true).args(["pid", "from", "mechanisms", "command"]))]
pub(crate) struct DoctorArgs {
    /// Process id of a running program; its children are included
    #[arg(value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,
    /// For how long to watch a running program
    #[arg(long = "for", default_value = "5s", value_name = "DURATION", requires = "pid",
        allow_hyphen_values = true, value_parser = parse_duration)]
    pub(crate) for_: Nanos,
    /// A recording of `evenly doctor --record`, or one of `evenly run --record`, which has no measured speeds of
    /// CPUs
    #[arg(long, value_name = "FILE")]
    pub(crate) from: Option<PathBuf>,
    /// Record the observations, to diagnose them with --from, here or elsewhere; %h, %p and %r as for
    /// evenly run
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "mechanisms"])]
    pub(crate) record: Option<PathBuf>,
    /// List the mechanisms by which this user can give a rank or a thread more or less of this machine,
    /// and why the others are not available; with --json as evenly.mechanisms/1
    #[arg(long)]
    pub(crate) mechanisms: bool,
    /// Correct OMP_NUM_THREADS, OMP_WAIT_POLICY, GOMP_SPINCOUNT, KMP_BLOCKTIME and KMP_LIBRARY for the
    /// available CPUs and the quota before the program starts, and print the changes
    #[arg(long, conflicts_with_all = ["pid", "from", "mechanisms"])]
    pub(crate) fix_env: bool,
    /// Load a library into the program that reports when its threads wait for each other, so that
    /// spinning does not count as computing [default: on, where it can be loaded]
    #[arg(long, value_enum, hide_possible_values = true, value_name = "on|off",
        default_value = "auto", hide_default_value = true,
        conflicts_with_all = ["pid", "from", "mechanisms"])]
    pub(crate) probe: ProbeArg,
    /// Write the diagnosis to FILE as JSON (evenly.doctor/1); with - to standard output where that is
    /// not the program's; %h, %p and %r as for evenly run
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The program to run, and its arguments
    #[arg(last = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use evenly_errors::parse;

    #[test]
    fn the_definition_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for c in Cli::command().get_subcommands().filter(|c| !c.is_hide_set()) {
            let help = c.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("evenly"), "{} has no example", c.get_name());
        }
    }

    #[test]
    fn bad_values_are_refused() {
        for bad in [
            &["run", "--cpus", "", "--", "x"][..],
            &["run", "--cpus", "3-1", "--", "x"],
            &["run", "--period", "0ms", "--", "x"],
            &["run", "--period", "20", "--", "x"],
            &["run", "--threads", "0", "--", "x"],
            &["run", "--policy", "nope", "--", "x"],
            &["run", "--budget", "0", "--", "x"],
            &["run"],
            &["attach", "0"],
            &["attach", "-1"],
            &["compare", "--runs", "0", "--", "x"],
            &["map", "--edges", "e"],
            &["map", "--objects", "o", "--edges", "e", "--matrix", "m"],
            &["map", "--tasks", "t", "--objects", "o"],
            &["map", "--tasks", "t", "--bytes-matrix", "b"],
            &["map", "--tasks", "t", "--alpha", "-1"],
            &["map", "--tasks", "t", "--alpha", "nan"],
            &["map", "--tasks", "t", "--tolerance", "inf"],
            &["map", "--tasks", "t", "--max-migrations", "-1"],
            &["map", "--tasks", "t", "--algorithm", "x"],
            &["map", "--tasks", "t", "--format", "csv"],
            &["map", "--tasks", "t", "--compare", "--out", "x"],
            &["map", "--tasks", "t", "--judge", "x", "--algorithm", "nuco"],
            &["map", "--profile"],
            &["map", "--profile", "x"],
            &["map", "--profile", "--tasks", "t", "--", "x"],
            &["map", "--tasks", "t", "--", "x"],
            &["map", "--tasks", "t", "--mpicc", "x"],
            &["map", "--tasks", "t", "--profile-out", "x"],
        ] {
            let argv = ["evenly"].iter().chain(bad);
            assert!(parse::<Cli, _>(argv).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_refused_is_said_in_one_line() {
        let line = |args: &[&str]| {
            let e = parse::<Cli, _>(["evenly"].iter().chain(args)).unwrap_err();
            evenly_errors::refused(&e, &Cli::command(), args.first().map(OsString::from)).unwrap()
        };
        assert_eq!(
            line(&["compare", "--timeout", "5", "--", "x"]),
            "--timeout: duration '5' needs a number and a unit: ns, us, ms, s or min (for example \
             20ms) (see evenly compare --help)"
        );
        for (args, said) in [
            (
                &["run", "--budget", "0", "--", "x"][..],
                "--budget '0': it must be more than 0 and at most 100 (see evenly run --help)",
            ),
            (
                &["run", "--budget", "-1", "x"],
                "--budget '-1': it must be more than 0 and at most 100 (see evenly run --help)",
            ),
            (
                &["run", "--period", "-5ms", "x"],
                "--period: duration '-5ms' must be longer than 0 and at most 1000000 s; or auto (see \
                 evenly run --help)",
            ),
            (
                &["run", "--cpus", "-1", "x"],
                "--cpus: CPU list '-1': '-1' is not a CPU number or a range such as 0-3,8 (see \
                 evenly run --help)",
            ),
            (&["attach", "-1"], "<PID> '-1': it must be at least 1 (see evenly attach --help)"),
            (
                &["map", "--alpha", "-1"],
                "--alpha '-1': it must be a number that is not negative, at most 1e18; or auto, or \
                 latency (see evenly map --help)",
            ),
            (
                &["map", "--max-migrations", "-1"],
                "--max-migrations '-1': a whole number that is not negative is needed (see evenly map \
                 --help)",
            ),
            (
                &["compare", "--bound", "-1", "x"],
                "--bound '-1': it must be a number that is more than 0 (see evenly compare --help)",
            ),
            (
                &["predict", "--speeds", "-1"],
                "--speeds: speed '-1' must be a number from 0.000001 to 1000000, several equal ones \
                 as in 4x0.5 (see evenly predict --help)",
            ),
        ] {
            assert_eq!(line(args), said);
        }
        assert_eq!(
            line(&["attach", "abc"]),
            "<PID> 'abc': a whole number is needed (see evenly attach --help)"
        );
        assert_eq!(
            line(&["attach"]),
            "the following required arguments were not provided: <PID> (see evenly attach --help)"
        );
    }

    #[test]
    fn a_negative_number_is_a_value_and_no_option() {
        for command in Cli::command().get_subcommands() {
            for arg in command.get_arguments().filter(|a| a.get_action().takes_values()) {
                let Some(long) = arg.get_long() else { continue };
                let option = format!("--{long}");
                let argv = ["evenly", command.get_name(), &option, "-1"];
                // What else the command needs is not there; but that is not what is wrong with it.
                let error = parse::<Cli, _>(argv).err().map(|e| e.kind());
                let unknown = clap::error::ErrorKind::UnknownArgument;
                assert_ne!(error, Some(unknown), "{argv:?}");
            }
        }
    }

    #[test]
    fn the_program_keeps_its_own_flags() {
        let cli = Cli::try_parse_from(["evenly", "run", "./app", "-q", "--json", "x"]).unwrap();
        let Command::Run(run) = cli.command else { panic!("not run") };
        assert_eq!(run.program.command, ["./app", "-q", "--json", "x"]);
        assert!(!run.balance.quiet);
    }
}

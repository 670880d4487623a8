//! The arguments of `evenly topology` and `evenly map`.

use clap::Args;
use clap::builder::{NonEmptyStringValueParser, PathBufValueParser, PossibleValue};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use evenly_cluster::RATIOS;
use evenly_map::Algorithm;
use evenly_model::{MOST_OF_ANYTHING, Nanos, or_meant, parse_duration};
use evenly_nuco::map::Alpha;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct TopologyArgs {
    /// Another machine, as hwloc's synthetic description, such as "numa:2 core:4 pu:2"; several hosts:
    /// "host:2 numa:2 core:4"
    #[arg(long, value_name = "TEXT", conflicts_with = "xml")]
    pub(crate) synthetic: Option<String>,
    /// Another machine, as an XML file that hwloc (`lstopo FILE.xml`) or evenly wrote
    #[arg(long, value_name = "FILE")]
    pub(crate) xml: Option<PathBuf>,
    /// Measure latency and bandwidth between the NUMA nodes, unless that was done before
    #[arg(long, conflicts_with_all = ["synthetic", "xml"])]
    pub(crate) measure: bool,
    /// Measure again
    #[arg(long, requires = "measure")]
    pub(crate) again: bool,
    /// Measure several hosts and the messages between them, and show them as one machine; the command is
    /// MPI's launcher with its options, without a program, and is to start a rank on each host
    #[arg(long, requires_all = ["measure", "command"], conflicts_with_all = ["synthetic", "xml"])]
    pub(crate) network: bool,
    /// The compiler of the launcher's MPI, which builds the ping-pong when it is needed first [default:
    /// the mpicc of the MPI that the launcher belongs to]
    #[arg(long, value_name = "MPICC", requires = "network",
        value_parser = PathBufValueParser::new().map(PathBuf::into_os_string))]
    pub(crate) mpicc: Option<OsString>,
    /// What --network starts on each host: describe it in a directory, with --measure measured before
    #[arg(long, value_name = "DIR", hide = true,
        conflicts_with_all = ["network", "synthetic", "xml", "export", "svg", "json"])]
    pub(crate) as_host: Option<PathBuf>,
    /// Write the machine to FILE as XML of hwloc, with what was measured as distances: for `evenly map
    /// --topology`
    #[arg(long, value_name = "FILE")]
    pub(crate) export: Option<PathBuf>,
    /// Draw the machine into FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write all of it to FILE as JSON (evenly.topology/1); with - to standard output, and the words
    /// to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// With --network: MPI's launcher with its options, such as mpirun -host a,b -n 2
    #[arg(last = true, requires = "network", value_name = "LAUNCHER")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    /// Tasks: CSV with columns id and load_s, and where known pe, migratable, size_bytes
    #[arg(long, value_name = "FILE")]
    pub(crate) objects: Option<PathBuf>,
    /// Messages between tasks: CSV with columns from, to, messages, and where known bytes
    #[arg(long, value_name = "FILE", requires = "objects")]
    pub(crate) edges: Option<PathBuf>,
    /// Tasks and edges in one file: JSON (evenly.tasks/1)
    #[arg(long, value_name = "FILE",
        conflicts_with_all = ["objects", "edges", "matrix", "bytes_matrix", "monitoring"])]
    pub(crate) tasks: Option<PathBuf>,
    /// Messages between tasks: Matrix Market file, in row i, column j the messages from task i-1 to j-1;
    /// loads are from --objects, or all equal
    #[arg(long, value_name = "FILE", conflicts_with_all = ["edges", "monitoring"])]
    pub(crate) matrix: Option<PathBuf>,
    /// The bytes, in the same form as --matrix
    #[arg(long, value_name = "FILE", requires = "matrix")]
    pub(crate) bytes_matrix: Option<PathBuf>,
    /// Messages between tasks: output of Open MPI's monitoring (may be given more than once, for a file of
    /// each rank); loads are from --objects, or all equal
    #[arg(long, value_name = "FILE", conflicts_with = "edges")]
    pub(crate) monitoring: Vec<PathBuf>,
    /// Run an MPI program and count computing time and messages; every rank is a task. The exit status
    /// is that of the program
    #[arg(long, requires = "command", conflicts_with_all = INPUTS)]
    pub(crate) profile: bool,
    /// Write what was counted to FILE (evenly.tasks/1), for --tasks
    #[arg(long, value_name = "FILE", requires = "profile", conflicts_with_all = INPUTS)]
    pub(crate) profile_out: Option<PathBuf>,
    /// The compiler of the program's MPI, which builds the probe when it is needed first [default: the
    /// mpicc of the MPI that program and launcher belong to]
    #[arg(long, value_name = "MPICC", requires = "profile", conflicts_with_all = INPUTS,
        value_parser = PathBufValueParser::new().map(PathBuf::into_os_string))]
    pub(crate) mpicc: Option<OsString>,
    /// The machine: this, hwloc's synthetic syntax such as 'numa:4 core:8' or, for two hosts, 'host:2
    /// numa:4 core:8', or an XML file of hwloc
    #[arg(long, value_name = "MACHINE", default_value = "this",
        value_parser = NonEmptyStringValueParser::new())]
    pub(crate) topology: String,
    /// NUCO factors: CSV, a square of numbers, in row i, column j the latency of node i reading from
    /// node j over that of its own memory; of several hosts all nodes, or those of one for each
    #[arg(long, value_name = "FILE")]
    pub(crate) factors: Option<PathBuf>,
    /// Background load and speed of each core: CSV with the column pe, and where known background_s (it
    /// stays on its core) and speed, as in dumps of Charm++
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    pub(crate) procs: Option<PathBuf>,
    /// nuco+: what the loads are: computing alone, or with-receiving, as where a runtime measured how long
    /// tasks took with the messages that they received [default: what the file says; where it says nothing,
    /// computing for CSV and with-receiving for --tasks]
    #[arg(long = "loads", value_name = "WHAT", conflicts_with = "profile",
        value_parser = PossibleValuesParser::new(LOADS).map(|what| what == LOADS[1]))]
    pub(crate) received_in_loads: Option<bool>,
    /// Where tasks are now: round-robin, compact, or a mapping (CSV with columns id and pe) [default:
    /// what the tasks say; compact where they say nothing]
    #[arg(long, value_name = "WHERE", value_parser = current)]
    pub(crate) current: Option<evenly_map::Current>,
    /// The mapping algorithm
    #[arg(long, default_value = USUAL_MAPPER, value_parser = mapper, value_name = "NAME",
        conflicts_with_all = ["compare", "judge"], long_help = mapper_help())]
    pub(crate) algorithm: Algorithm,
    /// What a message counts for beside load, in seconds: a number; auto; or latency, what local memory
    /// was measured to take, so that a message between hosts counts as long as it takes [default: 1e-5,
    /// greedy-comm 3.5e-5 as Charm++]
    #[arg(long, value_parser = alpha, value_name = "SECONDS|auto|latency")]
    pub(crate) alpha: Option<AlphaArg>,
    /// nuco+, greedy-comm: what a byte counts for beside load, in seconds; 0: messages alone count, as in
    /// NucoLB [default: what the machine's memory takes, 5e-10 where that is not known; greedy-comm 8.5e-9 as
    /// Charm++]
    #[arg(long, value_name = "SECONDS", value_parser = not_negative)]
    pub(crate) beta: Option<f64>,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Time limit of the algorithms that search
    #[arg(long, value_name = "DURATION", default_value = "1s",
        allow_hyphen_values = true, value_parser = parse_duration)]
    pub(crate) time_limit: Nanos,
    /// nuco+: limit its work instead of its time, so that the same input gives the same mapping on every
    /// machine, however busy it is; 1 is the work that one second of --time-limit stands for at most
    #[arg(long, value_name = "N", value_parser = above_0, conflicts_with = "time_limit")]
    pub(crate) effort: Option<f64>,
    /// How long scotch, metis or kahip may take before they are ended
    #[arg(long, value_name = "DURATION", default_value = "10min",
        allow_hyphen_values = true, value_parser = parse_duration)]
    pub(crate) program_limit: Nanos,
    /// nuco+: makespan that a migration must save, in seconds [default: 0.001 over the number of cores
    /// that tasks are on at present; 0 with --profile or a saved profile]
    #[arg(long, value_name = "SECONDS", value_parser = not_negative)]
    pub(crate) migration_worth: Option<f64>,
    /// nuco+: windows over which a migration's cost is spread, each as long as the one that was observed
    /// [default: 1]
    #[arg(long, value_name = "N", value_parser = above_0)]
    pub(crate) windows: Option<f64>,
    /// nuco+: no more migrations than that, whatever else is asked for
    #[arg(long, value_name = "N")]
    pub(crate) max_migrations: Option<usize>,
    /// nuco+: no more imbalance than that, in percent: 5 is a makespan of 1.05 times the mean load; where
    /// that is not reached the nearest mapping is written, a note says so and the exit status is 1
    #[arg(long, value_name = "PERCENT", value_parser = not_negative)]
    pub(crate) max_imbalance: Option<f64>,
    /// refine, scotch, metis, kahip: how far above the mean a core may be loaded, in percent [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = not_negative)]
    pub(crate) tolerance: Option<f64>,
    /// Compare the mappings of all algorithms; external programs only where they are installed
    #[arg(long)]
    pub(crate) compare: bool,
    /// Evaluate this mapping (CSV with columns id and pe) instead of computing one; may be given more
    /// than once, and with --compare
    #[arg(long, value_name = "FILE")]
    pub(crate) judge: Vec<PathBuf>,
    /// Draw what nuco+ gets for how many migrations and how much imbalance, with the mappings of --judge
    /// beside it, to NAME-imbalance.svg, NAME-messages.svg and NAME.csv; each of some 40 runs takes
    /// --time-limit
    #[arg(long, value_name = "NAME", conflicts_with_all = ["compare", "out", "algorithm",
        "migration_worth", "max_migrations", "max_imbalance"])]
    pub(crate) front: Option<PathBuf>,
    /// Write the mapping to FILE; - is standard output, and the table goes to standard error then
    #[arg(long, value_name = "FILE", conflicts_with_all = ["compare", "judge"])]
    pub(crate) out: Option<PathBuf>,
    /// In which form --out is written
    #[arg(long, value_name = "FORMAT", default_value = "csv", requires = "out",
        value_parser = format_names())]
    pub(crate) format: String,
    /// Names of the hosts, separated by commas, for rankfile, hostfile and mpich [default: those that
    /// the XML of several hosts has; host0, host1, ... of a synthetic machine]
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "out",
        value_parser = NonEmptyStringValueParser::new())]
    pub(crate) hosts: Vec<String>,
    /// Write everything to FILE as JSON (evenly.map/1, with --compare and --judge
    /// evenly.map-comparison/1); with - to standard output, and the table to standard error
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// No table, no notes
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// With --profile: the program as it is started, with its launcher
    #[arg(last = true, requires = "profile", value_name = "CMD", conflicts_with_all = INPUTS)]
    pub(crate) command: Vec<OsString>,
}

/// Where tasks come from without --profile. What belongs to --profile names them too: clap lets go of
/// what is required where it conflicts with what is given.
const INPUTS: [&str; 6] = ["objects", "edges", "tasks", "matrix", "bytes_matrix", "monitoring"];

/// The algorithm where none is named.
const USUAL_MAPPER: &str = "nuco+";

fn mapper(name: &str) -> Result<Algorithm, String> {
    Algorithm::find(name).ok_or_else(|| {
        let names: Vec<&str> = Algorithm::all().map(Algorithm::name).collect();
        let near = or_meant(name, names.iter().copied());
        format!("no such algorithm{near}; the algorithms are {}", names.join(", "))
    })
}

fn mapper_help() -> String {
    let width = Algorithm::all().map(|a| a.name().len()).max().unwrap_or(0);
    let list: Vec<String> =
        Algorithm::all().map(|a| format!("  {:width$}  {}", a.name(), a.about())).collect();
    format!("The mapping algorithm:\n{}", list.join("\n"))
}

fn format_names() -> PossibleValuesParser {
    let formats = evenly_map::FORMATS.iter();
    PossibleValuesParser::new(formats.map(|f| PossibleValue::new(f.name).help(f.about)))
}

fn current(text: &str) -> Result<evenly_map::Current, String> {
    use evenly_map::Current;
    Ok(match text {
        "" => return Err(String::from("it is empty; round-robin, compact or a file is needed")),
        "round-robin" => Current::RoundRobin,
        "compact" => Current::Compact,
        file if Path::new(file).exists() => Current::File(PathBuf::from(file)),
        _ => return Err(String::from("No such file; round-robin, compact or a mapping is needed")),
    })
}

/// What loads of tasks are, the second with what they received.
const LOADS: [&str; 2] = ["computing", "with-receiving"];

/// What `--alpha` asks for: a number, or a way to find one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AlphaArg {
    /// A number as it was given, or `auto`.
    Is(Alpha),
    /// The measured latency of local memory.
    Latency,
}

fn alpha(text: &str) -> Result<AlphaArg, String> {
    match text {
        "auto" => Ok(AlphaArg::Is(Alpha::Auto)),
        "latency" => Ok(AlphaArg::Latency),
        number => not_negative(number)
            .map(|alpha| AlphaArg::Is(Alpha::Fixed(alpha)))
            .map_err(|e| format!("{e}; or auto, or latency")),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if (0.0..=MOST_OF_ANYTHING).contains(&x) => Ok(x),
        _ => Err(format!("it must be a number that is not negative, at most {MOST_OF_ANYTHING:e}")),
    }
}

fn above_0(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if RATIOS.contains(&x) => Ok(x),
        _ => Err(String::from("it must be a number above 0, from 1e-9 to 1e9")),
    }
}

//! An MPI program whose ranks compute and send unequally (`mpi_stencil`): profiled, mapped, and run where
//! the mapping says, beside where a launcher puts ranks by itself. On this machine, and on two simulated
//! hosts with a CPU each and a delay between them.
//!
//! Everything goes through the commands that a user has: `evenly topology --measure --network`, `evenly
//! map --profile`, `evenly map --tasks`, and the launchers of both MPIs with the files that evenly wrote.
//!
//! Invariant: all arms of a case run the same program with the same input, one of each in every round;
//! what is compared is what the program itself measured, and a run whose answer is wrong ends all.

use crate::host::HostRecord;
use crate::measure::Watching;
use crate::measured::Measured;
use crate::mpi::{ENVIRONMENT, MpiArg};
use crate::show::{Shown, interrupts, print, table, tell};
use anyhow::Context;
use clap::{Args, ValueEnum};
use evenly_compare::{Arm, Metric, Options, ProcessExecutor};
use evenly_hosts::{Hosts, Wanted};
use evenly_linux::affinity;
use evenly_model::stats::{Random, median};
use evenly_model::{CpuId, CpuSet, Nanos, Tid, parse_duration};
use serde::Serialize;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The sources of the program that is run.
const SOURCES: [(&str, &str); 4] = [
    ("mpi_stencil.c", include_str!("../../../workloads/mpi_stencil.c")),
    ("common.c", include_str!("../../../workloads/common.c")),
    ("common.h", include_str!("../../../workloads/common.h")),
    ("poisson.h", include_str!("../../../workloads/poisson.h")),
];
/// Name and version of the JSON form.
const SCHEMA: &str = "evenly.bench-hosts/1";
/// Names of the simulated hosts.
const NAMES: [&str; 2] = ["evenly-a", "evenly-b"];
/// The arm that others are held against.
const DEFAULT: &str = "default";
/// Algorithms whose mappings are run.
const ALGORITHMS: [&str; 3] = ["treematch", "nuco", OURS];
/// The one that is to be no worse than all others.
const OURS: &str = "nuco+";
/// Longer than any run should take.
const LIMIT: Duration = Duration::from_secs(300);

/// The arguments of `evenly-bench hosts`.
#[derive(Debug, Args)]
pub(crate) struct HostsArgs {
    /// The program evenly [default: beside this one]
    #[arg(long, value_name = "FILE")]
    evenly: Option<PathBuf>,
    /// Which MPIs, as Debian names their programs (mpicc.openmpi, mpirun.mpich)
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["openmpi", "mpich"])]
    mpi: Vec<MpiArg>,
    /// Where: on this machine, on two simulated hosts, or both
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["here", "hosts"])]
    on: Vec<On>,
    /// Delays between the two hosts, one way
    #[arg(long, value_name = "DURATION,...", value_delimiter = ',', value_parser = delay,
        default_values = ["0", "200us", "1ms"])]
    delays: Vec<Nanos>,
    /// Numbers of ranks; even
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_values_t = [4, 8],
        value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Vec<u32>,
    /// Interior points per side of the stencil
    #[arg(long, default_value_t = 800, value_parser = clap::value_parser!(u32).range(8..=30_000))]
    size: u32,
    /// Sweeps of the stencil
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sweeps: u32,
    /// How many times as high the highest blocks are as the lowest
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    uneven: u32,
    /// Runs of each arm
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Seed of the order of runs, and of what is random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write everything to FILE as JSON (evenly.bench-hosts/1)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Where the program runs: `--on`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    /// This machine
    Here,
    /// Two simulated hosts
    Hosts,
}

/// A duration, or none.
fn delay(text: &str) -> Result<Nanos, String> {
    if text == "0" {
        return Ok(Nanos::default());
    }
    parse_duration(text).map_err(|e| e.to_string())
}

/// What the benchmark has measured.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    machine: HostRecord,
    size: u32,
    sweeps: u32,
    uneven: u32,
    runs: u32,
    seed: u64,
    cases: Vec<Case>,
    /// Whether it was interrupted.
    incomplete: bool,
}

/// What is known of the wire between two hosts.
#[derive(Debug, Clone, Serialize)]
struct Wire {
    /// What was asked for.
    delay_us: f64,
    /// Whether it was carried by real-time threads.
    prompt: bool,
    /// A small message, one way, as `evenly topology --network` measured it: median, least, most.
    message_us: [f64; 3],
    bytes_per_s: f64,
    /// NETWORK factors: of the first host receiving from the second, and the other way.
    factors: [f64; 2],
}

/// One number of ranks with one MPI at one place.
#[derive(Debug, Serialize)]
struct Case {
    /// None: on this machine.
    wire: Option<Wire>,
    mpi: MpiArg,
    ranks: u32,
    /// What each rank computed in the profiled run.
    loads_s: Vec<f64>,
    messages: f64,
    arms: Vec<ArmFigures>,
}

/// What the runs of an arm amount to.
#[derive(Debug, Serialize)]
struct ArmFigures {
    name: String,
    /// The host (a or b) or the core of each rank; null where the kernel decides.
    placement: Option<String>,
    /// What the program measured, in every run.
    seconds: Vec<f64>,
    makespan_s: Option<Measured>,
    /// The default arm's makespan over this one's, round by round.
    speedup: Option<Measured>,
    /// This arm's makespan over that of `nuco+`, round by round: below 1 where it is the better one.
    over_nuco_plus: Option<Measured>,
    /// CPU time that other programs of this machine took, in the median run.
    others: Option<f64>,
}

/// Where a case runs.
struct Place {
    hosts: Option<Hosts>,
    /// CPUs that are used.
    cpus: CpuSet,
}

/// An arm before it has run.
struct Planned {
    name: String,
    options: Vec<String>,
    placement: Option<String>,
}

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &HostsArgs) -> anyhow::Result<()> {
    let room = tempfile::tempdir().context("cannot make a directory")?;
    if let Some(odd) = args.ranks.iter().find(|n| *n % 2 == 1) {
        anyhow::bail!("--ranks {odd}: an even number is needed, as there are two hosts");
    }
    let allowed = affinity::get(Tid(0)).context("cannot read the affinity mask")?;
    let bench = Bench {
        args,
        evenly: evenly(args.evenly.as_deref())?,
        room: room.path().to_owned(),
        interrupted: interrupts()?,
    };
    let mut report = Report {
        schema: SCHEMA,
        machine: HostRecord::this(&allowed),
        size: args.size,
        sweeps: args.sweeps,
        uneven: args.uneven,
        runs: args.runs,
        seed: args.seed,
        cases: Vec::new(),
        incomplete: false,
    };
    for mpi in &args.mpi {
        mpi.build(&SOURCES, &bench.program(*mpi))?;
    }
    if args.on.contains(&On::Here) {
        let place = Place { hosts: None, cpus: allowed.clone() };
        bench.run(&place, None, &mut report)?;
    }
    for delay in args.delays.iter().filter(|_| args.on.contains(&On::Hosts)) {
        let two: Vec<CpuId> = allowed.iter().take(2).collect();
        let [a, b] = two[..] else {
            anyhow::bail!("two hosts need a CPU each, and only {allowed} is allowed");
        };
        let hosts = Hosts::new(&Wanted {
            names: NAMES,
            delay: Duration::from_nanos(delay.0),
            cpus: Some([CpuSet::single(a), CpuSet::single(b)]),
        });
        let hosts = match hosts {
            Ok(hosts) => hosts,
            Err(e) => {
                tell(&format!("evenly-bench: skipped, two hosts: {e}"));
                break;
            }
        };
        let place = Place { hosts: Some(hosts), cpus: [a, b].into_iter().collect() };
        bench.run(&place, Some(*delay), &mut report)?;
    }
    report.incomplete = bench.interrupted.load(Ordering::Relaxed);
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report)? + "\n";
        fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Finds the program evenly.
fn evenly(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let evenly = match named {
        Some(path) => path.to_owned(),
        None => std::env::current_exe()
            .context("cannot find this program's own file")?
            .with_file_name("evenly"),
    };
    evenly.canonicalize().with_context(|| {
        format!(
            "there is no {}; build it with `cargo build --release -p evenly-cli`, or name it with \
             --evenly",
            evenly.display()
        )
    })
}

/// What all cases have in common.
struct Bench<'a> {
    args: &'a HostsArgs,
    evenly: PathBuf,
    /// A directory for files.
    room: PathBuf,
    interrupted: Arc<AtomicBool>,
}

impl Bench<'_> {
    fn program(&self, mpi: MpiArg) -> PathBuf {
        self.room.join(mpi.tool("mpi_stencil"))
    }

    fn path(&self, name: &str) -> String {
        self.room.join(name).display().to_string()
    }

    /// Words of a command at a place: on the first host, where there are two.
    fn words(&self, place: &Place, words: &[&str]) -> Vec<OsString> {
        let on = place.hosts.iter().flat_map(|hosts| hosts.on(0));
        on.map(OsString::from).chain(words.iter().map(OsString::from)).collect()
    }

    fn environment(&self, place: &Place) -> Vec<(OsString, OsString)> {
        let mut all: Vec<(OsString, OsString)> =
            ENVIRONMENT.map(|(name, value)| (name.into(), value.into())).into();
        // More ranks than CPUs: those that wait let others run.
        all.push(("OMPI_MCA_mpi_yield_when_idle".into(), "1".into()));
        // Measured in this very call, and kept for as long.
        all.push(("XDG_CACHE_HOME".into(), self.room.join("cache").into_os_string()));
        for (name, value) in place.hosts.iter().flat_map(Hosts::environment) {
            all.push((name.into(), value.into()));
        }
        all
    }

    /// Runs evenly to its end; what the program under it prints is not looked at.
    fn evenly(&self, place: &Place, words: &[&str]) -> anyhow::Result<()> {
        let evenly = self.evenly.display().to_string();
        let words = self.words(place, &[&[evenly.as_str()], words].concat());
        let (program, rest) = words.split_first().context("no command")?;
        let output = Command::new(program)
            .args(rest)
            .envs(self.environment(place))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(
            output.status.success(),
            "{} ended with {}: {}",
            words.join(" ".as_ref()).display(),
            output.status,
            said.trim()
        );
        Ok(())
    }

    fn json(&self, name: &str) -> anyhow::Result<Value> {
        let path = self.room.join(name);
        let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no JSON", path.display()))
    }

    /// All cases at a place.
    fn run(&self, place: &Place, delay: Option<Nanos>, report: &mut Report) -> anyhow::Result<()> {
        if delay.is_none() {
            self.evenly(place, &["topology", "--measure"])?;
        }
        for &mpi in &self.args.mpi {
            let wire = delay.map(|delay| self.measured(place, mpi, delay)).transpose()?;
            for &ranks in &self.args.ranks {
                if self.interrupted.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let case = self.case(place, wire.clone(), mpi, ranks)?;
                print(&case.text())?;
                report.cases.push(case);
            }
        }
        Ok(())
    }

    /// The words with which a launcher starts so many ranks, filling one host after the other.
    fn launcher(place: &Place, mpi: MpiArg, ranks: u32) -> Vec<String> {
        let mut words = vec![mpi.tool("mpirun"), String::from("-n"), ranks.to_string()];
        if place.hosts.is_some() {
            words.extend(on_hosts(mpi, ranks / 2));
        }
        words
    }

    /// The machine, as `--topology` takes it.
    fn topology(&self, place: &Place) -> String {
        if place.hosts.is_some() { self.path("hosts.xml") } else { String::from("this") }
    }

    /// The memory of the hosts is measured once, the network for each delay; to evenly it is the same.
    fn forget_network(&self) -> anyhow::Result<()> {
        let dir = self.room.join("cache/evenly/topology");
        let cannot = || format!("cannot read {}", dir.display());
        if !dir.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(&dir).with_context(cannot)? {
            let path = entry.with_context(cannot)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("network-") {
                fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// What the network between two hosts costs with this MPI.
    fn measured(&self, place: &Place, mpi: MpiArg, delay: Nanos) -> anyhow::Result<Wire> {
        let (xml, json) = (self.path("hosts.xml"), self.path("network.json"));
        let launcher = Self::launcher(place, mpi, 2);
        self.forget_network()?;
        let mut words =
            vec!["topology", "--measure", "--network", "--export", &xml, "--json", &json, "--"];
        words.extend(launcher.iter().map(String::as_str));
        self.evenly(place, &words)?;
        let found = self.json("network.json")?;
        let number = |v: &Value| v.as_f64().context("evenly topology left out a number");
        let pair = &found["network"]["pairs"][0];
        let us = |what: &str| number(&pair["latency_ns"][what]).map(|ns| ns / 1e3);
        let matrix = &found["factors"]["matrix"];
        let last = matrix.as_array().map_or(0, |rows| rows.len().saturating_sub(1));
        Ok(Wire {
            delay_us: delay.as_secs_f64() * 1e6,
            prompt: place.hosts.as_ref().is_some_and(Hosts::wire_is_prompt),
            message_us: [us("median")?, us("low")?, us("high")?],
            bytes_per_s: number(&pair["bytes_per_s"]["median"])?,
            factors: [number(&matrix[0][last])?, number(&matrix[last][0])?],
        })
    }

    fn case(
        &self,
        place: &Place,
        wire: Option<Wire>,
        mpi: MpiArg,
        ranks: u32,
    ) -> anyhow::Result<Case> {
        let program = self.program(mpi).display().to_string();
        let [size, sweeps, uneven] =
            [self.args.size, self.args.sweeps, self.args.uneven].map(|n| n.to_string());
        let stencil = [&program, "--size", &size, "--sweeps", &sweeps, "--uneven", &uneven]
            .map(str::to_owned);

        // Profile.
        let (topology, tasks) = (self.topology(place), self.path("tasks.json"));
        let launcher = Self::launcher(place, mpi, ranks);
        let mut words = vec!["map", "--profile", "--quiet", "--topology", &topology];
        words.extend(["--algorithm", "compact", "--profile-out", &tasks, "--"]);
        words.extend(launcher.iter().chain(&stencil).map(String::as_str));
        self.evenly(place, &words)?;
        let profile = self.json("tasks.json")?;
        let numbers = |list: &str, field: &str| -> Vec<f64> {
            let all = profile[list].as_array().into_iter().flatten();
            all.filter_map(|one| one[field].as_f64()).collect()
        };

        // Map.
        let mut planned = self.usual(place, mpi, ranks)?;
        for algorithm in ALGORITHMS {
            planned.push(self.mapped(place, mpi, &topology, &tasks, algorithm)?);
        }

        // Run.
        let arm = |p: &Planned| {
            let mut words = vec![mpi.tool("mpirun"), String::from("-n"), ranks.to_string()];
            words.extend(p.options.iter().chain(&stencil).cloned());
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let mut arm = Arm::new(p.name.as_str(), self.words(place, &words));
            arm.env = self.environment(place);
            arm
        };
        let arms: Vec<Arm> = planned.iter().map(arm).collect();
        let options = Options {
            command: stencil.to_vec(),
            runs: self.args.runs as usize,
            seed: self.args.seed,
            metric: Metric::Field(String::from("makespan_s")),
            ..Options::default()
        };
        let mut executor = Watching {
            inner: ProcessExecutor {
                limit: Some(LIMIT),
                interrupted: self.interrupted.clone(),
                ..ProcessExecutor::default()
            },
            cpus: place.cpus.clone(),
            loads: Vec::new(),
        };
        let mut shown = Shown::new(&title(wire.as_ref(), mpi, ranks));
        let found = evenly_compare::compare(&arms, &options, &mut executor, &mut shown)?;
        shown.bar.clear();

        let of = |name: &str| {
            found.results.iter().find(|r| r.policy == name).map_or(&[][..], |r| &r.seconds)
        };
        let over = |a: &[f64], b: &[f64]| {
            let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| a / b).collect();
            Measured::median(&ratios, self.args.seed)
        };
        let figures = |(planned, result): (Planned, &evenly_compare::ArmResult)| {
            let others: Vec<f64> = executor
                .loads
                .iter()
                .filter(|(name, _)| *name == planned.name)
                .map(|(_, load)| load.others)
                .collect();
            ArmFigures {
                seconds: result.seconds.clone(),
                makespan_s: Measured::median(&result.seconds, self.args.seed),
                speedup: over(of(DEFAULT), &result.seconds),
                over_nuco_plus: over(&result.seconds, of(OURS)),
                others: median(&others),
                name: planned.name,
                placement: planned.placement,
            }
        };
        Ok(Case {
            wire,
            mpi,
            ranks,
            loads_s: numbers("tasks", "load_s"),
            messages: numbers("edges", "messages").iter().sum(),
            arms: planned.into_iter().zip(&found.results).map(figures).collect(),
        })
    }

    /// What one has without evenly: where the launcher puts ranks by itself, and as many on each CPU in
    /// random order.
    fn usual(&self, place: &Place, mpi: MpiArg, ranks: u32) -> anyhow::Result<Vec<Planned>> {
        let n = ranks as usize;
        let mut shuffled: Vec<usize> = (0..n).map(|rank| rank % place.cpus.len()).collect();
        Random::new(self.args.seed).shuffle(&mut shuffled);
        let plan = |name: &str, options: Vec<String>, placement: Option<String>| Planned {
            name: name.to_owned(),
            options,
            placement,
        };
        let file = self.path("shuffled.txt");
        if place.hosts.is_none() {
            let cpus: Vec<CpuId> = place.cpus.iter().collect();
            let options = match mpi {
                MpiArg::Openmpi => {
                    let lines = shuffled.iter().enumerate();
                    let lines = lines.map(|(r, core)| format!("rank {r}=localhost slot={core}\n"));
                    fs::write(&file, lines.collect::<String>())
                        .context("cannot write a rank file")?;
                    rank_file(&file)
                }
                MpiArg::Mpich => {
                    let list: Vec<String> = shuffled.iter().map(|c| cpus[*c].to_string()).collect();
                    vec![String::from("-bind-to"), format!("user:{}", list.join(","))]
                }
            };
            return Ok(vec![
                plan(DEFAULT, Vec::new(), None),
                plan("shuffled", options, Some(letters(&shuffled))),
            ]);
        }
        let filled: Vec<usize> = (0..n).map(|rank| 2 * rank / n).collect();
        let turns: Vec<usize> = (0..n).map(|rank| rank % 2).collect();
        let in_turn = match mpi {
            MpiArg::Openmpi => {
                let by_node = ["--map-by", "node"].map(str::to_owned);
                on_hosts(mpi, ranks / 2).into_iter().chain(by_node).collect()
            }
            MpiArg::Mpich => on_hosts(mpi, 1),
        };
        let options = match mpi {
            MpiArg::Openmpi => {
                let lines = shuffled.iter().map(|host| format!("{}\n", NAMES[*host]));
                fs::write(&file, lines.collect::<String>()).context("cannot write a host file")?;
                host_file(&file)
            }
            MpiArg::Mpich => {
                let list: Vec<&str> = shuffled.iter().map(|host| NAMES[*host]).collect();
                vec![String::from("-hosts"), list.join(",")]
            }
        };
        Ok(vec![
            plan(DEFAULT, on_hosts(mpi, ranks / 2), Some(letters(&filled))),
            plan("in turn", in_turn, Some(letters(&turns))),
            plan("shuffled", options, Some(letters(&shuffled))),
        ])
    }

    /// A mapping of evenly, as the launcher takes it.
    fn mapped(
        &self,
        place: &Place,
        mpi: MpiArg,
        topology: &str,
        tasks: &str,
        algorithm: &str,
    ) -> anyhow::Result<Planned> {
        let (out, json) = (self.path(&format!("{algorithm}.txt")), self.path("map.json"));
        let format = match (mpi, &place.hosts) {
            (MpiArg::Openmpi, None) => "rankfile",
            // Each host has another CPU, which rank files of Open MPI 4.1 cannot say.
            (MpiArg::Openmpi, Some(_)) => "hostfile",
            (MpiArg::Mpich, _) => "mpich",
        };
        let mut words = vec!["map", "--quiet", "--tasks", tasks, "--topology", topology];
        words.extend(["--alpha", "latency", "--algorithm", algorithm]);
        words.extend(["--format", format, "--out", &out, "--json", &json]);
        if place.hosts.is_none() {
            words.extend(["--hosts", "localhost"]);
        }
        self.evenly(place, &words)?;
        let text = fs::read_to_string(&out).with_context(|| format!("cannot read {out}"))?;
        let options = match mpi {
            MpiArg::Openmpi if place.hosts.is_some() => host_file(&out),
            MpiArg::Openmpi => rank_file(&out),
            MpiArg::Mpich => text.split_whitespace().map(str::to_owned).collect(),
        };
        let map = self.json("map.json")?;
        let mut cores: Vec<(u64, u64)> = map["assignment"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|place| Some((place["id"].as_u64()?, place["core"].as_u64()?)))
            .collect();
        cores.sort_unstable();
        let used: CpuSet = map["machine"]["core_ids"]
            .as_str()
            .and_then(|list| list.parse().ok())
            .context("evenly map names no cores")?;
        // Each host uses one core here, whatever its number is; on this machine cores have the numbers
        // of CPUs.
        let place_of = |core: u64| match place.hosts {
            Some(_) => used.iter().position(|id| u64::from(id.0) == core).unwrap_or_default(),
            None => place.cpus.iter().position(|cpu| u64::from(cpu.0) == core).unwrap_or_default(),
        };
        let cores: Vec<usize> = cores.into_iter().map(|(_, core)| place_of(core)).collect();
        Ok(Planned { name: algorithm.to_owned(), options, placement: Some(letters(&cores)) })
    }
}

/// Options for so many ranks on each host before the next has any.
fn on_hosts(mpi: MpiArg, each: u32) -> Vec<String> {
    let option = match mpi {
        MpiArg::Openmpi => "-host",
        MpiArg::Mpich => "-hosts",
    };
    let list = NAMES.map(|name| format!("{name}:{each}")).join(",");
    vec![option.to_owned(), list]
}

/// Options for a rank file of Open MPI, in which ranks share cores.
fn rank_file(file: &str) -> Vec<String> {
    ["--rankfile", file, "--bind-to", ":overload-allowed"].map(str::to_owned).to_vec()
}

/// Options for a file with the host of each rank.
fn host_file(file: &str) -> Vec<String> {
    ["--hostfile", file, "--map-by", "seq"].map(str::to_owned).to_vec()
}

/// A letter for each rank: its host or its core.
fn letters(places: &[usize]) -> String {
    places.iter().map(|p| char::from(b'a' + (*p % 26) as u8)).collect()
}

fn title(wire: Option<&Wire>, mpi: MpiArg, ranks: u32) -> String {
    match wire {
        None => format!("this machine, {}, {ranks} ranks", mpi.words()),
        Some(w) => {
            format!("two hosts, {:.0} us between them, {}, {ranks} ranks", w.delay_us, mpi.words())
        }
    }
}

impl Case {
    fn text(&self) -> String {
        let mut text = title(self.wire.as_ref(), self.mpi, self.ranks);
        if let Some(w) = &self.wire {
            let [median, low, high] = w.message_us;
            text.push_str(&format!(
                "; a message takes {median:.1} [{low:.1}, {high:.1}] us, {:.0} times local memory, \
                 and {:.0} MB/s go over",
                w.factors[0],
                w.bytes_per_s / 1e6
            ));
        }
        text.push('\n');
        let head =
            ["arm", "ranks on", "makespan s", "default over it", "it over nuco+", "others %"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for arm in &self.arms {
            let measured =
                |m: &Option<Measured>| m.as_ref().map_or_else(|| "-".into(), |m| m.text(3));
            rows.push(vec![
                arm.name.clone(),
                arm.placement.clone().unwrap_or_else(|| "-".into()),
                measured(&arm.makespan_s),
                measured(&arm.speedup),
                measured(&arm.over_nuco_plus),
                arm.others.map_or_else(|| "-".into(), |part| format!("{:.1}", 100.0 * part)),
            ]);
        }
        text.push_str(&table(&rows));
        text.push('\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_letters() {
        assert_eq!(letters(&[0, 1, 1, 0, 25, 26]), "abbaza");
    }

    #[test]
    fn a_case_in_words() {
        let arm = |name: &str, seconds: &[f64]| ArmFigures {
            name: name.to_owned(),
            placement: Some(String::from("abab")),
            seconds: seconds.to_vec(),
            makespan_s: Measured::median(seconds, 1),
            speedup: Measured::median(&[2.0], 1),
            over_nuco_plus: Measured::median(&[1.25], 1),
            others: None,
        };
        let wire = Wire {
            delay_us: 200.0,
            prompt: true,
            message_us: [215.0, 210.0, 230.0],
            bytes_per_s: 1e8,
            factors: [2_400.0, 2_000.0],
        };
        let case = Case {
            wire: Some(wire),
            mpi: MpiArg::Mpich,
            ranks: 4,
            loads_s: vec![1.0; 4],
            messages: 10.0,
            arms: vec![arm("default", &[1.0]), arm("nuco", &[])],
        };
        let text = case.text();
        let first = "two hosts, 200 us between them, MPICH, 4 ranks; a message takes 215.0 \
                     [210.0, 230.0] us, 2400 times local memory, and 100 MB/s go over";
        assert_eq!(text.lines().next(), Some(first));
        assert!(
            text.contains("abab") && text.contains("2.000") && text.contains("1.250"),
            "{text}"
        );
    }
}

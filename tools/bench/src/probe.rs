//! What the MPI probe costs: a program whose ranks each send small messages at a steady rate, as it is, with
//! the probe of `evenly map --profile`, and with those of `evenly run --probe on --policy nuco`, in turns.
//!
//! What is compared is the CPU time of the slowest rank between two barriers, as the program prints it.
//! On idle CPUs that is the time that passes, as MPI spins; beside other programs a single rank, which
//! sends to itself and never waits, still shows what the probe adds (`--ranks 1`).
//!
//! Invariant: all arms do the same work, a number of steps found once in this very call.

use crate::mpi::{ENVIRONMENT, MpiArg};
use crate::show::{interrupts, print, tell};
use anyhow::Context;
use clap::Args;
use evenly_compare::{Arm, ArmResult, Comparison, Metric, Options, ProcessExecutor, Silent, table};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The source of the program that is run.
const SOURCE: &str = include_str!("../../../workloads/mpi_rate.c");

/// The arguments of `evenly-bench probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// The program evenly [default: beside this one]
    #[arg(long, value_name = "FILE")]
    evenly: Option<PathBuf>,
    /// Which MPI, as Debian names its programs (mpicc.openmpi, mpirun.openmpi)
    #[arg(long, value_enum, default_value = "openmpi")]
    mpi: MpiArg,
    /// Ranks; each needs a CPU for itself
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// Messages that each rank sends a second, without the probe
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    rate: u32,
    /// Messages of each rank in a run
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    messages: u32,
    /// Runs of each
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Seed of the order of runs
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write everything to FILE as JSON (evenly.compare/1)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Names of the arms.
const PLAIN: &str = "plain";
const PROBE: &str = "probe";
const LIVE: &str = "live";

/// Runs the benchmark, and prints what came out.
pub(crate) fn compare(args: &ProbeArgs) -> anyhow::Result<()> {
    let evenly = match &args.evenly {
        Some(path) => path.clone(),
        None => std::env::current_exe()
            .context("cannot find this program's own file")?
            .with_file_name("evenly"),
    };
    anyhow::ensure!(
        evenly.is_file(),
        "there is no {}; build it with `cargo build --release -p evenly-cli`, or name it with --evenly",
        evenly.display()
    );
    let dir = tempfile::tempdir().context("cannot make a directory")?;
    let program = dir.path().join("mpi_rate");
    args.mpi.build(&[("mpi_rate.c", SOURCE)], &program)?;
    let ranks = args.ranks.to_string();
    let launch = |rest: &[&str]| -> Vec<OsString> {
        let mut argv: Vec<OsString> =
            [args.mpi.tool("mpirun").as_str(), "-n", &ranks].map(OsString::from).into();
        argv.push(program.clone().into_os_string());
        argv.extend(rest.iter().map(OsString::from));
        argv
    };
    let steps = calibrated(&launch(&["--calibrate", &args.rate.to_string()]))?;
    tell(&format!("{steps} steps of work after each message"));
    let mut executor = ProcessExecutor { interrupted: interrupts()?, ..ProcessExecutor::default() };
    let mut run = |messages: u32, steps: u64| -> anyhow::Result<Comparison> {
        let words = ["--messages", &messages.to_string(), "--steps", &steps.to_string()];
        let plain = launch(&words);
        let with = |name, options: &[&str]| {
            let options = options.iter().map(OsString::from).chain(plain.iter().cloned());
            Arm::new(name, [evenly.clone().into_os_string()].into_iter().chain(options))
        };
        let mut arms =
            [Arm::new(PLAIN, plain.clone()), with(PROBE, &PROFILE), with(LIVE, &COUNTED_LIVE)];
        for arm in &mut arms {
            arm.env = ENVIRONMENT.map(|(name, value)| (name.into(), value.into())).into();
        }
        let options = Options {
            command: plain.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            runs: args.runs as usize,
            warmup: 1,
            seed: args.seed,
            metric: Metric::Field(String::from("cpu_s")),
            ..Options::default()
        };
        Ok(evenly_compare::compare(&arms, &options, &mut executor, &mut Silent)?)
    };
    let found = run(args.messages, steps)?;
    print(&table(&found, false))?;
    for (name, what) in WORDS {
        let Some(cost) = result(&found, PLAIN).and_then(|r| r.speedup_vs.get(name)) else {
            continue;
        };
        let percent = |ratio: f64| 100.0 * (ratio - 1.0);
        let interval = cost.ci95.map_or_else(String::new, |[low, high]| {
            format!(" [{:.2}, {:.2}]", percent(low), percent(high))
        });
        print(&format!("{what} adds {:.2}{interval} % of CPU time\n", percent(cost.ratio)))?;
    }
    // The same without work: what is small beside work, and lost in the noise of a busy machine, is
    // large here.
    let messages = args.messages.saturating_mul(10);
    let bare = run(messages, 0)?;
    for (name, what) in WORDS {
        let Some(ns) = added_ns(&bare, name, messages) else { continue };
        print(&format!(
            "without work a message takes {ns:.0} ns of CPU time more with {what}: {:.2} % at {} \
             messages a second\n",
            ns * f64::from(args.rate) / 1e7,
            args.rate
        ))?;
    }
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&found)? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The options before the program.
const PROFILE: [&str; 8] =
    ["map", "--profile", "-q", "--topology", "core:64", "--algorithm", "compact", "--"];
const COUNTED_LIVE: [&str; 7] = ["run", "-q", "--probe", "on", "--policy", "nuco", "--"];

/// The arms that have the probe, in words.
const WORDS: [(&str, &str); 2] = [(PROBE, "a profile"), (LIVE, "counting while it runs")];

fn result<'a>(found: &'a Comparison, name: &str) -> Option<&'a ArmResult> {
    found.results.iter().find(|r| r.policy == name)
}

/// What an arm adds to a message, in ns: the difference of the medians.
fn added_ns(found: &Comparison, arm: &str, messages: u32) -> Option<f64> {
    let median = |name| result(found, name)?.median_s;
    Some((median(arm)? - median(PLAIN)?) * 1e9 / f64::from(messages))
}

/// The steps that the program finds for the rate.
fn calibrated(argv: &[OsString]) -> anyhow::Result<u64> {
    let (launcher, rest) = argv.split_first().context("no command")?;
    let output = Command::new(launcher)
        .args(rest)
        .envs(ENVIRONMENT)
        .output()
        .with_context(|| format!("cannot start {}", launcher.display()))?;
    steps(&output).with_context(|| {
        format!(
            "mpi_rate printed no number of steps: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )
    })
}

/// The number that is printed; 0 steps would not make the rate.
fn steps(output: &Output) -> Option<u64> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().ok().filter(|steps| *steps > 0 && output.status.success())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read() {
        let of = |script: &str| steps(&Command::new("sh").args(["-c", script]).output().unwrap());
        assert_eq!(of("echo 7003"), Some(7003));
        for bad in ["echo 0", "echo x", "true", "echo 5; exit 1"] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}

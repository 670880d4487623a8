//! `evenly compare`: arms, executor, progress and table of `evenly-compare`, wired together.

use crate::balance::check_options;
use crate::flags::{Cli, Command, CompareArgs};
use crate::program::{check_command, meant_option};
use crate::{End, output, tell};
use anyhow::Context;
use evenly_compare::{
    Arm, Bar, Executor, Metric, Options, ProcessExecutor, Progress, Round, RunError, RunOutcome,
    STYLES, Spec, compare as run, on_others, promise_of, specs, table, variable,
};
use evenly_engine::Promise;
use evenly_errors::{given_twice, parse, problem, said};
use evenly_linux::affinity;
use evenly_linux::supervise::{Outcome, was_ignored};
use evenly_linux::usage::Usage;
use evenly_model::{CpuSet, Printable, Tid, or_meant, printable};
use evenly_policies::{POLICIES, by_name, names};
use evenly_probe::load::Unseen;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// The load of other programs is not reported for shorter runs.
const SHORTEST_S: f64 = 0.5;
/// The program as it is, among what can be compared.
const KERNEL: &str = "kernel";

pub(crate) fn compare(args: CompareArgs) -> anyhow::Result<End> {
    check_command("compare", &args.program.command)?;
    let json = args.json.as_deref().map(output::of_this_process);
    if let Some(path) = &json {
        output::check("--json", path)?;
    }
    // Before anything is made that a signal would leave behind.
    let ends = Ends::catch().context("cannot receive signals")?;
    let scratch = tempfile::tempdir().context("cannot make a directory for the reports")?;
    let exe = std::env::current_exe().context("cannot find evenly's own program file")?;
    let arms: Vec<Arm> = arms(&args)
        .iter()
        .flat_map(|list| specs(list, &is_known))
        .enumerate()
        .map(|(i, spec)| arm(spec, i, &args, &exe, scratch.path()))
        .collect::<anyhow::Result<_>>()?;
    let options = Options {
        command: args.program.command.iter().map(|a| a.to_string_lossy().into_owned()).collect(),
        runs: args.runs as usize,
        warmup: args.warmup as usize,
        seed: args.seed,
        metric: args.metric.map_or(Metric::WallTime, Metric::Field),
        same_output: args.same_output,
        bound_s: args.bound,
        keep_reports: args.json.is_some(),
    };
    let mut executor = Watching {
        inner: ProcessExecutor {
            limit: args.timeout.map(Duration::from),
            interrupted: ends.came.clone(),
            arrived: ends.signal.clone(),
            ..ProcessExecutor::default()
        },
        cpus: affinity::get(Tid(0)).context("cannot read own affinity mask")?,
        others: Vec::new(),
        promises: BTreeMap::new(),
    };
    let mut shown = Shown::new(args.quiet);
    let result = run(&arms, &options, &mut executor as &mut dyn Executor, &mut shown);
    shown.bar.clear();
    let mut comparison = result?;
    comparison.recommend(&executor.promises);
    comparison.warnings.extend(on_others(&executor.others, &executor.cpus.to_string()));
    if !args.quiet {
        let colour =
            |terminal: bool| terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        // A reader that has gone away is no failure of the comparison. Where standard output has
        // the JSON the table makes way.
        let _ = if json.as_deref().is_some_and(output::is_stdout) {
            let text = table(&comparison, colour(std::io::stderr().is_terminal()));
            writeln!(Printable::styled(std::io::stderr(), STYLES), "{}", text.trim_end())
        } else {
            let text = table(&comparison, colour(std::io::stdout().is_terminal()));
            writeln!(Printable::styled(std::io::stdout(), STYLES), "{}", text.trim_end())
        };
    }
    if let Some(path) = &json {
        output::write_json(path, &serde_json::to_value(&comparison)?)?;
    }
    if comparison.incomplete {
        // As any command that a signal ends: a script's loop over comparisons ends with it.
        return Ok(End::Like(Outcome::Signaled(ends.signal())));
    }
    Ok(End::Status(0))
}

/// The signals that end a comparison.
struct Ends {
    came: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Ends {
    /// Catches them, but for those that are ignored, as SIGHUP is under nohup(1).
    fn catch() -> io::Result<Self> {
        let this = Self { came: Arc::default(), signal: Arc::default() };
        for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|s| !was_ignored(*s)) {
            // In this order: code that sees that a signal came then looks which one it was.
            signal_hook::flag::register_usize(signal, this.signal.clone(), signal as usize)?;
            signal_hook::flag::register(signal, this.came.clone())?;
        }
        Ok(this)
    }

    /// Which came last. SIGINT where none has come: a run has ended by the Ctrl-C that evenly is about
    /// to get.
    fn signal(&self) -> i32 {
        match self.signal.load(Ordering::Relaxed) {
            0 => SIGINT,
            signal => i32::try_from(signal).unwrap_or(SIGINT),
        }
    }
}

/// Starts programs, and looks how much of the CPUs others take meanwhile.
struct Watching {
    inner: ProcessExecutor,
    cpus: CpuSet,
    /// A share of all CPUs for each run of which it is known.
    others: Vec<f64>,
    /// What parts of CPUs promise, by the last run of each arm that told it.
    promises: BTreeMap<String, Promise>,
}

impl Executor for Watching {
    fn run(&mut self, arm: &Arm, index: usize) -> Result<RunOutcome, RunError> {
        let before = Usage::now(&self.cpus);
        let outcome = self.inner.run(arm, index)?;
        if let Some(promise) = outcome.report.as_ref().and_then(promise_of) {
            self.promises.insert(arm.name.clone(), promise);
        }
        if let (Ok(before), Ok(after)) = (before, Usage::now(&self.cpus)) {
            let load = after.since(&before, self.cpus.len());
            // Ticks say too little of what is shorter.
            if load.elapsed_s >= SHORTEST_S {
                self.others.push(load.others);
            }
        }
        Ok(outcome)
    }
}

/// What is compared. Under a program that cannot take the probe, auto would do as hybrid does.
fn arms(args: &CompareArgs) -> Vec<String> {
    if !args.policies.is_empty() {
        return args.policies.clone();
    }
    let mut arms = String::from("kernel,static,hybrid");
    if Unseen::of(&args.program.command).is_empty() {
        arms.push_str(",auto");
    }
    vec![arms]
}

/// Whether this is the name of something to compare.
fn is_known(name: &str) -> bool {
    name == KERNEL || by_name(name).is_some()
}

/// What is run for `kernel`, `kernel:OMP_WAIT_POLICY=passive`, `juggle:--period=50ms` ... Options that
/// `evenly run` would refuse are refused here, before the first run.
fn arm(
    asked: Spec<'_>,
    index: usize,
    args: &CompareArgs,
    exe: &std::path::Path,
    scratch: &std::path::Path,
) -> anyhow::Result<Arm> {
    let Spec { text: spec, policy, options } = asked;
    let env: Vec<(OsString, OsString)> =
        asked.variables().map(|(name, value)| (name.into(), value.into())).collect();
    if policy == KERNEL {
        anyhow::ensure!(
            asked.words().next().is_none() && (options.is_none() || !env.is_empty()),
            "--policies {spec}: kernel is the program without evenly, and has no options, but variables \
             (kernel:OMP_WAIT_POLICY=passive)"
        );
        return Ok(Arm { env, ..Arm::new(spec, args.program.command.clone()) });
    }
    if by_name(policy).is_none() {
        let all = names();
        let near = or_meant(policy, POLICIES.iter().map(|p| p.name).chain([KERNEL]));
        anyhow::bail!(
            "--policies: there is no policy '{policy}'{near}; the policies are kernel, {all}"
        );
    }
    let report = scratch.join(format!("{index}.json"));
    let mut argv: Vec<OsString> = vec![exe.into(), "run".into(), "-q".into()];
    argv.extend(["--policy".into(), policy.into(), "--json".into(), report.clone().into()]);
    argv.extend(asked.words().map(OsString::from));
    argv.push("--".into());
    argv.extend(args.program.command.iter().cloned());
    let wrong = |why: &str| anyhow::anyhow!("--policies {spec}: {why} (see evenly run --help)");
    match parse::<Cli, _>(&argv) {
        Ok(Cli { command: Command::Run(run) }) => {
            // An option that is not known would be taken for the program.
            if run.program.command != args.program.command {
                let word = run.program.command[0].to_string_lossy().into_owned();
                let why = match variable(&word) {
                    Some(_) => format!("{word} has to stand before the options"),
                    None => format!("there is no option {word}{}", meant_option("run", &word)),
                };
                return Err(wrong(&why));
            }
            check_options(&run).map_err(|e| wrong(&said(&e)))?;
        }
        Ok(_) => return Err(wrong("that is not a run")),
        Err(e) if e.use_stderr() => {
            // For these, there is one that was not asked for.
            let own = given_twice(&e).filter(|o| ["--policy", "--json", "--quiet"].contains(o));
            let why = own.map(|o| format!("compare gives each run a {o} of its own; leave it out"));
            return Err(wrong(&why.unwrap_or_else(|| problem(&e))));
        }
        Err(_) => return Err(wrong("that asks for help, not for a run")),
    }
    Ok(Arm { env, report: Some(report), ..Arm::new(spec, argv) })
}

/// Progress: a bar on a terminal, a line for each run elsewhere.
struct Shown {
    bar: Bar,
    lines: bool,
}

impl Shown {
    fn new(quiet: bool) -> Self {
        let bar = if quiet { Bar::hidden() } else { Bar::drawn_every(Duration::from_millis(200)) };
        Self { bar, lines: !quiet && !io::stderr().is_terminal() }
    }
}

impl Progress for Shown {
    fn planned(&mut self, runs: usize) {
        self.bar.planned(runs);
    }

    fn started(&mut self, arm: &Arm, round: Round) {
        self.bar.started(format!("{}, {round}", printable(&arm.name)));
    }

    fn finished(&mut self, arm: &Arm, round: Round, seconds: f64) {
        self.bar.finished();
        if self.lines {
            tell(&format!("evenly: {}, {round}: {seconds:.3} s", arm.name));
        }
    }

    fn interrupted(&mut self) {
        tell("evenly: interrupted; the results are those of the runs so far");
    }
}

//! The program `evenly-peers`: flags, wiring and exit statuses.

#![forbid(unsafe_code)]

use anyhow::{Context as _, bail};
use clap::{CommandFactory, Parser};
use evenly_errors::{parse, refused, said, tell};
use evenly_peers::exec::end_by_signals;
use evenly_peers::judge::{Arm, Judged, Verdict, all};
use evenly_peers::outcome::Outcome;
use evenly_peers::shell::quote;
use evenly_peers::suites::{Compiler, Found, Offers, Search};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Exit status where evenly-peers itself failed.
const FAILED: u8 = 125;
/// What passes plain fails under evenly.
const BROKEN: u8 = 1;

/// Runs the test suites in a folder plain and under evenly, and shows what passes plain and fails
/// under evenly.
#[derive(Debug, Parser)]
#[command(
    name = "evenly-peers",
    version,
    after_help = "Suites that are known: DejaGnu's of gcc (libgomp/testsuite), lit's of LLVM's OpenMP runtime \
        (openmp/runtime/test), the Open POSIX test suite, and lists of commands (peers.list, `%arm` before the \
        program).\n\n\
        Example:\n  evenly-peers --threads 3 --compiler gcc --arm 'evenly run --policy phase' gcc-12/libgomp/testsuite\n\n\
        Exit status: 0; 1 where a test that passes plain fails twice under an arm; 125 where this program fails."
)]
struct Arguments {
    /// The folder with the suites
    dir: PathBuf,
    /// Numbers of threads (OMP_NUM_THREADS)
    #[arg(long, value_delimiter = ',', default_value = "2,3,4,5", value_name = "LIST",
        value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Vec<u32>,
    /// Compilers; one that is not installed is left out
    #[arg(long, value_delimiter = ',', default_value = "gcc,clang", value_name = "LIST")]
    compiler: Vec<String>,
    /// Only tests with this in the name of the suite or test (may be given more than once)
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// A command that runs a program (may be given more than once) [default: evenly run --quiet]
    #[arg(long, value_name = "COMMAND")]
    arm: Vec<String>,
    /// The program evenly [default: the one beside this program]
    #[arg(long, value_name = "FILE")]
    evenly: Option<PathBuf>,
    /// Tests at a time
    #[arg(long, default_value_t = 1, value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// Names of the tests, without running them
    #[arg(long)]
    list: bool,
    /// Write everything to FILE as JSON (evenly.peers/1)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let arguments = match parse::<Arguments, _>(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            if let Some(line) = refused(&error, &Arguments::command(), None) {
                tell(&format!("evenly-peers: {line}"));
                return ExitCode::from(FAILED);
            }
            // A closed stream has no reader.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
    };
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(BROKEN),
        Err(error) => {
            tell(&format!("evenly-peers: {}", said(&error)));
            ExitCode::from(FAILED)
        }
    }
}

/// Whether nothing is broken.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let shown = arguments.dir.display();
    let dir = arguments.dir.canonicalize().with_context(|| format!("{shown} cannot be read"))?;
    let compilers = compilers(&arguments.compiler)?;
    let machine = Offers::this();
    let search =
        Search { dir: &dir, threads: &arguments.threads, compilers: &compilers, machine: &machine };
    let mut found = search.run()?;
    let wanted = |name: &str| {
        arguments.only.is_empty() || arguments.only.iter().any(|only| name.contains(only.as_str()))
    };
    found.cases.retain(|c| wanted(&format!("{}/{}", c.suite, c.name)));
    found.left_out.retain(|(name, _)| wanted(name));
    if found.cases.is_empty() {
        bail!("no test that could be run is in {shown}, or --only names none");
    }
    let mut out = std::io::stdout().lock();
    if arguments.list {
        for case in &found.cases {
            let threads = case.threads.map(|t| t.to_string()).unwrap_or_default();
            // A closed stream has no reader.
            let _ = writeln!(out, "{}\t{}\t{}\t{threads}", case.suite, case.name, case.compiler);
        }
        return Ok(true);
    }
    let (arms, version) = arms(arguments)?;
    end_by_signals()?;
    let judged = all(&found.cases, &arms, arguments.jobs.into(), &|number, judged| {
        follow(&found, &arms, number, judged);
    })?;
    let outcome = Outcome::new(version, &compilers, &arms, &found, &judged);
    if let Some(file) = &arguments.json {
        let text = serde_json::to_vec_pretty(&outcome).context("the outcome as JSON")?;
        std::fs::write(file, text)
            .with_context(|| format!("{} cannot be written", file.display()))?;
    }
    let _ = out.write_all(outcome.text().as_bytes());
    if outcome.suites.iter().all(|row| row.pass_plain == 0) {
        bail!("no test is built and passes plain, so nothing is compared");
    }
    Ok(outcome.is_clean())
}

fn compilers(names: &[String]) -> anyhow::Result<Vec<Compiler>> {
    let mut found = Vec::new();
    for name in names {
        match Compiler::find(name) {
            Some(compiler) => found.push(compiler),
            None => tell(&format!("evenly-peers: {name} is not there and is left out")),
        }
    }
    if found.is_empty() {
        bail!("none of these compilers is there: {}", names.join(", "));
    }
    Ok(found)
}

/// The arms as the shell is given them, and what evenly calls itself.
fn arms(arguments: &Arguments) -> anyhow::Result<(Vec<Arm>, String)> {
    let evenly = match &arguments.evenly {
        Some(file) => file.canonicalize(),
        None => std::env::current_exe().map(|me| me.with_file_name("evenly")),
    }
    .context("the program evenly is not found (--evenly FILE)")?;
    let output = Command::new(&evenly).arg("--version").output().with_context(|| {
        format!("{} cannot be run (--evenly FILE, or cargo build --release)", evenly.display())
    })?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let names = if arguments.arm.is_empty() {
        vec!["evenly run --quiet".to_owned()]
    } else {
        arguments.arm.clone()
    };
    let arms = names.into_iter().map(|name| Arm { command: command(&name, &evenly), name });
    Ok((arms.collect(), version))
}

/// An arm with the path of evenly, and with the end of its options.
fn command(arm: &str, evenly: &Path) -> String {
    match arm.trim().strip_prefix("evenly ") {
        Some(rest) => {
            let end = if rest.split_whitespace().any(|w| w == "--") { "" } else { " --" };
            format!("{} {rest}{end}", quote(&evenly.to_string_lossy()))
        }
        None => arm.to_owned(),
    }
}

/// Says at once what has failed, and now and then how far it is.
fn follow(found: &Found, arms: &[Arm], number: usize, judged: &Judged) {
    let Some(case) = found.cases.get(number) else { return };
    if let Judged::Compared(verdicts) = judged {
        for (arm, verdict) in arms.iter().zip(verdicts) {
            let (what, symptom) = match verdict {
                Verdict::Passed => continue,
                Verdict::Flaky(symptom) => ("flaky", symptom.as_str()),
                Verdict::Failed(symptoms) => ("FAILS", symptoms.first().map_or("", String::as_str)),
            };
            let threads = case.threads.map(|t| format!(" {t} threads")).unwrap_or_default();
            tell(&format!(
                "{what} {} {} {}{threads}, {}: {symptom}",
                case.suite, case.name, case.compiler, arm.name
            ));
        }
    }
    if (number + 1).is_multiple_of(100) {
        tell(&format!("{} of {}", number + 1, found.cases.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::{Arguments, command};
    use clap::CommandFactory as _;
    use std::path::Path;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn an_arm_names_the_program_and_ends_its_options() {
        let evenly = Path::new("/b/evenly");
        assert_eq!(command("evenly run --quiet", evenly), "'/b/evenly' run --quiet --");
        assert_eq!(command("evenly run --quiet --", evenly), "'/b/evenly' run --quiet --");
        assert_eq!(command("taskset 1", evenly), "taskset 1");
    }
}

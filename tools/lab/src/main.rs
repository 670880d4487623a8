//! The program `evenly-lab`: flags, wiring and exit statuses.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use clap::builder::NonEmptyStringValueParser;
use clap::{CommandFactory, Parser};
use evenly_errors::{parse, refused, said, tell};
use evenly_lab::{Include, Killer, Lab, LabError, LabOptions, Share, Stream, shell_quote};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// The lab itself failed.
const FAILED: u8 = 125;
/// Turns of the equal-speed check: some twenty seconds.
const TURNS: u32 = 9;
/// As often again where they say too little.
const ROUNDS: u32 = 4;
/// Something that the lab needs is missing: a reason to skip, as automake has it.
const SKIPPED: u8 = 77;

/// Runs a command on a Linux machine with as many CPUs and NUMA nodes as you
/// like, in software emulation.
#[derive(Debug, Parser)]
#[command(
    name = "evenly-lab",
    version,
    after_help = "Example:\n  evenly-lab --cpus 8 --numa 2 -- 'nproc; cat /sys/devices/system/node/node*/cpulist'\n  \
        evenly-lab --include target/release/spmd -- spmd --threads 8\n\n\
        Exit status: that of the command; 124 if its time was up, 125 if the lab failed, 77 if \
        something that the lab needs is missing."
)]
struct Arguments {
    /// Number of CPUs
    #[arg(long, default_value_t = 8)]
    cpus: u32,
    /// Number of NUMA nodes
    #[arg(long, default_value_t = 2)]
    numa: u32,
    /// Memory in MiB
    #[arg(long, default_value_t = 1024)]
    memory_mb: u32,
    /// Beginning of the kernel's version (6.1, 6.16, 7.0), or the path of an image
    #[arg(long, default_value = "6.1", value_name = "VERSION",
        value_parser = NonEmptyStringValueParser::new())]
    kernel: String,
    /// Share of a host CPU for each CPU: a fraction, `auto`, or `none` for no limit
    #[arg(long, default_value = "auto", value_parser = parse_share, value_name = "FRACTION")]
    share: Share,
    /// Seconds that the command may take
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    timeout_s: u64,
    /// A program or file to have in the guest, with the libraries it needs; by
    /// default in /usr/bin
    #[arg(long, value_parser = parse_include, value_name = "FILE[:/GUEST/PATH]")]
    include: Vec<Include>,
    /// Do not check that the CPUs are equally fast
    #[arg(long)]
    no_equal_speed_check: bool,
    /// Largest deviation that the equal-speed check allows, in percent
    #[arg(long, default_value_t = 5.0, value_name = "PERCENT", value_parser = percent)]
    equal_speed_limit: f64,
    /// The command: one word is a shell command line, several are a program and
    /// its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

fn parse_share(text: &str) -> Result<Share, String> {
    match text {
        "auto" => Ok(Share::Auto),
        "none" => Ok(Share::Uncapped),
        _ => text
            .parse()
            .map(Share::Fraction)
            .map_err(|_| "needed: a fraction such as 0.2, `auto`, or `none`".into()),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("a number from 0 to 100 is needed".into()),
    }
}

fn parse_include(text: &str) -> Result<Include, String> {
    if let Some((host, guest)) = text.rsplit_once(":/") {
        return Ok(Include { host: PathBuf::from(host), guest: format!("/{guest}") });
    }
    let host = PathBuf::from(text);
    let name = host.file_name().and_then(|name| name.to_str());
    let name = name.ok_or("needed: the path of a file")?;
    Ok(Include { guest: format!("/usr/bin/{name}"), host })
}

fn command_line(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => words.iter().map(|word| shell_quote(word)).collect::<Vec<_>>().join(" "),
    }
}

fn main() -> ExitCode {
    let arguments = match parse::<Arguments, _>(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            if let Some(line) = refused(&error, &Arguments::command(), None) {
                tell(&format!("evenly-lab: {line}"));
                return ExitCode::from(FAILED);
            }
            // A closed stream has no reader.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
    };
    let interrupt = Interrupt::default();
    let result = interrupt.watch().and_then(|()| run(&arguments, &interrupt));
    if let Some(signal) = interrupt.signal() {
        return ExitCode::from(128 + signal);
    }
    match result {
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(FAILED)),
        Err(error) => {
            let unavailable =
                error.downcast_ref::<LabError>().is_some_and(LabError::is_unavailable);
            let word = if unavailable { "skipped: " } else { "" };
            tell(&format!("evenly-lab: {word}{}", said(&error)));
            ExitCode::from(if unavailable { SKIPPED } else { FAILED })
        }
    }
}

fn run(arguments: &Arguments, interrupt: &Interrupt) -> anyhow::Result<i32> {
    let mut lab = Lab::boot(LabOptions {
        cpus: arguments.cpus,
        numa: arguments.numa,
        memory_mb: arguments.memory_mb,
        kernel: arguments.kernel.clone(),
        share: arguments.share,
        include: arguments.include.clone(),
        ..LabOptions::default()
    })?;
    interrupt.arm(lab.killer());
    let share = lab.share().map_or("not capped: figures are void".into(), |share| {
        format!("each with {share:.3} of a host CPU")
    });
    tell(&format!(
        "evenly-lab: Linux {}, {} CPUs, {} NUMA nodes, {share}; booted in {:.1} s",
        lab.kernel().version,
        arguments.cpus,
        arguments.numa,
        lab.boot_time().as_secs_f64()
    ));
    if !arguments.no_equal_speed_check {
        let check = lab.equal_speed(TURNS, ROUNDS, arguments.equal_speed_limit / 100.0)?;
        tell(&format!("evenly-lab: {check}"));
    }
    let timeout = Duration::from_secs(arguments.timeout_s);
    let mut output_error = None;
    let output =
        lab.run_streaming(&command_line(&arguments.command), timeout, &mut |stream, data| {
            let written = match stream {
                Stream::Stdout => {
                    let mut stdout = io::stdout().lock();
                    stdout.write_all(data).and_then(|()| stdout.flush())
                }
                Stream::Stderr => io::stderr().lock().write_all(data),
            };
            // A reader that has gone is no reason to break off the command.
            if let Err(error) = written
                && error.kind() != io::ErrorKind::BrokenPipe
            {
                output_error.get_or_insert(error);
            }
        })?;
    lab.shutdown()?;
    if let Some(error) = output_error {
        return Err(error).context("the command's output could not be written");
    }
    if output.timed_out {
        tell(&format!("evenly-lab: the command was killed after {} s", arguments.timeout_s));
    }
    Ok(output.status)
}

/// Ends the lab in order when a signal asks for the end of this program.
#[derive(Clone, Default)]
struct Interrupt(Arc<Mutex<(Option<Killer>, Option<u8>)>>);

impl Interrupt {
    fn watch(&self) -> anyhow::Result<()> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("signal handlers")?;
        let shared = self.clone();
        std::thread::spawn(move || {
            for signal in signals.forever() {
                let signal = u8::try_from(signal).unwrap_or(0);
                let mut state = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
                match &state.0 {
                    Some(killer) if state.1.is_none() => killer.kill(),
                    // Still booting, or asked twice. QEMU dies with this
                    // process; the next lab sweeps the groups.
                    _ => std::process::exit(128 + i32::from(signal)),
                }
                state.1 = Some(signal);
            }
        });
        Ok(())
    }

    fn arm(&self, killer: Killer) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = Some(killer);
    }

    fn signal(&self) -> Option<u8> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_the_system_says_is_said_once() {
        let source = io::Error::from_raw_os_error(2);
        let error = LabError::File { path: PathBuf::from("/no/such/image"), source };
        let line = said(&anyhow::Error::from(error));
        assert_eq!(line, "/no/such/image: No such file or directory (os error 2)");
    }

    #[test]
    fn includes_name_their_place() {
        let include = parse_include("target/release/spmd").unwrap();
        assert_eq!(include.guest, "/usr/bin/spmd");
        let include = parse_include("a:b/spmd:/opt/x").unwrap();
        assert_eq!(
            (include.host.as_path(), include.guest.as_str()),
            (Path::new("a:b/spmd"), "/opt/x")
        );
        assert!(parse_include("..").is_err());
    }

    #[test]
    fn one_word_is_a_shell_line() {
        let words = |words: &[&str]| {
            command_line(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(words(&["nproc; true"]), "nproc; true");
        assert_eq!(words(&["echo", "a b"]), "'echo' 'a b'");
    }
}

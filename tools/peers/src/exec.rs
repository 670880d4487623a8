//! One shell command in a process group and a scratch directory of its own, with a time limit. Real-time
//! threads that never sleep are ended by the kernel (RLIMIT_RTTIME), and whatever the command leaves behind
//! by the mark in its environment.

use anyhow::{Context as _, bail};
use evenly_model::printable;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

/// A real-time thread may compute for so long without sleeping, in microseconds: then it is sent SIGXCPU, later
/// SIGKILL.
const REALTIME: &str = "--rttime=2000000:4000000";
/// The mark of what a command has started.
const MARK: &str = "EVENLY_PEERS_RUN";
/// Of an output as much is looked at.
const OUTPUT: u64 = 4 << 20;
/// What is left behind is looked for as often: it may be starting more.
const SWEEPS: u32 = 10;

/// Whether a signal has asked this process to end.
static STOPPED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Lets SIGINT, SIGTERM and SIGHUP end the commands that run, and with them this process.
///
/// # Errors
/// Where the signals cannot be received.
pub fn end_by_signals() -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&STOPPED))
            .context("cannot receive signals")?;
    }
    Ok(())
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this status; where a signal ended it, 128 and its number.
    Status(i32),
    /// It was killed when its time was up.
    TimedOut,
}

/// A command that has run.
#[derive(Debug, Clone)]
pub struct Ran {
    /// How the command ended.
    pub ended: Ended,
    /// How long it took.
    pub took: Duration,
    /// Standard output, then standard error.
    pub output: String,
}

impl Ran {
    /// How it ended, with the last words of its output.
    #[must_use]
    pub fn symptom(&self) -> String {
        let seconds = self.took.as_secs_f64();
        let how = match self.ended {
            Ended::TimedOut => format!("killed after {seconds:.0} s"),
            Ended::Status(0) => "status 0, other output".to_owned(),
            Ended::Status(status) => match signal_name(status - 128) {
                Some(name) => name.to_owned(),
                None => format!("status {status}"),
            },
        };
        let last: Vec<&str> =
            self.output.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        let last = last.get(last.len().saturating_sub(2)..).unwrap_or_default().join("; ");
        let last: String = printable(&last).chars().take(200).collect();
        if last.is_empty() { how } else { format!("{how}: {last}") }
    }
}

fn signal_name(number: i32) -> Option<&'static str> {
    Some(match number {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        _ => return None,
    })
}

/// Runs a shell command.
///
/// # Errors
/// Where no process can be started, its output cannot be kept, or a signal ended it ([`end_by_signals`]).
pub fn shell(
    command: &str,
    dir: Option<&Path>,
    environment: &[(String, String)],
    limit: Duration,
) -> anyhow::Result<Ran> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let scratch = tempfile::tempdir().context("a scratch directory")?;
    let mut out = tempfile::tempfile().context("a file for output")?;
    let mut err = tempfile::tempfile().context("a file for output")?;
    let mark = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    let start = Instant::now();
    let mut child = Command::new("prlimit")
        .args([REALTIME, "--", "bash", "-c", &format!("set -o pipefail; {command}")])
        .current_dir(dir.unwrap_or(scratch.path()))
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env("LC_ALL", "C")
        .env(MARK, &mark)
        .stdin(Stdio::null())
        .stdout(out.try_clone().context("a file for output")?)
        .stderr(err.try_clone().context("a file for output")?)
        .process_group(0)
        .spawn()
        .context("prlimit cannot be run (Debian: util-linux)")?;
    let mut pause = Duration::from_millis(1);
    let status = loop {
        if let Some(status) = child.try_wait().context("waiting for a command")? {
            break Some(status);
        }
        if start.elapsed() > limit || STOPPED.load(Ordering::Relaxed) {
            break None;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    let took = start.elapsed();
    sweep(&child, &mark);
    if status.is_none() && STOPPED.load(Ordering::Relaxed) {
        child.wait().context("waiting for a command")?;
        bail!("ended by a signal, with what it ran");
    }
    let ended = match status {
        Some(status) => {
            Ended::Status(status.code().or(status.signal().map(|s| 128 + s)).unwrap_or(-1))
        }
        None => {
            child.wait().context("waiting for a command")?;
            Ended::TimedOut
        }
    };
    Ok(Ran { ended, took, output: read(&mut out)? + &read(&mut err)? })
}

/// Ends the group of a command and all that carries its mark, wherever that has gone.
fn sweep(child: &std::process::Child, mark: &str) {
    let pid = |number: u32| i32::try_from(number).ok().and_then(Pid::from_raw);
    if let Some(group) = pid(child.id()) {
        // There may be none any more.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let entry = format!("{MARK}={mark}");
    for _ in 0..SWEEPS {
        let left: Vec<Pid> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
            .filter(|number| *number != child.id())
            .filter(|number| marked(&fs::read(format!("/proc/{number}/environ")), &entry))
            .filter_map(pid)
            .collect();
        if left.is_empty() {
            return;
        }
        for process in left {
            let _ = kill_process(process, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn marked(environ: &std::io::Result<Vec<u8>>, entry: &str) -> bool {
    environ.as_ref().is_ok_and(|e| e.split(|b| *b == 0).any(|v| v == entry.as_bytes()))
}

fn read(file: &mut File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).context("reading an output")?;
    file.take(OUTPUT).read_to_end(&mut bytes).context("reading an output")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Ended, shell};
    use std::path::Path;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(300);

    #[test]
    fn status_and_output_are_those_of_the_command() {
        let ran = shell("echo $A; echo bad >&2; exit 3", None, &[("A".into(), "b".into())], LONG);
        let ran = ran.unwrap();
        assert_eq!((ran.ended, ran.output.as_str()), (Ended::Status(3), "b\nbad\n"));
        assert_eq!(ran.symptom(), "status 3: b; bad");
    }

    #[test]
    fn a_pipe_fails_where_its_first_command_does() {
        assert_eq!(shell("exit 3 | cat", None, &[], LONG).unwrap().ended, Ended::Status(3));
    }

    #[test]
    fn a_signal_is_named() {
        let ran = shell("kill -SEGV $$", None, &[], LONG).unwrap();
        assert_eq!(ran.ended, Ended::Status(139));
        assert!(ran.symptom().starts_with("SIGSEGV"), "{}", ran.symptom());
    }

    #[test]
    fn a_command_is_killed_when_its_time_is_up() {
        let ran = shell("sleep 1000", None, &[], Duration::from_millis(50)).unwrap();
        assert_eq!(ran.ended, Ended::TimedOut);
    }

    #[test]
    fn nothing_is_left_behind() {
        // In a session of its own, so that the group does not reach it.
        let ran = shell("setsid sleep 1000 & echo $!; sleep 0.2", None, &[], LONG).unwrap();
        let process: u32 = ran.output.trim().parse().unwrap();
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
            stat.is_err() || stat.is_ok_and(|s| s.contains(") Z "))
        };
        while !gone() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn the_directory_is_gone_afterwards() {
        let ran = shell("touch a; pwd", None, &[], LONG).unwrap();
        assert!(!Path::new(ran.output.trim()).exists());
    }

    #[test]
    fn realtime_is_limited() {
        let ran = shell("prlimit --rttime --noheadings --output SOFT", None, &[], LONG).unwrap();
        assert_eq!(ran.output.trim(), "2000000");
    }
}

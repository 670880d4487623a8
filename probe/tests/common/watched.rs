//! A program that runs with the waiting probe, step by step: what is read of it is waited for.

use evenly_model::Nanos;
use evenly_probe::load::{Calls, keep, preload};
use evenly_probe::waiting::{Activity, Mapping, Observed, Reader};
use evenly_testing::wait_for_ok;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

pub fn now() -> Nanos {
    let t = clock_gettime(ClockId::Monotonic);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// A program that runs with the probe.
pub struct Watched {
    pub child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pub mapping: Mapping,
    pub reader: Reader,
}

impl Watched {
    pub fn start(calls: Calls, command: &mut Command) -> Self {
        Self::start_before(calls, command, None)
    }

    pub fn start_before(calls: Calls, command: &mut Command, before: Option<&OsStr>) -> Self {
        let mapping = Mapping::new().unwrap();
        let library = keep(calls, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let (name, value) = mapping.variable();
        command.env(name, value).env("LD_PRELOAD", preload(&library, before).unwrap());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let reader = mapping.reader().unwrap();
        Self { child, stdin, stdout: BufReader::new(stdout), mapping, reader }
    }

    /// Reads lines until the program says that it has come to this step.
    pub fn until(&mut self, step: &str) {
        let mut line = String::new();
        while line.trim() != step {
            line.clear();
            let n = self.stdout.read_line(&mut line).unwrap();
            assert!(n > 0, "the program has ended before '{step}': {:?}", self.child.wait());
        }
    }

    /// Lets it go on.
    pub fn go(&mut self) {
        self.stdin.write_all(b"x").unwrap();
    }

    pub fn read(&mut self) -> Vec<Observed> {
        let mut seen = Vec::new();
        self.reader.read(now(), &mut seen).unwrap();
        seen
    }

    /// Waits until just these activities are seen, in any order.
    pub fn expect(&mut self, mut wanted: Vec<Activity>) -> Vec<Observed> {
        let order = |a: &Activity| a.word();
        wanted.sort_by_key(order);
        wait_for_ok(&format!("{wanted:?}"), || {
            let seen = self.read();
            let mut found: Vec<Activity> = seen.iter().map(|o| o.activity).collect();
            found.sort_by_key(order);
            if found == wanted { Ok(seen) } else { Err(format!("{seen:?}")) }
        })
    }

    pub fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }

    pub fn ends_well(self) {
        let (status, rest) = self.end();
        assert!(status.success(), "{status}: {rest}");
    }
}

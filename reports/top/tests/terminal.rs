//! The terminal is given back however the view ends. The view runs in a child on a pseudo
//! terminal: this test program itself, asked to run `child` alone.

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

use evenly_engine::Observer;
use evenly_model::{Nanos, Pid};
use evenly_top::synthetic::Synthetic;
use evenly_top::{Exit, Feed, Header, OtherEvenly, OtherState, World, run_terminal};
use rustix::process::{Pid as RawPid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const ROLE: &str = "EVENLY_TOP_TEST_CHILD";

/// No test: what the tests below start. Without a role it does nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let feed = Feed::new();
    let mut observer = feed.clone();
    let panics = role == "panic";
    thread::spawn(move || {
        let mut program = Synthetic::new(3, 2, 1, true);
        for step in 0.. {
            assert!(!panics || step < 30, "the balancer has a bug");
            program.step().iter().for_each(|e| observer.event(e));
            thread::sleep(Duration::from_millis(20));
        }
    });
    let header = Header {
        pid: Pid(1),
        command: "./spmd".into(),
        policy: if role.starts_with("beside") { "observe" } else { "hybrid" }.into(),
    };
    // The other evenly is as the test says in a file.
    let balancer = || {
        let state = match std::fs::read_to_string(role.strip_prefix("beside ")?).ok()?.as_str() {
            "working" => OtherState::Working,
            "stopped" => OtherState::Stopped,
            _ => OtherState::Gone,
        };
        Some(OtherEvenly { pid: Pid(7), state, given: Nanos::ZERO })
    };
    let code = match run_terminal(&feed, &header, World { ended: &|| false, balancer: &balancer }) {
        Ok(Exit::Quit) => 10,
        Ok(Exit::Signal(signal)) => 20 + signal,
        Ok(_) => 30,
        Err(_) => 40,
    };
    std::process::exit(code);
}

struct Session {
    child: Child,
    slave: File,
    master: File,
    output: Receiver<Vec<u8>>,
    seen: String,
    before: Termios,
}

impl Session {
    fn start(role: &str) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let slave = OpenOptions::new().read(true).write(true).open(name).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&slave, size).unwrap();
        let before = tcgetattr(&slave).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(ROLE, role)
            .env("TERM", "xterm")
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap())
            .spawn()
            .unwrap();
        let master = File::from(master);
        let mut reader = master.try_clone().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { child, slave, master, output, seen: String::new(), before }
    }

    /// Waits until the child has written that. The limit only ends a test that has failed.
    fn wait_for(&mut self, text: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.seen.contains(text) {
            let left = end.saturating_duration_since(Instant::now());
            let more = self.output.recv_timeout(left);
            let more = more.unwrap_or_else(|_| panic!("no {text:?} in {:?}", self.seen));
            self.seen.push_str(&String::from_utf8_lossy(&more));
        }
    }

    fn drawn(role: &str) -> Self {
        let mut s = Self::start(role);
        s.wait_for("\u{1b}[?1049h");
        s.wait_for("evenly top");
        assert_ne!(tcgetattr(&s.slave).unwrap().local_modes, s.before.local_modes, "not raw");
        s
    }

    fn end(mut self) -> (ExitStatus, String) {
        // Screen and cursor first, and then the modes.
        self.wait_for("\u{1b}[?1049l");
        self.wait_for("\u{1b}[?25h");
        let status = self.child.wait().unwrap();
        let after = tcgetattr(&self.slave).unwrap();
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        (status, self.seen)
    }
}

#[test]
fn a_key_ends_it() {
    let mut s = Session::drawn("plain");
    s.master.write_all(b"q").unwrap();
    assert_eq!(s.end().0.code(), Some(10));
}

#[test]
fn a_balancer_that_is_stopped_and_ends_is_shown() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let is = |state: &str| std::fs::write(file.path(), state).unwrap();
    is("working");
    let mut s = Session::drawn(&format!("beside {}", file.path().display()));
    // Single words: blanks that stand there already are not drawn again.
    for (state, word) in [("working", "balances"), ("stopped", "STOPPED"), ("gone", "ENDED")] {
        is(state);
        s.wait_for(word);
    }
    s.master.write_all(b"q").unwrap();
    assert_eq!(s.end().0.code(), Some(10));
}

#[test]
fn signals_end_it() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let s = Session::drawn("plain");
        let pid = RawPid::from_child(&s.child);
        kill_process(pid, signal).unwrap();
        assert_eq!(s.end().0.code(), Some(20 + signal.as_raw()));
    }
}

#[test]
fn a_panic_of_a_balancer_is_seen_on_the_screen_that_was() {
    let mut s = Session::drawn("panic");
    s.wait_for("the balancer has a bug");
    let (status, seen) = s.end();
    assert_eq!(status.code(), Some(40));
    assert!(seen.find("\u{1b}[?1049l") < seen.find("the balancer has a bug"), "{seen:?}");
}

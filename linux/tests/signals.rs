//! The wrapper on real processes: signals, stops and the terminal reach a program as they would without it,
//! and the wrapper ends and stops with its program.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod wrapped;

use evenly_testing::{wait_for_ok, wait_until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::ptr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use wrapped::{command, supervised};

/// Kills what a failed test would leave.
struct Cleanup(Vec<i32>);

impl Drop for Cleanup {
    fn drop(&mut self) {
        for pid in &self.0 {
            let _ = kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL);
        }
    }
}

/// Lines that a process appends to a file.
struct Log(PathBuf);

impl Log {
    fn lines(&self) -> Vec<String> {
        fs::read_to_string(&self.0).unwrap_or_default().lines().map(str::to_owned).collect()
    }

    fn count(&self, line: &str) -> usize {
        self.lines().iter().filter(|l| *l == line).count()
    }

    #[track_caller]
    fn wait_for(&self, line: &str) {
        wait_for_ok(&format!("'{line}'"), || {
            if self.count(line) > 0 { Ok(()) } else { Err(format!("{:?}", self.lines())) }
        });
    }

    /// The id of a listener that has got ready.
    #[track_caller]
    fn listener(&self) -> i32 {
        let mut pid = None;
        wait_until("the listener is ready", || {
            pid = self.lines().first().and_then(|l| l.strip_prefix("ready ")?.parse().ok());
            pid.is_some()
        });
        pid.unwrap()
    }
}

/// A wrapped listener in a process group of its own.
struct Session {
    wrapper: Child,
    listener: i32,
    signals: Log,
    hooks: Log,
    _cleanup: Cleanup,
    _dir: tempfile::TempDir,
}

impl Session {
    fn start(extra: &[&str]) -> Self {
        Self::start_by(extra, |mut c| c.process_group(0).spawn().unwrap())
    }

    fn start_by(extra: &[&str], spawn: impl FnOnce(Command) -> Child) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (signals, hooks) = (Log(dir.path().join("signals")), Log(dir.path().join("hooks")));
        let program = supervised();
        let mut argv = vec![program.to_str().unwrap(), "listen", signals.0.to_str().unwrap()];
        argv.extend(extra);
        let mut c = command(true, &argv);
        c.env("SUPERVISED_LOG", &hooks.0).stdin(Stdio::null());
        let wrapper = spawn(c);
        let wrapper_pid = i32::try_from(wrapper.id()).unwrap();
        let mut cleanup = Cleanup(vec![wrapper_pid]);
        let listener = signals.listener();
        cleanup.0.insert(0, listener);
        hooks.wait_for("wake");
        Self { wrapper, listener, signals, hooks, _cleanup: cleanup, _dir: dir }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.wrapper)
    }

    fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    fn send_to_listener(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.listener).unwrap(), signal).unwrap();
    }

    fn send_to_group(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).unwrap();
    }

    /// Ends the listener by a signal to the wrapper, which must end with the listener's status.
    #[track_caller]
    fn finish(&mut self) {
        self.send(Signal::TERM);
        assert_eq!(self.wrapper.wait().unwrap().code(), Some(7), "{:?}", self.signals.lines());
    }
}

/// A line of what the kernel says of a process, None where there is none.
fn status(pid: i32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some(text.lines().find_map(|l| l.strip_prefix(key))?.trim().to_owned())
}

/// State letter of a process, None where there is none.
fn state(pid: i32) -> Option<char> {
    status(pid, "State:")?.chars().next()
}

fn id(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

#[test]
fn signals_sent_to_the_wrapper_reach_the_program() {
    let mut s = Session::start(&[]);
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::USR1, Signal::USR2] {
        s.send(signal);
        s.signals.wait_for(&format!("{} code=0 value=0", signal.as_raw()));
    }
    s.send(Signal::WINCH);
    s.signals.wait_for("28 code=0 value=0");
    s.finish();
    // Each once, and SIGTERM last.
    assert_eq!(s.signals.lines().len(), 8, "{:?}", s.signals.lines());
    assert_eq!(s.hooks.lines(), ["run", "wake", "Exited(7)"]);
}

#[test]
fn the_default_action_of_a_forwarded_signal_ends_both() {
    let dir = tempfile::tempdir().unwrap();
    let file = Log(dir.path().join("pid"));
    let script = "echo $$ >\"$0\"; exec sleep 100";
    let argv = ["sh", "-c", script, file.0.to_str().unwrap()];
    let mut child = command(true, &argv).process_group(0).spawn().unwrap();
    let mut cleanup = Cleanup(vec![id(&child)]);
    let mut program = 0;
    wait_until("the program runs", || {
        program = file.lines().first().and_then(|l| l.parse().ok()).unwrap_or(0);
        fs::read_to_string(format!("/proc/{program}/comm")).is_ok_and(|name| name == "sleep\n")
    });
    cleanup.0.insert(0, program);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    // The wrapper ends after it has waited for the program, of which then nothing is left.
    assert_eq!(state(program), None);
    cleanup.0.clear();
}

#[test]
fn queued_signals_keep_number_order_and_value() {
    let mut s = Session::start(&[]);
    let rt = libc::SIGRTMIN() + 5;
    for value in [7usize, 70_000, 7] {
        let value = libc::sigval { sival_ptr: ptr::without_provenance_mut(value) };
        // SAFETY: sigqueue takes numbers only; the pointer is never followed.
        assert_eq!(unsafe { libc::sigqueue(id(&s.wrapper), rt, value) }, 0);
    }
    let expected = [7, 70_000, 7].map(|v| format!("{rt} code={} value={v}", libc::SI_QUEUE));
    wait_until("three queued signals have come", || s.signals.lines().len() >= 4);
    assert_eq!(s.signals.lines()[1..], expected);
    s.finish();
}

#[test]
fn a_program_that_signals_its_own_group_gets_the_signal_once() {
    let mut s = Session::start(&["group"]);
    s.signals.wait_for("10 code=0 value=0");
    s.finish();
    assert_eq!(s.signals.count("10 code=0 value=0"), 1, "{:?}", s.signals.lines());
}

#[test]
fn all_threads_of_the_wrapper_block_what_it_handles_and_it_sleeps() {
    let mut s = Session::start(&[]);
    let tasks: Vec<_> =
        fs::read_dir(format!("/proc/{}/task", s.wrapper.id())).unwrap().flatten().collect();
    assert_eq!(tasks.len(), 2);
    for task in tasks {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let blocked = status.lines().find_map(|l| l.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(blocked.trim(), 16).unwrap();
        for signal in [1, 2, 3, 10, 12, 13, 14, 15, 17, 18, 20, 21, 22, 28, 34, 64] {
            assert!(blocked & (1 << (signal - 1)) != 0, "signal {signal} is not blocked");
        }
        for signal in [4, 5, 7, 8, 11, 31] {
            assert!(blocked & (1 << (signal - 1)) == 0, "signal {signal} is blocked");
        }
    }
    // It wakes for events only.
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{}/status", s.wrapper.id())).unwrap();
        status.lines().find(|l| l.starts_with("voluntary_")).unwrap().to_owned()
    };
    wait_until("the wrapper sleeps", || state(id(&s.wrapper)) == Some('S'));
    let before = switches();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(before, switches());
    s.finish();
}

#[test]
fn the_program_outlives_a_killed_wrapper() {
    let mut s = Session::start(&[]);
    s.send(Signal::KILL);
    assert_eq!(s.wrapper.wait().unwrap().signal(), Some(9));
    s.send_to_listener(Signal::USR1);
    s.signals.wait_for("10 code=0 value=0");
    s.send_to_listener(Signal::TERM);
    s.signals.wait_for("15 code=0 value=0");
}

#[test]
fn the_wrapper_stops_and_continues_with_its_program() {
    let mut s = Session::start(&[]);
    for round in 1..=3 {
        s.send_to_group(Signal::TSTP);
        wait_until("both are stopped", || {
            state(id(&s.wrapper)) == Some('T') && state(s.listener) == Some('T')
        });
        assert_eq!(s.hooks.count("stop"), round);
        s.send_to_group(Signal::CONT);
        wait_until("both have been continued", || s.hooks.count("continue") == round);
        assert_ne!(state(s.listener), Some('T'));
    }
    s.finish();
}

#[test]
fn sigcont_to_the_wrapper_alone_continues_a_program_that_stopped_alone() {
    let mut s = Session::start(&[]);
    // The test is a parent in another group, as a shell with job control is.
    s.send_to_listener(Signal::STOP);
    wait_until("the wrapper follows", || state(id(&s.wrapper)) == Some('T'));
    assert_eq!(s.hooks.count("stop"), 1);
    s.send(Signal::CONT);
    s.hooks.wait_for("continue");
    s.signals.wait_for("18 code=0 value=0");
    s.finish();
}

#[test]
fn without_job_control_the_wrapper_runs_on_while_its_program_is_stopped() {
    // In our own process group: no shell would continue the wrapper.
    let mut s = Session::start_by(&[], |mut c| c.spawn().unwrap());
    s.send_to_listener(Signal::STOP);
    s.hooks.wait_for("stop");
    assert_ne!(state(id(&s.wrapper)), Some('T'));
    s.send_to_listener(Signal::CONT);
    s.hooks.wait_for("continue");
    s.finish();
}

/// A script that leads a group in which a wrapper runs a listener: no shell waits for the wrapper.
struct Scripted {
    script: Child,
    wrapper: i32,
    listener: i32,
    signals: Log,
    hooks: Log,
    _cleanup: Cleanup,
    _dir: tempfile::TempDir,
}

impl Scripted {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (signals, hooks) = (Log(dir.path().join("signals")), Log(dir.path().join("hooks")));
        let mut script = Command::new("sh");
        script.args(["-c", "\"$0\" run -- \"$0\" listen \"$1\"; exit $?"]).arg(supervised());
        script.arg(&signals.0).env("SUPERVISED_LOG", &hooks.0).process_group(0);
        let script = script.spawn().unwrap();
        let mut cleanup = Cleanup(vec![id(&script)]);
        let listener = signals.listener();
        let wrapper = status(listener, "PPid:").unwrap().parse().unwrap();
        cleanup.0.extend([listener, wrapper]);
        hooks.wait_for("wake");
        Self { script, wrapper, listener, signals, hooks, _cleanup: cleanup, _dir: dir }
    }

    fn send_to_group(&self, signal: Signal) {
        kill_process_group(Pid::from_child(&self.script), signal).unwrap();
    }

    fn send_to_wrapper(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.wrapper).unwrap(), signal).unwrap();
    }

    #[track_caller]
    fn finish(&mut self) {
        self.send_to_wrapper(Signal::TERM);
        assert_eq!(self.script.wait().unwrap().code(), Some(7), "{:?}", self.signals.lines());
    }
}

#[test]
fn without_job_control_a_stop_of_the_whole_group_stops_the_wrapper() {
    let mut s = Scripted::start();
    s.send_to_group(Signal::TSTP);
    let stopped = |pid| state(pid) == Some('T');
    wait_until("both are stopped", || stopped(s.wrapper) && stopped(s.listener));
    s.send_to_group(Signal::CONT);
    s.hooks.wait_for("continue");
    s.finish();
}

/// The wrapper may still be passing the stop on when the whole group is continued.
#[test]
fn a_group_that_is_continued_at_once_runs_on_whole() {
    let mut s = Scripted::start();
    let handled = || {
        let waiting = status(s.wrapper, "ShdPnd:");
        state(s.wrapper) == Some('S') && waiting.as_deref() == Some("0000000000000000")
    };
    for round in 1..=200 {
        s.send_to_group(Signal::TSTP);
        // Without sleeping in between, which would be long enough for the wrapper.
        let stopped = (0..1_000_000).any(|_| state(s.listener) == Some('T'));
        s.send_to_group(Signal::CONT);
        assert!(stopped);
        wait_until("the wrapper has handled both", handled);
        s.send_to_wrapper(Signal::USR1);
        let seen = || s.signals.count("10 code=0 value=0") == round;
        wait_until("a signal reaches the listener", seen);
    }
    s.finish();
}

/// An attached wrapper and its target.
fn attached() -> (Child, Child, Log, Cleanup, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let hooks = Log(dir.path().join("hooks"));
    let program = supervised();
    let target = Command::new("sleep").arg("100").spawn().unwrap();
    let mut cleanup = Cleanup(vec![id(&target)]);
    let mut c = Command::new(program);
    c.args(["attach", &target.id().to_string()]).env("SUPERVISED_LOG", &hooks.0);
    let wrapper = c.process_group(0).spawn().unwrap();
    cleanup.0.push(id(&wrapper));
    hooks.wait_for("wake");
    (wrapper, target, hooks, cleanup, dir)
}

fn leaves_the_target_running(signal: Signal) {
    let (mut wrapper, mut target, hooks, _cleanup, _dir) = attached();
    kill_process(Pid::from_child(&wrapper), signal).unwrap();
    assert_eq!(wrapper.wait().unwrap().code(), Some(0));
    assert_eq!(hooks.lines().last().unwrap(), "Detached");
    assert!(target.try_wait().unwrap().is_none());
    target.kill().unwrap();
    target.wait().unwrap();
}

#[test]
fn an_attached_wrapper_that_gets_int_leaves_the_target_running() {
    leaves_the_target_running(Signal::INT);
}

#[test]
fn an_attached_wrapper_that_gets_term_leaves_the_target_running() {
    leaves_the_target_running(Signal::TERM);
}

#[test]
fn an_attached_wrapper_that_gets_hup_leaves_the_target_running() {
    leaves_the_target_running(Signal::HUP);
}

#[test]
fn an_attached_wrapper_that_gets_quit_leaves_the_target_running() {
    leaves_the_target_running(Signal::QUIT);
}

#[test]
fn an_attached_wrapper_stops_by_itself_and_ends_with_its_target() {
    let (mut wrapper, mut target, hooks, _cleanup, _dir) = attached();
    kill_process(Pid::from_child(&wrapper), Signal::TSTP).unwrap();
    wait_until("the wrapper is stopped", || state(id(&wrapper)) == Some('T'));
    assert_eq!(state(id(&target)), Some('S'));
    kill_process(Pid::from_child(&wrapper), Signal::CONT).unwrap();
    hooks.wait_for("continue");
    target.kill().unwrap();
    assert_eq!(wrapper.wait().unwrap().code(), Some(0));
    assert_eq!(hooks.lines().last().unwrap(), "TargetEnded");
    target.wait().unwrap();
}

/// A terminal with a process that has it as controlling terminal.
struct Terminal {
    keyboard: fs::File,
    screen: Arc<Mutex<Vec<u8>>>,
    process: Child,
}

impl Terminal {
    fn start(mut c: Command) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let master: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let open = || {
            let path = Path::new(OsStr::new(name.to_str().unwrap()));
            let mut options = fs::OpenOptions::new();
            std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOCTTY);
            Stdio::from(options.read(true).write(true).open(path).unwrap())
        };
        c.stdin(open()).stdout(open()).stderr(open());
        let lead = || {
            // SAFETY: two system calls on numbers; descriptor 0 is the terminal by now.
            let failed = unsafe { libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 };
            if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        };
        // SAFETY: see above.
        unsafe { c.pre_exec(lead) };
        let process = c.spawn().unwrap();
        drop(c);
        let keyboard = fs::File::from(master);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (mut from, to) = (keyboard.try_clone().unwrap(), Arc::clone(&screen));
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Ends with EIO when the last process has closed the terminal.
            while let Ok(n) = from.read(&mut buffer) {
                to.lock().unwrap().extend_from_slice(&buffer[..n]);
            }
        });
        Self { keyboard, screen, process }
    }

    /// Starts an interactive bash, and waits for its prompt.
    fn bash() -> Self {
        let mut c = Command::new("bash");
        c.args(["--norc", "--noprofile", "--noediting", "-i"]);
        c.env("PS1", "prompt> ").env("TERM", "dumb").env("HISTFILE", "");
        let mut t = Self::start(c);
        t.wait_for("prompt> ");
        t
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    fn keys(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    #[track_caller]
    fn wait_for(&mut self, text: &str) {
        wait_for_ok(&format!("'{text}' on the screen"), || {
            let screen = self.text();
            if screen.contains(text) { Ok(()) } else { Err(screen) }
        });
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A bash on a terminal with a wrapped listener in the foreground.
fn at_terminal() -> (Terminal, Log, Log, [i32; 2], Cleanup, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let (signals, hooks) = (Log(dir.path().join("signals")), Log(dir.path().join("hooks")));
    let mut t = Terminal::bash();
    let (program, log, hook) = (supervised(), signals.0.display(), hooks.0.display());
    let program = program.display();
    t.keys(&format!(
        "SUPERVISED_LOG={hook} {program} run -- {program} listen {log}; echo status=$?=\n"
    ));
    let listener = signals.listener();
    let status = fs::read_to_string(format!("/proc/{listener}/status")).unwrap();
    let wrapper = status.lines().find_map(|l| l.strip_prefix("PPid:")).unwrap();
    let wrapper: i32 = wrapper.trim().parse().unwrap();
    hooks.wait_for("wake");
    (t, signals, hooks, [wrapper, listener], Cleanup(vec![listener, wrapper]), dir)
}

#[test]
fn ctrl_c_is_seen_once_each_time_and_the_wrapper_outlives_it() {
    let (mut t, signals, _hooks, [wrapper, _], _cleanup, _dir) = at_terminal();
    let pid = Pid::from_raw(wrapper).unwrap();
    let ctrl_c = "2 code=128 value=0";
    for (count, marker) in [(1, Signal::USR1), (2, Signal::USR2)] {
        t.keys("\x03");
        wait_until("Ctrl-C has come", || signals.count(ctrl_c) >= count);
        // The wrapper handles lower numbers first, so a forwarded SIGINT would come before this.
        kill_process(pid, marker).unwrap();
        signals.wait_for(&format!("{} code=0 value=0", marker.as_raw()));
        let ints = signals.lines().iter().filter(|l| l.starts_with("2 ")).count();
        assert_eq!(ints, count, "{:?}", signals.lines());
    }
    t.keys("\x1c");
    signals.wait_for("3 code=128 value=0");
    kill_process(pid, Signal::TERM).unwrap();
    t.wait_for("status=7=");
}

#[test]
fn the_second_ctrl_c_ends_a_program_that_catches_the_first() {
    let mut t = Terminal::bash();
    let program = supervised();
    t.keys(&format!(
        "{} run -- bash -c 'trap \"trap - INT; echo caught-$((1+1))\" INT; echo ready-$((2+1)); \
         while :; do :; done'; echo status=$?=\n",
        program.display()
    ));
    // Without commands of its own: where one that ended well has just not been waited for, Bash
    // takes a Ctrl-C for handled.
    t.wait_for("ready-3");
    t.keys("\x03");
    t.wait_for("caught-2");
    t.keys("\x03");
    // Bash gives up the rest of the line when a command dies of Ctrl-C.
    t.keys("echo status=$?=\n");
    t.wait_for("status=130=");
}

#[test]
fn ctrl_z_stops_both_and_fg_continues_both() {
    let (mut t, signals, hooks, [wrapper, listener], _cleanup, _dir) = at_terminal();
    for round in 1..=2 {
        t.keys("\x1a");
        wait_until("both are stopped", || {
            state(wrapper) == Some('T') && state(listener) == Some('T')
        });
        wait_until("the shell reports it", || t.text().matches("Stopped").count() == round);
        assert_eq!(hooks.count("stop"), round);
        t.keys("fg\n");
        wait_until("both have been continued", || hooks.count("continue") == round);
        wait_until("the program has noticed", || {
            signals.lines().iter().filter(|l| l.starts_with("18 ")).count() >= round
        });
    }
    // Ctrl-C still reaches the program, and `bg` works too.
    t.keys("\x1a");
    wait_until("the shell reports it", || t.text().matches("Stopped").count() == 3);
    t.keys("bg\n");
    wait_until("both have been continued", || hooks.count("continue") == 3);
    t.keys("fg\n");
    wait_until("fg shows the command", || t.text().matches("listen").count() >= 5);
    wait_until("the foreground is the wrapper's", || foreground(wrapper));
    t.keys("\x03");
    signals.wait_for("2 code=128 value=0");
    kill_process(Pid::from_raw(wrapper).unwrap(), Signal::TERM).unwrap();
    wait_until("the wrapper has ended", || matches!(state(wrapper), None | Some('Z')));
    t.keys("echo end=$?=\n");
    t.wait_for("end=7=");
}

/// Whether a process is in the foreground group of its terminal.
fn foreground(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 1..].split_whitespace().collect();
    fields[2] == fields[5]
}

#[test]
fn a_program_that_ignores_ctrl_z_keeps_the_wrapper_running() {
    let dir = tempfile::tempdir().unwrap();
    let hooks = Log(dir.path().join("hooks"));
    let mut t = Terminal::bash();
    t.keys(&format!(
        "SUPERVISED_LOG={} {} run -- bash -c 'trap \"\" TSTP; echo ready-$((2+1)); read line; \
         echo got-$line'; echo status=$?=\n",
        hooks.0.display(),
        supervised().display()
    ));
    t.wait_for("ready-3");
    t.keys("\x1a");
    t.keys("word\n");
    t.wait_for("got-word");
    t.wait_for("status=0=");
    assert_eq!(hooks.count("stop"), 0);
}

#[test]
fn a_hangup_that_only_the_session_leader_gets_reaches_the_program() {
    let dir = tempfile::tempdir().unwrap();
    let signals = Log(dir.path().join("signals"));
    let program = supervised();
    let mut c = Command::new(&program);
    c.args(["run", "--"]).arg(&program).arg("listen").arg(&signals.0);
    let mut t = Terminal::start(c);
    let listener = signals.listener();
    let _cleanup = Cleanup(vec![listener, id(&t.process)]);
    hang_up(&mut t);
    signals.wait_for("1 code=0 value=0");
    kill_process(Pid::from_raw(listener).unwrap(), Signal::TERM).unwrap();
    assert_eq!(t.process.wait().unwrap().code(), Some(7));
}

/// Closes the line of a terminal, as a modem or a terminal window that is closed does.
fn hang_up(t: &mut Terminal) {
    // The reader has a copy of the master, so that closing ours does not hang up; a vhangup on the
    // terminal's side is the same to its processes. TIOCVHANGUP is not in every C library.
    const TIOCVHANGUP: libc::Ioctl = 0x5437;
    let path = format!("/proc/{}/fd/0", t.process.id());
    let side = fs::File::open(path).unwrap();
    // SAFETY: the request has no argument.
    let result = unsafe { libc::ioctl(side.as_raw_fd(), TIOCVHANGUP, 0) };
    if result != 0 {
        evenly_testing::skip("hangup", "hanging up needs CAP_SYS_ADMIN");
        kill_process(Pid::from_child(&t.process), Signal::HUP).unwrap();
    }
}

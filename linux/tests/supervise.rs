//! The wrapper on real processes: what a program gets and how it ends must be the same with and
//! without it. The wrapper is the example `supervised`, which cargo builds along with the tests.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::ptr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Only a hang lasts as long as this.
const DEADLINE: Duration = Duration::from_secs(60);

fn supervised() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().unwrap().parent().unwrap().join("examples/supervised");
    assert!(path.exists(), "{} is missing: cargo build --examples", path.display());
    path
}

/// A command with the wrapper in front of it, or without.
fn command(wrapped: bool, argv: &[&str]) -> Command {
    if !wrapped {
        let mut c = Command::new(argv[0]);
        c.args(&argv[1..]);
        return c;
    }
    let mut c = Command::new(supervised());
    c.args(["run", "--"]).args(argv);
    c
}

fn wrapped_output(argv: &[&str]) -> Output {
    command(true, argv).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

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
        let start = Instant::now();
        while self.count(line) == 0 {
            let late = start.elapsed() > DEADLINE;
            assert!(!late, "waited in vain for '{line}' after {:?}", self.lines());
            thread::sleep(Duration::from_millis(5));
        }
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

/// State letter of a process, None where there is none.
fn state(pid: i32) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|l| l.strip_prefix("State:")?.trim().chars().next())
}

fn id(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

#[test]
fn the_exit_status_passes_through() {
    for status in [0, 1, 42, 125, 126, 127, 128, 255] {
        let output = wrapped_output(&["sh", "-c", &format!("exit {status}")]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn a_fatal_signal_is_raised_again_without_a_core_dump() {
    let dir = tempfile::tempdir().unwrap();
    for (name, number) in
        [("HUP", 1), ("INT", 2), ("ABRT", 6), ("KILL", 9), ("SEGV", 11), ("PIPE", 13), ("TERM", 15)]
    {
        // The limit lets both dump if they would; the program's own dump is its affair.
        let mut c = command(true, &["sh", "-c", &format!("ulimit -c 0; kill -{name} $$")]);
        let status = c.current_dir(dir.path()).status().unwrap();
        assert_eq!(status.signal(), Some(number), "{name}");
        assert!(!status.core_dumped(), "{name}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_started_has_the_statuses_of_env() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plain = file("plain", "echo never\n", 0o644);
    let lost = file("lost", "#!/no/such/interpreter\n", 0o755);
    let missing = dir.path().join("missing").to_str().unwrap().to_owned();
    let below = format!("{plain}/below");
    let cases: [(&str, i32, &str); 7] = [
        ("no-such-program-anywhere", 127, "not found in PATH="),
        (&missing, 127, "no such file"),
        (&lost, 127, "interpreter"),
        (&plain, 126, "permission denied"),
        (dir.path().to_str().unwrap(), 126, "is a directory"),
        (&below, 126, "Not a directory"),
        ("", 125, "no program given"),
    ];
    for (program, status, word) in cases {
        let output = wrapped_output(&[program]);
        assert_eq!(output.status.code(), Some(status), "{program}: {}", stderr(&output));
        assert!(stderr(&output).contains(word), "{program}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1);
        if status != 125 {
            let by_env = Command::new("env").arg(program).stderr(Stdio::null()).status().unwrap();
            assert_eq!(by_env.code(), Some(status), "{program}");
        }
    }
    assert_eq!(wrapped_output(&[]).status.code(), Some(125));
}

#[test]
fn a_script_without_interpreter_line_is_run_by_the_shell() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script");
    fs::write(&path, "echo \"got $1\"; exit 5\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let output = wrapped_output(&[path.to_str().unwrap(), "a b"]);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(output.stdout, b"got a b\n");
}

#[test]
fn arguments_arrive_byte_for_byte_and_argv0_as_given() {
    use std::os::unix::ffi::OsStrExt;
    let odd = OsStr::from_bytes(b"\xff\n -- '\"");
    let run = |mut c: Command| c.arg(odd).arg("").output().unwrap().stdout;
    let bare = run(command(false, &["cat", "/proc/self/cmdline", "--"]));
    let wrapped = run(command(true, &["cat", "/proc/self/cmdline", "--"]));
    assert!(bare.starts_with(b"cat\0/proc/self/cmdline\0--\0\xff\n"));
    assert_eq!(bare, wrapped);
}

/// An unusual state to start in: signals ignored and blocked, stdin closed, limits and priority
/// changed, a descriptor inherited.
fn unusual(c: &mut Command, inherited: i32, ignore_pipe: bool) {
    let set_up = move || {
        // SAFETY: only system calls on numbers and live variables, all async-signal-safe.
        unsafe {
            let mut set = std::mem::zeroed::<libc::sigset_t>();
            libc::sigaddset(&raw mut set, libc::SIGUSR2);
            libc::sigaddset(&raw mut set, libc::SIGRTMIN() + 3);
            libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            libc::signal(libc::SIGCHLD, libc::SIG_IGN);
            libc::signal(libc::SIGRTMAX(), libc::SIG_IGN);
            if ignore_pipe {
                libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            }
            let files = libc::rlimit { rlim_cur: 200, rlim_max: 300 };
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
            let core = libc::rlimit { rlim_cur: 4096, rlim_max: 8192 };
            libc::setrlimit(libc::RLIMIT_CORE, &raw const core);
            libc::umask(0o027);
            libc::nice(3);
            libc::close(0);
            libc::dup2(inherited, 77);
        }
        Ok(())
    };
    // SAFETY: see above; nothing is allocated and no lock is taken.
    unsafe { c.pre_exec(set_up) };
}

/// Output without what differs between any two processes.
fn comparable(text: &str) -> String {
    const OWN: [&str; 16] = [
        // Counts the queued signals of all processes of the user.
        "SigQ:",
        "Tgid:",
        "Pid:",
        "PPid:",
        "NStgid:",
        "NSpid:",
        "Vm",
        "Rss",
        "voluntary_",
        "nonvoluntary_",
        "FDSize:",
        "Hugetlb",
        "Threads_",
        "THP_",
        "total ",
        "untag_mask",
    ];
    let keep = |l: &&str| !OWN.iter().any(|o| l.starts_with(o));
    text.lines().filter(keep).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_program_starts_in_the_state_that_the_wrapper_was_started_in() {
    let dir = tempfile::tempdir().unwrap();
    let inherited = fs::File::open("/etc/passwd").unwrap();
    // Of the shell itself; the second command keeps it from executing ls in its place.
    let list = "ls -l --time-style=+ /proc/$$/fd; true";
    let commands: [&[&str]; 8] = [
        &["cat", "/proc/self/status"],
        &["cat", "/proc/self/limits"],
        &["env"],
        &["nice"],
        &["pwd"],
        &["sh", "-c", "umask; ulimit -a; ps -o pgid=,sid=,tty=,tpgid= -p $$"],
        &["sh", "-c", list],
        &["cat", "/proc/self/timerslack_ns", "/proc/self/oom_score_adj", "/proc/self/cgroup"],
    ];
    for ignore_pipe in [false, true] {
        for argv in commands {
            let run = |wrapped: bool| {
                let path = dir.path().join("output");
                let out = fs::File::create(&path).unwrap();
                let mut c = command(wrapped, argv);
                c.current_dir("/usr").stdout(out.try_clone().unwrap()).stderr(out);
                unusual(&mut c, inherited.as_raw_fd(), ignore_pipe);
                let status = c.status().unwrap();
                (status, comparable(&fs::read_to_string(path).unwrap()))
            };
            let (bare, wrapped) = (run(false), run(true));
            assert_eq!(bare, wrapped, "{argv:?}");
            assert!(!bare.1.is_empty(), "{argv:?}");
            if argv == ["cat", "/proc/self/status"] {
                // The comparison is worth something only if the state was unusual indeed.
                let ignored = bare.1.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap();
                let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
                assert_eq!(ignored & 1, 1);
                assert_eq!(ignored & (1 << 12) != 0, ignore_pipe);
                assert!(bare.1.contains("Umask:\t0027"));
            }
            if argv.last() == Some(&list) {
                assert!(bare.1.contains("77 -> /etc/passwd"), "{}", bare.1);
                assert!(!bare.1.contains(" 0 -> "), "{}", bare.1);
            }
        }
    }
}

#[test]
fn a_broken_pipe_ends_the_program_as_without_the_wrapper() {
    let run = |wrapped: bool, ignore: bool| -> (ExitStatus, String) {
        let mut c = command(wrapped, &["yes"]);
        if ignore {
            let ignore = || {
                // SAFETY: signal(2) is async-signal-safe and no handler is installed.
                unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
                Ok(())
            };
            // SAFETY: see above.
            unsafe { c.pre_exec(ignore) };
        }
        let mut child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut start = [0; 2];
        child.stdout.take().unwrap().read_exact(&mut start).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status, stderr(&output))
    };
    for ignore in [false, true] {
        let bare = run(false, ignore);
        assert_eq!(bare.0.signal() == Some(13), !ignore);
        assert_eq!(bare, run(true, ignore));
    }
}

#[test]
fn an_alarm_that_was_set_before_reaches_the_program() {
    for wrapped in [false, true] {
        let mut c = command(wrapped, &["sleep", "100"]);
        let arm = || {
            let value = libc::timeval { tv_sec: 0, tv_usec: 100_000 };
            let timer = libc::itimerval {
                it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
                it_value: value,
            };
            // SAFETY: setitimer only reads the live timer.
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) };
            Ok(())
        };
        // SAFETY: only a system call.
        unsafe { c.pre_exec(arm) };
        assert_eq!(c.status().unwrap().signal(), Some(libc::SIGALRM), "wrapped: {wrapped}");
    }
}

#[test]
fn with_sigchld_ignored_the_end_is_noticed_all_the_same() {
    let mut c = command(true, &["sh", "-c", "exit 42"]);
    let ignore = || {
        // SAFETY: signal(2) is async-signal-safe and no handler is installed.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        Ok(())
    };
    // SAFETY: see above.
    unsafe { c.pre_exec(ignore) };
    assert_eq!(c.status().unwrap().code(), Some(42));
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
    let mut child = command(true, &["sleep", "100"]).process_group(0).spawn().unwrap();
    let _cleanup = Cleanup(vec![id(&child)]);
    // Before the program runs it is as good: the wrapper then ends by the signal alone.
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(15));
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
    // In our own process group: nobody would continue the wrapper.
    let mut s = Session::start_by(&[], |mut c| c.spawn().unwrap());
    s.send_to_listener(Signal::STOP);
    s.hooks.wait_for("stop");
    assert_ne!(state(id(&s.wrapper)), Some('T'));
    s.send_to_listener(Signal::CONT);
    s.hooks.wait_for("continue");
    s.finish();
}

#[test]
fn without_job_control_a_stop_of_the_whole_group_stops_the_wrapper() {
    let dir = tempfile::tempdir().unwrap();
    let (signals, hooks) = (Log(dir.path().join("signals")), Log(dir.path().join("hooks")));
    let program = supervised();
    let mut script = Command::new("sh");
    script.args(["-c", "\"$0\" run -- \"$0\" listen \"$1\"; exit $?"]).arg(&program);
    script.arg(&signals.0).env("SUPERVISED_LOG", &hooks.0).process_group(0);
    let mut script = script.spawn().unwrap();
    let mut cleanup = Cleanup(vec![id(&script)]);
    let listener = signals.listener();
    let status = fs::read_to_string(format!("/proc/{listener}/status")).unwrap();
    let wrapper = status.lines().find_map(|l| l.strip_prefix("PPid:")).unwrap();
    let wrapper: i32 = wrapper.trim().parse().unwrap();
    cleanup.0.extend([listener, wrapper]);
    hooks.wait_for("wake");
    kill_process_group(Pid::from_child(&script), Signal::TSTP).unwrap();
    wait_until("both are stopped", || state(wrapper) == Some('T') && state(listener) == Some('T'));
    kill_process_group(Pid::from_child(&script), Signal::CONT).unwrap();
    hooks.wait_for("continue");
    kill_process(Pid::from_raw(wrapper).unwrap(), Signal::TERM).unwrap();
    assert_eq!(script.wait().unwrap().code(), Some(7));
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

#[test]
fn ending_an_attached_wrapper_leaves_the_target_running() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let (mut wrapper, mut target, hooks, _cleanup, _dir) = attached();
        kill_process(Pid::from_child(&wrapper), signal).unwrap();
        assert_eq!(wrapper.wait().unwrap().code(), Some(0));
        assert_eq!(hooks.lines().last().unwrap(), "Detached");
        assert!(target.try_wait().unwrap().is_none());
        target.kill().unwrap();
        target.wait().unwrap();
    }
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

#[test]
fn attaching_to_what_is_no_process_says_so() {
    let attach = |pid: String| {
        Command::new(supervised()).args(["attach", &pid]).stdin(Stdio::null()).output().unwrap()
    };
    for pid in ["0", "-5", "2147483647"] {
        let output = attach(pid.to_owned());
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains("there is no such process"), "{}", stderr(&output));
    }
    // A thread of ours that is not the first.
    let tid = rustix::thread::gettid().as_raw_nonzero().to_string();
    let output = attach(tid);
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("is a thread"), "{}", stderr(&output));
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

    /// An interactive bash.
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
        let start = Instant::now();
        while !self.text().contains(text) {
            let late = start.elapsed() > DEADLINE;
            assert!(!late, "waited in vain for '{text}'; the screen shows:\n{}", self.text());
            thread::sleep(Duration::from_millis(5));
        }
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
        wait_until("the shell says so", || t.text().matches("Stopped").count() == round);
        assert_eq!(hooks.count("stop"), round);
        t.keys("fg\n");
        wait_until("both have been continued", || hooks.count("continue") == round);
        wait_until("the program has noticed", || {
            signals.lines().iter().filter(|l| l.starts_with("18 ")).count() >= round
        });
    }
    // Ctrl-C still reaches the program, and `bg` works too.
    t.keys("\x1a");
    wait_until("the shell says so", || t.text().matches("Stopped").count() == 3);
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
fn a_hangup_that_only_the_session_leader_hears_reaches_the_program() {
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

//! The wrapper on real processes: what a program gets and how it ends must be the same with and
//! without it. Signals and stops are tested in `signals.rs`.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

mod wrapped;

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Output, Stdio};
use std::ptr;
use wrapped::{command, supervised};

fn wrapped_output(argv: &[&str]) -> Output {
    command(true, argv).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
fn a_fatal_signal_is_raised_again() {
    for (name, number) in
        [("HUP", 1), ("INT", 2), ("ABRT", 6), ("KILL", 9), ("SEGV", 11), ("PIPE", 13), ("TERM", 15)]
    {
        let mut c = command(true, &["sh", "-c", &format!("ulimit -c 0; kill -{name} $$")]);
        assert_eq!(c.status().unwrap().signal(), Some(number), "{name}");
    }
}

/// With the highest limit of core dumps that there can be, in a directory for them.
fn may_dump_core(c: &mut Command, dir: &Path) -> ExitStatus {
    let raise = || {
        let mut core = rustix::process::getrlimit(rustix::process::Resource::Core);
        core.current = core.maximum;
        Ok(rustix::process::setrlimit(rustix::process::Resource::Core, core)?)
    };
    // SAFETY: two system calls; nothing is allocated and no lock is taken.
    unsafe { c.pre_exec(raise) };
    c.current_dir(dir).status().unwrap()
}

#[test]
fn where_a_fatal_signal_dumps_core_the_wrapper_dumps_none() {
    let (control, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // Without a limit of its own a program does dump here.
    let alone = may_dump_core(&mut command(false, &["sh", "-c", "kill -ABRT $$"]), control.path());
    assert_eq!(alone.signal(), Some(libc::SIGABRT));
    if !alone.core_dumped() {
        return evenly_testing::skip("core-dumps", "a program that aborts dumps no core");
    }
    // The limit that the program sets is its own: it says nothing of the wrapper.
    let mut wrapped = command(true, &["sh", "-c", "ulimit -c 0; kill -ABRT $$"]);
    let status = may_dump_core(&mut wrapped, dir.path());
    assert_eq!((status.signal(), status.core_dumped()), (Some(libc::SIGABRT), false));
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
    evenly_testing::script(&path, "echo \"got $1\"; exit 5\n");
    let output = wrapped_output(&[path.to_str().unwrap(), "a b"]);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(output.stdout, b"got a b\n");
}

#[test]
fn arguments_arrive_byte_for_byte_and_argv0_as_given() {
    use std::os::unix::ffi::OsStrExt;
    let bytes = OsStr::from_bytes(b"\xff\n -- '\"");
    let run = |mut c: Command| c.arg(bytes).arg("").output().unwrap().stdout;
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

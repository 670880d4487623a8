//! Promise P9: the program notices nothing.

use crate::support::{Child, Tool, stderr, text, wait_until, workload};
use evenly_linux::proc::Proc;
use evenly_model::Pid;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

#[test]
fn binary_data_passes_both_ways() {
    let data: Vec<u8> = (0..1_000_003u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    let tool = Tool::new();
    let mut cat = tool
        .run("-q", &["cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = cat.stdin.take().unwrap();
    let sent = data.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = cat.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    assert_eq!(stderr(&output), "");
    assert!(output.stdout == data, "{} bytes", output.stdout.len());
}

#[test]
fn a_broken_pipe_ends_the_program_and_not_evenly_before_it() {
    let tool = Tool::new();
    let mut yes = Child::spawn(tool.run("-q", &["yes"]).stdout(Stdio::piped()));
    let mut stdout = yes.0.stdout.take().unwrap();
    let mut some = [0u8; 4];
    stdout.read_exact(&mut some).unwrap();
    drop(stdout);
    assert_eq!(yes.0.wait().unwrap().signal(), Some(13));
}

#[test]
fn exit_statuses_and_signals_pass() {
    let tool = Tool::new();
    let run = |program: &[&str]| tool.run("-q", program).output().unwrap();
    for status in [0, 1, 42, 125, 126, 127] {
        let output = run(&["sh", "-c", &format!("exit {status}")]);
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(status), ""));
    }
    // Under nohup or in the background of a script some are ignored, by programs as well.
    let ignored = {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap()
    };
    for signal in [1, 2, 9, 15].into_iter().filter(|s| ignored & (1 << (s - 1)) == 0) {
        assert_eq!(run(&["sh", "-c", &format!("kill -{signal} $$")]).status.signal(), Some(signal));
    }
    for (program, status) in [("/no/such/program", 127), ("/", 126)] {
        let output = run(&[program]);
        assert_eq!(output.status.code(), Some(status));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    }
}

#[test]
fn a_balanced_program_inherits_what_it_would_without_evenly() {
    inherits_the_same("hybrid");
}

#[test]
fn an_observed_program_inherits_what_it_would_without_evenly() {
    inherits_the_same("observe");
}

fn inherits_the_same(policy: &str) {
    let tool = Tool::new();
    let odd = workload("odd");
    let around =
        "umask 027; ulimit -n 200; trap '' USR1; exec 7</dev/null 8>/dev/null; exec \"$@\"";
    let inherited = |words: &[&str]| {
        let output =
            tool.by("sh").args(["-c", around, "sh"]).args(words).stderr(Stdio::null()).output();
        let mut json: serde_json::Value = serde_json::from_slice(&output.unwrap().stdout).unwrap();
        let object = json.as_object_mut().unwrap();
        assert!(object.remove("pid").is_some() && object.remove("ppid").is_some());
        json
    };
    let bare = inherited(&[&odd, "inherit"]);
    let wrapped = inherited(&[tool.exe(), "run", "--policy", policy, "--", &odd, "inherit"]);
    assert_eq!(bare, wrapped);
}

#[test]
fn evenly_speaks_on_stderr_only_and_not_at_all_if_quiet() {
    let tool = Tool::new();
    let output = tool.run("", &["echo", "hello"]).output().unwrap();
    assert_eq!(text(&output.stdout), "hello\n");
    assert!(stderr(&output).starts_with("evenly: "));
    let output = tool.run("-q", &["echo", "hello"]).output().unwrap();
    assert_eq!((text(&output.stdout).as_str(), stderr(&output).as_str()), ("hello\n", ""));
}

#[test]
fn nobody_to_listen_is_no_failure() {
    let tool = Tool::new();
    for redirection in ["2>&-", "2>/dev/full", ">&- 2>&-", "<&- 2>&-"] {
        let line = format!("exec {} run -v -- sh -c 'exit 5' {redirection}", tool.exe());
        let output = tool.by("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{redirection}");
    }
    let output = tool.run("-q --json /dev/full", &["sh", "-c", "exit 5"]).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    assert!(stderr(&output).contains("/dev/full"), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1);
}

/// A terminal: what is typed, and what has appeared.
struct Terminal {
    child: Child,
    keys: std::process::ChildStdin,
    screen: Arc<Mutex<String>>,
}

impl Terminal {
    /// `script` of util-linux makes the pseudo terminal.
    fn open(tool: &Tool, shell: &str) -> Self {
        let mut child = Child::spawn(
            tool.by("script")
                .args(["-qec", shell, "/dev/null"])
                .env("TERM", "dumb")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped()),
        );
        let (keys, mut out) = (child.0.stdin.take().unwrap(), child.0.stdout.take().unwrap());
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut buffer = [0u8; 4096];
            while let Ok(n @ 1..) = out.read(&mut buffer) {
                shown.lock().unwrap().push_str(&text(&buffer[..n]));
            }
        });
        Self { child, keys, screen }
    }

    #[track_caller]
    fn wait_for(&self, words: &str) {
        let start = std::time::Instant::now();
        while !self.screen.lock().unwrap().contains(words) {
            let screen = self.screen.lock().unwrap().clone();
            assert!(start.elapsed() < crate::support::DEADLINE, "no '{words}' in:\n{screen}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        self.screen.lock().unwrap().clear();
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }
}

fn state(proc: &Proc, pid: Pid) -> Option<u8> {
    proc.process_stat(pid).map(|s| s.state)
}

/// The children of a process.
fn of_parent(proc: &Proc, parent: Pid) -> Vec<Pid> {
    let is_child = |p: &Pid| proc.process_stat(*p).is_some_and(|s| s.ppid == parent);
    proc.processes().into_iter().filter(is_child).collect()
}

#[test]
fn job_control_of_a_shell() {
    let tool = Tool::new();
    let mut t = Terminal::open(&tool, "bash --norc --noprofile -i");
    t.types("echo rea''dy\n");
    t.wait_for("ready");
    // The words that are waited for are not to be found in the echo of what is typed.
    // Nothing is started in between: a shell that waits in vfork(2) for what it starts cannot be stopped.
    let program = "echo be''gun; exec sleep 300";
    t.types(&format!("{} run -q -- sh -c \"{program}\"\n", tool.exe()));
    t.wait_for("begun");
    t.types("\x1a");
    t.wait_for("Stopped");
    t.types("echo in be''tween\n");
    t.wait_for("in between");
    t.types("fg\n");
    // The shell gives the terminal to the job before it continues it; a Ctrl-C too early would
    // reach the shell.
    t.wait_for("run -q");
    let stopped = |t: &Terminal| {
        let (proc, script) = (Proc::default(), Pid(t.child.0.id().cast_signed()));
        let shell = of_parent(&proc, script);
        shell.iter().flat_map(|s| of_parent(&proc, *s)).any(|p| state(&proc, p) == Some(b'T'))
    };
    wait_until("the job runs", || !stopped(&t));
    t.types("\x03");
    t.types("echo en''ded $?\n");
    t.wait_for("ended 130");
    t.types("exit\n");
    assert!(t.child.0.wait().unwrap().success());
}

//! The tool in a room of its own, and the workloads.

use crate::processes;
pub(crate) use evenly_testing::wait_until;
use rustix::process::{Pid as Id, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

/// Only a hang lasts as long as this.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A workload, built once for all tests.
pub(crate) fn workload(name: &str) -> String {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let dir = BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads");
        // Other test programs build them too.
        let lock = File::create(target.join("workloads.lock")).unwrap();
        lock.lock().unwrap();
        let out = target.join("workloads");
        let made = Command::new("make")
            .arg("-C")
            .arg(&sources)
            .arg(format!("OUT={}", out.display()))
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        out
    });
    dir.join(name).to_str().unwrap().to_owned()
}

/// The tool with a state directory of its own, so that tests that run side by side do not see
/// each other, and a place for files.
pub(crate) struct Tool {
    pub(crate) dir: tempfile::TempDir,
    exe: PathBuf,
}

impl Tool {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir, exe: PathBuf::from(env!("CARGO_BIN_EXE_evenly")) }
    }

    /// One that other users can run too.
    pub(crate) fn for_everybody() -> Self {
        let mut tool = Self::new();
        fs::set_permissions(tool.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = tool.path("evenly");
        // By another process: what is open for writing here when a test beside this one starts a program
        // could not be executed until that one has begun.
        assert!(Command::new("cp").arg(&tool.exe).arg(&copy).status().unwrap().success());
        tool.exe = copy;
        tool
    }

    /// A directory that belongs to this user.
    pub(crate) fn directory_of(&self, user: u32) -> PathBuf {
        let path = self.path(&format!("of-{user}"));
        fs::create_dir_all(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(user), Some(user)).unwrap();
        path
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn exe(&self) -> &str {
        self.exe.to_str().unwrap()
    }

    /// Something that runs the tool.
    pub(crate) fn by(&self, program: &str) -> Command {
        let mut c = Command::new(program);
        c.env("EVENLY_STATE_DIR", self.path("state")).stdin(Stdio::null());
        c
    }

    pub(crate) fn evenly<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut c = self.by(self.exe());
        c.args(args);
        c
    }

    /// `evenly run` with these words before and behind the `--`.
    pub(crate) fn run(&self, options: &str, program: &[&str]) -> Command {
        let mut c = self.evenly(["run"]);
        c.args(options.split_whitespace()).arg("--").args(program);
        c
    }

    /// Starts `run` with a program that computes until it is ended.
    pub(crate) fn start(&self, options: &str, program: &[&str]) -> Started {
        let log = tempfile::NamedTempFile::new_in(self.dir.path()).unwrap();
        let mut c = self.run(options, program);
        c.stdout(Stdio::null()).stderr(log.reopen().unwrap());
        Started { evenly: Child::spawn(&mut c), log }
    }

    /// A run in which three threads that compute are moved ten times, with these options, and then end. All that
    /// evenly has written to standard error.
    #[track_caller]
    pub(crate) fn balanced(&self, options: &str) -> String {
        let restless = "-v --policy juggle --period 10ms --budget 50 --no-guard --threads 3";
        let churn = workload("churn");
        let program = [churn.as_str(), "--workers", "3", "--duration-s", "300"];
        let run = self.start(&format!("{restless} {options}"), &program);
        wait_until("threads are moved", || run.said().matches(" from CPU ").count() >= 10);
        run.end()
    }

    /// As `run`, to the end; the report as JSON.
    #[track_caller]
    pub(crate) fn json(&self, options: &str, program: &[&str]) -> (Output, Value) {
        let file = self.path("report.json");
        let options = format!("--json {} {options}", file.display());
        let output = self.run(&options, program).output().unwrap();
        assert_report_is_short(&options, &stderr(&output));
        (output, json(&file))
    }

    /// As `json`, with a program that computes until the file of its option `--end-on` is there: made once the
    /// recording, as far as it is written, has what is wanted.
    #[track_caller]
    pub(crate) fn json_until(
        &self,
        options: &str,
        program: &[&str],
        mut is_enough: impl FnMut(&[Value]) -> bool,
    ) -> (Output, Value) {
        let [file, record, end, out, err] =
            ["report.json", "until", "end", "out", "err"].map(|name| self.path(name));
        // Those of a run before.
        for old in [&record, &end] {
            assert!(fs::remove_file(old).is_ok() || !old.exists());
        }
        let options = format!("--json {} --record {} {options}", file.display(), record.display());
        let mut c = self.run(&options, program);
        c.arg("--end-on").arg(&end);
        c.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        let mut evenly = Child::spawn(&mut c);
        wait_until("the recording has what is wanted", || {
            let ended = evenly.0.try_wait().unwrap();
            assert_eq!(ended, None, "{}", fs::read_to_string(&err).unwrap());
            is_enough(&recorded(&record))
        });
        fs::write(&end, "").unwrap();
        let status = evenly.0.wait().unwrap();
        let [stdout, stderr] = [out, err].map(|file| fs::read(file).unwrap());
        assert_report_is_short(&options, &text(&stderr));
        (Output { status, stdout, stderr }, json(&file))
    }

    /// Runs `evenly top` until what it has written to standard output is enough, and interrupts it. It is started
    /// again where it ends by itself, as it does while there is nothing to be shown.
    #[track_caller]
    pub(crate) fn top(&self, args: &[&str], is_enough: impl Fn(&str) -> bool) -> Output {
        let [out, err] = ["top.out", "top.err"].map(|name| self.path(name));
        let mut top: Option<Child> = None;
        wait_until("top shows what is wanted", || {
            if top.as_mut().is_none_or(|t| t.0.try_wait().unwrap().is_some()) {
                let mut c = self.evenly(["top"]);
                c.args(args)
                    .stdout(File::create(&out).unwrap())
                    .stderr(File::create(&err).unwrap());
                top = Some(Child::spawn(&mut c));
            }
            is_enough(&text(&fs::read(&out).unwrap()))
        });
        let mut top = top.unwrap();
        kill_process(Id::from_child(&top.0), Signal::INT).unwrap();
        let status = top.0.wait().unwrap();
        let [stdout, stderr] = [out, err].map(|file| fs::read(file).unwrap());
        Output { status, stdout, stderr }
    }
}

/// The events of a recording that are written. The last line may be a part of one.
pub(crate) fn recorded(file: &Path) -> Vec<Value> {
    let text = text(&fs::read(file).unwrap_or_default());
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}

/// How many of these events are of a kind.
pub(crate) fn of_kind(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|e| e["event"] == kind).count()
}

/// Without `-v` the report has at most eight lines, whatever a run was like.
#[track_caller]
pub(crate) fn assert_report_is_short(options: &str, said: &str) {
    const HEADS: [&str; 3] = ["balanced ", "observed ", "nothing was balanced in "];
    let is_head = |line: &&str| {
        line.strip_prefix("evenly: ").is_some_and(|l| HEADS.iter().any(|head| l.starts_with(head)))
    };
    let lines = said.lines().skip_while(|line| !is_head(line)).count();
    assert!(lines <= 8 || options.split_whitespace().any(|o| o == "-v"), "{said}");
}

#[track_caller]
pub(crate) fn json(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    text(&output.stderr)
}

/// Whether this test can run; if not, it is skipped.
pub(crate) fn is_root(test: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        evenly_testing::skip("root", format!("{test} needs root"));
    }
    root
}

/// `evenly run` with a program that does not end by itself.
pub(crate) struct Started {
    evenly: Child,
    log: tempfile::NamedTempFile,
}

impl Started {
    /// What it has written to standard error.
    pub(crate) fn said(&self) -> String {
        text(&fs::read(self.log.path()).unwrap())
    }

    /// Waits until it has written this to standard error.
    #[track_caller]
    pub(crate) fn wait_until_said(&mut self, words: &str) {
        wait_until(&format!("evenly writes '{words}'"), || {
            let found = self.said().contains(words);
            assert!(found || self.evenly.0.try_wait().unwrap().is_none(), "{}", self.said());
            found
        });
    }

    /// Waits until evenly has looked at the program many times more: before it balances it wakes for each look.
    #[track_caller]
    pub(crate) fn wait_until_looked(&self) {
        let sleeps = || evenly_testing::sleeps(self.evenly.id());
        let before = sleeps();
        wait_until("evenly looks at the program", || sleeps() >= before + 50);
    }

    /// Sends a signal that evenly passes on to the program, which ends by it, and evenly as well. All that evenly
    /// has written to standard error.
    #[track_caller]
    pub(crate) fn end(mut self) -> String {
        kill_process(Id::from_child(&self.evenly.0), Signal::TERM).unwrap();
        let mut status = None;
        wait_until("evenly ends", || {
            status = self.evenly.0.try_wait().unwrap();
            status.is_some()
        });
        let said = self.said();
        assert_eq!(status.unwrap().signal(), Some(Signal::TERM.as_raw()), "{said}");
        said
    }
}

/// A child that is killed and reaped whatever becomes of the test.
pub(crate) struct Child(pub(crate) std::process::Child);

impl Child {
    pub(crate) fn spawn(c: &mut Command) -> Self {
        Self(c.spawn().unwrap())
    }

    pub(crate) fn id(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        processes::end(&mut self.0);
    }
}

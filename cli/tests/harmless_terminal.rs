//! Signals of a terminal while threads are pinned: Ctrl-Z and fg, Ctrl-C once and again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::proc::Proc;
use evenly_model::Pid;
use std::fs;
use std::io::Write;
use std::process::{ChildStdin, Stdio};

/// A shell with job control on a pseudo terminal, which `script` of util-linux makes.
struct Terminal {
    shell: Running,
    keys: ChildStdin,
    screen: String,
}

impl Terminal {
    fn open(state: &State) -> Self {
        let screen = state.sign("screen");
        let mut c = std::process::Command::new("script");
        c.args(["-qec", "bash --norc --noprofile -i", "/dev/null"]);
        c.env("TERM", "dumb").env("EVENLY_STATE_DIR", state.path());
        c.stdin(Stdio::piped()).stdout(fs::File::create(&screen).unwrap());
        let mut shell = Running(c.spawn().unwrap());
        let keys = shell.0.stdin.take().unwrap();
        Self { shell, keys, screen }
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until these words have appeared so often.
    fn wait_for(&self, words: &str, times: usize) {
        wait_until(words, || {
            let shown = fs::read(&self.screen).unwrap();
            String::from_utf8_lossy(&shown).matches(words).count() >= times
        });
    }
}

fn find(above: Pid, wanted: &str) -> Pid {
    wait_for(wanted, || descendants(above).into_iter().find(|p| name(p.0) == wanted))
}

fn is_stopped(pid: Pid) -> bool {
    Proc::default().process_stat(pid).is_some_and(|s| s.state == b'T')
}

#[test]
fn masks_are_free_while_the_job_is_stopped_and_after_its_end() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let mut t = Terminal::open(&state);
    // The program ends at the second Ctrl-C; what it has started ignores both, and lives on. The
    // words that are waited for are not to be found in the echo of what is typed.
    let program = state.sign("program.sh");
    let churn = workload("churn");
    let script = format!(
        "n=0; trap 'n=$((n+1)); echo caught $n; [ $n = 2 ] && exit 9' INT\n\
         {churn} --workers 3 --duration-s 300 >/dev/null &\n\
         while :; do wait $!; done\n"
    );
    fs::write(&program, script).unwrap();
    let evenly = env!("CARGO_BIN_EXE_evenly");
    t.types(&format!(
        "{evenly} run -q --policy juggle --period 10ms --budget 50 --no-guard --threads 3 -- \
         sh {program}\n"
    ));
    let churn = find(t.shell.pid(), "churn");
    let tool = find(t.shell.pid(), "evenly");
    for stops in 1..=2 {
        wait_until_narrowed(churn, &whole, 3);
        t.types("\x1a");
        t.wait_for("Stopped", stops);
        wait_until("the program to be stopped", || is_stopped(churn) && is_stopped(tool));
        wait_until_restored(churn, &whole);
        t.types("fg\n");
        wait_until("the program to go on", || !is_stopped(churn) && !is_stopped(tool));
    }
    wait_until_narrowed(churn, &whole, 3);
    t.types("\x03");
    t.wait_for("caught 1", 1);
    wait_until_narrowed(churn, &whole, 3);
    t.types("\x03");
    t.wait_for("caught 2", 1);
    t.types("echo en''ded $?\n");
    t.wait_for("ended 9", 1);
    wait_until_restored(churn, &whole);
    assert!(state.journals().is_empty());
    signal(churn, Signal::KILL);
    t.types("exit\n");
    let status = wait_for("the end of the shell", || t.shell.0.try_wait().unwrap());
    assert!(status.success());
}

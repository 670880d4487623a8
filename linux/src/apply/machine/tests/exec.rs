//! Programs that a thread becomes by exec.

use super::*;

/// Processes that wait for a line on standard input, and then become something else.
struct Shell {
    child: std::process::Child,
    id: ThreadId,
}

impl Shell {
    fn start(script: &str) -> Self {
        let mut sh = std::process::Command::new("sh");
        let child = sh.args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().unwrap();
        let tid = Tid(child.id().cast_signed());
        let id = ThreadId { tid, start: Proc::default().thread_stat(tid).unwrap().start };
        let shell = Self { child, id };
        shell.wait_until_asleep_as(|line| line == ["sh", "-c", script]);
        shell
    }

    fn command_line(&self) -> Vec<String> {
        let line = Proc::default().command_line(Pid(self.id.tid.0));
        line.into_iter().map(|a| a.into_string().unwrap()).collect()
    }

    fn wait_until_asleep_as(&self, wanted: impl Fn(&[String]) -> bool) {
        let asleep = || Proc::default().thread_stat(self.id.tid).is_some_and(|s| s.state == b'S');
        evenly_testing::wait_for_ok("it sleeps as another program", || {
            let line = self.command_line();
            if wanted(&line) && asleep() { Ok(()) } else { Err(format!("{line:?}")) }
        });
    }

    /// Has it become the next program.
    fn go_on(&mut self) {
        use std::io::Write;
        let before = self.command_line();
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.wait_until_asleep_as(|line| line != before && !line.is_empty());
    }

    fn mask(&self) -> CpuSet {
        affinity::get(self.id.tid).unwrap()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn what_a_pinned_thread_becomes_by_exec_has_its_mask_back_after_one_look() {
    let Some(mut t) = bench() else { return };
    let mut shell = Shell::start("read go; exec sh -c 'read go; exec sleep 600'");
    assert!(t.machine.look_for_exec().is_empty());
    for _ in 0..2 {
        t.machine.place(shell.id, t.a, None).unwrap();
        // As long as it is the same program it stays pinned.
        assert!((0..3).all(|_| t.machine.look_for_exec().is_empty()));
        shell.go_on();
        assert_eq!(shell.mask(), CpuSet::single(t.a));
        let found = t.machine.look_for_exec();
        assert_eq!(found.as_slice(), [shell.id]);
        t.machine.reclaim(shell.id);
        assert_eq!(shell.mask(), t.whole);
        assert_eq!(t.record(shell.id).0, RecordState::Ended);
        assert!(t.machine.look_for_exec().is_empty());
    }
}

#[test]
fn a_mask_that_the_program_set_before_exec_stays() {
    let Some(mut t) = bench() else { return };
    let mut shell = Shell::start("read go; exec sleep 600");
    t.machine.place(shell.id, t.a, None).unwrap();
    let own = CpuSet::single(t.b);
    affinity::set(shell.id.tid, &own).unwrap();
    shell.go_on();
    for id in t.machine.look_for_exec() {
        t.machine.reclaim(id);
    }
    assert_eq!(shell.mask(), own);
}

#[test]
fn many_processes_are_looked_at_in_turns() {
    let Some(mut t) = bench() else { return };
    let mut shells: Vec<Shell> =
        (0..2 * PROCESSES_PER_LOOK + 1).map(|_| Shell::start("read go; exec sleep 600")).collect();
    for s in &shells {
        t.machine.place(s.id, t.a, None).unwrap();
    }
    shells.iter_mut().for_each(Shell::go_on);
    let mut found: Vec<ThreadId> = (0..3).flat_map(|_| t.machine.look_for_exec()).collect();
    found.sort_unstable_by_key(|id| id.tid);
    let mut all: Vec<ThreadId> = shells.iter().map(|s| s.id).collect();
    all.sort_unstable_by_key(|id| id.tid);
    assert_eq!(found, all);
}

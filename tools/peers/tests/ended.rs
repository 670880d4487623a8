//! A signal that ends `evenly-peers` ends what it runs, too.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Ends the program where the test fails.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_test_that_runs_ends_with_its_runner() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let line = format!("echo $$ > {0}.new && mv {0}.new {0} && %arm sleep 1000", pid.display());
        fs::write(dir.path().join("peers.list"), line).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_evenly-peers"));
        program.args(["--evenly", "/bin/true"]).arg(dir.path());
        program.stdout(Stdio::null()).stderr(Stdio::null());
        let mut program = Program(program.spawn().unwrap());
        while !pid.exists() {
            assert!(program.0.try_wait().unwrap().is_none(), "it ended before a test ran");
            sleep(Duration::from_millis(1));
        }
        let shell: u32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        kill_process(Pid::from_child(&program.0), signal).unwrap();
        assert_eq!(program.0.wait().unwrap().code(), Some(125), "after {signal:?}");
        let left = Path::new(&format!("/proc/{shell}")).exists();
        assert!(!left, "the test's shell {shell} is left after {signal:?}");
    }
}

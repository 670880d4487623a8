//! In which loops real threads are seen to spin.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(target_arch = "x86_64")]

use evenly_linux::proc::Proc;
use evenly_linux::spinning::Spinning;
use evenly_model::{Pid, ThreadId, Tid};
use evenly_testing::wait_for;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

const SOURCE: &str = r"
#include <stdatomic.h>
_Atomic int flag;
volatile unsigned long sum;
__attribute__((noinline)) void waits(void) { while (!flag) __builtin_ia32_pause(); }
__attribute__((noinline)) void computes(void) { for (;;) sum = sum * 31 + 1; }
int main(int argc, char **argv) { if (argc > 1) waits(); computes(); }
";

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(program: &Path, args: &[&str]) -> (Running, Pid, ThreadId) {
    let child = Command::new(program).args(args).spawn().unwrap();
    let pid = child.id() as i32;
    (Running(child), Pid(pid), ThreadId { tid: Tid(pid), start: 1 })
}

#[test]
fn a_loop_that_waits_is_named_and_work_is_none() {
    let mut spinning = match Spinning::new() {
        Ok(spinning) => spinning,
        Err(e) => return evenly_testing::skip("perf-events", e),
    };
    let dir = tempfile::tempdir().unwrap();
    let (source, program) = (dir.path().join("app.c"), dir.path().join("app"));
    std::fs::write(&source, SOURCE).unwrap();
    let made = Command::new("cc").args(["-O2", "-g", "-o"]).arg(&program).arg(&source).status();
    assert!(made.unwrap().success());
    let proc = Proc::default();
    let (waits, waiting_pid, waiting) = start(&program, &["wait"]);
    let (works, working_pid, working) = start(&program, &[]);
    let is_enough = |spinning: &Spinning, id| spinning.places().part(id).is_some();
    wait_for("both were seen often enough", || {
        spinning.look(&proc, waiting_pid, waiting);
        spinning.look(&proc, working_pid, working);
        thread::sleep(Duration::from_millis(10));
        (is_enough(&spinning, waiting) && is_enough(&spinning, working)).then_some(())
    });
    // What is known stays when they have ended.
    drop((waits, works));
    spinning.keep(&[], |_| false);
    let places = spinning.places();
    let part = places.part(waiting).unwrap();
    assert!(part > 0.8, "{part}");
    assert_eq!(places.part(working), Some(0.0));
    let uses = spinning.uses(&places, 8, |_| 2.0);
    assert_eq!(uses.len(), 1, "{uses:?}");
    assert_eq!(uses[0].place, "waits (app.c:5)");
    assert_eq!(uses[0].threads, [waiting.tid.0]);
    assert!((uses[0].cpu_s - 2.0 * part).abs() < 1e-9, "{uses:?}");
}

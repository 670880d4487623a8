//! `evenly top` without a terminal.

use crate::support::{Child, Tool, stderr, text, wait_until, workload};
use std::fs;
use std::process::Stdio;

#[test]
fn lines_until_the_program_ends() {
    let tool = Tool::new();
    let program = Child::spawn(
        tool.by(&workload("spmd"))
            .args(["--threads", "3", "--iters", "2500000000"])
            .stdout(Stdio::null()),
    );
    // A waiter, so that the program does not stay behind as a zombie.
    let id = program.id();
    let reaper = std::thread::spawn(move || {
        let mut program = program;
        program.0.wait().unwrap()
    });
    let output = tool.evenly(["top", &id]).output().unwrap();
    assert!(reaper.join().unwrap().success());
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
    let lines = text(&output.stdout);
    assert!(lines.lines().any(|l| l.contains("3 threads")), "{lines}");
}

#[test]
fn without_a_process_the_one_that_is_balanced() {
    let tool = Tool::new();
    let churn = workload("churn");
    let args = [churn.as_str(), "--threads", "1", "--workers", "2", "--rate", "0", "--duration-s"];
    let start = || {
        let mut c = tool.run("-q", &args);
        Child::spawn(c.arg("60").stdout(Stdio::null()))
    };
    let first = start();
    let child_of = |evenly: &str| {
        let pids =
            fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().into_string().ok());
        pids.filter(|p| p.parse::<i32>().is_ok()).find(|p| {
            fs::read_to_string(format!("/proc/{p}/status"))
                .is_ok_and(|s| s.contains(&format!("PPid:\t{evenly}\n")) && s.contains("churn"))
        })
    };
    let mut program = None;
    wait_until("the program runs", || {
        program = child_of(&first.id());
        program.is_some()
    });
    let program = program.unwrap();
    // Ends by a signal after its first line.
    let mut lines = String::new();
    wait_until("top shows the program", || {
        let line = format!("timeout -s INT 3 {} top --plain", tool.exe());
        let output = tool.by("sh").args(["-c", &line]).output().unwrap();
        lines = text(&output.stdout);
        lines.contains("threads on")
    });
    let _second = start();
    wait_until("top asks which", || {
        let output =
            tool.by("timeout").args(["-s", "INT", "3", tool.exe(), "top"]).output().unwrap();
        let said = stderr(&output);
        output.status.code() == Some(125)
            && said.lines().count() == 1
            && said.contains("2 programs")
            && said.contains(&program)
    });
}

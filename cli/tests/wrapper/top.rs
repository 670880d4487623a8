//! `evenly top` without a terminal.

use crate::profile::cache;
use crate::schema::valid;
use crate::support::{Child, Tool, stderr, wait_until, workload};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::io::Read;
use std::process::Stdio;

#[test]
fn lines_until_the_program_ends() {
    let tool = Tool::new();
    let mut program = tool.by(&workload("spmd"));
    let mut program = Child::spawn(
        program.args(["--threads", "3", "--iters", "1000000000000"]).stdout(Stdio::null()),
    );
    let lines = tool.path("lines");
    let mut top = tool.evenly(["top", &program.id()]);
    top.stdout(fs::File::create(&lines).unwrap()).stderr(Stdio::piped());
    let mut top = Child::spawn(&mut top);
    let shown = || fs::read_to_string(&lines).unwrap();
    wait_until("top shows all threads", || shown().lines().any(|l| l.contains("3 threads")));
    assert_eq!(top.0.try_wait().unwrap(), None, "{}", shown());
    // Reaped, so that it does not stay behind as a zombie.
    program.0.kill().unwrap();
    program.0.wait().unwrap();
    let mut status = None;
    wait_until("top ends", || {
        status = top.0.try_wait().unwrap();
        status.is_some()
    });
    let mut said = String::new();
    top.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((status.unwrap().code(), said.as_str()), (Some(0), ""));
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
    tool.top(&["--plain"], |shown| shown.contains("threads on"));
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

/// What the threads of a program spin that another evenly has started with the probe.
#[test]
fn what_threads_spin_is_read_from_the_probe_of_another() {
    let tool = Tool::new();
    let program = [&workload("omp_spmd-gomp"), "--threads", "2", "--phases", "6000", "--work-ms"];
    let mut run = tool.run("-q --policy observe --probe on", &program);
    run.args(["20", "--imbalance", "4,1"]).env("OMP_WAIT_POLICY", "active");
    let evenly = Child::spawn(run.env("XDG_CACHE_HOME", cache()).stdout(Stdio::null()));
    tool.top(&["--json", "-"], |shown| {
        let last = shown.lines().last().map(serde_json::from_str::<Value>);
        let Some(Ok(state)) = last else { return false };
        valid(&state);
        let threads = state["threads"].as_array().unwrap();
        // The one with less to do spins; for how much of its time, depends on what else runs here.
        threads.iter().filter_map(|t| t["spinning"].as_f64()).any(|part| part > 0.0)
    });
    // The program ends with it.
    let pid = rustix::process::Pid::from_child(&evenly.0);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
}

#[test]
fn a_balancer_that_is_stopped_or_killed_is_told() {
    let tool = Tool::new();
    let churn = workload("churn");
    let program = Child::spawn(
        tool.by(&churn)
            .args(["--workers", "3", "--rate", "0", "--duration-s", "300"])
            .stdout(Stdio::null()),
    );
    let balancer = Child::spawn(&mut tool.evenly(["attach", "-q", "--no-guard", &program.id()]));
    let (file, lines) = (tool.path("top.jsonl"), tool.path("top.txt"));
    let json = file.to_str().unwrap();
    // It finds the program by the balancer, once that is there.
    let mut top = None;
    wait_until("top has something to show", || {
        let mut c = tool.evenly(["top", "--plain", "--json", json]);
        let child = Child::spawn(c.stdout(fs::File::create(&lines).unwrap()).stderr(Stdio::null()));
        top = Some(child);
        let top = top.as_mut().unwrap();
        wait_until("top shows or gives up", || {
            top.0.try_wait().unwrap().is_some()
                || fs::read_to_string(&lines).unwrap().lines().count() > 0
        });
        top.0.try_wait().unwrap().is_none()
    });
    let pid: u64 = balancer.id().parse().unwrap();
    let send = |signal| {
        let to = rustix::process::Pid::from_raw(pid as i32).unwrap();
        rustix::process::kill_process(to, signal).unwrap();
    };
    let seen = |state: &str, words: &str| {
        let written = fs::read_to_string(&file).unwrap_or_default();
        // A line that is being written is none yet.
        let last = written.split_inclusive('\n').rfind(|l| l.ends_with('\n')).unwrap_or("null");
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        if !last.is_null() {
            valid(&last);
        }
        let balancer = &last["balancer"];
        let at_it = last["balanced_by"] == pid;
        let said = fs::read_to_string(&lines).unwrap();
        balancer["pid"] == pid
            && balancer["state"] == state
            && at_it == (state != "gone")
            && said.lines().last().is_some_and(|l| l.contains(words))
    };
    let is = |what: &str| format!("evenly (pid {pid}) {what}");
    wait_until("it is seen at work", || seen("working", &is("balances it")));
    send(Signal::STOP);
    wait_until("it is seen stopped", || seen("stopped", &is("is STOPPED")));
    send(Signal::CONT);
    wait_until("it is seen at work again", || seen("working", &is("balances it")));
    send(Signal::KILL);
    wait_until("it is seen to be gone", || seen("gone", &is("has ENDED")));
}

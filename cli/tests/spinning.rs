//! Threads that spin: in a program that runs already, and what it is worth that they hand over their CPU.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(target_arch = "x86_64")]

mod common;

use common::{Running, State, masks, narrowed, signal, wait_until, whole, workload};
use evenly_linux::proc::{Proc, parse_schedstat, read_all};
use evenly_linux::samples::Samples;
use evenly_model::{CpuSet, Nanos, Pid, Tid};
use rustix::process::Signal;
use serde_json::Value;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// CPU time of the threads with this name.
fn used_by(pid: Pid, name: &str) -> Nanos {
    let proc = Proc::default();
    let is_it = |tid: &Tid| proc.thread_stat(*tid).is_some_and(|s| s.name() == name);
    let ran =
        |tid| Some(parse_schedstat(&read_all(&proc.thread_file(tid, "schedstat")).ok()?)?.ran);
    let all = proc.threads(pid).into_iter().filter(is_it).filter_map(ran);
    all.fold(Nanos::ZERO, |sum, ran| sum + ran)
}

/// One thread more than there are CPUs, which meet at a spinning barrier of their own: the CPUs, the threads, and the command.
/// None where it cannot be seen that they spin.
fn spinning() -> Option<(CpuSet, usize, Vec<String>)> {
    let whole = whole()?;
    if let Err(e) = Samples::new() {
        evenly_testing::skip("perf-events", e);
        return None;
    }
    let n = whole.len() + 1;
    let options = format!("--threads {n} --phases 100000000 --iters 10000 --barrier spin");
    let options = options.split(' ').map(str::to_owned);
    Some((whole, n, std::iter::once(workload("spmd")).chain(options).collect()))
}

fn words(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

/// Threads of one test fill all CPUs: beside those of another one nothing is as it would be.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn cpus_change_hands_often_while_threads_spin() {
    let _alone = alone();
    let Some((whole, n, command)) = spinning() else { return };
    let state = State::new();
    let mut program = Running::start(&words(&command));
    wait_until("its threads", || masks(program.pid()).len() > n);
    let mut evenly = state.start(&["attach", &program.pid().to_string()]);
    wait_until("CPUs to have changed hands often for a second", || {
        // Of which it needs some to go through the program's files.
        used_by(evenly.pid(), "metronome") > Nanos::from_millis(300)
    });
    signal(evenly.pid(), Signal::INT);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    let report: Value = evenly.report();
    let metronome = &report["metronome"];
    let part = |name: &str| metronome[name].as_f64().unwrap();
    assert!(part("cpus_with") > part("cpus_without"), "{metronome}");
    assert!(metronome["place"].as_str().unwrap().contains("barrier.c:"), "{metronome}");
    assert!(part("cpu_s") > 0.0 && part("seconds") > 0.0, "{metronome}");
    // The program runs on as before.
    assert!(program.is_alive());
    assert_eq!(narrowed(program.pid(), &whole), 0, "{}", evenly.stderr());
}

/// The same in a program that hands over by itself: after a while that pauses, and is compared.
#[test]
fn what_handing_over_is_worth_is_measured() {
    let _alone = alone();
    let Some((_, n, command)) = spinning() else { return };
    let state = State::new();
    // On a busy machine it takes longer until enough is seen.
    for seconds in [10, 30] {
        let mut evenly = state.run("phase", n as u32, &words(&command));
        let pid = evenly.program();
        std::thread::sleep(Duration::from_secs(seconds));
        signal(pid, Signal::TERM);
        evenly.wait();
        let report = evenly.report();
        let handed = &report["handed_over"];
        if let (Some(with), Some(without)) =
            (handed["cpus_with"].as_f64(), handed["cpus_without"].as_f64())
        {
            assert!(with > without, "{handed}");
            let verdict = report["verdict"].as_str().unwrap();
            assert!(
                verdict.starts_with("Handing over CPUs of threads that spin paid: "),
                "{verdict}"
            );
            return;
        }
    }
    panic!("it never paused");
}

/// Loops that call functions are found by where threads are, and kept by what they do there.
#[test]
fn loops_of_which_it_is_not_proved_that_they_wait_are_tried() {
    let _alone = alone();
    let Some((_, n, _)) = spinning() else { return };
    let program = workload("collapse-calls");
    let options = format!("--pattern pipeline --threads {n} --phases 100000000 --iters 10000");
    let command: Vec<&str> = std::iter::once(&*program).chain(options.split(' ')).collect();
    let state = State::new();
    // On a busy machine it takes longer until threads were seen there.
    let handed = [4, 12, 30].into_iter().find_map(|seconds| {
        let mut evenly = state.run("phase", n as u32, &command);
        let pid = evenly.program();
        std::thread::sleep(Duration::from_secs(seconds));
        signal(pid, Signal::TERM);
        evenly.wait();
        let report = evenly.report();
        report["handed_over"].is_object().then(|| report["handed_over"].clone())
    });
    let handed = handed.expect("nothing was handed over");
    assert!(handed["given_s"].as_f64().unwrap() > 0.0, "{handed}");
    assert!(handed["place"].as_str().unwrap().contains("collapse.c:"), "{handed}");
}

//! Programs that do unusual but legitimate things to their threads, balanced as restlessly as can
//! be: nothing of it is disturbed, and nothing of it disturbs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::proc::Proc;
use evenly_model::{CpuSet, Pid};
use std::process::Command;

/// Runs `odd` with these arguments under the policy. Its exit status says whether it was disturbed.
fn odd(policy: &str, threads: u32, args: &[&str]) {
    if whole().is_none() {
        return;
    }
    let (state, odd) = (State::new(), workload("odd"));
    let command: Vec<&str> = [odd.as_str()].iter().chain(args).copied().collect();
    let mut evenly = state.run(policy, threads, &command);
    let status = evenly.wait();
    let said = evenly.stderr();
    assert_eq!(status.code(), Some(0), "{policy} {args:?}: {said}");
    assert!(!said.contains("panicked") && state.journals().is_empty(), "{said}");
}

#[test]
fn a_program_that_sets_its_own_affinity_has_its_wish() {
    let Some(whole) = whole() else { return };
    let (ours, wish) = (whole.first().unwrap().to_string(), whole.iter().last().unwrap());
    let (odd, wish) = (workload("odd"), wish.to_string());
    // A wish for the mask that the thread has from us at that moment leaves no trace, so evenly is
    // kept away from the CPU that the thread will choose.
    for policy in ["juggle", "hybrid", "static"] {
        let state = State::new();
        let mut evenly = state.start(&[
            "run",
            "--policy",
            policy,
            "--period",
            "10ms",
            "--budget",
            "50",
            "--threads",
            "3",
            "--cpus",
            &ours,
            "--",
            &odd,
            "self-pin",
            &wish,
            "--duration-ms",
            "2500",
        ]);
        let status = evenly.wait();
        assert_eq!(status.code(), Some(0), "{policy}: {}", evenly.stderr());
    }
}

/// Whether this machine lets a program have such threads at all; a skip where not.
fn works(args: &[&str]) -> bool {
    let o = Command::new(workload("odd")).args(args).args(["--duration-ms", "50"]).output();
    let o = o.unwrap();
    if !o.status.success() {
        let key = if args[0] == "rt" { "realtime" } else { "deadline" };
        evenly_testing::skip(key, String::from_utf8_lossy(&o.stderr).trim());
    }
    o.status.success()
}

#[test]
fn real_time_and_deadline_threads_are_left_alone() {
    for args in [&["rt", "10"][..], &["deadline"]] {
        if works(args) {
            odd("juggle", 3, &[args, &["--duration-ms", "2500"]].concat());
        }
    }
}

#[test]
fn a_leader_that_has_ended_and_a_child_that_comes_late() {
    odd("juggle", 3, &["leader-exit", "--duration-ms", "2500"]);
    odd("hybrid", 3, &["leader-exit", "--duration-ms", "2500"]);
    odd("juggle", 3, &["spawn-late", "3", "--duration-ms", "2500"]);
}

#[test]
fn workers_of_a_leader_that_has_ended_are_restored() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let program = Running::start(&[&workload("odd"), "leader-exit", "--duration-ms", "300000"]);
    let leader = program.pid().0;
    wait_until("the leader to end", || {
        Proc::default().process_stat(program.pid()).is_some_and(|s| s.state == b'Z')
    });
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    evenly.kill(Signal::KILL);
    evenly.wait();
    wait_until("the workers' masks to be given back", || {
        masks(program.pid()).iter().all(|(t, m)| *t == leader || *m == whole)
    });
}

fn tid_of(pid: Pid, wanted: &str) -> i32 {
    wait_for(wanted, || {
        Proc::default().threads(pid).into_iter().map(|t| t.0).find(|t| name(*t) == wanted)
    })
}

#[test]
fn names_of_any_kind() {
    let Some(whole) = whole() else { return };
    let odd = workload("odd");
    // Of four workers these are left alone, and the others are pinned.
    for (options, alone) in [
        (&["--skip", "a) b("][..], &["a) b("][..]),
        (&["--skip", "x*y"], &["x\ny"]),
        (&["--skip", "[x]?y", "--skip", ""], &["x\ny", ""]),
        (&["--only", "{a) b(,あ*}"], &["x\ny", ""]),
        (&["--idle-thread", "あいうえお"], &["あいうえお"]),
    ] {
        let state = State::new();
        let threads = (4 - alone.len()).to_string();
        let mut args = vec!["run", "--policy", "juggle", "--period", "10ms", "--threads", &threads];
        args.extend(options);
        args.extend(["--", &odd, "names", "--duration-ms", "300000"]);
        let mut evenly = state.start(&args);
        let program = evenly.program();
        wait_until_narrowed(program, &whole, 4 - alone.len());
        for _ in 0..50 {
            for wanted in alone {
                assert_eq!(mask(tid_of(program, wanted)), Some(whole.clone()), "{options:?}");
            }
        }
        evenly.kill(Signal::KILL);
        evenly.wait();
        wait_until_restored(program, &whole);
        signal(program, Signal::KILL);
    }
}

#[test]
fn exec_by_a_thread_that_is_not_the_leader() {
    let Some(whole) = whole() else { return };
    let (state, odd, churn) = (State::new(), workload("odd"), workload("churn"));
    let command = [
        &odd,
        "exec-nonleader",
        "--duration-ms",
        "300000",
        &churn,
        "--workers",
        "3",
        "--duration-s",
        "300",
    ];
    let mut evenly = state.run("juggle", 3, &command);
    let program = evenly.program();
    wait_until("the new program", || name(program.0) == "churn");
    wait_until_narrowed(program, &whole, 3);
    evenly.kill(Signal::KILL);
    evenly.wait();
    wait_until_restored(program, &whole);
    signal(program, Signal::KILL);
}

#[test]
fn what_is_started_by_a_pinned_thread_is_free() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let tmp = tempfile::tempdir().unwrap();
    let go = tmp.path().join("go");
    // Three computing processes of one thread each; at a sign each starts another program.
    let script = "for i in 1 2 3; do (while [ ! -e \"$0\" ]; do :; done; sleep 300 & \
                  while :; do :; done) & done; wait";
    let mut evenly = state.run("juggle", 3, &["sh", "-c", script, &go.display().to_string()]);
    let program = evenly.program();
    let busy = || -> Vec<Pid> {
        let all = descendants(program).into_iter();
        all.filter(|p| masks(*p).values().any(|m| *m != whole)).collect()
    };
    wait_until("three processes to be pinned", || busy().len() == 3);
    std::fs::write(&go, "").unwrap();
    let sleeping = || -> Vec<Pid> {
        descendants(program).into_iter().filter(|p| name(p.0) == "sleep").collect()
    };
    wait_until("three children with the whole mask", || {
        let all = sleeping();
        all.len() == 3 && all.iter().all(|p| narrowed(*p, &whole) == 0)
    });
    let processes = descendants(program);
    evenly.kill(Signal::KILL);
    evenly.wait();
    for p in &processes {
        wait_until("masks to be given back", || narrowed(*p, &whole) == 0);
    }
    for p in processes {
        signal(p, Signal::KILL);
    }
    signal(program, Signal::KILL);
}

#[test]
fn a_program_that_computes_alone_sees_all_of_its_cpus() {
    let Some(whole) = whole() else { return };
    for policy in ["juggle", "hybrid"] {
        let state = State::new();
        let program = workload("odd");
        let args = ["run", "--policy", policy, "-q", "--", &program, "print-mask"];
        let o = state.command(&args).output().unwrap();
        let said = String::from_utf8_lossy(&o.stdout);
        for field in ["main_count", "main_later_count", "late_thread_count"] {
            assert!(said.contains(&format!("\"{field}\":{}", whole.len())), "{policy}: {said}");
        }
    }
}

/// Threads that end between being found, being read and being moved.
#[test]
fn computing_threads_that_live_for_an_instant() {
    if whole().is_none() {
        return;
    }
    let (state, spmd) = (State::new(), workload("spmd"));
    let script = "for i in $(seq 40); do \"$0\" --threads 4 --iters 30000000 || exit 1; done";
    let mut evenly = state.run("juggle", 2, &["sh", "-c", script, &spmd]);
    let status = evenly.wait();
    let said = evenly.stderr();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!said.contains("panicked") && !said.contains("left alone"), "{said}");
    assert!(state.journals().is_empty());
}

/// A process id name space with a hundred ids: each is used again within a second or so.
#[test]
fn thread_ids_that_are_used_again() {
    if whole().is_none() {
        return;
    }
    // Before, the limit is that of the whole machine, and must not be touched.
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
    if (numbers.next(), numbers.next()) < (Some(6), Some(14)) {
        let why = format!("a limit of ids for one name space needs Linux 6.14, this is {release}");
        return evenly_testing::skip("own-pid-max", why);
    }
    let (state, churn) = (State::new(), workload("churn"));
    let script = "echo 400 > /proc/sys/kernel/pid_max && exec \"$@\"";
    let unshare = ["--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c"];
    let possible = Command::new("unshare").args(unshare).args([script, "sh", "true"]).output();
    if !possible.is_ok_and(|o| o.status.success()) {
        let why = "no name space with a limit of process ids of its own";
        return evenly_testing::skip("namespaces", why);
    }
    let o = Command::new("unshare")
        .args(unshare)
        .args([script, "sh", env!("CARGO_BIN_EXE_evenly"), "run", "--policy", "juggle"])
        .args(["--period", "10ms", "--budget", "50", "--threads", "3", "--", &churn])
        .args(["--workers", "3", "--rate", "300", "--life-ms", "20", "--duration-s", "5"])
        .env("EVENLY_STATE_DIR", state.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&o.stderr);
    assert_eq!(o.status.code(), Some(0), "{said}");
    assert!(!said.contains("panicked") && !said.contains("left alone"), "{said}");
    assert!(said.contains("evenly"), "{said}");
    assert!(state.journals().is_empty());
}

/// One inside the other, on the same threads: the program runs, and has its masks back.
#[test]
fn evenly_inside_evenly() {
    let Some(whole) = whole() else { return };
    let (outer, inner, churn) = (State::new(), State::new(), workload("churn"));
    let evenly = env!("CARGO_BIN_EXE_evenly");
    let dir = format!("EVENLY_STATE_DIR={}", inner.path().display());
    let command = [
        "env",
        &dir,
        evenly,
        "run",
        "--policy",
        "juggle",
        "--period",
        "10ms",
        "--threads",
        "3",
        "--",
        &churn,
        "--workers",
        "3",
        "--duration-s",
        "300",
    ];
    let mut evenly = outer.run("juggle", 3, &command);
    let first = evenly.program();
    let program =
        wait_for("the program", || descendants(first).into_iter().find(|p| name(p.0) == "churn"));
    wait_until_narrowed(program, &whole, 3);
    evenly.kill(Signal::KILL);
    evenly.wait();
    signal(first, Signal::KILL);
    wait_until_restored(program, &whole);
    let union = masks(program).values().fold(CpuSet::new(), |all, m| all.or(m));
    assert_eq!(union, whole);
    signal(program, Signal::KILL);
}

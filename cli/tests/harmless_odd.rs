//! Programs that do unusual but legitimate things to their threads, balanced as restlessly as can
//! be: nothing of it is disturbed, and nothing of it disturbs.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::affinity;
use evenly_linux::proc::Proc;
use evenly_model::{CpuSet, Pid, Tid};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Runs `odd` with these arguments under the policy until threads have been moved. Its exit status
/// says whether it was disturbed. What evenly reported, and what `odd` printed.
fn odd(policy: &str, threads: u32, args: &[&str]) -> Option<(Value, Value)> {
    whole()?;
    let state = State::new();
    let (odd, end) = (workload("odd"), state.sign("end"));
    let command = [&[odd.as_str()], args, &["--duration-ms", "300000", "--end-on", &end]].concat();
    let mut evenly = state.run(policy, threads, &command);
    evenly.wait_until_moving();
    state.give("end");
    let status = evenly.wait();
    let said = evenly.stderr();
    assert_eq!(status.code(), Some(0), "{policy} {args:?}: {said}");
    assert!(!said.contains("panicked") && state.journals().is_empty(), "{said}");
    Some((evenly.report_of_moves(), serde_json::from_str(&evenly.stdout()).unwrap()))
}

/// A wish for the mask that the thread has from us at that moment leaves no trace, so evenly is kept away from
/// the CPU that the thread will choose.
fn a_thread_that_binds_itself_has_its_wish(policy: &str) {
    let Some(whole) = whole() else { return };
    let (ours, wish) = (whole.first().unwrap().to_string(), whole.iter().last().unwrap());
    let (odd, wished) = (workload("odd"), wish.to_string());
    let state = State::new();
    let (act, end) = (state.sign("act"), state.sign("end"));
    let signs = ["--duration-ms", "300000", "--act-on", &act, "--end-on", &end];
    let command = [&[&odd, "self-pin", &wished], &signs[..]].concat();
    let mut evenly = state.run_with(policy, 3, &["--cpus", &ours], &command);
    let program = evenly.program();
    wait_until_narrowed(program, &whole, 3);
    state.give("act");
    let wish = CpuSet::single(wish);
    wait_until("the wish", || masks(program).values().any(|m| *m == wish));
    // Time for evenly to change it.
    for _ in 0..20 {
        evenly.wait_until_point();
    }
    state.give("end");
    let status = evenly.wait();
    assert_eq!(status.code(), Some(0), "{policy}: {}", evenly.stderr());
}

#[test]
fn a_thread_that_binds_itself_has_its_wish_under_juggle() {
    a_thread_that_binds_itself_has_its_wish("juggle");
}

#[test]
fn a_thread_that_binds_itself_has_its_wish_under_hybrid() {
    a_thread_that_binds_itself_has_its_wish("hybrid");
}

#[test]
fn a_thread_that_binds_itself_has_its_wish_under_secretary() {
    a_thread_that_binds_itself_has_its_wish("secretary");
}

#[test]
fn a_thread_that_binds_itself_has_its_wish_under_static() {
    a_thread_that_binds_itself_has_its_wish("static");
}

/// Libraries that look around a machine bind a thread to one CPU after the other, and then let it go
/// (hwloc in `MPI_Init`): that is no wish, whenever evenly comes across it.
fn a_thread_that_was_bound_and_is_let_go_is_balanced_again(policy: &str) {
    let Some(whole) = whole() else { return };
    let (first, last) = (whole.first().unwrap(), whole.iter().last().unwrap());
    let state = State::new();
    let spmd = workload("spmd");
    let program = state.run(policy, 3, &[&spmd, "--threads", "3", "--iters", "1000000000000"]);
    let pid = program.program();
    wait_until_narrowed(pid, &whole, 3);
    let tid = *masks(pid).iter().find(|(_, m)| **m != whole).unwrap().0;
    // The CPU that it has from evenly at that moment would not be seen as a wish.
    wait_until("it is left alone", || {
        let elsewhere = if mask(tid) == Some(CpuSet::single(first)) { last } else { first };
        affinity::set(Tid(tid), &CpuSet::single(elsewhere)).unwrap();
        let is_left = || program.decisions("is left alone") > 0;
        (0..20).any(|_| {
            program.wait_until_point();
            is_left()
        })
    });
    affinity::set(Tid(tid), &whole).unwrap();
    wait_until("it is balanced again", || mask(tid).is_some_and(|m| m != whole));
    wait_until("it is told", || program.decisions("may use all CPUs again") > 0);
}

#[test]
fn a_thread_that_was_bound_and_is_let_go_is_balanced_again_under_juggle() {
    a_thread_that_was_bound_and_is_let_go_is_balanced_again("juggle");
}

#[test]
fn a_thread_that_was_bound_and_is_let_go_is_balanced_again_under_hybrid() {
    a_thread_that_was_bound_and_is_let_go_is_balanced_again("hybrid");
}

#[test]
fn a_thread_that_was_bound_and_is_let_go_is_balanced_again_under_secretary() {
    a_thread_that_was_bound_and_is_let_go_is_balanced_again("secretary");
}

#[test]
fn a_thread_that_was_bound_before_evenly_came_is_balanced_once_it_is_let_go() {
    let Some(whole) = whole() else { return };
    let last = whole.iter().last().unwrap();
    let state = State::new();
    let program = Running::computing(3);
    wait_until("threads", || masks(program.pid()).len() >= 4);
    let tid = *masks(program.pid()).iter().last().unwrap().0;
    affinity::set(Tid(tid), &CpuSet::single(last)).unwrap();
    let _evenly = state.attach("juggle", 3, program.pid());
    // It is one of them.
    wait_until_narrowed(program.pid(), &whole, 3);
    affinity::set(Tid(tid), &whole).unwrap();
    wait_until("it is balanced", || {
        mask(tid).is_some_and(|m| m != whole && m != CpuSet::single(last))
    });
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
        if works(args)
            && let Some((report, printed)) = odd("juggle", 3, args)
        {
            assert_eq!(report["realtime_threads"], 1, "{report:#}");
            let threads = report["threads"].as_array().unwrap();
            let special = threads.iter().find(|t| t["id"]["tid"] == printed["tid"]);
            assert!(threads.len() == 3 && special.is_none(), "{printed} {report:#}");
        }
    }
}

#[test]
fn a_leader_that_has_ended_and_a_child_that_comes_late() {
    odd("juggle", 3, &["leader-exit"]);
    odd("hybrid", 3, &["leader-exit"]);
    odd("juggle", 3, &["spawn-late", "3"]);
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

/// Of four workers these are left alone, and the others are pinned.
fn are_left_alone(options: &[&str], alone: &[&str]) {
    let Some(whole) = whole() else { return };
    let odd = workload("odd");
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

#[test]
fn a_name_with_parentheses_can_be_skipped() {
    are_left_alone(&["--skip", "a) b("], &["a) b("]);
}

#[test]
fn a_name_of_two_lines_can_be_skipped() {
    are_left_alone(&["--skip", "x*y"], &["x\ny"]);
}

#[test]
fn an_empty_name_can_be_skipped_beside_another() {
    are_left_alone(&["--skip", "[x]?y", "--skip", ""], &["x\ny", ""]);
}

#[test]
fn alternatives_of_names_can_be_asked_for() {
    are_left_alone(&["--only", "{a) b(,あ*}"], &["x\ny", ""]);
}

#[test]
fn a_name_of_other_letters_can_be_called_idle() {
    are_left_alone(&["--idle-thread", "あいうえお"], &["あいうえお"]);
}

#[test]
fn the_first_thread_of_each_process_can_be_called_idle() {
    let Some(whole) = whole() else { return };
    let (state, churn) = (State::new(), workload("churn"));
    // The shell's only thread, then three threads that are not the first of theirs.
    let script = "\"$0\" --workers 3 --duration-s 300 & while :; do :; done";
    let options = ["--idle-thread", "first"];
    let mut evenly = state.run_with("juggle", 3, &options, &["sh", "-c", script, &churn]);
    let shell = evenly.program();
    let child = wait_for("churn", || descendants(shell).into_iter().find(|p| name(p.0) == "churn"));
    wait_until_narrowed(child, &whole, 3);
    for _ in 0..5 {
        evenly.wait_until_moving();
        assert_eq!(mask(shell.0), Some(whole.clone()));
    }
    evenly.kill(Signal::TERM);
    evenly.wait();
    let report = evenly.report_of_moves();
    assert!(report["filtered"] == true && report["threads"].as_array().unwrap().len() == 3);
    assert!(report["threads"].as_array().unwrap().iter().all(|t| t["id"]["tid"] != t["pid"]));
    signal(child, Signal::KILL);
}

#[test]
fn exec_by_a_pinned_thread_that_is_not_the_leader() {
    let Some(whole) = whole() else { return };
    let (state, odd, churn) = (State::new(), workload("odd"), workload("churn"));
    let act = state.sign("act");
    let exec = [&odd, "exec-nonleader", "--duration-ms", "300000", "--act-on", &act];
    let new = [&churn, "--workers", "3", "--duration-s", "300"];
    let mut evenly = state.run("juggle", 3, &[&exec[..], &new].concat());
    let program = evenly.program();
    // The thread that will call exec, too.
    wait_until_narrowed(program, &whole, 4);
    state.give("act");
    wait_until("the new program", || name(program.0) == "churn");
    wait_until_narrowed(program, &whole, 3);
    evenly.kill(Signal::KILL);
    evenly.wait();
    wait_until_restored(program, &whole);
    signal(program, Signal::KILL);
}

/// What `odd show-mask` processes have printed last, by process: how many CPUs they see.
fn seen(evenly: &Evenly) -> BTreeMap<i64, usize> {
    let said = evenly.stdout();
    // The last line may not be whole yet.
    let lines = said.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    let count = |l: &Value| cpus(l["mask"].as_str().unwrap()).len();
    lines.map(|l| (l["pid"].as_i64().unwrap(), count(&l))).collect()
}

/// Programs that wait for work see all their CPUs, although nobody computes any more.
#[test]
fn a_program_that_a_pinned_thread_becomes_sees_all_of_its_cpus() {
    let Some(whole) = whole() else { return };
    let (state, odd) = (State::new(), workload("odd"));
    let (act, end) = (state.sign("act"), state.sign("end"));
    let show = [&odd, "show-mask", "--duration-ms", "300000", "--end-on", &end];
    let script = "for i in 1 2 3; do (while [ ! -e \"$0\" ]; do :; done; exec \"$@\") & done; wait";
    let several = [&["sh", "-c", script, &act], &show[..]].concat();
    let one = [&odd, "exec-nonleader", "--duration-ms", "300000", "--act-on", &act];
    let one = [&one[..], &show].concat();
    for (command, before, after) in [(&several, 3, 3), (&one, 4, 1)] {
        let mut evenly = state.run("juggle", 3, command);
        let program = evenly.program();
        let pinned = || {
            let all = descendants(program).into_iter().chain([program]);
            all.map(|p| narrowed(p, &whole)).sum::<usize>()
        };
        wait_until("threads to be pinned", || pinned() >= before);
        state.give("act");
        wait_until("all CPUs to be seen", || {
            let seen = seen(&evenly);
            seen.len() == after && seen.values().all(|n| *n == whole.len())
        });
        state.give("end");
        let status = evenly.wait();
        assert_eq!(status.code(), Some(0), "{}", evenly.stderr());
        assert!(state.journals().is_empty());
        std::fs::remove_file(&act).unwrap();
        std::fs::remove_file(&end).unwrap();
    }
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

/// What the threads of `odd grow` have seen so far when they began.
fn masks_at_birth(evenly: &Evenly) -> Vec<CpuSet> {
    let said = evenly.stdout();
    let lines = said.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    lines.map(|l| cpus(l["mask"].as_str().unwrap())).collect()
}

/// A main thread that computes starts one thread after the other, so slowly that threads which are
/// not expected would be taken to be all. The last is one more than there are CPUs; before, there
/// are enough to be pinned.
fn are_waited_for_and_see_the_whole_mask(policy: &str) {
    let Some(whole) = whole() else { return };
    let (odd, all) = (workload("odd"), whole.len() + 1);
    let (n, later) = (all.to_string(), whole.len().to_string());
    let state = State::new();
    let (act, end) = (state.sign("act"), state.sign("end"));
    let run = ["run", "--policy", policy, "--period", "5ms", "--budget", "50", "--no-guard"];
    let grow = ["--threads", &n, "--", &odd, "grow", &later, "--duration-ms", "300000"];
    let signs = ["--act-on", &act, "--end-on", &end];
    let mut evenly = state.start(&[&run[..], &grow, &signs].concat());
    let program = evenly.program();
    for there in 1..all {
        wait_until("the next thread", || masks_at_birth(&evenly).len() == there);
        // Several times as often as threads must be seen to stand still that are not expected.
        let before = evenly_testing::sleeps(evenly.pid());
        wait_until("evenly to look at them", || {
            evenly_testing::sleeps(evenly.pid()) >= before + 50
        });
        let touched = evenly.journal().map_or(0, |j| j.records.len());
        assert_eq!((narrowed(program, &whole), touched), (0, 0), "{policy}: {there} threads");
        state.give("act");
    }
    wait_until_narrowed(program, &whole, all);
    // With the last all are there, and it may be pinned before it has run for the first time: it
    // waits for a CPU like one that computes.
    wait_until("the last thread", || masks_at_birth(&evenly).len() == all);
    assert_eq!(masks_at_birth(&evenly)[..all - 1], vec![whole.clone(); all - 1], "{policy}");
    state.give("end");
    let status = evenly.wait();
    assert_eq!(status.code(), Some(0), "{}", evenly.stderr());
    assert_eq!(evenly.report()["started"], true);
}

#[test]
fn threads_that_are_expected_under_juggle_see_the_whole_mask() {
    are_waited_for_and_see_the_whole_mask("juggle");
}

#[test]
fn threads_that_are_expected_under_hybrid_see_the_whole_mask() {
    are_waited_for_and_see_the_whole_mask("hybrid");
}

/// It is balanced as soon as it is recognised, and never pinned: it would lose its other CPUs.
fn sees_all_of_its_cpus(policy: &str) {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let program = workload("odd");
    let run = ["run", "--policy", policy, "-q", "--period", "5ms", "--threads", "1", "--"];
    let args = [&run[..], &[&program, "print-mask"]].concat();
    let o = state.command(&args).output().unwrap();
    let said = String::from_utf8_lossy(&o.stdout);
    for field in ["main_count", "main_later_count", "late_thread_count"] {
        assert!(said.contains(&format!("\"{field}\":{}", whole.len())), "{policy}: {said}");
    }
}

#[test]
fn a_program_that_computes_alone_under_juggle_sees_all_of_its_cpus() {
    sees_all_of_its_cpus("juggle");
}

#[test]
fn a_program_that_computes_alone_under_hybrid_sees_all_of_its_cpus() {
    sees_all_of_its_cpus("hybrid");
}

/// Threads that end between being found, being read and being moved.
#[test]
fn computing_threads_that_live_for_an_instant() {
    if whole().is_none() {
        return;
    }
    let (state, churn) = (State::new(), workload("churn"));
    let end = state.sign("end");
    // Threads that follow each other in one process, and processes that do.
    let threads = "\"$1\" --rate 4 --life-ms 800 --burn --duration-s 2 || exit 1";
    let processes = "\"$1\" --workers 3 --duration-s 1.5 || exit 1";
    for once in [threads, processes] {
        let script = format!("while [ ! -e \"$0\" ]; do {once}; done");
        let mut evenly = state.run("juggle", 2, &["sh", "-c", &script, &end, &churn]);
        evenly.wait_until_moving();
        wait_until("threads to end", || evenly.decisions(" has ended") >= 10);
        evenly.wait_until_moving();
        state.give("end");
        let status = evenly.wait();
        let said = evenly.stderr();
        assert_eq!(status.code(), Some(0), "{said}");
        assert!(!said.contains("panicked") && !said.contains("left alone"), "{said}");
        assert!(state.journals().is_empty());
        evenly.report_of_moves();
        std::fs::remove_file(&end).unwrap();
    }
}

/// A process id name space with a hundred ids: each is used again within seconds, and those of
/// threads that evenly pins for others that it pins.
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
    // Threads that only use up ids, and such that compute for long enough to be balanced.
    let program = "\"$1\" --rate 100 --life-ms 5 --duration-s 300 & a=$!; \
                   \"$1\" --rate 4 --life-ms 800 --burn --duration-s 300 & b=$!; \
                   until [ -e \"$0\" ]; do sleep 0.2; done; kill $a $b; wait; exit 0";
    let (end, json, log) = (state.sign("end"), state.sign("json"), state.sign("log"));
    let mut evenly = Command::new("unshare");
    evenly
        .args(unshare)
        .args([script, "sh", env!("CARGO_BIN_EXE_evenly"), "run", "--policy", "juggle"])
        .args(["--period", "10ms", "--budget", "50", "--threads", "2", "-v", "--json", &json, "--"])
        .args(["sh", "-c", program, &end, &churn])
        .env("EVENLY_STATE_DIR", state.path())
        .stderr(std::fs::File::create(&log).unwrap());
    let mut evenly = Running(evenly.spawn().unwrap());
    let said = || std::fs::read_to_string(&log).unwrap();
    // Ids of threads that were balanced, with how often there was one of that id.
    let joined = || {
        let mut times = BTreeMap::new();
        for line in said().lines().filter(|l| l.contains(" joins domain ")) {
            let tid = line.split_once(" thread ").unwrap().1.split(' ').next().unwrap().to_owned();
            *times.entry(tid).or_insert(0) += 1;
        }
        times
    };
    wait_until("three ids to be used again", || joined().values().filter(|n| **n > 1).count() >= 3);
    state.give("end");
    let status = wait_for("the end", || evenly.0.try_wait().unwrap());
    let said = said();
    assert_eq!(status.code(), Some(0), "{said}");
    assert!(!said.contains("panicked") && !said.contains("left alone"), "{said}");
    assert!(state.journals().is_empty());
    // The same thread can join again after a rest: another start is another thread.
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let mut starts: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for t in report["threads"].as_array().unwrap() {
        let id = |field: &str| t["id"][field].as_u64().unwrap();
        starts.entry(id("tid")).or_default().insert(id("start"));
    }
    assert!(starts.values().any(|s| s.len() > 1), "{report:#}");
    assert!(report["domains"][0]["migrations"].as_u64() > Some(0), "{report:#}");
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

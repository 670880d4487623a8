//! Promise P8: where balancing cannot be done the program runs, and one line says why and what
//! would mend it. And limits that change while the program runs.

use crate::support::{Child, Tool, is_root, json, of_kind, recorded, stderr, wait_until, workload};
use evenly_linux::taskstats::TaskStats;
use evenly_model::Pid;
use evenly_testing::groups::{Group, KEY};
use rustix::process::{Pid as Id, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Output, Stdio};

const NOBODY: u32 = 65534;

#[track_caller]
fn one_line(output: &Output, status: i32, words: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(words.split('|').all(|w| said.contains(w)), "{said} should have {words}");
}

#[test]
fn no_place_for_the_journal() {
    let tool = Tool::new();
    let file = tool.path("report.json");
    let options = format!("--json {}", file.display());
    let output = tool
        .run(&options, &["sh", "-c", "echo hello; exit 42"])
        .env("EVENLY_STATE_DIR", "/proc/evenly")
        .output()
        .unwrap();
    one_line(&output, 42, "not balancing|/proc/evenly|EVENLY_STATE_DIR");
    assert_eq!(output.stdout, b"hello\n");
    let report = json(&file);
    assert!(report["failure"].as_str().unwrap().contains("EVENLY_STATE_DIR"), "{report}");
    assert_eq!((&report["started"], &report["ended"]["exit"]), (&false.into(), &42.into()));
}

#[test]
fn a_state_directory_of_somebody_else() {
    if !is_root("a_state_directory_of_somebody_else") {
        return;
    }
    let tool = Tool::for_everybody();
    fs::create_dir(tool.path("state")).unwrap();
    let output = tool.run("", &["sh", "-c", "exit 3"]).uid(NOBODY).gid(NOBODY).output().unwrap();
    one_line(&output, 3, "not balancing|belongs to user 0|EVENLY_STATE_DIR");
}

#[test]
fn a_process_of_another_user() {
    if !is_root("a_process_of_another_user") {
        return;
    }
    let tool = Tool::for_everybody();
    let program = Child::spawn(tool.by("sleep").arg("300"));
    let attach = |options: &[&str]| {
        let mut c = tool.evenly(["attach", &program.id()]);
        c.args(options).uid(NOBODY).gid(NOBODY).env("EVENLY_STATE_DIR", tool.directory_of(NOBODY));
        c.output().unwrap()
    };
    one_line(
        &attach(&[]),
        125,
        &format!("another user|CAP_SYS_NICE|sudo evenly attach {}", program.id()),
    );
}

#[test]
fn proc_that_hides_other_users() {
    if !is_root("proc_that_hides_other_users") {
        return;
    }
    let tool = Tool::for_everybody();
    let program = Child::spawn(tool.by("sleep").arg("300"));
    let hidden = |words: &str| {
        let script = format!(
            "mount -t proc -o hidepid=2 proc /proc || exit 99; \
             exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups {words}"
        );
        let mut c = tool.by("unshare");
        c.args(["-m", "sh", "-c", &script]).env("EVENLY_STATE_DIR", tool.directory_of(NOBODY));
        c.output().unwrap()
    };
    let output = hidden(&format!("{} run -q -- sh -c 'exit 3'", tool.exe()));
    if output.status.code() == Some(99) || stderr(&output).contains("unshare") {
        let why = format!("cannot mount /proc with hidepid: {}", stderr(&output).trim());
        return evenly_testing::skip("namespaces", why);
    }
    // A program of one's own can be seen.
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(3), ""));
    let output = hidden(&format!("{} attach --policy observe {}", tool.exe(), program.id()));
    one_line(&output, 125, &format!("hidepid|{}", program.id()));
    let output = hidden(&format!("{} attach {}", tool.exe(), program.id()));
    one_line(&output, 125, "sudo evenly attach");
}

#[test]
fn a_source_that_does_not_work_here() {
    if !is_root("a_source_that_does_not_work_here") {
        return;
    }
    let tool = Tool::for_everybody();
    let output = tool
        .run("--source taskstats", &["sh", "-c", "exit 3"])
        .env("EVENLY_STATE_DIR", tool.directory_of(NOBODY))
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .unwrap();
    one_line(&output, 3, "not balancing|--source taskstats");
}

/// `hybrid` reads all threads of a domain at a time, `secretary` also single ones.
#[test]
fn threads_are_balanced_by_times_of_taskstats() {
    if let Err(e) = TaskStats::open() {
        return evenly_testing::skip("taskstats", e);
    }
    for policy in ["hybrid", "secretary"] {
        let tool = Tool::new();
        let (file, churn) = (tool.path("report.json"), workload("churn"));
        let options = format!(
            "-v --source taskstats --policy {policy} --period 10ms --budget 50 --no-guard --threads 3 --json {}",
            file.display()
        );
        let run = tool.start(&options, &[&churn, "--workers", "3", "--duration-s", "300"]);
        wait_until("threads are moved", || {
            let said = run.said();
            assert!(!said.contains("not balancing"), "{said}");
            said.matches(" from CPU ").count() >= 20
        });
        let said = run.end();
        let report = json(&file);
        assert_eq!(report["source"], "taskstats", "{report:#}");
        assert!(said.contains("thread times by taskstats"), "{said}");
        let threads = report["threads"].as_array().unwrap();
        assert!(threads.len() >= 3, "{report:#}");
        // No more than the CPUs had to give.
        let ran: f64 = threads.iter().map(|t| t["ran_s"].as_f64().unwrap()).sum();
        let most = report["balanced_s"].as_f64().unwrap() * 2.0;
        assert!(ran > 0.0 && ran < 1.1 * most + 0.1, "{ran} s of {most} s: {report:#}");
    }
}

#[test]
fn threads_that_are_all_of_a_real_time_class() {
    if !is_root("threads_that_are_all_of_a_real_time_class") {
        return;
    }
    let tool = Tool::new();
    // On one CPU: evenly needs the other.
    let script =
        format!("exec taskset -c 0 chrt -f 1 {} --threads 2 --iters 300000000", workload("spmd"));
    let (output, report) = tool.json("", &["sh", "-c", &script]);
    if stderr(&output).contains("chrt") {
        return evenly_testing::skip("realtime", stderr(&output).trim());
    }
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(report["started"], false);
    assert!(report["realtime_threads"].as_u64().unwrap() >= 2, "{report:#}");
    assert!(
        report["verdict"].as_str().unwrap().contains("does not move such threads"),
        "{report:#}"
    );
}

#[test]
fn a_quota_that_changes_is_followed() {
    let group = match Group::new("cpu", "quota") {
        Ok(group) => group,
        Err(e) => return evenly_testing::skip(KEY, format!("no group with a quota: {e}")),
    };
    let tool = Tool::new();
    let (record, file, pid) = (tool.path("a.evenly"), tool.path("report.json"), tool.path("pid"));
    let options = format!("-v --record {} --json {}", record.display(), file.display());
    let script = format!(
        "echo $$ >{}; exec {} --threads 3 --iters 1000000000000",
        pid.display(),
        workload("spmd")
    );
    let mut run = tool.start(&options, &["sh", "-c", &script]);
    run.wait_until_said(" joins domain ");
    // The program goes into a group that has a quota, and then it is given less.
    group.set_quota(Some(150_000), 100_000).unwrap();
    group.take(Pid(fs::read_to_string(&pid).unwrap().trim().parse().unwrap())).unwrap();
    let until_noted = |words: &str| {
        let is_it = |e: &Value| e["event"] == "note" && e.to_string().contains(words);
        wait_until(&format!("'{words}' is recorded"), || recorded(&record).iter().any(is_it));
    };
    until_noted("quota is now 1.50 CPUs");
    group.set_quota(Some(100_000), 100_000).unwrap();
    until_noted("now 1.00 CPUs (it was 1.50 CPUs)");
    run.end();
    let notes = json(&file)["notes"].to_string();
    let has = |words: &str| notes.contains(words);
    assert!(has("quota is now 1.50 CPUs") && has("now 1.00 CPUs (it was 1.50 CPUs)"), "{notes}");
}

#[test]
fn few_descriptors() {
    let tool = Tool::new();
    let script = "ulimit -n 256; exec \"$@\"";
    let [file, record, log] = ["report.json", "a.evenly", "log"].map(|name| tool.path(name));
    let mut c = tool.by("sh");
    c.args(["-c", script, "sh", tool.exe(), "run", "--json", file.to_str().unwrap()])
        // How soon scanning gets to its turn is not what this is about.
        .args(["--record", record.to_str().unwrap(), "--budget", "50", "--"])
        .args([&workload("churn"), "--threads", "1500", "--rate", "50", "--workers", "3"])
        .args(["--duration-s", "300"])
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap());
    let mut evenly = Child::spawn(&mut c);
    // Those that compute were started last.
    wait_until("threads that compute are balanced", || {
        let ended = evenly.0.try_wait().unwrap();
        assert_eq!(ended, None, "{}", fs::read_to_string(&log).unwrap());
        let events = recorded(&record);
        of_kind(&events, "joined") >= 3 && of_kind(&events, "point") >= 50
    });
    // It passes the signal on to the program, which ends by it.
    kill_process(Id::from_child(&evenly.0), Signal::TERM).unwrap();
    let status = evenly.0.wait().unwrap();
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{status}");
    let report = json(&file);
    assert!(
        report["started"] == true && report["all_threads"].as_u64() >= Some(1_500),
        "{report:#}"
    );
    assert!(report["threads"].as_array().unwrap().len() >= 3, "{report:#}");
}

//! Evidence in and out of recordings, the text, and the JSON against its schema; the rules in a module below.
#![allow(clippy::unwrap_used)]

mod rules;

use super::*;
use evenly_evidence::{CpuUse, Evidence, NodeUse, Other, QuotaUse, Runtime, SpinUse, ThreadUse};
use evenly_model::efficiency::Stay;
use evenly_model::{CpuId, CpuSet};
use std::collections::BTreeMap;

/// Running, waiting for a CPU and asleep, in seconds.
fn thread(i: i32, ran_s: f64, waited_s: f64, blocked_s: f64) -> ThreadUse {
    let present_s = ran_s + waited_s + blocked_s;
    ThreadUse {
        tid: 101 + i,
        pid: 100,
        name: format!("worker-{i}"),
        stay: Stay { ran_s, spun_s: None, waited_s, blocked_s, present_s },
        preempted: 300,
        slept: 50,
        mask: cpus("0-1"),
        cpu: Some(CpuId(i as u32 % 2)),
        ..ThreadUse::default()
    }
}

fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// Threads on two CPUs without other programs, observed for 10 s.
fn evidence(threads: Vec<ThreadUse>) -> Evidence {
    let mut all: Vec<CpuUse> = [0, 1].map(|id| CpuUse::new(CpuId(id))).into();
    for t in &threads {
        let u = &mut all[t.cpu.unwrap().0 as usize];
        u.program_s += t.stay.ran_s;
        u.busy_s += t.stay.ran_s;
    }
    Evidence {
        command: vec!["./app".into(), "-n 3".into()],
        seconds: 10.0,
        cpuset: cpus("0-1"),
        threads,
        cpus: all,
        ..Evidence::default()
    }
}

fn kinds(e: &Evidence) -> Vec<Kind> {
    Diagnosis::of(e, Vec::new()).findings.iter().map(|f| f.kind).collect()
}

fn of(e: &Evidence) -> (Diagnosis, Finding) {
    let d = Diagnosis::of(e, Vec::new());
    let f = d.findings.first().cloned().unwrap_or_else(|| panic!("{}", d.text()));
    (d, f)
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn balanced() -> Evidence {
    evidence((0..2).map(|i| thread(i, 9.8, 0.1, 0.1)).collect())
}

/// Three on two, all the time busy.
fn three() -> Evidence {
    evidence((0..3).map(|i| thread(i, 6.6, 3.4, 0.0)).collect())
}

fn pinned(masks: &[&str]) -> Evidence {
    let on = |mask: &str| masks.iter().filter(|m| **m == mask).count() as f64;
    let threads = masks.iter().zip(0..).map(|(mask, i)| {
        let k = on(mask);
        let most = masks.iter().map(|m| on(m)).fold(0.0, f64::max);
        let ran = 9.6 / most;
        let mut t = thread(i, ran, ran * (k - 1.0), 9.6 - ran * k);
        (t.mask, t.cpu) = (cpus(mask), cpus(mask).first());
        t
    });
    let mut e = evidence(threads.collect());
    // The first thread only waits for the others.
    let first = ThreadUse { tid: 100, name: "app".into(), ..thread(9, 0.0, 0.0, 10.0) };
    e.threads.push(first);
    e
}

/// Lines to paste run the program as it was observed: with the settings that were applied.
#[test]
fn lines_to_paste_have_the_applied_settings() {
    let e = evidence(vec![
        thread(0, 9.5, 0.1, 0.4),
        thread(1, 9.5, 0.1, 0.4),
        thread(2, 3.0, 0.1, 6.9),
    ]);
    let set = |name, value: &str| Setting { name, value: value.to_owned(), why: String::new() };
    let lines = |applied| {
        let d = Diagnosis::of(&e, applied);
        let pasted: Vec<String> = d.findings.iter().filter_map(|f| f.paste.clone()).collect();
        pasted.into_iter().chain(d.compare).collect::<Vec<String>>()
    };
    let without = lines(Vec::new());
    assert!(without.len() > 1, "{without:?}");
    let with = lines(vec![set("OMP_NUM_THREADS", "2"), set("OMP_WAIT_POLICY", "passive")]);
    let wanted = without.iter().map(|l| format!("OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive {l}"));
    assert_eq!(with, wanted.collect::<Vec<String>>());
}

/// Sentences name ranks, and which waited for which, here and after evidence was written and read.
#[test]
fn ranks_and_waiting_that_a_probe_reported() {
    let mut e = evidence(vec![thread(0, 9.5, 0.1, 0.4), thread(1, 3.0, 0.1, 6.9)]);
    let before = of(&e).1;
    assert!(before.sentence.starts_with("worker-0 (101) on CPU 0 has "), "{}", before.sentence);
    let waiting = String::from("rank 1 waited mostly for rank 0 (MPI_Barrier)");
    e.add_probe(&BTreeMap::from([(100, 7)]), Some(waiting.clone()));
    let read = Evidence::of_json(&e.json()).unwrap().unwrap();
    for e in [&e, &read] {
        let f = of(e).1;
        assert!(f.sentence.starts_with("rank 7 (worker-0, 101) on CPU 0 has "), "{}", f.sentence);
        assert_eq!(f.evidence.last(), Some(&waiting));
    }
    e.forget_spinning("of a test");
    assert_eq!(of(&e).1.evidence, before.evidence);
}

#[test]
fn settings_that_contradict_the_machine() {
    let set = |pairs: &[(&str, &str)], cpus, quota| -> Vec<String> {
        settings(&env(pairs), cpus, quota).iter().map(Setting::assignment).collect()
    };
    assert!(set(&[], 4, None).is_empty());
    assert!(set(&[("OMP_NUM_THREADS", "4"), ("OMP_WAIT_POLICY", "active")], 4, None).is_empty());
    assert_eq!(set(&[("OMP_NUM_THREADS", "8")], 4, None), ["OMP_NUM_THREADS=4"]);
    assert_eq!(set(&[], 8, Some(2.5)), ["OMP_NUM_THREADS=2"]);
    assert_eq!(set(&[("OMP_NUM_THREADS", "2")], 8, Some(2.5)), [""; 0]);
    assert_eq!(set(&[], 8, Some(0.3)), ["OMP_NUM_THREADS=1"]);
    assert!(set(&[], 2, Some(4.0)).is_empty());
    assert_eq!(
        set(&[("OMP_NUM_THREADS", "8"), ("KMP_BLOCKTIME", "infinite")], 4, None),
        ["OMP_NUM_THREADS=4", "KMP_BLOCKTIME=0"]
    );
    assert_eq!(
        set(&[("OMP_NUM_THREADS", "8"), ("GOMP_SPINCOUNT", "30000000000")], 4, None)[1],
        "GOMP_SPINCOUNT=1000"
    );
    assert_eq!(
        set(&[("OMP_NUM_THREADS", "8"), ("KMP_LIBRARY", "turnaround")], 4, None)[1],
        "KMP_LIBRARY=throughput"
    );
    // Each wrong setting is changed, also if only a quota makes it wrong.
    let all = [("OMP_WAIT_POLICY", "ACTIVE"), ("KMP_BLOCKTIME", "999999999")];
    assert_eq!(
        set(&all, 4, Some(2.0)),
        ["OMP_NUM_THREADS=2", "KMP_BLOCKTIME=0", "OMP_WAIT_POLICY=passive"]
    );
    assert!(set(&[("OMP_NUM_THREADS", "lots")], 4, None).is_empty());
}

#[test]
fn libraries_are_known_by_their_names() {
    for (file, runtime) in [
        ("libgomp.so.1.0.0", Some(Runtime::Gomp)),
        ("libomp.so.5", Some(Runtime::Omp)),
        ("libomp5-14.so", Some(Runtime::Omp)),
        ("libmpi.so.40.30.4", Some(Runtime::OpenMpi)),
        ("libmpich.so.12.2.1", Some(Runtime::Mpich)),
        ("libc.so.6", None),
        ("", None),
    ] {
        assert_eq!(Runtime::of_library(file), runtime, "{file}");
    }
}

#[test]
fn short_observations_give_no_diagnosis() {
    let d = Diagnosis::of(&Evidence { seconds: 0.1, ..pinned(&["0", "0"]) }, Vec::new());
    assert!(d.findings.is_empty() && d.prospect.gain_at_most.is_none());
    assert!(d.unknown[0].contains("only 0.10 s"), "{:?}", d.unknown);
    let d = Diagnosis::of(&Evidence { seconds: 5.0, ..Evidence::default() }, Vec::new());
    assert!(d.unknown[0].contains("no thread computed"), "{}", d.text());
}

#[test]
fn a_recording_has_threads_and_cpus() {
    let thread = |tid, ran, blocked| {
        serde_json::json!({"id": {"tid": tid, "start": 1}, "pid": 5, "name": "w", "ran_s": ran,
            "waited_s": 0.1, "blocked_s": blocked, "present_s": ran + 0.1 + blocked})
    };
    let run = serde_json::json!({"schema": "evenly.run/1", "command": ["./app"], "cpus": "0-1",
        "balanced_s": 10.0, "quota_cpus": null, "threads": [thread(6, 9.9, 0.0), thread(7, 3.0, 6.9)]});
    let e = Evidence::of_run(&run).unwrap();
    assert_eq!(kinds(&e), [Kind::UnevenWork]);
    assert!(Diagnosis::of(&e, Vec::new()).gaps[0].contains("recording"));
    // Without a finding, a recording does not prove the program healthy.
    let mut even = run;
    even["threads"] = serde_json::json!([thread(6, 9.9, 0.0), thread(7, 9.8, 0.1)]);
    let text = Diagnosis::of(&Evidence::of_run(&even).unwrap(), Vec::new()).text();
    assert!(text.contains("no problem found in this recording, which has few data"), "{text}");
    assert!(text.contains("not seen    this recording has threads and CPUs only"), "{text}");
    assert_eq!(Evidence::of_run(&serde_json::json!({"schema": "evenly.top/1"})), None);
}

/// Three threads that spin there, by samples.
fn spin(place: &str, cpu_s: f64, share: f64) -> SpinUse {
    SpinUse { place: place.into(), threads: vec![101, 102, 103], cpu_s, share }
}

/// Evidence with a value in each field, so that none is lost on the way into a recording and out of it.
fn full() -> Evidence {
    let mut e = three();
    e.threads[0].stay.spun_s = Some(0.5);
    (e.threads[1].disk_s, e.threads[1].file) = (0.25, Some("/data/out".into()));
    (e.cpus[1].work_ns, e.cpus[1].uncounted_s) = (Some((160_000.0, 500.0)), 0.5);
    e.quota = Some(QuotaUse { cpus: 1.5, times: 90, held_s: 5.0, lift: Some("echo".into()) });
    e.environment = env(&[("OMP_NUM_THREADS", "3"), ("OMP_WAIT_POLICY", "active")]);
    e.runtimes = [Runtime::Omp, Runtime::OpenMpi].into();
    e.spins = vec![spin("barrier (app.c:12)", 2.0, 0.2)];
    e.others =
        vec![Other { pid: 7, name: "noise".into(), cpu_s: 4.5, cpu: CpuId(1), user: Some(33) }];
    e.nodes = vec![NodeUse { node: 0, cpus: cpus("0"), pages: 1 << 20 }];
    e.phase = Some((0.25, 40));
    e.gaps = vec!["something".into()];
    e
}

#[test]
fn recorded_evidence_is_read_unchanged() {
    let schema = include_str!("../../../docs/schemas/evenly.evidence-1.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let mut slow = balanced();
    slow.cpus[1].capacity = 512;
    let all = [full(), balanced(), slow, three(), pinned(&["0", "1", "1"]), Evidence::default()];
    for e in all {
        let text = e.json().to_string();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let errors: Vec<String> = validator.iter_errors(&json).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}\n{json:#}");
        let read = Evidence::of_json(&json).unwrap().unwrap();
        assert_eq!(read, e);
        assert_eq!(Diagnosis::of(&read, Vec::new()), Diagnosis::of(&e, Vec::new()));
    }
    // The process id may belong to another process by now.
    let live = Evidence { pid: Some(7), ..balanced() };
    assert_eq!(Evidence::of_json(&live.json()).unwrap().unwrap().pid, None);
    // Fields that a later version adds are ignored, and those that an earlier one lacked are empty.
    let few = serde_json::json!({"schema": "evenly.evidence/1", "seconds": 1.0, "later": 1});
    assert_eq!(Evidence::of_json(&few).unwrap().unwrap().seconds, 1.0);
    assert!(Evidence::of_json(&serde_json::json!({"schema": "evenly.run/1"})).is_none());
    for (field, value) in [("seconds", serde_json::json!(-1)), ("cpuset", "x".into())] {
        let mut bad = full().json();
        bad[field] = value;
        assert!(Evidence::of_json(&bad).unwrap().is_err(), "{field}");
    }
    let mut bad = full().json();
    bad["nodes"][0]["pages"] = u64::MAX.into();
    assert!(Evidence::of_json(&bad).unwrap().unwrap_err().contains("NUMA node"));
    let mut bad = full().json();
    bad["spins"][0]["share"] = (-0.5).into();
    assert!(Evidence::of_json(&bad).unwrap().unwrap_err().contains("threads spin"));
}

#[test]
fn the_text_is_one_screen() {
    insta::assert_snapshot!(of(&pinned(&["0", "1", "1"])).0.text());
    insta::assert_snapshot!(Diagnosis::of(&balanced(), Vec::new()).text());
    let mut worst = three();
    worst.quota = Some(QuotaUse { cpus: 1.5, times: 90, held_s: 5.0, lift: None });
    worst.runtimes.insert(Runtime::Omp);
    worst.environment = env(&[("OMP_NUM_THREADS", "3"), ("OMP_WAIT_POLICY", "active")]);
    worst.cpus[1].stolen_s = 1.5;
    worst.cpus[0].busy_s += 3.0;
    let d = Diagnosis::of(&worst, settings(&worst.environment, 2, Some(1.5)));
    assert!(d.findings.len() >= 3 && d.text().lines().count() <= 24, "{}", d.text());
    insta::assert_snapshot!(d.text());
}

#[test]
fn the_json_is_as_the_schema_says() {
    let schema = include_str!("../../../docs/schemas/evenly.doctor-1.json");
    let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
    let fixed = settings(&env(&[("OMP_NUM_THREADS", "9")]), 2, None);
    for e in [balanced(), three(), pinned(&["0", "0"]), Evidence::default()] {
        let json = serde_json::to_value(Diagnosis::of(&e, fixed.clone())).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&json).map(|e| format!("{}: {e}", e.instance_path)).collect();
        assert!(errors.is_empty(), "{errors:?}\n{json:#}");
    }
    assert!(!validator.is_valid(&serde_json::json!({"schema": "evenly.doctor/2"})));
}

#[test]
fn names_and_words_from_outside_cannot_drive_the_terminal() {
    let hostile = "a\u{1b}[2J\nb\u{9b}'\u{202e}\u{e4}";
    let mut e = pinned(&["0", "0", "0-1"]);
    e.command = vec![hostile.into()];
    e.gaps = vec![hostile.into()];
    for t in &mut e.threads {
        t.name = hostile.into();
    }
    let d = Diagnosis::of(&e, Vec::new());
    let text = d.text();
    assert!(text.chars().all(|c| c == '\n' || evenly_model::is_printable(c)), "{text:?}");
    assert!(text.contains("a\u{fffd}[2J\u{fffd}b\u{fffd}'\u{fffd}\u{e4}"), "{text}");
    // A line to paste has the same bytes nevertheless.
    e.pid = None;
    let word = r"$'a\033[2J\012b\302\233\'\342\200\256".to_owned() + "\u{e4}'";
    e.threads.truncate(1);
    e.threads[0].stay = thread(0, 2.0, 0.1, 7.9).stay;
    e.threads[0].disk_s = 7.0;
    let (_, f) = of(&e);
    assert_eq!(f.paste, Some(format!("strace -f -c -w {word}")));
}

/// A program can give itself any name, for instance one that is a pattern or a command.
#[test]
fn process_names_are_escaped_for_pgrep_and_the_shell() {
    for (name, word) in [
        ("app", "app"),
        ("a.out", r"'a\.out'"),
        ("c++filt", r"'c\+\+filt'"),
        (".*", r"'\.\*'"),
        ("a|b", r"'a\|b'"),
        (r"[x](y){2}\^$", r"'\[x\]\(y\)\{2\}\\\^\$'"),
        ("-f", "'[-]f'"),
        ("a-b", "a-b"),
        ("; rm -rf ~", "'; rm -rf ~'"),
        ("$(reboot)", r"'\$\(reboot\)'"),
        ("it's", r"'it'\''s'"),
        ("a\n\u{1b}\u{fffd}b", "a...b"),
    ] {
        let mut e = pinned(&["0", "0"]);
        e.threads.last_mut().unwrap().name = name.into();
        let line = format!("for p in $(pgrep -x {word}); do taskset -apc 0-1 $p; done");
        assert_eq!(of(&e).1.paste, Some(line), "{name:?}");
    }
}

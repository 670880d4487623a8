//! Real-time priority is given to threads in one place, behind the limit that holds them ([`evenly_linux::real_time`]): no
//! other source of evenly, Rust or C, names a real-time class, or a call that sets the class of a thread.
#![allow(clippy::unwrap_used, reason = "a failure here is the test's own")]

use std::fs;
use std::path::{Path, PathBuf};

/// The classes, as constants of C and of [`evenly_linux::sched`], and what sets the class of a thread.
const WORDS: [&str; 13] = [
    "SCHED_FIFO",
    "SCHED_RR",
    "SCHED_DEADLINE",
    "sched::FIFO",
    "sched::RR",
    "sched::DEADLINE",
    "sched_setscheduler",
    "sched_setattr",
    "sched_setparam",
    "pthread_setschedparam",
    "pthread_setschedprio",
    "pthread_attr_setschedpolicy",
    "real_time::enter",
];

/// Where which of them may be.
const ALLOWED: [(&str, &[&str]); 3] = [
    // Names the classes, and sets what it is given.
    ("linux/src/sys/sched.rs", &["sched_setattr"]),
    ("linux/src/sys/real_time.rs", &["sched::FIFO", "sched_setscheduler"]),
    // The helpers, which are watched.
    ("linux/src/run/agents.rs", &["real_time::enter"]),
];

/// Sources of programs and libraries; those of tests, workloads and tools set what they like.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    const OTHER: [&str; 7] = ["tests", "benches", "target", "workloads", "tools", "fuzz", ".git"];
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if entry.file_type().unwrap().is_dir() {
            if !OTHER.contains(&name.as_str()) {
                sources(&path, found);
            }
        } else if name != "tests.rs"
            && path.extension().is_some_and(|e| ["rs", "c", "h"].contains(&e.to_str().unwrap()))
        {
            found.push(path);
        }
    }
}

/// The words that code, without its comments, uses.
fn words(text: &str) -> Vec<&'static str> {
    let code = |line: &str| {
        let line = line.trim_start();
        let is_comment = ["//", "/*", "* "].iter().any(|c| line.starts_with(c));
        if is_comment { String::new() } else { line.split("//").next().unwrap_or("").to_owned() }
    };
    let text: Vec<String> = text.lines().map(code).collect();
    WORDS.into_iter().filter(|w| text.iter().any(|line| line.contains(w))).collect()
}

#[test]
fn comments_are_no_code_and_calls_are() {
    let text =
        "//! SCHED_RR\nlet a = 1; // SCHED_FIFO\n\t * sched_setattr\nlibc::sched_setparam(0, p);";
    assert_eq!(words(text), ["sched_setparam"]);
}

/// Would catch: a real-time thread that nothing holds.
#[test]
fn no_other_source_makes_a_real_time_thread() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut all = Vec::new();
    sources(root, &mut all);
    let mut seen = 0;
    for path in &all {
        let name = path.strip_prefix(root).unwrap().to_str().unwrap();
        let allowed = ALLOWED.iter().find(|a| a.0 == name).map_or(&[][..], |a| a.1);
        let found = words(&fs::read_to_string(path).unwrap());
        seen += usize::from(!allowed.is_empty());
        assert!(found.iter().all(|w| allowed.contains(w)), "{name}: {found:?}");
        assert!(allowed.iter().all(|w| found.contains(w)), "{name} has no {allowed:?} any more");
    }
    assert_eq!(seen, ALLOWED.len(), "of {}", all.len());
}

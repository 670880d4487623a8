//! Lines as the library writes them, and what is no such line.

use super::*;
use proptest::prelude::*;
use serde_json::json;

const BEGAN: Nanos = Nanos(5_000_000_000);

fn divided(pid: i32, name: &str, at_ns: u64, before: &[f64], after: &[f64]) -> String {
    json!({
        "schema": SCHEMA, "pid": pid, "since_ns": 7, "event": "divided", "loop": name, "at_ns": at_ns,
        "instances": 17, "before": before, "after": after, "thread": 1, "pace": 0.5152,
    })
    .to_string()
}

fn totals(pid: i32, name: &str, policy: &str, seconds: f64) -> String {
    json!({
        "schema": SCHEMA, "pid": pid, "since_ns": 7, "event": "totals", "loop": name, "seconds": seconds,
        "instances": 400, "iterations": [3000, 1000], "powers": [0.66, 0.34], "divisions": 2,
        "policy": policy, "left_out": 0,
    })
    .to_string()
}

fn read(lines: &[String]) -> Option<LoopsReport> {
    LoopsReport::read(lines.iter().map(|line| line.clone().into_bytes()), BEGAN)
}

/// The words for these lines.
fn said(lines: &[String], most: usize) -> Vec<String> {
    read(lines).unwrap().words(most)
}

#[test]
fn who_had_which_share_and_why_it_changed() {
    let first = divided(3, "sweep", 5_400_000_000, &[0.5, 0.5], &[0.66, 0.34]);
    let second = divided(3, "sweep", 9_000_000_000, &[0.66, 0.34], &[0.3, 0.7]);
    let lines = [first, second, totals(3, "sweep", "rp-steal", 9.0)];
    assert_eq!(
        said(&lines, 2),
        [
            "sweep: 400 instances, rp-steal; iterations 75 % and 25 %, powers 66 % and 34 % at the end; divided anew twice, first after 0.4 s: \
          thread 1 got on half as fast"
        ]
    );
    // It was killed.
    assert_eq!(
        said(&lines[..2], 2),
        [
            "sweep: 17 instances or more, as its process did not end by itself; powers 30 % and 70 % at last; \
             divided anew twice, first after 0.4 s: thread 1 got on half as fast"
        ]
    );
    assert_eq!(
        said(&[totals(3, "fill", "guided", 1.0)], 2),
        ["fill: 400 instances, guided; iterations 75 % and 25 %; divided anew twice"]
    );
}

#[test]
fn the_longest_loops_are_shown_and_whose_they_are() {
    let one = [totals(3, "a", "rp", 1.0), totals(3, "b", "rp", 3.0), totals(3, "c", "rp", 2.0)];
    let names = |lines: Vec<String>| -> Vec<String> {
        lines.iter().map(|line| line.split(':').next().unwrap().to_owned()).collect()
    };
    assert_eq!(names(said(&one, 2)), ["b (of 3 loops)", "c"]);
    assert_eq!(names(said(&one, 3)), ["b", "c", "a"]);
    let two = [&one[..], &[totals(4, "a", "rp", 9.0)]].concat();
    let expected = ["a of process 4 (of 4 loops in 2 processes)", "b of process 3"];
    assert_eq!(names(said(&two, 2)), expected);
    assert_eq!(read(&two).unwrap().processes, 2);
}

#[test]
fn shares_of_many_threads_are_a_range_and_paces_are_words() {
    assert_eq!(parts(&[0.5, 0.3, 0.2]), "50 %, 30 % and 20 %");
    assert_eq!(parts(&[1.0]), "100 %");
    assert_eq!(parts(&[0.3, 0.2, 0.2, 0.2, 0.1]), "10 to 30 % of 5 threads");
    let paces = [0.0, 0.05, 0.3, 0.5, 1.2, 2.0, 3.5].map(as_fast);
    let expected = ["hardly at all", "0.05 times as fast", "0.3 times as fast", "half as fast"];
    assert_eq!(paces[..4], expected);
    assert_eq!(paces[4..], ["1.2 times as fast", "twice as fast", "3.5 times as fast"]);
}

#[test]
fn what_is_not_understood_is_left_out_and_counted() {
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[String::new()]), None);
    let good = totals(3, "sweep", "rp", 1.0);
    let changed = |from: &str, to: &str| {
        assert!(good.contains(from), "{good}");
        good.replace(from, to)
    };
    let bad = [
        String::from("{"),
        format!("{good}{good}"),
        changed(SCHEMA, "evenly.loops/2"),
        changed("\"pid\":3", "\"pid\":0"),
        changed("\"totals\"", "\"other\""),
        changed("[0.66,0.34]", "[0.66]"),
        changed("[0.66,0.34]", "[0.66,-1.0]"),
        changed("[0.66,0.34]", "[0.66,1e999]"),
        changed("[3000,1000]", "[]"),
        changed("\"seconds\":1.0", "\"seconds\":-1.0"),
        divided(3, "sweep", 0, &[1.0], &[1.0]),
        divided(3, "sweep", 0, &[0.5, 0.5], &[0.5, 0.25, 0.25]),
        changed("sweep", &"x".repeat(LINE)),
    ];
    let report = read(&bad).unwrap();
    assert_eq!((report.not_read, report.loops.len()), (bad.len() as u64, 0));
    assert!(report.words(2).is_empty());
    // A terminal gets no control sequence, and fields that are new do not matter.
    let odd = changed("sweep", "a\\u001b[2J\\nb").replace("\"pid\"", "\"new\":[1],\"pid\"");
    let report = read(&[odd, good]).unwrap();
    assert_eq!(report.loops[0].name, "a\u{fffd}[2J\u{fffd}b");
    assert_eq!((report.not_read, report.loops.len()), (0, 2));
}

/// Would catch: a program that fills the memory of evenly, or a report of gigabytes.
#[test]
fn what_is_kept_is_limited() {
    let equal = vec![1.0 / THREADS as f64; THREADS];
    let mut lines: Vec<String> = (0..100).map(|_| divided(3, "wide", 0, &equal, &equal)).collect();
    lines.extend((0..=LOOPS).map(|i| totals(3, &format!("loop {i}"), "rp", 1.0)));
    let report = read(&[&lines[..], &lines].concat()).unwrap();
    let wide = report.loops.iter().find(|l| l.name == "wide").unwrap();
    assert_eq!((wide.divisions, wide.divided.len()), (200, DIVISIONS));
    assert_eq!((report.loops.len(), report.left_out), (LOOPS, 2));
    assert!(report.numbers <= NUMBERS);
    // Those that a process does not tell of.
    let more = totals(3, "sweep", "rp", 1.0).replace("\"left_out\":0", "\"left_out\":40");
    assert_eq!(read(&[more.clone(), more]).unwrap().left_out, 40);
}

proptest! {
    /// Whatever is written it is read, or not.
    #[test]
    fn any_line_is_read_or_left_out(
        lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..9),
        cut in 0..300_usize,
        changed in any::<(usize, u8)>(),
    ) {
        let mut good = divided(3, "sweep", 1, &[0.5, 0.5], &[0.9, 0.1]).into_bytes();
        let at = changed.0 % good.len();
        good[at] = changed.1;
        let part = good[..cut.min(good.len())].to_vec();
        let all = lines.len() as u64 + 2;
        let report = LoopsReport::read(lines.into_iter().chain([good, part]), BEGAN);
        let report = report.unwrap_or_default();
        prop_assert!(report.not_read <= all && report.words(9).len() == report.loops.len());
    }
}

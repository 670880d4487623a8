//! The lines of the text, whatever a run was like.

use super::*;
use evenly_policies::POLICIES;
use proptest::prelude::*;
use proptest::{collection, option};

/// Names of lines of figures; a note or the verdict is a sentence, and may be as long as it needs to be.
const FIGURES: [&str; 16] = [
    "progress",
    "waiting",
    "loop",
    "probe",
    "barriers",
    "for whom",
    "messages",
    "quota",
    "efficiency",
    "migrations",
    "overhead",
    "point",
    "source",
    "domain",
    "gain",
    "measured",
];

fn is_figure(line: &str) -> bool {
    FIGURES.iter().any(|name| line.trim_start().starts_with(&format!("{name} ")))
}

fn any_report() -> impl Strategy<Value = RunReport> {
    let threads = collection::vec((0.0..9.0, 0.0..9.0, 0.0..9.0, option::of(0.0..1.0)), 0..7);
    let counts = (0..5_usize, 0..4_u64, 0..9_u32, 0..30_u64, 0..3_u64);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let some = (option::of(0.1..4.0), option::of(0..9_u32), option::of(0..5_usize), 0..3_usize);
    (threads, 0..9_usize, counts, flags, some, 0..POLICIES.len(), 0.01..20.0).prop_map(
        |(threads, notes, counts, flags, some, policy, seconds)| {
            let (domains, migrations, pairs, points, weighings) = counts;
            let (started, stood_down, probed, own_masks, taskstats) = flags;
            let (quota, ranks, placed, failure) = some;
            let threads = (1..).zip(threads).map(|(i, (ran, waited, blocked, spun))| {
                let t = thread(i, ran, waited, blocked);
                ThreadSummary { own_mask: own_masks, spun_s: spun, ..t }
            });
            let mut r = report(threads.collect());
            let threads = r.summary.threads.clone();
            r.summary.domains = (0..domains as u32)
                .map(|i| {
                    let mut d = domain(i, &format!("{}-{}", 2 * i, 2 * i + 1), &threads);
                    (d.migrations, d.points, d.weighings) = (100 * migrations, points, weighings);
                    (d.stood_down, d.failed) = (stood_down && i == 0, migrations);
                    (d.estimated_gain, d.verdict) = (Some(1.3), Verdict::default());
                    d.verdict =
                        Verdict { pairs, ratio: 1.1, low: 0.9 + 0.1 * f64::from(pairs), high: 1.5 };
                    d
                })
                .collect();
            r.policy = &POLICIES[policy];
            (r.started, r.seconds, r.balanced_s) = (started, seconds, 0.9 * seconds);
            r.quota_cpus = quota;
            r.mpi_ranks = ranks;
            r.source = taskstats.then(|| String::from("taskstats"));
            r.mapping = placed.map(|placed| Placed { what: "rank", named: 4, placed });
            r.failure = (failure == 0).then(|| String::from("no journal:\nnot permitted"));
            r.summary.notes = (0..notes).map(|i| format!("note {i}:\nof two lines")).collect();
            r.probe = probed.then(|| probe_of(ranks.unwrap_or(0)));
            r.messages = ranks.filter(|_| probed).map(messages_of);
            r.loops = ranks.and_then(loops_of);
            r.judged()
        },
    )
}

/// All ranks wait for the first.
fn probe_of(ranks: u32) -> ProbeReport {
    let call = String::from("MPI_Recv");
    let for_first = WaitedFor { call, rank: Some(0), world: true, tid: None, seen: 9 };
    let threads = (0..ranks).map(|rank| ProbeThread {
        pid: Pid(100),
        tid: Tid(100 + rank as i32),
        rank: Some(rank),
        waited_s: 1.5,
        outside_s: 0.5,
        phases: 9,
        waits: 9,
        seen_waiting: 9,
        waited_for: vec![for_first.clone()],
    });
    ProbeReport { processes: ranks, left_out: 0, threads: threads.collect(), replaced: 9 }
}

/// So many, all alike.
pub(super) fn loops_of(loops: u32) -> Option<LoopsReport> {
    let line = |i: u32| {
        let line = serde_json::json!({
            "schema": "evenly.loops/1", "pid": 100, "since_ns": 1, "event": "totals", "loop": format!("loop {i}"),
            "seconds": 2.5, "instances": 40, "iterations": [550, 450], "powers": [0.6, 0.4], "divisions": 1,
            "policy": "rp-steal", "left_out": 0,
        });
        line.to_string().into_bytes()
    };
    let divided = serde_json::json!({
        "schema": "evenly.loops/1", "pid": 100, "since_ns": 1, "event": "divided", "loop": "loop 0", "at_ns": 400_000_000,
        "instances": 5, "before": [0.5, 0.5], "after": [0.6, 0.4], "thread": 1, "pace": 0.6667,
    });
    let divided = (loops > 0).then(|| divided.to_string().into_bytes());
    LoopsReport::read(divided.into_iter().chain((0..loops).map(line)), Nanos::ZERO)
}

fn messages_of(ranks: u32) -> MessagesReport {
    let rank = |rank: u32| {
        let id = 100 + rank as i32;
        RankReport { pid: Pid(id), tid: Tid(id), rank, computed_s: 1.0, mpi_s: 0.5 }
    };
    MessagesReport {
        decided: false,
        seconds: 2.0,
        messages: 3_000,
        bytes: 2_000_000,
        outside: 0,
        uncounted: 0,
        left_out: 0,
        ranks: (0..ranks).map(rank).collect(),
        edges: Vec::new(),
    }
}

proptest! {
    /// Result, verdict, notes, figures; at most eight lines, and no note is cut without a word.
    #[test]
    fn every_report_has_at_most_eight_lines_and_the_whole_one_has_everything(r in any_report()) {
        let (short, whole) = (r.text(false), r.text(true));
        let lines: Vec<&str> = short.lines().collect();
        prop_assert!(lines.len() <= 8, "{}", short);
        let verdict = r.verdict.replace('\n', " ");
        let (head, said) = match verdict.strip_prefix("Nothing was balanced: ") {
            Some(why) => (1, lines[0].ends_with(&format!(": {why}"))),
            None => (2, lines[1].trim_start() == verdict && lines[0].contains(r.policy.name)),
        };
        prop_assert!(lines[0].starts_with("evenly: ") && said, "{}", short);
        let notes = lines.iter().filter(|l| l.starts_with("  note ")).count();
        let all = r.summary.notes.len();
        prop_assert_eq!(notes > 0, all > 0, "{}", short);
        // Notes come before figures.
        prop_assert!(lines[head..].iter().skip(notes).all(|l| is_figure(l)), "{}", short);
        if notes < all {
            let more = all + 1 - notes;
            let said = format!("  note        {more} more notes; -v shows all");
            prop_assert_eq!(lines[head + notes - 1], said);
        }
        for note in &r.summary.notes {
            let whole_note = format!("\n  note        {}\n", note.replace('\n', " "));
            prop_assert!(whole.contains(&whole_note), "{}", whole);
        }
        for line in lines.iter().filter(|l| !l.contains("-v shows all")) {
            prop_assert!(whole.contains(line), "{}\n{}", line, whole);
        }
        if r.started && r.failure.is_none() {
            let ran = r.summary.threads.iter().any(|t| t.ran_s > 0.0);
            let loops = short.contains("\n  loop ");
            prop_assert_eq!(loops, r.loops.as_ref().is_some_and(|l| !l.loops.is_empty()), "{}", short);
            prop_assert!(loops || short.contains("\n  waiting ") == ran, "{}", short);
            for name in ["migrations", "overhead"] {
                prop_assert!(short.contains(&format!("\n  {name} ")), "{}", short);
            }
        }
    }
}

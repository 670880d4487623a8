//! The text of the report for the cases that users meet, and its JSON against the schema.

use super::*;
use evenly_engine::{CostBreakdown, SearchSummary, Untried, Verdict};
use evenly_model::{DomainId, Nanos, Pid, ThreadId, Tid};

/// Whatever a run was like.
mod any;
mod ranks;
mod unmoved;

fn thread(tid: i32, ran_s: f64, waited_s: f64, blocked_s: f64) -> ThreadSummary {
    ThreadSummary {
        id: ThreadId { tid: Tid(tid), start: 7 },
        pid: Pid(100),
        name: format!("worker-{tid}"),
        ran_s,
        spun_s: None,
        waited_s,
        blocked_s,
        migrations: 4,
        minor_faults: 120,
        major_faults: 0,
        present_s: ran_s + waited_s + blocked_s,
        own_mask: false,
        span: (Nanos::ZERO, Nanos::from_secs_f64(ran_s + waited_s + blocked_s)),
    }
}

fn domain(id: u32, cpus: &str, threads: &[ThreadSummary]) -> DomainSummary {
    let sum = |f: fn(&ThreadSummary) -> f64| threads.iter().map(f).sum::<f64>();
    let all = sum(|t| t.present_s).max(1e-9);
    DomainSummary {
        search: SearchSummary::default(),
        id: DomainId(id),
        cpus: cpus.parse().unwrap(),
        allowed: cpus.parse().unwrap(),
        points: 490,
        migrations: 0,
        weighings: 0,
        failed: 0,
        cpu_s: 0.012,
        period_s: 0.0204,
        cost: CostBreakdown {
            read: Nanos::from_micros(490 * 9),
            decide: Nanos::from_micros(490),
            apply: Nanos::from_micros(490 * 4),
            record: Nanos::ZERO,
        },
        threads: threads.len() as u32,
        estimated_gain: None,
        verdict: Verdict::default(),
        choice: None,
        untried: None,
        stood_down: false,
        rested_s: 0.0,
        wait_share: sum(|t| t.waited_s) / all,
        idle_s: Some(0.0),
        blocked_share: sum(|t| t.blocked_s) / all,
    }
}

fn policy(name: &str) -> &'static PolicyInfo {
    evenly_policies::by_name(name).unwrap()
}

fn report(threads: Vec<ThreadSummary>) -> RunReport {
    RunReport {
        schema: SCHEMA,
        evenly: "0.1.0",
        command: vec!["./app".into()],
        policy: policy("hybrid"),
        ended: Ended::Exit(0),
        seconds: 10.3,
        balanced_s: 10.0,
        cpus: "0-1".parse().unwrap(),
        quota_cpus: None,
        period_ms: 20.0,
        overhead_s: 0.02,
        budget: 0.01,
        failure: None,
        started: true,
        expected_threads: None,
        filtered: false,
        filter: Vec::new(),
        names: [Vec::new(), Vec::new()],
        mpi_ranks: None,
        all_threads: threads.len() + 1,
        realtime_threads: 0,
        processes: 1,
        mapping: None,
        summary: Summary { domains: vec![domain(0, "0-1", &threads)], threads, notes: Vec::new() },
        efficiency: None,
        source: Some(String::from("schedstat")),
        probe: None,
        handed_over: None,
        metronome: None,
        loops: None,
        messages: None,
        measured: None,
        gain: None,
        verdict: String::new(),
    }
}

fn balanced() -> RunReport {
    report(vec![thread(1, 9.97, 0.03, 0.0), thread(2, 9.96, 0.04, 0.0)])
}

/// Threads that were placed by a mapping have been moved, also where nothing was balanced within it.
#[test]
fn what_a_mapping_placed_is_no_nothing() {
    let said = |mapped: RunReport, placed: usize| {
        let mapping = Some(Placed { what: "rank", named: 4, placed });
        RunReport { mapping, ..mapped }.judged().verdict
    };
    assert_eq!(
        said(balanced(), 4),
        "4 ranks were placed where the mapping says; evenly moved nothing else."
    );
    assert_eq!(
        said(balanced(), 1),
        "1 of the 4 ranks in the mapping was placed where it says; evenly moved nothing else."
    );
    assert_eq!(said(balanced(), 0), balanced().judged().verdict);
    let balanced_too = said(three_on_two(), 4);
    let of_balancing = three_on_two().judged().verdict;
    assert_eq!(balanced_too, format!("4 ranks were placed where the mapping says. {of_balancing}"));
}

/// n=3, m=2, as it should be.
fn three_on_two() -> RunReport {
    let mut r = report((1..=3).map(|i| thread(i, 6.64 + 0.01 * f64::from(i), 3.32, 0.0)).collect());
    let d = &mut r.summary.domains[0];
    (d.migrations, d.estimated_gain) = (312, Some(1.318));
    d.verdict = Verdict { pairs: 3, ratio: 1.27, low: 1.19, high: 1.36 };
    r
}

fn nothing_started() -> RunReport {
    let mut r = report(Vec::new());
    (r.started, r.balanced_s, r.seconds) = (false, 0.0, 1.0);
    r
}

#[test]
fn a_balanced_program() {
    insta::assert_snapshot!(balanced().judged().text(false));
}

#[test]
fn three_threads_on_two_cpus() {
    insta::assert_snapshot!(three_on_two().judged().text(false));
    insta::assert_snapshot!(three_on_two().judged().text(true));
}

/// Programs of which is known by arithmetic where their time goes, in text and JSON.
#[test]
fn efficiencies_of_programs_that_are_known() {
    let near = |json: &serde_json::Value, known: f64| (json.as_f64().unwrap() - known).abs() < 1e-9;
    for (threads, share, factors, words) in [
        // Three threads on two CPUs, left where they are: two share one, and the third sleeps for half of the time.
        (
            vec![thread(1, 5.0, 0.0, 5.0), thread(2, 5.0, 5.0, 0.0), thread(3, 5.0, 5.0, 0.0)],
            1.0 / 3.0,
            [0.5, 1.0, 0.5, 0.5, 1.0],
            "50.0 % parallel = 100.0 load balance x 50.0 communication (50.0 run queue x 100.0 synchronisation); \
             33.3 % of the threads' time in run queues",
        ),
        // Work of 4 and 1, a CPU each.
        (
            vec![thread(1, 8.0, 0.0, 0.0), thread(2, 2.0, 0.0, 6.0)],
            0.0,
            [0.625, 0.625, 1.0, 1.0, 1.0],
            "62.5 % parallel = 62.5 load balance x 100.0 communication (100.0 run queue x 100.0 synchronisation); \
             0.0 % of the threads' time in run queues",
        ),
        // All wait for a fifth of the time for something else than each other.
        (
            vec![thread(1, 8.0, 0.0, 2.0), thread(2, 8.0, 0.0, 2.0)],
            0.0,
            [0.8, 1.0, 0.8, 1.0, 0.8],
            "80.0 % parallel = 100.0 load balance x 80.0 communication (100.0 run queue x 80.0 synchronisation); \
             0.0 % of the threads' time in run queues",
        ),
    ] {
        let judged = report(threads).judged();
        let text = judged.text(true);
        assert!(text.contains(&format!("\n  efficiency  {words}\n")), "{text}");
        let json = serde_json::to_value(judged).unwrap();
        let e = &json["efficiency"];
        assert!(near(&e["run_queue_share"], share), "{e:#}");
        let names = ["parallel", "load_balance", "communication", "run_queue", "synchronisation"];
        assert!(names.iter().zip(factors).all(|(n, f)| near(&e["factors"][n], f)), "{e:#}");
    }
}

#[test]
fn what_was_measured_goes_before_what_is_estimated() {
    let with = |pairs, ratio, low, high| {
        let mut r = three_on_two();
        r.summary.domains[0].verdict = Verdict { pairs, ratio, low, high };
        r.judged()
    };
    let paid = with(3, 1.27, 1.19, 1.36);
    assert!(paid.verdict.contains("1.27 times") && paid.gain.is_none(), "{}", paid.verdict);
    let unsure = with(4, 1.04, 0.85, 1.27);
    assert!(
        unsure.verdict.contains("1.04 times as fast as in 4 pauses, too few to be sure")
            && unsure.gain.is_none(),
        "{}",
        unsure.verdict
    );
    let none = with(9, 1.0, 0.98, 1.02).verdict;
    assert!(none.contains("showed no difference (0.98 to 1.02 times)"), "{none}");
    let lost = with(4, 0.95, 0.93, 0.97);
    assert!(lost.verdict.contains("not paid so far") && lost.gain.is_none(), "{}", lost.verdict);
    let single = with(1, 0.75, 0.0, f64::INFINITY);
    assert!(
        single.verdict.contains("1 pause is too few to tell") && single.gain.is_none(),
        "{}",
        single.verdict
    );
}

#[test]
fn no_threads() {
    insta::assert_snapshot!(nothing_started().judged().text(false));
    let with = |f: fn(&mut RunReport)| {
        let mut r = nothing_started();
        f(&mut r);
        r.judged().verdict
    };
    insta::assert_snapshot!(with(|r| r.expected_threads = Some(8)));
    insta::assert_snapshot!(with(|r| {
        (r.filtered, r.filter) = (true, vec!["--only 'w*'".into(), "--idle-thread first".into()]);
        r.names = [vec!["worker-1".into()], vec!["app".into()]];
    }));
    insta::assert_snapshot!(with(|r| (r.all_threads, r.realtime_threads) = (5, 4)));
}

#[test]
fn a_filter_that_leaves_nothing_is_named_with_the_threads_that_there_were() {
    let mut r = nothing_started();
    (r.filtered, r.filter) = (true, vec!["--only nomatch".into()]);
    r.names[1] = (1..=7).map(|i| format!("worker-{i}")).collect();
    assert_eq!(
        r.judged().verdict,
        "Nothing was balanced: --only nomatch leaves no thread; the names of threads were worker-1, \
         worker-2, worker-3, worker-4, worker-5, ...."
    );
}

#[test]
fn behind_mpirun_evenly_says_where_it_belongs() {
    let with = |ranks| {
        let mut r = nothing_started();
        r.mpi_ranks = ranks;
        r.judged().verdict
    };
    assert!(
        with(Some(3)).contains("evenly run -- mpirun ... -n 3 --bind-to none PROGRAM"),
        "{}",
        with(Some(3))
    );
    for ranks in [None, Some(1)] {
        assert!(!with(ranks).contains("MPI"), "{}", with(ranks));
    }
}

#[test]
fn threads_that_are_bound_are_why_nothing_was_moved() {
    let bound = |which: &[usize]| {
        let threads = [(9.9, 0.1), (5.0, 5.0), (5.0, 5.0)];
        let mut r =
            report((1..).zip(threads).map(|(i, (ran, wait))| thread(i, ran, wait, 0.0)).collect());
        which.iter().for_each(|&i| r.summary.threads[i].own_mask = true);
        r
    };
    let all = bound(&[0, 1, 2]).judged().verdict;
    assert!(all.contains("3 of 3 threads have affinity masks of their own"), "{all}");
    assert!(all.contains("OMP_PROC_BIND=false") && !all.contains("fell behind"), "{all}");
    let one = bound(&[1]).judged().verdict;
    assert!(one.contains("1 of 3 threads has an affinity mask of its own"), "{one}");
    let none = bound(&[]).judged().verdict;
    assert!(!none.contains("mask"), "{none}");
    let mut moved = bound(&[0]);
    moved.summary.domains[0].migrations = 7;
    let moved = moved.judged().verdict;
    assert!(moved.contains("progressed unequally") && moved.contains("1 of 3"), "{moved}");
    // The aim of nuco is not equal progress.
    let mut r = bound(&[]);
    r.policy = policy("nuco");
    assert!(r.clone().judged().verdict.contains("by load and communication"));
    r.summary.domains[0].migrations = 7;
    let verdict = r.judged().verdict;
    assert!(verdict.contains("placed by load and communication, with 7 migrations"), "{verdict}");
    let mut r = bound(&[0, 1, 2]);
    r.policy = policy("nuco");
    let verdict = r.judged().verdict;
    assert!(verdict.contains("3 of 3 threads have affinity masks of their own"), "{verdict}");
    // Nor is it the aim of shares of CPUs.
    let mut r = bound(&[]);
    r.policy = policy("hpc-auto");
    r.summary.domains[0].weighings = 2;
    assert!(r.judged().verdict.contains("Shares of CPUs were set 2 times, larger for"));
    // Bound, each to a CPU of its own: there is nothing to gain, whatever balances.
    let mut r = balanced();
    r.summary.threads.iter_mut().for_each(|t| t.own_mask = true);
    assert!(r.clone().judged().verdict.contains("No benefit possible"));
    // Others held up all of them alike.
    r.summary.domains[0].wait_share = 0.65;
    let verdict = r.judged().verdict;
    assert!(
        verdict.contains("other programs kept all of them waiting for 65 % of the time"),
        "{verdict}"
    );
}

/// What a probe says of one thread that waited so often at barriers.
fn probe(phases: u32) -> ProbeReport {
    let thread = ProbeThread {
        pid: Pid(100),
        tid: Tid(1),
        rank: None,
        waited_s: 1.0,
        outside_s: 0.0,
        phases,
        waits: phases,
        seen_waiting: 0,
        waited_for: Vec::new(),
    };
    ProbeReport { processes: 1, left_out: 0, threads: vec![thread], replaced: 0 }
}

#[test]
fn an_interval_that_says_nothing_is_not_shown_but_kept() {
    let with = |low, high| {
        let mut r = three_on_two();
        r.summary.domains[0].verdict = Verdict { pairs: 2, ratio: 1.63, low, high };
        r.judged()
    };
    let wide = with(0.0, 893.13);
    assert!(
        !wide.text(true).contains("measured") && !wide.text(true).contains("893"),
        "{}",
        wide.text(true)
    );
    assert_eq!(wide.measured.unwrap().ci95, Some([0.0, 893.13]));
    assert!(with(1.2, 2.2).text(true).contains("measured"));
    // JSON has no number for what has no end.
    assert_eq!(with(0.0, f64::INFINITY).measured.unwrap().ci95, None);
}

#[test]
fn stood_down() {
    let mut r = balanced();
    let d = &mut r.summary.domains[0];
    (d.migrations, d.stood_down, d.rested_s) = (41, true, 7.5);
    d.verdict = Verdict { pairs: 5, ratio: 0.97, low: 0.95, high: 0.98 };
    r.summary.notes.push(String::from(
        "balancing stands down: with it the program progressed at 0.970 of the rate without it \
         (95 % interval 0.950 to 0.980, 5 comparisons)",
    ));
    insta::assert_snapshot!(r.judged().text(false));
}

/// Would catch: "did not pay" beside a measured ratio above 1.
#[test]
fn who_stands_down_does_not_contradict_what_was_measured() {
    let with = |low, high| {
        let mut r = three_on_two();
        r.summary.domains[0].stood_down = true;
        r.summary.domains[0].verdict = Verdict { pairs: 9, ratio: 1.05, low, high };
        r.judged().verdict
    };
    let unsure = with(0.97, 1.14);
    assert!(unsure.contains("no sure gain (0.97 to 1.14 times"), "{unsure}");
    let unknown = with(0.0, 893.0);
    assert!(
        unknown
            .starts_with("Balancing showed no sure gain, so evenly stood down for 0.00 of 10.00 s"),
        "{unknown}"
    );
    assert!(with(0.9, 0.97).starts_with("Balancing did not pay"));
    let paid = with(1.02, 1.08);
    assert!(
        paid.starts_with("Balancing paid: ") && paid.ends_with("and evenly stood down."),
        "{paid}"
    );
}

#[test]
fn observing() {
    let mut r = report(vec![
        thread(1, 9.99, 0.01, 0.0),
        thread(2, 5.0, 5.0, 0.0),
        thread(3, 5.01, 4.99, 0.0),
    ]);
    r.policy = policy("observe");
    r.summary.domains[0].estimated_gain = Some(1.33);
    insta::assert_snapshot!(r.judged().text(false));
}

#[test]
fn a_quota() {
    let mut r = three_on_two();
    r.quota_cpus = Some(1.5);
    r.summary.notes.push(String::from("the CPU quota is now 1.50 CPUs"));
    insta::assert_snapshot!(r.clone().judged().text(false));
    r.summary.domains[0].untried = Some(Untried { policy: "hpc-auto", why: "no".to_owned() });
    let untried = " The threads have unequal work, but hpc-auto could not be tried: no. The CPU";
    assert!(r.judged().verdict.contains(untried));
}

#[test]
fn several_domains_and_many_notes() {
    let threads: Vec<_> = (1..=9).map(|i| thread(i, 8.8, 1.1, 0.0)).collect();
    let mut r = report(threads.clone());
    r.cpus = "0-7".parse().unwrap();
    r.summary.domains = (0..4)
        .map(|i| {
            let cpus = format!("{}-{}", 2 * i, 2 * i + 1);
            let mut d = domain(i, &cpus, if i == 0 { &threads[..3] } else { &threads[3..5] });
            d.migrations = u64::from(i == 0) * 300;
            d
        })
        .collect();
    r.summary.domains[0].failed = 2;
    r.summary.notes = (1..=5).map(|i| format!("note {i}")).collect();
    let r = r.judged();
    insta::assert_snapshot!(r.text(false));
    insta::assert_snapshot!(r.text(true));
}

#[test]
fn the_gain_is_never_silly() {
    let with = |f: fn(&mut RunReport)| {
        let mut r = three_on_two();
        r.summary.domains[0].verdict = Verdict::default();
        f(&mut r);
        r.judged()
    };
    let gain = |f| with(f).gain;
    assert_eq!(gain(|_| {}), Some(1.318));
    // Threads that mostly wait for each other, or for a disk: their own waiting keeps their progress equal.
    let blocking = |r: &mut RunReport| {
        r.summary.threads.iter_mut().for_each(|t| (t.ran_s, t.blocked_s) = (2.0, 6.0));
        r.summary.domains[0].estimated_gain = Some(3.9);
    };
    assert_eq!(gain(blocking), None);
    assert!(!with(blocking).text(true).contains("\n  gain "));
    // Threads that came and went, hardly any time, hardly any gain, a policy that gains nothing.
    assert_eq!(gain(|r| r.summary.threads.extend((4..40).map(|i| thread(i, 0.1, 0.0, 0.0)))), None);
    assert_eq!(gain(|r| r.balanced_s = 0.1), None);
    assert_eq!(gain(|r| r.summary.domains[0].estimated_gain = Some(1.004)), None);
    assert_eq!(gain(|r| r.policy = policy("static")), None);
    // The slowest of several domains decides.
    assert_eq!(
        gain(|r| {
            let mut d = domain(1, "2-3", &[]);
            (d.estimated_gain, d.migrations) = (Some(1.1), 1);
            r.summary.domains.push(d);
        }),
        Some(1.1)
    );
}

#[test]
fn verdicts_do_not_claim_what_was_not_reached() {
    let with = |f: fn(&mut RunReport)| {
        let mut r = three_on_two();
        r.summary.domains[0].verdict = Verdict::default();
        f(&mut r);
        r.judged().verdict
    };
    let unequal = with(|r| {
        r.summary.threads[0].ran_s = 2.0;
        r.summary.threads[0].blocked_s = 7.0;
    });
    assert!(unequal.contains("unequal work"), "{unequal}");
    let unequally = with(|r| {
        r.summary.threads[0].ran_s = 9.9;
        r.summary.threads[0].waited_s = 0.0;
    });
    assert!(unequally.contains("progressed unequally"), "{unequally}");
    let short = with(|r| {
        r.balanced_s = 0.2;
        r.summary.threads[0].ran_s = 9.9;
    });
    assert!(short.contains("too short"), "{short}");
    let one_cpu = with(|r| {
        r.cpus = "3".parse().unwrap();
        r.summary.domains[0].migrations = 0;
    });
    assert!(one_cpu.contains("only one CPU"), "{one_cpu}");
    let failed = with(|r| r.failure = Some(String::from("no journal")));
    assert_eq!(failed, "The program was not balanced: no journal");
}

/// Whatever the threads got: it is not said to be balancing's doing, nor that there was none to do.
#[test]
fn of_few_points_nothing_is_claimed() {
    let few = |mut r: RunReport, points, f: fn(&mut RunReport)| {
        r.summary.domains[0].points = points;
        r.summary.domains[0].verdict = Verdict::default();
        f(&mut r);
        r.judged()
    };
    let balanced_run = few(three_on_two(), 9, |_| ());
    assert_eq!(
        balanced_run.verdict,
        "9 balancing points in 10.00 s are too few to say whether 312 migrations helped."
    );
    assert_eq!(balanced_run.gain, None);
    let uneven = few(three_on_two(), 1, |r| {
        r.balanced_s = 0.02;
        r.summary.domains[0].migrations = 1;
        r.summary.threads[0].ran_s = 9.9;
    });
    assert_eq!(
        uneven.verdict,
        "1 balancing point in 0.02 s is too few to say whether 1 migration helped."
    );
    assert!(uneven.text(true).contains("migrations  1 (50.0 per second); 1 balancing point\n"));
    let balanced_run = few(balanced(), 3, |_| ()).verdict;
    assert_eq!(
        balanced_run,
        "evenly moved nothing; 3 balancing points in 10.00 s are too few to say more."
    );
    let observed = few(three_on_two(), 4, |r| r.policy = policy("observe")).verdict;
    assert!(
        observed.ends_with("4 balancing points in 10.00 s are too few to say more."),
        "{observed}"
    );
    // What does not depend on how many there were.
    let bound =
        few(balanced(), 3, |r| r.summary.threads.iter_mut().for_each(|t| t.own_mask = true));
    assert!(bound.verdict.contains("2 of 2 threads have affinity masks of their own"));
    let one_cpu = few(balanced(), 3, |r| r.cpus = "3".parse().unwrap()).verdict;
    assert!(one_cpu.contains("only one CPU"), "{one_cpu}");
    let fixed = few(three_on_two(), 1, |r| r.policy = policy("static")).verdict;
    assert!(fixed.contains("spread evenly once"), "{fixed}");
    assert!(few(three_on_two(), 10, |_| ()).verdict.contains("progressed equally"));
}

#[test]
fn overhead_is_in_seconds_too_and_what_is_allowed_is_no_alarm() {
    let with = |seconds, overhead_s| {
        let mut r = three_on_two();
        (r.seconds, r.overhead_s) = (seconds, overhead_s);
        let text = r.judged().text(true);
        text.lines().find(|l| l.contains("overhead")).unwrap().to_owned()
    };
    let short = with(0.2, 0.03);
    assert!(
        short.contains("15.00 % of one CPU (0.030 s; the first 0.1 s are always allowed), "),
        "{short}"
    );
    for (seconds, used, said) in [
        (10.0, 0.05, "0.50 % of one CPU (0.050 s), 24.5 us per balancing point"),
        (0.2, 0.15, "75.00 % of one CPU (0.150 s), 24.5 us per balancing point"),
    ] {
        let line = with(seconds, used);
        assert!(line.contains(said), "{line}");
    }
}

fn validator() -> jsonschema::Validator {
    let schema = include_str!("../../../docs/schemas/evenly.run-1.json");
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn the_json_is_as_the_schema_says() {
    let validator = validator();
    let mut ends = [Ended::Exit(3), Ended::Signal(9), Ended::RunsOn, Ended::Gone].into_iter();
    for mut r in [balanced(), three_on_two(), nothing_started(), balanced()] {
        r.ended = ends.next().unwrap();
        r.loops = any::loops_of(3);
        let json = serde_json::to_value(r.judged()).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&json).map(|e| format!("{}: {e}", e.instance_path)).collect();
        assert!(errors.is_empty(), "{errors:?}\n{json:#}");
    }
    assert!(!validator.is_valid(&serde_json::json!({"schema": "evenly.run/2"})));
}

/// A line for each of the first loops, also where nothing was balanced; without the library there is none.
#[test]
fn what_loops_did_is_shown_where_lines_are_left() {
    let of = |loops| RunReport { loops: any::loops_of(loops), ..nothing_started() }.judged();
    let said = of(3).text(false);
    let first = "\n  loop        loop 0 (of 3 loops): 40 instances, rp-steal; iterations 55 % and 45 %, powers 60 % and 40 % at the end; \
                 divided anew once, after 0.4 s: thread 1 got on 0.7 times as fast\n";
    assert!(
        said.contains(first) && said.contains("\n  loop        loop 1: 40 instances"),
        "{said}"
    );
    // Whatever else there is to say.
    let mut full = RunReport { loops: any::loops_of(3), ..three_on_two() };
    full.summary.notes = (0..9).map(|i| format!("note {i}")).collect();
    let text = full.judged().text(false);
    assert!(text.contains(first) && text.lines().count() == 8, "{text}");
    assert!(!said.contains("loop 2") && of(3).text(true).contains("\n  loop        loop 2: "));
    assert!(
        !of(0).text(true).contains("loop")
            && serde_json::to_value(of(0)).unwrap().get("loops").is_none()
    );
}

#[test]
fn a_source_of_times_that_was_asked_for() {
    let of = |source: &str| RunReport { source: Some(source.to_owned()), ..balanced() }.judged();
    assert!(of("taskstats").text(true).contains("\n  source      thread times by taskstats\n"));
    assert!(!of("schedstat").text(true).contains("thread times by"));
}

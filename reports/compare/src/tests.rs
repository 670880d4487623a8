//! The comparison as a whole, with scripted executors and with real processes.

use crate::*;
use evenly_engine::Promise;
use evenly_model::stats::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::f64::consts::TAU;

/// Answers every run from a function of arm and index, and remembers which arms ran.
struct Scripted<F> {
    script: F,
    ran: Vec<String>,
}

impl<F> Scripted<F>
where
    F: FnMut(&Arm, usize) -> Result<RunOutcome, RunError>,
{
    fn new(script: F) -> Self {
        Self { script, ran: Vec::new() }
    }
}

impl<F> Executor for Scripted<F>
where
    F: FnMut(&Arm, usize) -> Result<RunOutcome, RunError>,
{
    fn run(&mut self, arm: &Arm, index: usize) -> Result<RunOutcome, RunError> {
        self.ran.push(arm.name.clone());
        (self.script)(arm, index)
    }
}

fn outcome(seconds: f64, output: &str) -> RunOutcome {
    RunOutcome {
        seconds,
        status: Status::Exited(0),
        output: Output::of_bytes(output.as_bytes()).unwrap(),
        stderr_tail: String::new(),
        report: None,
    }
}

fn arms(names: &[&str]) -> Vec<Arm> {
    names.iter().map(|name| Arm::new(*name, ["true"])).collect()
}

/// A normal variate (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    (-2.0 * (1.0 - random.unit()).ln()).sqrt() * (TAU * random.unit()).cos()
}

/// How many of `trials` comparisons of two arms claim that the second is faster, and the first.
/// `time` gives a run's seconds.
fn claims(trials: u64, runs: usize, time: impl Fn(&Arm, &mut Random) -> f64) -> (usize, usize) {
    let arms = arms(&["kernel", "hybrid"]);
    let mut claims = (0, 0);
    for seed in 0..trials {
        let mut random = Random::new(seed + 1_000_000 * runs as u64);
        let mut executor = Scripted::new(|arm: &Arm, _| Ok(outcome(time(arm, &mut random), "")));
        let options = Options { runs, seed, ..Options::default() };
        let result = compare(&arms, &options, &mut executor, &mut Silent).unwrap();
        if result.verdicts[0].finding == Finding::Faster {
            match result.verdicts[0].policies[0].as_str() {
                "hybrid" => claims.0 += 1,
                _ => claims.1 += 1,
            }
        }
    }
    claims
}

/// What is recommended where arms take so many seconds, give or take a percent.
fn recommended(took: &[(&str, f64)], runs: usize, promise: Option<Promise>) -> Option<String> {
    let names: Vec<&str> = took.iter().map(|t| t.0).collect();
    let mut executor = Scripted::new(|arm: &Arm, index| {
        let seconds = took.iter().find(|t| t.0 == arm.name).unwrap().1;
        Ok(outcome(seconds * (1.0 + 0.002 * (index % 5) as f64), ""))
    });
    let options = Options { runs, ..Options::default() };
    let mut c = compare(&arms(&names), &options, &mut executor, &mut Silent).unwrap();
    // The kernel tells nothing, nor do all others of an arm with other variables.
    let tell = took.iter().map(|t| t.0).chain(["auto"]).filter(|name| *name != "kernel");
    let promises = tell.filter_map(|name| Some((String::from(name), promise?)));
    c.recommend(&promises.chain([(String::from("auto:X=1"), Promise::Long)]).collect());
    let r = c.recommended.clone()?;
    let line = format!("recommended: {}, as {}", r.policy, r.reason);
    assert!(table(&c, false).contains(&line));
    Some(line)
}

/// Would catch: a policy that is recommended for a difference that the runs do not show; one that `auto` tries by itself.
#[test]
fn what_is_surely_the_fastest_is_recommended() {
    let of = |took: &[(&str, f64)], promise| recommended(took, 10, promise).unwrap();
    let three = [("kernel", 1.3), ("static", 1.2), ("auto", 1.0)];
    let r = of(&three, Some(Promise::Equal));
    assert!(r.starts_with("recommended: auto, as auto is 1.30"), "{r}");
    let r = of(&three, Some(Promise::Gain));
    assert!(r.ends_with("share CPUs, so that it tried hpc-auto as well"), "{r}");
    let r = of(&three, Some(Promise::Long));
    assert!(r.contains("and auto tries hpc-auto only where it sees them meet"), "{r}");
    // As fast as the usual one is not enough; faster is.
    let r = of(&[("kernel", 1.3), ("phase", 0.999), ("auto", 1.0)], None);
    assert!(r.starts_with("recommended: auto, "), "{r}");
    let r = of(&[("kernel", 1.3), ("hpc-auto", 0.9), ("auto", 1.0)], Some(Promise::Long));
    assert!(r.starts_with("recommended: hpc-auto, as hpc-auto is 1.44") && !r.contains(';'), "{r}");
    assert_eq!(
        of(&[("kernel", 1.0), ("static", 1.0)], Some(Promise::Gain)),
        "recommended: kernel, as no other was surely faster; the threads have unequal work and share CPUs: compare \
         auto, which tries hpc-auto then"
    );
    assert_eq!(recommended(&three, 2, None), None);
}

/// Would catch: spinning that nobody reported, taken for computing.
#[test]
fn reports_say_whether_work_is_unequal() {
    let report = |computed: [f64; 3], spun: Option<f64>, cpus: &str, phases: u64| {
        let threads =
            computed.map(|s| serde_json::json!({"ran_s": s + spun.unwrap_or(0.0), "spun_s": spun}));
        let probe = serde_json::json!({"threads": [{"phases": phases}]});
        let mut all = serde_json::json!({"threads": threads, "cpus": cpus, "balanced_s": 8.0, "probe": probe});
        // One of them came after another had left.
        all["domains"] = serde_json::json!([{"threads": 2}]);
        assert_eq!(promise_of(&all), None);
        all["domains"] = serde_json::json!([{"threads": 2}, {"threads": 1}]);
        promise_of(&all)
    };
    assert_eq!(report([4.0, 1.0, 1.0], Some(1.0), "0-1", 100), Some(Promise::Gain));
    assert_eq!(report([4.0, 1.0, 1.0], Some(1.0), "0-1", 2), Some(Promise::Long));
    assert_eq!(report([4.0, 1.0, 1.0], Some(1.0), "0-1", 0), Some(Promise::Unmeasured));
    assert_eq!(report([4.0, 1.0, 1.0], Some(1.0), "0-2", 100), Some(Promise::Apart));
    assert_eq!(report([4.0, 3.8, 3.9], Some(1.0), "0-1", 100), Some(Promise::Equal));
    assert_eq!(report([4.0, 1.0, 1.0], None, "0-1", 100), None);
    assert_eq!(promise_of(&serde_json::json!({})), None);
}

#[test]
fn five_percent_are_found_in_one_percent_of_noise() {
    let time = |arm: &Arm, random: &mut Random| {
        let mean = if arm.name == "hybrid" { 1.0 } else { 1.05 };
        mean * (1.0 + 0.01 * normal(random))
    };
    for (runs, trials, least) in [(5, 50, 48), (10, 20, 20)] {
        let (hybrid, kernel) = claims(trials, runs, time);
        assert!(hybrid >= least && kernel == 0, "{runs} runs: {hybrid}, {kernel}");
    }
}

/// How long a run takes that is like all others.
type Noise = fn(&mut Random) -> f64;

#[test]
fn equal_arms_are_called_different_in_at_most_five_percent() {
    let distributions: [(&str, Noise); 3] = [
        ("normal", |random| 1.0 + 0.02 * normal(random)),
        ("exponential tail", |random| 1.0 - 0.2 * (1.0 - random.unit()).ln()),
        ("two-valued", |random| if random.unit() < 0.3 { 1.3 } else { 1.0 + 0.01 * random.unit() }),
    ];
    for runs in [3, 4, 5] {
        let mut all = 0;
        for (name, time) in distributions {
            let (a, b) = claims(120, runs, |_, random| time(random));
            // 5 % of 120 are 6; twelve or more by chance would be seen in 2 of 100 such tests.
            assert!(a + b < 12, "{name}, {runs} runs: {a} and {b} of 120");
            all += a + b;
        }
        assert!(all <= 18, "{runs} runs: {all} of 360");
    }
}

#[test]
fn three_runs_show_what_is_plain_and_two_show_nothing() {
    let time = |arm: &Arm, random: &mut Random| {
        (if arm.name == "hybrid" { 1.0 } else { 1.3 }) * (1.0 + 0.005 * normal(random))
    };
    assert!(claims(50, 3, time).0 >= 48);
    assert_eq!(claims(20, 2, time), (0, 0));
    assert_eq!(claims(20, 1, time), (0, 0));
}

#[test]
fn every_round_has_every_arm_once_in_changing_order() {
    let names = ["kernel", "static", "juggle", "hybrid"];
    let run = |seed| {
        let mut executor = Scripted::new(|_: &Arm, _| Ok(outcome(1.0, "")));
        let options = Options { runs: 12, warmup: 1, seed, ..Options::default() };
        compare(&arms(&names), &options, &mut executor, &mut Silent).unwrap();
        executor.ran
    };
    let ran = run(1);
    assert_eq!(ran.len(), 13 * 4);
    let mut orders = BTreeSet::new();
    for round in ran.chunks(4) {
        assert_eq!(round.iter().collect::<BTreeSet<_>>().len(), 4, "{round:?}");
        orders.insert(round);
    }
    assert!(orders.len() > 6, "{orders:?}");
    assert_eq!(ran, run(1));
    assert_ne!(ran, run(2));
}

#[test]
fn too_few_runs_are_said_once() {
    let said = |runs| {
        let mut executor = Scripted::new(|_: &Arm, i| Ok(outcome(1.0 + 0.01 * i as f64, "")));
        let options = Options { runs, ..Options::default() };
        let result =
            compare(&arms(&["a", "b", "c"]), &options, &mut executor, &mut Silent).unwrap();
        crate::table(&result, false)
    };
    let text = said(1);
    assert_eq!(text.matches("too few runs").count(), 1, "{text}");
    assert_eq!(text.matches("--runs").count(), 1, "{text}");
    assert!(text.contains("a, b, c: too few runs to say anything (1 where 3 are"), "{text}");
    // With enough for a statement, the pairs are named one by one, and the warning stays.
    let text = said(4);
    assert!(!text.contains("too few runs") && text.contains("a and b:"), "{text}");
    assert!(text.contains("rough intervals"), "{text}");
}

#[test]
fn warm_up_is_discarded_and_progress_is_reported() {
    #[derive(Default)]
    struct Log(Vec<String>);
    impl Progress for Log {
        fn planned(&mut self, runs: usize) {
            self.0.push(format!("planned {runs}"));
        }
        fn started(&mut self, arm: &Arm, round: Round) {
            self.0.push(format!("{} {round} ...", arm.name));
        }
        fn finished(&mut self, arm: &Arm, round: Round, seconds: f64) {
            self.0.push(format!("{} {round}: {seconds}", arm.name));
        }
    }
    let mut executor =
        Scripted::new(|_: &Arm, index| Ok(outcome(if index < 2 { 9.0 } else { 1.0 }, "")));
    let options = Options { runs: 1, warmup: 1, seed: 3, ..Options::default() };
    let mut log = Log::default();
    let result = compare(&arms(&["a", "b"]), &options, &mut executor, &mut log).unwrap();
    assert!(result.results.iter().all(|r| r.seconds == [1.0]));
    assert_eq!(log.0.len(), 1 + 2 * 4);
    assert_eq!(log.0[0], "planned 4");
    assert!(
        log.0[2].ends_with(" warm-up 1: 9") && log.0[8].ends_with(" run 1: 1"),
        "{log:?}",
        log = log.0
    );
}

#[test]
fn the_programs_own_figure_is_taken() {
    let mut executor = Scripted::new(|arm: &Arm, _| {
        let makespan = if arm.name == "a" { 2 } else { 4 };
        Ok(outcome(100.0, &format!("{{\"makespan_s\": {makespan}}}\n")))
    });
    let mut options =
        Options { runs: 3, metric: Metric::Field("makespan_s".into()), ..Options::default() };
    let result = compare(&arms(&["a", "b"]), &options, &mut executor, &mut Silent).unwrap();
    assert_eq!(result.results[0].speedup_vs["b"].ratio, 2.0);
    assert_eq!(result.results[1].speedup_vs["a"].ratio, 0.5);
    options.metric = Metric::Field("phases".into());
    let error = compare(&arms(&["a", "b"]), &options, &mut executor, &mut Silent).unwrap_err();
    assert!(matches!(error, CompareError::Metric { .. }), "{error}");
}

#[test]
fn an_interrupt_keeps_what_there_is() {
    let mut executor = Scripted::new(|_: &Arm, index| match index {
        7 => Err(RunError::Interrupted),
        _ => Ok(outcome(1.0, "")),
    });
    let options = Options { runs: 10, ..Options::default() };
    let result = compare(&arms(&["a", "b"]), &options, &mut executor, &mut Silent).unwrap();
    assert!(result.incomplete);
    assert_eq!(result.results.iter().map(|r| r.seconds.len()).sum::<usize>(), 7);
    assert_eq!(result.warnings[0].text, "interrupted: only 3 of 10 rounds are complete");

    let mut executor = Scripted::new(|_: &Arm, _| Err(RunError::Interrupted));
    let result = compare(&arms(&["a", "b"]), &options, &mut executor, &mut Silent).unwrap();
    assert!(result.incomplete && result.verdicts.is_empty());
    validate(&result);
    assert!(table(&result, false).contains("a          0"), "{}", table(&result, false));
}

#[test]
fn what_cannot_be_asked_is_said() {
    let mut executor = Scripted::new(|_: &Arm, _| Ok(outcome(1.0, "")));
    let mut ask = |names: &[&str], options: Options| {
        compare(&arms(names), &options, &mut executor, &mut Silent).unwrap_err().to_string()
    };
    let usual = Options::default;
    assert!(ask(&["a"], usual()).contains("2 to 64 policies and has 1; name them with --policies"));
    assert!(ask(&["a", "b", "a"], usual()).contains("`a` is named twice"));
    assert!(ask(&["a", "b"], Options { runs: 0, ..usual() }).starts_with("--runs is 0"));
    let bound = Options { bound_s: Some(f64::NAN), ..usual() };
    assert!(ask(&["a", "b"], bound).starts_with("the bound is NaN s"));
}

fn shell(name: &str, script: &str) -> Arm {
    Arm::new(name, ["/bin/sh", "-c", script])
}

fn real(arms: &[Arm], options: &Options) -> Result<Comparison, CompareError> {
    compare(arms, options, &mut ProcessExecutor::default(), &mut Silent)
}

#[test]
fn failing_runs_are_named() {
    let options = Options { runs: 2, ..Options::default() };
    let arms = [shell("kernel", "true"), shell("static", "echo one >&2; echo two >&2; exit 7")];
    assert_eq!(
        real(&arms, &options).unwrap_err().to_string(),
        "static, run 1: the program exited with status 7; the end of its standard error: one | \
         two; a comparison needs runs that succeed"
    );
    let arms = [shell("kernel", "true"), shell("static", "kill -ABRT $$")];
    assert_eq!(
        real(&arms, &options).unwrap_err().to_string(),
        "static, run 1: the program was ended by signal 6 (SIGABRT) and wrote nothing to standard \
         error; a comparison needs runs that succeed"
    );
    let arms = [shell("kernel", "true"), Arm::new("static", ["/nonexistent/evenly"])];
    let message = real(&arms, &options).unwrap_err().to_string();
    assert!(message.starts_with("static, run 1: cannot start `/nonexistent/evenly`"), "{message}");
}

#[test]
fn outputs_that_differ_are_found() {
    let arms = [shell("kernel", "echo sum; echo 12"), shell("hybrid", "echo sum; echo 13")];
    let mut options = Options { runs: 1, seed: 5, ..Options::default() };
    assert!(real(&arms, &options).is_ok());
    options.same_output = true;
    let message = real(&arms, &options).unwrap_err().to_string();
    assert!(message.starts_with("outputs differ from byte 5 (line 2) on: "), "{message}");
    assert!(message.contains("kernel (run 1) has \"2\""), "{message}");
    assert!(message.contains("hybrid (run 1) has \"3\""), "{message}");
    let same = [shell("kernel", "echo 12"), shell("hybrid", "printf '12\\n'")];
    let result = real(&same, &options).unwrap();
    // printf '12\n' | sha256sum
    assert_eq!(
        result.output_sha256.as_deref(),
        Some("a1fb50e6c86fae1679ef3351296fd6713411a08cf8dd1790a4fd05fae8688164")
    );
    validate(&result);
}

/// A comparison that uses every field.
fn sample() -> Comparison {
    let mut random = Random::new(20);
    let mut executor = Scripted::new(|arm: &Arm, _| {
        let mean = match arm.name.as_str() {
            "kernel" => 1.96,
            "static" => 2.0,
            _ => 1.53,
        };
        let seconds = mean + 0.05 * random.unit();
        let report = Some(serde_json::json!({ "migrations": 31 }));
        Ok(RunOutcome { report, ..outcome(seconds, "checksum 12\n") })
    });
    let options = Options {
        command: ["./spmd", "--threads", "3"].map(str::to_owned).to_vec(),
        runs: 4,
        warmup: 1,
        seed: 11,
        same_output: true,
        bound_s: Some(1.5),
        keep_reports: true,
        ..Options::default()
    };
    let names = arms(&["kernel", "static", "hybrid"]);
    compare(&names, &options, &mut executor, &mut Silent).unwrap()
}

fn schema() -> serde_json::Value {
    let text = include_str!("../../../docs/schemas/evenly.compare-1.json");
    serde_json::from_str(text).unwrap()
}

fn validate(comparison: &Comparison) {
    let value = serde_json::to_value(comparison).unwrap();
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn the_json_is_as_its_schema_says() {
    let mut comparison = sample();
    comparison.recommend(&BTreeMap::new());
    validate(&comparison);
    let schema = schema();
    let value = serde_json::to_value(&comparison).unwrap();
    let keys = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys(&value), keys(&schema["properties"]));
    for (field, definition) in
        [("results", "result"), ("verdicts", "verdict"), ("warnings", "warning")]
    {
        let described = keys(&schema["$defs"][definition]["properties"]);
        assert_eq!(keys(&value[field][0]), described, "{field}");
    }
    let mut wrong = value;
    wrong["results"][0]["seconds"][0] = "1.5".into();
    assert!(!jsonschema::validator_for(&schema).unwrap().is_valid(&wrong));
}

#[test]
fn golden_json() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&sample()).unwrap());
}

#[test]
fn golden_table() {
    insta::assert_snapshot!(table(&sample(), false));
}

#[test]
fn colour_adds_only_colour() {
    let sample = sample();
    let coloured = table(&sample, true);
    assert!(coloured.contains("\x1b[1m"));
    let stripped =
        ["\x1b[1m", "\x1b[33m", "\x1b[0m"].iter().fold(coloured, |s, code| s.replace(code, ""));
    assert_eq!(stripped, table(&sample, false));
}

#[test]
fn names_cannot_control_the_terminal() {
    let mut executor = Scripted::new(|_: &Arm, _| Ok(outcome(1.0, "")));
    let names = arms(&["a\x1b[2J", "b\n"]);
    let result = compare(&names, &Options::default(), &mut executor, &mut Silent).unwrap();
    let text = table(&result, false);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}

#[test]
fn runs_that_evenly_could_not_balance_are_no_runs() {
    let with = |report: serde_json::Value| {
        let mut executor = Scripted::new(move |arm: &Arm, _| {
            let mut outcome = outcome(1.0, "");
            outcome.report = (arm.name == "hybrid").then(|| report.clone());
            Ok(outcome)
        });
        let options = Options { runs: 3, ..Options::default() };
        compare(&arms(&["kernel", "hybrid"]), &options, &mut executor, &mut Silent)
    };
    let failed = with(serde_json::json!({ "failure": "no journal", "started": false }));
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("hybrid, run 1") && text.contains("no journal"), "{text}");
    let idle = with(serde_json::json!({ "failure": null, "started": false })).unwrap();
    let warning = idle.warnings.iter().find(|w| w.kind == WarningKind::NotBalanced).unwrap();
    assert!(warning.text.contains("in 3 of 3 runs"), "{}", warning.text);
    let fine = with(serde_json::json!({ "failure": null, "started": true })).unwrap();
    assert!(fine.warnings.iter().all(|w| w.kind != WarningKind::NotBalanced));
}

//! `evenly predict`: the paper's analysis of a program, in words and as JSON.
//!
//! Invariant: whatever was assumed or taken from a recording is said.

use crate::flags::PredictArgs;
use crate::report::warn_if_unfinished;
use crate::{End, output};
use anyhow::Context;
use evenly_engine::{Period, PeriodControl, PeriodOptions};
use evenly_model::{Nanos, counted};
use evenly_phase::COST;
use evenly_theory::{ExactTime, Prediction, Question, Regime, Shape, Speeds, predict as ask};
use evenly_trace::{Program, Recording};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// Name and version of the JSON form.
const SCHEMA: &str = "evenly.predict/1";

/// The slice where none was given: the tick of a kernel with 250 Hz.
const USUAL_SLICE: Nanos = Nanos::from_millis(4);

pub(crate) fn predict(args: &PredictArgs) -> anyhow::Result<End> {
    let json = args.json.as_deref().map(output::of_this_process);
    if let Some(path) = &json {
        output::check("--json", path)?;
        if let Some(from) = args.from.as_ref().filter(|from| output::same_file(from, path)) {
            anyhow::bail!(
                "--json would be written over the recording {}; name another file",
                from.display()
            );
        }
    }
    let case = Case::new(args)?;
    let prediction = ask(&case.question);
    output::say(&case.text(&prediction), json.as_deref(), || case.json(&prediction))
}

/// Where a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Given,
    Recording,
    Auto,
    Assumed,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Recording => "recording",
            Self::Auto => "auto",
            Self::Assumed => "assumed",
        }
    }
}

/// The question, and where its parts come from.
struct Case {
    question: Question,
    phase: Source,
    phases: Source,
    period: Source,
    slice: Source,
    recording: Option<(String, Program)>,
}

impl Case {
    fn new(args: &PredictArgs) -> anyhow::Result<Self> {
        let mut observed = false;
        let recording = match &args.from {
            Some(path) => {
                let (program, policy) = read(path)?;
                observed = policy.as_deref() == Some(evenly_policies::watching().name);
                Some((path.display().to_string(), program))
            }
            None => None,
        };
        let program = recording.as_ref().map(|(_, p)| p);
        // The flags see to it that what is not given comes from the recording.
        let threads = args.threads.or(program.map(|p| p.threads)).context("--threads is needed")?;
        let speeds = args.speeds.as_ref();
        let cpus = args
            .cpus
            .or(speeds.map(Speeds::cpus))
            .or(program.map(|p| p.cpus))
            .context("--cpus is needed")?;
        if let Some(speeds) = speeds.filter(|s| s.cpus() != cpus) {
            anyhow::bail!(
                "--speeds has {} speeds for {cpus} CPUs; give one for each, such as {cpus}x1",
                speeds.cpus()
            );
        }
        let shape = Shape::new(threads, cpus)?;
        let (phase, phase_source) = match (args.phase, program) {
            (Some(phase), _) => (phase, Source::Given),
            (None, Some(p)) => match p.phases {
                Ok(found) => (found.length, Source::Recording),
                Err(why) => anyhow::bail!(
                    "the recording does not show how long a phase is: {why}; give --phase (each \
                     thread used {} of CPU time in all){}",
                    p.ran,
                    if observed {
                        ""
                    } else {
                        ", or record with --policy observe, under which waits are longer"
                    }
                ),
            },
            (None, None) => anyhow::bail!("--phase is needed"),
        };
        let (phases, phases_source) = match (args.phases, program) {
            (Some(phases), _) => (phases, Source::Given),
            // However long a phase is, they make up the whole.
            (None, Some(p)) => (nearest(p.ran, phase), Source::Recording),
            (None, None) => (1, Source::Assumed),
        };
        let slice = args.slice.unwrap_or(USUAL_SLICE);
        let (period, period_source) = match (args.period.map(|p| p.0), program) {
            (Some(Period::Fixed(period)), _) => (period, Source::Given),
            (None, Some(p)) if p.period > Nanos::ZERO => (p.period, Source::Recording),
            _ => (automatic(slice, shape), Source::Auto),
        };
        let question = Question {
            shape,
            speeds: args.speeds.clone(),
            phase,
            phases,
            period,
            slice,
            move_cost: COST,
        };
        Ok(Self {
            question,
            phase: phase_source,
            phases: phases_source,
            period: period_source,
            slice: if args.slice.is_some() { Source::Given } else { Source::Assumed },
            recording,
        })
    }

    fn text(&self, p: &Prediction) -> String {
        let q = &self.question;
        let speeds = q.speeds.as_ref().map_or_else(String::new, |s| {
            format!(" (together the speed of {:.2})", s.total(s.cpus() as usize))
        });
        let mut out = format!(
            "evenly: {} on {}{speeds}, {} of {} CPU time a thread, period {}\n",
            counted(q.shape.n(), "thread"),
            counted(q.shape.m(), "CPU"),
            counted(q.phases, "phase"),
            q.phase,
            q.period,
        );
        let mut row = |name: &str, words: &str| {
            let _ = writeln!(out, "  {name:<11} {words}");
        };
        row("regime", &regime(q, p.regime));
        let time = |t: &ExactTime, about: &str| {
            format!("{:>12}  {:5.2} times  {about}", t.to_string(), p.static_time.over(t))
        };
        row("static", &time(&p.static_time, "Eq. 1: every thread stays where it is"));
        if let Some(best) = &p.best_static {
            row("by speed", &time(best, "the best fixed distribution, more threads on fast CPUs"));
        }
        match &p.reactive {
            Some(t) if p.reactive_of_paper => {
                row(
                    "reactive",
                    &time(t, "Eq. 21: ideal, threads are moved at once when some block"),
                );
            }
            Some(t) if p.regime == Regime::NoBenefit => {
                row("reactive", &time(t, "there is nothing to react to"));
            }
            Some(t) => row("reactive", &time(t, "derived, n/m is outside Eq. 21")),
            None => row("reactive", "no equation where speeds differ"),
        }
        let most = match &p.proactive.at_most {
            Some(t) if *t > p.proactive.expected => {
                format!("; the ideal algorithm needs at most {t}")
            }
            _ => String::new(),
        };
        let about = format!("{}{most}", p.proactive.equation);
        row("proactive", &time(&p.proactive.expected, &about));
        if let Some(t) = &p.locked {
            let about = if *t < p.static_time {
                format!("policy phase: one planned move in each phase, at {COST} (McNaughton)")
            } else if q.phases == 1 {
                String::from("policy phase: it learns from the first phase, and there is no other")
            } else {
                format!("policy phase: a move costs {COST}, which is more than it gains")
            };
            row("phase", &time(t, &about));
        }
        row("limit", &time(&p.continuous, "Eq. 15: no balancer is faster"));
        for words in self.sources() {
            row("from", &words);
        }
        for note in &p.notes {
            row("note", note);
        }
        let _ = writeln!(out, "  {}.", capital(&p.reason));
        out
    }

    /// What was not given, and where it comes from.
    fn sources(&self) -> Vec<String> {
        let mut all = Vec::new();
        let slice = match self.slice {
            Source::Given => format!("slices of {}", self.question.slice),
            _ => format!("slices of {}, which is assumed (--slice)", self.question.slice),
        };
        if self.period == Source::Auto {
            all.push(format!("the period is the automatic one for {slice}"));
        }
        if let Some((file, p)) = &self.recording {
            let mut parts = vec!["threads, CPUs"];
            if self.phase == Source::Recording {
                parts.push("phase length");
            }
            if self.phases == Source::Recording {
                parts.push("number of phases");
            }
            if self.period == Source::Recording {
                parts.push("period");
            }
            let mut words = format!("{file}: {}", parts.join(", "));
            if let (Source::Recording, Ok(found)) = (self.phase, p.phases) {
                let _ = write!(words, "; {} were seen whole", counted(found.seen, "phase"));
            }
            if p.domains > 1 {
                let _ = write!(
                    words,
                    "; of {} domains the one with most threads per CPU, {}",
                    p.domains, p.domain.0
                );
            }
            all.push(words);
        }
        all
    }

    fn json(&self, p: &Prediction) -> Value {
        let q = &self.question;
        let seconds = |t: &Option<ExactTime>| t.as_ref().map(ExactTime::seconds);
        json!({
            "schema": SCHEMA,
            "evenly": env!("CARGO_PKG_VERSION"),
            "threads": q.shape.n(),
            "cpus": q.shape.m(),
            "speeds": q.speeds.as_ref().map(|s| s.iter().collect::<Vec<f64>>()),
            "phase_s": q.phase.as_secs_f64(),
            "phases": q.phases,
            "period_s": q.period.as_secs_f64(),
            "slice_s": q.slice.as_secs_f64(),
            "sources": {
                "phase": self.phase.name(),
                "phases": self.phases.name(),
                "period": self.period.name(),
                "slice": self.slice.name(),
            },
            "from": self.recording.as_ref().map(|(file, r)| json!({
                "file": file,
                "domain": r.domain.0,
                "domains": r.domains,
                "phases_seen": r.phases.ok().map(|f| f.seen),
            })),
            "regime": p.regime.name(),
            "static_s": p.static_time.seconds(),
            "best_static_s": seconds(&p.best_static),
            "reactive_s": seconds(&p.reactive),
            "reactive_by": p.reactive.as_ref().map(|_| {
                if p.reactive_of_paper { "equation_21" } else { "derived" }
            }),
            "proactive": {
                "expected_s": p.proactive.expected.seconds(),
                "at_least_s": p.proactive.at_least.seconds(),
                "at_most_s": seconds(&p.proactive.at_most),
                "by": p.proactive.equation,
            },
            "phase_locked": p.locked.as_ref().map(|t| json!({
                "expected_s": t.seconds(),
                "move_cost_s": q.move_cost.as_secs_f64(),
                "relative_speedup": p.static_time.over(t),
            })),
            "continuous_s": p.continuous.seconds(),
            "relative_speedup": p.gain,
            "bound_speedup": p.upper_bound,
            "speedup_over_reactive": p.gain_over_reactive,
            "advice": p.advice.name(),
            "reason": p.reason,
            "notes": p.notes,
        })
    }
}

/// The program of a recording, and the policy under which it ran.
fn read(path: &Path) -> anyhow::Result<(Program, Option<String>)> {
    let recording = Recording::read(path).with_context(|| format!("--from {}", path.display()))?;
    warn_if_unfinished(path, &recording);
    let program = recording.program().with_context(|| {
        format!(
            "--from {}: no thread was ever balanced in this recording; give --threads, --cpus and \
             --phase instead",
            path.display()
        )
    })?;
    Ok((program, recording.header.settings.get("policy").cloned()))
}

fn nearest(whole: Nanos, part: Nanos) -> u64 {
    ((whole.0 as f64 / part.0.max(1) as f64).round() as u64).max(1)
}

/// As long as `evenly run --period auto` would begin with.
fn automatic(slice: Nanos, shape: Shape) -> Nanos {
    let options = PeriodOptions { period: Period::Auto, budget: 0.01, slice, seed: 1 };
    let mut control = PeriodControl::new(options);
    control.shared_by(shape.ceil() as usize);
    control.wanted()
}

fn regime(q: &Question, regime: Regime) -> String {
    let part = q.period.0 as f64 / q.phase.0.max(1) as f64;
    match regime {
        Regime::NoBenefit => String::from("no benefit: all slots are equal"),
        Regime::ShortPeriod => {
            format!("lambda << e: the period is {part:.4} of a phase")
        }
        Regime::ComparablePeriod => format!("lambda ~ e: the period is {part:.2} of a phase"),
        Regime::SingleBalance => String::from(
            "single balance: the period is longer than a phase, which is balanced once or not at \
             all",
        ),
        Regime::NeverBalanced => {
            String::from("never balanced: the program ends before the first balancing point")
        }
    }
}

/// As a sentence begins, save where it begins with our name.
fn capital(text: &str) -> String {
    if text.starts_with("evenly") {
        return text.to_owned();
    }
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Cli, Command};
    use clap::Parser;

    fn case(words: &str) -> anyhow::Result<Case> {
        let argv = ["evenly", "predict"].into_iter().chain(words.split_whitespace());
        let Command::Predict(args) = Cli::try_parse_from(argv)?.command else {
            panic!("not predict")
        };
        Case::new(&args)
    }

    fn text(words: &str) -> String {
        let case = case(words).unwrap();
        case.text(&ask(&case.question))
    }

    #[track_caller]
    fn valid(words: &str) -> Value {
        let schema = include_str!("../../docs/schemas/evenly.predict-1.json");
        let validator = jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap();
        let case = case(words).unwrap();
        let json = case.json(&ask(&case.question));
        let errors: Vec<String> =
            validator.iter_errors(&json).map(|e| format!("{}: {e}", e.instance_path)).collect();
        assert!(errors.is_empty(), "{errors:?}\n{json:#}");
        json
    }

    /// One of each regime and recommendation.
    const CASES: [(&str, &str); 11] = [
        ("short-period", "--threads 8 --cpus 7 --phase 30s --period 100ms"),
        ("nothing-over-reactive", "--threads 3 --cpus 2 --phase 1500ms --phases 4"),
        ("beyond-equation-21", "--threads 16 --cpus 7 --phase 2s --slice 3ms"),
        ("comparable", "--threads 9 --cpus 8 --phase 100ms --period 60ms --phases 50"),
        ("single-balance", "--threads 8 --cpus 7 --phase 1s --period 3s --phases 30"),
        ("single-balance-helps-not", "--threads 13 --cpus 7 --phase 1s --period 3s --phases 30"),
        ("never-balanced", "--threads 8 --cpus 7 --phase 30s --period 2min"),
        ("too-short-phases", "--threads 3 --cpus 2 --phase 5ms --phases 1000"),
        ("no-benefit", "--threads 16 --cpus 8 --phase 30s"),
        ("hardly", "--threads 399 --cpus 4 --phase 30s --period 1s"),
        ("speeds", "--threads 8 --speeds 4x1,4x0.5 --phase 10s --period 20ms"),
    ];

    #[test]
    fn texts() {
        for (name, words) in CASES {
            insta::assert_snapshot!(name, format!("evenly predict {words}\n{}", text(words)));
        }
    }

    #[test]
    fn the_json_is_what_its_schema_says() {
        for (_, words) in CASES {
            valid(words);
        }
        let json = valid("--threads 8 --cpus 7 --phase 30s --period 100ms");
        assert_eq!(json["static_s"], 60.0);
        assert_eq!(json["regime"], "short_period");
        assert_eq!(json["advice"], "worth_trying");
        assert_eq!(json["bound_speedup"], 1.75);
        assert_eq!(json["sources"]["period"], "given");
        let json = valid("--threads 16 --cpus 12 --phase 1s --phases 10");
        assert_eq!(json["bound_speedup"], 1.5);
        assert_eq!(
            (json["period_s"].as_f64(), json["reactive_s"].as_f64()),
            (Some(0.014), Some(15.0))
        );
        let huge =
            "--threads 1000000 --cpus 999999 --phase 1000000s --phases 1000000000000 --period 1ns";
        let json = valid("--threads 3 --cpus 2 --phase 1ms --phases 1000");
        assert_eq!(json["phase_locked"]["move_cost_s"], 50e-6);
        let expected = json["phase_locked"]["expected_s"].as_f64().unwrap();
        assert!((expected - (0.002 + 999.0 * 0.00155)).abs() < 1e-9, "{expected}");
        assert!(valid("--threads 4 --cpus 2 --phase 1ms")["phase_locked"].is_null());
        assert!(valid(huge)["continuous_s"].as_f64().unwrap() > 1e18);
    }

    #[test]
    fn the_period_is_that_of_a_run() {
        let period = |words: &str| case(words).unwrap().question.period.as_millis_f64();
        assert_eq!(period("--threads 3 --cpus 2 --phase 1s"), 14.0);
        assert_eq!(period("--threads 16 --cpus 2 --phase 1s --period auto"), 64.0);
        assert_eq!(period("--threads 3 --cpus 2 --phase 1s --slice 1ms"), 5.0);
        assert_eq!(period("--threads 3 --cpus 2 --phase 1s --slice 10ms"), 35.0);
        assert_eq!(period("--threads 99 --cpus 2 --phase 1s --slice 10ms"), 100.0);
    }

    /// Three threads on two CPUs; the first waits for the last three of each so many points of 20 ms.
    fn recording(dir: &Path, every: u64) -> String {
        let mut text = String::from("{\"schema\":\"evenly.record/1\",\"evenly\":\"0.1.0\"}\n");
        text += "{\"event\":\"domain\",\"at\":0,\"domain\":0,\"cpus\":\"0-1\"}\n";
        for i in 0..3 {
            let _ =
                writeln!(text, "{{\"event\":\"thread\",\"thread\":{i},\"tid\":{i},\"start\":1}}");
        }
        for k in 1..=100 {
            let row = |i: u64| {
                let (ran, blocked) =
                    if i == 0 && k % every >= every - 3 { (0, 20) } else { (10, 0) };
                let waited = 20 - ran - blocked;
                format!(
                    "[{i},0,0,{},{},{},0,0]",
                    ran * 1_000_000,
                    waited * 1_000_000,
                    blocked * 1_000_000
                )
            };
            let rows: Vec<String> = (0..3).map(row).collect();
            let _ = writeln!(
                text,
                "{{\"event\":\"point\",\"domain\":0,\"point\":{k},\"at\":{},\
                 \"elapsed\":20000000,\"cost\":0,\"threads\":[{}]}}",
                k * 20_000_000_u64,
                rows.join(",")
            );
        }
        let file = dir.join(format!("every-{every}.evenly"));
        std::fs::write(&file, text).unwrap();
        file.display().to_string()
    }

    #[test]
    fn from_a_recording() {
        let dir = tempfile::tempdir().unwrap();
        let blocking = recording(dir.path(), 10);
        let found = text(&format!("--from {blocking}")).replace(&blocking, "RECORDING");
        insta::assert_snapshot!("from-a-recording", found);
        let json = valid(&format!("--from {blocking}"));
        assert_eq!((json["threads"].as_u64(), json["cpus"].as_u64()), (Some(3), Some(2)));
        // Two threads with 100 ms, one with 70 ms.
        assert_eq!((json["phase_s"].as_f64(), json["phases"].as_u64()), (Some(0.09), Some(10)));
        assert_eq!(
            (json["period_s"].as_f64(), json["from"]["phases_seen"].as_u64()),
            (Some(0.02), Some(8))
        );
        // What is given wins.
        let json = valid(&format!("--from {blocking} --threads 5 --period auto --phase 450ms"));
        assert_eq!((json["threads"].as_u64(), json["phases"].as_u64()), (Some(5), Some(2)));
        assert_eq!(json["sources"]["period"], "auto");

        let never = recording(dir.path(), 1_000);
        let why = case(&format!("--from {never}")).err().unwrap().to_string();
        assert!(why.contains("never wait") && why.contains("--phase") && why.contains("1.00 s"));
        assert_eq!(valid(&format!("--from {never} --phase 250ms"))["phases"], 4);
        let empty = dir.path().join("empty.evenly");
        std::fs::write(&empty, "{\"schema\":\"evenly.record/1\",\"evenly\":\"0.1.0\"}\n").unwrap();
        let why = case(&format!("--from {}", empty.display())).err().unwrap().to_string();
        assert!(why.contains("no thread was ever balanced"), "{why}");
    }

    #[test]
    fn bad_values_are_refused() {
        for bad in [
            "",
            "--threads 8 --cpus 7",
            "--threads 8 --phase 1s",
            "--cpus 7 --phase 1s",
            "--threads 0 --cpus 7 --phase 1s",
            "--threads 8 --cpus 0 --phase 1s",
            "--threads 8 --cpus -1 --phase 1s",
            "--threads 99999999999 --cpus 7 --phase 1s",
            "--threads 8 --cpus 7 --phase 0s",
            "--threads 8 --cpus 7 --phase 30",
            "--threads 8 --cpus 7 --phase 1s --period 0ms",
            "--threads 8 --cpus 7 --phase 1s --period 99999999999999999s",
            "--threads 8 --cpus 7 --phase 1s --phases 0",
            "--threads 8 --cpus 7 --phase 1s --slice 0ms",
            "--threads 8 --cpus 7 --phase 1s --speeds 1,1",
            "--threads 8 --phase 1s --speeds 0",
            "--from /no/such/file",
        ] {
            assert!(case(bad).is_err(), "{bad}");
        }
    }
}

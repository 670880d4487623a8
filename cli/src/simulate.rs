//! `evenly simulate`: the policies on a simulated machine.

mod loops;
mod patience;

use crate::flags::{BarrierArg, SimulateArgs};
use crate::report::warn_if_unfinished;
use crate::{End, output, tell, tell_lines};
use anyhow::Context;
use evenly_engine::GuardOptions;
use evenly_model::Nanos;
use evenly_model::hpc::Parameters;
use evenly_policies::{by_name, meant, names};
use evenly_policy::PolicyInfo;
use evenly_power5::{Case, Comparison, Latency, case};
use evenly_sim::{
    DriverOptions, IDEAL, Report, RunError, Simple, Sweep, SweepRow, dear_cost, replay, run,
};
use evenly_theory::Shape;
use evenly_trace::Recording;
use indicatif::{ProgressBar, ProgressStyle};
use patience::Patience;
use std::fmt::Write as _;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Below this relative speedup it is said what would end balancing.
const LOSS: f64 = 0.99;
/// The policy where none is named.
const USUAL_POLICY: &str = "juggle";

pub(crate) fn simulate(args: &SimulateArgs) -> anyhow::Result<End> {
    if args.sweep {
        return sweep(args);
    }
    let json = args.json.as_deref().map(output::of_this_process);
    if let Some(path) = &json {
        output::check("--json", path)?;
    }
    if let Some(path) = &args.replay {
        return replayed(args, path, json.as_deref());
    }
    if let Some(name) = &args.power5 {
        return power5(args, name, json.as_deref());
    }
    if let Some(what) = &args.loops {
        return loops::compared(args, what, json.as_deref());
    }
    if let Some(name) = args.policy.as_deref().filter(|name| !is_balancing(name)) {
        anyhow::bail!(
            "--policy {name} decides on priorities, which only the simulated POWER5 has; add --power5 CASE"
        );
    }
    let (report, guarded) = match &args.scenario {
        Some(path) => scenario(args, path)?,
        None => {
            let simple = simple(args)?;
            let _patience = Patience::new(None);
            match args.policy.as_deref().unwrap_or(USUAL_POLICY) {
                IDEAL if args.guard => anyhow::bail!("--guard: {IDEAL} is never paused"),
                IDEAL => (simple.run_ideal()?, true),
                name => {
                    // As live, where it is usual.
                    let guard = GuardOptions { enabled: !args.no_guard, ..GuardOptions::default() };
                    let options = DriverOptions { guard, ..simple.options() };
                    (simple.run_with(policy(name)?, &options)?, !args.no_guard)
                }
            }
        }
    };
    let value = serde_json::to_value(&report)?;
    let mut text = text(&report);
    let loses = report.relative_speedup < LOSS && report.balancing_points > 0;
    if report.stood_down {
        text += "  the guard ended balancing, or had it rest: the program gained nothing by it\n";
    } else if loses && !guarded && by_name(&report.policy).is_some_and(PolicyInfo::is_guarded) {
        text += "  slower than static; with the guard balancing ends where it loses, as under `evenly run`\n";
    }
    output::say(&text, json.as_deref(), || value)
}

/// Whether it decides where threads run.
fn is_balancing(policy: &str) -> bool {
    policy == IDEAL || by_name(policy).is_some()
}

/// The policy of that name, which may come from a scenario file.
fn policy(name: &str) -> anyhow::Result<&'static PolicyInfo> {
    by_name(name).with_context(|| {
        format!("there is no policy '{name}'{}; there are {IDEAL}, {}", meant(name), names())
    })
}

/// A program of the HPCSched paper.
fn power5(args: &SimulateArgs, name: &str, json: Option<&Path>) -> anyhow::Result<End> {
    // The parser has seen to it that it is there.
    let case = case(name).context("--power5: there is no such case")?;
    let mut parameters = Parameters::default();
    for (parameter, value) in &args.set {
        parameters.set(*parameter, *value).context("--set")?;
    }
    let mut latency = Latency::default();
    if let Some(given) = args.latency {
        latency.normal_s = given.as_secs_f64();
    }
    let compared =
        case.compare(args.policy.as_deref(), &parameters, latency, args.seed.unwrap_or(1));
    let compared = compared.context("--policy")?;
    let value = serde_json::to_value(&compared)?;
    output::say(&power5_text(case, &compared), json, || value)
}

fn power5_text(case: &Case, c: &Comparison) -> String {
    let mut t = format!(
        "{} on a POWER5, {} iterations; in brackets Table {} of the HPCSched paper\n",
        case.name, c.iterations, c.table
    );
    let paper = |text: Option<String>| text.map_or(String::new(), |text| format!("({text})"));
    let _ = writeln!(
        t,
        "  {:<12} {:>9} {:>9} {:>9} {:>7} {:>8}   computing, %: P1 to P4",
        "", "time, s", "", "faster, %", "uneven", "changes"
    );
    for a in &c.arms {
        let parts: Vec<String> = (a.computing_percent.iter().enumerate())
            .map(|(i, here)| {
                let there = a.paper_computing_percent.and_then(|p| p.get(i).copied());
                format!("{here:6.2} {:>8}", paper(there.map(|p| format!("{p:.2}"))))
            })
            .collect();
        let _ = writeln!(
            t,
            "  {:<12} {:>9.2} {:>9} {:>9.1} {:>7} {:>8}   {}",
            a.arm,
            a.time_s,
            paper(a.paper_time_s.map(|s| format!("{s:.2}"))),
            a.faster_percent,
            a.uneven_iterations,
            a.changes,
            parts.join("  ").trim_end()
        );
    }
    let by_share = c.arms.iter().map(|a| format!("{} {:.2}", a.arm, a.by_share_time_s));
    let _ = writeln!(
        t,
        "  with one speed by decode share for all programs, (2 s)^{} and {} of a core whose other rank waits, s: {}",
        c.by_share.exponent,
        c.by_share.alone_share,
        by_share.collect::<Vec<_>>().join(", ")
    );
    t
}

/// A recording, shown to a policy.
fn replayed(args: &SimulateArgs, path: &Path, json: Option<&Path>) -> anyhow::Result<End> {
    if json.is_some_and(|json| output::same_file(path, json)) {
        anyhow::bail!(
            "--json would be written over the recording {}; name another file",
            path.display()
        );
    }
    let name = args.policy.as_deref().unwrap_or(USUAL_POLICY);
    let Some(policy) = by_name(name) else {
        anyhow::bail!("--replay: {name} sees no recordings; name a policy of `evenly run`");
    };
    let recording =
        Recording::read(path).with_context(|| format!("--replay {}", path.display()))?;
    warn_if_unfinished(path, &recording);
    let r = replay(&recording.events, policy);
    let mut text = format!(
        "{name} on {}: {} points, {} left out\n  moves that were made       {:>8}\n  moves that it would make   \
         {:>8}\n  points with the same moves {:>8}\n",
        path.display(),
        r.points,
        r.left_out,
        r.moved,
        r.would_move,
        r.same
    );
    if policy.gives_weights() || r.weighed > 0 {
        text += &format!(
            "  points with weights        {:>8}\n  points it would weigh at   {:>8}\n",
            r.weighed, r.would_weigh
        );
    }
    if let Some(lacks) = r.lacks {
        text += &format!("  not in recordings: {lacks}\n");
    }
    let mut value = serde_json::to_value(&r)?;
    value["schema"] = "evenly.replay/1".into();
    value["policy"] = name.into();
    value["recording"] = path.display().to_string().into();
    output::say(&text, json, || value)
}

/// The text of a file, or so much of it that it is found to be too long.
fn read(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let most = evenly_sim::MOST_BYTES as u64 + 1;
    std::fs::File::open(path)?.take(most).read_to_string(&mut text)?;
    Ok(text)
}

/// Runs a scenario file; what is given beside it counts more than what stands in it. The report, and whether the
/// guard looked.
fn scenario(args: &SimulateArgs, path: &Path) -> anyhow::Result<(Report, bool)> {
    let name = || format!("cannot read the scenario {}", path.display());
    let text = read(path).with_context(name)?;
    let mut d = evenly_sim::parse_seeded(&text, args.seed).with_context(name)?;
    if let Some(period) = args.period {
        d.options.period.period = evenly_engine::Period::Fixed(period);
    }
    d.options.jitter |= args.jitter;
    d.options.guard.enabled = (d.options.guard.enabled || args.guard) && !args.no_guard;
    let dear = dear_cost(&d.scenario, &d.options);
    let _patience = Patience::new(dear.clone());
    let report = match args.policy.as_deref().or(d.policy.as_deref()).unwrap_or(USUAL_POLICY) {
        IDEAL => Err(RunError::Ideal { found: String::from("a scenario") }.into()),
        name => policy(name).and_then(|p| Ok(run(&d.scenario, p, &d.options, d.expected)?)),
    };
    let report = report.with_context(|| format!("scenario {}", path.display()))?;
    let report = Report { scenario: path.display().to_string(), ..report };
    if let Some(dear) = dear {
        tell(&format!("evenly: scenario {}: {dear}", path.display()));
    }
    Ok((report, d.options.guard.enabled))
}

fn simple(args: &SimulateArgs) -> anyhow::Result<Simple> {
    // The parser has seen to it that they are there.
    let given = "without --sweep and --scenario, --threads, --cpus and --phase must be given";
    let (threads, cpus) = (args.threads.context(given)?, args.cpus.context(given)?);
    Ok(Simple {
        shape: Shape::new(threads, cpus)?,
        phase: args.phase.context(given)?,
        period: args.period.unwrap_or(Nanos::from_millis(100)),
        phases: args.phases.unwrap_or(1),
        barrier: args.barrier.unwrap_or(BarrierArg::Block).into(),
        jitter: args.jitter,
        seed: args.seed.unwrap_or(1),
    })
}

fn text(r: &Report) -> String {
    let mut t = String::new();
    let threads = if r.threads == 1 { "thread" } else { "threads" };
    let cpus = if r.cpus == 1 { "CPU" } else { "CPUs" };
    // Writing to a string cannot fail.
    let _ = writeln!(
        t,
        "{}: {} {threads} on {} {cpus}, balanced every {}",
        r.policy,
        r.threads,
        r.cpus,
        Nanos::from_secs_f64(r.period_s),
    );
    let _ = writeln!(t, "  makespan          {:>12.6} s", r.makespan_s);
    let _ = writeln!(t, "  static            {:>12.6} s", r.static_s);
    let bound = r.bound_speedup.map_or(String::new(), |b| format!("   (at most {b:.4})"));
    let _ = writeln!(t, "  relative speedup  {:>12.4}{bound}", r.relative_speedup);
    let _ = writeln!(t, "  balancing points  {:>12}", r.balancing_points);
    let _ = writeln!(t, "  migrations        {:>12}", r.migrations);
    let _ = writeln!(t, "  readings          {:>12}", r.readings);
    t
}

fn sweep(args: &SimulateArgs) -> anyhow::Result<End> {
    let out = args.out.as_deref().map(output::of_this_process);
    if let Some(path) = &out {
        output::check("--out", path)?;
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, stop.clone()).context("cannot receive signals")?;
    }
    let runs = Sweep::default();
    let bar = if std::io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{bar:24} {pos}/{len} runs (eta {eta})")?;
        ProgressBar::new(runs.runs()).with_style(style)
    } else {
        ProgressBar::hidden()
    };
    let began = Instant::now();
    let rows = runs.run(|done| bar.inc(done), &stop);
    bar.finish_and_clear();
    let rows = rows.context("interrupted; nothing was written")?;
    let words = summary(&rows, began.elapsed().as_secs_f64());
    if out.as_deref().is_some_and(output::is_stdout) {
        tell_lines(&words);
    } else {
        output::write(Path::new("-"), words.as_bytes())?;
    }
    if let Some(path) = &out {
        let mut file = output::create(path)?;
        csv(&rows, &mut file)
            .and_then(|()| file.flush())
            .with_context(|| output::cannot_write(path))?;
    }
    Ok(End::Status(0))
}

fn csv(rows: &[SweepRow], out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "threads,cpus,period_over_phase,makespan_over_phase,relative_speedup,migrations,balancing_points"
    )?;
    for r in rows {
        writeln!(
            out,
            "{},{},{}.{:02},{:.9},{:.9},{},{}",
            r.threads,
            r.cpus,
            r.period / 100,
            r.period % 100,
            r.makespan,
            r.relative_speedup,
            r.migrations,
            r.points
        )?;
    }
    Ok(())
}

fn summary(rows: &[SweepRow], seconds: f64) -> String {
    let gain = rows.iter().filter(|r| r.relative_speedup > 1.001).count();
    let most = rows.iter().max_by(|a, b| a.relative_speedup.total_cmp(&b.relative_speedup));
    let mut t = format!(
        "{} runs of the idealised algorithm in {seconds:.1} s; balancing gains something in {:.1} %\n",
        rows.len(),
        100.0 * gain as f64 / rows.len().max(1) as f64
    );
    if let Some(r) = most {
        let _ = writeln!(
            t,
            "greatest relative speedup {:.4}: {} threads on {} CPUs, a period of {} phases",
            r.relative_speedup,
            r.threads,
            r.cpus,
            f64::from(r.period) / 100.0
        );
    }
    let rounded = rows.iter().filter(|r| !r.exact).count();
    if rounded > 0 {
        let _ = writeln!(t, "{rounded} runs had to be rounded, by less than a nanosecond");
    }
    t
}

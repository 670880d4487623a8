//! The summary at the head of the page: a verdict, a small table, and who got how much.
//!
//! What evenly said of the run at its end (`evenly.run/1`, in the end record) comes first. A
//! recording that was cut short has no such record, and one that was made by another program may
//! have another: then the same figures are taken from the recorded points, and that is said.
//!
//! Invariant: whatever stands in the end record, a figure of another kind than expected is left
//! out.

use crate::reader::Recording;
use crate::timeline::Cast;
use askama::Template;
use evenly_engine::{ADVANCE, Event, spread_of_stays};
use evenly_model::efficiency::Efficiency;
use evenly_model::metrics::Spread;
use evenly_model::{CpuSet, DomainId, Nanos, counted};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Threads and domains listed one by one.
const MAX_ROWS: usize = 64;

/// One thread: times in seconds.
#[derive(Debug, Clone, PartialEq, Default)]
struct Thread {
    label: String,
    ran: f64,
    waited: f64,
    blocked: f64,
    /// The part of `ran` that it reported as spinning.
    spun: Option<f64>,
    present: f64,
    moves: u64,
}

/// What a recording says of one domain.
#[derive(Debug, Clone, PartialEq, Default)]
struct Domain {
    id: u64,
    cpus: String,
    threads: u64,
    moves: u64,
    stood_down: bool,
}

/// What pausing has shown: the rate of progress with balancing over that without.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Effect {
    pairs: u64,
    ratio: f64,
    ci95: Option<(f64, f64)>,
}

/// What is shown; None and 0 where it is not known.
#[derive(Debug, Clone, PartialEq, Default)]
struct Figures {
    verdict: Option<String>,
    cpus: Option<CpuSet>,
    quota: Option<f64>,
    all_threads: u64,
    domains: Vec<Domain>,
    threads: Vec<Thread>,
    policy: Option<String>,
    /// Aimed at, and the mean, in seconds.
    aimed: Option<f64>,
    period: Option<f64>,
    seconds: Option<f64>,
    balanced: Option<f64>,
    points: u64,
    moves: u64,
    failed: u64,
    /// CPU time of all balancing, in seconds, and of how much time that is a part.
    overhead: Option<(f64, f64)>,
    budget: Option<f64>,
    /// Time of a balancing point, in seconds.
    point_cost: Option<f64>,
    measured: Option<Effect>,
    gain: Option<f64>,
    /// Where the threads' time went.
    efficiency: Option<Efficiency>,
}

/// The summary as the page has it.
#[derive(Debug, Template)]
#[template(path = "summary.html")]
pub(crate) struct Summary {
    verdict: String,
    rows: Vec<(&'static str, String)>,
    /// There is no account by evenly itself.
    from_points: bool,
    domains: Listed<Domain>,
    /// Those that got least first.
    threads: Listed<Thread>,
}

/// The rows of a table, and in words how many it does not have.
#[derive(Debug)]
struct Listed<T> {
    rows: Vec<T>,
    left_out: Option<String>,
}

impl<T> Listed<T> {
    fn of(mut rows: Vec<T>, what: &str) -> Self {
        let more = rows.len().saturating_sub(MAX_ROWS) as u64;
        rows.truncate(MAX_ROWS);
        Self { rows, left_out: (more > 0).then(|| counted(more, &format!("more {what}"))) }
    }
}

impl Thread {
    /// So many seconds as a part of its time.
    fn percent(&self, seconds: f64) -> f64 {
        if self.present > 0.0 { 100.0 * seconds / self.present } else { 0.0 }
    }

    fn stay(&self) -> Nanos {
        Nanos::from_secs_f64(self.present)
    }
}

impl Summary {
    /// The summary of this recording.
    pub(crate) fn of(recording: &Recording, cast: &Cast) -> Self {
        let reported = recording.end.as_ref().and_then(|end| Figures::of_report(&end.summary));
        let from_points = reported.is_none();
        let figures = reported.unwrap_or_else(|| Figures::of_points(recording, cast));
        let rows = figures.rows();
        let verdict = figures.verdict.clone().unwrap_or_else(|| figures.own_verdict());
        let Figures { domains, mut threads, .. } = figures;
        threads.sort_by(|a, b| a.percent(a.ran).total_cmp(&b.percent(b.ran)));
        Self {
            verdict,
            rows,
            from_points,
            domains: Listed::of(domains, "domain"),
            threads: Listed::of(threads, "thread"),
        }
    }
}

impl Figures {
    /// What evenly said of the run. None where this is no such account.
    fn of_report(run: &Value) -> Option<Self> {
        let verdict = run["verdict"].as_str()?.to_owned();
        let list = |name: &str| run[name].as_array().map(Vec::as_slice).unwrap_or_default();
        let seconds = |v: &Value| v.as_f64().filter(|s| *s >= 0.0);
        let count = |v: &Value| v.as_u64().unwrap_or(0);
        let domains: Vec<Domain> = list("domains")
            .iter()
            .map(|d| Domain {
                id: count(&d["id"]),
                cpus: d["cpus"].as_str().unwrap_or_default().to_owned(),
                threads: count(&d["threads"]),
                moves: count(&d["migrations"]),
                stood_down: d["stood_down"] == true,
            })
            .collect();
        let threads: Vec<Thread> = list("threads")
            .iter()
            .map(|t| Thread {
                label: format!(
                    "{} ({})",
                    t["name"].as_str().unwrap_or("?"),
                    count(&t["id"]["tid"])
                ),
                ran: seconds(&t["ran_s"]).unwrap_or(0.0),
                waited: seconds(&t["waited_s"]).unwrap_or(0.0),
                blocked: seconds(&t["blocked_s"]).unwrap_or(0.0),
                spun: seconds(&t["spun_s"]),
                present: seconds(&t["present_s"]).unwrap_or(0.0),
                moves: count(&t["migrations"]),
            })
            .collect();
        let total = |name: &str| {
            list("domains").iter().map(|d| count(&d[name])).fold(0, u64::saturating_add)
        };
        let points = total("points");
        let cpu: f64 = list("domains").iter().filter_map(|d| seconds(&d["cpu_s"])).sum();
        let balanced = seconds(&run["balanced_s"]);
        let measured = run["measured"]["ratio"].as_f64().map(|ratio| {
            let ci = |i: usize| run["measured"]["ci95"][i].as_f64();
            Effect { pairs: count(&run["measured"]["pairs"]), ratio, ci95: ci(0).zip(ci(1)) }
        });
        Some(Self {
            verdict: Some(verdict),
            cpus: run["cpus"].as_str().and_then(|list| list.parse().ok()),
            quota: seconds(&run["quota_cpus"]),
            all_threads: count(&run["all_threads"]),
            policy: run["policy"].as_str().map(str::to_owned),
            aimed: seconds(&run["period_ms"]).map(|ms| ms / 1e3),
            period: balanced
                .filter(|_| points > 0)
                .map(|s| s * domains.len() as f64 / points as f64),
            seconds: seconds(&run["seconds"]),
            balanced,
            points,
            moves: total("migrations"),
            failed: total("failed"),
            overhead: seconds(&run["overhead_s"])
                .zip(seconds(&run["seconds"]).filter(|s| *s > 0.0)),
            budget: seconds(&run["budget"]),
            point_cost: (points > 0).then(|| cpu / points as f64),
            measured,
            gain: run["gain"].as_f64(),
            efficiency: Efficiency::deserialize(&run["efficiency"]).ok(),
            domains,
            threads,
        })
    }

    /// The same from the recorded points.
    fn of_points(recording: &Recording, cast: &Cast) -> Self {
        let mut threads: Vec<Thread> =
            cast.actors.iter().map(|a| Thread { label: a.label(), ..Thread::default() }).collect();
        let mut domains: BTreeMap<DomainId, (CpuSet, u64, u64)> = BTreeMap::new();
        let (mut points, mut failed) = (0_u64, 0);
        let (mut elapsed, mut cost, mut end) = (0.0, 0.0, Nanos::ZERO);
        for event in &recording.events {
            match event {
                Event::Domain { domain, cpus, .. } => {
                    domains.entry(*domain).or_default().0 = cpus.clone();
                }
                Event::Point(p) => {
                    let d = domains.entry(p.domain).or_default();
                    d.1 = d.1.max(p.threads.len() as u64);
                    points += 1;
                    elapsed += p.elapsed.as_secs_f64();
                    cost += p.cost.as_secs_f64();
                    end = end.max(p.at);
                    for t in &p.threads {
                        let Some(i) = cast.index_of(t.id) else { continue };
                        threads[i].ran += t.ran.as_secs_f64();
                        threads[i].waited += t.waited.as_secs_f64();
                        threads[i].blocked += t.blocked.as_secs_f64();
                        if let Some(spun) = t.spun() {
                            *threads[i].spun.get_or_insert_default() += spun.as_secs_f64();
                        }
                        threads[i].present += p.elapsed.as_secs_f64();
                    }
                    for m in &p.moves {
                        if m.error.is_some() {
                            failed += 1;
                            continue;
                        }
                        d.2 += 1;
                        if let Some(i) = cast.index_of(m.id) {
                            threads[i].moves += 1;
                        }
                    }
                }
                Event::Joined { .. } | Event::Left { .. } | Event::Note { .. } => {}
            }
        }
        let cpus = domains.values().fold(CpuSet::new(), |all, (cpus, ..)| all.or(cpus));
        let domains: Vec<Domain> = domains
            .into_iter()
            .map(|(id, (cpus, threads, moves))| Domain {
                id: u64::from(id.0),
                cpus: cpus.to_string(),
                threads,
                moves,
                stood_down: false,
            })
            .collect();
        let each = |total: f64| (points > 0).then(|| total / points as f64);
        Self {
            cpus: (!cpus.is_empty()).then_some(cpus),
            policy: recording.header.settings.get("policy").cloned(),
            period: each(elapsed),
            balanced: (points > 0).then(|| end.as_secs_f64()),
            points,
            moves: domains.iter().map(|d| d.moves).sum(),
            failed,
            point_cost: each(cost),
            domains,
            threads,
            ..Self::default()
        }
    }

    /// The part of a CPU that each thread received, as in the report of `evenly run`.
    fn spread(&self) -> Option<Spread> {
        spread_of_stays(self.threads.iter().map(|t| (t.ran - t.spun.unwrap_or(0.0), t.present)))
    }

    /// In place of evenly's verdict.
    fn own_verdict(&self) -> String {
        match self.spread() {
            None => String::from("No thread was balanced."),
            Some(l) => format!(
                "{} at {}: the thread that got most received {:.1} % more CPU time than the mean.",
                counted(self.moves, "move"),
                counted(self.points, "recorded point"),
                100.0 * l.imbalance().abs()
            ),
        }
    }

    /// The table, in the order in which one wants to know.
    fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        let mut row = |name, value: String| rows.push((name, value));
        let balanced = self.domains.iter().map(|d| d.threads).fold(0, u64::saturating_add);
        let balanced = balanced.min(self.threads.len() as u64);
        row(
            "Threads",
            match self.all_threads > balanced {
                true => format!("{balanced} balanced, of {}", self.all_threads),
                false => format!("{balanced} balanced"),
            },
        );
        if let Some(cpus) = &self.cpus {
            let quota = self.quota.map(|q| format!("; quota {q:.2} CPUs")).unwrap_or_default();
            row("CPUs", format!("{} ({cpus}){quota}", cpus.len()));
        }
        row("Domains", self.domains.len().to_string());
        if let Some(policy) = &self.policy {
            row("Policy", policy.clone());
        }
        let span = |s: f64| Nanos::from_secs_f64(s).to_string();
        let period = match (self.period, self.aimed) {
            (Some(mean), Some(aimed)) => Some(format!("{} (aimed at {})", span(mean), span(aimed))),
            (Some(one), None) | (None, Some(one)) => Some(span(one)),
            (None, None) => None,
        };
        if let Some(period) = period {
            row("Period", period);
        }
        match (self.seconds, self.balanced) {
            (Some(all), Some(part)) => {
                row("Time", format!("{all:.2} s, {part:.2} s of it balanced"));
            }
            (None, Some(part)) => row("Time", format!("{} balanced", span(part))),
            _ => {}
        }
        row("Balancing points", self.points.to_string());
        let mut moves = self.moves.to_string();
        if let Some(s) = self.balanced.filter(|s| *s > 0.0 && self.moves > 0) {
            let _ = write!(moves, " ({:.1} per second)", self.moves as f64 / s);
        }
        if self.failed > 0 {
            let _ = write!(moves, ", {} could not be made", self.failed);
        }
        row("Migrations", moves);
        if let Some(l) = self.spread() {
            row(
                "Progress",
                format!(
                    "min {:.1} %, mean {:.1} %, max {:.1} % of a CPU per thread",
                    100.0 * l.min,
                    100.0 * l.mean,
                    100.0 * l.max
                ),
            );
            row("Imbalance", format!("{:.1} % (max / mean - 1)", 100.0 * l.imbalance().abs()));
        }
        let total = |f: fn(&Thread) -> f64| self.threads.iter().map(f).sum::<f64>();
        let all = total(|t| t.ran + t.waited + t.blocked);
        if all > 0.0 {
            let part = |s: f64| 100.0 * s / all;
            let mut waiting = format!(
                "{:.1} % of their time for a CPU, {:.1} % blocked",
                part(total(|t| t.waited)),
                part(total(|t| t.blocked))
            );
            if let Some(spun) = self.threads.iter().map(|t| t.spun).sum::<Option<f64>>() {
                let _ = write!(waiting, ", {:.1} % spinning", part(spun));
            }
            row("Waiting", waiting);
        }
        if let Some(efficiency) = &self.efficiency {
            row("Efficiency", efficiency.words());
        }
        let cost = self.point_cost.map(|s| format!("{} a point", span(s)));
        let overhead = self.overhead.map(|(cpu, of)| {
            let budget = self.budget.map(|b| {
                let advance = rounded(ADVANCE.as_secs_f64());
                format!(
                    " (budget: {} %; the first {advance} s are always allowed)",
                    rounded(100.0 * b)
                )
            });
            let percent = 100.0 * cpu / of;
            format!("{percent:.2} % of one CPU, {cpu:.3} s{}", budget.unwrap_or_default())
        });
        let overhead: Vec<String> = [overhead, cost].into_iter().flatten().collect();
        if !overhead.is_empty() {
            row("Overhead", overhead.join(", "));
        }
        if let Some(Effect { pairs, ratio, ci95 }) = self.measured {
            let ci = ci95.map(|(low, high)| format!(", 95 % interval {low:.2} to {high:.2}"));
            row(
                "Measured effect",
                format!(
                    "{ratio:.2} times the progress of the stretches in which evenly paused ({}{})",
                    counted(pairs, "pause"),
                    ci.unwrap_or_default()
                ),
            );
        }
        if let Some(gain) = self.gain {
            row(
                "Estimated gain",
                format!("at most {gain:.2}, against threads left where they are"),
            );
        }
        rows
    }
}

/// Without zeros behind the point.
fn rounded(v: f64) -> String {
    format!("{v:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;
    use serde_json::json;

    fn made(summary: &Value) -> String {
        let bytes = testdata::bytes(&testdata::header(), &testdata::events(5, true), summary);
        shown(&bytes)
    }

    fn shown(bytes: &[u8]) -> String {
        let recording = Recording::parse(bytes).unwrap();
        Summary::of(&recording, &Cast::of(&recording)).render().unwrap()
    }

    /// The value beside a name.
    fn value<'a>(page: &'a str, name: &str) -> Option<&'a str> {
        page.split(&format!("<th>{name}</th><td>")).nth(1)?.split("</td>").next()
    }

    /// As evenly writes it, of two domains.
    fn run() -> Value {
        let thread = |tid: u32, ran: f64| {
            json!({"id": {"tid": tid, "start": 9}, "pid": 1, "name": "w<1>", "ran_s": ran,
                "waited_s": 3.0, "blocked_s": 1.0, "present_s": 10.0, "migrations": 4})
        };
        let domain = |id: u32, cpus: &str, threads: u32| {
            json!({"id": id, "cpus": cpus, "threads": threads, "points": 500, "migrations": 6,
                "failed": 1, "cpu_s": 0.01, "stood_down": id == 1})
        };
        json!({
            "schema": "evenly.run/1", "verdict": "Kept level & <fine>.", "policy": "hybrid",
            "cpus": "0-3", "quota_cpus": 2.5, "all_threads": 5, "period_ms": 20.0, "seconds": 12.5,
            "balanced_s": 10.0, "overhead_s": 0.05, "budget": 0.01,
            "domains": [domain(0, "0-1", 2), domain(1, "2-3", 1)],
            "threads": [thread(11, 6.0), thread(12, 5.0), thread(13, 7.0)],
            "measured": {"pairs": 3, "ratio": 1.26, "ci95": [1.1, 1.4]}, "gain": 1.3,
            "efficiency": {"run_queue_share": 0.25, "basis": "cpu_time", "factors": {"parallel": 0.375,
                "load_balance": 0.75, "communication": 0.5, "run_queue": 0.5, "synchronisation": 1.0}},
        })
    }

    #[test]
    fn what_evenly_said_becomes_a_verdict_and_a_table() {
        let page = made(&run());
        assert!(
            page.contains(r#"<p class="verdict">Kept level &amp; &lt;fine&gt;.</p>"#),
            "{page}"
        );
        for (name, is) in [
            ("Threads", "3 balanced, of 5"),
            ("CPUs", "4 (0-3); quota 2.50 CPUs"),
            ("Domains", "2"),
            ("Policy", "hybrid"),
            ("Period", "20.0 ms (aimed at 20.0 ms)"),
            ("Time", "12.50 s, 10.00 s of it balanced"),
            ("Balancing points", "1000"),
            ("Migrations", "12 (1.2 per second), 2 could not be made"),
            ("Progress", "min 50.0 %, mean 60.0 %, max 70.0 % of a CPU per thread"),
            ("Imbalance", "16.7 % (max / mean - 1)"),
            ("Waiting", "30.0 % of their time for a CPU, 10.0 % blocked"),
            (
                "Efficiency",
                "37.5 % parallel = 75.0 load balance x 50.0 communication (50.0 run queue x 100.0 \
                 synchronisation); 25.0 % of the threads&#39; time in run queues",
            ),
            (
                "Overhead",
                "0.40 % of one CPU, 0.050 s (budget: 1 %; the first 0.1 s are always allowed), 20.0 us a point",
            ),
            (
                "Measured effect",
                "1.26 times the progress of the stretches in which evenly paused (3 pauses, 95 % \
                 interval 1.10 to 1.40)",
            ),
            ("Estimated gain", "at most 1.30, against threads left where they are"),
        ] {
            assert_eq!(value(&page, name), Some(is));
        }
        // The one that got least stands first, and the domains have a table.
        let of = |words: &str| page.find(words).unwrap_or_else(|| panic!("{words}: {page}"));
        assert!(of("w&lt;1&gt; (12)") < of("w&lt;1&gt; (11)"), "{page}");
        assert!(of("<td>2-3</td>") < of("stood down"));
        assert!(!page.contains("recorded points"));
    }

    #[test]
    fn without_it_the_points_give_the_same_table() {
        // Five points of 10 ms: one of three threads runs alone, in turns; a move fails.
        let page = made(&Value::Null);
        for (name, is) in [
            ("Threads", Some("3 balanced")),
            ("CPUs", Some("2 (0-1)")),
            ("Domains", Some("1")),
            ("Policy", Some("juggle")),
            ("Period", Some("10.0 ms")),
            ("Time", Some("50.0 ms balanced")),
            ("Balancing points", Some("5")),
            ("Migrations", Some("9 (180.0 per second), 1 could not be made")),
            ("Progress", Some("min 60.0 %, mean 66.7 %, max 70.0 % of a CPU per thread")),
            ("Imbalance", Some("5.0 % (max / mean - 1)")),
            ("Waiting", Some("33.3 % of their time for a CPU, 0.0 % blocked")),
            ("Overhead", Some("12.0 us a point")),
            ("Measured effect", None),
            ("Estimated gain", None),
        ] {
            assert_eq!(value(&page, name), is, "{name}");
        }
        assert!(page.contains("9 moves at 5 recorded points: the thread that got most"), "{page}");
        assert!(page.contains("not in the recording"), "{page}");
        // So does one that was cut before its end record.
        let mut bytes = testdata::small_bytes();
        let end = bytes[..bytes.len() - 1].iter().rposition(|&b| b == b'\n').unwrap();
        bytes.truncate(end + 1);
        assert_eq!(shown(&bytes), page);
    }

    #[test]
    fn whatever_the_end_record_says_is_a_summary_or_none() {
        let bad = "</td><script>alert(1)</script>\u{0}\"'";
        let mut hostile = run();
        for key in ["verdict", "policy", "cpus"] {
            hostile[key] = json!(bad);
        }
        hostile["domains"][0]["cpus"] = json!(bad);
        hostile["threads"][0]["name"] = json!(bad);
        let page = made(&hostile);
        assert!(!page.contains("<script") && !page.contains('\0'));
        assert!(page.contains("&lt;script&gt;alert(1)") && value(&page, "CPUs").is_none());
        // Wrong kinds, and numbers that are no times.
        let mut odd = run();
        for key in ["quota_cpus", "all_threads", "seconds", "overhead_s", "budget", "measured"] {
            odd[key] = json!([{"a": bad}]);
        }
        odd["balanced_s"] = json!(-1e300);
        odd["threads"][1] = json!(7);
        odd["domains"][0]["points"] = json!(u64::MAX);
        odd["domains"][1]["migrations"] = json!(u64::MAX);
        let page = made(&odd);
        assert!(!page.contains("<script") && page.contains("Kept level"));
        for none in [json!(7), json!("x"), json!([]), json!({"verdict": 3})] {
            assert!(made(&none).contains("not in the recording"), "{none}");
        }
    }

    #[test]
    fn many_threads_are_shown_in_part() {
        let mut all = run();
        let one = all["threads"][0].clone();
        all["threads"] = json!(vec![one; 5_000]);
        let page = made(&all);
        assert!(page.len() < 30_000, "{}", page.len());
        assert!(page.contains("4936 more threads: evenly report --json has all."));
    }

    #[test]
    fn nothing_recorded_is_said() {
        let page = shown(b"{\"schema\":\"evenly.record/1\",\"evenly\":\"0\"}\n");
        assert!(page.contains("No thread was balanced."), "{page}");
        assert_eq!(value(&page, "Threads"), Some("0 balanced"));
    }
}

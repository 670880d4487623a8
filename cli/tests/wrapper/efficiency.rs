//! Efficiencies of programs whose values are known: from how their work is divided, and, for what depends on
//! who else uses the CPUs, from what they measured of themselves.
//!
//! No program here is compared with a clock of another machine or hour. Parts are compared, of CPU time or of
//! time, so that it does not matter how fast CPUs are; and beside neighbours a program that has half of a CPU
//! says so itself. By what evenly has missed of a program at both ends its figures may differ from the program's
//! own: programs run until that is little, and it is allowed for.

use crate::schema::valid;
use crate::support::{Tool, json, of_kind, recorded, text, wait_until, workload};
use evenly_linux::affinity;
use evenly_model::{CpuSet, Tid};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

/// Factors may be off by this much, and by what evenly has missed: a CPU is another's for a moment between two
/// readings.
const OFF: f64 = 0.03;
/// The most of a program that evenly may miss, as a part of its time or of its CPU time.
const MISSED: f64 = 0.2;

/// What a program measured of itself.
#[derive(Debug)]
struct Own {
    /// Of each thread the CPU time in which it computed.
    computed_s: Vec<f64>,
    /// For how long each of them wanted a CPU, where it knows.
    wanted_s: Option<Vec<f64>>,
    /// From its start to its end.
    elapsed_s: f64,
}

impl Own {
    /// Of spmd: threads sleep where they do not compute, as far as they do not want a CPU in vain.
    fn of_spmd(said: &str) -> Self {
        let said: Value = serde_json::from_str(said.trim()).unwrap();
        let all = said["cpu_s"].as_array().unwrap();
        Self {
            computed_s: all.iter().map(|s| s.as_f64().unwrap()).collect(),
            wanted_s: None,
            elapsed_s: said["makespan_s"].as_f64().unwrap(),
        }
    }

    fn most(of: &[f64]) -> f64 {
        of.iter().copied().fold(0.0, f64::max)
    }

    fn mean(of: &[f64]) -> f64 {
        of.iter().sum::<f64>() / of.len() as f64
    }

    /// The part that evenly has missed, of the time or of the CPU time of a thread.
    fn missed(&self, report: &Value) -> f64 {
        let sorted = |mut of: Vec<f64>| {
            of.sort_by(f64::total_cmp);
            of.reverse();
            of
        };
        let threads = report["threads"].as_array().unwrap();
        let seen = sorted(threads.iter().map(|t| t["ran_s"].as_f64().unwrap()).collect());
        let own = sorted(self.computed_s.clone());
        let parts = own.iter().zip(seen).map(|(own, seen)| (own - seen).abs() / own);
        let seconds = report["seconds"].as_f64().unwrap();
        let most = parts.fold((self.elapsed_s - seconds).abs() / self.elapsed_s, f64::max);
        assert!(most < MISSED, "{most} was missed: {report:#}, {self:?}");
        most
    }

    /// The factors that follow, by name. Who has most to do is known to want a CPU all of the time where the
    /// program does not say otherwise.
    fn factors(&self) -> [(&'static str, f64); 5] {
        let most = Self::most(&self.computed_s);
        let wanted = self.wanted_s.as_ref().map_or(self.elapsed_s, |of| Self::most(of));
        let load_balance = Self::mean(&self.computed_s) / most;
        [
            ("load_balance", load_balance),
            ("communication", most / self.elapsed_s),
            ("run_queue", most / wanted),
            ("synchronisation", wanted / self.elapsed_s),
            ("parallel", load_balance * most / self.elapsed_s),
        ]
    }
}

fn part(factors: &Value, name: &str) -> f64 {
    factors[name].as_f64().unwrap_or(f64::NAN)
}

#[track_caller]
fn near(what: &str, found: f64, known: f64, missed: f64) {
    // Not where it is no number.
    assert!(
        (found - known).abs() <= OFF + missed,
        "{what}: {found} is not {known}, {missed} missed"
    );
}

/// Factors as they follow from what the program measured.
#[track_caller]
fn as_measured(report: &Value, own: &Own, missed: f64) {
    let f = &report["efficiency"]["factors"];
    for (name, known) in own.factors() {
        near(name, part(f, name), known, missed);
    }
    let product = part(f, "load_balance") * part(f, "run_queue") * part(f, "synchronisation");
    assert!((part(f, "parallel") - product).abs() < 1e-9, "{f:#}");
    let communication = part(f, "run_queue") * part(f, "synchronisation");
    assert!((part(f, "communication") - communication).abs() < 1e-9, "{f:#}");
}

/// Of so many parts of what is seen of a program one may have been missed.
const PARTS: u64 = 8;

/// What threads had run when they were first recorded, by their numbers in the recording. It is what was missed of
/// them, or more.
fn had_run(events: &[Value]) -> BTreeMap<u64, u64> {
    let of = |e: &Value| {
        let (thread, tid) = (e["thread"].as_u64()?, e["tid"].as_u64()?);
        let times = fs::read_to_string(format!("/proc/{tid}/schedstat")).ok()?;
        Some((thread, times.split(' ').next()?.parse().ok()?))
    };
    events.iter().filter(|e| e["event"] == "thread").filter_map(of).collect()
}

/// Whether two threads of a program that starts now have been observed for many times as long as they were not, in
/// time and in CPU time, by the events that are recorded.
fn is_long_enough() -> impl FnMut(&[Value]) -> bool {
    let (begun, mut missed) = (Instant::now(), None);
    move |events| {
        if of_kind(events, "joined") < 2 {
            return false;
        }
        let (time, cpu) =
            missed.get_or_insert_with(|| (begun.elapsed().as_nanos() as u64, had_run(events)));
        let points: Vec<&Value> = events.iter().filter(|e| e["event"] == "point").collect();
        let observed = points.last().map_or(0, |point| point["at"].as_u64().unwrap());
        let ran = |thread: u64| -> u64 {
            let rows = points.iter().flat_map(|point| point["threads"].as_array().unwrap());
            rows.filter(|row| row[0] == thread).map(|row| row[3].as_u64().unwrap()).sum()
        };
        observed > PARTS * *time && cpu.iter().all(|(thread, had)| ran(*thread) > PARTS * had)
    }
}

/// spmd with two threads that do these parts of the work: evenly's report, and what the program measured.
fn spmd(before: &[&str], imbalance: &str, barrier: &[&str]) -> (Value, Own) {
    let tool = Tool::new();
    let program = workload("spmd");
    // Who waits for so short a phase is not taken to have gone quiet, also where the other has a tenth of a CPU.
    let work = ["--threads", "2", "--phases", "1000000", "--iters", "16000000"];
    let uneven = ["--imbalance", imbalance, "--barrier"];
    let command = [before, &[program.as_str()], &work, &uneven, barrier].concat();
    let options = "-q --policy observe --threads 2";
    let (output, report) = tool.json_until(options, &command, is_long_enough());
    valid(&report);
    (report, Own::of_spmd(&text(&output.stdout)))
}

/// With a CPU each, who has a third of the other's work waits for two thirds of the time: load balance is
/// (1/3 + 1) / 2, however fast the CPUs are and whoever else uses them, and nothing else is lost but what
/// others take.
#[test]
fn uneven_work_on_two_cpus() {
    let whole = affinity::get(Tid(0)).unwrap();
    if whole.len() < 2 {
        return evenly_testing::skip("two-cpus", "fewer than two CPUs");
    }
    let (report, own) = spmd(&[], "0.5,1.5", &["block", "--pin", "static"]);
    let missed = own.missed(&report);
    as_measured(&report, &own, missed);
    let f = &report["efficiency"]["factors"];
    near("load balance", part(f, "load_balance"), 2.0 / 3.0, missed);
}

/// On one CPU the light one takes half of it until it is done, so that the heavy one has 3/4 of the CPU as
/// long as it wants it, which is always. The same of what is left of the CPU beside others.
#[test]
fn uneven_work_on_one_cpu() {
    let cpu: CpuSet = affinity::get(Tid(0)).unwrap().iter().take(1).collect();
    let (report, own) = spmd(&["taskset", "-c", &cpu.to_string()], "0.5,1.5", &["block"]);
    let missed = own.missed(&report);
    as_measured(&report, &own, missed);
    let f = &report["efficiency"]["factors"];
    near("load balance", part(f, "load_balance"), 2.0 / 3.0, missed);
    let had = own.computed_s.iter().sum::<f64>() / own.elapsed_s;
    near("run queue", part(f, "run_queue"), 0.75 * had, missed);
    near("parallel", part(f, "parallel"), 0.5 * had, missed);
}

/// Two equal threads on one CPU want it all of the time and have half of it each; of others they lose more.
fn waits_half_of_the_time_on_one_cpu(barrier: &str) {
    let cpu: CpuSet = affinity::get(Tid(0)).unwrap().iter().take(1).collect();
    let (report, own) = spmd(&["taskset", "-c", &cpu.to_string()], "1,1", &[barrier]);
    let (missed, e) = (own.missed(&report), &report["efficiency"]);
    let had = own.computed_s.iter().sum::<f64>() / own.elapsed_s;
    near(barrier, e["run_queue_share"].as_f64().unwrap(), 1.0 - 0.5 * had, missed);
    // With barriers that block a thread sleeps for the last turn of the other, which may be too little
    // to tell how threads wait.
    if !e["factors"].is_null() {
        near("run queue", part(&e["factors"], "run_queue"), 0.5 * had, missed);
    }
}

#[test]
fn equal_work_that_blocks_on_one_cpu_waits_half_of_the_time() {
    waits_half_of_the_time_on_one_cpu("block");
}

#[test]
fn equal_work_that_spins_on_one_cpu_waits_half_of_the_time() {
    waits_half_of_the_time_on_one_cpu("spin");
}

/// A thread that spins at a barrier looks as if it computed, so nothing is claimed.
#[test]
fn of_threads_that_spin_nothing_is_claimed() {
    let (report, _) = spmd(&[], "0.5,1.5", &["spin"]);
    let efficiency = &report["efficiency"];
    assert!(efficiency["factors"].is_null() && efficiency["basis"] == "cpu_time", "{efficiency:#}");
}

/// Two programs that wait for nobody: one sleeps for 20 ms and computes for as long, one for 30 and 10, in turns.
/// What they wanted a CPU for is the rest of the time, also where they got it late. Beside nobody the
/// first wants it for half of the time, and load balance is 3/4.
#[test]
fn who_sleeps_loses_it_by_synchronisation() {
    let noise = workload("noise");
    let turns = [(20, 20), (30, 10)];
    let tool = Tool::new();
    let file = |sleep: u32| tool.path(&format!("asleep-{sleep}"));
    let one = |(sleep, busy): (u32, u32)| {
        let turns = format!("--sleep-ms {sleep},{sleep} --busy-ms {busy},{busy}");
        format!(
            "{noise} {turns} --duration-s 300 --output {} & all=\"$all $!\"",
            file(sleep).display()
        )
    };
    // They write what they measured when they are told to end.
    let script = format!(
        "{}; {}; trap 'trap - TERM; kill $all; wait; kill $$' TERM; wait",
        one(turns[0]),
        one(turns[1])
    );
    let (record, told) = (tool.path("record"), tool.path("report.json"));
    let (to, json_to) = (record.display(), told.display());
    let options = format!("-q --policy observe --threads 2 --record {to} --json {json_to}");
    let mut is_enough = is_long_enough();
    let run = tool.start(&options, &["sh", "-c", script.as_str()]);
    wait_until("they were observed for long", || is_enough(&recorded(&record)));
    run.end();
    let report = json(&told);
    valid(&report);
    let said = turns.map(|(sleep, _)| json(&file(sleep)));
    let all = |name: &str| said.iter().map(|s| s[name].as_f64().unwrap()).collect::<Vec<_>>();
    let slept =
        turns.iter().zip(all("interval_count")).map(|((sleep, _), n)| n * f64::from(*sleep) / 1e3);
    let own = Own {
        computed_s: all("cpu_s"),
        wanted_s: Some(all("elapsed_s").iter().zip(slept).map(|(t, s)| t - s).collect()),
        elapsed_s: Own::most(&all("elapsed_s")),
    };
    as_measured(&report, &own, own.missed(&report));
}

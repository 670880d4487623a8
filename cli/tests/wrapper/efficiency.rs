//! Efficiencies of programs whose values are known: from how their work is divided, and, for what depends on
//! who else uses the CPUs, from what they measured of themselves.
//!
//! No program here is compared with a clock of another machine or hour. Parts are compared, of CPU time or of
//! time, so that it does not matter how fast CPUs are; and beside neighbours a program that has half of a CPU
//! says so itself. What evenly misses of a program at both ends does not grow with it: one that was too short
//! for that is run again, longer.

use crate::schema::valid;
use crate::support::{Tool, json, text, workload};
use evenly_linux::affinity;
use evenly_model::{CpuSet, Tid};
use serde_json::Value;

/// Factors may be off by this much: a thread is met a moment after it began, and CPUs change their speed.
const OFF: f64 = 0.04;
/// How many times as long a program is made when it was too short.
const LONGER: [u32; 3] = [1, 4, 16];

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

/// Whether it is near; not where it is no number.
fn near(what: &str, found: f64, known: f64) -> Result<(), String> {
    if (found - known).abs() <= OFF {
        return Ok(());
    }
    Err(format!("{what}: {found} is not {known}"))
}

/// Factors as they follow from what the program measured.
fn as_measured(efficiency: &Value, own: &Own) -> Result<(), String> {
    let f = &efficiency["factors"];
    for (name, known) in own.factors() {
        near(name, part(f, name), known).map_err(|e| format!("{e}: {efficiency:#}, {own:?}"))?;
    }
    let product = part(f, "load_balance") * part(f, "run_queue") * part(f, "synchronisation");
    assert!((part(f, "parallel") - product).abs() < 1e-9, "{f:#}");
    let communication = part(f, "run_queue") * part(f, "synchronisation");
    assert!((part(f, "communication") - communication).abs() < 1e-9, "{f:#}");
    Ok(())
}

/// Runs a program that is so many times as long, until what is found is right.
#[track_caller]
fn found_right(mut run: impl FnMut(u32) -> Result<(), String>) {
    let mut wrong = String::new();
    for longer in LONGER {
        match run(longer) {
            Ok(()) => return,
            Err(found) => {
                eprintln!("{longer} times as long: {found}");
                wrong = found;
            }
        }
    }
    panic!("{wrong}");
}

/// spmd with two threads that do these parts of the work: what evenly found, and what the program measured.
fn spmd(before: &[&str], imbalance: &str, barrier: &[&str], longer: u32) -> (Value, Own) {
    let tool = Tool::new();
    let (program, phases) = (workload("spmd"), (8 * longer).to_string());
    let work = ["--threads", "2", "--phases", &phases, "--iters", "40000000"];
    let uneven = ["--imbalance", imbalance, "--barrier"];
    let command = [before, &[program.as_str()], &work, &uneven, barrier].concat();
    let (output, report) = tool.json("-q --policy observe --threads 2", &command);
    valid(&report);
    (report["efficiency"].clone(), Own::of_spmd(&text(&output.stdout)))
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
    found_right(|longer| {
        let (efficiency, own) = spmd(&[], "0.5,1.5", &["block", "--pin", "static"], longer);
        as_measured(&efficiency, &own)?;
        near("load balance", part(&efficiency["factors"], "load_balance"), 2.0 / 3.0)
    });
}

/// On one CPU the light one takes half of it until it is done, so that the heavy one has 3/4 of the CPU as
/// long as it wants it, which is always. The same of what is left of the CPU beside others.
#[test]
fn uneven_work_on_one_cpu() {
    let cpu: CpuSet = affinity::get(Tid(0)).unwrap().iter().take(1).collect();
    found_right(|longer| {
        let (efficiency, own) =
            spmd(&["taskset", "-c", &cpu.to_string()], "0.5,1.5", &["block"], longer);
        as_measured(&efficiency, &own)?;
        let f = &efficiency["factors"];
        near("load balance", part(f, "load_balance"), 2.0 / 3.0)?;
        let had = own.computed_s.iter().sum::<f64>() / own.elapsed_s;
        near("run queue", part(f, "run_queue"), 0.75 * had)?;
        near("parallel", part(f, "parallel"), 0.5 * had)
    });
}

/// Two equal threads on one CPU want it all of the time and have half of it each; of others they lose more.
#[test]
fn equal_work_on_one_cpu_waits_half_of_the_time() {
    let cpu: CpuSet = affinity::get(Tid(0)).unwrap().iter().take(1).collect();
    for barrier in ["block", "spin"] {
        found_right(|longer| {
            let (e, own) = spmd(&["taskset", "-c", &cpu.to_string()], "1,1", &[barrier], longer);
            let share = e["run_queue_share"].as_f64().unwrap();
            let had = own.computed_s.iter().sum::<f64>() / own.elapsed_s;
            near(barrier, share, 1.0 - 0.5 * had)
                .map_err(|error| format!("{error}: {e:#}, {own:?}"))?;
            // With barriers that block a thread sleeps for the last turn of the other, which may be too little
            // to tell how threads wait.
            match e["factors"].is_null() {
                true => Ok(()),
                false => near("run queue", part(&e["factors"], "run_queue"), 0.5 * had),
            }
        });
    }
}

/// A thread that spins at a barrier looks as if it computed, so nothing is claimed.
#[test]
fn of_threads_that_spin_nothing_is_claimed() {
    let (efficiency, _) = spmd(&[], "0.5,1.5", &["spin"], 1);
    assert!(efficiency["factors"].is_null() && efficiency["basis"] == "cpu_time", "{efficiency:#}");
}

/// Two programs that wait for nobody: one sleeps for 20 ms and computes for as long, one for 30 and 10, in turns.
/// What they wanted a CPU for is the rest of the time, also where they got it late. Beside nobody the
/// first wants it for half of the time, and load balance is 3/4.
#[test]
fn who_sleeps_loses_it_by_synchronisation() {
    let noise = workload("noise");
    let turns = [(20, 20), (30, 10)];
    found_right(|longer| {
        let tool = Tool::new();
        let file = |sleep: u32| tool.path(&format!("asleep-{sleep}"));
        let one = |(sleep, busy): (u32, u32)| {
            let turns = format!("--sleep-ms {sleep},{sleep} --busy-ms {busy},{busy}");
            format!(
                "{noise} {turns} --duration-s {} --output {}",
                2 * longer,
                file(sleep).display()
            )
        };
        let script = format!("{} & {}; wait", one(turns[0]), one(turns[1]));
        let (_, report) =
            tool.json("-q --policy observe --threads 2", &["sh", "-c", script.as_str()]);
        valid(&report);
        let said = turns.map(|(sleep, _)| json(&file(sleep)));
        let all = |name: &str| said.iter().map(|s| s[name].as_f64().unwrap()).collect::<Vec<_>>();
        let slept = turns
            .iter()
            .zip(all("interval_count"))
            .map(|((sleep, _), n)| n * f64::from(*sleep) / 1e3);
        let own = Own {
            computed_s: all("cpu_s"),
            wanted_s: Some(all("elapsed_s").iter().zip(slept).map(|(t, s)| t - s).collect()),
            elapsed_s: Own::most(&all("elapsed_s")),
        };
        as_measured(&report["efficiency"], &own)
    });
}

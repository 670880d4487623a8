//! What each figure must show, from its CSV: the statements of the papers where our code shows them,
//! and where it does not, what it shows instead (docs/figures.md says which is which).

use crate::figure;
use evenly_figures::{select, sweep_map};
use evenly_sim::Sweep;
use evenly_theory::upper_bound;
use std::sync::atomic::AtomicBool;

/// A CSV as it is written, read back.
struct Csv {
    rows: Vec<Vec<String>>,
}

impl Csv {
    fn of(id: &str, panel: &str) -> Self {
        Self::read(&figure(id).panel(panel).unwrap().csv())
    }

    fn read(text: &str) -> Self {
        let rows = text.lines().skip(1).map(|l| l.split(',').map(str::to_owned).collect());
        Self { rows: rows.collect() }
    }

    /// x and y of a series.
    fn series(&self, name: &str) -> Vec<(f64, f64)> {
        let of = self.rows.iter().filter(|r| r[0] == name);
        let points: Vec<_> =
            of.map(|r| (r[1].parse().unwrap_or(f64::NAN), r[2].parse().unwrap())).collect();
        assert!(!points.is_empty(), "no series {name}");
        points
    }

    fn at(&self, name: &str, x: f64) -> f64 {
        let near = |p: &&(f64, f64)| (p.0 - x).abs() < 1e-6;
        let series = self.series(name);
        series.iter().find(near).unwrap_or_else(|| panic!("{name} has nothing at {x}")).1
    }

    /// Values of a series over names.
    fn values(&self, name: &str) -> Vec<f64> {
        self.series(name).iter().map(|p| p.1).collect()
    }

    fn names(&self) -> Vec<String> {
        let mut all: Vec<String> = self.rows.iter().map(|r| r[0].clone()).collect();
        all.dedup();
        all
    }
}

fn between(points: &[(f64, f64)], from: f64, to: f64) -> Vec<f64> {
    points.iter().filter(|p| (from..=to).contains(&p.0)).map(|p| p.1).collect()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[track_caller]
fn near(found: f64, expected: f64, part: f64) {
    assert!((found / expected - 1.0).abs() <= part, "{found}, and {expected} is expected");
}

/// All progress at m/n, and are equal after every third period; Lemma 1: else half a period apart.
#[test]
fn juggle_1_threads_progress_at_the_same_rate() {
    let csv = Csv::of("juggle-1", "juggle-1");
    let threads = ["T0", "T1", "T2"].map(|t| csv.series(t));
    for (k, &(at, _)) in threads[0].iter().enumerate() {
        let progress: Vec<f64> = threads.iter().map(|t| t[k].1).collect();
        let apart = most(&progress) - least(&progress);
        assert!((apart - if k % 3 == 0 { 0.0 } else { 0.5 }).abs() < 1e-6, "{apart} at {at}");
        assert!((mean(&progress) - at * 2.0 / 3.0).abs() < 1e-6);
    }
    // In every period some thread has a CPU to itself, and under static always the same.
    let lanes = Csv::of("juggle-1", "juggle-1-lanes");
    let alone = |run: &str| -> Vec<String> {
        let row = |r: &&Vec<String>| r[0] == run && r[4] == "1";
        lanes.rows.iter().filter(row).map(|r| r[2].clone()).collect()
    };
    let (mut juggled, mut fixed) = (alone("juggle"), alone("static"));
    assert_eq!((juggled.len(), fixed.len()), (9, 9));
    juggled.sort_unstable();
    juggled.dedup();
    fixed.dedup();
    assert_eq!((juggled.len(), fixed.len()), (3, 1));
}

#[test]
fn juggle_6_simulation_is_theory() {
    let csv = Csv::of("juggle-6", "juggle-6");
    for n in 8..=16 {
        let n = f64::from(n);
        near(csv.at("juggle", n), csv.at("proactive; Eq. 14", n), 0.001);
        near(csv.at("juggle in two domains", n), csv.at("two domains; Eq. 14", n), 0.001);
        near(csv.at("the kernel alone", n), csv.at("reactive; Eq. 21", n), 0.001);
        near(csv.at("reactive (policy)", n), csv.at("reactive; Eq. 21", n), 0.001);
        // Neither a domain nor a reaction can do more than balancing all CPUs.
        assert!(csv.at("juggle", n) >= csv.at("juggle in two domains", n) - 1e-3);
        assert!(csv.at("juggle", n) >= csv.at("the kernel alone", n) - 1e-3);
    }
    // 9 on 8: 2 / (9/8), 2 / (5/4), and 2 / 1.5 since one round is enough.
    near(csv.at("juggle", 9.0), 16.0 / 9.0, 0.001);
    near(csv.at("juggle in two domains", 9.0), 1.6, 0.001);
    near(csv.at("the kernel alone", 9.0), 2.0 / 1.5, 0.001);
    assert_eq!((csv.at("juggle", 8.0), csv.at("juggle", 16.0)), (1.0, 1.0));
}

#[test]
fn juggle_7_the_advantage_falls_with_n_over_m() {
    let csv = Csv::of("juggle-7", "juggle-7");
    for m in [2, 4, 8, 16, 32] {
        let (line, ideal) = (format!("m = {m}"), format!("m = {m} (ideal)"));
        assert!(csv.values(&line).is_sorted_by(|a, b| a > b), "m = {m}");
        for f in 1..=10_u32 {
            let x = f64::from(f);
            near(csv.at(&line, x), f64::from((f + 1) * m) / f64::from(f * m + 1), 1e-5);
            near(csv.at(&ideal, x), csv.at(&line, x), 0.005);
        }
    }
}

#[test]
fn juggle_8_juggle_follows_the_bound() {
    let csv = Csv::of("juggle-8", "juggle-8");
    for (n, m) in [(8, 7), (9, 8), (12, 8), (15, 8)] {
        let name = |kind: &str| format!("{n} on {m} {kind}");
        let juggle = csv.series(&name("juggle"));
        let mut below = Vec::new();
        for &(x, y) in &juggle {
            let bound = csv.at(&name("bound"), x);
            assert!(y <= bound + 1e-5, "{n} on {m} at {x}: {y} above {bound}");
            below.push(bound / y - 1.0);
        }
        assert!(mean(&below) < 0.04, "{n} on {m}: {}", mean(&below));
        // lambda = 100 ms: nearly all that is possible; beyond e ceil(n/m): nothing.
        near(juggle[0].1, upper_bound(n, m), 0.002);
        assert!(most(&between(&juggle, 2.0, 3.0)) < 1.000_1);
    }
}

/// By how much the bound is above `juggle`, on average for lambda up to e ceil(n/m).
fn slack(csv: &Csv, shapes: [(u32, u32); 4]) -> f64 {
    let mut all = Vec::new();
    for (n, m) in shapes {
        let within = csv.series(&format!("{n} on {m} juggle"));
        let within = within.into_iter().filter(|p| p.0 < f64::from(n.div_ceil(m)));
        all.extend(within.map(|(x, y)| csv.at(&format!("{n} on {m} bound"), x) / y - 1.0));
    }
    mean(&all)
}

#[test]
fn juggle_9_the_bound_is_loose_and_juggle_follows_the_ideal() {
    let csv = Csv::of("juggle-9", "juggle-9");
    let shapes = [(17, 8), (20, 8), (25, 8), (31, 8)];
    for (n, m) in shapes {
        let name = |kind: &str| format!("{n} on {m} {kind}");
        for (x, y) in csv.series(&name("juggle")) {
            let (bound, ideal) = (csv.at(&name("bound"), x), csv.at(&name("ideal"), x));
            assert!(y <= bound + 1e-5 && ideal <= bound + 1e-5, "{n} on {m} at {x}");
            near(y, ideal, 0.01);
        }
    }
    let one = slack(&Csv::of("juggle-8", "juggle-8"), [(8, 7), (9, 8), (12, 8), (15, 8)]);
    let many = slack(&csv, shapes);
    assert!(many > 2.0 * one, "{many} and {one}");
}

/// A part of the million runs, so that it does not take long: lambda = e / 10, and 2 e and more.
#[test]
fn juggle_10_gains_are_where_theory_has_them() {
    let sweep = |threads, periods| {
        let sweep = Sweep { threads, periods };
        sweep.run(|_| {}, &AtomicBool::new(false)).unwrap()
    };
    let rows = sweep(3..=64, 10..=10);
    for r in &rows {
        let limit = upper_bound(r.threads, r.cpus);
        assert!((1.0 - 1e-9..=limit + 1e-9).contains(&r.relative_speedup), "{r:?}");
    }
    let column = |column: usize| {
        let map = sweep_map(&rows);
        map.fields.iter().find(|f| f.column == column && f.row == 0).unwrap().mean
    };
    assert!(column(0) > 1.75 && column(9) < 1.1 && column(10) > 1.2 && column(70) < 1.15);
    let best = sweep(64..=64, 4..=4);
    let best = best.iter().find(|r| r.cpus == 63).unwrap().relative_speedup;
    near(best, 126.0 / 64.0, 0.005);
    let late = sweep(3..=64, 460..=460);
    for r in late.iter().filter(|r| r.threads < 2 * r.cpus) {
        assert!((r.relative_speedup - 1.0).abs() < 1e-9, "{r:?}");
    }
}

#[test]
fn juggle_11_dips_without_jitter_and_none_with_it() {
    let csv = Csv::of("juggle-11", "juggle-11");
    let (plain, jitter) = ("juggle (no jitter)", "juggle (jitter of 10 %)");
    for x in [2.0, 4.0, 6.0, 8.0] {
        assert!((csv.at(plain, x) - 1.0).abs() < 1e-3, "{x}: {}", csv.at(plain, x));
        assert!(csv.at(jitter, x) > 1.02, "{x}: {}", csv.at(jitter, x));
    }
    // Between the dips there is a gain without jitter as well.
    for x in [3.0, 5.0, 7.0] {
        assert!(csv.at(plain, x) > 1.03, "{x}: {}", csv.at(plain, x));
    }
    let theory = csv.series("Eq. 16 and 17");
    for ((x, y), (_, expected)) in csv.series(jitter).into_iter().zip(theory) {
        let part = if x <= 0.1 {
            0.02
        } else if x < 2.0 {
            0.2
        } else {
            0.06
        };
        near(y, expected, part);
    }
    // For a lambda far below e all that is possible, whatever the phases.
    near(csv.at(plain, 0.01), upper_bound(8, 7), 0.005);
}

#[test]
fn juggle_13_speedup_is_a_matter_of_lambda_over_e() {
    let csv = Csv::of("juggle-13", "juggle-13");
    let names = csv.names();
    let (spread, machines) = names[1..].split_last().unwrap();
    assert_eq!(machines.len(), 3);
    for machine in machines {
        let points = csv.series(machine);
        for &(x, y) in &points {
            near(y, csv.at("Eq. 16 and 17", x), if x <= 0.1 { 0.02 } else { 0.2 });
        }
        // From 1.5 to nothing.
        near(points[0].1, 1.5, 0.002);
        assert!(points.last().unwrap().1 < 1.05, "{machine}");
    }
    // Where two of six hyper-threads have a core alone and are 35 % faster: at most (4 + 2 x 1.35) / 6 of 1.5, 1.675.
    let spread = csv.series(spread);
    assert!((1.58..1.675).contains(&spread[0].1), "{spread:?}");
    let both = spread.iter().zip(csv.series(&machines[2]));
    assert!(both.filter(|(s, _)| s.0 <= 0.02).all(|(s, full)| s.1 > full.1), "{spread:?}");
}

#[test]
fn juggle_15_juggle_helps_beside_neighbours_and_the_kernel_hardly() {
    let csv = Csv::of("juggle-15", "juggle-15");
    for n in [8, 9] {
        let juggle = csv.series(&format!("{n} on 8 (juggle)"));
        let kernel = csv.series(&format!("{n} on 8 (the kernel alone)"));
        assert!(least(&between(&juggle, 1.0, 60.0)) > 1.4, "{n}");
        assert!(least(&between(&juggle, 0.1, 60.0)) > 1.25, "{n}");
        // The paper has it slower than static; here it is no slower, and far behind juggle.
        assert!(most(&between(&kernel, 0.1, 10.0)) < 1.05, "{n}");
        assert!(least(&between(&kernel, 0.1, 60.0)) > 0.99, "{n}");
        assert!(juggle.iter().zip(&kernel).all(|(j, k)| j.1 > k.1 + 0.2), "{n}");
    }
}

#[test]
fn juggle_16_three_migrations_a_period_for_8_on_7() {
    let csv = Csv::of("juggle-16", "juggle-16");
    let rate = Csv::of("juggle-16", "juggle-16-rate");
    let eight = csv.series("8 on 7");
    near(eight[0].1, 3.0, 0.02);
    assert!(most(&csv.values("8 on 7")) <= 4.0);
    // 28 in a second in the paper.
    near(rate.series("8 on 7")[0].1, 28.0, 0.1);
    assert_eq!(most(&csv.values("8 on 8")), 0.0);
    for name in rate.names().iter().filter(|n| *n != "8 on 8") {
        near(rate.series(name)[0].1 / rate.at(name, 0.1), 30.0, 0.15);
    }
}

#[test]
fn juggle_17_short_periods_cost_what_their_points_cost() {
    let csv = Csv::of("juggle-17", "juggle-17");
    let limit = upper_bound(8, 7);
    let (costly, free) = (csv.series("a point costs 100 us"), csv.series("points are free"));
    assert!(least(&between(&costly, 10.0, 100.0)) > 0.98 * limit);
    assert!(between(&costly, 0.0, 20.0).is_sorted_by(|a, b| a < b));
    // 100 us of 500 us: a fifth.
    near(csv.at("a point costs 100 us", 0.5) / csv.at("points are free", 0.5), 0.8, 0.02);
    assert!(least(&between(&free, 0.0, 100.0)) > 0.98 * limit);
    // Below the resolution of readings juggle does nothing, and what is left is reactive: 4/3.
    let coarse = csv.series("free; times booked every 10 ms");
    assert!(least(&between(&coarse, 10.0, 100.0)) > 0.98 * limit);
    for y in between(&coarse, 0.0, 9.0) {
        near(y, 4.0 / 3.0, 0.01);
    }
}

#[test]
fn juggle_17_phases_too_short_for_periods_are_balanced_by_one_move_in_each() {
    let csv = Csv::of("juggle-17-phases", "juggle-17-phases");
    let limit = upper_bound(3, 2);
    for name in ["static", "juggle", "hybrid", "phase"] {
        assert!(csv.series(name).iter().all(|p| p.1 < 1.01 * limit), "{name}");
    }
    assert!(csv.at("juggle", 1.0) < 1.02 && csv.at("phase", 1.0) > 0.9 * limit);
    // Where it gains nothing it costs little.
    for (x, y) in csv.series("static") {
        assert!(csv.at("phase", x) > 0.97 * y, "{x}");
    }
    for x in [0.2, 0.5, 1.0, 2.0, 5.0] {
        near(csv.at("phase", x), csv.at("measured phase", x), 0.08);
    }
}

#[test]
fn oslb_2_the_payoff_is_as_stated() {
    let csv = Csv::of("oslb-2", "oslb-2");
    let tried = csv.series("tried");
    for (n, least) in [(10.0, 0.73), (100.0, 0.90), (500.0, 0.95)] {
        let found = csv.at("tried", n);
        assert!((least - 0.01..least + 0.02).contains(&found), "{n}: {found}");
    }
    assert!(csv.at("theory", 10.0) > 0.73);
    let theory = csv.values("theory");
    assert!(theory.is_sorted() && most(&theory) < 1.0 && tried.len() > 8);
}

#[test]
fn oslb_4_short_intervals_are_a_loss_and_long_ones_are_not() {
    let csv = Csv::of("oslb-4", "oslb-4");
    let (yielding, spinning) = ("threads yield at barriers", "threads spin");
    for name in [yielding, spinning] {
        assert!(csv.at(name, 2.0) < 0.95, "{name}");
        assert!(csv.at(name, 100.0) > 1.3, "{name}");
        assert!(csv.at(name, 6.0) < 0.9 * csv.at(name, 100.0), "{name}");
        near(csv.at(name, 100.0), csv.at(name, 150.0), 0.06);
    }
    // Near the asymptote from 20 ms on, as the paper has it, only where threads yield.
    assert!(csv.at(yielding, 20.0) > 0.95 * csv.at(yielding, 150.0));
    assert!(csv.at(spinning, 20.0) < 0.85 * csv.at(spinning, 150.0));
}

#[test]
fn oslb_5_6_jitter_is_nothing_and_a_process_is_something() {
    let csv = Csv::of("oslb-5-6", "oslb-5-6");
    for wait in ["block", "spin"] {
        // Not the 8 % of the paper.
        let jitter = csv.values(&format!("jitter: threads {wait}"));
        assert!(jitter.iter().all(|v| (0.99..1.005).contains(v)), "{jitter:?}");
        let beside = csv.values(&format!("a process: threads {wait}"));
        assert_eq!(beside.len(), 9);
        assert!(mean(&beside) > 1.04 && beside[8] > 1.25, "{beside:?}");
    }
    // Pinned threads that block in short phases lose.
    assert!(csv.values("a process: threads block")[..4].iter().all(|v| *v < 0.95));
}

#[test]
fn oslb_7_8_many_programs_gain_where_the_kernel_does_not_balance() {
    let csv = Csv::of("oslb-7-8", "oslb-7");
    let [pulls, balances, oslb] =
        ["kernel that pulls", "kernel that balances", "secretary"].map(|n| csv.values(n));
    assert_eq!(oslb.len(), 10);
    let spread = |v: &[f64]| most(v) / least(v);
    // The paper: 1.40 times as fast, max/min 1.07 and 1.03.
    assert!((1.25..1.6).contains(&(mean(&pulls) / mean(&oslb))));
    assert!(spread(&pulls) > 1.07 && spread(&oslb) < 1.03);
    // And this is where the gain comes from: where numbers are equal there is none.
    assert!((0.9..1.0).contains(&(mean(&balances) / mean(&oslb))));
    let each = Csv::of("oslb-7-8", "oslb-8");
    assert!(each.values("over a kernel that pulls").iter().all(|v| *v > 1.1));
    assert!(each.values("over one that balances").iter().all(|v| *v < 1.01));
}

/// The table of a figure of NucoLB: a number of a balancer on a machine.
fn cell(id: &str, machine: &str, balancer: &str, column: &str) -> f64 {
    let table = &figure(id).tables[0];
    let at = table.columns.iter().position(|c| c.0 == column).unwrap();
    let of = |r: &&Vec<String>| r[0] == machine && r[1] == balancer;
    table.rows.iter().find(of).unwrap()[at].parse().unwrap()
}

/// Table IV within a tenth, ScotchLB left out; but for TreeMatch, which here looks at loads.
#[test]
fn nuco_table_4_is_near_the_papers() {
    let of = |machine, balancer, column| cell("nuco-table-4", machine, balancer, column);
    for machine in ["NUMA32", "NUMA48"] {
        for balancer in ["baseline", "nuco", "greedy-comm"] {
            let paper = of(machine, balancer, "paper_total_s");
            near(of(machine, balancer, "total_s"), paper, 0.12);
        }
        let total = |balancer| of(machine, balancer, "total_s");
        assert!(total("nuco") < total("greedy-comm") && total("treematch") < total("baseline"));
        // It moves few, and evens out loads.
        assert!(of(machine, "nuco", "migrations") < 30.0);
        assert!(of(machine, "greedy-comm", "migrations") > 120.0);
        assert!(of(machine, "nuco", "idle_percent") < 8.0);
        assert!(of(machine, "nuco+", "iteration_ms") < of(machine, "nuco", "iteration_ms"));
    }
}

/// Much communication: a mapper that copies all tasks loses, one that weighs messages gains.
#[test]
fn nuco_3_migrations_cost_and_distance_counts() {
    let of = |machine, balancer, column| cell("nuco-3", machine, balancer, column);
    for machine in ["NUMA32", "NUMA48"] {
        let speedup = |balancer| of(machine, balancer, "speedup");
        assert!(speedup("greedy") < 0.97 && speedup("greedy-comm") < 0.97);
        assert!(speedup("nuco") > 1.0 && speedup("nuco-auto") > speedup("nuco"));
        assert!(speedup("nuco+") > 1.04, "{}", speedup("nuco+"));
    }
    assert!(of("NUMA32", "nuco+", "speedup") > of("NUMA32", "nuco-auto", "speedup"));
    near(of("NUMA32", "greedy-comm", "balancing_ms"), 700.0, 0.05);
}

/// Table V, where as many tasks are moved: by size over bandwidth alone.
#[test]
fn nuco_4_copying_takes_what_the_paper_measured() {
    let of = |machine, balancer, column| cell("nuco-4", machine, balancer, column);
    near(of("NUMA32", "greedy-comm", "balancing_ms"), 1_170.0, 0.1);
    near(of("NUMA48", "greedy-comm", "balancing_ms"), 840.0, 0.1);
    near(of("NUMA48", "baseline", "iteration_ms"), 1_840.0, 0.1);
    near(of("NUMA48", "nuco", "iteration_ms"), 780.0, 0.12);
    for machine in ["NUMA32", "NUMA48"] {
        let ours = ["nuco+", "nuco", "greedy", "greedy-comm", "treematch", "round-robin", "random"];
        let totals = ours.map(|b| of(machine, b, "total_s"));
        assert!(totals[1..].iter().all(|t| *t > totals[0]), "{totals:?}");
    }
}

/// The cluster: the baseline of Table VI; and no balancer gains there what the paper's does.
#[test]
fn nuco_6_loads_of_the_cluster_are_evened_out() {
    let of = |machine, balancer, column| cell("nuco-6", machine, balancer, column);
    near(of("20xNUMA4", "baseline", "iteration_ms"), 115.0, 0.01);
    near(of("20xNUMA4", "nuco", "balancing_ms"), 104.0, 0.15);
    for balancer in ["nuco+", "nuco", "nuco-auto", "greedy-comm", "treematch"] {
        let speedup = of("20xNUMA4", balancer, "speedup");
        assert!((1.05..1.15).contains(&speedup), "{balancer}: {speedup}");
    }
    for machine in ["NUMA32", "NUMA48"] {
        assert!((1.0..1.1).contains(&of(machine, "nuco", "speedup")), "{machine}");
        assert!(of(machine, "nuco", "idle_percent") < 1.5, "{machine}");
    }
}

/// With `nuco+` and its usual options the whole takes no longer than with any other, on every machine, the
/// time of its search included.
#[test]
fn nuco_plus_is_the_fastest_of_all() {
    for (id, machines) in [
        ("nuco-table-4", &["NUMA32", "NUMA48"][..]),
        ("nuco-3", &["NUMA32", "NUMA48"]),
        ("nuco-4", &["NUMA32", "NUMA48"]),
        ("nuco-6", &["NUMA32", "NUMA48", "20xNUMA4"]),
    ] {
        let table = &figure(id).tables[0];
        for machine in machines {
            let ours = cell(id, machine, "nuco+", "total_s");
            let others = table.rows.iter().filter(|r| r[0] == *machine && r[1] != "nuco+");
            for name in evenly_figures::others::PROGRAMS {
                assert!(others.clone().any(|r| r[1] == name && !r[2].is_empty()), "{name}");
            }
            for other in others.filter(|r| !r[2].is_empty()) {
                let theirs: f64 = other[2].parse().unwrap();
                let said = format!("{id}, {machine}: {} {theirs} s, nuco+ {ours} s", other[1]);
                assert!(ours <= theirs, "{said}");
            }
        }
    }
}

/// Four cores that are unevenly busy, and equally busy after the first call.
#[test]
fn nuco_2_cores_are_equally_busy_after_the_call() {
    let csv = Csv::of("nuco-2", "nuco-2");
    let names = csv.names();
    assert_eq!(names, ["core 4", "core 5", "core 6", "core 7"]);
    // Two points an iteration: 10 before the call, 15 after it.
    let part = |range: std::ops::Range<usize>| -> Vec<f64> {
        names.iter().map(|n| mean(&csv.values(n)[range.clone()])).collect()
    };
    let (before, after) = (part(0..20), part(20..50));
    assert!(most(&before) - least(&before) > 10.0, "{before:?}");
    assert!(least(&after) > 85.0 && least(&after) > least(&before), "{after:?}");
    let idle = |row: usize| figure("nuco-2").tables[0].rows[row][3].parse::<f64>().unwrap();
    let idle = |rows: std::ops::Range<usize>| rows.map(idle).sum::<f64>();
    assert!(idle(4..8) < idle(0..4));
}

/// Cores that receive nothing receive their part after the call.
#[test]
fn nuco_5_messages_are_shared_out() {
    let of = |panel, name| Csv::of("nuco-5", panel).values(name);
    let before = of("nuco-5-before", "the first 10 iterations");
    let after = of("nuco-5-after", "the other 40");
    assert_eq!((before.len(), after.len()), (48, 48));
    let none = |v: &[f64]| v.iter().filter(|m| **m == 0.0).count();
    assert!(none(&before) > 0 && none(&after) == 0, "{after:?}");
    // Messages between tasks on one core are not among them: of 1,536 an iteration.
    let all: f64 = before.iter().sum();
    assert!(all < 15_360.0 && all > 7_000.0, "{all}");
}

#[test]
fn loops_4_dividing_by_powers_pays_where_processors_are_loaded() {
    const LB: &str = "LB (rp-steal)";
    for kernel in ["matrix", "jacobi", "sor", "shallow", "water", "gauss"] {
        let csv = Csv::of("loops-4", &format!("loops-4-{kernel}"));
        assert!((0.95..1.05).contains(&csv.at(LB, 0.0)), "{kernel}");
        for loaded in [1.0, 2.0, 4.0, 8.0] {
            let (plain, lb) = (csv.at("plain", loaded), csv.at(LB, loaded));
            assert!(
                lb < 0.93 * plain && lb >= csv.at("in proportion to powers", loaded),
                "{kernel} {loaded}"
            );
        }
        assert!(csv.at("plain", 8.0) > 1.9, "{kernel}");
    }
    // What is short beside a turn gains less where more are loaded.
    for kernel in ["jacobi", "sor", "gauss"] {
        let csv = Csv::of("loops-4", &format!("loops-4-{kernel}"));
        let part = |loaded| csv.at(LB, loaded) / csv.at("plain", loaded);
        assert!(part(1.0) < part(8.0) && csv.at("plain", 8.0) > 2.2, "{kernel}");
    }
}

/// Would catch: a scheduler that cooperates and does not help, one that is paid for by the others, and one that is a free lunch.
#[test]
fn loops_4_cooperative_scheduling_leaves_the_time_constant_and_is_fair() {
    let at = |kernel: &str, arm: &str, loaded: f64| {
        Csv::of("loops-4", &format!("loops-4-{kernel}")).at(arm, loaded)
    };
    for kernel in ["jacobi", "sor"] {
        for loaded in [1.0, 2.0, 4.0, 8.0] {
            near(at(kernel, "SCH", loaded), at(kernel, "SCH", 1.0), 0.03);
            assert!(at(kernel, "LB+SCH", loaded) < 0.76 * at(kernel, "plain", loaded), "{kernel}");
        }
        assert!(at(kernel, "SCH", 8.0) < 0.9 * at(kernel, "plain", 8.0), "{kernel}");
        assert!(at(kernel, "LB+SCH", 8.0) < 0.9 * at(kernel, "LB (rp-steal)", 8.0), "{kernel}");
    }
    let table = figure("loops-4").tables.iter().find(|t| t.name == "loops-4-table").unwrap();
    for (column, _) in table.columns.iter().enumerate().filter(|(_, c)| c.0.ends_with("_others")) {
        for row in table.rows.iter().filter(|row| row[1] != "0") {
            let take: f64 = row[column].parse().unwrap();
            assert!((1.7..=2.02).contains(&take), "{row:?}");
        }
    }
    for kernel in ["matrix", "jacobi", "sor", "shallow", "water", "gauss"] {
        for loaded in [1.0, 2.0, 4.0, 8.0] {
            let limit = at(kernel, "in proportion to powers", loaded);
            assert!(at(kernel, "LB+SCH", loaded) >= limit, "{kernel} {loaded}");
        }
    }
}

#[test]
fn loops_5_loaded_processors_are_worth_half() {
    let csv = Csv::of("loops-5", "loops-5");
    let [eight, loaded, twelve] =
        ["8 dedicated", "16 with 8 loaded (LB+SCH)", "12 dedicated"].map(|name| {
            csv.rows
                .iter()
                .filter(|r| r[0] == name)
                .map(|r| r[2].parse().unwrap())
                .collect::<Vec<f64>>()
        });
    assert_eq!((eight.len(), loaded.len(), twelve.len()), (6, 6, 6));
    for kernel in 0..6 {
        near(eight[kernel], 1.0, 1e-9);
        assert!(twelve[kernel] < 0.75 && loaded[kernel] < 0.9, "{kernel}");
    }
    // Matrix, and Water, whose processors wait for locks of each other.
    for (kernel, within) in [(0, 0.1), (4, 0.15)] {
        near(loaded[kernel], twelve[kernel], within);
    }
}

/// Every figure has a test of its own here.
#[test]
fn no_figure_is_left_out() {
    let source = include_str!("claims.rs");
    for f in select(None, &[]).unwrap() {
        let name = format!("fn {}_", f.id.replace('-', "_"));
        assert!(source.contains(&name), "no test {name}...");
    }
}

/// A cell of a table, by arm and column.
fn of_arm(id: &str, table: &str, arm: &str, column: &str) -> f64 {
    let table = figure(id).tables.iter().find(|t| t.name == table).unwrap();
    let column = table.columns.iter().position(|c| c.0 == column).unwrap();
    let row = table.rows.iter().find(|r| r[0] == arm).unwrap_or_else(|| panic!("no {arm}"));
    row[column].parse().unwrap()
}

const HEURISTICS: [&str; 2] = ["hpc-uniform", "hpc-adaptive"];

/// Rows without a heuristic are what the model was fitted on; those with one are not, and come out near
/// the paper's: 12, 11, 16 and 6 %. Auto is at least as good as the better of both.
#[test]
fn hpc_gains_are_those_of_the_paper() {
    for (id, least, most) in
        [("hpc-3", 12.0, 13.5), ("hpc-4", 11.0, 13.0), ("hpc-5", 15.5, 16.5), ("hpc-6", 5.5, 6.5)]
    {
        let table = format!("{id}-table");
        let of = |arm: &str, column: &str| of_arm(id, &table, arm, column);
        for arm in HEURISTICS {
            near(of(arm, "time_s"), of(arm, "time_paper_s"), 0.011);
            assert!((of(arm, "gain_percent") - of(arm, "gain_paper_percent")).abs() <= 1.0);
            assert!((least..=most).contains(&of(arm, "gain_percent")), "{id} {arm}");
        }
        let better = HEURISTICS.map(|arm| of(arm, "time_s")).into_iter().fold(f64::MAX, f64::min);
        assert!(of("hpc-auto", "time_s") <= better + 0.01, "{id}");
        let fitted = if id == "hpc-6" { &["baseline"][..] } else { &["baseline", "static"] };
        for arm in fitted {
            near(of(arm, "time_s"), of(arm, "time_paper_s"), 0.005);
            for p in 1..=4 {
                let (here, paper) = (format!("p{p}_percent"), format!("p{p}_paper"));
                assert!((of(arm, &here) - of(arm, &paper)).abs() < 0.5, "{id} {arm} P{p}");
            }
        }
    }
}

/// One function of the decode share for all programs is further from the paper than speeds fitted to each. With those
/// speeds, too, auto is the best.
#[test]
fn hpc_one_speed_by_decode_share_is_further_off() {
    for (id, most) in [("hpc-3", 2.0), ("hpc-4", 2.0), ("hpc-5", 7.5), ("hpc-6", 7.5)] {
        let table = format!("{id}-share");
        let of = |arm: &str, column: &str| of_arm(id, &table, arm, column);
        // SIESTA's latency follows from what its ranks compute.
        let off = of("baseline", "off_percent").abs();
        assert!(off < if id == "hpc-6" { 1.0 } else { 0.5 }, "{id}: {off}");
        for arm in HEURISTICS {
            let off = of(arm, "off_percent").abs();
            assert!(of(arm, "fitted_off_percent").abs() < off && off <= most, "{id} {arm}: {off}");
        }
        let better = HEURISTICS.map(|arm| of(arm, "time_s")).into_iter().fold(f64::MAX, f64::min);
        assert!(of("hpc-auto", "time_s") <= better + 0.01, "{id}");
    }
}

#[test]
fn hpc_4_adaptive_needs_two_iterations_and_uniform_more_and_more() {
    let of = |arm: &str| -> Vec<f64> {
        let columns = ["after_15", "after_30", "after_45", "after_60", "after_75", "after_90"];
        columns.iter().map(|c| of_arm("hpc-4", "hpc-4-iterations", arm, c)).collect()
    };
    let uniform = of("hpc-uniform");
    assert_eq!(uniform[..2], [2.0, 3.0]);
    assert!(uniform.is_sorted() && uniform[5] > 3.0, "{uniform:?}");
    assert_eq!(of("hpc-adaptive"), [2.0; 6]);
    assert_eq!(of("hpc-auto"), [1.0; 6]);
    // What is drawn says the same: the priorities of P1 around the first reversal.
    let csv = Csv::of("hpc-4", "hpc-4");
    let priorities = |run: &str| -> Vec<String> {
        let rows = csv.rows.iter().filter(|r| r[0] == run && r[1] == "P1");
        rows.map(|r| r[5].clone()).skip(15).take(4).collect()
    };
    assert_eq!(priorities("hpc-adaptive"), ["4", "4", "5", "6"]);
    assert_eq!(priorities("hpc-auto"), ["4", "4", "6", "6"]);
    assert_eq!(priorities("baseline"), ["4"; 4]);
}

/// BT-MZ is as balanced as it gets after two iterations, and stays as it is.
#[test]
fn hpc_5_a_stable_state_is_found_and_kept() {
    let csv = Csv::of("hpc-5", "hpc-5");
    for arm in ["hpc-uniform", "hpc-adaptive", "hpc-auto"] {
        for (process, priority) in [("P1", "4"), ("P4", "6")] {
            let rows: Vec<_> =
                csv.rows.iter().filter(|r| r[0] == arm && r[1] == process).skip(2).collect();
            assert!(rows.len() > 6 && rows.iter().all(|r| r[5] == priority), "{arm} {process}");
        }
    }
    // Both of them: P1 has the 70 % of the paper.
    for arm in HEURISTICS {
        near(of_arm("hpc-5", "hpc-5-table", arm, "p1_percent"), 70.31, 0.01);
    }
}

#[test]
fn hpc_3_adaptive_over_reacts_and_auto_does_not() {
    let time = |arm: &str| of_arm("hpc-3", "hpc-3-disturbed", arm, "time_s");
    let [uniform, adaptive] = HEURISTICS.map(time);
    assert!(adaptive > 1.02 * uniform && time("hpc-auto") <= uniform, "{uniform} {adaptive}");
}

#[test]
fn hpc_6_the_gain_is_the_latency() {
    let csv = Csv::of("hpc-6", "hpc-6-latency");
    for arm in HEURISTICS {
        let gain = csv.values(arm);
        assert!(gain[0].abs() < 0.2 && gain.is_sorted_by(|a, b| a < b), "{arm}: {gain:?}");
    }
    // Latency is the same part of what each rank computes: P4 stays near the paper's 21.7 %.
    let percent = |arm: &str, rank: &str| of_arm("hpc-6", "hpc-6-table", arm, rank);
    for (rank, paper) in [("p2_percent", 53.38), ("p3_percent", 31.41), ("p4_percent", 21.68)] {
        assert!((percent("hpc-uniform", rank) - paper).abs() < 3.5, "{rank}");
        assert!((percent("hpc-uniform", rank) - percent("baseline", rank)).abs() < 1.0, "{rank}");
    }
    // Were priorities of any effect, auto would find what they gain.
    let gain = |arm: &str| of_arm("hpc-6", "hpc-6-sensitive", arm, "gain_percent");
    assert!(HEURISTICS.iter().all(|arm| gain("hpc-auto") > gain(arm)));
}

//! On loads and communication of real Charm++ programs (tests/data/charm): `nuco+` against what the
//! strategies of Charm++ made of them.
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::{Edge, Nanos, Task, TaskGraph};
use evenly_nuco::map::{Alpha, MAPPERS, Objectives, Options, Request, mapper, objectives, plus};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

const LB_TEST: [&str; 8] = [
    "GreedyCommLB",
    "GreedyLB",
    "GreedyRefineLB",
    "MetisLB",
    "RefineCommLB",
    "RefineLB",
    "ScotchLB",
    "TreeMatchLB",
];
const K_NEIGHBOR: [&str; 6] =
    ["GreedyCommLB", "GreedyLB", "RefineCommLB", "RefineLB", "ScotchLB", "TreeMatchLB"];

/// Rows of a file, by the names of its columns.
fn rows(name: &str) -> Vec<HashMap<String, String>> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/charm").join(name);
    let text = fs::read_to_string(&path).unwrap();
    let mut lines = text.lines().map(|l| l.split(',').map(str::to_owned));
    let header: Vec<String> = lines.next().unwrap().collect();
    lines.map(|row| header.iter().cloned().zip(row).collect()).collect()
}

fn number<T: std::str::FromStr<Err: std::fmt::Debug>>(
    row: &HashMap<String, String>,
    column: &str,
) -> T {
    row[column].parse().unwrap()
}

struct Dump {
    program: &'static str,
    graph: TaskGraph,
    present: Vec<CoreIndex>,
}

impl Dump {
    fn read(program: &'static str) -> Self {
        let task = |r: &HashMap<String, String>| Task {
            id: number(r, "id"),
            load_s: number(r, "load_s"),
            size_bytes: 0.0,
            core: Some(number(r, "pe")),
            movable: number::<u8>(r, "migratable") == 1,
        };
        let edge = |r: &HashMap<String, String>| Edge {
            from: number(r, "from"),
            to: number(r, "to"),
            messages: number(r, "messages"),
            bytes: number(r, "bytes"),
        };
        let objects = rows(&format!("{program}_p32.objects.csv"));
        let edges: Vec<Edge> = rows(&format!("{program}_p32.edges.csv")).iter().map(edge).collect();
        Self {
            program,
            graph: TaskGraph::new(objects.iter().map(task).collect(), &edges).unwrap(),
            present: objects.iter().map(|r| number(r, "pe")).collect(),
        }
    }

    fn made_by(&self, strategy: &str) -> Vec<CoreIndex> {
        let mut mapping = self.present.clone();
        for r in rows(&format!("{}_p32.map.{strategy}.csv", self.program)) {
            mapping[self.graph.find(number(&r, "id")).unwrap()] = number(&r, "pe");
        }
        mapping
    }

    fn judge(&self, cluster: &Cluster, mapping: &[CoreIndex]) -> Objectives {
        objectives(&self.graph, cluster, &self.present, mapping)
    }

    fn map(&self, name: &str, cluster: &Cluster, options: &Options) -> Vec<CoreIndex> {
        (mapper(name).unwrap().map)(&Request::timeless(
            &self.graph,
            cluster,
            &self.present,
            options,
        ))
    }
}

/// 32 cores as the paper's NUMA32: four nodes of eight, core p on node p / 8.
fn numa32(factor: impl Fn(usize, usize) -> f64) -> Cluster {
    let even = Cluster::even(4, 8, 2.0).unwrap();
    let factors =
        (0..16).map(|k| if k / 4 == k % 4 { 1.0 } else { factor(k / 4, k % 4) }).collect();
    Cluster::new(even.cores().to_vec(), even.nodes().to_vec(), Vec::new(), factors).unwrap()
}

/// The paper gives the least and the greatest factor only, so: nodes in a square, in a row, and all
/// as far from each other as they can be.
fn machines() -> [(&'static str, Cluster); 3] {
    [
        (
            "square",
            numa32(|i, j| match i ^ j {
                1 => 1.36,
                2 => 2.48,
                _ => 3.6,
            }),
        ),
        ("row", numa32(|i, j| 1.36 + 1.12 * (i.abs_diff(j) - 1) as f64)),
        ("far", numa32(|_, _| 3.6)),
    ]
}

/// No worse in imbalance, weighted messages and migrations, and better in at least one.
fn dominates(a: &Objectives, b: &Objectives) -> bool {
    let three = |o: &Objectives| [o.imbalance, o.nuco_messages, o.migrations as f64];
    let (a, b) = (three(a), three(b));
    a.iter().zip(&b).all(|(x, y)| x <= y) && a != b
}

/// The setting of the trade-off for a reference: its migrations and its imbalance are the bounds,
/// and what is left to be made small is communication.
fn as_good_as(o: &Objectives) -> Options {
    Options {
        alpha: Alpha::Auto,
        migration_worth_s: Some(0.0),
        max_migrations: Some(o.migrations),
        max_imbalance: Some(o.imbalance),
        ..Options::default()
    }
}

/// Whether `nuco+` with these options dominates a mapping; printed where it does not.
fn is_dominated(
    dump: &Dump,
    (machine, cluster): (&str, &Cluster),
    (name, theirs): (&str, &Objectives),
    options: &Options,
) -> Result<(), String> {
    let ours = dump.judge(cluster, &dump.map("nuco+", cluster, options));
    let three =
        |o: &Objectives| format!("{:7.4} {:10.0} {:3}", o.imbalance, o.nuco_messages, o.migrations);
    let program = dump.program;
    let said =
        format!("{program:9} {machine:6} {name:14} {}   nuco+ {}", three(theirs), three(&ours));
    println!("{said}");
    // Where nothing was moved, nothing can be better at that without moving.
    let good = if theirs.migrations == 0 { ours == *theirs } else { dominates(&ours, theirs) };
    if good { Ok(()) } else { Err(said) }
}

/// Each mapping that is there, on each machine: what factors there are must not matter.
fn dominated(
    program: &'static str,
    strategies: &[&str],
    machines: &[(&str, Cluster)],
    time_limit: Nanos,
) {
    let dump = Dump::read(program);
    let mut not = Vec::new();
    for (machine, cluster) in machines {
        for &strategy in strategies {
            let theirs = dump.judge(cluster, &dump.made_by(strategy));
            let options = Options { time_limit, ..as_good_as(&theirs) };
            not.extend(
                is_dominated(&dump, (machine, cluster), (strategy, &theirs), &options).err(),
            );
        }
    }
    assert!(not.is_empty(), "not dominated:\n{}", not.join("\n"));
}

#[test]
#[ignore = "takes long: ./dev test --all"]
fn nuco_plus_dominates_every_strategy_on_lb_test() {
    dominated("lb_test", &LB_TEST, &machines(), Options::default().time_limit);
}

#[test]
#[ignore = "takes long: ./dev test --all"]
fn nuco_plus_dominates_every_strategy_on_k_neighbor() {
    dominated("kneighbor", &K_NEIGHBOR, &machines(), Options::default().time_limit);
}

/// As if each node were a host, and a message between hosts took 20 times what memory takes; in a tenth of the
/// time.
#[test]
fn nuco_plus_dominates_every_strategy_where_the_others_are_far_away() {
    let hosts = [("hosts", numa32(|_, _| 20.0))];
    for (program, strategies) in [("lb_test", &LB_TEST[..]), ("kneighbor", &K_NEIGHBOR)] {
        dominated(program, strategies, &hosts, Nanos::from_millis(100));
    }
}

/// What the other mappers make of the dumps is dominated in the same way, in a tenth of the time; and with
/// the usual options, where its own objective decides, `nuco+` is better than each of them.
#[test]
fn nuco_plus_is_better_than_every_other_mapper() {
    let mut not = Vec::new();
    let time_limit = Nanos::from_millis(100);
    for program in ["lb_test", "kneighbor"] {
        let dump = Dump::read(program);
        for (machine, cluster) in &machines() {
            let usual = Options { time_limit, ..Options::default() };
            let request = Request::timeless(&dump.graph, cluster, &dump.present, &usual);
            let value = |mapping: &[CoreIndex]| plus::objective_s(&request, mapping);
            let ours = value(&dump.map("nuco+", cluster, &usual));
            for other in MAPPERS.iter().filter(|m| !m.effort.searches()) {
                let mapping = dump.map(other.name, cluster, &usual);
                let theirs = value(&mapping);
                if ours >= theirs {
                    not.push(format!(
                        "{program} {machine} {}: J {theirs}, nuco+ {ours}",
                        other.name
                    ));
                }
                let theirs = dump.judge(cluster, &mapping);
                let options = Options { time_limit, ..as_good_as(&theirs) };
                let name = (other.name, &theirs);
                not.extend(is_dominated(&dump, (machine, cluster), name, &options).err());
            }
        }
    }
    assert!(not.is_empty(), "not dominated:\n{}", not.join("\n"));
}

/// With Charm++'s constants `greedy-comm` makes of the dumps what GreedyCommLB made of them: cores overloaded to keep
/// those together that communicate on kNeighbor, and hardly anything but loads counted on lb_test.
#[test]
fn greedy_comm_is_near_what_greedy_comm_lb_makes() {
    let (_, cluster) = &machines()[0];
    for program in ["lb_test", "kneighbor"] {
        let dump = Dump::read(program);
        let theirs = dump.judge(cluster, &dump.made_by("GreedyCommLB"));
        let ours = dump.judge(cluster, &dump.map("greedy-comm", cluster, &Options::default()));
        let usual = Options::default();
        let request = Request::timeless(&dump.graph, cluster, &dump.present, &usual);
        let j = plus::objective_s(&request, &dump.map("greedy-comm", cluster, &usual));
        println!("{program}: {theirs:?}\n  {ours:?}, J {j}");
        assert!((ours.imbalance - theirs.imbalance).abs() < 1e-3, "{program}: {}", ours.imbalance);
        // Which core is which does not matter to either, so that messages are counted between cores.
        let between = |mapping: &[CoreIndex]| -> f64 {
            let of = |t: usize| dump.graph.links(t).iter().map(move |l| (t, l));
            let apart =
                (0..mapping.len()).flat_map(of).filter(|(t, l)| mapping[*t] != mapping[l.with]);
            apart.map(|(_, l)| l.received).sum()
        };
        let mapping = dump.map("greedy-comm", cluster, &Options::default());
        let [here, there] = [between(&mapping), between(&dump.made_by("GreedyCommLB"))];
        assert!((here / there - 1.0).abs() < 0.01, "{program}: {here} messages, {there}");
        assert!(ours.migrations.abs_diff(theirs.migrations) < 15, "{program}");
    }
}

/// At each price of a migration `nuco+` moves no more tasks than at a price that is ten times lower: many where
/// they cost nothing, none where one must save all of the makespan.
#[test]
fn the_lower_the_price_of_migrations_the_more_there_are() {
    let dump = Dump::read("lb_test");
    let (_, cluster) = &machines()[0];
    let makespan_s = dump.judge(cluster, &dump.present).makespan_s;
    let migrations = [0.0, 1e-4, 1e-3, 1e-2, 0.1, 1.0].map(|part| {
        let options = Options {
            alpha: Alpha::Auto,
            migration_worth_s: Some(part * makespan_s),
            time_limit: Nanos::from_millis(100),
            ..Options::default()
        };
        dump.judge(cluster, &dump.map("nuco+", cluster, &options)).migrations
    });
    assert!(migrations.is_sorted_by(|a, b| a >= b), "{migrations:?}");
    assert!(migrations[0] > 50 && migrations[5] == 0, "{migrations:?}");
}

/// Where only communication counts, it finds less of it than the mappers that look at nothing else: in
/// bytes times hops as well, the other mappers' migrations and imbalance being its bounds.
#[test]
fn nuco_plus_has_fewer_hop_bytes_than_groups_by_communication() {
    for program in ["lb_test", "kneighbor"] {
        let dump = Dump::read(program);
        for (machine, cluster) in &machines() {
            let groups = dump.map("treematch", cluster, &Options::default());
            let theirs = dump.judge(cluster, &groups);
            let options = Options { time_limit: Nanos::from_millis(300), ..as_good_as(&theirs) };
            let ours = dump.judge(cluster, &dump.map("nuco+", cluster, &options));
            println!(
                "{program} {machine}: {} hop-bytes, nuco+ {}",
                theirs.hop_bytes, ours.hop_bytes
            );
            assert!(
                ours.hop_bytes < theirs.hop_bytes,
                "{program} on {machine}: {ours:?} {theirs:?}"
            );
        }
    }
}

/// The figures of the folder's references, so that what is judged here is what they were judged by.
#[test]
fn references_are_what_they_are_known_to_be() {
    let percent = |o: &Objectives| (o.imbalance * 1000.0).round() / 10.0;
    let (_, cluster) = &machines()[0];
    let dump = Dump::read("lb_test");
    let judge = |strategy| dump.judge(cluster, &dump.made_by(strategy));
    assert_eq!(percent(&dump.judge(cluster, &dump.present)), 52.7);
    let o = judge("RefineCommLB");
    assert_eq!((percent(&o), o.migrations, o.remote_messages), (4.2, 17, 1_980.0));
    let o = judge("ScotchLB");
    assert_eq!((percent(&o), o.migrations, o.remote_messages), (4.8, 191, 1_570.0));
    let dump = Dump::read("kneighbor");
    let judge = |strategy| dump.judge(cluster, &dump.made_by(strategy));
    let o = judge("RefineLB");
    assert_eq!((percent(&o), o.migrations, o.remote_messages), (5.0, 24, 3_208_000.0));
    let o = judge("ScotchLB");
    assert_eq!((percent(&o), o.migrations, o.remote_messages), (1.2, 391, 712_000.0));
}

/// Without bounds, one price of a migration after the other: the dearer it is, the fewer there are,
/// and none makes the model's value worse than the present mapping's.
#[test]
fn the_worth_of_a_migration_trades_migrations_for_the_rest() {
    let (_, cluster) = &machines()[0];
    for program in ["lb_test", "kneighbor"] {
        let dump = Dump::read(program);
        let mut last = usize::MAX;
        for worth in [0.0, 1e-3, 1e-2, 1e-1, 10.0] {
            let options = Options { migration_worth_s: Some(worth), ..Options::default() };
            let mapping = dump.map("nuco+", cluster, &options);
            let o = dump.judge(cluster, &mapping);
            println!(
                "{program:8} worth {worth:6} s {:7.4} {:10.0} {:3}",
                o.imbalance, o.nuco_messages, o.migrations
            );
            assert!(o.migrations <= last, "{program}: {} after {last}", o.migrations);
            last = o.migrations;
        }
        assert_eq!(last, 0, "{program}: nothing is worth ten seconds");
    }
}

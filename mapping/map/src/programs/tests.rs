//! Tests of the module above.

use super::*;
use evenly_cluster::{Core, Node};
use evenly_model::{Edge, Nanos, Task};

fn tasks(loads: &[f64], edges: &[(u64, u64, f64)]) -> TaskGraph {
    let task = |(id, &load_s): (usize, &f64)| Task {
        id: id as u64,
        load_s,
        size_bytes: 0.0,
        core: None,
        movable: true,
    };
    let edge = |&(from, to, messages): &(u64, u64, f64)| Edge { from, to, messages, bytes: 0.0 };
    let tasks = loads.iter().enumerate().map(task).collect();
    TaskGraph::new(tasks, &edges.iter().map(edge).collect::<Vec<_>>()).unwrap()
}

/// Four pairs that talk a lot, and a little from pair to pair.
fn pairs() -> TaskGraph {
    let mut edges = Vec::new();
    for p in 0..4 {
        edges.push((p, p + 4, 900.0));
        edges.push((p, (p + 1) % 4, 1.0));
    }
    tasks(&[1.0; 8], &edges)
}

/// A program of ours that is called as one of theirs, and PATH with it.
fn pretend(program: &Program, script: &str) -> (tempfile::TempDir, std::ffi::OsString) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(program.executable);
    evenly_testing::script(&file, &format!("#!/bin/sh\n{script}\n"));
    let path = dir.path().as_os_str().to_owned();
    (dir, path)
}

fn said(program: &Program, script: &str) -> String {
    let (graph, cluster) = (pairs(), Cluster::even(2, 2, 2.0).unwrap());
    let options = Options::default();
    let job = Job { graph: &graph, cluster: &cluster, present: &[0; 8], options: &options };
    let (_dir, path) = pretend(program, script);
    program.map(&path, &job).unwrap_err().to_string()
}

#[test]
fn what_is_not_installed_is_named_with_its_package() {
    let (graph, cluster) = (pairs(), Cluster::even(2, 2, 2.0).unwrap());
    let options = Options::default();
    let job = Job { graph: &graph, cluster: &cluster, present: &[0; 8], options: &options };
    for p in PROGRAMS {
        let said = p.map(OsStr::new("/nowhere"), &job).unwrap_err().to_string();
        let (begins, install) = match p.package {
            Package::System(_) => (format!("its program {}", p.executable), "apt-get install"),
            Package::Python(_) => (format!("no {} in PATH", p.executable), "pip install"),
        };
        assert!(said.starts_with(&format!("{}: {begins}", p.name)), "{said}");
        assert!(said.contains(&format!("{install} {}", p.package.name())), "{said}");
    }
}

#[test]
fn what_a_program_answers_is_not_believed_blindly() {
    let [scotch, metis, kahip] = PROGRAMS;
    let failed = said(&scotch, "echo; echo 'no such graph' >&2; exit 3");
    assert_eq!(failed, "scotch_gmap: it ended with exit status: 3, having said 'no such graph'");
    let none = said(&scotch, "exit 0");
    assert!(none.starts_with("scotch_gmap: it wrote no mapping: "), "{none}");
    for wrong in
        ["7\\n0 1", "8\\n0 0 1 0 2 0 3 0 4 0 5 0 6 0 7 4", "8\\n0 0 1 0 2 0 3 0 4 0 5 0 6 0 9 0"]
    {
        let wrong = said(&scotch, &format!("printf '{wrong}' > mapping"));
        assert!(wrong.ends_with("something other than 8 tasks on 4 cores"), "{wrong}");
    }
    let word = said(&metis, "echo 0 1 x > tasks.part.4");
    assert_eq!(word, "gpmetis: it wrote 'x'; a number is needed");
    let short = said(&metis, "echo 0 1 > tasks.part.4");
    assert!(short.ends_with("something other than 8 tasks on 4 cores"), "{short}");
    // It is asked for its module first.
    let python = |script: &str| said(&kahip, &format!("[ -e tasks ] || exit 0; {script}"));
    let many = python("echo 0 1 2 3 4 5 6 7 > parts");
    assert!(many.ends_with("something other than 8 tasks on 4 cores"), "{many}");
    let failed = python("echo Traceback >&2; echo 'MemoryError: no' >&2; exit 1");
    assert_eq!(failed, "kahip: it ended with exit status: 1, having said 'MemoryError: no'");
}

#[test]
fn one_that_does_not_answer_is_ended() {
    let (graph, cluster) = (pairs(), Cluster::even(2, 2, 2.0).unwrap());
    let options = Options { program_limit: Nanos::from_millis(50), ..Options::default() };
    let job = Job { graph: &graph, cluster: &cluster, present: &[0; 8], options: &options };
    for (program, script) in PROGRAMS.iter().zip([
        "exec sleep 1000",
        "exec sleep 1000",
        "[ -e tasks ] || exit 0; exec sleep 1000",
    ]) {
        let (_dir, path) = pretend(program, script);
        let said = program.map(&path, &job).unwrap_err().to_string();
        let ended =
            "it was ended, as it had not answered after 0.05 s; give it more (--program-limit)";
        assert!(said.starts_with(&format!("{}: {ended}", program.called())), "{said}");
    }
}

#[test]
fn files_are_as_their_guides_say() {
    let graph = tasks(&[1.0, 3.0, 0.0], &[(0, 1, 2.0), (1, 0, 1.0), (1, 2, 1.0)]);
    let even = Cluster::even(2, 2, 2.5).unwrap();
    let mut cores: Vec<Core> = even.cores().to_vec();
    cores[3].speed = 0.5;
    let cluster =
        Cluster::new(cores, even.nodes().to_vec(), Vec::new(), even.factors().to_vec()).unwrap();
    let options = Options::default();
    let job = Job { graph: &graph, cluster: &cluster, present: &[0; 3], options: &options };
    // What they are given is kept beside them, and an answer is written that can be checked.
    let (dir, path) = pretend(
        &PROGRAMS[0],
        "here=$(dirname \"$0\"); cp tasks machine $here; echo \"$*\" > $here/arguments; \
         printf '3\\n0 1\\n1 2\\n2 3\\n' > mapping",
    );
    assert_eq!(PROGRAMS[0].map(&path, &job).unwrap(), [1, 2, 3]);
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(
        read("tasks"),
        "0\n3 4\n0 011\n250000000 1 750000 1\n750000000 2 750000 0 250000 2\n1 1 250000 1\n"
    );
    assert_eq!(
        read("machine"),
        "deco 0\n4 7\n0 1000 4\n1 1000 5\n2 1000 6\n3 500 7\n100 \n250 250 \n250 250 100 \n"
    );
    assert_eq!(read("arguments"), "-Cd -b0.05 tasks machine mapping log\n");
    let (dir, path) = pretend(
        &PROGRAMS[1],
        "here=$(dirname \"$0\"); cp tasks parts $here; echo \"$*\" > $here/arguments; \
         printf '3\\n0\\n1\\n' > tasks.part.4",
    );
    assert_eq!(PROGRAMS[1].map(&path, &job).unwrap(), [3, 0, 1]);
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!(
        read("tasks"),
        "3 2 011\n250000000 2 750000000\n750000000 1 750000000 3 250000000\n1 2 250000000\n"
    );
    assert_eq!(read("arguments"), "-ufactor=50 -seed=1 -tpwgts=parts tasks 4\n");
    assert_eq!(read("parts").lines().last(), Some("3 = 0.14285714285714285"));
    let unequal = PROGRAMS[2].map(&pretend(&PROGRAMS[2], "exit 0").1, &job);
    assert!(unequal.unwrap_err().to_string().ends_with("unequal speed; try metis"));
    let job = Job { cluster: &even, ..job };
    let (dir, path) = pretend(
        &PROGRAMS[2],
        "[ -e tasks ] || exit 0; cp tasks $(dirname \"$0\"); printf '3\\n0\\n1\\n' > parts",
    );
    assert_eq!(PROGRAMS[2].map(&path, &job).unwrap(), [3, 0, 1]);
    let text = fs::read_to_string(dir.path().join("tasks")).unwrap();
    let graph: serde_json::Value = serde_json::from_str(&text).unwrap();
    let expected = serde_json::json!({
        "vwgt": [250_000_000, 750_000_000, 1],
        "xadj": [0, 1, 3, 4],
        "adjcwgt": [750_000_000, 750_000_000, 250_000_000, 250_000_000],
        "adjncy": [1, 0, 2, 1],
        "parts": 4, "imbalance": 0.05, "silent": true, "seed": 1, "mode": 1,
    });
    assert_eq!(graph, expected);
}

#[test]
fn a_task_that_is_not_movable_stays() {
    let mut all = pairs().tasks().to_vec();
    all[1].movable = false;
    let graph = TaskGraph::new(all, &[Edge { from: 0, to: 1, messages: 1.0, bytes: 1.0 }]).unwrap();
    let cluster = Cluster::even(2, 2, 2.0).unwrap();
    let options = Options::default();
    let job = Job { graph: &graph, cluster: &cluster, present: &[3; 8], options: &options };
    let (_dir, path) = pretend(&PROGRAMS[1], "yes 0 | head -n 8 > tasks.part.4");
    assert_eq!(PROGRAMS[1].map(&path, &job).unwrap(), [0, 3, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn machines_are_cut_where_they_are_cut() {
    // Three nodes of 1, 2 and 3 cores on two hosts, in no order.
    let nodes = vec![Node { id: 0, host: 1 }, Node { id: 0, host: 0 }, Node { id: 1, host: 1 }];
    let on = [2, 0, 1, 2, 2, 0];
    let core = |(id, &node): (usize, &usize)| Core {
        id: id as u32,
        cpu: id as u32,
        node,
        speed: 1.0,
        caches: vec![],
    };
    let cores = on.iter().enumerate().map(core).collect();
    let factors = (0..9).map(|k| if k % 4 == 0 { 1.0 } else { 2.0 }).collect();
    let cluster = Cluster::new(cores, nodes, Vec::new(), factors).unwrap();
    let text = machine(&cluster, 1_000.0);
    let domain = |core: usize| text.lines().nth(2 + core).unwrap().rsplit(' ').next().unwrap();
    // The host with one core is 2; the other is 3, its nodes 6 (two cores) and 7 (three).
    assert_eq!([0, 1, 2, 3, 4, 5].map(domain), ["14", "12", "2", "30", "31", "13"]);
    // A core, a core and 32 cores would make the tree two levels deeper: cut in the middle.
    let nodes = vec![Node { id: 0, host: 0 }, Node { id: 0, host: 1 }, Node { id: 1, host: 1 }];
    let core = |id: u32| Core { id, cpu: id, node: id.min(2) as usize, speed: 1.0, caches: vec![] };
    let factors = (0..9).map(|k| if k % 4 == 0 { 1.0 } else { 2.0 }).collect();
    let cluster = Cluster::new((0..34).map(core).collect(), nodes, Vec::new(), factors).unwrap();
    let text = machine(&cluster, 1_000.0);
    let most: u64 = text.lines().nth(1).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    assert!(most < 128, "{most}");
}

/// A ring of equal tasks that was too much for SCOTCH when messages were as great as loads: it crashed,
/// or never ended.
#[test]
#[ignore = "needs Scotch, METIS and KaHIP: ./dev test --all"]
fn what_scotch_multiplies_stays_small() {
    let edges: Vec<(u64, u64, f64)> = (0..400)
        .flat_map(|a| (1..=7).map(move |d| (a, (a + d) % 400)))
        .flat_map(|(a, b)| [(a, b, 10.0), (b, a, 10.0)])
        .collect();
    let graph = tasks(&[1.0; 400], &edges);
    let cluster = Cluster::even(4, 8, 3.6).unwrap();
    let options = Options::default();
    let job = Job { graph: &graph, cluster: &cluster, present: &[0; 400], options: &options };
    let path = std::env::var_os("PATH").unwrap_or_default();
    if PROGRAMS[0].find(&path).is_none() {
        return evenly_testing::skip("scotch", PROGRAMS[0].missing());
    }
    let mapping = PROGRAMS[0].map(&path, &job).unwrap();
    let o = evenly_nuco::map::objectives(&graph, &cluster, &[0; 400], &mapping);
    assert!(o.imbalance < 0.1 && o.remote_share < 0.1, "{o:?}");
}

/// With the real ones, where they are installed.
#[test]
#[ignore = "needs Scotch, METIS and KaHIP: ./dev test --all"]
fn pairs_stay_together() {
    let graph = pairs();
    let cluster = Cluster::even(2, 2, 2.5).unwrap();
    let options = Options::default();
    let job = Job { graph: &graph, cluster: &cluster, present: &[0; 8], options: &options };
    for p in PROGRAMS {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if p.find(&path).is_none() {
            evenly_testing::skip(p.package.name(), p.missing());
            continue;
        }
        let mapping = p.map(&path, &job).unwrap();
        let cores: HashSet<CoreIndex> = mapping.iter().copied().collect();
        assert_eq!(cores.len(), 4, "{}: {mapping:?}", p.name);
        assert!((0..4).all(|t| mapping[t] == mapping[t + 4]), "{}: {mapping:?}", p.name);
    }
}

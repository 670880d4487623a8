//! `evenly topology --measure --network` and mappings onto several hosts, with real launchers of Open MPI
//! and MPICH, on two hosts that are simulated in network namespaces with a delay between them.
//!
//! What is asserted of times is only what cannot be otherwise: a message takes no less than the wire.

use crate::mpi::{ENVIRONMENT, Mpi, here};
use crate::profile::{cache, script_at};
use crate::schema::valid;
use crate::support::{Tool, json, stderr, text};
use evenly_hosts::{Hosts, Wanted};
use evenly_model::{CpuId, CpuSet, Tid};
use serde_json::{Value, json as value};
use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Output};
use std::time::Duration;

const DELAY: Duration = Duration::from_millis(2);

/// Two hosts, with a CPU each or all CPUs, or None where this machine cannot have them. What is measured is kept by
/// the names of hosts, so that each test has its own, and each run.
fn hosts(test: &str, own_cpus: bool) -> Option<Hosts> {
    let mine = evenly_linux::affinity::get(Tid(0)).unwrap();
    let two: Vec<CpuId> = mine.iter().take(2).collect();
    let cpus = match two[..] {
        [a, b] if own_cpus => Some([CpuSet::single(a), CpuSet::single(b)]),
        _ => None,
    };
    let names = ["a", "b"].map(|host| format!("evenly-{test}-{host}-{}", std::process::id()));
    let names = [names[0].as_str(), names[1].as_str()];
    match Hosts::new(&Wanted { names, delay: DELAY, cpus }) {
        Ok(hosts) => Some(hosts),
        Err(e) => {
            evenly_testing::skip(evenly_hosts::KEY, e);
            None
        }
    }
}

/// A command on the first host, with what lets launchers reach the second.
fn on_first(hosts: &Hosts, tool: &Tool, command: &[&str]) -> Command {
    let mut c = hosts.command(0, command[0]);
    c.args(&command[1..])
        .envs(ENVIRONMENT)
        .envs(hosts.environment())
        .env("XDG_CACHE_HOME", cache())
        .env("EVENLY_STATE_DIR", tool.path("state"))
        .env("TMPDIR", tool.dir.path())
        .current_dir(tool.dir.path());
    c
}

#[track_caller]
fn succeed(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, stderr(&output));
    output
}

/// The options with which a launcher starts so many ranks on each host.
fn each(hosts: &Hosts, mpi: Mpi, ranks: u32) -> Vec<String> {
    let on: Vec<String> = hosts.names().iter().map(|name| format!("{name}:{ranks}")).collect();
    let option = if mpi.name == "mpich" { "-hosts" } else { "-host" };
    let n = (2 * ranks).to_string();
    [&mpi.tool("mpirun"), option, &on.join(","), "-n", &n].map(str::to_owned).to_vec()
}

/// `evenly topology --measure --network` by this MPI's launcher.
fn measure(hosts: &Hosts, tool: &Tool, mpi: Mpi, ranks: u32, options: &[&str]) -> Value {
    let file = tool.path("network.json");
    let launcher = each(hosts, mpi, ranks);
    let mut words = vec![tool.exe(), "topology", "--measure", "--network", "--json"];
    words.push(file.to_str().unwrap());
    words.extend(options);
    words.push("--");
    words.extend(launcher.iter().map(String::as_str));
    let output = succeed(on_first(hosts, tool, &words));
    let found = json(&file);
    valid(&found);
    let said = text(&output.stdout);
    let [a, b] = hosts.names();
    assert!(said.starts_with(&format!("{a}, {b}: 2 hosts, ")), "{said}");
    assert!(said.contains("messages between hosts") && said.contains(&format!("{a} and {b}: ")));
    found
}

#[test]
#[ignore = "needs simulated hosts: ./dev test --all"]
fn hosts_and_their_network_are_measured() {
    let Some(hosts) = hosts("one", true) else { return };
    for mpi in here() {
        let tool = Tool::new();
        let xml = tool.path("all.xml").to_str().unwrap().to_owned();
        // More ranks than hosts: one of each host plays for it. MPICH's might wait for ever, see below.
        let ranks = if mpi.name == "mpich" { 1 } else { 2 };
        let found = measure(&hosts, &tool, mpi, ranks, &["--export", &xml]);
        assert_eq!((&found["source"], &found["hosts"]), (&value!("hosts"), &value!(hosts.names())));
        let pair = &found["network"]["pairs"][0];
        assert_eq!(pair["hosts"], value!([0, 1]));
        let ns = |what: &str| pair["latency_ns"][what].as_f64().unwrap();
        assert!(ns("low") >= DELAY.as_nanos() as f64, "{pair}");
        // The factor is that of the definition.
        let n = found["factors"]["nodes"].as_array().unwrap().len();
        let factor = |i: usize, j: usize| found["factors"]["matrix"][i][j].as_f64().unwrap();
        let memory = |host: usize| found["memory_ns"][host].as_f64().unwrap();
        for (from, to, host) in [(0, n - 1, 1), (n - 1, 0, 0)] {
            let expected = ns("median") / memory(host);
            assert!((factor(to, from) / expected - 1.0).abs() < 1e-9, "{found:#}");
        }
        assert!((0..n).all(|i| factor(i, i) == 1.0));
        // Each host has one CPU of its own here, and two together have two.
        if found["disallowed"] != "" {
            assert_eq!(
                found["allowed"].as_str().unwrap().split([',', '-']).count(),
                2,
                "{found:#}"
            );
        }
        // What was kept is used again, and measured again where that is asked for.
        let again = measure(&hosts, &tool, mpi, 1, &[]);
        assert_eq!(again["network"], found["network"]);
        let notes = again["notes"].to_string();
        assert!(notes.contains("messages between hosts were measured before, at 2"), "{notes}");
        assert!(notes.contains(": measured before, at 2"), "{notes}");
        let notes = found["notes"].to_string();
        assert!(!notes.contains("messages between hosts were measured before"), "{notes}");
        // hwloc's own tools see hosts and distances.
        let exported = fs::read_to_string(&xml).unwrap();
        assert!(
            exported.contains("subtype=\"Host\"") && exported.contains("<distances2 "),
            "{exported}"
        );
        // The mapper takes it as it is: two that talk a lot are on one host, though that host computes
        // alone then.
        let tasks = tool.path("tasks.json");
        let edge = |from, to| value!({ "from": from, "to": to, "messages": 1000.0 });
        let all = value!({ "schema": "evenly.tasks/1",
            "tasks": [{ "id": 0, "load_s": 0.1 }, { "id": 1, "load_s": 0.1 }],
            "edges": [edge(0, 1), edge(1, 0)] });
        fs::write(&tasks, all.to_string()).unwrap();
        let map = |alpha: &str| {
            let words = ["map", "--tasks", tasks.to_str().unwrap(), "--topology", &xml];
            let more =
                ["--alpha", alpha, "--algorithm", "nuco", "--format", "hostfile", "--out", "-"];
            let output = tool.evenly(words).args(more).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            (text(&output.stdout), stderr(&output))
        };
        let (together, said) = map("latency");
        let names: Vec<&str> = together.lines().collect();
        assert!(names.len() == 2 && names[0] == names[1], "{together}");
        assert!(!said.contains("--alpha latency counts"), "{said}");
        let (_, said) = map("1e-3");
        assert!(said.contains("--alpha latency counts what messages take"), "{said}");
    }
}

/// Where each rank is to be: by its number, the host.
fn planned(map: &Value) -> BTreeMap<u64, usize> {
    let cores = map["machine"]["cores"].as_u64().unwrap();
    let place = |place: &Value| {
        let (id, core) = (place["id"].as_u64().unwrap(), place["core"].as_u64().unwrap());
        // Cores are numbered through, and both hosts have as many.
        (id, usize::from(core >= cores / 2))
    };
    map["assignment"].as_array().unwrap().iter().map(place).collect()
}

/// Ranks are on the hosts that the mapping names, with the rank file of Open MPI and the list of hosts of
/// MPICH, and both hosts have some.
#[test]
#[ignore = "needs simulated hosts: ./dev test --all"]
fn ranks_run_on_the_hosts_of_the_mapping() {
    let Some(hosts) = hosts("two", false) else { return };
    for mpi in here() {
        let tool = Tool::new();
        let path = |name: &str| tool.path(name).to_str().unwrap().to_owned();
        let (xml, tasks, ranks, map) =
            (path("all.xml"), path("tasks.json"), path("ranks.txt"), path("map.json"));
        measure(&hosts, &tool, mpi, 1, &["--export", &xml]);
        let all: Vec<Value> = (0..8).map(|id| value!({ "id": id, "load_s": 1.0 })).collect();
        let all = value!({ "schema": "evenly.tasks/1", "tasks": all, "edges": [] });
        fs::write(&tasks, all.to_string()).unwrap();
        let format = if mpi.name == "mpich" { "mpich" } else { "rankfile" };
        let mut words = vec!["map", "--tasks", &tasks, "--topology", &xml, "--algorithm", "random"];
        words.extend(["--seed", "3", "--format", format, "--out", &ranks, "--json", &map]);
        let output = tool.evenly(words).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        // Names of hosts are those of the XML.
        let written = fs::read_to_string(&ranks).unwrap();
        assert!(hosts.names().iter().all(|name| written.contains(name)), "{written}");
        let planned = planned(&json(map.as_ref()));
        assert!((0..2).all(|host| planned.values().any(|h| *h == host)), "{planned:?}");

        // None ends before all are there: MPICH's mpirun writes to the others as it starts them, and dies of SIGPIPE where one
        // has ended.
        let body = "hostname >where-${OMPI_COMM_WORLD_RANK-$PMI_RANK}; \
                    until [ $(ls where-* | wc -l) = 8 ]; do sleep 0.01; done";
        script_at(&tool.path("app"), body);
        let mut words = vec![mpi.tool("mpirun")];
        if mpi.name == "mpich" {
            words.extend(written.split_whitespace().map(str::to_owned));
        } else {
            words.extend(
                ["--rankfile", &ranks, "--bind-to", ":overload-allowed"].map(str::to_owned),
            );
        }
        words.extend(["-n", "8", "./app"].map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        succeed(on_first(&hosts, &tool, &words));
        for (rank, host) in planned {
            let found = fs::read_to_string(path(&format!("where-{rank}"))).unwrap();
            assert_eq!(found.trim(), hosts.names()[host], "{}, rank {rank}: {written}", mpi.said);
        }
    }
}

/// A profiled run across both hosts, the mapping made of it, and a run where it says. With Open MPI only:
/// with MPICH 4.0.2 over UCX ranks of such hosts now and then wait for ever in MPI_Finalize where several
/// share a CPU, with evenly or without (tools/bench/README.md says what was tried).
#[test]
#[ignore = "needs simulated hosts: ./dev test --all"]
fn a_stencil_on_two_hosts_is_profiled_mapped_and_run() {
    let Some(mpi) = here().into_iter().find(|mpi| mpi.name == "openmpi") else { return };
    let Some(hosts) = hosts("three", false) else { return };
    let tool = Tool::new();
    let path = |name: &str| tool.path(name).to_str().unwrap().to_owned();
    let (xml, ranks) = (path("all.xml"), path("ranks.txt"));
    measure(&hosts, &tool, mpi, 1, &["--export", &xml]);
    let program = mpi.program("stencil");
    let app = [program.as_str(), "--size", "200", "--sweeps", "20", "--output"];
    let (first, second) = (path("first.json"), path("second.json"));
    let launcher = each(&hosts, mpi, 4);
    let mut words = vec![tool.exe(), "map", "--profile", "--topology", &xml, "--alpha", "latency"];
    words.extend(["--algorithm", "nuco", "--format", "rankfile", "--out", &ranks, "--"]);
    words.extend(launcher.iter().map(String::as_str));
    words.extend(app.iter().copied().chain([first.as_str()]));
    let before = hosts.traffic(0).unwrap();
    succeed(on_first(&hosts, &tool, &words));
    // Messages between the hosts went over the wire, not through shared memory: in each sweep two edges of
    // a hundred points each way.
    let after = hosts.traffic(0).unwrap();
    let bytes = 20 * 2 * 100 * 8;
    assert!(after.sent_bytes - before.sent_bytes > bytes, "{before:?} {after:?}");
    assert!(after.received_bytes - before.received_bytes > bytes, "{before:?} {after:?}");
    let mpirun = mpi.tool("mpirun");
    let mut words = vec![mpirun.as_str(), "--rankfile", &ranks, "--bind-to", ":overload-allowed"];
    words.extend(["-n", "8"].into_iter().chain(app).chain([second.as_str()]));
    succeed(on_first(&hosts, &tool, &words));
    for file in [&first, &second] {
        let said = json(file.as_ref());
        assert!(said["verified"] == true && said["ranks"] == 8, "{said:#}");
    }
}

/// Without namespaces: all ranks are on this host, and that is said.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn what_is_no_network_is_said_in_a_line() {
    let (tool, home) = (Tool::new(), Tool::new());
    let topology = |words: &[&str]| {
        let mut c = tool.evenly(["topology", "--measure", "--network", "--"]);
        let output = c.args(words).envs(ENVIRONMENT);
        let output = output.env("XDG_CACHE_HOME", home.dir.path()).output().unwrap();
        (output.status.code(), stderr(&output))
    };
    let last = |said: &str| said.lines().last().unwrap_or_default().to_owned();
    for mpi in here() {
        let mpirun = mpi.tool("mpirun");
        let (status, said) = topology(&[&mpirun, "-n", "2"]);
        assert_eq!(status, Some(125), "{said}");
        assert!(last(&said).contains("all ranks ran on host"), "{}: {said}", mpi.said);
        // Before anything was measured.
        let kept = home.path("evenly/topology");
        assert!(!kept.exists(), "{}", mpi.said);
        let program = mpi.program("stencil");
        let (status, said) = topology(&[&mpirun, "-n", "2", &program]);
        assert_eq!((status, said.lines().count()), (Some(125), 1), "{said}");
        assert!(said.contains("starts an MPI program; give the launcher"), "{said}");
        let (status, said) = topology(&[&mpirun, "--no-such-option-of-it", "-n", "2"]);
        assert_eq!(status, Some(125), "{said}");
        assert!(last(&said).contains("could not run"), "{said}");
    }
    let (status, said) = topology(&["true"]);
    assert_eq!((status, said.lines().count()), (Some(125), 1), "{said}");
    assert!(said.contains("begins with no launcher of Open MPI or MPICH"), "{said}");
    let words = ["map", "--matrix", "/dev/null", "--topology", "core:2", "--alpha", "latency"];
    let output = tool.evenly(words).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(stderr(&output).contains("--alpha latency"), "{}", stderr(&output));
}

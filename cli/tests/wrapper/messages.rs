//! `evenly run --probe on --policy nuco` on real MPI programs: messages and loads are counted while they run,
//! what the user tells counts more, and what cannot be counted is said.
//!
//! What the programs send is written down in `tests/mpi/pairs.c`.

use crate::mpi::{ENVIRONMENT, Mpi, here};
use crate::profile::cache;
use crate::schema::valid;
use crate::support::{Child, Tool, json, stderr, text, wait_until};
use evenly_model::Nanos;
use evenly_probe::build::{Compiler, PROBE, build};
use evenly_probe::messages::{Mapping, Rank};
use evenly_probe::mpi::Used;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::process::{Command, Output, Stdio};

/// `evenly run` with these options on an MPI program of so many ranks; what it said, and the report.
fn run(tool: &Tool, mpi: Mpi, options: &str, ranks: &str, arguments: &[&str]) -> (Output, Value) {
    let file = tool.path("run.json");
    let program = mpi.program("pairs");
    let (timeout, mpirun) = (["timeout", "100"], mpi.tool("mpirun"));
    // The launcher has to be the first word, for its MPI to be known; so the limit is outside.
    let words = [&[mpirun.as_str(), "-n", ranks, &program], arguments].concat();
    let options = format!("-v --policy nuco --probe on {options} --json {}", file.display());
    let mut c = tool.by(timeout[0]);
    c.args([timeout[1], tool.exe(), "run"]).args(options.split_whitespace()).arg("--").args(&words);
    let output = c.envs(ENVIRONMENT).env("XDG_CACHE_HOME", cache()).output().unwrap();
    assert!(output.status.success(), "{}: {}", mpi.said, stderr(&output));
    let report = json(&file);
    valid(&report);
    (output, report)
}

fn edges(report: &Value) -> BTreeMap<(u64, u64), (u64, u64)> {
    let number = |edge: &Value, field: &str| edge[field].as_u64().unwrap();
    let edge = |e: &Value| {
        ((number(e, "from"), number(e, "to")), (number(e, "messages"), number(e, "bytes")))
    };
    report["messages"]["edges"].as_array().unwrap().iter().map(edge).collect()
}

fn has_note(report: &Value, words: &str) -> bool {
    report["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains(words))
}

/// Rank 0 talks to 2 and 1 to 3, and then 0 to 1 and 2 to 3; those that wait compute a quarter of the others.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn messages_and_loads_of_ranks_are_counted_while_they_run() {
    for mpi in here() {
        let tool = Tool::new();
        let (output, report) =
            run(&tool, mpi, "--period 20ms --every 5", "4", &["20", "20", "10", "shift"]);
        let mut expected = BTreeMap::new();
        for (from, to) in [(0, 2), (1, 3), (0, 1), (2, 3)] {
            expected.insert((from, to), (100, 10_000));
            expected.insert((to, from), (100, 10_000));
        }
        assert_eq!(edges(&report), expected, "{}", mpi.said);
        let messages = &report["messages"];
        assert_eq!((&messages["messages"], &messages["bytes"]), (&800.into(), &80_000.into()));
        assert!(messages["decided"] == true && messages["left_out"] == 0, "{messages:#}");
        // What each says of its computing, it has measured itself, too.
        let said = text(&output.stdout);
        let measured: BTreeMap<u64, f64> = said
            .lines()
            .map(|line| {
                let mut words = line.split_whitespace();
                let rank = words.next().unwrap().parse().unwrap();
                (rank, words.next().unwrap().parse().unwrap())
            })
            .collect();
        let ranks = messages["ranks"].as_array().unwrap();
        assert_eq!((ranks.len(), measured.len()), (4, 4), "{}: {said}", mpi.said);
        for rank in ranks {
            let computed = rank["computed_s"].as_f64().unwrap();
            let wanted = measured[&rank["rank"].as_u64().unwrap()];
            assert!((computed - wanted).abs() < 0.05, "{}: {rank}, {wanted} s", mpi.said);
        }
        let words = stderr(&output);
        assert!(words.contains("  messages    4 ranks sent "), "{words}");
        assert!(has_note(&report, "are counted while the program runs"), "{report:#}");
    }
}

/// A rank that waits in one call, busily and for longer than all it has computed: of its CPU time only that
/// counts which came before. Seen while it waits.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn a_rank_that_waits_busily_is_seen_with_what_it_has_computed() {
    for mpi in here() {
        let words = [mpi.tool("mpirun"), "-n".into(), "2".into(), mpi.program("pairs")];
        let command: Vec<OsString> = words.iter().map(OsString::from).collect();
        let compiler = Compiler::of(&Used::of(&command).unwrap(), None).unwrap();
        let library = build(&PROBE, &compiler, &cache().join("evenly/probe")).unwrap().file;
        let mapping = Mapping::new().unwrap();
        let (name, value) = mapping.variable();
        let mut c = Command::new("timeout");
        c.arg("100").args(&command).args(["1", "200", "1", "wait"]).envs(ENVIRONMENT);
        c.env("LD_PRELOAD", library).env(name, value);
        // It spins, as it does by itself where there are as many CPUs as ranks.
        c.env("OMPI_MCA_mpi_yield_when_idle", "0").stdin(Stdio::null()).stdout(Stdio::null());
        let mut program = Child::spawn(&mut c);
        let mut reader = mapping.reader().unwrap();
        let mut ranks: Vec<Rank> = Vec::new();
        let cpu_of = |rank: &Rank| -> Option<Nanos> {
            let file = format!("/proc/{}/task/{}/schedstat", rank.pid, rank.tid);
            let ran = fs::read_to_string(file).ok()?.split_whitespace().next()?.parse().ok()?;
            Some(Nanos(ran))
        };
        let mut seen = None;
        wait_until("the one that waits has used four times what it has computed", || {
            assert!(program.0.try_wait().unwrap().is_none(), "it has ended");
            reader.read(&|_| true, &mut ranks).unwrap();
            let of = |number| ranks.iter().find(|r| r.rank == number);
            let (Some(busy), Some(waits)) = (of(0), of(1)) else { return false };
            let (Some(all), Some(cpu)) = (cpu_of(busy), cpu_of(waits)) else { return false };
            let since = |r: &Rank, cpu| (r.computed(Some(cpu)) - r.began).as_secs_f64();
            let used = (cpu - waits.began).as_secs_f64();
            seen = Some((
                since(waits, cpu),
                since(busy, all) / (all - busy.began).as_secs_f64(),
                busy.open,
            ));
            waits.open.is_some() && used >= 0.2
        });
        let (computed, share, open) = seen.unwrap();
        assert!((0.049..0.06).contains(&computed), "{}: {computed} s", mpi.said);
        assert!(share > 0.9 && open.is_none(), "{}: {share} {open:?}", mpi.said);
        // The launcher ends with its ranks.
        let _ = Command::new("kill").arg(program.id()).status();
        program.0.wait().unwrap();
    }
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn what_the_user_tells_counts_more() {
    for mpi in here() {
        let tool = Tool::new();
        let file = tool.path("edges.csv");
        fs::write(&file, "from,to,messages,bytes\n0,1,5,5\n").unwrap();
        let options = format!("--edges {}", file.display());
        let (_, report) = run(&tool, mpi, &options, "2", &["3", "5", "1"]);
        assert_eq!(report["messages"]["decided"], false, "{report:#}");
        assert_eq!(edges(&report), BTreeMap::from([((0, 1), (3, 300)), ((1, 0), (3, 300))]));
        assert!(has_note(&report, "messages are those of --profile or --edges;"), "{report:#}");
    }
}

/// Where nothing can be counted the program runs all the same, and one line says why.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn what_cannot_be_counted_is_said() {
    let tool = Tool::new();
    let file = tool.path("run.json");
    let options = format!("--policy nuco --probe on --json {}", file.display());
    let check = |options: &str, program: &[&str], said: &str| {
        let mut c = tool.run(options, program);
        let output = c.envs(ENVIRONMENT).env("XDG_CACHE_HOME", cache()).output().unwrap();
        let words = stderr(&output);
        assert!(output.status.success(), "{words}");
        let begin = "evenly: --probe: messages are not counted: ";
        let line = words.lines().find_map(|line| line.strip_prefix(begin));
        assert!(line.is_some_and(|line| line.contains(said)), "{words}");
        let report = json(&file);
        valid(&report);
        assert_eq!(report["messages"], Value::Null);
        assert!(has_note(&report, "nothing is known of messages (--profile, --edges;"));
    };
    check(&options, &["echo", "x"], "'echo' is neither linked against Open MPI or MPICH nor");
    for mpi in here() {
        let program = mpi.program("pairs");
        let launch = [&mpi.tool("mpirun"), "-n", "2", &program, "1", "1", "1"];
        let none = format!("{options} --mpicc /no/mpicc");
        check(&none, &launch, "--mpicc /no/mpicc: it cannot be run");
    }
    // Other policies do not ask for it.
    let mut c = tool.run("--policy hybrid --probe on", &["echo", "x"]);
    let output = c.env("XDG_CACHE_HOME", cache()).output().unwrap();
    assert!(!stderr(&output).contains("messages"), "{}", stderr(&output));
}

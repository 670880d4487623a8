//! `evenly map --profile` on real MPI programs, of Open MPI and of MPICH, in C and in Fortran: every
//! message is counted, the program notices nothing, and what cannot be profiled is said.
//!
//! What the programs send is written down in `tests/mpi/pattern.c` and `pattern.F90`; how collectives
//! count in docs/map.md. Here both are put into numbers anew.

use crate::mpi::{ENVIRONMENT, Mpi, N, here};
use crate::schema::valid;
use crate::support::{Child, Tool, json, stderr, text, wait_until};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Where probes are kept: for all tests together, as each takes seconds to build.
pub(crate) fn cache() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache")
}

/// `evenly map --profile` with these options on this command.
pub(crate) fn profile<S: AsRef<str>>(tool: &Tool, options: &[&str], command: &[S]) -> Command {
    let mut c = tool.evenly(["map", "--profile"]);
    c.args(options).arg("--").args(command.iter().map(AsRef::as_ref));
    c.envs(ENVIRONMENT).env("XDG_CACHE_HOME", cache()).env("TMPDIR", tool.dir.path());
    c
}

/// Messages and bytes by sender and receiver.
type Messages = BTreeMap<(u64, u64), (u64, u64)>;

/// The next rank, around.
fn right(i: u64) -> u64 {
    (i + 1) % N
}

/// The rank before, around.
fn left(i: u64) -> u64 {
    (i + N - 1) % N
}

#[derive(Default)]
struct Expected(Messages);

impl Expected {
    fn add(&mut self, from: u64, to: u64, messages: u64, bytes: u64) {
        let edge = self.0.entry((from, to)).or_default();
        *edge = (edge.0 + messages, edge.1 + messages * bytes);
    }

    /// The same from each rank.
    fn each(&mut self, to: impl Fn(u64) -> u64, messages: u64, bytes: u64) {
        (0..N).for_each(|i| self.add(i, to(i), messages, bytes));
    }

    /// From each to each other.
    fn pairs(&mut self, bytes: impl Fn(u64, u64) -> u64) {
        for (i, j) in (0..N).flat_map(|i| (0..N).map(move |j| (i, j))).filter(|(i, j)| i != j) {
            self.add(i, j, 1, bytes(i, j));
        }
    }

    /// What `pattern.c` and `pattern.F90` both do one-sided: what is got goes from its owner.
    fn one_sided(&mut self) {
        self.each(right, 1, 8);
        self.each(left, 1, 12);
        (1..N).for_each(|i| self.add(i, 0, 1, 4));
        for (i, j, bytes) in [(3, 0, 4), (2, 1, 4), (1, 3, 8)] {
            self.add(i, j, 1, bytes);
            self.add(j, i, 1, bytes);
        }
    }

    /// A barrier by dissemination: each rank sends to the next, and to the one after it.
    fn barrier(&mut self) {
        self.each(|i| (i + 1) % N, 1, 0);
        self.each(|i| (i + 2) % N, 1, 0);
    }

    /// The binomial tree of four: 0 to 2 and 1, 2 to 3.
    fn tree(&mut self, root: u64, bytes: u64, down: bool) {
        for (parent, child) in
            [(0, 1), (0, 2), (2, 3)].map(|(p, c)| ((p + root) % N, (c + root) % N))
        {
            let (from, to) = if down { (parent, child) } else { (child, parent) };
            self.add(from, to, 1, bytes);
        }
    }

    /// Around a ring: parts of 1 to 4 units, without the right neighbour's own.
    fn parts_around(&mut self, unit: u64) {
        for i in 0..N {
            let right = (i + 1) % N;
            let edge = self.0.entry((i, right)).or_default();
            *edge = (edge.0 + 3, edge.1 + unit * (10 - (right + 1)));
        }
    }

    /// To 1 and 2 further, as far as there are ranks.
    fn scan(&mut self, bytes: u64) {
        for (i, j) in [(0, 1), (1, 2), (2, 3), (0, 2), (1, 3)] {
            self.add(i, j, 1, bytes);
        }
    }

    /// Recursive doubling among four.
    fn allreduce(&mut self, bytes: u64) {
        self.each(|i| i ^ 1, 1, bytes);
        self.each(|i| i ^ 2, 1, bytes);
    }
}

/// What pattern.c sends, part by part.
fn expected_of_c() -> Expected {
    let mut e = Expected::default();
    // point
    e.each(right, 10, 12);
    [8, 16, 24, 32, 40, 48, 56].into_iter().for_each(|bytes| e.add(0, 1, 1, bytes));
    e.add(1, 0, 1, 0);
    e.each(left, 1, 32);
    e.each(left, 1, 4);
    // split
    e.each(|i| i ^ 2, 1, 5);
    e.each(|i| i ^ 2, 1, 7);
    e.add(3, 2, 1, 9);
    e.add(0, 1, 1, 3);
    e.add(2, 3, 1, 3);
    // derived, persistent
    e.add(0, 2, 1, 48);
    e.add(2, 3, 5, 24);
    e.add(2, 3, 3, 1);
    // collective
    e.barrier();
    e.tree(1, 100, true);
    e.tree(0, 80, false);
    e.allreduce(12);
    [0, 1, 3].into_iter().for_each(|i| e.add(i, 2, 1, 16));
    (1..N).for_each(|i| e.add(0, i, 1, 4 * (i + 1)));
    (0..3).for_each(|i| e.add(3, i, 1, 12));
    [0, 2, 3].into_iter().for_each(|i| e.add(i, 1, 1, 4 * (i + 1)));
    e.each(right, 3, 8);
    e.parts_around(1);
    e.pairs(|_, _| 8);
    e.pairs(|_, _| 8);
    e.pairs(|_, j| j + 1);
    e.pairs(|_, _| 8);
    e.pairs(|_, j| 4 * (j + 1));
    e.scan(4);
    e.scan(4);
    e.barrier();
    e.tree(0, 1, true);
    e.allreduce(4);
    // Three: 2 gives its part to 0, which exchanges with 1 and gives 2 the result.
    [(2, 0), (0, 1), (1, 0), (0, 2)].into_iter().for_each(|(i, j)| e.add(i, j, 1, 20));
    // neighbour
    e.each(right, 1, 4);
    e.each(left, 1, 4);
    (0..N - 1).for_each(|i| {
        e.add(i, i + 1, 1, 8);
        e.add(i + 1, i, 1, 8);
    });
    e.each(|i| (i + 2) % N, 1, 12);
    e.each(left, 1, 12);
    e.each(right, 1, 8);
    e.each(left, 1, 20);
    e.each(right, 1, 20);
    // sided
    e.one_sided();
    e.add(1, 2, 1, 4);
    e.add(0, 2, 1, 4);
    e.add(1, 3, 1, 4);
    e.each(right, 1, 16);
    // other
    e.each(|i| i ^ 1, 1, 6);
    e.each(right, 1, 2);
    e.each(|i| i ^ 1, 1, 4);
    e.each(right, 1, 8);
    e.barrier();
    e
}

/// What its part with large counts sends.
fn expected_of_large_counts() -> Expected {
    let mut e = Expected::default();
    e.each(right, 1, 12);
    e.each(left, 1, 16);
    e.add(0, 1, 1, 20);
    e.add(2, 3, 2, 4);
    e.tree(1, 24, true);
    [0, 1, 3].into_iter().for_each(|i| e.add(i, 2, 1, 8));
    (1..N).for_each(|i| e.add(0, i, 1, 4 * (i + 1)));
    e.each(right, 3, 4);
    e.parts_around(4);
    e.allreduce(4);
    (0..3).for_each(|_| e.pairs(|_, j| 4 * (j + 1)));
    e.scan(8);
    e.each(left, 1, 4);
    e.each(right, 1, 8);
    e.each(right, 1, 12);
    e.add(1, 3, 1, 8);
    e.add(3, 1, 1, 8);
    e
}

/// What `pattern.F90` sends, by sender and receiver.
fn expected_of_fortran() -> Expected {
    let mut e = Expected::default();
    e.each(|i| (i + 1) % N, 10, 12);
    e.add(0, 2, 1, 16);
    e.each(|i| (i + N - 1) % N, 1, 8);
    e.each(|i| i ^ 2, 1, 4);
    e.add(2, 3, 3, 20);
    e.add(2, 3, 2, 4);
    e.tree(1, 24, true);
    e.allreduce(8);
    e.allreduce(8);
    e.pairs(|_, _| 8);
    (1..N).for_each(|i| e.add(0, i, 1, 4));
    e.barrier();
    // every_collective
    [0, 1, 3].into_iter().for_each(|i| e.add(i, 2, 1, 8));
    [0, 2, 3].into_iter().for_each(|i| e.add(i, 1, 1, 4 * (i + 1)));
    [0, 1, 3].into_iter().for_each(|i| e.add(2, i, 1, 4 * (i + 1)));
    e.each(right, 3, 4);
    e.parts_around(4);
    e.tree(3, 16, false);
    e.pairs(|_, j| 4 * (j + 1));
    e.pairs(|_, _| 4);
    e.pairs(|_, _| 12);
    e.pairs(|_, j| 4 * (j + 1));
    e.scan(4);
    e.scan(8);
    // neighbours
    for bytes in [4, 8, 12] {
        e.each(left, 1, bytes);
        e.each(right, 1, bytes);
    }
    e.each(left, 1, 4);
    e.each(right, 1, 8);
    e.each(left, 1, 12);
    e.each(right, 1, 8);
    e.one_sided();
    e.add(1, 2, 1, 12);
    e.add(2, 1, 1, 4);
    // Before the file.
    e.each(right, 1, 4);
    e
}

/// What was counted, from a file of `evenly.tasks/1`.
fn counted(file: &Path) -> (Value, Messages) {
    let tasks = json(file);
    valid(&tasks);
    let number = |v: &Value| v.as_f64().unwrap() as u64;
    let edge = |e: &Value| {
        let [from, to, messages, bytes] =
            ["from", "to", "messages", "bytes"].map(|field| number(&e[field]));
        ((from, to), (messages, bytes))
    };
    let messages = tasks["edges"].as_array().unwrap().iter().map(edge).collect();
    (tasks, messages)
}

/// Runs a program of the tests under each MPI that is here; what was counted, and what was said.
fn each(form: &str, arguments: &[&str], check: impl Fn(Mpi, &Output, &Value, &Messages)) {
    for mpi in here() {
        let tool = Tool::new();
        let file = tool.path("tasks.json");
        let options = ["--topology", "numa:2 core:2", "--profile-out", file.to_str().unwrap()];
        let program = mpi.program(form);
        let words = [&[program.as_str()], arguments].concat();
        let output = profile(&tool, &options, &mpi.launch(&words)).output().unwrap();
        assert!(output.status.success(), "{}: {}", mpi.said, stderr(&output));
        // Standard output is the program's.
        assert_eq!(text(&output.stdout), "all results right\n", "{}", mpi.said);
        let (tasks, messages) = counted(&file);
        assert_eq!(tasks["tasks"].as_array().unwrap().len() as u64, N);
        check(mpi, &output, &tasks, &messages);
    }
}

/// All differences, so that one can see which part they come from.
#[track_caller]
fn same(mpi: Mpi, form: &str, counted: &Messages, expected: &Messages) {
    let pairs = counted.keys().chain(expected.keys()).collect::<std::collections::BTreeSet<_>>();
    let differences: Vec<String> = pairs
        .into_iter()
        .filter(|pair| counted.get(pair) != expected.get(pair))
        .map(|p| format!("{p:?}: {:?}, expected {:?}", counted.get(p), expected.get(p)))
        .collect();
    assert!(differences.is_empty(), "{}, {form}: {differences:#?}", mpi.said);
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn every_message_of_a_c_program_is_counted() {
    let parts =
        ["point", "split", "derived", "persistent", "collective", "neighbour", "sided", "other"];
    let expected = expected_of_c();
    each("c", &parts, |mpi, output, _, messages| {
        same(mpi, "c", messages, &expected.0);
        let said = stderr(output);
        assert!(said.contains("evenly: 4 ranks computed 0."), "{said}");
        assert!(said.contains("note: 4 calls of collectives between groups"), "{said}");
        assert!(said.contains("on 4 cores of 2 NUMA nodes"), "{said}");
    });
}

/// The calls of MPI-4, where they are there.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn messages_with_large_counts_are_counted() {
    let expected = expected_of_large_counts();
    each("c", &["large"], |mpi, _, _, messages| same(mpi, "large", messages, &expected.0));
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn every_message_of_a_fortran_program_is_counted() {
    fortran_is_counted("mpi");
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn every_message_of_a_program_in_fortran_2008_is_counted() {
    fortran_is_counted("f08");
}

fn fortran_is_counted(form: &str) {
    let expected = expected_of_fortran();
    each(form, &[], |mpi, _, _, messages| same(mpi, form, messages, &expected.0));
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn threads_that_send_at_the_same_time_are_counted() {
    let mut expected = Expected::default();
    expected.each(|i| (i + 1) % N, 400, 4);
    each("c", &["threads"], |mpi, _, _, messages| same(mpi, "threads", messages, &expected.0));
}

/// Rank k computes for k * 200 ms of CPU time; then they wait, which is no load, however it is done.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn load_is_cpu_time_outside_mpi() {
    each("c", &["load"], |mpi, _, tasks, _| {
        for (k, task) in tasks["tasks"].as_array().unwrap().iter().enumerate() {
            let (load, wanted) = (task["load_s"].as_f64().unwrap(), 0.2 * k as f64);
            assert!((load - wanted).abs() < 0.05, "{}, rank {k}: {load} s", mpi.said);
        }
    });
}

/// The commands of the manual, and that ranks are then where the file says.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn a_profiled_run_and_a_mapped_run() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/map.md");
    let page = fs::read_to_string(page).unwrap();
    for mpi in here() {
        let marker = format!("<!-- profile, {} -->", mpi.said);
        let rest = page.split_once(&marker).unwrap().1.trim_start_matches('\n');
        let lines: Vec<&str> = rest.lines().map_while(|line| line.strip_prefix("    ")).collect();
        assert_eq!(lines.len(), 2, "{}", mpi.said);
        // Another MPI may be the usual one.
        let script = lines
            .join("\n")
            .replace("mpirun ", &format!("{} ", mpi.tool("mpirun")))
            .replace("mpiexec ", &format!("{} ", mpi.tool("mpiexec")));
        let tool = Tool::new();
        // The program says where it is before it begins; it is a script, so that the launcher tells the MPI.
        let begin = "rank=${OMPI_COMM_WORLD_RANK-$PMI_RANK}\n\
                     grep Cpus_allowed_list /proc/self/status >where-$rank\n";
        script_at(&tool.path("app"), &format!("{begin}exec {} \"$@\"", mpi.program("c")));
        let exe = Path::new(tool.exe()).parent().unwrap().to_str().unwrap().to_owned();
        let path = format!("{exe}:{}", std::env::var("PATH").unwrap());
        let output = tool
            .by("sh")
            .args(["-e", "-c", &script])
            .envs(ENVIRONMENT)
            .env("XDG_CACHE_HOME", cache())
            .env("PATH", path)
            .current_dir(tool.dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}: {}", mpi.said, stderr(&output));
        let right = text(&output.stdout).matches("all results right\n").count();
        assert_eq!(right, 2, "{}", stderr(&output));
        // Ranks are on the same CPUs where the file says the same, and on others where it does not.
        let file = fs::read_to_string(tool.path("ranks.txt")).unwrap();
        let planned: Vec<&str> = match file.split_once("user:") {
            Some((_, list)) => list.trim().split(',').collect(),
            None => file.lines().map(|l| l.split_once("slot=").unwrap().1).collect(),
        };
        assert_eq!(planned.len() as u64, N, "{file}");
        let found: Vec<String> = (0..N)
            .map(|rank| fs::read_to_string(tool.path(&format!("where-{rank}"))).unwrap())
            .collect();
        for (i, j) in (0..N as usize).flat_map(|i| (0..i).map(move |j| (i, j))) {
            assert_eq!(planned[i] == planned[j], found[i] == found[j], "{file}: {found:?}");
        }
    }
}

/// The workload `mpi_stencil`, whose answer is known: four ranks in a square, the lower two with blocks
/// three times as high. What is counted is its pattern, and mapped it computes the same.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn a_stencil_with_uneven_rows_is_mapped() {
    const SWEEPS: u64 = 60;
    for mpi in here() {
        let tool = Tool::new();
        let path = |name: &str| tool.path(name).to_str().unwrap().to_owned();
        let (file, map, first, second) =
            (path("tasks.json"), path("map.csv"), path("first.json"), path("second.json"));
        let program = mpi.program("stencil");
        let sweeps = SWEEPS.to_string();
        let words = [&program, "--size", "120", "--sweeps", &sweeps, "--output"];
        let settings = ["--topology", "numa:2 core:1", "--algorithm", "nuco", "--alpha", "auto"];
        let once = path("once.json");
        let outputs = ["--profile-out", &file, "--out", &map, "--json", &once];
        let options = [&settings[..], &outputs].concat();
        let launch = |out: &str| mpi.launch(&[&words[..], &[out]].concat());
        let output = profile(&tool, &options, &launch(&first)).output().unwrap();
        assert!(output.status.success(), "{}: {}", mpi.said, stderr(&output));
        let (_, messages) = counted(Path::new(&file));
        let (high, low, wide) = (90, 30, 60);
        for (from, to, points) in [(0, 1, low), (2, 3, high), (0, 2, wide), (1, 3, wide)] {
            for pair in [(from, to), (to, from)] {
                let (count, bytes) = messages[&pair];
                // A few more are of collectives.
                assert!((SWEEPS..SWEEPS + 30).contains(&count), "{}, {pair:?}: {count}", mpi.said);
                let edges = SWEEPS * points * 8;
                assert!((edges..edges + 2_000).contains(&bytes), "{}, {pair:?}: {bytes}", mpi.said);
            }
        }
        for pair in [(0, 3), (3, 0), (1, 2), (2, 1)] {
            assert!(messages.get(&pair).is_none_or(|(count, _)| *count < 30), "{messages:?}");
        }
        let csv = fs::read_to_string(&map).unwrap();
        assert_eq!(csv.lines().count() as u64, 1 + N, "{csv}");
        // What was kept is mapped as it was at once, by the same measure.
        let later = path("later.json");
        let kept = ["map", "--tasks", &file, "--json", &later, "--out", &map];
        let mut keeping = tool.evenly(kept.iter().chain(&settings));
        assert!(keeping.output().unwrap().status.success());
        let [once, later] = [once, later].map(|name| json(Path::new(&name)));
        valid(&later);
        for part in ["options", "objective_s", "assignment"] {
            assert_eq!(once[part], later[part], "{}, {part}", mpi.said);
        }
        assert_eq!(later["options"]["same_core"], 2.0);
        assert_eq!(later["options"]["received_in_loads"], false);
        assert_eq!(later["options"]["migration_worth_s"], 0.0);
        assert_eq!(fs::read_to_string(&map).unwrap(), csv);
        // Once more, where the mapping says.
        let mut again = tool.evenly(["run", "--map", &map, "--policy", "juggle", "--"]);
        let output = again.args(launch(&second)).envs(ENVIRONMENT).output().unwrap();
        assert!(output.status.success(), "{}: {}", mpi.said, stderr(&output));
        for file in [&first, &second] {
            let said = json(Path::new(file));
            assert!(said["verified"] == true && said["ranks"] == N, "{said:#}");
            assert_eq!(said["grid"], serde_json::json!([2, 2]));
        }
    }
}

/// Ranks that share CPUs and exchange messages every few microseconds of work: much of the time in MPI
/// is then others' CPU time, and the loads are those of the blocks nevertheless.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn loads_of_ranks_that_share_cpus_are_those_of_their_blocks() {
    for mpi in here() {
        let tool = Tool::new();
        let file = tool.path("tasks.json");
        let options = ["--topology", "core:2", "--profile-out", file.to_str().unwrap()];
        let program = mpi.program("stencil");
        let words = [&program, "--size", "400", "--sweeps", "100", "--uneven", "3"];
        let output = profile(&tool, &options, &mpi.launch(&words)).output().unwrap();
        assert!(output.status.success(), "{}: {}", mpi.said, stderr(&output));
        assert!(!stderr(&output).contains("is not known: time in MPI"), "{}", stderr(&output));
        let (tasks, _) = counted(&file);
        let tasks = tasks["tasks"].as_array().unwrap();
        let loads: Vec<f64> = tasks.iter().map(|t| t["load_s"].as_f64().unwrap()).collect();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        let whole: f64 = loads.iter().sum();
        for (rank, blocks) in [1.0, 1.0, 3.0, 3.0].into_iter().enumerate() {
            let part = loads[rank] / whole * 8.0 / blocks;
            assert!((0.7..1.3).contains(&part), "{}, rank {rank}: {loads:?} s", mpi.said);
            // Of what is before and after the sweeps nothing is in `cpu_s`.
            let cpu = said["cpu_s"][rank].as_f64().unwrap();
            assert!(loads[rank] < cpu + 0.05, "{}, rank {rank}: {loads:?}, {said}", mpi.said);
        }
    }
}

/// Writes a shell script that can be executed.
pub(crate) fn script_at(path: &Path, body: &str) {
    evenly_testing::script(path, &format!("#!/bin/sh\n{body}\n"));
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn the_probe_is_built_once_and_kept() {
    for mpi in here() {
        let tool = Tool::new();
        let cache = tool.path("cache");
        let program = mpi.program("c");
        let run = || {
            let command = mpi.launch(&[&program]);
            let output =
                profile(&tool, &[], &command).env("XDG_CACHE_HOME", &cache).output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            stderr(&output)
        };
        let said = format!("evenly: built the MPI probe for {}", mpi.said);
        assert!(run().contains(&said));
        assert!(!run().contains("built"));
        let probes = fs::read_dir(cache.join("evenly/probe")).unwrap().count();
        assert_eq!((probes, fs::read_dir(cache.join("evenly/profiles")).unwrap().count()), (1, 0));
    }
}

/// A program that ends badly ends so under evenly, too, and one line says what became of the profile.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn however_the_program_ends() {
    for mpi in here() {
        let tool = Tool::new();
        let program = mpi.program("c");
        // Launchers make one status of those of all ranks, as these happen to end: a shell notes which.
        let noted = tool.path("status");
        let note = format!("\"$@\"; s=$?; echo $s >{}; exit $s", noted.display());
        let run = |what: &str| {
            let mut command = ["sh", "-c", &note, "sh"].map(str::to_owned).to_vec();
            command.extend(mpi.launch(&[&program, what]));
            let output = profile(&tool, &["--topology", "core:4"], &command).output().unwrap();
            let words = stderr(&output);
            let status: i32 = fs::read_to_string(&noted).unwrap().trim().parse().unwrap();
            assert!(status != 0, "{} {what}: {words}", mpi.said);
            assert_eq!(output.status.code(), Some(status), "{} {what}: {words}", mpi.said);
            words
        };
        // All ranks have called MPI_Finalize: what was counted is of use, whatever the status.
        let said = run("fail");
        assert!(said.contains("evenly: 4 ranks computed") && said.contains("makespan"), "{said}");
        let said = run("die");
        let line = said.lines().find(|l| l.starts_with("evenly: nothing was mapped: "));
        assert!(line.is_some_and(|l| l.contains("no rank wrote a profile")), "{said}");
        for what in ["abort", "exit"] {
            let said = run(what);
            // Either all ranks had come so far, or some had not.
            let all = said.contains("4 of 4 ranks ended without MPI_Finalize");
            let some =
                said.contains("evenly: nothing was mapped: ") && said.contains("wrote no profile");
            assert!(all != some, "{} {what}: {said}", mpi.said);
        }
    }
}

/// Signals are the program's while it runs; after it they are evenly's again.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn a_long_search_is_ended_by_a_signal() {
    let Some(mpi) = here().into_iter().next() else { return };
    let tool = Tool::new();
    let (program, said) = (mpi.program("c"), tool.path("said"));
    let mut c = profile(&tool, &["--time-limit", "10000min"], &mpi.launch(&[&program]));
    let files = c.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap());
    let mut evenly = Child::spawn(files);
    wait_until("the program has ended", || {
        assert_eq!(evenly.0.try_wait().unwrap(), None, "{}", fs::read_to_string(&said).unwrap());
        fs::read_to_string(&said).unwrap().contains("evenly: 4 ranks computed")
    });
    let pid = rustix::process::Pid::from_child(&evenly.0);
    // Not SIGINT, which shells have background jobs ignore, and so this test.
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let mut ended = None;
    wait_until("the search has ended", || {
        ended = evenly.0.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.unwrap().signal(), Some(15), "{}", fs::read_to_string(&said).unwrap());
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn what_cannot_be_profiled() {
    let mpis = here();
    let tool = Tool::new();
    let refused = |command: &mut Command, said: &str| {
        let output = command.output().unwrap();
        let words = stderr(&output);
        assert_eq!(output.status.code(), Some(125), "{words}");
        assert!(words.lines().last().unwrap().contains(said), "{said}: {words}");
    };
    let cc = |what: &str| {
        let path = tool.path("cc");
        script_at(&path, &format!("cat >/dev/null\n{what}"));
        path.to_str().unwrap().to_owned()
    };
    refused(
        &mut profile(&tool, &["--mpicc", &cc("echo evenly_none")], &["true"]),
        "a compiler of Open MPI or MPICH is needed",
    );
    refused(
        profile(&tool, &[], &["true"]).env("PATH", tool.path("empty")),
        "no compiler of an MPI was found (tried mpicc); it is needed once, to build the probe",
    );
    refused(
        profile(&tool, &[], &["true"]).env_remove("XDG_CACHE_HOME").env_remove("HOME"),
        "neither XDG_CACHE_HOME nor HOME is set",
    );
    refused(
        &mut profile(&tool, &["--json", "-"], &["true"]),
        "standard output belongs to the program",
    );
    refused(&mut profile(&tool, &["--topology", "numa:x"], &["true"]), "numa:x");
    refused(&mut profile(&tool, &[], &["-n"]), "there is no option -n");
    for mpi in &mpis {
        // Not `true`: where ranks end at once one in ten of MPICH's mpiexec dies of SIGPIPE by itself.
        let launch = mpi.launch(&["sleep", "0.3"]);
        refused(&mut profile(&tool, &[], &launch), "no rank wrote a profile");
        let spaced = tool.path("a b");
        refused(
            profile(&tool, &[], &launch).env("XDG_CACHE_HOME", &spaced),
            "LD_PRELOAD takes no names with spaces or colons",
        );
        // A program that is not there ends as the launcher says.
        let output = profile(&tool, &[], &mpi.launch(&["./no-such-program"])).output().unwrap();
        assert!(!output.status.success());
        assert!(stderr(&output).contains("evenly: nothing was mapped"), "{}", stderr(&output));
    }
    if let [one, other] = mpis[..] {
        let program = one.program("c");
        refused(
            &mut profile(&tool, &[], &other.launch(&[&program])),
            &format!("is linked against {}", one.said),
        );
        refused(
            &mut profile(&tool, &["--mpicc", &other.tool("mpicc")], &one.launch(&[&program])),
            &format!("it is of {}, and the program uses {}", other.said, one.said),
        );
        // Where nobody can tell beforehand, the program runs as it does, and its ranks say so.
        let script = one.launch(&[&program]).join(" ");
        let options = ["--mpicc", &other.tool("mpicc")];
        let output = profile(&tool, &options, &["sh", "-c", &script]).output().unwrap();
        let alone = Command::new("sh").args(["-c", &script]).envs(ENVIRONMENT).output().unwrap();
        let lines = |output: &Output| {
            let mut all: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
            all.sort();
            all
        };
        assert!(alone.status.success() && lines(&output) == lines(&alone), "{output:?} {alone:?}");
        refused(
            &mut profile(&tool, &options, &["sh", "-c", &script]),
            &format!("uses another MPI than {}, for which the probe was built", other.said),
        );
    }
    let output = profile(&tool, &[], &["./no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{}", stderr(&output));
}

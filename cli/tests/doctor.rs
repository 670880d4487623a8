//! `evenly doctor` on real programs: a table of ailing ones with their verdicts, and of healthy ones with
//! none. `cargo test -p evenly-cli --test doctor -- --nocapture` prints it.
//!
//! Nothing here depends on how fast the machine is. Whether somebody else uses its CPUs does: what the
//! doctor says of that is right, and left out where a program is to be healthy.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_testing::groups::{Group, KEY};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What other programs, and the host of a virtual machine, do to any program.
const OF_THE_MACHINE: [&str; 2] = ["neighbour", "slow_cpu"];

/// What runtimes heed, and a user may have set.
const SETTINGS: [&str; 7] = [
    "OMP_NUM_THREADS",
    "OMP_WAIT_POLICY",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "KMP_LIBRARY",
];

/// A program, and what ails it.
struct Patient {
    name: &'static str,
    command: Vec<String>,
    variables: Vec<(&'static str, String)>,
    /// The first finding; none for a healthy one.
    ails: Option<&'static str>,
    /// Whether the line to paste is tried, and has to mend it.
    mended: bool,
    /// Whether it is seen by idle CPUs, which others take on a busy machine: that is to be said then.
    by_idle: bool,
}

fn patient(name: &'static str, ails: &'static str, command: &[&str]) -> Patient {
    let command = command.iter().map(|w| (*w).to_owned()).collect();
    let ails = (ails != "healthy").then_some(ails);
    Patient { name, command, variables: Vec::new(), ails, mended: false, by_idle: false }
}

/// MPI ranks, so many.
fn ranks(
    mpi: mpi::Mpi,
    names: [&'static str; 2],
    ails: &'static str,
    n: u32,
    program: &[&str],
) -> Patient {
    let name = names[usize::from(mpi.name != "mpich")];
    let (launcher, n) = (mpi.tool("mpirun"), n.to_string());
    let mut patient = patient(name, ails, &[&[launcher.as_str(), "-n", &n], program].concat());
    patient.variables = mpi::ENVIRONMENT.map(|(k, v)| (k, v.to_owned())).into();
    patient
}

impl Patient {
    fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// The line to paste mends it.
    fn mended(mut self) -> Self {
        self.mended = true;
        self
    }

    /// What ails it is seen by CPUs that are idle.
    fn by_idle(mut self) -> Self {
        self.by_idle = true;
        self
    }

    /// The same after the user has pasted what was proposed.
    fn pasted(&self, line: &str) -> Self {
        let command = ["sh", "-c", line].map(str::to_owned).into();
        Self { name: self.name, command, variables: self.variables.clone(), ..*self }
    }

    /// What the doctor says, as JSON and as text.
    fn see(&self, state: &State) -> (Value, String) {
        let json = state.sign("diagnosis.json");
        let command: Vec<&str> = self.command.iter().map(String::as_str).collect();
        let args = [&["doctor", "--json", &json, "--"], &command[..]].concat();
        let mut evenly = state.command(&args);
        for name in SETTINGS {
            evenly.env_remove(name);
        }
        let output = evenly.envs(self.variables.iter().map(|(k, v)| (k, v))).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {said}", self.name);
        let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        schema::valid(&value);
        assert!(said.lines().count() <= 30, "{}: more than a screen: {said}", self.name);
        (value, said)
    }
}

fn kinds(diagnosis: &Value) -> Vec<String> {
    let all = diagnosis["findings"].as_array().unwrap();
    all.iter().map(|f| f["kind"].as_str().unwrap().to_owned()).collect()
}

/// A group with a quota, and a shell that runs a program in it.
fn limited(name: &str, quota_us: u64) -> Option<(Group, String)> {
    let group = match Group::new("cpu", name) {
        Ok(group) => group,
        Err(e) => {
            evenly_testing::skip(KEY, format!("cannot make a control group: {e}"));
            return None;
        }
    };
    group.set_quota(Some(quota_us), 50_000).unwrap();
    let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.path().display());
    Some((group, script))
}

/// A file that programs write to.
fn scratch() -> PathBuf {
    let here = Path::new(env!("CARGO_TARGET_TMPDIR"));
    here.join(format!("doctor-{}", std::process::id()))
}

/// Phases that are shorter than the kernel's turns: threads do not share CPUs within one.
const SHORT: [&str; 4] = ["--phases", "1000", "--iters", "800000"];

fn ailing(limited: Option<&str>) -> Vec<Patient> {
    let (spmd, gomp, omp) = (workload("spmd"), workload("omp_spmd-gomp"), workload("omp_spmd-omp"));
    let phases = ["--phases", "40", "--iters", "8000000"];
    let eight = ["--threads", "8", "--iters", "20000000"];
    let file = format!("of={}", scratch().display());
    // As many writes as there is time for: how long one takes is the disk's affair.
    let writes = format!(
        "timeout 2 dd if=/dev/zero {file} bs=4k count=1000000 oflag=dsync status=none; true"
    );
    let two = format!("{gomp} --threads 2 --phases 40 --iters 8000000");
    let one = format!("{gomp} --threads 1 --phases 40 --iters 8000000");
    let both = format!("taskset -c 0 {spmd} --threads 1 --main-works 1 --iters 200000000");
    let mut all = vec![
        patient(
            "4 threads under taskset -c 0",
            "narrow_mask",
            &[&["taskset", "-c", "0", &spmd, "--threads", "4"], &phases[..]].concat(),
        )
        .mended(),
        patient(
            "2 processes pinned to CPU 0",
            "pinned_together",
            &["sh", "-c", &format!("{both} & {both}; wait")],
        ),
        patient(
            "OpenMP, OMP_PLACES={0}",
            "narrow_mask",
            &[&[gomp.as_str(), "--threads", "2"], &phases[..]].concat(),
        )
        .with("OMP_PLACES", "{0}")
        .mended(),
        // Each binds its first thread to the first place, and knows nothing of the other.
        patient(
            "OpenMP, 2 processes with 1 thread on 2 CPUs, OMP_PROC_BIND=true",
            "pinned_together",
            &["sh", "-c", &format!("{one} & {one}; wait")],
        )
        .with("OMP_PROC_BIND", "true")
        .mended(),
        patient(
            "4 threads on 2 CPUs, barriers with sched_yield",
            "spinning",
            &[
                &[
                    spmd.as_str(),
                    "--threads",
                    "4",
                    "--barrier",
                    "yield",
                    "--imbalance",
                    "0.4,1,1,1.6",
                ],
                &phases[..],
            ]
            .concat(),
        ),
        patient(
            "OpenMP, 4 threads on 2 CPUs, OMP_WAIT_POLICY=active",
            "spinning",
            &[&[omp.as_str(), "--threads", "4"], &phases[..]].concat(),
        )
        .with("OMP_WAIT_POLICY", "active")
        .mended(),
        // It does not see that another process has as many, and spins without end.
        patient(
            "OpenMP (gcc), 2 processes with 2 threads on 2 CPUs, GOMP_SPINCOUNT=infinity",
            "spinning",
            &["sh", "-c", &format!("{two} & {two}; wait")],
        )
        .with("GOMP_SPINCOUNT", "infinity"),
        patient(
            "OpenMP (clang), 4 threads on 2 CPUs, KMP_BLOCKTIME=infinite",
            "spinning",
            &[&[omp.as_str(), "--threads", "4"], &phases[..]].concat(),
        )
        .with("KMP_BLOCKTIME", "infinite"),
        // Without yielding: nobody sees that but the probe.
        patient(
            "OpenMP (clang), 4 threads on 2 CPUs, KMP_LIBRARY=turnaround, KMP_USE_YIELD=0",
            "spinning",
            &[&[omp.as_str(), "--threads", "4"], &phases[..]].concat(),
        )
        .with("KMP_LIBRARY", "turnaround")
        .with("KMP_USE_YIELD", "0"),
        patient(
            "work of 1 and 3",
            "uneven_work",
            &[
                spmd.as_str(),
                "--threads",
                "2",
                "--imbalance",
                "0.5,1.5",
                "--phases",
                "60",
                "--iters",
                "15000000",
            ],
        ),
        patient(
            "work of 1, 1 and 4 on 2 CPUs",
            "uneven_work",
            &[
                spmd.as_str(),
                "--threads",
                "3",
                "--imbalance",
                "0.5,0.5,2",
                "--phases",
                "40",
                "--iters",
                "15000000",
            ],
        ),
        patient(
            "OpenMP, OMP_NUM_THREADS=8 on 2 CPUs",
            "too_many_threads",
            &[&[gomp.as_str()], &phases[..]].concat(),
        )
        .with("OMP_NUM_THREADS", "8")
        .mended(),
        patient("writes that wait for the disk", "blocked_io", &["sh", "-c", &writes]),
        patient(
            "3 threads on 2 CPUs",
            "uneven_division",
            &[&[spmd.as_str(), "--threads", "3"], &SHORT[..]].concat(),
        )
        .by_idle(),
    ];
    if let Some(script) = limited {
        let shell = ["sh", "-c", script, "limited"];
        all.push(patient(
            "8 threads, quota of a fifth of a CPU",
            "quota",
            &[&shell[..], &[&spmd], &eight].concat(),
        ));
        all.push(patient(
            "OpenMP, 2 threads, quota of a fifth of a CPU",
            "quota",
            &[&shell[..], &[&gomp, "--threads", "2"], &phases].concat(),
        ));
    }
    for mpi in mpi::here() {
        let (stencil, metbench) = (mpi.program("stencil"), mpi.program("metbench"));
        let names = ["4 MPI ranks on 2 CPUs (MPICH)", "4 MPI ranks on 2 CPUs (Open MPI)"];
        let work = [stencil.as_str(), "--size", "1200", "--sweeps", "200"];
        all.push(ranks(mpi, names, "mpi_oversubscribed", 4, &work).with(YIELDS, "0"));
        let names =
            ["2 MPI ranks, work of 1 and 4 (MPICH)", "2 MPI ranks, work of 1 and 4 (Open MPI)"];
        let work =
            [metbench.as_str(), "--loads", "1,4", "--iterations", "20", "--iters", "4000000"];
        all.push(ranks(mpi, names, "uneven_work", 2, &work));
    }
    all
}

/// Whether ranks of Open MPI yield while they wait.
const YIELDS: &str = "OMPI_MCA_mpi_yield_when_idle";

fn healthy(limited: Option<&str>) -> Vec<Patient> {
    let (spmd, gomp, omp) = (workload("spmd"), workload("omp_spmd-gomp"), workload("omp_spmd-omp"));
    let phases = ["--phases", "40", "--iters", "10000000"];
    let writes =
        format!("timeout 1 sh -c 'while :; do echo x; done' >{}; true", scratch().display());
    let of = |name, program: &str, options: &[&str]| {
        patient(name, "healthy", &[&[program], options, &phases].concat())
    };
    let mut all = vec![
        of("1 thread", &spmd, &["--threads", "1"]),
        of("2 threads, blocking barriers", &spmd, &["--threads", "2"]),
        of("2 threads, spinning barriers", &spmd, &["--threads", "2", "--barrier", "spin"]),
        of(
            "2 threads, barriers with sched_yield",
            &spmd,
            &["--threads", "2", "--barrier", "yield"],
        ),
        of("4 threads, blocking barriers", &spmd, &["--threads", "4"]),
        of("2 threads, each pinned to a CPU", &spmd, &["--threads", "2", "--pin", "static"]),
        of("OpenMP (gcc), 2 threads", &gomp, &["--threads", "2"]),
        of("OpenMP (clang), 2 threads", &omp, &["--threads", "2"]),
        of("OpenMP, 2 threads, OMP_WAIT_POLICY=active", &omp, &["--threads", "2"])
            .with("OMP_WAIT_POLICY", "active"),
        of("OpenMP, 2 threads, OMP_PROC_BIND=true", &gomp, &["--threads", "2"])
            .with("OMP_PROC_BIND", "true"),
        patient(
            "100 threads that sleep",
            "healthy",
            &[&workload("churn"), "--threads", "100", "--workers", "2", "--duration-s", "1"],
        ),
        patient("a program that sleeps", "healthy", &["sleep", "0.7"]),
        of("OpenMP, OMP_NUM_THREADS=2 on 2 CPUs", &gomp, &[]).with("OMP_NUM_THREADS", "2"),
        of(
            "OpenMP (gcc), 4 threads on 2 CPUs, GOMP_SPINCOUNT=infinity",
            &gomp,
            &["--threads", "4"],
        )
        .with("GOMP_SPINCOUNT", "infinity"),
        of("OpenMP (clang), 2 threads, KMP_LIBRARY=turnaround", &omp, &["--threads", "2"])
            .with("KMP_LIBRARY", "turnaround"),
        patient(
            "1 thread under taskset -c 0",
            "healthy",
            &[&["taskset", "-c", "0", &spmd, "--threads", "1"], &phases[..]].concat(),
        ),
        patient("writes that nobody waits for", "healthy", &["sh", "-c", &writes]),
        patient(
            "4 threads on 2 CPUs",
            "healthy",
            &[&[spmd.as_str(), "--threads", "4"], &SHORT[..]].concat(),
        ),
    ];
    for mpi in mpi::here() {
        let metbench = mpi.program("metbench");
        let work = [metbench.as_str(), "--loads", "1", "--iterations", "20", "--iters", "8000000"];
        let names = ["2 MPI ranks on 2 CPUs (MPICH)", "2 MPI ranks on 2 CPUs (Open MPI)"];
        all.push(ranks(mpi, names, "healthy", 2, &work));
        // MPICH knows no yielding.
        if mpi.name != "mpich" {
            let name = "4 MPI ranks on 2 CPUs that yield (Open MPI)";
            all.push(ranks(mpi, [name; 2], "healthy", 4, &work).with(YIELDS, "1"));
        }
    }
    if let Some(script) = limited {
        let shell = ["sh", "-c", script, "limited", &spmd, "--threads", "2"];
        all.push(patient(
            "2 threads, a quota of 8 CPUs",
            "healthy",
            &[&shell[..], &phases].concat(),
        ));
    }
    all
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ailing_programs_have_their_verdicts_and_healthy_ones_none() {
    // Masks and pins are of CPU 0 among two.
    if whole().is_none_or(|cpus| cpus.to_string() != "0-1") {
        return evenly_testing::skip("exactly-two-cpus", "not exactly the CPUs 0 and 1");
    }
    let state = State::new();
    let (tight, ample) = (limited("doctor-tight", 10_000), limited("doctor-ample", 400_000));
    let script = |group: &Option<(Group, String)>| group.as_ref().map(|g| g.1.clone());
    let patients =
        ailing(script(&tight).as_deref()).into_iter().chain(healthy(script(&ample).as_deref()));
    let (mut table, mut wrong) = (String::new(), String::new());
    for p in patients {
        let (diagnosis, said) = p.see(&state);
        let found = kinds(&diagnosis);
        let own: Vec<&String> =
            found.iter().filter(|k| !OF_THE_MACHINE.contains(&k.as_str())).collect();
        let disturbed = own.len() < found.len();
        let taken = p.by_idle && own.is_empty() && disturbed;
        // What ails it is the first, and where nobody else had the CPUs the only one: one cause is not told twice.
        let first = own.first().map(|k| k.as_str()) == p.ails;
        let right = taken || first && (own.len() <= 1 || disturbed);
        let verdict = match own.as_slice() {
            [] if taken => String::from("- (others have the CPUs)"),
            [] => String::from("-"),
            own => format!("{own:?}"),
        };
        let _ = writeln!(table, "| {} | {} | {verdict} |", p.name, p.ails.unwrap_or("-"));
        if !right {
            let _ = writeln!(wrong, "{} is not {:?}:\n{said}", p.name, p.ails);
        }
        if let (Some(kind), true) = (p.ails, right && p.mended) {
            let all = diagnosis["findings"].as_array().unwrap();
            let finding = all.iter().find(|f| f["kind"] == kind).unwrap();
            let line = finding["paste"].as_str().unwrap();
            let (after, said) = p.pasted(line).see(&state);
            let gone = !kinds(&after).iter().any(|k| k == kind);
            let _ = writeln!(table, "| the same, pasted: {} | - | {:?} |", p.name, kinds(&after));
            if !gone || after["threads"] == 0 {
                let _ = writeln!(wrong, "{} is still so with {line}:\n{said}", p.name);
            }
        }
    }
    eprintln!("\n| program | ails | verdict |\n|---|---|---|\n{table}");
    assert!(wrong.is_empty(), "{wrong}");
    let _ = fs::remove_file(scratch());
}

/// A program on one CPU, and somebody else on the other.
#[test]
fn a_neighbour_on_another_cpu_is_none() {
    let Some(whole) = whole() else { return };
    let [first, second] = [0, 1].map(|i| whole.iter().nth(i).unwrap().to_string());
    let state = State::new();
    let noise = workload("noise");
    let hog = Running::start(&[&noise, "--always", "--cpu", &first, "--duration-s", "300"]);
    let spmd = workload("spmd");
    let work = ["--threads", "1", "--iters", "300000000"];
    let p = patient("", "healthy", &[&["taskset", "-c", &second, &spmd], &work[..]].concat());
    let (diagnosis, said) = p.see(&state);
    // Others on its own CPU are their affair.
    let pid = format!("(pid {})", hog.pid());
    assert!(diagnosis["threads"] == 1 && !said.contains(&pid), "{said}");
}

#[test]
fn a_neighbour_is_named() {
    if whole().is_none() {
        return;
    }
    let state = State::new();
    // One that gets more of that CPU than all the others of a busy machine, where that may be asked for.
    let noise = workload("noise");
    let mut raised = Command::new(&noise);
    raised.args(["--nice", "-5", "--always", "--duration-s", "0"]);
    let raised = raised.stdout(Stdio::null()).stderr(Stdio::null()).status();
    let nice = if raised.unwrap().success() { "-5" } else { "0" };
    let hog =
        Running::start(&[&noise, "--always", "--cpu", "0", "--nice", nice, "--duration-s", "300"]);
    let spmd = workload("spmd");
    let p = patient(
        "",
        "neighbour",
        &["taskset", "-c", "0", &spmd, "--threads", "1", "--iters", "300000000"],
    );
    let (diagnosis, said) = p.see(&state);
    let all = diagnosis["findings"].as_array().unwrap();
    let found = all.iter().find(|f| f["kind"] == "neighbour").unwrap_or_else(|| panic!("{said}"));
    assert_eq!(found["cpus"], "0", "{said}");
    let named = found["evidence"].to_string() + &found["sentence"].to_string();
    assert!(
        named.contains(&format!("noise (pid {})", hog.pid())) || named.contains("more"),
        "{said}"
    );
}

#[test]
fn threads_are_named() {
    let state = State::new();
    let p = patient(
        "",
        "uneven_work",
        &[
            &workload("spmd"),
            "--threads",
            "2",
            "--imbalance",
            "0.5,1.5",
            "--phases",
            "20",
            "--iters",
            "15000000",
            "--name-prefix",
            "rank",
        ],
    );
    let (diagnosis, said) = p.see(&state);
    let all = diagnosis["findings"].as_array().unwrap();
    let found = all.iter().find(|f| f["kind"] == "uneven_work").unwrap_or_else(|| panic!("{said}"));
    assert!(found["sentence"].as_str().unwrap().starts_with("rank1 ("), "{said}");
    let balance = diagnosis["efficiency"]["factors"]["load_balance"].as_f64().unwrap();
    assert!((balance - 2.0 / 3.0).abs() < 0.1, "{said}");
}

#[test]
fn the_program_runs_as_without_it() {
    let state = State::new();
    let run = |args: &[&str], threads: Option<&str>| {
        let mut c = state.command(&[&["doctor"], args].concat());
        match threads {
            Some(n) => c.env("OMP_NUM_THREADS", n),
            None => c.env_remove("OMP_NUM_THREADS"),
        };
        let o = c.output().unwrap();
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        (o.status.code(), text(&o.stdout), text(&o.stderr))
    };
    let echo = "echo $OMP_NUM_THREADS; exit 7";
    let (status, out, said) = run(&["--", "sh", "-c", echo], Some("9999"));
    assert_eq!((status, out.as_str()), (Some(7), "9999\n"), "{said}");
    let (status, out, said) = run(&["--fix-env", "--", "sh", "-c", echo], Some("9999"));
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert_eq!(status, Some(7));
    assert!(out.trim().parse::<usize>().is_ok_and(|n| n <= cpus), "{out}");
    assert!(said.contains(&format!("evenly: sets OMP_NUM_THREADS={}", out.trim())), "{said}");
    // All that is wrong, and each is said.
    let wrong = [
        ("OMP_WAIT_POLICY", "active", "passive"),
        ("GOMP_SPINCOUNT", "infinity", "1000"),
        ("KMP_BLOCKTIME", "infinite", "0"),
        ("KMP_LIBRARY", "turnaround", "throughput"),
    ];
    let names: Vec<String> = wrong.iter().map(|(name, ..)| format!("${name}")).collect();
    let echo_all = format!("echo $OMP_NUM_THREADS {}", names.join(" "));
    let fixed = |before: &[&str], threads: Option<&str>| {
        let evenly = evenly().display().to_string();
        let words =
            [before, &[evenly.as_str(), "doctor", "--fix-env", "--", "sh", "-c", &echo_all]]
                .concat();
        let mut c = Command::new(words[0]);
        c.args(&words[1..]).env("EVENLY_STATE_DIR", state.path()).env_remove("OMP_NUM_THREADS");
        c.envs(wrong.map(|(name, value, _)| (name, value)));
        c.envs(threads.map(|n| ("OMP_NUM_THREADS", n)));
        let o = c.output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr).into_owned();
        let out = String::from_utf8_lossy(&o.stdout).into_owned();
        let (threads, rest) = out.trim().split_once(' ').unwrap_or_else(|| panic!("{out}{said}"));
        assert_eq!(rest, "passive 1000 0 throughput", "{said}");
        for (name, value, fixed) in wrong {
            let set = format!("evenly: sets {name}={fixed}: {name}={value} lets threads spin");
            assert!(said.contains(&set), "{said}");
        }
        let set = format!("evenly: sets OMP_NUM_THREADS={threads}: ");
        let why = said.lines().find_map(|l| l.strip_prefix(&set)).unwrap_or_default().to_owned();
        (threads.to_owned(), why)
    };
    let (threads, why) = fixed(&[], Some("9999"));
    assert!(threads.parse::<usize>().is_ok_and(|n| n <= cpus), "{threads}");
    assert!(why.starts_with("it was 9999, and "), "{why}");
    // A quota that OpenMP does not see.
    if let Some((_group, script)) = limited("doctor-fix", 50_000).filter(|_| cpus > 1) {
        let (threads, why) = fixed(&["sh", "-c", &script, "limited"], None);
        assert_eq!(threads, "1");
        assert!(why.contains("the CPU quota is 1.00 CPUs"), "{why}");
    }
    // What is in order is left alone.
    let (_, out, said) = run(&["--fix-env", "--", "sh", "-c", echo], Some("1"));
    assert!(out == "1\n" && !said.contains("sets"), "{out}{said}");
    for (bad, word) in [
        (&["--", "/nowhere/program"][..], "cannot run"),
        (&[], "required"),
        (&["--fix-env", "4711"], "--fix-env"),
        (&["--from", "/nowhere/recording"], "/nowhere/recording"),
        (&["999999999"], "999999999"),
        (&["--json", "-", "--", "true"], "standard output"),
    ] {
        let (status, out, said) = run(bad, None);
        let expected = if word == "cannot run" { 127 } else { 125 };
        assert_eq!((status, out.as_str()), (Some(expected), ""), "{said}");
        assert!(said.contains(word) && said.lines().count() == 1, "{bad:?}: {said}");
    }
}

/// A program that is linked statically.
fn fixed(state: &State) -> String {
    let (source, program) = (state.sign("x.c"), state.sign("fixed"));
    fs::write(&source, "int main(void){return 0;}").unwrap();
    let built = Command::new("gcc").args(["-static", &source, "-o", &program]).status();
    assert!(built.unwrap().success());
    program
}

/// What the doctor could not see, and all that it said.
fn gaps(state: &State, options: &[&str], command: &[&str]) -> (Value, String) {
    let json = state.sign("gaps.json");
    let args = [&["doctor", "--json", &json], options, &["--"], command].concat();
    let o = state.command(&args).envs(mpi::ENVIRONMENT).output().unwrap();
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(o.status.success(), "{said}");
    let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    schema::valid(&value);
    (value["gaps"].clone(), said)
}

fn assert_said(state: &State, program: &str, command: &[&str]) {
    let why = format!(
        "who spins while waiting: '{program}' runs without the probe: it is linked statically; link \
         it dynamically to be seen"
    );
    let (gaps, said) = gaps(state, &[], command);
    assert_eq!(gaps, serde_json::json!([why]), "{said}");
    assert!(said.contains(&format!("  not seen    {why}\n")), "{said}");
}

/// The loader drops the probe without a word, also where somebody else starts the program.
#[test]
fn what_cannot_be_seen_is_said() {
    let state = State::new();
    let program = fixed(&state);
    let script = format!("cd / && exec {program} x");
    for command in [&[program.as_str()][..], &["env", "A=b", &program], &["sh", "-c", &script]] {
        assert_said(&state, &program, command);
    }
    assert_eq!(gaps(&state, &["--probe", "off"], &[&program]).0, serde_json::json!([]));
    assert_eq!(gaps(&state, &[], &["sh", "-c", "env true"]).0, serde_json::json!([]));
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn what_cannot_be_seen_behind_a_launcher_is_said() {
    let state = State::new();
    let program = fixed(&state);
    for mpi in mpi::here() {
        assert_said(&state, &program, &[&mpi.tool("mpirun"), "-n", "2", &program]);
    }
}

/// A script that starts MPI tells nobody of it: who polls is not known then, and no words are made of it.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn mpi_that_the_command_does_not_tell_of_is_said() {
    let state = State::new();
    for mpi in mpi::here() {
        let script = state.sign("job");
        let line = format!("exec {} -n 2 {} 1 1 1", mpi.tool("mpirun"), mpi.program("pairs"));
        fs::write(&script, format!("#!/bin/sh\n{line}\n")).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let json = state.sign("script.json");
        let mut evenly = state.command(&["doctor", "--json", &json, "--", &script]);
        let o = evenly.envs(mpi::ENVIRONMENT).output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr);
        assert!(o.status.success(), "{}: {said}", mpi.said);
        let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        schema::valid(&value);
        let missed = "who spins while waiting: a program had MPI, and calls of it were not seen";
        assert!(value["gaps"][0].as_str().is_some_and(|g| g.starts_with(missed)), "{value:#}");
        assert!(said.contains("(evenly doctor -- mpirun -n 1 ...)"), "{said}");
        assert_ne!(value["efficiency"]["basis"], "probe", "{value:#}");
    }
}

/// A program that another evenly has started with the probe tells the doctor, too, who spins.
#[test]
#[ignore = "needs clang: ./dev test --all"]
fn a_running_program_that_has_the_probe_is_asked() {
    let Some(whole) = whole() else { return };
    let program = workload("omp_spmd-omp");
    if !std::path::Path::new(&program).exists() {
        return evenly_testing::skip("clang", format!("there is no {program}"));
    }
    let state = State::new();
    let threads = (2 * whole.len()).to_string();
    let work = ["--threads", &threads, "--phases", "100000", "--iters", "4000000"];
    // Without yielding: from outside nobody can tell.
    let spins =
        [("OMP_WAIT_POLICY", "active"), ("KMP_LIBRARY", "turnaround"), ("KMP_USE_YIELD", "0")];
    let command = [&[program.as_str(), "--imbalance-linear", "1.6"], &work[..]].concat();
    for (probe, basis) in [("on", "probe"), ("off", "cpu_time")] {
        let options =
            [&["run", "--policy", "observe", "--probe", probe, "--"], &command[..]].concat();
        let running = state.start_in(&evenly(), &options, &spins);
        let pid = running.program();
        wait_until("its threads", || masks(pid).len() >= 2 * whole.len());
        let json = state.sign("asked.json");
        let args = ["doctor", &pid.to_string(), "--for", "1s", "--json", &json];
        let o = state.command(&args).output().unwrap();
        let said = String::from_utf8_lossy(&o.stdout).into_owned();
        assert_eq!(o.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&o.stderr));
        let value: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        schema::valid(&value);
        assert_eq!(value["efficiency"]["basis"], basis, "{said}");
        // How much they spin, and so whether that is a finding, depends on who else uses the machine.
        let known = value["efficiency"]["factors"].is_object();
        assert!(known || probe == "off", "{value:#}");
        signal(pid, Signal::TERM);
    }
}

#[test]
fn a_running_program_and_a_recording() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let running = Running::start(&[
        "taskset",
        "-c",
        &whole.first().unwrap().to_string(),
        &workload("churn"),
        "--workers",
        "3",
        "--duration-s",
        "300",
    ]);
    wait_until("the program to compute", || masks(running.pid()).len() > 3);
    let (status, said) = {
        let pid = running.pid().to_string();
        let o = state.command(&["doctor", &pid, "--for", "700ms"]).output().unwrap();
        (o.status.code(), String::from_utf8_lossy(&o.stdout).into_owned())
    };
    assert_eq!(status, Some(0), "{said}");
    let paste = format!("taskset -apc {whole} {}", running.pid());
    assert!(said.contains(&paste), "{said}");

    let record = state.sign("record");
    let spmd = workload("spmd");
    let args = ["run", "-q", "--policy", "observe", "--record", &record, "--", &spmd, "--threads"];
    let work = ["2", "--imbalance", "0.5,1.5", "--phases", "80", "--iters", "25000000"];
    assert_eq!(state.output(&[&args[..], &work].concat()).0, Some(0));
    let o = state.command(&["doctor", "--from", &record, "--json", "-"]).output().unwrap();
    let value: Value = serde_json::from_slice(&o.stdout).unwrap();
    schema::valid(&value);
    assert_eq!(value["gaps"], serde_json::json!([]), "{value:#}");
    assert!(kinds(&value).iter().any(|k| k == "uneven_work"), "{value:#}");

    // One without what the doctor needs, as an earlier evenly made it.
    let text = fs::read_to_string(&record).unwrap();
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
    let mut end: Value = serde_json::from_str(last).unwrap();
    assert!(end["summary"].as_object_mut().unwrap().remove("evidence").is_some());
    fs::write(&record, format!("{before}\n{end}\n")).unwrap();
    let o = state.command(&["doctor", "--from", &record, "--json", "-"]).output().unwrap();
    let value: Value = serde_json::from_slice(&o.stdout).unwrap();
    assert!(value["gaps"][0].as_str().unwrap().contains("evenly doctor --record"), "{value:#}");
    assert_eq!(kinds(&value), ["uneven_work"], "{value:#}");
}

/// A recording of a run holds what the doctor needs: settings, masks and who else was there.
#[test]
fn a_recording_of_a_run_can_be_diagnosed() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let (record, first) = (state.sign("run.evenly"), whole.first().unwrap().to_string());
    let gomp = workload("omp_spmd-gomp");
    let work = ["--threads", "4", "--phases", "40", "--iters", "8000000"];
    let narrow = [&["taskset", "-c", &first, &gomp][..], &work].concat();
    let wide = [&[gomp.as_str()][..], &work].concat();
    for (policy, command) in [("observe", &narrow), ("juggle", &wide)] {
        let options = ["run", "-q", "--policy", policy, "--record", &record, "--"];
        let mut evenly = state.command(&[&options[..], command].concat());
        let o = evenly.env("OMP_NUM_THREADS", "4").output().unwrap();
        assert_eq!(o.status.code(), Some(0), "{}", String::from_utf8_lossy(&o.stderr));
        let text = fs::read_to_string(&record).unwrap();
        let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let evidence = &end["summary"]["evidence"];
        schema::valid(evidence);
        assert_eq!(evidence["environment"]["OMP_NUM_THREADS"], "4", "{end:#}");
        let o = state.command(&["doctor", "--from", &record, "--json", "-"]).output().unwrap();
        let value: Value = serde_json::from_slice(&o.stdout).unwrap();
        schema::valid(&value);
        let found = kinds(&value);
        if policy == "observe" {
            assert!(found.iter().any(|k| k == "narrow_mask"), "{value:#}");
            assert_eq!(value["gaps"], serde_json::json!([]), "{value:#}");
        } else {
            // The masks were evenly's own.
            assert_eq!(value["cpus"], whole.to_string(), "{value:#}");
            assert!(!found.iter().any(|k| k == "pinned_together"), "{value:#}");
            let gap = value["gaps"][0].as_str().unwrap();
            assert!(gap.contains("it was balanced by juggle"), "{value:#}");
        }
    }
    // More threads than fit into what a small recording has for it.
    let churn = ["--threads", "100", "--workers", "2", "--duration-s", "1"];
    let options = ["run", "-q", "--policy", "observe", "--record-limit", "1", "--record", &record];
    let program = workload("churn");
    let words = [&options[..], &["--", &program], &churn].concat();
    assert_eq!(state.output(&words).0, Some(0));
    let o = state.command(&["doctor", "--from", &record]).output().unwrap();
    let said = String::from_utf8_lossy(&o.stdout);
    let gap = "not seen    this recording has threads and CPUs only, as they were too many";
    assert!(o.status.success() && said.contains(gap), "{said}");
}

/// The doctor's own recording says later what the doctor said.
#[test]
fn a_recording_of_the_doctor_has_the_same_verdict() {
    let Some(whole) = whole() else { return };
    let state = State::new();
    let (record, live) = (state.sign("record.evenly"), state.sign("live.json"));
    let first = whole.first().unwrap().to_string();
    let gomp = workload("omp_spmd-gomp");
    let program = ["taskset", "-c", &first, &gomp, "--threads", "4", "--phases", "40"];
    let args = ["doctor", "--record", &record, "--json", &live, "--"];
    let words = [&args[..], &program, &["--iters", "8000000"]].concat();
    let o = state.command(&words).env("OMP_NUM_THREADS", "4").output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", String::from_utf8_lossy(&o.stderr));
    let live: Value = serde_json::from_str(&fs::read_to_string(&live).unwrap()).unwrap();
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    assert!(kinds(&live).iter().any(|k| k == "narrow_mask"), "{said}");

    let o = state.command(&["doctor", "--from", &record]).output().unwrap();
    assert_eq!(o.status.code(), Some(0), "{}", String::from_utf8_lossy(&o.stderr));
    assert_eq!(String::from_utf8_lossy(&o.stdout), said);
    let text = fs::read_to_string(&record).unwrap();
    let end: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    schema::valid(&end["summary"]);
    assert_eq!(end["summary"]["environment"]["OMP_NUM_THREADS"], "4", "{end:#}");
    // Other readers of recordings say that there is nothing to show, or show it.
    let page = state.sign("page.html");
    for args in [&["report", &record, "--html", &page][..], &["predict", "--from", &record]] {
        let o = state.command(args).output().unwrap();
        let said = String::from_utf8_lossy(&o.stderr);
        let ended = o.status.code();
        assert!([Some(0), Some(125)].contains(&ended) && !said.contains("panicked"), "{said}");
    }
    // What is broken in it is told.
    fs::write(&record, text.replace("\"seconds\":", "\"seconds\":-")).unwrap();
    let o = state.command(&["doctor", "--from", &record]).output().unwrap();
    let said = String::from_utf8_lossy(&o.stderr);
    assert!(o.status.code() == Some(125) && said.contains("seconds is not from 0"), "{said}");
}

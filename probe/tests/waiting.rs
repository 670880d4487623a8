//! The waiting probe, in real programs: each stops where it is known who waits and who
//! computes (`tests/programs`), and that is what must be read. And the program must notice nothing.
//!
//! Nothing here depends on how fast the machine is: what is expected is waited for.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::{as_root, built, calls_of, has, mpis};
use evenly_model::{Nanos, Pid};
use evenly_probe::load::{Calls, keep, preload};
use evenly_probe::waiting::{Activity, Mapping, Observed, Peer, Reader};
use rustix::fs::StatVfsMountFlags;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// However busy the machine is.
const PATIENCE: Duration = Duration::from_secs(60);

fn now() -> Nanos {
    let t = clock_gettime(ClockId::Monotonic);
    Nanos(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// A program that runs with the probe.
struct Watched {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    mapping: Mapping,
    reader: Reader,
}

impl Watched {
    fn start(calls: Calls, command: &mut Command) -> Self {
        Self::start_before(calls, command, None)
    }

    fn start_before(calls: Calls, command: &mut Command, before: Option<&OsStr>) -> Self {
        let mapping = Mapping::new().unwrap();
        let library = keep(calls, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
        let (name, value) = mapping.variable();
        command.env(name, value).env("LD_PRELOAD", preload(&library, before).unwrap());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let reader = mapping.reader().unwrap();
        Self { child, stdin, stdout: BufReader::new(stdout), mapping, reader }
    }

    /// Reads lines until the program says that it has come to this step.
    fn until(&mut self, step: &str) {
        let mut line = String::new();
        while line.trim() != step {
            line.clear();
            let n = self.stdout.read_line(&mut line).unwrap();
            assert!(n > 0, "the program has ended before '{step}': {:?}", self.child.wait());
        }
    }

    /// Lets it go on.
    fn go(&mut self) {
        self.stdin.write_all(b"x").unwrap();
    }

    fn read(&mut self) -> Vec<Observed> {
        let mut seen = Vec::new();
        self.reader.read(now(), &mut seen).unwrap();
        seen
    }

    /// Waits until just these activities are seen, in any order.
    fn expect(&mut self, mut wanted: Vec<Activity>) -> Vec<Observed> {
        let order = |a: &Activity| a.word();
        wanted.sort_by_key(order);
        let began = Instant::now();
        loop {
            let seen = self.read();
            let mut found: Vec<Activity> = seen.iter().map(|o| o.activity).collect();
            found.sort_by_key(order);
            if found == wanted {
                return seen;
            }
            assert!(began.elapsed() < PATIENCE, "{wanted:?} expected, and this is seen: {seen:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn end(mut self) -> (ExitStatus, String) {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap(), rest)
    }

    fn ends_well(self) {
        let (status, rest) = self.end();
        assert!(status.success(), "{status}: {rest}");
    }
}

use Activity::{Barrier, Collective, Computing, Lock, Mpi, Outside, RegionEnd};

fn steps(what: &str) -> Watched {
    let mut command = Command::new(built("steps", "gcc", &[]));
    Watched::start(Calls::None, command.arg(what))
}

/// How long those who wait have waited grows, and only theirs.
fn grows(program: &mut Watched, seen: &[Observed]) {
    std::thread::sleep(Duration::from_millis(20));
    let later = program.read();
    for o in seen.iter().filter(|o| o.activity != Computing) {
        let l = later.iter().find(|l| l.tid == o.tid).unwrap();
        let grown = (l.waited.0 + l.outside.0) - (o.waited.0 + o.outside.0);
        assert!(grown >= 20_000_000, "{o:?} {l:?}");
        assert_eq!((l.activity, l.since, l.waits), (o.activity, o.since, o.waits));
    }
}

#[test]
fn barriers_of_posix_threads() {
    let mut p = steps("barriers");
    p.until("waiting");
    let seen = p.expect(vec![Barrier, Barrier]);
    assert_eq!(seen[0].object, seen[1].object);
    assert!(seen.iter().all(|o| (o.waits, o.phases) == (1, 1) && o.since.0 > 0));
    assert_eq!(seen[0].pid, Pid(p.child.id() as i32));
    // They were started before they got their lines.
    let started = |o: &Observed| {
        let stat = fs::read_to_string(format!("/proc/{}/task/{}/stat", o.pid, o.tid)).unwrap();
        let ticks: u64 =
            stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
        Nanos(ticks * (1_000_000_000 / rustix::param::clock_ticks_per_second()))
    };
    for o in &seen {
        assert!(o.is_of(started(o)) && !o.is_of(Nanos(o.registered.0 + 10_000_000)));
        assert!(o.registered.0 - started(o).0 < 60_000_000_000);
    }
    grows(&mut p, &seen);
    // Any process that has the name can read it, too, as another program of evenly does.
    let mut other = Reader::of(File::open(p.mapping.path()).unwrap(), p.mapping.path()).unwrap();
    let mut again = Vec::new();
    other.read(now(), &mut again).unwrap();
    assert_eq!((again.len(), other.counts().attached, other.counts().refused), (2, 1, 0));
    p.go();
    p.until("over");
    // The two have ended, and their lines are free.
    let seen = p.expect(vec![Computing]);
    assert_eq!(seen[0].tid.0, p.child.id() as i32);
    assert!(seen[0].waited.0 < 60_000_000_000);
    p.go();
    p.ends_well();
}

#[test]
fn conditions() {
    let mut p = steps("conditions");
    p.until("waiting");
    let seen = p.expect(vec![Lock; 3]);
    assert!(seen.iter().all(|o| o.phases == 0 && o.waits == 1));
    grows(&mut p, &seen);
    p.go();
    p.ends_well();
}

#[test]
fn a_thread_that_is_cancelled_while_it_waits() {
    let mut p = steps("cancel");
    p.until("waiting");
    p.expect(vec![Lock]);
    p.go();
    p.until("over");
    p.expect(vec![]);
    p.go();
    p.ends_well();
}

#[test]
fn a_wait_that_a_signal_handler_leaves() {
    let mut p = steps("jumps");
    p.until("waiting");
    p.expect(vec![Barrier]);
    p.go();
    p.until("jumped");
    let seen = p.expect(vec![Lock]);
    assert_eq!(seen[0].waits, 2);
    p.go();
    p.ends_well();
}

#[test]
fn a_crash_in_a_wrapped_call_is_the_programs_own() {
    let p = steps("crash");
    let (status, said) = p.end();
    assert_eq!((status.signal(), said.as_str()), (Some(11), ""));
}

#[test]
fn fork() {
    let mut p = steps("forks");
    p.until("forked");
    let seen = p.expect(vec![Computing, Computing]);
    let of = |seen: &[Observed], pid| *seen.iter().find(|o| o.pid.0 == pid).unwrap();
    let me = p.child.id() as i32;
    assert_eq!(of(&seen, me).waits, 1);
    let child = seen.iter().find(|o| o.pid.0 != me).unwrap();
    assert_eq!((child.waits, child.tid.0), (5, child.pid.0));
    p.go();
    p.until("parent");
    // The line of the child stays until it is needed: it is of no thread any more.
    let seen = p.read();
    assert_eq!(of(&seen, me).waits, 2);
    p.go();
    p.ends_well();
}

#[test]
fn exec() {
    let mut p = steps("execs");
    p.until("before");
    p.expect(vec![Barrier, Barrier]);
    p.go();
    // Another program with the same number: nothing of the one before is left.
    p.until("one");
    let seen = p.expect(vec![Computing]);
    assert_eq!((seen[0].waits, seen[0].pid.0), (1, p.child.id() as i32));
    p.go();
    p.ends_well();
}

#[test]
fn lines_are_used_again() {
    let mut p = steps("many");
    p.until("many");
    p.expect(vec![]);
    let counts = p.reader.counts();
    assert!(counts.changes >= 4_000 && counts.refused == 0, "{counts:?}");
    let size = p.reader.lines_used();
    assert!(size <= 8, "{size} lines for four threads at a time");
    p.go();
    p.ends_well();
}

/// In a program that runs with the rights of another than who starts it the loader leaves out what it is to
/// load first, and says nothing. The same program without such rights, started by the same user, has it.
#[test]
fn a_program_with_rights_of_its_own_runs_as_it_does() {
    const NOBODY: u32 = 65_534;
    let dir = tempfile::tempdir().unwrap();
    let mounted = rustix::fs::statvfs(dir.path()).unwrap();
    if !rustix::process::geteuid().is_root()
        || mounted.f_flag.contains(StatVfsMountFlags::NOSUID)
        || rustix::thread::no_new_privs().unwrap()
    {
        let why =
            "root has to give a program rights, and its file system and this process to let it";
        return evenly_testing::skip("setuid", why);
    }
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let library = keep(Calls::None, dir.path()).unwrap();
    let program = dir.path().join("steps");
    fs::copy(built("steps", "gcc", &[]), &program).unwrap();
    for (mode, loaded) in [(0o755, true), (0o4755, false)] {
        fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let mapping = Mapping::new().unwrap();
        let (name, value) = mapping.variable();
        let mut command = Command::new(&program);
        command.arg("barriers").uid(NOBODY).gid(NOBODY).env(name, value);
        command.env("LD_PRELOAD", preload(&library, None).unwrap());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let maps = fs::read_to_string(format!("/proc/{}/maps", child.id())).unwrap();
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let user = if loaded { NOBODY } else { 0 };
        assert!(status.contains(&format!("\nUid:\t{NOBODY}\t{user}\t")), "{status}");
        assert_eq!(maps.contains(library.to_str().unwrap()), loaded, "{mode:o}: {maps}");
        child.stdin.take().unwrap().write_all(b"xx").unwrap();
        said.read_to_string(&mut line).unwrap();
        assert!(child.wait().unwrap().success() && line == "waiting\nover\n", "{line}");
    }
}

#[test]
fn a_static_program_runs_as_it_does() {
    let mut p = Watched::start(
        Calls::None,
        Command::new(built("steps", "gcc", &["-static"])).arg("barriers"),
    );
    p.until("waiting");
    assert_eq!(p.read(), []);
    p.go();
    p.until("over");
    p.go();
    assert_eq!(p.reader.counts().attached, 0);
    p.ends_well();
}

#[test]
fn a_library_that_somebody_else_preloads() {
    let other = built("other", "gcc", &["-shared", "-fPIC"]);
    let mut command = Command::new(built("steps", "gcc", &[]));
    let mut p =
        Watched::start_before(Calls::None, command.arg("barriers"), Some(other.as_os_str()));
    p.until("waiting");
    p.expect(vec![Barrier, Barrier]);
    p.go();
    p.until("over");
    p.go();
    let (status, said) = p.end();
    assert!(status.success());
    assert_eq!(said, "barriers 3\n");
}

#[test]
fn without_the_variable_nothing_happens() {
    let library = keep(Calls::Large, Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    for variable in [None, Some("/proc/self/fd/0"), Some("/no/such"), Some("")] {
        let mut command = Command::new(built("steps", "gcc", &[]));
        command.arg("barriers").env("LD_PRELOAD", &library).stdin(Stdio::piped());
        if let Some(value) = variable {
            command.env("EVENLY_PROBE", value);
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"xx").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stdout == b"waiting\nover\n", "{output:?}");
    }
}

/// Who is seen in regions of three threads, where the first is held up. The runtime says how those wait who
/// have ended their part.
fn regions(mut p: Watched, end: Activity) {
    p.until("end");
    let seen = p.expect(vec![Computing, end, end]);
    grows(&mut p, &seen);
    p.go();
    p.until("outside");
    let seen = p.expect(vec![Computing, Outside, Outside]);
    grows(&mut p, &seen);
    let held: Vec<_> = seen.iter().filter(|o| o.activity == Outside).collect();
    assert!(held.iter().all(|o| o.waited.0 >= 20_000_000), "{seen:?}");
    p.go();
    p.until("barrier");
    p.expect(vec![Computing, Barrier, Barrier]);
    p.go();
    p.until("again");
    p.expect(vec![Computing, end, end]);
    p.go();
    p.until("for");
    p.expect(vec![Computing, end, end]);
    p.go();
    p.until("loop");
    p.expect(vec![Computing, Barrier, Barrier]);
    p.go();
    p.until("last");
    let seen = p.expect(vec![Computing, Outside, Outside]);
    // All have reached the same barriers and ends.
    assert!(seen.iter().all(|o| o.phases == seen[0].phases), "{seen:?}");
    let main = seen.iter().find(|o| o.activity == Computing).unwrap();
    assert!(seen.iter().all(|o| o.tid == main.tid || o.waited > main.waited), "{seen:?}");
    p.go();
    let (status, said) = p.end();
    assert!(status.success() && said == "sum 44859 threads 3\n", "{status} {said}");
}

/// A region within a region, whose threads the runtime keeps for the next, or ends.
fn nested(mut p: Watched, end: Activity, kept: bool) {
    let and = |mut all: Vec<Activity>| {
        all.extend(kept.then_some(Outside));
        all
    };
    p.until("inner");
    p.expect(vec![Computing, end, end]);
    p.go();
    p.until("outer");
    p.expect(and(vec![Computing, end]));
    p.go();
    p.until("last");
    p.expect(and(vec![Computing, Outside]));
    p.go();
    p.ends_well();
}

fn by_libgomp(what: &str) -> Watched {
    Watched::start(Calls::None, Command::new(built("regions", "gcc", &["-fopenmp"])).arg(what))
}

#[test]
fn regions_of_libgomp() {
    regions(by_libgomp("regions"), RegionEnd);
}

#[test]
fn nested_regions_of_libgomp() {
    nested(by_libgomp("nested"), RegionEnd, false);
}

/// One of those who wait executes the task, and computes meanwhile.
#[test]
fn tasks_of_libgomp() {
    let mut p = by_libgomp("tasks");
    p.until("task");
    p.expect(vec![Computing, RegionEnd, RegionEnd]);
    p.go();
    p.until("last");
    p.expect(vec![Computing, Outside, Outside]);
    p.go();
    p.ends_well();
}

/// Who waits for tasks of others, then for a group of them, and in between executes some.
#[test]
fn tasks_of_libgomp_that_are_waited_for() {
    let mut p = by_libgomp("taskwait");
    for step in ["wait", "group"] {
        p.until(step);
        p.expect(vec![Computing, Lock, RegionEnd]);
        p.go();
    }
    p.until("last");
    p.expect(vec![Computing, Outside, Outside]);
    p.go();
    let (status, said) = p.end();
    assert!(status.success() && said == "sum 4950\n", "{status} {said}");
}

/// Of these nothing is known, and no thread is reported as waiting.
#[test]
fn loops_of_tasks_of_libgomp() {
    let mut p = by_libgomp("taskloop");
    p.until("loop");
    p.expect(vec![Computing; 3]);
    p.go();
    p.until("last");
    p.expect(vec![Computing, Outside, Outside]);
    p.go();
    p.ends_well();
}

#[test]
fn a_module_with_libgomp_of_its_own() {
    let module = built("regions", "gcc", &["-fopenmp", "-DMODULE", "-shared", "-fPIC"]);
    let mut command = Command::new(built("module", "gcc", &[]));
    regions(Watched::start(Calls::None, command.arg(module).arg("regions")), RegionEnd);
}

/// None, a skip, without the compiler that has this runtime.
fn by_libomp(what: &str) -> Option<Watched> {
    has("clang").then(|| {
        let program = built("regions", "clang", &["-fopenmp"]);
        Watched::start(Calls::None, Command::new(program).arg(what))
    })
}

#[test]
#[ignore = "needs clang: ./dev test --all"]
fn regions_of_libomp() {
    let Some(p) = by_libomp("regions") else { return };
    regions(p, Barrier);
}

#[test]
#[ignore = "needs clang: ./dev test --all"]
fn nested_regions_of_libomp() {
    let Some(p) = by_libomp("nested") else { return };
    nested(p, Barrier, true);
}

/// One of those who wait executes the task, and computes meanwhile.
#[test]
#[ignore = "needs clang: ./dev test --all"]
fn tasks_of_libomp() {
    let Some(mut p) = by_libomp("tasks") else { return };
    p.until("task");
    p.expect(vec![Computing, Barrier, Barrier]);
    p.go();
    p.until("last");
    p.go();
    p.ends_well();
}

/// A thread dies of its own fault while others wait at the end of a region.
fn crash_is_its_own(p: Watched) {
    let (status, said) = p.end();
    assert_eq!((status.signal(), said.as_str()), (Some(11), ""));
}

#[test]
fn a_crash_in_a_region_of_libgomp_is_the_programs_own() {
    crash_is_its_own(by_libgomp("crash"));
}

#[test]
fn a_crash_in_a_region_of_libomp_is_the_programs_own() {
    let Some(p) = by_libomp("crash") else { return };
    crash_is_its_own(p);
}

/// Two threads of a rank wait in MPI at the same time, each in a line of its own.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn threads_of_a_rank_that_wait_at_the_same_time() {
    for mpi in mpis() {
        let compiler = format!("mpicc.{mpi}");
        let program = built("ranks", &compiler, &[]);
        let mut command = Command::new(format!("mpirun.{mpi}"));
        as_root(&mut command).args(["-n", "2"]).arg(program).arg("threads");
        let mut p = Watched::start(calls_of(mpi), &mut command);
        p.until("threads");
        let began = Instant::now();
        loop {
            let mut seen = p.read();
            seen.retain(|o| o.activity == Mpi && o.call() == Some("Recv"));
            if let [a, b] = seen[..]
                && a.pid == b.pid
                && a.tid != b.tid
            {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "two threads in Recv expected: {:?}", p.read());
            std::thread::sleep(Duration::from_millis(1));
        }
        p.go();
        p.ends_well();
    }
}

/// What all ranks do with a file together is waited for as a collective is.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn a_file_that_all_write() {
    let dir = tempfile::tempdir().unwrap();
    for mpi in mpis() {
        let compiler = format!("mpicc.{mpi}");
        let program = built("ranks", &compiler, &[]);
        let mut command = Command::new(format!("mpirun.{mpi}"));
        as_root(&mut command).args(["-n", "2"]).arg(program).arg("file").env("TMPDIR", dir.path());
        let mut p = Watched::start(calls_of(mpi), &mut command);
        p.until("file");
        // Of MPICH setting the size does not wait.
        let began = Instant::now();
        loop {
            let seen = p.read();
            let at_file = |o: &&Observed| {
                o.activity == Collective && o.call().is_some_and(|call| call.starts_with("File_"))
            };
            if seen.iter().filter(at_file).count() == 1 {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "one rank in File_... expected: {seen:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        p.go();
        p.ends_well();
    }
}

/// MPI that comes with a module, which the program loads for itself only. Where the library knows no MPI, as
/// nothing showed beforehand that there would be any, that is noted.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn a_module_with_mpi() {
    let options = ["-DMODULE", "-shared", "-fPIC"];
    for mpi in mpis() {
        let compiler = format!("mpicc.{mpi}");
        let module = built("ranks", &compiler, &options);
        let loader = built("module", "gcc", &[]);
        let mut command = Command::new(format!("mpirun.{mpi}"));
        let command = as_root(&mut command).args(["-n", "2"]).arg(&loader).arg(&module);
        let mut p = Watched::start(calls_of(mpi), command.arg("plain"));
        steps_of_ranks(&mut p, true);
        assert!(!p.reader.counts().unseen_mpi);
        p.ends_well();
        let mut command = Command::new(&loader);
        let command = as_root(&mut command).arg(&module).arg("alone");
        let mut p = Watched::start(Calls::None, command);
        p.until("alone");
        p.read();
        assert!(!p.reader.counts().unseen_mpi);
        let mut reader = p.mapping.reader().unwrap();
        p.go();
        p.ends_well();
        reader.read(now(), &mut Vec::new()).unwrap();
        assert!(reader.counts().unseen_mpi, "{mpi}");
        // Of a program that is linked against it that is known from the start.
        let mut command = Command::new(built("ranks", &compiler, &[]));
        let mut p = Watched::start(Calls::None, as_root(&mut command).arg("alone"));
        p.until("alone");
        p.read();
        assert!(p.reader.counts().unseen_mpi, "{mpi}");
        p.go();
        p.ends_well();
    }
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ranks_of_mpi_at_every_level_of_threads() {
    for mpi in mpis() {
        let (compiler, launcher) = (format!("mpicc.{mpi}"), format!("mpirun.{mpi}"));
        let program = built("ranks", &compiler, &[]);
        for level in ["plain", "0", "1", "2", "3"] {
            two_ranks(&launcher, &program, level, true);
        }
    }
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn ranks_of_mpi_in_fortran() {
    for mpi in mpis() {
        let (compiler, launcher) = (format!("mpif90.{mpi}"), format!("mpirun.{mpi}"));
        for form in ["-UF08", "-DF08"] {
            let program = built("ranks.F90", &compiler, &[form]);
            // What is called there has no name by which it can be found.
            let seen = (mpi, form) != ("mpich", "-DF08");
            two_ranks(&launcher, &program, "", seen);
        }
    }
}

/// For whom ranks 1 and 2 wait while rank 0 computes, in communicators of several kinds.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn whom_ranks_wait_for() {
    for mpi in mpis() {
        let compiler = format!("mpicc.{mpi}");
        let module = built("ranks", &compiler, &["-DMODULE", "-shared", "-fPIC"]);
        // Where Open MPI's communicators are, of which the program may have copies of its own.
        for options in [&["-fPIE", "-pie"][..], &["-fno-pie", "-no-pie"]] {
            let program = built("ranks", &compiler, options);
            three_ranks(mpi, &[program.as_os_str(), OsStr::new("peers")], true);
        }
        let loader = built("module", "gcc", &[]);
        let command = [loader.as_os_str(), module.as_os_str(), OsStr::new("peers")];
        three_ranks(mpi, &command, true);
    }
}

#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn whom_ranks_wait_for_in_fortran() {
    for mpi in mpis() {
        let compiler = format!("mpif90.{mpi}");
        for form in ["-UF08", "-DF08"] {
            let program = built("ranks.F90", &compiler, &[form]);
            three_ranks(mpi, &[program.as_os_str()], (mpi, form) != ("mpich", "-DF08"));
        }
    }
}

/// The steps of three ranks, and whom ranks 1 and 2 are waiting for at each, if that is to be seen.
fn three_ranks(mpi: &str, command: &[&OsStr], seen: bool) {
    let mut launcher = Command::new(format!("mpirun.{mpi}"));
    as_root(&mut launcher).args(["-n", "3"]).args(command);
    let mut p = Watched::start(calls_of(mpi), &mut launcher);
    let zero = Some(Peer::World(0));
    for (step, call, peer) in [
        ("receive", "Recv", zero),
        ("any", "Recv", Some(Peer::Anyone)),
        ("probe", "Probe", zero),
        ("send", "Ssend", zero),
        ("sendrecv", "Sendrecv", zero),
        ("replace", "Sendrecv_replace", zero),
        ("wait", "Wait", None),
        ("broadcast", "Bcast", zero),
        ("sum", "Allreduce", Some(Peer::All)),
        ("duplicate", "Recv", zero),
        ("same", "Barrier", Some(Peer::All)),
        ("cart", "Recv", zero),
        // The last of a communicator in which ranks are the other way round.
        ("turned", "Recv", zero),
        ("other", "Barrier", None),
        ("inter", "Recv", zero),
        // Of those that were not seen when they were made, and one that had to make room for others.
        ("unseen", "Recv", Some(Peer::Other(0))),
        ("old", "Recv", Some(Peer::Other(2))),
        ("all", "Barrier", Some(Peer::All)),
    ] {
        p.until(step);
        if seen {
            wait_for(&mut p, step, call, peer);
        }
        p.go();
    }
    p.ends_well();
}

fn wait_for(p: &mut Watched, step: &str, call: &str, peer: Option<Peer>) {
    let began = Instant::now();
    loop {
        let seen = p.read();
        let mut of: Vec<_> = seen
            .iter()
            .filter(|o| o.tid.0 == o.pid.0 && o.rank.is_some())
            .map(|o| (o.rank, o.activity == Computing, o.call(), o.peer))
            .collect();
        of.sort_by_key(|o| o.0);
        let waits = |rank| (Some(rank), false, Some(call), peer);
        if of == [(Some(0), true, None, None), waits(1), waits(2)] {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{step}: {call} for {peer:?} expected: {of:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The steps of two ranks, and who waits at each, if that is to be seen.
fn two_ranks(launcher: &str, program: &Path, argument: &str, seen: bool) {
    let mut command = Command::new(launcher);
    as_root(&mut command).args(["-n", "2"]).arg(program).arg(argument);
    let mut p = Watched::start(calls_of(launcher), &mut command);
    steps_of_ranks(&mut p, seen);
    p.ends_well();
}

fn steps_of_ranks(p: &mut Watched, seen: bool) {
    for (step, activity, call) in [
        ("barrier", Collective, "Barrier"),
        ("receive", Mpi, "Recv"),
        ("wait", Mpi, "Wait"),
        ("last", Collective, "Barrier"),
    ] {
        p.until(step);
        if seen {
            ranks(p, activity, call);
        }
        p.go();
    }
}

/// What an MPI makes of it, which may catch the signal first, is the same with the probe.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn a_crash_in_a_call_of_mpi_is_the_programs_own() {
    for mpi in mpis() {
        let compiler = format!("mpicc.{mpi}");
        let program = built("ranks", &compiler, &[]);
        let alone = as_root(&mut Command::new(&program)).arg("crash").output().unwrap();
        assert!(!alone.status.success() && alone.status.code() != Some(7), "{alone:?}");
        let mut command = Command::new(&program);
        let command = as_root(&mut command).arg("crash").stderr(Stdio::null());
        let p = Watched::start(calls_of(mpi), command);
        let mut reader = p.mapping.reader().unwrap();
        let (status, said) = p.end();
        assert_eq!((status, said.as_bytes()), (alone.status, alone.stdout.as_slice()));
        reader.read(now(), &mut Vec::new()).unwrap();
        assert!(reader.counts().attached >= 1, "{mpi} without the probe");
    }
}

/// Waits until one of two ranks is in this call, and the other computes. Threads that MPI starts for itself wait
/// for conditions, or are not seen.
fn ranks(p: &mut Watched, activity: Activity, call: &str) {
    let (began, launcher) = (Instant::now(), p.child.id() as i32);
    loop {
        let mut seen = p.read();
        seen.retain(|o| o.pid.0 != launcher);
        let waits =
            |o: &Observed| o.tid.0 == o.pid.0 && o.activity == activity && o.call() == Some(call);
        let computing =
            seen.iter().filter(|o| o.tid.0 == o.pid.0 && o.activity == Computing).count();
        if seen.iter().any(waits) && computing == 1 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{call} expected, and this is seen: {seen:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// That the table has the right number of arguments for each call, and that those which say whom it waits for are
/// what they are taken for, is what each MPI's own header says.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn the_table_agrees_with_each_mpi() {
    let table = include_str!("../c/mpi_calls.h");
    let mut source = String::from("#include <mpi.h>\nint main(void)\n{\n\treturn 0\n");
    let (mut calls, mut arguments) = (0, Vec::new());
    for line in table.lines().filter(|line| line.starts_with("CALL")) {
        let (kind, call) = line.strip_suffix(')').unwrap().split_once('(').unwrap();
        let fields: Vec<&str> = call.split(", ").collect();
        let (name, n, large) = match (kind, &fields[..]) {
            (
                "CALL" | "CALL_TEXT" | "CALL_PEER" | "CALL_ALL" | "CALL_NEW" | "CALL_GONE"
                | "CALL_INIT",
                [name, fortran, n, "MPI" | "COLLECTIVE", ..],
            ) => {
                assert_eq!(name.to_lowercase(), **fortran);
                (name, n, false)
            }
            (
                "CALL_LARGE" | "CALL_LARGE_PEER" | "CALL_LARGE_ALL",
                [name, n, "MPI" | "COLLECTIVE", ..],
            ) => (name, n, true),
            _ => panic!("{line}"),
        };
        let kinds: &[&[&str]] = match kind {
            "CALL_PEER" | "CALL_LARGE_PEER" => {
                &[&["int source", "int dest", "int root"], &["MPI_Comm comm"]]
            }
            "CALL_ALL" | "CALL_LARGE_ALL" => &[&["MPI_Comm comm"]],
            "CALL_NEW" => &[&["MPI_Comm *"]],
            _ => &[],
        };
        for (at, what) in fields[if large { 3 } else { 4 }..].iter().zip(kinds) {
            arguments.push((*name, at.parse::<usize>().unwrap(), *what));
        }
        assert_eq!(fields.len(), kinds.len() + if large { 3 } else { 4 }, "{line}");
        if kind == "CALL_GONE" {
            arguments.push((name, 0, &["MPI_Comm *"]));
        }
        let zeros = vec!["0"; n.parse().unwrap()].join(", ");
        // Not evaluated, but its arguments are counted.
        let call = format!("\t\t+ 0 * (int)sizeof(MPI_{name}({zeros}))\n");
        source += &if large { format!("#if MPI_VERSION >= 4\n{call}#endif\n") } else { call };
        calls += 1;
    }
    assert!(calls > 140 && evenly_probe::waiting::calls().count() == calls);
    source += "\t;\n}\n";
    for mpi in mpis() {
        let compiler = format!("mpicc.{mpi}");
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("calls-{mpi}.c"));
        fs::write(&file, &source).unwrap();
        let compile = |options: &[&str]| {
            let output = Command::new(&compiler).args(options).arg(&file).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        compile(&["-w", "-fsyntax-only"]);
        let header: Vec<String> =
            compile(&["-E", "-P"]).split_whitespace().map(str::to_owned).collect();
        let header = header.join(" ");
        for (name, at, kinds) in &arguments {
            let Some((_, behind)) = header.split_once(&format!(" int MPI_{name}(")) else {
                assert!(name.ends_with("_c"), "{mpi} has no {name}");
                continue;
            };
            let argument = behind.split(')').next().unwrap().split(", ").nth(*at).unwrap();
            let is = |kind: &&str| argument.replace("* ", "*").starts_with(*kind);
            assert!(kinds.iter().any(is), "{mpi} {name}: argument {at} is {argument}");
        }
    }
}

//! The waiting probe, in real programs: each stops where it is known who waits and who
//! computes (`tests/programs`), and that is what must be read. And the program must notice nothing.
//!
//! Nothing here depends on how fast the machine is: what is expected is waited for.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::watched::{Watched, now};
use common::{built, has};
use evenly_model::{Nanos, Pid};
use evenly_probe::load::{Calls, keep, preload};
use evenly_probe::waiting::{Activity, Cooperation, Mapping, Observed, Reader};
use evenly_testing::wait_until;
use rustix::fs::StatVfsMountFlags;
use std::fs::{self, File, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};

use Activity::{Barrier, Computing, Lock, Outside, RegionEnd};

fn steps(what: &str) -> Watched {
    let mut command = Command::new(built("steps", "gcc", &[]));
    Watched::start(Calls::None, command.arg(what))
}

/// How long those who wait have waited grows, and only theirs.
fn grows(program: &mut Watched, seen: &[Observed]) {
    wait_until("those who wait are seen to wait on", || {
        let later = program.read();
        seen.iter().all(|o| {
            let l = later.iter().find(|l| l.tid == o.tid).unwrap();
            assert_eq!((l.activity, l.since, l.waits), (o.activity, o.since, o.waits));
            let grown = (l.waited + l.outside) - (o.waited + o.outside);
            assert!(o.activity != Computing || grown == Nanos::ZERO, "{o:?} {l:?}");
            o.activity == Computing || grown >= Nanos::from_millis(20)
        })
    });
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
fn a_task_of_another(mut p: Watched) {
    p.until("task");
    p.expect(vec![Computing, RegionEnd, RegionEnd]);
    p.go();
    p.until("last");
    p.expect(vec![Computing, Outside, Outside]);
    p.go();
    p.ends_well();
}

#[test]
fn tasks_of_libgomp() {
    a_task_of_another(by_libgomp("tasks"));
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

/// Short tasks are left unseen, and whoever waits in their region may be executing them.
fn short_tasks(mut p: Watched) {
    p.until("short");
    p.expect(vec![Computing; 3]);
    p.go();
    p.until("last");
    p.expect(vec![Computing, Outside, Outside]);
    p.go();
    let (status, said) = p.end();
    assert!(status.success() && said == "sum 200000\n", "{status} {said}");
}

#[test]
fn short_tasks_of_libgomp() {
    short_tasks(by_libgomp("short"));
}

/// As tasks have become longer, they are seen again.
#[test]
fn longer_tasks_of_libgomp() {
    a_task_of_another(by_libgomp("longer"));
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

#[test]
#[ignore = "needs clang: ./dev test --all"]
fn short_tasks_of_libomp() {
    let Some(p) = by_libomp("short") else { return };
    short_tasks(p);
}

/// libomp yields after each task.
#[test]
#[ignore = "needs clang: ./dev test --all"]
fn who_has_executed_a_task_of_libomp_goes_on_where_threads_cooperate() {
    if !has("clang") {
        return;
    }
    let library = built("task_yields", "clang", &["-shared", "-fPIC", "-DLIBRARY"]);
    let with = ["-O2", "-fopenmp", library.to_str().unwrap()];
    let program = built("task_yields", "clang", &with);
    for (cooperation, expected) in [
        (Cooperation::Never, "200 tasks, yields\n"),
        (Cooperation::WhileMoved, "200 tasks, goes on\n"),
    ] {
        let before = Some(library.as_os_str());
        let mut p = Watched::start_before(Calls::None, &mut Command::new(&program), before);
        p.mapping.set_cooperation(cooperation).unwrap();
        p.go();
        let (status, said) = p.end();
        assert!(status.success() && said == expected, "{cooperation:?}: {status} {said}");
    }
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

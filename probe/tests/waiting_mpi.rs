//! The waiting probe in programs of MPI, as `waiting.rs` has it for others: which ranks wait, in which call, and for
//! whom.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[macro_use]
mod common;

use common::watched::{Watched, now};
use common::{as_root, built, calls_of, mpis};
use evenly_probe::load::Calls;
use evenly_probe::waiting::{Activity, Observed, Peer};
use evenly_testing::wait_for_ok;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use Activity::{Collective, Computing, Mpi};

each_mpi! {
    threads_of_a_rank_that_wait_at_the_same_time,
    a_file_that_all_write,
    a_module_with_mpi,
    ranks_of_mpi_at_every_level_of_threads,
    ranks_of_mpi_in_fortran,
    whom_ranks_wait_for,
    whom_ranks_wait_for_in_fortran,
    a_crash_in_a_call_of_mpi_is_the_programs_own,
}

/// Two threads of a rank wait in MPI at the same time, each in a line of its own.
fn threads_of_a_rank_that_wait_at_the_same_time(mpi: &str) {
    let compiler = format!("mpicc.{mpi}");
    let program = built("ranks", &compiler, &[]);
    let mut command = Command::new(format!("mpirun.{mpi}"));
    as_root(&mut command).args(["-n", "2"]).arg(program).arg("threads");
    let mut p = Watched::start(calls_of(mpi), &mut command);
    p.until("threads");
    wait_for_ok("two threads in Recv", || {
        let all = p.read();
        let receives = |o: &&Observed| o.activity == Mpi && o.call() == Some("Recv");
        let seen: Vec<&Observed> = all.iter().filter(receives).collect();
        match seen[..] {
            [a, b] if a.pid == b.pid && a.tid != b.tid => Ok(()),
            _ => Err(format!("{all:?}")),
        }
    });
    p.go();
    p.ends_well();
}

/// What all ranks do with a file together is waited for as a collective is.
fn a_file_that_all_write(mpi: &str) {
    let dir = tempfile::tempdir().unwrap();
    let compiler = format!("mpicc.{mpi}");
    let program = built("ranks", &compiler, &[]);
    let mut command = Command::new(format!("mpirun.{mpi}"));
    as_root(&mut command).args(["-n", "2"]).arg(program).arg("file").env("TMPDIR", dir.path());
    let mut p = Watched::start(calls_of(mpi), &mut command);
    p.until("file");
    // Of MPICH setting the size does not wait.
    wait_for_ok("one rank in File_...", || {
        let seen = p.read();
        let at_file = |o: &&Observed| {
            o.activity == Collective && o.call().is_some_and(|call| call.starts_with("File_"))
        };
        let one = seen.iter().filter(at_file).count() == 1;
        if one { Ok(()) } else { Err(format!("{seen:?}")) }
    });
    p.go();
    p.ends_well();
}

/// MPI that comes with a module, which the program loads for itself only. Where the library knows no MPI, as
/// nothing showed beforehand that there would be any, that is noted.
fn a_module_with_mpi(mpi: &str) {
    let options = ["-DMODULE", "-shared", "-fPIC"];
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

fn ranks_of_mpi_at_every_level_of_threads(mpi: &str) {
    let (compiler, launcher) = (format!("mpicc.{mpi}"), format!("mpirun.{mpi}"));
    let program = built("ranks", &compiler, &[]);
    for level in ["plain", "0", "1", "2", "3"] {
        two_ranks(&launcher, &program, level, true);
    }
}

fn ranks_of_mpi_in_fortran(mpi: &str) {
    let (compiler, launcher) = (format!("mpif90.{mpi}"), format!("mpirun.{mpi}"));
    for form in ["-UF08", "-DF08"] {
        let program = built("ranks.F90", &compiler, &[form]);
        // What is called there has no name by which it can be found.
        let seen = (mpi, form) != ("mpich", "-DF08");
        two_ranks(&launcher, &program, "", seen);
    }
}

/// For whom ranks 1 and 2 wait while rank 0 computes, in communicators of several kinds.
fn whom_ranks_wait_for(mpi: &str) {
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

fn whom_ranks_wait_for_in_fortran(mpi: &str) {
    let compiler = format!("mpif90.{mpi}");
    for form in ["-UF08", "-DF08"] {
        let program = built("ranks.F90", &compiler, &[form]);
        three_ranks(mpi, &[program.as_os_str()], (mpi, form) != ("mpich", "-DF08"));
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
    wait_for_ok(&format!("{step}: {call} for {peer:?}"), || {
        let seen = p.read();
        let mut of: Vec<_> = seen
            .iter()
            .filter(|o| o.tid.0 == o.pid.0 && o.rank.is_some())
            .map(|o| (o.rank, o.activity == Computing, o.call(), o.peer))
            .collect();
        of.sort_by_key(|o| o.0);
        let waits = |rank| (Some(rank), false, Some(call), peer);
        let expected = of == [(Some(0), true, None, None), waits(1), waits(2)];
        if expected { Ok(()) } else { Err(format!("{of:?}")) }
    });
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
fn a_crash_in_a_call_of_mpi_is_the_programs_own(mpi: &str) {
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

/// Waits until one of two ranks is in this call, and the other computes. Threads that MPI starts for itself wait
/// for conditions, or are not seen.
fn ranks(p: &mut Watched, activity: Activity, call: &str) {
    let launcher = p.child.id() as i32;
    wait_for_ok(call, || {
        let mut seen = p.read();
        seen.retain(|o| o.pid.0 != launcher);
        let waits =
            |o: &Observed| o.tid.0 == o.pid.0 && o.activity == activity && o.call() == Some(call);
        let computing =
            seen.iter().filter(|o| o.tid.0 == o.pid.0 && o.activity == Computing).count();
        let expected = seen.iter().any(waits) && computing == 1;
        if expected { Ok(()) } else { Err(format!("{seen:?}")) }
    });
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

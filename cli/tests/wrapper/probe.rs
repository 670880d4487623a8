//! `evenly run --probe on`: programs compute the same with the probe, the report says how long their threads
//! waited, and what cannot be watched is said.

use crate::profile::{cache, script_at};
use crate::schema::valid;
use crate::support::{Tool, assert_report_is_short, json, stderr, text, workload};
use rustix::fs::StatVfsMountFlags;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

const NOBODY: u32 = 65_534;

/// Runs a program with the probe; the report.
fn probed(tool: &Tool, options: &str, program: &[&str]) -> (Output, Value) {
    let file = tool.path("run.json");
    let options = format!("--policy observe --probe on {options} --json {}", file.display());
    let output = tool.run(&options, program).env("XDG_CACHE_HOME", cache()).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_report_is_short(&options, &stderr(&output));
    let report = json(&file);
    valid(&report);
    (output, report)
}

fn checksum(output: &[u8]) -> String {
    let value: Value = serde_json::from_slice(output).unwrap();
    value["checksum"].as_str().unwrap().to_owned()
}

#[test]
fn workloads_compute_the_same() {
    let tool = Tool::new();
    let same = ["--threads", "3", "--phases", "20", "--iters", "2000", "--imbalance", "1,1,2"];
    let jacobi = ["--threads", "3", "--size", "200", "--sweeps", "200"];
    for (program, args) in [
        ("spmd", &same[..]),
        ("omp_spmd-gomp", &same),
        ("omp_spmd-omp", &same),
        ("ep-gomp", &["--threads", "3"]),
        ("ep-omp", &["--threads", "3"]),
        ("jacobi-gomp", &jacobi),
        ("jacobi-omp", &jacobi),
    ] {
        let path = workload(program);
        if !evenly_testing::is_built(&path) {
            continue;
        }
        let plain = Command::new(&path).args(args).output().unwrap();
        let words: Vec<&str> = [path.as_str()].into_iter().chain(args.iter().copied()).collect();
        let (output, report) = probed(&tool, "-q", &words);
        assert_eq!(checksum(&output.stdout), checksum(&plain.stdout), "{program}");
        assert_eq!(stderr(&output), "", "{program}");
        let probe = &report["probe"];
        assert_eq!((&probe["processes"], &probe["left_out"]), (&1.into(), &0.into()), "{program}");
        let threads = probe["threads"].as_array().unwrap();
        // spmd has barriers of its own. The others end before all of their threads were asked; the
        // first one lasts as long as its program.
        let least = if program == "spmd" { 0 } else { 1 };
        assert!((least..=3 * least).contains(&threads.len()), "{program}: {probe:#}");
        for t in threads {
            assert!(t["phases"].as_u64().unwrap() >= 1 && t["waited_s"].as_f64().unwrap() >= 0.0);
        }
    }
}

/// Threads of which one has eight times the work of the others, at barriers where they spin. How they are
/// placed does not matter: who has less to compute spins for longer, and that counts as waiting, though
/// the kernel sees them all busy.
fn spins(name: &str, threads: usize, settings: &[(&str, &str)]) {
    let tool = Tool::new();
    let program = workload(name);
    if !evenly_testing::is_built(&program) {
        return;
    }
    let file = tool.path("spin.json");
    let n = threads.to_string();
    let options = format!("--policy observe --threads {n} --probe on --json {}", file.display());
    let imbalance = ["8", "1", "1"][..threads].join(",");
    // Iterations are the same work on any machine, however busy: what evenly misses at both ends is little
    // beside it.
    let work = ["--phases", "24", "--iters", "5000000"];
    let work = [&work[..], &["--imbalance", &imbalance, "--threads", &n]].concat();
    let words: Vec<&str> = [program.as_str()].into_iter().chain(work).collect();
    let mut command = tool.run(&options, &words);
    command.env("XDG_CACHE_HOME", cache()).envs(settings.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let report = json(&file);
    valid(&report);
    let all = report["threads"].as_array().unwrap();
    let seconds = |t: &Value, key: &str| t[key].as_f64().unwrap();
    let computed = |t: &Value| seconds(t, "ran_s") - seconds(t, "spun_s");
    assert_eq!(all.len(), threads, "{report:#}");
    assert!(all.iter().all(|t| !t["spun_s"].is_null()), "{report:#}");
    let most = all.iter().map(computed).fold(0.0, f64::max);
    let light: Vec<&Value> = all.iter().filter(|t| computed(t) < 0.5 * most).collect();
    let spin = |t: &&Value| computed(t) >= 0.0 && seconds(t, "spun_s") > 0.25 * seconds(t, "ran_s");
    assert!(light.len() == threads - 1 && light.iter().all(spin), "{report:#}");
    let e = &report["efficiency"];
    assert_eq!(e["basis"], "probe", "{e:#}");
    assert!(e["factors"]["load_balance"].as_f64().is_some_and(|b| b < 0.75), "{e:#}");
    assert!(stderr(&output).contains(" % spinning\n"), "{}", stderr(&output));
}

/// Would catch: taken for spinning that a thread which slept at a barrier has to wait for a CPU once that has opened.
#[test]
fn threads_that_sleep_at_barriers_do_not_spin() {
    let tool = Tool::new();
    let file = tool.path("sleep.json");
    let options = format!("--policy observe --threads 3 --probe on --json {}", file.display());
    for regions in [&[][..], &["--regions"]] {
        let program = workload("omp_spmd-gomp");
        let work = ["--threads", "3", "--phases", "400", "--iters", "600000"];
        let words: Vec<&str> =
            [program.as_str()].into_iter().chain(work).chain(regions.iter().copied()).collect();
        let mut command = tool.run(&options, &words);
        command.env("XDG_CACHE_HOME", cache()).env("GOMP_SPINCOUNT", "0");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let report = json(&file);
        let all = report["threads"].as_array().unwrap();
        let sum = |key: &str| all.iter().map(|t| t[key].as_f64().unwrap()).sum::<f64>();
        // What is left is the system call, and how the two clocks are read one after the other.
        assert!(sum("spun_s") < 0.06 * sum("ran_s"), "{report:#}");
    }
}

/// libgomp spins where there are no more threads than CPUs.
#[test]
fn what_threads_of_libgomp_spin_is_no_progress() {
    spins("omp_spmd-gomp", 2, &[("OMP_WAIT_POLICY", "active")]);
}

#[test]
#[ignore = "needs clang: ./dev test --all"]
fn what_threads_of_libomp_spin_is_no_progress() {
    spins(
        "omp_spmd-omp",
        3,
        &[("OMP_WAIT_POLICY", "active"), ("KMP_LIBRARY", "turnaround"), ("KMP_USE_YIELD", "0")],
    );
}

/// Four threads that spin at their barriers, of which one has nearly all of the work: the others make room
/// for it. Juggle pins from the first point on, so that this does not depend on what the machine does.
#[test]
#[ignore = "needs clang: ./dev test --all"]
fn threads_that_spin_make_room_for_the_one_that_computes() {
    let tool = Tool::new();
    let program = workload("omp_spmd-omp");
    if !evenly_testing::is_built(&program) {
        return;
    }
    let whole = evenly_linux::affinity::get(evenly_model::Tid(0)).unwrap();
    if whole.len() < 2 {
        return evenly_testing::skip("two-cpus", "two CPUs are needed");
    }
    let two: evenly_model::CpuSet = whole.iter().take(2).collect();
    let file = tool.path("room.evenly");
    let options = format!(
        "-v --policy juggle --no-guard --threads 4 --cpus {two} --probe on --record {}",
        file.display()
    );
    let work = ["--threads", "4", "--phases", "6", "--work-ms", "40", "--imbalance", "12,1,1,1"];
    let words: Vec<&str> = [program.as_str()].into_iter().chain(work).collect();
    let mut command = tool.run(&options, &words);
    command.env("XDG_CACHE_HOME", cache()).env("OMP_WAIT_POLICY", "active");
    command.env("KMP_LIBRARY", "turnaround").env("KMP_USE_YIELD", "0");
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("waits for others, makes room"), "{said}");
    // One computes alone, and three spin beside each other.
    let recording = std::fs::read_to_string(&file).unwrap();
    let alone = recording.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()).any(|l| {
        let counts: Vec<u64> =
            l["cpus"].as_array().into_iter().flatten().filter_map(|c| c[1].as_u64()).collect();
        counts == [1, 3] || counts == [3, 1]
    });
    assert!(alone, "{recording}");
}

/// A script that starts MPI tells nobody of it: the report says that its calls were not seen.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn mpi_that_the_command_does_not_tell_of_is_noted() {
    for mpi in crate::mpi::here() {
        let tool = Tool::new();
        let script = tool.path("job");
        script_at(
            &script,
            &format!("exec {} -n 2 {} 1 1 1", mpi.tool("mpirun"), mpi.program("pairs")),
        );
        let file = tool.path("run.json");
        let options = format!("-q --policy observe --probe on --json {}", file.display());
        let mut c = tool.run(&options, &[script.to_str().unwrap()]);
        c.envs(crate::mpi::ENVIRONMENT).env("XDG_CACHE_HOME", cache());
        let output = c.output().unwrap();
        assert!(output.status.success(), "{}: {}", mpi.said, stderr(&output));
        let notes = json(&file)["notes"].to_string();
        assert!(
            notes.contains("--probe: a program had MPI, and calls of it were not seen"),
            "{notes}"
        );
    }
}

/// Who waits for whom, and that the launcher is none of those who wait.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn whom_ranks_wait_for_is_said() {
    for mpi in crate::mpi::here() {
        let tool = Tool::new();
        let program = mpi.program("server");
        // Long beside the ten looks or so that it takes, also on a busy machine.
        let words = mpi.launch(&[&program, "5"]);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let file = tool.path("run.json");
        let often = "--period 10ms --budget 50";
        let options = format!("-v --policy observe --probe on {often} --json {}", file.display());
        let mut c = tool.run(&options, &words);
        c.envs(crate::mpi::ENVIRONMENT).env("XDG_CACHE_HOME", cache());
        let output = c.output().unwrap();
        assert!(output.status.success(), "{}: {}", mpi.said, stderr(&output));
        let report = json(&file);
        valid(&report);
        let threads = report["probe"]["threads"].as_array().unwrap();
        let mut ranks: Vec<u64> = threads.iter().filter_map(|t| t["rank"].as_u64()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        assert_eq!(ranks, [0, 1, 2, 3], "{}: {threads:#?}", mpi.said);
        for t in threads.iter().filter(|t| t["rank"].as_u64() > Some(0)) {
            let first = &t["waited_for"][0];
            // Threads that MPI has for itself wait for no rank.
            if t["pid"] == t["tid"] {
                let told = (&first["call"], &first["rank"], &first["world"]);
                assert_eq!(told, (&"MPI_Recv".into(), &0.into(), &true.into()), "{t:#}");
            }
        }
        let said = stderr(&output);
        assert!(said.contains(" of 4 ranks waited "), "{}: {said}", mpi.said);
        let wanted = "  for whom    ranks 1, 2 and 3 waited mostly for rank 0 (MPI_Recv)\n";
        assert!(said.contains(wanted), "{}: {said}", mpi.said);
    }
}

/// The same where all wait for all, of whom one is late: ranks at a barrier of MPI.
#[test]
#[ignore = "needs MPI: ./dev test --all"]
fn the_rank_that_is_late_at_barriers_is_said() {
    for mpi in crate::mpi::here() {
        let program = mpi.program("metbench");
        let work = ["--loads", "1,1,1,9", "--iters", "2000000", "--iterations", "100"];
        let words = mpi.launch(&[&[program.as_str()][..], &work].concat());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        late(&words, " waited mostly for rank 3 (MPI_Barrier)\n");
    }
}

/// Threads at one of OpenMP. How those of libgomp end a phase depends on how it is written: at a barrier, or at
/// the end of a region.
#[test]
fn the_thread_that_is_late_at_barriers_is_said() {
    let program = workload("omp_spmd-gomp");
    // It is looked at four times a second, and has to be seen four times.
    let work = ["--threads", "2", "--imbalance", "1,9", "--iters", "4000000", "--phases", "40"];
    late(&[&[program.as_str()], &work[..]].concat(), " waited mostly for thread ");
}

/// Looks often enough to see somebody wait in each phase.
#[track_caller]
fn late(words: &[&str], wanted: &str) {
    let tool = Tool::new();
    let mut c = tool.run("-v --policy observe --probe on --period 10ms --budget 50", words);
    c.envs(crate::mpi::ENVIRONMENT).env("XDG_CACHE_HOME", cache());
    let output = c.output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let line =
        said.lines().find(|l| l.starts_with("  for whom ")).unwrap_or_else(|| panic!("{said}"));
    assert!(format!("{line}\n").contains(wanted), "{said}");
}

#[test]
fn what_cannot_be_watched_is_said() {
    let tool = Tool::new();
    let source = tool.path("x.c");
    std::fs::write(&source, "int main(void){return 0;}").unwrap();
    let program = tool.path("static");
    let built = Command::new("gcc").arg("-static").arg(&source).arg("-o").arg(&program).status();
    assert!(built.unwrap().success());
    let (output, report) = probed(&tool, "", &[program.to_str().unwrap()]);
    let said = stderr(&output);
    assert_eq!(
        said.matches("runs without the probe: it is linked statically").count(),
        2,
        "{said}"
    );
    assert!(said.starts_with("evenly: --probe: '"), "{said}");
    assert_eq!(report["probe"]["processes"], 0);
    // Without a place for the library it runs all the same.
    let mut c = tool.run("--policy observe --probe on", &["echo", "x"]);
    let output = c.env("XDG_CACHE_HOME", tool.path("a b")).output().unwrap();
    assert!(output.status.success() && text(&output.stdout) == "x\n", "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("'echo' runs without the probe: the probe is kept as "), "{said}");
}

/// Would catch: a program that was built with a sanitizer, or starts one that was, and refuses to run because a library was
/// loaded before that of the sanitizer.
#[test]
fn programs_with_sanitizers_run() {
    let tool = Tool::new();
    let source = tool.path("x.c");
    std::fs::write(&source, "#include <stdio.h>\nint main(void){puts(\"ran\");}").unwrap();
    for sanitizer in ["address,undefined", "thread"] {
        let program = tool.path(sanitizer);
        let mut compiler = Command::new("gcc");
        compiler.arg(format!("-fsanitize={sanitizer}")).arg(&source).arg("-o").arg(&program);
        assert!(compiler.status().unwrap().success());
        let name = program.to_str().unwrap();
        for (options, command) in [
            ("", vec![name]),
            ("--probe on", vec![name]),
            ("", vec!["sh", "-c", "\"$0\"; true", name]),
        ] {
            let output = tool.run(options, &command).output().unwrap();
            assert_eq!(text(&output.stdout), "ran\n", "{command:?}: {}", stderr(&output));
        }
    }
}

/// The loader drops a preload without a word where a program gets the rights of another user.
#[test]
fn a_program_with_rights_of_its_own_is_told() {
    let tool = Tool::for_everybody();
    let program = tool.path("mine");
    std::fs::copy("/bin/true", &program).unwrap();
    let run = |mode| {
        std::fs::set_permissions(&program, Permissions::from_mode(mode)).unwrap();
        let mut c = tool.run("--policy observe --probe on", &[program.to_str().unwrap()]);
        let home = tool.directory_of(NOBODY);
        c.uid(NOBODY).gid(NOBODY).env("EVENLY_STATE_DIR", &home).env("XDG_CACHE_HOME", &home);
        let output = c.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        stderr(&output)
    };
    let mounted = rustix::fs::statvfs(tool.dir.path()).unwrap();
    if !rustix::process::geteuid().is_root()
        || mounted.f_flag.contains(StatVfsMountFlags::NOSUID)
        || rustix::thread::no_new_privs().unwrap()
    {
        let why =
            "root has to give a program rights, and its file system and this process to let it";
        return evenly_testing::skip("setuid", why);
    }
    let said = run(0o4755);
    let why = "runs without the probe: it runs as its owner (setuid), and such a program takes no \
               libraries from others";
    assert!(said.contains(why), "{said}");
    // The doctor says it, too, where another program starts it.
    let mut c = tool.evenly(["doctor", "--", "env", program.to_str().unwrap()]);
    let home = tool.directory_of(NOBODY);
    c.uid(NOBODY).gid(NOBODY).env("EVENLY_STATE_DIR", &home).env("XDG_CACHE_HOME", &home);
    let said = stderr(&c.output().unwrap());
    assert!(said.contains("not seen") && said.contains(why), "{said}");
    // Without these rights there is nothing to say.
    let said = run(0o755);
    assert!(!said.contains("--probe"), "{said}");
}

#[test]
fn a_library_that_is_preloaded_already_stays() {
    let tool = Tool::new();
    let print = ["sh", "-c", "echo \"$LD_PRELOAD\""];
    let mut c = tool.run("-q --policy observe --probe on", &print);
    // It need not be there for the loader to go on, which says so.
    let other = "/no/such/library.so";
    let output = c.env("XDG_CACHE_HOME", cache()).env("LD_PRELOAD", other).output().unwrap();
    let value = text(&output.stdout);
    let libraries: Vec<&str> = value.trim().split(':').collect();
    let [hands_over, waits, last] = libraries[..] else { panic!("{value}") };
    assert!(hands_over.contains("/evenly/probe/handover-"), "{value}");
    assert!(waits.contains("/evenly/probe/waiting-") && last == other, "{value}");
    let mut c = tool.run("-q --policy observe --probe on --cooperate off", &print);
    let output = c.env("XDG_CACHE_HOME", cache()).env("LD_PRELOAD", other).output().unwrap();
    assert!(
        text(&output.stdout).contains("/waiting-") && !text(&output.stdout).contains("/handover-")
    );
    // What hands over is loaded without the probe as well.
    let output = tool.run("-q --policy observe", &print).output().unwrap();
    assert!(text(&output.stdout).contains("/handover-"));
    let output = tool.run("-q --policy observe --cooperate off", &print).output().unwrap();
    assert_eq!(text(&output.stdout), "\n");
}

//! Programs in C and C++, built against the header and each form of the library: the same answers by any number of threads, and no
//! waiting for ever, whatever a thread does.
#![allow(missing_docs, clippy::unwrap_used)]
#![cfg(not(loom))]

use evenly_loops::Policy;
use evenly_testing::compiled::{Library, code_behind, run};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::thread;

fn source(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Builds a program, linked with the shared or with the static library.
fn build(file: &Path, shared: bool) -> PathBuf {
    let (include, into) = (source("include"), Path::new(env!("CARGO_TARGET_TMPDIR")));
    let flags = &["-D_GNU_SOURCE", "-fopenmp", "-Wshadow"];
    Library { name: "evenly_loops", include: &include, flags, into }.build(file, shared)
}

/// Builds the code that stands behind this mark of the manual, as a file of this name.
fn build_code(manual: &str, mark: &str, name: &str) -> PathBuf {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    std::fs::write(&file, code_behind(manual, mark)).unwrap();
    build(&file, true)
}

/// The example of the manual, as it stands there, prints what stands there.
#[test]
fn the_manuals_example_works() {
    let manual = std::fs::read_to_string(source("../docs/loops.md")).unwrap();
    let example = build_code(&manual, "C example", "example.c");
    // OpenMP starts fewer threads than it is asked for.
    for (threads, most) in [("1", "9"), ("3", "9"), ("3", "2")] {
        let mut program = Command::new("timeout");
        program.arg("60").arg(&example).env("OMP_NUM_THREADS", threads);
        let found = printed(program.env("OMP_THREAD_LIMIT", most));
        assert_eq!(found.trim_end(), code_behind(&manual, "its output").trim_end());
    }
}

/// The example of the manual in C++ prints what its comment says.
#[test]
fn the_manuals_example_of_a_reduction_works() {
    let manual = std::fs::read_to_string(source("../docs/loops.md")).unwrap();
    let example = build_code(&manual, "C++ example", "reduction.cpp");
    assert_eq!(printed(&mut Command::new(example)), "338350\n");
}

fn printed(program: &mut Command) -> String {
    String::from_utf8(run(program).stdout).unwrap()
}

#[test]
fn answers_are_the_same_by_any_number_of_threads() {
    for shared in [true, false] {
        let jacobi = build(&source("tests/jacobi.c"), shared);
        let reference = printed(Command::new(&jacobi).arg("1"));
        assert!(reference.ends_with(" 3200 64\n"), "{reference}");
        for policy in Policy::ALL {
            for threads in ["2", "3", "9"] {
                assert_eq!(
                    printed(Command::new(&jacobi).args([threads, policy.name()])),
                    reference,
                    "{policy}"
                );
            }
            let by_environment =
                printed(Command::new(&jacobi).arg("3").env("EVENLY_LOOPS", policy.name()));
            assert_eq!(by_environment, reference);
        }
    }
}

fn wrong() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build(&source("tests/wrong.c"), true))
}

/// Would catch: a thread that waits for one that is gone; a way out of a loop that nobody hears of.
#[test]
fn whatever_a_thread_does_no_other_waits_for_it_for_ever() {
    for (way, expected) in [
        ("ends", "loop 'sweep' was given up: thread 1 ended in it"),
        ("leaves", "loop 'sweep' was given up: thread 1 left it before its end"),
        ("sums", "loop 'sweep' was given up: thread 1 left it before its end"),
        (
            "reduces",
            "loop 'sweep' was given up: thread 1 reduced before it had carried out all of its tasks",
        ),
        ("leaves its array", "in iteration 99, and it has 99 x 4 elements (counted from 0)"),
        ("jumps", "thread 1 began loop 'sweep' within loop 'sweep' of the same team"),
        ("breaks", "thread 1 began loop 'inner' within loop 'sweep' of the same team"),
        ("nests", "thread 1 began loop 'inner' within loop 'sweep' of the same team"),
        ("forks", "loop 'sweep' belongs to the process before its fork"),
        ("forks within", "loop 'sweep' belongs to the process before its fork"),
        (
            "orders",
            "(loop 1 of each): all threads of a team have to begin the same loops, in the same order",
        ),
        (
            "skips",
            "(loop 2 of each): all threads of a team have to begin the same loops, in the same order",
        ),
        ("goes on", "a thread ended, or went on to another loop, before it had reduced"),
        (
            "goes on, and adds",
            "loop 'sweep' was given up: a thread ended, or went on to another loop, before it had reduced",
        ),
    ] {
        let said = printed(Command::new("timeout").arg("60").arg(wrong()).arg(way));
        assert!(said.contains(expected), "{way}: {said}");
        // Once, whoever else sees it, and however often the loop is begun.
        assert_eq!(said.lines().count(), 1, "{way}: {said}");
    }
    // The second that is left out is seen as the first was.
    let said = printed(
        Command::new("timeout").args(["60".as_ref(), wrong().as_os_str()]).arg("goes on twice"),
    );
    let given_up: Vec<_> = said.lines().filter_map(|line| line.split(" was").next()).collect();
    assert_eq!(given_up, ["loop 'sweep'", "loop 'inner'"], "{said}");
    for harmless in ["nothing", "pools", "stays in another array"] {
        assert_eq!(
            printed(Command::new("timeout").arg("60").arg(wrong()).arg(harmless)),
            "",
            "{harmless}"
        );
    }
}

/// Would catch: a program that hangs in silence, as OpenMP has started fewer threads than it was asked for; one that is ended as a
/// thread takes its time.
#[test]
fn who_is_missing_is_told_once_and_waited_for() {
    let waits = |way| Command::new("timeout").arg("60").arg(wrong()).arg(way).output().unwrap();
    thread::scope(|scope| {
        let [late, adds, breaks] =
            ["is late", "adds late", "breaks off"].map(|way| scope.spawn(move || waits(way)));
        for (waiting, expected) in [
            (
                late,
                "evenly: loop 'sweep' has waited 5 s for thread 1 of a team of 2, which has begun no loop of this team so far: \
                 have so many threads been started?\n",
            ),
            (
                adds,
                "evenly: a reduction after loop 'sweep' has waited 5 s for thread 1 of a team of 2, which has not come to it\n",
            ),
            (
                breaks,
                "evenly: loop 'sweep' has waited 10 s for thread 1 of a team of 2, which has not come to its end: \
                 does it compute, or has it left the loop (break, return)?\n",
            ),
        ] {
            let output = waiting.join().unwrap();
            assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), expected);
        }
    });
}

/// Would catch: a status that is lost, and handlers that are cut short, as another thread aborts the process meanwhile.
#[test]
fn a_process_that_exits_within_a_loop_is_not_aborted() {
    for way in ["exits", "returns"] {
        let mut program = Command::new("timeout");
        program.arg("60").arg(wrong()).args([way, "abort"]).env_remove("LD_LIBRARY_PATH");
        let output = program.output().unwrap();
        assert_eq!(output.status.code(), Some(42), "{way}: {output:?}");
        assert_eq!(output.stdout, b"exits\n", "{way}");
        assert!(output.stderr.is_empty(), "{way}: {output:?}");
    }
}

/// Would catch: a variable that a script sets to nothing, and that ends the program.
#[test]
fn an_empty_variable_says_nothing() {
    let jacobi = build(&source("tests/jacobi.c"), true);
    assert!(
        printed(Command::new(&jacobi).arg("2").env("EVENLY_LOOPS", "")).ends_with(" 3200 64\n")
    );
}

#[test]
fn what_is_no_argument_is_said() {
    let said = printed(Command::new(wrong()).arg("null"));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "evenly_region_uses was given NULL",
            "evenly_begin was given NULL",
            "evenly_region_new was given NULL",
        ]
    );
    assert_eq!(lines[4], "evenly_region_new: a load is EVENLY_FIXED or EVENLY_VARIABLE, not 9");
    assert!(lines[5].starts_with(
        "evenly_region_policy: no policy for loops is called 'fast'; there are auto,"
    ));
    assert_eq!(lines[6], "a team has from 1 to 1024 threads, not 0");
    assert_eq!(
        lines[7..9],
        ["evenly_team_array was given NULL", "evenly_team_array was given NULL"]
    );
    assert!(
        lines[9].starts_with("evenly_team_array: an array has one dimension or more"),
        "{lines:?}"
    );
}

/// Would catch: a lock that is held while a handler is called.
#[test]
fn a_handler_declares_loops_and_leaves_by_longjmp() {
    let said = printed(Command::new("timeout").arg("60").arg(wrong()).arg("handles"));
    let called: Vec<_> = said.lines().map(|line| line.split(';').next()).collect();
    let expected =
        |name| Some(format!("evenly_region_policy: no policy for loops is called '{name}'"));
    assert_eq!(called, [expected("fast").as_deref(), expected("faster").as_deref()]);
}

/// Would catch: a wrong answer, where the program did not say what to do.
#[test]
fn a_program_that_has_no_handler_is_aborted_with_one_line() {
    let mut program = Command::new("timeout");
    program.arg("60").arg(wrong()).args(["leaves", "abort"]).env_remove("LD_LIBRARY_PATH");
    let output = program.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.signal().or(output.status.code()), Some(6), "{:?}", output.status);
    assert!(
        said.starts_with("evenly: loop 'sweep' was given up: thread 1 left it before its end\n"),
        "{said}"
    );
}

/// Would catch, too: an unsigned integer that is compared as one with a sign; an object that gives up the loop of the next one.
#[test]
fn an_exception_ends_the_loop_in_all_threads() {
    let said =
        printed(Command::new("timeout").arg("60").arg(build(&source("tests/throws.cpp"), true)));
    assert_eq!(said, "30\nended, ended\na loop of evenly was given up, its own\n");
}

/// Would catch: a sum of 0.5 and 0.5 that is 0, without a word.
#[test]
fn what_is_no_integer_is_not_reduced_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let compiles = |given: &str| {
        let file = dir.path().join("reduces.c");
        let code = "#include <evenly/loops.h>\nint64_t all(evenly_loop *loop, ";
        let call = ") { return evenly_reduce_int64(loop, EVENLY_SUM, given); }\n";
        std::fs::write(&file, format!("{code}{given} given{call}")).unwrap();
        let mut cc = Command::new("cc");
        cc.arg("-fsyntax-only").arg("-I").arg(source("include")).arg(&file);
        let output = cc.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for whole in ["int", "unsigned", "int64_t", "uint64_t", "char"] {
        assert_eq!(compiles(whole), (true, String::new()), "{whole}");
    }
    for real in ["float", "double", "long double"] {
        let (compiled, said) = compiles(real);
        assert!(!compiled && said.contains("evenly_reduce_double"), "{real}: {said}");
    }
}

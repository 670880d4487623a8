//! `./dev` with stand-ins for cargo, make and the package manager: what it builds, calls and says.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Room {
    dir: tempfile::TempDir,
}

impl Room {
    fn new() -> Self {
        let room = Self { dir: tempfile::tempdir().unwrap() };
        let dev = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev");
        fs::copy(dev, room.path("dev")).unwrap();
        fs::create_dir(room.path("bin")).unwrap();
        fs::create_dir_all(room.path("mapping/capi/include")).unwrap();
        fs::create_dir_all(room.path("loops/include/evenly")).unwrap();
        for file in [
            "mapping/capi/evenly_mapper.pc.in",
            "mapping/capi/include/evenly_mapper.h",
            "loops/evenly_loops.pc.in",
            "loops/include/evenly/loops.h",
        ] {
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
            fs::copy(from, room.path(file)).unwrap();
        }
        // "Builds" programs that print their arguments.
        room.script(
            "cargo",
            r#"mkdir -p "$CARGO_TARGET_DIR/release"
               for p in evenly evenly-bench evenly-lab; do
                   printf '#!/bin/sh\necho "$@" >>"%s"\n[ "$1" != --version ] || echo evenly 9.8.7\n' \
                       "$ROOM/called" >"$CARGO_TARGET_DIR/release/$p"
                   chmod +x "$CARGO_TARGET_DIR/release/$p"
               done
               [[ $* != *evenly-capi* ]] || touch "$CARGO_TARGET_DIR"/release/libevenly_{mapper,loops}.{a,so}"#,
        );
        room.script("make", r#"echo "$@" >>"$ROOM/made""#);
        room.script("nproc", "echo 2");
        room.script(
            "dpkg-query",
            r#"for last; do :; done; echo "$last" >>"$ROOM/packages"; echo "install ok installed""#,
        );
        room
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn script(&self, name: &str, text: &str) {
        let path = self.path("bin").join(name);
        evenly_testing::script(&path, &format!("#!/bin/bash\n{text}\n"));
    }

    /// What `./dev` says when it is called so.
    fn dev(&self, args: &[&str], more_path: &str) -> String {
        self.dev_with(args, more_path, "cache")
    }

    /// The same with this folder of downloads.
    fn dev_with(&self, args: &[&str], more_path: &str, cache: &str) -> String {
        let output = self.output(args, more_path, cache);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        said
    }

    fn output(&self, args: &[&str], more_path: &str, cache: &str) -> Output {
        self.command(args, more_path, cache).output().unwrap()
    }

    fn command(&self, args: &[&str], more_path: &str, cache: &str) -> Command {
        let path = format!(
            "{}:{more_path}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        let mut command = Command::new("bash");
        command
            .arg(self.path("dev"))
            .args(args)
            .env("PATH", path)
            .env("ROOM", self.dir.path())
            // These tests may have been started by ./dev test, which sets it.
            .env_remove("EVENLY_MAY_SKIP")
            .env("CARGO_TARGET_DIR", self.path("target elsewhere"))
            .env("PREFIX", self.path("prefix"))
            .env("XDG_CACHE_HOME", self.path(cache));
        command
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

#[test]
fn demo_and_benchmarks_find_what_was_built_elsewhere() {
    let room = Room::new();
    let target = room.path("target elsewhere");
    let target = target.display();
    let said = room.dev(&["demo", "--runs", "2"], "");
    assert!(said.contains("takes some minutes"), "{said}");
    assert_eq!(
        room.read("called").trim(),
        format!("demo --workloads {target}/workloads --out {target}/demo --runs 2")
    );
    fs::remove_file(room.path("called")).unwrap();
    // The second time it does not take long.
    let said = room.dev(&["bench", "--quick"], "");
    assert!(!said.contains("minutes"), "{said}");
    assert_eq!(room.read("called").trim(), format!("run --workloads {target}/workloads --quick"));
    fs::remove_file(room.path("called")).unwrap();
    room.dev(&["bench", "lab", "--runs", "3"], "");
    assert_eq!(
        room.read("called").trim(),
        format!("lab --workloads {target}/workloads-static --runs 3")
    );
    // Programs with loops are linked with the library that was built.
    let made = room.read("made");
    let last = made.lines().last().unwrap();
    assert!(last.contains(" STATIC=1 "), "{last}");
    assert!(last.ends_with(&format!(" loops LIBRARY={target}/release")), "{last}");
}

/// What is looked for is what is used: no emulator and no MPI for a demo.
#[test]
fn each_command_needs_no_more_than_it_uses() {
    const BUILDING: [&str; 5] = ["gcc", "libc6-dev", "pkg-config", "libhwloc-dev", "libudev-dev"];
    for (args, more) in [
        (&["demo"][..], &["make"][..]),
        (&["bench", "--quick"], &["make", "clang", "libomp-dev"]),
        (&["bench", "loops"], &["make", "clang", "libomp-dev", "g++", "libtbb-dev"]),
        (
            &["bench", "real"],
            &[
                "make",
                "clang",
                "libomp-dev",
                "lammps",
                "gromacs",
                "hpcc",
                "raxml",
                "openmpi-bin",
                "python3-numpy",
                "libopenblas0-pthread",
                "g++",
                "libtbb-dev",
            ],
        ),
        (&["bench", "lab"], &["make", "qemu-system-x86", "busybox-static"]),
        (&["lab", "--", "true"], &["make", "qemu-system-x86", "busybox-static"]),
        (&["install"], &[]),
        (&["test"], &["make"]),
    ] {
        let room = Room::new();
        room.dev(args, "");
        let packages = room.read("packages");
        let looked_for: Vec<&str> = packages.split_whitespace().collect();
        assert_eq!(looked_for, [&BUILDING[..], more].concat(), "{args:?}");
        if args == ["demo"] {
            assert!(room.read("made").trim_end().ends_with(" demo"), "{}", room.read("made"));
        }
    }
}

#[test]
fn with_one_cpu_there_is_no_demo_and_nothing_is_built_for_it() {
    let room = Room::new();
    room.script("nproc", r#"[ "$*" = --all ] && echo 4 || echo 1"#);
    let output = room.output(&["demo"], "", "cache");
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "dev: the demo needs two CPUs, and this process may use one of 4\n"
    );
    assert!(!room.path("packages").exists() && !room.path("target elsewhere").exists());
}

#[test]
fn installing_needs_a_linker_and_hwloc_only_and_tells_of_the_path() {
    let room = Room::new();
    let said = room.dev(&["install"], "");
    assert_eq!(
        room.read("packages").split_whitespace().collect::<Vec<_>>(),
        ["gcc", "libc6-dev", "pkg-config", "libhwloc-dev", "libudev-dev"]
    );
    assert!(room.path("prefix/bin/evenly").exists());
    assert!(said.contains("is not in PATH"), "{said}");
    let there = room.path("prefix/bin");
    let said = room.dev(&["install"], there.to_str().unwrap());
    assert!(!said.contains("is not in PATH"), "{said}");
    // With it the library for C.
    for file in [
        "include/evenly_mapper.h",
        "include/evenly/loops.h",
        "lib/libevenly_mapper.a",
        "lib/libevenly_mapper.so",
        "lib/libevenly_loops.a",
        "lib/libevenly_loops.so",
    ] {
        assert!(room.path("prefix").join(file).exists(), "{file}");
    }
    let prefix = format!("prefix={}\n", room.path("prefix").canonicalize().unwrap().display());
    for library in ["evenly_mapper", "evenly_loops"] {
        let described = room.read(&format!("prefix/lib/pkgconfig/{library}.pc"));
        assert!(described.starts_with(&prefix) && !described.contains('@'), "{described}");
        assert!(described.contains("Version: 9.8.7\n"), "{described}");
        assert!(described.contains(&format!(" -l{library}\n")), "{described}");
    }
}

/// The tests may skip no more than what the machine cannot do; a lab without a kernel is one of
/// these.
#[test]
#[ignore = "takes long: ./dev test --all"]
fn without_a_kernel_to_be_had_the_lab_may_be_skipped() {
    let room = Room::new();
    let kernel = room.path("cache/evenly/lab/kernels/6.1.0-1/vmlinux");
    fs::create_dir_all(kernel.parent().unwrap()).unwrap();
    fs::write(kernel, "").unwrap();
    room.script("apt-cache", "echo linux-image-6.1.0-9-cloud-amd64");
    room.script("apt-get", "echo unreachable >&2; exit 100");
    room.script("qemu-system-x86_64", "exit 0");
    room.script("python3", "exit 0");
    let may_skip = |cache| -> Option<bool> {
        let said = room.dev_with(&["test", "--all"], "", cache);
        let keys = said.lines().find_map(|l| l.strip_prefix("dev: tests may be skipped for: "))?;
        Some(keys.split(',').any(|key| key == "lab"))
    };
    match may_skip("cache") {
        None => {
            return evenly_testing::skip("root", "./dev test lets others skip what they cannot");
        }
        Some(true) => return evenly_testing::skip("lab", "there can be none here"),
        Some(false) => {}
    }
    assert_eq!(may_skip("empty"), Some(true));
    room.script("apt-get", r#"for last; do :; done; echo >"$last.deb""#);
    assert_eq!(may_skip("empty"), Some(false));
    room.script("uname", r#"[ "$1" = -m ] && echo riscv64 || exec /usr/bin/uname "$@""#);
    assert_eq!(may_skip("cache"), Some(true));
}

/// A room in which these tests of this target fail, and what they answer when run again, alone.
fn failing(target: &str, failed: &[&str], again: &str) -> Room {
    let room = Room::new();
    // Nothing is looked for in it: the module is there.
    room.script("python3", "exit 0");
    let names: String = failed.iter().map(|name| format!("echo '    {name}'\n")).collect();
    room.script(
        "cargo",
        &format!(
            r#"[[ $1 == test && $* != *loom* ]] || exit 0
               echo "$*" >>"$ROOM/tested"
               case $* in
               *--exact*) {again} ;;
               *)
                   echo 'test result: ok. 40 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out'
                   echo 'skipped: some::test: there is none [scotch]' >&2
                   echo 'test other ... skipped: other: too few: one [two-cpus]' >&2
                   echo 'skipped: third: there is none [scotch]' >&2
                   printf '\nfailures:\n\n---- one stdout ----\n    no name\n\nfailures:\n'
                   {names}
                   printf '\ntest result: FAILED. 3 passed; {} failed; 1 ignored; 0 measured\n'
                   echo 'error: test failed, to rerun pass `{target}`' >&2
                   exit 101 ;;
               esac"#,
            failed.len()
        ),
    );
    room
}

/// Whether it passes, what it says, and what was run again.
fn tested(room: &Room, args: &[&str]) -> (bool, String, Vec<String>) {
    let output = room.command(args, "", "cache").env("EVENLY_MAY_SKIP", "").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let tested = room.read("tested");
    let again = tested.lines().filter(|l| l.contains("--exact")).map(str::to_owned).collect();
    (output.status.success(), said, again)
}

const LIVE: &str = "-p evenly-cli --test remap";
const PASSES: &str = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'";
const FAILS: &str = "echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101";

#[test]
fn the_first_tier_repeats_no_test() {
    let room = failing(LIVE, &["one"], PASSES);
    let (passes, said, again) = tested(&room, &["test"]);
    assert!(!passes && again.is_empty(), "{said}");
    assert!(said.contains("dev: 43 tests passed, 1 failed; "), "{said}");
    assert!(said.contains("dev: failed: one (-p evenly-cli --test remap)\n"), "{said}");
    assert!(!room.read("tested").contains("--include-ignored"), "{said}");
}

#[test]
fn what_was_not_run_or_skipped_is_summed_up() {
    let room = failing(LIVE, &["one"], FAILS);
    let (_, said, _) = tested(&room, &["test"]);
    assert!(
        said.contains("dev: not run, as they take long or need more: 3; ./dev test --all"),
        "{said}"
    );
    assert!(said.contains("in part, for lack of scotch: 2\n"), "{said}");
    assert!(said.contains("in part, for lack of two-cpus: 1\n"), "{said}");
}

/// What `./dev test --all` says where cargo fails when called with these arguments, and how cargo-deny was called.
fn dependencies_checked(cargo_fails: &[&str]) -> (String, Vec<String>) {
    let room = Room::new();
    room.script("python3", "exit 0");
    let fails: String = cargo_fails.iter().map(|args| format!("'{args}') exit 1 ;;\n")).collect();
    room.script("cargo", &format!("echo \"$*\" >>\"$ROOM/cargo\"\ncase $* in\n{fails}esac"));
    let output =
        room.command(&["test", "--all"], "", "cache").env("EVENLY_MAY_SKIP", "").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let checks = room.read("cargo");
    (said, checks.lines().filter(|l| l.contains(" check ")).map(str::to_owned).collect())
}

/// The summary comes after all that is said of tests.
fn summary(said: &str) -> &str {
    said.split_once(" tests passed, ").unwrap().1
}

#[test]
fn advisories_against_all_dependencies_are_checked() {
    let (said, checks) = dependencies_checked(&[]);
    assert_eq!(checks.len(), 2, "{checks:?}");
    for (check, manifest) in checks.iter().zip([" Cargo.toml ", " tools/fuzz/Cargo.toml "]) {
        assert!(check.contains(manifest), "{check}");
        assert!(check.ends_with(" licenses bans sources advisories"), "{check}");
    }
    assert!(!said.contains("not checked: "), "{said}");
}

#[test]
fn without_the_database_of_advisories_the_summary_says_so() {
    let (said, checks) = dependencies_checked(&["deny --locked fetch db"]);
    assert!(
        summary(&said).contains(
            "dev: not checked: advisories against dependencies, as their database cannot be fetched\n"
        ),
        "{said}"
    );
    // All else is.
    assert_eq!(checks.len(), 2, "{checks:?}");
    assert!(checks.iter().all(|check| check.ends_with(" licenses bans sources")), "{checks:?}");
}

#[test]
fn without_cargo_deny_the_summary_says_so() {
    let (said, checks) =
        dependencies_checked(&["deny --version", "install --quiet --locked cargo-deny"]);
    assert!(
        summary(&said)
            .contains("dev: not checked: dependencies, as cargo-deny cannot be installed\n"),
        "{said}"
    );
    assert!(checks.is_empty(), "{checks:?}");
}

#[test]
fn a_live_test_that_passes_alone_is_flaky() {
    let room = failing(LIVE, &["one", "a::two"], PASSES);
    let (passes, said, again) = tested(&room, &["test", "--all"]);
    assert!(passes, "{said}");
    let command = |name| {
        format!("test --locked --workspace -- --include-ignored --exact --test-threads=1 {name}")
    };
    assert_eq!(again, [command("one"), command("a::two")]);
    assert!(said.contains("dev: 45 tests passed, 0 failed; "), "{said}");
    for name in ["one", "a::two"] {
        let line = format!("dev: flaky, passed when run once more, alone: {name} ({LIVE})\n");
        assert!(said.contains(&line), "{said}");
    }
    assert!(!said.contains("dev: failed: "), "{said}");
}

#[test]
fn a_live_test_that_fails_again_has_failed() {
    // What ran no test has not passed either.
    for again in [FAILS, "echo 'test result: ok. 0 passed; 0 failed; 0 ignored'"] {
        let (passes, said, again) = tested(&failing(LIVE, &["one"], again), &["test", "--all"]);
        assert!(!passes && again.len() == 1, "{said}");
        assert!(said.contains("dev: failed: one (-p evenly-cli --test remap)\n"), "{said}");
    }
}

/// Unit tests, also of programs with live tests, more than three, and a test program that names none.
#[test]
fn others_that_fail_are_not_run_again() {
    for (target, failed) in [
        ("-p evenly-policy --lib", &["one"][..]),
        ("-p evenly-linux --lib", &["one"]),
        ("-p evenly-sim --test calls", &["one"]),
        (LIVE, &["one", "two", "three", "four"]),
        (LIVE, &[]),
    ] {
        let (passes, said, again) = tested(&failing(target, failed, PASSES), &["test", "--all"]);
        assert!(!passes && again.is_empty(), "{target} {failed:?}: {said}");
    }
}

/// All sources in Rust below a folder, but for what was built.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && !path.is_symlink() && name != "target" && !name.starts_with('.') {
            sources(&path, into);
        } else if name.ends_with(".rs") {
            into.push(path);
        }
    }
}

/// A skip with another key is a failure on every machine, also on one that cannot run the test.
#[test]
fn keys_of_skips_are_what_dev_looks_for() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dev = fs::read_to_string(root.join("dev")).unwrap();
    let known: BTreeSet<&str> = dev
        .split("lacks+=(")
        .skip(1)
        .flat_map(|rest| rest.split(')').next().unwrap().split_whitespace())
        // Only of root is it asked that nothing is skipped.
        .chain(["root"])
        .collect();
    let mut all = Vec::new();
    sources(&root, &mut all);
    let call = ["evenly_testing", "skip("].join("::");
    let mut seen = 0;
    for path in all {
        let text = fs::read_to_string(&path).unwrap();
        for rest in text.split(&call).skip(1) {
            // Other keys are in variables.
            let Some(key) = rest.trim_start().strip_prefix('"') else { continue };
            let key = key.split('"').next().unwrap();
            assert!(known.contains(key), "{}: {key} is not one of {known:?}", path.display());
            seen += 1;
        }
    }
    assert!(seen > 50, "{seen}");
}

//! `./dev` with stand-ins for cargo, make and the package manager: what it builds, calls and says.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
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
        for file in ["mapping/capi/evenly_mapper.pc.in", "mapping/capi/include/evenly_mapper.h"] {
            let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file);
            fs::copy(from, room.path(file)).unwrap();
        }
        // "Builds" programs that tell their arguments.
        room.script(
            "cargo",
            r#"mkdir -p "$CARGO_TARGET_DIR/release"
               for p in evenly evenly-bench evenly-lab; do
                   printf '#!/bin/sh\necho "$@" >>"%s"\n[ "$1" != --version ] || echo evenly 9.8.7\n' \
                       "$ROOM/called" >"$CARGO_TARGET_DIR/release/$p"
                   chmod +x "$CARGO_TARGET_DIR/release/$p"
               done
               [[ $* != *evenly-capi ]] || touch "$CARGO_TARGET_DIR"/release/libevenly_mapper.{a,so}"#,
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
        fs::write(&path, format!("#!/bin/bash\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What it says.
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
        let path = format!(
            "{}:{more_path}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap_or_default()
        );
        Command::new("bash")
            .arg(self.path("dev"))
            .args(args)
            .env("PATH", path)
            .env("ROOM", self.dir.path())
            .env("CARGO_TARGET_DIR", self.path("target elsewhere"))
            .env("PREFIX", self.path("prefix"))
            .env("XDG_CACHE_HOME", self.path(cache))
            .output()
            .unwrap()
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
}

/// What is looked for is what is used: no emulator and no MPI for a demo.
#[test]
fn each_command_needs_no_more_than_it_uses() {
    const BUILDING: [&str; 5] = ["gcc", "libc6-dev", "pkg-config", "libhwloc-dev", "libudev-dev"];
    for (args, more) in [
        (&["demo"][..], &["make"][..]),
        (&["bench", "--quick"], &["make", "clang", "libomp-dev"]),
        (&["bench", "lab"], &["make", "qemu-system-x86", "busybox-static"]),
        (&["lab", "--", "true"], &["make", "qemu-system-x86", "busybox-static"]),
        (&["install"], &[]),
    ] {
        let room = Room::new();
        room.dev(args, "");
        let packages = room.read("packages");
        let looked_for: Vec<&str> = packages.split_whitespace().collect();
        assert_eq!(looked_for, [&BUILDING[..], more].concat(), "{args:?}");
        if args == ["demo"] {
            assert!(room.read("made").trim_end().ends_with(" threads"), "{}", room.read("made"));
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
    for file in ["include/evenly_mapper.h", "lib/libevenly_mapper.a", "lib/libevenly_mapper.so"] {
        assert!(room.path("prefix").join(file).exists(), "{file}");
    }
    let described = room.read("prefix/lib/pkgconfig/evenly_mapper.pc");
    let prefix = format!("prefix={}\n", room.path("prefix").canonicalize().unwrap().display());
    assert!(described.starts_with(&prefix) && !described.contains('@'), "{described}");
    assert!(described.contains("Version: 9.8.7\n"), "{described}");
}

/// The tests are told to skip no more than what the machine cannot do; a lab without a kernel is one of
/// these.
#[test]
fn without_a_kernel_to_be_had_the_lab_may_be_skipped() {
    let room = Room::new();
    let kernel = room.path("cache/evenly/lab/kernels/6.1.0-1/vmlinux");
    fs::create_dir_all(kernel.parent().unwrap()).unwrap();
    fs::write(kernel, "").unwrap();
    room.script("apt-cache", "echo linux-image-6.1.0-9-cloud-amd64");
    room.script("apt-get", "echo unreachable >&2; exit 100");
    room.script("qemu-system-x86_64", "exit 0");
    let may_skip = |cache| -> Option<bool> {
        let said = room.dev_with(&["test"], "", cache);
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

/// What `cargo test` prints and answers where a test of this target failed; run again by its name alone,
/// it passes or not.
fn failing(target: &str, failed: &[&str], again: &str) -> String {
    let lines: String =
        failed.iter().map(|name| format!("echo 'test {name} ... FAILED'\n")).collect();
    format!(
        r#"[[ $1 == test ]] || exit 0
           echo "$*" >>"$ROOM/tested"
           case $* in
           *--exact*) {again} ;;
           *--workspace*)
               {lines}
               echo 'error: 1 target failed:' >&2
               echo '    `{target}`' >&2
               exit 101 ;;
           esac"#
    )
}

/// Only few tests, only of real processes, only once; and a test that did not run has not passed.
#[test]
fn few_tests_of_real_processes_are_run_once_more() {
    const PASSES: &str = "echo 'test one ... ok'";
    let real = "-p evenly-cli --test remap";
    for (target, failed, again, passes, told) in [
        (
            real,
            &["one"][..],
            PASSES,
            true,
            "passed only when run once more, alone: one (-p evenly-cli",
        ),
        (real, &["one"], "echo 'test one ... FAILED'; exit 101", false, "once more, alone: one"),
        (real, &["one"], "echo running 0 tests", false, "once more, alone: one"),
        (real, &["one", "two", "three", "four"], PASSES, false, ""),
        (real, &[], PASSES, false, ""),
        ("-p evenly-policy --lib", &["one"], PASSES, false, ""),
    ] {
        let room = Room::new();
        room.script("cargo", &failing(target, failed, again));
        let output = room.output(&["test"], "", "cache");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), passes, "{target} {failed:?} {again}: {said}");
        assert!(said.contains(told), "{target} {failed:?} {again}: {said}");
        let tested = room.read("tested");
        let exact = tested.lines().filter(|l| l.contains("--exact")).count();
        assert_eq!(exact, usize::from(!told.is_empty()), "{tested}");
        if exact == 1 {
            assert!(
                tested.contains(&format!("test --locked {target} -- --exact --test-threads=1 one"))
            );
        }
    }
}

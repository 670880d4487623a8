//! Integration tests of the other crates that mean more on eight CPUs in two nodes than on two CPUs. They run
//! there as they run here, but for where they find evenly and the workloads.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use std::process::Command;

use evenly_lab::{Include, Lab};
use serde_json::Value;

use crate::builds::{succeed, target, workloads};
use crate::guests::{run, text};

/// The test programs, and of each the tests.
const SHARED: [(&str, &[&str]); 3] = [
    (
        "harmless_end",
        &[
            "a_killed_balancer_is_cleaned_up_after_by_the_guardian",
            "a_new_balancer_undoes_what_a_killed_one_left",
            "masks_are_free_while_evenly_is_stopped_and_ours_again_after",
        ],
    ),
    (
        "journal",
        &[
            "a_killed_balancer_is_undone_by_its_guardian",
            "masks_that_the_program_chose_are_left",
            "when_both_are_killed_restore_undoes_it",
        ],
    ),
    // Hosts may not let limits of nice values be raised.
    ("lowered", &["who_may_take_nice_values_back_has_the_others_lowered_and_given_back"]),
];

/// What takes part in control groups of version 2 (the host's may not be), and what it lacks there.
const GROUPS: [(&str, &str, &str, &str); 4] = [
    ("the_topmost_group", "", "", ""),
    ("a_group_with_processes", GROUP, "", ""),
    ("a_delegated_group", GROUP, NOBODY, "privileged-nice"),
    // A user without privileges may then change nice values as far as RLIMIT_NICE allows it.
    ("a_delegated_group_with_a_nice_limit", GROUP, LIMITED_NOBODY, "privileged-nice"),
];
const GROUP: &str = "/sys/fs/cgroup/shares";
const NOBODY: &str = "/tests/setpriv --reuid 65534 --regid 65534 --clear-groups";
const LIMITED_NOBODY: &str =
    "ulimit -e 20; /tests/setpriv --reuid 65534 --regid 65534 --clear-groups";

type Test = Box<dyn FnOnce(&mut Lab) + Send>;

/// The tests, by name.
pub(crate) fn tests() -> Vec<(String, Test)> {
    let mut all: Vec<(String, Test)> = Vec::new();
    for (program, tests) in SHARED {
        for test in tests {
            let run = move |lab: &mut Lab| one(lab, program, test);
            all.push((format!("shared::{program}::{test}"), Box::new(run)));
        }
    }
    for (name, inside, user, lacks) in GROUPS {
        let run = move |lab: &mut Lab| shares(lab, inside, user, lacks);
        all.push((format!("shared::shares::in_{name}"), Box::new(run)));
    }
    all
}

fn one(lab: &mut Lab, program: &str, test: &str) {
    let output = run(
        lab,
        &format!(
            "export PATH=/tests:$PATH EVENLY_PROGRAMS=/usr/bin EVENLY_NO_SKIP=1 \
             EVENLY_MAY_SKIP=clang; /tests/{program} --include-ignored --exact {test}"
        ),
    );
    let (output_text, said) = (output.text(), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status, 0, "{output_text}\n{said}");
    // One by another name would be none.
    assert!(output_text.contains(" 1 passed; 0 failed;"), "{output_text}");
}

/// What is given of shares and undone, inside of a group: all tests of these mechanisms.
fn shares(lab: &mut Lab, inside: &str, user: &str, lacks: &str) {
    let files = [".", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"];
    let files = files.map(|f| format!("{GROUP}/{f}")).join(" ");
    text(lab, &format!("mkdir {GROUP}; chown 65534:65534 {files}"));
    let enter = match inside {
        "" => String::new(),
        group => format!("echo $$ >{group}/cgroup.procs; "),
    };
    let command = format!(
        "export EVENLY_NO_SKIP=1 EVENLY_MAY_SKIP={lacks}; {enter}{user} /tests/shares \
         --include-ignored --test-threads=1 nice:: control_group:: what_the_program_set"
    );
    let output = run(lab, &command);
    let (output_text, said) = (output.text(), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status == 0 && output_text.contains(" 11 passed;"),
        "{command}: {output_text}\n{said}"
    );
    // As it was: no group is left, no controller on, no threaded subtree.
    let left =
        format!("cat {GROUP}/cgroup.type {GROUP}/cgroup.subtree_control; ls {GROUP} | grep evenly");
    assert_eq!(text(lab, &format!("{left}; true")), "domain", "{command}");
    text(lab, &format!("rmdir {GROUP}"));
}

/// These test programs, and `shares`. Built with all the others, so that after `cargo test` of the
/// workspace nothing is left to be built.
pub(crate) fn programs() -> Vec<Include> {
    let target = target();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = succeed(
        Command::new(cargo)
            .args(["test", "--quiet", "--workspace", "--locked"])
            .args(["--no-run", "--message-format", "json", "--target-dir"])
            .arg(&target),
    );
    let artifacts: Vec<Value> =
        built.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let stripped = target.join("tests-stripped");
    std::fs::create_dir_all(&stripped).unwrap();
    let include = |name| {
        let of_name = |a: &&Value| a["target"]["name"] == name && a["target"]["kind"][0] == "test";
        let found: Vec<&Value> = artifacts.iter().filter(of_name).collect();
        let [artifact] = found[..] else { panic!("test programs of this name: {found:?}") };
        // What is for debuggers is most of it, and would take long to unpack in the guest.
        let host = stripped.join(name);
        let program = artifact["executable"].as_str().unwrap();
        succeed(Command::new("strip").arg("--strip-debug").arg("-o").arg(&host).arg(program));
        Include { host, guest: format!("/tests/{name}") }
    };
    // busybox has one that knows no users, and no prlimit.
    let tool = |name| Include {
        host: PathBuf::from("/usr/bin").join(name),
        guest: format!("/tests/{name}"),
    };
    let names = SHARED.map(|(name, _)| name).into_iter().chain(["shares"]);
    let mut all: Vec<Include> = names.map(include).collect();
    all.extend(["setpriv", "prlimit"].map(tool));
    // The probe is loaded into none that is static.
    let out = workloads("workloads", false);
    let loop_of_clang = out.join("triangle-omp");
    if loop_of_clang.exists() {
        let guest = String::from("/usr/bin/triangle-omp");
        all.push(Include { host: loop_of_clang, guest });
    }
    all
}

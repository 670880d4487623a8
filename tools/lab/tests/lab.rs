//! Boots a lab and checks that the guest is the machine that was asked for, that
//! commands pass through unharmed, and that nothing is left behind.
//!
//! Needs QEMU, a kernel package and the right to make control groups, and takes
//! a minute: skipped unless asked for with `EVENLY_LAB=1`. What is missing is a
//! skip that says so.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use evenly_lab::{CpuCaps, GuestFile, Include, Lab, LabOptions, Output, Quota};
use rustix::process::Pid;

const MINUTE: Duration = Duration::from_secs(60);

fn run(lab: &mut Lab, command: &str) -> Output {
    common::run(lab, command, MINUTE)
}

fn text(lab: &mut Lab, command: &str) -> String {
    let output = run(lab, command);
    assert_eq!(output.status, 0, "{command}: {}", String::from_utf8_lossy(&output.stderr));
    output.text()
}

/// One boot serves all checks of the guest.
#[test]
fn a_machine_of_eight_cpus_and_two_nodes() {
    if !common::wanted() {
        return;
    }
    let _one = common::one_lab();
    let this = std::env::current_exe().unwrap();
    let odd: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let boot = || {
        Lab::boot(LabOptions {
            include: vec![Include { host: this.clone(), guest: "/usr/bin/this-test".into() }],
            files: vec![GuestFile { guest: "/data/odd".into(), content: odd.clone(), mode: 0o640 }],
            ..LabOptions::default()
        })
    };
    common::in_a_lab(boot, |lab| {
        topology(lab);
        cpusets(lab);
        quotas(lab);
        outcomes(lab);
        output(lab, &odd);
        timeout(lab);
        push(lab);

        let check = common::answered(lab.equal_speed(3, 1, 0.05), "the check of equal speed");
        let all = check.deviations.iter().filter(|d| d.all_busy).count();
        assert_eq!((check.deviations.len() - all, all), (3, 8));
        // Its verdict depends on what else this host does: it voids figures, but
        // is no matter of right and wrong.
        eprintln!("{check}");
        // Last: what it changes is the machine itself.
        hotplug(lab);
        assert_eq!(own_groups().len(), 1, "{:?}", own_groups());
    });
    assert_eq!(own_groups(), [] as [PathBuf; 0]);
}

fn topology(lab: &mut Lab) {
    assert_eq!(text(lab, "nproc"), "8");
    assert_eq!(text(lab, "cat /sys/devices/system/node/online"), "0-1");
    assert_eq!(text(lab, "cat /sys/devices/system/node/node0/cpulist"), "0-3");
    assert_eq!(text(lab, "cat /sys/devices/system/node/node1/cpulist"), "4-7");
    assert_eq!(text(lab, "cat /sys/devices/system/node/node0/distance"), "10 21");
    assert!(text(lab, "uname -r").starts_with("6.1."));
    assert!(text(lab, "cat /sys/fs/cgroup/cgroup.subtree_control").contains("cpuset cpu"));
}

fn hotplug(lab: &mut Lab) {
    let online = "/sys/devices/system/cpu/cpu3/online";
    text(lab, &format!("echo 0 >{online}"));
    assert_eq!(text(lab, "cat /sys/devices/system/cpu/online"), "0-2,4-7");
    assert_eq!(text(lab, "nproc"), "7");
    text(lab, &format!("echo 1 >{online}"));
    assert_eq!(text(lab, "nproc"), "8");
}

fn cpusets(lab: &mut Lab) {
    let group = "/sys/fs/cgroup/part";
    text(lab, &format!("mkdir {group} && echo 5-6 >{group}/cpuset.cpus"));
    let inside =
        format!("echo $$ >{group}/cgroup.procs && grep Cpus_allowed_list /proc/self/status");
    assert_eq!(text(lab, &inside), "Cpus_allowed_list:\t5-6");
    text(lab, &format!("echo root >{group}/cpuset.cpus.partition"));
    assert_eq!(text(lab, &format!("cat {group}/cpuset.cpus.partition")), "root");
    // A partition takes its CPUs away from everyone else.
    assert_eq!(text(lab, "cat /sys/fs/cgroup/cpuset.cpus.effective"), "0-4,7");
    text(lab, &format!("rmdir {group}"));
    assert_eq!(text(lab, "cat /sys/fs/cgroup/cpuset.cpus.effective"), "0-7");
}

fn quotas(lab: &mut Lab) {
    let group = "/sys/fs/cgroup/slow";
    text(lab, &format!("mkdir {group} && echo '5000 50000' >{group}/cpu.max"));
    let spin =
        format!("echo $$ >{group}/cgroup.procs; timeout 1 sh -c 'while :; do :; done'; true");
    text(lab, &spin);
    let throttled = text(lab, &format!("sed -n 's/^nr_throttled //p' {group}/cpu.stat"));
    assert_ne!(throttled, "0");
    text(lab, &format!("rmdir {group}"));
    // The lab's own capping by cgroup v2, which this host may not have.
    let inside = "EVENLY_LAB=1 this-test --exact caps_hold_a_busy_thread --nocapture";
    let output = run(lab, inside);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status, 0, "{} {said}", output.text());
    assert!(output.text().contains("1 passed"), "{}", output.text());
    assert!(!said.contains("skipped"), "{said}");
}

fn outcomes(lab: &mut Lab) {
    assert_eq!(run(lab, "exit 7").status, 7);
    assert_eq!(run(lab, "no-such-program").status, 127);
    assert_eq!(run(lab, "kill -9 $$").status, 137);
    let output = run(lab, "echo out; echo err >&2; false");
    assert_eq!(
        (output.stdout, output.stderr, output.status),
        (b"out\n".into(), b"err\n".into(), 1)
    );
    // No terminal, no input.
    assert_eq!(run(lab, "test -t 1").status, 1);
    assert_eq!(text(lab, "wc -c"), "0");
}

fn output(lab: &mut Lab, odd: &[u8]) {
    assert_eq!(text(lab, "stat -c %a /data/odd"), "640");
    let output = run(lab, "cat /data/odd; cat /data/odd >&2");
    assert!(output.stdout == odd, "{} bytes", output.stdout.len());
    assert!(output.stderr == odd, "{} bytes", output.stderr.len());
    // What ends without a line's end, and what is nothing.
    assert_eq!(run(lab, "printf a").stdout, b"a");
    assert_eq!(run(lab, ":").stdout, b"");
}

fn timeout(lab: &mut Lab) {
    let start = Instant::now();
    // Ignores what it can, and has a child in a session of its own.
    let hang = "trap '' TERM HUP INT; echo begun; setsid sleep 999 & while :; do sleep 1; done";
    let output = lab.run(hang, Duration::from_secs(3)).unwrap();
    assert!(output.timed_out);
    assert_eq!((output.status, output.text().as_str()), (124, "begun"));
    assert!(start.elapsed() < Duration::from_secs(50), "{:?}", start.elapsed());
    // A killed process has its name until it is reaped.
    let reaped = "n=0; while pidof sleep >/dev/null && [ $n -lt 100 ]; do usleep 100000; \
                  n=$((n + 1)); done; pidof sleep || echo none";
    assert_eq!(text(lab, reaped), "none");
    // In the middle of output too.
    let output = lab.run("yes", Duration::from_secs(2)).unwrap();
    assert!(output.timed_out && output.stdout.starts_with(b"y\ny\n"));
    assert!(output.stdout.iter().all(|byte| b"y\n".contains(byte)));
    let output = run(lab, "echo still here");
    assert_eq!((output.status, output.stdout.as_slice()), (0, b"still here\n".as_slice()));
}

fn push(lab: &mut Lab) {
    let script = format!("#!/bin/sh\n# {}\necho pushed \"$@\"\n", "x".repeat(30_000));
    lab.push(script.as_bytes(), "/opt/it's here/run").unwrap();
    assert_eq!(text(lab, "\"/opt/it's here/run\" a b"), "pushed a b");
    assert!(lab.push(b"x", "/proc/nowhere/x").is_err());
}

/// Runs on this host and, by the test above, in the guest.
#[test]
fn caps_hold_a_busy_thread() {
    if !common::wanted() {
        return;
    }
    let _one = common::one_lab();
    let Some((mut child, caps)) = busy_child() else { return };
    caps.set(Some(Quota::of_share(0.1))).unwrap();
    let before = cpu_ticks(child.id());
    std::thread::sleep(Duration::from_secs(2));
    let used = cpu_ticks(child.id()) - before;
    child.kill().unwrap();
    child.wait().unwrap();
    drop(caps);
    // At 100 ticks a second, 20 are its due: never more, whatever else runs.
    assert!(used <= 30, "{used} ticks in two seconds with a tenth of a CPU");
    assert_eq!(own_groups(), [] as [PathBuf; 0]);
}

/// A busy process in groups of its own.
fn busy_child() -> Option<(std::process::Child, CpuCaps)> {
    let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    let caps = common::or_skip(CpuCaps::new(pid, &[pid]));
    if caps.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    Some((child, caps?))
}

/// A lab that is killed takes QEMU with it, and the next one sweeps its groups.
#[test]
fn a_killed_lab_leaves_nothing() {
    if !common::wanted() {
        return;
    }
    let _one = common::one_lab();
    let mut owner = Command::new(env!("CARGO_BIN_EXE_evenly-lab"))
        .args(["--cpus", "2", "--numa", "1", "--no-equal-speed-check", "--", "echo up; sleep 999"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    let mut stdout = owner.stdout.take().unwrap();
    if std::io::Read::read_exact(&mut stdout, &mut up).is_err() {
        assert_eq!(owner.wait().unwrap().code(), Some(77), "neither booted nor skipped");
        return common::skipped("the lab is not to be had here; evenly-lab says why");
    }
    let pid = owner.id();
    assert_eq!(groups_of(pid).len(), 1);
    let qemu = children(pid);
    assert_eq!(qemu.len(), 1);
    owner.kill().unwrap();
    owner.wait().unwrap();
    let deadline = Instant::now() + MINUTE;
    while Path::new(&format!("/proc/{}", qemu[0])).exists() {
        assert!(Instant::now() < deadline, "QEMU {} lives on", qemu[0]);
        std::thread::sleep(Duration::from_millis(20));
    }
    let (mut child, caps) = busy_child().unwrap();
    assert_eq!(groups_of(pid), [] as [PathBuf; 0]);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(caps);
}

fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent_of = stat.rsplit_once(')').and_then(|(_, rest)| rest.split(' ').nth(2));
        parent_of == Some(parent.to_string().as_str())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|e| e.file_name().to_str()?.parse().ok()).filter(is_child).collect()
}

fn own_groups() -> Vec<PathBuf> {
    groups_of(std::process::id())
}

/// Control groups that name this process as their owner, wherever they are.
fn groups_of(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("evenly-lab-{pid}-");
    let mut found = Vec::new();
    let mut left = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                found.push(entry.path());
            } else {
                left.push(entry.path());
            }
        }
    }
    found
}

fn cpu_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

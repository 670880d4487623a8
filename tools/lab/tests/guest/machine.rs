//! The lab itself: that the guest is the machine that was asked for, that commands pass through unharmed, and
//! that nothing is left behind.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use evenly_lab::{CpuCaps, GuestFile, Include, Lab, Quota};
use libtest_mimic::Completion;
use rustix::process::Pid;

use crate::guests::{self, GuestKind, Outcome, run, text};

/// Every byte, many times.
fn odd() -> Vec<u8> {
    (0..=255).cycle().take(100_000).collect()
}

pub(crate) fn odd_file() -> GuestFile {
    GuestFile { guest: "/data/odd".into(), content: odd(), mode: 0o640 }
}

/// This test program, for the guest.
pub(crate) fn this_test() -> Include {
    Include { host: std::env::current_exe().unwrap(), guest: "/usr/bin/this-test".into() }
}

pub(crate) fn it_is_the_machine_that_was_asked_for(lab: &mut Lab) {
    assert_eq!(text(lab, "nproc"), "8");
    assert_eq!(text(lab, "cat /sys/devices/system/node/online"), "0-1");
    assert_eq!(text(lab, "cat /sys/devices/system/node/node0/cpulist"), "0-3");
    assert_eq!(text(lab, "cat /sys/devices/system/node/node1/cpulist"), "4-7");
    assert_eq!(text(lab, "cat /sys/devices/system/node/node0/distance"), "10 21");
    assert!(text(lab, "uname -r").starts_with("6.1."));
    assert!(text(lab, "cat /sys/fs/cgroup/cgroup.subtree_control").contains("cpuset cpu"));
}

pub(crate) fn a_cpu_goes_offline_and_comes_back(lab: &mut Lab) {
    let online = "/sys/devices/system/cpu/cpu3/online";
    text(lab, &format!("echo 0 >{online}"));
    assert_eq!(text(lab, "cat /sys/devices/system/cpu/online"), "0-2,4-7");
    assert_eq!(text(lab, "nproc"), "7");
    text(lab, &format!("echo 1 >{online}"));
    assert_eq!(text(lab, "nproc"), "8");
}

pub(crate) fn cpusets_and_partitions_work(lab: &mut Lab) {
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

pub(crate) fn quotas_throttle(lab: &mut Lab) {
    let group = "/sys/fs/cgroup/slow";
    text(lab, &format!("mkdir {group} && echo '5000 50000' >{group}/cpu.max"));
    // Who looks computes, and is throttled itself.
    let spin = format!(
        "echo $$ >{group}/cgroup.procs; while grep -qx 'nr_throttled 0' {group}/cpu.stat; do :; done"
    );
    text(lab, &spin);
    text(lab, &format!("rmdir {group}"));
}

/// The host may not have groups of version 2.
pub(crate) fn the_labs_own_caps_hold_in_control_groups_of_version_two(lab: &mut Lab) {
    let inside =
        "EVENLY_NO_SKIP=1 this-test --include-ignored --exact machine::caps_hold_a_busy_thread";
    let output = run(lab, inside);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status, 0, "{} {said}", output.text());
    assert!(output.text().contains("1 passed"), "{}", output.text());
}

pub(crate) fn exit_statuses_and_signals_pass(lab: &mut Lab) {
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

pub(crate) fn output_passes_byte_for_byte(lab: &mut Lab) {
    let odd = odd();
    assert_eq!(text(lab, "stat -c %a /data/odd"), "640");
    let output = run(lab, "cat /data/odd; cat /data/odd >&2");
    assert!(output.stdout == odd, "{} bytes", output.stdout.len());
    assert!(output.stderr == odd, "{} bytes", output.stderr.len());
    // What ends without a line's end, and what is nothing.
    assert_eq!(run(lab, "printf a").stdout, b"a");
    assert_eq!(run(lab, ":").stdout, b"");
}

pub(crate) fn what_hangs_is_ended_and_nothing_of_it_is_left(lab: &mut Lab) {
    // Ignores what it can, and has a child in a session of its own.
    let hang = "trap '' TERM HUP INT; echo begun; setsid sleep 999 & while :; do sleep 1; done";
    let output = lab.run(hang, Duration::from_secs(3)).unwrap();
    assert!(output.timed_out);
    assert_eq!((output.status, output.text().as_str()), (124, "begun"));
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

pub(crate) fn files_are_pushed(lab: &mut Lab) {
    let script = format!("#!/bin/sh\n# {}\necho pushed \"$@\"\n", "x".repeat(30_000));
    lab.push(script.as_bytes(), "/opt/it's here/run").unwrap();
    assert_eq!(text(lab, "\"/opt/it's here/run\" a b"), "pushed a b");
    assert!(lab.push(b"x", "/proc/nowhere/x").is_err());
}

/// The median of three CPUs and of all, each measured against itself: how steady this host keeps them is no
/// matter of right and wrong.
pub(crate) fn equal_speed_is_checked_on_every_cpu(lab: &mut Lab) {
    let check = lab.equal_speed(3, 1, 0.05).unwrap();
    let all = check.deviations.iter().filter(|d| d.all_busy).count();
    assert_eq!((check.deviations.len() - all, all), (3, 8));
}

/// A guest has a group for its CPUs, which goes with it.
pub(crate) fn a_guest_that_ends_leaves_no_groups() -> Outcome {
    let done = guests::with(GuestKind::Eight, |_| assert_eq!(own_groups().len(), 1))?;
    guests::end()?;
    assert_eq!(own_groups(), [] as [PathBuf; 0]);
    Ok(done)
}

/// Runs on this host and, by a test above, in the guest.
pub(crate) fn caps_hold_a_busy_thread() -> Outcome {
    guests::end()?;
    let Some((child, caps)) = busy_child() else { return Ok(Completion::ignored()) };
    caps.set(Some(Quota::of_share(0.1))).unwrap();
    // Beside whatever else runs here it has its share: by the groups' weight, a hundred times the usual one.
    let read =
        |file| own_groups().iter().find_map(|group| fs::read_to_string(group.join(file)).ok());
    let weights = [read("cpu.shares"), read("cpu.weight")];
    assert!(
        weights.contains(&Some("102400\n".into())) || weights.contains(&Some("10000\n".into())),
        "{weights:?}"
    );
    let (start, before) = (Instant::now(), cpu_ticks(child.0.id()));
    // At 100 ticks a second, what is its due in two; it gets that later where other programs run, and never sooner.
    let ticks = || cpu_ticks(child.0.id());
    evenly_testing::wait_until("it has had its share", || ticks() >= before + 20);
    let took = start.elapsed();
    drop(child);
    drop(caps);
    // Of the 20 ticks one is the error of the two readings, one is how late the kernel looks, and quotas of 1 ms
    // that were saved or not used up before are less than another.
    assert!(took >= Duration::from_millis(1_700), "a tenth of a CPU for two seconds in {took:?}");
    assert_eq!(own_groups(), [] as [PathBuf; 0]);
    Ok(Completion::Completed)
}

/// Killed and reaped when it is dropped.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A busy process in groups of its own. None, a skip, where there can be none.
fn busy_child() -> Option<(Busy, CpuCaps)> {
    let child = Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    let pid = Pid::from_raw(i32::try_from(child.0.id()).unwrap()).unwrap();
    match CpuCaps::new(pid, &[pid]) {
        Ok(caps) => Some((child, caps)),
        Err(error) if error.is_unavailable() => {
            evenly_testing::skip("lab", error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A lab that is killed takes QEMU with it, and the next one sweeps its groups.
pub(crate) fn a_killed_lab_leaves_nothing() -> Outcome {
    guests::end()?;
    let mut owner = Command::new(env!("CARGO_BIN_EXE_evenly-lab"))
        .args(["--cpus", "2", "--numa", "1", "--no-equal-speed-check", "--", "echo up; sleep 999"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut up = [0; 3];
    let mut stdout = owner.stdout.take().unwrap();
    if std::io::Read::read_exact(&mut stdout, &mut up).is_err() {
        assert_eq!(owner.wait().unwrap().code(), Some(77), "neither booted nor skipped");
        evenly_testing::skip("lab", "the lab is not to be had here; evenly-lab says why");
        return Ok(Completion::ignored());
    }
    let pid = owner.id();
    assert_eq!(groups_of(pid).len(), 1);
    let qemu = children(pid);
    assert_eq!(qemu.len(), 1);
    owner.kill().unwrap();
    owner.wait().unwrap();
    evenly_testing::wait_until("QEMU ends", || !Path::new(&format!("/proc/{}", qemu[0])).exists());
    let (child, caps) = busy_child().unwrap();
    assert_eq!(groups_of(pid), [] as [PathBuf; 0]);
    drop(child);
    drop(caps);
    Ok(Completion::Completed)
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

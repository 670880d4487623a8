//! However balancing ends, the program runs on with the masks that it had (promises P4 and P5).

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use evenly_linux::proc::Proc;
use evenly_model::{CpuSet, Pid};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn program() -> Running {
    Running::computing(3)
}

/// The guardian first stands still, so that it cannot restore anything before it is killed.
fn kill_with_its_guardian(evenly: &mut Evenly) {
    kill_both(evenly.pid(), evenly.guardian());
    evenly.wait();
}

fn kill_both(evenly: Pid, guardian: Pid) {
    signal(guardian, Signal::STOP);
    signal(evenly, Signal::KILL);
    signal(guardian, Signal::KILL);
    let state = || Proc::default().process_stat(guardian).map(|s| s.state);
    wait_until("the guardian to end", || state().is_none_or(|state| state == b'Z'));
}

/// `under_way` is what else has to be there before it is killed.
fn is_cleaned_up_after(policy: &str, under_way: impl Fn(&Evenly)) {
    let Some(whole) = whole() else { return };
    let (state, mut program) = (State::new(), program());
    let mut evenly = state.attach(policy, 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    under_way(&evenly);
    evenly.kill(Signal::KILL);
    evenly.wait();
    wait_until_restored(program.pid(), &whole);
    wait_until("the journal to be removed", || state.journals().is_empty());
    assert!(program.is_alive());
}

#[test]
fn a_killed_balancer_is_cleaned_up_after_by_the_guardian() {
    is_cleaned_up_after("juggle", |_| ());
}

#[test]
fn killed_balancers_of_cpus_are_cleaned_up_after_by_the_guardian() {
    is_cleaned_up_after("secretary", Evenly::wait_until_moving);
}

#[test]
fn a_balancer_and_a_guardian_that_were_both_killed_are_cleaned_up_after_by_restore() {
    let Some(whole) = whole() else { return };
    let (state, mut program) = (State::new(), program());
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    let says_left = || {
        let dir = tempfile::tempdir().unwrap();
        let json = dir.path().join("json").display().to_string();
        let told = [
            &["doctor", "--mechanisms", "--json", json.as_str()][..],
            &["doctor", "--", "true"],
            &["run", "--policy", "observe", "--", "true"],
            &["run", "--policy", "juggle", "--", "true"],
        ]
        .map(|args| {
            let (status, said) = state.output(args);
            assert_eq!(status, Some(0), "{said}");
            said.lines()
                .filter(|l| l.starts_with("evenly: a balancer"))
                .collect::<Vec<_>>()
                .join("\n")
        });
        assert!(told.iter().all(|line| *line == told[0]), "{told:?}");
        told[0].clone()
    };
    assert_eq!(says_left(), "", "it lives");
    let pid = evenly.pid();
    kill_with_its_guardian(&mut evenly);
    assert!(program.is_alive());
    assert_eq!(narrowed(program.pid(), &whole), 3);
    assert_eq!(
        says_left(),
        format!(
            "evenly: a balancer (pid {pid}) was killed together with its guardian, and left changes \
             (3 masks): evenly restore undoes them"
        )
    );
    let o = state.command(&["restore", "--json", "-"]).output().unwrap();
    let said = String::from_utf8_lossy(&o.stderr);
    assert_eq!(o.status.code(), Some(0), "{said}");
    assert_eq!(narrowed(program.pid(), &whole), 0, "{said}");
    let report: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
    schema::valid(&report);
    assert_eq!(report["complete"], true);
    assert!(report["journals"][0]["threads"]["restored"].as_u64() >= Some(3), "{report:#}");
    assert!(state.journals().is_empty());
    let (status, said) = state.output(&["restore"]);
    assert_eq!((status, said.as_str()), (Some(0), "evenly: nothing to restore\n"));
    assert_eq!(says_left(), "");
}

fn remove(dir: &Path) {
    fs::remove_dir_all(dir).unwrap();
}

fn empty(dir: &Path) {
    remove(dir);
    fs::create_dir(dir).unwrap();
}

fn rename(dir: &Path) {
    fs::rename(dir, dir.with_file_name("moved")).unwrap();
}

/// Either the balancer is killed, at once; or its guardian with it, after the journal was made anew.
fn is_undone_after(state: &State, lose: impl Fn(&Path), both: bool, whole: &CpuSet) {
    let mut program = program();
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_narrowed(program.pid(), whole, 3);
    lose(&state.path());
    if both {
        wait_until("the journal to be made anew", || {
            state.path().exists() && evenly.journal().is_some()
        });
        let told = "the journal was removed, and has been made anew";
        wait_until("word of it", || evenly.stderr().contains(told));
        wait_until_narrowed(program.pid(), whole, 3);
        assert_eq!(evenly.stderr().matches(told).count(), 1, "{}", evenly.stderr());
        assert!(evenly.is_alive(), "{}", evenly.stderr());
        kill_with_its_guardian(&mut evenly);
        assert_eq!(narrowed(program.pid(), whole), 3);
        let (status, said) = state.output(&["restore"]);
        assert_eq!((status, narrowed(program.pid(), whole)), (Some(0), 0), "{said}");
    } else {
        evenly.kill(Signal::KILL);
        evenly.wait();
        wait_until_restored(program.pid(), whole);
    }
    assert!(program.is_alive());
}

fn is_undone_after_loss(lose: fn(&Path), both: bool) {
    let Some(whole) = whole() else { return };
    is_undone_after(&State::new(), lose, both, &whole);
}

#[test]
fn a_killed_balancer_whose_state_directory_was_removed_loses_no_mask() {
    is_undone_after_loss(remove, false);
}

#[test]
fn a_killed_balancer_and_guardian_whose_state_directory_was_removed_lose_no_mask() {
    is_undone_after_loss(remove, true);
}

#[test]
fn a_killed_balancer_whose_state_directory_was_emptied_loses_no_mask() {
    is_undone_after_loss(empty, false);
}

#[test]
fn a_killed_balancer_and_guardian_whose_state_directory_was_emptied_lose_no_mask() {
    is_undone_after_loss(empty, true);
}

#[test]
fn a_killed_balancer_whose_state_directory_was_renamed_loses_no_mask() {
    is_undone_after_loss(rename, false);
}

#[test]
fn a_killed_balancer_and_guardian_whose_state_directory_was_renamed_lose_no_mask() {
    is_undone_after_loss(rename, true);
}

/// What is mounted until the end of the test.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    /// None, a skip, where nothing can be mounted.
    fn new(at: &'a Path) -> Option<Self> {
        let mut mount = Command::new("mount");
        let o = mount.args(["-t", "tmpfs", "-o", "mode=700", "tmpfs"]).arg(at).output().unwrap();
        if !o.status.success() {
            evenly_testing::skip("namespaces", String::from_utf8_lossy(&o.stderr).trim());
            return None;
        }
        Some(Self(at))
    }

    fn is_there(&self) -> bool {
        fs::read_to_string("/proc/self/mounts").unwrap().contains(self.0.to_str().unwrap())
    }

    fn unmount(&self) {
        let mut umount = Command::new("umount");
        assert!(umount.arg("-l").arg(self.0).status().unwrap().success());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        if self.is_there() {
            self.unmount();
        }
    }
}

/// As logind does with the directory of a user who logs out.
#[test]
fn a_state_directory_whose_file_system_goes_away_loses_no_mask() {
    let Some(whole) = whole() else { return };
    for both in [false, true] {
        let state = State::new();
        let path = state.path();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let Some(mounted) = Mounted::new(&path) else { return };
        is_undone_after(&state, |_| mounted.unmount(), both, &whole);
        assert!(!mounted.is_there());
    }
}

#[test]
fn a_state_directory_that_cannot_be_had_again_ends_balancing() {
    let Some(whole) = whole() else { return };
    let (state, mut program) = (State::new(), program());
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    fs::remove_dir_all(state.path()).unwrap();
    fs::write(state.path(), "").unwrap();
    evenly.wait();
    assert_eq!(narrowed(program.pid(), &whole), 0, "{}", evenly.stderr());
    assert!(program.is_alive());
    let said = evenly.stderr();
    assert_eq!(said.lines().filter(|l| l.contains("journal")).count(), 1, "{said}");
    assert!(said.contains("all masks are restored and balancing ends"), "{said}");
}

/// A user without a home and without a runtime directory, whose place in /tmp somebody else has taken.
#[test]
fn a_directory_that_another_user_made_first_keeps_nobody_from_balancing() {
    const NOBODY: u32 = 65_534;
    let Some(whole) = whole() else { return };
    if !rustix::process::geteuid().is_root() {
        return evenly_testing::skip("other-user", "no program can be started as another user's");
    }
    let room = tempfile::tempdir().unwrap();
    fs::set_permissions(room.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    for (from, name) in [(evenly(), "evenly"), (workload("churn").into(), "churn")] {
        let mut cp = Command::new("cp");
        assert!(cp.arg(from).arg(room.path().join(name)).status().unwrap().success());
    }
    let taken = room.path().join(format!("evenly-{NOBODY}"));
    fs::create_dir(&taken).unwrap();
    chown(&taken, Some(1), Some(1)).unwrap();
    // The room is /tmp for it.
    let as_nobody = |words: &str| {
        let script = format!(
            "mount --bind {} /tmp && cd / && exec setpriv --reuid={NOBODY} --regid={NOBODY} \
             --clear-groups /tmp/evenly {words}",
            room.path().display()
        );
        let mut c = Command::new("unshare");
        c.args(["-m", "sh", "-c", &script]).env("HOME", "/nonexistent").stdin(Stdio::null());
        for name in ["EVENLY_STATE_DIR", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            c.env_remove(name);
        }
        c
    };
    let o = as_nobody("restore").output().unwrap();
    let said = String::from_utf8_lossy(&o.stderr).into_owned();
    if said.contains("unshare") || said.contains("mount") {
        return evenly_testing::skip("namespaces", said.trim());
    }
    assert_eq!((o.status.code(), said.as_str()), (Some(0), "evenly: nothing to restore\n"));
    let mut run = as_nobody(
        "run --policy juggle --period 10ms --budget 50 --no-guard --threads 3 -- \
         /tmp/churn --workers 3 --duration-s 300",
    );
    let mut balancer = Running(run.stdout(Stdio::null()).spawn().unwrap());
    let pid = balancer.pid();
    let child = |name: &str| {
        let is_it = |p: &Pid| Proc::default().process_stat(*p).is_some_and(|s| s.name() == name);
        wait_for(name, || descendants(pid).into_iter().find(is_it))
    };
    let (program, guardian) = (child("churn"), child("evenly-guardian"));
    wait_until_narrowed(program, &whole, 3);
    kill_both(pid, guardian);
    balancer.0.wait().unwrap();
    assert_eq!(narrowed(program, &whole), 3);
    let o = as_nobody("restore").output().unwrap();
    let left = narrowed(program, &whole);
    signal(program, Signal::KILL);
    let said = String::from_utf8_lossy(&o.stderr);
    assert_eq!((o.status.code(), left), (Some(0), 0), "{said}");
    assert!(said.contains(&format!("/tmp/evenly-{NOBODY}-")), "{said}");
}

#[test]
fn a_program_under_a_living_balancer_is_left_to_it_and_named() {
    let Some(whole) = whole() else { return };
    let (state, program) = (State::new(), program());
    let mut evenly = state.attach("static", 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    let (pid, target) = (evenly.pid().to_string(), program.pid().to_string());
    let restore = |args: &[&str]| {
        let o = state.command(&[&["restore", "--json", "-"][..], args].concat()).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&o.stdout).unwrap();
        schema::valid(&report);
        assert_eq!(report["journals"].as_array().unwrap().len(), 1, "{report:#}");
        (o.status.code(), String::from_utf8(o.stderr).unwrap(), report)
    };
    let left = |said: &str, state: &str| {
        said.lines().count() == 1
            && said.contains(&format!("program {target} (churn) was not changed: 3 threads"))
            && said.contains(&format!("evenly (pid {pid}), which is {state}"))
    };
    // It is told, and nothing of what was asked for is undone: that was left by nobody.
    let (status, said, report) = restore(&[]);
    assert!(left(&said, "running"), "{said}");
    assert_eq!((status, &report["complete"]), (Some(0), &true.into()));
    assert_eq!((&report["left_to_living"], &report["journals"][0]["held"]), (&1.into(), &3.into()));
    // Who names one of both wants its masks back.
    for named in [&pid, &target] {
        let (status, said, report) = restore(&[named]);
        assert!(left(&said, "running"), "{said}");
        assert_eq!((status, &report["complete"]), (Some(125), &false.into()));
        assert_eq!(report["journals"][0]["balancer"]["state"], "working");
        assert_eq!(report["journals"][0]["program"]["name"], "churn");
    }
    assert_eq!(narrowed(program.pid(), &whole), 3);
    let (status, said, report) = restore(&["--force", &target]);
    assert_eq!((status, &report["complete"]), (Some(0), &true.into()), "{said}");
    assert_eq!(report["left_to_living"], 0);
    evenly.kill(Signal::TERM);
    evenly.wait();
    wait_until_restored(program.pid(), &whole);
}

#[test]
fn a_new_balancer_undoes_what_a_killed_one_left() {
    let Some(whole) = whole() else { return };
    let (state, program) = (State::new(), program());
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    kill_with_its_guardian(&mut evenly);
    assert_eq!(narrowed(program.pid(), &whole), 3);
    let mut evenly = state.attach("hybrid", 3, program.pid());
    wait_until("word of it", || evenly.stderr().contains("masks of threads: 3"));
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    assert_eq!(narrowed(program.pid(), &whole), 0, "{}", evenly.stderr());
    assert!(state.journals().is_empty());
}

#[test]
fn a_killed_guardian_is_replaced_by_one_that_restores() {
    let Some(whole) = whole() else { return };
    let (state, mut program) = (State::new(), program());
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    let guardian = evenly.guardian();
    signal(guardian, Signal::KILL);
    wait_until("another guardian", || {
        let all = descendants(evenly.pid());
        !all.contains(&guardian) && !all.is_empty() && evenly.guardian() != guardian
    });
    evenly.kill(Signal::KILL);
    evenly.wait();
    wait_until_restored(program.pid(), &whole);
    assert!(program.is_alive());
}

#[test]
fn balancing_ends_where_no_other_guardian_can_be_started() {
    let Some(whole) = whole() else { return };
    let (state, mut program) = (State::new(), program());
    // Its own program file is what evenly starts a guardian from.
    let copy = state.path().with_file_name("evenly");
    // By another process: a file that is open for writing here when a test beside this one starts a program
    // cannot be executed until that program has begun.
    assert!(Command::new("cp").arg(evenly()).arg(&copy).status().unwrap().success());
    let pid = program.pid().to_string();
    let args = ["attach", "--policy", "juggle", "--period", "10ms", "--no-guard", &pid];
    let mut evenly = state.start_as(&copy, &args);
    wait_until_narrowed(program.pid(), &whole, 3);
    let guardian = evenly.guardian();
    fs::remove_file(&copy).unwrap();
    signal(guardian, Signal::KILL);
    evenly.wait();
    assert_eq!(narrowed(program.pid(), &whole), 0, "{}", evenly.stderr());
    assert!(program.is_alive() && state.journals().is_empty());
    let said = evenly.stderr();
    assert_eq!(said.lines().filter(|l| l.contains("guardian")).count(), 1, "{said}");
}

/// `under_way` is what has to go on again once it has been stopped.
fn frees_masks_while_stopped(policy: &str, under_way: impl Fn(&Evenly)) {
    let Some(whole) = whole() else { return };
    let (state, program) = (State::new(), program());
    let mut evenly = state.attach(policy, 3, program.pid());
    for _ in 0..2 {
        wait_until_narrowed(program.pid(), &whole, 3);
        evenly.kill(Signal::STOP);
        wait_until_restored(program.pid(), &whole);
        evenly.kill(Signal::CONT);
    }
    wait_until_narrowed(program.pid(), &whole, 3);
    under_way(&evenly);
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    assert_eq!(narrowed(program.pid(), &whole), 0, "{}", evenly.stderr());
    assert!(!evenly.stderr().contains("left alone"), "{}", evenly.stderr());
}

#[test]
fn masks_are_free_while_evenly_is_stopped_and_ours_again_after() {
    frees_masks_while_stopped("juggle", |_| ());
}

#[test]
fn masks_are_free_while_balancers_of_cpus_are_stopped() {
    frees_masks_while_stopped("secretary", Evenly::wait_until_moving);
}

/// Some seconds stand for any time: that the guardian does the same however long it lasts is tested with
/// a clock of its own (`linux::guardian`).
#[test]
#[ignore = "takes long: ./dev test --all"]
fn masks_stay_free_while_evenly_is_stopped_for_long() {
    let Some(whole) = whole() else { return };
    let (state, program) = (State::new(), program());
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    evenly.kill(Signal::STOP);
    wait_until_restored(program.pid(), &whole);
    let end = Instant::now() + Duration::from_secs(12);
    while Instant::now() < end {
        assert_eq!(narrowed(program.pid(), &whole), 0);
        std::thread::sleep(Duration::from_millis(50));
    }
    evenly.kill(Signal::CONT);
    wait_until_narrowed(program.pid(), &whole, 3);
    evenly.kill(Signal::TERM);
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    assert_eq!(narrowed(program.pid(), &whole), 0);
    assert!(!evenly.stderr().contains("left alone"), "{}", evenly.stderr());
}

#[test]
fn a_balancer_that_is_told_to_end_gives_masks_back() {
    let Some(whole) = whole() else { return };
    let (state, mut program) = (State::new(), program());
    for (policy, end) in
        [("juggle", Signal::TERM), ("static", Signal::INT), ("hybrid", Signal::TERM)]
    {
        let mut evenly = state.attach(policy, 3, program.pid());
        wait_until_narrowed(program.pid(), &whole, 1);
        evenly.kill(end);
        assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
        assert_eq!(narrowed(program.pid(), &whole), 0, "{policy}: {}", evenly.stderr());
        assert!(program.is_alive() && state.journals().is_empty());
    }
}

#[test]
fn attach_ends_with_the_program() {
    let Some(whole) = whole() else { return };
    let (state, mut program) = (State::new(), program());
    let mut evenly = state.attach("juggle", 3, program.pid());
    wait_until_narrowed(program.pid(), &whole, 3);
    signal(program.pid(), Signal::KILL);
    program.0.wait().unwrap();
    assert_eq!(evenly.wait().code(), Some(0), "{}", evenly.stderr());
    assert!(state.journals().is_empty());
}

/// That it is there before the mask is set is tested in `linux/tests/journal.rs`.
#[test]
fn every_mask_that_is_seen_is_in_the_journal() {
    let Some(whole) = whole() else { return };
    let (state, program) = (State::new(), program());
    let evenly = state.attach("juggle", 3, program.pid());
    let mut seen = 0;
    wait_until("a thousand pinned masks to be seen", || {
        let pinned: Vec<_> =
            masks(program.pid()).into_iter().filter(|(_, m)| *m != whole).collect();
        if pinned.is_empty() {
            return false;
        }
        // Read after the masks.
        let journal = evenly.journal().expect("a pinned thread, and no journal");
        for (tid, mask) in pinned {
            let record = journal.records.iter().find(|r| r.id.tid.0 == tid);
            let record = record.unwrap_or_else(|| panic!("thread {tid} is pinned to {mask}"));
            assert!(whole.is_subset(&record.original), "{record:?}");
            // A thread that was moved meanwhile has another mask, and maybe another record.
            if common::mask(tid).as_ref() == Some(&mask) {
                assert!(record.set.contains(&mask), "thread {tid} has {mask}: {record:?}");
                seen += 1;
            }
        }
        seen >= 1_000
    });
}

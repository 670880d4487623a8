//! Mechanisms on real threads, with and without privileges.

use super::fake_trees::captured;
use super::weights::{ShareError, ShareMechanism, Target};
use super::*;
use crate::affinity;
use crate::journal::{Journal, JournalView, StateDir};
use crate::restore;
use crate::share_undo;
use evenly_model::ThreadId;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, PoisonError};

/// Groups have the name of this process and are removed by that name: a program has one balancer. Tests that make
/// some take turns.
static GROUPS: Mutex<()> = Mutex::new(());

struct Scene {
    tmp: tempfile::TempDir,
    journal: Arc<Journal>,
    sleeper: Sleeper,
}

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Scene {
    fn new() -> Self {
        let tmp = tempfile::tempdir().unwrap();
        let dir = StateDir::at(&tmp.path().join("state")).unwrap();
        let journal = Arc::new(Journal::create(&dir, None).unwrap());
        let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
        let scene = Self { tmp, journal, sleeper };
        // The process that runs the tests may be lowered, where a fifth of that is no nice value any more. A user
        // who may not raise it has that of the tests.
        let _ = sched::set_nice(scene.tid(), 0);
        scene
    }

    fn tid(&self) -> Tid {
        Tid(self.sleeper.0.id().cast_signed())
    }

    fn target(&self) -> Target {
        let process = Pid(self.tid().0);
        Target::Process { process, start: Proc::default().process_stat(process).unwrap().start }
    }

    fn now(&self) -> Scheduling {
        sched::get(self.tid()).unwrap()
    }

    fn undo(&self) -> ShareReport {
        let view = JournalView::open(&self.journal.path()).unwrap();
        share_undo::undo(&view, &Proc::default())
    }
}

/// Does something as a user without privileges: ids and capabilities are a thread's own for the kernel.
fn unprivileged<T: Send>(what: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|s| {
        s.spawn(|| {
            // SAFETY: the calls take numbers only. Other than the library's they change this thread
            // alone, which ends here.
            let r = unsafe {
                libc::syscall(libc::SYS_setresgid, 65_534, 65_534, 65_534)
                    | libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534)
            };
            (r == 0).then(what)
        })
        .join()
        .unwrap()
    })
}

fn may_nice() -> bool {
    if may_all(&Proc::default()) {
        return true;
    }
    evenly_testing::skip("privileged-nice", "nice values may not be raised");
    false
}

#[test]
fn a_nice_value_is_given_and_taken_back() {
    if !may_nice() {
        return;
    }
    let scene = Scene::new();
    let before = scene.now();
    let mut nice = ThreadShares::new(Way::Nice, scene.journal.clone());
    let third = nice.set(scene.target(), 1.0 / 3.0).unwrap();
    let weight = |nice: i8| weight_of_nice(i32::from(nice));
    let expected = weight(before.nice + 5) / weight(before.nice);
    assert!((third - expected).abs() < 1e-9, "{third} {expected}");
    assert_eq!(scene.now().nice, before.nice + 5);
    assert!(nice.set(scene.target(), 3.0).unwrap() > 2.5);
    assert_eq!(scene.now().nice, before.nice - 5);
    nice.restore(scene.target()).unwrap();
    assert_eq!(scene.now(), before);
    assert_eq!(scene.undo(), ShareReport::default());
}

#[test]
fn the_journal_alone_undoes_it_but_not_the_programs_own_wish() {
    if !may_nice() {
        return;
    }
    let scene = Scene::new();
    let before = scene.now();
    let mut nice = ThreadShares::new(Way::Nice, scene.journal.clone());
    nice.set(scene.target(), 0.5).unwrap();
    assert_eq!(scene.undo().restored, 1);
    assert_eq!(scene.now(), before);
    nice.set(scene.target(), 0.5).unwrap();
    sched::set_nice(scene.tid(), 11).unwrap();
    let report = scene.undo();
    assert_eq!((report.restored, report.foreign), (0, 1));
    assert_eq!(scene.now().nice, 11);
    // Neither does the mechanism touch it any more.
    let refused = nice.set(scene.target(), 0.7).unwrap_err();
    assert!(matches!(refused, ShareError::Foreign { what: "nice value", .. }), "{refused}");
    nice.restore(scene.target()).unwrap();
    assert_eq!(scene.now().nice, 11);
}

/// What the mechanism gives is taken back by itself, and by the journal alone.
fn given_and_taken_back(way: Way, weight: f64) {
    let scene = Scene::new();
    let before = scene.now();
    let mut shares = ThreadShares::new(way, scene.journal.clone());
    for by_journal in [false, true] {
        shares.set(scene.target(), weight).unwrap();
        assert_ne!(scene.now(), before);
        if by_journal {
            assert_eq!(scene.undo().restored, 1);
        } else {
            shares.restore(scene.target()).unwrap();
        }
        assert_eq!(scene.now(), before);
    }
}

#[test]
fn a_slice_is_given_and_taken_back_by_mechanism_and_by_journal() {
    if sched::base_slice().is_none() {
        return evenly_testing::skip("sched-slice", "the kernel does not report slices");
    }
    given_and_taken_back(Way::Slice, 0.003);
}

/// What a raised thread may get. None, a skip, where none can be raised.
fn most_of_raised() -> Option<f64> {
    let real = Real::default();
    let missing = round_robin(&real).missing.map(|missing| missing.why);
    match missing.map_or_else(|| realtime_share(&real), Err) {
        Ok(most) => Some(most),
        Err(why) => {
            evenly_testing::skip("realtime", why);
            None
        }
    }
}

#[test]
fn round_robin_is_given_and_taken_back_by_mechanism_and_by_journal() {
    let Some(most) = most_of_raised() else { return };
    given_and_taken_back(Way::RoundRobin(most), 30.0);
}

#[test]
fn two_mechanisms_on_one_thread_are_both_undone() {
    if !may_nice() {
        return;
    }
    if sched::base_slice().is_none() {
        return evenly_testing::skip("sched-slice", "the kernel does not report slices");
    }
    let scene = Scene::new();
    let before = scene.now();
    let mut nice = ThreadShares::new(Way::Nice, scene.journal.clone());
    let mut slice = ThreadShares::new(Way::Slice, scene.journal.clone());
    nice.set(scene.target(), 0.5).unwrap();
    slice.set(scene.target(), 0.5).unwrap();
    assert!(scene.now().nice != before.nice && scene.now().slice != before.slice);
    let report = scene.undo();
    assert_eq!((report.restored, report.foreign), (1, 0));
    assert_eq!(scene.now(), before);
    // Of the two, what the program has changed since stays, and the other goes.
    nice.set(scene.target(), 0.5).unwrap();
    slice.set(scene.target(), 0.5).unwrap();
    sched::set_nice(scene.tid(), 13).unwrap();
    let report = scene.undo();
    assert_eq!((report.restored, report.foreign), (1, 1));
    assert_eq!(scene.now(), Scheduling { nice: 13, ..before });
}

#[test]
fn a_raised_thread_falls_back_when_its_time_is_over() {
    let Some(most) = most_of_raised() else { return };
    let scene = Scene::new();
    let before = scene.now();
    let mut shares = ThreadShares::new(Way::RoundRobin(most), scene.journal.clone());
    shares.set(scene.target(), 30.0).unwrap();
    assert_eq!(scene.now().policy, sched::ROUND_ROBIN);
    shares.tick(crate::clock::now());
    assert_eq!(scene.now().policy, sched::ROUND_ROBIN);
    shares.tick(crate::clock::now() + RR_LEASE + RR_LEASE);
    assert_eq!(scene.now(), before);
}

#[test]
fn what_could_not_be_undone_is_not_done() {
    let mut refusals = Vec::new();
    let ran = unprivileged(|| {
        let tried = tempfile::tempdir().ok().map(|tmp| {
            let dir = StateDir::at(&tmp.path().join("state")).unwrap();
            let journal = Arc::new(Journal::create(&dir, None).unwrap());
            let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
            let process = Pid(sleeper.0.id().cast_signed());
            let start = Proc::default().process_stat(process).unwrap().start;
            let target = Target::Process { process, start };
            let before = sched::get(Tid(process.0)).unwrap();
            for way in [Way::Nice, Way::RoundRobin(19.0)] {
                let weight = if matches!(way, Way::RoundRobin(_)) { 19.0 } else { 0.1 };
                let mut shares = ThreadShares::new(way, journal.clone());
                refusals.push(shares.set(target, weight).unwrap_err().to_string());
                assert_eq!(sched::get(Tid(process.0)).unwrap(), before, "{way:?}");
            }
            // This can be undone without privileges.
            if sched::base_slice().is_some() {
                let mut shares = ThreadShares::new(Way::Slice, journal.clone());
                shares.set(target, 0.5).unwrap();
                assert_ne!(sched::get(Tid(process.0)).unwrap(), before);
                shares.restore(target).unwrap();
                assert_eq!(sched::get(Tid(process.0)).unwrap(), before);
            }
        });
        let offers = offers(&Real::default());
        (tried.is_some(), offers)
    });
    let Some((true, offers)) = ran else {
        return evenly_testing::skip("other-user", "no thread can become another user's");
    };
    let limit = parse_nice_limit(&std::fs::read("/proc/self/limits").unwrap()).unwrap();
    let own_nice = sched::get(Tid(0)).unwrap().nice;
    if i64::try_from(limit).unwrap() + i64::from(own_nice) >= 20 {
        return evenly_testing::skip("privileged-nice", format!("RLIMIT_NICE is {limit}"));
    }
    let needed = 20 - i64::from(own_nice);
    let why = format!("RLIMIT_NICE (ulimit -e) is {limit}, needed is {needed},");
    assert!(refusals[0].contains(&why), "{refusals:?}");
    assert!(refusals[0].contains("sudo prlimit --pid"), "{refusals:?}");
    assert!(refusals[1].contains("run evenly as the user"), "{refusals:?}");
    let missing = |name: &str| offers.iter().find(|o| o.name == name).unwrap().missing.clone();
    assert!(missing("nice").is_some() && missing("round-robin").is_some());
    assert_eq!(missing("slice").is_none(), sched::base_slice().is_some());
}

#[test]
fn masks_and_shares_of_one_thread_are_records_of_their_own() {
    if sched::base_slice().is_none() {
        return evenly_testing::skip("sched-slice", "the kernel does not report slices");
    }
    let scene = Scene::new();
    let id = ThreadId {
        tid: scene.tid(),
        start: Proc::default().thread_stat(scene.tid()).unwrap().start,
    };
    let (before, whole) = (scene.now(), affinity::get(id.tid).unwrap());
    let slot = scene.journal.register(id, Pid(id.tid.0), &whole).unwrap();
    let mut slices = ThreadShares::new(Way::Slice, scene.journal.clone());
    slices.set(scene.target(), 0.5).unwrap();
    let view = JournalView::open(&scene.journal.path()).unwrap();
    assert_eq!((view.records.len(), view.scheduling.len()), (1, 1));
    assert_eq!(view.scheduling[0].original, before);
    assert_eq!(view.scheduling[0].set, [scene.now()]);
    scene.journal.forget(slot);
    let report = restore::end(&scene.journal).unwrap();
    assert_eq!((report.restored, report.shares.restored), (0, 1));
    assert!(!scene.journal.path().exists() && scene.tmp.path().exists());
}

#[test]
fn a_thread_in_a_group_of_its_own_goes_back_and_the_group_is_gone() {
    let _turn = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = Scene::new();
    let process = Pid(scene.tid().0);
    let mut groups = match GroupShares::new(scene.journal.clone(), process) {
        Ok(groups) => groups,
        Err(missing) => return evenly_testing::skip("own-cgroup", missing.why),
    };
    let group = || Limits::default().own_group(process, "cpu").unwrap().0;
    let before = group();
    for by_journal in [false, true] {
        let given = groups.set(scene.target(), 0.5).unwrap();
        assert!((given - 0.5).abs() < 0.01, "{given}");
        let own = group();
        assert_eq!(own.parent(), Some(before.as_path()));
        assert!(own.file_name().unwrap().to_str().unwrap().starts_with("evenly-"));
        let normal = if groups.name() == "cpu.shares" { 1024.0 } else { 100.0 };
        let file = own.join(groups.name());
        let weight = || std::fs::read_to_string(&file).unwrap().trim().to_owned();
        // What the thread's nice value stands for, in which the group takes its place.
        let original = normal * weight_of_nice(i32::from(scene.now().nice)) / 1024.0;
        assert_eq!(weight(), format!("{:.0}", (original * 0.5).round()));
        groups.set(scene.target(), 2.0).unwrap();
        assert_eq!(weight(), format!("{:.0}", (original * 2.0).round()));
        if by_journal {
            assert_eq!(scene.undo().groups, 1);
        } else {
            groups.restore(scene.target()).unwrap();
        }
        assert_eq!(group(), before);
        assert!(!own.exists());
    }
}

/// Threads that have ended leave no groups behind, as they come and go: more of them than there may be groups at a
/// time must not be a matter of how many have been there.
#[test]
fn groups_of_those_that_come_and_go_are_removed() {
    let _turn = GROUPS.lock().unwrap_or_else(PoisonError::into_inner);
    let scene = Scene::new();
    let mut groups = match GroupShares::new(scene.journal.clone(), Pid(scene.tid().0)) {
        Ok(groups) => groups,
        Err(missing) => return evenly_testing::skip("own-cgroup", missing.why),
    };
    let one = |sleeper: &Sleeper| {
        let process = Pid(sleeper.0.id().cast_signed());
        let start = Proc::default().process_stat(process).unwrap().start;
        Target::Thread { process, id: ThreadId { tid: Tid(process.0), start } }
    };
    let stays = one(&scene.sleeper);
    groups.set(stays, 0.5).unwrap();
    let own = Limits::default().own_group(Pid(scene.tid().0), "cpu").unwrap().0;
    let parent = own.parent().unwrap();
    let ours = || {
        let all = std::fs::read_dir(parent).unwrap().filter_map(Result::ok);
        let name = own.file_name().unwrap().to_str().unwrap();
        let prefix = &name[..=name.rfind('-').unwrap()];
        all.filter(|d| d.file_name().to_str().is_some_and(|n| n.starts_with(prefix))).count()
    };
    for _ in 0..20 {
        let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
        let comes = one(&sleeper);
        let given = groups.set_all(&[(stays, 0.5), (comes, 2.0)]);
        assert!(given.iter().all(Result::is_ok), "{given:?}");
        assert_eq!(ours(), 2);
        // It ends, and the balancer is notified.
        drop(sleeper);
        groups.restore(comes).unwrap();
        assert_eq!(ours(), 1);
    }
    groups.restore(stays).unwrap();
    assert_eq!(ours(), 0);
}

#[test]
fn processes_of_other_users_are_lowered_by_root_alone() {
    let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
    let pid = Pid(sleeper.0.id().cast_signed());
    let of = || foreign_user(&Proc::default(), pid);
    assert_eq!((of(), foreign_user(&Proc::default(), Pid(i32::MAX))), (None, None));
    // As another user, where this one may become one.
    if let Some(found) = unprivileged(of) {
        assert_eq!(found, Some(user()));
    }
}

#[test]
fn limits_of_nice_values_are_read() {
    let text = b"Limit                     Soft Limit           Hard Limit           Units     \n\
        Max nice priority         25                   40                   \n";
    assert_eq!(parse_nice_limit(text), Some(25));
    assert_eq!(parse_nice_limit(b"Max nice priority unlimited unlimited"), Some(40));
    assert_eq!((parse_nice_limit(b""), parse_nice_limit(b"Max nice priority")), (None, None));
}

#[test]
fn without_a_guard_nothing_is_raised_above_others() {
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("proc/sys/kernel");
    std::fs::create_dir_all(&dir).unwrap();
    let real = Real::at(tmp.path());
    assert!(realtime_share(&real).is_err());
    std::fs::write(dir.join("sched_rt_period_us"), "1000000\n").unwrap();
    for (runtime, share) in [("950000", Some(19.0)), ("-1", None), ("1000000", None)] {
        std::fs::write(dir.join("sched_rt_runtime_us"), runtime).unwrap();
        match (realtime_share(&real), share) {
            (Ok(found), Some(share)) => assert!((found - share).abs() < 1e-9),
            (Err(why), None) => {
                assert!(why.contains("sudo sysctl kernel.sched_rt_runtime_us=950000"), "{why}");
            }
            other => panic!("{runtime}: {other:?}"),
        }
    }
}

#[test]
fn every_mechanism_is_listed_with_a_reason_where_it_is_missing() {
    let offers = offers(&Real::default());
    assert_eq!(offers.len(), 5);
    for o in offers {
        assert!(o.missing.is_none_or(|m| m.why.len() > 10), "{}", o.name);
    }
}

/// Processes of these sessions and control groups, as /proc shows them where autogroup is on.
pub(super) fn sessions(root: &Path, of: &[(Pid, &str, &str)]) {
    let write = |file: String, text: String| {
        let to = root.join(file);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(to, text).unwrap();
    };
    write(String::from("proc/sys/kernel/sched_autogroup_enabled"), String::from("1\n"));
    for (pid, session, group) in of {
        write(format!("proc/{pid}/autogroup"), format!("/autogroup-{session} nice 0\n"));
        write(format!("proc/{pid}/cgroup"), format!("2:cpuacct:/\n1:cpu:{group}\n0::/\n"));
    }
}

#[test]
fn sessions_stand_between_processes_in_the_topmost_group_only() {
    let tmp = tempfile::tempdir().unwrap();
    let proc = Proc::at(&tmp.path().join("proc"));
    let [a, b, c] = [Pid(11), Pid(12), Pid(13)];
    assert_eq!(autogroups(&proc, &[a, b]), [""; 0]);
    sessions(tmp.path(), &[(a, "7", "/"), (b, "7", "/"), (c, "9", "/")]);
    assert_eq!(autogroups(&proc, &[a, b]), [""; 0]);
    assert_eq!(autogroups(&proc, &[c, a, b]), ["/autogroup-7", "/autogroup-9"]);
    // One that has ended, and none at all.
    assert_eq!(autogroups(&proc, &[a, Pid(14)]), [""; 0]);
    assert_eq!(autogroups(&proc, &[]), [""; 0]);
    // In a group of their own sessions do not count.
    sessions(tmp.path(), &[(a, "7", "/batch"), (c, "9", "/batch")]);
    assert_eq!(autogroups(&proc, &[a, c]), [""; 0]);
    // Of version 2 the only group there is counts.
    std::fs::write(tmp.path().join("proc/11/cgroup"), "0::/\n").unwrap();
    std::fs::write(tmp.path().join("proc/13/cgroup"), "0::/\n").unwrap();
    assert_eq!(autogroups(&proc, &[a, c]).len(), 2);
    std::fs::write(tmp.path().join("proc/13/cgroup"), "0::/user.slice\n").unwrap();
    assert_eq!(autogroups(&proc, &[a, c]), [""; 0]);
    // Switched off.
    sessions(tmp.path(), &[(a, "7", "/"), (c, "9", "/")]);
    assert_eq!(autogroups(&proc, &[a, c]).len(), 2);
    std::fs::write(tmp.path().join("proc/sys/kernel/sched_autogroup_enabled"), "0\n").unwrap();
    assert_eq!(autogroups(&proc, &[a, c]), [""; 0]);
}

/// What captured trees leave out of groups: the files by which they are made.
fn with_files_of_groups(tree: &Path) {
    let mut dirs = ["sys/fs/cgroup", "tmp"].map(|dir| tree.join(dir)).to_vec();
    while let Some(dir) = dirs.pop() {
        let Ok(inside) = std::fs::read_dir(&dir) else { continue };
        let inside: Vec<PathBuf> = inside.map(|e| e.unwrap().path()).collect();
        dirs.extend(inside.iter().filter(|p| p.is_dir()).cloned());
        for (file, text) in [
            ("tasks", ""),
            ("cgroup.threads", ""),
            ("cgroup.controllers", "cpuset cpu memory\n"),
            ("cgroup.subtree_control", "memory\n"),
        ] {
            if inside.iter().any(|p| p.is_file()) && !dir.join(file).exists() {
                std::fs::write(dir.join(file), text).unwrap();
            }
        }
    }
}

#[test]
fn control_groups_are_offered_where_the_captured_machine_has_them() {
    for (tree, expected) in EXPECTED {
        let dir = captured(tree);
        with_files_of_groups(dir.path());
        let offer = group(&Real::at(dir.path()), Pid(1000));
        assert_eq!((offer.name, offer.missing.map(|m| m.why).as_deref()), expected, "{tree}");
    }
    // Each of them.
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured");
    let trees = std::fs::read_dir(all).unwrap().map(|e| e.unwrap().path());
    assert_eq!(trees.filter(|p| p.extension().is_some_and(|e| e == "txt")).count(), EXPECTED.len());
}

const NOT_MOUNTED: &str = "the control group of the program is not mounted here";

const EXPECTED: [(&str, (&str, Option<&str>)); 5] = [
    ("v1-hybrid.txt", ("cpu.shares", None)),
    ("v2-numa-offline.txt", ("cpu.weight", None)),
    ("v2-namespace.txt", ("cpu.weight", None)),
    ("v2-part-mounted.txt", ("cpu.weight", None)),
    ("hybrid-laptop.txt", ("cpu.shares", Some(NOT_MOUNTED))),
];

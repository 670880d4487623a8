//! Mechanisms on real threads, with and without privileges.

use super::*;
use crate::affinity;
use crate::journal::{Journal, JournalView, StateDir};
use crate::restore;
use evenly_engine::{Entity, ShareError, ShareMechanism};
use evenly_model::ThreadId;
use std::process::{Child, Command};
use std::sync::Arc;

/// Writes a captured tree out (`tests/captured/README.md` has the format), with the links that the kernel
/// makes to settings of CPUs.
pub(super) fn captured(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captured").join(name);
    let text = std::fs::read_to_string(file).unwrap();
    let mut files = std::collections::BTreeMap::<&str, String>::new();
    for (path, line) in text.lines().map(|l| l.split_once(':').unwrap()) {
        *files.entry(path).or_default() += &format!("{line}\n");
    }
    for (path, text) in files {
        let to = dir.path().join(path);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::write(&to, &text).unwrap();
        if to.ends_with("affected_cpus") {
            let policy = to.parent().unwrap();
            for cpu in text.split_ascii_whitespace() {
                let of = policy.parent().unwrap().with_file_name(format!("cpu{cpu}"));
                std::fs::create_dir_all(&of).unwrap();
                std::os::unix::fs::symlink(policy, of.join("cpufreq")).unwrap();
            }
        }
    }
    dir
}

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
        Self { tmp, journal, sleeper }
    }

    fn tid(&self) -> Tid {
        Tid(self.sleeper.0.id().cast_signed())
    }

    fn entity(&self) -> Entity {
        let process = Pid(self.tid().0);
        Entity::Process { process, start: Proc::default().process_stat(process).unwrap().start }
    }

    fn now(&self) -> Scheduling {
        sched::get(self.tid()).unwrap()
    }

    fn undo(&self) -> ShareReport {
        let view = JournalView::open(self.journal.path()).unwrap();
        undo::undo(&view, &Proc::default(), Path::new("/"))
    }
}

/// Does something as a user without privileges: ids and capabilities are a thread's own for the kernel.
fn as_nobody<T: Send>(what: impl FnOnce() -> T + Send) -> Option<T> {
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
    let third = nice.set(scene.entity(), 1.0 / 3.0).unwrap();
    assert!((third - 335.0 / 1024.0).abs() < 1e-9, "{third}");
    assert_eq!(scene.now().nice, before.nice + 5);
    assert!(nice.set(scene.entity(), 3.0).unwrap() > 2.5);
    assert_eq!(scene.now().nice, before.nice - 5);
    nice.restore(scene.entity()).unwrap();
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
    nice.set(scene.entity(), 0.5).unwrap();
    assert_eq!(scene.undo().restored, 1);
    assert_eq!(scene.now(), before);
    nice.set(scene.entity(), 0.5).unwrap();
    sched::set_nice(scene.tid(), 11).unwrap();
    let report = scene.undo();
    assert_eq!((report.restored, report.foreign), (0, 1));
    assert_eq!(scene.now().nice, 11);
    // Neither does the mechanism touch it any more.
    let refused = nice.set(scene.entity(), 0.7).unwrap_err();
    assert!(matches!(refused, ShareError::Foreign { what: "nice value", .. }), "{refused}");
    nice.restore(scene.entity()).unwrap();
    assert_eq!(scene.now().nice, 11);
}

#[test]
fn slice_and_classes_are_given_and_taken_back_by_mechanism_and_by_journal() {
    let mut ways = vec![Way::Batch];
    if sched::base_slice().is_some() {
        ways.push(Way::Slice);
    }
    if may_all(&Proc::default()) {
        ways.push(Way::Idle);
        if let Ok(most) = realtime_share(&Real::default())
            && round_robin(&Real::default()).missing.is_none()
        {
            ways.push(Way::RoundRobin(most));
        }
    }
    for way in ways {
        let scene = Scene::new();
        let before = scene.now();
        let mut shares = ThreadShares::new(way, scene.journal.clone());
        let weight = if matches!(way, Way::RoundRobin(_)) { 30.0 } else { 0.003 };
        for by_journal in [false, true] {
            shares.set(scene.entity(), weight).unwrap();
            let changed = scene.now();
            assert_ne!(changed, before, "{way:?}");
            if by_journal {
                assert_eq!(scene.undo().restored, 1, "{way:?}");
            } else {
                shares.restore(scene.entity()).unwrap();
            }
            assert_eq!(scene.now(), before, "{way:?}");
        }
    }
}

#[test]
fn two_mechanisms_on_one_thread_are_both_undone() {
    if !may_nice() {
        return;
    }
    let scene = Scene::new();
    let before = scene.now();
    let mut nice = ThreadShares::new(Way::Nice, scene.journal.clone());
    let mut batch = ThreadShares::new(Way::Batch, scene.journal.clone());
    nice.set(scene.entity(), 0.5).unwrap();
    batch.set(scene.entity(), 0.5).unwrap();
    assert!(scene.now().nice != before.nice && scene.now().policy == sched::BATCH);
    let report = scene.undo();
    assert_eq!((report.restored, report.foreign), (1, 0));
    assert_eq!(scene.now(), before);
    // Of the two, what the program has changed since stays, and the other goes.
    nice.set(scene.entity(), 0.5).unwrap();
    batch.set(scene.entity(), 0.5).unwrap();
    sched::set_nice(scene.tid(), 13).unwrap();
    let report = scene.undo();
    assert_eq!((report.restored, report.foreign), (1, 1));
    assert_eq!(scene.now(), Scheduling { nice: 13, ..before });
}

#[test]
fn a_raised_thread_falls_back_when_its_time_is_over() {
    let Ok(most) = realtime_share(&Real::default()) else { return };
    if let Some(missing) = round_robin(&Real::default()).missing {
        return evenly_testing::skip("realtime", missing.why);
    }
    let scene = Scene::new();
    let before = scene.now();
    let mut shares = ThreadShares::new(Way::RoundRobin(most), scene.journal.clone());
    shares.set(scene.entity(), 30.0).unwrap();
    assert_eq!(scene.now().policy, sched::ROUND_ROBIN);
    shares.tick(crate::clock::now());
    assert_eq!(scene.now().policy, sched::ROUND_ROBIN);
    shares.tick(crate::clock::now() + RR_LEASE + RR_LEASE);
    assert_eq!(scene.now(), before);
}

#[test]
fn what_could_not_be_undone_is_not_done() {
    let mut refusals = Vec::new();
    let ran = as_nobody(|| {
        let tried = tempfile::tempdir().ok().map(|tmp| {
            let dir = StateDir::at(&tmp.path().join("state")).unwrap();
            let journal = Arc::new(Journal::create(&dir, None).unwrap());
            let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
            let process = Pid(sleeper.0.id().cast_signed());
            let start = Proc::default().process_stat(process).unwrap().start;
            let entity = Entity::Process { process, start };
            let before = sched::get(Tid(process.0)).unwrap();
            for way in [Way::Nice, Way::Idle, Way::RoundRobin(19.0)] {
                let weight = if matches!(way, Way::RoundRobin(_)) { 19.0 } else { 0.1 };
                let mut shares = ThreadShares::new(way, journal.clone());
                refusals.push(shares.set(entity, weight).unwrap_err().to_string());
                assert_eq!(sched::get(Tid(process.0)).unwrap(), before, "{way:?}");
            }
            // These can be undone by anybody.
            let mut ways = vec![Way::Batch];
            ways.extend(sched::base_slice().map(|_| Way::Slice));
            for way in ways {
                let mut shares = ThreadShares::new(way, journal.clone());
                shares.set(entity, 0.5).unwrap();
                assert_ne!(sched::get(Tid(process.0)).unwrap(), before, "{way:?}");
                shares.restore(entity).unwrap();
                assert_eq!(sched::get(Tid(process.0)).unwrap(), before, "{way:?}");
            }
        });
        let offers = offers(&Real::default());
        (tried.is_some(), offers)
    });
    let Some((true, offers)) = ran else {
        return evenly_testing::skip("other-user", "no thread can become another user's");
    };
    let limit = parse_nice_limit(&std::fs::read("/proc/self/limits").unwrap()).unwrap();
    if limit >= 20 {
        return evenly_testing::skip("privileged-nice", format!("RLIMIT_NICE is {limit}"));
    }
    assert!(refusals[0].contains("RLIMIT_NICE is 0, needed is 20"), "{refusals:?}");
    assert!(refusals[0].contains("sudo prlimit --pid"), "{refusals:?}");
    assert!(refusals[1].contains("a lowered class could not be given back"), "{refusals:?}");
    assert!(refusals[2].contains("run evenly as the user"), "{refusals:?}");
    let missing = |name: &str| offers.iter().find(|o| o.name == name).unwrap().missing.clone();
    assert!(missing("nice").is_some() && missing("idle").is_some());
    assert!(missing("round-robin").is_some() && missing("batch").is_none());
    assert_eq!(missing("slice").is_none(), sched::base_slice().is_some());
}

#[test]
fn masks_and_shares_of_one_thread_are_records_of_their_own() {
    let scene = Scene::new();
    let id = ThreadId {
        tid: scene.tid(),
        start: Proc::default().thread_stat(scene.tid()).unwrap().start,
    };
    let whole = affinity::get(id.tid).unwrap();
    let slot = scene.journal.meet(id, Pid(id.tid.0), &whole).unwrap();
    let mut batch = ThreadShares::new(Way::Batch, scene.journal.clone());
    batch.set(scene.entity(), 0.5).unwrap();
    let view = JournalView::open(scene.journal.path()).unwrap();
    assert_eq!((view.records.len(), view.scheduling.len()), (1, 1));
    assert_eq!(view.scheduling[0].original.policy, sched::OTHER);
    assert_eq!(view.scheduling[0].set[0].policy, sched::BATCH);
    scene.journal.forget(slot);
    let report = restore::end(&scene.journal).unwrap();
    assert_eq!((report.restored, report.shares.restored), (0, 1));
    assert!(!scene.journal.path().exists() && scene.tmp.path().exists());
}

#[test]
fn a_thread_in_a_group_of_its_own_goes_back_and_the_group_is_gone() {
    let scene = Scene::new();
    let process = Pid(scene.tid().0);
    let mut groups = match GroupShares::new(scene.journal.clone(), process) {
        Ok(groups) => groups,
        Err(missing) => return evenly_testing::skip("own-cgroup", missing.why),
    };
    let group = || Limits::default().own_group(process, "cpu").unwrap().0;
    let before = group();
    for by_journal in [false, true] {
        let given = groups.set(scene.entity(), 0.5).unwrap();
        assert!((given - 0.5).abs() < 0.01, "{given}");
        let own = group();
        assert_eq!(own.parent(), Some(before.as_path()));
        assert!(own.file_name().unwrap().to_str().unwrap().starts_with("evenly-"));
        let file = if groups.name() == "cpu.shares" { "cpu.shares" } else { "cpu.weight" };
        let weight = || std::fs::read_to_string(own.join(file)).unwrap().trim().to_owned();
        assert!(["512", "50"].contains(&weight().as_str()), "{}", weight());
        groups.set(scene.entity(), 2.0).unwrap();
        assert!(["2048", "200"].contains(&weight().as_str()), "{}", weight());
        if by_journal {
            assert_eq!(scene.undo().groups, 1);
        } else {
            groups.restore(scene.entity()).unwrap();
        }
        assert_eq!(group(), before);
        assert!(!own.exists());
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
fn every_mechanism_is_told_with_a_reason_where_it_is_missing() {
    let offers = offers(&Real::default());
    assert!(offers.len() >= 10);
    for o in offers {
        assert!(o.missing.is_none_or(|m| m.why.len() > 10), "{}", o.name);
    }
    let power = smt_priority("powerpc64").missing.unwrap();
    assert!(power.why.contains("instruction"), "{power:?}");
}

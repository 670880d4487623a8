//! Limits read from the trees of other machines, and from groups made on this one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "helpers/captured.rs"]
mod captured;

use evenly_linux::limits::{
    Cache, CgroupMount, DomainKind, Limits, LimitsError, Quota, Throttling, last_cache,
    parse_cfs_quota, parse_cgroup, parse_cpu_max, parse_cpu_stat, parse_memory, parse_mountinfo,
    parse_stat_cpus, partition, slice,
};
use evenly_model::{CpuId, CpuSet, Nanos, Pid};
use evenly_testing::groups;
use proptest::prelude::*;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The process of interest in the captured trees.
const PID: Pid = Pid(1000);

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// A captured machine, and its limits.
fn tree(name: &str) -> (TempDir, Limits) {
    let dir = captured::captured(name);
    let limits = Limits::new(dir.path());
    (dir, limits)
}

fn lists(domains: Result<Vec<CpuSet>, LimitsError>) -> Vec<String> {
    domains.unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn version_1_beside_an_empty_version_2() {
    let (_dir, limits) = tree("v1-hybrid.txt");
    assert_eq!(limits.online().unwrap(), set("0-1"));
    assert_eq!(limits.cpuset(PID).unwrap(), set("1"));
    let throttling = Throttling { times: 12, held: Nanos(377_913_890) };
    assert_eq!(limits.quota(PID).unwrap(), Quota { cpus: Some(0.4), throttling });
    assert_eq!(lists(limits.domains(DomainKind::Numa, &set("0-1"))), ["0-1"]);
    assert_eq!(lists(limits.domains(DomainKind::Llc, &set("0-1"))), ["0-1"]);
}

#[test]
fn version_1_cpuset_without_effective_cpus_and_without_prefix() {
    let (dir, limits) = tree("v1-hybrid.txt");
    let job = dir.path().join("sys/fs/cgroup/cpuset/batch/job");
    fs::remove_file(job.join("cpuset.effective_cpus")).unwrap();
    assert_eq!(limits.cpuset(PID).unwrap(), set("1"));
    fs::rename(job.join("cpuset.cpus"), job.join("cpus")).unwrap();
    assert_eq!(limits.cpuset(PID).unwrap(), set("1"));
    fs::remove_file(job.join("cpus")).unwrap();
    assert_eq!(limits.cpuset(PID).unwrap(), set("0-1"), "the group above");
}

#[test]
fn version_2_with_an_offline_cpu_and_a_node_without_cpus() {
    let (_dir, limits) = tree("v2-numa-offline.txt");
    let all = set("0-7");
    assert_eq!(limits.online().unwrap(), set("0-2,4-7"));
    // The lowest group has no cpuset files: the group above it has.
    assert_eq!(limits.cpuset(PID).unwrap(), set("0-1,4-6"));
    // 60000/20000 inside of 250000/100000.
    let quota = limits.quota(PID).unwrap();
    assert_eq!(quota.cpus, Some(2.5));
    assert!(quota.throttling.times > 0 && quota.throttling.held > Nanos::ZERO, "{quota:?}");
    assert_eq!(lists(limits.domains(DomainKind::Machine, &all)), ["0-2,4-7"]);
    assert_eq!(lists(limits.domains(DomainKind::Numa, &all)), ["0-2", "4-7"]);
    assert_eq!(lists(limits.domains(DomainKind::Llc, &all)), ["0-2", "4-7"]);
    assert_eq!(lists(limits.domains(DomainKind::Numa, &set("1,3"))), ["1"]);
    assert_eq!(lists(limits.domains(DomainKind::Numa, &set("3"))), [""; 0]);
}

#[test]
fn an_offline_cpu_belongs_to_the_domain_of_its_node() {
    let (dir, limits) = tree("v2-numa-offline.txt");
    // Links in /sys; those of offline CPUs stay.
    for cpu in 0..8 {
        let node = format!("sys/devices/system/node/node{}/cpu{cpu}", cpu / 4);
        fs::create_dir(dir.path().join(node)).unwrap();
    }
    for kind in [DomainKind::Machine, DomainKind::Numa, DomainKind::Llc] {
        let domains = lists(limits.domains(kind, &set("0-7")));
        let one = kind == DomainKind::Machine;
        assert_eq!(domains, if one { vec!["0-7"] } else { vec!["0-3", "4-7"] }, "{kind:?}");
    }
    // One that is in no node is left out.
    assert_eq!(lists(limits.domains(DomainKind::Numa, &set("2-3,6,9"))), ["2-3", "6"]);
    assert_eq!(lists(limits.domains(DomainKind::Numa, &set("3"))), ["3"]);
}

#[test]
fn a_node_that_is_offline_has_its_domain_waiting() {
    let (dir, limits) = tree("v2-numa-offline.txt");
    for cpu in 0..8 {
        let node = format!("sys/devices/system/node/node{}/cpu{cpu}", cpu / 4);
        fs::create_dir(dir.path().join(node)).unwrap();
    }
    fs::write(dir.path().join("sys/devices/system/cpu/online"), "0-2\n").unwrap();
    fs::write(dir.path().join("sys/devices/system/node/node1/cpulist"), "\n").unwrap();
    for kind in [DomainKind::Numa, DomainKind::Llc] {
        assert_eq!(lists(limits.domains(kind, &set("0-7"))), ["0-3", "4-7"], "{kind:?}");
    }
    assert_eq!(lists(limits.domains(DomainKind::Machine, &set("0-7"))), ["0-7"]);
}

#[test]
fn inside_a_cgroup_namespace() {
    let (_dir, limits) = tree("v2-namespace.txt");
    // What stands above the namespace cannot be read: neither its cpuset nor its smaller quota.
    assert_eq!(limits.cpuset(PID).unwrap(), limits.online().unwrap());
    let quota = limits.quota(PID).unwrap();
    assert_eq!((quota.cpus, quota.throttling.times), (Some(3.0), 70));
}

#[test]
fn only_a_part_of_the_hierarchy_is_mounted() {
    let (_dir, limits) = tree("v2-part-mounted.txt");
    assert_eq!(limits.cpuset(PID).unwrap(), set("0-1,4-6"));
    let quota = limits.quota(PID).unwrap();
    assert_eq!((quota.cpus, quota.throttling.times), (Some(2.5), 91));
}

#[test]
fn last_caches_of_a_processor_with_two_kinds_of_cores() {
    let (_dir, limits) = tree("hybrid-laptop.txt");
    let all = set("0-21");
    assert_eq!(lists(limits.domains(DomainKind::Llc, &all)), ["0-19", "20-21"]);
    assert_eq!(lists(limits.domains(DomainKind::Llc, &set("11,21"))), ["11", "21"]);
    assert_eq!(lists(limits.domains(DomainKind::Numa, &all)), ["0-21"]);
    // No cgroups at all in this tree.
    assert_eq!(limits.cpuset(PID).unwrap(), all);
    assert_eq!(limits.quota(PID).unwrap(), Quota::default());
}

#[test]
fn unknown_cpus_form_a_domain_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let cpu = dir.path().join("sys/devices/system/cpu");
    fs::create_dir_all(&cpu).unwrap();
    fs::write(cpu.join("online"), "0-3\n").unwrap();
    let limits = Limits::new(dir.path());
    for kind in [DomainKind::Machine, DomainKind::Numa, DomainKind::Llc] {
        assert_eq!(lists(limits.domains(kind, &set("0-9"))), ["0-3"], "{kind:?}");
    }
}

#[test]
fn errors_name_file_found_and_needed() {
    let (dir, limits) = tree("v2-numa-offline.txt");
    let message = |file: &str, content: &str, act: &dyn Fn() -> String| {
        let path = dir.path().join(file);
        let before = fs::read(&path).unwrap();
        fs::write(&path, content).unwrap();
        let message = act();
        fs::write(&path, before).unwrap();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        assert!(message.contains(&format!("'{}'", content.trim_end())), "{message}");
        message
    };
    let m = message("sys/devices/system/cpu/online", "0-\n", &|| {
        limits.online().unwrap_err().to_string()
    });
    assert!(m.contains("0-3,8"), "{m}");
    message("sys/devices/system/node/node1/cpulist", "many\n", &|| {
        limits.domains(DomainKind::Numa, &set("0-7")).unwrap_err().to_string()
    });
    message("sys/fs/cgroup/batch.slice/cpu.max", "some 5\n", &|| {
        limits.quota(PID).unwrap_err().to_string()
    });
    message("sys/fs/cgroup/batch.slice/cpuset.cpus.effective", "0..4\n", &|| {
        limits.cpuset(PID).unwrap_err().to_string()
    });

    fs::remove_file(dir.path().join("sys/devices/system/cpu/online")).unwrap();
    assert_eq!(limits.online().unwrap(), set("0-2,4-7"), "from /proc/stat");
    fs::remove_file(dir.path().join("proc/stat")).unwrap();
    let m = limits.online().unwrap_err().to_string();
    assert!(m.contains("sys/devices/system/cpu/online") && m.contains("mount sysfs"), "{m}");
}

#[test]
fn cgroup_lines() {
    // Written after cgroups(7): several controllers, a colon in a name, and a group outside of the
    // reader's namespace.
    let lines =
        parse_cgroup(b"4:cpu,cpuacct:/a:b\n1:name=systemd:/\n0::/../x\nnonsense\n5:cpuset:");
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0].controllers, ["cpu", "cpuacct"]);
    assert_eq!(lines[0].path, Path::new("/a:b"));
    assert_eq!((lines[2].hierarchy, lines[2].controllers.len()), (0, 0));
}

#[test]
fn mounts_and_what_they_show() {
    // The first two captured; the others written after proc_pid_mountinfo(5).
    let mounts = parse_mountinfo(
        b"34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n\
          26 1 0:22 /batch.slice /tmp/cg\\040roup rw,relatime - cgroup2 cgroup2 rw\n\
          9 1 0:22 /.. /c rw shared:1 master:2 - cgroup2 cgroup2 rw\n\
          9 1 0:22 / /c - - cgroup rw,cpuset\n\
          9 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
          9 1 0:5 / /old rw - cgroup none rw,noprefix,cpuset,cpu,cpuacct\n",
    );
    assert_eq!(mounts.len(), 4);
    assert!(mounts[0].has_v1("cpuset") && !mounts[0].has_v1("cpu"));
    assert_eq!(mounts[1].point, PathBuf::from("/tmp/cg roup"));
    assert!(mounts[2].v1_options.is_none() && !mounts[2].has_v1("cpuset"));
    assert!(mounts[3].has_v1("cpu") && mounts[3].has_v1("cpuset"));

    let mount =
        |root: &str| CgroupMount { root: root.into(), point: "/c".into(), v1_options: None };
    for (root, group, below) in [
        ("/", "/a/b", Some("a/b")),
        ("/", "/", Some("")),
        ("/a", "/a/b", Some("b")),
        ("/a", "/ab", None),
        ("/a/b", "/a", None),
        ("/", "/../sibling", None),
        // Mounted outside of the namespace: captured on Linux 6.1 after unshare(CLONE_NEWCGROUP).
        ("/../..", "/", Some("")),
        ("/../..", "/a", Some("")),
        ("/../..", "/../../x", Some("x")),
        ("/..", "/../../x", None),
        ("/../other", "/", None),
        ("", "/a", None),
    ] {
        assert_eq!(
            mount(root).relative(Path::new(group)),
            below.map(PathBuf::from),
            "{root} {group}"
        );
    }
}

#[test]
fn memory_that_is_left_is_the_least_of_all_levels() {
    let of = |files: &[(&str, &str)]| {
        let dir = tempfile::tempdir().unwrap();
        let mounts = "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let named = [("proc/1000/cgroup", "0::/a/b\n"), ("proc/self/mountinfo", mounts)];
        for (path, text) in named.iter().chain(files) {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Limits::new(dir.path()).memory_left(PID)
    };
    let own = ("sys/fs/cgroup/a/b/memory.max", "max\n");
    assert_eq!(of(&[own]), None);
    let above = ("sys/fs/cgroup/a/memory.max", "1000\n");
    assert_eq!(of(&[own, above, ("sys/fs/cgroup/a/memory.current", "300\n")]), Some(700));
    assert_eq!(of(&[own, above, ("sys/fs/cgroup/a/memory.current", "3000\n")]), Some(0));
    assert_eq!(of(&[("sys/fs/cgroup/a/b/memory.max", "200"), above]), Some(200));
    assert_eq!(parse_memory(b"max\n"), Some(None));
    assert_eq!(parse_memory(b"12 3"), None);
}

#[test]
fn quotas() {
    assert_eq!(parse_cpu_max(b"max 100000\n"), Some(None));
    assert_eq!(parse_cpu_max(b"150000 100000\n"), Some(Some(1.5)));
    for bad in ["", "max x", "-1 100000", "0 100000", "5 0", "1 2 3", "most 100000"] {
        assert_eq!(parse_cpu_max(bad.as_bytes()), None, "{bad}");
    }
    assert_eq!(parse_cfs_quota(b"-1\n", b"100000\n"), Some(None));
    assert_eq!(parse_cfs_quota(b"25000\n", b"100000\n"), Some(Some(0.25)));
    assert_eq!(parse_cfs_quota(b"\n", b"100000\n"), None);
    assert_eq!(parse_cfs_quota(b"25000\n", b"0\n"), None);
    let v2 = b"usage_usec 9\nnr_periods 3\nnr_throttled 2\nthrottled_usec 5\nnr_bursts 0\n";
    assert_eq!(parse_cpu_stat(v2), Throttling { times: 2, held: Nanos(5_000) });
    let v1 = b"nr_periods 3\nnr_throttled 2\nthrottled_time 5\nnr_bursts 0\nburst_time 0\n";
    assert_eq!(parse_cpu_stat(v1), Throttling { times: 2, held: Nanos(5) });
    assert_eq!(parse_cpu_stat(b"usage_usec 9\n"), Throttling::default());
}

#[test]
fn caches() {
    let cache = |level, kind, cpus: &str| Cache::parse(level, kind, cpus.as_bytes()).unwrap();
    let all = [
        cache(b"1\n", b"Data\n", "0-1\n"),
        cache(b"1", b"Instruction", "0-1"),
        cache(b"2", b"Unified", "0-3"),
        cache(b"3", b"Instruction", "0-7"),
        cache(b"4", b"Unified", ""),
    ];
    assert_eq!(last_cache(&all), Some(&set("0-3")));
    assert_eq!(last_cache(&all[3..]), None);
    assert_eq!(Cache::parse(b"2", b"Trace", b"0"), None);
    assert_eq!(Cache::parse(b"L2", b"Data", b"0"), None);
}

#[test]
fn the_slice_is_no_shorter_than_a_tenth_of_a_millisecond() {
    let s = slice();
    assert!(s.tick >= Nanos::from_millis(1) && s.tick <= Nanos::from_millis(10), "{s:?}");
    assert!(s.slice >= Nanos::from_micros(100) && s.slice <= Nanos::from_millis(200), "{s:?}");
}

#[test]
fn a_watch_notices_every_kind_of_change_once() {
    let (dir, limits) = tree("v2-numa-offline.txt");
    let mut watch = limits.watch(PID);
    assert!(!watch.changed());
    assert!(!watch.changed());
    let mut change = |file: &str, content: &str| {
        fs::write(dir.path().join(file), content).unwrap();
        assert!(watch.changed(), "{file}");
        assert!(!watch.changed(), "{file}, once more");
    };
    change("sys/devices/system/cpu/online", "0-7\n");
    change("sys/fs/cgroup/batch.slice/cpuset.cpus.effective", "0\n");
    change("sys/fs/cgroup/batch.slice/cpu.max", "max 100000\n");
    change("sys/fs/cgroup/batch.slice/job-17.scope/cpu.max", "50000 20000\n");
    // The controller is turned on for the lowest group: now this is what counts.
    change("sys/fs/cgroup/batch.slice/job-17.scope/cpuset.cpus.effective", "0\n");
    change("sys/fs/cgroup/batch.slice/job-17.scope/cpuset.cpus.effective", "0-1\n");
    // The process is moved to another group.
    change("proc/1000/cgroup", "0::/user.slice\n");
    change("sys/fs/cgroup/user.slice/cpuset.cpus.effective", "5\n");
}

/// A group that is removed with its processes when dropped.
struct Group {
    children: Vec<Child>,
    /// Dropped after the children have ended.
    group: groups::Group,
}

impl Group {
    fn child(&mut self, shell: &str) -> io::Result<Pid> {
        let mut command = Command::new("sh");
        command.args(["-c", shell]).stdout(Stdio::null()).stdin(Stdio::null());
        let child = command.spawn()?;
        let pid = Pid(child.id().cast_signed());
        self.children.push(child);
        self.group.take(pid)?;
        Ok(pid)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a test that needs groups; skipped where they may not be made.
fn with_group(controller: &str, test: impl FnOnce(&mut Group) -> io::Result<()>) {
    let group = match groups::Group::new(controller, controller) {
        Ok(group) => group,
        Err(e) => {
            let why = format!("no group can be made for {controller}: {e}");
            return evenly_testing::skip(groups::KEY, why);
        }
    };
    test(&mut Group { children: Vec::new(), group }).unwrap();
}

#[test]
fn a_real_cpuset_is_reported_and_its_change_noticed() {
    with_group("cpuset", |g| {
        let limits = Limits::default();
        let all = limits.cpuset(Pid(std::process::id().cast_signed())).unwrap();
        let Some(other) = all.iter().nth(1) else {
            evenly_testing::skip("two-cpus", "one CPU only");
            return Ok(());
        };
        let one = CpuSet::single(all.first().unwrap_or(CpuId(0)));
        g.group.set_cpus(&one)?;
        let pid = g.child("exec sleep 600")?;
        assert_eq!(limits.cpuset(pid).unwrap(), one);
        let mut watch = limits.watch(pid);
        assert!(!watch.changed());
        let both = one.or(&CpuSet::single(other));
        g.group.set_cpus(&both)?;
        assert!(watch.changed());
        assert_eq!(limits.cpuset(pid).unwrap(), both);
        assert!(!watch.changed());
        // The end of the process is one change.
        if let Some(child) = g.children.first_mut() {
            child.kill()?;
            child.wait()?;
        }
        assert!(watch.changed());
        assert!(!watch.changed());
        Ok(())
    });
}

/// Groups of a delegated subtree have the names that its user chose.
#[test]
fn the_line_that_lifts_a_quota_quotes_the_name_of_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/1000/cgroup", "0::/a; touch $(b)\n");
    write("proc/self/mountinfo", "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    write("sys/fs/cgroup/a; touch $(b)/cgroup.controllers", "cpu\n");
    write("sys/fs/cgroup/a; touch $(b)/cpu.max", "50000 100000\n");
    let line = Limits::new(dir.path()).quota_source(PID).unwrap().lift();
    let file = dir.path().join("sys/fs/cgroup/a; touch $(b)/cpu.max");
    assert_eq!(line, format!("echo max > '{}'", file.display()));
}

#[test]
fn a_real_quota_and_its_throttling_are_reported() {
    with_group("cpu", |g| {
        g.group.set_quota(Some(2_000), 10_000)?;
        let pid = g.child("while :; do :; done")?;
        let limits = Limits::default();
        let mut watch = limits.watch(pid);
        assert!(!watch.changed());
        assert_eq!(limits.quota(pid).unwrap().cpus, Some(0.2));
        // The kernel counts a throttling when it begins, and its time when it has ended.
        let throttling = || limits.quota(pid).unwrap().throttling;
        evenly_testing::wait_until("a busy loop is held back", || {
            throttling().times >= 2 && throttling().held > Nanos::ZERO
        });
        assert!(!watch.changed(), "throttling is no change of a limit");
        g.group.set_quota(None, 10_000)?;
        assert!(watch.changed());
        assert_eq!(limits.quota(pid).unwrap().cpus, None);
        Ok(())
    });
}

#[test]
fn this_machine_can_be_read() {
    let limits = Limits::default();
    let own = Pid(std::process::id().cast_signed());
    let online = limits.online().unwrap();
    assert!(limits.cpuset(own).unwrap().is_subset(&online));
    limits.quota(own).unwrap();
    for kind in [DomainKind::Machine, DomainKind::Numa, DomainKind::Llc] {
        let domains = limits.domains(kind, &online).unwrap();
        assert_eq!(domains.iter().map(CpuSet::len).sum::<usize>(), online.len());
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_cgroup(&bytes);
        let _ = parse_cpu_max(&bytes);
        let _ = parse_cpu_stat(&bytes);
        let _ = parse_stat_cpus(&bytes);
        let _ = Cache::parse(&bytes, b"Data", &bytes);
        for mount in parse_mountinfo(&bytes) {
            let _ = mount.relative(&mount.point);
        }
    }

    #[test]
    fn parts_are_disjoint_and_whole(
        groups in proptest::collection::vec(any::<[u64; 2]>(), 0..5),
        within in any::<[u64; 2]>(),
    ) {
        let within = CpuSet::from_words(&within);
        let parts = partition(groups.iter().map(|g| CpuSet::from_words(g)), &within);
        prop_assert!(parts.iter().all(|p| !p.is_empty()));
        prop_assert_eq!(parts.iter().map(CpuSet::len).sum::<usize>(), within.len());
        prop_assert_eq!(parts.iter().fold(CpuSet::new(), |all, p| all.or(p)), within);
        prop_assert!(parts.windows(2).all(|w| w[0].first() < w[1].first()));
    }
}

#[test]
fn capacity_as_the_kernel_tells_it() {
    let dir = tempfile::tempdir().unwrap();
    for (cpu, text) in [(0, "1024\n"), (1, "446\n"), (2, "0\n"), (3, "fast\n")] {
        let path = dir.path().join(format!("sys/devices/system/cpu/cpu{cpu}"));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("cpu_capacity"), text).unwrap();
    }
    let limits = Limits::new(dir.path());
    // What is no capacity, and what is not reported, is full.
    let found: Vec<u32> = (0..5).map(|c| limits.capacity(CpuId(c))).collect();
    assert_eq!(found, [1024, 446, 1024, 1024, 1024]);
}

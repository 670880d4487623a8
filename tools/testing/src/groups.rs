//! A control group of a test's own, of whichever version is mounted.

use evenly_model::{CpuSet, Pid};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// The key with which tests say that no control group can be made.
pub const KEY: &str = "cgroups";

/// Where groups of a controller are made.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// A hierarchy of version 1, which is the controller's own.
    One(PathBuf),
    /// The one of version 2, which all controllers have in common.
    Two(PathBuf),
}

impl Place {
    /// By a table of mounts (`/proc/self/mounts`). A controller belongs to one version at a time: to
    /// version 1 where it is mounted so.
    fn find(controller: &str, mounts: &str) -> Option<Self> {
        let of = |kind: &str, option: Option<&str>| {
            mounts.lines().find_map(|line| {
                let mut fields = line.split(' ').skip(1);
                let (point, found, options) = (fields.next()?, fields.next()?, fields.next()?);
                let has = option.is_none_or(|wanted| options.split(',').any(|o| o == wanted));
                (found == kind && has).then(|| PathBuf::from(point))
            })
        };
        of("cgroup", Some(controller)).map(Self::One).or_else(|| of("cgroup2", None).map(Self::Two))
    }
}

/// A control group, removed when it is dropped and its last process has ended.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
    place: Place,
}

impl Group {
    /// One for `cpu` or `cpuset`, below the topmost one; the name is made unique to this process. CPUs
    /// of a cpuset are to be given before it takes a process.
    ///
    /// # Errors
    /// Why none can be made here.
    pub fn new(controller: &str, name: &str) -> io::Result<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        let Some(place) = Place::find(controller, &mounts) else {
            return Err(io::Error::other(format!("no {controller} controller is mounted")));
        };
        Self::below(place, controller, name)
    }

    /// # Errors
    /// What could not be done, where, and why.
    fn below(place: Place, controller: &str, name: &str) -> io::Result<Self> {
        let at = |path: &Path| {
            let path = path.display().to_string();
            move |e: io::Error| io::Error::new(e.kind(), format!("{path}: {e}"))
        };
        let top = match &place {
            Place::One(top) => top.clone(),
            Place::Two(top) => {
                let given = top.join("cgroup.subtree_control");
                let all = fs::read_to_string(&given).map_err(at(&given))?;
                if !all.split_whitespace().any(|c| c == controller) {
                    fs::write(&given, format!("+{controller}")).map_err(at(&given))?;
                }
                top.clone()
            }
        };
        let dir = top.join(format!("evenly-test-{name}-{}", std::process::id()));
        fs::create_dir(&dir).map_err(at(&dir))?;
        // From here on it is removed again where something fails.
        let group = Self { dir, place };
        if controller == "cpuset" && matches!(group.place, Place::One(_)) {
            let mems = fs::read(top.join("cpuset.mems"))?;
            fs::write(group.dir.join("cpuset.mems"), mems).map_err(at(&group.dir))?;
        }
        Ok(group)
    }

    /// The directory of the group.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Takes a process in.
    ///
    /// # Errors
    /// As write(2).
    pub fn take(&self, pid: Pid) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string())
    }

    /// The CPUs of a cpuset from now on.
    ///
    /// # Errors
    /// As write(2).
    pub fn set_cpus(&self, cpus: &CpuSet) -> io::Result<()> {
        fs::write(self.dir.join("cpuset.cpus"), cpus.to_string())
    }

    /// The quota from now on: so many microseconds of CPU time in each period of so many, or none.
    ///
    /// # Errors
    /// As write(2).
    pub fn set_quota(&self, quota_us: Option<u64>, period_us: u64) -> io::Result<()> {
        let files = self.quota(quota_us, period_us);
        files.iter().try_for_each(|(file, text)| fs::write(self.dir.join(file), text))
    }

    /// What [`Group::set_quota`] writes, as names of files and texts, for another process to write it.
    #[must_use]
    pub fn quota(&self, quota_us: Option<u64>, period_us: u64) -> Vec<(&'static str, String)> {
        match self.place {
            Place::One(_) => {
                let quota = quota_us.map_or_else(|| String::from("-1"), |us| us.to_string());
                vec![("cpu.cfs_period_us", period_us.to_string()), ("cpu.cfs_quota_us", quota)]
            }
            Place::Two(_) => {
                let quota = quota_us.map_or_else(|| String::from("max"), |us| us.to_string());
                vec![("cpu.max", format!("{quota} {period_us}"))]
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The group empties a moment after its last process has been waited for.
        for _ in 0..1_000 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "sys /sys sysfs rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n";
    const BOTH: &str = "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
                        cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";

    #[test]
    fn the_version_is_that_of_what_is_mounted() {
        let find = |controller, mounts| Place::find(controller, mounts);
        assert_eq!(find("cpuset", TWO), Some(Place::Two("/sys/fs/cgroup".into())));
        assert_eq!(find("cpu", BOTH), Some(Place::One("/sys/fs/cgroup/cpu,cpuacct".into())));
        // What version 1 does not have, version 2 may.
        assert_eq!(find("cpuset", BOTH), Some(Place::Two("/sys/fs/cgroup/unified".into())));
        assert_eq!(find("cpu", "sys /sys sysfs rw 0 0\n"), None);
        assert_eq!(find("cpu", ""), None);
    }

    /// In a tree of files that only looks like one of control groups, so of what is written.
    #[test]
    fn each_version_is_written_as_it_is_read() {
        let top = std::env::temp_dir().join(format!("evenly-groups-{}", std::process::id()));
        fs::create_dir_all(&top).unwrap();
        fs::write(top.join("cgroup.subtree_control"), "cpu\n").unwrap();
        fs::write(top.join("cpuset.mems"), "0-1\n").unwrap();
        let read = |g: &Group, file: &str| fs::read_to_string(g.path().join(file)).unwrap();
        let cpus: CpuSet = "1,3".parse().unwrap();
        let one = Group::below(Place::One(top.clone()), "cpuset", "one").unwrap();
        one.set_cpus(&cpus).unwrap();
        one.set_quota(None, 10_000).unwrap();
        one.take(Pid(7)).unwrap();
        let files = ["cpuset.mems", "cpuset.cpus", "cpu.cfs_period_us", "cpu.cfs_quota_us"];
        assert_eq!(files.map(|f| read(&one, f)), ["0-1\n", "1,3", "10000", "-1"]);
        assert_eq!(read(&one, "cgroup.procs"), "7");
        let two = Group::below(Place::Two(top.clone()), "cpuset", "two").unwrap();
        two.set_cpus(&cpus).unwrap();
        two.set_quota(Some(1_500), 1_000).unwrap();
        assert_eq!([read(&two, "cpuset.cpus"), read(&two, "cpu.max")], ["1,3", "1500 1000"]);
        let given = || fs::read_to_string(top.join("cgroup.subtree_control")).unwrap();
        assert_eq!(given(), "+cpuset");
        assert!(!two.path().join("cpuset.mems").exists());
        // What is given already is not asked for.
        fs::write(top.join("cgroup.subtree_control"), "cpuset cpu\n").unwrap();
        let three = Group::below(Place::Two(top.clone()), "cpu", "three").unwrap();
        assert_eq!(given(), "cpuset cpu\n");
        for group in [&one, &two, &three] {
            // Here the files do not vanish with their directory.
            fs::remove_dir_all(group.path()).unwrap();
            fs::create_dir(group.path()).unwrap();
        }
        let gone = three.path().to_owned();
        drop((one, two, three));
        assert!(!gone.exists());
        let missing = Group::below(Place::Two(top.join("none")), "cpu", "x").unwrap_err();
        assert!(missing.to_string().contains("cgroup.subtree_control"), "{missing}");
        fs::remove_dir_all(&top).unwrap();
    }
}

//! A kernel with resctrl, in files below a directory: making a group makes its files, writing a thread's id
//! into `tasks` moves it, and removing a group needs no emptying. Everything is in the files, so that several
//! processes have the same kernel.
//!
//! For unit tests and for test programs, which both have `files` in the module above.

#![allow(dead_code, reason = "each of them needs a part of it")]

use super::files::{Files, System};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where resctrl is mounted.
const MOUNT: &str = "sys/fs/resctrl";

/// The root of such a file system.
#[derive(Debug, Clone)]
pub(crate) struct Kernel(pub(crate) PathBuf);

impl Kernel {
    pub(crate) fn mount(&self) -> PathBuf {
        self.0.join(MOUNT)
    }

    pub(crate) fn groups(&self) -> Vec<PathBuf> {
        let mut all = System.dirs(&self.mount()).unwrap();
        all.retain(|d| d.join("tasks").exists());
        all.push(self.mount());
        all
    }

    pub(crate) fn thread(&self, tid: i32, pid: i32) {
        let stat = format!(
            "{tid} (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0\n"
        );
        for dir in [format!("{pid}/task/{tid}"), format!("{tid}/task/{tid}")] {
            let dir = self.0.join("proc").join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("stat"), &stat).unwrap();
        }
        if tid == pid {
            fs::write(self.0.join(format!("proc/{tid}/stat")), &stat).unwrap();
        }
        self.write(&self.mount().join("tasks"), &tid.to_string()).unwrap();
    }

    pub(crate) fn tasks(&self, group: &Path) -> Vec<String> {
        let text = fs::read_to_string(group.join("tasks")).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn group_of(&self, tid: i32) -> PathBuf {
        let has = |g: &PathBuf| self.tasks(g).contains(&tid.to_string());
        self.groups().into_iter().find(has).unwrap()
    }
}

impl Files for Kernel {
    fn read(&self, path: &Path) -> io::Result<String> {
        if path.ends_with("cpu_resctrl_groups") {
            let tid = path.parent().unwrap().file_name().unwrap().to_str().unwrap();
            let group = self.group_of(tid.parse().unwrap());
            let group = group.strip_prefix(self.mount()).unwrap().display().to_string();
            return Ok(format!("res:/{group}\nmon:\n"));
        }
        fs::read_to_string(path)
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        if !path.ends_with("tasks") {
            return fs::write(path, text);
        }
        for group in self.groups() {
            let mut left = self.tasks(&group);
            left.retain(|t| t != text);
            fs::write(group.join("tasks"), left.join("\n"))?;
        }
        let mut now = self.tasks(path.parent().unwrap());
        now.push(text.to_owned());
        fs::write(path, now.join("\n"))
    }

    fn make_dir(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)?;
        fs::write(path.join("tasks"), "")?;
        fs::copy(self.mount().join("schemata"), path.join("schemata")).map(drop)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        for tid in self.tasks(path) {
            self.write(&self.mount().join("tasks"), &tid)?;
        }
        fs::remove_dir_all(path)
    }

    fn dirs(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        System.dirs(path)
    }

    fn may_write(&self, path: &Path) -> io::Result<()> {
        System.may_write(path)
    }
}

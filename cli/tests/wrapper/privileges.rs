//! Evenly with privileges of its program file: it refuses to run. With ambient capabilities it runs.

use crate::support::{Child, Tool, is_root, json, stderr};
use evenly_linux::affinity;
use evenly_linux::journal::{Journal, StateDir};
use evenly_linux::proc::Proc;
use evenly_model::{CpuSet, Pid, ThreadId, Tid};
use rustix::fs::{StatVfsMountFlags, XattrFlags};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};

const NOBODY: u32 = 65_534;
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_NICE: u32 = 23;
const CAP_PERFMON: u32 = 38;

/// A copy of evenly to which privileges can be given; None, a skip, where they would have no effect.
fn tool() -> Option<Tool> {
    if !is_root("a program file with privileges") {
        return None;
    }
    let tool = Tool::for_everybody();
    let mounted = rustix::fs::statvfs(tool.dir.path()).unwrap();
    if mounted.f_flag.contains(StatVfsMountFlags::NOSUID) || rustix::thread::no_new_privs().unwrap()
    {
        evenly_testing::skip("setuid", "privileges of files have no effect here");
        return None;
    }
    Some(tool)
}

/// Gives the file these capabilities, as `setcap ...+ep` does; whether that is possible here.
fn set_capabilities(tool: &Tool, capabilities: &[u32]) -> bool {
    let set = capabilities.iter().fold(0u64, |set, bit| set | 1 << bit);
    // struct vfs_cap_data of version 2, effective: permitted and inheritable, the low words first.
    let words = [0x0200_0001, set as u32, 0, (set >> 32) as u32, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    let given =
        rustix::fs::setxattr(tool.exe(), "security.capability", &bytes, XattrFlags::empty());
    if let Err(e) = given {
        evenly_testing::skip("setuid", format!("files cannot be given capabilities: {e}"));
    }
    given.is_ok()
}

/// As another user, with a state directory of that user.
fn as_nobody(c: &mut Command, tool: &Tool) -> Output {
    let home = tool.directory_of(NOBODY);
    c.uid(NOBODY).gid(NOBODY).env("EVENLY_STATE_DIR", &home).env("XDG_CACHE_HOME", &home);
    c.output().unwrap()
}

#[track_caller]
fn refused(output: &Output, why: &str) {
    let said = stderr(output);
    assert_eq!((output.status.code(), said.lines().count()), (Some(125), 1), "{said}");
    assert!(why.split('|').all(|words| said.contains(words)), "{said}");
    assert!(output.stdout.is_empty());
}

/// A directory with a plug-in for hwloc that leaves a file where it is loaded, and that file.
fn plug_in(tool: &Tool) -> (PathBuf, PathBuf) {
    let (dir, marker) = (tool.path("plugins"), tool.directory_of(NOBODY).join("loaded"));
    fs::create_dir_all(&dir).unwrap();
    let source = dir.join("plugin.c");
    let code = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void load(void) {{ fclose(fopen({:?}, \"w\")); }}\n",
        marker.display().to_string()
    );
    fs::write(&source, code).unwrap();
    let library = dir.join("hwloc_other.so");
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(built.unwrap().success());
    (dir, marker)
}

#[test]
fn with_file_capabilities_it_loads_no_plug_ins() {
    let Some(tool) = tool() else { return };
    let (dir, marker) = plug_in(&tool);
    let topology = || as_nobody(tool.evenly(["topology"]).env("HWLOC_PLUGINS_PATH", &dir), &tool);
    // Without privileges that is the caller's own affair. An hwloc that was built without plug-ins loads none.
    assert!(topology().status.success());
    let loads = fs::remove_file(&marker).is_ok();
    println!("without privileges the plug-in is loaded: {loads}");
    if set_capabilities(&tool, &[CAP_NET_ADMIN, CAP_PERFMON]) {
        refused(&topology(), &format!("has file capabilities|sudo setcap -r {}", tool.exe()));
        assert!(!marker.exists());
    }
}

#[test]
fn with_file_capabilities_the_probe_is_not_tried() {
    let Some(tool) = tool() else { return };
    if set_capabilities(&tool, &[CAP_NET_ADMIN, CAP_PERFMON]) {
        let output = as_nobody(&mut tool.run("--probe on", &["echo", "ran"]), &tool);
        refused(&output, "has file capabilities");
    }
}

/// One that says that a process of root had another mask before.
#[test]
fn with_file_capabilities_a_forged_journal_changes_nothing() {
    let Some(tool) = tool() else { return };
    if !set_capabilities(&tool, &[CAP_SYS_NICE]) {
        return;
    }
    let victim = Child::spawn(tool.by("sleep").arg("300"));
    let tid = Tid(victim.0.id().cast_signed());
    let whole = affinity::get(tid).unwrap();
    let dir = tool.directory_of(NOBODY);
    chown(&dir, Some(0), Some(0)).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    let journal = Journal::create(&StateDir::at(&dir).unwrap(), None).unwrap();
    let id = ThreadId { tid, start: Proc::default().thread_stat(tid).unwrap().start };
    let forged = CpuSet::single(whole.first().unwrap());
    let mut slot = journal.register(id, Pid(tid.0), &forged).unwrap();
    journal.about_to_set(&mut slot, &whole);
    chown(journal.path(), Some(NOBODY), Some(NOBODY)).unwrap();
    chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let output = as_nobody(&mut tool.evenly(["restore", "--force"]), &tool);
    refused(&output, "has file capabilities");
    assert_eq!(affinity::get(tid).unwrap(), whole);
}

#[test]
fn setuid_and_setgid_are_refused() {
    let Some(tool) = tool() else { return };
    for (mode, why) in [(0o4755, "is setuid"), (0o2755, "is setgid")] {
        fs::set_permissions(tool.exe(), Permissions::from_mode(mode)).unwrap();
        refused(&as_nobody(&mut tool.evenly(["--version"]), &tool), why);
        // To root they give nothing.
        assert!(tool.evenly(["--version"]).output().unwrap().status.success());
    }
}

/// What the manual advises in place of file capabilities.
#[test]
fn with_ambient_capabilities_it_runs_and_sees_the_program() {
    let Some(tool) = tool() else { return };
    let home = tool.directory_of(NOBODY);
    let mut c = tool.by("setpriv");
    // Any capability that root has in a container, too.
    c.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    c.args(["--inh-caps", "+chown", "--ambient-caps", "+chown", tool.exe()]);
    c.args(["run", "--policy", "observe", "--probe", "on", "--json"]);
    c.arg(home.join("report.json")).arg("--");
    c.args(["sh", "-c", "grep CapAmb /proc/$PPID/status >&2"]);
    c.env("EVENLY_STATE_DIR", &home).env("XDG_CACHE_HOME", &home);
    let output = c.output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("0000000000000001"), "{said}");
    let report = json(&home.join("report.json"));
    assert!(report["probe"]["processes"].as_u64().unwrap() >= 1, "{report:#}");
}

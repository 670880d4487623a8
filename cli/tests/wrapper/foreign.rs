//! Root looks at programs of other users, which choose what their environment names.

use crate::mpi::here;
use crate::profile::profile;
use crate::support::{Child, Tool, is_root, wait_until};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

const NOBODY: u32 = 65_534;

/// A process of another user whose EVENLY_PROBE names a FIFO that nobody writes to. Its name in `/proc` is that of
/// evenly's own file in memory: it is in a file system that is mounted nowhere any more.
fn with_a_fifo(tool: &Tool) -> Option<(Child, PathBuf)> {
    let dir = tool.path("mounted");
    fs::create_dir(&dir).unwrap();
    // The FIFO has a writer only until it is open for reading, as that open would block, too.
    let script = format!(
        "cd / && mount -t tmpfs none {dir} && mkfifo '{dir}/memfd:evenly-waiting' &&
         exec 4<>'{dir}/memfd:evenly-waiting' && exec 3<'{dir}/memfd:evenly-waiting' 4<&- &&
         umount -l {dir} && export EVENLY_PROBE=/proc/$$/fd/3 &&
         exec setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups sleep 300",
        dir = dir.display()
    );
    let mut c = tool.by("unshare");
    let mut target = Child::spawn(c.args(["--mount", "sh", "-c", &script]).stderr(Stdio::null()));
    let name = format!("/proc/{}/comm", target.id());
    let mut failed = false;
    wait_until("the process is what it is to be", || {
        failed = target.0.try_wait().unwrap().is_some();
        failed || fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n")
    });
    if failed {
        evenly_testing::skip("namespaces", "nothing can be mounted in a namespace of its own");
        return None;
    }
    let fd = PathBuf::from(format!("/proc/{}/fd/3", target.id()));
    assert_eq!(fs::read_link(&fd).unwrap(), Path::new("/memfd:evenly-waiting"));
    Some((target, fd))
}

#[test]
fn a_fifo_does_not_hold_the_doctor_or_top() {
    if !is_root("a_fifo_does_not_hold_the_doctor_or_top") {
        return;
    }
    let tool = Tool::new();
    let Some((target, _fd)) = with_a_fifo(&tool) else { return };
    let mut c = tool.evenly(["doctor", "--for", "100ms", &target.id()]);
    let mut doctor = Child::spawn(c.stdout(Stdio::null()));
    let mut status = None;
    wait_until("the doctor has ended", || {
        status = doctor.0.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.is_some_and(|s| s.success()), "{status:?}");
    let out = tool.path("top");
    let mut c = tool.evenly(["top", "--plain", &target.id()]);
    let mut top = Child::spawn(c.stdout(fs::File::create(&out).unwrap()));
    wait_until("top shows something", || {
        assert_eq!(top.0.try_wait().unwrap(), None);
        !fs::read(&out).unwrap().is_empty()
    });
}

/// A program can put anything into the directory in which its ranks write.
#[test]
fn a_fifo_among_profiles_is_told() {
    let Some(mpi) = here().into_iter().next() else { return };
    let tool = Tool::new();
    let program = mpi.program("c");
    let script = "mkfifo \"$EVENLY_PROFILE_DIR/rank-fifo-$$\"; exec \"$@\"";
    let command = mpi.launch(&["sh", "-c", script, "sh", &program]);
    let mut c = profile(&tool, &["--topology", "core:4"], &command);
    let said = tool.path("said");
    let mut evenly = Child::spawn(c.stdout(Stdio::null()).stderr(fs::File::create(&said).unwrap()));
    wait_until("evenly has ended", || evenly.0.try_wait().unwrap().is_some());
    let said = fs::read_to_string(&said).unwrap();
    assert!(said.contains("is not opened: it is a FIFO; needed is a regular file"), "{said}");
}

//! Root looks at programs of other users, which choose what their environment names, and runs with an
//! environment that another user has made.

use crate::mpi::here;
use crate::profile::profile;
use crate::support::{Child, Tool, is_root, stderr, text, wait_until};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
#[ignore = "needs MPI: ./dev test --all"]
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

/// `sudo -E`: the cache directory is that of the user who called sudo.
#[test]
fn a_library_in_the_cache_of_another_user_is_not_loaded() {
    if !is_root("a_library_in_the_cache_of_another_user_is_not_loaded") {
        return;
    }
    let tool = Tool::for_everybody();
    let (home, temporary) = (tool.path("home"), tool.path("tmp"));
    fs::create_dir(&home).unwrap();
    fs::create_dir(&temporary).unwrap();
    fs::set_permissions(&temporary, Permissions::from_mode(0o1777)).unwrap();
    let preloaded = || {
        let print = ["sh", "-c", "echo \"$LD_PRELOAD\""];
        let mut c = tool.run("-q --policy observe --probe on --cooperate off", &print);
        c.env("XDG_CACHE_HOME", &home).env("TMPDIR", &temporary);
        let output = c.output().unwrap();
        assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
        PathBuf::from(text(&output.stdout).trim_end())
    };
    let library = preloaded();
    assert!(library.starts_with(fs::canonicalize(&home).unwrap()), "{}", library.display());
    // As that user could: another library of the same length under the same name.
    let own = fs::read(&library).unwrap();
    let marker = tool.path("loaded");
    let source = tool.path("planted.c");
    let code = format!(
        "#include <stdio.h>\n__attribute__((constructor)) static void load(void) {{ fclose(fopen({:?}, \"w\")); }}\n",
        marker.display().to_string()
    );
    fs::write(&source, code).unwrap();
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-s", "-o"])
        .arg(&library)
        .arg(&source)
        .status();
    assert!(built.unwrap().success());
    let file = fs::OpenOptions::new().write(true).open(&library).unwrap();
    assert!(file.metadata().unwrap().len() <= own.len() as u64);
    file.set_len(own.len() as u64).unwrap();
    let all = [&home, &home.join("evenly"), &home.join("evenly/probe"), &library];
    for path in all {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let other = preloaded();
    assert!(other.starts_with(fs::canonicalize(&temporary).unwrap()), "{}", other.display());
    assert_eq!(fs::read(&other).unwrap(), own);
    assert!(!marker.exists());
    // It was not touched either: what root makes in a home is in its user's way.
    assert_ne!(fs::read(&library).unwrap(), own);
    assert_eq!(preloaded(), other);
}

//! Whether this process has privileges that its program file gave to the user who started it.
//!
//! Such a process cannot trust its environment: the variables of hwloc name plug-ins that it loads, others name
//! directories whose journals decide which threads evenly changes. The loader ignores its own variables then
//! (`AT_SECURE`), but no library does. Evenly therefore does not run with such privileges.

use rustix::process::{getegid, geteuid, getgid, getuid};
use std::path::PathBuf;

/// Why the kernel started this process with `AT_SECURE`, in words that end with the remedy. None where it did
/// not: then all privileges are those of the caller, as with root, `sudo` and ambient capabilities.
#[must_use]
pub fn from_file() -> Option<String> {
    // SAFETY: getauxval reads the vector that the kernel has put behind the environment, which nothing in this
    // process writes to. A key that is not there yields 0.
    let secure = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    secure.then(|| {
        let exe = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("evenly"));
        let exe = exe.display();
        let (what, remedy) = if getuid() != geteuid() {
            ("is setuid", format!("sudo chmod u-s {exe}"))
        } else if getgid() != getegid() {
            ("is setgid", format!("sudo chmod g-s {exe}"))
        } else if rustix::fs::getxattr("/proc/self/exe", "security.capability", &mut [0u8; 64])
            .is_ok()
        {
            ("has file capabilities", format!("sudo setcap -r {exe}"))
        } else {
            return format!(
                "a security module has changed the security context of {exe} and wants its environment not to \
                 be trusted (AT_SECURE), which evenly cannot do; start it in the caller's context, or permit \
                 the environment (SELinux: noatsecure; AppArmor: a transition in lower case)"
            );
        };
        format!(
            "{exe} {what}, which gives these privileges to everyone who starts it; evenly does not run this \
             way: remove that ({remedy}), then use sudo or ambient capabilities (see the manual, Privileges)"
        )
    })
}

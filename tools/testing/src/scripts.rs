//! Programs that a test writes itself.
//!
//! Invariant: no file that is executed was open for writing in the process of the test. A thread of it that
//! starts a program hands such a file on to its child until that calls `execve`, and till then the kernel
//! refuses to execute the file ("Text file busy").

use std::io;
use std::path::Path;
use std::process::Command;

/// Writes a program for an interpreter, and lets everybody execute it. `text` begins with `#!` unless it is to
/// be run by whatever runs files without.
///
/// # Panics
/// If it cannot be written.
#[track_caller]
pub fn script(path: &Path, text: &str) {
    let written = write(path, text);
    assert!(written.is_ok(), "{}: {written:?}", path.display());
}

/// The same for a caller that reports errors.
///
/// # Errors
/// If it cannot be written.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    let write = r#"printf %s "$2" >"$1" && chmod 755 "$1""#;
    let status = Command::new("/bin/sh").args(["-c", write, "sh"]).arg(path).arg(text).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("the shell: {status}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// Would catch: a script that is written by the process itself, which fails each time.
    #[test]
    fn scripts_can_be_run_at_once_while_others_start_programs() {
        let dir = tempfile::tempdir().unwrap();
        thread::scope(|scope| {
            for worker in 0..8 {
                let dir = dir.path();
                scope.spawn(move || {
                    for i in 0..50 {
                        let path = dir.join(format!("{worker}-{i}"));
                        script(&path, "#!/bin/sh\nexit 7\n");
                        let status = Command::new(&path).status().unwrap();
                        assert_eq!(status.code(), Some(7));
                    }
                });
            }
        });
    }
}

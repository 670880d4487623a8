//! Names of output files, and whether they can be written.
//!
//! Invariant: a file that cannot be opened for writing is found before the program starts, not after
//! it has run for a day.

use crate::{End, tell_lines};
use anyhow::Context;
use evenly_model::{Pid, Printable, filled};
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Replaces `%h`, `%p` and `%r` in an output name by host, process id and MPI rank, so that the
/// ranks of one job do not overwrite each other's files.
pub(crate) fn expand(path: &Path, pid: Pid) -> PathBuf {
    // Letters that stand for nothing are refused where names are checked.
    let name = path.to_str().and_then(|text| filled(text, &mut |c| value(c, pid)).ok());
    name.map_or_else(|| path.to_owned(), PathBuf::from)
}

/// What a letter stands for.
fn value(letter: char, pid: Pid) -> Option<String> {
    let host = || {
        fs::read_to_string("/proc/sys/kernel/hostname")
            .map_or_else(|_| String::from("host"), |h| h.trim().to_owned())
    };
    let rank = || {
        ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"]
            .iter()
            .find_map(|v| std::env::var(v).ok())
            .unwrap_or_else(|| String::from("0"))
    };
    match letter {
        'h' => Some(host()),
        'p' => Some(pid.to_string()),
        'r' => Some(rank()),
        _ => None,
    }
}

/// A letter behind `%` in a name that [`expand`] does not know.
fn unknown_letter(path: &Path) -> Option<String> {
    filled(path.to_str()?, &mut |c| value(c, Pid(0))).err()
}

/// As [`expand`], for commands that do not start a program: `%p` is evenly's own process id.
pub(crate) fn of_this_process(path: &Path) -> PathBuf {
    expand(path, Pid(std::process::id().cast_signed()))
}

/// Whether this name stands for standard output. A file of that name is `./-`.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// For `run` and `attach`, where standard output is the program's (promise P9).
///
/// # Errors
/// Where the name stands for standard output.
pub(crate) fn not_stdout(option: &str, path: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        !is_stdout(path),
        "{option} -: standard output belongs to the program; give the name of a file"
    );
    Ok(())
}

/// Standard output, for text.
pub(crate) fn stdout() -> Printable<io::StdoutLock<'static>> {
    Printable::text(io::stdout().lock())
}

/// Opens a file, or standard output, for text.
///
/// # Errors
/// What the system says, with the name.
pub(crate) fn create(path: &Path) -> anyhow::Result<Box<dyn Write>> {
    if is_stdout(path) {
        return Ok(Box::new(stdout()));
    }
    create_binary(path)
}

/// Opens a file, or standard output, for what is no text.
///
/// # Errors
/// What the system says, with the name.
pub(crate) fn create_binary(path: &Path) -> anyhow::Result<Box<dyn Write>> {
    if is_stdout(path) {
        return Ok(Box::new(io::stdout().lock()));
    }
    let file = File::create(path).with_context(|| cannot_write(path))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// Writes text to a file, or to standard output.
///
/// # Errors
/// What the system says, with the name.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    write_to(path, create(path)?, bytes)
}

/// A reader of standard output that has gone away is no failure.
fn write_to(path: &Path, mut out: impl Write, bytes: &[u8]) -> anyhow::Result<()> {
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if is_stdout(path) && e.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.with_context(|| cannot_write(path)),
    }
}

/// Writes what `--json` asks for.
///
/// # Errors
/// As [`write()`].
pub(crate) fn write_json(path: &Path, json: &Value) -> anyhow::Result<()> {
    let out = Printable::json(create_binary(path)?);
    write_to(path, out, format!("{json:#}\n").as_bytes())
}

/// The end of a command: its words to standard output, and what `--json` asks for. Where that goes to
/// standard output, the words make way to standard error.
///
/// # Errors
/// As [`write()`].
pub(crate) fn say(
    words: &str,
    json: Option<&Path>,
    value: impl FnOnce() -> Value,
) -> anyhow::Result<End> {
    if json.is_some_and(is_stdout) {
        tell_lines(words);
    } else {
        write(Path::new("-"), words.as_bytes())?;
    }
    if let Some(path) = json {
        write_json(path, &value())?;
    }
    Ok(End::Status(0))
}

pub(crate) fn cannot_write(path: &Path) -> String {
    if is_stdout(path) {
        return String::from("cannot write to standard output");
    }
    format!("cannot write {}", path.display())
}

/// Whether the file of this option can be written. What exists keeps its content, and nothing new
/// is left behind.
///
/// # Errors
/// What stands in the way, with option and file.
pub(crate) fn check(option: &str, path: &Path) -> anyhow::Result<()> {
    if is_stdout(path) {
        return Ok(());
    }
    if let Some(letter) = unknown_letter(path) {
        anyhow::bail!(
            "{option} {}: {letter} stands for nothing in the name of a file; there are %h (host), %p \
             (process id), %r (MPI rank) and %% (a %)",
            path.display()
        );
    }
    // The program's id is not known yet; any other serves as well for a try.
    let path = of_this_process(path);
    let tried = match fs::metadata(&path) {
        Ok(found) if found.is_dir() => {
            anyhow::bail!("{option} {}: that is a directory; give a file", path.display())
        }
        // Opening a pipe would wait for a reader, and the program with it: there must be one.
        Ok(found) if found.file_type().is_fifo() => {
            let tried =
                OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path).map(drop);
            return tried.with_context(|| {
                format!(
                    "{option} {}: this pipe has no reader; start its reader first",
                    path.display()
                )
            });
        }
        Ok(found) if !found.is_file() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(&path).map(drop),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(_) => fs::remove_file(&path),
                Err(e) => Err(e),
            }
        }
        Err(e) => Err(e),
    };
    tried.with_context(|| format!("{option} {}: cannot write this file", path.display()))
}

/// Whether both names stand for one file that exists.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (fs::metadata(a), fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.is_file() && (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_names() {
        let p = |t: &str| expand(Path::new(t), Pid(42)).display().to_string();
        assert_eq!(p("a.json"), "a.json");
        assert_eq!(p("a-%p.json"), "a-42.json");
        assert_eq!(p("100%%-%p%%"), "100%-42%");
        // Refused before it is used.
        assert_eq!(p("%p-%x"), "%p-%x");
        assert!(!p("%h").contains('%') && !p("%r").contains('%'));
    }

    #[test]
    fn letters_that_stand_for_nothing_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (name, letter) in [("%z", "%z"), ("a%", "%"), ("%p%%%x", "%x")] {
            let error = check("--json", &dir.path().join(name)).unwrap_err().to_string();
            assert!(error.contains(&format!("{letter} stands for nothing")), "{error}");
        }
        check("--json", &dir.path().join("%h-%p-%r-%%z")).unwrap();
    }

    #[test]
    fn trying_leaves_no_trace() {
        let dir = tempfile::tempdir().unwrap();
        let (new, old) = (dir.path().join("new-%p"), dir.path().join("old"));
        fs::write(&old, "kept").unwrap();
        check("--json", &new).unwrap();
        check("--json", &old).unwrap();
        check("--json", Path::new("/dev/full")).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "kept");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(check("--json", dir.path()).is_err());
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(check("--record", &pipe).is_err());
        fs::remove_file(&pipe).unwrap();
        assert!(check("--json", &dir.path().join("missing/x")).is_err());
        assert!(check("--json", &old.join("x")).is_err());
    }
}

//! What the policy goes by, while it is at work: a small file beside the journal that `evenly tune` writes
//! and the balancer reads whenever it has changed.
//!
//! A file and not a socket: a reader that only asks gets what holds now as well, no reader waits for an
//! answer, and the directory is one that no other user can write to ([`StateDir`]). It is replaced as a whole, so
//! it is never read half-written. It is named by process id and start time of the balancer, so that one that a
//! killed balancer left is never taken for that of another.
//!
//! Invariant: what the balancer goes by is always a set of values that are in range and in order; a file
//! that has others changes nothing, and is reported once.

use crate::foreign::open_file;
use crate::journal::{Process, StateDir};
use crate::proc::Proc;
use evenly_model::hpc::{Heuristic, Parameter, ParameterError, Parameters};
use evenly_model::{Nanos, Pid};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How its files end.
const EXTENSION: &str = "tune";
/// How often it is looked whether it has changed.
const LOOKS: Nanos = Nanos::from_millis(500);

/// Why something is not tuned.
#[derive(Debug, thiserror::Error)]
pub enum TuningError {
    /// Its file cannot be used.
    #[error("tuning {}: cannot {what}: {source}", path.display())]
    Io {
        /// The file of a balancer's parameters.
        path: PathBuf,
        /// What could not be done with it, as it follows "cannot" in the message.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A value that the parameter cannot have.
    #[error(transparent)]
    Parameter(#[from] ParameterError),
    /// The policy does not look at the parameter.
    #[error("{policy} does not look at {parameter}; it looks at {known}", known = names(policy))]
    Unused {
        /// The name of the policy that was to be tuned.
        policy: &'static str,
        /// The parameter that was to be set.
        parameter: Parameter,
    },
    /// What stands in it is not what evenly writes.
    #[error("tuning {}: {found}", path.display())]
    Content {
        /// The file of a balancer's parameters.
        path: PathBuf,
        /// What is wrong with its content, in words.
        found: String,
    },
}

fn names(policy: &str) -> String {
    let all: Vec<&str> = known(policy).map(Parameter::name).collect();
    all.join(", ")
}

/// What a policy looks at.
pub fn known(policy: &str) -> impl Iterator<Item = Parameter> {
    let heuristic = Heuristic::by_name(policy);
    Parameter::ALL.into_iter().filter(move |p| heuristic.is_some_and(|h| p.counts_for(h)))
}

/// Values that a policy looks at, added to those that there are.
///
/// # Errors
/// [`TuningError`]; nothing is changed then.
pub fn set(
    policy: &'static str,
    to: &mut Parameters,
    values: &[(Parameter, f64)],
) -> Result<(), TuningError> {
    for &(parameter, _) in values {
        if !known(policy).any(|p| p == parameter) {
            return Err(TuningError::Unused { policy, parameter });
        }
    }
    Ok(to.set_all(values)?)
}

/// The policy and what it goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct Tuned {
    /// The policy that is tuned.
    pub policy: Heuristic,
    /// What it goes by.
    pub parameters: Parameters,
}

/// The first line names the policy, each of the others a parameter and its value.
///
/// # Errors
/// What is wrong, in words.
pub fn parse_tuning(text: &[u8]) -> Result<Tuned, String> {
    let text = std::str::from_utf8(text).map_err(|_| String::from("it is no text"))?;
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let policy = first
        .strip_prefix("policy=")
        .and_then(|name| Heuristic::by_name(name.trim()))
        .ok_or("its first line must name the policy, as in policy=hpc-auto")?;
    let parameters = Parameters::from_text(rest).map_err(|e| e.to_string())?;
    Ok(Tuned { policy, parameters })
}

impl Tuned {
    fn text(&self) -> String {
        format!("policy={}\n{}", self.policy.name(), self.parameters.text())
    }
}

/// Where it is, in whichever place of the user; else where it would be.
fn file(dir: &StateDir, evenly: Process) -> PathBuf {
    let name = format!("{}-{}.{EXTENSION}", evenly.pid, evenly.start);
    let mut in_places = dir.places().into_iter().map(|place| place.join(&name));
    in_places.find(|path| path.exists()).unwrap_or_else(|| dir.path().join(&name))
}

/// Whose file it is, by its name.
fn owner(path: &Path) -> Option<Process> {
    let (pid, start) = path.file_stem()?.to_str()?.split_once('-')?;
    Some(Process { pid: Pid(pid.parse().ok()?), start: start.parse().ok()? })
}

fn replace(path: &Path, text: &str) -> Result<(), TuningError> {
    let failed = |what| move |source| TuningError::Io { path: path.to_owned(), what, source };
    let new = path.with_extension("new");
    fs::write(&new, text).map_err(failed("write it"))?;
    fs::rename(&new, path).map_err(failed("put it in place"))
}

/// The file of a balancer that is at work; it goes away with this value.
#[derive(Debug)]
pub struct Tuning {
    path: PathBuf,
    tuned: Tuned,
}

impl Tuning {
    /// Makes it, with what holds at first, and removes those of balancers that have ended.
    ///
    /// # Errors
    /// [`TuningError::Io`].
    pub fn create(dir: &StateDir, tuned: Tuned) -> Result<Self, TuningError> {
        let proc = Proc::default();
        let entries = fs::read_dir(dir.path()).into_iter().flatten().filter_map(Result::ok);
        for path in entries.map(|e| e.path()) {
            let is_tuning = path.extension().is_some_and(|x| x == EXTENSION);
            if is_tuning && owner(&path).is_some_and(|p| !p.is_alive(&proc)) {
                // One that cannot be removed does no harm.
                let _ = fs::remove_file(&path);
            }
        }
        let own = Process::own();
        let path = dir.path().join(format!("{}-{}.{EXTENSION}", own.pid, own.start));
        replace(&path, &tuned.text())?;
        Ok(Self { path, tuned })
    }

    /// What sees it change.
    #[must_use]
    pub fn reader(&self) -> TuningReader {
        let seen = stamp(&self.path);
        TuningReader { path: self.path.clone(), tuned: self.tuned.clone(), seen, next: Nanos::ZERO }
    }
}

impl Drop for Tuning {
    fn drop(&mut self) {
        // One that stays does no harm: its balancer has ended, and its name says which that was.
        let _ = fs::remove_file(&self.path);
    }
}

/// By which it is seen that a file has changed: each is a new one.
fn stamp(path: &Path) -> Option<(u64, i64, i64)> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.ino(), meta.mtime(), meta.mtime_nsec()))
}

/// Looks now and then whether what the policy goes by has changed.
#[derive(Debug)]
pub struct TuningReader {
    path: PathBuf,
    tuned: Tuned,
    seen: Option<(u64, i64, i64)>,
    next: Nanos,
}

impl TuningReader {
    /// What holds from now on, where that has changed, with a note about it; or why what the file
    /// says does not hold.
    pub fn look(&mut self, now: Nanos) -> Option<Result<(Parameters, String), String>> {
        if now < self.next {
            return None;
        }
        self.next = now + LOOKS;
        let stamp = stamp(&self.path);
        // One that is gone changes nothing.
        if stamp.is_none() || stamp == self.seen {
            return None;
        }
        self.seen = stamp;
        let read = content(&self.path).map_err(|e| e.to_string());
        let found = match read.and_then(|text| parse_tuning(&text)) {
            Ok(found) if found.policy == self.tuned.policy => found,
            Ok(found) => {
                let policy = found.policy.name();
                return Some(Err(self.refused(&format!("the policy cannot become {policy}"))));
            }
            Err(why) => return Some(Err(self.refused(&why))),
        };
        let changes = changes(&self.tuned.parameters, &found.parameters);
        self.tuned = found;
        (!changes.is_empty()).then(|| Ok((self.tuned.parameters.clone(), changes.join(", "))))
    }

    fn refused(&self, why: &str) -> String {
        format!("tuning {}: {why}; the values stay as they were", self.path.display())
    }
}

/// What differs, in words.
#[must_use]
pub fn changes(from: &Parameters, to: &Parameters) -> Vec<String> {
    from.changes(to).map(|(p, from, to)| format!("{p} {to} (was {from})")).collect()
}

/// What a balancer that is at work goes by; none where it has nothing that can be tuned.
///
/// # Errors
/// [`TuningError`] where its file is not what evenly writes.
pub fn read(dir: &StateDir, evenly: Process) -> Result<Option<Tuned>, TuningError> {
    let path = file(dir, evenly);
    match content(&path) {
        Ok(text) => {
            parse_tuning(&text).map(Some).map_err(|found| TuningError::Content { path, found })
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(TuningError::Io { path, what: "read it", source }),
    }
}

/// What the file of a balancer holds. Its directory can have been replaced since it was checked, where another
/// user owns the one above.
fn content(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    open_file(path, geteuid().as_raw())?.take(1 << 16).read_to_end(&mut text)?;
    Ok(text)
}

/// Changes what a balancer that is at work goes by, which it does as soon as it looks: before and after.
/// None where it has nothing that can be tuned.
///
/// # Errors
/// [`TuningError`]; nothing is changed then.
pub fn tune(
    dir: &StateDir,
    evenly: Process,
    values: &[(Parameter, f64)],
) -> Result<Option<(Tuned, Tuned)>, TuningError> {
    let path = file(dir, evenly);
    let failed = |what| {
        let path = path.clone();
        move |source| TuningError::Io { path, what, source }
    };
    // Of two at a time neither must undo what the other has done.
    let lock =
        File::open(path.parent().unwrap_or(dir.path())).map_err(failed("open its directory"))?;
    flock(&lock, FlockOperation::LockExclusive)
        .map_err(|e| failed("lock its directory")(e.into()))?;
    let Some(before) = read(dir, evenly)? else { return Ok(None) };
    let mut after = before.clone();
    set(before.policy.name(), &mut after.parameters, values)?;
    if after != before {
        replace(&path, &after.text())?;
    }
    Ok(Some((before, after)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto() -> Tuned {
        Tuned { policy: Heuristic::Auto, parameters: Parameters::default() }
    }

    /// The reader looks at once.
    fn now(reader: &TuningReader) -> Nanos {
        reader.next
    }

    #[test]
    fn what_is_tuned_is_seen_once() {
        let room = tempfile::tempdir().unwrap();
        let dir = StateDir::at(room.path()).unwrap();
        let tuning = Tuning::create(&dir, auto()).unwrap();
        let mut reader = tuning.reader();
        assert_eq!(reader.look(now(&reader)), None);
        let own = Process::own();
        let given = [(Parameter::MostRatio, 4.0), (Parameter::WeightStep, 10.0)];
        let (before, after) = tune(&dir, own, &given).unwrap().unwrap();
        assert_eq!(before, auto());
        assert_eq!(after.parameters.get(Parameter::MostRatio), 4.0);
        // Not before it is time.
        assert_eq!(reader.look(Nanos::ZERO), None);
        let (found, note) = reader.look(now(&reader)).unwrap().unwrap();
        assert_eq!(found, after.parameters);
        assert_eq!(note, "most-ratio 4 (was 8), weight-step 10 (was 15)");
        assert_eq!(reader.look(now(&reader)), None);
        assert_eq!(read(&dir, own).unwrap(), Some(after));
        // It goes with its balancer.
        drop(tuning);
        assert_eq!(reader.look(now(&reader)), None);
        assert!(read(&dir, own).unwrap().is_none() && tune(&dir, own, &given).unwrap().is_none());
        assert_eq!(fs::read_dir(room.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_fifo_in_its_place_does_not_block() {
        let room = tempfile::tempdir().unwrap();
        let dir = StateDir::at(room.path()).unwrap();
        let tuning = Tuning::create(&dir, auto()).unwrap();
        let mut reader = tuning.reader();
        fs::remove_file(&tuning.path).unwrap();
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mkfifoat(rustix::fs::CWD, &tuning.path, mode).unwrap();
        let why = reader.look(now(&reader)).unwrap().unwrap_err();
        assert!(why.contains("is a FIFO") && why.contains("stay as they were"), "{why}");
        assert!(read(&dir, Process::own()).unwrap_err().to_string().contains("is a FIFO"));
    }

    #[test]
    fn what_cannot_be_changes_nothing() {
        let room = tempfile::tempdir().unwrap();
        let dir = StateDir::at(room.path()).unwrap();
        let tuning = Tuning::create(&dir, auto()).unwrap();
        let mut reader = tuning.reader();
        let own = Process::own();
        let e = tune(&dir, own, &[(Parameter::MostRatio, 0.5)]).unwrap_err().to_string();
        assert!(e.contains("most-ratio cannot be 0.5: it must be a number from 1 to 1000"), "{e}");
        let e = tune(&dir, own, &[(Parameter::HighUtil, 90.0)]).unwrap_err().to_string();
        assert!(e.starts_with("hpc-auto does not look at high-util; it looks at patience"), "{e}");
        assert_eq!(reader.look(now(&reader)), None);
        // Another program has written into it.
        for (text, words) in [
            ("policy=hpc-auto\nmost-ratio=0\n", "most-ratio cannot be 0"),
            ("policy=hpc-uniform\n", "cannot become hpc-uniform"),
            ("", "policy=hpc-auto"),
        ] {
            replace(&tuning.path, text).unwrap();
            let why = reader.look(now(&reader)).unwrap().unwrap_err();
            assert!(why.contains(words) && why.contains("stay as they were"), "{why}");
            assert_eq!(reader.look(now(&reader)), None);
        }
        assert!(read(&dir, own).is_err());
    }

    #[test]
    fn what_killed_balancers_left_is_removed() {
        let room = tempfile::tempdir().unwrap();
        let dir = StateDir::at(room.path()).unwrap();
        let own = Process::own();
        let left = file(&dir, Process { start: own.start + 1, ..own });
        fs::write(&left, auto().text()).unwrap();
        let tuning = Tuning::create(&dir, auto()).unwrap();
        assert!(!left.exists() && tuning.path.exists());
    }
}

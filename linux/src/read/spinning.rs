//! How long threads spin, and where: samples of them ([`Samples`]) in loops that are known to wait ([`evenly_spins`]).
//!
//! Invariants: what is not known to be a wait counts as work, so a thread may spin for longer than is said here, not for less.
//! Of their code only the functions are gone through in which they were seen.

use crate::callers::{Callers, words};
use crate::counters::CountersError;
use crate::functions::InFile;
use crate::modules::{Code, open, parse_code, read};
use crate::proc::{Proc, read_all};
use crate::samples::{Sample, Samples};
use evenly_evidence::{SpinUse, ThreadUse};
use evenly_model::{Nanos, Pid, ThreadId, Tid};
use evenly_spins::{Seen, Spin, place};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// Fewer samples of a thread say nothing.
const ENOUGH: u64 = 20;
/// Threads that spin for less than this part of their CPU time do not wait in loops of their own.
const SPINS: f64 = 0.05;
/// Samples of a thread err by about this part of its CPU time.
const ERR: f64 = 0.1;
/// Loops whose names are looked up: to do so, all that the file says of its source may have to be read.
const LOOKED_UP: usize = 8;
/// Loops that are reported.
const NAMED: usize = 3;
/// So many files are held open.
const FILES: usize = 64;

/// Notes where threads are, again and again.
pub struct Spinning {
    samples: Samples,
    code: HashMap<Pid, Vec<Code>>,
    files: Vec<Known>,
    threads: HashMap<ThreadId, Noted>,
    with_callers: bool,
}

/// A file in which threads were.
struct Known {
    inode: u64,
    path: PathBuf,
    functions: InFile,
}

/// Places of a file at which threads were seen.
pub struct Elsewhere<'a> {
    /// The file's inode.
    pub inode: u64,
    /// Its path, as the process sees it.
    pub path: &'a PathBuf,
    /// Its functions.
    pub functions: &'a InFile,
    /// Where in it.
    pub places: Vec<u64>,
}

/// How often a thread was seen, and where in which file.
#[derive(Debug, Default)]
struct Noted {
    all: u64,
    at: HashMap<(usize, u64), u64>,
    callers: Callers,
}

/// The number of a file, and where in it a loop is.
type Loop = (usize, u64);

/// In which loops threads were seen.
#[derive(Debug, Default)]
pub struct Places {
    /// How often each thread was seen anywhere.
    threads: HashMap<ThreadId, u64>,
    loops: HashMap<Loop, HashMap<ThreadId, u64>>,
}

impl Spinning {
    /// For threads from now on.
    ///
    /// # Errors
    /// [`CountersError`] where the machine does not permit it.
    pub fn new() -> Result<Self, CountersError> {
        Ok(Self {
            samples: Samples::new()?,
            code: HashMap::new(),
            files: Vec::new(),
            threads: HashMap::new(),
            with_callers: false,
        })
    }

    /// Whether it is also noted, from now on, what has called the functions in which threads are.
    pub fn look_for_callers(&mut self, with_callers: bool) {
        self.with_callers = with_callers;
    }

    /// Notes where a thread of a process was since the last look.
    pub fn look(&mut self, proc: &Proc, pid: Pid, id: ThreadId) {
        let mut taken = Vec::new();
        self.samples.take(id, |sample| taken.push(sample));
        let Some(last) = taken.last().copied() else { return };
        // A program loads libraries as it runs, and JITs have code of their own.
        let code = self.code.entry(pid).or_default();
        if taken.iter().any(|sample| located(code, sample.at).is_none()) {
            *code =
                read_all(&proc.process_file(pid, "maps")).map_or(Vec::new(), |m| parse_code(&m));
        }
        let seen = self.threads.entry(id).or_default();
        for Sample { at, .. } in taken {
            let place = located(code, at);
            // Where evenly's own library has a thread wait is no place of the program.
            if place.is_some_and(|(code, _)| code.hands_over()) {
                continue;
            }
            seen.all += 1;
            let file =
                place.and_then(|(code, at)| Some((file_of(&mut self.files, proc, pid, code)?, at)));
            if let Some(place) = file {
                *seen.at.entry(place).or_default() += 1;
            }
        }
        let Some(stack) = last.stack.filter(|_| self.with_callers) else { return };
        let located = |at| located(code, at).filter(|(code, _)| !code.is_of_system());
        let on_stack = words(proc, pid, stack).into_iter().filter_map(located);
        let files = &mut self.files;
        seen.callers
            .add(on_stack.filter_map(|(code, at)| Some((file_of(files, proc, pid, code)?, at))));
    }

    /// Notes where threads of processes were since the last look, and forgets all others.
    pub fn look_at(&mut self, proc: &Proc, processes: &[Pid], is_meant: impl Fn(Tid) -> bool) {
        let mut all = HashSet::new();
        for &pid in processes {
            for tid in proc.threads(pid).into_iter().filter(|&tid| is_meant(tid)) {
                // It is forgotten long before its number is used again.
                let id = ThreadId { tid, start: 0 };
                self.look(proc, pid, id);
                all.insert(id);
            }
        }
        self.keep(processes, |id| all.contains(id));
    }

    /// Where threads wait in the functions of a file in which they were seen.
    #[must_use]
    pub fn spins_in(&self, inode: u64, path: &Path) -> Vec<Spin> {
        let known = self.files.iter().find(|known| known.inode == inode && known.path == path);
        known.map_or_else(Vec::new, |known| known.functions.spins())
    }

    /// In how many files threads were.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Forgets processes and threads that have ended, but for what is known of them.
    pub fn keep(&mut self, processes: &[Pid], is_there: impl Fn(&ThreadId) -> bool) {
        self.samples.keep(is_there);
        self.code.retain(|pid, _| processes.contains(pid));
    }

    /// Looks through the code in which threads were.
    #[must_use]
    pub fn places(&self) -> Places {
        let mut places = Places::default();
        for (&id, seen) in &self.threads {
            places.threads.insert(id, seen.all);
            for (&(file, offset), &times) in &seen.at {
                if let Some(spin) = self.files[file].functions.spin_at(offset) {
                    let there = places.loops.entry((file, spin)).or_default();
                    *there.entry(id).or_default() += times;
                }
            }
        }
        places
    }

    /// The same of what was noted since this was called last, which is forgotten.
    pub fn taken(&mut self) -> Places {
        let places = self.places();
        self.threads.clear();
        places
    }

    /// Where in which files threads were seen, elsewhere than in loops that wait; and calls of functions in which they were.
    pub fn elsewhere(&self) -> Vec<Elsewhere<'_>> {
        let mut all: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for &(file, offset) in self.threads.values().flat_map(|seen| seen.at.keys()) {
            if self.files[file].functions.spin_at(offset).is_none() {
                all.entry(file).or_default().push(offset);
            }
        }
        for (file, offset) in self.threads.values().flat_map(|seen| seen.callers.often()) {
            if let Some(call) = self.files[file].functions.call_before(offset) {
                all.entry(file).or_default().push(call);
            }
        }
        let of = |(file, places): (usize, Vec<u64>)| {
            let Known { inode, path, functions } = &self.files[file];
            Elsewhere { inode: *inode, path, functions, places }
        };
        all.into_iter().map(of).collect()
    }

    /// Says of threads for how long they spun, where some did, and returns in which loops.
    pub fn tell(&self, threads: &mut HashMap<ThreadId, ThreadUse>) -> Vec<SpinUse> {
        let places = self.places();
        let parts: Vec<(ThreadId, f64)> =
            threads.keys().filter_map(|&id| Some((id, places.part(id)?))).collect();
        if !parts.iter().any(|(_, part)| *part >= SPINS) {
            return Vec::new();
        }
        // What is known of one is known of all: the others work.
        for (id, part) in parts {
            let Some(t) = threads.get_mut(&id) else { continue };
            // The same loops may have been reported as waiting.
            let (seen, err) = (part * t.stay.ran_s, ERR * t.stay.ran_s);
            if t.stay.spun_s.is_none_or(|reported| reported + err < seen) {
                (t.stay.spun_s, t.sampled) = (Some(seen), true);
            }
        }
        self.uses(&places, LOOKED_UP, |id| threads.get(&id).map_or(0.0, |t| t.stay.ran_s))
    }

    /// The loops, those first in which most CPU time went, and no more than `most`: to look up their names takes time. `ran_s`
    /// is the CPU time of a thread, in seconds.
    #[must_use]
    pub fn uses(
        &self,
        places: &Places,
        most: usize,
        ran_s: impl Fn(ThreadId) -> f64,
    ) -> Vec<SpinUse> {
        places.uses(most, ran_s, |&(file, offset)| {
            let Known { path, functions, .. } = &self.files[file];
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let bytes = functions.file().and_then(read).unwrap_or_default();
            place(&bytes, offset, &name).unwrap_or_else(|| name.into_owned())
        })
    }
}

/// The number of the file of a mapping; None where there are too many.
fn file_of(files: &mut Vec<Known>, proc: &Proc, pid: Pid, code: &Code) -> Option<usize> {
    let is_it = |known: &Known| known.inode == code.inode && known.path == code.path;
    let known = files.iter().position(is_it);
    known.or_else(|| {
        let (inode, path) = (code.inode, code.path.clone());
        (files.len() < FILES).then(|| {
            let functions = InFile::new(open(proc, pid, code));
            files.push(Known { inode, path, functions });
            files.len() - 1
        })
    })
}

/// The mapping that an address is in, and where in its file.
fn located(code: &[Code], at: u64) -> Option<(&Code, u64)> {
    code.iter().find_map(|c| Some((c, c.in_file(at)?)))
}

impl Places {
    /// The part of its CPU time in which a thread spun; None where too little is known.
    #[must_use]
    pub fn part(&self, id: ThreadId) -> Option<f64> {
        let all = *self.threads.get(&id).filter(|&&all| all >= ENOUGH)?;
        let waiting: u64 = self.loops.values().filter_map(|there| there.get(&id)).sum();
        Some(waiting as f64 / all as f64)
    }

    /// How often a thread was seen anywhere.
    #[must_use]
    pub fn times(&self, id: ThreadId) -> u64 {
        self.threads.get(&id).copied().unwrap_or(0)
    }

    /// How often threads were seen, all together; not in which time.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let waiting = self.loops.values().flat_map(HashMap::values).sum();
        Seen { all: self.threads.values().sum(), waiting, time: Nanos::ZERO }
    }

    /// Adds what was seen at another time.
    pub fn add(&mut self, other: Self) {
        for (id, times) in other.threads {
            *self.threads.entry(id).or_default() += times;
        }
        for (at, there) in other.loops {
            for (id, times) in there {
                *self.loops.entry(at).or_default().entry(id).or_default() += times;
            }
        }
    }

    /// Loops of one name are one: a compiler makes several of what is one in the source.
    fn uses(
        &self,
        most: usize,
        ran_s: impl Fn(ThreadId) -> f64,
        name: impl Fn(&Loop) -> String,
    ) -> Vec<SpinUse> {
        let in_loop = |there: &HashMap<ThreadId, u64>| -> BTreeMap<ThreadId, f64> {
            let part = |(&id, &n): (&ThreadId, &u64)| {
                let all = *self.threads.get(&id).filter(|&&all| all >= ENOUGH)?;
                Some((id, ran_s(id) * n as f64 / all as f64))
            };
            there.iter().filter_map(part).collect()
        };
        let mut loops: Vec<_> = self.loops.iter().map(|(at, there)| (at, in_loop(there))).collect();
        let total = |there: &BTreeMap<ThreadId, f64>| there.values().sum::<f64>();
        loops.sort_by(|a, b| total(&b.1).total_cmp(&total(&a.1)).then(a.0.cmp(b.0)));
        let mut places: BTreeMap<String, BTreeMap<ThreadId, f64>> = BTreeMap::new();
        for (at, there) in loops.iter().filter(|(_, there)| total(there) > 0.0).take(most) {
            let place = places.entry(name(at)).or_default();
            for (&id, cpu_s) in there {
                *place.entry(id).or_default() += cpu_s;
            }
        }
        let mut uses: Vec<SpinUse> = places
            .into_iter()
            .map(|(place, there)| {
                let (cpu_s, all_s) =
                    (total(&there), there.keys().map(|&id| ran_s(id)).sum::<f64>());
                let threads = there.keys().map(|id| id.tid.0).collect();
                SpinUse { place, threads, cpu_s, share: cpu_s / all_s }
            })
            .collect();
        uses.sort_by(|a, b| b.cpu_s.total_cmp(&a.cpu_s));
        uses.truncate(NAMED);
        uses
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const A: ThreadId = ThreadId { tid: Tid(7), start: 1 };
    const B: ThreadId = ThreadId { tid: Tid(5), start: 1 };

    fn seen(places: &mut Places, id: ThreadId, times: u64, wait: Option<u64>) {
        *places.threads.entry(id).or_default() += times;
        if let Some(at) = wait {
            *places.loops.entry((0, at)).or_default().entry(id).or_default() += times;
        }
    }

    #[test]
    fn time_goes_by_what_part_of_the_samples_was_there() {
        let mut places = Places::default();
        seen(&mut places, A, 30, None);
        seen(&mut places, A, 70, Some(16));
        seen(&mut places, B, 25, Some(16));
        seen(&mut places, B, 75, Some(64));
        assert_eq!((places.part(A), places.part(B)), (Some(0.7), Some(1.0)));
        let uses =
            places.uses(8, |id| if id == A { 10.0 } else { 2.0 }, |(_, at)| format!("f{at}"));
        let said = |u: &SpinUse| (u.place.clone(), u.threads.clone(), u.cpu_s, u.share);
        assert_eq!(said(&uses[0]), (String::from("f16"), vec![5, 7], 7.5, 7.5 / 12.0));
        assert_eq!(said(&uses[1]), (String::from("f64"), vec![5], 1.5, 0.75));
    }

    /// Would catch: one line of the source that is named twice, each time with half of its time.
    #[test]
    fn loops_of_one_name_are_one() {
        let mut places = Places::default();
        for at in 0..4 {
            seen(&mut places, A, 10, Some(at));
            seen(&mut places, B, 10, Some(at));
        }
        let uses = places.uses(8, |_| 1.0, |(_, at)| String::from(if *at < 3 { "f" } else { "g" }));
        let said: Vec<_> = uses.iter().map(|u| (u.place.as_str(), u.share)).collect();
        assert_eq!(said, [("f", 0.75), ("g", 0.25)]);
        assert_eq!(uses[0].threads, [5, 7]);
    }
}

//! Mappers that are programs of others: SCOTCH and METIS, which many systems have as packages, and KaHIP,
//! which is a module of Python.
//!
//! They are called with files in a directory of their own, which is gone afterwards; nothing of them
//! is linked, so that evenly is built and runs without them, and what goes wrong in them ends them
//! and not evenly.
//!
//! Invariants: what a program answers is believed only where it names a core for every task. A task
//! that is not movable stays where it is, whatever is answered. No program is waited for longer than
//! [`Options::program_limit`].

use crate::error::quoted;
use evenly_cluster::{Cluster, CoreIndex};
use evenly_model::{TaskGraph, TaskIndex};
use evenly_nuco::map::Options;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Most cores that SCOTCH is given: it wants the distance of each pair.
const MOST_CORES: usize = 4_096;
/// What all loads, and all messages, are together once they are whole numbers: far below 2^31, with
/// room for each to be 1 at least.
const WHOLE: f64 = 1e9;
/// What distance 1 is for SCOTCH, as a whole number, and what no distance is above: it multiplies messages
/// by distances.
const DISTANCE: f64 = 100.0;
const FARTHEST: f64 = 1_000.0;

/// How long to wait before a program is looked at again.
const SHORTEST_WAIT: Duration = Duration::from_micros(500);
const LONGEST_WAIT: Duration = Duration::from_millis(20);

/// What a program maps.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The tasks and their communication.
    pub graph: &'a TaskGraph,
    /// The machine that tasks are mapped onto.
    pub cluster: &'a Cluster,
    /// Where each task is now.
    pub present: &'a [CoreIndex],
    /// What the user can choose.
    pub options: &'a Options,
}

/// A program that maps.
#[derive(Clone, Copy)]
pub struct Program {
    /// Its name on the command line of evenly.
    pub name: &'static str,
    /// One line for the help.
    pub about: &'static str,
    /// The executable that is called.
    pub executable: &'static str,
    /// The package that has it.
    pub package: Package,
    run: fn(&Called<'_>, &Job<'_>) -> Result<Vec<CoreIndex>, ProgramError>,
}

/// Where a program is to be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Package {
    /// A package of the system, as Debian, Ubuntu and Fedora call it.
    System(&'static str),
    /// A module of Python, which has its name in the Python Package Index, too.
    Python(&'static str),
}

impl Package {
    /// The name of the program, as flags have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::System(name) | Self::Python(name) => name,
        }
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

/// All programs of others that can map tasks.
pub static PROGRAMS: [Program; 3] = [
    Program {
        name: "scotch",
        about: "SCOTCH's static mapping onto the machine's distances (its program scotch_gmap)",
        executable: "scotch_gmap",
        package: Package::System("scotch"),
        run: scotch,
    },
    Program {
        name: "metis",
        about: "METIS' k-way partition, a part for each core, blind to distances (its program gpmetis)",
        executable: "gpmetis",
        package: Package::System("metis"),
        run: metis,
    },
    Program {
        name: "kahip",
        about: "KaHIP's partition, a part for each core, blind to distances (its module of Python)",
        executable: "python3",
        package: Package::Python("kahip"),
        run: kahip,
    },
];

/// Why a program gave no mapping.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not there.
    #[error("{name}: {}, or choose another algorithm", missing(executable, *package, true))]
    Missing {
        /// What was asked for.
        name: &'static str,
        /// The executable that is not there.
        executable: &'static str,
        /// Which package has it.
        package: Package,
    },
    /// It was called and gave nothing.
    #[error("{executable}: {what}")]
    Failed {
        /// The executable that was called.
        executable: &'static str,
        /// What happened when it was called.
        what: String,
    },
    /// It cannot map this.
    #[error("{name}: {what}")]
    Unfit {
        /// What was asked for.
        name: &'static str,
        /// Why, and what is possible.
        what: String,
    },
}

/// That a program is not there, and what would mend it: as an advice, or in brackets.
fn missing(executable: &str, package: Package, advice: bool) -> String {
    match (package, advice) {
        (Package::System(name), true) => format!(
            "its program {executable} is not in PATH; install the package {name} (apt-get install \
             {name})"
        ),
        (Package::System(name), false) => format!("{executable} is not in PATH (package {name})"),
        (Package::Python(name), true) => format!(
            "no {executable} in PATH has the module {name}; install it (pip install {name}, in a \
             virtual environment of which the directory bin is in PATH)"
        ),
        (Package::Python(name), false) => {
            format!("no {executable} in PATH has the module {name} (pip install {name})")
        }
    }
}

impl Program {
    /// Where it is, in a list of directories such as PATH. A module of Python has to be known to the
    /// first interpreter there, which is asked.
    #[must_use]
    pub fn find(&self, path: &OsStr) -> Option<PathBuf> {
        let file = std::env::split_paths(path)
            .filter(|dir| dir.is_absolute())
            .map(|dir| dir.join(self.executable))
            .find(|file| is_executable(file))?;
        match self.package {
            Package::System(_) => Some(file),
            Package::Python(module) => has_module(&file, module).then_some(file),
        }
    }

    /// What failed, where it fails: Python is not to blame for its modules.
    const fn called(&self) -> &'static str {
        match self.package {
            Package::System(_) => self.executable,
            Package::Python(module) => module,
        }
    }

    /// That it is not there, with the package that has it, in a few words.
    #[must_use]
    pub fn missing(&self) -> String {
        missing(self.executable, self.package, false)
    }

    /// Calls it, as found in a list of directories such as PATH.
    ///
    /// # Errors
    /// Where it is not there, fails, or answers with no mapping.
    pub fn map(&self, path: &OsStr, job: &Job<'_>) -> Result<Vec<CoreIndex>, ProgramError> {
        let Self { name, executable, package, .. } = *self;
        let file = self.find(path).ok_or(ProgramError::Missing { name, executable, package })?;
        if job.cluster.cores().len() == 1 {
            return Ok(vec![0; job.graph.len()]);
        }
        let failed = |what: String| ProgramError::Failed { executable: self.called(), what };
        let dir = tempfile::Builder::new().prefix("evenly-map-").tempdir();
        let dir = dir.map_err(|e| failed(format!("no directory for its files: {e}")))?;
        let limit = job.options.program_limit.into();
        let called = Called { program: *self, file: &file, dir: dir.path(), limit };
        let mut mapping = (self.run)(&called, job)?;
        for (t, to) in mapping.iter_mut().enumerate() {
            if !job.graph.tasks()[t].movable {
                *to = job.present[t];
            }
        }
        Ok(mapping)
    }
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Whether an interpreter of Python knows a module. Not asked where files lie that could be taken for it.
fn has_module(python: &Path, module: &str) -> bool {
    let mut c = Command::new(python);
    c.args(["-c", &format!("import {module}")]).current_dir("/");
    c.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    c.status().is_ok_and(|status| status.success())
}

/// A program that was found, and a directory for its files.
struct Called<'a> {
    program: Program,
    file: &'a Path,
    dir: &'a Path,
    /// How long it may take.
    limit: Duration,
}

impl Called<'_> {
    fn failed(&self, what: impl Into<String>) -> ProgramError {
        ProgramError::Failed { executable: self.program.called(), what: what.into() }
    }

    fn unfit(&self, what: impl Into<String>) -> ProgramError {
        ProgramError::Unfit { name: self.program.name, what: what.into() }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), ProgramError> {
        let result = fs::write(self.dir.join(name), text);
        result.map_err(|e| self.failed(format!("cannot write {name} for it: {e}")))
    }

    fn run(&self, arguments: &[String]) -> Result<(), ProgramError> {
        // What it prints goes into files, so that it never waits for a reader.
        let outputs = ["stderr", "stdout"].map(|name| self.dir.join(name));
        let [stderr, stdout] = outputs.each_ref().map(|file| {
            File::create(file).map_err(|e| self.failed(format!("no file for what it says: {e}")))
        });
        let mut child = Command::new(self.file)
            .args(arguments)
            .current_dir(self.dir)
            .stdin(Stdio::null())
            .stdout(stdout?)
            .stderr(stderr?)
            .spawn()
            .map_err(|e: io::Error| self.failed(format!("cannot be started: {e}")))?;
        let status = self.end_of(&mut child)?;
        if status.success() {
            return Ok(());
        }
        let words = outputs.map(|file| {
            fs::read(file).map_or_else(|_| String::new(), |o| String::from_utf8_lossy(&o).into())
        });
        let line = words.iter().find_map(|words| {
            let mut lines = words.lines().filter(|l| !l.trim().is_empty());
            match self.program.package {
                Package::System(_) => lines.next(),
                // What went wrong stands behind where it did.
                Package::Python(_) => lines.next_back(),
            }
        });
        let said = line.map_or_else(String::new, |l| format!(", having said {}", quoted(l.trim())));
        Err(self.failed(format!("it ended with {status}{said}")))
    }

    /// Waits until it has ended, or ends it when its time is up: SCOTCH never ends with some input.
    fn end_of(&self, child: &mut Child) -> Result<ExitStatus, ProgramError> {
        let began = Instant::now();
        loop {
            let ended = child.try_wait();
            match ended.map_err(|e| self.failed(format!("cannot be waited for: {e}")))? {
                Some(status) => return Ok(status),
                None if began.elapsed() >= self.limit => break,
                // Little beside what it took until now.
                None => sleep((began.elapsed() / 32).clamp(SHORTEST_WAIT, LONGEST_WAIT)),
            }
        }
        // It may have ended just now.
        let _ = child.kill();
        let _ = child.wait();
        let limit = self.limit.as_secs_f64();
        Err(self.failed(format!(
            "it was ended, as it had not answered after {limit} s; give it more (--program-limit), or choose \
             another algorithm"
        )))
    }

    /// What it wrote, read by `read`.
    fn answer(
        &self,
        name: &str,
        job: &Job<'_>,
        read: fn(&str, usize, usize) -> Result<Vec<usize>, String>,
    ) -> Result<Vec<usize>, ProgramError> {
        let text = fs::read_to_string(self.dir.join(name))
            .map_err(|e| self.failed(format!("it wrote no {name}: {e}")))?;
        let (tasks, cores) = (job.graph.len(), job.cluster.cores().len());
        read(&text, tasks, cores).map_err(|what| self.failed(what))
    }
}

/// A mapping of so many tasks onto so many cores, as SCOTCH writes it: how many, and then pairs of a
/// task and its core.
///
/// # Errors
/// In words, where it is none.
pub fn read_pairs(text: &str, tasks: usize, cores: usize) -> Result<Vec<usize>, String> {
    let numbers = numbers(text)?;
    let mut answer = vec![None; tasks];
    for pair in numbers.get(1..).unwrap_or_default().chunks_exact(2) {
        if let Some(a) = answer.get_mut(pair[0]) {
            *a = Some(pair[1]);
        }
    }
    checked(answer.into_iter(), tasks, cores)
}

/// Parts of so many tasks, one for each of so many cores, as METIS writes them: for each task its part.
///
/// # Errors
/// In words, where they are none.
pub fn read_parts(text: &str, tasks: usize, cores: usize) -> Result<Vec<usize>, String> {
    checked(numbers(text)?.into_iter().map(Some), tasks, cores)
}

fn numbers(text: &str) -> Result<Vec<usize>, String> {
    let number = |word: &str| {
        word.parse().map_err(|_| format!("it wrote {}; a number is needed", quoted(word)))
    };
    text.split_ascii_whitespace().map(number).collect()
}

/// One of the cores for each task.
fn checked(
    answer: impl Iterator<Item = Option<usize>>,
    tasks: usize,
    cores: usize,
) -> Result<Vec<usize>, String> {
    let answer: Option<Vec<usize>> = answer.map(|c| c.filter(|&c| c < cores)).collect();
    answer.filter(|a| a.len() == tasks).ok_or_else(|| {
        format!("it answered with something other than {tasks} tasks on {cores} cores")
    })
}

/// Amounts as whole numbers, which is what both programs want, so that all together are a given
/// one, [`WHOLE`] mostly; none is less than 1.
struct Whole(f64);

impl Whole {
    fn new(sum: f64, whole: f64) -> Self {
        Self(if sum.is_finite() && sum > 0.0 { whole / sum } else { 0.0 })
    }

    fn of(&self, amount: f64) -> u64 {
        ((amount * self.0).round() as u64).max(1)
    }
}

/// The graph as both formats have it: below `head`, a line for each task with its load, then what
/// `link` makes of each of its links.
fn graph(
    job: &Job<'_>,
    head: &str,
    all_messages: f64,
    line: impl Fn(&mut String, u64, usize),
    link: impl Fn(&mut String, TaskIndex, u64),
) -> String {
    let loads = Whole::new(job.graph.load_s(), WHOLE);
    let messages = Whole::new(job.graph.messages(), all_messages);
    let mut text = format!("{head}\n");
    for (t, task) in job.graph.tasks().iter().enumerate() {
        let links = job.graph.links(t);
        line(&mut text, loads.of(task.load_s), links.len());
        for l in links {
            link(&mut text, l.with, messages.of(l.received + l.sent));
        }
        text.push('\n');
    }
    text
}

/// `scotch_gmap GRAPH MACHINE MAPPING`, with the load of tasks, the messages between them, and the
/// distances of cores ([`Cluster::cost`], in hundredths, or less where some are far). Deterministic; at most
/// [`Options::tolerance`] above the mean, where it can.
fn scotch(called: &Called<'_>, job: &Job<'_>) -> Result<Vec<CoreIndex>, ProgramError> {
    let Job { graph: tasks, cluster, present, options } = *job;
    let cores = cluster.cores().len();
    if cores > MOST_CORES {
        return Err(called
            .unfit(format!("the machine has {cores} cores; it maps onto {MOST_CORES} at most")));
    }
    let head = format!("0\n{} {}\n0 011", tasks.len(), 2 * tasks.pairs());
    let line = |text: &mut String, load: u64, links: usize| {
        let _ = write!(text, "{load} {links}");
    };
    let link = |text: &mut String, with: TaskIndex, messages: u64| {
        let _ = write!(text, " {messages} {with}");
    };
    // It multiplies messages by distances, and crashes or never ends where the sum does not fit into 31
    // bits: so every distance counts as the greatest there may be.
    let farthest = cluster.factors().iter().copied().fold(1.0, f64::max);
    let unit = (FARTHEST / farthest).min(DISTANCE);
    called.write("tasks", &graph(job, &head, WHOLE / FARTHEST, line, link))?;
    called.write("machine", &machine(cluster, unit))?;
    let mut arguments = vec![String::from("-Cd"), format!("-b{}", tolerance(options))];
    let fixed: Vec<TaskIndex> = (0..tasks.len()).filter(|&t| !tasks.tasks()[t].movable).collect();
    if !fixed.is_empty() {
        let mut text = format!("{}\n", fixed.len());
        for t in fixed {
            let _ = writeln!(text, "{t} {}", present[t]);
        }
        called.write("fixed", &text)?;
        arguments.push(String::from("-ffixed"));
    }
    arguments.extend(["tasks", "machine", "mapping", "log"].map(str::to_owned));
    called.run(&arguments)?;
    called.answer("mapping", job, read_pairs)
}

/// How far above the mean a core may be loaded, as a share.
fn tolerance(options: &Options) -> f64 {
    if options.tolerance.is_finite() { options.tolerance.clamp(0.001, 10.0) } else { 0.05 }
}

/// The machine as a decomposition-defined architecture of SCOTCH (user's guide, "deco 0"): each core
/// with its label, its weight and its number in a tree of halves, then the distances of all pairs, `unit`
/// for 1.
fn machine(cluster: &Cluster, unit: f64) -> String {
    let cores = cluster.cores();
    let mut order: Vec<CoreIndex> = (0..cores.len()).collect();
    let place = |c: CoreIndex| {
        let node = cores[c].node;
        (cluster.nodes()[node].host, node, c)
    };
    order.sort_by_key(|&c| place(c));
    let mut domains = vec![0; cores.len()];
    let hierarchical = |cut: &[CoreIndex], at: usize| {
        let (a, b) = (place(cut[at - 1]), place(cut[at]));
        if a.0 != b.0 { 0 } else { 1 + usize::from(a.1 == b.1) }
    };
    halve(&order, 1, &hierarchical, &mut domains);
    // SCOTCH keeps a number for every pair of domains.
    if domains.iter().any(|&d| d > 4 * cores.len() as u64 + 64) {
        halve(&order, 1, &|_, _| 0, &mut domains);
    }
    let fastest = cores.iter().map(|c| c.speed).fold(0.0, f64::max);
    let most = domains.iter().copied().max().unwrap_or(1);
    let mut text = format!("deco 0\n{} {most}\n", cores.len());
    for (c, core) in cores.iter().enumerate() {
        let speed = (1_000.0 * core.speed / fastest).round().max(1.0);
        let _ = writeln!(text, "{c} {speed} {}", domains[c]);
    }
    for a in 1..cores.len() {
        for b in 0..a {
            let both = (cluster.cost(a, b) + cluster.cost(b, a)) / 2.0;
            let _ = write!(text, "{} ", (unit * both).round().max(1.0));
        }
        text.push('\n');
    }
    text
}

/// Numbers the cores of a domain: it is cut where the machine is cut at the highest level (`level`, of
/// the cut before a place), and there as near to the middle as can be. The halves of domain d are 2d
/// and 2d + 1.
fn halve(
    cores: &[CoreIndex],
    domain: u64,
    level: &dyn Fn(&[CoreIndex], usize) -> usize,
    domains: &mut [u64],
) {
    if let [core] = cores {
        domains[*core] = domain;
        return;
    }
    let cut = (1..cores.len()).min_by_key(|&at| (level(cores, at), at.abs_diff(cores.len() / 2)));
    // There is one: two cores at least.
    let (a, b) = cores.split_at(cut.unwrap_or(1));
    halve(a, domain.saturating_mul(2), level, domains);
    halve(b, domain.saturating_mul(2).saturating_add(1), level, domains);
}

/// The cores in the order of hosts and nodes: parts that follow each other have more to do with each other
/// than with the rest.
fn in_order(cluster: &Cluster) -> Vec<CoreIndex> {
    let cores = cluster.cores();
    let mut order: Vec<CoreIndex> = (0..cores.len()).collect();
    order.sort_by_key(|&c| (cluster.nodes()[cores[c].node].host, cores[c].node, c));
    order
}

fn equally_fast(cluster: &Cluster) -> bool {
    let speeds: HashSet<u64> = cluster.cores().iter().map(|c| c.speed.to_bits()).collect();
    speeds.len() == 1
}

/// `gpmetis GRAPH PARTS`: as many parts as there are cores, in the order of hosts and nodes, as large
/// as the cores are fast.
fn metis(called: &Called<'_>, job: &Job<'_>) -> Result<Vec<CoreIndex>, ProgramError> {
    let Job { graph: tasks, cluster, options, .. } = *job;
    if tasks.pairs() == 0 {
        return Err(called.unfit("it takes no tasks that do not communicate; try greedy"));
    }
    let cores = cluster.cores();
    let line = |text: &mut String, load: u64, _| {
        let _ = write!(text, "{load}");
    };
    // Counted from 1.
    let link = |text: &mut String, with: TaskIndex, messages: u64| {
        let _ = write!(text, " {} {messages}", with + 1);
    };
    let head = format!("{} {} 011", tasks.len(), tasks.pairs());
    called.write("tasks", &graph(job, &head, WHOLE, line, link))?;
    let order = in_order(cluster);
    let above = (1_000.0 * tolerance(options)).round().max(1.0);
    let mut arguments =
        vec![format!("-ufactor={above}"), format!("-seed={}", options.seed % (1 << 31))];
    if !equally_fast(cluster) {
        let all: f64 = cores.iter().map(|c| c.speed).sum();
        let part = |(i, &c): (usize, &CoreIndex)| format!("{i} = {}\n", cores[c].speed / all);
        called.write("parts", &order.iter().enumerate().map(part).collect::<String>())?;
        arguments.push(String::from("-tpwgts=parts"));
    }
    arguments.extend([String::from("tasks"), cores.len().to_string()]);
    called.run(&arguments)?;
    let parts = called.answer(&format!("tasks.part.{}", cores.len()), job, read_parts)?;
    Ok(parts.into_iter().map(|p| order[p]).collect())
}

/// What Python does: the graph is in JSON, as the arrays that `kaffpa` takes, and so are its options
/// (user guide, section 5.2); the answer is as METIS would write it. Mode 1 is "eco", KaHIP's middle between
/// time and quality. It is asked to be silent, and what it prints all the same is dropped.
const KAHIP: &str = "\
import json, kahip
with open('tasks') as file:
    graph = json.load(file)
names = 'vwgt xadj adjcwgt adjncy parts imbalance silent seed mode'.split()
cut, parts = kahip.kaffpa(*(graph[name] for name in names))
with open('parts', 'w') as file:
    file.write('\\n'.join(map(str, parts)) + '\\n')
";

/// KaHIP's `kaffpa`: as many parts as there are cores, in the order of hosts and nodes, all of them equally
/// large.
fn kahip(called: &Called<'_>, job: &Job<'_>) -> Result<Vec<CoreIndex>, ProgramError> {
    let Job { graph: tasks, cluster, options, .. } = *job;
    if tasks.pairs() == 0 {
        return Err(called.unfit("it takes no tasks that do not communicate; try greedy"));
    }
    if !equally_fast(cluster) {
        return Err(called.unfit("it has no parts for cores of unequal speed; try metis"));
    }
    let (loads, messages) =
        (Whole::new(tasks.load_s(), WHOLE), Whole::new(tasks.messages(), WHOLE));
    let (mut starts, mut ends, mut weights) = (vec![0], Vec::new(), Vec::new());
    for t in 0..tasks.len() {
        let links = tasks.links(t);
        ends.extend(links.iter().map(|l| l.with));
        weights.extend(links.iter().map(|l| messages.of(l.received + l.sent)));
        starts.push(ends.len());
    }
    let graph = serde_json::json!({
        "vwgt": tasks.tasks().iter().map(|t| loads.of(t.load_s)).collect::<Vec<_>>(),
        "xadj": starts,
        "adjcwgt": weights,
        "adjncy": ends,
        "parts": cluster.cores().len(),
        "imbalance": tolerance(options),
        "silent": true,
        "seed": options.seed % (1 << 31),
        "mode": 1,
    });
    called.write("tasks", &graph.to_string())?;
    called.run(&[String::from("-c"), String::from(KAHIP)])?;
    let (parts, order) = (called.answer("parts", job, read_parts)?, in_order(cluster));
    Ok(parts.into_iter().map(|p| order[p]).collect())
}

#[cfg(test)]
mod tests;

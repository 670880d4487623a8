//! What `/proc` says of threads and processes.
//!
//! Invariant: parsing is pure and total: any bytes give a value or None, never a panic. Names of
//! threads may hold blanks, parentheses and line ends, so a stat line is read from its last ')'.

use super::clock::ticks_per_second;
use evenly_engine::{RunState, Times};
use evenly_model::{CpuId, CpuSet, Nanos, Pid, Tid};
use smallvec::SmallVec;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Room for any name, so that none is allocated: names are read at each balancing point. Those of
/// the kernel's threads may be longer than 15 bytes, and a name may be any bytes in a test.
const NAME_BYTES: usize = 64;

/// What is used of `/proc/<pid>/stat` (proc_pid_stat(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Process or thread id.
    pub id: i32,
    /// Name, as raw bytes (at most 15; kernel threads more).
    pub comm: SmallVec<[u8; NAME_BYTES]>,
    /// State letter: R, S, D, T, t, Z, X, I.
    pub state: u8,
    /// Process id of the parent.
    pub ppid: Pid,
    /// Which program its process runs.
    pub image: Image,
    /// Page faults so far that needed no page from disk.
    pub minor_faults: u64,
    /// Page faults so far that loaded a page from disk.
    pub major_faults: u64,
    /// Number of threads of the process.
    pub threads: i64,
    /// Start time, clock ticks since boot.
    pub start: u64,
    /// CPU last run on.
    pub cpu: CpuId,
    /// Real-time priority; 0 where there is none.
    pub rt_priority: u32,
    /// Scheduling policy number (sched(7)).
    pub policy: u32,
}

/// What distinguishes the program that a process runs from the one that it becomes by exec.
///
/// The kernel puts the stack of each new program at a random place; where that has been turned off
/// (`setarch -R`) the place still depends on arguments and environment, and the length of the code
/// on the program. Known gap: a program that becomes itself once more, at the same places, is not
/// recognised. Where the places may not be read (a program that may not be traced) they are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// Of a process's first thread: it has not called exec since it was forked (PF_FORKNOEXEC). Of
    /// other threads always true.
    pub forked: bool,
    /// Where the code begins and ends.
    pub code: (u64, u64),
    /// Where the stack begins.
    pub stack: u64,
}

/// The flag of a process that has not called exec.
const FORKED: u64 = 0x40;

impl Stat {
    /// Reads a stat line.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|&b| b == b'(')?;
        let close = text.iter().rposition(|&b| b == b')')?;
        let id = ascii(text.get(..open)?.trim_ascii())?;
        let comm = SmallVec::from_slice(text.get(open + 1..close)?);
        let mut fields = Fields(text.get(close + 1..)?);
        let state = *fields.next()?.first()?;
        let ppid = Pid(ascii(fields.next()?)?);
        // Field numbers as in proc_pid_stat(5): ppid was 4.
        let flags: u64 = ascii(fields.nth(4)?)?; // 9
        let minor_faults = ascii(fields.next()?)?; // 10
        let major_faults = ascii(fields.nth(1)?)?; // 12
        let threads = ascii(fields.nth(7)?)?; // 20
        let start = ascii(fields.nth(1)?)?; // 22
        let code = (ascii(fields.nth(3)?)?, ascii(fields.next()?)?); // 26, 27
        let stack = ascii(fields.next()?)?; // 28
        let cpu = CpuId(ascii(fields.nth(10)?)?); // 39
        let rt_priority = ascii(fields.next()?)?; // 40
        let policy = ascii(fields.next()?)?; // 41
        Some(Self {
            id,
            comm,
            state,
            ppid,
            image: Image { forked: flags & FORKED != 0, code, stack },
            minor_faults,
            major_faults,
            threads,
            start,
            cpu,
            rt_priority,
            policy,
        })
    }

    /// The name as text.
    #[must_use]
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.comm).into_owned()
    }

    /// Whether the scheduler shares CPUs fairly for it: neither real-time nor deadline.
    #[must_use]
    pub fn is_fair(&self) -> bool {
        // SCHED_OTHER 0, SCHED_BATCH 3, SCHED_IDLE 5, SCHED_EXT 7.
        matches!(self.policy, 0 | 3 | 5 | 7)
    }

    /// Whether it wants a CPU.
    #[must_use]
    pub fn run_state(&self) -> RunState {
        match self.state {
            b'R' => RunState::Runnable,
            b'T' | b't' => RunState::Stopped,
            b'Z' | b'X' | b'x' => RunState::Dead,
            _ => RunState::Blocked,
        }
    }
}

/// Fields separated by blanks.
struct Fields<'a>(&'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.0.trim_ascii_start();
        if rest.is_empty() {
            return None;
        }
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let (field, rest) = rest.split_at(end);
        self.0 = rest;
        Some(field)
    }
}

fn ascii<T: std::str::FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The times of a thread, by its `schedstat` that is open. None where it has ended. Nothing is allocated.
pub(crate) fn read_schedstat(file: &File) -> Option<Times> {
    let mut buffer = [0u8; 96];
    let n = file.read_at(&mut buffer, 0).ok()?;
    parse_schedstat(buffer.get(..n)?)
}

/// Reads a `schedstat` line: CPU time and waiting time in nanoseconds, number of time slices.
/// Written for speed, because this is read for every thread in every period.
#[must_use]
pub fn parse_schedstat(text: &[u8]) -> Option<Times> {
    let mut at = 0;
    let mut number = || -> Option<u64> {
        let (mut value, first) = (0u64, at);
        while let Some(d) = text.get(at).filter(|b| b.is_ascii_digit()) {
            value = value.checked_mul(10)?.checked_add(u64::from(d - b'0'))?;
            at += 1;
        }
        let found = at > first;
        at += 1;
        found.then_some(value)
    };
    let (ran, waited, slices) = (number()?, number()?, number()?);
    Some(Times { ran: Nanos(ran), waited: Nanos(waited), slices })
}

/// What CPUs were used for, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTicks {
    /// By whatever ran on them.
    pub busy: u64,
    /// By the host of a virtual machine.
    pub stolen: u64,
    /// By no process: idle, or waiting for I/O.
    pub idle: u64,
}

/// The use of these CPUs by `/proc/stat` (proc_stat(5)). None where one is missing.
#[must_use]
pub fn parse_cpu_ticks(stat: &[u8], cpus: &CpuSet) -> Option<CpuTicks> {
    let (mut all, mut found) = (CpuTicks::default(), 0);
    for line in stat.split(|&b| b == b'\n') {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|f| !f.is_empty());
        let Some(id) = fields.next().and_then(|name| ascii(name.strip_prefix(b"cpu")?)) else {
            continue;
        };
        if !cpus.contains(CpuId(id)) {
            continue;
        }
        // user nice system idle iowait irq softirq steal
        let t: Vec<u64> = fields.take(8).map(ascii).collect::<Option<_>>()?;
        let [user, nice, system, idle, waiting, irq, softirq, stolen] = t[..] else { return None };
        for part in [user, nice, system, irq, softirq] {
            all.busy = all.busy.checked_add(part)?;
        }
        for part in [idle, waiting] {
            all.idle = all.idle.checked_add(part)?;
        }
        all.stolen = all.stolen.checked_add(stolen)?;
        found += 1;
    }
    (found == cpus.len()).then_some(all)
}

/// The use of each of these CPUs, in order, by `/proc/stat`. None where one is missing.
#[must_use]
pub fn parse_ticks_of_each(stat: &[u8], cpus: &[CpuId]) -> Option<Vec<CpuTicks>> {
    let mut lines = stat.split(|&b| b == b'\n');
    // The kernel lists them in this order, too.
    let of = |cpu: &CpuId| lines.find_map(|line| parse_cpu_ticks(line, &CpuSet::single(*cpu)));
    cpus.iter().map(of).collect()
}

/// The number that was given to the last process or thread, by `/proc/loadavg` (proc_loadavg(5)). None where it is none: gVisor
/// says 0.
#[must_use]
pub fn parse_last_number(loadavg: &[u8]) -> Option<Pid> {
    let last = loadavg.trim_ascii_end().rsplit(|&c| c == b' ').next()?;
    let number = std::str::from_utf8(last).ok()?.parse().ok()?;
    Some(Pid(number)).filter(|_| number > 0)
}

/// Clock ticks of CPU time of a process and of the children that it has waited for, by its `stat`.
#[must_use]
pub fn parse_used_ticks(stat: &[u8]) -> Option<u64> {
    let behind = stat.iter().rposition(|&b| b == b')')? + 1;
    // utime, stime, cutime and cstime are the fields 14 to 17; the state is field 3.
    let fields = stat[behind..].split(u8::is_ascii_whitespace).filter(|f| !f.is_empty());
    let t: Vec<u64> = fields.skip(11).take(4).map(ascii).collect::<Option<_>>()?;
    (t.len() == 4).then(|| t.iter().try_fold(0, |sum: u64, n| sum.checked_add(*n)))?
}

/// The value of a numeric line of `/proc/<pid>/status`, such as `voluntary_ctxt_switches`.
#[must_use]
pub fn status_number(status: &[u8], key: &str) -> Option<u64> {
    status_field(status, key).and_then(|v| ascii(v.split(u8::is_ascii_whitespace).next()?))
}

/// The value of a line of `/proc/<pid>/status`, without blanks around it.
#[must_use]
pub fn status_field<'a>(status: &'a [u8], key: &str) -> Option<&'a [u8]> {
    status.split(|&b| b == b'\n').find_map(|line| {
        line.strip_prefix(key.as_bytes())?.strip_prefix(b":").map(<[u8]>::trim_ascii)
    })
}

/// A `/proc` file system. Its root is a value so that captured trees can be read.
#[derive(Debug, Clone)]
pub struct Proc {
    root: PathBuf,
}

impl Default for Proc {
    fn default() -> Self {
        Self { root: PathBuf::from("/proc") }
    }
}

impl Proc {
    /// A tree somewhere else.
    #[must_use]
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Where the tree is.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// For how long each of these CPUs, which are in order, has run nothing since the system was started. None where
    /// that is not known.
    #[must_use]
    pub fn idle(&self, cpus: &[CpuId]) -> Option<Vec<Nanos>> {
        self.of_each(cpus, |ticks| ticks.idle)
    }

    /// For how long each of these CPUs, which are in order, has run something since the system was started. None where
    /// that is not known.
    #[must_use]
    pub fn busy_each(&self, cpus: &[CpuId]) -> Option<Vec<Nanos>> {
        self.of_each(cpus, |ticks| ticks.busy)
    }

    fn of_each(&self, cpus: &[CpuId], which: fn(&CpuTicks) -> u64) -> Option<Vec<Nanos>> {
        let all = parse_ticks_of_each(&read_all(&self.root.join("stat")).ok()?, cpus)?;
        let tick = 1_000_000_000 / ticks_per_second();
        Some(all.iter().map(|ticks| Nanos(which(ticks).saturating_mul(tick))).collect())
    }

    /// For how long these CPUs, all together, have run something since the system was started. None where that is not known.
    #[must_use]
    pub fn busy(&self, cpus: &CpuSet) -> Option<Nanos> {
        let each = self.busy_each(&cpus.iter().collect::<Vec<_>>())?;
        Some(each.into_iter().fold(Nanos::ZERO, |all, busy| all + busy))
    }

    /// The number that the last process or thread was given that began. None where that is not known.
    #[must_use]
    pub fn last_number(&self) -> Option<Pid> {
        parse_last_number(&read_all(&self.root.join("loadavg")).ok()?)
    }

    /// Path of a file of a process.
    #[must_use]
    pub fn process_file(&self, pid: Pid, file: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(file)
    }

    /// Path of a file of a thread. `/proc/<tid>` serves for threads too, and needs no process id.
    #[must_use]
    pub fn thread_file(&self, tid: Tid, file: &str) -> PathBuf {
        self.root.join(tid.to_string()).join("task").join(tid.to_string()).join(file)
    }

    /// `stat` of a thread. None where it has ended (or where it cannot be seen).
    #[must_use]
    pub fn thread_stat(&self, tid: Tid) -> Option<Stat> {
        read_all(&self.thread_file(tid, "stat")).ok().and_then(|t| Stat::parse(&t))
    }

    /// `stat` of a process. None where it has ended (or where it cannot be seen).
    #[must_use]
    pub fn process_stat(&self, pid: Pid) -> Option<Stat> {
        read_all(&self.process_file(pid, "stat")).ok().and_then(|t| Stat::parse(&t))
    }

    /// A process and those that it descends from, as far as that can be followed.
    pub fn lineage(&self, pid: Pid) -> impl Iterator<Item = Pid> {
        /// Deeper than any tree of processes. Ids can change hands while this reads, so that a
        /// chain without end is conceivable.
        const DEPTH: usize = 256;
        let parent = |&p: &Pid| self.process_stat(p).map(|s| s.ppid).filter(|p| p.0 > 0);
        std::iter::successors((pid.0 > 0).then_some(pid), parent).take(DEPTH)
    }

    /// Whether a process is another one or descends from it. False where it is gone.
    #[must_use]
    pub fn descends(&self, pid: Pid, from: Pid) -> bool {
        self.lineage(pid).any(|p| p == from)
    }

    /// `status` of a thread.
    ///
    /// # Errors
    /// As open(2) and read(2).
    pub fn thread_status(&self, tid: Tid) -> io::Result<Vec<u8>> {
        read_all(&self.thread_file(tid, "status"))
    }

    /// The process that a thread belongs to. None where it has ended.
    #[must_use]
    pub fn process_of(&self, tid: Tid) -> Option<Pid> {
        let status = self.thread_status(tid).ok()?;
        status_number(&status, "Tgid").and_then(|n| i32::try_from(n).ok()).map(Pid)
    }

    /// Ids of all threads of a process; empty where it has ended.
    #[must_use]
    pub fn threads(&self, pid: Pid) -> Vec<Tid> {
        self.numbers(&self.process_file(pid, "task")).into_iter().map(Tid).collect()
    }

    /// Ids of all processes that can be seen.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        self.numbers(&self.root).into_iter().map(Pid).collect()
    }

    fn numbers(&self, dir: &Path) -> Vec<i32> {
        let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
        entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect()
    }

    /// The file for which a thread waits inside a system call that reads, writes or flushes one. None
    /// where it waits for something else, or where that may not be seen.
    #[must_use]
    pub fn waits_for_file(&self, pid: Pid, tid: Tid) -> Option<String> {
        let text = read_all(&self.thread_file(tid, "syscall")).ok()?;
        let fd = parse_file_call(&text)?;
        let link = fs::read_link(self.process_file(pid, "fd").join(fd.to_string())).ok()?;
        Some(link.to_string_lossy().into_owned())
    }

    /// The rank that the launcher of an MPI program gave to a process ([`parse_rank`]). None where it
    /// gave none, or the environment cannot be read.
    #[must_use]
    pub fn rank(&self, pid: Pid) -> Option<(&'static str, u64)> {
        parse_rank(&read_all(&self.process_file(pid, "environ")).ok()?)
    }

    /// The command line of a process, one element an argument.
    #[must_use]
    pub fn command_line(&self, pid: Pid) -> Vec<OsString> {
        use std::os::unix::ffi::OsStringExt;
        let Ok(bytes) = read_all(&self.process_file(pid, "cmdline")) else { return Vec::new() };
        let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
        bytes.split(|&b| b == 0).map(|a| OsString::from_vec(a.to_vec())).collect()
    }
}

/// The descriptor of a system call that reads, writes or flushes a file, by `/proc/<pid>/syscall`: its
/// number and its arguments, of which the descriptor is the first.
#[must_use]
pub fn parse_file_call(text: &[u8]) -> Option<u32> {
    const CALLS: [libc::c_long; 9] = [
        libc::SYS_read,
        libc::SYS_write,
        libc::SYS_pread64,
        libc::SYS_pwrite64,
        libc::SYS_readv,
        libc::SYS_writev,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
        libc::SYS_sync_file_range,
    ];
    let mut fields = Fields(text);
    let call: libc::c_long = ascii(fields.next()?)?;
    let first = std::str::from_utf8(fields.next()?).ok()?;
    let fd = u32::from_str_radix(first.strip_prefix("0x")?, 16).ok()?;
    CALLS.contains(&call).then_some(fd)
}

/// Variables by which launchers give a process its rank; the first that is there counts. What starts
/// the others may itself have been started by Slurm, so that comes last.
pub const RANK_VARIABLES: [&str; 5] =
    ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID"];

/// The rank of a process by its environment (`/proc/<pid>/environ`), and the variable that says so.
#[must_use]
pub fn parse_rank(environ: &[u8]) -> Option<(&'static str, u64)> {
    RANK_VARIABLES.into_iter().find_map(|name| {
        let mut variables = environ.split(|&b| b == 0);
        let value = variables
            .find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
            .and_then(|v| std::str::from_utf8(v).ok())?;
        Some((name, value.trim().parse().ok()?))
    })
}

/// Reads a whole file of a kernel file system. Bounded: such files are small, and a larger one is
/// cut at 1 MiB.
///
/// # Errors
/// As open(2) and read(2).
pub fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1024);
    fs::File::open(path)?.take(1 << 20).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Captured on kernels 6.1 and 6.18; the names were set with prctl(PR_SET_NAME).
    const PLAIN: &[u8] = b"2209 (cat) R 2205 2205 2205 0 -1 4194304 96 0 3 0 0 0 0 0 20 0 1 0 10067 5865472 431 18446744073709551615 94040206884864 94040206901873 140729391430000 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 94040206917040 94040206918656 94040213753856 140729391437284 140729391437304 140729391437304 140729391439851 0\n";
    const ODD: &[u8] = b"77 (a) b(\nx) S 1 77 77 0 -1 1077936128 12 34 5 6 7 8 9 10 -51 0 3 0 4242 5865472 431 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 63 40 1 0 0 0 0 0 0 0 0 0 0 0\n";

    const STAT: &[u8] = b"cpu  230 1 60 900 5 0 9 2 0 0\n\
        cpu0 120 1 30 450 2 0 6 1 0 0\n\
        cpu1 110 0 30 450 3 0 3 1 0 0\n\
        intr 12345 0 0\nctxt 99\n";

    #[test]
    fn busy_time_of_some_cpus() {
        let ticks = |stat, cpus: &str| parse_cpu_ticks(stat, &cpus.parse().unwrap());
        assert_eq!(ticks(STAT, "0"), Some(CpuTicks { busy: 157, stolen: 1, idle: 452 }));
        assert_eq!(ticks(STAT, "0-1"), Some(CpuTicks { busy: 300, stolen: 2, idle: 905 }));
        assert_eq!((ticks(STAT, "0-2"), ticks(b"cpu0 1 2\n", "0")), (None, None));
    }

    #[test]
    fn number_of_the_last_that_began() {
        let last = |text: &[u8]| parse_last_number(text).map(|pid| pid.0);
        assert_eq!(last(b"3.26 2.61 1.20 4/151 24042\n"), Some(24042));
        // gVisor, and what is no such text.
        assert_eq!([&b"0.00 0.00 0.00 0/0 0\n"[..], b"1 -7", b"", b"4/151"].map(last), [None; 4]);
    }

    #[test]
    fn use_of_each_cpu() {
        let each = |stat: &[u8], cpus: &[u32]| {
            let cpus: Vec<CpuId> = cpus.iter().map(|id| CpuId(*id)).collect();
            parse_ticks_of_each(stat, &cpus)
        };
        let used = |cpus: &[u32]| {
            let all = each(STAT, cpus)?;
            Some(all.iter().map(|t| (t.busy, t.stolen, t.idle)).collect::<Vec<_>>())
        };
        assert_eq!(used(&[0, 1]), Some(vec![(157, 1, 452), (143, 1, 453)]));
        assert_eq!((used(&[1]), used(&[])), (Some(vec![(143, 1, 453)]), Some(vec![])));
        assert_eq!((used(&[0, 2]), each(b"cpu0 1", &[0])), (None, None));
    }

    #[test]
    fn own_time_behind_a_difficult_name() {
        let stat = b"71 (a) b 9) S 1 71 71 0 -1 4194560 300 900 0 1 10 20 300 4000 20 0 1 0 555";
        assert_eq!(parse_used_ticks(stat), Some(4330));
        assert_eq!((parse_used_ticks(b"71 (a) S 1"), parse_used_ticks(b"")), (None, None));
        let much = b"7 (a) S 1 7 7 0 -1 0 0 0 0 0 18446744073709551615 1 0 0";
        assert_eq!(parse_used_ticks(much), None);
    }

    #[test]
    fn stat_lines() {
        let s = Stat::parse(PLAIN).unwrap();
        assert_eq!((s.id, s.name().as_str(), s.state, s.ppid), (2209, "cat", b'R', Pid(2205)));
        assert_eq!((s.threads, s.start, s.cpu, s.policy), (1, 10067, CpuId(1), 0));
        assert_eq!((s.minor_faults, s.major_faults), (96, 3));
        let code = (94_040_206_884_864, 94_040_206_901_873);
        let stack = 140_729_391_430_000;
        assert_eq!(s.image, Image { forked: false, code, stack });
        assert_eq!(s.run_state(), RunState::Runnable);
        assert!(s.is_fair());
        let s = Stat::parse(ODD).unwrap();
        assert_eq!(s.comm.as_slice(), b"a) b(\nx");
        assert_eq!(
            (s.threads, s.start, s.cpu, s.rt_priority, s.policy),
            (3, 4242, CpuId(63), 40, 1)
        );
        assert_eq!((s.minor_faults, s.major_faults), (12, 5));
        assert_eq!(s.image, Image { forked: false, code: (1, 1), stack: 0 });
        // One that was forked and has not called exec.
        let forked = String::from_utf8_lossy(ODD).replace("1077936128", "1077936192");
        assert!(Stat::parse(forked.as_bytes()).unwrap().image.forked);
        assert!(!s.is_fair());
    }

    #[test]
    fn cut_stat_lines_are_refused() {
        for end in 0..PLAIN.len() - 100 {
            if let Some(s) = Stat::parse(&PLAIN[..end]) {
                assert_eq!(s.id, 2209);
            }
        }
        assert_eq!(Stat::parse(b""), None);
        assert_eq!(Stat::parse(b")("), None);
        assert_eq!(Stat::parse(b"1 (x) R"), None);
    }

    #[test]
    fn schedstat_lines() {
        let t = parse_schedstat(b"123456789 42 7\n").unwrap();
        assert_eq!((t.ran, t.waited), (Nanos(123_456_789), Nanos(42)));
        assert_eq!(parse_schedstat(b"0 0 1"), Some(Times { slices: 1, ..Times::default() }));
        for bad in [&b""[..], b"1 2", b"1 2 ", b"a 2 3", b"99999999999999999999999 1 1", b"-1 2 3"]
        {
            assert_eq!(parse_schedstat(bad), None);
        }
    }

    #[test]
    fn status_lines() {
        let status =
            b"Name:\tx\nTgid:\t12\nSigIgn:\t0000000000001000\nvoluntary_ctxt_switches:\t99\n";
        assert_eq!(status_number(status, "Tgid"), Some(12));
        assert_eq!(status_number(status, "voluntary_ctxt_switches"), Some(99));
        assert_eq!(status_field(status, "SigIgn"), Some(&b"0000000000001000"[..]));
        assert_eq!(status_number(status, "Pid"), None);
    }

    #[test]
    fn calls_that_wait_for_files() {
        let call = |n: libc::c_long| format!("{n} 0x4 0x0 0x7f00 0x0 0x0 0x0 0x7ffc 0x7f4e\n");
        assert_eq!(parse_file_call(call(libc::SYS_fsync).as_bytes()), Some(4));
        assert_eq!(parse_file_call(call(libc::SYS_futex).as_bytes()), None);
        for other in [&b"running\n"[..], b"-1 0x7ffc 0x7f4e", b"", b"74 4", b"74"] {
            assert_eq!(parse_file_call(other), None);
        }
    }

    #[test]
    fn ranks_are_what_launchers_say() {
        let env = |text: &str| parse_rank(text.replace(' ', "\0").as_bytes());
        assert_eq!(env("A=b OMPI_COMM_WORLD_RANK=3 SLURM_PROCID=0"), Some((RANK_VARIABLES[0], 3)));
        assert_eq!(env("SLURM_PROCID=0 PMI_RANK=12 "), Some(("PMI_RANK", 12)));
        assert_eq!(env("PMIX_RANK=many SLURM_PROCID=4"), Some(("SLURM_PROCID", 4)));
        assert_eq!(env("XPMI_RANK=1 PMI_RANKS=2 PMI_RANK"), None);
        assert_eq!(parse_rank(b""), None);
    }

    #[test]
    fn own_process_is_seen() {
        let proc = Proc::default();
        let me = Pid(std::process::id() as i32);
        assert!(proc.threads(me).contains(&Tid(me.0)));
        assert!(proc.processes().contains(&me));
        assert_eq!(proc.process_of(Tid(me.0)), Some(me));
        assert!(proc.thread_stat(Tid(me.0)).unwrap().start > 0);
        assert!(!proc.command_line(me).is_empty());
        assert_eq!(proc.thread_stat(Tid(i32::MAX)), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Stat::parse(&bytes);
            let _ = parse_schedstat(&bytes);
            let _ = status_number(&bytes, "Tgid");
        }
    }
}

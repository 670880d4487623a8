//! What a program does, seen from outside: the evidence of `evenly doctor`.
//!
//! The witness reads, some twenty times a second, the times of all threads of a program, how often they
//! gave up their CPU, their masks, where they are, what other processes use of the CPUs, and now and then
//! what changes seldom: environment, libraries, quota, NUMA pages. Beside it is measured how fast the CPUs
//! compute ([`crate::pace`]).
//!
//! Invariants: nothing is changed, in the program or anywhere else. What cannot be read is left out and
//! reported. The witness takes about a fiftieth of a CPU: it looks less often where a look takes long. A sparing
//! one, which watches beside a balancer, takes a tenth of that, measures no CPUs, and gives up where it would
//! have to remember too much.
//!
//! Known gaps: what a thread does after the last look before its end is not seen; threads and processes
//! that live for less than the time between two looks are not seen at all, only that CPUs were busy.

use crate::affinity;
use crate::clock::{self, ticks_per_second};
use crate::counters::CountersError;
use crate::limits::{Limits, Quota, QuotaSource};
use crate::memory::parse_numa_maps;
use crate::pace::Pace;
use crate::proc::{
    CpuTicks, Proc, Stat, parse_cpu_ticks, parse_schedstat, read_all, status_field, status_number,
};
use crate::share::foreign_user;
use crate::spinning::Spinning;
use crate::wait_reports::{ReadWaitReports, WaitReports};
use evenly_engine::WaitReport;
use evenly_evidence::{CpuUse, Evidence, NodeUse, Other, QuotaUse, Runtime, SpinUse, ThreadUse};
use evenly_model::efficiency::Stay;
use evenly_model::{CpuId, CpuSet, Nanos, Pid, ThreadId, Tid};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// The time between two looks, at least.
const LOOK: Duration = Duration::from_millis(40);
/// A look is followed by a pause of so many times its length, but not by one that is longer than the time until
/// then.
const PAUSE: u32 = 50;
/// Environment variables that are looked for.
const VARIABLES: [&str; 11] = [
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "GOMP_CPU_AFFINITY",
    "KMP_BLOCKTIME",
    "KMP_LIBRARY",
    "KMP_AFFINITY",
    "OMPI_MCA_mpi_yield_when_idle",
    "OMPI_MCA_mpi_oversubscribe",
];
/// More other processes than that are not reported. Many, as those on other CPUs than the program's are among
/// them.
const OTHERS: usize = 64;
/// A CPU for which more than this part of the time was not counted has lost ticks.
const MISSING: f64 = 0.1;
/// A thread that computes for less than this part of the time is not looked at for where it spins.
const COMPUTES: f64 = 0.1;
/// A thread that sleeps for less than this part of the time may spin while it waits.
const SLEEPS: f64 = 0.02;
/// Libraries and variables are looked at in so many processes.
const LOOKED_INTO: usize = 8;

/// How much a witness may take.
#[derive(Debug, Clone, Copy)]
struct Effort {
    /// The time between two looks, at least.
    look: Duration,
    /// A look is followed by a pause of so many times its length.
    pause: u32,
    /// Threads that are remembered.
    most: usize,
    /// Looks at what changes seldom are repeated after so many looks.
    inside: Option<u64>,
}

/// For a doctor that is waited for.
const CLOSE: Effort = Effort { look: LOOK, pause: PAUSE, most: usize::MAX, inside: Some(64) };
/// For a program that is perhaps to be diagnosed later.
const SPARING: Effort =
    Effort { look: Duration::from_millis(200), pause: 10 * PAUSE, most: 2_048, inside: None };

/// Counters of a thread at one moment.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    ran: Nanos,
    waited: Nanos,
    system: u64,
    preempted: u64,
    slept: u64,
}

/// A thread that is watched.
#[derive(Debug)]
struct Track {
    pid: Pid,
    name: String,
    joined: Nanos,
    seen: Nanos,
    first: Counts,
    last: Counts,
    /// What it reports of its own waiting, and how long it spun by that.
    wait_report: WaitReport,
    spun: Nanos,
    disk: Nanos,
    files: HashMap<String, u32>,
    mask: CpuSet,
    on: HashMap<CpuId, Nanos>,
}

/// A process that is not of the program.
#[derive(Debug)]
struct Stranger {
    /// Empty until it has used a CPU: most never do, and a machine may have many.
    name: String,
    start: u64,
    first: u64,
    last: u64,
    on: HashMap<CpuId, u32>,
}

/// Watches one program from outside, and keeps what a diagnosis needs.
pub struct Witness {
    proc: Proc,
    limits: Limits,
    root: Pid,
    me: Pid,
    began: Nanos,
    /// The same in the clock ticks of start times.
    began_tick: u64,
    now: Nanos,
    looks: u64,
    threads: HashMap<(Tid, u64), Track>,
    strangers: HashMap<Pid, Stranger>,
    online: CpuSet,
    cpuset: CpuSet,
    ticks: BTreeMap<CpuId, [(Nanos, CpuTicks); 2]>,
    /// What the witness itself used of each CPU, which is not reported.
    own: BTreeMap<CpuId, Nanos>,
    quota: Option<(Quota, Quota)>,
    quota_at: Option<QuotaSource>,
    environment: BTreeMap<String, String>,
    /// Whether these are of a process with a runtime that heeds them.
    heeded: bool,
    runtimes: BTreeSet<Runtime>,
    pages: BTreeMap<u32, u64>,
    nodes: Vec<(u32, CpuSet)>,
    processes: Vec<Pid>,
    wait_reports: Option<WaitReports>,
    pace: Option<Pace>,
    /// Or why it is not known. None for one that takes little.
    spinning: Option<Result<Spinning, CountersError>>,
    effort: Effort,
}

impl Witness {
    /// For the program whose first process is `root`, from now on.
    #[must_use]
    pub fn new(root: Pid) -> Self {
        Self::with(root, CLOSE)
    }

    /// One that takes little, for a program that is being balanced.
    #[must_use]
    pub fn sparing(root: Pid) -> Self {
        Self::with(root, SPARING)
    }

    fn with(root: Pid, effort: Effort) -> Self {
        let limits = Limits::default();
        let online = limits.online().unwrap_or_default();
        let cpuset = limits.cpuset(root).unwrap_or_else(|_| online.clone());
        let nodes = limits.numbered_nodes();
        let pace = effort.inside.map(|_| Pace::of(cpuset.and(&online)));
        let now = clock::now();
        Self {
            proc: Proc::default(),
            limits,
            root,
            me: Pid(std::process::id().cast_signed()),
            began: now,
            began_tick: ticks_of(clock::since_boot()),
            now,
            looks: 0,
            threads: HashMap::new(),
            strangers: HashMap::new(),
            online,
            cpuset,
            ticks: BTreeMap::new(),
            own: BTreeMap::new(),
            quota: None,
            quota_at: None,
            environment: BTreeMap::new(),
            heeded: false,
            runtimes: BTreeSet::new(),
            pages: BTreeMap::new(),
            nodes,
            processes: Vec::new(),
            wait_reports: None,
            pace,
            spinning: effort.inside.map(|_| Spinning::new()),
            effort,
        }
    }

    /// With what threads say of their own waiting.
    #[must_use]
    pub fn with_wait_reports(mut self, read: Option<ReadWaitReports>) -> Self {
        self.wait_reports = read.map(WaitReports::new);
        self
    }

    /// Looks once, and says how long to wait before the next look. None where the program has ended, or
    /// [`Self::gave_up`].
    pub fn look(&mut self) -> Option<Duration> {
        if self.gave_up() {
            return None;
        }
        let (start, used) = (clock::now(), clock::thread_cpu_time());
        // What is left of a program that has ended says nothing.
        self.proc.process_stat(self.root).filter(|s| s.state != b'Z')?;
        let last = std::mem::replace(&mut self.now, start);
        self.find();
        self.look_at_cpus();
        let since = start - last;
        if let Some(wait_reports) = &mut self.wait_reports {
            wait_reports.refresh();
        }
        for pid in self.processes.clone() {
            for tid in self.proc.threads(pid) {
                self.look_at_thread(pid, tid, since);
            }
        }
        if let Some(Ok(spinning)) = &mut self.spinning {
            let (threads, now) = (&self.threads, self.now);
            let is_there = |id: &ThreadId| {
                threads.get(&(id.tid, id.start)).is_some_and(|track| track.seen == now)
            };
            spinning.keep(&self.processes, is_there);
        }
        self.look_at_quota();
        self.looks += 1;
        // Soon after the start, and then more and more seldom.
        if self.looks.is_power_of_two()
            || self.effort.inside.is_some_and(|n| self.looks.is_multiple_of(n))
        {
            self.look_inside();
        }
        // Its own CPU time: on a busy machine a look may take long without costing much.
        let took = clock::thread_cpu_time() - used;
        let here = u32::try_from(rustix::thread::sched_getcpu()).unwrap_or(0);
        *self.own.entry(CpuId(here)).or_default() += took;
        // A program that ends soon is to be seen more than once, however slow the machine is.
        let so_far = Duration::from_nanos((clock::now() - self.began).0);
        let pause = Duration::from_nanos(took.0) * self.effort.pause;
        Some(self.effort.look.max(pause.min(so_far)))
    }

    /// Whether there was more than it may remember.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        self.threads.len() > self.effort.most
    }

    /// Finds the processes of the program, and what others have used.
    fn find(&mut self) {
        let all: Vec<(Pid, Stat, u64)> = self
            .proc
            .processes()
            .into_iter()
            .filter_map(|pid| {
                let text = read_all(&self.proc.process_file(pid, "stat")).ok()?;
                Some((pid, Stat::parse(&text)?, parse_own_ticks(&text)?))
            })
            .collect();
        let parents: HashMap<Pid, Pid> = all.iter().map(|(p, s, _)| (*p, s.ppid)).collect();
        let mut ours: HashSet<Pid> = HashSet::from([self.root]);
        for pid in parents.keys() {
            let mut path = Vec::new();
            let mut at = *pid;
            // Ids can change hands while they are read, so that a chain without end is conceivable.
            while path.len() < 256 && !ours.contains(&at) {
                path.push(at);
                match parents.get(&at) {
                    Some(parent) if parent.0 > 0 => at = *parent,
                    _ => break,
                }
            }
            if ours.contains(&at) {
                ours.extend(path);
            }
        }
        ours.remove(&self.me);
        for (pid, stat, used) in all {
            if ours.contains(&pid) || pid == self.me {
                continue;
            }
            // One that has started since has used all of it since.
            let before = if stat.start <= self.began_tick { used } else { 0 };
            let known = self.strangers.entry(pid).or_insert_with(|| Stranger {
                name: String::new(),
                start: stat.start,
                first: before,
                last: before,
                on: HashMap::new(),
            });
            // Ids are used again.
            if known.start == stat.start && used > known.last {
                if known.name.is_empty() {
                    known.name = stat.name();
                }
                known.last = used;
                *known.on.entry(stat.cpu).or_default() += 1;
            }
        }
        self.processes = ours.into_iter().collect();
        self.processes.sort_unstable();
    }

    fn look_at_cpus(&mut self) {
        let Ok(stat) = read_all(&self.proc.root().join("stat")) else { return };
        let at = clock::now();
        for cpu in self.online.iter() {
            if let Some(t) = parse_cpu_ticks(&stat, &CpuSet::single(cpu)) {
                let now = (at, t);
                self.ticks.entry(cpu).or_insert([now, now])[1] = now;
            }
        }
    }

    fn look_at_thread(&mut self, pid: Pid, tid: Tid, since: Nanos) {
        let read = |file| read_all(&self.proc.thread_file(tid, file)).ok();
        let Some(text) = read("stat") else { return };
        let (Some(stat), Some(times)) =
            (Stat::parse(&text), read("schedstat").and_then(|t| parse_schedstat(&t)))
        else {
            return;
        };
        let status = read("status").unwrap_or_default();
        let number = |key| status_number(&status, key).unwrap_or(0);
        let counts = Counts {
            ran: times.ran,
            waited: times.waited,
            system: parse_system_ticks(&text).unwrap_or(0),
            preempted: number("nonvoluntary_ctxt_switches"),
            slept: number("voluntary_ctxt_switches"),
        };
        let (now, began) = (self.now, self.began);
        let track = self.threads.entry((tid, stat.start)).or_insert_with(|| {
            // One that started while it was watched is known from its start.
            let per_second = ticks_per_second();
            let age = clock::since_boot()
                .0
                .saturating_sub((stat.start as f64 / per_second as f64 * 1e9) as u64);
            let started = Nanos(now.0.saturating_sub(age));
            let young = started >= Nanos(began.0.saturating_sub(20_000_000));
            Track {
                pid,
                name: stat.name(),
                joined: if young { started.max(began) } else { now },
                seen: now,
                first: if young { Counts::default() } else { counts },
                last: counts,
                wait_report: WaitReport::default(),
                spun: Nanos::ZERO,
                disk: Nanos::ZERO,
                files: HashMap::new(),
                mask: CpuSet::new(),
                on: HashMap::new(),
            }
        });
        let ran = counts.ran - track.last.ran.min(counts.ran);
        *track.on.entry(stat.cpu).or_default() += ran;
        if let Some(wait_reports) = &self.wait_reports {
            track.wait_report.update(wait_reports.of(ThreadId { tid, start: stat.start }));
            let elapsed = now - track.seen;
            let waited = counts.waited - track.last.waited;
            let spins = track.wait_report.book(elapsed, elapsed - ran - waited);
            track.spun += ran.scale(spins);
        }
        if let Some(Ok(spinning)) = &mut self.spinning
            && ran > since.scale(COMPUTES)
        {
            spinning.look(&self.proc, pid, ThreadId { tid, start: stat.start });
        }
        (track.last, track.seen) = (counts, now);
        track.name = stat.name();
        let list = status_field(&status, "Cpus_allowed_list");
        if let Some(mask) = list.and_then(|l| std::str::from_utf8(l).ok()?.parse().ok()) {
            track.mask = mask;
        }
        if stat.state == b'D' {
            track.disk += since;
            if let Some(file) = self.proc.waits_for_file(pid, tid) {
                *track.files.entry(file).or_default() += 1;
            }
        }
    }

    fn look_at_quota(&mut self) {
        // Of the youngest process: launchers may be in another group.
        let pid = self.processes.last().copied().unwrap_or(self.root);
        let Ok(quota) = self.limits.quota(pid) else { return };
        match &mut self.quota {
            // One that has just ended is in the topmost group, which has none.
            Some((first, _)) if first.cpus.is_some() && quota.cpus.is_none() => {}
            // Another group, or another quota: counting begins anew.
            Some((first, last))
                if first.cpus == quota.cpus && last.throttling.times <= quota.throttling.times =>
            {
                *last = quota;
            }
            _ => {
                self.quota = Some((quota, quota));
                self.quota_at = self.limits.quota_source(pid);
            }
        }
    }

    /// Reads what changes seldom: cpuset, libraries, environment, and pages on each node.
    fn look_inside(&mut self) {
        if let Ok(cpuset) = self.limits.cpuset(self.root) {
            self.cpuset = cpuset;
        }
        self.pages.clear();
        let mut heeded: Option<BTreeMap<String, String>> = None;
        let mut others = BTreeMap::new();
        for &pid in self.processes.iter().rev().take(LOOKED_INTO) {
            let read = |file| read_all(&self.proc.process_file(pid, file)).unwrap_or_default();
            let mut heeds = false;
            for line in read("maps").split(|&b| b == b'\n') {
                let file = line.rsplit(|&b| b == b'/').next().unwrap_or_default();
                let known = std::str::from_utf8(file).ok().and_then(Runtime::of_library);
                heeds |= matches!(known, Some(Runtime::Gomp | Runtime::Omp));
                self.runtimes.extend(known);
            }
            // The process that starts the program may have others than it.
            let found = if heeds { heeded.get_or_insert_default() } else { &mut others };
            for variable in read("environ").split(|&b| b == 0) {
                let text = String::from_utf8_lossy(variable);
                if let Some((name, value)) = text.split_once('=')
                    && VARIABLES.contains(&name)
                {
                    found.entry(name.to_owned()).or_insert_with(|| value.to_owned());
                }
            }
            if self.nodes.len() > 1 {
                let maps = read("numa_maps");
                for (node, _) in &self.nodes {
                    let pages: u64 = parse_numa_maps(&maps, *node).values().sum();
                    *self.pages.entry(*node).or_default() += pages;
                }
            }
        }
        match heeded {
            Some(found) => (self.environment, self.heeded) = (found, true),
            None if !self.heeded => self.environment.extend(others),
            None => {}
        }
    }

    /// All that was seen since the watch began, as a diagnosis needs it.
    #[must_use]
    pub fn evidence(&self, command: Vec<String>, runs_on: bool) -> Evidence {
        let seconds = (self.now - self.began).as_secs_f64();
        let tick = 1.0 / ticks_per_second() as f64;
        let (threads, spins) = self.uses(tick);
        let mut cpus: BTreeMap<CpuId, CpuUse> = BTreeMap::new();
        let paces = self.pace.as_ref().map(Pace::known).unwrap_or_default();
        for (id, ticks) in &self.ticks {
            let Spent { busy_s, stolen_s, uncounted_s } = Spent::of(ticks, tick);
            let own_s = self.own.get(id).map_or(0.0, |own| own.as_secs_f64());
            cpus.insert(
                *id,
                CpuUse {
                    busy_s: (busy_s - own_s).max(0.0),
                    stolen_s,
                    uncounted_s,
                    capacity: self.limits.capacity(*id),
                    work_ns: paces.get(id).copied(),
                    ..CpuUse::new(*id)
                },
            );
        }
        for t in self.threads.values() {
            for (cpu, ran) in &t.on {
                if let Some(u) = cpus.get_mut(cpu) {
                    u.program_s += ran.as_secs_f64();
                }
            }
        }
        let mut others: Vec<Other> = self
            .strangers
            .iter()
            .filter(|(_, s)| s.last > s.first)
            .map(|(pid, s)| Other {
                pid: pid.0,
                name: s.name.clone(),
                cpu_s: (s.last - s.first) as f64 * tick,
                cpu: s.on.iter().max_by_key(|o| (o.1, o.0)).map_or(CpuId(0), |o| *o.0),
                user: None,
            })
            .collect();
        others.sort_by(|a, b| b.cpu_s.total_cmp(&a.cpu_s).then(a.pid.cmp(&b.pid)));
        others.truncate(OTHERS);
        for other in &mut others {
            other.user = foreign_user(&self.proc, Pid(other.pid));
        }
        let quota = self.quota.as_ref().and_then(|(first, last)| {
            Some(QuotaUse {
                cpus: last.cpus?,
                times: last.throttling.times.saturating_sub(first.throttling.times),
                held_s: Nanos(last.throttling.held.0.saturating_sub(first.throttling.held.0))
                    .as_secs_f64(),
                lift: self.quota_at.as_ref().map(QuotaSource::lift),
            })
        });
        let nodes = self.nodes.iter().map(|(node, cpus)| NodeUse {
            node: *node,
            cpus: cpus.clone(),
            pages: self.pages.get(node).copied().unwrap_or(0),
        });
        let mut evidence = Evidence {
            command,
            pid: runs_on.then_some(self.root.0),
            seconds,
            cpuset: self.cpuset.clone(),
            threads,
            cpus: cpus.into_values().collect(),
            quota,
            environment: self.environment.clone(),
            runtimes: self.runtimes.clone(),
            spins,
            others,
            nodes: if self.nodes.len() > 1 { nodes.collect() } else { Vec::new() },
            phase: self.phase(),
            ..Evidence::default()
        };
        if let Some(Err(why)) = &self.spinning {
            let hardly_sleeps = |t: &&ThreadUse| t.stay.blocked_s < SLEEPS * t.stay.present_s;
            if evidence.compute().into_iter().filter(hardly_sleeps).count() > 1 {
                evidence.gaps.push(format!("in which loops threads spin: {why}"));
            }
        }
        evidence
    }

    /// What threads used, and where they spun.
    fn uses(&self, tick: f64) -> (Vec<ThreadUse>, Vec<SpinUse>) {
        let mut all: HashMap<ThreadId, ThreadUse> = self
            .threads
            .iter()
            .map(|(&(tid, start), t)| (ThreadId { tid, start }, t.usage(tid, tick)))
            .collect();
        let spins = match &self.spinning {
            Some(Ok(spinning)) => spinning.tell(&mut all),
            _ => Vec::new(),
        };
        let mut threads: Vec<ThreadUse> = all.into_values().collect();
        threads.sort_by_key(|t| (t.pid, t.tid));
        (threads, spins)
    }
}

impl Witness {
    /// What a thread computes from barrier to barrier, in seconds, and how many that one reached which reached
    /// most: of the threads that report barriers.
    fn phase(&self) -> Option<(f64, u64)> {
        let of = |t: &Track| Some((t.computed(), t.wait_report.phases().filter(|n| *n > 0)?));
        let all: Vec<(Nanos, u64)> = self.threads.values().filter_map(of).collect();
        let most = all.iter().map(|p| p.1).max()?;
        let (computed, phases) =
            all.iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.0.as_secs_f64(), sum.1 + p.1 as f64));
        Some((computed / phases, most))
    }
}

impl Track {
    /// CPU time in which it computed, as far as that is known.
    fn computed(&self) -> Nanos {
        let ran = Nanos(self.last.ran.0.saturating_sub(self.first.ran.0));
        ran - self.spun.min(ran)
    }

    fn usage(&self, tid: Tid, tick: f64) -> ThreadUse {
        let of = |f: fn(&Counts) -> u64| f(&self.last).saturating_sub(f(&self.first));
        let (ran_s, waited_s) =
            (Nanos(of(|c| c.ran.0)).as_secs_f64(), Nanos(of(|c| c.waited.0)).as_secs_f64());
        let spun_s = self.wait_report.is_known().then(|| self.spun.as_secs_f64().min(ran_s));
        // Start times are known to a clock tick.
        let seen = (self.seen - self.joined.min(self.seen)).as_secs_f64();
        let present_s = seen.max(ran_s + waited_s);
        let blocked_s = (present_s - ran_s - waited_s).max(0.0);
        ThreadUse {
            tid: tid.0,
            pid: self.pid.0,
            name: self.name.clone(),
            rank: None,
            stay: Stay { ran_s, spun_s, waited_s, blocked_s, present_s },
            system_s: of(|c| c.system) as f64 * tick,
            disk_s: self.disk.as_secs_f64().min(blocked_s),
            file: self.files.iter().max_by_key(|f| (f.1, f.0)).map(|f| f.0.clone()),
            preempted: of(|c| c.preempted),
            slept: of(|c| c.slept),
            sampled: false,
            mask: self.mask.clone(),
            cpu: self.on.iter().max_by_key(|o| (o.1, o.0)).map(|o| *o.0),
        }
    }
}

/// What became of a CPU's time between two looks, but for idle time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Spent {
    busy_s: f64,
    stolen_s: f64,
    uncounted_s: f64,
}

impl Spent {
    /// Idle time is read from a clock, but busy time is the ticks that came while something ran: a virtual CPU that
    /// its host stops without a word gets few of them, and seems to be neither busy nor idle.
    fn of([first, last]: &[(Nanos, CpuTicks); 2], tick: f64) -> Self {
        let of = |f: fn(&CpuTicks) -> u64| f(&last.1).saturating_sub(f(&first.1)) as f64 * tick;
        let (busy_s, stolen_s) = (of(|t| t.busy), of(|t| t.stolen));
        let counted = busy_s + stolen_s + of(|t| t.idle);
        let elapsed = Nanos(last.0.0.saturating_sub(first.0.0)).as_secs_f64();
        let missing = elapsed - counted;
        // Nothing at all is what a kernel says that does not count.
        let lost = counted > 0.0 && missing > MISSING * elapsed;
        Self { busy_s, stolen_s, uncounted_s: if lost { missing } else { 0.0 } }
    }
}

/// The whole clock ticks in a time; what is left over is cut off.
fn ticks_of(time: Nanos) -> u64 {
    (u128::from(time.0) * u128::from(ticks_per_second()) / 1_000_000_000) as u64
}

/// CPU time of a process without its children, in clock ticks, by its `stat`.
fn parse_own_ticks(stat: &[u8]) -> Option<u64> {
    tick_fields(stat).map(|[user, system]| user.saturating_add(system))
}

fn parse_system_ticks(stat: &[u8]) -> Option<u64> {
    tick_fields(stat).map(|[_, system]| system)
}

/// utime and stime, the fields 14 and 15.
fn tick_fields(stat: &[u8]) -> Option<[u64; 2]> {
    let behind = stat.iter().rposition(|&b| b == b')')? + 1;
    let text = std::str::from_utf8(&stat[behind..]).ok()?;
    let mut fields = text.split_ascii_whitespace().skip(11);
    Some([fields.next()?.parse().ok()?, fields.next()?.parse().ok()?])
}

/// The environment variables of this process that runtimes heed, and what it may use: what is known of a
/// program before it is started.
#[must_use]
pub fn before_start() -> (BTreeMap<String, String>, usize, Option<f64>) {
    let environment = VARIABLES
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
        .collect();
    let me = Pid(std::process::id().cast_signed());
    let limits = Limits::default();
    let cpus =
        affinity::get(Tid(0)).or_else(|_| limits.online().map_err(|_| ())).map_or(1, |c| c.len());
    let quota = limits.quota(me).ok().and_then(|q| q.cpus);
    (environment, cpus.max(1), quota)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn ticks_stand_behind_a_difficult_name() {
        let stat = b"71 (a) b 9) S 1 71 71 0 -1 4194560 300 900 0 1 10 20 300 4000 20 0 1 0 555";
        assert_eq!((parse_own_ticks(stat), parse_system_ticks(stat)), (Some(30), Some(20)));
        assert_eq!((parse_own_ticks(b"71 (a) S 1"), parse_own_ticks(b"")), (None, None));
    }

    #[test]
    fn time_without_ticks_is_reported() {
        let at = |ms, busy, stolen, idle| (Nanos::from_millis(ms), CpuTicks { busy, stolen, idle });
        let seen = |last| {
            let Spent { busy_s, stolen_s, uncounted_s } =
                Spent::of(&[at(5_000, 100, 10, 1_000), last], 0.01);
            [busy_s, stolen_s, uncounted_s].map(|s| (s * 100.0).round())
        };
        // All was counted, or nearly.
        assert_eq!(seen(at(15_000, 800, 60, 1_250)), [700.0, 50.0, 0.0]);
        assert_eq!(seen(at(15_000, 800, 10, 1_250)), [700.0, 0.0, 0.0]);
        // As on an emulated CPU of which the host stops the thread.
        assert_eq!(seen(at(15_000, 140, 10, 1_000)), [40.0, 0.0, 960.0]);
        assert_eq!(seen(at(15_000, 140, 10, 1_500)), [40.0, 0.0, 460.0]);
        // Nothing is counted; and idle time that was corrected.
        assert_eq!(seen(at(15_000, 100, 10, 1_000)), [0.0, 0.0, 0.0]);
        assert_eq!(seen(at(15_000, 1_100, 10, 990)), [1_000.0, 0.0, 0.0]);
    }

    #[test]
    fn a_sparing_one_gives_up_where_there_are_too_many_threads() {
        let me = Pid(std::process::id().cast_signed());
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let few = Effort { most: 0, ..SPARING };
        let mut witness = Witness::with(pid, few);
        assert!(!witness.gave_up() && witness.pace.is_none());
        assert!(witness.look().is_some_and(|pause| pause >= SPARING.look));
        assert_eq!((witness.gave_up(), witness.look()), (true, None));
        let mut enough = Witness::sparing(pid);
        assert!(enough.look().is_some() && !enough.gave_up());
        assert!(enough.strangers.contains_key(&Pid(1)) && !enough.strangers.contains_key(&me));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Writes what the kernel shows of a process, with its parent, when it was started, and what it has used.
    fn process(proc: &Path, (pid, parent): (i32, i32), start: u64, used: u64) {
        let dir = proc.join(pid.to_string());
        std::fs::create_dir_all(&dir).unwrap();
        let times = format!("{used} 0 0 0 20 0 1 0 {start}");
        let stat = format!("{pid} (x) S {parent} 1 1 0 -1 0 0 0 0 0 {times}{}\n", " 0".repeat(30));
        std::fs::write(dir.join("stat"), stat).unwrap();
    }

    /// As seen from outside of a container, of which it is the program.
    #[test]
    fn the_first_process_has_its_descendants() {
        let tmp = tempfile::tempdir().unwrap();
        for (pid, parent) in [(1, 0), (2, 0), (7, 1), (8, 7), (9, 2)] {
            process(tmp.path(), (pid, parent), 7, 0);
        }
        let mut witness = Witness::sparing(Pid(1));
        witness.proc = Proc::at(tmp.path());
        witness.find();
        assert_eq!(witness.processes, [Pid(1), Pid(7), Pid(8)]);
    }

    /// Also by a sparing one, to which more processes than it may remember threads are no reason to forget any.
    #[test]
    fn of_strangers_only_what_they_used_since_is_reported() {
        let tmp = tempfile::tempdir().unwrap();
        let process = |pid, start, used| process(tmp.path(), (pid, 1), start, used);
        let mut witness = Witness::with(Pid(i32::MAX), Effort { most: 1, ..SPARING });
        (witness.proc, witness.began_tick) = (Proc::at(tmp.path()), 1_000);
        (10..20).for_each(|pid| process(pid, 7, 100));
        let others = |w: &Witness| -> Vec<(i32, u64)> {
            let others = w.evidence(Vec::new(), true).others;
            let ticks = |s: f64| (s * ticks_per_second() as f64).round() as u64;
            others.iter().map(|o| (o.pid, ticks(o.cpu_s))).collect()
        };
        witness.find();
        assert_eq!(others(&witness), []);
        process(11, 7, 105);
        process(30, 1_200, 3);
        witness.find();
        assert_eq!(others(&witness), [(11, 5), (30, 3)]);
        process(12, 7, 107);
        witness.find();
        assert_eq!(others(&witness), [(12, 7), (11, 5), (30, 3)]);
    }

    #[test]
    fn it_sees_itself_computing() {
        // The test's own process would leave itself out.
        let mut child =
            std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = Pid(child.id().cast_signed());
        let mut witness = Witness::new(pid);
        let (t, e) = evenly_testing::wait_for("it computes for a while", || {
            witness.look()?;
            let e = witness.evidence(Vec::new(), true);
            let t = e.threads.first()?.clone();
            (t.stay.ran_s > 0.05).then_some((t, e))
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((t.pid, t.name.as_str()), (pid.0, "sh"));
        assert!(t.stay.present_s >= t.stay.ran_s * 0.9 && !t.mask.is_empty(), "{t:?}");
        assert_eq!((e.threads.len(), e.pid), (1, Some(pid.0)));
        assert!(e.others.iter().all(|o| o.pid != pid.0), "{:?}", e.others);
        assert_eq!(witness.look(), None);
    }
}

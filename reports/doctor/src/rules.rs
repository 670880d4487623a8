//! The rules: each looks for one cause, in the order in which causes hide one another.
//!
//! Invariant: a rule gives a finding only where its cause was seen to cost something, and its sentence
//! holds nothing but what was seen.

use crate::evidence::{CpuUse, ThreadUse};
use crate::settings::{
    OPEN_MPI_YIELDS, Spinning, binding, endless_spinning, threads_wanted, told_to_yield,
};
use crate::{Evidence, Finding, Kind, Prospect, Runtime, Source};
use evenly_model::theory::{self, Speeds};
use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, counted, is_printable};

/// What costs less of the threads' time is not worth a finding.
const LEAST: f64 = 0.05;
/// The part of the threads' time that a quota must hold back.
const LEAST_HELD: f64 = 0.02;
/// Load balance below this is uneven work.
const LEVEL: f64 = 0.9;
/// The part of its time, but for that in run queues, for which a thread with more work than others may
/// sleep or spin and still be the one that they wait for.
const HARDLY_SLEEPS: f64 = 0.25;
/// A gain below this is not worth trying for.
const LEAST_GAIN: f64 = 1.02;
/// A CPU below this part of the fastest is slow.
const SLOW: f64 = 0.9;
/// A CPU counts as slower than another where their measured speeds differ by so many standard errors.
const SURELY: f64 = 4.0;
/// A CPU that was idle for more than this part of the time has a low clock when its speed is measured.
const MOSTLY_BUSY: f64 = 0.5;
/// Memory of fewer pages is in the caches: 16 MiB, where pages have 4 KiB.
const LEAST_PAGES: u64 = 4_096;
/// What is said where a launcher may have bound ranks.
const MPI_BINDS: &str = " (mpirun --bind-to none, where it is mpirun that binds)";
/// More than this part of a program's CPU time is much for polling.
const POLLS: f64 = 0.1;
/// A call of sched_yield(2) that hands the CPU over takes less than this, in seconds: 0.6 to 1.8 us were
/// measured, with all that a rank of Open MPI does from one to the next.
const HANDING_OVER: f64 = 5e-6;
/// Where less than this part of the time is spent asleep, nobody is seen to wait.
const ASLEEP: f64 = 0.02;

/// What keeps equal threads level, before a command.
const RUN: &str = "evenly run -- ";
/// The same for those of unequal work that wait for each other.
const RUN_UNEVEN: &str = "evenly run --policy hpc-auto -- ";

/// What a line has before the program's command, where it is one that balances.
pub(crate) fn balances(line: &str) -> Option<&'static str> {
    [RUN, RUN_UNEVEN].into_iter().find(|before| line.starts_with(before))
}

/// The evidence, with what several rules need of it.
pub(crate) struct Case<'a> {
    e: &'a Evidence,
    threads: Vec<&'a ThreadUse>,
    /// CPUs that any of the threads may use.
    pub(crate) usable: CpuSet,
    /// T: the longest stay.
    time: f64,
}

/// 12.3 %.
fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

/// As a shell takes it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else if !word.chars().all(is_printable) {
        // As bash, zsh and ksh read it, so that the line can be shown and pasted.
        let ansi = |c: char| match c {
            '\'' | '\\' => format!("\\{c}"),
            c if is_printable(c) => c.to_string(),
            c => c.encode_utf8(&mut [0; 4]).bytes().map(|b| format!("\\{b:03o}")).collect(),
        };
        format!("$'{}'", word.chars().map(ansi).collect::<String>())
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Names of a few, and how many more there are.
fn few(names: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = names.collect();
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > 3 { format!("{shown} and {} more", all.len() - 3) } else { shown }
}

impl<'a> Case<'a> {
    pub(crate) fn new(e: &'a Evidence) -> Self {
        let threads = e.compute();
        let known = threads.iter().filter(|t| !t.mask.is_empty());
        let masks = known.fold(CpuSet::new(), |all, t| all.or(&t.mask));
        let usable = if masks.is_empty() { e.cpuset.clone() } else { masks.and(&e.cpuset) };
        let time = threads.iter().map(|t| t.stay.present_s).fold(0.0, f64::max);
        Self { e, threads, usable, time }
    }

    /// n.
    pub(crate) fn n(&self) -> usize {
        self.threads.len()
    }

    /// m.
    fn m(&self) -> usize {
        self.usable.len().max(1)
    }

    fn sum(&self, f: impl Fn(&ThreadUse) -> f64) -> f64 {
        self.threads.iter().map(|t| f(t)).sum()
    }

    /// The part of the threads' time that this is.
    fn part(&self, seconds: f64) -> f64 {
        (seconds / (self.n() as f64 * self.time).max(1e-9)).clamp(0.0, 1.0)
    }

    /// The part of the threads' time in which they wanted a CPU and had none.
    fn waits(&self) -> f64 {
        self.part(self.sum(|t| t.stay.waited_s))
    }

    /// The part of their time for which they slept.
    fn sleeps(&self) -> f64 {
        self.part(self.sum(|t| t.stay.blocked_s))
    }

    fn cpu(&self, id: CpuId) -> Option<&CpuUse> {
        self.e.cpus.iter().find(|c| c.id == id)
    }

    /// CPUs with their use, of those that the threads may use.
    fn used(&self) -> impl Iterator<Item = &CpuUse> {
        self.e.cpus.iter().filter(|c| self.usable.contains(c.id))
    }

    /// The CPU on which the same work took least. An idle one may well be faster than that.
    fn fastest(&self) -> Option<&CpuUse> {
        let known = self.used().filter_map(|u| Some((u, u.work_ns?.0)));
        known.min_by(|a, b| a.1.total_cmp(&b.1)).map(|found| found.0)
    }

    /// Whether a CPU was measured to be slow, beyond doubt.
    fn is_slow(&self, u: &CpuUse) -> bool {
        let fastest = self.fastest().and_then(|f| f.work_ns);
        let (Some((least, its_error)), Some((took, error))) = (fastest, u.work_ns) else {
            return false;
        };
        let sure = took - least > SURELY * its_error.hypot(error);
        sure && least < SLOW * took && u.busy_s + u.uncounted_s >= MOSTLY_BUSY * self.e.seconds
    }

    /// The speed of a CPU beside that of the fastest: by the kernel, or less where less was measured.
    fn speed(&self, u: &CpuUse) -> f64 {
        let most = self.used().map(|u| u.capacity).max().unwrap_or(FULL_CAPACITY).max(1);
        let told = f64::from(u.capacity) / f64::from(most);
        let fastest = self.fastest().and_then(|f| f.work_ns).filter(|_| self.is_slow(u));
        match (fastest, u.work_ns) {
            (Some((least, _)), Some((took, _))) => told.min(least / took),
            _ => told,
        }
    }

    /// What a thread computed, in seconds of the fastest CPU.
    fn work(&self, t: &ThreadUse) -> f64 {
        let speed = t.cpu.and_then(|at| self.used().find(|u| u.id == at)).map(|u| self.speed(u));
        t.computed_s() * speed.unwrap_or(1.0)
    }

    /// The part of the watched time for which a CPU had nothing to do.
    fn idle(&self, c: &CpuUse) -> f64 {
        (1.0 - (c.busy_s + c.uncounted_s + c.stolen_s) / self.e.seconds.max(1e-9)).clamp(0.0, 1.0)
    }

    /// Whether a probe told of all threads when they spin.
    fn told(&self) -> bool {
        !self.threads.is_empty() && self.threads.iter().all(|t| t.stay.spun_s.is_some())
    }

    fn open_mp(&self) -> bool {
        [Runtime::Gomp, Runtime::Omp].iter().any(|r| self.e.runtimes.contains(r))
    }

    fn mpi(&self) -> Option<Runtime> {
        [Runtime::OpenMpi, Runtime::Mpich].into_iter().find(|r| self.e.runtimes.contains(r))
    }

    /// Processes that compute.
    fn processes(&self) -> usize {
        let mut pids: Vec<i32> = self.threads.iter().map(|t| t.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids.len()
    }

    /// The program's command behind something, to be pasted. None where it is not known.
    pub(crate) fn line(&self, before: &str) -> Option<String> {
        let words: Vec<String> = self.e.command.iter().map(|w| quoted(w)).collect();
        (!words.is_empty()).then(|| format!("{} {}", before.trim_end(), words.join(" ")))
    }

    /// The program's command without what binds its threads, behind something. None where it is not known
    /// what does.
    pub(crate) fn unbound(&self, before: &str) -> Option<String> {
        let what = match binding(&self.e.environment).filter(|_| self.open_mp()) {
            Some(setting) => {
                let name = setting.split('=').next().unwrap_or_default();
                format!("env -u {name} OMP_PROC_BIND=false")
            }
            // Its launcher binds unless it is told not to.
            None if self.mpi() == Some(Runtime::OpenMpi) => {
                String::from("OMPI_MCA_hwloc_base_binding_policy=none")
            }
            None => return None,
        };
        self.line(&format!("{what} {before}"))
    }

    /// The line that shows who computes and who waits, and when.
    fn show(&self) -> Option<String> {
        if let Some(pid) = self.e.pid {
            return Some(format!("evenly top {pid}"));
        }
        // Without it those that spin would seem to compute.
        let probe = if self.told() { " --probe on" } else { "" };
        let run = format!("evenly run --policy observe{probe} --record run.evenly --");
        self.line(&run).map(|line| format!("{line}; evenly report run.evenly"))
    }

    /// The line that balances the program, as far as its work is known.
    fn balance(&self, uneven: bool) -> Option<String> {
        self.line(if uneven { RUN_UNEVEN } else { RUN })
    }

    /// What helps instead of a line that balances, where that promises nothing as things are.
    pub(crate) fn instead(
        &self,
        f: &Finding,
        before: &str,
        measure: Option<&str>,
    ) -> Option<String> {
        match f.kind {
            Kind::Spinning | Kind::MpiOversubscribed => measure.map(str::to_owned),
            _ if self.is_bound() && self.unbound(before).is_some() => self.unbound(before),
            Kind::Neighbour => self.named().first().map(|o| renice(o)).or_else(|| self.show()),
            Kind::UnevenWork => self.show(),
            _ => None,
        }
    }

    /// The line that measures what no rule decides: how to wait best, and what evenly makes of it.
    pub(crate) fn measure(&self, findings: &[Finding]) -> Option<String> {
        let has = |kind: Kind| findings.iter().any(|f| f.kind == kind);
        let mut arms = Vec::from([String::from("kernel")]);
        arms.extend(self.other_waiting(findings).map(|variables| format!("kernel:{variables}")));
        let uneven = has(Kind::UnevenWork) && self.n() > self.m();
        if arms.len() == 1 && !uneven {
            return self.line("evenly compare --");
        }
        arms.push(String::from("hybrid"));
        arms.extend(uneven.then(|| String::from("hpc-auto")));
        self.line(&format!("evenly compare --policies {} --", quoted(&arms.join(","))))
    }

    /// Variables with which threads wait in another way than they did, where there are such and waiting
    /// is what ails them.
    fn other_waiting(&self, findings: &[Finding]) -> Option<String> {
        let has = |kind: Kind| findings.iter().any(|f| f.kind == kind);
        if has(Kind::MpiOversubscribed) && self.mpi() == Some(Runtime::OpenMpi) {
            let other = if self.yields() { "0" } else { "1" };
            return Some(format!("{}={other}", OPEN_MPI_YIELDS[0]));
        }
        if !has(Kind::Spinning) || !self.open_mp() {
            return None;
        }
        let set: Vec<String> =
            endless_spinning(&self.e.environment).iter().map(Spinning::sleeping).collect();
        Some(if set.is_empty() { self.sleeping().to_owned() } else { set.join(" ") })
    }

    /// The variable with which threads of OpenMP sleep while they wait.
    fn sleeping(&self) -> &'static str {
        if self.e.runtimes.contains(&Runtime::Omp) {
            "KMP_BLOCKTIME=0"
        } else {
            "OMP_WAIT_POLICY=passive"
        }
    }

    /// Whether threads yield in a loop while they wait.
    fn yields(&self) -> bool {
        self.ranks_yield() || self.threads.iter().any(|t| t.yields())
    }

    /// Whether all are ranks that yield: where one does, all do. Not each is seen to, as one that hands its
    /// CPU to somebody who keeps it for long does so seldom.
    fn ranks_yield(&self) -> bool {
        match self.mpi() {
            Some(Runtime::OpenMpi) if told_to_yield(&self.e.environment) => true,
            Some(_) => self.threads.iter().any(|t| t.yields()),
            None => false,
        }
    }

    /// The CPU time that yielding took, and that others could not have. Who yields gives the CPU to whoever
    /// wants it: he computes for milliseconds, or he waits, too, and gives it back at once. So calls that
    /// handed it over, however many, kept none from computing for longer than they took, which is little of
    /// those milliseconds; what is lost are those in vain.
    fn yielding_s(&self, t: &ThreadUse) -> f64 {
        (t.system_s - HANDING_OVER * t.preempted as f64).max(0.0)
    }

    /// The CPU time that spinning took, as far as others could not have it. None where nobody told who
    /// spins.
    fn lost_s(&self) -> Option<f64> {
        let ranks = self.ranks_yield();
        let lost = |t: &ThreadUse| {
            let spun = t.stay.spun_s.unwrap_or(0.0);
            if ranks || t.yields() { spun.min(self.yielding_s(t)) } else { spun }
        };
        self.told().then(|| self.sum(lost))
    }

    /// Other processes that used much of the CPUs.
    fn named(&self) -> Vec<&'a crate::Other> {
        let much =
            |o: &&crate::Other| o.cpu_s >= LEAST * self.e.seconds && self.usable.contains(o.cpu);
        self.e.others.iter().filter(much).collect()
    }

    /// Whether a thread may use one CPU only, though the program may use more.
    pub(crate) fn is_bound(&self) -> bool {
        self.m() > 1 && self.threads.iter().any(|t| t.mask.len() == 1)
    }

    /// The line that lets these threads go while they run: they may be of several processes, of which the
    /// one that was named is perhaps none.
    fn let_go(&self, threads: &[&ThreadUse]) -> Option<String> {
        self.e.pid?;
        let mut pids: Vec<i32> = threads.iter().map(|t| t.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        let cpus = &self.e.cpuset;
        match pids.as_slice() {
            [] => None,
            [pid] => Some(format!("taskset -apc {cpus} {pid}")),
            several => {
                let list: Vec<String> = several.iter().map(ToString::to_string).collect();
                let list = list.join(" ");
                Some(format!("for p in {list}; do taskset -apc {cpus} $p; done"))
            }
        }
    }

    /// The thread among these that was kept waiting longest, and where.
    fn worst(&self, threads: &[i32]) -> Option<String> {
        let among = self.threads.iter().filter(|t| threads.contains(&t.tid));
        let t = among.max_by(|a, b| a.stay.waited_s.total_cmp(&b.stay.waited_s))?;
        let part = t.stay.waited_s / t.stay.present_s.max(1e-9);
        (part >= LEAST)
            .then(|| format!("{} waited longest: {} of its time", t.placed(), percent(part)))
    }

    fn found(&self, kind: Kind, cost: f64, sentence: String) -> Finding {
        Finding {
            kind,
            sentence,
            cost: Some(cost.clamp(0.0, 1.0)),
            at_most: false,
            evidence: Vec::new(),
            remedy: String::new(),
            paste: None,
            threads: Vec::new(),
            cpus: CpuSet::new(),
        }
    }

    fn waiting(&self) -> String {
        format!("threads wanted a CPU and had none for {} of their time", percent(self.waits()))
    }
}

/// All findings, in the order of the rules.
pub(crate) fn all(c: &Case<'_>) -> Vec<Finding> {
    let quota = quota(c);
    let narrow = narrow_mask(c);
    let pinned = if narrow.is_none() { pinned_together(c) } else { None };
    // Where these hold, more threads than CPUs is what follows from them.
    let explained = quota.is_some() || narrow.is_some() || pinned.is_some();
    let mut all: Vec<Finding> = [quota, narrow, pinned].into_iter().flatten().collect();
    all.extend([neighbour(c), slow_cpu(c), blocked_io(c), remote_memory(c)].into_iter().flatten());
    let uneven = uneven_work(c);
    let mut spinning = spinning(c, uneven.is_some());
    if !explained {
        let mpi = mpi_oversubscribed(c, uneven.is_some());
        // Ranks that poll are ranks that spin, of which that rule knows more.
        if c.mpi().is_some() && c.processes() > c.m() && !c.open_mp() {
            spinning = None;
        }
        let many = if mpi.is_none() { too_many_threads(c) } else { None };
        if mpi.is_none() && many.is_none() && uneven.is_none() {
            all.extend(uneven_division(c));
        }
        all.extend([mpi, many, too_few_threads(c)].into_iter().flatten());
    }
    all.extend([uneven, spinning].into_iter().flatten());
    for f in &mut all {
        // Where all threads suffer, the one that suffers most is named.
        let of_all = [
            Kind::Quota,
            Kind::NarrowMask,
            Kind::Neighbour,
            Kind::UnevenDivision,
            Kind::MpiOversubscribed,
            Kind::TooManyThreads,
        ];
        if of_all.contains(&f.kind) {
            f.evidence.extend(c.worst(&f.threads));
        }
    }
    all
}

fn quota(c: &Case<'_>) -> Option<Finding> {
    let q = c.e.quota.as_ref()?;
    let used = c.sum(|t| t.stay.ran_s);
    // Held back: of the CPU time that it got and would have got meanwhile.
    let cost = q.held_s / (q.held_s + used).max(1e-9);
    if q.times < 2 || cost < LEAST_HELD {
        return None;
    }
    let (n, quota) = (c.n(), q.cpus);
    let mut f = c.found(
        Kind::Quota,
        cost,
        format!(
            "{} want more than the {quota:.2} CPUs that the control group's quota allows, so all of \
             them are stopped again and again until the next period.",
            counted(n, "thread")
        ),
    );
    f.evidence = vec![format!(
        "the quota ran out {} times in {:.2} s, which held back {:.2} s of CPU time; {:.2} s were used",
        q.times, c.e.seconds, q.held_s, used
    )];
    let room = (quota.floor() as usize).max(1);
    if c.open_mp() && n > room {
        f.remedy = format!("as many threads as the quota has CPUs ({room}), or a higher quota");
        f.paste = c.line(&format!("OMP_NUM_THREADS={room}"));
    } else {
        f.remedy = format!("as many threads as the quota has CPUs ({room}), or no quota");
        f.paste = q.lift.clone();
    }
    f.threads = c.threads.iter().map(|t| t.tid).collect();
    f.cpus = c.usable.clone();
    Some(f)
}

fn narrow_mask(c: &Case<'_>) -> Option<Finding> {
    let (n, m, all) = (c.n(), c.usable.len(), c.e.cpuset.len());
    let spare = c.e.cpuset.minus(&c.usable);
    // A thread with a wider mask shows that the program bound the others itself.
    let wide = c.e.threads.iter().any(|t| !t.mask.is_empty() && !t.mask.is_subset(&c.usable));
    if m == 0 || m >= n || spare.is_empty() || wide || c.waits() < LEAST {
        return None;
    }
    let cost = (1.0 - m as f64 / n.min(all) as f64).min(c.waits());
    let bound = binding(&c.e.environment).filter(|_| c.open_mp());
    let whose = match &bound {
        Some(setting) => format!("the setting {setting} lets them"),
        None => String::from("the affinity mask that the program was started with lets them"),
    };
    let mut f = c.found(
        Kind::NarrowMask,
        cost,
        format!(
            "{} share {} ({}), because {whose} use no other, while there are {all}.",
            counted(n, "thread"),
            counted(m, "CPU"),
            c.usable,
        ),
    );
    f.evidence = vec![c.waiting()];
    f.evidence.extend(idle_words(c, &spare));
    f.remedy = format!("let them use {} too", cpu_list(&spare));
    f.paste = match (&bound, c.e.pid) {
        (Some(_), _) => c.unbound(""),
        (None, Some(_)) => c.let_go(&c.threads),
        (None, None) if c.mpi().is_some() => {
            f.remedy.push_str(MPI_BINDS);
            c.unbound("").or_else(|| c.line(&format!("taskset -c {}", c.e.cpuset)))
        }
        // What narrowed it need only be left out.
        (None, None) => match c.e.command.as_slice() {
            [first, option, _, rest @ ..]
                if first.rsplit('/').next() == Some("taskset") && option == "-c" =>
            {
                Some(rest.iter().map(|w| quoted(w)).collect::<Vec<_>>().join(" "))
            }
            _ => c.line(&format!("taskset -c {}", c.e.cpuset)),
        },
    };
    f.threads = c.threads.iter().map(|t| t.tid).collect();
    f.cpus = c.usable.clone();
    Some(f)
}

fn cpu_list(cpus: &CpuSet) -> String {
    format!("{} {cpus}", if cpus.len() == 1 { "CPU" } else { "CPUs" })
}

/// How idle these CPUs were, where that was seen.
fn idle_words(c: &Case<'_>, cpus: &CpuSet) -> Option<String> {
    let idle: Vec<f64> = cpus.iter().filter_map(|id| Some(c.idle(c.cpu(id)?))).collect();
    let mean = idle.iter().sum::<f64>() / idle.len().max(1) as f64;
    (mean >= LEAST).then(|| format!("{} idle for {} of the time", cpu_list(cpus), percent(mean)))
}

fn pinned_together(c: &Case<'_>) -> Option<Finding> {
    // The CPU that most threads are pinned to, to it alone.
    let on = |cpu: CpuId| c.threads.iter().filter(move |t| t.mask == CpuSet::single(cpu));
    let (cpu, k) = c.usable.iter().map(|cpu| (cpu, on(cpu).count())).max_by_key(|p| p.1)?;
    let pinned: Vec<&&ThreadUse> = on(cpu).collect();
    let waited: f64 = pinned.iter().map(|t| t.stay.waited_s).sum();
    // Somewhere there is room: a CPU with two fewer of the threads, or one that was idle.
    let free = c.e.cpuset.iter().filter(|&other| {
        let threads = on(other).count()
            + c.threads.iter().filter(|t| t.cpu == Some(other) && t.mask.len() != 1).count();
        let idle = c.cpu(other).map_or(0.0, |u| c.idle(u));
        other != cpu && threads < k && (threads + 2 <= k || idle >= 0.2)
    });
    let free: CpuSet = free.collect();
    if k < 2 || free.is_empty() || c.part(waited) < LEAST {
        return None;
    }
    let names = few(pinned.iter().map(|t| t.label()));
    let bound = binding(&c.e.environment).filter(|_| c.open_mp());
    let by = bound.as_ref().map_or_else(String::new, |setting| format!(" by {setting}"));
    let mut f = c.found(
        Kind::PinnedTogether,
        c.part(waited),
        format!(
            "{} are pinned to CPU {cpu}{by} and take turns on it, while there is room on {}: {names}.",
            counted(k, "thread"),
            cpu_list(&free),
        ),
    );
    let share = waited / pinned.iter().map(|t| t.stay.present_s).sum::<f64>().max(1e-9);
    f.evidence =
        vec![format!("these threads waited for CPU {cpu} for {} of their time", percent(share))];
    f.evidence.extend(idle_words(c, &free));
    f.remedy = String::from("let them go, or pin each to a CPU of its own");
    f.paste = match (&bound, c.e.pid) {
        (Some(_), _) => c.unbound(""),
        (None, Some(_)) => {
            let those: Vec<&ThreadUse> = pinned.iter().map(|t| **t).collect();
            c.let_go(&those)
        }
        (None, None) if c.mpi().is_some() && c.processes() > 1 => {
            f.remedy.push_str(MPI_BINDS);
            c.unbound("")
        }
        // The program did it itself: it can be let go while it runs.
        (None, None) => {
            let pid = pinned.first().map(|t| t.pid);
            let main = c.e.threads.iter().find(|t| Some(t.tid) == pid);
            main.map(|t| {
                let (name, cpus) = (quoted(&t.name), &c.e.cpuset);
                format!("for p in $(pgrep -x {name}); do taskset -apc {cpus} $p; done")
            })
        }
    };
    f.threads = pinned.iter().map(|t| t.tid).collect();
    f.cpus = CpuSet::single(cpu);
    Some(f)
}

/// CPU time that others used, of each CPU that the threads may use.
fn of_others(c: &Case<'_>) -> Vec<(CpuId, f64)> {
    // Where threads ran is known from samples; how much they ran, exactly.
    let seen: f64 = c.used().map(|u| u.program_s).sum();
    let ran: f64 = c.e.threads.iter().map(|t| t.stay.ran_s).sum();
    let scale = if seen > 0.0 { ran / seen } else { 1.0 };
    c.used().map(|u| (u.id, (u.busy_s - u.program_s * scale).max(of_known(c, u)))).collect()
}

/// CPU time of processes that were seen on a CPU whose busy time was not counted in full: what they used is known
/// all the same.
fn of_known(c: &Case<'_>, u: &CpuUse) -> f64 {
    let there = c.e.others.iter().filter(|o| u.uncounted_s > 0.0 && o.cpu == u.id);
    there.map(|o| o.cpu_s).sum::<f64>().min(c.e.seconds)
}

fn neighbour(c: &Case<'_>) -> Option<Finding> {
    let shares = of_others(c);
    let seen: f64 = c.e.threads.iter().map(|t| t.stay.ran_s).sum();
    let busy: f64 = c.used().map(|u| u.busy_s).sum();
    // Threads may have run elsewhere than they were seen: all CPUs together tell how much it was.
    let all = (busy - seen).max(0.0).min(shares.iter().map(|s| s.1).sum());
    let all = all.max(c.used().map(|u| of_known(c, u)).sum());
    let waited = c.sum(|t| t.stay.waited_s);
    let cost = c.part(all.min(waited));
    // Little in all may be much for one thread, for which the others wait.
    let longest = c.threads.iter().map(|t| t.stay.waited_s).fold(0.0, f64::max);
    let late = cost >= LEAST / 2.0 && longest >= 2.0 * LEAST * c.time;
    if all < LEAST * c.e.seconds || (cost < LEAST && !late) {
        return None;
    }
    let (cpu, most) = shares.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let named = c.named();
    let who = match named.as_slice() {
        [] => String::from("Programs that came and went"),
        [o] => format!("{} (pid {})", o.name, o.pid),
        [o, rest @ ..] => format!("{} (pid {}) and {} more", o.name, o.pid, rest.len()),
    };
    let verb = if named.len() == 1 { "uses" } else { "use" };
    let one = most >= 0.8 * all;
    let place = if one { format!("CPU {cpu}") } else { cpu_list(&c.usable) };
    let mut f = c.found(
        Kind::Neighbour,
        cost,
        format!(
            "{who} {verb} {place} beside the program, whose threads wait there for their turn."
        ),
    );
    let sum = format!("others used {:.2} CPUs of {}", all / c.e.seconds, c.m());
    let list = few(named.iter().map(|o| {
        format!("{} (pid {}) {:.2} on CPU {}", o.name, o.pid, o.cpu_s / c.e.seconds, o.cpu)
    }));
    f.evidence = vec![if list.is_empty() { sum } else { format!("{sum}: {list}") }, c.waiting()];
    f.remedy = String::from("keep the threads level beside it, or send it elsewhere");
    f.paste = match named.first() {
        _ if c.n() > 1 && c.m() > 1 && c.speeds().1 => c.balance(false),
        Some(o) => Some(renice(o)),
        None => {
            f.remedy.push_str("; evenly shows when they come");
            c.show()
        }
    };
    f.cpus = if one { CpuSet::single(cpu) } else { c.usable.clone() };
    f.threads = c
        .threads
        .iter()
        .filter(|t| t.cpu.is_some_and(|at| f.cpus.contains(at)))
        .map(|t| t.tid)
        .collect();
    Some(f)
}

fn renice(other: &crate::Other) -> String {
    format!("renice -n 19 -p {}", other.pid)
}

fn slow_cpu(c: &Case<'_>) -> Option<Finding> {
    let slow: CpuSet =
        c.used().filter(|u| c.speed(u) < SLOW && u.program_s > 0.0).map(|u| u.id).collect();
    let stolen: f64 = c.used().map(|u| u.stolen_s).sum();
    let part = stolen / (c.m() as f64 * c.e.seconds).max(1e-9);
    if part >= LEAST {
        let u = c.used().max_by(|a, b| a.stolen_s.total_cmp(&b.stolen_s))?;
        let mut f = c.found(
            Kind::SlowCpu,
            part,
            format!(
                "The host of this virtual machine gives its CPUs to others for {} of the time, CPU {} \
                 most.",
                percent(part),
                u.id
            ),
        );
        f.evidence = (c.used())
            .map(|u| format!("CPU {}: {} stolen", u.id, percent(u.stolen_s / c.e.seconds)))
            .take(4)
            .collect();
        f.remedy = String::from("keep the threads level, or ask for CPUs of its own");
        f.paste = c.balance(false);
        f.cpus = CpuSet::single(u.id);
        return Some(f);
    }
    // Each thread alone on a CPU that suits it loses nothing to a CPU that is not used.
    if slow.is_empty() || c.n() < 2 {
        return None;
    }
    let mean = c.used().map(|u| c.speed(u)).sum::<f64>() / c.m() as f64;
    let least = c.used().filter(|u| slow.contains(u.id)).map(|u| c.speed(u)).fold(1.0, f64::min);
    let cost = 1.0 - least / mean;
    let on: Vec<&&ThreadUse> =
        c.threads.iter().filter(|t| t.cpu.is_some_and(|at| slow.contains(at))).collect();
    let mut f = c.found(
        Kind::SlowCpu,
        cost,
        format!(
            "{} {} of the speed of the fastest, so that threads with the same work end later there{}.",
            cpu_list(&slow),
            if slow.len() == 1 {
                format!("computes at {}", percent(least))
            } else {
                format!("compute at {} and more", percent(least))
            },
            match on.as_slice() {
                [] => String::new(),
                all => format!(": {}", few(all.iter().map(|t| t.label()))),
            },
        ),
    );
    f.at_most = true;
    let capacities = || c.used().map(|u| u.capacity);
    if let (Some(least), Some(most)) = (capacities().min(), capacities().max())
        && least < most
    {
        f.evidence.push(format!("capacities by the kernel: {least} to {most} of {FULL_CAPACITY}"));
    }
    let measured = c.used().filter(|u| c.is_slow(u)).chain(c.fastest());
    let times: Vec<String> = measured
        .filter_map(|u| Some(format!("{:.0} us on CPU {}", u.work_ns?.0 / 1e3, u.id)))
        .collect();
    if times.len() > 1 {
        let times = times.join(", ");
        f.evidence.push(format!("the same short work takes {times} (measured meanwhile)"));
    }
    f.remedy = String::from("let threads take turns on slow and fast CPUs");
    f.paste = c.balance(false);
    f.threads = on.iter().map(|t| t.tid).collect();
    f.cpus = slow;
    Some(f)
}

/// One thread that takes longer than the others, which wait for it.
struct Heavy<'a> {
    thread: &'a ThreadUse,
    most: f64,
    balance: f64,
    cost: f64,
}

fn heavy<'a>(c: &Case<'a>) -> Option<Heavy<'a>> {
    // Who spins while others wait looks as if it had as much work.
    if c.n() < 2 || (!c.told() && (c.sleeps() < LEAST || c.e.spins(&c.threads))) {
        return None;
    }
    // A slow CPU makes time of the same work.
    let thread = *c.threads.iter().max_by(|a, b| c.work(a).total_cmp(&c.work(b)))?;
    let most = c.work(thread);
    let mean = c.sum(|t| c.work(t)) / c.n() as f64;
    let balance = mean / most.max(1e-9);
    let idle = thread.stay.blocked_s + thread.stay.spun_s.unwrap_or(0.0);
    let hardly = idle <= HARDLY_SLEEPS * (thread.stay.present_s - thread.stay.waited_s);
    // While it waits for a CPU the others wait for it, too: the cost is of what is its work.
    let cost = (1.0 - balance) * (thread.wanted_s() / c.time.max(1e-9)).min(1.0);
    let found = balance < LEVEL && hardly && cost >= LEAST;
    found.then_some(Heavy { thread, most, balance, cost })
}

/// The CPU of that thread and what the same short work took there and where it took least, where this may
/// be all that ails it: too little was measured to be sure.
fn perhaps_slow(c: &Case<'_>, heavy: &ThreadUse) -> Option<(CpuId, f64, f64)> {
    let own = c.used().find(|u| heavy.cpu == Some(u.id))?;
    let (took, error) = own.work_ns?;
    let (least, its_error) = c.fastest()?.work_ns?;
    let others = c.threads.iter().filter(|t| t.tid != heavy.tid).map(|t| c.work(t));
    let most = others.fold(0.0, f64::max);
    let explains = heavy.computed_s() * least <= took * most / LEVEL;
    let perhaps = took - least > error.hypot(its_error) && !c.is_slow(own);
    (perhaps && explains).then_some((own.id, took, least))
}

fn uneven_work(c: &Case<'_>) -> Option<Finding> {
    let Heavy { thread: heavy, most, balance, cost } = heavy(c)?;
    if perhaps_slow(c, heavy).is_some() {
        return None;
    }
    let mut rest: Vec<f64> =
        c.threads.iter().filter(|t| t.tid != heavy.tid).map(|t| c.work(t)).collect();
    rest.sort_by(f64::total_cmp);
    let median = rest.get(rest.len() / 2).copied().unwrap_or(0.0);
    let alone =
        if heavy.tid == heavy.pid { ", or computes alone between parallel parts" } else { "" };
    let mut f = c.found(
        Kind::UnevenWork,
        cost,
        format!(
            "{} has {:.1} times as much work as the others, which wait for it{alone}.",
            heavy.placed(),
            most / median.max(1e-3)
        ),
    );
    f.evidence = vec![format!(
        "it computed for {most:.2} s, the others for {:.2} to {:.2} s; load balance {}",
        rest.first().copied().unwrap_or(0.0),
        rest.last().copied().unwrap_or(0.0),
        percent(balance)
    )];
    f.evidence.extend(c.e.for_whom.clone());
    if c.n() > c.m() {
        f.remedy = String::from(
            "divide the work anew; until then, leave those with most work more of the CPUs",
        );
        f.paste = c.balance(true);
    } else if c.open_mp() {
        f.remedy = String::from(
            "divide the work anew: smaller pieces, or a dynamic schedule; each thread has a CPU, so \
             moving them changes nothing",
        );
        // Heeded by loops with schedule(runtime).
        f.paste = c.line("OMP_SCHEDULE=dynamic");
    } else {
        f.remedy = String::from(
            "divide the work anew, in smaller pieces; each thread has a CPU, so moving them changes nothing; \
             evenly shows who works when",
        );
        f.paste = c.show();
    }
    f.threads = vec![heavy.tid];
    f.cpus = heavy.cpu.map(CpuSet::single).unwrap_or_default();
    Some(f)
}

/// How far CPUs were idle although threads waited for CPUs.
fn idle_beside_waiting(c: &Case<'_>) -> f64 {
    let idle: f64 = c.used().map(|u| c.idle(u)).sum::<f64>();
    let by_threads = 1.0 - c.sum(|t| t.stay.ran_s) / (c.m() as f64 * c.time).max(1e-9);
    if c.e.cpus.is_empty() { by_threads.max(0.0) } else { idle / c.m() as f64 }
}

fn uneven_division(c: &Case<'_>) -> Option<Finding> {
    let (n, m) = (c.n(), c.m());
    let idle = idle_beside_waiting(c);
    if n <= m || n.is_multiple_of(m) || c.waits() < LEAST || c.sleeps() < ASLEEP || idle < LEAST {
        return None;
    }
    let (full, rest) = (n.div_ceil(m), n / m);
    let mut f = c.found(
        Kind::UnevenDivision,
        idle,
        format!(
            "{n} threads do not divide evenly among {m} CPUs: where {full} share a CPU they are late, \
             and those that share one by {rest} wait for them asleep."
        ),
    );
    f.evidence = vec![c.waiting(), format!("CPUs were idle for {} of the time", percent(idle))];
    f.remedy = format!("let all take turns, or start {} threads", m * rest.max(1));
    f.paste = c.balance(false);
    f.threads = c.threads.iter().map(|t| t.tid).collect();
    f.cpus = c.usable.clone();
    Some(f)
}

fn spinning(c: &Case<'_>, uneven: bool) -> Option<Finding> {
    if c.n() <= c.m() || c.waits() < LEAST {
        return None;
    }
    let settings = if c.open_mp() { endless_spinning(&c.e.environment) } else { Vec::new() };
    let (who, cost, at_most, seen): (Vec<&&ThreadUse>, f64, bool, String) = if let Some(lost) =
        c.lost_s()
    {
        let spun = c.sum(|t| t.stay.spun_s.unwrap_or(0.0));
        let who = c.threads.iter().filter(|t| t.stay.spun_s > Some(0.0)).collect();
        let mut seen = format!("they spun for {spun:.2} s of CPU time (by the probe)");
        if c.yields() {
            seen.push_str(&format!("; they yield meanwhile, for {lost:.2} s of it in vain"));
        }
        (who, c.part(lost), false, seen)
    } else {
        let who: Vec<&&ThreadUse> = c.threads.iter().filter(|t| t.yields()).collect();
        let system: f64 = who.iter().map(|t| t.stay.ran_s.min(t.system_s)).sum();
        let most = who.iter().map(|t| t.losses()).fold(0.0, f64::max);
        let seen = format!(
            "they gave up their CPU up to {most:.0} times for a second of CPU time, without going to \
             sleep; {system:.2} s of CPU time went into it at least"
        );
        (who, c.part(system), false, seen)
    };
    // Spinning without yielding looks like computing: a setting that asks for it is what can be known.
    let little = who.is_empty() || (c.told() && cost < LEAST);
    let by_setting = little && !settings.is_empty() && c.sleeps() < ASLEEP;
    if little && !by_setting {
        return None;
    }
    let (who, cost, at_most, seen) = if by_setting {
        let seen = format!("they never sleep, and {} of their time they wait", percent(c.waits()));
        (c.threads.iter().collect(), c.waits(), true, seen)
    } else {
        (who, cost, at_most, seen)
    };
    let list: Vec<String> = settings.iter().map(Spinning::assignment).collect();
    let because = if list.is_empty() { String::new() } else { format!(" ({})", list.join(", ")) };
    let mut f = c.found(
        Kind::Spinning,
        cost,
        format!(
            "{} spin while they wait{because}, on CPUs that the threads need for which they wait: \
             there are {} on {}.",
            few(who.iter().map(|t| t.placed())),
            counted(c.n(), "thread"),
            counted(c.m(), "CPU"),
        ),
    );
    f.at_most = at_most;
    if !c.told() && !by_setting {
        // The system calls are the least of it.
        f.cost = None;
    }
    f.evidence = vec![seen];
    f.evidence.extend(c.e.for_whom.clone());
    f.remedy = String::from("let them sleep, or start no more threads than there are CPUs");
    // What is set otherwise beside it would be stronger.
    let stronger: Vec<&str> =
        settings.iter().map(|s| s.name).filter(|name| *name != "OMP_WAIT_POLICY").collect();
    f.paste = if !stronger.is_empty() {
        c.line(&format!("env -u {} OMP_WAIT_POLICY=passive", stronger.join(" -u ")))
    } else if !settings.is_empty() {
        c.line("OMP_WAIT_POLICY=passive")
    } else if c.open_mp() {
        c.line(c.sleeping())
    } else {
        c.balance(uneven)
    };
    f.threads = who.iter().map(|t| t.tid).collect();
    f.cpus = c.usable.clone();
    Some(f)
}

fn mpi_oversubscribed(c: &Case<'_>, uneven: bool) -> Option<Finding> {
    let mpi = c.mpi()?;
    let (ranks, m) = (c.processes(), c.m());
    // While they start ranks sleep, too.
    if ranks <= m || c.waits() < LEAST || c.sleeps() >= 0.4 {
        return None;
    }
    // Where it is known what polling takes: much of the threads' time, or of their CPU time, of which others
    // may leave them little. Ranks that yield and hardly wait lose nothing by being many.
    let lost = c.lost_s().or_else(|| c.ranks_yield().then(|| c.sum(|t| c.yielding_s(t))));
    let little = |lost: f64| c.part(lost) < LEAST && lost < POLLS * c.sum(|t| t.stay.ran_s);
    if lost.is_some_and(little) {
        return None;
    }
    let mut f = c.found(
        Kind::MpiOversubscribed,
        c.lost_s().map_or(c.waits(), |lost| c.part(lost)),
        format!(
            "{ranks} MPI ranks on {} wait for messages by polling, on CPUs that the ranks need which \
             are to send them.",
            counted(m, "CPU")
        ),
    );
    f.at_most = c.lost_s().is_none();
    f.evidence = vec![c.waiting(), format!("ranks slept for {} of it", percent(c.sleeps()))];
    if let Some(lost) = c.lost_s() {
        f.evidence.push(format!("{lost:.2} s of CPU time went into polling (by the probe)"));
    }
    f.evidence.extend(c.e.for_whom.clone());
    f.remedy = format!("no more ranks than CPUs (-n {m}), or ranks that yield while they wait");
    // Open MPI yields where it knows of it; MPICH has no such setting.
    f.paste = if mpi == Runtime::OpenMpi && !c.yields() && !uneven {
        c.line(&format!("{}=1", OPEN_MPI_YIELDS[0]))
    } else {
        c.balance(uneven)
    };
    f.threads = c.threads.iter().map(|t| t.tid).collect();
    f.cpus = c.usable.clone();
    Some(f)
}

fn too_many_threads(c: &Case<'_>) -> Option<Finding> {
    let wanted = threads_wanted(&c.e.environment)?;
    let m = c.m();
    if !c.open_mp() || wanted <= m || c.n() <= m || c.waits() < LEAST {
        return None;
    }
    let mut f = c.found(
        Kind::TooManyThreads,
        c.waits(),
        format!(
            "OMP_NUM_THREADS={wanted} starts more threads than the {m} CPUs that the program may use, \
             and they take turns."
        ),
    );
    f.at_most = true;
    f.evidence = vec![c.waiting()];
    f.remedy = format!("{m} threads");
    f.paste = c.line(&format!("OMP_NUM_THREADS={m}"));
    f.threads = c.threads.iter().map(|t| t.tid).collect();
    f.cpus = c.usable.clone();
    Some(f)
}

fn too_few_threads(c: &Case<'_>) -> Option<Finding> {
    let wanted = threads_wanted(&c.e.environment)?;
    let (n, m) = (c.n(), c.m());
    let idle: f64 = c.used().map(|u| c.idle(u)).sum();
    let busy = c.part(c.sum(|t| t.stay.ran_s));
    if !c.open_mp() || wanted >= m || c.processes() > 1 || n > wanted || idle < 0.5 || busy < 0.5 {
        return None;
    }
    let free: CpuSet = c.used().filter(|u| c.idle(u) >= 0.3).map(|u| u.id).collect();
    let mut f = c.found(
        Kind::TooFewThreads,
        (idle / m as f64).min(1.0 - n as f64 / m as f64),
        format!(
            "OMP_NUM_THREADS={wanted} leaves {:.1} of {m} CPUs idle while the program computes.",
            idle
        ),
    );
    f.at_most = true;
    f.evidence = idle_words(c, &free).into_iter().collect();
    f.remedy = format!("{m} threads, if its loops have work for so many");
    f.paste = c.line(&format!("OMP_NUM_THREADS={m}"));
    f.threads = c.threads.iter().map(|t| t.tid).collect();
    f.cpus = free;
    Some(f)
}

fn blocked_io(c: &Case<'_>) -> Option<Finding> {
    // Not only those that compute: who waits for a disk hardly wants a CPU.
    let long = c.e.threads.iter().map(|t| t.stay.present_s).fold(0.0, f64::max);
    // What it waits for a CPU is no fault of the disk.
    let own = |t: &ThreadUse| t.stay.present_s - t.stay.waited_s;
    let stuck = |t: &&ThreadUse| t.disk_s >= 0.2 * own(t) && t.disk_s >= LEAST * long;
    let who: Vec<&ThreadUse> = c.e.threads.iter().filter(stuck).collect();
    let worst = who.iter().max_by(|a, b| a.disk_s.total_cmp(&b.disk_s))?;
    let all: f64 = who.iter().map(|t| t.disk_s).sum();
    let of: f64 = who.iter().map(|t| t.stay.present_s).sum();
    let where_ = worst.file.as_ref().map_or_else(String::new, |f| format!(" (mostly {f})"));
    let mut f = c.found(
        Kind::BlockedIo,
        all / of.max(1e-9),
        format!(
            "{} {} for a disk{where_} instead of computing.",
            few(who.iter().map(|t| t.label())),
            if who.len() == 1 { "waits" } else { "wait" },
        ),
    );
    f.evidence = vec![format!(
        "{} was in uninterruptible sleep for {} of its time (sampled), and on a CPU for {}",
        worst.label(),
        percent(worst.disk_s / worst.stay.present_s.max(1e-9)),
        percent(worst.stay.ran_s / worst.stay.present_s.max(1e-9))
    )];
    f.remedy = String::from(
        "write less often and more at a time, or to memory (/dev/shm); which system calls it waits in, \
         the line below tells",
    );
    f.paste = match c.e.pid {
        Some(_) => Some(format!("timeout 10 strace -f -c -w -p {}", worst.pid)),
        None => c.line("strace -f -c -w"),
    };
    f.cpus = worst.cpu.map(CpuSet::single).unwrap_or_default();
    f.threads = who.iter().map(|t| t.tid).collect();
    Some(f)
}

fn remote_memory(c: &Case<'_>) -> Option<Finding> {
    let pages: u64 = c.e.nodes.iter().map(|n| n.pages).sum();
    let ran: f64 = c.e.cpus.iter().map(|u| u.program_s).sum();
    if c.e.nodes.len() < 2 || pages < LEAST_PAGES || ran <= 0.0 {
        return None;
    }
    // The part of accesses that go to other nodes, if all pages are used alike by all.
    let mut remote = 0.0;
    let mut home = &c.e.nodes[0];
    for node in &c.e.nodes {
        let here = c.e.cpus.iter().filter(|u| node.cpus.contains(u.id)).map(|u| u.program_s);
        remote += here.sum::<f64>() / ran * (1.0 - node.pages as f64 / pages as f64);
        if node.pages > home.pages {
            home = node;
        }
    }
    // Spread over all nodes as the threads are, memory is where it should be.
    let crowded = home.pages as f64 / pages as f64;
    if remote < 0.3 || crowded < 0.8 {
        return None;
    }
    let far: Vec<&&ThreadUse> =
        c.threads.iter().filter(|t| t.cpu.is_some_and(|at| !home.cpus.contains(at))).collect();
    let who = match far.as_slice() {
        [] => String::new(),
        all => format!(": {}", few(all.iter().map(|t| t.placed()))),
    };
    let mut f = c.found(
        Kind::RemoteMemory,
        0.0,
        format!(
            "{} of the program's memory is on NUMA node {}, while {} of its CPU time is on other \
             nodes{who}.",
            percent(crowded),
            home.node,
            percent(remote)
        ),
    );
    f.cost = None;
    f.evidence = (c.e.nodes.iter())
        .map(|n| {
            format!("node {}: {} of its pages", n.node, percent(n.pages as f64 / pages as f64))
        })
        .collect();
    f.remedy = String::from(
        "let each thread touch its data first, or spread memory; how much it costs: evenly topology \
         --measure",
    );
    f.paste = c.line("numactl --interleave=all");
    f.threads = far.iter().map(|t| t.tid).collect();
    f.cpus = home.cpus.clone();
    Some(f)
}

impl Case<'_> {
    /// What no rule can decide.
    pub(crate) fn unknown(&self, findings: &[Finding]) -> Vec<String> {
        let mut all = Vec::new();
        if let Some(found) = heavy(self)
            && let Some((cpu, took, least)) = perhaps_slow(self, found.thread)
        {
            all.push(format!(
                "whether CPU {cpu} is slow or {} has more work than others: the same short work took \
                 {:.0} us there and {:.0} us on the fastest CPU, measured too seldom to be sure; watch it \
                 for longer",
                found.thread.label(),
                took / 1e3,
                least / 1e3
            ));
        }
        let spinning = findings.iter().any(|f| f.kind == Kind::Spinning);
        if !self.told() && !spinning && self.n() > 1 && self.sleeps() < ASLEEP {
            let more = if self.n() > self.m() && !self.n().is_multiple_of(self.m()) {
                "; if they do, evenly may gain more than the kernel"
            } else {
                ""
            };
            all.push(format!(
                "whether threads spin while they wait: none ever sleeps, and spinning looks like \
                 computing{more}"
            ));
        }
        all
    }

    /// What evenly would gain, by theory and by what was seen.
    pub(crate) fn prospect(&self, findings: &[Finding]) -> Prospect {
        let (n, m) = (self.n(), self.m());
        let none = |why: &str| Prospect {
            gain_at_most: Some(1.0),
            reason: format!("no benefit here: {why}"),
        };
        let has = |kind: Kind| findings.iter().any(|f| f.kind == kind);
        if has(Kind::Quota) {
            return none("a quota limits all threads together, wherever they run");
        }
        if has(Kind::NarrowMask) {
            return none("evenly never moves a thread out of its mask; mend that first");
        }
        if has(Kind::PinnedTogether) || self.is_bound() {
            let by = binding(&self.e.environment).filter(|_| self.open_mp());
            let by = by.map_or_else(String::new, |setting| format!(" by {setting}"));
            return none(&format!(
                "threads are bound{by}, and evenly leaves such threads where they are"
            ));
        }
        if n < 2 || m < 2 {
            return none("it takes two threads and two CPUs");
        }
        if has(Kind::BlockedIo) && self.waits() < LEAST {
            return none("its threads wait for a disk, not for CPUs");
        }
        let (speeds, unequal) = self.speeds();
        let (few, count) = (n as u32, u32::try_from(m).unwrap_or(u32::MAX));
        let bound = match &speeds {
            Some(s) if unequal => s.upper_bound(few),
            _ => theory::upper_bound(few, count),
        };
        if has(Kind::UnevenWork) {
            if n <= m {
                return none("each thread has a CPU, and moving them divides no work anew");
            }
            // No thread ends before its own work is done, nor all before the CPUs have done all.
            let most = self.threads.iter().map(|t| t.computed_s()).fold(0.0, f64::max);
            let least = most.max(self.sum(ThreadUse::computed_s) / m as f64);
            let gain = (self.time / least.max(1e-9)).min(bound.max(1.0) * 2.0).max(1.0);
            return Prospect {
                gain_at_most: Some(gain),
                reason: format!(
                    "at most {gain:.2} times as fast, if the busiest thread never waits for a CPU"
                ),
            };
        }
        if bound < LEAST_GAIN {
            if unequal {
                return none(&format!(
                    "{n} threads can share {m} CPUs as unequal as these are so that each gets about as much"
                ));
            }
            let how = if n <= m {
                String::from("each thread has a CPU to itself")
            } else {
                format!("{n} threads divide evenly among {m} CPUs")
            };
            return none(&format!("{how}, and no CPU is much slower than another"));
        }
        if self.waits() < ASLEEP && !unequal {
            return none("the threads hardly wait for CPUs");
        }
        // Who sleeps while it waits leaves CPUs idle, and more than these cannot be won.
        let idle = idle_beside_waiting(self);
        let known = self.sleeps() >= ASLEEP && !unequal && !self.e.cpus.is_empty();
        let gain = if known { bound.min(1.0 / (1.0 - idle).max(0.1)) } else { bound };
        if gain < LEAST_GAIN {
            return none("the kernel already keeps the CPUs busy");
        }
        let short = match self.e.phase {
            Some((length, _)) if length < 0.07 => {
                "; its phases are short, which leaves little of that"
            }
            _ => "",
        };
        let against = if known {
            "as it is"
        } else {
            "as threads that stay where they are; the kernel may reach much of that"
        };
        Prospect {
            gain_at_most: Some(gain),
            reason: format!("at most {gain:.2} times as fast {against}{short}"),
        }
    }

    /// How fast each CPU is for the program: capacity, less what others and the host take. And whether
    /// they differ.
    fn speeds(&self) -> (Option<Speeds>, bool) {
        let others = of_others(self);
        let list: Vec<f64> = self
            .used()
            .map(|u| {
                let taken = others.iter().find(|o| o.0 == u.id).map_or(0.0, |o| o.1) + u.stolen_s;
                // One that shares a CPU fairly with k others still has its part of it.
                let left = (1.0 - taken / self.e.seconds.max(1e-9)).clamp(0.1, 1.0);
                left * self.speed(u)
            })
            .collect();
        let least = list.iter().copied().fold(1.0, f64::min);
        let text: Vec<String> = list.iter().map(|s| format!("{s:.6}")).collect();
        let known = list.len() == self.m() && self.e.source == Source::Live;
        let speeds = if known { text.join(",").parse().ok() } else { None };
        (speeds, known && least < SLOW)
    }
}

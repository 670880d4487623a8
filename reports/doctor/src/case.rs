//! The evidence, with what several rules compute from it: sums over threads, speeds of CPUs, which threads
//! yield.
//!
//! Invariant: figures only; nothing here decides what is a finding.

use crate::settings::{endless_spinning, open_mpi_yields};
use evenly_evidence::{CpuUse, Evidence, Other, Runtime, Source, ThreadUse};
use evenly_model::efficiency::{Basis, Efficiency};
use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, Nanos};
use evenly_phase::COST;
use evenly_theory::{Shape, Speeds, locked_time, static_time};

/// A cause that costs a smaller share of the threads' time is not reported.
pub(crate) const LEAST: f64 = 0.05;
/// A smaller gain is not worth an attempt.
pub(crate) const LEAST_GAIN: f64 = 1.02;
/// Threads that sleep for less than this share of their time show no waiting.
pub(crate) const ASLEEP: f64 = 0.02;
/// Phases that are longer have several balancing periods, in seconds.
const SHORT_PHASE: f64 = 0.07;
/// A CPU with a smaller share of the fastest one's speed is slow.
pub(crate) const SLOW: f64 = 0.9;
/// A CPU counts as slower than another where their measured speeds differ by so many standard errors.
const SURELY: f64 = 4.0;
/// A CPU that was idle for more than this share of the time has a low clock when its speed is measured.
const MOSTLY_BUSY: f64 = 0.5;
/// A call of sched_yield(2) that hands the CPU over takes less than this, in seconds: 0.6 to 1.8 us were
/// measured, including what a rank of Open MPI does between two calls.
const HANDING_OVER: f64 = 5e-6;

/// A part as percent with one decimal, such as 12.3 %.
pub(crate) fn percent(part: f64) -> String {
    format!("{:.0} %", 100.0 * part)
}

/// The first three names, and the number of the others.
pub(crate) fn few(names: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = names.collect();
    let shown = all.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > 3 { format!("{shown} and {} more", all.len() - 3) } else { shown }
}

/// The evidence, with what several rules compute from it.
pub(crate) struct Case<'a> {
    pub(crate) e: &'a Evidence,
    pub(crate) threads: Vec<&'a ThreadUse>,
    /// CPUs that any of the threads may use.
    pub(crate) usable: CpuSet,
    /// T: the longest stay.
    pub(crate) time: f64,
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

    /// Whether some threads are known to spin while they wait, even if they sleep at times: at the start of an
    /// MPI program, or after spinning for a while. Their CPU time is then not all work.
    pub(crate) fn spins(&self) -> bool {
        [Runtime::OpenMpi, Runtime::Mpich].iter().any(|r| self.e.runtimes.contains(r))
            || !endless_spinning(&self.e.environment).is_empty()
            || self.threads.iter().any(|t| t.yields())
    }

    /// Where the time of the threads that compute went.
    pub(crate) fn efficiency(&self) -> Option<Efficiency> {
        let known = self.threads.iter().all(|t| t.stay.spun_s.is_some());
        let hides = self.spins() && !known;
        let sampled = known && self.threads.iter().any(|t| t.sampled);
        Efficiency::of(self.threads.iter().map(|t| t.stay))
            .map(|e| if hides { Efficiency { factors: None, ..e } } else { e })
            .map(|e| if sampled { Efficiency { basis: Basis::Samples, ..e } } else { e })
    }

    /// The number of threads that compute.
    pub(crate) fn n(&self) -> usize {
        self.threads.len()
    }

    /// m: how many CPUs the program could use.
    pub(crate) fn m(&self) -> usize {
        self.usable.len().max(1)
    }

    pub(crate) fn sum(&self, f: impl Fn(&ThreadUse) -> f64) -> f64 {
        self.threads.iter().map(|t| f(t)).sum()
    }

    /// This time as a share of the threads' time.
    pub(crate) fn part(&self, seconds: f64) -> f64 {
        (seconds / (self.n() as f64 * self.time).max(1e-9)).clamp(0.0, 1.0)
    }

    /// The share of the threads' time in which they waited for a CPU.
    pub(crate) fn waits(&self) -> f64 {
        self.part(self.sum(|t| t.stay.waited_s))
    }

    /// The share of the threads' time in which they slept.
    pub(crate) fn sleeps(&self) -> f64 {
        self.part(self.sum(|t| t.stay.blocked_s))
    }

    pub(crate) fn cpu(&self, id: CpuId) -> Option<&CpuUse> {
        self.e.cpus.iter().find(|c| c.id == id)
    }

    /// CPUs with their use, of those that the threads may use.
    pub(crate) fn used(&self) -> impl Iterator<Item = &CpuUse> {
        self.e.cpus.iter().filter(|c| self.usable.contains(c.id))
    }

    /// The CPU on which the same work took the shortest time. An idle CPU may be faster than that.
    pub(crate) fn fastest(&self) -> Option<&CpuUse> {
        let known = self.used().filter_map(|u| Some((u, u.work_ns?.0)));
        known.min_by(|a, b| a.1.total_cmp(&b.1)).map(|found| found.0)
    }

    /// Whether measurements show that a CPU is slow, by more than their errors.
    pub(crate) fn is_slow(&self, u: &CpuUse) -> bool {
        let fastest = self.fastest().and_then(|f| f.work_ns);
        let (Some((least, its_error)), Some((took, error))) = (fastest, u.work_ns) else {
            return false;
        };
        let sure = took - least > SURELY * its_error.hypot(error);
        sure && least < SLOW * took && u.busy_s + u.uncounted_s >= MOSTLY_BUSY * self.e.seconds
    }

    /// The speed of a CPU relative to the fastest: as the kernel reports it, or the measured one if that is
    /// lower.
    pub(crate) fn speed(&self, u: &CpuUse) -> f64 {
        let most = self.used().map(|u| u.capacity).max().unwrap_or(FULL_CAPACITY).max(1);
        let reported = f64::from(u.capacity) / f64::from(most);
        let fastest = self.fastest().and_then(|f| f.work_ns).filter(|_| self.is_slow(u));
        match (fastest, u.work_ns) {
            (Some((least, _)), Some((took, _))) => reported.min(least / took),
            _ => reported,
        }
    }

    /// What a thread computed, in seconds of the fastest CPU.
    pub(crate) fn work(&self, t: &ThreadUse) -> f64 {
        let speed = t.cpu.and_then(|at| self.used().find(|u| u.id == at)).map(|u| self.speed(u));
        t.computed_s() * speed.unwrap_or(1.0)
    }

    /// The share of the observed time in which a CPU was idle.
    pub(crate) fn idle(&self, c: &CpuUse) -> f64 {
        (1.0 - (c.busy_s + c.uncounted_s + c.stolen_s) / self.e.seconds.max(1e-9)).clamp(0.0, 1.0)
    }

    /// Whether a probe reported how long each thread spun.
    pub(crate) fn spin_is_known(&self) -> bool {
        !self.threads.is_empty() && self.threads.iter().all(|t| t.stay.spun_s.is_some())
    }

    pub(crate) fn open_mp(&self) -> bool {
        [Runtime::Gomp, Runtime::Omp].iter().any(|r| self.e.runtimes.contains(r))
    }

    pub(crate) fn mpi(&self) -> Option<Runtime> {
        [Runtime::OpenMpi, Runtime::Mpich].into_iter().find(|r| self.e.runtimes.contains(r))
    }

    /// How many processes have threads that compute.
    pub(crate) fn processes(&self) -> usize {
        let mut pids: Vec<i32> = self.threads.iter().map(|t| t.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids.len()
    }

    /// Whether threads yield in a loop while they wait.
    pub(crate) fn yields(&self) -> bool {
        self.ranks_yield() || self.threads.iter().any(|t| t.yields())
    }

    /// Whether the threads are MPI ranks that yield. If one does, all do, though not all can be seen to: a rank
    /// that yields to a thread which keeps the CPU for long does so rarely.
    pub(crate) fn ranks_yield(&self) -> bool {
        match self.mpi() {
            Some(Runtime::OpenMpi) if open_mpi_yields(&self.e.environment) => true,
            Some(_) => self.threads.iter().any(|t| t.yields()),
            None => false,
        }
    }

    /// The CPU time that yielding took from others. A thread that yields gives its CPU to another one, which
    /// either computes for milliseconds, or waits as well and returns the CPU at once. So calls that handed the
    /// CPU over, however many, delayed computing threads only by the time of the calls, which is short compared
    /// with those milliseconds. The time of calls in vain is lost.
    pub(crate) fn yielding_s(&self, t: &ThreadUse) -> f64 {
        (t.system_s - HANDING_OVER * t.preempted as f64).max(0.0)
    }

    /// The CPU time that spinning took from others. None if no probe reported spinning.
    pub(crate) fn lost_s(&self) -> Option<f64> {
        let ranks = self.ranks_yield();
        let lost = |t: &ThreadUse| {
            let spun = t.stay.spun_s.unwrap_or(0.0);
            if ranks || t.yields() { spun.min(self.yielding_s(t)) } else { spun }
        };
        self.spin_is_known().then(|| self.sum(lost))
    }

    /// The time between two barriers, in seconds, where a probe reported barriers of threads that are too frequent for
    /// a balancer that acts once a period.
    pub(crate) fn meets_every(&self) -> Option<f64> {
        let (_, phases) = self.e.phase.filter(|_| self.spin_is_known() && self.mpi().is_none())?;
        let every = self.time / phases as f64;
        (self.n() > 1 && every < SHORT_PHASE).then_some(every)
    }

    /// Whether moving one thread in each phase gains as much as is worth it, by theory.
    pub(crate) fn gains_in_phases(&self) -> bool {
        let (Some((length, _)), Ok(n), Ok(m)) =
            (self.e.phase, u32::try_from(self.n()), u32::try_from(self.m()))
        else {
            return false;
        };
        let length = Nanos::from_secs_f64(length);
        let Ok(shape) = Shape::new(n, m) else { return false };
        let gain = static_time(shape, length).over(&locked_time(shape, None, length, COST));
        self.meets_every().is_some() && gain >= LEAST_GAIN
    }

    /// Other processes that used a considerable share of the CPUs.
    pub(crate) fn named(&self) -> Vec<&'a Other> {
        let much = |o: &&Other| o.cpu_s >= LEAST * self.e.seconds && self.usable.contains(o.cpu);
        self.e.others.iter().filter(much).collect()
    }

    /// Whether a thread may use one CPU only, though the program may use more.
    pub(crate) fn is_bound(&self) -> bool {
        self.m() > 1 && self.threads.iter().any(|t| t.mask.len() == 1)
    }

    /// The speed of each CPU for the program: its capacity, less the time that other programs and the host
    /// take; and whether the speeds differ.
    pub(crate) fn speeds(&self) -> (Option<Speeds>, bool) {
        let others = of_others(self);
        let list: Vec<f64> = self
            .used()
            .map(|u| {
                let taken = others.iter().find(|o| o.0 == u.id).map_or(0.0, |o| o.1) + u.stolen_s;
                // A thread that shares a CPU fairly with others still gets its share.
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

/// CPU time of other programs on each CPU that the threads may use.
pub(crate) fn of_others(c: &Case<'_>) -> Vec<(CpuId, f64)> {
    // The CPUs on which threads ran are sampled; their CPU time is exact.
    let seen: f64 = c.used().map(|u| u.program_s).sum();
    let ran: f64 = c.e.threads.iter().map(|t| t.stay.ran_s).sum();
    let scale = if seen > 0.0 { ran / seen } else { 1.0 };
    c.used().map(|u| (u.id, (u.busy_s - u.program_s * scale).max(of_known(c, u)))).collect()
}

/// CPU time of the other processes that were seen on a CPU whose busy time was not counted in full: theirs is
/// known nevertheless.
pub(crate) fn of_known(c: &Case<'_>, u: &CpuUse) -> f64 {
    let there = c.e.others.iter().filter(|o| u.uncounted_s > 0.0 && o.cpu == u.id);
    there.map(|o| o.cpu_s).sum::<f64>().min(c.e.seconds)
}

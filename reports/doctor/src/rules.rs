//! The rules: each looks for one cause, in the order in which causes hide one another.
//!
//! Invariant: a rule reports a finding only where its cause was observed to cost something, and its sentence
//! states only what was observed.

use crate::case::{ASLEEP, Case, LEAST, SLOW, few, of_known, of_others, percent};
use crate::paste::{pattern, renice};
use crate::settings::{OPEN_MPI_YIELDS, binding, threads_wanted};
use crate::spinning::spinning;
use crate::{Finding, Kind};
use evenly_evidence::{Runtime, ThreadUse};
use evenly_model::{CpuId, CpuSet, FULL_CAPACITY, counted, shell_quoted};

/// The least share of the threads' time that a quota must withhold.
const LEAST_HELD: f64 = 0.02;
/// Work is uneven where the load balance is below this.
const LEAST_BALANCE: f64 = 0.9;
/// A thread with more work than the others, which they wait for, may sleep or spin for this share of its time
/// outside run queues.
const HARDLY_SLEEPS: f64 = 0.25;
/// Fewer pages fit into caches: this is 16 MiB, where pages have 4 KiB.
const LEAST_PAGES: u64 = 4_096;
/// Added to the remedy where a launcher may have bound ranks.
const MPI_BINDS: &str = " (mpirun --bind-to none, where it is mpirun that binds)";
/// Polling is a cause if it takes more than this share of the program's CPU time.
const POLLS: f64 = 0.1;

impl Case<'_> {
    /// Which of these threads waited longest for a CPU, and on which one.
    fn worst(&self, threads: &[i32]) -> Option<String> {
        let among = self.threads.iter().filter(|t| threads.contains(&t.tid));
        let t = among.max_by(|a, b| a.stay.waited_s.total_cmp(&b.stay.waited_s))?;
        let part = t.stay.waited_s / t.stay.present_s.max(1e-9);
        (part >= LEAST)
            .then(|| format!("{} waited longest: {} of its time", t.placed(), percent(part)))
    }

    fn waiting(&self) -> String {
        format!("threads waited for a CPU for {} of their time", percent(self.waits()))
    }
}

/// All findings, in the order of the rules.
pub(crate) fn all(c: &Case<'_>) -> Vec<Finding> {
    let quota = quota(c);
    let narrow = narrow_mask(c);
    let pinned = if narrow.is_none() { pinned_together(c) } else { None };
    // These explain why threads share CPUs.
    let explained = quota.is_some() || narrow.is_some() || pinned.is_some();
    // With the whole cpuset each thread has a CPU, and spinning costs nothing then.
    let mask_alone = narrow.is_some() && c.n() <= c.e.cpuset.len();
    let mut all: Vec<Finding> = [quota, narrow, pinned].into_iter().flatten().collect();
    all.extend([neighbour(c), slow_cpu(c), blocked_io(c), remote_memory(c)].into_iter().flatten());
    let uneven = uneven_work(c);
    let mut spinning = spinning(c, uneven.is_some());
    if !explained {
        let mpi = mpi_oversubscribed(c, uneven.is_some());
        // Ranks that poll also spin; the rule for MPI knows more about them.
        if c.mpi().is_some() && c.processes() > c.m() && !c.open_mp() {
            spinning = None;
        }
        let many = if mpi.is_none() { too_many_threads(c) } else { None };
        if mpi.is_none() && many.is_none() && uneven.is_none() {
            all.extend(uneven_division(c));
        }
        all.extend([mpi, many, too_few_threads(c)].into_iter().flatten());
    }
    all.extend([uneven, spinning.filter(|_| !mask_alone)].into_iter().flatten());
    for f in &mut all {
        // Where all threads are affected, the one that waited longest is named.
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
    // Withheld, as a share of the CPU time that the program got or would have got.
    let cost = q.held_s / (q.held_s + used).max(1e-9);
    if q.times < 2 || cost < LEAST_HELD {
        return None;
    }
    let (n, quota) = (c.n(), q.cpus);
    let mut f = Finding::new(
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
    let mut f = Finding::new(
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
    f.remedy = format!("let them use {} too", spare.in_words());
    f.paste = match (&bound, c.e.pid) {
        (Some(_), _) => c.unbound(""),
        (None, Some(_)) => c.unpin(&c.threads),
        (None, None) if c.mpi().is_some() => {
            f.remedy.push_str(MPI_BINDS);
            c.unbound("").or_else(|| c.line(&format!("taskset -c {}", c.e.cpuset)))
        }
        // Leaving out the taskset that narrowed the mask is enough.
        (None, None) => match c.e.command.as_slice() {
            [first, option, _, rest @ ..]
                if first.rsplit('/').next() == Some("taskset") && option == "-c" =>
            {
                Some(rest.iter().map(|w| shell_quoted(w)).collect::<Vec<_>>().join(" "))
            }
            _ => c.line(&format!("taskset -c {}", c.e.cpuset)),
        },
    };
    f.threads = c.threads.iter().map(|t| t.tid).collect();
    f.cpus = c.usable.clone();
    Some(f)
}

/// For what share of the time these CPUs were idle, where that is known.
fn idle_words(c: &Case<'_>, cpus: &CpuSet) -> Option<String> {
    let idle: Vec<f64> = cpus.iter().filter_map(|id| Some(c.idle(c.cpu(id)?))).collect();
    let mean = idle.iter().sum::<f64>() / idle.len().max(1) as f64;
    (mean >= LEAST).then(|| format!("{} idle for {} of the time", cpus.in_words(), percent(mean)))
}

fn pinned_together(c: &Case<'_>) -> Option<Finding> {
    // The CPU to which most threads are pinned, each to it alone.
    let on = |cpu: CpuId| c.threads.iter().filter(move |t| t.mask == CpuSet::single(cpu));
    let (cpu, k) = c.usable.iter().map(|cpu| (cpu, on(cpu).count())).max_by_key(|p| p.1)?;
    let pinned: Vec<&&ThreadUse> = on(cpu).collect();
    let waited: f64 = pinned.iter().map(|t| t.stay.waited_s).sum();
    // A CPU has room if it has two fewer of the threads, or if it was idle.
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
    let mut f = Finding::new(
        Kind::PinnedTogether,
        c.part(waited),
        format!(
            "{} are pinned to CPU {cpu}{by} and take turns on it, while there is room on {}: {names}.",
            counted(k, "thread"),
            free.in_words(),
        ),
    );
    let share = waited / pinned.iter().map(|t| t.stay.present_s).sum::<f64>().max(1e-9);
    f.evidence =
        vec![format!("these threads waited for CPU {cpu} for {} of their time", percent(share))];
    f.evidence.extend(idle_words(c, &free));
    f.remedy = String::from("unpin them, or pin each to a CPU of its own");
    f.paste = match (&bound, c.e.pid) {
        (Some(_), _) => c.unbound(""),
        (None, Some(_)) => {
            let those: Vec<&ThreadUse> = pinned.iter().map(|t| **t).collect();
            c.unpin(&those)
        }
        (None, None) if c.mpi().is_some() && c.processes() > 1 => {
            f.remedy.push_str(MPI_BINDS);
            c.unbound("")
        }
        // The program pinned its threads itself: they can be unpinned while it runs.
        (None, None) => {
            let pid = pinned.first().map(|t| t.pid);
            let main = c.e.threads.iter().find(|t| Some(t.tid) == pid);
            main.map(|t| {
                let (name, cpus) = (pattern(&t.name), &c.e.cpuset);
                format!("for p in $(pgrep -x {name}); do taskset -apc {cpus} $p; done")
            })
        }
    };
    f.threads = pinned.iter().map(|t| t.tid).collect();
    f.cpus = CpuSet::single(cpu);
    Some(f)
}

fn neighbour(c: &Case<'_>) -> Option<Finding> {
    let shares = of_others(c);
    let seen: f64 = c.e.threads.iter().map(|t| t.stay.ran_s).sum();
    let busy: f64 = c.used().map(|u| u.busy_s).sum();
    // Threads may have run on other CPUs than the samples show; the total over all CPUs is exact.
    let all = (busy - seen).max(0.0).min(shares.iter().map(|s| s.1).sum());
    let all = all.max(c.used().map(|u| of_known(c, u)).sum());
    let waited = c.sum(|t| t.stay.waited_s);
    let cost = c.part(all.min(waited));
    // A small total can be much for one thread, for which the others wait.
    let longest = c.threads.iter().map(|t| t.stay.waited_s).fold(0.0, f64::max);
    let late = cost >= LEAST / 2.0 && longest >= 2.0 * LEAST * c.time;
    if all < LEAST * c.e.seconds || (cost < LEAST && !late) {
        return None;
    }
    let (cpu, most) = shares.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let named = c.named();
    let who = match named.as_slice() {
        [] => String::from("Short-lived programs"),
        [o] => format!("{} (pid {})", o.name, o.pid),
        [o, rest @ ..] => format!("{} (pid {}) and {} more", o.name, o.pid, rest.len()),
    };
    let verb = if named.len() == 1 { "uses" } else { "use" };
    let one = most >= 0.8 * all;
    let place = if one { format!("CPU {cpu}") } else { c.usable.in_words() };
    let mut f = Finding::new(
        Kind::Neighbour,
        cost,
        format!("{who} {verb} {place}, and threads of the program wait there."),
    );
    let sum = format!("others used {:.2} CPUs of {}", all / c.e.seconds, c.m());
    let list = few(named.iter().map(|o| {
        format!("{} (pid {}) {:.2} on CPU {}", o.name, o.pid, o.cpu_s / c.e.seconds, o.cpu)
    }));
    f.evidence = vec![if list.is_empty() { sum } else { format!("{sum}: {list}") }, c.waiting()];
    f.remedy = String::from("balance the threads around this load, or move the load elsewhere");
    f.paste = match named.first() {
        _ if c.n() > 1 && c.m() > 1 && c.speeds().1 => c.balance(),
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

fn slow_cpu(c: &Case<'_>) -> Option<Finding> {
    let slow: CpuSet =
        c.used().filter(|u| c.speed(u) < SLOW && u.program_s > 0.0).map(|u| u.id).collect();
    let stolen: f64 = c.used().map(|u| u.stolen_s).sum();
    let part = stolen / (c.m() as f64 * c.e.seconds).max(1e-9);
    if part >= LEAST {
        let u = c.used().max_by(|a, b| a.stolen_s.total_cmp(&b.stolen_s))?;
        let mut f = Finding::new(
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
        f.remedy = String::from("balance the threads, or ask for dedicated CPUs");
        f.paste = c.balance();
        f.cpus = CpuSet::single(u.id);
        return Some(f);
    }
    // A slow CPU that is not used costs nothing, nor does one beside a single thread.
    if slow.is_empty() || c.n() < 2 {
        return None;
    }
    let mean = c.used().map(|u| c.speed(u)).sum::<f64>() / c.m() as f64;
    let least = c.used().filter(|u| slow.contains(u.id)).map(|u| c.speed(u)).fold(1.0, f64::min);
    let cost = 1.0 - least / mean;
    let on: Vec<&&ThreadUse> =
        c.threads.iter().filter(|t| t.cpu.is_some_and(|at| slow.contains(at))).collect();
    let mut f = Finding::new(
        Kind::SlowCpu,
        cost,
        format!(
            "{} {} of the speed of the fastest, so that threads with the same work end later there{}.",
            slow.in_words(),
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
    f.paste = c.balance();
    f.threads = on.iter().map(|t| t.tid).collect();
    f.cpus = slow;
    Some(f)
}

/// One thread that takes longer than the others, which wait for it.
pub(crate) struct Heavy<'a> {
    pub(crate) thread: &'a ThreadUse,
    most: f64,
    balance: f64,
    cost: f64,
}

pub(crate) fn heavy<'a>(c: &Case<'a>) -> Option<Heavy<'a>> {
    // Without a probe, a thread that spins while it waits seems to have as much work as the others.
    if c.n() < 2 || (!c.spin_is_known() && (c.sleeps() < LEAST || c.spins())) {
        return None;
    }
    // The same work takes longer on a slow CPU.
    let thread = *c.threads.iter().max_by(|a, b| c.work(a).total_cmp(&c.work(b)))?;
    let most = c.work(thread);
    let mean = c.sum(|t| c.work(t)) / c.n() as f64;
    let balance = mean / most.max(1e-9);
    let idle = thread.stay.blocked_s + thread.stay.spun_s.unwrap_or(0.0);
    let hardly = idle <= HARDLY_SLEEPS * (thread.stay.present_s - thread.stay.waited_s);
    // The others also wait for it while it waits for a CPU; the cost is that of its work alone.
    let cost = (1.0 - balance) * (thread.wanted_s() / c.time.max(1e-9)).min(1.0);
    // Nobody waits for a thread that computes no longer than the others, however fast its CPU is.
    let longer = c.sum(|t| t.computed_s()) < LEAST_BALANCE * c.n() as f64 * thread.computed_s();
    let found = balance < LEAST_BALANCE && longer && hardly && cost >= LEAST;
    found.then_some(Heavy { thread, most, balance, cost })
}

/// The CPU of that thread, and the times of the same short work there and on the fastest CPU, where a slow CPU
/// may explain all but was measured too seldom to be sure.
pub(crate) fn perhaps_slow(c: &Case<'_>, heavy: &ThreadUse) -> Option<(CpuId, f64, f64)> {
    let own = c.used().find(|u| heavy.cpu == Some(u.id))?;
    let (took, error) = own.work_ns?;
    let (least, its_error) = c.fastest()?.work_ns?;
    let others = c.threads.iter().filter(|t| t.tid != heavy.tid).map(|t| c.work(t));
    let most = others.fold(0.0, f64::max);
    let explains = heavy.computed_s() * least <= took * most / LEAST_BALANCE;
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
    let mut f = Finding::new(
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
            "divide the work again; until then, give the threads with most work larger CPU shares",
        );
        f.paste = c.balance_work(true);
    } else if c.open_mp() {
        f.remedy = String::from(
            "divide the work again: smaller pieces, or a dynamic schedule; each thread has a CPU, so \
             moving them changes nothing",
        );
        // Only loops with schedule(runtime) use it.
        f.paste = c.line("OMP_SCHEDULE=dynamic");
    } else {
        f.remedy = String::from(
            "divide the work again, in smaller pieces; each thread has a CPU, so moving them changes nothing; \
             evenly shows who works when",
        );
        f.paste = c.show();
    }
    f.threads = vec![heavy.tid];
    f.cpus = heavy.cpu.map(CpuSet::single).unwrap_or_default();
    Some(f)
}

/// For what share of the time CPUs were idle although threads waited for CPUs.
pub(crate) fn idle_beside_waiting(c: &Case<'_>) -> f64 {
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
    let who = match rest {
        1 => String::from("those that share a CPU are late, and the others"),
        _ => format!("where {full} share a CPU they are late, and where {rest} do they"),
    };
    let mut f = Finding::new(
        Kind::UnevenDivision,
        idle,
        format!(
            "{n} threads do not divide evenly among {m} CPUs: {who} sleep until these have come, too."
        ),
    );
    f.evidence = vec![c.waiting(), format!("CPUs were idle for {} of the time", percent(idle))];
    f.remedy = format!("let all take turns, or start {} threads", m * rest.max(1));
    f.paste = c.balance();
    f.threads = c.threads.iter().map(|t| t.tid).collect();
    f.cpus = c.usable.clone();
    Some(f)
}

fn mpi_oversubscribed(c: &Case<'_>, uneven: bool) -> Option<Finding> {
    let mpi = c.mpi()?;
    let (ranks, m) = (c.processes(), c.m());
    // Ranks also sleep while they start.
    if ranks <= m || c.waits() < LEAST || c.sleeps() >= 0.4 {
        return None;
    }
    // Where the time of polling is known, it has to be much of the threads' time, or of their CPU time, of
    // which other programs may leave them little. Many ranks that yield and hardly wait lose nothing.
    let lost = c.lost_s().or_else(|| c.ranks_yield().then(|| c.sum(|t| c.yielding_s(t))));
    let little = |lost: f64| c.part(lost) < LEAST && lost < POLLS * c.sum(|t| t.stay.ran_s);
    if lost.is_some_and(little) {
        return None;
    }
    let mut f = Finding::new(
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
    // Open MPI has a setting for yielding, MPICH has none.
    f.paste = if mpi == Runtime::OpenMpi && !c.yields() && !uneven {
        c.line(&format!("{}=1", OPEN_MPI_YIELDS[0]))
    } else {
        c.balance_work(uneven)
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
    let mut f = Finding::new(
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
    if c.gains_in_phases() {
        f.remedy.push_str(&format!("; if there have to be {}: evenly run", c.n()));
    }
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
    let mut f = Finding::new(
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
    // Not only threads that compute: one that waits for a disk uses little CPU time.
    let long = c.e.threads.iter().map(|t| t.stay.present_s).fold(0.0, f64::max);
    // Time in run queues is not the disk's.
    let own = |t: &ThreadUse| t.stay.present_s - t.stay.waited_s;
    let stuck = |t: &&ThreadUse| t.disk_s >= 0.2 * own(t) && t.disk_s >= LEAST * long;
    let who: Vec<&ThreadUse> = c.e.threads.iter().filter(stuck).collect();
    let worst = who.iter().max_by(|a, b| a.disk_s.total_cmp(&b.disk_s))?;
    let all: f64 = who.iter().map(|t| t.disk_s).sum();
    let of: f64 = who.iter().map(|t| t.stay.present_s).sum();
    let where_ = worst.file.as_ref().map_or_else(String::new, |f| format!(" (mostly {f})"));
    let mut f = Finding::new(
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
        "write less often and more at a time, or to memory (/dev/shm); the line below shows the system \
         calls that it waits in",
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
    // The share of accesses to other nodes, if all threads use all pages equally.
    let mut remote = 0.0;
    let mut home = &c.e.nodes[0];
    for node in &c.e.nodes {
        let here = c.e.cpus.iter().filter(|u| node.cpus.contains(u.id)).map(|u| u.program_s);
        remote += here.sum::<f64>() / ran * (1.0 - node.pages as f64 / pages as f64);
        if node.pages > home.pages {
            home = node;
        }
    }
    // Memory that is spread over the nodes as the threads are is where it should be.
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
    let mut f = Finding::new(
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

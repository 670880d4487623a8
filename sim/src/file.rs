//! Scenario files (TOML, described in `docs/simulate.md`): from text to a scenario that can be run.
//!
//! Invariant: what [`parse`] returns runs without a panic and ends. Each message is one line that
//! names the key, what was found, and what is needed.

use crate::run::{IDEAL, MOST_CPUS, MOST_MASK_BITS, MOST_THREADS};
use crate::text::{FileError, Text, parse_text};
use crate::{
    Barrier, Costs, Counters, Cpu, DriverOptions, Hotplug, Kernel, Program, Readings, Scenario,
    Scope, Sharing, Start, Stranger, Thread,
};
use evenly_engine::{GuardOptions, Period, PeriodOptions};
use evenly_model::stats::Random;
use evenly_model::{CpuId, CpuSet, Nanos};
use evenly_policies::{by_name, meant, names};

/// The most tasks of others.
const MOST_STRANGERS: u32 = 100_000;
/// The most CPU time that all programs together may need.
const MOST_WORK: Nanos = Nanos(10_000_000_000_000_000);

pub(crate) fn wrong<T>(key: impl Into<String>, problem: impl Into<String>) -> Result<T, FileError> {
    Err(FileError::Key { key: key.into(), problem: problem.into() })
}

/// A scenario file, checked.
#[derive(Debug, Clone)]
pub struct Described {
    /// The machine, the programs, and what else happens.
    pub scenario: Scenario,
    /// How it is balanced.
    pub options: DriverOptions,
    /// The policy, where the file names one.
    pub policy: Option<String>,
    /// About how long a run takes at most, in simulated time.
    pub expected: Nanos,
}

/// Reads a scenario file.
///
/// # Errors
/// [`FileError`].
pub fn parse(text: &str) -> Result<Described, FileError> {
    parse_seeded(text, None)
}

/// As [`parse`], with this seed instead of the file's.
///
/// # Errors
/// [`FileError`].
pub fn parse_seeded(text: &str, seed: Option<u64>) -> Result<Described, FileError> {
    let text: Text = parse_text(text)?;
    let seed = seed.or(text.seed).unwrap_or(1);
    let mut scenario = machine(&text)?;
    scenario.seed = seed;
    programs(&text, &mut scenario)?;
    interference(&text, &mut scenario)?;
    let c = &text.costs;
    scenario.costs = Costs {
        point: c.point.0,
        read: c.read.0,
        place: c.place.0,
        refill: c.refill.0,
        wake: c.wake.0,
        late: c.late.0,
    };
    let stale = permille("readings.stale", text.readings.stale, 0.0, 0.9)?;
    scenario.readings = Readings { noise: text.readings.noise.0, stale_permille: stale };
    scenario.probe = text.readings.probe;
    let options = balancing(&text, seed)?;
    let expected = expected(&scenario);
    Ok(Described { scenario, options, policy: text.balancing.policy.clone(), expected })
}

fn permille(key: &str, value: f64, least: f64, most: f64) -> Result<u32, FileError> {
    if !(least..=most).contains(&value) {
        return wrong(key, format!("{value} is out of range; it must be from {least} to {most}"));
    }
    Ok((value * 1000.0).round() as u32)
}

fn cpu_list(key: &str, list: &str, all: &CpuSet) -> Result<CpuSet, FileError> {
    let set: CpuSet = match list.parse() {
        Ok(set) => set,
        Err(e) => return wrong(key, format!("{e}; it must be a list such as 0-3,8")),
    };
    if set.is_empty() || !set.is_subset(all) {
        return wrong(key, format!("'{list}' must name CPUs of the machine, which has {all}"));
    }
    Ok(set)
}

fn machine(text: &Text) -> Result<Scenario, FileError> {
    let m = &text.machine;
    let speeds: Vec<u32> = match (m.cpus, &m.speeds) {
        (Some(_), Some(_)) | (None, None) => {
            return wrong("machine", "one of cpus (a number) and speeds (a list) must be given");
        }
        (Some(n), None) if (1..=MOST_CPUS).contains(&n) => vec![1000; n as usize],
        (Some(n), None) => {
            return wrong("machine.cpus", format!("{n} must be from 1 to {MOST_CPUS}"));
        }
        (None, Some(list)) if (1..=MOST_CPUS as usize).contains(&list.len()) => (list.iter())
            .map(|&s| permille("machine.speeds", s, 0.01, 100.0))
            .collect::<Result<_, _>>()?,
        (None, Some(list)) => {
            let found = list.len();
            return wrong("machine.speeds", format!("{found} CPUs; 1 to {MOST_CPUS} are needed"));
        }
    };
    let mut scenario = Scenario::new(0, speeds.len(), Nanos(1));
    scenario.cpus = speeds.iter().map(|&s| Cpu { speed_permille: s, ..Cpu::default() }).collect();
    let gain = permille("machine.smt_gain", m.smt_gain, 0.0, 1.0)?;
    for (i, &[a, b]) in m.smt.iter().enumerate() {
        let key = format!("machine.smt[{i}]");
        let free = |c: u32| scenario.cpus.get(c as usize).is_some_and(|c| c.sibling.is_none());
        if a == b || !free(a) || !free(b) {
            return wrong(key, format!("[{a}, {b}] must be two CPUs that have no sibling yet"));
        }
        for (cpu, sibling) in [(a, b), (b, a)] {
            let cpu = &mut scenario.cpus[cpu as usize];
            (cpu.sibling, cpu.alone_permille) = (Some(CpuId(sibling)), gain);
        }
    }
    scenario.sharing = match m.slice {
        Some(slice) if slice.0 < Nanos::from_micros(10) => {
            return wrong(
                "machine.slice",
                "it must be at least 10us; leave it out for fair sharing",
            );
        }
        Some(slice) => Sharing::Slices(slice.0),
        None => Sharing::Fluid,
    };
    scenario.tick = m.tick.0;
    if m.rotate.is_some_and(|r| r.0 < Nanos::from_micros(100)) {
        return wrong("machine.rotate", "it must be at least 100us");
    }
    scenario.kernel = Kernel { reactive: m.pull, rotate: m.rotate.map(|r| r.0) };
    scenario.counters = match m.counters.as_str() {
        "capacity" => Counters::Capacity,
        "nothing" => Counters::Nothing,
        "instructions" => Counters::Instructions,
        other => {
            let there = "there are capacity, nothing and instructions";
            return wrong("machine.counters", format!("'{other}' is unknown; {there}"));
        }
    };
    scenario.hotplug = hotplug(text, scenario.cpus.len())?;
    Ok(scenario)
}

fn hotplug(text: &Text, cpus: usize) -> Result<Vec<Hotplug>, FileError> {
    let mut events = Vec::new();
    for (i, h) in text.machine.hotplug.iter().enumerate() {
        if h.cpu as usize >= cpus {
            let key = format!("machine.hotplug[{i}].cpu");
            return wrong(key, format!("there is no CPU {}; the last is {}", h.cpu, cpus - 1));
        }
        events.push(Hotplug { at: h.at.0, cpu: CpuId(h.cpu), online: h.online });
    }
    events.sort_by_key(|e| e.at);
    let mut online = vec![true; cpus];
    for e in &events {
        online[e.cpu.0 as usize] = e.online;
        if !online.contains(&true) {
            return wrong("machine.hotplug", format!("at {} no CPU is left", e.at));
        }
    }
    Ok(events)
}

fn barrier(key: &str, name: &str) -> Result<Barrier, FileError> {
    match name {
        "block" => Ok(Barrier::Block),
        "yield" => Ok(Barrier::Yield),
        "spin" => Ok(Barrier::Spin),
        "none" => Ok(Barrier::None),
        _ => wrong(key, format!("'{name}' is unknown; there are block, yield, spin and none")),
    }
}

fn programs(text: &Text, scenario: &mut Scenario) -> Result<(), FileError> {
    let all: CpuSet = (0..scenario.cpus.len() as u32).map(CpuId).collect();
    if text.program.is_empty() {
        return wrong("program", "there is none; at least one [[program]] is needed");
    }
    let all_cpus = scenario.cpus.len() as u64;
    let mut random = Random::new(scenario.seed ^ 0x1b);
    let (mut threads, mut work) = (0, 0u128);
    for (i, p) in text.program.iter().enumerate() {
        let key = |name: &str| format!("program[{i}].{name}");
        // Each has a mask with a bit for each CPU.
        let by_masks = u32::try_from(MOST_MASK_BITS / all_cpus).unwrap_or(u32::MAX);
        let most = MOST_THREADS.min(by_masks).saturating_sub(threads);
        if p.threads == 0 || p.threads > most {
            return wrong(key("threads"), format!("{} must be from 1 to {most}", p.threads));
        }
        threads += p.threads;
        if p.phase.0 == Nanos::ZERO {
            return wrong(key("phase"), "it must be longer than 0");
        }
        if p.phases == 0 || p.phases > 10_000_000 {
            return wrong(key("phases"), format!("{} must be from 1 to 10000000", p.phases));
        }
        let imbalance = permille(&key("imbalance"), p.imbalance, 0.0, 0.99)?;
        let noise = permille(&key("noise"), p.noise, 0.0, 0.99)?;
        let of_list = p.factors.as_ref();
        if of_list.is_some_and(|f| f.len() != p.threads as usize) {
            let found = of_list.map_or(0, Vec::len);
            return wrong(key("factors"), format!("{found} for {} threads", p.threads));
        }
        let mask = match &p.cpus {
            Some(list) => cpu_list(&key("cpus"), list, &all)?,
            None => all.clone(),
        };
        let barrier = barrier(&key("barrier"), &p.barrier)?;
        if i == 0 {
            (scenario.phases, scenario.barrier) = (p.phases, barrier);
        } else {
            scenario.others.push(Program { phases: p.phases, barrier });
        }
        for t in 0..p.threads as usize {
            let factor = match of_list {
                Some(f) => f64::from(permille(&key("factors"), f[t], 0.001, 100.0)?) / 1000.0,
                None => 1.0 + f64::from(imbalance) / 1000.0 * (2.0 * random.unit() - 1.0),
            };
            let own = Nanos(p.phase.0.scale(factor).0.max(1));
            work += u128::from(own.0) * u128::from(p.phases);
            scenario.threads.push(Thread {
                program: i,
                work: own,
                works: Vec::new(),
                noise_permille: noise,
                partners: Vec::new(),
                start: p.start.0,
                end: None,
                mask: mask.clone(),
                own_mask: false,
            });
        }
        if work > u128::from(MOST_WORK.0) {
            return wrong(
                key("phase"),
                format!("all programs together need more than {MOST_WORK} of CPU time"),
            );
        }
    }
    Ok(())
}

fn interference(text: &Text, scenario: &mut Scenario) -> Result<(), FileError> {
    let all: CpuSet = (0..scenario.cpus.len() as u32).map(CpuId).collect();
    let s = |seconds: u64| Nanos::from_millis(1_000 * seconds);
    let us = Nanos::from_micros;
    for (i, x) in text.interference.iter().enumerate() {
        let key = |name: &str| format!("interference[{i}].{name}");
        let (busy, sleep) = match x.kind.as_str() {
            "neighbour" => (Some((s(5), s(10))), (s(0), s(5))),
            "jitter" => (Some((us(20), us(200))), (us(1_000), us(20_000))),
            "burst" => (None, (s(0), s(0))),
            other => {
                let there = "there are neighbour, jitter and burst";
                return wrong(key("kind"), format!("'{other}' is unknown; {there}"));
            }
        };
        let busy = x.busy.map(|[a, b]| (a.0, b.0)).or(busy);
        let sleep = x.sleep.map_or(sleep, |[a, b]| (a.0, b.0));
        for (name, (least, most)) in [("busy", busy.unwrap_or((us(10), us(10)))), ("sleep", sleep)]
        {
            if least > most {
                return wrong(key(name), format!("{least} is more than {most}"));
            }
        }
        let cycle = busy.map(|b| b.0 + b.1 + sleep.0 + sleep.1);
        if cycle.is_some_and(|c| c < us(20)) {
            return wrong(key("busy"), "busy and sleep together must last 10us on average");
        }
        if x.until.is_some_and(|u| u.0 <= x.from.0) {
            return wrong(key("until"), "it must be later than from");
        }
        if x.kind == "burst" && x.until.is_none() {
            return wrong(key("until"), "a burst must end");
        }
        if x.tasks == 0 || x.tasks > 64 {
            return wrong(key("tasks"), format!("{} must be from 1 to 64", x.tasks));
        }
        for cpu in cpu_list(&key("cpus"), &x.cpus, &all)?.iter() {
            let stranger =
                Stranger { cpu, from: x.from.0, until: x.until.map(|u| u.0), busy, sleep };
            scenario.strangers.extend(std::iter::repeat_n(stranger, x.tasks as usize));
        }
        let by_masks = MOST_MASK_BITS / scenario.cpus.len() as u64;
        let most = u64::from(MOST_STRANGERS).min(by_masks);
        if scenario.strangers.len() as u64 > most {
            return wrong(key("tasks"), format!("more than {most} tasks in all"));
        }
    }
    Ok(())
}

fn balancing(text: &Text, seed: u64) -> Result<DriverOptions, FileError> {
    let b = &text.balancing;
    // Also where another is asked for beside the file.
    if let Some(name) = b.policy.as_deref().filter(|name| *name != IDEAL && by_name(name).is_none())
    {
        let there = format!("there are {IDEAL}, {}", names());
        return wrong(
            "balancing.policy",
            format!("there is no policy '{name}'{}; {there}", meant(name)),
        );
    }
    let fixed = |n: Nanos| {
        if n < Nanos::from_micros(10) {
            return wrong("balancing.period", format!("{n} is too short; at least 10us, or auto"));
        }
        Ok(Period::Fixed(n))
    };
    let period = match b.period.as_str() {
        "auto" => Period::Auto,
        text => match evenly_model::parse_duration(text) {
            Ok(n) => fixed(n)?,
            Err(e) => return wrong("balancing.period", format!("{e}; or auto")),
        },
    };
    let slice = text.machine.slice.map_or(Nanos::from_millis(4), |s| s.0).max(text.machine.tick.0);
    let domains = match b.domains.as_str() {
        "machine" => Vec::new(),
        "numa" => numa(text)?,
        other => {
            let there = "there are machine and numa";
            return wrong("balancing.domains", format!("'{other}' is unknown; {there}"));
        }
    };
    let scope = match b.programs.as_str() {
        "first" => Scope::First,
        "each" => Scope::Each,
        "together" => Scope::Together,
        other => {
            let there = "there are first, each and together";
            return wrong("balancing.programs", format!("'{other}' is unknown; {there}"));
        }
    };
    if !(b.budget > 0.0 && b.budget <= 100.0) {
        let found = b.budget;
        return wrong("balancing.budget", format!("{found} must be more than 0 and at most 100"));
    }
    let period = PeriodOptions { period, budget: b.budget / 100.0, slice, seed };
    Ok(DriverOptions {
        period,
        jitter: b.jitter,
        guard: GuardOptions { enabled: b.guard, ..GuardOptions::default() },
        start: if b.recognise { Start::Recognised } else { Start::AtOnce },
        domains,
        knowledge: None,
        scope,
        ..DriverOptions::fixed(Nanos::from_millis(100), seed)
    })
}

fn numa(text: &Text) -> Result<Vec<CpuSet>, FileError> {
    let count =
        text.machine.speeds.as_ref().map_or(text.machine.cpus.unwrap_or(0) as usize, Vec::len);
    let all: CpuSet = (0..count as u32).map(CpuId).collect();
    let mut seen = CpuSet::new();
    let mut domains = Vec::new();
    for (i, list) in text.machine.numa.iter().enumerate() {
        let key = format!("machine.numa[{i}]");
        let set = cpu_list(&key, list, &all)?;
        if !seen.and(&set).is_empty() {
            return wrong(key, format!("'{list}': a CPU is in one domain only"));
        }
        seen = seen.or(&set);
        domains.push(set);
    }
    if seen != all {
        return wrong(
            "machine.numa",
            format!("the domains must have all CPUs, {all}, between them"),
        );
    }
    Ok(domains)
}

/// All work in the slowest way that is likely: each program on the CPUs that its threads may use,
/// at the slowest speed, beside all interference, one after the other, after the last event.
fn expected(s: &Scenario) -> Nanos {
    let slowest = s.cpus.iter().map(|c| u128::from(c.speed_permille)).min().unwrap_or(1).max(1);
    let programs = 1 + s.others.len();
    let mut longest = vec![(0u128, 0u128, 0u128); programs];
    for t in &s.threads {
        let entry = &mut longest[t.program];
        entry.0 = entry.0.max(u128::from(t.work.0 + s.costs.refill.0));
        entry.1 += 1;
        entry.2 = t.mask.len() as u128;
    }
    let phases = |p: usize| match p.checked_sub(1) {
        None => u128::from(s.phases),
        Some(p) => u128::from(s.others[p].phases),
    };
    let beside = 1 + s.strangers.len().div_ceil(s.cpus.len()) as u128;
    let wake = u128::from(s.costs.wake.0);
    let work: u128 = (longest.iter().enumerate())
        .map(|(p, &(work, n, m))| {
            phases(p) * (work + wake * n) * n.div_ceil(m.max(1)) * 1000 / slowest
        })
        .sum();
    let starts = s.threads.iter().map(|t| t.start.0);
    let last = starts.chain(s.hotplug.iter().map(|h| h.at.0)).max().unwrap_or(0);
    Nanos(u64::try_from(work * beside + u128::from(last)).unwrap_or(u64::MAX / 64))
}

//! The rule for threads that spin while the one that they wait for has no CPU.
//!
//! Invariant: what only looks like spinning is none; a setting that asks for it is named where nothing is known of the threads.

use crate::case::{ASLEEP, Case, LEAST, few, percent};
use crate::settings::{Spinning, endless_spinning};
use crate::{Finding, Kind};
use evenly_evidence::{SpinUse, ThreadUse};
use evenly_model::counted;

/// Who spins, what that costs at least or at most, and by what it is known.
struct Spun<'a> {
    who: Vec<&'a ThreadUse>,
    cost: f64,
    at_most: bool,
    seen: String,
}

pub(crate) fn spinning(c: &Case<'_>, uneven: bool) -> Option<Finding> {
    if c.n() <= c.m() || c.waits() < LEAST {
        return None;
    }
    let settings = if c.open_mp() { endless_spinning(&c.e.environment) } else { Vec::new() };
    // Spinning without yielding looks like computing: only a setting that asks for it can be known.
    let observed = observed(c);
    let little = observed.who.is_empty() || (c.spin_is_known() && observed.cost < LEAST);
    let spun = match little {
        false => observed,
        true if !settings.is_empty() && c.sleeps() < ASLEEP => by_setting(c),
        true => return None,
    };
    let list: Vec<String> = settings.iter().map(Spinning::assignment).collect();
    let because = if list.is_empty() { String::new() } else { format!(" ({})", list.join(", ")) };
    let least_s = LEAST * c.sum(|t| t.stay.ran_s);
    let mut loops = c.e.spins.iter().filter(|s| s.cpu_s >= least_s);
    let known = loops.next();
    let spin = match known {
        Some(s) => format!("{}{because}, while those that they wait for have no CPU", in_loop(s)),
        None => format!(
            "{} spin while they wait{because}, on CPUs that the threads need for which they wait",
            few(spun.who.iter().map(|t| t.placed())),
        ),
    };
    let (n, m) = (counted(c.n(), "thread"), counted(c.m(), "CPU"));
    let mut f = Finding::new(Kind::Spinning, spun.cost, format!("{spin}: there are {n} on {m}."));
    f.at_most = spun.at_most;
    if !c.spin_is_known() && !spun.at_most {
        // The system calls are a small part of the cost.
        f.cost = None;
    }
    f.evidence = vec![spun.seen];
    f.evidence.extend(loops.map(in_loop));
    f.evidence.extend(c.e.for_whom.clone());
    f.remedy = String::from(if known.is_some() && !c.open_mp() {
        "let them hand over their CPU meanwhile, as evenly run does, or start no more threads than there \
         are CPUs"
    } else {
        "let them sleep, or start no more threads than there are CPUs"
    });
    if let Some(left) = with_a_cpu_each(c) {
        f.remedy.push_str(&left);
    }
    // These variables take precedence over OMP_WAIT_POLICY.
    let stronger: Vec<&str> =
        settings.iter().map(|s| s.name).filter(|name| *name != "OMP_WAIT_POLICY").collect();
    f.paste = if !stronger.is_empty() {
        c.line(&format!("env -u {} OMP_WAIT_POLICY=passive", stronger.join(" -u ")))
    } else if !settings.is_empty() {
        c.line("OMP_WAIT_POLICY=passive")
    } else if c.open_mp() {
        c.line(c.sleeping())
    } else {
        c.balance_work(uneven)
    };
    f.threads = spun.who.iter().map(|t| t.tid).collect();
    f.cpus = c.usable.clone();
    Some(f)
}

/// As the threads themselves show it.
fn observed<'a>(c: &Case<'a>) -> Spun<'a> {
    if let Some(lost) = c.lost_s() {
        let spun = c.sum(|t| t.stay.spun_s.unwrap_or(0.0));
        let who = c.threads.iter().copied().filter(|t| t.stay.spun_s > Some(0.0)).collect();
        let by = if c.e.spins.is_empty() { "the probe" } else { "samples" };
        let mut seen = format!("they spun for {spun:.2} s of CPU time (by {by})");
        if c.yields() {
            seen.push_str(&format!("; they yield meanwhile, for {lost:.2} s of it in vain"));
        }
        return Spun { who, cost: c.part(lost), at_most: false, seen };
    }
    let who: Vec<&ThreadUse> = c.threads.iter().copied().filter(|t| t.yields()).collect();
    let system: f64 = who.iter().map(|t| t.stay.ran_s.min(t.system_s)).sum();
    let most = who.iter().map(|t| t.losses()).fold(0.0, f64::max);
    let seen = format!(
        "they gave up their CPU up to {most:.0} times for a second of CPU time, without going to sleep; \
         {system:.2} s of CPU time went into it at least"
    );
    Spun { who, cost: c.part(system), at_most: false, seen }
}

/// As a setting asks them to.
fn by_setting<'a>(c: &Case<'a>) -> Spun<'a> {
    let seen = format!("they never sleep, and {} of their time they wait", percent(c.waits()));
    Spun { who: c.threads.clone(), cost: c.waits(), at_most: true, seen }
}

/// Who spins there.
fn in_loop(s: &SpinUse) -> String {
    format!(
        "{} spin in {} for {} of their CPU time",
        counted(s.threads.len(), "thread"),
        s.place,
        percent(s.share)
    )
}

/// How long it would take with a thread for each CPU, where it is known how long threads spun.
fn with_a_cpu_each(c: &Case<'_>) -> Option<String> {
    let (all, m) = (c.sum(ThreadUse::computed_s), c.m());
    let least = all / m as f64;
    let known = c.spin_is_known() && least < (1.0 - LEAST) * c.time;
    known.then(|| {
        format!(
            " (they computed for {all:.2} s in all, {least:.2} s for each of {m} threads, in {:.2} s)",
            c.time
        )
    })
}

//! More or less of the machine for a rank or a thread: the mechanisms that Linux has, which of them this
//! machine and this user have ([`offers`]), and how all of it is undone (`share_undo`).
//!
//! Invariant: a mechanism that could not be undone by this user is not offered, and refuses (promises
//! P5, P8); nothing here changes anything for good, and whether something may be changed is tried on
//! threads of our own that end at once.

pub mod choice;
pub mod groups;
pub mod threads;
mod weights;

use crate::limits::Limits;
use crate::proc::{Proc, read_all, status_field};
use crate::sched::Scheduling;
use evenly_model::{Nanos, Pid, Tid};
use std::fmt;
use std::io;
use std::path::Path;

pub use crate::real::Real;
pub use crate::sched;
pub use crate::share_undo::ShareReport;
pub use choice::{Choice, Shares};
pub use groups::GroupShares;
pub use threads::{ThreadShares, Way};
pub use weights::{
    Bounds, Request, ShareError, ShareMechanism, Steps, Target, fit, nice_of_weight, weight_of_nice,
};

/// For how long a thread is above all normal ones, unless that is asked for again.
pub const RR_LEASE: Nanos = Nanos::from_millis(1_000);
/// The lowest real-time priority: nothing that is real-time for a reason is displaced.
const ROUND_ROBIN_PRIORITY: u8 = 1;
/// The number of CAP_SYS_NICE in a set of capabilities.
const SYS_NICE: u32 = 23;

/// Why a mechanism is not available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// What stands in the way, in words.
    pub why: String,
    /// What would mend it, where anything would.
    pub remedy: Option<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl Missing {
    pub(crate) fn of(why: &str, remedy: Option<String>) -> Self {
        Self { why: why.to_owned(), remedy }
    }
}

/// An error of the system in words alone.
fn words(e: impl std::fmt::Display) -> String {
    let text = e.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// What a mechanism changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gives {
    /// The share of a CPU.
    Share,
    /// When and for how long a thread runs, but no share.
    Turns,
    /// Which CPU it is.
    Place,
}

impl Gives {
    /// The word for it in what `evenly doctor --mechanisms` writes.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Share => "share",
            Self::Turns => "turns",
            Self::Place => "place",
        }
    }
}

/// One mechanism, as it is available on this machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The name under which `evenly doctor --mechanisms` lists it.
    pub name: &'static str,
    /// What it changes, in words.
    pub what: &'static str,
    /// What it changes, in a word.
    pub gives: Gives,
    /// Least and most, relative to what is there now. None where that means nothing.
    pub range: Option<(f64, f64)>,
    /// Which values there are between them.
    pub steps: &'static str,
    /// Whether nothing may be raised, so that others are lowered instead.
    pub only_lowers: bool,
    /// Why it is not available; None where it is.
    pub missing: Option<Missing>,
    /// Remarks for whoever uses it.
    pub notes: Vec<String>,
}

/// Which mechanisms this machine has for the present user.
#[must_use]
pub fn offers(real: &Real) -> Vec<Offer> {
    offers_to(real, Pid(std::process::id().cast_signed()))
}

/// Which mechanisms this machine has for this process.
fn offers_to(real: &Real, pid: Pid) -> Vec<Offer> {
    vec![nice(real, pid), group(real, pid), slice(), round_robin(real), placement()]
}

/// The effective user of this process.
#[must_use]
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Does something in a thread of its own, which ends with whatever was done to it.
fn tried<T: Send + 'static>(
    what: impl FnOnce(&Scheduling) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let work = move || what(&sched::get(Tid(0))?);
    let thread = std::thread::Builder::new().name(String::from("try")).spawn(work)?;
    thread.join().map_err(|_| io::Error::other("the thread that tries has failed"))?
}

/// Whether a way of scheduling can be set and taken back.
fn there_and_back(change: impl FnOnce(&mut Scheduling) + Send + 'static) -> io::Result<()> {
    let base = sched::base_slice().unwrap_or(Nanos::ZERO);
    tried(move |own| {
        let mut to = *own;
        change(&mut to);
        sched::change(Tid(0), own, &to, base)?;
        sched::change(Tid(0), &to, own, base)
    })
}

fn nice(real: &Real, pid: Pid) -> Offer {
    let own = sched::get(Tid(0)).map_or(0, |s| s.nice);
    let back = there_and_back(|s| s.nice = (s.nice + 1).min(19));
    // The least that may be set, by trying.
    let least = tried(|own| {
        let may = |nice: &i8| sched::set_nice(Tid(0), *nice).is_ok();
        Ok((-20..=own.nice).find(may).unwrap_or(own.nice))
    });
    let least = least.unwrap_or(own).min(own);
    let relative = |nice: i8| weight_of_nice(i32::from(nice)) / weight_of_nice(i32::from(own));
    let missing = back.err().map(|e| match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            let why = threads::Leave::of(&Proc::at(&real.root().join("proc")), pid);
            without_remedy(&why.refusal(None, own))
        }
        _ => Missing::of(&words(e), None),
    });
    let mut notes = Vec::new();
    if real.number("proc/sys/kernel/sched_autogroup_enabled") == Some(1) {
        let here = Limits::new(real.root()).topmost(pid, "cpu");
        notes.push(match here {
            Some(false) => String::from(
                "autogroup is on, but not in force: the program is in a control group of its own",
            ),
            _ => String::from(
                "autogroup is on: nice values count among the threads of one session (setsid), and not \
                 between sessions",
            ),
        });
    }
    Offer {
        name: Way::Nice.name(),
        what: "nice value",
        gives: Gives::Share,
        range: Some((relative(19), relative(least))),
        steps: "nice values, each a factor of about 1.25",
        only_lowers: least == own,
        missing,
        notes,
    }
}

/// A refusal ends with its remedy, behind the last semicolon.
fn without_remedy(refusal: &str) -> Missing {
    match refusal.rsplit_once("; ") {
        Some((why, remedy)) => Missing::of(why, Some(remedy.to_owned())),
        None => Missing::of(refusal, None),
    }
}

fn group(real: &Real, pid: Pid) -> Offer {
    let limits = Limits::new(real.root());
    let place = groups::place(&limits, pid);
    let v2 = limits.own_group(pid, "cpu").is_some_and(|(_, v2)| v2);
    let mut notes = Vec::new();
    if let Ok((_, dir)) = &place {
        notes.push(format!("groups are made in {}", dir.display()));
    }
    let range = if v2 { (1.0 / 100.0, 100.0) } else { (2.0 / 1024.0, 256.0) };
    Offer {
        name: if v2 { "cpu.weight" } else { "cpu.shares" },
        what: "a control group for each thread",
        gives: Gives::Share,
        range: Some(range),
        steps: if v2 { "hundredths" } else { "1/1024" },
        only_lowers: false,
        missing: place.err(),
        notes,
    }
}

fn slice() -> Offer {
    let missing = match sched::base_slice() {
        None => Some(Missing::of(
            "the kernel gives threads no slice of their own",
            Some(String::from("Linux 6.12 or newer")),
        )),
        Some(base) => there_and_back(move |s| s.slice = Nanos(base.0 * 2))
            .err()
            .map(|e| Missing::of(&words(e), None)),
    };
    let base_ms = sched::base_slice().map(|b| b.as_secs_f64() * 1e3);
    Offer {
        name: Way::Slice.name(),
        what: "length of a thread's time slice",
        gives: Gives::Turns,
        range: base_ms.map(|b| (0.1 / b, 100.0 / b)),
        steps: "microseconds, from 0.1 to 100 ms",
        only_lowers: false,
        missing,
        notes: vec![String::from(
            "changes no share: two threads that compute get the same CPU time",
        )],
    }
}

fn round_robin(real: &Real) -> Offer {
    let share = realtime_share(real);
    let missing = match &share {
        Err(why) => Some(without_remedy(why)),
        Ok(_) => there_and_back(|s| {
            (s.policy, s.priority, s.reset_on_fork) =
                (sched::ROUND_ROBIN, ROUND_ROBIN_PRIORITY, true);
        })
        .err()
        .map(|e| match e.raw_os_error() {
            Some(libc::EPERM) => Missing::of(
                "real-time classes need CAP_SYS_NICE, and real-time runtime in the control group",
                Some(String::from("run as root")),
            ),
            _ => Missing::of(&words(e), None),
        }),
    };
    Offer {
        name: "round-robin",
        what: "above all normal threads, for 1 s at a time",
        gives: Gives::Share,
        range: share.ok().map(|most| (1.0, most)),
        steps: "on or off",
        only_lowers: false,
        missing,
        notes: Vec::new(),
    }
}

fn placement() -> Offer {
    Offer {
        name: "placement",
        what: "which CPU: heavy beside light, by the policies",
        gives: Gives::Place,
        range: None,
        steps: "affinity masks",
        only_lowers: false,
        missing: None,
        notes: Vec::new(),
    }
}

/// How many times the share of all others real-time threads can have. The kernel keeps a part of each
/// CPU for normal threads: what it keeps is the guard without which nothing is raised above them.
///
/// # Errors
/// That it keeps nothing, and what mends that.
pub(crate) fn realtime_share(real: &Real) -> Result<f64, String> {
    let (runtime, period) = (
        real.number("proc/sys/kernel/sched_rt_runtime_us"),
        real.number("proc/sys/kernel/sched_rt_period_us"),
    );
    match (runtime, period) {
        (Some(runtime), Some(period)) if (0..period).contains(&runtime) => {
            Ok((runtime as f64 / (period - runtime) as f64).max(1.0))
        }
        (Some(runtime), Some(period)) => Err(format!(
            "real-time threads could starve all others: kernel.sched_rt_runtime_us is {runtime}, needed is less than {period}; sudo sysctl kernel.sched_rt_runtime_us={}",
            period / 100 * 95
        )),
        _ => Err(String::from(
            "the kernel does not report how much time real-time threads leave to others",
        )),
    }
}

/// The soft limit `Max nice priority` of `/proc/<pid>/limits`.
#[must_use]
pub fn parse_nice_limit(limits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(limits).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("Max nice priority"))?;
    match line.split_ascii_whitespace().next()? {
        "unlimited" => Some(40),
        number => number.parse().ok(),
    }
}

/// Whether the calling thread may set any nice value and class: the kernel asks for CAP_SYS_NICE in the
/// first user namespace.
pub(crate) fn may_all(proc: &Proc) -> bool {
    let of_thread = |file| read_all(&proc.root().join("thread-self").join(file)).ok();
    let has = of_thread("status")
        .and_then(|s| {
            let hex = status_field(&s, "CapEff")?.to_vec();
            u64::from_str_radix(std::str::from_utf8(&hex).ok()?.trim(), 16).ok()
        })
        .is_some_and(|caps| caps >> SYS_NICE & 1 == 1);
    let first = of_thread("uid_map").is_none_or(|map| {
        let text = String::from_utf8_lossy(&map).into_owned();
        text.split_ascii_whitespace().collect::<Vec<_>>() == ["0", "0", "4294967295"]
    });
    has && first
}

/// The user whose process this is, where the caller may not lower it: its real and effective users are others, and the
/// caller has no privilege.
#[must_use]
pub fn foreign_user(proc: &Proc, pid: Pid) -> Option<u32> {
    let status = read_all(&proc.process_file(pid, "status")).ok()?;
    let text = std::str::from_utf8(status_field(&status, "Uid")?).ok()?;
    let users: Vec<u32> = text.split_ascii_whitespace().flat_map(str::parse).take(2).collect();
    let is_foreign = !users.contains(&user()) && !may_all(proc);
    users.first().copied().filter(|_| is_foreign)
}

/// Whether nice values count between processes: those that autogroup divides by session are weighed
/// against each other as whole sessions. Names of the autogroups, where there is more than one.
#[must_use]
pub fn autogroups(proc: &Proc, processes: &[Pid]) -> Vec<String> {
    let on = read_all(&proc.root().join("sys/kernel/sched_autogroup_enabled"));
    let root = proc.root().parent().unwrap_or(Path::new("/"));
    let limits = Limits::new(root);
    if !on.is_ok_and(|t| t.starts_with(b"1")) {
        return Vec::new();
    }
    let mut names: Vec<String> = processes
        .iter()
        // In a control group other than the topmost it is not in force.
        .filter(|&&pid| limits.topmost(pid, "cpu") != Some(false))
        .filter_map(|&pid| {
            let text = read_all(&proc.process_file(pid, "autogroup")).ok()?;
            let text = String::from_utf8(text).ok()?;
            text.split_ascii_whitespace().next().map(str::to_owned)
        })
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.len() > 1 { names } else { Vec::new() }
}

#[cfg(test)]
#[path = "../../../tests/helpers/captured.rs"]
mod fake_trees;

#[cfg(test)]
mod tests;

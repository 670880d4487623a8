//! The verdict: what a run amounted to, in plain words.

use crate::ranks::ProbeReport;
use crate::text::WIDE;
use crate::{BALANCED, MUCH_BLOCKED, Measured, RunReport, SHORT_S, is, was};
use evenly_engine::{Placed, ThreadSummary};
use evenly_model::{Nanos, counted, printable};
use std::fmt::Write;

/// Waiting that threads do not cause each other, as a share of their time, from where on it is said.
const INTERFERED: f64 = 0.1;
/// Threads that sleep for less of their time never wait asleep.
const ASLEEP: f64 = 0.02;
/// Up to this imbalance in the time that threads computed, by what they report of their waiting, their work is equal:
/// how much of their CPU time was spinning is an estimate.
const UNEQUAL: f64 = 0.15;
/// Of their time threads wait by so much more for CPUs than they must, as they are more than CPUs, where others use these.
const STARVED: f64 = 0.4;
/// So many pauses would do, if they were alike.
const ENOUGH: u32 = 5;
/// Barriers a second, from where on moving threads once a period is too seldom.
const OFTEN: f64 = 10.0;
/// An interval of the gain that is no wider than this shows that there is none.
const SURE: f64 = 0.05;
/// Handing over paid, or lost, if threads compute so many times as much with it, or without: samples err by less.
const CLEAR: f64 = 1.5;
/// Threads handed over CPUs to speak of if others ran in their place, or they slept, for this part of the time.
const MUCH_HANDED: f64 = 0.05;
/// How a verdict begins of threads that progressed equally.
const EQUAL: &str = "The threads progressed equally";
/// A shorter run has ended before evenly had found its threads, in seconds.
const FOUND_S: f64 = 0.3;
/// How many names of threads are shown.
const NAMES: usize = 5;

impl RunReport {
    pub(crate) fn verdict_text(&self) -> String {
        if let Some(why) = &self.failure {
            return format!("The program was not balanced: {why}");
        }
        if !self.started {
            return format!("Nothing was balanced: {}.", self.why_not_started());
        }
        let placing = self.verdict_of_placing();
        let mut text = match self.worth_of_hand_over() {
            // That they are equal says little beside it.
            Some(worth) if placing.starts_with(EQUAL) => worth,
            Some(worth) => format!("{worth} {placing}"),
            None => placing,
        };
        if let Some(untried) = self.summary.domains.iter().find_map(|d| d.untried.as_ref()) {
            let _ = write!(
                text,
                " The threads have unequal work, but {} could not be tried: {}.",
                untried.policy, untried.why
            );
        }
        let (n, m) = (self.balanced_threads(), self.cpus.len());
        if let Some(quota) = self.quota_cpus
            && quota < 0.99 * n.min(m) as f64
        {
            let _ = write!(
                text,
                " The CPU quota limits all threads together to {quota:.2} CPUs; balancing cannot \
                 change that."
            );
        }
        text
    }

    fn why_not_started(&self) -> String {
        let real_time = self.realtime_threads;
        if let Some(expected) = self.expected_threads {
            return format!(
                "--threads {expected}: there were never {expected} compute threads at the same time"
            );
        }
        if self.filtered {
            return self.why_filtered();
        }
        if real_time > 0 && real_time + 1 >= self.all_threads {
            return format!(
                "{real_time} of the {} threads have a real-time or deadline class, and evenly does \
                 not move such threads",
                self.all_threads
            );
        }
        let none = "no two threads computed at the same time for a tenth of a second";
        if self.seconds < FOUND_S && self.all_threads > 1 {
            return format!(
                "the program ended after {:.2} s; evenly looks for a tenth of a second which threads compute",
                self.seconds
            );
        }
        match self.mpi_ranks {
            Some(ranks) if ranks > 1 => format!(
                "{none}. This evenly was started for one of {ranks} MPI ranks; to balance all of them, \
                 start it once, before the launcher and its options: evenly run -- mpirun ... -n {ranks} \
                 --bind-to none PROGRAM"
            ),
            _ => String::from(none),
        }
    }

    fn why_filtered(&self) -> String {
        let options = self.filter.join(" ");
        let [left, left_out] = &self.names;
        let list = |names: &[String]| {
            let more = if names.len() > NAMES { ", ..." } else { "" };
            names.iter().take(NAMES).map(|n| printable(n)).collect::<Vec<_>>().join(", ") + more
        };
        if left.is_empty() && !left_out.is_empty() {
            return format!(
                "{options} leaves no thread; the names of threads were {}",
                list(left_out)
            );
        }
        let mut text = format!(
            "no two threads that {options} leaves computed at the same time for a tenth of a second"
        );
        if !left.is_empty() {
            let _ = write!(text, "; it leaves {}", list(left));
        }
        if !left_out.is_empty() {
            let _ = write!(text, ", and leaves out {}", list(left_out));
        }
        text
    }

    /// Says that there are threads which have masks of their own, where there are.
    fn own_masks(&self) -> Option<String> {
        let of = self.summary.threads.len();
        let n = self.summary.threads.iter().filter(|t| t.own_mask).count();
        let (verb, what) = if n == 1 {
            ("has", "an affinity mask of its own")
        } else {
            ("have", "affinity masks of their own")
        };
        (n > 0).then(|| {
            format!(
                "{n} of {of} threads {verb} {what} (OMP_PROC_BIND, mpirun --bind-to, taskset), which \
                 evenly leaves alone; try without binding (OMP_PROC_BIND=false, mpirun --bind-to \
                 none)"
            )
        })
    }

    /// What a mapping placed goes before what was balanced within it, which may be nothing at all.
    fn verdict_of_placing(&self) -> String {
        let Some(Placed { what, named, placed: placed @ 1.. }) = self.mapping else {
            return self.verdict_of_balancing();
        };
        let placed = if placed == named {
            format!(
                "{} {} placed where the mapping says",
                counted(placed, what),
                was(placed as u64)
            )
        } else {
            let all = counted(named, what);
            format!(
                "{placed} of the {all} in the mapping {} placed where it says",
                was(placed as u64)
            )
        };
        if self.changed_nothing() && !self.stood_down() {
            return format!("{placed}; evenly moved nothing else.");
        }
        format!("{placed}. {}", self.verdict_of_balancing())
    }

    fn verdict_of_balancing(&self) -> String {
        let (n, m) = (self.balanced_threads(), self.cpus.len());
        if self.policy.only_watches() {
            return format!("Only observed: nothing was changed.{}", self.prospect());
        }
        if let Some(chosen) = self.verdict_of_arms() {
            return chosen;
        }
        let interval = self.measured.and_then(|m| m.ci95);
        // A policy that found no move to make has not stood down from anything.
        if self.stood_down() && !(self.changed_nothing() && self.policy.moves_within_phases()) {
            let why = match interval {
                Some([low, _]) if low > 1.0 => {
                    let moves = self.verdict_of_moves();
                    return format!("{moves} In the end it did not, and evenly stood down.");
                }
                Some([low, high]) if low > 0.0 && high >= 1.0 && high <= WIDE * low => format!(
                    "Balancing showed no sure gain ({low:.2} to {high:.2} times the progress of pauses)"
                ),
                Some([_, high]) if high >= 1.0 => String::from("Balancing showed no sure gain"),
                _ => String::from("Balancing did not pay for this program"),
            };
            let domains = self.summary.domains.iter();
            let rested = domains.map(|d| d.rested_s).fold(0.0, f64::max);
            return format!(
                "{why}, so evenly stood down for {rested:.2} of {:.2} s: the program ran on without it.",
                self.balanced_s
            );
        }
        let gives_weights = self.policy.gives_weights() && self.total(|d| d.weighings) > 0;
        if gives_weights && self.measured.is_none_or(|m| m.ci95.is_none()) {
            return format!(
                "Shares of CPUs were set {}, larger for threads with more work; evenly compare measures the \
                 gain.",
                counted(self.total(|d| d.weighings), "time")
            );
        }
        if self.migrations() == 0 {
            return self.verdict_without_moves(n, m);
        }
        if self.policy.is_reference() {
            return String::from("The threads were spread evenly once, and not moved again.");
        }
        let verdict = self.verdict_of_moves();
        let paid = interval.is_some_and(|[low, _]| low > 1.0);
        match self.sleepless(n, m).filter(|_| !paid && self.is_blind()) {
            Some(spin) => format!("{verdict} But {spin}."),
            None => verdict,
        }
    }

    /// Where another policy took the place of the usual one: which, why, and what it was worth.
    fn verdict_of_arms(&self) -> Option<String> {
        let domains = self.summary.domains.iter();
        let chosen = domains.filter_map(|d| d.choice).max_by_key(|c| c.verdict.pairs)?;
        let than = chosen
            .over
            .map_or_else(|| String::from("without moves"), |over| format!("with {over}"));
        Some(format!(
            "{} was chosen, because the threads have unequal work: with it the program progressed {:.2} times as \
             fast as {than} ({}).",
            chosen.policy,
            chosen.verdict.ratio,
            counted(chosen.verdict.pairs, "comparison")
        ))
    }

    /// What moving threads has come to.
    fn verdict_of_moves(&self) -> String {
        if self.has_few_points() && self.measured.is_none() {
            let moves = counted(self.migrations(), "migration");
            return format!("{} whether {moves} helped.", self.too_few());
        }
        let (imbalance, percent) = (self.imbalance(), 100.0 * self.imbalance());
        match (self.measured, self.gain) {
            (Some(Measured { ratio, ci95: Some([low, _]), .. }), _) if low > 1.0 => format!(
                "Balancing paid: the program progressed {ratio:.2} times as fast as while evenly \
                 paused."
            ),
            (Some(Measured { ratio, ci95: Some([low, high]), .. }), _) if high < 1.0 => format!(
                "Balancing has not paid so far: the program progressed {ratio:.2} times as fast as \
                 while evenly paused (95 % interval {low:.2} to {high:.2})."
            ),
            _ if self.policy.places_load() => format!(
                "The threads were placed by load and communication, with {}; evenly compare \
                 measures the gain.",
                counted(self.migrations(), "migration")
            ),
            (Some(measured), _) if imbalance <= BALANCED => {
                format!("{EQUAL}; {}.", self.undecided(measured))
            }
            (None, Some(gain)) if imbalance <= BALANCED => format!(
                "{EQUAL}, at most {gain:.2} times as fast as if none had been \
                 moved (estimate); evenly compare measures the gain over the kernel."
            ),
            _ if imbalance <= BALANCED => {
                format!("{EQUAL}; the gain was not measured.")
            }
            _ if self.balanced_s < SHORT_S => format!(
                "The program computed for only {:.2} s with all its threads, too short to balance \
                 them.",
                self.balanced_s
            ),
            // Where it is known for whom they wait, the reason is known.
            _ if self.blocked_share() > MUCH_BLOCKED
                || self.policy.gives_weights()
                || self.whom().is_some() =>
            {
                format!("The threads {}", self.unequal())
            }
            _ => {
                let why = self.own_masks().map(|why| format!(": {why}")).unwrap_or_default();
                format!("The threads progressed unequally (imbalance {percent:.1} %){why}.")
            }
        }
    }

    /// What pauses have shown that show neither a gain nor a loss.
    fn undecided(&self, measured: Measured) -> String {
        let compare = "evenly compare measures it";
        let n = self.balanced_threads();
        if self.is_blind() && self.sleepless(n, self.cpus.len()).is_some() {
            // Their CPU time is the same whether it is of use or not.
            return format!("their CPU time does not show what that gained; {compare}");
        }
        match measured.ci95 {
            Some([low, high]) if high - low <= SURE => {
                format!("pauses of balancing showed no difference ({low:.2} to {high:.2} times)")
            }
            Some([low, high]) if low > 0.0 && high <= WIDE * low => format!(
                "they were {:.2} times as fast as in {}, too few to be sure (95 % interval {low:.2} to \
                 {high:.2}); {compare}",
                measured.ratio,
                counted(measured.pairs, "pause")
            ),
            _ => {
                let n = measured.pairs;
                let pauses = counted(n, "pause");
                if n < ENOUGH {
                    format!("{pauses} {} too few to tell the gain; {compare}", is(n.into()))
                } else {
                    format!("{pauses} differed too much to tell the gain; {compare}")
                }
            }
        }
    }

    /// Why nothing was moved, and what may help.
    fn verdict_without_moves(&self, n: usize, m: usize) -> String {
        if m == 1 {
            return String::from("Nothing to balance: there is only one CPU to use.");
        }
        if self.policy.moves_within_phases() {
            return self.verdict_within_phases(n, m);
        }
        let few = self.has_few_points() && !self.policy.is_reference();
        let divided = n > 0 && (n < m || n.is_multiple_of(m)) && self.imbalance() <= BALANCED;
        if divided && !few && !self.policy.places_load() {
            return self.verdict_on_even_division(n, m);
        }
        let why = if let Some(why) = self.own_masks() {
            why
        } else if few {
            return format!("evenly moved nothing; {} more.", self.too_few());
        } else if self.policy.places_load() {
            String::from("no other place was better by load and communication")
        } else if self.balanced_s < SHORT_S {
            format!("the program computed for only {:.2} s with all its threads", self.balanced_s)
        } else if self.policy.is_reference() {
            return String::from("The threads were spread evenly already; none was moved.");
        } else if self.most_wait() < 0.02 {
            String::from(
                "the threads hardly waited for CPUs; evenly doctor says what they wait for",
            )
        } else if self.imbalance() > BALANCED {
            return format!("evenly moved nothing: the threads {}", self.unequal());
        } else {
            format!("no thread fell behind in a period; {}", self.next())
        };
        format!("evenly moved nothing: {why}.")
    }

    /// The same of a policy that moves threads where barriers open.
    fn verdict_within_phases(&self, n: usize, m: usize) -> String {
        if let Some(why) = self.own_masks() {
            return format!("evenly moved nothing: {why}.");
        }
        if let Some(why) = self.no_barriers(n, m) {
            return format!("evenly moved nothing: {why}.");
        }
        if n > 0 && (n < m || n.is_multiple_of(m)) {
            return self.verdict_on_even_division(n, m);
        }
        String::from(
            "evenly moved nothing: in no phase would a move have gained more than it costs.",
        )
    }

    /// Why a policy that moves threads where barriers open had nothing to do, where that is so.
    fn no_barriers(&self, n: usize, m: usize) -> Option<String> {
        let unseen = self.probe.as_ref().is_none_or(|p| p.processes == 0);
        let why = if unseen {
            "barriers cannot be seen, as the program ran without the probe"
        } else {
            "no barrier of OpenMP, POSIX threads or MPI was seen at which threads met, and those of a program's own at \
             which threads spin cannot be seen"
        };
        self.is_blind().then(|| match self.sleepless(n, m) {
            Some(spin) => format!("{why}. And {spin}"),
            None if unseen => String::from(why),
            None => format!("{why}; {}", self.next()),
        })
    }

    /// Whether the policy goes by barriers and none was seen at which threads met.
    fn is_blind(&self) -> bool {
        self.policy.moves_within_phases() && self.probe.as_ref().is_none_or(|p| p.phases() == 0)
    }

    /// Where all CPUs have as many threads, moves gain nothing while nothing interferes.
    fn verdict_on_even_division(&self, n: usize, m: usize) -> String {
        let how = if n <= m {
            format!("each of the {n} threads had a CPU to itself")
        } else {
            format!("{n} threads on {m} CPUs divide evenly")
        };
        // Threads that share a CPU wait for each other.
        let shared = if n > m { 1.0 - m as f64 / n as f64 } else { 0.0 };
        let interfered = self.most_wait() - shared;
        if interfered > INTERFERED {
            return format!(
                "evenly moved nothing: {how}, and other programs kept all of them waiting for {:.0} % of \
                 the time; {}.",
                100.0 * interfered,
                self.next()
            );
        }
        match self.sleepless(n, m) {
            Some(spin) => format!("evenly moved nothing: {how}. But {spin}."),
            None => {
                format!("No benefit possible: {how}, and nothing interfered. evenly moved nothing.")
            }
        }
    }

    /// What it was worth that CPUs were handed over, where that was compared; that they were, where it was not.
    fn worth_of_hand_over(&self) -> Option<String> {
        let handed = self.handed_over.as_ref().and_then(|h| Some((h.cpus_without?, h.cpus_with?)));
        let beaten = self.metronome.as_ref().map(|m| (m.cpus_without, m.cpus_with));
        let Some((without, with)) = handed.or(beaten) else {
            let handed = self.handed_over.as_ref()?;
            let much = handed.given_s + handed.slept_s > MUCH_HANDED * self.seconds;
            return much.then(|| {
                String::from(
                    "Threads that spin handed over their CPUs; evenly compare measures the gain.",
                )
            });
        };
        let compared =
            format!("threads computed on {with:.2} CPUs on average, and on {without:.2} without");
        let came_of_it = if with > CLEAR * without {
            "paid"
        } else if without > CLEAR * with {
            "lost, and ended"
        } else {
            "made no clear difference"
        };
        Some(format!("Handing over CPUs of threads that spin {came_of_it}: {compared}."))
    }

    /// Whether threads that spin handed over CPUs, or these changed hands often because they did.
    pub(crate) fn hands_over(&self) -> bool {
        self.handed_over.is_some() || self.metronome.is_some()
    }

    /// What threads that never sleep may do, or do, where they outnumber the CPUs.
    fn sleepless(&self, n: usize, m: usize) -> Option<String> {
        let sum = |f: fn(&ThreadSummary) -> f64| self.summary.threads.iter().map(f).sum::<f64>();
        let slept = sum(|t| t.blocked_s) / sum(|t| t.ran_s + t.waited_s + t.blocked_s).max(1e-9);
        // Threads that hand over their CPU spin for as long as nobody else has a use for it.
        if n <= m || slept >= ASLEEP || self.hands_over() {
            return None;
        }
        match self.spun_share() {
            Some(spun) if spun >= ASLEEP => {
                let least =
                    self.seconds - self.balanced_s + sum(ThreadSummary::computed_s) / m as f64;
                Some(format!(
                    "they spin while they wait, for {:.0} % of their time: {m} threads with the same work in \
                     all need about {least:.2} s instead of {:.2} s",
                    100.0 * spun,
                    self.seconds
                ))
            }
            Some(_) if self.waits_are_seen() => None,
            _ => Some(format!(
                "none ever slept: if they spin while they wait for each other, {m} threads take less time \
                 than {n}, otherwise about as long"
            )),
        }
    }

    /// Whether the probe sees threads wait so often that it would see it if they spun.
    fn waits_are_seen(&self) -> bool {
        let waits = self.probe.as_ref().map_or(0, ProbeReport::waits);
        f64::from(waits) >= OFTEN * self.seconds
    }

    /// What to try next, where moving threads once a period was of no use.
    fn next(&self) -> String {
        let phases = self.probe.as_ref().map(ProbeReport::phases);
        let doctor = || String::from("evenly doctor says what they wait for");
        match phases {
            _ if self.policy.moves_within_phases() => doctor(),
            Some(phases) if f64::from(phases) >= OFTEN * self.seconds => format!(
                "they meet at a barrier every {}: try --policy phase",
                Nanos::from_secs_f64(self.seconds / f64::from(phases))
            ),
            Some(_) => doctor(),
            None => String::from(
                "if they meet at barriers of OpenMP, POSIX threads or MPI, try --policy phase",
            ),
        }
    }

    /// What is said of threads that progressed differently. CPU time alone does not show that work is unequal.
    fn unequal(&self) -> String {
        if self.is_starved() {
            return format!(
                "waited {:.0} % of their time for a CPU, as other programs used these; what each has \
                 computed says little about its work.",
                100.0 * self.most_wait()
            );
        }
        let (imbalance, whom) = (self.imbalance(), self.whom().is_some());
        let percent = format!("imbalance {:.1} %", 100.0 * imbalance);
        let text = match self.spun_share() {
            None if !whom => {
                let spin = match self.policy.moves_within_phases() {
                    true => " where the probe does not see it",
                    false => ", which --probe on would show",
                };
                format!(
                    "used CPU time that differs ({percent}): they have unequal work, wait for something other \
                     than a CPU, or spin{spin}"
                )
            }
            Some(_) if !whom && imbalance < UNEQUAL => {
                format!("computed for about as long ({percent}), which is no sign of unequal work")
            }
            _ => format!(
                "computed for unequal times ({percent}): they have unequal work, or wait for something other \
                 than a CPU"
            ),
        };
        match self.whom() {
            Some(_) if !self.policy.may_give_weights() => {
                format!("{text}; if they wait for each other, try --policy hpc-auto.")
            }
            _ => format!("{text}."),
        }
    }

    /// Which ranks or threads waited for which, where that is known.
    pub(crate) fn whom(&self) -> Option<String> {
        self.probe.as_ref().and_then(ProbeReport::for_whom)
    }

    /// Whether the threads waited for CPUs by far longer than they do for each other.
    fn is_starved(&self) -> bool {
        let (n, m) = (self.balanced_threads() as f64, self.cpus.len() as f64);
        self.most_wait() - (1.0 - m / n.max(m).max(1.0)) > STARVED
    }

    /// The part of its time that the threads waited for a CPU, of the domain where that is most.
    fn most_wait(&self) -> f64 {
        self.summary.domains.iter().map(|d| d.wait_share).fold(0.0, f64::max)
    }

    /// What the observation says about trying to balance.
    fn prospect(&self) -> String {
        if self.has_few_points() {
            format!(" {} more.", self.too_few())
        } else if self.most_wait() < 0.02 {
            String::from(" The threads hardly waited for CPUs, so balancing has nothing to gain.")
        } else if self.imbalance() > 0.03 {
            String::from(" Some threads progressed more than others: try without --policy observe.")
        } else {
            String::new()
        }
    }
}

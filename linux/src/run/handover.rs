//! When threads that spin hand over their CPU, and where: looks whether the threads of a program crowd its CPUs, and only
//! then puts breakpoints on the instructions at which they wait (`probe/c/handover.h`).
//!
//! ```text
//!   Watches --more threads want to run than there are CPUs--> Hands over --for HOLD nothing was handed over--> Watches
//! ```
//!
//! Invariant: while no more threads want to run than there are CPUs, times of threads are read, programs are told whether others
//! compute there, and nothing else is done.

use crate::beside::Beside;
use crate::breakpoints::{Memory, Unfit, hidden, stands_behind, unfit};
use crate::counters::CountersError;
use crate::crowd::Crowd;
use crate::doubts::Doubts;
use crate::modules::{Code, Modules, parse_code};
use crate::others::Others;
use crate::proc::{Proc, read_all, status_number};
pub use crate::refused::Refused;
use crate::samples::{MOST, cpus};
use crate::spinning::Spinning;
use evenly_model::{CpuSet, Nanos, Pid};
use evenly_spins::{Doing, Handed, Hunt, Machine, Place, Places, Seen, Spin, Taking, Worth};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// For how long CPUs are handed over after there was a reason last.
const HOLD: Nanos = Nanos::from_millis(2_000);
/// How often it is looked for code that was loaded meanwhile.
const AGAIN: Nanos = Nanos::from_millis(500);
/// After so long in which there was nothing to do it is looked more rarely.
const IDLE: Nanos = Nanos::from_millis(2_000);
/// Threads that wait for CPUs for longer than this from one look to the next may crowd them for moments.
const MOMENTS: Nanos = Nanos::from_millis(5);
/// The programs go on for so many seconds longer than it takes until it is looked again.
const SECONDS: u32 = 3;
/// What becomes of threads that wait elsewhere than in loops is left out where it is less than this part of the whole.
const LITTLE: f64 = 0.1;
/// How the table is called among what a process has mapped.
const TABLE: &[u8] = b"/memfd:evenly-handover";
/// CPUs are still needed by others while threads hand them over for this part of the time.
const USED: f64 = 0.1;
/// With a quota of less it cannot be told from the CPU time of threads whether one of them computes.
const LEAST_CPUS: f64 = 1.5;

/// Where threads wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where<'a> {
    /// At this place of a file.
    Code(&'a Path, u64),
    /// In calls of MPI.
    Mpi,
    /// In calls of `sched_yield`.
    Yields,
}

/// When it is to be looked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// Whatever this look cost: it went through files, which is done once for each, or takes samples for the first time, which ends.
    Soon,
    /// As the cost allows, but soon enough for samples that are taken.
    Sampling,
    /// As the cost allows.
    AsUsual,
    /// Nothing has been handed over for a while, nor was anything found to do.
    Rarely,
}

type Known = (Place, u64, Vec<u8>);

/// A loop of a process: the address of its place, and where in which file that is.
struct Found {
    at: u64,
    file: Arc<Path>,
    spin: Spin,
    /// It is not proved that it waits.
    is_doubted: bool,
}

/// What is done about a program whose threads spin.
pub struct HandOver<P> {
    proc: Proc,
    places: P,
    /// CPUs that the program may use, of which a quota may give it parts.
    cpus: f64,
    modules: Modules,
    /// By process and space: places, their addresses, and how the instructions there begin.
    known: BTreeMap<(Pid, u32), Vec<Known>>,
    crowd: Crowd,
    /// The programs with which this one cooperates; None: with none.
    beside: Option<Beside>,
    /// Whether others compute on its CPUs.
    others: Others,
    seen_at: Nanos,
    given: Nanos,
    slept: Nanos,
    /// Files in which places are, and where in them.
    whereabouts: HashMap<Place, (PathBuf, u64)>,
    /// Why a process that crowds its CPUs has no breakpoints, the last time that this was so.
    refused: Option<Refused>,
    /// Until when CPUs are handed over.
    until: Nanos,
    hands_over: bool,
    worth: Worth,
    /// Whether samples are taken, to see what that is worth.
    looks: bool,
    hunt: Hunt,
    hunted_at: Nanos,
    /// Whether samples are taken, to see whether threads spin.
    hunts: bool,
    /// Whether threads crowded their CPUs, and handed some over, at the last look.
    crowded: bool,
    hands: bool,
    /// They spin in loops that are known.
    spin: bool,
    /// There are breakpoints, or shall be.
    arms: bool,
    doubts: Doubts,
    /// Where threads are, while that is looked at; None before.
    spinning: Option<Result<Spinning, CountersError>>,
    ended: bool,
    looked_at: Nanos,
    /// It was not looked yet.
    is_first: bool,
    /// When there was something to do last.
    busy_at: Nanos,
}

impl<P: Places> HandOver<P> {
    /// For a program that may use these CPUs, and of their time so many, less where it has a quota.
    #[must_use]
    pub fn new(proc: Proc, places: P, (on, cpus): (CpuSet, f64), now: Nanos) -> Self {
        let others = Others::new(on, &proc, now);
        Self {
            others,
            proc,
            places,
            cpus,
            modules: Modules::default(),
            known: BTreeMap::new(),
            crowd: Crowd::new(now),
            beside: None,
            seen_at: now,
            given: Nanos::ZERO,
            slept: Nanos::ZERO,
            whereabouts: HashMap::new(),
            refused: None,
            until: Nanos::ZERO,
            hands_over: false,
            worth: Worth::default(),
            looks: false,
            hunt: Hunt::default(),
            hunted_at: now,
            hunts: false,
            crowded: false,
            hands: false,
            spin: false,
            arms: false,
            doubts: Doubts::default(),
            spinning: None,
            ended: false,
            looked_at: Nanos::ZERO,
            is_first: true,
            busy_at: now,
        }
    }

    /// From now on CPUs are handed over also where these have a use for them.
    pub fn cooperate_with(&mut self, others: Beside) {
        self.beside = Some(others);
    }

    /// What has come of it so far, and where threads handed over most often.
    pub fn handed(&self) -> (Handed, Option<Where<'_>>) {
        let mut all = self.places.handed();
        // Where a loop was tried that does not wait, nothing came of it.
        all.retain(|(place, _)| !self.doubts.contain(*place) || !self.places.is_refuted(*place));
        let most = all.iter().max_by_key(|(_, handed)| handed.traps);
        let most = most.and_then(|(place, _)| match self.whereabouts.get(place) {
            Some((file, offset)) => Some(Where::Code(file, *offset)),
            None if *place == Place::MPI => Some(Where::Mpi),
            None => (*place == Place::YIELDS).then_some(Where::Yields),
        });
        let sum = all.iter().fold(Handed::default(), |sum, (_, h)| Handed {
            traps: sum.traps + h.traps,
            given: sum.given + h.given,
            slept: sum.slept + h.slept,
        });
        (sum, most)
    }

    /// Why threads that spin kept their CPU; None where they did not, or there was no need.
    #[must_use]
    pub fn refused(&self) -> Option<&Refused> {
        let all = self.places.handed();
        let none = all.iter().all(|(place, h)| *place == Place::YIELDS || h.traps == 0);
        self.refused.as_ref().filter(|_| none)
    }

    /// Looks once. To be called again and again; what it finds is about the time since it was called last.
    pub fn look(&mut self, now: Nanos) -> Again {
        if self.ended {
            return Again::Rarely;
        }
        let files = self.modules.count();
        let taking = self.places.taking();
        self.known.retain(|known, _| taking.iter().any(|t| t.key() == *known));
        if self.doubts.meet(taking.iter().map(|t| t.space)) {
            self.hunt.meets_another(now);
        }
        if self.is_needed(&taking, now) {
            self.until = now + HOLD;
        }
        // Ranks of MPI need nothing else: whether they hand over is seen first.
        let begins = now < self.until && !self.hands_over && self.worth.hands_over();
        let others = !begins && self.look_for_loops(&taking, now);
        let is_worth = self.is_worth(&taking, now < self.until, now);
        let was = std::mem::replace(&mut self.hands_over, now < self.until && is_worth);
        let arms = self.hands_over && self.has_loops();
        let armed = std::mem::replace(&mut self.arms, arms);
        if self.hands_over {
            self.looks_again(now);
        } else if was || self.looks {
            // Until breakpoints are taken away, the next thread that comes to one takes it out.
            let _ = self.places.until(0);
        }
        if !arms && !self.looks && !self.known.is_empty() {
            self.clear();
        }
        let again = arms && (others || !armed || now - self.looked_at >= AGAIN);
        for process in taking.into_iter().filter(|_| arms) {
            if again || !self.known.contains_key(&process.key()) {
                self.arm(process);
            }
        }
        if again {
            self.looked_at = now;
        }
        let searches = self.modules.count() > files || self.modules.is_searching();
        let in_moments =
            now >= self.until && self.crowd.waited() > MOMENTS && !self.hunt.rests(now);
        // That it is looked for loops, now and then, makes nothing else more urgent.
        let urgent = self.looks || others || searches;
        if urgent || begins || arms || self.hands || in_moments {
            self.busy_at = now;
        }
        // What threads do is known from one look to the next.
        let is_first = std::mem::replace(&mut self.is_first, false);
        match now - self.busy_at {
            _ if urgent || begins || is_first || self.hunts && self.hunt.is_first() => Again::Soon,
            _ if self.hunts => Again::Sampling,
            idle if idle < IDLE => Again::AsUsual,
            _ => Again::Rarely,
        }
    }

    /// When it is looked again: until then programs go on handing over, if they do, and others are there, if they are.
    pub fn looks_again(&mut self, at: Nanos) {
        if self.ended {
            return;
        }
        let second = (at.0 / 1_000_000_000) as u32 + SECONDS;
        // A table that cannot be written stays as it is: what is said there ends by itself.
        let _ = self.places.others(if self.others.are_there() { second } else { 0 });
        if let Some(beside) = &self.beside {
            beside.holds_until(at);
        }
        if self.hands_over {
            let _ = self.places.until(second);
        }
    }

    /// No thread hands over from now on.
    pub fn end(&mut self) {
        self.ended = true;
        let _ = self.places.others(0);
        let _ = self.places.until(0);
        self.clear();
    }

    /// Takes all breakpoints away. Where that cannot be, each is taken away by the next thread that comes to it when nobody is
    /// to hand over any longer.
    fn clear(&mut self) {
        for (key, places) in std::mem::take(&mut self.known) {
            if let Ok(memory) = Memory::of(&self.proc, key.0) {
                let stay = self.clear_in(key.0, &memory, places);
                if !stay.is_empty() {
                    self.known.insert(key, stay);
                }
            }
        }
    }

    /// Takes breakpoints away from a process. Returns those that stay for now: the program takes them away itself at this moment,
    /// or a debugger has a thread there that would go on in the middle of the instruction.
    fn clear_in(&mut self, pid: Pid, memory: &Memory, places: Vec<Known>) -> Vec<Known> {
        let (is_traced, mut stay) = (is_traced(&self.proc, pid), Vec::new());
        for known in places {
            let (place, at, instruction) = &known;
            let stands_there = || is_traced && stands_behind(&self.proc, pid, *at);
            if !self.places.changes(*place, true) {
                stay.push(known);
                continue;
            }
            let mut stays = stands_there();
            if !stays {
                // Code that was unmapped has no breakpoint.
                let _ = memory.clear_breakpoint(*at, instruction);
                stays = stands_there();
            }
            if stays {
                // With a guard, which it may not have had yet.
                let _ = memory.set_breakpoint(*at, instruction);
                let _ = memory.set_breakpoint(*at, instruction);
            }
            self.places.changes(*place, false);
            if stays {
                stay.push(known);
            }
        }
        stay
    }

    /// Whether threads crowd their CPUs, or have handed some over.
    fn is_needed(&mut self, taking: &[Taking], now: Nanos) -> bool {
        let elapsed = now - std::mem::replace(&mut self.seen_at, now);
        let Handed { given, slept, .. } = self.handed().0;
        let used = given - std::mem::replace(&mut self.given, given);
        let slept = slept - std::mem::replace(&mut self.slept, slept);
        let pids: Vec<Pid> = taking.iter().map(|t| t.pid).collect();
        let others = self.beside.as_mut().map_or(0.0, |beside| beside.wanted(now));
        let crowded = self.crowd.outnumber(self.cpus, others, &self.proc, &pids, now);
        self.others.look(&self.proc, self.crowd.ran(), now);
        if let Some(beside) = &self.beside {
            // While it yields a thread waits for a CPU, and others run: that is among both.
            let wanted = self.crowd.wanted_time() + used + slept;
            let most = 1_000 * self.crowd.threads() as u64;
            let wanted_milli = ((wanted.0 as f64 * 1e3 / elapsed.0.max(1) as f64) as u64).min(most);
            beside.say(wanted_milli, given);
        }
        // Where there is a CPU for each, it was another program that had a use for it.
        let are_many = self.crowd.taking_part() as f64 + others > self.cpus;
        (self.crowded, self.hands) = (crowded, are_many && used > elapsed.scale(USED));
        // Ranks hand over by calls that need no search; and where it is others that crowd the CPUs, no thread loses a slice at
        // each meeting.
        self.modules.may_wait(self.hands || self.crowd.wanted() as f64 <= self.cpus);
        self.doubts.refute(&mut self.places, self.crowd.wanted_time(), elapsed);
        self.crowded || self.hands
    }

    /// Looks whether threads spin, before anything in the program is changed; and, where they do so in no loop that is known,
    /// or that does not help, for others. Whether there are others now.
    fn look_for_loops(&mut self, taking: &[Taking], now: Nanos) -> bool {
        let was = self.hunts;
        let mut seen = Seen::default();
        if was {
            // Also for the last time, as it may have been a while.
            self.sample(taking);
            if let Some(Ok(spinning)) = &mut self.spinning {
                seen = spinning.places().seen();
            }
        }
        let (is_needed, is_seen) = (now < self.until, self.can_see());
        let doing = Doing { crowded: self.crowded, handed: self.hands, seen };
        // Of samples in what is not known yet nobody can say what they are.
        let can_tell = is_seen && !self.looks;
        let found = self.hunt.step(now, is_needed, Some(doing).filter(|_| can_tell));
        self.hunts = found.looks;
        // Where that cannot be seen they may.
        self.spin = found.spins || is_needed && !is_seen;
        if found.spins && was && !self.hunts && !self.arms {
            let before = Seen { time: now - self.hunted_at, ..seen };
            self.worth.begins(now, before);
        }
        if self.hunts && !was {
            self.hunted_at = now;
            self.sample(taking);
        }
        let ended = was && !self.hunts && !self.looks;
        let Some(Ok(spinning)) = self.spinning.as_mut().filter(|_| ended) else {
            return false;
        };
        let is_new =
            found.elsewhere && self.cpus >= LEAST_CPUS && self.doubts.found(&spinning.elsewhere());
        spinning.taken();
        spinning.keep(&[], |_| false);
        is_new
    }

    /// Whether samples can be taken of all threads.
    fn can_see(&self) -> bool {
        !matches!(self.spinning, Some(Err(_))) && self.crowd.threads() <= MOST
    }

    /// Whether there is something gained, or that is not known. `needed` is whether CPUs have to be handed over.
    fn is_worth(&mut self, taking: &[Taking], needed: bool, now: Nanos) -> bool {
        let mut seen = Seen::default();
        if self.looks {
            self.sample(taking);
            if let Some(Ok(spinning)) = &mut self.spinning {
                seen = spinning.taken().seen();
            }
        }
        let is_seen = self.can_see();
        // Where there is no loop at which threads could hand over a pause would show nothing.
        let has_loops = self.has_loops() && self.is_in_loops();
        let shows = needed && is_seen && !self.hunts && has_loops;
        let act = self.worth.step(now, shows, seen);
        let looked = std::mem::replace(&mut self.looks, act.looks);
        if act.looks && !looked {
            self.sample(taking);
        } else if let Some(Ok(spinning)) = self.spinning.as_mut().filter(|_| looked && !act.looks) {
            spinning.keep(&[], |_| false);
        }
        act.hands
    }

    /// Notes where threads were since the last time; from now on, where nothing was noted before.
    fn sample(&mut self, taking: &[Taking]) {
        let Ok(spinning) = self.spinning.get_or_insert_with(Spinning::new) else { return };
        spinning.look_for_callers(self.hunts);
        let pids: Vec<Pid> = taking.iter().map(|t| t.pid).collect();
        spinning.look_at(&self.proc, &pids, |_| true);
    }

    /// Whether there are loops at which threads that spin could hand over.
    fn has_loops(&self) -> bool {
        self.spin || self.doubts.are_there(&self.places)
    }

    /// Whether threads that handed over were in loops that are known: what others do looks like work.
    fn is_in_loops(&self) -> bool {
        let time = |h: &Handed| (h.given + h.slept).as_secs_f64();
        let all = self.places.handed();
        let is_elsewhere =
            |p: &Place| [Place::MPI, Place::YIELDS].contains(p) || self.doubts.contain(*p);
        let elsewhere = all.iter().filter(|(p, _)| is_elsewhere(p));
        let elsewhere: f64 = elsewhere.map(|(_, h)| time(h)).sum();
        elsewhere <= LITTLE * all.iter().map(|(_, h)| time(h)).sum::<f64>()
    }

    /// On how many CPUs threads computed, on average, in pauses and just before them; None where it was not compared.
    #[must_use]
    pub fn worth(&self) -> Option<(f64, f64)> {
        let (without, with) = self.worth.compared();
        Some((cpus(without)?, cpus(with)?))
    }

    /// Puts breakpoints into a process, where it can have some; takes them away where it cannot any longer.
    fn arm(&mut self, process: Taking) {
        let pid = process.pid;
        let memory = Memory::of(&self.proc, pid);
        let unfit = lasting(&self.proc, pid);
        let passing = matches!(unfit, Some(Unfit::Unhandled | Unfit::Unreadable));
        let mut places = self.known.remove(&process.key()).unwrap_or_default();
        if places.is_empty() && passing {
            // For a moment, while the process begins, or ends.
            return;
        }
        if process.is_left_alone {
            self.refused = Some(Refused::LeftAlone(pid));
        } else if let Some(why) = unfit.filter(|_| !passing) {
            self.refused = Some(Refused::Unfit(pid, why));
        }
        let fits = !process.is_left_alone && unfit.is_none();
        if fits {
            // What it was before is no longer of interest.
            self.refused = None;
        }
        let spins = if fits { self.spins(pid) } else { Vec::new() };
        let memory = match memory {
            Ok(memory) => memory,
            Err(source) if !spins.is_empty() => {
                self.refused = Some(Refused::Memory { pid, source });
                return;
            }
            Err(_) => return,
        };
        // The memory was opened before all that was looked at, and a program that begins takes out what was known of its
        // process before it handles the signal: so what is there now is that of these addresses.
        let is_still = self.places.taking().contains(&process);
        let is_meant = |(place, at, _): &Known| {
            spins.iter().any(|found| found.at == *at) && !self.places.is_refuted(*place)
        };
        let (kept, gone) = places.into_iter().partition(|known| is_still && is_meant(known));
        places = kept;
        places.extend(self.clear_in(pid, &memory, gone));
        if is_still {
            self.set(process, &memory, spins, &mut places);
        }
        self.known.insert(process.key(), places);
    }

    fn set(
        &mut self,
        process: Taking,
        memory: &Memory,
        spins: Vec<Found>,
        places: &mut Vec<Known>,
    ) {
        for Found { at, file, spin: Spin { offset, bytes, .. }, is_doubted } in spins {
            let Some(place) = self.places.place(process.space, at, hidden(&bytes), is_doubted)
            else {
                self.refused = Some(Refused::Full);
                continue;
            };
            if is_doubted && !self.doubts.takes(place, &self.places) {
                continue;
            }
            self.whereabouts.entry(place).or_insert_with(|| (file.to_path_buf(), offset));
            let _ = self.places.want(place, true);
            if self.places.changes(place, true) {
                // Code that was unmapped meanwhile is no longer of interest; where all is refused it is said.
                if let Err(source) = memory.set_breakpoint(at, &bytes) {
                    self.refused = Some(Refused::Memory { pid: process.pid, source });
                }
                self.places.changes(place, false);
            }
            let known = (place, at, bytes);
            if !places.contains(&known) {
                places.push(known);
            }
        }
    }

    /// Addresses at which threads of a process wait, and where in which file that is; none where its signals are not those
    /// of the C library.
    fn spins(&mut self, pid: Pid) -> Vec<Found> {
        let Ok(maps) = read_all(&self.proc.process_file(pid, "maps")) else { return Vec::new() };
        // It may have executed a program into which nothing is loaded, or another process have its number.
        if !maps.windows(TABLE.len()).any(|words| words == TABLE) {
            return Vec::new();
        }
        let mut all = Vec::new();
        for code in parse_code(&maps) {
            if code.is_of_system() {
                continue;
            }
            if self.modules.is_go(&self.proc, pid, &code) {
                self.refused = Some(Refused::Go(pid));
                return Vec::new();
            }
            let path: Arc<Path> = code.path.as_path().into();
            let found = |spin: &Spin, is_doubted| {
                let at = code.address(spin.offset)?;
                Some(Found { at, file: path.clone(), spin: spin.clone(), is_doubted })
            };
            // Threads that wait for a moment before they sleep are left alone.
            if self.spin {
                let proved = match self.modules.of(&self.proc, pid, &code) {
                    Some(module) if module.machine == Machine::HOST => module.spins.clone(),
                    // It is gone through meanwhile, or is too large.
                    _ => self.seen_in(&code),
                };
                all.extend(proved.iter().filter_map(|spin| found(spin, false)));
            }
            let doubted = self.doubts.of(code.inode, &code.path);
            all.extend(doubted.iter().filter_map(|spin| found(spin, true)));
        }
        all
    }

    /// Where threads wait that were seen in this file.
    fn seen_in(&self, code: &Code) -> Vec<Spin> {
        let Some(Ok(spinning)) = &self.spinning else { return Vec::new() };
        spinning.spins_in(code.inode, &code.path)
    }
}

/// Why a process cannot have breakpoints. While one of its threads begins, the C library blocks all signals in it.
fn lasting(proc: &Proc, pid: Pid) -> Option<Unfit> {
    for _ in 0..5 {
        match unfit(proc, pid) {
            Some(Unfit::Blocked(_)) => std::thread::sleep(Duration::from_micros(500)),
            found => return found,
        }
    }
    unfit(proc, pid)
}

/// Whether a debugger has this process.
fn is_traced(proc: &Proc, pid: Pid) -> bool {
    let traces = |status: Vec<u8>| status_number(&status, "TracerPid").is_some_and(|t| t != 0);
    proc.threads(pid).into_iter().any(|tid| proc.thread_status(tid).is_ok_and(traces))
}

#[cfg(test)]
mod tests;

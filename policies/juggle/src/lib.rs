//! Juggle: threads that are behind go to CPUs that run fast, in exchange for threads that are
//! ahead (Hofmeyr, Iancu, Colmenares, Kubiatowicz: Juggle, HPDC 2011, sections 2.1 to 2.3 and
//! Figure 3).
//!
//! At each balancing point, once counts of threads that differ by more than one have been evened out:
//!
//! 1. Threads below the mean progress are *behind*, the others *ahead* (2.2); those that are equal to
//!    the mean, within a margin, count as both.
//! 2. CPUs above the mean speed are *fast*: each of their threads sits in a fast slot (2.3).
//! 3. Slow CPUs, least average progress first, give up their behind threads in turn; fast CPUs,
//!    most average progress first, take them in turn, each for an ahead thread that goes the
//!    other way (Figure 3).
//!
//! Invariant: only swaps (and moves to a CPU that holds no thread from one that holds some), so
//! counts of threads per CPU that want to compute never come to differ by more than one through a
//! decision here.
//!
//! Where this departs from the paper, and why:
//! - What decides whether a pair is swapped is the lead of the one over the other. In the paper a
//!   margin xi makes threads that are equal to the mean count as behind, so that they are left where
//!   they are (2.2). But by Lemma 1 threads are equal or lambda / (floor(n/m) ceil(n/m)) apart, and where
//!   few are behind the mean lies a mere n_behind / n of that below those that are ahead. A xi that is
//!   a part of the period is more than this from about four threads on a CPU on, and then no thread is
//!   ahead and nothing is swapped (22 threads on 7 CPUs, xi of 0.02 lambda: those that are ahead are 0.015
//!   lambda above the mean). So here one that is equal may be swapped either way, and must lead, or be
//!   led, by a part of what the slots of the two make in one period: that is the same part of
//!   Lemma 1's difference for every n and m.
//! - And it must lead by more than a reading can be wrong by. Progress is cumulative, so a lead too
//!   small to act on now is acted on when it has grown; without this, noise alone would migrate
//!   threads of a balanced program.
//! - A pair is swapped only if the fast CPU is faster than that very slow one by more than noise.
//!   Being above the mean is not enough: with one slow CPU among many equal ones, noise puts half
//!   of the equal ones above the mean and half below.
//! - A swap leaves the counts as they are, so the speed of a CPU is that of its slots, and is
//!   averaged over as many periods as it takes to distinguish a slot from its neighbour (one where a
//!   reading is exact, several where the tick is a good part of the period and a CPU holds many).
//! - Where a thread has ended, its CPU is judged by what is left for each of the others, not by the
//!   period in which it was still there.
//! - Within a CPU the thread that is furthest behind is taken first, on fast CPUs the one that is
//!   furthest ahead: the paper leaves that order open.
//! - Where the kernel knows CPUs of different capacity (performance and efficiency cores), CPU time
//!   and speed count by it. A CPU that is faster by its capacity need not be so by a margin as well.
//! - A CPU whose threads all wait is a fast one: a thread that comes has it alone.
//! - A thread that spins without a break, and reports it (the probe), has nothing to do, and its CPU is fast as
//!   one whose threads wait is, but for other threads that spin there. Where that leaves more to those that
//!   compute, all that spin are put aside on few CPUs, and counts differ by more than one
//!   (`crate::aside`).
//! - Threads that are held beside others, more of them on some CPUs, meet often, so that none gets ahead: what one seems to
//!   lead by is what it took to wait. They are not swapped.
//! - A CPU without threads is a fast CPU with a free slot (the paper has n >= m throughout). One
//!   that was found slow is remembered for a while, so that a thread does not go back and forth
//!   between two CPUs that strangers use.
//! - A thread that wanted no CPU in the last period gives up its slot before any other, however
//!   far it is: it waits at a barrier, say, and loses nothing. Where threads have unequal work, the
//!   one that has least is behind for good, and would keep an idle CPU to itself.
//! - The mean progress is that of the threads that may be moved and that wanted a CPU. One that may
//!   not be moved, or has less to do, falls behind for good, and would make all others seem ahead.

#![forbid(unsafe_code)]

mod aside;

use crate::aside::{Aside, only_spins};
use evenly_model::metrics::Spread;
use evenly_model::{CpuIndex, Nanos, Plan, Reason, Snapshot, ThreadIndex, ThreadView};
use evenly_policy::speed::{RESTS, averaged};
use evenly_policy::{Acts, Mechanism, Needs, Policy, PolicyInfo, Spreader};
use std::collections::VecDeque;

/// `juggle`: all threads stay pinned.
pub const JUGGLE: PolicyInfo = PolicyInfo {
    name: "juggle",
    about: "swap threads that are behind with threads that are ahead; all stay pinned",
    needs: Needs::Progress,
    acts: Acts::AtPoints(Mechanism::Pin),
    make: || Box::new(Juggle::new(Margins::default())),
    arms: &[],
};

/// `hybrid`: Juggle's decisions, and the kernel's own balancing between them.
pub const HYBRID: PolicyInfo = PolicyInfo {
    name: "hybrid",
    about: "Juggle's decisions; moved threads are unpinned as soon as one blocks or yields",
    needs: Needs::Progress,
    acts: Acts::AtPoints(Mechanism::Nudge),
    make: || Box::new(Juggle::hybrid()),
    arms: &[],
};

/// Error margins of the classification.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margins {
    /// xi of section 2.2 as a part of the period: a thread within this of the mean is equal to it, and counts
    /// as behind and as ahead.
    pub equal: f64,
    /// The least lead for which a pair is swapped, as a part of the difference that their slots make
    /// in a period: what a period differs from the next by where it varies (a tenth) is no lead.
    pub gap: f64,
    /// How much of the gap between neighbouring slot speeds (1/k and 1/(k+1)) a fast CPU must be
    /// faster than a slow one, for a swap between them.
    pub fast: f64,
    /// The least lead for which a pair is swapped, as a part of the reading's resolution.
    pub lead: f64,
    /// How far the speed of a CPU in one period may be off, in resolutions per period: the time of
    /// the running thread is booked late, and the waiting of the others later still.
    pub noise: f64,
}

impl Default for Margins {
    fn default() -> Self {
        Self { equal: 0.02, gap: 0.1, fast: 0.3, lead: 0.5, noise: 1.0 }
    }
}

/// For how long the speed of a CPU that was left is believed.
const REMEMBERED: Nanos = Nanos::from_millis(5_000);

/// What is known of a CPU, by its number.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    threads: u32,
    speed: f64,
    samples: u32,
    seen: Nanos,
}

/// What is believed of a CPU at this point.
#[derive(Debug, Clone, Copy)]
struct Estimate {
    /// Mean speed over the last periods; None where no thread wanted this CPU.
    speed: Option<f64>,
    /// A CPU of the same capacity is surely faster than this one if its `at_least` is above this.
    at_most: f64,
    /// The same for a CPU that is known to have a greater capacity.
    bare_at_most: f64,
    /// The least speed that the CPU can have; see `at_most`.
    at_least: f64,
}

/// The policy. It keeps its work space from point to point.
#[derive(Debug, Clone, Default)]
pub struct Juggle {
    margins: Margins,
    respread_patience: u32,
    uneven_points: u32,
    spreader: Spreader,
    /// Where each thread is once the counts have been evened out.
    at: Vec<CpuIndex>,
    /// Threads that may not be moved, or have been to even out the counts.
    stays: Vec<bool>,
    behind: Vec<bool>,
    ahead: Vec<bool>,
    resting: Vec<bool>,
    by_cpu: Vec<Vec<ThreadIndex>>,
    known: Vec<Known>,
    estimates: Vec<Estimate>,
    slow: Vec<(CpuIndex, f64)>,
    ranked: Vec<(CpuIndex, f64)>,
    fast: VecDeque<CpuIndex>,
    hopeless: Vec<i64>,
    counts: Vec<u32>,
    /// For each CPU, how many threads did nothing but spin there.
    spinning: Vec<u32>,
    aside: Aside,
    /// Counts are uneven because of what was decided here: they are evened out without patience.
    at_once: bool,
}

impl Juggle {
    /// The decisions of Juggle with these margins.
    #[must_use]
    pub fn new(margins: Margins) -> Self {
        Self { margins, ..Self::default() }
    }

    /// For moves that do not pin: the kernel also moves threads, so counts that are uneven at one
    /// balancing point are often even at the next, and are evened out only if they stay uneven.
    #[must_use]
    pub fn hybrid() -> Self {
        Self { respread_patience: 1, ..Self::new(Margins::default()) }
    }

    /// Threads go from CPUs that hold too many to others, unless it is too early for that.
    fn even_out_counts(&mut self, snapshot: &Snapshot, plan: &mut Plan) {
        if !self.spreader.spread(snapshot, plan) {
            self.uneven_points = 0;
            return;
        }
        self.uneven_points += 1;
        if snapshot.point > 0 && !self.at_once && self.uneven_points <= self.respread_patience {
            plan.clear();
        }
    }

    /// Takes note of where threads are once those are moved that even out the counts, and of what that
    /// leaves of the speed of CPUs.
    fn foresee(&mut self, snapshot: &Snapshot, plan: &Plan) {
        self.at.clear();
        self.at.extend(snapshot.threads.iter().map(|t| t.cpu));
        self.stays.clear();
        self.stays.extend(snapshot.threads.iter().map(|t| !t.movable));
        if plan.moves.is_empty() {
            return;
        }
        self.counts.clear();
        self.counts.extend(snapshot.cpus.iter().map(|c| c.threads));
        for m in &plan.moves {
            if let Some(count) = self.counts.get_mut(self.at[m.thread]) {
                *count = count.saturating_sub(1);
            }
            self.counts[m.to] += 1;
            (self.at[m.thread], self.stays[m.thread]) = (m.to, true);
        }
        let k = (snapshot.threads.len() / snapshot.cpus.len().max(1)).max(1) as f64;
        for (c, cpu) in snapshot.cpus.iter().enumerate() {
            let (before, after) = (cpu.threads, self.counts[c]);
            if before == after {
                continue;
            }
            let e = &mut self.estimates[c];
            let weight = cpu.weight();
            // What all had is shared by those that are there; of an empty CPU all is to be had.
            let together = e.speed.map_or(weight, |s| s * f64::from(before));
            e.speed = (after > 0).then(|| (together / f64::from(after)).min(weight));
            let speed = e.speed.unwrap_or(weight);
            (e.at_most, e.bare_at_most) = (speed * (1.0 + self.margins.fast / k), speed);
            e.at_least = speed;
        }
    }

    fn classify_threads(&mut self, snapshot: &Snapshot) {
        let elapsed = snapshot.elapsed.0 as f64;
        let rests = |t: &ThreadView| (t.demand().0 as f64) < RESTS * elapsed;
        self.resting.clear();
        self.resting.extend(snapshot.threads.iter().map(rests));
        let counted = snapshot.threads.iter().filter(|t| t.movable && !rests(t));
        let mean = Spread::of(counted.map(|t| t.progress as f64)).map_or(0.0, |l| l.mean);
        let margin = self.margins.equal * elapsed;
        let behind = |t: &ThreadView| !rests(t) && (t.progress as f64) < mean + margin;
        let ahead = |t: &ThreadView| rests(t) || (t.progress as f64) >= mean - margin;
        self.behind.clear();
        self.behind.extend(snapshot.threads.iter().map(behind));
        self.ahead.clear();
        self.ahead.extend(snapshot.threads.iter().map(ahead));
        for list in &mut self.by_cpu {
            list.clear();
        }
        self.by_cpu.resize_with(snapshot.cpus.len(), Vec::new);
        for (t, &cpu) in self.at.iter().enumerate() {
            if let Some(list) = self.by_cpu.get_mut(cpu) {
                list.push(t);
            }
        }
        for list in &mut self.by_cpu {
            list.sort_unstable_by_key(|&t| (self.resting[t], snapshot.threads[t].progress, t));
        }
    }

    /// Brings what is known of the CPUs up to date.
    fn estimate(&mut self, snapshot: &Snapshot) {
        self.estimates.clear();
        let k = (snapshot.threads.len() / snapshot.cpus.len().max(1)).max(1) as f64;
        let coarse = snapshot.resolution.0 as f64 / (snapshot.elapsed.0 as f64).max(1.0);
        // Neighbouring slots run at 1/k and 1/(k+1): relative to the slower one they are 1/k
        // apart, and the noise of one period is that of one sample.
        let noise = self.margins.noise * coarse;
        self.spinning.clear();
        self.spinning.resize(snapshot.cpus.len(), 0);
        for t in snapshot.threads.iter().filter(|t| only_spins(t, snapshot.elapsed.0 as f64)) {
            if let Some(count) = self.spinning.get_mut(t.cpu) {
                *count += 1;
            }
        }
        for (cpu, &spinning) in snapshot.cpus.iter().zip(&self.spinning) {
            let number = cpu.id.0 as usize;
            if number >= self.known.len() {
                self.known.resize(number + 1, Known::default());
            }
            let known = &mut self.known[number];
            if let Some(speed) = cpu.speed {
                let before = *known;
                if known.threads != cpu.threads {
                    known.samples = 0;
                }
                known.threads = cpu.threads;
                known.seen = snapshot.now;
                (known.speed, known.samples) =
                    averaged((known.speed, known.samples), speed, k * noise);
                if before.threads > cpu.threads && cpu.threads > 0 {
                    // One that has ended made its slots slow for a part of the period. From now on
                    // fewer share what all had.
                    let together = before.speed * f64::from(before.threads);
                    known.speed = speed.max(together / f64::from(cpu.threads)).min(1.0);
                    // A guess, to be replaced by the next reading.
                    known.samples = 0;
                }
            }
            let off = noise / f64::from(known.samples.max(1));
            let speed = cpu.speed.map(|_| known.speed);
            let remembered =
                cpu.threads == 0 && known.samples > 0 && snapshot.now - known.seen < REMEMBERED;
            let weight = cpu.weight();
            self.estimates.push(Estimate {
                speed: speed.map(|s| s * weight),
                at_most: weight * known.speed * (1.0 + self.margins.fast / k + off),
                bare_at_most: weight * known.speed * (1.0 + off),
                at_least: match speed {
                    // Beside others that spin one has its share.
                    None if !remembered => weight / f64::from(spinning.max(1)),
                    _ => weight * known.speed / (1.0 + off),
                },
            });
        }
    }

    fn classify_cpus(&mut self, snapshot: &Snapshot) {
        self.slow.clear();
        self.ranked.clear();
        self.fast.clear();
        // Room for all, so that the first point at which a CPU is fast allocates nothing.
        self.fast.reserve(snapshot.cpus.len());
        let Some(speeds) = Spread::of(self.estimates.iter().filter_map(|e| e.speed)) else {
            return;
        };
        for (c, estimate) in self.estimates.iter().enumerate() {
            let threads = &self.by_cpu[c];
            let average = if threads.is_empty() {
                f64::INFINITY
            } else {
                threads.iter().map(|&t| snapshot.threads[t].progress as f64).sum::<f64>()
                    / threads.len() as f64
            };
            match estimate.speed {
                Some(speed) if speed <= speeds.mean => self.slow.push((c, average)),
                _ => self.ranked.push((c, average)),
            }
        }
        // What cannot gain or be gained from is left out at once, so that where all is noise
        // nothing is searched.
        let (estimates, ahead, by_cpu) = (&self.estimates, &self.ahead, &mut self.by_cpu);
        let stays = &self.stays;
        let equal = snapshot.cpus.windows(2).all(|c| c[0].capacity == c[1].capacity);
        let at_most =
            |c: CpuIndex| if equal { estimates[c].at_most } else { estimates[c].bare_at_most };
        let best = self.ranked.iter().map(|f| estimates[f.0].at_least).fold(0.0, f64::max);
        self.slow.retain(|s| at_most(s.0) < best);
        let worst = self.slow.iter().map(|s| at_most(s.0)).fold(f64::INFINITY, f64::min);
        self.ranked.retain(|f| {
            let occupants = &mut by_cpu[f.0];
            let free = occupants.is_empty();
            occupants.retain(|&t| ahead[t] && !stays[t]);
            estimates[f.0].at_least > worst && (free || !occupants.is_empty())
        });
        self.slow.sort_unstable_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
        self.ranked.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        self.fast.extend(self.ranked.iter().map(|f| f.0));
    }

    /// The swap of Figure 3 for one behind thread, if a fast slot is left that it gains from.
    fn place(&mut self, snapshot: &Snapshot, thread: ThreadIndex, plan: &mut Plan) {
        let &ThreadView { progress, mask, .. } = &snapshot.threads[thread];
        let from = self.at[thread];
        // A thread with the same mask that was no less behind has found none ahead of it.
        if self.hopeless.get(mask).is_some_and(|&p| progress >= p) {
            return;
        }
        let coarse = self.margins.lead * snapshot.resolution.0 as f64;
        let here = self.estimates[from].speed.unwrap_or(0.0);
        let mut only_leads_were_short = true;
        for _ in 0..self.fast.len() {
            let Some(cpu) = self.fast.pop_front() else { return };
            let least = self.estimates[cpu].at_least;
            let gains = if snapshot.cpus[cpu].capacity > snapshot.cpus[from].capacity {
                least > self.estimates[from].bare_at_most
            } else {
                least > self.estimates[from].at_most
            };
            only_leads_were_short &= gains;
            if !gains || !snapshot.allows(thread, cpu) {
                self.fast.push_back(cpu);
                continue;
            }
            let occupants = &mut self.by_cpu[cpu];
            if occupants.is_empty() {
                plan.push(thread, cpu, Reason::Behind);
                return;
            }
            let there = self.estimates[cpu].speed.unwrap_or(least);
            let gap = (there - here).max(0.0) * snapshot.elapsed.0 as f64;
            let least_lead = coarse.max(self.margins.gap * gap) as i64;
            // The one that is furthest ahead of those that may take the thread's place.
            let found = occupants.iter().rposition(|&t| snapshot.allows(t, from));
            only_leads_were_short &= found == Some(occupants.len() - 1);
            let ahead = found
                .filter(|&at| {
                    let t = occupants[at];
                    self.resting[t] || snapshot.threads[t].progress - progress > least_lead
                })
                .map(|at| occupants.remove(at));
            if !occupants.is_empty() {
                self.fast.push_back(cpu);
            }
            if let Some(ahead) = ahead {
                plan.push(thread, cpu, Reason::Behind);
                plan.push(ahead, from, Reason::Ahead);
                return;
            }
        }
        if only_leads_were_short && let Some(p) = self.hopeless.get_mut(mask) {
            *p = progress;
        }
    }
}

impl Policy for Juggle {
    fn decide(&mut self, snapshot: &Snapshot, plan: &mut Plan) {
        if snapshot.is_held_unevenly() {
            self.spreader.spread(snapshot, plan);
            return;
        }
        self.at_once = self.aside.were_any();
        if !self.aside.is_worth_it(snapshot) {
            return self.balance(snapshot, plan);
        }
        self.at_once = true;
        let rest = self.aside.rest(snapshot);
        self.balance(&rest, plan);
        self.aside.complete(snapshot, rest, plan);
    }
}

impl Juggle {
    /// All threads, on all CPUs.
    fn balance(&mut self, snapshot: &Snapshot, plan: &mut Plan) {
        self.estimate(snapshot);
        self.even_out_counts(snapshot, plan);
        self.foresee(snapshot, plan);
        self.classify_threads(snapshot);
        self.classify_cpus(snapshot);
        self.hopeless.clear();
        self.hopeless.resize(snapshot.masks.len(), i64::MAX);
        // Cyclically over the slow CPUs, one behind thread each, until none is left or no fast
        // slot is.
        let (mut depth, mut left) = (0, true);
        while left {
            left = false;
            for s in 0..self.slow.len() {
                if self.fast.is_empty() {
                    return;
                }
                let Some(&thread) = self.by_cpu[self.slow[s].0].get(depth) else { continue };
                if !self.behind[thread] {
                    continue;
                }
                left = true;
                if !self.stays[thread] {
                    self.place(snapshot, thread, plan);
                }
            }
            depth += 1;
        }
    }
}

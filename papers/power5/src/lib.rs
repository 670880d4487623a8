//! Programs that compute and wait in turns, on a POWER5: the experiments of HPCSched (Boneti and others
//! 2008, section V) in virtual time.
//!
//! # The model
//! One chip: two cores of two contexts, a rank on each context, for good. A rank computes its work of an
//! iteration at a speed that depends on its priority, on that of the rank on the other context of its
//! core, and on whether that one computes ([`Speeds`]). Then it sends its messages and sleeps until
//! those that it needs have come: of each rank that it depends on, that of the same iteration or of
//! some before ([`Program::needs`]), and never for less than [`Program::exchange_s`].
//!
//! A rank that is woken becomes runnable at once and runs after the *latency* of its scheduling class:
//! under CFS another process may have its CPU ([`Latency`]); in the class of HPC tasks no other
//! process goes first. It may be woken several times in an iteration ([`Program::wakes`]); all of that latency
//! comes at the beginning then. As in the paper a rank computes as long as it is runnable, so latency is computing, and
//! the other context of its core is busy meanwhile.
//!
//! When ranks are woken their iterations are over, and there is a balancing point: the policy `hpc-*`
//! ([`evenly_hpc::Hpc`], the `decide` that runs live) is shown a snapshot of all ranks, with the counters
//! that the probe has live, and plans weights. The snapshot says what parts are made of here
//! ([`Parts::POWER`]: steps), as the mechanism says live. A context gets the priority whose decode cycles are
//! nearest to its weight ([`priority_for`]), from that moment on. Each rank may run on its own context only.
//!
//! Invariant: what a rank computes in each iteration is drawn before the run, so that all arms run the
//! same program.
//!
//! Known gaps: no caches, no memory, no network that could be full; a balancer costs nothing.

#![forbid(unsafe_code)]

mod cases;
mod comparison;
mod decode;

pub use cases::{BT_MZ, CASES, Case, METBENCH, METBENCH_VAR, PaperRow, SIESTA, case};
pub use comparison::{ArmReport, Comparison, NoArm, POWER5_SCHEMA, arm_names};
pub use decode::{ByShare, Speeds, decode_cycles, priority_for};

use evenly_hpc::{Heuristic, Hpc, Parameters, Parts, Priority};
use evenly_model::{
    CpuId, CpuView, Environment, FULL_CAPACITY, Nanos, Plan, Snapshot, ThreadId, ThreadView, Tid,
    Turns,
};
use evenly_policy::Policy;
use std::sync::Arc;

/// How long a rank that is woken waits for its CPU, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// Under CFS, on average. Default 0.25 ms: assumed. It is what comes out where a process of the
    /// system has the CPU 5 % of the time, in turns of 10 ms (CFS with two tasks and the 20 ms that the
    /// paper names), and a woken task waits for the end of such a turn.
    pub normal_s: f64,
    /// In the class of HPC tasks. Default none.
    pub hpc_s: f64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { normal_s: 0.25e-3, hpc_s: 0.0 }
    }
}

/// A message that a rank needs before it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// The rank that the message comes from.
    pub from: usize,
    /// So many iterations may this rank be ahead of that one: 0 to wait for that of the same iteration.
    pub ahead: u32,
}

/// A program: what its ranks compute and wait for in each iteration.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// What each rank computes in each iteration: seconds beside a rank of equal priority, by rank.
    pub work_s: Vec<Vec<f64>>,
    /// Iterations at the beginning that are its initialisation.
    pub initial: usize,
    /// How often each rank is woken in each iteration, by rank: 1 where it only waits for the next one, more
    /// or less (also a part of 1, on the average) where messages come meanwhile.
    pub wakes: Vec<Vec<f64>>,
    /// The core of each rank; two at most are on one.
    pub cores: Vec<usize>,
    /// What each rank needs before it begins its next iteration.
    pub needs: Vec<Vec<Need>>,
    /// How long an exchange of messages takes that are there: a rank sleeps at least so long.
    pub exchange_s: f64,
    /// How fast it is.
    pub speeds: Speeds,
}

/// What decides on priorities, and which scheduling class the ranks are in.
#[derive(Debug, Clone, PartialEq)]
pub enum Arm {
    /// All priorities are equal; CFS.
    Baseline,
    /// These; CFS (as in the paper's earlier work).
    Static(Vec<u8>),
    /// A heuristic; the class of HPC tasks.
    Balanced(Heuristic, Parameters),
}

/// What a rank did in an iteration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Did {
    /// When it became runnable.
    pub from_s: f64,
    /// For how long it was.
    pub computed_s: f64,
    /// How long it then waited.
    pub waited_s: f64,
    /// The priority that it had at the beginning.
    pub priority: u8,
}

impl Did {
    /// U: the utilisation of the rank.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        self.computed_s / (self.computed_s + self.waited_s)
    }
}

/// What a run amounted to.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// When the last rank had ended, in seconds.
    pub time_s: f64,
    /// What each rank did in each iteration, by rank.
    pub did: Vec<Vec<Did>>,
    /// How often a priority was changed.
    pub changes: usize,
}

impl Run {
    /// What part of the time a rank computed, in percent.
    #[must_use]
    pub fn computing_percent(&self, rank: usize) -> f64 {
        100.0 * self.did[rank].iter().map(|d| d.computed_s).sum::<f64>() / self.time_s
    }

    /// The least utilisation of any rank in an iteration.
    #[must_use]
    pub fn least_utilisation(&self, iteration: usize) -> f64 {
        self.did.iter().map(|d| d[iteration].utilisation()).fold(f64::INFINITY, f64::min)
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Doing {
    /// Runnable, without a CPU until then.
    Latent(f64),
    /// Work that is left.
    Computing(f64),
    /// The rank waits, and sleeps.
    Waiting,
    Ended,
}

/// Times nearer than this are the same.
const SAME_S: f64 = 1e-12;

/// When the policy is called.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Points {
    /// Whenever an iteration of a rank is over, as HPCSched's scheduler is.
    AtEnds,
    /// Every so many seconds, wherever ranks are in their iterations, as live.
    Every(f64),
}

/// Runs a program; the policy is called as iterations end.
///
/// # Panics
/// Where the program's lists are not as long as it has ranks.
#[must_use]
pub fn run(program: &Program, arm: &Arm, latency: Latency) -> Run {
    run_with(program, arm, latency, Points::AtEnds)
}

/// The same with the policy called at these points.
///
/// # Panics
/// Where the program's lists are not as long as it has ranks.
#[must_use]
pub fn run_with(program: &Program, arm: &Arm, latency: Latency, points: Points) -> Run {
    let ranks = program.work_s.len();
    let lists = [program.cores.len(), program.needs.len(), program.wakes.len()];
    assert!(lists == [ranks; 3], "lists of a program");
    let (mut policy, tuning, latency_s) = match arm {
        Arm::Balanced(h, p) => (Some(Hpc::new(*h)), p.clone(), latency.hpc_s),
        _ => (None, Parameters::default(), latency.normal_s),
    };
    let normal = Priority::NORMAL.0;
    let mut machine = Power5 {
        program,
        latency_s,
        now: 0.0,
        priorities: match arm {
            Arm::Static(fixed) => fixed.clone(),
            _ => vec![normal; ranks],
        },
        doing: vec![Doing::Latent(latency_s); ranks],
        finished: vec![Vec::new(); ranks],
        did: vec![Vec::new(); ranks],
        over_s: vec![(0.0, 0.0); ranks],
    };
    (0..ranks).for_each(|rank| machine.begin(rank));
    let (mut snapshot, mut plan, mut changes) = (machine.snapshot(), Plan::default(), 0);
    let environment = Environment { parts: Parts::POWER, tuning, ..Environment::default() };
    snapshot.environment = Arc::new(environment);
    if let Some(policy) = &mut policy {
        policy.decide(&snapshot, &mut plan);
    }
    let mut point_s = match points {
        Points::AtEnds => f64::INFINITY,
        Points::Every(period_s) => period_s,
    };
    while let Some(at) = machine.next() {
        machine.advance(at.min(point_s));
        let mut is_over = false;
        for rank in 0..ranks {
            is_over |= machine.step(rank);
        }
        let is_point = match points {
            Points::AtEnds => is_over,
            Points::Every(period_s) => {
                let is_due = machine.now >= point_s;
                point_s += if is_due { period_s } else { 0.0 };
                is_due
            }
        };
        let (true, Some(policy)) = (is_point, &mut policy) else { continue };
        machine.look(&mut snapshot);
        plan.clear();
        policy.decide(&snapshot, &mut plan);
        for w in &plan.weights {
            let priority = priority_for(w.weight);
            changes += usize::from(machine.set_priority(w.thread, priority));
        }
    }
    machine.wait_for_the_end();
    Run { time_s: machine.now, did: machine.did, changes }
}

struct Power5<'a> {
    program: &'a Program,
    latency_s: f64,
    now: f64,
    priorities: Vec<u8>,
    doing: Vec<Doing>,
    /// When each rank had computed each of its iterations.
    finished: Vec<Vec<f64>>,
    did: Vec<Vec<Did>>,
    /// What each computed and waited in the iterations that are over.
    over_s: Vec<(f64, f64)>,
}

impl Power5<'_> {
    /// The rank becomes runnable.
    fn begin(&mut self, rank: usize) {
        let priority = self.priorities[rank];
        let wakes = self.program.wakes[rank].get(self.did[rank].len()).copied().unwrap_or(1.0);
        self.doing[rank] = Doing::Latent(self.now + self.latency_s * wakes);
        self.did[rank].push(Did { from_s: self.now, computed_s: 0.0, waited_s: 0.0, priority });
    }

    /// Whether it is another one than before.
    fn set_priority(&mut self, rank: usize, priority: u8) -> bool {
        let before = std::mem::replace(&mut self.priorities[rank], priority);
        if let Some(d) = self.did[rank].last_mut()
            && self.now - d.from_s <= SAME_S
        {
            // It has just been woken, too.
            d.priority = priority;
        }
        before != priority
    }

    /// What a rank computed and waited until now.
    fn so_far_s(&self, rank: usize) -> (f64, f64) {
        let (computed, waited) = self.over_s[rank];
        let Some(d) = self.did[rank].last() else { return (computed, waited) };
        let since = self.now - d.from_s;
        match self.doing[rank] {
            Doing::Latent(_) | Doing::Computing(_) => (computed + since, waited),
            Doing::Waiting | Doing::Ended => {
                (computed + d.computed_s, waited + since - d.computed_s)
            }
        }
    }

    /// The first one: a thread for each rank, a CPU for each context.
    fn snapshot(&self) -> Snapshot {
        let ranks = self.doing.len();
        let thread = |cpu: usize| ThreadView {
            id: ThreadId { tid: Tid(cpu as i32 + 1), start: 1 },
            cpu,
            progress: 0,
            ran: Nanos::ZERO,
            waited: Nanos::ZERO,
            blocked: Nanos::ZERO,
            spinning: Nanos::ZERO,
            turns: Some(Turns::default()),
            movable: true,
            mask: cpu,
        };
        let cpu = |c: usize| CpuView {
            id: CpuId(c as u32),
            capacity: FULL_CAPACITY,
            threads: 1,
            speed: None,
        };
        Snapshot {
            cpus: (0..ranks).map(cpu).collect(),
            threads: (0..ranks).map(thread).collect(),
            masks: (0..ranks).map(|own| (0..ranks).map(|c| c == own).collect()).collect(),
            held: true,
            ..Snapshot::default()
        }
    }

    /// What is to be seen now. As a rank computes as long as it is runnable, it has a CPU of its own for so long;
    /// waiting it sleeps.
    fn look(&self, s: &mut Snapshot) {
        let now = Nanos::from_secs_f64(self.now);
        (s.point, s.elapsed, s.now) = (s.point + 1, now - s.now, now);
        for (rank, (t, cpu)) in s.threads.iter_mut().zip(&mut s.cpus).enumerate() {
            let (computed, waited) = self.so_far_s(rank);
            let [computed, waited] = [computed, waited].map(Nanos::from_secs_f64);
            let before = t.turns.unwrap_or_default();
            let ended = self.finished[rank].len() as u64;
            let waits = u64::from(matches!(self.doing[rank], Doing::Waiting | Doing::Ended));
            // One that it is in is not over.
            let iterations = ended - waits.min(ended);
            t.turns = Some(Turns {
                phases: iterations,
                waits: iterations,
                runnable: computed,
                waited,
                computed,
                spun: Nanos::ZERO,
            });
            t.ran = computed - before.computed;
            t.blocked = waited - before.waited;
            t.progress = i64::try_from(computed.0).unwrap_or(i64::MAX);
            cpu.speed = (t.ran > Nanos::ZERO).then_some(1.0);
        }
    }

    /// A rank that has ended waits until all have.
    fn wait_for_the_end(&mut self) {
        for d in self.did.iter_mut().filter_map(|did| did.last_mut()) {
            d.waited_s = self.now - d.from_s - d.computed_s;
        }
    }

    /// The priority of the rank on the same core, where one has the other context. While a rank waits
    /// for its CPU, another process has that, with the normal one.
    fn beside(&self, rank: usize) -> Option<u8> {
        let core = self.program.cores[rank];
        let other = (0..self.doing.len()).find(|&o| o != rank && self.program.cores[o] == core)?;
        match self.doing[other] {
            Doing::Latent(_) => Some(Priority::NORMAL.0),
            Doing::Computing(_) => Some(self.priorities[other]),
            Doing::Waiting | Doing::Ended => None,
        }
    }

    fn speed(&self, rank: usize) -> f64 {
        self.program.speeds.of(self.priorities[rank], self.beside(rank))
    }

    /// When all that a waiting rank needs is there; none where that is not known yet.
    fn ready(&self, rank: usize) -> Option<f64> {
        let own = self.finished[rank].len();
        let mut at = *self.finished[rank].last()?;
        for need in &self.program.needs[rank] {
            let Some(theirs) = own.checked_sub(1 + need.ahead as usize) else { continue };
            at = at.max(*self.finished[need.from].get(theirs)?);
        }
        Some(at + self.program.exchange_s)
    }

    /// When something happens next.
    fn next(&self) -> Option<f64> {
        let of = |rank: usize| match self.doing[rank] {
            Doing::Latent(until) => Some(until),
            Doing::Computing(left) => {
                let speed = self.speed(rank);
                (speed > 0.0).then(|| self.now + left / speed)
            }
            Doing::Waiting => self.ready(rank),
            Doing::Ended => None,
        };
        (0..self.doing.len()).filter_map(of).min_by(f64::total_cmp)
    }

    fn advance(&mut self, to: f64) {
        let span = (to - self.now).max(0.0);
        let speeds: Vec<f64> = (0..self.doing.len()).map(|r| self.speed(r)).collect();
        for (doing, speed) in self.doing.iter_mut().zip(speeds) {
            if let Doing::Computing(left) = doing {
                *left -= span * speed;
            }
        }
        self.now = self.now.max(to);
    }

    /// What happens to a rank now. Whether it is woken, so that its iteration is over.
    fn step(&mut self, rank: usize) -> bool {
        let iteration = self.finished[rank].len();
        match self.doing[rank] {
            Doing::Latent(until) if until <= self.now + SAME_S => {
                self.doing[rank] = Doing::Computing(self.program.work_s[rank][iteration]);
            }
            Doing::Computing(left) if left <= SAME_S => {
                if let Some(did) = self.did[rank].last_mut() {
                    did.computed_s = self.now - did.from_s;
                }
                self.finished[rank].push(self.now);
                let is_last = iteration + 1 == self.program.work_s[rank].len();
                self.doing[rank] = if is_last { Doing::Ended } else { Doing::Waiting };
            }
            Doing::Waiting if self.ready(rank).is_some_and(|at| at <= self.now + SAME_S) => {
                if let Some(did) = self.did[rank].last_mut() {
                    did.waited_s = self.now - did.from_s - did.computed_s;
                    self.over_s[rank].0 += did.computed_s;
                    self.over_s[rank].1 += did.waited_s;
                }
                self.begin(rank);
                return true;
            }
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests;

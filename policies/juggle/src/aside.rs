//! Threads that spin, put aside: what they would take from those that compute is put together on few CPUs.
//!
//! A thread that spins at a barrier has nothing to do until the last one has arrived, and takes as much of
//! its CPU as one that computes. With c threads that compute and s that spin, on m CPUs that each is
//! shared evenly:
//!
//! - where c < m, each thread that computes can have a CPU to itself, if all that spin are on the others;
//! - else one CPU for all that spin leaves (m - 1) / c of a CPU to each that computes, where an even
//!   distribution leaves it m / (c + s). The first is more where s (m - 1) > c.
//!
//! Spinners are set aside only if that gives computing threads more CPU. The threads that compute are then balanced
//! on the CPUs that are left as if there were no others.
//!
//! What it costs is paid when the barrier opens: until the next balancing point many threads share few
//! CPUs. When that will be is not known; so a thread is put aside only once it has waited for a whole
//! period, about as long as that would cost.
//!
//! Invariants: a thread that has anything to compute is never put aside; each CPU keeps a thread (promise
//! P2: those set aside have one at least that spins); and where anything is in the way (threads with masks
//! of their own, other balancers, threads that the kernel moves as well, which would put them back),
//! nothing is put aside.

use evenly_model::{CpuIndex, Plan, Reason, Snapshot, ThreadIndex, ThreadView};
use evenly_policy::speed::RESTS;

/// By how much more a thread that computes must get for a CPU to be set aside that one could use.
const WORTH: f64 = 1.1;

/// Whether a thread spun, and did nothing else, for all of the last period.
pub(crate) fn only_spins(t: &ThreadView, elapsed: f64) -> bool {
    (t.demand().0 as f64) < RESTS * elapsed && t.spinning.0 as f64 > RESTS * elapsed
}

/// Threads that are put aside, and what is left.
#[derive(Debug, Clone, Default)]
pub(crate) struct Aside {
    /// The CPUs and threads that are left.
    rest: Snapshot,
    threads: Vec<ThreadIndex>,
    cpus: Vec<CpuIndex>,
    spinning: Vec<ThreadIndex>,
    /// CPUs set aside, and how many threads they are to have.
    aside: Vec<(CpuIndex, usize)>,
    /// By the number of a CPU: whether it was set aside at the last point.
    before: Vec<bool>,
    /// For each CPU, how many threads there compute.
    computing: Vec<usize>,
    order: Vec<CpuIndex>,
}

impl Aside {
    /// Whether threads are to be put aside now.
    pub(crate) fn is_worth_it(&mut self, s: &Snapshot) -> bool {
        self.aside.clear();
        let number = self.number(s);
        if number > 0 {
            self.choose(s, number);
        }
        self.before.iter_mut().for_each(|b| *b = false);
        for &(c, _) in &self.aside {
            let id = s.cpus[c].id.0 as usize;
            if id >= self.before.len() {
                self.before.resize(id + 1, false);
            }
            self.before[id] = true;
        }
        !self.aside.is_empty()
    }

    /// Whether any were at the last point.
    pub(crate) fn were_any(&self) -> bool {
        self.before.contains(&true)
    }

    /// How many CPUs are to be set aside.
    fn number(&mut self, s: &Snapshot) -> usize {
        let (elapsed, m) = (s.elapsed.0 as f64, s.cpus.len());
        self.spinning.clear();
        if !s.held || s.point == 0 || m < 2 || s.taken.iter().chain(&s.others).any(|&t| t > 0) {
            return 0;
        }
        let spins = |t: &ThreadView| only_spins(t, elapsed);
        let each = s.threads.iter().enumerate();
        self.spinning.extend(each.filter(|(_, t)| spins(t)).map(|(i, _)| i));
        let (all, spinning) = (s.threads.len(), self.spinning.len());
        // A thread that sleeps takes nothing.
        let sleeps = |t: &&ThreadView| !spins(t) && (t.demand().0 as f64) < RESTS * elapsed;
        let computing = all - spinning - s.threads.iter().filter(sleeps).count();
        let everywhere = |t: &ThreadView| {
            t.cpu < m && s.masks.get(t.mask).is_some_and(|mask| mask.iter().all(|may| *may))
        };
        if spinning == 0 || computing == 0 || !s.threads.iter().all(everywhere) {
            return 0;
        }
        if computing + spinning <= m {
            return 0;
        }
        if computing < m {
            return m - computing;
        }
        let (m, c, n) = (m as f64, computing as f64, (computing + spinning) as f64);
        usize::from((m - 1.0) / c > WORTH * m / n)
    }

    /// Chooses the CPUs: those again that were set aside before, and then where fewest compute, slow ones
    /// first.
    fn choose(&mut self, s: &Snapshot, number: usize) {
        self.computing.clear();
        self.computing.resize(s.cpus.len(), 0);
        let mut spinning = self.spinning.iter().peekable();
        for (i, t) in s.threads.iter().enumerate() {
            if spinning.next_if(|&&at| at == i).is_some() {
                continue;
            }
            // Where one cannot be moved, none can be put beside it.
            let count = &mut self.computing[t.cpu];
            *count = if t.movable { count.saturating_add(1) } else { usize::MAX };
        }
        let before =
            |c: CpuIndex| self.before.get(s.cpus[c].id.0 as usize).copied().unwrap_or_default();
        self.order.clear();
        self.order.extend((0..s.cpus.len()).filter(|&c| self.computing[c] < usize::MAX));
        let computing = &self.computing;
        self.order.sort_by_key(|&c| (!before(c), computing[c], s.cpus[c].capacity, c));
        if self.order.len() >= number {
            self.aside.extend(self.order.iter().take(number).map(|&c| (c, 0)));
        }
    }

    /// The threads and CPUs that are left, to be balanced on their own.
    pub(crate) fn rest(&mut self, s: &Snapshot) -> Snapshot {
        let mut rest = std::mem::take(&mut self.rest);
        let is_aside = |c: CpuIndex| self.aside.iter().any(|(a, _)| *a == c);
        self.cpus.clear();
        self.cpus.extend((0..s.cpus.len()).filter(|&c| !is_aside(c)));
        self.threads.clear();
        let mut spinning = self.spinning.iter().peekable();
        let computes = |i: &ThreadIndex| spinning.next_if(|at| *at == i).is_none();
        self.threads.extend((0..s.threads.len()).filter(computes));
        (rest.point, rest.now, rest.elapsed) = (s.point, s.now, s.elapsed);
        (rest.resolution, rest.held) = (s.resolution, s.held);
        rest.threads.clear();
        rest.threads.extend(self.threads.iter().map(|&i| {
            let t = s.threads[i];
            // From a CPU that is set aside it is to be brought to one that is left.
            let cpu = self.cpus.binary_search(&t.cpu).unwrap_or(usize::MAX);
            ThreadView { cpu, ..t }
        }));
        rest.cpus.clear();
        rest.cpus.extend(self.cpus.iter().map(|&c| {
            let (mut cpu, here) = (s.cpus[c], self.computing[c].min(s.threads.len()) as u32);
            // What those take that spin there is free from now on.
            if here < cpu.threads && here > 0 {
                let more = f64::from(cpu.threads) / f64::from(here);
                cpu.speed = cpu.speed.map(|speed| (speed * more).min(1.0));
            }
            cpu.threads = here;
            cpu
        }));
        rest.masks.resize_with(s.masks.len(), Vec::new);
        for (to, from) in rest.masks.iter_mut().zip(&s.masks) {
            to.clear();
            to.extend(self.cpus.iter().map(|&c| from.get(c).copied().unwrap_or_default()));
        }
        rest
    }

    /// Takes the work space back, and makes of a plan for the rest one for all. `before` is how many moves
    /// the plan had.
    pub(crate) fn complete(&mut self, s: &Snapshot, rest: Snapshot, plan: &mut Plan) {
        self.rest = rest;
        for m in &mut plan.moves {
            (m.thread, m.to) = (self.threads[m.thread], self.cpus[m.to]);
            if m.reason == Reason::Evicted {
                m.reason = Reason::Spread;
            }
        }
        // Evenly, as they will all compute again one day.
        let most = self.spinning.len().div_ceil(self.aside.len().max(1));
        let aside = &mut self.aside;
        self.spinning.retain(|&i| {
            let at = s.threads[i].cpu;
            // One that cannot be moved stays, wherever it is.
            let stays = !s.threads[i].movable;
            let room = aside.iter_mut().find(|(c, k)| *c == at && (stays || *k < most));
            room.map(|(_, count)| *count += 1).is_none() && !stays
        });
        for &i in &self.spinning {
            if let Some((to, count)) = aside.iter_mut().min_by_key(|(c, k)| (*k, *c)) {
                *count += 1;
                plan.push(i, *to, Reason::Waits);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Juggle, Margins};
    use evenly_model::Nanos;
    use evenly_policy::Policy;
    use evenly_testing::snapshots::{PERIOD, snapshot};

    /// Where each of these threads is put: thread i is on CPU `on[i]` and spins, or computes.
    fn put(m: usize, on: &[(usize, bool)], change: impl Fn(&mut Snapshot)) -> Vec<usize> {
        let mut s = snapshot(
            on.len(),
            m,
            |i| on[i].0,
            |i, t| t.spinning = if on[i].1 { PERIOD } else { Nanos::ZERO },
        );
        change(&mut s);
        let mut plan = Plan::default();
        Juggle::new(Margins::default()).decide(&s, &mut plan);
        let mut at: Vec<usize> = on.iter().map(|(c, _)| *c).collect();
        plan.moves.iter().for_each(|m| at[m.thread] = m.to);
        at
    }

    const SPINS: bool = true;

    #[test]
    fn one_that_computes_gets_a_cpu_to_itself() {
        let at = put(2, &[(0, false), (0, SPINS), (1, SPINS), (1, SPINS)], |_| ());
        assert_eq!(at, [0, 1, 1, 1]);
        // Two of four CPUs for two; those that spin are divided among the others.
        let six = [(0, false), (0, SPINS), (1, false), (1, SPINS), (2, SPINS), (3, SPINS)];
        let at = put(4, &six, |_| ());
        assert_eq!((at[0], at[2]), (0, 1));
        let count = |c: usize| at.iter().filter(|&&a| a == c).count();
        assert_eq!((count(2), count(3)), (2, 2), "{at:?}");
    }

    #[test]
    fn it_is_done_where_it_gives_more_and_not_else() {
        // A third of a CPU each on three CPUs, or half of one on two.
        let of = |spin: usize, compute: usize| {
            let on: Vec<(usize, bool)> = (0..spin + compute).map(|i| (i % 2, i < spin)).collect();
            let at = put(2, &on, |_| ());
            let aside = |c| at.iter().zip(&on).all(|(a, (_, spins))| *spins || *a != c);
            aside(0) || aside(1)
        };
        assert!(of(6, 2) && of(3, 1) && of(5, 3));
        assert!(!of(2, 2) && !of(2, 4));
    }

    #[test]
    fn what_is_in_the_way_is_respected() {
        let four = [(0, false), (0, SPINS), (1, SPINS), (1, SPINS)];
        let even = |change: &dyn Fn(&mut Snapshot)| {
            let at = put(2, &four, change);
            at.iter().filter(|&&c| c == 0).count() == 2
        };
        assert!(!even(&|_| ()));
        assert!(even(&|s| s.held = false));
        assert!(even(&|s| s.taken = vec![0, 1]));
        assert!(even(&|s| {
            s.masks.push(vec![true, false]);
            s.threads[1].mask = 1;
        }));
        // One that cannot be moved keeps its CPU among those that are left.
        let at = put(2, &four, |s| s.threads[2].movable = false);
        assert!(at[2] == 1 && at[0] == 0, "{at:?}");
        // No thread computes, or none spins.
        assert_eq!(put(2, &[(0, SPINS), (0, SPINS), (1, SPINS)], |_| ()), [0, 0, 1]);
    }
}

//! Threads beside those of others: where these compute ([`crate::others`]), and whether they and the program's divide evenly
//! among the CPUs, or nearly so.

use crate::Sensors;
use crate::actuate::Action;
use crate::balancer::Balancer;
use crate::others::MEET_SLICES_PER_S;
use evenly_model::{CpuSet, CpuView, Nanos};
use evenly_policy::Mechanism;

/// What threads may take longer than in a fair share of the CPUs where they are held beside others.
const SLOWER: f64 = 1.25;

/// How threads and those of others can be divided among CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Division {
    Even,
    /// One more on some CPUs on which no others are, and threads that take turns lose little by that.
    Nearly,
    Uneven,
}

/// The division of n threads and one of others each on some of m CPUs.
///
/// Of threads that meet in short phases one after the other runs on a CPU, and each has it for half of the time beside others:
/// those there take twice as long.
fn division(n: usize, others: usize, m: usize) -> Division {
    let all = n + others;
    if others == 0 || m == 0 || others > m || all < 2 * m {
        return Division::Uneven;
    }
    let (each, surplus) = (all / m, all % m);
    let slowest = (each + 1).max(2 * (each - 1)) as f64;
    match surplus {
        0 => Division::Even,
        _ if surplus <= m - others && slowest * m as f64 <= SLOWER * all as f64 => Division::Nearly,
        _ => Division::Uneven,
    }
}

impl Balancer {
    /// Looks where programs without evenly compute, and whether threads are to be held because of them.
    pub(crate) fn look_for_others(&mut self, machine: &mut dyn Sensors, now: Nanos) {
        let (n, cpus) = (self.membership.threads.len(), &self.snapshot.cpus);
        let m = cpus.len();
        let applies = self.mechanism() == Mechanism::Nudge
            && (2..=n).contains(&m)
            && !self.surroundings.has_neighbours();
        if applies {
            let pinned = self.placement.pinning && !self.pauses.paused();
            let threads = (&self.membership.threads[..], pinned);
            self.others.look(machine, cpus, threads, now);
        } else {
            self.others.skip(now);
        }
        let on = self.others.on();
        let beside = applies
            && self.others.may_share_cpus()
            && match division(n, on.len(), m) {
                Division::Even => true,
                Division::Nearly => self.others.meet_often() && self.may_be_held_unevenly(),
                Division::Uneven => false,
            };
        let before = std::mem::replace(&mut self.beside, beside);
        if before != beside {
            self.pauses.guard.begins_anew(now);
        }
        let here = |c: &CpuView| u32::from(on.contains(&c.id));
        let others = if beside { cpus.iter().map(here).collect() } else { Vec::new() };
        let changed = std::mem::replace(&mut self.snapshot.others, others) != self.snapshot.others;
        self.placement.placed &= !(changed && beside);
    }

    /// Whether threads may go to all CPUs, which are alike; and whether they, now that they are held, have gone on to meet.
    fn may_be_held_unevenly(&self) -> bool {
        let (cpus, masks) = (&self.snapshot.cpus, &self.membership.masks);
        let everywhere = |mask: &CpuSet| cpus.iter().all(|c| mask.contains(c.id));
        let alike = cpus.windows(2).all(|c| c[0].capacity == c[1].capacity);
        let mut threads = self.membership.threads.iter();
        let stops = self.placement.pinning
            && self.placement.slices_per_s.is_some_and(|per_s| per_s < MEET_SLICES_PER_S);
        alike && !stops && threads.all(|t| t.place.movable && everywhere(&masks[t.place.mask]))
    }

    /// Where threads give their CPUs up to others, and want them back, more often than the clock of the scheduler ticks, it
    /// is to look more often.
    pub(crate) fn beat(&mut self, paused: bool) {
        let p = &self.placement;
        // In the first second it is known from before they were held.
        let often = match p.slices_per_s {
            Some(_) => p.gives_up_often(),
            None => self.others.give_up_often(),
        };
        let is_needed = self.beside && p.pinning && often && !paused;
        let on = if is_needed { self.others.on() } else { &[] };
        let beats: CpuSet = on.iter().copied().collect();
        if beats != self.beats {
            self.actions.push(Action::Beat { cpus: beats.clone() });
            self.beats = beats;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Times;
    use crate::scripted::{Scripted, balancer, join};
    use evenly_model::{CpuId, ThreadId};

    /// Four threads on two CPUs.
    fn four(has_had: fn(ThreadId, Nanos) -> Times) -> (Balancer, Scripted) {
        let mut machine = Scripted {
            has_had: Some(has_had),
            at: [0, 0, 1, 1].map(CpuId).to_vec(),
            busy: vec![Nanos::ZERO; 2],
            ..Scripted::default()
        };
        let mut b = balancer("hybrid");
        (0..4).for_each(|tid| join(&mut b, &mut machine, tid, "0-1"));
        (b, machine)
    }

    /// Four threads that meet so often a second, and do not want their CPUs half of the time, beside one of others on CPU 1. Where
    /// they are pinned in the end, how often one was, and where there are beats.
    fn held(has_had: fn(ThreadId, Nanos) -> Times) -> (Vec<Option<u32>>, usize, Vec<String>) {
        let (mut b, mut machine) = four(has_had);
        let at = go_on(&mut b, &mut machine, 1);
        // Who is released again is not pinned.
        let pins = |c: &&String| c.contains(" on ") && !c.contains("then") && !c.contains("beats");
        let pins = machine.calls.iter().filter(pins);
        let beats = machine.calls.iter().filter(|c| c.contains("beats")).cloned().collect();
        (at, pins.count(), beats)
    }

    /// For three seconds, with one of others on that CPU: where the threads are pinned then.
    fn go_on(b: &mut Balancer, machine: &mut Scripted, others: usize) -> Vec<Option<u32>> {
        let (has_had, period) = (machine.has_had.unwrap(), Nanos::from_millis(10));
        for _ in 0..300 {
            machine.now += period;
            machine.busy[others] += period.scale(0.6);
            for t in &b.membership.threads {
                let cpu = t.place.cpu.unwrap_or(CpuId(0)).0 as usize;
                machine.busy[cpu] += has_had(t.meta.id, period).ran;
            }
            b.point(machine, period, &mut []);
        }
        let at = b.membership.threads.iter().map(|t| t.place.cpu.map(|c| c.0));
        if b.placement.pinning { at.collect() } else { vec![None; 4] }
    }

    /// The last has a fast CPU, and is ahead.
    fn meets(id: ThreadId, until: Nanos, per_s: f64) -> Times {
        let [ran, waited] =
            if id.tid.0 == 3 { [0.3, 0.1] } else { [0.15, 0.4] }.map(|part| until.scale(part));
        let slices = (until.as_secs_f64() * per_s) as u64;
        Times { ran, waited, slices }
    }

    /// Would catch: threads that are left to the kernel beside others, as they do not divide evenly; ones that change CPUs because
    /// one of them has more CPU time, which they all spend to wait.
    #[test]
    fn threads_that_meet_often_are_held_with_fewer_where_others_are() {
        let (at, pins, beats) = held(|id, until| meets(id, until, 2_000.0));
        assert_eq!(at.iter().filter(|cpu| **cpu == Some(1)).count(), 1, "{at:?}");
        assert!(at.iter().all(Option::is_some) && pins == 4, "{at:?}, {pins} pinned");
        assert_eq!(beats, ["beats on 1"]);
        // In phases of milliseconds the kernel divides them.
        assert_eq!(held(|id, until| meets(id, until, 100.0)).0, [None; 4]);
    }

    /// Would catch: threads that are crowded where others have come to.
    #[test]
    fn others_that_change_cpus_are_followed() {
        let (mut b, mut machine) = four(|id, until| meets(id, until, 2_000.0));
        for others in [1, 0, 1] {
            let at = go_on(&mut b, &mut machine, others);
            let beside = at.iter().filter(|cpu| **cpu == Some(others as u32)).count();
            assert_eq!((beside, at.iter().flatten().count()), (1, 4), "{others}: {at:?}");
        }
    }

    /// Would catch: a CPU that is left to others; threads that are crowded where others have nothing.
    #[test]
    fn the_surplus_is_where_no_others_are_or_threads_are_not_held() {
        let on_two = |n| division(n, 1, 2);
        assert_eq!([2, 3, 4, 5, 6, 8].map(on_two), {
            use Division::{Even, Nearly, Uneven};
            [Uneven, Even, Nearly, Even, Nearly, Uneven]
        });
        assert_eq!(
            [(3, 2), (4, 2)].map(|(n, k)| division(n, k, 2)),
            [Division::Uneven, Division::Even]
        );
        // Eight threads with one of others on four CPUs: 3 on one of them, where 2.25 were fair.
        assert_eq!(
            [8, 10, 11].map(|n| division(n, 1, 4)),
            [Division::Uneven, Division::Nearly, Division::Even]
        );
        assert_eq!([division(4, 0, 2), division(0, 0, 0)], [Division::Uneven; 2]);
    }
}

//! Where the time of a parallel program goes: the efficiencies of the POP model, and the time in run
//! queues, which that model does not have.
//!
//! The definitions are those of the POP Centre of Excellence ("Standard Metrics for Performance
//! Audits of Parallel Applications", pop-coe.eu) and of TALP in DLB (Lopez and others, ICPP Workshops
//! 2021). For n threads that are there for a time T, c_i the time in which thread i computes:
//!
//! | metric | definition | says |
//! |---|---|---|
//! | parallel efficiency | sum c_i / (n T) | which part of the threads' time is computing |
//! | load balance | mean c_i / max c_i | how evenly work is spread |
//! | communication efficiency | max c_i / T | what the one with most work loses besides |
//!
//! Parallel efficiency is the product of the other two. POP takes for granted that a thread which
//! computes has a CPU, so what is lost in run queues is booked as communication. Here, with w_i the
//! time in which thread i wants a CPU and has none, communication efficiency is divided further:
//!
//! | metric | definition | says |
//! |---|---|---|
//! | run-queue share | sum w_i / (n T) | which part of the threads' time they lack a CPU |
//! | run-queue efficiency | max c_i / max (c_i + w_i) | how much of what it wants the busiest one gets |
//! | synchronisation efficiency | max (c_i + w_i) / T | how much of the time the busiest one wants a CPU |
//!
//! The product of the last two is communication efficiency.
//!
//! Invariant: a factor is only given where computing can be distinguished from waiting. A thread that spins at
//! a barrier gets CPU time as if it computed: where no thread ever sleeps, either none waits or all
//! that wait spin, and CPU time does not show which. The run-queue share is known in any case.

use serde::{Deserialize, Serialize};

/// How one thread spent its time, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Stay {
    /// Time on a CPU, in seconds.
    pub ran_s: f64,
    /// Of that, spinning: waiting for others. None where it is not reported, which is the case without a
    /// probe inside the program.
    pub spun_s: Option<f64>,
    /// Runnable, without a CPU.
    pub waited_s: f64,
    /// Time in which it neither ran nor wanted to, in seconds.
    pub blocked_s: f64,
    /// For how long it was there.
    pub present_s: f64,
}

/// Where it is known from what each thread computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// A probe inside the program reported of every thread when it waited.
    Probe,
    /// Samples of where threads were show when they spun.
    Samples,
    /// CPU time counts as computing, and sleeping as waiting. A time for which threads spin before they
    /// go to sleep counts as computing.
    CpuTime,
}

/// The efficiencies of a program whose waiting can be distinguished from its computing.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Factors {
    /// Parallel efficiency: `load_balance * communication`.
    pub parallel: f64,
    /// Mean over greatest time of computing: 1 where all threads compute for as long.
    pub load_balance: f64,
    /// Communication efficiency: `run_queue * synchronisation`.
    pub communication: f64,
    /// The part of the time in which threads want a CPU that they have one.
    pub run_queue: f64,
    /// The part that is left by waiting for other threads.
    pub synchronisation: f64,
}

/// What is known of where a program's time went.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Efficiency {
    /// Part of the threads' time in which they wanted a CPU and had none.
    pub run_queue_share: f64,
    /// Where computing is known from.
    pub basis: Basis,
    /// The factors. None where waiting cannot be distinguished from computing.
    pub factors: Option<Factors>,
}

/// Threads that sleep for less than this part of their time do not show how they wait: that little may
/// be an error of reading, or input and output.
pub const LEAST_BLOCKED: f64 = 0.01;
/// The same of the time in which they waited for a CPU: a thread in the queue as it is read has waited for
/// longer than the kernel has counted yet, and seems to have slept.
const LEAST_BLOCKED_OF_WAITED: f64 = 0.05;
/// Threads that were there for less than this part of the longest stay are left out: they are not what
/// the program consists of.
const LONG_ENOUGH: f64 = 0.5;

/// Why there are no [`Factors`], for the reader of the report.
pub const UNKNOWN: &str = "not known: no thread slept, and one that spins while it waits looks as if \
                           it computed";

impl Efficiency {
    /// Of threads that work together. None where there is none, or nothing was measured.
    pub fn of(stays: impl IntoIterator<Item = Stay>) -> Option<Self> {
        let all: Vec<Stay> = stays.into_iter().collect();
        let time = all.iter().map(|s| s.present_s).fold(0.0, f64::max);
        let counted: Vec<&Stay> =
            all.iter().filter(|s| s.present_s > 0.0 && s.present_s >= LONG_ENOUGH * time).collect();
        if counted.is_empty() {
            return None;
        }
        let sum = |f: fn(&Stay) -> f64| counted.iter().map(|s| f(s)).sum::<f64>();
        let most = |f: fn(&Stay) -> f64| counted.iter().map(|s| f(s)).fold(0.0, f64::max);
        let present = sum(|s| s.present_s);
        let run_queue_share = sum(|s| s.waited_s) / (counted.len() as f64 * time).max(1e-9);
        let reported = counted.iter().all(|s| s.spun_s.is_some());
        let basis = if reported { Basis::Probe } else { Basis::CpuTime };
        let error = LEAST_BLOCKED * present + LEAST_BLOCKED_OF_WAITED * sum(|s| s.waited_s);
        let sleeps = sum(|s| s.blocked_s) >= error;
        let computed = most(Stay::computed);
        let factors = ((reported || sleeps) && computed > 0.0).then(|| {
            let n = counted.len() as f64;
            // Readings of different threads are not of one moment: a part can be a hair above 1.
            let part = |a: f64, b: f64| if b > 0.0 { (a / b).min(1.0) } else { 1.0 };
            let load_balance = part(sum(Stay::computed) / n, computed);
            let wanted = most(|s| s.computed() + s.waited_s);
            let (run_queue, synchronisation) = (part(computed, wanted), part(wanted, time));
            let communication = run_queue * synchronisation;
            let parallel = load_balance * communication;
            Factors { parallel, load_balance, communication, run_queue, synchronisation }
        });
        let run_queue_share = run_queue_share.clamp(0.0, 1.0);
        Some(Self { run_queue_share, basis, factors })
    }

    /// The factors as a line of text, or why there are none.
    #[must_use]
    pub fn words(&self) -> String {
        let Some(f) = self.factors else { return String::from(UNKNOWN) };
        let percent = |part: f64| format!("{:.1}", 100.0 * part);
        format!(
            "{} % parallel = {} load balance x {} communication ({} run queue x {} synchronisation); {} % of \
             the threads' time in run queues",
            percent(f.parallel),
            percent(f.load_balance),
            percent(f.communication),
            percent(f.run_queue),
            percent(f.synchronisation),
            percent(self.run_queue_share)
        )
    }
}

impl Stay {
    /// c: the time in which it computed, as far as that is known.
    fn computed(&self) -> f64 {
        (self.ran_s - self.spun_s.unwrap_or(0.0)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Running, waiting for a CPU and asleep.
    fn stay(ran_s: f64, waited_s: f64, blocked_s: f64) -> Stay {
        let present_s = ran_s + waited_s + blocked_s;
        Stay { ran_s, spun_s: None, waited_s, blocked_s, present_s }
    }

    fn factors(stays: &[Stay]) -> [f64; 5] {
        let f = Efficiency::of(stays.iter().copied()).unwrap().factors.unwrap();
        [f.parallel, f.load_balance, f.communication, f.run_queue, f.synchronisation]
    }

    #[track_caller]
    fn assert_near(found: [f64; 5], known: [f64; 5]) {
        assert!(found.iter().zip(known).all(|(a, b)| (a - b).abs() < 1e-9), "{found:?} {known:?}");
    }

    #[test]
    fn uneven_work_is_load_balance() {
        // A CPU each; one works 4 s and three work 2 s.
        let light = stay(2.0, 0.0, 2.0);
        let all = [stay(4.0, 0.0, 0.0), light, light, light];
        assert_near(factors(&all), [0.625, 0.625, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn messages_that_all_wait_for_are_synchronisation() {
        assert_near(factors(&[stay(3.0, 0.0, 1.0); 4]), [0.75, 1.0, 0.75, 1.0, 0.75]);
    }

    #[test]
    fn three_threads_left_where_they_are_on_two_cpus_lose_it_in_the_run_queue() {
        // One has a CPU to itself and then sleeps; two share the other.
        let all = [stay(1.0, 0.0, 1.0), stay(1.0, 1.0, 0.0), stay(1.0, 1.0, 0.0)];
        assert_near(factors(&all), [0.5, 1.0, 0.5, 0.5, 1.0]);
        let share = Efficiency::of(all).unwrap().run_queue_share;
        assert!((share - 1.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn threads_that_never_sleep_may_spin_and_only_a_probe_shows_it() {
        let busy = [stay(2.0, 1.0, 0.0); 3];
        let e = Efficiency::of(busy).unwrap();
        assert_eq!((e.factors, e.basis), (None, Basis::CpuTime));
        assert!((e.run_queue_share - 1.0 / 3.0).abs() < 1e-9);
        assert!(e.words().starts_with("not known"));
        let spinning = |spun: f64| Stay { spun_s: Some(spun), ..stay(2.0, 1.0, 0.0) };
        let e = Efficiency::of([spinning(0.0), spinning(1.0), spinning(1.0)]).unwrap();
        assert_eq!(e.basis, Basis::Probe);
        assert_near(
            factors(&[spinning(0.0), spinning(1.0), spinning(1.0)]),
            [4.0 / 9.0, 2.0 / 3.0, 2.0 / 3.0, 2.0 / 3.0, 1.0],
        );
        // One thread that reports nothing makes it unknown again.
        let mixed = [spinning(0.0), stay(2.0, 1.0, 0.0)];
        assert_eq!(Efficiency::of(mixed).unwrap().factors, None);
    }

    /// As read of two threads that spun on a machine that was full of others.
    #[test]
    fn a_long_queue_is_no_sleep() {
        let spinning = [stay(0.370_8, 0.617_6, 0.011_6), stay(0.370_9, 0.616_6, 0.012_5)];
        let e = Efficiency::of(spinning).unwrap();
        assert_eq!((e.factors, e.basis), (None, Basis::CpuTime));
        let asleep = [stay(0.37, 0.60, 0.03), stay(0.33, 0.59, 0.08)];
        assert!(Efficiency::of(asleep).unwrap().factors.is_some());
    }

    #[test]
    fn those_that_were_there_for_a_moment_do_not_count() {
        let all = [stay(4.0, 0.0, 0.1), stay(4.0, 0.0, 0.1), stay(0.0, 0.5, 0.5)];
        assert_near(factors(&all), [4.0 / 4.1, 1.0, 4.0 / 4.1, 1.0, 4.0 / 4.1]);
        assert_eq!(Efficiency::of([]), None);
        assert_eq!(Efficiency::of([Stay::default()]), None);
        // All asleep: nothing is known of computing.
        assert_eq!(Efficiency::of([stay(0.0, 0.0, 1.0)]).unwrap().factors, None);
    }

    #[test]
    fn the_line_has_all_factors() {
        let e = Efficiency::of([stay(1.0, 0.0, 1.0), stay(1.0, 1.0, 0.0)]).unwrap();
        assert_eq!(
            e.words(),
            "50.0 % parallel = 100.0 load balance x 50.0 communication (50.0 run queue x 100.0 \
             synchronisation); 25.0 % of the threads' time in run queues"
        );
    }
}

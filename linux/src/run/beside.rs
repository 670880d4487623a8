//! The programs beside one that cooperates with them: each evenly says in its journal what its program has a use for, and reads
//! what the others say.
//!
//! Invariant: nothing is believed for longer than it holds; who is stopped, has ended, belongs to another user, or is of a version
//! with another journal is not there.

use crate::affinity;
use crate::journal::{Demand, Journal, Other, others};
use crate::proc::Proc;
use evenly_model::{CpuSet, Nanos, Tid};
use std::sync::Arc;

/// How often it is looked who is there, and where nobody was.
const LOOK: Nanos = Nanos::from_millis(100);
const LOOK_ALONE: Nanos = Nanos::from_millis(500);
/// What is said holds for so much longer than it takes until it is said again, as whoever says it may have to wait for a CPU.
const LATE: Nanos = Nanos::from_millis(1_000);
/// And no longer than this from now: evenly looks more often.
const LONGEST: Nanos = Nanos::from_millis(12_000);

/// The other programs of this user on this host that run under evenly.
pub struct Beside {
    journal: Arc<Journal>,
    proc: Proc,
    /// The CPUs of this program.
    cpus: CpuSet,
    looked_at: Option<Nanos>,
    is_alone: bool,
    wanted: f64,
}

impl Beside {
    /// Those beside a program that may use these CPUs, and whose evenly has this journal.
    #[must_use]
    pub fn new(journal: Arc<Journal>, proc: Proc, cpus: CpuSet) -> Self {
        Self { journal, proc, cpus, looked_at: None, is_alone: false, wanted: 0.0 }
    }

    /// With others that want so many CPUs, for ever.
    #[cfg(test)]
    pub(crate) fn with_demand(journal: Arc<Journal>, wanted: f64) -> Self {
        let looked_at = Some(Nanos(u64::MAX));
        let (proc, cpus) = (Proc::default(), CpuSet::default());
        Self { journal, proc, cpus, looked_at, is_alone: false, wanted }
    }

    /// For how many of their threads there is a use for this program's CPUs.
    pub(crate) fn wanted(&mut self, now: Nanos) -> f64 {
        let often = if self.is_alone { LOOK_ALONE } else { LOOK };
        if self.looked_at.is_none_or(|at| now - at >= often) {
            self.looked_at = Some(now);
            let all = others(&self.journal.dir(), &self.proc).unwrap_or_default();
            self.is_alone = all.is_empty();
            self.wanted = all.iter().map(|other| self.wanted_by(other, now)).sum();
        }
        self.wanted
    }

    fn wanted_by(&self, other: &Other, now: Nanos) -> f64 {
        let Demand { wanted_milli, until, .. } = other.demand;
        if now >= until || until - now > LONGEST || other.stands_still {
            return 0.0;
        }
        // Where it places threads; else where it was started itself.
        let mut cpus = other.cpus();
        if cpus.is_empty() {
            cpus = affinity::get(Tid(other.evenly.pid.0)).unwrap_or_default();
        }
        wanted_milli as f64 / 1e3 * cpus.and(&self.cpus).len() as f64 / cpus.len().max(1) as f64
    }

    /// Says what this program has a use for, in thousandths of threads, and what it has given.
    pub(crate) fn say(&self, wanted_milli: u64, given: Nanos) {
        self.journal.say(wanted_milli, given);
    }

    /// It is said again at this moment.
    pub(crate) fn holds_until(&self, again: Nanos) {
        self.journal.holds_until(again + LATE);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::journal::{Process, StateDir};
    use evenly_model::{CpuId, Pid};
    use rustix::process::{Signal, kill_process};
    use std::fs;
    use std::process::{Child, Command};

    /// Another process, and what stands in the journal that is said to be its own.
    struct Scene {
        tmp: tempfile::TempDir,
        own: Arc<Journal>,
        other: Child,
        journal: Vec<u8>,
    }

    impl Scene {
        fn new() -> Self {
            let tmp = tempfile::tempdir().unwrap();
            let dir = StateDir::at(&tmp.path().join("state")).unwrap();
            let other = Command::new("sleep").arg("600").spawn().unwrap();
            let own = Arc::new(Journal::create(&dir, None).unwrap());
            let writer = Process::find(&Proc::default(), Pid(other.id().cast_signed())).unwrap();
            let mut journal = fs::read(own.path()).unwrap();
            for (n, word) in [(9, writer.pid.0 as u64), (10, writer.start), (14, u64::MAX >> 1)] {
                journal[n * 8..][..8].copy_from_slice(&word.to_ne_bytes());
            }
            Self { tmp, own, other, journal }
        }

        /// How many CPUs are wanted at this moment, where the other has said that it wants so many until then.
        fn wanted(&mut self, milli: u64, until: Nanos, now: Nanos) -> f64 {
            for (n, word) in [(17, milli), (19, until.0)] {
                self.journal[n * 8..][..8].copy_from_slice(&word.to_ne_bytes());
            }
            self.seen(now)
        }

        fn seen(&self, now: Nanos) -> f64 {
            fs::write(self.tmp.path().join("state/other.journal"), &self.journal).unwrap();
            let cpus = affinity::get(Tid(0)).unwrap();
            Beside::new(self.own.clone(), Proc::default(), cpus).wanted(now)
        }

        /// Sends the other process a signal, and waits until it is stopped, or is not.
        fn stops(&self, stops: bool) {
            let pid = self.other.id().cast_signed();
            let signal = if stops { Signal::STOP } else { Signal::CONT };
            kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
            for _ in 0..6_000 {
                let state = Proc::default().process_stat(Pid(pid)).unwrap().state;
                if (state == b'T') == stops {
                    return;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            panic!("the signal has no effect");
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = self.other.kill();
            let _ = self.other.wait();
        }
    }

    /// Any moment: what others say is judged by it alone.
    const NOW: Nanos = Nanos::from_millis(50_000);
    const UNTIL: Nanos = Nanos::from_millis(51_000);

    #[test]
    fn those_that_cooperate_say_how_many_cpus_they_have_a_use_for() {
        let mut scene = Scene::new();
        assert_eq!(scene.seen(NOW), 0.0, "it has said nothing");
        assert_eq!(scene.wanted(2_500, UNTIL, NOW), 2.5);
        // What held until now, or will for an hour, is not believed.
        assert_eq!(scene.wanted(2_500, NOW, NOW), 0.0);
        assert_eq!(scene.wanted(2_500, NOW + Nanos::from_millis(3_600_000), NOW), 0.0);
        assert_eq!(scene.wanted(u64::MAX, UNTIL, NOW), 65_536.0);
        // On none of the CPUs of this program.
        let mut beside = Beside::new(scene.own.clone(), Proc::default(), CpuSet::default());
        assert_eq!(beside.wanted(NOW), 0.0);
    }

    #[test]
    fn they_want_the_cpus_on_which_they_place_threads() {
        let mut scene = Scene::new();
        let own: Vec<CpuId> = affinity::get(Tid(0)).unwrap().iter().collect();
        let beyond = CpuId(own.iter().map(|cpu| cpu.0).max().unwrap() + 1);
        for cpu in [own[0], beyond] {
            let at = 24 * 8 + 2 * cpu.0 as usize;
            scene.journal[at..at + 2].copy_from_slice(&1u16.to_ne_bytes());
        }
        assert_eq!(scene.wanted(3_000, UNTIL, NOW), 1.5);
    }

    /// Would catch: CPUs that are handed over to a program that is stopped, has ended, or is of another version.
    #[test]
    fn who_cannot_use_a_cpu_is_not_there() {
        let mut scene = Scene::new();
        scene.stops(true);
        assert_eq!(scene.wanted(2_000, UNTIL, NOW), 0.0);
        scene.stops(false);
        assert_eq!(scene.wanted(2_000, UNTIL, NOW), 2.0);
        // The words of a journal of another version mean something else.
        scene.journal[8] += 1;
        assert_eq!(scene.seen(NOW), 0.0);
        scene.journal[8] -= 1;
        scene.other.kill().unwrap();
        scene.other.wait().unwrap();
        assert_eq!(scene.seen(NOW), 0.0);
    }
}

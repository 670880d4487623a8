//! CPUs that change hands often where threads that spin crowd them, from outside: nothing of the program is changed.
//!
//! A thread that spins keeps its CPU until the scheduler looks at it again, which is at its clock's next tick, or when another
//! thread wakes up there. So on each CPU of the program a thread of evenly's own wakes up at each beat, and sleeps again.
//!
//! Invariant: there are no beats but while samples show that threads spin, crowd their CPUs, and compute more with than
//! without ([`Tempo`]).

use crate::beats::Beats;
use crate::clock::{now, thread_cpu_time};
use crate::counters::CountersError;
use crate::crowd::Crowd;
use crate::proc::Proc;
use crate::samples::{MOST, PERIOD, cpus};
use crate::spinning::{Places, Spinning};
use evenly_model::{CpuSet, Nanos, Pid};
use evenly_spins::{Seen, Tempo, Wish};

/// How often processes are looked for that the program has started.
const FIND: Nanos = Nanos::from_millis(1_000);
/// The part of a CPU that looking for them may take.
const SHARE: f64 = 0.003;

/// What has come of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Beaten {
    /// For how long there were beats.
    pub time: Nanos,
    /// The time from one to the next, last.
    pub beat: Nanos,
    /// CPU time of the threads that made them.
    pub cpu: Nanos,
    /// Where threads spin: a function, with its line where that is known.
    pub place: Option<String>,
    /// On how many CPUs, on average, threads computed just before there were beats, and meanwhile.
    pub cpus: [f64; 2],
}

/// What is done about a program whose threads spin, if nothing is loaded into it.
pub struct Metronome {
    proc: Proc,
    root: Pid,
    cpus: CpuSet,
    crowd: Crowd,
    tempo: Tempo,
    processes: Vec<Pid>,
    find_at: Nanos,
    /// None until it is needed.
    spinning: Option<Result<Spinning, CountersError>>,
    /// Where threads were while there were beats.
    places: Places,
    wish: Wish,
    beats: Option<Beats>,
    time: Nanos,
    cpu: Nanos,
}

impl Metronome {
    /// For a program that may use these CPUs, all of the time: a quota would count the beats.
    #[must_use]
    pub fn new(proc: Proc, root: Pid, cpus: CpuSet, now: Nanos) -> Self {
        Self {
            proc,
            root,
            cpus,
            crowd: Crowd::new(now),
            tempo: Tempo::default(),
            processes: Vec::new(),
            find_at: Nanos::ZERO,
            spinning: None,
            places: Places::default(),
            wish: Wish::Rest,
            beats: None,
            time: Nanos::ZERO,
            cpu: Nanos::ZERO,
        }
    }

    /// Looks once. To be called again and again; what it finds is about the time since it was called last. Whether it
    /// looked for processes or through files, which costs as much as many looks, and is not done each time.
    pub fn look(&mut self) -> bool {
        let begun = now();
        let finds = begun >= self.find_at;
        if finds {
            self.find();
        }
        let files = |of: &Self| of.spinning.as_ref().and_then(|s| Some(s.as_ref().ok()?.files()));
        let before = files(self);
        let cpus = self.cpus.len() as f64;
        let crowded = self.crowd.outnumber(cpus, 0.0, &self.proc, &self.processes, begun);
        // Samples are of the time until now, whatever it takes to see where in the code they are.
        let until = now();
        let seen = self.seen();
        let wish = self.tempo.step(until, crowded, seen);
        let was = std::mem::replace(&mut self.wish, wish);
        match (self.wish, &mut self.spinning) {
            (Wish::Rest, Some(Ok(spinning))) => spinning.keep(&[], |_| false),
            (Wish::Look, None) => self.spinning = Some(Spinning::new()),
            _ => {}
        }
        if was == Wish::Rest {
            // Samples are taken from now on.
            self.seen();
        }
        match (self.wish, &self.beats) {
            (Wish::Beat(beat), Some(beats)) => beats.change(beat),
            (Wish::Beat(beat), None) => self.beats = Some(Beats::start(&self.cpus, beat, false)),
            (Wish::Look | Wish::Rest, Some(_)) => self.stop(),
            _ => {}
        }
        let through_files = files(self) != before;
        if through_files {
            // That can take a second, in which beats were none yet.
            self.seen();
            self.tempo.skip(now());
        }
        finds || through_files
    }

    /// Why nobody can see whether the threads that crowd the CPUs spin; None where that was not asked, or is seen.
    #[must_use]
    pub fn refused(&self) -> Option<&CountersError> {
        self.spinning.as_ref()?.as_ref().err()
    }

    /// Ends it, and says what has come of it; None where there was no beat.
    pub fn end(mut self) -> Option<Beaten> {
        let seen = self.seen();
        self.tempo.step(now(), false, seen);
        self.stop();
        let (without, with) = self.tempo.compared();
        // Of more threads than can be sampled, some stand for all.
        let scale = self.crowd.wanted().max(1) as f64 / self.crowd.wanted().clamp(1, MOST) as f64;
        let cpus = [scale * cpus(without)?, scale * cpus(with)?];
        let Some(Ok(spinning)) = self.spinning.as_ref().filter(|_| self.cpu > Nanos::ZERO) else {
            return None;
        };
        let uses = spinning
            .uses(&self.places, 1, |id| PERIOD.as_secs_f64() * self.places.times(id) as f64);
        let place = uses.into_iter().next().map(|u| u.place);
        Some(Beaten { time: self.time, beat: self.tempo.beat(), cpu: self.cpu, place, cpus })
    }

    /// The processes of the program.
    fn find(&mut self) {
        let before = thread_cpu_time();
        let all = self.proc.processes().into_iter();
        self.processes = all.filter(|&p| self.proc.descends(p, self.root)).collect();
        let cost = thread_cpu_time() - before;
        self.find_at = now() + FIND.max(cost.scale(1.0 / SHARE));
    }

    /// Where threads were since the last look.
    fn seen(&mut self) -> Seen {
        let Some(Ok(spinning)) = self.spinning.as_mut().filter(|_| self.wish != Wish::Rest) else {
            return Seen::default();
        };
        spinning.look_at(&self.proc, &self.processes, |tid| self.crowd.wants(tid));
        let places = spinning.taken();
        let seen = places.seen();
        if self.beats.is_some() {
            self.places.add(places);
        }
        seen
    }

    fn stop(&mut self) {
        if let Some(beats) = self.beats.take() {
            let (time, cpu) = beats.end();
            self.time += time;
            self.cpu += cpu;
        }
    }
}

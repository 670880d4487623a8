//! When the coordinator scans, and how much CPU time that may use.
//!
//! Invariant: over any time, short or long, scanning uses no more than its share of that time, what it has
//! in advance, and one piece of work.

use evenly_model::Nanos;

/// How often threads are looked for before balancing begins, and after.
const FIRST_SCANS: Nanos = Nanos::from_millis(20);
const LATER_SCANS: Nanos = Nanos::from_millis(200);
/// And after nothing has come or gone for so long.
const STEADY: Nanos = Nanos::from_millis(2_000);
const STEADY_SCANS: Nanos = Nanos::from_millis(400);
/// While a program starts more threads than this, it is not scanned from end to end all the time.
const MANY: usize = 256;
const MANY_SCANS: Nanos = Nanos::from_millis(500);
/// How often processes are looked for at the least interval.
const PROCESS_SCANS: Nanos = Nanos::from_millis(100);
const LATER_PROCESS_SCANS: Nanos = Nanos::from_millis(500);
/// A pass begins so much of its interval earlier or later, where that spares a wake-up.
const EARLY: f64 = 0.1;
const LATE: f64 = 0.5;
/// Weight of the newest piece's cost.
const NEWEST: f64 = 0.3;

/// The CPU time that scanning may use: a part of the budget, with some in advance, because the
/// first scans decide how soon a program is balanced. Each piece of work is charged, and none is
/// begun that cannot be paid: so over any time, short or long, scanning uses no more than its share
/// of that time, what was in advance, and one piece.
pub(super) struct Allowance {
    pub(super) share: f64,
    credit: f64,
    at: Nanos,
}

/// CPU time in advance, and the most that is saved up, in nanoseconds.
const ADVANCE: f64 = evenly_engine::ADVANCE.0 as f64 / 2.0;

/// What it may take to begin, of the other half of what is in advance: the end gives all masks back and says what was done.
const BEGINNING: Nanos = Nanos(evenly_engine::ADVANCE.0 / 8);

/// Of what it took to begin, how much the search does not pay for.
pub(super) fn paid_to_begin(took: Nanos) -> Nanos {
    took.min(BEGINNING)
}

/// What other work leaves over for looks at the threads that compute.
const FOR_LOOKS: f64 = 20e6;
/// Where there is not much more than that, neither looks nor going over processes may take more
/// than one part in so many of what comes in: the rest is for the search.
const PARTS: f64 = 3.0;
/// What waking up for a piece of work costs beside what is measured.
pub(super) const WAKING: Nanos = Nanos::from_micros(10);

impl Allowance {
    pub(super) fn new(share: f64, now: Nanos) -> Self {
        Self { share, credit: ADVANCE, at: now }
    }

    pub(super) fn refill(&mut self, now: Nanos) {
        self.credit = (self.credit + (now - self.at).0 as f64 * self.share).min(ADVANCE);
        self.at = now;
    }

    pub(super) fn spend(&mut self, cost: Nanos) {
        self.credit -= cost.0 as f64;
    }

    /// How long it takes until something of this cost can be afforded. What costs more than can be
    /// saved up has to be begun without.
    fn wait_for(&self, cost: f64) -> Nanos {
        Nanos(((cost.min(ADVANCE) - self.credit).max(0.0) / self.share).ceil() as u64)
    }

    fn is_low(&self) -> bool {
        self.credit < 1.25 * FOR_LOOKS
    }
}

/// What the coordinator does again and again, each in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Looks for new processes, with [`crate::scan::Scanner::find_processes`].
    Processes,
    /// Looks for threads that compute now, with [`crate::scan::Scanner::search`].
    Search,
    /// Reads the known threads, with [`crate::scan::Scanner::look`], and does what follows from it.
    Look,
}

impl Kind {
    /// How far the beginnings of two passes are apart, of a program with so many threads, that has been as it is for so long
    /// since balancing started.
    pub(super) fn interval(self, steady: Option<Nanos>, threads: usize) -> Nanos {
        let started = steady.is_some();
        match self {
            Self::Processes if started => LATER_PROCESS_SCANS,
            Self::Processes => PROCESS_SCANS,
            Self::Search if threads > MANY => MANY_SCANS,
            Self::Search | Self::Look if steady.is_some_and(|time| time >= STEADY) => STEADY_SCANS,
            Self::Search | Self::Look if started => LATER_SCANS,
            Self::Search | Self::Look => FIRST_SCANS,
        }
    }
}

/// What is to be done first of what is due at the same time.
pub(super) const JOBS: [Kind; 3] = [Kind::Processes, Kind::Search, Kind::Look];

/// The job that is most overdue. None where none may be done, or that one cannot be afforded yet: then it
/// is put off.
pub(super) fn due_job(jobs: &mut [Job; 3], allowance: &Allowance, now: Nanos) -> Option<usize> {
    let (i, job) =
        (jobs.iter_mut().enumerate()).filter(|(_, j)| j.is_due(now)).min_by_key(|(_, j)| j.next)?;
    let wait = allowance.wait_for(job.needs());
    if wait > Nanos::ZERO {
        job.next = now + wait + job.early;
        return None;
    }
    Some(i)
}

/// How far one kind of work has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) kind: Kind,
    /// When its next piece is due, and how much earlier or later it may be done, so that no thread has to wake up for it alone.
    pub(super) next: Nanos,
    early: Nanos,
    late: Nanos,
    /// When the pass that is going on was begun. None: the next piece begins one.
    pub(super) began: Option<Nanos>,
    /// What a piece costs on average, and what this pass has cost by now, in nanoseconds.
    pub(super) piece: f64,
    pub(super) pass: f64,
}

impl Job {
    pub(super) fn new(kind: Kind, now: Nanos) -> Self {
        let (early, late) = (Nanos::ZERO, Nanos::ZERO);
        Self { kind, next: now, early, late, began: None, piece: 0.0, pass: 0.0 }
    }

    /// Things have changed: it is done no later than usual.
    pub(super) fn hurry(&mut self, now: Nanos) {
        if matches!(self.kind, Kind::Search | Kind::Look) {
            self.next = self.next.min(now + LATER_SCANS);
        }
    }

    /// Whether it may be done now.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.next <= now + self.early
    }

    /// When it has to be done.
    pub(super) fn at_latest(&self) -> Nanos {
        self.next + self.late
    }

    /// What must be there for a piece to be begun.
    fn needs(&self) -> f64 {
        self.piece + if self.kind == Kind::Look { 0.0 } else { FOR_LOOKS }
    }

    /// Charges a piece that was begun at `began`, and says when the next is due: at once within a
    /// pass, and after `interval` from the beginning of one to that of the next.
    pub(super) fn did(
        &mut self,
        began: Nanos,
        cost: Nanos,
        done: bool,
        interval: Nanos,
        allowance: &mut Allowance,
    ) {
        allowance.spend(cost);
        let cost = cost.0 as f64;
        self.piece += NEWEST * (cost - self.piece);
        self.pass += cost;
        let first = *self.began.get_or_insert(began);
        (self.next, self.early, self.late) = (began, Nanos::ZERO, Nanos::ZERO);
        if done {
            (self.early, self.late) = (interval.scale(EARLY), interval.scale(LATE));
            let fair = Nanos((PARTS * self.pass / allowance.share) as u64);
            let limited = self.kind != Kind::Search && allowance.is_low();
            self.next = first + if limited { interval.max(fair) } else { interval };
            (self.began, self.pass) = (None, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program with very many threads, on a machine where work costs now little, now much: over
    /// any time the scan keeps to its share, and each kind of work gets on.
    #[test]
    fn work_in_pieces_keeps_to_its_share_over_any_time() {
        let share = 0.004;
        for (pieces_of, dear) in [([3, 60, 1], 1_200), ([40, 1, 20], 300), ([1, 1, 1], 40)] {
            let mut t = Nanos::from_millis(1_000);
            let mut allowance = Allowance::new(share, t);
            let mut jobs = JOBS.map(|kind| Job::new(kind, t));
            let mut random = evenly_model::stats::Random::new(7);
            let (mut left, mut passes) = (pieces_of, [0; 3]);
            let mut spent: Vec<(Nanos, f64)> = Vec::new();
            let end = t + Nanos::from_millis(120_000);
            while t < end {
                allowance.refill(t);
                let Some(i) = due_job(&mut jobs, &allowance, t) else {
                    t = t.max(jobs.iter().map(|j| j.next).min().unwrap());
                    continue;
                };
                let cost = Nanos::from_micros(dear / 4).scale(1.0 + 3.0 * random.unit());
                left[i] -= 1;
                let done = left[i] == 0;
                if done {
                    (left[i], passes[i]) = (pieces_of[i], passes[i] + 1);
                }
                jobs[i].did(t, cost, done, LATER_SCANS, &mut allowance);
                spent.push((t, cost.0 as f64));
                t += cost;
            }
            for window in [100, 1_000, 10_000, 100_000].map(Nanos::from_millis) {
                let (mut sum, mut first, mut most) = (0.0, 0, 0.0f64);
                for &(at, cost) in &spent {
                    sum += cost;
                    while at - spent[first].0 > window {
                        sum -= spent[first].1;
                        first += 1;
                    }
                    most = most.max(sum);
                }
                let limit = ADVANCE + share * window.0 as f64 + dear as f64 * 1e3;
                assert!(most <= limit, "{pieces_of:?}, {window}: {most} of {limit}");
            }
            assert!(passes.iter().all(|&n| n >= 5), "{pieces_of:?}: {passes:?}");
        }
    }

    /// Would catch: a program of very many threads that is scanned from end to end all the time, and one
    /// that has just started and is found late.
    #[test]
    fn scans_come_quickly_at_first_and_seldom_later() {
        let (changes, steady) = (Some(Nanos::ZERO), Some(STEADY));
        for kind in JOBS {
            let intervals = [None, changes, steady].map(|state| kind.interval(state, 8));
            assert!(intervals[0] < intervals[1] && intervals[1] <= intervals[2], "{kind:?}");
        }
        assert!(Kind::Look.interval(changes, 8) < Kind::Look.interval(steady, 8));
        for state in [None, changes, steady] {
            assert_eq!(Kind::Search.interval(state, MANY + 1), MANY_SCANS);
            assert!(Kind::Look.interval(state, MANY + 1) < MANY_SCANS);
        }
    }

    /// Would catch: a thread of ours that wakes for a scan just before or after a point; a scan that is never made as no point comes;
    /// one that is made at once again and again.
    #[test]
    fn scans_wait_for_points_for_a_while() {
        let (t, ms) = (Nanos::from_millis(1_000), Nanos::from_millis);
        let mut allowance = Allowance::new(0.01, t);
        let mut job = Job::new(Kind::Look, t);
        assert!(job.is_due(t) && job.at_latest() == t);
        job.did(t, Nanos::ZERO, false, LATER_SCANS, &mut allowance);
        assert!(job.is_due(t) && job.at_latest() == t, "the next piece");
        job.did(t, Nanos::ZERO, true, LATER_SCANS, &mut allowance);
        assert!(!job.is_due(t + ms(179)) && job.is_due(t + ms(180)));
        assert_eq!(job.at_latest(), t + ms(300));
        // What cannot be paid is not tried again before it can.
        let mut jobs = [job; 3];
        allowance.spend(Nanos(ADVANCE as u64 + 1_000));
        assert_eq!(due_job(&mut jobs, &allowance, t + ms(250)), None);
        let put_off = jobs.iter().find(|j| j.next != job.next).unwrap();
        assert!(!put_off.is_due(t + ms(250)));
        job.did(t, Nanos::ZERO, true, STEADY_SCANS, &mut allowance);
        job.hurry(t + ms(100));
        assert_eq!(job.next, t + ms(300));
    }

    /// Would catch: a start that takes long where all is dear, and that makes evenly take more than was said.
    #[test]
    fn what_a_start_takes_more_than_its_part_is_paid_by_the_search() {
        assert_eq!(paid_to_begin(BEGINNING), BEGINNING);
        assert_eq!(paid_to_begin(BEGINNING + BEGINNING), BEGINNING);
    }

    /// Would catch: a job that is done without the CPU time for it, or that is looked at again at once.
    #[test]
    fn a_job_that_cannot_be_paid_is_put_off_until_it_can() {
        let t = Nanos::from_millis(1_000);
        let mut allowance = Allowance::new(0.01, t);
        let mut jobs = JOBS.map(|kind| Job::new(kind, t));
        assert_eq!(due_job(&mut jobs, &allowance, t), Some(0));
        allowance.spend(Nanos(ADVANCE as u64));
        assert_eq!(due_job(&mut jobs, &allowance, t), None);
        let next = jobs[0].next;
        assert!(next > t);
        allowance.refill(next);
        (jobs[1].next, jobs[2].next) = (next + t, next + t);
        assert_eq!(due_job(&mut jobs, &allowance, next), Some(0));
    }
}

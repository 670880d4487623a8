//! The account of a thread: what it ran, waited and was blocked, and how far it is.
//!
//! The kernel books waiting when it ends. Until then it looks like blocking, which it is not; so what is
//! booked beyond the time that went by is kept for later, and so is waiting that was seen before it was
//! booked.

use crate::phases::InPhase;
use crate::speed::LEAST_WANTED;
use crate::{Times, WaitReport};
use evenly_model::Nanos;

/// Where a thread's time went.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) ran: Nanos,
    pub(crate) waited: Nanos,
    pub(crate) blocked: Nanos,
    /// The time in which it only waited for others, by its report: of what it ran in a total, of what it ran
    /// and waited in a period.
    pub(crate) spinning: Nanos,
}

/// What is known of a thread's times.
#[derive(Debug)]
pub(crate) struct ThreadAccount {
    pub(crate) last: Times,
    /// When `last` was read.
    pub(crate) read_at: Nanos,
    /// Instructions when `last` was read, where they are counted.
    pub(crate) retired: Option<u64>,
    /// Instructions since it was read before that.
    pub(crate) newly_retired: Option<u64>,
    /// Its report of its own waiting.
    pub(crate) report: WaitReport,
    /// What it does from barrier to barrier, where it reports them.
    pub(crate) phase: InPhase,
    /// P of the paper, section 2.1.
    pub(crate) progress: i64,
    /// For how long it has hardly wanted a CPU.
    pub(crate) quiet: Nanos,
    /// What it had done when it was judged last whether threads give up their CPUs, or when it joined.
    pub(crate) window: Window,
    /// How much of the time since it was last seen to have run is not explained: it may be waiting
    /// still, which the kernel books when that ends.
    pub(crate) unexplained: Nanos,
    /// For how long it has not run at all.
    pub(crate) not_run_for: Nanos,
    /// It was seen runnable, and has not run since.
    pub(crate) waits: bool,
    /// It has run for nearly all of the last period, and was given no CPU anew in it: so it is where
    /// it was.
    pub(crate) ran_on: bool,
    /// What was booked beyond the time that went by.
    overbooked: Nanos,
    /// Waiting that was seen and booked, and that the kernel will report when it ends.
    pub(crate) ahead_of_kernel: Nanos,
    /// What it did in the last period.
    pub(crate) period: Spent,
    /// Its progress in the last period.
    pub(crate) gained: Nanos,
    /// What it has done since it joined.
    pub(crate) total: Spent,
    /// What it had counted of its computing when that was read last, of a rank that counts it.
    counted: Option<Counted>,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
}

/// What a rank had counted of itself at a moment.
#[derive(Debug, Clone, Copy)]
struct Counted {
    /// All of its CPU time.
    ran: Nanos,
    /// That in which it computed.
    computed: Nanos,
    /// What it had spun since it joined.
    spun: Nanos,
}

/// From when on, and from which times, blocking of a thread is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    pub(crate) began: Nanos,
    pub(crate) times: Times,
    /// What was not explained at its beginning, and so was not judged before it.
    pub(crate) unexplained: Nanos,
}

/// What a thread did since it was read last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) index: usize,
    pub(crate) elapsed: Nanos,
    pub(crate) ran: Nanos,
    /// At most what went by beside running.
    pub(crate) waited: Nanos,
    /// As the kernel books it, when it ends: some of it may belong to earlier stretches.
    pub(crate) waiting_booked: Nanos,
    /// What its instructions take on the fastest CPUs, or CPU time by the capacity of the CPU that it was
    /// on: progress, with what it spun.
    pub(crate) gained: Nanos,
}

impl ThreadAccount {
    /// Of a thread that was read at `read_at`, and joins at `now`.
    pub(crate) fn new(times: Times, read_at: Nanos, progress: i64, now: Nanos) -> Self {
        Self {
            last: times,
            read_at,
            retired: None,
            newly_retired: None,
            report: WaitReport::new(now),
            phase: InPhase::default(),
            progress,
            quiet: Nanos::ZERO,
            window: Window { began: read_at, times, unexplained: Nanos::ZERO },
            unexplained: Nanos::ZERO,
            not_run_for: Nanos::ZERO,
            waits: false,
            ran_on: false,
            overbooked: Nanos::ZERO,
            ahead_of_kernel: Nanos::ZERO,
            period: Spent::default(),
            gained: Nanos::ZERO,
            total: Spent::default(),
            counted: None,
            minor_faults: 0,
            major_faults: 0,
        }
    }

    /// Takes over times that were read, with what was done since those before: gains by CPU time with this
    /// factor where instructions say nothing. None where no time has gone by.
    pub(crate) fn advance(
        &mut self,
        index: usize,
        times: Times,
        read_at: Nanos,
        gains: impl FnOnce(Option<u64>, Nanos) -> Nanos,
    ) -> Option<Stretch> {
        // A thread that has just joined was not here for the whole period, or was read last in
        // another domain, at another time.
        let elapsed = read_at - self.read_at;
        self.read_at = read_at;
        if times.ran < self.last.ran {
            // The thread's counters were replaced: a thread that is not the leader called
            // exec and took over this id. What it did before is not known here.
            self.last = times;
            self.window = Window { began: read_at, times, unexplained: Nanos::ZERO };
            self.unexplained = Nanos::ZERO;
        }
        let ran = times.ran - self.last.ran;
        let booked = times.waited - self.last.waited;
        let waiting_booked = booked - self.ahead_of_kernel;
        self.ahead_of_kernel = self.ahead_of_kernel - booked;
        self.ran_on = times.slices == self.last.slices && ran.0 * 4 >= elapsed.0 * 3;
        self.last = times;
        let missing = elapsed - ran;
        let waited = booked.min(missing);
        if ran > Nanos::ZERO {
            (self.not_run_for, self.waits) = (Nanos::ZERO, false);
            self.unexplained = missing - waited;
        } else {
            self.not_run_for += elapsed;
            self.unexplained += missing - waited;
        }
        (elapsed > Nanos::ZERO).then(|| {
            let gained = gains(self.newly_retired, ran);
            Stretch { index, elapsed, ran, waited, waiting_booked, gained }
        })
    }

    /// Books what it did; what it spun is progress only where that is said. Returns whether it is busy.
    pub(crate) fn book(&mut self, s: &Stretch, first: bool, spins_progress: bool) -> bool {
        let booked = s.ran + s.waiting_booked + self.overbooked;
        let blocked = s.elapsed - booked;
        self.overbooked = booked - s.elapsed;
        let spins = self.report.book(s.elapsed, blocked);
        let gained = s.gained - s.gained.scale(spins);
        self.progress += if spins_progress { s.gained } else { gained }.0 as i64;
        self.phase.add(gained);
        self.total.spinning += s.ran.scale(spins);
        self.total.ran += s.ran;
        self.total.waited += s.waiting_booked;
        self.total.blocked += blocked;
        // Before the first point there was no period.
        if !first {
            let spinning = (s.ran + s.waited).scale(spins);
            self.period = Spent { ran: s.ran, waited: s.waited, blocked, spinning };
            self.gained = gained;
        }
        let (wanted, elapsed) = ((s.ran + s.waited).0 as f64, s.elapsed.0 as f64);
        if wanted < LEAST_WANTED * elapsed {
            self.quiet += s.elapsed;
        } else {
            self.quiet = Nanos::ZERO;
        }
        wanted > 5.0 * LEAST_WANTED * elapsed
    }

    /// It was seen to wait for its CPU for the whole of a stretch, which is not booked yet.
    pub(crate) fn book_ahead(&mut self, s: &mut Stretch) {
        s.waited = s.elapsed - s.ran;
        self.ahead_of_kernel += s.waited - s.waiting_booked;
        s.waiting_booked = s.waiting_booked.max(s.waited);
    }

    /// Takes over how much of its CPU time it has computed for by its own count, which is exact: what it
    /// spun since its last report of that is what is left. The estimate ([`crate::waiting`]) counts for the time
    /// after that, and for how what was computed before the first count is divided by the moment when the
    /// thread joined.
    pub(crate) fn set_computed(&mut self, computed: Nanos) {
        let (ran, total) = (self.last.ran, self.total.ran);
        self.total.spinning = match self.counted {
            Some(before) => before.spun + ((ran - before.ran) - (computed - before.computed)),
            None => {
                let before_joining = ran - total;
                let least = total - computed;
                self.total.spinning.clamp(least, total - (computed - before_joining))
            }
        };
        self.counted = Some(Counted { ran, computed, spun: self.total.spinning });
    }
}

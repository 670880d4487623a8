//! A processor whose scheduler cooperates, as in *Adaptive loops* (PPoPP 2001, section 2.5): a rank that waits yields to the others,
//! and is woken up when what it waits for is there, as far as its bank goes.
//!
//! Two parties have the processor in turns, by time that they are charged for: the rank, and the others, who never wait. What the
//! paper leaves open is decided in `docs/decisions/0041-the-bank-of-a-rank-that-waits.md`.
//!
//! Invariants: the rank is charged for all time that it uses, once. What it is charged less than others, as it waited, counts for a
//! quantum at most, so that no rank saves up more than that, and the bank.

use super::cluster::{Cluster, JITTER};
use evenly_bank::{Bank, Spin, Words};
use evenly_model::Nanos;
use evenly_model::stats::Random;

/// How processors are scheduled that cooperate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cooperation {
    /// Wake requests are looked at so often.
    pub tick: Nanos,
    /// To switch from one process to another.
    pub switch: Nanos,
    /// What a word and its answer take: twice as long is spun at first.
    pub round_trip: Nanos,
}

impl Cooperation {
    /// The paper's (sections 3.1 and 3.2), with this round trip.
    #[must_use]
    pub const fn of_paper(round_trip: Nanos) -> Self {
        Self { tick: Nanos::from_micros(833), switch: Nanos::from_micros(6), round_trip }
    }
}

/// Who has the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Has {
    /// The rank, in a turn of its own.
    Rank,
    /// The rank, at a wake request: its bank pays.
    Honoured,
    Others,
}

/// A processor that the program and others share.
#[derive(Debug)]
pub(super) struct Cooperating {
    random: Random,
    costs: Cooperation,
    message_ns: u64,
    quantum_ns: f64,
    /// Time of the rank that weighs as much as so much of the others'.
    others_for_one: f64,
    /// The next tick is a multiple of ticks from here.
    first_tick: u64,
    bank: Bank,
    spin: Spin,
    words: Words,
    /// All before is decided.
    now: u64,
    has: Has,
    /// What is left of the turn.
    left: u64,
    /// Of the others' turn, which was interrupted.
    interrupted: u64,
    /// What the rank was charged, less what the others were, in time of the rank.
    ahead_ns: f64,
    others_ns: u64,
}

impl Cooperating {
    pub(super) fn new(cluster: &Cluster, costs: Cooperation, load: f64, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let quantum = cluster.quantum;
        let whole = quantum.0 as f64 / (1.0 - load);
        let left = (random.unit() * whole) as u64;
        let first_tick = (random.unit() * costs.tick.0 as f64) as u64;
        let bank = Bank::open(quantum);
        let words = Words::default();
        words.deschedule();
        Self {
            random,
            costs,
            message_ns: cluster.costs.message.0,
            quantum_ns: quantum.0 as f64,
            others_for_one: load / (1.0 - load),
            first_tick,
            ahead_ns: bank.balance().0 as f64,
            bank,
            words,
            spin: Spin::new(costs.round_trip, quantum),
            now: 0,
            has: Has::Others,
            left,
            interrupted: 0,
            others_ns: 0,
        }
    }

    /// When the program has it, from `at` on, before which it has waited.
    pub(super) fn on(&mut self, at: u64) -> u64 {
        self.waits(at);
        let mut request = self.request();
        while self.has == Has::Others {
            if let Some(tick) = request.take_if(|tick| *tick < self.now + self.left) {
                self.wakes(tick);
            } else {
                self.run(self.left);
                self.turn_ends();
            }
        }
        self.now
    }

    /// When the program has had it for so long, from `at` on.
    pub(super) fn computes(&mut self, at: u64, mut work: u64) -> u64 {
        self.on(at);
        loop {
            let ns = if self.has == Has::Others { self.left } else { work.min(self.left) };
            if self.has != Has::Others {
                work -= ns;
            }
            self.run(ns);
            if work == 0 {
                return self.now;
            }
            self.turn_ends();
        }
    }

    /// For how long the others have had it until `at`, up to which the program waits.
    pub(super) fn others(&mut self, at: u64) -> u64 {
        self.waits(at);
        self.others_ns
    }

    /// Up to `at`, when what the rank waits for is there: it spins, and yields to the others.
    fn waits(&mut self, at: u64) {
        let mut yielded = false;
        let mut spin = self.spin.length().0;
        while self.now < at {
            let rest = at - self.now;
            if self.has == Has::Others {
                self.run(self.left.min(rest));
                if self.left > 0 {
                    continue;
                }
                self.turn_ends();
                if self.has == Has::Rank {
                    if yielded && self.now < at {
                        self.spin.in_vain();
                    }
                    spin = self.spin.length().0;
                }
                continue;
            }
            let ns = rest.min(spin).min(self.left);
            self.run(ns);
            spin -= ns;
            if self.now >= at {
                break;
            }
            if self.left == 0 {
                self.turn_ends();
            } else if spin == 0 {
                self.yields();
                yielded = true;
            }
        }
        self.spin.succeeded();
    }

    /// The rank gives the processor to the others.
    fn yields(&mut self) {
        if self.has == Has::Rank {
            self.ahead_ns += self.bank.deposit(Nanos(self.left)).0 as f64;
            self.others_begin();
        } else {
            self.others_resume();
        }
    }

    /// What the rank waits for is there now: where it is descheduled, a peer sends a wake request, which is looked at with this tick.
    fn request(&self) -> Option<u64> {
        let sent = (self.now + self.message_ns).saturating_sub(self.first_tick);
        let tick = || self.first_tick + sent.next_multiple_of(self.costs.tick.0.max(1));
        self.words.wants_wake().then(tick)
    }

    /// A wake request is looked at. Where the bank is empty it is as if nobody had sent it.
    fn wakes(&mut self, tick: u64) {
        self.run(tick.saturating_sub(self.now));
        if self.bank.honours() {
            self.interrupted = self.left;
            self.left = self.bank.balance().0;
            self.switches_to(Has::Honoured);
        }
    }

    fn switches_to(&mut self, has: Has) {
        self.now += self.costs.switch.0;
        self.has = has;
        if has == Has::Others {
            self.words.deschedule();
        } else {
            self.words.schedule();
        }
    }

    fn turn(&mut self, length_ns: f64) -> u64 {
        let by = 1.0 + JITTER * (2.0 * self.random.unit() - 1.0);
        (length_ns * by).max(1.0) as u64
    }

    fn others_begin(&mut self) {
        self.left = self.turn(self.quantum_ns * self.others_for_one);
        self.switches_to(Has::Others);
    }

    /// The rank has used up its bank, or waits again: the others have what was left of their turn.
    fn others_resume(&mut self) {
        self.left = self.interrupted;
        self.switches_to(Has::Others);
    }

    /// Whoever has it has it for so long, within the turn.
    fn run(&mut self, ns: u64) {
        self.now += ns;
        self.left -= ns;
        match self.has {
            Has::Rank => self.ahead_ns += ns as f64,
            Has::Honoured => self.ahead_ns += self.bank.spend(Nanos(ns)).0 as f64,
            Has::Others => {
                self.others_ns += ns;
                // What the rank did not want is not owed to it later, but for a quantum.
                let ahead = self.ahead_ns - ns as f64 / self.others_for_one;
                self.ahead_ns = ahead.max(-self.quantum_ns);
            }
        }
    }

    /// The turn is over: the next one is the other's, unless that one is ahead by more than half a quantum.
    fn turn_ends(&mut self) {
        let half = self.quantum_ns / 2.0;
        match self.has {
            Has::Honoured => self.others_resume(),
            Has::Rank if self.ahead_ns < -half => self.left = self.turn(self.quantum_ns),
            Has::Others if self.ahead_ns > half => {
                self.left = self.turn(self.quantum_ns * self.others_for_one);
            }
            Has::Rank => self.others_begin(),
            Has::Others => {
                self.left = self.turn(self.quantum_ns);
                self.switches_to(Has::Rank);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn cpu(load: f64, seed: u64) -> Cooperating {
        let cluster = Cluster::of_paper(1, 1, &[load]).cooperating();
        Cooperating::new(&cluster, cluster.cooperates.unwrap(), load, seed)
    }

    #[test]
    fn who_never_waits_has_its_part() {
        for load in [0.25, 0.5, 0.9] {
            let mut cpu = cpu(load, 7);
            let work = 100_000 * MS;
            let took = cpu.computes(0, work) as f64;
            assert!((took * (1.0 - load) / work as f64 - 1.0).abs() < 0.01, "{load}: {took}");
            let others = cpu.others(took as u64) as f64 / took;
            assert!((others / load - 1.0).abs() < 0.01, "{load}: {others}");
        }
    }

    /// A rank that computes for 2 ms and then waits for 18: a tick after that at most it has its processor, whenever that is.
    #[test]
    fn who_waits_has_the_processor_back_at_the_next_tick() {
        let mut cpu = cpu(0.5, 3);
        let mut at = cpu.on(0);
        let late = (833 + 4 + 6) * 1_000;
        for _ in 0..500 {
            let done = cpu.computes(at, 2 * MS);
            // It may lose its turn once meanwhile, if it began in one of its own.
            assert!(done - at < 15 * MS, "{at}: {done}");
            let there = done + 18 * MS;
            at = cpu.on(there);
            assert!(at - there <= late, "{there}: {at}");
        }
        assert!(cpu.bank.honours());
    }

    /// The bank is a quantum: whoever wants more than its part does not get it by waiting for a moment now and then.
    #[test]
    fn the_bank_pays_for_a_quantum_at_most() {
        let mut cpu = cpu(0.5, 3);
        let mut at = cpu.on(0);
        let (begin, rounds) = (at, 500);
        for _ in 0..rounds {
            at = cpu.computes(at, 30 * MS);
            at = cpu.on(at + MS);
        }
        let each = (at - begin) as f64 / f64::from(rounds) / MS as f64;
        assert!((59.0..63.0).contains(&each), "{each}");
        let others = cpu.others(at) as f64 / at as f64;
        assert!((0.49..0.51).contains(&others), "{others}");
    }

    proptest! {
        /// However it waits and computes, the rank has no more than its part, but for the bank and a turn. Would catch: time that is
        /// not charged, deposits that are not, and deficits that grow.
        #[test]
        fn the_others_have_their_part(
            does in prop::collection::vec((0..40_000_000u64, 0..40_000_000u64), 1..300),
            load in prop_oneof![Just(0.5), 0.1..0.9],
            seed: u64,
        ) {
            let mut cpu = cpu(load, seed);
            let (mut at, mut worked) = (0, 0);
            for (waits, works) in does {
                let there = at + waits;
                at = cpu.on(there);
                prop_assert!(at >= there);
                let end = cpu.computes(at, works);
                prop_assert!(end >= at + works);
                (at, worked) = (end, worked + works);
                prop_assert!(cpu.bank.balance() <= Nanos(10 * MS) && cpu.ahead_ns >= -10.0 * MS as f64);
            }
            let others = cpu.others(at);
            prop_assert!(others + worked <= at);
            let due = worked as f64 * load / (1.0 - load);
            let turns = 30.0 * MS as f64 * load / (1.0 - load);
            prop_assert!(others as f64 >= due - turns, "{} of {}", others, due);
        }
    }
}

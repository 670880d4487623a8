//! The account of a process (section 2.5.1).

use evenly_model::Nanos;

/// Time of which a process was charged before it uses it: at most a quantum, so that nobody takes a CPU over by yielding often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bank {
    quantum: Nanos,
    balance: Nanos,
}

impl Bank {
    /// That of a process which declares that it cooperates. It is charged a quantum for it: [`Bank::balance`].
    #[must_use]
    pub const fn open(quantum: Nanos) -> Self {
        Self { quantum, balance: quantum }
    }

    /// What is in it.
    #[must_use]
    pub const fn balance(&self) -> Nanos {
        self.balance
    }

    /// The process yields, with so much left of its quantum: what it is charged now, and can use later. That is less than is left
    /// where the bank has no room for it.
    pub fn deposit(&mut self, left: Nanos) -> Nanos {
        let deposit = left.min(self.quantum - self.balance);
        self.balance += deposit;
        deposit
    }

    /// Whether a wake request is honoured.
    #[must_use]
    pub fn honours(&self) -> bool {
        self.balance > Nanos::ZERO
    }

    /// The process has used so much at a wake request: what is beyond the bank, which it is charged as usual.
    pub fn spend(&mut self, used: Nanos) -> Nanos {
        let paid = used.min(self.balance);
        self.balance = self.balance - paid;
        used - paid
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: fn(u64) -> Nanos = Nanos::from_millis;

    #[test]
    fn what_is_put_by_is_used_later() {
        let mut bank = Bank::open(MS(10));
        assert_eq!((bank.balance(), bank.deposit(MS(4))), (MS(10), MS(0)));
        assert_eq!((bank.spend(MS(7)), bank.balance()), (MS(0), MS(3)));
        assert_eq!((bank.deposit(MS(4)), bank.balance()), (MS(4), MS(7)));
        assert_eq!((bank.deposit(MS(4)), bank.balance()), (MS(3), MS(10)));
        assert!(bank.honours());
        assert_eq!((bank.spend(MS(12)), bank.balance()), (MS(2), MS(0)));
        assert!(!bank.honours());
        assert_eq!(bank.spend(MS(1)), MS(1));
    }

    #[derive(Debug, Clone)]
    enum Does {
        /// Uses so much of its quantum, and yields with so much left.
        Yields(u64, u64),
        /// Uses so much at a wake request.
        Wakes(u64),
    }

    proptest! {
        /// Would catch: time that is charged twice, or never, or a bank that grows.
        #[test]
        fn all_that_was_charged_was_used_or_is_in_the_bank(
            quantum in 0..1_000_000u64,
            does in prop::collection::vec(
                prop_oneof![
                    (0..2_000_000u64, 0..2_000_000u64).prop_map(|(used, left)| Does::Yields(used, left)),
                    (0..2_000_000u64).prop_map(Does::Wakes),
                ],
                0..100,
            ),
        ) {
            let mut bank = Bank::open(Nanos(quantum));
            let (mut charged, mut used) = (bank.balance().0, 0);
            prop_assert_eq!(charged, quantum);
            for one in does {
                match one {
                    Does::Yields(of_quantum, left) => {
                        let deposit = bank.deposit(Nanos(left)).0;
                        prop_assert!(deposit <= left);
                        used += of_quantum;
                        charged += of_quantum + deposit;
                    }
                    // A request that is not honoured gives nothing.
                    Does::Wakes(time) if bank.honours() => {
                        used += time;
                        charged += bank.spend(Nanos(time)).0;
                    }
                    Does::Wakes(_) => prop_assert_eq!(bank.balance(), Nanos::ZERO),
                }
                prop_assert!(bank.balance() <= Nanos(quantum));
                prop_assert_eq!(charged, used + bank.balance().0);
            }
        }
    }
}

//! Loops that may wait, of which that is not proved: which there are, and when one is given up.
//!
//! A place is given up by programs, where registers show that a turn carries something over (`probe/c/handover_doubt.h`), and
//! here, where threads hand over, or sleep, for nobody: who waits, waits for somebody that computes.

use crate::spinning::Elsewhere;
use evenly_model::Nanos;
use evenly_spins::{Place, Places, Spin};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

/// So many loops of a file are tried.
const MOST: usize = 64;
/// Somebody computes where threads ran, or wanted to, for so many CPUs; each that spins for a part of the time, and sleeps for the rest, runs
/// for less than one.
const COMPUTES: f64 = 0.95;
/// Who sleeps for less than this part of the time is not looked at.
const SLEPT: f64 = 0.1;
/// After so many looks in succession at which nobody computed a place is given up.
const FOR_NOBODY: u32 = 3;

/// What is doubted.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    /// By inode and path: loops, and places at which threads were seen.
    found: HashMap<(u64, PathBuf), (Vec<Spin>, HashSet<u64>)>,
    /// Places, for how long threads had slept there at the last look, and at how many looks nobody computed.
    places: HashMap<Place, (Nanos, u32)>,
    /// Whether there are loops, or programs that have some, of which no place is known yet.
    fresh: bool,
    /// Programs that were there at the last look.
    met: HashSet<u32>,
}

impl Doubts {
    /// Takes the loops around places at which threads were seen. Whether there are new ones.
    pub(crate) fn found(&mut self, places: &[Elsewhere<'_>]) -> bool {
        let mut is_new = false;
        for Elsewhere { inode, path, functions, places } in places {
            let (known, seen) = self.found.entry((*inode, (*path).clone())).or_default();
            // Also those around which there was nothing.
            let unknown: Vec<u64> = places.iter().copied().filter(|at| seen.insert(*at)).collect();
            for spin in functions.doubtful(&unknown) {
                if known.len() < MOST && !known.contains(&spin) {
                    known.push(spin);
                    is_new = true;
                }
            }
        }
        self.fresh |= is_new;
        is_new
    }

    /// The programs that are there now. Who has given a loop up has done so for itself. Whether one of them was not there before.
    pub(crate) fn meet(&mut self, spaces: impl Iterator<Item = u32>) -> bool {
        let met: HashSet<u32> = spaces.collect();
        let are_new = !met.is_subset(&self.met);
        self.fresh |= !self.found.is_empty() && are_new;
        self.met = met;
        are_new
    }

    /// Whether there are any that are not given up.
    pub(crate) fn are_there(&self, table: &impl Places) -> bool {
        self.fresh || self.places.keys().any(|place| !table.is_refuted(*place))
    }

    /// The loops of a file.
    pub(crate) fn of(&self, inode: u64, path: &Path) -> &[Spin] {
        // Nothing is looked up in the many processes in which nothing is doubted.
        if self.found.is_empty() {
            return &[];
        }
        self.found.get(&(inode, path.to_owned())).map_or(&[], |(loops, _)| loops)
    }

    /// Whether a place is still tried.
    pub(crate) fn takes(&mut self, place: Place, table: &impl Places) -> bool {
        self.places.entry(place).or_default();
        self.fresh = false;
        !table.is_refuted(place)
    }

    /// Whether this place is one of those.
    pub(crate) fn contain(&self, place: Place) -> bool {
        self.places.contains_key(&place)
    }

    /// Gives up the places at which threads sleep while none of them computes: all ran, or `wanted` to, for so long together.
    pub(crate) fn refute(&mut self, table: &mut impl Places, wanted: Nanos, elapsed: Nanos) {
        if self.places.is_empty() {
            return;
        }
        let nobody_computes = wanted < elapsed.scale(COMPUTES);
        for (place, handed) in table.handed() {
            let Some((slept, looks)) = self.places.get_mut(&place) else { continue };
            let more = handed.slept - std::mem::replace(slept, handed.slept);
            let for_nobody = nobody_computes && more > elapsed.scale(SLEPT);
            *looks = if for_nobody { *looks + 1 } else { 0 };
            if *looks >= FOR_NOBODY {
                // A table that cannot be written stays as it is, and what is said there ends by itself.
                let _ = table.refute(place);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use evenly_spins::{Handed, Taking};
    use std::io;

    const STEP: Nanos = Nanos::from_millis(20);

    /// Three places at which threads have slept for so long.
    #[derive(Default)]
    struct Table {
        slept: Nanos,
        refuted: Vec<Place>,
    }

    impl Places for Table {
        fn taking(&self) -> Vec<Taking> {
            Vec::new()
        }
        fn place(&mut self, _: u32, _: u64, _: u32, _: bool) -> Option<Place> {
            None
        }
        fn refute(&mut self, place: Place) -> io::Result<()> {
            self.refuted.push(place);
            Ok(())
        }
        fn is_refuted(&self, place: Place) -> bool {
            self.refuted.contains(&place)
        }
        fn changes(&mut self, _: Place, _: bool) -> bool {
            true
        }
        fn want(&mut self, _: Place, _: bool) -> io::Result<()> {
            Ok(())
        }
        fn until(&mut self, _: u32) -> io::Result<()> {
            Ok(())
        }
        fn others(&mut self, _: u32) -> io::Result<()> {
            Ok(())
        }
        fn handed(&self) -> Vec<(Place, Handed)> {
            let handed = |slept| Handed { slept, ..Handed::default() };
            vec![
                (Place(0), handed(self.slept)),
                (Place(1), handed(Nanos::ZERO)),
                (Place(2), handed(self.slept)),
            ]
        }
    }

    #[test]
    fn a_place_is_given_up_where_threads_sleep_for_nobody() {
        let (mut doubts, mut table) = (Doubts::default(), Table::default());
        // Of the last it is proved.
        assert!([0, 1].iter().all(|&n| doubts.takes(Place(n), &table)));
        let mut passes = |table: &mut Table, ran_ms: u64, slept_ms: u64| {
            table.slept += Nanos::from_millis(slept_ms);
            doubts.refute(table, Nanos::from_millis(ran_ms), STEP);
        };
        for _ in 0..5 {
            // Another one computes; or they sleep for a moment only.
            (0..10).for_each(|_| passes(&mut table, 35, 10));
            (0..10).for_each(|_| passes(&mut table, 10, 1));
            (1..FOR_NOBODY).for_each(|_| passes(&mut table, 10, 10));
        }
        assert_eq!(table.refuted, []);
        passes(&mut table, 10, 1);
        (0..FOR_NOBODY).for_each(|_| passes(&mut table, 10, 10));
        assert_eq!(table.refuted, [Place(0)]);
        assert!(!doubts.takes(Place(0), &table) && doubts.takes(Place(1), &table));
        assert!(doubts.are_there(&table));
    }

    /// Would catch: a program that computes in loops which look like waits, and is looked at for them until it ends.
    #[test]
    fn where_all_places_are_given_up_there_is_nothing_to_do() {
        let (mut doubts, mut table) = (Doubts::default(), Table::default());
        doubts.meet([1].into_iter());
        assert!(!doubts.are_there(&table));
        doubts.found.insert((7, PathBuf::from("program")), Default::default());
        doubts.fresh = true;
        assert!(doubts.are_there(&table), "until a program has them");
        assert!(doubts.takes(Place(0), &table) && doubts.are_there(&table));
        table.refute(Place(0)).unwrap();
        doubts.meet([1].into_iter());
        assert!(!doubts.are_there(&table));
        doubts.meet([1, 2].into_iter());
        assert!(doubts.are_there(&table), "another program has them as well");
    }
}

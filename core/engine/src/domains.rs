//! How many threads each domain gets (paper, section 2.4: threads are spread over domains so that
//! they hold numbers of threads that differ by at most one).
//!
//! Domains need not be equally large, and CPUs come and go, so what is evened out is the *load* of
//! a domain, its threads per usable CPU: a thread goes from A to B where
//! `threads_A / room_A > (threads_B + 1) / room_B`, so that the greater of the two loads becomes
//! less. Room is counted for all threads alike (the usable CPUs that any of them may use), and not
//! for each thread by its own mask: with a measure for each thread, moves could go round in a
//! ring.
//!
//! Invariants:
//! - A thread is sent only to a domain in which it may use a CPU (P1).
//! - The loads, sorted, become less with every move, in the order of words in a dictionary: so the
//!   search ends, and the greatest load never rises. The exception are threads that can no longer
//!   use any CPU of their domain: those have to go somewhere.

use evenly_model::{CpuId, CpuSet, Nanos};
use std::collections::VecDeque;

/// How long one and the same need to move threads must have stood before they are moved: a CPU
/// that flickers, or a thread that is about to be followed by the others, moves no thread.
const HOLD: Nanos = Nanos::from_millis(1_000);

/// A thread as the spreading over domains sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainThread {
    /// The domain that it is in, as an index.
    pub domain: usize,
    /// Which row of `allowed` says where it may go.
    pub class: usize,
    /// Whether it can be moved. One that cannot counts where it is.
    pub movable: bool,
}

/// A thread that is to change its domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Index of the thread.
    pub thread: usize,
    /// Index of the domain.
    pub to: usize,
}

/// The domain for one more thread: the one in which its load is least afterwards; among equals
/// `here`, where the thread runs, and else the first. None where it may go nowhere.
///
/// `rooms` has the usable CPUs of each domain, `counts` its threads, `allowed` whether the thread
/// may use one of those CPUs.
#[must_use]
pub fn roomiest(
    rooms: &[usize],
    counts: &[usize],
    allowed: &[bool],
    here: Option<usize>,
) -> Option<usize> {
    (0..rooms.len())
        .filter(|&d| rooms[d] > 0 && allowed[d])
        .map(|d| (Load::new(counts[d] + 1, rooms[d]), Some(d) != here, d))
        .min()
        .map(|(_, _, d)| d)
}

/// The domain, as an index, for a CPU that comes online and was not there when the domains were made:
/// the one that has most CPUs of the CPU's group, where `groups` are the CPUs as the system divides
/// them now (by node, or by last cache). Of equals, and where its group is new to all domains, it
/// goes to the one with fewest CPUs. None where there are no domains.
#[must_use]
pub fn home_of_newcomer(domains: &[CpuSet], groups: &[CpuSet], cpu: CpuId) -> Option<usize> {
    let group = groups.iter().find(|g| g.contains(cpu)).cloned().unwrap_or_default();
    (0..domains.len())
        .min_by_key(|&d| (std::cmp::Reverse(domains[d].and(&group).len()), domains[d].len(), d))
}

/// Which threads have to change their domains, so that no move is left that lowers the greater of
/// two loads; with it go the moves that make room, where masks permit no direct one. Where masks
/// permit all, the loads then differ by no more than one thread makes. The arguments are those of
/// [`DomainSpread::look`].
fn even_out_domains(
    rooms: &[usize],
    allowed: &[Vec<bool>],
    threads: &[DomainThread],
) -> Vec<Transfer> {
    let mut rebalance = Rebalance::new(rooms, allowed, threads);
    rebalance.bring_in_strays();
    while rebalance.one_chain() {}
    let moved = threads.iter().zip(&rebalance.at).enumerate();
    moved
        .filter(|(_, (t, at))| t.domain != **at)
        .map(|(thread, (_, &to))| Transfer { thread, to })
        .collect()
}

/// Threads per CPU, compared exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Load {
    threads: u64,
    room: u64,
}

impl Load {
    fn new(threads: usize, room: usize) -> Self {
        Self { threads: threads as u64, room: room as u64 }
    }
}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Threads on no CPU at all are more than any load.
        (self.threads * other.room).cmp(&(other.threads * self.room))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct Rebalance<'a> {
    rooms: &'a [usize],
    allowed: &'a [Vec<bool>],
    at: Vec<usize>,
    counts: Vec<usize>,
    /// The movable threads by domain and class, so that a search need not look at all of them.
    movers: Vec<Vec<Vec<usize>>>,
}

impl<'a> Rebalance<'a> {
    fn new(rooms: &'a [usize], allowed: &'a [Vec<bool>], threads: &[DomainThread]) -> Self {
        let mut counts = vec![0; rooms.len()];
        let mut movers = vec![vec![Vec::new(); allowed.len()]; rooms.len()];
        for (i, t) in threads.iter().enumerate() {
            counts[t.domain] += 1;
            if t.movable {
                movers[t.domain][t.class].push(i);
            }
        }
        Self { rooms, allowed, at: threads.iter().map(|t| t.domain).collect(), counts, movers }
    }

    fn load(&self, domain: usize) -> Load {
        Load::new(self.counts[domain], self.rooms[domain])
    }

    fn may_go(&self, class: usize, domain: usize) -> bool {
        self.rooms[domain] > 0 && self.allowed[class][domain]
    }

    fn go(&mut self, class: usize, from: usize, to: usize) {
        if let Some(t) = self.movers[from][class].pop() {
            self.movers[to][class].push(t);
            self.at[t] = to;
            self.counts[from] -= 1;
            self.counts[to] += 1;
        }
    }

    /// Threads that can use no CPU of their domain go where there is most room.
    fn bring_in_strays(&mut self) {
        for from in 0..self.rooms.len() {
            for class in 0..self.allowed.len() {
                while !self.may_go(class, from) && !self.movers[from][class].is_empty() {
                    let to = roomiest(self.rooms, &self.counts, &self.allowed[class], None);
                    let Some(to) = to else { break };
                    self.go(class, from, to);
                }
            }
        }
    }

    /// Moves a thread from one domain to another whose load stays below, with those in between
    /// that make way for each other. Returns whether there was one to be moved.
    fn one_chain(&mut self) -> bool {
        // A domain without room has no load, and has given what it could.
        let mut order: Vec<usize> = (0..self.rooms.len()).filter(|&d| self.rooms[d] > 0).collect();
        order.sort_by_key(|&d| std::cmp::Reverse(self.load(d)));
        order.into_iter().any(|start| self.chain_from(start))
    }

    fn chain_from(&mut self, start: usize) -> bool {
        let mut reached_by: Vec<Option<(usize, usize)>> = vec![None; self.rooms.len()];
        let mut open = VecDeque::from([start]);
        while let Some(from) = open.pop_front() {
            for class in 0..self.allowed.len() {
                if self.movers[from][class].is_empty() {
                    continue;
                }
                for (to, by) in reached_by.iter_mut().enumerate() {
                    if to != start && by.is_none() && self.rooms[to] > 0 && self.allowed[class][to]
                    {
                        *by = Some((from, class));
                        open.push_back(to);
                    }
                }
            }
        }
        let load_with_one_more = |d: usize| Load::new(self.counts[d] + 1, self.rooms[d]);
        let best = (0..self.rooms.len())
            .filter(|&d| reached_by[d].is_some() && load_with_one_more(d) < self.load(start))
            .min_by_key(|&d| load_with_one_more(d));
        let Some(mut to) = best else { return false };
        while let Some((from, class)) = reached_by[to] {
            self.go(class, from, to);
            to = from;
        }
        true
    }
}

/// The CPUs that threads may use, and that would be left unused while each thread is confined to its
/// domain (promise P2): those of a domain without threads, and those of a domain whose own threads may
/// not use them, where threads of another one may.
///
/// `usable` are the CPUs that can be used now, `masks` the sets in which threads may run, as
/// [`DomainThread::class`] numbers them.
#[must_use]
pub fn left_unused(
    domains: &[CpuSet],
    usable: &CpuSet,
    masks: &[CpuSet],
    threads: &[DomainThread],
) -> CpuSet {
    // Each domain and mask once: there are far fewer than threads.
    let mut seen = vec![false; domains.len() * masks.len()];
    for t in threads {
        seen[t.domain * masks.len() + t.class] = true;
    }
    let (mut wanted, mut held) = (CpuSet::new(), CpuSet::new());
    for (i, _) in seen.iter().enumerate().filter(|(_, seen)| **seen) {
        let (domain, mask) = (&domains[i / masks.len()], &masks[i % masks.len()]);
        wanted = wanted.or(mask);
        held = held.or(&mask.and(domain));
    }
    let every = domains.iter().fold(CpuSet::new(), |all, d| all.or(d));
    wanted.and(&every).and(usable).minus(&held)
}

/// Watches over the spreading of threads, scan after scan, and says when which are to move.
#[derive(Debug, Clone, Default)]
pub struct DomainSpread {
    only_for_cpus: bool,
    rooms: Vec<usize>,
    rooms_changed: bool,
    needed_since: Option<Nanos>,
}

impl DomainSpread {
    /// With `only_for_cpus`, threads follow CPUs that have come or gone, and what threads that end
    /// leave empty stays so.
    #[must_use]
    pub fn new(only_for_cpus: bool) -> Self {
        Self { only_for_cpus, ..Self::default() }
    }

    /// The rooms at the last look.
    #[must_use]
    pub fn rooms(&self) -> &[usize] {
        &self.rooms
    }

    /// One look. `rooms` has the usable CPUs of each domain; `allowed` says for each class of threads in which
    /// domains they may use one of these. Returns the threads that have to move, once that has been so for a
    /// second.
    pub fn look(
        &mut self,
        now: Nanos,
        rooms: &[usize],
        allowed: &[Vec<bool>],
        threads: &[DomainThread],
    ) -> Vec<Transfer> {
        if self.rooms != rooms {
            self.rooms_changed = !self.rooms.is_empty();
            self.rooms = rooms.to_vec();
            self.needed_since = None;
        }
        let transfers = if self.only_for_cpus && !self.rooms_changed {
            Vec::new()
        } else {
            even_out_domains(rooms, allowed, threads)
        };
        if transfers.is_empty() {
            (self.needed_since, self.rooms_changed) = (None, false);
            return transfers;
        }
        if now - *self.needed_since.get_or_insert(now) < HOLD {
            return Vec::new();
        }
        (self.needed_since, self.rooms_changed) = (None, false);
        transfers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Threads of one class that may go everywhere, so many in each domain.
    fn everywhere(counts: &[usize]) -> (Vec<Vec<bool>>, Vec<DomainThread>) {
        let threads = counts.iter().enumerate().flat_map(|(domain, &n)| {
            std::iter::repeat_n(DomainThread { domain, class: 0, movable: true }, n)
        });
        (vec![vec![true; counts.len()]], threads.collect())
    }

    fn counts_of(domains: usize, threads: &[DomainThread]) -> Vec<usize> {
        (0..domains).map(|d| threads.iter().filter(|t| t.domain == d).count()).collect()
    }

    fn carry_out(threads: &mut [DomainThread], transfers: &[Transfer]) {
        for t in transfers {
            threads[t.thread].domain = t.to;
        }
    }

    /// Counts after evening counts out, where all threads may go everywhere.
    fn evened_out(rooms: &[usize], counts: &[usize]) -> Vec<usize> {
        let (allowed, mut threads) = everywhere(counts);
        let transfers = even_out_domains(rooms, &allowed, &threads);
        carry_out(&mut threads, &transfers);
        counts_of(rooms.len(), &threads)
    }

    #[test]
    fn threads_follow_the_cpus() {
        // A CPU of the second domain was offline, and comes.
        assert_eq!(evened_out(&[4, 3], &[5, 3]), [5, 3]);
        assert_eq!(evened_out(&[4, 4], &[5, 3]), [4, 4]);
        // One goes, and comes back.
        assert_eq!(evened_out(&[3, 4], &[4, 4]), [3, 5]);
        assert_eq!(evened_out(&[4, 4], &[3, 5]), [4, 4]);
        // A cpuset.
        assert_eq!(evened_out(&[3, 1], &[5, 3]), [6, 2]);
        // Nothing is moved for nothing.
        assert_eq!(evened_out(&[4, 4], &[5, 4]), [5, 4]);
        assert_eq!(evened_out(&[4, 2], &[6, 2]), [6, 2]);
    }

    #[test]
    fn a_domain_without_cpus_gives_all_of_its_threads() {
        assert_eq!(evened_out(&[0, 4, 2], &[6, 0, 0]), [0, 4, 2]);
        assert_eq!(evened_out(&[0, 4, 2], &[3, 4, 2]), [0, 6, 3]);
        assert_eq!(evened_out(&[0, 0], &[3, 1]), [3, 1]);
    }

    #[test]
    fn threads_that_may_not_go_make_way_or_stay() {
        // All of one domain may go to the next only, those to the third.
        let allowed = vec![vec![true, true, false], vec![false, true, true]];
        let mut threads: Vec<DomainThread> = [0, 0, 0, 1, 1]
            .iter()
            .map(|&domain| DomainThread { domain, class: domain, movable: true })
            .collect();
        let transfers = even_out_domains(&[1, 1, 1], &allowed, &threads);
        carry_out(&mut threads, &transfers);
        let mut counts = counts_of(3, &threads);
        counts.sort_unstable();
        assert_eq!(counts, [1, 2, 2]);
        assert!(threads.iter().all(|t| allowed[t.class][t.domain]));
        // Those that cannot be moved stay, and count.
        let (allowed, mut threads) = everywhere(&[4, 0]);
        for t in &mut threads[..3] {
            t.movable = false;
        }
        assert_eq!(even_out_domains(&[2, 2], &allowed, &threads), [Transfer { thread: 3, to: 1 }]);
    }

    #[test]
    fn one_more_thread_goes_where_it_finds_most_room() {
        let all = [true, true];
        assert_eq!(roomiest(&[4, 3], &[0, 0], &all, None), Some(0));
        assert_eq!(roomiest(&[4, 4], &[2, 2], &all, Some(1)), Some(1));
        assert_eq!(roomiest(&[4, 4], &[1, 2], &all, Some(1)), Some(0));
        assert_eq!(roomiest(&[4, 4], &[1, 2], &[false, true], Some(0)), Some(1));
        assert_eq!(roomiest(&[4, 0], &[9, 0], &all, Some(1)), Some(0));
        assert_eq!(roomiest(&[4, 0], &[9, 0], &[false, true], None), None);
    }

    #[test]
    fn a_cpu_that_comes_belongs_to_the_domain_of_its_group() {
        let sets = |lists: &[&str]| -> Vec<CpuSet> {
            lists.iter().map(|list| list.parse().unwrap()).collect()
        };
        let domains = sets(&["0-3", "4-6"]);
        let home = |groups: &[&str], cpu| home_of_newcomer(&domains, &sets(groups), CpuId(cpu));
        assert_eq!(home(&["0-3", "4-7"], 7), Some(1));
        assert_eq!(home(&["0-3,7", "4-6"], 7), Some(0));
        // A group of its own, and one that is not listed.
        assert_eq!(home(&["0-3", "4-6", "8"], 8), Some(1));
        assert_eq!(home(&["0-3", "4-6"], 9), Some(1));
        // One that reaches over both: where there is more of it.
        assert_eq!(home(&["0,4-5,8", "1-3,6"], 8), Some(1));
        assert_eq!(home_of_newcomer(&[], &[], CpuId(1)), None);
    }

    #[test]
    fn cpus_that_no_thread_of_their_domain_may_use_are_found() {
        let sets = |lists: &[&str]| -> Vec<CpuSet> {
            lists.iter().map(|list| list.parse().unwrap()).collect()
        };
        let domains = sets(&["0-1", "2-3"]);
        let masks = sets(&["0-3", "0-2", "3", "0-1", "0-7"]);
        let left = |usable: &str, threads: &[(usize, usize)]| {
            let thread = |&(domain, class)| DomainThread { domain, class, movable: true };
            let threads: Vec<DomainThread> = threads.iter().map(thread).collect();
            left_unused(&domains, &usable.parse().unwrap(), &masks, &threads).to_string()
        };
        assert_eq!(left("0-3", &[(0, 0), (1, 0)]), "");
        assert_eq!(left("0-3", &[]), "");
        // A domain without threads, as far as any thread may go there and it can be used.
        assert_eq!(left("0-3", &[(0, 0), (0, 0)]), "2-3");
        assert_eq!(left("0-2", &[(0, 0)]), "2");
        assert_eq!(left("0-3", &[(0, 3)]), "");
        // CPU 2 may be used by a thread of the first domain, and by none of the second.
        assert_eq!(left("0-3", &[(0, 1), (1, 2)]), "2");
        assert_eq!(left("0-1,3", &[(0, 1), (1, 2)]), "");
        assert_eq!(left("0-3", &[(0, 1), (1, 2), (1, 1)]), "");
        // What belongs to no domain is none of theirs.
        assert_eq!(left("0-7", &[(0, 4), (1, 4)]), "");
    }

    #[test]
    fn only_what_stands_for_a_second_moves_threads() {
        let (allowed, threads) = everywhere(&[5, 3]);
        let (even, uneven) = ([4, 3], [4, 4]);
        let mut spread = DomainSpread::default();
        let mut look = |ms: u64, rooms: &[usize; 2]| {
            spread.look(Nanos::from_millis(ms), rooms, &allowed, &threads).len()
        };
        assert_eq!(look(0, &even), 0);
        assert_eq!([look(200, &uneven), look(1_100, &uneven), look(1_150, &even)], [0, 0, 0]);
        assert_eq!([look(1_200, &uneven), look(2_100, &uneven)], [0, 0]);
        assert_eq!(look(2_200, &uneven), 1);
        // What has been said is not said again at once.
        assert_eq!(look(2_300, &uneven), 0);
    }

    #[test]
    fn where_only_cpus_count_threads_that_end_move_no_other() {
        let (allowed, threads) = everywhere(&[5, 2]);
        let mut spread = DomainSpread::new(true);
        let mut look =
            |s: u64, rooms| spread.look(Nanos::from_millis(s * 1000), rooms, &allowed, &threads);
        assert!((0..10).all(|s| look(s, &[4, 4]).is_empty()));
        assert!(look(10, &[3, 4]).is_empty());
        assert_eq!(look(11, &[3, 4]).len(), 2);
        assert!((12..20).all(|s| look(s, &[3, 4]).is_empty()));
    }

    /// A machine: rooms, what the classes may use, and threads.
    fn machines() -> impl Strategy<Value = (Vec<usize>, Vec<Vec<bool>>, Vec<DomainThread>)> {
        (1usize..6, 1usize..4).prop_flat_map(|(domains, classes)| {
            let thread = (0..domains, 0..classes, prop::bool::weighted(0.8))
                .prop_map(|(domain, class, movable)| DomainThread { domain, class, movable });
            (
                prop::collection::vec(0usize..6, domains),
                prop::collection::vec(prop::collection::vec(any::<bool>(), domains), classes),
                prop::collection::vec(thread, 0..40),
            )
        })
    }

    fn greatest(rooms: &[usize], counts: &[usize]) -> Option<Load> {
        rooms.iter().zip(counts).filter(|(_, n)| **n > 0).map(|(&r, &n)| Load::new(n, r)).max()
    }

    proptest! {
        #[test]
        fn no_thread_leaves_its_mask_and_no_move_is_left(
            (rooms, allowed, mut threads) in machines(),
        ) {
            let transfers = even_out_domains(&rooms, &allowed, &threads);
            for t in &transfers {
                let thread = threads[t.thread];
                prop_assert!(thread.movable && thread.domain != t.to);
                prop_assert!(rooms[t.to] > 0 && allowed[thread.class][t.to]);
            }
            carry_out(&mut threads, &transfers);
            let counts = counts_of(rooms.len(), &threads);
            for t in threads.iter().filter(|t| t.movable) {
                for to in (0..rooms.len()).filter(|&d| d != t.domain && rooms[d] > 0) {
                    let less = Load::new(counts[to] + 1, rooms[to])
                        < Load::new(counts[t.domain], rooms[t.domain]);
                    prop_assert!(!(allowed[t.class][to] && less), "{t:?} to {to}: {counts:?}");
                }
            }
            prop_assert_eq!(even_out_domains(&rooms, &allowed, &threads), []);
        }

        #[test]
        fn the_greatest_load_never_rises((rooms, mut allowed, mut threads) in machines()) {
            // Without threads that have to leave.
            for t in &mut threads {
                t.movable &= rooms[t.domain] > 0;
                allowed[t.class][t.domain] = true;
            }
            let before = greatest(&rooms, &counts_of(rooms.len(), &threads));
            let transfers = even_out_domains(&rooms, &allowed, &threads);
            carry_out(&mut threads, &transfers);
            prop_assert!(greatest(&rooms, &counts_of(rooms.len(), &threads)) <= before);
        }

        #[test]
        fn loads_end_within_one_thread(
            (rooms, counts) in prop::collection::vec((1usize..8, 0usize..20), 1..6)
                .prop_map(|v| v.into_iter().unzip::<usize, usize, Vec<_>, Vec<_>>()),
        ) {
            let after = evened_out(&rooms, &counts);
            prop_assert_eq!(after.iter().sum::<usize>(), counts.iter().sum::<usize>());
            for a in 0..rooms.len() {
                for b in 0..rooms.len() {
                    prop_assert!(
                        Load::new(after[a], rooms[a]) <= Load::new(after[b] + 1, rooms[b]),
                        "{after:?} on {rooms:?}"
                    );
                }
            }
        }
    }
}

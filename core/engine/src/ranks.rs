//! What ranks report of themselves, as links between the threads of a snapshot.
//!
//! Invariant: a message is never put down to a thread that may not be the one that is meant.

use crate::{RankActivity, Tally};
use evenly_model::{LinkView, ThreadIndex};
use std::collections::HashMap;

/// What was sent between threads that are here, each with what its rank reports. Where two are the same rank
/// of as many, because two programs run at once, it is not known which of them is meant, and nothing is said
/// to have gone there.
pub(crate) fn links(reports: &[Option<RankActivity>]) -> Vec<LinkView> {
    let mut of_rank: HashMap<(u64, u64), Option<ThreadIndex>> = HashMap::new();
    for (i, t) in reports.iter().enumerate() {
        let Some(t) = t else { continue };
        of_rank.entry((t.ranks, t.rank)).and_modify(|first| *first = None).or_insert(Some(i));
    }
    let thread = |ranks, rank| of_rank.get(&(ranks, rank)).copied().flatten();
    let mut links = Vec::new();
    for t in reports.iter().flatten() {
        let Some(me) = thread(t.ranks, t.rank) else { continue };
        let other = |tally: &Tally| thread(t.ranks, tally.with).filter(|other| *other != me);
        let mut add = |from, to, tally: &Tally| {
            let (messages, bytes) = (tally.messages as f64, tally.bytes as f64);
            links.push(LinkView { from, to, messages, bytes });
        };
        for tally in &t.sent {
            other(tally).into_iter().for_each(|other| add(me, other, tally));
        }
        // What it has fetched came from there.
        for tally in &t.fetched {
            other(tally).into_iter().for_each(|other| add(other, me, tally));
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rank(rank: u64, ranks: u64, sent: &[(u64, u64, u64)]) -> Option<RankActivity> {
        let tally = |&(with, messages, bytes): &(u64, u64, u64)| Tally { with, messages, bytes };
        let sent = sent.iter().map(tally).collect();
        Some(RankActivity { rank, ranks, sent, ..RankActivity::default() })
    }

    fn found(ranks: &[Option<RankActivity>]) -> Vec<(usize, usize, f64, f64)> {
        links(ranks).iter().map(|l| (l.from, l.to, l.messages, l.bytes)).collect()
    }

    #[test]
    fn messages_go_between_the_threads_of_ranks() {
        // Threads in any order, one of none; a message to itself, and one to a rank that is not here.
        let mut ranks =
            [rank(1, 3, &[(0, 5, 50), (1, 9, 9), (2, 4, 4)]), None, rank(0, 3, &[(1, 7, 70)])];
        assert_eq!(found(&ranks), [(0, 2, 5.0, 50.0), (2, 0, 7.0, 70.0)]);
        if let Some(t) = &mut ranks[2] {
            t.sent.clear();
            t.fetched = vec![Tally { with: 1, messages: 2, bytes: 16 }];
        }
        assert_eq!(found(&ranks), [(0, 2, 5.0, 50.0), (0, 2, 2.0, 16.0)]);
        assert_eq!(found(&[]), []);
    }

    #[test]
    fn ranks_of_two_programs_are_distinguished_or_left_out() {
        let pair = |ranks| [rank(0, ranks, &[(1, 3, 3)]), rank(1, ranks, &[])];
        let ranks = [pair(2), pair(4)].concat();
        assert_eq!(found(&ranks), [(0, 1, 3.0, 3.0), (2, 3, 3.0, 3.0)]);
        assert_eq!(found(&[pair(2), pair(2)].concat()), []);
        // Of the second one only a rank is here.
        let ranks = [&pair(2)[..], &[rank(0, 2, &[(1, 8, 8)])]].concat();
        assert_eq!(found(&ranks), []);
    }
}

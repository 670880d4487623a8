//! The way from the balancers to the screen.
//!
//! Invariant: a balancer never waits here. Its side only ever *tries* the lock (which the screen
//! holds for the time of a pointer swap) and keeps what it could not hand over for the next event;
//! what waits is bounded in events and in thread records, and the oldest points are dropped first,
//! because each point makes up for those before it.

use evenly_engine::{Event, Observer};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, TryLockError};

/// Points that may wait for the screen.
const MAX_POINTS: usize = 4_096;
/// Thread records that may wait in points (about 15 MB).
const MAX_RECORDS: usize = 200_000;
/// Other events that may wait; all threads of a large program join at one point.
const MAX_OTHERS: usize = 65_536;

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    points: usize,
    records: usize,
    dropped: u64,
}

fn records(event: &Event) -> Option<usize> {
    if let Event::Point(p) = event { Some(p.threads.len()) } else { None }
}

impl Queue {
    fn push(&mut self, event: Event) {
        if let Some(n) = records(&event) {
            self.points += 1;
            self.records += n;
        }
        self.events.push_back(event);
        if self.points > MAX_POINTS || (self.records > MAX_RECORDS && self.points > 1) {
            self.thin(self.points / 2 + 1, 0);
        }
        if self.events.len() - self.points > MAX_OTHERS {
            self.thin(0, MAX_OTHERS / 2);
        }
    }

    /// Drops that many of the oldest points and of the oldest other events. Always many at once,
    /// so that a push costs the same on average, however slow the screen is.
    fn thin(&mut self, mut points: usize, mut others: usize) {
        let before = self.events.len();
        self.events.retain(|e| {
            let left = if records(e).is_some() { &mut points } else { &mut others };
            let keep = *left == 0;
            *left = left.saturating_sub(1);
            keep
        });
        self.dropped += (before - self.events.len()) as u64;
        self.points = self.events.iter().filter_map(records).count();
        self.records = self.events.iter().filter_map(records).sum();
    }
}

/// An observer that passes events on to the screen. Clones feed the same screen: give one to each
/// domain's balancer and one to the screen.
#[derive(Debug, Default)]
pub struct Feed {
    shared: Arc<Mutex<Queue>>,
    /// What could not be handed over because the screen was taking events at that instant.
    pending: Queue,
}

impl Clone for Feed {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), pending: Queue::default() }
    }
}

impl Feed {
    /// A feed without events.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes all waiting events, in order, and the number of those that were dropped since the
    /// last call.
    #[must_use]
    pub fn take(&self) -> (VecDeque<Event>, u64) {
        let mut q = match self.shared.lock() {
            Ok(q) => q,
            // A queue is whole between any two of its operations, even when a holder panicked.
            Err(poisoned) => poisoned.into_inner(),
        };
        let Queue { events, dropped, .. } = std::mem::take(&mut *q);
        (events, dropped)
    }
}

impl Observer for Feed {
    fn event(&mut self, event: &Event) {
        let mut q = match self.shared.try_lock() {
            Ok(q) => q,
            Err(TryLockError::Poisoned(p)) => p.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.pending.push(event.clone());
                return;
            }
        };
        q.dropped += self.pending.dropped;
        for e in std::mem::take(&mut self.pending).events {
            q.push(e);
        }
        q.push(event.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;
    use evenly_model::Nanos;

    fn note(n: u64) -> Event {
        Event::Note { at: Nanos(n), text: String::new() }
    }

    #[test]
    fn events_arrive_in_order_from_all_clones() {
        let feed = Feed::new();
        let (mut a, mut b) = (feed.clone(), feed.clone());
        a.event(&note(1));
        b.event(&note(2));
        a.event(&note(3));
        let (events, dropped) = feed.take();
        assert_eq!(events, [note(1), note(2), note(3)]);
        assert_eq!(dropped, 0);
        assert!(feed.take().0.is_empty());
    }

    #[test]
    fn the_oldest_points_are_dropped_and_counted() {
        let feed = Feed::new();
        let mut observer = feed.clone();
        let events = synthetic::run(2, 2, 1, 10_000, false);
        for e in &events {
            observer.event(e);
        }
        let (got, dropped) = feed.take();
        assert!((MAX_POINTS / 2..=MAX_POINTS + 3).contains(&got.len()), "{}", got.len());
        assert_eq!(dropped as usize, events.len() - got.len());
        // Events that name domains and threads are kept, and so is the newest point.
        assert!(matches!(got[0], Event::Domain { .. }) && matches!(got[2], Event::Joined { .. }));
        assert_eq!(got.back(), events.last());
    }

    #[test]
    fn large_points_are_bounded_by_their_records() {
        let feed = Feed::new();
        let mut observer = feed.clone();
        for e in synthetic::run(10_000, 2, 1, 100, false) {
            observer.event(&e);
        }
        let (got, _) = feed.take();
        assert!(got.iter().filter_map(records).sum::<usize>() <= MAX_RECORDS);
        // Their names have all come through.
        let joined = got.iter().filter(|e| matches!(e, Event::Joined { .. })).count();
        assert_eq!(joined, 10_000);
    }

    #[test]
    fn notes_are_bounded_too() {
        let feed = Feed::new();
        let mut observer = feed.clone();
        for n in 0..200_000 {
            observer.event(&note(n));
        }
        let (got, dropped) = feed.take();
        assert!(got.len() <= MAX_OTHERS);
        assert_eq!(dropped as usize + got.len(), 200_000);
        assert_eq!(got.back(), Some(&note(199_999)));
    }

    #[test]
    fn a_screen_that_holds_the_lock_does_not_block_the_balancer() {
        let feed = Feed::new();
        let mut observer = feed.clone();
        {
            let _held = feed.shared.lock();
            observer.event(&note(1));
            observer.event(&note(2));
        }
        observer.event(&note(3));
        assert_eq!(feed.take().0, [note(1), note(2), note(3)]);
    }
}

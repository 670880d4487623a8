//! All interleavings of what processes share. `RUSTFLAGS="--cfg loom" cargo test -p evenly-bank --test loom`
#![cfg(loom)]
#![allow(missing_docs, clippy::unwrap_used)]

use evenly_bank::Words;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

/// Would catch: two peers that both see that nobody has sent a request.
#[test]
fn of_two_peers_one_sends_a_request() {
    loom::model(|| {
        let words = Arc::new(Words::default());
        words.deschedule();
        let peer = {
            let words = Arc::clone(&words);
            thread::spawn(move || words.wants_wake())
        };
        let own = words.wants_wake();
        assert_eq!(u32::from(own) + u32::from(peer.join().unwrap()), 1);
    });
}

/// Would catch: a peer that is late and takes the request of the next descheduling from those who come then, or one that sends two.
#[test]
fn whoever_is_late_takes_no_request_away() {
    loom::model(|| {
        let words = Arc::new(Words::default());
        words.deschedule();
        let late = {
            let words = Arc::clone(&words);
            thread::spawn(move || u32::from(words.wants_wake()))
        };
        words.schedule();
        words.deschedule();
        let own = u32::from(words.wants_wake());
        let late = late.join().unwrap();
        // Either this peer sends one now, or the other one has seen that the process is descheduled for the second time.
        assert!((1..=2).contains(&(own + late)), "{own} and {late}");
        assert!(!words.wants_wake());
        words.schedule();
        words.deschedule();
        assert!(words.wants_wake());
    });
}

/// Would catch: a message that comes while the process is descheduled, of which neither side knows.
#[test]
fn no_message_is_lost() {
    // All interleavings of three threads take a minute.
    let mut all = loom::model::Builder::new();
    all.preemption_bound = Some(3);
    all.check(|| {
        let words = Arc::new(Words::default());
        let message = Arc::new(AtomicU32::new(0));
        let peers = [1, 2].map(|bit| {
            let (words, message) = (Arc::clone(&words), Arc::clone(&message));
            thread::spawn(move || {
                message.fetch_or(bit, Relaxed);
                words.wants_wake()
            })
        });
        words.deschedule();
        let seen = message.load(Relaxed);
        let sent: u32 = peers.into_iter().map(|peer| u32::from(peer.join().unwrap())).sum();
        // Whoever was seen need not have sent anything.
        assert!(seen == 3 || sent == 1, "{seen} seen, {sent} sent");
        assert!(sent <= 1);
    });
}

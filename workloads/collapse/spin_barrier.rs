//! A barrier that threads of Rust make themselves and spin at, as pools and renderers do (README.md). The checksum is right
//! only if no thread has passed it early. With the word `yield` they ask the kernel for somebody else meanwhile.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

struct Barrier {
    threads: usize,
    missing: AtomicUsize,
    generation: AtomicUsize,
    yields: bool,
}

impl Barrier {
    fn wait(&self) {
        let generation = self.generation.load(Ordering::Relaxed);
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.missing.store(self.threads, Ordering::Relaxed);
            self.generation.store(generation + 1, Ordering::Release);
        } else if self.yields {
            while self.generation.load(Ordering::Acquire) == generation {
                std::thread::yield_now();
            }
        } else {
            while self.generation.load(Ordering::Acquire) == generation {
                spin_loop();
            }
        }
    }
}

fn compute(mut x: u64, iterations: u64) -> u64 {
    for _ in 0..iterations {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

fn run(own: usize, slots: &[[AtomicU64; 2]], barrier: &Barrier, phases: usize, iterations: u64) {
    for phase in 0..phases {
        let right = &slots[(own + 1) % slots.len()][(phase + 1) % 2];
        let value = compute(right.load(Ordering::Relaxed) ^ (own as u64 + 1), iterations);
        slots[own][phase % 2].store(value, Ordering::Relaxed);
        barrier.wait();
    }
}

fn main() {
    let given: Vec<u64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let [threads, phases, iterations] = given[..] else {
        eprintln!("spin_barrier: THREADS, PHASES and ITERATIONS are needed");
        std::process::exit(2);
    };
    let threads = threads.max(1) as usize;
    let yields = std::env::args().any(|a| a == "yield");
    let barrier = Barrier { threads, missing: threads.into(), generation: 0.into(), yields };
    let slots: Vec<[AtomicU64; 2]> = (0..threads).map(|_| Default::default()).collect();
    let shared = Arc::new((barrier, slots));
    let began = Instant::now();
    let all: Vec<_> = (0..threads)
        .map(|own| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || run(own, &shared.1, &shared.0, phases as usize, iterations))
        })
        .collect();
    for thread in all {
        thread.join().unwrap();
    }
    let sum = shared.1.iter().flatten().fold(0, |s, v| v.load(Ordering::Relaxed).wrapping_add(s));
    println!(
        "{{\"program\":\"spin_barrier\",\"threads\":{threads},\"makespan_s\":{:.6},\"checksum\":\"{sum:016x}\"}}",
        began.elapsed().as_secs_f64()
    );
}

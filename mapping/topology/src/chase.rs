//! The arithmetic of measuring memory: how large a buffer is, and the order in which it is read.
//!
//! Latency is measured by dependent loads, each of which says where the next goes, along one random
//! cycle. Of a buffer only the first half is walked, one line of every two (the other is the one that
//! prefetchers bring along); the second half is read before, so that the walked lines are in no cache,
//! and no walk comes back to a line that it has been at.
//!
//! Invariant: pure; equal seeds give equal orders.

use evenly_model::stats::Random;

/// 64-bit words of a block: two cache lines of 64 bytes.
pub(crate) const BLOCK: usize = 16;

/// Buffers are whole huge pages.
pub(crate) const HUGE_PAGE: u64 = 2 << 20;
/// Smallest buffer, in bytes.
const LEAST: u64 = 64 << 20;
/// Largest buffer, in bytes.
const MOST: u64 = 4 << 30;

/// How large a buffer is, in bytes: four times the last cache, within 64 MiB and 4 GiB, and at most a
/// quarter of the free memory. The error is how much free memory would be needed, in bytes: for twice
/// the last cache.
pub(crate) fn buffer(last_cache: u64, free: u64) -> Result<u64, u64> {
    let wanted = last_cache.saturating_mul(4).clamp(LEAST, MOST);
    let least = last_cache.saturating_mul(2).clamp(LEAST, MOST);
    let size = wanted.min(free / 4) / HUGE_PAGE * HUGE_PAGE;
    if size < least { Err(least.next_multiple_of(HUGE_PAGE).saturating_mul(4)) } else { Ok(size) }
}

/// A random single cycle over 0..n: from i it goes on to the value at i (Sattolo, 1986).
pub(crate) fn cycle(n: u32, seed: u64) -> Vec<u32> {
    let mut random = Random::new(seed);
    let mut next: Vec<u32> = (0..n).collect();
    for i in (1..next.len()).rev() {
        next.swap(i, random.below(i));
    }
    next
}

/// Blocks that are walked of a buffer of so many words: those of its first half.
pub(crate) fn blocks(words: usize) -> u32 {
    u32::try_from(words / 2 / BLOCK).unwrap_or(u32::MAX)
}

/// Writes the walk into the first half of a buffer, and something into every word of the second.
pub(crate) fn lay(words: &mut [u64], seed: u64) {
    let count = blocks(words.len());
    let (walked, rest) = words.split_at_mut(words.len() / 2);
    for (block, next) in walked.chunks_exact_mut(BLOCK).zip(cycle(count, seed)) {
        block[0] = u64::from(next) * BLOCK as u64;
    }
    rest.fill(1);
}

/// Follows the walk from a word for so many steps; where it ends.
#[inline(never)]
pub(crate) fn walk(words: &[u64], mut at: u64, steps: u64) -> u64 {
    for _ in 0..steps {
        at = words[at as usize];
    }
    at
}

/// The sum of all words: reads them one after the other.
#[inline(never)]
pub(crate) fn sum(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, w| sum.wrapping_add(*w))
}

/// Steps of one repetition: as many as take `wanted_ns` where a step takes `step_ns`, but all
/// repetitions together walk no line twice.
pub(crate) fn steps(blocks: u32, repetitions: usize, wanted_ns: f64, step_ns: f64) -> u64 {
    let most = u64::from(blocks) / (repetitions as u64 + 1);
    let wanted = wanted_ns / step_ns.max(0.1);
    (wanted as u64).clamp(1_000, most.max(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn buffers_are_past_the_last_cache_and_leave_memory() {
        let gib = 1024 * MIB;
        assert_eq!(buffer(8 * MIB, 100 * gib), Ok(64 * MIB));
        assert_eq!(buffer(32 * MIB, 100 * gib), Ok(128 * MIB));
        assert_eq!(buffer(32 * MIB, 400 * MIB), Ok(100 * MIB));
        assert_eq!(buffer(32 * MIB, 255 * MIB), Err(256 * MIB));
        assert_eq!(buffer(260 * MIB, 20 * gib), Ok(1040 * MIB));
        assert_eq!(buffer(260 * MIB, gib), Err(2080 * MIB));
        assert_eq!(buffer(0, u64::MAX), Ok(64 * MIB));
        assert_eq!(buffer(u64::MAX, u64::MAX), Ok(4 * gib));
    }

    #[test]
    fn steps_never_come_back() {
        assert_eq!(steps(4_000_000, 11, 4e7, 100.0), 333_333);
        assert_eq!(steps(40_000_000, 11, 4e7, 100.0), 400_000);
        assert_eq!(steps(40_000_000, 11, 4e7, f64::NAN), 3_333_333);
        assert_eq!(steps(10, 11, 4e7, 100.0), 1_000);
    }

    proptest! {
        #[test]
        fn a_walk_visits_each_block_once(blocks in 1u32..400, seed in any::<u64>()) {
            let mut words = vec![0; blocks as usize * BLOCK * 2];
            lay(&mut words, seed);
            let (mut seen, mut at) = (std::collections::BTreeSet::new(), 0);
            for _ in 0..blocks {
                prop_assert_eq!(at as usize % BLOCK, 0);
                prop_assert!((at as usize) < words.len() / 2 && seen.insert(at));
                at = walk(&words, at, 1);
            }
            prop_assert_eq!(at, 0);
            prop_assert_eq!(walk(&words, 0, u64::from(blocks)), 0);
            prop_assert_eq!(sum(&words[words.len() / 2..]), words.len() as u64 / 2);
        }

        #[test]
        fn every_buffer_is_within_its_limits(cache in any::<u64>(), free in any::<u64>()) {
            match buffer(cache, free) {
                Ok(size) => prop_assert!((LEAST..=MOST).contains(&size) && size <= free / 4),
                Err(needed) => prop_assert!(free < needed),
            }
        }
    }
}

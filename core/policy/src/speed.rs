//! What policies make of one interval's readings: how fast a CPU is, and whether a thread rests.
//!
//! Invariant: exact readings are taken as they are; the coarser they are, the more of them a speed is the
//! mean of.

/// The most intervals over which a speed is averaged.
const MOST_SAMPLES: f64 = 64.0;
/// A thread rests that wanted less than this part of a CPU.
pub const RESTS: f64 = 0.05;

/// The speed of a CPU, and over how many intervals it is averaged then. `before` is what was known
/// last, with the threads that the CPU has now (with others, over 0 intervals); `now` is the
/// speed in the interval that ended, and `noise` by what part of what a thread gets in one readings can
/// be wrong: the more, the more intervals are averaged.
#[must_use]
pub fn averaged(before: (f64, u32), now: f64, noise: f64) -> (f64, u32) {
    let most = (4.0 * noise).ceil().clamp(1.0, MOST_SAMPLES) as u32;
    let (speed, samples) = before;
    let samples = (samples + 1).min(most);
    if samples == 1 { (now, 1) } else { (speed + (now - speed) / f64::from(samples), samples) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_published_speed_is_the_mean_of_as_many_intervals_as_noise_needs() {
        let after = |noise| {
            let mut p = (0.0, 0);
            for now in [0.2, 0.4, 0.9, 0.5] {
                p = averaged(p, now, noise);
            }
            p
        };
        // Exact readings: that of the last interval alone.
        assert_eq!(after(0.0), (0.5, 1));
        let (speed, samples) = after(1.0);
        assert!((speed - 0.5).abs() < 1e-9 && samples == 4, "{speed} {samples}");
        // Of two each new one has half of the weight.
        let (speed, samples) = after(0.5);
        assert!((speed - 0.55).abs() < 1e-9 && samples == 2, "{speed} {samples}");
        assert_eq!(averaged((0.3, 64), 0.3, 1e9).1, 64);
    }
}

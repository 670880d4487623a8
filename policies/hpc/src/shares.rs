//! Shares of a CPU in proportion to what an iteration needs: what priorities are a rough form of, where
//! the need is known.
//!
//! Ranks that share a CPU end an iteration at the same time if their shares are as their needs. Then
//! none waits, and it does not matter whether waiting is spinning.
//!
//! Invariants: weights are positive and finite whatever the needs are; their mean is 1, so that the
//! program as a whole has of a CPU what it had beside others; the greatest is at most `most` times the
//! least.

/// Weights relative to the normal one (1.0), one for each need: the CPU time that an iteration takes,
/// spinning left out, in any unit. A need that is not known (zero, negative or not a number) counts as
/// the mean of the others. `most` is the greatest ratio of two weights; what is below 1 counts as 1.
#[must_use]
pub fn shares(needs: &[f64], most: f64) -> Vec<f64> {
    let is_known = |need: &f64| need.is_finite() && *need > 0.0;
    let known = || needs.iter().copied().filter(is_known);
    let greatest = known().fold(0.0, f64::max);
    if greatest <= 0.0 {
        return vec![1.0; needs.len()];
    }
    let most = if most.is_finite() { most.max(1.0) } else { f64::MAX.sqrt() };
    // In parts of the greatest: a sum of great numbers could be none.
    let parts = || known().map(|need| need / greatest);
    let mean = parts().sum::<f64>() / parts().count() as f64;
    let of = |need: &f64| {
        let part = if is_known(need) { need / greatest } else { mean };
        part.max(1.0 / most)
    };
    let weights: Vec<f64> = needs.iter().map(of).collect();
    let mean = weights.iter().sum::<f64>() / weights.len() as f64;
    weights.into_iter().map(|w| w / mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn weights_are_as_needs() {
        assert_eq!(shares(&[1.0, 3.0], 7.0), [0.5, 1.5]);
        assert_eq!(shares(&[2.0, 2.0, 2.0], 7.0), [1.0; 3]);
        // 10:1 is more than is allowed.
        assert_eq!(shares(&[1.0, 10.0], 4.0), [0.4, 1.6]);
        assert_eq!(shares(&[f64::NAN, 1.0, 3.0, 0.0], 7.0), [1.0, 0.5, 1.5, 1.0]);
        assert_eq!(shares(&[0.0, f64::INFINITY, -1.0], 7.0), [1.0; 3]);
        assert!(shares(&[], 7.0).is_empty());
    }

    /// With these weights, two that share a CPU end at the same time.
    #[test]
    fn no_rank_waits() {
        for load in [1.0, 1.2, 2.0, 3.0, 4.0, 6.5] {
            let w = shares(&[1.0, load], 7.0);
            let [light, heavy] = [1.0 + w[1] / w[0], load * (1.0 + w[0] / w[1])];
            assert!((light - heavy).abs() < 1e-9 && (light - 1.0 - load).abs() < 1e-9);
        }
    }

    proptest! {
        #[test]
        fn weights_are_usable(
            needs in vec(prop_oneof![any::<f64>(), 0.0..1e9], 1..20),
            most in prop_oneof![any::<f64>(), 1.0..100.0],
        ) {
            let weights = shares(&needs, most);
            prop_assert_eq!(weights.len(), needs.len());
            prop_assert!(weights.iter().all(|w| *w > 0.0 && w.is_finite()), "{weights:?}");
            let mean = weights.iter().sum::<f64>() / weights.len() as f64;
            prop_assert!((mean - 1.0).abs() < 1e-9);
            if (1.0..1e6).contains(&most) {
                let least = weights.iter().copied().fold(f64::MAX, f64::min);
                let greatest = weights.iter().copied().fold(0.0, f64::max);
                prop_assert!(greatest / least <= most * (1.0 + 1e-9), "{weights:?}");
            }
        }
    }
}

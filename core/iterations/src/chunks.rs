//! Self-scheduling: whoever has nothing to do takes the next chunk of what is left. For comparison with what the paper does:
//! guided (Polychronopoulos, Kuck 1987), factoring (Hummel, Schonberg, Flynn 1992), and adaptive weighted factoring with weights
//! for each batch (AWF-B; Banicescu, Velusamy, Devaprasad 2003).

use crate::Processor;

/// How fast a processor gets on, over the mean of all, where each has done so many iterations in so many ns. Until each has done
/// something all are equal.
#[must_use]
pub fn weight(done: impl Iterator<Item = (u64, u64)> + Clone, processor: Processor) -> f64 {
    let rates = || done.clone().map(|(iterations, ns)| iterations as f64 / ns as f64);
    let (sum, count) = rates().fold((0.0, 0), |(sum, count), rate| (sum + rate, count + 1));
    let mean = sum / f64::from(count);
    if mean.is_finite() && mean > 0.0 {
        rates().nth(processor).map_or(1.0, |rate| rate / mean)
    } else {
        1.0
    }
}

/// How large the next chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// What is left, divided by the number of processors.
    Guided,
    /// Batches of equal chunks, one for each processor; each batch is half of what is left.
    Factoring,
    /// The same, in proportion to how fast the processor got on until this batch.
    Weighted,
}

/// What is taken from, counted in units of which each is a number of iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// How large they are.
    pub sizes: Sizes,
    /// All that there is.
    pub units: u32,
    /// Those who take.
    pub processors: usize,
}

impl Chunks {
    /// How many units whoever comes next takes, where so many are taken; 0 where none are left. `weight` is how fast it is, over
    /// the mean of all.
    #[must_use]
    pub fn size(&self, taken: u32, weight: f64) -> u32 {
        let (left, processors) = (self.units.saturating_sub(taken), self.processors());
        let size = match self.sizes {
            Sizes::Guided => left.div_ceil(processors),
            Sizes::Factoring => self.batch(taken).1,
            Sizes::Weighted => {
                let weight = if weight.is_finite() { weight.max(0.0) } else { 1.0 };
                (f64::from(self.batch(taken).1) * weight).round() as u32
            }
        };
        size.max(1).min(left)
    }

    /// The batch in which the next chunk is, by its number, and the size of an equal chunk of it.
    #[must_use]
    pub fn batch(&self, taken: u32) -> (u32, u32) {
        let processors = self.processors();
        let (mut begin, mut number) = (0_u32, 0);
        loop {
            let size =
                (self.units.saturating_sub(begin)).div_ceil(processors.saturating_mul(2)).max(1);
            let end = begin.saturating_add(size.saturating_mul(processors));
            if taken < end || end >= self.units {
                return (number, size);
            }
            (begin, number) = (end, number + 1);
        }
    }

    fn processors(&self) -> u32 {
        u32::try_from(self.processors).unwrap_or(u32::MAX).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(chunks: Chunks, weight: f64) -> Vec<u32> {
        let mut taken = 0;
        std::iter::from_fn(|| {
            let size = chunks.size(taken, weight);
            taken += size;
            (size > 0).then_some(size)
        })
        .collect()
    }

    #[test]
    fn chunks_are_as_the_papers_say() {
        let chunks = |sizes| Chunks { sizes, units: 100, processors: 4 };
        let guided = all(chunks(Sizes::Guided), 1.0);
        assert_eq!(guided[..8], [25, 19, 14, 11, 8, 6, 5, 3]);
        let factoring = all(chunks(Sizes::Factoring), 1.0);
        assert_eq!(factoring[..12], [13, 13, 13, 13, 6, 6, 6, 6, 3, 3, 3, 3]);
        assert_eq!(all(chunks(Sizes::Weighted), 1.0), factoring);
        assert_eq!(all(chunks(Sizes::Weighted), 0.5)[0], 7);
        assert_eq!(chunks(Sizes::Weighted).size(0, f64::NAN), 13);
        assert_eq!(chunks(Sizes::Weighted).size(0, 1e300), 100);
        assert_eq!(
            (chunks(Sizes::Weighted).batch(51), chunks(Sizes::Weighted).batch(52)),
            ((0, 13), (1, 6))
        );
    }

    proptest! {
        #[test]
        fn all_is_taken_once(
            units in 0..5_000_u32, processors in 0..40_usize, weight in 0.0..3.0_f64,
            sizes in prop::sample::select(vec![Sizes::Guided, Sizes::Factoring, Sizes::Weighted]),
        ) {
            let chunks = Chunks { sizes, units, processors };
            prop_assert_eq!(all(chunks, weight).into_iter().sum::<u32>(), units);
            prop_assert_eq!(chunks.size(units, weight), 0);
            prop_assert_eq!(chunks.size(u32::MAX, weight), 0);
        }
    }
}

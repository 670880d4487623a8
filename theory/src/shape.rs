//! n threads on m CPUs, and what follows from these two numbers alone (paper, section 3).
//!
//! Invariant: there is at least one of each.

/// n threads on m CPUs, as even as counts permit: CPUs hold floor(n/m) or ceil(n/m) threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    n: u32,
    m: u32,
}

/// Why there is no such shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// There is no thread.
    #[error("there are 0 threads, and at least 1 is needed")]
    NoThreads,
    /// There is no CPU.
    #[error("there are 0 CPUs, and at least 1 is needed")]
    NoCpus,
}

/// Why an equation says nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfRange {
    /// The analysis is of n > m where m does not divide n.
    #[error("all slots are equal: no thread is slower than another")]
    EqualSlots,
    /// lambda >= e ceil(n/m): a phase ends before it was ever balanced.
    #[error("the period is not shorter than a phase under static distribution, e ceil(n/m)")]
    LongPeriod,
    /// lambda < e ceil(n/m): a phase is balanced more than once.
    #[error("the period is shorter than a phase under static distribution, e ceil(n/m)")]
    ShortPeriod,
    /// The reactive analysis is of 1 < n/m < 2 only.
    #[error("n/m is not between 1 and 2, and the paper analyses reactive balancing there only")]
    NotBetweenOneAndTwo,
}

impl Shape {
    /// n threads on m CPUs.
    ///
    /// # Errors
    /// [`ShapeError`] where one of them is 0.
    pub fn new(n: u32, m: u32) -> Result<Self, ShapeError> {
        match (n, m) {
            (0, _) => Err(ShapeError::NoThreads),
            (_, 0) => Err(ShapeError::NoCpus),
            _ => Ok(Self { n, m }),
        }
    }

    /// n: the number of threads.
    #[must_use]
    pub fn n(self) -> u32 {
        self.n
    }

    /// m: the number of CPUs.
    #[must_use]
    pub fn m(self) -> u32 {
        self.m
    }

    /// floor(n/m): threads on a fast CPU.
    #[must_use]
    pub fn floor(self) -> u32 {
        self.n / self.m
    }

    /// ceil(n/m): threads on a slow CPU.
    #[must_use]
    pub fn ceil(self) -> u32 {
        self.n.div_ceil(self.m)
    }

    /// |P_slow| = n mod m: CPUs with ceil(n/m) threads, where that differs from the floor.
    #[must_use]
    pub fn slow_cpus(self) -> u32 {
        self.n % self.m
    }

    /// n_slow = (n mod m) ceil(n/m).
    #[must_use]
    pub fn slow_slots(self) -> u32 {
        // At most n: each of the others holds at least none.
        self.slow_cpus() * self.ceil()
    }

    /// n_fast = n - n_slow = (m - (n mod m)) floor(n/m).
    #[must_use]
    pub fn fast_slots(self) -> u32 {
        self.n - self.slow_slots()
    }

    /// n > m and m does not divide n: some threads are faster than others, and balancing can gain
    /// something.
    #[must_use]
    pub fn uneven(self) -> bool {
        self.n > self.m && self.slow_cpus() > 0
    }

    /// Whether 1 < n/m < 2.
    #[must_use]
    pub fn between_one_and_two(self) -> bool {
        self.n > self.m && self.floor() == 1
    }

    pub(super) fn check_uneven(self) -> Result<(), OutOfRange> {
        if self.uneven() { Ok(()) } else { Err(OutOfRange::EqualSlots) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_figure_4() {
        let s = Shape::new(9, 4).unwrap();
        assert_eq!((s.slow_cpus(), s.slow_slots(), s.fast_slots()), (1, 3, 6));
        assert!(s.uneven() && !s.between_one_and_two());
    }

    #[test]
    fn even_shapes_have_no_slow_slots() {
        for (n, m) in [(8, 8), (16, 8), (8, 1)] {
            let s = Shape::new(n, m).unwrap();
            assert_eq!((s.slow_slots(), s.fast_slots()), (0, n));
            assert!(!s.uneven());
        }
        assert!(!Shape::new(2, 4).unwrap().uneven());
        assert_eq!(Shape::new(0, 1), Err(ShapeError::NoThreads));
        assert_eq!(Shape::new(1, 0), Err(ShapeError::NoCpus));
        let largest = Shape::new(u32::MAX, u32::MAX - 1).unwrap();
        assert_eq!((largest.slow_slots(), largest.fast_slots()), (2, u32::MAX - 2));
    }
}

//! The bounds of the Juggle paper (section 3) that the tool needs to judge itself.
//!
//! n threads on m CPUs, each with a computation phase of e seconds of CPU time.

/// Makespan under static distribution, Eq. 1: e * ceil(n/m). `m` must be at least 1.
#[must_use]
pub fn static_makespan(n: u32, m: u32, e: f64) -> f64 {
    e * f64::from(n.div_ceil(m.max(1)))
}

/// Lower bound of the makespan under perfect continuous balancing, Eq. 14: e * n/m; never less
/// than e, which one thread alone needs.
#[must_use]
pub fn ideal_makespan(n: u32, m: u32, e: f64) -> f64 {
    e * (f64::from(n) / f64::from(m.max(1))).max(1.0)
}

/// Upper bound of the relative speedup of balancing over static distribution:
/// UB = ceil(n/m) / (n/m), 1 where n <= m.
#[must_use]
pub fn upper_bound(n: u32, m: u32) -> f64 {
    if n == 0 {
        return 1.0;
    }
    static_makespan(n, m, 1.0) / ideal_makespan(n, m, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_known_cases() {
        assert_eq!(static_makespan(3, 2, 3.0), 6.0);
        assert_eq!(ideal_makespan(3, 2, 3.0), 4.5);
        assert!((upper_bound(8, 7) - 1.75).abs() < 1e-12);
        assert!((upper_bound(16, 12) - 1.5).abs() < 1e-12);
        assert_eq!(upper_bound(16, 8), 1.0);
        assert_eq!(upper_bound(2, 4), 1.0);
        assert_eq!(upper_bound(0, 4), 1.0);
    }
}

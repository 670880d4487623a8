//! Whether a helper makes progress: one that runs and does not go to sleep spins.
//!
//! A helper that has to wait for a CPU, or is stopped, does not run, so it is judged by its CPU time.

use evenly_model::Nanos;

/// No helper runs for so long between two sleeps.
const SPINS: Nanos = Nanos::from_millis(20);
/// One that has run for so long will not sleep again.
const STUCK: Nanos = Nanos::from_millis(1_000);

/// What is seen of a helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pulse {
    /// It sleeps again and again.
    Beats,
    /// It has run for too long.
    Spins,
    /// It will not sleep again.
    Stuck,
}

/// When a helper was last seen to have slept meanwhile.
#[derive(Debug, Default)]
pub struct PulseWatch {
    sleeps: u64,
    cpu: Nanos,
}

impl PulseWatch {
    /// A look at a helper that has taken so much CPU time by now. How often it has gone to sleep is only asked where that
    /// matters: the answer is dear.
    pub fn look(&mut self, cpu: Nanos, sleeps: impl FnOnce() -> u64) -> Pulse {
        if cpu - self.cpu <= SPINS {
            return Pulse::Beats;
        }
        let sleeps = sleeps();
        if sleeps != self.sleeps {
            *self = Self { sleeps, cpu };
        }
        match cpu - self.cpu {
            Nanos::ZERO => Pulse::Beats,
            ran if ran > STUCK => Pulse::Stuck,
            _ => Pulse::Spins,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pulse(watch: &mut PulseWatch, sleeps: u64, cpu_ms: u64) -> Pulse {
        watch.look(Nanos::from_millis(cpu_ms), || sleeps)
    }

    /// Would catch: a helper that is taken for stuck because it sleeps for long, waits for a CPU, or has run for
    /// long in all.
    #[test]
    fn who_sleeps_or_waits_is_well() {
        let watch = &mut PulseWatch::default();
        for cpu in 0..1000 {
            assert_eq!(pulse(watch, cpu, 30 * cpu), Pulse::Beats);
        }
        for _ in 0..1000 {
            assert_eq!(pulse(watch, 1000, 30_000), Pulse::Beats);
        }
    }

    #[test]
    fn who_runs_and_does_not_sleep_spins_and_is_stuck_in_the_end() {
        let watch = &mut PulseWatch::default();
        let found = [(1, 100), (1, 120), (1, 121), (1, 1100), (1, 1101), (2, 2000), (2, 2030)]
            .map(|(sleeps, cpu_ms)| pulse(watch, sleeps, cpu_ms));
        use Pulse::*;
        assert_eq!(found, [Beats, Beats, Spins, Spins, Stuck, Beats, Spins]);
    }
}

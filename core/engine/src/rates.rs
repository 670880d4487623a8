//! How many instructions a nanosecond of each CPU is worth, where they are counted.
//!
//! CPU time is the same progress everywhere only where CPUs are equally fast. Where they are not,
//! the instructions that threads retire show how far they are (Juggle, section 6). Policies count in
//! nanoseconds: so instructions are turned into the time that they would have taken on the fastest
//! CPUs, and a CPU's capacity is how many it retires in a nanosecond, compared with those.
//!
//! Invariant: CPUs whose rates differ by less than what programs themselves vary by count as equal.
//! Else noise would make some of them faster than others, and policies would move threads for it.

use evenly_model::{CpuId, FULL_CAPACITY, Nanos};

/// What is counted on a CPU fades by this factor a point, so that the last ten or so count.
const FADES: f64 = 0.9;
/// CPUs within this part of the fastest of their kind are of one kind.
const SAME: f64 = 0.1;
/// A CPU of which less than this was seen is not judged.
const LEAST_SEEN_NS: f64 = 5e6;

#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    instructions: f64,
    ran_ns: f64,
    /// Of [`FULL_CAPACITY`]; 0 where it is not known.
    capacity: u32,
}

impl Rate {
    fn value(&self) -> Option<f64> {
        (self.ran_ns >= LEAST_SEEN_NS && self.instructions > 0.0)
            .then(|| self.instructions / self.ran_ns)
    }
}

/// The rates of all CPUs, by their number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rates {
    by_cpu: Vec<Rate>,
    order: Vec<usize>,
    /// Instructions in a nanosecond on the fastest CPUs; 0 while it is not known.
    fastest: f64,
}

impl Rates {
    /// What a thread did on this CPU in the last period.
    pub(crate) fn add(&mut self, cpu: CpuId, instructions: u64, ran: Nanos) {
        let number = cpu.0 as usize;
        if number >= self.by_cpu.len() {
            self.by_cpu.resize(number + 1, Rate::default());
        }
        let rate = &mut self.by_cpu[number];
        rate.instructions += instructions as f64;
        rate.ran_ns += ran.0 as f64;
    }

    /// All threads have been added: finds the kinds of CPUs.
    pub(crate) fn settle(&mut self) {
        let by_cpu = &mut self.by_cpu;
        self.order.clear();
        self.order.extend((0..by_cpu.len()).filter(|&c| by_cpu[c].value().is_some()));
        let value = |c: usize| by_cpu[c].value().unwrap_or_default();
        self.order.sort_unstable_by(|&a, &b| value(b).total_cmp(&value(a)).then(a.cmp(&b)));
        let mut fastest = 0.0;
        let mut begin = 0;
        while let Some(&first) = self.order.get(begin) {
            let least = by_cpu[first].value().unwrap_or_default() * (1.0 - SAME);
            let rest = self.order[begin..].iter();
            let kind = rest.take_while(|&&c| by_cpu[c].value() >= Some(least)).count().max(1);
            let of_kind = &self.order[begin..begin + kind];
            let sum = |f: fn(&Rate) -> f64| of_kind.iter().map(|&c| f(&by_cpu[c])).sum::<f64>();
            let mean = sum(|r| r.instructions) / sum(|r| r.ran_ns);
            if begin == 0 {
                fastest = mean;
            }
            let capacity = (mean / fastest * f64::from(FULL_CAPACITY)).round().max(1.0) as u32;
            for i in begin..begin + kind {
                by_cpu[self.order[i]].capacity = capacity;
            }
            begin += kind;
        }
        if fastest > 0.0 {
            self.fastest = fastest;
        }
        for rate in by_cpu {
            rate.instructions *= FADES;
            rate.ran_ns *= FADES;
        }
    }

    /// The time that these instructions take on the fastest CPUs.
    pub(crate) fn time(&self, instructions: u64) -> Option<Nanos> {
        (self.fastest > 0.0).then(|| Nanos((instructions as f64 / self.fastest) as u64))
    }

    /// The capacity of a CPU; None where nothing was counted there.
    pub(crate) fn capacity(&self, cpu: CpuId) -> Option<u32> {
        self.by_cpu.get(cpu.0 as usize).map(|r| r.capacity).filter(|&c| c > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = Nanos::from_millis(20);

    fn rates(points: usize, of: impl Fn(usize, u32) -> f64, cpus: u32) -> Rates {
        let mut rates = Rates::default();
        for point in 0..points {
            for c in 0..cpus {
                rates.add(CpuId(c), (MS.0 as f64 * of(point, c)) as u64, MS);
            }
            rates.settle();
        }
        rates
    }

    #[test]
    fn kinds_of_cpus_are_distinguished_and_noise_is_no_kind() {
        let noise =
            |point: usize, c: u32| 1.0 + 0.03 * ((point as u32 * 7 + c * 5) % 11) as f64 / 10.0;
        let r = rates(30, |p, c| (if c < 4 { 3.0 } else { 1.5 }) * noise(p, c), 8);
        let all: Vec<u32> = (0..8).map(|c| r.capacity(CpuId(c)).unwrap()).collect();
        assert_eq!(all[..4], [FULL_CAPACITY; 4]);
        assert!(all[4..].iter().all(|&c| c == all[4] && (490..535).contains(&c)), "{all:?}");
        // What takes a nanosecond on a fast CPU.
        let time = r.time(3_000_000).unwrap().0;
        assert!((960_000..=1_000_000).contains(&time), "{time}");
    }

    #[test]
    fn a_program_that_changes_its_pace_changes_no_capacity() {
        let r = rates(
            40,
            |p, c| (if p < 20 { 3.0 } else { 0.7 }) * (if c == 0 { 1.0 } else { 0.6 }),
            2,
        );
        let all: Vec<u32> = (0..2).map(|c| r.capacity(CpuId(c)).unwrap()).collect();
        assert!(all[0] == FULL_CAPACITY && (605..625).contains(&all[1]), "{all:?}");
        let time = r.time(700_000).unwrap().0;
        assert!((700_000..1_010_000).contains(&time), "{time}");
    }

    #[test]
    fn nothing_is_known_before_anything_was_counted() {
        let mut r = Rates::default();
        r.settle();
        assert_eq!((r.time(5), r.capacity(CpuId(0))), (None, None));
        r.add(CpuId(1), 10, Nanos(10));
        r.settle();
        assert_eq!((r.time(5), r.capacity(CpuId(1))), (None, None));
    }
}

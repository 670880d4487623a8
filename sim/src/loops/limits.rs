//! How much a run may be asked for: what is refused would take too long, too much memory, or numbers that are too large.
//!
//! Invariant: what [`LoopProgram::check`] accepts runs without a panic, and ends.

use super::cluster::Cluster;
use super::pages::MOST_NODES;
use super::program::{LoopError, LoopProgram, ParallelLoop};
use evenly_iterations::{Section, smallest_task};

const MOST_INSTANCES: u64 = 1_000_000;
const MOST_PROCESSORS: u64 = 1_024;
/// Pages are remembered one by one, with 24 bytes each.
const MOST_PAGES: u64 = 4_000_000;
/// So are the locks of elements.
const MOST_LOCKS: u64 = 4_000_000;
const MOST_ITERATIONS: u64 = 100_000_000;
/// Everything that a loop uses is nearer to the begin of its array than this, so that no sum of bytes overflows.
const MOST_BYTES: i128 = 1 << 60;
/// Minutes, for all ways of dividing on two CPUs ([`LoopProgram::operations`]).
const MOST_OPERATIONS: f64 = 3e9;
/// Time on the cluster, in ns: 115 days. The sum over all processors is a number of 64 bits, too.
const MOST_TIME: f64 = 1e16;
/// Chunks of a common queue for each processor: batches are halved until there is an iteration for each.
const MOST_CHUNKS: f64 = 32.0;

fn wrong<T>(
    object: impl Into<String>,
    found: impl Into<String>,
    needed: impl Into<String>,
) -> Result<T, LoopError> {
    Err(LoopError { object: object.into(), found: found.into(), needed: needed.into() })
}

fn within(object: impl Into<String>, found: u64, most: u64) -> Result<(), LoopError> {
    if (1..=most).contains(&found) {
        return Ok(());
    }
    wrong(object, format!("there are {found}"), format!("from 1 to {most}"))
}

/// What a run takes at most: operations of the simulator, and time of all processors together.
#[derive(Debug, Clone, Copy)]
struct Effort {
    operations: f64,
    ns: f64,
}

impl LoopProgram {
    /// Whether it can be run there, within the limits of a run.
    ///
    /// # Errors
    /// [`LoopError`].
    pub fn check(&self, cluster: &Cluster) -> Result<(), LoopError> {
        machine(cluster)?;
        let page = cluster.memory.unit_bytes.max(1);
        let pages =
            self.arrays.iter().map(|bytes| bytes.div_ceil(page)).fold(0, u64::saturating_add);
        within("pages of all arrays", pages.max(1), MOST_PAGES)?;
        within("instances", self.steps.saturating_mul(self.loops.len() as u64), MOST_INSTANCES)?;
        for of in &self.loops {
            sizes(of, self.steps)?;
        }
        let Effort { operations, ns } = self.effort(cluster);
        // Numbers that are none are refused as those that are too large.
        if ns.is_nan() || ns > MOST_TIME {
            let found = format!("its processors may need {:.1e} s together", ns / 1e9);
            return wrong("the program", found, format!("at most {:.0e} s", MOST_TIME / 1e9));
        }
        if operations.is_nan() || operations > MOST_OPERATIONS {
            let found = format!("it may need {operations:.1e} operations of the simulator");
            let needed = format!(
                "at most {MOST_OPERATIONS:.0e}: fewer steps, processors or pages, or longer turns"
            );
            return wrong("the program", found, needed);
        }
        Ok(())
    }

    /// How many operations of the simulator a run takes at most, of which a machine of 2020 does some 20 to 100 million in a second.
    /// No number where the program or the cluster are beyond all limits.
    #[must_use]
    pub fn operations(&self, cluster: &Cluster) -> f64 {
        self.effort(cluster).operations
    }

    /// Bounds are generous: all is done one after the other, each task is stolen, and each page is fetched each time.
    fn effort(&self, cluster: &Cluster) -> Effort {
        let steps = self.steps as f64;
        let (mut operations, mut ns) = (0.0, 0.0);
        for one in self.loops.iter().map(|of| instance(of, cluster)) {
            operations += steps * one.operations;
            ns += steps * one.ns;
        }
        let loaded = cluster.loads.iter().filter(|&&load| load > 0.0).count() as f64;
        if loaded > 0.0 {
            // Between two waits for its CPU a processor has had a turn of its own, but for one wait in each instance.
            let free = 1.0 - cluster.loads.iter().copied().fold(0.0, f64::max);
            let quantum = cluster.quantum.0 as f64;
            let waits = steps * self.loops.len() as f64 * cluster.memory.processors() as f64;
            // Where it cooperates each wait may cost a turn of the others, in which those of all processors go on.
            let given = if cluster.cooperates.is_some() { operations } else { 0.0 };
            operations += 2.0 * loaded * (ns / quantum + waits) / free + 4.0 * loaded * given;
            // Turns are up to a tenth longer.
            ns = 2.0 * (ns + waits * quantum) / free + 1.1 * given * quantum * (1.0 - free) / free;
        }
        Effort { operations, ns }
    }
}

fn machine(cluster: &Cluster) -> Result<(), LoopError> {
    let processors = cluster.memory.processors() as u64;
    within("processors", processors, MOST_PROCESSORS)?;
    let nodes = cluster.memory.nodes.iter().max().map_or(0, |last| last.saturating_add(1));
    within("nodes", nodes as u64, MOST_NODES as u64)?;
    if let Some(load) = cluster.loads.iter().find(|load| !(0.0..=0.99).contains(*load)) {
        return wrong("load", format!("it is {load}"), "from 0 to 0.99");
    }
    within("loads of processors", cluster.loads.len() as u64, processors)
}

/// Whether all that a loop uses can be counted.
fn sizes(of: &ParallelLoop, steps: u64) -> Result<(), LoopError> {
    let count = of.bounds.count().unwrap_or(0);
    within(format!("iterations of {}", of.name), count.max(1), MOST_ITERATIONS)?;
    // Even an iteration that is none, and elements without bytes, are reckoned with on the way.
    let counted = |s: &Section| Section { element_bytes: s.element_bytes.max(1), ..*s };
    let sections = of.region.sections.iter();
    let sections = sections.map(|s| of.bounds.section(&counted(s)).bytes(&(0..count.max(1))));
    let everywhere = of.everywhere.iter().map(|e| {
        let moved = i128::from(e.moves).saturating_mul(steps.into());
        i128::from(e.bytes.start)..i128::from(e.bytes.end).saturating_add(moved)
    });
    let updates = of.updates.iter().map(|u| 0..i128::from(u.element_bytes) * i128::from(count));
    for bytes in sections.chain(everywhere).chain(updates) {
        if bytes.start < -MOST_BYTES || bytes.end > MOST_BYTES {
            let found = format!("it uses bytes {} to {} of an array", bytes.start, bytes.end);
            return wrong(of.name.clone(), found, format!("within {MOST_BYTES} of its begin"));
        }
    }
    if of.updates.is_some() {
        within(format!("elements under locks in {}", of.name), count.max(1), MOST_LOCKS)?;
    }
    Ok(())
}

/// What an instance takes at most.
fn instance(of: &ParallelLoop, cluster: &Cluster) -> Effort {
    let processors = cluster.memory.processors() as f64;
    let nodes = cluster.memory.nodes.iter().max().map_or(1.0, |last| *last as f64 + 1.0);
    let pages = |bytes: f64| bytes / cluster.memory.unit_bytes.max(1) as f64;
    let iterations = of.bounds.count().unwrap_or(0) as f64;
    let tasks = iterations.min(MOST_CHUNKS * processors);
    let sections = of.region.sections.len() as f64;
    let used = of.region.sections.iter().map(|s| iterations * s.bytes_per_iteration() as f64);
    // The first and the last page of a task may be another's as well.
    let mut accesses = pages(used.sum()) + 2.0 * sections * tasks;
    let everywhere = of.everywhere.iter();
    let everywhere = everywhere.map(|e| e.bytes.end.saturating_sub(e.bytes.start) as f64);
    accesses += nodes * (pages(everywhere.sum()) + 2.0 * of.everywhere.len() as f64);
    let (mut updates, mut hold) = (0.0, 0.0);
    if let Some(of_element) = &of.updates {
        updates = iterations * (processors / 2.0 + 1.0);
        hold = of_element.hold.0 as f64;
        accesses += updates * (pages(of_element.element_bytes as f64) + 2.0);
    }
    let smallest = smallest_task(&of.region, cluster.memory.unit_bytes) as f64;
    let costs = &cluster.costs;
    let [wire, twin, diff, message, barrier] =
        [costs.wire, costs.twin, costs.diff, costs.message, costs.barrier].map(|ns| ns.0 as f64);
    let each = cluster.memory.fetch.0 as f64 + wire + twin + diff;
    let alone = of.alone.map_or(0.0, |work| work.0 as f64);
    Effort {
        // To divide tasks, and to find one to steal, each asks all processors.
        operations: accesses
            + updates
            + processors * (tasks + processors)
            + sections * (sections + tasks)
            + smallest,
        ns: iterations * of.work.0 as f64
            + alone
            + accesses * each
            + updates * hold
            + (tasks + processors + updates) * 2.0 * message
            + 2.0 * barrier,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::{Everywhere, LOOP_KERNELS, LoopMachine, Updates};
    use evenly_iterations::{Access, ArrayId, Bounds, Load, Region, Use};
    use evenly_model::Nanos;

    fn program() -> LoopProgram {
        let section = Section {
            array: ArrayId(0),
            used: Use::Writes,
            element_bytes: 8,
            coefficient: 64,
            constant: 0,
        };
        let region = Region { load: Load::Fixed, access: Access::Unknown, sections: vec![section] };
        let of = ParallelLoop {
            name: "l".into(),
            region,
            bounds: Bounds { lower: 0, upper: 100, stride: 1 },
            work: Nanos::from_micros(10),
            shrinks: false,
            everywhere: Vec::new(),
            updates: None,
            alone: None,
        };
        LoopProgram { arrays: vec![51_200], loops: vec![of], steps: 10 }
    }

    #[test]
    fn the_kernels_are_within_the_limits() {
        for kernel in LOOP_KERNELS {
            for load in [0.0, 0.5, 0.9, 0.99] {
                for nodes in [1, 4, 16] {
                    let machine = LoopMachine { nodes, ..LoopMachine::default() };
                    let cluster = machine.cluster(&[load; 16]);
                    let both = [Some(cluster.cooperating()).filter(|_| load < 0.99), Some(cluster)];
                    for cluster in both.into_iter().flatten() {
                        let checked = (kernel.program)().check(&cluster);
                        assert_eq!(checked, Ok(()), "{} with {load} on {nodes}", kernel.name);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_too_much_is_refused() {
        let usual = LoopMachine::default().cluster(&[0.5]);
        type Change = fn(&mut LoopProgram, &mut Cluster);
        let cases: [(&str, Change); 20] = [
            ("processors: there are 0", |_, c| c.memory.nodes.clear()),
            ("processors: there are 1025", |_, c| c.memory.nodes = vec![0; 1_025]),
            ("nodes: there are 65", |_, c| c.memory.nodes[15] = 64),
            ("nodes", |_, c| c.memory.nodes[15] = usize::MAX),
            ("load: it is 1;", |_, c| c.loads[3] = 1.0),
            ("load: it is NaN;", |_, c| c.loads[3] = f64::NAN),
            ("loads of processors: there are 17", |_, c| c.loads.push(0.0)),
            ("pages of all arrays", |p, _| p.arrays = vec![u64::MAX; 3]),
            ("instances: there are 0", |p, _| p.steps = 0),
            ("instances", |p, _| p.steps = u64::MAX),
            ("iterations of l", |p, _| p.loops[0].bounds.upper = i64::MAX),
            ("l: it uses bytes", |p, _| p.loops[0].region.sections[0].coefficient = i64::MAX),
            ("l: it uses bytes", |p, _| {
                let section = &mut p.loops[0].region.sections[0];
                (section.coefficient, section.element_bytes) = (i64::MIN, 0);
                p.loops[0].bounds.upper = 0;
            }),
            ("l: it uses bytes", |p, _| {
                p.loops[0].everywhere =
                    vec![Everywhere { array: ArrayId(0), bytes: 0..8, moves: u64::MAX }];
            }),
            ("elements under locks in l", |p, _| {
                let hold = Nanos(1);
                p.loops[0].bounds.upper = 5_000_000;
                p.loops[0].updates = Some(Updates { array: ArrayId(0), element_bytes: 8, hold });
            }),
            ("operations of the simulator", |_, c| c.quantum = Nanos::ZERO),
            ("operations of the simulator", |_, c| c.quantum = Nanos(1)),
            ("operations of the simulator", |p, _| {
                (p.steps, p.loops[0].bounds.upper) = (1_000_000, 10_000);
            }),
            ("s together", |p, _| p.loops[0].work = Nanos(u64::MAX)),
            ("s together", |_, c| c.costs.diff = Nanos::from_millis(1_000_000_000)),
        ];
        assert_eq!(program().check(&usual), Ok(()));
        for (words, change) in cases {
            let (mut program, mut cluster) = (program(), usual.clone());
            change(&mut program, &mut cluster);
            let said = program.check(&cluster).err().map(|e| e.to_string()).unwrap_or_default();
            assert!(said.contains(words), "{said:?} should have {words}");
            assert!(crate::run_loops(&cluster, &program, crate::Divides::Plain, 1).is_err());
        }
    }
}

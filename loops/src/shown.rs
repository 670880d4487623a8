//! The plan of an instance, as the threads of a team read it: written by whoever sets the instance up, while no other thread
//! looks at it but one that is late ([`crate::board`]).

use crate::MOST_THREADS;
use evenly_iterations::{
    Bounds, Chunks, HandsOut, Plan, Sizes, TASK_WORDS, TASKS_PER_PROCESSOR, Tasks,
};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

// Places within a queue are of 16 bits.
const _: () = assert!(MOST_THREADS * TASKS_PER_PROCESSOR as usize <= crate::queue::MOST_TASKS);

const OWNED: u32 = 0;
const STEALS: u32 = 1;
const NEXT: u32 = 2;

/// Who takes tasks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum How {
    Owned { steals: bool },
    Next(Chunks),
}

/// Each in words of their own.
#[derive(Debug)]
pub(crate) struct Shown {
    bounds: [AtomicI64; 3],
    tasks: [AtomicU64; TASK_WORDS],
    how: AtomicU32,
    units: AtomicU32,
    /// Tasks by owner, and where those of each begin.
    lists: Box<[AtomicU32]>,
    begins: Box<[AtomicU32]>,
    /// Who carries out each.
    carried_out: Box<[AtomicU32]>,
}

fn words(count: usize) -> Box<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

impl Shown {
    pub(crate) fn new(threads: usize) -> Self {
        let most = threads * TASKS_PER_PROCESSOR as usize;
        Self {
            bounds: [AtomicI64::new(0), AtomicI64::new(0), AtomicI64::new(0)],
            tasks: Tasks::new(0, 1, 0, 1).to_words().map(AtomicU64::new),
            how: AtomicU32::new(OWNED),
            units: AtomicU32::new(0),
            lists: words(most),
            begins: words(threads + 1),
            carried_out: words(most),
        }
    }

    pub(crate) fn set(&self, bounds: Bounds, plan: &Plan) {
        let put = |word: &AtomicI64, value| word.store(value, Relaxed);
        put(&self.bounds[0], bounds.lower);
        put(&self.bounds[1], bounds.upper);
        put(&self.bounds[2], bounds.stride);
        let (tasks, put) = (plan.tasks, |word: &AtomicU64, value| word.store(value, Relaxed));
        self.tasks.iter().zip(tasks.to_words()).for_each(|(word, value)| put(word, value));
        match &plan.hands_out {
            HandsOut::Owned { owners, steals } => {
                self.how.store(if *steals { STEALS } else { OWNED }, Relaxed);
                self.set_owners(owners);
            }
            HandsOut::Next(chunks) => {
                let sizes = match chunks.sizes {
                    Sizes::Guided => 0,
                    Sizes::Factoring => 1,
                    Sizes::Weighted => 2,
                };
                self.how.store(NEXT + sizes, Relaxed);
                self.units.store(chunks.units, Relaxed);
                self.set_owners(&[]);
            }
        }
    }

    fn set_owners(&self, owners: &[usize]) {
        let mut begins = vec![0_u32; self.begins.len()];
        owners.iter().for_each(|&owner| begins[owner + 1] += 1);
        for processor in 1..begins.len() {
            begins[processor] += begins[processor - 1];
        }
        self.begins.iter().zip(&begins).for_each(|(word, at)| word.store(*at, Relaxed));
        for (task, &owner) in owners.iter().enumerate() {
            self.lists[begins[owner] as usize].store(task as u32, Relaxed);
            begins[owner] += 1;
            self.carried_out[task].store(owner as u32, Relaxed);
        }
    }

    pub(crate) fn bounds(&self) -> Bounds {
        let [lower, upper, stride] = self.bounds.each_ref().map(|word| word.load(Relaxed));
        Bounds { lower, upper, stride }
    }

    pub(crate) fn tasks(&self) -> Tasks {
        Tasks::from_words(self.tasks.each_ref().map(|word| word.load(Relaxed)))
    }

    pub(crate) fn hands_out(&self) -> How {
        let sizes = match self.how.load(Relaxed) {
            OWNED => return How::Owned { steals: false },
            STEALS => return How::Owned { steals: true },
            NEXT => Sizes::Guided,
            other if other == NEXT + 1 => Sizes::Factoring,
            _ => Sizes::Weighted,
        };
        let (units, processors) = (self.units.load(Relaxed), self.begins.len() - 1);
        How::Next(Chunks { sizes, units, processors })
    }

    /// How many tasks each owns.
    pub(crate) fn lengths(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.begins.len() - 1).map(|owner| self.length(owner))
    }

    /// How many tasks this one owns. For whoever is late it may be any number.
    pub(crate) fn length(&self, owner: usize) -> u16 {
        let [begin, end] = [owner, owner + 1].map(|place| self.begins[place].load(Relaxed));
        end.wrapping_sub(begin) as u16
    }

    /// The task at this place of an owner's list. For whoever is late, and will see that, it may be any.
    pub(crate) fn task(&self, owner: usize, place: u16) -> usize {
        let begin = self.begins[owner].load(Relaxed) as usize;
        self.lists.get(begin + usize::from(place)).map_or(0, |task| task.load(Relaxed) as usize)
    }

    /// The end of the tasks that follow one another from this place on.
    pub(crate) fn consecutive(&self, owner: usize, from: u16, to: u16) -> u16 {
        let first = self.task(owner, from);
        let follows = |place: &u16| self.task(owner, *place) == first + usize::from(place - from);
        from + (from..to).take_while(follows).count() as u16
    }

    /// Somebody else than the owner carries out a task.
    pub(crate) fn carries_out(&self, task: usize, processor: usize) {
        self.carried_out[task].store(processor as u32, Relaxed);
    }

    /// Who has carried out each task. From now on that is its owner.
    pub(crate) fn take_carried_out(&self) -> Vec<usize> {
        let mut carried_out: Vec<usize> =
            self.carried_out.iter().map(|word| word.load(Relaxed) as usize).collect();
        let mut all = 0;
        for (owner, length) in self.lengths().enumerate() {
            for place in 0..length {
                self.carries_out(self.task(owner, place), owner);
            }
            all += usize::from(length);
        }
        carried_out.truncate(all);
        carried_out
    }
}

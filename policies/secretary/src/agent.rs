//! The balancer of a CPU as an agent of its caretaker.

use crate::board::Swap;
use crate::{Board, CpuBalancer, Decentral, Step};
use evenly_engine::{Agent, Machine, Manner, Next, Reader};
use evenly_model::{CpuId, Nanos};
use std::sync::Arc;

impl Decentral {
    /// The balancers as agents, to be run from now on. With `jitter` the time between two wake-ups varies by a tenth.
    #[must_use]
    pub fn agents(self, jitter: bool) -> Vec<Box<dyn Agent>> {
        let agent = |balancer| -> Box<dyn Agent> {
            Box::new(CpuAgent {
                board: self.board.clone(),
                balancer,
                jitter,
                swap: None,
                rests: true,
            })
        };
        self.balancers.into_iter().map(agent).collect()
    }
}

/// The balancer of one CPU, with when it wakes.
struct CpuAgent {
    board: Arc<Board>,
    balancer: CpuBalancer,
    jitter: bool,
    /// What it wants to do.
    swap: Option<Swap>,
    /// It waits until the board is active.
    rests: bool,
}

impl CpuAgent {
    fn sleep(&mut self) -> Next {
        Next::Sleep(self.balancer.next_wake(self.board.interval(), self.jitter))
    }
}

impl Agent for CpuAgent {
    fn cpu(&self) -> CpuId {
        self.balancer.cpu(&self.board)
    }

    fn next(&mut self, machine: &mut dyn Reader) -> Next {
        // It has been done, or given up.
        if self.swap.take().is_some() {
            return self.sleep();
        }
        if self.balancer.is_asleep() && !self.board.active() {
            self.rests = true;
            return Next::Rest;
        }
        if std::mem::take(&mut self.rests) {
            return Next::Sleep(self.balancer.first_wake(machine.now(), self.board.interval()));
        }
        match self.balancer.step(&self.board, machine) {
            Step::Again => Next::Again,
            Step::Sleep => self.sleep(),
            Step::Swap(swap) => {
                self.swap = Some(swap);
                Next::Act
            }
        }
    }

    fn act(&mut self, machine: &mut dyn Machine) {
        if let Some(swap) = &self.swap {
            self.board.swap(swap, machine);
        }
    }

    fn took(&mut self, time: Nanos) {
        self.board.took(time);
    }

    fn is_called(&self) -> bool {
        self.board.active()
    }

    fn calls(&self) -> bool {
        self.board.called()
    }

    fn manner(&self) -> Manner {
        Manner::Together
    }
}

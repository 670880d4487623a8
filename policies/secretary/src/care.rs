//! The balancers of all CPUs as the agents of their caretaker.

use crate::board::{Board, LastReading, Member};
use crate::{CARE, CpuBalancer, Decentral};
use evenly_engine::agents::{self, Agents, Done, Work};
use evenly_engine::{Balancer, BalancerOptions, Reader, Reading, Times};
use evenly_model::{CpuId, CpuSet, CpuView, Nanos, ThreadId};
use std::collections::HashMap;
use std::sync::Arc;

/// A thread that no balancer of a CPU has read for so many periods is read by the caretaker.
const UNREAD: f64 = 3.0;

impl Decentral {
    /// A balancer for each CPU of the domain, and their caretaker. Its points are [`CARE`] periods
    /// apart. Threads go from one of `nodes` to another only while few are moved; without nodes all
    /// CPUs are of one. `interval` is lambda at first.
    #[must_use]
    pub fn with_caretaker(
        options: BalancerOptions,
        nodes: &[CpuSet],
        interval: Nanos,
        seed: u64,
        now: Nanos,
    ) -> (Balancer, Self) {
        let board = Arc::new(Board::new(&options.cpus, nodes, interval));
        let balancers = (0..board.seats()).map(|seat| CpuBalancer::new(seat, seed, now)).collect();
        let care = Care { board: board.clone(), members: HashMap::new() };
        (Balancer::with_agents(options, Box::new(care), now), Self { board, balancers })
    }
}

/// The threads on the board, by their ids.
struct Care {
    board: Arc<Board>,
    members: HashMap<ThreadId, Arc<Member>>,
}

impl Agents for Care {
    fn periods_between_points(&self) -> f64 {
        CARE
    }

    fn begin_point(&mut self, period: Nanos, keep_moves: bool) -> Done {
        self.board.set_interval(period);
        self.board.answered();
        let failures = self.board.take_failures();
        self.board.keep_log(keep_moves);
        Done { moves: self.board.take_log(), failures }
    }

    fn place(&self, thread: ThreadId) -> Option<CpuId> {
        let seat = self.members.get(&thread)?.seat()?;
        Some(self.board.cpu(seat))
    }

    fn read(&self, machine: &mut dyn Reader, thread: ThreadId, now: Nanos) -> (Reading, Nanos) {
        let Some(member) = self.members.get(&thread) else { return (Reading::Unknown, now) };
        let long = self.board.interval().scale(UNREAD);
        let mut known = member.account();
        if !known.gone && now - known.at >= long {
            let read = member.read(&self.board, machine);
            known = read.unwrap_or(LastReading { gone: true, ..known });
        }
        // The machine through which masks are set must know as well that a thread has ended.
        let reading = if known.gone && machine.read_one(thread) == Reading::Gone {
            Reading::Gone
        } else if now - known.at >= long {
            Reading::Unknown
        } else {
            Reading::Times(known.times)
        };
        (reading, known.at)
    }

    fn progress(&self, thread: ThreadId) -> Option<i64> {
        self.members.get(&thread).map(|m| m.account().progress)
    }

    fn migrations(&self, thread: ThreadId) -> u64 {
        self.members.get(&thread).map_or(0, |m| m.migrations())
    }

    fn speed(&self, cpu: CpuId) -> Option<f64> {
        self.board.speed(cpu)
    }

    fn join(
        &mut self,
        thread: ThreadId,
        mask: Arc<CpuSet>,
        times: Times,
        at: Nanos,
        progress: Option<i64>,
    ) -> i64 {
        let member = self.board.join(thread, mask, times, at, progress);
        let progress = member.account().progress;
        self.members.insert(thread, member);
        progress
    }

    fn leave(&mut self, thread: ThreadId) -> u64 {
        let Some(member) = self.members.remove(&thread) else { return 0 };
        member.set_movable(false);
        member.migrations()
    }

    fn put(&mut self, thread: ThreadId, cpu: Option<CpuId>, movable: bool) {
        if let Some(member) = self.members.get(&thread) {
            self.board.put(member, cpu);
            member.set_movable(movable);
        }
    }

    fn set_cpus(&mut self, usable: &[CpuView]) {
        self.board.set_cpus(usable);
    }

    fn set_threads(&mut self, threads: &mut dyn Iterator<Item = ThreadId>) {
        self.board.set_members(threads.filter_map(|id| self.members.get(&id).cloned()));
    }

    fn begin(&mut self, began: Nanos) {
        self.board.begin(began);
    }

    fn set_work(&self, work: Work) {
        self.board.set_active(work == Work::Move);
    }

    fn calls(&self) -> bool {
        self.board.called()
    }

    fn activations(&self) -> u64 {
        self.board.activations()
    }

    fn account(&self) -> agents::AgentTotals {
        let board = &self.board;
        agents::AgentTotals {
            points: board.wakes(),
            migrations: board.migrations(),
            failed: board.failed(),
            cpu_time: board.cpu_time(),
            cost: board.cost(),
            effort: board.effort(),
        }
    }
}

//! Tasks that communicate: what the mapping of tasks onto cores starts from.
//!
//! Invariant: loads, sizes and amounts are from 0 to [`MOST_OF_ANYTHING`], and every edge joins two tasks
//! that are there; so mappers need not look at their values again.

use crate::words::short;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;

/// A task by its place in [`TaskGraph::tasks`].
pub type TaskIndex = usize;

/// A task, rank, object or thread that computes and communicates (NucoLB, section III).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Task {
    /// The number that the task has in files.
    pub id: u64,
    /// The CPU time that it takes, in seconds, in the window that was observed: taskLoad(t).
    pub load_s: f64,
    /// What has to be moved if it goes to another core, in bytes; 0 where that is not known.
    pub size_bytes: f64,
    /// The core that it is on now, by the core's number outside; None where it is on none.
    pub core: Option<u32>,
    /// Whether it may be moved.
    pub movable: bool,
}

/// What one task sends to another in the window that was observed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Edge {
    /// The sender, by its number outside.
    pub from: u64,
    /// The receiver, by its number outside.
    pub to: u64,
    /// How many messages are sent.
    pub messages: f64,
    /// Bytes of all of them.
    pub bytes: f64,
}

/// All that a task has to do with one other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// The task at the other end.
    pub with: TaskIndex,
    /// Messages received from it.
    pub received: f64,
    /// Messages sent to it.
    pub sent: f64,
    /// Bytes received from it.
    pub received_bytes: f64,
    /// Bytes sent to it.
    pub sent_bytes: f64,
}

/// Why tasks and edges make no graph.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum GraphError {
    /// There is no task.
    #[error("there is no task; at least one is needed")]
    Empty,
    /// Two tasks have the same number.
    #[error("task {id} is there twice; every task needs a number of its own")]
    Twice {
        /// The number that two tasks have.
        id: u64,
    },
    /// A value of a task that is none.
    #[error("task {id}: {what} is {}; {AMOUNT} is needed", short(*found))]
    Task {
        /// The task whose value makes no sense.
        id: u64,
        /// Which of its values that is, in words.
        what: &'static str,
        /// The value that it has.
        found: f64,
    },
    /// A value of an edge that is none.
    #[error("edge from {from} to {to}: {what} is {}; {AMOUNT} is needed", short(*found))]
    Edge {
        /// The task that sends.
        from: u64,
        /// The task that receives.
        to: u64,
        /// Which value of the messages makes no sense, in words.
        what: &'static str,
        /// The value that it has.
        found: f64,
    },
    /// An edge that leads nowhere.
    #[error("edge from {from} to {to}: there is no task {missing}; add it, or remove the edge")]
    Dangling {
        /// The task that sends.
        from: u64,
        /// The task that receives.
        to: u64,
        /// The task that is not there.
        missing: u64,
    },
}

/// Tasks and which of them communicate. Edges between the same two tasks are added up; what a task sends to
/// itself is left out, because it costs the same everywhere.
#[derive(Clone)]
pub struct TaskGraph {
    tasks: Vec<Task>,
    first: Vec<usize>,
    links: Vec<Link>,
    by_id: HashMap<u64, TaskIndex>,
    messages: f64,
    bytes: f64,
}

impl TaskGraph {
    /// From tasks, and edges in any order.
    ///
    /// # Errors
    /// Where a number is no number or negative, a task is there twice, or an edge has no end.
    pub fn new(tasks: Vec<Task>, edges: &[Edge]) -> Result<Self, GraphError> {
        if tasks.is_empty() {
            return Err(GraphError::Empty);
        }
        let mut by_id = HashMap::with_capacity(tasks.len());
        for (index, t) in tasks.iter().enumerate() {
            check_task(t)?;
            if by_id.insert(t.id, index).is_some() {
                return Err(GraphError::Twice { id: t.id });
            }
        }
        // Each edge twice: as its receiver sees it, and as its sender does.
        let mut ends: Vec<(TaskIndex, Link)> = Vec::with_capacity(2 * edges.len());
        let (mut messages, mut bytes) = (0.0, 0.0);
        for e in edges {
            let Edge { from, to, .. } = *e;
            for (what, found) in [("the number of messages", e.messages), ("bytes", e.bytes)] {
                if !is_amount(found) {
                    return Err(GraphError::Edge { from, to, what, found });
                }
            }
            let end = |missing: u64| {
                by_id.get(&missing).copied().ok_or(GraphError::Dangling { from, to, missing })
            };
            let (a, b) = (end(from)?, end(to)?);
            if a == b {
                continue;
            }
            messages += e.messages;
            bytes += e.bytes;
            let none =
                Link { with: a, received: 0.0, sent: 0.0, received_bytes: 0.0, sent_bytes: 0.0 };
            ends.push((b, Link { received: e.messages, received_bytes: e.bytes, ..none }));
            ends.push((a, Link { with: b, sent: e.messages, sent_bytes: e.bytes, ..none }));
        }
        ends.sort_by_key(|(task, link)| (*task, link.with));
        let mut first = vec![0; tasks.len() + 1];
        let mut links: Vec<Link> = Vec::with_capacity(ends.len());
        let mut last = None;
        for (task, link) in ends {
            if last == Some((task, link.with))
                && let Some(l) = links.last_mut()
            {
                l.received += link.received;
                l.sent += link.sent;
                l.received_bytes += link.received_bytes;
                l.sent_bytes += link.sent_bytes;
            } else {
                links.push(link);
            }
            last = Some((task, link.with));
            first[task + 1] = links.len();
        }
        for t in 1..first.len() {
            first[t] = first[t].max(first[t - 1]);
        }
        Ok(Self { tasks, first, links, by_id, messages, bytes })
    }

    /// All tasks, in the order that they were given in.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// How many tasks there are, at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whom a task has to do with, each once, in the order of their places.
    #[must_use]
    pub fn links(&self, task: TaskIndex) -> &[Link] {
        &self.links[self.first[task]..self.first[task + 1]]
    }

    /// The same tasks and messages with other loads, in seconds, by the place of each task: what
    /// another window measured.
    ///
    /// # Errors
    /// Where a load is no number or negative.
    pub fn with_loads(mut self, load_s: impl Fn(TaskIndex) -> f64) -> Result<Self, GraphError> {
        for (t, task) in self.tasks.iter_mut().enumerate() {
            let found = load_s(t);
            if !is_amount(found) {
                return Err(GraphError::Task { id: task.id, what: "the load", found });
            }
            task.load_s = found;
        }
        Ok(self)
    }

    /// With further tasks behind the others, which communicate with none.
    ///
    /// # Errors
    /// As [`TaskGraph::new`].
    pub fn with_silent(mut self, tasks: Vec<Task>) -> Result<Self, GraphError> {
        for t in tasks {
            check_task(&t)?;
            if self.by_id.insert(t.id, self.tasks.len()).is_some() {
                return Err(GraphError::Twice { id: t.id });
            }
            self.tasks.push(t);
            self.first.push(self.links.len());
        }
        Ok(self)
    }

    /// The place of a task by its number.
    #[must_use]
    pub fn find(&self, id: u64) -> Option<TaskIndex> {
        self.by_id.get(&id).copied()
    }

    /// Load of all tasks, in seconds.
    #[must_use]
    pub fn load_s(&self) -> f64 {
        self.tasks.iter().map(|t| t.load_s).sum()
    }

    /// Messages between different tasks.
    #[must_use]
    pub fn messages(&self) -> f64 {
        self.messages
    }

    /// Bytes between different tasks.
    #[must_use]
    pub fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Pairs of tasks that communicate.
    #[must_use]
    pub fn pairs(&self) -> usize {
        self.links.len() / 2
    }
}

impl fmt::Debug for TaskGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskGraph({} tasks, {} pairs)", self.len(), self.pairs())
    }
}

/// The largest load, size or amount: sums of millions of them, each times a factor, are numbers.
pub const MOST_OF_ANYTHING: f64 = 1e18;

/// What an amount has to be, for errors.
const AMOUNT: &str = "a number that is not negative, at most 1e18,";

fn check_task(t: &Task) -> Result<(), GraphError> {
    let values = [("the load", t.load_s), ("the size", t.size_bytes)];
    match values.into_iter().find(|(_, found)| !is_amount(*found)) {
        Some((what, found)) => Err(GraphError::Task { id: t.id, what, found }),
        None => Ok(()),
    }
}

/// Whether something can be an amount of anything.
fn is_amount(x: f64) -> bool {
    (0.0..=MOST_OF_ANYTHING).contains(&x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(id: u64) -> Task {
        Task { id, load_s: 1.0, size_bytes: 0.0, core: None, movable: true }
    }

    fn edge(from: u64, to: u64, messages: f64) -> Edge {
        Edge { from, to, messages, bytes: 10.0 * messages }
    }

    #[test]
    fn edges_between_the_same_tasks_are_added_up_and_both_ends_know() {
        let edges = [edge(7, 3, 2.0), edge(3, 7, 5.0), edge(7, 3, 1.0), edge(9, 9, 4.0)];
        let g = TaskGraph::new([3, 7, 9].map(task).to_vec(), &edges).unwrap();
        assert_eq!((g.find(7), g.find(8)), (Some(1), None));
        let [link] = g.links(0) else { panic!("{:?}", g.links(0)) };
        assert_eq!((link.with, link.received, link.sent), (1, 3.0, 5.0));
        assert_eq!((link.received_bytes, link.sent_bytes), (30.0, 50.0));
        assert_eq!((g.links(1)[0].received, g.links(1)[0].sent), (5.0, 3.0));
        assert!(g.links(2).is_empty());
        assert_eq!((g.messages(), g.bytes(), g.pairs(), g.load_s()), (8.0, 80.0, 1, 3.0));
    }

    #[test]
    fn loads_are_replaced_and_nothing_else() {
        let edges = [edge(1, 2, 3.0)];
        let g = TaskGraph::new(vec![task(1), task(2)], &edges).unwrap();
        let other = g.clone().with_loads(|t| 2.0 + t as f64).unwrap();
        assert_eq!((other.tasks()[0].load_s, other.tasks()[1].load_s), (2.0, 3.0));
        assert_eq!((other.messages(), other.links(0), other.find(2)), (3.0, g.links(0), Some(1)));
        let said = g.with_loads(|_| f64::NAN).unwrap_err().to_string();
        assert!(said.starts_with("task 1: the load is NaN"), "{said}");
    }

    #[test]
    fn silent_tasks_stand_behind_the_others() {
        let g = TaskGraph::new(vec![task(1), task(2)], &[edge(1, 2, 3.0)]).unwrap();
        let more = g.clone().with_silent(vec![task(7)]).unwrap();
        assert_eq!((more.len(), more.find(7), more.load_s()), (3, Some(2), 3.0));
        assert_eq!((more.links(1), more.pairs(), more.messages()), (g.links(1), 1, 3.0));
        assert!(more.links(2).is_empty());
        let said = |bad| g.clone().with_silent(vec![bad]).unwrap_err().to_string();
        assert!(said(task(2)).starts_with("task 2 is there twice"));
        assert!(said(Task { load_s: -1.0, ..task(7) }).starts_with("task 7: the load is -1"));
    }

    #[test]
    fn what_is_no_graph_is_named() {
        let refused = |tasks: Vec<Task>, edges: &[Edge]| {
            TaskGraph::new(tasks, edges).unwrap_err().to_string()
        };
        assert_eq!(refused(vec![], &[]), "there is no task; at least one is needed");
        assert!(refused(vec![task(1), task(1)], &[]).starts_with("task 1 is there twice"));
        for bad in [f64::NAN, -1.0, f64::INFINITY] {
            let said = refused(vec![Task { load_s: bad, ..task(4) }], &[]);
            assert!(said.starts_with("task 4: the load is"), "{said}");
            let said = refused(vec![task(1), task(2)], &[edge(1, 2, bad)]);
            assert!(said.starts_with("edge from 1 to 2: the number of messages is"), "{said}");
        }
        let said = refused(vec![Task { size_bytes: 1e308, ..task(4) }], &[]);
        let needed = "a number that is not negative, at most 1e18, is needed";
        assert_eq!(said, format!("task 4: the size is 1e308; {needed}"));
        // Sums of the most that there can be are numbers.
        let most = Task { load_s: MOST_OF_ANYTHING, ..task(1) };
        let much = [edge(1, 2, MOST_OF_ANYTHING / 10.0); 100];
        let g = TaskGraph::new(vec![most, Task { id: 2, ..most }], &much).unwrap();
        assert!([g.load_s(), g.messages(), g.bytes()].iter().all(|sum| sum.is_finite()));
        let said = refused(vec![task(1)], &[edge(1, 2, 1.0)]);
        assert_eq!(said, "edge from 1 to 2: there is no task 2; add it, or remove the edge");
    }
}

//! Edges between tasks as they are read, and how much is read.

use evenly_model::Edge;

/// Most tasks that are read.
pub const MOST_TASKS: usize = 4_000_000;
/// Most edges that are read. An edge takes some 200 bytes of memory while a graph is made of it.
pub const MOST_EDGES: usize = 20_000_000;

/// Edges as they are read: between tasks that are there; what a task sends to itself is counted and
/// left out.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Edges {
    /// Messages between different tasks.
    pub list: Vec<Edge>,
    /// How many were from a task to itself.
    pub to_itself: u64,
}

impl Edges {
    /// Takes one more.
    ///
    /// # Errors
    /// In words, where it leads nowhere, or is one too many.
    pub fn add(&mut self, edge: Edge, known: &dyn Fn(u64) -> bool) -> Result<(), String> {
        let Edge { from, to, .. } = edge;
        for missing in [from, to] {
            if !known(missing) {
                return Err(format!("edge from {from} to {to}: there is no task {missing}"));
            }
        }
        if from == to {
            self.to_itself += 1;
            return Ok(());
        }
        if self.list.len() == MOST_EDGES {
            return Err(format!("there are more than {MOST_EDGES} edges, the most that are read"));
        }
        self.list.push(edge);
        Ok(())
    }
}

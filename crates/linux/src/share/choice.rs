//! Which mechanism gives threads their parts of CPUs.
//!
//! Invariant: one is chosen when the first part is to be given, and stays; nothing is changed by a
//! mechanism that this user could not undo, as each refuses that itself.

use super::{GroupShares, ThreadShares, Way, autogroups};
use crate::journal::Journal;
use crate::proc::Proc;
use evenly_engine::{Entity, ShareError, ShareMechanism, Wanted};
use evenly_model::Pid;
use std::fmt;
use std::sync::Arc;

/// Which to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Nice values where they can be given back and count between these threads, else control groups.
    #[default]
    Auto,
    /// Nice values.
    Nice,
    /// Control groups.
    Group,
}

/// Parts of CPUs for the threads of a program.
pub struct Shares {
    choice: Choice,
    journal: Arc<Journal>,
    program: Pid,
    chosen: Option<Box<dyn ShareMechanism + Send>>,
}

impl fmt::Debug for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shares")
            .field("choice", &self.choice)
            .field("chosen", &self.chosen.as_ref().map(|m| m.name()))
            .finish_non_exhaustive()
    }
}

impl Shares {
    /// For the threads of a program, of which this is the first process.
    #[must_use]
    pub fn new(choice: Choice, journal: Arc<Journal>, program: Pid) -> Self {
        Self { choice, journal, program, chosen: None }
    }

    /// What was chosen, in words, once something was.
    #[must_use]
    pub fn name(&self) -> Option<&'static str> {
        Some(match self.chosen.as_ref()?.name() {
            "nice" => "by nice values",
            _ => "by control groups",
        })
    }

    /// Gives all of these their weights; what each has then.
    ///
    /// # Errors
    /// [`ShareError`], for each.
    pub fn weigh(&mut self, wanted: &[Wanted]) -> Vec<Result<f64, ShareError>> {
        if self.chosen.is_none() {
            match self.choose(wanted) {
                Ok(mechanism) => self.chosen = Some(mechanism),
                Err(e) => return wanted.iter().map(|_| Err(e.clone())).collect(),
            }
        }
        let Some(mechanism) = &mut self.chosen else { return Vec::new() };
        let wanted: Vec<(Entity, f64)> = wanted.iter().map(|w| (entity(w), w.weight)).collect();
        mechanism.set_all(&wanted)
    }

    /// Undoes what was given to one.
    pub fn restore(&mut self, wanted: &Wanted) {
        if let Some(mechanism) = &mut self.chosen {
            // What cannot be undone now stays in the journal, for the guardian.
            let _ = mechanism.restore(entity(wanted));
        }
    }

    fn choose(&self, wanted: &[Wanted]) -> Result<Box<dyn ShareMechanism + Send>, ShareError> {
        let nice = || -> Result<Box<dyn ShareMechanism + Send>, ShareError> {
            let mut processes: Vec<Pid> = wanted.iter().map(|w| w.process).collect();
            processes.sort_unstable();
            processes.dedup();
            let groups = autogroups(&Proc::default(), &processes);
            if !groups.is_empty() {
                return Err(ShareError::Refused(format!(
                    "nice values do not count between sessions while autogroup is on ({}); sysctl \
                     kernel.sched_autogroup_enabled=0",
                    groups.join(", ")
                )));
            }
            let mut nice = ThreadShares::new(Way::Nice, self.journal.clone());
            for w in wanted {
                match nice.bounds(entity(w)) {
                    Ok(_) | Err(ShareError::Gone | ShareError::Foreign { .. }) => {}
                    Err(e) => return Err(e),
                }
            }
            Ok(Box::new(nice))
        };
        let group = || -> Result<Box<dyn ShareMechanism + Send>, ShareError> {
            let missing = |m: super::Missing| {
                let remedy = m.remedy.map(|r| format!("; {r}")).unwrap_or_default();
                ShareError::Refused(format!("control groups: {}{remedy}", m.why))
            };
            let groups = GroupShares::new(self.journal.clone(), self.program).map_err(missing)?;
            Ok(Box::new(groups))
        };
        match self.choice {
            Choice::Nice => nice(),
            Choice::Group => group(),
            Choice::Auto => nice().or_else(|first| {
                group().map_err(|second| ShareError::Refused(format!("{first}; {second}")))
            }),
        }
    }
}

fn entity(w: &Wanted) -> Entity {
    Entity::Thread { process: w.process, id: w.thread }
}

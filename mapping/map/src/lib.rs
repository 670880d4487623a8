//! The outside of mapping: loads of tasks and their communication, read from files
//! ([`Files`]); the mappers of `evenly_nuco::map` called on it ([`Case`]); and where each task
//! should run, written for launchers ([`write()`]).
//!
//! ```text
//! CSV, JSON, Matrix Market, Open MPI's monitoring -> Input -> Case -> Mapped -> CSV, JSON, rank file,
//!                                        machine ------------^                  migrations, masks ...
//! ```
//!
//! Invariants: whatever is in a file, reading it ends with a graph or with one line that names file,
//! line, what was found and what was needed; what is read has a limit ([`MOST_TASKS`],
//! [`MOST_EDGES`], [`MOST_BYTES`]); what was left out or assumed is said ([`Input::notes`]). The crate
//! prints nothing.

#![forbid(unsafe_code)]

mod assignment;
mod bounds;
mod case;
mod edges;
mod error;
mod factors;
mod format;
mod front;
mod input;
mod json;
mod lines;
mod machine;
mod market;
mod monitoring;
mod objects;
mod picture;
mod present;
mod procs;
mod profile;
mod programs;
mod table;

pub use assignment::{Assignment, assignment_file, read_assignment};
pub use bounds::Unreached;
pub use case::{Algorithm, Case, Mapped, SCHEMA, SCHEMA_COMPARISON, expected_s, judging_s};
pub use edges::{Edges, MOST_EDGES, MOST_TASKS};
pub use error::InputError;
pub use factors::read_factors;
pub use format::{FORMATS, Format, FormatError, FormatInfo, format, names_differ, write};
pub use front::{Front, Point};
pub use input::{Files, Input};
pub use json::{Mpi, Nature, SCHEMA_TASKS, read_tasks};
pub use lines::MOST_BYTES;
pub use machine::{Described, MachineError, THIS, is_synthetic, machine};
pub use market::{Matrix, read_matrix};
pub use monitoring::{Monitoring, read_monitoring};
pub use objects::{read_edges, read_mapping, read_objects};
pub use picture::Picture;
pub use present::{Current, PresentFrom, mapping_file, present};
pub use procs::{Background, Proc, procs_file, read_procs, with_speeds};
pub use profile::{JoinError, Profile, RankEnded, RankProfile, SCHEMA_PROFILE, join, read_profile};
pub use programs::{Job, PROGRAMS, Package, Program, ProgramError, read_pairs, read_parts};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_limits;

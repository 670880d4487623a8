//! Teams, and the loops and arrays that are declared for them.

use crate::error::LoopsError;
use crate::region::Region;
use crate::team::Shared;
use evenly_iterations::{Access, ArrayId, Extent, Load, Policy, Region as Declared, Section, Use};
use std::sync::Arc;

/// Threads that carry out loops together. The program makes these threads, and gives each a number from 0 on.
#[derive(Debug, Clone)]
pub struct Team(Arc<Shared>);

/// An array that loops of a team share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    id: ArrayId,
    address: u64,
    element_bytes: u64,
}

impl Team {
    /// Of so many threads.
    ///
    /// # Errors
    /// [`LoopsError::Threads`] where that is none, or too many.
    pub fn new(threads: usize) -> Result<Self, LoopsError> {
        Ok(Self(Arc::new(Shared::new(threads)?)))
    }

    /// How many threads there are.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.0.threads()
    }

    /// Declares an array that begins at this address, of a size that nobody says. Nothing is read or written there.
    #[must_use]
    pub fn array<T>(&self, first: *const T) -> Array {
        self.array_at(first.addr() as u64, size_of::<T>() as u64)
    }

    pub(crate) fn array_at(&self, address: u64, element_bytes: u64) -> Array {
        Array { id: ArrayId(self.0.array(address)), address, element_bytes }
    }

    /// The same, of so many elements in each dimension: a loop that would leave it is given up. That holds for loops that are built
    /// from now on, until an array at the same address is declared anew in this way.
    ///
    /// # Errors
    /// [`LoopsError::Array`] where there is no dimension, or more than there can be memory.
    pub fn array_of<T>(&self, first: *const T, sizes: &[usize]) -> Result<Array, LoopsError> {
        self.sized_array(first.addr() as u64, size_of::<T>() as u64, sizes)
    }

    pub(crate) fn sized_array(
        &self,
        address: u64,
        element_bytes: u64,
        sizes: &[usize],
    ) -> Result<Array, LoopsError> {
        let elements: Vec<u64> = sizes.iter().map(|size| *size as u64).collect();
        let extent = Extent::new(&elements, element_bytes)
            .ok_or_else(|| LoopsError::Array { sizes: sizes.to_vec(), element_bytes })?;
        let array = self.array_at(address, element_bytes);
        self.0.set_extent(array.id.0, Some(extent));
        Ok(array)
    }

    /// Nobody knows any longer how large the array is.
    pub(crate) fn forget_size(&self, address: u64) {
        self.0.set_extent(self.0.array(address), None);
    }

    /// Declares a loop.
    pub fn region<'t>(&'t self, name: &'t str) -> Declaration<'t> {
        let region = Declared::default();
        Declaration {
            team: self,
            name,
            region,
            policy: Policy::Auto,
            overtakes: false,
            addresses: Vec::new(),
        }
    }
}

/// A loop that is being declared: nothing of it is known, but what follows.
#[derive(Debug, Clone)]
#[must_use = "it becomes a loop by `build`"]
pub struct Declaration<'t> {
    team: &'t Team,
    name: &'t str,
    region: Declared,
    policy: Policy,
    overtakes: bool,
    addresses: Vec<(ArrayId, u64)>,
}

impl Declaration<'_> {
    /// Whether iterations differ in what they have to do. If not said, they do not.
    pub fn load(mut self, load: Load) -> Self {
        self.region.load = load;
        self
    }

    /// Which iterations use the same data. If not said, those that follow one another are kept together, unless they differ in what
    /// they have to do.
    pub fn access(mut self, access: Access) -> Self {
        self.region.access = access;
        self
    }

    /// How iterations are handed out. If not said, that is found by trying.
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// The loop ends when all of its iterations are carried out, even if a thread has not begun it: one whose CPU somebody else has.
    /// That thread is given nothing, and goes on to the next loop, while the others may be any number of loops ahead. To be said
    /// only where what a thread reads outside of loops is its own, or is not written any more: neither by another thread after
    /// the loop (bounds, pointers that are swapped) nor by later loops (results that it looks at between two loops). If not
    /// said, no thread goes on before all have come.
    pub fn overtakes(mut self) -> Self {
        self.overtakes = true;
        self
    }

    /// It uses `array[a * i + b]` and what follows up to the next iteration, where `i` is the variable of the loop.
    pub fn uses(mut self, used: Use, array: &Array, a: i64, b: i64) -> Self {
        let Array { id, address, element_bytes } = *array;
        self.addresses.push((id, address));
        self.region.sections.push(Section {
            array: id,
            used,
            element_bytes,
            coefficient: a,
            constant: b,
        });
        self
    }

    /// The loop.
    #[must_use]
    pub fn build(self) -> Region {
        let Self { team, name, region, policy, overtakes, addresses } = self;
        Region::new(Arc::clone(&team.0), name, region, policy, overtakes, &addresses)
    }
}

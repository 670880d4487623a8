//! What is known of a parallel loop before it runs: declared by hand, or by an analysis of its source (section 2.2).

use std::ops::Range;

/// Whether all iterations have about the same to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Load {
    /// They have: each processor is given iterations that follow one another.
    #[default]
    Fixed,
    /// What they have to do depends on their number: they are dealt out in turn.
    Variable,
}

/// Which iterations use the same data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// None, or all of them.
    Independent,
    /// Those that follow one another, as where each element is computed from its neighbours.
    Stencil,
    /// Nobody knows. Then their load says how they are divided; those that have blocks stay together, as with [`Access::Stencil`].
    #[default]
    Unknown,
}

/// An array by its place among those that are declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArrayId(pub u32);

/// What a loop does with an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Nothing but read it.
    Reads,
    /// It writes to it, and perhaps reads it.
    Writes,
}

/// Which elements of an array iteration `i` uses: from `A[a*i + b]` on as many as are between two iterations, as a regular
/// section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Section {
    /// The array.
    pub array: ArrayId,
    /// What is done with it.
    pub used: Use,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Elements from one iteration to the next, `a`; negative where the loop goes through the array backwards.
    pub coefficient: i64,
    /// The element of iteration 0, `b`.
    pub constant: i64,
}

impl Section {
    /// Bytes that an iteration uses.
    #[must_use]
    pub fn bytes_per_iteration(&self) -> u64 {
        self.coefficient.unsigned_abs().saturating_mul(self.element_bytes)
    }

    /// Where in the array the data of these iterations are, in bytes from its begin.
    #[must_use]
    pub fn bytes(&self, iterations: &Range<u64>) -> Range<i128> {
        let (a, b) = (i128::from(self.coefficient), i128::from(self.constant));
        let at = |iteration: u64| a.saturating_mul(iteration.into()).saturating_add(b);
        let (first, last) = (at(iterations.start), at(iterations.end));
        // Backwards, an iteration's elements end where those of the one before begin.
        let (low, high) =
            if a < 0 { (last.saturating_sub(a), first.saturating_sub(a)) } else { (first, last) };
        let bytes = i128::from(self.element_bytes);
        low.saturating_mul(bytes)..high.saturating_mul(bytes)
    }
}

/// A parallel loop.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Region {
    /// Whether iterations differ.
    pub load: Load,
    /// Which use the same data.
    pub access: Access,
    /// What it uses, as far as that is declared.
    pub sections: Vec<Section>,
}

impl Region {
    /// Whether its iterations are dealt out in turn: in blocks they would be unequal, and none is known to need its neighbours.
    #[must_use]
    pub fn is_cyclic(&self) -> bool {
        self.load == Load::Variable && self.access != Access::Stencil
    }

    /// Whether tasks may go from any processor to any other, without more data being shared afterwards. Neighbours that are dealt
    /// out in turn are not together in any case.
    #[must_use]
    pub fn moves_freely(&self) -> bool {
        self.access == Access::Independent || self.is_cyclic()
    }

    /// The array by which iterations are placed: the first that is written, else the first; of those in which each iteration
    /// has a place of its own.
    #[must_use]
    pub fn main(&self) -> Option<&Section> {
        let mut placed = self.sections.iter().filter(|s| s.bytes_per_iteration() > 0);
        placed.clone().find(|s| s.used == Use::Writes).or_else(|| placed.next())
    }

    /// Of each array in which iterations have places of their own, the section that is the nearest to that of [`Region::main`]:
    /// what an iteration uses of its neighbours is theirs.
    pub fn placed(&self) -> impl Iterator<Item = &Section> {
        let at = |s: &Section| i128::from(s.constant) / i128::from(s.coefficient);
        let main = self.main().map_or(0, at);
        let distance = move |s: &Section| (at(s) - main).abs();
        let places = move |s: &&Section| s.bytes_per_iteration() > 0;
        let all = self.sections.iter().enumerate().filter(move |(_, s)| places(s));
        all.filter(move |(i, s)| {
            let same = self.sections.iter().enumerate().filter(|(_, o)| places(o));
            let mut same = same.filter(|(_, o)| o.array == s.array);
            same.all(|(j, o)| (distance(s), *i) <= (distance(o), j))
        })
        .map(|(_, s)| s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_where_the_data_of_iterations_are() {
        let rows = Section {
            array: ArrayId(0),
            used: Use::Writes,
            element_bytes: 8,
            coefficient: 100,
            constant: 5,
        };
        assert_eq!(rows.bytes(&(0..3)), 40..2_440);
        assert_eq!(rows.bytes(&(1..2)), 840..1_640);
        assert_eq!(rows.bytes_per_iteration(), 800);
        // `A[99 - i]`: iteration 0 has the last of a hundred.
        let backwards = Section { coefficient: -1, constant: 99, element_bytes: 4, ..rows };
        assert_eq!(backwards.bytes(&(0..1)), 396..400);
        assert_eq!(backwards.bytes(&(0..100)), 0..400);
        assert_eq!(backwards.bytes_per_iteration(), 4);
        let huge = Section { coefficient: i64::MIN, element_bytes: u64::MAX, ..rows };
        assert!(huge.bytes(&(0..u64::MAX)).start < 0);
    }

    #[test]
    fn what_is_written_places_the_iterations() {
        let section = |array, used| Section {
            array: ArrayId(array),
            used,
            element_bytes: 8,
            coefficient: 1,
            constant: 0,
        };
        let mut region = Region {
            sections: vec![section(1, Use::Reads), section(2, Use::Writes)],
            ..Region::default()
        };
        assert_eq!(region.main().map(|s| s.array), Some(ArrayId(2)));
        region.sections.pop();
        assert_eq!(region.main().map(|s| s.array), Some(ArrayId(1)));
        assert_eq!(Region::default().main(), None);
        // A sum that all iterations write to says nothing of where they are.
        region.sections[0].coefficient = 0;
        assert_eq!(region.main(), None);
        // Nothing is known: neighbours stay together.
        assert!(!region.is_cyclic() && !region.moves_freely());
    }

    /// Section 2.4: blocks where the load is fixed or the access a stencil, in turn otherwise. Would catch: a triangle of which nobody
    /// has said what its rows share, divided into blocks.
    #[test]
    fn what_varies_is_dealt_out_in_turn_unless_it_is_a_stencil() {
        for (load, access, in_turn, freely) in [
            (Load::Fixed, Access::Independent, false, true),
            (Load::Fixed, Access::Stencil, false, false),
            (Load::Fixed, Access::Unknown, false, false),
            (Load::Variable, Access::Independent, true, true),
            (Load::Variable, Access::Stencil, false, false),
            (Load::Variable, Access::Unknown, true, true),
        ] {
            let region = Region { load, access, ..Region::default() };
            let found = (region.is_cyclic(), region.moves_freely());
            assert_eq!(found, (in_turn, freely), "{load:?}, {access:?}");
        }
    }
}

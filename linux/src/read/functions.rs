//! The functions of a file, of which each is gone through when a thread was seen in it: most of a large file is never needed.

use crate::modules::read;
use evenly_spins::{Functions, Machine, Spin, innermost};
use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A function that is longer is left out.
const LONGEST: u64 = 16 << 20;
/// No call is longer, in bytes.
const LONGEST_CALL: usize = 8;

/// Size, and seconds and nanoseconds at which it was changed last.
type Changed = (u64, i64, i64);

/// What is known of the functions of a file.
pub struct InFile {
    /// None for one that cannot be read. When its processes have ended, it may be out of reach.
    file: Option<File>,
    /// With when the file was changed last, as was found there then.
    functions: OnceCell<(Functions, Option<Changed>)>,
    /// By where a function begins: where threads wait in it.
    spins: RefCell<HashMap<u64, Vec<Spin>>>,
}

impl InFile {
    /// Of this file.
    #[must_use]
    pub fn new(file: Option<File>) -> Self {
        Self { file, functions: OnceCell::new(), spins: RefCell::default() }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    fn functions(&self) -> &Functions {
        let found = self.functions.get_or_init(|| {
            let changed = self.changed();
            let bytes = self.file().and_then(read);
            let found = bytes.and_then(|bytes| careful(|| Functions::of(&bytes).ok()).flatten());
            (found.filter(|f| f.machine() == Machine::HOST).unwrap_or_default(), changed)
        });
        &found.0
    }

    fn changed(&self) -> Option<Changed> {
        let metadata = self.file()?.metadata().ok()?;
        Some((metadata.len(), metadata.ctime(), metadata.ctime_nsec()))
    }

    /// None of a file that was written since its functions were looked for.
    fn code(&self, function: &Range<u64>) -> Option<Vec<u8>> {
        let length = Some(function.end - function.start).filter(|length| *length <= LONGEST)?;
        let mut code = vec![0; usize::try_from(length).ok()?];
        self.file()?.read_exact_at(&mut code, function.start).ok()?;
        (self.functions.get()?.1 == self.changed()).then_some(code)
    }

    /// Where in the file that loop is in which threads wait who were seen at this place of the file; None where they do not.
    #[must_use]
    pub fn spin_at(&self, place: u64) -> Option<u64> {
        let function = self.functions().around(place)?;
        let mut all = self.spins.borrow_mut();
        let spins = all.entry(function.start).or_insert_with(|| {
            let code = self.code(function);
            let found = code.and_then(|c| careful(|| self.functions().spins(function, &c)));
            found.unwrap_or_default()
        });
        Some(innermost(spins, place)?.offset)
    }

    /// Where threads wait in the functions that were gone through.
    #[must_use]
    pub fn spins(&self) -> Vec<Spin> {
        self.spins.borrow().values().flatten().cloned().collect()
    }

    /// The last byte of the call that returns to this place; None where there is none before it.
    #[must_use]
    pub fn call_before(&self, place: u64) -> Option<u64> {
        let mut code = [0; LONGEST_CALL];
        self.file()?.read_exact_at(&mut code, place.checked_sub(LONGEST_CALL as u64)?).ok()?;
        careful(|| Machine::HOST.is_some_and(|host| host.end_in_call(&code)))?.then(|| place - 1)
    }

    /// Loops around these places that may wait, of which that is not proved.
    #[must_use]
    pub fn doubtful(&self, places: &[u64]) -> Vec<Spin> {
        let mut functions: Vec<_> =
            places.iter().filter_map(|at| self.functions().around(*at)).collect();
        functions.sort_unstable_by_key(|f| f.start);
        functions.dedup();
        let of = |function: &Range<u64>| {
            let code = self.code(function)?;
            careful(|| self.functions().doubtful(function, &code, places))
        };
        functions.into_iter().filter_map(of).flatten().collect()
    }
}

/// Nothing is known of what the decoder cannot stand.
fn careful<T>(look: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(look)).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use evenly_spins::Module;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[inline(never)]
    fn waits(flag: &AtomicBool) {
        while !flag.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    }

    /// Would catch: loops that are found where a whole file is gone through, and not where one function is.
    #[test]
    fn one_function_has_the_loops_that_the_whole_file_has_there() {
        waits(&AtomicBool::new(true));
        let exe = std::env::current_exe().unwrap();
        let whole = Module::of(&std::fs::read(&exe).unwrap()).unwrap();
        let in_file = InFile::new(File::open(&exe).ok());
        assert!(!whole.spins.is_empty() && in_file.spins().is_empty());
        for spin in &whole.spins {
            let expected = whole.spin_at(spin.turn.start).unwrap().offset;
            assert_eq!(in_file.spin_at(spin.turn.start), Some(expected));
        }
        let mut spins = in_file.spins();
        spins.sort_by_key(|spin| spin.offset);
        assert_eq!(spins, whole.spins);
        let none = InFile::new(None);
        assert!(none.spin_at(whole.spins[0].offset).is_none() && none.spins().is_empty());
    }

    /// Would catch: places of the functions of one build in the code of the next.
    #[test]
    fn of_a_file_that_is_written_meanwhile_nothing_more_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("copy");
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        let whole = Module::of(&std::fs::read(&copy).unwrap()).unwrap();
        let in_file = InFile::new(File::open(&copy).ok());
        let starts = whole.spins.iter().map(|spin| spin.turn.start);
        let functions: std::collections::BTreeMap<u64, u64> =
            starts.map(|at| (in_file.functions().around(at).unwrap().start, at)).collect();
        let mut places = functions.into_values();
        assert!(in_file.spin_at(places.next().unwrap()).is_some());
        File::options().append(true).open(&copy).unwrap().write_all(b"more").unwrap();
        assert!(in_file.spin_at(places.next().unwrap()).is_none());
    }
}

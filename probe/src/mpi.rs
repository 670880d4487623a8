//! Which MPI a command uses: what the programs among its words are linked against, and whose launcher
//! it begins with.

use crate::ProbeError;
pub use crate::flavour::Flavour;
use object::Endianness;
use object::elf::{DT_NEEDED, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use object::read::{ReadCache, ReadRef};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What was found out about a command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Used {
    /// The MPI of the first program among its words that is linked against one.
    pub program: Option<Flavour>,
    /// The MPI whose launcher it begins with.
    pub launcher: Option<Flavour>,
    /// The directory of that launcher, where its compiler may be.
    pub beside: Option<PathBuf>,
}

impl Used {
    /// Looks at the words of a command.
    ///
    /// # Errors
    /// Where launcher and program do not belong together.
    pub fn of(command: &[OsString]) -> Result<Self, ProbeError> {
        let linked = command.iter().find_map(|word| Some((word, flavour_of(&found(word)?)?)));
        let begins = command.first().and_then(|word| Some((word, launcher(word)?)));
        if let (Some((program, of_program)), Some((launcher, of_launcher))) = (linked, begins)
            && of_program != of_launcher
        {
            return Err(ProbeError::Mixed {
                program: program.to_string_lossy().into_owned(),
                of_program,
                launcher: launcher.to_string_lossy().into_owned(),
                of_launcher,
            });
        }
        Ok(Self {
            program: linked.map(|(_, flavour)| flavour),
            launcher: begins.map(|(_, flavour)| flavour),
            beside: begins
                .and_then(|(word, _)| Some(found(word)?.parent()?.to_owned()))
                .filter(|dir| !dir.as_os_str().is_empty()),
        })
    }

    /// The MPI that it uses, as far as that is known.
    #[must_use]
    pub fn flavour(&self) -> Option<Flavour> {
        self.program.or(self.launcher)
    }
}

/// The file that a word of a command names: as it is, or found by PATH.
pub(crate) fn found(word: &OsStr) -> Option<PathBuf> {
    let is_file = |path: &Path| path.is_file();
    if word.is_empty() {
        return None;
    }
    if word.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(word)).filter(|path| is_file(path));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(word))
        .find(|path| is_file(path))
        // Launchers look in the working directory, too.
        .or_else(|| Some(PathBuf::from(word)).filter(|path| is_file(path)))
}

/// The MPI that a program is linked against: None where it is no program, or linked against none.
fn flavour_of(program: &Path) -> Option<Flavour> {
    let file = ReadCache::new(File::open(program).ok()?);
    linked(&file)
}

/// The same of what the program's file holds.
pub(crate) fn linked<'d>(file: impl ReadRef<'d>) -> Option<Flavour> {
    needed(file)?.into_iter().find_map(|name| Flavour::of_library(std::str::from_utf8(name).ok()?))
}

/// Names of the libraries that a program's file names.
pub(crate) fn needed<'d>(file: impl ReadRef<'d>) -> Option<Vec<&'d [u8]>> {
    let elf = FileHeader64::<Endianness>::parse(file).ok()?;
    let endian = elf.endian().ok()?;
    let sections = elf.sections(endian, file).ok()?;
    let (entries, link) = sections.dynamic(endian, file).ok()??;
    let strings = sections.strings(endian, file, link).ok()?;
    let needed = entries.iter().filter(|entry| entry.tag32(endian) == Some(DT_NEEDED));
    Some(needed.filter_map(|entry| strings.get(entry.val32(endian)?).ok()).collect())
}

/// The MPI whose launcher this is.
pub(crate) fn launcher(word: &OsStr) -> Option<Flavour> {
    let name = Path::new(word).file_name()?.to_str()?;
    if !["mpirun", "mpiexec", "orterun", "prterun"].iter().any(|l| name.starts_with(l)) {
        return None;
    }
    let output = Command::new(word).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Flavour::of_version(&(text(&output.stdout) + &text(&output.stderr)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn libraries_and_launchers_tell() {
        use Flavour::{Mpich, OpenMpi};
        for (library, flavour) in [
            ("libmpi.so.40", Some(OpenMpi)),
            ("libmpi.so.12", Some(Mpich)),
            ("libmpi.so.1", Some(OpenMpi)),
            ("libmpich.so.12", Some(Mpich)),
            ("libmpichfort.so.12", Some(Mpich)),
            ("libmpi_mpifh.so.40", Some(OpenMpi)),
            ("libc.so.6", None),
            ("libmpi", None),
        ] {
            assert_eq!(Flavour::of_library(library), flavour, "{library}");
        }
        assert_eq!(Flavour::of_version("mpirun (Open MPI) 4.1.4\n"), Some(OpenMpi));
        assert_eq!(Flavour::of_version("HYDRA build details:\n    Version: 4.0.2"), Some(Mpich));
        assert_eq!(Flavour::of_version("slurm 23"), None);
    }

    #[test]
    fn what_is_no_program_of_mpi_tells_nothing() {
        // This very test is an ELF file, and uses no MPI.
        let me = std::env::current_exe().unwrap();
        assert_eq!(flavour_of(&me), None);
        let dir = tempfile::tempdir().unwrap();
        let cut = dir.path().join("cut");
        fs::write(&cut, &fs::read(&me).unwrap()[..4000]).unwrap();
        assert_eq!(flavour_of(&cut), None);
        assert_eq!(flavour_of(dir.path()), None);
        assert_eq!(Used::of(&["true".into(), "mpirun".into()]).unwrap(), Used::default());
        assert_eq!(Used::of(&[]).unwrap(), Used::default());
    }

    #[test]
    fn a_launcher_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let mpirun = dir.path().join("mpirun");
        let text = "#!/bin/sh\n[ \"$1\" = --version ] && echo 'HYDRA build details:'\n";
        evenly_testing::script(&mpirun, text);
        let used = Used::of(&[mpirun.into(), "-n".into(), "2".into(), "./a".into()]).unwrap();
        assert_eq!((used.program, used.launcher), (None, Some(Flavour::Mpich)));
        assert_eq!(
            (used.flavour(), used.beside),
            (Some(Flavour::Mpich), Some(dir.path().to_owned()))
        );
    }
}

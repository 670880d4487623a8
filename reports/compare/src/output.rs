//! The standard output of a run: kept in an unlinked temporary file, with its digest.
//!
//! Why a file and no pipe: the reader of a pipe would take CPU time from the run that is being
//! measured, and a descendant that keeps the pipe open would hold up the comparison.
//!
//! Invariant: bytes and digest are those at the moment of the run's end; what a straggler appends
//! later is never looked at.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

const CHUNK: usize = 64 * 1024;
/// How much of a differing line is shown.
const EXCERPT: usize = 60;

/// What a run wrote to standard output.
#[derive(Debug)]
pub struct Output {
    file: File,
    bytes: u64,
    sha256: String,
}

/// Where two outputs part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Offset of the first differing byte, from 0. Where one output is the beginning of the other,
    /// the length of the shorter one.
    pub byte: u64,
    /// Line of that byte, from 1.
    pub line: u64,
    /// That line in the first output, from its differing byte on, shortened and escaped.
    pub first: String,
    /// The same of the second output.
    pub second: String,
}

impl Output {
    /// Takes what the file holds now, from its beginning.
    ///
    /// # Errors
    /// Where the file cannot be read.
    pub fn of_file(file: File) -> io::Result<Self> {
        let bytes = file.metadata()?.len();
        let mut digest = Sha256::new();
        let mut reader = Reader { file: &file, at: 0 }.take(bytes);
        let mut chunk = vec![0; CHUNK];
        loop {
            match reader.read(&mut chunk)? {
                0 => break,
                n => digest.update(&chunk[..n]),
            }
        }
        let sha256 = digest.finalize().iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        Ok(Self { file, bytes, sha256 })
    }

    /// An output of these bytes, for executors that start no process.
    ///
    /// # Errors
    /// Where no temporary file can be made.
    pub fn of_bytes(bytes: &[u8]) -> io::Result<Self> {
        let mut file = tempfile::tempfile()?;
        file.write_all(bytes)?;
        Self::of_file(file)
    }

    /// SHA-256 in hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }

    /// How many bytes were written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reads the output from its beginning, without touching the file's own offset.
    pub fn reader(&self) -> impl Read + '_ {
        Reader { file: &self.file, at: 0 }.take(self.bytes)
    }

    /// The first difference to another output; None where they are equal.
    ///
    /// # Errors
    /// Where one of them cannot be read.
    pub fn difference(&self, other: &Self) -> io::Result<Option<Difference>> {
        if self.bytes == other.bytes && self.sha256 == other.sha256 {
            return Ok(None);
        }
        let mut byte = 0;
        let mut line = 1;
        let (mut a, mut b) = (self.reader(), other.reader());
        let (mut left, mut right) = (Vec::new(), Vec::new());
        loop {
            left.clear();
            right.clear();
            a.by_ref().take(CHUNK as u64).read_to_end(&mut left)?;
            b.by_ref().take(CHUNK as u64).read_to_end(&mut right)?;
            let same = left.iter().zip(&right).take_while(|(x, y)| x == y).count();
            line += left[..same].iter().filter(|&&c| c == b'\n').count() as u64;
            byte += same as u64;
            if same < left.len() || same < right.len() {
                break;
            }
            if left.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(Difference {
            byte,
            line,
            first: self.excerpt(byte)?,
            second: other.excerpt(byte)?,
        }))
    }

    fn excerpt(&self, from: u64) -> io::Result<String> {
        let mut bytes = Vec::new();
        let left = self.bytes.saturating_sub(from).min(EXCERPT as u64);
        Reader { file: &self.file, at: from }.take(left).read_to_end(&mut bytes)?;
        let line = bytes.split(|&c| c == b'\n').next().unwrap_or_default();
        Ok(match (line.is_empty(), bytes.is_empty()) {
            (_, true) => "its end".to_owned(),
            (true, _) => "the end of the line".to_owned(),
            _ => format!("\"{}\"", line.escape_ascii()),
        })
    }
}

/// Reads at an offset of its own: the file's offset is shared with the processes that write it.
struct Reader<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Reader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read_at(buffer, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bytes: &[u8]) -> Output {
        Output::of_bytes(bytes).unwrap()
    }

    #[test]
    fn digest_is_the_published_one() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            of(b"abc").sha256(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(of(b"").bytes(), 0);
    }

    #[test]
    fn names_the_first_differing_byte_and_line() {
        let d = of(b"one\ntwo\nthree").difference(&of(b"one\ntwo\nthrow")).unwrap().unwrap();
        assert_eq!((d.byte, d.line), (11, 3));
        assert_eq!((d.first.as_str(), d.second.as_str()), ("\"ee\"", "\"ow\""));
    }

    #[test]
    fn a_beginning_differs_from_the_whole() {
        let d = of(b"one\n").difference(&of(b"one\ntwo")).unwrap().unwrap();
        assert_eq!((d.byte, d.line), (4, 2));
        assert_eq!((d.first.as_str(), d.second.as_str()), ("its end", "\"two\""));
        let d = of(b"").difference(&of(b"\n")).unwrap().unwrap();
        assert_eq!((d.byte, d.line, d.second.as_str()), (0, 1, "the end of the line"));
    }

    #[test]
    fn differences_beyond_the_first_chunk_are_found() {
        let mut a = vec![b'\n'; 3 * CHUNK + 5];
        let b = of(&a);
        assert_eq!(of(&a).difference(&b).unwrap(), None);
        a[2 * CHUNK + 1] = 0xff;
        let d = of(&a).difference(&b).unwrap().unwrap();
        assert_eq!((d.byte, d.line), (2 * CHUNK as u64 + 1, 2 * CHUNK as u64 + 2));
        assert!(d.first.starts_with("\"\\xff"), "{}", d.first);
    }
}

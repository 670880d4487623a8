//! Bytes and lines of a file, within limits.
//!
//! Invariant: no more than [`MOST_BYTES`] of a file are read, and no more than a line of it is held.

use crate::error::InputError;
use std::io::{self, BufRead, BufReader, Read};

/// Most bytes that are read of one file: 1 GiB.
pub const MOST_BYTES: u64 = 1 << 30;

/// Most bytes of a line where lines are read one by one.
const LONGEST_LINE: usize = 1 << 16;

/// A reader that ends with an error where more than so many bytes come.
pub(crate) struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Bounded<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, left: MOST_BYTES }
    }
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return match self.inner.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(io::Error::other(format!(
                    "it is longer than {} MiB, the most that is read",
                    MOST_BYTES >> 20
                ))),
            };
        }
        let most = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut buffer[..most])?;
        self.left -= read as u64;
        Ok(read)
    }
}

/// Text as the CSV reader counts its lines best: carriage returns are left out, and the last line
/// ends as the others do.
pub(crate) struct Clean<R> {
    inner: Bounded<R>,
    last: u8,
    ended: bool,
}

impl<R: Read> Clean<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner: Bounded::new(inner), last: b'\n', ended: false }
    }
}

impl<R: Read> Read for Clean<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.ended {
            return Ok(0);
        }
        loop {
            let read = self.inner.read(buffer)?;
            if read == 0 {
                self.ended = true;
                if self.last == b'\n' {
                    return Ok(0);
                }
                buffer[0] = b'\n';
                return Ok(1);
            }
            let mut kept = 0;
            for at in 0..read {
                if buffer[at] != b'\r' {
                    buffer[kept] = buffer[at];
                    kept += 1;
                }
            }
            if kept > 0 {
                self.last = buffer[kept - 1];
                return Ok(kept);
            }
        }
    }
}

/// The lines of a text file, with their numbers.
pub(crate) struct Lines<'a, R> {
    file: &'a str,
    reader: BufReader<Bounded<R>>,
    bytes: Vec<u8>,
    number: u64,
}

impl<'a, R: Read> Lines<'a, R> {
    pub(crate) fn new(file: &'a str, inner: R) -> Self {
        let reader = BufReader::with_capacity(1 << 16, Bounded::new(inner));
        Self { file, reader, bytes: Vec::new(), number: 0 }
    }

    /// The next line without its end, and its number from 1; None at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, &str)>, InputError> {
        self.bytes.clear();
        let mut line = self.reader.by_ref().take(LONGEST_LINE as u64 + 1);
        let read = line
            .read_until(b'\n', &mut self.bytes)
            .map_err(|e| InputError::unreadable(self.file, &e))?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        if read > LONGEST_LINE {
            let what = format!("the line is longer than {LONGEST_LINE} bytes");
            return Err(InputError::at(self.file, self.number, what));
        }
        match std::str::from_utf8(&self.bytes) {
            Ok(text) => Ok(Some((self.number, text.trim()))),
            Err(_) => Err(InputError::at(self.file, self.number, "this is no text in UTF-8")),
        }
    }

    /// Something is wrong with the line that was read last.
    pub(crate) fn wrong(&self, what: impl std::fmt::Display) -> InputError {
        InputError::at(self.file, self.number.max(1), what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.0.len().min(buffer.len()).min(1);
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn text_is_cleaned() {
        for (given, clean) in
            [("", ""), ("a", "a\n"), ("a\n", "a\n"), ("a\r\nb\r\n\r", "a\nb\n"), ("\r\r", "")]
        {
            let (mut whole, mut slow) = (String::new(), String::new());
            Clean::new(given.as_bytes()).read_to_string(&mut whole).unwrap();
            Clean::new(Slow(given.as_bytes())).read_to_string(&mut slow).unwrap();
            assert_eq!((whole.as_str(), slow.as_str()), (clean, clean));
        }
    }

    #[test]
    fn files_without_an_end_are_left() {
        let mut endless = Bounded { inner: io::repeat(b'x'), left: 100_000 };
        let said = io::copy(&mut endless, &mut io::sink()).unwrap_err().to_string();
        assert_eq!(said, "it is longer than 1024 MiB, the most that is read");
        let mut exact = Bounded { inner: &b"abc"[..], left: 3 };
        assert_eq!(io::copy(&mut exact, &mut io::sink()).unwrap(), 3);
        let mut lines = Lines::new("f", io::repeat(b'x'));
        let said = lines.next().unwrap_err().to_string();
        assert_eq!(said, "f, line 1: the line is longer than 65536 bytes");
    }

    #[test]
    fn lines_have_numbers() {
        let mut lines = Lines::new("f", &b"a\r\n\n c \nd"[..]);
        let mut all = Vec::new();
        while let Some((number, text)) = lines.next().unwrap() {
            all.push((number, text.to_owned()));
        }
        let all: Vec<(u64, &str)> = all.iter().map(|(n, t)| (*n, t.as_str())).collect();
        assert_eq!(all, [(1, "a"), (2, ""), (3, "c"), (4, "d")]);
        assert_eq!(lines.wrong("x").to_string(), "f, line 4: x");
        let mut lines = Lines::new("f", &b"a\n\xff\n"[..]);
        lines.next().unwrap();
        let said = lines.next().unwrap_err().to_string();
        assert_eq!(said, "f, line 2: this is no text in UTF-8");
    }
}

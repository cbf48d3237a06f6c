//! Parsing of request lines.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::failure::{Failure, STATUSES};

/// Request: its name and arguments. Arguments are bytes, because they may be file names.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: String,
    pub(super) words: Vec<Vec<u8>>,
    /// Arguments of the request, in the original's notation.
    pub(super) usage: &'static str,
}

/// Option of a request and its value, if any.
pub(super) type Opt<'r> = (char, &'r [u8]);

impl Request {
    /// Parses a line. Returns `None` for empty lines and comments. Arguments may be quoted; quotation marks inside are
    /// doubled.
    pub(super) fn parse(line: &[u8]) -> Result<Option<Self>, Failure> {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return Ok(None);
        }
        let mut words = Vec::new();
        let mut rest = line;
        while !rest.is_empty() {
            let word;
            (word, rest) = match rest.strip_prefix(b"\"") {
                Some(inside) => quoted(inside)?,
                None => {
                    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
                    (rest[..end].to_vec(), &rest[end..])
                }
            };
            rest = rest.trim_ascii_start();
            words.push(word);
        }
        let name = String::from_utf8_lossy(&words.remove(0)).into_owned();
        Ok(Some(Self { name, words, usage: "" }))
    }

    /// Creates a failure that starts with the name of the request.
    pub(super) fn failed(&self, why: impl std::fmt::Display) -> Failure {
        STATUSES.failed(format_args!("{}: {why}", self.name))
    }

    /// Creates the failure for invalid arguments.
    pub(super) fn wrong_words(&self) -> Failure {
        self.failed(format_args!("Usage: {} {}", self.name, self.usage))
    }

    /// Creates the failure for an option of the original that is not supported.
    pub(super) fn refused(&self, option: &str, why: &str) -> Failure {
        self.failed(format_args!("{option} is not supported: {why}"))
    }

    /// Returns the arguments if there are exactly `N`.
    pub(super) fn exactly<const N: usize>(&self) -> Result<[&[u8]; N], Failure> {
        let words = self.words.iter().map(Vec::as_slice).collect::<Vec<_>>();
        words.try_into().map_err(|_| self.wrong_words())
    }

    /// Returns the arguments if there are `least` to `most`.
    pub(super) fn between(&self, least: usize, most: usize) -> Result<Vec<&[u8]>, Failure> {
        match self.words.len() {
            len if len >= least && len <= most => {
                Ok(self.words.iter().map(Vec::as_slice).collect())
            }
            _ => Err(self.wrong_words()),
        }
    }

    /// Separates options from arguments like getopt(3). `letters` are options without value, `valued` those with one.
    pub(super) fn options(
        &self,
        letters: &str,
        valued: &str,
    ) -> Result<(Vec<Opt<'_>>, Vec<&[u8]>), Failure> {
        let (mut options, mut rest) = (Vec::new(), Vec::new());
        let mut words = self.words.iter();
        while let Some(word) = words.next() {
            let Some(joined) = word.strip_prefix(b"-").filter(|joined| !joined.is_empty()) else {
                rest.push(word.as_slice());
                continue;
            };
            if joined == b"-" {
                rest.extend(words.by_ref().map(Vec::as_slice));
                break;
            }
            for (at, &byte) in joined.iter().enumerate() {
                let letter = char::from(byte);
                if letters.contains(letter) {
                    options.push((letter, &b""[..]));
                    continue;
                }
                if !valued.contains(letter) {
                    let why = format_args!("invalid option -- '{letter}'");
                    return Err(self.failed(format_args!("{why}\n{}", self.wrong_words().message)));
                }
                let behind = &joined[at + 1..];
                let value =
                    if behind.is_empty() { words.next().map(Vec::as_slice) } else { Some(behind) };
                options.push((letter, value.ok_or_else(|| self.wrong_words())?));
                break;
            }
        }
        Ok((options, rest))
    }

    /// Parses a number. `what` names it in the failure.
    pub(super) fn number(&self, what: &str, word: &[u8]) -> Result<u64, Failure> {
        let number = std::str::from_utf8(word).ok().and_then(crate::fields::number);
        number.ok_or_else(|| self.failed(format_args!("Bad {what} - {}", shown(word))))
    }

    /// Returns an argument as text, which must be UTF-8.
    pub(super) fn text<'w>(&self, word: &'w [u8]) -> Result<&'w str, Failure> {
        std::str::from_utf8(word)
            .map_err(|_| self.failed(format_args!("{} is not UTF-8", shown(word))))
    }
}

/// Returns an argument escaped for messages.
pub(super) fn shown(word: &[u8]) -> String {
    diskwright::text::escaped(word).to_string()
}

/// Converts an argument to a host path.
#[cfg(unix)]
pub(super) fn host_path(word: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    OsStr::from_bytes(word).into()
}

/// Converts an argument to a host path. Invalid UTF-8 is replaced.
#[cfg(not(unix))]
pub(super) fn host_path(word: &[u8]) -> PathBuf {
    OsStr::new(&*String::from_utf8_lossy(word)).into()
}

/// Returns the quoted argument and the rest of the line.
fn quoted(text: &[u8]) -> Result<(Vec<u8>, &[u8]), Failure> {
    let mut word = Vec::new();
    let mut rest = text;
    loop {
        let Some(end) = rest.iter().position(|&byte| byte == b'"') else {
            return Err(STATUSES.failed("debugfs: a quotation mark is not closed"));
        };
        word.extend_from_slice(&rest[..end]);
        let behind = &rest[end + 1..];
        match behind.strip_prefix(b"\"") {
            Some(behind) => {
                word.push(b'"');
                rest = behind;
            }
            None => return Ok((word, behind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Request {
        Request::parse(line.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn words_may_have_spaces_in_quotation_marks() {
        let request = parse("  write \"a b\" \"say \"\"so\"\"\"  c ");
        assert_eq!(request.name, "write");
        assert_eq!(request.words, [&b"a b"[..], b"say \"so\"", b"c"]);
        assert!(request.exactly::<2>().unwrap_err().message.contains("Usage: write"));
        assert!(Request::parse(b"# write").unwrap().is_none());
        assert!(Request::parse(b" ").unwrap().is_none());
        assert!(Request::parse(b"cat \"x").is_err());
        assert_eq!(Request::parse(b"cat a\xff").unwrap().unwrap().words, [b"a\xff"]);
    }

    #[test]
    fn options_are_those_of_getopt() {
        let request = parse("ls -lf7 dir -d -f 8 -- -x");
        let (options, rest) = request.options("ld", "f").unwrap();
        assert_eq!(options, [('l', &b""[..]), ('f', b"7"), ('d', b""), ('f', b"8")]);
        assert_eq!(rest, [&b"dir"[..], b"-x"]);
        assert!(request.options("l", "f").unwrap_err().message.contains("invalid option -- 'd'"));
        assert!(parse("ls -f").options("", "f").is_err());
    }
}

//! `debugfs`: the requests that scripts make.
//!
//! A request that fails prints the phrase that the original prints, and the status stays 0: scripts create directories that
//! may exist, and remove files that may not. `--strict`, or `DISKWRIGHT_DEBUGFS_STRICT=1` in the environment, makes the
//! status report failures.

mod change;
mod look;
mod phrases;
mod request;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use diskwright::fs::Image;
use vfs::Ino;

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::words::{Word, Words};
use phrases::{NOT_FOUND, failed};
use request::Request;

/// Environment variable that does what `--strict` does.
const STRICT: &str = "DISKWRIGHT_DEBUGFS_STRICT";
/// Internal letter of the long option `--strict`.
const STRICT_LETTER: char = '!';

/// Requests one after the other, on one image.
struct Session {
    path: PathBuf,
    is_writable: bool,
    /// The image, when it is open.
    image: Option<Image>,
    /// The directory that paths start from that have no slash at their start.
    directory: Vec<u8>,
    /// What was said to be the current time, in seconds since 1970.
    now: Option<i64>,
}

#[derive(Default)]
struct Wish {
    image: Option<PathBuf>,
    is_writable: bool,
    is_strict: bool,
    request: Option<String>,
    file: Option<PathBuf>,
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let Some(wish) = read(arguments)? else {
        return Ok(invoked.version());
    };
    let path = wish.image.ok_or_else(|| STATUSES.usage("name an image"))?;
    let is_writable = wish.is_writable;
    let mut session = Session { path, is_writable, image: None, directory: Vec::new(), now: None };
    let mut status = 0;
    if let Err(failure) = session.image() {
        report("debugfs", &failure);
        status = failure.status;
    }
    let is_echoed = wish.request.is_none() && wish.file.is_some();
    let lines: Box<dyn Iterator<Item = io::Result<String>>> = match (wish.request, wish.file) {
        (Some(request), _) => Box::new(std::iter::once(Ok(request))),
        (None, Some(file)) if file.as_os_str() != "-" => {
            let file = fs::File::open(&file)
                .map_err(|e| STATUSES.failed(format_args!("{}: {e}", file.display())))?;
            Box::new(io::BufReader::new(file).lines())
        }
        (None, _) => Box::new(io::stdin().lock().lines()),
    };
    let mut is_unknown = false;
    for line in lines {
        let line = line.map_err(|e| STATUSES.failed(e))?;
        if is_echoed {
            say(format_args!("debugfs: {line}"));
        }
        match session.carry_out(&line) {
            Ok(Next::Request) => {}
            Ok(Next::End) => break,
            Ok(Next::Unknown(name)) => {
                report("debugfs", &STATUSES.failed(format_args!("Command not found {name}")));
                is_unknown = true;
            }
            Err((name, failure)) => {
                report(&name, &failure);
                status = failure.status;
            }
        }
    }
    // A failure to write the changes is reported without `--strict`, too.
    session.close()?;
    session.stamp()?;
    Ok(if wish.is_strict || is_unknown { status.max(u8::from(is_unknown)) } else { 0 })
}

/// Prints a failure. A reader that has gone away does not matter.
fn report(name: &str, failure: &Failure) {
    let _ = writeln!(io::stderr(), "{name}: {}", failure.message);
}

/// What follows a request.
enum Next {
    /// The next one.
    Request,
    /// The end: no more requests are read.
    End,
    /// The next one, although no request has this name.
    Unknown(String),
}

/// `None` if only the version is asked for.
fn read(arguments: Vec<OsString>) -> Result<Option<Wish>, Failure> {
    let mut words = Words::new(arguments, STATUSES).with_long(&[("strict", STRICT_LETTER)]);
    let mut wish =
        Wish { is_strict: env::var(STRICT).is_ok_and(|value| value == "1"), ..Wish::default() };
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut wish.image, path)?,
            Word::Option(STRICT_LETTER) => wish.is_strict = true,
            Word::Option('w') => wish.is_writable = true,
            Word::Option('R') => wish.request = Some(words.text()?),
            Word::Option('f') => wish.file = Some(words.path()?),
            Word::Option('V') => return Ok(None),
            // Everything is read when it is needed, and nothing is believed that has a wrong checksum.
            Word::Option('c' | 'D') => {}
            Word::Option('b' | 's') => {
                return Err(words.refused("copies of the superblock are for repairs: e2fsck"));
            }
            Word::Option('n') => {
                return Err(
                    words.refused("checksums are always verified: diskwright dump reads without")
                );
            }
            Word::Option('d' | 'i') => return Err(words.refused("images of e2image are not read")),
            Word::Option('z') => {
                return Err(words.refused("the journal makes each change whole or not at all"));
            }
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    Ok(Some(wish))
}

impl Session {
    /// The image, which is opened when it is first asked for.
    fn image(&mut self) -> Result<&Image, Failure> {
        if self.image.is_none() {
            let opened = match self.is_writable {
                true => Image::open_writable(&self.path),
                false => Image::open(&self.path),
            };
            self.image = Some(opened.map_err(failed)?);
        }
        self.image.as_ref().ok_or_else(|| STATUSES.failed("no image is open"))
    }

    /// Closes it, so that all changes are in their places.
    fn close(&mut self) -> Result<(), Failure> {
        self.image.take().map_or(Ok(()), Image::close).map_err(failed)
    }

    /// Carries out a line. A failure comes with the name of the request.
    fn carry_out(&mut self, line: &str) -> Result<Next, (String, Failure)> {
        let parsed =
            Request::parse(line).map_err(|why| ("debugfs".to_owned(), STATUSES.failed(why)));
        let Some(request) = parsed? else { return Ok(Next::Request) };
        if matches!(&*request.name, "quit" | "q" | "exit") {
            return Ok(Next::End);
        }
        let known = self.look(&request).and_then(|known| Ok(known || self.change(&request)?));
        match known {
            Ok(true) => Ok(Next::Request),
            Ok(false) => Ok(Next::Unknown(request.name)),
            Err(failure) => Err((request.name, failure)),
        }
    }

    /// Returns the path that a word of a request means: `<INODE>` is any file by its number.
    fn path_of(&mut self, word: &str) -> Result<Vec<u8>, Failure> {
        let inode = word.strip_prefix('<').and_then(|word| word.strip_suffix('>'));
        if let Some(inode) = inode.and_then(|inode| inode.parse().ok()) {
            let path = self.image()?.path_of(Ino(inode)).map_err(failed)?;
            return path.ok_or_else(|| {
                STATUSES.failed(format_args!("{NOT_FOUND}: no directory has a name for {word}"))
            });
        }
        Ok(match word.strip_prefix('/') {
            Some(_) => word.as_bytes().to_vec(),
            None => [&self.directory, &b"/"[..], word.as_bytes()].concat(),
        })
    }
}

//! `debugfs`: the requests that scripts make.

mod change;
mod look;
mod request;

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead};
use std::path::PathBuf;

use diskwright::fs::Image;

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::Invoked;
use crate::words::{Word, Words};
use request::Request;

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
    session.image()?;
    let lines: Box<dyn Iterator<Item = io::Result<String>>> = match (wish.request, wish.file) {
        (Some(request), _) => Box::new(std::iter::once(Ok(request))),
        (None, Some(file)) if file.as_os_str() != "-" => {
            let file = fs::File::open(&file)
                .map_err(|e| STATUSES.failed(format_args!("{}: {e}", file.display())))?;
            Box::new(io::BufReader::new(file).lines())
        }
        (None, _) => Box::new(io::stdin().lock().lines()),
    };
    let mut status = 0;
    for line in lines {
        let line = line.map_err(|e| STATUSES.failed(e))?;
        match session.carry_out(&line) {
            Ok(true) => {}
            Ok(false) => break,
            Err(failure) => {
                // What follows is carried out all the same, and the status tells.
                let _ = io::Write::write_all(
                    &mut io::stderr(),
                    format!("debugfs: {}\n", failure.message).as_bytes(),
                );
                status = failure.status;
            }
        }
    }
    session.close()?;
    session.stamp()?;
    Ok(status)
}

/// `None` if only the version is asked for.
fn read(arguments: Vec<OsString>) -> Result<Option<Wish>, Failure> {
    let mut words = Words::new(arguments, STATUSES);
    let mut wish = Wish::default();
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut wish.image, path)?,
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
            self.image = Some(opened.map_err(|e| STATUSES.of(&e))?);
        }
        self.image.as_ref().ok_or_else(|| STATUSES.failed("no image is open"))
    }

    /// Closes it, so that all changes are in their places.
    fn close(&mut self) -> Result<(), Failure> {
        self.image.take().map_or(Ok(()), Image::close).map_err(|e| STATUSES.of(&e))
    }

    /// Whether to go on.
    fn carry_out(&mut self, line: &str) -> Result<bool, Failure> {
        let Some(request) = Request::parse(line).map_err(|why| STATUSES.failed(why))? else {
            return Ok(true);
        };
        if matches!(&*request.name, "quit" | "q" | "exit") {
            return Ok(false);
        }
        if !self.look(&request)? && !self.change(&request)? {
            return Err(STATUSES.refused(&request.name, "debugfs itself may know it"));
        }
        Ok(true)
    }

    /// A path of the image as it is written in a request: `<2>` is the root.
    fn path_of(&self, word: &str) -> Result<Vec<u8>, Failure> {
        if word == "<2>" {
            return Ok(b"/".to_vec());
        }
        if word.starts_with('<') {
            return Err(STATUSES.refused(word, "name the file by its path"));
        }
        Ok(match word.strip_prefix('/') {
            Some(_) => word.as_bytes().to_vec(),
            None => [&self.directory, &b"/"[..], word.as_bytes()].concat(),
        })
    }
}

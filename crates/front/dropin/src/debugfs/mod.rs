//! `debugfs`: the requests of the original.
//!
//! A failed request prints the original's message, and the exit status remains 0, because scripts create directories
//! that may exist and remove files that may not. With `--strict`, or `DISKWRIGHT_DEBUGFS_STRICT=1` in the environment,
//! the status reports failures.

mod bitmaps;
mod blocks;
mod change;
mod contents;
mod directory;
mod hex;
mod htree;
mod inode_fields;
mod listing;
mod logdump;
mod names;
mod owners;
mod phrases;
mod request;
mod session;
mod space;
mod stat;
mod superblock;
mod table;
mod xattrs;

use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say_bytes};
use crate::supported;
use crate::target::ImageTarget;
use crate::words::{Word, Words};
use request::Request;
use session::DebugSession;

pub(crate) use table::supported as supported_requests;

/// Environment variable equivalent to `--strict`.
const STRICT: &str = "DISKWRIGHT_DEBUGFS_STRICT";

#[derive(Default)]
struct Options {
    image: Option<ImageTarget>,
    is_writable: bool,
    is_strict: bool,
    request: Option<OsString>,
    file: Option<PathBuf>,
    /// `-z`.
    undo: Option<PathBuf>,
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let Some(mut options) = read(arguments)? else {
        return Ok(invoked.version());
    };
    let undo = options.undo.take();
    if let (Some(image), Some(undo)) = (&mut options.image, &undo) {
        image.begin_undo(undo, STATUSES)?;
    }
    let image = options.image.clone();
    let ended = carry_out_all(options);
    if let Some(image) = image {
        image.finish_undo(undo.as_deref(), STATUSES)?;
    }
    ended
}

fn carry_out_all(options: Options) -> Ended {
    let mut session = DebugSession::new();
    let mut status = 0;
    if let Some(image) = options.image
        && let Err(failure) = session.open(image, options.is_writable)
    {
        report(&STATUSES.failed(format_args!("debugfs: {}", failure.message)));
        status = failure.status;
    }
    let is_echoed = options.request.is_none() && options.file.is_some();
    let mut is_unknown = false;
    for line in lines(options.request, options.file)? {
        let line = line.map_err(|e| STATUSES.failed(e))?;
        if is_echoed {
            say_bytes(&[b"debugfs: ", &*line, b"\n"].concat());
        }
        match carry_out(&mut session, &line) {
            Ok(Next::Request) => {}
            Ok(Next::End) => break,
            Ok(Next::Unknown(name)) => {
                report(&STATUSES.failed(format_args!("debugfs: Command not found {name}")));
                is_unknown = true;
            }
            Err(failure) => {
                report(&failure);
                status = failure.status;
            }
        }
    }
    // A failure to write changes is reported even without `--strict`.
    session.close()?;
    Ok(if options.is_strict || is_unknown { status.max(u8::from(is_unknown)) } else { 0 })
}

/// Lines of requests.
type Lines = Box<dyn Iterator<Item = io::Result<Vec<u8>>>>;

fn lines(request: Option<OsString>, file: Option<PathBuf>) -> Result<Lines, Failure> {
    Ok(match (request, file) {
        (Some(request), _) => Box::new(std::iter::once(Ok(request.into_encoded_bytes()))),
        (None, Some(file)) if file.as_os_str() != "-" => {
            let file = fs::File::open(&file)
                .map_err(|e| STATUSES.failed(format_args!("{}: {e}", file.display())))?;
            Box::new(io::BufReader::new(file).split(b'\n'))
        }
        (None, _) => Box::new(io::stdin().lock().split(b'\n')),
    })
}

/// Prints a failure. Errors of standard error are ignored.
fn report(failure: &Failure) {
    let _ = writeln!(io::stderr(), "{}", diskwright::text::safe(&failure.message));
}

/// Action after a request.
enum Next {
    /// Continue with the next request.
    Request,
    /// Stop reading requests.
    End,
    /// Continue after an unknown request.
    Unknown(String),
}

/// Parses the options. Returns `None` if only the version was requested.
fn read(arguments: Vec<OsString>) -> Result<Option<Options>, Failure> {
    let mut words = Words::new(arguments, STATUSES, &supported::DEBUGFS);
    let is_strict = env::var(STRICT).is_ok_and(|value| value == "1");
    let mut image = None;
    let mut options = Options { is_strict, ..Options::default() };
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option(supported::STRICT) => options.is_strict = true,
            Word::Option('w') => options.is_writable = true,
            Word::Option('R') => options.request = Some(words.value()?),
            Word::Option('f') => options.file = Some(words.path()?),
            Word::Option('V') => return Ok(None),
            // Data is always read on demand and checksums are always verified.
            Word::Option('c' | 'D') => {}
            Word::Option('b' | 's') => {
                return Err(words.refused("backup superblocks are for repairs; use e2fsck"));
            }
            Word::Option('n') => {
                return Err(words.refused(
                    "checksums are always verified; use diskwright dump to read without",
                ));
            }
            Word::Option('d' | 'i') => {
                return Err(words.refused("images of e2image cannot be read"));
            }
            Word::Option('z') => options.undo = Some(words.path()?),
            Word::Option(_) => return Err(words.unknown()),
        }
    }
    options.image = image.map(|image| ImageTarget::parse(image.into(), STATUSES)).transpose()?;
    Ok(Some(options))
}

/// Executes a line.
fn carry_out(session: &mut DebugSession, line: &[u8]) -> Result<Next, Failure> {
    let Some(mut request) = Request::parse(line)? else { return Ok(Next::Request) };
    if matches!(&*request.name, "quit" | "q" | "exit") {
        return Ok(Next::End);
    }
    if let Some(why) = table::refusal(&request.name) {
        return Err(request.failed(format_args!("not supported: {why}")));
    }
    let Some(known) = table::find(&request.name) else {
        return Ok(Next::Unknown(request.name));
    };
    request.usage = known.usage;
    if known.changes && !matches!(&*request.words, [only] if only == b"-l") {
        if !known.accepts(request.words.len()) {
            return Err(request.wrong_words());
        }
        session.check_writable(&request)?;
    }
    (known.run)(session, &request).map(|()| Next::Request)
}

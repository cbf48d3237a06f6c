//! `xfs_admin`.

use std::ffi::OsString;
use std::path::Path;

use diskwright::{Image, OpenImage};

use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::words::{Word, Words};

/// The label that stands for none.
const NO_LABEL: &[u8] = b"--";

/// Longest label of XFS.
const LABEL_BYTES_MAX: usize = 12;

#[derive(Default)]
struct Wish {
    label: Option<Vec<u8>>,
    shows_label: bool,
    shows_uuid: bool,
}

pub(crate) fn run(arguments: Vec<OsString>, invoked: &Invoked) -> Ended {
    let mut words = Words::new(arguments, STATUSES);
    let mut wish = Wish::default();
    let mut image = None;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option('V') => return Ok(invoked.version()),
            Word::Option(letter) => wish.option(letter, &mut words)?,
        }
    }
    let image = words.named(image)?;
    if !(wish.label.is_some() || wish.shows_label || wish.shows_uuid) {
        return Err(STATUSES.usage("say what to do: -l, -u or -L"));
    }
    wish.follow(&image)?;
    Ok(0)
}

impl Wish {
    fn option(&mut self, letter: char, words: &mut Words) -> Result<(), Failure> {
        match letter {
            'l' => self.shows_label = true,
            'u' => self.shows_uuid = true,
            'L' => {
                let label = words.bytes()?;
                if label.len() > LABEL_BYTES_MAX {
                    return Err(words.wrong(format_args!("has at most {LABEL_BYTES_MAX} bytes")));
                }
                self.label = Some(label);
            }
            // It is the image's own file.
            'f' => {}
            'U' => {
                return Err(words.refused(
                    "all metadata carry the UUID: diskwright convert --uuid makes the file system anew",
                ));
            }
            'j' | 'p' | 'e' => return Err(words.refused("version 5 has it")),
            'c' | 'O' => {
                return Err(words.refused(
                    "diskwright convert --features makes the file system anew with others",
                ));
            }
            'r' => {
                return Err(words.refused("a file system with a real-time device is not changed"));
            }
            _ => return Err(words.unknown()),
        }
        Ok(())
    }

    /// Changes first, then shows.
    fn follow(&self, path: &Path) -> Result<(), Failure> {
        let opened = Image::open_rootless(path, &OpenImage::default().norecovery(true));
        let info = opened.map_err(|e| STATUSES.failed(e))?.info().clone();
        if info.format != "xfs" {
            return Err(STATUSES.failed(format_args!(
                "{} holds {}, not XFS",
                path.display(),
                info.format
            )));
        }
        let mut label = info.label;
        if let Some(new) = &self.label {
            let new = if new == NO_LABEL { b"" } else { &**new };
            set_label(path, new)?;
            label = String::from_utf8_lossy(new).into_owned();
        }
        if self.shows_label || self.label.is_some() {
            say(format_args!(
                "{} = \"{label}\"",
                if self.label.is_some() { "new label" } else { "label" }
            ));
        }
        if self.shows_uuid {
            say(format_args!("UUID = {}", info.uuid));
        }
        Ok(())
    }
}

fn set_label(path: &Path, label: &[u8]) -> Result<(), Failure> {
    let failed = |e: diskwright::Error| STATUSES.failed(e);
    let image = diskwright::fs::Image::open_writable(path).map_err(failed)?;
    image.set_label(label).map_err(failed)?;
    image.close().map_err(failed)
}

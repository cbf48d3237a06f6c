//! Arguments of blkid.

use std::ffi::OsString;
use std::path::PathBuf;

use super::STATUSES;
use super::probe::Tag;
use crate::failure::Failure;
use crate::size;
use crate::supported;
use crate::words::{Word, Words};

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Full,
    Value,
    Export,
    Udev,
    Device,
}

/// Parsed arguments.
#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) images: Vec<PathBuf>,
    pub(super) form: Form,
    pub(super) only_version: bool,
    /// Names of the properties to show; empty for all.
    names: Vec<String>,
    /// Types to accept (true) or to exclude (false).
    types: Option<(bool, Vec<String>)>,
    pub(super) is_low_level: bool,
    /// Usages to accept (true) or to exclude (false).
    usages: Option<(bool, Vec<String>)>,
    /// Byte offset of the image.
    pub(super) offset: u64,
}

impl Args {
    /// Returns whether the type of an image is accepted.
    pub(super) fn wants(&self, tags: &[Tag]) -> bool {
        let usage = tags.iter().find(|tag| tag.name == "USAGE");
        if let (Some((only, usages)), Some(usage)) = (&self.usages, usage)
            && usages.iter().any(|name| name.as_bytes() == usage.value) != *only
        {
            return false;
        }
        let Some((only, types)) = &self.types else { return true };
        let found = tags.iter().find(|tag| tag.name == "TYPE");
        found.is_none_or(|found| types.iter().any(|name| name.as_bytes() == found.value) == *only)
    }

    /// Returns the properties to show.
    pub(super) fn chosen(&self, tags: Vec<Tag>) -> Vec<Tag> {
        let is_shown = |tag: &Tag| {
            let is_here = self.is_low_level || self.form == Form::Udev || !tag.is_low_level;
            is_here && (self.names.is_empty() || self.names.iter().any(|name| name == tag.name))
        };
        tags.into_iter().filter(is_shown).collect()
    }
}

/// Parses the arguments.
pub(super) fn read(arguments: Vec<OsString>) -> Result<Args, Failure> {
    let mut args = Args::default();
    let mut words = Words::new(arguments, STATUSES, &supported::BLKID);
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(image) => args.images.push(image.into()),
            Word::Option(letter) => args.option(letter, &mut words)?,
        }
    }
    if args.images.is_empty() && !args.only_version {
        return Err(STATUSES.usage("no image given; devices of the host are not searched"));
    }
    Ok(args)
}

impl Args {
    fn option(&mut self, letter: char, words: &mut Words) -> Result<(), Failure> {
        match letter {
            'p' => self.is_low_level = true,
            's' => self.names.push(words.text()?),
            'o' => {
                self.form = match &*words.text()? {
                    "full" => Form::Full,
                    "value" => Form::Value,
                    "export" => Form::Export,
                    "udev" => Form::Udev,
                    "device" => Form::Device,
                    "list" => return Err(words.refused("it is for terminals only: use full")),
                    _ => return Err(words.wrong("must be full, value, export, udev or device")),
                }
            }
            'n' => {
                let list = words.text()?;
                self.types = Some(only(&list));
            }
            'u' => {
                let list = words.text()?;
                self.usages = Some(only(&list));
            }
            'O' => self.offset = words.by(size::bytes)?,
            'V' => self.only_version = true,
            // Images are always read, and there is no cache.
            'c' | 'w' => drop(words.value()?),
            'd' | 'g' | 'D' => {}
            'i' | 'k' => return Err(words.refused("only file systems are searched")),
            'l' | 'L' | 'U' | 't' => {
                return Err(words.refused("devices of the host are not searched; add an image"));
            }
            'S' => return Err(words.refused("an image is always searched completely")),
            'H' => {
                return Err(
                    words.refused("there is no information about an image except its contents")
                );
            }
            'h' => return Err(words.refused("see man blkid for the options")),
            _ => return Err(words.unknown()),
        }
        Ok(())
    }
}

/// Parses a list of accepted values or, with the prefix `no`, excluded ones. Each excluded value may have the prefix
/// too.
fn only(list: &str) -> (bool, Vec<String>) {
    let (is_only, list) = list.strip_prefix("no").map_or((true, list), |rest| (false, rest));
    let name = |name: &str| {
        if is_only { name } else { name.strip_prefix("no").unwrap_or(name) }.to_owned()
    };
    (is_only, list.split(',').map(name).collect())
}

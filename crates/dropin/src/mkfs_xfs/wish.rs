//! What the arguments of mkfs.xfs ask for.

use std::ffi::OsString;
use std::path::PathBuf;

use diskwright::build::{BuildSource, FeatureChange, ProtofileSource};

use crate::failure::{Failure, STATUSES};
use crate::lists::{self, Item};
use crate::size::{self, Size};
use crate::words::{Word, Words};

/// Bytes of a block unless `-b` says otherwise.
const BLOCK_BYTES: u32 = 4096;

/// Everything that can be asked for.
#[derive(Debug, Default)]
pub(super) struct Wish {
    pub(super) image: PathBuf,
    pub(super) bytes: Option<u64>,
    pub(super) source: Option<BuildSource>,
    pub(super) block_size: Option<u32>,
    pub(super) sector_size: Option<u32>,
    pub(super) dir_block_size: Option<u32>,
    pub(super) ag_count: Option<u32>,
    pub(super) inodes_percent: Option<u8>,
    pub(super) label: Option<Vec<u8>>,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) features: Vec<FeatureChange>,
    pub(super) is_forced: bool,
    pub(super) is_quiet: bool,
    pub(super) is_trial: bool,
    pub(super) only_version: bool,
    inode_size: Option<u32>,
    inodes_per_block: Option<u32>,
    ag_size: Option<Size>,
    log_size: Option<Size>,
    data_size: Option<Size>,
}

/// Reads the arguments.
pub(super) fn read(arguments: Vec<OsString>) -> Result<Wish, Failure> {
    let mut wish = Wish::default();
    let mut words = Words::new(arguments, STATUSES);
    let mut named = None;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(operand) => words.only(&mut named, operand)?,
            Word::Option(letter) => wish.option(letter, &mut words, &mut named)?,
        }
    }
    match named {
        Some(image) => wish.image = image,
        None if wish.only_version => {}
        None => return Err(STATUSES.usage("name the image to make")),
    }
    wish.bytes = wish.data_size.map(|size| wish.in_bytes(size)).transpose()?;
    Ok(wish)
}

impl Wish {
    fn option(
        &mut self,
        letter: char,
        words: &mut Words,
        named: &mut Option<PathBuf>,
    ) -> Result<(), Failure> {
        match letter {
            'b' | 's' | 'd' | 'i' | 'n' | 'l' | 'm' => {
                let list = words.text()?;
                for item in lists::items(&list, letter, STATUSES) {
                    match letter {
                        'b' => self.block(&item)?,
                        's' => self.sector(&item)?,
                        'd' => self.data(&item, named)?,
                        'i' => self.inode(&item)?,
                        'n' => self.naming(&item)?,
                        'l' => self.log(&item)?,
                        _ => self.metadata(&item)?,
                    }
                }
            }
            'L' => self.label = Some(words.bytes()?),
            'p' => self.source = Some(source(words)?),
            'f' => self.is_forced = true,
            'q' => self.is_quiet = true,
            'N' => self.is_trial = true,
            'V' => self.only_version = true,
            // What is not in use is not in the file.
            'K' => {}
            'r' => return Err(words.refused("a file system with a real-time device is not made")),
            'c' => return Err(words.refused("write the options themselves")),
            _ => return Err(words.unknown()),
        }
        Ok(())
    }

    fn block(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.block_size = Some(item.by(small)?),
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn sector(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.sector_size = Some(item.by(small)?),
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn data(&mut self, item: &Item<'_>, named: &mut Option<PathBuf>) -> Result<(), Failure> {
        match item.name {
            "size" => self.data_size = Some(item.by(size::parse_xfs)?),
            "agcount" => self.ag_count = Some(item.by(number)?),
            "agsize" => self.ag_size = Some(item.by(size::parse_xfs)?),
            "name" => *named = Some(item.text()?.into()),
            "sectsize" => self.sector_size = Some(item.by(small)?),
            // It is a file, or may be one.
            "file" | "noalign" | "concurrency" => drop(item.value()),
            "sunit" | "swidth" | "su" | "sw" => {
                return Err(item.refused("nothing is laid out in stripes"));
            }
            "max_atomic_write" => {
                return Err(item.refused("groups are as large as the size calls for"));
            }
            "rtinherit" | "projinherit" | "extszinherit" | "cowextsize" | "daxinherit" => {
                return Err(item.refused("set the attribute on the root directory afterwards"));
            }
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn inode(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.inode_size = Some(item.by(small)?),
            "perblock" => self.inodes_per_block = Some(item.by(number)?),
            "maxpct" => {
                let percent = item.by(number)?;
                let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
                self.inodes_percent = Some(percent.ok_or_else(|| item.wrong("is at most 100"))?);
            }
            "sparse" | "nrext64" | "exchange" => self.switch(item)?,
            "align" => always(item, true)?,
            "attr" if item.text()? == "2" => {}
            "projid32bit" => always(item, true)?,
            "attr" => return Err(item.refused("version 5 has attributes of version 2")),
            "max_atomic_write" => {
                return Err(item.refused("groups are as large as the size calls for"));
            }
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn naming(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.dir_block_size = Some(item.by(small)?),
            "ftype" => always(item, true)?,
            "parent" => self.switch(item)?,
            "version" => match item.text()? {
                "2" => {}
                "ci" => self.features.push(FeatureChange { name: "ascii-ci".into(), is_on: true }),
                _ => return Err(item.wrong("is 2 or ci")),
            },
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn log(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.log_size = Some(item.by(size::parse_xfs)?),
            "internal" => always(item, true)?,
            "lazy-count" => always(item, true)?,
            "version" if item.text()? == "2" => {}
            "version" => return Err(item.refused("version 5 has logs of version 2")),
            "concurrency" => drop(item.value()),
            "agnum" | "logdev" | "name" | "su" | "sunit" | "sectsize" => {
                return Err(item.refused("the log lies in the image, where the program puts it"));
            }
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn metadata(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        match item.name {
            "uuid" => {
                let parsed = uuid::Uuid::try_parse(item.text()?).map(uuid::Uuid::into_bytes);
                self.uuid = Some(parsed.map_err(|_| item.wrong("is no UUID"))?);
            }
            "crc" => always(item, true)?,
            "finobt" | "rmapbt" | "reflink" | "inobtcount" | "bigtime" => self.switch(item)?,
            "autofsck" | "metadir" => always(item, false)?,
            "uquota" | "uqnoenforce" | "gquota" | "gqnoenforce" | "pquota" | "pqnoenforce" => {
                return Err(item.refused("quotas are turned on by an option of the mount"));
            }
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn switch(&mut self, item: &Item<'_>) -> Result<(), Failure> {
        self.features.push(FeatureChange { name: item.name.into(), is_on: item.switch()? });
        Ok(())
    }

    /// The size of an inode in bytes.
    pub(super) fn inode_size(&self) -> Result<Option<u32>, Failure> {
        match (self.inode_size, self.inodes_per_block) {
            (Some(_), Some(_)) => Err(STATUSES.usage("-i size and -i perblock exclude each other")),
            (None, Some(0)) => Err(STATUSES.usage("-i perblock is at least 2")),
            (None, Some(count)) => Ok(Some(self.block_bytes() / count)),
            (size, None) => Ok(size),
        }
    }

    /// The size of an allocation group in bytes.
    pub(super) fn ag_bytes(&self) -> Result<Option<u64>, Failure> {
        if self.ag_size.is_some() && self.ag_count.is_some() {
            return Err(STATUSES.usage("-d agsize and -d agcount exclude each other"));
        }
        self.ag_size.map(|size| self.in_bytes(size)).transpose()
    }

    /// The size of the log in bytes.
    pub(super) fn log_bytes(&self) -> Result<Option<u64>, Failure> {
        self.log_size.map(|size| self.in_bytes(size)).transpose()
    }

    fn block_bytes(&self) -> u32 {
        self.block_size.unwrap_or(BLOCK_BYTES)
    }

    /// Numbers alone count bytes.
    fn in_bytes(&self, size: Size) -> Result<u64, Failure> {
        let bytes = match size {
            Size::Blocks(blocks) => blocks.checked_mul(self.block_bytes().into()),
            size => size.bytes(1),
        };
        bytes.ok_or_else(|| STATUSES.usage("the size is too large"))
    }
}

/// What cannot be chosen.
fn always(item: &Item<'_>, is_on: bool) -> Result<(), Failure> {
    if item.switch()? == is_on {
        return Ok(());
    }
    Err(item.refused(if is_on { "it is always on" } else { "it is always off" }))
}

fn small(text: &str) -> Result<u32, String> {
    u32::try_from(size::bytes(text)?).map_err(|_| "it is too large".into())
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "write a number".into())
}

/// A directory or a prototype file, and after a comma what else is to be known of it.
fn source(words: &mut Words) -> Result<BuildSource, Failure> {
    let path = words.path()?;
    if path.exists() {
        return Ok(named(path, false));
    }
    let text = path.to_string_lossy().into_owned();
    let Some((file, list)) = text.split_once(',') else { return Ok(named(path, false)) };
    let mut slashes_are_spaces = false;
    for item in lists::items(list, 'p', STATUSES) {
        match item.name {
            "slashes_are_spaces" => slashes_are_spaces = item.switch()?,
            // Times of last access are those of the files.
            "atime" if item.switch()? => {}
            "atime" => return Err(item.refused("times of last access are copied")),
            _ => return Err(item.unknown()),
        }
    }
    Ok(named(file.into(), slashes_are_spaces))
}

/// What is there by this name. Anything but a directory is a prototype file.
fn named(file: PathBuf, slashes_are_spaces: bool) -> BuildSource {
    match file.is_dir() {
        true => BuildSource::Files(file),
        false => BuildSource::Protofile(ProtofileSource { file, slashes_are_spaces }),
    }
}

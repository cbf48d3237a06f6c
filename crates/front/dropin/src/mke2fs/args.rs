//! Arguments of mke2fs.

use std::ffi::OsString;
use std::path::PathBuf;

use diskwright::build::{FeatureChange, Position};

use super::extended::{self, Extended};
use crate::failure::{Failure, STATUSES};
use crate::journal_device;
use crate::lists;
use crate::size::{self, Size};
use crate::supported;
use crate::target::ImageTarget;
use crate::words::{Word, Words};

/// Parsed arguments.
#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) image: PathBuf,
    pub(super) size: Option<Size>,
    pub(super) source: Option<PathBuf>,
    pub(super) block_size: Option<BlockSize>,
    /// `-C`: cluster size in bytes.
    pub(super) cluster_bytes: Option<u64>,
    /// `-g`: blocks per group.
    pub(super) group_blocks: Option<u64>,
    /// `-G`: number of groups whose bitmaps and tables are stored together.
    pub(super) flex_groups: Option<u32>,
    pub(super) inode_size: Option<u32>,
    pub(super) bytes_per_inode: Option<u64>,
    pub(super) inodes: Option<u64>,
    pub(super) label: Option<Vec<u8>>,
    pub(super) last_mounted: Option<Vec<u8>>,
    pub(super) uuid: Option<UuidWish>,
    pub(super) reserved_percent: Option<f64>,
    pub(super) features: Vec<FeatureChange>,
    /// `-e`: error behaviour of the kernel, as stored in the superblock.
    pub(super) errors: Option<u16>,
    pub(super) has_journal: bool,
    pub(super) journal_bytes: Option<u64>,
    /// `-J device`: device that contains the journal.
    pub(super) journal_device: Option<PathBuf>,
    pub(super) journal_at: Option<Position>,
    pub(super) fast_commit_bytes: Option<u64>,
    pub(super) kind: Option<String>,
    pub(super) uses: Vec<String>,
    pub(super) extended: Extended,
    /// Lists from which `extended` was parsed.
    pub(super) lists: Vec<String>,
    /// Device test: 1 reads, 2 writes and reads.
    pub(super) test: u8,
    /// Remarks to print at the start.
    pub(super) remarks: Vec<String>,
    pub(super) is_quiet: bool,
    pub(super) is_forced: bool,
    pub(super) is_trial: bool,
    pub(super) only_version: bool,
}

/// Block size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockSize {
    /// Explicit size.
    Given(u32),
    /// Default size, but at least this one.
    AtLeast(u32),
}

/// UUID of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UuidWish {
    /// Random UUID.
    Random,
    /// Explicit UUID.
    Given([u8; 16]),
}

/// Parses the arguments.
pub(super) fn read(arguments: Vec<OsString>) -> Result<Args, Failure> {
    let mut args = Args::default();
    let mut words = Words::new(arguments, STATUSES, &supported::MKE2FS);
    let mut operands = Vec::new();
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(operand) => operands.push(operand),
            Word::Option(letter) => args.option(letter, &mut words)?,
        }
    }
    let mut operands = operands.into_iter();
    match (operands.next(), operands.next(), operands.next()) {
        (Some(image), size, None) => {
            args.place(ImageTarget::parse(image, STATUSES)?)?;
            args.size = size.map(|text| image_size(&text)).transpose()?;
        }
        (None, ..) if args.only_version => {}
        (None, ..) => {
            return Err(STATUSES.usage("no image given: add its name, and its size after it"));
        }
        (.., Some(extra)) => {
            let extra = extra.to_string_lossy();
            return Err(STATUSES.usage(format_args!("unexpected argument after the size: {extra}")));
        }
    }
    Ok(args)
}

impl Args {
    /// Sets the image. Both its name and `-E offset` may contain the offset.
    fn place(&mut self, image: ImageTarget) -> Result<(), Failure> {
        let offset = &mut self.extended.offset;
        if image.offset > 0 && *offset > 0 && image.offset != *offset {
            return Err(STATUSES.usage(format_args!(
                "-E offset={offset} and ?offset={} in the name differ; use only one of them",
                image.offset
            )));
        }
        *offset = image.offset.max(*offset);
        self.image = image.path;
        Ok(())
    }
}

fn image_size(text: &OsString) -> Result<Size, Failure> {
    let text = text.to_string_lossy();
    size::parse(&text).map_err(|why| STATUSES.usage(format_args!("size {text}: {why}")))
}

impl Args {
    fn option(&mut self, letter: char, words: &mut Words) -> Result<(), Failure> {
        match letter {
            'b' => {
                let size = block_size(words)?;
                if let BlockSize::Given(size) | BlockSize::AtLeast(size) = size
                    && size > PAGE_BYTES
                {
                    self.remarks
                        .push(format!("Warning: blocksize {size} not usable on most systems."));
                }
                self.block_size = Some(size);
            }
            'I' => self.inode_size = Some(words.parsed()?),
            'i' => self.bytes_per_inode = Some(words.by(size::bytes)?),
            'N' => self.inodes = Some(words.parsed()?).filter(|&count: &u64| count > 0),
            'm' => self.reserved_percent = Some(reserved(words)?),
            'L' => self.label(words.bytes()?),
            'M' => self.last_mounted = Some(cut(words.bytes()?, LAST_MOUNTED_BYTES)),
            'C' => self.cluster_bytes = Some(words.by(size::bytes)?),
            'g' => self.group_blocks = Some(words.parsed()?),
            'c' => self.test = (self.test + 1).min(2),
            'U' => self.uuid = words.by(uuid)?,
            'O' => self.features.extend(words.by(features)?),
            'E' => self.extended(words.text()?)?,
            'R' => {
                self.remarks.push("-R is deprecated: write -E".into());
                self.extended(words.text()?)?;
            }
            'K' => self.remarks.push("-K is deprecated: write -E nodiscard".into()),
            't' => self.kind = Some(words.by(kind)?),
            'T' => self.uses = words.text()?.split(',').map(|word| word.trim().into()).collect(),
            'd' => self.source = Some(words.path()?),
            'j' => self.has_journal = true,
            'J' => self.journal(&words.text()?)?,
            'q' => self.is_quiet = true,
            'n' => self.is_trial = true,
            'V' => self.only_version = true,
            'r' => revision(words)?,
            'G' => self.flex_groups = Some(words.parsed()?),
            'e' => self.errors = Some(words.by(errors_behaviour)?),
            'o' => creator(words)?,
            // Progress output and direct I/O have no effect.
            'F' => self.is_forced = true,
            'v' | 'D' => {}
            _ => return Err(self.not_here(letter, words)),
        }
        Ok(())
    }

    /// Creates the failure for unsupported and unknown options.
    fn not_here(&self, letter: char, words: &Words) -> Failure {
        words.refused(match letter {
            'l' => "a bad block list is not stored; use -c to test the device",
            'S' => "to repair an image, use e2fsck",
            'z' => "old contents are not saved; copy the file first",
            _ => return words.unknown(),
        })
    }

    fn journal(&mut self, list: &str) -> Result<(), Failure> {
        for item in lists::items(list, 'J', STATUSES) {
            match item.name {
                "size" => {
                    // A number without a letter is in megabytes.
                    let bytes = |text: &str| {
                        size::parse(text)?.bytes(1 << 20).ok_or_else(|| "it is too large".into())
                    };
                    self.journal_bytes = Some(item.by(bytes)?);
                    self.has_journal = true;
                }
                "location" => self.journal_at = Some(item.by(extended::place)?),
                "fast_commit_size" => {
                    self.fast_commit_bytes = Some(item.by(extended::fast_commit_bytes)?);
                }
                "device" => {
                    self.journal_device = Some(journal_device::path(item.text()?));
                    self.has_journal = true;
                }
                _ => return Err(item.unknown()),
            }
        }
        if self.journal_device.is_some() && self.journal_bytes.is_some() {
            return Err(STATUSES.usage("-J size and -J device exclude each other"));
        }
        Ok(())
    }

    fn extended(&mut self, list: String) -> Result<(), Failure> {
        self.extended.read(&list)?;
        self.lists.push(list);
        Ok(())
    }

    /// Inserts a list before those of the arguments.
    pub(super) fn prepend(&mut self, list: &str) -> Result<(), Failure> {
        let mut extended = Extended::default();
        extended.read(list)?;
        self.lists.iter().try_for_each(|list| extended.read(list))?;
        self.extended = extended;
        Ok(())
    }

    fn label(&mut self, label: Vec<u8>) {
        if label.len() > LABEL_BYTES {
            let kept = String::from_utf8_lossy(&label[..LABEL_BYTES]);
            let remark = format!("Warning: label too long; will be truncated to '{kept}'");
            self.remarks.push(remark);
        }
        self.label = Some(cut(label, LABEL_BYTES));
    }
}

/// Maximum block size of kernels before 6.19 on most machines.
const PAGE_BYTES: u32 = 4096;
/// Sizes of the label and of the last mount directory in bytes.
const LABEL_BYTES: usize = 16;
const LAST_MOUNTED_BYTES: usize = 64;

fn cut(mut bytes: Vec<u8>, most: usize) -> Vec<u8> {
    bytes.truncate(most);
    bytes
}

/// Parses a block size; a negative one is a minimum.
fn block_size(words: &mut Words) -> Result<BlockSize, Failure> {
    let text = words.text()?;
    let size = size::bytes(text.strip_prefix('-').unwrap_or(&text));
    let size = size.map_err(|why| words.wrong(format_args!("cannot be {text}: {why}")))?;
    match size {
        size if !is_block_size(size) => Err(words.wrong(format_args!(
            "cannot be {text}: the block size must be a power of two from 1024 to 65536 bytes"
        ))),
        size if text.starts_with('-') => Ok(BlockSize::AtLeast(size as u32)),
        size => Ok(BlockSize::Given(size as u32)),
    }
}

/// Returns whether a file system can have blocks of this size.
pub(super) fn is_block_size(size: u64) -> bool {
    size.is_power_of_two() && (1 << 10..=1 << 16).contains(&size)
}

fn reserved(words: &mut Words) -> Result<f64, Failure> {
    let percent: f64 = words.parsed()?;
    if (0.0..=50.0).contains(&percent) {
        return Ok(percent);
    }
    Err(words.wrong(format_args!("must be 0 to 50 percent, not {percent}")))
}

/// Parses `random`, `time` (treated as random), `clear` (none), or hexadecimal digits.
pub(crate) fn uuid(text: &str) -> Result<Option<UuidWish>, String> {
    match text {
        "random" | "time" => Ok(Some(UuidWish::Random)),
        "clear" | "null" => Ok(Some(UuidWish::Given([0; 16]))),
        _ => {
            let parsed = uuid::Uuid::try_parse(text);
            let problem = |_| "write a UUID, random, time or clear".to_owned();
            parsed.map(|uuid| Some(UuidWish::Given(uuid.into_bytes()))).map_err(problem)
        }
    }
}

/// Parses a list of features, including alternative names.
pub(crate) fn features(list: &str) -> Result<Vec<FeatureChange>, String> {
    let words = list.split(|c: char| c == ',' || c.is_whitespace()).filter(|w| !w.is_empty());
    words
        .map(|word| {
            let mut change: FeatureChange = word.parse()?;
            if change.name == "extents" {
                change.name = "extent".into();
            }
            Ok(change)
        })
        .collect()
}

fn kind(text: &str) -> Result<String, String> {
    match text {
        "ext2" | "ext3" | "ext4" => Ok(text.into()),
        _ => Err("only ext2, ext3 and ext4 can be created".into()),
    }
}

/// Parses the revision, which must be 1 (dynamic).
fn revision(words: &mut Words) -> Result<(), Failure> {
    match words.parsed::<u32>()? {
        1 => Ok(()),
        0 => {
            Err(words
                .refused("revision 0 cannot be created; kernels have not needed it since 1999"))
        }
        other => Err(words.wrong(format_args!("must be 0 or 1, not {other}"))),
    }
}

/// Parses the error behaviour of the kernel.
pub(crate) fn errors_behaviour(text: &str) -> Result<u16, String> {
    match text {
        "continue" => Ok(1),
        "remount-ro" => Ok(2),
        "panic" => Ok(3),
        _ => Err("write continue, remount-ro or panic".into()),
    }
}

fn creator(words: &mut Words) -> Result<(), Failure> {
    match &*words.text()?.to_ascii_lowercase() {
        "linux" | "0" => Ok(()),
        _ => Err(words.refused("only file systems for Linux are supported")),
    }
}

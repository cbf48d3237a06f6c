//! `e2fsdroid`, with which Android builds fill an empty image of mke2fs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use diskwright::build::{BuildOptions, BuildSource, FeatureChange, Format};
use diskwright::output::OutputFormat;
use ext4::format::superblock::{RawSuperblock, Superblock};

use super::make_ext4fs::NO_TABLE;
use super::{FileOptions, sparse};
use crate::dumpe2fs;
use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::Invoked;
use crate::making::TargetFile;
use crate::supported;
use crate::target::ImageTarget;
use crate::words::{Word, Words};

#[derive(Default)]
struct Args {
    image: PathBuf,
    source: Option<PathBuf>,
    is_raw: bool,
    has_product: bool,
    files: FileOptions,
}

pub(crate) fn run(arguments: Vec<OsString>, _: &Invoked) -> Ended {
    let args = read(arguments)?;
    // The image is built again with its original settings and with files.
    let expanded = sparse::expanded(&args.image)?;
    let raw = expanded.as_ref().map_or(&*args.image, |file| file.path());
    let made = dumpe2fs::superblock(&ImageTarget::at(raw))?;
    refuse_files(raw, &args.image)?;
    drop(expanded);
    let options = args.options(&made)?;
    let file = TargetFile::look(&args.image, STATUSES)?;
    args.files.make(&options, &file)?;
    Ok(0)
}

fn read(arguments: Vec<OsString>) -> Result<Args, Failure> {
    let mut words = Words::new(arguments, STATUSES, &supported::E2FSDROID);
    let mut args = Args::default();
    let mut image = None;
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(path) => words.only(&mut image, path)?,
            Word::Option(letter) => args.option(letter, &mut words)?,
        }
    }
    args.image = words.named(image)?;
    if args.source.is_none() {
        return Err(STATUSES.refused(
            "e2fsdroid without -f",
            "add the directory with -f; the files of an image with contents cannot be changed",
        ));
    }
    let files = &args.files;
    let is_android =
        files.mount_point.is_some() || files.file_contexts.is_some() || args.has_product;
    if is_android && files.fs_config.is_none() {
        return Err(STATUSES.refused("-a, -S or -p without -C", NO_TABLE));
    }
    Ok(args)
}

/// Rejects an image that already contains files.
fn refuse_files(raw: &Path, image: &Path) -> Result<(), Failure> {
    let opened = diskwright::fs::Image::open(raw).map_err(|e| STATUSES.of(&e))?;
    for entry in opened.read_dir("/").map_err(|e| STATUSES.of(&e))? {
        let entry = entry.map_err(|e| STATUSES.of(&e))?;
        if entry.file_name() != b"lost+found" {
            return Err(STATUSES.failed(format_args!(
                "{} contains files already ({}); create it again with mke2fs",
                image.display(),
                entry.file_name_lossy()
            )));
        }
    }
    Ok(())
}

impl Args {
    fn option(&mut self, letter: char, words: &mut Words) -> Result<(), Failure> {
        if self.files.option(letter, words)? {
            return Ok(());
        }
        match letter {
            'f' => self.source = Some(words.path()?),
            'e' => self.is_raw = true,
            // Path for additions to Android's built-in table, which -C replaces.
            'p' => {
                words.value()?;
                self.has_product = true;
            }
            's' => return Err(words.refused("ext4 cannot share blocks")),
            'u' | 'g' => {
                return Err(words.refused("owners are taken from -C or from the directory"));
            }
            _ => return Err(words.unknown()),
        }
        Ok(())
    }

    fn options(&self, made: &Superblock) -> Result<BuildOptions, Failure> {
        let raw = &made.raw;
        let source = BuildSource::Files(self.source.clone().unwrap_or_default());
        let mut options = BuildOptions::new(source, &self.image, Format::Ext4);
        let block_size = made.block_size();
        let blocks = made.blocks_count;
        options.size = Some(blocks * u64::from(block_size));
        options.force = true;
        options.block_size = Some(block_size);
        options.inode_size = Some(made.inode_size.into());
        options.inodes = Some(made.inodes_count.into());
        options.label = Some(until_zero(&raw.volume_name).to_vec());
        options.last_mounted = Some(until_zero(&raw.last_mounted).to_vec());
        options.uuid = Some(raw.uuid);
        options.hash_seed = Some(raw.hash_seed);
        // Add half a block, so that rounding down gives the same number.
        let reserved = raw.reserved_blocks();
        let percent =
            if reserved == 0 { 0.0 } else { (reserved as f64 + 0.5) * 100.0 / blocks as f64 };
        options.reserved_percent = Some(percent);
        options.journal_bytes = journal_bytes(raw);
        options.features = features(raw);
        if !self.is_raw {
            options.output.format = OutputFormat::Sparse;
        }
        self.files.correct(&mut options, None)?;
        options.time = options.time.or(Some(i64::from(raw.mkfs_time.get())));
        Ok(options)
    }
}

/// Returns the journal size, from the copy of the journal inode in the superblock. The size is its last field.
fn journal_bytes(raw: &RawSuperblock) -> Option<u64> {
    let [.., high, low] = &raw.jnl_blocks;
    let bytes = u64::from(high.get()) << 32 | u64::from(low.get());
    Some(bytes).filter(|_| raw.journal_inum.get() != 0).filter(|bytes| *bytes > 0)
}

/// Returns exactly the features of the existing image.
fn features(raw: &RawSuperblock) -> Vec<FeatureChange> {
    let on = |name: &str| FeatureChange { name: name.to_owned(), is_on: true };
    let mut features = vec![on("none")];
    features.extend(raw.features().names().iter().map(|name| on(name)));
    features
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

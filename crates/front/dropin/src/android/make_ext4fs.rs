//! `make_ext4fs`, as called by OpenWrt and older Android builds.

use std::ffi::OsString;
use std::path::PathBuf;

use diskwright::build::{BuildOptions, BuildSource, FeatureChange, Format, Owner};
use diskwright::output::OutputFormat;

use super::FileOptions;
use crate::failure::{Ended, Failure, STATUSES};
use crate::invoked::{Invoked, say};
use crate::making::{self, TargetFile};
use crate::size;
use crate::supported;
use crate::words::{Word, Words};

/// Default block size and bytes per inode.
const BLOCK_BYTES: u32 = 4096;

/// Features of new images instead of those of mke2fs, compatible with old kernels and boot loaders.
const FEATURES: &str =
    "none,has_journal,ext_attr,resize_inode,filetype,extent,sparse_super,large_file,uninit_bg";

#[derive(Default)]
struct Args {
    image: PathBuf,
    source: Option<PathBuf>,
    bytes: Option<u64>,
    block_size: Option<u32>,
    blocks_per_group: Option<u64>,
    inodes: Option<u64>,
    inode_size: Option<u32>,
    journal_blocks: Option<u64>,
    no_journal: bool,
    reserved_percent: Option<f64>,
    label: Option<Vec<u8>>,
    is_sparse: bool,
    has_random_uuid: bool,
    files: FileOptions,
}

pub(crate) fn run(arguments: Vec<OsString>, _: &Invoked) -> Ended {
    let args = read(arguments)?;
    let file = TargetFile::look(&args.image, STATUSES)?;
    let bytes = args.bytes.or(file.bytes).filter(|bytes| *bytes > 0);
    let bytes = bytes.ok_or_else(|| {
        let image = args.image.display();
        STATUSES.failed(format_args!("{image} is empty: add -l"))
    })?;
    let options = args.options(bytes)?;
    args.files.make(&options, &file)?;
    say(format_args!("created ext4 with {bytes} bytes in {}", args.image.display()));
    Ok(0)
}

fn read(arguments: Vec<OsString>) -> Result<Args, Failure> {
    let mut words = Words::new(arguments, STATUSES, &supported::MAKE_EXT4FS);
    let mut args = Args::default();
    let mut operands = Vec::new();
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(operand) => operands.push(operand),
            Word::Option(letter) => args.option(letter, &mut words)?,
        }
    }
    let mut operands = operands.into_iter().map(PathBuf::from);
    args.image = operands.next().ok_or_else(|| STATUSES.usage("no image given"))?;
    args.source = operands.next();
    if let Some(more) = operands.next() {
        // Second directory, for Android's built-in table of owners.
        let more = more.display();
        return Err(STATUSES.usage(format_args!("unexpected argument after the directory: {more}")));
    }
    if args.files.mount_point.is_some() && args.files.fs_config.is_none() {
        return Err(STATUSES.refused("-a without -C", NO_TABLE));
    }
    Ok(args)
}

/// Error text for a missing table of owners.
pub(super) const NO_TABLE: &str =
    "the owner table of Android is not built in; pass the fs_config of the build with -C";

impl Args {
    fn option(&mut self, letter: char, words: &mut Words) -> Result<(), Failure> {
        if self.files.option(letter, words)? {
            return Ok(());
        }
        match letter {
            'l' => self.bytes = Some(words.by(size::bytes)?),
            'b' => self.block_size = Some(words.by(small)?),
            'g' => self.blocks_per_group = Some(words.by(size::bytes)?),
            'i' => self.inodes = Some(words.by(size::bytes)?).filter(|count| *count > 0),
            'I' => self.inode_size = Some(words.by(small)?),
            'j' => self.journal_blocks = Some(words.by(size::bytes)?).filter(|count| *count > 0),
            'J' => self.no_journal = true,
            'm' => self.reserved_percent = Some(words.parsed()?),
            'L' => self.label = Some(words.bytes()?),
            's' => self.is_sparse = true,
            'u' => self.has_random_uuid = true,
            // Overwriting, holes for unused blocks and no progress messages are the default.
            'f' | 'w' | 'v' => {}
            'z' => return Err(words.refused("compress the image: gzip")),
            'c' => return Err(words.refused("sparse images are written without checksums")),
            't' | 'X' => return Err(words.refused("it is only for testing the original program")),
            _ => return Err(words.unknown()),
        }
        Ok(())
    }

    fn options(&self, bytes: u64) -> Result<BuildOptions, Failure> {
        let source = match &self.source {
            Some(path) => BuildSource::Files(path.clone()),
            None => BuildSource::Several(Vec::new()),
        };
        let block_size = self.block_size.unwrap_or(BLOCK_BYTES);
        if self.blocks_per_group.is_some_and(|blocks| blocks != u64::from(block_size) * 8) {
            return Err(STATUSES
                .refused("-g", "the number of blocks per group is fixed at the bits of a block"));
        }
        let mut options = BuildOptions::new(source, &self.image, Format::Ext4);
        options.size = Some(bytes);
        options.force = true;
        options.block_size = Some(block_size);
        options.inode_size = self.inode_size;
        options.inodes = self.inodes;
        options.label.clone_from(&self.label);
        options.no_journal = self.no_journal;
        options.journal_bytes = self.journal_blocks.map(|blocks| blocks * u64::from(block_size));
        options.reserved_percent = Some(self.reserved_percent.unwrap_or(0.0));
        let features = FEATURES.split(',').map(str::parse::<FeatureChange>);
        options.features =
            features.collect::<Result<_, _>>().map_err(|why| STATUSES.failed(why))?;
        if self.is_sparse {
            options.output.format = OutputFormat::Sparse;
        }
        self.files.correct(&mut options, Some(Owner { uid: 0, gid: 0 }))?;
        options.uuid = self.has_random_uuid.then(making::random_uuid);
        Ok(options)
    }
}

fn small(text: &str) -> Result<u32, String> {
    u32::try_from(size::bytes(text)?).map_err(|_| "it is too large".into())
}

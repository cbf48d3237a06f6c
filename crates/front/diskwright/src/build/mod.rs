//! Builds an image from a directory, an archive or a container image.
//!
//! The builder fills a fresh file system without a journal through the usual file system operations, in the order of
//! the source. The same source and options give the same bytes, independent of the number of threads. The image gets
//! its name only when it is complete. An image to be replaced is locked until then, as for a change.
//!
//! ```no_run
//! use std::path::Path;
//! use diskwright::build::{BuildOptions, Format, Progress, build};
//!
//! struct Dots;
//!
//! impl Progress for Dots {
//!     fn made(&self, entries: u64, _bytes: u64) {
//!         if entries % 1000 == 0 {
//!             eprint!(".");
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), diskwright::build::BuildError> {
//! let options = BuildOptions::new(Path::new("rootfs"), "root.img", Format::Ext4).free(64 << 20);
//! let report = build(&options, &Dots)?;
//! println!("{} files in {} bytes", report.entries, report.image_bytes);
//! # Ok(()) }
//! ```

mod config;
mod convert;
mod copy;
mod corrected;
pub(crate) mod dedupe;
mod details;
mod error;
mod estimate;
mod format;
mod head_last;
mod identity;
mod image_file;
mod image_source;
mod input;
mod kept;
mod mapped;
mod options;
mod policy;
mod protect;
mod several;
mod ship;
mod size;
mod sparse;
mod target;
mod without_xattrs;
mod writer;

use std::sync::Arc;
use std::thread;

use disk::{BlockDevice, FileDevice, WindowDevice};
use import::correct::Corrections;
use import::{Source, SourceError};
use vfs::{FileSystem, StatFs, Timestamp};

use crate::output::{OutputReport, ProtectedFile};

pub use crate::format::Format;
pub use convert::{ConvertOptions, ConvertSize, convert};
pub use details::LeftOut;
pub use error::BuildError;
pub use ext4::mkfs::{Encoding, Position, Tuning};
pub use image_file::ImageFile;
pub use import::correct;
pub use import::oci::{Platform, Reference};
pub use options::{
    BuildOptions, BuildReport, BuildSource, Container, Dedupe, FeatureChange, ManifestFile, Owner,
    PlacedSource, ProtofileSource,
};
pub use xfs::mkfs::Inherited;

use config::ConfigFile;
use copy::{Copier, Destination};
use dedupe::KnownContents;
use estimate::Needed;
use format::{InodeRule, Inodes, Maker, Plan};
use head_last::HeadLast;
use identity::Identity;
use image_source::ImageTree;
use input::{ContentsUse, Input};
use kept::KeptEntries;
use policy::Policy;
use ship::Shipping;
use target::TargetFile;
use without_xattrs::WithoutXattrs;
use writer::{CreatedTotals, Writer};

use crate::clone::CloneTarget;

/// Observer of the progress of a build.
pub trait Progress: Sync {
    /// Reports the number of entries created and of content bytes.
    fn made(&self, entries: u64, bytes: u64);

    /// Reports the number of image bytes hashed or converted, after the file system is complete.
    fn shipped(&self, _bytes: u64, _of: u64) {}

    /// Returns whether to continue; called before each entry. If false, the build fails with [`BuildError::Stopped`].
    fn goes_on(&self) -> bool {
        true
    }
}

/// Builds an image.
///
/// # Errors
/// If the source, the file system or the host reports an error, or if another program uses the image to be replaced,
/// even with [`BuildOptions::force`]. No file remains under the image's name then.
pub fn build(options: &BuildOptions, progress: &dyn Progress) -> Result<BuildReport, BuildError> {
    let maker = format::maker(options)?;
    if options.map_names {
        mapped::check(&options.source)?;
    }
    check_together(options)?;
    let target = TargetFile::create(&options.image, options.force, options.in_place)?;
    let mut target = target.at(options.offset);
    let shipping = Shipping::create(options, &mut target)?;
    let config = ConfigFile::create(options)?;
    let corrections = corrected::load(options)?;
    let input = prepare(options, &*maker, &target)?;
    let corrections = corrections.as_ref();
    let build =
        Build { options, maker: &*maker, target: &target, input: &input, corrections, progress };
    let mut report = build.run().map_err(|error| match error {
        BuildError::Source(SourceError::Copy { source, .. }) => {
            BuildError::Spool { source, options: maker.single_pass_options() }
        }
        error => error,
    })?;
    let shipping = shipping.finish(&target, &mut report, progress)?;
    let config =
        config.map(|config| config.write(input.config().unwrap_or_default())).transpose()?;
    // The image is renamed last, because its name signals completion.
    config.map_or(Ok(()), ConfigFile::keep)?;
    shipping.keep()?;
    target.keep()?;
    Ok(report)
}

/// Rejects mutually exclusive options.
fn check_together(options: &BuildOptions) -> Result<(), BuildError> {
    let output = &options.output;
    if options.sparse && options.dedupe.is_some() {
        let problem = "--sparse and --dedupe exclude each other: with --dedupe, blocks of zeros \
                       are shared";
        return Err(BuildError::usage(problem));
    }
    let has_devices = options.log_device.is_some() || options.realtime_device.is_some();
    if has_devices && output.is_apart() {
        let problem = "an image with its log or realtime section on another device can only be \
                       written raw";
        return Err(BuildError::usage(problem));
    }
    if options.offset > 0 && (output.is_apart() || output.verity.is_some()) {
        let problem = "an image at an offset can only be written raw and without a hash tree";
        return Err(BuildError::usage(problem));
    }
    Ok(())
}

/// Prepares the source as far as required before the image is started.
fn prepare(
    options: &BuildOptions,
    maker: &dyn Maker,
    target: &TargetFile,
) -> Result<Input, BuildError> {
    let may_read_twice = options.size.is_none() || matches!(maker.inodes(), InodeRule::Fitted(_));
    prepare_one(&options.source, options, (maker, target), may_read_twice)
}

/// Prepares one source, or several.
fn prepare_one(
    source: &BuildSource,
    options: &BuildOptions,
    (maker, target): (&dyn Maker, &TargetFile),
    may_read_twice: bool,
) -> Result<Input, BuildError> {
    match source {
        BuildSource::Files(path) if options.map_names && path.is_dir() => {
            Ok(Input::Mapped(path.clone()))
        }
        BuildSource::Files(path) => Input::prepare(path, &options.image, may_read_twice)
            .map_err(|source| BuildError::Spool { source, options: maker.single_pass_options() }),
        BuildSource::Container(container) => {
            // A device has no directory for temporary files.
            let temporary = std::env::temp_dir();
            let beside =
                if target.is_in_place() { &temporary } else { input::beside(&options.image) };
            Ok(Input::load(container, beside, options.thread_count())?)
        }
        BuildSource::Image(file) => {
            // An image that is written in place cannot be its own source.
            let replaced = if target.is_in_place() { Vec::new() } else { target.ids()? };
            let image = ImageTree::open(file, options.format, &replaced);
            Ok(Input::Image(image.map_err(|e| BuildError::Image(Box::new(e)))?))
        }
        BuildSource::Several(sources) => {
            several::check(sources)?;
            let prepare =
                |placed: &PlacedSource| prepare_one(&placed.source, options, (maker, target), true);
            let inputs = sources.iter().map(prepare).collect::<Result<_, _>>()?;
            Ok(Input::several(sources, inputs))
        }
        BuildSource::Manifest(manifest) => {
            Ok(Input::list(manifest, options.thread_count(), time_of_image(options))?)
        }
        BuildSource::Protofile(proto) => Ok(Input::described(proto, time_of_image(options))?),
    }
}

/// Returns the default time of files without one.
fn time_of_image(options: &BuildOptions) -> import::Time {
    let Timestamp { sec, nsec } = options.image_time();
    import::Time { sec, nsec }
}

/// State of one build.
struct Build<'a> {
    options: &'a BuildOptions,
    maker: &'a dyn Maker,
    target: &'a TargetFile,
    input: &'a Input,
    corrections: Option<&'a Arc<Corrections>>,
    progress: &'a dyn Progress,
}

/// Mode of filling a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fill {
    /// All entries and contents.
    Whole,
    /// Without file contents, to measure the space required.
    Trial,
}

/// Returns the number of inodes in use. The total may depend on free space.
fn used(totals: &StatFs) -> u64 {
    totals.inodes.saturating_sub(totals.inodes_free)
}

/// Filled file system.
struct Filled {
    image_bytes: u64,
    made: CreatedTotals,
    left_out: LeftOut,
    protected: Vec<ProtectedFile>,
    /// Blocks used by the source.
    blocks: u64,
    inodes: u64,
}

/// Result of filling an image of estimated size.
enum Reckoned {
    /// The size is close enough to the minimum.
    Close(Filled),
    /// The image is too large, but its use is known.
    Known(Filled),
    /// No estimate is possible.
    Unknown,
}

impl Build<'_> {
    fn run(&self) -> Result<BuildReport, BuildError> {
        let filled = match self.size()? {
            Some(size) => self.fill_given(size)?,
            None => self.fill_smallest()?,
        };
        Ok(BuildReport {
            image_bytes: filled.image_bytes,
            entries: filled.made.entries,
            data_bytes: filled.made.bytes,
            shared_bytes: filled.made.shared,
            left_out: filled.left_out,
            corrections: self.corrections.map(|corrections| corrections.report()),
            output: OutputReport { fs_verity: filled.protected, ..OutputReport::default() },
        })
    }

    /// Returns the size of the image, or `None` if it is to be computed.
    fn size(&self) -> Result<Option<u64>, BuildError> {
        if self.options.size.is_some() || !self.target.is_device() {
            return Ok(self.options.size);
        }
        let device = self.device()?;
        Ok(Some(device.len()))
    }

    /// Fills an image of a given size. If the default number of inodes or its limit is too low, the entries are
    /// counted.
    fn fill_given(&self, size: u64) -> Result<Filled, BuildError> {
        let rule = self.maker.inodes();
        let mut source = self.open_source(ContentsUse::Read)?;
        let mut inodes = rule.first();
        if let InodeRule::Fitted(usual) = rule {
            let at_least = size::usual_or_at_least(usual, size, source.entries_min());
            // The count may exceed the maximum of such an image.
            if self.plan(size, at_least).is_ok() {
                inodes = at_least;
            }
        }
        let can_have_more = !matches!(rule, InodeRule::Chosen(_));
        let first = self.fill(size, inodes, Fill::Whole, &mut *source);
        match first {
            Err(e) if e.is_no_inodes() && can_have_more && self.input.can_be_read_again() => {
                let entries = size::count_entries(&mut *self.open_source(ContentsUse::Unread)?)?;
                let before = self.plan(size, inodes)?.inodes_max();
                let inodes = size::inodes_for(entries);
                // The layout may be impossible or have no more inodes than before.
                if !self.plan(size, inodes).is_ok_and(|plan| plan.inodes_max() > before) {
                    return Err(e);
                }
                self.fill(size, inodes, Fill::Whole, &mut *self.open_source(ContentsUse::Read)?)
            }
            other => other,
        }
    }

    /// Fills the smallest image that contains the source and the requested free space.
    fn fill_smallest(&self) -> Result<Filled, BuildError> {
        let rule = self.maker.inodes();
        let needed = match self.fill_reckoned()? {
            Reckoned::Close(filled) => return Ok(filled),
            Reckoned::Known(needed) => needed,
            Reckoned::Unknown => self.try_out()?,
        };
        let (mut blocks, mut attempt) = (needed.blocks, 0);
        let (mut size, mut inodes) = self.smallest(blocks, needed.inodes)?;
        // A trial cannot detect blocks of zeros.
        let mut may_be_large = self.options.sparse;
        loop {
            let filled =
                self.fill(size, inodes, Fill::Whole, &mut *self.open_source(ContentsUse::Read)?);
            let error = match filled {
                Err(error) => error,
                Ok(filled) => {
                    let taken = size::with_spare(filled.blocks);
                    let smaller = self.smallest(taken, filled.inodes)?;
                    if !may_be_large || size::is_close(size, smaller.0) {
                        return Ok(filled);
                    }
                    may_be_large = false;
                    (blocks, (size, inodes)) = (taken, smaller);
                    continue;
                }
            };
            let limited = error.is_no_inodes() && rule == InodeRule::OnDemand;
            if !(error.is_no_space() || limited) || attempt == size::ATTEMPTS {
                return Err(error);
            }
            let wanted = size::inodes_for(needed.inodes);
            if limited && inodes != wanted {
                // Lower than the limit, except for the reserve of inode chunks.
                inodes = wanted;
                continue;
            }
            // Smaller free extents may need more blocks to map the same files, and more groups waste more space.
            blocks += size::grow_by(blocks, attempt);
            attempt += 1;
            let limit = inodes;
            (size, inodes) = self.smallest(blocks, needed.inodes)?;
            if limit == wanted {
                inodes = limit;
            }
        }
    }

    /// Returns the smallest size for the requirements, and the inodes to request.
    fn smallest(&self, blocks: u64, needed: u64) -> Result<(u64, Inodes), BuildError> {
        let rule = self.maker.inodes();
        let inodes = match rule {
            InodeRule::Fitted(usual) => {
                size::inodes_for(needed + size::inodes_of_free(usual, self.options.free))
            }
            rule => rule.first(),
        };
        let plan = |size| self.plan(size, inodes);
        let least = self.maker.size_min().max(self.options.size_min);
        let size = size::smallest(plan, least, blocks, self.options.free)?;
        if let InodeRule::Fitted(usual) = rule
            && size.saturating_sub(self.options.size_min) < 1024
        {
            // The size is at its minimum, so the default number of inodes fits.
            let usual = size::usual_or_at_least(usual, size, needed);
            if self.plan(size, usual).is_ok_and(|plan| plan.free_blocks() >= blocks) {
                return Ok((size, usual));
            }
        }
        if rule == InodeRule::OnDemand && plan(size)?.inodes_max() < needed {
            return Ok((size, size::inodes_for(needed)));
        }
        Ok((size, inodes))
    }

    /// Reads the source once, estimates the image size and fills the image.
    fn fill_reckoned(&self) -> Result<Reckoned, BuildError> {
        let Some((needed, kept)) = self.reckon()? else { return Ok(Reckoned::Unknown) };
        // A trial reports the actual error.
        let blocks = size::with_spare(needed.blocks);
        let Ok((size, inodes)) = self.smallest(blocks, needed.inodes) else {
            return Ok(Reckoned::Unknown);
        };
        let mut source = match kept.into_source() {
            Some(source) => source,
            None => self.open_source(ContentsUse::Read)?,
        };
        let filled = match self.fill(size, inodes, Fill::Whole, &mut *source) {
            Err(e) if e.is_no_space() || e.is_no_inodes() => return Ok(Reckoned::Unknown),
            other => other?,
        };
        let smallest = self.smallest(size::with_spare(filled.blocks), filled.inodes)?.0;
        let is_close = size::is_close(size, smallest);
        Ok(if is_close { Reckoned::Close(filled) } else { Reckoned::Known(filled) })
    }

    /// Estimates the requirements of the source and keeps its entries if there are not too many. Returns `None` if no
    /// estimate is possible.
    fn reckon(&self) -> Result<Option<(Needed, KeptEntries)>, BuildError> {
        let inodes = Inodes::PerBytes(size::TRIAL_INODE_RATIO);
        let Some(mut estimate) = self.plan(size::TRIAL_BYTES[0], inodes)?.estimate() else {
            return Ok(None);
        };
        let mut source = self.open_source(ContentsUse::Unread)?;
        let mut kept = KeptEntries::new();
        while let Some(entry) = source.next_entry()? {
            self.check_goes_on()?;
            estimate.add(&entry);
            kept.add(entry);
        }
        Ok(Some((estimate.needed(), kept)))
    }

    fn check_goes_on(&self) -> Result<(), BuildError> {
        if self.progress.goes_on() { Ok(()) } else { Err(BuildError::Stopped) }
    }

    /// Fills an image that is large enough, without file contents.
    fn try_out(&self) -> Result<Filled, BuildError> {
        let mut last = None;
        for size in size::TRIAL_BYTES {
            let inodes = Inodes::PerBytes(size::TRIAL_INODE_RATIO);
            let source = &mut *self.open_source(ContentsUse::Unread)?;
            match self.fill(size, inodes, Fill::Trial, source) {
                Err(e) if e.is_no_space() || e.is_no_inodes() => last = Some(e),
                // Larger file systems are invalid, so the source cannot fit.
                Err(BuildError::FileSystem(vfs::Error::Invalid(_))) if last.is_some() => break,
                other => return other,
            }
        }
        Err(last.unwrap_or_else(|| vfs::Error::NoSpace.into()))
    }

    fn plan(&self, size: u64, inodes: Inodes) -> Result<Box<dyn Plan>, BuildError> {
        self.maker.plan(size, inodes)
    }

    fn device(&self) -> Result<Arc<dyn BlockDevice>, BuildError> {
        let file = self.target.file().try_clone().map_err(BuildError::Write)?;
        let mut device: Arc<dyn BlockDevice> =
            Arc::new(FileDevice::new(file).map_err(BuildError::Write)?);
        let offset = self.target.offset();
        if offset > 0 {
            let len = device.len().saturating_sub(offset);
            device = Arc::new(WindowDevice::new(device, offset, len).map_err(BuildError::Write)?);
        }
        Ok(match self.target.head() {
            Some(head) => Arc::new(HeadLast::new(device, head)),
            None => device,
        })
    }

    /// Returns the number of additional threads. The current thread allocates blocks.
    fn helpers(&self) -> usize {
        let threads = self.options.thread_count();
        // A thread count of one is the current thread alone.
        if threads > 1 { threads } else { 0 }
    }

    fn open_source(&self, contents: ContentsUse) -> Result<Box<dyn Source>, BuildError> {
        let mut source = self.input.open(self.helpers(), self.target.ids()?, contents)?;
        if self.options.no_xattrs {
            source = Box::new(WithoutXattrs(source));
        }
        Ok(corrected::wrap(source, self.corrections))
    }

    /// Creates a file system and fills it from the source.
    fn fill(
        &self,
        size: u64,
        inodes: Inodes,
        fill: Fill,
        source: &mut dyn Source,
    ) -> Result<Filled, BuildError> {
        let plan = self.plan(size, inodes)?;
        self.target.reset(size)?;
        let device = self.device()?;
        if self.target.is_in_place() {
            // Blocks that are never written, in holes and at ends of files, must read as zeros.
            device.zero_range(0, size).map_err(BuildError::Write)?;
        }
        let fresh = plan.make(&device)?;
        let fs = fresh.file_system();
        let before = fs.statfs()?;
        let known =
            fresh.sharing().zip(self.options.dedupe).map(|(fs, unit)| KnownContents::new(fs, unit));
        let (made, identity, left_out) = self.pour(fs, &device, fill, known, source)?;
        let protected = protect::protect(self.options, &*fresh, fill == Fill::Trial)?;
        let after = fs.statfs()?;
        if fill == Fill::Whole {
            let derive = self.options.uuid.is_none() && !fresh.uuid_is_fixed();
            fresh.finish(derive.then(|| identity.uuid()))?;
        }
        Ok(Filled {
            image_bytes: size,
            made,
            left_out,
            protected,
            blocks: before.blocks_free.saturating_sub(after.blocks_free),
            inodes: used(&after).saturating_sub(used(&before)),
        })
    }

    /// Returns the destination of file contents.
    fn destination(&self, device: &Arc<dyn BlockDevice>, block_size: u64) -> Destination {
        Destination {
            device: Arc::clone(device),
            block_size,
            clones: CloneTarget::of(self.target.file()).map(Arc::new),
            offset: self.target.offset(),
            is_summed: self.options.uuid.is_none(),
            is_sparse: self.options.sparse,
        }
    }

    /// Creates every entry of the source in `fs`.
    fn pour(
        &self,
        fs: &dyn FileSystem,
        device: &Arc<dyn BlockDevice>,
        fill: Fill,
        known: Option<KnownContents<'_>>,
        source: &mut dyn Source,
    ) -> Result<(CreatedTotals, Identity, LeftOut), BuildError> {
        let policy = Policy {
            owner: corrected::owner(self.options),
            latest: self.options.source_date_epoch,
            time: Timestamp { sec: self.options.image_time().sec, nsec: 0 },
            mtime_only: self.input.is_directory(),
            access_times: self.options.access_times,
            is_trial: fill == Fill::Trial,
            is_sparse: self.options.sparse,
        };
        let destination = self.destination(device, u64::from(fs.statfs()?.block_size));
        thread::scope(|scope| {
            let threads = if fill == Fill::Whole { self.helpers() } else { 0 };
            let copier = Copier::start(scope, destination, threads);
            let mut writer = Writer::new(fs, policy, copier).with_known(known);
            let mut identity = Identity::new(self.options);
            if self.target.is_device() {
                identity.add_device(device.len());
            }
            while let Some(entry) = source.next_entry()? {
                self.check_goes_on()?;
                identity.add(&entry, &policy);
                writer.add(entry, source)?;
                let made = writer.made();
                if made.entries.is_multiple_of(1024) {
                    self.progress.made(made.entries, made.bytes);
                }
            }
            let (made, contents, left_out) = writer.finish()?;
            identity.add_contents(contents);
            Ok((made, identity, left_out))
        })
    }
}

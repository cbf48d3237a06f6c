//! Arguments of mkfs.xfs.

use std::ffi::OsString;
use std::path::PathBuf;

use diskwright::build::{BuildSource, FeatureChange, Inherited, ProtofileSource};
use xfs::format::quota::QuotaKind;
use xfs::mkfs::Autofsck;

use super::settings::{Setting, Settings};
use super::stripes::Stripes;
use crate::failure::{Failure, STATUSES};
use crate::lists::ListItem;
use crate::size::{self, Size};
use crate::supported;
use crate::words::{Word, Words};

/// Default block size in bytes.
const BLOCK_BYTES: u32 = 4096;
const NO_ZONES: &str = "realtime sections are created on a device, without zones: -r rtdev";

/// Parsed arguments.
#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) image: PathBuf,
    pub(super) bytes: Option<u64>,
    pub(super) source: Option<BuildSource>,
    pub(super) access_times: bool,
    pub(super) block_size: Option<u32>,
    pub(super) sector_size: Option<u32>,
    pub(super) dir_block_size: Option<u32>,
    pub(super) ag_count: Option<u32>,
    pub(super) inodes_percent: Option<u8>,
    pub(super) label: Option<Vec<u8>>,
    pub(super) uuid: Option<[u8; 16]>,
    pub(super) features: Vec<FeatureChange>,
    /// Quotas, as in `sb_qflags`.
    pub(super) quota_flags: u16,
    autofsck: Option<Autofsck>,
    /// Device of an external log.
    pub(super) log_device: Option<PathBuf>,
    /// Group of an internal log.
    pub(super) log_group: Option<u32>,
    /// Device of the realtime section.
    pub(super) realtime_device: Option<PathBuf>,
    /// Attributes that new files inherit from the root directory.
    pub(super) inherited: Inherited,
    /// Log stripe unit in bytes.
    pub(super) log_stripe: Option<u32>,
    /// `-d file`: the file is set to the requested size.
    pub(super) is_file: bool,
    pub(super) is_forced: bool,
    pub(super) is_quiet: bool,
    pub(super) is_trial: bool,
    /// `--unsupported`: allow small sizes.
    pub(super) is_unsupported: bool,
    pub(super) only_version: bool,
    pub(super) stripes: Stripes,
    named: Option<PathBuf>,
    prototype: Option<PathBuf>,
    slashes_are_spaces: bool,
    inode_size: Option<u32>,
    /// `-i max_atomic_write`.
    atomic_write: Option<Size>,
    /// File that gets the features (`-c makecfg`).
    pub(super) new_config: Option<PathBuf>,
    inodes_per_block: Option<u32>,
    ag_size: Option<Size>,
    log_size: Option<Size>,
    data_size: Option<Size>,
    realtime_extent: Option<Size>,
    realtime_size: Option<Size>,
    realtime_group_size: Option<Size>,
    /// Number of realtime groups.
    pub(super) realtime_groups: Option<u32>,
    /// `-l internal`.
    is_log_internal: Option<bool>,
    /// `-l sectsize`.
    log_sector_size: Option<u32>,
}

/// Parses the arguments.
pub(super) fn read(arguments: Vec<OsString>) -> Result<Args, Failure> {
    let mut args = Args::default();
    let mut words = Words::new(arguments, STATUSES, &supported::MKFS_XFS);
    let (mut named, mut settings) = (None, Settings::default());
    while let Some(word) = words.next()? {
        match word {
            Word::Operand(operand) => words.only(&mut named, operand)?,
            Word::Option(letter) => args.option(letter, &mut words, &mut settings)?,
        }
    }
    args.new_config = settings.new_config.take();
    for setting in settings.read()? {
        args.set(&setting)?;
    }
    match (named, args.named.take()) {
        (Some(_), Some(_)) => return Err(STATUSES.usage("-d name option respecified")),
        (Some(image), None) | (None, Some(image)) => args.image = image,
        (None, None) if args.only_version => {}
        (None, None) => {
            return Err(STATUSES.usage("No data device name specified: add the image to create"));
        }
    }
    args.settle()?;
    Ok(args)
}

impl Args {
    fn option(
        &mut self,
        letter: char,
        words: &mut Words,
        settings: &mut Settings,
    ) -> Result<(), Failure> {
        match letter {
            'b' | 's' | 'd' | 'i' | 'n' | 'l' | 'm' | 'r' => {
                settings.add(letter, &words.text()?)?;
            }
            'c' => settings.add_files(&words.text()?)?,
            'L' => self.label = Some(words.bytes()?),
            'p' => {
                let path = words.path()?;
                match path.to_str() {
                    Some(text) if path.exists() => settings.add_file(text.to_owned())?,
                    Some(text) => settings.add_prototype(text)?,
                    // A name that is not UTF-8 cannot be a suboption list.
                    None => self.prototype = Some(path),
                }
            }
            'f' => self.is_forced = true,
            'q' => self.is_quiet = true,
            'N' => self.is_trial = true,
            'V' => self.only_version = true,
            // Unused space is always sparse.
            'K' => {}
            supported::UNSUPPORTED => self.is_unsupported = true,
            _ => return Err(words.unknown()),
        }
        Ok(())
    }

    fn set(&mut self, setting: &Setting) -> Result<(), Failure> {
        let item = setting.item();
        match setting.letter {
            'b' => self.block(&item),
            's' => self.sector(&item),
            'd' => self.data(&item),
            'i' => self.inode(&item),
            'n' => self.naming(&item),
            'l' => self.log(&item),
            'r' => self.realtime(&item),
            'p' => self.prototype(&item),
            _ => self.metadata(&item),
        }
    }

    /// Resolves dependencies between options.
    fn settle(&mut self) -> Result<(), Failure> {
        self.bytes = self.data_size.map(|size| self.in_bytes(size)).transpose()?;
        if self.is_file && self.bytes.is_none() {
            return Err(STATUSES.usage("-d file needs -d size"));
        }
        if self.realtime_device.is_none() && self.realtime_size.is_some() {
            return Err(STATUSES.usage("-r size needs -r rtdev"));
        }
        self.settle_groups()?;
        match (self.is_log_internal, &self.log_device) {
            (Some(_), Some(_)) => {
                return Err(STATUSES.usage("-l internal and -l logdev exclude each other"));
            }
            (Some(false), None) => return Err(STATUSES.usage("-l internal=0 needs -l logdev")),
            _ => {}
        }
        if self.log_sector_size.is_some_and(|bytes| bytes != self.sector_size.unwrap_or(512)) {
            let why = "the log has the sector size of the image";
            return Err(STATUSES.refused("-l sectsize", why));
        }
        self.source = self.prototype.take().map(|file| match file.is_dir() {
            true => BuildSource::Files(file),
            false => {
                let slashes_are_spaces = self.slashes_are_spaces;
                BuildSource::Protofile(ProtofileSource { file, slashes_are_spaces })
            }
        });
        Ok(())
    }

    /// Checks the options of realtime groups. As in the original, they have no effect without metadir.
    fn settle_groups(&mut self) -> Result<(), Failure> {
        if self.realtime_groups.is_some() && self.realtime_group_size.is_some() {
            return Err(STATUSES.usage("Cannot specify both -r rgsize and -r rgcount"));
        }
        let is_chosen = self.features.iter().any(|change| change.name == "metadir");
        let wants_reflink = self.is_named("reflink");
        let is_implied = !is_chosen && (self.is_named("rmapbt") || wants_reflink);
        if self.realtime_device.is_some() && is_implied {
            // Only a section with groups has them. As in the original, a reverse map alone does not turn reflink on.
            self.imply_metadir();
            if !wants_reflink {
                self.features.push(FeatureChange { name: "reflink".into(), is_on: false });
            }
        }
        if !self.is_named("metadir") {
            (self.realtime_groups, self.realtime_group_size) = (None, None);
        }
        match self.realtime_groups {
            Some(_) if self.realtime_device.is_none() => {
                Err(STATUSES.usage("-r rgcount needs -r rtdev"))
            }
            _ => Ok(()),
        }
    }

    fn block(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.block_size = Some(item.by(small)?),
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn sector(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.sector_size = Some(item.by(small)?),
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn data(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.data_size = Some(item.by(size::parse_xfs)?),
            "agcount" => self.ag_count = Some(item.by(number)?),
            "agsize" => self.ag_size = Some(item.by(size::parse_xfs)?),
            "name" => self.named = Some(item.text()?.into()),
            "sectsize" => self.sector_size = Some(item.by(small)?),
            "file" => self.is_file = item.switch()?,
            "noalign" => self.stripes.is_off = item.switch()?,
            "concurrency" => drop(item.value()),
            "sunit" | "swidth" | "su" | "sw" => self.stripes.set(item)?,
            "rtinherit" => self.inherited.realtime = item.switch()?,
            "daxinherit" => self.inherited.dax = item.switch()?,
            "projinherit" => self.inherited.project = item.by(number)?,
            "extszinherit" => self.inherited.extent_blocks = item.by(number)?,
            "cowextsize" => self.inherited.cow_extent_blocks = item.by(number)?,
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn inode(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.inode_size = Some(item.by(small)?),
            "perblock" => self.inodes_per_block = Some(item.by(number)?),
            "maxpct" => {
                let percent = item.by(number)?;
                let percent = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
                self.inodes_percent =
                    Some(percent.ok_or_else(|| item.wrong("must be at most 100"))?);
            }
            "sparse" | "nrext64" | "exchange" => self.switch(item)?,
            "align" => always(item, true)?,
            "attr" if item.text()? == "2" => {}
            "projid32bit" => always(item, true)?,
            "attr" => return Err(item.refused("version 5 always has attributes of version 2")),
            "max_atomic_write" => self.atomic_write = Some(item.by(size::parse_xfs)?),
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn naming(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.dir_block_size = Some(item.by(small)?),
            "ftype" => always(item, true)?,
            "parent" => self.switch(item)?,
            "version" => match item.text()? {
                "2" => {}
                "ci" => self.features.push(FeatureChange { name: "ascii-ci".into(), is_on: true }),
                _ => return Err(item.wrong("must be 2 or ci")),
            },
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn log(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "size" => self.log_size = Some(item.by(size::parse_xfs)?),
            "internal" => self.is_log_internal = Some(item.switch()?),
            "lazy-count" => always(item, true)?,
            "version" if item.text()? == "2" => {}
            "version" => return Err(item.refused("version 5 always has a version 2 log")),
            "concurrency" => drop(item.value()),
            "su" => self.log_stripe = Some(item.by(small)?),
            "sunit" => {
                let sectors = item.by(number)?;
                let bytes = sectors.checked_mul(512).ok_or_else(|| item.wrong("is too large"))?;
                self.log_stripe = Some(bytes);
            }
            "sectsize" => self.log_sector_size = Some(item.by(small)?),
            // A missing file is created anyway.
            "file" => drop(item.switch()?),
            "logdev" | "name" if self.log_device.is_some() => {
                return Err(item.wrong("option respecified"));
            }
            "logdev" | "name" => self.log_device = Some(item.text()?.into()),
            "agnum" => {
                let number = |text: &str| text.parse().map_err(|_| "write a number".to_owned());
                self.log_group = Some(item.by(number)?);
            }
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn metadata(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "uuid" => {
                let parsed = uuid::Uuid::try_parse(item.text()?).map(uuid::Uuid::into_bytes);
                self.uuid = Some(parsed.map_err(|_| item.wrong("is not a UUID"))?);
            }
            "crc" => always(item, true)?,
            "finobt" | "rmapbt" | "reflink" | "inobtcount" | "bigtime" | "metadir" => {
                self.switch(item)?;
            }
            "autofsck" => self.autofsck = Some(autofsck(item)?),
            "uquota" | "uqnoenforce" => self.quota(item, QuotaKind::User)?,
            "gquota" | "gqnoenforce" => self.quota(item, QuotaKind::Group)?,
            "pquota" | "pqnoenforce" => self.quota(item, QuotaKind::Project)?,
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn realtime(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "extsize" => self.realtime_extent = Some(item.by(size::parse_xfs)?),
            // Without a real-time device these have no effect.
            "noalign" | "concurrency" => drop(item.value()),
            "zoned" | "reserved" => nothing(item, NO_ZONES)?,
            "rtdev" | "name" if self.realtime_device.is_some() => {
                return Err(item.wrong("option respecified"));
            }
            "rtdev" | "name" => self.realtime_device = Some(item.text()?.into()),
            "size" => self.realtime_size = Some(item.by(size::parse_xfs)?),
            "rgcount" => {
                let groups = Some(item.by(number)?).filter(|groups| *groups > 0);
                self.realtime_groups =
                    Some(groups.ok_or_else(|| item.wrong("must be at least 1"))?);
            }
            "rgsize" => self.realtime_group_size = Some(item.by(size::parse_xfs)?),
            "file" => drop(item.switch()?),
            "start" => return Err(item.refused(NO_ZONES)),
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    fn prototype(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        match item.name {
            "file" => self.prototype = Some(item.text()?.into()),
            "atime" => self.access_times = item.switch()?,
            "slashes_are_spaces" => self.slashes_are_spaces = item.switch()?,
            _ => return Err(item.unknown()),
        }
        Ok(())
    }

    /// Returns whether a feature that is on by default stays on.
    pub(super) fn is_on(&self, feature: &str) -> bool {
        let change = self.features.iter().rev().find(|change| change.name == feature);
        change.is_none_or(|change| change.is_on)
    }

    /// Returns the value of `autofsck`: by default, images with a reverse map and parent pointers are repaired.
    pub(super) fn autofsck(&self) -> Option<Autofsck> {
        let can_repair = self.is_on("rmapbt") && self.is_on("parent");
        // A realtime section without groups has no reverse map.
        let has_reverse_map = self.realtime_device.is_none() || self.is_named("metadir");
        self.autofsck.or((can_repair && has_reverse_map).then_some(Autofsck::Repair))
    }

    /// Returns whether a feature was explicitly turned on.
    pub(super) fn is_named(&self, feature: &str) -> bool {
        self.features.iter().any(|change| change.name == feature) && self.is_on(feature)
    }

    /// Turns a kind of quota on or off. Quotas of a new file system need a metadata directory, as in mkfs.xfs.
    fn quota(&mut self, item: &ListItem<'_>, kind: QuotaKind) -> Result<(), Failure> {
        if !item.switch()? {
            return Ok(());
        }
        let is_enforced = !item.name.ends_with("noenforce");
        self.quota_flags |= kind.accounted() | if is_enforced { kind.enforced() } else { 0 };
        self.imply_metadir();
        Ok(())
    }

    /// Turns metadir on, unless it was named.
    fn imply_metadir(&mut self) {
        let is_named = self.features.iter().any(|change| change.name == "metadir");
        if !is_named {
            self.features.push(FeatureChange { name: "metadir".into(), is_on: true });
        }
    }

    fn switch(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        self.features.push(FeatureChange { name: item.name.into(), is_on: item.switch()? });
        Ok(())
    }

    /// Returns the inode size in bytes.
    pub(super) fn inode_size(&self) -> Result<Option<u32>, Failure> {
        match (self.inode_size, self.inodes_per_block) {
            (Some(_), Some(_)) => Err(STATUSES.usage("-i size and -i perblock exclude each other")),
            (None, Some(0)) => Err(STATUSES.usage("-i perblock must be at least 2")),
            (None, Some(count)) => Ok(Some(self.block_bytes() / count)),
            (size, None) => Ok(size),
        }
    }

    /// Returns the allocation group size in bytes.
    pub(super) fn ag_bytes(&self) -> Result<Option<u64>, Failure> {
        if self.ag_size.is_some() && self.ag_count.is_some() {
            return Err(STATUSES.usage("-d agsize and -d agcount exclude each other"));
        }
        self.ag_size.map(|size| self.in_bytes(size)).transpose()
    }

    /// Returns the log size in bytes.
    pub(super) fn log_bytes(&self) -> Result<Option<u64>, Failure> {
        self.log_size.map(|size| self.in_bytes(size)).transpose()
    }

    /// Returns the size of the realtime section in bytes.
    pub(super) fn realtime_bytes(&self) -> Result<Option<u64>, Failure> {
        self.realtime_size.map(|size| self.in_bytes(size)).transpose()
    }

    /// Returns the size of a realtime group in bytes.
    pub(super) fn realtime_group_bytes(&self) -> Result<Option<u64>, Failure> {
        self.realtime_group_size.map(|size| self.in_bytes(size)).transpose()
    }

    /// Returns the maximum size of atomic writes in bytes.
    pub(super) fn atomic_write_bytes(&self) -> Result<Option<u64>, Failure> {
        self.atomic_write.map(|size| self.in_bytes(size)).transpose()
    }

    /// Returns the size of a realtime extent in bytes.
    pub(super) fn realtime_extent_bytes(&self) -> Result<Option<u32>, Failure> {
        let Some(size) = self.realtime_extent else { return Ok(None) };
        let bytes = u32::try_from(self.in_bytes(size)?);
        Ok(Some(bytes.map_err(|_| STATUSES.usage("-r extsize is too large"))?))
    }

    /// Returns the block size in bytes.
    pub(super) fn block_bytes(&self) -> u32 {
        self.block_size.unwrap_or(BLOCK_BYTES)
    }

    /// Converts a size to bytes. Numbers without a unit are bytes.
    fn in_bytes(&self, size: Size) -> Result<u64, Failure> {
        let bytes = match size {
            Size::Blocks(blocks) => blocks.checked_mul(self.block_bytes().into()),
            size => size.bytes(1),
        };
        bytes.ok_or_else(|| STATUSES.usage("the size is too large"))
    }
}

/// Accepts only the value 0.
fn nothing(item: &ListItem<'_>, why: &str) -> Result<(), Failure> {
    match item.value() {
        Some(value) if value.trim_start_matches('0').is_empty() && !value.is_empty() => Ok(()),
        _ => Err(item.refused(why)),
    }
}

/// Returns the value of `-m autofsck`: a name, 0 for `none`, 1 or nothing for `repair`.
fn autofsck(item: &ListItem<'_>) -> Result<Autofsck, Failure> {
    match item.value() {
        None | Some("" | "1") => Ok(Autofsck::Repair),
        Some("0") => Ok(Autofsck::None),
        Some(value) => {
            let known = Autofsck::ALL.into_iter().find(|known| known.value() == value);
            known.ok_or_else(|| item.wrong("must be none, check, optimize or repair"))
        }
    }
}

/// Accepts only the fixed value of a setting.
fn always(item: &ListItem<'_>, is_on: bool) -> Result<(), Failure> {
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

//! The two sides of `diskwright diff`.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use clap::Args;
use diskwright::build::{Container, ImageFile, ManifestFile, Platform, Reference};
use diskwright::diff::{Side, SourceTree};
use diskwright::{Error, Image, ImageOptions, OtherDevices, Result};

use crate::commands::arguments::open_to_read;
use crate::commands::other_devices::DeviceArgs;

/// The two sides of a comparison.
#[derive(Debug, Args)]
pub(crate) struct SidesArgs {
    /// First side: an image, IMAGE:N for partition N of a disk image, a directory, an archive, oci:DIR[:REF],
    /// oci-archive:FILE[:REF], docker-archive:FILE[:TAG] or mtree:FILE[:ROOTDIR]
    a: PathBuf,

    /// Second side, in the same forms
    b: PathBuf,

    /// Use partition N of both disk images (MBR or GPT), numbered as in Linux
    #[arg(long, value_name = "N", help_heading = "Image")]
    partition: Option<u32>,

    /// Do not replay the journal or log, and read even while another program changes an image. Files may be outdated or
    /// inconsistent
    #[arg(long, help_heading = "Image")]
    norecovery: bool,

    #[command(flatten)]
    devices: DeviceArgs,

    /// Select the platform of a container image, such as linux/arm64 or linux/arm/v7 [default: the only one, or Linux on
    /// this processor]
    #[arg(long, value_name = "OS/ARCH[/VARIANT]", help_heading = ARCHIVES)]
    platform: Option<Platform>,

    /// Limit the decompressed size of each layer or archive [default: 1G plus 1024 times its compressed size]
    #[arg(long, value_name = "SIZE", value_parser = diskwright::text::parse_size, help_heading = ARCHIVES)]
    layer_limit: Option<u64>,
}

/// Help heading of options for sides that are read before the comparison.
const ARCHIVES: &str = "Container image options";

/// An open side.
pub(crate) enum OpenSide<'a> {
    Image(Box<Image>),
    Directory(&'a Path),
    Source(Box<SourceTree>),
}

impl OpenSide<'_> {
    pub(crate) fn side(&self) -> Side<'_> {
        match self {
            Self::Image(image) => Side::Image(image),
            Self::Directory(path) => Side::Directory(path),
            Self::Source(tree) => Side::Source(tree),
        }
    }
}

impl SidesArgs {
    /// Opens both sides. Temporary data is stored in the directory of `output`, if that is a file.
    pub(crate) fn open(
        &self,
        output: Option<&Path>,
        threads: usize,
    ) -> Result<(OpenSide<'_>, OpenSide<'_>)> {
        let reads_input = |side: &Path| side.to_str().is_some_and(is_standard_input);
        if reads_input(&self.a) && reads_input(&self.b) {
            let problem = "only one side can be standard input; use a file for the other";
            return Err(Error::Usage(problem.into()));
        }
        let is_container = |side: &Path| side.to_str().and_then(Reference::parse).is_some();
        if self.platform.is_some() && !is_container(&self.a) && !is_container(&self.b) {
            let problem = "--platform requires a container image; write oci:, oci-archive: or \
                           docker-archive: before its path";
            return Err(Error::Usage(problem.into()));
        }
        let temporary = std::env::temp_dir();
        let beside = match output.filter(|output| output.as_os_str() != "-") {
            Some(output) => output.parent().filter(|parent| !parent.as_os_str().is_empty()),
            None => Some(&*temporary),
        };
        let beside = beside.unwrap_or(Path::new("."));
        let devices = Cell::new(Some(self.devices.devices()));
        let open = |side| self.open_one(side, beside, threads, &devices);
        Ok((open(&self.a)?, open(&self.b)?))
    }

    /// Opens a side. The first image takes `devices`.
    fn open_one<'a>(
        &self,
        side: &'a Path,
        beside: &Path,
        threads: usize,
        devices: &Cell<Option<OtherDevices>>,
    ) -> Result<OpenSide<'a>> {
        if let Some(file) = ImageFile::parse(side.as_os_str()) {
            return self.image(&file.path, file.partition.or(self.partition), devices.take());
        }
        let source = |tree: SourceTree| Ok(OpenSide::Source(Box::new(tree)));
        if let Some(reference) = side.to_str().and_then(Reference::parse) {
            let mut container = Container::new(reference.map_err(Error::Usage)?);
            container.platform = self.platform.clone();
            container.layer_bytes_max = self.layer_limit;
            return source(SourceTree::of_container(&container, beside, threads)?);
        }
        if let Some(manifest) = ManifestFile::parse(side.as_os_str()) {
            return source(SourceTree::of_manifest(&manifest, threads)?);
        }
        if side.as_os_str() != "-" && side.is_dir() {
            return Ok(OpenSide::Directory(side));
        }
        if SourceTree::is_archive(side) {
            return source(SourceTree::of_archive(side, beside, self.layer_limit)?);
        }
        // A colon and a number after the file name select a partition.
        let (file, partition) = match split_partition(side) {
            Some((file, number)) => (file, Some(number)),
            None => (side, self.partition),
        };
        self.image(file, partition, devices.take())
    }

    fn image(
        &self,
        file: &Path,
        partition: Option<u32>,
        devices: Option<OtherDevices>,
    ) -> Result<OpenSide<'static>> {
        let mut options = ImageOptions::default().norecovery(self.norecovery);
        options.partition = partition;
        options.devices = devices.unwrap_or_else(|| self.devices.of_another());
        Ok(OpenSide::Image(Box::new(open_to_read(file, &options)?)))
    }
}

/// Returns whether a side is read from standard input, as an archive or as a container image.
fn is_standard_input(side: &str) -> bool {
    side == "-"
        || Reference::parse(side)
            .is_some_and(|parsed| parsed.is_ok_and(|reference| reference.is_standard_input()))
}

fn split_partition(path: &Path) -> Option<(&Path, u32)> {
    if path.exists() {
        return None;
    }
    let (file, number) = path.to_str()?.rsplit_once(':')?;
    let file = Path::new(file);
    file.exists().then_some((file, number.parse().ok()?))
}

//! Arguments shared by several commands.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use disk::Mapfile;
use diskwright::{Error, Format, ImageOptions, SuperblockPlace};

use super::other_devices::DeviceArgs;

/// Image of a command that reads one.
#[derive(Debug, Args)]
pub(crate) struct ImageArgs {
    /// Image file or block device
    pub(crate) image: PathBuf,

    #[command(flatten)]
    place: PlaceArgs,

    /// Do not replay the journal or log, and read even while another program changes the image. Files may be outdated or
    /// inconsistent
    #[arg(long, alias = "stale", help_heading = "Image")]
    norecovery: bool,

    #[command(flatten)]
    rescue: RescueArgs,
}

/// Mapfile of a copy of a failing disk.
#[derive(Clone, Debug, Args)]
pub(crate) struct RescueArgs {
    /// Report areas that GNU ddrescue did not rescue, according to its mapfile FILE, as read errors
    #[arg(long, value_name = "FILE", help_heading = "Image")]
    mapfile: Option<PathBuf>,
}

impl RescueArgs {
    /// Adds the areas of the mapfile to the options.
    pub(crate) fn add(&self, options: ImageOptions) -> diskwright::Result<ImageOptions> {
        let Some(path) = &self.mapfile else { return Ok(options) };
        let text = std::fs::read_to_string(path).map_err(|source| Error::Host {
            operation: "read",
            path: path.clone(),
            source,
        })?;
        let map = Mapfile::parse(&text)
            .map_err(|error| Error::Usage(format!("{}: {error}", path.display())))?;
        Ok(options.mapfile(map.into()))
    }
}

/// Location of an image in its file.
#[derive(Clone, Debug, Args)]
pub(crate) struct PlaceArgs {
    /// Use the image at this offset in its file, in bytes or with K, M, G or T [default: 0]
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = diskwright::text::parse_size,
        default_value = "0",
        hide_default_value = true,
        help_heading = "Image",
        conflicts_with = "partition"
    )]
    offset: u64,

    /// Use partition N of an MBR or GPT disk, numbered as in Linux
    #[arg(long, value_name = "N", help_heading = "Image")]
    partition: Option<u32>,

    #[command(flatten)]
    devices: DeviceArgs,
}

impl PlaceArgs {
    /// Returns the options for opening an image at this location.
    pub(crate) fn options(&self, norecovery: bool) -> ImageOptions {
        let mut options = ImageOptions::default().offset(self.offset).norecovery(norecovery);
        options.partition = self.partition;
        options.devices = self.devices.devices();
        options
    }
}

/// Returns the parser for the name of a format.
pub(crate) fn format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(|name| name.parse::<Format>())
}

/// The superblock copy that a damaged image is read with.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct SuperblockArgs {
    /// Read an ext2, ext3 or ext4 image with the superblock copy in BLOCK. BYTES is the block size; without it, all block
    /// sizes are tried
    #[arg(long, value_name = "BLOCK[:BYTES]", value_parser = superblock_place, help_heading = "Image")]
    pub(crate) superblock: Option<SuperblockPlace>,
}

/// Parses the location of a superblock copy.
fn superblock_place(text: &str) -> Result<SuperblockPlace, String> {
    let (block, bytes) =
        text.split_once(':').map_or((text, None), |(block, bytes)| (block, Some(bytes)));
    let expected = || {
        format!(
            "{text:?} is not a location: expected the number of a block, such as 32768 or \
             32768:4096"
        )
    };
    let block = block.parse().map_err(|_| expected())?;
    let block_bytes = bytes.map(|bytes| bytes.parse().map_err(|_| expected())).transpose()?;
    Ok(SuperblockPlace { block, block_bytes })
}

/// Metadata cache size of read-only commands, in bytes. It keeps a command below 256 MiB in total,
/// regardless of the image. A tree walk does not revisit metadata.
const READING_CACHE_BYTES: usize = 192 << 20;

/// Image of a command that changes one.
#[derive(Debug, Args)]
pub(crate) struct ImageToEdit {
    /// Image file or block device
    pub(crate) image: PathBuf,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,
}

impl ImageToEdit {
    /// Opens the image for writing.
    pub(crate) fn open(&self) -> diskwright::Result<diskwright::Image> {
        self.place.options(false).write(true).open(&self.image)
    }
}

impl ImageArgs {
    /// Returns the options for opening the image.
    ///
    /// # Errors
    /// If the mapfile cannot be read.
    pub(crate) fn options(&self) -> diskwright::Result<ImageOptions> {
        self.rescue.add(self.place.options(self.norecovery))
    }

    /// Returns the layers of the image after it was opened, from the outermost one on.
    pub(crate) fn layers(&self) -> Vec<diskwright::Layer> {
        let options = self.place.options(self.norecovery);
        options.devices.layers.map_or_else(Vec::new, |layers| layers.found())
    }

    pub(crate) fn open(&self) -> diskwright::Result<diskwright::Image> {
        open_to_read(&self.image, &self.options()?)
    }

    /// Like [`Self::open`], but accepts an image without a root directory.
    pub(crate) fn open_rootless(&self) -> diskwright::Result<diskwright::Image> {
        to_read(&self.options()?).open_rootless(&self.image).map(told)
    }
}

/// Opens an image read-only and prints its remarks.
pub(crate) fn open_to_read(
    path: &std::path::Path,
    options: &ImageOptions,
) -> diskwright::Result<diskwright::Image> {
    to_read(options).open(path).map(told)
}

/// Returns the options with the default cache size of read-only commands.
fn to_read(options: &ImageOptions) -> ImageOptions {
    options.clone().cache_bytes(options.cache_bytes.unwrap_or(READING_CACHE_BYTES))
}

/// Prints an image's remarks.
fn told(image: diskwright::Image) -> diskwright::Image {
    image.remarks().iter().for_each(|remark| crate::terminal::message(remark));
    image
}

/// Returns a path in an image as bytes, as typed.
pub(crate) fn bytes(text: &std::ffi::OsStr) -> &[u8] {
    text.as_encoded_bytes()
}

/// Parses a UUID in hexadecimal.
pub(super) fn uuid(text: &str) -> std::result::Result<[u8; 16], String> {
    // Hyphens are optional and may be anywhere.
    let digits = text.replace('-', "");
    let problem = "write 32 hexadecimal digits, such as 01234567-89ab-cdef-0123-456789abcdef";
    uuid::Uuid::try_parse(&digits).map(uuid::Uuid::into_bytes).map_err(|_| problem.into())
}

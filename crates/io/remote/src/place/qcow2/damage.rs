//! Errors of damaged and unsupported images.

use disk::hint::Setting;
use std::fmt::{self, Display, Formatter};
use std::io;
use std::path::Path;

use thiserror::Error;

/// The reason why an image is rejected.
#[derive(Debug, Error)]
pub(crate) enum Qcow2Error {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// The file is not a qcow2 image.
    #[error(
        "the file is not a qcow2 image (expected the magic number \"QFI\\xfb\", found {found:?})"
    )]
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// The image has a feature that is not supported.
    #[error("{0} is not supported")]
    Unsupported(Feature),
    /// The data is in another file, which may be any file of the host.
    #[error(
        "the data of the backing file is in {name:?}; if you trust the image, use {}",
        Setting::ALLOW_DATA_FILES
    )]
    DataFile {
        /// Its name in the image.
        name: String,
    },
    /// A structure is damaged.
    #[error(transparent)]
    Damaged(#[from] Damage),
}

/// A feature of an image that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// A version of the format.
    Version(u32),
    /// Encryption by its method: 1 is QEMU's own use of AES, 2 is LUKS.
    Encryption(u32),
    /// Compressed clusters that are not deflated: of type zstd.
    Compression,
    /// L2 tables with subclusters.
    ExtendedL2,
    /// Incompatible features that the format does not define, by their bits.
    Unknown(u64),
}

impl Feature {
    /// Returns advice for making an image at this path readable.
    #[must_use]
    pub(crate) fn way_out(self, path: &Path) -> String {
        let path = path.display();
        match self {
            Self::Encryption(1) | Self::Encryption(2) => {
                let format = if self == Self::Encryption(1) { "aes" } else { "luks" };
                format!(
                    "decrypt it: qemu-img convert --object secret,id=key,file=KEYFILE --image-opts \
                     driver=qcow2,file.filename={path},encrypt.format={format},encrypt.key-secret=key -O qcow2 plain.qcow2"
                )
            }
            Self::Compression | Self::ExtendedL2 => {
                format!("convert it: qemu-img convert -O qcow2 {path} plain.qcow2")
            }
            Self::Version(_) | Self::Encryption(_) | Self::Unknown(_) => format!(
                "convert it with the program that created it: qemu-img convert -O qcow2 {path} \
                 plain.qcow2"
            ),
        }
    }
}

impl Display for Feature {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "version {version} of qcow2"),
            Self::Encryption(1) => f.write_str("AES encryption (the deprecated format of qcow2)"),
            Self::Encryption(2) => f.write_str("LUKS encryption"),
            Self::Encryption(method) => write!(f, "encryption method {method}"),
            Self::Compression => f.write_str("compression by zstd"),
            Self::ExtendedL2 => f.write_str("an extended L2 table (subclusters)"),
            Self::Unknown(bits) => {
                let numbers = (0..u64::BITS).filter(|bit| bits >> bit & 1 == 1);
                let numbers: Vec<_> = numbers.map(|bit| bit.to_string()).collect();
                write!(f, "the incompatible feature of bit {}", numbers.join(", "))
            }
        }
    }
}

/// A damaged structure.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("damaged {structure} at byte {offset}: {problem} (expected {expected}, found {found})")]
pub struct Damage {
    /// The structure.
    pub structure: Structure,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// The property that is wrong.
    pub problem: &'static str,
    /// The expected value.
    pub expected: String,
    /// The value that was found.
    pub found: String,
}

/// A part of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    /// The header with its extensions.
    Header,
    /// The name of the backing file, in the first cluster.
    BackingName,
    /// The refcount table.
    RefcountTable,
    /// A refcount block, by its index in the refcount table.
    RefcountBlock(u64),
    /// The active L1 table.
    L1,
    /// The L1 table of a snapshot, by the snapshot's index.
    SnapshotL1(u32),
    /// An L2 table, by its index in the L1 table of the active image (`None`) or of a snapshot.
    L2(Option<u32>, u64),
    /// The snapshot table.
    Snapshots,
    /// The directory of persistent bitmaps.
    BitmapDirectory,
    /// The table of a bitmap, by the bitmap's index.
    BitmapTable(u32),
    /// A cluster of a bitmap, by the bitmap's index.
    BitmapData(u32),
    /// A cluster of data, by the first guest byte.
    Data(u64),
    /// A compressed cluster, by the first guest byte.
    Compressed(u64),
    /// A cluster of data with several references.
    Shared,
}

impl Display for Structure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("qcow2 header"),
            Self::BackingName => f.write_str("qcow2 backing file name"),
            Self::RefcountTable => f.write_str("qcow2 refcount table"),
            Self::RefcountBlock(index) => write!(f, "qcow2 refcount block {index}"),
            Self::L1 => f.write_str("qcow2 L1 table"),
            Self::SnapshotL1(snapshot) => write!(f, "qcow2 L1 table of snapshot {snapshot}"),
            Self::L2(None, index) => write!(f, "qcow2 L2 table {index}"),
            Self::L2(Some(snapshot), index) => {
                write!(f, "qcow2 L2 table {index} of snapshot {snapshot}")
            }
            Self::Snapshots => f.write_str("qcow2 snapshot table"),
            Self::BitmapDirectory => f.write_str("qcow2 bitmap directory"),
            Self::BitmapTable(bitmap) => write!(f, "qcow2 table of bitmap {bitmap}"),
            Self::BitmapData(bitmap) => write!(f, "qcow2 data of bitmap {bitmap}"),
            Self::Data(guest) => write!(f, "qcow2 data cluster of guest byte {guest}"),
            Self::Shared => f.write_str("qcow2 shared data cluster"),
            Self::Compressed(guest) => write!(f, "qcow2 compressed cluster of guest byte {guest}"),
        }
    }
}

/// Returns an error for one structure.
pub(super) fn damage(
    structure: Structure,
    offset: u64,
    problem: &'static str,
    expected: impl Display,
    found: impl Display,
) -> Qcow2Error {
    Damage { structure, offset, problem, expected: expected.to_string(), found: found.to_string() }
        .into()
}

//! Journal devices of ext4: how programs of e2fsprogs find them.

use std::path::{Path, PathBuf};

use ext4::format::journal_device::is_journal_device;
use ext4::format::superblock::MAGIC;

use crate::foreign::{self, raw_superblock};
use crate::target::ImageTarget;

/// Directories in which udev links devices by UUID and by label.
const BY_UUID: &str = "/dev/disk/by-uuid";
const BY_LABEL: &str = "/dev/disk/by-label";

/// Returns the path that the value of `-J device=` or `-j` names: a path, `LABEL=...` or `UUID=...`.
pub(crate) fn path(text: &str) -> PathBuf {
    if let Some(label) = text.strip_prefix("LABEL=") {
        return Path::new(BY_LABEL).join(label);
    }
    if let Some(uuid) = text.strip_prefix("UUID=") {
        return Path::new(BY_UUID).join(uuid);
    }
    text.into()
}

/// Returns the UUID and the number of the journal device of an image, if the image does not contain its journal.
fn of_image(image: &ImageTarget) -> Option<([u8; 16], u32)> {
    let raw = raw_superblock(&*foreign::open(&image.path, image.offset).ok()?)?;
    let is_external = raw.magic == MAGIC && raw.journal_inum == 0 && raw.journal_uuid != [0; 16];
    is_external.then_some((raw.journal_uuid, raw.journal_dev.get()))
}

/// Returns whether the journal of an image is on another device.
pub(crate) fn is_external(image: &ImageTarget) -> bool {
    of_image(image).is_some()
}

/// Finds the journal device of an image by the number or the UUID in its superblock, as the originals do. Returns
/// `None` if the image contains its journal, or if no device with this UUID is found.
pub(crate) fn find(image: &ImageTarget) -> Option<PathBuf> {
    let (uuid, number) = of_image(image)?;
    let name = uuid::Uuid::from_bytes(uuid).to_string();
    let by_uuid = || Some(Path::new(BY_UUID).join(&name));
    let is_right = |path: &PathBuf| {
        let device = foreign::open(path, 0).ok();
        let found = device.and_then(|device| raw_superblock(&*device));
        found.is_some_and(|found| is_journal_device(&found) && found.uuid == uuid)
    };
    by_number(number).filter(is_right).or_else(|| by_uuid().filter(is_right))
}

/// Returns the path of the block device with a number from a superblock.
fn by_number(number: u32) -> Option<PathBuf> {
    let (major, minor) = (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00);
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    Some(Path::new("/dev").join(link.file_name()?))
}

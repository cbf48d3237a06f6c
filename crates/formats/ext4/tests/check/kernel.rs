//! If the check finds nothing in an image, the kernel must mount it and read all of it without errors.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount};
use testkit::{LoopDevice, effort, require, scratch};

use super::check;
use super::victim::{DamageTarget, Victim, made};
use crate::common::image::{GOLDEN, device};

/// Number of bytes of a structure to change one by one. The rest repeats the start or has no meaning.
const BYTES_MAX: usize = 1024;
/// Size of the largest image in bytes.
const IMAGE_BYTES_MAX: u64 = 64 << 20;

/// Number of values per field to try.
const VALUES: usize = 17;

/// Returns a value for a field of `width` bytes with the value `old`: limits of all types, neighbours, one flipped bit,
/// and values too large for most sizes. Returns nothing if the value is the old one or has a lower number, too.
fn value(old: u32, width: usize, number: usize) -> Option<u32> {
    let mask = if width == 4 { u32::MAX } else { (1 << (8 * width)) - 1 };
    let sign = (mask >> 1) + 1;
    let (next, previous) = (old.wrapping_add(1), old.wrapping_sub(1));
    let limits = [0, 1, 2, 3, 5, 253, 1024, 65_000, sign - 1, sign, mask];
    let neighbours = [old ^ sign, next, previous, old << 1, old | 0x40, old ^ 0x8];
    let mut all = [0; VALUES];
    for (to, from) in all.iter_mut().zip(limits.into_iter().chain(neighbours)) {
        *to = from & mask;
    }
    let value = all[number];
    (value != old && !all[..number].contains(&value)).then_some(value)
}

/// A field of an image and its new value.
struct FieldChange {
    at: usize,
    width: usize,
    value: u32,
    what: String,
}

/// Returns the number of changes of a structure. Some of them are none.
fn changes_in(target: &DamageTarget) -> usize {
    let len = target.range.len().min(BYTES_MAX);
    (len + len / 2 + len / 4) * VALUES
}

/// Returns a change of a structure. An image has millions, so they are numbered instead of listed.
fn change_of(victim: &Victim, target: &DamageTarget, number: usize) -> Option<FieldChange> {
    let len = target.range.len().min(BYTES_MAX);
    let (mut field, number) = (number / VALUES, number % VALUES);
    let width = [1, 2, 4].into_iter().find(|width| {
        let is_here = field < len / width;
        field -= if is_here { 0 } else { len / width };
        is_here
    })?;
    let offset = field * width;
    let at = target.range.start + offset;
    let mut word = [0; 4];
    word[..width].copy_from_slice(&victim.image[at..at + width]);
    let old = u32::from_le_bytes(word);
    let value = value(old, width, number)?;
    let what = format!("{} byte {offset:#x}: {old:#x} to {value:#x}", target.name);
    Some(FieldChange { at, width, value, what })
}

/// Number of bytes read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// Reads all files, names, link targets and attributes below a directory.
fn read_all(path: &Path, buffer: &mut [u8]) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let kind = path.symlink_metadata()?.file_type();
        read_attributes(&path, buffer)?;
        if kind.is_dir() {
            read_all(&path, buffer)?;
        } else if kind.is_symlink() {
            fs::read_link(&path)?;
        } else if kind.is_file() {
            let mut file = fs::File::open(&path)?;
            // A sparse file may be as long as the format allows.
            for _ in 0..8 {
                if file.read(buffer)? == 0 {
                    break;
                }
            }
        } else {
            assert!(
                kind.is_fifo()
                    || kind.is_socket()
                    || kind.is_char_device()
                    || kind.is_block_device()
            );
        }
    }
    Ok(())
}

fn read_attributes(path: &Path, buffer: &mut [u8]) -> io::Result<()> {
    let len = rustix::fs::llistxattr(path, &mut *buffer)?;
    let names = buffer[..len].to_vec();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        match rustix::fs::lgetxattr(path, name, &mut *buffer) {
            // The kernel may be built without the handler of this name.
            Ok(_) | Err(rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A loop device on a file whose contents change between mounts.
struct Loop {
    device: LoopDevice,
    image: File,
    mount_point: PathBuf,
}

impl Loop {
    fn new(work: &Path) -> Self {
        let (file, mount_point) = (work.join("probe"), work.join("mount"));
        fs::create_dir(&mount_point).expect("a mount point");
        let image = File::options().create_new(true).read(true).write(true).open(&file);
        let image = image.expect("a file");
        // The size of the device is fixed from the start.
        image.set_len(IMAGE_BYTES_MAX).expect("a sparse file");
        Self { device: LoopDevice::new(&file), image, mount_point }
    }

    /// Returns the kernel's objection to an image, if any. It may write to the image, because otherwise it does not
    /// count errors.
    fn objection(&self, image: &[u8], read_only: bool) -> Option<String> {
        let before = crate::common::layout::superblock(image)
            .map_or_else(String::new, |sb| sb.raw.error_count.to_string());
        self.image
            .set_len(0)
            .and_then(|()| self.image.set_len(IMAGE_BYTES_MAX))
            .expect("a sparse file");
        for (number, piece) in image.chunks(PIECE_BYTES / 16).enumerate() {
            if !disk::is_zero(piece) {
                let at = (number * (PIECE_BYTES / 16)) as u64;
                self.image.write_all_at(piece, at).expect("room for an image");
            }
        }
        let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
        if let Err(error) = mount(self.device.path(), &self.mount_point, "ext4", flags, None) {
            return Some(format!("it is not mounted: {error}"));
        }
        let mut buffer = vec![0; PIECE_BYTES];
        let read = read_attributes(&self.mount_point, &mut buffer)
            .and_then(|()| read_all(&self.mount_point, &mut buffer));
        let name = self.device.path().file_name().and_then(|name| name.to_str()).expect("a name");
        // This reads all block bitmaps.
        let _ = fs::read(format!("/proc/fs/ext4/{name}/mb_groups"));
        let errors = fs::read_to_string(format!("/sys/fs/ext4/{name}/errors_count"));
        let errors = errors.unwrap_or_default();
        testkit::unmount_from(&self.mount_point);
        match read {
            Err(error) => Some(format!("it cannot be read: {error}")),
            // The superblock already counts earlier errors.
            Ok(()) if errors.trim() != before => Some(format!("{} errors", errors.trim())),
            Ok(()) => None,
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.mount_point, UnmountFlags::DETACH);
    }
}

/// Mounts an image with a change, unless the check finds something in it.
fn compare(victim: &Victim, change: &FieldChange, kernel: &Loop) -> Option<String> {
    let mut image = victim.image.clone();
    let bytes = change.value.to_le_bytes();
    image[change.at..change.at + change.width].copy_from_slice(&bytes[..change.width]);
    victim.layout.seal(&mut image);
    let Ok((findings, _)) = check(device(&image)) else { return None };
    if !findings.is_empty() {
        return None;
    }
    let features = crate::common::layout::superblock(&image)?.features;
    kernel.objection(&image, !features.unwritable().is_empty())
}

/// Compares about each `stride`th change of these images.
fn assert_mounted(victims: impl Iterator<Item = (&'static str, Victim)>, stride: usize) {
    let work = scratch();
    let kernel = Loop::new(work.path());
    let mut random = fastrand::Rng::with_seed(71);
    let (mut count, mut objections) = (0, Vec::new());
    for (name, victim) in victims {
        // The kernel may be built without quotas or case folding.
        if let Some(text) = kernel.objection(&victim.image, false) {
            println!("{name} is left out: {text}");
            continue;
        }
        let is_wanted = |target: &&DamageTarget| {
            let place = format!("{name}: {}", target.name);
            wanted().is_none_or(|(part, _)| place.contains(&part))
        };
        // Number of the next change, relative to the structure.
        let mut next = random.usize(..stride);
        for target in victim.targets.iter().filter(is_wanted) {
            let changes = changes_in(target);
            while next < changes {
                if let Some(change) = change_of(&victim, target, next) {
                    if let Some(text) = compare(&victim, &change, &kernel) {
                        println!("{name}: {}: {text}", change.what);
                        objections.push(format!("{name}: {}: {text}", change.what));
                    }
                    count += 1;
                }
                next += 1 + random.usize(..2 * stride - 1);
            }
            next -= changes;
        }
    }
    println!("{count} changes");
    assert!(count > 0, "the kernel mounts some image");
    assert!(objections.is_empty(), "{}:\n{}", objections.len(), objections.join("\n"));
}

#[test]
fn clean_golden_images_are_read_by_the_kernel() {
    require!(Mount("ext4"), Tool("losetup"));
    assert_mounted(GOLDEN.iter().map(|(name, _)| (*name, Victim::new(name))), stride());
}

#[test]
fn clean_images_of_mke2fs_are_read_by_the_kernel() {
    require!(Mount("ext4"), Tool("losetup"), Tool("mke2fs"), Tool("e2fsck"));
    let work = scratch();
    let made = made(work.path());
    assert_mounted(made.into_iter().map(|(name, image)| (name, Victim::of(image))), stride());
}

/// Returns the stride of the changes to test. A mount takes at least a tenth of a second.
fn stride() -> usize {
    wanted().map_or_else(|| effort(400_000, 400_000, 50), |(_, stride)| stride)
}

/// Returns a part of structure names and a stride, for example `superblock 12`: only every 12th change of these
/// structures is tested.
fn wanted() -> Option<(String, usize)> {
    let text = std::env::var("DISKWRIGHT_KERNEL_PROBE").ok()?;
    let (part, stride) = text.rsplit_once(' ')?;
    Some((part.to_owned(), stride.parse().ok()?))
}

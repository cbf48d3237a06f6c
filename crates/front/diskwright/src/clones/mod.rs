//! Clones: writable images that share a base, each an overlay file.
//!
//! A snapshot is an overlay that no longer changes, with the clone's next overlay above it. Commands open clones and
//! snapshots by their file names, like other images.
//!
//! ```no_run
//! # fn main() -> diskwright::Result<()> {
//! use diskwright::Image;
//! use diskwright::clones::{clone, reset, snapshot, ResetTarget};
//!
//! clone("root.img".as_ref(), &["web1.clone", "web2.clone"], None)?;
//! let image = Image::open_writable("web1.clone")?;
//! image.write("/etc/hostname", "web1\n")?;
//! image.close()?;
//! snapshot("web1.clone".as_ref(), "web1-configured".as_ref())?;
//! reset("web1.clone".as_ref(), &ResetTarget::Base)?;
//! # Ok(()) }
//! ```

mod commit;
mod open_bases;
mod overlay;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use disk::BlockDevice;
use disk::overlay_file::About;

pub use commit::{CommitOptions, CommitReport, commit};
#[cfg(all(feature = "mount", unix))]
pub(crate) use overlay::open_overlay;
use overlay::{BaseAccess, lasting, open_base};
pub(crate) use overlay::{open_image, open_image_to_write};

use crate::anywhere::{Base, identity_of_file};
use crate::lock::{self, Replace};
use crate::replace::Replacement;
use crate::{Error, Result, host};

/// Number of clones that are created together. Each needs some open files until it has its name.
const OPEN_CLONES_MAX: usize = 64;

/// Maximum size of a replaced file that is closed without a thread, in bytes.
const CLOSED_AT_ONCE_BYTES_MAX: u64 = 2 << 20;

/// State to which a clone is reset.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResetTarget {
    /// The last snapshot, or the base if there is none.
    Last,
    /// The image that was cloned.
    Base,
    /// A snapshot below the clone.
    Snapshot(PathBuf),
}

/// Creates writable clones of an image. Each is a new file that contains only changes of the base. The base may be at
/// any location, and may be a snapshot. It must not be changed as long as there are clones. `bytes` is the length of the
/// clones if they are longer than the base; then [`crate::resize::grow`] grows the file system.
///
/// # Errors
/// If the base cannot be opened or is open for writing, or a file exists or cannot be written. No clone remains then.
pub fn clone(base: &Path, names: &[impl AsRef<Path>], bytes: Option<u64>) -> Result<()> {
    // One level deeper, so that the clones can be opened.
    let Base { device, identity } = open_base(base, BaseAccess::default().below(base)?)?;
    let longer = bytes.filter(|&bytes| bytes != device.len());
    let about = About { base: lasting(base)?, identity, longer };
    let mut kept = Vec::with_capacity(names.len());
    let created = names.chunks(OPEN_CLONES_MAX).try_for_each(|names| {
        let names = names.iter().map(AsRef::as_ref);
        create_some(names, &about, &device, &mut kept)
    });
    // Clones mostly share a directory.
    let dirs: BTreeSet<&Path> = kept.iter().map(|name| directory_of(name)).collect();
    let done = created.and_then(|()| dirs.into_iter().try_for_each(sync));
    if done.is_err() {
        // Errors of removal are less important.
        kept.iter().for_each(|name| drop(fs::remove_file(name)));
    }
    done
}

/// Creates clones. Adds the names of those that exist to `kept`.
fn create_some<'n>(
    names: impl Iterator<Item = &'n Path>,
    about: &About,
    below: &Arc<dyn BlockDevice>,
    kept: &mut Vec<&'n Path>,
) -> Result<()> {
    let mut new = Vec::new();
    for name in names {
        let file = Replacement::create(name, Replace::Nothing).map_err(|e| e.at("write", name))?;
        overlay::create(file.file(), name, about, Arc::clone(below))?;
        new.push((name, file));
    }
    new.into_iter().try_for_each(|(name, file)| {
        file.keep().map_err(|refused| refused.at("write", name))?;
        kept.push(name);
        Ok(())
    })
}

/// Keeps the state of a clone under the name `snapshot`, and goes on above it. The clone must be closed. The snapshot is
/// read-only, can be cloned, and must stay as long as overlays lie above it.
///
/// # Errors
/// If the clone is not an overlay or is open, its base is missing or changed, `snapshot` exists, or a file cannot be
/// written. The clone is unchanged then.
pub fn snapshot(clone: &Path, snapshot: &Path) -> Result<()> {
    let (new, old) = replace(clone)?;
    // One level deeper, so that the clone can still be opened with the new overlay.
    let access = BaseAccess::new(true).below(clone)?;
    let below = overlay::read(clone, None, access)?;
    let failed = |e| Error::host("sync", clone, e);
    old.sync_all().map_err(failed)?;
    let identity = identity_of_file("file", clone, &old)?;
    let about = About { base: lasting(snapshot)?, identity, longer: None };
    overlay::create(new.file(), clone, &about, Arc::new(below.device))?;
    let permissions = old.metadata().map_err(failed)?.permissions();
    new.file().set_permissions(permissions.clone()).map_err(failed)?;
    fs::hard_link(clone, snapshot).map_err(|e| Error::host("create", snapshot, e))?;
    if let Err(refused) = new.keep() {
        // Both names are those of the clone.
        let _ = fs::remove_file(snapshot);
        return Err(refused.at("write", clone));
    }
    // After the rename, so that an interruption leaves no clone without write permission.
    let mut read_only = permissions;
    read_only.set_readonly(true);
    old.set_permissions(read_only).map_err(failed)?;
    let directories = BTreeSet::from([snapshot, clone].map(directory_of));
    directories.into_iter().try_for_each(sync)
}

/// Discards the changes of a clone since `target`. The clone must be closed. Snapshots remain.
///
/// # Errors
/// If the clone is not an overlay or is open, `target` is not below it, or its base cannot be opened. The clone is
/// unchanged then.
pub fn reset(clone: &Path, target: &ResetTarget) -> Result<()> {
    let (new, old) = replace(clone)?;
    let word = base_for(clone, target)?;
    let Base { device, identity } = open_base(&word, BaseAccess::default().below(clone)?)?;
    // The clone keeps its length.
    let (about, base_len) = overlay::header(clone)?;
    let longer = Some(about.longer.unwrap_or(base_len)).filter(|&len| len > device.len());
    let about = About { base: lasting(&word)?, identity, longer };
    overlay::create(new.file(), clone, &about, device)?;
    let permissions = old.metadata().map(|metadata| metadata.permissions());
    permissions
        .and_then(|permissions| new.file().set_permissions(permissions))
        .map_err(|e| Error::host("write", clone, e))?;
    new.keep().map_err(|refused| refused.at("write", clone))?;
    let synced = sync(directory_of(clone));
    close_later(old);
    synced
}

/// Closes a file without a name. The kernel then frees its contents, which takes about 0.3 ms for 1 MiB however they are
/// freed. So another thread closes a large file, and the caller does not wait.
fn close_later(file: File) {
    if !file.metadata().is_ok_and(|metadata| stored_bytes(&metadata) > CLOSED_AT_ONCE_BYTES_MAX) {
        return;
    }
    // If there can be no thread, its arguments are dropped here.
    let _ = thread::Builder::new().spawn(move || drop(file));
}

#[cfg(unix)]
fn stored_bytes(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::blocks(metadata).saturating_mul(512)
}

#[cfg(not(unix))]
fn stored_bytes(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}

/// Locks a clone, and creates the file that will replace it. Also returns the open file of the clone.
fn replace(clone: &Path) -> Result<(Replacement, File)> {
    // Only an overlay is replaced.
    overlay::header(clone)?;
    let new = Replacement::create(clone, Replace::Anything)
        .map_err(|refused| refused.at("write", clone))?;
    let old = lock::open_to_read(clone, true)?;
    overlay::refuse_second_name(clone, &old)?;
    Ok((new, old))
}

/// Returns the location of the base of a clone that is reset to `target`.
fn base_for(clone: &Path, target: &ResetTarget) -> Result<PathBuf> {
    let mut access = BaseAccess::default();
    let mut at = clone.to_owned();
    loop {
        let below = PathBuf::from(overlay::header(&at)?.0.base);
        let is_base = !overlay::is_overlay(&below);
        match target {
            ResetTarget::Last => return Ok(below),
            ResetTarget::Base if is_base => return Ok(below),
            ResetTarget::Snapshot(wanted) if crate::is_same_file(&below, wanted) => {
                return Ok(below);
            }
            ResetTarget::Snapshot(wanted) if is_base => {
                return Err(Error::Usage(format!(
                    "{} is not a snapshot of {}; clone it instead",
                    crate::text::shown(wanted),
                    crate::text::shown(clone)
                )));
            }
            ResetTarget::Base | ResetTarget::Snapshot(_) => {}
        }
        access = access.below(clone)?;
        at = below;
    }
}

fn directory_of(file: &Path) -> &Path {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Makes the names in a directory durable.
fn sync(directory: &Path) -> Result<()> {
    host::sync_directory(directory).map_err(|e| Error::host("sync", directory, e))
}

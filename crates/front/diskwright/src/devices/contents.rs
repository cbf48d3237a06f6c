//! Contents of disks and partitions.

use std::io;
use std::path::Path;
use std::sync::Arc;

use disk::BlockDevice;
use disk::partition::signature::{self, DetectedFormat, Signature, Usage};

use super::Device;
use crate::{Format, ImageOptions};

/// Adds the properties of the contents of an open device.
pub(super) fn add(mut found: Device, device: &Arc<dyn BlockDevice>) -> Device {
    if let Err(error) = fill(&mut found, device) {
        found.problem = Some(format!("cannot be read: {error}"));
    }
    found
}

fn fill(found: &mut Device, device: &Arc<dyn BlockDevice>) -> io::Result<()> {
    let signature = Signature::of(&**device)?;
    if let Some(format) = Format::of(&signature) {
        // A mounted file system is read, too, so it may change at the same time.
        let options = ImageOptions::new().norecovery(true);
        match options.info_of_device(Path::new(&found.path), Arc::clone(device)) {
            Ok(info) => {
                found.format = Some(info.format_name().to_owned());
                found.label = Some(info.label_text()).filter(|label| !label.is_empty());
                found.uuid = Some(info.uuid_text());
            }
            Err(error) => {
                found.format = Some(format.name().to_owned());
                found.problem = Some(error.to_string());
            }
        }
        return Ok(());
    }
    match signature {
        Signature::Other(other) => add_other(found, &other),
        Signature::Lost(lost) => {
            found.problem = Some(format!("{} without a superblock", lost.format));
        }
        _ => {
            let tables = signature::find_all(&**device)?;
            if let Some(table) = tables.iter().find(|other| other.usage == Usage::Table) {
                add_other(found, table);
            }
        }
    }
    Ok(())
}

fn add_other(found: &mut Device, other: &DetectedFormat) {
    found.format = Some(other.name.to_owned());
    let label = other.details.label.as_deref();
    found.label = label.map(|label| String::from_utf8_lossy(label).into_owned());
    found.uuid.clone_from(&other.details.uuid);
}

//! Contents of realtime files, which are on another device.

use disk::Part;
use vfs::{Error, Result};

use crate::XfsCore;
use crate::format::address::FsBlock;
use crate::inode::Handle;
use crate::map::{self, Place, Run};

/// Converts the addresses of a run of a realtime file, which were checked, to blocks of the realtime device.
///
/// # Errors
/// `Unsupported` if that device is not given and the run is not a hole.
pub(super) fn on_device(fs: &XfsCore, file: &Handle, run: Run) -> Result<Run> {
    let (start, unwritten) = match run.place {
        Place::Hole => return Ok(run),
        Place::Written(start) => (start, false),
        Place::Unwritten(start) => (start, true),
    };
    if fs.device().part_len(Part::Realtime).is_none() {
        let what = format!("inode {}, whose data is on the realtime device", file.ino());
        return Err(Error::unsupported(what, "name that device with --rt-device FILE"));
    }
    let block = map::realtime_of(&fs.volume, file)?.device_block(start, run.len);
    let block = block.ok_or_else(|| file.corrupt("extent", "outside of the realtime device"))?;
    let start = FsBlock::on_realtime(block);
    let place = if unwritten { Place::Unwritten(start) } else { Place::Written(start) };
    Ok(Run { place, ..run })
}

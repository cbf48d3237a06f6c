//! Contents of realtime files, which are on another device.

use disk::DeviceRole;
use vfs::hint::{Advice, Hint, Setting};
use vfs::{Error, Result};

use crate::XfsCore;
use crate::format::address::FsBlock;
use crate::format::inode::Fork;
use crate::inode::Handle;
use crate::map::{self, Piece, Place, Run};

/// Checks that the realtime device is given.
///
/// # Errors
/// `Unsupported` if it is not.
pub(super) fn check_present(fs: &XfsCore, file: &Handle) -> Result<()> {
    let is_internal = fs.volume.geometry.realtime.is_some_and(|it| it.is_internal());
    if is_internal || fs.device().part_len(DeviceRole::Realtime).is_some() {
        return Ok(());
    }
    let what = format!("inode {}, whose data is on the realtime device", file.ino());
    Err(Error::unsupported(
        what,
        Advice::before("name that device with ", Hint::Use(Setting::REALTIME_DEVICE)),
    ))
}

/// Converts an address of a realtime file, which was checked, to a block of the realtime device.
fn address(fs: &XfsCore, file: &Handle, start: FsBlock, len: u64) -> Result<FsBlock> {
    let block = map::realtime_of(&fs.volume, file)?.device_block(start, len);
    let block = block.ok_or_else(|| file.corrupt("extent", "outside of the realtime device"))?;
    Ok(FsBlock::on_realtime(block))
}

/// Converts the addresses of a run if the file is on the realtime device.
///
/// # Errors
/// `Unsupported` if that device is not given and the run is not a hole.
pub(super) fn on_device(fs: &XfsCore, file: &Handle, run: Run) -> Result<Run> {
    if !map::is_realtime(file, Fork::Data) || run.place == Place::Hole {
        return Ok(run);
    }
    check_present(fs, file)?;
    let place = match run.place {
        Place::Hole => Place::Hole,
        Place::Written(start) => Place::Written(address(fs, file, start, run.len)?),
        Place::Unwritten(start) => Place::Unwritten(address(fs, file, start, run.len)?),
    };
    Ok(Run { place, ..run })
}

/// Converts the addresses of a piece if the file is on the realtime device.
pub(super) fn piece_on_device(fs: &XfsCore, file: &Handle, piece: Piece) -> Result<Piece> {
    if !map::is_realtime(file, Fork::Data) {
        return Ok(piece);
    }
    let copied_from = piece.copied_from.map(|from| address(fs, file, from, piece.len));
    let start = address(fs, file, piece.start, piece.len)?;
    Ok(Piece { start, copied_from: copied_from.transpose()?, ..piece })
}

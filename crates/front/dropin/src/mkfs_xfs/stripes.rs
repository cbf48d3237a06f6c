//! Stripes of the data section: `-d sunit=,swidth=`, `su=,sw=` and `noalign`.

use xfs::mkfs::Stripe;

use crate::failure::{Failure, STATUSES};
use crate::lists::ListItem;
use crate::size::{self, Size};

/// Unit of `sunit` and `swidth` in bytes.
const SECTOR_BYTES: u32 = 512;

/// The options about stripes.
#[derive(Debug, Default)]
pub(super) struct Stripes {
    /// `-d noalign`.
    pub(super) is_off: bool,
    sunit: Option<u32>,
    swidth: Option<u32>,
    su: Option<Size>,
    sw: Option<u32>,
}

impl Stripes {
    /// Sets one option.
    pub(super) fn set(&mut self, item: &ListItem<'_>) -> Result<(), Failure> {
        let number = |text: &str| text.parse().map_err(|_| "write a number".to_owned());
        match item.name {
            "sunit" => self.sunit = Some(item.by(number)?),
            "swidth" => self.swidth = Some(item.by(number)?),
            "su" => self.su = Some(item.by(size::parse_xfs)?),
            _ => self.sw = Some(item.by(number)?),
        }
        Ok(())
    }

    /// Returns the stripes; `None` if there are none.
    pub(super) fn stripe(&self, block_bytes: u32) -> Result<Option<Stripe>, Failure> {
        let usage = |problem: &str| STATUSES.usage(problem);
        let (in_sectors, in_bytes) = ((self.sunit, self.swidth), (self.su, self.sw));
        let (unit_bytes, units) = match (in_sectors, in_bytes) {
            ((None, None), (None, None)) => return Ok(None),
            ((None, None), (Some(unit), Some(units))) => {
                let bytes = match unit {
                    Size::Blocks(blocks) => blocks.checked_mul(block_bytes.into()),
                    size => size.bytes(1),
                };
                let bytes = bytes.and_then(|bytes| u32::try_from(bytes).ok());
                (bytes.ok_or_else(|| usage("-d su is too large"))?, units)
            }
            ((None, None), _) => {
                return Err(usage("both data su and data sw options must be specified"));
            }
            ((Some(unit), Some(width)), (None, None)) => of_sectors(unit, width)?,
            (_, (None, None)) => {
                return Err(usage("both data sunit and data swidth options must be specified"));
            }
            _ => return Err(usage("-d su and sw exclude -d sunit and swidth")),
        };
        if unit_bytes == 0 && units == 0 {
            return Ok(None);
        }
        if self.is_off {
            return Err(usage("-d noalign excludes stripes"));
        }
        if unit_bytes == 0 || !unit_bytes.is_multiple_of(block_bytes) || units == 0 {
            return Err(usage("the stripe unit must be a multiple of the block size"));
        }
        Ok(Some(Stripe { unit_bytes, units }))
    }
}

/// Converts a stripe unit and a stripe width in sectors to bytes and units.
fn of_sectors(unit: u32, width: u32) -> Result<(u32, u32), Failure> {
    let is_whole = if unit == 0 { width == 0 } else { width.is_multiple_of(unit) };
    if !is_whole {
        let problem =
            format!("stripe width ({width}) must be a multiple of the stripe unit ({unit})");
        return Err(STATUSES.usage(problem));
    }
    let bytes = unit.checked_mul(SECTOR_BYTES);
    let bytes = bytes.ok_or_else(|| STATUSES.usage("-d sunit is too large"))?;
    Ok((bytes, width.checked_div(unit).unwrap_or(0)))
}

//! Discarding free space, for fstrim(8).

use linux::{Errno, Reply, ioctl};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Ioctl;
use crate::{Adapter, caller};

/// `FITRIM`.
pub(super) const FITRIM: u32 = ioctl::read_write(b'X', 121, size_of::<FstrimRange>());

/// `struct fstrim_range`: a byte range of the file system, and the minimum length of a run. In the answer, `len` is the
/// number of discarded bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct FstrimRange {
    start: u64,
    len: u64,
    len_min: u64,
}

impl Adapter<'_> {
    /// `FITRIM`. Allowed to the superuser, and to the user who mounted the image and can write to it.
    pub(super) fn trim(&self, request: &Ioctl<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let own = rustix::process::geteuid().as_raw();
        if !caller::uid(request.header).is_some_and(|uid| uid == 0 || uid == own) {
            return Err(Errno::PERM);
        }
        self.check_writable()?;
        let mut asked: FstrimRange = ioctl::input(request.data)?;
        let totals = self.result(self.fs.statfs())?;
        let block_bytes = u64::from(totals.block_size);
        // Kernels refuse a length that covers no block, and a start behind the end.
        if asked.len < block_bytes || asked.start >= totals.blocks.saturating_mul(block_bytes) {
            return Err(Errno::INVAL);
        }
        let range = asked.start..asked.start.saturating_add(asked.len);
        asked.len = self.result(self.fs.trim(range, asked.len_min))?;
        ioctl::answer(request.args, &asked, reply)
    }
}

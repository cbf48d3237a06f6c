//! FS_IOC_GETFSLABEL and FS_IOC_SETFSLABEL: the label of the file system, for `xfs_io -c label`.

use linux::{Errno, Reply, ioctl};

use crate::ioctl::{Ioctl, LABEL_ROOM};
use crate::{Adapter, caller};

impl Adapter<'_> {
    /// Answers FS_IOC_GETFSLABEL.
    pub(crate) fn get_label(
        &self,
        request: &Ioctl<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        let label = self.result(self.fs.label())?;
        let mut room = [0; LABEL_ROOM];
        room.get_mut(..label.len()).ok_or(Errno::IO)?.copy_from_slice(&label);
        ioctl::answer(request.args, &room, reply)
    }

    /// Answers FS_IOC_SETFSLABEL, for the superuser only.
    pub(crate) fn set_label(&self, request: &Ioctl<'_>) -> Result<(), Errno> {
        if !caller::is_superuser(request.header) {
            return Err(Errno::PERM);
        }
        let room: [u8; LABEL_ROOM] = ioctl::input(request.data)?;
        let len = room.iter().position(|&byte| byte == 0).unwrap_or(LABEL_ROOM);
        self.check_writable()?;
        self.result(self.fs.set_label(&room[..len]))
    }
}

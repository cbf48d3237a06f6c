//! Structures and numbers of `include/uapi/linux/ublk_cmd.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ioctl::read_write;

/// Type of the numbers of commands.
const TYPE: u8 = b'u';

const fn control(nr: u8) -> u32 {
    read_write(TYPE, nr, size_of::<ControlCommand>())
}

/// `UBLK_U_CMD_ADD_DEV`.
pub(super) const ADD_DEV: u32 = control(0x04);
/// `UBLK_U_CMD_DEL_DEV`.
pub(super) const DEL_DEV: u32 = control(0x05);
/// `UBLK_U_CMD_START_DEV`.
pub(super) const START_DEV: u32 = control(0x06);
/// `UBLK_U_CMD_STOP_DEV`.
pub(super) const STOP_DEV: u32 = control(0x07);
/// `UBLK_U_CMD_SET_PARAMS`.
pub(super) const SET_PARAMS: u32 = control(0x08);
/// `UBLK_U_IO_FETCH_REQ`.
pub(super) const FETCH_REQ: u32 = read_write(TYPE, 0x20, size_of::<RequestCommand>());
/// `UBLK_U_IO_COMMIT_AND_FETCH_REQ`.
pub(super) const COMMIT_AND_FETCH_REQ: u32 = read_write(TYPE, 0x21, size_of::<RequestCommand>());

/// Numbers of the kernel's requests (`UBLK_IO_OP_…`).
pub(super) mod op {
    pub(in super::super) const READ: u32 = 0;
    pub(in super::super) const WRITE: u32 = 1;
    pub(in super::super) const FLUSH: u32 = 2;
    pub(in super::super) const DISCARD: u32 = 3;
    pub(in super::super) const WRITE_ZEROES: u32 = 5;
    /// Bits of [`super::Descriptor::op_flags`] that contain the number.
    pub(in super::super) const MASK: u32 = 0xff;
}

/// Maximum number of requests of a queue, for the distance of mapped descriptors.
pub(super) const QUEUE_DEPTH_MAX: u64 = 4096;
/// Offset in the character device at which contents begin (`UBLKSRV_IO_BUF_OFFSET`).
const CONTENTS_OFFSET: u64 = 0x8000_0000;
/// Position of the request's number in an offset of contents.
const TAG_SHIFT: u32 = 25;
/// Position of the queue's number in an offset of contents.
const QUEUE_SHIFT: u32 = 41;

/// Returns the offset of a request's contents in the character device.
pub(super) const fn contents_offset(queue: u16, tag: u16) -> u64 {
    CONTENTS_OFFSET + ((queue as u64) << QUEUE_SHIFT) + ((tag as u64) << TAG_SHIFT)
}

/// `UBLK_F_CMD_IOCTL_ENCODE`.
const IOCTL_ENCODE: u64 = 1 << 6;
/// `UBLK_F_USER_COPY`.
const USER_COPY: u64 = 1 << 7;

/// Number of a device that the kernel chooses.
const ANY_DEVICE: u32 = u32::MAX;
/// Queue of a command for the whole device.
const NO_QUEUE: u16 = u16::MAX;

/// `struct ublksrv_ctrl_cmd`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct ControlCommand {
    dev_id: u32,
    queue_id: u16,
    /// Length in bytes of the structure at `addr`.
    len: u16,
    addr: u64,
    data: u64,
    dev_path_len: u16,
    pad: u16,
    reserved: u32,
}

impl ControlCommand {
    /// Returns a command with the address and the length of a structure, or with a number.
    pub(super) const fn new(dev_id: u32, (addr, len): (u64, u16), data: u64) -> Self {
        Self { dev_id, queue_id: NO_QUEUE, len, addr, data, dev_path_len: 0, pad: 0, reserved: 0 }
    }
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    /// Number of queues. The kernel lowers it to the number of processors.
    pub(super) nr_hw_queues: u16,
    /// Number of requests of a queue.
    pub(super) queue_depth: u16,
    state: u16,
    pad0: u16,
    /// Maximum size of a request in bytes.
    pub(super) max_io_buf_bytes: u32,
    /// Number of the device.
    pub(super) dev_id: u32,
    ublksrv_pid: i32,
    pad1: u32,
    flags: u64,
    ublksrv_flags: u64,
    owner_uid: u32,
    owner_gid: u32,
    reserved: [u64; 2],
}

impl DeviceInfo {
    pub(super) const fn new(queues: u16, depth: u16, request_bytes: u32) -> Self {
        Self {
            nr_hw_queues: queues,
            queue_depth: depth,
            state: 0,
            pad0: 0,
            max_io_buf_bytes: request_bytes,
            dev_id: ANY_DEVICE,
            ublksrv_pid: -1,
            pad1: 0,
            flags: IOCTL_ENCODE | USER_COPY,
            ublksrv_flags: 0,
            owner_uid: 0,
            owner_gid: 0,
            reserved: [0; 2],
        }
    }

    /// Returns whether contents are copied by reads and writes.
    pub(super) const fn has_user_copy(&self) -> bool {
        self.flags & USER_COPY != 0
    }
}

/// `UBLK_PARAM_TYPE_BASIC` and `UBLK_PARAM_TYPE_DISCARD`.
const TYPES: u32 = 1 | 2;
/// `UBLK_ATTR_READ_ONLY`.
const READ_ONLY: u32 = 1;
/// `UBLK_ATTR_VOLATILE_CACHE`: the kernel sends flushes.
const VOLATILE_CACHE: u32 = 1 << 2;
/// Logarithm of a sector.
const SECTOR_LOG: u8 = 9;
/// Logarithm of the size of requests that are performed without reading before: 4096.
const BLOCK_LOG: u8 = 12;
/// Maximum number of sectors that one request discards or fills with zeros: 1 GiB.
const DISCARD_SECTORS: u32 = 1 << 21;

/// `struct ublk_params` with `struct ublk_param_basic` and `struct ublk_param_discard`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Parameters {
    len: u32,
    types: u32,
    attrs: u32,
    logical_bs_shift: u8,
    physical_bs_shift: u8,
    io_opt_shift: u8,
    io_min_shift: u8,
    max_sectors: u32,
    chunk_sectors: u32,
    dev_sectors: u64,
    virt_boundary_mask: u64,
    discard_alignment: u32,
    discard_granularity: u32,
    max_discard_sectors: u32,
    max_write_zeroes_sectors: u32,
    max_discard_segments: u16,
    reserved: u16,
    padding: u32,
}

impl Parameters {
    /// Returns the parameters of a device with `sectors` sectors and requests of at most `request_bytes`.
    pub(super) const fn new(sectors: u64, read_only: bool, request_bytes: u32) -> Self {
        Self {
            len: size_of::<Self>() as u32,
            types: TYPES,
            attrs: if read_only { READ_ONLY } else { VOLATILE_CACHE },
            logical_bs_shift: SECTOR_LOG,
            physical_bs_shift: BLOCK_LOG,
            io_opt_shift: BLOCK_LOG,
            io_min_shift: BLOCK_LOG,
            max_sectors: request_bytes >> SECTOR_LOG,
            chunk_sectors: 0,
            dev_sectors: sectors,
            virt_boundary_mask: 0,
            discard_alignment: 0,
            discard_granularity: 1 << BLOCK_LOG,
            max_discard_sectors: DISCARD_SECTORS,
            max_write_zeroes_sectors: DISCARD_SECTORS,
            max_discard_segments: 1,
            reserved: 0,
            padding: 0,
        }
    }
}

/// `struct ublksrv_io_cmd`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct RequestCommand {
    pub(super) q_id: u16,
    /// Number of the request in its queue.
    pub(super) tag: u16,
    /// Bytes read or written, or a negative error number.
    pub(super) result: i32,
    /// 0, because contents are copied by reads and writes.
    pub(super) addr: u64,
}

/// A request (`struct ublksrv_io_desc`).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Descriptor {
    pub(super) op_flags: u32,
    pub(super) nr_sectors: u32,
    pub(super) start_sector: u64,
    addr: u64,
}

const _: () = assert!(size_of::<ControlCommand>() == 32 && size_of::<DeviceInfo>() == 64);
// The kernel accepts shorter and longer parameters by their length.
const _: () = assert!(size_of::<Parameters>() == 64);
const _: () = assert!(size_of::<RequestCommand>() == 16 && size_of::<Descriptor>() == 24);

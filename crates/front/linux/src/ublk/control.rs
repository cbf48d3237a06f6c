//! Commands to the control device.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::opcode::UringCmd80;
use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue};
use zerocopy::IntoBytes;

use super::abi::{self, ControlCommand, DeviceInfo, Parameters};

/// Path of the control device.
const PATH: &str = "/dev/ublk-control";

/// The control device, with a ring for one command at a time.
pub(super) struct Control {
    file: File,
    ring: IoUring<Entry128, cqueue::Entry>,
}

impl Control {
    pub(super) fn open() -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(PATH).map_err(|error| {
            let hint = "load the kernel module ublk_drv, and run as root";
            io::Error::new(error.kind(), format!("{PATH}: {error}; {hint}"))
        })?;
        Ok(Self { file, ring: IoUring::builder().build(1)? })
    }

    /// Adds a device. The kernel changes `info` to what it offers.
    pub(super) fn add(&mut self, info: &mut DeviceInfo) -> io::Result<()> {
        let bytes = info.as_mut_bytes();
        let structure = (bytes.as_mut_ptr().expose_provenance() as u64, bytes.len() as u16);
        self.run(abi::ADD_DEV, &ControlCommand::new(info.dev_id, structure, 0))
    }

    pub(super) fn set_parameters(&mut self, id: u32, parameters: &Parameters) -> io::Result<()> {
        let bytes = parameters.as_bytes();
        let structure = (bytes.as_ptr().expose_provenance() as u64, bytes.len() as u16);
        self.run(abi::SET_PARAMS, &ControlCommand::new(id, structure, 0))
    }

    /// Creates the block device, after all queues have fetched requests.
    pub(super) fn start(&mut self, id: u32) -> io::Result<()> {
        self.run(abi::START_DEV, &ControlCommand::new(id, (0, 0), std::process::id().into()))
    }

    /// Removes the block device, and ends the requests that wait.
    pub(super) fn stop(&mut self, id: u32) -> io::Result<()> {
        self.run(abi::STOP_DEV, &ControlCommand::new(id, (0, 0), 0))
    }

    /// Removes the device. Its character device must be closed.
    pub(super) fn remove(&mut self, id: u32) -> io::Result<()> {
        self.run(abi::DEL_DEV, &ControlCommand::new(id, (0, 0), 0))
    }

    /// Performs a command. The structure whose address it contains must live until then.
    fn run(&mut self, number: u32, command: &ControlCommand) -> io::Result<()> {
        let mut area = [0; 80];
        area[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let submission = UringCmd80::new(Fd(self.file.as_raw_fd()), number).cmd(area).build();
        // SAFETY: callers pass addresses of structures that they borrow during this call, which
        // returns after the completion.
        unsafe { self.ring.submission().push(&submission) }.map_err(io::Error::other)?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            if let Some(completion) = self.ring.completion().next() {
                let result = completion.result();
                return if result < 0 {
                    Err(io::Error::from_raw_os_error(-result))
                } else {
                    Ok(())
                };
            }
        }
    }
}

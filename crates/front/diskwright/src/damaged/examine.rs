//! Examination of one file: its attributes, link target, extent map and contents.

use disk::BlockDevice;
use std::ops::ControlFlow;
use vfs::runs::{Run, add_data_runs, read_salvaging};
use vfs::{Attributes, Error, ExtentPlace, FileSystem, FileType, Ino};

use super::DamagedFile;

/// Bytes read at a time.
const READ_BYTES: u64 = 1 << 20;

/// Granularity of lost ranges in bytes, if blocks are larger or their size is unknown.
const UNIT_BYTES: u32 = 4096;

/// Way to find unreadable contents.
#[derive(Clone, Copy)]
pub(super) enum Contents<'d> {
    /// Compare the extent maps with the known bad areas of the device.
    Mapped(&'d dyn BlockDevice),
    /// Read the contents.
    Read,
}

/// Returns whether an error is damage of the image or of its device.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt(_) | Error::Device(_))
}

/// Examines files.
pub(super) struct Examination<'e> {
    fs: &'e dyn FileSystem,
    contents: Contents<'e>,
    unit: usize,
    buffer: Vec<u8>,
}

impl<'e> Examination<'e> {
    pub(super) fn new(fs: &'e dyn FileSystem, contents: Contents<'e>) -> Self {
        let block = fs.statfs().map_or(UNIT_BYTES, |totals| totals.block_size);
        let unit = block.clamp(512, UNIT_BYTES).next_power_of_two() as usize;
        Self { fs, contents, unit, buffer: Vec::new() }
    }

    /// Examines a file. Adds 1 to `not_read` if its contents cannot be read for another reason than damage.
    pub(super) fn file(
        &mut self,
        path: Vec<u8>,
        attributes: &Attributes,
        not_read: &mut u64,
    ) -> DamagedFile {
        let &Attributes { ino, file_type, size, .. } = attributes;
        let (some_ino, some_type) = (Some(ino), Some(file_type));
        let mut file = DamagedFile {
            path,
            ino: some_ino,
            file_type: some_type,
            size,
            ..DamagedFile::default()
        };
        self.attributes_of(&mut file, ino);
        match file_type {
            FileType::Regular => {
                let examined = match self.contents {
                    Contents::Mapped(device) => self.mapped(&mut file, ino, device),
                    Contents::Read => self.read(&mut file, ino),
                };
                *not_read += u64::from(examined.is_err());
            }
            FileType::Symlink => match self.fs.readlink(ino) {
                Err(error) if is_damage(&error) => file.problem(&error),
                _ => {}
            },
            _ => {}
        }
        file
    }

    /// Reads all extended attributes.
    fn attributes_of(&self, file: &mut DamagedFile, ino: Ino) {
        let mut names = Vec::new();
        if let Err(error) = self.fs.list_xattrs(ino, &mut |name| names.push(name.to_vec()))
            && is_damage(&error)
        {
            file.problem(&error);
        }
        for name in names {
            match self.fs.get_xattr(ino, &name) {
                Err(error) if is_damage(&error) => file.problem(&error),
                _ => {}
            }
        }
    }

    /// Finds lost ranges by the extent map.
    fn mapped(
        &self,
        file: &mut DamagedFile,
        ino: Ino,
        device: &dyn BlockDevice,
    ) -> Result<(), Error> {
        let size = file.size;
        let mut position = 0;
        let mapped = self.fs.extent_map(ino, 0, size, &mut |extent| {
            position = extent.offset.saturating_add(extent.len);
            if let ExtentPlace::Device(start) = extent.place {
                let mut done = 0;
                while let Some(bad) = device.known_unreadable(start + done, extent.len - done) {
                    let offset = |byte: u64| extent.offset + (byte - start);
                    file.lost.add(offset(bad.start)..offset(bad.end));
                    done = bad.end - start;
                }
                file.is_device_error |= done > 0;
            }
            ControlFlow::Continue(())
        });
        end_of_map(file, position, mapped)
    }

    /// Finds lost ranges by reading.
    fn read(&mut self, file: &mut DamagedFile, ino: Ino) -> Result<(), Error> {
        let mut runs = Vec::new();
        let (position, mapped) = match add_data_runs(self.fs, ino, file.size, &mut runs) {
            Ok(()) => (file.size, Ok(())),
            Err((position, error)) => (position, Err(error)),
        };
        let mut other = None;
        for Run { offset, len } in runs {
            let mut done = 0;
            while done < len && other.is_none() {
                let count = READ_BYTES.min(len - done);
                self.buffer.resize(count as usize, 0);
                let at = offset + done;
                read_salvaging(
                    self.fs,
                    ino,
                    at,
                    &mut self.buffer,
                    self.unit,
                    &mut |lost, error| {
                        if is_damage(&error) {
                            file.is_device_error |= matches!(error, Error::Device(_));
                            file.lost.add(lost);
                        } else {
                            other = Some(error);
                        }
                    },
                );
                done += count;
            }
        }
        end_of_map(file, position, mapped)?;
        other.map_or(Ok(()), Err)
    }
}

/// Records that the rest of a file is lost if its extent map ended with an error.
fn end_of_map(
    file: &mut DamagedFile,
    position: u64,
    mapped: Result<(), Error>,
) -> Result<(), Error> {
    match mapped {
        Err(error) if is_damage(&error) => {
            file.problem(&error);
            file.lost.add(position..file.size);
            Ok(())
        }
        other => other,
    }
}

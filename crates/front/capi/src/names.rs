//! Creating, moving and removing names.

use std::ffi::{c_char, c_int};

use diskwright::fs::{DeviceNumber, FileType, RenameMode, SpecialFile};

use crate::border::{call, path};
use crate::bytes::{dw_bytes, put_bytes};
use crate::error::dw_error;
use crate::failure::{Failure, Result};
use crate::handle::look;
use crate::image::dw_image;

/// dw_rename fails if the new name exists.
pub const DW_RENAME_NOREPLACE: u32 = 1;
/// dw_rename exchanges the two names; both must exist.
pub const DW_RENAME_EXCHANGE: u32 = 2;

/// Creates a directory with permissions 0755.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_mkdir(
    image: *const dw_image,
    at: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.create_dir(path(at)?)?)) }
}

/// Creates a directory and its missing parents. Existing directories do not change.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_mkdir_all(
    image: *const dw_image,
    at: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.create_dir_all(path(at)?)?)) }
}

/// Removes a name of a non-directory. The file is freed with its last name, or when it is no longer open. Does not
/// follow symbolic links.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_unlink(
    image: *const dw_image,
    at: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.remove_file(path(at)?)?)) }
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_rmdir(
    image: *const dw_image,
    at: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.remove_dir(path(at)?)?)) }
}

/// Removes a directory with everything in it. Does not follow symbolic links. After an error, the names removed so far
/// remain removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_remove_all(
    image: *const dw_image,
    at: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.remove_dir_all(path(at)?)?)) }
}

/// Renames a file or a directory. With `flags` 0, an existing target is replaced (a directory only by a directory, and
/// only if it is empty). The other values are DW_RENAME_NOREPLACE and DW_RENAME_EXCHANGE. Does not follow symbolic
/// links at the end of either path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_rename(
    image: *const dw_image,
    from: *const c_char,
    to: *const c_char,
    flags: u32,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let mode = match flags {
                0 => RenameMode::Replace,
                DW_RENAME_NOREPLACE => RenameMode::NoReplace,
                DW_RENAME_EXCHANGE => RenameMode::Exchange,
                _ => return Err(Failure::invalid("unknown rename flags")),
            };
            Ok(look(image)?.rename_with(path(from)?, path(to)?, mode)?)
        })
    }
}

/// Adds a name to a file. A symbolic link at `original` is not followed; the link itself gets the name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_link(
    image: *const dw_image,
    original: *const c_char,
    link: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.hard_link(path(original)?, path(link)?)?)) }
}

/// Creates a symbolic link to `target`, which is not checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_symlink(
    image: *const dw_image,
    target: *const c_char,
    link: *const c_char,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || Ok(look(image)?.symlink(path(target)?, path(link)?)?)) }
}

/// Returns the target of a symbolic link, to be freed with dw_bytes_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_readlink(
    image: *const dw_image,
    at: *const c_char,
    target: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || put_bytes(target, || Ok(look(image)?.read_link(path(at)?)?))) }
}

/// Returns the absolute path of the resolved file, without symbolic links, "." and ".."; to be freed with
/// dw_bytes_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_realpath(
    image: *const dw_image,
    at: *const c_char,
    real: *mut dw_bytes,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe { call(error, || put_bytes(real, || Ok(look(image)?.canonicalize(path(at)?)?))) }
}

/// Creates a device, a named pipe or a socket. `mode` contains the type and permissions as in st_mode of Linux: 0060660
/// is a block device. `major` and `minor` apply to devices.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dw_mknod(
    image: *const dw_image,
    at: *const c_char,
    mode: u32,
    major: u32,
    minor: u32,
    error: *mut *mut dw_error,
) -> c_int {
    // SAFETY: the caller follows the rules of the header.
    unsafe {
        call(error, || {
            let special = special(mode, DeviceNumber { major, minor })?;
            Ok(look(image)?.create_special(path(at)?, special, mode & 0o7777)?)
        })
    }
}

fn special(mode: u32, device: DeviceNumber) -> Result<SpecialFile> {
    Ok(match u16::try_from(mode).ok().and_then(FileType::from_mode) {
        Some(FileType::CharDevice) => SpecialFile::CharDevice(device),
        Some(FileType::BlockDevice) => SpecialFile::BlockDevice(device),
        Some(FileType::Fifo) => SpecialFile::Fifo,
        Some(FileType::Socket) => SpecialFile::Socket,
        _ => {
            let problem = "the mode is not that of a device, pipe or socket; use another function \
                           for other files";
            return Err(Failure::invalid(problem));
        }
    })
}

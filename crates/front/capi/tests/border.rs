//! Checks that the C programs in `tests/c` cannot make: structures of other versions, and memory leaks.

use std::ffi::{CString, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use diskwright_capi::*;

const SIZE: usize = 8 << 20;

/// A device in memory for one thread, which counts calls of its release function.
struct Memory {
    bytes: Vec<u8>,
    releases: AtomicU32,
}

unsafe extern "C" fn read(context: *mut c_void, at: u64, to: *mut c_void, len: usize) -> c_int {
    // SAFETY: the test's own memory, and a place that lies in it.
    unsafe {
        let memory = &*context.cast::<Memory>();
        ptr::copy_nonoverlapping(memory.bytes.as_ptr().add(at as usize), to.cast(), len);
    }
    0
}

unsafe extern "C" fn write(
    context: *mut c_void,
    at: u64,
    data: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: the same.
    unsafe {
        let memory = &mut *context.cast::<Memory>();
        ptr::copy_nonoverlapping(data.cast(), memory.bytes.as_mut_ptr().add(at as usize), len);
    }
    0
}

unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: the same.
    unsafe { &*context.cast::<Memory>() }.releases.fetch_add(1, Ordering::Relaxed);
}

fn memory() -> *mut Memory {
    Box::into_raw(Box::new(Memory { bytes: vec![0; SIZE], releases: AtomicU32::new(0) }))
}

fn device(memory: *mut Memory) -> dw_device {
    dw_device {
        struct_size: size_of::<dw_device>(),
        context: memory.cast(),
        size: SIZE as u64,
        read: Some(read),
        write: Some(write),
        zero: None,
        flush: None,
        release: Some(release),
    }
}

/// A program that knows only the first fields of a structure keeps its behaviour.
#[test]
fn structures_of_older_and_newer_programs_are_understood() {
    let memory = memory();
    // SAFETY: what the header asks for is there; the test frees what it gets.
    unsafe {
        let mut format: dw_format_options = std::mem::zeroed();
        format.struct_size = std::mem::offset_of!(dw_format_options, label);
        format.format = DW_EXT4;
        // Not counted: it lies behind what the size says.
        format.label = ptr::dangling();
        let (mut image, mut error) = (ptr::null_mut(), ptr::null_mut());
        let code = dw_format_device(&device(memory), &format, &mut image, &mut error);
        assert_eq!((code, error.is_null()), (0, true));
        let mut label = dw_bytes { data: ptr::null_mut(), len: 9 };
        assert_eq!(dw_label(image, &mut label, ptr::null_mut()), 0);
        assert_eq!(label.len, 0);
        dw_bytes_free(&mut label);
        dw_image_free(image);
        assert_eq!((*memory).releases.load(Ordering::Relaxed), 1);
        drop(Box::from_raw(memory));
    }
}

/// A rejected device is released once, unless its structure was rejected.
#[test]
fn a_device_is_released_once() {
    let memory = memory();
    // SAFETY: as above.
    unsafe {
        let (mut image, mut error) = (ptr::null_mut(), ptr::null_mut());
        let code = dw_open_device(&device(memory), ptr::null(), &mut image, &mut error);
        assert_eq!(code, dw_code::DW_UNSUPPORTED as c_int);
        assert_eq!(dw_error_code(error), code);
        dw_error_free(error);
        assert_eq!((*memory).releases.load(Ordering::Relaxed), 1);
        let unset = dw_device { struct_size: 0, ..device(memory) };
        let code = dw_open_device(&unset, ptr::null(), &mut image, ptr::null_mut());
        assert_eq!(code, dw_code::DW_INVALID as c_int);
        assert_eq!((*memory).releases.load(Ordering::Relaxed), 1);
        drop(Box::from_raw(memory));
    }
}

/// A replaced file has no valid name while it is created: names with NUL are impossible, and C strings end there.
#[test]
fn a_file_of_the_host_is_made_and_opened() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new.img");
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: as above.
    unsafe {
        let mut format: dw_format_options = std::mem::zeroed();
        (format.struct_size, format.format) = (size_of::<dw_format_options>(), DW_EXT4);
        let (mut image, mut again) = (ptr::null_mut(), ptr::null_mut());
        let none = ptr::null_mut();
        assert_eq!(dw_create(name.as_ptr(), SIZE as u64, &format, &mut image, none), 0);
        let taken = dw_create(name.as_ptr(), SIZE as u64, &format, &mut again, none);
        assert_eq!((taken, again.is_null()), (dw_code::DW_EXISTS as c_int, true));
        assert_eq!(dw_image_close(image, none), 0);
        dw_image_free(image);
        assert_eq!(dw_open(name.as_ptr(), ptr::null(), &mut image, none), 0);
        assert_eq!(dw_image_is_writable(image), 0);
        dw_image_free(image);
    }
}

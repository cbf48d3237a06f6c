//! Sequences of calls of the C library, on images that may be damaged and devices that may fail. Handles may be NULL
//! or of another type, calls may follow the close of the image, and their order is arbitrary. Errors are fine. A
//! reported bug (DW_BUG), an error that does not fit its code, a device that is not released exactly once, and
//! sanitizer findings are bugs.
#![no_main]

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use disk::{BlockDevice, MemoryDevice};
use diskwright_capi::*;
use libfuzzer_sys::fuzz_target;

const EIO: c_int = 5;

/// Maximum number of calls in a sequence.
const CALLS_MAX: usize = 200;

/// Maximum number of bytes of a read or write call.
const BUFFER_BYTES: usize = 5000;

struct Context {
    device: Arc<MemoryDevice>,
    /// Return value of the device functions.
    answer: AtomicI32,
    releases: AtomicU32,
}

/// # Safety
/// Called with the context below.
unsafe fn act(
    context: *mut c_void,
    act: impl FnOnce(&MemoryDevice) -> std::io::Result<()>,
) -> c_int {
    // SAFETY: the context of the target, which outlives every image.
    let context = unsafe { &*context.cast::<Context>() };
    match context.answer.load(Ordering::Relaxed) {
        0 => act(&context.device).map_or(EIO, |()| 0),
        answer => answer,
    }
}

unsafe extern "C" fn read(context: *mut c_void, at: u64, to: *mut c_void, len: usize) -> c_int {
    // SAFETY: the library passes memory of that length.
    unsafe {
        let to = std::slice::from_raw_parts_mut(to.cast::<u8>(), len);
        act(context, |device| device.read_at(at, to))
    }
}

unsafe extern "C" fn write(
    context: *mut c_void,
    at: u64,
    from: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: as above.
    unsafe {
        let from = std::slice::from_raw_parts(from.cast::<u8>(), len);
        act(context, |device| device.write_at(at, from))
    }
}

unsafe extern "C" fn flush(context: *mut c_void) -> c_int {
    // SAFETY: as above.
    unsafe { act(context, |device| device.flush()) }
}

unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: as above.
    unsafe { &*context.cast::<Context>() }.releases.fetch_add(1, Ordering::Relaxed);
}

/// Handles of the sequence; NULL if there is none.
struct Held {
    image: *mut dw_image,
    files: [*mut dw_file; 3],
    dir: *mut dw_dir,
    walk: *mut dw_walk,
    bytes: dw_bytes,
    opened: u32,
}

/// Rest of the input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        // Small numbers, and the largest ones.
        match self.byte() {
            255 => u64::MAX - u64::from(self.byte()),
            high => u64::from(high) << (self.byte() % 40),
        }
    }

    fn path(&mut self) -> CString {
        const PATHS: [&str; 12] = [
            "/",
            "",
            "/a",
            "/b",
            "/a/b",
            "/dir",
            "/dir/x",
            "link",
            "//a//",
            "/a/../b",
            "/lost+found",
            ".",
        ];
        let choice = self.byte();
        if let Some(path) = PATHS.get(usize::from(choice)) {
            return CString::new(*path).expect("no NUL");
        }
        let len = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        CString::new(bytes.iter().copied().filter(|byte| *byte != 0).collect::<Vec<_>>())
            .expect("no NUL")
    }

    /// Returns a handle, or in one of eight cases NULL or a handle of another type.
    fn handle<H>(&mut self, held: *mut H, other: *mut c_void) -> *mut H {
        match self.byte() {
            0..16 => ptr::null_mut(),
            16..32 => other.cast(),
            _ => held,
        }
    }
}

/// Verifies the result of a call.
unsafe fn ended(code: c_int, error: *mut dw_error) -> bool {
    assert_ne!(code, dw_code::DW_BUG as c_int);
    assert!((0..=dw_code::DW_BUG as c_int).contains(&code), "{code}");
    // SAFETY: an error of this call, or NULL.
    unsafe {
        assert_eq!(dw_error_code(error), code);
        let message = std::ffi::CStr::from_ptr(dw_error_message(error));
        assert!(!message.is_empty());
        let is_damage = dw_error_place(error, ptr::null_mut()) == 1;
        assert_eq!(is_damage, !dw_error_structure(error).is_null());
        dw_error_free(error);
    }
    code == 0
}

/// Executes one call and verifies its result.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let mut error = ptr::null_mut();
        let code = $name($($argument,)* &mut error);
        ended(code, error)
    }};
}

impl Held {
    unsafe fn open(&mut self, device: &dw_device, input: &mut Input<'_>) {
        // Handles that outlive their image may still write to the device.
        let is_free = self.image.is_null() && self.dir.is_null() && self.walk.is_null();
        if !is_free || self.files.iter().any(|file| !file.is_null()) {
            return;
        }
        let open = dw_open_options {
            struct_size: size_of::<dw_open_options>(),
            flags: u32::from(input.byte() % 5),
            partition: 0,
            offset: 0,
            cache_bytes: 0,
            uid: 1,
            gid: 2,
        };
        // SAFETY: all pointers are valid.
        unsafe {
            call!(dw_open_device(device, &open, &mut self.image));
        }
        self.opened += 1;
    }

    /// Executes a call with a path. Returns whether `choice` was one of them.
    unsafe fn names(&mut self, choice: u8, image: *mut dw_image, input: &mut Input<'_>) {
        let (path, other) = (input.path(), input.path());
        let (path, other): (*const c_char, *const c_char) = (path.as_ptr(), other.as_ptr());
        let number = input.number();
        // SAFETY: all pointers are valid.
        unsafe {
            // SAFETY: numbers.
            let mut metadata: dw_metadata = std::mem::zeroed();
            let mut totals: dw_totals = std::mem::zeroed();
            dw_bytes_free(&mut self.bytes);
            let bytes = &raw mut self.bytes;
            match choice {
                0 => call!(dw_stat(image, path, &mut metadata)),
                1 => call!(dw_lstat(image, path, &mut metadata)),
                2 => call!(dw_mkdir(image, path)),
                3 => call!(dw_mkdir_all(image, path)),
                4 => call!(dw_unlink(image, path)),
                5 => call!(dw_rmdir(image, path)),
                6 => call!(dw_remove_all(image, path)),
                7 => call!(dw_rename(image, path, other, (number % 4) as u32)),
                8 => call!(dw_link(image, path, other)),
                9 => call!(dw_symlink(image, path, other)),
                10 => call!(dw_readlink(image, path, bytes)),
                11 => call!(dw_realpath(image, path, bytes)),
                12 => call!(dw_mknod(image, path, number as u32, 1, 2)),
                13 => call!(dw_chmod(image, path, number as u32)),
                14 => call!(dw_chown(image, path, number as u32, 7, (number % 3) as u32)),
                15 => call!(dw_xattr_get(image, path, other, bytes)),
                16 => call!(dw_xattr_set(
                    image,
                    path,
                    c"user.a".as_ptr(),
                    [7; 64].as_ptr(),
                    (number % 64) as usize
                )),
                17 => call!(dw_xattr_list(image, path, bytes)),
                18 => call!(dw_xattr_remove(image, path, other)),
                19 => {
                    call!(dw_write_file(image, path, [9; 3000].as_ptr(), (number % 3000) as usize))
                }
                20 => call!(dw_copy_file(image, path, other, ptr::null_mut())),
                21 => call!(dw_statfs(image, &mut totals)),
                22 => call!(dw_label(image, bytes)),
                23 => call!(dw_set_label(image, other)),
                24 => call!(dw_sync(image)),
                _ => call!(dw_image_close(image)),
            };
        }
    }

    unsafe fn files(&mut self, choice: u8, image: *mut dw_image, input: &mut Input<'_>) {
        let slot = usize::from(input.byte()) % self.files.len();
        let file = input.handle(self.files[slot], self.image.cast());
        let path = input.path();
        let (at, len) = (input.number(), input.number() as usize % BUFFER_BYTES);
        let mut buffer = [3; BUFFER_BYTES];
        let mut count = 0;
        // SAFETY: all pointers are valid.
        unsafe {
            // SAFETY: numbers.
            let mut metadata: dw_metadata = std::mem::zeroed();
            match choice {
                0 => {
                    if self.files[slot].is_null() {
                        let flags = u32::from(input.byte());
                        call!(dw_file_open(
                            image,
                            path.as_ptr(),
                            flags,
                            0o644,
                            &mut self.files[slot]
                        ));
                    }
                }
                1 => {
                    if call!(dw_pread(file, buffer.as_mut_ptr(), len, at, &mut count)) {
                        assert!(count <= len);
                    }
                }
                2 => drop(call!(dw_pwrite(file, buffer.as_ptr(), len, at % (1 << 22)))),
                3 => drop(call!(dw_file_truncate(file, at))),
                4 => drop(call!(dw_file_stat(file, &mut metadata))),
                5 => drop(call!(dw_file_sync(file))),
                _ => {
                    dw_file_free(self.files[slot]);
                    self.files[slot] = ptr::null_mut();
                }
            }
        }
    }

    unsafe fn listings(&mut self, choice: u8, image: *mut dw_image, input: &mut Input<'_>) {
        let dir = input.handle(self.dir, self.image.cast());
        let walk = input.handle(self.walk, self.dir.cast());
        let path = input.path();
        let (mut entry, mut found) = (ptr::null(), ptr::null());
        // SAFETY: all pointers are valid.
        unsafe {
            match choice {
                0 if self.dir.is_null() => {
                    let _ = call!(dw_dir_open(image, path.as_ptr(), &mut self.dir));
                }
                1 => {
                    if call!(dw_dir_next(dir, &mut entry)) && !entry.is_null() {
                        let name = std::ffi::CStr::from_ptr((*entry).name);
                        assert_eq!(name.count_bytes(), (*entry).name_len);
                    }
                }
                2 if self.walk.is_null() => {
                    call!(dw_walk_open(
                        image,
                        path.as_ptr(),
                        u32::from(input.byte() % 3),
                        &mut self.walk
                    ));
                }
                3 => {
                    if call!(dw_walk_next(walk, &mut found)) && !found.is_null() {
                        let path = std::ffi::CStr::from_ptr((*found).path);
                        assert_eq!(path.count_bytes(), (*found).path_len);
                    }
                }
                4 => drop(call!(dw_walk_skip(walk))),
                5 => {
                    dw_dir_free(self.dir);
                    self.dir = ptr::null_mut();
                }
                _ => {
                    dw_walk_free(self.walk);
                    self.walk = ptr::null_mut();
                }
            }
        }
    }

    unsafe fn free(mut self) {
        // SAFETY: each handle is valid or NULL.
        unsafe {
            dw_image_free(self.image);
            self.files.into_iter().for_each(|file| dw_file_free(file));
            dw_dir_free(self.dir);
            dw_walk_free(self.walk);
            dw_bytes_free(&mut self.bytes);
        }
    }
}

// The first byte chooses the format, the second the number of bytes that choose and damage the image, as for the
// targets that read images. All other bytes are calls.
fuzz_target!(|input: &[u8]| {
    let [choice, damage, rest @ ..] = input else { return };
    let (damage, calls) = rest.split_at((usize::from(*damage) % 64).min(rest.len()));
    let found = match choice & 1 {
        0 => diskwright_fuzz::damaged(damage).map(|(device, _)| device),
        _ => diskwright_fuzz::xfs::damaged(damage).map(|(device, _)| device),
    };
    let Some(device) = found else { return };
    let context = Context { device, answer: AtomicI32::new(0), releases: AtomicU32::new(0) };
    let device = dw_device {
        struct_size: size_of::<dw_device>(),
        context: (&raw const context).cast_mut().cast(),
        size: context.device.len(),
        read: Some(read),
        write: Some(write),
        zero: None,
        flush: Some(flush),
        release: Some(release),
    };
    let mut input = Input(calls);
    let mut held = Held {
        image: ptr::null_mut(),
        files: [ptr::null_mut(); 3],
        dir: ptr::null_mut(),
        walk: ptr::null_mut(),
        bytes: dw_bytes { data: ptr::null_mut(), len: 0 },
        opened: 0,
    };
    // SAFETY: handles are those of `held`, handles of another type, or NULL. None is used after it is freed.
    unsafe {
        held.open(&device, &mut input);
        for _ in 0..CALLS_MAX {
            if input.0.is_empty() {
                break;
            }
            let choice = input.byte();
            let image = input.handle(held.image, held.files[0].cast());
            match choice {
                0..104 => held.names(choice % 26, image, &mut input),
                104..174 => held.files(choice % 7, image, &mut input),
                174..230 => held.listings(choice % 7, image, &mut input),
                230..240 => {
                    dw_image_free(held.image);
                    held.image = ptr::null_mut();
                }
                240..248 => held.open(&device, &mut input),
                _ => context.answer.store(c_int::from(input.byte() & 1) * EIO, Ordering::Relaxed),
            }
        }
        let opened = held.opened;
        context.answer.store(0, Ordering::Relaxed);
        held.free();
        assert_eq!(
            context.releases.load(Ordering::Relaxed),
            opened,
            "released otherwise than opened"
        );
    }
});

//! Images in memory, made accessible to programs that read files.
//!
//! Tests check hundreds of similar images. Each thread has one file for them, and writes only the differences from the
//! previous image.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use disk::{BlockDevice, MemoryDevice};

use crate::scratch;

/// Granularity of comparison and writing in bytes.
const PAGE_BYTES: usize = 4096;

thread_local! {
    static CANVAS: RefCell<Option<Canvas>> = const { RefCell::new(None) };
}

/// Calls `look` with the path of a file that contains this image. The file must not be written, and will soon contain
/// another image.
///
/// # Panics
/// If there is not enough space for the image.
pub fn show_image<R>(device: &MemoryDevice, look: impl FnOnce(&Path) -> R) -> R {
    show(|canvas| canvas.draw(device), look)
}

/// Like [`show_image`], for a contiguous image.
///
/// # Panics
/// As [`show_image`].
pub fn show_bytes<R>(image: &[u8], look: impl FnOnce(&Path) -> R) -> R {
    show(|canvas| canvas.draw_bytes(image), look)
}

fn show<R>(draw: impl FnOnce(&mut Canvas) -> io::Result<()>, look: impl FnOnce(&Path) -> R) -> R {
    // Taken, so that nothing else uses it during the call or after a panic.
    let canvas = CANVAS.with_borrow_mut(Option::take).map_or_else(Canvas::new, Ok);
    let drawn = canvas.and_then(|mut canvas| draw(&mut canvas).map(|()| canvas));
    let canvas = drawn.unwrap_or_else(|error| panic!("no room for an image: {error}"));
    let answer = look(&canvas.path);
    CANVAS.set(Some(canvas));
    answer
}

/// An unnamed file, and its contents.
struct Canvas {
    file: File,
    /// Path through which other programs open the file while this process runs. The file disappears with the process.
    path: PathBuf,
    shown: MemoryDevice,
}

impl Canvas {
    fn new() -> io::Result<Self> {
        let folder = scratch();
        let file = File::create_new(folder.path().join("image"))?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd()).into();
        Ok(Self { file, path, shown: MemoryDevice::new(0) })
    }

    /// Discards the contents if the size differs.
    fn resize(&mut self, len: u64) -> io::Result<()> {
        if self.shown.len() != len {
            self.file.set_len(0)?;
            self.file.set_len(len)?;
            self.shown = MemoryDevice::new(len);
        }
        Ok(())
    }

    fn draw(&mut self, device: &MemoryDevice) -> io::Result<()> {
        self.resize(device.len())?;
        let next = device.fork();
        let mut old = Vec::new();
        next.for_each_part_unlike(&self.shown, |offset, new| {
            old.resize(new.len(), 0);
            self.shown.read_at(offset, &mut old)?;
            let pages = new.chunks(PAGE_BYTES).zip(old.chunks(PAGE_BYTES)).enumerate();
            for (number, (page, _)) in pages.filter(|(_, (new, old))| new != old) {
                self.file.write_all_at(page, offset + (number * PAGE_BYTES) as u64)?;
            }
            Ok(())
        })?;
        self.shown = next;
        Ok(())
    }

    fn draw_bytes(&mut self, image: &[u8]) -> io::Result<()> {
        self.resize(image.len() as u64)?;
        let mut old = [0; PAGE_BYTES];
        for (number, page) in image.chunks(PAGE_BYTES).enumerate() {
            let (old, offset) = (&mut old[..page.len()], (number * PAGE_BYTES) as u64);
            self.shown.read_at(offset, old)?;
            if page != old {
                self.file.write_all_at(page, offset)?;
                self.shown.write_at(offset, page)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &Path) -> Vec<u8> {
        std::fs::read(path).unwrap()
    }

    #[test]
    fn each_image_is_shown_whatever_was_shown_before() {
        let len = 200_001;
        let device = MemoryDevice::new(len);
        device.write_at(70_000, &[7; 9_000]).unwrap();
        let later = device.fork();
        later.write_at(75_000, &[0; 10]).unwrap();
        later.write_at(len - 1, &[1]).unwrap();
        let emptied = later.fork();
        emptied.zero_range(0, len).unwrap();
        let other = MemoryDevice::from_bytes(&[5; 1000]);
        for device in [&device, &later, &emptied, &device, &other, &later, &later] {
            let mut expected = vec![0; device.len() as usize];
            device.read_at(0, &mut expected).unwrap();
            assert!(show_image(device, read) == expected);
        }
        // Contents drawn from bytes are known as well, and later changes of the source do not affect them.
        let mut bytes = vec![3; len as usize];
        assert!(show_bytes(&bytes, read) == bytes);
        bytes[100_000] = 4;
        assert!(show_bytes(&bytes, read) == bytes);
        assert!(show_image(&MemoryDevice::from_bytes(&bytes), read) == bytes);
        emptied.write_at(0, &[9]).unwrap();
        assert_eq!(show_image(&emptied, read)[..2], [9, 0]);
    }

    #[test]
    fn images_are_shown_while_others_are() {
        let [one, two] = [1, 2].map(|n| MemoryDevice::from_bytes(&[n; 100]));
        show_image(&one, |path| {
            assert_eq!(show_image(&two, read), [2; 100]);
            assert_eq!(read(path), [1; 100]);
        });
        let panics = || show_image(&two, |_| panic!("as planned"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
        assert_eq!(show_image(&one, read), [1; 100]);
    }
}

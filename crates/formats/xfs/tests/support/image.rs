//! Images made by mkfs.xfs and filled by the kernel.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::FileDevice;
use testkit::{KernelMount, MkfsXfs, MountOptions};
use xfs::{OpenOptions, Xfs};

/// Size of the images, mostly unused.
const SIZE: u64 = 600 << 20;

/// An image file, with the directory that contains it.
pub struct Image {
    path: PathBuf,
    _home: tempfile::TempDir,
}

impl Image {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Calls `judge` with the image mounted by the kernel.
    pub fn assert_read_by_kernel(&self, judge: impl FnOnce(&Path)) {
        let mount = KernelMount::new(&self.path, &MountOptions::read_only("xfs"));
        judge(mount.path());
        mount.unmount();
    }
}

/// Makes an image, mounts it with the kernel, and runs `fill` and `note` on it. `note` returns the expected contents.
pub fn kernel_image<T>(
    options: &str,
    fill: impl FnOnce(&Path, u64),
    note: impl FnOnce(&Path) -> T,
) -> (Image, T) {
    let home = testkit::scratch();
    let path = home.path().join("image");
    MkfsXfs::default().options(options).create(&path, SIZE);
    let block = block_size(&path);
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    fill(mount.path(), block);
    mount.unmount();
    let mount = KernelMount::new(&path, &MountOptions::read_only("xfs"));
    let noted = note(mount.path());
    mount.unmount();
    (Image { path, _home: home }, noted)
}

fn block_size(path: &Path) -> u64 {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 4];
    std::fs::File::open(path).unwrap().read_exact_at(&mut bytes, 4).unwrap();
    u32::from_be_bytes(bytes).into()
}

/// Opens an image for reading.
pub fn open(path: &Path) -> Xfs {
    let device = Arc::new(FileDevice::new(std::fs::File::open(path).unwrap()).unwrap());
    Xfs::open(device, &OpenOptions::default()).unwrap()
}

//! Images that mkfs.xfs makes and the kernel fills.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use blockdev::FileDevice;
use oracle::{KernelMount, MountOptions};
use xfs::{OpenOptions, Xfs};

/// Size of the images, of which little is in use.
const SIZE: u64 = 600 << 20;

/// An image file, with the directory that holds it.
pub struct Image {
    path: PathBuf,
    _home: tempfile::TempDir,
}

impl Image {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lets `judge` see the image as the kernel mounts it.
    pub fn assert_read_by_kernel(&self, judge: impl FnOnce(&Path)) {
        let mount = KernelMount::new(&self.path, &MountOptions::read_only("xfs"));
        judge(mount.path());
        mount.unmount();
    }
}

/// The tools that the variable says, or those installed.
fn tool(name: &str) -> Option<Command> {
    let mkfs = std::env::var_os("DISKWRIGHT_MKFS_XFS")?;
    let mut command = Command::new(PathBuf::from(mkfs).with_file_name(name));
    for name in ["TEST_DIR", "TEST_DEV", "QA_CHECK_FS"] {
        command.env(name, "1");
    }
    Some(command)
}

/// Makes an image, lets the kernel mount it and `fill` it, and `note` what is to be found. `None`
/// where that cannot be done.
pub fn kernel_image<T>(
    options: &str,
    fill: impl FnOnce(&Path, u64),
    note: impl FnOnce(&Path) -> T,
) -> Option<(Image, T)> {
    let home = oracle::scratch();
    let path = home.path().join("image");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(SIZE).unwrap();
    let mut mkfs = tool("mkfs.xfs")?;
    let output =
        mkfs.args(["-q", "-f"]).args(options.split_whitespace()).arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let block = block_size(&path);
    let mount = KernelMount::new(&path, &MountOptions::read_write("xfs"));
    fill(mount.path(), block);
    mount.unmount();
    let mount = KernelMount::new(&path, &MountOptions::read_only("xfs"));
    let noted = note(mount.path());
    mount.unmount();
    Some((Image { path, _home: home }, noted))
}

fn block_size(path: &Path) -> u64 {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; 4];
    std::fs::File::open(path).unwrap().read_exact_at(&mut bytes, 4).unwrap();
    u32::from_be_bytes(bytes).into()
}

/// Asserts that `xfs_repair -n` has nothing to object to.
pub fn assert_sound(path: &Path) {
    let output = tool("xfs_repair").unwrap().args(["-n", "-f"]).arg(path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
}

pub fn open(path: &Path) -> Xfs {
    let device = Arc::new(FileDevice::new(std::fs::File::open(path).unwrap()).unwrap());
    Xfs::open(device, &OpenOptions::default()).unwrap()
}

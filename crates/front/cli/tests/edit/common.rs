//! Images to change, running the program, and checking the result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use tempfile::TempDir;
use testkit::{Format, KernelMount, Mke2fs, MkfsXfs, MountOptions, judge};

use crate::program::{diskwright, ok};

/// Size of the images, in bytes.
const IMAGE_BYTES: u64 = 64 << 20;

/// Runs the program in a directory.
pub(crate) fn run(dir: &Path, arguments: &[&str]) -> Output {
    diskwright().current_dir(dir).args(arguments).output().unwrap()
}

/// Creates an empty image with our program.
pub(crate) fn own_image(dir: &Path, name: &str, options: &str) -> PathBuf {
    let source = dir.join("empty");
    fs::create_dir_all(&source).unwrap();
    ok(dir, &format!("build empty {name} --size 64M {options}"));
    dir.join(name)
}

/// Runs a test on images of mke2fs and mkfs.xfs, on our own, and on images without a journal. Then
/// the format's checker checks each. All contain only a directory `lost+found`.
pub(crate) fn on_each_image(test: impl Fn(&Path)) {
    for name in ["mke2fs", "ext3", "own", "own-plain", "mkfs.xfs", "own-xfs"] {
        let dir: TempDir = testkit::scratch();
        let image = dir.path().join("a.img");
        match name {
            "mke2fs" => Mke2fs::new("ext4").create(&image, IMAGE_BYTES),
            "ext3" => Mke2fs::new("ext3").create(&image, IMAGE_BYTES),
            "own" => drop(own_image(dir.path(), "a.img", "")),
            "own-plain" => drop(own_image(dir.path(), "a.img", "--no-journal")),
            "mkfs.xfs" => MkfsXfs::default().create(&image, IMAGE_BYTES),
            _ => drop(own_image(dir.path(), "a.img", OWN_XFS)),
        }
        if Format::of(&image) == Format::Xfs {
            ok(dir.path(), "mkdir -m 700 a.img /lost+found");
        }
        println!("{name}");
        test(dir.path());
        judge(&image);
    }
}

/// Build options for a small XFS.
pub(crate) const OWN_XFS: &str = "--fs xfs --small";

/// Mounts an image read-only with the kernel.
#[track_caller]
pub(crate) fn mount(image: &Path) -> KernelMount {
    KernelMount::new(image, &MountOptions::read_only(Format::of(image).kernel_name()))
}

/// Returns the lines of `find`, sorted by path.
pub(crate) fn paths(dir: &Path, image: &str) -> Vec<String> {
    ok(dir, &format!("find {image}")).lines().map(str::to_owned).collect()
}

//! Loop devices.

use std::fs;
use std::path::{Path, PathBuf};

use crate::command;

/// A loop device on an image, detached on drop. Tests that use it require `Root`, `Loop` and `Tool("losetup")`.
#[derive(Debug)]
pub struct LoopDevice(PathBuf);

impl LoopDevice {
    /// Attaches an image.
    ///
    /// # Panics
    /// If losetup(8) fails.
    #[track_caller]
    pub fn new(image: impl AsRef<Path>) -> Self {
        Self::with_options(image, &[])
    }

    /// Attaches an image with options of losetup(8), such as `--read-only`.
    ///
    /// # Panics
    /// If losetup(8) fails.
    #[track_caller]
    pub fn with_options(image: impl AsRef<Path>, options: &[&str]) -> Self {
        let mut losetup = command("losetup");
        let attached =
            losetup.args(options).args(["--find", "--show"]).arg(image.as_ref()).output().unwrap();
        assert!(attached.status.success(), "{losetup:?}: {attached:?}");
        let device = Self(String::from_utf8(attached.stdout).unwrap().trim().into());
        // Partitions of an earlier image survive its detachment, for example if a test was stopped.
        if device.has_partitions() {
            let _ = command("partx").arg("--delete").arg(device.path()).status();
        }
        device
    }

    /// Returns whether the kernel has partitions of the device.
    fn has_partitions(&self) -> bool {
        let Some(name) = self.0.file_name() else { return false };
        let Ok(entries) = fs::read_dir(Path::new("/sys/block").join(name)) else { return false };
        entries.flatten().any(|entry| entry.path().join("partition").exists())
    }

    /// Returns the path of the device.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the path of the device as text.
    pub fn name(&self) -> &str {
        self.0.to_str().expect("losetup(8) prints plain names")
    }
}

impl AsRef<Path> for LoopDevice {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = command("losetup").arg("--detach").arg(&self.0).status();
    }
}

//! A directory of a mounted file system, on a host without support for workloads in one: opening its top always fails.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use vfs::FileType;

use super::{EachListed, Target};
use crate::error::{Error, Result};

/// A directory of a mounted file system.
#[derive(Debug)]
pub struct Host {
    top: PathBuf,
}

impl Host {
    /// Uses the existing directory `top` for workloads.
    pub fn new(top: impl Into<PathBuf>) -> Self {
        Self { top: top.into() }
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.top
    }
}

fn only_on_linux() -> Error {
    let why = "directories of the host are walked and measured on Linux only; name memory:FORMAT, or an image";
    Error::Unsupported(why.to_owned())
}

impl Target for Host {
    type Dir = Infallible;
    type File = Infallible;
    type Listing = Infallible;

    fn top(&self) -> Result<Infallible> {
        Err(only_on_linux())
    }

    fn make_dir(&self, dir: &Infallible, _: &[u8]) -> Result<()> {
        match *dir {}
    }

    fn open_dir(&self, dir: &Infallible, _: &[u8]) -> Result<Infallible> {
        match *dir {}
    }

    fn make_file(&self, dir: &Infallible, _: &[u8]) -> Result<()> {
        match *dir {}
    }

    fn create(&self, dir: &Infallible, _: &[u8], _: bool) -> Result<Infallible> {
        match *dir {}
    }

    fn open(&self, dir: &Infallible, _: &[u8]) -> Result<Infallible> {
        match *dir {}
    }

    fn close(&self, file: Infallible) -> Result<()> {
        match file {}
    }

    fn set_permissions(&self, dir: &Infallible, _: &[u8], _: u16) -> Result<()> {
        match *dir {}
    }

    fn permissions(&self, dir: &Infallible, _: &[u8]) -> Result<u16> {
        match *dir {}
    }

    fn link(&self, dir: &Infallible, _: &[u8], _: &[u8]) -> Result<()> {
        match *dir {}
    }

    fn rename(&self, from: (&Infallible, &[u8]), _: (&Infallible, &[u8])) -> Result<()> {
        match *from.0 {}
    }

    fn unlink(&self, dir: &Infallible, _: &[u8]) -> Result<()> {
        match *dir {}
    }

    fn remove_dir(&self, dir: &Infallible, _: &[u8]) -> Result<()> {
        match *dir {}
    }

    fn stat(&self, dir: &Infallible, _: &[u8]) -> Result<(FileType, u64)> {
        match *dir {}
    }

    fn read(&self, file: &Infallible, _: u64, _: &mut [u8]) -> Result<usize> {
        match *file {}
    }

    fn write(&self, file: &Infallible, _: u64, _: &[u8]) -> Result<()> {
        match *file {}
    }

    fn truncate(&self, file: &Infallible, _: u64) -> Result<()> {
        match *file {}
    }

    fn start_listing(&self, dir: &Infallible) -> Result<Infallible> {
        match *dir {}
    }

    fn list_part(
        &self,
        listing: &mut Infallible,
        _: usize,
        _: &mut EachListed<'_>,
    ) -> Result<bool> {
        match *listing {}
    }

    fn sync_file(&self, file: &Infallible) -> Result<()> {
        match *file {}
    }

    fn sync(&self) -> Result<()> {
        Err(only_on_linux())
    }
}

//! The served file system for `dav-server`. Every operation runs on a thread of the pool.

use std::future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use dav_server::davpath::DavPath;
use dav_server::fs::{
    DavDirEntry, DavFile, DavMetaData, DavProp, FsError, FsFuture, FsResult, FsStream,
    GuardedFileSystem, OpenOptions, ReadDirMeta,
};
use futures_util::StreamExt;
use http::StatusCode;
use vfs::path::LastLink;

use crate::context::RequestContext;
use crate::file::OpenFile;
use crate::listing::{self, ListedEntry, ListingPurpose};
use crate::metadata::Metadata;
use crate::names;
use crate::pool::JobPool;
use crate::volume::Volume;

/// Context of each operation.
pub(crate) type Context = Arc<RequestContext>;

/// The served file system.
#[derive(Clone)]
pub(crate) struct DavVolume {
    pub(crate) pool: JobPool,
}

impl DavVolume {
    /// Runs an operation on a path.
    fn on_path<'a, T: Send + 'static>(
        &'a self,
        path: &'a DavPath,
        act: impl FnOnce(&Volume<'_>, &[u8]) -> FsResult<T> + Send + 'static,
    ) -> FsFuture<'a, T> {
        let path = path.as_bytes().to_vec();
        Box::pin(self.pool.run(move |volume| act(volume, &path)))
    }

    fn attributes<'a>(
        &'a self,
        path: &'a DavPath,
        last: LastLink,
        context: &'a Context,
    ) -> FsFuture<'a, Box<dyn DavMetaData>> {
        let is_property = context.is_propfind();
        self.on_path(path, move |volume, path| {
            volume.metadata(path, last).map(|found| Metadata::boxed(found, is_property))
        })
    }

    async fn entries(
        &self,
        path: &DavPath,
        meta: ReadDirMeta,
        context: &Context,
    ) -> FsResult<FsStream<Box<dyn DavDirEntry>>> {
        let purpose = match meta {
            ReadDirMeta::Data => ListingPurpose::Show,
            _ if context.copies_entries_of(path.as_bytes()) => ListingPurpose::Copy,
            _ => ListingPurpose::Remove,
        };
        context.set_listed();
        let is_property = context.is_propfind();
        let dir = self.on_path(path, move |volume, path| volume.directory(path, purpose)).await?;
        let listed = (dir.ino, path.as_bytes().to_vec());
        let entries = listing::entries(self.pool.clone(), listed, purpose);
        Ok(Box::pin(entries.map(move |entry| {
            entry.map(|entry| -> Box<dyn DavDirEntry> {
                Box::new(ShownEntry { entry, is_property })
            })
        })))
    }

    async fn open_file(&self, path: &DavPath, options: OpenOptions) -> FsResult<Box<dyn DavFile>> {
        let path = path.as_bytes().to_vec();
        let opened = match (options.write, options.truncate) {
            (false, _) => OpenFile::to_read(&self.pool, path).await,
            (true, true) => OpenFile::to_upload(&self.pool, path, &options).await,
            (true, false) => OpenFile::to_change(&self.pool, path, &options).await,
        };
        opened.map(|file| -> Box<dyn DavFile> { Box::new(file) })
    }
}

impl GuardedFileSystem<Context> for DavVolume {
    fn open<'a>(
        &'a self,
        path: &'a DavPath,
        options: OpenOptions,
        _context: &'a Context,
    ) -> FsFuture<'a, Box<dyn DavFile>> {
        Box::pin(self.open_file(path, options))
    }

    fn read_dir<'a>(
        &'a self,
        path: &'a DavPath,
        meta: ReadDirMeta,
        context: &'a Context,
    ) -> FsFuture<'a, FsStream<Box<dyn DavDirEntry>>> {
        Box::pin(self.entries(path, meta, context))
    }

    fn metadata<'a>(
        &'a self,
        path: &'a DavPath,
        context: &'a Context,
    ) -> FsFuture<'a, Box<dyn DavMetaData>> {
        self.attributes(path, context.last_link(path.as_bytes()), context)
    }

    fn symlink_metadata<'a>(
        &'a self,
        path: &'a DavPath,
        context: &'a Context,
    ) -> FsFuture<'a, Box<dyn DavMetaData>> {
        self.attributes(path, LastLink::Keep, context)
    }

    fn create_dir<'a>(&'a self, path: &'a DavPath, context: &'a Context) -> FsFuture<'a, ()> {
        let replaces_file = context.take_deferred_removal();
        self.on_path(path, move |volume, path| volume.create_dir(path, replaces_file))
    }

    fn remove_dir<'a>(&'a self, path: &'a DavPath, _context: &'a Context) -> FsFuture<'a, ()> {
        self.on_path(path, |volume, path| volume.remove(path, true))
    }

    fn remove_file<'a>(&'a self, path: &'a DavPath, context: &'a Context) -> FsFuture<'a, ()> {
        if context.defers_removal() {
            return Box::pin(future::ready(Ok(())));
        }
        self.on_path(path, |volume, path| volume.remove(path, false))
    }

    fn rename<'a>(
        &'a self,
        from: &'a DavPath,
        to: &'a DavPath,
        _context: &'a Context,
    ) -> FsFuture<'a, ()> {
        let to = to.as_bytes().to_vec();
        self.on_path(from, move |volume, from| volume.rename(from, &to))
    }

    fn copy<'a>(
        &'a self,
        from: &'a DavPath,
        to: &'a DavPath,
        context: &'a Context,
    ) -> FsFuture<'a, ()> {
        let last = context.last_link(from.as_bytes());
        let to = to.as_bytes().to_vec();
        self.on_path(from, move |volume, from| volume.copy(from, &to, last))
    }

    fn set_accessed<'a>(
        &'a self,
        _path: &'a DavPath,
        _time: SystemTime,
        _context: &Context,
    ) -> FsFuture<'a, ()> {
        Box::pin(future::ready(Err(FsError::NotImplemented)))
    }

    fn set_modified<'a>(
        &'a self,
        _path: &'a DavPath,
        _time: SystemTime,
        _context: &'a Context,
    ) -> FsFuture<'a, ()> {
        Box::pin(future::ready(Err(FsError::NotImplemented)))
    }

    fn have_props<'a>(
        &'a self,
        _path: &'a DavPath,
        _context: &'a Context,
    ) -> Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(future::ready(true))
    }

    fn patch_props<'a>(
        &'a self,
        path: &'a DavPath,
        patch: Vec<(bool, DavProp)>,
        _context: &'a Context,
    ) -> FsFuture<'a, Vec<(StatusCode, DavProp)>> {
        self.on_path(path, move |volume, path| volume.patch_properties(path, patch))
    }

    fn get_props<'a>(
        &'a self,
        path: &'a DavPath,
        _do_content: bool,
        context: &'a Context,
    ) -> FsFuture<'a, Vec<DavProp>> {
        // `dav-server` asks for each named property, too.
        if !context.wants_all() {
            return Box::pin(future::ready(Ok(Vec::new())));
        }
        self.on_path(path, |volume, path| volume.properties(path))
    }

    fn get_prop<'a>(
        &'a self,
        path: &'a DavPath,
        prop: DavProp,
        _context: &'a Context,
    ) -> FsFuture<'a, Vec<u8>> {
        self.on_path(path, move |volume, path| volume.property(path, &prop))
    }

    fn get_quota<'a>(&'a self, _context: &'a Context) -> FsFuture<'a, (u64, Option<u64>)> {
        Box::pin(self.pool.run(|volume| volume.quota()))
    }
}

/// Entry of a directory.
struct ShownEntry {
    entry: ListedEntry,
    is_property: bool,
}

impl DavDirEntry for ShownEntry {
    fn name(&self) -> Vec<u8> {
        names::shown(&self.entry.name).into_bytes()
    }

    fn metadata(&self) -> FsFuture<'_, Box<dyn DavMetaData>> {
        let metadata = Metadata::boxed(self.entry.attributes, self.is_property);
        Box::pin(future::ready(Ok(metadata)))
    }
}

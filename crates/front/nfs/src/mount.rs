//! The MOUNT protocol, version 3 (RFC 1813, appendix I).

use std::collections::VecDeque;
use std::net::IpAddr;

use parking_lot::Mutex;
use vfs::{Attributes, Error};

use crate::rpc::AUTH_SYS;
use crate::service::NfsService;
use crate::xdr::{Garbage, XdrReader, XdrWriter};
use crate::{ExportPath, NfsStatus};

pub(crate) const PROGRAM: u32 = 100_005;
pub(crate) const VERSION: u32 = 3;

/// Maximum length of a path in bytes (`MNTPATHLEN`).
const PATH_BYTES_MAX: usize = 1024;

/// Maximum number of recorded mounts. Clients need not unmount, so the oldest ones are dropped.
const MOUNTS_MAX: usize = 64;

/// Mounts that clients have not ended: address and path. Only DUMP needs them.
#[derive(Default)]
pub(crate) struct MountTable(Mutex<VecDeque<(IpAddr, Vec<u8>)>>);

impl MountTable {
    fn add(&self, client: IpAddr, path: &[u8]) {
        let mut mounts = self.0.lock();
        let mount = (client, path.to_vec());
        if mounts.contains(&mount) {
            return;
        }
        if mounts.len() == MOUNTS_MAX {
            mounts.pop_front();
        }
        mounts.push_back(mount);
    }

    fn remove(&self, client: IpAddr, path: Option<&[u8]>) {
        self.0.lock().retain(|(of, mounted)| *of != client || path.is_some_and(|p| p != mounted));
    }
}

impl NfsService<'_> {
    /// Answers a procedure. Returns false if it does not exist.
    pub(crate) fn answer_mount(
        &self,
        client: IpAddr,
        procedure: u32,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<bool, Garbage> {
        match procedure {
            0 => {}
            1 => self.mount(client, arguments.opaque(PATH_BYTES_MAX)?, reply),
            2 => self.dump(reply),
            3 => self.mounts.remove(client, Some(arguments.opaque(PATH_BYTES_MAX)?)),
            4 => self.mounts.remove(client, None),
            5 => self.exports(reply),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// MNT: answers with the handle of the export, or of a directory below it.
    fn mount(&self, client: IpAddr, path: &[u8], reply: &mut XdrWriter) {
        let found = self.directory_at(path);
        // The numbers of `mountstat3` are those of `nfsstat3`.
        Self::put_status(reply, &found);
        if let Ok(directory) = found {
            self.mounts.add(client, path);
            reply.opaque(&self.handles.encode(&directory));
            reply.u32(1);
            reply.u32(AUTH_SYS);
        }
    }

    /// Returns the directory at a path, without following symbolic links.
    fn directory_at(&self, path: &[u8]) -> Result<Attributes, NfsStatus> {
        let names = self.options.export.names_below(path).ok_or(NfsStatus::Acces)?;
        let mut dir = self.fs.root();
        for name in names {
            if name == b".." {
                return Err(NfsStatus::Inval);
            }
            dir = self.result(self.fs.lookup(dir, name))?;
        }
        let attributes = self.attributes(dir)?;
        if !attributes.file_type.is_dir() {
            return Err(self.failed(&Error::NotADirectory));
        }
        Ok(attributes)
    }

    /// DUMP: answers with the mounts, unless the path is secret.
    fn dump(&self, reply: &mut XdrWriter) {
        if let Some(export) = self.listed() {
            for (client, path) in &*self.mounts.0.lock() {
                if export.names_below(path).is_some() {
                    reply.bool(true);
                    reply.opaque(client.to_string().as_bytes());
                    reply.opaque(path);
                }
            }
        }
        reply.bool(false);
    }

    /// EXPORT: answers with the export, unless its path is secret. It has no groups, so every client may mount it.
    fn exports(&self, reply: &mut XdrWriter) {
        if let Some(export) = self.listed() {
            reply.bool(true);
            reply.opaque(export.as_str().as_bytes());
            reply.bool(false);
        }
        reply.bool(false);
    }

    fn listed(&self) -> Option<&ExportPath> {
        Some(&self.options.export).filter(|export| !export.is_secret())
    }
}

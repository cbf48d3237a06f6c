//! The MOUNT protocol, version 3 (RFC 1813, appendix I).

use std::net::IpAddr;

use vfs::{Attributes, Error};

use crate::rpc::AUTH_SYS;
use crate::service::NfsService;
use crate::xdr::{Garbage, XdrReader, XdrWriter};
use crate::{ExportPath, NfsStatus};

pub(crate) const PROGRAM: u32 = 100_005;
pub(crate) const VERSION: u32 = 3;

/// Maximum length of a path in bytes (`MNTPATHLEN`).
const PATH_BYTES_MAX: usize = 1024;

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
            for (client, path) in self.mounts.all() {
                if export.names_below(&path).is_some() {
                    reply.bool(true);
                    reply.opaque(client.to_string().as_bytes());
                    reply.opaque(&path);
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

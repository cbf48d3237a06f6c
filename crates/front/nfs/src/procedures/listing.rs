//! READDIR and READDIRPLUS.
//!
//! Cookies are those of the file system, which stay valid when names are added and removed. The verifier of cookies is
//! therefore always 0.

use std::ops::ControlFlow;

use vfs::{Attributes, Cookie, DirEntry, Ino};

use super::parse_handle;
use crate::NfsStatus;
use crate::access::{Caller, EXECUTE, READ};
use crate::attributes::ATTRIBUTES_BYTES;
use crate::handle::HANDLE_BYTES;
use crate::service::NfsService;
use crate::xdr::{Garbage, XdrReader, XdrWriter, padding};

/// Maximum size of a listing in bytes, whatever the client permits.
const LISTING_BYTES_MAX: usize = 1 << 20;

const COOKIE_VERIFIER: u64 = 0;

/// Size of a reply without entries: status, attributes, verifier, end of the list, end of the directory.
const FRAME_BYTES: usize = 4 + 4 + ATTRIBUTES_BYTES + 8 + 4 + 4;

/// Size of an entry without its name: presence, inode, length of the name, cookie.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 8;

/// Size of attributes and handle of an entry, with the words before them.
const PLUS_BYTES: usize = 4 + ATTRIBUTES_BYTES + 4 + 4 + HANDLE_BYTES;

/// Limits of a listing, in bytes.
struct ListingLimits {
    /// Size of the reply.
    reply: usize,
    /// Size of inodes, names and cookies.
    names: usize,
    /// Size of each entry beyond that.
    plus: usize,
}

/// Part of a directory.
struct Listing {
    /// Inode, length of the name, and cookie.
    entries: Vec<(Ino, usize, Cookie)>,
    /// The names of the entries, one after the other.
    names: Vec<u8>,
    is_complete: bool,
    /// Size of the entries in the reply, in bytes.
    bytes: usize,
}

impl Listing {
    fn iter(&self) -> impl Iterator<Item = (Ino, &[u8], Cookie)> {
        let mut names = &self.names[..];
        self.entries.iter().map(move |&(ino, len, next)| {
            let (name, rest) = names.split_at(len);
            names = rest;
            (ino, name, next)
        })
    }
}

impl NfsService<'_> {
    pub(super) fn readdir(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let (handle, from) = (parse_handle(&mut arguments)?, arguments.u64()?);
        let (verifier, count) = (arguments.u64()?, arguments.u32()? as usize);
        let limits = ListingLimits { reply: count, names: usize::MAX, plus: 0 };
        self.on_inode(handle, reply, |dir, reply| {
            let listing = self.list(caller, dir, (from, verifier), &limits)?;
            self.put_current(reply, dir);
            reply.u64(COOKIE_VERIFIER);
            for (ino, name, next) in listing.iter() {
                put_entry(reply, ino, name, next);
            }
            reply.bool(false);
            reply.bool(listing.is_complete);
            Ok(())
        });
        Ok(())
    }

    pub(super) fn readdirplus(
        &self,
        caller: &Caller<'_>,
        mut arguments: XdrReader<'_>,
        reply: &mut XdrWriter,
    ) -> Result<(), Garbage> {
        let (handle, from) = (parse_handle(&mut arguments)?, arguments.u64()?);
        let verifier = arguments.u64()?;
        let (names, count) = (arguments.u32()? as usize, arguments.u32()? as usize);
        let limits = ListingLimits { reply: count, names, plus: PLUS_BYTES };
        self.on_inode(handle, reply, |dir, reply| {
            let listing = self.list(caller, dir, (from, verifier), &limits)?;
            // Handles of entries need permission to search, as LOOKUP does.
            let may_search = self.result(caller.may(self.fs, dir, EXECUTE))?;
            reply.reserve(FRAME_BYTES + listing.bytes);
            self.put_current(reply, dir);
            reply.u64(COOKIE_VERIFIER);
            for (ino, name, next) in listing.iter() {
                put_entry(reply, ino, name, next);
                // An entry may be gone by now. Clients look it up then.
                let found = may_search.then(|| self.attributes(ino).ok()).flatten();
                self.put_attributes(reply, found.as_ref());
                reply.bool(found.is_some());
                if let Some(found) = found {
                    reply.opaque(&self.handles.encode(&found));
                }
            }
            reply.bool(false);
            reply.bool(listing.is_complete);
            Ok(())
        });
        Ok(())
    }

    /// Collects entries first, because the file system must not be called while it lists.
    fn list(
        &self,
        caller: &Caller<'_>,
        dir: &Attributes,
        (from, verifier): (u64, u64),
        limits: &ListingLimits,
    ) -> Result<Listing, NfsStatus> {
        if !dir.file_type.is_dir() {
            return Err(NfsStatus::NotDir);
        }
        self.check(caller, dir, READ)?;
        if verifier != COOKIE_VERIFIER {
            return Err(NfsStatus::BadCookie);
        }
        let mut listing =
            Listing { entries: Vec::new(), names: Vec::new(), is_complete: true, bytes: 0 };
        let mut room = limits.reply.min(LISTING_BYTES_MAX).saturating_sub(FRAME_BYTES);
        let mut names_room = limits.names;
        let listed = self.fs.readdir(dir.ino, Cookie(from), &mut |entry: DirEntry<'_>| {
            let name_bytes = ENTRY_BYTES + entry.name.len() + padding(entry.name.len());
            let bytes = name_bytes + limits.plus;
            // Some clients permit fewer bytes of names than the first entry has.
            let is_full = bytes > room || (name_bytes > names_room && !listing.entries.is_empty());
            if is_full {
                listing.is_complete = false;
                return ControlFlow::Break(());
            }
            room -= bytes;
            names_room = names_room.saturating_sub(name_bytes);
            listing.bytes += bytes;
            listing.names.extend_from_slice(entry.name);
            listing.entries.push((entry.ino, entry.name.len(), entry.next));
            ControlFlow::Continue(())
        });
        if let Err(error) = listed {
            let status = self.failed(&error);
            // The entries before the error are returned; the next request gets the error again.
            listing.is_complete = false;
            if listing.entries.is_empty() {
                return Err(status);
            }
        }
        if listing.entries.is_empty() && !listing.is_complete {
            return Err(NfsStatus::TooSmall);
        }
        Ok(listing)
    }
}

fn put_entry(reply: &mut XdrWriter, ino: Ino, name: &[u8], next: Cookie) {
    reply.bool(true);
    reply.u64(ino.0);
    reply.opaque(name);
    reply.u64(next.0);
}

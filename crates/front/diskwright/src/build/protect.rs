//! Selection of fs-verity files after all files are created.

use std::collections::HashMap;

use vfs::path::Order;
use vfs::{FileType, Paths};

use super::format::Fresh;
use super::{BuildError, BuildOptions};
use crate::list::absolute;
use crate::output::ProtectedFile;
use crate::text::{hex, lossy, not_utf8};

/// Protects the regular files whose paths match a pattern, in path order. A trial only allocates the space. A pattern
/// without matches is an error.
pub(super) fn protect(
    options: &BuildOptions,
    fresh: &dyn Fresh,
    is_trial: bool,
) -> Result<Vec<ProtectedFile>, BuildError> {
    let patterns: Vec<&str> =
        options.output.fs_verity.iter().map(|p| p.trim_start_matches('/')).collect();
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let mut used = vec![false; patterns.len()];
    let mut digests = HashMap::new();
    let mut files = Vec::new();
    let fs = fresh.file_system();
    let mut walk = Paths::new(fs).walk(fs.root(), Order::Sorted);
    while let Some(visit) = walk.advance() {
        let visit = visit?;
        if visit.attributes.file_type != FileType::Regular {
            continue;
        }
        let path = walk.path().to_vec();
        let mut is_chosen = false;
        for (pattern, used) in patterns.iter().zip(&mut used) {
            let matches = fast_glob::glob_match(pattern, &path);
            *used |= matches;
            is_chosen |= matches;
        }
        if !is_chosen {
            continue;
        }
        let ino = visit.attributes.ino;
        let digest = match digests.get(&ino) {
            Some(digest) => *digest,
            None => {
                let protected = fresh.protect(ino, is_trial, options.thread_count());
                protected.map_err(|e| failure(e, &path))?
            }
        };
        // Another hard link to the same file.
        digests.insert(ino, digest);
        if let Some(digest) = digest {
            let digest = format!("sha256:{}", hex(&digest));
            let path = absolute(&path);
            files.push(ProtectedFile { path: lossy(&path), path_bytes: not_utf8(&path), digest });
        }
    }
    match used.iter().position(|used| !used) {
        Some(unused) => Err(BuildError::NothingProtected(options.output.fs_verity[unused].clone())),
        None => Ok(files),
    }
}

/// An unsupported feature is reported without a path.
fn failure(error: vfs::Error, path: &[u8]) -> BuildError {
    match error {
        error @ vfs::Error::Unsupported(_) => error.into(),
        error => BuildError::from(error).at(path),
    }
}

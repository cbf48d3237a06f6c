//! Sharing between files whose contents are equal.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use vfs::Ino;
use xxhash_rust::xxh3::Xxh3;

use super::Pass;
use super::candidates::{Candidate, Candidates};
use crate::Result;

impl Pass<'_> {
    /// Shares the blocks of equal files. Files of a unique size are not read.
    pub(super) fn share_files(&mut self, candidates: &Candidates) -> Result<()> {
        for group in candidates.by_size() {
            let mut first_by_hash: HashMap<u128, Ino> = HashMap::new();
            for candidate in group {
                self.begin(candidate)?;
                let shared =
                    self.hash(candidate).and_then(|hash| match first_by_hash.entry(hash) {
                        Entry::Occupied(first) => {
                            self.share((*first.get(), 0), (candidate.ino, 0), candidate.size)
                        }
                        Entry::Vacant(new) => {
                            new.insert(candidate.ino);
                            Ok(())
                        }
                    });
                if let Err(error) = shared {
                    self.leave_out(candidate, error)?;
                }
            }
        }
        Ok(())
    }

    /// Hashes the contents of a file.
    fn hash(&mut self, candidate: &Candidate) -> vfs::Result<u128> {
        let (mut hash, mut offset) = (Xxh3::new(), 0);
        while offset < candidate.size {
            let count = self.fs.read(candidate.ino, offset, &mut self.buffer)?;
            if count == 0 {
                break;
            }
            hash.update(&self.buffer[..count]);
            offset += count as u64;
            self.count_read(count as u64);
        }
        Ok(hash.digest128())
    }
}

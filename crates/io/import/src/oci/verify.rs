//! Digests, and readers that compute them.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use disk::FileAt;
use oci_spec::image::{Digest, DigestAlgorithm};
use sha2::digest::{DynDigest, Update};
use sha2::{Sha256, Sha512};

use super::ContainerFault;

/// Read size in bytes when only a digest is computed.
const CHUNK_BYTES: usize = 256 << 10;

/// A digest in progress.
pub(super) struct Hasher(DigestHasher);

enum DigestHasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    /// Creates a hasher for the algorithm of `digest`.
    pub(super) fn of(digest: &Digest) -> Result<Self, ContainerFault> {
        match digest.algorithm() {
            DigestAlgorithm::Sha256 => Ok(Self(DigestHasher::Sha256(Sha256::default()))),
            DigestAlgorithm::Sha512 => Ok(Self(DigestHasher::Sha512(Sha512::default()))),
            other => Err(ContainerFault::Algorithm(other.to_string())),
        }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            DigestHasher::Sha256(sum) => Update::update(sum, bytes),
            DigestHasher::Sha512(sum) => Update::update(sum, bytes),
        }
    }

    /// Returns the digest in the form of descriptors.
    pub(super) fn finish(self) -> String {
        let (name, sum): (_, Box<dyn DynDigest>) = match self.0 {
            DigestHasher::Sha256(sum) => ("sha256", Box::new(sum)),
            DigestHasher::Sha512(sum) => ("sha512", Box::new(sum)),
        };
        let mut text = format!("{name}:");
        for byte in sum.finalize() {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Compares with the expected digest.
    pub(super) fn check(self, expected: &Digest) -> Result<(), (String, String)> {
        let (found, expected) = (self.finish(), expected.to_string());
        if found == expected { Ok(()) } else { Err((expected, found)) }
    }
}

/// A blob: a part of a file.
#[derive(Clone, Debug)]
pub(super) struct Blob {
    pub(super) file: Arc<File>,
    /// First byte in the file.
    pub(super) offset: u64,
    /// Length in bytes.
    pub(super) len: u64,
    /// Name in errors.
    pub(super) name: String,
}

impl Blob {
    /// Returns a reader from the start.
    pub(super) fn reader(&self) -> BlobReader {
        BlobReader { blob: self.clone(), done: 0 }
    }

    /// Computes the digest of the whole blob.
    pub(super) fn sum(&self, mut hasher: Hasher) -> io::Result<Hasher> {
        let (mut reader, mut chunk) = (self.reader(), vec![0; CHUNK_BYTES]);
        loop {
            match reader.read(&mut chunk)? {
                0 => return Ok(hasher),
                n => hasher.update(&chunk[..n]),
            }
        }
    }
}

/// A sequential reader of a blob.
pub(super) struct BlobReader {
    blob: Blob,
    /// Number of bytes read.
    done: u64,
}

impl Read for BlobReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (self.blob.len - self.done).min(buf.len() as u64) as usize;
        let n = self.blob.file.read_at(&mut buf[..len], self.blob.offset + self.done)?;
        if n == 0 && len > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.done += n as u64;
        Ok(n)
    }
}

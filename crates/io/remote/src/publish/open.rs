//! Opens published images by name or by manifest.

use crate::place::runtime;
use crate::place::store::Location;
use bytes::Bytes;

use crate::publish::digest::Digest;
use crate::publish::error::Error;
use crate::publish::layout::{ObjectName, Prefix};
use crate::publish::manifest::{self, Manifest};
use crate::publish::published::Published;
use crate::publish::request::get;

/// Magic number of a name's object. The manifest's digest and a newline follow.
const NAME_MAGIC: &[u8] = b"DWNAME1\n";

/// Maximum size of a manifest: 16 million chunks.
const MANIFEST_BYTES_MAX: u64 = 512 << 20;

/// Size of a name's object in bytes.
const NAME_BYTES: u64 = (NAME_MAGIC.len() + 2 * Digest::BYTES + 1) as u64;

const PUBLISH_AGAIN: &str = "publish the image again";
const NO_NAME: &str = "publish the image again, or remove this object if it is not a published \
                       image";

/// Checks whether an object with these first bytes is a published image: a name or a manifest. Eight bytes are enough.
#[must_use]
pub fn is_manifest(head: &[u8]) -> bool {
    head.starts_with(NAME_MAGIC) || head.starts_with(&manifest::MAGIC)
}

/// Opens a published image by the address of its name or its manifest, with one request for each object.
///
/// # Errors
/// If it is not a published image, or cannot be read. Chunks are not read yet.
pub fn open(location: &Location) -> Result<Published, Error> {
    let (prefix, target) = Prefix::of_object(location)?;
    let object = match &target {
        ObjectName::Manifest(digest) => prefix.manifest(*digest),
        ObjectName::Name(name) => prefix.name(name),
    };
    let advice = "check that the address is the one printed by publish";
    let missing = || Error::Missing { object: object.to_string(), advice };
    runtime::block_on(open_target(prefix, target))?.ok_or_else(missing)
}

/// Opens a published image if the address has that form and the object exists. Call this before treating the address as
/// a plain object. Addresses of any other form cause no request.
///
/// # Errors
/// If it is a published image and cannot be read.
pub fn find(location: &Location) -> Result<Option<Published>, Error> {
    let Ok((prefix, target)) = Prefix::of_object(location) else { return Ok(None) };
    let is_name = matches!(target, ObjectName::Name(_));
    match runtime::block_on(open_target(prefix, target)) {
        // An unrelated object in a folder called `names`.
        Err(Error::Damaged { advice: NO_NAME, .. }) if is_name => Ok(None),
        found => found,
    }
}

async fn open_target(prefix: Prefix, target: ObjectName) -> Result<Option<Published>, Error> {
    let found = match target {
        ObjectName::Manifest(digest) => Some((digest, read(&prefix, digest).await?)),
        ObjectName::Name(name) => named(&prefix, &name).await?,
    };
    Ok(found.map(|(digest, manifest)| Published::new(prefix, digest, manifest)))
}

/// Returns the contents of a name's object.
pub(crate) fn name_object(digest: Digest) -> Bytes {
    Bytes::from([NAME_MAGIC, digest.to_string().as_bytes(), b"\n"].concat())
}

/// Returns the digest of a name's manifest, or `None` if the name does not exist.
pub(crate) async fn digest_named(prefix: &Prefix, name: &str) -> Result<Option<Digest>, Error> {
    let path = prefix.name(name);
    let body = match get(&*prefix.store, &path, NAME_BYTES).await {
        Ok(Some(body)) => body,
        Ok(None) => return Ok(None),
        Err(Error::Damaged { object, problem, .. }) => {
            return Err(Error::Damaged { object, problem, advice: NO_NAME });
        }
        Err(error) => return Err(error),
    };
    let text = body.strip_prefix(NAME_MAGIC).and_then(|rest| rest.strip_suffix(b"\n"));
    let digest = text.and_then(|text| Digest::parse(std::str::from_utf8(text).ok()?));
    let wrong = || Error::Damaged {
        object: path.to_string(),
        problem: "expected the digest of a manifest".into(),
        advice: NO_NAME,
    };
    digest.map(Some).ok_or_else(wrong)
}

/// Returns a name's manifest, or `None` if the name does not exist.
pub(crate) async fn named(
    prefix: &Prefix,
    name: &str,
) -> Result<Option<(Digest, Manifest)>, Error> {
    let Some(digest) = digest_named(prefix, name).await? else { return Ok(None) };
    Ok(Some((digest, read(prefix, digest).await?)))
}

/// Reads the manifest with this digest. Fetches it a second time if the digest of the body is wrong.
pub(crate) async fn read(prefix: &Prefix, digest: Digest) -> Result<Manifest, Error> {
    let path = prefix.manifest(digest);
    let mut problem = String::new();
    for _ in 0..2 {
        let body = get(&*prefix.store, &path, MANIFEST_BYTES_MAX).await?;
        let missing = || Error::Missing { object: path.to_string(), advice: PUBLISH_AGAIN };
        let body = body.ok_or_else(missing)?;
        let found = Digest::of(&body);
        if found != digest {
            problem = Error::wrong_digest(digest, found);
            continue;
        }
        match Manifest::parse(&body) {
            Ok(manifest) => return Ok(manifest),
            Err(error) => {
                problem = error.to_string();
                break;
            }
        }
    }
    Err(Error::Damaged { object: path.to_string(), problem, advice: PUBLISH_AGAIN })
}

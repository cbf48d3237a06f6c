//! Paths of objects below a prefix.

use std::sync::Arc;

use crate::place::store::Location;
use object_store::ObjectStore;
use object_store::path::Path;

use crate::publish::digest::Digest;
use crate::publish::error::Error;

pub(crate) const CHUNKS: &str = "chunks";
pub(crate) const MANIFESTS: &str = "manifests";
pub(crate) const BUNDLES: &str = "bundles";
pub(crate) const NAMES: &str = "names";
pub(crate) const MARKS: &str = "marks";

/// Maximum length of an image's name, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// A prefix of a store below which images are published.
#[derive(Clone)]
pub(crate) struct Prefix {
    pub(crate) store: Arc<dyn ObjectStore>,
    path: Path,
    /// Address without a slash at the end.
    address: String,
}

/// The kind of object that an address names below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObjectName {
    Name(String),
    Manifest(Digest),
}

impl Prefix {
    pub(crate) fn new(location: &Location) -> Self {
        let address = location.address.with_secrets().trim_end_matches('/').to_owned();
        Self { store: Arc::clone(&location.store), path: location.path.clone(), address }
    }

    /// Splits the address of an object into its prefix and the object's name or digest.
    pub(crate) fn of_object(location: &Location) -> Result<(Self, ObjectName), Error> {
        let no_image = || {
            let address = &location.address;
            Error::Usage(format!(
                "{address} is not the address of a published image: write PREFIX/{NAMES}/NAME, as \
                 printed by publish"
            ))
        };
        if location.path.as_ref().is_empty() {
            return Self::of_address(location.address.with_secrets())?.ok_or_else(no_image);
        }
        let parts: Vec<_> = location.path.parts().collect();
        let [base @ .., folder, last] = &*parts else { return Err(no_image()) };
        let target = target(folder.as_ref(), last.as_ref()).ok_or_else(no_image)?;
        let path = Path::from_iter(base.iter().cloned());
        let address = location.address.with_secrets();
        let address = address.rsplitn(3, '/').nth(2).unwrap_or(address).to_owned();
        Ok((Self { store: Arc::clone(&location.store), path, address }, target))
    }

    /// A web server has one store per address, so the prefix's store differs from the object's.
    fn of_address(address: &str) -> Result<Option<(Self, ObjectName)>, Error> {
        let mut parts = address.rsplitn(3, '/');
        let (Some(last), Some(folder), Some(base)) = (parts.next(), parts.next(), parts.next())
        else {
            return Ok(None);
        };
        let Some(target) = target(folder, last) else { return Ok(None) };
        let location =
            crate::place::store::open(&base.into()).map_err(|e| Error::Usage(e.to_string()))?;
        Ok(Some((Self::new(&location), target)))
    }

    pub(crate) fn chunk(&self, digest: Digest) -> Path {
        let name = digest.to_string();
        self.path.clone().join(CHUNKS).join(&name[..2]).join(name)
    }

    /// Returns the folder of the chunks whose digests start with `first`.
    pub(crate) fn shard(&self, first: u8) -> Path {
        self.path.clone().join(CHUNKS).join(format!("{first:02x}"))
    }

    pub(crate) fn manifest(&self, digest: Digest) -> Path {
        self.path.clone().join(MANIFESTS).join(digest.to_string())
    }

    pub(crate) fn bundle(&self, digest: Digest) -> Path {
        self.path.clone().join(BUNDLES).join(digest.to_string())
    }

    /// Returns the location of an object in a folder below this prefix.
    pub(crate) fn location(&self, folder: &str, name: &str) -> Location {
        let address = format!("{}/{folder}/{name}", self.address);
        let path = self.folder(folder).join(name);
        Location { store: Arc::clone(&self.store), path, address: address.as_str().into() }
    }

    pub(crate) fn name(&self, name: &str) -> Path {
        self.path.clone().join(NAMES).join(name)
    }

    pub(crate) fn folder(&self, folder: &str) -> Path {
        self.path.clone().join(folder)
    }
}

fn target(folder: &str, last: &str) -> Option<ObjectName> {
    match folder {
        NAMES => check_name(last).is_ok().then(|| ObjectName::Name(last.to_owned())),
        MANIFESTS => Digest::parse(last).map(ObjectName::Manifest),
        _ => None,
    }
}

/// Returns the digest in an object's name, if there is one.
pub(crate) fn digest_of(path: &Path) -> Option<Digest> {
    Digest::parse(path.filename()?)
}

/// Checks whether an image can have this name. Valid names mean the same in every store and every address.
///
/// # Errors
/// [`Error::Usage`] with the rules for names.
pub fn check_name(name: &str) -> Result<(), Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let is_good = !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.bytes().all(is_plain)
        && !name.starts_with('.');
    if is_good {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "\"{}\" is not a valid name for a published image: use at most {NAME_BYTES_MAX} letters, \
         digits, '.', '_' and '-', not starting with '.' (--name)",
        disk::address::shown(name.as_bytes())
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(path: &str) -> Location {
        let store = Arc::new(object_store::memory::InMemory::new());
        Location {
            store,
            path: Path::from(path),
            address: disk::address::Address::new(format!("memory://{path}")),
        }
    }

    #[test]
    fn addresses_of_objects_have_a_prefix() {
        let digest = Digest::of(b"x");
        let (prefix, target) = Prefix::of_object(&location("a/b/names/web")).unwrap();
        assert_eq!((prefix.path.as_ref(), target), ("a/b", ObjectName::Name("web".into())));
        let (prefix, target) =
            Prefix::of_object(&location(&format!("manifests/{digest}"))).unwrap();
        assert_eq!((prefix.path.as_ref(), target), ("", ObjectName::Manifest(digest)));
        for wrong in ["names", "a/web", "a/manifests/web", "names/web/x"] {
            assert!(Prefix::of_object(&location(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_of_web_servers_have_one_too() {
        let location =
            crate::place::store::open(&"http://127.0.0.1:1/pub/names/web".into()).unwrap();
        let (prefix, target) = Prefix::of_object(&location).unwrap();
        assert_eq!((prefix.path.as_ref(), target), ("", ObjectName::Name("web".into())));
    }

    #[test]
    fn names_are_plain() {
        for good in ["web", "root-1.2_x", "A"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a b", ".a", "ä", &"x".repeat(201)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}

//! Finds, verifies and opens the bundle of an image. Each failure leaves the image without a bundle.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use disk::BlockDevice;
use disk::address::Address;
use futures_util::future::{OptionFuture, join};
use object_store::{ObjectStoreExt, PutPayload};

use super::device::BundledDevice;
use crate::bundle::format::HEADER_BYTES;
use crate::bundle::identity::HEAD_BYTES;
use crate::bundle::{BundleError, Head, Identity, Tables, warn};
use crate::place::lazy::{FetchError, LazyDevice, LazyOptions, RangeSource};
use crate::place::object::{CHUNK_BYTES, ObjectSource, Opening};
use crate::place::store::{self, Location, StoreError};
use crate::place::{OpenPlace, runtime};
use crate::publish::Published;

/// Suffix of the object with the bundle of a hosted image.
pub const SUFFIX: &str = ".dwb";

/// Number of bytes of the first request for a bundle: all of the bundle of a small image, or the first directories of a
/// large one.
const FIRST_BYTES: u64 = 512 << 10;

/// The reason why a bundle is not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Bundle(#[from] BundleError),
}

/// A bundle whose header and tables were verified.
struct OpenBundle {
    stored: LazyDevice,
    tables: Arc<Tables>,
    head: Head,
    first_bytes: u64,
    name: String,
}

impl OpenBundle {
    /// Opens the bundle at a location.
    fn open(location: Location, options: &LazyOptions) -> Result<Self, Unusable> {
        Self::of(runtime::block_on(request(location))?, options)
    }

    /// Opens the bundle in an object. Another request follows if the tables are long.
    fn of(source: ObjectSource, options: &LazyOptions) -> Result<Self, Unusable> {
        let name = source.location().address.to_string();
        let (len, first_bytes) = (source.len(), source.head().len() as u64);
        let stored = LazyDevice::new(Arc::new(source), options.clone());
        let mut header = vec![0; HEADER_BYTES.min(usize::try_from(len).unwrap_or(usize::MAX))];
        stored.read_at(0, &mut header)?;
        let head = Head::parse(&header)?;
        if head.bundle_bytes != len {
            let (expected, found) = (head.bundle_bytes, len);
            return Err(BundleError::Length { part: "bundle", expected, found }.into());
        }
        let mut tables = vec![0; head.tables_bytes() as usize];
        stored.read_at(HEADER_BYTES as u64, &mut tables)?;
        let tables = Arc::new(Tables::parse(&head, &tables)?);
        Ok(Self { stored, tables, head, first_bytes, name })
    }

    /// Checks that the bundle belongs to an image of this length and identity.
    fn check(&self, image_bytes: u64, identity: &Identity) -> Result<(), BundleError> {
        if self.head.image_bytes != image_bytes {
            return Err(BundleError::Stale {
                field: "length",
                expected: self.head.image_bytes.to_string(),
                found: image_bytes.to_string(),
            });
        }
        self.tables.identity.check(identity)
    }

    fn device(self, image: Arc<LazyDevice>, options: &LazyOptions) -> BundledDevice {
        let Self { stored, tables, first_bytes, name, .. } = self;
        BundledDevice::new(image, stored, tables, first_bytes, &name, options)
    }
}

/// Returns the address of the bundle of a hosted image. Returns `None` if the address has a query, which may be a
/// signature of this object only.
#[must_use]
pub fn address_of(image: &Address) -> Option<Address> {
    let text = image.with_secrets();
    let is_plain = !text.contains(['?', '#']);
    is_plain.then(|| Address::new(format!("{text}{SUFFIX}")))
}

/// Returns the location of the bundle of a hosted image, if its address allows one.
fn location_beside(image: &Location) -> Option<Result<Location, StoreError>> {
    let address = address_of(&image.address)?;
    if image.path.as_ref().is_empty() {
        // A web server has one store per address.
        return Some(store::open(&address));
    }
    let path = object_store::path::Path::parse(format!("{}{SUFFIX}", image.path)).ok()?;
    Some(Ok(Location { store: Arc::clone(&image.store), path, address }))
}

/// Opens a hosted image, with its bundle if there is one. Requests both at the same time.
///
/// # Errors
/// If the image cannot be read.
pub fn open_object(location: Location, options: &LazyOptions) -> Result<OpenPlace, FetchError> {
    let beside = if options.bundles { location_beside(&location) } else { None };
    let beside = beside.and_then(Result::ok);
    let (source, bundle) = runtime::block_on(async {
        let image = ObjectSource::open(location, Opening::default());
        join(image, OptionFuture::from(beside.clone().map(request))).await
    });
    let source = source?;
    let bundle = beside.zip(bundle).and_then(|(location, bundle)| {
        of_hosted(&location.address.to_string(), bundle, &source, options)
    });
    let image = Arc::new(LazyDevice::new(Arc::new(source), options.clone()));
    let identity = Some(image.identity().to_owned());
    Ok(match bundle {
        Some(bundle) => OpenPlace { device: Arc::new(bundle.device(image, options)), identity },
        None => OpenPlace { device: image, identity },
    })
}

/// Requests the start of a bundle.
async fn request(location: Location) -> Result<ObjectSource, FetchError> {
    ObjectSource::open(location, Opening { bytes: FIRST_BYTES, tries: 1 }).await
}

/// Verifies the bundle of a hosted image.
fn of_hosted(
    name: &str,
    found: Result<ObjectSource, FetchError>,
    image: &ObjectSource,
    options: &LazyOptions,
) -> Option<OpenBundle> {
    let bundle = found.map_err(Unusable::from).and_then(|found| {
        let bundle = OpenBundle::of(found, options)?;
        bundle.check(image.len(), &identity_of(image))?;
        Ok(bundle)
    });
    match bundle {
        Ok(bundle) => Some(bundle),
        // Few images have a bundle. Some servers refuse access to missing objects, or answer with a page.
        Err(Unusable::Fetch(
            FetchError::Absent { .. } | FetchError::Denied { .. } | FetchError::Refused { .. },
        )) => None,
        Err(problem) => {
            warn(name, &problem);
            None
        }
    }
}

/// Opens a published image, with its bundle if the manifest names one, and prefetches its start.
pub fn open_published(image: Published, options: &LazyOptions) -> OpenPlace {
    let bundle = if options.bundles { of_published(&image, options) } else { None };
    let (identity, first) = (image.identity().to_owned(), start_of(&image));
    let image = Arc::new(LazyDevice::new(Arc::new(image), options.clone()));
    let device: Arc<dyn BlockDevice> = match bundle {
        Some(bundle) => {
            let device = bundle.device(image, options);
            device.read_ahead_in_order(&first);
            Arc::new(device)
        }
        None => {
            image.read_ahead_in_order(first);
            image
        }
    };
    OpenPlace { device, identity: Some(identity) }
}

/// Returns the ranges that a recorded start read first, with adjacent ranges merged.
fn start_of(image: &Published) -> Vec<Range<u64>> {
    let mut first: Vec<Range<u64>> = Vec::new();
    for range in image.order() {
        match first.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => first.push(range),
        }
    }
    first
}

fn of_published(image: &Published, options: &LazyOptions) -> Option<OpenBundle> {
    let (location, digest) = image.bundle()?;
    let name = location.address.to_string();
    let identity = Identity::Published { contents: image.manifest().contents_digest() };
    let found = OpenBundle::open(location, options).and_then(|bundle| {
        let found = bundle.head.digest();
        if found != digest {
            let part = "bundle that the manifest names";
            return Err(BundleError::Digest { part, expected: digest, found }.into());
        }
        bundle.check(image.len(), &identity)?;
        Ok(bundle)
    });
    found.map_err(|problem| warn(&name, &problem)).ok()
}

/// An object that a bundle is made of.
pub struct ImageToBundle {
    location: Location,
    /// Its contents.
    pub device: Arc<dyn BlockDevice>,
    /// Its identity.
    pub identity: Identity,
}

impl ImageToBundle {
    /// Opens an object without its current bundle.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn open(location: Location, options: &LazyOptions) -> Result<Self, FetchError> {
        let source = ObjectSource::of(location.clone())?;
        let identity = identity_of(&source);
        let device = Arc::new(LazyDevice::new(Arc::new(source), options.clone()));
        Ok(Self { location, device, identity })
    }

    /// Returns the address of the bundle, if it can be stored.
    #[must_use]
    pub fn target(&self) -> Option<Address> {
        let is_web_server = self.location.path.as_ref().is_empty();
        if is_web_server { None } else { address_of(&self.location.address) }
    }

    /// Stores a bundle at [`Self::target`].
    ///
    /// # Errors
    /// If the store refuses it.
    ///
    /// # Panics
    /// Without a [`Self::target`].
    pub fn store(&self, bundle: Vec<u8>) -> Result<(), FetchError> {
        let location = location_beside(&self.location);
        let location = location.and_then(Result::ok).expect("the caller has checked the target");
        let put = location.store.put(&location.path, PutPayload::from_bytes(Bytes::from(bundle)));
        let failed = |error: object_store::Error| FetchError::Refused {
            address: location.address.to_string(),
            reason: disk::address::safe_line(&error.to_string()),
        };
        runtime::block_on(put).map(drop).map_err(failed)
    }
}

const _: () = assert!(CHUNK_BYTES >= HEAD_BYTES, "the first response identifies the image");

/// Returns the properties that tie a metadata bundle to the version of an object.
fn identity_of(source: &ObjectSource) -> Identity {
    let head = &source.head()[..source.head().len().min(HEAD_BYTES as usize)];
    let pin = source.pin();
    Identity::hosted(head, pin.etag.clone(), pin.modified)
}

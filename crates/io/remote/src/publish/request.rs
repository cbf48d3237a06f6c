//! Requests with one retry, and reads of whole objects.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
};

use crate::publish::error::Error;

/// Pause before a retry. The store's library retries for minutes itself; this covers other cases, such as truncated
/// bodies.
const PAUSE: Duration = Duration::from_millis(50);

/// Retries once after an error that may be transient.
pub(crate) async fn retried<T, F, A>(mut attempt: A) -> Result<T, StoreError>
where
    A: FnMut() -> F,
    F: Future<Output = Result<T, StoreError>>,
{
    match attempt().await {
        Err(StoreError::Generic { .. }) => {
            tokio::time::sleep(PAUSE).await;
            attempt().await
        }
        done => done,
    }
}

/// Puts an object, overwriting an existing one.
pub(crate) async fn put(store: &dyn ObjectStore, path: &Path, body: Bytes) -> Result<(), Error> {
    let put = || store.put(path, PutPayload::from_bytes(body.clone()));
    retried(put).await.map(drop).map_err(Error::store("put", path))
}

/// Puts a content-addressed object unless it exists. Returns false if it existed.
pub(crate) async fn put_new(
    store: &dyn ObjectStore,
    path: &Path,
    body: Bytes,
) -> Result<bool, Error> {
    let put = || store.put_opts(path, PutPayload::from_bytes(body.clone()), PutMode::Create.into());
    match retried(put).await {
        Ok(_) => Ok(true),
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(false),
        // The store has no conditional puts. Overwriting with the same bytes is harmless.
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            self::put(store, path, body).await.map(|()| true)
        }
        Err(source) => Err(Error::store("put", path)(source)),
    }
}

/// Reads a whole object of at most `bytes_max` bytes. Returns `None` if it does not exist.
pub(crate) async fn get(
    store: &dyn ObjectStore,
    path: &Path,
    bytes_max: u64,
) -> Result<Option<Bytes>, Error> {
    let get = || async {
        let found = store.get_opts(path, GetOptions::new()).await?;
        let size = found.meta.size;
        if size > bytes_max {
            return Ok(Err(size));
        }
        let body = found.bytes().await?;
        if body.len() as u64 != size {
            let source = format!("received {} of {size} bytes", body.len()).into();
            return Err(StoreError::Generic { store: "publish", source });
        }
        Ok(Ok(body))
    };
    match retried(get).await {
        Ok(Ok(body)) => Ok(Some(body)),
        Ok(Err(size)) => Err(Error::Damaged {
            object: path.to_string(),
            problem: format!("expected at most {bytes_max} bytes, found {size}"),
            advice: "publish the image again with --resend",
        }),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(source) => Err(Error::store("get", path)(source)),
    }
}

/// Removes an object. A missing object is not an error.
pub(crate) async fn remove(store: &dyn ObjectStore, path: &Path) -> Result<(), Error> {
    match retried(|| store.delete(path)).await {
        Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
        Err(source) => Err(Error::store("remove", path)(source)),
    }
}

/// Checks whether an object exists.
pub(crate) async fn is_there(store: &dyn ObjectStore, path: &Path) -> Result<bool, Error> {
    match retried(|| store.head(path)).await {
        Ok(_) => Ok(true),
        Err(StoreError::NotFound { .. }) => Ok(false),
        Err(source) => Err(Error::store("ask for", path)(source)),
    }
}

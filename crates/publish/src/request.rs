//! Requests that are made once again, and what is read of objects whole.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload,
};

use crate::error::Error;

/// The store's library tries again for minutes; this is for what it does not, such as bodies that end early.
const PAUSE: Duration = Duration::from_millis(50);

/// Tries again once what failed for a reason that may have gone.
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

/// Puts an object, whether it is there or not.
pub(crate) async fn put(store: &dyn ObjectStore, path: &Path, body: Bytes) -> Result<(), Error> {
    let put = || store.put(path, PutPayload::from_bytes(body.clone()));
    retried(put).await.map(drop).map_err(Error::store("put", path))
}

/// Puts an object that has a name for its contents, unless it is there. False if it was.
pub(crate) async fn put_new(
    store: &dyn ObjectStore,
    path: &Path,
    body: Bytes,
) -> Result<bool, Error> {
    let put = || store.put_opts(path, PutPayload::from_bytes(body.clone()), PutMode::Create.into());
    match retried(put).await {
        Ok(_) => Ok(true),
        Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => Ok(false),
        // The same bytes again do no harm where a store knows no conditions.
        Err(StoreError::NotImplemented { .. } | StoreError::NotSupported { .. }) => {
            self::put(store, path, body).await.map(|()| true)
        }
        Err(source) => Err(Error::store("put", path)(source)),
    }
}

/// All of an object of at most `bytes_max`; `None` if it is not there.
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
            let source = format!("{} of {size} bytes came", body.len()).into();
            return Err(StoreError::Generic { store: "publish", source });
        }
        Ok(Ok(body))
    };
    match retried(get).await {
        Ok(Ok(body)) => Ok(Some(body)),
        Ok(Err(size)) => Err(Error::Damaged {
            object: path.to_string(),
            problem: format!("it should have at most {bytes_max} bytes and has {size}"),
            advice: "publish the image again with --resend",
        }),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(source) => Err(Error::store("get", path)(source)),
    }
}

/// Removes an object, which may be gone already.
pub(crate) async fn remove(store: &dyn ObjectStore, path: &Path) -> Result<(), Error> {
    match retried(|| store.delete(path)).await {
        Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
        Err(source) => Err(Error::store("remove", path)(source)),
    }
}

/// Whether an object is there.
pub(crate) async fn is_there(store: &dyn ObjectStore, path: &Path) -> Result<bool, Error> {
    match retried(|| store.head(path)).await {
        Ok(_) => Ok(true),
        Err(StoreError::NotFound { .. }) => Ok(false),
        Err(source) => Err(Error::store("ask for", path)(source)),
    }
}

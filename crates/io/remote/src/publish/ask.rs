//! Finds the chunks that are missing in a store.

use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStore;

use crate::publish::digest::Digest;
use crate::publish::error::Error;
use crate::publish::layout::{Prefix, digest_of};
use crate::publish::request::{is_there, retried};

/// Maximum number of chunks that are looked up one by one. Larger sets are compared with listings, one per shard.
const ASKED_MAX: usize = 256;

/// Returns the digests that the store does not have. `digests` must be sorted and unique.
pub(crate) async fn missing(
    prefix: &Prefix,
    digests: &[Digest],
    requests: usize,
) -> Result<Vec<Digest>, Error> {
    let found = if digests.len() <= ASKED_MAX {
        ask_for_each(prefix, digests, requests).await?
    } else {
        list(prefix, digests, requests).await?
    };
    Ok(digests.iter().zip(found).filter(|(_, found)| !found).map(|(digest, _)| *digest).collect())
}

async fn ask_for_each(
    prefix: &Prefix,
    digests: &[Digest],
    requests: usize,
) -> Result<Vec<bool>, Error> {
    let ask = |digest: &Digest| {
        let path = prefix.chunk(*digest);
        async move { is_there(&*prefix.store, &path).await }
    };
    stream::iter(digests.iter().map(ask)).buffered(requests).try_collect().await
}

/// Lists one shard per first byte, several at a time. Memory is bounded by `digests`, not by the size of the bucket.
async fn list(prefix: &Prefix, digests: &[Digest], requests: usize) -> Result<Vec<bool>, Error> {
    let parts = digests.chunk_by(|a, b| a.0[0] == b.0[0]);
    let list = |part: &[Digest]| {
        let part = part.to_vec();
        async move { retried_list(prefix, &part).await }
    };
    let found: Vec<Vec<bool>> =
        stream::iter(parts.map(list)).buffered(requests).try_collect().await?;
    Ok(found.concat())
}

async fn retried_list(prefix: &Prefix, part: &[Digest]) -> Result<Vec<bool>, Error> {
    let folder = prefix.shard(part[0].0[0]);
    let list = || async {
        let mut found = vec![false; part.len()];
        let mut objects = prefix.store.list(Some(&folder));
        while let Some(object) = objects.try_next().await? {
            let digest = digest_of(&object.location);
            if let Some(place) = digest.and_then(|digest| part.binary_search(&digest).ok()) {
                found[place] = true;
            }
        }
        Ok(found)
    };
    retried(list).await.map_err(Error::store("list", &folder))
}

//! Retries requests until the bytes arrive or the error is permanent.

use std::ops::Range;

use bytes::Bytes;
use tokio::time::sleep;

use super::{FetchError, LazyOptions, RangeSource};

/// Fetches exactly `range`, and rejects answers of another length. Calls `count` for each request.
pub(super) async fn fetch(
    source: &dyn RangeSource,
    range: Range<u64>,
    options: &LazyOptions,
    count: impl Fn(),
) -> Result<Vec<Bytes>, FetchError> {
    let mut wait = options.wait;
    for _ in 1..options.tries {
        count();
        match once(source, range.clone()).await {
            Err(FetchError::Transient { address, reason }) => {
                tracing::debug!("{address}: {reason}; retrying in {wait:?}");
            }
            outcome => return outcome,
        }
        sleep(wait).await;
        wait *= 2;
    }
    count();
    once(source, range).await
}

async fn once(source: &dyn RangeSource, range: Range<u64>) -> Result<Vec<Bytes>, FetchError> {
    let pieces = source.fetch(range.clone()).await?;
    let lens = || pieces.iter().map(|piece| piece.len() as u64);
    let (found, expected) = (lens().sum::<u64>(), range.end - range.start);
    let (chunk_bytes, others) = (source.chunk_bytes(), pieces.len().saturating_sub(1));
    // Readers find the piece of a chunk by its number. Only the last one may be shorter.
    let are_chunks =
        lens().take(others).all(|len| len == chunk_bytes) && lens().all(|len| len <= chunk_bytes);
    if found == expected && are_chunks {
        return Ok(pieces);
    }
    Err(FetchError::Transient {
        address: source.identity().to_owned(),
        reason: format!("the server sent {found} of {expected} bytes at offset {}", range.start),
    })
}

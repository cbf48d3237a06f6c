//! Archives of directories as pieces for clients.

use std::io;

use bytes::Bytes;
use dav_server::fs::{FsError, FsResult};
use futures_util::stream::{self, Stream};

use crate::archive::Archive;
use crate::names;
use crate::pool::JobPool;
use crate::volume::joined;

/// Minimum size of a piece, except the last one.
const PIECE_BYTES: usize = 64 << 10;

/// Returns an archive of a directory as pieces. Each is made when the one before is sent.
///
/// # Errors
/// If the server has no archives, or the directory is unreadable.
pub(crate) async fn pieces(
    pool: JobPool,
    path: Vec<u8>,
) -> FsResult<impl Stream<Item = io::Result<Bytes>> + Send + 'static> {
    let start = pool.run(move |volume| {
        let source = volume.options.archives.as_ref().ok_or(FsError::NotFound)?;
        let names = volume.result(names::of_path(&path))?;
        source.start(volume.fs(), &joined(&names)).map_err(|error| {
            tracing::warn!("an archive cannot be made: {error}");
            FsError::GeneralFailure
        })
    });
    let archive = start.await?;
    Ok(stream::try_unfold(Some(archive), move |archive| next(pool.clone(), archive)))
}

async fn next(
    pool: JobPool,
    archive: Option<Box<dyn Archive>>,
) -> io::Result<Option<(Bytes, Option<Box<dyn Archive>>)>> {
    let Some(mut archive) = archive else { return Ok(None) };
    let made = pool.run(move |volume| {
        let mut piece = Vec::new();
        let mut goes_on = true;
        while goes_on && piece.len() < PIECE_BYTES {
            goes_on = archive.step(volume.fs(), &mut piece).map_err(|error| {
                tracing::warn!("an archive ends early: {error}");
                FsError::GeneralFailure
            })?;
        }
        Ok((Bytes::from(piece), goes_on.then_some(archive)))
    });
    made.await.map(Some).map_err(io::Error::other)
}

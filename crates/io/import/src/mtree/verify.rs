//! Parallel verification of the digests of a manifest.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::node::ManifestNode;
use crate::rule_file::lines::RuleFile;
use crate::{Body, EntryKind, SourceError};

/// Read size in bytes.
const CHUNK_BYTES: usize = 1 << 18;

/// Compares all contents with their digests in the manifest. The error is the first difference in the order of the
/// tree, whatever the number of threads.
pub(super) fn verify(
    file: &RuleFile,
    nodes: &[ManifestNode],
    threads: usize,
) -> Result<(), SourceError> {
    let jobs: Vec<&ManifestNode> = nodes
        .iter()
        .filter(|node| !node.digests.is_empty() && matches!(node.kind, EntryKind::File(_)))
        .collect();
    let (next, first) = (AtomicUsize::new(0), Mutex::new(None::<(usize, SourceError)>));
    let work = || {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(node) = jobs.get(index) else { return };
            if first.lock().as_ref().is_some_and(|(failed, _)| *failed < index) {
                return;
            }
            if let Err(error) = verify_one(file, node, &mut buffer) {
                let mut first = first.lock();
                if first.as_ref().is_none_or(|(failed, _)| index < *failed) {
                    *first = Some((index, error));
                }
            }
        }
    };
    thread::scope(|scope| {
        // This thread takes part as well.
        for _ in 1..threads.clamp(1, jobs.len().max(1)) {
            // If a thread cannot be started, fewer threads do the work.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    first.into_inner().map_or(Ok(()), |(_, error)| Err(error))
}

fn verify_one(file: &RuleFile, node: &ManifestNode, buffer: &mut [u8]) -> Result<(), SourceError> {
    let EntryKind::File(content) = &node.kind else { return Ok(()) };
    let mut hashers: Vec<_> = node.digests.iter().map(|digest| digest.hasher()).collect();
    let opened = match content.body() {
        Body::Detached(detached) => Some(detached.open()?),
        Body::Empty | Body::Stream => None,
    };
    let mut at = 0;
    while at < content.size() {
        let len = (content.size() - at).min(buffer.len() as u64) as usize;
        match &opened {
            Some(opened) => opened.read_at(at, &mut buffer[..len])?,
            None => buffer[..len].fill(0),
        }
        hashers.iter_mut().for_each(|hasher| hasher.update(&buffer[..len]));
        at += len as u64;
    }
    if let Some(opened) = opened {
        opened.finish()?;
    }
    for (digest, hasher) in node.digests.iter().zip(hashers) {
        let compared = digest.compare(&node.path, &hasher.finish());
        compared.map_err(|fault| file.fault(node.line, fault))?;
    }
    Ok(())
}

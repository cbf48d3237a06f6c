//! The anti-forensic split: a key is recovered only if all stripes are known.

use zeroize::Zeroizing;

use super::derive::Hash;

/// Mixes a block: each piece of the hash's size becomes the hash of its number and itself.
fn diffuse(block: &mut [u8], hash: Hash) {
    for (number, piece) in block.chunks_mut(hash.bytes()).enumerate() {
        let digest = hash.of(&[&(number as u32).to_be_bytes(), piece]);
        piece.copy_from_slice(&digest[..piece.len()]);
    }
}

/// Merges stripes of `key_bytes` bytes to the key.
pub(super) fn merge(material: &[u8], key_bytes: usize, hash: Hash) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(vec![0; key_bytes]);
    let count = material.len() / key_bytes.max(1);
    for (number, stripe) in material.chunks_exact(key_bytes.max(1)).enumerate() {
        key.iter_mut().zip(stripe).for_each(|(byte, other)| *byte ^= other);
        if number + 1 < count {
            diffuse(&mut key, hash);
        }
    }
    key
}

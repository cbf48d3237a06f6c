//! Keys that distinguish deferred names of a directory.

use operations::deferred_create::HashNames;

use crate::format::hash::name_hash;

/// Directory hashes of names, as in leaves, with mixed lower bits. The lower halves also depend on all bytes of a name.
#[derive(Clone, Copy, Debug)]
pub struct NameKeys;

impl HashNames for NameKeys {
    fn key(&self, name: &[u8]) -> u64 {
        (u64::from(name_hash(name)) << 32) | u64::from(mixed(name))
    }
}

fn mixed(name: &[u8]) -> u32 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let (words, rest) = name.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let mix = |hash: u64, word: &[u8; 8]| {
        (hash.rotate_left(29) ^ u64::from_le_bytes(*word)).wrapping_mul(FACTOR)
    };
    let hash = mix(words.iter().fold(name.len() as u64, mix), &last);
    ((hash ^ hash >> 32).wrapping_mul(FACTOR) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_in_the_order_of_hashes_and_differ_where_these_agree() {
        let names: Vec<Vec<u8>> = (0..100_000).map(|n| format!("file-{n}").into_bytes()).collect();
        let keys: HashSet<u64> = names.iter().map(|name| NameKeys.key(name)).collect();
        assert_eq!(keys.len(), names.len());
        assert!(names.iter().all(|name| NameKeys.key(name) >> 32 == u64::from(name_hash(name))));
        let lower: HashSet<u32> = keys.iter().map(|&key| key as u32).collect();
        assert!(lower.len() > 99_990, "{}", lower.len());
    }
}

//! Decrypts arbitrary names with arbitrary encryption contexts of ext4 whose key is known. Errors are fine; panics and
//! names that are longer than stored are bugs.
#![no_main]

use std::sync::LazyLock;

use ext4::fscrypt::{EncryptionKeys, decrypted_name};
use libfuzzer_sys::fuzz_target;
use vfs::KeyName;

/// Keys of both sizes that ciphers need, and their names.
static KEYS: LazyLock<(EncryptionKeys, Vec<KeyName>)> = LazyLock::new(|| {
    let mut keys = EncryptionKeys::new();
    let names = [16, 32, 64].map(|size| keys.add(vec![0x5a; size]).expect("a valid size"));
    (keys, names.concat())
});

fuzz_target!(|input: &[u8]| {
    let Some((&[kind, len], rest)) = input.split_first_chunk() else { return };
    let (context, stored) = rest.split_at(rest.len().min(usize::from(len)));
    let (mut context, (keys, names)) = (context.to_vec(), &*KEYS);
    // The key of the context is one that is there.
    let (at, name) = match &names[usize::from(kind) % names.len()] {
        KeyName::Descriptor(name) => (4, &name[..]),
        KeyName::Identifier(name) => (8, &name[..]),
    };
    if let Some(place) = context.get_mut(at..at + name.len()) {
        place.copy_from_slice(name);
    }
    if let Ok(Some(name)) = decrypted_name(keys, &context, ([7; 16], 12), stored) {
        assert!(name.len() <= stored.len() && !name.contains(&0));
    }
});

//! The header of LUKS1.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::cipher::Cipher;
use super::derive::{Hash, Kdf};
use super::{Digest, HEADER, KEY_BYTES_MAX, KeySlot, MAGIC, Volume};
use crate::{LayerError, Result, raw};

/// Size of the header in bytes.
pub const BYTES: u64 = 592;
const SECTOR: u64 = 512;
/// State of a slot in use.
const ACTIVE: u32 = 0x00ac_71f3;
/// State of an unused slot.
const INACTIVE: u32 = 0x0000_dead;

/// `luks_phdr`.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 6],
    version: U16,
    cipher_name: [u8; 32],
    cipher_mode: [u8; 32],
    hash_spec: [u8; 32],
    payload_offset: U32,
    key_bytes: U32,
    digest: [u8; 20],
    digest_salt: [u8; 32],
    digest_iterations: U32,
    uuid: [u8; 40],
    slots: [Slot; 8],
}

#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Slot {
    state: U32,
    iterations: U32,
    salt: [u8; 32],
    offset: U32,
    stripes: U32,
}

const _: () = assert!(size_of::<Header>() == BYTES as usize);

/// Parses the header.
///
/// # Errors
/// If it is damaged or has unsupported features.
pub fn parse(bytes: &[u8]) -> Result<Volume> {
    let bad = |problem: String| LayerError::damaged(HEADER, 0, problem);
    let (header, _) = raw::prefix::<Header>(bytes, HEADER, 0)?;
    if header.magic != MAGIC || header.version.get() != 1 {
        return Err(bad(format!("version {}, expected 1", header.version)));
    }
    let text = |field: &[u8], name: &str| {
        raw::ascii(field).map(str::to_owned).ok_or_else(|| bad(format!("{name} is not text")))
    };
    let (name, mode) = (text(&header.cipher_name, "cipher")?, text(&header.cipher_mode, "mode")?);
    let encryption = Cipher::named(&format!("{name}-{mode}"))?;
    let hash = Hash::named(&text(&header.hash_spec, "hash")?)?;
    let key_bytes = header.key_bytes.get() as usize;
    if key_bytes == 0 || key_bytes > KEY_BYTES_MAX {
        return Err(bad(format!("a key of {key_bytes} bytes, expected at most {KEY_BYTES_MAX}")));
    }
    let pbkdf2 = |iterations: U32, salt: &[u8; 32]| Kdf::Pbkdf2 {
        hash,
        iterations: iterations.get(),
        salt: salt.to_vec(),
    };
    let kdf = pbkdf2(header.digest_iterations, &header.digest_salt);
    let digest = Digest { kdf, value: header.digest.to_vec() };
    let mut slots = Vec::new();
    for (number, slot) in header.slots.iter().enumerate() {
        match slot.state.get() {
            INACTIVE => continue,
            ACTIVE if slot.stripes.get() > 0 => {}
            state => {
                let stripes = slot.stripes;
                return Err(bad(format!(
                    "key slot {number}: state {state:#x} with {stripes} stripes"
                )));
            }
        }
        let slot = KeySlot {
            key_bytes,
            kdf: pbkdf2(slot.iterations, &slot.salt),
            slot_key_bytes: key_bytes,
            encryption,
            stripes: slot.stripes.get(),
            split_hash: hash,
            offset: u64::from(slot.offset.get()) * SECTOR,
        };
        slots.push((slot, digest.clone()));
    }
    let uuid = text(&header.uuid, "UUID")?;
    let offset = u64::from(header.payload_offset.get()) * SECTOR;
    if offset == 0 {
        let what = "a LUKS volume whose header is detached";
        return Err(LayerError::unsupported(what, super::OPEN));
    }
    let (len, sector_bytes, first_iv) = (None, SECTOR, 0);
    Ok(Volume { version: 1, uuid, slots, encryption, offset, len, sector_bytes, first_iv })
}

//! LUKS1 and LUKS2 volumes.
//!
//! The formats follow the LUKS On-Disk Format Specification 1.2.3 and the LUKS2 On-Disk Format Specification 1.1.1. A key
//! slot contains the volume key, split into stripes ([`split`]) and encrypted with a key derived from a passphrase
//! ([`mod@derive`]). A digest verifies the key. [`cipher`] decrypts sectors, [`device`] the volume.
//!
//! Passphrases and keys are erased when they are dropped, and are in no message.

pub mod cipher;
pub mod derive;
pub mod device;
pub mod header1;
pub mod header2;
pub mod split;

use std::sync::Arc;

use disk::BlockDevice;
use zeroize::Zeroizing;

use crate::{LayerError, LayerOptions, Result, raw};
use cipher::Cipher;
use derive::{Hash, Kdf};
use device::LuksDevice;

/// Name of a volume in messages.
pub(crate) const VOLUME: &str = "LUKS volume";
/// Name of a header in messages.
pub(crate) const HEADER: &str = "LUKS header";
/// Magic number of a header, followed by the version.
pub(crate) const MAGIC: [u8; 6] = *b"LUKS\xba\xbe";
/// Advice for features that only cryptsetup supports.
pub(crate) const OPEN: &str =
    "open it with: cryptsetup open IMAGE NAME; then read /dev/mapper/NAME";
/// Maximum size of the encrypted stripes of a key slot in bytes. cryptsetup makes 512,000 of a key of 128 bytes.
const MATERIAL_BYTES_MAX: u64 = 16 << 20;
/// Maximum size of a volume key in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 128;

/// A key slot of either version.
#[derive(Clone, Debug)]
pub struct KeySlot {
    /// Size of the key in it.
    pub key_bytes: usize,
    /// Derivation of the slot's key.
    pub kdf: Kdf,
    /// Size of the derived key.
    pub slot_key_bytes: usize,
    /// Encryption of the stripes.
    pub encryption: Cipher,
    /// Number of stripes.
    pub stripes: u32,
    /// Hash of the split.
    pub split_hash: Hash,
    /// Start of the stripes in bytes.
    pub offset: u64,
}

/// Digest of a volume key.
#[derive(Clone, Debug)]
pub struct Digest {
    /// Derivation of the digest.
    pub kdf: Kdf,
    /// Expected value.
    pub value: Vec<u8>,
}

/// A volume, as its header describes it.
#[derive(Clone, Debug)]
pub struct Volume {
    /// 1 or 2.
    pub version: u16,
    /// UUID.
    pub uuid: String,
    /// Active key slots with the digest of their key.
    pub slots: Vec<(KeySlot, Digest)>,
    /// Encryption of the data.
    pub encryption: Cipher,
    /// Start of the data in bytes.
    pub offset: u64,
    /// Length of the data in bytes; `None` for the rest of the device.
    pub len: Option<u64>,
    /// Size of an encrypted sector in bytes.
    pub sector_bytes: u64,
    /// Number of the first sector.
    pub first_iv: u64,
}

impl Volume {
    /// Reads the header of a volume. A LUKS2 volume has two; the newest valid one is used.
    ///
    /// # Errors
    /// If it is damaged or has unsupported features.
    pub fn read(device: &dyn BlockDevice) -> Result<Self> {
        let start = raw::bytes(device, HEADER, 0, header1::BYTES, header1::BYTES)?;
        let version = u16::from_be_bytes([start[6], start[7]]);
        match (start.starts_with(&MAGIC), version) {
            (true, 1) => header1::parse(&start),
            // Only LUKS2 has a second header.
            (_, 2) | (false, _) => header2::read(device),
            _ => Err(LayerError::unsupported(format!("LUKS version {version}"), OPEN)),
        }
    }

    /// Finds the volume key with the passphrase of `options`, or the key that was found before.
    ///
    /// # Errors
    /// Without a passphrase, if no slot accepts it, or the slots cannot be read.
    pub fn unlock(
        &self,
        device: &dyn BlockDevice,
        options: &LayerOptions,
    ) -> Result<Zeroizing<Vec<u8>>> {
        if let Some(key) = options.volume_key(&self.uuid) {
            return Ok(key);
        }
        let what = || format!("the LUKS{} volume {}", self.version, self.uuid);
        let passphrase = options.passphrase_for(&what()).map_err(LayerError::Passphrase)?;
        let Some(passphrase) = passphrase else { return Err(LayerError::NoKey { what: what() }) };
        let mut problem = None;
        for (slot, digest) in &self.slots {
            match try_slot(device, slot, digest, passphrase.bytes()) {
                Ok(Some(key)) => {
                    options.keep_volume_key(&self.uuid, &key);
                    return Ok(key);
                }
                Ok(None) => {}
                Err(error) => problem = Some(error),
            }
        }
        Err(problem.unwrap_or_else(|| LayerError::WrongKey { what: what() }))
    }

    /// Returns the decrypted volume.
    ///
    /// # Errors
    /// If the data is past the end of the device, or the key does not fit the cipher.
    pub fn open(&self, device: Arc<dyn BlockDevice>, key: &[u8]) -> Result<LuksDevice> {
        LuksDevice::new(self, device, key)
    }
}

/// Decrypts the key of a slot. Returns `None` if the passphrase is wrong.
fn try_slot(
    device: &dyn BlockDevice,
    slot: &KeySlot,
    digest: &Digest,
    passphrase: &[u8],
) -> Result<Option<Zeroizing<Vec<u8>>>> {
    let len = u64::from(slot.stripes) * slot.key_bytes as u64;
    let len = len.next_multiple_of(cipher::SECTOR as u64);
    let material = raw::bytes(device, "LUKS key slot", slot.offset, len, MATERIAL_BYTES_MAX)?;
    let mut material = Zeroizing::new(material);
    let slot_key = slot.kdf.derive(passphrase, slot.slot_key_bytes)?;
    slot.encryption.keyed(&slot_key)?.decrypt(0, cipher::SECTOR, &mut material);
    material.truncate(slot.stripes as usize * slot.key_bytes);
    let key = split::merge(&material, slot.key_bytes, slot.split_hash);
    let found = digest.kdf.derive(&key, digest.value.len())?;
    Ok((*found == digest.value).then_some(key))
}

//! The headers of LUKS2: a binary header and JSON text, twice.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use disk::BlockDevice;
use serde::Deserialize;
use zerocopy::big_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use super::cipher::Cipher;
use super::derive::{Hash, Kdf};
use super::{Digest, HEADER, KEY_BYTES_MAX, KeySlot, MAGIC, OPEN, Volume};
use crate::{LayerError, Result, raw};

const SECOND_MAGIC: [u8; 6] = *b"SKUL\xba\xbe";
/// Size of the binary header in bytes.
const BINARY_BYTES: u64 = 4096;
/// Sizes of a header with its text, which are the places of the second header too.
const SIZES: [u64; 9] =
    [0x4000, 0x8000, 0x1_0000, 0x2_0000, 0x4_0000, 0x8_0000, 0x10_0000, 0x20_0000, 0x40_0000];
/// Largest of [`SIZES`].
const BYTES_MAX: u64 = 0x40_0000;
const CHECKSUM_AT: usize = 448;
/// Maximum number of key slots, as in cryptsetup. It limits the work for a wrong passphrase.
const SLOTS_MAX: usize = 32;
/// Maximum size of a digest in bytes.
const DIGEST_BYTES_MAX: usize = 64;

/// `luks2_hdr_disk`.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Binary {
    magic: [u8; 6],
    version: U16,
    header_bytes: U64,
    sequence: U64,
    label: [u8; 48],
    checksum_algorithm: [u8; 32],
    salt: [u8; 64],
    uuid: [u8; 40],
    subsystem: [u8; 48],
    offset: U64,
    padding: [u8; 184],
    checksum: [u8; 64],
    padding_4096: [u8; 3584],
}

const _: () = assert!(size_of::<Binary>() == BINARY_BYTES as usize);

/// Text of a header.
#[derive(Deserialize)]
struct Text {
    keyslots: BTreeMap<String, KeySlotText>,
    segments: BTreeMap<String, SegmentText>,
    digests: BTreeMap<String, DigestText>,
    #[serde(default)]
    config: ConfigText,
}

#[derive(Deserialize, Default)]
struct ConfigText {
    #[serde(default)]
    requirements: RequirementsText,
}

#[derive(Deserialize, Default)]
struct RequirementsText {
    #[serde(default)]
    mandatory: Vec<String>,
}

#[derive(Deserialize)]
struct KeySlotText {
    #[serde(rename = "type")]
    kind: String,
    key_size: usize,
    af: Option<SplitText>,
    area: Option<AreaText>,
    kdf: Option<KdfText>,
    priority: Option<i64>,
}

#[derive(Deserialize)]
struct SplitText {
    stripes: u32,
    hash: String,
}

#[derive(Deserialize)]
struct AreaText {
    #[serde(rename = "type")]
    kind: String,
    offset: String,
    encryption: Option<String>,
    key_size: Option<usize>,
}

#[derive(Deserialize)]
struct KdfText {
    #[serde(rename = "type")]
    kind: String,
    salt: String,
    hash: Option<String>,
    iterations: Option<u32>,
    time: Option<u32>,
    memory: Option<u32>,
    cpus: Option<u32>,
}

#[derive(Deserialize)]
struct SegmentText {
    #[serde(rename = "type")]
    kind: String,
    offset: String,
    size: String,
    iv_tweak: Option<String>,
    encryption: Option<String>,
    sector_size: Option<u64>,
    integrity: Option<serde_json::Value>,
    #[serde(default)]
    flags: Vec<String>,
}

#[derive(Deserialize)]
struct DigestText {
    #[serde(rename = "type")]
    kind: String,
    keyslots: Vec<String>,
    segments: Vec<String>,
    hash: String,
    iterations: u32,
    salt: String,
    digest: String,
}

/// Reads the newest valid header of a device.
///
/// # Errors
/// The error of the first header if neither is valid.
pub(super) fn read(device: &dyn BlockDevice) -> Result<Volume> {
    let first = read_at(device, 0);
    // The first header names the size of both, if it can be trusted.
    let places: Vec<u64> = match &first {
        Ok(header) => vec![header.bytes],
        Err(_) => SIZES.to_vec(),
    };
    let second = places.into_iter().map(|at| read_at(device, at)).find_map(Result::ok);
    let newest = match (first, second) {
        (Ok(first), Some(second)) if second.sequence > first.sequence => second,
        (Ok(first), _) => first,
        (Err(_), Some(second)) => second,
        (Err(error), None) => return Err(error),
    };
    volume(&newest)
}

/// A header whose checksum is right.
struct Header {
    at: u64,
    bytes: u64,
    sequence: u64,
    uuid: String,
    text: Vec<u8>,
}

fn read_at(device: &dyn BlockDevice, at: u64) -> Result<Header> {
    let bytes = raw::bytes(device, HEADER, at, BINARY_BYTES, BINARY_BYTES)?;
    let len = check_binary(&bytes, at)?;
    parse_header(&raw::bytes(device, HEADER, at, len, BYTES_MAX)?, at)
}

/// Checks the fixed fields and returns the size of the whole header.
fn check_binary(bytes: &[u8], at: u64) -> Result<u64> {
    let bad = |problem: String| LayerError::damaged(HEADER, at, problem);
    let (binary, _) = raw::prefix::<Binary>(bytes, HEADER, at)?;
    let magic = if at == 0 { MAGIC } else { SECOND_MAGIC };
    if binary.magic != magic {
        return Err(bad("it has no magic number".into()));
    }
    if binary.version.get() != 2 {
        return Err(bad(format!("version {}, expected 2", binary.version)));
    }
    if binary.offset.get() != at {
        return Err(bad(format!("it names byte {} as its place", binary.offset)));
    }
    let len = binary.header_bytes.get();
    if !SIZES.contains(&len) {
        return Err(bad(format!("{len} bytes long")));
    }
    Ok(len)
}

/// Verifies the checksum of a whole header.
fn parse_header(bytes: &[u8], at: u64) -> Result<Header> {
    let bad = |problem: String| LayerError::damaged(HEADER, at, problem);
    let (binary, text) = raw::prefix::<Binary>(bytes, HEADER, at)?;
    let name = raw::ascii(&binary.checksum_algorithm).unwrap_or_default();
    let hash = Hash::named(name)?;
    let parts = [&bytes[..CHECKSUM_AT], &[0; 64], &bytes[CHECKSUM_AT + 64..]];
    if hash.of(&parts)[..] != binary.checksum[..hash.bytes()] {
        return Err(bad(format!("its {name} checksum is wrong")));
    }
    let uuid = raw::ascii(&binary.uuid).ok_or_else(|| bad("the UUID is not text".into()))?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    Ok(Header {
        at,
        bytes: bytes.len() as u64,
        sequence: binary.sequence.get(),
        uuid: uuid.to_owned(),
        text: text[..end].to_vec(),
    })
}

/// Parses the text of bytes that are a whole first header, for fuzzing.
///
/// # Errors
/// If they are damaged.
pub fn parse(bytes: &[u8]) -> Result<Volume> {
    check_binary(bytes, 0)?;
    volume(&parse_header(bytes, 0)?)
}

fn volume(header: &Header) -> Result<Volume> {
    let bad = |problem: String| LayerError::damaged(HEADER, header.at, problem);
    let text: Text =
        serde_json::from_slice(&header.text).map_err(|error| bad(error.to_string()))?;
    if let Some(first) = text.config.requirements.mandatory.first() {
        let what = format!("a LUKS2 volume that requires {first:?}");
        return Err(LayerError::unsupported(what, OPEN));
    }
    let mut data = text.segments.iter();
    let (Some((name, segment)), None) = (data.next(), data.next()) else {
        let what = format!("a LUKS2 volume with {} segments", text.segments.len());
        return Err(LayerError::unsupported(what, OPEN));
    };
    if segment.kind != "crypt" || segment.integrity.is_some() || !segment.flags.is_empty() {
        let what = match &segment.integrity {
            Some(_) => "a LUKS2 volume with integrity".into(),
            None => format!("a LUKS2 segment of type {:?} {:?}", segment.kind, segment.flags),
        };
        return Err(LayerError::unsupported(what, OPEN));
    }
    let number = |field: &str, text: &str| {
        text.parse::<u64>().map_err(|_| bad(format!("{field} is {text:?}, expected a number")))
    };
    let len = match &*segment.size {
        "dynamic" => None,
        size => Some(number("segment size", size)?),
    };
    let encryption = segment.encryption.as_deref().unwrap_or_default();
    Ok(Volume {
        version: 2,
        uuid: header.uuid.clone(),
        slots: slots(&text, name, header.at)?,
        encryption: Cipher::named(encryption)?,
        offset: number("segment offset", &segment.offset)?,
        len,
        sector_bytes: segment.sector_size.unwrap_or(512),
        first_iv: number("iv_tweak", segment.iv_tweak.as_deref().unwrap_or("0"))?,
    })
}

/// Returns the slots of a segment's key, those of high priority first.
fn slots(text: &Text, segment: &str, at: u64) -> Result<Vec<(KeySlot, Digest)>> {
    let bad = |problem: String| LayerError::damaged(HEADER, at, problem);
    let mut found = Vec::new();
    for digest in
        text.digests.values().filter(|digest| digest.segments.iter().any(|it| it == segment))
    {
        if digest.kind != "pbkdf2" {
            let what = format!("a LUKS2 digest of type {:?}", digest.kind);
            return Err(LayerError::unsupported(what, OPEN));
        }
        let value = decode(&digest.digest, at)?;
        if value.is_empty() || value.len() > DIGEST_BYTES_MAX {
            return Err(bad(format!("a digest of {} bytes", value.len())));
        }
        let (hash, iterations) = (Hash::named(&digest.hash)?, digest.iterations);
        let kdf = Kdf::Pbkdf2 { hash, iterations, salt: decode(&digest.salt, at)? };
        for name in &digest.keyslots {
            let slot = text.keyslots.get(name);
            let slot = slot.ok_or_else(|| bad(format!("there is no key slot {name:?}")))?;
            if found.len() == SLOTS_MAX {
                return Err(bad(format!("more than {SLOTS_MAX} key slots")));
            }
            // Priority 0 marks a slot that is used on request only.
            if slot.kind == "luks2" {
                let digest = Digest { kdf: kdf.clone(), value: value.clone() };
                found.push((slot.priority.unwrap_or(1), (key_slot(name, slot, at)?, digest)));
            }
        }
    }
    found.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    Ok(found.into_iter().map(|(_, slot)| slot).collect())
}

fn key_slot(name: &str, slot: &KeySlotText, at: u64) -> Result<KeySlot> {
    let bad =
        |problem: String| LayerError::damaged(HEADER, at, format!("key slot {name:?}: {problem}"));
    let (Some(split), Some(area), Some(kdf)) = (&slot.af, &slot.area, &slot.kdf) else {
        return Err(bad("af, area or kdf is missing".into()));
    };
    if area.kind != "raw" {
        return Err(bad(format!("an area of type {:?}", area.kind)));
    }
    let slot_key_bytes = area.key_size.unwrap_or(slot.key_size);
    for bytes in [slot.key_size, slot_key_bytes] {
        if bytes == 0 || bytes > KEY_BYTES_MAX {
            return Err(bad(format!("a key of {bytes} bytes, expected at most {KEY_BYTES_MAX}")));
        }
    }
    if split.stripes == 0 {
        return Err(bad("it has no stripes".into()));
    }
    Ok(KeySlot {
        key_bytes: slot.key_size,
        kdf: key_derivation(kdf, at)?,
        slot_key_bytes,
        encryption: Cipher::named(area.encryption.as_deref().unwrap_or_default())?,
        stripes: split.stripes,
        split_hash: Hash::named(&split.hash)?,
        offset: area.offset.parse().map_err(|_| bad(format!("offset {:?}", area.offset)))?,
    })
}

fn key_derivation(kdf: &KdfText, at: u64) -> Result<Kdf> {
    let salt = decode(&kdf.salt, at)?;
    let bad = |field: &str| LayerError::damaged(HEADER, at, format!("kdf without {field}"));
    if let "argon2i" | "argon2id" = &*kdf.kind {
        return Ok(Kdf::Argon2 {
            is_id: kdf.kind == "argon2id",
            time: kdf.time.ok_or_else(|| bad("time"))?,
            memory_kib: kdf.memory.ok_or_else(|| bad("memory"))?,
            lanes: kdf.cpus.ok_or_else(|| bad("cpus"))?,
            salt,
        });
    }
    if kdf.kind != "pbkdf2" {
        return Err(LayerError::unsupported(
            format!("a LUKS2 key slot of kdf {:?}", kdf.kind),
            OPEN,
        ));
    }
    let hash = Hash::named(kdf.hash.as_deref().ok_or_else(|| bad("hash"))?)?;
    Ok(Kdf::Pbkdf2 { hash, iterations: kdf.iterations.ok_or_else(|| bad("iterations"))?, salt })
}

fn decode(text: &str, at: u64) -> Result<Vec<u8>> {
    let decoded = STANDARD.decode(text);
    decoded.map_err(|_| LayerError::damaged(HEADER, at, "a value that is not Base64".to_owned()))
}

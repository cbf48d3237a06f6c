//! Modes of AES: XTS (IEEE 1619), CBC, and CBC with ciphertext stealing that always swaps the last two blocks (RFC
//! 3962).

use aes::cipher::consts::U16;
use aes::cipher::{BlockDecrypt, BlockEncrypt, BlockSizeUser, KeyInit};
use aes::{Aes256Dec, Aes256Enc, Block};

/// Blocks that are decrypted together.
const BATCH: usize = 32;
/// Size of a block in bytes.
const BLOCK: usize = 16;

/// AES-256-XTS for decryption.
pub(super) struct Xts {
    data: Aes256Dec,
    tweak: Aes256Enc,
}

impl Xts {
    /// Takes a key of 64 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        let (data, tweak) = key.split_at(32);
        Self { data: Aes256Dec::new(data.into()), tweak: Aes256Enc::new(tweak.into()) }
    }

    /// Decrypts whole blocks.
    pub(super) fn decrypt(&self, vector: [u8; BLOCK], data: &mut [u8]) {
        let mut tweak = vector.into();
        self.tweak.encrypt_block(&mut tweak);
        let mut tweak = u128::from_le_bytes(tweak.into());
        let (mut tweaks, mut blocks) = ([0_u128; BATCH], [Block::default(); BATCH]);
        for batch in data.as_chunks_mut::<BLOCK>().0.chunks_mut(BATCH) {
            let blocks = &mut blocks[..batch.len()];
            for ((block, bytes), kept) in blocks.iter_mut().zip(&*batch).zip(&mut tweaks) {
                *kept = tweak;
                *block = (u128::from_le_bytes(*bytes) ^ tweak).to_le_bytes().into();
                tweak = double(tweak);
            }
            self.data.decrypt_blocks(blocks);
            for ((block, bytes), tweak) in blocks.iter().zip(batch).zip(&tweaks) {
                *bytes = (u128::from_le_bytes((*block).into()) ^ tweak).to_le_bytes();
            }
        }
    }
}

/// Multiplies a tweak by x in GF(2^128).
fn double(tweak: u128) -> u128 {
    (tweak << 1) ^ if tweak >> 127 == 1 { 0x87 } else { 0 }
}

/// Decrypts whole blocks with CBC.
pub(super) fn decrypt_cbc<C>(cipher: &C, vector: [u8; BLOCK], data: &mut [u8])
where
    C: BlockDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut before = u128::from_ne_bytes(vector);
    for bytes in data.as_chunks_mut::<BLOCK>().0 {
        let found = u128::from_ne_bytes(*bytes);
        *bytes = (decrypted(cipher, *bytes) ^ before).to_ne_bytes();
        before = found;
    }
}

fn decrypted<C>(cipher: &C, bytes: [u8; BLOCK]) -> u128
where
    C: BlockDecrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut block = bytes.into();
    cipher.decrypt_block(&mut block);
    u128::from_ne_bytes(block.into())
}

/// Length of the blocks before the last two. The last block may be partial.
fn body_len(len: usize) -> usize {
    (len.div_ceil(BLOCK).max(2) - 2) * BLOCK
}

/// Decrypts at least one block with CBC and ciphertext stealing.
pub(super) fn decrypt_cts<C>(cipher: &C, vector: [u8; BLOCK], data: &mut [u8])
where
    C: BlockDecrypt + BlockSizeUser<BlockSize = U16>,
{
    if data.len() <= BLOCK {
        return decrypt_cbc(cipher, vector, data);
    }
    let (body, end) = data.split_at_mut(body_len(data.len()));
    let before = body.last_chunk().copied().unwrap_or(vector);
    decrypt_cbc(cipher, vector, body);
    let Some((full, partial)) = end.split_first_chunk_mut::<BLOCK>() else { return };
    // The full block decrypts to the end of the text, followed by the end of the block before it.
    let tail = decrypted(cipher, *full).to_ne_bytes();
    let mut stolen = tail;
    stolen[..partial.len()].copy_from_slice(partial);
    for (byte, tail) in partial.iter_mut().zip(tail) {
        *byte ^= tail;
    }
    *full = (decrypted(cipher, stolen) ^ u128::from_ne_bytes(before)).to_ne_bytes();
}

/// Encrypts at least one block with CBC and ciphertext stealing.
pub(super) fn encrypt_cts<C>(cipher: &C, vector: [u8; BLOCK], data: &mut [u8])
where
    C: BlockEncrypt + BlockSizeUser<BlockSize = U16>,
{
    let mut before = u128::from_ne_bytes(vector);
    let mut encrypt = |bytes: [u8; BLOCK]| {
        let mut block: Block = (u128::from_ne_bytes(bytes) ^ before).to_ne_bytes().into();
        cipher.encrypt_block(&mut block);
        before = u128::from_ne_bytes(block.into());
        <[u8; BLOCK]>::from(block)
    };
    let body = if data.len() <= BLOCK { data.len() } else { body_len(data.len()) };
    let (body, end) = data.split_at_mut(body);
    for bytes in body.as_chunks_mut::<BLOCK>().0 {
        *bytes = encrypt(*bytes);
    }
    let Some((full, partial)) = end.split_first_chunk_mut::<BLOCK>() else { return };
    let stolen = encrypt(*full);
    let mut last = [0; BLOCK];
    last[..partial.len()].copy_from_slice(partial);
    *full = encrypt(last);
    partial.copy_from_slice(&stolen[..partial.len()]);
}

#[cfg(test)]
mod tests {
    use aes::Aes128;

    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let pair = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (0..hex.len()).step_by(2).map(pair).collect()
    }

    /// RFC 3962, appendix B.
    #[test]
    fn stolen_ciphertext_is_that_of_the_rfc() {
        let cipher = Aes128::new(b"chicken teriyaki".into());
        let text = b"I would like the General Gau's Chicken, please, and wonton soup.";
        for (len, expected) in [
            (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
            (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
            (
                47,
                "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e39312523a78662d5be7f\
                 cbcc98ebf5",
            ),
            (
                64,
                "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a84807efe836ee89a526730\
                 dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8",
            ),
        ] {
            let mut data = text[..len].to_vec();
            encrypt_cts(&cipher, [0; 16], &mut data);
            assert_eq!(data, bytes(expected), "{len}");
            decrypt_cts(&cipher, [0; 16], &mut data);
            assert_eq!(data, text[..len], "{len}");
        }
    }

    /// IEEE 1619-2007, appendix B, vector 10 (its first and last 16 bytes).
    #[test]
    fn xts_is_that_of_the_standard() {
        let key = bytes(
            "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383\
             279502884197169399375105820974944592",
        );
        let mut data = bytes("1c3b3a102f770386e4836c99e370cf9b");
        let mut vector = [0; 16];
        vector[0] = 0xff;
        Xts::new(&key).decrypt(vector, &mut data);
        assert_eq!(data, bytes("000102030405060708090a0b0c0d0e0f"));
    }

    #[test]
    fn short_names_are_encrypted_and_decrypted() {
        let cipher = Aes128::new(&[7; 16].into());
        for len in 16..70 {
            let mut data: Vec<u8> = (0..len).collect();
            encrypt_cts(&cipher, [9; 16], &mut data);
            decrypt_cts(&cipher, [9; 16], &mut data);
            assert_eq!(data, (0..len).collect::<Vec<u8>>());
        }
    }
}

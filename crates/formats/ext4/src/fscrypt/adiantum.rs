//! Adiantum with XChaCha12 (Crowley and Biggers, "Adiantum: length-preserving encryption for entry-level processors",
//! 2018).
//!
//! The last 16 bytes are encrypted with AES-256 and serve as nonce of a stream for all bytes before them. A hash of the
//! vector and of these bytes is added to the last 16 bytes before and after.

use aes::Aes256;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use chacha20::XChaCha12;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use poly1305::universal_hash::UniversalHash;
use poly1305::{Block, Poly1305};
use zeroize::{Zeroize, Zeroizing};

use crate::format::encryption::Vector;

/// Size of a block in bytes.
const BLOCK: usize = 16;
/// Bytes that NH hashes together.
const MESSAGE_UNIT: usize = 1024;
/// Number of NH hashes of a unit, each with a key that starts 16 bytes later.
const PASSES: usize = 4;
/// Words of the NH key.
const NH_WORDS: usize = (MESSAGE_UNIT + BLOCK * (PASSES - 1)) / 4;

/// Adiantum with its keys.
pub(super) struct Adiantum {
    stream: Zeroizing<[u8; 32]>,
    block: Aes256,
    /// Key of the hash of the vector.
    vector_hash: Zeroizing<[u8; 32]>,
    /// Key of the hash of the NH hashes.
    message_hash: Zeroizing<[u8; 32]>,
    nh: Zeroizing<[u32; NH_WORDS]>,
}

impl Adiantum {
    /// Takes a key of 32 bytes. The other keys are the start of its stream.
    pub(super) fn new(key: &[u8]) -> Self {
        let mut stream = Zeroizing::new([0; 32]);
        stream.copy_from_slice(key);
        let mut nonce = [0; 24];
        nonce[0] = 1;
        let mut derived = Zeroizing::new([0_u8; 32 + 2 * BLOCK + NH_WORDS * 4]);
        XChaCha12::new((&*stream).into(), &nonce.into()).apply_keystream(&mut *derived);
        let (block, rest) = derived.split_at(32);
        let hash_key = |bytes: &[u8]| {
            let mut key = Zeroizing::new([0; 32]);
            key[..BLOCK].copy_from_slice(bytes);
            key
        };
        let mut nh = Zeroizing::new([0; NH_WORDS]);
        for (word, bytes) in nh.iter_mut().zip(rest[2 * BLOCK..].as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self {
            block: Aes256::new(block.into()),
            vector_hash: hash_key(&rest[..BLOCK]),
            message_hash: hash_key(&rest[BLOCK..2 * BLOCK]),
            nh,
            stream,
        }
    }

    /// Encrypts at least 16 bytes.
    pub(super) fn encrypt(&self, vector: &Vector, data: &mut [u8]) {
        let Some((bulk, last)) = data.split_last_chunk_mut::<BLOCK>() else { return };
        let sum = u128::from_le_bytes(*last).wrapping_add(self.hash(vector, bulk));
        let mut block = sum.to_le_bytes().into();
        self.block.encrypt_block(&mut block);
        let middle = block.into();
        self.apply_stream(middle, bulk);
        let difference = u128::from_le_bytes(middle).wrapping_sub(self.hash(vector, bulk));
        *last = difference.to_le_bytes();
    }

    /// Decrypts at least 16 bytes.
    pub(super) fn decrypt(&self, vector: &Vector, data: &mut [u8]) {
        let Some((bulk, last)) = data.split_last_chunk_mut::<BLOCK>() else { return };
        let sum = u128::from_le_bytes(*last).wrapping_add(self.hash(vector, bulk));
        let middle = sum.to_le_bytes();
        self.apply_stream(middle, bulk);
        let mut block = middle.into();
        self.block.decrypt_block(&mut block);
        let sum = u128::from_le_bytes(block.into());
        *last = sum.wrapping_sub(self.hash(vector, bulk)).to_le_bytes();
    }

    /// Encrypts or decrypts all bytes before the last block.
    fn apply_stream(&self, middle: [u8; BLOCK], bulk: &mut [u8]) {
        let mut nonce = [0; 24];
        nonce[..BLOCK].copy_from_slice(&middle);
        nonce[BLOCK] = 1;
        XChaCha12::new((&*self.stream).into(), &nonce.into()).apply_keystream(bulk);
    }

    /// Hashes the vector and the bytes before the last block.
    fn hash(&self, vector: &Vector, bulk: &[u8]) -> u128 {
        let mut header = [Block::default(); 3];
        header[0][..8].copy_from_slice(&(bulk.len() as u64 * 8).to_le_bytes());
        header[1].copy_from_slice(&vector[..BLOCK]);
        header[2].copy_from_slice(&vector[BLOCK..]);
        let mut first = Poly1305::new((&*self.vector_hash).into());
        first.update(&header);
        let mut second = Poly1305::new((&*self.message_hash).into());
        for unit in bulk.chunks(MESSAGE_UNIT) {
            second.update(&self.nh_of(unit));
        }
        let number = |hash: Poly1305| u128::from_le_bytes(hash.finalize().into());
        number(first).wrapping_add(number(second))
    }

    /// Returns the NH hashes of up to 1024 bytes, padded with zeros to whole blocks.
    fn nh_of(&self, unit: &[u8]) -> [Block; 2] {
        let mut sums = [0_u64; PASSES];
        for (nth, part) in unit.chunks(BLOCK).enumerate() {
            let mut block = [0; BLOCK];
            block[..part.len()].copy_from_slice(part);
            let words = block.as_chunks().0;
            let word = |at: usize| words.get(at).map_or(0, |bytes| u32::from_le_bytes(*bytes));
            for (pass, sum) in sums.iter_mut().enumerate() {
                let key = &self.nh[(nth + pass) * 4..(nth + pass + 1) * 4];
                let added = |at: usize| u64::from(word(at).wrapping_add(key[at]));
                let products = (added(0) * added(2)).wrapping_add(added(1) * added(3));
                *sum = sum.wrapping_add(products);
            }
        }
        let mut blocks = [Block::default(); 2];
        for (bytes, sum) in blocks.iter_mut().flat_map(|b| b.chunks_exact_mut(8)).zip(sums) {
            bytes.copy_from_slice(&sum.to_le_bytes());
        }
        sums.zeroize();
        blocks
    }
}

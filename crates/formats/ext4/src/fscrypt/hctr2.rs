//! HCTR2 with AES-256 (Crowley, Huckleberry and Biggers, "Length-preserving encryption with HCTR2", 2021).
//!
//! The first 16 bytes are encrypted with AES. The difference of that block's two sides is the start of a counter for
//! all bytes after them. A hash of the vector and of these bytes is added before and after.

use aes::Aes256;
use aes::cipher::{BlockDecrypt, BlockEncrypt, KeyInit};
use polyval::Polyval;
use polyval::universal_hash::UniversalHash;

use crate::format::encryption::Vector;

/// Size of a block in bytes.
const BLOCK: usize = 16;

/// HCTR2 with its keys.
pub(super) struct Hctr2 {
    cipher: Aes256,
    /// Hash with its key, before any data.
    hash: Polyval,
    counter_start: u128,
}

impl Hctr2 {
    /// Takes a key of 32 bytes.
    pub(super) fn new(key: &[u8]) -> Self {
        let cipher = Aes256::new(key.into());
        let of = |number: u128| {
            let mut block = number.to_le_bytes().into();
            cipher.encrypt_block(&mut block);
            <[u8; BLOCK]>::from(block)
        };
        let hash = Polyval::new(&of(0).into());
        let counter_start = u128::from_le_bytes(of(1));
        Self { cipher, hash, counter_start }
    }

    /// Encrypts at least 16 bytes.
    pub(super) fn encrypt(&self, vector: &Vector, data: &mut [u8]) {
        let Some((first, bulk)) = data.split_first_chunk_mut::<BLOCK>() else { return };
        let mixed = u128::from_le_bytes(*first) ^ self.hash_of(vector, bulk);
        let mut block = mixed.to_le_bytes().into();
        self.cipher.encrypt_block(&mut block);
        let encrypted = u128::from_le_bytes(block.into());
        self.apply_counter(mixed ^ encrypted, bulk);
        *first = (encrypted ^ self.hash_of(vector, bulk)).to_le_bytes();
    }

    /// Decrypts at least 16 bytes.
    pub(super) fn decrypt(&self, vector: &Vector, data: &mut [u8]) {
        let Some((first, bulk)) = data.split_first_chunk_mut::<BLOCK>() else { return };
        let encrypted = u128::from_le_bytes(*first) ^ self.hash_of(vector, bulk);
        let mut block = encrypted.to_le_bytes().into();
        self.cipher.decrypt_block(&mut block);
        let mixed = u128::from_le_bytes(block.into());
        self.apply_counter(mixed ^ encrypted, bulk);
        *first = (mixed ^ self.hash_of(vector, bulk)).to_le_bytes();
    }

    /// Encrypts or decrypts all bytes after the first block.
    fn apply_counter(&self, difference: u128, bulk: &mut [u8]) {
        let start = difference ^ self.counter_start;
        for (part, number) in bulk.chunks_mut(BLOCK).zip(1_u128..) {
            let mut block = (start ^ number).to_le_bytes().into();
            self.cipher.encrypt_block(&mut block);
            for (byte, key) in part.iter_mut().zip(block) {
                *byte ^= key;
            }
        }
    }

    /// Hashes the vector and the bytes after the first block.
    fn hash_of(&self, vector: &Vector, bulk: &[u8]) -> u128 {
        let (blocks, rest) = bulk.as_chunks::<BLOCK>();
        let bits = vector.len() as u128 * 8;
        let header = 2 * bits + if rest.is_empty() { 2 } else { 3 };
        let mut hash = self.hash.clone();
        hash.update(&[header.to_le_bytes().into()]);
        hash.update_padded(vector);
        for block in blocks {
            hash.update(&[(*block).into()]);
        }
        if !rest.is_empty() {
            let mut last = [0; BLOCK];
            last[..rest.len()].copy_from_slice(rest);
            last[rest.len()] = 1;
            hash.update(&[last.into()]);
        }
        u128::from_le_bytes(hash.finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let value = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
        digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
    }

    /// Test vectors of the authors: key, vector, plain and encrypted text,
    /// of whole blocks and of a length that is not a multiple of 16.
    const VECTORS: [[&str; 4]; 2] = [
        [
            "a52824341a3cd8f705918fee851f357f803dfc9b94f6fc9e190900a904314f11",
            "a1ba4995ff346db8cd875d5efdea85db8a7b5eb25d57dd62aca98c41429475b7",
            "69b4e88c37e86782f1ec5d04e5149113dff2871b69811d71709e9c3bde497011
             a0a3db0d544f6669d7db80a7709268ce81042cc6abaee56015e96fefaa8fa7a7
             638ff2f077f1a8eae1b71f9eab9e4b3f07875b6fcda8afb9fa700b52b8a8a79e
             075fa60eb39b791379c33e8d1c2c68c8511d3c7b7d79772a5665c5542328b003",
            "ebf998863c409f168401f9060feb3ca94ca48e5dc38de5d3aea6e6ccd62d374f
             99c8a32146b869f2e31489d7b9f59e4e07936f788e6bea8ffb43b83e9b4c1d7e
             209ac587eeaff6f946c5188ae869e79652555f001e1adccc13a5eeff4b27cadc
             10a64876984394a3c7e2c9659b0814261d68fb150a33498484335a1b24463192",
        ],
        [
            "56333721c4ea8b88675eeeb80b6c044317c52b8a37178b3760573fa782cdb909",
            "88ee9b35212d41a1160d7fdf57c9b9c3f63053bf8946e68760c85e59dd8a7bfe",
            "49e20a4f7a60759b95982ce74fb458b924544634df5831e723c6a2604ad259b6
             eb3ec2f8e5143c6d4b72cb5fcba747b97a49fcf1ad927655ac59dc3ac68b7cdb
             06cdea6a3451b7b2e5393c870090c2bbb2a52c58c29be377958250cb23dc18d8
             4ebb135d353d9adae475a17517598c6ab2767ed445310a452e60833ddc8d4320
             5824b29dd55964324e6fb99cde774d65dfc07aeb4080e8e5c7c1773bae2b85ce
             56fa434196238eabd3c865ef0bfe424c3a8a5455aba3f9629f8ebe339afe6b52
             d44c93847c7eb15e32af6e2144d26b56cd2c9d033b501f0ac398ff3a1d367e6d
             cfbce7e8fc2455fd723da73f09a738e6578dc4747fd32675dafa2935c13182",
            "0223740256f47bc85561a06b68ffde879d6677869863abd5d6f47e3bf4ae9713
             79c0967587332a0ec21a13905f6e93ed54feee0548ae202da92b98a3c8af176b
             824a9a7ff0ced9261628ebf44bab7d6e9627d290bb8d98dcb86f7a9867ef1cfb
             d0231a2fc9584ec6380353618eff554647e81f9d66959b7f26acf261a40515cb
             62b66b7c57959d259e83b1885039b5348a042b761bb88c572621992e93c89bb2
             31e1e327dec8f2c5017a45386fe7a09d8c4199ec3db6af6676acc878b0dfcfce
             a129466fe3354a67592714cc04dbb303b72d8df9759e5942e3a4f8f48227a3a9
             79ac6b8ad8db297302bb6f850092ea59301b19f3ab6e999af22327c6595a9c",
        ],
    ];

    #[test]
    fn the_vectors_of_the_authors_are_encrypted_and_decrypted() {
        for [key, vector, plain, encrypted] in VECTORS {
            let cipher = Hctr2::new(&bytes(key));
            let vector = bytes(vector).try_into().unwrap();
            let mut data = bytes(plain);
            cipher.encrypt(&vector, &mut data);
            assert_eq!(data, bytes(encrypted), "{key}");
            cipher.decrypt(&vector, &mut data);
            assert_eq!(data, bytes(plain), "{key}");
        }
    }
}

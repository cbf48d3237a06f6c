//! Hashes of names, which define the order of hashed directories.
//!
//! Source: kernel Documentation/filesystems/ext4/directory.rst; MD4 (RFC 1320) reduced to eight steps per round; TEA
//! (Wheeler and Needham, 1994).

/// `s_def_hash_version` and `dx_root.hash_version`: the hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashVersion {
    /// The original hash of ext3.
    Legacy,
    /// Reduced MD4.
    HalfMd4,
    /// TEA.
    Tea,
}

impl HashVersion {
    /// Returns the hash version of a byte on disk, and whether it treats characters as unsigned.
    pub fn from_raw(raw: u8) -> Option<(Self, bool)> {
        let version = match raw % 3 {
            0 => Self::Legacy,
            1 => Self::HalfMd4,
            _ => Self::Tea,
        };
        (raw < 6).then_some((version, raw >= 3))
    }
}

/// Hash function and parameters of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameHasher {
    /// The function.
    pub version: HashVersion,
    /// True if bytes above 0x7f are positive.
    pub unsigned: bool,
    /// `s_hash_seed`; all zeros means the default initial values.
    pub seed: [u32; 4],
}

/// Parameters of the hashes of a file system. The version may differ between directories.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HashParameters {
    /// True if bytes above 0x7f are positive in every version.
    pub(crate) unsigned: bool,
    /// `s_hash_seed`.
    pub(crate) seed: [u32; 4],
}

impl HashParameters {
    /// Returns the hasher for an index with the given hash version. Returns `None` for an unknown version.
    pub(crate) fn hasher(&self, version: u8) -> Option<NameHasher> {
        let (version, unsigned) = HashVersion::from_raw(version)?;
        Some(NameHasher { version, unsigned: unsigned || self.unsigned, seed: self.seed })
    }
}

/// Hash of a name. Directories are ordered by `major`, then by `minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NameHash {
    /// The hash in the index. Bit 0 is always clear.
    pub major: u32,
    /// Orders names of equal `major`.
    pub minor: u32,
}

impl NameHash {
    /// Returns the hash for one of 64 bits, of directories that are encrypted and case-insensitive.
    pub(crate) fn of_combined(hash: u64) -> Self {
        Self::new((hash >> 32) as u32, hash as u32)
    }

    fn new(major: u32, minor: u32) -> Self {
        let major = match major & !1 {
            END_OF_LISTING => END_OF_LISTING - 2,
            major => major,
        };
        Self { major, minor }
    }
}

/// Number of names that are hashed together. The words of two names fit into registers. For more, compilers do not
/// vectorise, because there is no vector rotate instruction.
pub(crate) const TOGETHER: usize = 2;

/// Number of bytes per step of half-MD4.
const HALF_MD4_CHUNK: usize = 32;

/// Initial values if the seed is all zeros (those of MD4).
const INITIAL: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];

/// Hash value that is reserved for the end of a listing, and its replacement.
const END_OF_LISTING: u32 = 0xffff_fffe;

impl NameHasher {
    /// Hashes a name.
    pub fn hash(&self, name: &[u8]) -> NameHash {
        let seed = if self.seed == [0; 4] { INITIAL } else { self.seed };
        let (major, minor) = match self.version {
            HashVersion::Legacy => (self.legacy(name), 0),
            HashVersion::HalfMd4 => {
                let mut state = seed.map(|word| Lanes([word]));
                for chunk in chunks(name, HALF_MD4_CHUNK) {
                    let mut input = [Lanes([0]); 8];
                    for (lanes, word) in input.iter_mut().zip(&self.words::<8>(chunk)) {
                        lanes.0[0] = *word;
                    }
                    half_md4(&mut state, &input);
                }
                (state[1].0[0], state[2].0[0])
            }
            HashVersion::Tea => {
                let mut state = seed;
                for chunk in chunks(name, 16) {
                    tea(&mut state, &self.words::<4>(chunk));
                }
                (state[0], state[1])
            }
        };
        NameHash::new(major, minor)
    }

    /// Hashes several names, in parallel if the function supports it.
    pub(crate) fn hash_together(&self, names: &[&[u8]; TOGETHER]) -> [NameHash; TOGETHER] {
        if self.version != HashVersion::HalfMd4 {
            return names.map(|name| self.hash(name));
        }
        let seed = if self.seed == [0; 4] { INITIAL } else { self.seed };
        let mut state = seed.map(|word| Lanes([word; TOGETHER]));
        let chunks_of = |name: &[u8]| name.len().div_ceil(HALF_MD4_CHUNK);
        let most = names.iter().map(|name| chunks_of(name)).max().unwrap_or(0);
        for chunk in 0..most {
            let mut input = [Lanes([0; TOGETHER]); 8];
            let mut lane = 0;
            while lane < TOGETHER {
                let rest = names[lane].get(chunk * HALF_MD4_CHUNK..).unwrap_or_default();
                let words = self.words::<8>(rest);
                let mut at = 0;
                while at < words.len() {
                    input[at].0[lane] = words[at];
                    at += 1;
                }
                lane += 1;
            }
            let before = state;
            half_md4(&mut state, &input);
            // Names that have already ended keep their state.
            for lane in (0..TOGETHER).filter(|&lane| chunks_of(names[lane]) <= chunk) {
                state.iter_mut().zip(before).for_each(|(word, old)| word.0[lane] = old.0[lane]);
            }
        }
        std::array::from_fn(|lane| NameHash::new(state[1].0[lane], state[2].0[lane]))
    }

    fn value(&self, byte: u8) -> u32 {
        if self.unsigned { u32::from(byte) } else { i32::from(byte.cast_signed()).cast_unsigned() }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut last, mut before) = (0x12a3_fe2d_u32, 0x37ab_e8f9_u32);
        for &byte in name {
            let mut next = before.wrapping_add(last ^ self.value(byte).wrapping_mul(7_152_373));
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            (before, last) = (last, next);
        }
        last << 1
    }

    /// Packs the rest of a name into big-endian words and fills up with its length.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let length = (rest.len() as u32) | (rest.len() as u32) << 8;
        let fill = length | length << 16;
        let mut words = [fill; N];
        let (quads, tail) = rest[..rest.len().min(4 * N)].as_chunks::<4>();
        // Iterators are function calls in builds with little optimisation, and this runs for each name of a listing.
        let mut at = 0;
        while at < quads.len() {
            words[at] = self.sum(u32::from_be_bytes(quads[at]));
            at += 1;
        }
        if at < N && !tail.is_empty() {
            let bytes = tail.iter().fold(0, |bytes, &byte| bytes << 8 | u32::from(byte));
            words[at] = (fill << (8 * tail.len())).wrapping_add(self.sum(bytes));
        }
        words
    }

    /// Returns the sum of the bytes of a word at their positions. A negative byte is 256 less than its unsigned value,
    /// which is one less at the next higher position.
    #[inline(always)]
    fn sum(&self, bytes: u32) -> u32 {
        let negative = if self.unsigned { 0 } else { bytes & 0x8080_8080 };
        bytes.wrapping_sub(negative << 1)
    }
}

/// Iterates over the rests of a name in steps of `size` bytes.
fn chunks(name: &[u8], size: usize) -> impl Iterator<Item = &[u8]> {
    let count = name.len().div_ceil(size);
    (0..count).map(move |i| &name[i * size..])
}

/// The same word of several names. Each step of a hash depends on the one before, so several independent hashes take
/// hardly longer than one.
#[derive(Clone, Copy)]
struct Lanes<const N: usize>([u32; N]);

/// Loops over lanes by number, because iterators and closures are function calls in builds with little optimisation.
impl<const N: usize> Lanes<N> {
    #[inline(always)]
    fn plus(mut self, other: Self) -> Self {
        let mut lane = 0;
        while lane < N {
            self.0[lane] = self.0[lane].wrapping_add(other.0[lane]);
            lane += 1;
        }
        self
    }

    #[inline(always)]
    fn plus_all(mut self, word: u32) -> Self {
        let mut lane = 0;
        while lane < N {
            self.0[lane] = self.0[lane].wrapping_add(word);
            lane += 1;
        }
        self
    }

    #[inline(always)]
    fn rotated(mut self, bits: u32) -> Self {
        let mut lane = 0;
        while lane < N {
            self.0[lane] = self.0[lane].rotate_left(bits);
            lane += 1;
        }
        self
    }

    /// Combines three words as a round does.
    #[inline(always)]
    fn mixed<const ROUND: u32>(mut self, y: Self, z: Self) -> Self {
        let mut lane = 0;
        while lane < N {
            let (x, y, z) = (self.0[lane], y.0[lane], z.0[lane]);
            self.0[lane] = match ROUND {
                0 => z ^ (x & (y ^ z)),
                1 => (x & y).wrapping_add((x ^ y) & z),
                _ => x ^ y ^ z,
            };
            lane += 1;
        }
        self
    }
}

fn half_md4<const N: usize>(state: &mut [Lanes<N>; 4], input: &[Lanes<N>; 8]) {
    let before = *state;
    let first = Round { shifts: [3, 7, 11, 19], order: [0, 1, 2, 3, 4, 5, 6, 7], added: 0 };
    first.run::<0, N>(state, input);
    let second =
        Round { shifts: [3, 5, 9, 13], order: [1, 3, 5, 7, 0, 2, 4, 6], added: 0x5a82_7999 };
    second.run::<1, N>(state, input);
    let third =
        Round { shifts: [3, 9, 11, 15], order: [3, 7, 2, 6, 1, 5, 0, 4], added: 0x6ed9_eba1 };
    third.run::<2, N>(state, input);
    let [a, b, c, d] = *state;
    *state = [a.plus(before[0]), b.plus(before[1]), c.plus(before[2]), d.plus(before[3])];
}

/// A round of half-MD4: eight steps.
struct Round {
    shifts: [u32; 4],
    /// The word of the input for each step.
    order: [usize; 8],
    /// A number that is added to each word.
    added: u32,
}

impl Round {
    #[inline(always)]
    fn run<const ROUND: u32, const N: usize>(
        &self,
        state: &mut [Lanes<N>; 4],
        input: &[Lanes<N>; 8],
    ) {
        self.four_steps::<ROUND, N>(state, input, 0);
        self.four_steps::<ROUND, N>(state, input, 4);
    }

    /// Runs the steps from `first` on.
    #[inline(always)]
    fn four_steps<const ROUND: u32, const N: usize>(
        &self,
        state: &mut [Lanes<N>; 4],
        input: &[Lanes<N>; 8],
        first: usize,
    ) {
        let [mut a, mut b, mut c, mut d] = *state;
        a = self.step(a, input, (first, 0), b.mixed::<ROUND>(c, d));
        d = self.step(d, input, (first, 1), a.mixed::<ROUND>(b, c));
        c = self.step(c, input, (first, 2), d.mixed::<ROUND>(a, b));
        b = self.step(b, input, (first, 3), c.mixed::<ROUND>(d, a));
        *state = [a, b, c, d];
    }

    /// Each step depends on the one before, so independent terms are added first.
    #[inline(always)]
    fn step<const N: usize>(
        &self,
        word: Lanes<N>,
        input: &[Lanes<N>; 8],
        (first, at): (usize, usize),
        mixed: Lanes<N>,
    ) -> Lanes<N> {
        let input = input[self.order[first + at]].plus_all(self.added);
        word.plus(input).plus(mixed).rotated(self.shifts[at])
    }
}

fn tea(state: &mut [u32; 4], input: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let [mut x, mut y, ..] = *state;
    let mut sum = 0_u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        x = x.wrapping_add(tea_mix(y, sum, input[0], input[1]));
        y = y.wrapping_add(tea_mix(x, sum, input[2], input[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

fn tea_mix(v: u32, sum: u32, k0: u32, k1: u32) -> u32 {
    (v << 4).wrapping_add(k0) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(k1)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Observed = (&'static [u8], u32, [(u32, u32); 4]);

    /// Hashes printed by `debugfs -R "dx_hash -h VERSION [-s SEED] NAME"` (e2fsprogs 1.47.0): name; legacy; half-MD4
    /// and TEA with the seed; half-MD4 and TEA without.
    const OBSERVED: [Observed; 5] = [
        (
            b"a",
            0xe74b_53e2,
            [
                (0x970a_1d6c, 0x4eac_42f5),
                (0x42e8_f46e, 0x0764_c42f),
                (0xd5fa_7d7a, 0xacb4_8187),
                (0x6d0e_a4c0, 0xc189_22df),
            ],
        ),
        (
            b"a-much-longer-name-that-takes-more-than-32-bytes.txt",
            0xaf5c_9194,
            [
                (0xe034_4ca6, 0x7903_6492),
                (0x21d0_3a00, 0x30bd_8ab0),
                (0xee1f_d6ea, 0xfc46_fc96),
                (0x97e1_607a, 0x46a6_95ca),
            ],
        ),
        (
            b"\xff\xfe\x80abc",
            0x6a48_8f64,
            [
                (0xa35b_794e, 0x3346_630d),
                (0x3946_19c6, 0xb489_ab29),
                (0xa513_04d2, 0xc84a_ba77),
                (0x249d_9dd4, 0xe461_2e5d),
            ],
        ),
        (
            b"0123456789abcdef",
            0x415c_16fe,
            [
                (0x5e92_dc26, 0x14ee_7926),
                (0x6305_8c30, 0xe9cd_6160),
                (0x8cb5_02b6, 0x5acf_4f33),
                (0x5a07_88b2, 0xefa4_e711),
            ],
        ),
        (
            b"0123456789abcdef0123456789abcdef",
            0x6d4a_15ee,
            [
                (0x1db5_1d22, 0xd61b_000f),
                (0xc9fd_4dca, 0xc4a4_41e6),
                (0x3618_4620, 0xc959_df59),
                (0xcbe9_5e3c, 0x1762_7589),
            ],
        ),
    ];

    /// The formula of the format's documentation: byte by byte, each shifting the previous ones.
    fn words_by_byte(hasher: &NameHasher, rest: &[u8]) -> [u32; 8] {
        let length = (rest.len() as u32) | (rest.len() as u32) << 8;
        let mut words = [length | length << 16; 8];
        for (word, bytes) in words.iter_mut().zip(rest.chunks(4)) {
            for &byte in bytes {
                *word = (*word << 8).wrapping_add(hasher.value(byte));
            }
        }
        words
    }

    proptest::proptest! {
        #[test]
        fn bytes_are_packed_as_one_by_one(
            rest in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..70),
            unsigned in proptest::prelude::any::<bool>(),
        ) {
            let hasher = NameHasher { version: HashVersion::HalfMd4, unsigned, seed: [0; 4] };
            proptest::prop_assert_eq!(hasher.words::<8>(&rest), words_by_byte(&hasher, &rest));
        }
    }

    proptest::proptest! {
        #[test]
        fn names_hash_together_as_alone(
            names in proptest::collection::vec(
                proptest::collection::vec(proptest::prelude::any::<u8>(), 0..256), TOGETHER),
            unsigned in proptest::prelude::any::<bool>(),
            seed in proptest::prelude::any::<[u32; 4]>(),
        ) {
            for version in [HashVersion::Legacy, HashVersion::HalfMd4, HashVersion::Tea] {
                let hasher = NameHasher { version, unsigned, seed };
                let together = hasher.hash_together(&std::array::from_fn(|at| &names[at][..]));
                proptest::prop_assert_eq!(together, std::array::from_fn(|at| hasher.hash(&names[at])));
            }
        }
    }

    #[test]
    fn hashes_are_those_observed() {
        // 12345678-9abc-def0-1122-334455667788, read as little-endian words.
        let seeded = [0x7856_3412, 0xf0de_bc9a, 0x4433_2211, 0x8877_6655];
        let hash = |version, seed, name: &[u8]| {
            let NameHash { major, minor } =
                NameHasher { version, unsigned: false, seed }.hash(name);
            (major, minor)
        };
        for (name, legacy, others) in OBSERVED {
            assert_eq!(hash(HashVersion::Legacy, seeded, name), (legacy, 0));
            assert_eq!(hash(HashVersion::HalfMd4, seeded, name), others[0]);
            assert_eq!(hash(HashVersion::Tea, seeded, name), others[1]);
            assert_eq!(hash(HashVersion::HalfMd4, [0; 4], name), others[2]);
            assert_eq!(hash(HashVersion::Tea, [0; 4], name), others[3]);
        }
    }
}

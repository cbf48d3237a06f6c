use proptest::prelude::*;

use super::*;
use crate::format::address::Block;

fn layout(checksums: Checksums, wide: bool) -> JournalLayout {
    let mut incompat = JournalIncompat::REVOKE;
    incompat.set(JournalIncompat::BIT64, wide);
    incompat.set(JournalIncompat::CSUM_V2, checksums == Checksums::V2);
    incompat.set(JournalIncompat::CSUM_V3, checksums == Checksums::V3);
    let mut compat = JournalCompat::empty();
    compat.set(JournalCompat::CHECKSUM, checksums == Checksums::Transaction);
    let mut raw = RawJournalSuperblock::empty(1024, 2048, [7; 16]);
    raw.set_features(compat, incompat);
    raw.seal();
    JournalSuperblock::parse(raw.as_bytes(), 2048).unwrap().layout
}

fn layouts() -> Vec<JournalLayout> {
    let all = [Checksums::None, Checksums::Transaction, Checksums::V2, Checksums::V3];
    all.into_iter().flat_map(|c| [layout(c, false), layout(c, true)]).collect()
}

#[test]
fn tags_come_back_in_every_layout() {
    for layout in layouts() {
        let high = if layout.wide { 5 << 32 } else { 0 };
        let image = [9; 1024];
        let checksum = match layout.checksums {
            Checksums::V3 => layout.image_checksum(Tid(3), &image),
            Checksums::V2 => layout.image_checksum(Tid(3), &image) & 0xffff,
            _ => 0,
        };
        let tag = |n: u64| Tag { block: Block(high + n), escaped: n.is_multiple_of(3), checksum };
        let mut block = vec![0; 1024];
        let mut writer = DescriptorWriter::start(&mut block, Tid(3));
        let mut expected = Vec::new();
        while !writer.is_full(&layout) {
            expected.push(tag(expected.len() as u64));
            writer.push(&mut block, &layout, *expected.last().unwrap());
        }
        writer.finish(&mut block, &layout);
        assert_eq!(expected.len(), layout.tags_max());
        assert_eq!(header(&block), Some((BlockType::Descriptor, Tid(3))));
        assert_eq!(tags(&block, &layout).collect::<Vec<_>>(), expected, "{layout:?}");
        assert!(expected[0].matches(&layout, Tid(3), &image));
        let checked = layout.has_block_checksums();
        assert_eq!(expected[0].matches(&layout, Tid(4), &image), !checked);
        assert!(layout.is_intact(&block));
        block[500] ^= 1;
        assert_eq!(layout.is_intact(&block), !checked);
    }
}

#[test]
fn a_single_tag_is_marked_as_the_last() {
    let layout = layout(Checksums::V3, true);
    let mut block = vec![0; 1024];
    let mut writer = DescriptorWriter::start(&mut block, Tid(1));
    let tag = Tag { block: Block(77), escaped: true, checksum: 5 };
    writer.push(&mut block, &layout, tag);
    writer.finish(&mut block, &layout);
    assert_eq!(block[12..28], [0, 0, 0, 77, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5]);
    assert_eq!(block[28..44], [7; 16]);
    assert_eq!(tags(&block, &layout).collect::<Vec<_>>(), [tag]);
}

#[test]
fn revokes_come_back_in_every_layout() {
    for layout in layouts() {
        let revoked: Vec<u64> = (1000..).take(layout.revokes_max()).collect();
        let mut block = vec![0; 1024];
        encode_revokes(&mut block, &layout, Tid(9), &revoked);
        assert_eq!(header(&block), Some((BlockType::Revoke, Tid(9))));
        assert!(layout.is_intact(&block));
        let back: Vec<u64> = revokes(&block, &layout).unwrap().map(|b| b.0).collect();
        assert_eq!(back, revoked);
        for used in [0, 15, 1025, u32::MAX] {
            block[12..16].copy_from_slice(&used.to_be_bytes());
            assert!(revokes(&block, &layout).is_err());
        }
    }
}

#[test]
fn commit_blocks_are_verified() {
    for layout in layouts() {
        let commit = Commit { sec: 1_700_000_000, nsec: 5 };
        let mut block = vec![0; 1024];
        commit.encode(&mut block, &layout, Tid(4), 0xdead_beef);
        assert_eq!(header(&block), Some((BlockType::Commit, Tid(4))));
        assert_eq!(Commit::parse(&block, &layout, 0xdead_beef), (commit, Trust::Sound));
        // Older contents in the sectors after the first are not damage.
        block[512..].fill(0x55);
        assert_eq!(Commit::parse(&block, &layout, 0xdead_beef), (commit, Trust::Sound));
        block[0x3b] ^= 1;
        let trust = Commit::parse(&block, &layout, 0xdead_beef).1;
        assert_eq!(trust == Trust::Sound, !layout.has_block_checksums());
        let trust = Commit::parse(&block, &layout, 1).1;
        assert_eq!(trust == Trust::Sound, layout.checksums == Checksums::None);
    }
}

#[test]
fn a_commit_block_without_the_transactions_checksum_is_accepted() {
    let layout = layout(Checksums::Transaction, false);
    let block = vec![0; 1024];
    assert_eq!(Commit::parse(&block, &layout, 99).1, Trust::Sound);
}

#[test]
fn sequence_numbers_wrap_around() {
    assert!(Tid(0).is_after(Tid(u32::MAX)));
    assert!(!Tid(u32::MAX).is_after(Tid(0)));
    assert!(!Tid(5).is_after(Tid(5)));
    assert_eq!(Tid(u32::MAX).next(), Tid(0));
    assert_eq!(Tid(0).previous(), Tid(u32::MAX));
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(mut bytes in proptest::collection::vec(any::<u8>(), 1024)) {
        for layout in layouts() {
            prop_assert!(tags(&bytes, &layout).count() <= 1024);
            if let Ok(revoked) = revokes(&bytes, &layout) {
                prop_assert!(revoked.count() <= 1024);
            }
            let _ = Commit::parse(&bytes, &layout, 0);
        }
        let _ = JournalSuperblock::parse(&bytes, 2048);
        bytes[..8].copy_from_slice(&[9, 0, 8, 0, 0, 0, 0, 0]);
        bytes[8..12].copy_from_slice(&[1, 0, 0, 0]);
        let mut scan = FastCommitScan::new(Tid(1), 256);
        let _ = scan.block(&bytes);
        let _ = scan.block(&bytes);
    }
}

mod fast_commits {
    use super::*;

    /// Returns a fast commit in the kernel's form: tags, then a tail that fills the block.
    fn area(tid: u32, with_head: bool, values: &[(u16, &[u8])]) -> Vec<u8> {
        let mut block = Vec::new();
        let push = |block: &mut Vec<u8>, tag: u16, value: &[u8]| {
            block.extend(tag.to_le_bytes());
            block.extend((value.len() as u16).to_le_bytes());
            block.extend(value);
        };
        if with_head {
            let mut head = vec![0; 4];
            head.extend(tid.to_le_bytes());
            push(&mut block, 9, &head);
        }
        for (tag, value) in values {
            push(&mut block, *tag, value);
        }
        block.extend(8_u16.to_le_bytes());
        block.extend((1024 - block.len() as u16 - 2).to_le_bytes());
        block.extend(tid.to_le_bytes());
        let crc = crate::format::checksum::crc32c(0, &block);
        block.extend(crc.to_le_bytes());
        block.resize(1024, 0);
        block
    }

    fn scan(blocks: &[Vec<u8>]) -> Result<Vec<FastCommitTag>, vfs::Corruption> {
        let mut scan = FastCommitScan::new(Tid(5), 256);
        for block in blocks {
            if scan.block(block)? == Scanned::End {
                break;
            }
        }
        Ok(scan.finish())
    }

    const CREATE: (u16, &[u8]) = (3, &[2, 0, 0, 0, 12, 0, 0, 0, b'a']);
    const DELETE: (u16, &[u8]) = (2, &[12, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]);

    #[test]
    fn complete_ones_are_taken_and_the_rest_left() {
        let first = area(5, true, &[CREATE]);
        let second = area(5, false, &[DELETE]);
        let all = scan(&[first.clone(), second.clone()]).unwrap();
        assert_eq!(all.len(), 2);
        assert!(matches!(&all[0], FastCommitTag::Create(e) if &*e.name == b"a" && e.ino.0 == 12));
        assert!(matches!(all[1], FastCommitTag::DelRange { len: 3, .. }));
        let mut torn = second;
        torn[20] ^= 1;
        assert_eq!(scan(&[first.clone(), torn.clone()]).unwrap().len(), 1);
        assert_eq!(scan(&[area(4, true, &[CREATE])]).unwrap(), []);
        assert_eq!(scan(&[vec![0; 1024]]).unwrap(), []);
        let mut damaged = first;
        damaged[20] ^= 1;
        assert_eq!(scan(&[damaged]).unwrap_err().structure(), "fast commit");
    }

    /// Blocks that older transactions left after a valid tail. A Linux 6.18 mount accepted them.
    #[test]
    fn stale_blocks_after_an_empty_fast_commit_end_the_scan() {
        let empty = area(5, true, &[]);
        let mut wrong_checksum = area(5, false, &[CREATE]);
        wrong_checksum[20] ^= 1;
        let stale = [
            area(4, false, &[CREATE]),
            area(4, true, &[CREATE]),
            wrong_checksum,
            vec![0; 1024],
            vec![0xa5; 1024],
            area(5, false, &[(6, &[0; 12])]),
            area(5, false, &[(11, &[0; 4])]),
            [&[6, 0, 0xd0, 7][..], &[0; 1020]].concat(),
        ];
        for (number, block) in stale.into_iter().enumerate() {
            let first_only = scan(&[empty.clone(), block.clone(), area(5, false, &[CREATE])]);
            assert_eq!(first_only.unwrap(), [], "case {number}");
            let after_two = [empty.clone(), area(5, false, &[DELETE]), block];
            assert_eq!(scan(&after_two).unwrap().len(), 1, "case {number}");
        }
    }

    /// A Linux 6.18 mount rejected these: no fast commit is complete, or there are unknown features.
    #[test]
    fn stale_blocks_in_the_first_fast_commit_are_damage() {
        let mut begun = area(5, true, &[]);
        // A padding tag instead of the tail.
        begun[12] = 7;
        for next in [area(4, false, &[CREATE]), vec![0; 1024], vec![0xa5; 1024]] {
            assert!(scan(&[begun.clone(), next]).is_err());
        }
        assert_eq!(scan(&[begun, area(4, true, &[])]).unwrap(), []);
        let mut features = area(5, true, &[CREATE]);
        features[4] = 4;
        assert!(scan(&[features.clone()]).is_err());
        assert!(scan(&[area(5, true, &[]), features]).is_err());
    }

    #[test]
    fn impossible_tags_are_damage() {
        let long_name = [&[2, 0, 0, 0, 12, 0, 0, 0][..], &[b'x'; 256]].concat();
        let bad: [(u16, &[u8]); 5] =
            [(1, &[0; 16]), (2, &[0; 11]), (3, &[0; 8]), (6, &[0; 100]), (3, &long_name)];
        for value in bad {
            assert!(scan(&[area(5, true, &[value])]).is_err(), "{value:?}");
        }
        assert!(scan(&[area(5, true, &[(77, &[])])]).is_err());
    }
}

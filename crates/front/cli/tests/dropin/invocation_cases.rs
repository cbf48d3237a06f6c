//! The table of [`invocations`](super::invocations).

/// Name | initial image: arguments of mke2fs, and further steps | invocation | requests of debugfs.
pub(super) const CASES: &str = "\
m_plain |  | mke2fs -q -F -t ext4 {} 32M
m_ext2 |  | mke2fs -q -F -t ext2 {} 16M
m_ext3 |  | mke2fs -q -F -t ext3 {} 32M
m_bigalloc |  | mke2fs -q -F -t ext4 -O bigalloc -C 16384 {} 64M
m_cluster |  | mke2fs -q -F -t ext4 -b 4096 -O bigalloc -C 65536 {} 256M
m_flex_bg |  | mke2fs -q -F -t ext4 -G 4 -b 1024 {} 64M
m_64bit |  | mke2fs -q -F -t ext4 -O 64bit -b 1024 {} 64M
m_not_64bit |  | mke2fs -q -F -t ext4 -O ^64bit {} 32M
m_sparse_super2 |  | mke2fs -q -F -t ext4 -O sparse_super2,^resize_inode -E num_backup_sb=1 {} 64M
m_meta_bg |  | mke2fs -q -F -t ext4 -O meta_bg,^resize_inode -b 1024 {} 64M
m_uninit |  | mke2fs -q -F -t ext4 -O uninit_bg,^metadata_csum {} 64M
m_root_owner |  | mke2fs -q -F -t ext4 -E root_owner=1234:1234 {} 16M
m_root_perms |  | mke2fs -q -F -t ext4 -d tree -E root_owner=12:34 {} 16M
m_inode_128 |  | mke2fs -q -F -t ext4 -I 128 {} 32M
m_inode_1024 |  | mke2fs -q -F -t ext4 -I 1024 -b 4096 {} 64M
m_large_inode |  | mke2fs -q -F -t ext4 -I 4096 -b 4096 {} 64M
m_directory |  | mke2fs -q -F -t ext4 -d tree {} 32M
m_directory_2 |  | mke2fs -q -F -t ext2 -d tree {} 16M
m_directory_inline |  | mke2fs -q -F -t ext4 -O inline_data -d tree {} 32M
m_directory_bigalloc |  | mke2fs -q -F -t ext4 -O bigalloc -d tree {} 64M
m_blocks_4096 |  | mke2fs -q -F -t ext4 -b 4096 {} 64M
m_blocks_2048 |  | mke2fs -q -F -t ext4 -b 2048 {} 64M
m_raid |  | mke2fs -q -F -t ext4 -E stride=13,stripe-width=39 -b 4096 {} 64M
m_ratio |  | mke2fs -q -F -t ext4 -i 65536 {} 64M
m_count |  | mke2fs -q -F -t ext4 -N 500 {} 16M
m_reserve |  | mke2fs -q -F -t ext4 -m 12.5 -L name -M /mnt {} 16M
m_group |  | mke2fs -q -F -t ext4 -g 4096 -b 1024 {} 32M
m_journal_size |  | mke2fs -q -F -t ext4 -J size=4 {} 64M
m_dasd |  | mke2fs -q -F -t ext4 -b 4096 -E resize=1048576 {} 64M
m_quota |  | mke2fs -q -F -t ext4 -O quota,project -E quotatype=usrquota:grpquota:prjquota {} 32M
m_casefold |  | mke2fs -q -F -t ext4 -O casefold {} 32M
m_orphan |  | mke2fs -q -F -t ext4 -O orphan_file {} 32M
m_packed |  | mke2fs -q -F -t ext4 -E packed_meta_blocks=1 -G 16 {} 64M
m_types |  | mke2fs -q -F -t ext4 -T news {} 64M
m_hash |  | mke2fs -q -F -t ext4 -E hash_seed=0a28e812-3747-40bc-8194-e08e509097d1 {} 32M
m_journal_fast |  | mke2fs -q -F -t ext4 -O fast_commit {} 64M
m_std |  | mke2fs -q -F -T small {} 16M
m_bad_block |  | mke2fs -q -F -b 1000 {} 16M
m_bad_inode |  | mke2fs -q -F -I 100 {} 16M
m_bad_feature |  | mke2fs -q -F -O sparkles {} 16M
m_bad_size |  | mke2fs -q -F -b 4096 {} 4
m_too_full |  | mke2fs -q -F -t ext4 -d tree {} 200
m_bad_flex |  | mke2fs -q -F -t ext4 -G 3 {} 32M
m_journal_large |  | mke2fs -q -F -t ext4 -J size=64 {} 16M
m_mmp |  | mke2fs -q -F -t ext4 -O mmp {} 16M
m_mmp_interval |  | mke2fs -q -F -t ext4 -O mmp -E mmp_update_interval=60 {} 16M
m_desc_size |  | mke2fs -q -F -t ext4 -O 64bit -E desc_size=128 {} 16M
m_hurd |  | mke2fs -q -F -t ext2 -o hurd {} 16M
m_offset |  | mke2fs -q -F -t ext4 -E offset=65536 {} 16M
r_grow | -t ext4 -d tree {} 16M | resize2fs {} 64M
r_grow_groups | -t ext4 -b 1024 -d tree {} 16M | resize2fs {} 200M
r_grow_blocks | -t ext4 -b 4096 -d tree {} 64M | resize2fs {} 40000
r_grow_ext2 | -t ext2 -d tree {} 16M | resize2fs {} 40M
r_grow_meta_bg | -t ext4 -O meta_bg,^resize_inode -b 1024 -d tree {} 16M | resize2fs {} 64M
r_grow_no_resize | -t ext4 -O ^resize_inode -b 1024 -d tree {} 16M | resize2fs {} 64M
r_grow_past | -t ext4 -b 1024 -E resize=40000 -d tree {} 16M | resize2fs {} 600M
r_grow_bigalloc | -t ext4 -O bigalloc -d tree {} 64M | resize2fs {} 160M
r_grow_uninit | -t ext4 -O uninit_bg,^metadata_csum -d tree {} 16M | resize2fs {} 80M
r_grow_inline | -t ext4 -O inline_data -d tree {} 16M | resize2fs {} 80M
r_grow_super2 | -t ext4 -O sparse_super2,^resize_inode -b 1024 -d tree {} 32M | resize2fs {} 64M
r_shrink | -t ext4 -d tree {} 64M | resize2fs {} 32M
r_shrink_ext2 | -t ext2 -d tree {} 64M | resize2fs {} 20M
r_shrink_super2 | -t ext4 -O sparse_super2,^resize_inode -b 1024 -d tree {} 64M | resize2fs {} 32M
r_shrink_inline | -t ext4 -O inline_data -d tree {} 64M | resize2fs {} 32M
r_shrink_meta_bg | -t ext4 -O meta_bg,^resize_inode -b 1024 -d tree {} 64M | resize2fs {} 32M
r_shrink_sectors | -t ext4 -d tree {} 64M | resize2fs {} 65536s
r_same | -t ext4 -d tree {} 32M | resize2fs {} 32M
r_too_small | -t ext4 -d tree {} 64M | resize2fs {} 1M
r_no_fs | truncate -s 16M {} | resize2fs {}
r_unchecked | -t ext4 -d tree {} 32M ; script ssv state 2 | resize2fs {} 48M
r_64bit | -t ext4 -O ^64bit -d tree {} 32M | resize2fs -b {}
r_32bit | -t ext4 -O 64bit -d tree {} 32M | resize2fs -s {}
t_quota_on | -t ext4 -d tree {} 32M | tune2fs -O quota {}
t_quota_off | -t ext4 -O quota -d tree {} 32M ; e2fsck -fy {} | tune2fs -O ^quota {}
t_quota_kind | -t ext4 -O quota -d tree {} 32M ; e2fsck -fy {} | tune2fs -Q ^grpquota {}
t_uninit | -t ext4 -O uninit_bg,^metadata_csum -d tree {} 32M | tune2fs -O ^uninit_bg {}
t_journal | -t ext2 -d tree {} 32M | tune2fs -j {}
t_journal_size | -t ext2 -d tree {} 32M | tune2fs -J size=2 {}
t_no_journal | -t ext4 -d tree {} 32M | tune2fs -O ^has_journal {}
t_journal_twice | -t ext4 -d tree {} 32M | tune2fs -j {}
t_inode_256 | -t ext4 -I 128 -d tree {} 32M | tune2fs -I 256 {}
t_mmp | -t ext4 -d tree {} 32M | tune2fs -O mmp {}
t_no_mmp | -t ext4 -O mmp {} 32M | tune2fs -O ^mmp {}
t_no_csum | -t ext4 -O metadata_csum -d tree {} 32M | tune2fs -O ^metadata_csum {}
t_csum | -t ext4 -O ^metadata_csum,^uninit_bg -d tree {} 32M | tune2fs -O metadata_csum {}
t_extents | -t ext3 -d tree {} 32M | tune2fs -O extent {}
t_index | -t ext2 -O ^dir_index -d tree {} 32M | tune2fs -O dir_index {}
t_label | -t ext4 -d tree {} 32M | tune2fs -L name -M /srv -c 20 -i 30d -e panic {}
t_long_label | -t ext4 -d tree {} 32M | tune2fs -L a-name-of-more-than-sixteen {}
t_uuid | -t ext4 -d tree {} 32M | tune2fs -U 0a28e812-3747-40bc-8194-e08e509097d0 {}
t_uuid_clear | -t ext3 -d tree {} 32M | tune2fs -U clear {}
t_options | -t ext4 -d tree {} 32M | tune2fs -o journal_data,^acl -E mount_opts=noatime {}
t_reserve | -t ext4 -d tree {} 32M | tune2fs -r 777 -u 3 -g 4 {}
t_reserve_many | -t ext4 -d tree {} 32M | tune2fs -m 60 {}
t_bad_feature | -t ext4 -d tree {} 32M | tune2fs -O sparkles {}
t_bad_clear | -t ext4 -d tree {} 32M | tune2fs -O ^extent {}
t_64bit | -t ext4 -O ^64bit -d tree {} 32M | tune2fs -O 64bit {}
t_bigalloc | -t ext4 -d tree {} 32M | tune2fs -O bigalloc {}
t_orphan | -t ext4 -O ^orphan_file -d tree {} 32M | tune2fs -O orphan_file {}
t_nothing | -t ext4 -d tree {} 32M | tune2fs {}
t_damaged | -t ext4 -d tree {} 32M ; script sif <13> links_count 9 | tune2fs -O metadata_csum_seed {}
d_write | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | write host a , write sparse b , mkdir c , write host c/d , symlink e c/d , mknod p p , ln a f
d_remove | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | rm big , rm link , rmdir empty , rmdir etc , rm nothing
d_kill | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | kill_file big , unlink big
d_fallocate | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | write /dev/null a , fallocate a 0 39 , sif a size 40960
d_fallocate_blocks | -t ext2 -d tree {} 32M | debugfs -w -f requests {} | write /dev/null a , fallocate a 0 39 , sif a size 40960
d_fallocate_bigalloc | -t ext4 -O bigalloc -d tree {} 64M | debugfs -w -f requests {} | write /dev/null a , fallocate a 5 39 , sif a size 40960
d_punch | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | punch big 10 20 , punch big 40 42
d_punch_blocks | -t ext3 -d tree {} 32M | debugfs -w -f requests {} | punch big 10 20 , punch big 250
d_punch_bigalloc | -t ext4 -O bigalloc -d tree {} 64M | debugfs -w -f requests {} | punch big 10 60
d_inline | -t ext4 -O inline_data {} 32M | debugfs -w -f requests {} | write host a , mkdir b , write host b/c , write sparse d , ea_set a user.x hello
d_inline_xattr | -t ext4 -O inline_data {} 32M | debugfs -w -f requests {} | write host a , ea_set a user.x hello , ea_rm a user.x , ea_list a
d_xattr | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | ea_set big user.x hello , ea_set big user.y world , ea_rm big user.x , ea_set big user.y other , ea_rm big none
d_xattr_many | -t ext4 -b 1024 -I 128 -d tree {} 32M | debugfs -w -f requests {} | ea_set big user.a 1 , ea_set big user.b 2 , ea_set big user.c 3 , ea_rm big user.b
d_fields | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | sif big mode 0100640 , sif big uid 77 , sif etc gid 88 , sif big mtime 20200101 , ssv mnt_count 4 , ssv volume_name x
d_corrupt_links | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | sif big links_count 7 , sif etc/hostname size 1
d_corrupt_bitmap | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | freei <13> , freeb 700 5
d_corrupt_clri | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | clri big
d_expand | -t ext4 -d tree {} 32M | debugfs -w -f requests {} | expand_dir empty , expand empty
d_dump | -t ext4 -d tree {} 32M | debugfs -f requests {} | dump big out.big , cat etc/hostname , ls -l
d_read_only | -t ext4 -d tree {} 32M | debugfs -f requests {} | mkdir x , rm big
d_unknown | -t ext4 -d tree {} 32M | debugfs -f requests {} | sparkle
d_no_fs | truncate -s 1M {} | debugfs -R ls {}
j_replay | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001 host , jc | e2fsck -fy {}
j_preen | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001 sparse , jc | e2fsck -p {}
j_no | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001 sparse , jc | e2fsck -fn {}
j_only | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001 sparse , jc | e2fsck -E journal_only -y {}
j_revoke | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001,5002 sparse , jw -r 5001 , jc | e2fsck -fy {}
j_uncommitted | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000 sparse , jw -b 5001 sparse -c , jc | e2fsck -fy {}
j_csum3 | -t ext4 -O 64bit,metadata_csum -b 1024 -d tree {} 32M ; script jo -c -v 3 , jw -b 5000,5001 sparse , jw -r 5000 , jc | e2fsck -fy {}
j_csum2 | -t ext4 -O ^64bit,metadata_csum -b 1024 -d tree {} 32M ; script jo -c -v 2 , jw -b 5000,5001 sparse , jc | e2fsck -fy {}
j_ext3 | -t ext3 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001 sparse , jw -b 5003 sparse , jc | e2fsck -fy {}
j_long | -t ext4 -b 1024 -d tree {} 64M ; script jo , jw -b 9000-9015 sparse , jw -b 9004-9018 sparse , jw -r 9000 , jw -b 9000 host , jc | e2fsck -fy {}
j_debugfs | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001 sparse , jc | debugfs -w -R jr {}
j_lost | -t ext4 -b 1024 -d tree {} 32M ; script sif <8> links_count 0 | e2fsck -fy {}
j_inode | -t ext4 -b 1024 -d tree {} 32M ; script clri <8> | e2fsck -fy {}
j_tune | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001 sparse , jc | tune2fs -L name {}
j_resize | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001 sparse , jc | resize2fs {} 48M
j_resize_f | -t ext4 -b 1024 -d tree {} 32M ; script jo , jw -b 5000,5001 sparse , jc | resize2fs -f {} 48M
r_bigalloc_forced | -t ext4 -O bigalloc -d tree {} 64M | resize2fs -f {} 160M
m_rev0 |  | mke2fs -q -F -r 0 {} 16M
u_check | -t ext4 -d tree {} 32M ; script sif big links_count 7 | e2fsck -fy -z {}.undo {}
u_clean | -t ext4 -d tree {} 32M | e2fsck -fy -z {}.undo {}
u_mke2fs |  | mke2fs -q -F -t ext4 -z {}.undo {} 16M
u_resize | -t ext4 -d tree {} 32M | resize2fs -z {}.undo {} 48M
u_tune | -t ext4 -d tree {} 32M | tune2fs -z {}.undo -L name {}
u_debugfs | -t ext4 -d tree {} 32M | debugfs -w -z {}.undo -f requests {} | mkdir x
o_dump | -t ext4 -E offset=1048576 -d tree {} 16M | dumpe2fs -h {}?offset=1048576
o_label | -t ext4 -E offset=1048576 -d tree {} 16M | e2label {}?offset=1048576 name
o_tune | -t ext4 -E offset=1048576 -d tree {} 16M | tune2fs -L name -c 7 {}?offset=1048576
o_feature | -t ext4 -E offset=1048576 -d tree {} 16M | tune2fs -O ^has_journal {}?offset=1048576
o_check | -t ext4 -E offset=1048576 -d tree {} 16M | e2fsck -fy {}?offset=1048576
o_debugfs | -t ext4 -E offset=1048576 -d tree {} 16M | debugfs -w -f requests {}?offset=1048576 | mkdir x , write host x/y , rm big
o_grow | -t ext4 -E offset=1048576 -d tree {} 16M | resize2fs {}?offset=1048576 20M
o_none | -t ext4 -E offset=1048576 -d tree {} 16M | dumpe2fs -h {}?offset=2097152
o_hex | -t ext4 -E offset=1048576 -d tree {} 16M | tune2fs -L name {}?offset=0x100000";

/// Cases in which parts may differ, with the words of docs/dropin.md that explain it.
pub(super) const EXCEPTIONS: &[(&str, &[&str], &str)] = &[
    ("m_count", &["header"], "`-N` counts at least"),
    ("m_too_full", &["length"], "a failed mkfs leaves a file without a file system"),
    ("m_directory_inline", &["tree"], "version 1.47.0 gives small files a length of 60 bytes"),
    ("d_inline", &["tree"], "version 1.47.0 gives small files a length of 60 bytes"),
    ("d_inline_xattr", &["tree"], "version 1.47.0 gives small files a length of 60 bytes"),
    (
        "r_grow_bigalloc",
        &["status", "header", "length"],
        "The original resizes `bigalloc` with `-f` only",
    ),
    ("r_shrink_super2", &["header"], "gives up the second backup of `sparse_super2`"),
    ("j_resize", &["status", "header", "length"], "replays the journal first"),
    ("j_resize_f", &["header"], "replays the journal first"),
    ("d_kill", &["check"], "so that e2fsck takes the inode for deleted"),
    ("d_punch_blocks", &["tree"], "punches indirect blocks, too"),
    ("r_bigalloc_forced", &["check"], "and leaves faults in it"),
    ("o_grow", &["length"], "The original's file is too short by the offset"),
];

/// Cases that are rejected, the option named in the message, and the words of docs/dropin.md with
/// the reason.
pub(super) const REFUSED: &[(&str, &str, &str)] = &[
    ("m_hurd", "-o", "`-o hurd`"),
    ("m_rev0", "-r", "`-r 0`"),
    ("r_64bit", "-b", "`-b` and `-s` (64bit)"),
    ("r_32bit", "-s", "`-b` and `-s` (64bit)"),
    ("t_64bit", "64bit", "Refused by name: `64bit`"),
    ("u_mke2fs", "-z", "because old contents are not kept"),
    ("u_resize", "-z", "`-z` of resize2fs is refused"),
];

/* Diskwright: ext4 and XFS in user space. MIT OR Apache-2.0.
 *
 * Rules that hold for all functions
 *
 * Errors. A function that can fail returns DW_OK (0) or another dw_code. Its last argument, `error`, may be NULL; if not,
 * *error is set by every call: to NULL, or to a new error that says more, to be freed with dw_error_free. What a call that
 * fails would have put elsewhere is NULL or as it was.
 *
 * Pointers lead to what their type says, unless it is said that they may be NULL. Texts end with NUL. A path in an image is
 * any bytes but NUL, with "/" between names; it starts at the root, with or without "/". Paths of the host are bytes on
 * Unix, and UTF-8 elsewhere.
 *
 * Structures that begin with struct_size are set to zeros first, and struct_size to their size; zero in a field asks for
 * what is usual. So programs that were compiled with an older header keep their meaning.
 *
 * Handles (dw_image, dw_file, dw_dir, dw_walk, dw_error) are freed once, each with the function for its kind, which takes
 * NULL as well, and are not used after that. They may be freed in any order: files outlive their image. A handle that is
 * NULL or of another kind is refused with DW_BAD_HANDLE; the functions that free leave one of another kind alone. After
 * dw_image_close, all that is left of the image answers DW_CLOSED, and is still to be freed.
 *
 * Threads. There is no state but in handles. Any threads may use dw_image and dw_file at once; dw_dir, dw_walk and dw_error
 * go to other threads, but one uses them at a time. Who frees a handle uses it alone. The child of a fork must not use, nor
 * free, handles of its parent.
 *
 * Functions of the caller's are called during calls with which they were given (those of a dw_device: until it is
 * released). They must return (no exception, no longjmp) and must not use the image that the call works on.
 *
 * Images that are damaged or hostile give errors: no crash, no hang. Permissions are not checked: who may open an image may
 * do all in it.
 *
 * This file is made from crates/capi/src; docs/c.md is the guide. */

#ifndef DISKWRIGHT_H
#define DISKWRIGHT_H

#include <stddef.h>
#include <stdint.h>

/*
 First number of the version of this header.
 */
#define DW_VERSION_MAJOR 0

/*
 Second number: before 1.0, versions that differ in it need not fit together.
 */
#define DW_VERSION_MINOR 1

/*
 Third number.
 */
#define DW_VERSION_PATCH 0

/*
 Says that a number is not known.
 */
#define DW_NONE UINT64_MAX

/*
 The image is opened to be changed.
 */
#define DW_WRITABLE 1

/*
 The image is read as it lies, without what its journal or log holds, and though somebody may be changing it.
 */
#define DW_NORECOVERY 2

/*
 ext4, and ext2 and ext3 by their features.
 */
#define DW_EXT4 1

/*
 XFS.
 */
#define DW_XFS 2

/*
 An XFS image may have less than 300 MiB, which mkfs.xfs refuses: such images are slow.
 */
#define DW_SMALL 1

/*
 The file is opened to be read.
 */
#define DW_READ 1

/*
 The file is opened to be written.
 */
#define DW_WRITE 2

/*
 The file is written at its end only, wherever that is at the moment.
 */
#define DW_APPEND 4

/*
 The file is made if it is not there.
 */
#define DW_CREATE 8

/*
 The file is made, and must not be there.
 */
#define DW_CREATE_NEW 16

/*
 The file is emptied first.
 */
#define DW_TRUNCATE 32

/*
 The entries of each directory come in the order of the bytes of their names.
 */
#define DW_SORTED 1

/*
 Says of an owner that it stays.
 */
#define DW_KEEP UINT32_MAX

/*
 A symbolic link at the end of the path is not followed.
 */
#define DW_NOFOLLOW 1

/*
 dw_rename fails where the new name is taken.
 */
#define DW_RENAME_NOREPLACE 1

/*
 dw_rename makes both names change places; both must be there.
 */
#define DW_RENAME_EXCHANGE 2

/*
 Directories are copied with everything in them, links as links, and special files. Otherwise only regular files are
 copied, and links are followed.
 */
#define DW_RECURSIVE 1

/*
 Owners, all permission bits, times and extended attributes are kept. For dw_copy_in and dw_copy_out.
 */
#define DW_PRESERVE 2

/*
 dw_extract goes on after something in the image that cannot be read.
 */
#define DW_KEEP_GOING 4

/*
 dw_extract fills a directory that is not empty, and replaces files in it.
 */
#define DW_FORCE 8

/*
 dw_extract gives files nothing but their contents and permissions.
 */
#define DW_PLAIN 16

/*
 An existing image may be replaced.
 */
#define DW_BUILD_FORCE 1

/*
 An XFS image may have less than 300 MiB.
 */
#define DW_BUILD_SMALL 2

/*
 The journal is left out (ext4).
 */
#define DW_BUILD_NO_JOURNAL 4

/*
 `uid` and `gid` own everything, instead of the source's owners.
 */
#define DW_BUILD_OWNER 8

/*
 An existing image may be replaced, also the old one itself, which stays until the new one is whole.
 */
#define DW_CONVERT_FORCE 1

/*
 An XFS image may have less than 300 MiB.
 */
#define DW_CONVERT_SMALL 2

/*
 The new image has the UUID of the old one.
 */
#define DW_CONVERT_KEEP_UUID 4

/*
 The new image is the smallest that holds everything.
 */
#define DW_CONVERT_LEAST 8

/*
 Modification times do not count.
 */
#define DW_IGNORE_TIMES 1

/*
 Owners and groups do not count.
 */
#define DW_IGNORE_OWNER 2

/*
 Permission bits do not count.
 */
#define DW_IGNORE_MODE 4

/*
 Extended attributes do not count.
 */
#define DW_IGNORE_XATTRS 8

/*
 Flags of inodes do not count.
 */
#define DW_IGNORE_FLAGS 16

/*
 Which names lead to the same file does not count.
 */
#define DW_IGNORE_LINKS 32

/*
 Only the second tree has the path.
 */
#define DW_ADDED 1

/*
 Only the first tree has the path. What is in a directory is gone with it, and not told.
 */
#define DW_REMOVED 2

/*
 Both have it, and it is not the same.
 */
#define DW_MODIFIED 3

/*
 It is wrong, and nobody loses anything.
 */
#define DW_HARMLESS 0

/*
 Contents, names or attributes are lost or may be, now or with the next change.
 */
#define DW_AT_RISK 1

/*
 The image, or the part that is named, cannot be used.
 */
#define DW_UNUSABLE 2

/*
 dw_repair finds out what would be done, and changes nothing.
 */
#define DW_REPAIR_PLAN_ONLY 1

/*
 How a call ended. Later versions may have further codes.
 */
typedef enum dw_code {
  /*
   Well.
   */
  DW_OK = 0,
  /*
   There is no such file, directory or name.
   */
  DW_NOT_FOUND = 1,
  /*
   The name is taken.
   */
  DW_EXISTS = 2,
  /*
   A directory is needed, and there is something else.
   */
  DW_NOT_A_DIRECTORY = 3,
  /*
   It is a directory.
   */
  DW_IS_A_DIRECTORY = 4,
  /*
   The directory still has entries.
   */
  DW_NOT_EMPTY = 5,
  /*
   A name has more than 255 bytes, or a target more than the format allows.
   */
  DW_NAME_TOO_LONG = 6,
  /*
   A symbolic link leads in a circle, or too deep.
   */
  DW_SYMLINK_LOOP = 7,
  /*
   The file cannot have another name.
   */
  DW_TOO_MANY_LINKS = 8,
  /*
   More than the format, or memory, can hold.
   */
  DW_FILE_TOO_LARGE = 9,
  /*
   No free blocks or inodes, or no room for an attribute.
   */
  DW_NO_SPACE = 10,
  /*
   The file has no such extended attribute.
   */
  DW_NO_ATTRIBUTE = 11,
  /*
   The image, or this call's view of it, cannot be changed.
   */
  DW_READ_ONLY = 12,
  /*
   The request makes no sense; the text says why.
   */
  DW_INVALID = 13,
  /*
   The file's flags, or the host, forbid it.
   */
  DW_NOT_PERMITTED = 14,
  /*
   The file belongs to another project (quota) than the directory.
   */
  DW_OTHER_PROJECT = 15,
  /*
   The contents are encrypted, and the key is not in the image.
   */
  DW_ENCRYPTED = 16,
  /*
   The image or the request uses what this library cannot do.
   */
  DW_UNSUPPORTED = 17,
  /*
   The image is damaged: dw_error_structure and dw_error_place tell where.
   */
  DW_DAMAGED = 18,
  /*
   The device or the host failed to read or write: dw_error_errno has its number.
   */
  DW_IO = 19,
  /*
   Somebody else uses the image.
   */
  DW_IN_USE = 20,
  /*
   The image was closed.
   */
  DW_CLOSED = 21,
  /*
   The file is not open for that.
   */
  DW_NOT_OPEN_FOR = 22,
  /*
   A callback said that it shall not go on.
   */
  DW_STOPPED = 23,
  /*
   The handle is NULL, or of another kind.
   */
  DW_BAD_HANDLE = 24,
  /*
   Anything else; the text says what.
   */
  DW_FAILED = 25,
  /*
   A bug of this library. Nothing more is known of what the call did: close the image.
   */
  DW_BUG = 26,
} dw_code;

/*
 A directory that is listed. One thread at a time uses it, as an entry lives until the next is asked for.
 */
typedef struct dw_dir dw_dir;

/*
 An error: made by a call that failed, freed with dw_error_free. Several threads may read one.
 */
typedef struct dw_error dw_error;

/*
 An open file. Any number of threads may use it at once. It lives until it is freed, also when its last name is removed,
 and may be freed after its image.
 */
typedef struct dw_file dw_file;

/*
 An open image. Any number of threads may use it at once.
 */
typedef struct dw_image dw_image;

/*
 A walk through a tree. One thread at a time uses it, as an entry lives until the next is asked for.
 */
typedef struct dw_walk dw_walk;

/*
 Where in an image damage lies. What is not known is DW_NONE.
 */
typedef struct dw_place {
  /*
   Block group (ext4) or allocation group (XFS).
   */
  uint64_t group;
  /*
   Block of the file system.
   */
  uint64_t block;
  /*
   Inode number.
   */
  uint64_t inode;
} dw_place;

/*
 Bytes that a call made, and dw_bytes_free frees. A NUL follows them that is not counted, so that what holds none is a
 text.
 */
typedef struct dw_bytes {
  /*
   The bytes; NULL if there are none to be freed.
   */
  uint8_t *data;
  /*
   How many.
   */
  size_t len;
} dw_bytes;

/*
 How to open an image. All zero but struct_size is for reading, the whole file being the image.
 */
typedef struct dw_open_options {
  /*
   sizeof(dw_open_options).
   */
  size_t struct_size;
  /*
   Any of DW_WRITABLE and DW_NORECOVERY.
   */
  uint32_t flags;
  /*
   The partition that the image is in, from 1 on, of a disk with GPT or MBR. 0 for none.
   */
  uint32_t partition;
  /*
   The byte that the image begins at, where no partition is named.
   */
  uint64_t offset;
  /*
   Memory for metadata that was read, in bytes. 0 for what is usual.
   */
  uint64_t cache_bytes;
  /*
   Who owns new files.
   */
  uint32_t uid;
  /*
   The group that owns new files.
   */
  uint32_t gid;
} dw_open_options;

/*
 A device whose bytes functions of the caller's read and write. They return 0, or else the errno of why not, and are
 called by any thread, by several at once, for places that lie within `size`. They must not use the image that the
 device holds, and must return: no exception, no longjmp.
 */
typedef struct dw_device {
  /*
   sizeof(dw_device).
   */
  size_t struct_size;
  /*
   What the functions get.
   */
  void *context;
  /*
   Bytes of the device. Whether it keeps that size is the caller's business: a function fails for what is not there.
   */
  uint64_t size;
  /*
   Fills all of a buffer with the bytes from `offset` on.
   */
  int (*read)(void *context, uint64_t offset, void *buffer, size_t len);
  /*
   Writes all of these bytes from `offset` on. NULL for what is only read.
   */
  int (*write)(void *context, uint64_t offset, const void *data, size_t len);
  /*
   Makes a range read as zeros. NULL writes them.
   */
  int (*zero)(void *context, uint64_t offset, uint64_t len);
  /*
   Returns when all that was written before is durable. NULL if writing is durable, or if that does not matter.
   */
  int (*flush)(void *context);
  /*
   Called once when the library is done with the device, by whichever thread that is: when the image is closed, when
   all that was opened in it is freed, or before a call that could not open it returns. NULL if nothing is to be done.
   It is not called where the structure itself is refused: struct_size is wrong, or `read` is NULL.
   */
  void (*release)(void *context);
} dw_device;

/*
 A point in time.
 */
typedef struct dw_time {
  /*
   Seconds since 1970-01-01 UTC; negative before.
   */
  int64_t sec;
  /*
   Nanoseconds, below 1,000,000,000.
   */
  uint32_t nsec;
  /*
   0, for later versions.
   */
  uint32_t reserved;
} dw_time;

/*
 What a new image is. All zero but struct_size and format is what mke2fs and mkfs.xfs make.
 */
typedef struct dw_format_options {
  /*
   sizeof(dw_format_options).
   */
  size_t struct_size;
  /*
   DW_EXT4 or DW_XFS.
   */
  uint32_t format;
  /*
   DW_SMALL or 0.
   */
  uint32_t flags;
  /*
   The label, of at most 16 bytes for ext4 and 12 for XFS. NULL for none.
   */
  const char *label;
  /*
   Changes of the default features, as mke2fs or mkfs.xfs names them: "-has_journal,casefold". NULL for none.
   */
  const char *features;
  /*
   The 16 bytes of the UUID. NULL for a random one.
   */
  const uint8_t *uuid;
  /*
   The 16 bytes that names of directories are hashed with (ext4). NULL for random ones.
   */
  const uint8_t *hash_seed;
  /*
   All times of the new file system. NULL for now.
   */
  const struct dw_time *time;
  /*
   Block size in bytes. 0 for what is usual.
   */
  uint32_t block_size;
  /*
   Size of an inode in bytes. 0 for what is usual.
   */
  uint32_t inode_size;
  /*
   Number of inodes (ext4). 0 for what is usual.
   */
  uint32_t inodes;
  /*
   Number of allocation groups (XFS). 0 for what is usual.
   */
  uint32_t ag_count;
  /*
   Size of the journal or log in bytes. 0 for what is usual.
   */
  uint64_t log_bytes;
  /*
   Owner of the root directory.
   */
  uint32_t root_uid;
  /*
   Group of the root directory.
   */
  uint32_t root_gid;
} dw_format_options;

/*
 Totals of a file system, in blocks and inodes.
 */
typedef struct dw_totals {
  /*
   Block size in bytes.
   */
  uint32_t block_size;
  /*
   Longest name in bytes.
   */
  uint32_t name_len_max;
  /*
   Blocks that can hold files and metadata.
   */
  uint64_t blocks;
  /*
   Free blocks.
   */
  uint64_t blocks_free;
  /*
   Free blocks that ordinary users may take.
   */
  uint64_t blocks_available;
  /*
   Inodes.
   */
  uint64_t inodes;
  /*
   Free inodes.
   */
  uint64_t inodes_free;
  /*
   Zeros, for later versions.
   */
  uint64_t reserved[4];
} dw_totals;

/*
 What an image says about itself, as it lies. Texts are UTF-8, end with NUL, and are cut where they are too long.
 */
typedef struct dw_info {
  /*
   "ext2", "ext3", "ext4" or "xfs".
   */
  char format[8];
  /*
   Label, as text.
   */
  char label[64];
  /*
   UUID with dashes.
   */
  char uuid[40];
  /*
   "clean", or what is the matter, in the words of the format.
   */
  char state[128];
  /*
   Block size in bytes.
   */
  uint32_t block_size;
  /*
   Inode size in bytes.
   */
  uint32_t inode_size;
  /*
   All blocks.
   */
  uint64_t blocks;
  /*
   Free blocks.
   */
  uint64_t blocks_free;
  /*
   All inodes (XFS: as many as there are now).
   */
  uint64_t inodes;
  /*
   Free inodes.
   */
  uint64_t inodes_free;
  /*
   1 if the journal or log needs recovery before the image is what it should be.
   */
  uint64_t needs_recovery;
  /*
   Zeros, for later versions.
   */
  uint64_t reserved[4];
} dw_info;

/*
 What is known of a file without reading it.
 */
typedef struct dw_metadata {
  /*
   Inode number.
   */
  uint64_t ino;
  /*
   Size in bytes.
   */
  uint64_t size;
  /*
   Space that it takes, in units of 512 bytes.
   */
  uint64_t blocks;
  /*
   Number of names.
   */
  uint64_t nlink;
  /*
   Type and permission bits, as st_mode of Linux has them: 0100644 is a regular file.
   */
  uint32_t mode;
  /*
   Owner.
   */
  uint32_t uid;
  /*
   Group.
   */
  uint32_t gid;
  /*
   Major number of a device.
   */
  uint32_t rdev_major;
  /*
   Minor number of a device.
   */
  uint32_t rdev_minor;
  /*
   1 if crtime is known, else 0.
   */
  uint32_t has_crtime;
  /*
   When it was last read, as far as somebody keeps that. This library does not.
   */
  struct dw_time atime;
  /*
   When its contents last changed.
   */
  struct dw_time mtime;
  /*
   When anything of it last changed.
   */
  struct dw_time ctime;
  /*
   When it was made.
   */
  struct dw_time crtime;
  /*
   Zeros, for later versions.
   */
  uint64_t reserved[4];
} dw_metadata;

/*
 An entry of a directory.
 */
typedef struct dw_entry {
  /*
   The name, which ends with NUL and is any bytes before.
   */
  const char *name;
  /*
   Bytes of the name.
   */
  size_t name_len;
  /*
   Inode number.
   */
  uint64_t ino;
  /*
   The type bits of st_mode of Linux: 0040000 is a directory. 0 if that cannot be told, because the image is damaged.
   */
  uint32_t mode;
  /*
   0, for later versions.
   */
  uint32_t reserved;
} dw_entry;

/*
 What a walk came to.
 */
typedef struct dw_walk_entry {
  /*
   Its path: the one that the walk began at, and the names from there. It ends with NUL.
   */
  const char *path;
  /*
   Bytes of the path.
   */
  size_t path_len;
  /*
   The last name of the path, which is part of it; empty for what the walk began at.
   */
  const char *name;
  /*
   How many names it is below what the walk began at.
   */
  uint64_t depth;
  /*
   What was known of it when the walk came to it.
   */
  struct dw_metadata metadata;
} dw_walk_entry;

/*
 Hears how far something is, and says whether it shall go on: 0 if so, anything else ends it with DW_STOPPED. It must
 return, and must not use the image.
 */
typedef int (*dw_progress)(void *context, uint64_t done, uint64_t bytes);

/*
 Hears what was left out, or is not what it should be: a text that lives until it returns.
 */
typedef void (*dw_warning)(void *context, const char *message);

/*
 How to copy. All zero but struct_size copies one file.
 */
typedef struct dw_copy_options {
  /*
   sizeof(dw_copy_options).
   */
  size_t struct_size;
  /*
   Any of DW_RECURSIVE, DW_PRESERVE, DW_KEEP_GOING, DW_FORCE and DW_PLAIN that the call knows.
   */
  uint32_t flags;
  /*
   0, for later versions.
   */
  uint32_t reserved;
  /*
   What the functions get.
   */
  void *context;
  /*
   Asked before each file, with the files and bytes until then. NULL goes on.
   */
  dw_progress progress;
  /*
   Hears of what was left out. NULL if nobody does.
   */
  dw_warning warning;
} dw_copy_options;

/*
 What was copied.
 */
typedef struct dw_copy_report {
  /*
   Files of any type.
   */
  uint64_t files;
  /*
   Bytes of contents, without holes.
   */
  uint64_t bytes;
  /*
   Files of the image that could not be read, or not to their end (DW_KEEP_GOING).
   */
  uint64_t unreadable;
  /*
   Files and attributes that the destination did not take.
   */
  uint64_t left_out;
} dw_copy_report;

/*
 What to build. All zero but struct_size and format makes the smallest image that holds the source.
 */
typedef struct dw_build_options {
  /*
   sizeof(dw_build_options).
   */
  size_t struct_size;
  /*
   DW_EXT4 or DW_XFS.
   */
  uint32_t format;
  /*
   Any of DW_BUILD_FORCE, DW_BUILD_SMALL, DW_BUILD_NO_JOURNAL and DW_BUILD_OWNER.
   */
  uint32_t flags;
  /*
   Size in bytes. 0 for the smallest that holds the source.
   */
  uint64_t size;
  /*
   Bytes left free in an image whose size is computed.
   */
  uint64_t free;
  /*
   The label. NULL for none.
   */
  const char *label;
  /*
   Changes of the default features, with commas: "^has_journal,+large_dir". NULL for none.
   */
  const char *features;
  /*
   The 16 bytes of the UUID. NULL derives one from the contents.
   */
  const uint8_t *uuid;
  /*
   The latest time in the image, in seconds since 1970. NULL sets no limit. SOURCE_DATE_EPOCH is not looked at.
   */
  const int64_t *source_date_epoch;
  /*
   Block size in bytes. 0 for what is usual.
   */
  uint32_t block_size;
  /*
   Inode size in bytes. 0 for what is usual.
   */
  uint32_t inode_size;
  /*
   Who owns everything, with DW_BUILD_OWNER.
   */
  uint32_t uid;
  /*
   The group that owns everything, with DW_BUILD_OWNER.
   */
  uint32_t gid;
  /*
   Threads. 0 takes as many as there are processors; the image does not depend on it.
   */
  uint32_t threads;
  /*
   0, for later versions.
   */
  uint32_t reserved;
  /*
   What the function gets.
   */
  void *context;
  /*
   Asked before each entry, with the entries begun and the bytes made until then. NULL goes on.
   */
  dw_progress progress;
} dw_build_options;

/*
 What was built.
 */
typedef struct dw_build_report {
  /*
   Size of the image in bytes.
   */
  uint64_t image_bytes;
  /*
   Files of any type that were made.
   */
  uint64_t entries;
  /*
   Bytes of file contents.
   */
  uint64_t data_bytes;
} dw_build_report;

/*
 What to convert to. All zero but struct_size makes an image of the same format and size.
 */
typedef struct dw_convert_options {
  /*
   sizeof(dw_convert_options).
   */
  size_t struct_size;
  /*
   DW_EXT4 or DW_XFS; 0 for that of the old image.
   */
  uint32_t format;
  /*
   Any of DW_CONVERT_FORCE, DW_CONVERT_SMALL, DW_CONVERT_KEEP_UUID and DW_CONVERT_LEAST.
   */
  uint32_t flags;
  /*
   Size in bytes. 0 for that of the old image, or as much more as is needed.
   */
  uint64_t size;
  /*
   The label, instead of the old one's. NULL for that.
   */
  const char *label;
  /*
   Changes of the features, with commas. NULL for none.
   */
  const char *features;
  /*
   The byte that the old image begins at, where no partition is named.
   */
  uint64_t offset;
  /*
   The partition that the old image is in, from 1 on. 0 for none.
   */
  uint32_t partition;
  /*
   Threads. 0 takes as many as there are processors.
   */
  uint32_t threads;
  /*
   What the function gets.
   */
  void *context;
  /*
   Asked before each entry, with the entries begun and the bytes made until then. NULL goes on.
   */
  dw_progress progress;
} dw_convert_options;

/*
 What is different about a path. Texts end with NUL and live until the function that is told returns.
 */
typedef struct dw_change {
  /*
   The path from the root, without leading "/"; empty for the root itself.
   */
  const char *path;
  /*
   All of it as one line for people, such as "M /etc/motd: size 3 → 5, contents".
   */
  const char *line;
  /*
   DW_ADDED, DW_REMOVED or DW_MODIFIED.
   */
  uint32_t kind;
  /*
   The type bits of st_mode of Linux: in the second tree, or in the first, if it is gone.
   */
  uint32_t mode;
} dw_change;

/*
 Hears of a difference, and says whether to go on: 0 if so, anything else ends it with DW_STOPPED.
 */
typedef int (*dw_on_change)(void *context, const struct dw_change *change);

/*
 How to compare. All zero but struct_size compares everything.
 */
typedef struct dw_diff_options {
  /*
   sizeof(dw_diff_options).
   */
  size_t struct_size;
  /*
   Any of DW_IGNORE_TIMES and its like.
   */
  uint32_t ignored;
  /*
   Threads that compare contents. 0 for one.
   */
  uint32_t threads;
  /*
   What the function gets.
   */
  void *context;
  /*
   Hears of each path that is different, in their order: parents before what is in them. NULL if nobody does.
   */
  dw_on_change change;
} dw_diff_options;

/*
 What was compared.
 */
typedef struct dw_diff_report {
  /*
   Paths that only the second tree has.
   */
  uint64_t added;
  /*
   Paths that only the first tree has, but for what is below them.
   */
  uint64_t removed;
  /*
   Paths of both that are not the same.
   */
  uint64_t modified;
  /*
   Bytes that were read to compare contents.
   */
  uint64_t bytes_read;
} dw_diff_report;

/*
 Something that is wrong in an image. All texts end with NUL and live until the function that is told returns.
 */
typedef struct dw_finding {
  /*
   Its kind, a stable name: "ext4-inode-checksum". docs/check.md has all of them.
   */
  const char *code;
  /*
   The structure that is wrong, in the words of the format.
   */
  const char *structure;
  /*
   What is wrong, as a sentence.
   */
  const char *meaning;
  /*
   What a repair does about it, as a sentence.
   */
  const char *repair;
  /*
   What more there is to say, or NULL.
   */
  const char *detail;
  /*
   What must be there, or NULL.
   */
  const char *expected;
  /*
   What is there, or NULL.
   */
  const char *found;
  /*
   The field that is wrong, or NULL.
   */
  const char *field;
  /*
   The directory entry or extended attribute concerned, or NULL; NULs in it are left out.
   */
  const char *name;
  /*
   The absolute path of the file concerned, or NULL; NULs in it are left out.
   */
  const char *path;
  /*
   Where it is.
   */
  struct dw_place place;
  /*
   DW_HARMLESS, DW_AT_RISK or DW_UNUSABLE.
   */
  uint32_t severity;
  /*
   0, for later versions.
   */
  uint32_t reserved;
} dw_finding;

/*
 Hears of a finding, and says whether the check shall go on: 0 if so, anything else ends it with DW_STOPPED. It is called
 by any thread, by one at a time.
 */
typedef int (*dw_on_finding)(void *context, const struct dw_finding *finding);

/*
 How to check. All zero but struct_size is fine.
 */
typedef struct dw_check_options {
  /*
   sizeof(dw_check_options).
   */
  size_t struct_size;
  /*
   Most threads. 0 takes as many as there are processors, at most 8.
   */
  uint32_t threads;
  /*
   0, for later versions.
   */
  uint32_t reserved;
  /*
   What the functions get.
   */
  void *context;
  /*
   Hears of each thing that is wrong. NULL if nobody does.
   */
  dw_on_finding finding;
  /*
   Asked often, with so much done of so much of a part of the check. Called by any thread, by one at a time. NULL goes on.
   */
  dw_progress progress;
} dw_check_options;

/*
 What a check looked at, and found.
 */
typedef struct dw_check_report {
  /*
   Things that are wrong.
   */
  uint64_t findings;
  /*
   Those among them that are DW_AT_RISK or DW_UNUSABLE.
   */
  uint64_t serious;
  /*
   1 if everything was looked at: nothing that is damaged kept the check from going on.
   */
  uint64_t is_complete;
  /*
   Transactions of the journal or log that were replayed in memory first.
   */
  uint64_t transactions_replayed;
  /*
   Inodes in use.
   */
  uint64_t inodes;
  /*
   Directories among them.
   */
  uint64_t directories;
  /*
   Blocks in use.
   */
  uint64_t blocks_used;
  /*
   All blocks.
   */
  uint64_t blocks;
} dw_check_report;

/*
 How to repair. All zero but struct_size is fine.
 */
typedef struct dw_repair_options {
  /*
   sizeof(dw_repair_options).
   */
  size_t struct_size;
  /*
   DW_REPAIR_PLAN_ONLY or 0.
   */
  uint32_t flags;
  /*
   Most threads. 0 takes as many as there are processors, at most 8.
   */
  uint32_t threads;
  /*
   A new file for what was there before. NULL keeps it only if the image has no journal or log that the repair can be
   written through, in a file beside the image with ".undo" behind its name.
   */
  const char *undo;
  /*
   What the functions get.
   */
  void *context;
  /*
   Hears of each thing that is wrong. NULL if nobody does.
   */
  dw_on_finding finding;
  /*
   Asked often, with so much done of so much of a part of the work. NULL goes on.
   */
  dw_progress progress;
} dw_repair_options;

/*
 What a repair found, and did.
 */
typedef struct dw_repair_report {
  /*
   Things that were wrong.
   */
  uint64_t findings;
  /*
   Steps that were carried out, or would be.
   */
  uint64_t steps;
  /*
   Things that are still wrong then.
   */
  uint64_t left;
  /*
   1 if nothing is known to be wrong then, and everything was looked at.
   */
  uint64_t is_clean;
  /*
   1 if each step was a transaction of the image's own journal or log.
   */
  uint64_t through_log;
  /*
   1 if an undo file was made.
   */
  uint64_t has_undo;
} dw_repair_report;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 The version of the library that runs, as a number: the first of its three numbers times 1,000,000, the second times
 1,000 and the third, all added.
 */
uint32_t dw_version_number(void);

/*
 The version of the library that runs, as text, such as "0.1.0". It is not to be freed.
 */
const char *dw_version(void);

/*
 The dw_code of an error; DW_OK for NULL.
 */
int dw_error_code(const struct dw_error *error);

/*
 The number that system calls have for an error: what the host said, if it is the host's or a callback's, and else the
 nearest. Damage is EIO. 0 for NULL.
 */
int dw_error_errno(const struct dw_error *error);

/*
 What went wrong, for people: one line of UTF-8 that names the file concerned. It lives as long as the error. "no error"
 for NULL.
 */
const char *dw_error_message(const struct dw_error *error);

/*
 The path in the image of the file concerned, as bytes without NUL; NULL if the error is of no one file. It lives as
 long as the error.
 */
const char *dw_error_path(const struct dw_error *error);

/*
 The structure that is damaged, in the words of the format, such as "extent tree node"; NULL if the error is no damage.
 It lives as long as the error.
 */
const char *dw_error_structure(const struct dw_error *error);

/*
 Where the damage lies. Returns 1 if the error is damage, and else 0, with nothing known of the place. `place` may be
 NULL.
 */
int dw_error_place(const struct dw_error *error,
                   struct dw_place *place);

/*
 Frees an error. NULL is fine.
 */
void dw_error_free(struct dw_error *error);

/*
 Frees bytes that a call made, and sets `data` to NULL and `len` to 0. NULL is fine, and so is freeing them again.
 */
void dw_bytes_free(struct dw_bytes *bytes);

/*
 Opens an image in a file of the host, or on a block device. `open` may be NULL. It is locked against other programs:
 shared with those that only read, if it is opened for reading. What its journal or log holds is replayed first: in
 memory, if it is opened for reading.
 */
int dw_open(const char *path,
            const struct dw_open_options *open,
            struct dw_image **image,
            struct dw_error **error);

/*
 Opens an image on a device of the caller's. `open` may be NULL. Nobody else may change it meanwhile.
 */
int dw_open_device(const struct dw_device *on,
                   const struct dw_open_options *open,
                   struct dw_image **image,
                   struct dw_error **error);

/*
 Makes a file of the host with an empty file system of `size` bytes, and opens it to be changed. The file takes space as
 it is filled. Fails, and leaves nothing, if there is a file already or the options cannot be.
 */
int dw_create(const char *path,
              uint64_t size,
              const struct dw_format_options *format,
              struct dw_image **image,
              struct dw_error **error);

/*
 Makes an empty file system that fills a device of the caller's, whatever it holds, and opens it to be changed.
 */
int dw_format_device(const struct dw_device *on,
                     const struct dw_format_options *format,
                     struct dw_image **image,
                     struct dw_error **error);

/*
 Makes all changes durable and leaves the image clean. It waits for calls of other threads. The handle stays, and so do
 those of files, directories and walks: calls with them fail with DW_CLOSED from there on, until each is freed. Closing
 it again does nothing.

 If it fails, the image could not be written; it is then as after a crash.
 */
int dw_image_close(struct dw_image *image,
                   struct dw_error **error);

/*
 Frees an image. One that was not closed is closed when nothing that was opened in it is left, and nobody hears of
 errors: close it first. NULL is fine.
 */
void dw_image_free(struct dw_image *image);

/*
 1 if the image was opened to be changed, 0 if not, or if this is no image.
 */
int dw_image_is_writable(const struct dw_image *image);

/*
 Makes all changes so far durable.

 After a crash, an image has the changes up to some moment, at least to the last dw_sync or dw_file_sync. One exception:
 regular files created since then in a large directory (1024 blocks or more) may be missing in any order.
 */
int dw_sync(const struct dw_image *image,
            struct dw_error **error);

/*
 Totals of space and inodes.
 */
int dw_statfs(const struct dw_image *image, struct dw_totals *totals, struct dw_error **error);

/*
 The label, to be freed with dw_bytes_free.
 */
int dw_label(const struct dw_image *image, struct dw_bytes *label, struct dw_error **error);

/*
 Gives the image another label: at most 16 bytes for ext4 and 12 for XFS.
 */
int dw_set_label(const struct dw_image *image, const char *label, struct dw_error **error);

/*
 What an image says about itself. It may be one without a root directory. `open` may be NULL; its place and DW_NORECOVERY
 count.
 */
int dw_read_info(const char *image,
                 const struct dw_open_options *open,
                 struct dw_info *info,
                 struct dw_error **error);

/*
 Opens a file. `flags` are DW_READ, DW_WRITE, DW_APPEND, DW_CREATE, DW_CREATE_NEW and DW_TRUNCATE; `mode` has the
 permission bits of a file that is made, such as 0644, and is 0 or ignored else. A symbolic link at the end of the path
 is followed, unless the file is to be new. A directory can be opened with DW_READ alone, to ask what is known of it.
 */
int dw_file_open(const struct dw_image *image,
                 const char *at,
                 uint32_t flags,
                 uint32_t mode,
                 struct dw_file **file,
                 struct dw_error **error);

/*
 Frees a file. What was written becomes durable with the next sync or close of the image. NULL is fine.
 */
void dw_file_free(struct dw_file *file);

/*
 Reads from `offset` on into `buffer`, which has `len` bytes. `count` gets how many were read: fewer than `len` only at
 the end of the file.
 */
int dw_pread(const struct dw_file *file,
             uint8_t *buffer,
             size_t len,
             uint64_t offset,
             size_t *count,
             struct dw_error **error);

/*
 Writes all of `data` at `offset`; a file that was opened with DW_APPEND gets it at its end instead. If it fails, a front
 part may have been written.
 */
int dw_pwrite(const struct dw_file *file,
              const uint8_t *data,
              size_t len,
              uint64_t offset,
              struct dw_error **error);

/*
 Sets the size of a file in bytes: what is past it goes, and what is new reads as zeros.
 */
int dw_file_truncate(const struct dw_file *file, uint64_t size, struct dw_error **error);

/*
 Returns when all that was done to the file so far is durable.
 */
int dw_file_sync(const struct dw_file *file, struct dw_error **error);

/*
 The same for its contents; times may stay behind.
 */
int dw_file_sync_data(const struct dw_file *file, struct dw_error **error);

/*
 What is known of an open file.
 */
int dw_file_stat(const struct dw_file *file, struct dw_metadata *metadata, struct dw_error **error);

/*
 Sets the permission bits of an open file, which are below 010000.
 */
int dw_file_chmod(const struct dw_file *file, uint32_t mode, struct dw_error **error);

/*
 Sets owner and group of an open file; DW_KEEP keeps one.
 */
int dw_file_chown(const struct dw_file *file, uint32_t uid, uint32_t gid, struct dw_error **error);

/*
 Sets times of an open file, each if it is not NULL.
 */
int dw_file_utimes(const struct dw_file *file,
                   const struct dw_time *atime,
                   const struct dw_time *mtime,
                   const struct dw_time *crtime,
                   struct dw_error **error);

/*
 The whole contents of a file, to be freed with dw_bytes_free. A few bytes of an image can claim a file of terabytes:
 where images come from others, ask for the size first, or read in pieces.
 */
int dw_read_file(const struct dw_image *image,
                 const char *at,
                 struct dw_bytes *contents,
                 struct dw_error **error);

/*
 Makes a file with these contents, or replaces those of the one that is there. If it fails, a front part may have been
 written.
 */
int dw_write_file(const struct dw_image *image,
                  const char *at,
                  const uint8_t *data,
                  size_t len,
                  struct dw_error **error);

/*
 Copies contents and permissions of a file over another one of the image, which is made if it is not there. `copied` may
 be NULL, and gets how many bytes.
 */
int dw_copy_file(const struct dw_image *image,
                 const char *from,
                 const char *to,
                 uint64_t *copied,
                 struct dw_error **error);

/*
 Begins to list a directory. No lock is held between two entries: the image may change meanwhile, and entries that come
 or go may be listed or not.
 */
int dw_dir_open(const struct dw_image *image,
                const char *at,
                struct dw_dir **dir,
                struct dw_error **error);

/*
 Gives the next entry, in the directory's own order and without "." and "..". `entry` gets NULL at the end, and else what
 lives until the next call with this directory. After an error, the next call goes on.
 */
int dw_dir_next(struct dw_dir *dir,
                const struct dw_entry **entry,
                struct dw_error **error);

/*
 Frees a directory. NULL is fine.
 */
void dw_dir_free(struct dw_dir *dir);

/*
 Begins a walk through everything from a path down, that itself first: depth first, directories before what is in them.
 A symbolic link at the path is followed, and none below. `flags` are DW_SORTED or 0. What comes or goes meanwhile may be
 met or not.
 */
int dw_walk_open(const struct dw_image *image,
                 const char *at,
                 uint32_t flags,
                 struct dw_walk **walk,
                 struct dw_error **error);

/*
 Gives what the walk comes to next. `entry` gets NULL at the end, and else what lives until the next call with this walk.
 After an error, the next call goes on behind what it concerns; every walk ends.
 */
int dw_walk_next(struct dw_walk *walk,
                 const struct dw_walk_entry **entry,
                 struct dw_error **error);

/*
 Leaves out what is below the directory that was given last.
 */
int dw_walk_skip(struct dw_walk *walk, struct dw_error **error);

/*
 Frees a walk. NULL is fine.
 */
void dw_walk_free(struct dw_walk *walk);

/*
 What is known of a file. Symbolic links are followed.
 */
int dw_stat(const struct dw_image *image,
            const char *at,
            struct dw_metadata *metadata,
            struct dw_error **error);

/*
 The same, but a symbolic link at the end of the path is not followed.
 */
int dw_lstat(const struct dw_image *image,
             const char *at,
             struct dw_metadata *metadata,
             struct dw_error **error);

/*
 Sets the permission bits, which are below 010000. Symbolic links are followed.
 */
int dw_chmod(const struct dw_image *image, const char *at, uint32_t mode, struct dw_error **error);

/*
 Sets owner and group; DW_KEEP keeps one. As in Linux, set-user-id and set-group-id and capabilities of a program go.
 Symbolic links are followed, unless `flags` is DW_NOFOLLOW.
 */
int dw_chown(const struct dw_image *image,
             const char *at,
             uint32_t uid,
             uint32_t gid,
             uint32_t flags,
             struct dw_error **error);

/*
 Sets times, each if it is not NULL: of reading, of change, and of making, where the image keeps that. Symbolic links are
 followed, unless `flags` is DW_NOFOLLOW.
 */
int dw_utimes(const struct dw_image *image,
              const char *at,
              const struct dw_time *atime,
              const struct dw_time *mtime,
              const struct dw_time *crtime,
              uint32_t flags,
              struct dw_error **error);

/*
 Makes a directory, with the permissions 0755.
 */
int dw_mkdir(const struct dw_image *image, const char *at, struct dw_error **error);

/*
 Makes a directory and those above it that are missing. What is there already stays as it is.
 */
int dw_mkdir_all(const struct dw_image *image, const char *at, struct dw_error **error);

/*
 Removes the name of anything but a directory; the file goes with its last name, or when nobody has it open any more. A
 symbolic link is not followed.
 */
int dw_unlink(const struct dw_image *image,
              const char *at,
              struct dw_error **error);

/*
 Removes an empty directory.
 */
int dw_rmdir(const struct dw_image *image, const char *at, struct dw_error **error);

/*
 Removes a directory with everything in it. Symbolic links are not followed. What was removed before an error is gone.
 */
int dw_remove_all(const struct dw_image *image,
                  const char *at,
                  struct dw_error **error);

/*
 Moves a file or a directory. `flags` are 0, and what has the new name is replaced (but a directory only by a directory,
 and only if it is empty), or DW_RENAME_NOREPLACE, or DW_RENAME_EXCHANGE. Symbolic links at the end of both paths are not
 followed.
 */
int dw_rename(const struct dw_image *image,
              const char *from,
              const char *to,
              uint32_t flags,
              struct dw_error **error);

/*
 Gives a file another name. A symbolic link at `original` is not followed, but given the name itself.
 */
int dw_link(const struct dw_image *image, const char *original, const char *link, struct dw_error **error);

/*
 Makes a symbolic link to `target`, which may be anything: it is not looked at.
 */
int dw_symlink(const struct dw_image *image, const char *target, const char *link, struct dw_error **error);

/*
 The target of a symbolic link, to be freed with dw_bytes_free.
 */
int dw_readlink(const struct dw_image *image,
                const char *at,
                struct dw_bytes *target,
                struct dw_error **error);

/*
 The path of what a path leads to, from the root, without symbolic links, "." and ".."; to be freed with dw_bytes_free.
 */
int dw_realpath(const struct dw_image *image,
                const char *at,
                struct dw_bytes *real,
                struct dw_error **error);

/*
 Makes a device, a named pipe or a socket. `mode` has its type and permissions, as st_mode of Linux does: 0060660 is a
 block device. The numbers are those of a device.
 */
int dw_mknod(const struct dw_image *image,
             const char *at,
             uint32_t mode,
             uint32_t major,
             uint32_t minor,
             struct dw_error **error);

/*
 The value of an extended attribute, to be freed with dw_bytes_free. Names are as Linux has them: "user.comment",
 "security.capability". Here and below, a symbolic link at the end of the path is not followed: dw_file_xattr_get and its
 like are for what it leads to.
 */
int dw_xattr_get(const struct dw_image *image,
                 const char *at,
                 const char *name,
                 struct dw_bytes *value,
                 struct dw_error **error);

/*
 Sets an extended attribute to a value of `len` bytes.
 */
int dw_xattr_set(const struct dw_image *image,
                 const char *at,
                 const char *name,
                 const uint8_t *value,
                 size_t len,
                 struct dw_error **error);

/*
 The names of a file's extended attributes, sorted, with a NUL behind each; to be freed with dw_bytes_free.
 */
int dw_xattr_list(const struct dw_image *image,
                  const char *at,
                  struct dw_bytes *names,
                  struct dw_error **error);

/*
 Removes an extended attribute.
 */
int dw_xattr_remove(const struct dw_image *image, const char *at, const char *name, struct dw_error **error);

/*
 As dw_xattr_get, of an open file.
 */
int dw_file_xattr_get(const struct dw_file *file,
                      const char *name,
                      struct dw_bytes *value,
                      struct dw_error **error);

/*
 As dw_xattr_set, of an open file.
 */
int dw_file_xattr_set(const struct dw_file *file,
                      const char *name,
                      const uint8_t *value,
                      size_t len,
                      struct dw_error **error);

/*
 As dw_xattr_list, of an open file.
 */
int dw_file_xattr_list(const struct dw_file *file, struct dw_bytes *names, struct dw_error **error);

/*
 As dw_xattr_remove, of an open file.
 */
int dw_file_xattr_remove(const struct dw_file *file, const char *name, struct dw_error **error);

/*
 Copies a file or directory of the host to `to` in an image, or into it, if it is a directory. A file that is there is
 replaced. `how` and `report` may be NULL. What was copied before an error stays.

 Calls of other threads that remove names of this image wait meanwhile.
 */
int dw_copy_in(const struct dw_image *image,
               const char *from,
               const char *to,
               const struct dw_copy_options *how,
               struct dw_copy_report *report,
               struct dw_error **error);

/*
 Copies a file or directory of an image to `to` on the host, or into it, if it is a directory. Files in the way are
 replaced, but no image that somebody uses. `how` and `report` may be NULL. What was copied before an error stays.
 */
int dw_copy_out(const struct dw_image *image,
                const char *from,
                const char *to,
                const struct dw_copy_options *how,
                struct dw_copy_report *report,
                struct dw_error **error);

/*
 Copies all that is in a directory of the image, or a file, into a directory of the host, which is made if it is not
 there: with owners, times and attributes, as far as the host lets. No name or link of a hostile image leads outside of
 it. `how` and `report` may be NULL. What was extracted before an error stays.
 */
int dw_extract(const struct dw_image *image,
               const char *from,
               const char *directory,
               const struct dw_copy_options *how,
               struct dw_copy_report *report,
               struct dw_error **error);

/*
 Builds an image of directories, archives, container images and other images, which `sources` names as the arguments of
 `diskwright build` do: "rootfs", "rootfs.tar.zst", "oci:layout:latest", "docker-archive:web.tar", "image:disk.img:2".
 Later ones are put over those before them. `image` gets its name when it is finished; nothing is left there after an
 error. `report` may be NULL.

 The same sources and options give the same bytes, whatever the number of threads.
 */
int dw_build(const char *const *sources,
             size_t source_count,
             const char *image,
             const struct dw_build_options *how,
             struct dw_build_report *report,
             struct dw_error **error);

/*
 Makes an image of another one, with everything that is in it. The old image is never written. `how` and `report` may be
 NULL.
 */
int dw_convert(const char *from,
               const char *to,
               const struct dw_convert_options *how,
               struct dw_build_report *report,
               struct dw_error **error);

/*
 Compares two trees by what is in them: `a` and `b` are images, or directories of the host. `open_a`, `open_b` (of which the
 place and DW_NORECOVERY count), `how` and `report` may be NULL.
 */
int dw_diff(const char *a,
            const struct dw_open_options *open_a,
            const char *b,
            const struct dw_open_options *open_b,
            const struct dw_diff_options *how,
            struct dw_diff_report *report,
            struct dw_error **error);

/*
 Looks at everything in an image and tells of each thing that is wrong. Nothing is written. Damage is no error: `report`
 counts it. An error says that the image cannot be checked at all. `open`, `how` and `report` may be NULL; of `open`, the
 place and DW_NORECOVERY count.
 */
int dw_check(const char *image,
             const struct dw_open_options *open,
             const struct dw_check_options *how,
             struct dw_check_report *report,
             struct dw_error **error);

/*
 The same of what lies on a device of the caller's, which nobody changes meanwhile.
 */
int dw_check_device(const struct dw_device *on,
                    const struct dw_open_options *open,
                    const struct dw_check_options *how,
                    struct dw_check_report *report,
                    struct dw_error **error);

/*
 Repairs an image. The repair is tried out in memory first, and then written through the image's own journal or log, or
 in place with an undo file. If it is ended on the way (DW_STOPPED, DW_IO, a kill), the image can be repaired again, or
 restored where there is an undo file. That not all can be repaired is no error: `report` says so. `open`, `how` and
 `report` may be NULL; of `open`, the place counts.
 */
int dw_repair(const char *image,
              const struct dw_open_options *open,
              const struct dw_repair_options *how,
              struct dw_repair_report *report,
              struct dw_error **error);

/*
 Brings an image back to what it was before a repair that made this undo file, byte by byte. It may be done again if it
 was interrupted. Nothing is written if the file is none, or of another image, or the image was changed since. `open` may
 be NULL; its place counts.
 */
int dw_restore(const char *undo,
               const char *image,
               const struct dw_open_options *open,
               struct dw_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DISKWRIGHT_H */

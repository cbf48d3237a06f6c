/* Diskwright: ext4 and XFS in user space. MIT OR Apache-2.0.
 *
 * Rules for all functions
 *
 * Errors. A function that can fail returns DW_OK (0) or another dw_code. Its last argument, `error`, may be NULL. Otherwise
 * every call sets *error: to NULL, or to a new error with details, to be freed with dw_error_free. Results of a failed call
 * are NULL or unchanged.
 *
 * Pointers must be valid for their type; they may be NULL only where a comment permits it. Strings end with NUL. A path in an
 * image consists of any bytes except NUL, with "/" between names; it starts at the root, with or without a leading "/". Host
 * paths are bytes on Unix, and UTF-8 elsewhere.
 *
 * Structures that begin with struct_size must be zeroed first, with struct_size set to their size. Zero in a field selects
 * the default. So programs that were compiled with an older header keep their behaviour.
 *
 * Handles (dw_image, dw_file, dw_dir, dw_walk, dw_error) must be freed once, each with the function for its kind, which
 * accepts NULL as well, and must not be used after that. They may be freed in any order: files outlive their image. A handle
 * that is NULL or of another kind is rejected with DW_BAD_HANDLE; the functions that free ignore a handle of another kind.
 * After dw_image_close, all other handles of the image return DW_CLOSED, and must still be freed.
 *
 * Threads. All state is in handles. Any number of threads may use dw_image and dw_file concurrently. dw_dir, dw_walk and
 * dw_error may move to other threads, but must not be used concurrently. A handle must not be in use by other threads when
 * it is freed. The child of a fork must neither use nor free handles of its parent.
 *
 * Callbacks are called during the calls that they were passed to (those of a dw_device: until it is released). They must
 * return (no exception, no longjmp) and must not use the image of the call.
 *
 * Damaged or hostile images cause errors, never crashes or hangs. Permissions are not checked: a program that can open an
 * image can do everything in it.
 *
 * This file is generated from crates/front/capi/src; docs/c.md is the guide. */

#ifndef DISKWRIGHT_H
#define DISKWRIGHT_H

#include <stddef.h>
#include <stdint.h>

/*
 Major version of this header.
 */
#define DW_VERSION_MAJOR 0

/*
 Minor version. Before 1.0, versions with different minor numbers may be incompatible.
 */
#define DW_VERSION_MINOR 1

/*
 Patch version.
 */
#define DW_VERSION_PATCH 0

/*
 An unknown number.
 */
#define DW_NONE UINT64_MAX

/*
 Open for writing.
 */
#define DW_WRITABLE 1

/*
 Read the image without a replay of its journal or log, even if another program may be changing it.
 */
#define DW_NORECOVERY 2

/*
 ext4; ext2 and ext3 are ext4 with fewer features.
 */
#define DW_EXT4 1

/*
 XFS.
 */
#define DW_XFS 2

/*
 Allow an XFS image below 300 MiB, which mkfs.xfs refuses because such images are slow.
 */
#define DW_SMALL 1

/*
 Open for reading.
 */
#define DW_READ 1

/*
 Open for writing.
 */
#define DW_WRITE 2

/*
 Write at the current end of the file only.
 */
#define DW_APPEND 4

/*
 Create the file if it does not exist.
 */
#define DW_CREATE 8

/*
 Create the file; fail if it exists.
 */
#define DW_CREATE_NEW 16

/*
 Truncate the file.
 */
#define DW_TRUNCATE 32

/*
 Sort the entries of each directory by the bytes of their names.
 */
#define DW_SORTED 1

/*
 An owner with this value is not changed.
 */
#define DW_KEEP UINT32_MAX

/*
 Do not follow a symbolic link at the end of the path.
 */
#define DW_NOFOLLOW 1

/*
 dw_rename fails if the new name exists.
 */
#define DW_RENAME_NOREPLACE 1

/*
 dw_rename exchanges the two names; both must exist.
 */
#define DW_RENAME_EXCHANGE 2

/*
 Copy directories with everything in them, symbolic links as links, and special files. Without it, only regular files
 are copied, and links are followed.
 */
#define DW_RECURSIVE 1

/*
 Preserve owners, all permission bits, times and extended attributes. For dw_copy_in and dw_copy_out.
 */
#define DW_PRESERVE 2

/*
 dw_extract continues after unreadable parts of the image.
 */
#define DW_KEEP_GOING 4

/*
 dw_extract accepts a directory that is not empty, and replaces files in it.
 */
#define DW_FORCE 8

/*
 dw_extract restores only contents and permissions.
 */
#define DW_PLAIN 16

/*
 Allow the replacement of an existing image.
 */
#define DW_BUILD_FORCE 1

/*
 Allow an XFS image below 300 MiB.
 */
#define DW_BUILD_SMALL 2

/*
 Create no journal (ext4).
 */
#define DW_BUILD_NO_JOURNAL 4

/*
 Set the owner of all files to `uid` and `gid`.
 */
#define DW_BUILD_OWNER 8

/*
 Allow the replacement of an existing image, even of the old image itself, which stays until the new one is complete.
 */
#define DW_CONVERT_FORCE 1

/*
 Allow an XFS image below 300 MiB.
 */
#define DW_CONVERT_SMALL 2

/*
 Keep the UUID of the old image.
 */
#define DW_CONVERT_KEEP_UUID 4

/*
 Create the new image with the minimum size for its contents.
 */
#define DW_CONVERT_LEAST 8

/*
 Ignore modification times.
 */
#define DW_IGNORE_TIMES 1

/*
 Ignore owners and groups.
 */
#define DW_IGNORE_OWNER 2

/*
 Ignore permission bits.
 */
#define DW_IGNORE_MODE 4

/*
 Ignore extended attributes.
 */
#define DW_IGNORE_XATTRS 8

/*
 Ignore inode flags.
 */
#define DW_IGNORE_FLAGS 16

/*
 Ignore which names lead to the same file.
 */
#define DW_IGNORE_LINKS 32

/*
 The path exists in the second tree only.
 */
#define DW_ADDED 1

/*
 The path exists in the first tree only. The entries of a removed directory are not reported.
 */
#define DW_REMOVED 2

/*
 The path exists in both trees and differs.
 */
#define DW_MODIFIED 3

/*
 Wrong, but without loss.
 */
#define DW_HARMLESS 0

/*
 Contents, names or attributes are lost or may be lost, now or with the next change.
 */
#define DW_AT_RISK 1

/*
 The image, or the named part of it, is unusable.
 */
#define DW_UNUSABLE 2

/*
 dw_repair only plans the repair and changes nothing.
 */
#define DW_REPAIR_PLAN_ONLY 1

/*
 Result of a call. Later versions may add codes.
 */
typedef enum dw_code {
  /*
   Success.
   */
  DW_OK = 0,
  /*
   The file, directory or name does not exist.
   */
  DW_NOT_FOUND = 1,
  /*
   The name exists already.
   */
  DW_EXISTS = 2,
  /*
   A component is not a directory.
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
   A name exceeds 255 bytes, or a target the maximum of the format.
   */
  DW_NAME_TOO_LONG = 6,
  /*
   Symbolic links form a loop or are nested too deeply.
   */
  DW_SYMLINK_LOOP = 7,
  /*
   The file has the maximum number of links.
   */
  DW_TOO_MANY_LINKS = 8,
  /*
   The size exceeds the maximum of the format or of memory.
   */
  DW_FILE_TOO_LARGE = 9,
  /*
   No free blocks or inodes, or no space for an attribute.
   */
  DW_NO_SPACE = 10,
  /*
   The file has no such extended attribute.
   */
  DW_NO_ATTRIBUTE = 11,
  /*
   The image, or this call's view of it, is read-only.
   */
  DW_READ_ONLY = 12,
  /*
   The request is invalid; the message contains the reason.
   */
  DW_INVALID = 13,
  /*
   Forbidden by the file's flags or by the host.
   */
  DW_NOT_PERMITTED = 14,
  /*
   The file's project (quota) differs from that of the directory.
   */
  DW_OTHER_PROJECT = 15,
  /*
   The names or contents are encrypted, and the key was not given.
   */
  DW_ENCRYPTED = 16,
  /*
   The image or the request uses an unsupported feature.
   */
  DW_UNSUPPORTED = 17,
  /*
   The image is damaged. dw_error_structure and dw_error_place return the location.
   */
  DW_DAMAGED = 18,
  /*
   A read or write of the device or host failed. dw_error_errno returns the number.
   */
  DW_IO = 19,
  /*
   Another program uses the image.
   */
  DW_IN_USE = 20,
  /*
   The image has been closed.
   */
  DW_CLOSED = 21,
  /*
   The file is not open for this access.
   */
  DW_NOT_OPEN_FOR = 22,
  /*
   A callback cancelled the operation.
   */
  DW_STOPPED = 23,
  /*
   The handle is NULL or of another kind.
   */
  DW_BAD_HANDLE = 24,
  /*
   Any other error; the message describes it.
   */
  DW_FAILED = 25,
  /*
   A bug in this library. The effects of the call are unknown: close the image.
   */
  DW_BUG = 26,
} dw_code;

/*
 A directory listing. It must not be used concurrently, because an entry is valid only until the next call.
 */
typedef struct dw_dir dw_dir;

/*
 An error of a failed call, to be freed with dw_error_free. Several threads may read it.
 */
typedef struct dw_error dw_error;

/*
 An open file, which any number of threads may use concurrently. It is valid until it is freed, even after the
 removal of its last name, and may be freed after its image.
 */
typedef struct dw_file dw_file;

/*
 An open image, which any number of threads may use concurrently.
 */
typedef struct dw_image dw_image;

/*
 A walk through a tree. It must not be used concurrently, because an entry is valid only until the next call.
 */
typedef struct dw_walk dw_walk;

/*
 Location of damage in an image. Unknown fields are DW_NONE.
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
 A buffer returned by a call, to be freed with dw_bytes_free. It is followed by a NUL that `len` does not include, so
 a buffer without NUL bytes is a C string.
 */
typedef struct dw_bytes {
  /*
   The bytes; NULL if there is nothing to free.
   */
  uint8_t *data;
  /*
   Number of bytes.
   */
  size_t len;
} dw_bytes;

/*
 Options of opening. If all fields but struct_size are zero, the whole file is opened as an image for reading.
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
   Partition of the image on a disk with GPT or MBR, starting at 1. 0 for none.
   */
  uint32_t partition;
  /*
   Offset of the image in bytes, if no partition is given.
   */
  uint64_t offset;
  /*
   Size of the metadata cache in bytes. 0 for the default.
   */
  uint64_t cache_bytes;
  /*
   Owner of new files.
   */
  uint32_t uid;
  /*
   Group of new files.
   */
  uint32_t gid;
} dw_open_options;

/*
 A device implemented by functions of the caller. They return 0, or an errno. They are called by any thread, also
 concurrently, for ranges within `size`. They must not use the image on the device, and must return: no exception, no
 longjmp.
 */
typedef struct dw_device {
  /*
   sizeof(dw_device).
   */
  size_t struct_size;
  /*
   Passed to the callbacks.
   */
  void *context;
  /*
   Size of the device in bytes. If the device becomes shorter, its functions must fail for the missing part.
   */
  uint64_t size;
  /*
   Fills the buffer with the bytes from `offset` on.
   */
  int (*read)(void *context, uint64_t offset, void *buffer, size_t len);
  /*
   Writes all of the bytes at `offset`. NULL for a read-only device.
   */
  int (*write)(void *context, uint64_t offset, const void *data, size_t len);
  /*
   Makes a range read as zeros. If NULL, zeros are written.
   */
  int (*zero)(void *context, uint64_t offset, uint64_t len);
  /*
   Returns when all earlier writes are durable. NULL if writes are durable, or durability does not matter.
   */
  int (*flush)(void *context);
  /*
   Called once, by any thread, when the library no longer needs the device: when the image is closed, when
   everything opened in it is freed, or before a call that failed to open it returns. May be NULL. Not called if
   the structure itself is rejected, because struct_size is wrong or `read` is NULL.
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
   Must be 0; reserved for later versions.
   */
  uint32_t reserved;
} dw_time;

/*
 Options of a new image. If all fields but struct_size and format are zero, the defaults of mke2fs and mkfs.xfs
 apply.
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
   Label: at most 16 bytes for ext4 and 12 for XFS. NULL for none.
   */
  const char *label;
  /*
   Changes of the default features, named as in mke2fs or mkfs.xfs: "-has_journal,casefold". NULL for none.
   */
  const char *features;
  /*
   The 16 bytes of the UUID. NULL for a random one.
   */
  const uint8_t *uuid;
  /*
   The 16-byte seed of directory hashes (ext4). NULL for a random one.
   */
  const uint8_t *hash_seed;
  /*
   All times of the new file system. NULL for the current time.
   */
  const struct dw_time *time;
  /*
   Block size in bytes. 0 for the default.
   */
  uint32_t block_size;
  /*
   Inode size in bytes. 0 for the default.
   */
  uint32_t inode_size;
  /*
   Number of inodes (ext4). 0 for the default.
   */
  uint32_t inodes;
  /*
   Number of allocation groups (XFS). 0 for the default.
   */
  uint32_t ag_count;
  /*
   Size of the journal or log in bytes. 0 for the default.
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
   Maximum length of a name in bytes.
   */
  uint32_t name_len_max;
  /*
   Blocks for files and metadata.
   */
  uint64_t blocks;
  /*
   Free blocks.
   */
  uint64_t blocks_free;
  /*
   Free blocks available to unprivileged users.
   */
  uint64_t blocks_available;
  /*
   Number of inodes.
   */
  uint64_t inodes;
  /*
   Number of free inodes.
   */
  uint64_t inodes_free;
  /*
   Zeros; reserved for later versions.
   */
  uint64_t reserved[4];
} dw_totals;

/*
 Information in the superblock of an image, without a replay of the journal. Strings are UTF-8, end with NUL, and are
 truncated if necessary.
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
   "clean", or the state in the terms of the format.
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
   Number of all blocks.
   */
  uint64_t blocks;
  /*
   Free blocks.
   */
  uint64_t blocks_free;
  /*
   Number of inodes (XFS: those allocated at present).
   */
  uint64_t inodes;
  /*
   Number of free inodes.
   */
  uint64_t inodes_free;
  /*
   1 if the journal or log needs recovery.
   */
  uint64_t needs_recovery;
  /*
   Zeros; reserved for later versions.
   */
  uint64_t reserved[4];
} dw_info;

/*
 Attributes of a file.
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
   Allocated space, in units of 512 bytes.
   */
  uint64_t blocks;
  /*
   Number of links.
   */
  uint64_t nlink;
  /*
   Type and permission bits as in st_mode of Linux: 0100644 is a regular file.
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
   1 if crtime is known, otherwise 0.
   */
  uint32_t has_crtime;
  /*
   Last access, if a program maintains it. This library does not.
   */
  struct dw_time atime;
  /*
   Last change of the contents.
   */
  struct dw_time mtime;
  /*
   Last change of the inode.
   */
  struct dw_time ctime;
  /*
   Creation time.
   */
  struct dw_time crtime;
  /*
   Zeros; reserved for later versions.
   */
  uint64_t reserved[4];
} dw_metadata;

/*
 An entry of a directory.
 */
typedef struct dw_entry {
  /*
   Name: any bytes, followed by NUL.
   */
  const char *name;
  /*
   Length of the name in bytes.
   */
  size_t name_len;
  /*
   Inode number.
   */
  uint64_t ino;
  /*
   Type bits as in st_mode of Linux: 0040000 is a directory. 0 if the type is unknown, because the image is
   damaged.
   */
  uint32_t mode;
  /*
   Must be 0; reserved for later versions.
   */
  uint32_t reserved;
} dw_entry;

/*
 An entry of a walk.
 */
typedef struct dw_walk_entry {
  /*
   Path: the start of the walk, followed by the names from there. Ends with NUL.
   */
  const char *path;
  /*
   Length of the path in bytes.
   */
  size_t path_len;
  /*
   The last name, as a part of the path; empty for the start of the walk.
   */
  const char *name;
  /*
   Depth below the start of the walk.
   */
  uint64_t depth;
  /*
   Attributes when the walk reached the entry.
   */
  struct dw_metadata metadata;
} dw_walk_entry;

/*
 Receives progress. Returns 0 to continue; any other value cancels the operation with DW_STOPPED. It must return, and
 must not use the image.
 */
typedef int (*dw_progress)(void *context, uint64_t done, uint64_t bytes);

/*
 Receives a warning about omitted or unexpected data. The string is valid until the callback returns.
 */
typedef void (*dw_warning)(void *context, const char *message);

/*
 Options of copies. If all fields but struct_size are zero, one file is copied.
 */
typedef struct dw_copy_options {
  /*
   sizeof(dw_copy_options).
   */
  size_t struct_size;
  /*
   Any of DW_RECURSIVE, DW_PRESERVE, DW_KEEP_GOING, DW_FORCE and DW_PLAIN that the call supports.
   */
  uint32_t flags;
  /*
   Must be 0; reserved for later versions.
   */
  uint32_t reserved;
  /*
   Passed to the callbacks.
   */
  void *context;
  /*
   Called before each file with the number of files and bytes so far. May be NULL.
   */
  dw_progress progress;
  /*
   Receives warnings about omitted files and attributes. May be NULL.
   */
  dw_warning warning;
} dw_copy_options;

/*
 Result of a copy.
 */
typedef struct dw_copy_report {
  /*
   Number of files of any type.
   */
  uint64_t files;
  /*
   Number of bytes of contents, without holes.
   */
  uint64_t bytes;
  /*
   Number of files of the image that could not be read completely (DW_KEEP_GOING).
   */
  uint64_t unreadable;
  /*
   Number of files and attributes that the destination does not support.
   */
  uint64_t left_out;
} dw_copy_report;

/*
 Options of dw_build. If all fields but struct_size and format are zero, the image has the minimum size for the
 source.
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
   Size in bytes. 0 for the minimum size for the source.
   */
  uint64_t size;
  /*
   Additional free space in bytes, if the size is computed.
   */
  uint64_t free;
  /*
   The label. NULL for none.
   */
  const char *label;
  /*
   Changes of the default features, separated by commas: "^has_journal,+large_dir". NULL for none.
   */
  const char *features;
  /*
   The 16 bytes of the UUID. NULL derives one from the contents.
   */
  const uint8_t *uuid;
  /*
   Maximum of all times in the image, in seconds since 1970. NULL for no limit. The environment variable
   SOURCE_DATE_EPOCH is ignored.
   */
  const int64_t *source_date_epoch;
  /*
   Block size in bytes. 0 for the default.
   */
  uint32_t block_size;
  /*
   Inode size in bytes. 0 for the default.
   */
  uint32_t inode_size;
  /*
   Owner of all files, with DW_BUILD_OWNER.
   */
  uint32_t uid;
  /*
   Group of all files, with DW_BUILD_OWNER.
   */
  uint32_t gid;
  /*
   Number of threads. 0 for the number of processors. The image does not depend on it.
   */
  uint32_t threads;
  /*
   Must be 0; reserved for later versions.
   */
  uint32_t reserved;
  /*
   Passed to the callback.
   */
  void *context;
  /*
   Called before each entry with the number of entries started and bytes written so far. May be NULL.
   */
  dw_progress progress;
} dw_build_options;

/*
 Result of dw_build.
 */
typedef struct dw_build_report {
  /*
   Size of the image in bytes.
   */
  uint64_t image_bytes;
  /*
   Number of files created, of any type.
   */
  uint64_t entries;
  /*
   Number of bytes of file contents.
   */
  uint64_t data_bytes;
} dw_build_report;

/*
 Options of dw_convert. If all fields but struct_size are zero, the new image has the same format and size.
 */
typedef struct dw_convert_options {
  /*
   sizeof(dw_convert_options).
   */
  size_t struct_size;
  /*
   DW_EXT4 or DW_XFS; 0 for the format of the old image.
   */
  uint32_t format;
  /*
   Any of DW_CONVERT_FORCE, DW_CONVERT_SMALL, DW_CONVERT_KEEP_UUID and DW_CONVERT_LEAST.
   */
  uint32_t flags;
  /*
   Size in bytes. 0 for the size of the old image, or larger if necessary.
   */
  uint64_t size;
  /*
   New label. NULL keeps the old one.
   */
  const char *label;
  /*
   Changes of the features, separated by commas. NULL for none.
   */
  const char *features;
  /*
   Offset of the old image in bytes, if no partition is given.
   */
  uint64_t offset;
  /*
   Partition of the old image, starting at 1. 0 for none.
   */
  uint32_t partition;
  /*
   Number of threads. 0 for the number of processors.
   */
  uint32_t threads;
  /*
   Passed to the callback.
   */
  void *context;
  /*
   Called before each entry with the number of entries started and bytes written so far. May be NULL.
   */
  dw_progress progress;
} dw_convert_options;

/*
 A difference at a path. Strings end with NUL and are valid until the callback returns.
 */
typedef struct dw_change {
  /*
   Path from the root, without leading "/"; empty for the root itself.
   */
  const char *path;
  /*
   The difference as a human-readable line, such as "M /etc/motd: size 3 → 5, contents".
   */
  const char *line;
  /*
   DW_ADDED, DW_REMOVED or DW_MODIFIED.
   */
  uint32_t kind;
  /*
   Type bits as in st_mode of Linux: in the second tree, or in the first if it was removed.
   */
  uint32_t mode;
} dw_change;

/*
 Receives a difference. Returns 0 to continue; any other value cancels the comparison with DW_STOPPED.
 */
typedef int (*dw_on_change)(void *context, const struct dw_change *change);

/*
 Options of dw_diff. If all fields but struct_size are zero, everything is compared.
 */
typedef struct dw_diff_options {
  /*
   sizeof(dw_diff_options).
   */
  size_t struct_size;
  /*
   Any of the DW_IGNORE_ flags.
   */
  uint32_t ignored;
  /*
   Number of threads that compare contents. 0 for one.
   */
  uint32_t threads;
  /*
   Passed to the callback.
   */
  void *context;
  /*
   Receives each difference in the order of paths: parents before their entries. May be NULL.
   */
  dw_on_change change;
} dw_diff_options;

/*
 Result of dw_diff.
 */
typedef struct dw_diff_report {
  /*
   Number of paths in the second tree only.
   */
  uint64_t added;
  /*
   Number of paths in the first tree only, without those below removed directories.
   */
  uint64_t removed;
  /*
   Number of paths that differ.
   */
  uint64_t modified;
  /*
   Number of bytes read to compare contents.
   */
  uint64_t bytes_read;
} dw_diff_report;

/*
 A fault in an image. All strings end with NUL and are valid until the callback returns.
 */
typedef struct dw_finding {
  /*
   Stable code of the finding: "ext4-inode-checksum". docs/check.md lists all codes.
   */
  const char *code;
  /*
   The affected structure, in the terms of the format.
   */
  const char *structure;
  /*
   Description of the fault, as a sentence.
   */
  const char *meaning;
  /*
   Description of the repair, as a sentence.
   */
  const char *repair;
  /*
   Further details, or NULL.
   */
  const char *detail;
  /*
   Expected value, or NULL.
   */
  const char *expected;
  /*
   Actual value, or NULL.
   */
  const char *found;
  /*
   The affected field, or NULL.
   */
  const char *field;
  /*
   The affected directory entry or extended attribute, or NULL. NUL bytes are omitted.
   */
  const char *name;
  /*
   Absolute path of the affected file, or NULL. NUL bytes are omitted.
   */
  const char *path;
  /*
   Location of the fault.
   */
  struct dw_place place;
  /*
   DW_HARMLESS, DW_AT_RISK or DW_UNUSABLE.
   */
  uint32_t severity;
  /*
   Must be 0; reserved for later versions.
   */
  uint32_t reserved;
} dw_finding;

/*
 Receives a finding. Returns 0 to continue; any other value cancels the check with DW_STOPPED. Called by any thread,
 but never concurrently.
 */
typedef int (*dw_on_finding)(void *context, const struct dw_finding *finding);

/*
 Options of dw_check. All fields but struct_size may be zero.
 */
typedef struct dw_check_options {
  /*
   sizeof(dw_check_options).
   */
  size_t struct_size;
  /*
   Maximum number of threads. 0 for the number of processors, at most 8.
   */
  uint32_t threads;
  /*
   Must be 0; reserved for later versions.
   */
  uint32_t reserved;
  /*
   Passed to the callbacks.
   */
  void *context;
  /*
   Receives each finding. May be NULL.
   */
  dw_on_finding finding;
  /*
   Called often with the completed and total units of a phase of the check. Called by any thread, but never
   concurrently. May be NULL.
   */
  dw_progress progress;
} dw_check_options;

/*
 Result of dw_check.
 */
typedef struct dw_check_report {
  /*
   Number of findings.
   */
  uint64_t findings;
  /*
   Number of findings with DW_AT_RISK or DW_UNUSABLE.
   */
  uint64_t serious;
  /*
   1 if everything was checked: no damage prevented the check from continuing.
   */
  uint64_t is_complete;
  /*
   Number of transactions of the journal or log that were replayed in memory first.
   */
  uint64_t transactions_replayed;
  /*
   Number of inodes in use.
   */
  uint64_t inodes;
  /*
   Number of directories among them.
   */
  uint64_t directories;
  /*
   Number of blocks in use.
   */
  uint64_t blocks_used;
  /*
   Number of all blocks.
   */
  uint64_t blocks;
} dw_check_report;

/*
 Options of dw_repair. All fields but struct_size may be zero.
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
   Maximum number of threads. 0 for the number of processors, at most 8.
   */
  uint32_t threads;
  /*
   Path of a new undo file with the old contents. With NULL, an undo file is created only if the repair cannot be
   written through the image's journal or log: next to the image, with ".undo" appended to its name.
   */
  const char *undo;
  /*
   Passed to the callbacks.
   */
  void *context;
  /*
   Receives each finding. May be NULL.
   */
  dw_on_finding finding;
  /*
   Called often with the completed and total units of a phase. May be NULL.
   */
  dw_progress progress;
} dw_repair_options;

/*
 Result of dw_repair.
 */
typedef struct dw_repair_report {
  /*
   Number of findings before the repair.
   */
  uint64_t findings;
  /*
   Number of steps that were carried out, or planned.
   */
  uint64_t steps;
  /*
   Number of findings after the repair.
   */
  uint64_t left;
  /*
   1 if a complete check after the repair has no findings.
   */
  uint64_t is_clean;
  /*
   1 if each step was a transaction of the image's own journal or log.
   */
  uint64_t through_log;
  /*
   1 if an undo file was created.
   */
  uint64_t has_undo;
} dw_repair_report;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the version of the loaded library as a number: major * 1,000,000 + minor * 1,000 + patch.
 */
uint32_t dw_version_number(void);

/*
 Returns the version of the loaded library as a string, such as "0.1.0". It must not be freed.
 */
const char *dw_version(void);

/*
 Returns the dw_code of an error; DW_OK for NULL.
 */
int dw_error_code(const struct dw_error *error);

/*
 Returns the errno of an error: that of the host or callback that failed, otherwise the closest one. Damage is EIO. 0
 for NULL.
 */
int dw_error_errno(const struct dw_error *error);

/*
 Returns the message of an error: one human-readable line of UTF-8 that contains the affected file. Valid as long as
 the error. "no error" for NULL.
 */
const char *dw_error_message(const struct dw_error *error);

/*
 Returns the path of the affected file in the image, without NUL bytes; NULL if the error does not concern a single
 file. Valid as long as the error.
 */
const char *dw_error_path(const struct dw_error *error);

/*
 Returns the damaged structure in the terms of the format, such as "extent tree node"; NULL if the error is not
 damage. Valid as long as the error.
 */
const char *dw_error_structure(const struct dw_error *error);

/*
 Returns 1 and the location if the error is damage; otherwise returns 0 and an unknown location. `place` may be NULL.
 */
int dw_error_place(const struct dw_error *error,
                   struct dw_place *place);

/*
 Frees an error. NULL is allowed.
 */
void dw_error_free(struct dw_error *error);

/*
 Frees a buffer, and sets `data` to NULL and `len` to 0. NULL is allowed, and so is a second call.
 */
void dw_bytes_free(struct dw_bytes *bytes);

/*
 Opens an image in a host file or on a block device. `open` may be NULL. The image is locked against other programs;
 an image opened for reading can be shared with other readers. The journal or log is replayed first: in memory, if
 the image is opened for reading.
 */
int dw_open(const char *path,
            const struct dw_open_options *open,
            struct dw_image **image,
            struct dw_error **error);

/*
 Opens an image on a device of the caller. `open` may be NULL. Nothing else may change the device while it is open.
 */
int dw_open_device(const struct dw_device *on,
                   const struct dw_open_options *open,
                   struct dw_image **image,
                   struct dw_error **error);

/*
 Creates a host file with an empty file system of `size` bytes, and opens it for writing. The file is sparse. Fails,
 and leaves nothing, if the file exists or the options are invalid.
 */
int dw_create(const char *path,
              uint64_t size,
              const struct dw_format_options *format,
              struct dw_image **image,
              struct dw_error **error);

/*
 Creates an empty file system that fills a device of the caller, whatever it contains, and opens it for writing.
 */
int dw_format_device(const struct dw_device *on,
                     const struct dw_format_options *format,
                     struct dw_image **image,
                     struct dw_error **error);

/*
 Makes all changes durable and leaves the image clean. Waits for calls of other threads. This handle and those of
 files, directories and walks remain allocated: calls with them fail with DW_CLOSED until each is freed. Closing it
 again does nothing.

 After an error, the image could not be written and is in the same state as after a crash.
 */
int dw_image_close(struct dw_image *image,
                   struct dw_error **error);

/*
 Frees an image. An image that was not closed is closed when everything opened in it has been freed, and errors are
 lost: close it first. NULL is allowed.
 */
void dw_image_free(struct dw_image *image);

/*
 Returns 1 if the image is open for writing, 0 if not or if the handle is invalid.
 */
int dw_image_is_writable(const struct dw_image *image);

/*
 Makes all changes so far durable.

 After a crash, an image has the changes up to some moment, at least to the last dw_sync or dw_file_sync.
 */
int dw_sync(const struct dw_image *image, struct dw_error **error);

/*
 Returns the totals of space and inodes.
 */
int dw_statfs(const struct dw_image *image, struct dw_totals *totals, struct dw_error **error);

/*
 Returns the label, to be freed with dw_bytes_free.
 */
int dw_label(const struct dw_image *image, struct dw_bytes *label, struct dw_error **error);

/*
 Sets the label: at most 16 bytes for ext4 and 12 for XFS.
 */
int dw_set_label(const struct dw_image *image, const char *label, struct dw_error **error);

/*
 Reads information about an image, which need not have a root directory. `open` may be NULL. Only its location and
 DW_NORECOVERY are used.
 */
int dw_read_info(const char *image,
                 const struct dw_open_options *open,
                 struct dw_info *info,
                 struct dw_error **error);

/*
 Opens a file. `flags` are DW_READ, DW_WRITE, DW_APPEND, DW_CREATE, DW_CREATE_NEW and DW_TRUNCATE. `mode` contains
 the permission bits of a new file, such as 0644, and is otherwise ignored. Follows a symbolic link at the end of the
 path, except with DW_CREATE_NEW. A directory can be opened with DW_READ only, to read its attributes.
 */
int dw_file_open(const struct dw_image *image,
                 const char *at,
                 uint32_t flags,
                 uint32_t mode,
                 struct dw_file **file,
                 struct dw_error **error);

/*
 Frees a file. Its changes become durable with the next sync or close of the image. NULL is allowed.
 */
void dw_file_free(struct dw_file *file);

/*
 Reads from `offset` on into `buffer`, which has `len` bytes. Stores the number of bytes read in `count`: less than
 `len` only at the end of the file.
 */
int dw_pread(const struct dw_file *file,
             uint8_t *buffer,
             size_t len,
             uint64_t offset,
             size_t *count,
             struct dw_error **error);

/*
 Writes all of `data` at `offset`, or at the end of a file opened with DW_APPEND. A failed write may have written a
 prefix.
 */
int dw_pwrite(const struct dw_file *file,
              const uint8_t *data,
              size_t len,
              uint64_t offset,
              struct dw_error **error);

/*
 Sets the size of a file in bytes. Shrinking discards the contents past it; added bytes read as zeros.
 */
int dw_file_truncate(const struct dw_file *file, uint64_t size, struct dw_error **error);

/*
 Returns when all completed changes of the file are durable.
 */
int dw_file_sync(const struct dw_file *file, struct dw_error **error);

/*
 Like dw_file_sync, for the contents; times may be omitted.
 */
int dw_file_sync_data(const struct dw_file *file, struct dw_error **error);

/*
 Returns the attributes of an open file.
 */
int dw_file_stat(const struct dw_file *file, struct dw_metadata *metadata, struct dw_error **error);

/*
 Sets the permission bits of an open file, which must be below 010000.
 */
int dw_file_chmod(const struct dw_file *file, uint32_t mode, struct dw_error **error);

/*
 Sets owner and group of an open file; DW_KEEP keeps one unchanged.
 */
int dw_file_chown(const struct dw_file *file, uint32_t uid, uint32_t gid, struct dw_error **error);

/*
 Sets times of an open file. NULL keeps a time unchanged.
 */
int dw_file_utimes(const struct dw_file *file,
                   const struct dw_time *atime,
                   const struct dw_time *mtime,
                   const struct dw_time *crtime,
                   struct dw_error **error);

/*
 Reads a whole file into a buffer, to be freed with dw_bytes_free. A small image can contain a sparse file of
 terabytes: for untrusted images, check the size first, or read in pieces.
 */
int dw_read_file(const struct dw_image *image,
                 const char *at,
                 struct dw_bytes *contents,
                 struct dw_error **error);

/*
 Creates a file with these contents, or replaces the contents of an existing one. A failed write may have written a
 prefix.
 */
int dw_write_file(const struct dw_image *image,
                  const char *at,
                  const uint8_t *data,
                  size_t len,
                  struct dw_error **error);

/*
 Copies contents and permissions of a file to another file of the image, which is created if it does not exist.
 `copied` may be NULL; otherwise it receives the number of bytes.
 */
int dw_copy_file(const struct dw_image *image,
                 const char *from,
                 const char *to,
                 uint64_t *copied,
                 struct dw_error **error);

/*
 Starts a listing of a directory. No lock is held between entries: the image may change, and entries that are added
 or removed at the same time may or may not be listed.
 */
int dw_dir_open(const struct dw_image *image,
                const char *at,
                struct dw_dir **dir,
                struct dw_error **error);

/*
 Stores the next entry, in the directory's own order and without "." and "..". `*entry` is NULL at the end, otherwise
 valid until the next call with this listing. After an error, the next call continues.
 */
int dw_dir_next(struct dw_dir *dir,
                const struct dw_entry **entry,
                struct dw_error **error);

/*
 Frees a listing. NULL is allowed.
 */
void dw_dir_free(struct dw_dir *dir);

/*
 Starts a walk through a path and everything below it: depth first, directories before their entries. Follows a
 symbolic link at the path itself, but none below. `flags` is DW_SORTED or 0. Entries that are added or removed at
 the same time may or may not be returned.
 */
int dw_walk_open(const struct dw_image *image,
                 const char *at,
                 uint32_t flags,
                 struct dw_walk **walk,
                 struct dw_error **error);

/*
 Stores the next entry. `*entry` is NULL at the end, otherwise valid until the next call with this walk. After an
 error, the next call continues behind the entry in error; every walk ends.
 */
int dw_walk_next(struct dw_walk *walk,
                 const struct dw_walk_entry **entry,
                 struct dw_error **error);

/*
 Skips the contents of the directory that was returned last.
 */
int dw_walk_skip(struct dw_walk *walk, struct dw_error **error);

/*
 Frees a walk. NULL is allowed.
 */
void dw_walk_free(struct dw_walk *walk);

/*
 Returns the attributes of a file. Follows symbolic links.
 */
int dw_stat(const struct dw_image *image,
            const char *at,
            struct dw_metadata *metadata,
            struct dw_error **error);

/*
 Like dw_stat, but does not follow a symbolic link at the end of the path.
 */
int dw_lstat(const struct dw_image *image,
             const char *at,
             struct dw_metadata *metadata,
             struct dw_error **error);

/*
 Sets the permission bits, which must be below 010000. Follows symbolic links.
 */
int dw_chmod(const struct dw_image *image, const char *at, uint32_t mode, struct dw_error **error);

/*
 Sets owner and group; DW_KEEP keeps one unchanged. As in Linux, this clears the set-user-ID and set-group-ID bits
 and the capabilities of a program. Follows symbolic links, unless `flags` is DW_NOFOLLOW.
 */
int dw_chown(const struct dw_image *image,
             const char *at,
             uint32_t uid,
             uint32_t gid,
             uint32_t flags,
             struct dw_error **error);

/*
 Sets the times of access, modification and creation (if the image stores it). NULL keeps a time unchanged. Follows
 symbolic links, unless `flags` is DW_NOFOLLOW.
 */
int dw_utimes(const struct dw_image *image,
              const char *at,
              const struct dw_time *atime,
              const struct dw_time *mtime,
              const struct dw_time *crtime,
              uint32_t flags,
              struct dw_error **error);

/*
 Creates a directory with permissions 0755.
 */
int dw_mkdir(const struct dw_image *image, const char *at, struct dw_error **error);

/*
 Creates a directory and its missing parents. Existing directories do not change.
 */
int dw_mkdir_all(const struct dw_image *image, const char *at, struct dw_error **error);

/*
 Removes a name of a non-directory. The file is freed with its last name, or when it is no longer open. Does not
 follow symbolic links.
 */
int dw_unlink(const struct dw_image *image,
              const char *at,
              struct dw_error **error);

/*
 Removes an empty directory.
 */
int dw_rmdir(const struct dw_image *image, const char *at, struct dw_error **error);

/*
 Removes a directory with everything in it. Does not follow symbolic links. After an error, the names removed so far
 remain removed.
 */
int dw_remove_all(const struct dw_image *image,
                  const char *at,
                  struct dw_error **error);

/*
 Renames a file or a directory. With `flags` 0, an existing target is replaced (a directory only by a directory, and
 only if it is empty). The other values are DW_RENAME_NOREPLACE and DW_RENAME_EXCHANGE. Does not follow symbolic
 links at the end of either path.
 */
int dw_rename(const struct dw_image *image,
              const char *from,
              const char *to,
              uint32_t flags,
              struct dw_error **error);

/*
 Adds a name to a file. A symbolic link at `original` is not followed; the link itself gets the name.
 */
int dw_link(const struct dw_image *image, const char *original, const char *link, struct dw_error **error);

/*
 Creates a symbolic link to `target`, which is not checked.
 */
int dw_symlink(const struct dw_image *image, const char *target, const char *link, struct dw_error **error);

/*
 Returns the target of a symbolic link, to be freed with dw_bytes_free.
 */
int dw_readlink(const struct dw_image *image,
                const char *at,
                struct dw_bytes *target,
                struct dw_error **error);

/*
 Returns the absolute path of the resolved file, without symbolic links, "." and ".."; to be freed with
 dw_bytes_free.
 */
int dw_realpath(const struct dw_image *image, const char *at, struct dw_bytes *real, struct dw_error **error);

/*
 Creates a device, a named pipe or a socket. `mode` contains the type and permissions as in st_mode of Linux: 0060660
 is a block device. `major` and `minor` apply to devices.
 */
int dw_mknod(const struct dw_image *image,
             const char *at,
             uint32_t mode,
             uint32_t major,
             uint32_t minor,
             struct dw_error **error);

/*
 Returns the value of an extended attribute, to be freed with dw_bytes_free. Names are those of Linux:
 "user.comment", "security.capability". Here and below, a symbolic link at the end of the path is not followed. Use
 dw_file_xattr_get and similar functions for its target.
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
 Returns the names of a file's extended attributes, sorted, each followed by NUL; to be freed with dw_bytes_free.
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
 Like dw_xattr_get, for an open file.
 */
int dw_file_xattr_get(const struct dw_file *file,
                      const char *name,
                      struct dw_bytes *value,
                      struct dw_error **error);

/*
 Like dw_xattr_set, for an open file.
 */
int dw_file_xattr_set(const struct dw_file *file,
                      const char *name,
                      const uint8_t *value,
                      size_t len,
                      struct dw_error **error);

/*
 Like dw_xattr_list, for an open file.
 */
int dw_file_xattr_list(const struct dw_file *file, struct dw_bytes *names, struct dw_error **error);

/*
 Like dw_xattr_remove, for an open file.
 */
int dw_file_xattr_remove(const struct dw_file *file, const char *name, struct dw_error **error);

/*
 Copies a host file or directory to `to` in an image, or into it if it is a directory. An existing file is replaced.
 `how` and `report` may be NULL. After an error, the part copied so far remains.

 Concurrent calls that remove names of this image wait until the copy ends.
 */
int dw_copy_in(const struct dw_image *image,
               const char *from,
               const char *to,
               const struct dw_copy_options *how,
               struct dw_copy_report *report,
               struct dw_error **error);

/*
 Copies a file or directory of an image to `to` on the host, or into it if it is a directory. Existing files are
 replaced, except images in use. `how` and `report` may be NULL. After an error, the part copied so far remains.
 */
int dw_copy_out(const struct dw_image *image,
                const char *from,
                const char *to,
                const struct dw_copy_options *how,
                struct dw_copy_report *report,
                struct dw_error **error);

/*
 Extracts a file or the contents of a directory of the image into a host directory, which is created if it is
 missing. Restores owners, times and attributes as far as the host permits. No name or link of a hostile image leads
 outside of the directory. `how` and `report` may be NULL. After an error, the part extracted so far remains.
 */
int dw_extract(const struct dw_image *image,
               const char *from,
               const char *directory,
               const struct dw_copy_options *how,
               struct dw_copy_report *report,
               struct dw_error **error);

/*
 Builds an image from directories, archives, container images and other images. `sources` are like the arguments of
 `diskwright build`: "rootfs", "rootfs.tar.zst", "oci:layout:latest", "docker-archive:web.tar", "image:disk.img:2".
 Later sources are applied over earlier ones. `image` appears under its name when it is complete; after an error
 nothing is left there. `report` may be NULL.

 The same sources and options produce the same bytes, whatever the number of threads.
 */
int dw_build(const char *const *sources,
             size_t source_count,
             const char *image,
             const struct dw_build_options *how,
             struct dw_build_report *report,
             struct dw_error **error);

/*
 Creates a writable clone of an image: a new file with only the changes of the base, which is opened like any image. The
 base must stay and must not change. `bytes` is the length of the clone if it is longer than the base; otherwise 0.
 */
int dw_clone(const char *base,
             const char *name,
             uint64_t bytes,
             struct dw_error **error);

/*
 Keeps the state of a clone as the read-only image `name`. The clone must be closed.
 */
int dw_snapshot(const char *clone, const char *name, struct dw_error **error);

/*
 Discards the changes of a clone since its last snapshot, or since the snapshot `to` if it is not NULL. The clone must be
 closed.
 */
int dw_reset(const char *clone,
             const char *to,
             struct dw_error **error);

/*
 Discards all changes of a clone. The clone must be closed.
 */
int dw_reset_to_base(const char *clone, struct dw_error **error);

/*
 Creates the raw image `image` from a clone and its base. `base` is the place of a base that has moved, or NULL. An
 existing file is replaced if `force` is not 0.
 */
int dw_commit(const char *clone,
              const char *image,
              const char *base,
              int force,
              struct dw_error **error);

/*
 Creates an image with the contents of another one. The old image is not modified. `how` and `report` may be NULL.
 */
int dw_convert(const char *from,
               const char *to,
               const struct dw_convert_options *how,
               struct dw_build_report *report,
               struct dw_error **error);

/*
 Compares the contents of two trees: `a` and `b` are images or host directories. `open_a`, `open_b` (of which only
 the location and DW_NORECOVERY are used), `how` and `report` may be NULL.
 */
int dw_diff(const char *a,
            const struct dw_open_options *open_a,
            const char *b,
            const struct dw_open_options *open_b,
            const struct dw_diff_options *how,
            struct dw_diff_report *report,
            struct dw_error **error);

/*
 Checks an image and reports each fault. Nothing is written. Damage is not an error; `report` contains the number of
 findings. An error means that the image cannot be checked at all. `open`, `how` and `report` may be NULL. Of `open`,
 only the location and DW_NORECOVERY are used.
 */
int dw_check(const char *image,
             const struct dw_open_options *open,
             const struct dw_check_options *how,
             struct dw_check_report *report,
             struct dw_error **error);

/*
 Like dw_check, for an image on a device of the caller, which must not change during the call.
 */
int dw_check_device(const struct dw_device *on,
                    const struct dw_open_options *open,
                    const struct dw_check_options *how,
                    struct dw_check_report *report,
                    struct dw_error **error);

/*
 Repairs an image. The repair is first tried out in memory, and then written through the image's own journal or log,
 or in place with an undo file. After an interruption (DW_STOPPED, DW_IO, a kill), the image can be repaired again,
 or restored if there is an undo file. Damage that cannot be repaired is not an error; `report` contains it. `open`,
 `how` and `report` may be NULL. Of `open`, only the location is used.
 */
int dw_repair(const char *image,
              const struct dw_open_options *open,
              const struct dw_repair_options *how,
              struct dw_repair_report *report,
              struct dw_error **error);

/*
 Restores an image to its state before the repair that created this undo file, byte by byte. Can be repeated after an
 interruption. Nothing is written if the undo file is invalid or belongs to another image, or the image was changed
 since. `open` may be NULL; only its location is used.
 */
int dw_restore(const char *undo,
               const char *image,
               const struct dw_open_options *open,
               struct dw_error **error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DISKWRIGHT_H */

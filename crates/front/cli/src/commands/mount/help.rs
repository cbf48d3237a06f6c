//! Help text of `diskwright mount`.

#[cfg(target_os = "linux")]
pub(super) const NOTES: &str = "\
Examples:
  diskwright mount root.img /mnt
  diskwright mount root.img dir -o ro,noatime
  diskwright mount --partition 2 disk.img /mnt -o allow_other --log mount.log
  diskwright unmount /mnt
  sudo diskwright mount root.img /mnt --via nfs

Options of -o (* marks the default). --via nfs has ro, recover, sync, noexec, silent and allow_other of them:
  ro, rw*                mount read-only, or read-write
  recover, norecover*    with ro: recover a crashed image on disk, as kernels do, or only in memory
  allow_other            allow access by other users (root, or user_allow_other in /etc/fuse.conf)
  default_permissions    accepted; the kernel always checks permissions
  uid=N, gid=N           show all files with this owner or group
  idmap, noidmap*        allow ID-mapped mounts of this mount (mount --bind -o X-mount.idmap=...)
                         if the kernel supports them; not with uid= or gid=
  owner=U:G              store new files with this owner instead of the caller
  noatime, relatime*, strictatime
                         update access times never; if older than the last change or than a day;
                         or at every read
  nodiratime, diratime*  do not update access times of directories, or update them as above
  sync, async*           make each write durable before it returns, or not
  dirsync                make each directory change durable before it returns
  defer_creates, no_defer_creates*
                         after a crash, new files of large directories may be missing in any order,
                         and creating them is faster; or changes become durable in their order
  suid, nosuid*          honour set-user-id bits and capabilities (root), or ignore them
  dev, nodev*            honour device nodes (root), or ignore them
  exec*, noexec          allow programs to run, or not
  symfollow*, nosymfollow
                         follow symbolic links, or not (root)
  silent, loud*          omit or print the warning for an image that is mounted read-only
  commit=SECONDS         make changes durable after SECONDS; 0 for never (default 5)
  errors=remount-ro      reject changes after damage is found (the default)
  errors=continue        accept changes after damage is found; damaged parts return errors
  threads=N              use N threads, 1 to 256 (default: one per processor, at least 2, and at
                         least 32 for remote images)
  parallel_direct, no_parallel_direct*
                         run direct writes (O_DIRECT) of a file at the same time, for databases and
                         virtual disks; each open takes longer, and stat may show old times; or not
  io_uring, no_io_uring* receive requests over io_uring if the kernel allows it, or not
  fsname=NAME            show NAME instead of the image path as the device in /proc/mounts
  logdev=FILE            use FILE as the log of an XFS image that does not contain its log
  journal_path=FILE      use FILE as the journal of an ext4 image that does not contain its journal
  journal_dev=NUMBER     the same, for the block device with this number
  rtdev=FILE             use FILE as the realtime device of an XFS image
  lazytime, acl, user_xattr, barrier, nodiscard, nomand, noiversion and similar
                         accepted; every mount behaves this way
  defaults, auto, noauto, user, nouser, group, nofail, _netdev, x-...
                         accepted for /etc/fstab and ignored

Images are mounted read-write by default. The journal or log of a crashed image is replayed first, and no other program \
can change the image while it is mounted. An image with features that cannot be maintained, such as XFS version 4, is \
mounted read-only, and a message gives the reason.

--via nfs serves the files by NFS to the kernel of this machine, for machines without FUSE. On Linux it needs root and the \
kernel's NFS client.";

#[cfg(not(target_os = "linux"))]
pub(super) const NOTES: &str = "\
Examples:
  diskwright mount root.img dir
  diskwright mount --partition 2 disk.img dir -o ro --log mount.log
  diskwright unmount dir

Options of -o (* marks the default):
  ro, rw*                mount read-only, or read-write
  recover, norecover*    with ro: recover a crashed image on disk, as kernels do, or only in memory
  allow_other            allow access by other users, with the owners in the image (--map-user=no)
  sync, async*           make each change durable before it returns, or not
  exec*, noexec          allow programs to run, or not
  silent, loud*          omit or print the warning for an image that is mounted read-only

The files are served by NFS to the kernel of this machine. Images are mounted read-write by default. The journal or log of \
a crashed image is replayed first, and no other program can change the image while it is mounted.";

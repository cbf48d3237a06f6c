//! Help text of `diskwright mount`.

pub(super) const NOTES: &str = "\
Examples:
  diskwright mount root.img /mnt
  diskwright mount root.img dir -o ro,noatime
  diskwright mount --partition 2 disk.img /mnt -o allow_other --log mount.log
  diskwright unmount /mnt

Options of -o:
  ro, rw                 mount for reading only, or also to change it (the default)
  recover, norecover     with ro: recover an image that was not cleanly closed where it lies, as kernels
                         do, or only show it so (the default)
  allow_other            let other users use it (root, or user_allow_other in /etc/fuse.conf)
  default_permissions    let the kernel check permissions: it always does
  uid=N, gid=N           show all files as this user's, this group's
  idmap, noidmap         let mounts of the mount map ids (mount --bind -o X-mount.idmap=...), where the
                         kernel has that, or not (the default)
  owner=U:G              store new files as this owner's, not as the caller's
  noatime, relatime, strictatime
                         change access times never, when they are older than the last change or a
                         day (the default), or at every read
  nodiratime, diratime   do not change the access times of directories that are listed, or do
                         (the default)
  sync, async            wait with every write until it is durable, or not (the default)
  dirsync                wait with every change of a directory until it is durable
  suid, nosuid           let set-user-id bits count (root), or not (the default)
  dev, nodev             let device nodes work (root), or not (the default)
  exec, noexec           let programs be run (the default), or not
  symfollow, nosymfollow follow symbolic links (the default), or not (root)
  silent, loud           do not warn that an image is mounted for reading only, or do (the default)
  commit=SECONDS         make changes durable after so long; 0 for never (5)
  errors=remount-ro      allow no changes once the image is found to be damaged (the default)
  errors=continue        go on then; what met the damage gets an error
  threads=N              threads that answer requests (one per processor, at least 2; of a place 32)
  io_uring, no_io_uring  talk with the kernel over io_uring if it allows that, or not (the default)
  fsname=NAME            show this as the device in /proc/mounts, instead of the image's path
  lazytime, acl, user_xattr, barrier, nodiscard, nomand, noiversion and their like
                         are so on every mount
  defaults, auto, noauto, user, nouser, group, nofail, _netdev, x-...
                         words of /etc/fstab, which mean nothing here

Images are mounted to be changed: the journal or log of one that crashed is replayed first, and no
other program can change it meanwhile. What has features that could not be kept right, such as XFS of
version 4, is mounted for reading only, and a message says why.";

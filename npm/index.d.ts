/** Reads, writes, makes and checks ext2, ext3, ext4 and XFS images. All calls are synchronous. */

/** Text, or bytes where names are not UTF-8. Paths start at the root of the image. */
export type Path = string | Uint8Array;

/** Where an image lies: any object that reads and writes bytes. */
export interface Device {
  /** Length in bytes. It must not change while the device is in use. */
  readonly size: number;
  /** Fills `buffer` from byte `offset` on, and returns how many bytes it read: fewer are an error. */
  readAt(offset: number, buffer: Uint8Array): number;
  /** Writes all of `bytes` at `offset`, and returns how many it wrote: fewer are an error. */
  writeAt?(offset: number, bytes: Uint8Array): number;
  /** Returns when everything written before is durable. */
  flush?(): void;
}

/** What is thrown: an `Error` with a code, and for damage the structure and its place. */
export interface DiskwrightError extends Error {
  /**
   * `ENOENT`, `EEXIST`, `ENOSPC` and their like as of system calls; `EUCLEAN` for damage, `ENOTSUP` for what is not
   * supported, `EBADF` after `close`, `EIO` if the device failed (`cause` is what it threw).
   */
  code: string;
  /** The damaged structure, in the format's own term. */
  structure?: string;
  /** Block group or allocation group. */
  group?: number;
  block?: number;
  inode?: number;
  expected?: string;
  found?: string;
  cause?: unknown;
  /** Of methods with names of `fs`, as there. */
  syscall?: string;
  errno?: number;
  path?: string;
  dest?: string;
}

export type FileType = 'file' | 'directory' | 'symlink' | 'char-device' | 'block-device' | 'fifo' | 'socket';

/** The attributes of a file. Numbers above 2^53, which only damaged images have, are rounded. */
export declare class Stat {
  readonly type: FileType;
  readonly ino: number;
  /** Type and permissions, as `st_mode`. */
  readonly mode: number;
  /** The same as `ls -l` shows it. */
  readonly modeText: string;
  readonly nlink: number;
  readonly uid: number;
  readonly gid: number;
  /** In bytes. */
  readonly size: number;
  /** Space taken, in units of 512 bytes. */
  readonly blocks: number;
  /** Of character and block devices. */
  readonly rdev?: { readonly major: number; readonly minor: number };
  readonly atime: Date;
  readonly mtime: Date;
  readonly ctime: Date;
  /** Where the format keeps it. */
  readonly birthtime?: Date;
  /** Nanoseconds since 1970, exactly; so below. */
  readonly atimeNs: bigint;
  readonly mtimeNs: bigint;
  readonly ctimeNs: bigint;
  readonly birthtimeNs?: bigint;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
  protected constructor();
}

/** A file in a directory. If its inode is damaged, `error` says how, and the attributes are undefined. */
export declare class Entry extends Stat {
  readonly name: string;
  /** The name as it is on disk. */
  readonly nameBytes: Uint8Array;
  readonly error?: DiskwrightError;
}

/** A file that {@link Image.walk} came to. */
export interface Walked {
  path: string;
  pathBytes: Uint8Array;
  entry: Entry;
  /** Set it to leave out what is in this directory. */
  skip: boolean;
}

/** What an image says about itself. */
export interface Info {
  format: 'ext2' | 'ext3' | 'ext4' | 'xfs';
  label: string;
  uuid: string;
  blockSize: number;
  blocks: number;
  blocksFree: number;
  blocksAvailable: number;
  inodes: number;
  inodesFree: number;
  /** `clean`, or what was the matter when it was opened. */
  state: string;
  /** Transactions of the journal or log that were replayed, in memory if the image is not writable. */
  replayedTransactions: number;
  features: string[];
  /** Damage that does not keep it from being read. */
  remarks: string[];
}

/** Permissions and owner of something new: 0644 (directories 0755) and root's unless told otherwise. */
export interface NewOptions {
  mode?: number;
  uid?: number;
  gid?: number;
}

/** A time: a `Date`, milliseconds since 1970, or nanoseconds as a bigint. */
export type Time = Date | number | bigint;

/** The attributes of a file, with the fields of `fs.Stats`. */
export interface FsStats extends FsTyped {
  dev: number;
  ino: number;
  mode: number;
  nlink: number;
  uid: number;
  gid: number;
  rdev: number;
  size: number;
  blksize: number;
  blocks: number;
  atimeMs: number;
  mtimeMs: number;
  ctimeMs: number;
  birthtimeMs: number;
  atime: Date;
  mtime: Date;
  ctime: Date;
  birthtime: Date;
}

/** The same with the fields of `fs.BigIntStats`. */
export type FsBigIntStats = FsTyped & {
  [Field in Exclude<keyof FsStats, keyof FsTyped | 'atime' | 'mtime' | 'ctime' | 'birthtime'>]: bigint;
} & Pick<FsStats, 'atime' | 'mtime' | 'ctime' | 'birthtime'> & {
  atimeNs: bigint;
  mtimeNs: bigint;
  ctimeNs: bigint;
  birthtimeNs: bigint;
};

/** The type of a file, as `fs.Stats` and `fs.Dirent` report it. */
export interface FsTyped {
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
  isBlockDevice(): boolean;
  isCharacterDevice(): boolean;
  isFIFO(): boolean;
  isSocket(): boolean;
}

/** An entry of a directory, as `fs.Dirent`. */
export interface FsDirent<Name = string> extends FsTyped {
  name: Name;
  parentPath: Name;
  path: Name;
}

/** A time as `fs.utimes` takes it: a `Date`, or a number of seconds. */
export type FsTime = Date | number | string | bigint;

type Mode = number | string;
type WriteOptions = BufferEncoding | { encoding?: BufferEncoding | null; mode?: Mode; flag?: 'w' | 'wx' | 'a' } | null;
type ReaddirOptions = { encoding?: BufferEncoding | null; withFileTypes?: false; recursive?: boolean };
type MkdirOptions = { recursive?: boolean; mode?: Mode };

/** The functions of `fs.promises`. The work is done when a function is called; no call waits in another thread. */
export interface FsPromises {
  readFile(path: Path, options?: { encoding?: null; flag?: string } | null): Promise<Buffer>;
  readFile(path: Path, options: BufferEncoding | { encoding: BufferEncoding; flag?: string }): Promise<string>;
  writeFile(path: Path, data: string | Uint8Array, options?: WriteOptions): Promise<void>;
  appendFile(path: Path, data: string | Uint8Array, options?: WriteOptions): Promise<void>;
  readdir(path: Path, options?: BufferEncoding | ReaddirOptions | null): Promise<string[]>;
  readdir(path: Path, options: 'buffer' | { encoding: 'buffer'; recursive?: boolean }): Promise<Buffer[]>;
  readdir(path: Path, options: { withFileTypes: true; recursive?: boolean }): Promise<FsDirent[]>;
  stat(path: Path, options?: { bigint?: false }): Promise<FsStats>;
  stat(path: Path, options: { bigint: true }): Promise<FsBigIntStats>;
  lstat(path: Path, options?: { bigint?: false }): Promise<FsStats>;
  lstat(path: Path, options: { bigint: true }): Promise<FsBigIntStats>;
  access(path: Path, mode?: number): Promise<void>;
  readlink(path: Path, options?: BufferEncoding | { encoding?: BufferEncoding | null } | null): Promise<string>;
  realpath(path: Path, options?: BufferEncoding | { encoding?: BufferEncoding | null } | null): Promise<string>;
  mkdir(path: Path, options?: Mode | MkdirOptions | null): Promise<string | undefined>;
  rm(path: Path, options?: { recursive?: boolean; force?: boolean }): Promise<void>;
  rmdir(path: Path): Promise<void>;
  unlink(path: Path): Promise<void>;
  rename(from: Path, to: Path): Promise<void>;
  copyFile(from: Path, to: Path, mode?: number): Promise<void>;
  symlink(target: Path, path: Path): Promise<void>;
  link(existing: Path, path: Path): Promise<void>;
  chmod(path: Path, mode: Mode): Promise<void>;
  chown(path: Path, uid: number, gid: number): Promise<void>;
  lchown(path: Path, uid: number, gid: number): Promise<void>;
  utimes(path: Path, atime: FsTime, mtime: FsTime): Promise<void>;
  lutimes(path: Path, atime: FsTime, mtime: FsTime): Promise<void>;
  truncate(path: Path, length?: number): Promise<void>;
}

/** An open image. Methods that end in `Sync`, and `promises`, have the arguments and answers of Node's module `fs`. */
export declare class Image {
  private constructor();
  readonly isWritable: boolean;
  /** The bytes of an image in memory. They are the image once it is closed. */
  readonly bytes: Uint8Array | undefined;
  info(): Info;
  /** A picture of what lies where on the disk, as SVG. */
  map(options?: { title?: string; cells?: number }): string;
  /** What is in a directory, sorted by the bytes of names. If it is damaged, the error has `entries` that were read. */
  list(path?: Path): Entry[];
  /** The attributes of a file; links are followed. */
  stat(path: Path): Stat;
  lstat(path: Path): Stat;
  exists(path: Path): boolean;
  readlink(path: Path): string;
  readlinkBytes(path: Path): Buffer;
  /** The contents of a file, or a part of them. */
  read(path: Path, options?: { offset?: number; length?: number }): Buffer;
  readText(path: Path): string;
  /** The contents of a file, piece by piece. */
  chunks(path: Path, options?: { chunkSize?: number }): Generator<Buffer, void, void>;
  /** Everything below a directory, directories before what is in them. */
  walk(path?: Path): Generator<Walked, void, void>;
  /** A tar archive of a directory or file, piece by piece. With `keepGoing`, what cannot be read is told only. */
  tar(
    path?: Path,
    options?: { keepGoing?: boolean; onRemark?: (error: DiskwrightError) => void },
  ): Generator<Buffer, void, void>;
  listXattrs(path: Path): string[];
  /** Named as Linux names them: `user.x`, `security.capability`. */
  getXattr(path: Path, name: Path): Buffer;
  setXattr(path: Path, name: Path, value: Path): void;
  removeXattr(path: Path, name: Path): void;
  /** Makes a file, whole before it has its name; or writes over one that is there. */
  writeFile(path: Path, contents: Path, options?: NewOptions): void;
  /** Writes into a file that is there. */
  write(path: Path, offset: number, bytes: Path): void;
  truncate(path: Path, size?: number): void;
  mkdir(path: Path, options?: NewOptions & { recursive?: boolean }): void;
  rm(path: Path, options?: { recursive?: boolean; force?: boolean }): void;
  rename(from: Path, to: Path): void;
  symlink(target: Path, path: Path, options?: NewOptions): void;
  link(existing: Path, path: Path): void;
  chmod(path: Path, mode: number): void;
  chown(path: Path, uid: number, gid: number): void;
  lchown(path: Path, uid: number, gid: number): void;
  utimes(path: Path, atime: Time, mtime: Time): void;
  lutimes(path: Path, atime: Time, mtime: Time): void;
  /**
   * Makes all changes durable. After a crash, an image has the changes up to some moment, at least to the last
   * `sync`.
   */
  sync(): void;
  /** Makes all changes durable and leaves the image clean. Without it, the image is as after a crash. */
  close(): void;

  readonly promises: FsPromises;
  readFileSync(path: Path, options?: { encoding?: null; flag?: string } | null): Buffer;
  readFileSync(path: Path, options: BufferEncoding | { encoding: BufferEncoding; flag?: string }): string;
  writeFileSync(path: Path, data: string | Uint8Array, options?: WriteOptions): void;
  appendFileSync(path: Path, data: string | Uint8Array, options?: WriteOptions): void;
  readdirSync(path: Path, options?: BufferEncoding | ReaddirOptions | null): string[];
  readdirSync(path: Path, options: 'buffer' | { encoding: 'buffer'; recursive?: boolean }): Buffer[];
  readdirSync(path: Path, options: { withFileTypes: true; recursive?: boolean }): FsDirent[];
  statSync(path: Path, options?: { bigint?: false; throwIfNoEntry?: true }): FsStats;
  statSync(path: Path, options: { bigint: true; throwIfNoEntry?: true }): FsBigIntStats;
  statSync(path: Path, options: { bigint?: false; throwIfNoEntry: false }): FsStats | undefined;
  lstatSync(path: Path, options?: { bigint?: false; throwIfNoEntry?: true }): FsStats;
  lstatSync(path: Path, options: { bigint: true; throwIfNoEntry?: true }): FsBigIntStats;
  lstatSync(path: Path, options: { bigint?: false; throwIfNoEntry: false }): FsStats | undefined;
  existsSync(path: Path): boolean;
  accessSync(path: Path, mode?: number): void;
  readlinkSync(path: Path, options?: BufferEncoding | { encoding?: BufferEncoding | null } | null): string;
  realpathSync(path: Path, options?: BufferEncoding | { encoding?: BufferEncoding | null } | null): string;
  /** With `recursive`, the answer is the first directory that was created. */
  mkdirSync(path: Path, options?: Mode | MkdirOptions | null): string | undefined;
  rmSync(path: Path, options?: { recursive?: boolean; force?: boolean }): void;
  rmdirSync(path: Path): void;
  unlinkSync(path: Path): void;
  renameSync(from: Path, to: Path): void;
  copyFileSync(from: Path, to: Path, mode?: number): void;
  symlinkSync(target: Path, path: Path): void;
  linkSync(existing: Path, path: Path): void;
  chmodSync(path: Path, mode: Mode): void;
  chownSync(path: Path, uid: number, gid: number): void;
  lchownSync(path: Path, uid: number, gid: number): void;
  utimesSync(path: Path, atime: FsTime, mtime: FsTime): void;
  lutimesSync(path: Path, atime: FsTime, mtime: FsTime): void;
  truncateSync(path: Path, length?: number): void;
}

/** Where on a disk. */
export interface Place {
  /** Number of a GPT or MBR partition, as Linux counts. */
  partition?: number;
  /** First byte, instead. */
  offset?: number;
}

export interface OpenOptions extends Place {
  /** To change the image. What its journal or log holds is replayed first. */
  writable?: boolean;
  /** Read it as it lies, without what its journal or log holds. */
  norecovery?: boolean;
  /** Memory for metadata; 64 MiB by default. */
  cacheBytes?: number;
}

/** Opens an image in memory, in a file of the host (a path), or on any device. */
export declare function open(source: Uint8Array | ArrayBuffer | string | Device, options?: OpenOptions): Image;

export interface FormatOptions {
  fs: 'ext4' | 'xfs';
  /** Size in bytes of an image in memory. XFS takes 300 MiB at least, or 16 MiB with `small`. */
  size?: number;
  /** What to make it on, instead. */
  device?: Device | Uint8Array | string;
  label?: string;
  /** Random by default. */
  uuid?: string;
  blockSize?: number;
  /** Features to turn on or off, as in `mke2fs -O` and `mkfs.xfs -m`: `metadata_csum,^huge_file`. */
  features?: string;
  small?: boolean;
}

/** Makes an empty file system and opens it to be changed. */
export declare function format(options: FormatOptions): Image;

export interface Finding {
  group?: number;
  block?: number;
  inode?: number;
  field?: string;
  name?: string;
  /** Its bytes in hexadecimal, if it is no text. */
  nameBytes?: string;
  path?: string;
  pathBytes?: string;
  expected?: string;
  found?: string;
  detail?: string;
}

export interface FindingsOfKind {
  /** A stable name, such as `ext4-inode-checksum`. */
  code: string;
  severity: 'harmless' | 'at-risk' | 'unusable';
  structure: string;
  meaning: string;
  /** What a repair does about it. */
  repair: string;
  count: number;
  /** How many of them are not among the findings. */
  leftOut: number;
  /** The first 100. */
  findings: Finding[];
}

/** What `diskwright check --json` says, with names as JavaScript has them. */
export interface Report {
  format: 'ext4' | 'xfs';
  verdict: 'clean' | 'damaged' | 'incomplete';
  isComplete: boolean;
  /** Whether `onProgress` ended it. */
  isInterrupted: boolean;
  /** What was looked at. */
  summary: {
    inodes: number;
    directories: number;
    blocks: number;
    blocksUsed: number;
    transactionsReplayed: number;
  };
  /** How many findings there are of each severity. */
  counts: Record<FindingsOfKind['severity'], number>;
  /** The worst first. */
  kinds: FindingsOfKind[];
}

export interface CheckOptions extends Place {
  /** If it returns false, the check ends. */
  onProgress?: (phase: string, done: number, total: number) => boolean | void;
}

/** Finds what is wrong in an image. It must not be open to be changed. */
export declare function check(source: Uint8Array | ArrayBuffer | string | Device, options?: CheckOptions): Report;

export interface PartitionInfo {
  number: number;
  offset: number;
  size: number;
  description: string;
  /** `ext`, `xfs`, `zeros`, `unknown`, or what else it is. */
  contents: string;
}

export interface Layout {
  size: number;
  /** As of a partition, or `partitions`. */
  contents: string;
  advice?: string;
  partitions?: PartitionInfo[];
  error?: { code: string; message: string };
}

/** What a disk holds. */
export declare function layout(source: Uint8Array | ArrayBuffer | string | Device): Layout;

/** A file or block device of the host. */
export declare class FileDevice implements Device {
  constructor(path: string, options?: { writable?: boolean });
  readonly size: number;
  readAt(offset: number, buffer: Uint8Array): number;
  writeAt?(offset: number, bytes: Uint8Array): number;
  flush(): void;
  close(): void;
}

/** Bytes in memory. */
export declare class MemoryDevice implements Device {
  constructor(bytes: Uint8Array);
  readonly bytes: Uint8Array;
  readonly size: number;
  readAt(offset: number, buffer: Uint8Array): number;
  writeAt(offset: number, bytes: Uint8Array): number;
  flush(): void;
}

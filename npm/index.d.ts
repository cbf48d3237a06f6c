/** Reads, writes, creates and checks ext2, ext3, ext4 and XFS images. All calls are synchronous. */

/** A path from the root of the image: a string, or bytes if names are not UTF-8. */
export type Path = string | Uint8Array;

/** Storage of an image: any object that reads and writes bytes. */
export interface Device {
  /** Length in bytes. It must not change while the device is in use. */
  readonly size: number;
  /** Fills `buffer` from byte `offset` on, and returns the number of bytes read. A short read is an error. */
  readAt(offset: number, buffer: Uint8Array): number;
  /** Writes all of `bytes` at `offset`, and returns the number of bytes written. A short write is an error. */
  writeAt?(offset: number, bytes: Uint8Array): number;
  /** Returns when all earlier writes are durable. */
  flush?(): void;
}

/** Exception of all calls: an `Error` with a code, and for damage the structure and its location. */
export interface DiskwrightError extends Error {
  /**
   * `ENOENT`, `EEXIST`, `ENOSPC` and others with the meaning of system calls; `EUCLEAN` for damage, `ENOTSUP` for
   * unsupported features, `EBADF` after `close`, `EIO` if the device failed (`cause` is its exception).
   */
  code: string;
  /** The damaged structure, in the terms of the format. */
  structure?: string;
  /** Block group or allocation group. */
  group?: number;
  block?: number;
  inode?: number;
  expected?: string;
  found?: string;
  cause?: unknown;
  /** Set by methods of the `fs` interface, with the values of `fs`. */
  syscall?: string;
  errno?: number;
  path?: string;
  dest?: string;
}

export type FileType = 'file' | 'directory' | 'symlink' | 'char-device' | 'block-device' | 'fifo' | 'socket';

/** The attributes of a file. Numbers above 2^53, which occur only in damaged images, are rounded. */
export declare class Stat {
  readonly type: FileType;
  readonly ino: number;
  /** Type and permissions: `st_mode`. */
  readonly mode: number;
  /** The mode in the form of `ls -l`. */
  readonly modeText: string;
  readonly nlink: number;
  readonly uid: number;
  readonly gid: number;
  /** Size in bytes. */
  readonly size: number;
  /** Allocated space, in units of 512 bytes. */
  readonly blocks: number;
  /** Device number of character and block devices. */
  readonly rdev?: { readonly major: number; readonly minor: number };
  readonly atime: Date;
  readonly mtime: Date;
  readonly ctime: Date;
  /** Time of creation, if the format stores it. */
  readonly birthtime?: Date;
  /** Exact nanoseconds since 1970, like the following fields. */
  readonly atimeNs: bigint;
  readonly mtimeNs: bigint;
  readonly ctimeNs: bigint;
  readonly birthtimeNs?: bigint;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
  protected constructor();
}

/** A file in a directory. If its inode is damaged, `error` describes the damage, and the attributes are undefined. */
export declare class Entry extends Stat {
  readonly name: string;
  /** The name in bytes, as stored. */
  readonly nameBytes: Uint8Array;
  readonly error?: DiskwrightError;
}

/** A file that {@link Image.walk} returned. */
export interface Walked {
  path: string;
  pathBytes: Uint8Array;
  entry: Entry;
  /** Set to true to skip the contents of this directory. */
  skip: boolean;
}

/** Properties of an image. */
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
  /** `clean`, or the condition of the image when it was opened. */
  state: string;
  /** Number of replayed transactions of the journal or log; replayed in memory if the image is not writable. */
  replayedTransactions: number;
  features: string[];
  /** Damage that does not prevent reading. */
  remarks: string[];
}

/** Permissions and owner of a new file. Defaults: 0644 (0755 for directories), owner root. */
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

/** A time for `fs.utimes`: a `Date`, or a number of seconds. */
export type FsTime = Date | number | string | bigint;

type Mode = number | string;
type WriteOptions = BufferEncoding | { encoding?: BufferEncoding | null; mode?: Mode; flag?: 'w' | 'wx' | 'a' } | null;
type ReaddirOptions = { encoding?: BufferEncoding | null; withFileTypes?: false; recursive?: boolean };
type MkdirOptions = { recursive?: boolean; mode?: Mode };

/** The functions of `fs.promises`. Each call does its work synchronously, before the promise is returned. */
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

/** An open image. Methods that end in `Sync`, and `promises`, have the arguments and results of Node's module `fs`. */
export declare class Image {
  private constructor();
  readonly isWritable: boolean;
  /** The bytes of an image in memory. They are complete after `close`. */
  readonly bytes: Uint8Array | undefined;
  info(): Info;
  /** A map of the disk as SVG. */
  map(options?: { title?: string; cells?: number }): string;
  /** Entries of a directory, sorted by the bytes of names. For a damaged directory, the error has the readable `entries`. */
  list(path?: Path): Entry[];
  /** The attributes of a file. Symbolic links are followed. */
  stat(path: Path): Stat;
  lstat(path: Path): Stat;
  exists(path: Path): boolean;
  readlink(path: Path): string;
  readlinkBytes(path: Path): Buffer;
  /** The contents of a file or a part of them. */
  read(path: Path, options?: { offset?: number; length?: number }): Buffer;
  readText(path: Path): string;
  /** The contents of a file in pieces. */
  chunks(path: Path, options?: { chunkSize?: number }): Generator<Buffer, void, void>;
  /** All files below a directory, each directory before its contents. */
  walk(path?: Path): Generator<Walked, void, void>;
  /** A tar archive of a directory or file, in pieces. With `keepGoing`, unreadable files are skipped and reported. */
  tar(
    path?: Path,
    options?: { keepGoing?: boolean; onRemark?: (error: DiskwrightError) => void },
  ): Generator<Buffer, void, void>;
  listXattrs(path: Path): string[];
  /** Extended attributes, with the names of Linux: `user.x`, `security.capability`. */
  getXattr(path: Path, name: Path): Buffer;
  setXattr(path: Path, name: Path, value: Path): void;
  removeXattr(path: Path, name: Path): void;
  /** Creates a file, which is complete when its name appears, or overwrites an existing one. */
  writeFile(path: Path, contents: Path, options?: NewOptions): void;
  /** Writes to an existing file. */
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
  /** Makes all changes durable and marks the image clean. Without this call, the image is in the state after a crash. */
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
  /** With `recursive`, returns the first directory that was created. */
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

/** Location of the file system on a disk. */
export interface Place {
  /** Number of a GPT or MBR partition, numbered as in Linux. */
  partition?: number;
  /** Byte offset, instead of a partition. */
  offset?: number;
}

export interface OpenOptions extends Place {
  /** Open for changes. The journal or log is replayed first. */
  writable?: boolean;
  /** Read the image without replaying its journal or log. */
  norecovery?: boolean;
  /** Cache for metadata, in bytes; 64 MiB by default. */
  cacheBytes?: number;
}

/** Opens an image in memory, in a file of the host (a path), or on any device. */
export declare function open(source: Uint8Array | ArrayBuffer | string | Device, options?: OpenOptions): Image;

export interface FormatOptions {
  fs: 'ext4' | 'xfs';
  /** Size in bytes of an image in memory. The minimum of XFS is 300 MiB, or 16 MiB with `small`. */
  size?: number;
  /** Device for the image, instead of memory. */
  device?: Device | Uint8Array | string;
  label?: string;
  /** Random by default. */
  uuid?: string;
  blockSize?: number;
  /** Features to turn on or off, as in `mke2fs -O` and `mkfs.xfs -m`: `metadata_csum,^huge_file`. */
  features?: string;
  small?: boolean;
}

/** Creates an empty file system and opens it for changes. */
export declare function format(options: FormatOptions): Image;

export interface Finding {
  group?: number;
  block?: number;
  inode?: number;
  field?: string;
  name?: string;
  /** The bytes in hexadecimal, if the name is not text. */
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
  /** Effect of a repair. */
  repair: string;
  count: number;
  /** Number of findings that are not listed. */
  leftOut: number;
  /** The first 100 findings. */
  findings: Finding[];
}

/** The output of `diskwright check --json`, with names in camel case. */
export interface Report {
  format: 'ext4' | 'xfs';
  verdict: 'clean' | 'damaged' | 'incomplete';
  isComplete: boolean;
  /** True if `onProgress` cancelled the check. */
  isInterrupted: boolean;
  /** Numbers of checked objects. */
  summary: {
    inodes: number;
    directories: number;
    blocks: number;
    blocksUsed: number;
    transactionsReplayed: number;
  };
  /** Number of findings by severity. */
  counts: Record<FindingsOfKind['severity'], number>;
  /** Findings, the most severe first. */
  kinds: FindingsOfKind[];
}

export interface CheckOptions extends Place {
  /** Called with the progress. Returning false cancels the check. */
  onProgress?: (phase: string, done: number, total: number) => boolean | void;
}

/** Checks an image, which must not be open for changes. */
export declare function check(source: Uint8Array | ArrayBuffer | string | Device, options?: CheckOptions): Report;

export interface PartitionInfo {
  number: number;
  offset: number;
  size: number;
  description: string;
  /** `ext`, `xfs`, `zeros`, `unknown`, or the name of another format. */
  contents: string;
}

export interface Layout {
  size: number;
  /** The values of a partition, or `partitions`. */
  contents: string;
  advice?: string;
  partitions?: PartitionInfo[];
  error?: { code: string; message: string };
}

/** Contents of a disk. */
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

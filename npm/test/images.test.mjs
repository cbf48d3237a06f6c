// Tests the package on images in memory and in files: listings equal those of the program, and written images are valid.
//
//   IMAGES=FOLDER PROGRAM=diskwright node --test npm/test
//
// scripts/test-web makes the images and calls this.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import hostFs, { closeSync, ftruncateSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, test } from 'node:test';
import diskwright, { check, format, layout, open, MemoryDevice } from 'diskwright';

const { IMAGES, PROGRAM } = process.env;
const scratch = mkdtempSync(path.join(tmpdir(), 'diskwright-npm-'));
after(() => rmSync(scratch, { recursive: true }));
const MIB = 1 << 20;
const FORMATS = [['ext4', 16 * MIB, {}], ['xfs', 300 * MIB, {}]];

const run = (command, ...args) => execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
const fails = (code, work) => assert.throws(work, (error) => error instanceof Error && error.code === code);

/** Checks an image with e2fsck or xfs_repair. */
function judge(fs, bytes) {
  const file = path.join(scratch, `${fs}.img`);
  writeFileSync(file, bytes);
  if (fs === 'ext4') run('e2fsck', '-fn', file);
  else run('xfs_repair', '-n', file);
  return file;
}

for (const [fs, size] of FORMATS) {
  test(`${fs}: what is written is read back, and judges find nothing wrong`, () => {
    const image = format({ fs, size, label: 'from-node', uuid: '00112233-4455-6677-8899-aabbccddeeff' });
    assert.equal(image.info().uuid, '00112233-4455-6677-8899-aabbccddeeff');
    assert.equal(image.info().label, 'from-node');
    image.mkdir('/a/b/c', { recursive: true, mode: 0o750 });
    image.writeFile('/a/b/file', 'contents\n', { mode: 0o600, uid: 1, gid: 2 });
    const large = Buffer.alloc(3 * MIB, 'diskwright ');
    image.writeFile('/large', large);
    image.write('/large', 5, Buffer.from('XYZ'));
    large.write('XYZ', 5);
    image.symlink('b/file', '/a/link');
    image.link('/a/b/file', '/hard');
    image.setXattr('/a/b/file', 'user.key', 'value');
    image.chown('/a/b', 1000, 1000);
    image.utimes('/a/b/file', new Date(1_000_000_000_000), 1_234_567_890_123_456_789n);
    for (let i = 0; i < 1000; i++) image.writeFile(`/a/b/c/${i}`, String(i));
    image.rename('/a/b/c/7', '/seven');
    image.rm('/a/b/c', { recursive: true });
    image.truncate('/seven', 1000);
    image.writeFile(Uint8Array.of(0x2f, 0xff, 0xfe), 'a name of any bytes');
    image.close();

    const file = judge(fs, image.bytes);
    const again = open(image.bytes);
    assert.deepEqual(again.read('/large'), large);
    assert.deepEqual(again.read('/large', { offset: 4, length: 6 }), large.subarray(4, 10));
    assert.deepEqual(Buffer.concat([...again.chunks('/large', { chunkSize: 100_000 })]), large);
    assert.equal(again.readText('/a/link'), 'contents\n');
    assert.equal(again.readlink('/a/link'), 'b/file');
    assert.equal(again.lstat('/a/link').isSymbolicLink(), true);
    const stat = again.stat('/hard');
    assert.deepEqual([stat.nlink, stat.uid, stat.gid, stat.mode & 0o7777, stat.mtimeNs, stat.atime.getTime()],
      [2, 1, 2, 0o600, 1_234_567_890_123_456_789n, 1_000_000_000_000]);
    assert.deepEqual(again.listXattrs('/hard'), ['user.key']);
    assert.equal(again.getXattr('/hard', 'user.key').toString(), 'value');
    assert.equal(again.stat('/seven').size, 1000);
    assert.equal(again.exists('/a/b/c'), false);
    const odd = again.list('/').find((entry) => entry.nameBytes[0] === 0xff);
    assert.deepEqual([...odd.nameBytes], [0xff, 0xfe]);
    again.close();
    assert.equal(check(image.bytes).verdict, 'clean');
    assert.equal(check(file).verdict, 'clean');
  });

  test(`${fs}: a change of the owner clears set-ID bits and capabilities`, () => {
    const image = format({ fs, size });
    const mode = (path) => image.lstat(path).mode & 0o7777;
    for (const change of ['chown', 'lchown']) {
      const [tool, locked, dir] = [`/${change}`, `/${change}-locked`, `/${change}-dir`];
      image.writeFile(tool, 'x');
      image.chmod(tool, 0o6755);
      image.setXattr(tool, 'security.capability', Buffer.from('0100000200200000000000000000000000000000', 'hex'));
      // Without the right to execute, the set-group-ID bit has another meaning.
      image.writeFile(locked, 'x');
      image.chmod(locked, 0o6644);
      image.mkdir(dir);
      image.chmod(dir, 0o6775);
      assert.deepEqual([tool, locked, dir].map(mode), [0o6755, 0o6644, 0o6775]);
      for (const path of [tool, locked, dir]) image[change](path, 1000, 100);
      assert.deepEqual([tool, locked, dir].map(mode), [0o755, 0o2644, 0o6775]);
      assert.deepEqual(image.listXattrs(tool), []);
      const { uid, gid } = image.stat(tool);
      assert.deepEqual([uid, gid], [1000, 100]);
    }
    image.close();
    judge(fs, image.bytes);
  });

  test(`${fs}: errors have the codes that system calls have`, () => {
    const image = format({ fs, size });
    image.writeFile('/file', 'x');
    image.mkdir('/dir');
    image.writeFile('/dir/inner', 'x');
    fails('ENOENT', () => image.stat('/nothing'));
    fails('ENOTDIR', () => image.list('/file'));
    fails('ENOTDIR', () => image.stat('/file/below'));
    fails('EISDIR', () => image.read('/dir'));
    fails('EEXIST', () => image.mkdir('/dir'));
    fails('EEXIST', () => image.mkdir('/'));
    fails('ENOTEMPTY', () => image.rm('/dir'));
    fails('ENODATA', () => image.getXattr('/file', 'user.none'));
    fails('ENAMETOOLONG', () => image.writeFile(`/${'n'.repeat(256)}`, ''));
    fails('EINVAL', () => image.read('/file', { offset: -1 }));
    fails('EINVAL', () => image.truncate('/file', 1.5));
    fails('EINVAL', () => image.stat(7));
    fails('EINVAL', () => image.readlink('/file'));
    image.symlink('loop', '/loop');
    fails('ELOOP', () => image.stat('/loop'));
    fails('ENOSPC', () => image.writeFile('/huge', Buffer.alloc(size)));
    assert.equal(image.exists('/huge'), false, 'a failed write leaves no trace');
    image.rm('/nothing', { force: true });
    image.close();
    fails('EBADF', () => image.list('/'));
    fails('EBADF', () => image.close());
    const reader = open(image.bytes);
    fails('EROFS', () => reader.writeFile('/file', 'y'));
    reader.close();
    judge(fs, image.bytes);
  });

  test(`${fs}: a device that returns short, throws, or asks for what it serves is an error`, () => {
    const image = format({ fs, size });
    image.writeFile('/file', Buffer.alloc(MIB, 1));
    image.close();
    const inner = new MemoryDevice(image.bytes);
    let mode = 'good';
    let reader;
    const device = {
      size: inner.size,
      readAt(offset, buffer) {
        if (mode === 'short') return inner.readAt(offset, buffer.subarray(0, buffer.length - 1));
        if (mode === 'throws') throw new RangeError('the cable is out');
        if (mode === 'asks') reader.stat('/');
        if (mode === 'nothing') return undefined;
        return inner.readAt(offset, buffer);
      },
    };
    reader = open(device);
    for (mode of ['short', 'throws', 'asks', 'nothing']) {
      assert.throws(() => reader.read('/file'), (error) => {
        assert.equal(error.code, 'EIO', `${mode}: ${error.message}`);
        if (mode === 'throws') assert.match(error.cause.message, /cable/);
        if (mode === 'asks') assert.equal(error.cause.code, 'EBUSY');
        return true;
      });
    }
    mode = 'good';
    assert.equal(reader.read('/file').length, MIB);
    reader.close();
    fails('EROFS', () => open({ size: inner.size, readAt: inner.readAt.bind(inner) }, { writable: true }));
    fails('EINVAL', () => open({ size: 10 }));
    fails('EINVAL', () => open({ size: -5, readAt() {} }));
  });

  test(`${fs}: an archive has what is in the image`, () => {
    const image = format({ fs, size });
    image.mkdir('/dir');
    image.writeFile('/dir/file', 'in the archive\n', { mode: 0o755 });
    image.writeFile('/sparse', 'x');
    image.truncate('/sparse', 10 * MIB);
    image.symlink('dir/file', '/link');
    image.link('/dir/file', '/second');
    const archive = path.join(scratch, `${fs}.tar`);
    writeFileSync(archive, Buffer.concat([...image.tar('/')]));
    image.close();
    const file = judge(fs, image.bytes);
    assert.deepEqual(run('tar', '-tf', archive), run('sh', '-c', '"$0" extract "$1" - | tar -t', PROGRAM, file));
    assert.equal(run('cmp', archive, archiveByProgram(file)), '');
  });
}

/** The archive that the program makes. */
function archiveByProgram(file) {
  const archive = `${file}.tar`;
  run(PROGRAM, 'extract', file, archive, '--force');
  return archive;
}

for (const name of ['ext4', 'xfs', 'mke2fs', 'mkfs-xfs']) {
  test(`${name}: the tree is what the program lists`, () => {
    const file = path.join(IMAGES, `${name}.img`);
    const listed = run(PROGRAM, 'ls', '-R', '--json', file, '/').trim().split('\n').map((line) => JSON.parse(line));
    const stamp = (time) => BigInt(Date.parse(`${time.slice(0, 19)}Z`)) * 1_000_000n + BigInt(time.slice(20, 29));
    const theirs = new Map(listed.map((one) => [one.path, [one.type, one.mode, one.inode, one.uid, one.gid, one.size,
      one.blocks_512, one.links, stamp(one.mtime), stamp(one.ctime)]]));
    const image = open(file);
    const ours = new Map();
    for (const { path: at, entry } of image.walk('/')) {
      ours.set(at, [entry.type, (entry.mode & 0o7777).toString(8).padStart(4, '0'), entry.ino, entry.uid, entry.gid,
        entry.size, entry.blocks, entry.nlink, entry.mtimeNs, entry.ctimeNs]);
    }
    image.close();
    assert.equal(ours.size, theirs.size);
    for (const [at, facts] of theirs) assert.deepEqual(ours.get(at), facts, at);
  });
}

test('partitions are listed and opened', () => {
  const file = path.join(IMAGES, 'disk.img');
  const found = layout(file);
  assert.equal(found.contents, 'partitions');
  assert.deepEqual(found.partitions.map((one) => [one.number, one.description, one.contents]), [[1, 'boot', 'ext'], [2, 'data', 'xfs']]);
  const image = open(file, { partition: 2 });
  assert.equal(image.info().format, 'xfs');
  image.close();
  const same = open(file, { offset: found.partitions[0].offset });
  assert.equal(same.info().format, 'ext4');
  same.close();
  assert.equal(check(file, { partition: 1 }).verdict, 'clean');
  fails('ENOENT', () => open(file, { partition: 9 }));
  fails('ENOTSUP', () => open(file));
});

test('damage is told with its structure and place', () => {
  const bytes = readFileSync(path.join(IMAGES, 'damaged.img'));
  const image = open(bytes);
  const entry = image.list('/directory').find((one) => one.name === 'binary');
  assert.equal(entry.error.code, 'EUCLEAN');
  assert.equal(entry.error.structure, 'inode');
  assert.equal(typeof entry.error.inode, 'number');
  const remarks = [];
  const kept = [...image.tar('/', { keepGoing: true, onRemark: (error) => remarks.push(error) })];
  assert.ok(kept.length > 0 && remarks.length > 0);
  fails('EUCLEAN', () => [...image.tar('/')]);
  image.close();
  const phases = new Set();
  const report = check(bytes, { onProgress: (phase) => { phases.add(phase); } });
  assert.equal(report.verdict, 'damaged');
  assert.ok(report.kinds.some((kind) => kind.code === 'ext4-inode-checksum'));
  assert.ok(phases.size >= 3);
  const { kinds, counts, summary } = report;
  assert.equal(kinds.reduce((sum, kind) => sum + kind.count, 0), counts.unusable + counts['at-risk'] + counts.harmless);
  assert.ok(kinds.every((kind) => kind.leftOut === kind.count - kind.findings.length));
  assert.ok(summary.inodes > 0 && summary.blocksUsed <= summary.blocks);
  const ended = check(bytes, { onProgress: () => false });
  assert.deepEqual([ended.isComplete, ended.isInterrupted], [false, true]);
});

test('bytes that are changed at random never end the module', () => {
  for (const [name, count] of [['ext4', 60], ['xfs', 12]]) {
    const whole = readFileSync(path.join(IMAGES, `${name}.img`));
    let seed = 12_345;
    const random = (below) => {
      seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
      return seed % below;
    };
    for (let round = 0; round < count; round++) {
      const changed = [];
      for (let i = 0; i < 200; i++) {
        const at = random(i % 2 ? 2 * MIB : whole.length);
        changed.push([at, whole[at]]);
        whole[at] = random(256);
      }
      try {
        const image = open(whole);
        try {
          for (const { path: at, entry } of image.walk('/')) if (entry.type === 'file') image.read(at, { length: 5000 });
        } catch (error) {
          assert.notEqual(error.code, 'EFAULT', error.message);
          assert.ok(error.code, error.stack);
        }
        image.close();
        check(whole);
      } catch (error) {
        assert.notEqual(error.code, 'EFAULT', error.message);
        assert.ok(error.code, error.stack);
      }
      for (const [at, byte] of changed.reverse()) whole[at] = byte;
    }
  }
});

test('an image in a file is made and changed in place', () => {
  const file = path.join(scratch, 'in-place.img');
  const handle = openSync(file, 'w');
  ftruncateSync(handle, 32 * MIB);
  closeSync(handle);
  const made = format({ fs: 'ext4', device: file });
  made.writeFile('/one', '1');
  made.close();
  const again = open(file, { writable: true });
  again.writeFile('/two', '2');
  again.close();
  run('e2fsck', '-fn', file);
  assert.equal(run(PROGRAM, 'cat', file, '/one', '/two'), '12');
});

test('the viewer of the examples shows trees and files', () => {
  const viewer = path.join(import.meta.dirname, '../examples/viewer.mjs');
  const tree = run(process.execPath, viewer, `${path.join(IMAGES, 'disk.img')},2`, '/directory');
  assert.match(tree, /-rw-r--r-- +20000 .*Z \/directory\/binary\n/);
  assert.match(tree, /\/directory\/deeper\/note\.md/);
  const file = path.join(IMAGES, 'ext4.img');
  assert.equal(run(process.execPath, viewer, file, '/link'), 'Hello from the image\n');
  assert.throws(() => run(process.execPath, viewer, file, '/nothing'), (error) => error.status === 1);
});

test('the map is the one that the program draws', () => {
  for (const name of ['ext4', 'xfs']) {
    const file = path.join(IMAGES, `${name}.img`);
    const image = open(file);
    const cells = (svg) => svg.match(/<(rect|path)\b[^>]*>/g).length;
    assert.equal(cells(image.map({ title: `${name}.img` })), cells(run(PROGRAM, 'map', file, '--format', 'svg')));
    image.close();
  }
});

/** Applies the same changes to a directory of the host and to an image, and returns the resulting trees. */
async function useAsFs(fs, top) {
  const seen = [];
  const see = (value) => seen.push(value);
  const code = async (work) => {
    try {
      await work();
      see('no error');
    } catch (error) {
      see([error.code, error.syscall !== undefined, typeof error.errno]);
    }
  };
  const at = (name) => `${top}/${name}`;
  const shown = (stat) => [stat.isFile(), stat.isDirectory(), stat.isSymbolicLink(), stat.isFIFO(), stat.mode & 0o7777,
    stat.nlink, stat.uid, stat.gid, stat.isDirectory() ? 0 : stat.size, stat.mtimeMs, stat.mtime.getTime()];
  see(fs.mkdirSync(at('a/b/c'), { recursive: true })?.slice(top.length));
  see(fs.mkdirSync(at('a/b/c'), { recursive: true }));
  await code(() => fs.mkdirSync(at('a')));
  await code(() => fs.mkdirSync(at('none/x')));
  fs.writeFileSync(at('a/file'), 'grüße\n', { mode: 0o640 });
  fs.writeFileSync(at('a/latin'), 'grüße', 'latin1');
  fs.appendFileSync(at('a/file'), Buffer.from('more'));
  fs.appendFileSync(at('a/new'), 'x');
  await code(() => fs.writeFileSync(at('a/file'), '', { flag: 'wx' }));
  see(fs.readFileSync(at('a/file'), 'utf8'));
  see(fs.readFileSync(at('a/latin'), { encoding: 'hex' }));
  see(Buffer.isBuffer(fs.readFileSync(at('a/file'))));
  fs.symlinkSync('a/file', at('link'));
  fs.symlinkSync('loop', at('loop'));
  fs.linkSync(at('a/file'), at('hard'));
  fs.utimesSync(at('a/file'), 5, 1_234_567.25);
  fs.chmodSync(at('a/file'), 0o600);
  see(shown(fs.statSync(at('link'))));
  see(fs.lstatSync(at('link')).isSymbolicLink());
  see(fs.statSync(at('hard'), { bigint: true }).mtimeNs);
  see(fs.statSync(at('none'), { throwIfNoEntry: false }));
  see(fs.readlinkSync(at('link')));
  see(fs.realpathSync(at('link')).slice(top.length));
  see([fs.existsSync(at('link')), fs.existsSync(at('loop')), fs.existsSync(at('none'))]);
  see(fs.readdirSync(top).sort());
  see(fs.readdirSync(top, { recursive: true }).sort());
  see(fs.readdirSync(top, { withFileTypes: true }).map((one) => [one.name, one.isDirectory(), one.isSymbolicLink()]).sort());
  for (const work of [() => fs.statSync(at('none')), () => fs.statSync(at('loop')), () => fs.readdirSync(at('a/file')),
    () => fs.readFileSync(at('none')), () => fs.rmdirSync(at('a')), () => fs.unlinkSync(at('none')),
    () => fs.rmdirSync(at('a/file')), () => fs.readlinkSync(at('a/file')), () => fs.accessSync(at('none')),
    () => fs.renameSync(at('none'), at('x')), () => fs.promises.stat(at('none'))]) await code(work);
  fs.copyFileSync(at('a/file'), at('copy'));
  await code(() => fs.copyFileSync(at('a/file'), at('copy'), 1));
  see([fs.readFileSync(at('copy'), 'utf8'), fs.statSync(at('copy')).mode & 0o7777]);
  fs.truncateSync(at('copy'), 3);
  fs.renameSync(at('copy'), at('moved'));
  see(fs.readFileSync(at('moved'), 'latin1'));
  await fs.promises.writeFile(at('promised'), 'p');
  see(await fs.promises.readFile(at('promised'), 'utf8'));
  see((await fs.promises.stat(at('promised'))).size);
  see((await fs.promises.readdir(at('a'))).sort());
  await fs.promises.mkdir(at('d'));
  await fs.promises.rm(at('a'), { recursive: true });
  await fs.promises.rm(at('a'), { force: true });
  await fs.promises.unlink(at('promised'));
  fs.rmdirSync(at('d'));
  await code(() => fs.rmSync(at('none')));
  see(fs.readdirSync(top).sort());
  return seen;
}

for (const [fs, size] of FORMATS) {
  test(`${fs}: functions with names of fs do in an image what those of Node do on the host`, async () => {
    const top = mkdtempSync(path.join(scratch, 'host-'));
    const theirs = await useAsFs(hostFs, top);
    const image = format({ fs, size });
    image.mkdir('/top');
    assert.deepEqual(await useAsFs(image, '/top'), theirs);
    image.close();
    judge(fs, image.bytes);
  });
}

test('CommonJS has the same', () => {
  assert.equal(createRequire(import.meta.url)('diskwright').open, diskwright.open);
});

test('the first example of docs/browser.md runs', () => {
  const page = readFileSync(new URL('../../docs/browser.md', import.meta.url), 'utf8');
  const [, example] = /^```js\n(.*?)^```/ms.exec(page);
  const tree = path.join(scratch, 'rootfs');
  mkdirSync(path.join(tree, 'etc'), { recursive: true });
  writeFileSync(path.join(tree, 'etc/hostname'), 'box\n');
  run(PROGRAM, 'build', tree, path.join(scratch, 'root.img'), '--size', '16M');
  // Imports are resolved in the working directory of the process, files after the change of directory.
  const program = `process.chdir(${JSON.stringify(scratch)});\n${example}`;
  const cwd = path.dirname(new URL(import.meta.resolve('diskwright')).pathname);
  const printed = execFileSync(process.execPath, ['--input-type=module', '-e', program], { cwd, encoding: 'utf8' });
  assert.equal(printed, '/etc/hostname\nbox\n\n');
});

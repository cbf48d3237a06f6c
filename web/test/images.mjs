// Makes the test images of the page and the package, with this project's program, mke2fs and mkfs.xfs.
//
//   node web/test/images.mjs PROGRAM FOLDER
//
// Needs mke2fs, debugfs and mkfs.xfs in PATH. expected.json contains the listings of the program.

import { execFileSync } from 'node:child_process';
import { copyFileSync, mkdirSync, openSync, closeSync, readFileSync, rmSync, truncateSync, writeFileSync, writeSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { crc32, deflateSync } from 'node:zlib';

const [program, folder] = process.argv.slice(2);
const source = path.join(folder, 'source');
const at = (name) => path.join(folder, name);
const run = (command, ...args) => execFileSync(command, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });

/** A picture of 64 by 64 points: a gradient. */
function png() {
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const frame = Buffer.alloc(8);
    frame.writeUInt32BE(data.length, 0);
    frame.writeUInt32BE(crc32(body), 4);
    return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)]);
  };
  const header = Buffer.from([0, 0, 0, 64, 0, 0, 0, 64, 8, 2, 0, 0, 0]);
  const rows = Buffer.alloc(64 * (1 + 64 * 3));
  for (let y = 0; y < 64; y++) {
    for (let x = 0; x < 64; x++) rows.set([x * 4, y * 4, 160], y * 193 + 1 + x * 3);
  }
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 13, 10, 26, 10]);
  return Buffer.concat([signature, chunk('IHDR', header), chunk('IDAT', deflateSync(rows)), chunk('IEND', Buffer.alloc(0))]);
}

function makeSource() {
  mkdirSync(path.join(source, 'directory/deeper'), { recursive: true });
  mkdirSync(path.join(source, 'many'));
  writeFileSync(path.join(source, 'hello.txt'), 'Hello from the image\n');
  writeFileSync(path.join(source, 'picture.png'), png());
  writeFileSync(path.join(source, 'directory/binary'), Buffer.from(Array.from({ length: 20_000 }, (_, i) => i & 255)));
  writeFileSync(path.join(source, 'directory/deeper/note.md'), '# Deeper\n\nStill deeper.\n');
  symlinkSync('hello.txt', path.join(source, 'link'));
  for (let i = 0; i < 1200; i++) writeFileSync(path.join(source, `many/file-${String(i).padStart(4, '0')}`), `${i}\n`);
}

/** Names, modes and owners in a root, as the program lists them. */
function listed(name) {
  const lines = run(program, 'ls', '-l', at(name), '/').trim().split('\n');
  return lines.map((line) => {
    const [mode, , uid, gid] = line.split(/ +/);
    return [/\d\d:\d\d (.*?)( -> .*)?$/.exec(line)[1], mode, `${uid}:${gid}`];
  });
}

/** A partition entry of a GPT. */
function gptEntry(number, first, last, name) {
  const entry = Buffer.alloc(128);
  Buffer.from('af3dc60f838472478e793d69d8477de4', 'hex').copy(entry);
  entry.fill(number, 16, 32);
  entry.writeBigUInt64LE(BigInt(first), 32);
  entry.writeBigUInt64LE(BigInt(last), 40);
  entry.write(name, 56, 'utf16le');
  return entry;
}

function gptHeader(self, other, entriesAt, entries, sectors) {
  const header = Buffer.alloc(92);
  header.write('EFI PART');
  header.writeUInt32LE(0x10000, 8);
  header.writeUInt32LE(92, 12);
  for (const [value, place] of [[self, 24], [other, 32], [34, 40], [sectors - 34, 48], [entriesAt, 72]]) {
    header.writeBigUInt64LE(BigInt(value), place);
  }
  header.fill(7, 56, 72);
  header.writeUInt32LE(128, 80);
  header.writeUInt32LE(128, 84);
  header.writeUInt32LE(crc32(entries), 88);
  header.writeUInt32LE(crc32(header), 16);
  return header;
}

/** A disk with a partition for each image. */
function makeDisk(name, parts) {
  const entries = Buffer.alloc(128 * 128);
  const file = openSync(at(name), 'w');
  let next = 2048;
  parts.forEach(([image, label], index) => {
    const bytes = readFileSync(at(image));
    writeSync(file, bytes, 0, bytes.length, next * 512);
    const last = next + bytes.length / 512 - 1;
    gptEntry(index + 1, next, last, label).copy(entries, index * 128);
    next = Math.ceil((last + 1) / 2048) * 2048;
  });
  const sectors = next + 34;
  const record = Buffer.alloc(512);
  record.set([0, 0, 2, 0, 0xee, 255, 255, 255], 446);
  record.writeUInt32LE(1, 454);
  record.writeUInt32LE(sectors - 1, 458);
  record.set([0x55, 0xaa], 510);
  const put = (bytes, sector) => writeSync(file, bytes, 0, bytes.length, sector * 512);
  put(record, 0);
  put(gptHeader(1, sectors - 1, 2, entries, sectors), 1);
  put(entries, 2);
  put(entries, sectors - 33);
  put(gptHeader(sectors - 1, 1, sectors - 33, entries, sectors), sectors - 1);
  closeSync(file);
  truncateSync(at(name), sectors * 512);
}

/** An image with changes only in its journal, copied before it is closed. */
async function makeUnclean() {
  const { default: diskwright } = await import('../../npm/index.mjs');
  const bytes = readFileSync(at('ext4.img'));
  const image = diskwright.open(bytes, { writable: true });
  image.writeFile('/late.txt', 'only the journal has me\n');
  image.sync();
  writeFileSync(at('unclean.img'), bytes);
  image.close();
}

/** Damages the inode of a file in a directory. */
function makeDamaged() {
  copyFileSync(at('ext4.img'), at('damaged.img'));
  const place = run('debugfs', '-R', 'imap /directory/binary', at('damaged.img'));
  const [, block, offset] = /located at block (\d+), offset 0x([0-9a-f]+)/.exec(place);
  const file = openSync(at('damaged.img'), 'r+');
  writeSync(file, Buffer.from([0xff, 0xff]), 0, 2, Number(block) * 4096 + parseInt(offset, 16));
  closeSync(file);
}

rmSync(folder, { recursive: true, force: true });
makeSource();
const attribute = ['setfattr', '--name', 'user.comment', '--value', 'a comment'];
for (const [name, fs] of [['ext4.img', 'ext4'], ['xfs.img', 'xfs']]) {
  const size = fs === 'xfs' ? '300M' : '64M';
  run(program, 'build', source, at(name), '--fs', fs, '--size', size, '--label', `made-${fs}`, '--owner', '1000:100');
}
run('mke2fs', '-q', '-t', 'ext4', '-b', '1024', '-d', source, '-L', 'by-mke2fs', at('mke2fs.img'), '64M');
run('mkfs.xfs', '-q', '-L', 'by-mkfs', '-p', source, '-d', `file,name=${at('mkfs-xfs.img')},size=300m`);
const formats = ['ext4', 'xfs', 'mke2fs', 'mkfs-xfs'];
for (const name of formats) run(program, 'setfattr', at(`${name}.img`), '/hello.txt', ...attribute.slice(1));
run(program, 'build', source, at('large.img'), '--size', '10G');
const expected = Object.fromEntries(formats.map((name) => [name, { root: listed(`${name}.img`) }]));
writeFileSync(at('expected.json'), JSON.stringify(expected, null, 1));
makeDisk('disk.img', [['ext4.img', 'boot'], ['xfs.img', 'data']]);
await makeUnclean();
makeDamaged();
writeFileSync(at('noise.img'), Buffer.from(Array.from({ length: 65_536 }, (_, i) => (i * 7919 + (i >> 3)) & 255)));
writeFileSync(at('zeros.img'), Buffer.alloc(1 << 20));
writeFileSync(at('qcow2.img'), Buffer.concat([Buffer.from('QFI\xfb', 'latin1'), Buffer.alloc(4096)]));
writeFileSync(at('short.img'), readFileSync(at('ext4.img')).subarray(0, 1 << 20));
copyFileSync(at('xfs.img'), at('changing.img'));

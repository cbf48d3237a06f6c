// Compares the module in Node with the program: listing a tree with attributes, and reading a large file. Prints both
// ratios, and fails if one exceeds its limit.
//
//   node web/test/speed.mjs PROGRAM FOLDER [FIGURES]     FIGURES: a file that gets lines of a table

import { execFileSync, spawnSync } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, openSync, readSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { open } from '../../npm/index.mjs';

const [program, folder, figures] = process.argv.slice(2);
const FACTOR_MAX = 2.5;
const ROUNDS = 5;
const FILES = 40_000;
const LARGE_BYTES = 512 * 2 ** 20;

/** A tree with many small files and a large one. */
function make(fs, image) {
  const source = path.join(folder, 'speed-source');
  if (!existsSync(source)) {
    for (let dir = 0; dir < FILES / 400; dir++) {
      mkdirSync(path.join(source, `directory-${dir}`), { recursive: true });
      for (let i = 0; i < 400; i++) writeFileSync(path.join(source, `directory-${dir}`, `file-${i}`), 'x');
    }
    const piece = Buffer.alloc(2 ** 20, 'not zeros ');
    writeFileSync(path.join(source, 'large'), Buffer.concat(Array(LARGE_BYTES / piece.length).fill(piece)));
  }
  execFileSync(program, ['build', source, image, '--fs', fs, '--size', '2G', '--force'], { stdio: 'ignore' });
}

const median = (times) => times.sort((a, b) => a - b)[Math.floor(times.length / 2)];

function timed(work) {
  const times = [];
  for (let round = 0; round < ROUNDS; round++) {
    const start = performance.now();
    work();
    times.push(performance.now() - start);
  }
  return median(times);
}

const nothing = openSync('/dev/null', 'w');
const native = (...args) => {
  const { status } = spawnSync(program, args, { stdio: ['ignore', nothing, 'inherit'] });
  if (status !== 0) throw new Error(`${args.join(' ')}: status ${status}`);
};

/** Reads the contents through a pipe, because output to /dev/null is not copied. */
function nativeRead(image) {
  const { status } = spawnSync('sh', ['-c', '"$0" cat "$1" /large | cat > /dev/null', program, image]);
  if (status !== 0) throw new Error(`cat: status ${status}`);
}

function list(image) {
  const opened = open(image);
  let files = 0;
  for (const { entry } of opened.walk('/')) files += entry.size >= 0 ? 1 : 0;
  opened.close();
  if (files < FILES) throw new Error(`${files} files`);
}

function read(image) {
  const opened = open(image);
  let bytes = 0;
  for (const piece of opened.chunks('/large', { chunkSize: 4 * 2 ** 20 })) bytes += piece.length;
  opened.close();
  if (bytes !== LARGE_BYTES) throw new Error(`${bytes} bytes`);
}

/** Reads the image, so that both find it in the kernel's cache. */
function warm(image) {
  const file = openSync(image);
  const buffer = Buffer.alloc(2 ** 22);
  for (let at = 0; at < statSync(image).size; at += buffer.length) readSync(file, buffer, 0, buffer.length, at);
}

let isSlow = false;
for (const fs of ['ext4', 'xfs']) {
  const image = path.join(folder, `speed-${fs}.img`);
  make(fs, image);
  warm(image);
  const rows = [
    [`list ${FILES} files`, timed(() => native('ls', '-R', '--json', image, '/')), timed(() => list(image))],
    ['read 512 MiB', timed(() => nativeRead(image)), timed(() => read(image))],
  ];
  for (const [what, theirs, ours] of rows) {
    const factor = ours / theirs;
    isSlow ||= factor > FACTOR_MAX;
    console.log(`${fs}: ${what}: program ${theirs.toFixed(0)} ms, module ${ours.toFixed(0)} ms, factor ${factor.toFixed(2)}`);
    const line = `| ${fs}: ${what}, module by program | ${FACTOR_MAX} | ${factor.toFixed(2)} (${ours.toFixed(0)} ms by ${theirs.toFixed(0)} ms) |\n`;
    if (figures) appendFileSync(figures, line);
  }
  rmSync(image);
}
rmSync(path.join(folder, 'speed-source'), { recursive: true });
if (isSlow) {
  console.error(`more than ${FACTOR_MAX} times as slow`);
  process.exit(1);
}

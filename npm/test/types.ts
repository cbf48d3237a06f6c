// Compiled by tsc, not run: the types say what the package does.

import { check, format, open, type Device, type DiskwrightError, type Entry, type Report } from 'diskwright';
import diskwright = require('diskwright');

const bytes = new Uint8Array(10);
const device: Device = { size: 10, readAt: (_offset, buffer) => buffer.length };
const image = open(device, { partition: 1, writable: false });
const entries: Entry[] = image.list('/');
const names: string[] = entries.map((entry) => entry.name);
const time: bigint = image.stat(bytes).mtimeNs;
const text: string = image.read('/etc/passwd', { offset: 1, length: 2 }).toString();
for (const { path, entry } of image.walk()) names.push(path, entry.modeText);
for (const piece of image.tar('/', { keepGoing: true, onRemark: (error: DiskwrightError) => error.code })) piece.length;
const made = format({ fs: 'xfs', size: 1, label: 'x' });
made.writeFile('/a', 'b', { mode: 0o644 });
const read: string = made.readFileSync('/a', 'utf8') + made.readFileSync('/a').toString('latin1');
const listed: string[] = made.readdirSync('/').concat(made.readdirSync('/', { withFileTypes: true }).map((one) => one.name));
const nanoseconds: bigint = made.statSync('/a', { bigint: true }).mtimeNs;
const promised: Promise<string> = made.promises.readFile('/a', { encoding: 'utf8' });
const report: Report = check(bytes, { onProgress: (phase, done, total) => phase.length + done < total });
const same: typeof open = diskwright.open;

// @ts-expect-error there is no such format
format({ fs: 'ntfs', size: 1 });
// @ts-expect-error a device has a size
open({ readAt: () => 0 });
// @ts-expect-error images are made by open and format
new diskwright.Image();

export { read, listed, nanoseconds, promised, names, time, text, report, same };

// One file: its attributes, and its contents as text, as a picture, or in hexadecimal.

import { el, failureBox, pairs, say } from './dom.js';
import { save } from './save.js';
import { count, exactTime, pathText, size, visible } from './text.js';

const TEXT_BYTES = 64 * 1024;
const HEX_BYTES = 4096;
const PIECE_BYTES = 4 * 1024 * 1024;
/** Maximum size of a picture, which must be completely in memory. */
const PICTURE_BYTES_MAX = 32 * 1024 * 1024;

const PICTURES = [
  ['image/png', [0x89, 0x50, 0x4e, 0x47]], ['image/jpeg', [0xff, 0xd8, 0xff]], ['image/gif', [0x47, 0x49, 0x46, 0x38]],
  ['image/bmp', [0x42, 0x4d]],
];

function pictureType(name, head) {
  const found = PICTURES.find(([, magic]) => magic.every((byte, at) => head[at] === byte));
  if (found) return found[0];
  const text = new TextDecoder('latin1').decode(head.subarray(0, 256));
  if (text.startsWith('RIFF') && text.slice(8, 12) === 'WEBP') return 'image/webp';
  if (text.slice(4, 12) === 'ftypavif') return 'image/avif';
  if (/\.svg$/i.test(name) && text.includes('<')) return 'image/svg+xml';
  return null;
}

/** Returns whether bytes are text: UTF-8 without control characters that are unusual in text. */
function isText(head) {
  if (head.some((byte) => byte < 9 || (byte > 13 && byte < 32 && byte !== 27))) return false;
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(head, { stream: true });
    return true;
  } catch {
    return false;
  }
}

function hexLines(bytes, start) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = bytes.subarray(at, at + 16);
    const digits = Array.from(row, (byte) => byte.toString(16).padStart(2, '0'));
    const left = digits.slice(0, 8).join(' ').padEnd(23);
    const right = digits.slice(8).join(' ').padEnd(23);
    const text = Array.from(row, (byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : '.')).join('');
    lines.push(`${(start + at).toString(16).padStart(8, '0')}  ${left}  ${right}  ${text}`);
  }
  return lines.join('\n');
}

/** The value of an attribute as text if possible, otherwise in hexadecimal. */
function valueText(hex) {
  const bytes = Uint8Array.from(hex.match(/../g) ?? [], (digits) => parseInt(digits, 16));
  const end = bytes.length > 0 && bytes[bytes.length - 1] === 0 ? bytes.subarray(0, -1) : bytes;
  return end.length > 0 && isText(end) ? visible(new TextDecoder().decode(end)) : `0x${hex}`;
}

const WORDS = {
  file: 'file', directory: 'directory', symlink: 'symbolic link', 'char-device': 'character device',
  'block-device': 'block device', fifo: 'named pipe', socket: 'socket',
};

/** Shows the selected file. */
export class Viewer {
  constructor(element, engine) {
    this.element = element;
    this.engine = engine;
    this.shown = 0;
    this.urls = [];
  }

  async show(node) {
    const mine = ++this.shown;
    for (const url of this.urls.splice(0)) URL.revokeObjectURL(url);
    const { entry, path } = node;
    const title = el('h2', { text: visible(entry.name) });
    if (entry.error) {
      this.element.replaceChildren(title, failureBox('This file cannot be read', entry.error));
      return;
    }
    let details;
    try {
      details = await this.engine.call('details', { path });
    } catch (error) {
      if (mine === this.shown) this.element.replaceChildren(title, failureBox('This file cannot be read', error));
      return;
    }
    if (mine !== this.shown) return;
    const contents = el('div', {});
    const errors = details.errors ?? [];
    this.element.replaceChildren(title, this.#actions(node), contents,
      ...errors.map((error) => failureBox('Not all of it can be read', error)),
      el('h3', { text: 'Attributes' }), this.#facts(path, details), ...this.#xattrs(details));
    this.element.scrollTop = 0;
    if (entry.type === 'file') await this.#contents(node, contents, () => mine === this.shown);
  }

  #facts(path, raw) {
    const space = raw.blocks * 512;
    return pairs([
      ['Path', el('span', { class: 'mono', text: pathText(path) })],
      ['Type', WORDS[raw.type] ?? raw.type],
      ['Target', raw.target !== undefined ? visible(raw.target) : undefined],
      ['Size', raw.type === 'file' ? `${size(raw.size)}${raw.size >= 1024 ? ` (${count(raw.size, 'byte')})` : ''}` : undefined],
      ['On disk', size(space)],
      ['Device', raw.rdev?.join(':')],
      ['Permissions', el('span', { class: 'mono', text: `${raw.modeText} (${(raw.mode & 0o7777).toString(8).padStart(4, '0')})` })],
      ['Owner', `user ${raw.uid}, group ${raw.gid}`],
      ['Changed', exactTime(raw.mtime)],
      ['Inode changed', exactTime(raw.ctime)],
      ['Read', exactTime(raw.atime)],
      ['Made', raw.birthtime && exactTime(raw.birthtime)],
      ['Inode', raw.ino],
      ['Names', raw.nlink],
      ['Flags', raw.flags.join(', ')],
    ]);
  }

  #xattrs({ xattrs }) {
    if (xattrs.length === 0) return [];
    const rows = xattrs.map(([name, hex]) => el('tr', {}, el('th', { scope: 'row', class: 'mono', text: visible(name) }),
      el('td', { class: 'mono', text: valueText(hex) })));
    return [el('h3', { text: 'Extended attributes' }), el('div', { class: 'scroll' }, el('table', {}, el('tbody', {}, ...rows)))];
  }

  #actions(node) {
    const { type } = node.entry;
    const box = el('p', { class: 'buttons' });
    if (type === 'file') {
      box.append(el('button', { type: 'button', class: 'primary', onclick: () => this.#run(() => this.#saveFile(node)), text: 'Download' }));
    }
    const archive = type === 'directory' ? 'Download as tar' : 'Download as tar, with attributes';
    if (type !== 'socket') {
      box.append(el('button', { type: 'button', onclick: () => this.#run(() => this.#saveTar(node)), text: archive }));
    }
    return box;
  }

  async #run(work) {
    try {
      await work();
    } catch (error) {
      if (error.code !== 'STOPPED') this.element.prepend(failureBox('It cannot be saved', error));
      say('');
    }
  }

  async #saveFile({ entry, path }) {
    let offset = 0;
    const done = await save(entry.name, entry.size, async () => {
      const bytes = await this.engine.call('read', { path, offset, length: PIECE_BYTES });
      offset += bytes.length;
      say(`Saving ${visible(entry.name)}: ${size(offset)} of ${size(entry.size)}`);
      return bytes;
    });
    say(done ? `Saved ${visible(entry.name)}: ${size(offset)}` : '');
  }

  async #saveTar({ entry, path }) {
    const id = `tar-${Math.random()}`;
    const name = entry.name === '/' ? 'root' : entry.name;
    let remarks = [];
    let length = 0;
    await this.engine.call('tarOpen', { id, path });
    try {
      const done = await save(`${name}.tar`, undefined, async () => {
        const piece = await this.engine.call('tarNext', { id });
        remarks = piece.remarks ?? [];
        length += piece.bytes.length;
        if (piece.bytes.length > 0) say(`Saving ${visible(name)}.tar: ${count(piece.files, 'file')}, ${size(length)}`);
        return piece.bytes;
      });
      say(done ? `Saved ${visible(name)}.tar: ${size(length)}` : '');
    } finally {
      await this.engine.call('tarEnd', { id });
    }
    if (remarks.length > 0) {
      const message = remarks.slice(0, 20).map((remark) => remark.message).join('\n');
      this.element.prepend(failureBox(`${count(remarks.length, 'thing')} could not be saved as it should be`, { message }));
    }
  }

  async #contents(node, element, isCurrent) {
    const { entry, path } = node;
    if (entry.size === 0) {
      element.append(el('p', { class: 'quiet', text: 'The file is empty.' }));
      return;
    }
    let head;
    try {
      head = await this.engine.call('read', { path, offset: 0, length: TEXT_BYTES });
    } catch (error) {
      if (isCurrent()) element.append(failureBox('The contents cannot be read', error));
      return;
    }
    if (!isCurrent()) return;
    const picture = pictureType(entry.name, head);
    const views = [['Text', (place) => this.#text(node, head, place)], ['Hexadecimal', (place) => this.#hex(node, place)]];
    if (picture && entry.size <= PICTURE_BYTES_MAX) views.unshift(['Picture', (place) => this.#picture(node, picture, place)]);
    const first = picture ? 0 : isText(head) ? 0 : 1;
    const place = el('div', {});
    const buttons = views.map(([name, show], index) => el('button', {
      type: 'button', text: name, 'aria-pressed': String(index === first),
      onclick: (event) => {
        for (const other of buttons) other.setAttribute('aria-pressed', String(other === event.currentTarget));
        show(place);
      },
    }));
    element.append(
      el('div', { class: 'views', role: 'group', 'aria-label': 'Show the contents as' }, ...buttons), place);
    await views[first][1](place);
  }

  async #text(node, head, place) {
    const decoder = new TextDecoder();
    const pre = el('pre', { tabindex: '0', 'aria-label': `Contents of ${visible(node.entry.name)}` });
    let offset = 0;
    const add = (bytes) => {
      offset += bytes.length;
      pre.append(decoder.decode(bytes, { stream: offset < node.entry.size }));
      more.hidden = offset >= node.entry.size;
      more.textContent = `Show more (${size(offset)} of ${size(node.entry.size)})`;
    };
    const more = el('button', {
      type: 'button',
      onclick: () => this.#run(async () => add(await this.engine.call('read', { path: node.path, offset, length: TEXT_BYTES }))),
    });
    add(head);
    place.replaceChildren(pre, more);
  }

  async #hex(node, place) {
    const pages = Math.max(1, Math.ceil(node.entry.size / HEX_BYTES));
    const pre = el('pre', { tabindex: '0', 'aria-label': `Bytes of ${visible(node.entry.name)}` });
    const where = el('span', { class: 'quiet', role: 'status' });
    let page = 0;
    const go = (to) => this.#run(async () => {
      page = Math.min(Math.max(0, to), pages - 1);
      const start = page * HEX_BYTES;
      const bytes = await this.engine.call('read', { path: node.path, offset: start, length: HEX_BYTES });
      pre.textContent = hexLines(bytes, start);
      where.textContent = `page ${page + 1} of ${pages.toLocaleString('en')}`;
      back.disabled = page === 0;
      next.disabled = page === pages - 1;
    });
    const back = el('button', { type: 'button', text: 'Back', onclick: () => go(page - 1) });
    const next = el('button', { type: 'button', text: 'Next', onclick: () => go(page + 1) });
    const input = el('input', { type: 'text', size: '10', placeholder: '0x1000', 'aria-label': 'Go to byte' });
    const jump = (event) => {
      event.preventDefault();
      const byte = Number(input.value.trim());
      if (Number.isSafeInteger(byte) && byte >= 0) go(Math.floor(byte / HEX_BYTES));
      else where.textContent = 'a byte is a number, such as 4096 or 0x1000';
    };
    const form = el('form', { class: 'views', onsubmit: jump }, back, next, input, el('button', { type: 'submit', text: 'Go' }), where);
    place.replaceChildren(pages > 1 ? form : el('span', {}), pre);
    await go(0);
  }

  async #picture(node, type, place) {
    const { entry, path } = node;
    const parts = [];
    await this.#run(async () => {
      for (let offset = 0; offset < entry.size; ) {
        const bytes = await this.engine.call('read', { path, offset, length: PIECE_BYTES });
        if (bytes.length === 0) break;
        parts.push(bytes);
        offset += bytes.length;
      }
      const url = URL.createObjectURL(new Blob(parts, { type }));
      this.urls.push(url);
      const picture = el('img', { class: 'picture', src: url, alt: `The picture ${visible(entry.name)}` });
      picture.onerror = () => place.replaceChildren(el('p', { text: 'It is no picture that this browser can show.' }));
      place.replaceChildren(picture);
    });
  }
}

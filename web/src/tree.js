// The tree of files: rows of one list, each with its level, which assistive technology recognises as a tree.

import { el } from './dom.js';
import { count, join, minute, nameBytes, shortSize, visible } from './text.js';

/** Maximum number of rows that a directory adds at a time. */
const ROWS_MAX = 500;

// Drawn on a field of 16 by 16: a folder, a sheet, a sheet with an arrow, a chip.
const SHAPES = {
  directory: 'M1.5 3h4l1.5 2h7.5v8h-13z',
  file: 'M3.5 1.5h6l3 3v10h-9z M9.5 1.5v3h3',
  symlink: 'M3.5 1.5h6l3 3v10h-9z M5.5 11c0-2.5 1.5-3.5 4-3.5 M8 5.7l2 1.8-2 1.8',
  other: 'M3.5 3.5h9v9h-9z M6 1v2.5 M10 1v2.5 M6 12.5v2.5 M10 12.5v2.5',
};

function icon(type) {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 16 16');
  svg.setAttribute('aria-hidden', 'true');
  const shape = document.createElementNS(svg.namespaceURI, 'path');
  shape.setAttribute('d', SHAPES[type] ?? SHAPES.other);
  shape.setAttribute('fill', type === 'directory' ? 'currentColor' : 'none');
  shape.setAttribute('fill-opacity', '0.35');
  shape.setAttribute('stroke', 'currentColor');
  shape.setAttribute('stroke-linejoin', 'round');
  svg.append(shape);
  return el('span', { class: type === 'directory' ? 'icon directory' : 'icon' }, svg);
}

function sizeText(entry) {
  if (entry.rdev) return entry.rdev.join(', ');
  return entry.type === 'file' ? shortSize(entry.size) : '';
}

/** A tree whose directories are listed when they are opened. */
export class Tree {
  /** `list(path)` lists a directory; `select(node)` is called for each selection. */
  constructor(element, list, select) {
    this.element = element;
    this.list = list;
    this.onSelect = select;
    this.rows = new WeakMap();
    this.typed = { text: '', time: 0 };
    element.replaceChildren();
    element.onkeydown = (event) => this.#key(event);
    element.onclick = (event) => this.#click(event);
  }

  /** Shows the root, open. */
  async start(root) {
    const node = { entry: { ...root, name: '/' }, path: Uint8Array.of(0x2f), level: 1, parent: null };
    const row = this.#row(node, 1, 1);
    this.element.append(row);
    this.#focus(row, false);
    this.#select(row);
    await this.#open(row);
  }

  #row(node, position, total) {
    const { entry, level } = node;
    const isDirectory = entry.type === 'directory';
    const row = el('div', {
      role: 'treeitem', class: entry.error ? 'row bad' : 'row', tabindex: '-1', style: `--level:${level}`,
      'aria-level': level, 'aria-posinset': position, 'aria-setsize': total, 'aria-selected': 'false',
      'aria-expanded': isDirectory ? 'false' : null,
      title: entry.error ? entry.error.message : null,
    },
    el('span', { class: 'name' },
      el('span', { class: 'twist', 'aria-hidden': 'true', text: isDirectory ? '▸' : '' }),
      icon(entry.type), el('span', { class: 'label', text: visible(entry.name) })));
    if (entry.error) {
      row.append(el('span', { class: 'size number', text: 'damaged' }));
    } else {
      row.append(
        el('span', { class: 'size number', text: sizeText(entry) }),
        el('span', { class: 'time', text: minute(entry.mtime) }),
        el('span', { class: 'mode', text: entry.modeText }),
        el('span', { class: 'owner', text: `${entry.uid}:${entry.gid}` }));
    }
    this.rows.set(row, node);
    return row;
  }

  #note(level, text, attributes = {}) {
    return el('div', {
      role: 'treeitem', class: 'row note', tabindex: '-1', style: `--level:${level}`, 'aria-level': level,
      'aria-selected': 'false', ...attributes, text,
    });
  }

  async #open(row) {
    const node = this.rows.get(row);
    if (row.getAttribute('aria-expanded') !== 'false') return;
    row.setAttribute('aria-expanded', 'true');
    row.setAttribute('aria-busy', 'true');
    row.querySelector('.twist').textContent = '▾';
    try {
      const { entries, error } = await this.list(node.path);
      if (row.getAttribute('aria-expanded') !== 'true') return;
      const after = this.#insert(row, row, node, entries, 0);
      const level = node.level + 1;
      if (error) after.after(this.#note(level, error.message, { class: 'row note bad' }));
      else if (entries.length === 0) after.after(this.#note(level, 'empty', { class: 'row note', 'aria-disabled': 'true' }));
    } catch (error) {
      row.after(this.#note(node.level + 1, error.message, { class: 'row note bad' }));
    } finally {
      row.removeAttribute('aria-busy');
    }
  }

  /** Inserts rows of a directory after `after`, starting with entry `from`. Returns the last row. */
  #insert(dirRow, after, node, entries, from) {
    const rows = entries.slice(from, from + ROWS_MAX).map((entry, index) => this.#row(
      { entry, path: join(node.path, nameBytes(entry)), level: node.level + 1, parent: dirRow },
      from + index + 1, entries.length));
    const rest = entries.length - from - rows.length;
    if (rest > 0) {
      const more = this.#note(node.level + 1, `Show ${Math.min(ROWS_MAX, rest)} more of ${count(entries.length, 'file')}`);
      more.more = () => {
        const last = more.previousElementSibling;
        this.#insert(dirRow, last, node, entries, from + rows.length);
        this.#focus(last.nextElementSibling);
        more.remove();
      };
      rows.push(more);
    }
    after.after(...rows);
    return rows.length > 0 ? rows[rows.length - 1] : after;
  }

  #close(row) {
    const level = Number(row.getAttribute('aria-level'));
    row.setAttribute('aria-expanded', 'false');
    row.querySelector('.twist').textContent = '▸';
    let next = row.nextElementSibling;
    while (next && Number(next.getAttribute('aria-level')) > level) {
      const gone = next;
      next = next.nextElementSibling;
      gone.remove();
    }
  }

  #toggle(row) {
    if (row.getAttribute('aria-expanded') === 'true') this.#close(row);
    else this.#open(row);
  }

  #focus(row, really = true) {
    if (!row) return;
    this.element.querySelector('[tabindex="0"]')?.setAttribute('tabindex', '-1');
    row.setAttribute('tabindex', '0');
    if (really) {
      row.focus({ preventScroll: true });
      row.scrollIntoView({ block: 'nearest' });
    }
  }

  #select(row) {
    if (row.more) {
      row.more();
      return;
    }
    const node = this.rows.get(row);
    if (!node) return;
    this.element.querySelector('[aria-selected="true"]')?.setAttribute('aria-selected', 'false');
    row.setAttribute('aria-selected', 'true');
    this.onSelect(node);
  }

  #click(event) {
    const row = event.target.closest('[role=treeitem]');
    if (!row) return;
    this.#focus(row);
    const isTwist = event.target.classList.contains('twist');
    if (!isTwist) this.#select(row);
    if (row.hasAttribute('aria-expanded') && (isTwist || event.detail !== 2)) this.#toggle(row);
  }

  #key(event) {
    const row = event.target.closest('[role=treeitem]');
    if (!row || event.ctrlKey || event.altKey || event.metaKey) return;
    const expanded = row.getAttribute('aria-expanded');
    const moves = {
      ArrowDown: () => this.#focus(row.nextElementSibling),
      ArrowUp: () => this.#focus(row.previousElementSibling),
      Home: () => this.#focus(this.element.firstElementChild),
      End: () => this.#focus(this.element.lastElementChild),
      ArrowRight: () => (expanded === 'false' ? this.#open(row) : expanded && this.#focus(row.nextElementSibling)),
      ArrowLeft: () => (expanded === 'true' ? this.#close(row) : this.#focus(this.rows.get(row)?.parent)),
      Enter: () => {
        this.#select(row);
        if (expanded) this.#toggle(row);
      },
      ' ': () => this.#select(row),
    };
    const move = moves[event.key];
    if (move) {
      event.preventDefault();
      move();
    } else if (event.key.length === 1) {
      event.preventDefault();
      this.#typeAhead(row, event.key.toLowerCase());
    }
  }

  /** Typed letters select the next row whose name begins with them. */
  #typeAhead(row, key) {
    const now = performance.now();
    this.typed.text = now - this.typed.time < 700 ? this.typed.text + key : key;
    this.typed.time = now;
    const all = [...this.element.children];
    const start = all.indexOf(row) + (this.typed.text.length > 1 ? 0 : 1);
    const order = [...all.slice(start), ...all.slice(0, start)];
    const name = (each) => this.rows.get(each)?.entry.name.toLowerCase() ?? '';
    this.#focus(order.find((each) => name(each).startsWith(this.typed.text)));
  }
}

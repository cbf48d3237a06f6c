// The page: the open disk, and the part of it that is shown.

import { byId, el, placeOf, say } from './dom.js';
import { Engine } from './engine.js';
import { showAbout, showCheck, showMap } from './panels.js';
import { size, visible } from './text.js';
import { Tree } from './tree.js';
import { Viewer } from './viewer.js';

let engine = new Engine();
/** The method of the worker that opened the shown image, and its arguments. */
let opened = null;
let layout = null;
let info = null;
let isMapShown = false;
let shownName = '';

/** For tests: milliseconds until the root was shown, and statistics of the worker. */
window.diskwright = { figures: () => engine.call('figures'), timeline: {} };

function show(...ids) {
  for (const id of ['welcome', 'chooser', 'volume', 'failure']) byId(id).hidden = !ids.includes(id);
}

function fail(title, error, actions = []) {
  byId('failure-title').textContent = title;
  byId('failure-message').textContent = error.message;
  byId('failure-place').replaceChildren(...placeOf(error).children);
  byId('failure-actions').replaceChildren(...actions.map(([text, work]) => el('button', { type: 'button', text, onclick: work })));
  byId('failure').hidden = false;
}

/** Opens a disk: shows its partitions, or its file system. */
async function open(method, args, name) {
  engine.end();
  engine = new Engine();
  opened = { method, args, name };
  window.diskwright.timeline = { start: performance.now() };
  byId('subject').hidden = true;
  document.title = `${name} – Diskwright`;
  const quiet = say(`Opening ${name}…`);
  try {
    const ready = await engine.ready;
    window.diskwright.timeline.engine = ready;
    byId('tab-map').hidden = !ready.hasMap;
    layout = await engine.call(method, args);
  } catch (error) {
    show('welcome');
    fail(`${name} cannot be opened`, error);
    return;
  } finally {
    quiet();
  }
  byId('subject').textContent = `${name}, ${size(layout.size)}`;
  byId('subject').hidden = false;
  if (layout.contents === 'partitions') {
    showPartitions();
    return;
  }
  byId('chooser').hidden = true;
  await openImage(undefined);
  if (layout.error && !byId('failure').hidden) fail('The partition table cannot be read', layout.error);
}

const HOLDS = { ext: 'ext2, ext3 or ext4', xfs: 'XFS', zeros: 'zeros', unknown: 'nothing that is read here', unreadable: 'past the end of the image' };

function showPartitions() {
  show('chooser');
  const rows = (layout.partitions ?? []).map((found) => {
    const isKnown = ['ext', 'xfs'].includes(found.contents);
    const button = el('button', { type: 'button', text: 'Open', 'aria-label': `Open partition ${found.number}`, onclick: () => openImage(found.number) });
    return el('tr', {}, el('th', { scope: 'row', text: String(found.number) }), el('td', { text: visible(found.description) }),
      el('td', { text: HOLDS[found.contents] ?? found.contents }), el('td', { class: 'number', text: size(found.size) }), el('td', {}, isKnown ? button : ''));
  });
  byId('partitions').replaceChildren(...rows);
  if (rows.length === 0) fail('There are no partitions', new Error('the partition table is empty'));
  byId('partitions').querySelector('button')?.focus();
}

/** Opens a file system of the disk and shows its root. */
async function openImage(partition, norecovery = false) {
  const what = partition === undefined ? opened.name : `partition ${partition} of ${opened.name}`;
  const quiet = say(`Opening ${what}…`);
  [isMapShown, shownName] = [false, what];
  try {
    info = await engine.call('openImage', { partition, norecovery });
    const isPart = layout.contents === 'partitions';
    show('volume', isPart ? 'chooser' : '');
    choose('files', false);
    showAbout(byId('panel-about'), info, layout);
    showCheck(byId('panel-check'), engine, () => open(opened.method, opened.args, opened.name));
    byId('panel-map').replaceChildren();
    const viewer = new Viewer(byId('details'), engine);
    const tree = new Tree(byId('tree'), (path) => engine.call('list', { path }), (node) => viewer.show(node));
    const root = await engine.call('stat', { path: Uint8Array.of(0x2f) });
    await tree.start(root);
    window.diskwright.timeline.shown = performance.now();
    byId('subject').textContent = `${what}: ${info.format}${info.label ? ` “${visible(info.label)}”` : ''}, ${size(info.blocks * info.blockSize)}`;
    byId('tree').querySelector('[tabindex="0"]')?.focus();
    for (const message of info.remarks) fail('It is damaged, and can be read', { message });
  } catch (error) {
    cannotOpen(what, error, partition, norecovery);
  } finally {
    quiet();
  }
}

/** An image that cannot be opened can still be checked, or read without recovery. */
function cannotOpen(what, error, partition, norecovery) {
  const isPart = layout.contents === 'partitions';
  show(isPart ? 'chooser' : 'welcome', 'failure');
  const actions = [];
  if (error.code === 'EUCLEAN' && !norecovery) {
    actions.push(['Read it as it lies, without its journal or log', () => openImage(partition, true)]);
  }
  if (error.code === 'EUCLEAN') {
    actions.push(['Check it', () => {
      show('volume', 'failure');
      byId('tree').replaceChildren();
      byId('details').replaceChildren();
      for (const id of ['panel-about', 'panel-map']) byId(id).replaceChildren();
      showCheck(byId('panel-check'), engine, () => open(opened.method, opened.args, opened.name));
      choose('check', true);
      byId('panel-check').querySelector('button').click();
    }]);
  }
  fail(`${what} cannot be opened`, error, actions);
}

const TABS = ['files', 'map', 'check', 'about'];

function choose(name, focus = true) {
  for (const each of TABS) {
    const tab = byId(`tab-${each}`);
    tab.setAttribute('aria-selected', String(each === name));
    tab.tabIndex = each === name ? 0 : -1;
    byId(`panel-${each}`).hidden = each !== name;
    if (each === name && focus) tab.focus();
  }
  if (name === 'map' && !isMapShown && info) {
    isMapShown = true;
    showMap(byId('panel-map'), engine, shownName);
  }
}

function listenToTabs() {
  for (const name of TABS) byId(`tab-${name}`).onclick = () => choose(name);
  byId('tab-files').parentElement.onkeydown = (event) => {
    const shown = TABS.filter((name) => !byId(`tab-${name}`).hidden);
    const at = shown.findIndex((name) => byId(`tab-${name}`) === document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    choose(shown.at(to % shown.length));
  };
}

const openFile = (file) => open('openFile', { file }, file.name);

function listenToDrops() {
  let depth = 0;
  const over = (event) => event.dataTransfer?.types.includes('Files');
  const end = () => {
    depth = 0;
    byId('dropping').hidden = true;
  };
  addEventListener('dragenter', (event) => {
    if (!over(event)) return;
    depth += 1;
    byId('dropping').hidden = false;
  });
  addEventListener('dragleave', () => {
    depth -= 1;
    if (depth <= 0) end();
  });
  addEventListener('dragover', (event) => {
    if (over(event)) event.preventDefault();
  });
  addEventListener('drop', (event) => {
    if (!over(event)) return;
    event.preventDefault();
    end();
    const [file] = event.dataTransfer.files;
    if (file) openFile(file);
  });
}

function listen() {
  const input = byId('file');
  input.onchange = () => {
    const [file] = input.files;
    if (file) openFile(file);
    input.value = '';
  };
  byId('open-file').onclick = () => input.click();
  byId('welcome-open').onclick = () => input.click();
  const form = byId('address-form');
  byId('open-address').onclick = (event) => {
    form.hidden = !form.hidden;
    event.currentTarget.setAttribute('aria-expanded', String(!form.hidden));
    if (!form.hidden) byId('address').focus();
  };
  form.onsubmit = (event) => {
    event.preventDefault();
    const url = new URL(byId('address').value);
    open('openAddress', { url: url.href }, decodeURIComponent(url.pathname.split('/').pop()) || url.host);
  };
  listenToTabs();
  listenToDrops();
}

listen();

// Panels about the whole image: properties, check, map.

import { el, failureBox, pairs, say } from './dom.js';
import { count, size, visible } from './text.js';

/** Cells of the map. */
const MAP_CELLS = 4096;

/** Properties of the image. */
export function showAbout(element, info, layout) {
  const bytes = (blocks) => `${size(blocks * info.blockSize)} (${count(blocks, 'block')})`;
  element.replaceChildren(
    el('div', { class: 'columns-2' },
      el('section', {}, el('h2', { text: 'File system' }), pairs([
        ['Format', info.format], ['Label', visible(info.label) || 'none'], ['UUID', el('span', { class: 'mono', text: info.uuid })],
        ['State', info.state],
        ['Journal', info.replayedTransactions > 0 ? `${count(info.replayedTransactions, 'transaction')} replayed in memory; the image stays as it is` : undefined],
        ['Block size', size(info.blockSize)], ['Size', bytes(info.blocks)], ['Free', bytes(info.blocksFree)],
        ['Inodes', info.inodes.toLocaleString('en')], ['Free inodes', info.inodesFree.toLocaleString('en')],
        ['Image', size(layout.size)],
      ])),
      el('section', {}, el('h2', { text: 'Features' }),
        el('ul', { class: 'tags' }, ...info.features.map((name) => el('li', { text: name }))))),
    ...info.remarks.map((message) => failureBox('Damage that does not keep it from being read', { message })));
}

function findingText(finding) {
  const { path, name, group, inode, block, field, detail, expected, found } = finding;
  const place = [path && visible(path), group !== undefined && `group ${group}`, inode !== undefined && `inode ${inode}`,
    block !== undefined && `block ${block}`, field && `field ${field}`, name && `name ${visible(name)}`];
  const where = place.filter(Boolean).join(', ');
  const difference = [expected !== undefined && `expected ${visible(expected)}`, found !== undefined && `found ${visible(found)}`];
  return [where, detail && visible(detail), difference.filter(Boolean).join(', ')].filter(Boolean).join(': ');
}

function kindBox(kind) {
  const told = kind.findings.map((finding) => findingText(finding)).filter(Boolean);
  const more = kind.leftOut;
  return el('section', { class: 'finding', 'aria-label': kind.code },
    el('p', {}, el('span', { class: `severity ${kind.severity}`, text: kind.severity }), ` · ${kind.structure} · `,
      el('span', { class: 'mono', text: kind.code }), kind.count > 1 ? ` · ${kind.count.toLocaleString('en')} times` : ''),
    el('p', {}, el('strong', { text: kind.meaning })),
    el('p', { class: 'quiet', text: `Repair: ${kind.repair}` }),
    told.length === 0 ? null : el('details', { open: told.length <= 5 }, el('summary', { text: count(told.length, 'place') }),
      el('ul', {}, ...told.map((text) => el('li', { text })), more > 0 ? el('li', { text: `and ${more.toLocaleString('en')} more` }) : null)));
}

function reportBoxes(report) {
  const { inodes, directories, blocks, blocksUsed, transactionsReplayed } = report.summary;
  const findings = report.kinds.reduce((sum, kind) => sum + kind.count, 0);
  const verdicts = {
    clean: 'Clean: nothing is wrong.',
    damaged: `Damaged: ${count(findings, 'finding')} of ${count(report.kinds.length, 'kind')}.`,
    incomplete: 'Incomplete: not everything could be looked at.',
  };
  const replayed = transactionsReplayed > 0
    ? ` ${count(transactionsReplayed, 'transaction')} of its journal or log replayed in memory first.` : '';
  return [
    el('p', { class: `verdict ${report.verdict}`, text: verdicts[report.verdict] }),
    el('p', { class: 'quiet', text: `${count(inodes, 'inode')} (${directories.toLocaleString('en')} of them directories), ` +
      `${blocksUsed.toLocaleString('en')} of ${blocks.toLocaleString('en')} blocks in use.${replayed}` }),
    ...report.kinds.map(kindBox),
    report.kinds.length > 0 ? el('p', { class: 'quiet' }, 'The program mends it: ', el('code', { text: 'diskwright repair IMAGE' })) : null,
  ].filter(Boolean);
}

/** A button that runs the check, and the findings. `stop` cancels the check and discards its findings. */
export function showCheck(element, engine, stop) {
  const result = el('div', {});
  const bar = el('progress', { max: '1', value: '0', 'aria-label': 'How far the check is' });
  const phase = el('span', { class: 'quiet' });
  const meter = el('p', { hidden: true }, bar, ' ', phase);
  const run = el('button', { type: 'button', class: 'primary', text: 'Check this file system' });
  const end = el('button', { type: 'button', text: 'Stop', hidden: true, onclick: stop });
  run.onclick = async () => {
    run.disabled = true;
    [meter.hidden, end.hidden] = [false, false];
    result.replaceChildren();
    const quiet = say('Checking…');
    try {
      const report = await engine.call('check', {}, ({ phase: word, done, total }) => {
        bar.value = total > 0 ? done / total : 0;
        phase.textContent = word;
      });
      result.replaceChildren(...reportBoxes(report));
      say(`The check has ended: ${report.verdict}`);
    } catch (error) {
      quiet();
      if (error.code !== 'STOPPED') result.replaceChildren(failureBox('It cannot be checked', error));
    }
    run.disabled = false;
    [meter.hidden, end.hidden] = [true, true];
  };
  element.replaceChildren(
    el('p', { text: 'Compares everything that the image says with everything else it says, as e2fsck and xfs_repair do. Nothing is changed.' }),
    el('p', { class: 'buttons' }, run, end), meter, result);
}

/** The map of the image, drawn when it is first shown. */
export async function showMap(element, engine, title) {
  element.replaceChildren(el('p', { class: 'quiet', text: 'Looking where everything lies…' }));
  const quiet = say('Making the map…');
  try {
    const svg = await engine.call('map', { title, cells: MAP_CELLS });
    // The engine produces the text and escapes names. It is parsed as SVG, and no script in it runs.
    const parsed = svg && new DOMParser().parseFromString(svg, 'image/svg+xml').documentElement;
    if (!parsed || parsed.nodeName !== 'svg') throw new Error('this build has no map');
    element.replaceChildren(el('div', { class: 'map' }, document.importNode(parsed, true)));
  } catch (error) {
    element.replaceChildren(failureBox('There is no map', error));
  } finally {
    quiet();
  }
}

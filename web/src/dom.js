// Short functions that create elements. Text is always text: nothing in an image is interpreted as markup.

/** An element with attributes and children. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'text') element.textContent = value;
    else element.setAttribute(name, value === true ? '' : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A list of names and values. */
export function pairs(list) {
  const rows = list.filter(([, value]) => value !== undefined && value !== null && value !== '');
  return el('dl', {}, ...rows.flatMap(([name, value]) => [
    el('dt', { text: name }),
    value instanceof Node ? el('dd', {}, value) : el('dd', { text: String(value) }),
  ]));
}

/** A box with an error. */
export function failureBox(title, error) {
  return el('div', { class: 'failure', role: 'alert' }, el('h2', { text: title }), el('p', { text: error.message }),
    placeOf(error));
}

/** The structure that is damaged, and where it is. */
export function placeOf(error) {
  const names = ['structure', 'group', 'inode', 'block', 'expected', 'found', 'cause'];
  return pairs(names.map((name) => [name, error[name]]));
}

let told = 0;

/** Announces the current activity, also to screen readers. */
export function say(text) {
  const mine = ++told;
  byId('status').textContent = text;
  return () => {
    if (mine === told) byId('status').textContent = '';
  };
}

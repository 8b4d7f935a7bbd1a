// Elements. Names of the observed program become text here, and nothing else.

/** Characters that would change how others are shown. */
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

function clean(text) {
  return String(text).replace(UNSEEN, '\ufffd');
}

function fill(node, properties, children) {
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key === 'on') Object.entries(value).forEach(([event, act]) => node.addEventListener(event, act));
    else if (key === 'css') Object.entries(value).forEach(([name, set]) => node.style.setProperty(name, set));
    else node.setAttribute(key, value === true ? '' : clean(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== undefined && child !== null && child !== false) {
      node.append(child instanceof Node ? child : clean(child));
    }
  }
  return node;
}

/** An HTML element. */
function el(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An SVG element. */
function svg(tag, properties, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), properties, children);
}

/** A sentence, with what stands between backquotes as code. */
function prose(sentence) {
  return sentence.split('`').map((part, i) => (i % 2 ? el('code', null, part) : part));
}

/** A name of the observed program. */
function name(text) {
  return el('span', { class: 'name' }, text);
}

/** A part of the page under a heading, which the list of parts leads to. */
function part(id, title, ...children) {
  return el('section', { id, 'aria-labelledby': `${id}-title` }, el('h2', { id: `${id}-title` }, title), ...children);
}

/** Calls, innermost first. */
function stackList(frames) {
  if (!frames?.length) return el('p', { class: 'quiet small' }, 'No stack was recorded.');
  const text = (f) => f.function ?? (f.module ? `${f.module}+${f.offset}` : f.address);
  const where = (f) => (f.file ? ` (${f.file.split('/').pop()}${f.line ? `:${f.line}` : ''})` : '');
  return el('ol', { class: 'stack small' }, frames.map((f) => el('li', null, name(text(f) + where(f)), f.inlined && ' inlined')));
}

// Flame graphs of waiting, outermost call on top: of those who waited, and of those to blame.

const ROW = 19;
/** Narrower calls are not drawn, in parts of the width. */
const NARROW = 0.0006;

/** Both flame graphs, one of them shown. */
function flames(data) {
  const sides = { waiters: data.waiters, culprits: data.culprits };
  if (!sides.waiters.name.length && !sides.culprits.name.length) return el('p', { class: 'quiet' }, 'No waiting was recorded.');
  const state = { side: 'culprits', root: null, search: '' };
  const box = el('div', { class: 'flame', id: 'flame' });
  const told = el('p', { class: 'small', 'aria-live': 'polite', id: 'flame-told' });
  const draw = () => {
    buttons.forEach(([side, button]) => button.setAttribute('aria-pressed', String(side === state.side)));
    drawFlame(box, told, sides[state.side], state, draw);
  };
  const set = (change) => { Object.assign(state, change); draw(); };
  const buttons = [['culprits', 'To blame'], ['waiters', 'Waiting']].map(([side, title]) =>
    [side, el('button', { type: 'button', on: { click: () => set({ side, root: null }) } }, title)]);
  const search = el('input', { type: 'search', placeholder: 'Search functions', 'aria-label': 'Search functions in the flame graph', on: { input: (event) => set({ search: event.target.value }) } });
  window.addEventListener('resize', draw);
  requestAnimationFrame(draw);
  return [
    el('p', { class: 'quiet small' }, '“To blame”: where those were who made others wait. “Waiting”: where threads waited. The width is waiting; the last frame is the lock. Press a call to zoom in, Esc to zoom out.'),
    el('div', { class: 'controls' }, buttons.map(([, button]) => button), search,
      el('button', { type: 'button', on: { click: () => set({ root: null }) } }, 'Zoom out')),
    told, box,
  ];
}

/** Draws one side, from its root on. */
function drawFlame(box, told, stacks, state, again) {
  const width = box.clientWidth || 900;
  const root = state.root;
  const [from, all] = root === null ? [0, stacks.all_ns] : [stacks.before_ns[root], stacks.wait_ns[root]];
  const top = root === null ? 0 : stacks.depth[root];
  const wanted = state.search.toLowerCase();
  const matches = (i) => wanted && stacks.names[stacks.name[i]].toLowerCase().includes(wanted);
  const shown = [];
  for (let i = 0; i < stacks.name.length; i++) {
    const inside = stacks.before_ns[i] < from + all && stacks.before_ns[i] + stacks.wait_ns[i] > from;
    if (inside && stacks.wait_ns[i] >= NARROW * all && (root === null || stacks.depth[i] <= top || i >= root)) shown.push(i);
  }
  const depth = shown.reduce((deepest, i) => Math.max(deepest, stacks.depth[i]), 0) + 1;
  const clip = (ns) => Math.min(Math.max(ns - from, 0), all);
  const cells = shown.map((i) => {
    const x = (width * clip(stacks.before_ns[i])) / all;
    const w = (width * clip(stacks.before_ns[i] + stacks.wait_ns[i])) / all - x;
    return flameCell(i, [x, stacks.depth[i] * ROW, w], stacks, matches(i), () => { state.root = i; again(); focusCall(box, i); });
  });
  box.replaceChildren(svg('svg', { width, height: depth * ROW, viewBox: `0 0 ${width} ${depth * ROW}`, role: 'group', 'aria-label': `Flame graph of ${state.side}`, on: { keydown: (event) => flameKeys(event, state, again) } }, cells));
  const first = box.querySelector('[data-call]');
  if (first) first.setAttribute('tabindex', 0);
  told.replaceChildren(...flameTold(stacks, state, matches));
}

function flameTold(stacks, state, matches) {
  const parts = [state.root === null ? `All waiting: ${time(stacks.all_ns)}.`
    : ['Zoomed to ', name(stacks.names[stacks.name[state.root]]), `: ${time(stacks.wait_ns[state.root])}, ${percent(shareOf(stacks.wait_ns[state.root], stacks.all_ns))} of all.`]];
  if (state.search) {
    let [sum, until] = [0, -1];
    for (let i = 0; i < stacks.name.length; i++) {
      if (matches(i) && stacks.before_ns[i] >= until) {
        sum += stacks.wait_ns[i];
        until = stacks.before_ns[i] + stacks.wait_ns[i];
      }
    }
    parts.push(` Found in ${percent(shareOf(sum, stacks.all_ns))} of the waiting (${time(sum)}).`);
  }
  if (stacks.left_out > 0) parts.push(` ${counted(stacks.left_out, 'smaller call')} with ${time(stacks.left_out_ns)} of waiting are not shown.`);
  return parts.flat();
}

function flameCell(i, [x, y, w], stacks, found, zoom) {
  const text = clean(stacks.names[stacks.name[i]]);
  const isLock = text.startsWith('[');
  const label = `${text}: ${time(stacks.wait_ns[i])}, ${percent(shareOf(stacks.wait_ns[i], stacks.all_ns))} of the waiting`;
  const letters = Math.floor((w - 8) / 6.6);
  const body = found ? 'found' : isLock ? 'lock' : `c${hash(text) % 4}`;
  return svg('g', {
    'data-call': i, role: 'button', tabindex: -1, 'aria-label': label,
    on: { click: zoom, keydown: (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); zoom(); } } },
  },
  svg('title', null, label),
  svg('rect', { class: body, x, y, width: Math.max(0.5, w - 0.7), height: ROW - 1.5, rx: 2 }),
  letters > 2 && svg('text', { x: x + 4, y: y + 13 }, text.length > letters ? `${text.slice(0, letters - 1)}…` : text));
}

function focusCall(box, i) {
  const call = box.querySelector(`[data-call="${i}"]`);
  if (call) call.focus();
}

/** Arrows go from call to call, Esc zooms out. */
function flameKeys(event, state, again) {
  const here = event.target.closest('[data-call]');
  if (event.key === 'Escape') {
    state.root = null;
    again();
  } else if (here && event.key.startsWith('Arrow')) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = by > 0 ? here.nextElementSibling : here.previousElementSibling;
    if (next) {
      event.preventDefault();
      here.setAttribute('tabindex', -1);
      next.setAttribute('tabindex', 0);
      next.focus();
    }
  }
}

function hash(text) {
  let sum = 0;
  for (const letter of text) sum = (31 * sum + letter.codePointAt(0)) >>> 0;
  return sum;
}

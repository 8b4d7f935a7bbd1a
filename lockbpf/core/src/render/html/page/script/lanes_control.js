// Moving through the swimlanes, and the wait that is chosen.

/** The swimlanes with their controls. */
function swimlanes(lanes) {
  if (!lanes.threads.length) return el('p', { class: 'quiet' }, 'No wait or hold was recorded one by one.');
  const state = { view: whole(lanes), chosen: -1, only: -1 };
  const canvas = el('canvas', {
    class: 'lanes', id: 'lanes', tabindex: 0, role: 'application',
    'aria-label': 'Swimlanes of threads. Arrows move, plus and minus zoom, n and p go to the next and previous wait, Enter zooms to it, Home shows all.',
    'aria-describedby': 'wait',
  });
  const told = el('div', { class: 'detail', id: 'wait', 'aria-live': 'polite' });
  const draw = () => drawLanes(canvas, lanes, state.view, state.chosen, state.only);
  const set = (change) => {
    Object.assign(state, change);
    told.replaceChildren(...(state.chosen < 0 ? [] : waitTold(lanes, state.chosen)));
    draw();
  };
  const move = (key) => set(moved(lanes, state, key));
  canvas.addEventListener('keydown', (event) => {
    if (KEYS.includes(event.key)) {
      event.preventDefault();
      move(event.key);
    }
  });
  listen(canvas, lanes, state, set);
  ['(prefers-color-scheme: dark)', 'print'].forEach((what) => matchMedia(what).addEventListener('change', draw));
  window.addEventListener('resize', draw);
  requestAnimationFrame(draw);
  const button = (key, title, text) => el('button', { type: 'button', title, 'aria-label': title, on: { click: () => move(key) } }, text);
  const select = el('select', { 'aria-label': 'Locks shown in the swimlanes', on: { change: (event) => set({ only: Number(event.target.value), chosen: -1 }) } },
    el('option', { value: -1 }, 'all locks'), lanes.locks.map((lock, i) => el('option', { value: i }, short(lock, 60))));
  return [
    el('div', { class: 'controls' },
      button('+', 'Zoom in', '+'), button('-', 'Zoom out', '−'), button('ArrowLeft', 'Earlier', '◀'), button('ArrowRight', 'Later', '▶'),
      button('p', 'Previous wait', 'Previous wait'), button('n', 'Next wait', 'Next wait'), button('Enter', 'Zoom to the wait', 'Zoom to it'), button('Home', 'Show all', 'All'), select),
    el('ul', { class: 'legend' }, [['wait', 'waits'], ['hold', 'holds'], ...(lanes.path.length ? [['path', 'critical path']] : [])].map(([colour, title]) =>
      el('li', null, el('i', { css: { background: `var(--${colour})` } }), title))),
    canvas, told, lanesLeftOut(lanes),
  ];
}

const KEYS = ['+', '=', '-', 'ArrowLeft', 'ArrowRight', 'Home', 'n', 'p', 'Enter', 'Escape'];

function whole(lanes) {
  return { from: 0, to: Math.max(lanes.length_ns, 1) };
}

/** What a key makes of the state. */
function moved(lanes, state, key) {
  const { from, to } = state.view;
  const by = (to - from) / 4;
  switch (key) {
    case '+': case '=': return { view: bounded(lanes, from + by, to - by) };
    case '-': return { view: bounded(lanes, from - 2 * by, to + 2 * by) };
    case 'ArrowLeft': return { view: bounded(lanes, from - by, to - by) };
    case 'ArrowRight': return { view: bounded(lanes, from + by, to + by) };
    case 'Home': return { view: whole(lanes) };
    case 'Escape': return { chosen: -1 };
    case 'Enter': return state.chosen < 0 ? {} : { view: around(lanes, state.chosen) };
    default: return nextWait(lanes, state, key === 'n' ? 1 : -1);
  }
}

/** A view that stays within the recording. */
function bounded(lanes, from, to) {
  const length = Math.min(Math.max(to - from, SHORTEST), whole(lanes).to);
  const start = Math.min(Math.max((from + to - length) / 2, 0), whole(lanes).to - length);
  return { from: start, to: start + length };
}

function around(lanes, wait) {
  const [start, length] = [lanes.waits.start_ns[wait], lanes.waits.wait_ns[wait]];
  return bounded(lanes, start - length, start + 2 * length);
}

/** The wait after or before the chosen one; brought into view. */
function nextWait(lanes, state, by) {
  const { start_ns: starts, wait_ns: waits, lock } = lanes.waits;
  const first = starts.findIndex((start, i) => start + waits[i] >= state.view.from);
  let at = state.chosen < 0 ? (by > 0 ? first : starts.length - 1) : state.chosen + by;
  while (at >= 0 && at < starts.length && state.only >= 0 && lock[at] !== state.only) at += by;
  if (at < 0 || at >= starts.length) return {};
  const { from, to } = state.view;
  const [start, end] = [starts[at], starts[at] + waits[at]];
  return { chosen: at, view: end < from || start > to ? bounded(lanes, start - (to - from) / 2, start + (to - from) / 2) : state.view };
}

/** Pointer: a press chooses the nearest wait, dragging moves, the wheel with Ctrl zooms. */
function listen(canvas, lanes, state, set) {
  let grip = null;
  canvas.addEventListener('pointerdown', (event) => { grip = { x: event.offsetX, view: state.view, moved: false }; });
  canvas.addEventListener('pointermove', (event) => {
    if (!grip || Math.abs(event.offsetX - grip.x) < 4 && !grip.moved) return;
    grip.moved = true;
    const frame = lanesFrame(grip.view, canvas.clientWidth);
    const by = frame.ns(grip.x) - frame.ns(event.offsetX);
    set({ view: bounded(lanes, grip.view.from + by, grip.view.to + by) });
  });
  canvas.addEventListener('pointerup', (event) => {
    if (grip && !grip.moved) set({ chosen: nearest(canvas, lanes, state, event) });
    grip = null;
  });
  canvas.addEventListener('pointerleave', () => { grip = null; });
  canvas.addEventListener('wheel', (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const at = lanesFrame(state.view, canvas.clientWidth).ns(event.offsetX);
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    set({ view: bounded(lanes, at - (at - state.view.from) * factor, at + (state.view.to - at) * factor) });
  }, { passive: false });
}

/** The wait under the pointer, else the nearest one of the lane within some pixels, else none. */
function nearest(canvas, lanes, state, event) {
  const frame = lanesFrame(state.view, canvas.clientWidth);
  const lane = Math.floor((event.offsetY - AXIS) / LANE);
  let [best, distance] = [-1, 8];
  lanes.waits.start_ns.forEach((start, i) => {
    if (lanes.waits.thread[i] !== lane || state.only >= 0 && lanes.waits.lock[i] !== state.only) return;
    const [x0, x1] = [frame.x(start), frame.x(start + lanes.waits.wait_ns[i])];
    const off = Math.max(x0 - event.offsetX, event.offsetX - x1, 0);
    if (off < distance) [best, distance] = [i, off];
  });
  return best;
}

/** One wait in words. */
function waitTold(lanes, i) {
  const { waits, threads, locks, places } = lanes;
  const culprits = waits.culprits[i];
  const rest = waits.wait_ns[i] - culprits.reduce((sum, part) => sum + part[3], 0);
  const part = ([thread, lock, place, ns, cause, inferred]) => el('li', null, `${time(ns)} `,
    thread === null ? 'by others' : ['by ', name(laneName(threads[thread])), ' holding ', name(locks[lock]), ' from ', name(places[place])],
    cause && `, ${CAUSES[cause] ?? cause}`, inferred && ' (inferred)');
  return [
    el('p', null, name(laneName(threads[waits.thread[i]])), ` waited ${time(waits.wait_ns[i])} for `, name(locks[waits.lock[i]]), ' in ', name(places[waits.place[i]]),
      `, ${moment(waits.start_ns[i], Math.max(waits.wait_ns[i] / 10, 1))} after the beginning.`),
    el('ul', { class: 'plain small' }, culprits.map(part), rest > 0 && el('li', null, `${time(rest)} by nobody known`)),
  ];
}

/** What the lanes do not show. */
function lanesLeftOut(lanes) {
  const { left_out: left } = lanes;
  const told = [
    left.waits > 0 && `${counted(left.waits, 'shorter wait')} (${time(left.wait_ns)} in all) are shown as shades only.`,
    left.holds > 0 && `${counted(left.holds, 'hold')} are not shown.`,
    left.threads > 0 && `${counted(left.threads, 'thread')} with less waiting are not shown.`,
    left.stretches > 0 && `${counted(left.stretches, 'short part')} of the critical path are not shown.`,
    left.not_recorded_ns > 0 && `${time(left.not_recorded_ns)} of waiting was counted, but not recorded one by one.`,
  ].filter(Boolean);
  return told.length > 0 && el('p', { class: 'small quiet' }, told.join(' '));
}

// What those to blame were doing while others waited.

const CAUSES = {
  running: 'running',
  runnable: 'preempted (runnable, without a CPU)',
  blocked: 'blocked in I/O',
  sleeping: 'asleep',
  lock: 'waiting for another lock',
  kernel_lock: 'waiting for a lock of the kernel',
  handoff: 'lock given back, not yet taken (hand-off)',
  unknown: 'not known',
};

/** A bar of causes with a legend. */
function causes(entry) {
  if (!entry || Object.keys(CAUSES).every((cause) => cause === 'unknown' || !entry[cause])) return el('p', { class: 'quiet' }, 'What those to blame were doing is not known.');
  const parts = Object.keys(CAUSES).filter((cause) => entry[cause] > 0).map((cause) => [cause, entry[cause]]);
  const all = parts.reduce((sum, [, ns]) => sum + ns, 0);
  const told = ([cause, ns]) => `${CAUSES[cause]} ${percent(shareOf(ns, all))} (${time(ns)})`;
  return [
    el('div', { class: 'causes', role: 'img', 'aria-label': parts.map(told).join(', ') },
      parts.map(([cause, ns]) => el('span', { css: { background: `var(--${cause})`, flex: `${ns} 0 0` }, title: told([cause, ns]) }))),
    el('ul', { class: 'legend' }, parts.map((one) =>
      el('li', null, el('i', { css: { background: `var(--${one[0]})` } }), told(one)))),
  ];
}

// Locks by harm, and which of them is chosen.

/** Locks shown at first. */
const FIRST = 12;

/** The table of locks. `choose` is told which row was chosen. */
function locks(data, choose) {
  const { report, words, histograms } = data;
  if (!report.locks.length) return el('p', null, 'No lock was seen in use.');
  const most = Math.max(...report.locks.map((lock) => lock.harm_ns), 1);
  const spans = { wait: span(histograms, 'wait'), hold: span(histograms, 'hold') };
  const rows = report.locks.map((lock, i) => {
    const told = Object.fromEntries(words.locks[i]);
    const cell = (head, ...inside) => el('td', { 'data-head': head, class: head.toLowerCase() }, ...inside);
    const figures = (which) => ['mean', 'p99', 'max'].map((f) => [f, told[`${which} ${f}`]]).filter(([, v]) => v).map(([f, v]) => `${f} ${v}`).join(', ');
    return el('tr', { 'data-lock': i, 'aria-selected': 'false', hidden: i >= FIRST },
      el('td', null,
        el('button', { type: 'button', on: { click: () => choose(i) } }, name(lock.label)),
        el('div', { class: 'small quiet' }, told.Kind ?? lock.kind, lock.inferred && el('span', { class: 'badge' }, 'inferred'),
          lock.estimates && el('span', { class: 'badge', title: 'counts and holds are estimates from windows' }, 'estimated'),
          lengthened(report, lock) && el('span', { class: 'badge', title: 'observing lengthened its holds by much' }, 'lengthened by observing'))),
      cell('Waited', el('div', null, harm(lock, told)),
        el('div', { class: 'track' }, lock.harm_ns > 0 && el('span', { class: 'bar', css: { width: percentage(lock.harm_ns / most) } }))),
      cell('Contended', el('div', { class: 'number' }, told['Contended share'] ?? '–'),
        el('div', { class: 'number small quiet' }, told.Contended ?? '–', told.Acquired && ` of ${told.Acquired}`),
        lock.timeouts > 0 && el('div', { class: 'number small quiet' }, `${counted(lock.timeouts, 'attempt')} timed out`)),
      cell('Waits', histogram(histograms[i].wait, 'wait', figures('Wait'), spans.wait)),
      cell('Holds', histogram(histograms[i].hold, 'hold', figures('Hold'), spans.hold)),
      el('td', { class: 'number wide', 'data-head': 'Waiting caused' }, time(lock.aplt_ns)));
  });
  const heads = [['Lock'], ['Waited in all'], ['Contended', 'number contended'], ['Waits, from – to'], ['Holds, from – to']];
  const table = el('table', { class: 'locks', 'aria-label': 'Locks by harm' },
    el('thead', null, el('tr', null, heads.map(([head, kind]) => el('th', { scope: 'col', class: kind }, head)),
      el('th', { scope: 'col', class: 'number wide', title: 'Waiting that its holders caused, of other locks’ waiters too' }, 'Waiting caused'))),
    el('tbody', { on: { keydown: (event) => step(event, choose) } }, rows));
  const rest = report.totals.locks_omitted;
  const more = el('button', { type: 'button', on: { click: () => { rows.forEach((row) => row.removeAttribute('hidden')); more.remove(); } } }, `Show ${counted(rows.length - FIRST, 'more lock')}`);
  return [table, rows.length > FIRST && el('p', { class: 'controls' }, more), rest > 0 && el('p', { class: 'quiet small' }, `${counted(rest, 'more lock')} with less waiting are not shown.`)];
}

function harm(lock, told) {
  return lock.wait_estimate ? told['Wait total'] : time(lock.harm_ns);
}

function percentage(share) {
  return `${(100 * share).toFixed(2)}%`;
}

/** Whether observing made its holds longer by much. */
function lengthened(report, lock) {
  return report.quality.distrust?.lengthened.some((one) => one.lock === lock.lock);
}

/** Up and down go from lock to lock. */
function step(event, choose) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const row = event.target.closest('tr');
  const next = by && (by > 0 ? row.nextElementSibling : row.previousElementSibling);
  if (next && !next.hidden) {
    event.preventDefault();
    next.querySelector('button').focus();
    choose(Number(next.dataset.lock));
  }
}

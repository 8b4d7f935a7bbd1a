// Who waits where, and who holds where: a lock's waiting as a matrix.

/** Columns and rows shown. */
const MOST = 8;
/** A holder with less of the waiting is one of the others. */
const LEAST = 0.003;

/** Rows and columns of a lock's matrix, in ns; what is not told apart is in the last row and column. */
function matrixOf(lock) {
  const sums = new Map();
  for (const waiter of lock.waiters) {
    for (const blamed of waiter.blamed) {
      sums.set(blamed.symbol, (sums.get(blamed.symbol) ?? 0) + blamed.wait_ns);
    }
  }
  const least = LEAST * lock.recorded_wait_ns;
  const columns = [...sums].sort((a, b) => b[1] - a[1]).filter(([, ns], i) => ns >= least || i === 0).slice(0, MOST).map(([symbol]) => symbol);
  const rows = lock.waiters.slice(0, MOST).map((waiter) => {
    const cells = columns.map((symbol) => waiter.blamed.filter((b) => b.symbol === symbol).reduce((sum, b) => sum + b.wait_ns, 0));
    const others = waiter.wait_ns - waiter.unattributed_ns - cells.reduce((sum, ns) => sum + ns, 0);
    return { waiter, cells, others: Math.max(0, others), nobody: waiter.unattributed_ns };
  });
  return { columns, rows };
}

/** The matrix as a table of buttons; `show` is told of the cell that is pressed. */
function matrix(lock, show) {
  const { columns, rows } = matrixOf(lock);
  if (!rows.length) return el('p', { class: 'quiet' }, 'No wait for it was recorded one by one.');
  const most = Math.max(1, ...rows.flatMap((row) => [...row.cells, row.others, row.nobody]));
  const any = (field) => rows.some((row) => row[field] > 0);
  const extra = [any('others') && ['others', 'others'], any('nobody') && ['nobody', 'nobody known']].filter(Boolean);
  const cell = (row, ns, column) => el('td', { class: 'cell', css: { background: `rgba(var(--cell), ${(0.85 * ns / most).toFixed(3)})` } },
    el('button', {
      type: 'button',
      disabled: ns <= 0,
      'aria-label': `${row.waiter.symbol} waited ${time(ns)} for ${column}`,
      on: { click: () => show(row, column, ns) },
    }, ns > 0 ? time(ns) : ''));
  const hidden = lock.waiters.length - rows.length;
  return [
    el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Who waits where, and who holds where' },
      el('table', { class: 'matrix' },
        el('thead', null,
          el('tr', null, el('td', null, 'waits ↓   holds →'),
            columns.map((column) => el('th', { scope: 'col' }, name(column))),
            extra.map(([, title]) => el('th', { scope: 'col', class: 'quiet' }, title)),
            el('th', { scope: 'col' }, 'all'))),
        el('tbody', null, rows.map((row) => el('tr', null,
          el('th', { scope: 'row' }, name(row.waiter.symbol), el('div', { class: 'small quiet' }, counted(row.waiter.count, 'wait'))),
          row.cells.map((ns, i) => cell(row, ns, columns[i])),
          extra.map(([field, title]) => cell(row, row[field], title)),
          el('td', { class: 'sum number' }, time(row.waiter.wait_ns))))))),
    hidden > 0 && el('p', { class: 'small quiet' }, `${counted(hidden, 'more place')} with less waiting are not shown.`),
  ];
}

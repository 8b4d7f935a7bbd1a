// The chosen lock: its figures, who waits and who holds, and what these were doing.

/** Everything about one lock. */
function lockDetails(data, at) {
  const lock = data.report.locks[at];
  const detail = el('div', { class: 'detail', 'aria-live': 'polite', id: 'cell' });
  const show = (row, column, ns) => detail.replaceChildren(...pair(lock, row, column, ns));
  const figures = data.words.locks[at].filter(([head]) => head !== 'Kind');
  return [
    el('h3', { id: 'chosen' }, name(lock.label), el('span', { class: 'quiet' }, ` · ${lock.kind}`)),
    lock.first_site && el('p', { class: 'small quiet' }, 'First asked for in ', name(lock.first_site)),
    el('dl', { class: 'figures' }, figures.map(([head, text]) => el('div', null, el('dt', null, head), el('dd', null, text)))),
    doubts(data.report, lock),
    el('h3', null, 'Who waits where, and who holds where'),
    matrix(lock, show),
    detail,
    el('h3', null, 'What those to blame were doing meanwhile'),
    causes(lock.causes),
    elsewhere(lock),
    pairs(data.report, lock),
  ];
}

/** What is not sure about a lock's figures, where they are. */
function doubts(report, lock) {
  const { exact_ns: exact, inferred_ns: inferred, unknown_ns: unknown } = lock.attribution;
  const of = (ns) => percent(shareOf(ns, lock.harm_ns));
  const longer = report.quality.distrust?.lengthened.find((one) => one.lock === lock.lock);
  return [
    lock.harm_ns > 0 && el('p', { class: 'small quiet' },
      `Blame: ${of(exact)} exact, ${of(inferred)} inferred, ${of(unknown)} unknown.`),
    longer && el('p', { class: 'doubt' },
      `Observing makes each hold about ${time(report.quality.distrust.hold_bias_ns)} longer, and the median hold is ${time(longer.median_hold_ns)} without that: part of its holds ${longer.may_make_wait ? 'and of its contention is lockbpf’s own' : 'is lockbpf’s own, but hardly any of the waiting for it'}.`),
    lock.corrected && el('p', { class: 'small quiet' },
      `Without what observing added: ${time(lock.corrected.wait_ns)} of waiting, ${time(lock.corrected.hold_ns)} of holding.`),
    lock.waiting_now.count > 0 && el('p', { class: 'doubt' },
      `${counted(lock.waiting_now.count, 'thread')} still waiting at the end, the longest for ${time(lock.waiting_now.longest_ns)}.`),
  ];
}

/** One cell of the matrix: both stacks. */
function pair(lock, row, column, ns) {
  const holders = lock.holders.filter((holder) => holder.symbol === column);
  return [
    el('p', null, name(row.waiter.symbol), ` waited ${time(ns)} for `, name(column), '.'),
    el('details', { open: true }, el('summary', null, 'Where it waited'), stackList(row.waiter.stack)),
    holders.map((holder) => el('details', { open: true },
      el('summary', null, holder.lock_name ? ['Where the other held ', name(holder.lock_name)] : 'Where the other held it',
        holder.released && ' (where it gave it back)', holder.inferred && ' (inferred)'),
      calledBy(holder.callers),
      stackList(holder.stack),
      holder.causes && causes(holder.causes))),
  ].flat();
}

/** For whom a holder's function locks, if it has several callers. */
function calledBy(callers) {
  return callers && el('p', { class: 'small callers' }, 'Called by ',
    callers.most.map((one, i) => [i > 0 && ', ', name(one.symbol), ` ${percent(one.share)}`]),
    callers.functions > callers.most.length && `, and by ${counted(callers.functions - callers.most.length, 'more function')}`);
}

/** Where those to blame left the CPU. */
function elsewhere(lock) {
  const off = lock.holders.flatMap((holder) => (holder.off_stacks ?? []).map((one) => ({ ...one, holder })));
  off.sort((a, b) => b.wait_ns - a.wait_ns);
  return off.length > 0 && [
    el('h3', null, 'Where they were off the CPU'),
    off.slice(0, 6).map((one) => el('details', null,
      el('summary', null, `${time(one.wait_ns)} ${CAUSES[one.cause] ?? one.cause}`, one.function && [' in ', name(one.function)],
        ', holding from ', name(one.holder.symbol)),
      stackList(one.stack))),
  ];
}

/** Which thread waited for which. */
function pairs(report, lock) {
  const names = new Map(report.threads.map((thread) => [String(thread.tid), thread.comm]));
  const called = (tid) => (names.get(String(tid)) && names.get(String(tid)) !== String(tid) ? `${tid} (${names.get(String(tid))})` : String(tid));
  return lock.thread_pairs.length > 0 && el('details', null,
    el('summary', null, 'Which thread waited for which'),
    el('table', { class: 'small' },
      el('thead', null, el('tr', null, ['Waiter', 'Holder', 'Waited'].map((head) => el('th', { scope: 'col' }, head)))),
      el('tbody', null, lock.thread_pairs.slice(0, 20).map((one) => el('tr', null,
        el('td', null, name(called(one.waiter))), el('td', null, name(called(one.holder))), el('td', { class: 'number' }, time(one.wait_ns)))))));
}

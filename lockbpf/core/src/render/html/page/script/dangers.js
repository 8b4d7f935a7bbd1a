// Deadlocks and lock orders that could lead there, and the critical path in words.

/** Deadlocks with their stacks; null if there are none. */
function deadlocks(words) {
  return words.deadlocks.length > 0 && el('pre', null, words.deadlocks.join('\n'));
}

/** Lock orders that could deadlock; null if there are none. */
function inversions(words) {
  return words.inversions.length > 0 && el('pre', null, words.inversions.slice(1).join('\n'));
}

/** Those to blame over all locks. */
function culprits({ report, words }) {
  if (!report.culprits.length) return el('p', { class: 'quiet' }, 'Nobody is known to whom waiting could be charged.');
  return el('ol', { class: 'culprits' }, report.culprits.slice(0, 5).map((one, at) => el('li', null,
    el('p', null, name(one.symbol), ' holding ', name(one.name), words.others[at], `: ${time(one.wait_ns)} of others’ waiting, ${percent(one.share_of_all)} of all`,
      one.inferred_ns > 0 && el('span', { class: 'badge' }, `${percent(shareOf(one.inferred_ns, one.wait_ns))} inferred`),
      one.released && el('span', { class: 'badge', title: 'where it had asked for the lock was not seen' }, 'where it gave it back')),
    words.callers[at] && el('p', { class: 'small callers' }, prose(words.callers[at].replace(/^c/, 'C')), '.'),
    one.causes && causes(one.causes))));
}

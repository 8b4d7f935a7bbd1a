// How far all this can be trusted, and what observing cost.

/** What must be known before anything else is believed. */
function warnings(report) {
  const { quality } = report;
  const told = [];
  if (quality.incomplete) told.push('The data is incomplete: see “Quality and cost”.');
  if (quality.observed?.estimated) told.push(`Counts and holds are estimates: all operations were watched ${percent(quality.observed.time_share)} of the time. Waits that slept are exact.`);
  return told.map((text) => el('p', { class: 'doubt' }, text));
}

/** The quality of the recording, in the words of the report, and what the page does not show. */
function quality(words, notHere) {
  return [
    el('ul', { class: 'plain' }, words.quality.map((line) => el('li', null, prose(line.trim())))),
    notHere.length > 0 && el('p', { class: 'quiet small' }, `Not on this page: ${notHere.join(', ')}. `, el('code', null, 'lockbpf report --from FILE'), ' tells of them.'),
  ];
}

// The page that compares two recordings side by side.

const data = JSON.parse(document.getElementById('data').textContent);

const perSecond = (ns) => `${time(Math.round(ns))} per s`;
const often = (n) => `${n > 0 && n < 9.95 ? n.toFixed(1) : count(n)} per s`;
const whole = (ns) => time(Math.round(ns));
const plain = (n) => (Number.isInteger(n) ? count(n) : n.toFixed(n < 9.995 ? 2 : 1));

/** What is compared of each lock, of each site, and of all. */
const OF_LOCK = [['Waiting', 'wait_ns_per_s', perSecond], ['Contended', 'contended_share', percent], ['Mean hold', 'mean_hold_ns', whole], ['Held', 'held_share', percent], ['Acquired', 'acquisitions_per_s', often], ['Waiting caused', 'aplt_ns_per_s', perSecond]];
const OF_SITE = [['Waiting caused', 'apwt_ns_per_s', perSecond], ['Waited', 'wait_ns_per_s', perSecond], ['Mean hold', 'mean_hold_ns', whole], ['Sections', 'instances_per_s', often]];
const OF_ALL = [['Threads waiting for a lock', 'waiting_threads', plain], ['Threads holding a lock', 'holding_threads', plain], ['Time spent waiting', 'lock_time_share', percent], ['Time with a lock held', 'held_share', percent], ['Contended acquisitions', 'contended_share', percent], ['Mean hold', 'mean_hold_ns', whole], ['Acquisitions', 'dynamic_locks_per_s', often], ['Locks', 'static_locks', plain]];

/** B over A: how many times as much, or as little. */
function times(ratio) {
  if (ratio === null) return '';
  if (ratio === 0) return 'gone';
  const factor = (n) => (n < 9.95 ? n.toFixed(2) : count(n));
  return ratio < 1 ? `÷ ${factor(1 / ratio)}` : `× ${factor(ratio)}`;
}

/** Both values, a bar for each, and how they changed. */
function change(both, show) {
  const most = Math.max(both.a ?? 0, both.b ?? 0);
  if (both.a === null && both.b === null) return el('span', { class: 'quiet' }, '–');
  const line = (value, which) => el('div', { class: `side ${which}` },
    el('span', { class: 'which' }, which.toUpperCase()), el('span', { class: 'number' }, value === null ? 'unknown' : show(value)),
    el('span', { class: 'track' }, value > 0 && el('span', { class: 'bar', css: { width: `${(100 * value / most).toFixed(1)}%` } })));
  const ratio = times(both.ratio);
  return [line(both.a, 'a'), line(both.b, 'b'),
    el('div', { class: both.called_out ? 'small called-out' : 'small quiet' }, both.called_out ? `${both.b >= both.a ? '▲' : '▼'} ${ratio}` : ratio)];
}

function table(rows, more, columns, what, about) {
  return [
    el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': what },
      el('table', { class: 'changes' },
        el('thead', null, el('tr', null, el('th', { scope: 'col' }, what), columns.map(([title]) => el('th', { scope: 'col' }, title)))),
        el('tbody', null, rows.map((row) => el('tr', null,
          el('th', { scope: 'row' }, about(row), row.presence !== 'both' && el('span', { class: 'badge' }, row.presence === 'new' ? 'in B only' : 'in A only')),
          columns.map(([, field, show]) => el('td', null, change(row[field], show)))))))),
    more > 0 && el('p', { class: 'quiet small' }, `Not shown: ${counted(more, 'more row')} with smaller changes.`),
  ];
}

function side(which, entry, verdict, lines) {
  return el('section', { class: 'half', 'aria-label': `Recording ${which}` },
    el('h3', null, `${which}: `, name(entry.target)),
    el('p', { class: 'quiet small' }, `observed for ${whole(entry.observed_ns)}, ${counted(entry.threads, 'thread')}`),
    entry.incomplete && el('p', { class: 'doubt' }, 'The data is incomplete.'),
    el('div', { class: 'verdict' }, verdict.map((sentence) => el('p', null, prose(sentence)))),
    el('details', { class: 'small' }, el('summary', null, 'Quality and cost'), el('ul', { class: 'plain' }, lines.map((line) => el('li', null, prose(line.trim()))))));
}

function gate(judged) {
  const marks = { passed: '✓ passed', inconclusive: '? inconclusive', failed: '✗ failed' };
  return judged.map((one) => el('p', { class: one.outcome === 'passed' ? '' : 'doubt' }, el('strong', null, marks[one.outcome]), ': ', el('code', null, one.condition), ' ', prose(one.reasons.join(' '))));
}

function build() {
  const { diff, a, b } = data;
  const { findings, locks, sites } = diff;
  fill(document.getElementById('head'), null, [el('h1', null, 'Locks, before and after'), el('div', { class: 'quiet small' }, `lockbpf ${data.lockbpf}. Rates are per second of observation.`)]);
  fill(document.getElementById('main'), null, [
    gate(diff.gate ?? []),
    part('changes', 'What changed', [
      findings.length > 0 && el('ul', { class: 'plain' }, findings.map((one) => el('li', null, prose(one.text)))),
      data.more_findings > 0 && el('p', { class: 'quiet small' }, `Not shown: ${counted(data.more_findings, 'more change')}.`),
      findings.length + data.more_findings === 0 && el('p', null, 'Nothing changed that exceeds the thresholds.'),
    ]),
    el('div', { class: 'halves' }, side('A', diff.a, a.verdict, a.quality), side('B', diff.b, b.verdict, b.quality)),
    part('overall', 'Over all locks', el('dl', { class: 'figures' }, OF_ALL.map(([title, field, show]) => el('div', null, el('dt', null, title), el('dd', null, change(diff.overall[field], show)))))),
    part('locks', 'Locks', table(locks, data.more_locks, OF_LOCK, 'Lock', (lock) => [name(lock.name), el('div', { class: 'small quiet' }, lock.kind)])),
    part('sites', 'Critical sections', table(sites, data.more_sites, OF_SITE, 'Section', (site) => [name(site.symbol), el('div', { class: 'small quiet' }, 'of ', name(site.lock))])),
    el('footer', { class: 'small quiet' }, 'Made by lockbpf. This file asks no network for anything.'),
  ]);
}

build();

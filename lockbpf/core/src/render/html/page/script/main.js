// The page.

const data = JSON.parse(document.getElementById('data').textContent);
const chosen = el('div', { id: 'lock' });

function choose(at) {
  document.querySelectorAll('[data-lock]').forEach((row) => row.setAttribute('aria-selected', String(Number(row.dataset.lock) === at)));
  chosen.replaceChildren(...lockDetails(data, at).flat(Infinity).filter(Boolean));
}

/** Chooses a lock by its name, and shows it. */
function chooseByName(label) {
  const at = data.report.locks.findIndex((lock) => lock.label === label);
  if (at >= 0) {
    choose(at);
    document.getElementById('locks').scrollIntoView();
  }
}

function head() {
  const { report, started_ns: started } = data;
  const when = started ? `, ${new Date(started / 1e6).toISOString().slice(0, 16).replace('T', ' ')} UTC` : '';
  return [
    el('h1', null, 'Locks of ', name(report.quality.target || 'a recording')),
    el('div', { class: 'quiet small' }, `observed for ${time(report.quality.duration_ns)}${when} · lockbpf ${data.lockbpf}`),
    el('div', { class: 'verdict' }, report.verdict.map((sentence) => el('p', null, prose(sentence)))),
    warnings(report),
  ];
}

function parts() {
  const { report, words, lanes } = data;
  const stuck = deadlocks(words);
  const orders = inversions(words);
  const gains = whatIf(data.what_if, data.no_what_if, report.totals.harm_ns > 0);
  const advice = advised(data.advice, data.no_advice);
  return [
    stuck && part('deadlocks', 'Deadlocks', stuck),
    part('locks', 'Locks by harm', locks(data, choose), report.locks.length > 0 && chosen),
    part('culprits', 'Who causes most waiting', culprits(data)),
    part('chains', 'Chains', chainsPicture(data.chains, chooseByName)),
    part('time', 'In time', words.critical_path && el('p', null, prose(words.critical_path)), swimlanes(lanes)),
    part('stacks', 'Flame graphs of waiting', flames(data)),
    gains && part('what-if', 'What if', gains),
    advice && part('advice', 'Advice', advice),
    orders && part('orders', 'Lock orders that could deadlock', orders),
    part('quality', 'Quality and cost', quality(words, data.not_here)),
  ].filter(Boolean);
}

function build() {
  const sections = parts();
  const links = sections.map((section) => el('a', { href: `#${section.id}` }, section.querySelector('h2').textContent));
  fill(document.getElementById('head'), null, [head(), el('nav', { class: 'parts', 'aria-label': 'Parts of the report' }, links)]);
  fill(document.getElementById('main'), null, [sections, el('footer', { class: 'small quiet' }, 'Made by lockbpf. This file asks no network for anything.')]);
  if (data.report.locks.length) choose(0);
}

build();

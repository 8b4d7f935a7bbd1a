// What changes would gain, by the model.

/** A slider for each change. `waited`: whether any thread waited for a lock. */
function whatIf(answers, missing, waited) {
  if (!answers) return missing ? el('p', { class: 'quiet' }, prose(missing)) : null;
  if (!answers.changes.length) {
    return el('p', { class: 'quiet' }, waited ? 'The replay has no section whose change would tell anything: of none for which threads waited are beginning and end known.'
      : 'No thread waited for a lock: there is nothing to gain.');
  }
  return [
    el('p', { class: 'quiet small' }, `The recording is replayed with each change and without. Without one it takes ${time(Math.round(answers.replayed_ns))} instead of ${time(Math.round(answers.observed_ns))}.`,
      ' Intervals are over ways of handing locks on, draws and that error.'),
    el('div', { class: 'sliders' }, answers.changes.map(slider)),
    notes('What does not hold here', answers.violations, true),
    notes('What has to hold for this', answers.assumptions, false),
  ];
}

function notes(title, lines, open) {
  return lines.length > 0 && el('details', { open, class: 'small' }, el('summary', null, title),
    el('ul', { class: 'plain' }, lines.map((line) => el('li', null, prose(line)))));
}

function slider(change, at) {
  const output = el('div', { class: 'answer', id: `answer-${at}`, 'aria-live': 'polite' });
  const size = (i) => (change.kind === 'split' ? `into ${change.sizes[i]}` : `by ${percent(change.sizes[i])}`);
  const show = (i) => {
    const answer = change.answers[i];
    input.setAttribute('aria-valuetext', size(i));
    output.replaceChildren(
      el('div', null, el('strong', null, size(i)), ': ', gainText(answer)),
      el('div', { class: 'track gain', role: 'img', 'aria-label': `gain ${percent(Math.max(0, answer.gain))}` },
        el('span', { class: 'bar', css: { width: percentage(Math.min(1, Math.max(0, answer.gain))) } })),
      el('div', { class: 'small quiet' }, `waiting in all then ${time(Math.round(answer.wait_ns))}`,
        answer.bottleneck && ['; longest for ', name(answer.bottleneck)]));
  };
  const input = el('input', {
    type: 'range', min: 0, max: change.sizes.length - 1, step: 1, value: Math.min(2, change.sizes.length - 1), 'aria-label': `${change.kind === 'split' ? 'Split' : 'Shorten'} ${change.name}`,
    on: { input: () => show(Number(input.value)) },
  });
  show(Number(input.value));
  return el('div', { class: 'slider' },
    el('div', null, change.kind === 'split' ? 'Split ' : 'Shorten ', name(change.name)), input, output);
}

function gainText(answer) {
  const [low, high] = answer.gain_interval;
  if (Math.max(Math.abs(answer.gain), Math.abs(low), Math.abs(high)) < 0.0005) return 'the run takes as long as before';
  const interval = percent(low) === percent(high) ? '' : null;
  const signed = (share) => (share < 0 ? `−${percent(-share)}` : percent(share));
  return answer.gain >= 0 ? `${signed(answer.gain)} of the run time saved${interval ?? ` (${signed(low)} to ${signed(high)})`}`
    : `the run takes ${percent(-answer.gain)} longer${interval ?? ` (${signed(-high)} to ${signed(-low)})`}`;
}

// What to do about locks, from what their sections read and write.

/** Advice in the order of `lockbpf advise`; nothing where the recording was never asked. */
function advised(advice, missing) {
  if (!advice) return missing ? el('p', { class: 'quiet' }, prose(missing)) : null;
  return [
    el('p', { class: 'quiet small' }, prose(advice.sampled)),
    advice.items.length ? el('ol', { class: 'advice' }, advice.items.map(piece)) : el('p', null, 'No advice: nothing conflicts that could be told.'),
    advice.left_out > 0 && el('p', { class: 'small' }, `${counted(advice.left_out, 'more piece')} of advice: `, el('code', null, 'lockbpf advise --from FILE'), ' tells them.'),
    notes('What could make all of this wrong', advice.cautions, true),
  ];
}

function piece(item) {
  const { predicted } = item;
  return el('li', null,
    el('p', null, prose(item.advice)),
    el('p', { class: 'small' }, 'Seen: ', prose(item.evidence.join(' '))),
    predicted && el('p', { class: 'small' }, 'Predicted: ', gainText(predicted), `, with ${time(Math.max(0, Math.round(predicted.wait_ns)))} of waiting left (`, prose(predicted.change), ').'),
    item.unpredictable && el('p', { class: 'small quiet' }, 'Gain not predicted: ', prose(item.unpredictable), '.'),
    notes('What could make it wrong', [...item.cautions, ...(predicted?.violations ?? [])], false));
}

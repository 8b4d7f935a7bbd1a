// Small histograms by powers of two.

const SLOTS = 118;

/** Bars of durations between two powers of two, as a picture with its figures as its label. */
function histogram(bars, kind, figures, [low, high]) {
  if (!bars.length) return el('span', { class: 'quiet' }, '–');
  const most = Math.max(...bars.map((bar) => bar.count));
  const step = SLOTS / (high - low + 1);
  const at = (ns) => (exponent(ns) - low) * step;
  const label = `${kind}: ${figures}`;
  return svg('svg', { class: 'histogram', viewBox: `0 0 ${SLOTS} 34`, role: 'img', 'aria-label': label },
    svg('title', null, `${label}. ${bars.map((bar) => `${time(bar.from_ns)}–${time(Math.max(bar.from_ns * 2, 2))}: ${count(bar.count)}`).join('; ')}`),
    svg('line', { class: 'axis', x1: 0, x2: SLOTS, y1: 22.5, y2: 22.5 }),
    bars.map((bar) => {
      const height = Math.max(1, (20 * bar.count) / most);
      return svg('rect', { class: kind, x: at(bar.from_ns), y: 22 - height, width: Math.max(1, step - 1), height });
    }),
    svg('text', { x: 0, y: 33 }, time(bars[0].from_ns)),
    svg('text', { x: SLOTS, y: 33, 'text-anchor': 'end' }, time(Math.max(2, bars.at(-1).from_ns * 2))));
}

function exponent(ns) {
  return ns < 2 ? 0 : Math.floor(Math.log2(ns));
}

/** The powers of two that all histograms of a kind span, so that they compare. */
function span(histograms, kind) {
  const all = histograms.flatMap((one) => one[kind].map((bar) => exponent(bar.from_ns)));
  return all.length ? [Math.min(...all), Math.max(...all)] : [0, 0];
}

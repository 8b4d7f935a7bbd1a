// Numbers as the text report writes them.

/** Nanoseconds with the unit that keeps the number short. */
function time(ns) {
  if (ns < 1000) {
    return ns >= 100 || Number.isInteger(ns) ? `${Math.floor(ns)} ns` : `${Number(ns.toFixed(3))} ns`;
  }
  const [value, unit] = ns < 1e6 ? [ns / 1e3, 'µs'] : ns < 1e9 ? [ns / 1e6, 'ms'] : [ns / 1e9, 's'];
  return `${value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${unit}`;
}

/** A whole number with commas. */
function count(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** A number of things. */
function counted(n, what) {
  return `${count(n)} ${what}${n === 1 ? '' : 's'}`;
}

/** A share of 1, never rounded to nothing or to everything. */
function percent(share) {
  const p = share * 100;
  if (p <= 0) return '0 %';
  if (p < 0.05) return '<0.1 %';
  if (p < 9.95) return `${p.toFixed(1)} %`;
  return p >= 99.5 && p < 100 ? '>99 %' : `${p.toFixed(0)} %`;
}

/** The whole, or 0 of nothing. */
function shareOf(part, whole) {
  return whole > 0 ? part / whole : 0;
}

// Swimlanes: waits and holds of threads in time, drawn on a canvas.

const LANE = 26;
const AXIS = 24;
/** Pixels of a stretch from which on one sees where it begins. */
const SEEN = 3;
/** The shortest time that the lanes can show, ns. */
const SHORTEST = 200;

/** Where what is, in pixels. */
function lanesFrame(view, width) {
  const left = Math.min(190, Math.max(84, width * 0.22));
  const per = (width - left) / (view.to - view.from);
  return { left, width, x: (ns) => left + (ns - view.from) * per, ns: (x) => view.from + (x - left) / per, y: (lane) => AXIS + lane * LANE };
}

/** Draws the lanes of what is in view. `chosen` is the number of a wait, or -1; `only` a lock's number, or -1. */
function drawLanes(canvas, lanes, view, chosen, only) {
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth || 900, AXIS + lanes.threads.length * LANE + 2];
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext('2d');
  pen.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const frame = lanesFrame(view, width);
  pen.font = '12px system-ui, "DejaVu Sans", sans-serif';
  pen.textBaseline = 'middle';
  drawAxis(pen, frame, view, height, colour);
  lanes.threads.forEach((thread, i) => drawLane(pen, frame, thread, i, lanes, colour));
  pen.save();
  pen.beginPath();
  pen.rect(frame.left, 0, width - frame.left, height);
  pen.clip();
  const box = (lane, start, length, top, tall) => {
    const x = frame.x(start);
    const w = frame.x(start + length) - x;
    if (x + w >= frame.left && x <= width) pen.fillRect(x, frame.y(lane) + top, Math.max(w, 0.8), tall);
  };
  pen.fillStyle = colour('hold');
  lanes.holds.start_ns.forEach((start, i) => {
    if (only < 0 || lanes.holds.lock[i] === only) box(lanes.holds.thread[i], start, lanes.holds.hold_ns[i], 13, 9);
  });
  pen.fillStyle = colour('wait');
  lanes.waits.start_ns.forEach((start, i) => {
    if (only < 0 || lanes.waits.lock[i] === only) box(lanes.waits.thread[i], start, lanes.waits.wait_ns[i], 3, 9);
  });
  drawPath(pen, frame, lanes, colour('path'));
  if (chosen >= 0) drawChosen(pen, frame, lanes, chosen, colour);
  pen.restore();
}

/** A name, and how much of each stretch the thread waited, where not all waits are drawn. */
function drawLane(pen, frame, thread, i, { threads, length_ns: length }, colour) {
  const y = frame.y(i);
  if (i % 2 === 0) {
    pen.fillStyle = colour('raised');
    pen.fillRect(0, y, frame.width, LANE);
  }
  const bins = thread.density.length;
  pen.fillStyle = colour('wait');
  for (let at = 0; at < bins; at++) {
    const level = parseInt(thread.density[at], 36);
    const [x0, x1] = [frame.x((at * length) / bins), frame.x(((at + 1) * length) / bins)];
    if (level > 0 && x1 > frame.left && x0 < frame.width) {
      pen.globalAlpha = 0.08 + 0.3 * (level / 35);
      pen.fillRect(Math.max(x0, frame.left), y + 1, x1 - Math.max(x0, frame.left), LANE - 2);
    }
  }
  pen.globalAlpha = 1;
  pen.fillStyle = colour('text');
  pen.textAlign = 'left';
  pen.save();
  pen.beginPath();
  pen.rect(0, y, frame.left - 6, LANE);
  pen.clip();
  pen.fillText(frame.left < 120 ? briefName(thread, threads) : laneName(thread), 4, y + LANE / 2);
  pen.restore();
}

function laneName(thread) {
  return clean(thread.name && thread.name !== thread.tid ? `${thread.name} ${thread.tid}` : thread.tid);
}

/** Where there is little room: the name, or the number where others have that name, too. */
function briefName(thread, threads) {
  const alone = threads.filter((other) => other.name === thread.name).length === 1;
  return clean(alone && thread.name ? thread.name : thread.tid);
}

/** A time with as many decimals as tell it from one that is a step away. */
function moment(ns, step) {
  const [unit, called] = ns < 1e3 ? [1, 'ns'] : ns < 1e6 ? [1e3, 'µs'] : ns < 1e9 ? [1e6, 'ms'] : [1e9, 's'];
  return `${(ns / unit).toFixed(Math.max(0, Math.ceil(Math.log10(unit / step))))} ${called}`;
}

function drawAxis(pen, frame, view, height, colour) {
  const wide = frame.width - frame.left;
  const about = ((view.to - view.from) * 120) / wide;
  const power = 10 ** Math.floor(Math.log10(Math.max(about, 1)));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= about);
  pen.strokeStyle = colour('line');
  pen.fillStyle = colour('quiet');
  pen.textAlign = 'left';
  for (let ns = Math.ceil(view.from / step) * step; ns <= view.to; ns += step) {
    const x = Math.round(frame.x(ns)) + 0.5;
    pen.beginPath();
    pen.moveTo(x, AXIS - 6);
    pen.lineTo(x, height);
    pen.stroke();
    if (x + 90 < frame.width) pen.fillText(`+${moment(ns, step)}`, x + 3, 9);
  }
}

/** The critical path: a line under the lane of whoever is on it, and from lane to lane, but between stretches that are too short to be seen. */
function drawPath(pen, frame, lanes, ink) {
  pen.strokeStyle = ink;
  pen.lineWidth = 2;
  let last = null;
  for (const [thread, from, to] of lanes.path) {
    const y = frame.y(thread) + LANE - 2;
    const [x0, x1] = [frame.x(from), frame.x(to)];
    const wide = x1 - x0 >= SEEN;
    if (x1 >= frame.left && x0 <= frame.width) {
      pen.beginPath();
      if (last && Math.abs(last.x - x0) < 1 && (wide || last.wide)) {
        pen.moveTo(x0, last.y);
        pen.lineTo(x0, y);
      } else {
        pen.moveTo(x0, y);
      }
      pen.lineTo(Math.max(x1, x0 + 0.8), y);
      pen.stroke();
    }
    last = { x: x1, y, wide };
  }
  pen.lineWidth = 1;
}

/** A frame around the wait, and an arrow to each culprit. */
function drawChosen(pen, frame, lanes, chosen, colour) {
  const { waits } = lanes;
  const [x0, x1] = [frame.x(waits.start_ns[chosen]), frame.x(waits.start_ns[chosen] + waits.wait_ns[chosen])];
  const y = frame.y(waits.thread[chosen]) + 7;
  pen.strokeStyle = colour('link');
  pen.fillStyle = colour('link');
  pen.lineWidth = 2;
  pen.strokeRect(x0 - 1.5, y - 6, Math.max(x1 - x0, 1) + 3, 13);
  const middle = (Math.max(x0, frame.left) + Math.min(x1, frame.width)) / 2;
  waits.culprits[chosen].forEach(([thread], i) => {
    if (thread === null) return;
    const [toY, x] = [frame.y(thread) + 17, middle + 10 * i];
    const down = toY > y ? 1 : -1;
    pen.beginPath();
    pen.moveTo(x, y + 7 * down);
    pen.lineTo(x, toY - 6 * down);
    pen.stroke();
    pen.beginPath();
    pen.moveTo(x, toY);
    pen.lineTo(x - 5, toY - 8 * down);
    pen.lineTo(x + 5, toY - 8 * down);
    pen.fill();
  });
  pen.lineWidth = 1;
}

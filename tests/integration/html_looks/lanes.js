// Moves through the swimlanes as their keys promise, and compares the canvas with the data, pixel by pixel.
(async () => {
  await new Promise((done) => requestAnimationFrame(() => done()));
  const { lanes } = JSON.parse(document.getElementById('data').textContent);
  const canvas = document.getElementById('lanes');
  const [LANE, AXIS, width, length] = [26, 24, canvas.clientWidth, lanes.length_ns];
  const left = Math.min(190, Math.max(84, width * 0.22));
  const key = (name) => canvas.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true, cancelable: true }));
  const ground = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height }).getContext('2d', { willReadFrequently: true });
  const [wait, hold, path, link] = ['wait', 'hold', 'path', 'link'].map((name) => {
    ground.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
    ground.fillRect(0, 0, 1, 1);
    return ground.getImageData(0, 0, 1, 1).data.join();
  });
  const wrong = [];
  const seen = { columns: 0, covered: 0, path: 0, frames: 0, arrows: 0 };
  // The view that is asked for: within the recording, no shorter than 200 ns.
  const fit = (from, to) => {
    const span = Math.min(Math.max(to - from, 200), length);
    const start = Math.min(Math.max((from + to - span) / 2, 0), length - span);
    return [start, start + span];
  };
  const x = ([from, to], ns) => left + ((ns - from) * (width - left)) / (to - from);
  const check = (what, view, chosen, only) => {
    ground.clearRect(0, 0, canvas.width, canvas.height);
    ground.drawImage(canvas, 0, 0);
    const row = (y) => ground.getImageData(0, y, width, 1).data;
    // Edges of spans that meet within a pixel are mixed with what is under them.
    const like = (a, b) => a.split(',').every((part, i) => Math.abs(part - b.split(',')[i]) <= 6);
    const at = (pixels, i) => pixels.slice(4 * i, 4 * i + 4).join();
    const pixel = (px, y) => at(row(y), Math.round(px));
    // Where the critical path and the arrows cross from lane to lane, other things are under them.
    const crossed = lanes.path.flatMap(([, from, to]) => [x(view, from), x(view, to)]);
    if (chosen >= 0) {
      crossed.push(x(view, lanes.waits.start_ns[chosen]), x(view, lanes.waits.start_ns[chosen] + lanes.waits.wait_ns[chosen]));
      lanes.waits.culprits[chosen].forEach((_, i) => crossed.push(middle(view, chosen) + 10 * i));
    }
    const compare = (y, spans, colour, kind) => {
      const pixels = row(y);
      for (let i = Math.ceil(left) + 1; i < width - 1; i++) {
        if (crossed.some((one) => Math.abs(one - i) < 8)) continue;
        const whole = spans.some(([a, b]) => a <= i && b >= i + 1);
        const none = spans.every(([a, b]) => b < i - 0.5 || a > i + 1.5);
        seen.columns += whole || none;
        seen.covered += whole;
        if (whole ? !like(at(pixels, i), colour) : none && at(pixels, i) === colour) {
          wrong.push(`${what}: ${kind} at ${i}, ${y}: ${at(pixels, i)}`);
          return;
        }
      }
    };
    lanes.threads.forEach((_, lane) => {
      const of = (list, lengths) => list.start_ns.map((start, i) => [list.thread[i], list.lock[i], start, lengths[i]])
        .filter(([thread, lock]) => thread === lane && (only < 0 || lock === only))
        .map(([, , start, long]) => [x(view, start), Math.max(x(view, start + long), x(view, start) + 0.8)]);
      const top = AXIS + lane * LANE;
      compare(top + 7, of(lanes.waits, lanes.waits.wait_ns), wait, 'wait');
      compare(top + 17, of(lanes.holds, lanes.holds.hold_ns), hold, 'hold');
    });
    for (const [thread, from, to] of lanes.path) {
      const [a, b] = [Math.max(x(view, from), left), Math.min(x(view, to), width)];
      const y = AXIS + thread * LANE + LANE - 2;
      if (b - a < 20) continue;
      const spots = [1, 2, 3, 4, 5, 6, 7, 8, 9].map((part) => pixel(a + (part * (b - a)) / 10, y));
      seen.path += 1;
      if (!spots.includes(path)) wrong.push(`${what}: no critical path in lane ${thread}: ${spots.join(' ')}`);
    }
    if (chosen >= 0) {
      const top = AXIS + lanes.waits.thread[chosen] * LANE;
      const mid = middle(view, chosen);
      seen.frames += 1;
      if (pixel(mid, top) !== link) wrong.push(`${what}: no frame at ${mid}, ${top}: ${pixel(mid, top)}`);
      lanes.waits.culprits[chosen].forEach(([thread], i) => {
        if (thread === null || mid + 10 * i > width - 6) return;
        const to = AXIS + thread * LANE + 17;
        const y = to > top + 7 ? to - 5 : to + 4;
        seen.arrows += 1;
        if (pixel(mid + 10 * i, y) !== link) wrong.push(`${what}: no arrow at ${mid + 10 * i}, ${y}: ${pixel(mid + 10 * i, y)}`);
      });
    }
  };
  const middle = (view, i) => {
    const [start, long] = [lanes.waits.start_ns[i], lanes.waits.wait_ns[i]];
    return (Math.max(x(view, start), left) + Math.min(x(view, start + long), width)) / 2;
  };
  const all = [0, length];
  check('all', all, -1, -1);
  const select = document.querySelector('#time select');
  lanes.locks.slice(0, 4).forEach((name, only) => {
    select.value = only;
    select.dispatchEvent(new Event('change'));
    check(`only ${name}`, all, -1, only);
  });
  select.value = -1;
  select.dispatchEvent(new Event('change'));
  for (let i = 0; i < Math.min(lanes.waits.wait_ns.length, 20); i++) {
    key('n');
    key('Enter');
    const [start, long] = [lanes.waits.start_ns[i], lanes.waits.wait_ns[i]];
    check(`wait ${i}`, fit(start - long, start + 2 * long), i, -1);
  }
  key('Escape');
  key('Home');
  check('all again', all, -1, -1);
  // From a wait in the middle on, where there is something to see.
  const central = Math.floor(lanes.waits.wait_ns.length / 2);
  for (let i = 0; i <= central; i++) key('n');
  key('Enter');
  key('Escape');
  const [start, long] = [lanes.waits.start_ns[central], lanes.waits.wait_ns[central]];
  let view = fit(start - long, start + 2 * long);
  const steps = { '+': [0.25, -0.25], '-': [-0.5, 0.5], ArrowLeft: [-0.25, -0.25], ArrowRight: [0.25, 0.25] };
  for (const name of ['ArrowRight', '-', 'ArrowLeft', '+', '-', '-', 'ArrowLeft', 'ArrowRight', 'ArrowRight', '+', '+']) {
    key(name);
    const span = view[1] - view[0];
    view = fit(view[0] + steps[name][0] * span, view[1] + steps[name][1] * span);
    check(`after ${name}`, view, -1, -1);
  }
  return { wrong, seen, path: lanes.path.length };
})()

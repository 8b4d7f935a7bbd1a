// Searches both flame graphs: what the page then tells, which calls it marks, and which it draws.
(async () => {
  const shown = () => document.getElementById('flame-told').textContent;
  await new Promise((done) => requestAnimationFrame(() => done()));
  const data = JSON.parse(document.getElementById('data').textContent);
  const search = document.querySelector('input[type=search]');
  const buttons = [...document.querySelectorAll('#stacks .controls button[aria-pressed]')];
  const searched = ['culprits', 'waiters'].flatMap((side, at) => {
    buttons[at].click();
    const names = data[side].names.slice(0, 12);
    return [...names, ...names.slice(0, 4).map((name) => name.slice(0, 3).toUpperCase()), '_', 'found nowhere'].map((text) => {
      search.value = text;
      search.dispatchEvent(new Event('input'));
      const marked = [...document.querySelectorAll('#flame .found')].map((rect) => Number(rect.parentNode.dataset.call));
      return { side, text, told: shown(), marked, drawn: [...document.querySelectorAll('#flame [data-call]')].map((call) => Number(call.dataset.call)) };
    });
  });
  return { searched, page: { culprits: data.culprits, waiters: data.waiters } };
})()

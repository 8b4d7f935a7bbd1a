// The contrast of each text that is shown with what is behind it, by the rules of WCAG 2; everything is opened first.
(async () => {
  await new Promise((done) => requestAnimationFrame(() => done()));
  const pen = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
  const known = new Map();
  // Red, green, blue, and how much of it there is.
  const parsed = (colour) => {
    if (!known.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  };
  const over = (top, ground) => [0, 1, 2].map((i) => top[i] * top[3] + ground[i] * (1 - top[3])).concat(1);
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = (element, pseudo) => getComputedStyle(element, pseudo);
  /** What is behind an element's text: the grounds of all that it is in; in pictures the shape before it, or its outline. */
  const ground = (element) => {
    const layers = [];
    const shape = element.tagName === 'text' && element.parentNode.querySelector('rect');
    if (element.tagName === 'text' && style(element).stroke !== 'none') layers.push(parsed(style(element).stroke));
    else if (shape && element.parentNode.tagName === 'g') layers.push(parsed(style(shape).fill));
    for (let one = element; one; one = one.parentElement) layers.push(parsed(style(one).backgroundColor));
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255, 1]);
  };
  const told = new Map();
  let [texts, cells, lightOnDark] = [0, 0, 0];
  const judge = (what, colour, element, pseudo) => {
    const under = ground(element);
    const ink = over(parsed(colour), under);
    const [a, b] = [light(ink), light(under)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const { fontSize, fontWeight } = style(element, pseudo);
    const large = parseFloat(fontSize) >= 24 || (parseFloat(fontSize) >= 18.66 && Number(fontWeight) >= 700);
    texts += 1;
    cells += Boolean(element.closest('td.cell'));
    lightOnDark += a > b;
    if (!(contrast >= (large ? 3 : 4.5))) {
      told.set(`${element.tagName}.${element.getAttribute('class')} in ${element.parentNode.tagName}.${element.parentNode.getAttribute('class')}`, `${contrast.toFixed(2)} ${what.slice(0, 40)}`);
    }
  };
  const visible = (element) => element.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true }) && element.getClientRects().length > 0;
  const look = () => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const { data: text, parentElement: element } = walker.currentNode;
      if (!text.trim() || ['SCRIPT', 'STYLE', 'NOSCRIPT', 'title', 'OPTION'].includes(element.tagName) || !visible(element)) continue;
      judge(text.trim(), element.namespaceURI.endsWith('svg') ? style(element).fill : style(element).color, element);
    }
    for (const input of document.querySelectorAll('input[placeholder]')) if (visible(input)) judge(input.placeholder, style(input, '::placeholder').color, input, '::placeholder');
    for (const input of document.querySelectorAll('select')) if (visible(input)) judge('choice', style(input).color, input);
  };
  const hidden = [...document.querySelectorAll('main *, header *')].filter((one) => one.children.length === 0 && one.textContent.trim()
    && !one.closest('svg, noscript, .controls, nav.parts') && !visible(one)).map((one) => one.outerHTML.slice(0, 120));
  for (const button of document.querySelectorAll('.locks tbody button')) {
    button.click();
    document.querySelectorAll('td.cell button:not([disabled])').forEach((cell) => cell.click());
    document.querySelectorAll('details').forEach((one) => { one.open = true; });
    look();
  }
  const search = document.querySelector('input[type=search]');
  if (search) {
    search.value = 'e';
    search.dispatchEvent(new Event('input'));
  }
  look();
  return { hidden, texts, cells, lightOnDark, low: [...told].map((one) => one.join(': ')) };
})()

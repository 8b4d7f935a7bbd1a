// Chains: who waits because of whom. Places come laid out; here they are drawn.

/** Characters of a line in a node. */
const LINE = 27;
/** Characters of its bold line. */
const STRONG = 25;

/** The picture of chains. `chooseByName` is told of a lock that is pressed. */
function chainsPicture(chains, chooseByName) {
  const { nodes, edges, width, height } = chains;
  if (!edges.length) return el('p', { class: 'quiet' }, 'Nobody is known to whom waiting could be charged.');
  const all = edges.filter((edge) => !nodes[edge.from].held_in).reduce((sum, edge) => sum + edge.wait_ns, 0);
  const told = (edge) => `${nodeText(nodes[edge.from])} → ${nodeText(nodes[edge.to])}: ${time(edge.wait_ns)}`;
  const picture = svg('svg', {
    class: 'chains', viewBox: `-2 -2 ${width + 4} ${height + 4}`, width: width + 4, height: height + 4, role: 'group',
    'aria-label': 'Chains of waiting, from the lock waited for to the section that holds it, and on',
  }, edges.map((edge) => chainEdge(edge, nodes, told(edge))), nodes.map((node) => chainNode(node, chooseByName)));
  return [
    el('p', { class: 'quiet small' }, 'From a lock that is waited for to the section that holds it; if that waits itself, on to whoever it waits for. Edges are as wide as the waiting.',
      chains.left_out_ns > 0 && ` Not shown: ${time(chains.left_out_ns)} of waiting in smaller ones, beside ${time(all)} that is.`),
    el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Chains' }, picture),
    el('details', null, el('summary', null, 'The same as a list'), el('ul', { class: 'plain small' }, edges.map((edge) => el('li', null, told(edge))))),
  ];
}

function nodeText(node) {
  return node.held_in === null ? node.lock : `${node.lock} held in ${node.held_in}`;
}

function chainEdge(edge, nodes, told) {
  const [from, to] = [nodes[edge.from], nodes[edge.to]];
  const [x0, x1, [y0, y1]] = [from.x + from.width, to.x, edge.y];
  const points = [[x0, y0], ...edge.via.flatMap(([x, y]) => [[x - from.width / 2, y], [x + from.width / 2, y]]), [x1, y1]];
  const bend = edge.back ? 60 : 40;
  const way = points.slice(1).map(([x, y], i) => (i % 2 ? `L${x},${y}` : `C${points[i][0] + bend},${points[i][1]} ${x - bend},${y} ${x},${y}`)).join(' ');
  const middle = [(x0 + points[1][0]) / 2, (y0 + points[1][1]) / 2];
  return svg('g', { class: edge.back ? 'edge back' : 'edge' },
    svg('title', null, told),
    svg('path', { d: `M${x0},${y0} ${way}`, 'stroke-width': edge.width }),
    svg('text', { x: middle[0], y: middle[1] + 4, 'text-anchor': 'middle' }, time(edge.wait_ns)));
}

function chainNode(node, chooseByName) {
  const lines = node.held_in === null ? ['waiting for', node.lock] : [node.held_in, `holds ${node.lock}`];
  const bold = Number(node.held_in === null);
  const act = () => chooseByName(node.lock);
  return svg('g', {
    class: node.held_in === null ? 'node lock' : 'node', role: 'button', tabindex: 0, transform: `translate(${node.x},${node.y})`,
    'aria-label': `${nodeText(node)}: choose this lock`,
    on: { click: act, keydown: (event) => { if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); act(); } } },
  },
  svg('title', null, nodeText(node)),
  svg('rect', { width: node.width, height: node.height, rx: 6 }),
  lines.map((line, i) => svg('text', { x: 10, y: node.height / 2 - 4 + 17 * i, class: i === bold ? 'strong' : null }, short(line, i === bold ? STRONG : LINE))));
}

/** The end of a name says most. */
function short(text, most) {
  const letters = [...clean(text)];
  return letters.length > most ? `…${letters.slice(1 - most).join('')}` : letters.join('');
}

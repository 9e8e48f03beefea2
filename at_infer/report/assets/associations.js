// The paper's figures: who attends to whom, by prior and by series, in an anomalous and in a normal window.
const MAP = [[13, 8, 70], [84, 2, 163], [156, 23, 158], [205, 74, 118], [237, 121, 83], [251, 175, 51], [240, 249, 33]];

function mapColour(share) {
  const at = Math.min(Math.max(share, 0), 1) * (MAP.length - 1), k = Math.min(Math.floor(at), MAP.length - 2);
  return MAP[k].map((c, i) => c + (at - k) * (MAP[k + 1][i] - c));
}

function startAssociations(array) {
  const { windows } = description;
  if (!windows.length) return;
  $('associations-panel').hidden = false;
  const anomalous = windows.map((w, k) => k).filter((k) => windows[k].segment !== null);
  const normal = windows.findIndex((w) => w.segment === null);
  for (let l = 0; l < windows[0].layers; l++) $('layer').append(element('option', { value: l }, `${l + 1}`));
  const view = { layer: liveliest(array('window.0.sigma'), windows[0].rows), point: 0, columns: [] };
  $('layer').value = view.layer;
  $('point').max = windows[0].rows - 1;

  if (anomalous.length) view.columns.push(column(anomalous));
  if (normal >= 0) view.columns.push(column([normal]));
  $('layer').addEventListener('change', () => { view.layer = Number($('layer').value); draw(); });
  $('point').addEventListener('input', () => point(Number($('point').value)));
  point(anomalous.length ? peakOf(anomalous[0]) : 0, false);
  onTheme(draw);

  function peakOf(k) {
    const score = array(`window.${k}.score`);
    return score.reduce((best, v, i) => (v > score[best] || Number.isNaN(score[best]) ? i : best), 0);
  }

  function point(i, redraw = true) {
    view.point = i;
    $('point').value = i;
    $('point-text').textContent = `row ${i + 1} of ${windows[0].rows}`;
    if (redraw) draw();
  }

  function column(choices) {
    const made = { k: choices[0] };
    const name = (k) => (windows[k].segment === null ? 'Normal window' : `Anomalous window, segment ${windows[k].segment + 1} by peak`) + (description.seriesCount > 1 ? `, ${windows[k].series}` : '');
    const title = choices.length > 1 ? element('select', { 'aria-label': 'Window' }, ...choices.map((k) => element('option', { value: k }, name(k)))) : element('h3', {}, name(made.k));
    title.addEventListener('change', () => { made.k = Number(title.value); point(peakOf(made.k)); });
    const map = (which) => {
      const canvas = element('canvas', { role: 'img', 'aria-label': `${which} association` });
      canvas.addEventListener('click', (event) => {
        const box = canvas.getBoundingClientRect();
        point(Math.min(windows[made.k].rows - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * windows[made.k].rows))));
      });
      return { which, canvas, figure: element('figure', {}, canvas, element('figcaption', {}, which === 'prior' ? 'prior association P' : 'series association S')) };
    };
    made.maps = [map('prior'), map('series')];
    made.value = element('div', { class: 'chart' });
    made.sigma = element('div', { class: 'chart' });
    made.row = element('div', { class: 'chart' });
    made.feature = element('h3', {});
    const sub = (head, box) => element('div', { class: 'subchart' }, head, box);
    const small = (text, more) => element('h3', {}, text, ' ', element('small', {}, more));
    $('windows').append(element('div', { class: 'window' }, title, sub(made.feature, made.value), sub(small('Learned scale σ', 'mean of the heads; thick: chosen layer'), made.sigma), element('div', { class: 'maps' }, ...made.maps.map((m) => m.figure)), sub(small('Association of the chosen point', 'solid: series, dashed: prior'), made.row)));
    return made;
  }

  function draw() {
    const sigmaMost = Math.max(...view.columns.flatMap(({ k }) => Array.from(array(`window.${k}.sigma`))));
    for (const made of view.columns) {
      const { k } = made, w = windows[k], n = w.rows, steps = Array.from({ length: n }, (_, i) => w.first + i);
      const score = array(`window.${k}.score`);
      const hooks = {
        drawClear: [(u) => {
          u.ctx.save();
          u.ctx.globalAlpha = 0.25;
          score.forEach((v, i) => v > description.threshold && band(u, w.first + i - 0.5, w.first + i + 0.5, colour('alarm')));
          u.ctx.restore();
        }],
        draw: [(u) => band(u, w.first + view.point, w.first + view.point, colour('soft'), 0, 1, 1)],
      };
      const rowAxis = () => axis({ space: 60, size: 28, values: (u, ticks) => ticks.map((t) => (Number.isInteger(t) ? whole(t) : '')) });
      const line = (stroke, more = {}) => ({ stroke, width: 1.5, points: { show: false }, ...more });
      made.feature.replaceChildren(w.feature, ' ', element('small', {}, 'rows above the threshold in red'));
      chart(made.value, { height: 110, axes: [rowAxis(), valueAxis()], series: [{}, line(colour('score'))], hooks }, [steps, Array.from(array(`window.${k}.value`), finiteOrNull)]);
      const sigma = array(`window.${k}.sigma`), layers = Array.from({ length: w.layers }, (_, l) => Array.from(sigma.subarray(l * n, (l + 1) * n)));
      chart(made.sigma, { height: 110, axes: [rowAxis(), valueAxis()], scales: { y: { range: [0, sigmaMost * 1.05] } }, series: [{}, ...layers.map((_, l) => line(colour(l === view.layer ? 'recon' : 'soft'), { width: l === view.layer ? 2.5 : 1 }))], hooks }, [steps, ...layers]);
      const maps = Object.fromEntries(made.maps.map(({ which, canvas }) => [which, paintMap(canvas, array(`window.${k}.${which}`), n, view)]));
      chart(made.row, { height: 120, axes: [rowAxis(), valueAxis()], scales: { y: { range: (u, low, high) => [0, (high || 1) * 1.05] } }, series: [{}, line(colour('score')), line(colour('recon'), { dash: [6, 4] })], hooks: { draw: hooks.draw } }, [steps, maps.series, maps.prior]);
    }
  }
}

// Draws a map and returns the weights of the chosen row.
function paintMap(canvas, roots, n, { layer, point }) {
  const of = roots.subarray(layer * n * n, (layer + 1) * n * n);
  const most = of.reduce((a, b) => Math.max(a, b), 1);
  canvas.width = canvas.height = n;
  const ctx = canvas.getContext('2d'), image = ctx.createImageData(n, n);
  for (let i = 0; i < n * n; i++) image.data.set([...mapColour(of[i] / most), 255], 4 * i);
  for (let j = 0; j < n; j++) {
    // The chosen row is brightened at both edges, where it hides nothing.
    if (j < 3 || j >= n - 3) image.data.set([255, 255, 255, 255], 4 * (point * n + j));
  }
  ctx.putImageData(image, 0, 0);
  return Array.from(of.subarray(point * n, (point + 1) * n), (root) => (root / 255) ** 2);
}

// The layer whose scale varies most: there is something to see.
function liveliest(sigma, n) {
  const spread = (l) => Math.max(...sigma.subarray(l * n, (l + 1) * n)) - Math.min(...sigma.subarray(l * n, (l + 1) * n));
  return Array.from({ length: sigma.length / n }, (_, l) => l).reduce((best, l) => (spread(l) > spread(best) ? l : best), 0);
}

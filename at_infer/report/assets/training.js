// How training went.
function startTraining(array) {
  const { evaluations, bestStep, tiles, quantiles, modes, mode, scales } = description;
  $('tiles').replaceChildren(...tiles.map(([value, text]) => element('div', { class: 'tile' }, element('b', {}, value), element('span', {}, text))));
  for (const name of ['reconstruction', 'discrepancy']) lossChart(name, array, evaluations, bestStep);
  const table = $('quantiles');
  table.tHead.replaceChildren(element('tr', {}, element('th', { scope: 'col' }, 'mode'), ...quantiles.map((text) => element('th', { scope: 'col', class: 'number' }, text))));
  table.tBodies[0].replaceChildren(...modes.map(([name, values]) => element('tr', {}, element('td', {}, name === mode ? `${name} (recorded)` : name), ...values.map((v) => element('td', { class: 'number' }, short(v))))));
  if (scales.length) {
    $('scales-panel').hidden = false;
    onTheme(() => paintScales($('scales'), scales));
    new ResizeObserver(() => paintScales($('scales'), scales)).observe($('scales'));
  }
}

function lossChart(name, array, evaluations, bestStep) {
  const steps = array(`steps.${name}`) ?? new Float32Array(0);
  const marks = new Map(evaluations.map((one) => [one.step, one]));
  const x = Array.from(steps, (_, i) => i + 1);
  const at = (key) => x.map((step) => marks.get(step)?.[key] ?? null);
  onTheme(() => {
    chart($(name), {
      height: 260,
      scales: { y: { distr: name === 'reconstruction' ? 3 : 1 } },
      axes: [axis({ label: 'step', size: 30, labelSize: 20, labelFont: '12px system-ui, sans-serif' }), valueAxis(name === 'reconstruction' ? { values: logTicks } : {})],
      series: [
        {},
        { stroke: colour('score-fill').slice(0, 7) + '66', width: 1, points: { show: false } },
        { stroke: colour('score'), width: 2.25, spanGaps: true, points: { show: true, size: 6, fill: colour('score') } },
        { stroke: colour('recon'), width: 2.25, dash: [7, 4], spanGaps: true, points: { show: true, size: 6, fill: colour('recon') } },
      ],
      hooks: { drawClear: [(u) => band(u, bestStep, bestStep, colour('hit'), 0, 1, 2)] },
    }, [x, Array.from(steps, finiteOrNull), at(name), at(`validation_${name}`)]);
    legend($(`${name}-legend`), [['score', 'mean since the last evaluation'], ['recon', 'validation', 'dash'], ['hit', `best weights, step ${bestStep}`]]);
  });
}

// Quantiles 5, 25, 50, 75 and 95 % of sigma, one column per head, layers side by side.
function paintScales(canvas, scales) {
  const { ctx, width, height } = canvas2d(canvas);
  const left = 46, bottom = height - 40, top = 10;
  const most = Math.max(...scales.flat(2), 1e-9) * 1.05, y = (v) => bottom - (v / most) * (bottom - top);
  ctx.font = '12px system-ui, sans-serif';
  ctx.fillStyle = colour('soft');
  for (let k = 0; k <= 4; k++) {
    const v = (most * k) / 4;
    ctx.fillText(short(v), 4, y(v) + 4);
    ctx.strokeStyle = colour('grid');
    ctx.strokeRect(left, y(v), width - left, 0);
  }
  const room = (width - left) / scales.length;
  scales.forEach((heads, layer) => {
    const begin = left + layer * room, step = Math.min(room / (heads.length + 1), 46), offset = (room - step * (heads.length - 1)) / 2;
    ctx.fillStyle = colour('soft');
    ctx.textAlign = 'center';
    ctx.fillText(`layer ${layer + 1}`, begin + room / 2, height - 6);
    heads.forEach(([low, q1, median, q3, high], head) => {
      const x = begin + offset + head * step;
      ctx.fillStyle = colour('soft');
      ctx.fillText(String(head + 1), x, height - 24);
      ctx.fillStyle = colour('score');
      ctx.fillRect(x - 1, y(high), 2, Math.max(y(low) - y(high), 1));
      ctx.fillRect(x - 6, y(q3), 12, Math.max(y(q1) - y(q3), 2));
      ctx.fillStyle = colour('alarm');
      ctx.fillRect(x - 9, y(median) - 1, 18, 2);
    });
    ctx.textAlign = 'left';
  });
  canvas.setAttribute('aria-label', scales.map((heads, l) => `layer ${l + 1}: medians ${heads.map((h) => short(h[2])).join(', ')}`).join('; '));
}

// One segment: its score, and the features to blame beside their reconstruction.
function startDetail(array, scoreChart, step) {
  const known = new Map(description.details.map((detail) => [detail.segment, detail]));
  $('detail-previous').addEventListener('click', () => step(-1));
  $('detail-next').addEventListener('click', () => step(1));
  $('detail-show').addEventListener('click', () => {
    const row = state.selected, [from, to] = [row.from, row.to];
    const width = Math.max(to - from, (scoreChart.whole[1] - scoreChart.whole[0]) / 200);
    scoreChart.zoom(from - width, to + width);
    $('score').scrollIntoView({ block: 'center' });
    $('score').focus({ preventScroll: true });
  });
  const redraw = () => state.selected && show();
  redraws.add(redraw);
  state.observers.push(() => charts.forEach((plot) => plot.redraw(true, true)));
  let charts = [];

  function show() {
    const row = state.selected;
    const detail = row.verdict === 'missed' ? undefined : known.get(row.id);
    $('detail-panel').hidden = false;
    const where = description.seriesCount > 1 ? `${row.name}, ` : '';
    const same = row.length === 1;
    $('detail-title').textContent = `${where}${moment(row.times[0], row.first)}${same ? '' : ` to ${moment(row.times[1], row.end - 1, row.times[0])}`}`;
    const times = description.threshold > 0 && Number.isFinite(row.peak) ? `, ${short(row.peak / description.threshold)} times the threshold in use` : '';
    $('detail-text').textContent = `${WORDS[row.verdict] ? `${WORDS[row.verdict]}: ` : ''}${plural(row.length, 'row')}, peak score ${short(Number.isFinite(row.peak) ? row.peak : NaN)}${times}.`;
    const host = $('detail-charts');
    host.replaceChildren();
    const data = detail ? exactRows(detail) : curveAround(row);
    const sync = { key: `detail`, setSeries: false };
    const marks = { drawClear: [(u) => highlight(u, row)] };
    const add = (title, small, options, values) => {
      const box = element('div', { class: 'chart' });
      host.append(element('div', { class: 'subchart' }, element('h3', {}, title, ' ', element('small', {}, small)), box));
      return chart(box, { height: 150, cursor: { sync, drag: { x: true, y: false } }, axes: [timeAxis(), valueAxis()], ...options }, values);
    };
    const time = { x: { time: description.clock === 'date' } };
    charts = [
      add('Score', '', {
        scales: { ...time, y: { range: (u, low, high) => [Math.min(low ?? 0, threshold(), 0), Math.max(high ?? 0, threshold()) * 1.08] } },
        series: [{}, { stroke: (u) => splitColour(u, threshold()), width: 1.75, points: { show: data.score.length < 60, size: 5 } }],
        hooks: { ...marks, draw: [(u) => horizontal(u, threshold(), 'alarm')] },
      }, [data.x, data.score]),
      ...(detail?.names ?? []).map((name, j) => {
        const value = Array.from(array(`detail.${row.id}.value.${j}`), finiteOrNull);
        const model = detail.reconstructed ? Array.from(array(`detail.${row.id}.reconstruction.${j}`), finiteOrNull) : null;
        const part = row.top.find(([top]) => top === name);
        return add(name, part ? `${errorShare(part)} of the error` : '', {
          scales: time,
          height: 130,
          series: [{}, { stroke: colour('score'), width: 1.75, points: { show: false } }, ...(model ? [{ stroke: colour('recon'), width: 1.75, dash: [6, 4], points: { show: false } }] : [])],
          hooks: marks,
        }, model ? [data.x, value, model] : [data.x, value]);
      }),
    ];
    const hints = [];
    if (detail?.reconstructed) hints.push('Solid: as measured. Dashed: as the model reconstructs it.');
    if (!detail) hints.push(row.verdict === 'missed' ? 'Features are kept for segments above the threshold only.' : `Rows and features are kept for the ${whole(known.size)} worst segments; at-infer report --details N keeps more.`);
    else if (!detail.names.length) hints.push('No features here: pass the scored data with --data, and model.associations.onnx with --engine for reconstructions.');
    else if (!detail.reconstructed) hints.push('No reconstructions here: pass model.associations.onnx with --engine.');
    if (detail && detail.names.length && !row.top.length) hints.push('Features are those furthest from the rows around; which are to blame is not known.');
    if (detail && row.length + 2 > data.x.length) hints.push(`The segment is long: ${whole(data.x.length)} rows around its peak are shown.`);
    $('detail-hint').textContent = hints.join(' ');
  }

  function exactRows(detail) {
    const name = `detail.${detail.segment}`, score = Array.from(array(`${name}.score`), finiteOrNull), steps = array(`${name}.times`);
    return { x: steps ? Array.from(cumulated(steps)) : score.map((_, i) => detail.first + i), score };
  }

  function curveAround(row) {
    const width = Math.max(row.to - row.from, 1) + 2;
    const unit = description.clock ? (scoreChart.whole[1] - scoreChart.whole[0]) / Math.max(description.series[state.series].rows - 1, 1) : 1;
    const margin = 100 * unit + width * 0.1;
    const found = scoreChart.current.between(row.from - margin, row.to + margin, 2000);
    return { x: Array.from(found.x), score: Array.from(found.high, finiteOrNull) };
  }

  return show;
}

const finiteOrNull = (v) => (Number.isFinite(v) ? v : null);

function highlight(u, row) {
  u.ctx.save();
  u.ctx.globalAlpha = 0.12;
  band(u, row.from, row.to, colour(row.verdict === 'missed' ? 'miss' : 'alarm'), 0, 1, 6);
  u.ctx.restore();
}

// The threshold that is tried, what it would flag, and the chart to choose it by.
const state = { cut: 0, series: 0, selected: null, observers: [] };

const threshold = () => description.grid.values[state.cut];
const inUse = () => state.cut === description.grid.used;

function setCut(cut) {
  state.cut = Math.min(Math.max(Math.round(cut), 0), description.grid.values.length - 1);
  state.observers.forEach((observe) => observe());
}

function nearestCut(value) {
  const values = description.grid.values;
  const after = Math.min(place(values, value), values.length - 1);
  return after > 0 && value - values[after - 1] < values[after] - value ? after - 1 : after;
}

// What is flagged at a cut: of the whole file, or of one of the series.
function flagged(cut, array, series = null) {
  const { grid, labelled } = description;
  const of = (name) => (series === null ? grid[name][cut] : array(`grid.${name}`)[series * grid.values.length + cut]);
  return { rows: of('rows'), segments: of('segments'), found: labelled ? of('found') : null, false: labelled ? of('false') : null };
}

function showTiles() {
  const now = flagged(state.cut), { days, rows, labelled } = description;
  const scored = rows - description.unscored;
  const tile = (name, value, text, kind = '') => element('div', { class: `tile ${kind}`, id: `tile-${name}` }, element('b', {}, value), element('span', {}, text));
  const peak = Math.max(...description.series.map((s) => s.peak ?? -Infinity));
  const { incidents } = description;
  const each = description.seriesCount > 1 ? 'a day and series' : 'a day';
  const rate = incidents.perDay === null ? '' : `, ${short(incidents.perDay)} ${each}${inUse() ? '' : ', at the threshold in use'}`;
  const tiles = [
    tile('incidents', whole(incidents.count), `${incidents.count === 1 ? 'incident' : 'incidents'}${rate}`, incidents.count ? 'alarm' : ''),
    ...(labelled ? [
      tile('incidents-found', whole(incidents.found), `of ${whole(incidents.anomalies)} anomalies have an incident`, 'hit'),
      tile('incidents-false', whole(incidents.false), 'false incidents', incidents.false ? 'alarm' : ''),
    ] : []),
    tile('segments', whole(now.segments), now.segments === 1 ? 'segment above the threshold' : 'segments above the threshold', now.segments ? 'alarm' : ''),
    tile('rows', whole(now.rows), `rows flagged, ${share(now.rows, scored)} of ${whole(scored)}`),
    tile('day', days ? short(now.segments / days) : '–', days ? `segments ${each}, over ${short(days)} days of rows` : 'segments a day: not known'),
    tile('peak', short(Number.isFinite(peak) ? peak : NaN), threshold() > 0 && Number.isFinite(peak) ? `highest score, ${short(peak / threshold())} times the threshold` : 'highest score'),
  ];
  $('tiles').replaceChildren(...tiles);
}

function showReadout(array) {
  const now = flagged(state.cut), used = flagged(description.grid.used), { days, eventCount, labelled } = description;
  const change = (a, b) => (inUse() || a === b ? '' : ` (${a > b ? '+' : '−'}${whole(Math.abs(a - b))})`);
  const parts = ['At ', element('b', { id: 'value-threshold' }, short(threshold())), inUse() ? ' (in use): ' : ': '];
  parts.push(element('b', { id: 'value-segments' }, whole(now.segments)), ` segments${change(now.segments, used.segments)}, `);
  parts.push(element('b', { id: 'value-rows' }, whole(now.rows)), ` rows${change(now.rows, used.rows)}`);
  if (days) parts.push(', ', element('b', { id: 'value-day' }, short(now.segments / days)), ' segments a day');
  if (labelled) {
    parts.push('; ', element('b', { id: 'value-found' }, whole(now.found)), ` of ${whole(eventCount)} anomalies found${change(now.found, used.found)}, `);
    parts.push(element('b', { id: 'value-false' }, whole(now.false)), ` false alarms${change(now.false, used.false)}`);
  }
  if (description.series.length > 1) {
    const own = flagged(state.cut, array, state.series);
    parts.push(`. In ${description.series[state.series].name}: ${plural(own.segments, 'segment')}, ${plural(own.rows, 'row')}`);
  }
  $('readout').replaceChildren(...parts, '.');
  $('apply').replaceChildren(...(inUse() ? ['Counts are exact at every step of the slider.'] : ['To use it: ', element('code', {}, `at-infer threshold model.onnx --method fixed --delta ${Number(threshold().toPrecision(9))} -o new.onnx`)]));
  const slider = $('threshold');
  slider.value = state.cut;
  slider.setAttribute('aria-valuetext', `${short(threshold())}: ${plural(now.segments, 'segment')}, ${plural(now.rows, 'row')}`);
}

// Rows per score as bars, segments a day as a line; the slider below has the same x axis.
function histogramChart() {
  const { grid, days } = description, last = grid.values.length - 1;
  const steps = grid.values.map((_, k) => k);
  const bars = steps.map((k) => (k === 0 ? null : grid.rows[k - 1] - grid.rows[k] || null));
  const line = grid.segments.map((n) => (n > 0 ? n / (days || 1) : null));
  const label = days ? 'segments a day' : 'segments';
  let plot;
  onTheme(() => {
    plot = chart($('histogram'), {
      height: 230,
      cursor: { drag: { x: false, y: false } },
      scales: { x: { range: [0, Math.max(last, 1)] }, y: { distr: 3, range: (u, low, high) => [0.8, Math.max(high * 1.5 || 10, 10)] }, day: { distr: 3, range: (u, low, high) => logRange(low, high) } },
      axes: [
        axis({ space: 70, values: (u, ticks) => ticks.map((k) => (Number.isInteger(k) && k <= last ? short(grid.values[k]) : '')), label: 'threshold', labelSize: 20, labelFont: '12px system-ui, sans-serif', size: 34 }),
        valueAxis({ label: 'rows', labelSize: 18, labelFont: '12px system-ui, sans-serif', values: logTicks }),
        valueAxis({ scale: 'day', side: 1, grid: { show: false }, label, labelSize: 18, labelFont: '12px system-ui, sans-serif', stroke: colour('alarm'), values: logTicks }),
      ],
      series: [
        {},
        { stroke: colour('score'), fill: colour('score-fill'), paths: uPlot.paths.bars({ size: [1, 40], align: -1, gap: 1 }), points: { show: false } },
        { scale: 'day', stroke: colour('alarm'), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
      ],
      hooks: {
        draw: [
          (u) => {
            const { ctx } = u, x = u.valToPos(state.cut, 'x', true);
            ctx.save();
            ctx.strokeStyle = colour('alarm');
            ctx.fillStyle = colour('alarm');
            ctx.lineWidth = 2 * devicePixelRatio;
            ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
            ctx.beginPath();
            ctx.moveTo(x, u.bbox.top);
            ctx.lineTo(x, u.bbox.top + u.bbox.height);
            ctx.stroke();
            ctx.restore();
          },
        ],
        ready: [alignSlider],
        setSize: [alignSlider],
      },
    }, [steps, bars, line]);
    followPointer(plot.over, (event) => setCut(plot.posToVal(event.clientX - plot.over.getBoundingClientRect().left, 'x')));
  });
  state.observers.push(() => plot.redraw(false));
}

const logTicks = (u, ticks) => ticks.map((tick) => (tick > 0 && Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-6 ? short(tick) : ''));

function logRange(low, high) {
  if (!(low > 0)) return [0.1, 10];
  return [10 ** Math.floor(Math.log10(low) - 0.1), 10 ** Math.ceil(Math.log10(high) + 0.1)];
}

// The middle of a slider's thumb travels from half a thumb to half a thumb before the end.
function alignSlider(u) {
  const slider = $('threshold'), thumb = 16, ratio = devicePixelRatio;
  slider.style.marginLeft = `${u.bbox.left / ratio - thumb / 2}px`;
  slider.style.width = `${u.bbox.width / ratio + thumb}px`;
}

function followPointer(target, follow) {
  target.style.touchAction = 'pan-y';
  target.addEventListener('pointerdown', (event) => {
    target.setPointerCapture(event.pointerId);
    follow(event);
    const move = (moved) => follow(moved);
    target.addEventListener('pointermove', move);
    target.addEventListener('pointerup', () => target.removeEventListener('pointermove', move), { once: true });
  });
}

function startThreshold(array) {
  state.cut = description.grid.used;
  const slider = $('threshold');
  slider.max = description.grid.values.length - 1;
  slider.addEventListener('input', () => setCut(Number(slider.value)));
  $('threshold-reset').addEventListener('click', () => setCut(description.grid.used));
  state.observers.push(showTiles, () => showReadout(array));
  histogramChart();
}

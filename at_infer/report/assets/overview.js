// Score over time, one series at a time, with everything that was found in it.
class ScoreChart {
  constructor(array) {
    this.array = array;
    this.high = array('high');
    this.low = array('low') ?? this.high;
    const steps = array('times');
    this.times = steps && cumulated(steps);
    this.begins = [0];
    for (const series of description.series) this.begins.push(this.begins.at(-1) + series.buckets);
    this.cache = new Map();
    this.floor = positiveFloor(this.high, threshold());
    this.log = this.floor !== null;
    $('scale').hidden = this.floor === null;
    $('scale').setAttribute('aria-pressed', String(this.log));
    this.choose(0);
    this.listen();
    onTheme(() => this.draw());
    state.observers.push(() => this.plot.redraw(true, true));
  }

  levels(k) {
    if (!this.cache.has(k)) {
      const a = this.begins[k], b = this.begins[k + 1], series = description.series[k];
      const x = this.times ? this.times.slice(a, b) : Float64Array.from({ length: b - a }, (_, i) => series.first + i * description.bucketRows);
      this.cache.set(k, new Levels(x, this.low.subarray(a, b), this.high.subarray(a, b)));
    }
    return this.cache.get(k);
  }

  choose(k) {
    state.series = k;
    const series = description.series[k];
    this.current = this.levels(k);
    this.whole = series.span && description.clock ? [...series.span] : [series.first, series.first + series.rows - 1];
    if (this.whole[1] <= this.whole[0]) this.whole = [this.whole[0] - 1, this.whole[0] + 1];
    this.range = [...this.whole];
    this.marks = marksOf(series.index);
  }

  listen() {
    $('zoom-out').addEventListener('click', () => this.zoom(...this.whole));
    $('scale').addEventListener('click', () => {
      this.log = !this.log;
      $('scale').setAttribute('aria-pressed', String(this.log));
      this.draw();
    });
    $('score').addEventListener('keydown', (event) => {
      const [a, b] = this.range, width = b - a, middle = (a + b) / 2;
      const actions = {
        '+': () => this.zoom(middle - width / 4, middle + width / 4), '=': () => this.zoom(middle - width / 4, middle + width / 4),
        '-': () => this.zoom(middle - width, middle + width), 0: () => this.zoom(...this.whole),
        ArrowLeft: () => this.zoom(a - width / 4, b - width / 4), ArrowRight: () => this.zoom(a + width / 4, b + width / 4),
      };
      if (actions[event.key] && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        actions[event.key]();
      }
    });
    new ResizeObserver(() => this.drawNavigator()).observe($('navigator'));
    const navigator = $('navigator');
    let grip = null;
    const at = (event) => {
      const box = navigator.getBoundingClientRect();
      return this.whole[0] + ((event.clientX - box.left) / box.width) * (this.whole[1] - this.whole[0]);
    };
    navigator.addEventListener('pointerdown', (event) => {
      navigator.setPointerCapture(event.pointerId);
      const width = Math.min(this.range[1] - this.range[0], (this.whole[1] - this.whole[0]) / 8);
      grip = width / 2;
      this.zoom(at(event) - grip, at(event) + grip);
    });
    navigator.addEventListener('pointermove', (event) => grip !== null && this.zoom(at(event) - grip, at(event) + grip));
    navigator.addEventListener('pointerup', () => (grip = null));
  }

  zoom(from, to) {
    const [first, last] = this.whole, least = (last - first) / Math.max(this.current.levels[0].x.length, 1);
    const width = Math.min(Math.max(to - from, 4 * least), last - first);
    let a = (from + to - width) / 2;
    a = Math.min(Math.max(a, first), last - width);
    this.range = [a, a + width];
    this.refresh();
  }

  data() {
    const found = this.current.between(...this.range, 2 * Math.max($('score').clientWidth, 300));
    const lift = (values) => Array.from(values, (v) => (Number.isNaN(v) ? null : this.log ? Math.max(v, this.floor) : v));
    $('score').dataset.exact = String(found.exact && description.bucketRows === 1);
    return [found.x, lift(found.high), lift(found.low)];
  }

  refresh() {
    this.plot.setData(this.data(), false);
    this.plot.setScale('x', { min: this.range[0], max: this.range[1] });
    this.drawNavigator();
  }

  draw() {
    const stroke = (u) => splitColour(u, threshold());
    const series = { stroke, width: 1, points: { show: false }, spanGaps: false };
    this.plot = chart($('score'), {
      height: innerWidth < 640 ? 240 : 320,
      cursor: { drag: { x: true, y: false, setScale: false } },
      scales: {
        x: { time: description.clock === 'date', range: () => this.range },
        y: { distr: this.log ? 3 : 1, range: (u, low, high) => this.heights(low, high) },
      },
      axes: [timeAxis(), valueAxis(this.log ? { values: logTicks } : {})],
      series: [{}, series, { ...series }],
      bands: [{ series: [1, 2], fill: (u) => splitColour(u, threshold(), '73') }],
      hooks: {
        drawClear: [(u) => this.under(u)],
        draw: [(u) => horizontal(u, threshold(), 'alarm')],
        setSelect: [
          (u) => {
            const { left, width } = u.select;
            if (width > 3) this.zoom(u.posToVal(left, 'x'), u.posToVal(left + width, 'x'));
            u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          },
        ],
      },
    }, this.data());
    this.plot.over.addEventListener('dblclick', () => this.zoom(...this.whole));
    this.dragThreshold(this.plot);
    this.drawNavigator();
    this.legend();
  }

  heights(low, high) {
    const least = Math.min(low ?? Infinity, threshold()), most = Math.max(high ?? -Infinity, threshold());
    if (this.log) return [Math.max(least, this.floor) / 1.5, Math.max(most, this.floor) * 1.5];
    const margin = (most - least || Math.abs(most) || 1) * 0.08;
    return [least >= 0 ? Math.max(least - margin, 0) : least - margin, most + margin];
  }

  // Bands behind the curve: labels over the whole height, what was flagged along the top.
  under(u) {
    const { ctx } = u, bar = (9 * devicePixelRatio) / u.bbox.height;
    ctx.save();
    const { events, segments } = this.marks, good = (mark) => description.labelled && mark.hit;
    bands(u, events, colour('label'));
    bands(u, events.filter((mark) => mark.hit), colour('hit'), 1 - bar, bar);
    bands(u, events.filter((mark) => !mark.hit), colour('miss'), 1 - bar, bar);
    const above = segments.filter((mark) => mark.peak > threshold());
    bands(u, above.filter(good), colour('hit'), 0, bar);
    bands(u, above.filter((mark) => !good(mark)), colour('alarm'), 0, bar);
    const chosen = state.selected;
    if (chosen && chosen.seriesIndex === description.series[state.series].index) band(u, chosen.from, chosen.to, colour('score-fill'), 0, 1, 4);
    ctx.restore();
  }

  dragThreshold(u) {
    const near = (event) => Math.abs(event.clientY - u.over.getBoundingClientRect().top - u.valToPos(threshold(), 'y')) < 7;
    u.over.addEventListener('mousemove', (event) => (u.over.style.cursor = near(event) ? 'ns-resize' : 'crosshair'));
    const start = (event) => {
      if (!near(event)) return;
      event.stopImmediatePropagation();
      event.preventDefault();
      u.over.setPointerCapture?.(event.pointerId);
      const top = u.over.getBoundingClientRect().top;
      // The axis stays as it is while the line is dragged: it would run away from the pointer.
      const value = (moved) => u.posToVal(moved.clientY - top, 'y');
      const move = (moved) => setCut(nearestCut(value(moved)));
      u.over.addEventListener('pointermove', move);
      u.over.addEventListener('pointerup', () => u.over.removeEventListener('pointermove', move), { once: true });
    };
    u.over.addEventListener('pointerdown', start, true);
    u.over.addEventListener('mousedown', (event) => near(event) && event.stopImmediatePropagation(), true);
  }

  drawNavigator() {
    const { ctx, width, height } = canvas2d($('navigator'));
    if (width < 10) return;
    const { x, high } = this.current.between(...this.whole, 2 * width);
    const [first, last] = this.whole, at = (t) => ((t - first) / (last - first)) * width;
    let most = threshold();
    for (const v of high) if (v > most) most = v;
    const tall = (v) => (this.log ? Math.log(Math.max(v, this.floor) / this.floor) / Math.log(most / this.floor || 2) : v / (most || 1));
    for (let i = 0; i < x.length; i++) {
      if (Number.isNaN(high[i])) continue;
      const h = Math.max(1, tall(high[i]) * (height - 6));
      ctx.fillStyle = high[i] > threshold() ? colour('alarm') : colour('score');
      ctx.fillRect(at(x[i]), height - h, Math.max(width / x.length, 1), h);
    }
    const a = at(this.range[0]), b = at(this.range[1]);
    if (b - a < width - 1) {
      ctx.globalAlpha = 0.75;
      ctx.fillStyle = colour('page');
      ctx.fillRect(0, 0, a, height);
      ctx.fillRect(b, 0, width - b, height);
      ctx.globalAlpha = 1;
      ctx.strokeStyle = colour('ink');
      ctx.strokeRect(a, 0.5, Math.max(b - a, 2), height - 1);
    }
  }

  legend() {
    const entries = [['score', 'score'], ['alarm', 'above the threshold'], ['alarm', 'threshold', 'dash']];
    if (description.labelled) entries.push(['label', 'labelled anomaly', 'box'], ['hit', 'hit'], ['alarm', 'false alarm (top)'], ['miss', 'missed (bottom)']);
    legend($('score-legend'), entries);
    const rows = description.bucketRows;
    if (rows > 1) $('score-legend').append(element('span', {}, `each point spans ${rows} rows, from the lowest to the highest score`));
  }
}

// Smallest score worth a place on a log scale; null if there is a negative one.
function positiveFloor(high, value) {
  let most = value > 0 ? value : 0;
  let least = Infinity;
  for (const v of high) {
    if (v < 0) return null;
    if (v > most) most = v;
    if (v > 0 && v < least) least = v;
  }
  return most > 0 ? Math.max(Math.min(least, most), most * 1e-7, value * 1e-4) : null;
}

function marksOf(seriesIndex) {
  const of = (table) => (table ? table.first.map((first, k) => ({ k, ...spanOf(table, k) })).filter((mark) => mark.series === seriesIndex).sort((a, b) => a.from - b.from) : []);
  return { segments: of(description.segments), events: of(description.events) };
}

// Where a segment lies on the x axis.
function spanOf(table, k) {
  const timed = description.clock && table.times[k][0] !== null;
  return { series: table.series[k], seriesIndex: table.series[k], peak: table.peak[k] ?? -Infinity, hit: table.hit[k], from: timed ? table.times[k][0] : table.first[k], to: timed ? table.times[k][1] : table.end[k] - 1 };
}

// Every series as a strip, so that the eye finds the machine and the hour.
function startFleet(scoreChart, onChoose) {
  const { series, seriesCount } = description;
  const select = $('series');
  series.forEach((s, k) => select.append(element('option', { value: k }, s.name)));
  if (series.length < 2) return () => {};
  $('series-choice').hidden = false;
  $('fleet-panel').hidden = false;
  $('fleet-hint').textContent = `${plural(seriesCount, 'series', 'series')}, ${whole(series.filter((s) => s.segments).length)} of those shown with segments. Colour: highest score against the threshold.`;
  const strips = series.map((s, k) => {
    const strip = element('canvas', { 'aria-hidden': 'true' });
    const button = element('button', { type: 'button', 'aria-pressed': 'false', title: s.name, onclick: () => onChoose(k) }, element('span', {}, s.name), strip, element('span', { class: 'count' }, plural(s.segments, 'segment')));
    $('fleet').append(button);
    return { button, strip };
  });
  select.addEventListener('change', () => onChoose(Number(select.value)));
  const paint = () => {
    const { clientWidth, clientHeight } = strips[0].strip; // once: asking each would lay out the page anew for each
    strips.forEach(({ strip }, k) => paintStrip(strip, clientWidth, clientHeight, scoreChart.levels(k).levels.at(-1).high));
  };
  redraws.add(paint);
  let frame = 0;
  state.observers.push(() => {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(paint);
  });
  new ResizeObserver(paint).observe($('fleet'));
  return () => strips.forEach(({ button }, k) => {
    button.setAttribute('aria-pressed', String(k === state.series));
    select.value = state.series;
  });
}

function paintStrip(strip, stripWidth, stripHeight, high) {
  const { ctx, width, height } = canvas2d(strip, stripWidth, stripHeight);
  ctx.fillStyle = colour('grid');
  ctx.fillRect(0, 0, width, height);
  const limit = threshold();
  for (let i = 0; i < high.length; i++) {
    if (Number.isNaN(high[i])) continue;
    const over = high[i] > limit;
    ctx.globalAlpha = over ? 0.45 + 0.55 * Math.min(1, Math.log10(high[i] / limit || 1)) : 0.12 + 0.4 * Math.max(0, high[i] / limit || 0);
    ctx.fillStyle = colour(over ? 'alarm' : 'score');
    ctx.fillRect((i / high.length) * width, 0, Math.max(width / high.length, over ? 1.5 : 0.5), height);
  }
  ctx.globalAlpha = 1;
}

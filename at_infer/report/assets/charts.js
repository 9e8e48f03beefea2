// What all charts share: size, axes, colours, and drawing again when the page turns dark or changes its width.
const redraws = new Set();

function onTheme(redraw) {
  redraws.add(redraw);
  redraw();
}

matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  colours.clear();
  redraws.forEach((redraw) => redraw());
});

const utc = (milliseconds) => uPlot.tzDate(new Date(milliseconds), 'Etc/UTC');

function axis(more = {}) {
  return { stroke: colour('soft'), grid: { stroke: colour('grid'), width: 1 }, ticks: { stroke: colour('line'), width: 1, size: 5 }, font: '12px system-ui, sans-serif', ...more };
}

const timeAxis = () => axis(description.clock === 'date' ? { space: 84, size: 42, values: dateTicks } : { space: 80, size: 28, values: (u, ticks) => ticks.map((tick) => tick.toLocaleString('en-US', { useGrouping: Math.abs(tick) >= 10000, maximumFractionDigits: 6 })) });

// Clock times, with the day below where it changes; far out only days.
function dateTicks(u, ticks, at, space, step) {
  let day = '';
  return ticks.map((tick) => {
    const text = new Date(tick).toISOString(), date = text.slice(0, 10);
    if (step >= 86400000) return date;
    const clock = step >= 60000 ? text.slice(11, 16) : step >= 1000 ? text.slice(11, 19) : text.slice(14, 23);
    const shown = date === day ? clock : `${clock}\n${date}`;
    day = date;
    return shown;
  });
}

const valueAxis = (more = {}) => axis({ size: 62, space: 26, values: (u, ticks) => ticks.map((tick) => (tick === null ? '' : short(tick))), ...more });

// A chart that fills its element; returns it.
function chart(host, options, data) {
  host.replaceChildren();
  const made = new uPlot(
    {
      width: Math.max(host.clientWidth, 200),
      legend: { show: false },
      ms: 1,
      tzDate: utc,
      cursor: { points: { size: 7 }, drag: { x: true, y: false }, ...options.cursor },
      ...options,
      scales: { x: { time: false }, ...options.scales },
    },
    data,
    host,
  );
  sizes.unobserve(host);
  plots.set(host, made);
  sizes.observe(host);
  return made;
}

const plots = new Map();
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const plot = plots.get(target);
    const width = Math.floor(target.clientWidth);
    if (plot && width > 50 && Math.abs(plot.width - width) > 1) requestAnimationFrame(() => plot.setSize({ width, height: plot.height }));
  }
});

function horizontal(u, value, name, dash = [6, 4], scale = 'y') {
  const y = u.valToPos(value, scale, true);
  if (!(y >= u.bbox.top - 1 && y <= u.bbox.top + u.bbox.height + 1)) return;
  const { ctx } = u;
  ctx.save();
  ctx.strokeStyle = colour(name);
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash(dash.map((d) => d * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(u.bbox.left, y);
  ctx.lineTo(u.bbox.left + u.bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

// A band from one place of the x axis to another, over part of the height.
function band(u, from, to, fill, top = 0, height = 1, least = 2) {
  const a = Math.max(u.valToPos(from, 'x', true), u.bbox.left);
  const b = Math.min(u.valToPos(to, 'x', true), u.bbox.left + u.bbox.width);
  if (b < u.bbox.left || a > u.bbox.left + u.bbox.width) return;
  const width = Math.max(b - a, least * devicePixelRatio);
  u.ctx.fillStyle = fill;
  u.ctx.fillRect(a - (width - (b - a)) / 2, u.bbox.top + top * u.bbox.height, width, height * u.bbox.height);
}

// Many bands of one colour; those that touch on the screen become one, so that none shines through another.
function bands(u, marks, fill, top = 0, height = 1) {
  let from = null, to = null;
  const unit = (u.scales.x.max - u.scales.x.min) / Math.max(u.bbox.width, 1);
  for (const mark of marks) {
    if (mark.to < u.scales.x.min || mark.from > u.scales.x.max) continue;
    if (from !== null && mark.from <= to + 2 * unit) {
      to = Math.max(to, mark.to);
      continue;
    }
    if (from !== null) band(u, from, to, fill, top, height);
    [from, to] = [mark.from, mark.to];
  }
  if (from !== null) band(u, from, to, fill, top, height);
}

// Above the threshold a curve takes the colour of an alarm; `alpha` is two hex digits.
function splitColour(u, threshold, alpha = '') {
  const [below, above] = [colour('score') + alpha, colour('alarm') + alpha];
  const { top, height } = u.bbox;
  const at = (u.valToPos(threshold, 'y', true) - top) / height;
  if (!(at > 0)) return below;
  if (at >= 1) return above;
  const gradient = u.ctx.createLinearGradient(0, top, 0, top + height);
  gradient.addColorStop(0, above);
  gradient.addColorStop(at, above);
  gradient.addColorStop(at, below);
  gradient.addColorStop(1, below);
  return gradient;
}

function legend(host, entries) {
  host.replaceChildren(
    ...entries.map(([name, text, shape = '']) => {
      const mark = element('i', { class: shape });
      if (shape !== 'box') mark.style.color = colour(name);
      return element('span', {}, mark, text);
    }),
  );
}

// A canvas with one unit per CSS pixel.
function canvas2d(canvas, width = canvas.clientWidth, height = canvas.clientHeight) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.max(1, Math.round(width * ratio));
  canvas.height = Math.max(1, Math.round(height * ratio));
  const ctx = canvas.getContext('2d');
  ctx.scale(ratio, ratio);
  return { ctx, width, height };
}

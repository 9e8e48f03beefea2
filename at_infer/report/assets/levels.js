// Lowest and highest score at every zoom: each level joins four buckets of the one below.
const JOINED = 4;

class Levels {
  constructor(x, low, high) {
    this.levels = [{ x, low, high }];
    while (this.levels.at(-1).x.length > 600) this.levels.push(joined(this.levels.at(-1)));
  }

  // The finest level with no more than `most` buckets between two places, and one bucket more on either side.
  between(from, to, most) {
    for (const level of this.levels) {
      const a = Math.max(0, place(level.x, from) - 1);
      const b = Math.min(level.x.length, place(level.x, to) + 1);
      if (b - a <= most || level === this.levels.at(-1)) {
        return { x: level.x.subarray(a, b), low: level.low.subarray(a, b), high: level.high.subarray(a, b), exact: level === this.levels[0] };
      }
    }
    return null;
  }
}

function joined({ x, low, high }) {
  const count = Math.ceil(x.length / JOINED);
  const to = { x: new Float64Array(count), low: new Float32Array(count), high: new Float32Array(count) };
  for (let k = 0; k < count; k++) {
    let least = NaN, most = NaN;
    for (let i = k * JOINED; i < Math.min((k + 1) * JOINED, x.length); i++) {
      if (!(least <= low[i])) least = Number.isNaN(low[i]) ? least : low[i];
      if (!(most >= high[i])) most = Number.isNaN(high[i]) ? most : high[i];
    }
    to.x[k] = x[k * JOINED];
    to.low[k] = least;
    to.high[k] = most;
  }
  return to;
}

// Index of the first entry that is not below.
function place(sorted, value) {
  let a = 0, b = sorted.length;
  while (a < b) {
    const middle = (a + b) >> 1;
    if (sorted[middle] < value) a = middle + 1;
    else b = middle;
  }
  return a;
}

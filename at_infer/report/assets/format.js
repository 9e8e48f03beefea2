// Numbers, times and elements for people. Text only ever enters the page as text.
const $ = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'class') made.className = value;
    else if (name.startsWith('on')) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const whole = (n) => Math.round(n).toLocaleString('en-US');

function short(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return '–';
  if (x === 0 || Math.abs(x) < 1e-30) return x < 0 ? 'below 0' : '0';
  const size = Math.abs(x);
  if (size >= 1e6 || size < 1e-4) return x.toExponential(2);
  return size >= 1000 ? whole(x) : String(Number(x.toPrecision(4)));
}

function share(part, all) {
  if (!all) return '–';
  const percent = (100 * part) / all;
  return percent > 0 && percent < 0.01 ? '< 0.01 %' : `${Number(percent.toPrecision(3))} %`;
}

// A feature's part of a segment's error; "≥" where only the top feature of each row is known, and it varies.
const errorShare = ([, part, exact]) => `${exact ? '' : '≥ '}${share(part, 1)}`;

// Of a row: its date, its number in the time column, or its place in the file. The day is left out if it is that of `after`.
function moment(time, row, after = null) {
  if (description.clock === 'date' && Number.isFinite(time)) {
    const text = new Date(time).toISOString().replace('T', ' ').slice(0, description.subSecond ? 23 : 19);
    if (after !== null && new Date(after).toISOString().startsWith(text.slice(0, 10))) return text.slice(11);
    return description.zone ? `${text} ${description.zone}` : text;
  }
  if (description.clock === 'number' && Number.isFinite(time)) return String(time);
  return `row ${whole(row)}`;
}

const axisName = () => (description.clock ? description.time : 'row');

const plural = (n, one, many = `${one}s`) => `${whole(n)} ${n === 1 ? one : many}`;

// Colours of the style sheet, remembered until the page turns dark or light.
const colours = new Map();

function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return colours.get(name);
}

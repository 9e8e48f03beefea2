// The table of segments: sorted by any column, filtered by verdict, chosen by mouse or keyboard.
const PAGE = 50;

function tableRows() {
  const named = new Map(description.series.map((s) => [s.index, s.name]));
  const rowsOf = (table, verdict) => table.first.map((first, k) => ({
    id: k, verdict: verdict(k), ...spanOf(table, k), first, end: table.end[k], times: table.times[k], length: table.end[k] - first,
    peak: table.peak[k] ?? -Infinity, top: table.top[k] ?? [], name: named.get(table.series[k]) ?? '',
  }));
  const { segments, events, labelled } = description;
  const rows = rowsOf(segments, (k) => (labelled ? (segments.hit[k] ? 'hit' : 'false') : ''));
  if (events) rows.push(...rowsOf(events, () => 'missed').filter((row) => !events.hit[row.id]));
  return rows;
}

const WORDS = { hit: 'hit', false: 'false alarm', missed: 'missed' };

class SegmentTable {
  constructor(choose) {
    this.choose = choose;
    this.all = tableRows();
    this.most = Math.max(...this.all.map((row) => row.peak).filter(Number.isFinite), 1e-30);
    this.filter = '';
    this.shown = PAGE;
    this.order = { by: 'peak', down: true };
    this.columns = [
      { name: 'Start', by: (row) => row.from }, { name: 'End', by: (row) => row.to },
      { name: 'Rows', by: (row) => row.length, number: true }, { name: 'Peak score', key: 'peak', by: (row) => row.peak, number: true },
    ];
    if (description.seriesCount > 1) this.columns.unshift({ name: 'Series', by: (row) => row.name });
    if (description.labelled) this.columns.unshift({ name: 'Verdict', by: (row) => row.verdict });
    const shares = description.segments.top.flat();
    if (shares.length) {
      this.columns.push({ name: 'Top features', by: (row) => row.top[0]?.[0] ?? '' });
      const atLeast = shares.some(([, , exact]) => !exact) ? ' ≥: at least; --explain top keeps one feature of each row, --explain all keeps every one.' : '';
      $('segments-hint').textContent = `Percentages: the feature's share of the error, summed over the rows of the segment.${atLeast}`;
    }
    this.head();
    this.filters();
    $('more').addEventListener('click', () => {
      this.shown += 10 * PAGE;
      this.fill();
    });
    this.fill();
    let cut = state.cut;
    state.observers.push(() => {
      if (cut === state.cut) return;
      cut = state.cut;
      for (const row of $('segments').tBodies[0].rows) row.classList.toggle('quiet', row.entry !== undefined && this.isQuiet(row.entry));
    });
  }

  isQuiet(row) {
    return row.verdict !== 'missed' && row.peak <= threshold();
  }

  head() {
    const cells = this.columns.map((column) => {
      const key = column.key ?? column.name;
      const cell = element('th', { scope: 'col', role: 'columnheader', class: column.number ? 'number' : '' }, element('button', { type: 'button', onclick: () => this.sort(key) }, column.name));
      cell.setAttribute('aria-sort', key === this.order.by ? 'descending' : 'none');
      cell.dataset.key = key;
      return cell;
    });
    $('segments').tHead.replaceChildren(element('tr', { role: 'row' }, ...cells));
  }

  sort(key) {
    this.order = { by: key, down: this.order.by === key ? !this.order.down : key === 'peak' || key === 'Rows' };
    for (const cell of $('segments').tHead.rows[0].cells) {
      cell.setAttribute('aria-sort', cell.dataset.key === key ? (this.order.down ? 'descending' : 'ascending') : 'none');
    }
    this.fill();
  }

  filters() {
    if (!description.labelled) return;
    const count = (verdict) => this.all.filter((row) => !verdict || row.verdict === verdict).length;
    const choices = [['', 'All'], ['hit', 'Hits'], ['false', 'False alarms'], ['missed', 'Missed']];
    $('filters').replaceChildren(...choices.map(([verdict, text]) => element('button', { type: 'button', 'aria-pressed': String(!verdict), 'data-verdict': verdict, onclick: () => this.only(verdict) }, `${text} ${whole(count(verdict))}`)));
  }

  only(verdict) {
    this.filter = verdict;
    for (const button of $('filters').children) button.setAttribute('aria-pressed', String(button.dataset.verdict === verdict));
    this.fill();
  }

  rows() {
    const { by } = this.columns.find((column) => (column.key ?? column.name) === this.order.by);
    const sign = this.order.down ? -1 : 1;
    const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return this.all.filter((row) => !this.filter || row.verdict === this.filter).sort((a, b) => sign * compare(by(a), by(b)) || a.first - b.first);
  }

  fill() {
    this.listed = this.rows();
    const body = $('segments').tBodies[0];
    body.replaceChildren(...this.listed.slice(0, this.shown).map((row) => this.row(row)));
    if (!this.listed.length) {
      const text = this.all.length ? 'None of this kind.' : 'Nothing is above the threshold.';
      body.append(element('tr', { role: 'row' }, element('td', { role: 'cell', colspan: this.columns.length }, text)));
    }
    const left = this.listed.length - this.shown;
    $('more').hidden = left <= 0;
    $('more').textContent = `Show more (${whole(left)} left)`;
    this.mark();
  }

  row(row) {
    const cell = (text, kind = '') => element('td', { class: kind }, ...[].concat(text));
    const meter = element('i');
    meter.style.width = `${Math.max(2, 100 * meterShare(row.peak, this.most))}%`;
    const cells = {
      Verdict: () => cell(element('span', { class: `verdict ${row.verdict}` }, WORDS[row.verdict] ?? '')),
      Series: () => cell(row.name, 'name'),
      Start: () => cell(moment(row.times[0], row.first)),
      End: () => cell(moment(row.times[1], row.end - 1, row.times[0])),
      Rows: () => cell(whole(row.length), 'number'),
      'Peak score': () => cell([short(Number.isFinite(row.peak) ? row.peak : NaN), element('span', { class: 'meter', 'aria-hidden': 'true' }, meter)], 'number'),
      'Top features': () => cell(row.top.slice(0, 2).map((part) => element('span', { class: 'chip' }, part[0], ' ', element('small', {}, errorShare(part)))), 'wrap'),
    };
    const made = element('tr', { tabindex: '0', role: 'row', class: this.isQuiet(row) ? 'quiet' : '', onclick: () => this.choose(row), onkeydown: (event) => this.key(event, row) }, ...this.columns.map((column) => {
      const filled = cells[column.name]();
      filled.setAttribute('role', 'cell'); // on a phone rows are laid out as cards, and browsers then forget what a cell is
      filled.dataset.column = column.name;
      if (column.name === 'Rows') filled.dataset.unit = row.length === 1 ? ' row' : ' rows';
      return filled;
    }));
    made.entry = row;
    return made;
  }

  key(event, row) {
    const next = { ArrowDown: event.currentTarget.nextElementSibling, ArrowUp: event.currentTarget.previousElementSibling }[event.key];
    if (next) next.focus();
    if (event.key === 'Enter' || event.key === ' ') this.choose(row);
    if (next || event.key === 'Enter' || event.key === ' ') event.preventDefault();
  }

  // The segment before or after the chosen one, as the table is sorted.
  neighbour(step) {
    const at = this.listed.indexOf(state.selected);
    return this.listed[Math.min(Math.max(at + step, 0), this.listed.length - 1)];
  }

  mark() {
    for (const row of $('segments').tBodies[0].rows) row.setAttribute('aria-selected', String(row.entry !== undefined && row.entry === state.selected));
  }
}

function meterShare(peak, most) {
  const base = description.threshold > 0 ? description.threshold / 10 : most / 1000;
  return most > base && peak > base ? Math.log(peak / base) / Math.log(most / base) : 0;
}
